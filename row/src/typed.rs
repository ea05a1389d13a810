//! Rows with a type of their own: the macro [`row!`](crate::row!).
//!
//! ```
//! use thermocline_row::row;
//! use thermocline_row::{Char, Dec, EncodedRow, KeyBuf, RowEditor, Varchar};
//!
//! row! {
//!     /// An article in a warehouse.
//!     pub struct Stock as StockRow {
//!         s_i_id: i32,
//!         s_w_id: i32,
//!         s_quantity: i16,
//!         s_dist_01: Char<24>,
//!         s_ytd: Dec<8, 0>,
//!         s_data: Varchar<50>,
//!         s_carrier_id: Option<i32>,
//!     }
//! }
//!
//! let stock = Stock {
//!     s_i_id: 1,
//!     s_w_id: 7,
//!     s_quantity: 40,
//!     s_dist_01: "first".into(),
//!     s_ytd: Dec(0),
//!     s_data: "original".into(),
//!     s_carrier_id: None,
//! };
//! let mut bytes = EncodedRow::new();
//! stock.encode(&mut bytes)?;
//!
//! // In place, at constant offsets:
//! let view = StockRow(&bytes);
//! assert_eq!((view.s_quantity(), view.s_data(), view.s_carrier_id()), (40, "original", None));
//! assert_eq!(Stock::decode(&bytes), stock);
//!
//! // In an update:
//! let mut scratch = Vec::new();
//! let mut editor = RowEditor::new(Stock::layout(), &bytes, &mut scratch);
//! StockRow::set_s_quantity(&mut editor, 35)?;
//! StockRow::set_s_carrier_id(&mut editor, Some(3))?;
//! assert_eq!(StockRow(editor.row()).s_carrier_id(), Some(3));
//! assert!(editor.changed_columns().contains(Stock::S_QUANTITY));
//! # Ok::<(), thermocline_row::RowError>(())
//! ```
//!
//! For each column the macro makes a field of the owned struct, an accessor and a setter `set_<name>` of the view, and a
//! constant with its number, its name in capitals. Column types: `bool`, `i16`, `i32`, `i64`, `f32`, `f64`,
//! [`Dec<P, S>`](Dec), `String` (text), [`Varchar<N>`](Varchar), [`Char<N>`](Char), `Vec<u8>` or [`Bytes`], [`Date`],
//! [`Time`], [`Timestamp`], [`TimestampTz`], [`Interval`], [`Uuid`], and `Option` of each of them for a column that
//! takes null. Views give texts and bytes as slices of the row; the owned struct has `String` and `Vec<u8>`.
//!
//! The places come from the same functions as those of [`Layout::new`](super::Layout::new), evaluated by the compiler.
//! A setter finds its column by name where the table's columns have changed since; a table takes rows of its former columns.
//!
//! A view that is made of bare bytes trusts them, as the accessors of the layout do (see [`layout`](super::layout)): bytes of another
//! layout are garbled. So what is read of a table whose columns may change is looked at through the layout that it has:
//! `StockRow::of(layout, bytes)` refuses another one, [`TypedRow::fit`] brings its rows into this one where that can be. Both compare
//! two numbers where it is the same. An engine's transaction does that by itself (`read_view`, `scan_view`).

use std::borrow::Cow;
use std::fmt;

use super::decimal::{Decimal, DecimalError, POW10};
use super::editor::RowEditor;
use super::encoded::LayoutId;
use super::error::{Flaw, RowError};
use super::layout::{Layout, Place, RowWriter, fit_scaled, fit_text, time_at};
use super::temporal::{Date, Interval, Time, Timestamp, TimestampTz, Uuid};
use super::types::{Column, MAX_CHARACTERS, MAX_PRECISION, MAX_PRECISION_8, Type};
use super::value::{interval_bytes, interval_from};

/// The column type `varchar(N)` in a `row!`.
#[derive(Clone, Copy, Debug)]
pub struct Varchar<const N: u32>;

/// The column type `char(N)` in a `row!`.
#[derive(Clone, Copy, Debug)]
pub struct Char<const N: u32>;

/// The column type `bytea` in a `row!`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

/// The column type `decimal(P, S)` in a `row!`, and its values: `self.0 / 10^S`.
///
/// Arithmetic is that of the integer inside, so that sums of one scale are plain additions; whether a value has no more
/// than P digits is checked when it is stored.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dec<const P: u8, const S: u8>(pub i128);

impl<const P: u8, const S: u8> Dec<P, S> {
    const TYPE: Type = {
        assert!(P >= 1 && P <= MAX_PRECISION, "a decimal has 1 to 38 digits");
        assert!(S <= P, "the scale of a decimal is at most its precision");
        Type::Decimal { precision: P, scale: S }
    };

    /// The value `scaled / 10^S`.
    #[must_use]
    pub const fn from_scaled(scaled: i64) -> Self {
        Self(scaled as i128)
    }

    /// The value times 10^S.
    #[must_use]
    pub const fn scaled(self) -> i128 {
        self.0
    }

    /// The value times 10^S, of a type whose values all fit 64 bits; for others this does not compile. A value that was
    /// not read from a row may be out of range: its upper bits are cut off.
    ///
    /// ```compile_fail
    /// thermocline_row::Dec::<19, 0>(1).scaled64();
    /// ```
    #[inline]
    #[must_use]
    pub const fn scaled64(self) -> i64 {
        const { assert!(P <= MAX_PRECISION_8, "only decimals of at most 18 digits fit 64 bits") };
        self.0 as i64
    }

    /// The value as a decimal of any precision.
    pub const fn to_decimal(self) -> Result<Decimal, DecimalError> {
        Decimal::new(self.0, S)
    }

    /// The value as the nearest 64-bit float, but for rounding in the last place.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / POW10[S as usize] as f64
    }
}

impl<const P: u8, const S: u8> TryFrom<Decimal> for Dec<P, S> {
    type Error = DecimalError;

    /// Rounds to S digits after the point.
    fn try_from(value: Decimal) -> Result<Self, DecimalError> {
        let scaled = value.rescale(S)?.mantissa();
        fit_scaled(scaled, P, S).map(Self).map_err(|_| DecimalError::Overflow)
    }
}

impl<const P: u8, const S: u8> std::str::FromStr for Dec<P, S> {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        text.parse::<Decimal>()?.try_into()
    }
}

impl<const P: u8, const S: u8> std::ops::Add for Dec<P, S> {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl<const P: u8, const S: u8> std::ops::Sub for Dec<P, S> {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl<const P: u8, const S: u8> std::ops::Neg for Dec<P, S> {
    type Output = Self;

    #[inline]
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl<const P: u8, const S: u8> std::ops::AddAssign for Dec<P, S> {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl<const P: u8, const S: u8> std::ops::SubAssign for Dec<P, S> {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl<const P: u8, const S: u8> std::iter::Sum for Dec<P, S> {
    fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
        Self(values.map(|v| v.0).sum())
    }
}

impl<const P: u8, const S: u8> fmt::Display for Dec<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_decimal() {
            Ok(decimal) => decimal.fmt(f),
            Err(_) => write!(f, "{}e-{S}", self.0),
        }
    }
}

impl<const P: u8, const S: u8> fmt::Debug for Dec<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What the macro makes of a `row!`, for those who read rows of a table whose columns may have changed since the program was
/// written: implemented by the owned struct.
pub trait TypedRow: Sized {
    /// A row in place.
    type View<'r>: Copy;
    /// What tells its layout from others.
    const LAYOUT: LayoutId;

    /// Its layout.
    fn layout() -> &'static Layout;

    /// A view of bytes that are known to be a row of this layout.
    fn view(bytes: &[u8]) -> Self::View<'_>;

    /// The row that `bytes`, a row of `layout`, contain, in this layout: as it is where they are the same, else written anew from the
    /// columns of the same names. Columns that this layout does not have are left out.
    ///
    /// # Errors
    /// [`RowError::OtherLayout`]: a column is missing, or of another type; a null where this layout takes none.
    #[inline]
    fn fit<'r>(layout: &Layout, bytes: &'r [u8]) -> Result<Cow<'r, [u8]>, RowError> {
        match layout.id() == Self::LAYOUT {
            true => Ok(Cow::Borrowed(bytes)),
            false => refit(layout, bytes, Self::layout()).map(Cow::Owned),
        }
    }
}

#[cold]
fn refit(from: &Layout, bytes: &[u8], to: &Layout) -> Result<Vec<u8>, RowError> {
    let value_of = |column: &Column| {
        let same = |found: &Column| found.name == column.name && found.ty == column.ty;
        let at = from.columns().iter().position(same).ok_or(RowError::OtherLayout)?;
        Ok(from.value(bytes, at))
    };
    let values = to.columns().iter().map(value_of).collect::<Result<Vec<_>, RowError>>()?;
    let mut row = Vec::with_capacity(bytes.len());
    to.encode(&values, &mut row)?;
    Ok(row)
}

/// A type of a column that takes no null, in a `row!`.
#[doc(hidden)]
pub trait ColumnType {
    /// What the owned struct has.
    type Owned;
    /// What views return and setters take.
    type View<'a>: Copy;
    /// The column's type.
    const TYPE: Type;
    /// Reads it.
    fn get(row: &[u8], place: Place) -> Self::View<'_>;
    /// Writes it.
    fn put(value: Self::View<'_>, writer: &mut RowWriter<'_>, place: Place) -> Result<(), Flaw>;
    /// Changes it.
    fn set(value: Self::View<'_>, editor: &mut RowEditor<'_>, column: usize) -> Result<(), RowError>;
    /// From what a view returns to what the owned struct has.
    fn own(view: Self::View<'_>) -> Self::Owned;
    /// The inverse of `own`.
    fn view(owned: &Self::Owned) -> Self::View<'_>;
}

/// A type of any column in a `row!`: a [`ColumnType`] or an option of it.
#[doc(hidden)]
pub trait Field {
    /// What the owned struct has.
    type Owned;
    /// What views return and setters take.
    type View<'a>: Copy;
    /// The column's type.
    const TYPE: Type;
    /// Whether it takes null.
    const NULLABLE: bool;
    /// Reads it.
    fn get(row: &[u8], place: Place) -> Self::View<'_>;
    /// Writes it.
    fn put(value: Self::View<'_>, writer: &mut RowWriter<'_>, place: Place) -> Result<(), Flaw>;
    /// Changes it.
    fn set(value: Self::View<'_>, editor: &mut RowEditor<'_>, column: usize) -> Result<(), RowError>;
    /// From what a view returns to what the owned struct has.
    fn own(view: Self::View<'_>) -> Self::Owned;
    /// The inverse of `own`.
    fn view(owned: &Self::Owned) -> Self::View<'_>;
}

impl<T: ColumnType> Field for T {
    type Owned = T::Owned;
    type View<'a> = T::View<'a>;
    const TYPE: Type = T::TYPE;
    const NULLABLE: bool = false;

    #[inline(always)]
    fn get(row: &[u8], place: Place) -> T::View<'_> {
        T::get(row, place)
    }

    #[inline(always)]
    fn put(value: T::View<'_>, writer: &mut RowWriter<'_>, place: Place) -> Result<(), Flaw> {
        T::put(value, writer, place)
    }

    #[inline(always)]
    fn set(value: T::View<'_>, editor: &mut RowEditor<'_>, column: usize) -> Result<(), RowError> {
        T::set(value, editor, column)
    }

    #[inline(always)]
    fn own(view: T::View<'_>) -> T::Owned {
        T::own(view)
    }

    #[inline(always)]
    fn view(owned: &T::Owned) -> T::View<'_> {
        T::view(owned)
    }
}

impl<T: ColumnType> Field for Option<T> {
    type Owned = Option<T::Owned>;
    type View<'a> = Option<T::View<'a>>;
    const TYPE: Type = T::TYPE;
    const NULLABLE: bool = true;

    #[inline(always)]
    fn get(row: &[u8], place: Place) -> Option<T::View<'_>> {
        if place.is_null(row) { None } else { Some(T::get(row, place)) }
    }

    #[inline(always)]
    fn put(value: Option<T::View<'_>>, writer: &mut RowWriter<'_>, place: Place) -> Result<(), Flaw> {
        match value {
            Some(value) => T::put(value, writer, place),
            None => writer.null(place, T::TYPE.width().is_none()),
        }
    }

    #[inline(always)]
    fn set(value: Option<T::View<'_>>, editor: &mut RowEditor<'_>, column: usize) -> Result<(), RowError> {
        match value {
            Some(value) => T::set(value, editor, column),
            None => editor.set_null(column),
        }
    }

    #[inline(always)]
    fn own(view: Option<T::View<'_>>) -> Option<T::Owned> {
        view.map(T::own)
    }

    #[inline(always)]
    fn view(owned: &Option<T::Owned>) -> Option<T::View<'_>> {
        owned.as_ref().map(T::view)
    }
}

macro_rules! fixed {
    ($($rust:ty: $ty:ident, $setter:ident, |$place:ident, $row:ident| $read:expr, |$value:ident| $bytes:expr;)*) => {
        $(
            impl ColumnType for $rust {
                type Owned = $rust;
                type View<'a> = $rust;
                const TYPE: Type = Type::$ty;

                #[inline(always)]
                fn get($row: &[u8], $place: Place) -> $rust {
                    $read
                }

                #[inline(always)]
                fn put($value: $rust, writer: &mut RowWriter<'_>, place: Place) -> Result<(), Flaw> {
                    writer.fixed(place, $bytes);
                    Ok(())
                }

                #[inline(always)]
                fn set(value: $rust, editor: &mut RowEditor<'_>, column: usize) -> Result<(), RowError> {
                    editor.$setter(column, value)
                }

                #[inline(always)]
                fn own(view: $rust) -> $rust {
                    view
                }

                #[inline(always)]
                fn view(owned: &$rust) -> $rust {
                    *owned
                }
            }
        )*
    };
}

fixed! {
    bool: Boolean, set_bool, |place, row| place.fixed::<1>(row)[0] != 0, |v| [u8::from(v)];
    i16: Int2, set_i16, |place, row| i16::from_le_bytes(place.fixed(row)), |v| v.to_le_bytes();
    i32: Int4, set_i32, |place, row| i32::from_le_bytes(place.fixed(row)), |v| v.to_le_bytes();
    i64: Int8, set_i64, |place, row| i64::from_le_bytes(place.fixed(row)), |v| v.to_le_bytes();
    f32: Float4, set_f32, |place, row| f32::from_le_bytes(place.fixed(row)), |v| v.to_le_bytes();
    f64: Float8, set_f64, |place, row| f64::from_le_bytes(place.fixed(row)), |v| v.to_le_bytes();
    Date: Date, set_date, |place, row| Date(i32::from_le_bytes(place.fixed(row))), |v| v.0.to_le_bytes();
    Time: Time, set_time, |place, row| time_at(place, row), |v| v.micros().to_le_bytes();
    Timestamp: Timestamp, set_timestamp, |place, row| Timestamp(i64::from_le_bytes(place.fixed(row))),
        |v| v.0.to_le_bytes();
    TimestampTz: TimestampTz, set_timestamptz, |place, row| TimestampTz(i64::from_le_bytes(place.fixed(row))),
        |v| v.0.to_le_bytes();
    Interval: Interval, set_interval, |place, row| interval_from(place.fixed(row)), |v| interval_bytes(v);
    Uuid: Uuid, set_uuid, |place, row| Uuid(place.fixed(row)), |v| v.0;
}

impl<const P: u8, const S: u8> ColumnType for Dec<P, S> {
    type Owned = Self;
    type View<'a> = Self;
    const TYPE: Type = Self::TYPE;

    #[inline(always)]
    fn get(row: &[u8], place: Place) -> Self {
        if P <= MAX_PRECISION_8 {
            Self(i64::from_le_bytes(place.fixed(row)).into())
        } else {
            Self(i128::from_le_bytes(place.fixed(row)))
        }
    }

    #[inline(always)]
    fn put(value: Self, writer: &mut RowWriter<'_>, place: Place) -> Result<(), Flaw> {
        let scaled = fit_scaled(value.0, P, S)?;
        if P <= MAX_PRECISION_8 {
            writer.fixed(place, (scaled as i64).to_le_bytes());
        } else {
            writer.fixed(place, scaled.to_le_bytes());
        }
        Ok(())
    }

    #[inline(always)]
    fn set(value: Self, editor: &mut RowEditor<'_>, column: usize) -> Result<(), RowError> {
        editor.set_scaled(column, value.0)
    }

    #[inline(always)]
    fn own(view: Self) -> Self {
        view
    }

    #[inline(always)]
    fn view(owned: &Self) -> Self {
        *owned
    }
}

macro_rules! variable {
    ($($(@($($generics:tt)*))? $rust:ty: $owned:ty, $slice:ty, $ty:expr, $get:ident, $setter:ident,
        |$value:ident| $bytes:expr;)*) => {
        $(
            impl $($($generics)*)? ColumnType for $rust {
                type Owned = $owned;
                type View<'a> = &'a $slice;
                const TYPE: Type = $ty;

                #[inline(always)]
                fn get(row: &[u8], place: Place) -> &$slice {
                    place.$get(row)
                }

                #[inline(always)]
                fn put($value: &$slice, writer: &mut RowWriter<'_>, place: Place) -> Result<(), Flaw> {
                    writer.variable(place, $bytes)
                }

                #[inline(always)]
                fn set(value: &$slice, editor: &mut RowEditor<'_>, column: usize) -> Result<(), RowError> {
                    editor.$setter(column, value)
                }

                #[inline(always)]
                fn own(view: &$slice) -> $owned {
                    view.to_owned()
                }

                #[inline(always)]
                fn view(owned: &$owned) -> &$slice {
                    owned
                }
            }
        )*
    };
}

const fn characters(n: u32) -> u32 {
    assert!(n >= 1 && n <= MAX_CHARACTERS, "the length of varchar and char is 1 to 1048576");
    n
}

variable! {
    String: String, str, Type::Text, text, set_str, |v| v.as_bytes();
    @(<const N: u32>) Varchar<N>: String, str, Type::Varchar(characters(N)), text, set_str,
        |v| fit_text(v, Type::Varchar(N))?.as_bytes();
    @(<const N: u32>) Char<N>: String, str, Type::Char(characters(N)), text, set_str,
        |v| fit_text(v, Type::Char(N))?.as_bytes();
    Vec<u8>: Vec<u8>, [u8], Type::Bytes, variable, set_bytes, |v| v;
    Bytes: Vec<u8>, [u8], Type::Bytes, variable, set_bytes, |v| v;
}

/// Makes the types of a table's rows: see the module [`row::typed`](crate::typed).
#[macro_export]
macro_rules! row {
    ($(#[$meta:meta])* $vis:vis struct $owned:ident as $view:ident {
        $($(#[$column_meta:meta])* $name:ident: $ty:ty),+ $(,)?
    }) => {
        $crate::__private::paste! {
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq)]
            $vis struct $owned {
                $($(#[$column_meta])* #[doc = "Column `" $name "`."] $vis $name: <$ty as $crate::Field>::Owned,)+
            }

            #[doc = "A row of [`" $owned "`] in place."]
            #[derive(Clone, Copy, Debug)]
            $vis struct $view<'a>(#[doc = "The row's bytes."] $vis &'a [u8]);

            const _: () = {
                #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names are those of columns")]
                enum Number { $($name,)+ }

                const SHAPES: [$crate::Shape; <[&str]>::len(&[$(stringify!($name),)+])] = [
                    $($crate::Shape::new(
                        <$ty as $crate::Field>::TYPE,
                        <$ty as $crate::Field>::NULLABLE,
                    ),)+
                ];
                const LENGTHS: $crate::Lengths = $crate::Lengths::new(&SHAPES);
                const LAYOUT: $crate::LayoutId = $crate::LayoutId::begin()
                    $(.and(
                        stringify!($name),
                        <$ty as $crate::Field>::TYPE,
                        <$ty as $crate::Field>::NULLABLE,
                    ))+;
                const PLACES: [$crate::Place; SHAPES.len()] = $crate::places(&SHAPES);

                #[allow(dead_code, reason = "not every program uses all of them")]
                impl $owned {
                    $(#[doc = "Number of the column `" $name "`."]
                    $vis const [<$name:upper>]: usize = Number::$name as usize;)+

                    /// The columns of the table.
                    #[must_use]
                    $vis fn schema_columns() -> ::std::vec::Vec<$crate::Column> {
                        ::std::vec![$({
                            let column = $crate::Column::new(
                                stringify!($name),
                                <$ty as $crate::Field>::TYPE,
                            );
                            if <$ty as $crate::Field>::NULLABLE { column.nullable() } else { column }
                        },)+]
                    }

                    /// The layout of the rows.
                    #[must_use]
                    $vis fn layout() -> &'static $crate::Layout {
                        static LAYOUT: ::std::sync::OnceLock<$crate::Layout> = ::std::sync::OnceLock::new();
                        LAYOUT.get_or_init(|| {
                            $crate::Layout::new(&Self::schema_columns())
                                .expect("types and count of the columns were checked by the compiler")
                        })
                    }

                    /// Writes the row into `out`, whose content goes.
                    $vis fn encode(
                        &self,
                        out: &mut $crate::EncodedRow,
                    ) -> ::std::result::Result<(), $crate::RowError> {
                        let mut writer = $crate::RowWriter::new(out.begin(), LENGTHS);
                        $(
                            let value = <$ty as $crate::Field>::view(&self.$name);
                            let place = const { PLACES[Number::$name as usize] };
                            if let Err(flaw) = <$ty as $crate::Field>::put(value, &mut writer, place) {
                                let ty = <$ty as $crate::Field>::TYPE;
                                return Err($crate::RowError::value(stringify!($name), ty, flaw));
                            }
                        )+
                        out.finish(LAYOUT);
                        Ok(())
                    }

                    /// The row that `bytes`, a row of this layout, contain.
                    #[must_use]
                    $vis fn decode(bytes: &[u8]) -> Self {
                        let view = $view(bytes);
                        Self { $($name: <$ty as $crate::Field>::own(view.$name()),)+ }
                    }
                }

                impl $crate::TypedRow for $owned {
                    type View<'r> = $view<'r>;
                    const LAYOUT: $crate::LayoutId = LAYOUT;

                    fn layout() -> &'static $crate::Layout {
                        <$owned>::layout()
                    }

                    #[inline]
                    fn view(bytes: &[u8]) -> $view<'_> {
                        $view(bytes)
                    }
                }

                #[allow(dead_code, reason = "not every program uses all of them")]
                impl<'a> $view<'a> {
                    /// The row that `bytes`, a row of `layout`, are; refused unless that is the layout of this view.
                    #[inline]
                    $vis fn of(
                        layout: &$crate::Layout,
                        bytes: &'a [u8],
                    ) -> ::std::result::Result<Self, $crate::RowError> {
                        if layout.id() == LAYOUT { Ok(Self(bytes)) } else { Err($crate::RowError::OtherLayout) }
                    }

                    $(
                        #[doc = "Column `" $name "`."]
                        #[inline]
                        #[must_use]
                        $vis fn $name(self) -> <$ty as $crate::Field>::View<'a> {
                            <$ty as $crate::Field>::get(self.0, const { PLACES[Number::$name as usize] })
                        }
                    )+
                }

                #[allow(dead_code, reason = "not every program uses all of them")]
                impl $view<'_> {
                    $(
                        #[doc = "Sets the column `" $name "` of the row in `editor`."]
                        #[inline]
                        $vis fn [<set_ $name>](
                            editor: &mut $crate::RowEditor<'_>,
                            value: <$ty as $crate::Field>::View<'_>,
                        ) -> ::std::result::Result<(), $crate::RowError> {
                            let number = Number::$name as usize;
                            let column = editor.number_of(LAYOUT, number, stringify!($name))?;
                            <$ty as $crate::Field>::set(value, editor, column)
                        }
                    )+
                }
            };
        }
    };
}

#[cfg(test)]
#[path = "typed_tests.rs"]
mod tests;
