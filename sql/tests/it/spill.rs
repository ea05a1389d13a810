//! Sorts and groups that memory does not hold: their rows go to files, and come back as they went.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::io::{Io, MemoryIo};
use thermocline_engine::{Database, Options};
use thermocline_sql::{Cause, Interrupt, Session};

fn run(session: &mut Session, text: &str) {
    session.run(text, drop).unwrap_or_else(|error| panic!("{text}: {error}"));
}

fn rows(session: &mut Session, text: &str) -> Vec<String> {
    let answer = session.execute(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
    let row = |row: usize| {
        let values =
            (0..answer.columns.len()).map(|at| answer.text(row, at).unwrap_or_else(|| "null".to_owned()));
        values.collect::<Vec<_>>().join("|")
    };
    (0..answer.rows.len()).map(row).collect()
}

fn refused(session: &mut Session, text: &str) -> &'static str {
    session.execute(text, &[]).expect_err(text).code
}

/// Values of all kinds that rows may have, some equal, some null.
const FILL: &str = "insert into t select n, nullif(n % 97, 3), 'text ' || (n % 1000), n / 7.0,
    n::numeric * 123456789012345678901, case n % 3 when 0 then 'nan' when 1 then 'infinity' else n::text end::numeric,
    array[n, null, n % 5], jsonb_build_object('n', n % 11), n * interval '1 minute', date '2026-01-01' + n % 400,
    n % 2 = 0, (n % 13)::float8 / 3, decode(lpad(to_hex(n % 256), 2, '0'), 'hex'), (n % 50)::text::char(5)
    from generate_series(1, 6000) as n";

fn filled(options: Options) -> (tempfile::TempDir, Database, Session) {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let db = Database::open(dir.path(), options).expect("it opens");
    let mut session = Session::new(&db);
    run(
        &mut session,
        "create table t (k int, a int, s text, n numeric(12,4), big numeric(40), odd numeric, list int[], j jsonb,
            iv interval, d date, b bool, f float8, y bytea, c char(5))",
    );
    run(&mut session, FILL);
    (dir, db, session)
}

#[test]
fn answers_beyond_memory_are_the_same() {
    let (dir, db, mut session) = filled(Options::default());
    let queries = [
        "select * from t order by s desc, a nulls first",
        "select *, row(k, s) from t order by a, f",
        "select k from t order by odd, list desc, k % 10, c",
        "select distinct on (a) a, k from t order by a, k desc",
        "select s, c, count(*), sum(n), max(d), string_agg(c, ',') from t group by s, c",
        "select k, sum(big), min(iv) filter (where b), array_agg(j) from t group by k",
        "select c, k % 2000, count(*) filter (where a > 50), sum(k) filter (where k > 6000), min(c), max(d) from t group by 1, 2",
        "select nullif(s, 'text 7'), d, k, avg(n), count(a), max(f), string_agg(s, ',') filter (where b) from t group by 1, 2, 3",
        "select case when k % 2 = 0 then 1.50 else 1.5 end * (k % 3000) as m, y, count(*) from t group by 1, 2",
        "select case when k < 5000 then null else k end as m, case when k > 3000 then s end, count(*) from t group by 1, 2",
        "select list, count(distinct a), string_agg(s, ',' order by k) from t group by list",
        "select odd, f, count(*) from (select * from t offset 0) as t group by odd, f having count(*) > 0",
        "select sum(total) from (select s, k % 1000 as m, sum(k) as total from t group by 1, 2) as q",
        "select s, row_number() over (order by k) from (select * from t order by y, k) as q order by 2 limit 50",
        "select k, s from t order by j, iv desc, n nulls first, row(a, c)",
    ];
    for query in queries {
        run(&mut session, "reset work_mem");
        let mut wanted = rows(&mut session, query);
        run(&mut session, "set work_mem = '64kB'");
        let mut found = rows(&mut session, query);
        // Groups come in any order.
        if query.contains("group by") {
            wanted.sort_unstable();
            found.sort_unstable();
        }
        assert!(wanted == found, "{query}: {} and {} rows", wanted.len(), found.len());
    }
    let spill = dir.path().join("spill");
    assert_eq!(std::fs::read_dir(&spill).expect("rows went there").count(), 0, "the files have no names");
    drop(session);
    assert_eq!(db.statistics().memory.queries, 0, "all memory was given back");
}

/// OFFSET over ORDER BY, whose rows a sort does not make, in memory and beyond.
#[test]
fn rows_that_are_passed_over_are_the_first_ones() {
    let (_dir, _db, mut session) = filled(Options::default());
    let queries = [
        "select * from t order by s desc, a nulls first, k",
        "select k from t order by y, b desc nulls last, k",
        "select d, k from t where k > 100 order by d desc, n, k",
        "select s from (select * from t offset 0) as q order by f, k",
        "select k, y || y from t order by 2 desc, k",
    ];
    for query in queries {
        run(&mut session, "reset work_mem");
        let all = rows(&mut session, query);
        for work_mem in ["64kB", "64MB"] {
            run(&mut session, &format!("set work_mem = '{work_mem}'"));
            for offset in [1, 2500, all.len(), all.len() + 1] {
                let left = &all[offset.min(all.len())..];
                let found = rows(&mut session, &format!("{query} offset {offset}"));
                assert!(found == left, "{query}, {work_mem}, offset {offset}: {} rows", found.len());
            }
            let found = rows(&mut session, &format!("{query} offset 100 limit 3000"));
            assert!(
                found == all[100..all.len().min(3100)],
                "{query}, {work_mem}, limited: {} rows",
                found.len()
            );
        }
    }
}

/// Each of them keeps more than 64 kB.
#[test]
fn rows_are_told_apart_beyond_memory() {
    let (dir, db, mut session) = filled(Options::default());
    let queries = [
        "select distinct k % 5000, s from t",
        "select distinct odd, list, j, big from t",
        "select distinct s || k, iv from t limit 100000",
        "select count(*), sum(a) from (select distinct on (s, c, k % 3) s, c, a from t) as q",
        "select s, k % 70 from t union select s, k % 50 from t",
        "select list, k % 3000 as m from t where k % 2 = 0 intersect select list, k % 4000 from t",
        "select list, k % 1500 as m from t where k % 2 = 0 intersect all select list, k % 2500 from t",
        "select n, k % 3000 as m from t except select n, k % 3000 from t where k % 3 = 0",
        "select odd, k % 1500 as m from t except all select odd, k % 2500 from t where k % 3 = 0",
        "select s, k % 70 from t except select s, k from t where k < 0",
    ];
    for query in queries {
        run(&mut session, "reset work_mem; reset temp_file_limit");
        let mut wanted = rows(&mut session, query);
        run(&mut session, "set work_mem = '64kB'");
        let mut found = rows(&mut session, query);
        wanted.sort_unstable();
        found.sort_unstable();
        assert!(wanted == found, "{query}: {} and {} rows", wanted.len(), found.len());
        run(&mut session, "set temp_file_limit = '8kB'");
        assert_eq!(refused(&mut session, query), "53400", "{query}");
    }
    // An order is kept, and the first rows come without the others.
    run(&mut session, "set temp_file_limit = '8kB'; reset work_mem");
    let sorted = rows(&mut session, "select distinct on (s, k) s, k from t order by s, k desc");
    run(&mut session, "set work_mem = '64kB'; reset temp_file_limit");
    assert!(rows(&mut session, "select distinct on (s, k) s, k from t order by s, k desc") == sorted);
    run(&mut session, "set temp_file_limit = '8kB'");
    assert_eq!(
        rows(&mut session, "select distinct 1000 / (10 - n) from generate_series(1, 1000000) n limit 3")
            .len(),
        3
    );
    assert_eq!(std::fs::read_dir(dir.path().join("spill")).expect("rows went there").count(), 0);
    drop(session);
    assert_eq!(db.statistics().memory.queries, 0, "all memory was given back");
}

#[test]
fn what_the_limit_does_not_hold_is_sorted_and_grouped() {
    let options = Options::default().with_memory_limit(Some(64 << 20));
    let dir = tempfile::tempdir().expect("a directory can be made");
    let db = Database::open(dir.path(), options.clone()).expect("it opens");
    let mut session = Session::new(&db);
    let sort =
        "select sum(n) from (select n, row_number() over () from (select n, repeat('long ', 20) || n as s
        from generate_series(1, 120000) as n order by s offset 0) as q) as q";
    let group = "select count(*), sum(c) from (select s, count(*) as c from (select repeat('long ', 20) || n % 100000 as s
        from generate_series(1, 120000) as n) as q group by s) as q";
    let sort = &sort.replace(", row_number() over ()", "");
    assert_eq!(rows(&mut session, sort), ["7200060000"]);
    assert_eq!(rows(&mut session, group), ["100000|120000"]);
    // A database in memory has no directory for them.
    let db = Database::open_in_memory(options).expect("it opens");
    let mut session = Session::new(&db);
    assert_eq!(refused(&mut session, sort), "53200");
    assert_eq!(refused(&mut session, group), "53200");
}

#[test]
fn files_have_a_limit() {
    let (_dir, _db, mut session) = filled(Options::default());
    run(&mut session, "set work_mem = '64kB'; set temp_file_limit = '200kB'");
    let error = session.execute("select * from t order by s", &[]).expect_err("there is more");
    assert_eq!(
        (error.code, &*error.message),
        ("53400", "temporary file size exceeds \"temp_file_limit\" (200kB)")
    );
    run(&mut session, "set temp_file_limit = '50kB'");
    assert_eq!(refused(&mut session, "select k, max(s) from t group by k"), "53400");
    run(&mut session, "reset temp_file_limit");
    assert_eq!(rows(&mut session, "select k from t order by k desc limit 1"), ["6000"]);
    assert_eq!(
        rows(&mut session, "select count(*) from (select k from t order by s, k offset 0) as q"),
        ["6000"]
    );
}

#[test]
fn a_statement_that_ends_early_leaves_nothing() {
    let (dir, db, mut session) = filled(Options::default());
    run(&mut session, "set work_mem = '64kB'");
    // An error amid the rows, and one amid the sorted ones; a limit behind them.
    assert_eq!(refused(&mut session, "select * from t order by s, 1 / (k - 5990)"), "22012");
    assert_eq!(
        refused(&mut session, "select 1 / (k - 3) from (select * from t order by s desc, k offset 0) as t"),
        "22012"
    );
    assert_eq!(
        rows(&mut session, "select k from (select * from t order by s, k offset 0) as t limit 2").len(),
        2
    );
    assert_eq!(std::fs::read_dir(dir.path().join("spill")).expect("rows went there").count(), 0);
    drop(session);
    assert_eq!(db.statistics().memory.queries, 0, "all memory was given back");
}

/// Queries that keep more than 64 kB, one for each operator that goes beyond memory.
const KEEPING: [&str; 7] = [
    "select count(*) from (select k, s from t order by s, k offset 0) as q",
    "select count(*) from (select k, count(*) from t group by k) as q",
    "select count(*) from (select k, count(*) from (select * from t offset 0) as t group by k) as q",
    "select count(*) from (select distinct k, s from t limit 100000) as q",
    "select count(*) from (select k from t except select k + 3000 from t) as q",
    "select count(distinct k), count(*) from (select * from t offset 0) as t",
    "select string_agg(s, ',' order by s) = '' from (select * from t offset 0) as t",
];

fn over(io: &MemoryIo) -> Database {
    Database::open_with(Path::new("/db"), Options::default(), Arc::new(io.clone()), true).expect("it opens")
}

#[test]
fn a_full_disk_ends_the_query_and_nothing_else() {
    let io = MemoryIo::new();
    let db = over(&io);
    let mut session = Session::new(&db);
    run(&mut session, "create table t (k int, s text)");
    run(&mut session, "insert into t select n, 'text ' || n from generate_series(1, 6000) as n");
    run(&mut session, "set work_mem = '64kB'");
    let wanted = KEEPING.map(|query| rows(&mut session, query));
    let cursor = "declare c cursor for select * from t order by s";
    for (query, wanted) in KEEPING.iter().zip(&wanted) {
        io.set_capacity(Some(0));
        let error = session.execute(query, &[]).expect_err(query);
        assert_eq!(error.code, "53100", "{query}: {error}");
        run(&mut session, "begin");
        let error = session.execute(cursor, &[]).expect_err(cursor);
        assert_eq!(error.code, "53100", "{cursor}: {error}");
        run(&mut session, "rollback");
        io.set_capacity(None);
        assert_eq!(&rows(&mut session, query), wanted, "{query}");
    }
    drop(session);
    assert_eq!(db.statistics().memory.queries, 0, "all memory was given back");
}

/// A process that ends amid such a query leaves the rows of the database, and no file of the query.
#[test]
fn a_crash_amid_a_query_leaves_nothing_of_it() {
    let io = MemoryIo::new();
    let db = over(&io);
    let mut session = Session::new(&db);
    run(&mut session, "create table t (k int, s text)");
    run(&mut session, "insert into t select n, 'text ' || n from generate_series(1, 6000) as n");
    run(&mut session, "set work_mem = '64kB'");
    for query in KEEPING {
        let mut images = Vec::new();
        {
            let mut future = std::pin::pin!(session.execute_async(query, &[]));
            let mut context = Context::from_waker(Waker::noop());
            for turn in 1_u32.. {
                if future.as_mut().poll(&mut context).is_ready() {
                    break;
                }
                if turn.is_power_of_two() {
                    images.push(io.copy());
                }
            }
        }
        assert!(!images.is_empty(), "{query} has kept its thread");
        for image in images.iter().step_by(images.len().div_ceil(3)) {
            let db = over(image);
            assert_eq!(rows(&mut Session::new(&db), "select count(*), sum(k) from t"), ["6000|18003000"]);
            let left = image.list(Path::new("/db/spill")).unwrap_or_default();
            assert_eq!(left, [""; 0], "{query}");
        }
    }
}

/// A cancel in any turn of such a query, and of the fetches of a cursor, ends that statement and no other one.
#[test]
fn a_cancel_amid_a_query_ends_it() {
    let io = MemoryIo::new();
    let db = over(&io);
    let interrupt = Interrupt::default();
    let mut session = Session::new(&db).with_interrupt(interrupt.clone());
    run(&mut session, "create table t (k int, s text)");
    run(&mut session, "insert into t select n, 'text ' || n from generate_series(1, 6000) as n");
    run(&mut session, "set work_mem = '64kB'");
    // Runs a statement, which is cancelled when it has paused so often; none: it ended before.
    let cancelled = |session: &mut Session, text: &str, pauses: u32| {
        let mut future = std::pin::pin!(session.execute_async(text, &[]));
        let mut context = Context::from_waker(Waker::noop());
        for turn in 1_u32.. {
            if let Poll::Ready(outcome) = future.as_mut().poll(&mut context) {
                interrupt.clear();
                return (turn > pauses).then_some(outcome);
            }
            if turn == pauses {
                interrupt.raise(Cause::Cancelled);
            }
        }
        unreachable!("it ends")
    };
    for query in KEEPING {
        let wanted = rows(&mut session, query);
        let mut hit = 0;
        for pauses in (0..).map(|power| 1 << power) {
            // Behind its last pause it may still end well.
            match cancelled(&mut session, query, pauses) {
                None => break,
                Some(Err(error)) => {
                    assert_eq!(error.code, "57014", "{query}: {error}");
                    hit += 1;
                }
                Some(Ok(_)) => {}
            }
            assert_eq!(db.statistics().memory.queries, 0, "{query}: all memory was given back");
        }
        assert!(hit > 0, "{query} was not cancelled");
        assert_eq!(rows(&mut session, query), wanted, "{query}");
    }
    for cursor in ["select k, s from t order by s", "select k, s from t where k > 0"] {
        run(&mut session, "begin");
        run(&mut session, &format!("declare c scroll cursor for {cursor}"));
        run(&mut session, "savepoint before");
        let wanted = rows(&mut session, "fetch 10 from c");
        let outcome = cancelled(&mut session, "fetch all from c", 1).expect("it pauses");
        assert_eq!(outcome.expect_err("it was cancelled").code, "57014", "{cursor}");
        assert_eq!(refused(&mut session, "fetch 1 from c"), "25P02", "{cursor}");
        run(&mut session, "rollback");
        assert_eq!(rows(&mut session, &format!("{cursor} limit 10")), wanted, "{cursor}");
    }
    drop(session);
    assert_eq!(db.statistics().memory.queries, 0, "all memory was given back");
}

/// The files of a statement count together, and no longer once they are gone.
#[test]
fn files_of_a_statement_have_one_limit() {
    let (_dir, _db, mut session) = filled(Options::default());
    run(&mut session, "set work_mem = '64kB'");
    let one = "(select * from t order by s, k offset 0)";
    let bytes = |session: &mut Session, query: &str| {
        (1..100).map(|number| number * 64).find(|kilobytes| {
            run(session, &format!("set temp_file_limit = '{kilobytes}kB'"));
            match session.execute(query, &[]) {
                Ok(_) => true,
                Err(error) => {
                    assert_eq!(error.code, "53400", "{query}: {error}");
                    false
                }
            }
        })
    };
    let alone =
        bytes(&mut session, &format!("select count(*) from {one} as a")).expect("some limit is enough");
    assert!(alone > 64, "it goes beyond memory");
    // A sort whose rows come from a sort, both in files at once; and two whose files are there one after the other.
    let both = bytes(&mut session, &format!("select k from {one} as a order by y, s, k")).expect("as above");
    assert!(both > alone, "{both} kB, and {alone} kB of one");
    let after = format!("select (select count(*) from {one} as a), (select count(*) from {one} as b)");
    assert_eq!(bytes(&mut session, &after), Some(alone));
}
