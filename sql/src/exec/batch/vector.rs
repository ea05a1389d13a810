//! Values of one expression for the rows of a lot, side by side.
//!
//! Integers of all widths, dates and times stand in 64 bits; decimals of one scale are integers, too. What has no form of its own here
//! stands as values. The place of a null has some value, which has no meaning.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use thermocline_engine::columns as stored;
use thermocline_row::Type as Stored;

use crate::catalog::Column;
use crate::exec::coded::{self, Coder, Raw};
use crate::exec::sorter::KeyForm;
use crate::exec::source::{is_formed, with_form};
use crate::types::stored::datum_of;
use crate::types::{Datum, Numeric, Type, order_bytes, text};

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

/// Strings one behind the other, with their ends.
#[derive(Debug, Default)]
struct Heap {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Heap {
    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(u32::try_from(self.bytes.len()).expect("a block is shorter"));
    }

    fn get(&self, place: usize) -> &[u8] {
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin as usize..self.ends[place] as usize]
    }
}

/// Strings: of a stored column, or of rows that were read from a file.
#[derive(Clone, Debug)]
enum Strings<'b> {
    Stored(&'b stored::Array),
    Read(Rc<Heap>),
}

/// Strings of rows.
#[derive(Clone, Debug)]
pub(super) struct Texts<'b> {
    strings: Strings<'b>,
    places: Option<Rc<[u32]>>,
    pub(super) form: TextForm,
}

impl Texts<'_> {
    /// The bytes of a row; none of a null.
    #[inline]
    pub(super) fn get(&self, row: usize) -> &[u8] {
        let place = self.places.as_ref().map_or(row, |places| places[row] as usize);
        match &self.strings {
            Strings::Stored(array) => array.bytes(place).unwrap_or(&[]),
            Strings::Read(heap) => heap.get(place),
        }
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
        let texts =
            |form| Values::Texts(Texts { strings: Strings::Stored(array), places: places.cloned(), form });
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

    /// Hashes a row's value as [`Datum`] does.
    pub(super) fn hash(&self, row: usize, state: &mut impl Hasher) {
        match &self.values {
            // A text of `char(n)` stands without its blanks.
            Values::Texts(texts) if !self.is_null(row) => state.write(texts.get(row)),
            _ => self.datum(row).hash(state),
        }
    }

    /// Writes bytes whose order is that of values, of a row that has one.
    pub(super) fn write_order(&self, row: usize, to: &mut Vec<u8>) {
        match &self.values {
            Values::Texts(texts) => order_bytes::write_bytes(texts.get(row), to),
            Values::Ints(_, values) => order_bytes::write_int(values[row], to),
            Values::One(value) => order_bytes::write(value, to),
            Values::Datums(values) => order_bytes::write(&values[row], to),
            _ => order_bytes::write(&self.datum(row), to),
        }
    }

    /// The form of a row's value in a key; none: it is null.
    #[inline]
    pub(super) fn key_form(&self, row: usize) -> Option<KeyForm> {
        if self.is_null(row) {
            return None;
        }
        Some(match &self.values {
            Values::One(value) => return KeyForm::of(value),
            Values::Datums(values) => return KeyForm::of(&values[row]),
            Values::Bools(_) => KeyForm::Bool,
            Values::Ints(IntForm::Int, _) => KeyForm::Int,
            Values::Ints(IntForm::Date, _) => KeyForm::Date,
            Values::Ints(IntForm::Time, _) => KeyForm::Time,
            Values::Ints(IntForm::Timestamp, _) => KeyForm::Timestamp,
            Values::Texts(texts) => match texts.form {
                TextForm::Text => KeyForm::Text,
                TextForm::Bytes => KeyForm::Bytes,
                TextForm::Char(_) => KeyForm::Other,
            },
            Values::Floats(_) | Values::Scaled(..) => KeyForm::Other,
        })
    }

    /// Writes a row's value.
    pub(super) fn write(&self, row: usize, coder: &mut Coder, to: &mut Vec<u8>) {
        match &self.values {
            Values::Texts(texts) if !self.is_null(row) => match texts.form {
                TextForm::Text => coded::write_string(true, texts.get(row), to),
                TextForm::Bytes => coded::write_string(false, texts.get(row), to),
                TextForm::Char(characters) => coded::write_chars(characters, texts.get(row), to),
            },
            Values::One(value) => coder.write(value, to),
            Values::Datums(values) => coder.write(&values[row], to),
            _ => coder.write(&self.datum(row), to),
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

/// Values that were written, as they are read again.
#[derive(Debug, Default)]
pub(super) struct Builder {
    /// None: all that have come are null.
    values: Option<Values<'static>>,
    /// The strings of `values`, while they come.
    heap: Heap,
    nulls: Vec<bool>,
    has_nulls: bool,
}

impl Builder {
    pub(super) fn push(&mut self, value: Raw<'_>) {
        if let Raw::Null = value {
            self.push_null();
            return;
        }
        if self.values.is_none() {
            self.begin(&value);
        }
        let values = self.values.as_mut().expect("it has begun");
        match (values, &value) {
            (Values::Ints(IntForm::Int, values), Raw::Int(value))
            | (Values::Ints(IntForm::Date, values), Raw::Date(value))
            | (Values::Ints(IntForm::Time, values), Raw::Time(value))
            | (Values::Ints(IntForm::Timestamp, values), Raw::Timestamp(value)) => {
                values.to_mut().push(*value);
            }
            (Values::Scaled(scale, values), Raw::Scaled(value, other)) if scale == other => {
                values.to_mut().push(*value);
            }
            (Values::Bools(values), Raw::Bool(value)) => values.push(*value),
            (Values::Texts(texts), Raw::Text(text)) if texts.form == TextForm::Text => self.heap.push(text),
            (Values::Texts(texts), Raw::Bytes(text)) if texts.form == TextForm::Bytes => self.heap.push(text),
            (Values::Texts(texts), Raw::Chars(characters, text))
                if texts.form == TextForm::Char(*characters) =>
            {
                self.heap.push(text);
            }
            (Values::Datums(values), _) => values.push(Self::datum(value)),
            _ => {
                self.keep_datums();
                if let Some(Values::Datums(values)) = &mut self.values {
                    values.push(Self::datum(value));
                }
            }
        }
        self.nulls.push(false);
    }

    fn datum(value: Raw<'_>) -> Datum {
        match value {
            Raw::Null => Datum::Null,
            Raw::Bool(value) => Datum::Bool(value),
            Raw::Int(value) => IntForm::Int.datum(value),
            Raw::Date(value) => IntForm::Date.datum(value),
            Raw::Time(value) => IntForm::Time.datum(value),
            Raw::Timestamp(value) => IntForm::Timestamp.datum(value),
            Raw::Scaled(value, scale) => Datum::Numeric(Numeric::Small(value, scale)),
            Raw::Text(text) => TextForm::Text.datum(text),
            Raw::Chars(characters, text) => TextForm::Char(characters).datum(text),
            Raw::Bytes(bytes) => TextForm::Bytes.datum(bytes),
            Raw::Other(value) => value,
        }
    }

    /// Begins with the form of a value, behind nulls.
    fn begin(&mut self, value: &Raw<'_>) {
        let nulls = self.nulls.len();
        let texts = |form| Values::Texts(Texts { strings: Strings::Read(Rc::default()), places: None, form });
        let ints = || vec![0; nulls].into();
        self.values = Some(match value {
            Raw::Int(_) => Values::Ints(IntForm::Int, ints()),
            Raw::Date(_) => Values::Ints(IntForm::Date, ints()),
            Raw::Time(_) => Values::Ints(IntForm::Time, ints()),
            Raw::Timestamp(_) => Values::Ints(IntForm::Timestamp, ints()),
            Raw::Scaled(_, scale) => Values::Scaled(*scale, ints()),
            Raw::Bool(_) => Values::Bools(vec![false; nulls]),
            Raw::Text(_) => texts(TextForm::Text),
            Raw::Chars(characters, _) => texts(TextForm::Char(*characters)),
            Raw::Bytes(_) => texts(TextForm::Bytes),
            Raw::Null | Raw::Other(_) => Values::Datums(vec![Datum::Null; nulls]),
        });
        if let Some(Values::Texts(_)) = &self.values {
            (0..nulls).for_each(|_| self.heap.push(&[]));
        }
    }

    fn push_null(&mut self) {
        match &mut self.values {
            None | Some(Values::One(_) | Values::Floats(_)) => {}
            Some(Values::Ints(_, values) | Values::Scaled(_, values)) => values.to_mut().push(0),
            Some(Values::Bools(values)) => values.push(false),
            Some(Values::Texts(_)) => self.heap.push(&[]),
            Some(Values::Datums(values)) => values.push(Datum::Null),
        }
        self.nulls.push(true);
        self.has_nulls = true;
    }

    /// Has what has come as values, since another form comes.
    fn keep_datums(&mut self) {
        let rows = self.nulls.len();
        let nulls = self.nulls.clone();
        let vector = std::mem::take(self).finish();
        let values = (0..rows).map(|row| vector.datum(row)).collect();
        let has_nulls = nulls.contains(&true);
        *self = Self { values: Some(Values::Datums(values)), heap: Heap::default(), nulls, has_nulls };
    }

    /// The values that have come.
    pub(super) fn finish(self) -> Vector<'static> {
        let nulls = self.has_nulls.then_some(self.nulls);
        match self.values {
            None => Vector::one(Datum::Null),
            Some(Values::Texts(texts)) => {
                let strings = Strings::Read(Rc::new(self.heap));
                Vector { values: Values::Texts(Texts { strings, ..texts }), nulls }
            }
            Some(values @ Values::Datums(_)) => Vector { values, nulls: None },
            Some(values) => Vector { values, nulls },
        }
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

    /// These columns, of so many rows.
    pub(super) fn of_columns(columns: Vec<Rc<Vector<'b>>>, rows: usize) -> Self {
        let origins = vec![Origin::Made; columns.len()];
        let known = columns.into_iter().map(Some).collect::<Vec<_>>().into();
        Self { origins, known, places: None, rows }
    }

    /// The same rows with these columns in place of theirs.
    pub(super) fn with_columns(&self, columns: Vec<Rc<Vector<'b>>>) -> Self {
        Self::of_columns(columns, self.rows)
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
