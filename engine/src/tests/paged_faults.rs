//! What becomes of a paged table when its pages are lost, damaged, late, or find no room: what is lost is named, the rest is served, and
//! opening again has all of it.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex};

use thermocline_base::backing::{Backing, PAGE_BYTES, PageName};
use thermocline_base::io::{Action, AlignedBytes, Completion, IoError, Result as IoResult};

use crate::row::Value;
use crate::tests::freeze::{check, insert, key, read, row, schema, set};
use crate::{Database, Durability, Error, Options, Result, Table, Tiering, TransactionOptions};

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
    /// There is no room for parts.
    Full,
    /// Writes fail.
    Unwritable,
}

/// Pages in a map.
#[derive(Debug, Default)]
struct Pages {
    pages: Mutex<HashMap<PageName, Vec<u8>>>,
    trouble: Mutex<Trouble>,
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
}

impl Backing for Pages {
    fn name(&self) -> &'static str {
        "map"
    }

    fn prepare(&self, _part: u32) -> IoResult<()> {
        if self.is(Trouble::Full) {
            Err(Self::failed(Action::Allocate, ErrorKind::StorageFull))
        } else {
            Ok(())
        }
    }

    fn read(&self, page: PageName, mut buffer: AlignedBytes) -> Completion {
        if self.is(Trouble::Broken) {
            return Completion::ready(Err(Self::failed(Action::Read, ErrorKind::Other)), buffer.into());
        }
        let pages = self.pages.lock().expect("no test panics with it");
        buffer.copy_from_slice(&pages[&page]);
        buffer[100] ^= u8::from(self.is(Trouble::Flipped));
        let bytes = if self.is(Trouble::Short) { PAGE_BYTES / 2 } else { PAGE_BYTES };
        Completion::ready(Ok(bytes), buffer.into())
    }

    fn write_run(&self, first: PageName, run: AlignedBytes) -> Completion {
        if self.is(Trouble::Unwritable) {
            return Completion::ready(Err(Self::failed(Action::Write, ErrorKind::Other)), run.into());
        }
        let mut pages = self.pages.lock().expect("no test panics with it");
        for (at, page) in run.chunks(PAGE_BYTES).enumerate() {
            pages.insert(PageName { page: first.page + at as u32, ..first }, page.to_vec());
        }
        Completion::ready(Ok(run.len()), run.into())
    }

    fn discard(&self, part: u32, generation: u32) {
        let mut pages = self.pages.lock().expect("no test panics with it");
        pages.retain(|page, _| (page.part, page.generation) != (part, generation));
    }
}

fn open(dir: &Path, pages: &Arc<Pages>) -> Database {
    let options = Options::default()
        .with_durability(Durability::Sync)
        .with_memory_limit(Some(64 << 20))
        .with_paged_bytes(1)
        .with_paged_backing(Some(Arc::clone(pages) as Arc<dyn Backing>))
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
