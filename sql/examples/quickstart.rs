//! The README's example: SQL inside of a program.

use thermocline_engine::{Database, Options};
use thermocline_sql::{Datum, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = Database::open_in_memory(Options::default().with_memory_limit(Some(1 << 30)))?;
    let mut session = Session::new(&db);
    session
        .execute("create table accounts (id bigint primary key, owner text, balance numeric(12, 2))", &[])?;
    session.execute("insert into accounts values (1, 'Ada', 100), (2, 'Grace', 50.5)", &[])?;
    let answer = session.execute("select owner from accounts where id = $1", &[Datum::Int(2)])?;
    println!("account 2 is {:?}'s", answer.text(0, 0));
    db.close()?;
    Ok(())
}

#[cfg(test)]
#[test]
fn it_runs() {
    main().expect("it runs");
}
