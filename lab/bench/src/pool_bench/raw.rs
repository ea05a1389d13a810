//! The device without a pool: what it gives at a depth, by `io_uring`, or by threads where that is refused.

use std::path::Path;
use std::time::Duration;

use thermocline_base::io::{AlignedBytes, Buffer, Io, OpenMode, Operation, SystemIo};
use thermocline_base::multiplex::run_tasks;
use thermocline_pool::page::PageSize;

use super::{Places, PoolBenchError, Result};
use crate::time;

/// The file, to be read without a pool.
pub(super) struct RawDevice<'a> {
    pub(super) path: &'a Path,
    pub(super) page_size: PageSize,
    pub(super) depth: usize,
}

impl RawDevice<'_> {
    /// The method by which it reads.
    pub(super) fn method(&self) -> &'static str {
        #[cfg(target_os = "linux")]
        if io_uring::IoUring::new(1).is_ok() {
            return "io_uring";
        }
        "threads"
    }

    /// Reads random pages for `limit`, `depth` of them at a time. Gives how many.
    pub(super) fn read(&self, limit: Duration, places: Places) -> Result<u64> {
        #[cfg(target_os = "linux")]
        if let Ok(ring) = io_uring::IoUring::new((self.depth as u32).next_power_of_two()) {
            return uring::read(self, ring, limit, places).map_err(PoolBenchError::Raw);
        }
        self.read_by_threads(limit, places)
    }

    pub(super) fn read_by_threads(&self, limit: Duration, mut places: Places) -> Result<u64> {
        let file = SystemIo::with_threads(self.depth).open_direct(self.path, OpenMode::Read)?;
        let (began, page_bytes) = (time::now(), self.page_size.bytes());
        let reads = std::cell::Cell::new(0);
        let failure = std::cell::RefCell::new(None);
        let places = std::cell::RefCell::new(&mut places);
        run_tasks(
            (0..self.depth)
                .map(async |_| {
                    let mut buffer = Buffer::from(AlignedBytes::zeroed(page_bytes));
                    while began.elapsed() < limit {
                        let offset = places.borrow_mut().next().page * page_bytes as u64;
                        let outcome = file.submit(Operation::Read { offset, buffer }).await;
                        if let Err(error) = outcome.result {
                            failure.replace(Some(error));
                            return;
                        }
                        buffer = outcome.buffer;
                        reads.set(reads.get() + 1);
                    }
                })
                .collect(),
        );
        failure.into_inner().map_or(Ok(reads.get()), |error| Err(error.into()))
    }

    #[cfg(target_os = "linux")]
    fn open(&self) -> std::io::Result<std::fs::File> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::OpenOptions::new();
        options.read(true);
        let mut direct = options.clone();
        direct.custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
        direct.open(self.path).or_else(|_| options.open(self.path))
    }
}

#[cfg(target_os = "linux")]
mod uring {
    use std::io;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use io_uring::{IoUring, opcode, types};
    use thermocline_base::io::AlignedBytes;

    use super::RawDevice;
    use crate::pool_bench::Places;
    use crate::time;

    /// Answers that are taken before new reads are submitted in their place. With all that are there the device has
    /// nothing to do meanwhile, and gives less.
    const ANSWERS: usize = 8;

    /// The plain loop: everything that is free is submitted, then at least one answer is waited for.
    pub(super) fn read(
        device: &RawDevice<'_>,
        ring: IoUring,
        limit: Duration,
        places: Places,
    ) -> io::Result<u64> {
        let buffers = (0..device.depth).map(|_| AlignedBytes::zeroed(device.page_size.bytes())).collect();
        let mut reader = Reader { ring, buffers, places, in_flight: 0 };
        let outcome = reader.run(device, limit);
        if reader.in_flight > 0 {
            // Only after an error. The kernel may still write into the buffers.
            std::mem::forget(reader.buffers);
        }
        outcome
    }

    struct Reader {
        ring: IoUring,
        buffers: Vec<AlignedBytes>,
        places: Places,
        in_flight: usize,
    }

    impl Reader {
        fn run(&mut self, device: &RawDevice<'_>, limit: Duration) -> io::Result<u64> {
            let file = device.open()?;
            let page_bytes = device.page_size.bytes();
            let began = time::now();
            let mut free: Vec<usize> = (0..device.depth).collect();
            let mut reads = 0;
            loop {
                if began.elapsed() < limit {
                    for index in free.drain(..) {
                        let offset = self.places.next().page * page_bytes as u64;
                        let start = self.buffers[index].as_mut_ptr();
                        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), start, page_bytes as u32);
                        let entry = read.offset(offset).build().user_data(index as u64);
                        // SAFETY: the file and the buffer stay until the answer is there (see `read`).
                        unsafe { self.ring.submission().push(&entry) }.expect("a place for each buffer");
                        self.in_flight += 1;
                    }
                }
                if self.in_flight == 0 {
                    return Ok(reads);
                }
                match self.ring.submit_and_wait(1) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => {
                        other?;
                    }
                }
                for answer in self.ring.completion().take(ANSWERS) {
                    self.in_flight -= 1;
                    free.push(answer.user_data() as usize);
                    if answer.result() < 0 {
                        return Err(io::Error::from_raw_os_error(-answer.result()));
                    }
                    reads += 1;
                }
            }
        }
    }
}
