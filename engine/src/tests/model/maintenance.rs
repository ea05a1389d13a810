//! What goes on behind running transactions: pruning, packing, relocating, dropping chunks, idle aborts
//! (`interleavings.md`, 3 and 4).

use std::ops::ControlFlow;

use super::*;
use crate::MaintenanceSteps;

/// A reader registers while the row is updated and pruned.
fn late_reader() {
    let world = world(&[(1, 1)]);
    let writer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.set(1, 2)).expect("nobody competes");
        world.prune();
    });
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut tx = world.begin(Isolation::Snapshot);
        let first = tx.read(1).expect("a read");
        seen.push((first, tx.read(1).expect("a read")));
    }
    writer.join().expect("the writer");
    for (first, second) in seen {
        assert!(first.is_some() && first == second, "a snapshot lost its version: {first:?}, {second:?}");
    }
}

#[test]
fn a_reader_that_registers_late_finds_its_versions() {
    model::run(6000, late_reader);
}

#[test]
fn a_clock_that_is_read_before_the_place_is_reserved_is_caught() {
    misses(Rule::RegisterBeforeClock, 40_000, late_reader);
}

/// An open snapshot while the row is updated and pruned again and again.
fn open_snapshot() {
    let world = world(&[(1, 1), (2, 1)]);
    let mut old = world.begin(Isolation::Snapshot);
    let writer = world.spawn(|world| {
        for value in 2..4 {
            world.retry(Isolation::Snapshot, |tx| tx.set(1, value)).expect("nobody competes");
            world.prune();
        }
        world.retry(Isolation::Snapshot, |tx| tx.delete(2)).expect("nobody competes");
        world.prune();
    });
    let mut seen = vec![old.read(1).expect("a read"), old.read(2).expect("a read")];
    let mut new = world.begin(Isolation::Snapshot);
    let news = (new.read(1).expect("a read"), new.read(1).expect("a read"));
    seen.extend([old.read(1).expect("a read"), old.read(2).expect("a read")]);
    writer.join().expect("the writer");
    seen.extend([old.read(1).expect("a read"), old.read(2).expect("a read")]);
    assert_eq!(seen, [Some(1); 6], "the snapshot has changed");
    assert!(news.0.is_some() && news.0 == news.1, "the later snapshot has changed: {news:?}");
    drop((old, new));
    world.settle();
    assert_eq!(world.entries(), 1);
}

#[test]
fn pruning_keeps_what_snapshots_see() {
    model::run(3000, open_snapshot);
}

#[test]
fn pruning_what_a_snapshot_sees_is_caught() {
    misses(Rule::PruneKeepsSnapshots, 10_000, open_snapshot);
}

/// Key 1 becomes 2 and 1 again while a pruner takes entries out; a snapshot finds the row under exactly one of them.
fn there_and_back() {
    let world = world(&[(1, 10)]);
    let writer = world.spawn(|world| {
        world.retry(Isolation::Snapshot, |tx| tx.set_key(1, 2)).expect("nobody competes");
        world.retry(Isolation::Snapshot, |tx| tx.set_key(2, 1)).expect("nobody competes");
    });
    let pruner = world.spawn(|world| {
        world.prune();
        world.prune();
    });
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut tx = world.begin(Isolation::Snapshot);
        seen.push((tx.read(1).expect("a read"), tx.read(2).expect("a read")));
    }
    writer.join().expect("the writer");
    pruner.join().expect("the pruner");
    for (one, two) in seen {
        assert_eq!((one.is_some(), one.or(two)), (two.is_none(), Some(10)), "the row has one key");
    }
    world.settle();
    assert_eq!((world.value(1), world.value(2)), (Some(10), None), "no index finds the row");
    assert_eq!(world.entries(), 1);
}

#[test]
fn an_entry_outlives_its_key() {
    model::run(3000, there_and_back);
}

#[test]
fn an_entry_that_goes_with_its_version_is_caught() {
    misses(Rule::EntryOutlivesKey, 10_000, there_and_back);
}

/// Updates of one row by two writers while it is pruned, also behind a savepoint: the chain stays whole.
fn writers_and_pruner() {
    let world = world(&[(1, 0)]);
    let count = |world: &World, savepoint: bool| {
        world.retry(Isolation::ReadCommitted, |tx| {
            for again in [false, true] {
                let layout = &world.layout;
                tx.edit(1, |row| {
                    let value = layout.i64(row.row(), 1).unwrap_or(-100);
                    row.set_i64(1, value + 1)
                })?;
                if savepoint && !again {
                    tx.tx.savepoint()?;
                }
            }
            Ok(())
        })
    };
    let other = world.spawn(move |world| count(world, true));
    let pruner = world.spawn(|world| {
        world.prune();
        world.prune();
    });
    count(&world, false).expect("it waits");
    other.join().expect("the other writer").expect("it waits");
    pruner.join().expect("the pruner");
    assert_eq!(world.value(1), Some(4), "an update was lost");
    world.settle();
    assert_eq!(world.entries(), 1);
    let inner = world.db.inner();
    let guard = inner.epochs.pin();
    let form = world.table.entry.form_pinned(&guard);
    let row = thermocline_base::ids::RowId::new(0, 0);
    let newest = form.store.directory.newest(row, &guard).expect("the row");
    assert_eq!(newest.link(), 0, "an old version was left");
}

#[test]
fn one_pruner_a_chain_and_no_lost_version() {
    model::run(4000, writers_and_pruner);
}

#[test]
fn a_swing_past_the_latch_is_caught() {
    misses(Rule::LatchChain, 40_000, writers_and_pruner);
}

/// A reader stands on a version that its own writer replaces, whose memory becomes another row's.
fn freed_under_a_reader() {
    let world = world(&[(1, 1)]);
    let writer = world.spawn(|world| {
        let mut tx = world.begin(Isolation::Snapshot);
        tx.set(1, 2).expect("nobody competes");
        tx.set(1, 3).expect("nobody competes");
        let guard = world.db.inner().epochs.pin();
        world.table.entry.form_pinned(&guard).store.memory.collect();
        drop(guard);
        tx.insert(5, 50).expect("a fresh row");
        tx.commit().expect("nobody competes");
    });
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(world.value(1));
    }
    writer.join().expect("the writer");
    assert!(seen.iter().all(|value| [Some(1), Some(3)].contains(value)), "freed memory was read: {seen:?}");
}

#[test]
fn a_version_is_freed_when_its_readers_have_gone() {
    model::run(4000, freed_under_a_reader);
}

#[test]
fn memory_that_is_freed_at_once_is_caught() {
    misses(thermocline_base::mutation::Rule::RetireThroughEpoch, 40_000, freed_under_a_reader);
}

/// A table of 9 rows, so that the first chunk is full, of which two are left in it, and nothing of the others.
fn sparse() -> World {
    let rows: Vec<(i64, i64)> = (0..9).map(|id| (id, 0)).collect();
    let world = world(&rows);
    let mut tx = world.begin(Isolation::Snapshot);
    for id in (0..7).filter(|&id| id != 3) {
        assert!(tx.delete(id).expect("nobody competes"));
    }
    tx.commit().expect("nobody competes");
    world.settle();
    world
}

/// Packs the first chunk and moves all its rows, while they are read and written.
fn packing() {
    let world = sparse();
    let writer = world.spawn(|world| {
        for value in 1..3 {
            world
                .retry(Isolation::Snapshot, |tx| {
                    tx.set(3, value)?;
                    tx.set(7, value)
                })
                .expect("nobody competes");
        }
        world.prune();
    });
    let packer = world.spawn(|world| {
        let inner = world.db.inner();
        for _ in 0..2 {
            let guard = inner.epochs.pin();
            let form = world.table.entry.form_pinned(&guard);
            let chunk = form.store.directory.get(0, &guard).expect("the first chunk");
            chunk.pack(&form.store.slots, &guard).expect("memory");
            for slot in chunk.occupied(&guard) {
                let row = thermocline_base::ids::RowId::new(0, slot);
                if let Some(version) = form.store.directory.newest(row, &guard) {
                    form.store.relocate(version.cell(), &guard).expect("memory");
                }
            }
            inner.epochs.collect();
            form.store.memory.collect();
            form.store.slots.collect();
        }
    });
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut tx = world.begin(Isolation::Snapshot);
        seen.push((tx.read(3).expect("a read"), tx.read(7).expect("a read")));
    }
    writer.join().expect("the writer");
    packer.join().expect("the packer");
    for (three, seven) in seen {
        assert!(three.is_some() && three == seven, "a row was lost: {three:?}, {seven:?}");
    }
    assert_eq!((world.value(3), world.value(7)), (Some(2), Some(2)), "an update was lost");
    world.settle();
    assert_eq!(world.entries(), 3);
}

#[test]
fn packing_and_relocating_lose_nothing() {
    model::run(3000, packing);
}

#[test]
fn a_packed_slot_that_is_not_marked_is_caught() {
    misses(Rule::PackMarksMoved, 10_000, packing);
}

/// Chunks are packed and dropped by maintenance itself while rows come and go.
fn chunks_come_and_go() {
    let world = sparse();
    let writer = world.spawn(|world| {
        world
            .retry(Isolation::Snapshot, |tx| {
                tx.delete(3)?;
                tx.delete(7)?;
                tx.insert(3, 33)
            })
            .expect("nobody competes");
        world.retry(Isolation::Snapshot, |tx| tx.insert(20, 1)).expect("nobody competes");
    });
    let keeper = world.spawn(|world| {
        let mut steps = world.db.maintenance_steps();
        for _ in 0..3 {
            steps.prune();
            steps.shrink();
        }
    });
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut tx = world.begin(Isolation::Snapshot);
        seen.push((tx.read(3).expect("a read"), tx.read(7).expect("a read"), tx.read(8).expect("a read")));
    }
    writer.join().expect("the writer");
    keeper.join().expect("the keeper");
    for state in seen {
        assert!([(Some(0), Some(0), Some(0)), (Some(33), None, Some(0))].contains(&state), "{state:?}");
    }
    world.settle();
    let mut steps: MaintenanceSteps = world.db.maintenance_steps();
    for _ in 0..4 {
        steps.shrink();
    }
    let guard = world.db.inner().epochs.pin();
    let directory = &world.table.entry.form_pinned(&guard).store.directory;
    assert!(directory.get(0, &guard).is_none(), "an empty chunk was kept");
    let state: Vec<_> = [3, 7, 8, 20].into_iter().map(|id| world.value(id)).collect();
    assert_eq!(state, [Some(33), None, Some(0), Some(1)]);
    assert_eq!(world.entries(), 3);
}

#[test]
fn chunks_go_without_harm() {
    model::run(1500, chunks_come_and_go);
}

/// The owner of a transaction goes on while it is found idle.
fn idle_abort() {
    let world = world(&[(1, 0), (2, 0)]);
    let reaper = world.spawn(|world| {
        let mut steps = world.db.maintenance_steps();
        for _ in 0..3 {
            steps.abort_idle();
        }
    });
    let (mut committed, mut aborted) = (0, 0);
    for value in 1..3 {
        let mut tx = world.begin(Isolation::Snapshot);
        let mut write = |id| {
            let written = tx.set(id, value);
            // Long enough to be found idle twice.
            (0..8).for_each(|_| thermocline_base::sync::schedule_point());
            written
        };
        let outcome = write(1).and_then(|_| write(2)).and_then(|_| tx.commit());
        match outcome {
            Ok(()) => committed = value,
            Err(Error::IdleTimeout { .. }) => aborted += 1,
            Err(error) => panic!("{error}"),
        }
    }
    reaper.join().expect("the reaper");
    assert_eq!(world.db.statistics().aborts.idle, aborted, "an owner was told of an abort that never was");
    let values = (world.value(1), world.value(2));
    assert_eq!(
        values,
        (Some(committed), Some(committed)),
        "an aborted transaction left something, or took something"
    );
    world.settle();
}

/// A statement whose owner waits for its own user is no idleness, between operations and amid a scan; what comes behind it is.
#[test]
fn an_attended_statement_is_not_idle() {
    let world = world(&[(1, 0), (2, 0)]);
    let mut tx = world.begin(Isolation::Snapshot);
    // The first round notes it, those behind find it as it was.
    let idle = || {
        let mut steps = world.db.maintenance_steps();
        (0..3).for_each(|_| steps.abort_idle());
    };
    for is_attended in [true, false] {
        let mut statement = tx.tx.statement().expect("nobody aborts it");
        if is_attended {
            statement.attend().expect("nobody aborts it");
            idle();
        }
        let mut rows = 0;
        let see = |_: crate::SeenRow<'_>| {
            rows += 1;
            ControlFlow::Break(crate::Stop::Pause)
        };
        let scanned = block_on(statement.scan_table_pausing(&world.table, see, async || idle()));
        if is_attended {
            scanned.expect("nobody aborts it");
        } else {
            assert!(matches!(scanned, Err(Error::IdleTimeout { .. })), "{scanned:?}");
        }
        assert_eq!(rows, if is_attended { 2 } else { 1 });
    }
    assert_eq!(world.db.statistics().aborts.idle, 1);
}

#[test]
fn an_idle_abort_and_the_owner_agree() {
    model::run(6000, idle_abort);
}

#[test]
fn an_idle_abort_that_is_told_too_early_is_caught() {
    misses(Rule::IdleAbortUndoesFirst, 40_000, idle_abort);
}

/// The owner does something between the reaper's first look and its second.
fn called_off() {
    let world = world(&[]);
    let reaper = world.spawn(|world| {
        let mut steps = world.db.maintenance_steps();
        for _ in 0..4 {
            steps.abort_idle();
        }
    });
    let mut aborted = 0;
    let mut tx = world.begin(Isolation::Snapshot);
    for _ in 0..8 {
        if let Err(error) = tx.tx.savepoint() {
            assert!(matches!(error, Error::IdleTimeout { .. }), "{error}");
            aborted = 1;
            break;
        }
    }
    if aborted == 0 && tx.commit().is_err() {
        aborted = 1;
    }
    reaper.join().expect("the reaper");
    assert_eq!(world.db.statistics().aborts.idle, aborted, "an owner was told of an abort that never was");
}

#[test]
fn an_idle_abort_that_is_called_off_leaves_the_owner_alone() {
    model::run(6000, called_off);
}
