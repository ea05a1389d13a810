//! The cold side of a scan: the next entries of a range read of the store, fetched one key at a time, when the scan has
//! come that far. So the first `k` rows of a scan need `k` keys of the store and one more, to see who is next.

use std::collections::VecDeque;

use thermocline_pool::store::StoreError;

use crate::cold::store::{ColdScan, split_secondary};

/// An entry that comes next.
#[derive(Debug)]
pub(crate) struct ColdEntry {
    /// Its key in the index.
    pub(crate) key: Vec<u8>,
    /// Its batch.
    pub(crate) batch: u64,
    /// Its primary key.
    pub(crate) primary: Box<[u8]>,
    /// The row with its hidden key, as it left memory; empty in secondary indexes.
    pub(crate) bytes: Vec<u8>,
}

/// Where a scan stands in the cold store.
#[derive(Debug)]
pub(crate) struct ColdCursor {
    scan: Box<dyn ColdScan>,
    secondary: bool,
    ready: VecDeque<ColdEntry>,
    ended: bool,
}

impl ColdCursor {
    pub(crate) fn new(scan: Box<dyn ColdScan>, secondary: bool) -> Self {
        Self { scan, secondary, ready: VecDeque::new(), ended: false }
    }

    /// The next entry, if it is known.
    pub(crate) fn head(&self) -> Option<&ColdEntry> {
        self.ready.front()
    }

    /// Is there nothing behind what is known?
    pub(crate) fn is_at_end(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    /// Goes on to the next entry.
    pub(crate) fn pop(&mut self) {
        self.ready.pop_front();
    }

    /// Reads the next key.
    pub(crate) async fn advance(&mut self) -> Result<(), StoreError> {
        let Some(found) = self.scan.next().await? else {
            self.ended = true;
            return Ok(());
        };
        let (key, primary) = match split_secondary(&found.key) {
            Some((key, primary)) if self.secondary => (key, primary),
            _ => (&*found.key, &*found.key),
        };
        self.ready.extend(found.entries.into_iter().map(|entry| ColdEntry {
            key: key.to_vec(),
            batch: entry.batch.0,
            primary: primary.into(),
            bytes: entry.record,
        }));
        Ok(())
    }
}
