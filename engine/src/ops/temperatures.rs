//! The file of temperatures: what the classifier knows survives a restart.
//!
//! It is written when the database is closed, and now and then behind a checkpoint; it is read when the governor begins to
//! measure. Nothing depends on it: without it, or if it is damaged, temperatures are unknown. Its layout stands in
//! `temperature/src/online/stored.rs`.

use std::path::Path;
use std::sync::Arc;

use thermocline_base::io::{File, Io, IoError, OpenMode};

use crate::session::db::Inner;
use crate::temperature::{
    Classifier, ClassifierOptions, STORED_HEADER_BYTES, StoredHeader, Temperatures, check_stored,
};

/// The file's name in the database's directory.
pub(crate) const FILE: &str = "temperatures";
/// Time between two writes of the file while the database is open.
const STORE_NS: u64 = 300_000_000_000;
/// What is read and written at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// The classifier takes no more, however large the limit is.
const CLASSIFIER_BYTES_MAX: usize = 64 << 20;

/// A classifier's options under a limit.
pub(crate) fn classifier_within(limit: u64) -> ClassifierOptions {
    let options = ClassifierOptions::for_limit(limit, limit / 2);
    ClassifierOptions { memory_bytes: options.memory_bytes.min(CLASSIFIER_BYTES_MAX), ..options }
}

/// Bytes that temperatures take under a limit, once they are measured.
pub(crate) fn bytes_within(inner: &Inner, limit: u64) -> u64 {
    match inner.options.sampling > 0.0 {
        true => classifier_within(limit).memory_bytes as u64,
        false => 0,
    }
}

/// Writes what is known of temperatures, if anything is. A failure is told to the log of events, and costs nothing else.
pub(crate) fn store(inner: &Inner) {
    let Some(warmth) = inner.warm.get().filter(|_| inner.checkpoints.are_kept()) else { return };
    let _turn = warmth.storing(inner.clock.now_ns());
    if let Err(error) = write(inner, warmth.classifier()) {
        tracing::warn!(%error, "temperatures were not written: after a restart older ones are known, or none");
    }
}

/// The same, if the last time is long ago.
pub(crate) fn store_now_and_then(inner: &Inner) {
    let is_due = |stored_ns: u64| inner.clock.now_ns().saturating_sub(stored_ns) > STORE_NS;
    if inner.warm.get().is_some_and(|warmth| is_due(warmth.stored_ns())) {
        store(inner);
    }
}

fn write(inner: &Inner, classifier: &Classifier) -> Result<(), IoError> {
    let temporary = inner.files.dir().join(format!("{FILE}.tmp"));
    let file = inner.files.io().open(&temporary, OpenMode::Create)?;
    file.set_len(0)?;
    let mut offset = 0;
    classifier.store(&inner.files.id(), |piece| {
        file.write_at(offset, piece)?;
        offset += piece.len() as u64;
        Ok(())
    })?;
    file.sync_data()?;
    inner.files.io().rename(&temporary, &inner.files.dir().join(FILE))?;
    inner.files.io().sync_dir(inner.files.dir())
}

fn open(inner: &Inner) -> Option<Reader> {
    let opened = Reader::open(&**inner.files.io(), inner.files.dir());
    opened
        .inspect_err(|error| tracing::warn!(%error, "temperatures cannot be read: they are unknown"))
        .ok()
        .flatten()
}

/// What is wrong with the file of a database in a directory, if it is there, in words.
pub(crate) fn verify(io: &dyn Io, dir: &Path, database: &[u8; 16]) -> Option<String> {
    let reason = match Reader::open(io, dir) {
        Ok(None) => return None,
        Ok(Some(mut reader)) => check_stored(database, |piece| reader.read(piece)).err()?.to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "the file {}: {reason}; no row is concerned: an opening goes without it, and measures temperatures anew",
        dir.join(FILE).display()
    ))
}

/// Gives the classifier what the file says, if there is one.
pub(crate) fn restore(inner: &Inner, classifier: &Classifier) {
    let Some(mut reader) = open(inner) else { return };
    if let Err(reason) = classifier.restore(&inner.files.id(), |piece| reader.read(piece)) {
        let file = inner.files.dir().join(FILE);
        tracing::warn!(file = %file.display(), reason, "temperatures are unknown: their file is no use");
    }
}

/// What is known of temperatures: by the classifier, or, while nothing is measured, by the file.
pub(crate) fn temperatures(inner: &Inner) -> Option<Temperatures> {
    if let Some(warmth) = inner.warm.get() {
        return Some(warmth.temperatures());
    }
    let mut reader = open(inner)?;
    let mut header = [0; STORED_HEADER_BYTES];
    reader.read(&mut header).ok()?;
    let header = StoredHeader::read(&inner.files.id(), &header).ok()?;
    let mut sample = vec![0; header.sample_bytes()];
    reader.read(&mut sample).ok()?;
    header.temperatures(&inner.files.id(), &sample).ok()
}

/// Reads the file from its beginning.
struct Reader {
    file: Arc<dyn File>,
    offset: u64,
    buffer: Vec<u8>,
    at: usize,
}

impl Reader {
    /// `None`: there is no file.
    fn open(io: &dyn Io, dir: &Path) -> Result<Option<Self>, IoError> {
        let path = dir.join(FILE);
        if !io.exists(&path)? {
            return Ok(None);
        }
        let file = io.open(&path, OpenMode::Read)?;
        Ok(Some(Self { file, offset: 0, buffer: Vec::new(), at: 0 }))
    }

    fn read(&mut self, mut piece: &mut [u8]) -> Result<(), &'static str> {
        while !piece.is_empty() {
            if self.at == self.buffer.len() {
                self.buffer.resize(BUFFER_BYTES, 0);
                let count = self.file.read_full_at(self.offset, &mut self.buffer);
                let count = count.map_err(|_| "the system cannot read it")?;
                if count == 0 {
                    return Err("it was cut");
                }
                self.buffer.truncate(count);
                self.offset += count as u64;
                self.at = 0;
            }
            let count = piece.len().min(self.buffer.len() - self.at);
            piece[..count].copy_from_slice(&self.buffer[self.at..self.at + count]);
            self.at += count;
            piece = &mut piece[count..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governor::warmth_of;
    use crate::{Database, Options};

    #[test]
    fn a_flipped_byte_is_named_by_check_and_harms_no_opening() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = || Options::default().with_memory_limit(Some(64 << 20));
        let db = Database::open(dir.path(), options()).expect("a new database");
        warmth_of(db.inner());
        store(db.inner());
        db.close().expect("closed");
        let findings = || Database::verify(dir.path()).expect("it can be read").findings;
        assert_eq!(findings(), Vec::<String>::new());
        let path = dir.path().join(FILE);
        let whole = std::fs::read(&path).expect("the file");
        for at in [0, 20, STORED_HEADER_BYTES, whole.len() - 6, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).expect("written");
            let findings = findings();
            assert_eq!(findings.len(), 1, "byte {at}: {findings:?}");
            for part in [FILE, "no row is concerned", "anew"] {
                assert!(findings[0].contains(part), "no {part:?} in {findings:?}");
            }
            let db = Database::open(dir.path(), options()).expect("it opens all the same");
            assert!(db.temperatures().is_none_or(|found| found.sampled_rows == 0));
            warmth_of(db.inner());
            db.close().expect("closed");
        }
    }
}
