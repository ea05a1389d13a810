//! Clients that have not said yet who they are: a number of them, of which the one that has waited longest goes first.
//!
//! The number of files that the system lets a process open bounds them, too. The system gives a new socket the lowest number that is
//! free, so that number tells how many are left: the last [`KEPT_FILES`] are the database's, for checkpoints and its log.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::task::AbortHandle;

use crate::stream::Stream;

/// Numbers of files that no client gets.
pub(crate) const KEPT_FILES: u64 = 64;

/// The lobby of a door, on its thread.
#[derive(Clone)]
pub(crate) struct Lobby(Rc<Inside>);

struct Inside {
    places: usize,
    /// A socket's number has to be below.
    files: u64,
    next: std::cell::Cell<u64>,
    waiting: RefCell<VecDeque<(u64, AbortHandle)>>,
}

impl Lobby {
    /// With so many places, in a process that may open so many files.
    pub(crate) fn new(places: usize, files: u64) -> Self {
        let files = files.saturating_sub(KEPT_FILES.min(files / 4));
        let waiting = RefCell::default();
        Self(Rc::new(Inside { places, files, next: std::cell::Cell::default(), waiting }))
    }

    /// Is there room for one more, if need be after another one has gone?
    pub(crate) fn has_room_for(&self, stream: &Stream) -> bool {
        if stream.number() < self.0.files {
            return true;
        }
        self.send_one_away()
    }

    /// Ends the wait of the one that came first: whether there was one.
    pub(crate) fn send_one_away(&self) -> bool {
        let first = self.0.waiting.borrow_mut().pop_front();
        first.inspect(|(_, task)| task.abort()).is_some()
    }

    /// Runs what a client does before it is let in.
    pub(crate) fn wait(&self, entering: impl Future<Output = ()> + 'static) {
        if self.0.waiting.borrow().len() >= self.0.places {
            self.send_one_away();
        }
        let number = self.0.next.replace(self.0.next.get() + 1);
        let inside = self.0.clone();
        let task = tokio::task::spawn_local(async move {
            entering.await;
            inside.waiting.borrow_mut().retain(|(other, _)| *other != number);
        });
        self.0.waiting.borrow_mut().push_back((number, task.abort_handle()));
    }
}

/// How many files the system lets this process open.
pub(crate) fn files_allowed() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// Asks the system for as many files as it lets the process ask for.
pub fn allow_all_files() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, all) {
        tracing::warn!(%error, "no more files may be opened than the system has said");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that never ends, and tells when it is dropped.
    struct Told(Rc<RefCell<Vec<u32>>>, u32);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.borrow_mut().push(self.1);
        }
    }

    #[test]
    fn who_has_waited_longest_goes_when_another_one_comes() {
        let local = tokio::task::LocalSet::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        local.block_on(&runtime, async {
            let lobby = Lobby::new(2, 1000);
            let gone = Rc::new(RefCell::new(Vec::new()));
            for number in 0..4 {
                let told = Told(gone.clone(), number);
                lobby.wait(async move {
                    let _told = told;
                    // The second one is let in.
                    if number != 1 {
                        std::future::pending::<()>().await;
                    }
                });
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
            }
            assert_eq!(*gone.borrow(), [1, 0]);
            assert!(lobby.send_one_away());
            assert!(lobby.send_one_away());
            assert!(!lobby.send_one_away());
        });
    }

    #[test]
    fn files_are_kept_for_the_database() {
        assert_eq!(Lobby::new(9, 1024).0.files, 1024 - KEPT_FILES);
        assert_eq!(Lobby::new(9, 100).0.files, 75);
        assert!(Lobby::new(9, u64::MAX).0.files > 1 << 60);
    }
}
