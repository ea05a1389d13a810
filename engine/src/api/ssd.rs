//! The parts of each table and index that lie on the SSD: for planners, and for users that look at a database.
//!
//! A database that is open tells what its SSD has at this moment. One that is opened to look has no SSD, since opening it would
//! write; it tells what the opening before has saved for the next one, if the options name the SSD's file.

use std::sync::Arc;

use thermocline_base::io::{Io, IoError, SystemIo};
use thermocline_pool::ssd::{SavedCounts, saved_map};
use thermocline_pool::store::SsdShare;

use crate::api::Database;
use crate::cold::store::{primary_of, secondary_of};

/// An index with its share of the SSD.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct IndexOnSsd {
    /// The table.
    pub table: String,
    /// Its index; the primary key's is that of the rows.
    pub index: String,
    /// Bytes of the index in the cold store, and on the SSD.
    pub share: SsdShare,
}

/// The bytes on the SSD, and their tables and indexes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SsdShares {
    /// Indexes that have pages in the cold store, by table and name.
    pub indexes: Vec<IndexOnSsd>,
    /// Filters and fences, and what is left of indexes that are gone.
    pub rest: SsdShare,
    /// The counts of the opening before when it saved this; none: the SSD is in use, and this is of now.
    pub saved: Option<SavedCounts>,
}

impl Database {
    /// The parts of each table and index that lie on the SSD. Asks about each page of the cold store: not for every second. `None`: there
    /// is no SSD in use, and for a database that is opened to look, no map of one that [`crate::Options::ssd_cache`] names.
    ///
    /// # Errors
    /// [`crate::Error::Io`]: the saved map cannot be read.
    pub fn ssd_shares(&self) -> crate::Result<Option<SsdShares>> {
        let inner = self.inner();
        let Some(cold) = inner.cold.get() else { return Ok(None) };
        let saved = match (&inner.options.ssd_cache, inner.options.read_only) {
            (Some(path), true) => {
                let io: Arc<dyn Io> =
                    inner.options.ssd_io.clone().unwrap_or_else(|| Arc::new(SystemIo::new()));
                let failed = |error: IoError| crate::Error::from(error);
                match saved_map(&*io, path, inner.files.id()).map_err(failed)? {
                    Some(map) => Some(map),
                    None => return Ok(None),
                }
            }
            (_, true) => return Ok(None),
            (_, false) => None,
        };
        let Some((mut of, mut rest)) = cold.store.ssd_shares(saved.as_ref()) else { return Ok(None) };
        let guard = inner.epochs.pin();
        let mut indexes = Vec::new();
        for entry in inner.catalog.all() {
            let form = entry.form_pinned(&guard);
            let primary = primary_of(form.id);
            for (store_index, share) in of.extract_if(.., |index, _| index.table == form.id.0) {
                let name = match store_index == primary {
                    true => Some(&form.primary().schema.name),
                    false => {
                        let mut indexes = form.indexes.iter();
                        let named = indexes.find(|index| secondary_of(form.id, index.id) == store_index);
                        named.map(|index| &index.schema.name)
                    }
                };
                match name {
                    Some(name) => indexes.push(IndexOnSsd {
                        table: form.schema.name.clone(),
                        index: name.clone(),
                        share,
                    }),
                    None => add(&mut rest, share),
                }
            }
        }
        of.into_values().for_each(|share| add(&mut rest, share));
        indexes.sort_by(|one, other| (&one.table, &one.index).cmp(&(&other.table, &other.index)));
        Ok(Some(SsdShares { indexes, rest, saved: saved.map(|map| map.counts) }))
    }
}

fn add(to: &mut SsdShare, share: SsdShare) {
    to.bytes += share.bytes;
    to.ssd_bytes += share.ssd_bytes;
}
