//! Reading of small binary records that may be damaged: every step is checked and says what it wanted.

use super::error::RowError;

/// A cursor over bytes of unknown quality.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], RowError> {
        let Some((head, rest)) = self.rest.split_at_checked(len) else {
            return Err(RowError::damaged_bytes(format!(
                "{what}: {len} bytes expected, {} left",
                self.rest.len()
            )));
        };
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], RowError> {
        let bytes = self.take(N, what)?;
        Ok(bytes.try_into().expect("take returns as many bytes as asked for"))
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8, RowError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, RowError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Bytes with their length before them.
    pub(crate) fn bytes(&mut self, what: &str) -> Result<&'a [u8], RowError> {
        let len = self.u32(what)? as usize;
        self.take(len, what)
    }

    pub(crate) fn string(&mut self, what: &str) -> Result<String, RowError> {
        let bytes = self.bytes(what)?;
        match str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(e) => Err(RowError::damaged_bytes(format!("{what}: {e}"))),
        }
    }
}

/// Appends bytes with their length before them.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("names and values have less than 4 GiB");
    out.extend(len.to_le_bytes());
    out.extend(bytes);
}
