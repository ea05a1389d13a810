//! Leaves come and go: cutting, joining, and the merging of pieces that lie over many of them. With a crash at every
//! place.

use super::super::super::*;
use super::super::model::options;
use super::Recorder;

/// Young pieces that lie over all leaves.
fn wide_pieces(store: &Store) -> usize {
    let leaves = &store.inner.current().leaves.list;
    let over_all = |piece: &std::sync::Arc<piece::Piece>| {
        leaves.iter().all(|leaf| leaf.young.iter().any(|other| std::sync::Arc::ptr_eq(piece, other)))
    };
    leaves[0].young.iter().filter(|piece| over_all(piece)).count()
}

fn leaves(store: &Store) -> usize {
    store.inner.current().leaves.list.len()
}

#[test]
fn a_leaf_that_gets_too_long_is_cut() {
    let mut recorder = Recorder::new(1, StoreOptions { leaf_bytes: 32 << 10, ..options() });
    assert_eq!(leaves(&recorder.store), 1);
    recorder.write_wide(100, true);
    recorder.work_all();
    let few = leaves(&recorder.store);
    recorder.write_wide(400, true);
    recorder.work_all();
    assert!(leaves(&recorder.store) > few, "{few} leaves, then {}", leaves(&recorder.store));
    recorder.write(true);
    recorder.work_all();
    recorder.judge(1, 2);
}

#[test]
fn leaves_that_get_short_are_joined() {
    let mut recorder = Recorder::new(2, StoreOptions { leaf_bytes: 1 << 20, ..options() });
    for _ in 0..2 {
        recorder.write_wide(6000, true);
        recorder.work_all();
    }
    let many = leaves(&recorder.store);
    assert!(many > 3, "{many}");
    for _ in 0..12 {
        recorder.write_wide(0, true);
        recorder.work_all();
    }
    assert!(leaves(&recorder.store) < many, "{many} leaves, then {}", leaves(&recorder.store));
    recorder.judge(23, 1);
}

/// Leaves enough for pieces that lie over all of them, and pieces that are merged only when there are many.
fn many_leaves(seed: u64) -> Recorder {
    let options = StoreOptions { leaf_bytes: 16 << 10, young_percent: 100_000, ..options() };
    let mut recorder = Recorder::new(seed, options);
    recorder.write_wide(1500, true);
    recorder.work_all();
    assert!(leaves(&recorder.store) > 40, "{}", leaves(&recorder.store));
    recorder
}

/// Writes until there are as many wide pieces.
fn write_wide_pieces(recorder: &mut Recorder, count: usize) {
    while wide_pieces(&recorder.store) < count {
        recorder.write(true);
        while recorder.store.inner.current().sealed.last().is_some() {
            assert!(recorder.work());
        }
    }
}

#[test]
fn wide_pieces_are_merged_and_cut_by_leaves() {
    let mut recorder = many_leaves(3);
    write_wide_pieces(&mut recorder, 16);
    let (before, merges) = (leaves(&recorder.store), recorder.store.statistics().merges);
    assert!(recorder.work(), "they are merged");
    assert_eq!((wide_pieces(&recorder.store), leaves(&recorder.store)), (0, before));
    assert_eq!(recorder.store.statistics().merges, merges + 1);
    let version = recorder.store.inner.current();
    assert!(version.leaves.list.iter().all(|leaf| leaf.young.len() <= 1), "each leaf has its part");
    drop(version);
    // Removals in the parts meet their entries in the last level, and younger ones theirs in the parts.
    write_wide_pieces(&mut recorder, 3);
    recorder.work_all();
    recorder.judge(97, 1);
}

#[test]
fn a_crash_while_wide_pieces_are_merged_changes_nothing() {
    let mut recorder = many_leaves(4);
    write_wide_pieces(&mut recorder, 16);
    let before = recorder.history.io.operations();
    assert!(recorder.work());
    assert_eq!(wide_pieces(&recorder.store), 0);
    recorder.write(true);
    recorder.judge_from(before, 7, 1);
}

/// Two leaves were merged with the wide pieces of that time. What is in those pieces of their keys must not be seen there again,
/// when the others get rid of them.
#[test]
fn wide_pieces_that_some_leaves_have_merged_are_merged_in_the_others() {
    let mut recorder = many_leaves(8);
    for (count, worn) in [(5, 3), (4, 20)] {
        write_wide_pieces(&mut recorder, count);
        let leaves = std::sync::Arc::clone(&recorder.store.inner.current().leaves);
        (0..leaves.passes(worn)).for_each(|_| _ = leaves.list[worn].note_passed());
        assert!(recorder.work(), "it is merged");
        let young = recorder.store.inner.current().leaves.list[worn].young.len();
        assert_eq!((wide_pieces(&recorder.store), young), (0, 0));
    }
    let is_due =
        |store: &Store| super::super::super::wide::Wide::of(&store.inner.current().leaves).are_many();
    while !is_due(&recorder.store) {
        let all = wide_pieces(&recorder.store);
        write_wide_pieces(&mut recorder, all + 1);
    }
    assert!(wide_pieces(&recorder.store) < 16, "they are not in all leaves");
    let before = recorder.history.io.operations();
    assert!(recorder.work());
    let version = recorder.store.inner.current();
    assert!(version.leaves.list.iter().all(|leaf| leaf.young.len() <= 1), "each leaf has its part");
    drop(version);
    recorder.write(true);
    recorder.work_all();
    recorder.judge_from(before, 7, 1);
}

#[test]
fn a_late_confirmed_batch_is_a_wide_piece_among_others() {
    let mut recorder = many_leaves(5);
    let id = recorder.write_wide(60, false);
    recorder.work_all();
    write_wide_pieces(&mut recorder, 6);
    let before = recorder.history.io.operations();
    recorder.confirm(id);
    recorder.write(true);
    recorder.work_all();
    write_wide_pieces(&mut recorder, 16);
    assert!(recorder.work());
    assert_eq!(wide_pieces(&recorder.store), 0);
    recorder.judge_from(before, 19, 1);
}
