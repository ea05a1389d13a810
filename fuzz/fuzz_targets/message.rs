//! Messages of clients, before and behind their login: `cargo +nightly fuzz run message`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| thermocline_server::fuzzing::message(bytes));
