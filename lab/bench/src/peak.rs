//! The most anonymous memory that the process has had: heap, stacks, mappings, and not the pages of files (its own program,
//! of which the system keeps what it likes).
//!
//! The kernel remembers no such peak, so a thread looks every 10 ms. A look costs some ten microseconds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use thermocline_base::sync::{AtomicBool, AtomicU64, Ordering};

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(10);

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Peak {
    watched: Arc<Watched>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Watched {
    bytes: AtomicU64,
    enough: AtomicBool,
}

impl Peak {
    /// Begins to watch.
    #[must_use]
    pub fn watch() -> Self {
        let watched = Arc::new(Watched::default());
        let of = Arc::clone(&watched);
        let thread = std::thread::Builder::new().name("bench-peak".to_owned()).spawn(move || of.look());
        Self { watched, thread: thread.ok() }
    }

    /// The most so far; `None` where the kernel does not say.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        Some(self.watched.bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.watched.enough.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Watched {
    fn look(&self) {
        let Ok(file) = File::open("/proc/self/statm") else { return };
        while !self.enough.load(Ordering::Relaxed) {
            let Some(bytes) = anonymous(&file) else { return };
            self.bytes.fetch_max(bytes, Ordering::Relaxed);
            std::thread::park_timeout(EVERY);
        }
    }
}

/// Anonymous memory now. `None` where the kernel does not say.
#[must_use]
pub fn anonymous_bytes() -> Option<u64> {
    anonymous(&File::open("/proc/self/statm").ok()?)
}

/// Size, resident pages, those of them that are of files or shared, and more.
fn anonymous(statm: &File) -> Option<u64> {
    let mut text = [0; 128];
    let len = statm.read_at(&mut text, 0).ok()?;
    let mut pages = std::str::from_utf8(&text[..len]).ok()?.split(' ').skip(1);
    let mut next = || pages.next()?.parse::<u64>().ok();
    let (resident, shared) = (next()?, next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_seen_and_files_are_not() {
        let peak = Peak::watch();
        let block = vec![1_u8; 64 << 20];
        std::thread::sleep(10 * EVERY);
        let with = anonymous_bytes().expect("Linux says");
        let all = crate::machine::rss_bytes().expect("Linux says");
        drop(block);
        assert!(peak.bytes().expect("it has looked") >= 64 << 20);
        // This test's program is some megabytes of file, at least.
        assert!(with >= 64 << 20 && with + (1 << 20) < all, "{with} of {all} bytes");
    }
}
