//! Reading ahead: rows that are cold or on the paged side are read before they are asked for, many at a time.
//!
//! A transaction that needs ten such rows, and knows their keys, waits for the device once and not ten times; and it does
//! so before it has locked anything or taken its snapshot. This changes nothing but times, since the operations look for themselves:
//! they find pages of the cold store in its frames, and rows of the paged side in the transaction's [hand](crate::hot::paged::Hand).

use std::future::{Future, poll_fn};
use std::ops::{Bound, ControlFlow};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use thermocline_base::ids::{IndexId, RowId, TableId};
use thermocline_base::sync::Ordering;
use thermocline_pool::store::{Direction, IndexId as StoreIndex};

use crate::catalog::table::{IndexForm, Structure, TableEntry, TableForm};
use crate::cold::Cold;
use crate::cold::store::{behind, primary_of, secondary_of, split_secondary};
use crate::hot::paged::{Absent, HeldRow};
use crate::index::hash_of;
use crate::index::tree::{Batch, Direction as TreeDirection};
use crate::ops::Step;
use crate::session::Session;
use crate::session::db::Inner;

/// Keys that are read at a time, at most.
const TOGETHER: usize = 32;

/// What is to be read.
pub(crate) enum Ahead {
    /// A row on the paged side.
    Row(Box<Absent>),
    /// A primary key.
    Key(StoreIndex, Box<[u8]>),
    /// The first entries of a secondary index whose keys begin with this, and the records that they lead to.
    Prefix(StoreIndex, StoreIndex, Box<[u8]>),
}

impl Session {
    /// The keys that lead to rows on the paged side whose pages are not there, and the primary keys that lead to nothing in memory, and
    /// perhaps to something in the cold store.
    pub(crate) fn keys_to_read<'k>(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Vec<Ahead> {
        let Some((cold, form)) = self.table_to_read(entry) else { return Vec::new() };
        let Some(index) = form.index(index) else { return Vec::new() };
        let cold = cold.filter(|_| index.id == form.primary().id);
        let store_index = primary_of(form.id);
        let guard = self.db().epochs.pin();
        let (mut what, mut away) = (Vec::new(), Vec::new());
        for key in keys {
            if what.len() + away.len() == TOGETHER {
                break;
            }
            let _frame = guard.frame();
            let note = |row| match form.store.directory.newest_if_there(row, &self.hand, &guard) {
                Ok(Some(newest)) if !newest.is_tombstone() => ControlFlow::Break(None),
                // A moved mark leads to the store.
                Ok(_) => ControlFlow::Continue(()),
                Err(absent) => ControlFlow::Break(Some(absent)),
            };
            let in_memory = match &index.structure {
                Structure::Hash(hash) => hash.lookup(&guard, hash_of(key), note),
                Structure::Tree(tree) => tree.lookup(&guard, key, note),
            };
            match in_memory {
                Some(Some(absent)) => what.push(Ahead::Row(absent)),
                Some(None) => {}
                None => away.push(key),
            }
        }
        if let Some(cold) = cold {
            away.iter().for_each(|key| cold.store.prefetch(store_index, key));
            let there = away.into_iter().filter(|key| cold.store.may_contain(store_index, key));
            what.extend(there.map(|key| Ahead::Key(store_index, key.into())));
        }
        what
    }

    /// The rows on the paged side that the first entries of an index lead to whose keys begin with a prefix, and the prefix, if something
    /// in the cold store may begin with it.
    pub(crate) fn prefix_to_read(
        &mut self,
        entry: &Arc<TableEntry>,
        index: IndexId,
        prefix: &[u8],
    ) -> Vec<Ahead> {
        let Some((cold, form)) = self.table_to_read(entry) else { return Vec::new() };
        let Some(index) = form.index(index) else { return Vec::new() };
        let mut what = self.paged_rows(form, index, prefix);
        let store_index = secondary_of(form.id, index.id);
        if index.id != form.primary().id
            && cold.is_some_and(|cold| {
                cold.store.may_contain_range(store_index, prefix, behind(prefix).as_deref())
            })
        {
            what.push(Ahead::Prefix(store_index, primary_of(form.id), prefix.into()));
        }
        what
    }

    /// The rows on the paged side, not there, that the first entries of an ordered index lead to whose keys begin with a prefix.
    fn paged_rows(&self, form: &TableForm, index: &IndexForm, prefix: &[u8]) -> Vec<Ahead> {
        let (Some(_), Structure::Tree(tree)) = (self.db().paged.get(), &index.structure) else {
            return Vec::new();
        };
        let guard = self.db().epochs.pin();
        let mut batch = Batch::new();
        batch.set_entries_max(TOGETHER);
        let from = Bound::Included((prefix, RowId(0)));
        tree.scan_batch(&guard, from, Bound::Unbounded, TreeDirection::Forward, &mut batch);
        let rows = batch.iter().take_while(|(key, _)| key.starts_with(prefix)).map(|(_, row)| row);
        let absent = |row| {
            let _frame = guard.frame();
            form.store.directory.newest_if_there(row, &self.hand, &guard).err().map(Ahead::Row)
        };
        rows.filter_map(absent).collect()
    }

    /// The table, if reading ahead is of any use for it, and the cold store, if some of its rows are there.
    fn table_to_read<'a>(&mut self, entry: &Arc<TableEntry>) -> Option<(Option<&'a Cold>, &'a TableForm)> {
        let db = self.db();
        let cold = db.cold.get().filter(|cold| cold.store.keeps_pages());
        if cold.is_none() && db.paged.get().is_none() {
            return None;
        }
        let Ok(Step::Done(form)) = self.touch(entry) else { return None };
        let form = form.get();
        let cold = cold.filter(|_| form.counters.cold.load(Ordering::Relaxed));
        (cold.is_some() || db.paged.get().is_some()).then_some((cold, form))
    }
}

/// Reads them all, at the same time: the rows on the paged side. What fails here fails again in the operation that needs it.
pub(crate) async fn read_ahead(db: &Inner, what: &[Ahead]) -> Vec<HeldRow> {
    let reads = what.iter().map(|ahead| -> Reading<'_> {
        match ahead {
            Ahead::Row(absent) => Box::pin(async { absent.bring().await.ok() }),
            Ahead::Key(index, key) => read(db, *index, key),
            Ahead::Prefix(index, primary, prefix) => Box::pin(async {
                let cold = db.cold.get()?;
                let mut scan = cold.store.scan(*index, prefix, behind(prefix).as_deref(), Direction::Forward);
                let mut records = Vec::new();
                while records.len() < TOGETHER
                    && let Ok(Some(found)) = scan.next().await
                {
                    let primary_key = split_secondary(&found.key).map(|(_, key)| key);
                    records.extend(primary_key.map(|key| read(db, *primary, key)));
                }
                All::of(records).await;
                None
            }),
        }
    });
    All::of(reads.collect()).await
}

fn read<'a>(db: &'a Inner, index: StoreIndex, key: &[u8]) -> Reading<'a> {
    let key = Box::<[u8]>::from(key);
    Box::pin(async move {
        let mut get = db.cold.get()?.store.get(index, &key);
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
        None
    })
}

/// A row is its outcome, if it is on the paged side.
type Reading<'a> = Pin<Box<dyn Future<Output = Option<HeldRow>> + Send + 'a>>;

/// Ready when all of them are.
struct All<'a> {
    reads: Vec<Option<Reading<'a>>>,
    rows: Vec<HeldRow>,
}

impl<'a> All<'a> {
    fn of(reads: Vec<Reading<'a>>) -> Self {
        Self { reads: reads.into_iter().map(Some).collect(), rows: Vec::new() }
    }
}

impl Future for All<'_> {
    type Output = Vec<HeldRow>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<HeldRow>> {
        let Self { reads, rows } = &mut *self;
        let mut pending = false;
        for slot in reads {
            if let Some(read) = slot {
                match read.as_mut().poll(context) {
                    Poll::Ready(row) => {
                        rows.extend(row);
                        *slot = None;
                    }
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(std::mem::take(rows)) }
    }
}
