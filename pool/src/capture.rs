//! Captures what is asked of a page file, below the frames, as a trace that the simulator reads.
//!
//! | done to the page file | in the trace |
//! |---|---|
//! | a point read | a read, told random |
//! | a read ahead, of a scan, of a piece's tail | a read of each page, told sequential |
//! | a read of a merge or of verification, a second read of a page | nothing: it warms no SSD |
//! | pages written | created |
//! | pages freed | freed |
//!
//! Rules:
//! - A trace that could not be written is none: the first error is kept, told when the capture ends, and nothing is written after
//!   it, so the file has no end.
//! - Reads stand in the order in which they began. No reader waits for another one longer than a block of the trace
//!   takes.

use std::fmt;
use std::io::Write;
use std::ops::Range;

use thermocline_base::sync::Mutex;

use crate::cache::Told;
use crate::page::{EXTENT_PAGES, ReadReason};
use crate::trace::{TraceKind, TraceRequest, TraceWriter};

/// The place that a trace is written to.
pub type Sink = Box<dyn Write + Send>;

enum State {
    /// No page file has come by.
    Waits(Sink),
    Writes(TraceWriter<Sink>),
    Failed(std::io::Error),
    Ended,
}

/// A trace that is being captured, of one page file after the other.
pub struct PageCapture {
    state: Mutex<(State, u64)>,
}

impl fmt::Debug for PageCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCapture").field("requests", &self.requests()).finish_non_exhaustive()
    }
}

impl PageCapture {
    /// Begins a capture. Nothing is written before a page file comes by.
    #[must_use]
    pub fn new(to: Sink) -> Self {
        Self { state: Mutex::new((State::Waits(to), 0)) }
    }

    /// A page file is opened whose pages have this length.
    pub(crate) fn begin(&self, page_bytes: u32) {
        let mut state = self.state.lock();
        if let State::Waits(_) = state.0
            && let State::Waits(to) = std::mem::replace(&mut state.0, State::Ended)
        {
            state.0 = match TraceWriter::new(to, page_bytes, EXTENT_PAGES as u32) {
                Ok(writer) => State::Writes(writer),
                Err(error) => State::Failed(error),
            };
        }
    }

    /// Pages are read.
    pub(crate) fn read(&self, first: u64, count: u64, reason: ReadReason) {
        let told = match reason {
            ReadReason::Point => Told::Random,
            ReadReason::Ahead | ReadReason::Scan | ReadReason::Tail => Told::Sequential,
            ReadReason::Merge | ReadReason::Verify => return,
        };
        self.push(first..first + count, TraceKind::Read, told);
    }

    /// Pages are written.
    pub(crate) fn write(&self, first: u64, count: u64) {
        self.push(first..first + count, TraceKind::Create, Told::Nothing);
    }

    /// Pages are free.
    pub(crate) fn free(&self, pages: Range<u64>) {
        self.push(pages, TraceKind::Free, Told::Nothing);
    }

    fn push(&self, pages: Range<u64>, kind: TraceKind, told: Told) {
        let mut state = self.state.lock();
        let (State::Writes(writer), requests) = &mut *state else { return };
        for page in pages {
            let request = TraceRequest { told, ..TraceRequest::new(page, kind) };
            if let Err(error) = writer.push(&request) {
                state.0 = State::Failed(error);
                return;
            }
            *requests += 1;
        }
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.state.lock().1
    }

    /// Ends the trace, and says how many requests it has. What comes later is not captured.
    ///
    /// # Errors
    /// The first one of the writer: the trace has no end then.
    pub fn finish(&self) -> std::io::Result<u64> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut state.0, State::Ended) {
            State::Writes(writer) => writer.finish().map(|_| state.1),
            State::Failed(error) => Err(error),
            State::Waits(_) | State::Ended => Ok(state.1),
        }
    }
}
