//! The format of a page: a header that proves the page whole, in its place and current, and a payload.
//!
//! ```text
//!   0        4     6       7     8                16               24
//!   ┌────────┬─────┬───────┬─────┬────────────────┬────────────────┬─────────────────── ┄ ─┐
//!   │checksum│kind │format │  0  │ page number    │ page version   │ payload              │
//!   └────────┴─────┴───────┴─────┴────────────────┴────────────────┴─────────────────── ┄ ─┘
//!    CRC-32C of everything after it, started from the file's id and the page number      little-endian
//! ```
//!
//! Rules:
//! - The checksum starts from the file's id and the page number, so a whole page of another file, or of another place
//!   in this one, does not check out.
//! - A checksum proves a page whole, not current: a page number is used again after its extent was freed, and a lost
//!   write leaves the former page. So whoever refers to a page knows the page version, and reads ask for it.
//! - [`open`] never panics, whatever the bytes. It names what is wrong: a page that is whole but stands elsewhere is
//!   told from a damaged one by trying the number that it carries.
//!
//! Limits: pages of 4 to 64 KiB, powers of two; 48 bits of page number ([`MAX_PAGE_NUMBER`]).

use std::fmt;

use thermocline_base::checksum::{Seed, crc32c_append};

/// The shortest page.
pub const MIN_PAGE_BYTES: u32 = 4 << 10;
/// The longest page.
pub const MAX_PAGE_BYTES: u32 = 64 << 10;
/// The length of pages unless an option sets another: the disk is bound by operations, not by bytes.
pub const DEFAULT_PAGE_BYTES: u32 = MIN_PAGE_BYTES;
/// The highest number that a page may have.
pub const MAX_PAGE_NUMBER: u64 = (1 << 48) - 1;
/// Length of the header; the payload is the rest of the page and begins at a multiple of 8.
pub const HEADER_BYTES: usize = 24;
/// The format of pages that this program writes.
pub const PAGE_FORMAT: u8 = 2;

/// Pages of an extent.
pub const EXTENT_PAGES: u64 = 32;

/// The reason for a read of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadReason {
    /// A reader wants this page.
    #[default]
    Point,
    /// A reader will want them soon, one after the other.
    Ahead,
    /// A scan has come this far and goes on, or a long record is read.
    Scan,
    /// A flush or merge reads them once, and then they go.
    Merge,
    /// They are verified: the bytes of this file count, and no copy of them.
    Verify,
    /// The tail of a piece, when a store is opened.
    Tail,
}

/// The knowledge of a reader about the pages that it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The version that they have to have. Without it nothing proves a copy of the page current.
    pub version: Option<u64>,
    /// The reason of the read.
    pub reason: ReadReason,
    /// They were read before and were not as they have to be: no copy of them is asked.
    pub again: bool,
}

impl Wanted {
    /// Pages of a version.
    #[must_use]
    pub const fn of(version: u64, reason: ReadReason) -> Self {
        Self { version: Some(version), reason, again: false }
    }
}

/// The warmth of a page, for a merge that moves its contents.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PageHeat {
    /// The temperature of its extent as long as it is not divided, in a scale of the SSD's policy.
    pub temperature: f32,
    /// The part of it that the SSD has, from 0 to 1.
    pub cached: f32,
}

impl PageHeat {
    /// True if there is anything to move.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.temperature > 0.0 || self.cached > 0.0
    }

    /// One of so many equal parts.
    #[must_use]
    pub fn over(self, parts: u32) -> Self {
        let parts = parts.max(1) as f32;
        Self { temperature: self.temperature / parts, cached: self.cached / parts }
    }
}

impl std::ops::AddAssign for PageHeat {
    fn add_assign(&mut self, other: Self) {
        self.temperature += other.temperature;
        self.cached += other.cached;
    }
}

const CHECKSUM: usize = 0;
const KIND: usize = 4;
const FORMAT: usize = 6;
const RESERVED: usize = 7;
const NUMBER: usize = 8;
const VERSION: usize = 16;

const _: () = assert!(VERSION + 8 == HEADER_BYTES && HEADER_BYTES.is_multiple_of(8));

/// A length of pages: a power of two from [`MIN_PAGE_BYTES`] to [`MAX_PAGE_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PageSize(u32);

impl PageSize {
    /// A page of `bytes`.
    ///
    /// # Errors
    /// When it is no power of two in the range.
    pub const fn new(bytes: u32) -> Result<Self, BadPageSize> {
        if bytes.is_power_of_two() && bytes >= MIN_PAGE_BYTES && bytes <= MAX_PAGE_BYTES {
            Ok(Self(bytes))
        } else {
            Err(BadPageSize(bytes))
        }
    }

    /// Its length.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Length of the payload.
    #[must_use]
    pub const fn payload_bytes(self) -> usize {
        self.bytes() - HEADER_BYTES
    }
}

impl Default for PageSize {
    fn default() -> Self {
        Self(DEFAULT_PAGE_BYTES)
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.0 >> 10)
    }
}

/// A page size that is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadPageSize(pub u32);

impl fmt::Display for BadPageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pages of {} bytes are not possible; choose a power of two from {MIN_PAGE_BYTES} to {MAX_PAGE_BYTES}",
            self.0
        )
    }
}

impl std::error::Error for BadPageSize {}

/// The seal of the pages of one file: the start of their checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageSeal(Seed);

impl PageSeal {
    /// The seal of the file whose id this is.
    #[must_use]
    pub fn of_file(id: &[u8; 16]) -> Self {
        Self(Seed::new(id, u64::from(PAGE_FORMAT)))
    }

    fn checksum(self, page: &[u8], number: u64) -> u32 {
        crc32c_append(self.0.at(number), &page[CHECKSUM + 4..])
    }
}

/// The kind of a page. The pool does not look at it; its user tells apart by it what a page holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageKind(pub u16);

/// A page that checks out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenPage<'a> {
    /// Its kind.
    pub kind: PageKind,
    /// Its version.
    pub version: u64,
    /// The bytes behind the header.
    pub payload: &'a [u8],
}

/// A fault of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PageError {
    /// The bytes are not as long as any page.
    Length {
        /// The number that was asked for.
        number: u64,
        /// Length of the bytes.
        bytes: usize,
    },
    /// All bytes are zero: the page was never written, or its write was lost.
    Empty {
        /// The number that was asked for.
        number: u64,
    },
    /// The bytes were damaged or torn, or belong to another file.
    Checksum {
        /// The number that was asked for.
        number: u64,
        /// The checksum in the page.
        stored: u32,
        /// The checksum of the bytes that are there.
        computed: u32,
    },
    /// A whole page of this file that belongs elsewhere: a write or read went to the wrong place.
    Number {
        /// The number that was asked for.
        number: u64,
        /// The number in the page.
        found: u64,
    },
    /// A whole page of another time: its write was lost, or the reader that asked knows of an older one.
    Version {
        /// The number that was asked for.
        number: u64,
        /// The version that was asked for.
        expected: u64,
        /// The version in the page.
        found: u64,
    },
    /// A whole page in a format of another program version.
    Format {
        /// The number that was asked for.
        number: u64,
        /// The format in the page.
        found: u8,
    },
}

impl PageError {
    /// The number of the page that was asked for.
    #[must_use]
    pub const fn number(&self) -> u64 {
        match *self {
            Self::Length { number, .. }
            | Self::Empty { number }
            | Self::Checksum { number, .. }
            | Self::Number { number, .. }
            | Self::Version { number, .. }
            | Self::Format { number, .. } => number,
        }
    }
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { number, bytes } => {
                write!(f, "page {number}: {bytes} bytes are no page")
            }
            Self::Empty { number } => {
                write!(f, "page {number} is empty: it was never written, or its write was lost")
            }
            Self::Checksum { number, stored, computed } => write!(
                f,
                "page {number} is damaged: its checksum says {stored:08x}, its bytes give {computed:08x}"
            ),
            Self::Number { number, found } => {
                write!(f, "where page {number} should be, page {found} of the same file was found")
            }
            Self::Version { number, expected, found } => {
                write!(f, "page {number} has version {found} instead of {expected}: its last write was lost")
            }
            Self::Format { number, found } => {
                write!(f, "page {number} has format {found}; this program reads format {PAGE_FORMAT}")
            }
        }
    }
}

impl std::error::Error for PageError {}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Fills in the header of a page whose payload is complete.
///
/// # Panics
/// When `page` is not a page long or the number has more than 48 bits.
pub fn seal(page: &mut [u8], seal: PageSeal, number: u64, version: u64, kind: PageKind) {
    assert!(is_page_length(page.len()), "a sealed page has the length of a page, not {}", page.len());
    assert!(number <= MAX_PAGE_NUMBER, "page numbers have 48 bits, not {number}");
    page[KIND..KIND + 2].copy_from_slice(&kind.0.to_le_bytes());
    page[FORMAT] = PAGE_FORMAT;
    page[RESERVED] = 0;
    page[NUMBER..NUMBER + 8].copy_from_slice(&number.to_le_bytes());
    page[VERSION..VERSION + 8].copy_from_slice(&version.to_le_bytes());
    let checksum = seal.checksum(page, number);
    page[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Checks that `page` is page `number` of the file, in `version` unless that is `None`.
///
/// # Errors
/// What is wrong with it.
pub fn open(
    page: &[u8],
    seal: PageSeal,
    number: u64,
    version: Option<u64>,
) -> Result<OpenPage<'_>, PageError> {
    if !is_page_length(page.len()) {
        return Err(PageError::Length { number, bytes: page.len() });
    }
    let stored = u32_at(page, CHECKSUM);
    let found = u64_at(page, NUMBER);
    let computed = seal.checksum(page, number);
    if stored != computed {
        if page.iter().all(|byte| *byte == 0) {
            return Err(PageError::Empty { number });
        }
        if found != number && stored == seal.checksum(page, found) {
            return Err(PageError::Number { number, found });
        }
        return Err(PageError::Checksum { number, stored, computed });
    }
    if found != number {
        return Err(PageError::Number { number, found });
    }
    if page[FORMAT] != PAGE_FORMAT {
        return Err(PageError::Format { number, found: page[FORMAT] });
    }
    let current = version_of(page);
    if let Some(expected) = version
        && expected != current
    {
        return Err(PageError::Version { number, expected, found: current });
    }
    Ok(OpenPage { kind: kind_of(page), version: current, payload: &page[HEADER_BYTES..] })
}

fn is_page_length(bytes: usize) -> bool {
    u32::try_from(bytes).is_ok_and(|bytes| PageSize::new(bytes).is_ok())
}

/// The version in the header of a page that checked out.
///
/// # Panics
/// When `page` is shorter than a header.
#[must_use]
pub fn version_of(page: &[u8]) -> u64 {
    u64_at(page, VERSION)
}

/// The kind in the header of a page that checked out.
///
/// # Panics
/// When `page` is shorter than a header.
#[must_use]
pub fn kind_of(page: &[u8]) -> PageKind {
    PageKind(u16::from_le_bytes([page[KIND], page[KIND + 1]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealed(number: u64, version: u64, bytes: usize) -> Vec<u8> {
        let mut page = vec![0; bytes];
        for (index, byte) in page[HEADER_BYTES..].iter_mut().enumerate() {
            *byte = index as u8;
        }
        seal(&mut page, file(1), number, version, PageKind(7));
        page
    }

    fn file(id: u8) -> PageSeal {
        PageSeal::of_file(&[id; 16])
    }

    #[test]
    fn a_sealed_page_opens() {
        for bytes in [4096, 8192, 65536] {
            let page = sealed(MAX_PAGE_NUMBER, u64::MAX, bytes);
            for version in [None, Some(u64::MAX)] {
                let open = open(&page, file(1), MAX_PAGE_NUMBER, version).expect("it checks out");
                assert_eq!((open.kind, open.version), (PageKind(7), u64::MAX));
                assert_eq!(open.payload, &page[HEADER_BYTES..]);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let page = sealed(5, 9, 4096);
        assert_eq!(
            open(&page, file(1), 5, Some(8)),
            Err(PageError::Version { number: 5, expected: 8, found: 9 })
        );
        assert_eq!(open(&page, file(1), 6, None), Err(PageError::Number { number: 6, found: 5 }));
        assert!(matches!(open(&page, file(2), 5, None), Err(PageError::Checksum { number: 5, .. })));
        assert_eq!(open(&page[..4095], file(1), 5, None), Err(PageError::Length { number: 5, bytes: 4095 }));
        assert_eq!(open(&[], file(1), 5, None), Err(PageError::Length { number: 5, bytes: 0 }));
        assert_eq!(open(&[0; 4096], file(1), 5, None), Err(PageError::Empty { number: 5 }));
    }

    #[test]
    fn another_format_is_refused() {
        let mut page = sealed(5, 9, 4096);
        page[FORMAT] = PAGE_FORMAT + 1;
        let checksum = file(1).checksum(&page, 5);
        page[..4].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(
            open(&page, file(1), 5, None),
            Err(PageError::Format { number: 5, found: PAGE_FORMAT + 1 })
        );
    }

    #[test]
    fn sizes_are_powers_of_two_in_their_range() {
        for bytes in [4096, 8192, 16384, 32768, 65536] {
            assert_eq!(PageSize::new(bytes).expect("a page").bytes(), bytes as usize);
        }
        for bytes in [0, 1, 512, 2048, 4095, 5000, 12288, 131_072, u32::MAX] {
            let error = PageSize::new(bytes).expect_err("no page");
            assert!(error.to_string().contains(&format!("{bytes} bytes")));
        }
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_noticed(at in 0usize..4096, bit in 0u32..8) {
            let mut page = sealed(5, 9, 4096);
            page[at] ^= 1 << bit;
            prop_assert!(open(&page, file(1), 5, Some(9)).is_err());
        }

        #[test]
        fn any_bytes_are_refused_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), long: bool, number: u64) {
            if long {
                bytes.resize(4096, 0);
            }
            prop_assert!(open(&bytes, file(1), number, None).is_err());
        }
    }
}
