//! Durable ends: up to where manifest, log and cold store are known to have come, in a file that outlives them.
//!
//! A log whose last segment is gone ends like one that a crash has torn, and yesterday's copy of a file checks out. Only what is
//! written elsewhere can tell. It stands behind the superblock, in the same file:
//!
//! ```text
//!  thermocline.db   0       4096     8192     12288        16384          20480
//!                   ┌───────┬────────┬────────┬────────────┬──────────────┐
//!                   │ super-│ slot 0 │ slot 1 │ end of the │ end of the   │     each block: magic u64 · numbers u64…
//!                   │ block │        │        │ log        │ store        │     · crc u32 from the database and the place
//!                   └───────┴────────┴────────┴────────────┴──────────────┘
//!  slot   turn · sequence of the newest manifest · memory limit · end of the log · end of the store (4)
//!  log    end of the log                               store    end of the store (4)
//! ```
//!
//! | written | when | durable |
//! |---|---|---|
//! | a slot, the two in turns | after each manifest, opening and close | synced |
//! | the log's end | after each sync of the log, before anybody is told of it | with the next slot or segment; a process that dies loses nothing |
//! | the store's end | after each sync of the store's journal and manifest | the same |
//!
//! - An end is written after the sync that it tells of: no crash leaves one ahead of the files (`EndAfterSync`). So an opening that
//!   finds less has lost a file, or has an older copy of one.
//! - A block that is torn does not check out, and is as good as not there: the slot before it counts.
//! - What fails here fails nobody: an end that is too low tells less.
//!
//! Files that come back older *together* with this one are not missed here. The log names the store's end in its marks, the store
//! the log's in its groups ([`thermocline_pool::store::StoreEnd`]), the manifest both.

use std::path::Path;
use std::sync::Arc;

use thermocline_base::checksum::{Seed, crc32c_append};
use thermocline_base::ids::Lsn;
use thermocline_base::io::{File, Io, IoError, OpenMode};
use thermocline_base::sync::{AtomicU64, Mutex, Ordering};
use thermocline_pool::store::{OwnerPosition, StoreEnd, StoreOwner};

use super::error::CheckpointError;
use super::superblock::{FILE, Superblock};
use crate::log::LogOwner;

/// Where the slots, and the ends that are written without a sync, begin.
const SLOTS: [u64; 2] = [4096, 8192];
const LOG_AT: u64 = 12288;
const STORE_AT: u64 = 16384;
/// The length of superblock and ends.
pub(super) const FILE_BYTES: usize = 20480;
/// A sector, which a device writes whole.
const BLOCK_BYTES: usize = 512;
const MAGIC: u64 = u64::from_le_bytes(*b"TCLNENDS");
const SLOT_FIELDS: usize = 4 + StoreEnd::FIELDS;

/// What is known to have been durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DurableEnds {
    /// Sequence of the newest manifest.
    pub(crate) manifest: u64,
    /// The memory limit that the database ran under, in bytes: whatever it was closed under, it can be opened under. 0: not known.
    pub(crate) memory_limit: u64,
    /// The log.
    pub(crate) log: Lsn,
    /// The cold store.
    pub(crate) store: StoreEnd,
}

impl DurableEnds {
    fn fields(self, turn: u64) -> [u64; SLOT_FIELDS] {
        let [identity, renewals, bytes, record] = self.store.fields();
        [turn, self.manifest, self.memory_limit, self.log.0, identity, renewals, bytes, record]
    }
}

fn encode<const N: usize>(database: &[u8; 16], at: u64, fields: [u64; N]) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..8].copy_from_slice(&MAGIC.to_le_bytes());
    for (place, field) in block[8..].chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    let sum = crc32c_append(Seed::new(database, 0).at(at), &block[..8 + 8 * N]);
    block[8 + 8 * N..12 + 8 * N].copy_from_slice(&sum.to_le_bytes());
    block
}

/// The numbers of a block; `None`: it does not check out.
fn decode<const N: usize>(database: &[u8; 16], at: u64, bytes: &[u8]) -> Option<[u64; N]> {
    let block = bytes.get(at as usize..at as usize + 12 + 8 * N)?;
    let (body, sum) = block.split_at(8 + 8 * N);
    let word = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("eight bytes"));
    let whole = crc32c_append(Seed::new(database, 0).at(at), body).to_le_bytes() == *sum;
    (whole && word(0) == MAGIC).then(|| std::array::from_fn(|field| word(8 + 8 * field)))
}

/// Adds the first slot to the bytes of a superblock.
pub(super) fn begin(superblock: &mut Vec<u8>, database: &[u8; 16], ends: DurableEnds) {
    superblock.resize(FILE_BYTES, 0);
    let at = SLOTS[0];
    superblock[at as usize..at as usize + BLOCK_BYTES].copy_from_slice(&encode(database, at, ends.fields(1)));
}

/// What the file says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FoundEnds {
    pub(crate) ends: DurableEnds,
    /// Which slot counts, and how many were written before it.
    slot: usize,
    turn: u64,
}

impl FoundEnds {
    /// Reads the ends of a database. A superblock of format 1 has none: nothing is known then.
    pub(crate) fn read(io: &dyn Io, dir: &Path, superblock: &Superblock) -> Result<Self, CheckpointError> {
        if !superblock.has_ends() {
            return Ok(Self::default());
        }
        let (path, database) = (dir.join(FILE), &superblock.database);
        let mut bytes = vec![0; FILE_BYTES];
        let got = io.open(&path, OpenMode::Read)?.read_full_at(0, &mut bytes)?;
        let damaged = |offset: usize, what: &str| CheckpointError::Damaged {
            file: path.clone(),
            offset: offset as u64,
            what: what.to_owned(),
        };
        if got < FILE_BYTES {
            return Err(damaged(got, "the file was cut"));
        }
        let slots = (0..SLOTS.len()).filter_map(|slot| {
            let fields: [u64; SLOT_FIELDS] = decode(database, SLOTS[slot], &bytes)?;
            Some((fields, slot))
        });
        let Some(([turn, manifest, memory_limit, log, store @ ..], slot)) =
            slots.max_by_key(|(fields, _)| fields[0])
        else {
            return Err(damaged(SLOTS[0] as usize, "what it says of the other files does not check out"));
        };
        let mut ends =
            DurableEnds { manifest, memory_limit, log: Lsn(log), store: StoreEnd::from_fields(store) };
        if let Some([log]) = decode(database, LOG_AT, &bytes) {
            ends.log = ends.log.max(Lsn(log));
        }
        if let Some(store) = decode(database, STORE_AT, &bytes).map(StoreEnd::from_fields)
            && (ends.store.identity == 0 || ends.store.identity == store.identity)
        {
            ends.store = ends.store.and(store);
        }
        Ok(Self { ends, slot, turn })
    }
}

/// The ends of a database that is open for writing.
#[derive(Debug)]
pub(crate) struct Ends {
    file: Arc<dyn File>,
    database: [u8; 16],
    /// Up to where the log is durable, and the sequence of the newest manifest: what the store's groups carry.
    log: AtomicU64,
    manifest: AtomicU64,
    state: Mutex<FoundEnds>,
}

impl Ends {
    /// Goes on from what was found.
    pub(crate) fn open(
        io: &dyn Io,
        dir: &Path,
        superblock: &Superblock,
        found: FoundEnds,
    ) -> Result<Self, CheckpointError> {
        let file = io.open(&dir.join(FILE), OpenMode::Write)?;
        let (log, manifest) = (AtomicU64::new(found.ends.log.0), AtomicU64::new(found.ends.manifest));
        Ok(Self { file, database: superblock.database, log, manifest, state: Mutex::new(found) })
    }

    /// The log was durable up to here, as recovery has found.
    pub(crate) fn found_log(&self, end: Lsn) {
        self.log.fetch_max(end.0, Ordering::SeqCst);
    }

    /// The database runs under this limit. Written with the next slot.
    pub(crate) fn note_memory_limit(&self, limit: Option<u64>) {
        self.state.lock().ends.memory_limit = limit.unwrap_or(u64::MAX);
    }

    /// Writes all that is known, durably: the manifest with this sequence is.
    pub(crate) fn seal(&self, manifest: u64) {
        let mut state = self.state.lock();
        state.ends.manifest = state.ends.manifest.max(manifest);
        self.manifest.fetch_max(manifest, Ordering::SeqCst);
        told(self.write_slot(&mut state));
    }

    /// Forgets the store, durably: its files go, and another one may be made.
    pub(crate) fn forget_store(&self) -> Result<(), IoError> {
        let mut state = self.state.lock();
        state.ends.store = StoreEnd::default();
        self.file.write_at(STORE_AT, &[0; BLOCK_BYTES])?;
        self.write_slot(&mut state)
    }

    fn write_slot(&self, state: &mut FoundEnds) -> Result<(), IoError> {
        state.ends.log = Lsn(self.log.load(Ordering::SeqCst));
        // The same one again after a failure: the other is whole.
        let (slot, turn) = (1 - state.slot, state.turn + 1);
        let at = SLOTS[slot];
        self.file.write_at(at, &encode(&self.database, at, state.ends.fields(turn)))?;
        self.file.sync_data()?;
        (state.slot, state.turn) = (slot, turn);
        Ok(())
    }
}

impl LogOwner for Ends {
    fn note_durable(&self, end: Lsn) {
        self.log.store(end.0, Ordering::SeqCst);
        told(self.file.write_at(LOG_AT, &encode(&self.database, LOG_AT, [end.0])));
    }

    fn note_segment(&self) {
        told(self.file.sync_data());
    }
}

impl StoreOwner for Ends {
    fn position(&self) -> OwnerPosition {
        OwnerPosition {
            log: self.log.load(Ordering::SeqCst),
            checkpoint: self.manifest.load(Ordering::SeqCst),
        }
    }

    fn note_end(&self, end: StoreEnd) {
        let mut state = self.state.lock();
        state.ends.store = state.ends.store.and(end);
        told(self.file.write_at(STORE_AT, &encode(&self.database, STORE_AT, state.ends.store.fields())));
    }
}

fn told(outcome: Result<(), IoError>) {
    if let Err(error) = outcome {
        tracing::warn!(%error, "the durable ends of log and cold store were not noted; fewer missing files would be noticed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::io::{MemoryIo, RecordingIo};

    const DATABASE: [u8; 16] = [3; 16];

    fn dir() -> &'static Path {
        Path::new("db")
    }

    fn made(io: &dyn Io) -> (Superblock, Ends) {
        io.create_dir_all(dir()).expect("memory");
        let superblock = Superblock::new(DATABASE, 7);
        superblock.create(io, dir()).expect("memory");
        let found = FoundEnds::read(io, dir(), &superblock).expect("just made");
        let ends = Ends::open(io, dir(), &superblock, found).expect("just made");
        (superblock, ends)
    }

    fn end(number: u64) -> StoreEnd {
        StoreEnd { identity: 5, manifest: (number, 10 * number), record: 100 * number }
    }

    #[test]
    fn ends_are_found_again() {
        let io = MemoryIo::new();
        let (superblock, ends) = made(&io);
        let found = |ends: DurableEnds| {
            assert_eq!(FoundEnds::read(&io, dir(), &superblock).expect("whole").ends, ends);
        };
        found(DurableEnds::default());
        ends.note_durable(Lsn(50));
        ends.note_end(end(2));
        found(DurableEnds { log: Lsn(50), store: end(2), ..DurableEnds::default() });
        ends.note_memory_limit(Some(700));
        ends.seal(9);
        ends.note_durable(Lsn(60));
        found(DurableEnds { manifest: 9, memory_limit: 700, log: Lsn(60), store: end(2) });
        ends.forget_store().expect("memory");
        found(DurableEnds {
            store: StoreEnd::default(),
            ..DurableEnds { manifest: 9, memory_limit: 700, log: Lsn(60), store: end(2) }
        });
    }

    /// What a crash leaves is never ahead of what was noted, and never behind the last slot.
    #[test]
    fn a_crash_leaves_the_last_slot_at_least() {
        let files = MemoryIo::new();
        let (superblock, _) = made(&files);
        let io = RecordingIo::new(&files);
        let found = FoundEnds::read(&io, dir(), &superblock).expect("whole");
        let ends = Ends::open(&io, dir(), &superblock, found).expect("whole");
        let mut sealed = vec![(io.operations(), 0)];
        for number in 1..6 {
            ends.note_durable(Lsn(number));
            ends.note_end(end(number));
            ends.seal(number);
            sealed.push((io.operations(), number));
        }
        for operations in 0..=io.operations() {
            let least = sealed.iter().rfind(|(at, _)| *at <= operations).map_or(0, |(_, number)| *number);
            for seed in 0..32 {
                let image = io.crash(operations, seed);
                let found = FoundEnds::read(&image, dir(), &superblock).expect("a slot is whole").ends;
                for number in [found.manifest, found.log.0, found.store.record / 100, found.store.manifest.0]
                {
                    assert!(
                        (least..=least + 1).contains(&number),
                        "{found:?} after {operations}, sealed {least}"
                    );
                }
            }
        }
    }

    #[test]
    fn damage_of_one_slot_falls_back_and_of_both_is_told() {
        let io = MemoryIo::new();
        let (superblock, ends) = made(&io);
        ends.seal(1);
        ends.seal(2);
        let path = dir().join(FILE);
        io.flip(&path, SLOTS[0] + 20, 4);
        assert_eq!(FoundEnds::read(&io, dir(), &superblock).expect("the other").ends.manifest, 1);
        io.flip(&path, SLOTS[1] + 20, 4);
        let error = FoundEnds::read(&io, dir(), &superblock).expect_err("none is left").to_string();
        assert!(error.contains("thermocline.db is damaged"), "{error}");
    }
}
