//! Expressions, by precedence climbing over PostgreSQL's levels (`gram.y`, its `%left` lines), and type names.

use super::ast::{Call, Expr, ExprKind, Like, OrderItem, Quantified, TypeName};
use super::lexer::Kind;
use super::{MAX_DEPTH, Parser, too_deep};
use crate::error::{Error, Result};
use crate::keywords::Category;

/// How tightly operators bind, weakest first.
mod level {
    pub(super) const OR: u8 = 1;
    pub(super) const AND: u8 = 2;
    pub(super) const NOT: u8 = 3;
    pub(super) const IS: u8 = 4;
    pub(super) const COMPARE: u8 = 5;
    pub(super) const BETWEEN: u8 = 6;
    pub(super) const OTHER: u8 = 7;
    pub(super) const ADD: u8 = 8;
    pub(super) const MULTIPLY: u8 = 9;
    pub(super) const POWER: u8 = 10;
    pub(super) const AT: u8 = 11;
    pub(super) const COLLATE: u8 = 12;
    pub(super) const SIGN: u8 = 13;
}

fn operator_level(op: &str) -> u8 {
    match op {
        "<" | ">" | "=" | "<=" | ">=" | "<>" => level::COMPARE,
        "+" | "-" => level::ADD,
        "*" | "/" | "%" => level::MULTIPLY,
        "^" => level::POWER,
        _ => level::OTHER,
    }
}

/// The depth of a node is one more than that of its deepest child.
fn node(at: u32, kind: ExprKind, children: impl IntoIterator<Item = u32>) -> Result<Expr> {
    let depth = 1 + children.into_iter().max().unwrap_or(0);
    if depth > MAX_DEPTH * 4 { Err(too_deep().at(at)) } else { Ok(Expr { at, depth, kind }) }
}

fn leaf(at: u32, kind: ExprKind) -> Expr {
    Expr { at, depth: 1, kind }
}

fn binary(at: u32, op: &str, left: Expr, right: Expr) -> Result<Expr> {
    let depths = [left.depth, right.depth];
    node(at, ExprKind::Binary(op.to_owned(), Box::new(left), Box::new(right)), depths)
}

fn call(at: u32, name: &str, args: Vec<Expr>) -> Result<Expr> {
    let depths: Vec<u32> = args.iter().map(|arg| arg.depth).collect();
    let name = vec!["pg_catalog".to_owned(), name.to_owned()];
    let call = Call { name, args, star: false, distinct: false, order: Vec::new(), filter: None, over: None };
    node(at, ExprKind::Call(Box::new(call)), depths)
}

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Result<Expr> {
        self.above(0)
    }

    pub(super) fn exprs(&mut self) -> Result<Vec<Expr>> {
        self.list(Self::expr)
    }

    /// An expression of operators that bind more tightly than `least`.
    fn above(&mut self, least: u8) -> Result<Expr> {
        self.deeper(|parser| {
            let mut left = parser.prefix()?;
            while let Some(joined) = parser.infix(&mut left, least)? {
                left = joined;
            }
            Ok(left)
        })
    }

    fn prefix(&mut self) -> Result<Expr> {
        let at = self.at();
        match self.kind().clone() {
            Kind::Word(word) if word.is("not") => {
                self.advance();
                let arg = self.above(level::NOT - 1)?;
                let depth = arg.depth;
                node(at, ExprKind::Not(Box::new(arg)), [depth])
            }
            Kind::Op("-") => {
                self.advance();
                let arg = self.above(level::SIGN)?;
                Ok(match arg.kind {
                    ExprKind::Int(number) => leaf(at, ExprKind::Int(-number)),
                    ExprKind::Number(number) => leaf(at, ExprKind::Number(negated(&number))),
                    _ => {
                        let depth = arg.depth;
                        node(at, ExprKind::Unary("-".to_owned(), Box::new(arg)), [depth])?
                    }
                })
            }
            Kind::Op("+") => {
                self.advance();
                let arg = self.above(level::SIGN)?;
                let depth = arg.depth;
                node(at, ExprKind::Unary("+".to_owned(), Box::new(arg)), [depth])
            }
            Kind::Op(op) if op != "*" => {
                self.advance();
                let arg = self.above(level::OTHER)?;
                let depth = arg.depth;
                node(at, ExprKind::Unary(op.to_owned(), Box::new(arg)), [depth])
            }
            Kind::Word(word) if word.is("operator") && self.ahead(1) == &Kind::Sign(b'(') => {
                let op = self.qualified_operator()?;
                let arg = self.above(level::OTHER)?;
                let depth = arg.depth;
                node(at, ExprKind::Unary(op, Box::new(arg)), [depth])
            }
            _ => {
                let primary = self.primary()?;
                self.postfix(primary)
            }
        }
    }

    fn postfix(&mut self, mut expr: Expr) -> Result<Expr> {
        loop {
            let at = self.at();
            match self.kind() {
                Kind::Cast => {
                    self.advance();
                    let ty = self.type_name()?;
                    let depth = expr.depth;
                    expr = node(at, ExprKind::Cast(Box::new(expr), ty), [depth])?;
                }
                Kind::Sign(b'[') => {
                    self.advance();
                    if self.kind() == &Kind::Sign(b':') {
                        return Err(Error::unsupported("a slice of an array").at(at));
                    }
                    let place = self.expr()?;
                    if self.kind() != &Kind::Sign(b']') {
                        return Err(Error::unsupported("a slice of an array").at(at));
                    }
                    self.expect_sign(b']')?;
                    let depths = [expr.depth, place.depth];
                    expr = node(at, ExprKind::Subscript(Box::new(expr), Box::new(place)), depths)?;
                }
                // Names take their own dots: this one is behind parentheses.
                Kind::Sign(b'.') => {
                    self.advance();
                    if matches!(self.kind(), Kind::Op("*")) {
                        return Err(Error::unsupported("the expansion of a row value").at(at));
                    }
                    let field = self.label()?;
                    let depth = expr.depth;
                    expr = node(at, ExprKind::Field(Box::new(expr), field), [depth])?;
                }
                _ => return Ok(expr),
            }
        }
    }

    /// `left` with the next operator and what stands behind it, if that binds more tightly than `least`.
    fn infix(&mut self, left: &mut Expr, least: u8) -> Result<Option<Expr>> {
        let at = self.at();
        let take = |left: &mut Expr| std::mem::replace(left, leaf(at, ExprKind::Null));
        match self.kind().clone() {
            Kind::Op(op) => {
                let mine = operator_level(op);
                if mine <= least {
                    return Ok(None);
                }
                self.advance();
                self.operation(at, op, mine, take(left)).map(Some)
            }
            Kind::Word(word) => {
                let mine = match word.keyword() {
                    "or" => level::OR,
                    "and" => level::AND,
                    "is" | "isnull" | "notnull" => level::IS,
                    "between" | "in" | "like" | "ilike" => level::BETWEEN,
                    // Within SUBSTRING it stands without TO.
                    "similar" if self.is_word_ahead(1, "to") => level::BETWEEN,
                    "not" => level::BETWEEN,
                    "at" => level::AT,
                    "collate" => level::COLLATE,
                    "operator" if self.ahead(1) == &Kind::Sign(b'(') => level::OTHER,
                    "overlaps" => return Err(Error::unsupported("OVERLAPS").at(at)),
                    _ => return Ok(None),
                };
                if mine <= least {
                    return Ok(None);
                }
                if word.is("not")
                    && !["between", "in", "like", "ilike", "similar"]
                        .iter()
                        .any(|next| self.is_word_ahead(1, next))
                {
                    return Ok(None);
                }
                if word.is("at") && !self.is_word_ahead(1, "time") {
                    return Ok(None);
                }
                let left = take(left);
                self.word_operation(at, word.keyword(), left).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn operation(&mut self, at: u32, op: &str, mine: u8, left: Expr) -> Result<Expr> {
        let all = self.is_word("all");
        if (all || self.is_one_of(&["any", "some"])) && self.ahead(1) == &Kind::Sign(b'(') {
            self.advance();
            self.advance();
            let (of, depth) = if self.begins_query() {
                (Quantified::Query(Box::new(self.query()?)), 1)
            } else {
                let array = self.expr()?;
                let depth = array.depth;
                (Quantified::Array(Box::new(array)), depth)
            };
            self.expect_sign(b')')?;
            let depths = [left.depth, depth];
            let kind = ExprKind::Quantified { op: op.to_owned(), all, arg: Box::new(left), of };
            return node(at, kind, depths);
        }
        let right = self.above(mine)?;
        let compared = binary(at, op, left, right)?;
        // Comparisons do not chain.
        if mine == level::COMPARE && matches!(self.kind(), Kind::Op(op) if operator_level(op) == mine) {
            return Err(self.unexpected());
        }
        Ok(compared)
    }

    fn word_operation(&mut self, at: u32, word: &str, left: Expr) -> Result<Expr> {
        self.advance();
        match word {
            "or" | "and" => self.junction(at, word == "or", left),
            "is" => self.is_test(at, left),
            "isnull" | "notnull" => {
                let depth = left.depth;
                node(at, ExprKind::IsNull(Box::new(left), word == "notnull"), [depth])
            }
            "at" => {
                self.expect_word("time")?;
                self.expect_word("zone")?;
                let zone = self.above(level::AT)?;
                call(at, "timezone", vec![zone, left])
            }
            "collate" => {
                let mut name = vec![self.label()?];
                while self.sign(b'.') {
                    name.push(self.label()?);
                }
                let depth = left.depth;
                node(at, ExprKind::Collate(Box::new(left), name), [depth])
            }
            "operator" => {
                self.next -= 1;
                let op = self.qualified_operator()?;
                self.operation(at, &op, level::OTHER, left)
            }
            "not" => {
                let Kind::Word(next) = self.kind().clone() else { return Err(self.unexpected()) };
                self.advance();
                self.matching(at, &next, left, true)
            }
            _ => self.matching(at, word, left, false),
        }
    }

    /// `OPERATOR(schema.op)`
    fn qualified_operator(&mut self) -> Result<String> {
        self.expect_word("operator")?;
        self.expect_sign(b'(')?;
        while matches!(self.kind(), Kind::Word(_) | Kind::Quoted(_)) {
            self.advance();
            self.expect_sign(b'.')?;
        }
        let Kind::Op(op) = self.kind().clone() else { return Err(self.unexpected()) };
        self.advance();
        self.expect_sign(b')')?;
        Ok(op.to_owned())
    }

    /// Chains of AND and of OR are one node each, however long they are.
    fn junction(&mut self, at: u32, or: bool, left: Expr) -> Result<Expr> {
        let mine = if or { level::OR } else { level::AND };
        let mut terms = match left.kind {
            ExprKind::Or(terms) if or => terms,
            ExprKind::And(terms) if !or => terms,
            _ => vec![left],
        };
        loop {
            terms.push(self.above(mine)?);
            if !self.word(if or { "or" } else { "and" }) {
                break;
            }
        }
        let depths: Vec<u32> = terms.iter().map(|term| term.depth).collect();
        node(at, if or { ExprKind::Or(terms) } else { ExprKind::And(terms) }, depths)
    }

    fn is_test(&mut self, at: u32, left: Expr) -> Result<Expr> {
        let negated = self.word("not");
        let depth = left.depth;
        let arg = Box::new(left);
        if self.word("null") {
            return node(at, ExprKind::IsNull(arg, negated), [depth]);
        }
        if self.word("distinct") {
            self.expect_word("from")?;
            let right = self.above(level::IS)?;
            let depths = [depth, right.depth];
            return node(at, ExprKind::IsDistinct(arg, Box::new(right), negated), depths);
        }
        self.refuse(&[
            ("document", "IS DOCUMENT"),
            ("normalized", "IS NORMALIZED"),
            ("nfc", "IS NORMALIZED"),
            ("nfd", "IS NORMALIZED"),
            ("nfkc", "IS NORMALIZED"),
            ("nfkd", "IS NORMALIZED"),
            ("of", "IS OF"),
        ])?;
        let wanted = if self.word("true") {
            Some(true)
        } else if self.word("false") {
            Some(false)
        } else if self.word("unknown") {
            None
        } else {
            return Err(self.unexpected());
        };
        node(at, ExprKind::IsBool(arg, wanted, negated), [depth])
    }

    fn matching(&mut self, at: u32, word: &str, left: Expr, negated: bool) -> Result<Expr> {
        let depth = left.depth;
        let arg = Box::new(left);
        match word {
            "between" => {
                let symmetric = self.word("symmetric");
                if !symmetric {
                    self.word("asymmetric");
                }
                // The AND behind it would be the operator's.
                if self.is_word("not") {
                    return Err(self.unexpected());
                }
                let low = self.above(level::BETWEEN)?;
                self.expect_word("and")?;
                let high = self.above(level::BETWEEN)?;
                let depths = [depth, low.depth, high.depth];
                let (low, high) = (Box::new(low), Box::new(high));
                node(at, ExprKind::Between { arg, low, high, symmetric, negated }, depths)
            }
            "in" => {
                self.expect_sign(b'(')?;
                let kind = if self.begins_query() {
                    ExprKind::InQuery(arg, Box::new(self.query()?), negated)
                } else {
                    ExprKind::In(arg, self.exprs()?, negated)
                };
                self.expect_sign(b')')?;
                let deepest = match &kind {
                    ExprKind::In(_, list, _) => list.iter().map(|item| item.depth).max().unwrap_or(0),
                    _ => 0,
                };
                node(at, kind, [depth, deepest])
            }
            _ => {
                let kind = match word {
                    "like" => Like::Exact,
                    "ilike" => Like::Folded,
                    _ => {
                        self.expect_word("to")?;
                        Like::Similar
                    }
                };
                // `LIKE ANY (…)` is its operator with ANY.
                if kind != Like::Similar
                    && self.is_one_of(&["any", "some", "all"])
                    && self.ahead(1) == &Kind::Sign(b'(')
                {
                    let op = match (kind, negated) {
                        (Like::Exact, false) => "~~",
                        (Like::Exact, true) => "!~~",
                        (_, false) => "~~*",
                        (_, true) => "!~~*",
                    };
                    return self.operation(at, op, level::BETWEEN, *arg);
                }
                let pattern = self.above(level::BETWEEN)?;
                let escape =
                    if self.word("escape") { Some(Box::new(self.above(level::BETWEEN)?)) } else { None };
                let depths = [depth, pattern.depth];
                let pattern = Box::new(pattern);
                node(at, ExprKind::Like { kind, arg, pattern, escape, negated }, depths)
            }
        }
    }

    fn primary(&mut self) -> Result<Expr> {
        let at = self.at();
        let kind = match self.kind().clone() {
            Kind::Int(number) => ExprKind::Int(number),
            Kind::Number(number) => ExprKind::Number(number.into_owned()),
            Kind::Str(text) => ExprKind::Str(text.into_owned()),
            Kind::Bits => ExprKind::Refused("type bit"),
            Kind::Param(number) => {
                self.parameters = self.parameters.max(number);
                ExprKind::Param(number)
            }
            Kind::Op("*") => ExprKind::Star(Vec::new()),
            Kind::Sign(b'(') => return self.parenthesized(),
            Kind::Quoted(_) => return self.name_or_call(),
            Kind::Word(word) => return self.keyword(at, word.keyword()),
            _ => return Err(self.unexpected()),
        };
        self.advance();
        Ok(leaf(at, kind))
    }

    fn parenthesized(&mut self) -> Result<Expr> {
        let at = self.at();
        self.expect_sign(b'(')?;
        if self.begins_query() {
            let query = self.deeper(Self::query)?;
            self.expect_sign(b')')?;
            return Ok(leaf(at, ExprKind::Scalar(Box::new(query))));
        }
        let first = self.expr()?;
        if self.sign(b')') {
            return Ok(first);
        }
        self.expect_sign(b',')?;
        let mut all = vec![first];
        all.extend(self.exprs()?);
        self.expect_sign(b')')?;
        let depths: Vec<u32> = all.iter().map(|item| item.depth).collect();
        node(at, ExprKind::Row(all), depths)
    }

    /// After `(`: is it a query?
    pub(super) fn begins_query(&self) -> bool {
        self.is_query_at(0)
    }

    /// Is what stands in parentheses, the first of which is the token before this place, a query? `((select …) union …)` is one,
    /// `((select …) + 1)` an expression, and `((select …) a join …)` a join: what stands behind inner parentheses tells.
    pub(super) fn is_query_at(&self, place: usize) -> bool {
        let mut ahead = place;
        while self.ahead(ahead) == &Kind::Sign(b'(') {
            ahead += 1;
        }
        if !["select", "values", "with", "table"].iter().any(|word| self.is_word_ahead(ahead, word)) {
            return false;
        }
        let (mut inner, mut open) = (ahead - place, ahead - place);
        while inner > 0 {
            match self.ahead(ahead) {
                Kind::Sign(b'(') => open += 1,
                Kind::Sign(b')') => open -= 1,
                Kind::End => return true,
                _ => {}
            }
            ahead += 1;
            if open < inner {
                inner = open;
                let goes_on = ["union", "except", "intersect", "order", "limit", "offset", "fetch", "for"];
                match self.ahead(ahead) {
                    Kind::Sign(b')') => {}
                    Kind::Word(word) => return word.is_one_of(&goes_on),
                    _ => return false,
                }
            }
        }
        true
    }

    fn keyword(&mut self, at: u32, word: &str) -> Result<Expr> {
        let opens = self.ahead(1) == &Kind::Sign(b'(');
        let constant = match word {
            "null" => Some(ExprKind::Null),
            "true" => Some(ExprKind::Bool(true)),
            "false" => Some(ExprKind::Bool(false)),
            "default" => Some(ExprKind::Default),
            _ => None,
        };
        if let Some(kind) = constant {
            self.advance();
            return Ok(leaf(at, kind));
        }
        match word {
            "xmlconcat" | "xmlelement" | "xmlexists" | "xmlforest" | "xmlparse" | "xmlpi" | "xmlroot"
            | "xmlserialize" | "xmltable" | "normalize" | "treat"
                if opens =>
            {
                Err(Error::unsupported(word.to_uppercase()).at(at))
            }
            "collation" if self.is_word_ahead(1, "for") => Err(Error::unsupported("COLLATION FOR").at(at)),
            "case" => self.case(),
            "cast" if opens => {
                self.advance();
                self.expect_sign(b'(')?;
                let arg = self.expr()?;
                self.expect_word("as")?;
                let ty = self.type_name()?;
                self.expect_sign(b')')?;
                let depth = arg.depth;
                node(at, ExprKind::Cast(Box::new(arg), ty), [depth])
            }
            "exists" if opens => {
                self.advance();
                let query = self.in_parentheses(Self::query)?;
                Ok(leaf(at, ExprKind::Exists(Box::new(query))))
            }
            "row" if opens => {
                self.advance();
                self.expect_sign(b'(')?;
                let all = if self.kind() == &Kind::Sign(b')') { Vec::new() } else { self.exprs()? };
                self.expect_sign(b')')?;
                let depths: Vec<u32> = all.iter().map(|item| item.depth).collect();
                node(at, ExprKind::Row(all), depths)
            }
            "array" => self.array(at),
            "coalesce" | "greatest" | "least" | "nullif" if opens => self.conditional(at, word),
            "extract" | "position" | "substring" | "overlay" | "trim" if opens => self.sql_function(at, word),
            "current_date" | "current_timestamp" | "localtimestamp" | "current_time" | "localtime"
            | "current_user" | "session_user" | "user" | "current_role" | "current_catalog"
            | "current_schema"
                if !opens || word.ends_with("time") || word.ends_with("timestamp") =>
            {
                self.advance();
                if opens {
                    self.in_parentheses(Self::expr)?;
                }
                call(at, word, Vec::new())
            }
            _ => match self.typed_literal(at)? {
                Some(literal) => Ok(literal),
                None => self.name_or_call(),
            },
        }
    }

    fn array(&mut self, at: u32) -> Result<Expr> {
        self.advance();
        if self.sign(b'(') {
            let query = self.query()?;
            self.expect_sign(b')')?;
            return Ok(leaf(at, ExprKind::ArrayQuery(Box::new(query))));
        }
        self.expect_sign(b'[')?;
        if self.kind() == &Kind::Sign(b'[') {
            return Err(Error::unsupported("an array of arrays").at(at));
        }
        let all = if self.kind() == &Kind::Sign(b']') { Vec::new() } else { self.exprs()? };
        self.expect_sign(b']')?;
        let depths: Vec<u32> = all.iter().map(|item| item.depth).collect();
        node(at, ExprKind::Array(all), depths)
    }

    fn case(&mut self) -> Result<Expr> {
        let at = self.at();
        self.advance();
        let arg = if self.is_word("when") { None } else { Some(Box::new(self.expr()?)) };
        let mut whens = Vec::new();
        while self.word("when") {
            let condition = self.expr()?;
            self.expect_word("then")?;
            whens.push((condition, self.expr()?));
        }
        if whens.is_empty() {
            return Err(self.unexpected());
        }
        let other = if self.word("else") { Some(Box::new(self.expr()?)) } else { None };
        self.expect_word("end")?;
        let depths: Vec<u32> = whens
            .iter()
            .flat_map(|(condition, value)| [condition.depth, value.depth])
            .chain(arg.iter().chain(&other).map(|part| part.depth))
            .collect();
        node(at, ExprKind::Case { arg, whens, other }, depths)
    }

    fn conditional(&mut self, at: u32, word: &str) -> Result<Expr> {
        self.advance();
        let mut args = self.in_parentheses(Self::exprs)?;
        let depths: Vec<u32> = args.iter().map(|arg| arg.depth).collect();
        let kind = match word {
            "coalesce" => ExprKind::Coalesce(args),
            "nullif" => match (args.pop(), args.pop(), args.is_empty()) {
                (Some(right), Some(left), true) => ExprKind::NullIf(Box::new(left), Box::new(right)),
                _ => return Err(self.unexpected()),
            },
            _ => ExprKind::Extreme(word == "greatest", args),
        };
        node(at, kind, depths)
    }

    /// Functions with words between their arguments.
    fn sql_function(&mut self, at: u32, word: &str) -> Result<Expr> {
        self.advance();
        self.expect_sign(b'(')?;
        let (name, args) = match word {
            "extract" => {
                let place = self.at();
                let field = match self.kind().clone() {
                    Kind::Str(text) => text.into_owned(),
                    Kind::Word(text) => text.into_owned(),
                    _ => return Err(self.unexpected()),
                };
                self.advance();
                self.expect_word("from")?;
                let field = leaf(place, ExprKind::Str(field));
                let field = node(place, ExprKind::Cast(Box::new(field), plain_type(place, "text")), [1])?;
                ("extract", vec![field, self.expr()?])
            }
            "position" => {
                let part = self.above(level::BETWEEN)?;
                self.expect_word("in")?;
                ("position", vec![self.above(level::BETWEEN)?, part])
            }
            "overlay" => {
                let mut args = vec![self.expr()?];
                if self.word("placing") {
                    args.push(self.expr()?);
                    self.expect_word("from")?;
                    args.push(self.expr()?);
                    if self.word("for") {
                        args.push(self.expr()?);
                    }
                } else if self.sign(b',') {
                    args.extend(self.exprs()?);
                }
                ("overlay", args)
            }
            "substring" => ("substring", self.substring_args()?),
            _ => self.trim_args()?,
        };
        self.expect_sign(b')')?;
        call(at, name, args)
    }

    fn substring_args(&mut self) -> Result<Vec<Expr>> {
        let at = self.at();
        let mut args = vec![self.expr()?];
        if self.sign(b',') {
            args.extend(self.exprs()?);
            return Ok(args);
        }
        if self.word("similar") {
            args.push(self.expr()?);
            self.expect_word("escape")?;
            args.push(self.expr()?);
            return Ok(args);
        }
        let (mut from, mut count) = (None, None);
        loop {
            if self.word("from") {
                from = Some(self.expr()?);
            } else if self.word("for") {
                count = Some(self.expr()?);
            } else {
                break;
            }
        }
        args.push(from.unwrap_or_else(|| leaf(at, ExprKind::Int(1))));
        args.extend(count);
        Ok(args)
    }

    fn trim_args(&mut self) -> Result<(&'static str, Vec<Expr>)> {
        let name = if self.word("leading") {
            "ltrim"
        } else if self.word("trailing") {
            "rtrim"
        } else {
            self.word("both");
            "btrim"
        };
        if self.word("from") {
            return Ok((name, self.exprs()?));
        }
        let first = self.expr()?;
        if self.word("from") {
            let text = self.expr()?;
            return Ok((name, vec![text, first]));
        }
        let mut args = vec![first];
        if self.sign(b',') {
            args.extend(self.exprs()?);
        }
        Ok((name, args))
    }

    /// `date '…'`, `interval '1' day`, `double precision '1'`: a type and a string.
    fn typed_literal(&mut self, at: u32) -> Result<Option<Expr>> {
        let (start, parameters) = (self.next, self.parameters);
        let begins = match self.kind() {
            Kind::Word(word) => word.is_no(Category::Reserved),
            _ => false,
        };
        if !begins {
            return Ok(None);
        }
        // Only a type that the word before the string can be is tried.
        let near = (1..8).find(|ahead| matches!(self.ahead(*ahead), Kind::Str(_)));
        if near.is_none() {
            return Ok(None);
        }
        if let Ok(mut ty) = self.type_name()
            && let Kind::Str(text) = self.kind().clone()
            && !ty.array
        {
            let written = self.at();
            self.advance();
            if ty.name == ["interval"] {
                self.interval_fields(&mut ty)?;
            }
            let literal = leaf(written, ExprKind::Str(text.into_owned()));
            return node(at, ExprKind::Cast(Box::new(literal), ty), [1]).map(Some);
        }
        (self.next, self.parameters) = (start, parameters);
        Ok(None)
    }

    fn name_or_call(&mut self) -> Result<Expr> {
        let at = self.at();
        let mut names = vec![match self.kind() {
            Kind::Word(word) if !word.is_no(Category::Reserved) => return Err(self.unexpected()),
            Kind::Word(word) if !word.is_no(Category::NoColumn) && self.ahead(1) != &Kind::Sign(b'(') => {
                return Err(self.unexpected());
            }
            _ => self.label()?,
        }];
        while self.sign(b'.') {
            if self.op("*") {
                return Ok(leaf(at, ExprKind::Star(names)));
            }
            names.push(self.label()?);
        }
        if self.kind() != &Kind::Sign(b'(') {
            return Ok(leaf(at, ExprKind::Column(names)));
        }
        self.advance();
        self.call_rest(at, names)
    }

    /// A call after its opening parenthesis.
    fn call_rest(&mut self, at: u32, name: Vec<String>) -> Result<Expr> {
        let mut call = Call {
            name,
            args: Vec::new(),
            star: false,
            distinct: false,
            order: Vec::new(),
            filter: None,
            over: None,
        };
        if self.op("*") {
            call.star = true;
        } else if self.kind() != &Kind::Sign(b')') {
            call.distinct = self.word("distinct");
            if !call.distinct {
                self.word("all");
            }
            call.args = self.list(|parser| {
                if parser.is_word("variadic") {
                    return Err(Error::unsupported("VARIADIC").at(parser.at()));
                }
                if matches!(parser.ahead(1), Kind::Op("=>")) {
                    return Err(Error::unsupported("an argument by its name").at(parser.at()));
                }
                let arg = parser.expr()?;
                if parser.kind() == &Kind::Sign(b':') {
                    return Err(Error::unsupported("an argument by its name").at(parser.at()));
                }
                Ok(arg)
            })?;
            if self.words(&["order", "by"]) {
                call.order = self.order_items()?;
            }
        }
        self.expect_sign(b')')?;
        if self.is_word("within") && self.is_word_ahead(1, "group") {
            return Err(Error::unsupported("WITHIN GROUP").at(self.at()));
        }
        if self.is_word("filter") && self.ahead(1) == &Kind::Sign(b'(') {
            self.advance();
            self.expect_sign(b'(')?;
            self.expect_word("where")?;
            call.filter = Some(self.expr()?);
            self.expect_sign(b')')?;
        }
        if self.is_word("over") {
            self.advance();
            call.over = Some(Box::new(self.over()?));
        }
        let depths: Vec<u32> = call.args.iter().map(|arg| arg.depth).collect();
        node(at, ExprKind::Call(Box::new(call)), depths)
    }

    pub(super) fn order_items(&mut self) -> Result<Vec<OrderItem>> {
        self.list(|parser| {
            let expr = parser.expr()?;
            let mut descending = false;
            if parser.word("desc") {
                descending = true;
            } else if parser.word("using") {
                descending = parser.op(">");
                if !descending && !parser.op("<") {
                    return match parser.kind() {
                        Kind::Op(_) => {
                            Err(Error::unsupported("ORDER BY … USING this operator").at(parser.at()))
                        }
                        Kind::Word(word) if word.is("operator") => {
                            Err(Error::unsupported("ORDER BY … USING this operator").at(parser.at()))
                        }
                        _ => Err(parser.unexpected()),
                    };
                }
            } else {
                parser.word("asc");
            }
            let mut nulls_first = descending;
            if parser.word("nulls") {
                nulls_first = parser.word("first");
                if !nulls_first {
                    parser.expect_word("last")?;
                }
            }
            Ok(OrderItem { expr, descending, nulls_first })
        })
    }

    /// A type, with the spellings that have more than one word brought to one.
    pub(super) fn type_name(&mut self) -> Result<TypeName> {
        let at = self.at();
        let mut names = vec![self.name_unless(&[Category::Reserved])?];
        while self.sign(b'.') {
            names.push(self.label()?);
        }
        let mut ty = TypeName { at, name: names, mods: Vec::new(), array: false };
        let first = if ty.name.len() == 1 { ty.name[0].clone() } else { String::new() };
        match &*first {
            "bit" if self.word("varying") => ty.name = vec!["varbit".to_owned()],
            "double" if self.word("precision") => ty.name = vec!["float8".to_owned()],
            "float" => ty.name = vec![self.float()?.to_owned()],
            "character" | "char" | "nchar" | "national" => {
                if first == "national" && !self.word("character") {
                    self.word("char");
                }
                let varying = self.word("varying");
                ty.name = vec![if varying { "varchar" } else { "bpchar" }.to_owned()];
                if !varying && self.kind() != &Kind::Sign(b'(') {
                    ty.mods = vec![1];
                }
            }
            _ => {}
        }
        if self.sign(b'(') {
            ty.mods = self.list(|parser| {
                let negative = parser.op("-");
                let Kind::Int(number) = *parser.kind() else { return Err(parser.unexpected()) };
                parser.advance();
                Ok(if negative { -number } else { number })
            })?;
            self.expect_sign(b')')?;
        }
        match &*first {
            "time" | "timestamp" => {
                if self.words(&["with", "time", "zone"]) {
                    ty.name = vec![format!("{first}tz")];
                } else {
                    self.words(&["without", "time", "zone"]);
                }
            }
            "interval" => self.interval_fields(&mut ty)?,
            _ => {}
        }
        while self.sign(b'[') {
            if let Kind::Int(_) = self.kind() {
                self.advance();
            }
            self.expect_sign(b']')?;
            ty.array = true;
        }
        if self.word("array") {
            ty.array = true;
        }
        Ok(ty)
    }

    /// The float that has so many bits behind FLOAT.
    fn float(&mut self) -> Result<&'static str> {
        if !self.sign(b'(') {
            return Ok("float8");
        }
        let at = self.at();
        let Kind::Int(bits) = *self.kind() else { return Err(self.unexpected()) };
        self.advance();
        self.expect_sign(b')')?;
        match bits {
            ..1 => Err(Error::new("22023", "precision for type float must be at least 1 bit").at(at)),
            1..=24 => Ok("float4"),
            25..=53 => Ok("float8"),
            54.. => Err(Error::new("22023", "precision for type float must be less than 54 bits").at(at)),
        }
    }

    /// The fields of an interval become its first modifier: a number of [`crate::types::interval`].
    fn interval_fields(&mut self, ty: &mut TypeName) -> Result<()> {
        const FIELDS: [&str; 6] = ["year", "month", "day", "hour", "minute", "second"];
        let Some(from) = FIELDS.iter().position(|field| self.is_word(field)) else { return Ok(()) };
        self.advance();
        let mut to = from;
        if self.word("to") {
            let Some(end) = FIELDS.iter().position(|field| self.is_word(field)) else {
                return Err(self.unexpected());
            };
            self.advance();
            to = end;
        }
        let mut mods = vec![(from * 10 + to) as i64];
        if to == 5 && self.sign(b'(') {
            let Kind::Int(number) = *self.kind() else { return Err(self.unexpected()) };
            self.advance();
            mods.push(number);
            self.expect_sign(b')')?;
        }
        ty.name = vec!["interval".to_owned(), "fields".to_owned()];
        ty.mods = mods;
        Ok(())
    }
}

fn plain_type(at: u32, name: &str) -> TypeName {
    TypeName { at, name: vec![name.to_owned()], mods: Vec::new(), array: false }
}

fn negated(number: &str) -> String {
    match number.strip_prefix('-') {
        Some(positive) => positive.to_owned(),
        None => format!("-{number}"),
    }
}
