//! Which transactions have their body on the calling thread's stack: what a thread does inside of such a body holds the
//! transaction up until it is done.
//!
//! A body that runs another transaction (`db.run` in `db.run`, or an inner one that is awaited) does not go on before that one
//! has ended. If the inner one waited for a row of the outer one, neither would ever end, and the graph of waits would not know,
//! because the outer transaction waits for nothing: its thread does. So the stack is kept, and whatever the inner transaction
//! waits for counts as waited for by all outer ones ([`crate::ops::drive::Driver::wait`]).
//!
//! ```text
//!  thread 1                                  graph of waits
//!  db.run(outer)    locks row 1
//!    db.run(inner)  wants row 1, of outer    inner ─► outer, outer ─► outer: a circle
//! ```
//!
//! Rules: a body is entered for each poll and left after it, so the stack is right for tasks that move between threads. It is a
//! list through the frames of the polls themselves: what is on it costs two writes a poll, and it is read only where a wait begins.
//! A body is polled where it was made: moving it would copy all that it holds.
//!
//! Limits: a transaction that was begun with `Database::begin` has no body, and another thread may end it. Transactions of two
//! databases that hold each other up are not found.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll};

use crate::hot::version::TxnId;
use crate::txn::registry::Registry;

/// A body that is being polled: its transaction's registry and place, and the body around it.
struct Body {
    registry: *const Registry,
    place: u32,
    outer: *const Body,
}

thread_local! {
    /// The innermost body.
    static INNERMOST: Cell<*const Body> = const { Cell::new(ptr::null()) };
}

/// The threads of a modelled execution share the thread-local variables of one operating-system thread.
fn is_modelled() -> bool {
    #[cfg(feature = "model")]
    return thermocline_base::sync::model::active();
    #[cfg(not(feature = "model"))]
    false
}

/// Takes the innermost body out of the list when it is dropped.
struct Entered<'a> {
    innermost: &'a Cell<*const Body>,
    outer: *const Body,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.innermost.set(self.outer);
    }
}

/// The body of the transaction in `place`, while it runs.
pub(crate) struct Running<'a, F> {
    pub(crate) registry: &'a Registry,
    pub(crate) place: u32,
    pub(crate) body: Pin<&'a mut F>,
}

impl<F: Future> Future for Running<'_, F> {
    type Output = F::Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if is_modelled() {
            return self.body.as_mut().poll(context);
        }
        INNERMOST.with(|innermost| {
            let entry = Body { registry: self.registry, place: self.place, outer: innermost.get() };
            let _entered = Entered { innermost, outer: entry.outer };
            innermost.set(&raw const entry);
            self.body.as_mut().poll(context)
        })
    }
}

/// The transactions of this registry that stand still as long as the one in `place` does, as far as they hold anything.
pub(crate) fn held_up(registry: &Registry, place: u32) -> Vec<TxnId> {
    let outer = places(registry).into_iter().filter(|other| *other != place);
    outer.filter_map(|other| registry.active_in(other)).collect()
}

/// The places of this registry's transactions that do not go on before the calling thread does.
pub(crate) fn places(registry: &Registry) -> Vec<u32> {
    let mut places = Vec::new();
    if is_modelled() {
        return places;
    }
    let mut next = INNERMOST.get();
    // SAFETY: what is in the list lies in frames of [`Running::poll`] on this thread's stack, below the present one: each takes its
    // entry out before it returns or unwinds, and nobody else has a reference to change it by.
    while let Some(body) = unsafe { next.as_ref() } {
        next = body.outer;
        if ptr::eq(body.registry, registry) {
            places.push(body.place);
        }
    }
    places
}
