//! The contract of cold stores, over all of them: one model, one suite.

mod direct;
mod direct_space;
mod model;

use std::sync::Arc;

use proptest::prelude::*;
use thermocline_base::ids::{IndexId, TableId};
use thermocline_base::multiplex::block_on;
use thermocline_base::rng::Rng;
use thermocline_base::sync::{AtomicBool, AtomicU64, Ordering};
use thermocline_frozen::{Builder, Choice};
use thermocline_pool::store::{Batch, BatchId, Direction, Removal, StoreError};

use self::model::{Kind, Model, Op, TABLE, Under, collect, group, key, look};
use super::store::{BlockBatch, BlockEntries, PackedKeys, primary_of, push_secondary, secondary_of};
use crate::row::{Column, Layout, Type, Value};

/// Runs a test over every store.
fn over_all(test: impl Fn(&mut Under)) {
    for kind in Kind::ALL {
        eprintln!("{kind:?}");
        test(&mut Under::new(kind));
    }
}

fn put(batch: &mut Batch, id: u64, of: u64, record: &[u8]) {
    batch.put(primary_of(TABLE), &key(id), record).unwrap();
    let mut entry = Vec::new();
    push_secondary(&mut entry, &group(of), &key(id));
    batch.put(secondary_of(TABLE, IndexId(3)), &entry, b"").unwrap();
}

fn remove(batch: &mut Batch, id: u64, of: u64, named: u64, which: Removal) {
    batch.remove(primary_of(TABLE), &key(id), BatchId(named), which).unwrap();
    let mut entry = Vec::new();
    push_secondary(&mut entry, &group(of), &key(id));
    batch.remove(secondary_of(TABLE, IndexId(3)), &entry, BatchId(named), which).unwrap();
}

#[test]
fn an_empty_store_denies_everything() {
    over_all(|under| {
        let store = under.store();
        let (primary, secondary) = (primary_of(TABLE), secondary_of(TABLE, IndexId(3)));
        assert!(!store.may_contain(primary, &key(1)));
        assert!(!store.may_contain_group(secondary, &group(1)));
        assert!(!store.may_contain_range(primary, &[], None));
        assert!(!store.may_contain_table(TABLE));
        assert!(store.unconfirmed().is_empty());
        assert!(block_on(store.get(primary, &key(1))).unwrap().is_empty());
        assert!(block_on(store.get_group(secondary, &group(1))).unwrap().is_empty());
        assert!(collect(store, primary, &[], None, Direction::Backward).is_empty());
        // What is not there needs no discarding, and cannot be confirmed.
        block_on(store.discard(BatchId(4))).unwrap();
        block_on(store.quiescent(BatchId(4))).unwrap();
        let error = block_on(store.confirm(BatchId(4))).unwrap_err();
        assert!(matches!(error, StoreError::UnknownBatch(BatchId(4))), "{error}");
    });
}

#[test]
fn a_batch_is_found_from_its_writing_to_its_removal() {
    over_all(|under| {
        let (primary, secondary) = (primary_of(TABLE), secondary_of(TABLE, IndexId(3)));
        let store = under.store();
        let mut batch = Batch::new(BatchId(7));
        put(&mut batch, 5, 1, b"five");
        put(&mut batch, 6, 1, b"six");
        put(&mut batch, 9, 2, b"nine");
        block_on(store.write(batch.clone())).unwrap();
        assert!(matches!(block_on(store.write(batch)), Err(StoreError::BatchExists(BatchId(7)))));
        assert_eq!(store.unconfirmed(), [BatchId(7)]);
        assert!(store.may_contain_table(TABLE));
        for confirmed in [false, true] {
            let found = block_on(store.get(primary, &key(6))).unwrap();
            assert_eq!(
                found.iter().map(|f| (f.batch.0, f.confirmed, &f.record[..])).collect::<Vec<_>>(),
                [(7, confirmed, &b"six"[..])]
            );
            let of_group = block_on(store.get_group(secondary, &group(1))).unwrap();
            assert_eq!(of_group.len(), 2);
            assert!(
                of_group.iter().all(|f| f.key.starts_with(&group(1)) && f.entries[0].confirmed == confirmed)
            );
            if !confirmed {
                block_on(store.confirm(BatchId(7))).unwrap();
                assert!(store.unconfirmed().is_empty());
                assert!(matches!(block_on(store.confirm(BatchId(7))), Err(StoreError::UnknownBatch(_))));
            }
        }
        let mut removal = Batch::confirmed(BatchId(8));
        remove(&mut removal, 6, 1, 7, Removal::Last);
        block_on(store.write(removal)).unwrap();
        assert!(block_on(store.get(primary, &key(6))).unwrap().is_empty());
        assert_eq!(block_on(store.get_group(secondary, &group(1))).unwrap().len(), 1);
        let ids: Vec<_> =
            collect(store, primary, &[], None, Direction::Backward).into_iter().map(|f| f.key).collect();
        assert_eq!(ids, [key(9), key(5)]);
    });
}

/// Rows of a frozen chunk: found one by one and in ranges, whole, with what the frames have and without.
#[test]
fn rows_of_a_block_are_records_like_others() {
    const ROWS: u64 = 3000;
    let layout = Layout::new(&[Column::new("id", Type::Int8), Column::new("name", Type::Text)]);
    let layout = Arc::new(layout.unwrap());
    let row = |id: u64| {
        let mut row = Vec::new();
        let name = Value::Text(format!("the name of {}", id % 97));
        layout.encode(&[Value::Int8(id as i64), name], &mut row).unwrap();
        row
    };
    // Keys descend as places ascend, and each third place is empty.
    let position = |id: u64| u16::try_from((ROWS - 1 - id) * 3 / 2).unwrap();
    let batch = |id: u64| {
        let mut builder = Builder::new(&layout);
        (0..ROWS).rev().for_each(|id| builder.push(position(id), &row(id)).unwrap());
        let mut of = BlockEntries {
            index: primary_of(TABLE),
            keys: PackedKeys::default(),
            positions: (0..ROWS).map(position).collect(),
        };
        (0..ROWS).for_each(|id| of.keys.push(&key(id)));
        let block = builder.finish(77, Choice::PointReads).unwrap();
        let layout = Arc::clone(&layout);
        BlockBatch { id: BatchId(id), table: TABLE, block, hidden: Vec::new(), layout, indexes: vec![of] }
    };
    over_all(|under| {
        if !under.store().takes_blocks() {
            assert!(under.kind() == Kind::Direct);
            return;
        }
        let primary = primary_of(TABLE);
        block_on(under.store().write_block(batch(7))).unwrap();
        for round in 0..3 {
            let store = under.store();
            assert_eq!(store.unconfirmed().is_empty(), round > 0);
            for frames in [4 << 20, 0, 4 << 20] {
                store.set_frame_bytes(frames);
                for id in [0, 1, 1500, ROWS - 1] {
                    let found = block_on(store.get(primary, &key(id))).unwrap();
                    assert_eq!((found.len(), found[0].batch.0, &found[0].record), (1, 7, &row(id)));
                }
            }
            // All of it is in frames now.
            assert_eq!(look(store, primary, &key(1500), false), Some(vec![(7, key(1500), row(1500))]));
            for direction in [Direction::Forward, Direction::Backward] {
                let mut found = collect(store, primary, &key(10), Some(&key(2000)), direction);
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert_eq!(found.len(), 1990);
                assert!(
                    (10..).zip(&found).all(|(id, it)| it.key == key(id) && it.entries[0].record == row(id))
                );
            }
            if round == 0 {
                block_on(store.confirm(BatchId(7))).unwrap();
            } else if !under.reopen() {
                break;
            }
        }
        let store = under.store();
        let mut removal = Batch::confirmed(BatchId(8));
        removal.remove(primary, &key(5), BatchId(7), Removal::Last).unwrap();
        block_on(store.write(removal)).unwrap();
        assert!(block_on(store.get(primary, &key(5))).unwrap().is_empty());
        assert_eq!(collect(store, primary, &[], None, Direction::Forward).len(), ROWS as usize - 1);
    });
}

#[test]
fn what_is_in_memory_is_found_without_waiting() {
    const RECORDS: u64 = 400;
    over_all(|under| {
        let (primary, secondary) = (primary_of(TABLE), secondary_of(TABLE, IndexId(3)));
        let store = under.store();
        assert_eq!(look(store, primary, &key(1), false), Some(Vec::new()));
        assert_eq!(look(store, secondary, &group(1), true), Some(Vec::new()));
        // Far more than blocks hold, of the store that has blocks.
        for batch in 1..=RECORDS / 20 {
            let mut records = Batch::confirmed(BatchId(batch));
            (0..20).for_each(|n| put(&mut records, batch * 20 + n, batch, &[batch as u8; 300]));
            block_on(store.write(records)).unwrap();
        }
        let here = |id: u64| {
            let found = look(store, primary, &key(id), false)?;
            let batch = id / 20;
            assert_eq!(found, [(batch, key(id), vec![batch as u8; 300])]);
            Some(())
        };
        let all = 20..RECORDS + 20;
        let before = all.clone().filter(|id| here(*id).is_some()).count();
        // A page that was read is in a frame.
        let after = all
            .clone()
            .filter(|id| {
                // Unless a merge has moved it in between.
                (0..100).any(|_| {
                    assert_eq!(block_on(store.get(primary, &key(*id))).unwrap().len(), 1);
                    here(*id).is_some()
                })
            })
            .count();
        let expected = match under.kind() {
            Kind::Memory => (before == all.clone().count(), after == all.clone().count()),
            Kind::Pages => (before < all.clone().count(), after == all.clone().count()),
            Kind::Direct => (before == 0, after == 0),
        };
        assert_eq!(expected, (true, true), "{before} and {after} of {RECORDS} were here");
        if under.kind() == Kind::Memory {
            let group = look(store, secondary, &group(3), true).expect("all is in memory");
            assert_eq!(group.len(), 20);
            assert!(group.iter().all(|(batch, _, record)| *batch == 3 && record.is_empty()));
        }
    });
}

#[test]
fn of_a_discarded_batch_nothing_is_left() {
    over_all(|under| {
        for id in 1..4 {
            let mut batch = Batch::new(BatchId(id));
            (0..20).for_each(|n| put(&mut batch, id * 100 + n, n % 3, &[id as u8; 30]));
            block_on(under.store().write(batch)).unwrap();
        }
        block_on(under.store().confirm(BatchId(1))).unwrap();
        block_on(under.store().discard(BatchId(2))).unwrap();
        for round in 0..2 {
            let store = under.store();
            assert_eq!(store.unconfirmed(), [BatchId(3)], "{round}");
            let found = collect(store, primary_of(TABLE), &[], None, Direction::Forward);
            assert_eq!(found.len(), 40);
            assert!(found.iter().all(|f| f.entries[0].batch != BatchId(2)));
            assert!(found.iter().all(|f| f.entries[0].confirmed == (f.entries[0].batch == BatchId(1))));
            // The third of the groups of each batch that is left.
            let groups = block_on(store.get_group(secondary_of(TABLE, IndexId(3)), &group(0))).unwrap();
            assert_eq!(groups.len(), 14);
            if !under.reopen() {
                break;
            }
        }
    });
}

#[test]
fn removals_of_an_unconfirmed_batch_wait_for_its_confirmation() {
    over_all(|under| {
        let store = under.store();
        let primary = primary_of(TABLE);
        let mut batch = Batch::confirmed(BatchId(1));
        (0..4).for_each(|n| put(&mut batch, n, n, b"old"));
        block_on(store.write(batch)).unwrap();
        for (id, n) in [(2, 0), (3, 1)] {
            let mut batch = Batch::new(BatchId(id));
            remove(&mut batch, n, n, 1, Removal::Only);
            put(&mut batch, 10 + n, n, b"new");
            block_on(store.write(batch)).unwrap();
        }
        let there = |n| !block_on(store.get(primary, &key(n))).unwrap().is_empty();
        assert!(there(0) && there(1));
        block_on(store.confirm(BatchId(2))).unwrap();
        block_on(store.discard(BatchId(3))).unwrap();
        assert!(!there(0) && there(1) && there(10) && !there(11));
    });
}

#[test]
fn tables_and_indexes_do_not_meet() {
    over_all(|under| {
        let store = under.store();
        let other = TableId(TABLE.0 + 1);
        let mut batch = Batch::confirmed(BatchId(1));
        put(&mut batch, 1, 1, b"one");
        batch.put(primary_of(other), &key(2), b"two").unwrap();
        block_on(store.write(batch)).unwrap();
        assert!(block_on(store.get(primary_of(other), &key(1))).unwrap().is_empty());
        assert_eq!(collect(store, primary_of(other), &[], None, Direction::Forward).len(), 1);
        assert_eq!(collect(store, primary_of(TABLE), &[], None, Direction::Forward).len(), 1);
        assert_eq!(collect(store, secondary_of(TABLE, IndexId(3)), &[], None, Direction::Forward).len(), 1);
        assert!(collect(store, secondary_of(TABLE, IndexId(4)), &[], None, Direction::Forward).is_empty());
        assert!(!store.may_contain_group(secondary_of(other, IndexId(3)), &group(1)));
        assert!(store.may_contain_table(other) && !store.may_contain_table(TableId(TABLE.0 + 2)));
    });
}

#[test]
fn filters_deny_most_of_what_is_not_there() {
    over_all(|under| {
        let store = under.store();
        for id in 1..40_u64 {
            let mut batch = Batch::confirmed(BatchId(id));
            (0..100).for_each(|n| put(&mut batch, (id * 100 + n) * 2, (id * 100 + n) * 2, &[1; 40]));
            block_on(store.write(batch)).unwrap();
        }
        let (primary, secondary) = (primary_of(TABLE), secondary_of(TABLE, IndexId(3)));
        let (mut wrong, mut wrong_groups) = (0, 0);
        for n in 100..4000 {
            assert!(
                store.may_contain(primary, &key(n * 2)) && store.may_contain_group(secondary, &group(n * 2))
            );
            wrong += u32::from(store.may_contain(primary, &key(n * 2 + 1)));
            wrong_groups += u32::from(store.may_contain_group(secondary, &group(n * 2 + 1)));
        }
        assert!(wrong < 200 && wrong_groups < 200, "{wrong} and {wrong_groups} of 3900");
        assert!(!store.may_contain_range(primary, &key(8_100), None));
        assert!(store.may_contain_range(primary, &key(7_000), Some(&key(7_100))));
    });
}

#[test]
fn a_future_that_is_dropped_leaves_a_whole_batch_or_none() {
    over_all(|under| {
        for round in 0..20 {
            let store = under.store();
            let mut batch = Batch::new(BatchId(round + 1));
            (0..30).for_each(|n| put(&mut batch, round * 100 + n, n, b"record"));
            let mut write = store.write(batch);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            if round % 2 == 0 {
                let _ = write.as_mut().poll(&mut context);
            }
            drop(write);
            block_on(store.quiescent(BatchId(round + 1))).unwrap();
            let (low, high) = (key(round * 100), key(round * 100 + 100));
            let found = collect(store, primary_of(TABLE), &low, Some(&high), Direction::Forward);
            let waits = store.unconfirmed().contains(&BatchId(round + 1));
            assert_eq!(found.len(), if waits { 30 } else { 0 });
            block_on(store.discard(BatchId(round + 1))).unwrap();
            assert!(!store.may_contain_range(primary_of(TABLE), &low, Some(&high)) || under.is_lazy());
            let store = under.store();
            assert!(collect(store, primary_of(TABLE), &low, Some(&high), Direction::Forward).is_empty());
        }
    });
}

#[test]
fn readers_beside_writers_see_what_was_acknowledged() {
    over_all(|under| {
        let store = Arc::clone(under.store());
        let stop = AtomicBool::new(false);
        let acknowledged = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let reader = || {
                let mut rng = Rng::new(3);
                let mut reads = 0_u64;
                while !stop.load(Ordering::Relaxed) || reads < 50 {
                    let known = acknowledged.load(Ordering::Acquire);
                    if known == 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    let id = rng.below(known * 10);
                    assert!(store.may_contain(primary_of(TABLE), &key(id)), "record {id} of {known} batches");
                    let found = block_on(store.get(primary_of(TABLE), &key(id))).unwrap();
                    assert_eq!(found.len(), 1, "record {id} of {known} batches");
                    assert_eq!(found[0].record, [id as u8; 24]);
                    let of =
                        block_on(store.get_group(secondary_of(TABLE, IndexId(3)), &group(id % 50))).unwrap();
                    assert!(of.len() as u64 >= known * 10 / 50);
                    reads += 1;
                }
            };
            scope.spawn(reader);
            for id in 1..=60_u64 {
                let confirmed = id % 3 > 0;
                let mut batch =
                    if confirmed { Batch::confirmed(BatchId(id)) } else { Batch::new(BatchId(id)) };
                ((id - 1) * 10..id * 10).for_each(|n| put(&mut batch, n, n % 50, &[n as u8; 24]));
                block_on(store.write(batch)).unwrap();
                acknowledged.store(id, Ordering::Release);
                if !confirmed && id % 2 == 0 {
                    block_on(store.confirm(BatchId(id))).unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(under.store().usage().records > 0);
    });
}

#[test]
fn a_confirmed_batch_gets_entries_of_another_index() {
    over_all(|under| {
        if under.kind() == Kind::Direct {
            return;
        }
        let late = secondary_of(TABLE, IndexId(4));
        let entry = |id: u64| {
            let mut entry = Vec::new();
            push_secondary(&mut entry, &group(id % 2), &key(id));
            entry
        };
        let mut batch = Batch::new(BatchId(7));
        (0..20).for_each(|id| put(&mut batch, id, id, b"record"));
        block_on(under.store().write(batch)).unwrap();
        block_on(under.store().confirm(BatchId(7))).unwrap();
        for ids in [0..10, 10..20] {
            let mut more = Batch::confirmed(BatchId(7));
            ids.for_each(|id| more.put(late, &entry(id), b"").unwrap());
            block_on(under.store().write(more)).unwrap();
        }
        let mut removal = Batch::confirmed(BatchId(8));
        remove(&mut removal, 3, 3, 7, Removal::Only);
        removal.remove(late, &entry(3), BatchId(7), Removal::Only).unwrap();
        block_on(under.store().write(removal)).unwrap();
        for _ in 0..3 {
            let store = under.store();
            assert!(store.unconfirmed().is_empty(), "the decision comes before what builds on it");
            assert_eq!(collect(store, primary_of(TABLE), &[], None, Direction::Forward).len(), 19);
            let found = collect(store, late, &[], None, Direction::Forward);
            assert_eq!(found.len(), 19);
            assert!(found.iter().all(|found| found.entries.len() == 1 && found.entries[0].batch.0 == 7));
            assert_eq!(block_on(store.get_group(late, &group(1))).unwrap().len(), 9);
            if !under.reopen() {
                break;
            }
        }
    });
}

#[test]
fn what_is_dropped_goes_and_the_rest_stays() {
    over_all(|under| {
        let (other, index) = (TableId(TABLE.0 + 1), secondary_of(TABLE, IndexId(3)));
        let mut batch = Batch::confirmed(BatchId(1));
        (0..20).for_each(|n| put(&mut batch, n, n, b"record"));
        (0..20).for_each(|n| batch.put(primary_of(other), &key(n), b"other").unwrap());
        block_on(under.store().write(batch)).unwrap();
        for round in 0..2 {
            let store = under.store();
            store.drop_index(index);
            // The entries of the index need no removing: the record was all that held its place.
            let mut removal = Batch::confirmed(BatchId(2 + round));
            removal.remove(primary_of(TABLE), &key(round), BatchId(1), Removal::Only).unwrap();
            block_on(store.write(removal)).unwrap();
            let mut again = Batch::confirmed(BatchId(10 + round));
            again.put(primary_of(TABLE), &key(round), b"again").unwrap();
            block_on(store.write(again)).unwrap();
            assert_eq!(collect(store, primary_of(TABLE), &[], None, Direction::Forward).len(), 20);
            if !under.reopen() {
                break;
            }
        }
        under.store().retain(&|index| index.table == TABLE.0);
        if !under.is_lazy() {
            assert!(!under.store().may_contain_range(primary_of(other), &[], None));
        }
        under.store().drop_index(index);
        under.store().drop_table(other);
        assert_eq!(collect(under.store(), primary_of(TABLE), &[], None, Direction::Forward).len(), 20);
        if under.reopen() {
            assert_eq!(collect(under.store(), primary_of(TABLE), &[], None, Direction::Forward).len(), 20);
        }
    });
}

fn runs(kind: Kind, ops: &[Op]) {
    let mut under = Under::new(kind);
    let mut model = Model::new(kind);
    for op in ops {
        model.run(&mut under, op);
    }
    model.compare(under.store());
    if under.reopen() {
        model.compare(under.store());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_of_pages_is_like_the_model(ops in prop::collection::vec(Op::any(), 1..60)) {
        runs(Kind::Pages, &ops);
    }

    #[test]
    fn a_store_in_memory_is_like_the_model(ops in prop::collection::vec(Op::any(), 1..60)) {
        runs(Kind::Memory, &ops);
    }

    #[test]
    fn a_store_of_slots_is_like_the_model(ops in prop::collection::vec(Op::any(), 1..60)) {
        runs(Kind::Direct, &ops);
    }
}
