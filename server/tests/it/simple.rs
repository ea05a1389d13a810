//! Query strings, transactions, errors, COPY, cancelling, the end of the server.

use crate::Running;
use crate::client::{Client, kinds};
use thermocline_server::{Config, Passwords};

#[test]
fn a_client_defines_changes_and_asks() {
    let server = Running::new();
    let mut client = server.connect();
    assert_eq!(client.say("create table t (id int primary key, name text)"), "CREATE TABLE; I");
    assert_eq!(client.say("insert into t values (1, 'a'), (2, null)"), "INSERT 0 2; I");
    assert_eq!(client.say("select * from t order by id"), "1|a; 2|null; SELECT 2; I");
    assert_eq!(client.say(""), "empty; I");
    assert_eq!(client.say(" ; -- nothing"), "empty; I");
    assert_eq!(client.say("select 1; select 2"), "1; SELECT 1; 2; SELECT 1; I");
    assert_eq!(kinds(&client.query("select 1")), "TDCZ");
}

#[test]
fn an_error_has_all_its_fields() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table accounts (id int primary key)");
    let error = &client.query("select nam from accounts")[0];
    assert_eq!(error.field('S').as_deref(), Some("ERROR"));
    assert_eq!(error.field('C').as_deref(), Some("42703"));
    assert_eq!(error.field('P').as_deref(), Some("8"));
    let error = &client.query("select * from acounts")[0];
    assert_eq!(error.field('H').as_deref(), Some("Perhaps you meant the table \"accounts\"."));
    client.say("insert into accounts values (1)");
    let error = &client.query("insert into accounts values (1)")[0];
    assert_eq!(error.field('C').as_deref(), Some("23505"));
    assert_eq!(error.field('D').as_deref(), Some("Key (id)=(1) already exists."));
    assert_eq!(error.field('n').as_deref(), Some("accounts_pkey"));
    assert_eq!(error.field('t').as_deref(), Some("accounts"));
}

/// The statements of a query string are one transaction, unless they say BEGIN and COMMIT themselves.
#[test]
fn statements_of_a_string_are_one_transaction() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (id int primary key)");
    assert_eq!(
        client.say("insert into t values (1); select 1 / 0; insert into t values (2)"),
        "INSERT 0 1; 22012; I"
    );
    assert_eq!(client.say("select count(*) from t"), "0; SELECT 1; I");
    assert_eq!(
        client.say("insert into t values (1); commit; select x"),
        "INSERT 0 1; notice 25P01; COMMIT; 42703; I"
    );
    assert_eq!(client.say("select count(*) from t"), "1; SELECT 1; I");
    assert_eq!(
        client.say("insert into t values (2); begin; insert into t values (3)"),
        "INSERT 0 1; BEGIN; INSERT 0 1; T"
    );
    assert_eq!(client.say("rollback; select count(*) from t"), "ROLLBACK; 1; SELECT 1; I");
    assert_eq!(client.say("select 1; savepoint a"), "1; SELECT 1; 25P01; I");
}

#[test]
fn a_failed_transaction_refuses_everything() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (id int primary key)");
    assert_eq!(client.say("begin"), "BEGIN; T");
    assert_eq!(client.say("insert into t values (1)"), "INSERT 0 1; T");
    assert_eq!(client.say("savepoint a"), "SAVEPOINT; T");
    assert_eq!(client.say("selec"), "42601; E");
    assert_eq!(client.say("select 1"), "25P02; E");
    assert_eq!(client.say("rollback to a"), "ROLLBACK; T");
    assert_eq!(client.say("select 1 / 0"), "22012; E");
    assert_eq!(client.say("commit"), "ROLLBACK; I");
    assert_eq!(client.say("select count(*) from t"), "0; SELECT 1; I");
    assert_eq!(client.say("begin read only; insert into t values (1)"), "BEGIN; 25006; E");
    assert_eq!(client.say("rollback"), "ROLLBACK; I");
}

#[test]
fn settings_are_told_and_taken_back() {
    let server = Running::new();
    let mut client = server.socket();
    let started = client.startup(&[
        ("user", "postgres"),
        ("application_name", "first"),
        ("options", "-c statement_timeout=5s"),
    ]);
    let told: Vec<String> =
        started.iter().filter(|it| it.0 == 'S').map(|it| it.text().replace('\0', "=")).collect();
    assert!(told.contains(&"application_name=first".to_owned()), "{told:?}");
    assert!(told.contains(&"server_version=15.0".to_owned()), "{told:?}");
    assert_eq!(client.say("show statement_timeout"), "5s; SHOW; I");
    assert_eq!(kinds(&client.query("set application_name = 'second'")), "CSZ");
    assert_eq!(kinds(&client.query("set application_name = 'second'")), "CZ");
    assert_eq!(
        client.say("begin; set local application_name = 'third'; commit; show application_name"),
        "BEGIN; SET; COMMIT; second; SHOW; I"
    );
    assert_eq!(
        client.say("begin; set application_name = 'fourth'; rollback; show application_name"),
        "BEGIN; SET; ROLLBACK; second; SHOW; I"
    );
    assert_eq!(client.say("set datestyle to german"), "0A000; I");
}

#[test]
fn copy_goes_both_ways() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (id int primary key, name text)");
    client.send('Q', b"copy t from stdin\0");
    assert_eq!(client.read().map(|it| it.0), Some('G'));
    client.send('d', b"1\tone\n2\t\\N\n3\tth");
    client.send('d', b"r\\tee\n");
    client.send('c', b"");
    assert_eq!(kinds(&client.until_ready()), "CZ");
    assert_eq!(client.say("select * from t order by id"), "1|one; 2|null; 3|thr\tee; SELECT 3; I");
    let out = client.query("copy (select * from t order by id) to stdout csv");
    assert_eq!(kinds(&out), "HdddcCZ");
    assert_eq!(String::from_utf8_lossy(&out[2].1), "2,\n");
    // A line that is none: its number is told, and nothing of it stays.
    client.send('Q', b"copy t from stdin\0");
    client.send('d', b"4\tfour\nfive\tx\n");
    client.send('c', b"");
    let messages = client.until_ready();
    assert_eq!(kinds(&messages), "GEZ");
    assert_eq!(messages[1].field('C').as_deref(), Some("22P02"));
    assert_eq!(messages[1].field('W').as_deref(), Some("COPY t, line 2, column id: \"five\""));
    client.send('Q', b"copy t from stdin\0");
    client.send('d', b"5\tfive\n");
    client.send('f', b"changed my mind\0");
    assert_eq!(client.until_ready()[1].field('C').as_deref(), Some("57014"));
    assert_eq!(client.say("select count(*) from t"), "3; SELECT 1; I");
}

#[test]
fn cursors_go_in_any_direction() {
    let server = Running::new();
    let mut client = server.connect();
    assert_eq!(client.say("declare c cursor for select 1"), "25P01; I");
    assert_eq!(client.say("begin"), "BEGIN; T");
    assert_eq!(
        client.say("declare c scroll cursor for select * from generate_series(1, 5)"),
        "DECLARE CURSOR; T"
    );
    assert_eq!(client.say("fetch c; fetch forward 2 from c"), "1; FETCH 1; 2; 3; FETCH 2; T");
    assert_eq!(
        client.say("fetch prior from c; fetch last in c; fetch next c"),
        "2; FETCH 1; 5; FETCH 1; FETCH 0; T"
    );
    assert_eq!(
        client.say("fetch backward 2 from c; fetch absolute 1 from c"),
        "5; 4; FETCH 2; 1; FETCH 1; T"
    );
    assert_eq!(
        client.say("move forward all in c; fetch backward all from c"),
        "MOVE 4; 5; 4; 3; 2; 1; FETCH 5; T"
    );
    assert_eq!(
        client.say("fetch relative 0 from c; fetch 2 c; fetch 0 c"),
        "FETCH 0; 1; 2; FETCH 2; 2; FETCH 1; T"
    );
    assert_eq!(kinds(&client.query("fetch c")), "TDCZ");
    assert_eq!(client.say("declare h cursor with hold for select 7"), "DECLARE CURSOR; T");
    assert_eq!(client.say("close c; fetch c"), "CLOSE CURSOR; 34000; E");
    assert_eq!(client.say("rollback; fetch h"), "ROLLBACK; 34000; I");
    assert_eq!(client.say("declare h cursor with hold for select 7"), "DECLARE CURSOR; I");
    assert_eq!(client.say("fetch h"), "7; FETCH 1; I");
    assert_eq!(client.say("discard all; fetch h"), "DISCARD ALL; 34000; I");
}

#[test]
fn a_statement_is_cancelled_by_number_and_secret() {
    let server = Running::new();
    let mut client = server.connect();
    let mut other = server.connect();
    other.say("create table t (id int primary key)");
    client.send('Q', b"select count(*) from generate_series(1, 1000000000000)\0");
    // The wrong secret does nothing, the right one may come before the statement has begun.
    server.cancel((client.key.0, client.key.1.wrapping_add(1)));
    let key = client.key;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let messages = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Acquire) {
                server.cancel(key);
                std::thread::yield_now();
            }
        });
        let messages = client.until_ready();
        stop.store(true, std::sync::atomic::Ordering::Release);
        messages
    });
    let error = messages.iter().find(|it| it.0 == 'E').expect("it was cancelled");
    assert_eq!(error.field('C').as_deref(), Some("57014"));
    assert_eq!(client.say("select 1"), "1; SELECT 1; I");
}

/// A client that waits for a row is cancelled as well.
#[test]
fn a_client_that_waits_is_cancelled() {
    let server = Running::new();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    holder.say("create table t (id int primary key, n int)");
    holder.say("insert into t values (1, 0)");
    holder.say("begin; update t set n = 1 where id = 1");
    assert_eq!(waiter.say("set statement_timeout = '50ms'"), "SET; I");
    assert_eq!(waiter.say("update t set n = 2 where id = 1"), "57014; I");
    assert_eq!(holder.say("commit"), "COMMIT; I");
    assert_eq!(waiter.say("update t set n = n + 2 where id = 1 returning n"), "3; UPDATE 1; I");
}

#[test]
fn the_end_of_the_server_is_told() {
    let mut server = Running::new();
    let mut idle = server.connect();
    let mut busy = server.connect();
    busy.say("begin");
    server.stop();
    for client in [&mut idle, &mut busy] {
        let messages = client.until_end();
        assert_eq!(kinds(&messages), "E");
        assert_eq!(messages[0].field('C').as_deref(), Some("57P01"));
        assert_eq!(messages[0].field('S').as_deref(), Some("FATAL"));
    }
}

#[test]
fn places_are_limited_and_given_back() {
    let server = Running::with(|config| Config { max_connections: 1, ..config });
    let first = server.connect();
    let mut second = server.socket();
    second.send_raw(&Client::startup_message(&[("user", "postgres")]));
    let messages = second.until_end();
    assert_eq!(messages[0].field('C').as_deref(), Some("53300"));
    drop(first);
    while server.server().connected() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(server.connect().say("select 1"), "1; SELECT 1; I");
}

#[test]
fn what_happens_is_counted_for_prometheus() {
    use std::io::{Read, Write};
    let server = Running::with(|config| Config { metrics: Some(([127, 0, 0, 1], 0).into()), ..config });
    let mut client = server.connect();
    client.say("select * from generate_series(1, 7)");
    client.say("select 1 / 0");
    client.say("create table t (id int primary key)");
    client.say("insert into t select generate_series(1, 5)");
    let mut page = String::new();
    let address = server.server().metrics().expect("it listens");
    let mut socket = std::net::TcpStream::connect(address).expect("it accepts");
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: it\r\n\r\n").expect("it is sent");
    socket.read_to_string(&mut page).expect("it is text");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    let lines =
        ["connections 1", "statements_total 3", "errors_total 1", "rows_total 12", "promoted_rows_total 0"];
    for line in lines {
        assert!(page.contains(&format!("\nthermocline_{line}\n")), "{line}: {page}");
    }
    let value = |name: &str| -> u64 {
        let text = page.lines().find_map(|line| line.strip_prefix(&format!("thermocline_{name} ")));
        text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{name}: {page}"))
    };
    // Tables of the catalog have rows, too.
    assert!(value("stored_rows{place=\"memory\"}") >= 5);
    assert_eq!(value("stored_rows{place=\"cold\"}"), 0);
    assert!(value("memory_bytes{part=\"versions\"}") > 0);
    assert!(value("commits_total") >= 2);
}

#[test]
fn strangers_are_told_what_is_there() {
    let server = Running::new();
    let refused = |settings: &[(&str, &str)]| {
        let mut client = server.socket();
        client.send_raw(&Client::startup_message(settings));
        client.until_end().first().and_then(|message| message.field('C')).expect("it is told")
    };
    assert_eq!(refused(&[("user", "ada")]), "28000");
    assert_eq!(refused(&[("database", "postgres")]), "28000");
    assert_eq!(refused(&[("user", "postgres"), ("database", "mine")]), "3D000");
    let bad = server.socket();
    let mut bad = bad;
    bad.send_raw(&Client::startup_message(&[("user", "postgres"), ("no_such", "1")]));
    let last = bad.until_end().pop().expect("it is told");
    assert_eq!(last.field('C').as_deref(), Some("42704"));
}

#[test]
fn a_password_is_asked_for_where_there_is_one() {
    let passwords = Passwords::parse("postgres:secret").expect("it is well formed");
    let server = Running::with(|config| Config { passwords, ..config });
    let mut client = server.socket();
    client.send_raw(&Client::startup_message(&[("user", "postgres")]));
    let ask = client.read().expect("it asks");
    assert_eq!((ask.0, &ask.1[..4]), ('R', &[0, 0, 0, 10][..]));
    assert!(ask.text().contains("SCRAM-SHA-256"));
    // A proof of nothing.
    let first = b"n,,n=,r=abc";
    let mut body = b"SCRAM-SHA-256\0".to_vec();
    body.extend((first.len() as i32).to_be_bytes());
    body.extend(first);
    client.send('p', &body);
    let challenge = client.read().expect("it goes on").text();
    let nonce =
        challenge.split("r=").nth(1).and_then(|it| it.split(',').next()).expect("a nonce is told").to_owned();
    client.send('p', format!("c=biws,r={nonce},p={}", "A".repeat(43) + "=").as_bytes());
    let messages = client.until_end();
    assert_eq!(messages[0].field('C').as_deref(), Some("28P01"));
}
