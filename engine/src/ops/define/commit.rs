//! How changes of definitions end: by a commit that everybody sees, or undone.
//!
//! ```text
//!   definitions locked ─► log space ─► timestamp ─► record: what the catalog becomes, then rows ─► forms and names switched ─► unlocked
//! ```
//!
//! Rules:
//! - The lock of definitions lies around the commit, from before the space in the log is reserved until the switch. Under it a
//!   manifest reads the clock and the catalog, so it has all definitions with timestamps up to that, and no others; and a
//!   checkpoint notes where replay starts, so a definition whose record lies before that has been switched by then.
//! - The record names the definitions before the rows: replay makes a table before it fills it. Rows of a storage that the
//!   transaction has made and given up again are not logged.
//! - What a definition frees in the cold store goes when the log is durable past its commit ([`free_replaced`]). What it
//!   frees in memory goes under the lock of maintenance, whose work may be following it.

use std::collections::BTreeMap;
use std::sync::Arc;

use thermocline_base::ids::{Lsn, TableId, Timestamp};
use thermocline_pool::store::{BatchId, IndexId as StoreIndex};

use crate::catalog::table::{TableEntry, TableForm};
use crate::cold::Cold;
use crate::cold::store::{primary_of, secondary_of};
use crate::error::{Error, Result};
use crate::log::record::WRITE_BYTES;
use crate::mutation::{self, Rule};
use crate::schema::{Redefined, StoredTable};
use crate::session::Session;
use crate::session::db::Inner;
use crate::session::replaced::{ColdGarbage, Replaced};
use crate::txn::definitions::{Changed, Definitions, OwnForm, What};

impl ColdGarbage {
    fn drop_from(&self, cold: &Cold) {
        match self {
            Self::Table(table) => cold.store.drop_table(*table),
            Self::Index(index) => cold.store.drop_index(*index),
            Self::Batches(indexes, until) => {
                indexes.iter().for_each(|index| cold.store.drop_batches(*index, BatchId(until.0), true));
            }
        }
    }
}

impl Session {
    /// What the commit does to the catalog, as the log keeps it. `None`: nothing.
    pub(crate) fn redefined(&mut self) -> Option<Vec<u8>> {
        let db = self.db();
        let definitions = self.definitions.as_mut().filter(|definitions| !definitions.changes.is_empty())?;
        definitions.note_dead();
        let (mut tables, mut dropped) = (Vec::new(), Vec::new());
        for entry in definitions.tables() {
            match (definitions.has_made(&entry), definitions.has_dropped(&entry)) {
                (true, true) => {}
                (false, true) => dropped.push(entry.id),
                (_, false) => {
                    let form = definitions.last_form(&entry).expect("it was changed").get();
                    tables.push(StoredTable { id: entry.id, ..form.stored() });
                }
            }
        }
        Some(db.catalog.redefined(tables, dropped).encode())
    }

    /// Bytes of the log that this takes.
    pub(crate) fn redefined_bytes(redefined: Option<&Vec<u8>>) -> u64 {
        redefined.map_or(0, |bytes| (WRITE_BYTES + bytes.len()) as u64)
    }

    /// The commit has drawn its timestamp, and its record, which ends at `lsn`, is whole: everybody has the transaction's forms and
    /// names from now on. Under the lock of definitions.
    pub(crate) fn switch_definitions(&mut self, end: Timestamp, lsn: Lsn) {
        let db = self.db();
        let Some(definitions) = &mut self.definitions else { return };
        let mut garbage = Vec::new();
        let tables = definitions.tables();
        let guard = db.epochs.pin();
        let mut names = Vec::new();
        for entry in &tables {
            let (made, dropped) = (definitions.has_made(entry), definitions.has_dropped(entry));
            let before = (!made).then(|| entry.form_pinned(&guard).schema.name.clone());
            if dropped {
                entry.set_pending(std::ptr::null_mut(), 0);
                if !made {
                    garbage.push(ColdGarbage::Table(entry.id));
                    names.push((Arc::clone(entry), before, None));
                }
                continue;
            }
            let first_emptied = entry.form_pinned(&guard).emptied.get();
            if let Some(form) = entry.pending(&guard) {
                form.settle(end);
            }
            if let Some(old) = entry.adopt_pending() {
                // SAFETY: it came from the entry, which has another form now.
                definitions.replaced.push(unsafe { OwnForm::replaced(old) });
            }
            let form = entry.form_pinned(&guard);
            if form.emptied.get() != first_emptied {
                let indexes = form.store_indexes().collect();
                garbage.push(ColdGarbage::Batches(indexes, form.emptied.get()));
            }
            names.push((Arc::clone(entry), before, Some(form.schema.name.clone())));
        }
        garbage.extend(definitions.dropped_indexes(&guard).map(ColdGarbage::Index));
        let all: Vec<_> = names
            .iter()
            .map(|(entry, before, after)| (Arc::clone(entry), before.as_deref(), after.as_deref()))
            .collect();
        db.catalog.rename_all(&all);
        for entry in tables.iter().filter(|entry| definitions.has_dropped(entry)) {
            entry.mark_dropped();
        }
        db.redefining.leave(garbage.into_iter().map(|what| Replaced::Cold(lsn, what)));
    }

    /// Undoes changes of definitions down to the first `changes`, whose rows have been undone, and gives up what was held and
    /// claimed since.
    pub(crate) fn undo_definitions(&mut self, changes: usize, held: usize, claimed: usize) {
        let db = self.db();
        let Some(mut definitions) = self.definitions.take() else { return };
        while definitions.changes.len() > changes
            && let Some(change) = definitions.take_last()
        {
            self.undo_definition(&change, definitions.number);
            definitions.undone.push(change);
        }
        for entry in definitions.held.drain(held.min(definitions.held.len())..) {
            entry.hold.let_go(self.place_index);
        }
        for name in definitions.claimed.drain(claimed.min(definitions.claimed.len())..) {
            db.catalog.release(&name);
        }
        self.cold_cache.clear();
        self.definitions = Some(definitions);
    }

    fn undo_definition(&mut self, change: &Changed, number: u64) {
        let touched = &mut self.tables[change.touched];
        touched.entry = Arc::as_ptr(&change.entry);
        touched.form = change.form_before;
        match &change.what {
            What::Created => change.entry.mark_dropped(),
            What::Altered { before, .. } => {
                let number = if before.is_null() { 0 } else { number };
                change.entry.set_pending(*before, number);
            }
            What::Dropped => {}
        }
        if let Some(index) = change.cold_index
            && let Some(cold) = self.db.cold.get().filter(|cold| cold.may_drop())
        {
            cold.store.drop_index(index);
        }
    }

    /// The transaction is over: gives up the tables and names that were its own. Nothing of it follows a form any more.
    pub(crate) fn end_definitions(&mut self) {
        let Some(definitions) = self.definitions.take() else { return };
        for entry in &definitions.held {
            // Whoever has looked at the number meanwhile has not seen what came of the hold.
            entry.count_definition();
            entry.hold.let_go(self.place_index);
        }
        for name in &definitions.claimed {
            self.db.catalog.release(name);
        }
        self.db.redefining.leave(definitions.into_replaced());
    }
}

impl Definitions {
    /// Indexes that the commit drops, of tables that stay.
    fn dropped_indexes(
        &self,
        guard: &thermocline_base::epoch::Guard<'_>,
    ) -> impl Iterator<Item = StoreIndex> {
        let mut dropped = Vec::new();
        for change in &self.changes {
            if self.has_dropped(&change.entry) {
                continue;
            }
            let kept = change.entry.form_pinned(guard);
            let before = change.form_before.get();
            let gone = before.indexes[1..].iter().filter(|index| kept.index(index.id).is_none());
            dropped.extend(gone.map(|index| secondary_of(before.id, index.id)));
        }
        dropped.sort_unstable();
        dropped.dedup();
        dropped.into_iter()
    }

    /// What is left to be freed when nothing of the transaction follows a form any more.
    fn into_replaced(self) -> Vec<Replaced> {
        let mut replaced: Vec<Replaced> = self.replaced.into_iter().map(Replaced::Form).collect();
        for change in self.changes {
            match change.what {
                // Everybody's, unless it was replaced itself.
                What::Altered { form, .. } if std::ptr::eq(form.pointer(), change.entry.form()) => {}
                What::Altered { form, .. } => replaced.push(Replaced::Form(form)),
                What::Dropped => replaced.push(Replaced::Table(change.entry)),
                What::Created => {}
            }
        }
        for change in self.undone {
            if let What::Altered { form, .. } = change.what {
                replaced.push(Replaced::Form(form));
            }
        }
        replaced
    }
}

impl TableForm {
    /// The commit that the form is made by has this timestamp. Before anybody else sees it.
    fn settle(&self, end: Timestamp) {
        self.changed.settle(end);
        self.emptied.settle(end);
        self.past.settle(end);
    }

    /// What the cold store calls its indexes.
    fn store_indexes(&self) -> impl Iterator<Item = StoreIndex> {
        let secondaries = self.indexes[1..].iter().map(|index| secondary_of(self.id, index.id));
        std::iter::once(primary_of(self.id)).chain(secondaries)
    }

    /// Tells the store that it may forget what was in the table before it was emptied. `now`: see
    /// [`drop_batches`](crate::cold::store::ColdStore::drop_batches).
    pub(crate) fn drop_emptied(&self, cold: &Cold, now: bool) {
        let emptied = self.emptied.get();
        if emptied != Timestamp(0) {
            self.store_indexes().for_each(|index| cold.store.drop_batches(index, BatchId(emptied.0), now));
        }
    }
}

/// Frees what changes of definitions have replaced, as far as it may go. Waits for what maintenance is at.
pub(crate) fn free_replaced(db: &Inner) {
    let durable = db.log().map_or(Lsn(u64::MAX), crate::log::Log::durable);
    let is_due = |lsn| lsn <= durable || mutation::off(Rule::DefinitionAfterLog);
    let due = db.redefining.take_due(is_due);
    if due.is_empty() {
        return;
    }
    let (mut forms, mut tables, mut cold_garbage) = (Vec::new(), Vec::new(), Vec::new());
    for what in due {
        match what {
            Replaced::Form(form) => forms.push(form),
            Replaced::Table(entry) => tables.push(entry),
            Replaced::Cold(_, garbage) => cold_garbage.push(garbage),
        }
    }
    if let Some(cold) = db.cold.get().filter(|cold| cold.may_drop()) {
        cold_garbage.iter().for_each(|garbage| garbage.drop_from(cold));
    }
    {
        let _maintenance = db.standstill.enter();
        for form in forms {
            retire_form(db, form.into_box());
        }
        // Handles keep the entry; its memory goes now. If there is none for an empty form, it goes with the last handle.
        for entry in tables {
            let guard = db.epochs.pin();
            let old = entry.form_pinned(&guard);
            if let Ok(empty) = db.forms().form(old.stored(), Arc::clone(&old.counters)) {
                retire_form(db, entry.replace(old.emptied_as(empty)));
            }
        }
    }
    db.epochs.collect();
}

/// Frees a form that was replaced, once nobody can be looking at it.
fn retire_form(db: &Inner, form: Box<TableForm>) {
    // A transaction that was missed still follows it, and is to do its harm in words.
    #[cfg(feature = "model")]
    if mutation::off(Rule::HoldBeforeLook) || mutation::off(Rule::MarkBeforeLook) {
        return db.redefining.keep_misused(form);
    }
    db.epochs.defer(move || drop(form));
}

/// Replay has come to a commit that changes definitions: makes them so. `storages`: which table has which rows.
pub(crate) fn redefine(
    inner: &Inner,
    redefined: Redefined,
    storages: &mut BTreeMap<TableId, Arc<TableEntry>>,
) -> Result<()> {
    inner.catalog.reach(redefined.next_table, redefined.next_index);
    let (mut names, mut kept) = (Vec::new(), Vec::new());
    for id in redefined.dropped {
        let Some(entry) = inner.catalog.by_id(id) else { continue };
        names.push((entry, None));
    }
    for stored in redefined.tables {
        let (id, name) = (stored.id, stored.schema.name.clone());
        let entry = match inner.catalog.by_id(id) {
            Some(entry) => {
                redefine_table(inner, &entry, stored)?;
                entry
            }
            None => Arc::new(TableEntry::new(id, &inner.epochs, inner.forms().form(stored, Arc::default())?)),
        };
        kept.push((entry, name));
    }
    let guard = inner.epochs.pin();
    names.extend(kept.into_iter().map(|(entry, name)| (entry, Some(name))));
    let before = |entry: &TableEntry| inner.catalog.name_of(entry.id);
    let befores: Vec<Option<String>> = names.iter().map(|(entry, _)| before(entry)).collect();
    let all: Vec<_> = names
        .iter()
        .zip(&befores)
        .map(|((entry, after), before)| (Arc::clone(entry), before.as_deref(), after.as_deref()))
        .collect();
    inner.catalog.rename_all(&all);
    storages.retain(|_, entry| !names.iter().any(|(other, _)| Arc::ptr_eq(entry, other)));
    for (entry, after) in &names {
        if after.is_some() {
            storages.insert(entry.form_pinned(&guard).storage, Arc::clone(entry));
        }
    }
    Ok(())
}

fn redefine_table(inner: &Inner, entry: &TableEntry, stored: StoredTable) -> Result<()> {
    let guard = inner.epochs.pin();
    let old = entry.form_pinned(&guard);
    let is_same = old.storage == stored.storage;
    let mut new = inner.forms().form(stored, Arc::clone(&old.counters))?;
    if is_same && new.layout_version == old.layout_version {
        new.store = Arc::clone(&old.store);
    } else if is_same {
        let made = OwnForm::new(new);
        let form = made.reference().get();
        // Rows that could not be read are missing among those that are written anew.
        old.store.damage.chunks().into_iter().for_each(|chunk| form.store.damage.note(chunk));
        let row_error = |source| Error::Row { table: form.schema.name.clone(), source };
        let convert = |row: &[u8], out: &mut Vec<u8>| {
            let renewed = form.renew_row(old.layout_version, row).map_err(row_error)?;
            out.extend_from_slice(&renewed);
            Ok(())
        };
        let outcome =
            crate::ops::define::rows::rewrite(inner, old, made.reference(), None, &convert, &mut || Ok(()));
        new = *made.into_box();
        outcome?;
    }
    let replaced = entry.replace(new);
    inner.epochs.defer(move || drop(replaced));
    Ok(())
}
