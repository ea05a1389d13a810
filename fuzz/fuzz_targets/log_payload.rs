//! Payloads of log records: `cargo +nightly fuzz run log_payload`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = thermocline_engine::fuzzing::log_payload(bytes);
});
