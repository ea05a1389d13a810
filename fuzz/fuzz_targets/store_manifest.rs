//! Edits of the store's manifest: `cargo +nightly fuzz run store_manifest`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = thermocline_pool::store::fuzzing::manifest_edit(bytes);
});
