//! Tables that are made of others: CREATE TABLE AS, SELECT INTO, and LIKE in CREATE TABLE.

use super::Parser;
use super::ast::{CreateTableAs, LikeDef, ObjectName, Query, SetExpr, Statement};
use super::definition::TABLE_CLAUSES;
use super::lexer::Kind;
use crate::error::{Error, Result};

impl Parser<'_> {
    /// Does what stands behind the name of a table lead to a query: `AS`, or a list of bare names?
    pub(super) fn begins_table_of_query(&self) -> bool {
        if self.is_one_of(&["as", "with"]) {
            return true;
        }
        let is_name = |kind: &Kind<'_>| matches!(kind, Kind::Word(_) | Kind::Quoted(_));
        self.kind() == &Kind::Sign(b'(')
            && is_name(self.ahead(1))
            && matches!(self.ahead(2), Kind::Sign(b',' | b')'))
    }

    /// `[(names)] [WITH (…)] AS query [WITH [NO] DATA]`
    pub(super) fn create_table_as(&mut self, name: ObjectName, if_not_exists: bool) -> Result<Statement> {
        let columns = if self.kind() == &Kind::Sign(b'(') {
            self.column_names()?.into_iter().map(|(name, _)| name).collect()
        } else {
            Vec::new()
        };
        let options = if self.word("with") { self.storage_options()? } else { Vec::new() };
        self.refuse(&TABLE_CLAUSES[..5])?;
        self.expect_word("as")?;
        if self.is_word("execute") {
            return Ok(self.refused("CREATE TABLE AS EXECUTE"));
        }
        let query = self.query()?;
        let with_data = !self.words(&["with", "no", "data"]);
        self.words(&["with", "data"]);
        let made = CreateTableAs { name, if_not_exists, columns, options, query, with_data };
        Ok(Statement::CreateTableAs(Box::new(made)))
    }

    /// A query as a statement: with INTO it makes a table.
    pub(super) fn query_statement(&mut self, mut query: Query) -> Statement {
        match leftmost_into(&mut query.body) {
            None => Statement::Query(query),
            Some(name) => Statement::CreateTableAs(Box::new(CreateTableAs {
                name,
                if_not_exists: false,
                columns: Vec::new(),
                options: Vec::new(),
                query,
                with_data: true,
            })),
        }
    }

    /// `LIKE table {INCLUDING | EXCLUDING} …`. `behind`: the columns that stand before.
    pub(super) fn like(&mut self, behind: usize) -> Result<LikeDef> {
        self.expect_word("like")?;
        let table = self.object()?;
        let mut like = LikeDef {
            table,
            behind,
            defaults: false,
            identity: false,
            constraints: false,
            indexes: false,
            comments: false,
        };
        loop {
            let including = self.word("including");
            if !including && !self.word("excluding") {
                return Ok(like);
            }
            let at = self.at();
            match &*self.label()? {
                "all" => {
                    (like.defaults, like.identity, like.constraints) = (including, including, including);
                    (like.indexes, like.comments) = (including, including);
                }
                "defaults" => like.defaults = including,
                "identity" => like.identity = including,
                "constraints" => like.constraints = including,
                "indexes" => like.indexes = including,
                "comments" => like.comments = including,
                "generated" | "statistics" | "storage" | "compression" => {}
                other => {
                    let message = format!("syntax error at or near \"{other}\"");
                    return Err(Error::new("42601", message).at(at));
                }
            }
        }
    }
}

/// Takes the INTO of a query, which stands in its first SELECT.
pub(super) fn leftmost_into(body: &mut SetExpr) -> Option<ObjectName> {
    match body {
        SetExpr::Select(select) => select.into.take(),
        SetExpr::Op { left, .. } => leftmost_into(left),
        SetExpr::Query(_) | SetExpr::Values(_) => None,
    }
}
