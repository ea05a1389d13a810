//! The session's knowledge of the hidden tables, and the changes that its definitions make in them.

use std::sync::Arc;

use thermocline_engine::TransactionOptions;

use crate::error::Result;
use crate::objects::{self, Change, Committing, Objects, Shared};
use crate::pg_catalog::EngineCatalog;
use crate::session::Session;

impl Session {
    /// Definitions, as the statement that runs knows them.
    pub(crate) fn catalog(&self) -> EngineCatalog<'_> {
        EngineCatalog {
            db: &self.db,
            tables: &self.tables,
            objects: &self.objects,
            sequences: &self.sequences,
            common: self.facts.common(),
            path: &self.path,
            described: Some(&self.described).filter(|_| !self.own_tables),
        }
    }

    /// Looks whether definitions have changed.
    pub(in crate::session) fn refresh_objects(&mut self) -> Result<()> {
        let refreshed = self.refresh_rows();
        self.refresh_path();
        refreshed
    }

    fn refresh_rows(&mut self) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| open.defines) {
            return Ok(());
        }
        if self.shared.is_none() && self.db.has_table(objects::OBJECTS) {
            self.shared = Shared::of(&self.db);
        }
        let Some(shared) = &self.shared else { return Ok(()) };
        let objects = shared.objects(&self.db, &self.objects)?;
        if objects.version != self.objects.version {
            self.objects = objects;
            self.sequences.refresh(self.shared.clone(), self.objects.clone());
        }
        Ok(())
    }

    /// The objects of a transaction that has changed them, after it went back to a savepoint.
    pub(in crate::session) async fn reload_objects(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        self.objects = Arc::new(objects::load(&self.db, &mut open.transaction).await?);
        self.sequences.refresh(self.shared.clone(), self.objects.clone());
        Ok(())
    }

    /// Writes what a definition has changed: in the open transaction, or in one of its own.
    pub(super) async fn record(&mut self, changes: &[Change]) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        objects::tables(&self.db)?;
        if self.shared.is_none() {
            self.shared = Shared::of(&self.db);
        }
        if let Some(open) = &mut self.open {
            objects::write(&self.db, &mut open.transaction, changes).await?;
            open.defines = true;
            let mut objects: Objects = (*self.objects).clone();
            changes.iter().for_each(|change| objects.apply(change));
            objects.version = objects::fresh_version();
            self.objects = Arc::new(objects);
            self.sequences.refresh(self.shared.clone(), self.objects.clone());
            for change in changes {
                match change {
                    Change::PutSequence(name, _, Some((last, called)))
                    | Change::Position(name, last, called) => {
                        self.sequences.keep(name, *last, *called, open.savepoints.len());
                    }
                    _ => {}
                }
            }
            return Ok(());
        }
        let mut transaction = self.db.begin(TransactionOptions::new())?;
        objects::write(&self.db, &mut transaction, changes).await?;
        let committing = self.committing(true);
        transaction.commit().await?;
        drop(committing);
        if let Some(shared) = &self.shared {
            for change in changes {
                match change {
                    Change::PutSequence(name, _, Some(_))
                    | Change::Position(name, ..)
                    | Change::RemoveSequence(name) => {
                        shared.sequences.forget(name);
                    }
                    _ => {}
                }
            }
        }
        self.sequences.ended(0);
        self.refresh_objects()
    }

    /// Writes the positions of sequences that the transaction has kept.
    pub(in crate::session) async fn write_sequences(&mut self) -> Result<()> {
        let kept = self.sequences.kept();
        let Some(open) = &mut self.open else { return Ok(()) };
        let known = |name: &String| self.objects.sequence(name).is_some();
        let changes: Vec<Change> = kept
            .into_iter()
            .filter(|(name, ..)| known(name))
            .map(|(name, last, called)| Change::Position(name, last, called))
            .collect();
        objects::write(&self.db, &mut open.transaction, &changes).await
    }

    /// A transaction begins to commit, which has changed the hidden tables if it `defines`.
    pub(in crate::session) fn committing(&self, defines: bool) -> Option<Committing> {
        self.shared.as_ref().filter(|_| defines).map(Shared::committing)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thermocline_engine::{Database, Options};

    use crate::session::Session;

    /// However long the commit of another session's definition takes, statements look as often as they like, and are bound anew
    /// once it is there.
    #[test]
    fn a_look_while_others_commit_changes_nothing_by_itself() {
        let db = Database::open_in_memory(Options::default()).expect("it opens");
        let mut session = Session::new(&db);
        let run = |session: &mut Session, text: &str| {
            session.run(text, drop).expect("it runs");
        };
        run(&mut session, "create table t (a int check (a > 0))");
        let mut other = Session::new(&db);
        session.refresh_objects().expect("it looks");
        let before = session.objects.clone();
        let committing = session.shared.as_ref().expect("there are hidden tables").committing();
        for _ in 0..3 {
            session.refresh_objects().expect("it looks");
            assert!(Arc::ptr_eq(&session.objects, &before), "nothing has changed");
        }
        run(&mut other, "create table u (a int check (a > 1))");
        session.refresh_objects().expect("it looks");
        assert!(session.objects.checks("u").next().is_some(), "the other session's is there");
        let now = session.objects.version;
        session.refresh_objects().expect("it looks");
        assert_eq!(session.objects.version, now);
        drop(committing);
        session.refresh_objects().expect("it looks");
        assert!(session.objects.checks("u").next().is_some());
    }
}
