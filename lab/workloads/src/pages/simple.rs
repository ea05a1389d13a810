//! Models with known answers: requests that do not depend on each other, and scans.

use super::{Access, PageModel, PageRequest};
use crate::random::Random;
use crate::zipf::{Scatter, Zipf};

/// Reads with Zipf's distribution, popular pages scattered.
pub struct Uncorrelated {
    random: Random,
    zipf: Zipf,
    scatter: Scatter,
    left: u64,
}

impl Uncorrelated {
    /// Reads `reads` times, in `pages` pages.
    #[must_use]
    pub fn new(pages: u64, theta: f64, reads: u64, seed: u64) -> Self {
        let pages = pages.max(1);
        Self {
            random: Random::stream(seed, &[0x7a]),
            zipf: Zipf::new(pages, theta),
            scatter: Scatter::new(pages, seed),
            left: reads,
        }
    }
}

impl PageModel for Uncorrelated {
    fn streams(&self) -> usize {
        1
    }

    fn next_step(&mut self, _: usize, step: &mut Vec<PageRequest>) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let rank = self.zipf.draw(&mut self.random);
        let page = self.scatter.place(rank - 1);
        step.push(PageRequest { page, access: Access::Read, stream: 0, ahead: false, think_us: 20 });
        true
    }

    fn pages(&self) -> u64 {
        self.zipf.elements()
    }
}

/// One table, read from the first to the last page several times.
pub struct Scans {
    pages: u64,
    next: u64,
    end: u64,
}

impl Scans {
    /// Scans `pages` pages, `scans` times.
    #[must_use]
    pub fn new(pages: u64, scans: u64) -> Self {
        let pages = pages.max(1);
        Self { pages, next: 0, end: pages * scans }
    }
}

impl PageModel for Scans {
    fn streams(&self) -> usize {
        1
    }

    fn next_step(&mut self, _: usize, step: &mut Vec<PageRequest>) -> bool {
        let run = (self.next..self.end.min(self.next + super::EXTENT_PAGES)).map(|at| PageRequest {
            page: at % self.pages,
            access: Access::Read,
            stream: 0,
            ahead: true,
            think_us: 20,
        });
        step.extend(run);
        self.next += step.len() as u64;
        !step.is_empty()
    }

    fn pages(&self) -> u64 {
        self.pages
    }
}
