//! Verification: every checksum of every file of a closed database, and every row ([`crate::ops::verify_rows`]), without building
//! it in memory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::ids::Lsn;
use thermocline_base::io::{Io, OverlayIo};
use thermocline_pool::store::{
    Found, IndexId as StoreIndex, KeyRange, OwnerPosition, StoreEnd, StoreError, StoreOptions,
};

use crate::checkpoint::{
    CheckpointError, DurableEnds, FROZEN_ROWS, FoundEnds, Images, Manifest, RunState, Superblock, dir_of,
};
use crate::cold::objects::Fronts;
use crate::cold::place;
use crate::cold::store::{SECONDARY, StoreMemory, is_secondary};
use crate::error::{Error, Result};
use crate::log::record::{Commit, Kind, Op, Part};
use crate::log::{LogEnd, LogReader};
use crate::ops::recover::{known_store, lock_to_read, missing_before_store, newest_manifest};
use crate::ops::verify_rows::RowChecks;
use crate::options::{ColdStoreKind, Options};
use crate::row::{KeySpec, Layout};
use crate::schema::{Redefined, StoredTable, decode_catalog};

/// The cold store is opened as that of a database with this limit: beside its filters and fences it takes some 8 MiB.
const STORE_MEMORY_BYTES: u64 = 64 << 20;

/// What a verification has looked at, and what it has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// Tables in the catalog.
    pub tables: u64,
    /// Images of chunks that were read.
    pub chunk_images: u64,
    /// Rows in them.
    pub rows: u64,
    /// Records of the log that were read.
    pub log_records: u64,
    /// Pages of the cold store that were read.
    pub cold_pages: u64,
    /// Entries of its indexes on them; a row has one in each.
    pub cold_entries: u64,
    /// Everything that is wrong, in words that name the file.
    pub findings: Vec<String>,
}

/// Verifies over any [`Io`].
pub(crate) fn verify(directory: &Path, io: &Arc<dyn Io>) -> Result<Verification> {
    let io: &Arc<dyn Io> = &(Arc::new(OverlayIo::new(Arc::clone(io))) as Arc<dyn Io>);
    let mut report = Verification::default();
    let nothing = || Error::NotADatabase {
        directory: directory.to_path_buf(),
        found: "there is nothing to verify".to_owned(),
    };
    if !io.exists(directory)? {
        return Err(nothing());
    }
    let superblock = match Superblock::open(io, directory) {
        Ok(found) => found.ok_or_else(nothing)?,
        Err(error @ CheckpointError::Damaged { .. }) => {
            report.findings.push(Error::from(error).to_string());
            return Ok(report);
        }
        Err(error) => return Err(error.into()),
    };
    let _lock = lock_to_read(&**io, directory)?;
    let checkpoints = dir_of(directory);
    let known = FoundEnds::read(&**io, directory, &superblock).map(|known| known.ends).map_err(Error::from);
    let read = |known: DurableEnds| {
        let found = newest_manifest(&**io, directory, superblock.database, known.manifest)?;
        Ok((known, found.unwrap_or_else(|| Manifest::empty(superblock.database))))
    };
    let (known, manifest) = match known.and_then(read) {
        Ok(found) => found,
        Err(error) => {
            report.findings.push(error.to_string());
            return Ok(report);
        }
    };
    let mut tables = Vec::new();
    if !manifest.catalog.is_empty() {
        match decode_catalog(&manifest.catalog) {
            Ok((found, _, _)) => tables = found,
            Err(what) => report.findings.push(format!("the catalog of the newest manifest: {what}")),
        }
    }
    let mut rows = RowChecks::new(&tables);
    verify_images(
        &manifest,
        Images::new(Arc::clone(io), checkpoints, superblock.database),
        &mut rows,
        &mut report,
    );
    report.findings.extend(rows.finish());
    let log = verify_log(io, crate::log::dir_of(directory), &manifest, known.log, &mut tables, &mut report);
    report.tables = tables.len() as u64;
    let mut rows = RowChecks::new(&tables);
    // After a crash of a session without a log the next opening removes what is there.
    if manifest.state != RunState::Volatile {
        let least = log.as_ref().map_or(StoreEnd::default(), |log| known_store(&known, &manifest, log));
        let known = KnownStore { least, is_there: manifest.cold || least.identity != 0 };
        let position =
            verify_cold_store(io, directory, superblock.database, &tables, known, &mut rows, &mut report)?;
        let missing = log.and_then(|log| missing_before_store(log.lsn, manifest.sequence, position));
        report.findings.extend(missing);
    }
    report.findings.extend(rows.finish());
    report.findings.extend(crate::ops::temperatures::verify(&**io, directory, &superblock.database));
    Ok(report)
}

/// What the rest of the database says of the cold store.
#[derive(Clone, Copy)]
struct KnownStore {
    /// Up to where it had been durable.
    least: StoreEnd,
    is_there: bool,
}

/// Gives the position of the database that the store relies on.
fn verify_cold_store(
    io: &Arc<dyn Io>,
    directory: &Path,
    database: [u8; 16],
    tables: &[StoredTable],
    known: KnownStore,
    rows: &mut RowChecks,
    report: &mut Verification,
) -> Result<OwnerPosition> {
    let dir = crate::cold::location::find(&**io, directory)?;
    match crate::cold::kind_in(&**io, &dir)? {
        Some(ColdStoreKind::Direct) => {
            // Opening reads every slot.
            let see = |index, key: &[u8], found: &Found| rows.record(index, key, found.batch, &found.record);
            match crate::cold::verify_direct(io, &dir, database, known.least, see) {
                Ok((position, entries, damages)) => {
                    report.cold_entries += entries;
                    report.findings.extend(damages.iter().map(|error| format!("the cold store: {error}")));
                    return Ok(position);
                }
                Err(error) => report.findings.push(format!("the cold store: {error}")),
            }
            return Ok(OwnerPosition::default());
        }
        None if known.is_there => {
            report.findings.push(format!("the cold store is missing from {}", dir.display()));
            return Ok(OwnerPosition::default());
        }
        None if !io.exists(&dir)? => return Ok(OwnerPosition::default()),
        _ => {}
    }
    let options = Options::default().with_cold_threads(0);
    // It reads everything once, past the pages that a store keeps.
    let options =
        crate::cold::page_options(&options, database, StoreMemory::within(Some(STORE_MEMORY_BYTES)));
    let options = StoreOptions { least: known.least, ..options };
    let store = match thermocline_pool::store::Store::open(Arc::clone(io), &dir, options) {
        Ok(store) => store,
        Err(error) => {
            report.findings.push(format!("the cold store: {error}"));
            return Ok(OwnerPosition::default());
        }
    };
    let fronts = Fronts::beside(STORE_MEMORY_BYTES);
    let mut unread = BTreeSet::new();
    let found = store.verify_with(&mut |seen| match seen.object {
        None => rows.record(seen.index, seen.key, seen.batch, seen.record),
        Some(_) => match fronts.record_of(&seen) {
            Ok(record) => rows.record(seen.index, seen.key, seen.batch, &record),
            Err(error) => _ = unread.insert(error.to_string()),
        },
    });
    (report.cold_pages, report.cold_entries) = (found.pages, found.entries);
    for problem in &found.problems {
        let place = match problem {
            StoreError::Page { index, keys, .. } => place_of(tables, *index, keys.as_deref()),
            _ => String::new(),
        };
        // A page of an object that many entries lead to is told once.
        unread.remove(&problem.to_string());
        report.findings.push(format!("the cold store: {problem}{place}"));
    }
    report.findings.extend(unread.iter().map(|what| format!("the cold store: {what}")));
    Ok(store.owner_position())
}

/// Which rows are behind a page of an index that cannot be read.
fn place_of(tables: &[StoredTable], index: StoreIndex, keys: Option<&KeyRange>) -> String {
    let Some(table) = tables.iter().find(|table| table.id.0 == index.table) else {
        return "; its table was dropped".to_owned();
    };
    let schemas = table.schema.primary.iter().chain(&table.schema.indexes);
    let offset = usize::from(table.schema.primary.is_none());
    let position = match is_secondary(index) {
        false => Some(0),
        true => table.index_ids.iter().position(|id| id.0 == index.index & !SECONDARY),
    };
    let schema = position.and_then(|position| schemas.clone().nth(position.checked_sub(offset)?));
    let spec = schema.and_then(|schema| {
        let layout = Layout::new(&table.schema.columns).ok()?;
        KeySpec::new(&layout, &table.schema.key_columns(schema)).ok()
    });
    let describe =
        |key: &[u8]| spec.as_ref().map_or_else(|| format!("{key:02x?}"), |spec| spec.display_beginning(key));
    let name = schema.map_or("hidden key", |schema| schema.name());
    format!("; rows of table {:?}, {}", table.schema.name, place::words(name, keys, describe))
}

fn verify_images(manifest: &Manifest, images: Images, checks: &mut RowChecks, report: &mut Verification) {
    let mut buffer = Vec::new();
    for (&(storage, chunk), image) in &manifest.chunks {
        let (mut rows, version) = (0, image.header.schema_version);
        let outcome = images.load(image, &mut buffer, |slot, begin, row| {
            let place = |slot: u16| move || format!("the image of chunk {chunk}, slot {slot}");
            if begin != FROZEN_ROWS {
                rows += 1;
                checks.row(storage, version, row, place(slot));
                return Ok(());
            }
            let (base, slots) = images.frozen_slots(image, row)?;
            let (hidden, bytes) = images.load_base(image, &base, &mut Vec::new())?;
            rows += checks.frozen(storage, version, &bytes, &hidden, &slots, place).map_err(|what| {
                images.damaged(image, base.offset, &format!("its frozen rows cannot be read: {what}"))
            })?;
            Ok::<(), CheckpointError>(())
        });
        report.chunk_images += 1;
        report.rows += rows;
        if let Err(error) = outcome {
            report.findings.push(Error::from(error).to_string());
        }
    }
    drop(images);
}

/// Reads the log, and brings the tables of the manifest to what they have become at its end. `durable`: up to where it is known to
/// have been durable. `None`: it is damaged.
fn verify_log(
    io: &Arc<dyn Io>,
    dir: PathBuf,
    manifest: &Manifest,
    durable: Lsn,
    tables: &mut Vec<StoredTable>,
    report: &mut Verification,
) -> Option<LogEnd> {
    let mut read = || -> std::result::Result<LogEnd, String> {
        let words = |error: crate::log::error::LogError| error.to_string();
        let mut reader = LogReader::open(
            Arc::clone(io),
            &dir,
            manifest.database,
            manifest.log_start,
            manifest.log_durable.max(durable),
        )
        .map_err(words)?;
        while let Some(record) = reader.next().map_err(words)? {
            let lsn = record.lsn;
            let bad_record = |lsn, what: &dyn std::fmt::Display| {
                format!("the log in {}: the record at position {lsn}: {what}", dir.display())
            };
            let bad = |error: crate::log::record::DecodeError| bad_record(lsn, &error);
            match record.kind {
                Kind::Commit => {
                    let commit = Commit::decode(record.payload).map_err(bad)?;
                    for write in commit.writes {
                        let write = write.map_err(bad)?;
                        if write.op == Op::Define && commit.timestamp > manifest.clock {
                            let redefined = Redefined::decode(write.bytes, commit.timestamp);
                            redefined.map_err(|what| bad_record(lsn, &what))?.apply_to(tables);
                        }
                    }
                }
                Kind::Part => {
                    for write in Part::decode(record.payload).map_err(bad)?.writes {
                        write.map_err(bad)?;
                    }
                }
                _ => {}
            }
            report.log_records += 1;
        }
        reader.finish().map_err(words)
    };
    read().map_err(|finding| report.findings.push(finding)).ok()
}
