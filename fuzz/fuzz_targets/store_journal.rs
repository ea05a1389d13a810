//! Groups of the store's journal: `cargo +nightly fuzz run store_journal`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = thermocline_pool::store::fuzzing::journal_group(bytes);
});
