//! Names of relations: which one a name means, by its schema or by the search path.
//!
//! What definitions keep as text (defaults, conditions, queries of views) was written under the path of its time. There names
//! without a schema mean those of `public`, but for those that a view's row says otherwise of.

use std::borrow::Cow;

use super::Binder;
use crate::error::{Error, Result};
use crate::functions::is_relation_elsewhere;
use crate::names;
use crate::parser::ast::ObjectName;
use crate::parser::{Edits, token_at};
use crate::types::{Local, Zone};

/// Names of a kept text: it is bound over `public`, and these mean others.
pub(super) type Kept = Vec<(String, String)>;

impl Binder<'_> {
    /// Binds over `public`: the texts are the database's own.
    pub(crate) fn over_public(mut self) -> Self {
        self.kept = Some(Kept::new());
        self
    }

    /// Binds what a definition is going to keep as text, in which a literal such as `'now'` is read when it is defined.
    pub(crate) fn for_keeping(mut self) -> Self {
        self.moments = Some(Vec::new());
        self
    }

    /// The edits by which a text means the same in all zones, and at all times. It begins at a place of the statement that was bound.
    pub(crate) fn zone_edits(&self, text: &str, at: u32) -> Edits {
        let edit = |(place, shown): &(u32, String)| {
            let literal = token_at(text, place.checked_sub(at)? as usize)?;
            Some((literal, format!("'{}'", shown.replace('\'', "''"))))
        };
        self.moments.iter().flatten().filter_map(edit).collect()
    }

    /// Binds a text that a definition has kept.
    pub(super) fn kept<T>(&mut self, names: Kept, bind: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.kept.replace(names);
        let bound = bind(self);
        self.kept = before;
        bound
    }

    /// The time and the zone of literals. Those of a kept text mean the same in all sessions: their zone is UTC.
    pub(super) fn literals(&self) -> Cow<'_, Local> {
        match self.kept {
            Some(_) => Cow::Owned(Local { zone: Zone::UTC, ..self.local.clone() }),
            None => Cow::Borrowed(&self.local),
        }
    }

    fn is_relation(&self, full: &str) -> bool {
        let objects = self.catalog.objects();
        self.catalog.has_table(full) || objects.view(full).is_some() || objects.sequence(full).is_some()
    }

    /// The full name of the table, view or sequence that a name means.
    pub(super) fn found(&self, schema: Option<&str>, name: &str) -> Option<String> {
        let there = |schema: &str| Some(names::within(schema, name)).filter(|full| self.is_relation(full));
        match (schema, &self.kept) {
            (Some(schema), _) => there(schema),
            (None, Some(kept)) => match kept.iter().find(|(written, _)| written == name) {
                Some((_, full)) => Some(full.clone()),
                None => there(names::PUBLIC),
            },
            (None, None) => self.catalog.path().iter().find_map(|schema| there(schema)),
        }
    }

    /// The same of a name in a statement, noted for what depends on it.
    pub(super) fn relation_named(&mut self, name: &ObjectName) -> Option<String> {
        let full = self.found(name.schema.as_deref(), &name.name)?;
        if name.schema.is_none() && self.kept.is_none() {
            let own = names::schema_of(&full);
            let before = self.catalog.path().iter().take_while(|schema| *schema != own);
            self.absent.extend(before.map(|schema| names::within(schema, &name.name)));
        }
        if name.schema.is_none() && names::schema_of(&full) != names::PUBLIC {
            self.named_elsewhere.push((name.name.clone(), full.clone()));
        }
        Some(full)
    }

    /// The schemas in which names without one are looked for.
    pub(super) fn search_path(&self) -> Vec<String> {
        match self.kept {
            Some(_) => vec![names::PUBLIC.to_owned()],
            None => self.catalog.path().to_vec(),
        }
    }

    /// Is this the relation that its plain name means?
    pub(super) fn is_visible(&self, full: &str) -> bool {
        let (schema, name) = (names::schema_of(full), names::plain(full));
        let mut path = self.catalog.path().iter();
        path.find(|other| *other == schema || self.is_relation(&names::within(other, name)))
            .is_some_and(|found| found == schema)
    }

    pub(super) fn unknown_table(&self, name: &ObjectName) -> Error {
        let shown = match &name.schema {
            Some(schema) => format!("{schema}.{}", name.name),
            None => name.name.clone(),
        };
        if is_relation_elsewhere(name.schema.as_deref(), &name.name) {
            return Error::unsupported(format!("relation \"{shown}\"")).at(name.at);
        }
        let error = Error::new("42P01", format!("relation \"{shown}\" does not exist")).at(name.at);
        let all = self.catalog.names();
        match crate::error::nearest(&name.name, all.iter().map(|full| names::plain(full))) {
            Some(near) => error.hint(format!("Perhaps you meant the table \"{near}\".")),
            None => error,
        }
    }
}
