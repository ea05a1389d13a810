//! The warehouse whose recent data is asked for more often (Canim et al., VLDB 2010, §4.2, its figure 4): 100 queries of TPC-H's
//! kinds 1, 6, 14 and 15 (the text says five and names four), LINEITEM in the order of its ship dates.
//!
//! The paper gives neither skew nor lengths. Chosen before policies were compared:
//! - The 84 months of TPC-H, the last one the most popular: Zipf with skew 1.
//! - A range ends in the month that was drawn and goes back 1 month (14), 3 (1 and 15) or 12 (6), as the queries' own predicates
//!   do; query 1, whose own range is nearly all, has three.
//! - Query 14 scans PART for its hash join, query 15 SUPPLIER.

use super::{Access, EXTENT_PAGES, Heap, PageModel, PageRequest, Space};
use crate::random::Random;
use crate::zipf::Zipf;

const MONTHS: u64 = 84;

/// The model.
pub struct ZipfPages {
    random: Random,
    zipf: Zipf,
    lineitem: Heap,
    part: Heap,
    supplier: Heap,
    space: Space,
    query: u64,
    /// Pages that this query still reads, the last run first.
    runs: Vec<(u64, u64)>,
}

impl ZipfPages {
    /// A loaded database: the part `scale` of TPC-H's scale 10.
    #[must_use]
    pub fn new(scale: f64, page_bytes: u32, seed: u64) -> Self {
        let mut space = Space::default();
        let rows = |number: f64| ((number * scale) as u64).max(1);
        let lineitem = Heap::load(&mut space, rows(60e6), 125, page_bytes);
        let part = Heap::load(&mut space, rows(2e6), 155, page_bytes);
        let supplier = Heap::load(&mut space, rows(1e5), 160, page_bytes);
        Self {
            random: Random::stream(seed, &[0x0d5, 4]),
            zipf: Zipf::new(MONTHS, 1.0),
            lineitem,
            part,
            supplier,
            space,
            query: 0,
            runs: Vec::new(),
        }
    }

    fn begin_query(&mut self) {
        let (months, joined) = match self.query % 4 {
            0 => (3, None),
            1 => (12, None),
            2 => (1, Some(&self.part)),
            _ => (3, Some(&self.supplier)),
        };
        self.query += 1;
        let end = MONTHS + 1 - self.zipf.draw(&mut self.random);
        let pages = self.lineitem.pages();
        let page = |month: u64| pages * month / MONTHS;
        let mut ranges = vec![(&self.lineitem, page(end.saturating_sub(months)), page(end))];
        ranges.extend(joined.map(|heap| (heap, 0, heap.pages())));
        for (heap, first, end) in ranges {
            let mut end = end;
            while end > first {
                let begin = first.max((end - 1) / EXTENT_PAGES * EXTENT_PAGES);
                self.runs.push((heap.page(begin), end - begin));
                end = begin;
            }
        }
    }
}

impl PageModel for ZipfPages {
    fn streams(&self) -> usize {
        1
    }

    fn next_step(&mut self, _: usize, step: &mut Vec<PageRequest>) -> bool {
        while self.runs.is_empty() {
            if self.query == 100 {
                return false;
            }
            self.begin_query();
        }
        let Some((first, length)) = self.runs.pop() else { return false };
        let request = |page| PageRequest { page, access: Access::Read, stream: 0, ahead: true, think_us: 20 };
        step.extend((first..first + length).map(request));
        true
    }

    fn pages(&self) -> u64 {
        self.space.pages()
    }

    fn begun(&self) -> u64 {
        self.query
    }
}
