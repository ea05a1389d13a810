//! What a newcomer tries first.

use std::ops::{Bound, ControlFlow};

use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Direction, Error, IndexSchema, Isolation, KeyRange, LockMode, Options, Table, TableSchema,
    TransactionOptions, block_on,
};

fn accounts(db: &Database) -> Table {
    db.create_table(
        TableSchema::new("accounts")
            .column(Column::new("id", Type::Int8))
            .column(Column::new("owner", Type::Text))
            .column(Column::new("balance", Type::Int8))
            .primary_key(IndexSchema::hash("accounts_key", &["id"]))
            .index(IndexSchema::ordered("by_owner", &["owner"]))
            .index(IndexSchema::ordered("by_balance", &["balance"])),
    )
    .expect("the definition is fine")
}

fn fill(db: &Database, table: &Table, rows: i64) {
    db.run(TransactionOptions::new(), async |tx| {
        for id in 0..rows {
            let owner = format!("owner {:03}", id % 10);
            tx.insert_values(table, &[Value::Int8(id), Value::from(owner.as_str()), Value::Int8(id * 10)])
                .await?;
        }
        Ok(())
    })
    .expect("the rows are new");
}

fn set(db: &Database, table: &Table, id: i64, balance: i64) -> Result<Option<()>, Error> {
    db.run(TransactionOptions::new(), async |tx| {
        tx.update(&table.primary(), &KeyBuf::new().i64(id), |row| {
            row.set_i64(2, balance).map_err(|error| table.error(error))
        })
        .await
    })
}

fn balances(db: &Database, table: &Table, range: KeyRange<'_>, direction: Direction) -> Vec<i64> {
    let index = table.index("by_balance").expect("it is there");
    let layout = table.layout();
    db.run(TransactionOptions::new(), async |tx| {
        let mut found = Vec::new();
        tx.scan(&index, range, direction, |row| {
            found.push(layout.i64(row, 2).expect("not null"));
            ControlFlow::Continue(())
        })
        .await?;
        Ok(found)
    })
    .expect("a scan")
}

#[test]
fn rows_are_inserted_read_updated_and_deleted() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = accounts(&db);
    fill(&db, &table, 1000);
    let layout = table.layout();
    let read = |id: i64| {
        db.run(TransactionOptions::new(), async |tx| {
            tx.read(&table.primary(), &KeyBuf::new().i64(id), |row| layout.i64(row, 2)).await
        })
        .expect("a read")
    };
    assert_eq!(read(7), Some(Some(70)));
    assert_eq!(read(1000), None);
    assert_eq!(set(&db, &table, 7, 5).expect("an update"), Some(()));
    assert_eq!(read(7), Some(Some(5)));
    assert_eq!(set(&db, &table, 1000, 5).expect("an update"), None);
    let deleted = db
        .run(TransactionOptions::new(), async |tx| tx.delete(&table.primary(), &KeyBuf::new().i64(7)).await);
    assert!(deleted.expect("a delete"));
    assert_eq!(read(7), None);
}

#[test]
fn scans_follow_the_order_both_ways() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = accounts(&db);
    fill(&db, &table, 500);
    let all = balances(&db, &table, KeyRange::all(), Direction::Forward);
    assert_eq!(all, (0..500).map(|id| id * 10).collect::<Vec<_>>());
    let mut back = balances(&db, &table, KeyRange::all(), Direction::Backward);
    back.reverse();
    assert_eq!(all, back);
    let (from, to) = (KeyBuf::new().i64(100), KeyBuf::new().i64(200));
    let range = KeyRange::between(Bound::Included(&from), Bound::Excluded(&to));
    assert_eq!(
        balances(&db, &table, range, Direction::Forward),
        (10..20).map(|id| id * 10).collect::<Vec<_>>()
    );
    set(&db, &table, 15, 9_999).expect("an update");
    assert_eq!(balances(&db, &table, range, Direction::Backward).len(), 9);
    assert_eq!(*balances(&db, &table, KeyRange::all(), Direction::Backward).first().expect("rows"), 9_999);
}

#[test]
fn a_duplicate_key_is_refused_and_leaves_the_transaction_alive() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = accounts(&db);
    fill(&db, &table, 10);
    db.run(TransactionOptions::new(), async |tx| {
        let error = tx
            .insert_values(&table, &[Value::Int8(3), Value::from("x"), Value::Int8(0)])
            .await
            .expect_err("3 is taken");
        assert!(matches!(&error, Error::DuplicateKey { index, .. } if index == "accounts_key"), "{error}");
        assert_eq!(error.sqlstate(), "23505");
        tx.insert_values(&table, &[Value::Int8(10), Value::from("x"), Value::Int8(0)]).await?;
        Ok(())
    })
    .expect("the other insert counts");
    assert_eq!(balances(&db, &table, KeyRange::all(), Direction::Forward).len(), 11);
}

#[test]
fn the_second_updater_fails_at_snapshot_and_goes_on_at_read_committed() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = accounts(&db);
    fill(&db, &table, 10);
    let key = KeyBuf::new().i64(1);
    for (isolation, fails) in [(Isolation::Snapshot, true), (Isolation::ReadCommitted, false)] {
        let mut tx = db.begin(TransactionOptions::new().isolation(isolation)).expect("it begins");
        block_on(tx.read(&table.primary(), &key, |_| ())).expect("a read");
        set(&db, &table, 1, 77).expect("an update");
        let outcome =
            block_on(tx.update(&table.primary(), &key, |row| {
                row.set_i64(2, 78).map_err(|error| table.error(error))
            }));
        if fails {
            let error = outcome.expect_err("somebody was first");
            assert!(error.is_retryable() && error.to_string().contains("accounts"), "{error}");
            assert!(error.to_string().contains("id"), "{error}");
        } else {
            assert_eq!(outcome.expect("read committed goes on"), Some(()));
            block_on(tx.commit()).expect("a commit");
        }
    }
}

#[test]
fn no_wait_refuses_and_savepoints_go_back() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = accounts(&db);
    fill(&db, &table, 10);
    let (one, two) = (KeyBuf::new().i64(1), KeyBuf::new().i64(2));
    let edit = |row: &mut thermocline_engine::row::RowEditor<'_>| {
        row.set_i64(2, 1).map_err(|error| Error::Refused(error.to_string()))
    };
    let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
    block_on(tx.update(&table.primary(), &one, edit)).expect("an update");
    let savepoint = tx.savepoint().expect("a savepoint");
    block_on(tx.update(&table.primary(), &one, |row| {
        row.set_i64(2, 2).map_err(|error| Error::Refused(error.to_string()))
    }))
    .expect("an update of its own row");
    block_on(tx.update(&table.primary(), &two, edit)).expect("an update");
    let mut other = db.begin(TransactionOptions::new().no_wait()).expect("it begins");
    let refused = block_on(other.update(&table.primary(), &one, edit)).expect_err("the row is taken");
    assert!(matches!(refused, Error::WouldWait { .. }), "{refused}");
    tx.rollback_to(&savepoint).expect("it goes back");
    block_on(other.update(&table.primary(), &two, edit)).expect("the row is free again");
    block_on(tx.commit()).expect("a commit");
    drop(other);
    let layout = table.layout();
    let value = db
        .run(TransactionOptions::new(), async |tx| {
            tx.read(&table.primary(), &one, |row| layout.i64(row, 2)).await
        })
        .expect("a read");
    assert_eq!(value, Some(Some(1)));
}

#[test]
fn locks_hold_writers_off() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = accounts(&db);
    fill(&db, &table, 10);
    let key = KeyBuf::new().i64(1);
    let mut holder = db.begin(TransactionOptions::new()).expect("it begins");
    assert!(block_on(holder.lock(&table.primary(), &key, LockMode::KeyShare)).expect("a lock"));
    let no_wait = TransactionOptions::new().no_wait();
    let mut other = db.begin(no_wait).expect("it begins");
    block_on(other.update(&table.primary(), &key, |row| {
        row.set_i64(2, 5).map_err(|error| Error::Refused(error.to_string()))
    }))
    .expect("the key stays, so the update is fine");
    drop(other);
    let mut other = db.begin(no_wait).expect("it begins");
    assert!(matches!(block_on(other.delete(&table.primary(), &key)), Err(Error::WouldWait { .. })));
    drop(holder);
    let mut other = db.begin(no_wait).expect("it begins");
    assert!(block_on(other.delete(&table.primary(), &key)).expect("the lock has gone"));
}

#[test]
fn a_table_without_a_key_keeps_equal_rows() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = db
        .create_table(
            TableSchema::new("events")
                .column(Column::new("what", Type::Text))
                .index(IndexSchema::hash("by_what", &["what"])),
        )
        .expect("the definition is fine");
    db.run(TransactionOptions::new(), async |tx| {
        for _ in 0..3 {
            tx.insert_values(&table, &[Value::from("tick")]).await?;
        }
        Ok(())
    })
    .expect("inserts");
    let index = table.index("by_what").expect("it is there");
    let count = db
        .run(TransactionOptions::new(), async |tx| {
            let mut count = 0;
            tx.read_all(&index, &KeyBuf::new().str("tick"), |_| {
                count += 1;
                ControlFlow::Continue(())
            })
            .await?;
            Ok(count)
        })
        .expect("a read");
    assert_eq!(count, 3);
}

#[test]
fn definitions_change_under_live_handles() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = accounts(&db);
    fill(&db, &table, 100);
    db.add_column("accounts", Column::new("note", Type::Text).nullable().default("none"))
        .expect("add a column");
    assert_eq!(table.layout().columns().len(), 4);
    let index = db.create_index("accounts", IndexSchema::hash("by_note", &["note"])).expect("an index");
    let count = db
        .run(TransactionOptions::new(), async |tx| {
            let mut count = 0;
            let key = index.key_of_values(&[Value::from("none")])?;
            tx.read_all(&index, &key, |_| {
                count += 1;
                ControlFlow::Continue(())
            })
            .await?;
            Ok(count)
        })
        .expect("a read");
    assert_eq!(count, 100);
    assert!(db.drop_column("accounts", "note").is_err(), "an index needs it");
    db.drop_index("accounts", "by_note").expect("drop the index");
    db.drop_column("accounts", "note").expect("drop the column");
    db.rename_column("accounts", "balance", "cents").expect("rename a column");
    db.rename_table("accounts", "ledger").expect("rename");
    assert!(matches!(db.table("accounts"), Err(Error::UnknownTable { .. })));
    assert_eq!(balances(&db, &table, KeyRange::all(), Direction::Forward).len(), 100);
    let duplicate = db.create_index("ledger", IndexSchema::ordered("one", &["owner"]).unique());
    assert!(matches!(duplicate, Err(Error::DuplicateKey { .. })), "{duplicate:?}");
    db.truncate_table("ledger").expect("truncate");
    assert!(balances(&db, &table, KeyRange::all(), Direction::Forward).is_empty());
    fill(&db, &table, 3);
    db.drop_table("ledger").expect("drop");
    assert!(matches!(set(&db, &table, 1, 1), Err(Error::TableDropped { .. })));
}

/// Of each row the balance, as one transaction sees it.
async fn sum(tx: &mut thermocline_engine::Transaction, table: &Table) -> (i64, i64) {
    let (mut rows, mut sum) = (0, 0);
    let layout = table.layout();
    tx.scan_table(table, |row| {
        rows += 1;
        sum += layout.i64(row, 2).expect("not null");
        ControlFlow::Continue(())
    })
    .await
    .expect("a scan");
    (rows, sum)
}

/// Were each search for an own write to look at all of them, this would take hours.
#[test]
fn many_own_rows_are_written_again_in_one_transaction() {
    const ROWS: i64 = 200_000;
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = db
        .create_table(
            TableSchema::new("counters")
                .column(Column::new("id", Type::Int8))
                .column(Column::new("spare", Type::Int8))
                .column(Column::new("balance", Type::Int8))
                .primary_key(IndexSchema::hash("counters_key", &["id"])),
        )
        .expect("the definition is fine");
    let primary = table.primary();
    block_on(async {
        let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
        for id in 0..ROWS {
            let row = [Value::Int8(id), Value::Int8(0), Value::Int8(0)];
            tx.insert_values(&table, &row).await.expect("it is new");
        }
        // Far from where each was written last.
        for step in 0..2 * ROWS {
            let key = KeyBuf::new().i64(step * 7_919 % ROWS);
            tx.update(&primary, &key, |row| {
                let balance = table.layout().i64(row.row(), 2).expect("not null") + 1;
                Ok(row.set_i64(2, balance)?)
            })
            .await
            .expect("an own row");
        }
        assert_eq!(sum(&mut tx, &table).await, (ROWS, 2 * ROWS));
        let savepoint = tx.savepoint().expect("a savepoint");
        for step in 0..ROWS {
            let key = KeyBuf::new().i64(step * 7_919 % ROWS);
            if step % 3 == 0 {
                assert!(tx.delete(&primary, &key).await.expect("an own row"));
            } else {
                for _ in 0..2 {
                    tx.update(&primary, &key, |row| Ok(row.set_i64(2, -5)?)).await.expect("an own row");
                }
            }
        }
        assert_eq!(sum(&mut tx, &table).await, (133_333, -5 * 133_333));
        tx.rollback_to(&savepoint).expect("it stands");
        assert_eq!(sum(&mut tx, &table).await, (ROWS, 2 * ROWS));
        for step in 0..ROWS {
            let key = KeyBuf::new().i64(step * 7_919 % ROWS);
            tx.update(&primary, &key, |row| Ok(row.set_i64(2, 1)?)).await.expect("an own row");
        }
        tx.commit().await.expect("nobody is in the way");
        let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
        assert_eq!(sum(&mut tx, &table).await, (ROWS, ROWS));
        assert_eq!(db.statistics().index_entries, ROWS as u64);
    });
}

/// A row whose key changes again and again under one transaction keeps a version for each time until it ends.
#[test]
fn a_row_whose_key_changes_many_times_in_one_transaction() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = accounts(&db);
    fill(&db, &table, 3);
    db.run(TransactionOptions::new(), async |tx| {
        for balance in 1_000..6_000 {
            tx.update(&table.primary(), &KeyBuf::new().i64(1), |row| Ok(row.set_i64(2, balance)?)).await?;
        }
        Ok(())
    })
    .expect("nobody is in the way");
    let all = balances(&db, &table, KeyRange::all(), Direction::Forward);
    assert_eq!(all, [0, 20, 5_999]);
}

/// Writes come back to rows of before and behind savepoints, in transactions of any length.
#[test]
fn own_writes_are_found_across_savepoints() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let table = db
        .create_table(
            TableSchema::new("t")
                .column(Column::new("id", Type::Int8))
                .column(Column::new("kind", Type::Int8))
                .column(Column::new("value", Type::Int8))
                .primary_key(IndexSchema::hash("t_key", &["id"]))
                .index(IndexSchema::ordered("by_kind", &["kind"])),
        )
        .expect("the definition is fine");
    let mut random = thermocline_base::rng::Rng::new(11);
    let mut below = move |bound: usize| random.below(bound as u64) as usize;
    for round in 0..60 {
        block_on(async {
            let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
            let mut rows: Vec<Option<i64>> = vec![None; 90];
            let mut savepoints = Vec::new();
            for step in 0..20 + below(500) {
                let id = below(rows.len());
                let (key, value) = (KeyBuf::new().i64(id as i64), step as i64);
                match below(20) {
                    0 => savepoints.push((tx.savepoint().expect("a savepoint"), rows.clone())),
                    1 if !savepoints.is_empty() => {
                        savepoints.truncate(1 + below(savepoints.len()));
                        let (savepoint, then) = savepoints.last().expect("one is left");
                        tx.rollback_to(savepoint).expect("it stands");
                        rows.clone_from(then);
                    }
                    2 => {
                        let found = tx.delete(&table.primary(), &key).await.expect("an own row");
                        assert_eq!(found, rows[id].take().is_some());
                    }
                    _ if rows[id].is_some() => {
                        let kind = below(3) == 0;
                        let edit = |row: &mut thermocline_engine::row::RowEditor<'_>| {
                            if kind {
                                row.set_i64(1, value)?;
                            }
                            Ok(row.set_i64(2, value)?)
                        };
                        let own = tx.update(&table.primary(), &key, edit).await.expect("an own row");
                        assert!(own.is_some());
                        rows[id] = Some(value);
                    }
                    _ => {
                        let row = [Value::Int8(id as i64), Value::Int8(0), Value::Int8(value)];
                        tx.insert_values(&table, &row).await.expect("it is new");
                        rows[id] = Some(value);
                    }
                }
            }
            if round % 3 == 0 {
                return;
            }
            tx.commit().await.expect("nobody is in the way");
            let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
            for (id, row) in rows.iter().enumerate() {
                let layout = table.layout();
                let key = KeyBuf::new().i64(id as i64);
                let found = tx.read(&table.primary(), &key, |row| layout.i64(row, 2)).await.expect("a read");
                assert_eq!(found.flatten(), *row, "row {id} of round {round}");
                tx.delete(&table.primary(), &key).await.expect("nobody is in the way");
            }
            tx.commit().await.expect("nobody is in the way");
        });
    }
}
