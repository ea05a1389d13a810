//! Scans by column against scans by row: the same rows under one snapshot, wherever they stand and whatever becomes of them meanwhile.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::Poll;

use thermocline_base::rng::Rng;
use thermocline_engine::columns::{Aggregate, Condition, Function, Values};
use thermocline_engine::row::{
    Column, Date, Decimal, Interval, KeyBuf, Time, Timestamp, TimestampTz, Type, Uuid, Value,
};
use thermocline_engine::{
    ColdStoreKind, Database, IndexSchema, Isolation, Options, PagerKind, Table, TableSchema, Tiering,
    Transaction, TransactionOptions, block_on,
};

use crate::moves::{Mover, World, rounds};

const KEYS: i64 = 900;

fn types() -> Vec<Type> {
    vec![
        Type::Boolean,
        Type::Int2,
        Type::Int4,
        Type::Int8,
        Type::Float4,
        Type::Float8,
        Type::Decimal { precision: 9, scale: 2 },
        Type::Decimal { precision: 38, scale: 10 },
        Type::Text,
        Type::Char(5),
        Type::Bytes,
        Type::Date,
        Type::Time,
        Type::Timestamp,
        Type::TimestampTz,
        Type::Interval,
        Type::Uuid,
    ]
}

/// A value of the type: few different ones, or the ends of what there is.
fn value(ty: Type, random: &mut Rng) -> Value {
    let small = random.below(12) as i64 - 6;
    let n = if random.chance(0.1) { [i64::MIN, i64::MAX, 0][random.below(3) as usize] } else { small };
    match ty {
        Type::Boolean => Value::Boolean(n & 1 != 0),
        Type::Int2 => Value::Int2(n as i16),
        Type::Int4 => Value::Int4(n as i32),
        Type::Int8 => Value::Int8(n),
        Type::Float4 => Value::Float4(if n == 3 { f32::NAN } else { n as f32 / 4.0 }),
        Type::Float8 => Value::Float8(if n == 3 { f64::NAN } else { n as f64 / 4.0 }),
        Type::Decimal { precision, scale } => {
            let limit = 10i128.pow(u32::from(precision));
            Value::Decimal(Decimal::new((i128::from(n) << (precision / 2)) % limit, scale).expect("in range"))
        }
        Type::Char(_) => Value::Text(["", "a", "ab", "ß"][n.unsigned_abs() as usize % 4].to_owned()),
        Type::Bytes => Value::Bytes(n.to_le_bytes()[..n.unsigned_abs() as usize % 9].to_vec()),
        Type::Date => Value::Date(Date(n as i32)),
        Type::Time => Value::Time(Time::from_micros(n.rem_euclid(86_400_000_000)).expect("in a day")),
        Type::Timestamp => Value::Timestamp(Timestamp(n)),
        Type::TimestampTz => Value::TimestampTz(TimestampTz(n)),
        Type::Interval => Value::Interval(Interval::new(small as i32 % 2, small as i32 * 30, n)),
        Type::Uuid => Value::Uuid(Uuid(i128::from(n).to_be_bytes())),
        _ => {
            Value::Text(format!("name {}", if random.chance(0.2) { random.next_u64() } else { n as u64 % 7 }))
        }
    }
}

fn row(id: i64, random: &mut Rng) -> Vec<Value> {
    let mut row = vec![Value::Int8(id)];
    for ty in types() {
        row.push(if random.chance(0.15) { Value::Null } else { value(ty, random) });
    }
    row
}

fn condition(ty: Type, random: &mut Rng) -> Condition {
    let v = value(ty, random);
    match random.below(10) {
        0 => Condition::Equal(v),
        1 => Condition::Less(v),
        2 => Condition::LessOrEqual(v),
        3 => Condition::Greater(v),
        4 => Condition::GreaterOrEqual(v),
        5 => Condition::Between(v, value(ty, random)),
        6 => Condition::In((0..random.below(8)).map(|_| value(ty, random)).collect()),
        7 => Condition::IsNotNull,
        8 => Condition::Holds(Function::new(move |value| value.is_null() || *value == v)),
        _ if matches!(ty, Type::Text) => Condition::Prefix(b"name 1".to_vec()),
        _ => Condition::IsNull,
    }
}

/// The condition, written once more.
fn holds(condition: &Condition, v: &Value) -> bool {
    let order = |other: &Value| v.compare(other).map(|order| order as i8);
    match condition {
        Condition::IsNull => v.is_null(),
        Condition::IsNotNull => !v.is_null(),
        Condition::Equal(x) => order(x) == Some(0),
        Condition::Less(x) => order(x) == Some(-1),
        Condition::LessOrEqual(x) => order(x).is_some_and(|order| order <= 0),
        Condition::Greater(x) => order(x) == Some(1),
        Condition::GreaterOrEqual(x) => order(x).is_some_and(|order| order >= 0),
        Condition::Between(a, b) => {
            order(a).is_some_and(|order| order >= 0) && order(b).is_some_and(|order| order <= 0)
        }
        Condition::In(values) => values.iter().any(|x| order(x) == Some(0)),
        Condition::Prefix(prefix) => matches!(v, Value::Text(text) if text.as_bytes().starts_with(prefix)),
        Condition::Holds(_) => panic!("functions are asked by their tests"),
        _ => panic!("a condition that this test does not know"),
    }
}

fn schema(name: &str) -> TableSchema {
    let mut schema = TableSchema::new(name).column(Column::new("id", Type::Int8));
    for (i, ty) in types().into_iter().enumerate() {
        schema = schema.column(Column::new(format!("c{i}"), ty).nullable());
    }
    schema.primary_key(IndexSchema::hash("key", &["id"]))
}

fn key(id: i64) -> KeyBuf {
    KeyBuf::new().i64(id)
}

/// The bits of values, where their own equality follows SQL.
fn bits(values: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|value| value.encode(&mut bytes));
    bytes
}

async fn by_row(tx: &mut Transaction, table: &Table) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    let layout = table.layout();
    tx.scan_table(table, |row| {
        rows.push(layout.decode(row).expect("a row"));
        ControlFlow::Continue(())
    })
    .await
    .expect("it scans");
    rows
}

/// A database whose rows move.
struct Moving {
    db: Database,
    table: Table,
    mover: Mover,
    random: Rng,
}

impl Moving {
    fn new(world: World, seed: u64) -> Self {
        let db = Database::open_in_memory(world.options(Options::default())).expect("memory is enough");
        let table = db.create_table(schema("t")).expect("the definition is fine");
        let mover = Mover::new(world, &db, &table, 0..KEYS);
        let mut moving = Self { db, table, mover, random: Rng::new(seed) };
        let rows: Vec<_> = (0..KEYS * 2 / 3).map(|id| row(id, &mut moving.random)).collect();
        moving.commit(async |tx, table| {
            for row in &rows {
                tx.insert_values(table, row).await.expect("a fresh row");
            }
        });
        moving
    }

    fn finish<T>(mover: &Mover, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = mover.poll(future.as_mut()) {
                return output;
            }
            std::thread::yield_now();
        }
    }

    fn commit(&mut self, body: impl AsyncFn(&mut Transaction, &Table)) {
        let (db, table) = (&self.db, &self.table);
        Self::finish(&self.mover, async {
            let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
            body(&mut tx, table).await;
            // Beside an older snapshot a change may fail, and nothing has changed then.
            let _ = tx.commit().await;
        });
    }

    /// Others change some rows, those of even numbers: none waits for the transaction that scans.
    fn change(&mut self) {
        let changes: Vec<(i64, Vec<Value>, u64)> = (0..20)
            .map(|_| {
                let id = self.random.below(KEYS as u64) as i64 / 2 * 2;
                (id, row(id, &mut self.random), self.random.below(3))
            })
            .collect();
        self.commit(async |tx, table| apply(tx, table, &changes).await);
    }
}

async fn apply(tx: &mut Transaction, table: &Table, changes: &[(i64, Vec<Value>, u64)]) {
    for (id, row, what) in changes {
        if *what == 0 {
            tx.delete(&table.primary(), &key(*id)).await.expect("nobody else changes it");
            continue;
        }
        let updated = tx
            .update(&table.primary(), &key(*id), |editor| {
                for (column, value) in row.iter().enumerate() {
                    editor.set_value(column, value)?;
                }
                Ok(())
            })
            .await
            .expect("nobody else changes it");
        if updated.is_none() {
            tx.insert_values(table, row).await.expect("it is not there");
        }
    }
}

/// One transaction that has changed rows itself scans by row and by column; between batches rows move, and others change them.
fn compare_once(moving: &mut Moving, isolation: Isolation) {
    let (mut tx, own) = {
        let options = TransactionOptions::new().isolation(isolation);
        let tx = moving.db.begin(options).expect("it begins");
        let random = &mut moving.random;
        let own: Vec<(i64, Vec<Value>, u64)> = (0..random.below(8))
            .map(|_| {
                let id = random.below(KEYS as u64) as i64 | 1;
                (id, row(id, random), random.below(3))
            })
            .collect();
        (tx, own)
    };
    let table = moving.table.clone();
    let expected = Moving::finish(&moving.mover, async {
        apply(&mut tx, &table, &own).await;
        by_row(&mut tx, &table).await
    });
    let random = &mut moving.random;
    let types: Vec<Type> = [Type::Int8].into_iter().chain(types()).collect();
    let conditions: Vec<(usize, Condition)> = (0..random.below(3))
        .map(|_| {
            let column = random.below(types.len() as u64) as usize;
            let condition = condition(types[column], random);
            // What a function is asked is known here only by its own words.
            let known = if matches!(condition, Condition::Holds(_)) { Condition::IsNull } else { condition };
            (column, known)
        })
        .collect();
    let batch_rows = [1, 7, 100, 8192][random.below(4) as usize];
    let names: Vec<String> = table.layout().columns().iter().map(|column| column.name.clone()).collect();
    let mut scan = Moving::finish(&moving.mover, async {
        let mut query =
            tx.scan_columns(&table).columns(names.iter().map(String::as_str)).batch_rows(batch_rows);
        for (column, condition) in &conditions {
            query = query.filter(&names[*column], condition.clone());
        }
        query.open().await.expect("the query is fine")
    });
    let mut found = Vec::new();
    let mut batches = 0;
    loop {
        let next = Moving::finish(&moving.mover, tx.next_batch(&mut scan)).expect("it scans");
        let Some(batch) = next else { break };
        assert!((1..=batch_rows).contains(&batch.rows()));
        for row in 0..batch.rows() {
            found.push(batch.columns().iter().map(|column| column.value(row)).collect::<Vec<_>>());
        }
        batches += 1;
        if batches % (1 + 64 / batch_rows) == 0 {
            moving.mover.step();
            if isolation != Isolation::Serializable && moving.random.chance(0.3) {
                moving.change();
            }
        }
    }
    assert!(scan.is_finished());
    drop(scan);
    if isolation != Isolation::ReadCommitted {
        compare_aggregates(moving, &mut tx, &expected, &conditions, &names);
    }
    let mut expected: Vec<_> = expected
        .into_iter()
        .filter(|row| conditions.iter().all(|(column, condition)| holds(condition, &row[*column])))
        .map(|row| bits(&row))
        .collect();
    let mut found: Vec<_> = found.iter().map(|row| bits(row)).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert!(expected == found, "{} rows by row, {} by column: {conditions:?}", expected.len(), found.len());
}

/// The same transaction computes what its rows come to, while rows move.
fn compare_aggregates(
    moving: &mut Moving,
    tx: &mut Transaction,
    rows: &[Vec<Value>],
    conditions: &[(usize, Condition)],
    names: &[String],
) {
    let table = moving.table.clone();
    moving.mover.step();
    // The groups are those of a bigint, a text or a boolean, or there is one group.
    let keys: &[usize] = [&[][..], &[4], &[9], &[1, 9]][moving.random.below(4) as usize];
    let (integer, decimal) = (3, 7);
    let found = Moving::finish(&moving.mover, async {
        let mut query = tx.scan_columns(&table).group_by(keys.iter().map(|key| names[*key].as_str()));
        for (column, condition) in conditions {
            query = query.filter(&names[*column], condition.clone());
        }
        let measures = [
            Aggregate::Rows,
            Aggregate::count(&names[integer]),
            Aggregate::sum(&names[integer]),
            Aggregate::sum(&names[decimal]),
            Aggregate::min(&names[9]),
            Aggregate::max(&names[integer]),
        ];
        query.aggregate(&measures).await.expect("the query is fine")
    });
    let mut wanted: BTreeMap<Vec<u8>, Vec<&Vec<Value>>> = BTreeMap::new();
    if keys.is_empty() {
        wanted.insert(Vec::new(), Vec::new());
    }
    for row in rows {
        if conditions.iter().all(|(column, condition)| holds(condition, &row[*column])) {
            let key: Vec<Value> = keys.iter().map(|key| row[*key].clone()).collect();
            wanted.entry(bits(&key)).or_default().push(row);
        }
    }
    assert_eq!(found.len(), wanted.len());
    let sum = |values: &[&Value], scale: u8| {
        let number = |v: &&Value| match v {
            Value::Int4(v) => i128::from(*v),
            Value::Decimal(v) => v.rescale(scale).expect("its own scale").mantissa(),
            other => panic!("{other:?} is not summed"),
        };
        let sum = values.iter().map(number).sum();
        if values.is_empty() {
            Value::Null
        } else {
            Value::Decimal(Decimal::new(sum, scale).expect("in range"))
        }
    };
    for line in found {
        let rows = &wanted[&bits(&line.key)];
        let of = |column: usize| -> Vec<&Value> {
            rows.iter().map(|row| &row[column]).filter(|v| !v.is_null()).collect()
        };
        let less = |a: &&&Value, b: &&&Value| a.compare(b).expect("of one type");
        let (integers, texts) = (of(integer), of(9));
        let known = [
            Value::Int8(rows.len() as i64),
            Value::Int8(integers.len() as i64),
            sum(&integers, 0),
            sum(&of(decimal), 2),
            texts.iter().min_by(less).map_or(Value::Null, |v| (**v).clone()),
            integers.iter().max_by(less).map_or(Value::Null, |v| (**v).clone()),
        ];
        assert_eq!(line.values, known, "{keys:?} {conditions:?}");
    }
}

fn compare(world: World, seed: u64) {
    let mut moving = Moving::new(world, seed);
    for round in 0..6 {
        for _ in 0..moving.random.below(4) {
            moving.mover.step();
        }
        moving.change();
        let isolation = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::RepeatableRead];
        compare_once(&mut moving, isolation[round % 3]);
    }
}

#[test]
fn scans_by_column_find_what_scans_by_row_find_while_rows_freeze_and_thaw() {
    for seed in 0..rounds(3) {
        compare(World::Frozen, seed);
    }
}

#[test]
fn scans_by_column_find_what_scans_by_row_find_while_rows_leave_and_come_back() {
    for seed in 0..rounds(3) {
        compare(World::Ladder(ColdStoreKind::Pages, seed), seed);
        compare(World::Random(ColdStoreKind::Memory, seed), seed);
    }
}

#[test]
fn scans_by_column_read_the_paged_side() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options::default().with_paged_bytes(1).with_pager(PagerKind::default());
    let db = Database::open(directory.path(), options).expect("the options are fine");
    let table = db.create_table(schema("t").tiering(Tiering::Paged)).expect("the definition is fine");
    let mut random = Rng::new(1);
    block_on(async {
        let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
        for id in 0..KEYS {
            tx.insert_values(&table, &row(id, &mut random)).await.expect("a fresh row");
        }
        tx.commit().await.expect("nobody else is there");
    });
    assert!(db.page_out("t").expect("there is a paged side").rows > 0);
    let names: Vec<String> = table.layout().columns().iter().map(|column| column.name.clone()).collect();
    block_on(async {
        let mut tx = db.begin(TransactionOptions::new().read_only()).expect("it begins");
        let query = tx.scan_columns(&table).columns(names.iter().map(String::as_str)).batch_rows(64);
        let mut scan = query.open().await.expect("the query is fine");
        let mut found = Vec::new();
        while let Some(batch) = tx.next_batch(&mut scan).await.expect("it scans") {
            for row in 0..batch.rows() {
                let values: Vec<Value> = batch.columns().iter().map(|column| column.value(row)).collect();
                found.push(bits(&values));
            }
        }
        let mut expected: Vec<_> = by_row(&mut tx, &table).await.iter().map(|row| bits(row)).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert!(expected == found && found.len() == KEYS as usize, "{} rows", found.len());
    });
    db.close().expect("it closes");
}

/// A table of numbers: `id`, `part` = id % 10 and a `name` of ten; its rows frozen.
fn numbers(rows: i64) -> (Database, Table) {
    let db = Database::open_in_memory(Options::default()).expect("memory is enough");
    let schema = TableSchema::new("n")
        .column(Column::new("id", Type::Int8))
        .column(Column::new("part", Type::Int4))
        .column(Column::new("name", Type::Text))
        .primary_key(IndexSchema::hash("key", &["id"]));
    let table = db.create_table(schema).expect("the definition is fine");
    db.run(TransactionOptions::new(), async |tx| {
        for id in 0..rows {
            let name = format!("name {}", id % 10);
            tx.insert_values(&table, &[Value::Int8(id), Value::Int4((id % 10) as i32), Value::Text(name)])
                .await?;
        }
        Ok(())
    })
    .expect("memory is enough");
    db.freeze("n").expect("memory is enough");
    (db, table)
}

#[test]
fn frozen_strings_come_as_codes_and_limits_hold() {
    let (db, table) = numbers(4000);
    db.run(TransactionOptions::new().read_only(), async |tx| {
        let query = tx.scan_columns(&table).columns(["name"]).batch_rows(1024);
        let mut scan = query.filter("name", Condition::Prefix(b"name 7".to_vec())).open().await?;
        let batch = tx.next_batch(&mut scan).await?.expect("there are rows");
        let Values::Codes(codes, dictionary) = batch.columns()[0].values() else { panic!("no codes") };
        assert!(codes.iter().all(|code| dictionary.get(*code as usize) == b"name 7"));
        for (limit, rows) in [(0, 0), (1, 1), (511, 511), (1500, 1500), (9999, 4000)] {
            let mut scan = tx.scan_columns(&table).limit(limit).open().await?;
            let mut found = 0;
            while let Some(batch) = tx.next_batch(&mut scan).await? {
                assert!(batch.columns().is_empty());
                found += batch.rows();
            }
            assert_eq!(found, rows, "limit {limit}");
            assert!(tx.next_batch(&mut scan).await?.is_none() && scan.is_finished());
        }
        Ok(())
    })
    .expect("it scans");
}

async fn sum_of_ids(tx: &mut Transaction, table: &Table) -> thermocline_engine::Result<i64> {
    let query = tx.scan_columns(table).columns(["id"]).filter("part", Condition::Equal(Value::Int4(3)));
    let mut scan = query.open().await?;
    let mut sum = 0;
    while let Some(batch) = tx.next_batch(&mut scan).await? {
        let Values::Int8(ids) = batch.columns()[0].values() else { panic!("bigints") };
        sum += ids.iter().sum::<i64>();
    }
    Ok(sum)
}

/// Changes one row of the table in a transaction of its own.
fn set_part(db: &Database, table: &Table, id: i64) {
    db.run(TransactionOptions::new(), async |tx| {
        tx.update(&table.primary(), &key(id), |row| Ok(row.set_value(1, &Value::Int4(4))?)).await
    })
    .expect("nobody else changes it");
}

#[test]
fn a_serializable_transaction_fails_if_what_it_has_scanned_by_column_has_changed() {
    type Between = fn(&Database, &Table);
    let cases: [(Between, Option<&str>); 4] = [
        (|_, _| {}, None),
        (|db, table| set_part(db, table, 13), Some("40001")),
        // It was asked as well, and did not hold.
        (|db, table| set_part(db, table, 15), Some("40001")),
        (
            |db, table| {
                db.run(TransactionOptions::new(), async |tx| {
                    tx.insert_values(table, &[Value::Int8(5000), Value::Int4(3), Value::from("x")]).await
                })
                .expect("a fresh row");
            },
            Some("40001"),
        ),
    ];
    for (number, (between, fails)) in cases.into_iter().enumerate() {
        let (db, table) = numbers(1000);
        let mut tx =
            db.begin(TransactionOptions::new().isolation(Isolation::Serializable)).expect("it begins");
        let outcome = block_on(async {
            assert_eq!(sum_of_ids(&mut tx, &table).await?, (0..100).map(|i| 10 * i + 3).sum::<i64>());
            between(&db, &table);
            tx.insert_values(&table, &[Value::Int8(9000 + number as i64), Value::Int4(5), Value::from("x")])
                .await?;
            tx.commit().await
        });
        assert_eq!(outcome.err().map(|error| error.sqlstate()), fails, "case {number}");
    }
}

#[test]
fn a_scan_by_column_sees_its_moment_and_own_changes_of_before() {
    let (db, table) = numbers(1000);
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let before =
            db.run(TransactionOptions::new(), async |tx| sum_of_ids(tx, &table).await).expect("it scans");
        let mut tx = db.begin(TransactionOptions::new().isolation(isolation)).expect("it begins");
        block_on(async {
            let part = |part| {
                move |row: &mut thermocline_engine::row::RowEditor<'_>| {
                    Ok(row.set_value(1, &Value::Int4(part))?)
                }
            };
            tx.update(&table.primary(), &key(3), part(4)).await?;
            let query = tx.scan_columns(&table).columns(["id"]).batch_rows(10);
            let mut scan = query.filter("part", Condition::Equal(Value::Int4(3))).open().await?;
            tx.update(&table.primary(), &key(23), part(4)).await?;
            tx.update(&table.primary(), &key(5), part(3)).await?;
            let (mut sum, mut rows) = (0, 0);
            while let Some(batch) = tx.next_batch(&mut scan).await? {
                let Values::Int8(ids) = batch.columns()[0].values() else { panic!("bigints") };
                sum += ids.iter().sum::<i64>();
                rows += ids.len();
                tx.update(&table.primary(), &key(993), part(4)).await?;
            }
            assert_eq!((sum, rows), (before - 3, 99), "{isolation:?}");
            assert_eq!(sum_of_ids(&mut tx, &table).await?, before - 3 - 23 - 993 + 5);
            Ok::<_, thermocline_engine::Error>(())
        })
        .expect("it scans");
    }
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let (db, table) = numbers(10);
    let other = Database::open_in_memory(Options::default()).expect("memory is enough");
    let told = |outcome: thermocline_engine::Result<()>| {
        let error = outcome.expect_err("it is refused");
        (error.sqlstate(), error.to_string())
    };
    let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
    let (state, words) = told(block_on(tx.scan_columns(&table).columns(["nmae"]).open()).map(drop));
    assert!(state == "42703" && words.contains("nmae"), "{state} {words}");
    let wrong = Condition::Equal(Value::Text("7".to_owned()));
    let (state, words) = told(block_on(tx.scan_columns(&table).filter("id", wrong).open()).map(drop));
    assert!(state == "42804" && words.contains("\"n\"") && words.contains("\"id\""), "{state} {words}");
    let (state, words) =
        told(block_on(tx.scan_columns(&table).filter("id", Condition::Prefix(vec![1])).open()).map(drop));
    assert!(state == "42804" && words.contains("prefix"), "{state} {words}");
    let sum = tx.scan_columns(&table);
    let (state, words) = told(block_on(sum.aggregate(&[Aggregate::sum("name")])).map(drop));
    assert!(state == "42804" && words.contains("\"name\""), "{state} {words}");
    let groups = tx.scan_columns(&table).group_by(["nmae"]);
    assert_eq!(told(block_on(groups.aggregate(&[Aggregate::Rows])).map(drop)).0, "42703");
    let mut foreign = other.begin(TransactionOptions::new()).expect("it begins");
    assert_eq!(told(block_on(foreign.scan_columns(&table).open()).map(drop)).0, "55000");
    // A scan is of use to its own transaction, while that lasts.
    let mut scan = block_on(tx.scan_columns(&table).columns(["id"]).open()).expect("the query is fine");
    let mut next = db.begin(TransactionOptions::new()).expect("it begins");
    assert_eq!(told(block_on(next.next_batch(&mut scan)).map(drop)).0, "0A000");
    block_on(tx.commit()).expect("it has read");
    assert_eq!(told(block_on(next.next_batch(&mut scan)).map(drop)).0, "0A000");
    drop((scan, next));
    let mut tx = db.begin(TransactionOptions::new()).expect("it begins");
    db.drop_table("n").expect("nobody uses it");
    assert_eq!(told(block_on(tx.scan_columns(&table).open()).map(drop)).0, "42P01");
}

#[test]
fn groups_count_under_the_memory_limit_while_they_are_made() {
    let options = Options::default().with_memory_limit(Some(48 << 20));
    let db = Database::open_in_memory(options).expect("memory is enough");
    let schema =
        TableSchema::new("n").column(Column::new("id", Type::Int8)).column(Column::new("same", Type::Int8));
    let table = db.create_table(schema).expect("the definition is fine");
    let rows = (0..400_000).map(|id| [Value::Int8(id), Value::Int8(1)]);
    db.bulk_load_in_portions(&table, rows, |_| ()).expect("there is room");
    db.freeze("n").expect("there is room");
    let mut tx = db.begin(TransactionOptions::new().read_only()).expect("it begins");
    let by = |tx: &mut Transaction, column| {
        block_on(
            tx.scan_columns(&table).group_by([column]).aggregate(&[Aggregate::Rows, Aggregate::sum("id")]),
        )
    };
    let one = by(&mut tx, "same").expect("one group takes nothing");
    assert_eq!(one[0].values[0], Value::Int8(400_000));
    let error = by(&mut tx, "id").map(|groups| groups.len()).expect_err("a group a row does not fit");
    assert_eq!(error.sqlstate(), "53200", "{error}");
    assert_eq!(by(&mut tx, "same").expect("what was made has gone").len(), 1);
}

#[test]
fn batches_that_are_kept_count_under_the_memory_limit() {
    let (db, table) = numbers(40_000);
    let before = db.statistics().memory.transactions;
    let mut tx = db.begin(TransactionOptions::new().read_only()).expect("it begins");
    let kept = block_on(async {
        let mut kept = Vec::new();
        for _ in 0..20 {
            let mut scan = tx.scan_columns(&table).columns(["id", "part"]).open().await?;
            while let Some(batch) = tx.next_batch(&mut scan).await? {
                kept.push(batch);
            }
        }
        Ok::<_, thermocline_engine::Error>(kept)
    })
    .expect("memory is enough");
    assert_eq!(kept.iter().map(|batch| batch.rows()).sum::<usize>(), 800_000);
    // 12 bytes a row; each scan has 4 MiB that do not count, and these do not come so far.
    assert_eq!(db.statistics().memory.transactions, before);
    drop(kept);
    let kept = block_on(async {
        let mut kept = Vec::new();
        let names = ["name"; 120];
        let mut scan = tx.scan_columns(&table).columns(names).open().await?;
        while let Some(batch) = tx.next_batch(&mut scan).await? {
            kept.push(batch);
        }
        Ok::<_, thermocline_engine::Error>(kept)
    })
    .expect("memory is enough");
    let counted = db.statistics().memory.transactions - before;
    assert!(counted > 10 << 20, "{counted} bytes are counted");
    drop(kept);
    assert_eq!(db.statistics().memory.transactions, before);
}
