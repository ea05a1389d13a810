//! The durable end of a store, which its owner remembers elsewhere: files that are missing or old are noticed by it.
//!
//! ```text
//!   store ──── end: manifest's generation and length, last record of the journal ────► owner   (after each sync)
//!   store ◄─── position: how far the owner's log and checkpoints are durable ──────────────────── owner   (before each group)
//! ```
//!
//! A journal whose newest segment is gone looks like one that a crash has cut, and a manifest from yesterday checks out. Only
//! what is written somewhere else can tell. So owner and store each name the other's end:
//!
//! - The store tells its owner each end *after* the sync that made it durable, so an end that is remembered never lies ahead of
//!   the files. An opening with [`super::StoreOptions::least`] refuses files that end before that, and has changed nothing by then.
//! - Each group of the journal, and the manifest, carry the owner's position as it was before they were written. What is in the
//!   store depends on the owner's log up to there ([`super::Store::owner_position`]).

use std::fmt::Debug;
use std::sync::Arc;

use thermocline_base::sync::Mutex;

/// Up to where the files of a store are durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreEnd {
    /// Drawn when the store is made: a copy of a store is another one. 0: not known.
    pub identity: u64,
    /// Number of times that the manifest was written anew, and its length in bytes.
    pub manifest: (u64, u64),
    /// Number of the journal's last record.
    pub record: u64,
}

impl StoreEnd {
    /// The end as numbers, as other files carry it.
    #[must_use]
    pub fn fields(self) -> [u64; Self::FIELDS] {
        [self.identity, self.manifest.0, self.manifest.1, self.record]
    }

    /// Number of fields of an end.
    pub const FIELDS: usize = 4;

    /// The end that these numbers are.
    #[must_use]
    pub fn from_fields([identity, renewals, bytes, record]: [u64; Self::FIELDS]) -> Self {
        Self { identity, manifest: (renewals, bytes), record }
    }

    /// The end after hearing of `later`, too: the greater one of each part, unless that is of another store.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        if self.identity != later.identity {
            return later;
        }
        let (manifest, record) = (self.manifest.max(later.manifest), self.record.max(later.record));
        Self { manifest, record, ..self }
    }

    /// True if files that end at `self` may be those of which `least` was heard.
    #[must_use]
    pub fn reaches(self, least: Self) -> bool {
        (least.identity == 0 || self.identity == least.identity)
            && self.manifest >= least.manifest
            && self.record >= least.record
    }
}

/// The position up to which the store's owner is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnerPosition {
    /// A position of its log.
    pub log: u64,
    /// The number of its newest checkpoint.
    pub checkpoint: u64,
}

impl OwnerPosition {
    /// The greater one of each part.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        Self { log: self.log.max(later.log), checkpoint: self.checkpoint.max(later.checkpoint) }
    }
}

/// The owner of a store.
pub trait StoreOwner: Debug + Send + Sync {
    /// The position up to which it is durable.
    fn position(&self) -> OwnerPosition;

    /// The store is durable up to this end. Must not wait for the store.
    fn note_end(&self, end: StoreEnd);
}

/// Knows the end of an open store, and tells its owner.
#[derive(Debug, Default)]
pub(super) struct EndKeeper {
    end: Mutex<StoreEnd>,
    /// The greatest position of the owner that the files carry.
    position: Mutex<OwnerPosition>,
    owner: Option<Arc<dyn StoreOwner>>,
}

impl EndKeeper {
    pub(super) fn new(owner: Option<Arc<dyn StoreOwner>>) -> Arc<Self> {
        Arc::new(Self { owner, ..Self::default() })
    }

    /// Which store it is. Nothing of its end is noted before.
    pub(super) fn set_identity(&self, identity: u64) {
        self.end.lock().identity = identity;
    }

    /// The journal is durable up to a record.
    pub(super) fn note_record(&self, record: u64) {
        self.note(|end| end.record = end.record.max(record));
    }

    /// The manifest is durable as it is.
    pub(super) fn note_manifest(&self, generation: u64, bytes: u64) {
        self.note(|end| end.manifest = end.manifest.max((generation, bytes)));
    }

    /// Under the lock, so that the owner hears of ends in their order.
    fn note(&self, change: impl FnOnce(&mut StoreEnd)) {
        let mut end = self.end.lock();
        change(&mut end);
        if let Some(owner) = &self.owner {
            owner.note_end(*end);
        }
    }

    /// The files carry this position of the owner.
    pub(super) fn found_position(&self, position: OwnerPosition) {
        let mut known = self.position.lock();
        *known = known.and(position);
    }

    /// The position that the next write carries.
    pub(super) fn position(&self) -> OwnerPosition {
        if let Some(owner) = &self.owner {
            self.found_position(owner.position());
        }
        self.carried()
    }

    /// The greatest position that the files carry.
    pub(super) fn carried(&self) -> OwnerPosition {
        *self.position.lock()
    }

    pub(super) fn end(&self) -> StoreEnd {
        *self.end.lock()
    }
}
