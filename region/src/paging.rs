//! The calls of a region's user to its pager, whichever it is: [`Pager`] (ours, `own`) or [`OsPager`](crate::OsPager)
//! (`os`).

use std::fmt;
use std::ptr::NonNull;

use thermocline_base::epoch::Guard;
use thermocline_base::io::AlignedBytes;

use crate::claim::Claim;
use crate::error::RegionError;
use crate::own::{Pager, Proof, Span};
use crate::sides::{Part, Side};
use crate::statistics::Statistics;

/// See the module; each function as that of [`Pager`] with its name.
#[allow(clippy::missing_errors_doc, reason = "the functions of `Pager` say it")]
pub trait Paging: Send + Sync + fmt::Debug {
    /// In reports: `own` or `os`.
    fn name(&self) -> &'static str;

    /// [`Pager::take`].
    fn take(&self, side: Side) -> Result<Part, RegionError>;

    /// [`Pager::free`].
    fn free(&self, part: Part) -> Result<(), RegionError>;

    /// [`Pager::side`].
    fn side(&self, number: u32) -> (Side, Part);

    /// [`Pager::pinned`].
    fn pinned(&self, part: Part) -> Result<NonNull<u8>, RegionError>;

    /// [`Pager::append`].
    fn append(&self, part: Part, pages: AlignedBytes) -> Result<Option<u64>, RegionError>;

    /// [`Pager::claim`].
    fn claim(&self) -> Claim<'_>;

    /// [`Pager::look`]. The pager `os` always has a proof; reading by it may fault.
    fn look<'p>(&'p self, guard: &'p Guard<'_>, spans: &'p [Span]) -> Result<Option<Proof<'p>>, RegionError>;

    /// [`Pager::ask`]. The pager `os` always has a proof, as in `look`.
    fn ask<'p>(
        &'p self,
        guard: &'p Guard<'_>,
        spans: &'p [Span],
        claim: &mut Claim<'_>,
    ) -> Result<Option<Proof<'p>>, RegionError>;

    /// [`Pager::prefetch`].
    fn prefetch(&self, spans: &[Span]);

    /// [`Pager::read_past`]. The pager `os` reads by a fault.
    fn read_past(&self, at: u64, buffer: AlignedBytes) -> Result<AlignedBytes, RegionError>;

    /// [`Pager::make_room`].
    fn make_room(&self, frames: usize);

    /// [`Pager::statistics`].
    fn statistics(&self) -> Statistics;
}

impl Paging for Pager {
    fn name(&self) -> &'static str {
        "own"
    }

    fn take(&self, side: Side) -> Result<Part, RegionError> {
        Self::take(self, side)
    }

    fn free(&self, part: Part) -> Result<(), RegionError> {
        Self::free(self, part)
    }

    fn side(&self, number: u32) -> (Side, Part) {
        Self::side(self, number)
    }

    fn pinned(&self, part: Part) -> Result<NonNull<u8>, RegionError> {
        Self::pinned(self, part)
    }

    fn append(&self, part: Part, pages: AlignedBytes) -> Result<Option<u64>, RegionError> {
        Self::append(self, part, pages)
    }

    fn claim(&self) -> Claim<'_> {
        Self::claim(self)
    }

    fn look<'p>(&'p self, guard: &'p Guard<'_>, spans: &'p [Span]) -> Result<Option<Proof<'p>>, RegionError> {
        Self::look(self, guard, spans)
    }

    fn ask<'p>(
        &'p self,
        guard: &'p Guard<'_>,
        spans: &'p [Span],
        claim: &mut Claim<'_>,
    ) -> Result<Option<Proof<'p>>, RegionError> {
        Self::ask(self, guard, spans, claim)
    }

    fn prefetch(&self, spans: &[Span]) {
        Self::prefetch(self, spans);
    }

    fn read_past(&self, at: u64, buffer: AlignedBytes) -> Result<AlignedBytes, RegionError> {
        Self::read_past(self, at, buffer)
    }

    fn make_room(&self, frames: usize) {
        Self::make_room(self, frames);
    }

    fn statistics(&self) -> Statistics {
        Self::statistics(self)
    }
}
