//! Entrances for the fuzz targets under `fuzz/`: the readers of what stands on disk, behind their checksums.
//!
//! Each takes any bytes and must neither panic nor run away; what it returns only keeps the work from being left out.

use crate::checkpoint::Manifest;
use crate::log::record::{Commit, Part};
use crate::schema::decode_catalog;

/// The payload of a log record: a commit, or a part of one. Returns how many writes could be read.
#[must_use]
pub fn log_payload(bytes: &[u8]) -> usize {
    let commit = Commit::decode(bytes).map_or(0, |commit| commit.writes.filter(Result::is_ok).count());
    let part = Part::decode(bytes).map_or(0, |part| part.writes.filter(Result::is_ok).count());
    commit + part
}

/// The body of a checkpoint's manifest, and the catalog in it. Returns how many tables could be read.
#[must_use]
pub fn manifest(bytes: &[u8]) -> usize {
    let tables = |catalog: &[u8]| decode_catalog(catalog).map_or(0, |(tables, _, _)| tables.len());
    let manifests = [1, 2].into_iter().filter_map(|format| Manifest::decode(bytes, format));
    manifests.map(|manifest| tables(&manifest.catalog)).sum::<usize>() + tables(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = super::log_payload(&bytes);
            let _ = super::manifest(&bytes);
        }
    }
}
