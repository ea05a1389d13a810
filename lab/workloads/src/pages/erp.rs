//! The star of an ERP solution (Canim et al., VLDB 2010, §5.1): a fact table of 16 M rows of 176 bytes, seven indexes of one part and a
//! unique one of seven, a dozen queries with predicates on several dimensions, of which two run long.
//!
//! ```text
//!   list prefetch   leaves of two or three indexes ─► row ids, in the order of their pages ─► fact pages, up to 16 at once
//!   nested loop     a leaf of one index ─► its rows one by one, each on any page in use ─► the next leaf …
//! ```
//!
//! The text gives sizes, 30 % of the database in use, and neither queries nor plans. Chosen before policies were compared:
//! - Entries of an index of one part have 12 bytes (a row id, and its share of a key), those of the unique one 36 (seven keys and a row
//!   id): 1.9 GB together with the table's 3 GB, the paper's sizes.
//! - Queries ask for recent rows: the last 40 % of the fact table. With the leaves that are read, about 30 % of the database is in use.
//! - Five small queries fetch 4,000 rows of a tenth of the recent part, five medium ones 40,000 of three tenths, by list prefetch, since
//!   their row ids fit into memory. The two long ones fetch 480,000 rows each, in the order of an index, which is none on the pages:
//!   so a stream asks for each page in use three or four times, as one that begins cold must do to gain a factor of three.
//! - A query reads the same pages whenever it is run. A stream runs all twelve in an order of its own; the text may also mean one
//!   query a stream, but then eight of them would not find 83 % of their reads on an SSD that begins cold.
//! - Dimensions are small and stay in frames, as the text says; they are not modelled. 20 µs of a processor a page.

use super::{Access, EXTENT_PAGES, Heap, PageModel, PageRequest, Space};
use crate::random::Random;

/// Indexes of one part.
const INDEXES: u64 = 7;
/// The part of the fact table that queries ask for.
const RECENT: f64 = 0.4;
/// Pages that list prefetch asks for at once.
const PREFETCHED: usize = 16;
/// Rows that the small, medium and long queries fetch, and the part of the recent rows that they lie in.
const QUERIES: [(f64, f64, bool); 12] = {
    let (small, medium, long) = ((4e3, 0.1, false), (40e3, 0.3, false), (480e3, 1.0, true));
    [small, medium, small, medium, long, small, medium, small, medium, long, small, medium]
};

/// Parameters that can be varied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ErpSetup {
    /// The part of the paper's 16 M rows.
    pub scale: f64,
    /// Streams, each of which runs all queries.
    pub streams: usize,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Seed.
    pub seed: u64,
    /// The rows that are fetched, as a multiple of those of the header.
    pub fetched: f64,
}

impl ErpSetup {
    /// The set-up of the header.
    #[must_use]
    pub fn new(scale: f64, streams: usize, page_bytes: u32, seed: u64) -> Self {
        Self { scale, streams: streams.max(1), page_bytes, seed, fetched: 1.0 }
    }
}

/// A scan of an index's leaves.
#[derive(Clone, Copy, Debug)]
struct LeafRange {
    index: usize,
    next: u64,
    end: u64,
}

/// A query on its way.
#[derive(Debug)]
struct Query {
    random: Random,
    /// Leaves that are left, the last range first.
    ranges: Vec<LeafRange>,
    /// Pages of the fact table that its rows lie in: the first one, and how many.
    part: (u64, u64),
    /// Rows that are left to fetch.
    rows: u64,
    /// Nested loop: how many rows a leaf brings. List prefetch: none.
    rows_a_leaf: Option<u64>,
    /// Rows of the last leaf that are left to fetch.
    of_leaf: u64,
    /// List prefetch: pages of the fact table that are left, the last one first.
    listed: Option<Vec<u64>>,
}

#[derive(Debug)]
struct Stream {
    /// Queries that are left, the last one first.
    order: Vec<usize>,
    query: Option<Query>,
}

/// The model.
pub struct ErpPages {
    setup: ErpSetup,
    fact: Heap,
    /// Leaves of the indexes of one part.
    leaves: Vec<Heap>,
    /// The first page of each, and the one behind it.
    index_pages: Vec<(u64, u64)>,
    space: Space,
    streams: Vec<Stream>,
    begun: u64,
}

impl ErpPages {
    /// A loaded database.
    #[must_use]
    pub fn new(setup: &ErpSetup) -> Self {
        let mut space = Space::default();
        let rows = ((16e6 * setup.scale) as u64).max(1);
        let fact = Heap::load(&mut space, rows, 176, setup.page_bytes);
        let (mut leaves, mut index_pages) = (Vec::new(), Vec::new());
        for _ in 0..INDEXES {
            let first = space.pages();
            leaves.push(Heap::load(&mut space, rows, 12, setup.page_bytes));
            index_pages.push((first, space.pages()));
        }
        // The unique index has its pages; no query reads it.
        let _unique = Heap::load(&mut space, rows, 36, setup.page_bytes);
        let streams = (0..setup.streams).map(|stream| {
            let mut order: Vec<usize> = (0..QUERIES.len()).collect();
            Random::stream(setup.seed, &[0xe49, 1, stream as u64]).shuffle(&mut order);
            Stream { order, query: None }
        });
        let streams = streams.collect();
        Self { setup: *setup, fact, leaves, index_pages, space, streams, begun: 0 }
    }

    /// The indexes of one part: the first page of each, and the one behind it.
    #[must_use]
    pub fn index_pages(&self) -> &[(u64, u64)] {
        &self.index_pages
    }

    /// A query at its beginning: the same one for all streams.
    fn query(&self, number: usize) -> Query {
        let (rows, part, is_long) = QUERIES[number];
        let mut random = Random::stream(self.setup.seed, &[0xe49, 2, number as u64]);
        let mut draw_range = |index: usize, share: f64| {
            let pages = self.leaves[index].pages();
            let length = ((pages as f64 * share) as u64).clamp(1, pages);
            let next = random.below(pages - length + 1);
            LeafRange { index, next, end: next + length }
        };
        let ranges: Vec<LeafRange> = match is_long {
            true => vec![draw_range(number % INDEXES as usize, 0.15)],
            // Predicates on two or three dimensions.
            false => {
                (0..2 + number % 2).map(|at| draw_range((number + 2 * at) % INDEXES as usize, 0.05)).collect()
            }
        };
        let pages = self.fact.pages();
        let recent = ((pages as f64 * RECENT) as u64).clamp(1, pages);
        let length = ((recent as f64 * part) as u64).clamp(1, recent);
        let first = pages - recent + random.below(recent - length + 1);
        let rows = ((rows * self.setup.scale * self.setup.fetched) as u64).max(1);
        let leaves: u64 = ranges.iter().map(|range| range.end - range.next).sum();
        let rows_a_leaf = is_long.then(|| rows.div_ceil(leaves));
        Query { random, ranges, part: (first, length), rows, rows_a_leaf, of_leaf: 0, listed: None }
    }
}

impl Query {
    fn row_page(&mut self) -> u64 {
        self.part.0 + self.random.below(self.part.1)
    }

    /// The next leaves: one of a nested loop, what is left of an extent of a scan.
    fn next_leaves(&mut self) -> Option<(usize, std::ops::Range<u64>)> {
        let most = if self.rows_a_leaf.is_some() { 1 } else { EXTENT_PAGES };
        let range = self.ranges.last_mut()?;
        let (index, begin) = (range.index, range.next);
        range.next = range.end.min((begin / most + 1) * most);
        let leaves = begin..range.next;
        if range.next == range.end {
            self.ranges.pop();
        }
        Some((index, leaves))
    }

    /// All rows of a list prefetch, by page, the last page first; two on a page are one.
    fn list(&mut self) -> Vec<u64> {
        let mut pages: Vec<u64> = (0..self.rows).map(|_| self.row_page()).collect();
        pages.sort_unstable_by(|a, b| b.cmp(a));
        pages.dedup();
        pages
    }
}

/// The next step of a query.
enum Next {
    Leaves(usize, std::ops::Range<u64>),
    Facts(Vec<u64>),
    End,
}

impl Query {
    fn next(&mut self) -> Next {
        if let Some(rows_a_leaf) = self.rows_a_leaf {
            if self.of_leaf > 0 {
                (self.of_leaf, self.rows) = (self.of_leaf - 1, self.rows - 1);
                return Next::Facts(vec![self.row_page()]);
            }
            let Some((index, leaves)) = self.next_leaves() else { return Next::End };
            self.of_leaf = rows_a_leaf.min(self.rows);
            return Next::Leaves(index, leaves);
        }
        if let Some((index, leaves)) = self.next_leaves() {
            return Next::Leaves(index, leaves);
        }
        let mut listed = self.listed.take().unwrap_or_else(|| self.list());
        if listed.is_empty() {
            return Next::End;
        }
        let rest = listed.len().saturating_sub(PREFETCHED);
        let mut pages = listed.split_off(rest);
        pages.reverse();
        self.listed = Some(listed);
        Next::Facts(pages)
    }
}

impl PageModel for ErpPages {
    fn streams(&self) -> usize {
        self.streams.len()
    }

    fn next_step(&mut self, stream: usize, step: &mut Vec<PageRequest>) -> bool {
        let request = |page, ahead| PageRequest {
            page,
            access: Access::Read,
            stream: stream as u16,
            ahead,
            think_us: 20,
        };
        loop {
            if self.streams[stream].query.is_none() {
                let Some(number) = self.streams[stream].order.pop() else { return false };
                self.begun += 1;
                self.streams[stream].query = Some(self.query(number));
            }
            let Some(query) = &mut self.streams[stream].query else { continue };
            match query.next() {
                Next::Leaves(index, leaves) => {
                    let heap = &self.leaves[index];
                    step.extend(leaves.map(|leaf| request(heap.page(leaf), true)));
                    return true;
                }
                Next::Facts(pages) => {
                    step.extend(pages.into_iter().map(|page| request(self.fact.page(page), false)));
                    return true;
                }
                Next::End => self.streams[stream].query = None,
            }
        }
    }

    fn pages(&self) -> u64 {
        self.space.pages()
    }

    fn begun(&self) -> u64 {
        self.begun
    }
}
