//! Groups over a table that is read by batches, beside the same groups of the same rows one by one: `offset 0` keeps batches away.

use thermocline_base::depth;
use thermocline_base::rng::Rng;
use thermocline_engine::{Database, Options, Tiering};
use thermocline_sql::Session;

/// Columns of which equal values may look otherwise: which of them stands for a group depends on the order of the rows.
const OF_FORMS: [&str; 4] = ["f", "f4", "m", "iv"];

/// Columns, their types, and values of theirs.
const COLUMNS: [(&str, &str, &[&str]); 19] = [
    ("i2", "smallint", &["0", "1", "-3", "32767", "-32768"]),
    ("i4", "int", &["0", "7", "-1", "2147483647", "-2147483648"]),
    ("i8", "bigint", &["0", "5", "-9", "9223372036854775807"]),
    ("f", "float8", &["0", "-0", "1.5", "nan", "-1e300", "infinity"]),
    ("f4", "real", &["0", "0.1", "-2.5", "nan"]),
    ("n", "numeric(8,2)", &["0", "0.01", "-1.50", "999999.99", "12.3"]),
    ("w", "numeric(30,4)", &["0", "0.0001", "99999999999999999999999999.9999", "-5"]),
    ("m", "numeric", &["0", "1.000", "123456789012345678901234567890", "nan", "0.125"]),
    ("b", "boolean", &["true", "false"]),
    ("s", "text", &["''", "'a'", "'abcdefg'", "'abcdefgh'", "'ein längerer Text'", "'a '"]),
    ("v", "varchar(12)", &["''", "'x'", "'twelve bytes'", "'ü'"]),
    ("c", "char(6)", &["''", "'a'", "'sixsix'", "'äöü'"]),
    ("y", "bytea", &["'\\x'", "'\\x00ff'", "'\\x000102030405060708'"]),
    ("d", "date", &["'2026-01-31'", "'1969-12-31'", "'infinity'"]),
    ("ti", "time", &["'00:00'", "'23:59:59.999999'"]),
    ("ts", "timestamp", &["'2026-02-28 12:00'", "'1900-01-01'", "'-infinity'"]),
    ("tz", "timestamptz", &["'2026-06-01 00:00+02'", "'1999-12-31 23:59+00'"]),
    ("iv", "interval", &["'1 month'", "'30 days'", "'-2 hours'"]),
    ("j", "jsonb", &["'1'", "'{\"a\": [1, 2.0]}'", "'null'"]),
];

struct Source(Rng);

impl Source {
    fn pick<'p, T: ?Sized>(&mut self, from: &[&'p T]) -> &'p T {
        from[self.0.below(from.len() as u64) as usize]
    }

    fn column(&mut self) -> (&'static str, &'static str, &'static [&'static str]) {
        COLUMNS[self.0.below(COLUMNS.len() as u64) as usize]
    }

    fn literal(&mut self, (_, ty, values): (&str, &str, &[&str])) -> String {
        let value = self.pick(values);
        match value.starts_with('\'') {
            true => format!("{value}::{ty}"),
            false => format!("'{value}'::{ty}"),
        }
    }

    fn row(&mut self) -> String {
        let values: Vec<String> = COLUMNS
            .iter()
            .map(|column| if self.0.chance(0.15) { "null".to_owned() } else { self.literal(*column) })
            .collect();
        values.join(", ")
    }

    /// A number, which may be beyond its type.
    fn number(&mut self) -> String {
        let known = [
            "i2",
            "i4",
            "i8",
            "n",
            "w",
            "m",
            "n * 2",
            "n * n",
            "n * (1 - n)",
            "n + i4",
            "n - 0.125",
            "i4 * 3",
            "i4 + i2",
            "i8 - i4",
            "i2 * i2",
            "-n",
            "n / 3",
            "i4 / nullif(i2, 0)",
            "100 / i2",
            "i4 % 7",
            "abs(i2)",
            "case when b then n else 0 end",
            "coalesce(n, i2)",
            "length(s)",
            "extract(year from d)",
            "n * m",
        ];
        self.pick(&known).to_owned()
    }

    fn condition(&mut self, depth: u32) -> String {
        let column = self.column();
        let (name, ..) = column;
        let not = self.pick(&["", "not "]);
        let op = self.pick(&["=", "<>", "<", "<=", ">", ">="]);
        match self.0.below(if depth == 0 { 6 } else { 9 }) {
            0 => format!("{name} is {not}null"),
            1 if column.1 != "jsonb" => format!("{} {op} {name}", self.literal(column)),
            2 => "i4 > i2".to_owned(),
            3 => format!("n {op} {}", self.pick(&["1", "0.005", "12.30", "n", "i4", "1e20"])),
            4 => format!("s {}like '%{}%'", not, self.pick(&["a", "g", "ü"])),
            5 if column.1 != "jsonb" => {
                format!("{name} {not}in ({}, {})", self.literal(column), self.literal(column))
            }
            6 => format!("({} and {})", self.condition(depth - 1), self.condition(depth - 1)),
            7 => format!("({} or {})", self.condition(depth - 1), self.condition(depth - 1)),
            8 => format!("not ({})", self.condition(depth - 1)),
            _ => format!("{name} is not distinct from {}", self.literal(column)),
        }
    }

    /// An aggregate. `any`: of those, too, whose answer depends on the order of the rows.
    fn aggregate(&mut self, any: bool) -> String {
        let call = match self.0.below(if any { 9 } else { 6 }) {
            0 => "count(*)".to_owned(),
            1 => format!("count({})", self.column().0),
            2 => format!("sum({})", self.number()),
            3 => format!("avg({})", self.number()),
            4 => {
                let has_order =
                    |name: &&str| !["b", "y", "j"].contains(name) && (any || !OF_FORMS.contains(name));
                let of: Vec<&str> = COLUMNS.iter().map(|column| column.0).filter(has_order).collect();
                format!("{}({})", self.pick(&["min", "max"]), self.pick(&of))
            }
            5 => "bool_or(b)".to_owned(),
            6 => "string_agg(s, ',')".to_owned(),
            7 => format!("array_agg({})", self.column().0),
            _ => "stddev(f4)".to_owned(),
        };
        if self.0.chance(0.2) { format!("{call} filter (where {})", self.condition(1)) } else { call }
    }

    /// A query over a table that is named `t`.
    fn query(&mut self, any: bool) -> String {
        let keys: Vec<String> = (0..self.0.below(4))
            .map(|_| match self.0.below(4) {
                0 if any => self.number(),
                _ => self.column().0.to_owned(),
            })
            .filter(|key| any || !OF_FORMS.contains(&key.as_str()))
            .collect();
        let calls: Vec<String> = (0..self.0.between(1, 4)).map(|_| self.aggregate(any)).collect();
        let conditions: Vec<String> = (0..self.0.below(3)).map(|_| self.condition(2)).collect();
        let listed: Vec<&str> = keys.iter().chain(&calls).map(String::as_str).collect();
        let mut text = format!("select {} from t", listed.join(", "));
        if self.0.chance(0.3) {
            // Another layer.
            text =
                text.replace(" from t", &format!(" from (select * from t where {}) as t", self.condition(1)));
        }
        if !conditions.is_empty() {
            text += &format!(" where {}", conditions.join(" and "));
        }
        if !keys.is_empty() {
            let places: Vec<String> = (1..=keys.len()).map(|place| place.to_string()).collect();
            text += &format!(" group by {}", places.join(", "));
        }
        text
    }
}

/// The rows of a query, sorted, or the SQLSTATE of its error.
fn rows(session: &mut Session, text: &str) -> Result<Vec<String>, String> {
    let answer = session.execute(text, &[]).map_err(|error| error.code.to_owned())?;
    let row = |row: usize| {
        let values =
            (0..answer.columns.len()).map(|at| answer.text(row, at).unwrap_or_else(|| "null".to_owned()));
        values.collect::<Vec<_>>().join("|")
    };
    let mut found: Vec<String> = (0..answer.rows.len()).map(row).collect();
    found.sort_unstable();
    Ok(found)
}

fn run(session: &mut Session, text: &str) {
    session.run(text, drop).unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// Asks a query of batches and of rows; true if it has an answer.
fn alike(session: &mut Session, text: &str) -> bool {
    let by_row = text.replacen("from t", "from (select * from t offset 0) as t", 1);
    let by_row = by_row.replacen(
        "(select * from (select * from t offset 0) as t where",
        "(select * from (select * from t offset 0) as r where",
        1,
    );
    run(session, "savepoint before");
    let one = rows(session, text);
    run(session, "rollback to before");
    let other = rows(session, &by_row);
    run(session, "rollback to before");
    run(session, "release before");
    assert!(one == other, "{text}\n{by_row}\n{one:?}\n{other:?}");
    one.is_ok()
}

fn table(source: &mut Source, tiering: Tiering, count: u64) -> Session {
    let db = Database::open_in_memory(Options::default().with_tiering(tiering)).expect("it opens");
    let mut session = Session::new(&db);
    let columns: Vec<String> = COLUMNS.iter().map(|(name, ty, _)| format!("{name} {ty}")).collect();
    run(&mut session, &format!("create table t ({})", columns.join(", ")));
    // Some different rows, each many times: more than a batch.
    let different: Vec<String> =
        (0..source.0.between(1, 40)).map(|_| format!("({})", source.row())).collect();
    run(&mut session, &format!("create table few ({})", columns.join(", ")));
    run(&mut session, &format!("insert into few values {}", different.join(", ")));
    let times = count / different.len() as u64;
    run(&mut session, &format!("insert into t select few.* from generate_series(1, {times}) as n, few"));
    session
}

#[test]
fn batches_and_rows_have_one_answer() {
    let mut source = Source(Rng::new(depth::seed()));
    let mut answered = 0;
    for round in 0..depth::either(4, 100) {
        let count = [0, 60, 2500, 5000][round as usize % 4];
        let mut session = table(&mut source, Tiering::Hot, count);
        run(&mut session, "begin");
        for _ in 0..60 {
            let query = source.query(true);
            answered += u32::from(alike(&mut session, &query));
        }
        // Its own changes are not plain: they are visited.
        run(&mut session, "update t set i2 = 4, s = 'other' where b");
        run(&mut session, "delete from t where i4 = 7");
        run(&mut session, "insert into t select * from few");
        for _ in 0..30 {
            let query = source.query(false);
            answered += u32::from(alike(&mut session, &query));
        }
        run(&mut session, "rollback");
    }
    assert!(answered > 100, "{answered} queries had an answer");
}

/// Each kind of column compared in each way with its values, with others that are equal to them, and with some between; and sorted.
#[test]
fn each_column_is_compared_and_sorted_as_by_row() {
    let mut source = Source(Rng::new(11));
    let mut session = table(&mut source, Tiering::Hot, 1500);
    run(&mut session, "begin");
    let more = ["1", "1.0", "0.1250", "12.30", "-0.00", "9", "'a     '", "''", "'2026-01-31 00:00'", "'b'"];
    for column in COLUMNS {
        let (name, ty, values) = column;
        let mut literals: Vec<String> =
            values.iter().map(|value| value.trim_matches('\'').to_owned()).collect();
        let fitting = more.iter().map(|value| value.trim_matches('\'').to_owned()).filter(|value| {
            let is_date = value.starts_with("2026");
            let is_number = value.parse::<f64>().is_ok();
            match name {
                "i2" | "i4" | "i8" => value.parse::<i64>().is_ok(),
                "f" | "f4" | "n" | "w" | "m" => is_number,
                "s" | "v" | "c" => true,
                "ts" | "tz" | "d" => is_date,
                _ => false,
            }
        });
        literals.extend(fitting);
        for literal in literals {
            for op in ["=", "<>", "<", "<=", ">", ">="] {
                for text in [format!("{name} {op} '{literal}'::{ty}"), format!("'{literal}' {op} {name}")] {
                    alike(&mut session, &format!("select count(*), count({name}) from t where {text}"));
                }
            }
        }
        let unlike = OF_FORMS.contains(&name);
        for order in [format!("{name}, i8, s, b, d"), format!("{name} desc nulls last, i8, s, b, d")] {
            let shown = if unlike { "i8, s, b, d".to_owned() } else { format!("{name}, i8, s, b, d") };
            alike(&mut session, &format!("select {shown} from t order by {order}"));
        }
        if !unlike {
            alike(&mut session, &format!("select distinct {name}, c, v from t order by {name}, c, v"));
        }
    }
}

#[test]
fn the_first_failing_row_has_the_error() {
    let db = Database::open_in_memory(Options::default()).expect("it opens");
    let mut session = Session::new(&db);
    run(&mut session, "create table t (i int, k int)");
    run(&mut session, "insert into t select n, n from generate_series(1, 3000) as n");
    run(&mut session, "update t set i = 0 where k = 2000");
    run(&mut session, "update t set i = 2147483647 where k = 1999");
    let mut refused = |text: &str| session.execute(text, &[]).expect_err(text).code;
    assert_eq!(refused("select sum(1 / i), sum(i + 1) from t"), "22003");
    assert_eq!(refused("select sum(i + 1), sum(1 / i) from t"), "22003");
    assert_eq!(refused("select sum(i + 1), sum(1 / i) from t where k <> 1999"), "22012");
    assert_eq!(refused("select sum(1 / i) from t where i + 1 > 0"), "22003");
    // A row that an earlier condition takes has no error; nor has one that AND, OR, CASE or FILTER leave out.
    for text in [
        "select sum(1 / i) from t where i <> 0 and i < 5000 and 1 / i >= 0",
        "select count(*) from t where i = 0 or 1 / i > 5",
        "select count(*) from t where k > 0 and not (i <> 0 and 1 / i > 5)",
        "select sum(case when i = 0 then 1 else 1 / i end) from t",
    ] {
        session.execute(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn groups_beyond_the_memory_are_refused() {
    let db =
        Database::open_in_memory(Options::default().with_memory_limit(Some(48 << 20))).expect("it opens");
    let mut session = Session::new(&db);
    run(&mut session, "create table t (i int, s text)");
    for from in (0..200_000).step_by(20_000) {
        let text = format!(
            "insert into t select n, 'a text that is long: ' || n from generate_series({from}, {from} + 19999) n"
        );
        run(&mut session, &text);
    }
    let refused = session.execute("select count(*) from (select s, count(*) from t group by s) as q", &[]);
    assert_eq!(refused.expect_err("there is no room for so many groups").code, "53200");
    let answer = session.execute("select count(*), sum(i), max(s) from t", &[]).expect("one group has room");
    assert_eq!(answer.text(0, 0).as_deref(), Some("200000"));
    // The memory was given back.
    run(&mut session, "insert into t select n, 'more' from generate_series(1, 1000) as n");
}
