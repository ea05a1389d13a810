//! One cache line of the hash index: the first line of a bucket, or an overflow line.
//!
//! ```text
//! word 0   63     62…37    36        35…33   32       31…16     15…0
//!          0      version  overflow  count   latched  row[1]hi  row[0]hi
//! word 1-3 tags, two in a word, the even one in the low half
//! word 4-6 low 32 bits of the RowIds, likewise
//! word 7   high 16 bits of RowIds 2…5
//! ```
//!
//! A line holds six entries, or five and, in the place of the sixth RowId, the address of the next line. All lines of a
//! chain but the last hold five entries. Latch and version in the first line cover the whole chain; in overflow lines
//! these bits stay zero. Every access is one to a whole word, so that racing accesses never differ in size.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use thermocline_base::sync::{AtomicU64, fence};

/// Entries that a line without a link holds.
pub(super) const ENTRIES: usize = 6;
/// Entries that a line with a link holds.
pub(super) const ENTRIES_LINKED: usize = 5;

const LATCHED: u64 = 1 << 32;
const COUNT_SHIFT: u32 = 33;
const OVERFLOW: u64 = 1 << 36;
const VERSION_ONE: u64 = 1 << 37;
const VERSION_MASK: u64 = ((1 << 63) - 1) & !(VERSION_ONE - 1);
const ROW_BITS: u64 = (1 << 48) - 1;

/// An entry: 32 bits of the key's hash, and 48 bits of a RowId.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) tag: u32,
    pub(super) row: u64,
}

/// See the module.
#[repr(C, align(64))]
pub(super) struct Line([AtomicU64; 8]);

const _: () = assert!(size_of::<Line>() == 64);

/// Word 0 of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head(u64);

impl Head {
    pub(super) const EMPTY: Self = Self(0);

    #[inline(always)]
    pub(super) fn latched(self) -> bool {
        self.0 & LATCHED != 0
    }

    /// Number of entries; at most [`ENTRIES`] whatever a racing read has seen.
    #[inline(always)]
    pub(super) fn count(self) -> usize {
        ((self.0 >> COUNT_SHIFT & 7) as usize).min(ENTRIES)
    }

    #[inline(always)]
    pub(super) fn has_overflow(self) -> bool {
        self.0 & OVERFLOW != 0
    }

    #[must_use]
    pub(super) fn with_count(self, count: usize) -> Self {
        Self(self.0 & !(7 << COUNT_SHIFT) | (count as u64) << COUNT_SHIFT)
    }

    #[must_use]
    pub(super) fn with_overflow(self, overflow: bool) -> Self {
        Self(if overflow { self.0 | OVERFLOW } else { self.0 & !OVERFLOW })
    }

    /// The same chain state, one version on.
    #[must_use]
    fn next_version(self) -> Self {
        Self(self.0 & !VERSION_MASK | self.0.wrapping_add(VERSION_ONE) & VERSION_MASK)
    }

    /// An empty chain with this head's version.
    #[must_use]
    pub(super) fn emptied(self) -> Self {
        Self(self.0 & VERSION_MASK)
    }
}

impl Line {
    /// The line at an address that was read from a link.
    ///
    /// # Safety
    /// The link was read under a version that was validated afterwards, or under the chain's latch, and the caller is
    /// pinned for `'a`.
    #[inline(always)]
    pub(super) unsafe fn at<'a>(address: u64) -> &'a Self {
        // SAFETY: links hold addresses of lines, which stay allocated as long as the caller is pinned.
        unsafe { &*std::ptr::with_exposed_provenance(address as usize) }
    }

    #[inline(always)]
    pub(super) fn head(&self, order: Ordering) -> Head {
        Head(self.0[0].load(order))
    }

    /// Is `head`, which was read with `Acquire` before, still the head? Then everything read in between belongs to it.
    #[inline(always)]
    pub(super) fn still(&self, head: Head) -> bool {
        fence(Ordering::Acquire);
        self.0[0].load(Ordering::Relaxed) == head.0
    }

    /// Takes the latch if it is free. Returns the head without it.
    #[inline]
    pub(super) fn try_latch(&self) -> Option<Head> {
        let head = self.0[0].load(Ordering::Relaxed);
        if head & LATCHED != 0
            || self.0[0].compare_exchange(head, head | LATCHED, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return None;
        }
        // Orders the latch before the changes that follow, for readers that see one of them.
        fence(Ordering::Release);
        Some(Head(head))
    }

    /// Gives the latch back; the chain is as it was.
    #[inline]
    pub(super) fn unlatch_unchanged(&self, head: Head) {
        self.0[0].store(head.0, Ordering::Release);
    }

    /// Gives the latch back after a change.
    #[inline]
    pub(super) fn unlatch(&self, head: Head) {
        self.0[0].store(head.next_version().0, Ordering::Release);
    }

    /// The first line of a bucket whose number is above the number of buckets: empty, its latch held by the directory.
    pub(super) fn withdraw(&self, head: Head) {
        self.0[0].store(head.next_version().emptied().0 | LATCHED, Ordering::Release);
    }

    /// Takes over the latch of a bucket that is withdrawn. Only who holds the resize lock may.
    pub(super) fn take_withdrawn(&self) -> Head {
        let head = self.head(Ordering::Relaxed);
        assert!(
            head.latched() && head.count() == 0,
            "a bucket above the number of buckets is withdrawn and empty"
        );
        head.emptied()
    }

    /// Sets the head of an overflow line, under the latch of its chain.
    #[inline]
    pub(super) fn set_head(&self, head: Head) {
        self.0[0].store(head.0, Ordering::Relaxed);
    }

    /// A bit for each of the first `head.count()` entries whose tag is `tag`.
    #[inline(always)]
    pub(super) fn matches(&self, head: Head, tag: u32) -> u32 {
        let mut found = 0;
        for pair in 0..3 {
            let word = self.0[1 + pair].load(Ordering::Relaxed);
            found |= u32::from(word as u32 == tag) << (2 * pair);
            found |= u32::from((word >> 32) as u32 == tag) << (2 * pair + 1);
        }
        found & ((1 << head.count()) - 1)
    }

    #[inline(always)]
    pub(super) fn row(&self, head: Head, at: usize) -> u64 {
        let low = self.0[4 + at / 2].load(Ordering::Relaxed) >> (32 * (at % 2)) & 0xffff_ffff;
        let high =
            if at < 2 { head.0 >> (16 * at) } else { self.0[7].load(Ordering::Relaxed) >> (16 * (at - 2)) };
        low | (high & 0xffff) << 32
    }

    #[inline(always)]
    pub(super) fn entry(&self, head: Head, at: usize) -> Entry {
        let tag = (self.0[1 + at / 2].load(Ordering::Relaxed) >> (32 * (at % 2))) as u32;
        Entry { tag, row: self.row(head, at) }
    }

    /// Writes an entry, under the latch. Returns the head that belongs to it, which the caller stores.
    #[must_use]
    pub(super) fn set(&self, head: Head, at: usize, entry: Entry) -> Head {
        assert!(entry.row <= ROW_BITS, "RowIds and addresses have 48 bits");
        let replace = |word: &AtomicU64, value: u64, mask: u64, shift: usize| {
            let old = word.load(Ordering::Relaxed);
            word.store(old & !(mask << shift) | value << shift, Ordering::Relaxed);
        };
        replace(&self.0[1 + at / 2], u64::from(entry.tag), 0xffff_ffff, 32 * (at % 2));
        replace(&self.0[4 + at / 2], entry.row & 0xffff_ffff, 0xffff_ffff, 32 * (at % 2));
        let high = entry.row >> 32;
        if at < 2 {
            Head(head.0 & !(0xffff << (16 * at)) | high << (16 * at))
        } else {
            replace(&self.0[7], high, 0xffff, 16 * (at - 2));
            head
        }
    }

    /// The next line's address. Only if the head says that there is one.
    #[inline(always)]
    pub(super) fn link(&self, head: Head) -> u64 {
        self.row(head, ENTRIES - 1)
    }

    /// Links `next` behind this line, which keeps its first five entries. Returns the head to store.
    #[must_use]
    pub(super) fn set_link(&self, head: Head, next: NonNull<Self>) -> Head {
        let address = next.as_ptr().expose_provenance() as u64;
        self.set(head, ENTRIES - 1, Entry { tag: 0, row: address })
            .with_overflow(true)
            .with_count(ENTRIES_LINKED)
    }
}

/// How many overflow lines a chain of `entries` needs.
pub(super) fn overflow_lines(entries: usize) -> usize {
    entries.saturating_sub(ENTRIES).div_ceil(ENTRIES_LINKED)
}
