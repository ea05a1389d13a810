//! What becomes of a paged table when its pages are lost, damaged, late, or find no room: what is lost is named, the rest is served, and
//! opening again has all of it.

use std::io::{self, ErrorKind};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::{Arc, Mutex};

use thermocline_base::ids::RowId;
use thermocline_base::io::{
    Action, Completion, File, Io, IoError, MemoryIo, OpenMode, Operation, Result as IoResult,
};
use thermocline_base::multiplex::block_on;

use crate::freezer::Freezer;
use crate::row::Value;
use crate::tests::freeze::{check, insert, key, read, row, schema, schema_of, set};
use crate::{
    Database, Direction, Durability, Error, Isolation, KeyRange, Options, Result, Table, Tiering,
    TransactionOptions,
};

/// On more pages than a pager of 64 frames has in memory.
const ROWS: i64 = 12_000;

/// What happens to whoever asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Trouble {
    #[default]
    None,
    /// Reads fail.
    Broken,
    /// Reads give half a page.
    Short,
    /// A byte of each page is another one.
    Flipped,
    /// Reads are not answered in time.
    Silent,
    /// There is no room for more pages.
    Full,
    /// Writes fail.
    Unwritable,
}

/// A file in memory.
#[derive(Debug)]
struct Pages {
    file: Arc<dyn File>,
    trouble: Mutex<Trouble>,
}

impl Default for Pages {
    fn default() -> Self {
        let file = MemoryIo::new().open(Path::new("pages"), OpenMode::CreateNew).expect("a file in memory");
        Self { file, trouble: Mutex::default() }
    }
}

impl Pages {
    fn trouble(&self, trouble: Trouble) {
        *self.trouble.lock().expect("no test panics with it") = trouble;
    }

    fn is(&self, trouble: Trouble) -> bool {
        *self.trouble.lock().expect("no test panics with it") == trouble
    }

    fn failed(action: Action, kind: ErrorKind) -> IoError {
        IoError::new(action, Path::new("pages"), None, io::Error::new(kind, "as the test wants it"))
    }

    fn room(&self) -> IoResult<()> {
        if self.is(Trouble::Full) {
            Err(Self::failed(Action::Allocate, ErrorKind::StorageFull))
        } else {
            Ok(())
        }
    }
}

impl File for Pages {
    fn submit(&self, operation: Operation) -> Completion {
        match operation {
            Operation::Read { buffer, .. } if self.is(Trouble::Broken) => {
                Completion::ready(Err(Self::failed(Action::Read, ErrorKind::Other)), buffer)
            }
            Operation::Read { buffer, .. } if self.is(Trouble::Silent) => {
                Completion::ready(Err(Self::failed(Action::Read, ErrorKind::TimedOut)), buffer)
            }
            Operation::Write { buffer, .. } if self.is(Trouble::Unwritable) => {
                Completion::ready(Err(Self::failed(Action::Write, ErrorKind::Other)), buffer)
            }
            Operation::Read { .. } if self.is(Trouble::Short) => {
                let outcome = self.file.submit(operation).wait();
                Completion::ready(outcome.result.map(|bytes| bytes / 2), outcome.buffer)
            }
            Operation::Read { .. } if self.is(Trouble::Flipped) => {
                let outcome = self.file.submit(operation).wait();
                let mut bytes = outcome.buffer.into_aligned().expect("pages are read into aligned buffers");
                bytes.chunks_mut(4096).for_each(|page| page[100] ^= 1);
                Completion::ready(outcome.result, bytes.into())
            }
            _ => self.file.submit(operation),
        }
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn len(&self) -> IoResult<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> IoResult<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> IoResult<()> {
        self.room()?;
        self.file.allocate(len)
    }

    fn punch(&self, offset: u64, len: u64) -> IoResult<bool> {
        self.file.punch(offset, len)
    }

    fn reserve(&self, offset: u64, len: u64) -> IoResult<()> {
        self.room()?;
        self.file.reserve(offset, len)
    }
}

fn open(dir: &Path, pages: &Arc<Pages>) -> Database {
    let options = Options::default()
        .with_durability(Durability::Sync)
        .with_memory_limit(Some(64 << 20))
        .with_paged_bytes(1)
        .with_paged_file(Some(Arc::clone(pages) as Arc<dyn File>))
        .with_reads_a_promotion(0);
    Database::open(dir, options).expect("the options are fine")
}

/// A paged table.
fn filled(db: &Database) -> Table {
    let table = db.create_table(schema().tiering(Tiering::Paged)).expect("the definition is fine");
    insert(db, &table, 0..ROWS);
    table
}

fn over(db: &Database) -> u64 {
    db.page_out("t").expect("there is room").rows
}

/// Reads all rows, one by one; those that are refused.
fn refused(db: &Database, table: &Table) -> Vec<(i64, Error)> {
    let rows = (0..ROWS).map(|id| (id, try_read(db, table, id)));
    rows.filter_map(|(id, read)| read.err().map(|error| (id, error))).collect()
}

fn try_read(db: &Database, table: &Table, id: i64) -> Result<Option<Vec<Value>>> {
    db.run(TransactionOptions::new().read_only(), async |tx| {
        tx.read(&table.primary(), &key(id), |row| table.layout().decode(row).expect("a row")).await
    })
}

fn delete(db: &Database, table: &Table, id: i64) -> Result<bool> {
    db.run(TransactionOptions::new(), async |tx| tx.delete(&table.primary(), &key(id)).await)
}

#[test]
fn pages_that_are_not_what_was_written_are_named_and_never_served() {
    let dir = tempfile::tempdir().unwrap();
    let pages = Arc::new(Pages::default());
    let db = open(dir.path(), &pages);
    let table = filled(&db);
    assert!(over(&db) > 11_000);
    set(&db, &table, 7, 7);
    for trouble in [Trouble::Broken, Trouble::Short, Trouble::Flipped] {
        pages.trouble(trouble);
        let refused = refused(&db, &table);
        assert!(refused.len() > 1000, "{trouble:?}: {} rows", refused.len());
        for (id, error) in refused {
            assert_ne!(id, 7, "it is in memory");
            assert!(matches!(&error, Error::Paged { table: Some(table), .. } if table == "t"), "{error}");
            assert_eq!(error.sqlstate(), "58030", "{error}");
        }
        assert_eq!(read(&db, &table, 7), Some(row(7, 7).to_vec()));
        insert(&db, &table, ROWS + trouble as i64 * 10..ROWS + trouble as i64 * 10 + 10);
        pages.trouble(Trouble::None);
        assert_eq!(refused_ids(&db, &table), Vec::<i64>::new(), "{trouble:?} is over");
    }
    db.close().unwrap();
}

fn refused_ids(db: &Database, table: &Table) -> Vec<i64> {
    refused(db, table).into_iter().map(|(id, _)| id).collect()
}

#[test]
fn opening_again_has_what_was_lost() {
    let dir = tempfile::tempdir().unwrap();
    let pages = Arc::new(Pages::default());
    let db = open(dir.path(), &pages);
    let table = filled(&db);
    db.checkpoint().expect("an image of all rows");
    assert!(over(&db) > 11_000);
    set(&db, &table, 3, 33);
    assert!(delete(&db, &table, 2500).expect("its page is there"));
    pages.trouble(Trouble::Broken);
    // A change needs the row.
    let error = delete(&db, &table, 9000).expect_err("its page is lost");
    assert_eq!(error.sqlstate(), "58030", "{error}");
    insert(&db, &table, ROWS..ROWS + 5);
    // Rows that cannot be read cannot be imaged; nothing of what there is may go for that.
    let error = db.checkpoint().expect_err("pages are lost");
    assert_eq!(error.sqlstate(), "58030", "{error}");
    // Closing says that, too.
    let _ = db.close();
    let pages = Arc::new(Pages::default());
    let db = open(dir.path(), &pages);
    let table = db.table("t").expect("it is there");
    check(&db, &table, ROWS + 5, &[(3, Some(33)), (2500, None)]);
    assert!(over(&db) > 11_000);
    check(&db, &table, ROWS + 5, &[(3, Some(33)), (2500, None)]);
    db.close().unwrap();
}

/// All of the table is on the paged side, no page of it is in memory, and none can be read.
fn lost(db: &Database, pages: &Pages) {
    assert!(over(db) > 11_000);
    db.inner().paged.get().expect("rows have gone over").let_pages_go();
    pages.trouble(Trouble::Broken);
}

fn past_reads(db: &Database) -> u64 {
    db.inner().paged.get().expect("rows have gone over").usage().past_reads
}

/// Reads are validated by when rows begin: no page is read between *preparing* and the decision.
#[test]
fn validation_reads_no_page() {
    let dir = tempfile::tempdir().unwrap();
    let pages = Arc::new(Pages::default());
    let db = open(dir.path(), &pages);
    let table = filled(&db);
    let options = || TransactionOptions::new().isolation(Isolation::Serializable);
    let decode = |row: &[u8]| table.layout().decode(row).expect("a row");
    // Read by key and by a scan of a range, then the pages go, and the transaction commits.
    block_on(async {
        let mut tx = db.begin(options()).unwrap();
        assert_eq!(tx.read(&table.primary(), &key(70), decode).await.unwrap(), Some(row(70, 700).to_vec()));
        let (from, to) = (key(100), key(110));
        let range = KeyRange::between(Bound::Included(&from), Bound::Excluded(&to));
        let mut seen = 0;
        tx.scan(&table.primary(), range, Direction::Forward, |_| {
            seen += 1;
            ControlFlow::Continue(())
        })
        .await
        .unwrap();
        assert_eq!(seen, 10);
        tx.insert_values(&table, &row(ROWS + 1, 0)).await.unwrap();
        lost(&db, &pages);
        let before = past_reads(&db);
        tx.commit().await.expect("nothing has changed");
        assert_eq!(past_reads(&db), before);
        pages.trouble(Trouble::None);

        // A row that came into the range since, and has gone over by now, is a phantom; its page is not asked.
        let mut tx = db.begin(options()).unwrap();
        let from = key(ROWS);
        let range = KeyRange::between(Bound::Included(&from), Bound::Unbounded);
        tx.scan(&table.primary(), range, Direction::Forward, |_| ControlFlow::Continue(())).await.unwrap();
        tx.read(&table.primary(), &key(71), decode).await.unwrap();
        tx.insert_values(&table, &row(-1, 0)).await.unwrap();
        insert(&db, &table, ROWS + 2..ROWS + 600);
        // A row that was read has changed, too, and is over.
        set(&db, &table, 71, 1);
        db.page_out("t").expect("there is room");
        db.inner().paged.get().unwrap().let_pages_go();
        pages.trouble(Trouble::Broken);
        let before = past_reads(&db);
        let error = tx.commit().await.expect_err("rows have come");
        assert_eq!((error.sqlstate(), past_reads(&db)), ("40001", before), "{error}");
    });
    pages.trouble(Trouble::None);
    assert_eq!(read(&db, &table, 71), Some(row(71, 1).to_vec()));
    assert_eq!(read(&db, &table, -1), None);
    db.close().unwrap();
}

/// A table that was paged, whose rows cannot be read: whoever would move or freeze them leaves them where they are.
#[test]
fn rows_that_are_lost_end_no_thread_of_maintenance() {
    for tiering in [Tiering::Auto, Tiering::Cold, Tiering::Frozen, Tiering::Hot] {
        let dir = tempfile::tempdir().unwrap();
        let pages = Arc::new(Pages::default());
        let db = open(dir.path(), &pages);
        let table = filled(&db);
        lost(&db, &pages);
        db.alter_tiering("t", tiering).unwrap();
        let rows: Vec<RowId> = (0..512).map(|slot| RowId::new(0, slot)).collect();
        let mut steps = db.maintenance_steps();
        let _ = block_on(crate::ops::migrate::migrate(db.inner(), &table.entry, &rows));
        let _ = db.freeze("t");
        let _ = db.thaw("t");
        (0..4).for_each(|_| _ = Freezer::new(db.inner(), 0, 1).round(false));
        for _ in 0..3 {
            steps.step();
        }
        let refused = refused(&db, &table);
        assert!(refused.len() > 1000, "{tiering:?}: {} rows", refused.len());
        assert!(refused.iter().all(|(_, error)| error.sqlstate() == "58030"), "{tiering:?}");
        // The medium is back, and nothing was lost.
        pages.trouble(Trouble::None);
        let _ = block_on(crate::ops::migrate::migrate(db.inner(), &table.entry, &rows));
        let _ = db.freeze("t");
        check(&db, &table, ROWS, &[]);
        db.close().unwrap();
    }
}

/// Chunks whose rows can be read get images; the others keep theirs, and the log behind them.
#[test]
fn a_lost_page_keeps_no_other_chunk_from_its_image() {
    let dir = tempfile::tempdir().unwrap();
    let pages = Arc::new(Pages::default());
    let db = open(dir.path(), &pages);
    let table = filled(&db);
    let other = db.create_table(schema_of("other")).unwrap();
    db.checkpoint().expect("an image of all rows");
    lost(&db, &pages);
    // Its chunk has changed, and has rows that are lost.
    insert(&db, &table, ROWS..ROWS + 5);
    set(&db, &table, ROWS, 1);
    insert(&db, &other, 0..500);
    let completed = db.checkpoints().completed;
    let error = db.checkpoint().expect_err("a chunk is left out");
    assert_eq!((error.sqlstate(), db.checkpoints().completed), ("58030", completed + 1), "{error}");
    let images = |db: &Database, name: &str| {
        let storage = db.table(name).unwrap().with_form(|form| form.storage);
        let durable = db.inner().checkpoints.durable().unwrap().lock();
        durable.manifest.chunks.keys().filter(|(of, _)| *of == storage).count()
    };
    assert!(images(&db, "other") > 0, "what can be imaged is");
    let _ = db.close();
    let db = open(dir.path(), &Arc::new(Pages::default()));
    check(&db, &db.table("t").unwrap(), ROWS + 5, &[(ROWS, Some(1))]);
    check(&db, &db.table("other").unwrap(), 500, &[]);
    db.checkpoint().expect("all rows are there");
    db.close().unwrap();
}

/// Replay overwrites and deletes rows that went over while images were loaded; it looks at none of them.
#[test]
fn replay_reads_no_row_that_it_overwrites() {
    let dir = tempfile::tempdir().unwrap();
    let changed: Vec<(i64, Option<i64>)> =
        (0..ROWS).step_by(7).map(|id| (id, if id % 2 == 0 { None } else { Some(-id) })).collect();
    {
        let db = open(dir.path(), &Arc::new(Pages::default()));
        let table = filled(&db);
        db.checkpoint().expect("an image of all rows");
        for (id, value) in &changed {
            match value {
                Some(value) => set(&db, &table, *id, *value),
                None => assert!(delete(&db, &table, *id).unwrap()),
            }
        }
        // Without a checkpoint: the log has the changes.
        db.close().unwrap();
    }
    let small = Options::default()
        .with_durability(Durability::Sync)
        .with_memory_limit(Some(28 << 20))
        .with_paged_bytes(1)
        .with_paged_file(Some(Arc::new(Pages::default()) as Arc<dyn File>));
    let db = Database::open(dir.path(), small).unwrap();
    check(&db, &db.table("t").unwrap(), ROWS, &changed);
    db.close().unwrap();
}

/// Rows of a table that became `hot` come back by themselves.
#[test]
fn rows_of_a_table_that_has_become_hot_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let pages = Arc::new(Pages::default());
    let db = open(dir.path(), &pages);
    let table = filled(&db);
    lost(&db, &pages);
    pages.trouble(Trouble::None);
    db.alter_tiering("t", Tiering::Hot).unwrap();
    let mut freezer = Freezer::new(db.inner(), 0, 1);
    for _ in 0..1000 {
        freezer.round(false);
        db.maintenance_steps().step();
        if db.statistics().paged.is_some_and(|paged| paged.rows == 0) {
            break;
        }
    }
    assert_eq!(db.statistics().paged.expect("rows have gone over").rows, 0);
    pages.trouble(Trouble::Broken);
    check(&db, &table, ROWS, &[]);
    db.close().unwrap();
}

#[test]
fn where_pages_find_no_room_rows_stay() {
    let dir = tempfile::tempdir().unwrap();
    let pages = Arc::new(Pages::default());
    let db = open(dir.path(), &pages);
    let table = filled(&db);
    for (trouble, sqlstate) in [(Trouble::Full, "53100"), (Trouble::Unwritable, "58030")] {
        pages.trouble(trouble);
        let error = db.page_out("t").expect_err("it cannot be written");
        assert_eq!(error.sqlstate(), sqlstate, "{error}");
        check(&db, &table, ROWS, &[]);
    }
    pages.trouble(Trouble::None);
    assert!(over(&db) > 11_000);
    check(&db, &table, ROWS, &[]);
    db.close().unwrap();
}

/// Copies of pages on memory that is lent serve paged rows and cold ones; whatever becomes of them, no reader hears of it.
#[test]
fn memory_that_is_lent_may_go_at_any_time() {
    for tiering in [Tiering::Paged, Tiering::Cold] {
        let dir = tempfile::tempdir().unwrap();
        let lent = Arc::new(Pages::default());
        let mut options = Options::default()
            .with_durability(Durability::Sync)
            .with_memory_limit(Some(64 << 20))
            .with_paged_bytes(1)
            .with_tiering(tiering)
            .with_lent_file(Some(Arc::clone(&lent) as Arc<dyn File>))
            .with_lent_bytes(64 << 20)
            .with_reads_a_promotion(0);
        options.cold_block_bytes = 128 << 10;
        let db = Database::open(dir.path(), options).expect("the options are fine");
        let table = db.create_table(schema().tiering(tiering)).expect("the definition is fine");
        insert(&db, &table, 0..ROWS);
        let level = || match tiering {
            Tiering::Paged => db.statistics().paged.and_then(|paged| paged.level),
            _ => db.statistics().cold.ssd,
        };
        let leave = || {
            if tiering == Tiering::Paged {
                assert!(over(&db) > 11_000);
                db.inner().paged.get().expect("rows have gone over").let_pages_go();
            } else {
                assert!(db.cold_steps().migrate(&table, |_| true, 1000).expect("there is room") > 11_000);
                // Blocks that are full become pages, sooner or later.
                while level().is_none_or(|level| level.counts.bytes_written == 0) {
                    std::thread::yield_now();
                }
            }
        };
        leave();
        for trouble in
            [Trouble::None, Trouble::Silent, Trouble::Broken, Trouble::Short, Trouble::Flipped, Trouble::None]
        {
            lent.trouble(trouble);
            // Twice: what is not there is admitted when it is asked for.
            for _ in 0..2 {
                assert_eq!(refused_ids(&db, &table), Vec::<i64>::new(), "{tiering}, {trouble:?}");
            }
        }
        lent.trouble(Trouble::Unwritable);
        set(&db, &table, 7, 70);
        check(&db, &table, ROWS, &[(7, Some(70))]);
        let found = level().expect("there is a level");
        assert!(found.counts.hits > 0 && found.counts.bytes_written > 0, "{tiering}: {found:?}");
        db.close().unwrap();
    }
}

#[test]
fn lent_memory_that_does_not_fit() {
    let lent = || Some(Arc::new(Pages::default()) as Arc<dyn File>);
    let cases = [
        (Options::default().with_lent_file(lent()), "lent_bytes"),
        (
            Options::default()
                .with_lent_file(lent())
                .with_lent_bytes(64 << 20)
                .with_ssd_cache(Some("ssd".into()))
                .with_ssd_cache_bytes(64 << 20),
            "ssd_cache",
        ),
    ];
    for (options, option) in cases {
        let dir = tempfile::tempdir().unwrap();
        let error = Database::open(dir.path(), options).map(drop).expect_err("it does not fit");
        assert!(error.to_string().contains(option), "{error}");
    }
}

/// Rows that were read ahead are in the transaction's hand: they are read and changed though no page can be had any more.
#[test]
fn what_was_read_ahead_asks_no_page_again() {
    let dir = tempfile::tempdir().unwrap();
    let pages = Arc::new(Pages::default());
    let db = open(dir.path(), &pages);
    let table = filled(&db);
    assert!(over(&db) > 11_000);
    let paged = Arc::clone(db.inner().paged.get().expect("rows have gone over"));
    let decode = |row: &[u8]| table.layout().decode(row).expect("a row");
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let ids = (0..30).map(|at| 11 + 390 * at + isolation as i64);
        let keys: Vec<_> = ids.clone().map(key).collect();
        block_on(async {
            let mut tx = db.begin(TransactionOptions::new().isolation(isolation)).unwrap();
            paged.let_pages_go();
            tx.prefetch_cold(&table.primary(), keys.iter().map(|key| &**key)).await.unwrap();
            paged.let_pages_go();
            pages.trouble(Trouble::Broken);
            for id in ids.clone() {
                let found = tx.read(&table.primary(), &key(id), decode).await.unwrap();
                assert_eq!(found, Some(row(id, 10 * id).to_vec()), "{isolation:?}");
            }
            for id in ids.clone().take(3) {
                let edit =
                    |editor: &mut crate::row::RowEditor<'_>| Ok(editor.set_value(2, &Value::Int8(10 * id))?);
                assert!(tx.update(&table.primary(), &key(id), edit).await.unwrap().is_some());
            }
            let other = tx.read(&table.primary(), &key(7), decode).await;
            assert_eq!(other.expect_err("it was not read ahead").sqlstate(), "58030");
            pages.trouble(Trouble::None);
            tx.commit().await.unwrap();
        });
        // Those by a prefix, too, of an ordered index.
        block_on(async {
            let mut tx = db.begin(TransactionOptions::new().isolation(isolation)).unwrap();
            paged.let_pages_go();
            let prefix = key(256 * (3 + isolation as i64));
            tx.prefetch_cold_prefix(&table.primary(), &prefix[..prefix.len() - 1]).await.unwrap();
            pages.trouble(Trouble::Broken);
            paged.let_pages_go();
            for id in (256 * (3 + isolation as i64)..).take(32) {
                let found = tx.read(&table.primary(), &key(id), decode).await.unwrap();
                assert_eq!(found, Some(row(id, 10 * id).to_vec()));
            }
            pages.trouble(Trouble::None);
            tx.rollback();
        });
        over(&db);
    }
    db.close().unwrap();
}

/// The hand says nothing about a row that has changed since, wherever the change is by now.
#[test]
fn what_was_read_ahead_is_not_read_once_it_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let pages = Arc::new(Pages::default());
    let db = open(dir.path(), &pages);
    let table = filled(&db);
    assert!(over(&db) > 11_000);
    let paged = Arc::clone(db.inner().paged.get().expect("rows have gone over"));
    let decode = |row: &[u8]| table.layout().decode(row).expect("a row");
    // It has no snapshot before its first read.
    db.run(TransactionOptions::new(), async |tx| {
        paged.let_pages_go();
        let keys = [key(70), key(71), key(72)];
        tx.prefetch_cold(&table.primary(), keys.iter().map(|key| &**key)).await?;
        set(&db, &table, 70, 1);
        set(&db, &table, 71, 2);
        assert!(delete(&db, &table, 72).unwrap());
        // The change of one row is in memory; that of the other one has gone over, to another run.
        let mut steps = db.maintenance_steps();
        let mut gone = 0;
        while gone < 2 {
            // Once what they were before is gone.
            steps.step();
            gone += over(&db);
        }
        set(&db, &table, 70, 3);
        for (id, value) in [(70, Some(3)), (71, Some(2)), (72, None)] {
            let found = tx.read(&table.primary(), &key(id), decode).await?;
            assert_eq!(found, value.map(|value| row(id, value).to_vec()));
        }
        Ok(())
    })
    .unwrap();
    db.close().unwrap();
}
