//! The operational data store of Canim et al., VLDB 2010, §4.2: 500 queries over TPC-H's tables, scale 10, each of which reads
//! a range and looks rows up (queries 2, 5, 9, 11 and 17 with a predicate added whose bounds are drawn uniformly).
//!
//! The paper gives neither the ranges nor the plans. Chosen before policies were compared:
//! - A query scans one range a table: LINEITEM (5, 9, 17), PARTSUPP (2, 11) and ORDERS (5). A range has 0.8 to 3 % of its
//!   table, uniformly, at a uniform place: the example in the text selects ten million of TPC-H's sparse order keys by a
//!   constant width, a share of this order. Scans are read ahead by extents.
//! - A query makes 500 to 1,000 look-ups, spread evenly between the extents of its scans, as a nested loop does: of customers,
//!   their index, suppliers, and the index of parts, a set of 21,600 pages, 1.08 times the paper's SSD. A page of it is drawn
//!   uniformly, since keys that a range yields have no order in it. None goes to a table that is too large to be cached.
//! - Rows: LINEITEM 125 bytes, ORDERS 110, PARTSUPP 155, CUSTOMER 184, SUPPLIER 160; entries of an index 18. With the indexes that
//!   no look-up uses the database has the paper's 15 GB; they are not modelled.
//! - One stream; 20 µs of a processor a page.

use super::{Access, EXTENT_PAGES, Heap, PageModel, PageRequest, Space};
use crate::random::Random;

/// Parameters that can be varied.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OdsSetup {
    /// The part of scale 10 that the tables have.
    pub scale: f64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Seed.
    pub seed: u64,
    /// Queries.
    pub queries: u64,
    /// The least and the greatest part of a table that a scan reads.
    pub range: (f64, f64),
    /// Fewest and most look-ups of a query.
    pub look_ups: (u64, u64),
}

impl OdsSetup {
    /// The set-up of the header.
    #[must_use]
    pub fn new(scale: f64, page_bytes: u32, seed: u64) -> Self {
        // Less of the database: fewer look-ups, too, so that their share of the requests stays.
        let look_ups = |number: f64| ((number * scale).ceil() as u64).max(1);
        Self {
            scale,
            page_bytes,
            seed,
            queries: 500,
            range: (0.008, 0.03),
            look_ups: (look_ups(500.0), look_ups(1000.0)),
        }
    }
}

/// The model.
pub struct OdsPages {
    setup: OdsSetup,
    random: Random,
    lineitem: Heap,
    orders: Heap,
    partsupp: Heap,
    /// The tables that queries look up in.
    looked_up: Vec<Heap>,
    space: Space,
    query: u64,
    /// Runs of this query's scans that are left, the last one first: pages from and to, of a table.
    runs: Vec<(Table, u64, u64)>,
    /// Runs and look-ups of this query, and those done.
    plan: (u64, u64),
    done: (u64, u64),
}

#[derive(Clone, Copy, Debug)]
enum Table {
    Lineitem,
    Orders,
    Partsupp,
}

impl OdsPages {
    /// A loaded database.
    #[must_use]
    pub fn new(setup: &OdsSetup) -> Self {
        let mut space = Space::default();
        let rows = |number: f64| ((number * setup.scale) as u64).max(1);
        let bytes = setup.page_bytes;
        let lineitem = Heap::load(&mut space, rows(60e6), 125, bytes);
        let orders = Heap::load(&mut space, rows(15e6), 110, bytes);
        let partsupp = Heap::load(&mut space, rows(8e6), 155, bytes);
        let looked_up = [(1.5e6, 184), (1.5e6, 18), (1e5, 160), (2e6, 18)];
        let looked_up = looked_up.map(|(number, length)| Heap::load(&mut space, rows(number), length, bytes));
        Self {
            random: Random::stream(setup.seed, &[0x0d5]),
            setup: *setup,
            lineitem,
            orders,
            partsupp,
            looked_up: looked_up.into(),
            space,
            query: 0,
            runs: Vec::new(),
            plan: (0, 0),
            done: (0, 0),
        }
    }

    /// Pages that look-ups go to.
    #[must_use]
    pub fn random_set(&self) -> u64 {
        self.looked_up.iter().map(Heap::pages).sum()
    }

    const fn heap(&self, table: Table) -> &Heap {
        match table {
            Table::Lineitem => &self.lineitem,
            Table::Orders => &self.orders,
            Table::Partsupp => &self.partsupp,
        }
    }

    fn begin_query(&mut self) {
        let tables: &[Table] = match self.query % 5 {
            0 | 3 => &[Table::Partsupp],
            1 => &[Table::Orders, Table::Lineitem],
            _ => &[Table::Lineitem],
        };
        let (least, most) = self.setup.range;
        for table in tables {
            let pages = self.heap(*table).pages();
            let share = least + (most - least) * self.random.unit();
            let length = ((pages as f64 * share) as u64).clamp(1, pages);
            let first = self.random.below(pages - length + 1);
            let mut end = first + length;
            while end > first {
                let begin = first.max((end - 1) / EXTENT_PAGES * EXTENT_PAGES);
                self.runs.push((*table, begin, end));
                end = begin;
            }
        }
        let (fewest, most) = self.setup.look_ups;
        self.plan = (self.runs.len() as u64, fewest + self.random.below(most - fewest + 1));
        self.done = (0, 0);
        self.query += 1;
    }

    fn look_up(&mut self) -> u64 {
        let mut at = self.random.below(self.random_set());
        for heap in &self.looked_up {
            if at < heap.pages() {
                return heap.page(at);
            }
            at -= heap.pages();
        }
        unreachable!("the number is below the sum")
    }
}

impl PageModel for OdsPages {
    fn streams(&self) -> usize {
        1
    }

    fn next_step(&mut self, _: usize, step: &mut Vec<PageRequest>) -> bool {
        if self.done == self.plan {
            if self.query == self.setup.queries {
                return false;
            }
            self.begin_query();
        }
        let request =
            |page, ahead| PageRequest { page, access: Access::Read, stream: 0, ahead, think_us: 20 };
        let ((runs, look_ups), (run, look_up)) = (self.plan, self.done);
        // Whichever is behind its share comes next.
        if run < runs && run * look_ups <= look_up * runs || look_up == look_ups {
            self.done.0 += 1;
            let (table, begin, end) = self.runs.pop().expect("a run is left");
            let heap = self.heap(table);
            step.extend((begin..end).map(|number| request(heap.page(number), true)));
        } else {
            self.done.1 += 1;
            let page = self.look_up();
            step.push(request(page, false));
        }
        true
    }

    fn pages(&self) -> u64 {
        self.space.pages()
    }

    fn begun(&self) -> u64 {
        self.query
    }
}
