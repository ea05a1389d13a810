//! What all threads of a server share: the database, the clients that are connected, and what was counted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thermocline_engine::Database;
use thermocline_sql::{Cause, Common, Interrupt};
use tokio::sync::Notify;

use crate::config::Config;

/// A client as others reach it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its number, which clients take for a process id.
    pub(crate) id: i32,
    /// What a request to cancel has to know.
    pub(crate) secret: i32,
    pub(crate) interrupt: Interrupt,
    /// Wakes it while it waits.
    pub(crate) wake: Notify,
    shared: Arc<Shared>,
}

impl Peer {
    pub(crate) fn raise(&self, cause: Cause) {
        self.interrupt.raise(cause);
        self.wake.notify_one();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.peers().remove(&self.id);
    }
}

/// What was counted since the server began.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) statements: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) panics: AtomicU64,
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) db: Database,
    /// What the sessions share.
    pub(crate) common: Arc<Common>,
    pub(crate) config: Config,
    pub(crate) counts: Counts,
    peers: Mutex<HashMap<i32, std::sync::Weak<Peer>>>,
    next: AtomicI32,
    stopping: AtomicBool,
    /// Wakes the door when the server ends.
    pub(crate) stop: Notify,
}

impl Shared {
    pub(crate) fn new(db: Database, config: Config) -> Self {
        Self {
            db,
            common: Arc::default(),
            config,
            counts: Counts::default(),
            peers: Mutex::default(),
            next: AtomicI32::new(1),
            stopping: AtomicBool::new(false),
            stop: Notify::new(),
        }
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<i32, std::sync::Weak<Peer>>> {
        // The map is whole whenever its lock is free.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clients that are connected.
    pub(crate) fn connected(&self) -> usize {
        self.peers().len()
    }

    /// A place for a client; none if all are taken.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Arc<Peer>> {
        let mut peers = self.peers();
        if peers.len() >= self.config.max_connections {
            add(&self.counts.refused, 1);
            return None;
        }
        let id = loop {
            let id = self.next.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            if id != 0 && !peers.contains_key(&id) {
                break id;
            }
        };
        let [a, b, c, d, ..] = thermocline_base::rng::fresh_id();
        let secret = i32::from_le_bytes([a, b, c, d]);
        let (interrupt, wake) = (Interrupt::default(), Notify::new());
        let peer = Arc::new(Peer { id, secret, interrupt, wake, shared: self.clone() });
        peers.insert(id, Arc::downgrade(&peer));
        add(&self.counts.connections, 1);
        Some(peer)
    }

    /// Cancels what the client with this number does, if the secret is its.
    pub(crate) fn cancel(&self, id: i32, secret: i32) {
        let peer = self.peers().get(&id).and_then(std::sync::Weak::upgrade);
        if let Some(peer) = peer.filter(|peer| peer.secret == secret) {
            add(&self.counts.cancelled, 1);
            peer.raise(Cause::Cancelled);
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Lets nobody in any more, and asks all clients to go.
    pub(crate) fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.notify_waiters();
        self.stop.notify_one();
        let peers: Vec<Arc<Peer>> = self.peers().values().filter_map(std::sync::Weak::upgrade).collect();
        peers.iter().for_each(|peer| peer.raise(Cause::Shutdown));
    }
}
