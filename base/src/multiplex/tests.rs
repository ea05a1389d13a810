//! Both executors.

use super::*;
use crate::sync::{AtomicUsize, Mutex};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::mpsc;

/// A value that the test or another task sets later.
#[derive(Default)]
pub(super) struct Later(Mutex<(bool, Option<Waker>)>);

impl Later {
    pub(super) fn set(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) async fn wait(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[test]
fn giving_way_lets_the_others_run_and_comes_back() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let task = |name: usize| {
        let order = Rc::clone(&order);
        async move {
            for round in 0..3 {
                order.borrow_mut().push((round, name));
                give_way().await;
            }
        }
    };
    run_tasks((0..4).map(task).collect());
    let rounds: Vec<usize> = order.borrow().iter().map(|(round, _)| *round).collect();
    assert_eq!(rounds, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn giving_way_alone_or_nested_does_not_hang() {
    block_on(give_way());
    run_tasks(vec![give_way()]);
    let nested = || async {
        block_on(async {
            give_way().await;
            give_way().await;
        });
        give_way().await;
    };
    run_tasks(vec![nested(), nested()]);
}

#[test]
fn giving_way_inside_of_a_combinator_wakes_properly() {
    /// A combinator that polls its future only when its own waker was called.
    struct Own(AtomicBool);
    impl Wake for Own {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let picky = || async {
        let own = Arc::new(Own(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&own));
        let mut inner = pin!(give_way());
        poll_fn(|context| {
            if own.0.swap(false, Ordering::SeqCst)
                && inner.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    };
    run_tasks(vec![picky(), picky()]);
}

#[test]
fn a_ready_future_ends_at_once() {
    assert_eq!(block_on(async { 7 }), 7);
}

#[test]
fn another_thread_wakes_the_one_that_blocks() {
    for _ in 0..200 {
        let later = Arc::new(Later::default());
        let other = Arc::clone(&later);
        let thread = std::thread::spawn(move || other.set());
        block_on(later.wait());
        thread.join().expect("the setter");
    }
}

#[test]
fn a_nested_block_on_does_not_swallow_the_outer_wake() {
    let outer = Arc::new(Later::default());
    let inner = Arc::new(Later::default());
    let (begin, begun) = mpsc::channel();
    let thread = std::thread::spawn({
        let (outer, inner) = (Arc::clone(&outer), Arc::clone(&inner));
        move || {
            begun.recv().expect("the outer future has left its waker");
            // The outer wake comes while the thread waits for the inner one.
            outer.set();
            inner.set();
        }
    });
    let mut nested = false;
    block_on(async {
        let mut wait = pin!(outer.wait());
        poll_fn(|context| {
            let state = wait.as_mut().poll(context);
            if !nested {
                assert!(state.is_pending());
                nested = true;
                begin.send(()).expect("the other thread waits for it");
                block_on(inner.wait());
            }
            state
        })
        .await;
    });
    thread.join().expect("the setter");
}

#[test]
fn a_waker_left_behind_disturbs_nobody() {
    let left = RefCell::new(None);
    block_on(poll_fn(|context| {
        left.replace(Some(context.waker().clone()));
        Poll::Ready(())
    }));
    left.take().expect("left above").wake();
    let mut polls = 0;
    let later = Arc::new(Later::default());
    let other = Arc::clone(&later);
    let thread = std::thread::spawn(move || other.set());
    block_on(async {
        let mut wait = pin!(later.wait());
        poll_fn(|context| {
            polls += 1;
            wait.as_mut().poll(context)
        })
        .await;
    });
    thread.join().expect("the setter");
    assert!((1..=3).contains(&polls), "{polls} polls");
}

#[test]
fn no_tasks_end_at_once() {
    run_tasks(Vec::<std::future::Ready<()>>::new());
}

#[test]
fn tasks_take_turns() {
    // More than one word of tasks, and not a multiple of it.
    for count in [1_usize, 2, 63, 64, 65, 130] {
        let turns = Rc::new(RefCell::new(Vec::new()));
        let tasks = (0..count)
            .map(|index| {
                let turns = Rc::clone(&turns);
                async move {
                    for _ in 0..3 {
                        turns.borrow_mut().push(index);
                        yield_now().await;
                    }
                }
            })
            .collect();
        run_tasks(tasks);
        let expected: Vec<usize> = (0..3).flat_map(|_| 0..count).collect();
        assert_eq!(*turns.borrow(), expected);
    }
}

#[test]
fn a_task_that_waits_is_not_polled() {
    let polls = Cell::new(0);
    let later = Later::default();
    let waiting = async {
        let mut wait = pin!(later.wait());
        poll_fn(|context| {
            polls.set(polls.get() + 1);
            wait.as_mut().poll(context)
        })
        .await;
    };
    let busy = async {
        for _ in 0..100 {
            yield_now().await;
        }
        later.set();
    };
    let tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = vec![Box::pin(waiting), Box::pin(busy)];
    run_tasks(tasks);
    assert_eq!(polls.get(), 2);
}

#[test]
fn other_threads_wake_tasks() {
    const TASKS: usize = 100;
    const ROUNDS: usize = 50;
    let gates: Arc<Vec<Vec<Later>>> =
        Arc::new((0..TASKS).map(|_| (0..ROUNDS).map(|_| Later::default()).collect()).collect());
    let threads: Vec<_> = (0..2)
        .map(|thread| {
            let gates = Arc::clone(&gates);
            std::thread::spawn(move || {
                for round in 0..ROUNDS {
                    for gate in gates.iter().skip(thread).step_by(2) {
                        gate[round].set();
                    }
                    if round % 8 == 0 {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let passed = AtomicUsize::new(0);
    let tasks = gates
        .iter()
        .map(async |gate| {
            for later in gate {
                later.wait().await;
                passed.fetch_add(1, Ordering::Relaxed);
            }
        })
        .collect();
    run_tasks(tasks);
    for thread in threads {
        thread.join().expect("the setter");
    }
    assert_eq!(passed.load(Ordering::Relaxed), TASKS * ROUNDS);
}

#[test]
fn a_task_may_block_on_another_future() {
    let later = Arc::new(Later::default());
    let other = Arc::clone(&later);
    let thread = std::thread::spawn(move || other.set());
    let done = Cell::new(0);
    let tasks = (0..3)
        .map(|_| async {
            yield_now().await;
            block_on(later.wait());
            done.set(done.get() + 1);
        })
        .collect();
    run_tasks(tasks);
    thread.join().expect("the setter");
    assert_eq!(done.get(), 3);
}

#[test]
fn a_task_that_ended_may_still_be_woken() {
    let left = RefCell::new(None);
    let first = poll_fn(|context| {
        left.replace(Some(context.waker().clone()));
        Poll::Ready(())
    });
    let second = async {
        yield_now().await;
        if let Some(waker) = left.take() {
            waker.wake();
        }
        yield_now().await;
    };
    let tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = vec![Box::pin(first), Box::pin(second)];
    run_tasks(tasks);
}

#[test]
fn a_panic_of_a_task_reaches_the_caller() {
    let outcome = std::panic::catch_unwind(|| {
        run_tasks(vec![async { panic!("a task gave up") }]);
    });
    assert!(outcome.is_err());
}
