//! Both backends against files of the machine.

use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};

use super::*;
use crate::io::{Action, AlignedBytes, Buffer, DIRECT_ALIGNMENT};
use crate::multiplex::{block_on, run_tasks, yield_now};
use crate::rng::Rng;

const PAGE: u64 = DIRECT_ALIGNMENT as u64;

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("thermocline-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("made");
        Self(dir)
    }

    fn create(&self, io: &SystemIo) -> Arc<dyn File> {
        io.open_direct(&self.0.join(io.method()), OpenMode::CreateNew).expect("created")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The backends of this system: threads, and `io_uring` where it is not refused.
fn backends() -> Vec<SystemIo> {
    let mut all = vec![SystemIo::with_threads(4)];
    all.extend(SystemIo::with_uring().ok());
    all
}

fn page(number: u64) -> AlignedBytes {
    let mut bytes = AlignedBytes::zeroed(PAGE as usize);
    for (at, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&(number << 16 | at as u64).to_le_bytes());
    }
    bytes
}

fn read(file: &Arc<dyn File>, number: u64) -> Completion {
    let buffer = AlignedBytes::zeroed(PAGE as usize).into();
    file.submit(Operation::Read { offset: number * PAGE, buffer })
}

fn write(file: &Arc<dyn File>, number: u64) -> Completion {
    file.submit(Operation::Write { offset: number * PAGE, buffer: page(number).into() })
}

fn fill(file: &Arc<dyn File>, pages: u64) {
    run_tasks(
        (0..pages)
            .map(async |number| {
                assert_eq!(write(file, number).await.result.expect("written"), PAGE as usize);
            })
            .collect(),
    );
    file.sync_data().expect("synced");
}

fn assert_page(outcome: crate::io::Outcome, number: u64) {
    assert_eq!(outcome.result.expect("read"), PAGE as usize);
    assert!(outcome.buffer.as_slice() == &page(number)[..], "page {number} has other bytes");
}

#[test]
fn many_tasks_read_and_write_at_once() {
    let dir = Dir::new("tasks");
    for io in backends() {
        let file = dir.create(&io);
        fill(&file, 256);
        assert_eq!(file.len().expect("a length"), 256 * PAGE);
        run_tasks(
            (0..64)
                .map(async |task| {
                    let mut rng = Rng::new(task);
                    for round in 0..20 {
                        let number = rng.below(256);
                        if round % 5 == 0 {
                            // The same bytes: readers beside it may see old or new ones.
                            write(&file, number).await.result.expect("written");
                        }
                        assert_page(read(&file, number).await, number);
                        if round % 3 == 0 {
                            yield_now().await;
                        }
                    }
                })
                .collect(),
        );
    }
}

#[test]
fn reads_are_short_at_the_end() {
    let dir = Dir::new("short");
    for io in backends() {
        let file = dir.create(&io);
        fill(&file, 2);
        let two_pages = || Buffer::from(AlignedBytes::zeroed(2 * PAGE as usize));
        let outcome = file.submit(Operation::Read { offset: PAGE, buffer: two_pages() }).wait();
        assert_eq!(outcome.result.expect("read"), PAGE as usize);
        assert_eq!(outcome.buffer.as_slice()[..PAGE as usize], page(1)[..]);
        assert_eq!(outcome.buffer.into_aligned().expect("it was aligned").len(), 2 * PAGE as usize);
        let outcome = file.submit(Operation::Read { offset: 7 * PAGE, buffer: two_pages() }).wait();
        assert_eq!(outcome.result.expect("the end"), 0);
        let mut bytes = AlignedBytes::zeroed(4 * PAGE as usize);
        assert_eq!(file.read_full_at(0, &mut bytes).expect("read"), 2 * PAGE as usize);
    }
}

#[test]
fn errors_say_what_and_where() {
    let dir = Dir::new("errors");
    for io in backends() {
        drop(dir.create(&io));
        let path = dir.0.join(io.method());
        let file = io.open_direct(&path, OpenMode::Read).expect("opened");
        let error = write(&file, 3).wait().result.expect_err("it is open to read");
        assert_eq!((error.action(), error.offset(), error.path()), (Action::Write, Some(3 * PAGE), &*path));
        assert!(io.open_direct(&dir.0.join("none"), OpenMode::Write).expect_err("missing").is_not_found());
        assert!(io.open_direct(&path, OpenMode::CreateNew).is_err());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_told() {
    for io in backends() {
        let file = io.open_direct(Path::new("/dev/full"), OpenMode::Write).expect("a file that has no space");
        let error = write(&file, 0).wait().result.expect_err("full");
        assert!(error.is_full() && error.action() == Action::Write, "{error}");
    }
}

#[test]
fn a_file_stays_open_until_its_last_operation() {
    let dir = Dir::new("open");
    for io in backends() {
        let file = dir.create(&io);
        fill(&file, 64);
        let reads: Vec<_> = (0..64).map(|number| read(&file, number)).collect();
        // Written by an operation that no thread waits for, on a file whose handle is gone.
        drop(write(&file, 64));
        drop(file);
        for (number, read) in reads.into_iter().enumerate() {
            assert_page(read.wait(), number as u64);
        }
        let path = dir.0.join(io.method());
        while std::fs::metadata(&path).expect("it is there").len() < 65 * PAGE {
            std::thread::yield_now();
        }
    }
}

#[test]
fn dropped_futures_cost_nobody_anything() {
    let dir = Dir::new("dropped");
    for io in backends() {
        let file = dir.create(&io);
        fill(&file, 64);
        for round in 0..20 {
            run_tasks(
                (0..64)
                    .map(async |number: u64| {
                        let mut first = read(&file, number);
                        // Polled once, so that it has a waker, unless it is there already.
                        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut first).poll(context))).await;
                        match polled {
                            Poll::Ready(outcome) => assert_page(outcome, number),
                            Poll::Pending if number % 2 == round % 2 => drop(first),
                            Poll::Pending => assert_page(first.await, number),
                        }
                    })
                    .collect(),
            );
        }
        let mut bytes = AlignedBytes::zeroed(PAGE as usize);
        // SAFETY: dropping the completion waits, and `bytes` is used only afterwards.
        let buffer = unsafe { Buffer::borrowed(bytes.as_mut_ptr(), bytes.len()) };
        drop(file.submit(Operation::Read { offset: 5 * PAGE, buffer }));
        assert!(bytes[..] == page(5)[..], "the read was over when the completion was dropped");
    }
}

#[test]
fn threads_wait_while_another_one_runs_tasks() {
    let dir = Dir::new("beside");
    for io in backends() {
        let file = dir.create(&io);
        fill(&file, 128);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let file = &file;
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..100 {
                        let number = rng.below(128);
                        assert_page(read(file, number).wait(), number);
                    }
                });
            }
            run_tasks(
                (0..16)
                    .map(async |task| {
                        let mut rng = Rng::new(100 + task);
                        for _ in 0..50 {
                            let number = rng.below(128);
                            assert_page(read(&file, number).await, number);
                        }
                    })
                    .collect(),
            );
        });
    }
}

/// A waker that tells a channel.
struct Tell(mpsc::Sender<()>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// The test does what a foreign runtime does: poll, go away, come back when woken, on another thread perhaps.
#[test]
fn futures_make_progress_without_our_executor() {
    let dir = Dir::new("foreign");
    for io in backends() {
        let file = dir.create(&io);
        fill(&file, 8);
        for number in 0..8 {
            let (sender, receiver) = mpsc::channel();
            let waker = Waker::from(Arc::new(Tell(sender)));
            let mut completion = read(&file, number);
            if let Poll::Ready(outcome) = Pin::new(&mut completion).poll(&mut Context::from_waker(&waker)) {
                assert_page(outcome, number);
                continue;
            }
            receiver.recv().expect("woken");
            let mut poll = move || {
                let waker = Waker::noop();
                match Pin::new(&mut completion).poll(&mut Context::from_waker(waker)) {
                    Poll::Ready(outcome) => outcome,
                    Poll::Pending => panic!("woken too early"),
                }
            };
            let outcome =
                if number % 2 == 0 { poll() } else { std::thread::spawn(poll).join().expect("polled") };
            assert_page(outcome, number);
        }
    }
}

/// Submitted here, awaited there: the submitter sleeps in its executor, is gone, or does something else.
#[test]
fn completions_may_move_to_other_threads() {
    let dir = Dir::new("moved");
    for io in backends() {
        let file = dir.create(&io);
        fill(&file, 8);
        for number in 0..8_u64 {
            let (sender, receiver) = mpsc::channel();
            let (done, until_done) = mpsc::channel::<()>();
            let submitter = std::thread::spawn({
                let file = Arc::clone(&file);
                move || {
                    let submit = || sender.send(read(&file, number)).expect("received");
                    match number % 4 {
                        0 => submit(),
                        1 => block_on(async { submit() }),
                        2 => {
                            submit();
                            let _ = until_done.recv();
                        }
                        _ => {
                            // The executor's thread blocks where it must not.
                            block_on(async {
                                submit();
                                let _ = until_done.recv();
                            });
                        }
                    }
                }
            });
            let completion = receiver.recv().expect("sent");
            assert_page(block_on(completion), number);
            drop(done);
            submitter.join().expect("the submitter");
        }
    }
}

#[test]
fn other_threads_wake_a_thread_that_waits_for_the_device() {
    let dir = Dir::new("woken");
    for io in backends() {
        let file = dir.create(&io);
        fill(&file, 8);
        for _ in 0..100 {
            // The one end of a completion of another kind is answered by another thread, while reads keep this one's
            // device busy.
            let (completer, other) = Completion::pending();
            let thread = std::thread::spawn(move || {
                std::thread::yield_now();
                completer.complete(Ok(1), Buffer::empty());
            });
            let reads = async {
                for number in 0..4 {
                    assert_page(read(&file, number).await, number);
                }
            };
            let waits = async { assert_eq!(other.await.result.expect("answered"), 1) };
            let tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = vec![Box::pin(reads), Box::pin(waits)];
            run_tasks(tasks);
            thread.join().expect("the other thread");
        }
    }
}

#[test]
fn more_operations_than_any_queue_has_room_for() {
    let dir = Dir::new("crowd");
    for io in backends() {
        let file = dir.create(&io);
        fill(&file, 4);
        let reads: Vec<_> = (0..5000).map(|at| read(&file, at % 4)).collect();
        for (at, read) in reads.into_iter().enumerate() {
            assert_page(read.wait(), at as u64 % 4);
        }
    }
}
