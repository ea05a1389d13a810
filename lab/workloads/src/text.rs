//! [`Text`]: a short string inside a struct, so that generating a row or reading one out allocates nothing.

use std::fmt;
use std::ops::Deref;

/// A string of at most `N` bytes, stored in place.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    length: u16,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// The empty string.
    pub const EMPTY: Self = {
        assert!(N <= u16::MAX as usize, "the length of a Text has 16 bits");
        Self { length: 0, bytes: [0; N] }
    };

    /// A copy of `text`, cut after the last whole character within `N` bytes.
    #[inline]
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut copy = Self::EMPTY;
        copy.push_str(text);
        copy
    }

    /// Appends as many whole characters of `text` as there is room for.
    #[inline]
    pub fn push_str(&mut self, text: &str) {
        let start = usize::from(self.length);
        let take = text.floor_char_boundary(N - start);
        self.bytes[start..start + take].copy_from_slice(&text.as_bytes()[..take]);
        self.length += take as u16;
    }

    /// Appends one ASCII character.
    ///
    /// # Panics
    /// If `byte` is not ASCII or the text is full.
    #[inline]
    pub(crate) fn push_ascii(&mut self, byte: u8) {
        assert!(byte.is_ascii(), "a Text holds UTF-8");
        self.bytes[usize::from(self.length)] = byte;
        self.length += 1;
    }

    /// The string.
    #[inline]
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = &self.bytes[..usize::from(self.length)];
        debug_assert!(std::str::from_utf8(bytes).is_ok());
        // SAFETY: `push_str` appends whole characters of a `str`, `push_ascii` ASCII, and nothing else writes `bytes`
        // or `length`; so the first `length` bytes are valid UTF-8.
        unsafe { std::str::from_utf8_unchecked(bytes) }
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> Deref for Text<N> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<const N: usize> PartialEq for Text<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl<const N: usize> Eq for Text<N> {}

impl<const N: usize> std::hash::Hash for Text<N> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    /// Appends; what does not fit is cut off without an error, as [`Text::push_str`] does.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(&*Text::<4>::new("abcdef"), "abcd");
        assert_eq!(&*Text::<4>::new("abcéf"), "abc");
        assert_eq!(&*Text::<5>::new("abcéf"), "abcé");
        let mut text = Text::<6>::new("ab");
        text.push_str("cdefgh");
        text.push_str("x");
        assert_eq!(&*text, "abcdef");
        assert_eq!(text, Text::new("abcdef"));
    }
}
