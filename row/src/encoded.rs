//! Encoded rows on their way into a table: bytes that know of which layout they are.
//!
//! The bytes of a row do not say which columns they are of, and bytes of one layout may well be a row of another one, with
//! other values. So the engine takes no bare bytes. An [`EncodedRow`] is made by an encoder only (`row!`,
//! [`Layout::encode_row`], the table's own), a [`RowRef`] of bytes of any origin by [`RowRef::checked`], which validates them
//! whole. Both carry the [`LayoutId`], and so an insert compares two numbers and looks at no byte a second time.
//!
//! A row whose layout is not the table's present one, but one that it had before, is converted as the rows in the table were
//! when its columns changed (see `catalog/past.rs`); any other row is refused.
//!
//! Limits: an id is a hash of 64 bits over names, types and nullability in their order. Two layouts that share it by accident are
//! taken for one; accessors are safe code, so the worst of that is a wrong value or a panic.

use std::ops::Deref;

use super::error::RowError;
use super::layout::Layout;
use super::types::Type;

/// Which columns a row has, as a number: equal for layouts with equal names, types and nullability in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayoutId(u64);

impl LayoutId {
    /// That of no layout.
    const NONE: Self = Self(0);

    /// The id of no columns, to be continued with [`LayoutId::and`].
    #[doc(hidden)]
    #[must_use]
    pub const fn begin() -> Self {
        // FNV-1a, by words: only accidents are to be told apart.
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// The id with a further column.
    #[doc(hidden)]
    #[must_use]
    pub const fn and(self, name: &str, ty: Type, nullable: bool) -> Self {
        let (tag, parameter) = match ty {
            Type::Boolean => (1, 0),
            Type::Int2 => (2, 0),
            Type::Int4 => (3, 0),
            Type::Int8 => (4, 0),
            Type::Float4 => (5, 0),
            Type::Float8 => (6, 0),
            Type::Decimal { precision, scale } => (7, (precision as u64) << 8 | scale as u64),
            Type::Text => (8, 0),
            Type::Varchar(n) => (9, n as u64),
            Type::Char(n) => (10, n as u64),
            Type::Bytes => (11, 0),
            Type::Date => (12, 0),
            Type::Time => (13, 0),
            Type::Timestamp => (14, 0),
            Type::TimestampTz => (15, 0),
            Type::Interval => (16, 0),
            Type::Uuid => (17, 0),
        };
        let mut id = self.mix(tag << 1 | nullable as u64).mix(parameter).mix(name.len() as u64);
        let (bytes, mut i) = (name.as_bytes(), 0);
        while i < bytes.len() {
            id = id.mix(bytes[i] as u64);
            i += 1;
        }
        id
    }

    /// The id as a number, for formats that name their layout. It is the same on every machine and in every version.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    const fn mix(self, word: u64) -> Self {
        let mixed = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        Self(mixed ^ mixed >> 29)
    }
}

/// A row that some encoder has made, with the layout that it was made with. Its memory is used again by the next row that is
/// encoded into it.
#[derive(Clone, Debug)]
pub struct EncodedRow {
    layout: LayoutId,
    bytes: Vec<u8>,
}

impl EncodedRow {
    /// Room for a row. There is none in it yet: every table refuses it.
    #[must_use]
    pub const fn new() -> Self {
        Self { layout: LayoutId::NONE, bytes: Vec::new() }
    }

    /// The layout that it was made with.
    #[must_use]
    pub const fn layout(&self) -> LayoutId {
        self.layout
    }

    /// The row, to be handed in.
    #[inline]
    #[must_use]
    pub fn as_row(&self) -> RowRef<'_> {
        RowRef { layout: self.layout, bytes: &self.bytes }
    }

    /// For encoders: the buffer, which contains no row until [`EncodedRow::finish`].
    #[doc(hidden)]
    #[inline]
    pub fn begin(&mut self) -> &mut Vec<u8> {
        self.layout = LayoutId::NONE;
        &mut self.bytes
    }

    /// For encoders: the buffer contains a row of this layout.
    #[doc(hidden)]
    #[inline]
    pub fn finish(&mut self, layout: LayoutId) {
        self.layout = layout;
    }
}

impl Default for EncodedRow {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for EncodedRow {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A borrowed row of which it is known that it is one, and of which layout.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'r> {
    layout: LayoutId,
    bytes: &'r [u8],
}

impl<'r> RowRef<'r> {
    /// Bytes of any origin (another program, a file, a row that was read), if they are a row of this layout: its length,
    /// places, null bits, texts and the range of each value are looked at.
    ///
    /// They must have been made with this layout. Bytes of another one can be a valid row of this one, too; nobody can see that.
    ///
    /// # Errors
    /// [`RowError::Unfit`], which says where they are no row.
    pub fn checked(layout: &Layout, bytes: &'r [u8]) -> Result<Self, RowError> {
        layout.check(bytes).map_err(RowError::unfit)?;
        Ok(Self { layout: layout.id(), bytes })
    }

    /// The layout that it was made with.
    #[inline]
    #[must_use]
    pub const fn layout(self) -> LayoutId {
        self.layout
    }

    /// Its bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> &'r [u8] {
        self.bytes
    }

    /// For the engine: bytes that a row with this id had before.
    #[doc(hidden)]
    #[must_use]
    pub const fn known(layout: LayoutId, bytes: &'r [u8]) -> Self {
        Self { layout, bytes }
    }
}

impl<'r> From<&'r EncodedRow> for RowRef<'r> {
    #[inline]
    fn from(row: &'r EncodedRow) -> Self {
        row.as_row()
    }
}

impl Deref for RowRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Column;
    use crate::value::Value;

    crate::row! {
        /// A row with every kind of parameter.
        struct Typed as TypedRow {
            id: i64,
            name: Option<crate::Varchar<7>>,
            price: crate::Dec<9, 2>,
        }
    }

    fn columns() -> Vec<Column> {
        vec![
            Column::new("id", Type::Int8),
            Column::new("name", Type::Varchar(7)).nullable(),
            Column::new("price", Type::Decimal { precision: 9, scale: 2 }),
        ]
    }

    #[test]
    fn an_id_depends_on_all_that_a_layout_depends_on() {
        let of = |columns: &[Column]| Layout::new(columns).expect("a layout").id();
        let id = of(&columns());
        assert_eq!(id, Typed::layout().id());
        // Defaults change nothing about rows.
        let mut other = columns();
        other[0].default = Some(Value::Int8(7));
        assert_eq!(of(&other), id);
        let changes: [fn(&mut Vec<Column>); 7] = [
            |columns| columns[0].name = "ie".to_owned(),
            |columns| columns[0].ty = Type::Timestamp,
            |columns| columns[0].nullable = true,
            |columns| columns[1].ty = Type::Varchar(8),
            |columns| columns[2].ty = Type::Decimal { precision: 9, scale: 3 },
            |columns| columns.swap(0, 1),
            |columns| _ = columns.pop(),
        ];
        for change in changes {
            let mut other = columns();
            change(&mut other);
            assert_ne!(of(&other), id, "{other:?}");
        }
        assert_ne!(of(&[]), LayoutId::NONE);
    }

    #[test]
    fn a_row_that_could_not_be_encoded_is_of_no_layout() {
        let mut row = EncodedRow::new();
        let typed = Typed { id: 1, name: None, price: crate::Dec(5) };
        typed.encode(&mut row).expect("it fits");
        assert_eq!(row.layout(), Typed::layout().id());
        let typed = Typed { name: Some("too long a name".to_owned()), ..typed };
        typed.encode(&mut row).expect_err("it does not");
        assert_eq!(row.layout(), LayoutId::NONE);
        Typed::layout().encode_row(&[Value::Null], &mut row).expect_err("it does not fit either");
        assert_eq!(row.layout(), LayoutId::NONE);
    }

    #[test]
    fn foreign_bytes_are_looked_at_whole() {
        let mut row = EncodedRow::new();
        Typed { id: 1, name: Some("abc".to_owned()), price: crate::Dec(5) }
            .encode(&mut row)
            .expect("it fits");
        let layout = Typed::layout();
        let checked = RowRef::checked(layout, &row).expect("it is one");
        assert_eq!((checked.layout(), checked.bytes()), (layout.id(), &*row));
        let mut bytes = row.to_vec();
        *bytes.last_mut().expect("a text") = 0xff;
        let error = RowRef::checked(layout, &bytes).expect_err("no UTF-8");
        assert_eq!(error.sqlstate(), "22P03", "{error}");
        assert!(error.to_string().contains("column \"name\""), "{error}");
        assert!(RowRef::checked(layout, &row[1..]).is_err());
    }
}
