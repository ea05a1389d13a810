//! Which rows fit the budget, and whether that is certain.
//!
//! Finding the prefix of an order need not sort: a histogram over the upper bits of the keys tells in which bucket the
//! budget ends, and only that bucket's rows are sorted.

use std::cmp::Ordering;

use super::state::{FLOOR, Partition};
use super::{Budget, TIE};
use crate::SizeClass;
use crate::log::format::PORTIONS_MAX;

/// Keys are positive; sign, exponent and eight bits of the mantissa tell the bucket.
const BUCKET_SHIFT: u32 = 44;
const BUCKETS: usize = 1 << (63 - BUCKET_SHIFT);

fn bucket(key: f64) -> usize {
    (key.to_bits() >> BUCKET_SHIFT) as usize & (BUCKETS - 1)
}

/// Where the hot rows end.
#[derive(Debug)]
pub(super) struct Cut {
    budget: Budget,
    /// The bucket in which the budget ends; none if everything fits.
    bucket: Option<usize>,
    /// Rows of that bucket, ordered; the first `taken` are hot.
    boundary: Vec<Boundary>,
    taken: usize,
    /// The rest of the budget.
    left: u64,
}

#[derive(Clone, Copy, Debug)]
struct Boundary {
    key: f64,
    sum: f64,
    partition: usize,
    index: usize,
    cost: u64,
}

/// The part of the budget that a row takes.
fn cost(budget: Budget, size: SizeClass) -> u64 {
    match budget {
        Budget::Rows(_) => 1,
        Budget::Bytes(_) => size.bytes(),
    }
}

/// The sums that count, with what the rows cost.
fn rows(partitions: &[Partition], budget: Budget) -> impl Iterator<Item = (usize, usize, f64, u64)> {
    partitions.iter().enumerate().flat_map(move |(number, partition)| {
        partition
            .states
            .iter()
            .enumerate()
            .filter(|(_, state)| state.sum >= FLOOR)
            .map(move |(index, state)| (number, index, state.sum, cost(budget, partition.size(index))))
    })
}

impl Cut {
    /// Finds the cut.
    pub(super) fn find(partitions: &[Partition], budget: Budget) -> Self {
        let (Budget::Rows(limit) | Budget::Bytes(limit)) = budget;
        let mut costs = vec![0_u64; BUCKETS];
        for (_, _, sum, cost) in rows(partitions, budget) {
            costs[bucket(sum / cost as f64)] += cost;
        }
        let mut left = limit;
        let mut found = None;
        for (number, cost) in costs.iter().enumerate().rev().filter(|(_, cost)| **cost > 0) {
            match left.checked_sub(*cost) {
                Some(rest) => left = rest,
                None => {
                    found = Some(number);
                    break;
                }
            }
        }
        let mut boundary: Vec<Boundary> = Vec::new();
        if let Some(found) = found {
            boundary.extend(rows(partitions, budget).filter_map(|(partition, index, sum, cost)| {
                let key = sum / cost as f64;
                (bucket(key) == found).then_some(Boundary { key, sum, partition, index, cost })
            }));
        }
        boundary.sort_unstable_by(|a, b| {
            b.key.total_cmp(&a.key).then((a.partition, a.index).cmp(&(b.partition, b.index)))
        });
        let mut taken = 0;
        while let Some(rest) = boundary.get(taken).and_then(|row| left.checked_sub(row.cost)) {
            left = rest;
            taken += 1;
        }
        Self { budget, bucket: found, boundary, taken, left }
    }

    /// The key by which rows are ordered.
    pub(super) fn key(&self, sum: f64, size: SizeClass) -> f64 {
        sum / cost(self.budget, size) as f64
    }

    /// Is the row hot?
    pub(super) fn is_in(&self, partition: usize, index: usize, sum: f64, size: SizeClass) -> bool {
        if sum < FLOOR {
            return false;
        }
        let Some(cut) = self.bucket else { return true };
        let key = self.key(sum, size);
        match bucket(key).cmp(&cut) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => {
                let next = &self.boundary[self.taken];
                next.key.total_cmp(&key).then((partition, index).cmp(&(next.partition, next.index))).is_lt()
            }
        }
    }

    /// The hot rows, in no order.
    pub(super) fn hot(&self, partitions: &[Partition]) -> Vec<(usize, usize)> {
        let inside = rows(partitions, self.budget)
            .filter(|(_, _, sum, cost)| self.bucket.is_none_or(|cut| bucket(sum / *cost as f64) > cut))
            .map(|(partition, index, ..)| (partition, index));
        inside.chain(self.boundary[..self.taken].iter().map(|row| (row.partition, row.index))).collect()
    }

    /// Can nothing that was not read change the cut, beyond ties? No row's sum grows by more than `rest`.
    pub(super) fn is_certain(&self, partitions: &[Partition], rest: f64) -> bool {
        let Some(cut) = self.bucket else {
            // Everything fits; a row that was not read yet may, too.
            return rest < FLOOR;
        };
        let next = &self.boundary[self.taken];
        // The least row inside.
        let mut least = self.boundary[..self.taken].last().map_or(f64::INFINITY, |row| row.key);
        // The most that a row outside can have, and one outside that would still fit.
        let unseen = rest / cost(self.budget, SizeClass::MIN) as f64;
        let mut most = unseen;
        let mut most_fitting = if cost(self.budget, SizeClass::MIN) <= self.left { unseen } else { 0.0 };
        let mut outside = |sum: f64, cost: u64| {
            let upper = (sum + rest) / cost as f64;
            most = most.max(upper);
            if cost <= self.left {
                most_fitting = most_fitting.max(upper);
            }
        };
        for row in &self.boundary[self.taken..] {
            outside(row.sum, row.cost);
        }
        for (_, _, sum, cost) in rows(partitions, self.budget) {
            let key = sum / cost as f64;
            match bucket(key).cmp(&cut) {
                Ordering::Greater => least = least.min(key),
                Ordering::Equal => {}
                Ordering::Less => outside(sum, cost),
            }
        }
        most <= least * (1.0 + TIE) && most_fitting <= next.key * (1.0 + TIE)
    }

    /// The key of the last hot row; 0 if everything fits.
    pub(super) fn last_key(&self, partitions: &[Partition]) -> f64 {
        match (self.bucket, self.taken) {
            (None, _) => 0.0,
            (Some(_), 1..) => self.boundary[self.taken - 1].key,
            (Some(cut), 0) => rows(partitions, self.budget)
                .map(|(_, _, sum, cost)| sum / cost as f64)
                .filter(|key| bucket(*key) > cut)
                .fold(f64::INFINITY, f64::min),
        }
    }
}

/// The most that all quanta from `age` quanta before the last one on can add to a sum: a geometric series of quanta,
/// each of which may be written in several portions.
pub(super) fn rest(alpha: f64, accesses_max: u32, weight_of_age: f64) -> f64 {
    f64::from(PORTIONS_MAX) * f64::from(accesses_max) * weight_of_age / alpha
}
