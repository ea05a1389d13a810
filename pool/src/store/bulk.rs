//! Bulk load: sorted input straight into the last level, past the journal.
//!
//! The block that takes batches is sealed first, so that the load has a position of its own: everything confirmed before
//! is older, everything after is newer. Its pieces become last-level pieces and leaves of their own where a leaf was empty,
//! and the newest young pieces elsewhere. One edit of the manifest makes all of them durable together.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::multiplex::block_on;

use super::codec;
use super::error::{Result, StoreError};
use super::filter::hash_of;
use super::inner::Inner;
use super::journal::Record;
use super::manifest::{Bound, Change};
use super::merge::Merged;
use super::piece::{Piece, PieceBuilder, PieceMeta};
use super::promise::Promise;
use super::types::{BatchId, IndexId, Kind, MAX_KEY_BYTES, MAX_RECORD_BYTES};
use super::version::{Leaf, Leaves, Load, Sealed, Version};
use super::work::set_leaf;
use crate::device::PageHeat;

impl Inner {
    pub(super) fn bulk_load<'a>(
        self: &Arc<Self>,
        batch: BatchId,
        entries: impl Iterator<Item = (IndexId, &'a [u8], &'a [u8])>,
    ) -> Result<u64> {
        self.writable()?;
        let mut pieces: Vec<(Bound, Arc<Piece>)> = Vec::new();
        let written = self.write_load(batch, entries, &mut pieces);
        if written.is_err() {
            pieces.iter().for_each(|(_, piece)| piece.give_up());
        }
        let count = written?;
        if count > 0 {
            self.place_load(batch, &pieces)?;
        }
        Ok(count)
    }

    fn write_load<'a>(
        &self,
        batch: BatchId,
        entries: impl Iterator<Item = (IndexId, &'a [u8], &'a [u8])>,
        pieces: &mut Vec<(Bound, Arc<Piece>)>,
    ) -> Result<u64> {
        let mut scratch = self.new_scratch();
        let new_piece = || PieceBuilder::new(&self.files, self.piece_name(), false, self.options.leaf_bytes);
        let mut builder = new_piece();
        let mut lower = Bound::default();
        let mut before: Option<Bound> = None;
        let mut count = 0;
        for (id, key, record) in entries {
            let index = id.as_u64();
            if key.len() > MAX_KEY_BYTES {
                return Err(StoreError::KeyTooLong { bytes: key.len(), max_bytes: MAX_KEY_BYTES });
            }
            if record.len() > MAX_RECORD_BYTES {
                return Err(StoreError::RecordTooLong { bytes: record.len(), max_bytes: MAX_RECORD_BYTES });
            }
            let here = Bound::new(index, key);
            if before.as_ref().is_some_and(|before| *before >= here) {
                return Err(StoreError::NotSorted { index: id, entry: count });
            }
            if builder.bytes() >= self.options.leaf_bytes {
                let full = std::mem::replace(&mut builder, new_piece());
                pieces.push((lower, Arc::new(full.finish(0, 0, &mut scratch)?)));
                lower = here.clone();
            } else if count == 0 {
                lower = here.clone();
            }
            builder.add(Merged {
                index,
                key,
                head: codec::head_of(key),
                hash: hash_of(index, key),
                batch: batch.0,
                kind: Kind::Put,
                value: record,
                heat: PageHeat::default(),
            })?;
            before = Some(here);
            count += 1;
        }
        if !builder.is_empty() {
            pieces.push((lower, Arc::new(builder.finish(0, 0, &mut scratch)?)));
        }
        Ok(count)
    }

    /// Gives the pieces a position, and lets the next flush put them into the leaves.
    fn place_load(self: &Arc<Self>, batch: BatchId, pieces: &[(Bound, Arc<Piece>)]) -> Result<()> {
        let done = Promise::new();
        {
            let mut journal = self.journal.lock();
            let position = journal.collect(&Record::Loaded(batch));
            journal.write().map_err(|(error, last_word)| if last_word { self.fail(error) } else { error })?;
            let mut control = self.control.lock();
            if position > control.sealed_to + 1 {
                self.seal(&mut control, position - 1, 0);
            }
            control.sealed_to = position;
            for (_, piece) in pieces {
                piece.confirm(position);
            }
            let mut version = Version::clone(&self.current());
            let load = Load { pieces: pieces.to_vec(), done: done.clone() };
            version.sealed.insert(0, Sealed::Load { load: Arc::new(load), position });
            self.publish(version);
            self.work_signal.ring();
        }
        let mut scratch = self.new_scratch();
        let mut wait = std::pin::pin!(done.wait());
        let mut context = Context::from_waker(Waker::noop());
        if self.options.threads > 0 {
            return block_on(wait);
        }
        loop {
            if let Poll::Ready(result) = wait.as_mut().poll(&mut context) {
                return result;
            }
            let worked = self.step_work(&mut scratch);
            assert!(worked, "a load that waits is work");
        }
    }

    /// Puts a load into the leaves; the caller is the flush whose turn it is.
    pub(super) fn flush_load(&self, load: &Load, position: u64, floor: u64) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let version = self.current();
        let leaves = &version.leaves;
        let metas = load.pieces.iter().map(|(_, piece)| PieceMeta {
            from: position,
            to: position,
            ..piece.meta.clone()
        });
        let mut changes: Vec<Change> = metas.map(Change::AddPiece).collect();
        let (first, last) = (&load.pieces[0], &load.pieces[load.pieces.len() - 1]);
        let end = last.1.fences.indexes().last().map(|fences| {
            let mut key = fences.last_key().to_vec();
            key.push(0);
            Bound::new(fences.index, &key)
        });
        let at = leaves.find(first.0.index, &first.0.key);
        let leaf = &leaves.list[at];
        let alone = leaf.young.is_empty()
            && leaf.last.is_none()
            && leaves.upper(at).is_none_or(|upper| end.as_ref().is_some_and(|end| end <= upper));
        let next = if alone {
            let mut list = leaves.list.clone();
            let fresh = load.pieces.iter().enumerate().map(|(number, (lower, piece))| {
                let lower = if number == 0 { leaf.lower.clone() } else { lower.clone() };
                Arc::new(Leaf::new(lower, Vec::new(), Some(Arc::clone(piece))))
            });
            let fresh: Vec<_> = fresh.collect();
            changes.extend(fresh.iter().map(|leaf| set_leaf(leaf)));
            list.splice(at..=at, fresh);
            Leaves::new(list)
        } else {
            let uppers = load.pieces[1..].iter().map(|(lower, _)| Some(lower.clone())).chain([end]);
            let placed: Vec<_> = load
                .pieces
                .iter()
                .zip(uppers)
                .map(|((lower, piece), upper)| (Arc::clone(piece), lower.clone(), upper))
                .collect();
            changes.extend(placed.iter().map(|(piece, from, to)| Change::Place {
                piece: piece.meta.id,
                from: from.clone(),
                to: to.clone(),
            }));
            leaves.with(&placed)
        };
        changes.push(Change::Flushed(position));
        changes.push(Change::JournalFloor(floor));
        let new = load.pieces.iter().map(|(_, piece)| Arc::clone(piece)).collect();
        self.change_locked(&mut manifest, new, changes, Vec::new(), |version| {
            version.leaves = Arc::new(next);
            version.sealed.pop();
            Ok(Vec::new())
        })
    }
}
