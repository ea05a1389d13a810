//! Growing and shrinking.
//!
//! Frames `0..limit` are the budget. Growing moves the limit. Shrinking moves it first, so that nobody gets a frame
//! behind it any more, then empties what lies behind in steps (the lock is free in between) and gives the memory back.
//! What cannot go yet is the *overhang*: pinned pages go with their last pin, changed ones when they are written (that
//! begins here), reads when they have ended and nobody waits for them.

use std::sync::atomic::Ordering;

use super::map::{DIRTY, DOOMED, WRITING};
use super::shared::{Core, Shared, Use};

/// Frames that are looked at under one hold of the lock.
const STEP: u32 = 1024;

impl Shared {
    /// See [`super::PagePool::set_budget`].
    pub(super) fn resize(&self, budget_bytes: u64) -> u64 {
        let _one_at_a_time = self.resizing.lock();
        let limit = (budget_bytes / self.page_size.bytes() as u64).min(self.memory.frames()) as u32;
        let (before, used) = self.with(|core| {
            let before = core.limit;
            core.budget_bytes = budget_bytes;
            self.move_limit(core, limit);
            core.notify();
            (before, core.frames.len() as u32)
        });
        self.memory.advise(limit);
        if limit < before {
            let mut from = limit;
            while from < used {
                let until = used.min(from.saturating_add(STEP));
                self.with(|core| (from..until).for_each(|frame| self.empty(core, frame)));
                from = until;
            }
        }
        u64::from(self.with(|core| core.overhang)) * self.page_size.bytes() as u64
    }

    fn move_limit(&self, core: &mut Core, limit: u32) {
        let before = std::mem::replace(&mut core.limit, limit);
        if limit > before {
            let end = limit.min(core.frames.len() as u32);
            for frame in before..end {
                if core.frames[frame as usize].usage == Use::Nothing {
                    core.frames[frame as usize].usage = Use::Free;
                    core.free.push(frame);
                }
            }
        } else {
            core.free.retain(|frame| *frame < limit);
            // What was free behind the limit is nothing now; its memory goes in one piece where it lies together.
            let mut start = None;
            for frame in limit..core.frames.len() as u32 + 1 {
                let free = core.frames.get(frame as usize).is_some_and(|it| it.usage == Use::Free);
                if free {
                    core.frames[frame as usize].usage = Use::Nothing;
                    start.get_or_insert(frame);
                } else if let Some(first) = start.take() {
                    self.memory.give_back(first, frame - first);
                }
            }
        }
        let behind = core.frames.get(limit as usize..).unwrap_or_default();
        let overhang =
            behind.iter().filter(|frame| !matches!(frame.usage, Use::Nothing | Use::Free)).count() as u32;
        let had = std::mem::replace(&mut core.overhang, overhang) > 0;
        match (had, overhang > 0) {
            (false, true) => _ = self.waiting.fetch_add(1, Ordering::SeqCst),
            (true, false) => _ = self.waiting.fetch_sub(1, Ordering::SeqCst),
            _ => {}
        }
    }

    /// Empties a frame behind the limit if that is possible now.
    fn empty(&self, core: &mut Core, frame: u32) {
        let entry = core.frames[frame as usize];
        if entry.usage != Use::Resident || frame < core.limit {
            return;
        }
        if self.map.latch(entry.slot, DIRTY | WRITING | DOOMED).is_some() {
            self.map.remove(entry.slot, entry.page);
            core.policy.remove(frame);
            core.counts.evictions += 1;
            self.release_frame(core, frame);
        } else if core.dirty.contains_key(&entry.page) {
            self.start_write(core, entry.page);
        }
    }
}
