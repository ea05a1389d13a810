//! The tuples that belong on the pinned side: budgets by access density, and the misplaced, best gain first.
//!
//! Input is what a sample of accesses says of each tuple (an entry of a table or an index): where it is, how long, how often it
//! was used. After (Stoica and Ailamaki, DaMoN 2013, §4): tuples are ordered by accesses a byte, and those in front of the order
//! that fit into memory are hot; each table and index gets as much pinned memory as its hot tuples take, and only tuples on the
//! wrong side move. Pure: the same sample gives the same placement, whatever its order.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A tuple of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampled {
    /// Its table or index.
    pub container: u32,
    /// Its place there, as its owner names it.
    pub place: u64,
    /// Its length in bytes, at least 1.
    pub bytes: u32,
    /// Number of its uses.
    pub accesses: u64,
    /// It is on the pinned side.
    pub pinned: bool,
}

/// A tuple that shall change its side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Misplaced {
    /// Its table or index.
    pub container: u32,
    /// Its place there.
    pub place: u64,
    /// Its length in bytes.
    pub bytes: u32,
    /// Number of its uses.
    pub accesses: u64,
}

/// The placement that follows from a sample.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Placement {
    /// Pinned bytes of each table and index that was sampled.
    pub budgets: BTreeMap<u32, u64>,
    /// Paged tuples that shall be pinned, the most accesses a byte first.
    pub hot: Vec<Misplaced>,
    /// Pinned tuples that shall be paged, the fewest accesses a byte first.
    pub cold: Vec<Misplaced>,
}

/// More accesses a byte first.
fn density(a: &Sampled, b: &Sampled) -> Ordering {
    let (left, right) = (
        u128::from(a.accesses) * u128::from(b.bytes.max(1)),
        u128::from(b.accesses) * u128::from(a.bytes.max(1)),
    );
    right.cmp(&left)
}

/// More accesses a byte first; what is equal, in the order of places.
fn denser(a: &Sampled, b: &Sampled) -> Ordering {
    // Of equals, those that are pinned stay: a move costs and gains nothing.
    density(a, b).then(b.pinned.cmp(&a.pinned)).then((a.container, a.place).cmp(&(b.container, b.place)))
}

impl Placement {
    /// The densest prefix of a sample that fits into so many bytes, and what is on the wrong side of its end.
    ///
    /// Among tuples as dense as the first that does not fit, those that fit are in it, too; the pinned ones are asked first. So what
    /// was applied asks for no further move.
    ///
    /// A sample of a share of all tuples has the same share of the budget.
    #[must_use]
    pub fn of(mut sample: Vec<Sampled>, budget_bytes: u64) -> Self {
        sample.sort_unstable_by(denser);
        let mut left = budget_bytes;
        // The first that does not fit: of those behind it, only its equals may take what is left.
        let mut first_out: Option<Sampled> = None;
        let mut placement = Self::default();
        let misplaced = |tuple: &Sampled| Misplaced {
            container: tuple.container,
            place: tuple.place,
            bytes: tuple.bytes,
            accesses: tuple.accesses,
        };
        for tuple in &sample {
            let bytes = u64::from(tuple.bytes);
            let may_fit = first_out.is_none_or(|out| density(&out, tuple).is_eq());
            let is_hot = tuple.accesses > 0 && may_fit && bytes <= left;
            let budget = placement.budgets.entry(tuple.container).or_default();
            if is_hot {
                left -= bytes;
                *budget += bytes;
            } else {
                first_out.get_or_insert(*tuple);
            }
            match (is_hot, tuple.pinned) {
                (true, false) => placement.hot.push(misplaced(tuple)),
                (false, true) => placement.cold.push(misplaced(tuple)),
                _ => {}
            }
        }
        placement.cold.reverse();
        placement
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tuple() -> impl Strategy<Value = Sampled> {
        (0..3_u32, 1..40_u32, 0..30_u64, any::<bool>()).prop_map(|(container, bytes, accesses, pinned)| {
            Sampled { container, place: 0, bytes, accesses, pinned }
        })
    }

    /// Accesses to the pinned side of the best set of whole tuples that fits, by trying all of them.
    fn best(sample: &[Sampled], budget: u64) -> u64 {
        (0..1_u32 << sample.len())
            .filter_map(|set| {
                let chosen = sample.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
                let (bytes, accesses) = chosen.fold((0, 0), |(bytes, accesses), (_, tuple)| {
                    (bytes + u64::from(tuple.bytes), accesses + tuple.accesses)
                });
                (bytes <= budget).then_some(accesses)
            })
            .max()
            .expect("the empty set fits")
    }

    /// Applies a placement: the accesses and the bytes of the pinned side afterwards, of tuples with accesses.
    fn applied(sample: &[Sampled], placement: &Placement) -> (u64, u64) {
        let moved = |list: &[Misplaced], tuple: &Sampled| list.iter().any(|to| to.place == tuple.place);
        let pinned = sample
            .iter()
            .filter(|tuple| (tuple.pinned && !moved(&placement.cold, tuple)) || moved(&placement.hot, tuple));
        pinned.fold((0, 0), |(accesses, bytes), tuple| {
            (accesses + tuple.accesses, bytes + u64::from(tuple.bytes))
        })
    }

    /// Equals at the end of the prefix: a pinned one that does not fit, and one behind it that does.
    #[test]
    fn of_equals_at_the_end_those_that_fit_stay() {
        let of =
            |place, container, bytes, accesses, pinned| Sampled { container, place, bytes, accesses, pinned };
        let sample = [of(0, 0, 60, 90, false), of(1, 2, 30, 20, true), of(2, 0, 15, 10, false)];
        let placement = Placement::of(sample.to_vec(), 80);
        let places = |list: &[Misplaced]| list.iter().map(|to| to.place).collect::<Vec<_>>();
        assert_eq!((places(&placement.hot), places(&placement.cold)), (vec![0, 2], vec![1]));
        let applied = [of(0, 0, 60, 90, true), of(1, 2, 30, 20, false), of(2, 0, 15, 10, true)];
        let again = Placement::of(applied.to_vec(), 80);
        assert!(again.hot.is_empty() && again.cold.is_empty());
    }

    proptest! {
        /// The densest prefix fits, and is worth at least as much as the best set of that very size; and it misses the best
        /// set of the whole budget by less than one tuple more would bring.
        #[test]
        fn a_placement_is_the_densest_prefix(sample in prop::collection::vec(tuple(), 0..11), budget in 0..200_u64) {
            let sample: Vec<_> =
                sample.into_iter().enumerate().map(|(place, tuple)| Sampled { place: place as u64, ..tuple }).collect();
            let placement = Placement::of(sample.clone(), budget);
            let (accesses, bytes) = applied(&sample, &placement);
            prop_assert!(bytes <= budget);
            prop_assert_eq!(bytes, placement.budgets.values().sum::<u64>());
            prop_assert_eq!(accesses, best(&sample, bytes));
            let next = sample.iter().map(|tuple| tuple.accesses).max().unwrap_or(0);
            prop_assert!(accesses + next >= best(&sample, budget));
            let gains = |list: &[Misplaced]| list.iter().map(|to| to.accesses as f64 / f64::from(to.bytes)).collect::<Vec<_>>();
            prop_assert!(gains(&placement.hot).is_sorted_by(|a, b| a >= b));
            prop_assert!(gains(&placement.cold).is_sorted());
            let mut turned = sample.clone();
            turned.reverse();
            prop_assert_eq!(Placement::of(turned, budget), placement.clone());
            // What was applied asks for no more.
            let hot = |tuple: &Sampled| placement.hot.iter().any(|to| to.place == tuple.place);
            let cold = |tuple: &Sampled| placement.cold.iter().any(|to| to.place == tuple.place);
            let after = sample.iter().map(|tuple| Sampled { pinned: (tuple.pinned || hot(tuple)) && !cold(tuple), ..*tuple });
            let again = Placement::of(after.collect(), budget);
            prop_assert!(again.hot.is_empty() && again.cold.is_empty());
        }
    }
}
