//! A table at run time: its entry in the catalog, which lives as long as somebody has a handle, and its *form* (name,
//! layout, indexes, store), which a change of the definition replaces as a whole.
//!
//! # How a definition changes under running transactions
//!
//! A transaction enters its mark for a table in its place of the registry, then looks whether the table is held for a
//! change, and only then follows [`TableEntry::form`]. Who changes a definition holds the table first ([`Hold`]), then looks
//! for marks, and waits until there is none but its own. Both sides have a full fence between their two steps, so one sees the
//! other. A form that is followed under a mark therefore stays until the transaction ends, and needs no reference count.
//!
//! The changer's new form is *pending*: its own transaction follows it from its list of tables, its own handles
//! ([`TableEntry::form_for`]) from [`TableEntry::pending`]. Everybody else has the committed form until the commit, which
//! swaps the two; the old one is freed through the epochs, under the lock of maintenance, whose work may be following it.

use std::ops::ControlFlow;
use std::sync::Arc;

use thermocline_base::epoch::{Epochs, Guard};
use thermocline_base::ids::{IndexId, RowId, TableId, Timestamp};
use thermocline_base::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::catalog::hold::Hold;
use crate::catalog::past::Past;
use crate::error::{Error, TakenKey};
use crate::hot::block::Rows;
use crate::hot::budget::OutOfMemory;
use crate::hot::life::Changes;
use crate::hot::memory::Memory;
use crate::hot::reuse::Reuse;
use crate::hot::store::Store;
use crate::hot::version::Version;
use crate::index::hash::{HashIndex, tag};
use crate::index::hash_of;
use crate::index::tree::Tree;
use crate::row::{ColumnSet, KeyBuf, KeySpec, Layout, RowError, Value};
use crate::schema::{IndexSchema, TableSchema};

/// Bytes of the hidden key behind the row, in tables without a primary key.
const HIDDEN_KEY_BYTES: usize = 8;

/// What the catalog and all handles share of a table.
#[derive(Debug)]
pub(crate) struct TableEntry {
    pub(crate) id: TableId,
    /// Those of the opening of a database that the table belongs to, which they tell from all others.
    epochs: Arc<Epochs>,
    form: AtomicPtr<TableForm>,
    /// The form that the transaction which holds the table has made, and will leave; null: none.
    pending: AtomicPtr<TableForm>,
    /// The number of that transaction's definitions.
    pending_of: AtomicU64,
    /// Counts the forms that the table has had.
    definition: AtomicU64,
    /// Who changes the definition.
    pub(crate) hold: Hold,
    dropped: AtomicBool,
}

impl TableEntry {
    /// An entry with its first form.
    pub(crate) fn new(id: TableId, epochs: &Arc<Epochs>, form: TableForm) -> Self {
        Self {
            id,
            epochs: Arc::clone(epochs),
            form: AtomicPtr::new(Box::into_raw(Box::new(form))),
            pending: AtomicPtr::new(std::ptr::null_mut()),
            pending_of: AtomicU64::new(0),
            definition: AtomicU64::new(0),
            hold: Hold::default(),
            dropped: AtomicBool::new(false),
        }
    }

    /// The present form. Valid while the caller has entered its mark, holds the table, or is pinned.
    #[inline]
    pub(crate) fn form(&self) -> *const TableForm {
        self.form.load(Ordering::Acquire)
    }

    /// The present form, under a pin.
    pub(crate) fn form_pinned<'g>(&'g self, _guard: &'g Guard<'_>) -> &'g TableForm {
        // SAFETY: a form that is replaced is freed through the epochs.
        unsafe { &*self.form() }
    }

    /// The form as the transaction with these definitions has it, or as everybody has it (0), under a pin.
    pub(crate) fn form_for<'g>(&'g self, definitions: u64, guard: &'g Guard<'_>) -> &'g TableForm {
        if definitions != 0 {
            let pending = self.pending.load(Ordering::Acquire);
            if !pending.is_null() && self.pending_of.load(Ordering::Acquire) == definitions {
                // SAFETY: a form that is pending no longer is freed through the epochs.
                return unsafe { &*pending };
            }
        }
        self.form_pinned(guard)
    }

    /// The form that an operation which is under way follows: nobody is in one but the transaction that has a pending form, if
    /// there is one. Valid until that operation's transaction ends.
    #[inline]
    pub(crate) fn form_in_use(&self) -> *const TableForm {
        let pending = self.pending.load(Ordering::Acquire);
        if pending.is_null() { self.form() } else { pending }
    }

    /// The pending form, under a pin.
    pub(crate) fn pending<'g>(&'g self, _guard: &'g Guard<'_>) -> Option<&'g TableForm> {
        // SAFETY: a form that is pending no longer is freed through the epochs.
        unsafe { self.pending.load(Ordering::Acquire).as_ref() }
    }

    /// Lets a form be the pending one; null: none is. Only by who holds the table; the form is its to free.
    pub(crate) fn set_pending(&self, form: *mut TableForm, definitions: u64) {
        self.pending_of.store(definitions, Ordering::Release);
        self.pending.store(form, Ordering::Release);
        self.definition.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes the pending form everybody's, if there is one; the old one is the caller's to free. Only by who holds the table.
    pub(crate) fn adopt_pending(&self) -> Option<*mut TableForm> {
        let pending = self.pending.load(Ordering::Acquire);
        if pending.is_null() {
            return None;
        }
        let old = self.form.swap(pending, Ordering::AcqRel);
        self.set_pending(std::ptr::null_mut(), 0);
        Some(old)
    }

    /// Replaces the form; the old one is the caller's to free. Only while nobody else knows of the table, or can use it.
    pub(crate) fn replace(&self, form: TableForm) -> Box<TableForm> {
        let old = self.form.swap(Box::into_raw(Box::new(form)), Ordering::AcqRel);
        // Afterwards: whoever reads the number first, and then the form, has none that is older than its number.
        self.definition.fetch_add(1, Ordering::AcqRel);
        // SAFETY: the pointer came from a box, and the swap gave it to us.
        unsafe { Box::from_raw(old) }
    }

    /// A number that no two forms of the table have in common.
    #[inline]
    pub(crate) fn definition(&self) -> u64 {
        self.definition.load(Ordering::Acquire)
    }

    /// Lets the number be another one: what is known of the table beside its form may have changed.
    pub(crate) fn count_definition(&self) {
        self.definition.fetch_add(1, Ordering::AcqRel);
    }

    /// May no transaction start to use the table?
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// Marks the table as dropped.
    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::SeqCst);
    }

    /// Was it dropped?
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Does the table belong to the opening of a database that has these epochs?
    #[inline]
    pub(crate) fn is_of(&self, epochs: &Arc<Epochs>) -> bool {
        Arc::ptr_eq(&self.epochs, epochs)
    }

    /// Its name, as everybody has it.
    #[cold]
    pub(crate) fn name(&self) -> String {
        self.form_pinned(&self.epochs.pin()).schema.name.clone()
    }

    /// Why a transaction refuses a handle of this table. `is_own`: it is of the transaction's database.
    #[cold]
    pub(crate) fn refusal(&self, is_own: bool) -> Error {
        let name = self.form_pinned(&self.epochs.pin()).schema.name.clone();
        if is_own { Error::TableDropped { name } } else { Error::ForeignHandle { what: "table", name } }
    }
}

/// The bit of a table in filters of 64.
pub(crate) fn mark_of(id: TableId) -> u64 {
    1 << (id.0 % 64)
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        // SAFETY: the last owner is here; the pointer came from a box.
        drop(unsafe { Box::from_raw(*self.form_mut()) });
    }
}

impl TableEntry {
    fn form_mut(&mut self) -> &mut *mut TableForm {
        self.form.get_mut()
    }
}

/// One form of a table.
#[derive(Debug)]
pub(crate) struct TableForm {
    pub(crate) id: TableId,
    /// What log and images call the rows: another one since the table was emptied.
    pub(crate) storage: TableId,
    pub(crate) schema: TableSchema,
    pub(crate) layout: Arc<Layout>,
    /// Grows with each change of the layout.
    pub(crate) layout_version: u32,
    /// Changes up to then are not the table's any more: in tables that were emptied or rewritten before storages had names.
    pub(crate) since: Timestamp,
    /// When its rows or their layout were last replaced. No batch that was begun before may take rows of it.
    pub(crate) changed: Settled,
    /// Cold records of batches with ids up to then are not the table's. It was emptied then; its columns may have changed since.
    pub(crate) emptied: Settled,
    /// What older cold records are like.
    pub(crate) past: Arc<Past>,
    pub(crate) store: Arc<Store>,
    /// The primary key first.
    pub(crate) indexes: Vec<Arc<IndexForm>>,
    pub(crate) counters: Arc<TableCounters>,
    /// Bytes behind each row that are not part of it: the hidden key, or none.
    pub(crate) suffix_bytes: usize,
    /// Bits of a row's first byte that tell shapes apart.
    pub(crate) shape_mask: u8,
    pub(crate) auto_column: Option<usize>,
}

/// A time that is known when the transaction commits which is making the form; until then it is later than all others.
#[derive(Debug, Default)]
pub(crate) struct Settled(AtomicU64);

impl Settled {
    const OPEN: u64 = u64::MAX;

    /// The time of the commit that is to come.
    pub(crate) fn at_commit() -> Self {
        Self(AtomicU64::new(Self::OPEN))
    }

    /// A time that is known, or the commit's, as [`Settled::get`] says.
    pub(crate) fn at(timestamp: Timestamp) -> Self {
        Self(AtomicU64::new(timestamp.0))
    }

    /// The time.
    #[inline]
    pub(crate) fn get(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }

    /// The commit has drawn its timestamp. Before anybody else sees the form.
    pub(crate) fn settle(&self, at: Timestamp) {
        if self.0.load(Ordering::Relaxed) == Self::OPEN {
            self.0.store(at.0, Ordering::Relaxed);
        }
    }
}

impl Clone for Settled {
    fn clone(&self) -> Self {
        Self::at(self.get())
    }
}

/// A form that is followed under a mark, or while its table is held (see the module's argument): whoever makes one
/// vouches for that, and drops it before the mark goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FormRef(*const TableForm);

// SAFETY: forms are shared between threads (all their parts are `Sync`), and the mark keeps the form wherever the
// session that entered it goes.
unsafe impl Send for FormRef {}

impl FormRef {
    /// A reference to the present form of `entry`.
    ///
    /// # Safety
    /// The caller has entered its mark and seen that the table is not held, or holds the table, and stops using the
    /// reference before that ends.
    pub(crate) unsafe fn of(entry: &TableEntry) -> Self {
        Self(entry.form())
    }

    /// A reference to a form that the caller's transaction has made, and keeps until it ends, or follows in an operation.
    pub(crate) fn own(form: *const TableForm) -> Self {
        Self(form)
    }

    /// The form, with a lifetime that the caller's mark covers.
    #[inline]
    pub(crate) fn get<'a>(self) -> &'a TableForm {
        // SAFETY: whoever made the reference vouched for the form as long as it is used.
        unsafe { &*self.0 }
    }
}

/// Counters of a table that survive changes of its definition.
#[derive(Debug, Default)]
pub(crate) struct TableCounters {
    /// Last number given to an auto-increment column.
    pub(crate) auto: AtomicU64,
    /// Last hidden key.
    pub(crate) hidden: AtomicU64,
    /// Row locks held on the table.
    pub(crate) locks: AtomicU32,
    /// Some of its rows are or were in the cold store: readers have to look there. Set before the first move.
    pub(crate) cold: AtomicBool,
    /// Moves to the cold store that have begun; counted before they draw their timestamp.
    pub(crate) moves: AtomicU64,
    /// The longest row that has moved to the cold store since the database was opened, in bytes, as the table has it now, at the
    /// most.
    pub(crate) longest_moved: AtomicU64,
    /// Reads of rows on the paged side.
    pub(crate) paged_reads: AtomicU64,
    /// Rows that moved to the cold store one by one, that left memory with their chunk, and that came back.
    pub(crate) moved_rows: AtomicU64,
    pub(crate) left_rows: AtomicU64,
    pub(crate) promoted_rows: AtomicU64,
    /// How soon rows are used again, while memory is short.
    pub(crate) reuse: Reuse,
    /// In which states rows are changed.
    pub(crate) changes: Changes,
}

impl TableForm {
    /// The bit of this table among a transaction's marks.
    pub(crate) fn mark(&self) -> u64 {
        mark_of(self.id)
    }

    /// A check for operations that depend on all rows of the table, those that cannot be found among them.
    ///
    /// # Errors
    /// Rows could not be read when the database was opened: where, and what can be done.
    #[inline]
    pub(crate) fn must_be_whole(&self) -> Result<(), Error> {
        if self.store.damage.is_there() { Err(self.damaged()) } else { Ok(()) }
    }

    #[cold]
    fn damaged(&self) -> Error {
        let damaged = self.store.damage.chunks();
        let first = damaged.first().expect("what is damaged is damaged somewhere");
        let mut chunks: Vec<String> = damaged.iter().map(|of| of.chunk.to_string()).collect();
        chunks.dedup();
        let (s, numbers, table) =
            (if chunks.len() == 1 { "" } else { "s" }, chunks.join(", "), &self.schema.name);
        let what = format!(
            "{}; rows of chunk{s} {numbers} of table {table:?} are missing, so the table is neither scanned nor changed: \
             unique keys find the rows that are there, and it can be emptied or dropped",
            first.what
        );
        Error::Damaged { file: first.file.clone(), what }
    }

    /// Is the key of its rows hidden?
    pub(crate) fn hidden_key(&self) -> bool {
        self.suffix_bytes != 0
    }

    /// The row in a version, without the hidden key.
    #[inline]
    pub(crate) fn row<'a>(&self, version: Version) -> &'a [u8] {
        let row = version.row();
        &row[..row.len() - self.suffix_bytes]
    }

    /// The row in a record of the cold store, without the hidden key.
    #[inline]
    pub(crate) fn row_in<'r>(&self, payload: &'r [u8]) -> &'r [u8] {
        &payload[..payload.len() - self.suffix_bytes]
    }

    /// What stands behind the row in a record of the cold store.
    #[inline]
    pub(crate) fn suffix_in<'r>(&self, payload: &'r [u8]) -> &'r [u8] {
        &payload[payload.len() - self.suffix_bytes..]
    }

    /// What stands behind the row in a version.
    #[inline]
    pub(crate) fn suffix<'a>(&self, version: Version) -> &'a [u8] {
        let row = version.row();
        &row[row.len() - self.suffix_bytes..]
    }

    /// The primary key.
    pub(crate) fn primary(&self) -> &IndexForm {
        &self.indexes[0]
    }

    /// The index with this id.
    #[inline]
    pub(crate) fn index(&self, id: IndexId) -> Option<&Arc<IndexForm>> {
        self.indexes.iter().find(|index| index.id == id)
    }

    /// Length of hidden keys for a schema.
    pub(crate) fn suffix_for(schema: &TableSchema) -> usize {
        if schema.primary.is_none() { HIDDEN_KEY_BYTES } else { 0 }
    }

    /// Keeps the counters ahead of frozen rows that came from a file.
    pub(crate) fn note_counters_of(&self, rows: &Rows) {
        let hidden = rows.hidden().iter().copied().max().unwrap_or(0);
        self.counters.hidden.fetch_max(hidden, Ordering::Relaxed);
        if let Some(column) = self.auto_column {
            let block = rows.block();
            match block.zone(column).max {
                Some(greatest) => self.note_auto(&greatest),
                None => block
                    .positions()
                    .filter_map(|row| block.value(column, row))
                    .for_each(|value| self.note_auto(&value)),
            }
        }
    }

    /// Keeps the counters ahead of a row that came from a file.
    pub(crate) fn note_counters(&self, payload: &[u8]) {
        if self.suffix_bytes != 0 {
            let hidden = u64::from_le_bytes(
                payload[payload.len() - HIDDEN_KEY_BYTES..].try_into().expect("the suffix has 8 bytes"),
            );
            self.counters.hidden.fetch_max(hidden, Ordering::Relaxed);
        }
        if let Some(column) = self.auto_column {
            self.note_auto(&self.layout.value(&payload[..payload.len() - self.suffix_bytes], column));
        }
    }
}

impl TableForm {
    /// Keeps the auto-increment counter ahead of a number in its column.
    pub(crate) fn note_auto(&self, value: &Value) {
        let number = match *value {
            Value::Int2(number) => i64::from(number),
            Value::Int4(number) => i64::from(number),
            Value::Int8(number) => number,
            _ => 0,
        };
        self.counters.auto.fetch_max(u64::try_from(number).unwrap_or(0), Ordering::Relaxed);
    }
}

#[cold]
fn hidden_mismatch(key: &[u8]) -> RowError {
    let reason = format!("it has {HIDDEN_KEY_BYTES} bytes, not {}", key.len());
    RowError::KeyMismatch { columns: "(hidden row number)".into(), reason: reason.into() }
}

/// How an index gets its key from a row.
#[derive(Debug)]
pub(crate) enum KeySource {
    /// From columns.
    Columns(KeySpec),
    /// From the hidden key behind the row.
    Hidden,
}

/// The structure of an index.
#[derive(Debug)]
pub(crate) enum Structure {
    Hash(HashIndex<Memory>),
    Tree(Tree<Memory>),
}

impl Structure {
    /// Bytes of the cells of which there are many.
    pub(crate) const fn cell_bytes(&self) -> usize {
        match self {
            Self::Hash(_) => HashIndex::<Memory>::LINE_BYTES,
            Self::Tree(_) => Tree::<Memory>::NODE_BYTES,
        }
    }
}

/// An index at run time.
#[derive(Debug)]
pub(crate) struct IndexForm {
    pub(crate) id: IndexId,
    pub(crate) schema: IndexSchema,
    pub(crate) key: KeySource,
    /// Columns whose change may change the key.
    pub(crate) columns: ColumnSet,
    /// What the structure's nodes are made of.
    pub(crate) memory: Arc<Memory>,
    pub(crate) structure: Structure,
}

impl IndexForm {
    /// The number of its entries.
    pub(crate) fn len(&self) -> u64 {
        match &self.structure {
            Structure::Hash(hash) => hash.len(),
            Structure::Tree(tree) => tree.len(),
        }
    }

    /// Is it unique?
    pub(crate) fn is_unique(&self) -> bool {
        self.schema.unique
    }

    /// Writes the key of a version into `key`.
    #[inline]
    pub(crate) fn key_of(&self, form: &TableForm, version: Version, key: &mut KeyBuf) {
        self.key_of_row(form.row(version), form.suffix(version), key);
    }

    /// Writes the key of a row into `key`.
    #[inline]
    pub(crate) fn key_of_row(&self, row: &[u8], suffix: &[u8], key: &mut KeyBuf) {
        key.clear();
        match &self.key {
            // A key that is too long was refused before its row could be written.
            KeySource::Columns(spec) => _ = spec.encode_row(row, key),
            KeySource::Hidden => {
                let hidden = u64::from_le_bytes(suffix.try_into().expect("the suffix has 8 bytes"));
                key.push(&hidden.to_be_bytes());
            }
        }
    }

    /// Can these bytes be a key of the index?
    ///
    /// # Errors
    /// [`RowError::KeyMismatch`].
    #[inline]
    pub(crate) fn check_key(&self, key: &[u8]) -> std::result::Result<(), RowError> {
        match &self.key {
            KeySource::Columns(spec) => spec.check_key(key),
            KeySource::Hidden if key.len() == HIDDEN_KEY_BYTES => Ok(()),
            KeySource::Hidden => Err(hidden_mismatch(key)),
        }
    }

    /// Can keys of the index begin with these bytes?
    ///
    /// # Errors
    /// [`RowError::KeyMismatch`].
    pub(crate) fn check_beginning(&self, key: &[u8]) -> std::result::Result<(), RowError> {
        match &self.key {
            KeySource::Columns(spec) => spec.check_beginning(key),
            KeySource::Hidden if key.len() <= HIDDEN_KEY_BYTES => Ok(()),
            KeySource::Hidden => Err(hidden_mismatch(key)),
        }
    }

    /// Does the version have this key?
    #[inline]
    pub(crate) fn matches(&self, form: &TableForm, version: Version, key: &[u8]) -> bool {
        match &self.key {
            KeySource::Columns(spec) => spec.matches(form.row(version), key),
            KeySource::Hidden => {
                let suffix = form.suffix(version);
                suffix.iter().rev().eq(key)
            }
        }
    }

    /// Do SQL's rules let rows with equal keys through, because a column of the key is null?
    pub(crate) fn is_exempt(&self, row: &[u8]) -> bool {
        match &self.key {
            KeySource::Columns(spec) => spec.contains_null(row),
            KeySource::Hidden => false,
        }
    }

    /// As [`IndexForm::is_exempt`], for a row with this key.
    pub(crate) fn is_exempt_key(&self, key: &[u8]) -> bool {
        match &self.key {
            KeySource::Columns(spec) => spec.decode(key).is_ok_and(|values| values.contains(&Value::Null)),
            KeySource::Hidden => false,
        }
    }

    /// Would two rows stand under the same entry for the same RowId? For a hash index that is so as soon as the bits
    /// that an entry keeps are equal.
    pub(crate) fn same_entry(&self, a: &[u8], b: &[u8]) -> bool {
        a == b || matches!(self.structure, Structure::Hash(_)) && tag(hash_of(a)) == tag(hash_of(b))
    }

    /// Enters (key, row).
    ///
    /// # Errors
    /// The memory limit is reached.
    #[inline]
    pub(crate) fn insert(&self, guard: &Guard<'_>, key: &[u8], row: RowId) -> Result<bool, OutOfMemory> {
        match &self.structure {
            Structure::Hash(hash) => hash.insert(guard, hash_of(key), row),
            Structure::Tree(tree) => tree.insert(guard, key, row),
        }
        .map_err(|_| self.memory.refusal(4096))
    }

    /// Does some row with an entry for this key (or, in a hash index, one like it) satisfy `is_it`?
    pub(crate) fn find(&self, guard: &Guard<'_>, key: &[u8], mut is_it: impl FnMut(RowId) -> bool) -> bool {
        let examine = |row| if is_it(row) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        match &self.structure {
            Structure::Hash(hash) => hash.lookup(guard, hash_of(key), examine),
            Structure::Tree(tree) => tree.lookup(guard, key, examine),
        }
        .is_some()
    }

    /// Takes (key, row) out.
    pub(crate) fn remove(&self, guard: &Guard<'_>, key: &[u8], row: RowId) {
        match &self.structure {
            Structure::Hash(hash) => {
                hash.remove(guard, hash_of(key), row);
            }
            Structure::Tree(tree) => {
                tree.remove(guard, key, row);
            }
        }
    }

    /// The key in words, for messages.
    pub(crate) fn describe(&self, key: &[u8]) -> String {
        match &self.key {
            KeySource::Columns(spec) => spec.display_key(key),
            KeySource::Hidden => {
                let hidden = key.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
                format!("(hidden row number) = ({hidden})")
            }
        }
    }

    /// A key that a row of `form` has already, for who wanted it.
    #[cold]
    pub(crate) fn refused(&self, form: &TableForm, key: &[u8]) -> Error {
        // Columns may have got other names since the index was made.
        let position = form.indexes.iter().position(|index| index.id == self.id);
        let schema = match position {
            Some(0) => form.schema.primary.as_ref(),
            Some(number) => form.schema.indexes.get(number - 1),
            None => None,
        };
        let columns = schema.unwrap_or(&self.schema).columns.iter().map(|(name, _)| name.clone()).collect();
        let values = match &self.key {
            KeySource::Columns(spec) => spec.decode(key).unwrap_or_default(),
            KeySource::Hidden => Vec::new(),
        };
        Error::DuplicateKey {
            table: form.schema.name.clone(),
            index: self.schema.name.clone(),
            key: TakenKey::new(self.describe(key), columns, values),
        }
    }

    /// What is known of a key from its beginning, in words; see [`KeySpec::display_beginning`].
    pub(crate) fn describe_beginning(&self, key: &[u8]) -> String {
        match &self.key {
            KeySource::Columns(spec) => spec.display_beginning(key),
            KeySource::Hidden => {
                let mut whole = [0; HIDDEN_KEY_BYTES];
                let len = key.len().min(HIDDEN_KEY_BYTES);
                whole[..len].copy_from_slice(&key[..len]);
                self.describe(&whole)
            }
        }
    }
}
