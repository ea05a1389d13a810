//! A panic while a row is sent, in the middle of a scan: it ends its session alone, and leaves no lock.

use std::io::{Read, Write};
use std::net::TcpStream;

use thermocline_engine::{Database, Options};
use thermocline_sql::Datum;

use crate::{Config, Server};

/// A value that no row can be sent with.
const FATAL: &str = "a value that makes this test panic";

pub(crate) fn may_panic(row: &[Datum]) {
    let is_fatal = |value: &Datum| matches!(value, Datum::Text(text) if **text == *FATAL);
    assert!(!row.iter().any(is_fatal), "a case that nobody has thought of");
}

struct Client(TcpStream);

impl Client {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.addresses()[0]).expect("it accepts");
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("a socket takes a timeout");
        let mut client = Self(stream);
        let body = b"\0\x03\0\0user\0postgres\0\0";
        let length = (body.len() as u32 + 4).to_be_bytes();
        client.0.write_all(&[&length[..], body].concat()).expect("it is sent");
        client.answers();
        client
    }

    fn send(&mut self, text: &str) {
        let length = (text.len() as u32 + 5).to_be_bytes();
        self.0.write_all(&[b"Q", &length[..], text.as_bytes(), b"\0"].concat()).expect("it is sent");
    }

    /// Kinds of messages up to ReadyForQuery or the end, and the SQLSTATE of an error.
    fn answers(&mut self) -> String {
        let mut said = String::new();
        loop {
            let mut head = [0; 5];
            if self.0.read_exact(&mut head).is_err() {
                return said + " end";
            }
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
            let mut body = vec![0; length];
            self.0.read_exact(&mut body).expect("a message is whole");
            said.push(head[0].into());
            if head[0] == b'E' {
                let mut fields = body.split(|byte| *byte == 0);
                let code = fields.find(|field| field.first() == Some(&b'C')).expect("an error has a code");
                said.push_str(&String::from_utf8_lossy(&code[1..]));
            }
            if head[0] == b'Z' {
                return said;
            }
        }
    }

    fn say(&mut self, text: &str) -> String {
        self.send(text);
        self.answers()
    }
}

#[test]
fn a_panic_ends_its_session_and_leaves_no_lock() {
    let db = Database::open_in_memory(Options::default()).expect("a database in memory opens");
    let config = Config { listen: vec![([127, 0, 0, 1], 0).into()], threads: 1, ..Config::default() };
    let server = Server::start(db, config).expect("it starts");
    let mut other = Client::connect(&server);
    assert_eq!(other.say("create table t (id int primary key, name text, n int default 0)"), "CZ");
    let insert = format!(
        "insert into t select g, case g when 50 then '{FATAL}' else 'x' end from generate_series(1, 99) g"
    );
    assert_eq!(other.say(&insert), "CZ");
    // Alone, in a transaction that holds locks of rows, of keys and of its own, and in an implicit one.
    for (before, rest) in [
        (vec![], ""),
        (
            vec![
                "begin",
                "update t set n = 1 where id = 1",
                "insert into t values (100)",
                "delete from t where id = 2",
                "select pg_advisory_lock(7)",
                "select pg_advisory_xact_lock(8)",
                "select * from t where id = 3 for update",
            ],
            "",
        ),
        (vec![], "update t set n = 2 where id = 1;"),
    ] {
        let mut client = Client::connect(&server);
        for text in before {
            assert!(!client.say(text).contains('E'), "{text}");
        }
        let said = client.say(&format!("{rest} select name from t order by id; select 1"));
        assert_eq!(said, "EXX000 end");
        // Others go on, and nothing is in their way.
        for text in [
            "begin",
            "update t set n = n + 10 where id in (1, 2, 3)",
            "insert into t values (100)",
            "alter table t add column more int",
            "rollback",
        ] {
            let said = other.say(text);
            assert!(!said.contains('E'), "{text}: {said}");
        }
        let free = "select 1 where pg_try_advisory_lock(7) and pg_try_advisory_lock(8) and pg_advisory_unlock_all() is not null";
        assert_eq!(other.say(free), "TDCZ");
    }
    // A row of a cursor, of a COPY, of a change.
    let mut client = Client::connect(&server);
    client.say("begin");
    assert_eq!(client.say("declare c cursor for select name from t"), "CZ");
    assert_eq!(client.say("fetch all from c"), "EXX000 end");
    let mut client = Client::connect(&server);
    assert_eq!(client.say("update t set n = 5 returning name"), "EXX000 end");
    assert_eq!(other.say("update t set n = 6"), "CZ");
    assert_eq!(server.connected(), 1);
    drop(other);
    server.stop().expect("it ends");
}
