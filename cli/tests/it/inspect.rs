//! `thermocline inspect`, and what it says of databases that cannot be opened as they are.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use thermocline_engine::row::{Column, Type, Value};
use thermocline_engine::{ColdStoreKind, Database, Durability, IndexSchema, Options, TableSchema};

use thermocline_bench::settings::Benchmark;

use crate::{directory, errors, leave, results, thermocline};

/// Leaves a database in `dir`, of whose 20,000 rows 14,000 are cold.
fn leave_cold_rows(dir: &Path, store: &str) -> PathBuf {
    const ROWS: i64 = 20_000;
    const COLD: i64 = 14_000;
    let data = dir.join(store);
    let mut options = Options::default().with_durability(Durability::Async);
    options.cold_store = store.parse::<ColdStoreKind>().expect("the name of a store");
    let database = Database::open(&data, options).expect("it opens");
    let mut schema = TableSchema::new("t");
    for name in ["id", "a", "b", "c"] {
        schema = schema.column(Column::new(name, Type::Int8));
    }
    let schema = schema.primary_key(IndexSchema::hash("t_key", &["id"]));
    let table = database.create_table(schema).expect("a table");
    database.bulk_load(&table, (0..ROWS).map(|id| vec![Value::Int8(id); 4])).expect("it is loaded");
    let layout = table.layout();
    let goes = |row: &[u8]| layout.i64(row, 0).is_some_and(|id| id < COLD);
    let moved = database.cold_steps().migrate(&table, goes, 1_000).expect("they move");
    assert_eq!(moved as i64, COLD);
    database.close().expect("it closes");
    data
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("writable");
    for entry in std::fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("known").is_dir() {
            true => copy(&entry.path(), &to),
            false => std::fs::copy(entry.path(), to).map(drop).expect("writable"),
        }
    }
}

/// The exit code and what was said, with `arguments` behind the directory.
fn inspect(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut all = vec!["inspect", text(dir), "--quiet"];
    all.extend(arguments);
    let output = thermocline(&all);
    let said = if output.status.success() { results(&output) } else { errors(&output) };
    (output.status.code(), said)
}

#[test]
fn rows_are_found_in_memory_and_in_both_stores() {
    let outer = directory();
    for store in ["pages", "direct"] {
        let dir = leave_cold_rows(outer.path(), store);
        let (code, said) = inspect(&dir, &["--json"]);
        assert_eq!(code, Some(0), "{said}");
        let value: Json = serde_json::from_str(&said).expect("one JSON object");
        assert_eq!(value["cold_store"], store);
        let table = &value["tables"][0];
        assert_eq!((&table["name"], &table["tiering"]), (&"t".into(), &"auto".into()));
        assert_eq!(
            (&table["rows_hot"], &table["rows_cold"]),
            (&6_000.into(), &14_000.into()),
            "{store}: {said}"
        );
        // Filters of `pages` come when what is written has filled a block.
        let filters = if store == "direct" { "filter_bytes" } else { "bytes_cold" };
        for name in ["bytes_hot", "bytes_cold", filters] {
            assert!(table[name].as_u64().is_some_and(|bytes| bytes > 0), "{store}: {name}: {said}");
        }
        assert!(table["temperatures"].is_null(), "nothing was measured: {said}");
        let (code, said) = inspect(&dir, &[]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("14,000") && said.contains("temperatures are unknown"), "{said}");
        // A check opens such a database, too.
        let output = thermocline(&["check", text(&dir), "--quiet"]);
        assert_eq!(output.status.code(), Some(0), "{}{}", results(&output), errors(&output));
    }
}

#[test]
fn an_ssd_that_is_not_there_is_refused() {
    let outer = directory();
    let data = leave_cold_rows(outer.path(), "pages");
    let (code, said) = inspect(&data, &["--ssd", "nowhere"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("nowhere is no file"), "{said}");
}

#[test]
fn temperatures_survive_the_end_of_a_session() {
    let outer = directory();
    let data = outer.path().join("ycsb");
    let ycsb = Benchmark::Ycsb {
        workload: "b".to_owned(),
        read_percent: None,
        records: 60_000,
        fields: 10,
        field_bytes: 100,
        theta: 0.99,
        shift_seconds: None,
        shift_every_seconds: None,
        restart: false,
    };
    leave(ycsb, &data, 4.0, Some(64 << 20));
    let (code, said) = inspect(&data, &["--json", "--memory-limit", "512MiB"]);
    assert_eq!(code, Some(0), "{said}");
    let value: Json = serde_json::from_str(&said).expect("one JSON object");
    let table = &value["tables"][0];
    let rows = table["rows_hot"].as_u64().expect("a number") + table["rows_cold"].as_u64().expect("a number");
    // What the store has is estimated where a piece lies over several leaves, some of which were merged.
    assert!((57_000..70_000).contains(&rows), "{said}");
    let temperatures = &table["temperatures"];
    let steps = temperatures["steps"].as_array().unwrap_or_else(|| panic!("they are unknown: {said}"));
    let known: u64 = steps.iter().map(|step| step["rows"].as_u64().expect("a number")).sum();
    assert!(known > 1_000, "{known} rows are known: {said}");
    // The hottest row of Zipf's has many times the accesses of most.
    let used = steps.iter().filter(|step| step["rows"].as_u64() > Some(0)).count();
    assert!(used >= 3, "{said}");
    let (_, said) = inspect(&data, &["--memory-limit", "512MiB"]);
    assert!(said.contains("rows by accesses a second") && said.contains("usertable"), "{said}");

    // A damaged file means unknown temperatures, and nothing else.
    let file = data.join("temperatures");
    let mut bytes = std::fs::read(&file).expect("it was written at the end");
    bytes[100] ^= 1;
    std::fs::write(&file, &bytes).expect("writable");
    let (code, said) = inspect(&data, &["--memory-limit", "512MiB"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("temperatures are unknown"), "{said}");
}

#[test]
fn a_cold_store_that_does_not_fit_is_refused() {
    let outer = directory();
    let pages = leave_cold_rows(outer.path(), "pages");
    let direct = leave_cold_rows(outer.path(), "direct");
    let other = outer.path().join("second");
    std::fs::create_dir(&other).expect("writable");
    let other = leave_cold_rows(&other, "pages");
    let spoilt = outer.path().join("spoilt");
    let refused = |of: &Path, spoil: &dyn Fn(&Path), arguments: &[&str], code: i32, says: &str| {
        copy(of, &spoilt);
        spoil(&spoilt.join("cold"));
        let (found, said) = inspect(&spoilt, arguments);
        assert_eq!(found, Some(code), "{said}");
        assert!(said.contains(says), "not {says:?}: {said}");
        std::fs::remove_dir_all(&spoilt).expect("it is there");
    };
    let nothing = |_: &Path| ();
    let gone =
        |name: &'static str| move |cold: &Path| std::fs::remove_file(cold.join(name)).expect("it is there");

    refused(&pages, &nothing, &["--cold-store", "tape"], 2, "is not one of pages, direct");
    refused(&pages, &nothing, &["--cold-store", "direct"], 2, "open it with cold_store = pages");
    refused(&direct, &nothing, &["--cold-store", "pages"], 2, "open it with cold_store = direct");

    let exchange = |cold: &Path| {
        std::fs::remove_dir_all(cold).expect("it is there");
        copy(&other.join("cold"), cold);
    };
    refused(&pages, &exchange, &[], 1, "belongs to database");

    let all = |cold: &Path| std::fs::remove_dir_all(cold).expect("it is there");
    refused(&pages, &all, &[], 1, "the cold store is missing, though rows are in it");
    refused(&direct, &all, &[], 1, "the cold store is missing, though rows are in it");
    refused(&pages, &gone("store.manifest"), &[], 1, "the cold store is missing");
    refused(&pages, &gone("store.pages"), &[], 1, "store.pages");
    refused(&pages, &gone("journal-00000001"), &[], 1, "the journal is missing");
    refused(&direct, &gone("direct"), &[], 1, "the cold store is missing");
    let slots = |cold: &Path| {
        let names = std::fs::read_dir(cold).expect("readable").map(|entry| entry.expect("readable").path());
        names
            .filter(|path| text(path).contains("slots-"))
            .for_each(|path| std::fs::remove_file(path).expect("there"));
    };
    refused(&direct, &slots, &[], 1, "slots-00000001");
}

#[test]
fn a_limit_that_is_too_small_is_refused_at_once() {
    let outer = directory();
    let dir = leave_cold_rows(outer.path(), "pages");
    let (code, said) = inspect(&dir, &["--memory-limit", "1MiB"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("memory_limit") && said.contains("16 MiB"), "{said}");
    let (code, said) = inspect(&outer.path().join("nowhere"), &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is no directory"), "{said}");
}
