//! Pages, and headers of page files: `cargo +nightly fuzz run page`.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use thermocline_base::io::MemoryIo;
use thermocline_pool::device::PageDevice;
use thermocline_pool::page::{MAX_PAGE_NUMBER, PageKind, PageSeal, open, seal};

fuzz_target!(|bytes: &[u8]| {
    let file = PageSeal::of_file(&[7; 16]);
    let number = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let _ = open(bytes, file, number, None);
    let path = Path::new("/pages");
    let io = MemoryIo::with_files([], [(path.to_path_buf(), bytes.to_vec())]);
    let _ = PageDevice::open(&io, path, None, [1; 16]);
    // A page that was sealed opens, unless a byte of it changes.
    let mut page = vec![0; 4096];
    let payload = &bytes[..bytes.len().min(4096 - 24)];
    page[24..24 + payload.len()].copy_from_slice(payload);
    seal(&mut page, file, number & MAX_PAGE_NUMBER, number, PageKind(1));
    assert!(open(&page, file, number & MAX_PAGE_NUMBER, Some(number)).is_ok());
    let (at, mask) = (number as usize % page.len(), (number >> 32) as u8);
    page[at] ^= mask;
    assert_eq!(open(&page, file, number & MAX_PAGE_NUMBER, Some(number)).is_ok(), mask == 0);
});
