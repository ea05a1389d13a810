//! Writing a file from one position on, in pieces of any length, through one aligned buffer.
//!
//! A direct file takes only whole blocks. The last block of what was appended is usually not full: it is written with
//! zeros behind its bytes, kept, and written again with what comes next. So a position that was written once may be
//! written again, with the same bytes; the appender owns everything behind the position where it began.

use std::sync::Arc;

use super::{AlignedBytes, Buffer, DIRECT_ALIGNMENT, File, Operation, Result};

/// Appends to a file.
#[derive(Debug)]
pub struct Appender {
    file: Arc<dyn File>,
    /// The file's bytes from `start` on.
    buffer: AlignedBytes,
    /// Where the buffer stands in the file; a multiple of the file's alignment.
    start: u64,
    /// Bytes of the buffer that are appended ones.
    used: usize,
    /// Bytes of them that have been written.
    written: usize,
}

impl Appender {
    /// Appends to `file` from `offset` on, in writes of at most `bytes`.
    ///
    /// # Panics
    /// When the offset is no multiple of the file's alignment, or the size not one of [`DIRECT_ALIGNMENT`].
    #[must_use]
    pub fn new(file: Arc<dyn File>, offset: u64, bytes: usize) -> Self {
        assert!(bytes > 0 && bytes.is_multiple_of(DIRECT_ALIGNMENT), "the size of an appender's buffer");
        let appender = Self { file, buffer: AlignedBytes::zeroed(bytes), start: 0, used: 0, written: 0 };
        appender.at(offset)
    }

    /// The same buffer, for another file.
    ///
    /// # Panics
    /// As [`Appender::new`]; when something has not been written.
    #[must_use]
    pub fn go_on(mut self, file: Arc<dyn File>, offset: u64) -> Self {
        assert_eq!(self.written, self.used, "what was appended to the former file is written");
        self.file = file;
        (self.used, self.written) = (0, 0);
        self.at(offset)
    }

    fn at(mut self, offset: u64) -> Self {
        assert!(offset.is_multiple_of(self.file.alignment() as u64), "appending begins at a block");
        self.start = offset;
        self
    }

    /// Where the next byte goes.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.start + self.used as u64
    }

    /// Takes as many bytes as there is room for: how many.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.buffer.len() - self.used);
        self.buffer[self.used..self.used + count].copy_from_slice(&bytes[..count]);
        self.used += count;
        count
    }

    /// Writes what was pushed; there is room afterwards. It is durable after a sync.
    ///
    /// # Errors
    /// The system's. What was pushed is kept, and the next call tries again.
    pub fn write(&mut self) -> Result<()> {
        if self.written == self.used {
            return Ok(());
        }
        let block = self.file.alignment();
        let from = self.written / block * block;
        let to = self.used.next_multiple_of(block);
        self.buffer[self.used..to].fill(0);
        let piece = &mut self.buffer[from..to];
        // SAFETY: the buffer outlives the wait, and no other code touches it meanwhile.
        let buffer = unsafe { Buffer::borrowed(piece.as_mut_ptr(), piece.len()) };
        self.file.submit(Operation::Write { offset: self.start + from as u64, buffer }).wait().result?;
        // The last block is kept if more belongs into it.
        let keep = self.used / block * block;
        self.buffer.copy_within(keep..self.used, 0);
        self.start += keep as u64;
        self.used -= keep;
        self.written = self.used;
        Ok(())
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Action, Fault, FaultKind, Io, MemoryIo, OpenMode, RecordingIo};
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn pieces_of_any_length_arrive_in_order() {
        for direct in [false, true] {
            let io = MemoryIo::new();
            let path = Path::new("file");
            let open =
                if direct { io.open_direct(path, OpenMode::Create) } else { io.open(path, OpenMode::Create) };
            let mut appender = Appender::new(open.expect("created"), 4096, 16384);
            let mut rng = Rng::new(7);
            let mut expected = Vec::new();
            while expected.len() < 200_000 {
                let len = rng.below(9000) as usize;
                let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let count = appender.push(rest);
                    rest = &rest[count..];
                    if count == 0 || rng.below(3) == 0 {
                        appender.write().expect("written");
                    }
                }
                expected.extend_from_slice(&bytes);
                assert_eq!(appender.position(), 4096 + expected.len() as u64);
            }
            appender.write().expect("written");
            let files = io.files();
            assert_eq!(files[path][4096..][..expected.len()], expected, "direct: {direct}");
        }
    }

    #[test]
    fn a_write_that_failed_can_be_tried_again() {
        let io = RecordingIo::new(&MemoryIo::new());
        let path = Path::new("file");
        let file = io.open_direct(path, OpenMode::Create).expect("created");
        let mut appender = Appender::new(file, 0, 4096);
        appender.push(b"one");
        io.inject(Fault { on: Action::Write, skip: 0, times: 1, kind: FaultKind::Full });
        assert!(appender.write().expect_err("injected").is_full());
        appender.push(b" and two");
        appender.write().expect("written");
        assert_eq!(io.memory().files()[path][..11], *b"one and two");
        let other = io.open_direct(Path::new("other"), OpenMode::Create).expect("created");
        let mut appender = appender.go_on(other, 8192);
        appender.push(b"three");
        appender.write().expect("written");
        assert_eq!(io.memory().files()[Path::new("other")][8192..8197], *b"three");
    }
}
