//! The words of the store's interface: indexes, batches, entries; and how a batch is laid out in the journal and in
//! memory, which is the same.
//!
//! ```text
//!   batch    id u64 · entries u32 · entry, entry, …
//!   entry    kind u8 [· table u32 · index u32, if the kind says that another index follows]
//!            · key length varint · record length varint (none for a removal) · key
//!            · record, or the id of the batch whose entry is removed u64                         little-endian
//! ```

use std::fmt;
use std::sync::Arc;

use super::codec::{self, Reader};
use super::error::{Result, StoreError};
use super::filter::hash_of;
use super::object::Object;

/// The longest key.
pub const MAX_KEY_BYTES: usize = 2048;
/// The longest record.
pub const MAX_RECORD_BYTES: usize = 16 << 20;
/// The longest batch.
pub const MAX_BATCH_BYTES: usize = 64 << 20;

/// Indexes whose number has this bit have keys with *tails*: key ∥ tail ∥ length of the tail (u16, big-endian). All entries
/// with the same key before the tail are a *group*, and filters know groups, not entries.
pub const TAILED: u32 = 1 << 31;

/// An index of a table. The primary one holds records, the others primary keys; the store does not look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct IndexId {
    /// The table.
    pub table: u32,
    /// Which of its indexes.
    pub index: u32,
}

impl IndexId {
    pub(super) const fn as_u64(self) -> u64 {
        (self.table as u64) << 32 | self.index as u64
    }

    pub(super) const fn from_u64(both: u64) -> Self {
        Self { table: (both >> 32) as u32, index: both as u32 }
    }
}

impl fmt::Display for IndexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {} of table {}", self.index, self.table)
    }
}

/// The id of the transaction that wrote a batch. Never used again for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BatchId(pub u64);

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch {}", self.0)
    }
}

/// A range of keys of an index. No key of what it is about lies outside; the ends need not be keys that are there, and may
/// be beginnings of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// At or below the least key.
    pub low: Box<[u8]>,
    /// At or above the greatest key.
    pub high: Box<[u8]>,
}

/// The kind of an entry. The order counts: of one key and batch, a removal comes before the entry that it removes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// A removal, and every other entry of the key that was confirmed before it is removed as well.
    RemoveLast = 0,
    /// A removal.
    Remove = 1,
    /// A record.
    Put = 2,
}

impl Kind {
    pub(super) const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::RemoveLast),
            1 => Some(Self::Remove),
            2 => Some(Self::Put),
            _ => None,
        }
    }

    pub(super) fn is_removal(self) -> bool {
        self != Self::Put
    }
}

/// The reach of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// This entry goes; others of its key may stay.
    Only,
    /// This entry goes, and every other entry of this key whose batch was confirmed before is removed as well (by this
    /// or earlier removals, each naming its own entry). It lets a reader stop here instead of looking further back.
    Last,
}

/// The places of an entry's parts in its batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryRef {
    pub(super) hash: u64,
    pub(super) index: u64,
    pub(super) key_at: u32,
    /// The record's bytes, which follow the key; 8 for a removal.
    pub(super) value_len: u32,
    pub(super) key_len: u16,
    pub(super) kind: Kind,
}

const INDEX_FOLLOWS: u8 = 0x80;

/// Entries and removals, over any tables and indexes, that become durable as one.
///
/// At most one entry for each key of an index. A removal takes effect when its batch is confirmed.
#[derive(Clone, Debug)]
pub struct Batch {
    id: BatchId,
    pub(super) bytes: Vec<u8>,
    pub(super) entries: Vec<EntryRef>,
    last_index: Option<u64>,
    pub(super) confirmed: bool,
    record_bytes: u64,
}

impl Batch {
    /// An empty batch that its owner will confirm or discard.
    #[must_use]
    pub fn new(id: BatchId) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&id.0.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        Self { id, bytes, entries: Vec::new(), last_index: None, confirmed: false, record_bytes: 0 }
    }

    /// An empty batch that is confirmed as soon as it is durable: for removals, and for owners whose decision needs
    /// nothing else.
    #[must_use]
    pub fn confirmed(id: BatchId) -> Self {
        Self { confirmed: true, ..Self::new(id) }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> BatchId {
        self.id
    }

    /// Number of its entries and removals.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Has it none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Is it confirmed as soon as it is durable?
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Its entries and removals, in the order in which they were added.
    pub fn entries(&self) -> impl Iterator<Item = BatchEntry<'_>> {
        self.entries.iter().map(|entry| BatchEntry {
            index: IndexId::from_u64(entry.index),
            key: self.key(entry),
            change: match entry.kind {
                Kind::Put => Change::Put(self.value(entry)),
                Kind::Remove => Change::Remove(BatchId(self.entry_batch(entry)), Removal::Only),
                Kind::RemoveLast => Change::Remove(BatchId(self.entry_batch(entry)), Removal::Last),
            },
        })
    }

    /// Bytes of the keys and records of its entries.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// When the key, the record or the batch gets too long.
    pub fn put(&mut self, index: IndexId, key: &[u8], record: &[u8]) -> Result<()> {
        if record.len() > MAX_RECORD_BYTES {
            return Err(StoreError::RecordTooLong { bytes: record.len(), max_bytes: MAX_RECORD_BYTES });
        }
        self.add(index, key, Kind::Put, record)?;
        self.record_bytes += (key.len() + record.len()) as u64;
        Ok(())
    }

    /// Adds the removal of the entry of `key` that `batch` wrote, which is confirmed.
    ///
    /// # Errors
    /// When the key or the batch gets too long.
    pub fn remove(&mut self, index: IndexId, key: &[u8], batch: BatchId, which: Removal) -> Result<()> {
        let kind = match which {
            Removal::Only => Kind::Remove,
            Removal::Last => Kind::RemoveLast,
        };
        self.add(index, key, kind, &batch.0.to_le_bytes())
    }

    fn add(&mut self, index: IndexId, key: &[u8], kind: Kind, value: &[u8]) -> Result<()> {
        if key.len() > MAX_KEY_BYTES {
            return Err(StoreError::KeyTooLong { bytes: key.len(), max_bytes: MAX_KEY_BYTES });
        }
        let bytes = self.bytes.len() + key.len() + value.len() + 32;
        // Tables in memory number the entries of a batch with 24 bits.
        if bytes > MAX_BATCH_BYTES || self.entries.len() >= 1 << 23 {
            return Err(StoreError::BatchTooLong { bytes, max_bytes: MAX_BATCH_BYTES });
        }
        let index = index.as_u64();
        if self.last_index == Some(index) {
            self.bytes.push(kind as u8);
        } else {
            self.bytes.push(kind as u8 | INDEX_FOLLOWS);
            self.bytes.extend_from_slice(&index.to_le_bytes());
            self.last_index = Some(index);
        }
        codec::put_varint(&mut self.bytes, key.len() as u64);
        if kind == Kind::Put {
            codec::put_varint(&mut self.bytes, value.len() as u64);
        }
        let key_at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(EntryRef {
            hash: hash_of(index, key),
            index,
            key_at,
            value_len: value.len() as u32,
            key_len: key.len() as u16,
            kind,
        });
        let count = self.entries.len() as u32;
        self.bytes[8..12].copy_from_slice(&count.to_le_bytes());
        Ok(())
    }

    /// Reads a batch back. `None` when the bytes are none.
    pub(super) fn decode(bytes: &[u8], confirmed: bool) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let id = BatchId(reader.u64()?);
        let count = reader.u32()?;
        let mut batch = Self::new(id);
        batch.confirmed = confirmed;
        let mut index = None;
        for _ in 0..count {
            let head = reader.u8()?;
            let kind = Kind::from_bits(head & !INDEX_FOLLOWS)?;
            if head & INDEX_FOLLOWS != 0 {
                index = Some(reader.u64()?);
            }
            let index = IndexId::from_u64(index?);
            let key_len = usize::try_from(reader.varint()?).ok()?;
            let value_len = match kind {
                Kind::Put => usize::try_from(reader.varint()?).ok()?,
                _ => 8,
            };
            let key = reader.bytes(key_len)?;
            let value = reader.bytes(value_len)?;
            match kind {
                Kind::Put => batch.put(index, key, value).ok()?,
                kind => batch.add(index, key, kind, value).ok()?,
            }
        }
        reader.is_at_end().then_some(batch)
    }

    pub(super) fn key(&self, entry: &EntryRef) -> &[u8] {
        let at = entry.key_at as usize;
        &self.bytes[at..at + usize::from(entry.key_len)]
    }

    pub(super) fn value(&self, entry: &EntryRef) -> &[u8] {
        let at = entry.key_at as usize + usize::from(entry.key_len);
        &self.bytes[at..at + entry.value_len as usize]
    }

    /// The batch of an entry's record: this one, or the one whose entry is removed.
    pub(super) fn entry_batch(&self, entry: &EntryRef) -> u64 {
        match entry.kind {
            Kind::Put => self.id.0,
            _ => self.value(entry).first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)),
        }
    }

    /// Bytes of memory that its entries take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<EntryRef>()
    }

    /// Gives back what was reserved for more.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }
}

/// An entry or a removal of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchEntry<'a> {
    /// The index.
    pub index: IndexId,
    /// The key.
    pub key: &'a [u8],
    /// Its change.
    pub change: Change<'a>,
}

/// The change of a key by a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// It gets this record.
    Put(&'a [u8]),
    /// The entry that another batch wrote goes.
    Remove(BatchId, Removal),
}

/// An entry that a reader finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The batch that wrote it.
    pub batch: BatchId,
    /// Has its owner confirmed the batch?
    pub confirmed: bool,
    /// The record; of an entry that stands in an object, where.
    pub record: Vec<u8>,
    /// The object that the entry stands in.
    pub object: Option<Arc<Object>>,
}

impl Found {
    /// An entry with its record.
    #[must_use]
    pub fn new(batch: BatchId, confirmed: bool, record: Vec<u8>) -> Self {
        Self { batch, confirmed, record, object: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_reads_back() {
        let (one, two) = (IndexId { table: 1, index: 0 }, IndexId { table: 1, index: 7 });
        let mut batch = Batch::new(BatchId(9));
        batch.put(one, b"key", b"record").expect("short");
        batch.put(one, b"", b"").expect("short");
        batch.remove(two, b"old", BatchId(3), Removal::Last).expect("short");
        batch.put(one, b"other", &[7; 300]).expect("short");
        let back = Batch::decode(&batch.bytes, true).expect("our own bytes");
        assert_eq!((back.bytes.clone(), back.id, back.confirmed), (batch.bytes.clone(), BatchId(9), true));
        assert_eq!(back.key(&back.entries[2]), b"old");
        assert_eq!(back.entry_batch(&back.entries[2]), 3);
        assert_eq!(back.entry_batch(&back.entries[3]), 9);
        let entries: Vec<_> = back.entries().collect();
        assert_eq!(entries[0], BatchEntry { index: one, key: b"key", change: Change::Put(b"record") });
        let removal = Change::Remove(BatchId(3), Removal::Last);
        assert_eq!(entries[2], BatchEntry { index: two, key: b"old", change: removal });
        assert!(back.is_confirmed() && !batch.is_confirmed());
        for cut in 0..batch.bytes.len() {
            assert!(Batch::decode(&batch.bytes[..cut], true).is_none());
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let mut batch = Batch::new(BatchId(1));
        let index = IndexId::default();
        assert!(matches!(batch.put(index, &[0; 2049], b""), Err(StoreError::KeyTooLong { .. })));
        let long = vec![0; MAX_RECORD_BYTES + 1];
        assert!(matches!(batch.put(index, b"k", &long), Err(StoreError::RecordTooLong { .. })));
        for _ in 0..3 {
            batch.put(index, b"k", &long[..MAX_RECORD_BYTES]).expect("it fits");
        }
        let error = batch.put(index, b"k", &long[..MAX_RECORD_BYTES]);
        assert!(matches!(error, Err(StoreError::BatchTooLong { .. })));
        assert_eq!(batch.len(), 3);
    }
}
