//! A client that was let in: its messages, one after the other, on one thread.
//!
//! ```text
//! read ─► messages ─► session (crate sql) ─► send buffer ─► write, when no whole message is left to read
//!                                                 └──────► write, when a statement's rows are to leave while it runs
//! ```
//!
//! Rules:
//!
//! - What a client sent in one piece is answered in one piece: the send buffer is written when there is nothing more to do, or
//!   [`FLUSH_BYTES`] have gathered. A statement's rows leave while it runs as far as they may ([`crate::out::Way`]).
//! - An error in the extended protocol skips what follows up to the next Sync (PostgreSQL's documentation, §55.2.3).
//! - Statements between two Syncs are one transaction, unless Sync follows at once: then the statement is its own.
//! - A message that is none, or too long, ends this connection and nothing else.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use pgwire::messages::startup::ParameterStatus;
use thermocline_engine::Reservation;
use thermocline_sql::{
    Answer, Cause, Column, Copying, Datum, Error, Held, Outlet, Prepared, Remainder, Rows, Session,
};
use tokio::time::Instant;

use crate::door::Guest;
use crate::extended::{Portal, Statement};
use crate::log;
use crate::message::{self, Message, Wrong};
use crate::out::{self, Out, Way};
use crate::shared::{Peer, Shared, add};
use crate::stream::Stream;
use crate::wire::{self, Formats, Scratch};

/// Bytes of answers that are written before all messages are done.
pub(crate) const FLUSH_BYTES: usize = 64 << 10;
/// Buffers longer than this are given back when they are empty.
const KEPT_BYTES: usize = 64 << 10;
/// Settings whose values clients are told, at the beginning and after a change.
const REPORTED: &[(&str, &str)] = &[
    ("application_name", "application_name"),
    ("client_encoding", "client_encoding"),
    ("datestyle", "DateStyle"),
    ("default_transaction_read_only", "default_transaction_read_only"),
    ("in_hot_standby", "in_hot_standby"),
    ("integer_datetimes", "integer_datetimes"),
    ("intervalstyle", "IntervalStyle"),
    ("is_superuser", "is_superuser"),
    ("server_encoding", "server_encoding"),
    ("server_version", "server_version"),
    ("session_authorization", "session_authorization"),
    ("standard_conforming_strings", "standard_conforming_strings"),
    ("timezone", "TimeZone"),
];

/// How often a statement that runs looks whether its client is still there.
const LOOK_FOR_CLIENT: Duration = Duration::from_millis(100);
/// The error of a statement whose client has gone, which nobody is told.
const GONE: &str = "08006";
/// How long a client's short statements run before others have a turn, and messages between two looks at the clock.
const TURN: Duration = Duration::from_micros(200);
const MESSAGES_A_LOOK: u32 = 16;

/// Why a connection ends.
pub(crate) enum End {
    /// The client said so, or is gone.
    Gone,
    /// The client is told why.
    Fatal(Box<Error>),
}

impl From<std::io::Error> for End {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Fatal(Box::new(error))
    }
}

pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) peer: Arc<Peer>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: Session,
    pub(crate) input: BytesMut,
    pub(crate) out: Out,
    /// The way of rows into the send buffer while their statement runs.
    pub(crate) outlet: Outlet,
    /// A message has left in part.
    pub(crate) is_amid: Cell<bool>,
    /// The memory of answers that are in the send buffer.
    pub(crate) held: Vec<Arc<Held>>,
    /// The memory of a long message that is coming in, and whether it is all there.
    incoming: Option<(Reservation, bool)>,
    /// When its turn has begun, once it has looked, and messages since then.
    turn: (Option<Instant>, u32),
    scratch: Scratch,
    pub(crate) statements: HashMap<String, Rc<Statement>>,
    pub(crate) portals: HashMap<String, Portal>,
    /// An error was sent; messages are passed over up to Sync.
    pub(crate) skipping: bool,
    reported: (u64, Vec<String>),
}

/// Rows into the send buffer.
struct Sink<'s> {
    out: &'s RefCell<Out>,
    outlet: &'s Outlet,
    columns: &'s [Column],
    formats: &'s Formats,
    scratch: &'s mut Scratch,
    start: usize,
}

impl Rows for Sink<'_> {
    fn row(&mut self, row: &[Datum]) -> usize {
        let mut out = self.out.borrow_mut();
        let before = out.bytes();
        wire::put_row(&mut out, self.columns, self.formats, row, self.scratch);
        let bytes = out.bytes() - before;
        out.cut();
        bytes
    }

    fn restart(&mut self) {
        self.out.borrow_mut().shorten(self.start);
    }

    fn outlet(&self) -> Option<&Outlet> {
        Some(self.outlet)
    }
}

/// Work whose rows go to the client.
enum Work<'w> {
    Statement(&'w mut Prepared, Vec<Datum>),
    /// The next rows of a portal; none: all.
    Portal(&'w Remainder, Option<u64>),
}

/// Serves a client until it ends.
pub(crate) async fn serve(guest: Guest, shared: Arc<Shared>) {
    let Ok(stream) = Stream::attach(guest.stream) else { return };
    let session = Session::new(&shared.db)
        .with_interrupt(guest.peer.interrupt.clone())
        .with_give_way(|| Box::pin(give_way()))
        .with_common(&shared.common, guest.peer.id)
        .with_client(client_of(&guest.peer, stream.peer_address()));
    let mut connection = Connection {
        stream,
        outlet: Outlet::new(&shared.db),
        is_amid: Cell::new(false),
        peer: guest.peer,
        shared,
        session,
        input: guest.input,
        out: Out::default(),
        held: Vec::new(),
        incoming: None,
        turn: (None, 0),
        scratch: Scratch::default(),
        statements: HashMap::new(),
        portals: HashMap::new(),
        skipping: false,
        reported: (0, Vec::new()),
    };
    let end = match caught(connection.run(&guest.settings)).await {
        Ok(Err(end)) => end,
        Err(Panicked) => {
            add(&connection.shared.counts.panics, 1);
            // A message may have been cut off.
            connection.out.empty();
            let message = "the server has met a case that it was not made for; this session has ended";
            Error::new("XX000", message)
                .hint("Its transaction was rolled back. Please report the statement.")
                .into()
        }
    };
    // Behind a message that was cut off nothing can be told.
    if let End::Fatal(error) = end
        && !(connection.is_amid.get() && connection.out.bytes() == 0)
    {
        add(&connection.shared.counts.errors, 1);
        if log::ENDS.allows() {
            let client = connection.peer.id;
            tracing::info!(client, code = error.code, message = %error.message, "a connection ends");
        }
        wire::put_error(&mut connection.out, "FATAL", &error);
        let out = RefCell::new(std::mem::take(&mut connection.out));
        let last = out::write(&out, &connection.stream, &connection.shared.counts, None);
        let _ = tokio::time::timeout(Duration::from_secs(1), last).await;
    }
}

/// Lets the other clients of the thread have a turn, and before them the threads that wait for its processor. The system would give
/// these a turn, too, but only when milliseconds have passed: a client on this machine, or the server's other threads, would wait that
/// long beside a statement that runs without end.
async fn give_way() {
    std::thread::yield_now();
    tokio::task::yield_now().await;
}

/// The work has panicked; the hook of panics has told where.
struct Panicked;

/// Does work whose panic ends this connection and nothing else. What it has left is to be dropped.
async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let poll = std::panic::AssertUnwindSafe(|| work.as_mut().poll(context));
        std::panic::catch_unwind(poll).map_or(Poll::Ready(Err(Panicked)), |polled| polled.map(Ok))
    })
    .await
}

impl Connection {
    async fn run(&mut self, settings: &[(String, String)]) -> Result<std::convert::Infallible, End> {
        for (name, value) in settings {
            self.session.set(name, value)?;
        }
        self.report();
        crate::door::put_key(&mut self.out, &self.peer);
        wire::put_ready(&mut self.out, 'I');
        loop {
            while let Some(message) = self.message()? {
                self.answer(message).await?;
                if self.out.bytes() >= FLUSH_BYTES {
                    self.flush().await?;
                }
                self.give_way().await;
            }
            self.flush().await?;
            // A client that has sent a part of a message is not idle.
            let limit = if self.input.is_empty() { self.session.idle_limit() } else { None };
            match limit {
                None => self.read().await?,
                Some((limit, error)) => match tokio::time::timeout(limit, self.read()).await {
                    Ok(read) => read?,
                    Err(_) => return Err(error.into()),
                },
            }
            // Others have had a turn while it waited.
            self.turn = (None, 0);
        }
    }

    /// Reads more, unless the server ends meanwhile.
    pub(crate) async fn read(&mut self) -> Result<(), End> {
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
            self.input = BytesMut::new();
        }
        loop {
            if self.peer.interrupt.raised() == Some(Cause::Shutdown) {
                return Err(Cause::Shutdown.error().into());
            }
            self.input.reserve(1024);
            tokio::select! {
                biased;
                read = self.stream.read(&mut self.input) => {
                    let count = read?;
                    add(&self.shared.counts.bytes_in, count as u64);
                    return if count == 0 { Err(End::Gone) } else { Ok(()) };
                }
                () = self.peer.wake.notified() => {}
            }
        }
    }

    /// A client that sends many short statements at once lets others have a turn between them.
    async fn give_way(&mut self) {
        self.turn.1 += 1;
        if self.turn.1 < MESSAGES_A_LOOK {
            return;
        }
        let now = Instant::now();
        let begun = *self.turn.0.get_or_insert(now);
        self.turn.1 = 0;
        if now.duration_since(begun) >= TURN {
            tokio::task::yield_now().await;
            self.turn.0 = None;
        }
    }

    /// Reads more, unless the statement that waits for it is to end: then it is said why.
    pub(crate) async fn read_until(&mut self, late: Option<Instant>) -> Result<Option<Cause>, End> {
        self.input.reserve(1024);
        loop {
            match self.peer.interrupt.raised() {
                Some(Cause::Shutdown) => return Err(Cause::Shutdown.error().into()),
                Some(cause) => return Ok(Some(cause)),
                None => {}
            }
            let out_of_time = async {
                match late {
                    Some(late) => tokio::time::sleep_until(late).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = self.stream.read(&mut self.input) => {
                    let count = read?;
                    add(&self.shared.counts.bytes_in, count as u64);
                    return if count == 0 { Err(End::Gone) } else { Ok(None) };
                }
                () = self.peer.wake.notified() => {}
                () = out_of_time => return Ok(Some(Cause::TimedOut)),
            }
        }
    }

    pub(crate) async fn flush(&mut self) -> Result<(), End> {
        if self.out.bytes() == 0 {
            return Ok(());
        }
        let out = RefCell::new(std::mem::take(&mut self.out));
        tokio::select! {
            biased;
            written = out::write(&out, &self.stream, &self.shared.counts, None) => drop(written?),
            () = ended(&self.peer) => return Err(End::Gone),
        }
        self.out = out.into_inner();
        self.is_amid.set(false);
        self.held.clear();
        Ok(())
    }

    /// The next whole message, if it is here.
    pub(crate) fn message(&mut self) -> Result<Option<Message>, End> {
        let Some(&[kind, a, b, c, d]) = self.input.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let limit = self.shared.config.max_message_bytes;
        if length < 4 {
            return Err(Error::new("08P01", "invalid message length").into());
        }
        if length > limit {
            let message = format!("a message of {length} bytes is longer than the {limit} that are taken");
            return Err(Error::new("54000", message).into());
        }
        if self.incoming.as_ref().is_some_and(|(_, is_there)| *is_there) {
            self.incoming = None;
        }
        if self.input.len() < length + 1 {
            if length > KEPT_BYTES && self.incoming.is_none() {
                let mut room = self.shared.db.reservation();
                // Once as it comes, and once as it is read.
                room.add(2 * length as u64).map_err(Error::from)?;
                self.incoming = Some((room, false));
            }
            self.input.reserve((length + 1 - self.input.len()).min(KEPT_BYTES));
            return Ok(None);
        }
        if let Some((_, is_there)) = &mut self.incoming {
            *is_there = true;
        }
        let mut body = self.input.split_to(length + 1).freeze();
        body.advance(5);
        match message::decode(kind, body) {
            Ok(message) => Ok(Some(message)),
            Err(Wrong::Text(error)) => Ok(Some(Message::NoText(kind, error))),
            Err(Wrong::Malformed(error)) => Err(error.into()),
        }
    }

    async fn answer(&mut self, message: Message) -> Result<(), End> {
        if self.skipping && !matches!(message, Message::Sync | Message::Terminate) {
            return Ok(());
        }
        let done = match message {
            Message::Query(text) => {
                self.query(&text).await?;
                return Ok(());
            }
            Message::NoText(b'Q', error) => {
                self.refuse(&error);
                self.ready().await;
                return Ok(());
            }
            Message::NoText(_, error) => Err(error),
            Message::Parse { name, text, types } => self.parse(name, &text, &types),
            Message::Bind(bind) => self.bind(bind),
            Message::Describe(target) => self.describe(&target),
            Message::Execute { portal, max_rows } => self.execute(&portal, max_rows).await?,
            Message::Close(target) => {
                self.close(&target);
                Ok(())
            }
            Message::Sync => {
                self.sync().await;
                Ok(())
            }
            Message::Flush => return self.flush().await,
            Message::Terminate => return Err(End::Gone),
            // What a client sends of a COPY that has failed.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => Ok(()),
            Message::Unexpected(kind) => {
                let message = format!("invalid frontend message type {kind}");
                return Err(Error::new("08P01", message).into());
            }
        };
        if let Err(error) = done {
            self.refuse(&error);
            self.skipping = true;
        }
        Ok(())
    }

    /// Tells the client of an error.
    pub(crate) fn refuse(&mut self, error: &Error) {
        add(&self.shared.counts.errors, 1);
        self.session.abandon();
        wire::put_error(&mut self.out, "ERROR", error);
    }

    async fn sync(&mut self) {
        self.skipping = false;
        self.ready().await;
    }

    /// Ends the implicit transaction and says what state the session is in.
    async fn ready(&mut self) {
        if let Err(error) = self.session.end_implicit().await {
            self.refuse(&error);
        }
        if self.session.status() == 'I' {
            self.portals.clear();
        }
        self.report();
        wire::put_ready(&mut self.out, self.session.status());
    }

    /// All statements of a text, one transaction round those that open none themselves.
    async fn query(&mut self, text: &str) -> Result<(), End> {
        match self.session.parse(text) {
            Err(error) => self.refuse(&error),
            Ok(statements) if statements.is_empty() => wire::put_bare(&mut self.out, b'I'),
            Ok(statements) => {
                let several = statements.len() > 1;
                for mut statement in statements {
                    if let Err(error) = self.simple(&mut statement, several).await? {
                        self.refuse(&error);
                        break;
                    }
                    if self.out.bytes() >= FLUSH_BYTES {
                        self.flush().await?;
                    }
                }
            }
        }
        self.ready().await;
        Ok(())
    }

    async fn simple(&mut self, statement: &mut Prepared, several: bool) -> Result<Result<(), Error>, End> {
        let opened = if several && !statement.is_boundary() { self.session.begin_implicit() } else { Ok(()) };
        if let Err(error) = opened.and_then(|()| self.session.describe(statement, &[])) {
            return Ok(Err(error));
        }
        let start = self.out.end();
        let columns: Rc<[Column]> = statement.columns().into();
        if statement.returns_rows() {
            wire::put_columns(&mut self.out, &columns, &Formats::TEXT);
        }
        match self.run_statement(statement, &columns, &Formats::TEXT, Vec::new()).await? {
            Ok(tag) => {
                wire::put_complete(&mut self.out, &tag);
                Ok(Ok(()))
            }
            Err(error) => {
                self.out.shorten(start);
                Ok(Err(error))
            }
        }
    }

    /// Runs a statement with its rows into the send buffer; returns its tag.
    pub(crate) async fn run_statement(
        &mut self,
        statement: &mut Prepared,
        columns: &[Column],
        formats: &Formats,
        parameters: Vec<Datum>,
    ) -> Result<Result<String, Error>, End> {
        if statement.copying().is_some() {
            // A COPY is no plan: its table is what has the name now.
            if let Err(error) = self.session.describe(statement, &[]) {
                return Ok(Err(error));
            }
        }
        if let Some(copying) = statement.copying() {
            return match copying {
                Copying::In(columns) => self.copy_in(statement, columns).await,
                Copying::Out(format) => self.copy_out(statement, &format).await,
            };
        }
        if let Some(name) = statement.deallocates()
            && let Some(tag) = self.deallocate(name)
        {
            return Ok(Ok(tag));
        }
        let ran = self.run_rows(Work::Statement(statement, parameters), (columns, formats)).await?;
        Ok(ran.map(|answer| {
            add(&self.shared.counts.statements, 1);
            answer.tag
        }))
    }

    /// Does work whose rows go into the send buffer, and leave from there meanwhile.
    async fn run_rows(
        &mut self,
        work: Work<'_>,
        (columns, formats): (&[Column], &Formats),
    ) -> Result<Result<Answer, Error>, End> {
        let start = self.out.end();
        let limit = self.session.statement_timeout();
        self.scratch.zone = self.session.local().zone;
        let out = RefCell::new(std::mem::take(&mut self.out));
        let (outlet, scratch) = (&self.outlet, &mut self.scratch);
        let mut sink = Sink { out: &out, outlet, columns, formats, scratch, start };
        let way = Way { outlet, out: &out, counts: &self.shared.counts, is_amid: &self.is_amid };
        let peer = (&*self.peer, &self.stream);
        let ran = match work {
            Work::Statement(statement, parameters) => {
                let work = self.session.execute_to(statement, parameters, &mut sink);
                interruptible(peer, limit, Some(&way), pin!(work)).await
            }
            Work::Portal(remainder, most) => {
                let work = self.session.fetch_portal(remainder, most, &mut sink);
                interruptible(peer, limit, Some(&way), pin!(work)).await
            }
        };
        self.out = out.into_inner();
        let mut answer = match ran {
            Ok(answer) => answer,
            Err(error) => {
                self.out.shorten(start);
                return ended_by(error).map(Err);
            }
        };
        self.held.extend(answer.held.take());
        add(&self.shared.counts.rows, answer.count);
        answer.notices.iter().for_each(|notice| wire::put_notice(&mut self.out, notice));
        Ok(Ok(answer))
    }

    /// Runs a statement whose rows are to be fetched a number at a time; returns its tag, and the rows.
    pub(crate) async fn open_portal(
        &mut self,
        statement: &mut Prepared,
        parameters: Vec<Datum>,
    ) -> Result<Result<(String, Remainder), Error>, End> {
        let limit = self.session.statement_timeout();
        let work = self.session.open_portal(statement, parameters);
        let ran = interruptible((&self.peer, &self.stream), limit, None, pin!(work)).await;
        match ran {
            Ok((answer, remainder)) => {
                add(&self.shared.counts.statements, 1);
                answer.notices.iter().for_each(|notice| wire::put_notice(&mut self.out, notice));
                Ok(Ok((answer.tag, remainder)))
            }
            Err(error) => ended_by(error).map(Err),
        }
    }

    /// Sends the next rows of a portal, `most` of them at the most (0: all); returns their number.
    pub(crate) async fn fetch_portal(
        &mut self,
        remainder: &Remainder,
        most: usize,
        shown: (&[Column], &Formats),
    ) -> Result<Result<u64, Error>, End> {
        let most = Some(most as u64).filter(|most| *most > 0);
        let ran = self.run_rows(Work::Portal(remainder, most), shown).await?;
        Ok(ran.map(|answer| answer.count))
    }

    /// Forgets a statement of the extended protocol, or all; returns the tag if it was one.
    fn deallocate(&mut self, name: Option<&str>) -> Option<String> {
        match name {
            Some(name) => self.statements.remove(name).map(|_| "DEALLOCATE".to_owned()),
            None => {
                self.statements.retain(|name, _| name.is_empty());
                None
            }
        }
    }

    /// Tells the client of settings that have changed.
    fn report(&mut self) {
        let version = self.session.settings_version() + 1;
        if self.reported.0 == version {
            return;
        }
        let value = |name: &str| match name {
            "in_hot_standby" => "off".to_owned(),
            "is_superuser" => "on".to_owned(),
            "session_authorization" => crate::ROLE.to_owned(),
            name => self.session.setting(name).unwrap_or_default(),
        };
        let values: Vec<String> = REPORTED.iter().map(|(name, _)| value(name)).collect();
        for (place, ((_, name), value)) in REPORTED.iter().zip(&values).enumerate() {
            if self.reported.1.get(place) != Some(value) {
                wire::put(&mut self.out, &ParameterStatus::new((*name).to_owned(), value.clone()));
            }
        }
        self.reported = (version, values);
    }
}

/// The client as other sessions reach it.
fn client_of(peer: &Arc<Peer>, address: Option<std::net::SocketAddr>) -> thermocline_sql::Client {
    let peer = Arc::downgrade(peer);
    let raise = move |cause| {
        if let Some(peer) = peer.upgrade() {
            peer.raise(cause);
        }
    };
    thermocline_sql::Client { address, raise: Arc::new(raise) }
}

/// Does an error end the connection?
pub(crate) fn ended_by(error: Error) -> Result<Error, End> {
    match error.code {
        "57P01" => Err(error.into()),
        GONE => Err(End::Gone),
        _ => Ok(error),
    }
}

/// Runs until it ends or is interrupted, or its client has gone; an interrupt before it does not count, but for the server's end. A
/// commit that is decided is waited for: a client that were told of a cancel would do its work twice. `work` is pinned: a statement's
/// future has kilobytes, and is not to be copied from caller to callee.
pub(crate) fn interruptible<'w, T>(
    (peer, stream): (&'w Peer, &'w Stream),
    limit: Option<Duration>,
    way: Option<&'w Way<'w>>,
    work: Pin<&'w mut impl Future<Output = Result<T, Error>>>,
) -> impl Future<Output = Result<T, Error>> {
    if peer.interrupt.raised() != Some(Cause::Shutdown) {
        peer.interrupt.clear();
    }
    running((peer, stream), limit, way, work)
}

/// The same; an interrupt before it counts.
pub(crate) async fn running<T>(
    (peer, stream): (&Peer, &Stream),
    limit: Option<Duration>,
    way: Option<&Way<'_>>,
    mut work: Pin<&mut impl Future<Output = Result<T, Error>>>,
) -> Result<T, Error> {
    let late = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let gone = async {
        loop {
            tokio::time::sleep(LOOK_FOR_CLIENT).await;
            if stream.is_gone() {
                return;
            }
        }
    };
    let leaving = async {
        match way {
            Some(way) => way.run(stream).await,
            None => std::future::pending().await,
        }
    };
    let mut leaving = pin!(leaving);
    let mut late = pin!(late);
    let mut gone = pin!(gone);
    let (mut timed, mut watched) = (limit.is_some(), true);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = peer.wake.notified() => {
                if let Some(cause) = peer.interrupt.raised().filter(|_| !peer.interrupt.is_decided()) {
                    return Err(cause.error());
                }
            }
            () = &mut late, if timed => {
                if !peer.interrupt.is_decided() {
                    return Err(Cause::TimedOut.error());
                }
                timed = false;
            }
            () = &mut gone, if watched => {
                if !peer.interrupt.is_decided() {
                    return Err(Error::new(GONE, "the client has gone"));
                }
                watched = false;
            }
            _ = &mut leaving => return Err(Error::new(GONE, "the client has gone")),
        }
    }
}

/// Ends when the server does.
async fn ended(peer: &Peer) {
    while peer.interrupt.raised() != Some(Cause::Shutdown) {
        peer.wake.notified().await;
    }
}
