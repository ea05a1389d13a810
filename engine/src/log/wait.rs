//! Waiting for the disk, and for space in the ring.
//!
//! A waiter looks at the mark first; only if it has to wait does it take the list's lock, look again, and leave its
//! waker. The flusher moves the mark, then takes the lock and wakes who is due. So whoever looked before the mark moved
//! is in the list when the flusher comes, and whoever came later saw the mark: nobody sleeps through. The list keeps
//! its memory, so waiting allocates nothing but what the waker itself does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use thermocline_base::sync::Mutex;

use super::{Core, LogError};

/// Who waits until a mark has reached a position.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    next: u64,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    at: u64,
    waker: Waker,
}

impl Waiters {
    /// Leaves a waker, unless `due` says under the lock that there is nothing to wait for: how many wait now. `number`
    /// is the entry's of an earlier poll.
    fn register(
        &self,
        number: &mut Option<u64>,
        at: u64,
        waker: &Waker,
        due: impl Fn() -> bool,
    ) -> Option<usize> {
        let mut list = self.0.lock();
        if due() {
            return None;
        }
        if let Some(number) = *number
            && let Some(entry) = list.entries.iter_mut().find(|entry| entry.number == number)
        {
            entry.waker.clone_from(waker);
            return Some(list.entries.len());
        }
        list.next += 1;
        let entry = Entry { number: list.next, at, waker: waker.clone() };
        *number = Some(entry.number);
        list.entries.push(entry);
        Some(list.entries.len())
    }

    /// Wakes those who wait for `mark` or less.
    pub(super) fn wake(&self, mark: u64) {
        // Wakers run code of others: not under the lock. In batches, so that no memory is needed.
        loop {
            let mut due: [Option<Waker>; 32] = [const { None }; 32];
            let mut count = 0;
            {
                let mut list = self.0.lock();
                let mut index = 0;
                while index < list.entries.len() && count < due.len() {
                    if list.entries[index].at <= mark {
                        due[count] = Some(list.entries.swap_remove(index).waker);
                        count += 1;
                    } else {
                        index += 1;
                    }
                }
            }
            for waker in due.iter_mut().filter_map(Option::take) {
                waker.wake();
            }
            if count < due.len() {
                return;
            }
        }
    }

    /// Does anybody wait?
    pub(super) fn any(&self) -> bool {
        !self.0.lock().entries.is_empty()
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.0.lock().entries.len()
    }
}

/// Ready once the log is durable up to a position. See [`super::Log::wait_durable`].
#[derive(Debug)]
#[must_use = "nothing waits until it is awaited"]
pub(crate) struct WaitDurable<'a> {
    pub(super) core: &'a Core,
    pub(super) at: u64,
    pub(super) number: Option<u64>,
}

impl Future for WaitDurable<'_> {
    type Output = Result<(), LogError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (core, at) = (self.core, self.at);
        if core.ring.durable() >= at {
            return Poll::Ready(Ok(()));
        }
        let due = || core.ring.durable() >= at || core.failed();
        if let Some(waiting) = core.durable_waiters.register(&mut self.number, at, cx.waker(), due) {
            core.kick_for(waiting);
            return Poll::Pending;
        }
        // What is durable is so, whatever failed afterwards.
        Poll::Ready(if core.ring.durable() >= at { Ok(()) } else { Err(core.failure()) })
    }
}

/// Ready once it is worth reserving again. See [`super::ReserveError::Full`].
#[derive(Debug)]
#[must_use = "nothing waits until it is awaited"]
pub(crate) struct WaitSpace<'a> {
    pub(super) core: &'a Core,
    /// The position that `written` must reach; the files' end when the refusal came from there.
    pub(super) until: Until,
    pub(super) number: Option<u64>,
}

/// What a refused reservation waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    /// `written` has reached this.
    Written(u64),
    /// The files reach beyond this.
    SpaceBeyond(u64),
}

impl Future for WaitSpace<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (core, until) = (self.core, self.until);
        let due = || {
            core.failed()
                || core.is_full()
                || match until {
                    Until::Written(at) => core.ring.written() >= at,
                    Until::SpaceBeyond(end) => core.ring.space_end() > end,
                }
        };
        if !due() && core.space_waiters.register(&mut self.number, 0, cx.waker(), due).is_some() {
            core.kick();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}
