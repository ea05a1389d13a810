//! A read of pages from both devices, as one operation for whoever asked.
//!
//! ```text
//!   run of pages     0    1    2    3    4    5    6    7
//!   on the SSD       s    s         s              s    s
//!   parts           ├SSD┤├SSD┤├──── primary ────┤├SSD┤├SSD┤     each with a buffer of its own, but for a lone one
//!   answer          the pages from the front that came
//! ```
//!
//! - A part of the SSD that is not answered with its page goes on to the primary. One that is late is left to itself, with its
//!   buffer; a part of the primary takes its place.
//! - Where the primary fails for a run that begins with its part, its first page is asked for alone. So what is on the SSD in the
//!   middle of a run is not lost for its neighbours: whoever wants the rest asks again from there.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use thermocline_base::io::{
    AlignedBytes, Buffer, Completer, Completion, Driven, IoError, Job, Operation, Outcome,
};
use thermocline_base::sync::Mutex;

use super::SsdLevel;
use super::table::{Source, Ticket};
use crate::cache::Slot;
use crate::mutation::{self, Rule};
use crate::page;
use crate::page::Wanted;

/// A read, for all of its parts.
struct Flight {
    level: Arc<SsdLevel>,
    first: u64,
    version: u64,
    wanted: Wanted,
    state: Mutex<State>,
}

struct State {
    completer: Option<Completer>,
    /// The reader's buffer, unless a lone part has it.
    pages: Option<AlignedBytes>,
    came: Vec<bool>,
    waiting: usize,
    error: Option<IoError>,
    /// Bytes of a page that came in part.
    part_bytes: usize,
    ticket: Option<Ticket>,
}

/// A part of a read.
pub(super) struct Part {
    flight: Arc<Flight>,
    at: usize,
    lone: bool,
    phase: Mutex<Phase>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The SSD reads a slot, since then.
    Ssd { slot: Slot, began_ns: u64 },
    /// The same, but it is late, and no reader waits for it.
    Left { slot: Slot },
    /// The primary reads so many pages, since then.
    Primary { count: usize, began_ns: u64 },
}

/// Reads of the SSD that are under way, by the time at which they are late.
#[derive(Default)]
pub(super) struct LateReads {
    reads: VecDeque<(u64, Weak<Driven<Part>>)>,
    /// The thread comes by from time to time. Otherwise it sleeps until it is rung.
    watched: bool,
    /// Reads began since it came by.
    began: bool,
}

impl LateReads {
    /// `true`: the thread has to be rung.
    fn add(&mut self, at_ns: u64, part: &Arc<Driven<Part>>) -> bool {
        // Those that were answered go, so that it stays short.
        while self.reads.front().is_some_and(|(_, part)| part.strong_count() == 0) {
            self.reads.pop_front();
        }
        self.reads.push_back((at_ns, Arc::downgrade(part)));
        self.began = true;
        !std::mem::replace(&mut self.watched, true)
    }

    /// Those whose time has come.
    pub(super) fn expired(&mut self, now_ns: u64) -> Vec<Arc<Driven<Part>>> {
        let mut expired = Vec::new();
        while let Some((at_ns, part)) = self.reads.front() {
            let part = part.upgrade();
            if part.is_some() && *at_ns > now_ns {
                break;
            }
            expired.extend(part);
            self.reads.pop_front();
        }
        expired
    }

    /// For the thread, as it has come by: does it come again soon? If not, the next read rings it.
    pub(super) fn is_watched(&mut self) -> bool {
        self.watched = std::mem::take(&mut self.began) || !self.reads.is_empty();
        self.watched
    }
}

/// Begins a read of whole pages.
pub(super) fn begin(
    level: &Arc<SsdLevel>,
    first: u64,
    version: u64,
    mut pages: AlignedBytes,
    wanted: Wanted,
) -> Completion {
    let page_bytes = level.page_size.bytes();
    let (sources, ticket) = level.table.lock().plan(first, &mut pages, &wanted);
    let count = sources.len();
    let buffer = Buffer::from(pages);
    if sources.iter().all(|source| *source == Source::Here) {
        return Completion::ready(Ok(count * page_bytes), buffer);
    }
    let (completer, completion) = Completion::pending_with(&buffer);
    let pages = buffer.into_aligned().expect("it was made of such");
    // Pages of the primary are one part.
    let mut parts: Vec<(usize, usize, Source)> = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        match (parts.last_mut(), source) {
            (_, Source::Here) => {}
            (Some((_, count, Source::Primary)), Source::Primary) => *count += 1,
            _ => parts.push((at, 1, *source)),
        }
    }
    let lone = parts.len() == 1 && parts[0].1 == count;
    let mut own = Some(pages);
    let state = State {
        completer: Some(completer),
        pages: if lone { None } else { own.take() },
        came: sources.iter().map(|source| *source == Source::Here).collect(),
        waiting: parts.len(),
        error: None,
        part_bytes: 0,
        ticket,
    };
    let flight =
        Arc::new(Flight { level: Arc::clone(level), first, version, wanted, state: Mutex::new(state) });
    for (at, count, source) in parts {
        let pages = own.take().unwrap_or_else(|| AlignedBytes::zeroed(count * page_bytes));
        match source {
            Source::Slot(slot) => Part::from_ssd(&flight, at, lone, slot, pages),
            _ => Part::from_primary(&flight, at, lone, pages),
        }
    }
    completion
}

impl Part {
    fn from_ssd(flight: &Arc<Flight>, at: usize, lone: bool, slot: Slot, pages: AlignedBytes) {
        let level = &flight.level;
        let began_ns = level.options.clock.now_ns();
        let phase = Mutex::new(Phase::Ssd { slot, began_ns });
        let part = Driven::new(Self { flight: Arc::clone(flight), at, lone, phase });
        let late_ns = began_ns + level.options.late_after.as_nanos() as u64;
        if level.late.lock().add(late_ns, &part) {
            level.news.ring();
        }
        let offset = level.offset_of(slot);
        part.start(level.file.submit(Operation::Read { offset, buffer: pages.into() }));
    }

    fn from_primary(flight: &Arc<Flight>, at: usize, lone: bool, pages: AlignedBytes) {
        let level = &flight.level;
        let count = pages.len() / level.page_size.bytes();
        let began_ns = level.options.clock.now_ns();
        let phase = Mutex::new(Phase::Primary { count, began_ns });
        let part = Driven::new(Self { flight: Arc::clone(flight), at, lone, phase });
        let completion = part.job.ask_primary(pages);
        part.start(completion);
    }

    fn ask_primary(&self, pages: AlignedBytes) -> Completion {
        let level = &self.flight.level;
        let number = self.flight.first + self.at as u64;
        let offset = number * level.page_size.bytes() as u64;
        level.primary.file.submit(Operation::Read { offset, buffer: pages.into() })
    }

    /// Its time has come. If it is the SSD that has not answered, the primary is asked, too.
    pub(super) fn is_late(&self) {
        {
            let mut phase = self.phase.lock();
            let Phase::Ssd { slot, .. } = *phase else { return };
            *phase = Phase::Left { slot };
        }
        let level = &self.flight.level;
        {
            let mut table = level.table.lock();
            table.counts.late += 1;
            table.uncount(self.flight.wanted.reason);
        }
        if level.health.was_late() {
            level.gone();
        }
        let pages = AlignedBytes::zeroed(level.page_size.bytes());
        Self::from_primary(&self.flight, self.at, self.lone, pages);
    }

    /// The SSD has answered. Gives the buffer back unless the page came.
    fn ssd_answered(&self, slot: Slot, outcome: Outcome) -> Option<AlignedBytes> {
        let (flight, level) = (&*self.flight, &self.flight.level);
        let number = flight.first + self.at as u64;
        let pages = outcome.buffer.into_aligned().expect("the buffer that was given");
        let is_silent = outcome.result.as_ref().is_err_and(IoError::is_timed_out);
        let whole = outcome.result.is_ok_and(|bytes| bytes == pages.len());
        let came = whole && page::open(&pages, level.primary.seal, number, Some(flight.version)).is_ok();
        let next = {
            let mut phase = self.phase.lock();
            match *phase {
                Phase::Ssd { began_ns, .. } => {
                    let count = 1;
                    let now_ns = level.options.clock.now_ns();
                    *phase = Phase::Primary { count, began_ns: now_ns };
                    Some(now_ns.saturating_sub(began_ns))
                }
                _ => None,
            }
        };
        let counts = next.is_some();
        let was_there = {
            let mut table = level.table.lock();
            let was_there = if is_silent {
                table.read_gave_up(slot);
                table.counts.late += u64::from(counts);
                false
            } else {
                table.read_ended(slot, number, flight.version, came)
            };
            if !came && counts {
                table.uncount(flight.wanted.reason);
            }
            table.counts.faults += u64::from(was_there);
            was_there
        };
        let went_off = match (came, next) {
            (true, Some(took_ns)) => level.health.came(took_ns),
            (false, _) if was_there => level.health.failed(),
            _ => false,
        };
        if went_off {
            level.gone();
        }
        match next {
            // The primary has been asked for it.
            None => None,
            Some(_) if came => {
                flight.part_ended(self.at, 1, Ok(pages.len()), pages, self.lone);
                None
            }
            Some(_) => Some(pages),
        }
    }

    /// The primary has answered. Gives the next read of it, if there is one.
    fn primary_answered(&self, count: usize, began_ns: u64, outcome: Outcome) -> Option<Completion> {
        let (flight, level) = (&*self.flight, &self.flight.level);
        let pages = outcome.buffer.into_aligned().expect("the buffer that was given");
        let now_ns = level.options.clock.now_ns();
        match &outcome.result {
            Ok(bytes) => {
                if *bytes == pages.len() {
                    level.primary_came(count, now_ns.saturating_sub(began_ns));
                }
                flight.offer(self.at, &pages[..*bytes]);
            }
            Err(_) if count > 1 && self.at == 0 => {
                *self.phase.lock() = Phase::Primary { count: 1, began_ns: now_ns };
                let one = AlignedBytes::zeroed(level.page_size.bytes());
                if self.lone {
                    flight.state.lock().pages = Some(pages);
                }
                return Some(self.ask_primary(one));
            }
            Err(_) => {}
        }
        let lone = self.lone && flight.state.lock().pages.is_none();
        flight.part_ended(self.at, count, outcome.result, pages, lone);
        None
    }
}

impl Job for Part {
    fn answered(&self, outcome: Outcome) -> Option<Completion> {
        let phase = *self.phase.lock();
        match phase {
            Phase::Ssd { slot, .. } | Phase::Left { slot } => {
                let pages = self.ssd_answered(slot, outcome)?;
                Some(self.ask_primary(pages))
            }
            Phase::Primary { count, began_ns } => self.primary_answered(count, began_ns, outcome),
        }
    }
}

impl Flight {
    /// Offers pages that the primary gave, as far as they check out.
    fn offer(&self, at: usize, bytes: &[u8]) {
        let level = &self.level;
        // The ticket stays with the state: it is given back when all parts have ended.
        let state = self.state.lock();
        let Some(ticket) = &state.ticket else { return };
        if !level.health.is_on() {
            return;
        }
        let mut waits = false;
        for (index, bytes) in bytes.chunks_exact(level.page_size.bytes()).enumerate() {
            let number = self.first + (at + index) as u64;
            let checked = page::open(bytes, level.primary.seal, number, Some(self.version)).is_ok()
                || mutation::off(Rule::SsdAdmitsChecked);
            if checked {
                let mut table = level.table.lock();
                waits |= table.admit(number, self.version, bytes, self.wanted.reason, ticket);
            }
        }
        drop(state);
        if waits {
            level.news.ring();
        }
    }

    /// A part of it is over.
    fn part_ended(
        &self,
        at: usize,
        count: usize,
        result: Result<usize, IoError>,
        pages: AlignedBytes,
        lone: bool,
    ) {
        let page_bytes = self.level.page_size.bytes();
        let mut state = self.state.lock();
        match result {
            Ok(bytes) => {
                let whole = (bytes / page_bytes).min(count);
                state.came[at..at + whole].fill(true);
                if at == 0 {
                    state.part_bytes = bytes % page_bytes;
                }
                if !lone && let Some(own) = &mut state.pages {
                    own[at * page_bytes..][..whole * page_bytes]
                        .copy_from_slice(&pages[..whole * page_bytes]);
                }
            }
            Err(error) => _ = state.error.get_or_insert(error),
        }
        if lone {
            state.pages = Some(pages);
        }
        state.waiting -= 1;
        if state.waiting > 0 {
            return;
        }
        let came = state.came.iter().take_while(|came| **came).count();
        let ticket = state.ticket.take();
        let completer = state.completer.take().expect("a read is answered once");
        let pages = state.pages.take().expect("all parts have ended");
        let error = state.error.take();
        let part_bytes = state.part_bytes;
        drop(state);
        if let Some(ticket) = ticket {
            self.level.table.lock().leave(ticket);
        }
        let result = match error {
            Some(error) if came == 0 => Err(error),
            _ if came == 0 => Ok(part_bytes),
            _ => Ok(came * page_bytes),
        };
        completer.complete(result, Buffer::from(pages));
    }
}
