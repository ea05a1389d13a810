//! One bound on how deep and how large a statement may be, for all that walks it: parser, binder, plans, executor.
//!
//! Two things are asked wherever something nests: a counter, which bounds what others then walk without asking, and the stack that is
//! left, which only the thread knows that the statement runs on. What exceeds either is refused with 54001.
//!
//! | bound | of | why |
//! |---|---|---|
//! | [`LEVELS`] | queries, views, WITH queries within each other, as they are bound; operators of a plan above each other | all walks of the plan are recursive |
//! | [`RELATIONS`] | tables, views, functions and sub-queries of a statement, views opened | views that name others twice double |
//! | [`STACK_BYTES`] | stack that has to be left at each level | calls between two levels, and errors, need some |

use crate::error::{Error, Result};

/// Levels of queries or operators.
pub(crate) const LEVELS: usize = 4_000;
/// Relations of a statement.
pub(crate) const RELATIONS: usize = 20_000;
/// Queries of a statement that are bound once more, for an aggregate of theirs that stands in a sub-query.
pub(crate) const REGROUPS: usize = 1_000;
/// Relations of one FROM: choosing an order looks at each for each.
pub(crate) const SIDE_BY_SIDE: usize = 1_600;
/// Stack that is left at each level.
const STACK_BYTES: usize = 256 << 10;

/// What is nested too deeply is refused with.
#[cold]
pub(crate) fn too_deep() -> Error {
    Error::new("54001", "stack depth limit exceeded")
        .hint("Nest queries, views and expressions less deeply, or split the statement.")
}

/// What has too many parts is refused with.
#[cold]
pub(crate) fn too_large(what: &str, most: usize) -> Error {
    Error::new("54001", format!("the statement is too complex: it has more than {most} {what}"))
        .hint("Split the statement; views count with all that they read.")
}

/// Is there stack left for one more level?
#[inline]
pub(crate) fn has_stack() -> Result<()> {
    // Where the OS does not say how much is left, the counters have to do.
    if stacker::remaining_stack().is_some_and(|left| left < STACK_BYTES) { Err(too_deep()) } else { Ok(()) }
}

/// The same for an operator with so many above it, each of which is called once more with each row.
#[inline]
pub(crate) fn has_stack_under(levels: usize) -> Result<()> {
    let needed = STACK_BYTES + levels * 1024;
    if levels > LEVELS || stacker::remaining_stack().is_some_and(|left| left < needed) {
        return Err(too_deep());
    }
    Ok(())
}
