//! Freeing versions that nobody can see, between active snapshots too (as in the Steam paper, VLDB 2019).
//!
//! Every commit that replaces or deletes a row leaves an *item* (table, row) with the thread's shard. Items are worked
//! off in batches by the committing threads themselves and by the maintenance thread. For one batch the active
//! snapshots are read once ([`ActiveSnapshots`]); a version is kept if one of them, or one that may come, can see it.
//! A version that only a snapshot keeps is *parked*: its item waits until that snapshot has gone. At most one item
//! waits for a version (a mark in its header), so under one old snapshot and any number of updates the lists stay as
//! short as the list of versions that the snapshot really pins.
//!
//! A version whose older ones are all parked is *settled*: whoever prunes the chain stops there, because each of those
//! has its item. So under one old snapshot the version that it keeps, which is as cold as the snapshot is old, is not
//! touched by every later update of the row. Only the item that waited for a snapshot looks further, until it has
//! passed its own version. (A parked version was committed, and so was its successor; neither can become anything
//! else but free, which is why the mark need not be taken back.)
//!
//! Rules:
//! - One pruner a chain at a time: all under the latch of the row's slot.
//! - An index entry goes when no remaining version of the chain has its key (A → B → A keeps A), under the same latch.
//! - A row goes as a whole when only its tombstone is left.
//! - A table that is held for a change of its definition is left alone; its items wait.

use std::collections::{BTreeMap, VecDeque};

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{RowId, TableId, Timestamp};
use thermocline_base::sync::{CachePadded, Mutex, thread_index};

use crate::catalog::table::TableForm;
use crate::hot::chunk::{Found, Latched, Slot};
use crate::hot::version::{Begin, Version};
use crate::mutation::{self, Rule};
use crate::row::KeyBuf;
use crate::txn::registry::{ActiveSnapshots, Registry, State};

const SHARDS: usize = 16;
/// Items that a committing thread works off at once.
const BATCH: usize = 256;
/// Items that it leaves alone: so recent that some snapshot still pins most of what they would free.
const RECENT: usize = 1024;

/// A row with versions that may be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) table: TableId,
    pub(crate) row: RowId,
    /// The snapshot that the item waited for.
    pub(crate) waited_for: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Shard {
    fresh: VecDeque<Item>,
    parked: BTreeMap<u64, Vec<Item>>,
    parked_len: usize,
    /// How many fresh items there were when somebody looked who had time.
    seen_len: usize,
}

/// Items of all shards.
#[derive(Debug)]
pub(crate) struct Garbage {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
}

impl Garbage {
    /// No garbage.
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| CachePadded::default()).collect() }
    }

    /// Leaves items of a commit. Returns whether a batch has gathered.
    pub(crate) fn leave(&self, items: impl Iterator<Item = Item>) -> bool {
        let mut shard = self.shards[thread_index() % SHARDS].lock();
        shard.fresh.extend(items);
        shard.fresh.len() >= RECENT + BATCH
    }

    /// Parks items until `snapshot` has gone.
    pub(crate) fn park(&self, snapshot: Timestamp, item: Item) {
        let mut shard = self.shards[thread_index() % SHARDS].lock();
        shard.parked.entry(snapshot.0).or_default().push(Item { waited_for: Some(snapshot), ..item });
        shard.parked_len += 1;
    }

    /// Takes the oldest batch of the calling thread's fresh items, ordered by table.
    pub(crate) fn take_own(&self) -> Vec<Item> {
        let mut shard = self.shards[thread_index() % SHARDS].lock();
        let count = shard.fresh.len().saturating_sub(RECENT);
        let mut items: Vec<Item> = shard.fresh.drain(..count).collect();
        items.sort_unstable_by_key(|item| item.table);
        items
    }

    /// Takes all fresh items of all shards (if `patient`, of those only to which none has come since the last time), and
    /// the parked ones whose snapshot has gone, ordered by table.
    pub(crate) fn take_all(&self, active: &ActiveSnapshots, patient: bool) -> Vec<Item> {
        let mut items = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            // Whoever leaves items works them off himself once a batch has gathered, with warm caches.
            let fresh = shard.fresh.len();
            if patient && fresh != shard.seen_len {
                shard.seen_len = fresh;
            } else {
                items.extend(shard.fresh.drain(..));
                shard.seen_len = 0;
            }
            let gone: Vec<u64> =
                shard.parked.keys().copied().filter(|&snapshot| !active.holds(Timestamp(snapshot))).collect();
            for snapshot in gone {
                let freed = shard.parked.remove(&snapshot).expect("the key was just seen");
                shard.parked_len -= freed.len();
                items.extend(freed);
            }
        }
        items.sort_unstable_by_key(|item| item.table);
        items
    }

    /// Items that wait, fresh and parked.
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| {
                let shard = shard.lock();
                shard.fresh.len() + shard.parked_len
            })
            .sum()
    }
}

/// When a version begins, as far as the pruner is concerned: `None` while its transaction is not over.
fn committed(version: Version, registry: &Registry) -> Option<Timestamp> {
    match version.begin() {
        Begin::At(timestamp) => Some(timestamp),
        Begin::By(id) => match registry.state(id) {
            (State::Committed, end) => Some(end),
            _ => match version.begin() {
                Begin::At(timestamp) => Some(timestamp),
                Begin::By(_) => None,
            },
        },
    }
}

/// Asks the processor for what pruning these rows will look at: it would wait for one line after the other otherwise.
pub(crate) fn approach_rows(form: &TableForm, items: &[Item], guard: &Guard<'_>) {
    if items.len() == 1 || cfg!(feature = "model") {
        return;
    }
    let slots = || items.iter().filter_map(|item| form.store.directory.slot(item.row, guard));
    slots().for_each(Slot::prefetch);
    let newest = || {
        slots().filter_map(|slot| match slot.load() {
            Found::Newest(version) => Some(version),
            Found::Empty | Found::Moved | Found::Frozen(_) | Found::Left(_) => None,
        })
    };
    newest().for_each(Version::prefetch);
    newest().filter_map(|version| version.older(&form.store.memory)).for_each(Version::prefetch);
}

/// Frees what nobody can see of one row. `Some`: a version is kept for this snapshot alone, park an item for it.
pub(crate) fn prune_row(
    form: &TableForm,
    item: Item,
    registry: &Registry,
    active: &ActiveSnapshots,
    guard: &Guard<'_>,
) -> Vec<Timestamp> {
    let mut park = Vec::new();
    let Some(mut latched) = form.store.directory.latch(item.row, guard) else { return park };
    let memory = &form.store.memory;
    let Some(newest) = latched.newest() else { return park };
    let mut end = committed(newest, registry);
    // The version that the item waited for is still to come.
    let mut waiting = item.waited_for;
    let mut all_parked = true;
    // The last version that stays, and the one that was looked at last.
    let (mut newer, mut last) = (newest, newest);
    while !last.is_settled() || waiting.is_some() && mutation::on(Rule::WaiterPassesSettled) {
        let Some(version) = last.older(memory) else { break };
        let begin = committed(version, registry);
        if let (Some(begin), Some(end), Some(waited_for)) = (begin, end, waiting)
            && begin <= waited_for
            && waited_for < end
        {
            version.unpark();
            waiting = None;
        }
        let pin = match (begin, end) {
            // Its own transaction is taking it out.
            _ if version.is_superseded() => Some(None),
            (Some(begin), Some(end)) => active.pins(begin, end).map(Some),
            // Its own transaction, or the one that replaces it, is not over: it leaves an item then.
            _ => Some(None),
        };
        match pin {
            None => unlink(form, &latched, newer, version, guard),
            Some(snapshot) => {
                match snapshot {
                    None => all_parked = false,
                    Some(snapshot) => {
                        if !version.park() {
                            park.push(snapshot);
                        }
                    }
                }
                newer = version;
            }
        }
        last = version;
        end = begin;
    }
    if all_parked && newest.link() != 0 {
        newest.settle();
    }
    remove_dead_row(form, &mut latched, registry, guard);
    park
}

/// Takes a version out of its chain that its own transaction has overwritten with `newer`, right above it.
pub(crate) fn unlink_own(
    form: &TableForm,
    latched: &Latched<'_>,
    newer: Version,
    version: Version,
    guard: &Guard<'_>,
) {
    newer.set_link(version.link());
    if newer.keys_changed() || newer.is_tombstone() {
        remove_entries(form, latched.newest(), version, guard);
    }
    if version.keys_changed() {
        newer.mark_keys_changed();
    }
    form.store.retire(version);
}

fn unlink(form: &TableForm, latched: &Latched<'_>, newer: Version, version: Version, guard: &Guard<'_>) {
    newer.set_link(version.link());
    if newer.keys_changed() || mutation::off(Rule::EntryOutlivesKey) {
        remove_entries(form, latched.newest(), version, guard);
    }
    if version.keys_changed() {
        newer.mark_keys_changed();
    }
    form.store.retire(version);
}

/// Takes the index entries of an unlinked version out, except those that a version of `chain` still needs.
pub(crate) fn remove_entries(form: &TableForm, chain: Option<Version>, gone: Version, guard: &Guard<'_>) {
    if gone.is_tombstone() {
        return;
    }
    let (mut key, mut other) = (KeyBuf::new(), KeyBuf::new());
    for index in &form.indexes {
        index.key_of(form, gone, &mut key);
        let mut needed = false;
        let mut next = chain;
        while let Some(version) = next {
            if !version.is_tombstone() {
                index.key_of(form, version, &mut other);
                if index.same_entry(&key, &other) {
                    needed = true;
                    break;
                }
            }
            next = version.older(&form.store.memory);
        }
        if !needed || mutation::off(Rule::EntryOutlivesKey) {
            index.remove(guard, &key, gone.row_id());
        }
    }
}

/// Frees the row if only a committed tombstone is left of it.
fn remove_dead_row(form: &TableForm, latched: &mut Latched<'_>, registry: &Registry, guard: &Guard<'_>) {
    if let Some(last) = latched.newest()
        && last.is_tombstone()
        && last.link() == 0
        && committed(last, registry).is_some()
        && matches!(last.begin(), Begin::At(_))
    {
        latched.set(None);
        if let Some(chunk) = form.store.directory.get(last.row_id().chunk(), guard) {
            chunk.note_emptied();
        }
        form.store.retire(last);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use thermocline_base::io::MemoryIo;
    use thermocline_base::rng::Rng;

    use crate::row::{Column, KeyBuf, Type, Value};
    use crate::{Database, Durability, IndexSchema, Isolation, Options, TableSchema, TransactionOptions};

    const ROWS: i64 = 5;

    /// Updates, snapshots that come and go, and pruning, in random order. At no time are more versions left than the
    /// open snapshots and the present can see; in the end one of each row.
    fn any_order(seed: u64) {
        let options = Options::default().with_durability(Durability::Off).with_memory_limit(Some(64 << 20));
        let io = Arc::new(MemoryIo::new());
        let db = Database::open_with(Path::new(crate::options::IN_MEMORY), options, io, false)
            .expect("the options are fine");
        let schema = TableSchema::new("t")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("value", Type::Int8))
            .primary_key(IndexSchema::hash("t_key", &["id"]));
        let table = db.create_table(schema).expect("the definition is fine");
        let level = || TransactionOptions::new().isolation(Isolation::Snapshot);
        for id in 0..ROWS {
            db.run(level(), async |tx| tx.insert_values(&table, &[Value::Int8(id), Value::Int8(0)]).await)
                .expect("a fresh row");
        }
        let prune = || {
            crate::ops::prune::prune_all(db.inner(), false);
            db.inner().epochs.collect();
        };
        prune();
        let one_each = db.statistics().version_bytes_used;
        let (primary, layout) = (table.primary(), table.layout());
        let mut rng = Rng::new(seed);
        let (mut values, mut snapshots) = ([0; ROWS as usize], Vec::new());
        for round in 1..300 {
            match rng.below(10) {
                0 if snapshots.len() < 4 => {
                    let mut tx = db.begin(level()).expect("it begins");
                    // The snapshot is taken by the first read.
                    let read = crate::block_on(tx.read(&primary, &KeyBuf::new().i64(0), |_| ()));
                    assert!(read.expect("a read").is_some());
                    snapshots.push((tx, values));
                }
                1 | 2 if !snapshots.is_empty() => {
                    let index = rng.below(snapshots.len() as u64) as usize;
                    let (mut tx, seen) = snapshots.swap_remove(index);
                    for id in 0..ROWS {
                        let key = KeyBuf::new().i64(id);
                        let read = crate::block_on(tx.read(&primary, &key, |row| layout.i64(row, 1)));
                        assert_eq!(
                            read.expect("a read"),
                            Some(Some(seen[id as usize])),
                            "the snapshot moved"
                        );
                    }
                }
                3 | 4 => {
                    prune();
                    let most = one_each * (1 + snapshots.len() as u64);
                    let left = db.statistics().version_bytes_used;
                    assert!(left <= most, "{left} bytes of versions, {most} can be seen, round {round}");
                }
                _ => {
                    let id = rng.below(ROWS as u64) as i64;
                    let edited = db.run(level(), async |tx| {
                        tx.update(&primary, &KeyBuf::new().i64(id), |row| {
                            row.set_i64(1, round).map_err(|error| table.error(error))
                        })
                        .await
                    });
                    assert!(edited.expect("nobody competes").is_some());
                    values[id as usize] = round;
                }
            }
        }
        drop(snapshots);
        prune();
        assert_eq!(db.inner().garbage.len(), 0, "nobody holds a snapshot");
        assert_eq!(db.statistics().version_bytes_used, one_each, "a version was forgotten");
    }

    #[test]
    fn no_version_is_forgotten_whatever_the_order() {
        for seed in 0..40 {
            any_order(seed);
        }
    }

    #[cfg(feature = "model")]
    #[test]
    #[should_panic(expected = "bytes of versions")]
    fn an_item_that_stops_at_settled_versions_is_caught() {
        let _off = super::mutation::switch_off(super::Rule::WaiterPassesSettled);
        for seed in 0..40 {
            any_order(seed);
        }
    }
}
