//! Copying stretches of a file in long runs, several of them under way.
//!
//! ```text
//!   free ──► read submitted ──► read ──► write submitted ──► written ──► told ──► free
//! ```
//!
//! Rules:
//! * Reads and writes are whole blocks of [`DIRECT_ALIGNMENT`], so that both files may be direct ones. What lies behind the
//!   end of a stretch in its last block is written as zeros.
//! * Memory is that of the buffers, whatever the files' lengths.
//! * Whoever is told decides when the next burst begins, and how long it is: between bursts the device is others' alone.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::{ControlFlow, Range};

use super::{Action, AlignedBytes, Buffer, Completion, DIRECT_ALIGNMENT, File, IoError, Operation, Result};

const BLOCK: u64 = DIRECT_ALIGNMENT as u64;

/// Buffers to copy through.
#[derive(Debug)]
pub struct Copier {
    buffers: Vec<AlignedBytes>,
    sparse: bool,
    /// Bytes of a burst, after which `told` is called.
    burst_bytes: u64,
}

/// An operation under way: its buffer, the stretch, and how it ends.
type UnderWay = VecDeque<(usize, Range<u64>, Completion)>;

impl Copier {
    /// With so many buffers of so many bytes.
    ///
    /// # Panics
    /// When the length is no multiple of [`DIRECT_ALIGNMENT`].
    #[must_use]
    pub fn new(count: usize, bytes: usize) -> Self {
        assert!(count > 0 && bytes > 0 && bytes.is_multiple_of(DIRECT_ALIGNMENT), "the buffers of a copier");
        let buffers = (0..count).map(|_| AlignedBytes::zeroed(bytes)).collect();
        Self { buffers, sparse: false, burst_bytes: (count * bytes) as u64 }
    }

    /// Leaves pieces out that are all zeros, for new files, which have their lengths already: holes stay holes.
    #[must_use]
    pub fn leaving_out_zeros(self) -> Self {
        Self { sparse: true, ..self }
    }

    /// Memory of the buffers.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.len() as u64).sum()
    }

    /// Copies stretches, which begin at blocks, to the same places of another file, in bursts: when nothing is under way any
    /// more, `told` hears how many bytes were written since the last time, may wait, and says how long the next burst may be.
    /// `Break`: so it said.
    ///
    /// # Errors
    /// The system's; and when the file ends before a stretch does.
    pub fn copy(
        &mut self,
        from: &dyn File,
        to: &dyn File,
        stretches: impl IntoIterator<Item = Range<u64>>,
        told: &mut dyn FnMut(u64) -> ControlFlow<(), u64>,
    ) -> Result<ControlFlow<()>> {
        let most = self.buffers[0].len() as u64;
        let mut pieces = stretches.into_iter().flat_map(|stretch| {
            assert!(stretch.start.is_multiple_of(BLOCK), "a stretch begins at a block");
            let end = stretch.end;
            stretch.step_by(most as usize).map(move |start| start..(start + most).min(end))
        });
        let mut free: Vec<usize> = (0..self.buffers.len()).collect();
        // Dropped before the buffers, which belong to `self`: a completion whose buffer is borrowed waits then.
        let (mut reading, mut writing) = (UnderWay::new(), UnderWay::new());
        let (mut begun, mut written) = (0, 0);
        loop {
            while begun < self.burst_bytes
                && let Some(slot) = free.pop()
            {
                let Some(piece) = pieces.next() else {
                    free.push(slot);
                    break;
                };
                begun += piece.end - piece.start;
                let buffer = self.lend(slot, piece.end - piece.start);
                let read = from.submit(Operation::Read { offset: piece.start, buffer });
                reading.push_back((slot, piece, read));
            }
            if let Some((slot, piece, read)) = reading.pop_front() {
                let got = read.wait().result? as u64;
                self.complete(from, slot, &piece, got)?;
                let write = if self.sparse && self.is_zero(slot, piece.end - piece.start) {
                    Completion::ready(Ok(0), Buffer::empty())
                } else {
                    let buffer = self.lend(slot, piece.end - piece.start);
                    to.submit(Operation::Write { offset: piece.start, buffer })
                };
                writing.push_back((slot, piece, write));
            }
            // A buffer for the next read comes from the oldest write.
            if free.is_empty() || reading.is_empty() {
                if let Some((slot, piece, write)) = writing.pop_front() {
                    write.wait().result?;
                    free.push(slot);
                    written += piece.end - piece.start;
                }
                if reading.is_empty() && writing.is_empty() {
                    if written == 0 {
                        return Ok(ControlFlow::Continue(()));
                    }
                    match told(written) {
                        ControlFlow::Continue(bytes) => self.burst_bytes = bytes.max(1),
                        ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
                    }
                    (begun, written) = (0, 0);
                }
            }
        }
    }

    fn is_zero(&self, slot: usize, len: u64) -> bool {
        self.buffers[slot][..len as usize].iter().all(|byte| *byte == 0)
    }

    /// The buffer for an operation on so many bytes, whole blocks.
    fn lend(&mut self, slot: usize, len: u64) -> Buffer {
        let len = len.next_multiple_of(BLOCK) as usize;
        let bytes = &mut self.buffers[slot][..len];
        // SAFETY: the buffer is touched again only when the slot's completion has been waited for, and completions are
        // dropped, which waits, before `copy` returns.
        unsafe { Buffer::borrowed(bytes.as_mut_ptr(), len) }
    }

    /// Reads what a short read has left, and makes zeros of what is behind the stretch.
    fn complete(&mut self, from: &dyn File, slot: usize, piece: &Range<u64>, mut got: u64) -> Result<()> {
        let wanted = piece.end - piece.start;
        let buffer = &mut self.buffers[slot];
        let whole = wanted.next_multiple_of(BLOCK) as usize;
        while got < wanted {
            let at = got / BLOCK * BLOCK;
            let count = from.read_at(piece.start + at, &mut buffer[at as usize..whole])? as u64;
            if at + count <= got {
                let what = ErrorKind::UnexpectedEof.into();
                return Err(IoError::new(Action::Read, from.path(), Some(piece.start + got), what));
            }
            got = at + count;
        }
        buffer[wanted as usize..whole].fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Io, MemoryIo, OpenMode, RecordingIo};
    use std::path::Path;

    fn copied(io: &dyn Io, stretches: &[Range<u64>], stop_after: u64) -> (Vec<u8>, u64) {
        let from = io.open_direct(Path::new("/a"), OpenMode::Read).expect("it is there");
        let to = io.open_direct(Path::new("/b"), OpenMode::Create).expect("a file");
        let mut done = 0;
        let mut told = |bytes| {
            done += bytes;
            if done >= stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(12_000) }
        };
        let mut copier = Copier::new(3, 8192);
        assert_eq!(copier.memory_bytes(), 3 * 8192);
        let outcome = copier.copy(&*from, &*to, stretches.iter().cloned(), &mut told).expect("memory");
        assert_eq!(outcome.is_break(), done >= stop_after);
        let mut bytes = vec![0; to.len().expect("memory") as usize];
        io.open(Path::new("/b"), OpenMode::Read)
            .expect("it is there")
            .read_full_at(0, &mut bytes)
            .expect("memory");
        (bytes, done)
    }

    fn original() -> Vec<u8> {
        (0..100_000_u32).map(|at| (at * 7 / 5) as u8 | 1).collect()
    }

    #[test]
    fn stretches_come_to_their_places_and_nothing_else_does() {
        let original = original();
        let memory = MemoryIo::with_files([], [("/a".into(), original.clone())]);
        let recording = RecordingIo::new(&memory);
        recording.short_reads(true);
        for io in [&memory as &dyn Io, &recording] {
            let stretches = [4096..50_000, 61_440..61_441, 65_536..81_920];
            let (bytes, done) = copied(io, &stretches, u64::MAX);
            assert_eq!(done, stretches.iter().map(|stretch| stretch.end - stretch.start).sum::<u64>());
            for (at, byte) in bytes.iter().enumerate() {
                let inside = stretches.iter().any(|stretch| stretch.contains(&(at as u64)));
                assert_eq!(*byte, if inside { original[at] } else { 0 }, "byte {at}");
            }
        }
    }

    #[test]
    fn zeros_can_be_left_out() {
        let mut bytes = original();
        bytes[8192..40_960].fill(0);
        let io = MemoryIo::with_files([], [("/a".into(), bytes.clone())]);
        let from = io.open(Path::new("/a"), OpenMode::Read).expect("it is there");
        let recording = RecordingIo::new(&MemoryIo::new());
        let to = recording.open(Path::new("/b"), OpenMode::Create).expect("a file");
        to.set_len(100_000).expect("memory");
        let before = recording.operations();
        let all = &mut |_| ControlFlow::Continue(u64::MAX);
        let mut copier = Copier::new(2, 8192).leaving_out_zeros();
        assert!(copier.copy(&*from, &*to, std::iter::once(0..100_000), all).expect("memory").is_continue());
        to.set_len(100_000).expect("memory");
        assert_eq!(recording.operations() - before - 1, 13 - 4, "four pieces of zeros are not written");
        assert!(recording.memory().files()[Path::new("/b")] == bytes);
    }

    #[test]
    fn a_copy_can_be_stopped_and_says_when_the_file_is_too_short() {
        let io = MemoryIo::with_files([], [("/a".into(), original())]);
        let (_, done) = copied(&io, std::slice::from_ref(&(0..90_112)), 20_000);
        assert!(done < 40_000, "{done}");
        let (from, to) = (
            io.open(Path::new("/a"), OpenMode::Read).expect("it is there"),
            io.open(Path::new("/b"), OpenMode::Create).expect("a file"),
        );
        let all = &mut |_| ControlFlow::Continue(u64::MAX);
        let error = Copier::new(2, 4096)
            .copy(&*from, &*to, std::iter::once(0..110_000), all)
            .expect_err("it is shorter");
        assert!(error.to_string().contains("/a"), "{error}");
    }
}
