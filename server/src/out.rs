//! What is on its way to a client: messages, in pieces, so that a long answer is not copied as it grows.

use std::ops::{Deref, DerefMut};

use bytes::BytesMut;

/// Bytes of a piece: a message more ends it.
const PIECE_BYTES: usize = 256 << 10;
/// A buffer that is empty is kept up to this size.
const KEPT_BYTES: usize = 256 << 10;

/// The send buffer. Messages are written into its last piece.
#[derive(Debug, Default)]
pub(crate) struct Out {
    full: Vec<BytesMut>,
    full_bytes: usize,
    last: BytesMut,
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
    /// Bytes in all.
    pub(crate) fn bytes(&self) -> usize {
        self.full_bytes + self.last.len()
    }

    /// Begins another piece if the last one is full; between two messages.
    pub(crate) fn cut(&mut self) {
        if self.last.len() >= PIECE_BYTES {
            self.full_bytes += self.last.len();
            let full = std::mem::replace(&mut self.last, BytesMut::with_capacity(PIECE_BYTES + (8 << 10)));
            self.full.push(full);
        }
    }

    /// Forgets what comes behind so many bytes.
    pub(crate) fn shorten(&mut self, bytes: usize) {
        while bytes < self.full_bytes {
            self.last = self.full.pop().expect("pieces have all of these bytes");
            self.full_bytes -= self.last.len();
        }
        self.last.truncate(bytes - self.full_bytes);
    }

    /// The pieces in their order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.full.iter().map(|piece| &**piece).chain([&*self.last]).filter(|piece| !piece.is_empty())
    }

    /// Forgets everything.
    pub(crate) fn empty(&mut self) {
        self.full = Vec::new();
        self.full_bytes = 0;
        if self.last.capacity() > KEPT_BYTES {
            self.last = BytesMut::new();
        } else {
            self.last.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_buffer() {
        let mut out = Out::default();
        let mut ends = Vec::new();
        for number in 0..2000_u32 {
            out.extend_from_slice(&[number as u8; 700]);
            out.cut();
            ends.push(out.bytes());
        }
        assert!(out.pieces().count() > 4);
        let whole: Vec<u8> = out.pieces().flatten().copied().collect();
        assert_eq!(whole.len(), out.bytes());
        for end in ends.into_iter().rev().step_by(37) {
            out.shorten(end);
            let left: Vec<u8> = out.pieces().flatten().copied().collect();
            assert!(left == whole[..end], "{end} bytes are left");
        }
        out.shorten(0);
        assert_eq!(out.bytes(), 0);
        out.extend_from_slice(b"x");
        out.empty();
        assert_eq!(out.pieces().count(), 0);
    }
}
