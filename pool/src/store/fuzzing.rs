//! Entrances for the fuzz targets under `fuzz/`: the readers of what stands on disk, behind their checksums.
//!
//! Each takes any bytes and must neither panic nor run away; what it returns only keeps the work from being left out.

use super::block::PageCursor;
use super::codec::Reader;
use super::fence::Fences;
use super::filter::{Filter, hash_of};
use super::journal;
use super::manifest::{Change, ManifestState};

/// The payload of a data page. Returns how many entries could be read.
#[must_use]
pub fn data_page(bytes: &[u8]) -> usize {
    let Some(mut cursor) = PageCursor::new(bytes) else { return 0 };
    let mut entries = cursor.prefix(bytes).len();
    for key in [bytes, cursor.prefix(bytes), b"", &[0xff; 40]] {
        let mut found = cursor;
        if found.seek(bytes, key).is_ok() {
            entries += usize::from(found.next(bytes).is_ok());
        }
    }
    while let Ok(Some(entry)) = cursor.next(bytes) {
        entries += 1 + entry.suffix.len();
    }
    entries
}

/// The tail of a piece, and some questions to it. Returns how many pages they lead to.
#[must_use]
pub fn piece_tail(bytes: &[u8]) -> usize {
    let mut reader = Reader::new(bytes);
    let (Some(fences), Some(filter)) = (Fences::decode(&mut reader), Filter::decode(&mut reader)) else {
        return 0;
    };
    let mut pages = 0;
    for of_index in fences.indexes() {
        let index = of_index.index;
        for key in [&b""[..], b"key", of_index.last_key(), bytes] {
            pages += usize::from(filter.may_contain(hash_of(index, key)));
            pages += fences.pages_of(index, key).map(|fence| fences.page(fence) as usize).max().unwrap_or(0);
            pages = pages.wrapping_add(fences.pages_between(index, key, None).len());
        }
    }
    pages
}

/// The operations of an edit of the manifest. Returns how many pieces are there then.
#[must_use]
pub fn manifest_edit(bytes: &[u8]) -> usize {
    let mut reader = Reader::new(bytes);
    let mut state = ManifestState::default();
    while let Some(change) = Change::decode(&mut reader) {
        if state.apply(&change).is_none() {
            break;
        }
    }
    state.pieces.len() + usize::from(state.is_sound())
}

/// The records of a group of the journal. Returns how many could be read.
#[must_use]
pub fn journal_group(bytes: &[u8]) -> usize {
    (1..4).filter_map(|count| journal::decode_records(bytes, count)).map(|records| records.len()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// A first separator above the first key: a search for that key stepped back from the first page.
    #[test]
    fn separators_that_do_not_fit_their_keys_are_refused() {
        let mut tail = [1; 43];
        tail[3] = 0x8e;
        tail[0x15..].copy_from_slice(&[
            0, 0, 0, 0, 0, 0, 0, 8, 0xff, 0xff, 0x23, 0xff, 0xe2, 0xff, 0xff, 0, 0, 0, 0xce, 0xff, 0xff, 0xff,
        ]);
        assert_eq!(super::piece_tail(&tail), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = super::data_page(&bytes);
            let _ = super::piece_tail(&bytes);
            let _ = super::manifest_edit(&bytes);
            let _ = super::journal_group(&bytes);
        }
    }
}
