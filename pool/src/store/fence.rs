//! Page fences: which page of a piece a key would be in, from memory.
//!
//! For each data page one separator: the shortest prefix of its first key that is above the last key of the page before
//! it, without what all separators of the index have in common. The first page of an index keeps its whole first key,
//! and each index its last key, so that what lies outside is known without reading.
//!
//! ```text
//!   index ─► range of fences ─► common prefix, first key, last key
//!   fence ─► offset into the bytes (4 bytes) · bytes of the separator (3 or so) · page (only if pages were skipped)
//! ```

use super::codec::{self, Reader};
use super::types::KeyRange;

/// The fences of one index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IndexFences {
    pub(super) index: u64,
    /// Its first fence.
    start: u32,
    /// The one behind its last.
    end: u32,
    common: u16,
    first_key: Box<[u8]>,
    last_key: Box<[u8]>,
}

/// The fences of a piece.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Fences {
    indexes: Box<[IndexFences]>,
    bytes: Box<[u8]>,
    /// Where each separator ends.
    ends: Box<[u32]>,
    /// Which page of the piece each fence names; empty: the same number.
    pages: Box<[u32]>,
    /// Fences of pages that begin with the key with which the page before ends. Sorted, and almost always empty.
    continued: Box<[u32]>,
}

/// Collects fences.
#[derive(Debug, Default)]
pub(super) struct FencesBuilder {
    indexes: Vec<IndexFences>,
    /// Whole separators; what they have in common goes at the end.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    pages: Vec<u32>,
    continued: Vec<u32>,
}

impl FencesBuilder {
    /// A data page from `first_key` to `last_key` of `index`.
    pub(super) fn add(&mut self, index: u64, page: u32, first_key: &[u8], last_key: &[u8]) {
        let fence = self.ends.len() as u32;
        match self.indexes.last_mut() {
            Some(fences) if fences.index == index => {
                let shared = codec::common_prefix(&fences.last_key, first_key);
                // The first byte that differs is what makes it greater. Only entries of one key that go over several
                // pages have none; then the separator is the key, and readers look at the page before as well.
                if *fences.last_key == *first_key {
                    self.continued.push(fence);
                }
                self.bytes.extend_from_slice(&first_key[..(shared + 1).min(first_key.len())]);
                fences.end = fence + 1;
                fences.last_key = last_key.into();
            }
            _ => {
                self.bytes.extend_from_slice(first_key);
                self.indexes.push(IndexFences {
                    index,
                    start: fence,
                    end: fence + 1,
                    common: 0,
                    first_key: first_key.into(),
                    last_key: last_key.into(),
                });
            }
        }
        self.ends.push(self.bytes.len() as u32);
        self.pages.push(page);
    }

    /// Memory that it takes, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + (self.ends.capacity() + self.pages.capacity()) * size_of::<u32>()
    }

    pub(super) fn finish(mut self) -> Fences {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut ends = Vec::with_capacity(self.ends.len());
        for fences in &mut self.indexes {
            let separator = |fence: u32| {
                let start = if fence == 0 { 0 } else { self.ends[fence as usize - 1] };
                &self.bytes[start as usize..self.ends[fence as usize] as usize]
            };
            // They are sorted, so the first and the last have in common what all have.
            let common = codec::common_prefix(separator(fences.start), separator(fences.end - 1));
            fences.common = common as u16;
            for fence in fences.start..fences.end {
                bytes.extend_from_slice(&separator(fence)[common..]);
                ends.push(bytes.len() as u32);
            }
        }
        if self.pages.iter().enumerate().all(|(fence, page)| fence == *page as usize) {
            self.pages.clear();
        }
        Fences {
            indexes: self.indexes.into(),
            bytes: bytes.into(),
            ends: ends.into(),
            pages: self.pages.into(),
            continued: self.continued.into(),
        }
    }
}

impl Fences {
    /// Number of fences.
    pub(super) fn len(&self) -> u32 {
        self.ends.len() as u32
    }

    /// The page that a fence names.
    #[inline]
    pub(super) fn page(&self, fence: u32) -> u32 {
        if self.pages.is_empty() { fence } else { self.pages[fence as usize] }
    }

    fn separator(&self, fence: u32) -> &[u8] {
        let start = if fence == 0 { 0 } else { self.ends[fence as usize - 1] };
        &self.bytes[start as usize..self.ends[fence as usize] as usize]
    }

    pub(super) fn indexes(&self) -> &[IndexFences] {
        &self.indexes
    }

    fn of_index(&self, index: u64) -> Option<&IndexFences> {
        let at = self.indexes.binary_search_by_key(&index, |fences| fences.index).ok()?;
        Some(&self.indexes[at])
    }

    /// Number of separators of the index that are at or below `key`, or below it.
    fn count_below(&self, fences: &IndexFences, key: &[u8], or_equal: bool) -> u32 {
        let (common, rest) = (&fences.first_key[..usize::from(fences.common)], key);
        let shared = codec::common_prefix(common, rest);
        if shared < common.len() {
            // Above or below all of them.
            return match rest.get(shared) {
                Some(byte) if *byte > common[shared] => fences.end - fences.start,
                _ => 0,
            };
        }
        let rest = &key[common.len()..];
        let (mut low, mut high) = (fences.start, fences.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let separator = self.separator(middle);
            if separator < rest || (or_equal && separator == rest) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low - fences.start
    }

    /// The fences of the pages that may hold `key`: almost always none or one.
    pub(super) fn pages_of(&self, index: u64, key: &[u8]) -> std::ops::Range<u32> {
        let Some(fences) = self.of_index(index) else { return 0..0 };
        if key < &*fences.first_key || key > &*fences.last_key {
            return 0..0;
        }
        let end = fences.start + self.count_below(fences, key, true);
        self.first_of(fences, key, end - 1)..end
    }

    /// The first of the pages that may hold `key`, given the last one.
    fn first_of(&self, fences: &IndexFences, key: &[u8], mut fence: u32) -> u32 {
        let rest = key.get(usize::from(fences.common)..).unwrap_or(&[]);
        while self.continued.binary_search(&fence).is_ok() && self.separator(fence) == rest {
            fence -= 1;
        }
        fence
    }

    /// The fences of the pages of the index that begin from `from` (included) to `to` (excluded), and of all of its pages.
    pub(super) fn beginning_between(
        &self,
        index: u64,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Option<(std::ops::Range<u32>, std::ops::Range<u32>)> {
        let fences = self.of_index(index)?;
        let start = fences.start + self.count_below(fences, from, false);
        let end = to.map_or(fences.end, |to| fences.start + self.count_below(fences, to, false));
        Some((start..end.max(start), fences.range()))
    }

    /// The fences of the pages that may hold keys of the index from `from` (included) to `to` (excluded).
    pub(super) fn pages_between(&self, index: u64, from: &[u8], to: Option<&[u8]>) -> std::ops::Range<u32> {
        let Some(fences) = self.of_index(index) else { return 0..0 };
        if from > &*fences.last_key || to.is_some_and(|to| to <= &*fences.first_key) {
            return 0..0;
        }
        let last = (fences.start + self.count_below(fences, from, true)).max(fences.start + 1) - 1;
        let start = self.first_of(fences, from, last);
        let end = match to {
            Some(to) => fences.start + self.count_below(fences, to, false),
            None => fences.end,
        };
        start..end.max(start)
    }

    /// May the page of a fence of the index hold keys at or before `key`, as a scan goes on towards greater keys?
    pub(super) fn begins_by(&self, index: u64, fence: u32, key: &[u8]) -> bool {
        self.of_index(index).is_some_and(|fences| self.cmp_separator(fences, fence, key).is_le())
    }

    /// May it hold keys before `key`?
    pub(super) fn begins_before(&self, index: u64, fence: u32, key: &[u8]) -> bool {
        self.of_index(index).is_some_and(|fences| self.cmp_separator(fences, fence, key).is_lt())
    }

    /// May it hold keys at or above `key`?
    pub(super) fn ends_behind(&self, index: u64, fence: u32, key: &[u8]) -> bool {
        self.of_index(index).is_some_and(|fences| {
            if fence + 1 == fences.end {
                return *fences.last_key >= *key;
            }
            let next = self.cmp_separator(fences, fence + 1, key);
            next.is_gt() || (next.is_eq() && self.continued.binary_search(&(fence + 1)).is_ok())
        })
    }

    fn cmp_separator(&self, fences: &IndexFences, fence: u32, key: &[u8]) -> std::cmp::Ordering {
        let common = &fences.first_key[..usize::from(fences.common)];
        common.iter().chain(self.separator(fence)).cmp(key)
    }

    /// Between which keys of the index all keys of a page are, and those of a long record's page: of what refers to it.
    pub(super) fn keys_of(&self, index: u64, page: u32) -> Option<KeyRange> {
        let fences = self.of_index(index)?;
        let fence = fences.range().find(|fence| self.page(*fence) >= page)?;
        let whole = |fence| [&fences.first_key[..usize::from(fences.common)], self.separator(fence)].concat();
        let next = fence + 1;
        let high = if next == fences.end { fences.last_key.to_vec() } else { whole(next) };
        Some(KeyRange { low: whole(fence).into(), high: high.into() })
    }

    /// Memory that they take beyond themselves.
    pub(super) fn memory_bytes(&self) -> usize {
        let keys = self
            .indexes
            .iter()
            .map(|fences| size_of::<IndexFences>() + fences.first_key.len() + fences.last_key.len());
        self.bytes.len()
            + 4 * (self.ends.len() + self.pages.len() + self.continued.len())
            + keys.sum::<usize>()
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        codec::put_varint(bytes, self.indexes.len() as u64);
        for fences in &self.indexes {
            bytes.extend_from_slice(&fences.index.to_le_bytes());
            codec::put_varint(bytes, u64::from(fences.end));
            codec::put_varint(bytes, u64::from(fences.common));
            codec::put_prefixed(bytes, &fences.first_key);
            codec::put_prefixed(bytes, &fences.last_key);
        }
        codec::put_varint(bytes, self.ends.len() as u64);
        let mut before = 0;
        for end in &self.ends {
            codec::put_varint(bytes, u64::from(end - before));
            before = *end;
        }
        codec::put_prefixed(bytes, &self.bytes);
        codec::put_varint(bytes, self.pages.len() as u64);
        let mut before = 0;
        for page in &self.pages {
            codec::put_varint(bytes, u64::from(page - before));
            before = *page;
        }
        codec::put_varint(bytes, self.continued.len() as u64);
        let mut before = 0;
        for fence in &self.continued {
            codec::put_varint(bytes, u64::from(fence - before));
            before = *fence;
        }
    }

    /// Reads what [`Fences::encode`] wrote; `None` when the bytes are none.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let mut indexes: Vec<IndexFences> = Vec::new();
        for _ in 0..reader.varint()? {
            let start = indexes.last().map_or(0, |fences| fences.end);
            let fences = IndexFences {
                index: reader.u64()?,
                start,
                end: u32::try_from(reader.varint()?).ok()?,
                common: u16::try_from(reader.varint()?).ok()?,
                first_key: reader.prefixed()?.into(),
                last_key: reader.prefixed()?.into(),
            };
            let sane = fences.end > start
                && usize::from(fences.common) <= fences.first_key.len()
                && indexes.last().is_none_or(|before| before.index < fences.index);
            if !sane {
                return None;
            }
            indexes.push(fences);
        }
        let count = u32::try_from(reader.varint()?).ok()?;
        if count != indexes.last().map_or(0, |fences| fences.end) {
            return None;
        }
        let mut ends: Vec<u32> = Vec::new();
        for _ in 0..count {
            let before = ends.last().copied().unwrap_or(0);
            ends.push(before.checked_add(u32::try_from(reader.varint()?).ok()?)?);
        }
        let bytes: Box<[u8]> = reader.prefixed()?.into();
        if bytes.len() != ends.last().copied().unwrap_or(0) as usize {
            return None;
        }
        let mut pages: Vec<u32> = Vec::new();
        let named = reader.varint()?;
        if named != 0 && named != u64::from(count) {
            return None;
        }
        for at in 0..named {
            let before = pages.last().copied().unwrap_or(0);
            let step = u32::try_from(reader.varint()?).ok()?;
            if at > 0 && step == 0 {
                return None;
            }
            pages.push(before.checked_add(step)?);
        }
        let mut continued: Vec<u32> = Vec::new();
        for _ in 0..reader.varint()? {
            let before = continued.last().copied().unwrap_or(0);
            let fence = before.checked_add(u32::try_from(reader.varint()?).ok()?)?;
            let first = indexes.iter().any(|fences| fences.start == fence);
            // Stepping back from it stays within its index.
            if fence == before || fence >= count || first {
                return None;
            }
            continued.push(fence);
        }
        let fences = Self {
            indexes: indexes.into(),
            bytes,
            ends: ends.into(),
            pages: pages.into(),
            continued: continued.into(),
        };
        fences.are_sorted().then_some(fences)
    }

    /// Does the first separator of each index say its first key, and does none lie below the one before, or above the last key?
    /// Searches count on it.
    fn are_sorted(&self) -> bool {
        self.indexes.iter().all(|fences| {
            let separators = || fences.range().map(|fence| self.separator(fence));
            self.cmp_separator(fences, fences.start, &fences.first_key).is_eq()
                && separators().is_sorted()
                && self.cmp_separator(fences, fences.end - 1, &fences.last_key).is_le()
        })
    }
}

impl IndexFences {
    pub(super) fn range(&self) -> std::ops::Range<u32> {
        self.start..self.end
    }

    pub(super) fn last_key(&self) -> &[u8] {
        &self.last_key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fences() -> Fences {
        let mut builder = FencesBuilder::default();
        builder.add(1, 0, b"apple", b"avocado");
        builder.add(1, 1, b"azure", b"banana");
        builder.add(1, 2, b"banana", b"banana");
        builder.add(1, 3, b"banana", b"cherry");
        builder.add(5, 6, b"x", b"x");
        builder.finish()
    }

    #[test]
    fn a_key_is_in_one_page_or_in_those_it_spans() {
        let fences = fences();
        assert_eq!(fences.pages_of(1, b"aardvark"), 0..0);
        assert_eq!(fences.pages_of(1, b"apple"), 0..1);
        assert_eq!(fences.pages_of(1, b"axe"), 0..1);
        assert_eq!(fences.pages_of(1, b"azur"), 1..2);
        assert_eq!(fences.pages_of(1, b"banana"), 1..4);
        assert_eq!(fences.pages_of(1, b"bananas"), 3..4);
        assert_eq!(fences.pages_of(1, b"cherry!"), 0..0);
        assert_eq!(fences.pages_of(2, b"apple"), 0..0);
        assert_eq!(fences.pages_of(5, b"x"), 4..5);
        assert_eq!(fences.page(4), 6);
    }

    #[test]
    fn ranges_are_cut_at_fences() {
        let fences = fences();
        assert_eq!(fences.pages_between(1, b"", None), 0..4);
        assert_eq!(fences.pages_between(1, b"", Some(b"apple")), 0..0);
        assert_eq!(fences.pages_between(1, b"", Some(b"apple!")), 0..1);
        assert_eq!(fences.pages_of(1, b"azz"), 1..2);
        assert_eq!(fences.pages_between(1, b"axe", Some(b"banana")), 0..2);
        assert_eq!(fences.pages_between(1, b"azure", Some(b"banana")), 1..2);
        assert_eq!(fences.pages_between(1, b"banana", None), 1..4);
        assert_eq!(fences.pages_between(1, b"d", None), 0..0);
    }

    #[test]
    fn a_page_has_keys_from_its_fence_to_the_next() {
        let fences = fences();
        let keys =
            |index, page| fences.keys_of(index, page).map(|keys| (keys.low.to_vec(), keys.high.to_vec()));
        let of = |low: &[u8], high: &[u8]| Some((low.to_vec(), high.to_vec()));
        assert_eq!(keys(1, 0), of(b"apple", b"az"));
        assert_eq!(keys(1, 1), of(b"az", b"banana"));
        assert_eq!(keys(1, 3), of(b"banana", b"cherry"));
        // Pages 4 and 5 are of a long record that page 6 refers to.
        assert_eq!(keys(5, 4), of(b"x", b"x"));
        assert_eq!(keys(5, 7), None);
        assert_eq!(keys(2, 0), None);
    }

    #[test]
    fn fences_read_back() {
        let fences = fences();
        let mut bytes = Vec::new();
        fences.encode(&mut bytes);
        assert_eq!(Fences::decode(&mut Reader::new(&bytes)), Some(fences));
        for cut in 0..bytes.len() {
            assert_eq!(Fences::decode(&mut Reader::new(&bytes[..cut])), None, "{cut}");
        }
    }
}
