//! Functions that ask the session something, or tell it to do something.

use std::sync::Arc;

use super::Function;
use super::casts::{float, int, str};
use crate::error::{Error, Result};
use crate::expr::{Call, Env, Made};
use crate::shared::advisory::{Key, Lock};
use crate::shared::facts::Facts;
use crate::shared::interrupt::Cause;
use crate::types::{Datum, Type};
use Type::{Bool, Float8, Int4, Int8, Interval, Text, TimestampTz, Void};

const fn row(name: &'static str, args: &'static [Type], returns: Type, call: Call) -> Function {
    Function { name, args, returns, call }
}

/// Rows of a kind of advisory lock: of one number and of two.
macro_rules! locks {
    ($($name:literal => $returns:ident, $call:expr);* $(;)?) => {
        &[$(
            row($name, &[Int8], $returns, Call::Many($call)),
            row($name, &[Int4, Int4], $returns, Call::Many($call)),
        )*]
    };
}

pub(super) const ADVISORY: &[Function] = locks![
    "pg_advisory_lock" => Void, |args, env| lock(args, env, true, false);
    "pg_advisory_lock_shared" => Void, |args, env| lock(args, env, false, false);
    "pg_advisory_xact_lock" => Void, |args, env| lock(args, env, true, true);
    "pg_advisory_xact_lock_shared" => Void, |args, env| lock(args, env, false, true);
    "pg_try_advisory_lock" => Bool, |args, env| try_lock(args, env, true, false);
    "pg_try_advisory_lock_shared" => Bool, |args, env| try_lock(args, env, false, false);
    "pg_try_advisory_xact_lock" => Bool, |args, env| try_lock(args, env, true, true);
    "pg_try_advisory_xact_lock_shared" => Bool, |args, env| try_lock(args, env, false, true);
    "pg_advisory_unlock" => Bool, |args, env| unlock(args, env, true);
    "pg_advisory_unlock_shared" => Bool, |args, env| unlock(args, env, false);
];

pub(super) const FUNCTIONS: &[Function] = &[
    row("pg_advisory_unlock_all", &[], Void, Call::None(unlock_all)),
    row(
        "current_setting",
        &[Text],
        Text,
        Call::Many(|args, env| setting(str(&args[0]), env).map(Datum::text)),
    ),
    row("current_setting", &[Text, Bool], Text, Call::Many(setting_or_null)),
    row("set_config", &[Text, Text, Bool], Text, Call::Many(set_config)),
    row("pg_cancel_backend", &[Int4], Bool, Call::Many(|args, env| raise(args, env, Cause::Cancelled))),
    row("pg_terminate_backend", &[Int4], Bool, Call::Many(|args, env| raise(args, env, Cause::Shutdown))),
    row(
        "pg_terminate_backend",
        &[Int4, Int8],
        Bool,
        Call::Many(|args, env| raise(args, env, Cause::Shutdown)),
    ),
    row("pg_sleep", &[Float8], Void, Call::OneIn(|seconds, env| sleep(float(seconds), env))),
    row("pg_sleep_for", &[Interval], Void, Call::OneIn(sleep_for)),
    row("pg_sleep_until", &[TimestampTz], Void, Call::OneIn(sleep_until)),
    row("pg_backend_pid", &[], Int4, Call::None(|env| Ok(Datum::Int(facts(env)?.number().into())))),
];

/// Do functions with this name ask the session?
pub(crate) fn asks_session(name: &str) -> bool {
    ADVISORY.iter().chain(FUNCTIONS).any(|function| function.name == name)
}

fn facts<'e>(env: &Env<'e>) -> Result<&'e Arc<Facts>> {
    env.context.facts.as_ref().ok_or_else(|| Error::unsupported("asking the session here"))
}

fn raise(args: &[Datum], env: &Env<'_>, cause: Cause) -> Made {
    let number = i32::try_from(int(&args[0])).unwrap_or(0);
    Ok(Datum::Bool(facts(env)?.raise(number, cause)))
}

fn setting(name: &str, env: &Env<'_>) -> Result<String> {
    facts(env)?.setting(name)
}

fn setting_or_null(args: &[Datum], env: &Env<'_>) -> Made {
    match setting(str(&args[0]), env) {
        Err(error) if error.code == "42704" && matches!(args[1], Datum::Bool(true)) => Ok(Datum::Null),
        found => found.map(Datum::text),
    }
}

fn set_config(args: &[Datum], env: &Env<'_>) -> Made {
    let local = matches!(args[2], Datum::Bool(true));
    facts(env)?.wish(str(&args[0]), str(&args[1]), local).map(Datum::text)
}

fn asked(args: &[Datum], exclusive: bool, transaction: bool) -> Lock {
    let key = match args {
        [one] => Key::One(int(one)),
        [one, two] => Key::Two(int(one) as i32, int(two) as i32),
        _ => unreachable!("they take one number or two"),
    };
    Lock { key, exclusive, transaction }
}

/// The statement goes on so much later: it sleeps when it has made the row.
fn sleep(seconds: f64, env: &Env<'_>) -> Made {
    facts(env)?;
    if seconds > 0.0 {
        env.context.sleep((seconds * 1e9) as u64);
    }
    Ok(nothing())
}

fn sleep_for(span: &Datum, env: &Env<'_>) -> Made {
    let Datum::Interval(span) = span else { unreachable!("an interval is expected: {span:?}") };
    sleep(crate::types::span(*span) as f64 / 1e6, env)
}

fn sleep_until(at: &Datum, env: &Env<'_>) -> Made {
    use thermocline_base::clock::{Clock, SystemClock};
    let left_us = super::dates::timestamp(at).saturating_sub(SystemClock.wall_us());
    sleep(left_us as f64 / 1e6, env)
}

/// What a function without a value answers.
fn nothing() -> Datum {
    Datum::text("")
}

fn lock(args: &[Datum], env: &Env<'_>, exclusive: bool, transaction: bool) -> Made {
    facts(env)?.lock(asked(args, exclusive, transaction))?;
    Ok(nothing())
}

fn try_lock(args: &[Datum], env: &Env<'_>, exclusive: bool, transaction: bool) -> Made {
    Ok(Datum::Bool(facts(env)?.try_lock(asked(args, exclusive, transaction))))
}

fn unlock(args: &[Datum], env: &Env<'_>, exclusive: bool) -> Made {
    Ok(Datum::Bool(facts(env)?.unlock(asked(args, exclusive, false))))
}

fn unlock_all(env: &Env<'_>) -> Made {
    facts(env)?.unlock_all();
    Ok(nothing())
}
