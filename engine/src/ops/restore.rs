//! Putting a backup, or any copy of a closed database, where a database is to be.
//!
//! All files are copied as bytes, the superblock last: until then the directory is no database. Then every checksum of the
//! copy is looked at, so that damage on the way is told now and not when somebody needs the row.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline_base::io::{Copier, Io, OpenMode};

use super::backup::{BUFFER_BYTES, BUFFERS, BURST_BYTES, BackupProgress, advance, ended, full, remove_copy};
use super::recover::lock_to_read;
use crate::checkpoint::Superblock;
use crate::checkpoint::superblock::{FILE as SUPERBLOCK, LOCK_FILE};
use crate::error::{Error, Result};

/// Restores over any [`Io`].
pub(crate) fn restore(
    io: &Arc<dyn Io>,
    from: &Path,
    to: &Path,
    told: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<()> {
    if !io.exists(from)? || Superblock::open(io, from)?.is_none() {
        let found = "there is nothing to restore".to_owned();
        return Err(Error::NotADatabase { directory: from.to_path_buf(), found });
    }
    if io.exists(to)? && !io.list(to)?.is_empty() {
        let found = "it is not empty".to_owned();
        return Err(Error::NotADatabase { directory: to.to_path_buf(), found });
    }
    let _lock = lock_to_read(&**io, from)?;
    let outcome = copy_all(&**io, from, to, told).and_then(|()| {
        let findings = crate::ops::verify::verify(to, io)?.findings;
        match findings.into_iter().next() {
            Some(what) => Err(Error::Damaged { file: from.to_path_buf(), what }),
            None => Ok(()),
        }
    });
    if outcome.is_err() {
        remove_copy(&**io, to);
    }
    outcome.map_err(|error| full(error, to))
}

fn copy_all(
    io: &dyn Io,
    from: &Path,
    to: &Path,
    told: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<()> {
    // The superblock's directory, with the superblock at its end, comes last.
    let dirs = [crate::checkpoint::dir_of, crate::log::dir_of, crate::cold::store::dir_of, Path::to_path_buf];
    let mut files: Vec<(PathBuf, PathBuf)> = Vec::new();
    for dir_of in dirs {
        let (from, to) = (dir_of(from), dir_of(to));
        if !io.exists(&from)? {
            continue;
        }
        io.create_dir_all(&to)?;
        let names = io.list(&from)?.into_iter().filter(|name| {
            // Nobody has it open where it is going.
            name != LOCK_FILE && name != SUPERBLOCK && !name.ends_with(".lock")
        });
        files.extend(names.map(|name| (from.join(&name), to.join(&name))));
    }
    files.push((from.join(SUPERBLOCK), to.join(SUPERBLOCK)));
    let mut bytes = 0;
    for (file, _) in &files {
        bytes += io.open(file, OpenMode::Read)?.len()?;
    }
    let mut progress = BackupProgress { bytes_done: 0, bytes };
    let mut copier = Copier::new(BUFFERS, BUFFER_BYTES).leaving_out_zeros();
    for (from, to) in &files {
        if to.file_name().is_some_and(|name| name == SUPERBLOCK) {
            dirs.iter()
                .map(|dir_of| dir_of(to.parent().unwrap_or(to)))
                .try_for_each(|dir| if io.exists(&dir)? { io.sync_dir(&dir) } else { Ok(()) })?;
        }
        let (source, target) =
            (io.open_direct(from, OpenMode::Read)?, io.open_direct(to, OpenMode::CreateNew)?);
        let len = source.len()?;
        target.set_len(len)?;
        let outcome = copier.copy(&*source, &*target, std::iter::once(0..len), &mut |bytes| {
            advance(&mut progress, told, bytes)?;
            ControlFlow::Continue(BURST_BYTES)
        });
        ended(outcome?)?;
        target.set_len(len)?;
        target.sync_data()?;
    }
    io.sync_dir(to)?;
    Ok(())
}
