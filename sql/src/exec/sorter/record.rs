//! Records: a row that is sorted, as bytes.
//!
//! ```text
//! record: bytes of the key │ bytes of the rest, twice, and one more if that has all columns │ key │ rest
//! key:    its values, each behind a mark: null, or bytes that compare as values do (types/order_bytes)
//! rest:   the columns (exec/coded) that the key does not give back
//! ```
//!
//! A key gives back the columns that stand in it alone, up to the first value whose bytes are not its own: equal numerics may differ in
//! their scale. [`KeyForm`] says which are. The values of a column have one form but for nulls; a row with another one keeps all columns.

use std::borrow::Cow;

use crate::exec::Row;
use crate::exec::coded::{Coder, read_unsigned, write_unsigned};
use crate::expr::Expr;
use crate::plan::SortKey;
use crate::types::{Datum, order_bytes};

/// The form of a value in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) enum KeyForm {
    Bool,
    Int,
    Date,
    Time,
    Timestamp,
    Uuid,
    Text,
    Bytes,
    /// Its bytes do not give it back.
    Other,
}

impl KeyForm {
    /// The form of a value; none: it is null.
    pub(in crate::exec) fn of(value: &Datum) -> Option<Self> {
        Some(match value {
            Datum::Null => return None,
            Datum::Bool(_) => Self::Bool,
            Datum::Int(_) => Self::Int,
            Datum::Date(_) => Self::Date,
            Datum::Time(_) => Self::Time,
            Datum::Timestamp(_) => Self::Timestamp,
            Datum::Uuid(_) => Self::Uuid,
            Datum::Text(_) => Self::Text,
            Datum::Bytes(_) => Self::Bytes,
            Datum::Float(_)
            | Datum::Numeric(_)
            | Datum::Char(_)
            | Datum::Interval(_)
            | Datum::Jsonb(_)
            | Datum::Record(_)
            | Datum::Array(_) => Self::Other,
        })
    }

    /// Reads a value of this form, which is not `Other`.
    fn read(self, from: &mut &[u8], descending: bool) -> Datum {
        match self {
            Self::Bool => Datum::Bool(order_bytes::read_array::<1>(from, descending)[0] != 0),
            Self::Int => Datum::Int(order_bytes::read_int(from, descending)),
            // It was a date's number of days.
            Self::Date => Datum::Date(order_bytes::read_int(from, descending) as i32),
            Self::Time => Datum::Time(order_bytes::read_int(from, descending)),
            Self::Timestamp => Datum::Timestamp(order_bytes::read_int(from, descending)),
            Self::Uuid => Datum::Uuid(order_bytes::read_array(from, descending)),
            Self::Text => {
                let bytes = order_bytes::read_bytes(from, descending);
                Datum::text(std::str::from_utf8(&bytes).expect("a text was written"))
            }
            Self::Bytes => Datum::Bytes(order_bytes::read_bytes(from, descending).as_ref().into()),
            Self::Other => unreachable!("its bytes do not give it back"),
        }
    }
}

/// A row that comes to be sorted.
pub(in crate::exec) trait Coming {
    /// The form of a value of its key; none: it is null.
    fn form(&self, place: usize) -> Option<KeyForm>;
    /// Appends a value of its key that is not null, as bytes that compare as values do.
    fn write_order(&self, place: usize, to: &mut Vec<u8>);
    /// Appends the value of a column.
    fn write(&self, column: usize, coder: &mut Coder, to: &mut Vec<u8>);
}

/// The columns that a key gives back, one bit each: those beyond stand in the rest.
type Columns = u64;

fn has(columns: Columns, column: usize) -> bool {
    column < Columns::BITS as usize && columns & 1 << column != 0
}

/// Marks of values in a key.
mod mark {
    pub(super) const NULL_FIRST: u8 = 0;
    pub(super) const VALUE: u8 = 1;
    pub(super) const NULL_LAST: u8 = 2;
}

/// The form of the records of a sorter.
pub(super) struct RecordForm<'k> {
    keys: Cow<'k, [SortKey]>,
    /// The form of each value of the key, once one was not null.
    forms: Vec<Option<KeyForm>>,
    /// Columns of a row.
    width: usize,
    coder: Coder,
}

/// A record that is being made.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) key: Vec<u8>,
    pub(super) rest: Vec<u8>,
    pub(super) is_whole: bool,
}

impl<'k> RecordForm<'k> {
    pub(super) fn new(keys: Cow<'k, [SortKey]>) -> Self {
        let forms = vec![None; keys.len()];
        Self { keys, forms, width: 0, coder: Coder::default() }
    }

    pub(super) fn keys(&self) -> &[SortKey] {
        &self.keys
    }

    /// Makes the record of a row of so many columns, as many as those before.
    pub(super) fn write(&mut self, width: usize, row: &impl Coming, to: &mut Draft) {
        self.width = width;
        to.key.clear();
        to.rest.clear();
        to.is_whole = false;
        let (mut given_back, mut is_readable): (Columns, bool) = (0, true);
        for (place, (key, known)) in self.keys.iter().zip(&mut self.forms).enumerate() {
            match row.form(place) {
                None => to.key.push(if key.nulls_first { mark::NULL_FIRST } else { mark::NULL_LAST }),
                Some(form) => {
                    let known = *known.get_or_insert(form);
                    to.is_whole |= known != form;
                    is_readable &= known != KeyForm::Other;
                    to.key.push(mark::VALUE);
                    let begin = to.key.len();
                    row.write_order(place, &mut to.key);
                    if key.descending {
                        to.key[begin..].iter_mut().for_each(|byte| *byte = !*byte);
                    }
                }
            }
            if let Expr::Column(column) = key.expr
                && is_readable
                && column < Columns::BITS as usize
            {
                given_back |= 1 << column;
            }
        }
        if to.is_whole {
            given_back = 0;
        }
        for column in (0..width).filter(|column| !has(given_back, *column)) {
            row.write(column, &mut self.coder, &mut to.rest);
        }
    }

    /// The row of a record, in place of what stands in `row`.
    pub(super) fn read(&self, parts: &Parts<'_>, row: &mut Row) {
        row.clear();
        row.resize(self.width, Datum::Null);
        let given_back = if parts.is_whole { 0 } else { self.read_key(parts.key, row) };
        let mut rest = parts.rest;
        for (column, value) in row.iter_mut().enumerate() {
            if !has(given_back, column) {
                *value = self.coder.read(&mut rest);
            }
        }
    }

    /// The columns that a key gives back.
    fn read_key(&self, mut from: &[u8], row: &mut Row) -> Columns {
        let mut given_back: Columns = 0;
        for (key, form) in self.keys.iter().zip(&self.forms) {
            let (first, behind) = from.split_first().expect("each value has a mark");
            from = behind;
            let value = match (*first, form) {
                (mark::VALUE, None | Some(KeyForm::Other)) => break,
                (mark::VALUE, Some(form)) => form.read(&mut from, key.descending),
                _ => Datum::Null,
            };
            if let Expr::Column(column) = key.expr
                && column < Columns::BITS as usize
            {
                row[column] = value;
                given_back |= 1 << column;
            }
        }
        given_back
    }
}

/// The parts of a record.
pub(super) struct Parts<'r> {
    pub(super) key: &'r [u8],
    rest: &'r [u8],
    is_whole: bool,
}

/// Greatest number of bytes before the key.
const LENGTHS: usize = 12;

/// Bytes that a record takes at the most.
pub(super) fn room_for(draft: &Draft) -> usize {
    LENGTHS + draft.key.len() + draft.rest.len()
}

/// Appends a record.
pub(super) fn append(draft: &Draft, to: &mut Vec<u8>) {
    write_unsigned(draft.key.len() as u64, to);
    write_unsigned((draft.rest.len() as u64) << 1 | u64::from(draft.is_whole), to);
    to.extend_from_slice(&draft.key);
    to.extend_from_slice(&draft.rest);
}

/// The parts of the record that bytes begin with, and the bytes that it takes.
pub(super) fn split(bytes: &[u8]) -> (Parts<'_>, usize) {
    let mut from = bytes;
    let (key, rest) = (read_unsigned(&mut from) as usize, read_unsigned(&mut from));
    let (is_whole, rest) = (rest & 1 != 0, (rest >> 1) as usize);
    let taken = bytes.len() - from.len() + key + rest;
    let (key, from) = from.split_at(key);
    (Parts { key, rest: &from[..rest], is_whole }, taken)
}
