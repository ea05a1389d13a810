//! The functions by which types are read from text, of which catalogs show OIDs and names.

use crate::types::Type;

/// Functions that read types from text: OID and name, by the type's name.
const INPUT: &[(&str, i64, &str)] = &[
    ("bool", 1242, "boolin"),
    ("bytea", 1244, "byteain"),
    ("char", 1245, "charin"),
    ("name", 34, "namein"),
    ("int8", 460, "int8in"),
    ("int2", 38, "int2in"),
    ("int2vector", 40, "int2vectorin"),
    ("int4", 42, "int4in"),
    ("regproc", 44, "regprocin"),
    ("text", 46, "textin"),
    ("oid", 1798, "oidin"),
    ("oidvector", 54, "oidvectorin"),
    ("json", 321, "json_in"),
    ("float4", 200, "float4in"),
    ("float8", 214, "float8in"),
    ("unknown", 109, "unknownin"),
    ("bpchar", 1044, "bpcharin"),
    ("varchar", 1046, "varcharin"),
    ("date", 1084, "date_in"),
    ("time", 1143, "time_in"),
    ("timestamp", 1312, "timestamp_in"),
    ("timestamptz", 1150, "timestamptz_in"),
    ("interval", 1160, "interval_in"),
    ("numeric", 1701, "numeric_in"),
    ("regclass", 2218, "regclassin"),
    ("regtype", 2220, "regtypein"),
    ("regnamespace", 4084, "regnamespacein"),
    ("uuid", 2952, "uuid_in"),
    ("jsonb", 3806, "jsonb_in"),
    ("record", 2290, "record_in"),
    ("void", 2298, "void_in"),
];

const ARRAY_IN: (i64, &str) = (750, "array_in");

/// OIDs and names of the functions that types are read with.
pub(crate) fn functions_by_oid() -> impl Iterator<Item = (i64, &'static str)> {
    INPUT.iter().map(|(_, oid, name)| (*oid, *name)).chain([ARRAY_IN])
}

/// The OID of the function that reads a type from text.
pub(crate) fn input_of(ty: Type) -> i64 {
    INPUT.iter().find(|(name, ..)| *name == ty.name()).map_or(ARRAY_IN.0, |(_, oid, _)| *oid)
}
