//! CREATE, ALTER and DROP SEQUENCE.

use super::tables::next_value_of;
use crate::bind::Binder;
use crate::error::{Error, Result};
use crate::names;
use crate::objects::Change;
use crate::objects::rows::{ColumnRow, DefaultRow, Object, SequenceRow};
use crate::parser::ast::{ObjectName, SequenceOptions};
use crate::session::{Answer, Session};
use crate::types::{Type, text};

fn invalid(message: String) -> Error {
    Error::new("22023", message)
}

/// Least and greatest values of an integer type.
fn bounds(ty: Type) -> (i64, i64) {
    match ty {
        Type::Int2 => (i16::MIN.into(), i16::MAX.into()),
        Type::Int4 => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Does the definition hold together?
fn check(row: &SequenceRow, ty: Type) -> Result<()> {
    for (value, what) in [(row.max, "MAXVALUE"), (row.min, "MINVALUE")] {
        if !text::fits(value, ty) {
            return Err(invalid(format!(
                "{what} ({value}) is out of range for sequence data type {}",
                ty.sql_name()
            )));
        }
    }
    if row.min >= row.max {
        return Err(invalid(format!("MINVALUE ({}) must be less than MAXVALUE ({})", row.min, row.max)));
    }
    if row.start < row.min {
        return Err(invalid(format!(
            "START value ({}) cannot be less than MINVALUE ({})",
            row.start, row.min
        )));
    }
    if row.start > row.max {
        return Err(invalid(format!(
            "START value ({}) cannot be greater than MAXVALUE ({})",
            row.start, row.max
        )));
    }
    if row.cache < 1 {
        return Err(invalid(format!("CACHE ({}) must be greater than zero", row.cache)));
    }
    Ok(())
}

impl Session {
    /// The definition that options make, for a column of this type or by itself.
    pub(super) fn sequence_row(options: &SequenceOptions, column: Option<Type>) -> Result<SequenceRow> {
        let ty = match (&options.ty, column) {
            (Some(name), _) => Binder::type_of(name)?.0,
            (None, column) => column.unwrap_or(Type::Int8),
        };
        if !ty.is_integer() {
            return Err(invalid("sequence type must be smallint, integer, or bigint".to_owned()));
        }
        let increment = options.increment.unwrap_or(1);
        if increment == 0 {
            return Err(invalid("INCREMENT must not be zero".to_owned()));
        }
        let (least, greatest) = bounds(ty);
        let min = options.min.flatten().unwrap_or(if increment > 0 { 1 } else { least });
        let max = options.max.flatten().unwrap_or(if increment > 0 { greatest } else { -1 });
        let row = SequenceRow {
            ty: ty.oid(),
            start: options.start.unwrap_or(if increment > 0 { min } else { max }),
            increment,
            min,
            max,
            cycle: options.cycle.unwrap_or(false),
            cache: options.cache.unwrap_or(1),
            owner: None,
            identity: false,
        };
        check(&row, ty)?;
        Ok(row)
    }

    /// The column that `OWNED BY` names.
    fn owner(&self, owner: &Option<(ObjectName, String)>) -> Result<Option<(String, String)>> {
        let Some((table, column)) = owner else { return Ok(None) };
        self.known(table)?;
        let schema = self.tables.table(&table.name)?.schema();
        if schema.column_index(column).is_none() {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            return Err(Error::new("42703", message));
        }
        Ok(Some((table.name.clone(), column.clone())))
    }

    pub(super) async fn create_sequence(
        &mut self,
        name: &ObjectName,
        if_not_exists: bool,
        options: &SequenceOptions,
    ) -> Result<Answer> {
        self.schema_there(name)?;
        let mut answer = Answer::tagged("CREATE SEQUENCE");
        if self.is_relation(&name.name) {
            let message = format!("relation \"{}\" already exists", name.name);
            if if_not_exists {
                answer.notice(format!("{message}, skipping"));
                return Ok(answer);
            }
            return Err(Error::new("42P07", message));
        }
        let mut row = Self::sequence_row(options, None)?;
        if let Some(owner) = &options.owner {
            row.owner = self.owner(owner)?;
        }
        let start = row.start;
        self.record(&[Change::PutSequence(name.name.clone(), row, Some((start, false)))]).await?;
        Ok(answer)
    }

    fn known_sequence(
        &self,
        name: &ObjectName,
        if_exists: bool,
        what: &str,
        answer: &mut Answer,
    ) -> Result<Option<SequenceRow>> {
        self.schema_there(name)?;
        let shown = &name.name;
        match self.objects.sequence(shown) {
            Some(row) => Ok(Some(row.clone())),
            None if self.is_relation(shown) => {
                Err(Error::new("42809", format!("\"{shown}\" is not a sequence")))
            }
            None if if_exists => {
                answer.notice(format!("{what} \"{shown}\" does not exist, skipping"));
                Ok(None)
            }
            None => Err(Error::new("42P01", format!("{what} \"{shown}\" does not exist"))),
        }
    }

    /// ALTER SEQUENCE: what is not said stays as it is.
    pub(in crate::session) async fn alter_sequence(
        &mut self,
        name: &ObjectName,
        if_exists: bool,
        options: &SequenceOptions,
    ) -> Result<Answer> {
        let mut answer = Answer::tagged("ALTER SEQUENCE");
        let Some(mut row) = self.known_sequence(name, if_exists, "relation", &mut answer)? else {
            return Ok(answer);
        };
        let mut ty = Type::from_oid(row.ty).unwrap_or(Type::Int8);
        if let Some(wanted) = &options.ty {
            let wanted = Binder::type_of(wanted)?.0;
            if !wanted.is_integer() {
                return Err(invalid("sequence type must be smallint, integer, or bigint".to_owned()));
            }
            let ((least, greatest), (new_least, new_greatest)) = (bounds(ty), bounds(wanted));
            // A bound that was the old type's becomes the new one's.
            if row.max == greatest {
                row.max = new_greatest;
            }
            if row.min == least {
                row.min = new_least;
            }
            ty = wanted;
        }
        row.ty = ty.oid();
        row.increment = options.increment.unwrap_or(row.increment);
        if row.increment == 0 {
            return Err(invalid("INCREMENT must not be zero".to_owned()));
        }
        let (least, greatest) = bounds(ty);
        let up = row.increment > 0;
        if let Some(min) = options.min {
            row.min = min.unwrap_or(if up { 1 } else { least });
        }
        if let Some(max) = options.max {
            row.max = max.unwrap_or(if up { greatest } else { -1 });
        }
        row.start = options.start.unwrap_or(row.start);
        row.cycle = options.cycle.unwrap_or(row.cycle);
        row.cache = options.cache.unwrap_or(row.cache);
        check(&row, ty)?;
        if let Some(owner) = &options.owner {
            if row.identity {
                return Err(Error::new("0A000", "cannot change ownership of identity sequence"));
            }
            row.owner = self.owner(owner)?;
        }
        let at = match options.restart {
            Some(restart) => (restart.unwrap_or(row.start), false),
            None => self.sequences.position(&name.name)?,
        };
        let place = "RESTART value";
        if at.0 < row.min {
            return Err(invalid(format!("{place} ({}) cannot be less than MINVALUE ({})", at.0, row.min)));
        }
        if at.0 > row.max {
            return Err(invalid(format!("{place} ({}) cannot be greater than MAXVALUE ({})", at.0, row.max)));
        }
        self.record(&[Change::PutSequence(name.name.clone(), row, Some(at))]).await?;
        Ok(answer)
    }

    pub(super) async fn rename_sequence(
        &mut self,
        name: &ObjectName,
        if_exists: bool,
        to: Option<&str>,
    ) -> Result<Answer> {
        let mut answer = Answer::tagged("ALTER SEQUENCE");
        if self.known_sequence(name, if_exists, "relation", &mut answer)?.is_none() {
            return Ok(answer);
        }
        let to = to.expect("ALTER SEQUENCE without a new name is done elsewhere");
        let to = names::within(names::schema_of(&name.name), to);
        if self.is_relation(&to) {
            return Err(Error::new("42P07", format!("relation \"{to}\" already exists")));
        }
        self.move_sequence(&name.name, &to).await?;
        Ok(answer)
    }

    /// Columns whose default takes the values of a sequence, and what is kept of them.
    pub(super) fn numbered_by(&self, sequence: &str) -> Vec<(String, String, ColumnRow)> {
        let default = DefaultRow::Text(next_value_of(sequence));
        let all = self.objects.columns().filter(|(_, _, row)| row.default == default);
        all.map(|(table, column, row)| (table.to_owned(), column.to_owned(), row.clone())).collect()
    }

    pub(super) async fn drop_sequences(
        &mut self,
        names: &[ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<Answer> {
        let mut answer = Answer::tagged("DROP SEQUENCE");
        let mut changes = Vec::new();
        for name in names {
            let Some(row) = self.known_sequence(name, if_exists, "sequence", &mut answer)? else { continue };
            let shown = &name.name;
            if let Some((table, column)) = row.owner.as_ref().filter(|_| row.identity) {
                let message = format!(
                    "cannot drop sequence {shown} because column {column} of table {table} requires it"
                );
                let hint = format!("You can drop column {column} of table {table} instead.");
                return Err(Error::new("2BP01", message).hint(hint));
            }
            for (table, column, kept) in self.numbered_by(shown) {
                let what = format!("default value for column {column} of table {table}");
                if !cascade {
                    let message = format!("cannot drop sequence {shown} because other objects depend on it");
                    return Err(Error::new("2BP01", message)
                        .detail(format!("{what} depends on sequence {shown}"))
                        .hint("Use DROP ... CASCADE to drop the dependent objects too."));
                }
                answer.notice(format!("drop cascades to {what}"));
                let kept = ColumnRow { default: DefaultRow::Dropped, ..kept };
                changes.push(Change::Put(table, column, Object::Column(kept)));
            }
            changes.push(Change::RemoveSequence(shown.clone()));
            changes.extend(self.objects.about(shown).into_iter().map(Change::Remove));
        }
        self.record(&changes).await?;
        Ok(answer)
    }

    /// The objects that go with a sequence: its comments, and the defaults that take its values.
    pub(super) fn sequence_gone(&self, name: &str, answer: &mut Answer) -> Vec<Change> {
        let mut changes = vec![Change::RemoveSequence(name.to_owned())];
        for (table, column, kept) in self.numbered_by(name) {
            answer.notice(format!("drop cascades to default value for column {column} of table {table}"));
            let kept = ColumnRow { default: DefaultRow::Dropped, ..kept };
            changes.push(Change::Put(table, column, Object::Column(kept)));
        }
        changes.extend(self.objects.about(name).into_iter().map(Change::Remove));
        changes
    }
}
