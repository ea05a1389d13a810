//! Changes of definitions that commit, and what they have replaced until it can be freed.

use thermocline_base::ids::Lsn;
use thermocline_base::sync::{Mutex, MutexGuard};

use super::replaced::Replaced;

/// See the module. Two locks, the one of commits first.
#[derive(Default)]
pub(crate) struct Redefining {
    /// Held by the committer of a change, and by a reader of which changes have been committed by when.
    commits: Mutex<()>,
    replaced: Mutex<Vec<Replaced>>,
    /// Forms that transactions may follow though they must not, while a rule is switched off: kept as long as the database.
    #[cfg(feature = "model")]
    #[expect(clippy::vec_box, reason = "they are followed where they are")]
    misused: Mutex<Vec<Box<crate::catalog::table::TableForm>>>,
}

impl Redefining {
    /// Keeps changes of definitions from committing for as long as the guard lives.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.commits.lock()
    }

    /// Leaves what a change has replaced, to be freed later.
    pub(crate) fn leave(&self, replaced: impl IntoIterator<Item = Replaced>) {
        self.replaced.lock().extend(replaced);
    }

    /// Takes what may be freed. Entries of the cold store may if their position in the log `is_due`.
    pub(crate) fn take_due(&self, is_due: impl Fn(Lsn) -> bool) -> Vec<Replaced> {
        let mut replaced = self.replaced.lock();
        if replaced.is_empty() {
            return Vec::new();
        }
        let all = std::mem::take(&mut *replaced);
        let (due, waiting) = all.into_iter().partition(|what| match what {
            Replaced::Form(_) | Replaced::Table(_) => true,
            Replaced::Cold(lsn, _) => is_due(*lsn),
        });
        *replaced = waiting;
        due
    }

    /// Keeps a form that a transaction may still follow against the rules.
    #[cfg(feature = "model")]
    pub(crate) fn keep_misused(&self, form: Box<crate::catalog::table::TableForm>) {
        self.misused.lock().push(form);
    }
}
