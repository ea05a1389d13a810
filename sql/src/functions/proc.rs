//! Functions: rows of `pg_proc`. `COALESCE`, `NULLIF` and the like are syntax and stand in the binder; aggregates in
//! `aggregates`.

use super::casts::{float, numeric, str};
use super::{Function, dates, formats, maths, patterns, strings};
use crate::expr::Call;
use crate::types::{Datum, Type, datetime};
use Type::TextArray;
use Type::{
    Bool, BpChar, Bytea, Date, Float4, Float8, Int2, Int4, Int8, Interval, Name, Numeric, Text, Time,
    Timestamp, TimestampTz, Uuid,
};

const fn row(name: &'static str, args: &'static [Type], returns: Type, call: Call) -> Function {
    Function { name, args, returns, call }
}

pub(super) const TABLES: &[&[Function]] = &[
    TEXTS,
    NUMBERS,
    TIMES,
    SESSION,
    super::json::FUNCTIONS,
    super::codecs::FUNCTIONS,
    super::session::ADVISORY,
    super::session::FUNCTIONS,
];

const TEXTS: &[Function] = &[
    row("length", &[Text], Int4, Call::One(strings::length)),
    row("length", &[BpChar], Int4, Call::One(strings::length_of_char)),
    row("length", &[Bytea], Int4, Call::One(|a| Ok(Datum::Int(strings::bytes(a).len() as i64)))),
    row("char_length", &[Text], Int4, Call::One(strings::length)),
    row("char_length", &[BpChar], Int4, Call::One(strings::length_of_char)),
    row("character_length", &[Text], Int4, Call::One(strings::length)),
    row("character_length", &[BpChar], Int4, Call::One(strings::length_of_char)),
    row("octet_length", &[Text], Int4, Call::One(|a| Ok(Datum::Int(str(a).len() as i64)))),
    row("octet_length", &[BpChar], Int4, Call::One(|a| Ok(Datum::Int(str(a).len() as i64)))),
    row("octet_length", &[Bytea], Int4, Call::One(|a| Ok(Datum::Int(strings::bytes(a).len() as i64)))),
    row("bit_length", &[Text], Int4, Call::One(|a| Ok(Datum::Int(str(a).len() as i64 * 8)))),
    row("lower", &[Text], Text, Call::One(strings::lower)),
    row("upper", &[Text], Text, Call::One(strings::upper)),
    row("initcap", &[Text], Text, Call::One(strings::initcap)),
    row("substr", &[Text, Int4], Text, Call::Two(strings::substring)),
    row("substr", &[Text, Int4, Int4], Text, Call::Many(|a, _| strings::substring_for(a))),
    row("substring", &[Text, Int4], Text, Call::Two(strings::substring)),
    row("substring", &[Text, Int4, Int4], Text, Call::Many(|a, _| strings::substring_for(a))),
    row("substring", &[Text, Text], Text, Call::Two(patterns::substring_matching)),
    row("substring", &[Text, Text, Text], Text, Call::Many(|a, _| patterns::substring_similar(a))),
    row("left", &[Text, Int4], Text, Call::Two(strings::left)),
    row("right", &[Text, Int4], Text, Call::Two(strings::right)),
    row("lpad", &[Text, Int4], Text, Call::Many(|a, env| strings::pad(a, true, env))),
    row("lpad", &[Text, Int4, Text], Text, Call::Many(|a, env| strings::pad(a, true, env))),
    row("rpad", &[Text, Int4], Text, Call::Many(|a, env| strings::pad(a, false, env))),
    row("rpad", &[Text, Int4, Text], Text, Call::Many(|a, env| strings::pad(a, false, env))),
    row("ltrim", &[Text], Text, Call::Many(|a, _| strings::trim(a, true, false))),
    row("ltrim", &[Text, Text], Text, Call::Many(|a, _| strings::trim(a, true, false))),
    row("rtrim", &[Text], Text, Call::Many(|a, _| strings::trim(a, false, true))),
    row("rtrim", &[Text, Text], Text, Call::Many(|a, _| strings::trim(a, false, true))),
    row("btrim", &[Text], Text, Call::Many(|a, _| strings::trim(a, true, true))),
    row("btrim", &[Text, Text], Text, Call::Many(|a, _| strings::trim(a, true, true))),
    row("replace", &[Text, Text, Text], Text, Call::Many(strings::replace)),
    row("repeat", &[Text, Int4], Text, Call::Many(strings::repeat)),
    row("reverse", &[Text], Text, Call::One(strings::reverse)),
    row("position", &[Text, Text], Int4, Call::Two(strings::position)),
    row("strpos", &[Text, Text], Int4, Call::Two(strings::position)),
    row("translate", &[Text, Text, Text], Text, Call::Many(|a, _| strings::translate(a))),
    row("split_part", &[Text, Text, Int4], Text, Call::Many(|a, _| strings::split_part(a))),
    row("starts_with", &[Text, Text], Bool, Call::Two(strings::starts_with)),
    row("ascii", &[Text], Int4, Call::One(strings::ascii)),
    row("chr", &[Int4], Text, Call::One(strings::chr)),
    row("to_hex", &[Int4], Text, Call::One(|a| strings::to_hex(a, true))),
    row("to_hex", &[Int8], Text, Call::One(|a| strings::to_hex(a, false))),
    row("overlay", &[Text, Text, Int4], Text, Call::Many(|a, _| strings::overlay(a))),
    row("overlay", &[Text, Text, Int4, Int4], Text, Call::Many(|a, _| strings::overlay(a))),
    row("quote_literal", &[Text], Text, Call::One(strings::quote_literal)),
    row("quote_ident", &[Text], Text, Call::One(strings::quote_ident)),
    row("regexp_replace", &[Text, Text, Text], Text, Call::Many(patterns::regexp_replace)),
    row("regexp_replace", &[Text, Text, Text, Text], Text, Call::Many(patterns::regexp_replace)),
    row("regexp_match", &[Text, Text], TextArray, Call::Many(patterns::regexp_match)),
    row("regexp_match", &[Text, Text, Text], TextArray, Call::Many(patterns::regexp_match)),
    row("regexp_split_to_array", &[Text, Text], TextArray, Call::Many(patterns::regexp_split)),
    row("regexp_split_to_array", &[Text, Text, Text], TextArray, Call::Many(patterns::regexp_split)),
    row("regexp_like", &[Text, Text], Bool, Call::Many(patterns::regexp_like)),
    row("regexp_like", &[Text, Text, Text], Bool, Call::Many(patterns::regexp_like)),
    row("regexp_count", &[Text, Text], Int4, Call::Many(patterns::regexp_count)),
    row("regexp_substr", &[Text, Text], Text, Call::Many(patterns::regexp_substr)),
    row("like_escape", &[Text, Text], Text, Call::Two(patterns::like_escape)),
    row("similar_to_escape", &[Text], Text, Call::Many(|a, _| patterns::similar(a))),
    row("similar_to_escape", &[Text, Text], Text, Call::Many(|a, _| patterns::similar(a))),
];

const NUMBERS: &[Function] = &[
    row("abs", &[Int2], Int2, Call::One(maths::abs::<2>)),
    row("abs", &[Int4], Int4, Call::One(maths::abs::<4>)),
    row("abs", &[Int8], Int8, Call::One(maths::abs::<8>)),
    row("abs", &[Float4], Float4, Call::One(|a| Ok(Datum::Float(float(a).abs())))),
    row("abs", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(float(a).abs())))),
    row("abs", &[Numeric], Numeric, Call::One(|a| Ok(Datum::Numeric(numeric(a).abs())))),
    row("ceil", &[Numeric], Numeric, Call::One(|a| Ok(Datum::Numeric(numeric(a).ceil())))),
    row("ceil", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(float(a).ceil())))),
    row("ceiling", &[Numeric], Numeric, Call::One(|a| Ok(Datum::Numeric(numeric(a).ceil())))),
    row("ceiling", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(float(a).ceil())))),
    row("floor", &[Numeric], Numeric, Call::One(|a| Ok(Datum::Numeric(numeric(a).floor())))),
    row("floor", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(float(a).floor())))),
    row("round", &[Numeric], Numeric, Call::One(|a| Ok(Datum::Numeric(numeric(a).round(0))))),
    row("round", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(float(a).round_ties_even())))),
    row("round", &[Numeric, Int4], Numeric, Call::Two(maths::round_to)),
    row("trunc", &[Numeric], Numeric, Call::One(|a| Ok(Datum::Numeric(numeric(a).trunc(0))))),
    row("trunc", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(float(a).trunc())))),
    row("trunc", &[Numeric, Int4], Numeric, Call::Two(maths::trunc_to)),
    row("sign", &[Numeric], Numeric, Call::One(maths::sign)),
    row(
        "sign",
        &[Float8],
        Float8,
        Call::One(|a| {
            let value = float(a);
            Ok(Datum::Float(if value == 0.0 || value.is_nan() { 0.0 } else { value.signum() }))
        }),
    ),
    row("mod", &[Int2, Int2], Int2, Call::Two(maths::rem)),
    row("mod", &[Int4, Int4], Int4, Call::Two(maths::rem)),
    row("mod", &[Int8, Int8], Int8, Call::Two(maths::rem)),
    row(
        "mod",
        &[Numeric, Numeric],
        Numeric,
        Call::Two(|a, b| numeric(a).rem(numeric(b)).map(Datum::Numeric)),
    ),
    row(
        "div",
        &[Numeric, Numeric],
        Numeric,
        Call::Two(|a, b| numeric(a).div_whole(numeric(b)).map(Datum::Numeric)),
    ),
    row("gcd", &[Int4, Int4], Int4, Call::Two(maths::gcd::<4>)),
    row("gcd", &[Int8, Int8], Int8, Call::Two(maths::gcd::<8>)),
    row("lcm", &[Int4, Int4], Int4, Call::Two(maths::lcm::<4>)),
    row("lcm", &[Int8, Int8], Int8, Call::Two(maths::lcm::<8>)),
    row("sqrt", &[Float8], Float8, Call::One(maths::sqrt)),
    row("sqrt", &[Numeric], Numeric, Call::One(|a| numeric(a).sqrt().map(Datum::Numeric))),
    row("cbrt", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(float(a).cbrt())))),
    row("power", &[Float8, Float8], Float8, Call::Two(maths::power)),
    row(
        "power",
        &[Numeric, Numeric],
        Numeric,
        Call::Two(|a, b| numeric(a).power(numeric(b)).map(Datum::Numeric)),
    ),
    row("pow", &[Float8, Float8], Float8, Call::Two(maths::power)),
    row(
        "pow",
        &[Numeric, Numeric],
        Numeric,
        Call::Two(|a, b| numeric(a).power(numeric(b)).map(Datum::Numeric)),
    ),
    row("exp", &[Float8], Float8, Call::One(maths::exp)),
    row("exp", &[Numeric], Numeric, Call::One(|a| numeric(a).exp().map(Datum::Numeric))),
    row("ln", &[Float8], Float8, Call::One(|a| maths::logarithm(a, f64::ln))),
    row("ln", &[Numeric], Numeric, Call::One(|a| numeric(a).ln().map(Datum::Numeric))),
    row("log", &[Float8], Float8, Call::One(|a| maths::logarithm(a, f64::log10))),
    row("log", &[Numeric], Numeric, Call::One(maths::log10_numeric)),
    row(
        "log",
        &[Numeric, Numeric],
        Numeric,
        Call::Two(|a, b| crate::types::Numeric::log(numeric(a), numeric(b)).map(Datum::Numeric)),
    ),
    row("log10", &[Float8], Float8, Call::One(|a| maths::logarithm(a, f64::log10))),
    row("log10", &[Numeric], Numeric, Call::One(maths::log10_numeric)),
    row("pi", &[], Float8, Call::None(|_| Ok(Datum::Float(std::f64::consts::PI)))),
    row(
        "degrees",
        &[Float8],
        Float8,
        Call::One(|a| Ok(Datum::Float(float(a) / (std::f64::consts::PI / 180.0)))),
    ),
    row(
        "radians",
        &[Float8],
        Float8,
        Call::One(|a| Ok(Datum::Float(float(a) * (std::f64::consts::PI / 180.0)))),
    ),
    row("sin", &[Float8], Float8, Call::One(|a| maths::bounded(a, f64::is_finite, f64::sin))),
    row("cos", &[Float8], Float8, Call::One(|a| maths::bounded(a, f64::is_finite, f64::cos))),
    row("tan", &[Float8], Float8, Call::One(|a| maths::bounded(a, f64::is_finite, f64::tan))),
    row("asin", &[Float8], Float8, Call::One(|a| maths::bounded(a, |x| x.abs() <= 1.0, f64::asin))),
    row("acos", &[Float8], Float8, Call::One(|a| maths::bounded(a, |x| x.abs() <= 1.0, f64::acos))),
    row("atan", &[Float8], Float8, Call::One(|a| Ok(Datum::Float(float(a).atan())))),
    row("atan2", &[Float8, Float8], Float8, Call::Two(|a, b| Ok(Datum::Float(float(a).atan2(float(b)))))),
    row("width_bucket", &[Float8, Float8, Float8, Int4], Int4, Call::Many(|a, _| maths::width_bucket(a))),
    row(
        "scale",
        &[Numeric],
        Int4,
        Call::One(|a| {
            Ok(if numeric(a).is_finite() { Datum::Int(i64::from(numeric(a).scale())) } else { Datum::Null })
        }),
    ),
    row("trim_scale", &[Numeric], Numeric, Call::One(|a| Ok(Datum::Numeric(numeric(a).canonical())))),
    row("pg_size_pretty", &[Int8], Text, Call::One(maths::size_pretty)),
    row("pg_size_pretty", &[Numeric], Text, Call::One(maths::size_pretty_numeric)),
    row(
        "random",
        &[],
        Float8,
        Call::None(|_| {
            let bytes = thermocline_base::rng::fresh_id();
            let bits = u64::from_le_bytes([
                bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
            ]);
            Ok(Datum::Float((bits >> 11) as f64 / (1u64 << 53) as f64))
        }),
    ),
    row(
        "gen_random_uuid",
        &[],
        Uuid,
        Call::None(|_| {
            let mut id = thermocline_base::rng::fresh_id();
            id[6] = (id[6] & 0x0f) | 0x40;
            id[8] = (id[8] & 0x3f) | 0x80;
            Ok(Datum::Uuid(id))
        }),
    ),
];

const TIMES: &[Function] = &[
    row("now", &[], TimestampTz, Call::None(|env| Ok(Datum::Timestamp(env.context.local.now_us)))),
    row(
        "transaction_timestamp",
        &[],
        TimestampTz,
        Call::None(|env| Ok(Datum::Timestamp(env.context.local.now_us))),
    ),
    row(
        "current_timestamp",
        &[],
        TimestampTz,
        Call::None(|env| Ok(Datum::Timestamp(env.context.local.now_us))),
    ),
    row(
        "statement_timestamp",
        &[],
        TimestampTz,
        Call::None(|env| Ok(Datum::Timestamp(env.context.statement))),
    ),
    row(
        "clock_timestamp",
        &[],
        TimestampTz,
        Call::None(|_| {
            use thermocline_base::clock::Clock;
            Ok(Datum::Timestamp(thermocline_base::clock::SystemClock.wall_us()))
        }),
    ),
    row("localtimestamp", &[], Timestamp, Call::None(|env| Ok(Datum::Timestamp(dates::now_shown(env))))),
    row(
        "localtime",
        &[],
        Time,
        Call::None(|env| Ok(Datum::Time(dates::now_shown(env).rem_euclid(datetime::DAY)))),
    ),
    row(
        "current_date",
        &[],
        Date,
        Call::None(|env| Ok(Datum::Date(datetime::date_of_timestamp(dates::now_shown(env))))),
    ),
    row("extract", &[Text, Date], Numeric, Call::Two(|a, b| dates::extract(a, b, "date"))),
    row("extract", &[Text, Time], Numeric, Call::Two(|a, b| dates::extract(a, b, "time without time zone"))),
    row(
        "extract",
        &[Text, Timestamp],
        Numeric,
        Call::Two(|a, b| dates::extract(a, b, "timestamp without time zone")),
    ),
    row("extract", &[Text, TimestampTz], Numeric, Call::TwoIn(dates::extract_in)),
    row("extract", &[Text, Interval], Numeric, Call::Two(|a, b| dates::extract(a, b, "interval"))),
    row("date_part", &[Text, Date], Float8, Call::Two(|a, b| dates::date_part(a, b, "date"))),
    row(
        "date_part",
        &[Text, Time],
        Float8,
        Call::Two(|a, b| dates::date_part(a, b, "time without time zone")),
    ),
    row(
        "date_part",
        &[Text, Timestamp],
        Float8,
        Call::Two(|a, b| dates::date_part(a, b, "timestamp without time zone")),
    ),
    row("date_part", &[Text, TimestampTz], Float8, Call::TwoIn(dates::date_part_in)),
    row("date_part", &[Text, Interval], Float8, Call::Two(|a, b| dates::date_part(a, b, "interval"))),
    row(
        "date_trunc",
        &[Text, Timestamp],
        Timestamp,
        Call::Two(|a, b| dates::truncate(a, b, "timestamp without time zone")),
    ),
    row(
        "date_trunc",
        &[Text, TimestampTz],
        TimestampTz,
        Call::TwoIn(|a, b, env| dates::truncate_in(a, b, dates::zone(env))),
    ),
    row("date_trunc", &[Text, TimestampTz, Text], TimestampTz, Call::Many(|a, _| dates::truncate_at(a))),
    row("date_trunc", &[Text, Interval], Interval, Call::Two(dates::truncate_interval)),
    row("age", &[Timestamp, Timestamp], Interval, Call::Two(dates::age)),
    row("age", &[TimestampTz, TimestampTz], Interval, Call::TwoIn(dates::age_in)),
    row("age", &[Timestamp], Interval, Call::OneIn(dates::age_today)),
    row(
        "age",
        &[TimestampTz],
        Interval,
        Call::OneIn(|value, env| dates::age_today(&dates::local(value, env), env)),
    ),
    row("timezone", &[Text, Timestamp], TimestampTz, Call::Two(dates::at_zone)),
    row("timezone", &[Text, TimestampTz], Timestamp, Call::Two(dates::shown_at_zone)),
    row("timezone", &[Interval, Timestamp], TimestampTz, Call::Two(dates::at_interval)),
    row("timezone", &[Interval, TimestampTz], Timestamp, Call::Two(dates::shown_at_interval)),
    row("isfinite", &[Date], Bool, Call::One(dates::is_finite)),
    row("isfinite", &[Timestamp], Bool, Call::One(dates::is_finite)),
    row("isfinite", &[TimestampTz], Bool, Call::One(dates::is_finite)),
    row("isfinite", &[Interval], Bool, Call::One(dates::is_finite)),
    row("justify_hours", &[Interval], Interval, Call::One(|a| dates::justify(a, true, false))),
    row("justify_days", &[Interval], Interval, Call::One(|a| dates::justify(a, false, true))),
    row("justify_interval", &[Interval], Interval, Call::One(dates::justify_all)),
    row("make_date", &[Int4, Int4, Int4], Date, Call::Many(|a, _| dates::make_date(a))),
    row("make_time", &[Int4, Int4, Float8], Time, Call::Many(|a, _| dates::make_time(a))),
    row(
        "make_timestamp",
        &[Int4, Int4, Int4, Int4, Int4, Float8],
        Timestamp,
        Call::Many(|a, _| dates::make_timestamp(a)),
    ),
    row(
        "make_timestamptz",
        &[Int4, Int4, Int4, Int4, Int4, Float8],
        TimestampTz,
        Call::Many(dates::make_timestamptz),
    ),
    row(
        "make_timestamptz",
        &[Int4, Int4, Int4, Int4, Int4, Float8, Text],
        TimestampTz,
        Call::Many(dates::make_timestamptz),
    ),
    row("to_char", &[Timestamp, Text], Text, Call::Two(|a, b| formats::to_char(a, b, None))),
    row(
        "to_char",
        &[TimestampTz, Text],
        Text,
        Call::TwoIn(|a, b, env| formats::to_char(a, b, Some(dates::zone(env)))),
    ),
    row("to_date", &[Text, Text], Date, Call::Two(formats::to_date)),
    row("to_timestamp", &[Text, Text], TimestampTz, Call::Many(formats::to_timestamp)),
    row("to_timestamp", &[Float8], TimestampTz, Call::One(dates::to_timestamp)),
];

const SESSION: &[Function] = &[
    row("version", &[], Text, Call::None(|_| Ok(Datum::text(crate::VERSION_TEXT)))),
    row("current_database", &[], Name, Call::None(|_| Ok(Datum::text("postgres")))),
    row("current_catalog", &[], Name, Call::None(|_| Ok(Datum::text("postgres")))),
    row("current_user", &[], Name, Call::None(|_| Ok(Datum::text("postgres")))),
    row("session_user", &[], Name, Call::None(|_| Ok(Datum::text("postgres")))),
    row("user", &[], Name, Call::None(|_| Ok(Datum::text("postgres")))),
    row("current_role", &[], Name, Call::None(|_| Ok(Datum::text("postgres")))),
];
