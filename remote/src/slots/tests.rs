//! The bit vector against a plain set, at its limits, and how many words it looks at.

use std::collections::BTreeSet;

use proptest::prelude::*;
use thermocline_base::rng::Rng;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Take,
    Run(u32),
    At(u64),
    Free(usize),
    Grow(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Take),
        3 => (1..=RUN_MAX).prop_map(Step::Run),
        1 => (0..6000_u64).prop_map(Step::At),
        4 => any::<usize>().prop_map(Step::Free),
        1 => (1..300_u64).prop_map(Step::Grow),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn agrees_with_a_plain_set(start in 0..5000_u64, steps in steps()) {
        let mut slots = Slots::all_free(start);
        let mut free: BTreeSet<u64> = (0..start).collect();
        let mut taken: Vec<u64> = Vec::new();
        for step in steps {
            match step {
                Step::Take => match slots.take() {
                    Some(slot) => {
                        prop_assert!(free.remove(&slot));
                        taken.push(slot);
                    }
                    None => prop_assert!(free.is_empty()),
                },
                Step::Run(wanted) => match slots.take_run(wanted) {
                    Some(run) => {
                        prop_assert!(run.len >= 1 && run.len <= wanted);
                        prop_assert_eq!(run.first / 64, (run.first + u64::from(run.len) - 1) / 64);
                        for slot in run.slots() {
                            prop_assert!(free.remove(&slot), "{} was not free", slot);
                            taken.push(slot);
                        }
                    }
                    None => prop_assert!(free.is_empty()),
                },
                Step::At(slot) => {
                    let there = free.remove(&slot);
                    prop_assert_eq!(slots.take_at(slot), there);
                    if there {
                        taken.push(slot);
                    }
                }
                Step::Free(pick) if !taken.is_empty() => {
                    let slot = taken.swap_remove(pick % taken.len());
                    slots.free(slot);
                    free.insert(slot);
                }
                Step::Free(_) => {}
                Step::Grow(by) => {
                    let from = slots.len();
                    slots.grow(from + by);
                    slots.give(from..from + by);
                    free.extend(from..from + by);
                }
            }
            prop_assert_eq!(slots.free_count(), free.len() as u64);
        }
        for slot in 0..slots.len() + 3 {
            prop_assert_eq!(slots.is_free(slot), free.contains(&slot));
        }
    }

    #[test]
    fn the_longest_run_of_a_word(word in any::<u64>(), thin in any::<u64>()) {
        for word in [word, word & thin, word | thin, 0, u64::MAX] {
            let (start, len) = longest_run(word);
            let best = (0..64).map(|at| (word >> at).trailing_ones()).max().unwrap_or(0);
            prop_assert_eq!(len, best);
            prop_assert_eq!((word >> start) & ones(len), ones(len));
        }
    }
}

#[test]
fn levels_and_memory_are_as_promised() {
    let of_64_gib = Slots::all_free(1 << 24);
    assert_eq!(of_64_gib.levels(), 4);
    assert!(of_64_gib.bytes() <= (21 << 20) / 10, "{} bytes", of_64_gib.bytes());
    // 2^28 slots are 32 MiB of bits; 2^36 would be 8 GiB, so their levels are counted and not made.
    let mut of_1_tib = Slots::new();
    of_1_tib.grow(1 << 28);
    assert_eq!(of_1_tib.levels(), 5);
    let levels_of = |bits: u32| bits.div_ceil(6);
    assert_eq!((levels_of(24), levels_of(28), levels_of(36)), (4, 5, 6));
    of_1_tib.free((1 << 28) - 1);
    assert_eq!(of_1_tib.take(), Some((1 << 28) - 1));
    assert_eq!(of_1_tib.take(), None);
}

#[test]
fn a_constant_number_of_words_is_looked_at_whatever_is_taken() {
    const SLOTS: u64 = 1 << 20;
    let mut rng = Rng::new(3);
    // Nearly full with the free ones at both ends, nearly empty, half full at random.
    for filling in 0..3 {
        let mut slots = Slots::new();
        slots.grow(SLOTS);
        match filling {
            0 => (0..8).chain(SLOTS - 8..SLOTS).for_each(|slot| slots.free(slot)),
            1 => slots.give(64..SLOTS),
            _ => (0..SLOTS).filter(|_| rng.chance(0.5)).for_each(|slot| slots.free(slot)),
        }
        let mut most = 0;
        for round in 0..20_000_u64 {
            let before = slots.touched_words();
            let taken = match round % 2 {
                0 => slots.take().map(|first| Run { first, len: 1 }),
                _ => slots.take_run(rng.below(64) as u32 + 1),
            };
            let Some(taken) = taken else { break };
            if filling == 0 || rng.chance(0.5) {
                taken.slots().for_each(|slot| slots.free(slot));
            }
            most = most.max((slots.touched_words() - before) / u64::from(taken.len));
        }
        // Four levels up and down, twice for the start from the front, in both vectors, and the change itself.
        assert!(most <= 48, "{most} words in filling {filling}");
    }
}

#[test]
fn neighbours_in_time_become_neighbours_in_place() {
    let mut slots = Slots::all_free(1 << 12);
    let runs: Vec<Run> = (0..8).filter_map(|_| slots.take_run(16)).collect();
    assert!(runs.windows(2).all(|two| two[0].first + 16 == two[1].first), "{runs:?}");
    assert_eq!(slots.take_run(64), Some(Run { first: 128, len: 64 }));
}

#[test]
#[should_panic(expected = "is free already")]
fn freeing_twice_is_a_broken_invariant() {
    Slots::all_free(10).free(3);
}
