//! In which directory the cold store lies: inside the database's directory, or elsewhere.
//!
//! ```text
//!   file cold.place     thermocline cold store 1
//!                       PATH, absolute
//!                       CRC-32C of the two lines before, eight hexadecimal digits
//! ```
//!
//! Rules:
//! - The file is written once, durable with its name before anything is made at that place, and never changed: a database whose
//!   cold rows lie elsewhere finds them whether the options name the place or not.
//! - A place elsewhere is an empty directory when it is taken, or one that does not exist. So nothing of somebody else's is
//!   among the store's files.

use std::path::{Path, PathBuf};

use thermocline_base::checksum::crc32c;
use thermocline_base::io::{Io, OpenMode};

use super::{kind_in, store};
use crate::error::{Error, Result};

const NAME: &str = "cold.place";
const TEMPORARY: &str = "cold.place.tmp";
const TITLE: &str = "thermocline cold store 1";
/// No path is longer on any system.
const LONGEST_BYTES: u64 = 1 << 16;

/// Where the cold store of a database lies, as far as its directory says.
///
/// # Errors
/// The file that says so is damaged or newer, and the system's.
pub(crate) fn find(io: &dyn Io, database: &Path) -> Result<PathBuf> {
    Ok(remembered(io, database)?.unwrap_or_else(|| store::dir_of(database)))
}

/// The same, with the place that the options name, which is remembered if the database has none yet.
///
/// # Errors
/// As [`find`]; the cold rows are elsewhere; the place is not empty.
pub(crate) fn settle(io: &dyn Io, database: &Path, wanted: Option<&Path>, writes: bool) -> Result<PathBuf> {
    let known = remembered(io, database)?;
    let Some(wanted) = wanted else {
        return Ok(known.unwrap_or_else(|| store::dir_of(database)));
    };
    let wanted = std::path::absolute(wanted).map_err(|error| refused(format!("{error}")))?;
    let inside = store::dir_of(database);
    match known {
        Some(known) if known == wanted => return Ok(known),
        Some(known) => return Err(are_in(&known)),
        None if kind_in(io, &inside)?.is_some() && wanted != inside => return Err(are_in(&inside)),
        None => {}
    }
    if io.exists(&wanted)? && !io.list(&wanted)?.is_empty() {
        let wanted = wanted.display();
        return Err(refused(format!(
            "{wanted} is not empty; name an empty directory, or one that does not exist"
        )));
    }
    if writes {
        remember(io, database, &wanted)?;
    }
    Ok(wanted)
}

fn refused(reason: String) -> Error {
    Error::InvalidOption { option: "cold_dir", reason }
}

fn are_in(place: &Path) -> Error {
    let place = place.display();
    refused(format!("the cold rows of this database are in {place}; leave cold_dir out, or name that place"))
}

fn remember(io: &dyn Io, database: &Path, place: &Path) -> Result<()> {
    let Some(text) = place.to_str().filter(|text| !text.contains('\n')) else {
        return Err(refused("its path has to be text of one line".to_owned()));
    };
    let lines = format!("{TITLE}\n{text}\n");
    let bytes = format!("{lines}{:08x}\n", crc32c(lines.as_bytes()));
    let temporary = database.join(TEMPORARY);
    if io.exists(&temporary)? {
        io.remove(&temporary)?;
    }
    let file = io.open(&temporary, OpenMode::CreateNew)?;
    file.write_at(0, bytes.as_bytes())?;
    file.sync_data()?;
    io.rename(&temporary, &database.join(NAME))?;
    Ok(io.sync_dir(database)?)
}

fn remembered(io: &dyn Io, database: &Path) -> Result<Option<PathBuf>> {
    let path = database.join(NAME);
    if !io.exists(&path)? {
        return Ok(None);
    }
    let damaged = |what: &str| Error::Damaged { file: path.clone(), what: what.to_owned() };
    let file = io.open(&path, OpenMode::Read)?;
    let len = file.len()?;
    if len > LONGEST_BYTES {
        return Err(damaged("it is too long to name a place"));
    }
    let mut bytes = vec![0; len as usize];
    let come = file.read_full_at(0, &mut bytes)?;
    let text = std::str::from_utf8(&bytes[..come]).map_err(|_| damaged("it is no text"))?;
    let sum = text.len().checked_sub(9).and_then(|at| Some((text.get(..at)?, text.get(at..)?)));
    let (lines, sum) = sum.ok_or_else(|| damaged("it was cut"))?;
    if format!("{:08x}\n", crc32c(lines.as_bytes())) != sum {
        return Err(damaged("its checksum is wrong"));
    }
    let place = lines.strip_prefix(TITLE).and_then(|rest| rest.strip_prefix('\n')?.strip_suffix('\n'));
    place.map(|place| Some(PathBuf::from(place))).ok_or_else(|| damaged("a newer program wrote it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::io::{MemoryIo, RecordingIo};

    const DIR: &str = "/db";

    fn settled(io: &dyn Io, wanted: Option<&str>) -> Result<PathBuf> {
        settle(io, Path::new(DIR), wanted.map(Path::new), true)
    }

    fn database() -> MemoryIo {
        let io = MemoryIo::new();
        io.create_dir_all(Path::new(DIR)).expect("memory");
        io
    }

    #[test]
    fn a_place_is_remembered_and_not_changed() {
        let io = database();
        assert_eq!(settled(&io, None).expect("inside"), Path::new("/db/cold"));
        assert_eq!(settled(&io, Some("/volume/cold")).expect("elsewhere"), Path::new("/volume/cold"));
        assert_eq!(settled(&io, None).expect("remembered"), Path::new("/volume/cold"));
        assert_eq!(find(&io, Path::new(DIR)).expect("remembered"), Path::new("/volume/cold"));
        let other = settled(&io, Some("/other")).expect_err("it is there already").to_string();
        assert!(other.contains("/volume/cold"), "{other}");
    }

    #[test]
    fn what_holds_files_is_not_taken() {
        let io = database();
        io.create_dir_all(Path::new("/full")).expect("memory");
        io.open(Path::new("/full/letter"), OpenMode::CreateNew).expect("memory");
        assert!(settled(&io, Some("/full")).expect_err("not ours").to_string().contains("is not empty"));
        io.create_dir_all(Path::new("/db/cold")).expect("memory");
        io.open(Path::new("/db/cold/store.manifest"), OpenMode::CreateNew).expect("memory");
        let inside = settled(&io, Some("/other")).expect_err("rows are inside").to_string();
        assert!(inside.contains("/db/cold"), "{inside}");
    }

    #[test]
    fn damage_is_named() {
        let io = database();
        settled(&io, Some("/volume/cold")).expect("elsewhere");
        let path = Path::new("/db/cold.place");
        let whole = io.files().remove(path).expect("it is there");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let damaged = MemoryIo::with_files(io.directories(), [(path.to_path_buf(), bytes)]);
            assert!(matches!(settled(&damaged, None), Err(Error::Damaged { .. })), "byte {at}");
            let cut = MemoryIo::with_files(io.directories(), [(path.to_path_buf(), whole[..at].to_vec())]);
            assert!(matches!(settled(&cut, None), Err(Error::Damaged { .. })), "cut at {at}");
        }
    }

    #[test]
    fn a_crash_leaves_a_place_or_none() {
        let io = RecordingIo::new(&database());
        settled(&io, Some("/volume/cold")).expect("elsewhere");
        for operations in 0..=io.operations() {
            for seed in 0..8 {
                let found = find(&io.crash(operations, seed), Path::new(DIR)).expect("whole or not there");
                let all = operations == io.operations();
                assert!(found == Path::new("/volume/cold") || (!all && found == Path::new("/db/cold")));
            }
        }
    }
}
