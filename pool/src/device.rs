//! A page device: a file of pages, behind a header that says whose it is.
//!
//! ```text
//!   0        8       12      16             32            48       52            4096      page 1
//!   ┌────────┬───────┬───────┬──────────────┬─────────────┬────────┬─────── ┄ ───┬── ┄ ────┬───────── ┄
//!   │magic   │format │page   │ database id  │ file id     │checksum│ 0           │ 0       │ pages
//!   │        │       │bytes  │              │             │of 0..48│             │         │
//!   └────────┴───────┴───────┴──────────────┴─────────────┴────────┴─────── ┄ ───┴── ┄ ────┴───────── ┄
//!    page 0: the header, little-endian                                             at n × page bytes: page n
//! ```
//!
//! Rules:
//! - Files are opened past the system's cache: the frames are the cache. Addresses, offsets and lengths of all
//!   operations are multiples of 4 KiB, which every page is.
//! - Reads and writes are submitted and answered later ([`Completion`]); nothing in here waits for them but `create`
//!   and `open`, which are for starting up.
//! - The first failure of a sync is final (`SyncFailureIsFinal`): nothing is known about the bytes written before it, and a
//!   later success says nothing about them. So every later sync gives the same error.
//! - Pages are sealed with the file's id, not the database's: two files of one database do not understand each other's
//!   pages.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use thermocline_base::checksum::crc32c;
use thermocline_base::io::{
    AlignedBytes, Buffer, Completion, DIRECT_ALIGNMENT, File, Io, IoError, OpenMode, Operation,
};
use thermocline_base::rng::fresh_id;

use crate::capture::PageCapture;
use crate::error::{DeviceError, WrongFile};
use crate::page::{MAX_PAGE_NUMBER, PageSeal, PageSize};
use crate::ssd::{Primary, SsdFile, SsdLevel};

/// The format of files that this program writes, and the newest that it reads.
pub const DEVICE_FORMAT: u32 = 1;

const MAGIC: &[u8; 8] = b"thclpage";
const HEADER_SUMMED: usize = 48;
const HEADER_USED: usize = HEADER_SUMMED + 4;

/// The number of a file's first page that is not its header.
pub const FIRST_PAGE: u64 = 1;

pub use crate::page::{PageHeat, ReadReason, Wanted};

/// A file of pages. Shared by reference or in an `Arc`.
pub struct PageDevice {
    file: Arc<dyn File>,
    path: Arc<PathBuf>,
    page_size: PageSize,
    file_id: [u8; 16],
    seal: PageSeal,
    sync_failure: OnceLock<IoError>,
    ssd: Option<Arc<SsdLevel>>,
    capture: Option<Arc<PageCapture>>,
}

impl fmt::Debug for PageDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageDevice")
            .field("path", &self.path)
            .field("page_size", &self.page_size)
            .finish_non_exhaustive()
    }
}

/// The contents of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    page_size: PageSize,
    database: [u8; 16],
    file: [u8; 16],
}

impl Header {
    fn encode(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&DEVICE_FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.page_size.bytes() as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.database);
        bytes[32..48].copy_from_slice(&self.file);
        let sum = crc32c(&bytes[..HEADER_SUMMED]);
        bytes[HEADER_SUMMED..HEADER_USED].copy_from_slice(&sum.to_le_bytes());
    }

    fn decode(bytes: &[u8], path: &Arc<PathBuf>) -> Result<Self, DeviceError> {
        let path = || Arc::clone(path);
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(DeviceError::Unfinished { path: path() });
        }
        let Some(bytes) = bytes.first_chunk::<HEADER_USED>().filter(|bytes| bytes.starts_with(MAGIC)) else {
            return Err(WrongFile::Foreign { path: path() }.into());
        };
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let id_at = |at: usize| std::array::from_fn(|index| bytes[at + index]);
        // A newer format may sum its header in another way, so this comes first.
        let found = u32_at(8);
        if found > DEVICE_FORMAT {
            return Err(WrongFile::Newer { path: path(), found, supported: DEVICE_FORMAT }.into());
        }
        let sum_is_right = u32_at(HEADER_SUMMED) == crc32c(&bytes[..HEADER_SUMMED]);
        match PageSize::new(u32_at(12)) {
            Ok(page_size) if sum_is_right && found == DEVICE_FORMAT => {
                Ok(Self { page_size, database: id_at(16), file: id_at(32) })
            }
            _ => Err(DeviceError::Damaged { path: path() }),
        }
    }
}

impl Drop for PageDevice {
    fn drop(&mut self) {
        if let Some(level) = &self.ssd {
            level.close();
        }
    }
}

impl PageDevice {
    /// Creates the file, durable with its name, for a database. Blocks.
    ///
    /// # Errors
    /// When there is such a file already, and the system's.
    pub fn create(
        io: &dyn Io,
        path: &Path,
        page_size: PageSize,
        database: [u8; 16],
    ) -> Result<Self, DeviceError> {
        let file = io.open_direct(path, OpenMode::CreateNew)?;
        let header = Header { page_size, database, file: fresh_id() };
        let mut bytes = AlignedBytes::zeroed(page_size.bytes());
        header.encode(&mut bytes);
        file.write_at(0, &bytes)?;
        file.sync_data()?;
        if let Some(parent) = path.parent() {
            io.sync_dir(parent)?;
        }
        Ok(Self::new(file, path, &header))
    }

    /// Opens the file of a database; with `page_size`, only if its pages are that long. Blocks.
    ///
    /// # Errors
    /// When it is foreign, newer, unfinished, damaged, another database's, or of another page size, and the system's.
    pub fn open(
        io: &dyn Io,
        path: &Path,
        page_size: Option<PageSize>,
        database: [u8; 16],
    ) -> Result<Self, DeviceError> {
        let file = io.open_direct(path, OpenMode::Write)?;
        let shared_path = Arc::new(path.to_path_buf());
        let mut bytes = AlignedBytes::zeroed(DIRECT_ALIGNMENT);
        // One read: a file with a header has at least a page, and the rest of a short read would not be aligned.
        let len = file.read_at(0, &mut bytes)?;
        if len < HEADER_USED && file.len()? >= HEADER_USED as u64 {
            return Err(DeviceError::Damaged { path: shared_path });
        }
        let header = Header::decode(&bytes[..len], &shared_path)?;
        if header.database != database {
            let (expected, found) = (database, header.database);
            return Err(WrongFile::OtherDatabase { path: shared_path, expected, found }.into());
        }
        if let Some(expected) = page_size
            && expected != header.page_size
        {
            return Err(DeviceError::OtherPageSize { path: shared_path, expected, found: header.page_size });
        }
        Ok(Self::new(file, path, &header))
    }

    /// Pages in a file that is empty and is never opened again, so that it needs no header: nothing in it outlives this.
    #[must_use]
    pub fn scratch(file: Arc<dyn File>, page_size: PageSize) -> Self {
        let path = file.path().to_path_buf();
        Self::new(file, &path, &Header { page_size, database: [0; 16], file: fresh_id() })
    }

    fn new(file: Arc<dyn File>, path: &Path, header: &Header) -> Self {
        debug_assert!(DIRECT_ALIGNMENT.is_multiple_of(file.alignment()), "no device asks for more");
        Self {
            file,
            path: Arc::new(path.to_path_buf()),
            page_size: header.page_size,
            file_id: header.file,
            seal: PageSeal::of_file(&header.file),
            sync_failure: OnceLock::new(),
            ssd: None,
            capture: None,
        }
    }

    /// Length of its pages.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// The seal of its pages.
    #[must_use]
    pub fn seal(&self) -> PageSeal {
        self.seal
    }

    /// A number that no other file has.
    #[must_use]
    pub fn file_id(&self) -> [u8; 16] {
        self.file_id
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Arc<PathBuf> {
        &self.path
    }

    /// Reads pages from `first` on as they are, unverified, as many as the buffer is long. May be short.
    ///
    /// # Panics
    /// When the buffer is not whole pages.
    pub fn read(&self, first: u64, pages: AlignedBytes, wanted: Wanted) -> Completion {
        let offset = self.offset_of(first, pages.len());
        if let Some(capture) = self.capture.as_ref().filter(|_| !wanted.again) {
            capture.read(first, (pages.len() / self.page_size.bytes()) as u64, wanted.reason);
        }
        match &self.ssd {
            Some(level) => level.read(first, offset, pages, wanted),
            None => self.file.submit(Operation::Read { offset, buffer: pages.into() }),
        }
    }

    /// Writes whole pages, sealed by the caller, from `first` on.
    ///
    /// # Panics
    /// When the buffer is not whole pages at an aligned address, or overwrites the header.
    pub fn write(&self, first: u64, buffer: Buffer) -> Completion {
        assert!(first >= FIRST_PAGE, "nobody overwrites the header of a page file");
        let offset = self.offset_of(first, buffer.as_slice().len());
        if let Some(capture) = &self.capture {
            capture.write(first, (buffer.as_slice().len() / self.page_size.bytes()) as u64);
        }
        match &self.ssd {
            Some(level) => level.write(first, offset, buffer),
            None => self.file.submit(Operation::Write { offset, buffer }),
        }
    }

    /// Nothing of these pages counts any more: their numbers may be used again. Waits for no device.
    pub fn discard(&self, pages: Range<u64>) {
        if let Some(capture) = &self.capture {
            capture.free(pages.clone());
        }
        if let Some(level) = &self.ssd {
            level.discard(pages);
        }
    }

    /// The heat of pages of a version, for a merge that reads them; empty where it is not known.
    #[must_use]
    pub fn heats(&self, pages: Range<u64>, version: u64) -> Vec<PageHeat> {
        self.ssd.as_ref().map_or_else(Vec::new, |level| level.heats(pages, version))
    }

    /// Pages were written whose contents lay elsewhere before: this is how warm they are.
    pub fn hand_over(&self, first: u64, version: u64, bytes: &[u8], heats: &[PageHeat]) {
        if let Some(level) = &self.ssd
            && heats.iter().any(|heat| heat.is_any())
        {
            level.hand_over(first, version, bytes, heats);
        }
    }

    /// Puts an SSD below, which keeps copies of pages from now on.
    ///
    /// # Panics
    /// When its pages have another length.
    pub fn attach(&mut self, ssd: SsdFile) {
        let primary = Primary { file: Arc::clone(&self.file), seal: self.seal };
        self.ssd = Some(ssd.below(primary, self.page_size));
    }

    /// Has what is asked of the file captured from now on.
    pub fn capture(&mut self, capture: Arc<PageCapture>) {
        capture.begin(self.page_size.bytes() as u32);
        self.capture = Some(capture);
    }

    /// The SSD below, if there is one.
    #[must_use]
    pub fn ssd(&self) -> Option<&Arc<SsdLevel>> {
        self.ssd.as_ref()
    }

    fn offset_of(&self, first: u64, bytes: usize) -> u64 {
        assert!(bytes.is_multiple_of(self.page_size.bytes()), "{bytes} bytes are no whole pages");
        assert!(first <= MAX_PAGE_NUMBER, "page numbers have 48 bits, not {first}");
        first * self.page_size.bytes() as u64
    }

    /// Makes durable what was written before.
    ///
    /// # Errors
    /// The system's. The first one is final, see the module.
    pub async fn sync(&self) -> Result<(), IoError> {
        if let Some(error) = self.sync_failure.get() {
            return Err(error.clone());
        }
        match self.file.submit(Operation::SyncData).await.result {
            // A failure may have come in between; what it left unknown may be ours.
            Ok(_) => self.sync_failure.get().map_or(Ok(()), |error| Err(error.clone())),
            Err(error) => Err(self.sync_failure.get_or_init(|| error).clone()),
        }
    }

    /// Number of whole pages that the file has, the header counted.
    ///
    /// # Errors
    /// The system's.
    pub fn pages(&self) -> Result<u64, IoError> {
        Ok(self.file.len()? / self.page_size.bytes() as u64)
    }

    /// Makes the file at least `pages` long (the header counted), with the space taken on disk.
    ///
    /// # Errors
    /// When there is no such space ([`IoError::is_full`]), and the system's.
    pub fn allocate(&self, pages: u64) -> Result<(), IoError> {
        self.file.allocate(pages * self.page_size.bytes() as u64)
    }

    /// Gives the space of pages back to the file system. No caller may read or write them before it is
    /// [reserved](PageDevice::reserve) again. `false`: the file system cannot.
    ///
    /// # Errors
    /// The system's.
    pub fn punch(&self, pages: Range<u64>) -> Result<bool, IoError> {
        let page_bytes = self.page_size.bytes() as u64;
        self.file.punch(pages.start * page_bytes, (pages.end - pages.start) * page_bytes)
    }

    /// Takes the space of pages again.
    ///
    /// # Errors
    /// When the disk is full ([`IoError::is_full`]), and the system's.
    pub fn reserve(&self, pages: Range<u64>) -> Result<(), IoError> {
        let page_bytes = self.page_size.bytes() as u64;
        self.file.reserve(pages.start * page_bytes, (pages.end - pages.start) * page_bytes)
    }

    /// Cuts the file to `pages` (the header counted). No caller may read or write those behind.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// When the header would go.
    pub fn cut(&self, pages: u64) -> Result<(), IoError> {
        assert!(pages >= FIRST_PAGE, "the header of a page file stays");
        self.file.set_len(pages * self.page_size.bytes() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::io::{Action, Fault, FaultKind, MemoryIo, RecordingIo};
    use thermocline_base::multiplex::block_on;

    const DATABASE: [u8; 16] = [3; 16];

    fn path() -> &'static Path {
        Path::new("/pages")
    }

    fn created() -> MemoryIo {
        let io = MemoryIo::new();
        PageDevice::create(&io, path(), PageSize::default(), DATABASE).expect("a fresh file");
        io
    }

    fn open(io: &dyn Io) -> Result<PageDevice, DeviceError> {
        PageDevice::open(io, path(), Some(PageSize::default()), DATABASE)
    }

    fn with_bytes(bytes: Vec<u8>) -> MemoryIo {
        MemoryIo::with_files([], [(path().to_path_buf(), bytes)])
    }

    #[test]
    fn a_created_file_opens() {
        let io = created();
        let device = open(&io).expect("our own file");
        assert_eq!(device.page_size(), PageSize::default());
        assert_eq!(device.pages().expect("memory"), 1);
        let unasked = PageDevice::open(&io, path(), None, DATABASE).expect("our own file");
        assert_eq!(unasked.file_id(), device.file_id());
        let again = PageDevice::create(&io, path(), PageSize::default(), DATABASE);
        assert!(matches!(again, Err(DeviceError::Io(_))), "an existing file is not overwritten");
    }

    #[test]
    fn what_is_not_ours_is_named() {
        let header = created().files()[path()].clone();
        assert!(matches!(
            open(&with_bytes(vec![b'x'; 8192])),
            Err(DeviceError::File(WrongFile::Foreign { .. }))
        ));
        assert!(matches!(
            open(&with_bytes(vec![b'x'; 3])),
            Err(DeviceError::File(WrongFile::Foreign { .. }))
        ));
        assert!(matches!(open(&with_bytes(Vec::new())), Err(DeviceError::Unfinished { .. })));
        assert!(matches!(open(&with_bytes(vec![0; 4096])), Err(DeviceError::Unfinished { .. })));
        let mut newer = header.clone();
        newer[8] = DEVICE_FORMAT as u8 + 1;
        assert!(matches!(
            open(&with_bytes(newer)),
            Err(DeviceError::File(WrongFile::Newer { found: 2, supported: 1, .. }))
        ));
        for at in 12..HEADER_USED {
            let mut damaged = header.clone();
            damaged[at] ^= 1;
            assert!(matches!(open(&with_bytes(damaged)), Err(DeviceError::Damaged { .. })), "byte {at}");
        }
        let other = PageDevice::open(&created(), path(), None, [4; 16]);
        assert!(matches!(other, Err(DeviceError::File(WrongFile::OtherDatabase { expected, found, .. }))
            if expected == [4; 16] && found == DATABASE));
        let size = PageSize::new(8192).expect("a page size");
        let other = PageDevice::open(&created(), path(), Some(size), DATABASE);
        assert!(matches!(other, Err(DeviceError::OtherPageSize { expected, .. }) if expected == size));
    }

    #[test]
    fn a_scratch_file_has_pages_of_its_own() {
        let io = MemoryIo::new();
        let file = |name: &str| io.open(Path::new(name), OpenMode::CreateNew).expect("a fresh file");
        let [one, other] =
            ["/one", "/other"].map(|name| PageDevice::scratch(file(name), PageSize::default()));
        assert_eq!(one.pages().expect("memory"), 0);
        assert_eq!(one.path().as_path(), Path::new("/one"));
        let mut page = AlignedBytes::zeroed(4096);
        crate::page::seal(&mut page, one.seal(), 1, 7, crate::page::PageKind(1));
        block_on(one.write(1, page.into())).result.expect("written");
        let read = block_on(one.read(1, AlignedBytes::zeroed(4096), Wanted::default()));
        let bytes = read.buffer.as_slice();
        assert!(crate::page::open(bytes, one.seal(), 1, Some(7)).is_ok());
        assert!(crate::page::open(bytes, other.seal(), 1, Some(7)).is_err(), "it is of another file");
    }

    #[test]
    fn a_crash_while_creating_leaves_a_named_state() {
        let io = RecordingIo::new(&MemoryIo::new());
        PageDevice::create(&io, path(), PageSize::default(), DATABASE).expect("a fresh file");
        for operations in 0..=io.operations() {
            for seed in 0..8 {
                let left = io.crash(operations, seed);
                match open(&left) {
                    Ok(_) | Err(DeviceError::Unfinished { .. }) => {}
                    Err(DeviceError::Io(error)) if error.is_not_found() => {
                        assert!(operations < io.operations(), "a created file is durable");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    #[test]
    fn the_first_failed_sync_is_final() {
        let io = RecordingIo::new(&created());
        let device = open(&io).expect("our own file");
        block_on(device.sync()).expect("a whole device");
        io.inject(Fault { on: Action::Sync, skip: 0, times: 1, kind: FaultKind::Broken });
        assert!(block_on(device.sync()).is_err());
        assert!(block_on(device.sync()).is_err(), "a later success would say nothing about the bytes before");
    }

    #[test]
    #[should_panic(expected = "the header of a page file")]
    fn the_header_is_not_overwritten() {
        let device = open(&created()).expect("our own file");
        drop(device.write(0, AlignedBytes::zeroed(4096).into()));
    }
}
