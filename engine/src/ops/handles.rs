//! Handles of many rows, one behind the other: what they have in common stands there once, so that one of a row in memory takes
//! eight bytes.
//!
//! ```text
//! place: 62 bits │ 2 bits: kind     in memory: the RowId; a record: where its name and its key stand in `records`
//! ```

use thermocline_base::ids::RowId;

use crate::cold::memo::RecordName;
use crate::ops::handle::{RowHandle, SeenPlace, SeenRow};
use crate::session::handle::{HandlePlace, Stamp};

/// Places of a piece. Pieces do not move when more come.
const PLACES: usize = 8 << 10;
/// Bytes of a piece of records.
const RECORD_BYTES: usize = 64 << 10;
/// Bits of a place that say where in its piece a record begins.
const OFFSET_BITS: u32 = 24;
/// Bytes before a record's key: its batch, its hash, the length of the key.
const NAME_BYTES: usize = 20;

/// Handles of rows, numbered from 0 on.
#[derive(Debug, Default)]
pub struct RowHandles {
    /// Stamps of the handles from this number on.
    stamps: Vec<(usize, Stamp)>,
    places: Vec<Vec<u64>>,
    records: Vec<Vec<u8>>,
    count: usize,
}

impl RowHandles {
    /// The number of handles.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the handle of a row that is shown; the bytes that this takes.
    pub fn push_seen(&mut self, row: SeenRow<'_>) -> usize {
        match row.place {
            SeenPlace::Memory(id) => self.add(row.stamp, id.0 << 2, 0),
            SeenPlace::Cold(name, key) => {
                let (at, bytes) = self.add_record(name, key);
                self.add(row.stamp, at << 2 | 1, bytes)
            }
        }
    }

    /// Adds a handle; the bytes that this takes.
    pub fn push(&mut self, handle: &RowHandle) -> usize {
        let (place, kind, bytes) = match &handle.place {
            HandlePlace::Memory(id) => (id.0, 0, 0),
            HandlePlace::Refusing(id) => (id.0, 2, 0),
            HandlePlace::Cold(name, key) => {
                let (at, bytes) = self.add_record(*name, key);
                (at, 1, bytes)
            }
            HandlePlace::RefusingCold(name, key) => {
                let (at, bytes) = self.add_record(*name, key);
                (at, 3, bytes)
            }
        };
        self.add(handle.stamp, place << 2 | kind, bytes)
    }

    fn add(&mut self, stamp: Stamp, place: u64, mut bytes: usize) -> usize {
        if self.stamps.last().is_none_or(|(_, last)| *last != stamp) {
            self.stamps.push((self.count, stamp));
            bytes += size_of::<(usize, Stamp)>();
        }
        if self.places.last().is_none_or(|piece| piece.len() == PLACES) {
            // The first piece grows with what comes.
            let size = if self.places.is_empty() { 0 } else { PLACES };
            self.places.push(Vec::with_capacity(size));
        }
        self.places.last_mut().expect("there is one with room").push(place);
        self.count += 1;
        bytes + size_of::<u64>()
    }

    fn add_record(&mut self, name: RecordName, key: &[u8]) -> (u64, usize) {
        let size = NAME_BYTES + key.len();
        if self.records.last().is_none_or(|piece| piece.len() + size > RECORD_BYTES) {
            self.records.push(Vec::new());
        }
        let number = self.records.len() - 1;
        let piece = &mut self.records[number];
        let at = (number as u64) << OFFSET_BITS | piece.len() as u64;
        piece.extend_from_slice(&name.batch.to_le_bytes());
        piece.extend_from_slice(&name.hash.to_le_bytes());
        piece.extend_from_slice(&(key.len() as u32).to_le_bytes());
        piece.extend_from_slice(key);
        (at, size)
    }

    /// The handle of this number.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn get(&self, number: usize) -> RowHandle {
        assert!(number < self.count, "there are {} handles, none of the number {number}", self.count);
        let stamp = self.stamps[self.stamps.partition_point(|(from, _)| *from <= number) - 1].1;
        let place = self.places[number / PLACES][number % PLACES];
        let id = RowId(place >> 2);
        let place = match place & 3 {
            0 => HandlePlace::Memory(id),
            2 => HandlePlace::Refusing(id),
            kind => {
                let (name, key) = self.record(place >> 2);
                if kind == 1 { HandlePlace::Cold(name, key) } else { HandlePlace::RefusingCold(name, key) }
            }
        };
        RowHandle { stamp, place }
    }

    fn record(&self, at: u64) -> (RecordName, Box<[u8]>) {
        let begin = (at & ((1 << OFFSET_BITS) - 1)) as usize;
        let bytes = &self.records[(at >> OFFSET_BITS) as usize][begin..];
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were written"));
        let length = u32::from_le_bytes(bytes[16..NAME_BYTES].try_into().expect("four bytes were written"));
        let key = bytes[NAME_BYTES..NAME_BYTES + length as usize].into();
        (RecordName { batch: word(0), hash: word(8) }, key)
    }
}

#[cfg(test)]
mod tests {
    use thermocline_base::ids::TableId;

    use super::*;
    use crate::session::Turn;

    #[test]
    fn handles_come_back_as_they_went_in() {
        let stamp = |snapshot| {
            let (table, storage) = (TableId(7), TableId(8));
            Stamp { table, storage, turn: Turn::default(), snapshot }
        };
        let handle = |number: usize| {
            let id = RowId::new(u32::MAX, number as u16);
            let name = RecordName { batch: u64::MAX - number as u64, hash: number as u64 };
            let key: Box<[u8]> = vec![number as u8; number * 7 % 2000].into();
            let place = match number % 7 {
                0 => HandlePlace::Cold(name, key),
                1 => HandlePlace::RefusingCold(name, key),
                2 => HandlePlace::Refusing(id),
                _ => HandlePlace::Memory(id),
            };
            RowHandle { stamp: stamp(number as u64 / 100), place }
        };
        let count = 2 * PLACES + 3;
        let mut handles = RowHandles::default();
        assert!(handles.is_empty());
        let bytes: usize = (0..count).map(|number| handles.push(&handle(number))).sum();
        assert_eq!(handles.len(), count);
        assert!(bytes > count * 8, "{bytes}");
        for number in 0..count {
            assert_eq!(format!("{:?}", handles.get(number)), format!("{:?}", handle(number)));
        }
    }
}
