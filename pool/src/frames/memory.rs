//! The frames' memory: one range of addresses, a frame at every multiple of the page length.
//!
//! Frames `0..limit` are the budget. They lie on huge pages as far as whole huge pages go, because a random read of a
//! page should not miss the translation cache as well; what lies behind the limit is given back.
//!
//! # Why optimistic reads are no data races
//! Optimistic readers look at a frame while it may be filled with another page. Therefore the bytes of a frame are
//! *written* as whole words by relaxed atomic stores only ([`FrameMemory::fill`]; reads from a device go through a buffer
//! of their own and are copied, which costs 0.1-0.2 µs of the device's 8 µs), and optimistic readers *read* them as
//! whole words by relaxed atomic loads only ([`OptimisticPage`]). Torn contents are possible, undefined behaviour is
//! not; the version of the page's bucket tells the reader whether to believe what it saw. The holder of a pin reads
//! plain bytes: no thread writes a pinned frame, and the pin's acquire orders the reads behind the stores.
//!
//! Giving memory back does not write bytes as far as the abstract machine is concerned: Linux takes the page away, and
//! a late optimistic reader finds zeroes, which it throws away. The portable twin overwrites instead and gives nothing
//! back, so there the frames just stay as they are.

use std::marker::PhantomData;
use std::sync::Arc;
// Not the façade's: 512 scheduling points for each page would drown the others. `fill` and `copy_to` offer their own.
use std::sync::atomic::AtomicU64;

use thermocline_base::sync::{Ordering, schedule_point};
use thermocline_base::vm::{HUGE_PAGE_BYTES, Reservation};

use crate::error::PoolError;
use crate::page::{HEADER_BYTES, PageSize};
use thermocline_base::prefetch::prefetch;

const WORD: usize = 8;

pub(super) struct FrameMemory {
    reservation: Reservation,
    shift: u32,
    page_words: usize,
}

impl FrameMemory {
    /// Address space for `frames`, or for as many as there may be.
    pub(super) fn new(page_size: PageSize, frames: u64) -> Result<Self, PoolError> {
        let bytes = frames.saturating_mul(page_size.bytes() as u64);
        let reservation = reserve(bytes)?;
        let shift = page_size.bytes().trailing_zeros();
        Ok(Self { reservation, shift, page_words: page_size.bytes() / WORD })
    }

    /// Number of frames for which there is address space.
    pub(super) fn frames(&self) -> u64 {
        (self.reservation.bytes() >> self.shift) as u64
    }

    pub(super) fn page_bytes(&self) -> usize {
        1 << self.shift
    }

    #[inline(always)]
    fn start(&self, frame: u32) -> *const AtomicU64 {
        debug_assert!(u64::from(frame) < self.frames(), "frame {frame} exists");
        // SAFETY: frame numbers come from the pool, which hands out those below `frames()`, so the frame lies inside of
        // the reservation.
        unsafe { self.reservation.base().as_ptr().add((frame as usize) << self.shift) as *const AtomicU64 }
    }

    #[inline(always)]
    fn words(&self, frame: u32) -> &[AtomicU64] {
        // SAFETY: the frame lies inside of the reservation (see `start`), is aligned to a page, is initialised (fresh
        // memory is zero), and is written through atomics only while `self` lives.
        unsafe { std::slice::from_raw_parts(self.start(frame), self.page_words) }
    }

    /// The bytes as an optimistic reader may look at them.
    #[inline(always)]
    pub(super) fn optimistic(&self, frame: u32) -> OptimisticPage<'_> {
        OptimisticPage { words: self.words(frame), not_send: PhantomData }
    }

    /// The bytes of a frame that no thread fills.
    ///
    /// # Safety
    /// As long as the result is used the caller holds a pin or the latch of the frame, or owns it.
    #[inline(always)]
    pub(super) unsafe fn bytes(&self, frame: u32) -> &[u8] {
        // SAFETY: inside of the reservation; no thread writes (the caller's promise), and others' atomic loads are
        // reads.
        unsafe { std::slice::from_raw_parts(self.start(frame).cast::<u8>(), self.page_bytes()) }
    }

    /// Overwrites a frame. The caller owns it or holds its latch, and has made its bucket's version odd, or has removed
    /// the frame's page from the map before: then a release fence stands between that and the first store.
    pub(super) fn fill(&self, frame: u32, page: &[u8]) {
        assert_eq!(page.len(), self.page_bytes(), "a frame is filled with a page");
        thermocline_base::sync::fence(Ordering::Release);
        let words = self.words(frame);
        let (chunks, _) = page.as_chunks::<WORD>();
        for (index, (word, chunk)) in words.iter().zip(chunks).enumerate() {
            if index == HEADER_BYTES / WORD || index == words.len() / 2 {
                schedule_point();
            }
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
    }

    /// Gives the memory of unused frames back to the system.
    pub(super) fn give_back(&self, first: u32, count: u32) {
        if cfg!(all(target_os = "linux", not(feature = "portable"))) && count > 0 {
            let (offset, bytes) = ((first as usize) << self.shift, (count as usize) << self.shift);
            // SAFETY: the frames have no owner, so no thread uses their contents; late optimistic readers throw away
            // what they see (see the module). Pages are multiples of the system's.
            unsafe { self.reservation.decommit(offset, bytes) };
        }
    }

    /// Huge pages up to the limit, small ones behind it.
    pub(super) fn advise(&self, limit: u32) {
        let whole = ((limit as usize) << self.shift) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        self.reservation.advise_huge(0, whole, true);
        self.reservation.advise_huge(whole, self.reservation.bytes() - whole, false);
    }

    /// Bytes of the frames' memory that are resident, if the system tells. Slow.
    #[cfg(test)]
    pub(super) fn resident_bytes(&self) -> Option<usize> {
        self.reservation.resident_bytes(0, self.reservation.bytes())
    }
}

/// Address space, or the pool's error.
pub(super) fn reserve(bytes: u64) -> Result<Reservation, PoolError> {
    let refused = |error| PoolError::Memory { bytes, error: Arc::new(error) };
    let bytes = usize::try_from(bytes).map_err(|_| refused(std::io::ErrorKind::OutOfMemory.into()))?;
    Reservation::new(bytes).map_err(refused)
}

/// A page as an optimistic reader sees it: perhaps torn, perhaps another page. What was read from it counts only if the
/// read as a whole succeeds; until then it must not be trusted, so every access checks its place and gives `None` behind
/// the page's end instead of a panic. Places are counted from the payload's first byte.
#[derive(Debug)]
pub struct OptimisticPage<'a> {
    words: &'a [AtomicU64],
    /// Of no use after the read, on any thread.
    not_send: PhantomData<*mut ()>,
}

impl OptimisticPage<'_> {
    /// Length of the payload.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() * WORD - HEADER_BYTES
    }

    /// Has the payload no bytes? It always has some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The page version in the header.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        u64::from_le(self.words[HEADER_BYTES / WORD - 1].load(Ordering::Relaxed))
    }

    /// The eight bytes at `at` as a little-endian number.
    #[inline(always)]
    #[must_use]
    pub fn u64(&self, at: usize) -> Option<u64> {
        let last = at.checked_add(HEADER_BYTES + WORD - 1)?;
        // Both words without a branch on the alignment, which the processor could not predict; the same one if it is
        // aligned.
        let high = u64::from_le(self.words.get(last / WORD)?.load(Ordering::Relaxed));
        // SAFETY: not behind the word above.
        let low = u64::from_le(
            unsafe { self.words.get_unchecked((at + HEADER_BYTES) / WORD) }.load(Ordering::Relaxed),
        );
        let shift = (at % WORD * 8) as u32;
        // Two steps: a shift by 64 would be none.
        Some(low >> shift | (high << 1) << (63 - shift))
    }

    /// The four bytes at `at` as a little-endian number.
    #[inline]
    #[must_use]
    pub fn u32(&self, at: usize) -> Option<u32> {
        let mut bytes = [0; 4];
        self.copy_to(at, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    /// The two bytes at `at` as a little-endian number.
    #[inline]
    #[must_use]
    pub fn u16(&self, at: usize) -> Option<u16> {
        let mut bytes = [0; 2];
        self.copy_to(at, &mut bytes).then(|| u16::from_le_bytes(bytes))
    }

    /// The byte at `at`.
    #[inline]
    #[must_use]
    pub fn u8(&self, at: usize) -> Option<u8> {
        let at = at.checked_add(HEADER_BYTES)?;
        let word = self.words.get(at / WORD)?.load(Ordering::Relaxed);
        Some(word.to_ne_bytes()[at % WORD])
    }

    /// Copies the bytes at `at`; `false`, and nothing is copied, if there are not that many.
    #[must_use]
    pub fn copy_to(&self, at: usize, bytes: &mut [u8]) -> bool {
        let Some(begin) = at.checked_add(HEADER_BYTES) else { return false };
        if begin.checked_add(bytes.len()).is_none_or(|end| end > self.words.len() * WORD) {
            return false;
        }
        schedule_point();
        let (mut at, mut rest) = (begin, bytes);
        while !rest.is_empty() {
            let word = self.words[at / WORD].load(Ordering::Relaxed).to_ne_bytes();
            let part = &word[at % WORD..];
            let count = part.len().min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&part[..count]);
            (at, rest) = (at + count, later);
        }
        true
    }
}

impl FrameMemory {
    /// Asks the processor for the line of a frame that holds byte `at` of the payload.
    #[inline(always)]
    pub(super) fn prefetch(&self, frame: u32, at: usize) {
        let at = (at + HEADER_BYTES).min(self.page_bytes() - 1);
        prefetch(self.start(frame).cast::<u8>().wrapping_add(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_goes_back_and_comes_again() {
        let memory = FrameMemory::new(PageSize::default(), 2048).expect("address space");
        memory.advise(2048);
        let page = vec![7; 4096];
        for frame in 0..2048 {
            memory.fill(frame, &page);
        }
        memory.advise(512);
        memory.give_back(512, 1536);
        if let Some(resident) = memory.resident_bytes() {
            assert_eq!(resident, 512 * 4096);
        }
        memory.fill(2000, &page);
        // SAFETY: this test alone uses the frame.
        assert_eq!(unsafe { memory.bytes(2000) }, page);
    }

    #[test]
    fn absurd_budgets_are_an_error() {
        let refused = FrameMemory::new(PageSize::default(), u64::MAX);
        assert!(matches!(refused, Err(PoolError::Memory { .. })));
    }

    proptest! {
        #[test]
        fn optimistic_accesses_give_the_bytes(at in 0usize..4200, len in 0usize..100, seed: u64) {
            let memory = FrameMemory::new(PageSize::default(), 1).expect("address space");
            let mut page = vec![0; 4096];
            thermocline_base::rng::Rng::new(seed).fill(&mut page);
            memory.fill(0, &page);
            let view = memory.optimistic(0);
            let payload = &page[HEADER_BYTES..];
            prop_assert_eq!(view.len(), payload.len());
            let expect = |len: usize| payload.get(at..at + len);
            prop_assert_eq!(view.u64(at), expect(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight"))));
            prop_assert_eq!(view.u32(at), expect(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four"))));
            prop_assert_eq!(view.u16(at), expect(2).map(|bytes| u16::from_le_bytes(bytes.try_into().expect("two"))));
            prop_assert_eq!(view.u8(at), expect(1).map(|bytes| bytes[0]));
            let mut copy = vec![0; len];
            prop_assert_eq!(view.copy_to(at, &mut copy), expect(len).is_some());
            prop_assert!(expect(len).is_none_or(|bytes| bytes == copy));
            prop_assert_eq!((view.u64(usize::MAX), view.u8(usize::MAX)), (None, None));
        }
    }
}
