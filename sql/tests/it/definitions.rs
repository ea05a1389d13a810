//! Definitions of one table by several sessions: each decides about what is there when its turn has come.

use thermocline_sql::Session;

use crate::sessions::{blocked, database, one, run};

/// A definition waits for that of another session, and sees what that has made. Answers are PostgreSQL's.
#[test]
fn a_definition_that_has_waited_sees_what_it_has_waited_for() {
    let cases: [(&str, &str, Result<(), &str>, &str); 17] = [
        ("alter table t drop column a", "alter table t drop column b", Ok(()), "id,c"),
        ("alter table t drop column a, drop column b", "alter table t drop column c", Ok(()), "id"),
        ("alter table t drop column b", "alter table t drop column b", Err("42703"), "id,a,c"),
        ("alter table t drop column b", "alter table t drop column if exists b", Ok(()), "id,a,c"),
        ("alter table t add column d int", "alter table t drop column d", Ok(()), "id,a,b,c"),
        ("alter table t add column d int", "alter table t add column d int", Err("42701"), "id,a,b,c,d"),
        ("alter table t rename column b to d", "alter table t drop column b", Err("42703"), "id,a,d,c"),
        ("alter table t rename column b to d", "alter table t drop column d", Ok(()), "id,a,c"),
        (
            "alter table t rename column a to d",
            "alter table t rename column b to d",
            Err("42701"),
            "id,d,b,c",
        ),
        ("alter table t add check (b > 0)", "alter table t drop column b", Ok(()), "id,a,c"),
        ("create index t_b on t (b)", "alter table t drop column b", Ok(()), "id,a,c"),
        ("alter table t drop column b", "create index on t (b)", Err("42703"), "id,a,c"),
        ("alter table t drop column b", "alter table t add check (b > 0)", Err("42703"), "id,a,c"),
        ("alter table t drop column b", "alter table t alter b set default 1", Err("42703"), "id,a,c"),
        ("alter table t drop column b", "alter table t alter b type text", Err("42703"), "id,a,c"),
        ("alter table t rename to u", "alter table t drop column b", Err("42P01"), "42P01"),
        ("drop table t", "alter table t drop column b", Err("42P01"), "42P01"),
    ];
    for (first, second, expected, columns) in cases {
        let db = database();
        let (mut a, mut b) = (Session::new(&db), Session::new(&db));
        run(&mut a, "create table t (id int primary key, a int, b int, c int)");
        run(&mut a, "insert into t values (1, 10, 20, 30)");
        run(&mut a, "begin");
        run(&mut a, first);
        let answer = blocked(&mut b, second, || {
            run(&mut a, "commit");
        });
        let case = format!("{first}; {second}");
        assert_eq!(answer.map(drop).map_err(|error| error.code), expected, "{case}");
        let Ok(found) = a.execute("select * from t", &[]) else {
            assert_eq!(columns, "42P01", "{case}");
            continue;
        };
        let names: Vec<&str> = found.columns.iter().map(|column| &column.name[..]).collect();
        assert_eq!(names.join(","), columns, "{case}");
        for (place, name) in names.iter().enumerate() {
            let value = match *name {
                "id" => Some("1"),
                "a" => Some("10"),
                "b" => Some("20"),
                "c" => Some("30"),
                // What a renamed column had.
                _ if first.contains("rename column a") => Some("10"),
                _ if first.contains("rename column b") => Some("20"),
                _ => None,
            };
            assert_eq!(found.text(0, place).as_deref(), value, "{case}: {name}");
        }
        // Nothing is left that names a column which is gone.
        let values: Vec<String> = (0..names.len()).map(|n| format!("{}", n + 2)).collect();
        run(&mut a, &format!("insert into t values ({})", values.join(", ")));
    }
}

/// Each session adds columns of its own to a table that all of them change, fills and drops them.
#[test]
fn columns_of_several_sessions_come_and_go() {
    const SESSIONS: usize = 4;
    const ROUNDS: usize = 6;
    let db = database();
    let mut first = Session::new(&db);
    run(&mut first, "create table seen (id int primary key, n int)");
    run(&mut first, "insert into seen select i, 0 from generate_series(1, 3) i");
    std::thread::scope(|scope| {
        for session in 0..SESSIONS {
            let db = &db;
            scope.spawn(move || {
                let mut own = Session::new(db);
                for round in 0..ROUNDS {
                    let column = format!("extra_{session}_{round}");
                    run(&mut own, &format!("alter table seen add column {column} int default {session}"));
                    if round % 2 == 0 {
                        run(&mut own, &format!("create index {column}_i on seen ({column})"));
                    }
                    if round % 3 == 0 {
                        run(&mut own, &format!("alter table seen add check ({column} < 100)"));
                    }
                    run(&mut own, &format!("update seen set {column} = {column} + id"));
                    let sum = one(&mut own, &format!("select sum({column}) from seen"));
                    assert_eq!(sum, (3 * session + 6).to_string(), "{column}");
                    run(&mut own, &format!("alter table seen drop column {column}"));
                }
            });
        }
    });
    let left = run(&mut first, "select * from seen");
    let names: Vec<&str> = left.columns.iter().map(|column| &column.name[..]).collect();
    assert_eq!(names, ["id", "n"]);
    run(&mut first, "insert into seen values (4, 0)");
    assert_eq!(one(&mut first, "select count(*) from pg_constraint where conrelid = 'seen'::regclass"), "1");
}
