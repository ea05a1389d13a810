//! Small readers and writers of bytes. Reading never panics: what is not there is `None`.

/// Appends a number, 7 bits a byte, the low ones first.
#[inline]
pub(super) fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// How many bytes [`put_varint`] needs.
#[inline]
pub(super) const fn varint_bytes(number: u64) -> usize {
    (63 - (number | 1).leading_zeros() as usize) / 7 + 1
}

/// Reads what was written, from the front.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) const fn at(&self) -> usize {
        self.at
    }

    pub(super) const fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    #[inline]
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let found = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(found)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.first_chunk().copied()
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return (shift < 63 || byte < 2).then_some(number);
            }
        }
        None
    }

    /// Bytes with their length before them.
    pub(super) fn prefixed(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.varint()?).ok()?;
        self.bytes(count)
    }
}

/// Appends bytes with their length before them.
pub(super) fn put_prefixed(bytes: &mut Vec<u8>, of: &[u8]) {
    put_varint(bytes, of.len() as u64);
    bytes.extend_from_slice(of);
}

/// The first 8 bytes of a key as a number that sorts as they do, zeros behind a shorter key.
#[inline]
pub(super) fn head_of(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(padded)
        }
    }
}

/// Length of the common prefix.
#[inline]
pub(super) fn common_prefix(one: &[u8], two: &[u8]) -> usize {
    one.iter().zip(two).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back() {
        for shift in 0..64 {
            for number in [1_u64 << shift, (1 << shift) - 1, u64::MAX] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, number);
                assert_eq!(bytes.len(), varint_bytes(number));
                assert_eq!(Reader::new(&bytes).varint(), Some(number));
                assert_eq!(Reader::new(&bytes[..bytes.len() - 1]).varint(), None);
            }
        }
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
    }

    #[test]
    fn heads_sort_as_keys_do() {
        let mut keys: Vec<&[u8]> =
            vec![b"", b"\0", b"a", b"ab", b"abcdefgh", b"abcdefghi", b"b", b"\xff\xff"];
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| head_of(pair[0]) <= head_of(pair[1])));
    }
}
