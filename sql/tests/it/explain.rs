//! EXPLAIN, and what ANALYZE counts.

use thermocline_sql::{Datum, Session, Type};

use crate::sessions::{database, one, run};

/// The lines, with times left out.
fn lines(session: &mut Session, text: &str) -> Vec<String> {
    let answer = run(session, text);
    assert_eq!(answer.columns[0].name, "QUERY PLAN");
    let line = |row: usize| {
        let line = answer.text(row, 0).expect("a line");
        let (before, after) = line.split_once("time=").unwrap_or((&line, ""));
        let rest = after.split_once(' ').map_or("", |(_, rest)| rest);
        let line = format!("{before}{rest}");
        line.split_once("Time: ").map_or(line.clone(), |(before, _)| format!("{before}Time"))
    };
    (0..answer.rows.len()).map(line).collect()
}

fn filled() -> Session {
    let mut session = Session::new(&database());
    run(&mut session, "create table t (a int primary key, b int)");
    run(&mut session, "create table u (a int primary key, t int)");
    run(&mut session, "insert into t select g, g % 10 from generate_series(1, 100) g");
    run(&mut session, "insert into u select g, g % 5 from generate_series(1, 20) g");
    session
}

#[test]
fn operators_tell_their_loops_rows_and_what_conditions_took() {
    let mut session = filled();
    let found = lines(&mut session, "explain analyze select * from t where b = 3 limit 4");
    let wanted = [
        "Limit (actual rows=4 loops=1)",
        "  ->  Seq Scan on t, 1 condition (actual rows=4 loops=1)",
        "        Rows Removed by Filter: 29",
        "Planning Time",
        "Execution Time",
    ];
    assert_eq!(found, wanted);
    let text = "explain (analyze, timing off, summary off, costs off, buffers off) \
                select (select count(*) from u where u.t = t.b) from t where a <= 20";
    let wanted = [
        "Index Scan using t_pkey on t (a <=), 1 condition (actual rows=20 loops=1)",
        "  SubPlan 1",
        "    ->  Aggregate (actual rows=1 loops=10)",
        "          ->  Seq Scan on u, 1 condition (actual rows=2 loops=10)",
        "                Rows Removed by Filter: 18",
    ];
    assert_eq!(lines(&mut session, text), wanted);
    let text = "explain (analyze, timing off, summary off) select * from t limit 0";
    let wanted = ["Limit (actual rows=0 loops=1)", "  ->  Seq Scan on t (never executed)"];
    assert_eq!(lines(&mut session, text), wanted);
    // Without ANALYZE nothing runs, and no times are told but by SUMMARY.
    let plain = lines(&mut session, "explain select * from t where a = 1 / 0");
    assert_eq!(plain.len(), 1);
    assert_eq!(lines(&mut session, "explain (summary) select 1"), ["Result", "Planning Time"]);
}

#[test]
fn changes_are_made_and_counted() {
    let mut session = filled();
    let found =
        lines(&mut session, "explain (analyze, summary off) update t set b = 0 where a between 1 and 5");
    assert_eq!(found[0], "Update on t (actual rows=0 loops=1)");
    assert!(found[1].contains("rows=5 loops=1"), "{found:?}");
    assert_eq!(one(&mut session, "select count(*) from t where a <= 5 and b = 0"), "5");
    run(&mut session, "begin");
    let found = lines(&mut session, "explain (analyze, summary off) delete from t returning a");
    assert_eq!(found[0], "Delete on t (actual rows=100 loops=1)");
    run(&mut session, "rollback");
    assert_eq!(one(&mut session, "select count(*) from t"), "100");
    // Statements that follow are not counted for.
    assert_eq!(lines(&mut session, "explain select 1"), ["Result"]);
}

#[test]
fn json_is_json_and_says_the_same() {
    let mut session = filled();
    let answer =
        run(&mut session, "explain (analyze, format json) select * from t join u on t.a = u.t where b < 4");
    assert_eq!((answer.rows.len(), answer.columns[0].ty), (1, Type::Json));
    let text = answer.text(0, 0).expect("it is there");
    let read: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let whole = &read[0];
    assert!(whole["Planning Time"].is_number() && whole["Execution Time"].is_number());
    assert_eq!(whole["Plan"]["Actual Loops"], 1);
    assert_eq!(whole["Plan"]["Actual Rows"], 12);
    assert!(whole["Plan"]["Actual Total Time"].as_f64() >= whole["Plan"]["Actual Startup Time"].as_f64());
    assert_eq!(whole["Plan"]["Plans"].as_array().map(Vec::len), Some(2));
}

#[test]
fn parameters_are_those_of_the_statement_that_is_explained() {
    let mut session = filled();
    let text = "explain (analyze, timing off, summary off) select * from t where a <= $1";
    let mut prepared = session.prepare(text, &[]).expect("it is bound");
    assert_eq!(prepared.parameters(), [Type::Int4]);
    let answer = session.execute_prepared(&mut prepared, &[Datum::Int(7)]).expect("it runs");
    assert!(answer.text(0, 0).expect("a line").ends_with("(actual rows=7 loops=1)"));
}
