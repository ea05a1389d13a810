//! The parts of policies: a directory of pages, chains through it, and slots that are free.
//!
//! A [`Directory`] gives each page that a policy knows, cached or not, a small number (its *entry*). Chains are doubly linked
//! lists of entries whose links stand in a vector of their own, so that an entry can be in two chains of different vectors.
//!
//! Rules: an entry is in one chain of a vector at most; entries and slots that are given back are used again, last ones
//! first; no chain, directory or stock allocates after it was made.

use std::collections::HashMap;

use rapidhash::fast::SeedableState;

use super::Slot;

/// No entry, or no slot.
pub(super) const NONE: u32 = u32::MAX;

/// A map from numbers, the same in every run.
pub(super) type NumberMap<V> = HashMap<u64, V, SeedableState<'static>>;

/// An empty map with room for so many numbers.
pub(super) fn number_map<V>(room: usize) -> NumberMap<V> {
    HashMap::with_capacity_and_hasher(room, SeedableState::fixed())
}

/// Bytes of a map, about: the table of `std` has room for 8/7 of its capacity and a byte of control an entry.
pub(super) fn map_bytes<V>(map: &NumberMap<V>) -> usize {
    map.capacity() * 8 / 7 * (size_of::<(u64, V)>() + 1)
}

/// A page that a policy knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) page: u64,
    /// Where it is cached, or [`NONE`].
    pub(super) slot: Slot,
    /// Whatever the policy wants to know of it.
    pub(super) tag: u32,
}

/// Pages by number.
#[derive(Debug)]
pub(super) struct Directory {
    map: NumberMap<u32>,
    entries: Vec<Entry>,
    spare: Vec<u32>,
}

impl Directory {
    /// With room for `most` pages.
    pub(super) fn new(most: usize) -> Self {
        // Twice the room: removed places of the map are then cleaned up seldom.
        Self { map: number_map(most + most / 4), entries: Vec::with_capacity(most), spare: Vec::new() }
    }

    #[inline]
    pub(super) fn find(&self, page: u64) -> Option<u32> {
        self.map.get(&page).copied()
    }

    /// Adds a page that is not there.
    #[inline]
    pub(super) fn insert(&mut self, page: u64, slot: Slot, tag: u32) -> u32 {
        let entry = Entry { page, slot, tag };
        let at = match self.spare.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let before = self.map.insert(page, at);
        debug_assert!(before.is_none(), "page {page} is known already");
        at
    }

    /// Forgets an entry.
    #[inline]
    pub(super) fn remove(&mut self, at: u32) -> Entry {
        let entry = self.entries[at as usize];
        self.map.remove(&entry.page);
        self.spare.push(at);
        entry
    }

    #[inline]
    pub(super) fn at(&self, at: u32) -> &Entry {
        &self.entries[at as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, at: u32) -> &mut Entry {
        &mut self.entries[at as usize]
    }

    /// All pages that are cached, in no order that says anything.
    pub(super) fn listing(&self) -> Vec<(u64, Slot)> {
        let is_there =
            |(at, entry): &(usize, &Entry)| entry.slot != NONE && self.find(entry.page) == Some(*at as u32);
        let all = self.entries.iter().enumerate().filter(is_there);
        all.map(|(_, entry)| (entry.page, entry.slot)).collect()
    }

    /// The cached pages of a chain, the last one in front.
    pub(super) fn listing_of(&self, chain: &Chain, links: &Links) -> Vec<(u64, Slot)> {
        let mut listing = Vec::with_capacity(chain.len() as usize);
        let mut at = chain.back();
        while at != NONE {
            let entry = self.at(at);
            listing.push((entry.page, entry.slot));
            at = chain.before(links, at);
        }
        listing
    }

    /// The slot of a page that is cached.
    #[inline]
    pub(super) fn slot_of(&self, page: u64) -> Option<Slot> {
        let slot = self.at(self.find(page)?).slot;
        (slot != NONE).then_some(slot)
    }

    pub(super) fn bytes(&self) -> usize {
        map_bytes(&self.map) + self.entries.capacity() * size_of::<Entry>() + self.spare.capacity() * 4
    }
}

/// The neighbours of an entry in a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    front: u32,
    back: u32,
}

/// Links of entries, made as they are needed.
#[derive(Debug)]
pub(super) struct Links(Vec<Link>);

impl Links {
    pub(super) fn new(most: usize) -> Self {
        Self(Vec::with_capacity(most))
    }

    #[inline]
    fn fit(&mut self, at: u32) {
        if self.0.len() <= at as usize {
            self.0.resize(at as usize + 1, Link { front: NONE, back: NONE });
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Link>()
    }
}

/// A list of entries, from the front to the back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    front: u32,
    back: u32,
    len: u32,
}

impl Chain {
    pub(super) const fn new() -> Self {
        Self { front: NONE, back: NONE, len: 0 }
    }

    #[inline]
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry at the front, or [`NONE`].
    #[inline]
    pub(super) const fn front(&self) -> u32 {
        self.front
    }

    /// The entry at the back, or [`NONE`].
    #[inline]
    pub(super) const fn back(&self) -> u32 {
        self.back
    }

    /// The entry before this one, or [`NONE`].
    #[inline]
    pub(super) fn before(&self, links: &Links, at: u32) -> u32 {
        links.0[at as usize].front
    }

    #[inline]
    pub(super) fn push_front(&mut self, links: &mut Links, at: u32) {
        links.fit(at);
        links.0[at as usize] = Link { front: NONE, back: self.front };
        match self.front {
            NONE => self.back = at,
            front => links.0[front as usize].front = at,
        }
        self.front = at;
        self.len += 1;
    }

    #[inline]
    pub(super) fn unlink(&mut self, links: &mut Links, at: u32) {
        let Link { front, back } = links.0[at as usize];
        match front {
            NONE => self.front = back,
            front => links.0[front as usize].back = back,
        }
        match back {
            NONE => self.back = front,
            back => links.0[back as usize].front = front,
        }
        self.len -= 1;
    }

    #[inline]
    pub(super) fn move_front(&mut self, links: &mut Links, at: u32) {
        if self.front != at {
            self.unlink(links, at);
            self.push_front(links, at);
        }
    }
}

/// Slots without a page.
#[derive(Debug)]
pub(super) struct Stock {
    given_back: Vec<Slot>,
    next: Slot,
    slots: u32,
}

impl Stock {
    pub(super) fn new(slots: u32) -> Self {
        Self { given_back: Vec::new(), next: 0, slots }
    }

    /// A slot, unless all have a page.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Slot> {
        if let Some(slot) = self.given_back.pop() {
            return Some(slot);
        }
        (self.next < self.slots).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Takes this one, which lies behind all that were taken before.
    pub(super) fn take_this(&mut self, slot: Slot) {
        debug_assert!(slot >= self.next && slot < self.slots, "slots are taken in order");
        self.given_back.extend((self.next..slot).rev());
        self.next = slot + 1;
    }

    #[inline]
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.given_back.push(slot);
    }

    /// Number of slots that have a page.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        self.next - self.given_back.len() as u32
    }

    pub(super) fn bytes(&self) -> usize {
        self.given_back.capacity() * size_of::<Slot>()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.used() == self.slots
    }
}
