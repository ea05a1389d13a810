//! What a statement may take: stack, memory, turns of its thread. Each statement here answers, or is refused with the code of the
//! bound that it meets; none ends the process, and the session goes on.

use std::task::{Context, Poll, Waker};

use thermocline_engine::{Database, Options};
use thermocline_sql::{Cause, Interrupt, Session};

use crate::sessions::{code, database, one, run};

/// Runs a test on a thread with so much stack: statements that nest are refused on a small one and answered on a large one.
fn on_stack(bytes: usize, test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(bytes).spawn(test).expect("the system has a thread");
    thread.join().expect("it ends well");
}

/// The answer's first value, or the code.
fn outcome(session: &mut Session, text: &str) -> String {
    match session.execute(text, &[]) {
        Ok(answer) => answer.text(0, 0).unwrap_or_else(|| answer.tag.clone()),
        Err(error) => error.code.to_owned(),
    }
}

/// Statements that nest deeply: a name, the text, what it answers.
fn deep() -> Vec<(&'static str, String, &'static str)> {
    let chain = |count: usize| {
        let parts: Vec<String> =
            (1..count).map(|n| format!("c{n} as (select x + 0 as x from c{})", n - 1)).collect();
        format!("with c0 as (select 1 as x), {} select x from c{}", parts.join(", "), count - 1)
    };
    let lateral: Vec<String> =
        (1..250).map(|n| format!("lateral (select l{}.x + 0 as x) l{n}", n - 1)).collect();
    let side: Vec<String> = (0..400).map(|n| format!("(select {n} as x) s{n}")).collect();
    let nested = |open: &str, close: &str, count| format!("{}1{}", open.repeat(count), close.repeat(count));
    let joins: Vec<String> =
        (1..180).map(|n| format!("left join (select 1 as x) j{n} on j{n}.x = j{}.x", n - 1)).collect();
    let doubling: Vec<String> = (1..60)
        .map(|n| format!("c{n} as (select p.x from c{0} p join c{0} q on p.x = q.x)", n - 1))
        .collect();
    vec![
        ("WITH queries in a chain", chain(1000), "1"),
        ("LATERAL in a chain", format!("select l249.x from (select 1 as x) l0, {}", lateral.join(", ")), "1"),
        ("sub-queries side by side", format!("select s399.x from {}", side.join(", ")), "399"),
        ("outer joins in a chain", format!("select j179.x from (select 1 as x) j0 {}", joins.join(" ")), "1"),
        ("sub-queries within each other", format!("select {}", nested("(select ", ")", 40)), "1"),
        (
            "sub-queries in FROM within each other",
            {
                let (open, close): (String, String) =
                    (0..40).map(|n| ("select x from (".to_owned(), format!(") s{n}"))).unzip();
                format!("{open}select 1 as x{close}")
            },
            "1",
        ),
        ("functions within each other", format!("select {}", nested("abs(", ")", 150)), "1"),
        ("CASE within each other", format!("select {}", nested("case when true then ", " end", 150)), "1"),
        ("a long sum", format!("select {}", vec!["1"; 790].join(" + ")), "790"),
        ("a long union", vec!["select 1 as x"; 190].join(" union all "), "1"),
        ("a long conjunction", format!("select 1 where {}", vec!["1 = 1"; 5000].join(" and ")), "1"),
        (
            "EXISTS within each other",
            format!("select 1 where {}true{}", "exists (select 1 where ".repeat(40), ")".repeat(40)),
            "1",
        ),
        (
            "WITH queries that double",
            format!("with c0 as (select 1 as x), {} select x from c59", doubling.join(", ")),
            "1",
        ),
        (
            "many rows of sub-queries",
            format!("select count(*) from (values {}) v", vec!["((select 1))"; 3000].join(", ")),
            "3000",
        ),
        (
            "functions that make rows within each other",
            format!("select {}", nested("generate_series(1, ", ")", 90)),
            "1",
        ),
    ]
}

#[test]
fn statements_nest_as_deeply_as_the_stack_allows() {
    for (bytes, all_answer) in [(256 << 10, false), (2 << 20, false), (64 << 20, true)] {
        on_stack(bytes, move || {
            let db = database();
            for (what, text, answer) in deep() {
                let mut session = Session::new(&db);
                let said = outcome(&mut session, &text);
                let fits = said == answer || !all_answer && said == "54001";
                assert!(fits, "{what} with {bytes} bytes of stack: {said}");
                assert!(all_answer || said == "54001" || bytes > 256 << 10 || said == answer, "{what}");
                assert_eq!(outcome(&mut session, "select 2"), if bytes > 512 << 10 { "2" } else { "54001" });
            }
        });
    }
}

#[test]
fn views_of_views_are_bounded() {
    for bytes in [2 << 20, 64 << 20] {
        on_stack(bytes, || {
            let db = database();
            let mut session = Session::new(&db);
            run(&mut session, "create view v0 as select 1 as x");
            run(&mut session, "create view w0 as select 1 as x");
            let mut last = 0;
            for n in 1..300 {
                if outcome(&mut session, &format!("create view v{n} as select x from v{}", n - 1)) == "54001"
                {
                    break;
                }
                last = n;
            }
            assert!(["1", "54001"].contains(&&*outcome(&mut session, &format!("select x from v{last}"))));
            // Each names the one before it twice.
            let mut said = String::new();
            for n in 1..40 {
                let before = n - 1;
                let view = format!("create view w{n} as select p.x from w{before} p, w{before} q");
                said = outcome(&mut session, &view);
                if said == "54001" {
                    break;
                }
            }
            assert_eq!(said, "54001");
            // The catalogs list them all the same.
            let count = one(&mut session, "select count(*) from pg_class where relkind = 'v'");
            assert!(count.parse::<usize>().expect("a number") > last);
            run(&mut session, "select count(*) from pg_attribute");
        });
    }
}

#[test]
fn a_statement_has_a_bounded_number_of_parts() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (a int)");
    let many: Vec<String> = (0..2000).map(|n| format!("t t{n}")).collect();
    assert_eq!(outcome(&mut session, &format!("select 1 from {}", many.join(", "))), "54001");
}

/// A table of 40,000 rows with texts, and another one that refers to it, under a limit of which queries get 16 MiB.
fn filled() -> Database {
    let options = Options::default().with_memory_limit(Some(96 << 20));
    let db = Database::open_in_memory(options).expect("it opens");
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key, n int, name text)");
    run(&mut session, "create index on t (n)");
    run(
        &mut session,
        "insert into t select g, g % 100, repeat('x', 50) || g from generate_series(1, 40000) g",
    );
    run(&mut session, "create table u (id int primary key references t on delete cascade, name text)");
    run(&mut session, "insert into u select id, name from t where id <= 20000");
    db
}

#[test]
fn what_statements_keep_is_charged_and_goes_back() {
    let db = filled();
    let mut session = Session::new(&db);
    let wide = "repeat(name, 20)";
    let refused = [
        format!("select id, {wide} from t"),
        format!("select id, {wide} as w from t order by w desc"),
        format!("select distinct {wide} || id from t"),
        format!("select {wide}, count(*) from t group by 1"),
        format!("select string_agg({wide}, ',') from t"),
        format!("select array_agg({wide}) from t"),
        format!("select json_agg({wide}) from t"),
        format!("select count(distinct {wide}) from t"),
        format!("select {wide}, row_number() over (order by name) from t"),
        format!("select count(*) from t a join (select {wide} as w from t) b on b.w = a.name"),
        format!("select count(*) from t a, (select {wide} as w from t) b where b.w < a.name"),
        format!("select {wide} from t union select {wide} || 'x' from t"),
        format!("select {wide} from t except select {wide} || 'x' from t"),
        format!("select count(*) from t where name in (select {wide} from t)"),
        format!("select count(*) from t where name < all (select {wide} from t)"),
        format!("with q as (select {wide} as w from t) select count(*) from q a join q b on a.w = b.w"),
        format!("insert into t select id + 100000, n, {wide} from t"),
        format!("update t set name = {wide} returning name"),
        format!("delete from u returning {wide}"),
        "select repeat('x', 1000000000)".to_owned(),
        "select lpad('x', 200000000)".to_owned(),
        "select replace(repeat('a', 10000), 'a', repeat('b', 10000))".to_owned(),
        "select regexp_replace(repeat('a', 10000), 'a', repeat('b', 10000), 'g')".to_owned(),
        "select generate_series(1, 10000000000)".to_owned(),
        "select * from generate_series(1, 10000000000)".to_owned(),
        "select generate_series(1, 10000000000::numeric)".to_owned(),
        "select * from generate_series('0001-01-01'::timestamp, '9999-01-01', '1 second')".to_owned(),
        "select array_agg(g) from generate_series(1, 10000000000) g".to_owned(),
        "select count(*) from (select g from generate_series(1, 10000000000) g order by g) s".to_owned(),
        "with recursive r(n) as (select 1 union select n + 1 from r) select count(*) from r".to_owned(),
        "with recursive r(n) as (select 1 union all select n + g from r, generate_series(1, 2) g) select count(*) from r".to_owned(),
        format!("select 1 where 1 in ({})", vec!["1"; 200_000].join(", ")),
        format!("values {}", vec!["(1)"; 200_000].join(", ")),
    ];
    for text in &refused {
        let shown = &text[..text.len().min(100)];
        assert_eq!(outcome(&mut session, text), "53200", "{shown}");
        assert_eq!(db.statistics().memory.queries, 0, "{shown}");
    }
    // In a transaction, as a cursor, and what fits.
    run(&mut session, "begin");
    let cursor = format!("declare c cursor for select {wide} from t order by n + 0");
    assert_eq!(code(&mut session, &cursor), "53200");
    run(&mut session, "rollback");
    run(&mut session, "begin");
    run(&mut session, "declare c cursor for select id, name from t order by n + 0");
    assert!(db.statistics().memory.queries > 500_000);
    assert_eq!(run(&mut session, "fetch 2 from c").rows.len(), 2);
    run(&mut session, "commit");
    assert_eq!(db.statistics().memory.queries, 0);
    let answer = run(&mut session, "select id, name from t");
    assert!(answer.rows.len() == 40_000 && db.statistics().memory.queries > 4_000_000);
    drop(answer);
    for (text, answer) in [
        ("select count(*) from t", "40000"),
        ("select count(*) from t a join t b using (id)", "40000"),
        ("select generate_series(1, 10000000000) limit 3", "1"),
        ("select * from generate_series(5, 10000000000) limit 3", "5"),
        ("select count(*) from (select generate_series(1, 200000)) s", "200000"),
        ("select n from (select n, row_number() over (order by id) from t) s limit 1", "1"),
        ("delete from t where id <= 20000", "DELETE 20000"),
        ("select count(*) from u", "0"),
    ] {
        assert_eq!(outcome(&mut session, text), answer, "{text}");
        assert_eq!(db.statistics().memory.queries, 0, "{text}");
    }
}

/// Each kind of work stops between its rows, so that others of the thread have a turn.
#[test]
fn what_takes_long_gives_way() {
    let db = filled();
    for text in [
        "select count(*) from t where name like '%77%'",
        "select count(*) from generate_series(1, 300000) g",
        "select count(*) from (select generate_series(1, 300000)) s",
        "select name from t order by name desc",
        "select n, count(*), array_agg(name) from t group by n",
        "select distinct name from t",
        "select count(*) from t a join t b using (id)",
        "select count(*) from (select * from t limit 300) a, (select * from t limit 300) b where a.name < b.name",
        "select sum(id) over (partition by n order by id) from t",
        "select sum(id) over (order by id rows between 20 preceding and current row) from t",
        "select name from t union select name from t",
        "select name from t except select name from t where n < 50",
        "select count(*) from t a where exists (select 1 from u where u.id = a.id)",
        "select x.n, y.c from (select distinct n from t) x, lateral (select count(*) as c from t where t.n = x.n) y",
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 20000) select count(*) from r",
        "with q as (select id from t) select count(*) from q a join q b using (id)",
        "select id from t where id between 5 and 39000",
        "insert into t select id + 100000, n, name from t where id <= 5000",
        "update t set n = n + 1 where id <= 5000",
        "delete from t where id > 100000",
        "delete from t where id <= 3000",
        "alter table t add constraint checked check (length(name) > 1)",
        "alter table t add column more int default 5 check (more < id + 10)",
    ] {
        let mut session = Session::new(&db);
        let mut future = std::pin::pin!(session.execute_async(text, &[]));
        let mut context = Context::from_waker(Waker::noop());
        let mut turns = 0;
        let answer = loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(answer) => break answer,
                Poll::Pending => turns += 1,
            }
        };
        answer.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(turns > 0, "{text} has kept its thread");
    }
}

/// A query without end hears that it is to end.
#[test]
fn endless_queries_are_cancelled() {
    let db = filled();
    for text in [
        "with recursive r(n) as (select 1 union all select n from r) select count(*) from r",
        "with recursive r(n) as (select 1 union all select n from r) select max(r.n) from r, t",
        "select count(*) from generate_series(1, 1000000000000)",
        "select count(*) from (select generate_series(1, 1000000000000)) s",
        "select count(*) from t a, t b, t c where a.n + b.n + c.n = -1",
        "select sum(id) over (order by id rows between unbounded preceding and current row exclude no others) from t",
        "select (select count(*) from t b, t c where b.n + c.n = a.n) from t a",
        "update t set n = 1 where id in (select a.id from t a, t b where a.n + b.n < 0)",
    ] {
        let interrupt = Interrupt::default();
        let mut session = Session::new(&db).with_interrupt(interrupt.clone());
        let mut future = std::pin::pin!(session.execute_async(text, &[]));
        let mut context = Context::from_waker(Waker::noop());
        let mut turns = 0;
        let answer = loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(answer) => break answer,
                Poll::Pending => turns += 1,
            }
            if turns == 3 {
                interrupt.raise(Cause::Cancelled);
            }
        };
        let code = answer.map_or_else(|error| error.code, |_| "none");
        assert!(code == "57014" || text.contains("exclude") && code == "0A000", "{text}: {code}");
        assert_eq!(db.statistics().memory.queries, 0, "{text}");
    }
}

/// Some twenty bytes are kept of a short row that is changed: a sixth of the limit, which queries may take, would hold 26,000 rows
/// as vectors of values.
#[test]
fn changes_of_many_short_rows_fit_a_small_limit() {
    let options = Options::default().with_memory_limit(Some(32 << 20));
    let db = Database::open_in_memory(options).expect("it opens");
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key, n int)");
    run(&mut session, "create table u (id int primary key, n int)");
    for text in [
        "insert into t select i, i % 7 from generate_series(1, 60000) i",
        "update t set n = n + 1",
        "insert into u select id, n from t",
        "delete from t where n > 0",
    ] {
        assert_eq!(run(&mut session, text).count, 60_000, "{text}");
        assert_eq!(db.statistics().memory.queries, 0, "{text}");
    }
}
