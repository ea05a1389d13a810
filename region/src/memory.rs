//! The memory under a region's pages: the system's, or a twin that poisons what it took away.
//!
//! | memory | a page comes | pages go | a touch without asking |
//! |---|---|---|---|
//! | [`System`] | `UFFDIO_COPY` | dropped, 64 at a time | faults, and waits for the net |
//! | [`Poisoned`] | copied | filled with [`POISON`] | reads poison, which a test, the model checker or a sanitizer meets |

use std::fmt;
use std::io;
use std::ptr::NonNull;

use thermocline_base::backing::{PAGE_BYTES, PART_BYTES};
use thermocline_base::vm::Reservation;
use thermocline_base::vm::paging::{self, Faults};

use crate::frames::BATCH;

/// The byte that fills a page of [`Poisoned`] memory that is not there.
pub(crate) const POISON: u8 = 0xDB;

/// See the module. Pages are numbered from the begin of the region. Callers own the transition of the page (`word.rs`).
pub(crate) trait PageMemory: Send + Sync + fmt::Debug {
    fn reservation(&self) -> &Reservation;

    /// Puts a page in place.
    fn put(&self, page: usize, bytes: &[u8]) -> io::Result<()>;

    /// Takes pages away.
    fn take(&self, pages: &[usize]);

    /// Pages of the part are ours to bring from now on.
    fn register(&self, part: usize) -> io::Result<()>;

    /// The part is ordinary memory again, which reads as zeros.
    fn unregister(&self, part: usize) -> io::Result<()>;

    /// Where faults come from, if they do.
    fn faults(&self) -> Option<&Faults>;
}

fn at(reservation: &Reservation, page: usize) -> NonNull<u8> {
    assert!(page < reservation.bytes() / PAGE_BYTES, "a page of the region");
    // SAFETY: inside of the reservation (asserted).
    unsafe { reservation.base().add(page * PAGE_BYTES) }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct System {
    reservation: Reservation,
    faults: Faults,
}

impl System {
    pub(crate) fn new(reservation: Reservation) -> io::Result<Self> {
        Ok(Self { reservation, faults: Faults::open()? })
    }
}

impl PageMemory for System {
    fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    fn put(&self, page: usize, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: a page of our range, whose transition the caller owns.
        let put = unsafe { self.faults.put(at(&self.reservation, page), bytes) }?;
        assert_eq!(put, paging::Put::Done, "a page that its word calls absent is not in memory");
        Ok(())
    }

    fn take(&self, pages: &[usize]) {
        // Without an allocation: the net comes here.
        let mut places = [self.reservation.base(); BATCH];
        for some in pages.chunks(BATCH) {
            for (place, page) in places.iter_mut().zip(some) {
                *place = at(&self.reservation, *page);
            }
            // SAFETY: pages of our range, whose transitions the caller owns; a thread that uses their contents does
            // so by a touch that the net serves.
            unsafe { paging::drop_pages(&places[..some.len()]) };
        }
    }

    fn register(&self, part: usize) -> io::Result<()> {
        let start = at(&self.reservation, part * PART_BYTES / PAGE_BYTES);
        // SAFETY: a part of our range; the pager has a thread that serves it.
        unsafe { self.faults.register(start, PART_BYTES) }
    }

    fn unregister(&self, part: usize) -> io::Result<()> {
        let start = at(&self.reservation, part * PART_BYTES / PAGE_BYTES);
        // SAFETY: the caller has waited until no thread has a way to the part's bytes.
        unsafe { self.faults.unregister(start, PART_BYTES) }
    }

    fn faults(&self) -> Option<&Faults> {
        Some(&self.faults)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Poisoned(Reservation);

impl Poisoned {
    pub(crate) fn new(reservation: Reservation) -> Self {
        Self(reservation)
    }
}

impl PageMemory for Poisoned {
    fn reservation(&self) -> &Reservation {
        &self.0
    }

    fn put(&self, page: usize, bytes: &[u8]) -> io::Result<()> {
        assert_eq!(bytes.len(), PAGE_BYTES, "a page has the length of pages");
        // SAFETY: a page of ours, whose transition the caller owns.
        unsafe { at(&self.0, page).copy_from_nonoverlapping(NonNull::from(bytes).cast(), PAGE_BYTES) };
        Ok(())
    }

    fn take(&self, pages: &[usize]) {
        for page in pages {
            // SAFETY: a page of ours, whose transition the caller owns.
            unsafe { at(&self.0, *page).write_bytes(POISON, PAGE_BYTES) };
        }
    }

    fn register(&self, _part: usize) -> io::Result<()> {
        Ok(())
    }

    fn unregister(&self, part: usize) -> io::Result<()> {
        // SAFETY: a part of ours, of which no thread has bytes.
        unsafe { self.0.decommit(part * PART_BYTES, PART_BYTES) };
        Ok(())
    }

    fn faults(&self) -> Option<&Faults> {
        None
    }
}
