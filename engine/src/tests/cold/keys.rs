//! All rows of a key of a secondary index, in memory and in the cold store: each once, however many they are, and with as many reads
//! of the device as there are rows.

use super::*;

/// Rows of group 0, and of others.
fn filled(kind: ColdStoreKind, ordered: bool, rows: i64) -> World {
    let world = world(kind, ordered);
    let mut id = 0;
    for (group, rows) in [(0, rows), (1, 40), (2, 3), (3, 1)] {
        let mut tx = world.begin(Isolation::Snapshot);
        for _ in 0..rows {
            id += 1;
            world.insert(&mut tx, (id, group, format!("name of {id}"))).expect("a fresh row");
        }
        block_on(tx.commit()).expect("nobody is in the way");
    }
    world
}

/// Rows that stay, leave, are changed and deleted there, and come back.
fn moved(world: &World) {
    let layout = Arc::clone(&world.layout);
    let leaves = move |row: &[u8]| decode(&layout, row).0 % 5 != 0;
    world.steps().migrate(&world.table, leaves, 200).expect("they leave");
    let mut tx = world.begin(Isolation::Snapshot);
    for id in (7..1_500).step_by(31) {
        world.delete(&mut tx, id).expect("it goes");
    }
    for id in (8..1_500).step_by(37) {
        world.set_group(&mut tx, id, 1).expect("it changes");
    }
    block_on(tx.commit()).expect("nobody is in the way");
    for id in (9..1_500).step_by(41) {
        world.steps().promote(&world.table, &key(id)).expect("it comes back");
    }
}

#[test]
fn rows_of_a_key_are_found_once_however_many_they_are() {
    for kind in [ColdStoreKind::Pages, ColdStoreKind::Direct, ColdStoreKind::Memory] {
        for ordered in [false, true] {
            let world = filled(kind, ordered, 1_500);
            moved(&world);
            for level in [Isolation::ReadCommitted, Isolation::Serializable] {
                let mut tx = world.begin(level);
                let all = world.all(&mut tx).expect("all rows");
                for group in 0..5 {
                    let expected: Vec<Row> = all.iter().filter(|row| row.1 == group).cloned().collect();
                    let found = world.by_group(&mut tx, group).expect("rows of a key");
                    assert_eq!(found, expected, "{kind}, ordered {ordered}, group {group} at {level}");
                }
                block_on(tx.commit()).expect("nobody has changed anything");
            }
            // A reader that has enough stops.
            let mut tx = world.begin(Isolation::Snapshot);
            for enough in [1, 100, 700] {
                let mut seen = std::collections::BTreeSet::new();
                block_on(tx.read_all(&world.index("t_group"), &key(0), |row| {
                    seen.insert(decode(&world.layout, row));
                    if seen.len() == enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }))
                .expect("rows of a key");
                assert_eq!(seen.len(), enough);
            }
        }
    }
}

/// The entries of a key are read once, and each record once: not the whole key again whenever some of its rows have been read.
#[test]
fn rows_of_a_key_take_one_read_each() {
    const ROWS: u64 = 20_000;
    let world = filled(ColdStoreKind::Pages, true, ROWS as i64);
    world.steps().migrate(&world.table, |_| true, 1_000).expect("they leave");
    world.settle();
    // What the journal holds is written into pieces when the store is opened.
    let world = world.reopen();
    world.steps().set_frame_bytes(0).expect("no page is kept");
    let reads = || world.db.statistics().cold.device_reads;
    let before = reads();
    let mut tx = world.begin(Isolation::Snapshot);
    assert_eq!(world.by_group(&mut tx, 0).expect("rows of a key").len() as u64, ROWS);
    let read = reads() - before;
    assert!(read > 0 && read < ROWS + ROWS / 4, "{read} reads of the device for {ROWS} rows");
}
