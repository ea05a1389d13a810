//! Cursors: rows beyond memory in any direction, when they end, and what they see. A model of them is a vector of all rows.

use std::path::Path;

use thermocline_engine::{Database, Options};
use thermocline_sql::Session;

use crate::sessions::{code, run};

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
    run(session, "create table t (id int primary key, n int, name text, a int[], x numeric)");
    let rows = "insert into t select g, g % 7, 'name ' || g || repeat('.', g % 300), array[g, null], g / 7.0
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

/// A plan whose rows are kept when the cursor is declared, in the order of `id`; and others.
const KEPT: &str = "select * from t order by n * 0, id";
const PLANS: [&str; 2] = [KEPT, "select distinct * from t order by id + 0"];

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
            assert!(db.statistics().memory.queries < 4 << 20, "{} bytes", db.statistics().memory.queries);
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
    run(&mut session, &format!("declare a cursor for {KEPT}"));
    run(&mut session, &format!("declare b cursor for {KEPT} desc"));
    run(&mut session, "move absolute 6001 in b");
    for round in 0..20 {
        let wanted: Vec<i64> = (round * 300 + 1..=round * 300 + 300).collect();
        assert_eq!(firsts(&mut session, "fetch 300 from a"), wanted);
        assert_eq!(firsts(&mut session, "fetch backward 300 from b"), wanted);
    }
    assert_eq!(run(&mut session, "fetch 1 from a").tag, "FETCH 0");
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
