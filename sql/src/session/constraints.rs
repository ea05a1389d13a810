//! When foreign keys are looked at: SET CONSTRAINTS, and what waits for COMMIT.

use std::collections::HashMap;

use super::{Answer, Session};
use crate::error::{Error, Result};
use crate::exec::{self, Pending};
use crate::parser::ast::ObjectName;

/// What SET CONSTRAINTS has said in this transaction.
#[derive(Debug, Default)]
pub(super) struct ConstraintModes {
    all: Option<bool>,
    named: HashMap<String, bool>,
}

impl ConstraintModes {
    /// Does a deferrable constraint wait for COMMIT?
    pub(super) fn deferred(&self, name: &str, initially: bool) -> bool {
        self.named.get(name).copied().or(self.all).unwrap_or(initially)
    }
}

impl Session {
    pub(super) async fn set_constraints(&mut self, names: &[ObjectName], deferred: bool) -> Result<Answer> {
        for name in names {
            let known: Vec<bool> = self
                .objects
                .foreign()
                .filter(|(_, own, _)| *own == name.name)
                .map(|(_, _, row)| row.deferrable)
                .collect();
            if known.is_empty() {
                let message = format!("constraint \"{}\" does not exist", name.name);
                return Err(Error::new("42704", message));
            }
            if known.contains(&false) {
                return Err(Error::new("42809", format!("constraint \"{}\" is not deferrable", name.name)));
            }
        }
        let mut answer = Answer::tagged("SET CONSTRAINTS");
        let Some(open) = &mut self.open else {
            answer.warn("25P01", "SET CONSTRAINTS can only be used in transaction blocks");
            return Ok(answer);
        };
        if names.is_empty() {
            open.constraints.named.clear();
            open.constraints.all = Some(deferred);
        }
        for name in names {
            open.constraints.named.insert(name.name.clone(), deferred);
        }
        self.settle_deferred(false).await?;
        Ok(answer)
    }

    /// Looks at what has waited: at all of it, before COMMIT, or at what does not wait any more.
    pub(super) async fn settle_deferred(&mut self, all: bool) -> Result<()> {
        if self.open.as_ref().is_none_or(|open| open.deferred.is_empty()) {
            return Ok(());
        }
        let context = self.own_context();
        let (catalog, Some(open)) = self.catalog_and_open() else { return Ok(()) };
        let modes = &open.constraints;
        let waits = |one: &Pending| !all && modes.deferred(&one.key().name, one.key().deferred);
        let (later, now) = std::mem::take(&mut open.deferred).into_iter().partition(waits);
        open.deferred = later;
        exec::settle(catalog, &mut open.transaction, open.isolation, &context, now).await
    }
}
