//! Prepared statements that outlive what they were bound to: a statement that was prepared before definitions changed answers as one
//! that is prepared behind them, or is refused as PostgreSQL refuses it.
//!
//! Each case draws a table, statements over it and definitions, and runs them in two databases alike. In the first one the
//! statements are prepared before the definitions, in the second one behind them, with the first one's types of parameters. Rows,
//! tags, errors and what stands in the tables afterwards must be the same; only where the columns of the answer are others than
//! were described, the first one is refused (0A000).

use std::future::Future;

use thermocline_base::rng::Rng;
use thermocline_engine::{Database, block_on};
use thermocline_sql::{Column, Datum, Error, Local, Prepared, Session, Type, Zone};

use crate::sessions::{database, run};

const CASES: u64 = 200;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const TYPES: [&str; 6] = ["int", "bigint", "text", "varchar(6)", "numeric(8,2)", "boolean"];

/// A column's name and type.
type Drawn = (&'static str, &'static str);

/// A table with a key `k` and these columns, in their order.
fn table(rng: &mut Rng, columns: &[Drawn]) -> String {
    let mut all: Vec<String> = columns.iter().map(|(name, ty)| format!("{name} {ty}")).collect();
    let place = rng.below(all.len() as u64 + 1) as usize;
    all.insert(place, "k int primary key".to_owned());
    if let Some((name, ty)) = columns.first()
        && rng.chance(0.3)
    {
        all.push(match *ty {
            "int" | "bigint" | "numeric(8,2)" => format!("check ({name} <> 77)"),
            "boolean" => format!("unique (k, {name})"),
            _ => format!("check ({name} <> 'seven')"),
        });
    }
    format!("create table t ({})", all.join(", "))
}

fn columns(rng: &mut Rng) -> Vec<Drawn> {
    let mut names = NAMES;
    rng.shuffle(&mut names);
    let count = rng.between(2, 4) as usize;
    names[..count].iter().map(|name| (*name, TYPES[rng.below(TYPES.len() as u64) as usize])).collect()
}

/// A value of any of the types, as a literal.
fn literal(ty: &str, number: i64) -> String {
    match ty {
        "boolean" => (number % 2 == 0).to_string(),
        "text" | "varchar(6)" => format!("'v{number}'"),
        _ => number.to_string(),
    }
}

fn fill(table: &str, columns: &[Drawn]) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let row = |key: i64| {
        let values: Vec<String> = columns.iter().map(|(_, ty)| literal(ty, key % 3)).collect();
        format!("({key}, {})", values.join(", "))
    };
    let rows: Vec<String> = (1..=5).map(row).collect();
    format!("insert into {table} (k, {}) values {}", names.join(", "), rows.join(", "))
}

/// Statements over the columns, with parameters.
fn statements(rng: &mut Rng, columns: &[Drawn]) -> Vec<String> {
    let mut pick = || columns[rng.below(columns.len() as u64) as usize].0;
    let (x, y, z) = (pick(), pick(), pick());
    let all: Vec<String> = (1..=columns.len() + 1).map(|number| format!("${number}")).collect();
    let second = if x == y { format!("{x} = $2") } else { format!("{x} = $2, {y} = $3") };
    vec![
        format!("select {x}, {y} from t where {z} = $1 order by k"),
        "select * from t order by k".to_owned(),
        format!("select k, {x} from v order by k"),
        format!("select u.k, {x} from u join t on u.k = t.k where u.k < $1 order by 1"),
        format!("select count(*), count(distinct {x}) from t where k in (select k from t where {y} = $1)"),
        format!("insert into t (k, {x}) values ($1, $2)"),
        format!("insert into t values ({})", all.join(", ")),
        "insert into t (k) values ($1) returning *".to_owned(),
        format!("insert into t (k, {x}) select k + 100, {x} from t where k < $1"),
        format!(
            "insert into t (k, {x}) values ($1, $2) on conflict (k) do update set {x} = excluded.{x} returning t.k, t.{x}"
        ),
        format!("update t set {second} where k = $1"),
        format!("update t set {x} = $2 where k = $1 returning {y}, k"),
        format!("delete from t where {z} = $1"),
        "delete from t where k = $1 returning *".to_owned(),
        format!("copy (select k, {x} from t order by k) to stdout"),
        "copy t to stdout".to_owned(),
        format!("declare c cursor for select {x}, k from t order by k"),
        format!("explain select {x} from t where {y} = $1"),
    ]
}

/// What changes between preparing and executing.
fn definitions(rng: &mut Rng, before: &[Drawn]) -> Vec<String> {
    let (first, second) = (before[0].0, before[1].0);
    let again = columns(rng);
    let mut shuffled = before.to_vec();
    rng.shuffle(&mut shuffled);
    let view = "create view v as select * from t".to_owned();
    let remake = |made: String, filled: String| {
        vec!["drop view v".to_owned(), "drop table t".to_owned(), made, filled, view.clone()]
    };
    let free = NAMES.iter().find(|name| !before.iter().any(|(known, _)| known == *name)).unwrap_or(&"e");
    match rng.below(13) {
        0 => remake(table(rng, &again), fill("t", &again)),
        1 => remake(table(rng, &shuffled), fill("t", &shuffled)),
        2 => vec![
            "drop view v".to_owned(),
            "alter table t rename to aside".to_owned(),
            table(rng, &shuffled),
            fill("t", &shuffled),
            view,
        ],
        3 => vec![
            "drop view v".to_owned(),
            format!("alter table t rename column {first} to x_"),
            format!("alter table t rename column {second} to {first}"),
            format!("alter table t rename column x_ to {second}"),
            view,
        ],
        4 => vec![format!("alter table t add column {free} int default 5")],
        5 => vec!["drop view v".to_owned(), format!("alter table t drop column {first}"), view],
        6 => vec![format!("create index on t ({first})"), format!("create index on t ({second}, {first})")],
        7 => vec![format!("alter table t alter column {first} set default null"), "truncate t".to_owned()],
        8 => vec![format!("alter table t add constraint late check (k < 103 or {first} is not null)")],
        9 => vec![
            "drop view v".to_owned(),
            format!("create view v as select k, {second} as {first}, {first} as {second} from t"),
        ],
        10 => vec![format!("alter table t add constraint one unique ({first}, k)")],
        11 => vec!["delete from t where k = 2".to_owned(), "create table free (k int)".to_owned()],
        _ => vec![
            "drop view v".to_owned(),
            "drop table t".to_owned(),
            "create table t (k int primary key)".to_owned(),
            "insert into t values (1), (2)".to_owned(),
            view,
        ],
    }
}

fn values(types: &[Type]) -> Vec<Datum> {
    let value = |(place, ty): (usize, &Type)| match ty {
        Type::Bool => Datum::Bool(false),
        Type::Numeric | Type::Text | Type::Varchar => {
            Datum::read(&place.to_string(), *ty, &Local::default()).expect("it is a value")
        }
        // The first one is a key, most often of no row yet.
        _ => Datum::Int(if place == 0 { 2 + 4 * i64::from(types.len() > 2) } else { 1 }),
    };
    types.iter().enumerate().map(value).collect()
}

/// A tag and rows as text, or an error.
type Said = Result<(String, Vec<Vec<Option<String>>>), (&'static str, String)>;

fn execute(session: &mut Session, prepared: &mut Prepared, values: Vec<Datum>) -> Said {
    let mut rows: Vec<Vec<Datum>> = Vec::new();
    let failed = |error: Error| (error.code, error.message);
    let answer = block_on(session.execute_to(prepared, values, &mut rows)).map_err(failed)?;
    let mut columns: Vec<Column> = prepared.columns().to_vec();
    if answer.tag == "DECLARE CURSOR" {
        let mut fetch = session.prepare("fetch all from c", &[]).map_err(failed)?;
        block_on(session.execute_to(&mut fetch, Vec::new(), &mut rows)).map_err(failed)?;
        columns = fetch.columns().to_vec();
    }
    let shown = |row: &Vec<Datum>| {
        assert_eq!(row.len(), columns.len(), "a row has the columns that were described");
        let shown = |(value, column): (&Datum, &Column)| {
            let mut text = String::new();
            column.write_text(value, &Zone::UTC, &mut text);
            (!value.is_null()).then_some(text)
        };
        row.iter().zip(&columns).map(shown).collect()
    };
    Ok((answer.tag, rows.iter().map(shown).collect()))
}

fn contents(session: &mut Session) -> String {
    let all = ["t", "u", "aside"].map(|table| {
        session.execute(&format!("select * from {table} order by k"), &[]).map_or_else(
            |error| error.code.to_owned(),
            |answer| {
                let names: Vec<&str> = answer.columns.iter().map(|column| &*column.name).collect();
                format!("{names:?} {:?}", answer.rows)
            },
        )
    });
    all.join("\n")
}

struct World {
    session: Session,
    /// Who defines, if it is another session.
    other: Option<Session>,
}

impl World {
    fn new(db: &Database, two: bool) -> Self {
        Self { session: Session::new(db), other: two.then(|| Session::new(db)) }
    }

    fn definer(&mut self) -> &mut Session {
        self.other.as_mut().unwrap_or(&mut self.session)
    }
}

#[test]
fn statements_that_outlive_what_they_were_bound_to_answer_as_new_ones() {
    let mut counts = [0; 3];
    for seed in 0..CASES {
        let mut rng = Rng::new(seed);
        let drawn = columns(&mut rng);
        let setup = [
            table(&mut rng, &drawn),
            fill("t", &drawn),
            "create view v as select * from t".to_owned(),
            "create table u (k int primary key, n int)".to_owned(),
            "insert into u values (1, 1), (2, 2), (3, 3)".to_owned(),
        ];
        let mut texts = statements(&mut rng, &drawn);
        rng.shuffle(&mut texts);
        let changes = definitions(&mut rng, &drawn);
        // In one session or two, within a transaction or outside, which may be rolled back.
        let (two, inside) = (rng.chance(0.5), rng.chance(0.4));
        let rolled_back = inside && rng.chance(0.5);
        for text in texts.iter().take(4) {
            let in_transaction = inside && !two || text.starts_with("declare");
            let (db, twin) = (database(), database());
            let mut worlds = [World::new(&db, two), World::new(&twin, two)];
            for world in &mut worlds {
                setup.iter().for_each(|text| _ = run(&mut world.session, text));
            }
            let [ours, model] = &mut worlds;
            let mut prepared = ours.session.prepare(text, &[]).unwrap_or_else(|it| panic!("{text}: {it}"));
            let types = prepared.parameters().to_vec();
            let values = values(&types);
            let described = prepared.columns().to_vec();
            // It has run before, as drivers prepare what runs again and again; a change of rows is taken back.
            if rng.chance(0.5) {
                for world in [&mut *ours, &mut *model] {
                    run(&mut world.session, "begin");
                }
                let _ = execute(&mut ours.session, &mut prepared, values.clone());
                for world in [&mut *ours, &mut *model] {
                    run(&mut world.session, "rollback");
                }
            }
            for world in [&mut *ours, &mut *model] {
                if inside {
                    run(world.definer(), "begin");
                }
                changes.iter().for_each(|text| _ = run(world.definer(), text));
                if inside && (two || rolled_back) {
                    let end = if rolled_back { "rollback" } else { "commit" };
                    run(world.definer(), end);
                }
                if in_transaction && world.session.status() == 'I' {
                    run(&mut world.session, "begin");
                }
            }
            let said = execute(&mut ours.session, &mut prepared, values.clone());
            let fresh = model.session.prepare(text, &types);
            let context = format!("seed {seed}, two {two}, inside {inside}: {text}; {setup:?}; {changes:?}");
            let refused = ("0A000", "cached plan must not change result type".to_owned());
            match fresh {
                Err(error) => {
                    assert_eq!(said, Err((error.code, error.message)), "{context}");
                    counts[0] += 1;
                }
                // COPY and EXPLAIN are no plans: PostgreSQL binds them when they run.
                Ok(fresh) if fresh.columns() != described && !text.starts_with("copy") => {
                    assert_eq!(said, Err(refused), "{context}");
                    counts[1] += 1;
                }
                Ok(mut fresh) => {
                    let wanted = execute(&mut model.session, &mut fresh, values);
                    let is_explained = text.starts_with("explain");
                    if is_explained {
                        assert_eq!(said.is_ok(), wanted.is_ok(), "{context}");
                    } else if text.starts_with("copy") && said == Err(refused) {
                        // The server describes it anew each time.
                        assert_ne!(fresh.columns(), described, "{context}");
                    } else {
                        assert_eq!(said, wanted, "{context}");
                    }
                    counts[2] += 1;
                }
            }
            let has_failed = worlds.iter().any(|world| world.session.status() == 'E');
            for world in worlds.iter_mut().filter(|world| world.session.status() != 'I') {
                run(&mut world.session, if has_failed { "rollback" } else { "commit" });
            }
            let [ours, model] = &mut worlds;
            assert_eq!(contents(&mut ours.session), contents(&mut model.session), "{context}");
        }
    }
    // Each kind of outcome was met.
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}

/// A table's name goes to another one with the same columns in another order, twice: both have had as many definitions.
#[test]
fn a_table_is_told_from_the_next_one_with_its_name() {
    let db = database();
    let (mut session, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut session, "create table wt (a int primary key, b text, c text)");
    let mut read = session.prepare("select b from wt where a = 9", &[]).expect("it binds");
    let mut write = session.prepare("update wt set b = 'new' where a = 9", &[]).expect("it binds");
    let mut insert = session.prepare("insert into wt values (9, 'b', 'c')", &[]).expect("it binds");
    for definer in [true, false, true] {
        let definer = if definer { &mut other } else { &mut session };
        run(definer, "drop table wt");
        run(definer, "create table wt (a int primary key, c text, b text)");
        session.execute_prepared(&mut insert, &[]).expect("it is inserted");
        let answer = session.execute_prepared(&mut read, &[]).expect("it is read");
        assert_eq!(answer.text(0, 0).as_deref(), Some("c"), "the third value stands in b");
        session.execute_prepared(&mut write, &[]).expect("it is changed");
        assert_eq!(
            run(&mut session, "select b, c from wt").rows,
            [[Datum::Text("new".into()), Datum::Text("b".into())]]
        );
    }
}

/// Parameters keep the types that the statement was prepared with, as in PostgreSQL.
#[test]
fn types_of_parameters_stay_those_of_the_first_time() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create table t (k int primary key, a int)");
    let mut found = session.prepare("select k from t where a = $1", &[]).expect("it binds");
    let mut put = session.prepare("insert into t values ($1, $2)", &[]).expect("it binds");
    run(&mut session, "drop table t");
    run(&mut session, "create table t (k int primary key, a text)");
    let error = session.execute_prepared(&mut found, &[Datum::Int(1)]).expect_err("no such operator");
    assert_eq!((error.code, &*error.message), ("42883", "operator does not exist: text = integer"));
    session.execute_prepared(&mut put, &[Datum::Int(1), Datum::Int(12)]).expect("12 becomes a text");
    assert_eq!(run(&mut session, "select a from t").rows, [[Datum::Text("12".into())]]);
}

/// Cursors and SQL's prepared statements are found by name when a statement on them runs.
#[test]
fn what_a_name_means_is_looked_at_again() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "begin");
    run(&mut session, "declare c cursor for select 1 as x");
    let mut fetch = session.prepare("fetch all from c", &[]).expect("it binds");
    run(&mut session, "close c");
    run(&mut session, "declare c cursor for select 'text'::text as x");
    let said = execute(&mut session, &mut fetch, Vec::new());
    assert_eq!(said.expect_err("another type").0, "0A000");
    run(&mut session, "rollback");
    run(&mut session, "prepare p as select 1 as x");
    let mut ran = session.prepare("execute p", &[]).expect("it binds");
    run(&mut session, "deallocate p");
    run(&mut session, "prepare p as select 'text'::text as x");
    assert_eq!(execute(&mut session, &mut ran, Vec::new()).expect_err("another type").0, "0A000");
}

/// A statement that was refused for its columns stays refused, though nothing changes any more.
#[test]
fn a_plan_that_was_refused_does_not_run_later() {
    let db = database();
    let mut session = Session::new(&db);
    run(&mut session, "create schema s");
    run(&mut session, "create table t (a int)");
    run(&mut session, "insert into t values (1)");
    run(&mut session, "set search_path to s, public");
    let mut read = session.prepare("select * from t", &[]).expect("it binds");
    run(&mut session, "create table s.t (b text)");
    for _ in 0..3 {
        assert_eq!(execute(&mut session, &mut read, Vec::new()).expect_err("other columns").0, "0A000");
    }
    run(&mut session, "drop table s.t");
    assert_eq!(execute(&mut session, &mut read, Vec::new()).expect("it is there again").0, "SELECT 1");
}

/// A run that is given up while it waits leaves its statement where it was.
#[test]
fn a_run_that_is_given_up_keeps_its_statement() {
    let db = database();
    let (mut session, mut other) = (Session::new(&db), Session::new(&db));
    run(&mut session, "create table t (k int primary key, n int)");
    run(&mut session, "insert into t values (1, 1)");
    run(&mut session, "prepare p as update t set n = n + 1 where k = 1");
    run(&mut other, "begin");
    run(&mut other, "update t set n = 5 where k = 1");
    {
        let mut future = std::pin::pin!(session.execute_async("execute p", &[]));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending(), "it waits");
    }
    session.abandon();
    run(&mut other, "commit");
    assert_eq!(run(&mut session, "execute p").tag, "UPDATE 1");
    assert_eq!(run(&mut session, "select n from t").rows, [[Datum::Int(6)]]);
}
