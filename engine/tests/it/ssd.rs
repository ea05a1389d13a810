//! A cold store on another device, below an SSD that keeps copies of its pages: what is remembered, told, refused and survived.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::io::{Action, Fault, FaultKind, Io, MemoryIo, RecordingIo};
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    ColdStoreKind, Database, IndexSchema, Options, SsdState, SsdStats, TableSchema, TransactionOptions,
};

const ROWS: i64 = 4_000;

fn options() -> Options {
    Options::default()
        .with_memory_limit(Some(256 << 20))
        .with_cold_block_bytes(64 << 10)
        .with_reads_a_promotion(0)
}

fn with_ssd(ssd: &RecordingIo) -> Options {
    options()
        .with_cold_dir(Some(PathBuf::from("/volume/cold")))
        .with_ssd_cache(Some(PathBuf::from("/ssd/cache")))
        .with_ssd_cache_bytes(4 << 20)
        .with_ssd_io(Some(Arc::new(ssd.clone())))
}

fn open(io: &MemoryIo, options: Options) -> Database {
    Database::open_with(Path::new("/db"), options, Arc::new(io.clone()), true).expect("it opens")
}

fn ssd() -> RecordingIo {
    let io = MemoryIo::new();
    io.create_dir_all(Path::new("/ssd")).expect("memory");
    RecordingIo::new(&io)
}

/// A database of cold rows.
fn fill(db: &Database) {
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("text", Type::Text))
        .primary_key(IndexSchema::ordered("key", &["id"]));
    let table = db.create_table(schema).expect("a table");
    let text = "x".repeat(500);
    let rows = (0..ROWS).map(|id| [Value::Int8(id), Value::from(text.as_str())]);
    db.bulk_load(&table, rows).expect("the rows are new");
    assert!(db.cold_steps().migrate(&table, |_| true, 100).expect("they move") > 3_900);
}

/// Reads all rows, one by one.
fn read_all(db: &Database) {
    let table = db.table("t").expect("a table");
    let found = db.run(TransactionOptions::new().read_only(), async |tx| {
        let mut found = 0;
        for id in 0..ROWS {
            found += i64::from(tx.read(&table.primary(), &KeyBuf::new().i64(id), |_| ()).await?.is_some());
        }
        Ok(found)
    });
    assert_eq!(found.expect("reads go on"), ROWS);
}

fn stats(db: &Database) -> SsdStats {
    db.statistics().cold.ssd.expect("there is one")
}

/// Reads until a good part comes from the SSD; its own thread writes what is admitted.
fn warm(db: &Database) {
    for _ in 0..1000 {
        // The governor gives frames back to the store when memory is there.
        db.cold_steps().set_frame_bytes(0).expect("it is open");
        read_all(db);
        if stats(db).counts.hits > 500 || stats(db).state != SsdState::On {
            return;
        }
    }
    panic!("nothing comes from the SSD: {:?}", stats(db));
}

#[test]
fn rows_on_a_slow_volume_come_from_the_ssd() {
    let (io, ssd) = (MemoryIo::new(), ssd());
    let db = open(&io, with_ssd(&ssd));
    fill(&db);
    db.close().expect("it closes");
    assert!(io.exists(Path::new("/volume/cold/store.pages")).expect("memory"));
    assert!(!io.exists(Path::new("/db/cold/store.pages")).expect("memory"));
    let db = open(&io, with_ssd(&ssd));
    warm(&db);
    let found = stats(&db);
    // Both devices are memory here, and memory is no faster than memory: the level may have said so and gone off.
    assert!(found.counts.hits > 0 && found.counts.faults == 0, "{found:?}");
    assert!(found.state != SsdState::Failing, "{}", found.state);
    db.close().expect("it closes");
    // Without the SSD, and without naming the place.
    let db = open(&io, options());
    read_all(&db);
    assert_eq!(db.statistics().cold.ssd, None);
    db.close().expect("it closes");
    // A wiped SSD is no error, nor is another policy.
    let other = with_ssd(&self::ssd()).with_ssd_policy("lru".parse().expect("a policy"));
    let db = open(&io, other);
    read_all(&db);
    assert_eq!(stats(&db).policy.name(), "lru");
}

#[test]
fn an_ssd_that_fails_fails_no_transaction() {
    let (io, ssd) = (MemoryIo::new(), ssd());
    let db = open(&io, with_ssd(&ssd));
    fill(&db);
    db.close().expect("it closes");
    let db = open(&io, with_ssd(&ssd));
    db.cold_steps().set_frame_bytes(0).expect("it is open");
    read_all(&db);
    for on in [Action::Read, Action::Write] {
        ssd.inject(Fault { on, skip: 0, times: u64::MAX, kind: FaultKind::Broken });
    }
    (0..4).for_each(|_| read_all(&db));
    ssd.stop();
    (0..2).for_each(|_| read_all(&db));
    db.close().expect("it closes");
}

#[test]
fn what_makes_no_sense_is_named() {
    let refused = |io: &MemoryIo, options: Options| {
        let opened = Database::open_with(Path::new("/db"), options, Arc::new(io.clone()), true);
        opened.map(|db| fill(&db)).expect_err("it makes no sense").to_string()
    };
    let (io, ssd) = (MemoryIo::new(), ssd());
    for kind in [ColdStoreKind::Direct, ColdStoreKind::Memory] {
        let error = refused(&io, with_ssd(&ssd).with_cold_store(kind));
        assert!(error.contains("cold_store = pages"), "{error}");
    }
    let error = refused(&io, with_ssd(&ssd).with_ssd_cache_bytes(0));
    assert!(error.contains("how long"), "{error}");
    let error = refused(&io, with_ssd(&ssd).with_ssd_policy("opt".parse().expect("a policy")));
    assert!(error.contains("future"), "{error}");
    let db = open(&io, with_ssd(&ssd));
    fill(&db);
    db.close().expect("it closes");
    let error = refused(&io, options().with_cold_dir(Some(PathBuf::from("/elsewhere"))));
    assert!(error.contains("/volume/cold"), "{error}");
    let error = refused(&io, with_ssd(&ssd).with_ssd_cache_bytes(10_000));
    assert!(error.contains("no room for an extent"), "{error}");
    // Another database's.
    let other = MemoryIo::new();
    let db = open(&other, with_ssd(&self::ssd()));
    fill(&db);
    db.close().expect("it closes");
    let error = refused(&other, with_ssd(&ssd));
    assert!(error.contains("belongs to database"), "{error}");
}

/// What is said of the SSD: by a database at work, and by one that is opened to look.
#[test]
fn the_share_of_each_index_is_told() {
    let (io, ssd) = (MemoryIo::new(), ssd());
    let db = open(&io, with_ssd(&ssd));
    fill(&db);
    db.close().expect("it closes");
    let db = open(&io, with_ssd(&ssd));
    let fresh = db.ssd_shares().expect("memory").expect("there is one");
    assert_eq!(fresh.saved, None);
    warm(&db);
    let now = db.ssd_shares().expect("memory");
    let is_on = stats(&db).state == SsdState::On;
    assert_eq!(now.is_some(), is_on, "a level that is off has nothing");
    if let Some(now) = now {
        let of = &now.indexes[0];
        assert_eq!((now.indexes.len(), of.table.as_str(), of.index.as_str()), (1, "t", "key"));
        assert!(of.share.bytes > 500 * 3_900 && now.rest.bytes > 0, "{now:?}");
        assert!(of.share.ssd_bytes > 0 && of.share.ssd_bytes <= of.share.bytes, "{now:?}");
        let all = of.share.ssd_bytes + now.rest.ssd_bytes;
        assert_eq!(all, stats(&db).cached * 4096, "each cached page is somebody's");
    }
    db.close().expect("it closes");
    // Whoever looks has no SSD, and is told what was saved for the next opening.
    let look = |options: Options| open(&io, options.with_read_only(true));
    let db = look(with_ssd(&ssd));
    assert_eq!(db.statistics().cold.ssd, None);
    let saved = db.ssd_shares().expect("memory").expect("it was saved");
    let counts = saved.saved.expect("of the opening before");
    assert_eq!(counts.state == SsdState::On, is_on);
    assert!(counts.reads >= counts.hits && counts.hits > 0 && counts.bytes_written > 0, "{counts:?}");
    if is_on {
        assert!(saved.indexes[0].share.ssd_bytes > 0, "{saved:?}");
    }
    db.close().expect("it closes");
    let db = look(with_ssd(&self::ssd()));
    assert_eq!(db.ssd_shares().expect("memory"), None, "nothing was saved there");
    db.close().expect("it closes");
    let db = look(options());
    assert_eq!(db.ssd_shares().expect("memory"), None, "no SSD is named");
}
