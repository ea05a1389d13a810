//! COPY FROM, as a server gives its pieces to a session.

use thermocline_engine::block_on;
use thermocline_sql::{Answer, Error, Result, Session};

use crate::sessions::{database, one, run};

/// Copies a text in pieces of so many bytes.
fn copy(session: &mut Session, statement: &str, text: &[u8], piece: usize) -> Result<Answer> {
    let prepared = session.prepare(statement, &[])?;
    let mut copying = session.copy_begin(&prepared)?;
    let ended = block_on(async {
        for piece in text.chunks(piece) {
            session.copy_data(&mut copying, piece).await?;
        }
        session.copy_end(copying).await
    });
    block_on(session.end_implicit())?;
    ended
}

/// The line that an error names.
fn refused(session: &mut Session, text: &str) -> (&'static str, String) {
    let error: Error = copy(session, "copy t from stdin", text.as_bytes(), 1 << 16).expect_err(text);
    (error.code, error.about.and_then(|about| about.context).unwrap_or_default())
}

#[test]
fn pieces_of_any_length_make_the_same_rows() {
    let mut session = Session::new(&database());
    run(
        &mut session,
        "create table t (id int primary key, a text, b numeric(6, 2), c text default 'c', d serial)",
    );
    let mut text = String::new();
    for id in 0..2500 {
        text += &format!("{id}\tä{id}\\t\\\\\\x41\\n\t{id}.50\n");
    }
    text += "2500\t\\N\t\\N\n2501\t\t1\n\\.\nnothing\n";
    let sums = "select count(*) || ' ' || sum(id) || ' ' || sum(b) || ' ' || sum(length(a)) || ' ' || min(c) || ' ' || max(d) from t";
    let mut wanted = None;
    for piece in [1 << 20, 4096, 7, 1] {
        run(&mut session, "truncate t restart identity");
        let answer = copy(&mut session, "copy t (id, a, b) from stdin", text.as_bytes(), piece);
        assert_eq!(answer.expect("it is copied").tag, "COPY 2502");
        let found = one(&mut session, sums);
        assert_eq!(*wanted.get_or_insert_with(|| found.clone()), found, "in pieces of {piece}");
    }
    assert_eq!(one(&mut session, "select replace(a, E'\\n', '|') from t where id = 17"), "ä17\t\\A|");
    assert_eq!(one(&mut session, "select a is null and b is null from t where id = 2500"), "t");
    assert_eq!(one(&mut session, "select a = '' from t where id = 2501"), "t");
}

#[test]
fn csv_has_quotes_headers_and_lines_within_fields() {
    let mut session = Session::new(&database());
    run(&mut session, "create table t (id int primary key, a text)");
    let text = b"id,a\n1,\"one, \"\"two\"\"\nthree\"\n2,\n3,\"\"\n4,last";
    for piece in [1, 1 << 16] {
        run(&mut session, "truncate t");
        copy(&mut session, "copy t from stdin with (format csv, header)", text, piece).expect("it is copied");
        assert_eq!(one(&mut session, "select a from t where id = 1"), "one, \"two\"\nthree");
        assert_eq!(
            one(&mut session, "select string_agg(coalesce(a, 'null'), ',' order by id) from t where id > 1"),
            "null,,last"
        );
    }
}

#[test]
fn errors_name_their_line_and_nothing_stays() {
    let mut session = Session::new(&database());
    run(&mut session, "create table t (id int primary key, n int not null check (n > 0))");
    let mut good = String::new();
    (1..=1500).for_each(|id| good += &format!("{id}\t1\n"));
    assert_eq!(
        refused(&mut session, &format!("{good}7\t1\n9\t1\n")),
        ("23505", "COPY t, line 1501".to_owned())
    );
    assert_eq!(refused(&mut session, "1\t1\n2\t0\n3\t1\n"), ("23514", "COPY t, line 2".to_owned()));
    assert_eq!(refused(&mut session, "1\t1\n2\t1\n3\t\\N\n"), ("23502", "COPY t, line 3".to_owned()));
    assert_eq!(
        refused(&mut session, "1\t1\n2\tx\n"),
        ("22P02", "COPY t, line 2, column n: \"x\"".to_owned())
    );
    assert_eq!(refused(&mut session, "1\n"), ("22P04", "COPY t, line 1".to_owned()));
    // PostgreSQL counts fields before it reads them.
    assert_eq!(refused(&mut session, "x\t1\t2\n"), ("22P04", "COPY t, line 1".to_owned()));
    assert_eq!(one(&mut session, "select count(*) from t"), "0");
}
