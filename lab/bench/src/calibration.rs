//! The speed of the machine just before a run: how long a random read of memory takes, how many random reads a second
//! the data directory's device answers, and how often a second a small append becomes durable there.
//!
//! Machines differ, and a shared one differs from minute to minute. A result carries these numbers, so that ratios to
//! them can be compared where the throughput itself cannot.
//!
//! Limits: about three seconds in all, 1 GiB of memory (1/16 of the machine's if that is less) and a file of up to
//! 256 MiB in the data directory, removed afterwards. Each step is bounded by time, so a slow device only makes the
//! numbers coarser. What answers the device's reads may still be a cache below the operating system.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::{machine, time};

/// The numbers that were measured.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// One dependent random read of memory with 4 KiB pages: cache and TLB misses included.
    pub dram_random_read_ns: f64,
    /// The same with huge pages, as far as the kernel gave some.
    pub dram_random_read_huge_pages_ns: f64,
    /// Bytes of memory that the reads with small pages went over: less than intended where touching it took too long.
    pub dram_bytes: u64,
    /// Random 4 KiB reads a second with 64 of them in flight.
    pub device_reads_per_s_depth64: f64,
    /// `io_uring`, or `threads`: one blocking read on each of 64 threads.
    pub device_method: &'static str,
    /// Did the reads pass by the page cache (`O_DIRECT`)? If not they say little about the device.
    pub device_direct: bool,
    /// Appends of 4 KiB, each followed by `fdatasync`, a second.
    pub fdatasync_per_s: f64,
}

/// A step of the calibration that failed.
#[derive(Debug)]
pub struct CalibrationError {
    step: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl std::fmt::Display for CalibrationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the calibration could not {} {}: {}; free some space or choose another --data-dir, or skip it with \
             --no-calibration",
            self.step,
            self.path.display(),
            self.source
        )
    }
}

impl std::error::Error for CalibrationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Sizes and times of the measures; tests take less.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) dram_bytes: usize,
    pub(crate) dram_reads: usize,
    pub(crate) file_bytes: u64,
    pub(crate) step: Duration,
}

impl Effort {
    fn full() -> Self {
        const GIB: u64 = 1 << 30;
        let sixteenth = machine::Machine::here().memory_bytes.unwrap_or(16 * GIB) / 16;
        Self {
            dram_bytes: usize::try_from(sixteenth.clamp(1 << 26, GIB)).expect("at most 1 GiB"),
            dram_reads: 2_000_000,
            file_bytes: 256 << 20,
            step: Duration::from_millis(500),
        }
    }
}

/// Calibrates the machine and the device of `data_dir`.
///
/// # Errors
/// When the data directory cannot be written to or read from.
pub fn calibrate(data_dir: &Path) -> Result<Calibration, CalibrationError> {
    calibrate_with(data_dir, Effort::full())
}

pub(crate) fn calibrate_with(data_dir: &Path, effort: Effort) -> Result<Calibration, CalibrationError> {
    let (small_pages, dram_bytes) = random_read_ns(effort, false);
    let (huge_pages, _) = random_read_ns(effort, true);
    let path = data_dir.join("calibration.tmp");
    let failed = |step, source| CalibrationError { step, path: path.clone(), source };
    let result = device(&path, effort, &failed);
    // The directory may be gone already (an interrupt removes a temporary one); nothing depends on the file.
    let _ = std::fs::remove_file(&path);
    let (fdatasync_per_s, reads) = result?;
    Ok(Calibration {
        dram_random_read_ns: small_pages,
        dram_random_read_huge_pages_ns: huge_pages,
        dram_bytes,
        device_reads_per_s_depth64: reads.per_second,
        device_method: reads.method,
        device_direct: reads.direct,
        fdatasync_per_s,
    })
}

// --- memory ---------------------------------------------------------------------------------------------------------

const WORDS_PER_LINE: usize = 8;

/// Memory is touched in parts of so many bytes, until the time is over.
const PART_BYTES: usize = 64 << 20;

/// The time of one read whose address depends on what the read before it found, and the bytes that the reads went
/// over.
fn random_read_ns(effort: Effort, huge_pages: bool) -> (f64, u64) {
    let mut words = vec![0_u64; effort.dram_bytes / size_of::<u64>()];
    advise(&mut words, huge_pages);
    // Touches every line, so that each has memory of its own (pages never written share the zero page) and so that
    // no two lines hold the same value (a processor may guess a value that is always the same).
    let began = time::now();
    let mut touched = 0;
    for part in words.chunks_mut(PART_BYTES / size_of::<u64>()) {
        for (line, word) in part.iter_mut().step_by(WORDS_PER_LINE).enumerate() {
            *word = mix((touched + line) as u64);
        }
        touched += part.len();
        if began.elapsed() > 2 * effort.step {
            break;
        }
    }
    let lines = (touched / WORDS_PER_LINE) as u64;
    let began = time::now();
    let mut state = 1_u64;
    let mut reads = 0;
    while reads == 0 || (reads < effort.dram_reads && began.elapsed() < effort.step) {
        for _ in 0..effort.dram_reads / 100 {
            let line = ((state >> 32) * lines) >> 32;
            state = (state ^ words[line as usize * WORDS_PER_LINE]).wrapping_mul(0x2545_f491_4f6c_dd1d);
        }
        reads += effort.dram_reads / 100;
    }
    std::hint::black_box(state);
    (began.elapsed_ns() as f64 / reads as f64, (touched * size_of::<u64>()) as u64)
}

/// One round of SplitMix64.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Asks for huge pages, or for none, under memory that has not been touched yet. Advice: the kernel may decline.
fn advise(words: &mut [u64], huge_pages: bool) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        const PAGE: usize = 4096;
        let begin = words.as_mut_ptr().addr();
        let aligned = begin.next_multiple_of(PAGE);
        let length = (begin + size_of_val(words)).saturating_sub(aligned) / PAGE * PAGE;
        let advice = if huge_pages { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: the range lies inside of `words`, which we borrow mutably; both kinds of advice change only the
        // size of the pages under it, never what it holds.
        let _ = unsafe { madvise(words.as_mut_ptr().with_addr(aligned).cast(), length, advice) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (words, huge_pages);
}

// --- device ---------------------------------------------------------------------------------------------------------

const BLOCK: usize = 4096;
const PIECE: usize = 1 << 17;
const DEPTH: usize = 64;

/// Memory aligned as direct I/O wants it.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Aligned<const N: usize>([u8; N]);

#[derive(Debug)]
struct Reads {
    per_second: f64,
    method: &'static str,
    direct: bool,
}

fn device(
    path: &Path,
    effort: Effort,
    failed: &dyn Fn(&'static str, io::Error) -> CalibrationError,
) -> Result<(f64, Reads), CalibrationError> {
    let fdatasync_per_s = append_and_sync(path, effort).map_err(|error| failed("append to", error))?;
    let blocks = fill(path, effort).map_err(|error| failed("write", error))?;
    let reads = random_reads(path, blocks, effort).map_err(|error| failed("read", error))?;
    Ok((fdatasync_per_s, reads))
}

fn append_and_sync(path: &Path, effort: Effort) -> io::Result<f64> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    let block = [0xa5_u8; BLOCK];
    let began = time::now();
    let mut synced = 0_u64;
    while synced == 0 || began.elapsed() < effort.step {
        file.write_all(&block)?;
        file.sync_data()?;
        synced += 1;
    }
    Ok(synced as f64 / began.elapsed().as_secs_f64())
}

/// Opens for direct I/O, or as usual where the file system has none. Says which.
fn open_direct(path: &Path, options: &OpenOptions) -> io::Result<(File, bool)> {
    #[cfg(target_os = "linux")]
    {
        let mut direct = options.clone();
        direct.custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
        if let Ok(file) = direct.open(path) {
            return Ok((file, true));
        }
    }
    Ok((options.open(path)?, false))
}

/// Fills the file with blocks that no device can take for empty. Returns how many there are.
fn fill(path: &Path, effort: Effort) -> io::Result<u64> {
    let (file, _) = open_direct(path, OpenOptions::new().create(true).truncate(true).write(true))?;
    let mut piece = Box::new(Aligned([0_u8; PIECE]));
    for (index, word) in piece.0.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&mix(index as u64).to_le_bytes());
    }
    let began = time::now();
    let mut written = 0;
    while written == 0 || (written < effort.file_bytes && began.elapsed() < effort.step) {
        piece.0[..8].copy_from_slice(&written.to_le_bytes());
        file.write_all_at(&piece.0, written)?;
        written += PIECE as u64;
    }
    file.sync_data()?;
    Ok(written / BLOCK as u64)
}

fn random_reads(path: &Path, blocks: u64, effort: Effort) -> io::Result<Reads> {
    let (file, direct) = open_direct(path, OpenOptions::new().read(true))?;
    #[cfg(target_os = "linux")]
    if let Ok(ring) = io_uring::IoUring::new(DEPTH as u32) {
        let per_second = uring::reads_per_second(ring, &file, blocks, effort.step)?;
        return Ok(Reads { per_second, method: "io_uring", direct });
    }
    let per_second = reads_per_second_by_threads(&file, blocks, effort.step)?;
    Ok(Reads { per_second, method: "threads", direct })
}

/// The byte position of the `number`th random block.
fn random_position(number: u64, blocks: u64) -> u64 {
    let block = ((mix(number) >> 32) * blocks) >> 32;
    block * BLOCK as u64
}

fn reads_per_second_by_threads(file: &File, blocks: u64, limit: Duration) -> io::Result<f64> {
    let began = time::now();
    let counts: io::Result<Vec<u64>> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..DEPTH as u64)
            .map(|reader| {
                scope.spawn(move || {
                    let mut buffer = Aligned([0_u8; BLOCK]);
                    let mut read = 0;
                    while read == 0 || began.elapsed() < limit {
                        file.read_exact_at(&mut buffer.0, random_position(reader << 32 | read, blocks))?;
                        read += 1;
                    }
                    Ok(read)
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect()
    });
    Ok(counts?.iter().sum::<u64>() as f64 / began.elapsed().as_secs_f64())
}

#[cfg(target_os = "linux")]
mod uring {
    use super::{Aligned, BLOCK, DEPTH, File, io, random_position, time};
    use io_uring::{IoUring, opcode, types};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    pub(super) fn reads_per_second(
        ring: IoUring,
        file: &File,
        blocks: u64,
        limit: Duration,
    ) -> io::Result<f64> {
        let mut reader = Reader { ring, buffers: vec![Aligned([0; BLOCK]); DEPTH], in_flight: 0 };
        let outcome = reader.run(file, blocks, limit);
        if reader.in_flight > 0 {
            // Only after an error. The kernel may still write into the buffers.
            std::mem::forget(reader.buffers);
        }
        outcome
    }

    struct Reader {
        ring: IoUring,
        buffers: Vec<Aligned<BLOCK>>,
        in_flight: usize,
    }

    impl Reader {
        fn run(&mut self, file: &File, blocks: u64, limit: Duration) -> io::Result<f64> {
            let began = time::now();
            let mut started = 0;
            let mut ended = 0_u64;
            let mut free: Vec<usize> = (0..DEPTH).collect();
            loop {
                let more = began.elapsed() < limit;
                while let Some(slot) = free.pop_if(|_| more || started == 0) {
                    self.start(file, slot, random_position(started, blocks))?;
                    started += 1;
                }
                if self.in_flight == 0 {
                    return Ok(ended as f64 / began.elapsed().as_secs_f64());
                }
                self.ring.submit_and_wait(1)?;
                for completion in self.ring.completion() {
                    self.in_flight -= 1;
                    if completion.result() < 0 {
                        return Err(io::Error::from_raw_os_error(-completion.result()));
                    }
                    ended += 1;
                    free.push(completion.user_data() as usize);
                }
            }
        }

        fn start(&mut self, file: &File, slot: usize, position: u64) -> io::Result<()> {
            let buffer = self.buffers[slot].0.as_mut_ptr();
            let read = opcode::Read::new(types::Fd(file.as_raw_fd()), buffer, BLOCK as u32)
                .offset(position)
                .build()
                .user_data(slot as u64);
            // SAFETY: the slot was free, so no other read writes to its buffer; the vector is never resized, and its
            // memory outlives the read: `reads_per_second` drops it only when nothing is in flight. The file is
            // borrowed until then as well, or its closing leaves the kernel's own reference to it.
            unsafe { self.ring.submission().push(&read) }.map_err(io::Error::other)?;
            self.in_flight += 1;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Effort {
        Effort {
            dram_bytes: 1 << 22,
            dram_reads: 10_000,
            file_bytes: 1 << 20,
            step: Duration::from_millis(20),
        }
    }

    #[test]
    fn a_calibration_finds_numbers_and_removes_its_file() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let found = calibrate_with(dir.path(), small()).expect("the directory is writable");
        assert!(found.dram_random_read_ns > 0.1 && found.dram_random_read_huge_pages_ns > 0.1);
        assert!(found.device_reads_per_s_depth64 >= 1.0);
        assert!(found.fdatasync_per_s > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).expect("still there").count(), 0);
    }

    #[test]
    fn threads_read_where_there_is_no_ring() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("blocks");
        let blocks = fill(&path, small()).expect("writable");
        assert!(blocks >= (PIECE / BLOCK) as u64);
        let (file, _) = open_direct(&path, OpenOptions::new().read(true)).expect("readable");
        assert!(reads_per_second_by_threads(&file, blocks, Duration::from_millis(10)).expect("reads") >= 1.0);
    }

    #[test]
    fn random_positions_stay_inside_of_the_file() {
        assert!((0..10_000).all(|number| random_position(number, 3) <= 2 * BLOCK as u64));
        assert!(
            (0..3).all(|block| (0..100).any(|number| random_position(number, 3) == block * BLOCK as u64))
        );
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = calibrate_with(Path::new("/nowhere/at/all"), small()).expect_err("there is none");
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
