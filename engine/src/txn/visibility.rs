//! Which version of a row a reader sees.
//!
//! The first version of a chain, newest first, that begins at or before the read time decides: it is the row, or it is
//! a tombstone and there is no row. A version of an unfinished transaction begins when that transaction says so (see
//! [`crate::txn::registry`]).
//!
//! An example: T has changed a row that began at 40, and has not committed.
//!
//! | T's state | a reader of 50 sees | a reader of 70 sees |
//! |---|---|---|
//! | active | the version of 40 | the version of 40 |
//! | preparing, no timestamp yet | waits for the timestamp | waits for the timestamp |
//! | preparing, timestamp 60 | the version of 40 | waits until T is decided |
//! | committed at 60 | the version of 40 | T's version |
//! | aborted | the version of 40 | the version of 40 |

use thermocline_base::ids::Timestamp;

use crate::hot::memory::Memory;
use crate::hot::version::{Begin, TxnId, Version};
use crate::mutation::{self, Rule};
use crate::txn::registry::{Registry, State};

/// What a reader sees of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sees {
    /// This version.
    Row(Version),
    /// No row.
    Nothing,
    /// It depends on a transaction that is being decided this moment.
    Undecided(TxnId),
    /// The chain changed under the reader: read the slot again.
    Changed,
}

/// When a version begins, for somebody who reads at `at` as `me`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resolved {
    /// It was committed then; possibly after `at`.
    At(Timestamp),
    /// It is the reader's own.
    Own,
    /// Its transaction runs, or will commit after `at`.
    Later(TxnId),
    /// Its transaction may commit at or before `at`.
    Undecided(TxnId),
    /// It was taken away.
    Gone,
}

/// Resolves a version's begin.
#[inline]
pub(crate) fn resolve(version: Version, registry: &Registry, at: Timestamp, me: Option<TxnId>) -> Resolved {
    match version.begin() {
        Begin::At(timestamp) => Resolved::At(timestamp),
        Begin::By(id) if Some(id) == me => Resolved::Own,
        Begin::By(id) => resolve_unfinished(version, id, registry, at),
    }
}

fn resolve_unfinished(version: Version, id: TxnId, registry: &Registry, at: Timestamp) -> Resolved {
    match registry.state(id) {
        (State::Active, _) => Resolved::Later(id),
        (State::Preparing, end) if end > at || mutation::off(Rule::WaitForPreparing) => Resolved::Later(id),
        (State::Preparing, _) => Resolved::Undecided(id),
        (State::Committed, end) => Resolved::At(end),
        (State::Over, _) => match version.begin() {
            Begin::At(timestamp) => Resolved::At(timestamp),
            Begin::By(_) => Resolved::Gone,
        },
    }
}

/// What a reader at `at` sees of the chain that starts with `newest`.
#[inline]
pub(crate) fn visible(
    newest: Option<Version>,
    memory: &Memory,
    registry: &Registry,
    at: Timestamp,
    me: Option<TxnId>,
) -> Sees {
    visible_to_view(newest, memory, registry, at, me, |_| false)
}

/// The same for a view that passes over some of the transaction's own versions: those that `hides` says.
#[inline]
pub(crate) fn visible_to_view(
    newest: Option<Version>,
    memory: &Memory,
    registry: &Registry,
    at: Timestamp,
    me: Option<TxnId>,
    hides: impl Fn(Version) -> bool,
) -> Sees {
    let mut next = newest;
    while let Some(version) = next {
        match resolve(version, registry, at, me) {
            Resolved::At(begin) if begin > at => {}
            Resolved::Own if hides(version) => {}
            Resolved::At(_) | Resolved::Own => {
                return if version.is_tombstone() { Sees::Nothing } else { Sees::Row(version) };
            }
            Resolved::Later(_) => {}
            Resolved::Undecided(id) => return Sees::Undecided(id),
            Resolved::Gone => return Sees::Changed,
        }
        next = version.older(memory);
    }
    Sees::Nothing
}
