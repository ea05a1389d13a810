//! The kinds of rows of the hidden tables: what a definition of SQL says that the engine does not keep.
//!
//! Each kind is a type of its own; in the table it stands as JSON, so that a later version can add fields.

use serde::{Deserialize, Serialize};

/// What is kept of a column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ColumnRow {
    /// Type (its OID) and modifier, where the engine's type says less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ty: Option<(u32, i32)>,
    /// NOT NULL that the engine's schema does not know of.
    pub(crate) not_null: bool,
    /// What stands in place of the engine's default.
    pub(crate) default: DefaultRow,
    /// GENERATED AS IDENTITY; `true`: ALWAYS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<bool>,
}

/// The default of a column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum DefaultRow {
    /// The engine's, if it has one.
    #[default]
    Engine,
    /// None, whatever the engine has.
    Dropped,
    /// An expression, as it was written.
    Text(String),
}

/// A CHECK constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckRow {
    /// The condition, as it was written.
    pub(crate) condition: String,
}

/// What happens to children when the key of their parent goes or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ActionRow {
    NoAction,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

/// A FOREIGN KEY constraint, under the child's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ForeignRow {
    pub(crate) columns: Vec<String>,
    pub(crate) parent: String,
    pub(crate) parent_columns: Vec<String>,
    pub(crate) on_delete: ActionRow,
    pub(crate) on_update: ActionRow,
    pub(crate) deferrable: bool,
    pub(crate) deferred: bool,
}

/// A view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ViewRow {
    /// The query, with stars written out.
    pub(crate) query: String,
    /// Names of its columns.
    pub(crate) columns: Vec<String>,
    /// Tables and views that it reads.
    pub(crate) reads: Vec<String>,
    /// What names without a schema in the query mean, as far as that is not in `public`: as written, and full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) names: Vec<(String, String)>,
}

/// A schema. `public` has a row only when it was dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SchemaRow {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dropped: bool,
}

/// A unique index that is no constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UniqueIndexRow {}

/// A comment on a table, view, sequence or index (under its name), a column or a constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CommentRow {
    pub(crate) text: String,
}

/// A sequence's definition; its position stands beside it, in columns of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SequenceRow {
    /// OID of its type.
    pub(crate) ty: u32,
    pub(crate) start: i64,
    pub(crate) increment: i64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) cycle: bool,
    pub(crate) cache: i64,
    /// The column that it is dropped with.
    pub(crate) owner: Option<(String, String)>,
    /// It numbers an identity column.
    pub(crate) identity: bool,
}

/// Any of them but a sequence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
    Column(ColumnRow),
    Check(CheckRow),
    Foreign(ForeignRow),
    View(ViewRow),
    Comment(CommentRow),
    ColumnComment(CommentRow),
    ConstraintComment(CommentRow),
    UniqueIndex(UniqueIndexRow),
    Schema(SchemaRow),
}

/// What kind of object a row is about; its name stands in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Column,
    Check,
    Foreign,
    View,
    Comment,
    ColumnComment,
    ConstraintComment,
    UniqueIndex,
    Schema,
}

/// Kinds and their names in the table.
const KINDS: [(Kind, &str); 9] = [
    (Kind::Column, "column"),
    (Kind::Check, "check"),
    (Kind::Foreign, "foreign key"),
    (Kind::View, "view"),
    (Kind::Comment, "comment"),
    (Kind::ColumnComment, "column comment"),
    (Kind::ConstraintComment, "constraint comment"),
    (Kind::UniqueIndex, "unique index"),
    (Kind::Schema, "schema"),
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).expect("each kind has a name").1
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }
}

impl Object {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Column(_) => Kind::Column,
            Self::Check(_) => Kind::Check,
            Self::Foreign(_) => Kind::Foreign,
            Self::View(_) => Kind::View,
            Self::Comment(_) => Kind::Comment,
            Self::ColumnComment(_) => Kind::ColumnComment,
            Self::ConstraintComment(_) => Kind::ConstraintComment,
            Self::UniqueIndex(_) => Kind::UniqueIndex,
            Self::Schema(_) => Kind::Schema,
        }
    }

    /// The row as JSON.
    pub(crate) fn body(&self) -> String {
        let body = match self {
            Self::Column(row) => serde_json::to_string(row),
            Self::Check(row) => serde_json::to_string(row),
            Self::Foreign(row) => serde_json::to_string(row),
            Self::View(row) => serde_json::to_string(row),
            Self::UniqueIndex(row) => serde_json::to_string(row),
            Self::Schema(row) => serde_json::to_string(row),
            Self::Comment(row) | Self::ColumnComment(row) | Self::ConstraintComment(row) => {
                serde_json::to_string(row)
            }
        };
        body.expect("rows are made of texts and numbers, which JSON has")
    }

    /// Reads a row.
    pub(crate) fn read(kind: Kind, body: &str) -> Result<Self, serde_json::Error> {
        Ok(match kind {
            Kind::Column => Self::Column(serde_json::from_str(body)?),
            Kind::Check => Self::Check(serde_json::from_str(body)?),
            Kind::Foreign => Self::Foreign(serde_json::from_str(body)?),
            Kind::UniqueIndex => Self::UniqueIndex(serde_json::from_str(body)?),
            Kind::Schema => Self::Schema(serde_json::from_str(body)?),
            Kind::View => Self::View(serde_json::from_str(body)?),
            Kind::Comment => Self::Comment(serde_json::from_str(body)?),
            Kind::ColumnComment => Self::ColumnComment(serde_json::from_str(body)?),
            Kind::ConstraintComment => Self::ConstraintComment(serde_json::from_str(body)?),
        })
    }
}
