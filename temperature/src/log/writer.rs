//! Writes an access log.
//!
//! Accesses are added in any order; the end of a quantum sorts its rows and encodes them, and a block is written when
//! enough bytes have gathered or a caller asks ([`LogWriter::flush`]). What was added and is not in a written block
//! is lost with the process: an access log needs no durability.
//!
//! Memory is bounded ([`LogOptions::memory_bytes`]): a dictionary of a fixed number of rows, cleared when it is full,
//! and the buffers of a block. When a quantum knows more rows than [`PORTIONS_MAX`] dictionaries hold, further new rows
//! of that quantum are dropped and counted.

use std::io::Write;
use std::sync::Arc;

use thermocline_base::io::{Appender, File};

use super::error::LogError;
use super::format::{
    self, BLOCK_HEADER_BYTES, Block, DEFINITIONS, ENTRIES, FILE_HEADER_BYTES, FileHeader, MARKS,
    PARTITION_SHIFT, PARTITIONS, PARTS, PORTIONS_MAX, Part, TAIL_BYTES, WEIGHT_MAX, put_varint,
};
use crate::{Access, RowName};

/// Options of a log's writer.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Tells this log from others: a fresh id.
    pub id: [u8; 16],
    /// The length of a quantum, in microseconds; 0 if quanta are counted otherwise.
    pub quantum_us: u64,
    /// When the log was begun, in microseconds since 1970.
    pub start_wall_us: i64,
    /// Bytes that the writer may take; at least [`LogOptions::MEMORY_MIN`].
    pub memory_bytes: usize,
    /// A section ends at the first quantum behind so many bytes.
    pub section_bytes: u64,
    /// A block is written once it has so many bytes.
    pub block_bytes: usize,
}

impl LogOptions {
    /// The least memory that a writer works with.
    pub const MEMORY_MIN: usize = 64 << 10;

    /// A log with the given id, otherwise what suits a database that is running.
    #[must_use]
    pub fn new(id: [u8; 16]) -> Self {
        Self {
            id,
            quantum_us: 1_000_000,
            start_wall_us: 0,
            memory_bytes: 4 << 20,
            section_bytes: 256 << 20,
            block_bytes: 1 << 20,
        }
    }
}

/// Where a log goes.
enum Target {
    File(Box<Appender>),
    Stream(Box<dyn Write + Send>),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::Stream(_) => "Stream",
        })
    }
}

impl Target {
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), LogError> {
        match self {
            Self::File(appender) => {
                while !bytes.is_empty() {
                    let taken = appender.push(bytes);
                    bytes = &bytes[taken..];
                    if !bytes.is_empty() {
                        appender.write()?;
                    }
                }
                Ok(())
            }
            Self::Stream(stream) => stream.write_all(bytes).map_err(LogError::Stream),
        }
    }

    fn flush(&mut self) -> Result<(), LogError> {
        match self {
            Self::File(appender) => Ok(appender.write()?),
            Self::Stream(stream) => stream.flush().map_err(LogError::Stream),
        }
    }
}

/// A row of the dictionary. 32 bytes: half a cache line, found by one look.
#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u64,
    table: u32,
    /// One more than the row's number in its partition; 0: free.
    number: u32,
    /// The portion in which it was accessed last, and its place among that portion's rows.
    portion: u32,
    place: u32,
    /// Keeps the slot half a line.
    _unused: u64,
}

const _: () = assert!(size_of::<Slot>() == 32);

/// A row that was accessed in the quantum that is open.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Its number and, in the lowest bit, whether it was cold at its last access.
    number_cold: u32,
    weight: u32,
}

/// Writes an access log; see the module.
#[derive(Debug)]
pub struct LogWriter {
    target: Target,
    seed: thermocline_base::checksum::Seed,
    /// Where the next block goes.
    position: u64,
    previous: u64,
    section: u64,
    section_bytes_max: u64,
    block_bytes: usize,
    dictionary: Dictionary,
    pending: [Vec<Pending>; PARTITIONS],
    pending_recorded: u32,
    /// The accesses that the last record of a hot row stood for: entries that stand for as many do not say it.
    pending_weight: u32,
    /// Portions of the open quantum that are written already.
    portions: u32,
    block: Building,
    dropped: u64,
}

/// The block that is gathered.
#[derive(Debug)]
struct Building {
    parts: [Vec<u8>; PARTS],
    first_ids: [u32; PARTITIONS],
    first_quantum: u64,
    last_quantum: u64,
    quanta: u32,
    recorded: u32,
    entries: u32,
    weight: u64,
    definitions: u32,
    bytes: usize,
}

impl Building {
    fn clear(&mut self, first_ids: [u32; PARTITIONS]) {
        for part in &mut self.parts {
            part.clear();
        }
        self.first_ids = first_ids;
        (self.quanta, self.recorded, self.entries, self.weight) = (0, 0, 0, 0);
        (self.definitions, self.bytes) = (0, 0);
    }
}

impl LogWriter {
    /// Begins a log in an empty file.
    ///
    /// # Errors
    /// The file's.
    pub fn to_file(file: Arc<dyn File>, options: &LogOptions) -> Result<Self, LogError> {
        Self::new(Target::File(Box::new(Appender::new(file, 0, 256 << 10))), options)
    }

    /// Begins a log on a stream, for example a socket. Writing waits as long as the stream does.
    ///
    /// # Errors
    /// The stream's.
    pub fn to_stream(stream: Box<dyn Write + Send>, options: &LogOptions) -> Result<Self, LogError> {
        Self::new(Target::Stream(stream), options)
    }

    fn new(mut target: Target, options: &LogOptions) -> Result<Self, LogError> {
        let LogOptions { id, quantum_us, start_wall_us, .. } = *options;
        let header = FileHeader { id, quantum_us, start_wall_us };
        target.write(&header.encode())?;
        target.flush()?;
        let memory = options.memory_bytes.max(LogOptions::MEMORY_MIN);
        Ok(Self {
            target,
            seed: header.seed(),
            position: FILE_HEADER_BYTES as u64,
            previous: 0,
            section: FILE_HEADER_BYTES as u64,
            section_bytes_max: options.section_bytes,
            // What a block and the rows of a quantum take comes beside the dictionary.
            block_bytes: options.block_bytes.clamp(1, memory / 8),
            dictionary: Dictionary::new(memory / 2),
            pending: std::array::from_fn(|_| Vec::new()),
            pending_recorded: 0,
            pending_weight: 0,
            portions: 0,
            block: Building {
                parts: std::array::from_fn(|_| Vec::new()),
                first_ids: [0; PARTITIONS],
                first_quantum: 0,
                last_quantum: 0,
                quanta: 0,
                recorded: 0,
                entries: 0,
                weight: 0,
                definitions: 0,
                bytes: 0,
            },
            dropped: 0,
        })
    }

    /// Adds accesses of `quantum`, which is the same as at the last call or, behind [`LogWriter::end_quantum`], a later one.
    ///
    /// # Errors
    /// The target's. The log ends with the last block that was written.
    pub fn add(&mut self, quantum: u64, accesses: &[Access]) -> Result<(), LogError> {
        const AHEAD: usize = 8;
        for (at, access) in accesses.iter().enumerate() {
            if let Some(later) = accesses.get(at + AHEAD) {
                self.dictionary.ask_ahead(later.row);
            }
            if self.dictionary.is_full()
                && !self.dictionary.knows(access.row)
                && !self.another_portion(quantum)?
            {
                self.dropped += 1;
                continue;
            }
            self.add_one(access);
        }
        Ok(())
    }

    #[inline]
    fn add_one(&mut self, access: &Access) {
        let Dictionary { slots, rows, numbers, portion } = &mut self.dictionary;
        let (at, partition) = Dictionary::find(slots, access.row);
        let slot = &mut slots[at];
        if slot.number == 0 {
            let number = &mut numbers[partition];
            *number += 1;
            *slot =
                Slot { hash: access.row.hash, table: access.row.table.0, number: *number, ..Slot::default() };
            *rows += 1;
            let part = &mut self.block.parts[DEFINITIONS + partition];
            put_varint(part, u64::from(access.row.table.0));
            part.extend_from_slice(&access.row.hash.to_le_bytes());
            put_varint(part, u64::from(access.size.number()));
            self.block.definitions += 1;
        }
        let pending = &mut self.pending[partition];
        let cold = u32::from(access.cold);
        let weight = access.weight.min(WEIGHT_MAX);
        if slot.portion == *portion {
            let known = &mut pending[slot.place as usize];
            known.weight = known.weight.saturating_add(weight).min(WEIGHT_MAX);
            known.number_cold = known.number_cold & !1 | cold;
        } else {
            (slot.portion, slot.place) = (*portion, pending.len() as u32);
            pending.push(Pending { number_cold: (slot.number - 1) << 1 | cold, weight });
        }
        if !access.cold {
            self.pending_weight = weight;
        }
        self.pending_recorded = self.pending_recorded.saturating_add(1);
    }

    /// Makes room for further rows of the quantum in another section. No, if it had its share of them.
    fn another_portion(&mut self, quantum: u64) -> Result<bool, LogError> {
        if self.portions + 1 >= PORTIONS_MAX {
            return Ok(false);
        }
        self.encode(quantum);
        self.write_block()?;
        self.begin_section();
        self.portions += 1;
        Ok(true)
    }

    /// Ends a quantum: what was added since the last one belongs to it. A quantum without accesses leaves no trace.
    ///
    /// # Errors
    /// The target's.
    pub fn end_quantum(&mut self, quantum: u64) -> Result<(), LogError> {
        self.encode(quantum);
        self.portions = 0;
        let section_bytes = self.position - self.section + self.block.bytes as u64;
        if section_bytes >= self.section_bytes_max || self.dictionary.is_nearly_full() {
            self.write_block()?;
            self.begin_section();
        } else if self.block.bytes >= self.block_bytes {
            self.write_block()?;
        }
        Ok(())
    }

    fn encode(&mut self, quantum: u64) {
        if self.pending_recorded == 0 {
            return;
        }
        let block = &mut self.block;
        if block.quanta == 0 {
            (block.first_quantum, block.last_quantum) = (quantum, quantum);
        }
        assert!(quantum >= block.last_quantum, "quanta of a log go forward");
        let marks = &mut block.parts[MARKS];
        put_varint(marks, quantum - block.last_quantum);
        put_varint(marks, u64::from(self.pending_weight));
        put_varint(marks, u64::from(self.pending_recorded));
        block.last_quantum = quantum;
        block.quanta += 1;
        block.recorded = block.recorded.saturating_add(self.pending_recorded);
        for (pending, part) in self.pending.iter_mut().zip(&mut block.parts[ENTRIES..]) {
            pending.sort_unstable_by_key(|row| row.number_cold);
            put_varint(part, pending.len() as u64);
            let mut next = 0;
            for row in pending.iter() {
                let (number, cold) = (row.number_cold >> 1, row.number_cold & 1);
                let more = u64::from(cold == 1 || row.weight != self.pending_weight);
                put_varint(part, u64::from(number - next) << 1 | more);
                if more == 1 {
                    put_varint(part, u64::from(row.weight) << 1 | u64::from(cold));
                }
                next = number + 1;
                block.weight = block.weight.saturating_add(u64::from(row.weight));
            }
            block.entries += pending.len() as u32;
            pending.clear();
        }
        block.bytes = block.parts.iter().map(Vec::len).sum();
        self.pending_recorded = 0;
        self.dictionary.portion += 1;
    }

    /// Writes the block that has gathered. Only whole quanta are in it: end the open one first.
    ///
    /// # Errors
    /// The target's.
    pub fn flush(&mut self) -> Result<(), LogError> {
        self.write_block()?;
        self.target.flush()
    }

    fn write_block(&mut self) -> Result<(), LogError> {
        if self.block.quanta == 0 {
            return Ok(());
        }
        let offset = self.position;
        let mut parts = [Part::default(); PARTS];
        let mut at = BLOCK_HEADER_BYTES;
        for (part, bytes) in parts.iter_mut().zip(&self.block.parts) {
            let sum = Block::part_sum(self.seed, offset, bytes);
            *part = Part { at: at as u32, len: bytes.len() as u32, sum };
            at += bytes.len();
        }
        let padding = at.next_multiple_of(8) - at;
        let length = u32::try_from(at + padding + TAIL_BYTES)
            .ok()
            .filter(|length| *length <= format::BLOCK_BYTES_MAX)
            .expect("a quantum's rows fit into a block");
        let Building { first_ids, first_quantum, quanta, recorded, entries, weight, definitions, .. } =
            self.block;
        let header = Block {
            offset,
            length,
            quanta,
            section: self.section,
            previous: self.previous,
            first_quantum,
            recorded,
            entries,
            weight,
            definitions,
            parts,
            first_ids,
        };
        self.target.write(&header.encode(self.seed))?;
        for part in &self.block.parts {
            self.target.write(part)?;
        }
        self.target.write(&[0; 8][..padding])?;
        self.target.write(&format::tail(length))?;
        self.previous = offset;
        self.position += u64::from(length);
        self.block.clear(self.dictionary.numbers);
        Ok(())
    }

    /// Begins a section with an empty dictionary. The block before it is written.
    fn begin_section(&mut self) {
        self.section = self.position;
        self.dictionary.clear();
        self.block.first_ids = [0; PARTITIONS];
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The target's.
    pub fn finish(mut self, quantum: u64) -> Result<u64, LogError> {
        self.encode(quantum);
        self.flush()?;
        Ok(self.position)
    }

    /// Accesses that were left out, because their quantum knew too many rows for the memory of the writer.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes of the log so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.position
    }

    /// Bytes that the writer takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let pending: usize = self.pending.iter().map(|rows| rows.capacity() * size_of::<Pending>()).sum();
        let parts: usize = self.block.parts.iter().map(Vec::capacity).sum();
        self.dictionary.slots.len() * size_of::<Slot>() + pending + parts
    }
}

/// The rows of a section.
struct Dictionary {
    slots: Box<[Slot]>,
    rows: usize,
    /// Number of rows that each partition has.
    numbers: [u32; PARTITIONS],
    /// Counts portions of quanta; 0 is none.
    portion: u32,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dictionary({} rows)", self.rows)
    }
}

impl Dictionary {
    fn new(bytes: usize) -> Self {
        let slots = 1 << (bytes / size_of::<Slot>()).clamp(64, 1 << 28).ilog2();
        let slots = vec![Slot::default(); slots].into_boxed_slice();
        Self { slots, rows: 0, numbers: [0; PARTITIONS], portion: 1 }
    }

    fn clear(&mut self) {
        self.slots.fill(Slot::default());
        (self.rows, self.numbers, self.portion) = (0, [0; PARTITIONS], 1);
    }

    fn is_full(&self) -> bool {
        self.rows >= self.slots.len() / 4 * 3
    }

    fn is_nearly_full(&self) -> bool {
        self.rows >= self.slots.len() / 8 * 5 || self.portion > u32::MAX / 2
    }

    #[inline]
    fn ask_ahead(&self, row: RowName) {
        thermocline_base::prefetch::prefetch(
            &raw const self.slots[row.mixed() as usize & (self.slots.len() - 1)],
        );
    }

    fn knows(&self, row: RowName) -> bool {
        self.slots[Self::find(&self.slots, row).0].number != 0
    }

    /// The row's slot, or the free one for it, and the row's partition.
    #[inline]
    fn find(slots: &[Slot], row: RowName) -> (usize, usize) {
        let mixed = row.mixed();
        let mask = slots.len() - 1;
        let mut at = mixed as usize & mask;
        loop {
            let slot = &slots[at];
            if slot.number == 0 || (slot.hash == row.hash && slot.table == row.table.0) {
                return (at, (mixed >> PARTITION_SHIFT) as usize);
            }
            at = (at + 1) & mask;
        }
    }
}
