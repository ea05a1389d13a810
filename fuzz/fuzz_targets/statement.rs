//! Statements, to their plans and answers: `cargo +nightly fuzz run statement`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| thermocline_sql::fuzzing::statements(text));
