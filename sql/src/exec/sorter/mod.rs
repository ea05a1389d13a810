//! ORDER BY: rows in an order, as many as there are.
//!
//! ```text
//! row ─► record ─► pieces of memory, an entry each ── beyond the grant: handed over ─► pause: sorted, written ─► run in a file
//!                        └─► all have come: entries sorted ─► rows            or all runs merged, a block of each in memory ─► rows
//! ```
//!
//! | file | has |
//! |---|---|
//! | `record` | rows as bytes: a key that compares as bytes do, and what it does not give back of the row |
//! | `memory` | records in memory, and their order |
//! | `runs` | records in files, and the merge of them |
//!
//! Rules:
//! - A sorter keeps as much as its operator is granted ([`Grant`](crate::expr::memory::Grant)); with more rows its run is handed over to
//!   the statement's next pause ([`crate::expr::later`]), and counts as kept until it has been written.
//! - Equal rows stay in the order in which they came: in a run by their places, and of two runs the earlier one goes first.
//! - The blocks of a merge take half of the grant at most: with more runs, some are merged into longer ones first.
//! - Where there are no files rows stay in memory, and are refused (53200) where the limit does not hold them.

mod memory;
mod record;
mod runs;

use std::borrow::Cow;
use std::rc::Rc;

use self::memory::Records;
pub(super) use self::record::{Coming, KeyForm};
use self::record::{Draft, RecordForm};
use self::runs::{Handed, Merge, Runs};
use super::coded::Coder;
use super::{Flow, Row};
use crate::error::Result;
use crate::expr::memory::Kept;
use crate::expr::{Context, Env};
use crate::plan::SortKey;
use crate::types::{Datum, order_bytes};

/// A row of values, and those of its key.
struct Valued<'r> {
    row: &'r [Datum],
    key: &'r [Datum],
}

impl Coming for Valued<'_> {
    fn form(&self, place: usize) -> Option<KeyForm> {
        KeyForm::of(&self.key[place])
    }

    fn write_order(&self, place: usize, to: &mut Vec<u8>) {
        order_bytes::write(&self.key[place], to);
    }

    fn write(&self, column: usize, coder: &mut Coder, to: &mut Vec<u8>) {
        coder.write(&self.row[column], to);
    }
}

/// Rows that are to be sorted, as they come.
pub(super) struct Sorter<'e> {
    context: &'e Context,
    form: RecordForm<'e>,
    /// The key and the record of a row that has come.
    key: Row,
    draft: Draft,
    records: Records,
    kept: Kept<'e>,
    runs: Option<Rc<Runs>>,
    /// There are no files.
    stays: bool,
}

impl<'e> Sorter<'e> {
    pub(super) fn new(context: &'e Context, keys: impl Into<Cow<'e, [SortKey]>>) -> Self {
        Self {
            context,
            form: RecordForm::new(keys.into()),
            key: Row::new(),
            draft: Draft::default(),
            records: Records::default(),
            kept: context.memory.kept(),
            runs: None,
            stays: false,
        }
    }

    /// Takes a row, as wide as those before it.
    pub(super) fn push(&mut self, row: &[Datum], outer: &[Datum]) -> Result<()> {
        let env = Env { row, outer, context: self.context };
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        for one in self.form.keys() {
            key.push(one.expr.eval(&env)?);
        }
        self.push_by(row.len(), &Valued { row, key: &key })?;
        self.key = key;
        Ok(())
    }

    /// Takes a row of so many columns.
    pub(super) fn push_by(&mut self, width: usize, row: &impl Coming) -> Result<()> {
        self.form.write(width, row, &mut self.draft);
        let bytes = self.records.push(&self.draft);
        self.kept.add(bytes)?;
        // Where memory is short, less is kept than was granted.
        let short = self.context.memory.is_short() && self.kept.bytes() >= 1 << 20;
        if (short || self.kept.bytes() >= self.context.grant.operator) && !self.stays {
            self.hand_over()?;
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        let runs = match &self.runs {
            Some(runs) => Rc::clone(runs),
            None => {
                let Some(runs) = Runs::new(self.context)? else {
                    self.stays = true;
                    return Ok(());
                };
                Rc::clone(self.runs.insert(runs))
            }
        };
        let next = Records::behind(&self.records);
        let (records, bytes) = (std::mem::replace(&mut self.records, next), self.kept.pass_on());
        self.context.do_later(Box::new(Handed { records, bytes, runs }));
        Ok(())
    }

    /// Hands the rows over in their order but for the first so many, after the last one has come.
    pub(super) async fn finish(self, skip: u64, sink: &mut dyn FnMut(&mut Row) -> Flow) -> Result<()> {
        let context = self.context;
        let mut sorted = self.sorted().await?;
        sorted.skip(skip, context).await?;
        let mut row = Row::new();
        while sorted.next(&mut row).await? {
            if sink(&mut row)?.is_break() {
                break;
            }
            if context.is_due() {
                context.pause().await?;
            }
        }
        Ok(())
    }

    /// The rows in their order, after the last one has come.
    pub(super) async fn sorted(mut self) -> Result<Sorted<'e>> {
        let context = self.context;
        let Some(runs) = self.runs.clone() else {
            self.records.sort(context).await?;
            let from = From::Memory { records: self.records, next: 0, _kept: self.kept };
            return Ok(Sorted { form: self.form, from });
        };
        if !self.records.entries.is_empty() {
            self.hand_over()?;
        }
        context.do_now().await?;
        self.records.drop_spare();
        Ok(Sorted { form: self.form, from: From::Runs(runs.merged(context).await?) })
    }
}

/// Rows in their order.
pub(super) struct Sorted<'e> {
    form: RecordForm<'e>,
    from: From<'e>,
}

enum From<'e> {
    Memory { records: Records, next: usize, _kept: Kept<'e> },
    Runs(Merge<'e>),
}

impl Sorted<'_> {
    /// Passes over so many rows, or all.
    async fn skip(&mut self, rows: u64, context: &Context) -> Result<()> {
        match &mut self.from {
            From::Memory { records, next, .. } => {
                *next = usize::try_from(rows).unwrap_or(usize::MAX).min(records.entries.len());
            }
            From::Runs(merge) => {
                for _ in 0..rows {
                    if merge.parts().is_none() {
                        break;
                    }
                    merge.advance().await?;
                    if context.is_due() {
                        context.pause().await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The next row, in place of what stands in `row`; `false`: there is none.
    pub(super) async fn next(&mut self, row: &mut Row) -> Result<bool> {
        match &mut self.from {
            From::Memory { records, next, .. } => {
                let Some(entry) = records.entries.get(*next) else { return Ok(false) };
                records.ask_for(*next);
                self.form.read(&records.parts(entry), row);
                *next += 1;
            }
            From::Runs(merge) => {
                let Some(parts) = merge.parts() else { return Ok(false) };
                self.form.read(&parts, row);
                merge.advance().await?;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use thermocline_base::rng::Rng;
    use thermocline_engine::block_on;

    use super::*;
    use crate::expr::Expr;

    /// Sorts rows, which end in their places, by all columns before.
    fn sorted(rows: &[Row], descending: bool) -> Vec<Row> {
        let context = Context::default();
        let width = rows[0].len() - 1;
        let key = |column| SortKey { expr: Expr::Column(column), descending, nulls_first: descending };
        let mut sorter = Sorter::new(&context, (0..width).map(key).collect::<Vec<_>>());
        rows.iter().for_each(|row| sorter.push(row, &[]).expect("it is taken"));
        let mut found = Vec::new();
        let mut see = |row: &mut Row| {
            found.push(std::mem::take(row));
            Ok(std::ops::ControlFlow::Continue(()))
        };
        block_on(sorter.finish(0, &mut see)).expect("they are sorted");
        found
    }

    /// Keys that differ early, late, seldom or never.
    #[test]
    fn rows_come_in_their_order_and_equal_ones_as_they_went() {
        let mut rng = Rng::new(3);
        let wide = |rng: &mut Rng| Datum::Int(rng.next_u64() as i64);
        let few = |rng: &mut Rng| Datum::Int(rng.below(3) as i64);
        let null =
            |rng: &mut Rng| if rng.chance(0.9) { Datum::Null } else { Datum::Int(rng.below(100) as i64) };
        let text = |rng: &mut Rng| Datum::text(format!("a long beginning {}", rng.below(5000)));
        let mostly = |rng: &mut Rng| Datum::Int(if rng.chance(0.95) { 7 } else { rng.next_u64() as i64 });
        let makers: [&dyn Fn(&mut Rng) -> Datum; 5] = [&wide, &few, &null, &text, &mostly];
        for (number, count) in
            [(0, 1), (0, 30_000), (1, 30_000), (2, 30_000), (3, 30_000), (4, 30_000), (5, 30_000)]
        {
            let rows: Vec<Row> = (0..count)
                .map(|place| {
                    let mut row = match number {
                        5 => vec![few(&mut rng), text(&mut rng), wide(&mut rng)],
                        number => vec![makers[number](&mut rng)],
                    };
                    row.push(Datum::Int(place));
                    row
                })
                .collect();
            for descending in [false, true] {
                let mut wanted = rows.clone();
                let width = rows[0].len() - 1;
                wanted.sort_by(|a, b| {
                    let orders = a.iter().zip(b).take(width).map(|(a, b)| a.compare_nulls_last(b));
                    let order = orders.fold(Ordering::Equal, Ordering::then);
                    if descending { order.reverse() } else { order }
                });
                assert!(sorted(&rows, descending) == wanted, "keys {number}, {count} rows, {descending}");
            }
        }
    }

    /// Values of one form in each column but the last two: there one has numbers and texts, and one has the row's place.
    fn row_of_all_forms(rng: &mut Rng, place: i64) -> Row {
        let bytes = |rng: &mut Rng| -> Vec<u8> {
            (0..rng.below(4)).map(|_| [0, 1, 0xFE, 0xFF][rng.below(4) as usize]).collect()
        };
        let text = |rng: &mut Rng| -> String {
            (0..rng.below(4)).map(|_| ['\0', 'a', ' ', 'ÿ'][rng.below(4) as usize]).collect()
        };
        let number = |rng: &mut Rng| rng.below(7) as i64 - 3;
        let mut row = vec![
            Datum::Bool(rng.chance(0.5)),
            Datum::Int(number(rng)),
            Datum::Date(number(rng) as i32),
            Datum::Time(number(rng) * 1_000_000),
            Datum::Timestamp(number(rng) << 50),
            Datum::Uuid([number(rng) as u8; 16]),
            Datum::text(text(rng)),
            Datum::Bytes(bytes(rng).into()),
            Datum::Numeric(crate::types::Numeric::Small(number(rng) * 10, 1 + rng.below(2) as u16)),
            Datum::Float([0.0, -0.0, f64::NAN, -1.5][rng.below(4) as usize]),
            Datum::Char(["a", "a ", "b", ""][rng.below(4) as usize].into()),
        ];
        row.iter_mut().for_each(|value| {
            if rng.chance(0.2) {
                *value = Datum::Null;
            }
        });
        row.push(if rng.chance(0.1) { Datum::text(text(rng)) } else { Datum::Int(number(rng)) });
        row.push(Datum::Int(place));
        row
    }

    /// Also those whose key has only a part of their columns, some twice, and those beyond which a key gives none back.
    #[test]
    fn rows_come_back_as_they_went() {
        let mut rng = Rng::new(5);
        for case in 0..300 {
            let mut rows: Vec<Row> = (0..60).map(|place| row_of_all_forms(&mut rng, place)).collect();
            let wide = if case % 5 == 0 { 70 } else { 0 };
            rows.iter_mut().for_each(|row| row.extend((0..wide).map(Datum::Int)));
            let width = rows[0].len() as u64;
            let mut keys: Vec<SortKey> = (0..rng.below(5))
                .map(|_| SortKey {
                    // The column of numbers and texts, which no order is known of, stands in no key; but see below.
                    expr: Expr::Column(match rng.below(width) as usize {
                        11 => 12,
                        column => column,
                    }),
                    descending: rng.chance(0.5),
                    nulls_first: rng.chance(0.5),
                })
                .collect();
            let last = SortKey { expr: Expr::Column(12), descending: false, nulls_first: false };
            keys.push(last);
            let context = Context::default();
            let mut sorter = Sorter::new(&context, keys.clone());
            rows.iter().for_each(|row| sorter.push(row, &[]).expect("it is taken"));
            let skip = rng.below(70);
            let mut found = Vec::new();
            let mut see = |row: &mut Row| {
                found.push(std::mem::take(row));
                Ok(std::ops::ControlFlow::Continue(()))
            };
            block_on(sorter.finish(skip, &mut see)).expect("they are sorted");
            rows.sort_by(|a, b| {
                let orders = keys.iter().map(|key| {
                    let Expr::Column(column) = key.expr else { unreachable!("it was made so") };
                    let (a, b) = (&a[column], &b[column]);
                    let order = match (a.is_null(), b.is_null()) {
                        (false, false) => a.compare(b),
                        (a, b) => return if key.nulls_first { b.cmp(&a) } else { a.cmp(&b) },
                    };
                    if key.descending { order.reverse() } else { order }
                });
                orders.fold(Ordering::Equal, Ordering::then)
            });
            let wanted = rows.get(skip as usize..).unwrap_or_default();
            // As they are shown: equal values are told apart.
            assert_eq!(format!("{found:?}"), format!("{wanted:?}"), "{keys:?}");
        }
    }

    /// No query makes such rows; if one did, nothing would be lost.
    #[test]
    fn a_column_of_several_forms_keeps_its_values() {
        let rows: Vec<Row> =
            [Datum::Int(5), Datum::text("a"), Datum::Null, Datum::Bool(true), Datum::Int(-1)]
                .into_iter()
                .map(|value| vec![value])
                .collect();
        let context = Context::default();
        let key = SortKey { expr: Expr::Column(0), descending: false, nulls_first: false };
        let mut sorter = Sorter::new(&context, vec![key]);
        rows.iter().for_each(|row| sorter.push(row, &[]).expect("it is taken"));
        let mut found = Vec::new();
        let mut see = |row: &mut Row| {
            found.push(format!("{row:?}"));
            Ok(std::ops::ControlFlow::Continue(()))
        };
        block_on(sorter.finish(0, &mut see)).expect("they are sorted");
        let mut wanted: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
    }
}
