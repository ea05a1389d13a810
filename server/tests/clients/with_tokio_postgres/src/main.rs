//! tokio-postgres against the server that PGHOST and PGPORT name: values in the binary format, a transaction, an error.

use serde_json::{Value, json};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, NoTls};

async fn run() -> Result<(), Error> {
    let host = std::env::var("PGHOST").expect("PGHOST is set");
    let port = std::env::var("PGPORT").expect("PGPORT is set");
    let parameters = format!("host={host} port={port} user=postgres dbname=postgres");
    let (mut client, connection) = tokio_postgres::connect(&parameters, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute("create table told (id bigserial primary key, name text not null unique, n int, f float8, tags text[], data jsonb, ok bool)")
        .await?;
    let insert = client
        .prepare("insert into told (name, n, f, tags, data, ok) values ($1, $2, $3, $4, $5, $6) returning id")
        .await?;
    let (tags, data) = (vec!["a".to_owned(), "b c".to_owned()], json!({"k": [1, 2.5], "s": "x"}));
    let row = client.query_one(&insert, &[&"Ada", &7i32, &0.5f64, &tags, &data, &true]).await?;
    assert_eq!(row.get::<_, i64>(0), 1);
    let row = client.query_one("select * from told where id = $1", &[&1i64]).await?;
    assert_eq!(row.get::<_, Vec<String>>("tags"), tags);
    assert_eq!(row.get::<_, Value>("data"), data);
    assert_eq!(row.get::<_, Option<bool>>("ok"), Some(true));
    let add = client.prepare("insert into told (name, n) values ($1, $2)").await?;
    for number in 0i32..50 {
        assert_eq!(client.execute(&add, &[&format!("n{number}"), &number]).await?, 1);
    }
    let transaction = client.transaction().await?;
    transaction.execute("delete from told where n < $1", &[&25i32]).await?;
    let inner = transaction.query_one("select count(*) from told", &[]).await?;
    assert_eq!(inner.get::<_, i64>(0), 25);
    transaction.rollback().await?;
    let error = client
        .execute(&insert, &[&"Ada", &1i32, &0f64, &tags, &data, &false])
        .await
        .expect_err("it is there");
    assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION));
    let found = client
        .query("select name from told where name = any($1) order by name", &[&vec!["n1", "n7", "none"]])
        .await?;
    assert_eq!(found.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), ["n1", "n7"]);
    client.batch_execute("drop table told").await
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    run().await.unwrap_or_else(|error| panic!("{error:?}"));
    println!("  tokio-postgres: ok");
}
