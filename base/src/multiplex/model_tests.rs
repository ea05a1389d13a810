//! Both executors under the model checker.

use super::tests::Later;
use super::*;
use crate::sync::model;

/// Shuttle reports a worker that sleeps for ever as a deadlock, so a lost wake-up fails the test.
#[test]
fn no_wake_is_lost_before_the_worker_parks() {
    model::run(4000, || {
        let gates: Arc<[Later; 2]> = Arc::default();
        let setters: Vec<_> = (0..2)
            .map(|index| {
                let gates = Arc::clone(&gates);
                shuttle::thread::spawn(move || gates[index].set())
            })
            .collect();
        run_tasks(gates.iter().map(Later::wait).collect());
        for setter in setters {
            setter.join().expect("the setter");
        }
    });
}

#[test]
fn no_wake_is_lost_before_block_on_parks() {
    model::run(2000, || {
        let gates: Arc<[Later; 2]> = Arc::default();
        let setter = {
            let gates = Arc::clone(&gates);
            shuttle::thread::spawn(move || {
                gates[0].set();
                gates[1].set();
            })
        };
        // The second wait is nested in a task, the first one is not.
        block_on(gates[0].wait());
        run_tasks(vec![async { block_on(gates[1].wait()) }]);
        setter.join().expect("the setter");
    });
}

/// A device whose one operation completes at any time, for whoever drives it.
#[derive(Default)]
struct Device {
    busy: AtomicBool,
    answer: Later,
    state: shuttle::sync::Mutex<DeviceState>,
    news: shuttle::sync::Condvar,
}

#[derive(Default)]
struct DeviceState {
    completed: bool,
    interrupted: bool,
}

impl Device {
    fn lock(&self) -> shuttle::sync::MutexGuard<'_, DeviceState> {
        self.state.lock().expect("nobody panics with it")
    }

    fn complete(&self) {
        self.lock().completed = true;
        self.news.notify_all();
    }
}

impl Driver for Device {
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst)
    }

    fn turn(&self) {
        let completed = std::mem::take(&mut self.lock().completed);
        if completed {
            self.answer.set();
            self.busy.store(false, Ordering::SeqCst);
        }
    }

    fn sleep(&self) {
        let mut state = self.lock();
        while !state.completed && !state.interrupted {
            state = self.news.wait(state).expect("nobody panics with it");
        }
        state.interrupted = false;
    }

    fn interrupt(&self) {
        self.lock().interrupted = true;
        self.news.notify_all();
    }

    fn attend(&self, _attended: bool) {}

    fn expect(&self) {}
}

/// A worker waits for another thread while it sleeps in a device that only it drives.
#[test]
fn no_wake_is_lost_while_the_worker_sleeps_in_its_driver() {
    model::run(6000, || {
        let device: &'static Device = Box::leak(Box::default());
        device.busy.store(true, Ordering::SeqCst);
        let gates: Arc<[Later; 2]> = Arc::default();
        DRIVER.set(Some(device));
        // The device takes longer than everybody else, so its completion makes good for no lost wake.
        let (passed, both_passed) = shuttle::sync::mpsc::channel();
        let completer = shuttle::thread::spawn(move || {
            both_passed.recv().expect("the worker passes the gates");
            device.complete();
        });
        let setter = {
            let gates = Arc::clone(&gates);
            shuttle::thread::spawn(move || {
                gates[0].set();
                gates[1].set();
            })
        };
        block_on(gates[0].wait());
        let second = async {
            gates[1].wait().await;
            passed.send(()).expect("the completer waits");
        };
        let tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> =
            vec![Box::pin(device.answer.wait()), Box::pin(second)];
        run_tasks(tasks);
        DRIVER.set(None);
        completer.join().expect("the completer");
        setter.join().expect("the setter");
    });
}
