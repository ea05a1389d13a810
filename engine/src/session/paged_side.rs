//! The paged side of a database, made when the first row goes over to it.

use std::sync::{Arc, OnceLock};

use thermocline_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use crate::hot::paged::Paged;

/// See the module.
#[derive(Default)]
pub(crate) struct PagedSide {
    pages: OnceLock<Arc<Paged>>,
    /// Held by the thread that makes it.
    opening: Mutex<()>,
    /// True if a table is paged, as of a moment ago.
    is_wanted: AtomicBool,
    /// Rows that came back from it since their readers wanted them in memory.
    came_back: AtomicU64,
}

impl PagedSide {
    /// The paged side, if it is there.
    pub(crate) fn get(&self) -> Option<&Arc<Paged>> {
        self.pages.get()
    }

    /// The paged side; `open` makes it if it is not there.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn get_or_open<E>(&self, open: impl FnOnce() -> Result<Paged, E>) -> Result<&Arc<Paged>, E> {
        if let Some(paged) = self.pages.get() {
            return Ok(paged);
        }
        let _turn = self.opening.lock();
        if let Some(paged) = self.pages.get() {
            return Ok(paged);
        }
        let paged = open()?;
        Ok(self.pages.get_or_init(|| Arc::new(paged)))
    }

    /// True if a table is paged, as of a moment ago.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Notes whether a table is paged.
    pub(crate) fn set_wanted(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
    }

    /// Counts a row that came back.
    pub(crate) fn note_come_back(&self) {
        self.came_back.fetch_add(1, Ordering::Relaxed);
    }

    /// Rows that came back.
    pub(crate) fn came_back(&self) -> u64 {
        self.came_back.load(Ordering::Relaxed)
    }
}
