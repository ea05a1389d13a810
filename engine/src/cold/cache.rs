//! The private cache: cold records that one transaction has read (Eldawy et al., VLDB 2014, §4.3).
//!
//! Rules:
//! - It ends with the snapshot under which it was read; at read committed that is the statement. A record that was read
//!   under one snapshot could be dead, and its notice gone, under the next one (`CacheEndsWithSnapshot`).
//! - What was read of a key is complete for a reading at `at` if the read began after `at` was drawn from the clock, or
//!   if no migration of the table has drawn its timestamp since the read began: what is visible at `at` in the store was
//!   durable there before its move drew a timestamp. [`TableCounters::moves`] counts moves before they draw one.
//! - A look that did not wait began and ended within a step, so after all that the step had seen before: it is as good.
//! - It is small: an operation needs what it has just waited for. Levels that validate keep names of records, not
//!   records.
//!
//! [`TableCounters::moves`]: crate::catalog::table::TableCounters::moves

use std::sync::Arc;

use thermocline_pool::store::IndexId as StoreIndex;

use crate::cold::store::{Entries, Look, Record};
use crate::index::hash_of;

/// Reads that are kept.
const ENTRIES: usize = 16;
/// Memory of a read that is kept for the next one, at most.
const KEEP_BYTES: usize = 1 << 10;

/// What a read of the cold store has found under one key.
#[derive(Debug)]
pub(crate) struct Fetched {
    index: StoreIndex,
    /// How many moves of the table had begun before the read did.
    moves: u64,
    key: Vec<u8>,
    entries: Entries,
}

impl Fetched {
    fn is_of(&self, index: StoreIndex, key: &[u8]) -> bool {
        self.index == index && *self.key == *key
    }

    /// How many entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// An entry by its number.
    pub(crate) fn record(&self, at: usize) -> Record<'_> {
        self.entries.get(at)
    }

    /// All entries.
    pub(crate) fn records(&self) -> impl DoubleEndedIterator<Item = Record<'_>> {
        (0..self.len()).map(|at| self.record(at))
    }
}

/// What a transaction has read lately, the oldest first; behind that, what may be used again.
///
/// Whoever works with what was found shares it, so that it stays when it leaves the cache.
#[derive(Debug, Default)]
pub(crate) struct PrivateCache {
    /// With a hash of index and key.
    entries: Vec<(u64, Arc<Fetched>)>,
    live: usize,
    /// Memory of the entries.
    bytes: usize,
}

fn tag_of(index: StoreIndex, key: &[u8]) -> u64 {
    hash_of(key) ^ (u64::from(index.table) << 32 | u64::from(index.index)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl PrivateCache {
    fn find(&self, tag: u64, index: StoreIndex, key: &[u8]) -> Option<usize> {
        self.entries[..self.live].iter().position(|entry| entry.0 == tag && entry.1.is_of(index, key))
    }

    /// What was found under a key. `moves`: of the table, now; a read that may have missed a record since does not
    /// count. `None` for `moves`: the snapshot is older than the read.
    pub(crate) fn get(&self, index: StoreIndex, key: &[u8], moves: Option<u64>) -> Option<Arc<Fetched>> {
        if self.live == 0 {
            return None;
        }
        let found = &self.entries[self.find(tag_of(index, key), index, key)?].1;
        moves.is_none_or(|moves| moves == found.moves).then(|| Arc::clone(found))
    }

    /// Looks into the store, and remembers what is found if that is all: what was known of the key is forgotten.
    pub(crate) fn look(
        &mut self,
        index: StoreIndex,
        key: &[u8],
        moves: u64,
        look: impl FnOnce(&mut Entries) -> Look,
    ) -> (Look, Option<&Arc<Fetched>>) {
        let tag = tag_of(index, key);
        let former = self.find(tag, index, key).or_else(|| (self.live == ENTRIES).then_some(0));
        if let Some(former) = former {
            self.entries[former..self.live].rotate_left(1);
            self.live -= 1;
        }
        let fresh = || Arc::new(Fetched { index, moves, key: Vec::new(), entries: Entries::default() });
        if self.live == self.entries.len() {
            self.entries.push((tag, fresh()));
        }
        let place = &mut self.entries[self.live];
        place.0 = tag;
        let before = place.1.entries.capacity();
        if Arc::get_mut(&mut place.1).is_none() {
            // Somebody still works with what was here.
            place.1 = fresh();
        }
        let fetched = Arc::get_mut(&mut place.1).expect("nobody else has it");
        fetched.entries.clear();
        let outcome = look(&mut fetched.entries);
        self.bytes = self.bytes + fetched.entries.capacity() - before;
        if outcome != Look::Here {
            return (outcome, None);
        }
        fetched.key.clear();
        fetched.key.extend_from_slice(key);
        (fetched.index, fetched.moves) = (index, moves);
        self.live += 1;
        (outcome, Some(&self.entries[self.live - 1].1))
    }

    /// Remembers what a read that has waited has found.
    pub(crate) fn put(
        &mut self,
        index: StoreIndex,
        key: &[u8],
        moves: u64,
        fill: impl FnOnce(&mut Entries),
    ) -> &Fetched {
        let (_, fetched) = self.look(index, key, moves, |entries| {
            fill(entries);
            Look::Here
        });
        fetched.expect("it is here")
    }

    /// Forgets everything, but for some memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.live != 0 {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.live = 0;
        self.entries.retain(|(_, fetched)| fetched.entries.capacity() <= KEEP_BYTES);
        self.bytes = self.entries.iter().map(|(_, fetched)| fetched.entries.capacity()).sum();
    }

    /// Bytes of memory that it takes, but for what somebody still works with after it has left the cache.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_pool::store::BatchId;

    const INDEX: StoreIndex = StoreIndex { table: 3, index: 0 };

    fn put(cache: &mut PrivateCache, key: &[u8], moves: u64, record: &[u8]) {
        cache.put(INDEX, key, moves, |entries| entries.push(BatchId(7), key, record));
    }

    fn bytes(cache: &PrivateCache, key: &[u8], moves: Option<u64>) -> Option<Vec<u8>> {
        cache
            .get(INDEX, key, moves)
            .map(|found| found.records().flat_map(|record| record.bytes.to_vec()).collect())
    }

    #[test]
    fn a_read_counts_for_its_key_and_its_moves_until_it_is_forgotten() {
        let mut cache = PrivateCache::default();
        assert_eq!(bytes(&cache, b"a", None), None);
        put(&mut cache, b"a", 1, b"one");
        put(&mut cache, b"b", 1, b"two");
        assert_eq!(bytes(&cache, b"a", None).as_deref(), Some(&b"one"[..]));
        assert_eq!(bytes(&cache, b"a", Some(1)).as_deref(), Some(&b"one"[..]));
        assert_eq!(bytes(&cache, b"a", Some(2)), None);
        assert!(cache.get(StoreIndex { table: 4, index: 0 }, b"a", None).is_none());
        // A newer read takes the place of the older one.
        put(&mut cache, b"a", 2, b"new");
        assert_eq!(bytes(&cache, b"a", Some(2)).as_deref(), Some(&b"new"[..]));
        assert_eq!(bytes(&cache, b"b", None).as_deref(), Some(&b"two"[..]));
        cache.clear();
        assert_eq!((bytes(&cache, b"a", None), bytes(&cache, b"b", None)), (None, None));
    }

    #[test]
    fn the_oldest_read_goes_first() {
        let mut cache = PrivateCache::default();
        for key in 0..ENTRIES as u8 + 5 {
            put(&mut cache, &[key], 0, &[key]);
        }
        let kept = |cache: &PrivateCache| -> Vec<u8> {
            (0..=255).filter(|key| bytes(cache, &[*key], None).is_some_and(|found| found == [*key])).collect()
        };
        assert_eq!(kept(&cache), (5..ENTRIES as u8 + 5).collect::<Vec<_>>());
        // One that was read again is the youngest.
        put(&mut cache, &[5], 0, &[5]);
        put(&mut cache, &[100], 0, &[100]);
        assert!(kept(&cache).contains(&5) && !kept(&cache).contains(&6));
    }

    #[test]
    fn what_somebody_works_with_stays_as_it_is() {
        let mut cache = PrivateCache::default();
        put(&mut cache, b"a", 0, b"one");
        let held = cache.get(INDEX, b"a", None).expect("it was just read");
        cache.clear();
        put(&mut cache, b"b", 0, b"two");
        assert_eq!(held.record(0).bytes, b"one");
        drop(held);
        // And what nobody works with is used again.
        cache.clear();
        let before = Arc::as_ptr(&cache.entries[0].1);
        put(&mut cache, b"c", 0, b"three");
        assert_eq!(Arc::as_ptr(&cache.entries[0].1), before);
    }

    #[test]
    fn a_look_that_does_not_answer_leaves_nothing() {
        let mut cache = PrivateCache::default();
        put(&mut cache, b"a", 0, b"old");
        for answer in [Look::Absent, Look::Away] {
            let (outcome, found) = cache.look(INDEX, b"a", 0, |entries| {
                entries.push(BatchId(1), b"a", b"half");
                answer
            });
            assert!(outcome == answer && found.is_none());
            assert_eq!(bytes(&cache, b"a", None), None);
        }
    }

    #[test]
    fn much_memory_is_not_kept() {
        let mut cache = PrivateCache::default();
        put(&mut cache, b"a", 0, &[1; 2 * KEEP_BYTES]);
        put(&mut cache, b"b", 0, b"small");
        cache.clear();
        assert_eq!(cache.entries.len(), 1);
    }
}
