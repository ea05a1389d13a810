//! Data pages and tails of the store's pieces: `cargo +nightly fuzz run store_piece`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = thermocline_pool::store::fuzzing::data_page(bytes);
    let _ = thermocline_pool::store::fuzzing::piece_tail(bytes);
});
