//! The work of clients: the rows of `pg_stat_activity`, and how one reaches another to cancel or end it.
//!
//! Each session of a client has an entry here from its beginning to its end. It notes when a statement begins and when it rests; texts
//! are shared, not copied. Sessions without a client (a database that a program embeds) have none.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::advisory::SessionNumber;
use super::interrupt::Cause;

/// The client of a session, as other sessions see and reach it.
#[derive(Clone)]
pub struct Client {
    /// Where it is; none: at the other end of a Unix socket.
    pub address: Option<SocketAddr>,
    /// Ends what it does, or, with [`Cause::Shutdown`], its connection.
    pub raise: Arc<dyn Fn(Cause) + Send + Sync>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The state of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doing {
    Active,
    #[default]
    Idle,
    InTransaction,
    Failed,
}

impl Doing {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Idle => "idle",
            Self::InTransaction => "idle in transaction",
            Self::Failed => "idle in transaction (aborted)",
        }
    }
}

/// The present of a session. Times are microseconds since 1970.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) doing: Doing,
    /// The statement that runs, or ran last.
    pub(crate) query: Option<Arc<str>>,
    pub(crate) application: Arc<str>,
    pub(crate) query_start: Option<i64>,
    pub(crate) transaction_start: Option<i64>,
    pub(crate) changed: i64,
}

/// A session in the list.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) number: SessionNumber,
    pub(crate) client: Client,
    pub(crate) began: i64,
    seen: Mutex<Seen>,
}

impl Backend {
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All sessions with clients.
#[derive(Debug, Default)]
pub(crate) struct Activity(Mutex<BTreeMap<SessionNumber, Arc<Backend>>>);

impl Activity {
    fn all(&self) -> MutexGuard<'_, BTreeMap<SessionNumber, Arc<Backend>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, number: SessionNumber, client: Client, now: i64) -> Arc<Backend> {
        let seen = Mutex::new(Seen { changed: now, ..Seen::default() });
        let backend = Arc::new(Backend { number, client, began: now, seen });
        self.all().insert(number, backend.clone());
        backend
    }

    pub(crate) fn leave(&self, number: SessionNumber) {
        self.all().remove(&number);
    }

    /// By number.
    pub(crate) fn backends(&self) -> Vec<Arc<Backend>> {
        self.all().values().cloned().collect()
    }

    /// Reaches the session with this number; `false`: there is none.
    pub(crate) fn raise(&self, number: SessionNumber, cause: Cause) -> bool {
        // The list is let go before: the client may end while it is reached.
        let found = self.all().get(&number).cloned();
        found.inspect(|backend| (backend.client.raise)(cause)).is_some()
    }
}
