//! Conditions that the engine asks of stored values: comparisons of a column with a value, which cannot fail.

use thermocline_engine::columns::Condition;

use super::vector::is_plain;
use crate::catalog::Table;
use crate::exec::source::{is_formed, value_of};
use crate::expr::{Call, Comparison, Context, Env, Expr};

/// A condition in the engine's form; none if it has none, or may be true of a null.
pub(super) fn condition_of(expr: &Expr, table: &Table, context: &Context) -> Option<(usize, Condition)> {
    let env = Env { row: &[], outer: &[], context };
    let value = |column: usize, other: &Expr| {
        let is_value = matches!(other, Expr::Const(_) | Expr::Param(_));
        let value = is_value.then(|| other.eval(&env).ok()).flatten().filter(|value| !value.is_null())?;
        let stored = &table.columns[column];
        // A value that the column cannot have is compared as SQL does.
        let is_comparable = is_plain(stored.ty) && !is_formed(stored);
        is_comparable.then(|| value_of(&value, table, column).ok()).flatten()
    };
    match expr {
        Expr::IsNull(arg, negated) => match &**arg {
            Expr::Column(column) => {
                Some((*column, if *negated { Condition::IsNotNull } else { Condition::IsNull }))
            }
            _ => None,
        },
        Expr::Call(Call::Compare(comparison), sides) => {
            let (column, comparison, other) = match (&sides[0], &sides[1]) {
                (Expr::Column(column), other) => (*column, *comparison, other),
                (other, Expr::Column(column)) => (*column, comparison.flipped(), other),
                _ => return None,
            };
            let value = value(column, other)?;
            Some((
                column,
                match comparison {
                    Comparison::Less => Condition::Less(value),
                    Comparison::LessEqual => Condition::LessOrEqual(value),
                    Comparison::Equal => Condition::Equal(value),
                    Comparison::GreaterEqual => Condition::GreaterOrEqual(value),
                    Comparison::Greater => Condition::Greater(value),
                    Comparison::NotEqual => return None,
                },
            ))
        }
        _ => None,
    }
}
