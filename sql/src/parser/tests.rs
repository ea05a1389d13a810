//! What the parser takes, where it says errors are, and that depth ends nothing.

use super::ast::{ExprKind, SetExpr, Statement};
use super::parse;

fn shape(text: &str) -> String {
    fn show(expr: &super::ast::Expr) -> String {
        match &expr.kind {
            ExprKind::Int(number) => number.to_string(),
            ExprKind::Column(names) => names.join("."),
            ExprKind::Unary(op, arg) => format!("({op} {})", show(arg)),
            ExprKind::Binary(op, left, right) => format!("({} {op} {})", show(left), show(right)),
            ExprKind::And(terms) => format!("({})", terms.iter().map(show).collect::<Vec<_>>().join(" and ")),
            ExprKind::Or(terms) => format!("({})", terms.iter().map(show).collect::<Vec<_>>().join(" or ")),
            ExprKind::Not(arg) => format!("(not {})", show(arg)),
            ExprKind::Between { arg, low, high, .. } => {
                format!("({} between {} {})", show(arg), show(low), show(high))
            }
            ExprKind::Cast(arg, ty) => format!("{}::{}", show(arg), ty.name.join(".")),
            other => format!("{other:?}"),
        }
    }
    let parsed = parse(&format!("select {text}")).expect("it parses");
    let Statement::Query(query) = &parsed[0].statement else { panic!("a query") };
    let SetExpr::Select(select) = &query.body else { panic!("a select") };
    show(&select.items[0].expr)
}

#[test]
fn precedence_is_that_of_postgresql() {
    for (text, expected) in [
        ("1+2*3", "(1 + (2 * 3))"),
        ("1-2-3", "((1 - 2) - 3)"),
        ("2^3^2", "((2 ^ 3) ^ 2)"),
        ("-a^2", "((- a) ^ 2)"),
        ("not a = b and c or d", "(((not (a = b)) and c) or d)"),
        ("a || b + c", "(a || (b + c))"),
        ("a between 1 and 2 and b", "((a between 1 2) and b)"),
        ("a < b || c", "(a < (b || c))"),
        ("- a::int4", "(- a::int4)"),
        ("1 +- 2", "(1 + -2)"),
    ] {
        assert_eq!(shape(text), expected, "{text}");
    }
}

#[test]
fn syntax_errors_say_where() {
    for (text, message, position) in [
        ("select 1 frm t", "syntax error at or near \"t\"", 14),
        ("select * from t where", "syntax error at end of input", 22),
        ("sélect 1", "syntax error at or near \"sélect\"", 1),
        ("select 'é', ) ", "syntax error at or near \")\"", 13),
        ("select 1a", "trailing junk after numeric literal at or near \"1a\"", 8),
        ("select 'x", "unterminated quoted string at or near \"'x\"", 8),
        ("select 1 = 2 = 3", "syntax error at or near \"=\"", 14),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!((error.message.as_str(), error.position), (message, Some(position)), "{text}");
        assert_eq!(error.code, "42601");
    }
}

#[test]
fn depth_is_refused_and_ends_nothing() {
    let deep = |open: &str, inner: &str, close: &str| {
        let text = format!("select {}{inner}{}", open.repeat(100_000), close.repeat(100_000));
        parse(&text).expect_err("too deep").code
    };
    assert_eq!(deep("(", "1", ")"), "54001");
    assert_eq!(deep("(select ", "1", ")"), "54001");
    assert_eq!(deep("not ", "true", ""), "54001");
    assert_eq!(deep("- ", "a", ""), "54001");
    assert_eq!(deep("", "1", " + 1"), "54001");
    assert_eq!(deep("", "1", " union select 1"), "54001");
    assert_eq!(deep("case when ", "true", " then 1 end"), "54001");
    // Chains of AND and OR are long in what programs write; they are no depth.
    let long = format!("select true{}", " and true".repeat(100_000));
    assert!(parse(&long).is_ok());
}

#[test]
fn statements_of_drivers_parse() {
    for text in
        include_str!("../../tests/drivers.sql").split(";\n").map(str::trim).filter(|text| !text.is_empty())
    {
        // What is known and refused says so.
        if let Err(error) = parse(text)
            && error.code != "0A000"
        {
            panic!("{error} at {:?} in {text}", error.position);
        }
    }
}
