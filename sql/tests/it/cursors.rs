//! Cursors: rows beyond memory in any direction, when they end, and what they see. A model of them is a vector of all rows.

use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use thermocline_engine::{Database, Options};
use thermocline_sql::{Datum, Session};

use crate::sessions::{code, database, one, run};

/// A database with a directory, its memory limit in MiB, and a table of 6,000 rows of some 200 bytes.
pub(crate) fn filled(limit: Option<u64>) -> (tempfile::TempDir, Database, Session) {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let options = Options::default().with_memory_limit(limit.map(|mib| mib << 20));
    let db = Database::open(dir.path(), options).expect("it opens");
    let mut session = Session::new(&db);
    fill(&mut session);
    (dir, db, session)
}

fn fill(session: &mut Session) {
    run(session, "create table t (id int primary key, n int, name text, a int[], x numeric, y float8)");
    let rows = "insert into t select g, g % 7, 'name ' || g || repeat('.', g % 300), array[g, null], g / 7.0, -g::float8
        from generate_series(1, 6000) g";
    run(session, rows);
}

/// The first values of rows.
pub(crate) fn firsts(session: &mut Session, text: &str) -> Vec<i64> {
    let answer = run(session, text);
    let first = |row: usize| answer.text(row, 0).and_then(|text| text.parse().ok()).expect("a number");
    (0..answer.rows.len()).map(first).collect()
}

fn all(session: &mut Session, text: &str) -> Vec<String> {
    let answer = run(session, text);
    let value = |row, column| answer.text(row, column).unwrap_or_else(|| "null".to_owned());
    let row = |row| (0..answer.columns.len()).map(|column| value(row, column)).collect::<Vec<_>>().join("|");
    (0..answer.rows.len()).map(row).collect()
}

/// Spill files of this database that are open: they have no names.
fn open_files(dir: &Path) -> usize {
    let spill = dir.join("spill");
    let spill = spill.to_str().expect("a path of letters");
    let all = std::fs::read_dir("/proc/self/fd").expect("Linux tells");
    let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_str().is_some_and(|target| target.starts_with(spill))).count()
}

/// A plan whose rows are kept when the cursor is declared, in the order of `id`; and plans that are suspended.
const KEPT: &str = "select * from t order by n * 0, id";
/// A kept plan in the other direction.
const BACKWARD: &str = "select * from t order by n * 0, id desc";
const PLANS: [&str; 3] = [KEPT, "select * from t", "select * from t order by id"];

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A cursor as PostgreSQL describes it, over all of its rows.
struct Model<'m> {
    rows: &'m [String],
    at: i64,
}

impl Model<'_> {
    fn at(&self, place: i64) -> Vec<String> {
        usize::try_from(place - 1).ok().and_then(|place| self.rows.get(place)).cloned().into_iter().collect()
    }

    fn go(&mut self, word: &str, by: i64) -> Vec<String> {
        let behind = self.rows.len() as i64 + 1;
        let place = match word {
            "absolute" if by < 0 => behind + by,
            "absolute" => by,
            "relative" => self.at + by,
            _ if by == 0 => self.at,
            _ => {
                let mut seen = Vec::new();
                for _ in 0..by.abs() {
                    self.at = (self.at + by.signum()).clamp(0, behind);
                    seen.extend(self.at(self.at));
                }
                return seen;
            }
        };
        self.at = place.clamp(0, behind);
        self.at(self.at)
    }
}

/// The same steps over each plan, and over the model.
#[test]
fn cursors_go_as_the_model_does() {
    let (dir, db, mut session) = filled(None);
    run(&mut session, "set work_mem = '64kB'");
    let rows = all(&mut session, KEPT);
    for seed in 0..6 {
        for query in PLANS {
            let mut random = Random(seed);
            let mut model = Model { rows: &rows, at: 0 };
            run(&mut session, "begin");
            run(&mut session, &format!("declare c cursor for {query}"));
            for step in 0..40 {
                let far = [3, 40, 700, 7000][random.below(4) as usize];
                let by = random.below(2 * far + 1) as i64 - far as i64;
                let word = ["forward", "absolute", "relative"][random.below(3) as usize];
                let moves = random.below(4) == 0;
                let wanted = model.go(word, by);
                let context = format!("seed {seed}, step {step}: {word} {by} of {query}");
                if moves {
                    let tag = run(&mut session, &format!("move {word} {by} in c")).tag;
                    assert_eq!(tag, format!("MOVE {}", wanted.len()), "{context}");
                } else {
                    let found = all(&mut session, &format!("fetch {word} {by} from c"));
                    assert!(found == wanted, "{context}: {} and {} rows", found.len(), wanted.len());
                }
            }
            run(&mut session, "move last c");
            assert_eq!(open_files(dir.path()), 1, "{query} goes to a file");
            assert!(db.statistics().memory.queries < 1 << 20, "{} bytes", db.statistics().memory.queries);
            run(&mut session, "commit");
            assert_eq!((open_files(dir.path()), db.statistics().memory.queries), (0, 0), "{query}");
        }
    }
}

/// However a cursor ends, its file and its memory go.
#[test]
fn nothing_is_left_of_a_cursor() {
    let (dir, db, mut session) = filled(None);
    run(&mut session, "set work_mem = '64kB'");
    let declare = |session: &mut Session, hold: &str| {
        run(session, &format!("declare c cursor {hold} for {KEPT}"));
        assert_eq!(firsts(session, "fetch 3 from c"), [1, 2, 3]);
        assert_eq!(open_files(dir.path()), 1);
        assert!(db.statistics().memory.queries > 0);
    };
    let is_gone = |how: &str| {
        assert_eq!((open_files(dir.path()), db.statistics().memory.queries), (0, 0), "{how}");
    };
    let ends: &[(&[&str], &str, &[&str])] = &[
        (&["begin"], "", &["close c"]),
        (&["begin"], "with hold", &["close all"]),
        (&["begin"], "", &["commit"]),
        (&["begin"], "with hold", &["rollback"]),
        (&["begin", "savepoint s"], "with hold", &["rollback to s"]),
        (&["begin", "savepoint s", "savepoint u"], "", &["release u", "rollback to s"]),
        (&[], "with hold", &["close c"]),
        (&[], "with hold", &["discard all"]),
    ];
    for (before, hold, after) in ends {
        before.iter().for_each(|text| drop(run(&mut session, text)));
        declare(&mut session, hold);
        after.iter().for_each(|text| drop(run(&mut session, text)));
        is_gone(after.last().expect("something ends it"));
        if session.status() != 'I' {
            run(&mut session, "rollback");
        }
        run(&mut session, "set work_mem = '64kB'");
    }
    // A transaction that has failed ends them at once.
    run(&mut session, "begin");
    declare(&mut session, "");
    assert_eq!(code(&mut session, "select 1 / 0"), "22012");
    is_gone("a failed transaction");
    run(&mut session, "rollback");
    // A cursor that was not declared, since its query has failed.
    run(&mut session, "begin");
    let text = "declare c cursor for select 1 / (5990 - id), name from t order by n * 0, id";
    assert_eq!(code(&mut session, text), "22012");
    is_gone("a query that has failed");
    run(&mut session, "rollback");
    run(&mut session, "begin");
    declare(&mut session, "");
    drop(session);
    is_gone("a dropped session");
}

#[test]
fn held_cursors_outlive_their_transaction() {
    let (dir, _db, mut session) = filled(None);
    run(&mut session, "set work_mem = '64kB'");
    for query in PLANS {
        run(&mut session, "begin");
        run(&mut session, &format!("declare early cursor with hold for {query}"));
        run(&mut session, "savepoint s");
        run(&mut session, &format!("declare late cursor with hold for {query}"));
        run(&mut session, "delete from t where id > 10");
        assert_eq!(firsts(&mut session, "fetch 2 from early"), [1, 2]);
        run(&mut session, "rollback to s");
        assert_eq!(code(&mut session, "fetch late"), "34000");
        run(&mut session, "rollback to s");
        run(&mut session, "update t set n = -1");
        assert_eq!(firsts(&mut session, "fetch 2 from early"), [3, 4]);
        run(&mut session, "commit");
        run(&mut session, "update t set n = id % 7");
        assert_eq!(firsts(&mut session, "fetch 2 from early"), [5, 6]);
        assert_eq!(firsts(&mut session, "fetch last from early"), [6000]);
        assert_eq!(firsts(&mut session, "fetch absolute 3000 from early"), [3000]);
        run(&mut session, "begin");
        assert_eq!(firsts(&mut session, "fetch backward 2 from early"), [2999, 2998]);
        run(&mut session, "rollback");
        assert_eq!(firsts(&mut session, "fetch backward 1 from early"), [2997]);
        run(&mut session, "close early");
        assert_eq!(open_files(dir.path()), 0);
    }
}

/// Two cursors are read by turns, one of them backward.
#[test]
fn cursors_do_not_meet() {
    let (_dir, _db, mut session) = filled(None);
    run(&mut session, "set work_mem = '64kB'");
    run(&mut session, "begin");
    for (forward, backward) in [
        (KEPT, BACKWARD),
        ("select * from t", "select * from t order by id desc"),
        ("select * from t order by id", BACKWARD),
    ] {
        run(&mut session, &format!("declare a cursor for {forward}"));
        run(&mut session, &format!("declare b cursor for {backward}"));
        run(&mut session, "move absolute 6001 in b");
        for round in 0..20 {
            let wanted: Vec<i64> = (round * 300 + 1..=round * 300 + 300).collect();
            assert_eq!(firsts(&mut session, "fetch 300 from a"), wanted);
            assert_eq!(firsts(&mut session, "fetch backward 300 from b"), wanted);
        }
        assert_eq!(run(&mut session, "fetch 1 from a").tag, "FETCH 0");
        run(&mut session, "close all");
    }
}

/// NO SCROLL: rows are shown once, and what was shown is given back.
#[test]
fn a_cursor_without_scroll_goes_forward_only() {
    let (_dir, _db, mut session) = filled(None);
    for query in PLANS {
        let declare = format!("declare c no scroll cursor for {query}");
        run(&mut session, "begin");
        run(&mut session, &declare);
        assert_eq!(run(&mut session, "fetch 0 from c").tag, "FETCH 0");
        assert_eq!(firsts(&mut session, "fetch 2 from c"), [1, 2]);
        assert_eq!(firsts(&mut session, "fetch absolute 7 from c"), [7]);
        assert_eq!(firsts(&mut session, "fetch relative 3 from c"), [10]);
        assert_eq!(run(&mut session, "move 5000 in c").tag, "MOVE 5000");
        assert_eq!(firsts(&mut session, "fetch c"), [5011]);
        assert_eq!(firsts(&mut session, "fetch all from c").len(), 989);
        assert_eq!(run(&mut session, "fetch 1 from c").tag, "FETCH 0");
        run(&mut session, "rollback");
        for back in
            ["prior", "backward 1", "absolute 1", "absolute -1", "last", "0", "relative -1", "backward all"]
        {
            run(&mut session, "begin");
            run(&mut session, &declare);
            run(&mut session, "fetch 2 from c");
            assert_eq!(code(&mut session, &format!("fetch {back} from c")), "55000", "{back}");
            run(&mut session, "rollback");
        }
    }
}

#[test]
fn files_of_cursors_have_a_limit() {
    let (dir, db, mut session) = filled(None);
    run(&mut session, "set work_mem = '64kB'");
    run(&mut session, "set temp_file_limit = '200kB'");
    run(&mut session, "begin");
    let error = session.execute(&format!("declare c cursor for {KEPT}"), &[]).expect_err("there is more");
    assert_eq!(error.code, "53400", "{error}");
    run(&mut session, "rollback");
    assert_eq!((open_files(dir.path()), db.statistics().memory.queries), (0, 0));
    run(&mut session, "begin");
    run(&mut session, &format!("declare c cursor for {KEPT} limit 500"));
    assert_eq!(firsts(&mut session, "fetch last from c"), [500]);
}

/// With a directory a cursor may have more rows than memory; a database in memory refuses what the limit does not hold.
#[test]
fn what_memory_does_not_hold_goes_to_a_file() {
    let query = "select g, repeat('x', 1000) from generate_series(1, 60000) g";
    let (_dir, db, mut session) = filled(Some(64));
    run(&mut session, "begin");
    run(&mut session, &format!("declare c cursor for {query}"));
    assert!(db.statistics().memory.queries < 8 << 20, "{} bytes", db.statistics().memory.queries);
    assert_eq!(firsts(&mut session, "fetch last from c"), [60_000]);
    assert_eq!(firsts(&mut session, "fetch backward 3 from c"), [59_999, 59_998, 59_997]);
    assert_eq!(firsts(&mut session, "fetch absolute 31234 from c"), [31_234]);
    run(&mut session, "rollback");
    assert_eq!(db.statistics().memory.queries, 0);
    let db =
        Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20))).expect("it opens");
    let mut session = Session::new(&db);
    run(&mut session, "begin");
    assert_eq!(code(&mut session, &format!("declare c cursor for {query}")), "53200");
    run(&mut session, "rollback");
    assert_eq!(db.statistics().memory.queries, 0);
    run(&mut session, "begin");
    run(&mut session, &format!("declare c cursor for {query} limit 3000"));
    assert!(db.statistics().memory.queries > 3_000_000, "{} bytes", db.statistics().memory.queries);
    assert_eq!(firsts(&mut session, "fetch last from c"), [3000]);
    run(&mut session, "commit");
    assert_eq!(db.statistics().memory.queries, 0);
}

/// Rows are made as they are fetched, and no others.
#[test]
fn a_suspended_plan_makes_what_is_fetched() {
    let db = database();
    let mut session = Session::new(&db);
    fill(&mut session);
    run(&mut session, "create sequence s");
    run(&mut session, "select nextval('s')");
    let made = |session: &mut Session| one(session, "select currval('s')");
    for scroll in ["", "no scroll"] {
        run(&mut session, "select setval('s', 1)");
        run(&mut session, "begin");
        run(
            &mut session,
            &format!("declare c {scroll} cursor with hold for select id, nextval('s') from t where n > 0"),
        );
        assert_eq!(made(&mut session), "1", "nothing is made when it is declared");
        assert_eq!(firsts(&mut session, "fetch 3 from c"), [1, 2, 3]);
        assert_eq!(made(&mut session), "4");
        run(&mut session, "move 2 in c");
        assert_eq!(made(&mut session), "6");
        if scroll.is_empty() {
            assert_eq!(firsts(&mut session, "fetch backward 2 from c"), [4, 3]);
            assert_eq!(firsts(&mut session, "fetch absolute 2 from c"), [2]);
            assert_eq!(made(&mut session), "6", "what was shown is kept");
            assert_eq!(firsts(&mut session, "fetch 4 from c"), [3, 4, 5, 6]);
            assert_eq!(made(&mut session), "7");
        }
        run(&mut session, "commit");
        assert_eq!(made(&mut session), "5144", "the rest is made before the commit");
        assert_eq!(firsts(&mut session, "fetch next from c"), [if scroll.is_empty() { 8 } else { 6 }]);
        run(&mut session, "close c");
    }
    assert_eq!(db.statistics().memory.queries, 0);
}

/// A transaction suspends few plans at a time, for their snapshots take the places of transactions. Others run at once.
#[test]
fn a_transaction_suspends_few_plans() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (id int primary key)");
    run(&mut session, "insert into t values (1), (2), (3)");
    run(&mut session, "create sequence s");
    run(&mut session, "select setval('s', 1)");
    run(&mut session, "begin");
    let declare = |session: &mut Session, number: usize| {
        run(session, &format!("declare c{number} cursor for select id, nextval('s') from t"));
        one(session, "select currval('s')")
    };
    for number in 1..=16 {
        assert_eq!(declare(&mut session, number), "1");
    }
    assert_eq!(declare(&mut session, 17), "4");
    assert_eq!(firsts(&mut session, "fetch all from c1"), [1, 2, 3]);
    assert_eq!(declare(&mut session, 18), "7", "one has ended");
    assert_eq!(declare(&mut session, 19), "10");
    assert_eq!(firsts(&mut session, "fetch all from c17"), [1, 2, 3]);
    run(&mut session, "commit");
    run(&mut session, "begin");
    assert_eq!(declare(&mut session, 1), "10");
}

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// A cursor sees what there was when it was declared, its transaction's own changes until then among it.
#[test]
fn a_cursor_sees_what_there_was() {
    let db = database();
    let mut session = Session::new(&db);
    let mut other = Session::new(&db);
    fill(&mut session);
    for level in LEVELS {
        for query in PLANS {
            run(&mut session, &format!("begin isolation level {level}"));
            run(&mut session, "insert into t values (6001, 0, 'own', null, null, null)");
            run(&mut session, "update t set name = 'own' where id in (2, 4000)");
            run(&mut session, "delete from t where id = 5");
            run(&mut session, &format!("declare c cursor for {query}"));
            // After that: rows that are passed and to come, by itself and by others.
            run(&mut session, "update t set name = 'late' where id in (1, 3, 5000)");
            run(&mut session, "delete from t where id in (7, 5001)");
            run(&mut session, "insert into t values (6002, 0, 'late', null, null, null)");
            let mut rows = all(&mut session, "fetch 3000 from c");
            run(&mut other, "update t set name = 'other' where id in (8, 5500)");
            run(&mut other, "delete from t where id in (10, 5501)");
            run(&mut other, "insert into t values (6003, 0, 'other', null, null, null)");
            rows.extend(all(&mut session, "fetch all from c"));
            let context = format!("{level}: {query}");
            assert_eq!(rows.len(), 6000, "{context}");
            assert!(!rows.iter().any(|row| row.contains("late") || row.contains("other")), "{context}");
            assert_eq!(rows.iter().filter(|row| row.contains("|own|")).count(), 3, "{context}");
            assert_eq!(all(&mut session, "fetch first from c")[0].split('|').next(), Some("1"), "{context}");
            run(&mut session, "rollback");
            run(&mut other, "delete from t where id > 6000 or id in (8, 10, 5500, 5501)");
            let again = "insert into t select g, g % 7, 'name', null, null, null from unnest(array[8, 10, 5500, 5501]) g";
            run(&mut other, again);
        }
    }
}

/// The loop of old programs: a row is fetched, and changed by its key.
#[test]
fn rows_are_changed_as_they_are_fetched() {
    let db = database();
    let mut session = Session::new(&db);
    fill(&mut session);
    run(&mut session, "delete from t where id > 300");
    run(&mut session, "create index on t (n, id)");
    // The index that the cursor reads has the column that changes.
    let plans = ["select id, n from t", "select id, n from t where n >= 0 order by n, id", KEPT];
    for (round, query) in plans.iter().enumerate() {
        for level in LEVELS {
            run(&mut session, &format!("begin isolation level {level}"));
            run(&mut session, &format!("declare c cursor for {query}"));
            let mut seen = 0;
            while let [id] = firsts(&mut session, "fetch c")[..] {
                seen += 1;
                assert!(seen <= 300, "{query}: it meets its own rows");
                run(&mut session, &format!("update t set n = n + 100 where id = {id}"));
                run(&mut session, &format!("insert into t values ({}, 1, '', null, null, null)", 1000 + id));
                run(&mut session, &format!("delete from t where id = {}", 1000 + id));
            }
            assert_eq!(seen, 300, "{query}");
            run(&mut session, "commit");
        }
        let sum = one(&mut session, "select min(n / 100) || ' ' || max(n / 100) from t");
        assert_eq!(sum, format!("{0} {0}", 3 * (round + 1)));
    }
}

/// Whatever range of whatever index a plan reads, and what it passes on: the cursor's rows are the query's.
#[test]
fn suspended_plans_answer_as_queries_do() {
    let db = database();
    let mut session = Session::new(&db);
    fill(&mut session);
    run(&mut session, "create index on t (n, id desc)");
    run(&mut session, "create index on t (name)");
    run(&mut session, "create index on t (y desc)");
    run(&mut session, "create index on t using hash (id)");
    run(&mut session, "update t set n = null where id % 100 = 0");
    let queries = [
        "select id from t where id between 100 and 200 order by id",
        "select id from t where id > 100 and id <= 5000 order by id desc limit 50 offset 5",
        "select id, x from t where n = 3 order by id desc",
        "select id from t where n = 3 and id < 2000 order by id",
        "select id from t where n = 3 and id = 10",
        "select id from t where n between 2 and 4 order by n, id desc limit 70",
        "select id from t where n is null order by id",
        "select id, upper(name) from t where name = 'name 7.......'",
        "select name from t where name > 'name 5' order by name limit 100",
        "select id from t where y < 100 order by y desc offset 3 limit 40",
        "select id from t order by y limit 20",
        "select id from t where id = 77",
        "select id from t where id = null",
        "select id from t where id in (5, 7, 9)",
        "select s.id from (select * from t order by id limit 40) s where s.n = 2",
        "select s.id from (select * from t order by id limit 40 offset 10) s where s.n = 2 limit 3",
        "select s.id * 2, s.n from (select id, n from t where n <> 4 offset 7) s where s.id % 3 = 1 limit 1000",
        "select from t where id < 20",
        "select id from t limit 0",
        "select id from t offset 7000",
        "select a[1], name || n from t where a[1] % 500 = 0",
        "select id from t where name like 'name 12%' and n = 1",
        "select count(*) from t",
    ];
    for query in queries {
        let wanted = all(&mut session, query);
        for (scroll, count) in [("", 7), ("no scroll", 1000), ("scroll", 64)] {
            run(&mut session, "begin");
            run(&mut session, &format!("declare c {scroll} cursor for {query}"));
            let mut found: Vec<String> = Vec::new();
            loop {
                let rows = all(&mut session, &format!("fetch {count} from c"));
                found.extend(rows.iter().cloned());
                if rows.len() < count {
                    break;
                }
            }
            assert!(found == wanted, "{query}: {found:?} and {wanted:?}");
            assert_eq!(run(&mut session, "fetch 1 from c").tag, "FETCH 0", "{query}");
            run(&mut session, "commit");
        }
    }
    // With parameters, which later statements do not have.
    run(&mut session, "begin");
    let text = "declare c cursor for select id from t where id > $1 and n = $2 order by id limit $3";
    session.execute(text, &[Datum::Int(10), Datum::Int(2), Datum::Int(3)]).expect("it is declared");
    assert_eq!(firsts(&mut session, "fetch 2 from c"), [16, 23]);
    assert_eq!(firsts(&mut session, "fetch 2 from c"), [30]);
}

/// An error comes with the fetch of its row, and leaves the transaction failed; the cursor is of no use behind it.
#[test]
fn an_error_comes_with_its_row() {
    let db = database();
    let mut session = Session::new(&db);
    fill(&mut session);
    let declare = "declare c cursor for select id, 1 / (id - 1000) from t";
    run(&mut session, "begin");
    run(&mut session, declare);
    assert_eq!(firsts(&mut session, "fetch 999 from c").len(), 999);
    assert_eq!(code(&mut session, "fetch 1 from c"), "22012");
    assert_eq!(session.status(), 'E');
    assert_eq!(code(&mut session, "fetch 1 from c"), "25P02");
    run(&mut session, "rollback");
    run(&mut session, "begin");
    run(&mut session, declare);
    run(&mut session, "savepoint s");
    assert_eq!(code(&mut session, "move 1000 in c"), "22012");
    run(&mut session, "rollback to s");
    assert_eq!(code(&mut session, "fetch 1 from c"), "55000");
    run(&mut session, "rollback");
    run(&mut session, "begin");
    run(&mut session, &declare.replace("cursor", "cursor with hold"));
    run(&mut session, "savepoint s");
    assert_eq!(code(&mut session, "move 1000 in c"), "22012");
    run(&mut session, "rollback to s");
    run(&mut session, "commit");
    run(&mut session, "begin");
    assert_eq!(code(&mut session, "fetch first from c"), "55000");
    run(&mut session, "rollback");
    run(&mut session, "close c");
    // The rest of a held cursor is made before the commit, which is refused then.
    run(&mut session, "begin");
    run(&mut session, "insert into t values (7000, 0, '', null, null, null)");
    run(&mut session, &declare.replace("cursor", "cursor with hold"));
    assert_eq!(code(&mut session, "commit"), "22012");
    assert_eq!(session.status(), 'I');
    assert_eq!(code(&mut session, "fetch c"), "34000");
    assert_eq!(one(&mut session, "select count(*) from t"), "6000");
    assert_eq!(db.statistics().memory.queries, 0);
}

/// A table stays what it is while a cursor reads it.
#[test]
fn a_definition_waits_for_the_cursor() {
    let db = database();
    let mut session = Session::new(&db);
    fill(&mut session);
    run(&mut session, "begin");
    run(&mut session, "declare c cursor for select * from t");
    {
        let mut other = Session::new(&db);
        let mut change = pin!(other.execute_async("alter table t drop column name", &[]));
        let mut is_done = || match change.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => false,
            Poll::Ready(answer) => answer.is_ok() || panic!("the definition: {answer:?}"),
        };
        for _ in 0..3 {
            assert!(!is_done());
            assert_eq!(run(&mut session, "fetch 10 from c").rows[0].len(), 6);
        }
        run(&mut session, "commit");
        while !is_done() {}
    }
    // Its own transaction is refused while rows are left.
    run(&mut session, "begin");
    run(&mut session, "declare c cursor for select * from t");
    run(&mut session, "savepoint s");
    for text in ["drop table t", "alter table t drop column n", "truncate t"] {
        assert_eq!(code(&mut session, text), "55006", "{text}");
        run(&mut session, "rollback to s");
    }
    assert_eq!(firsts(&mut session, "fetch all from c").len(), 6000);
    run(&mut session, "alter table t drop column n");
    assert_eq!(run(&mut session, "fetch backward 3 from c").rows[0].len(), 5);
    run(&mut session, "commit");
    // A table that the transaction has made.
    run(&mut session, "begin");
    run(&mut session, "create table u (id int primary key)");
    run(&mut session, "insert into u select generate_series(1, 20)");
    run(&mut session, "declare c cursor with hold for select id from u");
    run(&mut session, "declare d cursor for select id from u order by id desc");
    assert_eq!(firsts(&mut session, "fetch 2 from c"), [1, 2]);
    assert_eq!(firsts(&mut session, "fetch 2 from d"), [20, 19]);
    run(&mut session, "commit");
    assert_eq!(firsts(&mut session, "fetch last from c"), [20]);
    assert_eq!(db.statistics().memory.queries, 0, "few rows are free");
}

/// Savepoints: a cursor from before one goes on behind a rollback to it, one from behind it ends.
#[test]
fn suspended_plans_and_savepoints() {
    let db = database();
    let mut session = Session::new(&db);
    fill(&mut session);
    for level in LEVELS {
        run(&mut session, &format!("begin isolation level {level}"));
        run(&mut session, "declare before cursor for select id from t");
        assert_eq!(firsts(&mut session, "fetch 2 from before"), [1, 2]);
        run(&mut session, "savepoint s");
        run(&mut session, "delete from t");
        run(&mut session, "declare behind cursor for select id from t");
        assert_eq!(run(&mut session, "fetch 1 from behind").tag, "FETCH 0");
        assert_eq!(firsts(&mut session, "fetch 2 from before"), [3, 4]);
        run(&mut session, "rollback to s");
        assert_eq!(firsts(&mut session, "fetch 2 from before"), [5, 6]);
        assert_eq!(firsts(&mut session, "fetch last from before"), [6000]);
        assert_eq!(code(&mut session, "fetch behind"), "34000");
        run(&mut session, "rollback");
    }
}
