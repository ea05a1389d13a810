//! Statements whose expressions ask the session: settings, its number, advisory locks.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::{Answer, Prepared, Rows, Session};
use crate::error::{Error, Result};
use crate::shared::Common;
use crate::shared::advisory::Lock;
use crate::shared::facts::{Facts, Kept};
use crate::shared::interrupt::Cause;
use crate::types::Datum;

impl Session {
    /// The same session, sharing locks and numbers with others; `number`: what it is known by (`pg_backend_pid`).
    #[must_use]
    pub fn with_common(mut self, common: &Arc<Common>, number: i32) -> Self {
        self.facts = Arc::new(Facts::new(common.clone(), Some(number)));
        self
    }

    /// Runs a statement whose expressions ask the session. It runs again after each advisory lock that it has to wait for.
    pub(super) async fn asking_statement(
        &mut self,
        prepared: &mut Prepared,
        parameters: Vec<Datum>,
        rows: &mut dyn Rows,
        fixed: bool,
    ) -> Result<Answer> {
        let mut kept: Option<Kept> = None;
        loop {
            let level = match &self.open {
                Some(open) => (open.isolation, open.read_only),
                None => (self.settings.isolation, self.settings.read_only),
            };
            self.facts.begin(self.settings.values(), level);
            let ran = Box::pin(self.statement_once(prepared, parameters.clone(), rows, fixed)).await;
            drop(kept.take());
            match ran {
                Ok(mut answer) => {
                    let (wishes, warnings) = self.facts.take_wishes();
                    for (name, value, local) in wishes {
                        let set = self.set_setting(local, &name, Some(&[value]))?;
                        // SET LOCAL of its own has an effect on nothing, and says so; this says nothing.
                        drop(set);
                    }
                    warnings.into_iter().for_each(|warning| answer.warn("01000", warning));
                    return Ok(answer);
                }
                Err(error) => {
                    let Some(lock) = self.facts.take_waiting() else { return Err(error) };
                    rows.restart();
                    kept = Some(self.wait_for(lock).await?);
                }
            }
        }
    }

    /// Waits for an advisory lock, as long as the timeouts allow.
    async fn wait_for(&self, lock: Lock) -> Result<Kept> {
        let common = self.facts.common().clone();
        // It is the session's until the statement has taken it itself.
        let lock = Lock { transaction: false, ..lock };
        let mut waiting = common.locks.lock(self.facts.number(), lock)?;
        let (by_lock, by_statement) = (self.settings.lock_timeout, self.settings.statement_timeout);
        let limit = [by_lock, by_statement].into_iter().flatten().min();
        let mut sleep = match limit {
            Some(limit) => Some(
                common
                    .timer
                    .sleep_until(now_ns(limit))
                    .map_err(|error| Error::new("53000", error.to_string()))?,
            ),
            None => None,
        };
        let interrupt = self.interrupt.clone();
        std::future::poll_fn(|context| {
            use std::future::Future;
            if let Some(cause) = interrupt.raised() {
                return Poll::Ready(Err(cause.error()));
            }
            if std::pin::Pin::new(&mut waiting).poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let late = sleep.as_mut().is_some_and(|it| std::pin::Pin::new(it).poll(context).is_ready());
            match (late, by_lock, by_statement) {
                (true, Some(lock), statement) if statement.is_none_or(|statement| lock <= statement) => {
                    Poll::Ready(Err(Error::new("55P03", "canceling statement due to lock timeout")))
                }
                (true, ..) => Poll::Ready(Err(Cause::TimedOut.error())),
                _ => Poll::Pending,
            }
        })
        .await?;
        Ok(Kept { facts: self.facts.clone(), lock })
    }
}

/// The time on the timer's clock that is `limit` from now.
fn now_ns(limit: Duration) -> u64 {
    use thermocline_base::clock::{Clock, SystemClock};
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    SystemClock.now_ns().saturating_add(limit)
}
