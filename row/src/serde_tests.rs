//! Tests of rows from and to users' types.

use std::collections::BTreeMap;

use ::serde::Serialize;
use proptest::prelude::*;

use super::super::testing::{bits, table};
use super::super::typed::Varchar;
use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Small,
    Large,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Id(i64);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    id: Id,
    kind: Kind,
    balance: Decimal,
    fee: Dec<6, 2>,
    #[serde(default)]
    note: Option<String>,
    raw: Vec<u8>,
    opened: Date,
    span: Interval,
    key: Uuid,
    letter: char,
    small: u8,
    ratio: f64,
}

fn layout() -> Layout {
    Layout::new(&[
        Column::new("id", Type::Int8),
        Column::new("kind", Type::Varchar(10)),
        Column::new("balance", Type::Decimal { precision: 20, scale: 4 }),
        Column::new("fee", Type::Decimal { precision: 6, scale: 2 }),
        Column::new("note", Type::Text).nullable(),
        Column::new("raw", Type::Bytes),
        Column::new("opened", Type::Date),
        Column::new("span", Type::Interval),
        Column::new("key", Type::Uuid),
        Column::new("letter", Type::Char(1)),
        Column::new("small", Type::Int2),
        Column::new("ratio", Type::Float8),
        Column::new("branch", Type::Int4).default(7i32),
        Column::new("closed", Type::TimestampTz).nullable(),
    ])
    .unwrap()
}

fn account() -> Account {
    Account {
        id: Id(5),
        kind: Kind::Large,
        balance: "12.3400".parse().unwrap(),
        fee: Dec(-150),
        note: None,
        raw: vec![1, 255],
        opened: Date(1),
        span: "P1M2D".parse().unwrap(),
        key: Uuid([9; 16]),
        letter: 'é',
        small: 200,
        ratio: 0.5,
    }
}

#[test]
fn structs_round_trip() {
    let (layout, mut row) = (layout(), Vec::new());
    to_row(&layout, &account(), &mut row).unwrap();
    assert_eq!(from_row::<Account>(&layout, &row).unwrap(), account());
    // Columns that the struct does not have: the default, and null.
    assert_eq!((layout.i32(&row, 12), layout.timestamptz(&row, 13)), (Some(7), None));
    assert_eq!(layout.str(&row, 1), Some("Large"));
}

#[test]
fn maps_and_json() {
    let layout = layout();
    let (mut row, mut again) = (Vec::new(), Vec::new());
    to_row(&layout, &account(), &mut row).unwrap();
    let json: serde_json::Value = from_row(&layout, &row).unwrap();
    assert_eq!(json["balance"], "12.3400");
    assert_eq!(json["closed"], serde_json::Value::Null);
    to_row(&layout, &json, &mut again).unwrap();
    assert_eq!(again, row);
    // A number is as good as a string, and a float is what a person wrote.
    let mut json = json;
    json["balance"] = serde_json::json!(12.34);
    json["fee"] = serde_json::json!("-1.5");
    to_row(&layout, &json, &mut again).unwrap();
    assert_eq!(again, row);
    #[derive(Debug, PartialEq, Deserialize)]
    struct Balance {
        balance: f64,
    }
    assert_eq!(from_row::<Balance>(&layout, &row).unwrap(), Balance { balance: 12.34 });
}

#[test]
fn errors_name_the_column() {
    let (layout, mut row) = (layout(), Vec::new());
    let mut json: serde_json::Value = serde_json::to_value(account()).unwrap();
    let mut with = |name: &str, value: serde_json::Value| {
        let before = json.clone();
        json[name] = value;
        let error = to_row(&layout, &json, &mut row).unwrap_err();
        json = before;
        error.to_string()
    };
    assert!(with("colour", 1.into()).contains("no column \"colour\""));
    assert!(with("small", 40_000.into()).contains("\"small\" (smallint): 40000 is out of range"));
    assert!(with("id", "x".into()).contains("\"id\" (bigint): cannot read \"x\""));
    assert!(with("opened", "2024-13-01".into()).contains("no such day"));
    assert!(with("fee", "1.234".into()).contains("more digits after the point"));
    assert!(with("kind", serde_json::json!({"a": 1})).contains("a nested structure"));
    assert!(with("kind", 1.into()).contains("an integer"));
    assert!(with("raw", serde_json::json!([256])).contains("something else than bytes"));
    assert!(with("id", serde_json::Value::Null).contains("got null"));
    let mut incomplete = json.clone();
    incomplete.as_object_mut().unwrap().remove("id");
    assert_eq!(to_row(&layout, &incomplete, &mut row).unwrap_err().sqlstate(), "23502");
    assert!(to_row(&layout, &5, &mut row).unwrap_err().to_string().contains("a struct"));

    to_row(&layout, &json, &mut row).unwrap();
    #[derive(Debug, Deserialize)]
    struct Wrong {
        #[expect(dead_code, reason = "never filled")]
        kind: i32,
    }
    let error = from_row::<Wrong>(&layout, &row).unwrap_err().to_string();
    assert!(error.contains("\"kind\""), "{error}");
    assert!(matches!(from_row::<Account>(&layout, &row[1..]), Err(RowError::Damaged { .. })));
}

proptest! {
    /// Every row survives the way through a map of JSON values, but for floats that JSON does not have.
    #[test]
    fn rows_survive_json((columns, rows) in table(8, 1)) {
        let layout = Layout::new(&columns).unwrap();
        let finite = |value: &Value| match value {
            Value::Float4(v) => v.is_finite(),
            Value::Float8(v) => v.is_finite(),
            _ => true,
        };
        if !rows[0].iter().all(finite) {
            return Ok(());
        }
        let (mut row, mut again) = (Vec::new(), Vec::new());
        layout.encode(&rows[0], &mut row).unwrap();
        let map: BTreeMap<String, serde_json::Value> = from_row(&layout, &row).unwrap();
        to_row(&layout, &map, &mut again).unwrap();
        let values = layout.decode(&again).unwrap();
        prop_assert_eq!(values.iter().map(bits).collect::<Vec<_>>(), rows[0].iter().map(bits).collect::<Vec<_>>());
    }
}

crate::row! {
    #[derive(Serialize, Deserialize)]
    struct Order as OrderRow {
        id: i64,
        amount: Dec<12, 2>,
        comment: Option<Varchar<20>>,
    }
}

#[test]
fn typed_rows_are_serde_structs() {
    let order = Order { id: 1, amount: Dec(1_250), comment: None };
    let (mut typed, mut through_serde) = (Vec::new(), Vec::new());
    order.encode(&mut typed).unwrap();
    to_row(Order::layout(), &order, &mut through_serde).unwrap();
    assert_eq!(typed, through_serde);
    assert_eq!(serde_json::to_string(&order).unwrap(), r#"{"id":1,"amount":"12.50","comment":null}"#);
    assert_eq!(from_row::<Order>(Order::layout(), &typed).unwrap(), order);
    assert_eq!(OrderRow(&typed).amount().to_f64(), 12.5);
}
