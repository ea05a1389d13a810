//! What is on its way to a client: messages, in pieces, so that a long answer is not copied as it grows.
//!
//! Rows of a statement leave while it runs ([`Way`]), beside the statement and in its task: the executor pauses when enough has
//! gathered, and goes on when all of it has left. A piece is written as far as the socket takes it, so that a write can be given up at
//! any time: the rest of the piece goes first when the next one is written, and a message is never cut off.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use bytes::BytesMut;
use thermocline_sql::Outlet;

use crate::shared::{Counts, add};
use crate::stream::Stream;

/// Bytes of a piece: a message more ends it.
const PIECE_BYTES: usize = 256 << 10;
/// A buffer that is empty is kept up to this size.
const KEPT_BYTES: usize = 256 << 10;

/// The send buffer. Messages are written into its last piece.
#[derive(Debug, Default)]
pub(crate) struct Out {
    full: VecDeque<BytesMut>,
    full_bytes: usize,
    last: BytesMut,
    /// Bytes of the first piece that have left.
    front: usize,
    /// Bytes that have left, of all pieces that there ever were.
    gone: usize,
}

impl Deref for Out {
    type Target = BytesMut;

    fn deref(&self) -> &BytesMut {
        &self.last
    }
}

impl DerefMut for Out {
    fn deref_mut(&mut self) -> &mut BytesMut {
        &mut self.last
    }
}

impl Out {
    /// Bytes that have not left.
    pub(crate) fn bytes(&self) -> usize {
        self.full_bytes + self.last.len() - self.front
    }

    /// The place behind all bytes so far, to go back to.
    pub(crate) fn end(&self) -> usize {
        self.gone + self.bytes()
    }

    /// Begins another piece if the last one is full; between two messages.
    pub(crate) fn cut(&mut self) {
        if self.last.len() >= PIECE_BYTES {
            self.full_bytes += self.last.len();
            let full = std::mem::replace(&mut self.last, BytesMut::with_capacity(PIECE_BYTES + (8 << 10)));
            self.full.push_back(full);
        }
    }

    /// Forgets what comes behind an [`Out::end`] of before; nothing if some of that has left.
    pub(crate) fn shorten(&mut self, end: usize) {
        if end < self.gone {
            return;
        }
        let bytes = end - self.gone + self.front;
        while bytes < self.full_bytes {
            self.last = self.full.pop_back().expect("pieces have all of these bytes");
            self.full_bytes -= self.last.len();
        }
        self.last.truncate(bytes - self.full_bytes);
    }

    /// The bytes that leave next; none if all have left.
    pub(crate) fn next(&self) -> Option<&[u8]> {
        let piece = self.full.front().unwrap_or(&self.last);
        Some(&piece[self.front..]).filter(|rest| !rest.is_empty())
    }

    /// Notes that the next bytes, this number of them, have left.
    pub(crate) fn leave(&mut self, bytes: usize) {
        self.gone += bytes;
        self.front += bytes;
        if let Some(piece) = self.full.front() {
            if self.front == piece.len() {
                self.full_bytes -= self.front;
                self.full.pop_front();
                self.front = 0;
            }
        } else if self.front == self.last.len() {
            self.empty();
        }
    }

    /// Forgets everything.
    pub(crate) fn empty(&mut self) {
        self.full = VecDeque::new();
        self.full_bytes = 0;
        self.front = 0;
        if self.last.capacity() > KEPT_BYTES {
            self.last = BytesMut::new();
        } else {
            self.last.clear();
        }
    }
}

/// Writes all that has not left. False: the client has taken nothing for as long as `patience` says.
pub(crate) async fn write(
    out: &RefCell<Out>,
    stream: &Stream,
    counts: &Counts,
    patience: Option<Duration>,
) -> io::Result<bool> {
    loop {
        let written = match out.borrow().next() {
            Some(bytes) => stream.write(bytes),
            None => return Ok(true),
        };
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                add(&counts.bytes_out, count as u64);
                out.borrow_mut().leave(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => match patience {
                None => stream.writable().await?,
                Some(patience) => match tokio::time::timeout(patience, stream.writable()).await {
                    Ok(writable) => writable?,
                    Err(_) => return Ok(false),
                },
            },
            Err(error) => return Err(error),
        }
    }
}

/// The way of rows out of a statement that still runs.
pub(crate) struct Way<'w> {
    pub(crate) outlet: &'w Outlet,
    pub(crate) out: &'w RefCell<Out>,
    pub(crate) counts: &'w Counts,
    /// A message has left in part.
    pub(crate) is_amid: &'w Cell<bool>,
}

impl Way<'_> {
    /// Lets rows leave as they gather. Ends when the client has gone.
    pub(crate) async fn run(&self, stream: &Stream) -> io::Error {
        loop {
            self.outlet.full().await;
            self.is_amid.set(true);
            match write(self.out, stream, self.counts, self.outlet.patience()).await {
                Ok(true) => {
                    self.is_amid.set(false);
                    self.outlet.emptied();
                }
                Ok(false) => self.outlet.keep(),
                Err(error) => return error,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsent(out: &mut Out, mut step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = out.next() {
            step = step.min(bytes.len());
            all.extend_from_slice(&bytes[..step]);
            out.leave(step);
            step = step * 3 + 1;
        }
        all
    }

    fn filled() -> (Out, Vec<u8>, Vec<usize>) {
        let (mut out, mut whole, mut ends) = (Out::default(), Vec::new(), Vec::new());
        for number in 0..2000_u32 {
            let message = [number as u8; 700];
            out.extend_from_slice(&message);
            whole.extend_from_slice(&message);
            out.cut();
            ends.push(out.end());
        }
        assert_eq!((out.bytes(), out.end()), (whole.len(), whole.len()));
        (out, whole, ends)
    }

    #[test]
    fn pieces_are_one_buffer() {
        let (_, whole, ends) = filled();
        for end in ends.into_iter().rev().step_by(37) {
            let (mut out, ..) = filled();
            out.shorten(end);
            assert!(unsent(&mut out, 1000) == whole[..end], "{end} bytes are left");
            assert_eq!((out.bytes(), out.end()), (0, end));
        }
    }

    #[test]
    fn nothing_that_has_left_is_taken_back() {
        for sent in [1, 699, 700, 256 << 10, 300_000, 600_000] {
            for kept in [1, 300, 1999] {
                let (mut out, whole, ends) = filled();
                let mut left = sent;
                while left > 0 {
                    let count = out.next().expect("there is more").len().min(left);
                    out.leave(count);
                    left -= count;
                }
                assert_eq!((out.bytes(), out.end()), (whole.len() - sent, whole.len()));
                out.shorten(ends[kept]);
                let end = if ends[kept] < sent { whole.len() } else { ends[kept] };
                assert_eq!(out.end(), end);
                assert!(unsent(&mut out, 5) == whole[sent..end], "{sent} sent, {kept} kept");
                // What is written behind that follows it.
                out.extend_from_slice(b"more");
                assert_eq!((unsent(&mut out, 4), out.end()), (b"more".to_vec(), end + 4));
            }
        }
    }
}
