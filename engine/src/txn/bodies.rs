//! Which transactions have their body on the calling thread's stack: what a thread does inside of such a body holds the
//! transaction up until it is done.
//!
//! A body that runs another transaction (`db.run` in `db.run`, or an inner one that is awaited) does not go on before that one
//! has ended. If the inner one waited for a row of the outer one, neither would ever end, and the graph of waits would not know,
//! because the outer transaction waits for nothing: its thread does. So the stack is kept, and whatever the inner transaction
//! waits for counts as waited for by all outer ones ([`crate::transaction::Transaction::wait`]).
//!
//! ```text
//!  thread 1                                  graph of waits
//!  db.run(outer)    locks row 1
//!    db.run(inner)  wants row 1, of outer    inner ─► outer, outer ─► outer: a circle
//! ```
//!
//! Rules: a body is entered for each poll and left after it, so the stack is right for tasks that move between threads. What is
//! on it costs a push and a pop a poll; it is read only where a wait begins.
//!
//! Limits: a transaction that was begun with `Database::begin` has no body, and another thread may end it. Transactions of two
//! databases that hold each other up are not found.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::hot::version::TxnId;
use crate::txn::registry::Registry;

/// A body that is being polled: its transaction's registry, as an address, and place.
type Body = (usize, u32);

thread_local! {
    static BODIES: RefCell<Vec<Body>> = const { RefCell::new(Vec::new()) };
}

/// The threads of a modelled execution share the thread-local variables of one operating-system thread.
fn is_modelled() -> bool {
    #[cfg(feature = "model")]
    return thermocline_base::sync::model::active();
    #[cfg(not(feature = "model"))]
    false
}

/// On the stack, until it is dropped.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        BODIES.with_borrow_mut(|bodies| _ = bodies.pop());
    }
}

/// Runs the body of the transaction in `place` to its end.
pub(crate) async fn run_body<T>(registry: &Registry, place: u32, body: impl Future<Output = T>) -> T {
    let mut body = std::pin::pin!(body);
    std::future::poll_fn(|context| poll_body(registry, place, body.as_mut(), context)).await
}

#[inline]
fn poll_body<T>(
    registry: &Registry,
    place: u32,
    body: Pin<&mut impl Future<Output = T>>,
    context: &mut Context<'_>,
) -> Poll<T> {
    if is_modelled() {
        return body.poll(context);
    }
    BODIES.with_borrow_mut(|bodies| bodies.push((std::ptr::from_ref(registry).addr(), place)));
    let _entered = Entered;
    body.poll(context)
}

/// The transactions of this registry that stand still as long as the one in `place` does, as far as they hold anything.
pub(crate) fn held_up(registry: &Registry, place: u32) -> Vec<TxnId> {
    if is_modelled() {
        return Vec::new();
    }
    let own = std::ptr::from_ref(registry).addr();
    BODIES.with_borrow(|bodies| {
        let others = bodies.iter().filter(|(of, outer)| *of == own && *outer != place);
        others.filter_map(|(_, outer)| registry.active_in(*outer)).collect()
    })
}
