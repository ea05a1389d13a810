//! What changes the shape of the tree: splits, merges, the sweep that finishes what was given up, and moves of nodes.

use super::*;
use node::Latched;

/// Entries in order, one behind the other, after which a full leaf splits where the last one came.
const RUN_MIN: usize = 4;
/// When a node is merged with a neighbour: if it is filled to less, and both together are to no more.
#[derive(Clone, Copy)]
pub(super) struct Fill {
    sparse_percent: usize,
    joined_percent: usize,
}

/// Whenever an entry is removed.
pub(super) const USUAL: Fill = Fill { sparse_percent: 25, joined_percent: 75 };
/// When the whole tree is made small.
const TIGHT: Fill = Fill { sparse_percent: 50, joined_percent: 88 };

/// How often a merge is tried before it is left to the sweep.
const MERGE_ATTEMPTS: usize = 4;
/// The same of a move, before the node is left where it is.
const MOVE_ATTEMPTS: usize = 4;
/// Leaves that one call of `maintain` looks at.
const SWEEP_LEAVES: usize = 32;

/// The out-of-line copies of a separator: for the left node's high fence, the right one's low fence, and the parent.
#[derive(Clone, Copy, Default)]
struct Fars([u64; 3]);

/// A split that is ready to be done.
struct Plan<const N: usize> {
    separator: (Vec<u8>, u64),
    fars: Fars,
    left: Image<N>,
    right: Image<N>,
    /// The out-of-line key of the separator that moves up from an inner node.
    freed: u64,
}

enum Split {
    Done,
    /// The parent has no room for so many words.
    ParentFull(usize),
}

impl<M: NodeMemory, const N: usize> Tree<M, N> {
    /// Words of a node that can hold fences and entries.
    const CAPACITY: usize = Sizes::<N>::WORDS - Sizes::<N>::SLOTS;

    pub(super) fn is_sparse(node: &View<'_, N>) -> bool {
        Self::is_below(node, USUAL)
    }

    fn is_below(node: &View<'_, N>, fill: Fill) -> bool {
        node.used_words() < Self::CAPACITY * fill.sparse_percent / 100
    }

    /// Rewrites a latched node without its garbage.
    pub(super) fn compact(&self, node: &mut Latched<'_, N>) -> Result<(), Restart> {
        Self::image_of(node)?.install(node);
        Ok(())
    }

    /// What is in a latched node, without its garbage.
    fn image_of(node: &Latched<'_, N>) -> Result<Image<N>, Restart> {
        let fences = Fences::of(node)?;
        let shape = node.shape();
        let mut image = Image::new(shape.level(), fences.low(), fences.high());
        assert!(image.push_from(node, 0..shape.count())?, "a node's entries fit into it");
        Ok(image)
    }

    /// Splits the node of a level that is responsible for a place, unless it has room for `words`.
    ///
    /// # Errors
    /// When there is no memory for a new node; nothing was changed at this level.
    pub(super) fn make_room(
        &self,
        guard: &Guard<'_>,
        probe: Probe<'_>,
        level: u8,
        words: usize,
    ) -> Result<(), OutOfMemory> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_split(guard, probe, level, words) {
                Ok(Split::Done) => return Ok(()),
                Ok(Split::ParentFull(words)) => self.make_room(guard, probe, level + 1, words)?,
                Err(Failure::Restart) => backoff.wait(),
                Err(Failure::OutOfMemory) => return Err(OutOfMemory),
            }
        }
    }

    fn try_split(
        &self,
        guard: &Guard<'_>,
        probe: Probe<'_>,
        level: u8,
        words: usize,
    ) -> Result<Split, Failure> {
        let Some(path) = self.path(guard, probe, level)? else { return Ok(Split::Done) };
        let (at, _) = path.node.lower_bound(&probe)?;
        let Some((parent, child_at)) = path.parent else {
            return self.try_split_root(&path, probe, at, words);
        };
        let mut parent = parent.latch()?;
        let mut node = path.node.latch()?;
        if Self::has_room(&node, words) {
            return Ok(Split::Done);
        }
        let plan = self.plan(&node, probe, at)?;
        let (key, row) = (plan.separator.0.as_slice(), plan.separator.1);
        let parent_words = parent.words_for(key.len(), row != 0);
        if !Self::has_room(&parent, parent_words) {
            self.abandon(&plan.fars);
            return Ok(Split::ParentFull(parent_words));
        }
        let Ok(cell) = self.new_cell() else {
            self.abandon(&plan.fars);
            return Err(Failure::OutOfMemory);
        };
        if parent.free_words() < parent_words {
            self.compact(&mut parent)?;
        }
        // SAFETY: the cell has N bytes and is ours.
        let right = unsafe { plan.right.install_fresh(cell) };
        parent.insert_at(child_at + 1, key, row, right.address(), plan.fars.0[2]);
        plan.left.install(&mut node);
        drop((node, parent));
        self.retire_far(plan.freed);
        Ok(Split::Done)
    }

    fn try_split_root(
        &self,
        path: &Path<'_, N>,
        probe: Probe<'_>,
        at: usize,
        words: usize,
    ) -> Result<Split, Failure> {
        let mut pointer = Latch::take(&self.root.version, path.root_version)?;
        let mut node = path.node.latch()?;
        if Self::has_room(&node, words) {
            return Ok(Split::Done);
        }
        let plan = self.plan(&node, probe, at)?;
        let Ok(right_cell) = self.new_cell() else {
            self.abandon(&plan.fars);
            return Err(Failure::OutOfMemory);
        };
        let Ok(root_cell) = self.new_cell() else {
            self.abandon(&plan.fars);
            self.bytes.fetch_sub(N as u64, Ordering::Relaxed);
            // SAFETY: nobody else knows the cell, which came from `alloc(N)`.
            unsafe { self.memory.free(right_cell, N) };
            return Err(Failure::OutOfMemory);
        };
        // SAFETY: the cell has N bytes and is ours.
        let right = unsafe { plan.right.install_fresh(right_cell) };
        let mut root = Image::<N>::new(node.shape().level() + 1, Fence::LOWEST, None);
        root.push_first_child(node.node.address());
        let (key, row) = &plan.separator;
        assert!(root.push(key, *row, right.address(), plan.fars.0[2]), "a separator fits into a new root");
        // SAFETY: the cell has N bytes and is ours.
        let root = unsafe { root.install_fresh(root_cell) };
        plan.left.install(&mut node);
        pointer.changed();
        self.root.address.store(root.address(), Ordering::Release);
        drop((node, pointer));
        self.retire_far(plan.freed);
        Ok(Split::Done)
    }

    fn has_room(node: &View<'_, N>, words: usize) -> bool {
        node.free_words() + node.shape().garbage() >= words
    }

    /// Chooses where to split a latched node that has no room for an entry at `at`, and prepares both halves.
    fn plan(&self, node: &Latched<'_, N>, probe: Probe<'_>, at: usize) -> Result<Plan<N>, Failure> {
        let shape = node.shape();
        let count = shape.count();
        let leaf = shape.level() == 0;
        let fences = Fences::of(node)?;
        let mut prefix = Vec::new();
        node.read_prefix(&mut prefix)?;
        let in_order = if leaf {
            let (last, run) = node.run();
            at == last + 1 && run >= RUN_MIN || at == count && fences.high().is_none()
        } else {
            at == count && fences.high().is_none()
        };
        // What is in order splits where the next entry comes; the fence may make the left node too long for that.
        let mut choices = [0; 4];
        if in_order {
            choices = [at, at.saturating_sub(1), at.saturating_sub(2), 0];
        }
        let highest = if leaf { count } else { count - 1 };
        choices.iter_mut().for_each(|choice| *choice = (*choice).min(highest));
        choices[3] = Self::middle(node, count);
        for choice in choices.into_iter().filter(|choice| *choice > 0) {
            let mut right_key = Vec::new();
            let (separator, freed) = if leaf {
                let right = if choice < count {
                    let slot = node.slot(choice);
                    node.append_key(slot, &prefix, &mut right_key)?;
                    Probe::new(&right_key, slot.value())
                } else {
                    probe
                };
                let mut left_key = Vec::new();
                node.append_key(node.slot(choice - 1), &prefix, &mut left_key)?;
                (key::separator(&left_key, right), 0)
            } else {
                let slot = node.slot(choice);
                node.append_key(slot, &prefix, &mut right_key)?;
                ((right_key, node.slot_row(slot, false)), node.slot_far(slot))
            };
            let fars = self.fars_for(&separator.0)?;
            let parts = self.halves(node, &fences, (&separator, &fars), choice);
            match parts {
                Ok(Some((left, right))) => {
                    return Ok(Plan { separator, fars, left, right, freed });
                }
                Ok(None) => self.abandon(&fars),
                Err(restart) => {
                    self.abandon(&fars);
                    return Err(restart.into());
                }
            }
        }
        panic!("a full node can be split in the middle");
    }

    fn halves(
        &self,
        node: &Latched<'_, N>,
        fences: &Fences,
        ((key, row), fars): (&(Vec<u8>, u64), &Fars),
        choice: usize,
    ) -> Result<Option<(Image<N>, Image<N>)>, Restart> {
        let (level, count) = (node.shape().level(), node.shape().count());
        let mut left = Image::new(level, fences.low(), Some(Fence::new(key, *row, fars.0[0])));
        let mut right = Image::new(level, Fence::new(key, *row, fars.0[1]), fences.high());
        let mut from = choice;
        if level > 0 {
            right.push_first_child(node.slot(choice).value());
            from += 1;
        }
        let fit = left.push_from(node, 0..choice)? && right.push_from(node, from..count)?;
        Ok(fit.then_some((left, right)))
    }

    /// The place around the middle, by size, where neighbouring keys part earliest.
    fn middle(node: &Latched<'_, N>, count: usize) -> usize {
        assert!(count >= 3, "a node has room for three entries");
        let weight = |at: usize| 2 + node.slot_tail_words(node.slot(at));
        let total: usize = (0..count).map(weight).sum();
        let mut sum = 0;
        let mut middle = 0;
        while sum < total / 2 {
            sum += weight(middle);
            middle += 1;
        }
        middle = middle.clamp(1, count - 1);
        let shared = |at: usize| (node.slot(at - 1).head ^ node.slot(at).head).leading_zeros() / 8;
        let reach = count / 16;
        (middle.saturating_sub(reach).max(1)..=(middle + reach).min(count - 1))
            .min_by_key(|at| (shared(*at), at.abs_diff(middle)))
            .unwrap_or(middle)
    }

    fn fars_for(&self, key: &[u8]) -> Result<Fars, OutOfMemory> {
        let mut fars = Fars::default();
        for at in 0..3 {
            match self.far_if_long(key) {
                Ok(far) => fars.0[at] = far,
                Err(error) => {
                    self.abandon(&fars);
                    return Err(error);
                }
            }
        }
        Ok(fars)
    }

    fn abandon(&self, fars: &Fars) {
        fars.0.iter().for_each(|far| self.free_far_unpublished(*far));
    }

    // ---- merging ----

    /// Merges the node of a level that is responsible for a place with a neighbour, if it is sparse, and goes on with
    /// the nodes above it.
    pub(super) fn merge(&self, guard: &Guard<'_>, probe: Probe<'_>, level: u8, fill: Fill) {
        let mut backoff = Backoff::new();
        for _ in 0..MERGE_ATTEMPTS {
            match self.try_merge(guard, probe, level, fill) {
                Ok(true) => return self.merge(guard, probe, level + 1, USUAL),
                Ok(false) => return,
                Err(Restart) => backoff.wait(),
            }
        }
        self.untidy.store(true, Ordering::Relaxed);
    }

    /// One merge. Should the level above be looked at?
    fn try_merge(&self, guard: &Guard<'_>, probe: Probe<'_>, level: u8, fill: Fill) -> Result<bool, Restart> {
        let Some(path) = self.path(guard, probe, level)? else { return Ok(false) };
        let Some((parent, at)) = path.parent else { return self.try_lower_root(&path) };
        let children = parent.shape().count();
        let sparse = Self::is_below(&path.node, fill);
        parent.check()?;
        path.node.check()?;
        if children == 1 {
            // Only once the parent has been merged does this node have a neighbour.
            self.untidy.store(true, Ordering::Relaxed);
            return Ok(true);
        }
        if !sparse {
            return Ok(false);
        }
        let mut parent = parent.latch()?;
        let right_neighbour = at + 1 < children;
        if right_neighbour && self.join(&mut parent, at, fill)?
            || at > 0 && self.join(&mut parent, at - 1, fill)?
        {
            return Ok(Self::is_sparse(&parent) || children == 2);
        }
        Ok(false)
    }

    /// Merges the child `at` of a latched node with the one behind it, if both fit into one with some room left.
    fn join(&self, parent: &mut Latched<'_, N>, at: usize, fill: Fill) -> Result<bool, Restart> {
        let child = |at: usize| {
            // SAFETY: the parent is latched, so its children are nodes, and stay.
            let view = View::<N>::open_free(unsafe { NodeRef::at(parent.slot(at).value()) })?;
            view.latch()
        };
        let mut left = child(at)?;
        let mut right = child(at + 1)?;
        let level = left.shape().level();
        let (left_count, right_count) = (left.shape().count(), right.shape().count());
        // A node of one child, or an empty leaf, goes wherever it fits.
        let trifling = left_count.min(right_count) <= 1;
        if left.used_words() + right.used_words() > Self::CAPACITY * fill.joined_percent / 100 && !trifling {
            return Ok(false);
        }
        let (left_fences, right_fences) = (Fences::of(&left)?, Fences::of(&right)?);
        let between = right_fences.low();
        let mut image = Image::<N>::new(level, left_fences.low(), right_fences.high());
        let mut fits = image.push_from(&left, 0..left_count)?;
        let mut from = 0;
        let mut moved_far = 0;
        if level > 0 && fits {
            // The right node's first separator was its low fence; the fence's out-of-line key goes on as its own.
            moved_far = between.info.far;
            let first = right.slot(0).value();
            fits = image.push(between.key, between.info.row, first, moved_far);
            from = 1;
        }
        if !fits || !image.push_from(&right, from..right_count)? {
            return Ok(false);
        }
        let separator_far = parent.slot_far(parent.slot(at + 1));
        image.install(&mut left);
        parent.remove_at(at + 1);
        right.latch.obsolete();
        let gone = right.node;
        drop((right, left));
        self.retire_far(separator_far);
        if let Some(high) = left_fences.high() {
            self.retire_far(high.info.far);
        }
        if moved_far == 0 {
            self.retire_far(between.info.far);
        }
        self.retire_node(gone);
        Ok(true)
    }

    /// Makes the only child of an inner root the root.
    fn try_lower_root(&self, path: &Path<'_, N>) -> Result<bool, Restart> {
        let shape = path.node.shape();
        path.node.check()?;
        if shape.level() == 0 || shape.count() > 1 {
            return Ok(false);
        }
        let mut pointer = Latch::take(&self.root.version, path.root_version)?;
        let mut node = path.node.latch()?;
        pointer.changed();
        self.root.address.store(node.slot(0).value(), Ordering::Release);
        node.latch.obsolete();
        let gone = node.node;
        drop((node, pointer));
        self.retire_node(gone);
        // The new root may have a single child as well; it stands one level lower, so the sweep comes back for it.
        self.untidy.store(true, Ordering::Relaxed);
        Ok(false)
    }

    /// Looks at some leaves for merges that were given up. Is more left to do?
    pub fn maintain(&self, guard: &Guard<'_>) -> bool {
        let mut sweep = self.sweep.lock();
        if sweep.is_none() {
            if !self.untidy.load(Ordering::Relaxed) {
                return false;
            }
            self.untidy.store(false, Ordering::Relaxed);
        }
        let Sweep { mut key, mut row, bytes_before } =
            sweep.take().unwrap_or_else(|| Sweep { bytes_before: self.memory_bytes(), ..Sweep::default() });
        for _ in 0..SWEEP_LEAVES {
            let probe = Probe::new(&key, row);
            let sparse = retry(|| {
                let leaf = self.leaf(guard, probe, Side::AtOrAbove)?;
                let sparse = Self::is_sparse(&leaf);
                leaf.check().map(|()| sparse)
            });
            if sparse {
                self.merge(guard, probe, 0, USUAL);
            }
            let next = self.behind_leaf(guard, probe);
            let Some(next) = next else {
                // Single children on the way up from the last leaf, and a root with one child.
                let levels = self.height(guard) as u8;
                (1..levels).rev().for_each(|level| self.merge(guard, Probe::new(&[], 0), level, USUAL));
                // A sweep that has achieved nothing is not repeated: what is left has no neighbour that has room.
                if self.memory_bytes() >= bytes_before {
                    self.untidy.store(false, Ordering::Relaxed);
                }
                return self.untidy.load(Ordering::Relaxed);
            };
            (key, row) = next;
        }
        *sweep = Some(Sweep { key, row, bytes_before });
        true
    }

    /// Where the leaf behind the one that is responsible for a place begins. `None`: that is the last one.
    fn behind_leaf(&self, guard: &Guard<'_>, probe: Probe<'_>) -> Option<(Vec<u8>, u64)> {
        let mut key = Vec::new();
        let high = retry(|| {
            let leaf = self.leaf(guard, probe, Side::AtOrAbove)?;
            let high = leaf.read_fence(true, &mut key)?;
            leaf.check().map(|()| high)
        });
        high.map(|high| (key, high.row))
    }

    // ---- moving ----

    /// Merges leaves that are half empty, and moves nodes out of memory that is being emptied: looks at so many leaves from a
    /// place on, and at the inner nodes above them. `false`: there are no more leaves behind them. Nodes that others are
    /// changing are left alone.
    ///
    /// # Errors
    /// When there is no memory to move a node to; all is as it was.
    pub fn move_nodes(
        &self,
        guard: &Guard<'_>,
        from: &mut TreePlace,
        leaves: usize,
    ) -> Result<bool, OutOfMemory> {
        for _ in 0..leaves {
            let probe = Probe::new(&from.key, from.row);
            let is_half_empty = retry(|| {
                let leaf = self.leaf(guard, probe, Side::AtOrAbove)?;
                let is_half_empty = Self::is_below(&leaf, TIGHT);
                leaf.check().map(|()| is_half_empty)
            });
            if is_half_empty {
                self.merge(guard, probe, 0, TIGHT);
            }
            // An inner node is looked at with the first of its children.
            let mut level = 0;
            while self.move_node(guard, probe, level)? {
                level += 1;
            }
            let Some((key, row)) = self.behind_leaf(guard, probe) else { return Ok(false) };
            *from = TreePlace { key, row };
        }
        Ok(true)
    }

    /// Moves the node of a level that is responsible for a place, if its memory is being emptied. Is it the first child of
    /// another one?
    fn move_node(&self, guard: &Guard<'_>, probe: Probe<'_>, level: u8) -> Result<bool, OutOfMemory> {
        let mut backoff = Backoff::new();
        for _ in 0..MOVE_ATTEMPTS {
            match self.try_move(guard, probe, level) {
                Ok(is_first) => return Ok(is_first),
                Err(Failure::Restart) => backoff.wait(),
                Err(Failure::OutOfMemory) => return Err(OutOfMemory),
            }
        }
        Ok(false)
    }

    fn try_move(&self, guard: &Guard<'_>, probe: Probe<'_>, level: u8) -> Result<bool, Failure> {
        let Some(path) = self.path(guard, probe, level)? else { return Ok(false) };
        let is_first = path.parent.is_some_and(|(_, at)| at == 0);
        // SAFETY: we are pinned, and it was linked when the way to it was found.
        if !unsafe { self.memory.is_leaving(path.node.node.cell()) } {
            return Ok(is_first);
        }
        let gone = match path.parent {
            Some((parent, at)) => {
                let (mut parent, mut node) = (parent.latch()?, path.node.latch()?);
                let copy = self.copy_of(&node)?;
                parent.lead_to(at, copy.address());
                node.latch.obsolete();
                node.node
            }
            None => {
                let mut pointer = Latch::take(&self.root.version, path.root_version)?;
                let mut node = path.node.latch()?;
                let copy = self.copy_of(&node)?;
                pointer.changed();
                self.root.address.store(copy.address(), Ordering::Release);
                node.latch.obsolete();
                node.node
            }
        };
        // Its out-of-line keys are the copy's.
        self.retire_node(gone);
        Ok(is_first)
    }

    /// The same node again, in a cell that nobody else knows.
    fn copy_of(&self, node: &Latched<'_, N>) -> Result<NodeRef<'_, N>, Failure> {
        let image = Self::image_of(node)?;
        let cell = self.new_cell()?;
        // SAFETY: the cell has N bytes and is ours.
        Ok(unsafe { image.install_fresh(cell) })
    }
}
