//! How a table is read: by which of its indexes, from which values; and how many rows that is, about.
//!
//! Conditions on a scan come in as a conjunction. Equalities of a column with what does not depend on the row, and ranges, lead
//! into an index; so do lists (`IN`, equalities in OR, rows of values in either), as several points of one index. The
//! conditions stay where they are, so an access may give more rows than they leave.
//!
//! Nothing is known of how values are distributed. As in PostgreSQL without statistics, a column that equals something leaves a
//! fixed share of the rows, and a range another one.

use crate::catalog::{Index, Table};
use crate::expr::{Call, Comparison, Expr};
use crate::plan::{Access, KeyPart, Plan, SetExpr};
use crate::types::{Datum, Type};

/// A table is taken to have so many rows at least: a statement outlives the moment at which its tables were small.
const FEWEST_ROWS: f64 = 1_000.0;
/// One in so many rows has the value that a column is to equal.
const DISTINCT: f64 = 10.0;
/// One in so many rows lies between two bounds.
const BETWEEN: f64 = 200.0;
/// One in so many rows lies beyond a bound, or fulfils any other condition.
const BEYOND: f64 = 3.0;
/// Points of an index that a list may lead to. Longer ones are arrays.
const MOST_POINTS: usize = 256;
/// Elements of an array, about.
const ELEMENTS: f64 = 10.0;

/// Rows of a plan, about.
pub(crate) fn rows(plan: &Plan) -> f64 {
    match plan {
        Plan::Unit => 1.0,
        Plan::Values(rows) => rows.len() as f64,
        Plan::Made(rows) => rows.len() as f64,
        Plan::Scan { table, access, filter, .. } => {
            let rows = rows_of(table, access, filter);
            match access {
                Access::Table => (rows / BEYOND.powi(filter.len().min(5) as i32)).max(1.0),
                Access::Index { .. } | Access::Points { .. } => rows,
            }
        }
        Plan::Filter(input, conditions) => rows(input) / BEYOND.powi(conditions.len().min(5) as i32),
        Plan::Project(input, _)
        | Plan::Apply(input, _)
        | Plan::Sort(input, _)
        | Plan::Distinct(input, _)
        | Plan::Numbered(input)
        | Plan::Extend(input, _)
        | Plan::Cut(input, _) => rows(input),
        Plan::Lock { input, .. } => rows(input),
        Plan::Join(join) => rows(&join.left).max(rows(&join.right)),
        Plan::Aggregate { input, keys, .. } => {
            if keys.is_empty() {
                1.0
            } else {
                rows(input) / 10.0
            }
        }
        Plan::Limit { input, limit, .. } => match limit {
            Some(Expr::Const(Datum::Int(limit))) => rows(input).min(*limit as f64),
            _ => rows(input).min(100.0),
        },
        Plan::SetOp { left, right, .. } => rows(left) + rows(right),
        Plan::Set(SetExpr::Series(..)) | Plan::Working(_) => 1000.0,
        Plan::Shared(shared) => shared.rows,
        Plan::Recursive(query) => 10.0 * rows(&query.base),
        Plan::Set(SetExpr::Array(_)) => ELEMENTS,
    }
}

/// Rows of a table that an access reads, about. `filter`: the conditions that it was made of.
pub(crate) fn rows_of(table: &Table, access: &Access, filter: &[Expr]) -> f64 {
    let all = (table.rows as f64).max(FEWEST_ROWS);
    let behind = |index: &Index, columns: usize| {
        let whole = index.unique && columns == index.columns.len();
        if whole { 1.0 } else { (all / DISTINCT.powi(columns as i32)).max(1.0) }
    };
    match access {
        Access::Table => all,
        Access::Points { index, keys } => {
            let key = keys.first().map_or(&[][..], Vec::as_slice);
            let arrays = key.iter().filter(|part| matches!(part, KeyPart::Each(_))).count();
            let points = keys.len() as f64 * ELEMENTS.powi(arrays as i32);
            (points * behind(&table.indexes[*index], key.len())).min(all)
        }
        Access::Index { index, equal, low, high, .. } => {
            let index = &table.indexes[*index];
            let rows = behind(index, equal.len());
            let between = match (low, high) {
                (None, None) => rows,
                (Some(_), Some(_)) => rows / BETWEEN,
                _ => rows / BEYOND,
            };
            let last = index.unique && equal.len() + 1 == index.columns.len();
            let width = index
                .columns
                .get(equal.len())
                .filter(|_| last)
                .and_then(|(column, _)| width(filter, *column));
            width.map_or(between, |width| width.min(rows)).max(1.0)
        }
    }
}

/// How many whole numbers lie between the constant bounds of a column.
fn width(filter: &[Expr], column: usize) -> Option<f64> {
    let mut bounds = [None, None];
    for (_, comparison, value) in filter.iter().filter_map(compared).filter(|(of, ..)| *of == column) {
        let Expr::Const(Datum::Int(value)) = value else { return None };
        match comparison {
            Comparison::Greater | Comparison::GreaterEqual => bounds[0] = Some(*value as f64),
            Comparison::Less | Comparison::LessEqual => bounds[1] = Some(*value as f64),
            _ => {}
        }
    }
    let [Some(low), Some(high)] = bounds else { return None };
    Some((high - low + 1.0).max(1.0))
}

/// A column of the row compared with something that does not depend on the row.
fn compared(expr: &Expr) -> Option<(usize, Comparison, &Expr)> {
    let Expr::Call(Call::Compare(comparison), sides) = expr else { return None };
    match (&sides[0], &sides[1]) {
        (Expr::Column(column), other) if other.columns().is_empty() => Some((*column, *comparison, other)),
        (other, Expr::Column(column)) if other.columns().is_empty() => {
            Some((*column, comparison.flipped(), other))
        }
        _ => None,
    }
}

/// Columns, and what each of them has to equal.
type Point = Vec<(usize, KeyPart)>;

/// The points that a condition leaves: one for an equality, several for a list. `None`: it is no such condition.
fn points(condition: &Expr) -> Option<Vec<Point>> {
    match condition {
        Expr::InSet(arg, set, _) => {
            let Expr::Column(column) = **arg else { return None };
            let mut values: Vec<&Datum> = set.iter().collect();
            values.sort_by(|a, b| a.compare(b));
            if values.len() > MOST_POINTS {
                let all = Datum::Array(values.into_iter().cloned().collect());
                return Some(vec![vec![(column, KeyPart::Each(Expr::Const(all)))]]);
            }
            let point = |value: &Datum| vec![(column, KeyPart::One(Expr::Const(value.clone())))];
            Some(values.into_iter().map(point).collect())
        }
        Expr::AnyOf { call: Call::Compare(Comparison::Equal), all: false, arg, array } => match &**arg {
            Expr::Column(column) if array.columns().is_empty() => {
                Some(vec![vec![(*column, KeyPart::Each((**array).clone()))]])
            }
            _ => None,
        },
        Expr::Or(terms) => {
            let mut all = Vec::new();
            for term in terms {
                all.extend(points(term)?);
            }
            Some(all)
        }
        Expr::And(terms) => {
            let mut all: Point = Vec::new();
            for term in terms {
                let [one] = <[Point; 1]>::try_from(points(term)?).ok()?;
                all.extend(one);
            }
            Some(vec![all])
        }
        Expr::Call(Call::Compare(Comparison::Equal), sides) => {
            if let [Expr::Record(left, _), Expr::Record(right, _)] = &sides[..] {
                let mut all: Point = Vec::new();
                for (left, right) in left.iter().zip(right) {
                    let (Expr::Column(column), true) = (left, right.columns().is_empty()) else {
                        return None;
                    };
                    all.push((*column, KeyPart::One(right.clone())));
                }
                return Some(vec![all]);
            }
            let (column, _, value) = compared(condition)?;
            Some(vec![vec![(column, KeyPart::One(value.clone()))]])
        }
        _ => None,
    }
}

/// The index that the conditions make best use of: most equal columns, unique ones first; a range or a list behind them.
pub(crate) fn choose(table: &Table, filter: &[Expr]) -> Access {
    let compared: Vec<(usize, Comparison, &Expr)> = filter.iter().filter_map(compared).collect();
    let lists: Vec<Vec<Point>> = filter.iter().filter_map(points).collect();
    let mut best: Option<((bool, usize, bool), Access)> = None;
    for (number, index) in table.indexes.iter().enumerate().filter(|(_, index)| is_usable(table, index)) {
        let equal = equal_columns(index, &compared);
        let keys = keys_of(index, &lists);
        if keys
            .first()
            .is_some_and(|key| key.len() > equal.len() && (index.ordered || key.len() == index.columns.len()))
        {
            let columns = keys[0].len();
            let rank = (columns == index.columns.len() && index.unique, columns, false);
            if best.as_ref().is_none_or(|(other, _)| rank > *other) {
                best = Some((rank, Access::Points { index: number, keys }));
            }
            continue;
        }
        let whole = equal.len() == index.columns.len();
        if !whole && !index.ordered {
            continue;
        }
        let (low, high) = bounds(index, equal.len(), &compared);
        if equal.is_empty() && low.is_none() && high.is_none() {
            continue;
        }
        let rank = (whole && index.unique, equal.len(), low.is_some() || high.is_some());
        if best.as_ref().is_none_or(|(other, _)| rank > *other) {
            best = Some((
                rank,
                Access::Index { index: number, equal, low, high, backward: false, in_order: false },
            ));
        }
    }
    best.map_or(Access::Table, |(_, access)| access)
}

/// Is the order of the index's entries that of its columns' values? Earlier versions have made indexes on arrays and `jsonb`.
fn is_usable(table: &Table, index: &Index) -> bool {
    let is_ordered = |ty: Type| ty != Type::Jsonb && ty.element().is_none();
    index.columns.iter().all(|(column, _)| is_ordered(table.columns[*column].ty))
}

/// The first columns of an index that equal something, and what.
fn equal_columns(index: &Index, compared: &[(usize, Comparison, &Expr)]) -> Vec<Expr> {
    let value = |(column, _): &(usize, bool)| {
        let found = compared.iter().find(|(c, op, _)| c == column && *op == Comparison::Equal);
        found.map(|(_, _, value)| (*value).clone())
    };
    index.columns.iter().map_while(value).collect()
}

/// Bounds of the column behind the first so many: each with whether it is included.
type Bounds = (Option<(Expr, bool)>, Option<(Expr, bool)>);

fn bounds(index: &Index, equal: usize, compared: &[(usize, Comparison, &Expr)]) -> Bounds {
    let (mut low, mut high) = (None, None);
    let Some((column, _)) = index.columns.get(equal) else { return (low, high) };
    for (_, op, value) in compared.iter().filter(|(c, _, _)| c == column) {
        match op {
            Comparison::Greater | Comparison::GreaterEqual => {
                low.get_or_insert(((*value).clone(), *op == Comparison::GreaterEqual));
            }
            Comparison::Less | Comparison::LessEqual => {
                high.get_or_insert(((*value).clone(), *op == Comparison::LessEqual));
            }
            _ => {}
        }
    }
    (low, high)
}

/// The beginnings of keys that all conditions together leave, of one length.
fn keys_of(index: &Index, lists: &[Vec<Point>]) -> Vec<Vec<KeyPart>> {
    let of_index = |column: usize| index.columns.iter().any(|(it, _)| *it == column);
    let mut all: Vec<Point> = vec![Vec::new()];
    for list in lists {
        let leads = list.iter().all(|point| point.iter().any(|(column, _)| of_index(*column)));
        if !leads || list.is_empty() || all.len() * list.len() > MOST_POINTS {
            continue;
        }
        all = all
            .iter()
            .flat_map(|known| list.iter().map(move |more| known.iter().chain(more).cloned().collect()))
            .collect();
    }
    let mut keys: Vec<Vec<KeyPart>> = Vec::with_capacity(all.len());
    for point in &all {
        let value = |(column, _): &(usize, bool)| {
            point.iter().find(|(it, _)| it == column).map(|(_, value)| value.clone())
        };
        keys.push(index.columns.iter().map_while(value).collect());
    }
    let length = keys.iter().map(Vec::len).min().unwrap_or(0);
    if length == 0 {
        return Vec::new();
    }
    keys.iter_mut().for_each(|key| key.truncate(length));
    keys
}

/// An access that gives the rows in the order of these columns (with whether each descends and has its nulls first), if there
/// is one: the present one, or where few rows are wanted another index whose conditions are as good.
pub(crate) fn in_order(
    table: &Table,
    access: &Access,
    filter: &[Expr],
    wanted: &[(usize, bool, bool)],
    limited: bool,
) -> Option<Access> {
    let compared: Vec<(usize, Comparison, &Expr)> = filter.iter().filter_map(compared).collect();
    let present = match access {
        Access::Index { index, equal, .. } => Some((*index, equal.len())),
        Access::Points { .. } => return None,
        Access::Table => None,
    };
    // A range is not given up for an order.
    let is_range = matches!(access, Access::Index { low, high, .. } if low.is_some() || high.is_some());
    let others = (0..table.indexes.len()).filter(|_| limited && !is_range);
    for number in present.iter().map(|(index, _)| *index).chain(others) {
        let index = &table.indexes[number];
        let equal = equal_columns(index, &compared);
        let at_least = present.map_or(0, |(_, equal)| equal);
        if !index.ordered
            || !is_usable(table, index)
            || equal.len() < at_least && equal.len() < index.columns.len()
        {
            continue;
        }
        let Some(backward) = order_of(table, index, &equal, &compared, wanted) else { continue };
        let (low, high) = bounds(index, equal.len(), &compared);
        return Some(Access::Index { index: number, equal, low, high, backward, in_order: true });
    }
    None
}

/// Does an index give this order, and if so, is it read backward for that?
fn order_of(
    table: &Table,
    index: &Index,
    equal: &[Expr],
    compared: &[(usize, Comparison, &Expr)],
    wanted: &[(usize, bool, bool)],
) -> Option<bool> {
    let fixed = |column: usize| compared.iter().any(|(it, op, _)| *it == column && *op == Comparison::Equal);
    let mut columns = index.columns[equal.len()..].iter().peekable();
    let mut backward = None;
    for (column, descends, nulls_first) in wanted {
        // What equals something is in any order.
        if fixed(*column) {
            continue;
        }
        while columns.peek().is_some_and(|(it, _)| it != column && fixed(*it)) {
            columns.next();
        }
        let Some((_, index_descends)) = columns.next_if(|(it, _)| it == column) else {
            // Behind all columns of a unique index there is one row, whose keys are not null.
            let one = index.unique
                && columns.peek().is_none()
                && index.columns.iter().all(|(it, _)| !table.columns[*it].nullable);
            return if one { Some(backward.unwrap_or(false)) } else { None };
        };
        // Nulls stand at the upper end of an index.
        if table.columns[*column].nullable && nulls_first != descends {
            return None;
        }
        let mine = descends != index_descends;
        if *backward.get_or_insert(mine) != mine {
            return None;
        }
    }
    Some(backward.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Column;
    use crate::types::Type;

    fn table() -> Table {
        let column = |name: &str| Column {
            name: name.to_owned(),
            ty: Type::Int8,
            modifier: -1,
            nullable: false,
            stored: thermocline_row::Type::Int8,
            default: None,
            numbered: false,
            default_text: None,
            identity: None,
            hidden: false,
        };
        let index = |name: &str, unique: bool, columns: &[(usize, bool)]| Index {
            name: name.to_owned(),
            ordered: true,
            unique,
            columns: columns.to_vec(),
        };
        Table {
            identity: crate::catalog::Identity::default(),
            name: "t".to_owned(),
            columns: ["a", "b", "c"].map(column).to_vec(),
            indexes: vec![
                index("ab", true, &[(0, false), (1, false)]),
                index("ac", false, &[(0, false), (2, true)]),
            ],
            primary: Some(0),
            rows: 1_000_000,
            tiering: None,
            checks: Vec::new(),
            foreign: Vec::new(),
            referenced: Vec::new(),
        }
    }

    fn is(column: usize, value: i64) -> Expr {
        Expr::Call(
            Call::Compare(Comparison::Equal),
            vec![Expr::Column(column), Expr::Const(Datum::Int(value))],
        )
    }

    fn keys(access: &Access) -> Vec<Vec<i64>> {
        let Access::Points { keys, .. } = access else { panic!("no points: {access:?}") };
        let number = |value: &KeyPart| match value {
            KeyPart::One(Expr::Const(Datum::Int(value))) => *value,
            other => panic!("no number: {other:?}"),
        };
        keys.iter().map(|key| key.iter().map(number).collect()).collect()
    }

    #[test]
    fn a_list_behind_an_equality_leads_to_points() {
        let filter = [is(0, 7), Expr::Or(vec![is(1, 2), is(1, 1)])];
        assert_eq!(keys(&choose(&table(), &filter)), [[7, 2], [7, 1]]);
    }

    #[test]
    fn rows_of_values_lead_to_points() {
        let row = |a, b| {
            let shape = crate::types::Shape::unnamed(vec![Type::Int4; 2]);
            let columns = Expr::Record(vec![Expr::Column(0), Expr::Column(1)], shape.clone());
            let values = Expr::Record(vec![Expr::Const(Datum::Int(a)), Expr::Const(Datum::Int(b))], shape);
            Expr::Call(Call::Compare(Comparison::Equal), vec![columns, values])
        };
        let filter = [Expr::Or(vec![row(1, 2), row(3, 4)])];
        assert_eq!(keys(&choose(&table(), &filter)), [[1, 2], [3, 4]]);
    }

    #[test]
    fn alternatives_of_different_columns_lead_nowhere() {
        let filter = [Expr::Or(vec![is(0, 1), is(1, 2)])];
        assert!(matches!(choose(&table(), &filter), Access::Table));
    }

    #[test]
    fn an_order_is_read_off_an_index_either_way() {
        let (table, filter) = (table(), [is(0, 7)]);
        let access = choose(&table, &filter);
        let order = |wanted: &[(usize, bool, bool)]| match in_order(&table, &access, &filter, wanted, true) {
            Some(Access::Index { index, backward, .. }) => Some((index, backward)),
            _ => None,
        };
        assert_eq!(order(&[(1, false, false)]), Some((0, false)));
        assert_eq!(order(&[(0, true, true), (1, true, true)]), Some((0, true)));
        assert_eq!(order(&[(2, true, true)]), Some((1, false)));
        assert_eq!(order(&[(2, false, false)]), Some((1, true)));
        assert_eq!(order(&[(2, false, false), (1, false, false)]), None);
        assert_eq!(order(&[(1, false, false), (2, true, true)]), Some((0, false)));
    }
}
