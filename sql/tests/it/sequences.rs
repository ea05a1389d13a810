//! Sequences and the disk: values are reserved without waiting for it, and none that somebody was told of is given again.

use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::{Io, MemoryIo, RecordingIo};
use thermocline_engine::{Database, Durability, Options};
use thermocline_sql::Session;

use super::sessions::{one, run};

fn over(io: Arc<dyn Io>) -> Database {
    let options = Options::default().with_memory_limit(Some(256 << 20)).with_durability(Durability::Group);
    Database::open_with(Path::new("/db"), options, io, true).expect("it opens")
}

/// Whenever a client was told of a value the machine may die, and keep nothing but what is certain.
#[test]
fn values_that_were_told_are_not_given_again() {
    let recording = RecordingIo::new(&MemoryIo::new());
    let db = over(Arc::new(recording.clone()));
    let (mut first, mut second) = (Session::new(&db), Session::new(&db));
    run(&mut first, "create sequence s");
    run(&mut first, "create table t (id bigint primary key default nextval('s'), n int)");
    let texts: [&[&str]; 7] = [
        &["select nextval('s')"],
        &["insert into t (n) values (1) returning id"],
        &["begin", "insert into t (n) values (2) returning id", "commit"],
        &["select max(nextval('s')) from generate_series(1, 100)"],
        &["begin", "select nextval('s')", "rollback", "select nextval('s')"],
        &["insert into t (n) select i from generate_series(1, 40) i", "select max(id) from t"],
        &["select setval('s', (select max(id) from t) + 1000)"],
    ];
    let mut told = 0;
    for round in 0..3 * texts.len() {
        let session = if round % 2 == 0 { &mut first } else { &mut second };
        for text in texts[round % texts.len()] {
            let answer = run(session, text);
            if let Some(value) = answer.rows.first().and(answer.text(0, 0)) {
                told = told.max(value.parse().expect("a number"));
            }
        }
        let left = recording.crash(recording.operations(), 0);
        let again = over(Arc::new(left));
        let next: i64 = one(&mut Session::new(&again), "select nextval('s')").parse().expect("a number");
        assert!(next > told, "{told} was told in round {round}, and {next} is given after a crash");
    }
}

/// A statement within a transaction goes on while the disk answers nothing.
#[test]
fn reserving_values_does_not_wait_for_the_disk() {
    let recording = RecordingIo::new(&MemoryIo::new());
    let db = over(Arc::new(recording.clone()));
    let mut session = Session::new(&db);
    run(&mut session, "create sequence s");
    run(&mut session, "begin");
    recording.defer(1);
    assert_eq!(one(&mut session, "select max(nextval('s')) from generate_series(1, 1000)"), "1000");
    recording.stop();
}
