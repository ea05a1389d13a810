//! The DRAM level: which requests come to the SSD at all.
//!
//! Frames are replaced by CLOCK, a form of which databases use (Canim et al., VLDB 2010, §4, of DB2). A page that leaves is
//! told before the read for whose sake it leaves: as a write if it was changed, as left otherwise.
//!
//! Rules: a change of a page that is not in a frame reads it first, its creation does not. Without frames every request passes,
//! and changes are writes: so a trace that was captured below the frames is replayed as it is.
//!
//! Difference from a database: changed pages are written when they leave, not some time before by a cleaner.

use crate::cache::{Admission, CacheKind, CachePolicy, CacheSetup, Request, RequestKind, Told};
use crate::trace::{TraceKind, TraceRequest};

/// The counts of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameCounts {
    /// Requests that came.
    pub requests: u64,
    /// Those whose page was in a frame.
    pub hits: u64,
    /// Reads of the level below.
    pub reads: u64,
    /// Writes to it.
    pub writes: u64,
}

/// The frames.
#[derive(Debug)]
pub struct Frames {
    policy: Option<Box<dyn CachePolicy>>,
    /// By frame: was its page changed?
    dirty: Vec<bool>,
    counts: FrameCounts,
}

impl Frames {
    /// Has `frames` frames; 0 is allowed.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        let policy = if frames == 0 { None } else { CacheKind::Clock.build(&CacheSetup::new(frames)) };
        Self { policy, dirty: vec![false; frames as usize], counts: FrameCounts::default() }
    }

    /// The counts of the requests until now.
    #[must_use]
    pub fn counts(&self) -> FrameCounts {
        self.counts
    }

    /// Does it say which pages leave?
    #[must_use]
    pub fn tells_leaves(&self) -> bool {
        self.policy.is_some()
    }

    /// Is the page in a frame?
    #[must_use]
    pub fn has(&self, page: u64) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.find(page).is_some())
    }

    /// Passes a request on: whatever the level below has to do for it is added to `below`, in order.
    #[inline]
    pub fn request(&mut self, request: &TraceRequest, below: &mut Vec<Request>) {
        let TraceRequest { page, told, kind, .. } = *request;
        self.counts.requests += 1;
        let Some(policy) = &mut self.policy else {
            let kind = match kind {
                TraceKind::Read => RequestKind::Read,
                TraceKind::Write | TraceKind::Create => RequestKind::Write,
                TraceKind::Free => RequestKind::Free,
            };
            self.counts.reads += u64::from(kind == RequestKind::Read);
            self.counts.writes += u64::from(kind == RequestKind::Write);
            return below.push(Request { page, kind, told });
        };
        if kind == TraceKind::Free {
            if let Some(frame) = policy.discard(page) {
                self.dirty[frame as usize] = false;
            }
            return below.push(Request { page, kind: RequestKind::Free, told });
        }
        let changes = kind != TraceKind::Read;
        if let Some(frame) = policy.request(&Request::read(page)) {
            self.counts.hits += 1;
            self.dirty[frame as usize] |= changes;
            return;
        }
        let frame = match policy.admit(&Request::read(page)) {
            Admission::Empty(frame) => frame,
            Admission::Replace { slot, page } => {
                let was_dirty = std::mem::take(&mut self.dirty[slot as usize]);
                self.counts.writes += u64::from(was_dirty);
                let kind = if was_dirty { RequestKind::Write } else { RequestKind::Leave };
                below.push(Request { page, kind, told: Told::Nothing });
                slot
            }
            Admission::Pass => unreachable!("CLOCK admits what it does not have"),
        };
        if kind != TraceKind::Create {
            self.counts.reads += 1;
            below.push(Request { page, kind: RequestKind::Read, told });
        }
        self.dirty[frame as usize] = changes;
    }
}
