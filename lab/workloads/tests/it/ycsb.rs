//! YCSB's workloads.

use thermocline_engine::row::{KeyBuf, Layout};
use thermocline_engine::{Database, Options, TransactionOptions, block_on};
use thermocline_workloads::ycsb::generate::{Config, KeySpace, Operation, Workload};
use thermocline_workloads::ycsb::load::{LoadOptions, UserTable, definition, load};
use thermocline_workloads::ycsb::operations::{Executor, Outcome, Terminal};

fn config(workload: Workload) -> Config {
    let mut config = Config::new(workload, 500);
    (config.fields, config.field_bytes) = (3, 20);
    config
}

fn loaded(config: &Config) -> (Database, UserTable) {
    let database = Database::open_in_memory(Options::default()).unwrap();
    let table = load(&database, config, LoadOptions { threads: 2, batch_rows: 64 }, &|_| {}).unwrap();
    (database, table)
}

/// The fields of a record, if it is there.
fn fields(database: &Database, table: &UserTable, config: &Config, key: u64) -> Option<Vec<Vec<u8>>> {
    let layout = Layout::new(definition(config).column_list()).unwrap();
    let decode = |row: &[u8]| {
        assert_eq!(layout.i64(row, 0), Some(key as i64));
        (1..=usize::from(config.fields)).map(|column| layout.bytes(row, column).unwrap().to_vec()).collect()
    };
    let key = KeyBuf::new().i64(key as i64);
    database
        .run(TransactionOptions::default(), async |transaction| {
            transaction.read(&table.key, &key, decode).await
        })
        .unwrap()
}

/// Executes one operation in a transaction of its own.
fn execute(database: &Database, table: &UserTable, config: &Config, operation: Operation) -> Outcome {
    let mut executor = Executor::new(table, config);
    database
        .run(TransactionOptions::default(), async |transaction| {
            let mut outcome = Outcome::default();
            executor.execute(transaction, &operation, &mut outcome).await?;
            Ok(outcome)
        })
        .unwrap()
}

#[test]
fn every_record_is_loaded_with_its_content() {
    let config = config(Workload::C);
    let (database, table) = loaded(&config);
    for key in [0, 1, 63, 64, 499] {
        let found = fields(&database, &table, &config, key).expect("the record is there");
        for (field, content) in (0..).zip(found) {
            let mut expected = vec![0; 20];
            config.fill_loaded(key, field, &mut expected);
            assert_eq!(content, expected);
        }
    }
    assert_eq!(fields(&database, &table, &config, 500), None);
}

#[test]
fn an_update_changes_one_field_or_all() {
    let mut config = config(Workload::A);
    let (database, table) = loaded(&config);
    let before = fields(&database, &table, &config, 7).unwrap();
    let update = Operation::Update { key: 7, field: 1, value_seed: 5 };
    let outcome = execute(&database, &table, &config, update);
    assert_eq!((outcome.written, outcome.missing), (1, 0));
    let after = fields(&database, &table, &config, 7).unwrap();
    assert_eq!((&before[0], &before[2]), (&after[0], &after[2]));
    assert_ne!(before[1], after[1]);

    config.updates_all_fields = true;
    execute(&database, &table, &config, Operation::Update { key: 7, field: 1, value_seed: 6 });
    let all = fields(&database, &table, &config, 7).unwrap();
    assert!(all.iter().zip(&after).all(|(new, old)| new != old));
    assert_eq!(
        execute(&database, &table, &config, Operation::Update { key: 900, field: 1, value_seed: 6 }).missing,
        1
    );
}

#[test]
fn read_modify_write_depends_on_what_was_read() {
    let config = config(Workload::F);
    let (database, table) = loaded(&config);
    let modify = Operation::ReadModifyWrite { key: 3, field: 0, value_seed: 5 };
    let outcome = execute(&database, &table, &config, modify);
    assert_eq!((outcome.rows, outcome.written), (1, 1));
    let once = fields(&database, &table, &config, 3).unwrap();
    execute(&database, &table, &config, modify);
    let twice = fields(&database, &table, &config, 3).unwrap();
    assert_ne!(once[0], twice[0], "the same operation on another content writes another one");
    assert_eq!(once[1..], twice[1..]);
}

#[test]
fn scans_read_in_order_up_to_the_end() {
    let config = config(Workload::E);
    let (database, table) = loaded(&config);
    assert_eq!(execute(&database, &table, &config, Operation::Scan { key: 10, length: 25 }).rows, 25);
    assert_eq!(execute(&database, &table, &config, Operation::Scan { key: 490, length: 25 }).rows, 10);
    execute(&database, &table, &config, Operation::Insert { key: 500, value_seed: 1 });
    assert_eq!(execute(&database, &table, &config, Operation::Scan { key: 490, length: 25 }).rows, 11);
}

#[test]
fn every_workload_runs_and_misses_nothing() {
    for workload in
        [Workload::A, Workload::B, Workload::C, Workload::D, Workload::E, Workload::F, Workload::Reads(80)]
    {
        let mut config = config(workload);
        for operations_per_transaction in [1, 4] {
            config.operations_per_transaction = operations_per_transaction;
            let (database, table) = loaded(&config);
            let keys = KeySpace::new(config.records);
            let mut total = Outcome::default();
            std::thread::scope(|scope| {
                let terminals = [0, 1].map(|number| {
                    let options = TransactionOptions::default();
                    let mut terminal = Terminal::new(&database, &table, &config, &keys, number, options);
                    scope.spawn(move || {
                        let mut sum = Outcome::default();
                        for _ in 0..150 {
                            let outcome = block_on(terminal.run_one()).unwrap();
                            sum.rows += outcome.rows;
                            sum.written += outcome.written;
                            sum.missing += outcome.missing;
                        }
                        sum
                    })
                });
                for terminal in terminals {
                    let sum = terminal.join().unwrap();
                    total.rows += sum.rows;
                    total.written += sum.written;
                    total.missing += sum.missing;
                }
            });
            assert_eq!(total.missing, 0, "{workload}: an operation asked for a record that is not there");
            assert_eq!(total.written > 0, workload.writes(), "{workload}: {total:?}");
            assert!(total.rows > 0 || workload == Workload::Reads(0), "{workload}: {total:?}");
            let inserts = keys.complete() - config.records;
            assert_eq!(inserts > 0, matches!(workload, Workload::D | Workload::E), "{workload}: {inserts}");
            if inserts > 0 {
                assert_eq!(inserts, total.written);
                let last = keys.complete() - 1;
                assert!(fields(&database, &table, &config, last).is_some(), "{workload}: the last insert");
            }
        }
    }
}

#[test]
fn a_table_may_have_an_ordered_key_without_scans() {
    let mut config = config(Workload::C);
    config.ordered = true;
    let (database, table) = loaded(&config);
    assert_eq!(execute(&database, &table, &config, Operation::Scan { key: 0, length: 7 }).rows, 7);
}
