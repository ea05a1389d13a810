//! The extended protocol: parameters, formats, portals, pipelines.

use crate::Running;
use crate::client::{Client, Message, kinds};

#[test]
fn values_go_as_text_and_as_bytes() {
    let server = Running::new();
    let mut client = server.connect();
    client.send_raw(&Client::parse("s", "select $1::int4 + 1, $2::text, $3::bool", &[]));
    client.send_raw(&Client::describe('S', "s"));
    client.send_raw(&Client::bind("", "s", &[Some(b"41"), None, Some(b"t")], (0, 0)));
    client.send_raw(&Client::execute("", 0));
    client.send_raw(&Client::bind("", "s", &[Some(&41i32.to_be_bytes()), Some(b"x"), Some(&[1])], (1, 1)));
    client.send_raw(&Client::execute("", 0));
    client.send_raw(&Client::sync());
    let messages = client.until_ready();
    assert_eq!(kinds(&messages), "1tT2DC2DCZ");
    assert_eq!(messages[1].1, [0, 3, 0, 0, 0, 23, 0, 0, 0, 25, 0, 0, 0, 16]);
    assert_eq!(messages[4].values(), [Some(b"42".to_vec()), None, Some(b"t".to_vec())]);
    assert_eq!(
        messages[7].values(),
        [Some(42i32.to_be_bytes().to_vec()), Some(b"x".to_vec()), Some(vec![1])]
    );
}

#[test]
fn a_portal_is_read_in_parts() {
    let server = Running::new();
    let mut client = server.connect();
    client.send_raw(&Client::parse("", "select * from generate_series(1, 5)", &[]));
    client.send_raw(&Client::bind("p", "", &[], (0, 0)));
    client.send_raw(&Client::execute("p", 2));
    client.send_raw(&Client::execute("p", 2));
    client.send_raw(&Client::execute("p", 2));
    client.send_raw(&Client::execute("p", 2));
    client.send_raw(&Client::sync());
    let messages = client.until_ready();
    assert_eq!(kinds(&messages), "12DDsDDsDCCZ");
    // Portals end with their transaction.
    client.send_raw(&Client::execute("p", 2));
    client.send_raw(&Client::sync());
    let messages = client.until_ready();
    assert_eq!(messages[0].field('C').as_deref(), Some("34000"));
}

/// The rows of a change are fetched in parts; the tag behind them is the change's, and counts all of them.
#[test]
fn a_portal_of_a_change_ends_with_its_tag() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (id int primary key, n int)");
    let mut tags = |text: &str| {
        let all = [Client::parse("", text, &[]), Client::bind("p", "", &[], (0, 0))].concat();
        let parts = [Client::execute("p", 2), Client::execute("p", 2), Client::execute("p", 2)].concat();
        client.send_raw(&[all, parts, Client::sync()].concat());
        let messages = client.until_ready();
        let tags = messages.iter().filter(|message| message.0 == 'C').map(Message::text);
        (kinds(&messages), tags.collect::<Vec<String>>().join(" "))
    };
    let (insert, update) =
        ("insert into t values (1, 1), (2, 2), (3, 3) returning id", "update t set n = n + 1 returning n");
    assert_eq!(tags(insert), ("12DDsDCCZ".to_owned(), "INSERT 0 3 INSERT 0 3".to_owned()));
    assert_eq!(tags(update), ("12DDsDCCZ".to_owned(), "UPDATE 3 UPDATE 3".to_owned()));
    assert_eq!(tags("select id from t").1, "SELECT 1 SELECT 0");
    assert_eq!(tags("show work_mem"), ("12DCCCZ".to_owned(), "SHOW SHOW SHOW".to_owned()));
    assert_eq!(tags("delete from t where id = 1 returning id").1, "DELETE 1 DELETE 1 DELETE 1");
}

/// An error skips what follows up to Sync, and undoes what came since the Sync before.
#[test]
fn a_pipeline_is_one_transaction() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (id int primary key)");
    let insert = |value: &str| {
        let text = format!("insert into t values ({value})");
        [Client::parse("", &text, &[]), Client::bind("", "", &[], (0, 0)), Client::execute("", 0)].concat()
    };
    client.send_raw(&[insert("1"), insert("1 / 0"), insert("3"), Client::sync()].concat());
    assert_eq!(kinds(&client.until_ready()), "12C12EZ");
    assert_eq!(client.say("select count(*) from t"), "0; SELECT 1; I");
    client.send_raw(
        &[insert("1"), insert("2"), Client::sync(), insert("1"), Client::sync(), insert("3"), Client::sync()]
            .concat(),
    );
    assert_eq!(kinds(&client.until_ready()), "12C12CZ");
    assert_eq!(kinds(&client.until_ready()), "12EZ");
    assert_eq!(kinds(&client.until_ready()), "12CZ");
    assert_eq!(client.say("select count(*) from t"), "3; SELECT 1; I");
}

#[test]
fn a_changed_definition_is_told() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (id int primary key)");
    client.say("insert into t values (1)");
    client.send_raw(&[Client::parse("s", "select * from t", &[]), Client::sync()].concat());
    client.until_ready();
    let run = [Client::bind("", "s", &[], (0, 0)), Client::execute("", 0), Client::sync()].concat();
    client.send_raw(&run);
    assert_eq!(kinds(&client.until_ready()), "2DCZ");
    // An index changes no column: the statement is bound anew in silence.
    client.say("create index on t (id)");
    client.send_raw(&run);
    assert_eq!(kinds(&client.until_ready()), "2DCZ");
    client.say("alter table t add column name text");
    client.send_raw(&run);
    let messages = client.until_ready();
    assert_eq!(messages[1].field('C').as_deref(), Some("0A000"));
}

#[test]
fn what_cannot_be_bound_is_refused() {
    let server = Running::new();
    let mut client = server.connect();
    let mut code = |messages: &[Vec<u8>]| {
        client.send_raw(&[messages.concat(), Client::sync()].concat());
        let said = client.until_ready();
        said.iter().find(|it| it.0 == 'E').and_then(|it| it.field('C')).unwrap_or_default()
    };
    let select = || Client::parse("", "select $1::int4", &[]);
    assert_eq!(code(&[select(), Client::bind("", "", &[], (0, 0))]), "08P01");
    assert_eq!(code(&[select(), Client::bind("", "", &[Some(b"x")], (0, 0))]), "22P02");
    assert_eq!(code(&[select(), Client::bind("", "", &[Some(b"abc")], (1, 0))]), "22P03");
    assert_eq!(code(&[select(), Client::bind("", "", &[Some(b"1")], (2, 0))]), "08P01");
    assert_eq!(code(&[select(), Client::bind("", "", &[Some(&[0xff])], (0, 0))]), "22021");
    assert_eq!(code(&[Client::bind("", "none", &[], (0, 0))]), "26000");
    assert_eq!(code(&[Client::execute("none", 0)]), "34000");
    assert_eq!(code(&[Client::describe('S', "none")]), "26000");
    assert_eq!(code(&[Client::parse("", "select 1; select 2", &[])]), "42601");
    assert_eq!(code(&[Client::parse("", "select $1", &[600])]), "0A000");
    assert_eq!(code(&[Client::parse("a", "select 1", &[]), Client::parse("a", "select 1", &[])]), "42P05");
}

/// Statements and portals of the protocol that outlive the table that they were prepared over.
#[test]
fn statements_that_outlive_their_table_answer_as_new_ones() {
    let server = Running::new();
    let (mut client, mut other) = (server.connect(), server.connect());
    let swapped = "drop table wt; create table wt (a int primary key, c text, b text); insert into wt values (9, 'c', 'b')";
    client.say("create table wt (a int primary key, b text, c text)");
    client.say("insert into wt values (9, 'b', 'c')");
    let statements = [
        ("read", "select b from wt where a = 9"),
        ("write", "update wt set b = 'new' where a = 9 returning b"),
        ("insert", "insert into wt (a, b) values ($1, $2)"),
        ("all", "select * from wt"),
        ("copied", "copy wt to stdout"),
    ];
    for (name, text) in statements {
        client.send_raw(&Client::parse(name, text, &[]));
    }
    client.send_raw(&Client::sync());
    assert_eq!(kinds(&client.until_ready()), "11111Z");
    other.say(swapped);
    let mut run = |name: &str, values: &[Option<&[u8]>]| {
        client.send_raw(&Client::bind("", name, values, (0, 0)));
        client.send_raw(&Client::execute("", 0));
        client.send_raw(&Client::sync());
        client.until_ready()
    };
    let first = |said: &[Message]| {
        let row = said.iter().find(|message| message.0 == 'D').expect("a row");
        row.values()[0].clone().map(|value| String::from_utf8_lossy(&value).into_owned())
    };
    assert_eq!(first(&run("read", &[])).as_deref(), Some("b"));
    assert_eq!(first(&run("write", &[])).as_deref(), Some("new"));
    assert_eq!(kinds(&run("insert", &[Some(b"10"), Some(b"ten")])), "2CZ");
    let said = run("all", &[]);
    assert_eq!(said[1].field('C').as_deref(), Some("0A000"));
    assert_eq!(said[1].field('M').as_deref(), Some("cached plan must not change result type"));
    // COPY is no plan: it has the columns of now.
    let said = run("copied", &[]);
    assert_eq!(kinds(&said), "2HddcCZ");
    assert_eq!(said[2].1, b"9\tc\tnew\n");
    assert_eq!(other.say("select a, b, c from wt order by a"), "9|new|c; 10|ten|null; SELECT 2; I");
}

/// A cursor that a statement names is looked for when it is bound.
#[test]
fn a_fetch_has_the_columns_of_its_cursor() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("begin");
    client.say("declare c cursor for select 1 as x");
    client.send_raw(&Client::parse("f", "fetch all from c", &[]));
    client.send_raw(&Client::sync());
    client.until_ready();
    client.say("close c");
    client.say("declare c cursor for select 'text'::text as y, 2 as z");
    client.send_raw(&Client::bind("p", "f", &[], (0, 0)));
    client.send_raw(&Client::describe('P', "p"));
    client.send_raw(&Client::execute("p", 0));
    client.send_raw(&Client::sync());
    let said = client.until_ready();
    assert_eq!(kinds(&said), "2TDCZ");
    assert_eq!(said[2].values(), [Some(b"text".to_vec()), Some(b"2".to_vec())]);
}
