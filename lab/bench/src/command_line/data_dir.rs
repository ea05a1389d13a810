//! Where a benchmark keeps its database: a directory that the user names and keeps, or a temporary one that is gone
//! afterwards, however the run ends (a `kill -9` excepted).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::Failure;

/// A directory for a database.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

/// Paths that an interrupt has to remove.
static REMOVE_ON_INTERRUPT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl DataDir {
    /// The user's directory, made if it is not there; or a temporary one.
    pub fn prepare(wanted: Option<&Path>) -> Result<Self, Failure> {
        match wanted {
            Some(path) => Self::given(path),
            None => Self::temporary(),
        }
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn given(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        std::fs::create_dir_all(path).map_err(|error| {
            Failure::Usage(format!(
                "cannot make the data directory {shown}: {error}; choose another --data-dir"
            ))
        })?;
        let mut entries = std::fs::read_dir(path).map_err(|error| {
            Failure::Usage(format!(
                "cannot read the data directory {shown}: {error}; choose another --data-dir"
            ))
        })?;
        if entries.next().is_some() {
            return Err(Failure::Usage(format!(
                "the data directory {shown} is not empty; empty it, or choose another --data-dir"
            )));
        }
        tempfile::tempfile_in(path).map_err(|error| {
            Failure::Usage(format!(
                "cannot write to the data directory {shown}: {error}; choose another --data-dir"
            ))
        })?;
        Ok(Self { path: path.to_owned(), temporary: None })
    }

    fn temporary() -> Result<Self, Failure> {
        remove_on_interrupt()?;
        let made = tempfile::Builder::new().prefix("thermocline-").tempdir().map_err(|error| {
            Failure::Usage(format!(
                "cannot make a temporary directory in {}: {error}; name a directory with --data-dir",
                std::env::temp_dir().display()
            ))
        })?;
        let path = made.path().to_owned();
        to_remove().push(path.clone());
        Ok(Self { path, temporary: Some(made) })
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            to_remove().retain(|path| *path != self.path);
            if let Err(error) = temporary.close() {
                eprintln!("warning: cannot remove the temporary directory {}: {error}", self.path.display());
            }
        }
    }
}

fn to_remove() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    REMOVE_ON_INTERRUPT.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// From now on an interrupt (Ctrl-C, or a request to terminate) removes the temporary directories and ends the process.
fn remove_on_interrupt() -> Result<(), Failure> {
    let handler = || {
        for path in to_remove().drain(..) {
            // The database still runs and may write a new file while the old ones go.
            for _ in 0..100 {
                match std::fs::remove_dir_all(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        std::thread::sleep(std::time::Duration::from_millis(10));
                    }
                    _ => break,
                }
            }
        }
        eprintln!("interrupted");
        std::process::exit(130);
    };
    match ctrlc::set_handler(handler) {
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(()),
        Err(error) => Err(Failure::Failed(format!("cannot listen for interrupts: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_directory_goes_with_its_owner() {
        let dir = DataDir::prepare(None).expect("the system has room for it");
        let path = dir.path().to_owned();
        std::fs::write(path.join("file"), "text").expect("it is writable");
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn a_given_directory_is_made_and_stays() {
        let outer = tempfile::tempdir().expect("a temporary directory");
        let path = outer.path().join("a/b");
        drop(DataDir::prepare(Some(&path)).expect("it can be made"));
        assert!(path.is_dir());
        assert_eq!(std::fs::read_dir(&path).expect("readable").count(), 0);
    }

    #[test]
    fn a_directory_with_something_in_it_is_refused() {
        let outer = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(outer.path().join("precious"), "data").expect("writable");
        let failure = DataDir::prepare(Some(outer.path())).expect_err("it is not empty");
        assert!(matches!(&failure, Failure::Usage(text) if text.contains("is not empty")), "{failure:?}");
        assert!(outer.path().join("precious").exists());
    }
}
