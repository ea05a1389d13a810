//! The flusher: writes the filled prefix, syncs it, makes space ahead.
//!
//! One at a time, under the lock of [`Flusher`]: normally its own thread, in tests and when closing the caller of
//! [`super::Log::flush_once`]. Wakers run under that lock and must only schedule, as wakers do.
//!
//! *A nearly full disk*: a segment is halved until it fits, and the usual size comes back by doubling. Where not even the
//! least one fits, the log has no space; reservations are refused until a later flush finds some.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::ids::Lsn;
use thermocline_base::io::{AlignedBytes, Appender, DIRECT_ALIGNMENT, File, Io, IoError, OpenMode};
use thermocline_base::sync::Ordering;

use super::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentName};
use super::{COMPANY_MAX_NS, Core, FlushMode, LogEnd, LogError, LogOptions, LogOwner, LogStatistics, TICK};
use crate::mutation::{self, Rule};

/// The most that one write takes.
const WRITE_BYTES: usize = 1 << 20;
/// Space that was never written is filled with zeros in pieces of this size.
const ZEROS_BYTES: usize = 1 << 20;
/// Memory of both.
pub(super) const BUFFER_BYTES: u64 = (WRITE_BYTES + ZEROS_BYTES) as u64;
/// At least so many files of truncated segments wait to be used again.
const SPARES_MIN: usize = 2;
/// Where the disk is nearly full a segment has half of the usual size, a quarter, and so on, but no less than this.
const LEAST_BYTES: u64 = (256 << 10) - SEGMENT_HEADER_BYTES;

/// What only the flusher touches.
#[derive(Debug)]
pub(super) struct Flusher {
    io: Arc<dyn Io>,
    dir: PathBuf,
    database: [u8; 16],
    generation: u32,
    /// The usual size of a segment.
    segment_bytes: u64,
    /// The size that the next one should have: less where the disk was full, twice as much each time that it was not.
    next_bytes: u64,
    /// Oldest first; the last ones wait for the log to come.
    segments: VecDeque<Segment>,
    /// Files that are no part of the log. They stay until there is a segment of this generation: one of them may be what
    /// proves where the log goes on.
    doomed: Vec<SegmentName>,
    /// Files of truncated segments.
    spares: Vec<PathBuf>,
    /// How many segments were begun since the last truncation: about as many will be before the next one.
    begun: usize,
    /// To the segment that is being written.
    appender: Option<Appender>,
    /// To fill space with.
    zeros: AlignedBytes,
    /// How many waited when the last sync ended: those whom it acknowledged, and those who came meanwhile.
    waited: usize,
    statistics: LogStatistics,
    /// Remembers the end of the log elsewhere.
    pub(super) owner: Option<Arc<dyn LogOwner>>,
}

impl Flusher {
    /// Takes over the recovered log. Gives back the space behind it, in its last segments and in files that are no part of
    /// it, since the first segment of the new generation may need just that. The caller makes that segment next
    /// ([`Flusher::ensure_space`]).
    pub(super) fn open(
        io: Arc<dyn Io>,
        dir: PathBuf,
        database: [u8; 16],
        end: &LogEnd,
        options: &LogOptions,
    ) -> Result<Self, LogError> {
        assert!(
            options.segment_bytes >= 64 && options.segment_bytes.is_multiple_of(8),
            "the size of a segment"
        );
        io.create_dir_all(&dir)?;
        // What was read may stand in the system's cache only, if just the process had died. It is served from now on,
        // and the segment to come vouches for it.
        for (name, end) in &end.keep {
            let file = io.open(&name.path(&dir), OpenMode::Write)?;
            file.sync_data()?;
            give_back_from(&*file, SEGMENT_HEADER_BYTES + (end.0 - name.first.0));
        }
        for name in &end.discard {
            // Its header stays: where the log begins in that file, it says so until the next segment does.
            give_back_from(&*io.open(&name.path(&dir), OpenMode::Write)?, SEGMENT_HEADER_BYTES);
        }
        let kept = end.keep.iter().map(|(name, end)| Segment::former(*name, *end));
        Ok(Self {
            database,
            generation: end.generation + 1,
            segment_bytes: options.segment_bytes,
            next_bytes: options.segment_bytes,
            segments: kept.collect(),
            doomed: end.discard.clone(),
            spares: Vec::new(),
            begun: 0,
            appender: None,
            zeros: AlignedBytes::zeroed(ZEROS_BYTES),
            waited: 0,
            statistics: LogStatistics::default(),
            owner: None,
            io,
            dir,
        })
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    pub(super) fn statistics(&self) -> LogStatistics {
        self.statistics
    }

    /// Makes the next segment, as large as there is room for. Gives where it ends.
    fn grow(&mut self, first: Lsn, durable: Lsn) -> Result<u64, IoError> {
        loop {
            // A used file has its space.
            let bytes = if self.spares.is_empty() { self.next_bytes } else { self.segment_bytes };
            match self.create_segment(first, durable, bytes) {
                Ok(end) => {
                    self.next_bytes = (2 * bytes + SEGMENT_HEADER_BYTES).min(self.segment_bytes);
                    return Ok(end);
                }
                Err(error) if error.is_full() && bytes > LEAST_BYTES => {
                    let file = (SEGMENT_HEADER_BYTES + bytes) / 2 / DIRECT_ALIGNMENT as u64;
                    self.next_bytes =
                        (file * DIRECT_ALIGNMENT as u64 - SEGMENT_HEADER_BYTES).max(LEAST_BYTES);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn create_segment(&mut self, first: Lsn, durable: Lsn, bytes: u64) -> Result<u64, IoError> {
        let name = SegmentName { first, generation: self.generation };
        let header = SegmentHeader { name, bytes, durable };
        let spare = self.spares.pop();
        let segment = Segment::create(&*self.io, &self.dir, &self.database, header, spare.as_deref())?;
        self.begun += 1;
        self.statistics.segments += 1;
        self.statistics.recycled += u64::from(spare.is_some());
        let end = segment.end.0;
        self.segments.push_back(segment);
        Ok(end)
    }

    /// Up to where there should be files: for all that the ring can hold. Where the disk is nearly full, for what is asked
    /// for: a checkpoint, which makes room, needs some itself.
    fn wanted_end(&self, core: &Core) -> u64 {
        let ring = core.ring.written() + core.ring.capacity();
        if self.next_bytes >= self.segment_bytes {
            return ring;
        }
        core.wanted_end.load(Ordering::SeqCst).max(core.ring.written() + LEAST_BYTES / 2).min(ring)
    }

    /// Keeps files ahead of the log. A full disk is noted and tried again by the next flush; everything else that goes
    /// wrong is final, since a failed sync may be behind it.
    pub(super) fn ensure_space(&mut self, core: &Core) -> Result<(), LogError> {
        let mut more = false;
        while core.ring.space_end() < self.wanted_end(core) {
            match self.grow(Lsn(core.ring.space_end()), Lsn(core.ring.durable())) {
                Ok(end) => {
                    core.ring.set_space_end(end);
                    more = true;
                }
                Err(error) if error.is_full() => {
                    *core.full_error.lock() = Some(error);
                    core.full.store(true, Ordering::SeqCst);
                    core.space_waiters.wake(u64::MAX);
                    return Ok(());
                }
                Err(error) => return Err(LogError::Failed(error)),
            }
        }
        if more && let Some(owner) = &self.owner {
            owner.note_segment();
        }
        if more || core.is_full() {
            core.full.store(false, Ordering::SeqCst);
            core.space_waiters.wake(u64::MAX);
        }
        self.remove_doomed()
    }

    /// There is a segment of this generation: what is no part of the log may go.
    fn remove_doomed(&mut self) -> Result<(), LogError> {
        if self.doomed.is_empty() {
            return Ok(());
        }
        for name in std::mem::take(&mut self.doomed) {
            remove_if_there(&*self.io, &name.path(&self.dir)).map_err(LogError::Failed)?;
        }
        self.io.sync_dir(&self.dir).map_err(LogError::Failed)
    }

    /// Writes and syncs the filled prefix.
    fn flush(&mut self, core: &Core) -> Result<(), LogError> {
        self.write(core, core.ring.filled())?;
        self.sync(core)?;
        self.ensure_space(core)?;
        self.fill_ahead(core)
    }

    fn write(&mut self, core: &Core, target: u64) -> Result<(), LogError> {
        let mut written = core.ring.written();
        while written < target {
            let segment = self.segments.iter_mut().rev().find(|segment| segment.name.first.0 <= written);
            let segment = segment.expect("a reservation is granted only where there is a segment");
            let appender = appender_of(&mut self.appender, segment, written);
            let mut pushed = appender.position() - segment.offset(written);
            let most = (target.min(segment.end.0)) - written;
            while pushed < most {
                // SAFETY: filled and not yet written, so the flusher's.
                let [piece, _] = unsafe { core.ring.pieces(written + pushed, most - pushed) };
                match appender.push(piece) {
                    0 => break,
                    count => pushed += count as u64,
                }
            }
            segment.dirty = true;
            if let Err(error) = appender.write() {
                // Only file systems that do not overwrite in place come here. The bytes are kept.
                if error.is_full() {
                    *core.full_error.lock() = Some(error.clone());
                    core.full.store(true, Ordering::SeqCst);
                    return Err(LogError::DiskFull(error));
                }
                return Err(LogError::Failed(error));
            }
            segment.touched = segment.touched.max(appender.position());
            written += pushed;
            self.statistics.bytes += pushed;
            core.ring.set_written(written);
            core.space_waiters.wake(u64::MAX);
        }
        Ok(())
    }

    fn sync(&mut self, core: &Core) -> Result<(), LogError> {
        let written = core.ring.written();
        if core.ring.durable() == written {
            return Ok(());
        }
        for segment in &mut self.segments {
            if segment.dirty
                && let Some(file) = &segment.file
            {
                file.sync_data().map_err(LogError::Failed)?;
                segment.dirty = false;
                self.statistics.syncs += 1;
            }
        }
        if let Some(owner) = &self.owner {
            owner.note_durable(Lsn(written));
        }
        core.ring.set_durable(written);
        self.waited = core.durable_waiters.count();
        core.durable_waiters.wake(written);
        Ok(())
    }

    /// Fills the space that comes next with zeros, unless it has been written in a former life: a sync after a write
    /// into space that is only reserved has to tell the file system's journal, which costs more than the write. The
    /// zeros are durable with the next sync; nothing depends on them.
    fn fill_ahead(&mut self, core: &Core) -> Result<(), LogError> {
        let written = core.ring.written();
        let Some(segment) = self.segments.iter_mut().rev().find(|segment| segment.name.first.0 <= written)
        else {
            return Ok(());
        };
        let Some(file) = &segment.file else { return Ok(()) };
        let block = file.alignment() as u64;
        let length = segment.offset(segment.end.0).next_multiple_of(block);
        let from = segment.touched.next_multiple_of(block);
        // Files that the system caches need none of it: their blocks are allocated when the cache is written back.
        if block == 1 || from >= length || from - segment.offset(written) >= ZEROS_BYTES as u64 / 2 {
            return Ok(());
        }
        let count = (length - from).min(ZEROS_BYTES as u64);
        match file.write_at(from, &self.zeros[..count as usize]) {
            Ok(()) => segment.touched = from + count,
            // The log itself will find out.
            Err(error) if error.is_full() => {}
            Err(error) => return Err(LogError::Failed(error)),
        }
        segment.dirty = true;
        Ok(())
    }

    /// See [`super::Log::segments`].
    pub(super) fn segments(&self, from: Lsn, to: Lsn) -> Vec<(PathBuf, u64)> {
        // At least one, even if nothing lies between: a log says where it goes on.
        let holds = |segment: &&Segment| {
            segment.end >= from && (segment.name.first < to || segment.name.first <= from)
        };
        self.segments
            .iter()
            .filter(holds)
            .map(|segment| {
                (
                    segment.name.path(&self.dir),
                    segment.offset(segment.end.min(to).0.max(segment.name.first.0)),
                )
            })
            .collect()
    }

    /// See [`super::Log::truncate_before`].
    pub(super) fn truncate_before(&mut self, lsn: Lsn) -> Result<(), LogError> {
        // The last one takes the log to come, whatever its size.
        while self.segments.len() > 1 && self.segments[0].end <= lsn && !self.segments[0].dirty {
            let segment = self.segments.pop_front().expect("there are two");
            let path = segment.name.path(&self.dir);
            if segment.file.is_some() && segment.end.0 - segment.name.first.0 == self.segment_bytes {
                self.spares.push(path);
            } else {
                remove_if_there(&*self.io, &path)?;
            }
        }
        // As many as the time until the next truncation is likely to need: a used file costs neither space nor zeros.
        let keep = SPARES_MIN.max(self.begun);
        self.begun = 0;
        while self.spares.len() > keep {
            let path = self.spares.pop().expect("there are more than none");
            remove_if_there(&*self.io, &path)?;
        }
        Ok(())
    }
}

/// The appender to `segment`, which is new to it if `written` is where the segment begins.
fn appender_of<'a>(appender: &'a mut Option<Appender>, segment: &Segment, written: u64) -> &'a mut Appender {
    let file = segment.file.as_ref().expect("segments of this generation are open");
    let next = match appender.take() {
        Some(present) if Arc::ptr_eq(present.file(), file) => present,
        other => {
            assert_eq!(written, segment.name.first.0, "a segment is written from its beginning on");
            let offset = segment.offset(written);
            match other {
                Some(former) => former.go_on(Arc::clone(file), offset),
                None => Appender::new(Arc::clone(file), offset, WRITE_BYTES),
            }
        }
    };
    appender.insert(next)
}

/// Gives the space of a file from a position on back to the file system, where that can be done: what stands there is of no
/// use, and the file stays as long as it is.
fn give_back_from(file: &dyn File, position: u64) {
    const BLOCK: u64 = DIRECT_ALIGNMENT as u64;
    let given = file.len().and_then(|len| {
        let (from, to) = (position.next_multiple_of(BLOCK), len / BLOCK * BLOCK);
        if from < to { file.punch(from, to - from) } else { Ok(false) }
    });
    if let Err(error) = given {
        tracing::debug!(%error, "the space behind the log was not given back");
    }
}

fn remove_if_there(io: &dyn Io, path: &Path) -> Result<(), IoError> {
    match io.remove(path) {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Those who were acknowledged by one flush.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// How many waited when it began.
    began_with: usize,
    /// How many waited when it ended.
    ended_with: usize,
    /// How long it took.
    took_ns: u64,
}

/// Takes the log down if the flusher's thread dies, so that nobody waits for it for ever.
struct Mourner<'a>(&'a Core);

impl Drop for Mourner<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.failure.set(LogError::FlusherDied);
            self.0.down.store(true, Ordering::SeqCst);
            self.0.wake_all();
        }
    }
}

impl Core {
    pub(super) fn flush_once(&self) -> Result<Lsn, LogError> {
        let mut flusher = self.flusher.lock();
        if self.failed() {
            return Err(self.failure());
        }
        self.pulse.flush_since_ns.store(self.clock.now_ns().max(1), Ordering::Release);
        let result = flusher.flush(self);
        self.pulse.flush_since_ns.store(0, Ordering::Release);
        match result {
            Ok(()) => Ok(Lsn(self.ring.durable())),
            Err(LogError::Failed(error)) => {
                if mutation::on(Rule::SyncFailureIsFinal) {
                    self.fail(&error);
                }
                Err(LogError::Failed(error))
            }
            Err(error) => {
                self.space_waiters.wake(u64::MAX);
                Err(error)
            }
        }
    }

    /// Takes the log down for good.
    pub(super) fn fail(&self, error: &IoError) {
        tracing::error!(%error, "the log failed; the database is read-only from now on");
        let _ = self.failure.set(LogError::Failed(error.clone()));
        self.down.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// The flusher's thread.
    pub(super) fn run(&self) {
        let _guard = Mourner(self);
        let mut last = Group::default();
        while !self.failed() {
            let stop = self.stop.load(Ordering::SeqCst);
            if !stop && self.options.mode == FlushMode::Group {
                self.gather(&last);
            }
            let began_with = self.durable_waiters.count();
            let (before, began) = (self.ring.durable(), self.clock.now_ns());
            // A failure stands in the log's state, and the waiters have it.
            let _ = self.flush_once();
            if stop {
                return;
            }
            let progress = self.ring.durable() > before;
            if progress {
                let ended_with = self.flusher.lock().waited;
                last = Group { began_with, ended_with, took_ns: self.clock.now_ns() - began };
            }
            self.sleep(progress);
        }
    }

    /// Waits for company, if there was some the last time: see the module [`super`].
    fn gather(&self, last: &Group) {
        if last.began_with < 2 || !self.durable_waiters.any() {
            return;
        }
        let wanted = (last.ended_with * 2).div_ceil(3);
        let until = self.clock.now_ns() + COMPANY_MAX_NS.min(last.took_ns * 2);
        loop {
            // Whoever comes after the store wakes the flusher; whoever came before is counted.
            self.pulse.company.store(wanted, Ordering::SeqCst);
            let left = until.saturating_sub(self.clock.now_ns());
            if left == 0 || self.durable_waiters.count() >= wanted || self.ring_fills() {
                break;
            }
            // Sleeping, not yielding: where workers keep all processors busy, they need this one's share.
            std::thread::park_timeout(Duration::from_nanos(left));
        }
        self.pulse.company.store(0, Ordering::SeqCst);
    }

    /// Sleeps until somebody kicks, or the next tick.
    fn sleep(&self, progress: bool) {
        self.pulse.parked.store(1, Ordering::SeqCst);
        // Whoever came before the store did not kick, but is seen here.
        if !self.has_work() {
            std::thread::park_timeout(TICK);
        } else if !progress {
            // Somebody waits for a record that another thread is just filling.
            std::thread::park_timeout(TICK / 200);
        }
        self.pulse.parked.store(0, Ordering::SeqCst);
    }

    /// Is there so much to write that it should not wait?
    fn ring_fills(&self) -> bool {
        self.ring.unwritten() > self.ring.capacity() / 4
    }

    fn has_work(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
            || self.ring_fills()
            || !self.is_full() && (self.durable_waiters.any() || self.space_waiters.any())
    }
}
