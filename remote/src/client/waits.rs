//! When a client has to be driven again: for an owner that sleeps on its sockets itself.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Client;
use super::second::SLOW_NS;

/// An owner looks at a client at least this often: what is decided by time alone is late by no more than this.
const TICK_NS: u64 = 100_000_000;
/// Bytes that a connection did not take are sent again after this time.
const SEND_NS: u64 = 500_000;

/// The waits of a client.
#[derive(Debug)]
pub struct Waits {
    /// Answers come here.
    pub sockets: Vec<Arc<OwnedFd>>,
    /// Until then there is nothing to do without an answer, by the client's clock.
    pub until_ns: u64,
}

impl Client {
    /// Sends what is due, and takes nothing: for a thread that has just asked for something.
    pub fn push(&mut self) {
        self.flush();
        self.send_all();
    }

    /// Sends what was asked for, and takes the answers that have come: for a thread that waits for one.
    pub fn exchange(&mut self) {
        self.send_all();
        self.receive_all();
    }

    /// Does a page wait for others to go out with?
    #[must_use]
    pub fn is_gathering(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Is a lease being asked for, of which no answer has come? If it is closed now, the server keeps it for its grace.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        self.servers.iter().any(|server| server.host.as_ref().is_some_and(super::hosts::Host::is_opening))
    }

    /// Its waits now. It was driven just before.
    #[must_use]
    pub fn waits(&self) -> Waits {
        let now = self.clock.now_ns();
        let mut until_ns = now + TICK_NS;
        if self.is_gathering() || !self.unplaced.is_empty() {
            // What has found no room or must not go yet is tried again after the same time.
            until_ns =
                until_ns.min(self.gathered_ns.saturating_add(self.options.batch_ns).max(now + 200_000));
        }
        if self.moves.is_scanning() {
            until_ns = now;
        }
        let mut sockets = Vec::with_capacity(self.servers.len());
        for server in &self.servers {
            let due = match &server.host {
                None => Some(server.retry_ns()),
                Some(host) => {
                    sockets.extend(host.socket());
                    if host.is_sending() {
                        until_ns = until_ns.min(now + SEND_NS);
                    }
                    if self.options.copies > 1 {
                        // One that cannot be repeated now is looked at again, not at once.
                        let slow_ns = host.slow_at_ns().map_or(u64::MAX, |at| at.max(now + SLOW_NS / 4));
                        until_ns = until_ns.min(slow_ns);
                    }
                    host.due_ns()
                }
            };
            until_ns = until_ns.min(due.unwrap_or(u64::MAX));
        }
        Waits { sockets, until_ns }
    }

    /// Pages that the servers have room for with all their copies, granted or not.
    #[must_use]
    pub fn room(&self) -> u64 {
        let hosts = || self.servers.iter().filter_map(|server| server.host.as_ref());
        let rooms: Vec<u64> = hosts().map(super::hosts::Host::room_now).collect();
        let all: u64 = rooms.iter().sum();
        if self.options.copies < 2 {
            return all;
        }
        // A page has at most one copy on a server.
        (all / 2).min(all - rooms.iter().max().copied().unwrap_or(0))
    }
}
