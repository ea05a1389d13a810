//! Databases whose rows are paged: from the command line, and on memory servers that are killed.

use std::path::Path;

use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    Database, Durability, Error, IndexSchema, Options, Table, TableSchema, Tiering, TransactionOptions,
};
use thermocline_remote::pages::{Copies, RemotePages};
use thermocline_remote::tcp::Address;

use crate::remote::Process;
use crate::{directory, errors, lab, runs};

/// On more pages than the few that stay in memory.
const ROWS: i64 = 12_000;

fn pages(dir: &Path, copies: Copies, servers: &[&str]) -> RemotePages {
    RemotePages {
        servers: servers.iter().map(|socket| Address::Unix(dir.join(socket))).collect(),
        key: None,
        copies,
        plain: false,
        sealed: false,
        profile: None,
    }
}

fn open(dir: &Path, pages: Option<&RemotePages>) -> Database {
    let mut options = Options::default()
        .with_durability(Durability::Sync)
        .with_memory_limit(Some(64 << 20))
        .with_paged_bytes(1)
        .with_tiering(Tiering::Paged)
        .with_reads_a_promotion(0);
    if let Some(pages) = pages {
        let file = pages.open().expect("the servers are there");
        options = match pages.copies {
            Copies::Local => options.with_lent_bytes(file.room_bytes()).with_lent_file(Some(file)),
            _ => options.with_paged_file(Some(file)),
        };
    }
    Database::open(dir.join("data"), options).expect("the options are fine")
}

fn text(id: i64) -> String {
    format!("{id} {}", "x".repeat(100))
}

fn key(id: i64) -> KeyBuf {
    KeyBuf::new().i64(id)
}

/// A table whose rows are on the servers.
fn filled(db: &Database) -> Table {
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("text", Type::Text))
        .primary_key(IndexSchema::hash("t_key", &["id"]));
    let table = db.create_table(schema).expect("the definition is fine");
    db.run(TransactionOptions::new(), async |tx| {
        for id in 0..ROWS {
            tx.insert_values(&table, &[Value::Int8(id), Value::from(&*text(id))]).await?;
        }
        Ok(())
    })
    .expect("nobody is in the way");
    let over = db.page_out("t").expect("there is a paged side");
    assert!(over.rows > ROWS as u64 * 9 / 10, "{over:?}");
    table
}

/// Reads every seventh row from one on; why some are refused.
fn refused(db: &Database, table: &Table, from: i64) -> Vec<Error> {
    let mut all = Vec::new();
    for id in (from..ROWS).step_by(7) {
        let found = db.run(TransactionOptions::new(), async |tx| {
            let row =
                tx.read(&table.primary(), &key(id), |row| table.layout().decode(row).expect("a row")).await?;
            let row = row.expect("it was never deleted");
            assert_eq!(row[1], Value::from(&*text(id)));
            Ok(())
        });
        if let Err(error) = found {
            all.push(error);
        }
    }
    all
}

#[test]
fn a_server_that_is_killed_takes_no_page_that_is_elsewhere() {
    for (copies, sockets) in [(Copies::Local, &["one"][..]), (Copies::Two, &["one", "two"])] {
        let dir = directory();
        let mut servers: Vec<_> =
            sockets.iter().map(|socket| Process::start(dir.path(), socket, "3600")).collect();
        let db = open(dir.path(), Some(&pages(dir.path(), copies, sockets)));
        let table = filled(&db);
        let all = refused(&db, &table, 0);
        assert!(all.is_empty(), "{copies}: {all:?}");
        servers.remove(0).kill();
        let all = refused(&db, &table, 1);
        assert!(all.is_empty(), "{copies}: {all:?}");
        // Pages that are changed since go to the places that are left.
        db.run(TransactionOptions::new(), async |tx| {
            for id in 0..2000 {
                tx.update(&table.primary(), &key(id), |row| Ok(row.set_value(1, &Value::from(&*text(id)))?))
                    .await?;
            }
            Ok(())
        })
        .expect("nobody is in the way");
        if copies == Copies::Local {
            db.page_out("t").expect("the file has room");
        }
        let all = refused(&db, &table, 2);
        assert!(all.is_empty(), "{copies}: {all:?}");
        db.close().expect("all of it is in images and log");
    }
}

#[test]
fn what_is_lost_with_a_server_is_refused_until_the_database_is_opened_again() {
    let dir = directory();
    // A server is given up after half of its grace.
    let server = Process::start(dir.path(), "one", "2");
    let db = open(dir.path(), Some(&pages(dir.path(), Copies::One, &["one"])));
    let table = filled(&db);
    server.kill();
    let all = refused(&db, &table, 0);
    let first = all.first().expect("pages were on the server alone");
    assert!(all.iter().all(|error| error.sqlstate() == "58030"), "{first}");
    assert!(first.to_string().contains("opening the database again has all rows"), "{first}");
    db.close().expect("all of it is in images and log");
    drop(table);
    let db = open(dir.path(), None);
    let table = db.table("t").expect("it is there");
    assert!(refused(&db, &table, 0).is_empty());
    db.close().expect("nothing is missing");
}

/// A server that hangs is asked for nothing more, and none of its pages is waited for; when it goes on, its pages are there.
#[test]
fn a_server_that_is_stopped_holds_nobody_up() {
    let dir = directory();
    let server = Process::start(dir.path(), "one", "3600");
    let db = open(dir.path(), Some(&pages(dir.path(), Copies::Local, &["one"])));
    let table = filled(&db);
    let level = || db.statistics().paged.and_then(|paged| paged.level).expect("there is one");
    assert!(refused(&db, &table, 0).is_empty());
    assert!(level().counts.hits > 0, "{:?}", level());
    server.stop();
    for from in 1..4 {
        assert!(refused(&db, &table, from).is_empty());
    }
    assert!(level().counts.late + level().counts.faults > 0, "{:?}", level());
    db.page_out("t").expect("the file has room");
    server.go_on();
    for from in 4..7 {
        assert!(refused(&db, &table, from).is_empty());
    }
    db.close().expect("all of it is in images and log");
}

#[test]
fn benchmarks_have_their_rows_on_memory_servers() {
    let few = [
        "--no-calibration",
        "--records",
        "60K",
        "--memory-limit",
        "32MiB",
        "--seconds",
        "0.5",
        "--tiering",
        "paged",
    ];
    let counts = |value: &serde_json::Value, name: &str| value[name].as_u64().unwrap_or(0);
    for (pager, medium) in [
        (&["--pager", "own"][..], "file"),
        (&["--pager", "own", "--remote", "spawn:1"], "file"),
        (&["--pager", "remote"], "file"),
        (&["--pager", "remote", "--remote-copies", "1"], "remote"),
    ] {
        let value = runs::throughput("ycsb", &[&few[..], pager].concat());
        let paged = &value["paged"];
        assert_eq!((&paged["pager"], &paged["medium"]), (&"own".into(), &medium.into()), "{paged}");
        assert!(counts(paged, "rows") > 0, "{paged}");
        assert_eq!(value["settings"]["pager"], pager[1]);
        let has_copies = pager.len() > 2 && medium == "file" || pager == ["--pager", "remote"];
        assert_eq!(paged["copies"]["medium"] == "remote", has_copies, "{paged}");
    }
}

/// Tables with `tiering = auto` have copies of their cold pages there.
#[test]
fn cold_rows_have_copies_on_memory_servers() {
    let few =
        "--no-calibration --records 60K --memory-limit 32MiB --seconds 0.5 --tiering cold --remote spawn:2";
    let value = runs::throughput("ycsb", &few.split(' ').collect::<Vec<_>>());
    let copies = &value["cold"]["copies"];
    assert_eq!(copies["medium"], "remote", "{copies}");
    assert!(copies["pages"].as_u64().is_some_and(|pages| pages > 0), "{copies}");
    assert_eq!(value["settings"]["remote"], "spawn:2");
}

#[test]
fn paging_that_cannot_be() {
    let cases: [(&[&str], &str); 6] = [
        (&["--remote-seal"], "says nothing without --remote"),
        (&["--remote", "spawn:1", "--remote-copies", "1"], "needs --pager remote"),
        (&["--pager", "swap"], "is not one of own, os, remote"),
        (&["--tiering", "lukewarm"], "tiering"),
        (&["--tiering", "paged", "--pager", "remote", "--remote-copies", "3"], "local, 1, 2"),
        (&["--tiering", "paged", "--pager", "remote", "--remote", "/nowhere/socket"], "/nowhere/socket"),
    ];
    for (arguments, said) in cases {
        let output =
            lab(&[&["bench", "ycsb", "--records", "1K", "--seconds", "0.1", "--no-calibration"], arguments]
                .concat());
        assert!(output.status.code().is_some_and(|code| code > 0), "{arguments:?}");
        assert!(errors(&output).contains(said), "{arguments:?}: no {said:?} in {}", errors(&output));
    }
}
