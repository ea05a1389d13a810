//! The pages in the slots: the policy, a tag a slot, and what is under way. All of it under one lock.
//!
//! ```text
//!   page ──policy──► slot ──► tag: 0          nothing is written there yet, or what was is void
//!                                  otherwise  15 bits of the version of the policy's page, which is written, and whether
//!                                             that is known from a saved map only
//!   page ──pending─► the bytes of a page that is admitted and not written
//! ```
//!
//! Rules:
//! - A tag is not 0 only between the answer to the write of the policy's page and the moment in which that page is dropped,
//!   voided or replaced.
//! - `busy` counts the reads of a slot and says whether it is written. A slot is written only when it is at rest, whatever the
//!   policy has given it to meanwhile; until then the page waits in `pending`, from where it is read.
//! - A thread that drops a page names page, slot and version: a slot that has become another page's stays as it is.
//! - `reads` has the extents of which pages are read to be admitted, and how often those were voided meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use thermocline_base::io::AlignedBytes;

use super::{SsdCounts, SsdOptions};
use crate::cache::{Admission, CachePolicy, CacheSetup, Request, RequestKind, Savings, Slot, Told};
use crate::mutation::{self, Rule};
use crate::page::EXTENT_PAGES;
use crate::page::{PageHeat, ReadReason, Wanted};

/// Where a page of a read comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// A slot, which is held for the read.
    Slot(Slot),
    /// It was copied already.
    Here,
    /// The primary.
    Primary,
}

/// The marks that a read takes along to admit the pages that it brings.
#[derive(Debug, Default)]
pub(super) struct Ticket {
    /// Extents, and how often they had been voided.
    extents: Vec<(u64, u64)>,
}

#[derive(Debug, Default)]
struct ExtentReads {
    readers: u32,
    voided: u64,
}

#[derive(Debug, Default)]
struct Busy {
    reads: u32,
    writing: bool,
}

/// A page that is admitted and not written.
#[derive(Debug)]
struct Pending {
    slot: Slot,
    version: u64,
    /// Tells it from earlier and later admissions of the page.
    number: u64,
    /// Gone when its write has begun.
    bytes: Option<AlignedBytes>,
}

/// A write to begin: neighbours, in slots that are neighbours, too.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) slot: Slot,
    /// The page in the first slot.
    pub(super) page: u64,
    /// By slot: the number of the page's admission.
    pub(super) numbers: Vec<u64>,
    pub(super) bytes: AlignedBytes,
}

#[derive(Debug)]
pub(super) struct Table {
    policy: Box<dyn CachePolicy>,
    /// By slot, as far as there was a page.
    tags: Vec<u16>,
    slots: u32,
    busy: HashMap<Slot, Busy>,
    pending: BTreeMap<u64, Pending>,
    pending_most: usize,
    /// Those of `pending` whose write has not begun.
    unwritten: BTreeSet<u64>,
    /// Where `pending` is full, the coldest of them makes room.
    drops_coldest: bool,
    reads: HashMap<u64, ExtentReads>,
    admissions: u64,
    writes: usize,
    page_bytes: usize,
    pub(super) counts: SsdCounts,
}

/// An entry of a map that was saved.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Entry {
    pub(super) page: u64,
    pub(super) slot: Slot,
    pub(super) warmth: f32,
    pub(super) tag: u16,
}

/// Beside a tag: the entry comes from a saved map, and its page was not read since.
const UNPROVEN: u16 = 1 << 15;

impl Entry {
    /// Is it of this version, as far as fifteen bits tell?
    pub(super) fn is_of(&self, version: u64) -> bool {
        self.tag & !UNPROVEN == tag_of(version)
    }
}

/// Fifteen bits of a version, never 0. That a page is current its whole version proves, when it is read.
fn tag_of(version: u64) -> u16 {
    let mixed = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49;
    (mixed as u16).max(1)
}

/// The warmth of a page of which only a rank is known: read once.
const ADOPTED_WARMTH: f32 = 1.0;

/// A merge's page is offered when so much of a cached page has gone into it: most pages come out of two.
const MOVED_LEAST: f32 = 0.25;

/// The reader's knowledge, as it is told to policies.
fn told(reason: ReadReason) -> Told {
    match reason {
        ReadReason::Point => Told::Random,
        ReadReason::Ahead | ReadReason::Scan | ReadReason::Tail => Told::Sequential,
        ReadReason::Merge | ReadReason::Verify => Told::Nothing,
    }
}

/// Do such reads make pages warmer, and are they admitted?
fn warms(reason: ReadReason) -> bool {
    !matches!(reason, ReadReason::Merge | ReadReason::Verify)
}

fn request(page: u64, reason: ReadReason) -> Request {
    Request { page, kind: RequestKind::Read, told: told(reason) }
}

fn policy(options: &SsdOptions, slots: u32) -> Box<dyn CachePolicy> {
    let extent_pages = EXTENT_PAGES as u32;
    let savings = options.savings.unwrap_or_default();
    let setup = CacheSetup { slots, extent_pages, savings };
    options.policy.build(&setup).expect("a policy that has to know the future was refused before")
}

impl Table {
    pub(super) fn new(options: &SsdOptions, slots: u32, page_bytes: usize) -> Self {
        Self {
            policy: policy(options, slots),
            tags: Vec::new(),
            slots,
            busy: HashMap::new(),
            pending: BTreeMap::new(),
            pending_most: options.buffer_pages.max(1),
            unwritten: BTreeSet::new(),
            drops_coldest: !options.admits_writes,
            reads: HashMap::new(),
            admissions: 0,
            writes: 0,
            page_bytes,
            counts: SsdCounts::default(),
        }
    }

    pub(super) fn set_savings(&mut self, savings: Savings) {
        self.policy.set_savings(savings);
    }

    /// Forgets everything that is cached, for good.
    pub(super) fn empty(&mut self, options: &SsdOptions) {
        // As small as can be: nothing is looked up there any more.
        self.policy = policy(options, 1);
        (self.tags, self.slots) = (Vec::new(), 1);
        self.pending.clear();
        self.unwritten.clear();
    }

    /// The pages that are written in some slots.
    pub(super) fn entries(&self, slots: Range<Slot>, found: &mut Vec<Entry>) {
        for slot in slots {
            let tag = self.tags.get(slot as usize).map_or(0, |tag| tag & !UNPROVEN);
            if tag != 0
                && let Some((page, warmth)) = self.policy.entry_in(slot)
            {
                found.push(Entry { page, slot, warmth, tag });
            }
        }
    }

    /// The same of all slots, in their order, for policies that list their pages; their warmth is their rank.
    pub(super) fn listed(&self) -> Option<Vec<Entry>> {
        let listing = self.policy.listing()?;
        let entry = |(rank, (page, slot)): (usize, (u64, Slot))| {
            let tag = self.tags[slot as usize] & !UNPROVEN;
            (tag != 0).then_some(Entry { page, slot, warmth: rank as f32, tag })
        };
        let mut entries: Vec<Entry> = listing.into_iter().enumerate().filter_map(entry).collect();
        entries.sort_unstable_by_key(|entry| entry.slot);
        Some(entries)
    }

    /// Takes over what a former opening had, unproven, whatever policy it had. Before the first read. `ranked`: the warmth of
    /// entries says nothing but their order.
    pub(super) fn restore(&mut self, entries: &[Entry], ranked: bool) {
        let mut next = 0;
        // A map whose checksum is right has its slots in order; nothing depends on that.
        let mut fits = |entry: &&Entry| {
            let fits = entry.slot >= next && entry.slot < self.slots && entry.tag != 0;
            next = if fits { entry.slot + 1 } else { next };
            fits
        };
        let entries: Vec<&Entry> = entries.iter().filter(|entry| fits(entry)).collect();
        let adopted = if self.policy.listing().is_some() {
            self.admit_again(entries)
        } else {
            let warmth = |entry: &Entry| if ranked { ADOPTED_WARMTH } else { entry.warmth };
            let adopt = |entry: &&Entry| self.policy.adopt(entry.page, entry.slot, warmth(entry));
            entries.into_iter().filter(adopt).collect()
        };
        for entry in adopted {
            self.set_tag(entry.slot, entry.tag & !UNPROVEN | UNPROVEN);
        }
    }

    /// Has a fresh policy admit pages to their slots: such a policy gives them out in their order. Gives those that are there.
    fn admit_again<'a>(&mut self, entries: Vec<&'a Entry>) -> Vec<&'a Entry> {
        let mut adopted = Vec::with_capacity(entries.len());
        let mut fillers = Vec::new();
        let mut next: Slot = 0;
        let admit = |policy: &mut Box<dyn CachePolicy>, page: u64, slot: Slot| {
            let read = request(page, ReadReason::Point);
            if policy.request(&read).is_some() {
                return false;
            }
            match policy.admit(&read) {
                Admission::Empty(given) if given == slot => true,
                Admission::Pass => false,
                _ => {
                    policy.discard(page);
                    false
                }
            }
        };
        'entries: for entry in entries {
            // Slots between are given to pages that do not exist, which go again afterwards.
            for slot in next..=entry.slot {
                let filler = u64::MAX - u64::from(slot);
                let page = if slot == entry.slot { entry.page } else { filler };
                if !admit(&mut self.policy, page, slot) {
                    // A page twice, in a map that is none; or a policy that wants no more. What is there stays.
                    break 'entries;
                }
                if page == filler {
                    fillers.push(filler);
                }
            }
            next = entry.slot + 1;
            adopted.push(entry);
        }
        fillers.into_iter().for_each(|page| _ = self.policy.discard(page));
        let mut by_rank = adopted.clone();
        by_rank.sort_by(|one, other| one.warmth.total_cmp(&other.warmth));
        by_rank
            .into_iter()
            .for_each(|entry| _ = self.policy.request(&request(entry.page, ReadReason::Point)));
        adopted
    }

    pub(super) fn cached(&self) -> u32 {
        self.policy.cached()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let under_way = self.pending.len()
            * (self.page_bytes + size_of::<(u64, Pending)>() + size_of::<u64>())
            + self.writes * self.page_bytes
            + self.busy.capacity() * size_of::<(Slot, Busy)>()
            + self.reads.capacity() * size_of::<(u64, ExtentReads)>();
        (self.policy.bytes() + self.tags.capacity() * 2 + under_way) as u64
    }

    /// Tells the policy of a read, and says where its pages come from. What waits for its slot is copied into `pages`. A
    /// run is cut at both ends: between lies what the primary gives in one piece, whatever of it is on the SSD, too.
    pub(super) fn plan(
        &mut self,
        first: u64,
        pages: &mut AlignedBytes,
        wanted: &Wanted,
    ) -> (Vec<Source>, Option<Ticket>) {
        let count = pages.len() / self.page_bytes;
        let mut sources = Vec::with_capacity(count);
        for page in first..first + count as u64 {
            let slot = self.look_up(page, wanted);
            sources.push(slot.map_or(Source::Primary, Source::Slot));
        }
        let there = |source: &&Source| **source != Source::Primary;
        let lead = sources.iter().take_while(there).count();
        let trail = sources.iter().rev().take_while(there).count().min(count - lead);
        sources[lead..count - trail].fill(Source::Primary);
        for (at, source) in sources.iter_mut().enumerate() {
            let Source::Slot(slot) = *source else { continue };
            let page = first + at as u64;
            match self.pending.get(&page).and_then(|pending| pending.bytes.as_ref()) {
                Some(bytes) => {
                    pages[at * self.page_bytes..][..self.page_bytes].copy_from_slice(bytes);
                    *source = Source::Here;
                }
                None => self.busy.entry(slot).or_default().reads += 1,
            }
        }
        let given = (lead + trail) as u64;
        if warms(wanted.reason) {
            self.counts.reads += count as u64;
            self.counts.hits += given;
        } else {
            self.counts.merge_hits += given;
        }
        let admits = warms(wanted.reason) && lead + trail < count;
        let ticket = admits.then(|| self.enter(first..first + count as u64));
        (sources, ticket)
    }

    /// The slot of a page that can be had in its version.
    fn look_up(&mut self, page: u64, wanted: &Wanted) -> Option<Slot> {
        let version = wanted.version?;
        let slot = match warms(wanted.reason) {
            true => self.policy.request(&request(page, wanted.reason)),
            false => self.policy.find(page),
        }?;
        if wanted.again {
            return None;
        }
        let tag = self.tags[slot as usize] & !UNPROVEN;
        if tag == tag_of(version) {
            return Some(slot);
        }
        match self.pending.get(&page) {
            // One whose write is under way is neither here nor there.
            Some(pending) if pending.version == version => pending.bytes.is_some().then_some(slot),
            Some(_) => {
                self.drop_stale(page);
                None
            }
            None => {
                self.drop_stale(page);
                None
            }
        }
    }

    fn drop_stale(&mut self, page: u64) {
        self.counts.stale += 1;
        self.forget(page);
    }

    /// Voids what is cached of a page. Its slot is free when it is at rest.
    fn forget(&mut self, page: u64) -> bool {
        self.leave_buffer(page);
        let slot = self.policy.discard(page);
        if let Some(slot) = slot {
            self.tags[slot as usize] = 0;
        }
        slot.is_some()
    }

    fn set_tag(&mut self, slot: Slot, tag: u16) {
        if self.tags.len() <= slot as usize {
            self.tags.resize(slot as usize + 1, 0);
        }
        self.tags[slot as usize] = tag;
    }

    fn leave_buffer(&mut self, page: u64) {
        self.pending.remove(&page);
        self.unwritten.remove(&page);
    }

    fn enter(&mut self, pages: Range<u64>) -> Ticket {
        let extents = pages.start / EXTENT_PAGES..=(pages.end - 1) / EXTENT_PAGES;
        let enter = |extent| {
            let reads = self.reads.entry(extent).or_default();
            reads.readers += 1;
            (extent, reads.voided)
        };
        Ticket { extents: extents.map(enter).collect() }
    }

    /// The read that had it is over.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        for (extent, _) in ticket.extents {
            let reads = self.reads.get_mut(&extent).expect("an extent that is read is known");
            reads.readers -= 1;
            if reads.readers == 0 {
                self.reads.remove(&extent);
            }
        }
    }

    /// Offers a page that was read from the primary and checked. `true`: it waits for its slot.
    pub(super) fn admit(
        &mut self,
        page: u64,
        version: u64,
        bytes: &[u8],
        reason: ReadReason,
        ticket: &Ticket,
    ) -> bool {
        let extent = page / EXTENT_PAGES;
        let stands = ticket
            .extents
            .iter()
            .any(|(known, voided)| *known == extent && self.reads[known].voided == *voided);
        if !stands && mutation::on(Rule::SsdCountsDiscards) {
            self.counts.voided += 1;
            return false;
        }
        self.decide(page, version, bytes, reason)
    }

    /// Offers a page that the primary has got, and whose writer was not answered yet. `true`: it waits for its slot.
    pub(super) fn admit_written(&mut self, page: u64, version: u64, bytes: &[u8]) -> bool {
        self.decide(page, version, bytes, ReadReason::Merge)
    }

    fn decide(&mut self, page: u64, version: u64, bytes: &[u8], reason: ReadReason) -> bool {
        if self.policy.find(page).is_some() {
            return false;
        }
        if self.is_full() && !self.drops_coldest {
            // Before the policy gives up another page for it.
            self.counts.dropped += 1;
            return false;
        }
        let admission = self.policy.admit(&request(page, reason));
        match admission {
            Admission::Pass => self.counts.refused += 1,
            _ => self.counts.admitted += 1,
        }
        self.take(page, version, bytes, admission)
    }

    fn is_full(&self) -> bool {
        self.pending.len() >= self.pending_most
    }

    /// Does what the policy decided about a page. `true`: it waits for its slot.
    fn take(&mut self, page: u64, version: u64, bytes: &[u8], admission: Admission) -> bool {
        let slot = match admission {
            Admission::Pass => return false,
            Admission::Empty(slot) => slot,
            Admission::Replace { slot, page } => {
                self.leave_buffer(page);
                slot
            }
        };
        self.set_tag(slot, if mutation::off(Rule::SsdWritesBeforeFound) { tag_of(version) } else { 0 });
        if self.is_full() && !self.drop_coldest(page) {
            self.counts.dropped += 1;
            self.forget(page);
            return false;
        }
        let mut copy = AlignedBytes::zeroed(self.page_bytes);
        copy.copy_from_slice(bytes);
        self.admissions += 1;
        let number = self.admissions;
        self.pending.insert(page, Pending { slot, version, number, bytes: Some(copy) });
        self.unwritten.insert(page);
        true
    }

    /// The warmth of the pages' extents, and which of the pages can be had from the SSD in this version.
    pub(super) fn heats(&self, pages: Range<u64>, version: u64) -> Vec<PageHeat> {
        let heat = |page| PageHeat {
            temperature: self.policy.heat(page),
            cached: f32::from(u8::from(self.is_cached(page, version))),
        };
        pages.map(heat).collect()
    }

    /// Can a page of this version be had from here?
    fn is_cached(&self, page: u64, version: u64) -> bool {
        let is_current = |slot: Slot| match self.pending.get(&page) {
            Some(pending) => pending.version == version,
            None => self.tags[slot as usize] & !UNPROVEN == tag_of(version),
        };
        self.policy.find(page).is_some_and(is_current)
    }

    /// Number of these pages that can be had from here in this version.
    pub(super) fn cached_of(&self, pages: Range<u64>, version: u64) -> u64 {
        pages.filter(|page| self.is_cached(*page, version)).count() as u64
    }

    /// Takes over how warm pages are that were written a moment ago, and keeps those of them of which enough was cached.
    /// `true`: some wait for their slots. Their places are their writer's: nothing else is known of them.
    pub(super) fn hand_over(&mut self, first: u64, version: u64, bytes: &[u8], heats: &[PageHeat]) -> bool {
        let pages = || first..first + heats.len() as u64;
        for (page, heat) in pages().zip(heats) {
            self.policy.warm(page, heat.temperature);
        }
        let mut waits = false;
        for ((page, heat), bytes) in pages().zip(heats).zip(bytes.chunks_exact(self.page_bytes)) {
            if heat.cached < MOVED_LEAST || self.policy.find(page).is_some() {
                continue;
            }
            // It was worth a slot, so it does not pass by.
            let moved = Request { page, kind: RequestKind::Read, told: Told::Random };
            let admission = self.policy.admit_moved(&moved);
            self.counts.moved += u64::from(admission != Admission::Pass);
            waits |= self.take(page, version, bytes, admission);
        }
        waits
    }

    /// Makes room for a page in the buffer. `false`: all that waits is warmer.
    fn drop_coldest(&mut self, page: u64) -> bool {
        let warmth = |page: u64| self.policy.warmth(page);
        let coldest = self
            .unwritten
            .iter()
            .map(|page| (warmth(*page), self.pending[page].number, *page))
            .min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        match coldest {
            Some((coldest_warmth, _, coldest)) if coldest_warmth <= warmth(page) => {
                self.counts.dropped += 1;
                self.forget(coldest);
                true
            }
            _ => false,
        }
    }

    /// Extents that are free: what was known of them is forgotten.
    pub(super) fn cool(&mut self, pages: Range<u64>) {
        for extent in pages.start.div_ceil(EXTENT_PAGES)..pages.end / EXTENT_PAGES {
            self.policy.cool(extent * EXTENT_PAGES);
        }
    }

    /// Pages whose numbers may be used again, or that are being written.
    pub(super) fn void(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        if !self.reads.is_empty() {
            for extent in pages.start / EXTENT_PAGES..=(pages.end - 1) / EXTENT_PAGES {
                if let Some(reads) = self.reads.get_mut(&extent) {
                    reads.voided += 1;
                }
            }
        }
        for page in pages {
            let was_there = self.forget(page);
            self.counts.voided += u64::from(was_there);
        }
    }

    /// The read of a slot ended without a word about its page, which stays.
    pub(super) fn read_gave_up(&mut self, slot: Slot) {
        let busy = self.busy.get_mut(&slot).expect("a slot that is read is held");
        busy.reads -= 1;
        if busy.reads == 0 && !busy.writing {
            self.busy.remove(&slot);
        }
    }

    /// The read of a slot for a page was answered, with the page or not. A page that did not come is dropped. `true`: it
    /// should have come.
    pub(super) fn read_ended(&mut self, slot: Slot, page: u64, version: u64, came: bool) -> bool {
        self.read_gave_up(slot);
        let of_this = |tag: u16| tag & !UNPROVEN == tag_of(version);
        let is_still = self.policy.find(page) == Some(slot)
            && self.tags.get(slot as usize).copied().is_some_and(of_this);
        if came {
            if is_still {
                self.tags[slot as usize] &= !UNPROVEN;
            }
            return false;
        }
        if mutation::off(Rule::SsdDropsNamePages) {
            self.tags[slot as usize] = 0;
            return true;
        }
        if !is_still {
            return false;
        }
        let was_proven = self.tags[slot as usize] & UNPROVEN == 0 || mutation::off(Rule::SsdProvesSavedMaps);
        if was_proven {
            self.forget(page);
        } else {
            self.drop_stale(page);
        }
        was_proven
    }

    /// A page that was counted as a hit when its read began did not come.
    pub(super) fn uncount(&mut self, reason: ReadReason) {
        let count = if warms(reason) { &mut self.counts.hits } else { &mut self.counts.merge_hits };
        *count = count.saturating_sub(1);
    }

    /// A write of up to so many pages whose slots are at rest, unless as many writes as may be are under way.
    pub(super) fn next_write(&mut self, most: usize, pages: usize) -> Option<Write> {
        if self.writes >= most {
            return None;
        }
        let (busy, pending) = (&self.busy, &self.pending);
        let at_rest = |slot: &Slot| !busy.contains_key(slot) || mutation::off(Rule::SsdWritesAtRest);
        let first = self.unwritten.iter().copied().find(|page| at_rest(&pending[page].slot))?;
        let slot = pending[&first].slot;
        let follows = |(at, page): &(usize, u64)| {
            let here = slot.checked_add(*at as Slot);
            *page == first + *at as u64 && Some(pending[page].slot) == here && at_rest(&pending[page].slot)
        };
        let neighbours = self.unwritten.range(first..).copied().take(pages.max(1));
        let count = neighbours.enumerate().take_while(follows).count();
        let (mut numbers, mut all) = (Vec::with_capacity(count), None);
        for (at, page) in (first..first + count as u64).enumerate() {
            self.unwritten.remove(&page);
            let pending = self.pending.get_mut(&page).expect("what is unwritten is pending");
            let bytes = pending.bytes.take().expect("what is unwritten has its bytes");
            numbers.push(pending.number);
            self.busy.entry(pending.slot).or_default().writing = true;
            if count == 1 {
                all = Some(bytes);
            } else {
                let all = all.get_or_insert_with(|| AlignedBytes::zeroed(count * self.page_bytes));
                all[at * self.page_bytes..][..self.page_bytes].copy_from_slice(&bytes);
            }
        }
        self.writes += 1;
        Some(Write { slot, page: first, numbers, bytes: all? })
    }

    /// A write was answered. `true`: others wait.
    pub(super) fn written(&mut self, slot: Slot, page: u64, numbers: &[u64], well: bool) -> bool {
        self.writes -= 1;
        for (at, number) in numbers.iter().enumerate() {
            self.page_written(slot + at as Slot, page + at as u64, *number, well);
        }
        !self.unwritten.is_empty()
    }

    fn page_written(&mut self, slot: Slot, page: u64, number: u64, well: bool) {
        if let Some(busy) = self.busy.get_mut(&slot) {
            busy.writing = false;
            if busy.reads == 0 {
                self.busy.remove(&slot);
            }
        }
        self.counts.bytes_written += if well { self.page_bytes as u64 } else { 0 };
        let is_still = self.pending.get(&page).filter(|pending| pending.number == number);
        if let Some(version) = is_still.map(|pending| pending.version) {
            if well {
                self.pending.remove(&page);
                self.tags[slot as usize] = tag_of(version);
            } else {
                self.counts.dropped += 1;
                self.forget(page);
            }
        }
    }

    /// Does anything wait for a slot?
    #[cfg(test)]
    pub(super) fn waits(&self) -> usize {
        self.pending.len()
    }

    /// The slot that a page is written in.
    #[cfg(test)]
    pub(super) fn slot_of(&self, page: u64) -> Option<Slot> {
        self.policy.find(page).filter(|slot| self.tags[*slot as usize] != 0)
    }
}
