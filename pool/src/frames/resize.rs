//! Growing and shrinking.
//!
//! Frames `0..limit` are the budget. Growing moves the limit. Shrinking moves it first, so that no page gets a frame
//! behind it any more; then, in steps between which the lock is free,
//!
//! 1. the policy takes pages out, wherever they are, until what is left has room before the limit: the coldest pages go;
//! 2. pages behind the limit move into the frames that became free;
//! 3. the memory behind the limit is given back, in as few pieces as possible.
//!
//! What cannot move yet is the *overhang*: pinned pages move (or go, if they are the coldest) with their last pin, changed
//! ones that find no frame when they were written (that begins here), reads when they have ended.
//!
//! The map's table and what pool and policy know of frames follow the budget.

use thermocline_base::sync::Ordering;

use super::map::FRAME_BITS;
use super::shared::{Core, Shared, Use};

/// Frames that are looked at under one hold of the lock.
const STEP: u32 = 1024;

impl Shared {
    /// See [`super::PagePool::set_budget`].
    pub(super) fn resize(&self, budget_bytes: u64) -> u64 {
        let _one_at_a_time = self.resizing.lock();
        let frames = self.memory.frames().min(1 << FRAME_BITS);
        let limit = (budget_bytes / self.page_size.bytes() as u64).min(frames) as u32;
        let (before, used) = self.with(|core| {
            let (before, used) = (core.limit, core.frames.len() as u32);
            core.budget_bytes = budget_bytes;
            self.move_limit(core, limit);
            if limit > before {
                self.choose_table(core);
            }
            core.give_back_later = limit < before;
            core.notify();
            (before, used)
        });
        self.memory.advise(limit);
        if limit < before {
            while self.with(|core| self.evict_some(core)) {}
            self.in_steps(limit, used, |core, frame| self.tidy_frame(core, frame));
            self.give_back_behind(limit);
            self.with(|core| {
                self.choose_table(core);
                if core.overhang == 0 {
                    core.frames.truncate(limit as usize);
                    core.frames.shrink_to_fit();
                    core.free.shrink_to_fit();
                    core.policy.shrink(limit);
                }
            });
        }
        if self.map.has_former() {
            let used = self.with(|core| core.frames.len() as u32);
            self.in_steps(0, used, |core, frame| self.tidy_frame(core, frame));
        }
        u64::from(self.with(|core| core.overhang)) * self.page_size.bytes() as u64
    }

    fn in_steps(&self, from: u32, until: u32, mut step: impl FnMut(&mut Core, u32)) {
        let mut at = from;
        while at < until {
            let end = until.min(at.saturating_add(STEP));
            self.with(|core| (at..end).for_each(|frame| step(core, frame)));
            at = end;
        }
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
            // What was free behind the limit is nothing now; the shrinking thread gives it back.
            for frame in core.frames.iter_mut().skip(limit as usize) {
                if frame.usage == Use::Free {
                    frame.usage = Use::Nothing;
                }
            }
        }
        let behind = core.frames.get(limit as usize..).unwrap_or_default();
        let overhang = behind.iter().filter(|frame| frame.usage != Use::Nothing).count() as u32;
        let had = std::mem::replace(&mut core.overhang, overhang) > 0;
        self.wait_while(had, overhang > 0);
    }

    /// The map's table follows the limit.
    fn choose_table(&self, core: &Core) {
        let (had, has) = self.map.choose_table(u64::from(core.limit), u64::from(core.overhang));
        self.wait_while(had, has);
    }

    /// Last pins are of interest from now on, or not any more.
    fn wait_while(&self, before: bool, now: bool) {
        match (before, now) {
            (false, true) => _ = self.waiting.fetch_add(1, Ordering::SeqCst),
            (true, false) => _ = self.waiting.fetch_sub(1, Ordering::SeqCst),
            _ => {}
        }
    }

    /// Takes out the coldest pages, as long as the overhang has no room before the limit. `true`: there is more to do.
    fn evict_some(&self, core: &mut Core) -> bool {
        for _ in 0..STEP {
            let room = core.free.len() as u32 + core.limit.saturating_sub(core.frames.len() as u32);
            if core.overhang <= room {
                return false;
            }
            let Some(frame) = self.evict(core) else { return false };
            self.release_frame(core, frame);
        }
        true
    }

    fn tidy_frame(&self, core: &mut Core, frame: u32) {
        if let Some(it) = core.frames.get(frame as usize)
            && it.usage == Use::Resident
        {
            self.tidy(core, it.slot);
        }
    }

    /// Gives the memory of frames back that are nothing. None of them is used again before the pool grows.
    fn give_back_behind(&self, limit: u32) {
        let mut stretches = Vec::new();
        self.with(|core| {
            core.give_back_later = false;
            let mut start = None;
            for frame in limit..core.frames.len() as u32 + 1 {
                let nothing = core.frames.get(frame as usize).is_some_and(|it| it.usage == Use::Nothing);
                if nothing {
                    start.get_or_insert(frame);
                } else if let Some(first) = start.take() {
                    stretches.push((first, frame - first));
                }
            }
        });
        for (first, count) in stretches {
            self.memory.give_back(first, count);
        }
    }
}
