//! Backups while transactions, checkpoints and changes of definitions run, two at once: each verifies, opens, adds up,
//! and has everything that was committed before the call.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use thermocline_engine::{Database, Durability};

use super::kill9::{Rows, Scratch, books, options, work};

/// What has been acknowledged: the last number of each thread, and the tables that are there for sure.
#[derive(Clone, Debug, Default)]
struct Told {
    counters: BTreeMap<i64, i64>,
    tables: BTreeMap<i64, usize>,
}

impl Told {
    fn hear(&mut self, what: &str, of: i64, number: i64) {
        match what {
            "committed" => _ = self.counters.insert(of, number),
            "made" => _ = self.tables.insert(of, 1),
            "changed" => _ = self.tables.insert(of, 2),
            "dropping" => _ = self.tables.remove(&of),
            other => panic!("{other} is news"),
        }
    }
}

fn back_up_and_compare(db: &Database, rows: Rows, told: &Mutex<Told>, name: &str) {
    let copy = Scratch::new(name);
    let before = told.lock().expect("nobody panicked").clone();
    db.backup(&copy.0).expect("a backup");
    let after = told.lock().expect("nobody panicked").clone();
    let report = Database::verify(&copy.0).expect("it can be verified");
    assert_eq!(report.findings, Vec::<String>::new(), "{name}");
    let backup = Database::open(&copy.0, options(Durability::Group, rows)).expect("the backup opens");
    let found = books(&backup, rows, true);
    for (thread, number) in &before.counters {
        assert!(found.counters[thread] >= *number, "{name}: {before:?}, but {found:?}");
    }
    for (number, columns) in &before.tables {
        // What was dropped meanwhile may be gone.
        if after.tables.contains_key(number) {
            let there = found.tables.get(number);
            assert!(
                there.is_some_and(|there| there.0 == 5 && there.1 >= *columns),
                "{name}: g{number} is {there:?}"
            );
        }
    }
    backup.close().expect("it closes");
}

fn under_load(durability: Durability, rows: Rows, each: usize) {
    let scratch = Scratch::new(&format!("load-{durability}-{rows:?}"));
    let db = Database::open(&scratch.0, options(durability, rows)).expect("it opens");
    let told = Mutex::new(Told::default());
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let tell =
            |what: &str, of: i64, number: i64| told.lock().expect("nobody panicked").hear(what, of, number);
        let (db, told, enough) = (&db, &told, &enough);
        scope.spawn(move || work(db, rows, &tell, enough, i64::MAX));
        while told.lock().expect("nobody panicked").counters.len() < 3 {
            std::thread::yield_now();
        }
        // Whatever happens here, the workers must end.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            std::thread::scope(|scope| {
                for clerk in 0..2 {
                    scope.spawn(move || {
                        for number in 0..each {
                            let name = format!("{durability}-{rows:?}-{clerk}-{number}");
                            back_up_and_compare(db, rows, told, &name);
                        }
                    });
                }
            });
        }));
        enough.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    db.close().expect("it closes");
}

#[test]
fn backups_under_load() {
    under_load(Durability::Group, Rows::InMemory, 2);
    under_load(Durability::Async, Rows::InMemory, 1);
}

#[test]
fn backups_while_rows_move() {
    under_load(Durability::Group, Rows::Cold, 2);
    under_load(Durability::Async, Rows::Cold, 1);
}
