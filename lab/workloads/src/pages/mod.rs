//! Page models: which pages a database would touch, without a database and without bytes.
//!
//! ```text
//!   generator (TPC-C's, dates, ranges) ─► model: heaps and trees as page numbers ─► steps of each stream
//! ```
//!
//! A *step* is what a stream asks for at once: one page, or a run of pages that is read ahead. A model knows frames and caches as
//! little as devices: the same seed gives the same steps of a stream, whatever happens to them; what one stream inserts, others see.
//!
//! - [`Heap`]: rows of one length in the order of their insertion. Its pages come in extents of 32, one after the other while
//!   a table is loaded; what grows later takes extents behind everything that was loaded, in turn with the other tables.
//! - [`Tree`]: a B+-tree over positions `0..n` in key order, leaves dense as after a load. Keys that are added at the end
//!   of a group (an order at the end of its district's) fill leaves of their own behind the group's.
//!
//! Limits: no bytes, so no real splits; rows keep their length and are not moved.

pub mod erp;
pub mod ods;
pub mod ods_zipf;
pub mod simple;
pub mod tpcc;

use std::collections::HashMap;

/// The access to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It is read.
    Read,
    /// It is read and changed.
    Change,
    /// It is new.
    Create,
}

/// A request of a stream for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// Its number.
    pub page: u64,
    /// The access.
    pub access: Access,
    /// Whose request it is.
    pub stream: u16,
    /// It is part of a run that is read ahead.
    pub ahead: bool,
    /// Processor time before it, in microseconds.
    pub think_us: u32,
}

/// A model.
pub trait PageModel: Send {
    /// Number of its streams.
    fn streams(&self) -> usize;

    /// Adds the next step of a stream; `false` if the stream has ended, and then the step is empty.
    fn next_step(&mut self, stream: usize, step: &mut Vec<PageRequest>) -> bool;

    /// Pages of the database now.
    fn pages(&self) -> u64;

    /// Number of what it counts (new orders, queries) that were begun until now, for rates.
    fn begun(&self) -> u64 {
        0
    }
}

/// Pages of an extent.
pub const EXTENT_PAGES: u64 = 32;

/// The pages of a database, handed out by extents.
#[derive(Debug, Default)]
pub struct Space {
    extents: u64,
}

impl Space {
    fn extent(&mut self) -> u64 {
        self.extents += 1;
        self.extents - 1
    }

    /// Pages that were handed out.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.extents * EXTENT_PAGES
    }
}

/// Rows in the order of their insertion.
#[derive(Debug)]
pub struct Heap {
    extents: Vec<u64>,
    per_page: u64,
    rows: u64,
}

impl Heap {
    /// A loaded table: so many rows of so many bytes, on pages of which an eighth of a hundredth goes for headers.
    #[must_use]
    pub fn load(space: &mut Space, rows: u64, row_bytes: u64, page_bytes: u32) -> Self {
        let per_page = ((u64::from(page_bytes) - 96) / row_bytes).max(1);
        let mut heap = Self { extents: Vec::new(), per_page, rows: 0 };
        let extents = rows.div_ceil(per_page).div_ceil(EXTENT_PAGES);
        heap.extents.extend((0..extents).map(|_| space.extent()));
        heap.rows = rows;
        heap
    }

    /// The page of a row.
    #[must_use]
    pub fn page_of(&self, row: u64) -> u64 {
        self.page(row / self.per_page)
    }

    /// The page with a number within the heap.
    #[must_use]
    pub fn page(&self, number: u64) -> u64 {
        self.extents[(number / EXTENT_PAGES) as usize] * EXTENT_PAGES + number % EXTENT_PAGES
    }

    /// Its pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.rows.div_ceil(self.per_page)
    }

    /// Its rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row at the end; says which one it is, its page, and whether that page is new.
    pub fn append(&mut self, space: &mut Space) -> (u64, u64, bool) {
        let row = self.rows;
        let number = row / self.per_page;
        if number / EXTENT_PAGES == self.extents.len() as u64 {
            self.extents.push(space.extent());
        }
        self.rows += 1;
        (row, self.page_of(row), row.is_multiple_of(self.per_page))
    }
}

/// A tree over positions.
#[derive(Debug)]
pub struct Tree {
    /// From the leaves to the root; each level is a heap whose rows are the entries of its nodes.
    levels: Vec<Heap>,
    /// Leaves that a group filled after the load: the last one, and its entries.
    tails: HashMap<u64, (u64, u64)>,
    tail_space: Heap,
}

impl Tree {
    /// A tree over so many entries of so many bytes.
    #[must_use]
    pub fn load(space: &mut Space, entries: u64, entry_bytes: u64, page_bytes: u32) -> Self {
        let mut levels = vec![Heap::load(space, entries.max(1), entry_bytes, page_bytes)];
        while let Some(level) = levels.last().filter(|level| level.pages() > 1) {
            let nodes = level.pages();
            levels.push(Heap::load(space, nodes, entry_bytes + 8, page_bytes));
        }
        let per_page = levels[0].per_page;
        let tail_space = Heap { extents: Vec::new(), per_page: 1, rows: 0 };
        debug_assert!(per_page > 1, "a node has two entries");
        Self { levels, tails: HashMap::new(), tail_space }
    }

    /// Its leaves as they were loaded.
    #[must_use]
    pub fn leaves(&self) -> &Heap {
        &self.levels[0]
    }

    /// Visits the inner nodes above a position, the root first; gives the leaf.
    pub fn descend(&self, position: u64, mut inner: impl FnMut(u64)) -> u64 {
        let mut at = position.min(self.levels[0].rows.saturating_sub(1));
        let mut path = [0; 8];
        for (level, heap) in self.levels.iter().enumerate() {
            path[level] = heap.page_of(at);
            at /= heap.per_page;
        }
        path[1..self.levels.len()].iter().rev().for_each(|page| inner(*page));
        path[0]
    }

    /// Adds an entry at the end of a group; gives its leaf and whether that is new.
    pub fn append(&mut self, space: &mut Space, group: u64) -> (u64, bool) {
        let most = self.levels[0].per_page;
        match self.tails.get_mut(&group) {
            Some((leaf, entries)) if *entries < most => {
                *entries += 1;
                (*leaf, false)
            }
            _ => {
                let (_, leaf, _) = self.tail_space.append(space);
                self.tails.insert(group, (leaf, 1));
                (leaf, true)
            }
        }
    }

    /// The leaf with a group's last entries, if entries were added.
    #[must_use]
    pub fn tail(&self, group: u64) -> Option<u64> {
        self.tails.get(&group).map(|(leaf, _)| *leaf)
    }
}

#[cfg(test)]
mod tests;
