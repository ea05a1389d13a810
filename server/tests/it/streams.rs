//! Answers that leave while their statements run, over sockets: clients that read slowly, late or not at all.
//!
//! An answer of [`LONG`] rows is longer than what the sockets of both sides hold, so its statement cannot end while its client does
//! not read. The server has one thread, on which each answer to another client is a turn of the statement, too: [`blocked`] gives it so
//! many that its write must be blocked, without asking the time.

use thermocline_engine::{Database, Options};

use crate::Running;
use crate::client::{Client, Message, kinds, until};

/// Rows of 1,000 bytes: 60 MB.
const LONG: usize = 60_000;

fn long() -> String {
    format!("select g, repeat('x', 1000) from generate_series(1, {LONG}) g")
}

fn in_memory() -> (Database, Running) {
    let db = Database::open_in_memory(Options::default()).expect("a database in memory opens");
    (db.clone(), Running::of(db, |config| config))
}

fn ask(client: &mut Client, text: &str) {
    client.send('Q', &[text.as_bytes(), &[0]].concat());
}

/// Asks for a long answer, and reads its beginning up to the first row.
fn begun(client: &mut Client, text: &str) {
    ask(client, text);
    loop {
        match client.read().expect("the server answers") {
            Message('D' | 'd', _) => return,
            Message('E', body) => panic!("{text}: {:?}", String::from_utf8_lossy(&body)),
            _ => {}
        }
    }
}

/// Gives the other statements of the server's thread their turns, until none of them can do more.
fn blocked(other: &mut Client) {
    for _ in 0..2000 {
        assert_eq!(other.say("select 1"), "1; SELECT 1; I");
    }
}

fn count(said: &[Message], kind: char) -> usize {
    said.iter().filter(|message| message.0 == kind).count()
}

fn code(said: &[Message]) -> Option<String> {
    said.iter().find(|message| message.0 == 'E').and_then(|error| error.field('C'))
}

/// A query for the state of the connection with this number.
fn state(client: &Client) -> String {
    format!("select state from pg_stat_activity where pid = {}", client.key.0)
}

/// The first row comes while the statement runs, which takes no more memory however late the others are read.
#[test]
fn a_long_answer_takes_little_memory() {
    let (db, server) = in_memory();
    let (mut client, mut other) = (server.connect(), server.connect());
    let copy = format!("copy ({}) to stdout", long());
    for text in [long(), copy, format!("begin isolation level repeatable read; {}; commit", long())] {
        begun(&mut client, &text);
        blocked(&mut other);
        assert_eq!(other.say(&state(&client)), "active; SELECT 1; I", "{text}");
        let charged = db.statistics().memory.queries;
        assert!(charged <= 1 << 20, "{charged} bytes are charged for a client that does not read");
        let said = client.until_ready();
        assert_eq!(count(&said, 'D') + count(&said, 'd'), LONG - 1);
        // The server's thread has nothing left to do for the client.
        assert_eq!(other.say("select 1"), "1; SELECT 1; I");
        assert_eq!(db.statistics().memory.queries, 0);
    }
    // Wide rows.
    begun(&mut client, "select repeat('y', 100000) from generate_series(1, 600)");
    let charged = db.statistics().memory.queries;
    assert!(charged <= 2 << 20, "{charged} bytes are charged");
    assert_eq!(count(&client.until_ready(), 'D'), 599);
}

/// Cancels, timeouts and ends of connections reach a statement whose write is blocked. Its client is told behind the last whole message, when it reads.
#[test]
fn a_blocked_write_hears_of_its_end() {
    let server = Running::new();
    let mut other = server.connect();
    let wanted = |client: &mut Client| {
        let said = client.until_ready();
        assert_eq!(code(&said).as_deref(), Some("57014"));
        // No row behind the error, and none that is cut off.
        assert_eq!(kinds(&said[said.len() - 2..]), "EZ");
        for row in said.iter().filter(|message| message.0 == 'D') {
            assert_eq!(row.values()[1].as_ref().map(Vec::len), Some(1000));
        }
        assert_eq!(client.say("select 2"), "2; SELECT 1; I");
    };
    let mut client = server.connect();
    begun(&mut client, &long());
    blocked(&mut other);
    assert_eq!(other.say(&state(&client)), "active; SELECT 1; I");
    server.cancel(client.key);
    // It has ended though nothing more was read.
    until(&mut other, &state(&client), "idle; SELECT 1; I");
    wanted(&mut client);
    begun(&mut client, &long());
    blocked(&mut other);
    let cancelled = format!("select pg_cancel_backend({})", client.key.0);
    assert_eq!(other.say(&cancelled), "t; SELECT 1; I");
    until(&mut other, &state(&client), "idle; SELECT 1; I");
    wanted(&mut client);
    // The time that its client takes is the statement's.
    client.say("set statement_timeout = '2s'");
    begun(&mut client, &long());
    until(&mut other, &state(&client), "idle; SELECT 1; I");
    wanted(&mut client);
    client.say("set statement_timeout = 0");
    // The connection ends.
    begun(&mut client, &long());
    blocked(&mut other);
    assert_eq!(other.say(&format!("select pg_terminate_backend({})", client.key.0)), "t; SELECT 1; I");
    until(&mut other, &state(&client), "SELECT 0; I");
    // The client goes.
    let mut client = server.connect();
    begun(&mut client, &long());
    blocked(&mut other);
    let gone = state(&client);
    drop(client);
    until(&mut other, &gone, "SELECT 0; I");
    // The server ends.
    let mut client = server.connect();
    begun(&mut client, &long());
    blocked(&mut other);
    drop(server);
}

/// Rows that came before an error have been told; the session goes on.
#[test]
fn an_error_follows_the_rows_before_it() {
    let server = Running::new();
    let mut client = server.connect();
    let text = format!("select 1 / (g - {LONG}), repeat('x', 1000) from generate_series(1, 100000) g");
    for copies in [false, true] {
        ask(&mut client, &if copies { format!("copy ({text}) to stdout") } else { text.clone() });
        let said = client.until_ready();
        assert_eq!(count(&said, if copies { 'd' } else { 'D' }), LONG - 1);
        assert_eq!(code(&said).as_deref(), Some("22012"));
        assert_eq!(kinds(&said[said.len() - 2..]), "EZ");
        assert_eq!(client.say("select 2"), "2; SELECT 1; I");
    }
    // An error before rows have left leaves no rows.
    ask(&mut client, "select 1 / (g - 10) from generate_series(1, 100) g");
    assert_eq!(kinds(&client.until_ready()), "EZ");
}

/// Messages that were sent behind a long one are answered behind it, each in its place.
#[test]
fn messages_behind_a_stream_wait_for_it() {
    let server = Running::new();
    let mut client = server.connect();
    let mut sent = Vec::new();
    for (portal, text) in
        [("a", long()), ("b", "select 'b'".to_owned()), ("c", long()), ("d", "selec".to_owned())]
    {
        sent.extend(Client::parse("", &text, &[]));
        sent.extend(Client::bind(portal, "", &[], (0, 0)));
        sent.extend(Client::execute(portal, 0));
        sent.extend(Client::sync());
    }
    sent.extend(Client::message('Q', b"select 'e'\0"));
    client.send_raw(&sent);
    let said: Vec<Message> = (0..5).flat_map(|_| client.until_ready()).collect();
    let mut shown = kinds(&said);
    let rows = "D".repeat(LONG);
    while let Some(at) = shown.find(&rows) {
        shown.replace_range(at..at + LONG, "*");
    }
    assert_eq!(shown, "12*CZ12DCZ12*CZEZTDCZ");
    // Statements of one transaction, too.
    sent.clear();
    for text in [long(), "select 'b'".to_owned(), long()] {
        sent.extend(Client::parse("", &text, &[]));
        sent.extend(Client::bind("", "", &[], (0, 0)));
        sent.extend(Client::execute("", 0));
    }
    sent.extend(Client::sync());
    client.send_raw(&sent);
    assert_eq!(count(&client.until_ready(), 'D'), 2 * LONG + 1);
}

/// A client that stalls within an open transaction costs memory, not the transaction's snapshot.
#[test]
fn an_open_transaction_keeps_what_its_client_does_not_read() {
    let (db, server) = in_memory();
    let (mut client, mut other) = (server.connect(), server.connect());
    client.say("create table t (id int primary key)");
    client.say("begin");
    client.say("insert into t values (7)");
    begun(&mut client, &long());
    // It ends though nothing is read.
    until(&mut other, &state(&client), "idle in transaction; SELECT 1; I");
    assert!(db.statistics().memory.queries > 1 << 20, "what is kept is charged");
    assert_eq!(count(&client.until_ready(), 'D'), LONG - 1);
    assert_eq!(other.say("select 1"), "1; SELECT 1; I");
    assert_eq!(db.statistics().memory.queries, 0);
    assert_eq!(client.say("commit"), "COMMIT; I");
    assert_eq!(other.say("select id from t"), "7; SELECT 1; I");
}
