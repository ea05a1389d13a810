//! One version of a row: a header of 24 bytes and the encoded row.
//!
//! ```text
//!   0        8          16         24
//!   ├────────┼──────────┼──────────┼───────────────┐
//!   │ begin  │ link     │ place    │ row bytes …   │
//!   └────────┴──────────┴──────────┴───────────────┘
//!   begin  bit 63 clear: timestamp of the transaction that made the version
//!          bit 63 set:   id of the transaction that is making it (bit 62 stays clear: a live cell's first word never
//!                        has both, which is how version memory tells free cells)
//!   link   40 bits: next older version, in units of 8 bytes from the range's start, plus one; 0 = none
//!          21 bits: length of the row in bytes
//!   place  48 bits: RowId; bit 63: tombstone; bit 62: parked; bit 61: superseded;
//!          bit 60: keys changed; bit 59: settled; bit 58: moved; bit 57: promoted;
//!          bit 56: an image, see below; bits 48-55: when it was read last, roughly; 0 = not known
//! ```
//!
//! A version has no end timestamp of its own: it ends where the next newer one begins, and a deletion is a version
//! without a row, a *tombstone*. That takes 8 bytes from every row and makes publishing a write one store instead of
//! two (`docs/understand/decisions/0002-end-is-the-next-begin.md`).
//!
//! A row that has moved to the cold store ends with a *moved mark*: a tombstone whose 16 bytes say into which batch the
//! row went, and when the version that moved had begun. Moved is not deleted: who wants to change the row, or validates
//! having read it, follows the mark. A version that a promotion brought back is *promoted*: it is visible from the
//! promotion on, but nothing about the row has changed then.
//!
//! A row of a frozen chunk has no version in memory. Its readers are given an *image*: a version made of the block's bytes
//! in memory that lasts as long as their pin, with the number of the block in a word in front of it. It has the row's
//! begin, nothing below it, and stands in no slot; whoever changes the row thaws it first, which makes an ordinary version.
//!
//! A row that has left memory with its chunk, or is about to, has neither: its readers are given the image of a moved mark
//! (whose begin is that of the block's mark) over the image of the row, as if it had moved alone. The link between the two
//! has a form of its own: the row's image stands right behind the mark's.
//!
//! Rules:
//! - `begin` goes once from a transaction id to a timestamp, and never changes again.
//! - `link` changes only under the latch of the row's slot, and only to skip versions that nobody can see.
//! - The row bytes never change after the version can be reached.

use std::cell::Cell;
use std::ptr::NonNull;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::{ROW_ID_BITS, RowId, Timestamp};
use thermocline_base::sync::{AtomicU64, Ordering, write_unshared};

use crate::hot::memory::Memory;
use crate::mutation::{self, Rule};

/// Bytes in front of the row.
pub(crate) const HEADER_BYTES: usize = 24;

const OLDER_BITS: u32 = 40;
const OLDER_MASK: u64 = (1 << OLDER_BITS) - 1;
const LEN_MASK: u64 = (1 << 21) - 1;
/// The link of a mark's image: the row's image stands behind it. No version has this offset in its memory.
const IMAGE_BEHIND: u64 = OLDER_MASK;
/// The link of a bare image.
const BARE: u64 = OLDER_MASK - 1;
const TOMBSTONE: u64 = 1 << 63;
const PARKED: u64 = 1 << 62;
const SUPERSEDED: u64 = 1 << 61;
const KEYS_CHANGED: u64 = 1 << 60;
const SETTLED: u64 = 1 << 59;
const MOVED: u64 = 1 << 58;
const PROMOTED: u64 = 1 << 57;
const IMAGE: u64 = 1 << 56;
const USE_SHIFT: u32 = 48;
const USE: u64 = 0xff << USE_SHIFT;
const IS_TXN: u64 = 1 << 63;

/// Id of a transaction that may write: a place in the registry and a generation. Never written to disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub(crate) struct TxnId(pub(crate) u64);

/// Where a row went that is not in memory any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    /// The batch that it went into.
    pub(crate) batch: u64,
    /// When the version had begun that moved.
    pub(crate) begin: Timestamp,
}

impl Moved {
    /// Bytes of a mark.
    pub(crate) const BYTES: usize = 16;

    /// The mark's bytes.
    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.batch.to_le_bytes());
        bytes[8..].copy_from_slice(&self.begin.0.to_le_bytes());
        bytes
    }
}

/// What stands in `begin`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    /// Committed then.
    At(Timestamp),
    /// Made by a transaction whose state decides.
    By(TxnId),
}

impl Begin {
    pub(super) fn from_bits(bits: u64) -> Self {
        if bits & IS_TXN == 0 { Self::At(Timestamp(bits)) } else { Self::By(TxnId(bits & !IS_TXN)) }
    }

    pub(super) fn to_bits(self) -> u64 {
        match self {
            Self::At(timestamp) => timestamp.0,
            Self::By(id) => IS_TXN | id.0,
        }
    }
}

#[repr(C)]
struct Header {
    begin: AtomicU64,
    link: AtomicU64,
    place: AtomicU64,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// A version in version memory. Copying the handle copies the pointer; whoever holds one is under an epoch pin that
/// was taken before the version was reached, or owns the version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version(NonNull<Header>);

// SAFETY: a handle is a pointer into version memory, all of whose shared fields are atomics; who may follow it is
// governed by the epochs, whatever the thread.
unsafe impl Send for Version {}
// SAFETY: as above.
unsafe impl Sync for Version {}

/// The bytes of a row while an image is made of them, in a buffer that the thread keeps.
struct RowBytes(Vec<u8>);

thread_local! {
    static ROW_BYTES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl RowBytes {
    fn filled(fill: impl FnOnce(&mut Vec<u8>)) -> Self {
        let filled: Result<Self, std::convert::Infallible> = Self::try_filled(|bytes| {
            fill(bytes);
            Ok(())
        });
        match filled {
            Ok(bytes) => bytes,
        }
    }

    fn try_filled<E>(fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<Self, E> {
        let mut bytes = Self(ROW_BYTES.take());
        bytes.0.clear();
        fill(&mut bytes.0)?;
        Ok(bytes)
    }
}

impl Drop for RowBytes {
    fn drop(&mut self) {
        ROW_BYTES.set(std::mem::take(&mut self.0));
    }
}

impl Version {
    /// Bytes of a version with a row of `len` bytes.
    pub(crate) const fn bytes(len: usize) -> usize {
        HEADER_BYTES + len.next_multiple_of(8)
    }

    /// Writes a new version into a fresh cell.
    ///
    /// # Safety
    /// `cell` has at least [`Version::bytes`]`(row.len() + suffix.len())` bytes, is aligned to 8 and belongs to the caller alone.
    pub(crate) unsafe fn create(
        cell: NonNull<u8>,
        begin: Begin,
        older: u64,
        row_id: RowId,
        tombstone: bool,
        row: &[u8],
        suffix: &[u8],
    ) -> Self {
        let header = cell.cast::<Header>();
        let place = row_id.0 | if tombstone { TOMBSTONE } else { 0 };
        // SAFETY: the cell is large enough, aligned and ours.
        unsafe {
            let link = older | ((row.len() + suffix.len()) as u64) << OLDER_BITS;
            write_unshared(header.cast(), [begin.to_bits(), link, place]);
            let body = cell.add(HEADER_BYTES);
            std::ptr::copy_nonoverlapping(row.as_ptr(), body.as_ptr(), row.len());
            std::ptr::copy_nonoverlapping(suffix.as_ptr(), body.add(row.len()).as_ptr(), suffix.len());
        }
        Self(header)
    }

    /// A version of a row that stands in the block with this number, for the holder of a pin. `fill` writes the row's bytes
    /// behind what is there.
    pub(crate) fn image(
        guard: &Guard<'_>,
        block: u64,
        begin: Timestamp,
        row_id: RowId,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        Self::image_of_bytes(guard, block, begin, row_id, &RowBytes::filled(fill).0)
    }

    /// The same where the bytes may not be had.
    ///
    /// # Errors
    /// That of `fill`.
    #[inline]
    pub(crate) fn try_image<E>(
        guard: &Guard<'_>,
        block: u64,
        begin: Timestamp,
        row_id: RowId,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let bytes = RowBytes::try_filled(fill)?;
        Ok(Self::image_of_bytes(guard, block, begin, row_id, &bytes.0))
    }

    /// A *bare* image: it says when the row begins, and has no bytes. For rows on the paged side, whose bytes were not asked for.
    pub(crate) fn bare_image(guard: &Guard<'_>, block: u64, begin: Timestamp, row_id: RowId) -> Self {
        let image = Self::image_of_bytes(guard, block, begin, row_id, &[]);
        image.header().link.store(BARE, Ordering::Relaxed);
        image
    }

    /// Has it no bytes, since they are on the paged side?
    #[inline]
    pub(crate) fn is_bare(self) -> bool {
        self.link() == BARE
    }

    fn image_of_bytes(guard: &Guard<'_>, block: u64, begin: Timestamp, row_id: RowId, bytes: &[u8]) -> Self {
        let kept = guard.keep(1 + Self::bytes(bytes.len()) / 8);
        // SAFETY: what is kept is aligned, ours, and has a word more than a version of the row needs.
        let image = unsafe {
            kept.write(block);
            Self::create(kept.add(1).cast(), Begin::At(begin), 0, row_id, false, bytes, &[])
        };
        image.header().place.fetch_or(IMAGE, Ordering::Relaxed);
        image
    }

    /// The moved mark of a row that has left with its block, or is about to, over the image of the row. See
    /// [`Version::image`]; `mark` is when it begins, `moved` what it says.
    pub(crate) fn mark_image(
        guard: &Guard<'_>,
        block: u64,
        (mark, moved): (Begin, Moved),
        row_id: RowId,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        let bytes = RowBytes::filled(fill);
        let kept = guard.keep(2 + (Self::bytes(Moved::BYTES) + Self::bytes(bytes.0.len())) / 8);
        // SAFETY: what is kept is aligned, ours, and has room for both versions with a word in front of each.
        let image = unsafe {
            kept.write(block);
            let image =
                Self::create(kept.add(1).cast(), mark, IMAGE_BEHIND, row_id, true, &moved.encode(), &[]);
            let below = kept.add(1 + Self::bytes(Moved::BYTES) / 8);
            below.write(block);
            let row =
                Self::create(below.add(1).cast(), Begin::At(moved.begin), 0, row_id, false, &bytes.0, &[]);
            row.header().place.fetch_or(IMAGE, Ordering::Relaxed);
            image
        };
        image.header().place.fetch_or(IMAGE | MOVED, Ordering::Relaxed);
        image
    }

    /// Is it an image: of a frozen row, or of a row that has left or its mark?
    #[inline]
    pub(crate) fn is_image(self) -> bool {
        self.header().place.load(Ordering::Relaxed) & IMAGE != 0
    }

    /// The number of the block that an image was made of.
    pub(crate) fn image_of(self) -> Option<u64> {
        // SAFETY: `image` put the number in front of the header.
        self.is_image().then(|| unsafe { self.0.cast::<u64>().sub(1).read() })
    }

    /// Are both the same version, or images of one frozen row? The image of a row's mark is not that of the row.
    pub(crate) fn is_same_as(self, other: Self) -> bool {
        self == other || {
            let block = self.image_of();
            block.is_some()
                && block == other.image_of()
                && self.row_id() == other.row_id()
                && self.is_tombstone() == other.is_tombstone()
        }
    }

    /// Copies the version into a fresh cell.
    ///
    /// # Safety
    /// `cell` has [`Version::cell_bytes`] bytes, is aligned to 8 and belongs to the caller alone, who also holds the
    /// latch of the row's slot.
    pub(crate) unsafe fn copy_to(self, cell: NonNull<u8>) -> Self {
        let (from, header) = (self.header(), cell.cast::<Header>());
        // SAFETY: the cell is large enough, aligned and ours.
        unsafe {
            let words = [&from.begin, &from.link, &from.place].map(|word| word.load(Ordering::Acquire));
            write_unshared(header.cast(), words);
            let row = self.row();
            std::ptr::copy_nonoverlapping(row.as_ptr(), cell.add(HEADER_BYTES).as_ptr(), row.len());
        }
        Self(header)
    }

    /// The version whose cell starts at `cell`.
    ///
    /// # Safety
    /// A version was created there and its memory is still mapped.
    pub(crate) unsafe fn from_cell(cell: NonNull<u8>) -> Self {
        Self(cell.cast())
    }

    /// The version at an address taken from a slot.
    ///
    /// # Safety
    /// `address` is not 0 and came from [`Version::address`] of a version that the caller's pin keeps.
    #[inline]
    pub(crate) unsafe fn from_address(address: u64) -> Self {
        // SAFETY: the caller passes the address of a version, which is not null.
        Self(unsafe { NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address as usize)) })
    }

    /// Its address, for a slot.
    #[inline]
    pub(crate) fn address(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// Its cell.
    #[inline]
    pub(crate) fn cell(self) -> NonNull<u8> {
        self.0.cast()
    }

    #[inline]
    fn header<'a>(self) -> &'a Header {
        // SAFETY: whoever holds a handle is under a pin that keeps the version (see the type), and all fields are
        // atomics.
        unsafe { self.0.as_ref() }
    }

    /// Who made it, or when.
    #[inline]
    pub(crate) fn begin(self) -> Begin {
        Begin::from_bits(self.header().begin.load(Ordering::Acquire))
    }

    /// True if it was committed at or before `at`, as its header says: a reader of `at` whose slot leads here sees this version.
    #[inline]
    pub(crate) fn has_begun_by(self, at: Timestamp) -> bool {
        // An id of a transaction is greater than all timestamps.
        self.header().begin.load(Ordering::Acquire) <= at.0 || mutation::off(Rule::PlainSlotsHaveBegun)
    }

    /// Publishes a write: from now on the version begins at `timestamp` for everybody.
    #[inline]
    pub(crate) fn publish(self, timestamp: Timestamp) {
        self.header().begin.store(Begin::At(timestamp).to_bits(), Ordering::Release);
    }

    /// The next older version.
    #[inline]
    pub(crate) fn older(self, memory: &Memory) -> Option<Self> {
        match self.header().link.load(Ordering::Acquire) & OLDER_MASK {
            0 | BARE => None,
            IMAGE_BEHIND => Some(self.image_behind()),
            // SAFETY: links lead to versions that live at least as long as the one that links to them can be reached.
            units => Some(unsafe { Self::from_cell(memory.at(units - 1)) }),
        }
    }

    #[cold]
    fn image_behind(self) -> Self {
        debug_assert!(self.is_image() && self.is_tombstone(), "only the image of a mark has this link");
        // SAFETY: `mark_image` put the row's image there, with a word in front of it.
        unsafe { Self::from_cell(self.cell().add(Self::bytes(Moved::BYTES) + 8)) }
    }

    /// What a link to this version looks like.
    #[inline]
    pub(crate) fn as_link(self, memory: &Memory) -> u64 {
        memory.offset_of(self.cell()) + 1
    }

    /// The raw link to the next older version.
    #[inline]
    pub(crate) fn link(self) -> u64 {
        self.header().link.load(Ordering::Acquire) & OLDER_MASK
    }

    /// Changes the link. Only under the slot's latch, or before the version can be reached.
    #[inline]
    pub(crate) fn set_link(self, link: u64) {
        let len = self.header().link.load(Ordering::Relaxed) & !OLDER_MASK;
        self.header().link.store(len | link, Ordering::Release);
    }

    /// Length of the row in bytes.
    #[inline]
    pub(crate) fn len(self) -> usize {
        (self.header().link.load(Ordering::Relaxed) >> OLDER_BITS & LEN_MASK) as usize
    }

    /// The row's bytes.
    ///
    /// The lifetime is the caller's to choose: not longer than the pin under which the version was reached.
    #[inline]
    pub(crate) fn row<'a>(self) -> &'a [u8] {
        let len = self.len();
        // Better to end than to take a row for an empty one.
        assert!(
            len != 0 || !self.is_bare(),
            "the bytes of {} are asked for, which are on the paged side",
            self.row_id()
        );
        // SAFETY: the row bytes follow the header and never change once the version can be reached.
        unsafe { std::slice::from_raw_parts(self.cell().add(HEADER_BYTES).as_ptr(), len) }
    }

    /// The row that this is a version of.
    #[inline]
    pub(crate) fn row_id(self) -> RowId {
        RowId(self.header().place.load(Ordering::Relaxed) & ((1 << ROW_ID_BITS) - 1))
    }

    /// Is this a deletion?
    #[inline]
    pub(crate) fn is_tombstone(self) -> bool {
        self.header().place.load(Ordering::Relaxed) & TOMBSTONE != 0
    }

    /// Makes a tombstone a moved mark, before it can be reached. Its bytes are [`Moved::encode`]'s.
    pub(crate) fn mark_moved(self) {
        self.header().place.fetch_or(MOVED, Ordering::Relaxed);
    }

    /// Where the row went, if this is a moved mark.
    #[inline]
    pub(crate) fn moved(self) -> Option<Moved> {
        if self.header().place.load(Ordering::Relaxed) & MOVED == 0 {
            return None;
        }
        let row: &[u8; Moved::BYTES] = self.row().try_into().expect("a moved mark has 16 bytes");
        let (batch, begin) = row.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        Some(Moved { batch: word(batch), begin: Timestamp(word(begin)) })
    }

    /// Marks that the version came back from the cold store, before it can be reached.
    pub(crate) fn mark_promoted(self) {
        self.header().place.fetch_or(PROMOTED, Ordering::Relaxed);
    }

    /// Did it come back from the cold store, unchanged?
    #[inline]
    pub(crate) fn is_promoted(self) -> bool {
        self.header().place.load(Ordering::Relaxed) & PROMOTED != 0
    }

    /// Notes when it was read last, or forgets it (0). A hint for who chooses what leaves memory: of two at one time one
    /// may be lost.
    #[inline]
    pub(crate) fn note_use(self, when: u8) {
        let place = &self.header().place;
        let word = place.load(Ordering::Relaxed);
        let noted = word & !USE | u64::from(when) << USE_SHIFT;
        if word != noted {
            let _ = place.compare_exchange(word, noted, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// When it was read last; 0: that is not known.
    pub(crate) fn last_use(self) -> u8 {
        (self.header().place.load(Ordering::Relaxed) >> USE_SHIFT) as u8
    }

    /// Marks that the pruner keeps an item for this version until the snapshot that pins it has gone. Returns whether
    /// it was marked before.
    pub(crate) fn park(self) -> bool {
        self.header().place.fetch_or(PARKED, Ordering::Relaxed) & PARKED != 0
    }

    /// Takes the mark away.
    pub(crate) fn unpark(self) {
        self.header().place.fetch_and(!PARKED, Ordering::Relaxed);
    }

    /// Marks that every older version of the chain is parked.
    pub(crate) fn settle(self) {
        self.header().place.fetch_or(SETTLED, Ordering::Relaxed);
    }

    /// Is every older version of the chain parked?
    pub(crate) fn is_settled(self) -> bool {
        self.header().place.load(Ordering::Relaxed) & SETTLED != 0
    }

    /// Marks that the same transaction has written a newer version.
    pub(crate) fn supersede(self) {
        self.header().place.fetch_or(SUPERSEDED, Ordering::Relaxed);
    }

    /// Has the same transaction written a newer version?
    pub(crate) fn is_superseded(self) -> bool {
        self.header().place.load(Ordering::Relaxed) & SUPERSEDED != 0
    }

    /// Takes the mark away, when the newer version was rolled back to a savepoint.
    pub(crate) fn restore(self) {
        self.header().place.fetch_and(!SUPERSEDED, Ordering::Relaxed);
    }

    /// Marks that some index key differs between this version and the next older one.
    pub(crate) fn mark_keys_changed(self) {
        self.header().place.fetch_or(KEYS_CHANGED, Ordering::Relaxed);
    }

    /// May some index key differ between this version and the next older one? Always so for a tombstone.
    pub(crate) fn keys_changed(self) -> bool {
        self.header().place.load(Ordering::Relaxed) & (KEYS_CHANGED | TOMBSTONE) != 0
    }

    /// Asks the processor for the header and the first bytes of the row.
    #[inline]
    pub(crate) fn prefetch(self) {
        for line in 0..3 {
            thermocline_base::prefetch::prefetch(self.cell().as_ptr().wrapping_add(line * 64));
        }
    }

    /// Bytes of its cell.
    pub(crate) fn cell_bytes(self) -> usize {
        Self::bytes(self.len())
    }
}
