//! Looking out: a worker takes answers itself that another thread would be woken for.
//!
//! A page that a memory server sends costs two wake-ups where a thread of its own sleeps on the socket: of that thread, and then of the
//! worker. A worker that has asked for something there *looks out* for the answer instead: between its polls, and for a moment before it
//! sleeps. The thread on the socket sleeps meanwhile beside it, and comes back when the last worker that looked out has left.
//!
//! | worker | thread of the socket |
//! |---|---|
//! | asks, [`Lookout::come`] | sleeps on the socket; woken once for nothing |
//! | polls others, [`Lookout::look`], polls others, … | sleeps beside the socket |
//! | an answer: its task is polled again | |
//! | nothing to poll: some last looks, [`Lookout::leave`], sleeps | is rung for, sleeps on the socket |
//!
//! Each thread comes once and leaves once, whatever ends its looking: no answer is awaited any more, it sleeps, or its last executor ends.
//! What was asked for and not sent is sent by the next look, and an executor that ends looks once more; so no request stays behind.

use std::cell::Cell;
use std::sync::Arc;

use super::{EXECUTORS, Executing};

thread_local! {
    /// The sources that the thread looks out for.
    static LOOKOUTS: Cell<Vec<Arc<dyn Lookout>>> = const { Cell::new(Vec::new()) };
    /// Is that anything?
    static LOOKS_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Answers that any thread may take, beside the one whose work it is.
pub trait Lookout: Send + Sync {
    /// A thread begins to look out.
    fn come(&self);

    /// Sends what waits for that, and takes the answers that have come. Does not sleep. `false`: none is awaited any more.
    fn look(&self) -> bool;

    /// A thread does not look out any more.
    fn leave(&self);
}

/// An executor that has something to poll looks out this often.
pub(super) const POLLS_A_LOOK: usize = 8;
/// One that has nothing to poll looks so many times before it sleeps: some ten microseconds, which is what a process on the same machine
/// takes for an answer.
const LOOKS: usize = 64;

/// Has the calling thread look out from now on, until no answer is awaited or it sleeps. `false`: no executor runs on it that could.
pub fn look_out(lookout: &Arc<dyn Lookout>) -> bool {
    #[cfg(feature = "model")]
    if crate::sync::model::active() {
        return false;
    }
    if EXECUTORS.get() == 0 {
        return false;
    }
    let mut lookouts = LOOKOUTS.take();
    if !lookouts.iter().any(|one| Arc::ptr_eq(one, lookout)) {
        lookout.come();
        lookouts.push(Arc::clone(lookout));
        LOOKS_OUT.set(true);
    }
    LOOKOUTS.set(lookouts);
    true
}

/// Looks for answers. `false`: none is awaited.
#[inline]
pub(super) fn look() -> bool {
    LOOKS_OUT.get() && look_at_all()
}

#[cold]
fn look_at_all() -> bool {
    let mut lookouts = LOOKOUTS.take();
    lookouts.retain(|lookout| {
        let awaited = lookout.look();
        if !awaited {
            lookout.leave();
        }
        awaited
    });
    // Whoever was answered may have asked for more.
    for fresh in LOOKOUTS.take() {
        match lookouts.iter().any(|one| Arc::ptr_eq(one, &fresh)) {
            true => fresh.leave(),
            false => lookouts.push(fresh),
        }
    }
    let awaited = !lookouts.is_empty();
    LOOKS_OUT.set(awaited);
    LOOKOUTS.set(lookouts);
    awaited
}

/// Leaves what the thread looks out for, since it sleeps or does something else.
#[cold]
fn look_no_more() {
    LOOKS_OUT.set(false);
    LOOKOUTS.take().iter().for_each(|lookout| lookout.leave());
}

/// An executor ends: what it has asked for is sent, and others look from now on.
#[inline]
pub(super) fn end() {
    if LOOKS_OUT.get() {
        look_at_all();
        look_no_more();
    }
}

/// The last looks of a thread that has nothing else to do.
#[derive(Default)]
pub(super) struct LastLooks(usize);

impl LastLooks {
    /// Looks once more, and lets other threads run. `false`: the thread has looked for long enough, or for nothing, and may sleep.
    #[inline]
    pub(super) fn again(&mut self) -> bool {
        if !LOOKS_OUT.get() {
            return false;
        }
        if self.0 == LOOKS || !look() {
            look_no_more();
            return false;
        }
        self.0 += 1;
        // What it waits for may need this processor.
        std::thread::yield_now();
        Executing::turn();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::{block_on, run_tasks, yield_now};
    use super::*;
    use crate::sync::{AtomicU64, Mutex, Ordering};

    /// Answers each request at its third look, unless another thread has to.
    #[derive(Default)]
    struct Server {
        asked: Mutex<Vec<(u32, Waker)>>,
        come: AtomicU64,
        left: AtomicU64,
        looks: AtomicU64,
        silent: bool,
    }

    impl Lookout for Server {
        fn come(&self) {
            self.come.fetch_add(1, Ordering::SeqCst);
        }

        fn look(&self) -> bool {
            self.looks.fetch_add(1, Ordering::SeqCst);
            let mut asked = self.asked.lock();
            if self.silent {
                return !asked.is_empty();
            }
            asked.iter_mut().for_each(|(looks, _)| *looks += 1);
            asked.retain(|(looks, waker)| {
                let answers = *looks == 3;
                if answers {
                    waker.wake_by_ref();
                }
                !answers
            });
            !asked.is_empty()
        }

        fn leave(&self) {
            self.left.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Server {
        fn now(&self) -> [u64; 3] {
            [&self.come, &self.left, &self.looks].map(|count| count.load(Ordering::SeqCst))
        }
    }

    async fn ask(server: &Arc<Server>) {
        let mut has_asked = false;
        std::future::poll_fn(|context| {
            if has_asked {
                return std::task::Poll::Ready(());
            }
            has_asked = true;
            server.asked.lock().push((0, context.waker().clone()));
            assert!(look_out(&(Arc::clone(server) as Arc<dyn Lookout>)));
            std::task::Poll::Pending
        })
        .await;
    }

    #[test]
    fn a_thread_that_waits_takes_its_answers_itself() {
        let server = Arc::new(Server::default());
        for round in 1..=5 {
            block_on(ask(&server));
            assert_eq!(server.now(), [round, round, 3 * round]);
        }
        let nested = async {
            ask(&server).await;
            block_on(ask(&server));
            ask(&server).await;
        };
        block_on(nested);
        let [come, left, _] = server.now();
        assert_eq!(come, left);
    }

    #[test]
    fn a_worker_looks_between_its_polls() {
        let server = Arc::new(Server::default());
        let done = Cell::new(0);
        let asking = |_| {
            let (server, done) = (&server, &done);
            Box::pin(async move {
                for _ in 0..10 {
                    ask(server).await;
                }
                done.set(done.get() + 1);
            }) as std::pin::Pin<Box<dyn Future<Output = ()>>>
        };
        let mut tasks: Vec<_> = (0..20).map(asking).collect();
        // It never sleeps before all are answered.
        tasks.push(Box::pin(async {
            while done.get() < 20 {
                yield_now().await;
            }
        }));
        run_tasks(tasks);
        let [come, left, looks] = server.now();
        assert!(come == left && come >= 1 && looks >= 30, "{come} {left} {looks}");
    }

    #[test]
    fn a_thread_that_has_looked_for_long_leaves_and_sleeps() {
        let server = Arc::new(Server { silent: true, ..Server::default() });
        let other = {
            let server = Arc::clone(&server);
            std::thread::spawn(move || {
                while server.left.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                let asked = std::mem::take(&mut *server.asked.lock());
                asked.into_iter().for_each(|(_, waker)| waker.wake());
            })
        };
        run_tasks(vec![ask(&server)]);
        other.join().expect("no panic");
        assert_eq!(server.now(), [1, 1, LOOKS as u64]);
    }

    #[test]
    fn an_executor_that_ends_looks_once_more() {
        let server = Arc::new(Server::default());
        block_on(async {
            look_out(&(Arc::clone(&server) as Arc<dyn Lookout>));
            server.asked.lock().push((0, Waker::noop().clone()));
        });
        assert_eq!(server.now(), [1, 1, 1]);
        assert!(!look_out(&(Arc::clone(&server) as Arc<dyn Lookout>)), "no executor runs");
    }
}
