//! The extended protocol: parameters, formats, portals, pipelines.

use thermocline_engine::{Database, Options};

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

/// A portal over one table makes its rows as they are fetched, in what its transaction saw when it was opened.
#[test]
fn a_portal_is_suspended() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (id int primary key, n int); create sequence s");
    client.say("insert into t select g, g from generate_series(1, 5000) g");
    client.say("begin; select setval('s', 1)");
    let open = [
        Client::parse("q", "select id, nextval('s') from t where n > $1", &[]),
        Client::bind("p", "q", &[Some(b"10")], (0, 0)),
        Client::execute("p", 2),
        Client::sync(),
    ];
    client.send_raw(&open.concat());
    let firsts = |messages: &[Message]| {
        let rows = messages.iter().filter(|message| message.0 == 'D');
        let first =
            |row: &Message| row.values()[0].clone().map(|text| String::from_utf8_lossy(&text).into_owned());
        rows.filter_map(first).collect::<Vec<String>>().join(" ")
    };
    let messages = client.until_ready();
    assert_eq!((kinds(&messages).as_str(), firsts(&messages).as_str()), ("12DDsZ", "11 12"));
    assert_eq!(
        client.say("select currval('s'); update t set n = 0; delete from t where id > 100"),
        "3; SELECT 1; UPDATE 5000; DELETE 4900; T"
    );
    // Twice at once, then all that are left.
    client.send_raw(&[Client::execute("p", 3), Client::execute("p", 1), Client::sync()].concat());
    let messages = client.until_ready();
    assert_eq!((kinds(&messages).as_str(), firsts(&messages).as_str()), ("DDDsDsZ", "13 14 15 16"));
    client.send_raw(&[Client::execute("p", 0), Client::execute("p", 5), Client::sync()].concat());
    let messages = client.until_ready();
    assert_eq!(messages.iter().filter(|message| message.0 == 'D').count(), 4984);
    let tags: Vec<String> = messages.iter().filter(|message| message.0 == 'C').map(Message::text).collect();
    assert_eq!(tags, ["SELECT 4984", "SELECT 0"]);
    assert_eq!(client.say("rollback"), "ROLLBACK; I");
    // Closed early, the table is free.
    client.say("begin");
    client.send_raw(
        &[open.concat(), Client::message('C', b"Pp\0"), Client::sync()]
            .concat()
            .split_off(Client::parse("q", "select id, nextval('s') from t where n > $1", &[]).len()),
    );
    assert_eq!(kinds(&client.until_ready()), "2DDsZ");
    assert_eq!(kinds(&client.until_ready()), "3Z");
    assert_eq!(client.say("drop table t; rollback"), "DROP TABLE; ROLLBACK; I");
}

/// Portals end with their transaction, with Sync outside of a block, and by a rollback to a savepoint before them.
#[test]
fn portals_end_in_good_order() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (id int primary key)");
    client.say("insert into t select generate_series(1, 100)");
    let open = |text: &str| {
        [Client::parse("", text, &[]), Client::bind("p", "", &[], (0, 0)), Client::execute("p", 2)].concat()
    };
    let more = [Client::execute("p", 2), Client::sync()].concat();
    let run = |text: &str| {
        [Client::parse("", text, &[]), Client::bind("", "", &[], (0, 0)), Client::execute("", 0)].concat()
    };
    for text in ["select id from t", "select id from t order by -id"] {
        // Outside of a block, alone and with others.
        client.send_raw(&[open(text), Client::sync()].concat());
        assert_eq!(kinds(&client.until_ready()), "12DDsZ");
        client.send_raw(&more);
        let said = client.until_ready();
        assert_eq!((kinds(&said).as_str(), said[0].field('C').as_deref()), ("EZ", Some("34000")));
        client.send_raw(&[run("select 1"), open(text), more.clone()].concat());
        assert_eq!(kinds(&client.until_ready()), "12DC12DDsDDsZ");
        client.send_raw(&more);
        assert_eq!(kinds(&client.until_ready()), "EZ");
        assert_eq!(
            client.say("drop table if exists none; select 1"),
            "notice 00000; DROP TABLE; 1; SELECT 1; I"
        );
        // A commit amid a request.
        client.send_raw(&[run("begin"), open(text), run("commit"), more.clone()].concat());
        let said = client.until_ready();
        assert_eq!(kinds(&said), "12C12DDs12CEZ");
        assert_eq!(said[said.len() - 2].field('C').as_deref(), Some("34000"));
        // A savepoint.
        client.say("begin; savepoint s");
        client.send_raw(&[open(text), Client::sync()].concat());
        client.until_ready();
        client.say("rollback to s");
        client.send_raw(&more);
        assert_eq!(client.until_ready()[0].field('C').as_deref(), Some("34000"));
        client.say("rollback");
        // A failed transaction.
        client.say("begin");
        client.send_raw(&[open(text), Client::sync()].concat());
        client.until_ready();
        assert_eq!(client.say("select 1 / 0"), "22012; E");
        client.send_raw(&more);
        assert_eq!(client.until_ready()[0].field('C').as_deref(), Some("25P02"));
        client.say("rollback");
    }
    // An error comes with its row.
    client.say("begin");
    client.send_raw(&[open("select 1 / (id - 5) from t"), more.clone()].concat());
    assert_eq!(kinds(&client.until_ready()), "12DDsDDsZ");
    client.send_raw(&more);
    let said = client.until_ready();
    assert_eq!((kinds(&said).as_str(), said[0].field('C').as_deref()), ("EZ", Some("22012")));
    assert_eq!(client.say("commit"), "ROLLBACK; I");
    assert_eq!(client.say("drop table t"), "DROP TABLE; I");
}

/// A portal whose rows are kept has those beyond `work_mem` in a file, gives back what was read, and leaves nothing however it ends.
#[test]
fn the_rows_of_a_portal_go_to_a_file() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let db = Database::open(dir.path(), Options::default()).expect("it opens");
    let server = Running::of(db.clone(), |config| config);
    let spill = dir.path().join("spill");
    let spill = spill.to_str().expect("a path of letters");
    let files = || {
        let all = std::fs::read_dir("/proc/self/fd").expect("Linux tells");
        let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target| target.to_str().is_some_and(|target| target.starts_with(spill))).count()
    };
    let open = [
        Client::parse("", "select g, repeat('x', 1000) from generate_series(1, 5000) g", &[]),
        Client::bind("p", "", &[], (0, 0)),
        Client::execute("p", 2),
        Client::sync(),
    ]
    .concat();
    let begun = || {
        let mut client = server.connect();
        client.say("set work_mem = '64kB'");
        client.say("begin");
        client.send_raw(&open);
        assert_eq!(kinds(&client.until_ready()), "12DDsZ");
        assert_eq!(files(), 1);
        assert!(db.statistics().memory.queries < 1 << 20, "{} bytes", db.statistics().memory.queries);
        client
    };
    let mut client = begun();
    let mut count = 2;
    for most in [1, 1000, 3000, 0] {
        client.send_raw(&[Client::execute("p", most), Client::sync()].concat());
        let messages = client.until_ready();
        count += messages.iter().filter(|message| message.0 == 'D').count();
    }
    assert_eq!(count, 5000);
    // What the last answer held goes when it has been sent, perhaps behind that.
    client.send_raw(&Client::sync());
    client.until_ready();
    assert_eq!((files(), db.statistics().memory.queries), (0, 0), "it was read");
    client.say("rollback");
    let mut client = begun();
    client.send_raw(&[Client::message('C', b"Pp\0"), Client::sync()].concat());
    assert_eq!(kinds(&client.until_ready()), "3Z");
    client.send_raw(&Client::sync());
    client.until_ready();
    assert_eq!((files(), db.statistics().memory.queries), (0, 0), "it was closed");
    let mut client = begun();
    assert_eq!(client.say("commit"), "COMMIT; I");
    client.send_raw(&Client::sync());
    client.until_ready();
    assert_eq!((files(), db.statistics().memory.queries), (0, 0), "its transaction has ended");
    drop(begun());
    for _ in 0..10_000_000 {
        if (files(), db.statistics().memory.queries) == (0, 0) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("a lost connection leaves {} files, {} bytes", files(), db.statistics().memory.queries);
}
