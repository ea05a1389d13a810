//! Entrance for a fuzz target: a text of statements, to their plans and their answers.

use thermocline_engine::{Database, Options};

use crate::Session;

thread_local! {
    static DATABASE: Database = filled();
}

/// A database with a little of everything.
fn filled() -> Database {
    let options = Options::default().with_memory_limit(Some(64 << 20));
    let db = Database::open_in_memory(options).expect("a database in memory opens");
    let mut session = Session::new(&db);
    let texts = "create table t (a int primary key, b text, c numeric(8, 2) default 1, d timestamp, e int[], f jsonb);
        insert into t select g, 'b' || g, g, '2024-01-01'::timestamp + g * interval '1 day', array[g, g + 1], '{\"g\": [1, 2]}'
            from generate_series(1, 9) g;
        create table u (a int references t, g float8, h bool, i uuid, j date, k bytea, l interval);
        insert into u values (1, 1.5, true, null, '2024-01-01', 'x', '1 day'), (2, null, null, null, null, null, null);
        create index on t (b, c);
        create view v as select t.a, u.g, b from t left join u on t.a = u.a;
        create sequence s";
    session.run(texts, drop).expect("the texts are statements");
    db
}

/// Parses, binds and runs statements, each for a moment.
pub fn statements(text: &str) {
    DATABASE.with(|db| {
        let mut session = Session::new(db);
        let _ = session.set("statement_timeout", "20ms");
        let Ok(all) = session.parse(text) else { return };
        for mut statement in all.into_iter().take(4) {
            let described = session.begin_implicit().and_then(|()| session.describe(&mut statement, &[]));
            if described.is_ok() && statement.parameters().is_empty() {
                let _ = session.execute_prepared(&mut statement, &[]);
            }
        }
        // Nothing of it stays.
        session.abandon();
        let _ = thermocline_engine::block_on(session.end_implicit());
    });
}

#[cfg(test)]
mod tests {
    use thermocline_base::rng::Rng;

    /// Random words of SQL, and random signs.
    #[test]
    fn every_text_is_answered_or_refused() {
        const WORDS: &[&str] = &[
            "select",
            "from",
            "t",
            "u",
            "v",
            "where",
            "group by",
            "order by",
            "a",
            "b",
            "c",
            "e",
            "f",
            "1",
            "'x'",
            "null",
            "(",
            ")",
            ",",
            "*",
            "=",
            "<",
            "||",
            "+",
            "::",
            "int",
            "text[]",
            "with",
            "recursive",
            "as",
            "union",
            "all",
            "lateral",
            "join",
            "on",
            "count(*)",
            "generate_series(1, 3)",
            "row_number() over ()",
            "array[",
            "]",
            "case when",
            "then",
            "end",
            "in",
            "exists",
            "insert into",
            "values",
            "update",
            "set",
            "delete from",
            "limit",
            "having",
            "distinct",
            "max(",
            "unnest(",
            "not",
            "and",
            "between",
            "any",
            "copy",
            "to stdout",
            "declare x cursor for",
            "explain",
            ";",
            "$1",
            "cast(",
            "interval '1 day'",
            "@>",
            "->",
        ];
        let mut rng = Rng::new(5);
        for _ in 0..4_000 {
            let count = rng.below(24);
            let mut text = String::from(if rng.chance(0.7) { "select " } else { "" });
            for _ in 0..count {
                if rng.chance(0.03) {
                    text.push(char::from_u32(rng.below(0x300) as u32).unwrap_or('x'));
                } else {
                    text.push_str(WORDS[rng.below(WORDS.len() as u64) as usize]);
                }
                text.push(' ');
            }
            super::statements(&text);
        }
    }
}
