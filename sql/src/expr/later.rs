//! Work that an operator cannot do where it finds it: rows come while the engine is pinned, when nothing can be waited for. It is done
//! in the statement's next pause, which is due at once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;

use super::Context;
use crate::error::Result;

/// A piece of work.
pub(crate) trait Task {
    fn run<'t>(self: Box<Self>, context: &'t Context) -> Pin<Box<dyn Future<Output = Result<()>> + 't>>;
}

/// The work that is to be done, in its order.
#[derive(Default)]
pub(crate) struct Later {
    tasks: RefCell<VecDeque<Box<dyn Task>>>,
    running: Cell<bool>,
}

impl std::fmt::Debug for Later {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Later").field("tasks", &self.tasks.borrow().len()).finish()
    }
}

/// A task runs, whose own pauses begin no other one.
struct Running<'l>(&'l Cell<bool>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Later {
    /// True if there is work that nothing does yet.
    pub(super) fn has_some(&self) -> bool {
        !self.running.get() && !self.tasks.borrow().is_empty()
    }

    /// Forgets the work of an attempt that has ended.
    pub(crate) fn clear(&self) {
        self.tasks.borrow_mut().clear();
        self.running.set(false);
    }
}

impl Context {
    /// Has work done in the next pause.
    pub(crate) fn do_later(&self, task: Box<dyn Task>) {
        self.later.tasks.borrow_mut().push_back(task);
        self.pace.end_turn();
    }

    /// Does the work that is there, unless it is being done.
    pub(crate) async fn do_now(&self) -> Result<()> {
        if !self.later.has_some() {
            return Ok(());
        }
        self.later.running.set(true);
        let _running = Running(&self.later.running);
        loop {
            let Some(task) = self.later.tasks.borrow_mut().pop_front() else { return Ok(()) };
            task.run(self).await?;
        }
    }
}
