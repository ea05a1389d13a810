//! Clients of one thread beside each other: long statements, endless ones, those that nobody waits for any more.

use std::io::Write;
use std::time::Duration;

use crate::Running;
use crate::client::Client;

const ENDLESS: [&str; 9] = [
    "select count(*) from generate_series(1, 1000000000000)",
    "select count(*) from (select generate_series(1, 1000000000000)) s",
    "with recursive r(n) as (select 1 union all select n from r) select count(*) from r",
    "select count(*) from t a, t b, t c, t d where a.n + b.n + c.n + d.n < 0",
    "select sum(x.n) from t x, lateral (select count(*) from t a, t b, t c where a.n + b.n + c.n < x.n) y",
    "update t set n = 1 from generate_series(1, 1000000000000) g where t.n + g < 0",
    "select pg_sleep(1000000)",
    "select count(*) from t where pg_sleep_for('1000 hours') is not null",
    "update t set n = 1 where id = 1 and pg_sleep_until(now() + interval '1 year') is not null",
];

fn cancel(server: &Running, (number, secret): (i32, i32)) {
    let mut request = server.socket();
    let words = [16_i32, 80_877_102, number, secret];
    request.send_raw(&words.map(i32::to_be_bytes).concat());
    request.until_end();
}

fn filled(server: &Running) -> Client {
    let mut client = server.connect();
    client.say("create table t (id int primary key, n int)");
    client.say("insert into t select g, g from generate_series(1, 3000) g");
    client
}

/// Without turns, nothing else would be answered on the thread, nor anybody be let in.
#[test]
fn clients_are_answered_beside_an_endless_query() {
    let server = Running::new();
    let mut other = filled(&server);
    for text in ENDLESS {
        let mut busy = server.connect();
        busy.send('Q', &[text.as_bytes(), &[0]].concat());
        for n in 0..50 {
            assert_eq!(
                other.say(&format!("select n from t where id = {}", n + 1)),
                format!("{}; SELECT 1; I", n + 1)
            );
        }
        assert_eq!(server.connect().say("select 1"), "1; SELECT 1; I");
        cancel(&server, busy.key);
        let said = busy.until_ready();
        let error = said.iter().find(|message| message.0 == 'E').expect("it is cancelled");
        assert_eq!(error.field('C').as_deref(), Some("57014"), "{text}");
        assert_eq!(busy.say("select 2"), "2; SELECT 1; I");
    }
}

#[test]
fn a_client_that_has_gone_ends_its_statement() {
    let server = Running::new();
    let mut other = filled(&server);
    for text in ENDLESS {
        let mut busy = server.connect();
        other.say("select 1");
        busy.send('Q', &[b"begin; update t set n = n where id = 7; ", text.as_bytes(), &[0]].concat());
        // What it has sent behind stays unread.
        busy.send('Q', b"select 1\0");
        drop(busy);
        let ended = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            server.server().connected() == 1
        });
        assert!(ended, "{text} outlives its client");
        assert_eq!(other.say("update t set n = n where id = 7"), "UPDATE 1; I");
    }
}

#[test]
fn a_copy_from_a_client_is_cancelled() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (id int primary key, name text)");
    for rows in ["", "1\tone\n2\ttw"] {
        client.send('Q', b"copy t from stdin\0");
        assert_eq!(client.read().map(|it| it.0), Some('G'));
        client.send('d', rows.as_bytes());
        cancel(&server, client.key);
        let error = client.read().expect("it is told");
        assert_eq!((error.0, error.field('C').as_deref()), ('E', Some("57014")));
        client.until_ready();
        // What was on its way means nothing.
        client.send('d', b"3\tthree\n");
        client.send('c', b"");
        assert_eq!(client.say("select count(*) from t"), "0; SELECT 1; I");
    }
    // The time of a statement is that of the whole COPY.
    client.say("set statement_timeout = '50ms'");
    client.send('Q', b"copy t from stdin\0");
    assert_eq!(client.read().map(|it| it.0), Some('G'));
    let error = client.read().expect("it is told");
    assert_eq!((error.0, error.field('C').as_deref()), ('E', Some("57014")));
    client.until_ready();
    // A request that came before counts for nothing.
    client.say("set statement_timeout = 0");
    cancel(&server, client.key);
    client.send('Q', b"copy t from stdin\0");
    assert_eq!(client.read().map(|it| it.0), Some('G'));
    client.send('d', b"4\tfour\n");
    client.send('c', b"");
    client.until_ready();
    assert_eq!(client.say("select name from t"), "four; SELECT 1; I");
}

/// Rows of a portal go out as fast as they are read.
#[test]
fn rows_of_a_portal_are_sent_in_pieces() {
    let server = Running::new();
    let mut client = server.connect();
    client.send_raw(&Client::parse("", "select g, repeat('x', 1000) from generate_series(1, 20000) g", &[]));
    client.send_raw(&Client::bind("p", "", &[], (0, 0)));
    client.send_raw(&Client::execute("p", 10));
    client.send_raw(&Client::execute("p", 0));
    client.send_raw(&Client::sync());
    client.stream.flush().expect("it is sent");
    let said = client.until_ready();
    assert_eq!(said.iter().filter(|message| message.0 == 'D').count(), 20_000);
    let numbers = said.iter().filter(|message| message.0 == 'D').map(|row| row.values()[0].clone());
    let wanted = (1..=20_000).map(|n: u32| Some(n.to_string().into_bytes()));
    assert!(numbers.eq(wanted), "each row comes once, in its order");
}
