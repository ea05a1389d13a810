//! Reading ahead: pages of cold rows are brought into the store's frames before they are asked for, many at a time.
//!
//! A transaction that needs ten cold rows, and knows their keys, waits for the device once and not ten times; and it does
//! so before it has locked anything or taken its snapshot. Nothing is remembered of what was read, so this changes nothing
//! but times: the operations look for themselves, and find the pages in memory.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use thermocline_base::ids::{IndexId, TableId};
use thermocline_base::sync::Ordering;
use thermocline_pool::store::{Direction, IndexId as StoreIndex};

use crate::catalog::table::{Structure, TableEntry, TableForm};
use crate::cold::Cold;
use crate::cold::store::{behind, primary_of, secondary_of, split_secondary};
use crate::index::hash_of;
use crate::ops::Step;
use crate::session::Session;
use crate::session::db::Inner;

/// Keys that are read at a time, at most.
const TOGETHER: usize = 32;

/// What is to be read.
pub(crate) enum Ahead {
    /// A primary key.
    Key(StoreIndex, Box<[u8]>),
    /// The first entries of a secondary index whose keys begin with this, and the records that they lead to.
    Prefix(StoreIndex, StoreIndex, Box<[u8]>),
}

impl Session {
    /// The primary keys that lead to nothing in memory, and perhaps to something in the cold store.
    pub(crate) fn keys_to_read<'k>(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Vec<Ahead> {
        let db = self.db();
        let Some((cold, form)) = self.table_to_read(entry) else { return Vec::new() };
        let Some(index) = form.index(index).filter(|index| index.id == form.primary().id) else {
            return Vec::new();
        };
        let store_index = primary_of(form.id);
        let guard = db.epochs.pin();
        let is_away = |key: &&[u8]| {
            let note = |row| match form.store.directory.newest(row, &guard) {
                Some(newest) if !newest.is_tombstone() => ControlFlow::Break(()),
                // A moved mark leads to the store.
                _ => ControlFlow::Continue(()),
            };
            let in_memory = match &index.structure {
                Structure::Hash(hash) => hash.lookup(&guard, hash_of(key), note),
                Structure::Tree(tree) => tree.lookup(&guard, key, note),
            };
            in_memory.is_none()
        };
        let away: Vec<&[u8]> = keys.filter(is_away).take(TOGETHER).collect();
        away.iter().for_each(|key| cold.store.prefetch(store_index, key));
        let there = away.into_iter().filter(|key| cold.store.may_contain(store_index, key));
        there.map(|key| Ahead::Key(store_index, key.into())).collect()
    }

    /// A prefix of a secondary index, if something in the cold store may begin with it.
    pub(crate) fn prefix_to_read(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        prefix: &[u8],
    ) -> Vec<Ahead> {
        let Some((cold, form)) = self.table_to_read(entry) else { return Vec::new() };
        if index == form.primary().id || form.index(index).is_none() {
            return Vec::new();
        }
        let store_index = secondary_of(form.id, index);
        match cold.store.may_contain_range(store_index, prefix, behind(prefix).as_deref()) {
            true => vec![Ahead::Prefix(store_index, primary_of(form.id), prefix.into())],
            false => Vec::new(),
        }
    }

    /// The table, if reading ahead is of any use for it.
    fn table_to_read<'a>(&mut self, entry: &Arc<TableEntry>) -> Option<(&'a Cold, &'a TableForm)> {
        let cold = self.db().cold.get().filter(|cold| cold.store.keeps_pages())?;
        let Ok(Step::Done(form)) = self.touch(entry) else { return None };
        let form = form.get();
        form.counters.cold.load(Ordering::Relaxed).then_some((cold, form))
    }
}

/// Reads them all, at the same time. What fails here fails again where somebody wants to know.
pub(crate) async fn read_ahead(db: &Inner, what: &[Ahead]) {
    let Some(cold) = db.cold.get() else { return };
    let reads = what.iter().map(|ahead| -> Reading<'_> {
        match ahead {
            Ahead::Key(index, key) => read(db, cold, *index, key),
            Ahead::Prefix(index, primary, prefix) => Box::pin(async {
                let mut scan = cold.store.scan(*index, prefix, behind(prefix).as_deref(), Direction::Forward);
                let mut records = Vec::new();
                while records.len() < TOGETHER
                    && let Ok(Some(found)) = scan.next().await
                {
                    let primary_key = split_secondary(&found.key).map(|(_, key)| key);
                    records.extend(primary_key.map(|key| Some(read(db, cold, *primary, key))));
                }
                All(records).await;
            }),
        }
    });
    All(reads.map(Some).collect()).await;
}

fn read<'a>(db: &'a Inner, cold: &'a Cold, index: StoreIndex, key: &[u8]) -> Reading<'a> {
    let key = Box::<[u8]>::from(key);
    Box::pin(async move {
        let mut get = cold.store.get(index, &key);
        let mut waits = false;
        let read = poll_fn(|context| {
            let answer = get.as_mut().poll(context);
            waits |= answer.is_pending();
            answer
        });
        drop(read.await);
        if waits && let Some(entry) = db.catalog.by_id(TableId(index.table)) {
            entry.form_pinned(&db.epochs.pin()).counters.reuse.note_device();
        }
    })
}

type Reading<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Ready when all of them are.
struct All<'a>(Vec<Option<Reading<'a>>>);

impl Future for All<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut pending = false;
        for slot in &mut self.0 {
            if let Some(read) = slot {
                match read.as_mut().poll(context) {
                    Poll::Ready(()) => *slot = None,
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    }
}
