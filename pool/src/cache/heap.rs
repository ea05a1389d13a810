//! A heap of slots with the least key on top, whose keys can be changed: each slot knows where it stands.
//!
//! Rules: no key is less than the one above it; `place[heap[i]] == i`. Among equal keys the order is that of the changes, the
//! same in every run.

use super::parts::NONE;

#[derive(Debug)]
pub(super) struct SlotHeap<K> {
    heap: Vec<u32>,
    keys: Vec<K>,
    place: Vec<u32>,
}

impl<K: Copy + PartialOrd + Default> SlotHeap<K> {
    pub(super) fn new(slots: u32) -> Self {
        let slots = slots as usize;
        Self { heap: Vec::with_capacity(slots), keys: vec![K::default(); slots], place: vec![NONE; slots] }
    }

    /// The slot with the least key.
    #[inline]
    pub(super) fn top(&self) -> Option<u32> {
        self.heap.first().copied()
    }

    #[inline]
    pub(super) fn key(&self, slot: u32) -> K {
        self.keys[slot as usize]
    }

    /// Is the slot in there?
    pub(super) fn has(&self, slot: u32) -> bool {
        self.place[slot as usize] != NONE
    }

    pub(super) fn keys_mut(&mut self) -> &mut [K] {
        &mut self.keys
    }

    /// Adds a slot that is not in there.
    pub(super) fn push(&mut self, slot: u32, key: K) {
        debug_assert!(self.place[slot as usize] == NONE, "slot {slot} is in the heap already");
        self.keys[slot as usize] = key;
        self.heap.push(slot);
        self.rise(self.heap.len() - 1);
    }

    /// Changes the key of a slot that is in there.
    pub(super) fn set(&mut self, slot: u32, key: K) {
        let before = std::mem::replace(&mut self.keys[slot as usize], key);
        let at = self.place[slot as usize] as usize;
        if key < before {
            self.rise(at);
        } else {
            self.sink(at);
        }
    }

    /// Takes a slot out that is in there.
    pub(super) fn remove(&mut self, slot: u32) {
        let at = std::mem::replace(&mut self.place[slot as usize], NONE) as usize;
        let last = self.heap.pop().unwrap_or(slot);
        if last != slot {
            self.heap[at] = last;
            self.place[last as usize] = at as u32;
            self.rise(at);
            self.sink(self.place[last as usize] as usize);
        }
    }

    fn rise(&mut self, mut at: usize) {
        let slot = self.heap[at];
        while at > 0 {
            let above = (at - 1) / 2;
            if self.keys[self.heap[above] as usize] <= self.keys[slot as usize] {
                break;
            }
            self.put(at, self.heap[above]);
            at = above;
        }
        self.put(at, slot);
    }

    fn sink(&mut self, mut at: usize) {
        let slot = self.heap[at];
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                break;
            }
            let key_of = |at: usize| self.keys[self.heap[at] as usize];
            let right = left + 1;
            let less = if right < self.heap.len() && key_of(right) < key_of(left) { right } else { left };
            if key_of(less) >= self.keys[slot as usize] {
                break;
            }
            self.put(at, self.heap[less]);
            at = less;
        }
        self.put(at, slot);
    }

    #[inline]
    fn put(&mut self, at: usize, slot: u32) {
        self.heap[at] = slot;
        self.place[slot as usize] = at as u32;
    }

    /// Does the heap keep its rules?
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (at, slot) in self.heap.iter().enumerate() {
            assert_eq!(self.place[*slot as usize] as usize, at, "slot {slot} knows where it stands");
            let above = self.heap[at.saturating_sub(1) / 2];
            assert!(
                self.keys[above as usize] <= self.keys[*slot as usize],
                "slot {slot} is above a lesser key"
            );
        }
        let inside = self.place.iter().filter(|place| **place != NONE).count();
        assert_eq!(inside, self.heap.len(), "whatever has a place is in the heap");
    }

    pub(super) fn bytes(&self) -> usize {
        self.heap.capacity() * 4 + self.keys.capacity() * size_of::<K>() + self.place.capacity() * 4
    }
}
