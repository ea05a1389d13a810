//! Types of SQL: names, PostgreSQL's OIDs, categories, modifiers; values and their text form.

mod abbreviations;
pub(crate) mod array;
mod binary;
mod column;
pub(crate) mod datetime;
mod datum;
pub(crate) mod interval;
pub(crate) mod json;
pub(crate) mod numeric;
pub(crate) mod order_bytes;
mod record;
pub(crate) mod stored;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub(crate) mod zone;

pub use column::Column;
pub use datum::Datum;
pub(crate) use datum::{span, without_blanks};
pub use numeric::Numeric;
pub use record::Record;
pub(crate) use record::Shape;
pub use zone::{Local, Zone};

/// A type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// `boolean`
    Bool,
    /// `smallint`
    Int2,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `real`
    Float4,
    /// `double precision`
    Float8,
    /// `numeric`
    Numeric,
    /// `text`
    Text,
    /// `character varying`
    Varchar,
    /// `character`
    BpChar,
    /// `name`: the type of names in system catalogs
    Name,
    /// `bytea`
    Bytea,
    /// `date`
    Date,
    /// `time without time zone`
    Time,
    /// `timestamp without time zone`
    Timestamp,
    /// `timestamp with time zone`
    TimestampTz,
    /// `interval`
    Interval,
    /// `uuid`
    Uuid,
    /// `oid`: the number of a thing in the system catalogs
    Oid,
    /// `"char"`: one letter, in system catalogs
    Char,
    /// A literal or parameter whose type nothing has said yet.
    Unknown,
    /// A row value.
    Record,
    /// No value.
    Void,
    /// `boolean[]`
    BoolArray,
    /// `smallint[]`
    Int2Array,
    /// `integer[]`
    Int4Array,
    /// `bigint[]`
    Int8Array,
    /// `real[]`
    Float4Array,
    /// `double precision[]`
    Float8Array,
    /// `numeric[]`
    NumericArray,
    /// `text[]`
    TextArray,
    /// `character varying[]`
    VarcharArray,
    /// `character[]`
    BpCharArray,
    /// `name[]`
    NameArray,
    /// `bytea[]`
    ByteaArray,
    /// `date[]`
    DateArray,
    /// `time without time zone[]`
    TimeArray,
    /// `timestamp without time zone[]`
    TimestampArray,
    /// `timestamp with time zone[]`
    TimestampTzArray,
    /// `interval[]`
    IntervalArray,
    /// `uuid[]`
    UuidArray,
    /// `oid[]`
    OidArray,
    /// `json`: a text, kept as it was written
    Json,
    /// `jsonb`: a text in the one form that PostgreSQL prints
    Jsonb,
    /// `json[]`
    JsonArray,
    /// `jsonb[]`
    JsonbArray,
    /// `int2vector`: numbers of columns, in system catalogs
    Int2Vector,
    /// `oidvector`: OIDs, in system catalogs
    OidVector,
    /// `regclass`: the OID of a relation, shown by name
    Regclass,
    /// `regtype`: the OID of a type, shown by name
    Regtype,
    /// `regnamespace`: the OID of a schema, shown by name
    Regnamespace,
    /// `regproc`: the OID of a function
    Regproc,
    /// `record[]`
    RecordArray,
}

/// What a type is to the resolution of functions and operators (`typcategory`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    Boolean,
    Number,
    String,
    DateTime,
    TimeSpan,
    User,
    Internal,
    Unknown,
    Pseudo,
    Array,
}

/// Type, OID, name in `pg_type`, name in SQL, category, whether it is preferred in its category, bytes (`typlen`).
type Row = (Type, u32, &'static str, &'static str, Category, bool, i16);

const TYPES: &[Row] = &[
    (Type::Bool, 16, "bool", "boolean", Category::Boolean, true, 1),
    (Type::Int2, 21, "int2", "smallint", Category::Number, false, 2),
    (Type::Int4, 23, "int4", "integer", Category::Number, false, 4),
    (Type::Int8, 20, "int8", "bigint", Category::Number, false, 8),
    (Type::Float4, 700, "float4", "real", Category::Number, false, 4),
    (Type::Float8, 701, "float8", "double precision", Category::Number, true, 8),
    (Type::Numeric, 1700, "numeric", "numeric", Category::Number, false, -1),
    (Type::Text, 25, "text", "text", Category::String, true, -1),
    (Type::Varchar, 1043, "varchar", "character varying", Category::String, false, -1),
    (Type::BpChar, 1042, "bpchar", "character", Category::String, false, -1),
    (Type::Name, 19, "name", "name", Category::String, false, 64),
    (Type::Bytea, 17, "bytea", "bytea", Category::User, false, -1),
    (Type::Date, 1082, "date", "date", Category::DateTime, false, 4),
    (Type::Time, 1083, "time", "time without time zone", Category::DateTime, false, 8),
    (Type::Timestamp, 1114, "timestamp", "timestamp without time zone", Category::DateTime, false, 8),
    (Type::TimestampTz, 1184, "timestamptz", "timestamp with time zone", Category::DateTime, true, 8),
    (Type::Interval, 1186, "interval", "interval", Category::TimeSpan, true, 16),
    (Type::Uuid, 2950, "uuid", "uuid", Category::User, false, 16),
    (Type::Oid, 26, "oid", "oid", Category::Number, true, 4),
    (Type::Char, 18, "char", "\"char\"", Category::Internal, false, 1),
    (Type::Unknown, 705, "unknown", "unknown", Category::Unknown, false, -2),
    (Type::Record, 2249, "record", "record", Category::Pseudo, false, -1),
    (Type::Void, 2278, "void", "void", Category::Pseudo, false, 4),
    (Type::BoolArray, 1000, "_bool", "boolean[]", Category::Array, false, -1),
    (Type::Int2Array, 1005, "_int2", "smallint[]", Category::Array, false, -1),
    (Type::Int4Array, 1007, "_int4", "integer[]", Category::Array, false, -1),
    (Type::Int8Array, 1016, "_int8", "bigint[]", Category::Array, false, -1),
    (Type::Float4Array, 1021, "_float4", "real[]", Category::Array, false, -1),
    (Type::Float8Array, 1022, "_float8", "double precision[]", Category::Array, false, -1),
    (Type::NumericArray, 1231, "_numeric", "numeric[]", Category::Array, false, -1),
    (Type::TextArray, 1009, "_text", "text[]", Category::Array, false, -1),
    (Type::VarcharArray, 1015, "_varchar", "character varying[]", Category::Array, false, -1),
    (Type::BpCharArray, 1014, "_bpchar", "character[]", Category::Array, false, -1),
    (Type::NameArray, 1003, "_name", "name[]", Category::Array, false, -1),
    (Type::ByteaArray, 1001, "_bytea", "bytea[]", Category::Array, false, -1),
    (Type::DateArray, 1182, "_date", "date[]", Category::Array, false, -1),
    (Type::TimeArray, 1183, "_time", "time without time zone[]", Category::Array, false, -1),
    (Type::TimestampArray, 1115, "_timestamp", "timestamp without time zone[]", Category::Array, false, -1),
    (Type::TimestampTzArray, 1185, "_timestamptz", "timestamp with time zone[]", Category::Array, false, -1),
    (Type::IntervalArray, 1187, "_interval", "interval[]", Category::Array, false, -1),
    (Type::UuidArray, 2951, "_uuid", "uuid[]", Category::Array, false, -1),
    (Type::OidArray, 1028, "_oid", "oid[]", Category::Array, false, -1),
    (Type::Json, 114, "json", "json", Category::User, false, -1),
    (Type::Jsonb, 3802, "jsonb", "jsonb", Category::User, false, -1),
    (Type::JsonArray, 199, "_json", "json[]", Category::Array, false, -1),
    (Type::JsonbArray, 3807, "_jsonb", "jsonb[]", Category::Array, false, -1),
    (Type::Int2Vector, 22, "int2vector", "int2vector", Category::Array, false, -1),
    (Type::OidVector, 30, "oidvector", "oidvector", Category::Array, false, -1),
    (Type::Regclass, 2205, "regclass", "regclass", Category::Number, true, 4),
    (Type::Regtype, 2206, "regtype", "regtype", Category::Number, true, 4),
    (Type::Regnamespace, 4089, "regnamespace", "regnamespace", Category::Number, true, 4),
    (Type::Regproc, 24, "regproc", "regproc", Category::Number, false, 4),
    (Type::RecordArray, 2287, "_record", "record[]", Category::Pseudo, false, -1),
];

/// Types of elements, and of arrays of them.
const ARRAYS: &[(Type, Type)] = &[
    (Type::Bool, Type::BoolArray),
    (Type::Int2, Type::Int2Array),
    (Type::Int4, Type::Int4Array),
    (Type::Int8, Type::Int8Array),
    (Type::Float4, Type::Float4Array),
    (Type::Float8, Type::Float8Array),
    (Type::Numeric, Type::NumericArray),
    (Type::Text, Type::TextArray),
    (Type::Varchar, Type::VarcharArray),
    (Type::BpChar, Type::BpCharArray),
    (Type::Name, Type::NameArray),
    (Type::Bytea, Type::ByteaArray),
    (Type::Date, Type::DateArray),
    (Type::Time, Type::TimeArray),
    (Type::Timestamp, Type::TimestampArray),
    (Type::TimestampTz, Type::TimestampTzArray),
    (Type::Interval, Type::IntervalArray),
    (Type::Uuid, Type::UuidArray),
    (Type::Oid, Type::OidArray),
    (Type::Json, Type::JsonArray),
    (Type::Jsonb, Type::JsonbArray),
    (Type::Record, Type::RecordArray),
    // Found from the array only: what is made of elements is an ordinary array.
    (Type::Int2, Type::Int2Vector),
    (Type::Oid, Type::OidVector),
];

/// Other names of types.
const ALIASES: &[(&str, Type)] = &[
    ("boolean", Type::Bool),
    ("smallint", Type::Int2),
    ("int", Type::Int4),
    ("integer", Type::Int4),
    ("bigint", Type::Int8),
    ("real", Type::Float4),
    ("decimal", Type::Numeric),
    ("dec", Type::Numeric),
    ("float", Type::Float8),
];

impl Type {
    fn row(self) -> &'static Row {
        &TYPES[self as usize]
    }

    /// Its OID in PostgreSQL.
    #[must_use]
    pub fn oid(self) -> u32 {
        self.row().1
    }

    /// Its name in `pg_type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Its name in SQL and in messages.
    #[must_use]
    pub fn sql_name(self) -> &'static str {
        self.row().3
    }

    /// Bytes of its values in PostgreSQL; -1: of any length, -2: a C string.
    #[must_use]
    pub fn length(self) -> i16 {
        self.row().6
    }

    pub(crate) fn category(self) -> Category {
        self.row().4
    }

    pub(crate) fn is_preferred(self) -> bool {
        self.row().5
    }

    /// The type with this OID.
    #[must_use]
    pub fn from_oid(oid: u32) -> Option<Self> {
        TYPES.iter().find(|row| row.1 == oid).map(|row| row.0)
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let named = TYPES.iter().find(|row| row.2 == name).map(|row| row.0);
        named.or_else(|| ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, ty)| *ty))
    }

    /// All types.
    pub(crate) fn all() -> impl Iterator<Item = Type> {
        TYPES.iter().map(|row| row.0)
    }

    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        TYPES.iter().map(|row| row.2).chain(ALIASES.iter().map(|(name, _)| *name))
    }

    /// The type of an array's elements; none if it is no array.
    #[must_use]
    pub fn element(self) -> Option<Type> {
        ARRAYS.iter().find(|(_, array)| *array == self).map(|(element, _)| *element)
    }

    /// The type of arrays of this type.
    #[must_use]
    pub fn array(self) -> Option<Type> {
        ARRAYS.iter().find(|(element, _)| *element == self).map(|(_, array)| *array)
    }

    pub(crate) fn is_string(self) -> bool {
        self.category() == Category::String
    }

    /// Is it `json` or `jsonb`?
    pub(crate) fn is_json(self) -> bool {
        matches!(self, Type::Json | Type::Jsonb)
    }

    /// Is it an OID that is shown by a name?
    pub(crate) fn is_registered(self) -> bool {
        matches!(self, Type::Regclass | Type::Regtype | Type::Regnamespace | Type::Regproc)
    }

    /// May its values be times that each zone shows in its own way?
    pub(crate) fn shows_zone(self) -> bool {
        matches!(self, Type::TimestampTz | Type::TimestampTzArray | Type::Record | Type::RecordArray)
    }

    pub(crate) fn is_integer(self) -> bool {
        matches!(self, Type::Int2 | Type::Int4 | Type::Int8)
    }
}

/// The modifier of a type that has none.
pub(crate) const NO_MOD: i32 = -1;

/// The modifier of `numeric(precision, scale)`, as PostgreSQL packs it.
pub(crate) fn numeric_mod(precision: i32, scale: i32) -> i32 {
    ((precision << 16) | (scale & 0x7ff)) + 4
}

/// Precision and scale in a modifier of `numeric`.
pub(crate) fn numeric_parts(modifier: i32) -> Option<(i32, i32)> {
    let packed = modifier - 4;
    // The scale has 11 bits, with a sign.
    (modifier >= 4).then_some(((packed >> 16) & 0xffff, ((packed & 0x7ff) ^ 1024) - 1024))
}

/// A type with its modifier, as messages and `format_type` write it.
pub(crate) fn display(ty: Type, modifier: i32) -> String {
    match ty {
        Type::Numeric => match numeric_parts(modifier) {
            Some((precision, scale)) => format!("numeric({precision},{scale})"),
            None => "numeric".to_owned(),
        },
        Type::Varchar | Type::BpChar if modifier >= 4 => format!("{}({})", ty.sql_name(), modifier - 4),
        Type::Time | Type::Timestamp | Type::TimestampTz if modifier >= 0 => {
            let (head, tail) = ty.sql_name().split_once(' ').unwrap_or((ty.sql_name(), ""));
            format!("{head}({modifier}) {tail}")
        }
        _ => ty.sql_name().to_owned(),
    }
}
