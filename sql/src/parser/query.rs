//! SELECT, VALUES, TABLE, WITH, set operations, FROM and its joins.

use super::Parser;
use super::ast::{
    Alias, Cte, Expr, ExprKind, Item, JoinKind, JoinOn, LockWait, Locking, Query, Select, SetExpr, SetOp,
    Statement, Strength, TableRef,
};
use super::lexer::Kind;
use crate::error::{Error, Result};
use crate::keywords::Category;

impl Parser<'_> {
    pub(super) fn with_statement(&mut self) -> Result<Statement> {
        let start = self.next;
        let with = self.with()?;
        if self.is_word("insert") {
            return self.insert(with);
        }
        if self.is_word("update") {
            return self.update(with);
        }
        if self.is_word("delete") {
            return self.delete(with);
        }
        self.refuse(&[("merge", "MERGE")])?;
        self.next = start;
        let query = self.query()?;
        Ok(self.query_statement(query))
    }

    fn with(&mut self) -> Result<Vec<Cte>> {
        if !self.word("with") {
            return Ok(Vec::new());
        }
        let recursive = self.word("recursive");
        self.list(|parser| {
            let begin = parser.at();
            let name = parser.name()?;
            let columns =
                if parser.kind() == &Kind::Sign(b'(') { parser.column_names()? } else { Vec::new() };
            parser.expect_word("as")?;
            let not = parser.word("not");
            let materialized = parser.word("materialized");
            if not && !materialized {
                return Err(parser.unexpected());
            }
            let at = parser.at();
            let query = parser.in_parentheses(|parser| {
                parser.refuse_change("a changing statement in WITH", at)?;
                parser.query()
            })?;
            parser.refuse(&[
                ("search", "SEARCH of a recursive query"),
                ("cycle", "CYCLE of a recursive query"),
            ])?;
            let columns = columns.into_iter().map(|(name, _)| name).collect();
            Ok(Cte { name, columns, recursive, materialized: materialized && !not, query, at: begin })
        })
    }

    pub(super) fn query(&mut self) -> Result<Query> {
        self.deeper(|parser| {
            let at = parser.at();
            let with = parser.with()?;
            if !with.is_empty() {
                parser.refuse_change("a changing statement in WITH", at)?;
            }
            let body = parser.set_expr(0)?;
            let mut query =
                Query { with, body, order: Vec::new(), limit: None, offset: None, locks: Vec::new(), at };
            if parser.words(&["order", "by"]) {
                query.order = parser.order_items()?;
            }
            parser.limits(&mut query)?;
            Ok(query)
        })
    }

    /// Refuses a statement that changes rows, where a query is wanted.
    pub(super) fn refuse_change(&self, what: &str, at: u32) -> Result<()> {
        let changes = self.is_one_of(&["insert", "update", "delete", "merge"]);
        if changes { Err(Error::unsupported(what).at(at)) } else { Ok(()) }
    }

    fn limits(&mut self, query: &mut Query) -> Result<()> {
        loop {
            if self.word("limit") {
                query.limit = if self.word("all") { None } else { Some(self.expr()?) };
            } else if self.word("offset") {
                query.offset = Some(self.expr()?);
                let _ = self.word("row") || self.word("rows");
            } else if self.word("fetch") {
                if !self.word("first") {
                    self.expect_word("next")?;
                }
                let at = self.at();
                query.limit = Some(if self.is_one_of(&["row", "rows"]) {
                    Expr { at, depth: 1, kind: ExprKind::Int(1) }
                } else {
                    self.expr()?
                });
                let _ = self.word("row") || self.word("rows");
                if self.is_word("with") && self.is_word_ahead(1, "ties") {
                    return Err(Error::unsupported("FETCH … WITH TIES").at(self.at()));
                }
                self.expect_word("only")?;
            } else if self.is_word("for") {
                query.locks.extend(self.locking()?);
            } else {
                return Ok(());
            }
        }
    }

    fn locking(&mut self) -> Result<Option<Locking>> {
        self.expect_word("for")?;
        if self.words(&["read", "only"]) {
            return Ok(None);
        }
        let strength = if self.words(&["no", "key", "update"]) {
            Strength::NoKeyUpdate
        } else if self.words(&["key", "share"]) {
            Strength::KeyShare
        } else if self.word("update") {
            Strength::Update
        } else if self.word("share") {
            Strength::Share
        } else {
            return Err(self.unexpected());
        };
        let of = if self.word("of") { self.list(Self::object)? } else { Vec::new() };
        let wait = if self.word("nowait") {
            LockWait::NoWait
        } else if self.words(&["skip", "locked"]) {
            LockWait::SkipLocked
        } else {
            LockWait::Wait
        };
        Ok(Some(Locking { strength, of, wait }))
    }

    /// Set operations; INTERSECT binds more tightly.
    fn set_expr(&mut self, least: u8) -> Result<SetExpr> {
        self.deeper(|parser| {
            let mut left = parser.set_operand()?;
            loop {
                let (op, mine) = if parser.is_word("union") {
                    (SetOp::Union, 1)
                } else if parser.is_word("except") {
                    (SetOp::Except, 1)
                } else if parser.is_word("intersect") {
                    (SetOp::Intersect, 2)
                } else {
                    return Ok(left);
                };
                if mine <= least {
                    return Ok(left);
                }
                parser.advance();
                let all = parser.word("all");
                if !all {
                    parser.word("distinct");
                }
                let right = parser.set_expr(mine)?;
                left = SetExpr::Op { op, all, left: Box::new(left), right: Box::new(right) };
                // A chain of set operations is as deep as it is long.
                parser.depth += 1;
                if parser.depth >= super::MAX_DEPTH {
                    return Err(super::too_deep().at(parser.at()));
                }
            }
        })
    }

    fn set_operand(&mut self) -> Result<SetExpr> {
        if self.kind() == &Kind::Sign(b'(') {
            let query = self.in_parentheses(Self::query)?;
            return Ok(SetExpr::Query(Box::new(query)));
        }
        if self.word("values") {
            let rows = self.list(|parser| parser.in_parentheses(Self::exprs))?;
            return Ok(SetExpr::Values(rows));
        }
        if self.is_word("table") {
            let at = self.at();
            self.advance();
            self.word("only");
            let name = self.object()?;
            let star = Expr { at, depth: 1, kind: ExprKind::Star(Vec::new()) };
            let select = Select {
                items: vec![Item { expr: star, alias: None }],
                from: vec![TableRef::Table { name, alias: Alias::default() }],
                ..Select::default()
            };
            return Ok(SetExpr::Select(Box::new(select)));
        }
        self.select()
    }

    fn select(&mut self) -> Result<SetExpr> {
        self.expect_word("select")?;
        let mut select = Select::default();
        if self.word("distinct") {
            let on = if self.word("on") { self.in_parentheses(Self::exprs)? } else { Vec::new() };
            select.distinct = Some(on);
        } else {
            self.word("all");
        }
        let ends = [
            "into",
            "from",
            "where",
            "group",
            "having",
            "order",
            "limit",
            "union",
            "except",
            "intersect",
            "offset",
            "fetch",
            "for",
            "window",
        ];
        if !matches!(self.kind(), Kind::End | Kind::Sign(b';' | b')')) && !self.is_one_of(&ends) {
            select.items = self.items()?;
        }
        if self.word("into") {
            if self.is_one_of(&["temporary", "temp", "unlogged"]) {
                return Err(Error::unsupported("SELECT INTO a temporary or unlogged table").at(self.at()));
            }
            self.word("table");
            select.into = Some(self.object()?);
        }
        if self.word("from") {
            select.from = self.list(Self::table_ref)?;
        }
        if self.word("where") {
            select.condition = Some(self.expr()?);
        }
        if self.words(&["group", "by"]) {
            let at = self.at();
            if !self.word("distinct") {
                self.word("all");
            }
            select.group = self.list(|parser| {
                let opens = parser.ahead(1) == &Kind::Sign(b'(');
                if parser.is_phrase("grouping sets") || opens && parser.is_one_of(&["rollup", "cube"]) {
                    return Err(Error::unsupported("GROUPING SETS, ROLLUP and CUBE").at(at));
                }
                if parser.kind() == &Kind::Sign(b'(') && parser.ahead(1) == &Kind::Sign(b')') {
                    return Err(Error::unsupported("GROUP BY ()").at(at));
                }
                parser.expr()
            })?;
        }
        if self.word("having") {
            select.having = Some(self.expr()?);
        }
        if self.word("window") {
            select.windows = self.named_windows()?;
        }
        Ok(SetExpr::Select(Box::new(select)))
    }

    /// A select list, or that of RETURNING.
    pub(super) fn items(&mut self) -> Result<Vec<Item>> {
        self.list(|parser| {
            let expr = parser.expr()?;
            let alias = if parser.word("as") {
                Some(parser.label()?)
            } else {
                match parser.kind() {
                    Kind::Quoted(_) => Some(parser.label()?),
                    Kind::Word(word) if word.is_label() => Some(parser.label()?),
                    _ => None,
                }
            };
            Ok(Item { expr, alias })
        })
    }

    pub(super) fn table_ref(&mut self) -> Result<TableRef> {
        self.deeper(|parser| {
            let mut left = parser.table_primary()?;
            loop {
                let natural = parser.word("natural");
                let kind = if parser.words(&["cross", "join"]) {
                    JoinKind::Cross
                } else if parser.word("join") || parser.words(&["inner", "join"]) {
                    JoinKind::Inner
                } else if let Some(kind) = parser.outer() {
                    parser.expect_word("join")?;
                    kind
                } else if natural {
                    return Err(parser.unexpected());
                } else {
                    return Ok(left);
                };
                // `a JOIN b JOIN c ON … ON …` nests to the right.
                let right = if natural || kind == JoinKind::Cross {
                    parser.table_primary()?
                } else {
                    parser.joined_right()?
                };
                let on = if natural {
                    JoinOn::Natural
                } else if kind == JoinKind::Cross {
                    JoinOn::None
                } else if parser.word("on") {
                    JoinOn::On(Box::new(parser.expr()?))
                } else if parser.word("using") {
                    let names = parser.column_names()?;
                    parser.refuse(&[("as", "an alias of the columns of USING")])?;
                    JoinOn::Using(names.into_iter().map(|(name, _)| name).collect())
                } else {
                    return Err(parser.unexpected());
                };
                left = TableRef::Join { kind, left: Box::new(left), right: Box::new(right), on };
                parser.depth += 1;
                if parser.depth >= super::MAX_DEPTH {
                    return Err(super::too_deep().at(parser.at()));
                }
            }
        })
    }

    fn outer(&mut self) -> Option<JoinKind> {
        let kinds = [("left", JoinKind::Left), ("right", JoinKind::Right), ("full", JoinKind::Full)];
        let (_, kind) = kinds.into_iter().find(|(word, _)| self.is_word(word))?;
        self.advance();
        self.word("outer");
        Some(kind)
    }

    fn joined_right(&mut self) -> Result<TableRef> {
        let right = self.table_primary()?;
        // Another join before this one's condition.
        if self.is_one_of(&["join", "inner", "left", "right", "full", "cross", "natural"]) {
            return Err(Error::unsupported("a join without parentheses inside of a join").at(self.at()));
        }
        Ok(right)
    }

    fn table_primary(&mut self) -> Result<TableRef> {
        let at = self.at();
        let lateral = self.word("lateral");
        if self.kind() == &Kind::Sign(b'(') {
            if self.is_query_at(1) {
                let query = Box::new(self.in_parentheses(Self::query)?);
                let alias = self.alias()?;
                return Ok(TableRef::Query { query, lateral, alias, at });
            }
            let inner = self.in_parentheses(Self::table_ref)?;
            let is_name = match self.kind() {
                Kind::Quoted(_) => true,
                Kind::Word(word) => word.is_no(Category::Reserved) && word.is_no(Category::NoColumn),
                _ => false,
            };
            if is_name || self.is_word("as") {
                return Err(Error::unsupported("an alias of a join").at(self.at()));
            }
            return Ok(inner);
        }
        if self.word("only") && self.sign(b'(') {
            let name = self.object()?;
            self.expect_sign(b')')?;
            return Ok(TableRef::Table { name, alias: self.alias()? });
        }
        self.refuse(&[
            ("rows from", "ROWS FROM"),
            ("xmltable", "XMLTABLE"),
            ("collation for", "COLLATION FOR"),
        ])?;
        let function = self.is_one_of(&[
            "current_date",
            "current_time",
            "current_timestamp",
            "localtime",
            "localtimestamp",
            "current_user",
            "session_user",
            "user",
            "current_role",
            "current_catalog",
            "current_schema",
        ]) || {
            let mut ahead = 1;
            while self.ahead(ahead) == &Kind::Sign(b'.') {
                ahead += 2;
            }
            self.ahead(ahead) == &Kind::Sign(b'(')
        };
        if function {
            let call = self.expr()?;
            let ordinality = self.is_word("with") && self.is_word_ahead(1, "ordinality");
            if ordinality {
                self.word("with");
                self.word("ordinality");
            }
            self.no_column_definitions()?;
            let alias = self.alias()?;
            return Ok(TableRef::Function { call, lateral, ordinality, alias });
        }
        let name = self.object()?;
        self.op("*");
        let alias = self.alias()?;
        if self.is_word("tablesample") {
            return Err(Error::unsupported("TABLESAMPLE").at(self.at()));
        }
        Ok(TableRef::Table { name, alias })
    }

    /// Refuses `AS [name] (column type, …)` behind a function.
    fn no_column_definitions(&self) -> Result<()> {
        let named = usize::from(self.is_word("as"));
        let opens = (named..named + 2).find(|ahead| self.ahead(*ahead) == &Kind::Sign(b'('));
        let Some(opens) = opens else { return Ok(()) };
        let is_alias = (0..opens).all(|ahead| matches!(self.ahead(ahead), Kind::Word(_) | Kind::Quoted(_)));
        let is_list = matches!(self.ahead(opens + 2), Kind::Sign(b',' | b')'));
        if is_alias && (!is_list || named == 1 && opens == 1) {
            return Err(Error::unsupported("definitions of columns of a function's rows").at(self.at()));
        }
        Ok(())
    }

    fn alias(&mut self) -> Result<Alias> {
        let mut alias = Alias::default();
        if self.word("as") {
            alias.name = Some(self.name()?);
        } else {
            alias.name = match self.kind() {
                Kind::Quoted(_) => Some(self.name()?),
                Kind::Word(word) if word.is_no(Category::Reserved) && word.is_no(Category::NoColumn) => {
                    Some(self.name()?)
                }
                _ => None,
            };
        }
        if alias.name.is_some() && self.kind() == &Kind::Sign(b'(') {
            let names = self.column_names()?;
            alias.columns = names.into_iter().map(|(name, _)| name).collect();
        }
        Ok(alias)
    }
}
