//! The way of rows to a client while their statement still runs.
//!
//! ```text
//! rows ─► sink ─► send buffer ── FULL bytes ─► the executor pauses ─► the embedder writes ─► the executor goes on
//! ```
//!
//! An [`Outlet`] stands between the sink of a statement's rows and its executor. When [`FULL`] bytes have gathered, the executor's
//! turn is over; its next pause, which is outside of pins, lasts until the embedder has let them leave. So every plan streams: it keeps
//! what its operators keep, and its answer is never whole.
//!
//! Rules:
//! - Rows leave only of a statement that cannot run again ([`Outlet::begin`] is told so with each attempt): a query that locks no
//!   rows and asks nothing of its session. Its tables have been opened before its first row. Once rows have left, an error ends it.
//! - Rows of a statement that is its own transaction leave when all that it may have read is durable, as its commit would have waited
//!   for; and when the numbers of sequences that it shows are.
//! - A client that stops reading holds its statement up. At read committed that must not cost an open transaction its snapshot, which
//!   it would not keep otherwise: after [`PATIENCE`] without progress the rest of the answer is kept until the statement has ended. Nor
//!   is it idleness ([`Statement::attend`](thermocline_engine::Statement::attend)).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use thermocline_engine::Database;

use crate::error::Result;
use crate::expr::Context;
use crate::shared::interrupt::Cause;

/// Bytes that gather before they leave.
const FULL: usize = 64 << 10;
/// The time for which an open transaction at read committed waits for a client that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// The fate of the rows that have gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// They stay until the statement has ended.
    Shut,
    /// They will leave when there are enough.
    Open,
    /// There are enough: the executor pauses.
    Full,
    /// The executor waits until the embedder has let them leave.
    Leaving,
}

/// The transaction of a statement whose rows may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// It holds this statement alone.
    Alone,
    /// It is open; true: its snapshot is the statement's alone.
    Open(bool),
}

/// Lets the rows of a statement leave before it has ended: shared between what takes the rows and the session that makes them. See
/// [`Rows::outlet`](crate::Rows::outlet).
///
/// Its owner polls [`Outlet::full`] beside the statement, lets all leave that has gathered, and calls [`Outlet::emptied`].
#[derive(Clone, Debug)]
pub struct Outlet(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    db: Database,
    stage: Cell<Stage>,
    of: Cell<Of>,
    /// Bytes that have gathered, and those that have left and are still charged.
    gathered: Cell<usize>,
    left: Cell<usize>,
    /// Rows of this statement have left, or are leaving.
    has_left: Cell<bool>,
    /// The statement has read tables, and all that it may have seen is known to be durable.
    has_read: Cell<bool>,
    is_sure: Cell<bool>,
    statement: RefCell<Option<Waker>>,
    owner: RefCell<Option<Waker>>,
}

fn wake(waker: &RefCell<Option<Waker>>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl Outlet {
    /// An outlet for the statements of a session on this database, one after the other.
    #[must_use]
    pub fn new(db: &Database) -> Self {
        Self(Rc::new(Inner {
            db: db.clone(),
            stage: Cell::new(Stage::Shut),
            of: Cell::new(Of::Alone),
            gathered: Cell::new(0),
            left: Cell::new(0),
            has_left: Cell::new(false),
            has_read: Cell::new(false),
            is_sure: Cell::new(false),
            statement: RefCell::default(),
            owner: RefCell::default(),
        }))
    }

    /// Ready when rows have gathered that are to leave now. The statement waits until [`Outlet::emptied`] or [`Outlet::keep`].
    pub async fn full(&self) {
        std::future::poll_fn(|context| {
            if self.0.stage.get() == Stage::Leaving {
                return Poll::Ready(());
            }
            self.0.owner.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Says that all rows that have gathered have left.
    pub fn emptied(&self) {
        self.0.left.set(self.0.left.get() + self.0.gathered.replace(0));
        if matches!(self.0.stage.get(), Stage::Full | Stage::Leaving) {
            self.0.stage.set(Stage::Open);
        }
        wake(&self.0.statement);
    }

    /// Keeps what has gathered and all that comes until the statement has ended.
    pub fn keep(&self) {
        self.0.stage.set(Stage::Shut);
        wake(&self.0.statement);
    }

    /// The time without progress after which its owner is to [`Outlet::keep`] the rest; none: it waits for its client.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        (self.0.of.get() == Of::Open(true)).then_some(PATIENCE)
    }

    /// True if rows of the statement that runs, or ran last, have left or were about to: they cannot be taken back.
    #[must_use]
    pub fn has_let_out(&self) -> bool {
        self.0.has_left.get()
    }

    /// A statement begins: nothing has gathered, and nothing may leave.
    pub(crate) fn shut(&self) {
        self.0.stage.set(Stage::Shut);
        self.0.has_left.set(false);
        self.0.has_read.set(false);
        self.0.is_sure.set(false);
        self.0.gathered.set(0);
        self.0.left.set(0);
    }

    /// An attempt begins that no other one has to follow: its rows may leave.
    pub(crate) fn begin(&self, of: Of) {
        self.0.of.set(of);
        self.0.stage.set(Stage::Open);
    }

    /// The statement reads a table.
    pub(crate) fn note_read(&self) {
        self.0.has_read.set(true);
    }

    /// Notes that so many bytes have gathered; true: they are to leave.
    #[inline]
    pub(crate) fn gather(&self, bytes: usize) -> bool {
        let gathered = self.0.gathered.get() + bytes;
        self.0.gathered.set(gathered);
        if gathered >= FULL && self.0.stage.get() == Stage::Open {
            self.0.stage.set(Stage::Full);
        }
        self.0.stage.get() == Stage::Full
    }

    /// Bytes that have left since it was asked last.
    #[inline]
    pub(crate) fn take_left(&self) -> usize {
        self.0.left.replace(0)
    }

    fn is_full(&self) -> bool {
        self.0.stage.get() == Stage::Full
    }

    /// Waits until all that the statement may have read is durable. False: that cannot be known, and its commit is to decide.
    async fn is_durable(&self) -> bool {
        if self.0.of.get() == Of::Alone && self.0.has_read.get() && !self.0.is_sure.get() {
            let durable = self.0.db.acknowledged().await.is_ok();
            // A statement reads at one snapshot, which is older than this.
            self.0.is_sure.set(durable);
            return durable;
        }
        true
    }
}

impl Context {
    /// Lets the rows leave that have gathered, if there are enough.
    pub(crate) async fn let_out(&self) -> Result<()> {
        let Some(outlet) = self.outlet.as_ref().filter(|outlet| outlet.is_full()) else { return Ok(()) };
        // In a box: each pause of each operator has room for what is rare.
        Box::pin(self.let_out_of(outlet)).await
    }

    async fn let_out_of(&self, outlet: &Outlet) -> Result<()> {
        if !outlet.is_durable().await {
            outlet.keep();
            return Ok(());
        }
        if outlet.0.of.get() == Of::Alone
            && let Some(sequences) = &self.sequences
        {
            sequences.settle().await?;
        }
        outlet.0.has_left.set(true);
        outlet.0.stage.set(Stage::Leaving);
        wake(&outlet.0.owner);
        std::future::poll_fn(|context| {
            if outlet.0.stage.get() != Stage::Leaving {
                return Poll::Ready(Ok(()));
            }
            if let Some(cause) = self.interrupt.raised() {
                return Poll::Ready(Err(cause.error()));
            }
            outlet.0.statement.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await?;
        match &self.deadline {
            Some(deadline) if deadline.is_over() => Err(Cause::TimedOut.error()),
            _ => Ok(()),
        }
    }
}
