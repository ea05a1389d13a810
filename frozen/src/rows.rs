//! The same predicates, asked of encoded rows: for rows that are in no block.
//!
//! A predicate is turned once into ranges of the integers that rows have in place (`Field::integer`), where the column has such;
//! a row is then read at one place a predicate and nothing is decoded. Strings are compared in place. Rule: a row passes here if and
//! only if it would in a block.

use thermocline_row::{Layout, Value};

use super::error::Error;
use super::physical::{Field, Physical, fields};
use super::predicate::{Condition, Predicate, Range, bytes_of, check, integer_ranges};

/// The question that a row is asked.
#[derive(Debug)]
enum Ask {
    Null,
    NotNull,
    /// The integer is in one of these.
    Integer(Vec<Range>),
    /// The 128 bits are asked.
    Wide(Condition),
    /// The bytes are asked.
    Bytes(Condition),
    /// The value is asked.
    Value(Condition),
}

/// Predicates, made ready for rows of one layout.
#[derive(Debug)]
pub struct RowFilter {
    asks: Vec<(Field, Ask, bool)>,
}

/// A row's column as bytes, where it has such.
#[inline]
pub(crate) fn variable<'r>(field: &Field, row: &'r [u8]) -> &'r [u8] {
    let range = field.place.range(row);
    row.get(range).unwrap_or(&[])
}

/// The value of a column in a row.
pub(crate) fn value_in(field: &Field, row: &[u8]) -> Value {
    if field.place.is_null(row) {
        return Value::Null;
    }
    match field.physical {
        Physical::Int(_) | Physical::Float(_) => field.integer_value(field.integer(row)),
        Physical::Wide => field.wide_value(field.wide(row)),
        Physical::Bytes => field.bytes_value(variable(field, row)),
    }
}

impl RowFilter {
    /// The predicates, for rows of this layout.
    ///
    /// # Errors
    /// A column that the layout does not have, a value of another type than its column.
    pub fn new(layout: &Layout, predicates: &[Predicate]) -> Result<Self, Error> {
        let fields = fields(layout);
        let ask = |predicate: &Predicate| {
            let field = fields.get(predicate.column).ok_or_else(|| no_column(layout, predicate.column))?;
            check(field, &layout.columns()[predicate.column].name, &predicate.condition)?;
            let condition = predicate.condition.fitted(field);
            let nulls = condition.holds_null();
            let ask = match (condition, field.physical) {
                (Condition::IsNull, _) => Ask::Null,
                (Condition::IsNotNull, _) => Ask::NotNull,
                (condition @ Condition::Holds(_), _) => Ask::Value(condition),
                (condition, Physical::Int(_) | Physical::Float(_)) => {
                    Ask::Integer(integer_ranges(field, &condition))
                }
                (condition, Physical::Wide) => Ask::Wide(condition),
                (condition, Physical::Bytes) => Ask::Bytes(condition),
            };
            Ok((*field, ask, nulls))
        };
        Ok(Self { asks: predicates.iter().map(ask).collect::<Result<_, Error>>()? })
    }

    /// True if all predicates hold of a row.
    #[inline]
    #[must_use]
    pub fn holds(&self, row: &[u8]) -> bool {
        self.asks.iter().all(|(field, ask, nulls)| {
            if field.place.is_null(row) {
                return *nulls;
            }
            match ask {
                Ask::Null => false,
                Ask::NotNull => true,
                Ask::Integer(ranges) => {
                    let integer = field.integer(row);
                    ranges.iter().any(|(low, high)| (low..=high).contains(&&integer))
                }
                Ask::Wide(condition) => condition.holds(&field.wide_value(field.wide(row))),
                Ask::Bytes(condition) => condition.holds_bytes(variable(field, row)),
                Ask::Value(condition) => condition.holds(&value_in(field, row)),
            }
        })
    }
}

impl Condition {
    /// True if it holds of these bytes of a text or bytea.
    fn holds_bytes(&self, bytes: &[u8]) -> bool {
        let of = |v: &Value| (!v.is_null()).then(|| bytes.cmp(bytes_of(v)));
        match self {
            Condition::Equal(v) => of(v).is_some_and(std::cmp::Ordering::is_eq),
            Condition::Less(v) => of(v).is_some_and(std::cmp::Ordering::is_lt),
            Condition::LessOrEqual(v) => of(v).is_some_and(std::cmp::Ordering::is_le),
            Condition::Greater(v) => of(v).is_some_and(std::cmp::Ordering::is_gt),
            Condition::GreaterOrEqual(v) => of(v).is_some_and(std::cmp::Ordering::is_ge),
            Condition::Between(low, high) => {
                of(low).is_some_and(std::cmp::Ordering::is_ge)
                    && of(high).is_some_and(std::cmp::Ordering::is_le)
            }
            Condition::In(values) => values.iter().any(|v| of(v).is_some_and(std::cmp::Ordering::is_eq)),
            Condition::Prefix(prefix) => bytes.starts_with(prefix),
            Condition::IsNull | Condition::Holds(_) => false,
            Condition::IsNotNull => true,
        }
    }
}

/// The error for a column that is not there.
pub(crate) fn no_column(layout: &Layout, column: usize) -> Error {
    Error::Predicate {
        column: format!("number {column}").into(),
        reason: format!("there are {} columns", layout.columns().len()).into(),
    }
}
