//! Rows that leave while their statement runs: which do, when, and what becomes of the statement. The client is played by hand, so
//! nothing depends on time.

use std::cell::RefCell;
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thermocline_base::io::MemoryIo;
use thermocline_engine::{Database, Durability, Options};
use thermocline_sql::{Answer, Cause, Datum, Error, Interrupt, Outlet, Rows, Session};

use crate::sessions::{database, one, run};

/// Bytes that gather before they leave, and the charge that is asked for at once.
const FULL: usize = 64 << 10;

/// Rows as a client has got them.
#[derive(Default)]
struct Seen {
    /// Bytes that have not left, and the most that there were.
    here: usize,
    most: usize,
    /// Rows, the first value of each, and how often some have left before the statement's end.
    firsts: Vec<Datum>,
    times: usize,
}

struct Client {
    seen: Rc<RefCell<Seen>>,
    outlet: Outlet,
}

impl Rows for Client {
    fn row(&mut self, row: &[Datum]) -> usize {
        let text = |value: &Datum| if let Datum::Text(text) = value { text.len() } else { 8 };
        let bytes = row.iter().map(text).sum();
        let mut seen = self.seen.borrow_mut();
        seen.firsts.extend(row.first().cloned());
        seen.here += bytes;
        seen.most = seen.most.max(seen.here);
        bytes
    }

    fn restart(&mut self) {
        let mut seen = self.seen.borrow_mut();
        assert_eq!(seen.times, 0, "rows that have left cannot be taken back");
        seen.firsts.clear();
        seen.here = 0;
    }

    fn outlet(&self) -> Option<&Outlet> {
        Some(&self.outlet)
    }
}

/// The client's answer when rows are to leave.
enum Does {
    Takes,
    /// It has taken nothing for so long that the rest is kept.
    Stalls,
    /// It waits: the statement is given up.
    Leaves,
}

/// Runs a statement for a client, which says each time what it does.
fn stream(
    db: &Database,
    session: &mut Session,
    text: &str,
    mut does: impl FnMut(&Seen, &Outlet) -> Does,
) -> (Result<Answer, Error>, Rc<RefCell<Seen>>) {
    let mut statements = session.parse(text).expect("it parses");
    let mut statement = statements.pop().expect("a statement");
    session.describe(&mut statement, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
    let (seen, outlet) = (Rc::new(RefCell::new(Seen::default())), Outlet::new(db));
    let mut client = Client { seen: seen.clone(), outlet: outlet.clone() };
    let mut work = pin!(session.execute_to(&mut statement, Vec::new(), &mut client));
    let mut context = Context::from_waker(Waker::noop());
    let mut idle = 0;
    loop {
        if let Poll::Ready(answer) = work.as_mut().poll(&mut context) {
            return (answer, seen);
        }
        idle += 1;
        if is_full(&outlet) {
            idle = 0;
            let what = does(&seen.borrow(), &outlet);
            let mut seen = seen.borrow_mut();
            match what {
                Does::Takes => {
                    seen.here = 0;
                    seen.times += 1;
                    outlet.emptied();
                }
                Does::Stalls => outlet.keep(),
                Does::Leaves => return (Err(Error::new("00000", "given up")), Rc::default()),
            }
        }
        if idle > 10_000_000 {
            return (Err(Error::new("00000", "it waits")), Rc::default());
        }
    }
}

fn is_full(outlet: &Outlet) -> bool {
    pin!(outlet.full()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn taken(db: &Database, session: &mut Session, text: &str) -> Rc<RefCell<Seen>> {
    let (answer, seen) = stream(db, session, text, |_, _| Does::Takes);
    answer.unwrap_or_else(|error| panic!("{text}: {error}"));
    seen
}

/// 4,000 rows of 1,000 bytes, and 40 of 100,000.
fn filled(db: &Database) -> Session {
    let mut session = Session::new(db);
    run(&mut session, "create table t (id int primary key, n int, wide text)");
    run(&mut session, "insert into t select g, g % 7, repeat('x', 1000) from generate_series(1, 4000) g");
    run(&mut session, "create table large (id int primary key, wide text)");
    run(&mut session, "insert into large select g, repeat('y', 100000) from generate_series(1, 40) g");
    session
}

/// Whatever the plan is, its answer is never whole.
#[test]
fn the_answers_of_all_plans_stream() {
    let db = database();
    let mut session = filled(&db);
    let plans = [
        ("select id, wide from t", 4000),
        ("select id, wide from t where n < 6 and id > 10 limit 3000", 3000),
        ("select id, wide from t order by n, id", 4000),
        ("select id, wide from t order by id desc limit 3000", 3000),
        ("select distinct id, wide from t", 4000),
        ("select id, max(wide) from t group by id", 4000),
        ("select a.id, b.wide from t a join t b on b.id = a.id", 4000),
        ("select a.id, b.wide from t a left join t b on b.id = a.id + 2000", 4000),
        ("select a.id, b.wide from t a, lateral (select wide from t where id = a.id) b", 4000),
        ("select id, wide from t union all select id, wide from t", 8000),
        ("select id, wide from t except select 1, 'x'", 4000),
        ("select id, wide, row_number() over (order by id) from t", 4000),
        ("select id, (select max(wide) from t where id = 1) from t", 4000),
        ("select g, repeat('z', 1000) from generate_series(1, 4000) g", 4000),
        ("select generate_series(1, 4000), repeat('z', 1000)", 4000),
        ("with w as materialized (select id, wide from t) select * from w union all select * from w", 8000),
        (
            "with recursive r(n, w) as (select 1, repeat('z', 1000) union all select n + 1, w from r where n < 4000) \
          select * from r",
            4000,
        ),
        ("select id, wide from t where id in (select g from generate_series(1, 4000) g)", 4000),
        ("values (1, repeat('z', 50000)), (2, repeat('z', 50000)), (3, repeat('z', 50000))", 3),
    ];
    for (text, count) in plans {
        for begin in
            ["", "begin", "begin isolation level repeatable read", "begin isolation level serializable"]
        {
            if !begin.is_empty() {
                run(&mut session, begin);
            }
            let seen = taken(&db, &mut session, text);
            let seen = seen.borrow();
            assert_eq!(seen.firsts.len(), count, "{text}");
            assert!(seen.times > count / 200, "{text}: rows have left {} times", seen.times);
            // A join pairs a row with up to 64 others under one pin, and has no more of them here.
            assert!(seen.most <= FULL + (64 << 10), "{text}: {} bytes were kept", seen.most);
            if !begin.is_empty() {
                run(&mut session, "commit");
            }
        }
    }
}

/// However wide rows are, no more of them gather than the first that is too much.
#[test]
fn wide_rows_leave_one_by_one() {
    let db = database();
    let mut session = filled(&db);
    let points: Vec<String> = (1..=40).map(|id| id.to_string()).collect();
    let points = points.join(", ");
    let texts = [
        "select id, wide from large".to_owned(),
        "select id, wide from large order by id".to_owned(),
        format!("select id, wide from large where id in ({points})"),
        "select id, wide from large where id between 1 and 40 order by id".to_owned(),
    ];
    for text in &texts {
        let seen = taken(&db, &mut session, text);
        let seen = seen.borrow();
        assert_eq!((seen.firsts.len(), seen.times), (40, 40), "{text}");
        assert!(seen.most < 101_000, "{text}: {} bytes were kept", seen.most);
    }
}

/// Bytes are charged as long as they are there, and no longer.
#[test]
fn rows_that_have_left_are_not_charged() {
    let db = database();
    let mut session = filled(&db);
    let (mut most, mut least) = (0, u64::MAX);
    let (answer, seen) = stream(&db, &mut session, "select id, wide from t", |_, _| {
        let charged = db.statistics().memory.queries;
        (most, least) = (most.max(charged), least.min(charged));
        Does::Takes
    });
    assert_eq!(seen.borrow().firsts.len(), 4000);
    assert!(least > 0 && most <= 4 * FULL as u64, "{least} to {most} bytes were charged");
    drop(answer.expect("it runs"));
    assert_eq!(db.statistics().memory.queries, 0);
    // A client that stalls has the rest charged.
    run(&mut session, "begin");
    let (answer, seen) = stream(&db, &mut session, "select id, wide from t", |_, _| Does::Stalls);
    let answer = answer.expect("it runs");
    assert!(seen.borrow().here > 4_000_000);
    assert!(db.statistics().memory.queries > 4_000_000);
    drop(answer);
    assert_eq!(db.statistics().memory.queries, 0);
    run(&mut session, "commit");
}

/// Rows of statements that may run again, or do their work at their end, stay until then.
#[test]
fn changes_and_locks_leave_with_their_end() {
    let db = database();
    let mut session = filled(&db);
    let texts = [
        "select id, wide from t for update",
        "select id, wide from t order by id for key share skip locked",
        "update t set n = n returning id, wide",
        "insert into t select id + 4000, n, wide from t returning id, wide",
        "delete from t returning id, wide",
        "select id, wide, pg_try_advisory_lock(id) from large",
        "select id, wide, set_config('application_name', 'x', false) from large",
        "explain analyze select id, wide from large",
    ];
    for begin in ["", "begin"] {
        for text in texts {
            if !begin.is_empty() {
                run(&mut session, begin);
            }
            let (answer, seen) = stream(&db, &mut session, text, |_, _| panic!("{text}: rows leave"));
            answer.unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(!seen.borrow().firsts.is_empty(), "{text}");
            if !begin.is_empty() {
                run(&mut session, "rollback");
            } else if text.starts_with("delete") {
                run(
                    &mut session,
                    "insert into t select g, g % 7, repeat('x', 1000) from generate_series(1, 4000) g",
                );
            }
        }
    }
}

/// Only a statement whose snapshot would go with it does not wait for its client for ever.
#[test]
fn an_open_transaction_at_read_committed_does_not_wait_long() {
    let db = database();
    let mut session = filled(&db);
    let levels = [
        ("", false),
        ("begin", true),
        ("begin isolation level repeatable read", false),
        ("begin isolation level serializable", false),
    ];
    for (begin, is_bounded) in levels {
        if !begin.is_empty() {
            run(&mut session, begin);
        }
        let (answer, seen) = stream(&db, &mut session, "select id, wide from t", |seen, outlet| {
            assert_eq!(outlet.patience().is_some(), is_bounded, "{begin}");
            if seen.times < 3 { Does::Takes } else { Does::Stalls }
        });
        answer.expect("it runs");
        let seen = seen.borrow();
        // It has left three times, and is whole.
        assert_eq!((seen.firsts.len(), seen.times), (4000, 3));
        if !begin.is_empty() {
            run(&mut session, "commit");
        }
    }
}

/// An error behind rows that have left ends the statement; it does not run again, and the session goes on.
#[test]
fn an_error_comes_behind_the_rows_before_it() {
    let db = database();
    let mut session = filled(&db);
    let text = "select id, wide, 1 / (id - 3000) from t";
    let (answer, seen) = stream(&db, &mut session, text, |_, _| Does::Takes);
    assert_eq!(answer.expect_err("it divides by zero").code, "22012");
    let seen = seen.borrow();
    assert!(seen.times > 10 && seen.firsts.len() == 2999, "{} rows", seen.firsts.len());
    assert_eq!(one(&mut session, "select count(*) from t"), "4000");
    // An open transaction has failed, as by each error.
    run(&mut session, "begin");
    let (answer, _) = stream(&db, &mut session, text, |_, _| Does::Takes);
    assert_eq!(answer.expect_err("it divides by zero").code, "22012");
    assert_eq!(session.status(), 'E');
    run(&mut session, "rollback");
}

/// A statement that waits for its client is interrupted.
#[test]
fn a_statement_that_waits_is_cancelled() {
    let db = database();
    let interrupt = Interrupt::default();
    let mut session = filled(&db).with_interrupt(interrupt.clone());
    let mut times = 0;
    let (answer, _) = stream(&db, &mut session, "select id, wide from t", |_, _| {
        times += 1;
        interrupt.raise(Cause::Cancelled);
        Does::Takes
    });
    assert_eq!((answer.expect_err("it is cancelled").code, times), ("57014", 1));
    interrupt.clear();
    // Given up amid a wait, it leaves nothing to the next one.
    drop(stream(&db, &mut session, "select id, wide from t", |_, _| Does::Leaves));
    session.abandon();
    assert_eq!(taken(&db, &mut session, "select id, wide from t").borrow().firsts.len(), 4000);
}

/// A definition waits for the end of a stream that has begun, though the stream has not come to the table yet.
#[test]
fn a_definition_waits_for_the_stream() {
    let db = database();
    let mut session = filled(&db);
    let mut other = Session::new(&db);
    let text =
        "select g, repeat('z', 1000) from generate_series(1, 1000) g union all select id, wide from large";
    let mut times = 0;
    {
        let mut change = pin!(other.execute_async("alter table large drop column wide", &[]));
        let poll = |change: Pin<&mut _>| is_done(change);
        let (answer, seen) = stream(&db, &mut session, text, |_, _| {
            assert!(!poll(change.as_mut()), "the definition does not wait");
            times += 1;
            Does::Takes
        });
        answer.expect("it runs");
        assert_eq!(seen.borrow().firsts.len(), 1040);
        assert!(times > 10);
        while !poll(change.as_mut()) {}
    }
    let columns = "select count(*) from information_schema.columns where table_name = 'large'";
    assert_eq!(one(&mut session, columns), "1");
}

fn is_done(change: Pin<&mut impl Future<Output = Result<Answer, Error>>>) -> bool {
    match change.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => false,
        Poll::Ready(answer) => answer.is_ok() || panic!("the definition: {answer:?}"),
    }
}

/// Nothing leaves of what a crash could still take away: the commit of a row that is seen is not on disk, and will not be.
#[test]
fn nothing_leaves_before_what_it_shows_is_durable() {
    for (durability, leaves) in [(Durability::Group, false), (Durability::Async, true)] {
        let options = Options::default().with_log_buffer_bytes(64 << 20).with_log_segment_bytes(8 << 20);
        let options = options.with_durability(durability);
        let db = Database::open_with(Path::new("/db"), options, Arc::new(MemoryIo::new()), false);
        let db = db.expect("the options are fine");
        let mut session = Session::new(&db);
        // Without a thread that writes the log, each commit at this level waits for ever: it is decided, and given up.
        let texts = [
            "create table t (id int primary key, wide text)",
            "insert into t select g, repeat('x', 1000) from generate_series(1, 1000) g",
        ];
        for text in texts {
            let mut work = pin!(session.execute_async(text, &[]));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..10_000 {
                if work.as_mut().poll(&mut context).is_ready() {
                    break;
                }
            }
        }
        let left = |session: &mut Session, text: &str| {
            let mut left = false;
            let (answer, _) = stream(&db, session, text, |_, _| {
                left = true;
                Does::Leaves
            });
            assert_eq!(answer.expect_err("it does not end").code, "00000");
            session.abandon();
            left
        };
        assert_eq!(left(&mut session, "select id, wide from t"), leaves, "{durability:?}");
        // What stands in no table may leave, and what is read behind that does not.
        let (series, table) =
            ("select g, repeat('z', 1000) from generate_series(1, 200) g", "select id, wide from t");
        assert!(left(&mut session, series), "{durability:?}");
        let mut rows = 0;
        let (_, _) = stream(&db, &mut session, &format!("{series} union all {table}"), |seen, _| {
            rows = seen.firsts.len();
            if rows > 400 { Does::Leaves } else { Does::Takes }
        });
        assert_eq!(rows > 400, leaves, "{durability:?}: {rows} rows");
        session.abandon();
        // Within an open transaction rows are told as the others of its statements are.
        let begun = session.execute("begin", &[]);
        begun.expect("it begins");
        assert!(left(&mut session, table), "{durability:?}");
        std::mem::forget(session);
        std::mem::forget(db);
    }
}

/// FETCH hands rows over as it reads them, whatever its client does meanwhile.
#[test]
fn fetches_stream() {
    let db = database();
    let mut session = filled(&db);
    for query in ["select id, wide from t", "select id, wide from t order by n, id"] {
        for hold in ["", "with hold"] {
            run(&mut session, "begin");
            run(&mut session, &format!("declare c cursor {hold} for {query}"));
            if !hold.is_empty() {
                run(&mut session, "commit");
            }
            for fetch in ["fetch all from c", "fetch backward all from c"] {
                let (answer, seen) = stream(&db, &mut session, fetch, |_, outlet| {
                    assert!(
                        outlet.patience().is_none(),
                        "it keeps nothing that a client's slowness could cost"
                    );
                    Does::Takes
                });
                answer.unwrap_or_else(|error| panic!("{fetch}, {query}: {error}"));
                let seen = seen.borrow();
                assert_eq!(seen.firsts.len(), 4000, "{fetch}, {query}");
                assert!(seen.times > 20 && seen.most <= FULL + (64 << 10), "{fetch}, {query}: {}", seen.most);
            }
            run(&mut session, "close c");
            if hold.is_empty() {
                run(&mut session, "commit");
            }
            assert_eq!(db.statistics().memory.queries, 0);
        }
    }
}
