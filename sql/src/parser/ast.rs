//! What the parser makes of a text: statements as they are written, nothing looked up.
//!
//! Each node that an error can be about says where it stands (bytes from the beginning of the text).

/// Equal are expressions that are written alike, wherever they stand.
impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl PartialEq for TypeName {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.mods, self.array) == (&other.name, &other.mods, other.array)
    }
}

impl PartialEq for ObjectName {
    fn eq(&self, other: &Self) -> bool {
        (&self.schema, &self.name) == (&other.schema, &other.name)
    }
}

/// Sub-queries are never taken for the same.
impl PartialEq for Query {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

/// An expression. `depth` bounds how deep its tree is, so that those that walk it need no guard of their own.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) at: u32,
    pub(crate) depth: u32,
    pub(crate) kind: ExprKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExprKind {
    Null,
    Bool(bool),
    Int(i64),
    Number(String),
    Str(String),
    Param(u32),
    /// `DEFAULT` in the place of a value.
    Default,
    /// A column, or a whole row: one to three names.
    Column(Vec<String>),
    /// `*` or `t.*`.
    Star(Vec<String>),
    Unary(String, Box<Expr>),
    Binary(String, Box<Expr>, Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>, bool),
    /// `IS [NOT] TRUE`, `FALSE`, `UNKNOWN` (none).
    IsBool(Box<Expr>, Option<bool>, bool),
    IsDistinct(Box<Expr>, Box<Expr>, bool),
    In(Box<Expr>, Vec<Expr>, bool),
    InQuery(Box<Expr>, Box<Query>, bool),
    Between {
        arg: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        symmetric: bool,
        negated: bool,
    },
    /// `LIKE`, `ILIKE`, `SIMILAR TO`.
    Like {
        kind: Like,
        arg: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<Box<Expr>>,
        negated: bool,
    },
    Case {
        arg: Option<Box<Expr>>,
        whens: Vec<(Expr, Expr)>,
        other: Option<Box<Expr>>,
    },
    Call(Box<Call>),
    Cast(Box<Expr>, TypeName),
    Row(Vec<Expr>),
    Array(Vec<Expr>),
    /// `ARRAY(query)`.
    ArrayQuery(Box<Query>),
    /// `array[place]`.
    Subscript(Box<Expr>, Box<Expr>),
    /// A field of a row value.
    Field(Box<Expr>, String),
    Exists(Box<Query>),
    Scalar(Box<Query>),
    /// `= ANY (…)`, `> ALL (…)`.
    Quantified {
        op: String,
        all: bool,
        arg: Box<Expr>,
        of: Quantified,
    },
    Coalesce(Vec<Expr>),
    NullIf(Box<Expr>, Box<Expr>),
    /// `GREATEST` or, if not, `LEAST`.
    Extreme(bool, Vec<Expr>),
    Collate(Box<Expr>, Vec<String>),
    /// What is known and refused, with its name.
    Refused(&'static str),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Quantified {
    Query(Box<Query>),
    Array(Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Like {
    Exact,
    Folded,
    Similar,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: Vec<String>,
    pub(crate) args: Vec<Expr>,
    pub(crate) star: bool,
    pub(crate) distinct: bool,
    pub(crate) order: Vec<OrderItem>,
    pub(crate) filter: Option<Expr>,
    pub(crate) over: Option<Box<Over>>,
}

/// A window, as it is written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Over {
    /// The window that it takes over from.
    pub(crate) base: Option<String>,
    /// It stands in parentheses: not `OVER name`.
    pub(crate) written_out: bool,
    pub(crate) partition: Vec<Expr>,
    pub(crate) order: Vec<OrderItem>,
    pub(crate) range: Option<WindowRange>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WindowRange {
    /// ROWS; else RANGE.
    pub(crate) rows: bool,
    pub(crate) start: WindowBound,
    pub(crate) end: WindowBound,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WindowBound {
    First,
    Before(Expr),
    Current,
    Behind(Expr),
    Last,
}

#[derive(Clone, Debug)]
pub(crate) struct TypeName {
    pub(crate) at: u32,
    pub(crate) name: Vec<String>,
    pub(crate) mods: Vec<i64>,
    pub(crate) array: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OrderItem {
    pub(crate) expr: Expr,
    pub(crate) descending: bool,
    /// As PostgreSQL: nulls are greater than everything unless it is said otherwise.
    pub(crate) nulls_first: bool,
}

/// FOR UPDATE, FOR NO KEY UPDATE, FOR SHARE, FOR KEY SHARE.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Locking {
    pub(crate) strength: Strength,
    /// Which tables; none: all.
    pub(crate) of: Vec<ObjectName>,
    pub(crate) wait: LockWait,
}

/// How strong a lock is, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strength {
    KeyShare,
    Share,
    NoKeyUpdate,
    Update,
}

/// What is done about a row that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockWait {
    Wait,
    NoWait,
    SkipLocked,
}

#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) with: Vec<Cte>,
    pub(crate) body: SetExpr,
    pub(crate) order: Vec<OrderItem>,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
    /// FOR UPDATE and its like.
    pub(crate) locks: Vec<Locking>,
    pub(crate) at: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cte {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    /// It may name itself.
    pub(crate) recursive: bool,
    pub(crate) materialized: bool,
    pub(crate) query: Query,
    pub(crate) at: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SetExpr {
    Select(Box<Select>),
    Values(Vec<Vec<Expr>>),
    Query(Box<Query>),
    Op { op: SetOp, all: bool, left: Box<SetExpr>, right: Box<SetExpr> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetOp {
    Union,
    Intersect,
    Except,
}

#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Select {
    pub(crate) distinct: Option<Vec<Expr>>,
    pub(crate) items: Vec<Item>,
    pub(crate) from: Vec<TableRef>,
    pub(crate) condition: Option<Expr>,
    pub(crate) group: Vec<Expr>,
    pub(crate) having: Option<Expr>,
    pub(crate) windows: Vec<(String, Over)>,
    /// The table that the rows go into (`SELECT … INTO`).
    pub(crate) into: Option<ObjectName>,
}

/// An expression of a select list, with the name given to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) expr: Expr,
    pub(crate) alias: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Alias {
    pub(crate) name: Option<String>,
    pub(crate) columns: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TableRef {
    Table {
        name: ObjectName,
        alias: Alias,
    },
    Query {
        query: Box<Query>,
        lateral: bool,
        alias: Alias,
        at: u32,
    },
    /// With `ordinality`, the number of each row stands behind its columns.
    Function {
        call: Expr,
        lateral: bool,
        ordinality: bool,
        alias: Alias,
    },
    Join {
        kind: JoinKind,
        left: Box<TableRef>,
        right: Box<TableRef>,
        on: JoinOn,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    Cross,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JoinOn {
    None,
    Natural,
    Using(Vec<String>),
    On(Box<Expr>),
}

/// A name with its schema, if one is given.
#[derive(Clone, Debug)]
pub(crate) struct ObjectName {
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
    pub(crate) at: u32,
}

/// Columns and their places.
pub(crate) type Names = Vec<(String, u32)>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Insert {
    pub(crate) table: ObjectName,
    pub(crate) alias: Option<String>,
    pub(crate) columns: Names,
    /// None: `DEFAULT VALUES`.
    pub(crate) source: Option<Query>,
    pub(crate) overriding: Option<Overriding>,
    pub(crate) conflict: Option<Conflict>,
    pub(crate) returning: Vec<Item>,
    pub(crate) with: Vec<Cte>,
}

/// `OVERRIDING {SYSTEM | USER} VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overriding {
    System,
    User,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conflict {
    pub(crate) at: u32,
    pub(crate) columns: Names,
    pub(crate) constraint: Option<String>,
    /// None: `DO NOTHING`.
    pub(crate) update: Option<(Vec<Assignment>, Option<Expr>)>,
}

/// `(a, b) = …` or `a = …`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) columns: Names,
    pub(crate) value: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Update {
    pub(crate) table: ObjectName,
    pub(crate) alias: Option<String>,
    pub(crate) set: Vec<Assignment>,
    pub(crate) from: Vec<TableRef>,
    pub(crate) condition: Option<Expr>,
    pub(crate) returning: Vec<Item>,
    pub(crate) with: Vec<Cte>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delete {
    pub(crate) table: ObjectName,
    pub(crate) alias: Option<String>,
    pub(crate) using: Vec<TableRef>,
    pub(crate) condition: Option<Expr>,
    pub(crate) returning: Vec<Item>,
    pub(crate) with: Vec<Cte>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ColumnDef {
    pub(crate) name: String,
    pub(crate) at: u32,
    pub(crate) ty: TypeName,
    pub(crate) not_null: bool,
    pub(crate) default: Option<Written>,
    pub(crate) primary: bool,
    pub(crate) unique: bool,
    /// The name that is given to the key which the column is.
    pub(crate) key_name: Option<String>,
    pub(crate) identity: Option<IdentityDef>,
    pub(crate) checks: Vec<CheckDef>,
    pub(crate) references: Vec<ForeignDef>,
}

/// An expression, and the text that it was written as: what definitions keep.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    pub(crate) expr: Expr,
    pub(crate) text: String,
    /// Where the text begins in its statement.
    pub(crate) at: u32,
}

/// `GENERATED {ALWAYS | BY DEFAULT} AS IDENTITY (options)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IdentityDef {
    pub(crate) always: bool,
    pub(crate) options: SequenceOptions,
}

/// `CHECK (condition)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CheckDef {
    pub(crate) name: Option<String>,
    pub(crate) condition: Written,
    pub(crate) at: u32,
}

/// What happens to children when the key of their parent goes or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

/// `FOREIGN KEY (columns) REFERENCES parent (columns) …`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ForeignDef {
    pub(crate) name: Option<String>,
    pub(crate) columns: Names,
    pub(crate) parent: ObjectName,
    /// Empty: the parent's primary key.
    pub(crate) parent_columns: Names,
    pub(crate) on_delete: Action,
    pub(crate) on_update: Action,
    pub(crate) deferrable: bool,
    pub(crate) deferred: bool,
    pub(crate) at: u32,
}

/// What CREATE and ALTER SEQUENCE say; what they do not say is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SequenceOptions {
    pub(crate) ty: Option<TypeName>,
    pub(crate) start: Option<i64>,
    pub(crate) increment: Option<i64>,
    /// `NO MINVALUE` is a none within.
    pub(crate) min: Option<Option<i64>>,
    pub(crate) max: Option<Option<i64>>,
    pub(crate) cycle: Option<bool>,
    pub(crate) cache: Option<i64>,
    /// `RESTART`, with a value or without.
    pub(crate) restart: Option<Option<i64>>,
    /// `OWNED BY`: a table and its column; nothing within is `NONE`.
    pub(crate) owner: Option<Option<(ObjectName, String)>>,
}

/// What a comment is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Commented {
    Relation(&'static str, ObjectName),
    Column(ObjectName, String),
    Constraint(String, ObjectName),
    /// A database, a schema, a role: their comments are accepted and not kept.
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyDef {
    pub(crate) name: Option<String>,
    pub(crate) columns: Names,
    pub(crate) primary: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CreateTable {
    pub(crate) name: ObjectName,
    pub(crate) if_not_exists: bool,
    pub(crate) columns: Vec<ColumnDef>,
    pub(crate) keys: Vec<KeyDef>,
    pub(crate) checks: Vec<CheckDef>,
    pub(crate) foreign: Vec<ForeignDef>,
    pub(crate) options: Vec<StorageOption>,
    /// Tables whose columns it has, too.
    pub(crate) likes: Vec<LikeDef>,
}

/// `LIKE table [INCLUDING …]` in CREATE TABLE.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LikeDef {
    pub(crate) table: ObjectName,
    /// Columns of the table that is made which stand before.
    pub(crate) behind: usize,
    pub(crate) defaults: bool,
    pub(crate) identity: bool,
    pub(crate) constraints: bool,
    pub(crate) indexes: bool,
    pub(crate) comments: bool,
}

/// `CREATE TABLE … AS query`, or `SELECT … INTO table`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CreateTableAs {
    pub(crate) name: ObjectName,
    pub(crate) if_not_exists: bool,
    pub(crate) columns: Vec<String>,
    pub(crate) options: Vec<StorageOption>,
    pub(crate) query: Query,
    pub(crate) with_data: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CreateIndex {
    pub(crate) name: Option<String>,
    pub(crate) if_not_exists: bool,
    pub(crate) unique: bool,
    pub(crate) table: ObjectName,
    pub(crate) method: Option<(String, u32)>,
    /// Name, place, descending.
    pub(crate) columns: Vec<(String, u32, bool)>,
}

/// CREATE VIEW: the query, and its text from there on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CreateView {
    pub(crate) name: ObjectName,
    pub(crate) replace: bool,
    pub(crate) columns: Vec<String>,
    pub(crate) query: Query,
    pub(crate) text: String,
    /// Where the text begins.
    pub(crate) at: u32,
}

/// A change of a view.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ViewAction {
    RenameTo(String),
    RenameColumn {
        from: String,
        to: String,
    },
    /// `OWNER TO`: there is one owner.
    Nothing,
}

/// A storage parameter of a table: `space.name = value`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StorageOption {
    pub(crate) space: Option<String>,
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Alter {
    AddColumn {
        column: Box<ColumnDef>,
        if_not_exists: bool,
    },
    DropColumn {
        name: String,
        at: u32,
        if_exists: bool,
        cascade: bool,
    },
    RenameColumn {
        from: String,
        to: String,
        at: u32,
    },
    RenameTo(String),
    /// `SET (name = value, …)`
    SetParameters(Vec<StorageOption>),
    /// `RESET (name, …)`
    ResetParameters(Vec<StorageOption>),
    AddKey {
        key: KeyDef,
        at: u32,
    },
    AddCheck(CheckDef),
    AddForeign(ForeignDef),
    DropConstraint {
        name: String,
        if_exists: bool,
        cascade: bool,
    },
    SetDefault {
        column: String,
        at: u32,
        default: Option<Written>,
    },
    SetNotNull {
        column: String,
        at: u32,
        not_null: bool,
    },
    /// `ALTER COLUMN … TYPE … [USING …]`
    SetType {
        column: String,
        at: u32,
        ty: TypeName,
        using: Option<Written>,
    },
    /// `ADD GENERATED … AS IDENTITY`
    AddIdentity {
        column: String,
        identity: IdentityDef,
    },
    /// `SET GENERATED ALWAYS` or, if not, `BY DEFAULT`.
    /// VALIDATE CONSTRAINT
    Validate(String),
    SetIdentity {
        column: String,
        always: bool,
    },
    DropIdentity {
        column: String,
        if_exists: bool,
    },
    /// Accepted, since it changes nothing here: OWNER TO, VALIDATE CONSTRAINT of a valid one.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Modes {
    pub(crate) isolation: Option<String>,
    pub(crate) read_only: Option<bool>,
}

/// What SET SCHEMA moves, by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaOf {
    Table,
    View,
    Sequence,
}

/// What EXPLAIN shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExplainOptions {
    pub(crate) analyze: bool,
    /// The times of operators.
    pub(crate) timing: bool,
    /// The times of the whole; none: if it runs.
    pub(crate) summary: Option<bool>,
    pub(crate) json: bool,
}

impl Default for ExplainOptions {
    fn default() -> Self {
        Self { analyze: false, timing: true, summary: None, json: false }
    }
}

/// How COPY writes rows as text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CopyOptions {
    pub(crate) csv: bool,
    pub(crate) header: bool,
    pub(crate) delimiter: u8,
    pub(crate) null: String,
    pub(crate) quote: u8,
    pub(crate) escape: u8,
}

/// Where a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fetch {
    /// So many rows, all of which are passed; backward if it is negative.
    Forward(i64),
    /// To the row with this number, from the end if it is negative.
    Absolute(i64),
    Relative(i64),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Copy {
    In { table: ObjectName, columns: Names, options: CopyOptions },
    Out(Box<Query>, CopyOptions),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Statement {
    Query(Query),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    /// The name is the role's if none is given.
    CreateSchema {
        name: String,
        if_not_exists: bool,
    },
    DropSchema {
        names: Vec<String>,
        if_exists: bool,
        cascade: bool,
    },
    /// `ALTER {TABLE | VIEW | SEQUENCE} … SET SCHEMA`.
    SetSchema {
        kind: SchemaOf,
        name: ObjectName,
        if_exists: bool,
        schema: String,
    },
    CreateTable(Box<CreateTable>),
    CreateTableAs(Box<CreateTableAs>),
    CreateIndex(Box<CreateIndex>),
    DropTable {
        names: Vec<ObjectName>,
        if_exists: bool,
        cascade: bool,
    },
    CreateSequence {
        name: ObjectName,
        if_not_exists: bool,
        options: SequenceOptions,
    },
    AlterSequence {
        name: ObjectName,
        if_exists: bool,
        options: SequenceOptions,
        rename: Option<String>,
    },
    DropSequence {
        names: Vec<ObjectName>,
        if_exists: bool,
        cascade: bool,
    },
    CreateView(Box<CreateView>),
    DropView {
        names: Vec<ObjectName>,
        if_exists: bool,
        cascade: bool,
    },
    Comment {
        about: Commented,
        text: Option<String>,
    },
    /// SQL's own PREPARE: a name, types as far as they are given, the statement's text.
    Prepare {
        name: String,
        types: Vec<TypeName>,
        statement: String,
        /// Characters before the statement.
        before: usize,
    },
    Execute {
        name: String,
        args: Vec<Expr>,
    },
    /// `SET CONSTRAINTS`; no names are ALL.
    SetConstraints {
        names: Vec<ObjectName>,
        deferred: bool,
    },
    Explain(Box<Statement>, ExplainOptions),
    /// `LOCK TABLE … IN ACCESS SHARE MODE`.
    LockShared(Vec<ObjectName>),
    DropIndex {
        names: Vec<ObjectName>,
        if_exists: bool,
    },
    AlterTable {
        name: ObjectName,
        if_exists: bool,
        actions: Vec<Alter>,
    },
    AlterIndex,
    AlterView {
        name: ObjectName,
        if_exists: bool,
        action: ViewAction,
    },
    Copy(Copy),
    Declare {
        name: String,
        hold: bool,
        /// NO SCROLL: its rows are shown once.
        forward: bool,
        query: Box<Query>,
    },
    Fetch {
        name: String,
        direction: Fetch,
        moving: bool,
    },
    /// None: all cursors.
    Close(Option<String>),
    /// Forgets a prepared statement, or all.
    Deallocate(Option<String>),
    /// Forgets what the session has kept.
    Discard,
    /// Forgets the values that the session got from sequences.
    DiscardSequences,
    Truncate {
        names: Vec<ObjectName>,
        restart: bool,
        cascade: bool,
    },
    Begin(Modes),
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    SetTransaction(Modes),
    /// None: to its default.
    Set {
        local: bool,
        name: String,
        value: Option<Vec<String>>,
    },
    Show(String),
    Reset(Option<String>),
    /// Accepted and nothing done; the tag.
    Nothing(&'static str),
    /// Known and refused; the name.
    Refused(String),
}

impl Statement {
    /// The name of a definition, as command tags and messages have it.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::CreateSchema { .. } => "CREATE SCHEMA",
            Self::DropSchema { .. } => "DROP SCHEMA",
            Self::SetSchema { kind: SchemaOf::Table, .. } => "ALTER TABLE",
            Self::SetSchema { kind: SchemaOf::View, .. } => "ALTER VIEW",
            Self::SetSchema { kind: SchemaOf::Sequence, .. } | Self::AlterSequence { .. } => "ALTER SEQUENCE",
            Self::CreateTable(_) => "CREATE TABLE",
            Self::CreateTableAs(_) => "CREATE TABLE AS",
            Self::CreateIndex(_) => "CREATE INDEX",
            Self::DropTable { .. } => "DROP TABLE",
            Self::CreateSequence { .. } => "CREATE SEQUENCE",
            Self::DropSequence { .. } => "DROP SEQUENCE",
            Self::CreateView(_) => "CREATE VIEW",
            Self::DropView { .. } => "DROP VIEW",
            Self::Comment { .. } => "COMMENT",
            Self::DropIndex { .. } => "DROP INDEX",
            Self::AlterTable { .. } => "ALTER TABLE",
            Self::AlterIndex => "ALTER INDEX",
            Self::AlterView { .. } => "ALTER VIEW",
            Self::Truncate { .. } => "TRUNCATE TABLE",
            _ => "this statement",
        }
    }
}
