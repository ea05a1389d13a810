//! A session notes what it does, for `pg_stat_activity`.

use std::sync::Arc;

use super::Session;
use crate::shared::activity::{Client, Doing};
use crate::shared::facts::Facts;

impl Session {
    /// The same session, which others see in `pg_stat_activity` and reach by `pg_cancel_backend` and `pg_terminate_backend`.
    #[must_use]
    pub fn with_client(mut self, client: Client) -> Self {
        let (common, number) = (self.facts.common().clone(), self.facts.number());
        let backend = common.activity.enter(number, client, self.clock.wall_us());
        self.facts = Arc::new(Facts::new(common, Some(number)).with_backend(backend));
        self
    }

    /// A statement begins.
    pub(super) fn note_begin(&mut self, text: &Arc<str>) {
        let Some(backend) = self.facts.backend() else { return };
        self.resting = None;
        let now = self.clock.wall_us();
        let application = (self.noted_settings != Some(self.settings.version))
            .then(|| self.setting("application_name").unwrap_or_default());
        let mut seen = backend.seen();
        seen.doing = Doing::Active;
        seen.query = Some(text.clone());
        (seen.query_start, seen.changed) = (Some(now), now);
        seen.transaction_start = Some(self.open.as_ref().map_or(now, |open| open.now));
        if let Some(application) = application {
            seen.application = application.into();
            drop(seen);
            self.noted_settings = Some(self.settings.version);
        }
    }

    /// Nothing runs any more.
    pub(super) fn note_rest(&mut self) {
        let Some(backend) = self.facts.backend() else { return };
        let doing = match self.status() {
            'I' => Doing::Idle,
            'T' => Doing::InTransaction,
            _ => Doing::Failed,
        };
        if self.resting == Some(doing) {
            return;
        }
        let mut seen = backend.seen();
        seen.doing = doing;
        seen.changed = self.clock.wall_us();
        if doing == Doing::Idle {
            seen.transaction_start = None;
        }
        drop(seen);
        self.resting = Some(doing);
    }
}
