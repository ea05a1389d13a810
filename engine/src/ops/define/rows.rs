//! Going over all rows of a table that is held: entering them into an index, writing them anew.
//!
//! Each chunk of what is written anew counts as changed since its image, whatever stands in it. For an image of the layout before
//! is as good to a checkpoint as one of the new layout, if nothing has changed since: it is confirmed then, and the log behind it is
//! cut. A chunk whose rows have all gone has no row that would say so:
//!
//! | time | | image of the chunk | without a mark |
//! |---|---|---|---|
//! | 50 | a checkpoint | K and L, as of 50 | |
//! | 60 | K and L are deleted, or move to the cold store; no snapshot sees them any more, and pruning empties the slots | | the old chunk is marked |
//! | 70 | a column is added | | the new chunk is not |
//! | 80 | a checkpoint | *confirmed* as of 80 | the log begins behind 60 |
//! | | a start | | K and L are back; if they had moved, they are there twice |

use thermocline_base::epoch::Guard;

use crate::catalog::table::{FormRef, IndexForm, TableForm};
use crate::error::{Error, Result};
use crate::hot::version::{Begin, TxnId, Version};
use crate::ops::progress::Advance;
use crate::row::KeyBuf;
use crate::session::Write;
use crate::session::db::Inner;
use crate::txn::prune::Item;

/// Enters all versions of all rows of `form` into one of its indexes. The table is held. `step` hears of each row.
pub(crate) fn fill_index(
    form: &TableForm,
    index: &IndexForm,
    guard: &Guard<'_>,
    step: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut key = KeyBuf::new();
    form.store.for_each_row(guard, |row, newest| {
        step()?;
        let mut next = Some(newest);
        while let Some(version) = next {
            next = version.older(&form.store.memory);
            if next.is_some() {
                version.mark_keys_changed();
            }
            if version.is_tombstone() {
                continue;
            }
            index.key_of(form, version, &mut key);
            key.check_len().map_err(|source| Error::Row { table: form.schema.name.clone(), source })?;
            index.insert(guard, &key, row)?;
        }
        Ok(())
    })
}

/// Is no key of a unique index held by two live rows? The table is held.
pub(super) fn check_unique(
    form: &TableForm,
    index: &IndexForm,
    guard: &Guard<'_>,
    advance: &mut Advance<'_>,
) -> Result<()> {
    if !index.is_unique() {
        return Ok(());
    }
    let mut key = KeyBuf::new();
    form.store.for_each_row(guard, |row, newest| {
        advance.row()?;
        if newest.is_tombstone() || index.is_exempt(form.row(newest)) {
            return Ok(());
        }
        index.key_of(form, newest, &mut key);
        let mut lost = None;
        let twin = index.find(guard, &key, |other| {
            other != row
                && match form.store.directory.newest_now(other, guard) {
                    Ok(newest) => {
                        newest.is_some_and(|other| !other.is_tombstone() && index.matches(form, other, &key))
                    }
                    Err(absent) => {
                        lost = Some(absent);
                        true
                    }
                }
        });
        match lost {
            Some(absent) => Err(absent.into()),
            None if twin => Err(index.refused(form, &key)),
            None => Ok(()),
        }
    })
}

/// Writes the rows of `old` anew into `new`, all versions, through `convert`. Those that the transaction `own` has written
/// become writes of it once more, which are returned: what they are copies of is nobody's when it commits.
pub(crate) fn rewrite(
    db: &Inner,
    old: &TableForm,
    new: FormRef,
    own: Option<TxnId>,
    convert: &Convert<'_>,
    step: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<Write>> {
    let (new_ref, new) = (new, new.get());
    let guard = &db.epochs.pin();
    let (mut row, mut writes) = (Vec::new(), Vec::new());
    for number in 0..old.store.directory.len() {
        if old.store.directory.get(number, guard).is_some() {
            new.store.directory.make(number, &new.store.slots)?;
            // Also where no row is left: its image may still have those that have gone since.
            new.store.directory.get(number, guard).expect("it was just made").mark_dirty();
        }
    }
    old.store.for_each_row(guard, |row_id, newest| {
        step()?;
        let mut chain = vec![newest];
        while let Some(older) = chain.last().and_then(|version| version.older(&old.store.memory)) {
            chain.push(older);
        }
        let mut below: Option<Version> = None;
        for version in chain.into_iter().rev() {
            row.clear();
            if !version.is_tombstone() {
                convert(old.row(version), &mut row)?;
            } else if version.moved().is_some() {
                row.extend_from_slice(version.row());
            }
            let begin = version.begin();
            let is_own = matches!(begin, Begin::By(id) if Some(id) == own);
            assert!(is_own || matches!(begin, Begin::At(_)), "a held table has no unfinished versions");
            let suffix = if version.is_tombstone() { &[][..] } else { old.suffix(version) };
            let copy = new.store.create(begin, below, row_id, version.is_tombstone(), &row, suffix)?;
            if version.moved().is_some() {
                copy.mark_moved();
                if version.is_image() {
                    // Nobody has left an item for it: its chunk would have gone as a whole.
                    let item = Item { table: new.id, row: row_id, waited_for: None };
                    db.garbage.leave(std::iter::once(item));
                }
            }
            if version.is_promoted() {
                copy.mark_promoted();
            }
            if version.is_superseded() {
                copy.supersede();
            }
            if is_own {
                writes.push(Write { form: new_ref, row: row_id, version: copy, replaced: below });
            }
            below = Some(copy);
        }
        let chunk = new.store.directory.get(row_id.chunk(), guard).expect("it was made above");
        chunk
            .slot(row_id.slot(), guard)
            .expect("chunks with a number have one size")
            .fill(below.expect("a row has a version"));
        Ok::<(), Error>(())
    })?;
    new.store.seal_all(guard);
    Ok(writes)
}

/// Makes a row of the new layout out of one of the old.
pub(crate) type Convert<'a> = dyn Fn(&[u8], &mut Vec<u8>) -> Result<()> + 'a;
