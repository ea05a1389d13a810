//! Answers that need no other database to be judged by: of random queries over random rows, each with two ways to ask for the same.
//!
//! | relation | the same rows |
//! |---|---|
//! | partitions of WHERE (TLP) | `q`; `q where p`, `q where not p` and `q where p is null` together |
//! | partitions of HAVING | the same with HAVING |
//! | counts (NoREC) | rows of `q where p`, which may use an index; values of `p` in the rows of `q` that are true |
//! | indexes | a table with indexes, and one without |
//! | WITH | a relation by its name; the same in a materialized and in an inlined WITH |
//!
//! Rigger and Su: Finding Bugs in Database Systems via Query Partitioning (OOPSLA 2020), Detecting Optimization Bugs in Database
//! Engines via Non-Optimizing Reference Engine Construction (ESEC/FSE 2020).

use std::panic::{AssertUnwindSafe, catch_unwind};

use thermocline_base::depth;
use thermocline_base::rng::Rng;
use thermocline_engine::{Database, Options};
use thermocline_sql::Session;

/// Columns of `t`, `bare` (the same rows without indexes) and `u`, with their types.
const T: [(&str, &str); 5] = [("a", "int"), ("b", "int"), ("s", "text"), ("n", "numeric"), ("o", "bool")];
const U: [(&str, &str); 3] = [("a", "int"), ("s", "text"), ("n", "numeric")];
const JOINS: [&str; 4] = ["join", "left join", "right join", "full join"];

struct Source(Rng);

impl Source {
    fn pick<'p, T>(&mut self, from: &'p [T]) -> &'p T {
        &from[self.0.below(from.len() as u64) as usize]
    }

    fn constant(&mut self, ty: &str) -> String {
        let values: &[&str] = match ty {
            "int" => &["0", "1", "2", "3", "-1", "null"],
            "text" => &["''", "'a'", "'b'", "'ab'", "null"],
            "numeric" => &["0", "1.00", "2.5", "-1.25", "null"],
            _ => &["true", "false", "null"],
        };
        let value = *self.pick(values);
        format!("{value}::{ty}")
    }

    /// A value of a type, of the columns of a scope.
    fn value(&mut self, scope: &[(String, &str)], ty: &str, depth: u32) -> String {
        let columns: Vec<_> = scope.iter().filter(|(_, of)| *of == ty).collect();
        if depth == 0 || self.0.chance(0.5) {
            return match columns[..] {
                [] => self.constant(ty),
                _ if self.0.chance(0.3) => self.constant(ty),
                _ => self.pick(&columns).0.clone(),
            };
        }
        let (a, b) = (self.value(scope, ty, depth - 1), self.value(scope, ty, depth - 1));
        match (ty, self.0.below(4)) {
            ("int" | "numeric", 0) => format!("({a} + {b})"),
            ("text", 0) => format!("({a} || {b})"),
            ("bool", 0) => self.condition(scope, depth - 1),
            (_, 1) => format!("nullif({a}, {b})"),
            (_, 2) => {
                let condition = self.condition(scope, depth - 1);
                format!("case when {condition} then {a} else {b} end")
            }
            _ => format!("coalesce({a}, {b})"),
        }
    }

    fn condition(&mut self, scope: &[(String, &str)], depth: u32) -> String {
        let ty = *self.pick(&["int", "int", "text", "numeric", "bool"]);
        let below = depth.saturating_sub(1);
        let (a, b) = (self.value(scope, ty, below), self.value(scope, ty, below));
        let op = *self.pick(&["=", "<>", "<", "<=", ">", ">=", "="]);
        if depth == 0 {
            return format!("({a} {op} {b})");
        }
        let not = *self.pick(&["", "not "]);
        match self.0.below(11) {
            0 => format!("({} and {})", self.condition(scope, below), self.condition(scope, below)),
            1 => format!("({} or {})", self.condition(scope, below), self.condition(scope, below)),
            2 => format!("(not {})", self.condition(scope, below)),
            3 => format!("({a} is {not}null)"),
            4 => format!("({a} is {not}distinct from {b})"),
            5 => format!("({a} {not}in ({b}, {}))", self.value(scope, ty, below)),
            6 => format!("({a} {not}between {b} and {})", self.value(scope, ty, below)),
            7 => {
                format!("({not}exists (select from u as i where i.a = {}))", self.value(scope, "int", below))
            }
            8 if ty != "bool" => {
                let column = U.iter().find(|(_, of)| *of == ty).expect("u has such a column").0;
                format!(
                    "({a} {not}in (select i.{column} from u as i where i.a {op} {}))",
                    self.value(scope, "int", 0)
                )
            }
            9 if ty != "bool" => {
                let column = U.iter().find(|(_, of)| *of == ty).expect("u has such a column").0;
                let quantor = *self.pick(&["any", "all"]);
                format!("({a} {op} {quantor} (select i.{column} from u as i))")
            }
            _ => format!("({a} {op} {b})"),
        }
    }

    /// The text behind FROM, and its columns. `first`: the name of the table that stands first.
    fn relation(&mut self, first: &str) -> (String, Vec<(String, &'static str)>) {
        let named = |alias: &str, columns: &[(&str, &'static str)]| {
            columns.iter().map(|(name, ty)| (format!("{alias}.{name}"), *ty)).collect::<Vec<_>>()
        };
        let (mut text, mut scope) = (format!("{first} as x"), named("x", &T));
        if self.0.chance(0.6) {
            scope.extend(named("y", &U));
            let kind = *self.pick(&JOINS);
            let equal = *self.pick(&["x.a = y.a", "x.s = y.s", "x.b = y.a", "x.n = y.n"]);
            let more = if kind != "full join" && self.0.chance(0.4) {
                format!(" and {}", self.condition(&scope, 1))
            } else {
                String::new()
            };
            text = format!("{text} {kind} u as y on {equal}{more}");
        }
        (text, scope)
    }
}

/// The rows of a query, sorted, or the SQLSTATE of its error.
fn rows(session: &mut Session, text: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let run = catch_unwind(AssertUnwindSafe(|| session.run(text, |answer| all.push(answer))));
    match run {
        Err(_) => panic!("{text}"),
        Ok(Err(error)) => return Err(error.code.to_owned()),
        Ok(Ok(())) => {}
    }
    let answer = all.pop().expect("one statement");
    let width = answer.columns.len();
    let row = |row: usize| {
        let values = (0..width).map(|column| answer.text(row, column).unwrap_or_else(|| "null".to_owned()));
        values.collect::<Vec<_>>().join("|")
    };
    let mut found: Vec<String> = (0..answer.rows.len()).map(row).collect();
    found.sort_unstable();
    Ok(found)
}

/// Asks for the same in two ways, each of which may take several queries.
fn same(session: &mut Session, one: &[String], other: &[String]) {
    let mut ask = |texts: &[String]| {
        let mut all = Vec::new();
        for text in texts {
            all.extend(rows(session, text)?);
        }
        all.sort_unstable();
        Ok::<_, String>(all)
    };
    let (a, b) = (ask(one), ask(other));
    assert!(a == b, "{one:#?}\n{other:#?}\n{a:?}\n{b:?}");
}

fn filled(source: &mut Source) -> Session {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let mut session = Session::new(&db);
    let mut run = |text: &str| session.run(text, drop).unwrap_or_else(|error| panic!("{text}: {error}"));
    for table in ["t", "bare"] {
        run(&format!("create table {table} (a int, b int, s text, n numeric(6,2), o bool)"));
    }
    run("create table u (a int, s text, n numeric(6,2))");
    for index in ["t (a)", "t (s, a desc)", "t (n)", "u (a, s)"] {
        run(&format!("create index on {index}"));
    }
    for (table, columns, count) in [("t", &T[..], 20), ("u", &U[..], 12)] {
        for _ in 0..source.0.between(0, count) {
            let values: Vec<String> = columns.iter().map(|(_, ty)| source.constant(ty)).collect();
            run(&format!("insert into {table} values ({})", values.join(", ")));
        }
    }
    run("insert into bare select * from t");
    session
}

#[test]
fn two_ways_to_ask_have_one_answer() {
    let mut source = Source(Rng::new(depth::seed()));
    for _ in 0..depth::either(6, 300) {
        let mut session = filled(&mut source);
        for _ in 0..40 {
            relations(&mut source, &mut session);
        }
    }
}

fn relations(source: &mut Source, session: &mut Session) {
    let (from, scope) = source.relation("t");
    let p = source.condition(&scope, 2);
    let columns: Vec<&str> = scope.iter().map(|(name, _)| name.as_str()).collect();
    let listed = columns.join(", ");
    let all = format!("select {listed} from {from}");
    let parts = |clause: &str, text: &str| {
        ["", "not ", "is null"].map(|how| match how {
            "is null" => format!("{text} {clause} ({p}) is null"),
            how => format!("{text} {clause} {how}({p})"),
        })
    };
    same(session, std::slice::from_ref(&all), &parts("where", &all));
    // The same within the groups of all columns.
    let grouped = format!("{all} group by {listed}");
    same(session, std::slice::from_ref(&grouped), &parts("having", &grouped));
    let counted = [format!("select count(*) from {from} where {p}")];
    same(
        session,
        &counted,
        &[format!("select count(*) from (select ({p}) as p from {from}) as q where q.p is true")],
    );
    same(session, &counted, &[format!("select count(*) filter (where {p}) from {from}")]);
    let where_p = [format!("{all} where {p}")];
    same(session, &where_p, &[format!("{} where {p}", all.replacen("from t as x", "from bare as x", 1))]);
    for how in ["materialized", "not materialized"] {
        let named =
            format!("with w as {how} (select * from t) {}", all.replacen("from t as x", "from w as x", 1));
        same(session, &where_p, &[format!("{named} where {p}")]);
    }
    same(
        session,
        &where_p,
        &[format!("select {listed} from {from} where case when {p} then true else false end")],
    );
}
