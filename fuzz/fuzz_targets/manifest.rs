//! Bodies of manifests and catalogs: `cargo +nightly fuzz run manifest`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = thermocline_engine::fuzzing::manifest(bytes);
});
