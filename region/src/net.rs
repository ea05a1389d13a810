//! The net: whoever touches a page without asking waits for that page, and reads no zeros.
//!
//! The thread that waits may hold any latch or pin of its program. So the net takes no lock of its users, only that
//! of the frames, under which no thread touches pages or waits; reads for itself, even what others are reading; and
//! takes a frame from a page that is there without waiting for epochs (`NetTakesAtOnce`): pages never change, so a
//! reader that loses one under its proof meets the net and gets the same bytes. One frame is always out of the
//! waiters' reach, so there is one to take.
//!
//! It allocates nothing, since the thread that it serves may stand within an allocator: the policy learns of its frames later
//! ([`Frames::note`]), waiters are woken by the tender, a file is read by a plain call ([`Backing::read_apart`]).
//!
//! A touch of a page that does not exist, or cannot be read, has no answer: the net says which, and ends the process.

use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;

#[cfg(doc)]
use thermocline_base::backing::Backing;
use thermocline_base::backing::{PAGE_BYTES, PageName};
use thermocline_base::io::AlignedBytes;
use thermocline_base::sync::Backoff;
use thermocline_base::vm::paging::Woken;

use crate::error::RegionError;
use crate::frames::Frames;
use crate::own::Inner;
use crate::statistics::add;
use crate::word::{State, Word};

/// Starts the thread that serves faults.
pub(crate) fn start(inner: &Arc<Inner>) -> std::io::Result<JoinHandle<()>> {
    let inner = Arc::clone(inner);
    std::thread::Builder::new().name("thermocline-net".to_string()).spawn(move || run(&inner))
}

fn run(inner: &Inner) {
    let faults = inner.memory.faults().expect("a net has faults");
    let mut buffer = Some(AlignedBytes::zeroed(PAGE_BYTES));
    loop {
        let (address, thread) = match faults.next() {
            Ok(Woken::Stopped) => return,
            Ok(Woken::Fault { address, thread }) => (address, thread),
            Err(error) => end(&format!("faults cannot be taken from the system: {error}")),
        };
        let page = (address - inner.memory.reservation().base().addr().get()) / PAGE_BYTES;
        if let Err(error) = inner.serve(page, &mut buffer) {
            end(&format!("thread {thread} touched {address:#x} without asking: {error}"));
        }
        let at =
            NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("an address of the region");
        // It may have come by another way than by a copy that wakes.
        if let Err(error) = faults.wake(at) {
            end(&format!("a thread that waits for a page cannot be woken: {error}"));
        }
    }
}

/// The thread that touched the page cannot be given an error, and must not go on.
fn end(what: &str) -> ! {
    tracing::error!("{what}");
    eprintln!("thermocline: {what}");
    std::process::abort();
}

impl Inner {
    /// Brings a page that was touched without asking.
    pub(crate) fn serve(&self, page: usize, buffer: &mut Option<AlignedBytes>) -> Result<(), RegionError> {
        add(&self.counters.net_faults, 1);
        let mut backoff = Backoff::new();
        loop {
            let word = self.word(page);
            match word.state() {
                State::Present | State::Leaving => return Ok(()),
                State::None => return Err(RegionError::NoPage { page: self.name(page) }),
                // For the length of a system call of another thread.
                State::Filling | State::Taking => backoff.wait(),
                State::Absent => {
                    if !self.begin_reading(page) {
                        backoff.wait();
                    }
                }
                State::Reading => {
                    let name = self.name(page);
                    let read = self.read_apart(name, buffer);
                    if read.is_ok() {
                        // Or another thread has ended this reading, by bringing the page or by dropping its part.
                        if self.put(page, word, buffer.as_ref().expect("given back"), Frames::note) {
                            self.tender.tell();
                        }
                    } else if self.word(page) == word {
                        return read;
                    }
                }
            }
        }
    }

    /// Has a frame, by whatever means, and says that the page is being read.
    fn begin_reading(&self, page: usize) -> bool {
        let mut frames = self.frames.lock();
        // For the length of a system call there may be none: a waiter leaves one, which is free, has its page, or changes now.
        let Some(frame) = frames.seize(&self.words, |page| self.memory.take(&[page])) else { return false };
        let reading = Word::reading(frame, frames.number());
        frames.pages[frame as usize] = page;
        let begun = self.change(page, Word::ABSENT, reading);
        if !begun {
            frames.release(frame);
        }
        begun
    }

    /// Reads a page on this thread, and proves that it is what was written.
    pub(crate) fn read_apart(
        &self,
        page: PageName,
        buffer: &mut Option<AlignedBytes>,
    ) -> Result<(), RegionError> {
        let bytes = buffer.take().expect("the buffer was given back");
        let (result, bytes) = self.backing.read_apart(page, bytes);
        let bytes = buffer.insert(bytes);
        let length = result.map_err(|source| RegionError::Unreadable { page, source })?;
        let whole = length == PAGE_BYTES && self.is_whole(page, bytes);
        if whole { Ok(()) } else { Err(RegionError::Damaged { page }) }
    }
}
