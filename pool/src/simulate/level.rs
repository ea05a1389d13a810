//! One policy of one size over its own pair of devices, request after request.
//!
//! ```text
//!              hit                          miss
//!   read       SSD read                     disk read, then the policy's choice: SSD write, or not
//!   write      write-through: disk write, and SSD write if it is there
//!              write-back:    SSD write, dirty; if the policy refuses it: disk write
//! ```
//!
//! Requests wait for each other, as in the replay of Canim et al., VLDB 2010, §4: each begins when the one before it is done,
//! SSD writes included. What overlaps is said here: cleaning reads the SSD beside the disk's writes.
//!
//! Write-back (Do et al., SIGMOD 2011, §2.3.3, lazy cleaning; §4.4 of the paper above):
//! - A changed page is written to a journal on the disk, too, sequentially, [`JOURNAL_PAGES`] pages at a time: it is durable
//!   without the SSD.
//! - When half of the slots are dirty, all dirty pages are cleaned: read from the SSD, written in the order of their places.
//! - A dirty page that has to leave before is cleaned alone.
//!
//! Rules: hits + misses = reads; the disk has each page from [`DATA_OFFSET`] on, the journal lies before.

use crate::cache::{Admission, CachePolicy, Flow, Request, RequestKind, Slot};

use super::device::{Device, DeviceModel, Operation};

/// The way that changed pages take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// They go to the disk at once.
    WriteThrough,
    /// They go to the SSD and a journal, and to the disk later.
    WriteBack,
}

/// Pages that are journalled together.
pub(super) const JOURNAL_PAGES: u64 = 64;
/// Where pages begin on the disk; the journal lies before.
pub(super) const DATA_OFFSET: u64 = 1 << 30;
/// One of so many slots may be dirty before all are cleaned.
const DIRTY_SHARE: u32 = 2;

/// The counts of a level.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counts {
    /// Requests for pages: reads.
    pub reads: u64,
    /// Reads that the SSD answered.
    pub hits: u64,
    /// Changed pages that came.
    pub writes: u64,
    /// Pages read from the SSD, to clean them included.
    pub ssd_reads: u64,
    /// Pages written to the SSD.
    pub ssd_writes: u64,
    /// Pages read from the disk that did not follow the last one.
    pub disk_reads_random: u64,
    /// Pages read from the disk that did.
    pub disk_reads_sequential: u64,
    /// Pages written to the disk, the journal's apart.
    pub disk_writes: u64,
    /// Pages written to the journal.
    pub journal_writes: u64,
    /// Simulated time until now.
    pub io_ns: f64,
}

/// Slots whose page the disk does not have yet.
#[derive(Debug, Default)]
struct Dirty {
    /// By slot: its page and whether it is dirty.
    pages: Vec<(u64, bool)>,
    count: u32,
    journalled: u64,
    journal_at: u64,
}

/// A policy at work.
#[derive(Debug)]
pub(super) struct Level {
    /// `None`: there is no SSD.
    policy: Option<Box<dyn CachePolicy>>,
    disk: Device,
    ssd: Device,
    page_bytes: u64,
    mode: Mode,
    flow: Flow,
    dirty: Dirty,
    last_read: u64,
    /// Where the next write of the SSD goes, for devices whose places matter.
    counts: Counts,
}

impl Level {
    pub(super) fn new(
        policy: Option<Box<dyn CachePolicy>>,
        slots: u32,
        devices: (&DeviceModel, &DeviceModel),
        page_bytes: u32,
        mode: Mode,
        tells_leaves: bool,
    ) -> Self {
        let flow = policy.as_ref().map_or(Flow::OnRead, |policy| policy.flow());
        Self {
            flow: if tells_leaves { flow } else { Flow::OnRead },
            policy,
            disk: Device::new(devices.0.clone()),
            ssd: Device::new(devices.1.clone()),
            page_bytes: u64::from(page_bytes),
            mode,
            dirty: Dirty { pages: vec![(0, false); slots as usize], ..Dirty::default() },
            last_read: u64::MAX - 1,
            counts: Counts::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn cached(&self) -> u32 {
        self.policy.as_ref().map_or(0, |policy| policy.cached())
    }

    pub(super) fn policy_bytes(&self) -> usize {
        self.policy.as_ref().map_or(0, |policy| policy.bytes())
    }

    pub(super) fn request(&mut self, request: &Request) {
        match request.kind {
            RequestKind::Read => self.read(request),
            RequestKind::Write => self.write(request),
            RequestKind::Free => {
                let slot = self.policy.as_mut().and_then(|policy| policy.discard(request.page));
                if let Some(slot) = slot {
                    self.set_dirty(slot, request.page, false);
                }
            }
            RequestKind::Leave => self.leave(request),
        }
    }

    fn read(&mut self, request: &Request) {
        self.counts.reads += 1;
        if let Some(slot) = self.policy.as_mut().and_then(|policy| policy.request(request)) {
            self.counts.hits += 1;
            return self.ssd(slot, false);
        }
        if request.page == self.last_read.wrapping_add(1) {
            self.counts.disk_reads_sequential += 1;
        } else {
            self.counts.disk_reads_random += 1;
        }
        self.last_read = request.page;
        self.disk(request.page, false);
        if self.flow == Flow::OnRead {
            self.admit(request, false);
        }
    }

    fn write(&mut self, request: &Request) {
        self.counts.writes += 1;
        let slot = self.policy.as_mut().and_then(|policy| policy.request(request));
        let back = self.mode == Mode::WriteBack && self.policy.is_some();
        if !back {
            self.disk(request.page, true);
        }
        let is_there = match slot {
            Some(slot) => {
                self.ssd(slot, true);
                self.set_dirty(slot, request.page, back);
                true
            }
            None => (back || self.flow == Flow::OnLeave) && self.admit(request, back),
        };
        match (back, is_there) {
            (true, true) => self.journal(),
            (true, false) => self.disk(request.page, true),
            (false, _) => {}
        }
        if self.dirty.count > 0 && self.dirty.count >= (self.dirty.pages.len() as u32 / DIRTY_SHARE).max(1) {
            self.clean();
        }
    }

    fn leave(&mut self, request: &Request) {
        if self.flow == Flow::OnLeave
            && self.policy.as_ref().is_some_and(|policy| policy.find(request.page).is_none())
        {
            self.admit(request, false);
        }
    }

    /// Asks the policy, and does what it says.
    fn admit(&mut self, request: &Request, dirty: bool) -> bool {
        let Some(policy) = &mut self.policy else { return false };
        let slot = match policy.admit(request) {
            Admission::Pass => return false,
            Admission::Empty(slot) => slot,
            Admission::Replace { slot, page } => {
                if self.dirty.pages[slot as usize].1 {
                    self.ssd(slot, false);
                    self.disk(page, true);
                }
                slot
            }
        };
        self.set_dirty(slot, request.page, dirty);
        self.ssd(slot, true);
        true
    }

    fn set_dirty(&mut self, slot: Slot, page: u64, dirty: bool) {
        let before = std::mem::replace(&mut self.dirty.pages[slot as usize], (page, dirty)).1;
        self.dirty.count = self.dirty.count - u32::from(before) + u32::from(dirty);
    }

    fn journal(&mut self) {
        self.dirty.journalled += 1;
        if !self.dirty.journalled.is_multiple_of(JOURNAL_PAGES) {
            return;
        }
        let bytes = JOURNAL_PAGES * self.page_bytes;
        let offset = self.dirty.journal_at % (DATA_OFFSET - bytes);
        self.dirty.journal_at += bytes;
        self.counts.journal_writes += JOURNAL_PAGES;
        self.counts.io_ns = self.disk.serve(self.counts.io_ns, &Operation { offset, bytes, write: true });
    }

    /// Writes all dirty pages to the disk.
    fn clean(&mut self) {
        let slots = 0..self.dirty.pages.len() as Slot;
        let mut dirty: Vec<(u64, Slot)> = slots
            .filter(|slot| self.dirty.pages[*slot as usize].1)
            .map(|slot| (self.dirty.pages[slot as usize].0, slot))
            .collect();
        dirty.sort_unstable();
        for (page, slot) in dirty {
            let begin = self.counts.io_ns;
            self.ssd(slot, false);
            let read = std::mem::replace(&mut self.counts.io_ns, begin);
            self.disk(page, true);
            self.counts.io_ns = self.counts.io_ns.max(read);
            self.set_dirty(slot, page, false);
        }
    }

    #[inline]
    fn ssd(&mut self, slot: Slot, write: bool) {
        *(if write { &mut self.counts.ssd_writes } else { &mut self.counts.ssd_reads }) += 1;
        let offset = u64::from(slot) * self.page_bytes;
        let operation = Operation { offset, bytes: self.page_bytes, write };
        self.counts.io_ns = self.ssd.serve(self.counts.io_ns, &operation);
    }

    #[inline]
    fn disk(&mut self, page: u64, write: bool) {
        self.counts.disk_writes += u64::from(write);
        // Page numbers of foreign traces may be anything: where the disk ends it begins again.
        let capacity = self.disk.model().capacity_bytes * u64::from(self.disk.model().members);
        let room = capacity.saturating_sub(DATA_OFFSET + self.page_bytes).max(1);
        let offset = DATA_OFFSET + page.wrapping_mul(self.page_bytes) % room;
        let operation = Operation { offset, bytes: self.page_bytes, write };
        self.counts.io_ns = self.disk.serve(self.counts.io_ns, &operation);
    }
}
