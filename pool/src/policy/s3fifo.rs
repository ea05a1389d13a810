//! S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023): three first-in-first-out queues.
//!
//! ```text
//!   new page ──► small (a tenth) ──used again──► main ──► out; with uses: in again, one use less
//!                    │ not used                   ▲
//!                    ▼                            │ page comes back
//!                  out, its hash remembered in ── ghost
//! ```
//!
//! Most pages that a scan or a uniform load brings in are never used again before they leave: they pass through the small
//! queue and do not push out what is used. What was pushed out too early is known by the ghost and enters main at once.
//!
//! Differences from the paper:
//! - The ghost is a table with one place a hash instead of a queue: a place holds a hash's upper half and when it left,
//!   and is valid as long as no more pages have left since then than main has room for. A later hash may overwrite it.
//! - A page goes from small to main after [`PROMOTE_USES`] hits. A hit here is one read of a page: several reads of one
//!   operation (a header, then a record) count each.
//! - Pages that cannot be taken (pinned, or to be written) go to the head of their queue.

use super::{Candidates, Policy};

/// Hits are counted up to this number.
const MOST_USES: u16 = 3;
/// With so many hits a page goes from small to main.
const PROMOTE_USES: u16 = 2;
/// Small holds one of so many pages.
const SMALL_SHARE: usize = 10;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    #[default]
    Nowhere,
    Small,
    Main,
}

/// A frame's neighbours in its queue.
#[derive(Clone, Copy, Debug)]
struct Node {
    newer: u32,
    older: u32,
    /// Hash of the page, for the ghost.
    hash: u32,
    place: Place,
}

const EMPTY: Node = Node { newer: NONE, older: NONE, hash: 0, place: Place::Nowhere };

#[derive(Debug)]
struct Queue {
    newest: u32,
    oldest: u32,
    len: usize,
}

impl Queue {
    const fn new() -> Self {
        Self { newest: NONE, oldest: NONE, len: 0 }
    }

    fn push(&mut self, nodes: &mut [Node], frame: u32) {
        let node = &mut nodes[frame as usize];
        (node.newer, node.older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = frame,
            newest => nodes[newest as usize].newer = frame,
        }
        self.newest = frame;
        self.len += 1;
    }

    fn unlink(&mut self, nodes: &mut [Node], frame: u32) {
        let Node { newer, older, .. } = nodes[frame as usize];
        match newer {
            NONE => self.newest = older,
            newer => nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => nodes[older as usize].newer = newer,
        }
        self.len -= 1;
    }
}

/// Which pages left small not long ago.
#[derive(Debug, Default)]
struct Ghost {
    /// Upper half of the page's hash, and when it left.
    places: Vec<(u32, u32)>,
    clock: u32,
}

impl Ghost {
    fn index(&self, hash: u32) -> usize {
        hash as usize & (self.places.len() - 1)
    }

    /// Room for the pages of `frames`; what was remembered is forgotten when it grows.
    fn fit(&mut self, frames: usize) {
        if self.places.len() < frames {
            self.places = vec![(0, 0); frames.next_power_of_two()];
            self.clock = frames as u32;
        }
    }

    fn remember(&mut self, hash: u32) {
        self.clock = self.clock.wrapping_add(1);
        let index = self.index(hash);
        self.places[index] = (hash, self.clock);
    }

    /// Is it remembered, and not longer than `memory` departures? It is forgotten then.
    fn recall(&mut self, hash: u32, memory: usize) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let index = self.index(hash);
        let (found, when) = self.places[index];
        let known = found == hash && (self.clock.wrapping_sub(when) as usize) < memory;
        if known {
            self.places[index].0 = !hash;
        }
        known
    }
}

/// The policy.
#[derive(Debug)]
pub struct S3Fifo {
    nodes: Vec<Node>,
    small: Queue,
    main: Queue,
    ghost: Ghost,
}

impl Default for S3Fifo {
    fn default() -> Self {
        Self::new()
    }
}

fn hash_of(page: u64) -> u32 {
    ((page.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ page >> 29).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}

impl S3Fifo {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { nodes: Vec::new(), small: Queue::new(), main: Queue::new(), ghost: Ghost::default() }
    }

    fn place(&mut self, frame: u32, place: Place) {
        self.nodes[frame as usize].place = place;
        match place {
            Place::Small => self.small.push(&mut self.nodes, frame),
            Place::Main => self.main.push(&mut self.nodes, frame),
            Place::Nowhere => {}
        }
    }

    fn unlink(&mut self, frame: u32) {
        match std::mem::take(&mut self.nodes[frame as usize].place) {
            Place::Small => self.small.unlink(&mut self.nodes, frame),
            Place::Main => self.main.unlink(&mut self.nodes, frame),
            Place::Nowhere => panic!("a page leaves a full frame"),
        }
    }
}

impl Policy for S3Fifo {
    fn name(&self) -> &'static str {
        "s3-fifo"
    }

    fn most_uses(&self) -> u16 {
        MOST_USES
    }

    fn insert(&mut self, frame: u32, page: u64) {
        if self.nodes.len() <= frame as usize {
            self.nodes.resize(frame as usize + 1, EMPTY);
        }
        let hash = hash_of(page);
        let node = &mut self.nodes[frame as usize];
        assert!(node.place == Place::Nowhere, "a page comes into an empty frame");
        node.hash = hash;
        let memory = (self.small.len + self.main.len) / SMALL_SHARE * (SMALL_SHARE - 1);
        let known = self.ghost.recall(hash, memory);
        self.place(frame, if known { Place::Main } else { Place::Small });
    }

    fn remove(&mut self, frame: u32) {
        self.unlink(frame);
    }

    fn choose(&mut self, candidates: &mut dyn Candidates) -> Option<u32> {
        let frames = self.small.len + self.main.len;
        self.ghost.fit(frames);
        // Every visit of a page takes it, moves it from small to main, or takes a use of it away, unless it cannot be
        // taken: so many visits are enough if most can be.
        let mut visits = frames * (usize::from(MOST_USES) + 2);
        // The share of small, unless what is in there cannot be taken.
        let mut stuck = 0;
        while visits > 0 {
            visits -= 1;
            let from_small = self.main.len == 0
                || self.small.len > stuck && self.small.len >= (frames / SMALL_SHARE).max(1);
            let frame = if from_small { self.small.oldest } else { self.main.oldest };
            if frame == NONE {
                break;
            }
            let uses = candidates.uses(frame);
            self.unlink(frame);
            if from_small && uses >= PROMOTE_USES {
                candidates.set_uses(frame, 0);
                self.place(frame, Place::Main);
            } else if !from_small && uses > 0 {
                candidates.set_uses(frame, uses - 1);
                self.place(frame, Place::Main);
            } else if candidates.take(frame) {
                if from_small {
                    self.ghost.remember(self.nodes[frame as usize].hash);
                }
                return Some(frame);
            } else {
                stuck += usize::from(from_small);
                self.place(frame, if from_small { Place::Small } else { Place::Main });
            }
        }
        // Most frames cannot be taken. Whatever can be is taken now.
        for place in [Place::Small, Place::Main] {
            let queue = if place == Place::Small { &self.small } else { &self.main };
            for _ in 0..queue.len {
                let frame = if place == Place::Small { self.small.oldest } else { self.main.oldest };
                self.unlink(frame);
                if candidates.take(frame) {
                    return Some(frame);
                }
                self.place(frame, place);
            }
        }
        None
    }

    fn moved(&mut self, from: u32, to: u32) {
        if self.nodes.len() <= to as usize {
            self.nodes.resize(to as usize + 1, EMPTY);
        }
        assert!(self.nodes[to as usize].place == Place::Nowhere, "a page comes into an empty frame");
        let node = std::mem::replace(&mut self.nodes[from as usize], EMPTY);
        let queue = match node.place {
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
            Place::Nowhere => panic!("a page leaves a full frame"),
        };
        match node.newer {
            NONE => queue.newest = to,
            newer => self.nodes[newer as usize].older = to,
        }
        match node.older {
            NONE => queue.oldest = to,
            older => self.nodes[older as usize].newer = to,
        }
        self.nodes[to as usize] = node;
    }

    fn shrink(&mut self, frames: u32) {
        self.nodes.truncate(frames as usize);
        self.nodes.shrink_to_fit();
        if self.ghost.places.len() > 2 * (frames as usize).next_power_of_two() {
            self.ghost = Ghost::default();
        }
    }

    fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.ghost.places.capacity() * size_of::<(u32, u32)>()
    }
}
