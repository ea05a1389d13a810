//! Row values: fields with their names and types, which a value carries with it, so that it is written, compared and made JSON of
//! wherever it has come to.

use std::ops::Deref;
use std::sync::Arc;

use super::{Datum, Type, Zone, text};
use crate::error::{Error, Result};

/// Names and types of the fields of row values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// `f1`, `f2`, … where none are given.
    pub(crate) names: Vec<String>,
    pub(crate) types: Vec<Type>,
}

impl Shape {
    /// The shape of `ROW(…)`.
    pub(crate) fn unnamed(types: Vec<Type>) -> Arc<Self> {
        let names = (1..=types.len()).map(|number| format!("f{number}")).collect();
        Arc::new(Self { names, types })
    }
}

/// A row value.
#[derive(Clone, Debug)]
pub struct Record {
    shape: Option<Arc<Shape>>,
    values: Box<[Datum]>,
}

impl Record {
    pub(crate) fn new(shape: &Arc<Shape>, values: Vec<Datum>) -> Arc<Self> {
        debug_assert_eq!(shape.types.len(), values.len(), "each field has a type");
        Arc::new(Self { shape: Some(shape.clone()), values: values.into() })
    }

    /// Values side by side that no user sees.
    pub(crate) fn bare(values: impl Into<Box<[Datum]>>) -> Arc<Self> {
        Arc::new(Self { shape: None, values: values.into() })
    }

    /// Names and types of its fields, where they are known.
    pub(crate) fn shape(&self) -> Option<&Arc<Shape>> {
        self.shape.as_ref()
    }

    /// The type of a field.
    pub(crate) fn type_of(&self, place: usize) -> Type {
        self.shape.as_ref().map_or(Type::Text, |shape| shape.types[place])
    }

    /// The fields with their names.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (String, Type, &Datum)> {
        self.values.iter().enumerate().map(|(place, value)| {
            let name = self.shape.as_ref().map(|shape| shape.names[place].clone());
            (name.unwrap_or_else(|| format!("f{}", place + 1)), self.type_of(place), value)
        })
    }

    /// Refuses to compare with a row value of other fields (`record_cmp`).
    pub(crate) fn may_compare(&self, other: &Self) -> Result<()> {
        if self.len() != other.len() {
            let message = "cannot compare record types with different numbers of columns";
            return Err(Error::new("42804", message));
        }
        for (place, (a, b)) in self.iter().zip(other.iter()).enumerate() {
            let (one, theirs) = (self.type_of(place), other.type_of(place));
            if one != theirs && !a.is_null() && !b.is_null() {
                let message = format!(
                    "cannot compare dissimilar column types {} and {} at record column {}",
                    one.sql_name(),
                    theirs.sql_name(),
                    place + 1
                );
                return Err(Error::new("42804", message));
            }
            if let (Datum::Record(a), Datum::Record(b)) = (a, b) {
                a.may_compare(b)?;
            }
        }
        Ok(())
    }

    /// Writes the row value as text (`record_out`).
    pub(super) fn output(&self, zone: &Zone, out: &mut String) {
        out.push('(');
        for (place, value) in self.values.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            if value.is_null() {
                continue;
            }
            let shown = text::show(value, self.type_of(place), zone);
            let is_plain = |sign: char| !(sign.is_ascii_whitespace() || "\"\\(),\u{b}".contains(sign));
            if !shown.is_empty() && shown.chars().all(is_plain) {
                out.push_str(&shown);
                continue;
            }
            out.push('"');
            for sign in shown.chars() {
                if matches!(sign, '"' | '\\') {
                    out.push(sign);
                }
                out.push(sign);
            }
            out.push('"');
        }
        out.push(')');
    }

    /// Writes the row value in binary form (`record_send`).
    pub(super) fn write_binary(&self, out: &mut Vec<u8>) {
        out.extend((self.values.len() as i32).to_be_bytes());
        for (place, value) in self.values.iter().enumerate() {
            let ty = self.type_of(place);
            out.extend(ty.oid().to_be_bytes());
            if value.is_null() {
                out.extend((-1i32).to_be_bytes());
                continue;
            }
            let at = out.len();
            out.extend([0; 4]);
            value.write_binary(ty, out);
            let length = (out.len() - at - 4) as i32;
            out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
}

impl Deref for Record {
    type Target = [Datum];

    fn deref(&self) -> &[Datum] {
        &self.values
    }
}
