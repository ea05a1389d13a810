//! Writes of changed pages to their device.
//!
//! What is written is a copy, made under the pool's lock: a page can be read, pinned and changed while it is written.
//! Neighbours go in one operation.
//!
//! - Two writes of one page are never under way together: they have no order. A page that was changed again waits for
//!   the first one to end.
//! - A page stays in its frame until its write has ended well: what would be read from the device before is older.
//! - A page that was changed during its write is still to be written afterwards. One whose write failed is, too.

use std::sync::Arc;

use thermocline_base::io::{AlignedBytes, Buffer, Completion, Driven, Job, Outcome};
use thermocline_base::sync::Ordering;

use super::PageId;
use super::map::{self, DIRTY, DOOMED, WRITING};
use super::shared::{Core, Shared};
use crate::device::PageDevice;
use crate::mutation::{self, Rule};
use crate::space::EXTENT_PAGES;

/// A write that is under way.
pub(super) struct WriteFlight(Arc<Driven<WriteJob>>);

struct WriteJob {
    shared: Arc<Shared>,
    device: Arc<PageDevice>,
    first: PageId,
    pages: u64,
}

impl WriteFlight {
    pub(super) fn begin(&self, buffer: AlignedBytes) {
        let job = &self.0.job;
        let completion = job.device.write(job.first.number(), Buffer::from(buffer));
        self.0.start(completion);
    }
}

impl Shared {
    /// Begins to write a changed page, and the changed ones right behind it, unless it is being written already. Under the
    /// lock; the device is asked afterwards.
    pub(super) fn start_write(&self, core: &mut Core, page: u64) {
        let first = PageId::of_packed(page);
        let Ok(device) = core.device(first.device()) else { return };
        let device = Arc::clone(device);
        let neighbours = (0..EXTENT_PAGES).map(|index| page + index).take_while(|page| {
            let free = !core.writes.contains_key(page) || mutation::off(Rule::OneWriteAPage);
            PageId::of_packed(*page).device() == first.device() && core.dirty.contains_key(page) && free
        });
        let pages = neighbours.count();
        if pages == 0 {
            return;
        }
        let mut buffer = self.take_buffer(pages);
        for (index, part) in buffer.chunks_exact_mut(self.page_size.bytes()).enumerate() {
            let page = page + index as u64;
            let slot = self.map.find(page).expect("a changed page is in the map");
            let state = self.map.state(slot);
            state.fetch_or(WRITING, Ordering::SeqCst);
            let frame = map::frame_of(state.fetch_and(!DIRTY, Ordering::SeqCst));
            // SAFETY: frames of pages in the map are filled under the pool's lock only, which the caller holds, and the
            // page does not leave before the lock is released.
            part.copy_from_slice(unsafe { self.memory.bytes(frame) });
            let changed = core.dirty.remove(&page).expect("it was found there");
            core.writes.insert(page, changed);
        }
        let job = WriteJob { shared: self.me(), device, first, pages: pages as u64 };
        core.after.writes.push((WriteFlight(Driven::new(job)), buffer));
    }
}

impl Job for WriteJob {
    fn answered(&self, outcome: Outcome) -> Option<Completion> {
        let buffer = outcome.buffer.into_aligned().expect("a write gives back the buffer that it was given");
        self.shared.give_buffer(buffer);
        self.shared.with(|core| {
            for index in 0..self.pages {
                let page = self.first.plus(index).packed();
                let changed = core.writes.remove(&page);
                let Some(slot) = self.shared.map.find(page) else { continue };
                let state = self.shared.map.state(slot);
                if outcome.result.is_err() && state.load(Ordering::SeqCst) & (WRITING | DOOMED) == WRITING {
                    state.fetch_or(DIRTY, Ordering::SeqCst);
                    // The older change counts: whoever waits for it has to hear of the failure.
                    let changed = changed.unwrap_or(core.changes);
                    core.dirty.entry(page).and_modify(|at| *at = (*at).min(changed)).or_insert(changed);
                }
                if mutation::off(Rule::ChangeDuringWriteStays) {
                    state.fetch_and(!DIRTY, Ordering::SeqCst);
                    core.dirty.remove(&page);
                }
                state.fetch_and(!WRITING, Ordering::SeqCst);
                self.shared.tidy(core, slot);
            }
            match &outcome.result {
                Ok(_) => {
                    core.counts.writes += 1;
                    core.counts.pages_written += self.pages;
                }
                Err(error) => core.note_write_failure(self.first.device(), error.clone()),
            }
            core.notify();
        });
        None
    }
}
