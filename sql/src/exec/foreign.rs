//! Foreign keys: what a statement's changes ask of other tables, once it has made all of them.
//!
//! | change | asks | how |
//! |---|---|---|
//! | a child comes, or its columns change | its parent to be there | the parent's newest version is looked at and locked in key share, so that it stays until the child is decided |
//! | a parent goes, or its key changes | no child to be left, or children to follow | children are looked for when the parent's tombstone stands: none can come any more |
//!
//! Who deletes a parent and who inserts its child meet at the parent's row:
//!
//! | | T1: `delete from parents` | T2: `insert into children` |
//! |---|---|---|
//! | T1 first | its tombstone stands | waits for T1; then finds no parent: 23503 |
//! | T2 first | waits for T2's key share lock; then finds the child: 23503, or its action | the parent is locked |
//!
//! Each look runs in a statement of its own, so that at read committed it sees what was committed since. Above that, children that
//! are younger than the snapshot are looked for at present: by an index on the child's columns, else among all rows that are
//! committed now; changing one fails (40001).
//!
//! What an action changes asks again, until nothing does.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use thermocline_engine::{Isolation, Transaction};

use super::change::{check_row, stale};
use super::operators::Range;
use super::source::{Changed, Decision, EngineSource, Locked, Seen, Which};
use super::{Row, Source};
use crate::bind::Binder;
use crate::catalog::{Catalog, Foreign, Table};
use crate::error::{Error, Result};
use crate::expr::memory::size_of_row;
use crate::expr::{Context, Env, Expr};
use crate::objects::rows::ActionRow;
use crate::parser::ast::{LockWait, Strength};
use crate::pg_catalog::EngineCatalog;
use crate::types::{Datum, Zone, text};

/// How often a row is looked at that changes meanwhile.
const TRIES: u32 = 100;

/// What a change asks for.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// A child with these values needs its parent.
    Child { key: Arc<Foreign>, values: Row },
    /// A parent with these values has gone, or has new ones.
    Parent { key: Arc<Foreign>, old: Row, new: Option<Row> },
}

impl Pending {
    /// Bytes that it takes.
    pub(crate) fn size(&self) -> usize {
        let rows = match self {
            Self::Child { values, .. } => [Some(values), None],
            Self::Parent { old, new, .. } => [Some(old), new.as_ref()],
        };
        size_of::<Self>() + rows.into_iter().flatten().map(|row| size_of_row(row)).sum::<usize>()
    }

    /// The constraint.
    pub(crate) fn key(&self) -> &Foreign {
        match self {
            Self::Child { key, .. } | Self::Parent { key, .. } => key,
        }
    }

    /// May it wait until the transaction commits? Actions do not.
    pub(crate) fn may_wait(&self) -> bool {
        match self {
            Self::Child { key, .. } => key.deferrable,
            Self::Parent { key, new, .. } => {
                let action = if new.is_some() { key.on_update } else { key.on_delete };
                key.deferrable && action == ActionRow::NoAction
            }
        }
    }
}

/// Values of columns by name; none if one of them is null, which refers to nothing.
fn values_of(table: &Table, row: &[Datum], names: &[String]) -> Option<Row> {
    let values: Row = table.places(names)?.into_iter().map(|place| row[place].clone()).collect();
    values.iter().all(|value| !value.is_null()).then_some(values)
}

pub(super) fn note_inserted(table: &Table, row: &[Datum], pending: &mut Vec<Pending>) {
    for key in &table.foreign {
        if let Some(values) = values_of(table, row, &key.columns) {
            pending.push(Pending::Child { key: key.clone(), values });
        }
    }
}

pub(super) fn note_deleted(table: &Table, row: &[Datum], pending: &mut Vec<Pending>) {
    for key in &table.referenced {
        if let Some(old) = values_of(table, row, &key.parent_columns) {
            pending.push(Pending::Parent { key: key.clone(), old, new: None });
        }
    }
}

pub(super) fn note_changed(table: &Table, before: &[Datum], after: &[Datum], pending: &mut Vec<Pending>) {
    for key in &table.foreign {
        let (old, new) = (values_of(table, before, &key.columns), values_of(table, after, &key.columns));
        if let Some(values) = new.filter(|new| old.as_ref() != Some(new)) {
            pending.push(Pending::Child { key: key.clone(), values });
        }
    }
    for key in &table.referenced {
        let places = table.places(&key.parent_columns).unwrap_or_default();
        let new: Row = places.iter().map(|place| after[*place].clone()).collect();
        if let Some(old) = values_of(table, before, &key.parent_columns).filter(|old| *old != new) {
            pending.push(Pending::Parent { key: key.clone(), old, new: Some(new) });
        }
    }
}

/// Does what the changes of a statement, or of a transaction, ask for.
pub(crate) async fn settle(
    catalog: EngineCatalog<'_>,
    transaction: &mut Transaction,
    isolation: Isolation,
    context: &Context,
    pending: Vec<Pending>,
) -> Result<()> {
    let mut queue = VecDeque::from(pending);
    // Definitions stay what they are meanwhile.
    let mut known = HashMap::new();
    while let Some(one) = queue.pop_front() {
        context.check()?;
        if context.is_due() {
            context.pause().await?;
        }
        let source = EngineSource::new((catalog.db, catalog.tables), transaction)?.within(context);
        let mut look = Look { catalog, source, isolation, context, known: &mut known };
        match one {
            Pending::Child { key, values } => look.child(&key, &values).await?,
            Pending::Parent { key, old, new } => look.parent(&key, &old, new.as_deref(), &mut queue).await?,
        }
    }
    Ok(())
}

/// A look at other tables, in a statement of its own.
struct Look<'l, 't> {
    catalog: EngineCatalog<'l>,
    source: EngineSource<'t>,
    isolation: Isolation,
    context: &'l Context,
    known: &'l mut HashMap<String, Known>,
}

/// A table and its CHECK constraints.
#[derive(Clone)]
struct Known {
    table: Arc<Table>,
    checks: Arc<Vec<(String, Expr)>>,
}

impl Look<'_, '_> {
    fn known(&mut self, name: &str) -> Result<Known> {
        if let Some(known) = self.known.get(name) {
            return Ok(known.clone());
        }
        let found = self.catalog.table(name);
        let table =
            found.ok_or_else(|| Error::new("42P01", format!("relation \"{name}\" does not exist")))?;
        let mut binder = Binder::new(&self.catalog, Vec::new(), self.context.local.clone());
        let checks = Arc::new(binder.checks(&table)?);
        let known = Known { table, checks };
        self.known.insert(name.to_owned(), known.clone());
        Ok(known)
    }

    fn table(&mut self, name: &str) -> Result<Arc<Table>> {
        Ok(self.known(name)?.table)
    }

    async fn child(&mut self, key: &Foreign, values: &[Datum]) -> Result<()> {
        let parent = self.table(&key.parent)?;
        if self.parent_is_there(&parent, key, values, true).await? {
            return Ok(());
        }
        // The child may have gone since, with its parent or by itself.
        let child = self.table(&key.child)?;
        let places = child.places(&key.columns).unwrap_or_default();
        if self.children(&child, &places, values).await?.is_empty() {
            return Ok(());
        }
        let (name, table) = (&key.name, &key.child);
        let message =
            format!("insert or update on table \"{table}\" violates foreign key constraint \"{name}\"");
        let shown = shown(&child, &key.columns, values, &self.context.local.zone);
        let detail = format!("Key {shown} is not present in table \"{}\".", key.parent);
        Err(Error::new("23503", message).detail(detail).table(table).constraint(name))
    }

    /// Is there a parent with these values now? It is locked, so that it stays, if that is wanted.
    async fn parent_is_there(
        &mut self,
        parent: &Arc<Table>,
        key: &Foreign,
        values: &[Datum],
        lock: bool,
    ) -> Result<bool> {
        let places = parent.places(&key.parent_columns).unwrap_or_default();
        let Some(index) = parent.unique_on(&places) else {
            let message = format!("the unique key that constraint \"{}\" refers to has gone", key.name);
            return Err(Error::new("42830", message));
        };
        let ordered = by_index(parent, index, &places, values);
        for _ in 0..TRIES {
            let Some(number) = self.source.present(parent, index, &ordered).await? else { return Ok(false) };
            if !lock {
                return Ok(true);
            }
            match self.source.lock(parent, number, Strength::KeyShare, LockWait::Wait).await? {
                Locked::Same => return Ok(true),
                Locked::Another(row) if holds(&row, &places, values) => return Ok(true),
                // It has gone, or has another key by now.
                Locked::Another(_) | Locked::NotThere => {}
                Locked::Lost => return Err(stale()),
            }
        }
        Err(stale())
    }

    /// Children with these values: their rows and numbers.
    async fn children(&mut self, child: &Arc<Table>, places: &[usize], values: &[Datum]) -> Result<Vec<i64>> {
        let range = range_on(child, places, values);
        let columns: Vec<usize> = (0..child.columns.len()).collect();
        let (width, mut found, mut seen_keys) = (child.columns.len(), Vec::new(), HashSet::new());
        let primary = child.primary.expect("each table has a key");
        let key_of = |row: &[Datum]| -> Row {
            child.indexes[primary].columns.iter().map(|(column, _)| row[*column].clone()).collect()
        };
        let mut see = |row: &mut Row| {
            if !holds(row, places, values) {
                return Seen::Passed;
            }
            let Datum::Int(number) = row[width] else { panic!("behind the row stands its number") };
            found.push(number);
            seen_keys.insert(key_of(row));
            Seen::Taken
        };
        self.source.scan(child, &columns, (range, true), &mut see).await?;
        if self.isolation == Isolation::ReadCommitted {
            return Ok(found);
        }
        // Children that are younger than the snapshot.
        for row in self.source.committed(child, range_on(child, places, values)).await? {
            let key = key_of(&row);
            if holds(&row, places, values)
                && !seen_keys.contains(&key)
                && let Some(number) = self.source.present(child, primary, &key).await?
            {
                found.push(number);
            }
        }
        Ok(found)
    }

    async fn parent(
        &mut self,
        key: &Arc<Foreign>,
        old: &[Datum],
        new: Option<&[Datum]>,
        queue: &mut VecDeque<Pending>,
    ) -> Result<()> {
        let action = if new.is_some() { key.on_update } else { key.on_delete };
        let child = self.table(&key.child)?;
        let parent = self.table(&key.parent)?;
        // The same key may stand in another row by now.
        if action == ActionRow::NoAction && self.parent_is_there(&parent, key, old, false).await? {
            return Ok(());
        }
        let places = child.places(&key.columns).unwrap_or_default();
        let children = self.children(&child, &places, old).await?;
        if children.is_empty() {
            return Ok(());
        }
        let values: Option<Row> = match (action, new) {
            (ActionRow::NoAction | ActionRow::Restrict, _) => {
                return self.no_children((key, &parent), &child, &places, old, children).await;
            }
            (ActionRow::Cascade, None) => None,
            (ActionRow::Cascade, Some(new)) => Some(new.to_vec()),
            (ActionRow::SetNull, _) => Some(vec![Datum::Null; places.len()]),
            (ActionRow::SetDefault, _) => Some(self.defaults(&child, &places)?),
        };
        // A default that is the key which has gone refers to nothing.
        if action == ActionRow::SetDefault && values.as_deref() == Some(old) {
            return self.no_children((key, &parent), &child, &places, old, children).await;
        }
        let checks = self.known(&key.child)?.checks;
        for number in children {
            if self.context.is_due() {
                self.context.pause().await?;
            }
            let mut before_after = None;
            let (child_table, context) = (child.clone(), self.context);
            let mut decide = |row: &[Datum]| {
                before_after = None;
                if !holds(row, &places, old) {
                    return Ok(Decision::Leave);
                }
                let Some(values) = &values else {
                    before_after = Some((row.to_vec(), None));
                    return Ok(Decision::Delete);
                };
                let changes: Vec<(usize, Datum)> =
                    places.iter().copied().zip(values.iter().cloned()).collect();
                let mut after = row.to_vec();
                changes.iter().for_each(|(column, value)| after[*column] = value.clone());
                check_row(&child_table, &checks, &after, context)?;
                before_after = Some((row.to_vec(), Some(after)));
                Ok(Decision::Update(changes))
            };
            match self.source.change(&child, Which::Numbered(number), None, &mut decide).await? {
                Changed::Done | Changed::Gone | Changed::Already => {}
                Changed::Lost => return Err(stale()),
            }
            let mut asked = Vec::new();
            match before_after {
                Some((before, None)) => note_deleted(&child, &before, &mut asked),
                Some((before, Some(after))) => note_changed(&child, &before, &after, &mut asked),
                None => {}
            }
            // A parent's new key is there: it has just been given.
            asked.retain(|one| {
                action != ActionRow::Cascade
                    || !matches!(one, Pending::Child { key: own, .. } if Arc::ptr_eq(own, key))
            });
            queue.extend(asked);
        }
        Ok(())
    }

    /// Values of the columns' defaults.
    fn defaults(&mut self, child: &Table, places: &[usize]) -> Result<Row> {
        let env = Env { row: &[], outer: &[], context: self.context };
        let mut binder = Binder::new(&self.catalog, Vec::new(), self.context.local.clone());
        places.iter().map(|place| binder.default_of(child, *place)?.eval(&env)).collect()
    }

    /// Refuses what has taken a parent from children that still refer to it.
    async fn no_children(
        &mut self,
        (key, parent): (&Foreign, &Table),
        child: &Arc<Table>,
        places: &[usize],
        old: &[Datum],
        children: Vec<i64>,
    ) -> Result<()> {
        for number in children {
            let refers = match self.source.lock(child, number, Strength::KeyShare, LockWait::Wait).await? {
                Locked::Same => true,
                Locked::Another(row) => holds(&row, places, old),
                Locked::NotThere => false,
                Locked::Lost => return Err(stale()),
            };
            if refers {
                let (name, child, table) = (&key.name, &key.child, &key.parent);
                let message = format!(
                    "update or delete on table \"{table}\" violates foreign key constraint \"{name}\" on table \"{child}\""
                );
                let shown = shown(parent, &key.parent_columns, old, &self.context.local.zone);
                let detail = format!("Key {shown} is still referenced from table \"{child}\".");
                return Err(Error::new("23503", message).detail(detail).table(child).constraint(name));
            }
        }
        Ok(())
    }
}

fn holds(row: &[Datum], places: &[usize], values: &[Datum]) -> bool {
    places.iter().zip(values).all(|(place, value)| row[*place] == *value)
}

/// Values in the order of an index's columns.
fn by_index(table: &Table, index: usize, places: &[usize], values: &[Datum]) -> Row {
    let value_of = |column: usize| {
        let at = places.iter().position(|place| *place == column);
        values[at.expect("the index is on these columns")].clone()
    };
    table.indexes[index].columns.iter().map(|(column, _)| value_of(*column)).collect()
}

/// The range of an index that has the rows with these values: of one that begins with the columns. None: all rows are read.
fn range_on(table: &Table, places: &[usize], values: &[Datum]) -> Option<Range> {
    let leads = |index: &&crate::catalog::Index| {
        let count = index.columns.iter().take_while(|(column, _)| places.contains(column)).count();
        count == places.len() && (index.ordered || count == index.columns.len())
    };
    let at = table.indexes.iter().position(|index| leads(&index))?;
    let columns = table.indexes[at].columns.iter().take(places.len());
    let equal = columns.map(|(column, _)| {
        let place =
            places.iter().position(|place| place == column).expect("the index begins with these columns");
        values[place].clone()
    });
    let equal = equal.collect();
    let (low, high) = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    Some(Range { index: at, equal, low, high, backward: false })
}

/// `(a, b)=(1, 2)`
pub(crate) fn shown(table: &Table, names: &[String], values: &[Datum], zone: &Zone) -> String {
    let ty = |name: &String| table.columns.iter().find(|column| column.name == *name).map(|column| column.ty);
    let values: Vec<String> = names
        .iter()
        .zip(values)
        .map(|(name, value)| text::show(value, ty(name).unwrap_or(crate::types::Type::Text), zone))
        .collect();
    format!("({})=({})", names.join(", "), values.join(", "))
}
