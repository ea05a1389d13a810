//! Reads that are slow: asked for at the other copy, too; whichever answer comes first is taken.
//!
//! - A read is slow when it waits longer than most of its server's: eight times their smoothed time, and [`SLOW_NS`] at least.
//! - It is repeated once, and only where the count of operations on the slot has room for it besides a move. Each of the two holds the
//!   slot until it is answered or its server is lost (`ReadHoldsSlot`), so the late answer finds its page in place, or nothing.
//! - A server that has a slow read gets no new ones as long as the other copy's has none: so one that hangs holds up
//!   what it was asked for at first only.

use super::Client;
use super::hosts::What;
use crate::message::Ask;

/// Below this no read is slow.
pub(super) const SLOW_NS: u64 = 2_000_000;
/// A server that owes an answer for so long is silent: its owner's file answers within some milliseconds.
const SILENT_NS: u64 = 5_000_000;

impl Client {
    /// Repeats reads that are slow by now.
    pub(super) fn repeat_slow_reads(&mut self, now_ns: u64) {
        if self.options.copies < 2 {
            return;
        }
        let mut slow = Vec::new();
        for server in &self.servers {
            let Some(host) = &server.host else { continue };
            slow.extend(host.slow_reads(now_ns));
        }
        for (server, number, slot, copy) in slow {
            let other = 1 - copy;
            let spot = self.spot(slot, other);
            let there = spot.and_then(|spot| self.hosts.get(&spot.host).map(|server| (*server, spot.page)));
            let Some((to, page)) = there else { continue };
            // Answered by now, or the count is needed.
            if !self.reads.contains_key(&slot) || self.table.get(slot).uses() >= 2 {
                continue;
            }
            self.mark_repeated(server, number);
            self.table.update(slot, crate::table::Entry::held);
            self.statistics.second_reads += 1;
            self.ask(to, Ask::Read { page, pages: 1 }, What::Read { slot, copy: other, repeated: true });
        }
    }

    /// Takes answers that are here, if the server of a slot seems silent: the process itself may have been slow. For an owner that has its
    /// pages elsewhere, before it asks for the slot.
    pub fn hear_of(&mut self, slot: u64) {
        let server = self.spot(slot, 0).and_then(|spot| self.hosts.get(&spot.host).copied());
        if let Some(server) = server.filter(|server| self.seems_silent(*server)) {
            self.receive_from(server);
        }
    }

    /// Does this server owe an answer for too long, by what was heard so far, where the owner has its pages elsewhere?
    pub(super) fn seems_silent(&self, server: usize) -> bool {
        let limit_ns = self.clock.now_ns().saturating_sub(SILENT_NS);
        let host = self.servers[server].host.as_ref().filter(|_| self.options.elsewhere);
        host.and_then(super::hosts::Host::owes_since_ns).is_some_and(|since_ns| since_ns < limit_ns)
    }

    /// Which copy is read first: the other one where this one's server has a slow read and that one's has none.
    pub(super) fn first_copy(&self, slot: u64) -> u8 {
        if self.options.copies < 2 {
            return 0;
        }
        let now_ns = self.clock.now_ns();
        let is_slow = |copy: u8| {
            let spot = self.spot(slot, copy)?;
            let server = *self.hosts.get(&spot.host)?;
            Some(self.host(server).has_slow_reads(now_ns))
        };
        u8::from(is_slow(0) != Some(false) && is_slow(1) == Some(false))
    }
}
