//! The client: pages of one process out to memory servers, and in again.
//!
//! ```text
//!   page_out ─► gathered (a batch, or its time) ─► runs to the servers ─► answered by all copies ─► Event::Out { slot }
//!   page_in ──► one read for all that ask ─► checked ─► Event::In         refused, late, lost ─► the other copy
//! ```
//!
//! It is a state machine that its owner drives ([`Client::drive`]): no threads, no waits of its own; time comes from a clock.
//!
//! - A page is out only when it is in as many places as were promised; until then its owner keeps it.
//! - What comes in is compared with the checksum in the table, whoever sent it, so nothing late, foreign, old or damaged is
//!   served; an answer counts only if it names the lease (`AnswersNameLease`) and a request under way.
//! - The place of a slot is given anew only when neither a read nor a write of it is under way (`ReadHoldsSlot`,
//!   `WriteHoldsSlot`).
//! - Where pages are sealed, what comes in must open, too (module `seal`).
//! - A lease is used until half of its grace after the sending of the last request that was answered (`LeaseEndsAtHalf`). A lease
//!   that was given up is never used again; the server may come back under a new one, empty.
//! - While some pages have fewer copies than promised, copying them goes before further page-outs. A place is left only when the new
//!   one has answered.
//! - Where the owner has each page elsewhere, a server that has owed an answer for [some time](PageError::Silent) is asked for nothing
//!   until it has given one: what it was asked for at first is the probe.
//! - Servers get pages by free memory: two are drawn at random, the better one gets the batch (Mitzenmacher, 2001).
//!
//! Limits: connecting may block for the time-out of a connection.

mod hosts;
mod moves;
mod second;
mod waits;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::checksum::crc32c;
use thermocline_base::clock::Clock;
use thermocline_base::rng::Rng;

use crate::message::Ask;
use crate::mutation::{Rule, off};
use crate::seal::Seals;
use crate::slots::{RUN_MAX, Slots};
use crate::table::{Entry, PageSize, PageTable, SecondCopy, Spot};
use crate::transport::Connect;
use hosts::{Server, What};
pub use waits::Waits;

/// Options of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientOptions {
    /// Servers that have each page: 1 or 2.
    pub copies: u8,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages that are gathered before they are sent.
    pub batch_pages: u32,
    /// Nanoseconds that a page waits for others at the most.
    pub batch_ns: u64,
    /// Its owner has each page elsewhere, too: a server without an answer is not waited for longer than with two copies, and while it
    /// is [silent](PageError::Silent) nothing is asked of it.
    pub elsewhere: bool,
    /// Nanoseconds after which a server without an answer is lost, where there is another copy.
    pub timeout_ns: u64,
    /// Nanoseconds until a server that was lost or not reached is tried again.
    pub retry_ns: u64,
    /// Segments that are asked for on all servers together, at the most.
    pub segments_max: u32,
    /// Pages that are copied or moved at the same time.
    pub moves_max: usize,
    /// Of the draws.
    pub seed: u64,
    /// Servers get pages encrypted and authenticated, by a key of this client alone.
    pub sealed: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            copies: 1,
            page_bytes: 4096,
            batch_pages: RUN_MAX,
            batch_ns: 1_000_000,
            elsewhere: false,
            timeout_ns: 1_000_000_000,
            retry_ns: 1_000_000_000,
            segments_max: u32::MAX,
            moves_max: 32,
            seed: 1,
            sealed: false,
        }
    }
}

/// Names a request of the owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(u64);

/// Why a page did not go out or come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PageError {
    /// There is no room for all copies: the page stays with its owner.
    Full,
    /// No server has the page any more.
    Lost {
        /// Its slot.
        slot: u64,
    },
    /// The server that has the page does not answer at present: its owner has it elsewhere ([`ClientOptions::elsewhere`]).
    Silent {
        /// Its slot.
        slot: u64,
    },
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str(
                "the memory servers have no room for all copies of the page; add a server, or export more memory",
            ),
            Self::Lost { slot } => write!(f, "all copies of the page in slot {slot} were lost with their servers"),
            Self::Silent { slot } => write!(f, "the server of the page in slot {slot} does not answer"),
        }
    }
}

impl std::error::Error for PageError {}

/// The result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The page is in as many places as promised; its owner may drop it.
    Out {
        /// Of the request.
        ticket: Ticket,
        /// The number by which it is found.
        slot: u64,
    },
    /// The page is back. Its slot still has it, until it is freed.
    In {
        /// Of the request.
        ticket: Ticket,
        /// Its bytes.
        bytes: Arc<[u8]>,
    },
    /// It did not work.
    Failed {
        /// Of the request.
        ticket: Ticket,
        /// Why.
        error: PageError,
    },
}

/// Statistics of a client so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClientStatistics {
    /// Leases that are held.
    pub leases: u64,
    /// Pages that are out.
    pub remote_pages: u64,
    /// Bytes of the table and the slots.
    pub table_bytes: u64,
    /// Pages that came in.
    pub page_ins: u64,
    /// Pages that went out.
    pub page_outs: u64,
    /// Messages that pages went out with.
    pub runs: u64,
    /// Pages taken back before they were out.
    pub taken_back: u64,
    /// Reads that were asked for while the same one was under way.
    pub shared_reads: u64,
    /// Reads that went to the other copy.
    pub second_reads: u64,
    /// Leases that were given up because the server was lost.
    pub lost_servers: u64,
    /// Pages that were copied or moved from server to server.
    pub moved_pages: u64,
    /// Pages with fewer copies than promised, as far as they are known.
    pub short_pages: u64,
    /// Answers that named no request of this lease.
    pub refused_answers: u64,
    /// Answers whose page was not what had been written.
    pub damaged_answers: u64,
}

/// A page on its way out.
#[derive(Debug)]
struct Out {
    /// `None`: its owner has taken it back.
    ticket: Option<Ticket>,
    bytes: Arc<[u8]>,
    /// Copies that were not answered yet.
    missing: u8,
}

/// See the module.
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    clock: Arc<dyn Clock>,
    rng: Rng,
    table: PageTable,
    slots: Slots,
    seals: Option<Seals>,
    servers: Vec<Server>,
    /// Where the host of an entry is found.
    hosts: BTreeMap<u32, usize>,
    next_host: u32,
    gathered: VecDeque<(Ticket, Arc<[u8]>)>,
    gathered_ns: u64,
    outs: HashMap<u64, Out>,
    /// Copies that found no place yet: slot, and which copy.
    unplaced: VecDeque<(u64, u8)>,
    reads: HashMap<u64, Vec<Ticket>>,
    moves: moves::Moves,
    events: VecDeque<Event>,
    next_ticket: u64,
    statistics: ClientStatistics,
}

impl Client {
    /// Pages to these servers. They are connected to by [`Client::drive`].
    ///
    /// # Panics
    /// When the copies are neither 1 nor 2.
    #[must_use]
    pub fn new(options: ClientOptions, clock: Arc<dyn Clock>, servers: Vec<Box<dyn Connect>>) -> Self {
        assert!((1..=2).contains(&options.copies), "one copy or two");
        Self {
            table: PageTable::new(options.copies > 1),
            slots: Slots::new(),
            seals: options.sealed.then(Seals::new),
            servers: servers.into_iter().map(Server::new).collect(),
            hosts: BTreeMap::new(),
            next_host: 0,
            rng: Rng::new(options.seed),
            gathered: VecDeque::new(),
            gathered_ns: 0,
            outs: HashMap::new(),
            unplaced: VecDeque::new(),
            reads: HashMap::new(),
            moves: moves::Moves::default(),
            events: VecDeque::new(),
            next_ticket: 0,
            statistics: ClientStatistics::default(),
            options,
            clock,
        }
    }

    /// Its statistics so far.
    #[must_use]
    pub fn statistics(&self) -> ClientStatistics {
        ClientStatistics {
            leases: self.hosts.len() as u64,
            remote_pages: self.slots.len() - self.slots.free_count(),
            table_bytes: (self.table.bytes()
                + self.slots.bytes()
                + self.seals.as_ref().map_or(0, Seals::bytes)) as u64,
            short_pages: self.moves.short(),
            ..self.statistics
        }
    }

    /// The last trouble with each server that is not connected: address and reason.
    pub fn troubles(&self) -> impl Iterator<Item = (String, &str)> {
        self.servers.iter().filter(|server| server.host.is_none()).map(Server::trouble)
    }

    /// The next event, if there is one.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Begins to send a page out.
    ///
    /// # Panics
    /// When it is not as long as a page.
    pub fn page_out(&mut self, bytes: Arc<[u8]>) -> Ticket {
        assert_eq!(bytes.len(), self.options.page_bytes as usize, "a page has the length of pages");
        if self.gathered.is_empty() {
            self.gathered_ns = self.clock.now_ns();
        }
        let ticket = self.ticket();
        self.gathered.push_back((ticket, bytes));
        ticket
    }

    /// Takes a page back that was not out yet: its owner has gone on with it. No event of it comes any more.
    pub fn take_back(&mut self, ticket: Ticket) {
        let before = self.gathered.len();
        self.gathered.retain(|(waits, _)| *waits != ticket);
        if self.gathered.len() < before {
            self.statistics.taken_back += 1;
        } else if let Some((&slot, out)) = self.outs.iter_mut().find(|(_, out)| out.ticket == Some(ticket)) {
            out.ticket = None;
            self.statistics.taken_back += 1;
            self.table.update(slot, Entry::unused);
            self.unplaced.retain(|(waits, _)| *waits != slot);
            if off(Rule::WriteHoldsSlot) {
                self.leave_places(slot);
            }
            self.release(slot);
        }
    }

    /// Begins to read the page of a slot.
    pub fn page_in(&mut self, slot: u64) -> Ticket {
        let ticket = self.ticket();
        if let Some(waiters) = self.reads.get_mut(&slot) {
            waiters.push(ticket);
            self.statistics.shared_reads += 1;
        } else {
            self.reads.insert(slot, vec![ticket]);
            self.table.update(slot, Entry::held);
            self.read(slot);
        }
        ticket
    }

    /// Gives a slot back; its page is forgotten. Reads of it that are under way still end.
    ///
    /// # Panics
    /// When it is not in use.
    pub fn free(&mut self, slot: u64) {
        assert!(self.table.get(slot).in_use(), "slot {slot} is freed and not in use");
        self.table.update(slot, Entry::unused);
        if off(Rule::ReadHoldsSlot) {
            self.leave_places(slot);
        }
        self.release(slot);
    }

    /// Connects, sends what has been gathered, takes answers and gives up servers that are lost. Waits up to `wait`
    /// for an answer if none is there.
    pub fn drive(&mut self, wait: Duration) {
        self.tend();
        self.flush();
        self.continue_moves();
        self.send_all();
        if !self.receive_all() && !wait.is_zero() && self.events.is_empty() {
            self.wait_for_answer(wait);
            self.receive_all();
        }
        self.send_all();
    }

    /// Ends all leases, so that servers need not wait for the grace. Nothing that is out can be read afterwards.
    pub fn close(mut self) {
        self.close_all();
    }

    /// As [`Client::close`], for an owner that cannot give it away. It is not driven again.
    pub(crate) fn close_all(&mut self) {
        for server in 0..self.servers.len() {
            self.close_host(server);
        }
    }

    // ---- going out ----

    /// Sends the batch, if it is full or old, and nothing is more urgent.
    fn flush(&mut self) {
        let waiting: Vec<(u64, u8)> = self.unplaced.drain(..).collect();
        for copy in 0..self.options.copies {
            let slots: Vec<u64> =
                waiting.iter().filter(|(_, which)| *which == copy).map(|(slot, _)| *slot).collect();
            self.place(&slots, copy);
        }
        let now = self.clock.now_ns();
        while self.gathered.len() >= self.options.batch_pages as usize
            || (!self.gathered.is_empty() && now.saturating_sub(self.gathered_ns) >= self.options.batch_ns)
        {
            let count = self.gathered.len().min(self.options.batch_pages as usize);
            if !self.room_for(count as u64) {
                if !self.may_get_room() {
                    for (ticket, _) in self.gathered.drain(..) {
                        self.events.push_back(Event::Failed { ticket, error: PageError::Full });
                    }
                }
                return;
            }
            if !self.moves.none_urgent() {
                return;
            }
            let batch: Vec<_> = self.gathered.drain(..count).collect();
            self.gathered_ns = now;
            let slots: Vec<u64> =
                batch.into_iter().map(|(ticket, bytes)| self.begin(ticket, bytes)).collect();
            (0..self.options.copies).for_each(|copy| self.place(&slots, copy));
        }
    }

    /// Gives a page its slot.
    fn begin(&mut self, ticket: Ticket, bytes: Arc<[u8]>) -> u64 {
        let slot = self.slots.take().unwrap_or_else(|| {
            let leaf = self.table.add_leaf();
            self.slots.grow(leaf.end);
            self.slots.give(leaf);
            self.slots.take().expect("a new leaf has free slots")
        });
        self.table.update(slot, |_| Entry::unplaced(PageSize::Small));
        let bytes = match &mut self.seals {
            None => bytes,
            Some(seals) => {
                let mut sealed = bytes.to_vec();
                seals.seal(slot, &mut sealed);
                sealed.into()
            }
        };
        self.table.set_sum(slot, crc32c(&bytes));
        self.outs.insert(slot, Out { ticket: Some(ticket), bytes, missing: self.options.copies });
        slot
    }

    /// Sends a copy of each of these pages, in runs, to a server that does not have the other one.
    fn place(&mut self, slots: &[u64], copy: u8) {
        let mut rest: VecDeque<u64> = slots.iter().copied().collect();
        while let Some(&first) = rest.front() {
            let other = self.spot(first, 1 - copy).map(|spot| spot.host);
            let Some(server) = self.choose(other) else {
                self.unplaced.extend(rest.into_iter().map(|slot| (slot, copy)));
                return;
            };
            // Only as many as have their other copy elsewhere.
            let host_id = self.host(server).id;
            let same = rest
                .iter()
                .take_while(|slot| self.spot(**slot, 1 - copy).is_none_or(|spot| spot.host != host_id));
            let wanted = same.count().min(RUN_MAX as usize) as u32;
            let host = self.host_mut(server);
            let run = host.take_run(wanted).expect("a server that is chosen has free places");
            let run_slots: Vec<u64> = rest.drain(..run.len as usize).collect();
            for (slot, page) in run_slots.iter().zip(run.slots()) {
                self.set_spot(*slot, copy, Some(Spot { host: host_id, page }));
                self.table.update(*slot, Entry::held);
            }
            let mut bytes = Vec::with_capacity(run_slots.len() * self.options.page_bytes as usize);
            for slot in &run_slots {
                bytes.extend_from_slice(&self.outs[slot].bytes);
            }
            self.statistics.runs += 1;
            self.ask(server, Ask::Write { page: run.first, bytes }, What::Write { slots: run_slots, copy });
        }
    }

    /// A copy of a page was answered.
    fn written(&mut self, slot: u64) {
        self.let_go(slot);
        let Some(out) = self.outs.get_mut(&slot) else { return };
        out.missing -= 1;
        if out.missing == 0 {
            let out = self.outs.remove(&slot).expect("it was there a line before");
            if let Some(ticket) = out.ticket {
                self.statistics.page_outs += 1;
                self.events.push_back(Event::Out { ticket, slot });
            }
        }
        self.release(slot);
    }

    // ---- coming in ----

    /// Sends the read of a slot to a copy that is there; fails it where none is.
    fn read(&mut self, slot: u64) {
        let mut error = PageError::Lost { slot };
        let first = self.first_copy(slot);
        for copy in (0..self.options.copies).map(|copy| copy ^ first) {
            let Some(spot) = self.spot(slot, copy) else { continue };
            let Some(&server) = self.hosts.get(&spot.host) else { continue };
            if self.seems_silent(server) {
                error = PageError::Silent { slot };
                continue;
            }
            self.statistics.second_reads += u64::from(copy > 0);
            let what = What::Read { slot, copy, repeated: false };
            self.ask(server, Ask::Read { page: spot.page, pages: 1 }, what);
            return;
        }
        for ticket in self.reads.remove(&slot).unwrap_or_default() {
            self.events.push_back(Event::Failed { ticket, error });
        }
        self.let_go(slot);
        self.release(slot);
    }

    /// The bytes of a read have come from `server`.
    fn has_read(&mut self, server: usize, slot: u64, copy: u8, mut bytes: Vec<u8>) {
        let opens = |bytes: &mut [u8]| self.seals.as_ref().is_none_or(|seals| seals.open(slot, bytes));
        if !self.is_sound(slot, &bytes) || !opens(&mut bytes) {
            self.damaged(server, slot, copy);
            return self.read_elsewhere(slot);
        }
        let bytes: Arc<[u8]> = bytes.into();
        for ticket in self.reads.remove(&slot).unwrap_or_default() {
            self.statistics.page_ins += 1;
            self.events.push_back(Event::In { ticket, bytes: Arc::clone(&bytes) });
        }
        self.let_go(slot);
        self.release(slot);
    }

    /// A read of this slot has come to nothing. Its hold goes over to another read, or ends with what was waited for.
    fn read_elsewhere(&mut self, slot: u64) {
        if self.reads.contains_key(&slot) {
            self.read(slot);
        } else {
            self.let_go(slot);
            self.release(slot);
        }
    }

    fn is_sound(&self, slot: u64, bytes: &[u8]) -> bool {
        bytes.len() == self.options.page_bytes as usize && crc32c(bytes) == self.table.sum(slot)
    }

    /// A server gave another page than was written: that copy is gone, and after three the server is.
    fn damaged(&mut self, server: usize, slot: u64, copy: u8) {
        self.statistics.damaged_answers += 1;
        let id = self.host(server).id;
        if self.spot(slot, copy).is_some_and(|spot| spot.host == id) {
            // The place is not given to another page: whoever damaged it may do so again, and reads of it may be under way.
            self.set_spot(slot, copy, None);
            self.moves.shorten(slot);
        }
        self.host_mut(server).damaged += 1;
        if self.host(server).damaged >= 3 {
            self.lose(server, "it gave pages that were not what had been written");
        }
    }

    // ---- slots and their places ----

    fn spot(&self, slot: u64, copy: u8) -> Option<Spot> {
        if copy == 0 { self.table.get(slot).spot() } else { self.table.second(slot) }
    }

    fn set_spot(&mut self, slot: u64, copy: u8, spot: Option<Spot>) {
        if copy == 0 {
            self.table.update(slot, |entry| spot.map_or(entry.nowhere(), |spot| entry.at(spot)));
        } else {
            let second = spot.map_or(SecondCopy::None, |_| SecondCopy::Server);
            self.table.update(slot, |entry| entry.with_second(second));
            self.table.set_second(slot, spot);
        }
    }

    /// The place of a copy is no longer the slot's; its server gets it back for others.
    fn leave_place(&mut self, slot: u64, copy: u8) {
        if let Some(spot) = self.spot(slot, copy) {
            self.set_spot(slot, copy, None);
            self.give_back(spot);
        }
    }

    fn leave_places(&mut self, slot: u64) {
        (0..self.options.copies).for_each(|copy| self.leave_place(slot, copy));
    }

    fn give_back(&mut self, spot: Spot) {
        if let Some(&server) = self.hosts.get(&spot.host) {
            self.host_mut(server).places.free(spot.page);
        }
    }

    fn let_go(&mut self, slot: u64) {
        self.table.update(slot, Entry::let_go);
    }

    /// Gives a slot and its places free if nothing holds them any more.
    fn release(&mut self, slot: u64) {
        let entry = self.table.get(slot);
        if entry.in_use() || entry.uses() > 0 || self.slots.is_free(slot) {
            return;
        }
        self.leave_places(slot);
        self.outs.remove(&slot);
        self.moves.forget(slot);
        self.table.update(slot, |_| Entry::default());
        self.slots.free(slot);
    }
}
