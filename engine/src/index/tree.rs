//! The ordered index: a B+-tree of pages under optimistic latches.
//!
//! Entries are pairs (key, RowId) in the order of `memcmp` on the key, then of the RowId; pairs are unique. A leaf holds
//! entries, an inner node separators and children; node layout, prefix truncation and heads stand in `node`.
//!
//! # Protocol
//! Every node, and the root pointer, carries a version latch (`latch`). Each node knows its *fences*: it holds exactly
//! the pairs at or above its low and below its high one, and parents lead to it for exactly those.
//!
//! - A reader goes down from the root. At each step it takes the child's address, checks the node's version (so the
//!   address is one), takes the child's version, and checks the node's version again: at that moment the child was the
//!   child for the place that is sought, so the child's version stands for a state of the node that is responsible for
//!   it. What it then reads in a leaf counts once the leaf's version has been checked: the leaf has not changed since
//!   it was responsible, so it still is.
//! - Fences change only under a node's latch, with the contents: a split moves the upper part and the high fence at
//!   once, a merge takes the right node's part and fence and marks that node *obsolete*. So "responsible for" is part
//!   of what a version stands for.
//! - Writers go down as readers do and latch only the leaf. Splits latch parent and node, merges parent, node and right
//!   sibling; all of them by trying, from versions that they have read (see `latch`), so nothing waits while it holds
//!   a latch, and what was read before the latch still holds under it.
//! - Nodes and out-of-line keys that are unlinked are retired through the epochs.
//!
//! A scan copies the part of one leaf that lies in its range at one version, and continues at that leaf's fence with
//! the next call. The ranges of successive batches are disjoint and without gaps, whatever splits and merges happen
//! between them; an entry that stays lies in exactly one of them, and in the leaf that was responsible for it then.
//! So it is returned exactly once, in either direction.
//!
//! # Splits, merges
//! A leaf that is full where entries come in order (at its end, or each behind the one before) splits there, so that
//! what is left behind stays full; other nodes split in the middle, at the place nearby with the shortest separator.
//! A node that is less than a quarter full is merged into a neighbour under the same parent if both together fill no
//! more than three quarters. A merge that meets other writers is given up and left to [`Tree::maintain`].
//!
//! What merges leave stands far apart: one node in a block of sixteen keeps it from going back to the system. So nodes
//! move ([`Tree::move_nodes`], which merges what is half empty before): a copy takes a node's place under its parent while
//! both are latched, and the node becomes obsolete, as if it had been merged away. To readers that is one more reason to
//! start again.
//!
//! # Limits
//! Keys up to [`KEY_BYTES_MAX`]; those longer than a tenth of a node stand out of line. Nodes are 4 KiB (`N`, smaller in
//! tests). A node's entry costs 16 bytes and what is left of the key beyond prefix and 8 bytes.

mod change;
mod image;
mod key;
mod latch;
#[cfg(all(test, feature = "model"))]
mod model_tests;
mod node;
mod scan;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline_base::epoch::Guard;
use thermocline_base::ids::RowId;
use thermocline_base::sync::{AtomicBool, AtomicU64, Backoff, CachePadded, Mutex};

use super::counter::Counter;
use super::node_memory::{NodeMemory, OutOfMemory};
use crate::mutation::{self, Rule};
use image::{Fence, Fences, Image};
use key::Probe;
use latch::{Latch, Restart};
use node::{KIND_FAR, NodeRef, Sizes, View};
pub use scan::{Batch, Direction};

/// Bytes of the longest key.
pub const KEY_BYTES_MAX: usize = 4000;

/// Rows that a lookup copies before it calls back.
const LOOKUP_ROWS: usize = 16;

/// See the module.
pub struct Tree<M: NodeMemory, const N: usize = 4096> {
    root: CachePadded<Root>,
    entries: Counter,
    bytes: CachePadded<AtomicU64>,
    /// A merge was given up, so a sweep by `maintain` may find something to do.
    untidy: AtomicBool,
    sweep: Mutex<Option<Sweep>>,
    memory: Arc<M>,
}

/// A sweep that is under way.
#[derive(Default)]
struct Sweep {
    /// The low end of the next leaf.
    key: Vec<u8>,
    row: u64,
    /// What the tree held when the sweep began.
    bytes_before: u64,
}

/// Where [`Tree::move_nodes`] goes on: at first at the lowest leaf.
#[derive(Debug, Default)]
pub struct TreePlace {
    key: Vec<u8>,
    row: u64,
}

struct Root {
    version: AtomicU64,
    address: AtomicU64,
}

/// Which of two neighbouring nodes is responsible for a place between two entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    /// The node that holds, or would hold, the pair itself and what follows.
    AtOrAbove,
    /// The node that holds what precedes the pair.
    Below,
}

/// The way to a node: the node above it with the child's place, or the root pointer's version.
struct Path<'g, const N: usize> {
    parent: Option<(View<'g, N>, usize)>,
    root_version: u64,
    node: View<'g, N>,
}

/// Why a step was not done.
enum Failure {
    Restart,
    OutOfMemory,
}

impl From<Restart> for Failure {
    fn from(_: Restart) -> Self {
        Self::Restart
    }
}

impl From<OutOfMemory> for Failure {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Repeats a step until nobody disturbs it.
#[inline(always)]
fn retry<T>(mut step: impl FnMut() -> Result<T, Restart>) -> T {
    match step() {
        Ok(value) => value,
        Err(Restart) => {
            let mut backoff = Backoff::new();
            loop {
                backoff.wait();
                if let Ok(value) = step() {
                    return value;
                }
            }
        }
    }
}

enum Inserted {
    New,
    Old,
    /// The leaf has no room for so many words.
    Full(usize),
}

impl<M: NodeMemory, const N: usize> std::fmt::Debug for Tree<M, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("entries", &self.len()).finish_non_exhaustive()
    }
}

impl<M: NodeMemory, const N: usize> Tree<M, N> {
    /// Bytes of a node.
    pub const NODE_BYTES: usize = N;

    /// An empty tree.
    ///
    /// # Errors
    /// When there is no memory for its first node.
    pub fn new(memory: Arc<M>) -> Result<Self, OutOfMemory> {
        let cell = memory.alloc(N)?;
        // SAFETY: the cell has N bytes and is ours.
        let root = unsafe { Image::<N>::new(0, Fence::LOWEST, None).install_fresh(cell) };
        Ok(Self {
            root: CachePadded(Root { version: AtomicU64::new(0), address: AtomicU64::new(root.address()) }),
            entries: Counter::default(),
            bytes: CachePadded(AtomicU64::new(N as u64)),
            untidy: AtomicBool::new(false),
            sweep: Mutex::new(None),
            memory,
        })
    }

    /// Number of entries; exact when nobody is changing it.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries.get()
    }

    /// Is it empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that hold the tree.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) + size_of::<Self>() as u64
    }

    /// Levels of nodes.
    #[must_use]
    pub fn height(&self, _guard: &Guard<'_>) -> usize {
        retry(|| {
            let (_, root) = self.open_root()?;
            let level = root.shape().level();
            root.check().map(|()| usize::from(level) + 1)
        })
    }

    /// Adds a pair. `false`: it was there already.
    ///
    /// # Errors
    /// When there is no memory for a node or an out-of-line key; nothing was changed.
    ///
    /// # Panics
    /// If the key is longer than [`KEY_BYTES_MAX`].
    pub fn insert(&self, guard: &Guard<'_>, key: &[u8], row: RowId) -> Result<bool, OutOfMemory> {
        assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes: the limit is {KEY_BYTES_MAX}", key.len());
        let mut far = self.far_if_long(key)?;
        let probe = Probe::new(key, row.0);
        let mut backoff = Backoff::new();
        let outcome = loop {
            match self.try_insert(guard, probe, &mut far) {
                Ok(Inserted::New) => break Ok(true),
                Ok(Inserted::Old) => break Ok(false),
                Ok(Inserted::Full(words)) => {
                    if let Err(error) = self.make_room(guard, probe, 0, words) {
                        break Err(error);
                    }
                }
                Err(Restart) => backoff.wait(),
            }
        };
        if far != 0 {
            self.free_far_unpublished(far);
        }
        if outcome == Ok(true) {
            self.entries.add(1);
        }
        outcome
    }

    fn try_insert(&self, guard: &Guard<'_>, probe: Probe<'_>, far: &mut u64) -> Result<Inserted, Restart> {
        let leaf = self.leaf(guard, probe, Side::AtOrAbove)?;
        let (at, found) = leaf.lower_bound(&probe)?;
        if found {
            leaf.check()?;
            return Ok(Inserted::Old);
        }
        let mut leaf = leaf.latch()?;
        let words = leaf.words_for(probe.key.len(), false);
        if leaf.free_words() < words {
            if leaf.free_words() + leaf.shape().garbage() < words {
                return Ok(Inserted::Full(words));
            }
            self.compact(&mut leaf)?;
        }
        leaf.insert_at(at, probe.key, probe.row, probe.row, std::mem::take(far));
        Ok(Inserted::New)
    }

    /// Takes a pair out. `false`: it was not there.
    pub fn remove(&self, guard: &Guard<'_>, key: &[u8], row: RowId) -> bool {
        let probe = Probe::new(key, row.0);
        let Some((far, sparse)) = retry(|| {
            let leaf = self.leaf(guard, probe, Side::AtOrAbove)?;
            let (at, found) = leaf.lower_bound(&probe)?;
            if !found {
                leaf.check()?;
                return Ok(None);
            }
            let mut leaf = leaf.latch()?;
            let far = leaf.slot_far(leaf.slot(at));
            leaf.remove_at(at);
            Ok(Some((far, Self::is_sparse(&leaf))))
        }) else {
            return false;
        };
        self.entries.add(-1);
        self.retire_far(far);
        if sparse {
            self.merge(guard, probe, 0, change::USUAL);
        }
        true
    }

    /// Calls `f` with the rows of all entries of `key`, in order, until it breaks. `f` runs on a copy: it may use the
    /// tree.
    #[inline]
    pub fn lookup<B>(
        &self,
        guard: &Guard<'_>,
        key: &[u8],
        mut f: impl FnMut(RowId) -> ControlFlow<B>,
    ) -> Option<B> {
        let mut from = 0;
        loop {
            let mut rows = [0; LOOKUP_ROWS];
            let (count, more) = retry(|| self.copy_rows(guard, Probe::new(key, from), &mut rows));
            for row in &rows[..count] {
                if let ControlFlow::Break(value) = f(RowId(*row)) {
                    return Some(value);
                }
            }
            match more {
                Some(next) => from = next,
                None => return None,
            }
        }
    }

    /// Copies the rows of `probe`'s key from its row on. Returns how many, and where to go on, if there may be more.
    #[inline(always)]
    fn copy_rows(
        &self,
        guard: &Guard<'_>,
        probe: Probe<'_>,
        rows: &mut [u64; LOOKUP_ROWS],
    ) -> Result<(usize, Option<u64>), Restart> {
        let leaf = self.leaf(guard, probe, Side::AtOrAbove)?;
        let (mut at, _) = leaf.lower_bound(&probe)?;
        let in_leaf = leaf.shape().count();
        let prefix_len = leaf.prefix_len();
        let head = probe.head(prefix_len);
        let mut count = 0;
        let mut more = None;
        loop {
            if at >= in_leaf {
                // The key goes on in the next leaf only if it is the high fence's.
                let mut fence = Vec::new();
                if leaf.may_end_with(probe.key)
                    && let Some(high) = leaf.read_fence(true, &mut fence)?
                    && fence == probe.key
                {
                    more = Some(high.row);
                }
                break;
            }
            let slot = leaf.slot(at);
            if slot.head != head || leaf.compare_key(slot, &probe, prefix_len)?.is_ne() {
                break;
            }
            if count == LOOKUP_ROWS {
                more = Some(rows[count - 1] + 1);
                break;
            }
            rows[count] = slot.value();
            count += 1;
            at += 1;
        }
        if mutation::on(Rule::OptimisticRecheck) {
            leaf.check()?;
        }
        Ok((count, more))
    }

    // ---- going down ----

    #[inline(always)]
    fn open_root(&self) -> Result<(u64, View<'_, N>), Restart> {
        let version = latch::version(&self.root.version)?;
        let address = self.root.address.load(Ordering::Acquire);
        // SAFETY: the root's address is that of a node, and the callers are pinned. A node that has just ceased to be
        // the root is retired, not freed.
        let root = View::open(unsafe { NodeRef::at(address) })?;
        latch::check(&self.root.version, version)?;
        Ok((version, root))
    }

    /// The leaf that is responsible for a place. What is read from it counts once it was checked.
    #[inline(always)]
    fn leaf<'g>(
        &'g self,
        _guard: &'g Guard<'_>,
        probe: Probe<'_>,
        side: Side,
    ) -> Result<View<'g, N>, Restart> {
        let (_, mut node) = self.open_root()?;
        while node.shape().level() > 0 {
            node = Self::child(&node, probe, side)?.1;
        }
        Ok(node)
    }

    /// The child that is responsible for a place, and its number.
    #[inline(always)]
    fn child<'g>(node: &View<'g, N>, probe: Probe<'_>, side: Side) -> Result<(usize, View<'g, N>), Restart> {
        let bound = match side {
            Side::AtOrAbove => probe.behind(),
            Side::Below => probe,
        };
        let at = node.lower_bound(&bound)?.0.saturating_sub(1);
        let address = node.slot(at).value();
        node.check()?;
        thermocline_base::prefetch::prefetch(std::ptr::without_provenance::<u8>((address + 64) as usize));
        thermocline_base::prefetch::prefetch(std::ptr::without_provenance::<u8>((address + 128) as usize));
        // SAFETY: the version was checked after the address was read, so it is that of a child.
        let child = View::open(unsafe { NodeRef::at(address) })?;
        node.check()?;
        Ok((at, child))
    }

    /// The way to the node of a level that is responsible for a place. `None`: the tree is not that high.
    fn path<'g>(
        &'g self,
        _guard: &'g Guard<'_>,
        probe: Probe<'_>,
        level: u8,
    ) -> Result<Option<Path<'g, N>>, Restart> {
        let (root_version, mut node) = self.open_root()?;
        let mut parent = None;
        loop {
            let here = node.shape().level();
            node.check()?;
            if here <= level {
                return Ok((here == level).then_some(Path { parent, root_version, node }));
            }
            let (at, child) = Self::child(&node, probe, Side::AtOrAbove)?;
            parent = Some((node, at));
            node = child;
        }
    }

    // ---- memory ----

    fn new_cell(&self) -> Result<NonNull<u8>, OutOfMemory> {
        let cell = self.memory.alloc(N)?;
        self.bytes.fetch_add(N as u64, Ordering::Relaxed);
        Ok(cell)
    }

    /// The address of an out-of-line copy of a key that is too long to be inline, or 0.
    fn far_if_long(&self, key: &[u8]) -> Result<u64, OutOfMemory> {
        if key.len() <= Sizes::<N>::INLINE_MAX {
            return Ok(0);
        }
        let far = key::far_new(&*self.memory, key)?;
        self.bytes.fetch_add(key::far_cell_bytes(key.len()) as u64, Ordering::Relaxed);
        Ok(far)
    }

    fn far_cell(&self, far: u64) -> (NonNull<u8>, usize) {
        // SAFETY: the caller gives the key up, which is its own, so it is still there.
        let len = unsafe { key::far_bytes(far) }.len();
        let cell = NonNull::new(std::ptr::with_exposed_provenance_mut(far as usize));
        let bytes = key::far_cell_bytes(len);
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        (cell.expect("an out-of-line key has an address"), bytes)
    }

    /// Gives an out-of-line key back that was unlinked. 0 is none.
    fn retire_far(&self, far: u64) {
        if far != 0 {
            let (cell, bytes) = self.far_cell(far);
            // SAFETY: made by `far_new`, and unlinked.
            unsafe { self.memory.retire(cell, bytes) };
        }
    }

    /// Gives an out-of-line key back that nobody else has ever reached. 0 is none.
    fn free_far_unpublished(&self, far: u64) {
        if far != 0 {
            let (cell, bytes) = self.far_cell(far);
            // SAFETY: made by `far_new`, and never published.
            unsafe { self.memory.free(cell, bytes) };
        }
    }

    fn retire_node(&self, node: NodeRef<'_, N>) {
        self.bytes.fetch_sub(N as u64, Ordering::Relaxed);
        let cell = NonNull::new(std::ptr::with_exposed_provenance_mut(node.address() as usize));
        // SAFETY: nodes come from `alloc(N)`; this one was unlinked by its caller.
        unsafe { self.memory.retire(cell.expect("a node has an address"), N) };
    }

    /// Frees a node, what it leads to, and its out-of-line keys. Only for the owner of the tree.
    fn free_subtree(&self, address: u64) {
        // SAFETY: nobody else uses the tree any more, so the node is there and does not change.
        let Ok(node) = View::<N>::open(unsafe { NodeRef::at(address) }) else {
            panic!("a node that is linked is not obsolete");
        };
        let shape = node.shape();
        for at in 0..shape.count() {
            let slot = node.slot(at);
            if slot.kind() == KIND_FAR {
                self.free_far_unpublished(node.slot_far(slot));
            }
            if shape.level() > 0 {
                self.free_subtree(slot.value());
            }
        }
        let mut key = Vec::new();
        for high in [false, true] {
            if let Ok(Some(fence)) = node.read_fence(high, &mut key) {
                self.free_far_unpublished(fence.far);
            }
        }
        let cell = NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize));
        // SAFETY: as above; the cell came from `alloc(N)`.
        unsafe { self.memory.free(cell.expect("a node has an address"), N) };
    }
}

impl<M: NodeMemory, const N: usize> Drop for Tree<M, N> {
    fn drop(&mut self) {
        self.free_subtree(self.root.address.load(Ordering::Acquire));
    }
}
