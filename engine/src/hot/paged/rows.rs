//! Rows beside each other in pages: how a paged block keeps them.
//!
//! Behind the header of a page (its medium's, or zeros):
//!
//! ```text
//!   a page of rows    ┌───────┬─────────────────────────────┬───────┬───────┬───────┬─ … ─┬──────┐
//!                     │ count │ count × (position, offset)  │ end   │ row   │ row   │     │ zeros│
//!                     └───────┴─────────────────────────────┴───────┴───────┴───────┴─ … ─┴──────┘
//!   a long row        ┌────────┬──────────┬────────┬─ … ─┐ ┌─ … ─┐
//!                     │ 0xFFFF │ position │ length │ row │ │ row │   as many pages as it takes
//!                     └────────┴──────────┴────────┴─ … ─┘ └─ … ─┘
//! ```
//!
//! All numbers are little-endian, of 16 bits but for the length's 32. A *position* is a row's slot number; positions ascend, so
//! neighbours in a chunk are neighbours here. A row is kept with its hidden key, if the table has such, as it stands in a version.
//!
//! In memory a run costs two bytes a page: the first position in it.

use thermocline_base::io::AlignedBytes;
use thermocline_pool::page::HEADER_BYTES;

use super::PAGE_BYTES;

/// Bytes of rows in a page.
pub(crate) const PAYLOAD_BYTES: usize = PAGE_BYTES - HEADER_BYTES;

/// Instead of the count: the page begins a row that fills more than a page.
const LONG: u16 = u16::MAX;
/// What stands before the rows of a page, but for each row's own entry.
const HEAD: usize = 4;
/// A row's entry.
const ENTRY: usize = 4;
/// What stands before the bytes of a long row.
const LONG_HEAD: usize = 8;

/// Makes the pages of a run.
#[derive(Debug, Default)]
pub(crate) struct RunBuilder {
    pages: Vec<u8>,
    firsts: Vec<u16>,
    /// Rows of the page that is being filled: positions, and where each ends.
    open: Vec<(u16, u16)>,
    bytes: Vec<u8>,
    rows: u32,
    row_bytes: u64,
    last: Option<u16>,
}

/// The pages of a run, and which rows are in them.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) bytes: AlignedBytes,
    pub(crate) index: PageIndex,
    pub(crate) rows: u32,
    /// Bytes of the rows alone.
    pub(crate) row_bytes: u64,
}

impl RunBuilder {
    /// Adds a row. Positions ascend.
    pub(crate) fn push(&mut self, position: u16, row: &[u8]) {
        debug_assert!(self.last.is_none_or(|last| last < position), "a run has each row once, in order");
        self.last = Some(position);
        self.rows += 1;
        self.row_bytes += row.len() as u64;
        if HEAD + ENTRY + row.len() > PAYLOAD_BYTES {
            self.end_page();
            return self.push_long(position, row);
        }
        if HEAD + ENTRY * (self.open.len() + 1) + self.bytes.len() + row.len() > PAYLOAD_BYTES {
            self.end_page();
        }
        self.bytes.extend_from_slice(row);
        let end = u16::try_from(self.bytes.len()).expect("a page is shorter than 2^16");
        self.open.push((position, end));
    }

    fn push_long(&mut self, position: u16, row: &[u8]) {
        let mut end = self.begin_page(position);
        self.pages.extend_from_slice(&LONG.to_le_bytes());
        self.pages.extend_from_slice(&position.to_le_bytes());
        self.pages.extend_from_slice(&(row.len() as u32).to_le_bytes());
        let mut rest = row;
        loop {
            let (here, behind) = rest.split_at(rest.len().min(end - self.pages.len()));
            self.pages.extend_from_slice(here);
            self.pages.resize(end, 0);
            if behind.is_empty() {
                return;
            }
            rest = behind;
            end = self.begin_page(position);
        }
    }

    /// A page with the header left free; where it ends.
    fn begin_page(&mut self, first: u16) -> usize {
        let start = self.pages.len();
        self.firsts.push(first);
        self.pages.resize(start + HEADER_BYTES, 0);
        start + PAGE_BYTES
    }

    fn end_page(&mut self) {
        let Some(&(first, _)) = self.open.first() else { return };
        let page_end = self.begin_page(first);
        let head = (HEAD + ENTRY * self.open.len()) as u16;
        self.pages.extend_from_slice(&(self.open.len() as u16).to_le_bytes());
        let mut begin = head;
        for (position, end) in self.open.drain(..) {
            self.pages.extend_from_slice(&position.to_le_bytes());
            self.pages.extend_from_slice(&begin.to_le_bytes());
            begin = head + end;
        }
        self.pages.extend_from_slice(&begin.to_le_bytes());
        self.pages.append(&mut self.bytes);
        self.pages.resize(page_end, 0);
    }

    /// The pages of all rows. `None`: there is no row.
    pub(crate) fn finish(mut self) -> Option<Pages> {
        self.end_page();
        if self.pages.is_empty() {
            return None;
        }
        let mut bytes = AlignedBytes::zeroed(self.pages.len());
        bytes[..self.pages.len()].copy_from_slice(&self.pages);
        self.firsts.shrink_to_fit();
        let index = PageIndex(self.firsts.into_boxed_slice());
        Some(Pages { bytes, index, rows: self.rows, row_bytes: self.row_bytes })
    }
}

/// The first position in each page of a run.
#[derive(Debug)]
pub(crate) struct PageIndex(Box<[u16]>);

impl PageIndex {
    /// Pages of the run.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// The pages that have the row at a position, if the run has it: one, or those of a long row.
    #[inline]
    pub(crate) fn pages_of(&self, position: u16) -> std::ops::Range<usize> {
        let end = self.0.partition_point(|&first| first <= position);
        let Some(last) = end.checked_sub(1) else { return 0..0 };
        let first = self.0[..last].iter().rposition(|&first| first != self.0[last]).map_or(0, |at| at + 1);
        first..end
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Appends the row at a position, from the payloads of its pages, each of which is asked for in turn. `false`: it is not there.
#[inline]
pub(crate) fn row_into<'p>(
    pages: usize,
    position: u16,
    mut page: impl FnMut(usize) -> &'p [u8],
    out: &mut Vec<u8>,
) -> bool {
    if pages == 0 {
        return false;
    }
    let first = page(0);
    match number(first, 0) {
        Some(LONG) => long_row_into(pages, position, first, page, out),
        Some(count) => short_row_into(usize::from(count), position, first, out).is_some(),
        None => false,
    }
}

fn short_row_into(count: usize, position: u16, page: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let entry = |at: usize| Some((number(page, 2 + ENTRY * at)?, number(page, 4 + ENTRY * at)?));
    let (mut from, mut to) = (0, count);
    while from < to {
        let middle = (from + to) / 2;
        if entry(middle)?.0 < position {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    let (found, begin) = entry(from).filter(|_| from < count)?;
    // Behind the last entry stands where the last row ends, in the place of a position.
    let end = if from + 1 < count { entry(from + 1)?.1 } else { number(page, 2 + ENTRY * count)? };
    if found != position {
        return None;
    }
    out.extend_from_slice(page.get(usize::from(begin)..usize::from(end))?);
    Some(())
}

#[cold]
fn long_row_into<'p>(
    pages: usize,
    position: u16,
    first: &[u8],
    mut page: impl FnMut(usize) -> &'p [u8],
    out: &mut Vec<u8>,
) -> bool {
    if number(first, 2) != Some(position) {
        return false;
    }
    let length = u32::from_le_bytes(first[4..LONG_HEAD].try_into().expect("four bytes")) as usize;
    if length > pages * PAYLOAD_BYTES - LONG_HEAD {
        return false;
    }
    let start = out.len();
    for at in 0..pages {
        let bytes = if at == 0 { &first[LONG_HEAD..] } else { page(at) };
        let wanted = length - (out.len() - start);
        out.extend_from_slice(&bytes[..wanted.min(bytes.len())]);
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pages: &Pages, position: u16) -> Option<Vec<u8>> {
        let range = pages.index.pages_of(position);
        let page = |at: usize| {
            let start = (range.start + at) * PAGE_BYTES;
            &pages.bytes[start + HEADER_BYTES..start + PAGE_BYTES]
        };
        let mut out = Vec::new();
        row_into(range.len(), position, page, &mut out).then_some(out)
    }

    proptest! {
        #[test]
        fn rows_come_back_as_they_were(
            rows in proptest::collection::btree_map(any::<u16>(), (0_usize..9000, any::<u8>()), 1..300),
            others in proptest::collection::vec(any::<u16>(), 0..50),
        ) {
            let mut builder = RunBuilder::default();
            let row = |length: usize, byte: u8| (0..length).map(|at| byte ^ at as u8).collect::<Vec<u8>>();
            for (&position, &(length, byte)) in &rows {
                // Most rows are short.
                let length = if byte % 8 == 0 { length } else { length % 200 };
                builder.push(position, &row(length, byte));
            }
            let pages = builder.finish().expect("there are rows");
            prop_assert_eq!(pages.rows as usize, rows.len());
            prop_assert_eq!(pages.bytes.len(), pages.index.len() * PAGE_BYTES);
            for (&position, &(length, byte)) in &rows {
                let length = if byte % 8 == 0 { length } else { length % 200 };
                prop_assert_eq!(read(&pages, position), Some(row(length, byte)));
            }
            for position in others.into_iter().filter(|position| !rows.contains_key(position)) {
                prop_assert_eq!(read(&pages, position), None);
            }
        }
    }

    /// Rows that just fit into a page, and just do not.
    #[test]
    fn the_longest_row_of_a_page() {
        let short = PAYLOAD_BYTES - HEAD - ENTRY;
        let long = 2 * PAYLOAD_BYTES - LONG_HEAD;
        for length in [short, short + 1, long, long + 1] {
            let mut builder = RunBuilder::default();
            builder.push(7, &[1; 10]);
            builder.push(8, &vec![2; length]);
            builder.push(9, &[3; 10]);
            let pages = builder.finish().unwrap();
            assert_eq!(read(&pages, 8), Some(vec![2; length]));
            assert_eq!((read(&pages, 7), read(&pages, 9)), (Some(vec![1; 10]), Some(vec![3; 10])));
        }
    }
}
