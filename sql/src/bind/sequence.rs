//! Sequences in expressions: `nextval`, `currval`, `setval`, `lastval`.
//!
//! PostgreSQL's functions take the OID of a sequence (`regclass`), which a literal is cast to. Here they take its name; one that
//! is written out is looked up when the statement is bound.

use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::{Call, Env, Expr, Made};
use crate::names;
use crate::names::OWN;
use crate::objects::sequences::SessionSequences;
use crate::parser::ast::{self, ExprKind};
use crate::types::{Datum, Type};

impl Binder<'_> {
    /// A call of one of these functions, if it is one.
    pub(super) fn sequence_function(
        &mut self,
        name: &str,
        args: &[ast::Expr],
        at: u32,
    ) -> Result<Option<Typed>> {
        let (call, ty): (Call, Type) = match (name, args.len()) {
            ("nextval", 1) => (Call::Many(next_value), Type::Int8),
            ("currval", 1) => (Call::Many(current_value), Type::Int8),
            ("setval", 2 | 3) => (Call::Many(set_value), Type::Int8),
            ("lastval", 0) => (Call::None(last_value), Type::Int8),
            ("pg_sequence_last_value", 1) => (Call::Many(position), Type::Int8),
            _ => return Ok(None),
        };
        let mut exprs = Vec::with_capacity(args.len());
        for (place, arg) in args.iter().enumerate() {
            if ty == Type::Int8 && place == 0 {
                exprs.push(self.sequence_argument(arg)?);
                continue;
            }
            let wanted = match (name, place) {
                ("setval", 1) => Type::Int8,
                ("setval", _) => Type::Bool,
                _ => Type::Text,
            };
            let arg = self.expr(arg)?;
            exprs.push(self.implicit(arg, wanted)?.expr);
        }
        Ok(Some(Typed::new(Expr::Call(call, exprs), ty, at)))
    }

    /// The sequence whose next value an expression is, if it is nothing else.
    pub(crate) fn sequence_of(&mut self, expr: &ast::Expr) -> Option<String> {
        let ExprKind::Call(call) = &expr.kind else { return None };
        let (Some("nextval"), [arg]) = (call.name.last().map(String::as_str), &call.args[..]) else {
            return None;
        };
        match self.sequence_argument(arg).ok()? {
            Expr::Const(Datum::Text(name)) => name.strip_prefix(OWN).map(str::to_owned),
            _ => None,
        }
    }

    /// The sequence: its name as a text.
    fn sequence_argument(&mut self, arg: &ast::Expr) -> Result<Expr> {
        // Casts between names, texts and numbers of relations change nothing here.
        let mut inner = arg;
        while let ExprKind::Cast(within, ty) = &inner.kind {
            let last = ty.name.last().map_or("", String::as_str);
            if !["regclass", "text", "varchar"].contains(&last) {
                break;
            }
            inner = within;
        }
        let typed = self.expr(inner)?;
        if typed.ty == Type::Oid {
            return Ok(typed.expr);
        }
        let typed = self.implicit(typed, Type::Text)?;
        let Expr::Const(Datum::Text(text)) = &typed.expr else { return Ok(typed.expr) };
        let parts = names::written(text);
        let (name, schema) = match &parts[..] {
            [.., schema, name] => (name, Some(schema.as_str())),
            [name] => (name, None),
            [] => unreachable!("a name has a part"),
        };
        let found = self.found(schema, name);
        let is_sequence = |full: &String| self.catalog.objects().sequence(full).is_some();
        match found {
            Some(full) if is_sequence(&full) => Ok(Expr::Const(Datum::text(format!("{OWN}{full}")))),
            Some(_) => Err(Error::new("42809", format!("\"{name}\" is not a sequence"))),
            None => {
                let at = if schema.is_some() { arg.at } else { inner.at };
                let shown = if schema.is_some() { text.to_string() } else { name.clone() };
                Err(Error::new("42P01", format!("relation \"{shown}\" does not exist")).at(at))
            }
        }
    }
}

fn sequences<'e>(env: &'e Env<'_>) -> Result<&'e SessionSequences> {
    let none = || Error::new("55000", "sequences have values in statements of a session only");
    env.context.sequences.as_ref().ok_or_else(none)
}

/// The full name of the sequence that an argument names.
fn named(value: &Datum, env: &Env<'_>) -> Result<String> {
    match value {
        Datum::Text(text) => sequences(env)?.named(text),
        _ => Err(Error::unsupported("a sequence that is named by its OID")),
    }
}

/// Refuses a function that moves a sequence where the transaction only reads.
fn may_move(function: &str, env: &Env<'_>) -> Result<()> {
    if env.context.read_only {
        let message = format!("cannot execute {function}() in a read-only transaction");
        return Err(Error::new("25006", message));
    }
    Ok(())
}

fn next_value(args: &[Datum], env: &Env<'_>) -> Made {
    may_move("nextval", env)?;
    sequences(env)?.next_value(&named(&args[0], env)?).map(Datum::Int)
}

fn current_value(args: &[Datum], env: &Env<'_>) -> Made {
    sequences(env)?.current_value(&named(&args[0], env)?).map(Datum::Int)
}

fn last_value(env: &Env<'_>) -> Made {
    sequences(env)?.last_value().map(Datum::Int)
}

fn set_value(args: &[Datum], env: &Env<'_>) -> Made {
    may_move("setval", env)?;
    let Datum::Int(value) = args[1] else { unreachable!("the value is a bigint") };
    let called = !matches!(args.get(2), Some(Datum::Bool(false)));
    sequences(env)?.set_value(&named(&args[0], env)?, value, called).map(Datum::Int)
}

fn position(args: &[Datum], env: &Env<'_>) -> Made {
    let (last, called) = sequences(env)?.position(&named(&args[0], env)?)?;
    Ok(if called { Datum::Int(last) } else { Datum::Null })
}
