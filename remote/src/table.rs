//! The global page table: where the page of a slot is (Jung, Han and Yeom, 2007, §3.3.2).
//!
//! ```text
//!   bit  63  62  61 60   59 58   57 56   55 ……… 36   35 …………………………………………… 0
//!        │   │   └─┬─┘   └─┬─┘   └─┬─┘   └── host ──┘ └──────── index ────────┘
//!        │   │   page size │    second copy           page of the host's memory, counted in pages
//!        │   in use        use count: reads, writes and moves under way
//!        valid: memory stands behind it
//! ```
//!
//! The table is found by the slot, as the paper's is by the swap index, and has two levels: a leaf of [`LEAF_SLOTS`] slots
//! (the pages of a segment) is made when memory for it is granted. Beside each entry a leaf keeps the checksum of the page,
//! so that a page is checked wherever it is read, also when it moves between servers without its owner; and,
//! where that is asked for, the entry of a second copy on another server.
//!
//! - A slot is in use while its page is out. Freeing waits for what is under way: the slot is free when its use count is 0
//!   again (`ReadHoldsSlot`, `WriteHoldsSlot` in the holder of the lease).
//! - A host is one lease of one server, not a machine: a server that comes back is another host.
//!
//! Limits: 2^20 hosts, 2^36 pages a host, 2^36 slots; three operations at a time on a slot, one of a kind.

use std::fmt;

/// Hosts that an entry can name.
pub const HOSTS_MAX: u32 = 1 << 20;
/// Pages of a host that an entry can name.
pub const PAGES_MAX: u64 = 1 << 36;
/// Slots of a leaf: as many as a segment of 64 MiB has pages of 4 KiB.
pub const LEAF_SLOTS: u64 = 1 << 14;

const HOST_SHIFT: u32 = 36;
const SECOND_SHIFT: u32 = 56;
const USES_SHIFT: u32 = 58;
const SIZE_SHIFT: u32 = 60;
const IN_USE: u64 = 1 << 62;
const VALID: u64 = 1 << 63;

const _: () = assert!(HOSTS_MAX as u64 * PAGES_MAX == 1 << SECOND_SHIFT);

/// Length of the page of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum PageSize {
    /// 4 KiB.
    Small = 0,
    /// 64 KiB.
    Medium = 1,
    /// 2 MiB.
    Huge = 2,
}

impl PageSize {
    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small => 4 << 10,
            Self::Medium => 64 << 10,
            Self::Huge => 2 << 20,
        }
    }
}

/// Where the second copy of a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SecondCopy {
    /// There is none.
    None = 0,
    /// In the local file, at the slot's position.
    File = 1,
    /// On another server.
    Server = 2,
}

/// A page of a host's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Spot {
    /// Whose memory.
    pub host: u32,
    /// Which page of it.
    pub page: u64,
}

/// The table's entry of a slot, in 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry(u64);

impl Entry {
    /// An entry of a slot in use, without memory behind it yet.
    #[must_use]
    pub const fn unplaced(size: PageSize) -> Self {
        Self(IN_USE | (size as u64) << SIZE_SHIFT)
    }

    /// The same with its page at `spot`.
    ///
    /// # Panics
    /// When the spot is beyond what an entry can name.
    #[must_use]
    pub const fn at(self, spot: Spot) -> Self {
        assert!(spot.host < HOSTS_MAX && spot.page < PAGES_MAX, "an entry names 2^20 hosts of 2^36 pages");
        let flags = self.0 & (u64::MAX << SECOND_SHIFT);
        Self(flags | VALID | (spot.host as u64) << HOST_SHIFT | spot.page)
    }

    /// The same without its page.
    #[must_use]
    pub const fn nowhere(self) -> Self {
        Self(self.0 & (u64::MAX << SECOND_SHIFT) & !VALID)
    }

    /// Where its page is, if memory stands behind it.
    #[must_use]
    pub const fn spot(self) -> Option<Spot> {
        if self.0 & VALID == 0 {
            return None;
        }
        let host = (self.0 >> HOST_SHIFT) as u32 & (HOSTS_MAX - 1);
        Some(Spot { host, page: self.0 & (PAGES_MAX - 1) })
    }

    /// Is the slot in use?
    #[must_use]
    pub const fn in_use(self) -> bool {
        self.0 & IN_USE != 0
    }

    /// The same, no longer in use.
    #[must_use]
    pub const fn unused(self) -> Self {
        Self(self.0 & !IN_USE)
    }

    /// Length of its page.
    #[must_use]
    pub const fn size(self) -> PageSize {
        match self.0 >> SIZE_SHIFT & 3 {
            0 => PageSize::Small,
            1 => PageSize::Medium,
            _ => PageSize::Huge,
        }
    }

    /// Operations that are under way on it.
    #[must_use]
    pub const fn uses(self) -> u32 {
        (self.0 >> USES_SHIFT & 3) as u32
    }

    /// The same with one operation more.
    ///
    /// # Panics
    /// When there are three already.
    #[must_use]
    pub const fn held(self) -> Self {
        assert!(self.uses() < 3, "a slot has at most a read, a write and a move under way");
        Self(self.0 + (1 << USES_SHIFT))
    }

    /// The same with one operation less.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub const fn let_go(self) -> Self {
        assert!(self.uses() > 0, "an operation on a slot ends once");
        Self(self.0 - (1 << USES_SHIFT))
    }

    /// Where its second copy is.
    #[must_use]
    pub const fn second(self) -> SecondCopy {
        match self.0 >> SECOND_SHIFT & 3 {
            0 => SecondCopy::None,
            1 => SecondCopy::File,
            _ => SecondCopy::Server,
        }
    }

    /// The same with its second copy elsewhere.
    #[must_use]
    pub const fn with_second(self, second: SecondCopy) -> Self {
        Self(self.0 & !(3 << SECOND_SHIFT) | (second as u64) << SECOND_SHIFT)
    }

    /// Its 64 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("spot", &self.spot())
            .field("in_use", &self.in_use())
            .field("size", &self.size())
            .field("uses", &self.uses())
            .field("second", &self.second())
            .finish()
    }
}

/// Entries and what stands beside them, for [`LEAF_SLOTS`] slots.
#[derive(Debug)]
struct Leaf {
    entries: Box<[Entry]>,
    sums: Box<[u32]>,
    /// The second spots, where copies are on two servers.
    seconds: Box<[Entry]>,
}

/// The table.
#[derive(Debug)]
pub struct PageTable {
    leaves: Vec<Option<Leaf>>,
    seconds: bool,
}

impl PageTable {
    /// Without slots. `seconds`: pages may have a second copy on another server.
    #[must_use]
    pub fn new(seconds: bool) -> Self {
        Self { leaves: Vec::new(), seconds }
    }

    /// Number of slots that have a leaf, or lie below one that has.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.leaves.len() as u64 * LEAF_SLOTS
    }

    /// Bytes of its leaves.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let leaf = LEAF_SLOTS as usize * (8 + 4 + if self.seconds { 8 } else { 0 });
        self.leaves.iter().flatten().count() * leaf + self.leaves.capacity() * size_of::<Option<Leaf>>()
    }

    /// Makes the next leaf; gives the slots that it has.
    ///
    /// # Panics
    /// When all 2^36 slots have one.
    pub fn add_leaf(&mut self) -> std::ops::Range<u64> {
        let first = self.slots();
        assert!(first + LEAF_SLOTS <= PAGES_MAX, "the table has 2^36 slots");
        let of = |wanted: bool| if wanted { LEAF_SLOTS as usize } else { 0 };
        self.leaves.push(Some(Leaf {
            entries: vec![Entry::default(); of(true)].into(),
            sums: vec![0; of(true)].into(),
            seconds: vec![Entry::default(); of(self.seconds)].into(),
        }));
        first..first + LEAF_SLOTS
    }

    fn leaf(&self, slot: u64) -> Option<(&Leaf, usize)> {
        let leaf = self.leaves.get((slot / LEAF_SLOTS) as usize)?.as_ref()?;
        Some((leaf, (slot % LEAF_SLOTS) as usize))
    }

    fn leaf_mut(&mut self, slot: u64) -> (&mut Leaf, usize) {
        let leaf = self.leaves.get_mut((slot / LEAF_SLOTS) as usize).and_then(Option::as_mut);
        (leaf.expect("a slot that was allotted has a leaf"), (slot % LEAF_SLOTS) as usize)
    }

    /// The entry of a slot; that of nothing where the table has none.
    #[must_use]
    pub fn get(&self, slot: u64) -> Entry {
        self.leaf(slot).map_or_else(Entry::default, |(leaf, at)| leaf.entries[at])
    }

    /// Changes the entry of a slot; gives it as it is now.
    ///
    /// # Panics
    /// When the table has no such slot.
    pub fn update(&mut self, slot: u64, change: impl FnOnce(Entry) -> Entry) -> Entry {
        let (leaf, at) = self.leaf_mut(slot);
        leaf.entries[at] = change(leaf.entries[at]);
        leaf.entries[at]
    }

    /// The checksum of the page of a slot, as it lies out there.
    #[must_use]
    pub fn sum(&self, slot: u64) -> u32 {
        self.leaf(slot).map_or(0, |(leaf, at)| leaf.sums[at])
    }

    /// Notes the checksum of the page of a slot.
    ///
    /// # Panics
    /// When the table has no such slot.
    pub fn set_sum(&mut self, slot: u64, sum: u32) {
        let (leaf, at) = self.leaf_mut(slot);
        leaf.sums[at] = sum;
    }

    /// Where the second copy on a server is.
    #[must_use]
    pub fn second(&self, slot: u64) -> Option<Spot> {
        self.leaf(slot).and_then(|(leaf, at)| leaf.seconds.get(at)?.spot())
    }

    /// Notes where the second copy on a server is; `None`: it is gone.
    ///
    /// # Panics
    /// When the table has no such slot, or no room for second copies.
    pub fn set_second(&mut self, slot: u64, spot: Option<Spot>) {
        let (leaf, at) = self.leaf_mut(slot);
        leaf.seconds[at] = spot.map_or_else(Entry::default, |spot| Entry::default().at(spot));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZES: [PageSize; 3] = [PageSize::Small, PageSize::Medium, PageSize::Huge];
    const SECONDS: [SecondCopy; 3] = [SecondCopy::None, SecondCopy::File, SecondCopy::Server];

    fn round_trip(host: u32, page: u64, size: PageSize, second: SecondCopy, uses: u32) {
        let spot = Spot { host, page };
        let mut entry = Entry::unplaced(size).with_second(second).at(spot);
        for _ in 0..uses {
            entry = entry.held();
        }
        let all = (entry.spot(), entry.size(), entry.second(), entry.uses(), entry.in_use());
        assert_eq!(all, (Some(spot), size, second, uses, true));
        assert_eq!(entry.nowhere().spot(), None);
        assert_eq!((entry.nowhere().size(), entry.nowhere().uses()), (size, uses));
        assert!(!entry.unused().in_use());
        let mut entry = entry.with_second(SecondCopy::None);
        assert_eq!((entry.second(), entry.spot()), (SecondCopy::None, Some(spot)));
        for _ in 0..uses {
            entry = entry.let_go();
        }
        assert_eq!((entry.uses(), entry.spot()), (0, Some(spot)));
    }

    #[test]
    fn entries_come_back_at_their_limits() {
        for host in [0, 1, HOSTS_MAX - 1] {
            for page in [0, 1, PAGES_MAX - 1] {
                for size in SIZES {
                    for second in SECONDS {
                        (0..=3).for_each(|uses| round_trip(host, page, size, second, uses));
                    }
                }
            }
        }
        assert_eq!(Entry::default().spot(), None);
    }

    proptest! {
        #[test]
        fn entries_come_back(host in 0..HOSTS_MAX, page in 0..PAGES_MAX, size in 0..3_usize, second in 0..3_usize, uses in 0..4_u32) {
            round_trip(host, page, SIZES[size], SECONDS[second], uses);
        }
    }

    #[test]
    #[should_panic(expected = "2^20 hosts")]
    fn a_host_too_many() {
        let _ = Entry::default().at(Spot { host: HOSTS_MAX, page: 0 });
    }

    #[test]
    fn leaves_are_made_as_memory_is_granted() {
        let mut table = PageTable::new(true);
        assert_eq!((table.slots(), table.get(5)), (0, Entry::default()));
        assert_eq!(table.add_leaf(), 0..LEAF_SLOTS);
        assert_eq!(table.add_leaf(), LEAF_SLOTS..2 * LEAF_SLOTS);
        let slot = LEAF_SLOTS + 7;
        let (first, other) = (Spot { host: 3, page: 9 }, Spot { host: 4, page: 1 });
        table.update(slot, |_| Entry::unplaced(PageSize::Small).at(first));
        table.set_sum(slot, 77);
        table.set_second(slot, Some(other));
        assert_eq!(
            (table.get(slot).spot(), table.sum(slot), table.second(slot)),
            (Some(first), 77, Some(other))
        );
        table.set_second(slot, None);
        assert_eq!(table.second(slot), None);
        assert_eq!(table.get(7), Entry::default());
        // A page that is out costs its entry, its checksum and two bits of slots: below 17 bytes with one copy.
        let one_copy = {
            let mut table = PageTable::new(false);
            table.add_leaf();
            table.bytes()
        };
        assert!(one_copy as u64 <= 13 * LEAF_SLOTS, "{one_copy}");
    }
}
