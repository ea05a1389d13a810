//! Values of one expression for the rows of a lot, side by side.
//!
//! Integers of all widths, dates and times stand in 64 bits; decimals of one scale are integers, too. What has no form of its own here
//! stands as values. The place of a null has some value, which has no meaning.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use thermocline_engine::columns as stored;
use thermocline_row::Type as Stored;

use crate::catalog::Column;
use crate::exec::source::{is_formed, with_form};
use crate::types::stored::datum_of;
use crate::types::{Datum, Numeric, Type, text};

/// The kind of value that stands in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntForm {
    Int,
    Date,
    Time,
    Timestamp,
}

impl IntForm {
    pub(super) fn datum(self, value: i64) -> Datum {
        match self {
            Self::Int => Datum::Int(value),
            // It was a date's number of days.
            Self::Date => Datum::Date(value as i32),
            Self::Time => Datum::Time(value),
            Self::Timestamp => Datum::Timestamp(value),
        }
    }

    /// The 64 bits of a value of this kind.
    pub(super) fn int(self, value: &Datum) -> Option<i64> {
        match (self, value) {
            (Self::Int, Datum::Int(value))
            | (Self::Time, Datum::Time(value))
            | (Self::Timestamp, Datum::Timestamp(value)) => Some(*value),
            (Self::Date, Datum::Date(days)) => Some(i64::from(*days)),
            _ => None,
        }
    }
}

/// The kind of value that is a string of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextForm {
    Text,
    /// Of so many characters, blanks included, which are not stored.
    Char(usize),
    Bytes,
}

impl TextForm {
    pub(super) fn datum(self, bytes: &[u8]) -> Datum {
        let shown = || std::str::from_utf8(bytes).expect("text was checked when it was stored");
        match self {
            Self::Text => Datum::Text(Arc::from(shown())),
            Self::Char(characters) => Datum::Char(text::padded(shown(), characters)),
            Self::Bytes => Datum::Bytes(Arc::from(bytes)),
        }
    }

    /// The bytes by which a value of this kind compares with stored ones.
    pub(super) fn bytes(self, value: &Datum) -> Option<&[u8]> {
        match (self, value) {
            (Self::Text, Datum::Text(text)) => Some(text.as_bytes()),
            (Self::Char(_), Datum::Char(text)) => Some(crate::types::without_blanks(text).as_bytes()),
            (Self::Bytes, Datum::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }
}

/// Strings of a stored column.
#[derive(Clone, Debug)]
pub(super) struct Texts<'b> {
    array: &'b stored::Array,
    places: Option<Rc<[u32]>>,
    pub(super) form: TextForm,
}

impl<'b> Texts<'b> {
    /// The bytes of a row; none of a null.
    #[inline]
    pub(super) fn get(&self, row: usize) -> &'b [u8] {
        let place = self.places.as_ref().map_or(row, |places| places[row] as usize);
        self.array.bytes(place).unwrap_or(&[])
    }
}

#[derive(Clone, Debug)]
pub(super) enum Values<'b> {
    /// One for all rows.
    One(Datum),
    Bools(Vec<bool>),
    Ints(IntForm, Cow<'b, [i64]>),
    Floats(Vec<f64>),
    /// Decimals: times 10^scale.
    Scaled(u16, Cow<'b, [i64]>),
    Texts(Texts<'b>),
    Datums(Vec<Datum>),
}

/// Values of rows.
#[derive(Clone, Debug)]
pub(super) struct Vector<'b> {
    pub(super) values: Values<'b>,
    /// True where there is no value. Not of `One` and `Datums`, whose values tell.
    pub(super) nulls: Option<Vec<bool>>,
}

impl<'b> Vector<'b> {
    pub(super) fn one(value: Datum) -> Self {
        Self { values: Values::One(value), nulls: None }
    }

    pub(super) fn bools(values: Vec<bool>, nulls: Option<Vec<bool>>) -> Self {
        Self { values: Values::Bools(values), nulls }
    }

    /// A stored column at some places; without them, at all.
    pub(super) fn stored(
        array: &'b stored::Array,
        column: &Column,
        places: Option<&Rc<[u32]>>,
        rows: usize,
    ) -> Self {
        let nulls = array.validity().map(|bits| match places {
            None => (0..rows).map(|row| !bits.get(row)).collect(),
            Some(places) => places.iter().map(|place| !bits.get(*place as usize)).collect(),
        });
        fn wide<T: Copy + Into<i64>>(values: &[T], places: Option<&Rc<[u32]>>, rows: usize) -> Vec<i64> {
            match places {
                None => values[..rows].iter().map(|value| (*value).into()).collect(),
                Some(places) => places.iter().map(|place| values[*place as usize].into()).collect(),
            }
        }
        let ints = |values: &'b [i64]| match places {
            None => Cow::Borrowed(&values[..rows]),
            Some(_) => Cow::Owned(wide(values, places, rows)),
        };
        let place = |row: usize| places.map_or(row, |places| places[row] as usize);
        let texts = |form| Values::Texts(Texts { array, places: places.cloned(), form });
        let values = match (array.values(), column.stored) {
            _ if is_formed(column) => return Self::by_value(array, column, places, rows),
            (stored::Values::Boolean(bits), _) => {
                Values::Bools((0..rows).map(|row| bits.get(place(row))).collect())
            }
            (stored::Values::Int2(values), _) => {
                Values::Ints(IntForm::Int, wide(values, places, rows).into())
            }
            (stored::Values::Int4(values), Stored::Date) => {
                Values::Ints(IntForm::Date, wide(values, places, rows).into())
            }
            (stored::Values::Int4(values), _) => {
                Values::Ints(IntForm::Int, wide(values, places, rows).into())
            }
            (stored::Values::Int8(values), Stored::Decimal { scale, .. }) => {
                Values::Scaled(u16::from(scale), ints(values))
            }
            (stored::Values::Int8(values), Stored::Time) => Values::Ints(IntForm::Time, ints(values)),
            (stored::Values::Int8(values), Stored::Timestamp | Stored::TimestampTz) => {
                Values::Ints(IntForm::Timestamp, ints(values))
            }
            (stored::Values::Int8(values), _) => Values::Ints(IntForm::Int, ints(values)),
            (stored::Values::Float4(values), _) => {
                Values::Floats((0..rows).map(|row| f64::from(values[place(row)])).collect())
            }
            (stored::Values::Float8(values), _) => {
                Values::Floats((0..rows).map(|row| values[place(row)]).collect())
            }
            (stored::Values::Strings(_) | stored::Values::Codes(..), Stored::Char(characters)) => {
                texts(TextForm::Char(characters as usize))
            }
            (stored::Values::Strings(_) | stored::Values::Codes(..), Stored::Bytes) => texts(TextForm::Bytes),
            (stored::Values::Strings(_) | stored::Values::Codes(..), _) => texts(TextForm::Text),
            _ => return Self::by_value(array, column, places, rows),
        };
        Self { values, nulls }
    }

    /// The same, value by value.
    fn by_value(array: &stored::Array, column: &Column, places: Option<&Rc<[u32]>>, rows: usize) -> Self {
        let value = |row: usize| {
            let found = datum_of(&array.value(places.map_or(row, |places| places[row] as usize)));
            with_form(column, found)
        };
        Self { values: Values::Datums((0..rows).map(value).collect()), nulls: None }
    }

    /// True if a row has no value.
    #[inline]
    pub(super) fn is_null(&self, row: usize) -> bool {
        match (&self.values, &self.nulls) {
            (Values::One(value), _) => value.is_null(),
            (Values::Datums(values), _) => values[row].is_null(),
            (_, Some(nulls)) => nulls[row],
            (_, None) => false,
        }
    }

    /// A row's value.
    pub(super) fn datum(&self, row: usize) -> Datum {
        match &self.values {
            Values::One(value) => value.clone(),
            Values::Datums(values) => values[row].clone(),
            _ if self.is_null(row) => Datum::Null,
            Values::Bools(values) => Datum::Bool(values[row]),
            Values::Ints(form, values) => form.datum(values[row]),
            Values::Floats(values) => Datum::Float(values[row]),
            Values::Scaled(scale, values) => Datum::Numeric(Numeric::Small(values[row], *scale)),
            Values::Texts(texts) => texts.form.datum(texts.get(row)),
        }
    }

    /// The truth in a row; none: it is not known.
    #[inline]
    pub(super) fn truth(&self, row: usize) -> Option<bool> {
        match &self.values {
            Values::Bools(values) => (!self.is_null(row)).then(|| values[row]),
            Values::One(Datum::Bool(value)) => Some(*value),
            Values::Datums(values) => match &values[row] {
                Datum::Bool(value) => Some(*value),
                _ => None,
            },
            _ => None,
        }
    }

    /// The values at some places.
    pub(super) fn at(&self, places: &[u32]) -> Self {
        fn pick<T: Clone>(values: &[T], places: &[u32]) -> Vec<T> {
            places.iter().map(|place| values[*place as usize].clone()).collect()
        }
        let values = match &self.values {
            Values::One(value) => Values::One(value.clone()),
            Values::Bools(values) => Values::Bools(pick(values, places)),
            Values::Ints(form, values) => Values::Ints(*form, pick(values, places).into()),
            Values::Floats(values) => Values::Floats(pick(values, places)),
            Values::Scaled(scale, values) => Values::Scaled(*scale, pick(values, places).into()),
            Values::Texts(texts) => {
                let of = |place: &u32| texts.places.as_ref().map_or(*place, |known| known[*place as usize]);
                let places = places.iter().map(of).collect();
                Values::Texts(Texts { places: Some(places), ..texts.clone() })
            }
            Values::Datums(values) => Values::Datums(pick(values, places)),
        };
        Self { values, nulls: self.nulls.as_ref().map(|nulls| pick(nulls, places)) }
    }
}

/// Where a column of a lot comes from.
#[derive(Clone, Debug)]
enum Origin<'b> {
    Stored(&'b stored::Array, &'b Column),
    Made,
    /// Nothing asks for it.
    Absent,
}

/// Rows that are looked at together: those of a batch, or what was made of them.
#[derive(Clone, Debug)]
pub(super) struct Lot<'b> {
    origins: Vec<Origin<'b>>,
    /// The columns as far as they were asked for.
    known: std::cell::RefCell<Vec<Option<Rc<Vector<'b>>>>>,
    /// Where the rows stand in the batch; none: it is all of them.
    places: Option<Rc<[u32]>>,
    pub(super) rows: usize,
}

impl<'b> Lot<'b> {
    /// The rows of a batch, whose columns are these of a table.
    pub(super) fn of_batch(batch: &'b stored::Batch, table: &'b [Column], columns: &[usize]) -> Self {
        let mut origins = vec![Origin::Absent; table.len()];
        for (array, column) in batch.columns().iter().zip(columns) {
            origins[*column] = Origin::Stored(array, &table[*column]);
        }
        let known = vec![None; table.len()].into();
        Self { origins, known, places: None, rows: batch.rows() }
    }

    /// The same rows with these columns in place of theirs.
    pub(super) fn with_columns(&self, columns: Vec<Rc<Vector<'b>>>) -> Self {
        let origins = vec![Origin::Made; columns.len()];
        let known = columns.into_iter().map(Some).collect::<Vec<_>>().into();
        Self { origins, known, places: None, rows: self.rows }
    }

    pub(super) fn width(&self) -> usize {
        self.origins.len()
    }

    pub(super) fn column(&self, index: usize) -> Rc<Vector<'b>> {
        if let Some(known) = &self.known.borrow()[index] {
            return Rc::clone(known);
        }
        let vector = match &self.origins[index] {
            Origin::Stored(array, column) => Vector::stored(array, column, self.places.as_ref(), self.rows),
            Origin::Made => unreachable!("a column that was made is known"),
            Origin::Absent => Vector::one(Datum::Null),
        };
        let vector = Rc::new(vector);
        self.known.borrow_mut()[index] = Some(Rc::clone(&vector));
        vector
    }

    /// These of its rows, in ascending order.
    pub(super) fn at(&self, rows: &[u32]) -> Self {
        let places = self.places.as_ref();
        let of = |row: &u32| places.map_or(*row, |places| places[*row as usize]);
        let known = self.known.borrow();
        let pick = |(origin, known): (&Origin<'b>, &Option<Rc<Vector<'b>>>)| match (origin, known) {
            (Origin::Made, Some(vector)) => Some(Rc::new(vector.at(rows))),
            // A stored column is read anew where something asks for it.
            _ => None,
        };
        Self {
            origins: self.origins.clone(),
            known: self.origins.iter().zip(known.iter()).map(pick).collect::<Vec<_>>().into(),
            places: Some(rows.iter().map(of).collect()),
            rows: rows.len(),
        }
    }

    /// The first of its rows.
    pub(super) fn first(&self, rows: usize) -> Self {
        let rows = u32::try_from(rows).expect("a batch has some thousand rows");
        self.at(&(0..rows).collect::<Vec<_>>())
    }
}

/// True if the columns of this type of SQL stand in 64 bits, a truth value or bytes, and not value by value.
pub(super) fn is_plain(ty: Type) -> bool {
    !matches!(ty, Type::Float4 | Type::Float8 | Type::Interval | Type::Jsonb) && ty.element().is_none()
}
