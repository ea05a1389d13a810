//! The access log of an open database: which rows are accessed, for classification elsewhere.
//!
//! ```text
//!   sessions ── samples ──► rings ── a thread of its own ──► file, or stream to another machine ──► `thermocline-lab classify`
//! ```
//!
//! The thread may wait for the file or for the receiver of the stream. No session waits for it: when rings fill up sessions
//! sample less, and what finds no place is lost and counted.

use std::io::Write;
use std::path::Path;

use thermocline_base::io::OpenMode;
use thermocline_base::rng::fresh_id;

use crate::Database;
use crate::governor::warmth_of;
use crate::pressure::Warmth;
use crate::temperature::{LogError, LogOptions, LogWriter};

impl Database {
    /// Writes which rows are accessed to a new file from now on: a share of the accesses to rows in memory
    /// ([`Options::sampling`](crate::Options::sampling)), and all reads of cold rows. A log that was being written ends.
    /// [`classify`](crate::temperature::classify), or `thermocline-lab classify FILE`, tells which rows belong into memory.
    ///
    /// # Errors
    /// The file is there already, or cannot be written. An error later on ends the log; [`Database::end_access_log`] tells.
    pub fn log_accesses_to_file(&self, path: impl AsRef<Path>) -> Result<(), LogError> {
        let file = self.inner().files.io().open(path.as_ref(), OpenMode::CreateNew).map_err(LogError::Io)?;
        self.begin_access_log(LogWriter::to_file(file, &self.access_log_options())?)
    }

    /// The same to a stream, for instance to `thermocline-lab classify --listen` on another machine. Give a socket a timeout for
    /// writes: ending the log, and closing the database, waits for what is being written.
    ///
    /// ```no_run
    /// # fn example(db: &thermocline_engine::Database) -> Result<(), Box<dyn std::error::Error>> {
    /// let socket = std::net::TcpStream::connect("classifier:7070")?;
    /// socket.set_write_timeout(Some(std::time::Duration::from_secs(5)))?;
    /// db.log_accesses_to(socket)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The stream's. An error later on ends the log; [`Database::end_access_log`] tells.
    pub fn log_accesses_to(&self, stream: impl Write + Send + 'static) -> Result<(), LogError> {
        self.begin_access_log(LogWriter::to_stream(Box::new(stream), &self.access_log_options())?)
    }

    /// Ends the access log, as closing the database does; how many bytes it has. 0: none was being written.
    ///
    /// # Errors
    /// The log could not be written to its end.
    pub fn end_access_log(&self) -> Result<u64, LogError> {
        self.inner().warm.get().map_or(Ok(0), Warmth::end_log)
    }

    /// Changes which share of the accesses to rows in memory is sampled, from 0 to 1, while the database runs. Begins to
    /// measure temperatures if nothing is measured yet.
    ///
    /// # Panics
    /// When it is no such share.
    pub fn set_sampling(&self, share: f64) {
        assert!((0.0..=1.0).contains(&share), "a share from 0 to 1 is needed, not {share}");
        warmth_of(self.inner()).set_sampling(share);
    }

    fn access_log_options(&self) -> LogOptions {
        LogOptions { start_wall_us: self.inner().clock.wall_us(), ..LogOptions::new(fresh_id()) }
    }

    fn begin_access_log(&self, log: LogWriter) -> Result<(), LogError> {
        warmth_of(self.inner()).begin_log(log)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use thermocline_base::io::{Io, StdIo};

    use super::*;
    use crate::index::hash_of;
    use crate::row::{Column, KeyBuf, Type, Value};
    use crate::temperature::classify::{Budget, ClassifyOptions, classify};
    use crate::temperature::{LogReader, RowName};
    use crate::{IndexSchema, Options, Table, TableSchema, TransactionOptions};

    const HOT: i64 = 10;

    fn filled(dir: &Path, sampling: f64) -> (Database, Table) {
        let db = Database::open(dir, Options::default().with_sampling(sampling)).expect("it opens");
        let schema = TableSchema::new("t")
            .column(Column::new("id", Type::Int8))
            .primary_key(IndexSchema::hash("key", &["id"]));
        let table = db.create_table(schema).expect("a table");
        db.bulk_load(&table, (0..1000).map(|id| vec![Value::Int8(id)])).expect("it is loaded");
        (db, table)
    }

    /// Reads some rows forty times as often as others, and collects in between: what finds no place in the rings is lost.
    fn read(db: &Database, table: &Table) {
        let index = table.primary();
        for first in (0..1000).step_by(25) {
            for id in (first..first + 25_i64).chain(500..500 + HOT) {
                let found = db.run(TransactionOptions::new().read_only(), async |tx| {
                    tx.read(&index, &KeyBuf::new().i64(id), |_| ()).await
                });
                assert_eq!(found.expect("it can be read"), Some(()));
            }
            warmth_of(db.inner()).collect();
        }
    }

    /// The names of the hottest rows in a log.
    fn hottest(path: &Path) -> Vec<RowName> {
        let log = LogReader::open(StdIo.open(path, OpenMode::Read).expect("it is there")).expect("a log");
        let options = ClassifyOptions { budget: Budget::Rows(HOT as u64), ..ClassifyOptions::default() };
        let found = classify(&log, &options).expect("it can be read");
        assert!(found.damages.is_empty(), "{found:?}");
        let mut names: Vec<_> = found.hottest.iter().map(|row| row.row).collect();
        names.sort_unstable();
        names
    }

    fn expected(table: &Table) -> Vec<RowName> {
        let name = |id| RowName { table: table.id(), hash: hash_of(&KeyBuf::new().i64(id)) };
        let mut names: Vec<_> = (500..500 + HOT).map(name).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_is_accessed_is_in_the_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("accesses");
        let (db, table) = filled(&dir.path().join("db"), 1.0);
        assert_eq!(db.end_access_log().expect("there is none"), 0);
        db.log_accesses_to_file(&path).expect("a new file");
        assert!(matches!(db.log_accesses_to_file(&path), Err(LogError::Io(_))), "it is there already");
        read(&db, &table);
        let bytes = db.end_access_log().expect("it was written");
        assert_eq!(std::fs::metadata(&path).expect("a file").len(), bytes);
        assert_eq!(hottest(&path), expected(&table));
        // What is done afterwards is in no log.
        read(&db, &table);
        assert_eq!(std::fs::metadata(&path).expect("a file").len(), bytes);
    }

    #[test]
    fn a_database_that_is_closed_has_sent_all_of_its_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("accesses");
        let (db, table) = filled(&dir.path().join("db"), 0.0);
        let expected = expected(&table);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let receiver = std::thread::spawn(move || {
            let mut received = Vec::new();
            listener.accept().expect("a sender").0.read_to_end(&mut received).map(|_| received)
        });
        // It was off, and can be switched on.
        db.set_sampling(1.0);
        db.log_accesses_to(TcpStream::connect(address).expect("it listens")).expect("it is begun");
        read(&db, &table);
        drop(table);
        db.close().expect("it closes");
        let received = receiver.join().expect("it receives").expect("all of it");
        std::fs::write(&path, received).expect("a file");
        assert_eq!(hottest(&path), expected);
    }

    /// A receiver that has gone ends the log, and nothing else.
    #[test]
    fn a_log_that_nobody_receives_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let (db, table) = filled(&dir.path().join("db"), 1.0);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let sender = TcpStream::connect(listener.local_addr().expect("its address")).expect("it listens");
        let (receiver, _) = listener.accept().expect("a sender");
        db.log_accesses_to(sender).expect("it is begun");
        drop((receiver, listener));
        // The first bytes after that may still be taken by the system, and some are kept back for a while.
        let ended = (0..10_000).find_map(|_| {
            read(&db, &table);
            std::thread::sleep(std::time::Duration::from_millis(5));
            warmth_of(db.inner()).log_failure()
        });
        assert!(ended.is_some_and(|error| error.contains("stream broke")));
        assert!(matches!(db.end_access_log(), Err(LogError::Stream(_))));
        read(&db, &table);
        db.close().expect("it closes");
    }
}
