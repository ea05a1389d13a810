//! What was written is read again without a difference, and what does not fit is told with its line and column.

use std::ops::ControlFlow;

use thermocline_base::rng::Rng;
use thermocline_engine::row::{Column, EncodedRow, Type, Value};
use thermocline_engine::{Database, IndexSchema, Options, TableSchema, TransactionOptions};
use thermocline_exchange::{ExchangeError, Format, describe, dump, load};

fn database() -> Database {
    let db =
        Database::open_in_memory(Options::default().with_memory_limit(Some(64 << 20))).expect("it opens");
    let types = [
        ("boolean", Type::Boolean),
        ("small", Type::Int2),
        ("number", Type::Int4),
        ("real", Type::Float4),
        ("double", Type::Float8),
        ("price", Type::Decimal { precision: 9, scale: 2 }),
        ("large", Type::Decimal { precision: 38, scale: 10 }),
        ("text", Type::Text),
        ("short", Type::Varchar(20)),
        ("fixed", Type::Char(5)),
        ("bytes", Type::Bytes),
        ("day", Type::Date),
        ("hour", Type::Time),
        ("moment", Type::Timestamp),
        ("instant", Type::TimestampTz),
        ("period", Type::Interval),
        ("name", Type::Uuid),
    ];
    let schema = TableSchema::new("t")
        .column(Column::new("id", Type::Int8))
        .columns(types.map(|(name, ty)| Column::new(name, ty).nullable()))
        .column(Column::new("five", Type::Int4).nullable().default(5))
        .primary_key(IndexSchema::ordered("key", &["id"]));
    db.create_table(schema).expect("a table");
    db
}

/// Values of a row, any of which may be null, at an edge, or hard to write.
fn values(rng: &mut Rng, id: i64) -> Vec<Value> {
    let mut values = vec![Value::Int8(id)];
    let texts =
        ["", "\\N", "\\", "\\\\N", "a,b", "line\nline", "\"quoted\"", "ÄÖ😀", " x ", "null", "\r\n,\""];
    let texts = |rng: &mut Rng| texts[rng.below(texts.len() as u64) as usize];
    let floats =
        [0.0, -0.0, 0.1, 1e300, -1e-300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, 1.0 / 3.0];
    let float = floats[rng.below(floats.len() as u64) as usize];
    let spelled = |text: &str| Value::from(text);
    let parsed: [Value; 17] = [
        Value::Boolean(rng.chance(0.5)),
        Value::Int2([i16::MIN, 0, i16::MAX][rng.below(3) as usize]),
        Value::Int4([i32::MIN, 0, i32::MAX][rng.below(3) as usize]),
        Value::Float4(float as f32),
        Value::Float8(if rng.chance(0.5) { float } else { f64::from_bits(rng.next_u64() & !(1 << 62)) }),
        Value::Decimal(["0.00", "-1234567.89", "0.01"][rng.below(3) as usize].parse().expect("a decimal")),
        Value::Decimal(
            ["1234567890123456789012345678.0123456789", "-0.0000000001"][rng.below(2) as usize]
                .parse()
                .expect("a decimal"),
        ),
        spelled(texts(rng)),
        spelled(texts(rng)),
        spelled(["", "abcde", "\\N"][rng.below(3) as usize]),
        Value::Bytes((0..rng.below(9)).map(|_| rng.next_u64() as u8).collect()),
        Value::Date(
            ["1970-01-01", "0001-01-01", "2024-02-29"][rng.below(3) as usize].parse().expect("a day"),
        ),
        Value::Time(["00:00:00", "23:59:59.999999"][rng.below(2) as usize].parse().expect("a time")),
        Value::Timestamp(
            ["1969-12-31 23:59:59.000001", "2024-02-29 12:00:00"][rng.below(2) as usize]
                .parse()
                .expect("a moment"),
        ),
        Value::TimestampTz(
            ["1969-12-31 23:59:59.000001+00", "2024-02-29 12:00:00+00"][rng.below(2) as usize]
                .parse()
                .expect("an instant"),
        ),
        Value::Interval(["P1Y2M-3DT4H5M6.000007S", "PT0S"][rng.below(2) as usize].parse().expect("a period")),
        Value::Uuid("123e4567-e89b-12d3-a456-426614174000".parse().expect("a name")),
    ];
    values.extend(parsed.into_iter().map(|value| if rng.chance(0.2) { Value::Null } else { value }));
    values.push(if rng.chance(0.5) { Value::Null } else { Value::Int4(7) });
    values
}

/// All rows, in any order that is the same each time, as bytes: what is equal is so to the bit.
fn rows(db: &Database) -> Vec<Vec<u8>> {
    let table = db.table("t").expect("a table");
    let rows = db.run(TransactionOptions::new().read_only(), async |tx| {
        let mut rows = Vec::new();
        tx.scan_table(&table, |row| {
            rows.push(row.to_vec());
            ControlFlow::Continue(())
        })
        .await?;
        rows.sort();
        Ok(rows)
    });
    rows.expect("a scan")
}

fn filled(count: i64) -> Database {
    let db = database();
    let table = db.table("t").expect("a table");
    let mut rng = Rng::new(7);
    let rows: Vec<Vec<Value>> = (0..count).map(|id| values(&mut rng, id)).collect();
    db.run(TransactionOptions::new(), async |tx| {
        for values in &rows {
            let mut row = EncodedRow::new();
            // Nulls as they are: no default in their place.
            table.layout().encode_row(values, &mut row).map_err(|error| table.error(error))?;
            tx.insert(&table, &row).await?;
        }
        Ok(())
    })
    .expect("the rows are new");
    db
}

#[test]
fn what_was_dumped_is_loaded_again() {
    let db = filled(1_200);
    for format in [Format::Csv, Format::Json] {
        let mut text = Vec::new();
        assert_eq!(dump(&db, "t", format, &mut text).expect("it can be written"), 1_200);
        let copy = database();
        let mut told = Vec::new();
        let loaded = load(&copy, "t", format, &text[..], &mut |rows| told.push(rows));
        assert_eq!(loaded.unwrap_or_else(|error| panic!("{format:?}: {error}")), 1_200);
        assert!(told.len() >= 3 && told.last() == Some(&1_200), "{told:?}");
        assert_eq!(rows(&db), rows(&copy), "{format:?}");
    }
}

fn refused(format: Format, text: &str) -> ExchangeError {
    load(&database(), "t", format, text.as_bytes(), &mut |_| {}).expect_err("it does not fit")
}

#[test]
fn what_does_not_fit_is_told_with_its_line_and_column() {
    let cases = [
        (Format::Csv, "id,number\n1,2\n2,x\n", "line 3, column \"number\""),
        (Format::Csv, "id,number\n1,2\n2\n", "line 3: it has 1 fields"),
        (Format::Csv, "id,nobody\n1,2\n", "line 1, column \"nobody\""),
        (Format::Csv, "id,text\n1,\"two\nlines\"\n\\N,x\n", "line 4"),
        (Format::Csv, "id,bytes\n1,00ff\n", "line 2, column \"bytes\""),
        (Format::Csv, "id,bytes\n1,\\x0\n", "line 2, column \"bytes\""),
        (Format::Csv, "id,price\n1,12345678901.00\n", "line 2"),
        (Format::Json, "{\"id\":1}\n{\"id\":\"x\"}\n", "line 2, column \"id\""),
        (Format::Json, "{\"id\":1}\n\n{\"id\":2\n", "line 3: it is no JSON"),
        (Format::Json, "{\"id\":1}\n[2]\n", "line 2: it is no JSON object"),
        (Format::Json, "{\"id\":1,\"number\":2.5}\n", "line 1, column \"number\""),
        (Format::Json, "{\"id\":1}\n{\"id\":1}\n", "line 2"),
    ];
    for (format, text, expected) in cases {
        let error = refused(format, text).to_string();
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn columns_that_are_not_named_get_their_defaults() {
    let db = database();
    let text = "{\"id\":1}\n{\"id\":2,\"five\":null}\n{\"id\":3,\"five\":6}\n";
    assert_eq!(load(&db, "t", Format::Json, text.as_bytes(), &mut |_| {}).expect("they fit"), 3);
    let mut written = Vec::new();
    dump(&db, "t", Format::Csv, &mut written).expect("it can be written");
    let written = String::from_utf8(written).expect("text");
    let mut last: Vec<&str> =
        written.lines().skip(1).map(|line| line.rsplit(',').next().unwrap_or("")).collect();
    last.sort_unstable();
    assert_eq!(last, ["5", "6", "\\N"]);
    assert!(matches!(dump(&db, "nobody", Format::Csv, Vec::new()), Err(ExchangeError::Engine(_))));
}

#[test]
fn tables_are_described() {
    let text = describe(&filled(3)).expect("it is open");
    for expected in
        ["t  (3 rows in memory, 0 cold)", "id bigint not null", "primary key key (id) ordered", "five"]
    {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}
