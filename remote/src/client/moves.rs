//! Pages that move between servers: copied anew after a loss, taken away from a server that drains.
//!
//! ```text
//!   read a copy ─► check ─► write it to another server ─► answered ─► the entry names the new place, the old one is left
//! ```
//!
//! - The old place is left only when the new one has answered, and never while a read of it is under way: then the move is
//!   made again later.
//! - After a loss the whole table is looked through, some slots at a time, for pages with fewer copies than promised.

use std::collections::{BTreeSet, HashSet, VecDeque};

use super::Client;
use super::hosts::What;
use crate::message::Ask;
use crate::table::Spot;

/// Slots that one step looks at.
const SCAN_SLOTS: u64 = 4096;

/// Pages that were on their way out to a server that drains are found when the table is looked through again.
const LOOK_AGAIN_NS: u64 = 100_000_000;

/// The pages that are to be moved.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// In this order; one that is not `queued` any more is passed over.
    queue: VecDeque<u64>,
    queued: HashSet<u64>,
    under_way: BTreeSet<u64>,
    /// Pages with fewer copies than promised.
    short: BTreeSet<u64>,
    /// The slot that is looked at next.
    scan: Option<u64>,
    drain_ns: u64,
}

impl Moves {
    pub(super) fn short(&self) -> u64 {
        self.short.len() as u64
    }

    /// Are all pages, as far as is known, where they should be?
    pub(super) fn none_urgent(&self) -> bool {
        self.short.is_empty() && self.scan.is_none()
    }

    pub(super) fn is_scanning(&self) -> bool {
        self.scan.is_some()
    }

    pub(super) fn scan_from_start(&mut self) {
        self.scan = Some(0);
    }

    /// A page has fewer copies than promised.
    pub(super) fn shorten(&mut self, slot: u64) {
        self.short.insert(slot);
        self.enqueue(slot);
    }

    fn enqueue(&mut self, slot: u64) {
        if !self.under_way.contains(&slot) && self.queued.insert(slot) {
            self.queue.push_back(slot);
        }
    }

    pub(super) fn forget(&mut self, slot: u64) {
        self.short.remove(&slot);
        self.queued.remove(&slot);
    }

    fn is_idle(&self) -> bool {
        self.scan.is_none() && self.queued.is_empty() && self.under_way.is_empty()
    }
}

impl Client {
    /// Looks for pages to move, and begins with some.
    pub(super) fn continue_moves(&mut self) {
        let now = self.clock.now_ns();
        let draining = self.hosts.values().any(|server| self.host(*server).is_draining());
        if draining && self.moves.is_idle() && now >= self.moves.drain_ns {
            self.moves.drain_ns = now + (self.options.retry_ns / 8).min(LOOK_AGAIN_NS);
            self.moves.scan = Some(0);
        }
        if let Some(from) = self.moves.scan {
            let to = (from + SCAN_SLOTS).min(self.table.slots());
            (from..to).for_each(|slot| self.look(slot));
            self.moves.scan = (to < self.table.slots()).then_some(to);
        }
        while self.moves.under_way.len() < self.options.moves_max {
            let Some(slot) = self.moves.queue.pop_front() else { break };
            if self.moves.queued.remove(&slot) && !self.begin_move(slot) {
                self.moves.enqueue(slot);
                break;
            }
        }
    }

    /// Is this page where it should be? Places of hosts that are gone are forgotten.
    fn look(&mut self, slot: u64) {
        if !self.table.get(slot).in_use() || self.outs.contains_key(&slot) {
            return;
        }
        let mut there = 0;
        let mut drains = false;
        for copy in 0..self.options.copies {
            let Some(spot) = self.spot(slot, copy) else { continue };
            match self.hosts.get(&spot.host) {
                Some(server) => {
                    there += 1;
                    drains |= self.host(*server).is_draining();
                }
                None => self.set_spot(slot, copy, None),
            }
        }
        if there == 0 {
            // Nothing is left to copy: a reader that asks for it is told.
            self.moves.forget(slot);
        } else if there < self.options.copies {
            self.moves.shorten(slot);
        } else if drains {
            self.moves.enqueue(slot);
        }
    }

    /// Begins to move a page. `false`: there is nowhere to move it to now.
    fn begin_move(&mut self, slot: u64) -> bool {
        self.look(slot);
        // It may have listed the page anew.
        self.moves.queued.remove(&slot);
        if !self.table.get(slot).in_use() || self.outs.contains_key(&slot) {
            return true;
        }
        let copies: Vec<u8> = (0..self.options.copies).collect();
        let server_of = |client: &Self, copy: u8| {
            client.spot(slot, copy).and_then(|spot| client.hosts.get(&spot.host).copied())
        };
        let missing = copies.iter().copied().find(|copy| server_of(self, *copy).is_none());
        let there = copies.iter().copied().find(|copy| server_of(self, *copy).is_some());
        let draining = copies
            .iter()
            .copied()
            .find(|copy| server_of(self, *copy).is_some_and(|server| self.host(server).is_draining()));
        let (from, copy) = match (there, missing, draining) {
            (None, ..) => return true,
            (Some(from), Some(copy), _) => (from, copy),
            (_, None, Some(copy)) => (copy, copy),
            (_, None, None) => {
                self.moves.forget(slot);
                return true;
            }
        };
        let stays =
            if self.options.copies > 1 { self.spot(slot, 1 - copy).map(|spot| spot.host) } else { None };
        if self.choose(stays).is_none() {
            return false;
        }
        let server = server_of(self, from).expect("it was found there");
        let page = self.spot(slot, from).expect("it was found there").page;
        self.table.update(slot, crate::table::Entry::held);
        self.moves.under_way.insert(slot);
        self.ask(server, Ask::Read { page, pages: 1 }, What::MoveRead { slot, from, copy });
        true
    }

    /// The page to be moved has come from `server`.
    pub(super) fn move_read(&mut self, server: usize, slot: u64, from: u8, copy: u8, bytes: Vec<u8>) {
        if !self.table.get(slot).in_use() {
            return self.move_failed(slot);
        }
        if !self.is_sound(slot, &bytes) {
            self.move_failed(slot);
            return self.damaged(server, slot, from);
        }
        let stays =
            if self.options.copies > 1 { self.spot(slot, 1 - copy).map(|spot| spot.host) } else { None };
        let Some(target) = self.choose(stays) else { return self.move_failed(slot) };
        let host = self.host_mut(target);
        let run = host.take_run(1).expect("a server that is chosen has free places");
        let spot = Spot { host: host.id, page: run.first };
        self.ask(target, Ask::Write { page: run.first, bytes }, What::MoveWrite { slot, copy, spot });
    }

    /// The page is at its new place.
    pub(super) fn move_written(&mut self, slot: u64, copy: u8, spot: Spot) {
        let entry = self.table.get(slot);
        // A read of the old place may be under way, or the page was given up, or its copy lies there meanwhile.
        let twice =
            self.options.copies > 1 && self.spot(slot, 1 - copy).is_some_and(|other| other.host == spot.host);
        if !entry.in_use() || entry.uses() > 1 || twice {
            self.give_back(spot);
            return self.move_failed(slot);
        }
        self.leave_place(slot, copy);
        self.set_spot(slot, copy, Some(spot));
        self.statistics.moved_pages += 1;
        self.moves.under_way.remove(&slot);
        self.moves.short.remove(&slot);
        self.let_go(slot);
        // What it was copied from may have gone meanwhile.
        self.look(slot);
    }

    /// It is tried again, if it is still to be moved.
    pub(super) fn move_failed(&mut self, slot: u64) {
        self.moves.under_way.remove(&slot);
        self.let_go(slot);
        if self.table.get(slot).in_use() {
            self.moves.enqueue(slot);
        }
        self.release(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that are forgotten while they wait cost nothing to forget, and do not come up again unless they are listed anew.
    #[test]
    fn what_is_forgotten_is_passed_over() {
        let mut moves = Moves::default();
        (0..10).for_each(|slot| moves.shorten(slot));
        (0..10).filter(|slot| slot % 2 == 0).for_each(|slot| moves.forget(slot));
        moves.shorten(4);
        moves.shorten(4);
        let mut order = Vec::new();
        while let Some(slot) = moves.queue.pop_front() {
            if moves.queued.remove(&slot) {
                order.push(slot);
            }
        }
        assert_eq!(order, [1, 3, 4, 5, 7, 9]);
        (0..10).for_each(|slot| moves.forget(slot));
        assert!(moves.is_idle() && moves.none_urgent());
    }
}
