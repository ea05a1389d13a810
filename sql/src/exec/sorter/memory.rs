//! Records in memory, and their order.
//!
//! ```text
//! entry: sixteen bytes of the key, behind what all keys begin with │ piece and place of the record
//! ```
//!
//! Entries are parted by their fronts, as a sample of them says, until a part can be sorted at once. Those with equal fronts look at
//! their keys, unless these end there.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::rc::Rc;

use thermocline_base::prefetch::prefetch;

use super::record::{self, Draft, Parts};
use crate::error::Result;
use crate::expr::Context;

/// Bytes of the first piece, and of all further ones at the most, but for a record that is larger.
const PIECE: (usize, usize) = (1 << 10, 256 << 10);
/// Entries that are sorted at once.
const TURN: usize = 4096;
/// Fronts that part entries at once.
const FRONTS: usize = 127;
/// Records that are asked for before they are read.
const AHEAD: usize = 12;
/// Entries or records between two looks at the turn.
pub(super) const LOOK: usize = 32;

/// The first bytes of a key, as numbers that compare as they do.
pub(super) type Front = (u64, u64);

pub(super) fn front(key: &[u8], from: usize) -> Front {
    (word(key, from), word(key, from + 8))
}

/// Eight bytes of a key, behind so many; zeros where it has ended.
fn word(key: &[u8], from: usize) -> u64 {
    let some = key.get(from..).unwrap_or_default();
    if let Some(bytes) = some.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..some.len()].copy_from_slice(some);
    u64::from_be_bytes(bytes)
}

/// A record in memory.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    /// The first bytes of the key behind those that all keys begin with.
    front: Front,
    piece: u32,
    at: u32,
}

impl Entry {
    /// The front as one number, which is compared without a branch.
    #[inline]
    fn wide_front(&self) -> u128 {
        u128::from(self.front.0) << 64 | u128::from(self.front.1)
    }
}

/// Bytes that an entry takes: the list doubles, and is copied while it is sorted.
const ENTRY_BYTES: usize = 3 * size_of::<Entry>() + size_of::<u16>();

/// Records in memory.
#[derive(Default)]
pub(super) struct Records {
    pieces: Vec<Vec<u8>>,
    pub(super) entries: Vec<Entry>,
    /// The first key, as far as all others begin as it does.
    common: Vec<u8>,
    /// Bytes of the longest key.
    longest: usize,
    /// Pieces of records that have been written, all of [`PIECE`]'s greatest size.
    spare: Spare,
}

/// Pieces that wait for other records.
type Spare = Rc<RefCell<Vec<Vec<u8>>>>;

impl Records {
    /// None, whose pieces are those that others have left.
    pub(super) fn behind(others: &Self) -> Self {
        Self { spare: Rc::clone(&others.spare), ..Self::default() }
    }

    /// Takes a record, and returns the bytes that it takes.
    pub(super) fn push(&mut self, draft: &Draft) -> usize {
        let mut bytes = ENTRY_BYTES;
        let room = record::room_for(draft);
        if self.pieces.last().is_none_or(|piece| piece.capacity() - piece.len() < room) {
            let wanted = self.pieces.last().map_or(PIECE.0, |last| (last.capacity() * 2).min(PIECE.1));
            let size = wanted.max(room);
            let spare = if size == PIECE.1 { self.spare.borrow_mut().pop() } else { None };
            self.pieces.push(spare.unwrap_or_else(|| Vec::with_capacity(size)));
            bytes += size;
        }
        let key = &draft.key[..];
        if self.entries.is_empty() {
            self.common = key.to_vec();
        } else if !key.starts_with(&self.common) {
            let same = key.iter().zip(&self.common).take_while(|(a, b)| a == b).count();
            self.common.truncate(same);
        }
        self.longest = self.longest.max(key.len());
        let number = self.pieces.len() - 1;
        let piece = &mut self.pieces[number];
        let at = u32::try_from(piece.len()).expect("a piece is shorter");
        record::append(draft, piece);
        let piece = u32::try_from(number).expect("pieces of a kilobyte");
        self.entries.push(Entry { front: (0, 0), piece, at });
        bytes
    }

    /// Leaves the memory of the pieces to the records that come.
    pub(super) fn give_up(self) {
        let pieces = self.pieces.into_iter().filter(|piece| piece.capacity() == PIECE.1);
        self.spare.borrow_mut().extend(pieces.map(|mut piece| {
            piece.clear();
            piece
        }));
    }

    /// Forgets the pieces that wait for other records.
    pub(super) fn drop_spare(&self) {
        self.spare.borrow_mut().clear();
    }

    /// Asks for a record that is to be read soon: the one that stands behind this place by some.
    pub(super) fn ask_for(&self, place: usize) {
        if let Some(entry) = self.entries.get(place + AHEAD) {
            let record = self.from(entry);
            prefetch(record.as_ptr());
            prefetch(record.as_ptr().wrapping_add(64));
        }
    }

    /// The bytes from a record on.
    fn from(&self, entry: &Entry) -> &[u8] {
        &self.pieces[entry.piece as usize][entry.at as usize..]
    }

    pub(super) fn parts(&self, entry: &Entry) -> Parts<'_> {
        record::split(self.from(entry)).0
    }

    /// The bytes of a record.
    pub(super) fn record(&self, entry: &Entry) -> &[u8] {
        let from = self.from(entry);
        &from[..record::split(from).1]
    }

    fn order(&self, a: &Entry, b: &Entry) -> Ordering {
        let keys = || {
            // Keys that end in their fronts are equal if these are.
            let ends = self.longest <= self.common.len() + size_of::<Front>();
            let key = |entry: &Entry| self.parts(entry).key;
            if ends { Ordering::Equal } else { key(a).cmp(key(b)) }
        };
        let place = |entry: &Entry| (entry.piece, entry.at);
        a.front.cmp(&b.front).then_with(keys).then_with(|| place(a).cmp(&place(b)))
    }

    /// Sorts the entries, in turns: parted by their fronts until a part can be sorted at once.
    pub(super) async fn sort(&mut self, context: &Context) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        let common = self.common.len();
        for some in entries.chunks_mut(LOOK) {
            for entry in &mut *some {
                entry.front = front(self.parts(entry).key, common);
            }
            if context.is_due_after(some.len()) {
                context.pause().await?;
            }
        }
        let mut parted = Vec::new();
        let mut parts = vec![Part { from: 0, to: entries.len(), is_equal: false }];
        while let Some(part) = parts.pop() {
            let some = &mut entries[part.from..part.to];
            if some.len() <= TURN {
                if !part.is_equal {
                    some.sort_unstable_by_key(Entry::wide_front);
                }
                for equal in some.chunk_by_mut(|a, b| a.front == b.front).filter(|equal| equal.len() > 1) {
                    equal.sort_unstable_by(|a, b| self.order(a, b));
                }
                if context.is_due_after(part.to - part.from) {
                    context.pause().await?;
                }
            } else if part.is_equal {
                self.merge_sort(some, context).await?;
            } else {
                let found = part_by_front(some, &mut parted, context).await?;
                parts.extend(found.into_iter().map(|found| Part {
                    from: part.from + found.from,
                    to: part.from + found.to,
                    ..found
                }));
            }
        }
        self.entries = entries;
        Ok(())
    }

    /// Sorts entries whose fronts say nothing.
    async fn merge_sort(&self, entries: &mut [Entry], context: &Context) -> Result<()> {
        let few = TURN / 8;
        for run in entries.chunks_mut(few) {
            run.sort_unstable_by(|a, b| self.order(a, b));
            if context.is_due_after(few) {
                context.pause().await?;
            }
        }
        let (mut width, mut merged) = (few, Vec::with_capacity(entries.len()));
        while width < entries.len() {
            merged.clear();
            for pair in entries.chunks(2 * width) {
                let (mut left, mut right) = pair.split_at(width.min(pair.len()));
                while let (Some(a), Some(b)) = (left.first(), right.first()) {
                    if self.order(a, b).is_lt() {
                        merged.push(*a);
                        left = &left[1..];
                    } else {
                        merged.push(*b);
                        right = &right[1..];
                    }
                    if merged.len().is_multiple_of(LOOK) && context.is_due_after(LOOK) {
                        context.pause().await?;
                    }
                }
                merged.extend_from_slice(left);
                merged.extend_from_slice(right);
            }
            entries.copy_from_slice(&merged);
            width *= 2;
        }
        Ok(())
    }
}

/// Entries from a place to another one that stand there in any order.
struct Part {
    from: usize,
    to: usize,
    /// Their fronts are equal.
    is_equal: bool,
}

/// Parts entries by fronts that some of them have: what has such a front, and what is between two.
async fn part_by_front(
    entries: &mut [Entry],
    parted: &mut Vec<Entry>,
    context: &Context,
) -> Result<Vec<Part>> {
    let step = entries.len() / (FRONTS * 8);
    let mut sample: Vec<u128> = entries.iter().step_by(step.max(1)).map(Entry::wide_front).collect();
    sample.sort_unstable();
    let mut fronts: Vec<u128> = (1..=FRONTS).map(|at| sample[at * sample.len() / (FRONTS + 1)]).collect();
    fronts.dedup();
    let part_of = |entry: &Entry| {
        let wide = entry.wide_front();
        let below = fronts.partition_point(|front| *front < wide);
        2 * below + usize::from(fronts.get(below) == Some(&wide))
    };
    let mut counts = vec![0; 2 * fronts.len() + 1];
    let mut numbers: Vec<u16> = Vec::with_capacity(entries.len());
    for some in entries.chunks(LOOK) {
        for entry in some {
            let part = part_of(entry);
            counts[part] += 1;
            numbers.push(part as u16);
        }
        if context.is_due_after(some.len()) {
            context.pause().await?;
        }
    }
    let mut next = Vec::with_capacity(counts.len());
    let mut from = 0;
    for count in &counts {
        next.push(from);
        from += count;
    }
    parted.clear();
    parted.resize(entries.len(), Entry::default());
    for (some, numbers) in entries.chunks(LOOK).zip(numbers.chunks(LOOK)) {
        for (entry, number) in some.iter().zip(numbers) {
            let place = &mut next[usize::from(*number)];
            parted[*place] = *entry;
            *place += 1;
        }
        if context.is_due_after(some.len()) {
            context.pause().await?;
        }
    }
    entries.copy_from_slice(parted);
    let parts = next.iter().zip(&counts).enumerate();
    let parts =
        parts.map(|(number, (to, count))| Part { from: to - count, to: *to, is_equal: number % 2 == 1 });
    Ok(parts.filter(|part| part.to - part.from > 1).collect())
}
