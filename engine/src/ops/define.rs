//! Changes of definitions: create, drop, truncate, rename, add and drop column, create and drop index.
//!
//! One change at a time. A change of an existing table holds it (see [`crate::catalog::table`]): transactions that
//! want to start to use the table wait, those that use it already are waited for. Maintenance stands still meanwhile.
//! The change is made in memory on a new form of the table, made durable by a manifest of the checkpoints, and only
//! then shown. A crash before the manifest leaves the old definition, a crash after it the new one.
//!
//! Changing the columns writes the table anew (same RowIds, new rows and indexes), and images it in the same manifest.
//! Rows in the cold store stay as they are, and are brought up to date when they are read ([`crate::catalog::past`]); in a
//! new index they get entries ([`crate::ops::backfill`]).
//!
//! A change that goes over rows tells how far it is, and can be ended ([`crate::ops::progress`]). Before a table is held for a column
//! that is added, the longest row in the cold store is looked for: that may take seconds, and users go on meanwhile.
//!
//! A change that is refused memory undoes itself and lets go of all it holds; then it waits for the governor, and is tried
//! again ([`Inner::defining`]).

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{IndexId, RowId, TableId, Timestamp};
use thermocline_base::multiplex::block_on;
use thermocline_base::sync::{Backoff, MutexGuard, Ordering};
use thermocline_pool::store::BatchId;

use crate::catalog::past::{KEPT, Past, may_be_too_long, most_bytes};
use crate::catalog::schema::{
    IndexSchema, PastChange, PastColumns, SchemaError, StoredTable, TableSchema, Tiering,
};
use crate::catalog::table::{FormRef, IndexForm, KeySource, Structure, TableCounters, TableEntry, TableForm};
use crate::cold::Cold;
use crate::cold::memo::is_system;
use crate::cold::store::{StoreMemory, primary_of, secondary_of};
use crate::counters::WaitKind;
use crate::db::{Database, Index, Inner, Table};
use crate::error::{Error, Result};
use crate::governor::Verdict;
use crate::hot::budget::{MemoryKind, OutOfMemoryCause};
use crate::hot::memory::Memory;
use crate::hot::store::Store;
use crate::hot::version::{Begin, Version};
use crate::index::hash::HashIndex;
use crate::index::tree::Tree;
use crate::mutation::{self, Rule};
use crate::ops::backfill::ColdFill;
use crate::ops::progress::{Advance, silent};
use crate::row::{Column, ColumnSet, KeyBuf, KeySpec, Layout, MAX_ROW_BYTES, RowError, Value};
use crate::statistics::entries_of;
use crate::txn::bodies;
use crate::txn::prune::Item;

impl Inner {
    fn schema_error(table: &str, source: RowError) -> Error {
        Error::Schema(SchemaError::Column { table: table.to_owned(), source })
    }

    /// A fresh, empty form for a schema; index ids are new unless given.
    pub(crate) fn make_form(&self, stored: StoredTable, counters: Arc<TableCounters>) -> Result<TableForm> {
        let schema = stored.schema;
        schema.check()?;
        let layout = Layout::new(&schema.columns).map_err(|error| Self::schema_error(&schema.name, error))?;
        let past = Past::new(&stored.past, &schema)?;
        let is_memo = is_system(stored.id);
        let store = Store::new(self.address_bytes, is_memo, &self.budget, &self.epochs)?;
        let mut indexes = Vec::new();
        let mut ids = stored.index_ids.into_iter();
        let mut next_id = || ids.next().unwrap_or_else(|| self.catalog.fresh_index_id());
        match &schema.primary {
            Some(primary) => {
                indexes.push(self.make_index_of(next_id(), &schema, primary, &layout, is_memo)?);
            }
            None => indexes.push(self.make_hidden_index(next_id())?),
        }
        for index in &schema.indexes {
            indexes.push(self.make_index_of(next_id(), &schema, index, &layout, is_memo)?);
        }
        counters.auto.fetch_max(stored.auto, std::sync::atomic::Ordering::Relaxed);
        counters.hidden.fetch_max(stored.hidden, std::sync::atomic::Ordering::Relaxed);
        Ok(TableForm {
            id: stored.id,
            suffix_bytes: TableForm::suffix_for(&schema),
            auto_column: schema.columns.iter().position(|column| column.auto_increment),
            layout: Arc::new(layout),
            layout_version: stored.layout_version,
            since: stored.since,
            emptied: stored.emptied,
            past: Arc::new(past),
            store: Arc::new(store),
            indexes,
            counters,
            schema,
        })
    }

    fn index_memory(&self, kind: MemoryKind) -> Result<Arc<Memory>> {
        Ok(Arc::new(Memory::new(
            kind,
            self.address_bytes,
            Arc::clone(&self.budget),
            Arc::clone(&self.epochs),
        )?))
    }

    fn make_index(
        &self,
        id: IndexId,
        table: &TableSchema,
        schema: &IndexSchema,
        layout: &Layout,
    ) -> Result<Arc<IndexForm>> {
        self.make_index_of(id, table, schema, layout, false)
    }

    fn make_index_of(
        &self,
        id: IndexId,
        table: &TableSchema,
        schema: &IndexSchema,
        layout: &Layout,
        is_memo: bool,
    ) -> Result<Arc<IndexForm>> {
        let spec = KeySpec::new(layout, &table.key_columns(schema))
            .map_err(|error| Self::schema_error(&table.name, error))?;
        let columns = spec.columns().clone();
        self.build_structure(id, schema.clone(), KeySource::Columns(spec), columns, is_memo)
    }

    fn make_hidden_index(&self, id: IndexId) -> Result<Arc<IndexForm>> {
        let schema = IndexSchema::hash("hidden key", &[]).unique();
        self.build_structure(id, schema, KeySource::Hidden, ColumnSet::default(), false)
    }

    fn build_structure(
        &self,
        id: IndexId,
        schema: IndexSchema,
        key: KeySource,
        columns: ColumnSet,
        is_memo: bool,
    ) -> Result<Arc<IndexForm>> {
        let kind = |kind| if is_memo { MemoryKind::Memo } else { kind };
        let refused = |memory: &Memory| Error::OutOfMemory(memory.refusal(4096));
        let (memory, structure) = match schema.kind {
            crate::catalog::IndexKind::Hash => {
                let memory = self.index_memory(kind(MemoryKind::Hash))?;
                let hash = HashIndex::new(Arc::clone(&memory)).map_err(|_| refused(&memory))?;
                (memory, Structure::Hash(hash))
            }
            crate::catalog::IndexKind::Ordered => {
                let memory = self.index_memory(kind(MemoryKind::Tree))?;
                let tree = Tree::new(Arc::clone(&memory)).map_err(|_| refused(&memory))?;
                (memory, Structure::Tree(tree))
            }
        };
        Ok(Arc::new(IndexForm { id, schema, key, columns, memory, structure }))
    }

    /// Runs a change of definitions. When it is refused memory, the governor is waited for, and it is run again: it has
    /// undone itself then, and holds nothing. Blocks.
    pub(crate) fn defining<T>(&self, change: impl FnMut() -> Result<T>) -> Result<T> {
        self.defining_with(change, || {})
    }

    /// The same; `make_room` is called before each wait.
    fn defining_with<T>(
        &self,
        mut change: impl FnMut() -> Result<T>,
        mut make_room: impl FnMut(),
    ) -> Result<T> {
        let mut since = None;
        loop {
            let error = match change() {
                Err(Error::OutOfMemory(wanted))
                    if wanted.cause == OutOfMemoryCause::Limit && self.governor.is_there() =>
                {
                    Error::OutOfMemory(wanted)
                }
                outcome => return outcome,
            };
            self.epochs.collect();
            make_room();
            let since = *since.get_or_insert_with(|| self.clock.now_ns());
            let room = self.governor.wait_for_room(None, 0, since);
            let verdict = block_on(self.counted(WaitKind::Memory, room));
            self.governor.counters.note_wait(self.clock.now_ns().saturating_sub(since));
            if verdict == Verdict::Refused {
                return Err(error);
            }
        }
    }

    /// There is no room for the rows of a table beside themselves: half of those in memory leave it, whatever their
    /// temperature, as far as they may. Blocks.
    fn move_half(self: &Arc<Self>, table: &str, advance: &mut Advance<'_>) -> Result<()> {
        const ROWS: usize = 512;
        let entry = self.entry(table)?;
        let (count, chunks) = {
            let guard = self.epochs.pin();
            let form = entry.form_pinned(&guard);
            if form.schema.tiering == Tiering::Hot {
                return Ok(());
            }
            let mut count = 0_usize;
            form.store.for_each_row(&guard, |_, newest| {
                count += usize::from(!newest.is_tombstone());
                Ok(())
            })?;
            (count, form.store.directory.len())
        };
        let mut moved = 0;
        for number in 0..chunks {
            let rows: Vec<RowId> = {
                let guard = self.epochs.pin();
                let store = &entry.form_pinned(&guard).store;
                let slots = store.directory.get(number, &guard).map_or(0, crate::hot::chunk::Chunk::used);
                let rows = (0..slots).filter_map(|slot| u16::try_from(slot).ok());
                let is_there = |row: &RowId| {
                    store.directory.newest(*row, &guard).is_some_and(|newest| !newest.is_tombstone())
                };
                rows.map(|slot| RowId::new(number, slot)).filter(is_there).collect()
            };
            for rows in rows.chunks(ROWS) {
                if moved * 2 >= count {
                    return Ok(());
                }
                advance.tell()?;
                moved += block_on(self.migrate(&entry, rows))?.rows;
                if let Some(cold) = self.cold.get() {
                    // What is on its way takes memory, too.
                    cold.let_catch_up(StoreMemory::within(self.memory_limit()).buffer_bytes());
                }
            }
        }
        Ok(())
    }

    /// Begins a change of a table's definition: nobody else changes one meanwhile, and no transaction uses the table.
    fn change(&self, name: &str) -> Result<Change<'_>> {
        self.change_after(name, &mut Advance::new(&mut silent), |_, _| Ok(()))
    }

    /// The same; `look` goes over the table before it is held: its form stays what it is from then on, its rows do not.
    fn change_after<'a>(
        &'a self,
        name: &str,
        advance: &mut Advance<'_>,
        look: impl FnOnce(&TableForm, &mut Advance<'_>) -> Result<()>,
    ) -> Result<Change<'a>> {
        self.may_define()?;
        let definition = self.definition.lock();
        let entry = self.entry(name)?;
        // SAFETY: only a change replaces the form, and none but this one has the lock of definitions.
        look(unsafe { FormRef::of(&entry) }.get(), advance)?;
        if mutation::off(Rule::HoldBeforeLook) {
            self.wait_for_users(&entry, name, advance)?;
        }
        entry.hold();
        let mut change = Change { inner: self, entry, maintenance: None, _definition: definition };
        if !mutation::off(Rule::HoldBeforeLook) {
            self.wait_for_users(&change.entry, name, advance)?;
        }
        change.maintenance = Some(self.maintenance.lock());
        Ok(change)
    }

    /// Waits until no transaction uses a held table.
    fn wait_for_users(&self, entry: &TableEntry, name: &str, advance: &mut Advance<'_>) -> Result<()> {
        /// Looks between two calls of whoever is told.
        const LOOKS: u32 = 50;
        let mut looks = 0_u32;
        let begun = self.clock.now_ns();
        let limit = u64::try_from(self.options.definition_wait.as_nanos()).unwrap_or(u64::MAX);
        let mut backoff = Backoff::new();
        let held_up = bodies::places(&self.registry);
        while self.registry.is_used(entry.id) {
            if held_up.iter().any(|place| self.registry.place(*place).marks.has(entry.id)) {
                return Err(Error::WaitsForItself {
                    table: name.to_owned(),
                    key: "the definition".to_owned(),
                });
            }
            let waited = self.clock.now_ns().saturating_sub(begun);
            if waited > limit {
                return Err(Error::SchemaChangeTimeout {
                    table: name.to_owned(),
                    waited_ms: waited / 1_000_000,
                    in_the_way: self.registry.describe_users(entry.id),
                });
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                advance.tell()?;
            }
            backoff.sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Frees a form that was replaced, once nobody can be looking at it.
    fn retire_form(&self, form: Box<TableForm>) {
        // A transaction that was missed still follows it, and is to do its harm in words.
        #[cfg(feature = "model")]
        if mutation::off(Rule::HoldBeforeLook) || mutation::off(Rule::MarkBeforeLook) {
            return self.misused.lock().push(form);
        }
        self.epochs.defer(move || drop(form));
    }

    fn may_define(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        if self.closed.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    pub(crate) fn entry(&self, name: &str) -> Result<Arc<TableEntry>> {
        self.catalog.by_name(name).ok_or_else(|| Error::UnknownTable { name: name.to_owned() })
    }

    /// Enters all versions of all rows of `form` into one of its indexes. The table is held. `step` hears of each row.
    pub(crate) fn fill_index(
        &self,
        form: &TableForm,
        index: &IndexForm,
        guard: &Guard<'_>,
        step: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut key = KeyBuf::new();
        form.store.for_each_row(guard, |row, newest| {
            step()?;
            let mut next = Some(newest);
            while let Some(version) = next {
                next = version.older(&form.store.memory);
                if next.is_some() {
                    version.mark_keys_changed();
                }
                if version.is_tombstone() {
                    continue;
                }
                index.key_of(form, version, &mut key);
                key.check_len().map_err(|source| Error::Row { table: form.schema.name.clone(), source })?;
                index.insert(guard, &key, row)?;
            }
            Ok(())
        })
    }

    /// Is no key of a unique index held by two live rows? The table is held.
    fn check_unique(
        &self,
        form: &TableForm,
        index: &IndexForm,
        guard: &Guard<'_>,
        advance: &mut Advance<'_>,
    ) -> Result<()> {
        if !index.is_unique() {
            return Ok(());
        }
        let mut key = KeyBuf::new();
        form.store.for_each_row(guard, |row, newest| {
            advance.row()?;
            if newest.is_tombstone() || index.is_exempt(form.row(newest)) {
                return Ok(());
            }
            index.key_of(form, newest, &mut key);
            let twin = index.find(guard, &key, |other| {
                other != row
                    && form
                        .store
                        .directory
                        .newest(other, guard)
                        .is_some_and(|other| !other.is_tombstone() && index.matches(form, other, &key))
            });
            if twin {
                return Err(index.refused(form, &key));
            }
            Ok(())
        })
    }

    /// Writes the rows of `old` anew into `new`, all versions, through `convert`.
    fn rewrite(
        &self,
        old: &TableForm,
        new: &TableForm,
        convert: &Convert<'_>,
        guard: &Guard<'_>,
        advance: &mut Advance<'_>,
    ) -> Result<()> {
        let mut row = Vec::new();
        for number in 0..old.store.directory.len() {
            if old.store.directory.get(number, guard).is_some() {
                new.store.directory.make(number, &new.store.slots)?;
            }
        }
        old.store.for_each_row(guard, |row_id, newest| {
            advance.row()?;
            let mut chain = vec![newest];
            while let Some(older) = chain.last().and_then(|version| version.older(&old.store.memory)) {
                chain.push(older);
            }
            let mut below: Option<Version> = None;
            for version in chain.into_iter().rev() {
                row.clear();
                if !version.is_tombstone() {
                    convert(old.row(version), &mut row)?;
                } else if version.moved().is_some() {
                    row.extend_from_slice(version.row());
                }
                let Begin::At(begin) = version.begin() else {
                    unreachable!("a held table has no unfinished versions")
                };
                let suffix = if version.is_tombstone() { &[][..] } else { old.suffix(version) };
                let copy = new.store.create(
                    Begin::At(begin),
                    below,
                    row_id,
                    version.is_tombstone(),
                    &row,
                    suffix,
                )?;
                if version.moved().is_some() {
                    copy.mark_moved();
                    if version.is_image() {
                        // Nobody has left an item for it: its chunk would have gone as a whole.
                        let item = Item { table: new.id, row: row_id, waited_for: None };
                        self.garbage.leave(std::iter::once(item));
                    }
                }
                if version.is_promoted() {
                    copy.mark_promoted();
                }
                below = Some(copy);
            }
            let chunk = new.store.directory.get(row_id.chunk(), guard).expect("it was made above");
            chunk
                .slot(row_id.slot(), guard)
                .expect("chunks with a number have one size")
                .fill(below.expect("a row has a version"));
            chunk.mark_dirty();
            Ok(())
        })?;
        new.store.seal_all(guard);
        for index in &new.indexes {
            self.fill_index(new, index, guard, &mut || advance.row())?;
        }
        Ok(())
    }
}

/// Makes a row of the new layout out of one of the old.
type Convert<'a> = dyn Fn(&[u8], &mut Vec<u8>) -> Result<()> + 'a;

/// A change of a table's definition under way: the table is held until it is dropped.
struct Change<'a> {
    inner: &'a Inner,
    entry: Arc<TableEntry>,
    maintenance: Option<MutexGuard<'a, ()>>,
    _definition: MutexGuard<'a, ()>,
}

impl<'a> Change<'a> {
    /// The form that is to be changed. It stays until [`Change::finish`]: only who holds the table replaces it.
    fn old(&self) -> &TableForm {
        // SAFETY: the table is held, by this change, which replaces the form only when it ends.
        unsafe { &*self.entry.form() }
    }

    /// Gives the rows in the cold store their entries in a new index. That may take long: maintenance and checkpoints go
    /// on, which leave a held table alone, or only read it.
    fn fill_cold(&mut self, index: &IndexForm, advance: &mut Advance<'_>) -> Result<Option<ColdFill<'a>>> {
        // SAFETY: the table is held, by this change, which replaces the form only later.
        let old = unsafe { FormRef::of(&self.entry) }.get();
        if !old.counters.cold.load(std::sync::atomic::Ordering::SeqCst) {
            return Ok(None);
        }
        // Uses up the index's number, and makes the log durable past the moves of what is cold.
        self.inner.write_definitions()?;
        self.maintenance = None;
        let filled = self.inner.fill_cold_index(old, index, advance);
        self.maintenance = Some(self.inner.maintenance.lock());
        filled
    }

    /// Does each row in the cold store fit the layout of a new form, with a column of at most `added` bytes more? They do if the
    /// longest of them does, those that have moved since it was looked for included. Only else all are looked at again, now that
    /// the table is held. Maintenance goes on.
    fn check_cold_lengths(
        &mut self,
        new: &TableForm,
        longest: u64,
        added: u64,
        advance: &mut Advance<'_>,
    ) -> Result<()> {
        let longest = longest.max(new.counters.longest_moved.load(Ordering::Relaxed));
        if !new.has_past() || !may_be_too_long(&new.schema) || longest + added <= MAX_ROW_BYTES as u64 {
            return Ok(());
        }
        self.maintenance = None;
        let outcome = self.inner.check_cold_lengths(new, advance);
        self.maintenance = Some(self.inner.maintenance.lock());
        outcome
    }

    /// Shows everybody the new form, durably, or leaves the old one.
    fn finish(&mut self, new: TableForm) -> Result<()> {
        self.inner.swap_form(&self.entry, new)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.maintenance = None;
        self.entry.let_go();
    }
}

impl Database {
    /// Creates a table. Durable when this returns.
    ///
    /// # Errors
    /// The definition is not acceptable, or a table has the name.
    pub fn create_table(&self, schema: TableSchema) -> Result<Table> {
        self.inner().defining(|| self.try_create_table(schema.clone()))
    }

    fn try_create_table(&self, schema: TableSchema) -> Result<Table> {
        let inner = self.inner();
        inner.may_define()?;
        schema.check()?;
        let _definition = inner.definition.lock();
        let name = schema.name.clone();
        if inner.catalog.by_name(&name).is_some() {
            return Err(SchemaError::DuplicateTable { table: name }.into());
        }
        let id = inner.catalog.fresh_table_id();
        let stored = StoredTable {
            id,
            schema,
            index_ids: Vec::new(),
            layout_version: 1,
            since: Timestamp(0),
            emptied: Timestamp(0),
            past: Vec::new(),
            auto: 0,
            hidden: 0,
        };
        let form = inner.make_form(stored, Arc::default())?;
        let entry = Arc::new(TableEntry::new(id, &inner.epochs, form));
        // Whoever finds the table meanwhile waits: no row may be committed before the table is durable.
        if !mutation::off(Rule::TableDurableBeforeUse) {
            entry.hold();
        }
        let _maintenance = inner.maintenance.lock();
        inner.catalog.add(&name, Arc::clone(&entry));
        let outcome = inner.write_definitions();
        if outcome.is_err() {
            inner.catalog.remove(&name);
            entry.mark_dropped();
        }
        entry.let_go();
        outcome.map(|()| Table { db: Arc::clone(inner), entry })
    }

    /// Drops a table with all its rows.
    ///
    /// # Errors
    /// There is none with this name, or transactions use it for too long.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let inner = self.inner();
        let change = inner.change(name)?;
        inner.catalog.remove(name);
        if let Err(error) = inner.write_definitions() {
            inner.catalog.add(name, Arc::clone(&change.entry));
            return Err(error);
        }
        change.entry.mark_dropped();
        // Handles keep the entry; its memory goes now. If there is none for an empty form, it goes with the last handle.
        let old = change.old();
        if let Ok(empty) = inner.make_form(old.stored(), Arc::clone(&old.counters)) {
            inner.retire_form(change.entry.replace(old.emptied(empty)));
        }
        if let Some(cold) = inner.cold.get().filter(|cold| cold.may_drop()) {
            cold.store.drop_table(change.entry.id);
        }
        drop(change);
        inner.epochs.collect();
        Ok(())
    }

    /// Removes all rows of a table. Like a change of its definition, this is seen by older snapshots, too.
    ///
    /// # Errors
    /// There is none with this name, or transactions use it for too long.
    pub fn truncate_table(&self, name: &str) -> Result<()> {
        self.inner().defining(|| self.try_truncate_table(name))
    }

    fn try_truncate_table(&self, name: &str) -> Result<()> {
        let inner = self.inner();
        let mut change = inner.change(name)?;
        let old = change.old();
        let now = inner.registry.clock.tick();
        let stored = StoredTable { since: now, emptied: now, ..old.stored() };
        let new = inner.make_form(stored, Arc::clone(&old.counters))?;
        let entry = Arc::clone(&change.entry);
        change.finish(new)?;
        if let Some(cold) = inner.cold.get().filter(|cold| cold.may_drop()) {
            entry.form_pinned(&inner.epochs.pin()).drop_emptied(cold, true);
        }
        Ok(())
    }

    /// Creates a secondary index on the rows that are there.
    ///
    /// # Errors
    /// The definition is not acceptable; the index is unique and two rows have one key; transactions use the table for
    /// too long.
    pub fn create_index(&self, table: &str, index: IndexSchema) -> Result<Index> {
        self.create_index_with(table, index, silent)
    }

    pub(crate) fn try_create_index(
        &self,
        table: &str,
        index: IndexSchema,
        advance: &mut Advance<'_>,
    ) -> Result<Index> {
        let inner = self.inner();
        let looks = 1 + u64::from(index.unique);
        let mut change = inner.change_after(table, advance, |form, advance| {
            advance.begin(looks * (entries_of(form) + inner.cold_records(form.id)))
        })?;
        let old = change.old();
        let mut schema = old.schema.clone();
        schema.indexes.push(index.clone());
        schema.check()?;
        let fresh = inner.make_index(inner.catalog.fresh_index_id(), &schema, &index, &old.layout)?;
        let id = fresh.id;
        let guard = inner.epochs.pin();
        inner.fill_index(old, &fresh, &guard, &mut || advance.row())?;
        inner.check_unique(old, &fresh, &guard, advance)?;
        drop(guard);
        let filled = change.fill_cold(&fresh, advance)?;
        advance.tell()?;
        let old = change.old();
        let mut indexes = old.indexes.clone();
        indexes.push(fresh);
        let new = TableForm { schema, indexes, ..old.share() };
        let entry = Arc::clone(&change.entry);
        change.finish(new)?;
        if let Some(filled) = filled {
            filled.keep();
        }
        Ok(Index { db: Arc::clone(inner), entry, id })
    }

    /// Drops a secondary index.
    ///
    /// # Errors
    /// There is no such index, or it is the primary key.
    pub fn drop_index(&self, table: &str, index: &str) -> Result<()> {
        let inner = self.inner();
        let mut change = inner.change(table)?;
        let old = change.old();
        let position = old
            .indexes
            .iter()
            .position(|form| form.schema.name == index)
            .ok_or_else(|| Error::UnknownIndex { table: table.to_owned(), index: index.to_owned() })?;
        if position == 0 {
            return Err(SchemaError::PrimaryKey { table: table.to_owned() }.into());
        }
        let (mut schema, mut indexes) = (old.schema.clone(), old.indexes.clone());
        schema.indexes.remove(position - 1);
        let gone = secondary_of(old.id, indexes.remove(position).id);
        let new = TableForm { schema, indexes, ..old.share() };
        change.finish(new)?;
        if let Some(cold) = inner.cold.get().filter(|cold| cold.may_drop()) {
            cold.store.drop_index(gone);
        }
        Ok(())
    }

    /// Gives a table another name.
    ///
    /// # Errors
    /// There is no such table, or the new name is taken or no name.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        let inner = self.inner();
        let mut change = inner.change(from)?;
        if inner.catalog.by_name(to).is_some() {
            return Err(SchemaError::DuplicateTable { table: to.to_owned() }.into());
        }
        let old = change.old();
        let schema = TableSchema { name: to.to_owned(), ..old.schema.clone() };
        schema.check()?;
        let new = TableForm { schema, ..old.share() };
        inner.catalog.rename(from, to);
        change.finish(new).inspect_err(|_| inner.catalog.rename(to, from))
    }

    /// Says anew where the rows of a table may go. Rows that are in the cold store already come back only as they are
    /// read or changed.
    ///
    /// # Errors
    /// There is no such table, or the tiering does not exist yet.
    pub fn alter_tiering(&self, table: &str, tiering: Tiering) -> Result<()> {
        let mut change = self.inner().change(table)?;
        let old = change.old();
        let schema = old.schema.clone().tiering(tiering);
        schema.check()?;
        let new = TableForm { schema, ..old.share() };
        change.finish(new)
    }

    /// Gives a column another name.
    ///
    /// # Errors
    /// There is no such table or column, or the new name is taken or no name.
    pub fn rename_column(&self, table: &str, from: &str, to: &str) -> Result<()> {
        let inner = self.inner();
        let mut change = inner.change(table)?;
        let old = change.old();
        let position = old.column(from)?;
        let mut schema = old.schema.clone();
        to.clone_into(&mut schema.columns[position].name);
        for index in schema.primary.iter_mut().chain(&mut schema.indexes) {
            for (name, _) in index.columns.iter_mut().filter(|(name, _)| name == from) {
                to.clone_into(name);
            }
        }
        schema.check()?;
        let layout = Layout::new(&schema.columns).map_err(|error| Inner::schema_error(table, error))?;
        // The indexes stay as they are: only their own memory of the names in messages is older.
        let mut stored = StoredTable { since: inner.registry.clock.tick(), ..old.stored() };
        old.note_past(&mut stored, PastChange::Renamed);
        let past = Past::new(&stored.past, &schema)?;
        let new = TableForm { schema, layout: Arc::new(layout), past: Arc::new(past), ..old.share() };
        change.finish(new)
    }

    /// Adds a column at the end; the rows that are there get its default, or null.
    ///
    /// # Errors
    /// There is no such table; the name is taken; the column is neither nullable nor has a default.
    pub fn add_column(&self, table: &str, column: Column) -> Result<()> {
        self.add_column_with(table, column, silent)
    }

    pub(crate) fn try_add_column(&self, table: &str, column: &Column, advance: Advance<'_>) -> Result<()> {
        if !column.nullable && column.default.is_none() {
            return Err(
                SchemaError::NoDefault { table: table.to_owned(), column: column.name.clone() }.into()
            );
        }
        let value = column.default.clone().unwrap_or(Value::Null);
        self.change_columns(
            table,
            &mut |schema| {
                schema.columns.push(column.clone());
                Ok(())
            },
            None,
            &|values| values.push(value.clone()),
            advance,
        )
    }

    /// Drops a column.
    ///
    /// # Errors
    /// There is no such table or column, the column is part of an index, or it is the last one.
    pub fn drop_column(&self, table: &str, column: &str) -> Result<()> {
        self.drop_column_with(table, column, silent)
    }

    pub(crate) fn try_drop_column(&self, table: &str, column: &str, advance: Advance<'_>) -> Result<()> {
        let position = self.table(table)?.with_form(|form| form.column(column))?;
        self.change_columns(
            table,
            &mut |schema| {
                if schema.columns.get(position).is_none_or(|found| found.name != column) {
                    let (table, column) = (table.to_owned(), column.to_owned());
                    return Err(SchemaError::UnknownColumn { table, column }.into());
                }
                let user = schema
                    .primary
                    .iter()
                    .chain(&schema.indexes)
                    .find(|index| index.columns.iter().any(|(name, _)| name == column));
                if let Some(index) = user {
                    return Err(SchemaError::ColumnInUse {
                        table: table.to_owned(),
                        column: column.to_owned(),
                        index: index.name.clone(),
                    }
                    .into());
                }
                schema.columns.remove(position);
                Ok(())
            },
            Some(position),
            &|values| {
                values.remove(position);
            },
            advance,
        )
    }

    fn change_columns(
        &self,
        table: &str,
        alter: &mut dyn FnMut(&mut TableSchema) -> Result<()>,
        dropped: Option<usize>,
        convert: &dyn Fn(&mut Vec<Value>),
        advance: Advance<'_>,
    ) -> Result<()> {
        let advance = RefCell::new(advance);
        let make_room = || {
            if let Err(error) = self.inner().move_half(table, &mut advance.borrow_mut()) {
                tracing::debug!(%error, "rows stay in memory beside which their columns are to change");
            }
        };
        let change = || self.try_change_columns(table, alter, dropped, convert, &mut advance.borrow_mut());
        self.inner().defining_with(change, make_room)
    }

    fn try_change_columns(
        &self,
        table: &str,
        alter: &mut dyn FnMut(&mut TableSchema) -> Result<()>,
        dropped: Option<usize>,
        convert: &dyn Fn(&mut Vec<Value>),
        advance: &mut Advance<'_>,
    ) -> Result<()> {
        let inner = self.inner();
        // While the table is in use still: that takes long, and what moves meanwhile is known.
        let mut longest = 0;
        let mut change = inner.change_after(table, advance, |form, advance| {
            let looks_cold = dropped.is_none() && may_be_too_long(&form.schema);
            let cold = if looks_cold { inner.cold_records(form.id) } else { 0 };
            advance.begin(entries_of(form) * (1 + form.indexes.len() as u64) + cold)?;
            longest = if looks_cold { inner.longest_cold_row(form, advance)? } else { 0 };
            Ok(())
        })?;
        let old = change.old();
        let mut stored = old.stored();
        alter(&mut stored.schema)?;
        stored.layout_version += 1;
        stored.since = inner.registry.clock.tick();
        let change_of = match dropped {
            Some(column) => PastChange::Dropped(u32::try_from(column).expect("a table has few columns")),
            None => PastChange::Added,
        };
        old.note_past(&mut stored, change_of);
        let new = inner.make_form(stored, Arc::clone(&old.counters))?;
        let added = new.schema.columns.last().filter(|_| dropped.is_none()).map_or(0, most_bytes);
        if dropped.is_none() {
            change.check_cold_lengths(&new, longest, added, advance)?;
        }
        let old = change.old();
        let row_error = |source| Error::Row { table: table.to_owned(), source };
        inner.rewrite(
            old,
            &new,
            &|row, out| {
                let mut values = old.layout.decode(row).map_err(row_error)?;
                convert(&mut values);
                new.layout.encode(&values, out).map_err(row_error)
            },
            &inner.epochs.pin(),
            advance,
        )?;
        advance.tell()?;
        let counters = Arc::clone(&new.counters);
        change.finish(new)?;
        // Rows that have moved are longer now, as the table has them.
        counters.longest_moved.fetch_add(added, Ordering::Relaxed);
        Ok(())
    }
}

impl Inner {
    /// Replaces the form of a held table, durably, or not at all.
    fn swap_form(&self, entry: &Arc<TableEntry>, new: TableForm) -> Result<()> {
        let (layout, since) = (new.layout_version, new.since);
        let old = entry.replace(new);
        let outcome = if old.layout_version != layout {
            self.write_definitions_with(entry)
        } else if old.since != since {
            self.write_definitions_dropping(Some(entry.id))
        } else {
            self.write_definitions()
        };
        match outcome {
            Ok(()) => {
                self.retire_form(old);
                self.epochs.collect();
                Ok(())
            }
            Err(error) => {
                let refused = entry.replace(*old);
                self.retire_form(refused);
                Err(error)
            }
        }
    }
}

impl TableForm {
    /// Tells the store that it may forget what was in the table before it was emptied. `now`: see
    /// [`drop_batches`](crate::cold::store::ColdStore::drop_batches).
    pub(crate) fn drop_emptied(&self, cold: &Cold, now: bool) {
        if self.emptied == Timestamp(0) {
            return;
        }
        let secondaries = self.indexes[1..].iter().map(|index| secondary_of(self.id, index.id));
        for index in std::iter::once(primary_of(self.id)).chain(secondaries) {
            cold.store.drop_batches(index, BatchId(self.emptied.0), now);
        }
    }

    /// Enters the present columns among the past ones, as of `stored.since`.
    fn note_past(&self, stored: &mut StoredTable, change: PastChange) {
        stored.past.push(PastColumns { until: stored.since, columns: self.schema.columns.clone(), change });
        // As long as there are cold rows, some of them may be of any of these layouts.
        if !self.counters.cold.load(std::sync::atomic::Ordering::SeqCst) {
            let surplus = stored.past.len().saturating_sub(KEPT);
            stored.past.drain(..surplus);
        }
    }

    /// Its definition as the manifest keeps it.
    pub(crate) fn stored(&self) -> StoredTable {
        StoredTable {
            id: self.id,
            schema: self.schema.clone(),
            index_ids: self.indexes.iter().map(|index| index.id).collect(),
            layout_version: self.layout_version,
            since: self.since,
            emptied: self.emptied,
            past: self.past.stored(),
            auto: self.counters.auto.load(std::sync::atomic::Ordering::Relaxed),
            hidden: self.counters.hidden.load(std::sync::atomic::Ordering::Relaxed),
        }
    }

    /// The same form once more, sharing rows and indexes.
    fn share(&self) -> Self {
        Self {
            id: self.id,
            schema: self.schema.clone(),
            layout: Arc::clone(&self.layout),
            layout_version: self.layout_version,
            since: self.since,
            emptied: self.emptied,
            past: Arc::clone(&self.past),
            store: Arc::clone(&self.store),
            indexes: self.indexes.clone(),
            counters: Arc::clone(&self.counters),
            suffix_bytes: self.suffix_bytes,
            auto_column: self.auto_column,
        }
    }

    /// `empty`, under this form's name: what handles of a dropped table see.
    fn emptied(&self, empty: Self) -> Self {
        Self { id: TableId(self.id.0), ..empty }
    }

    /// Number of a column.
    fn column(&self, name: &str) -> Result<usize> {
        self.schema.column_index(name).ok_or_else(|| {
            SchemaError::UnknownColumn { table: self.schema.name.clone(), column: name.to_owned() }.into()
        })
    }
}
