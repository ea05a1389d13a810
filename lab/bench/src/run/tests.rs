//! Errors of a run that cannot go on.

use thermocline_engine::Error;
use thermocline_engine::row::Value;

use super::*;

/// A refusal for want of memory names what the database needs, where the limit is less than that by now.
#[test]
fn a_limit_that_has_become_too_small_while_loading_is_named_with_what_is_needed() {
    const ROWS: i64 = 600_000;
    let dir = tempfile::tempdir().expect("a directory");
    let of_limit =
        |mib: u64| Settings { memory_limit_bytes: Some(mib << 20), ..Settings::for_tests(dir.path()) };
    let settings = of_limit(30);
    let session = |settings| Session {
        settings,
        check: false,
        progress: Progress::new(true),
        peak: Peak::watch(),
        capture: None,
        lend: None,
    };
    let database = session(&settings).open().expect("it opens");
    let table = plain::load(&database, 0, false, 1, &|_, _| {}).expect("an empty table");
    // One transaction's rows stay in memory until it has ended, and these do not fit.
    let payload = "x".repeat(plain::PAYLOAD);
    let rows = (0..ROWS).map(|id| [Value::Int8(id), Value::from(payload.as_str())]);
    let Err(Error::OutOfMemory(memory)) = database.bulk_load(&table, rows) else {
        panic!("it is too much at once");
    };
    let refused = || Error::OutOfMemory(memory);
    let enough = session(&settings).cause_of(&database, refused());
    assert!(matches!(enough, Error::OutOfMemory(_)), "{enough}");
    let small = of_limit(18);
    let cause = session(&small).cause_of(&database, refused());
    assert!(matches!(cause, Error::InvalidOption { option: "memory_limit", .. }), "{cause}");
    assert!(cause.to_string().contains("are needed"), "{cause}");
}
