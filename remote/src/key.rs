//! The key that both sides have: a file of 64 hexadecimal digits that no other user may read.

use std::fmt;
use std::path::{Path, PathBuf};

/// The secret that peers prove to each other.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub(crate) [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Why a file gives no key.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// It cannot be read.
    Io(PathBuf, std::io::Error),
    /// Others can read it.
    Open(PathBuf, u32),
    /// It is not 64 hexadecimal digits.
    Malformed(PathBuf),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(
                f,
                "cannot read the key {}: {error}; make one with (umask 077; openssl rand -hex 32 >{})",
                path.display(),
                path.display()
            ),
            Self::Open(path, mode) => write!(
                f,
                "others than its owner may use the key {} (mode {mode:03o}): chmod 600 it, and make a new one if they might have read it",
                path.display()
            ),
            Self::Malformed(path) => {
                write!(
                    f,
                    "{} is no key: it has to be 64 hexadecimal digits (openssl rand -hex 32)",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for KeyError {}

impl Key {
    /// Reads a key.
    ///
    /// # Errors
    /// When the file cannot be read, can be read by others, or is none.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let io = |error| KeyError::Io(path.to_owned(), error);
        let text = std::fs::read_to_string(path).map_err(io)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(path).map_err(io)?.permissions().mode() & 0o777;
            if mode & 0o077 != 0 {
                return Err(KeyError::Open(path.to_owned(), mode));
            }
        }
        Self::from_hex(text.trim()).ok_or_else(|| KeyError::Malformed(path.to_owned()))
    }

    fn from_hex(text: &str) -> Option<Self> {
        let mut key = [0; 32];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(pairs) {
            let digit = |at: usize| (pair[at] as char).to_digit(16);
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        Some(Self(key))
    }

    /// A key that was never used.
    #[must_use]
    pub fn fresh() -> Self {
        let mut key = [0; 32];
        key[..16].copy_from_slice(&thermocline_base::rng::fresh_id());
        key[16..].copy_from_slice(&thermocline_base::rng::fresh_id());
        Self(key)
    }

    /// As a key file has it.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
