//! Advisory locks: locks on numbers that mean something to the application only (migration tools take one first).
//!
//! | | shared | exclusive |
//! |---|---|---|
//! | shared, held by another session | granted | waits |
//! | exclusive, held by another session | waits | waits |
//!
//! A session never waits for itself; what it holds counts, and is given back as often as it was taken. Locks of a transaction go
//! when that ends, those of the session when they are unlocked or the session ends. Waiters are served in the order in which they
//! came: a lock that one of them waits for is not given to a later session that holds none of it. A wait that closes a circle of
//! waiting sessions is refused (40P01). Only circles of advisory locks are seen; one that goes through a row's lock ends by
//! `lock_timeout` or `statement_timeout`.
//!
//! Lock order: the one mutex of [`Locks`]; wakers are called under it, and take no lock of this crate.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::{Error, Result};

/// The name of a lock: one number of 64 bits, or two of 32; the two kinds never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    One(i64),
    Two(i32, i32),
}

/// A lock as a session asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) key: Key,
    pub(crate) exclusive: bool,
    /// Until the transaction ends.
    pub(crate) transaction: bool,
}

/// A session among those that share locks.
pub(crate) type SessionNumber = i32;

/// The number of times that a session holds a lock: for itself and for its transaction.
#[derive(Debug)]
struct Hold {
    session: SessionNumber,
    exclusive: bool,
    by_session: u32,
    by_transaction: u32,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    session: SessionNumber,
    lock: Lock,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct State {
    holds: HashMap<Key, Vec<Hold>>,
    /// In the order in which they came.
    waiters: Vec<Waiter>,
    next: u64,
}

/// The advisory locks of a database.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<State>);

impl State {
    fn holds(&self, key: Key) -> &[Hold] {
        self.holds.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The sessions that stand in the way of a lock: those that hold it, and those that came before (`before`: the waiter's
    /// number).
    fn blockers(&self, session: SessionNumber, lock: Lock, before: Option<u64>) -> Vec<SessionNumber> {
        let holds = self.holds(lock.key);
        let conflict = |exclusive: bool| exclusive || lock.exclusive;
        let mut found: Vec<SessionNumber> = holds
            .iter()
            .filter(|hold| hold.session != session && conflict(hold.exclusive))
            .map(|hold| hold.session)
            .collect();
        // A session that holds the lock in some way need not queue for it.
        if !holds.iter().any(|hold| hold.session == session) {
            let earlier = |waiter: &&Waiter| before.is_none_or(|number| waiter.number < number);
            found.extend(
                self.waiters
                    .iter()
                    .filter(earlier)
                    .filter(|waiter| waiter.session != session && waiter.lock.key == lock.key)
                    .filter(|waiter| conflict(waiter.lock.exclusive))
                    .map(|waiter| waiter.session),
            );
        }
        found
    }

    fn grant(&mut self, session: SessionNumber, lock: Lock) {
        let holds = self.holds.entry(lock.key).or_default();
        let mine = |hold: &&mut Hold| hold.session == session && hold.exclusive == lock.exclusive;
        let hold = match holds.iter_mut().find(mine) {
            Some(hold) => hold,
            None => {
                let exclusive = lock.exclusive;
                holds.push(Hold { session, exclusive, by_session: 0, by_transaction: 0 });
                holds.last_mut().expect("one was just put there")
            }
        };
        if lock.transaction {
            hold.by_transaction += 1;
        } else {
            hold.by_session += 1;
        }
    }

    /// Takes holds back, forgets those that are none any more, and wakes waiters. Whether there was anything to take back.
    fn take_back(&mut self, key: Key, mut back: impl FnMut(&mut Hold) -> bool) -> bool {
        let Some(holds) = self.holds.get_mut(&key) else { return false };
        let mut any = false;
        holds.retain_mut(|hold| {
            any |= back(hold);
            hold.by_session + hold.by_transaction > 0
        });
        if holds.is_empty() {
            self.holds.remove(&key);
        }
        if any {
            self.wake(key);
        }
        any
    }

    fn wake(&mut self, key: Key) {
        let wakers = self.waiters.iter_mut().filter(|waiter| waiter.lock.key == key);
        wakers.filter_map(|waiter| waiter.waker.take()).for_each(Waker::wake);
    }

    /// Would the session, waiting for these, wait for itself?
    fn closes_circle(&self, session: SessionNumber, blockers: Vec<SessionNumber>) -> bool {
        let (mut seen, mut next) = (Vec::new(), blockers);
        while let Some(one) = next.pop() {
            if one == session {
                return true;
            }
            if seen.contains(&one) {
                continue;
            }
            seen.push(one);
            for waiter in self.waiters.iter().filter(|waiter| waiter.session == one) {
                next.extend(self.blockers(one, waiter.lock, Some(waiter.number)));
            }
        }
        false
    }
}

impl Locks {
    fn state(&self) -> MutexGuard<'_, State> {
        // The tables are whole whenever their lock is free.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All locks that are held, and those that are waited for: session, lock, whether it holds it.
    pub(crate) fn all(&self) -> Vec<(SessionNumber, Lock, bool)> {
        let state = self.state();
        let mut all = Vec::new();
        for (key, holds) in &state.holds {
            for hold in holds {
                for (transaction, count) in [(false, hold.by_session), (true, hold.by_transaction)] {
                    let lock = Lock { key: *key, exclusive: hold.exclusive, transaction };
                    all.extend((count > 0).then_some((hold.session, lock, true)));
                }
            }
        }
        all.extend(state.waiters.iter().map(|waiter| (waiter.session, waiter.lock, false)));
        all
    }

    /// Takes the lock if no other session is in its way.
    pub(crate) fn try_lock(&self, session: SessionNumber, lock: Lock) -> bool {
        let mut state = self.state();
        let free = state.blockers(session, lock, None).is_empty();
        if free {
            state.grant(session, lock);
        }
        free
    }

    /// Waits for the lock, which the session holds when this is ready.
    ///
    /// # Errors
    /// The wait would never end (40P01).
    pub(crate) fn lock(self: &Arc<Self>, session: SessionNumber, lock: Lock) -> Result<Waiting> {
        let mut state = self.state();
        let blockers = state.blockers(session, lock, None);
        if state.closes_circle(session, blockers) {
            return Err(Error::new("40P01", "deadlock detected")
                .detail(format!("Session {session} would wait for an advisory lock in a circle."))
                .hint("Take locks in the same order everywhere."));
        }
        let number = state.next;
        state.next += 1;
        state.waiters.push(Waiter { number, session, lock, waker: None });
        Ok(Waiting { locks: self.clone(), number, session, lock, done: false })
    }

    /// Gives a lock back; `false`: the session does not hold it.
    pub(crate) fn unlock(&self, session: SessionNumber, lock: Lock) -> bool {
        let mut taken = false;
        self.state().take_back(lock.key, |hold| {
            let count = if lock.transaction { &mut hold.by_transaction } else { &mut hold.by_session };
            let mine = hold.session == session && hold.exclusive == lock.exclusive && *count > 0 && !taken;
            if mine {
                *count -= 1;
                taken = true;
            }
            mine
        })
    }

    fn release(&self, session: SessionNumber, mut count: impl FnMut(&mut Hold) -> &mut u32) {
        let mut state = self.state();
        let keys: Vec<Key> = state.holds.keys().copied().collect();
        for key in keys {
            state.take_back(key, |hold| hold.session == session && std::mem::take(count(hold)) > 0);
        }
    }

    /// Gives back what the session holds for itself.
    pub(crate) fn unlock_all(&self, session: SessionNumber) {
        self.release(session, |hold| &mut hold.by_session);
    }

    /// Gives back what the session holds for its transaction.
    pub(crate) fn transaction_ended(&self, session: SessionNumber) {
        self.release(session, |hold| &mut hold.by_transaction);
    }
}

/// A wait for a lock. Dropping it ends the wait.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub(crate) struct Waiting {
    locks: Arc<Locks>,
    number: u64,
    session: SessionNumber,
    lock: Lock,
    done: bool,
}

impl Future for Waiting {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.done {
            return Poll::Ready(());
        }
        let locks = self.locks.clone();
        let mut state = locks.state();
        let place = state.waiters.iter().position(|waiter| waiter.number == self.number);
        let place = place.expect("a wait stands among the waiters until it is done");
        if state.blockers(self.session, self.lock, Some(self.number)).is_empty() {
            state.waiters.remove(place);
            state.grant(self.session, self.lock);
            // Those behind it that want the lock shared may go on, too.
            state.wake(self.lock.key);
            self.done = true;
            return Poll::Ready(());
        }
        state.waiters[place].waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.locks.state();
            state.waiters.retain(|waiter| waiter.number != self.number);
            state.wake(self.lock.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCLUSIVE: Lock = Lock { key: Key::One(1), exclusive: true, transaction: false };
    const SHARED: Lock = Lock { exclusive: false, ..EXCLUSIVE };

    fn is_ready(wait: &mut Waiting) -> bool {
        Pin::new(wait).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn locks_count_and_exclude() {
        let locks = Locks::default();
        assert!(locks.try_lock(1, SHARED) && locks.try_lock(2, SHARED));
        assert!(!locks.try_lock(1, EXCLUSIVE), "another session shares it");
        assert!(locks.unlock(2, SHARED) && !locks.unlock(2, SHARED));
        assert!(locks.try_lock(1, EXCLUSIVE) && locks.try_lock(1, EXCLUSIVE));
        assert!(locks.unlock(1, EXCLUSIVE) && locks.unlock(1, SHARED));
        assert!(!locks.try_lock(2, SHARED), "one of two is left");
        locks.unlock_all(1);
        assert!(locks.try_lock(2, EXCLUSIVE));
        assert!(locks.try_lock(1, Lock { key: Key::Two(0, 1), ..EXCLUSIVE }), "another kind of key");
    }

    #[test]
    fn a_transaction_gives_back_its_own_only() {
        let locks = Locks::default();
        assert!(locks.try_lock(1, EXCLUSIVE) && locks.try_lock(1, Lock { transaction: true, ..EXCLUSIVE }));
        locks.transaction_ended(1);
        assert!(!locks.try_lock(2, EXCLUSIVE), "the session holds it");
        assert!(locks.unlock(1, EXCLUSIVE) && locks.try_lock(2, EXCLUSIVE));
    }

    #[test]
    fn waiters_are_served_in_order() {
        let locks = Arc::new(Locks::default());
        assert!(locks.try_lock(1, SHARED));
        let mut first = locks.lock(2, EXCLUSIVE).expect("no circle");
        assert!(!is_ready(&mut first));
        assert!(!locks.try_lock(3, SHARED), "one that came before waits for it alone");
        let mut second = locks.lock(3, SHARED).expect("no circle");
        assert!(!is_ready(&mut second));
        assert!(locks.unlock(1, SHARED));
        assert!(!is_ready(&mut second) && is_ready(&mut first));
        drop(first);
        assert!(locks.unlock(2, EXCLUSIVE) && is_ready(&mut second));
    }

    #[test]
    fn a_circle_is_refused_and_a_wait_that_is_given_up_leaves_nothing() {
        let locks = Arc::new(Locks::default());
        let other = Lock { key: Key::One(2), ..EXCLUSIVE };
        assert!(locks.try_lock(1, EXCLUSIVE) && locks.try_lock(2, other));
        let mut waits = locks.lock(1, other).expect("no circle yet");
        assert!(!is_ready(&mut waits));
        assert_eq!(locks.lock(2, EXCLUSIVE).expect_err("1 waits for 2").code, "40P01");
        drop(waits);
        let mut waits = locks.lock(2, EXCLUSIVE).expect("no circle any more");
        assert!(!is_ready(&mut waits) && locks.state().waiters.len() == 1);
        locks.unlock_all(1);
        assert!(is_ready(&mut waits));
    }
}
