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

/// Number of bytes that [`put_varint`] needs.
#[cfg(test)]
pub(super) const fn varint_bytes(number: u64) -> usize {
    (63 - (number | 1).leading_zeros() as usize) / 7 + 1
}

/// Copies few bytes without a call, and many with one.
#[inline(always)]
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    /// The first N and the last N, which overlap.
    #[inline(always)]
    fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
        let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else { return };
        let (first, last) = (*first, *last);
        if let Some(to) = to.first_chunk_mut::<N>() {
            *to = first;
        }
        if let Some(to) = to.last_chunk_mut::<N>() {
            *to = last;
        }
    }
    assert_eq!(to.len(), from.len(), "a copy is as long as what is copied");
    match from.len() {
        8..=16 => ends::<8>(to, from),
        4..=7 => ends::<4>(to, from),
        17..=32 => ends::<16>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Does a key begin with a prefix? Both come with their heads, so short prefixes need no look at the bytes, which may just have
/// been written: a load that covers several stores has to wait for them.
#[inline(always)]
pub(super) fn starts_with(key: &[u8], head: u64, prefix: &[u8], prefix_head: u64) -> bool {
    match prefix.len() {
        0 => true,
        len @ 1..=8 => key.len() >= len && (head ^ prefix_head) >> (64 - 8 * len) == 0,
        _ => key.starts_with(prefix),
    }
}

/// The head of what lies at `at` in `bytes`, of which `len` bytes count.
#[inline(always)]
pub(super) fn head_at(bytes: &[u8], at: usize, len: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk) {
        Some(first) if len >= 8 => u64::from_be_bytes(*first),
        Some(first) => u64::from_be_bytes(*first) & !(u64::MAX >> (8 * len)),
        None => head_of(&bytes[at..at + len.min(8)]),
    }
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
        if let Some(byte) = self.bytes.get(self.at).filter(|byte| **byte < 0x80) {
            self.at += 1;
            return Some(u64::from(*byte));
        }
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
    fn copies_and_prefixes_are_what_the_slow_way_gives() {
        let bytes: Vec<u8> = (1..=81).collect();
        for len in 0..80 {
            let mut copied = vec![0; len];
            copy(&mut copied, &bytes[..len]);
            assert_eq!(copied, bytes[..len]);
            for prefix in 0..=len {
                let mut start = bytes[..prefix].to_vec();
                let key = &bytes[..len];
                assert!(starts_with(key, head_of(key), &start, head_of(&start)));
                for at in 0..prefix {
                    start[at] ^= 1;
                    assert!(!starts_with(key, head_of(key), &start, head_of(&start)));
                    start[at] ^= 1;
                }
            }
            let (key, longer) = (&bytes[..len], &bytes[..len + 1]);
            assert!(!starts_with(key, head_of(key), longer, head_of(longer)));
            for at in 0..=len {
                assert_eq!(head_at(key, at, len - at), head_of(&key[at..]));
                assert_eq!(head_at(&bytes, at, len - at), head_of(&key[at..]));
            }
        }
    }

    #[test]
    fn heads_sort_as_keys_do() {
        let mut keys: Vec<&[u8]> =
            vec![b"", b"\0", b"a", b"ab", b"abcdefgh", b"abcdefghi", b"b", b"\xff\xff"];
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| head_of(pair[0]) <= head_of(pair[1])));
    }
}
