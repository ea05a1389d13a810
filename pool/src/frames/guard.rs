//! Pages in the hands of their users.

use std::fmt;

use thermocline_base::io::AlignedBytes;

use super::PageId;
use super::map::Slot;
use super::shared::Shared;
use crate::page::{self, HEADER_BYTES, PageKind, PageSeal};

/// A page that stays in its frame, unchanged, as long as the guard lives. Cheap to hold, but it holds a frame: whoever
/// waits for something else than the processor lets go of it first (rule 9 of the transactions).
pub struct PageGuard<'a> {
    shared: &'a Shared,
    slot: Slot,
    frame: u32,
}

impl<'a> PageGuard<'a> {
    /// Takes over a pin.
    #[inline(always)]
    pub(super) fn new(shared: &'a Shared, slot: Slot, frame: u32) -> Self {
        Self { shared, slot, frame }
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Gives the pin up without giving it back.
    pub(super) fn into_slot(self) -> (Slot, u32) {
        let parts = (self.slot, self.frame);
        std::mem::forget(self);
        parts
    }

    /// The whole page, its header too.
    #[inline]
    #[must_use]
    pub fn page(&self) -> &[u8] {
        // SAFETY: the guard holds a pin.
        unsafe { self.shared.memory.bytes(self.frame) }
    }

    /// The bytes behind the header.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.page()[HEADER_BYTES..]
    }

    /// Its version.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        page::version_of(self.page())
    }

    /// Its kind.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> PageKind {
        page::kind_of(self.page())
    }
}

impl Drop for PageGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.shared.unpin(self.slot);
    }
}

impl fmt::Debug for PageGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageGuard")
            .field("kind", &self.kind())
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

/// Where a changed page goes.
pub(super) enum Target {
    /// Into the frame where it is; the guard holds its latch.
    Resident(Slot, u32),
    /// Into a frame that is reserved for it.
    New(u32),
}

/// A page to be changed, or made. The guard holds a copy; no reader sees the changes before [`Self::publish`], and
/// dropping the guard forgets them. No other user can pin the page meanwhile; optimistic readers still find it as it
/// was.
pub struct WriteGuard<'a> {
    shared: &'a Shared,
    page: PageId,
    target: Option<Target>,
    seal: PageSeal,
    copy: AlignedBytes,
}

impl<'a> WriteGuard<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        page: PageId,
        target: Target,
        seal: PageSeal,
        copy: AlignedBytes,
    ) -> Self {
        Self { shared, page, target: Some(target), seal, copy }
    }

    /// Which page it is.
    #[must_use]
    pub fn id(&self) -> PageId {
        self.page
    }

    /// The bytes behind the header.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.copy[HEADER_BYTES..]
    }

    /// The same, to change.
    #[must_use]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.copy[HEADER_BYTES..]
    }

    /// Its version before the change; 0 for a new page.
    #[must_use]
    pub fn version(&self) -> u64 {
        page::version_of(&self.copy)
    }

    /// Its kind before the change.
    #[must_use]
    pub fn kind(&self) -> PageKind {
        page::kind_of(&self.copy)
    }

    /// Lets all readers see the page, in its new version. It is written to the device by a flush, or before it leaves
    /// its frame. If the page was discarded meanwhile, nothing happens.
    pub fn publish(mut self, version: u64, kind: PageKind) {
        if let Some(target) = self.target.take() {
            page::seal(&mut self.copy, self.seal, self.page.number(), version, kind);
            self.shared.publish(self.page, &target, &self.copy);
        }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        if let Some(target) = self.target.take() {
            self.shared.give_up(self.page, &target);
        }
    }
}

impl fmt::Debug for WriteGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteGuard").field("page", &self.page).finish_non_exhaustive()
    }
}
