//! The update memo: notices that say when records of the cold store are valid (Eldawy et al., VLDB 2014, §4.4).
//!
//! It is two tables of the engine itself, which users do not see. So notices have versions, are logged, imaged and
//! recovered like rows, are seen at the reader's time, and two transactions that want to end one record collide over a
//! unique key in memory.
//!
//! ```text
//!   batches   batch u64 → kind, table           N: written, not moved     B: moved when the notice's version begins
//!   ends      (batch u64, key hash u64) → target RowId or none, table, keys        E: over when the version begins
//! ```
//!
//! A record is named by its batch and the hash of its primary key. Hashes of one batch differ: a row whose hash another
//! row of the batch has stays out of it (`ops/migrate.rs`). So names are exact, and short.
//!
//! | the batch's chain, at the time | the record |
//! |---|---|
//! | no chain | is older than every snapshot: it is there |
//! | N | is not there |
//! | B | is there |
//! | only versions that begin later | is not there: the reader is older than the batch |
//! | dropped | is there, if it was B; if it was N, a reader that sees the drop has none of its records |
//!
//! An example: batch 55 moved at 60, its record of K ended at 70 (an update brought K into memory).
//!
//! | reader's snapshot | batch 55 | end of (55, K) | K is |
//! |---|---|---|---|
//! | 50 | begins later | – | the version in memory, from before the move |
//! | 57 | N | – | the same |
//! | 65 | B | begins later | the record |
//! | 75 | B | E, target: the new RowId | the version in memory that began at 70 |
//!
//! Batches have ids that are timestamps, drawn when they are begun. A notice N is committed after that and durable before
//! a record is written, so an id is below the clock of any recovery that finds a record with it, and is never given again.
//!
//! Rules: a notice is dropped only when no snapshot is left that is older than the record's removal (N, E) or than the
//! move (B). So a reader that holds bytes of a record finds the notice that its snapshot needs.

use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{IndexId, RowId, TableId, Timestamp};

use crate::catalog::make::FormMaker;
use crate::catalog::table::{FormRef, Structure, TableEntry, TableForm};
use crate::cold::store::{primary_of, push_secondary, secondary_of};
use crate::counters::MemoNotices;
use crate::error::Result;
use crate::hot::store::RowAbsent;
use crate::hot::version::{TxnId, Version};
use crate::index::hash_of;
use crate::mutation::{self, Rule};
use crate::row::{Column, KeyBuf, Type, Value};
use crate::schema::{FIRST_INTERNAL_ID, IndexSchema, StoredTable, TableSchema};
use crate::txn::registry::Registry;
use crate::txn::visibility::{Resolved, resolve};

/// The table of batch notices.
pub(crate) const BATCHES: TableId = TableId(FIRST_INTERNAL_ID);
/// The table of notices of ends.
pub(crate) const ENDS: TableId = TableId(FIRST_INTERNAL_ID + 1);

/// What a batch's notice says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i16)]
pub(crate) enum NoticeKind {
    /// The batch is being written, or its move has failed.
    None = 0,
    /// The batch's rows are in the cold store.
    Begin = 1,
}

/// Where a row goes on whose record ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heir {
    /// Nowhere: it is deleted, or another notice says where.
    None,
    /// In memory, as it was.
    Promoted(RowId),
    /// In memory, changed by who ends the record.
    Changed(RowId),
}

/// The bit of a written target that says that the row was changed. RowIds are shorter.
const CHANGED: u64 = 1 << 62;

/// What a batch's notice says at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BatchState {
    /// Its records are there. When the move began to be visible, if the notice still knows.
    There(Option<Timestamp>),
    /// They are not.
    Hidden,
    /// That is being decided.
    Undecided(TxnId),
}

/// What is known of a record's end at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndState {
    /// It has none, or a later one; that may have been a promotion to this row.
    Open(Option<RowId>),
    /// It ended then (`None`: by the reader itself).
    Ended(Option<Timestamp>, Version),
    /// That is being decided.
    Undecided(TxnId),
}

/// A record as the memo names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RecordName {
    /// Its batch.
    pub(crate) batch: u64,
    /// The hash of its primary key.
    pub(crate) hash: u64,
}

impl RecordName {
    /// The name of the record of a key in a batch.
    pub(crate) fn new(batch: u64, primary_key: &[u8]) -> Self {
        Self { batch, hash: hash_of(primary_key) }
    }

    /// Its key in the table of ends.
    #[inline]
    pub(crate) fn key(self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&key_of(self.batch));
        key[8..].copy_from_slice(&key_of(self.hash));
        key
    }
}

/// A number of the memo as [`KeyBuf::i64`] has it: every read of a cold row makes three of them.
#[inline]
fn key_of(number: u64) -> [u8; 8] {
    (number ^ 1 << 63).to_be_bytes()
}

/// The memo of a database.
#[derive(Debug)]
pub(crate) struct Memo {
    pub(crate) batches: Arc<TableEntry>,
    pub(crate) ends: Arc<TableEntry>,
}

/// Columns of `batches`.
mod batch_column {
    pub(super) const BATCH: usize = 0;
    pub(super) const KIND: usize = 1;
    pub(super) const TABLE: usize = 2;
}

/// Columns of `ends`.
mod end_column {
    pub(super) const BATCH: usize = 0;
    pub(super) const HASH: usize = 1;
    pub(super) const TARGET: usize = 2;
    pub(super) const TABLE: usize = 3;
    pub(super) const KEYS: usize = 4;
}

impl Memo {
    /// An empty memo, entered into the catalog.
    pub(crate) fn create(forms: FormMaker<'_>) -> Result<Self> {
        let table = |id: TableId, schema: TableSchema| -> Result<Arc<TableEntry>> {
            let stored = StoredTable {
                id,
                storage: id,
                schema,
                // Ids of system indexes are as far from those of users as the tables' are.
                index_ids: vec![IndexId(id.0)],
                layout_version: 1,
                since: Timestamp(0),
                emptied: Timestamp(0),
                past: Vec::new(),
                auto: 0,
                hidden: 0,
            };
            let entry = Arc::new(TableEntry::new(id, forms.epochs, forms.form(stored, Arc::default())?));
            forms.catalog.add_system(Arc::clone(&entry));
            Ok(entry)
        };
        let batches = TableSchema::new("cold batches")
            .column(Column::new("batch", Type::Int8))
            .column(Column::new("kind", Type::Int2))
            .column(Column::new("table", Type::Int8))
            .primary_key(IndexSchema::hash("cold batches key", &["batch"]));
        let ends = TableSchema::new("cold ends")
            .column(Column::new("batch", Type::Int8))
            .column(Column::new("hash", Type::Int8))
            .column(Column::new("target", Type::Int8).nullable())
            .column(Column::new("table", Type::Int8))
            .column(Column::new("keys", Type::Bytes))
            .primary_key(IndexSchema::hash("cold ends key", &["batch", "hash"]));
        Ok(Self { batches: table(BATCHES, batches)?, ends: table(ENDS, ends)? })
    }

    /// The form of the table of batches.
    pub(crate) fn batches_form(&self) -> FormRef {
        // SAFETY: definitions of system tables never change, and the memo lives as long as the database.
        unsafe { FormRef::of(&self.batches) }
    }

    /// The form of the table of ends.
    pub(crate) fn ends_form(&self) -> FormRef {
        // SAFETY: as above.
        unsafe { FormRef::of(&self.ends) }
    }

    /// The row of a batch's notice.
    pub(crate) fn batch_row(&self, batch: u64, kind: NoticeKind, table: TableId) -> Vec<u8> {
        let values =
            [Value::Int8(batch.cast_signed()), Value::Int2(kind as i16), Value::Int8(i64::from(table.0))];
        encode(self.batches_form().get(), &values)
    }

    /// The row of an end. `keys`: what the cleaner needs to remove the record ([`pack_keys`]).
    pub(crate) fn end_row(&self, name: RecordName, table: TableId, heir: Heir, keys: Vec<u8>) -> Vec<u8> {
        let target = match heir {
            Heir::None => None,
            Heir::Promoted(row) => Some(row.0),
            Heir::Changed(row) => Some(row.0 | CHANGED),
        };
        let values = [
            Value::Int8(name.batch.cast_signed()),
            Value::Int8(name.hash.cast_signed()),
            target.map_or(Value::Null, |target| Value::Int8(target.cast_signed())),
            Value::Int8(i64::from(table.0)),
            Value::Bytes(keys),
        ];
        encode(self.ends_form().get(), &values)
    }

    /// What a version of a batch's notice says.
    pub(crate) fn read_batch(&self, version: Version) -> (u64, NoticeKind, TableId) {
        let form = self.batches_form().get();
        let row = form.row(version);
        let whole = |column| form.layout.i64(row, column).expect("the column is not null");
        let kind = match form.layout.i16(row, batch_column::KIND) {
            Some(1) => NoticeKind::Begin,
            _ => NoticeKind::None,
        };
        let table = u32::try_from(whole(batch_column::TABLE)).expect("it was made from a table's id");
        (whole(batch_column::BATCH).cast_unsigned(), kind, TableId(table))
    }

    /// What a version of an end says: name, table, keys.
    pub(crate) fn read_end(&self, version: Version) -> (RecordName, TableId, Vec<u8>) {
        let form = self.ends_form().get();
        let row = form.row(version);
        let whole = |column| form.layout.i64(row, column);
        let number = |column| whole(column).expect("the column is not null").cast_unsigned();
        let name = RecordName { batch: number(end_column::BATCH), hash: number(end_column::HASH) };
        let table = u32::try_from(number(end_column::TABLE)).expect("it was made from a table's id");
        let keys = form.layout.bytes(row, end_column::KEYS).unwrap_or_default().to_vec();
        (name, TableId(table), keys)
    }

    /// How many notices there are of a table.
    pub(crate) fn notices_of(&self, table: TableId, guard: &Guard<'_>) -> MemoNotices {
        let count = |entry: &TableEntry, table_of: &dyn Fn(Version) -> TableId| {
            let mut count = 0;
            let _ = entry.form_pinned(guard).store.for_each_row(guard, |_, version| {
                count += u64::from(!version.is_tombstone() && table_of(version) == table);
                Ok::<(), RowAbsent>(())
            });
            count
        };
        MemoNotices {
            batches: count(&self.batches, &|version| self.read_batch(version).2),
            ends: count(&self.ends, &|version| self.read_end(version).1),
        }
    }

    /// The primary key of the record that an end is of.
    pub(crate) fn key_of_end(&self, end: Version) -> Vec<u8> {
        let form = self.ends_form().get();
        let mut next = Some(end);
        while let Some(version) = next {
            if !version.is_tombstone() {
                let keys = form.layout.bytes(form.row(version), end_column::KEYS).unwrap_or_default();
                return unpack_keys(keys).next().map(|(_, key)| key.to_vec()).unwrap_or_default();
            }
            next = version.older(&form.store.memory);
        }
        Vec::new()
    }

    /// The row that a promotion brought the record to, if a version of an end says so.
    pub(crate) fn target(&self, end: Version) -> Option<RowId> {
        self.written_target(end).filter(|target| target & CHANGED == 0).map(RowId)
    }

    /// The row in memory that goes on where a record has ended, promoted or changed. `None`: it was deleted.
    pub(crate) fn successor(&self, end: Version) -> Option<RowId> {
        let target = if end.is_tombstone() { None } else { self.written_target(end) };
        target.filter(|_| mutation::on(Rule::EndNamesSuccessor)).map(|target| RowId(target & !CHANGED))
    }

    fn written_target(&self, end: Version) -> Option<u64> {
        let form = self.ends_form().get();
        form.layout.i64(form.row(end), end_column::TARGET).map(i64::cast_unsigned)
    }

    /// The notice of a batch: its row, and the newest version.
    pub(crate) fn batch_notice(&self, batch: u64, guard: &Guard<'_>) -> Option<(RowId, Version)> {
        find(self.batches_form().get(), &key_of(batch), guard)
    }

    /// Asks the processor for what a look for a record's end begins with.
    #[inline]
    pub(crate) fn prefetch_end(&self, name: RecordName, guard: &Guard<'_>) {
        if let Structure::Hash(hash) = &self.ends_form().get().primary().structure {
            hash.prefetch(guard, hash_of(&name.key()));
        }
    }

    /// What a batch's notice says to who reads at `at` as `me`.
    pub(crate) fn batch_at(
        &self,
        batch: u64,
        registry: &Registry,
        at: Timestamp,
        me: Option<TxnId>,
        guard: &Guard<'_>,
    ) -> BatchState {
        let form = self.batches_form().get();
        'again: loop {
            let Some((_, newest)) = self.batch_notice(batch, guard) else { return BatchState::There(None) };
            let mut next = Some(newest);
            while let Some(version) = next {
                next = version.older(&form.store.memory);
                let begin = match resolve(version, registry, at, me) {
                    Resolved::At(begin) if begin > at => continue,
                    Resolved::Later(_) => continue,
                    Resolved::Undecided(id) => return BatchState::Undecided(id),
                    Resolved::Gone => continue 'again,
                    Resolved::At(begin) => Some(begin),
                    Resolved::Own => None,
                };
                if version.is_tombstone() {
                    // Dropped. If it was N, nobody who sees that has a record of the batch. What stands below says
                    // nothing: B may be pruned while an older snapshot pins N.
                    return match next {
                        Some(older) if mutation::off(Rule::DroppedIsThere) => {
                            match self.read_batch(older).1 {
                                NoticeKind::None => BatchState::Hidden,
                                NoticeKind::Begin => BatchState::There(None),
                            }
                        }
                        _ => BatchState::There(None),
                    };
                }
                return match self.read_batch(version).1 {
                    NoticeKind::None => BatchState::Hidden,
                    NoticeKind::Begin => BatchState::There(begin),
                };
            }
            if mutation::off(Rule::OlderThanNotice) {
                return BatchState::There(None);
            }
            return BatchState::Hidden;
        }
    }

    /// What is known of a record's end to who reads at `at` as `me`, with a view that passes over the own notices that
    /// `hides` says.
    ///
    /// Beside a notice that counts there may be others for a moment, of those who want to end the record too and are
    /// about to find out that they cannot. They decide nothing.
    pub(crate) fn end_at(
        &self,
        name: RecordName,
        registry: &Registry,
        at: Timestamp,
        me: Option<TxnId>,
        hides: &dyn Fn(Version) -> bool,
        guard: &Guard<'_>,
    ) -> EndState {
        let mut state = EndState::Open(None);
        self.each_end(name, guard, &mut |newest| {
            match self.end_in_chain(newest, registry, at, me, hides) {
                None => return ControlFlow::Break(true),
                Some(EndState::Open(None)) => {}
                Some(other) => state = other,
            }
            match state {
                EndState::Ended(..) => ControlFlow::Break(false),
                _ => ControlFlow::Continue(()),
            }
        });
        state
    }

    /// What one notice says. `None`: it was taken away.
    fn end_in_chain(
        &self,
        newest: Version,
        registry: &Registry,
        at: Timestamp,
        me: Option<TxnId>,
        hides: &dyn Fn(Version) -> bool,
    ) -> Option<EndState> {
        let mut next = Some(newest);
        let mut promoted_to = None;
        while let Some(version) = next {
            next = version.older(&self.ends_form().get().store.memory);
            let begin = match resolve(version, registry, at, me) {
                Resolved::At(begin) if begin > at => {
                    promoted_to = if version.is_tombstone() { None } else { self.target(version) };
                    continue;
                }
                Resolved::Later(_) => continue,
                Resolved::Undecided(id) => return Some(EndState::Undecided(id)),
                Resolved::Gone => return None,
                Resolved::Own if hides(version) => continue,
                Resolved::At(begin) => Some(begin),
                Resolved::Own => None,
            };
            return Some(EndState::Ended(begin, version));
        }
        Some(EndState::Open(promoted_to))
    }

    /// Calls `see` with the newest versions of all notices of a record's end, again from the first one if it breaks with
    /// `true`.
    pub(crate) fn each_end(
        &self,
        name: RecordName,
        guard: &Guard<'_>,
        see: &mut dyn FnMut(Version) -> ControlFlow<bool>,
    ) {
        let key = name.key();
        let mut one = |_: RowId, newest: Version| match see(newest) {
            ControlFlow::Continue(()) if mutation::off(Rule::AllEndsCount) => ControlFlow::Break(false),
            flow => flow,
        };
        while find_each(self.ends_form().get(), &key, guard, &mut one) == Some(true) {}
    }
}

fn encode(form: &TableForm, values: &[Value]) -> Vec<u8> {
    let mut row = Vec::new();
    form.layout.encode(values, &mut row).expect("notices fit their tables");
    row
}

/// The chain of the row with this key: a unique key of a system table, all of whose versions have the same one.
fn find(form: &TableForm, key: &[u8], guard: &Guard<'_>) -> Option<(RowId, Version)> {
    find_each(form, key, guard, &mut |row, newest| ControlFlow::Break((row, newest)))
}

/// The chains of all rows with this key. There are several only while some are about to be taken back.
fn find_each<B>(
    form: &TableForm,
    key: &[u8],
    guard: &Guard<'_>,
    see: &mut dyn FnMut(RowId, Version) -> ControlFlow<B>,
) -> Option<B> {
    let primary = form.primary();
    let Structure::Hash(hash) = &primary.structure else { unreachable!("the memo has hash indexes") };
    hash.lookup(guard, hash_of(key), |row| {
        let Some(newest) = form.store.directory.newest(row, guard) else { return ControlFlow::Continue(()) };
        let mut version = newest;
        while version.is_tombstone() {
            match version.older(&form.store.memory) {
                Some(older) => version = older,
                // Nobody can see what it was.
                None => return ControlFlow::Continue(()),
            }
        }
        if primary.matches(form, version, key) { see(row, newest) } else { ControlFlow::Continue(()) }
    })
}

/// Adds the keys of the entries of a row to `bytes`: index number as stores have it (u32), length (u16), key; the primary
/// one first.
pub(crate) fn pack_keys(form: &TableForm, row: &[u8], suffix: &[u8], bytes: &mut Vec<u8>) {
    let mut add = |index: u32, fill: &mut dyn FnMut(&mut Vec<u8>)| {
        bytes.extend_from_slice(&index.to_le_bytes());
        let at = bytes.len();
        bytes.extend_from_slice(&[0; 2]);
        fill(bytes);
        let len = u16::try_from(bytes.len() - at - 2).expect("keys have at most 2 KiB");
        bytes[at..at + 2].copy_from_slice(&len.to_le_bytes());
    };
    let mut primary = KeyBuf::new();
    form.primary().key_of_row(row, suffix, &mut primary);
    add(primary_of(form.id).index, &mut |bytes| bytes.extend_from_slice(&primary));
    let mut key = KeyBuf::new();
    for index in &form.indexes[1..] {
        index.key_of_row(row, suffix, &mut key);
        add(secondary_of(form.id, index.id).index, &mut |bytes| push_secondary(bytes, &key, &primary));
    }
}

/// The keys again: index number and key.
pub(crate) fn unpack_keys(mut bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_at_checked(6)?;
        let index = u32::from_le_bytes(head[..4].try_into().expect("four bytes"));
        let len = usize::from(u16::from_le_bytes(head[4..].try_into().expect("two bytes")));
        let (key, rest) = rest.split_at_checked(len)?;
        bytes = rest;
        Some((index, key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_notices_are_those_of_their_tables() {
        for (batch, hash) in [(0, 0), (1, u64::MAX), (1 << 63, 5), (u64::MAX >> 1, 1 << 63)] {
            let expected = KeyBuf::new().i64(batch as i64).i64(hash as i64);
            assert_eq!(RecordName { batch, hash }.key()[..], expected[..]);
            assert_eq!(key_of(batch)[..], KeyBuf::new().i64(batch as i64)[..]);
        }
    }
}
