//! The hash index: linear hashing over buckets of one cache line, read without latches.
//!
//! An entry is 32 bits of the key's hash (its *tag*) and a 48-bit RowId; keys are not stored. The low bits of the tag
//! choose the bucket, so buckets split and merge without the keys, and the rest of the tag tells entries of a bucket
//! apart: among 2^b buckets a lookup meets a wrong candidate in about 5 of 2^(32-b) cases.
//!
//! # Growing and shrinking
//! With `n` buckets, `2^l ≤ n < 2^(l+1)`, a tag belongs to the bucket given by its low `l + 1` bits, or, when that is
//! not below `n`, by its low `l` bits. Growing by one splits bucket `n - 2^l` into itself and bucket `n`; shrinking
//! merges the last bucket back. Who inserts or removes takes such steps, a few at a time, when the index holds more
//! than [`LOAD_MAX`] or less than [`LOAD_MIN`] entries a bucket; one thread at a time (`resize`), the others do not wait.
//!
//! # Protocol
//! The first line of a bucket carries a latch and a version for its whole chain (see [`line`]).
//!
//! - A writer latches the bucket, then checks that the tag still belongs to it, then changes the chain and gives the
//!   latch back with the next version.
//! - A step of growing or shrinking latches both buckets, lower number first, moves entries, stores the number of
//!   buckets and unlatches. So whether a tag belongs to a bucket changes only under that bucket's latch.
//! - The latch of a bucket above the number of buckets stays held (the bucket is *withdrawn*), in a segment that is
//!   taken out of the directory for ever: a reader that still has such a bucket in hand never takes it for an empty one.
//! - A reader takes the number of buckets, finds the bucket, reads its head (not latched), *then* checks with the
//!   number of buckets that the tag belongs to it, copies what matches, and checks that the head is unchanged.
//!
//! A reader whose second look at the head succeeds has seen the chain as it was between two latchings: the latch is
//! taken before (release fence) and the head is looked at after (acquire fence) every change that the reader could have
//! seen. In that window the tag belonged to the bucket, because that too changes only under the latch, and the number
//! of buckets that the reader saw is at least as new as the head, whose release the reader acquired. The order of the
//! last two checks matters: with the number checked last, a bucket could be merged away, read while it is empty, and
//! split off again before the number is looked at. An entry that stays is therefore in what the reader has copied.
//! Links between lines are followed only after a check of the head, so they lead to lines of this chain; lines and
//! segments that are unlinked are retired through the epochs. A lookup hands out the rows of each line once the head
//! was checked behind it; when the chain changes before its end, the lookup starts again and leaves out what it has
//! handed out.
//!
//! # Limits
//! - Two entries with equal tag and RowId are one entry: who removes (key, row) because no version of the row has that
//!   *key* must ask whether one has that *tag* ([`tag`]), or a version whose key's tag is the same loses its entry.
//! - A key with thousands of entries makes one long chain, which each insert of that key searches. Such keys belong
//!   into an ordered index.
//! - 2^32 buckets. Beyond 5.5 · 2^32 entries chains grow longer.

mod directory;
mod line;
#[cfg(all(test, feature = "model"))]
mod model_tests;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::RowId;
use thermocline_base::sync::{AtomicU64, Backoff, CachePadded, Mutex, MutexGuard};

use super::counter::Counter;
use super::node_memory::{NodeMemory, OutOfMemory};
use crate::mutation::{self, Rule};
use directory::{BUCKETS_MAX, Directory, SEGMENT};
use line::{ENTRIES, Entry, Head, Line, overflow_lines};

/// Entries a bucket above which the index grows, in halves: about 15 bytes an entry, overflow lines included.
const LOAD_MAX_HALVES: u64 = 11;
/// Entries a bucket above which the index grows.
pub const LOAD_MAX: f64 = LOAD_MAX_HALVES as f64 / 2.0;
/// Entries a bucket below which the index shrinks.
pub const LOAD_MIN: u64 = 4;
/// Steps of growing or shrinking that one insert or remove takes at most.
const STEPS_INLINE: usize = 8;
/// Steps of one call of [`HashIndex::maintain`].
const STEPS_MAINTAIN: usize = 64;
/// Failed optimistic reads of one lookup after which it takes the latch instead.
const ATTEMPTS_MAX: usize = 64;

/// The part of a key's hash that the index stores. Entries with equal tag and RowId are the same entry.
#[inline(always)]
#[must_use]
pub const fn tag(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

/// The bucket of a tag among `buckets` buckets.
#[inline(always)]
const fn bucket_of(tag: u32, buckets: u64) -> u64 {
    let level = buckets.ilog2();
    let wide = tag as u64 & ((2 << level) - 1);
    if wide < buckets { wide } else { wide & ((1 << level) - 1) }
}

/// The bucket that `bucket` was split from.
const fn parent_of(bucket: u64) -> u64 {
    bucket - (1 << bucket.ilog2())
}

/// See the module.
pub struct HashIndex<M: NodeMemory> {
    buckets: CachePadded<AtomicU64>,
    directory: Directory,
    entries: Counter,
    bytes: CachePadded<AtomicU64>,
    resize: Mutex<Scratch>,
    memory: Arc<M>,
}

/// What a step of growing or shrinking works with, kept for the next one.
#[derive(Default)]
struct Scratch {
    stay: Vec<Entry>,
    leave: Vec<Entry>,
    lines: Vec<NonNull<Line>>,
}

// SAFETY: the lines in a scratch belong to nobody but the holder of the lock around it.
unsafe impl Send for Scratch {}

/// A bucket whose latch is held, with the head to store when it is given back.
struct Latched<'a> {
    line: &'a Line,
    head: Head,
}

/// A chain has changed while it was read.
struct Changed;

/// The rows that a lookup has handed out, in most cases without allocating.
#[derive(Default)]
struct Found {
    inline: [u64; 4],
    count: usize,
    spilled: Vec<u64>,
}

impl Found {
    #[inline(always)]
    fn push(&mut self, row: u64) {
        if let Some(place) = self.inline.get_mut(self.count) {
            *place = row;
            self.count += 1;
        } else {
            self.spilled.push(row);
        }
    }

    fn contains(&self, row: u64) -> bool {
        self.inline[..self.count].contains(&row) || self.spilled.contains(&row)
    }
}

impl<M: NodeMemory> std::fmt::Debug for HashIndex<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashIndex")
            .field("entries", &self.len())
            .field("buckets", &self.buckets.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl<M: NodeMemory> HashIndex<M> {
    /// Bytes of an overflow line.
    pub const LINE_BYTES: usize = size_of::<Line>();

    /// An empty index.
    ///
    /// # Errors
    /// When there is no memory for its first segment of buckets.
    pub fn new(memory: Arc<M>) -> Result<Self, OutOfMemory> {
        let index = Self {
            buckets: CachePadded(AtomicU64::new(SEGMENT)),
            directory: Directory::new(),
            entries: Counter::default(),
            bytes: CachePadded::default(),
            resize: Mutex::new(Scratch::default()),
            memory,
        };
        let mut bytes = 0;
        let made = index.directory.add(&*index.memory, 0, &mut bytes);
        index.bytes.store(bytes as u64, Ordering::Relaxed);
        made?;
        for bucket in 0..SEGMENT {
            let line = index.existing(bucket);
            line.unlatch(line.take_withdrawn());
        }
        Ok(index)
    }

    /// Number of entries; exact when nobody is changing it.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries.get()
    }

    /// Is it empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that hold the index.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) + size_of::<Self>() as u64
    }

    /// Number of buckets.
    #[must_use]
    pub fn buckets(&self) -> u64 {
        self.buckets.load(Ordering::Relaxed)
    }

    /// Adds an entry. `false`: it was there already.
    ///
    /// # Errors
    /// When its bucket is full and there is no memory to extend it; nothing was changed.
    pub fn insert(&self, guard: &Guard<'_>, hash: u64, row: RowId) -> Result<bool, OutOfMemory> {
        let entry = Entry { tag: tag(hash), row: row.0 };
        let bucket = self.latch_for(entry.tag);
        let (mut line, mut head) = (bucket.line, bucket.head);
        loop {
            if Self::position(line, head, entry).is_some() {
                bucket.line.unlatch_unchanged(bucket.head);
                return Ok(false);
            }
            if !head.has_overflow() {
                break;
            }
            // SAFETY: the chain's latch is held.
            line = unsafe { Line::at(line.link(head)) };
            head = line.head(Ordering::Relaxed);
        }
        let count = head.count();
        let head = if count < ENTRIES {
            line.set(head, count, entry).with_count(count + 1)
        } else {
            let Ok(next) = self.new_line() else {
                bucket.line.unlatch_unchanged(bucket.head);
                return Err(OutOfMemory);
            };
            // SAFETY: the line was just made; nobody else knows it.
            let fresh = unsafe { next.as_ref() };
            let next_head = fresh.set(Head::EMPTY, 0, line.entry(head, ENTRIES - 1));
            fresh.set_head(fresh.set(next_head, 1, entry).with_count(2));
            line.set_link(head, next)
        };
        if std::ptr::eq(line, bucket.line) {
            line.unlatch(head);
        } else {
            line.set_head(head);
            bucket.line.unlatch(bucket.head);
        }
        if let Some(entries) = self.entries.add(1) {
            self.rebalance(guard, entries);
        }
        Ok(true)
    }

    /// Takes an entry out. `false`: it was not there.
    pub fn remove(&self, guard: &Guard<'_>, hash: u64, row: RowId) -> bool {
        let entry = Entry { tag: tag(hash), row: row.0 };
        let bucket = self.latch_for(entry.tag);
        // The entry's place, and the chain's last two lines.
        let mut place = None;
        let mut before: Option<(&Line, Head)> = None;
        let (mut line, mut head) = (bucket.line, bucket.head);
        loop {
            if place.is_none() {
                place = Self::position(line, head, entry).map(|at| (line, at));
            }
            if !head.has_overflow() {
                break;
            }
            before = Some((line, head));
            // SAFETY: the chain's latch is held.
            line = unsafe { Line::at(line.link(head)) };
            head = line.head(Ordering::Relaxed);
        }
        let Some((hole, at)) = place else {
            bucket.line.unlatch_unchanged(bucket.head);
            return false;
        };
        // The chain's last entry fills the hole.
        let mut first_head = bucket.head;
        let mut emptied = None;
        let last = head.count() - 1;
        let mover = line.entry(head, last);
        let head = head.with_count(last);
        if std::ptr::eq(hole, line) {
            let head = line.set(head, at, mover);
            if std::ptr::eq(line, bucket.line) { first_head = head } else { line.set_head(head) }
        } else {
            line.set_head(head);
            let hole_head = hole.head(Ordering::Relaxed);
            if std::ptr::eq(hole, bucket.line) {
                first_head = hole.set(first_head, at, mover);
            } else {
                hole.set_head(hole.set(hole_head, at, mover));
            }
        }
        if last == 0
            && let Some((before, _)) = before
        {
            if std::ptr::eq(before, bucket.line) {
                first_head = first_head.with_overflow(false);
            } else {
                before.set_head(before.head(Ordering::Relaxed).with_overflow(false));
            }
            emptied = Some(NonNull::from(line));
        }
        bucket.line.unlatch(first_head);
        if let Some(line) = emptied {
            self.retire_line(line);
        }
        if let Some(entries) = self.entries.add(-1) {
            self.rebalance(guard, entries);
        }
        true
    }

    /// Calls `f` with every row that has an entry of this hash, and now and then with one of another hash, until it
    /// breaks. Each row comes at most once. `f` runs on a copy: it may use the index.
    #[inline]
    pub fn lookup<B>(
        &self,
        _guard: &Guard<'_>,
        hash: u64,
        mut f: impl FnMut(RowId) -> ControlFlow<B>,
    ) -> Option<B> {
        let tag = tag(hash);
        // What `f` has seen, in case that the chain changes before its end is reached.
        let mut seen = Found::default();
        let mut backoff = Backoff::new();
        for attempt in 0..ATTEMPTS_MAX {
            match self.try_lookup(tag, attempt > 0, &mut seen, &mut f) {
                Ok(outcome) => return outcome,
                Err(Changed) => backoff.wait(),
            }
        }
        // Writers leave no gap: read under the latch.
        for row in self.collect_latched(tag) {
            if !seen.contains(row)
                && let ControlFlow::Break(value) = f(RowId(row))
            {
                return Some(value);
            }
        }
        None
    }

    /// One optimistic walk along the chain. Each line is validated before `f` is called with its rows, so a row that
    /// is found in the first line costs no look at the others.
    #[inline(always)]
    fn try_lookup<B>(
        &self,
        tag: u32,
        again: bool,
        seen: &mut Found,
        f: &mut impl FnMut(RowId) -> ControlFlow<B>,
    ) -> Result<Option<B>, Changed> {
        let number = bucket_of(tag, self.buckets.load(Ordering::Acquire));
        let first = self.directory.line(number).ok_or(Changed)?;
        let first_head = first.head(Ordering::Acquire);
        if first_head.latched() || bucket_of(tag, self.buckets.load(Ordering::Acquire)) != number {
            return Err(Changed);
        }
        let (mut line, mut head) = (first, first_head);
        loop {
            let mut rows = [0; ENTRIES];
            let mut count = 0;
            let mut matches = line.matches(head, tag);
            while matches != 0 {
                rows[count] = line.row(head, matches.trailing_zeros() as usize);
                count += 1;
                matches &= matches - 1;
            }
            let link = if head.has_overflow() { Some(line.link(head)) } else { None };
            // The mutation trusts what it has read, but follows no link that it has not checked.
            if !first.still(first_head) && (link.is_some() || mutation::on(Rule::OptimisticRecheck)) {
                return Err(Changed);
            }
            for row in &rows[..count] {
                if again && seen.contains(*row) {
                    continue;
                }
                if let ControlFlow::Break(value) = f(RowId(*row)) {
                    return Ok(Some(value));
                }
                seen.push(*row);
            }
            let Some(link) = link else { return Ok(None) };
            // SAFETY: the link was validated just now, and the caller is pinned.
            line = unsafe { Line::at(link) };
            head = line.head(Ordering::Relaxed);
        }
    }

    /// Asks for the cache line that a lookup of this hash will read first.
    #[inline]
    pub fn prefetch(&self, _guard: &Guard<'_>, hash: u64) {
        let bucket = bucket_of(tag(hash), self.buckets.load(Ordering::Relaxed));
        if let Some(line) = self.directory.line(bucket) {
            thermocline_base::prefetch::prefetch(std::ptr::from_ref(line));
        }
    }

    /// Calls `f` with every entry. Entries that are there all the while come exactly once. Growth and shrinking wait
    /// meanwhile, so `f` must not call [`HashIndex::maintain`].
    pub fn for_each(&self, _guard: &Guard<'_>, mut f: impl FnMut(u32, RowId)) {
        let _resize = self.resize.lock();
        let mut copy = Vec::new();
        for bucket in 0..self.buckets.load(Ordering::Acquire) {
            let line = self.existing(bucket);
            let mut backoff = Backoff::new();
            loop {
                copy.clear();
                let head = line.head(Ordering::Acquire);
                if !head.latched()
                    && Self::visit(line, head, |line, head| {
                        copy.extend((0..head.count()).map(|at| line.entry(head, at)));
                    })
                {
                    break;
                }
                backoff.wait();
            }
            for entry in &copy {
                f(entry.tag, RowId(entry.row));
            }
        }
    }

    /// Takes some steps of growing or shrinking, if there are any to take. Is more left to do?
    pub fn maintain(&self, guard: &Guard<'_>) -> bool {
        let mut scratch = self.resize.lock();
        self.steps(guard, &mut scratch, self.len(), STEPS_MAINTAIN)
    }

    /// Moves overflow lines out of memory that is being emptied: looks at so many buckets from `from` on. `false`: there are
    /// no more behind them. Meanwhile the index neither grows nor shrinks.
    ///
    /// # Errors
    /// When there is no memory to move a line to; all is as it was.
    pub fn move_lines(&self, _guard: &Guard<'_>, from: &mut u64, buckets: u64) -> Result<bool, OutOfMemory> {
        let mut scratch = self.resize.lock();
        let all = self.buckets.load(Ordering::Relaxed);
        let end = all.min(from.saturating_add(buckets));
        for number in *from..end {
            if self.existing(number).head(Ordering::Relaxed).has_overflow() {
                self.move_chain(number, &mut scratch)?;
            }
        }
        *from = end;
        Ok(end < all)
    }

    fn move_chain(&self, number: u64, scratch: &mut Scratch) -> Result<(), OutOfMemory> {
        let bucket = self.latch_number(number);
        scratch.gather(&bucket, |_| false);
        let (mut gone, mut refused) = (Vec::new(), false);
        for line in &mut scratch.lines {
            // SAFETY: the chain's latch is held, so its lines are there; each is a cell of its own.
            if !unsafe { self.memory.is_leaving(line.cast()) } {
                continue;
            }
            let Ok(fresh) = self.new_line() else {
                refused = true;
                break;
            };
            gone.push(std::mem::replace(line, fresh));
        }
        if gone.is_empty() {
            // The lines are still those of the chain.
            scratch.clear();
            bucket.line.unlatch_unchanged(bucket.head);
        } else {
            let head = scratch.fill(&bucket, false);
            bucket.line.unlatch(head);
            gone.into_iter().for_each(|line| self.retire_line(line));
            self.retire_left(scratch);
        }
        if refused { Err(OutOfMemory) } else { Ok(()) }
    }

    // ---- reading ----

    /// Shows `see` every line of a chain. `false`: the chain has changed meanwhile, and what was seen means nothing.
    fn visit(first: &Line, first_head: Head, mut see: impl FnMut(&Line, Head)) -> bool {
        let (mut line, mut head) = (first, first_head);
        loop {
            see(line, head);
            let link = if head.has_overflow() { Some(line.link(head)) } else { None };
            if !first.still(first_head) {
                return false;
            }
            let Some(link) = link else { return true };
            // SAFETY: the link was validated just now, and the caller is pinned.
            line = unsafe { Line::at(link) };
            head = line.head(Ordering::Relaxed);
        }
    }

    #[cold]
    fn collect_latched(&self, tag: u32) -> Vec<u64> {
        let bucket = self.latch_for(tag);
        let mut rows = Vec::new();
        let (mut line, mut head) = (bucket.line, bucket.head);
        loop {
            let mut matches = line.matches(head, tag);
            while matches != 0 {
                rows.push(line.row(head, matches.trailing_zeros() as usize));
                matches &= matches - 1;
            }
            if !head.has_overflow() {
                break;
            }
            // SAFETY: the chain's latch is held.
            line = unsafe { Line::at(line.link(head)) };
            head = line.head(Ordering::Relaxed);
        }
        bucket.line.unlatch_unchanged(bucket.head);
        rows
    }

    // ---- writing ----

    fn position(line: &Line, head: Head, entry: Entry) -> Option<usize> {
        let mut matches = line.matches(head, entry.tag);
        while matches != 0 {
            let at = matches.trailing_zeros() as usize;
            if line.row(head, at) == entry.row {
                return Some(at);
            }
            matches &= matches - 1;
        }
        None
    }

    /// The latched bucket that a tag belongs to.
    fn latch_for(&self, tag: u32) -> Latched<'_> {
        let mut backoff = Backoff::new();
        loop {
            let number = bucket_of(tag, self.buckets.load(Ordering::Acquire));
            if let Some(line) = self.directory.line(number)
                && let Some(head) = line.try_latch()
            {
                if bucket_of(tag, self.buckets.load(Ordering::Acquire)) == number {
                    return Latched { line, head };
                }
                line.unlatch_unchanged(head);
            }
            backoff.wait();
        }
    }

    /// A bucket whose number cannot be withdrawn, because the caller holds the resize lock.
    fn existing(&self, number: u64) -> &Line {
        self.directory.line(number).expect("a bucket below the number of buckets exists")
    }

    fn latch_number(&self, number: u64) -> Latched<'_> {
        let line = self.existing(number);
        let mut backoff = Backoff::new();
        loop {
            if let Some(head) = line.try_latch() {
                return Latched { line, head };
            }
            backoff.wait();
        }
    }

    fn new_line(&self) -> Result<NonNull<Line>, OutOfMemory> {
        let line: NonNull<Line> = self.memory.alloc(size_of::<Line>())?.cast();
        // SAFETY: the cell is ours, large and aligned enough; zeroes are an empty line.
        unsafe { line.write_bytes(0, 1) };
        self.bytes.fetch_add(size_of::<Line>() as u64, Ordering::Relaxed);
        Ok(line)
    }

    /// Gives an overflow line back that no chain leads to any more.
    fn retire_line(&self, line: NonNull<Line>) {
        self.bytes.fetch_sub(size_of::<Line>() as u64, Ordering::Relaxed);
        // SAFETY: it was made by `new_line` and has been unlinked.
        unsafe { self.memory.retire(line.cast(), size_of::<Line>()) };
    }

    // ---- growing and shrinking ----

    #[cold]
    fn rebalance(&self, guard: &Guard<'_>, entries: u64) {
        let buckets = self.buckets.load(Ordering::Relaxed);
        if (entries * 2 > buckets * LOAD_MAX_HALVES || (entries < buckets * LOAD_MIN && buckets > SEGMENT))
            && let Some(mut scratch) = self.resize.try_lock()
        {
            self.steps(guard, &mut scratch, entries, STEPS_INLINE);
        }
    }

    /// At most `steps` steps towards the right number of buckets for `entries`. Are more needed?
    fn steps(
        &self,
        guard: &Guard<'_>,
        scratch: &mut MutexGuard<'_, Scratch>,
        entries: u64,
        steps: usize,
    ) -> bool {
        for step in 0.. {
            let buckets = self.buckets.load(Ordering::Relaxed);
            let grow = entries * 2 > buckets * LOAD_MAX_HALVES && buckets < BUCKETS_MAX;
            let shrink = entries < buckets * LOAD_MIN && buckets > SEGMENT;
            if !grow && !shrink {
                return false;
            }
            if step == steps {
                return true;
            }
            // Without memory the index stays as it is, with longer chains or more buckets than it needs.
            let done = if grow { self.grow(guard, scratch) } else { self.shrink(guard, scratch) };
            if done.is_err() {
                return false;
            }
        }
        unreachable!("the loop above ends by itself")
    }

    /// Splits one bucket.
    fn grow(&self, _guard: &Guard<'_>, scratch: &mut Scratch) -> Result<(), OutOfMemory> {
        let child = self.buckets.load(Ordering::Relaxed);
        if child.is_multiple_of(SEGMENT) {
            let mut bytes = 0;
            let added = self.directory.add(&*self.memory, child, &mut bytes);
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            added?;
        }
        let parent = self.latch_number(parent_of(child));
        let line = self.existing(child);
        let child_bucket = Latched { line, head: line.take_withdrawn() };
        scratch.gather(&parent, |tag| u64::from(tag) & (1 << child.ilog2()) != 0);
        let parent_head = scratch.fill(&parent, false);
        let child_head = scratch.fill(&child_bucket, true);
        self.buckets.store(child + 1, Ordering::Release);
        child_bucket.line.unlatch(child_head);
        parent.line.unlatch(parent_head);
        self.retire_left(scratch);
        Ok(())
    }

    /// Merges the last bucket into the one it was split from.
    fn shrink(&self, _guard: &Guard<'_>, scratch: &mut Scratch) -> Result<(), OutOfMemory> {
        let child = self.buckets.load(Ordering::Relaxed) - 1;
        let parent = self.latch_number(parent_of(child));
        let child_bucket = self.latch_number(child);
        scratch.gather(&parent, |_| false);
        scratch.gather(&child_bucket, |_| false);
        let needed = overflow_lines(scratch.stay.len());
        while scratch.lines.len() < needed {
            let Ok(line) = self.new_line() else {
                // The lines that the chains already have go back into them untouched; only new ones are given back.
                let had = Self::chain_lines(&parent) + Self::chain_lines(&child_bucket);
                let fresh: Vec<_> = scratch.lines.drain(had..).collect();
                scratch.clear();
                parent.line.unlatch_unchanged(parent.head);
                child_bucket.line.unlatch_unchanged(child_bucket.head);
                fresh.into_iter().for_each(|line| self.retire_line(line));
                return Err(OutOfMemory);
            };
            scratch.lines.push(line);
        }
        let parent_head = scratch.fill(&parent, false);
        self.buckets.store(child, Ordering::Release);
        child_bucket.line.withdraw(child_bucket.head);
        parent.line.unlatch(parent_head);
        self.retire_left(scratch);
        if child.is_multiple_of(SEGMENT) {
            let bytes = self.directory.remove(&*self.memory, child);
            self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn chain_lines(bucket: &Latched<'_>) -> usize {
        let (mut line, mut head, mut lines) = (bucket.line, bucket.head, 0);
        while head.has_overflow() {
            // SAFETY: the chain's latch is held.
            line = unsafe { Line::at(line.link(head)) };
            head = line.head(Ordering::Relaxed);
            lines += 1;
        }
        lines
    }

    fn retire_left(&self, scratch: &mut Scratch) {
        for line in scratch.lines.drain(..) {
            self.retire_line(line);
        }
        scratch.clear();
    }
}

impl Scratch {
    /// Forgets entries and lines.
    fn clear(&mut self) {
        self.stay.clear();
        self.leave.clear();
        self.lines.clear();
    }

    /// Copies the entries of a latched chain, sorted by whether they leave, and takes note of its overflow lines.
    fn gather(&mut self, bucket: &Latched<'_>, leaves: impl Fn(u32) -> bool) {
        let (mut line, mut head) = (bucket.line, bucket.head);
        loop {
            for at in 0..head.count() {
                let entry = line.entry(head, at);
                if leaves(entry.tag) { &mut self.leave } else { &mut self.stay }.push(entry);
            }
            if !head.has_overflow() {
                return;
            }
            // SAFETY: the chain's latch is held.
            line = unsafe { Line::at(line.link(head)) };
            head = line.head(Ordering::Relaxed);
            self.lines.push(NonNull::from(line));
        }
    }

    /// Writes the entries that stay, or those that leave, into a latched bucket, with as many of the gathered lines
    /// as they need. There are enough: a split never needs more than the chain had (⌈a⌉ + ⌈b⌉ of parts of a sum that
    /// starts with two lines' worth of first entries), a merge has made what lacks. Returns the head to store.
    fn fill(&mut self, bucket: &Latched<'_>, leave: bool) -> Head {
        let entries = std::mem::take(if leave { &mut self.leave } else { &mut self.stay });
        let mut rest = entries.as_slice();
        let (mut line, mut head) = (bucket.line, bucket.head.emptied());
        let mut first_head = None;
        loop {
            let linked = rest.len() > ENTRIES;
            let (here, further) = rest.split_at(if linked { line::ENTRIES_LINKED } else { rest.len() });
            for (at, entry) in here.iter().enumerate() {
                head = line.set(head, at, *entry);
            }
            head = head.with_count(here.len());
            let next = linked.then(|| self.lines.pop().expect("enough overflow lines were gathered"));
            if let Some(next) = next {
                head = line.set_link(head, next);
            }
            if first_head.is_none() {
                first_head = Some(head);
            } else {
                line.set_head(head);
            }
            rest = further;
            let Some(next) = next else { break };
            // SAFETY: a gathered line, which only chains under the two held latches lead to.
            (line, head) = (unsafe { Line::at(next.as_ptr().expose_provenance() as u64) }, Head::EMPTY);
        }
        *(if leave { &mut self.leave } else { &mut self.stay }) = entries;
        first_head.expect("the loop wrote the first line first")
    }
}

impl<M: NodeMemory> Drop for HashIndex<M> {
    fn drop(&mut self) {
        let memory = &*self.memory;
        self.directory.clear(memory, |first| {
            let mut head = first.head(Ordering::Relaxed);
            let mut line = first;
            while head.has_overflow() {
                let link = line.link(head);
                if !std::ptr::eq(line, first) {
                    // SAFETY: nobody uses the index any more; the line came from `new_line` and its link was read.
                    unsafe { memory.free(NonNull::from(line).cast(), size_of::<Line>()) };
                }
                // SAFETY: nobody changes the chain any more.
                line = unsafe { Line::at(link) };
                head = line.head(Ordering::Relaxed);
            }
            if !std::ptr::eq(line, first) {
                // SAFETY: as above.
                unsafe { memory.free(NonNull::from(line).cast(), size_of::<Line>()) };
            }
        });
    }
}
