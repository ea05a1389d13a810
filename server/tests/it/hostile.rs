//! Peers that do what they should not: at worst their own connection ends.

use thermocline_server::{Config, Passwords};

use crate::Running;
use crate::client::Client;

/// The server is well: somebody else gets an answer.
fn is_well(server: &Running) {
    assert_eq!(server.connect().say("select 1"), "1; SELECT 1; I");
}

fn code(client: &mut Client) -> Option<String> {
    client.until_end().iter().find(|message| message.0 == 'E').and_then(|message| message.field('C'))
}

#[test]
fn messages_that_are_none_end_the_connection() {
    let server = Running::new();
    let bad: [Vec<u8>; 8] = [
        Client::message('?', b""),
        Client::message('Q', b"no end"),
        Client::message('B', b"\0\0\0\x7f"),
        Client::message('B', b"\0\0\0\0\0\x01\0\0\x00\xff"),
        Client::message('P', b"x"),
        Client::message('E', b"\0"),
        vec![b'Q', 0, 0, 0, 1],
        vec![b'Q', 0xff, 0xff, 0xff, 0xff],
    ];
    for bytes in bad {
        let mut client = server.connect();
        client.send_raw(&bytes);
        let code = code(&mut client);
        assert!(matches!(code.as_deref(), Some("08P01" | "54000")), "{bytes:?}: {code:?}");
    }
    is_well(&server);
}

#[test]
fn beginnings_that_are_none_end_the_connection() {
    let server = Running::new();
    let bad: [&[u8]; 11] = [
        b"GET / HTTP/1.1\r\n\r\n",
        // A request for TLS with more than it has.
        &[0, 0, 0, 12, 4, 210, 22, 47, 1, 2, 3, 4],
        // Requests to cancel that are too short and too long, and one of nobody.
        &[0, 0, 0, 8, 4, 210, 22, 46],
        &[0, 0, 0, 20, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3],
        &[0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 2],
        b"\0\0\0\x16\0\x03\0\0user\0post\xff\xfe\0\0",
        b"\0\0\0\x0c\0\x03\0\0\0\0\0\0",
        &[0, 0, 0, 3, 0, 0, 0, 0],
        &[0, 0, 0, 8, 0, 2, 0, 0],
        &[0, 0, 0, 9, 0, 3, 0, 0, 65],
        &[0, 0, 0, 20, 0, 3, 0, 0, b'u'],
    ];
    for bytes in bad {
        let mut client = server.socket();
        client.send_raw(bytes);
        // Half of a message is waited for; its sender goes.
        client.stream.shutdown(std::net::Shutdown::Write).expect("it closes");
        client.until_end();
    }
    // Requests for TLS without end: it is refused twice, and then the client.
    let mut client = server.socket();
    client.send_raw(&[[0, 0, 0, 8, 4, 210, 22, 47]; 9].concat());
    let mut no = [0; 2];
    std::io::Read::read_exact(&mut client.stream, &mut no).expect("both are answered");
    assert_eq!(no, *b"NN");
    assert_eq!(code(&mut client).as_deref(), Some("0A000"));
    is_well(&server);
}

/// What is no text ends its statement, not its connection, and means nothing: no key becomes another one.
#[test]
fn texts_that_are_not_utf8_are_refused() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (k text primary key)");
    client.say("insert into t values ('\u{fffd}'), ('a')");
    let say = |client: &mut Client, text: &[u8]| {
        client.send('Q', &[text, &[0]].concat());
        let said = client.until_ready();
        let error = said.iter().find(|message| message.0 == 'E');
        error.map_or("fine".to_owned(), |error| error.field('C').expect("an error has a code"))
    };
    for text in [
        &b"delete from t where k = '\xff'"[..],
        b"delete from t where k = '\xc3'",
        b"delete from t where k = '\xed\xa0\x80'",
        b"insert into t values ('\xfe')",
        b"create table \"\xff\" (a int)",
        b"select 1 as \xe4",
        b"-- \x80\ndelete from t",
        b"prepare \"\xff\" as select 1",
        b"declare \"\xff\" cursor with hold for select 1",
        b"savepoint \xfc",
    ] {
        assert_eq!(say(&mut client, text), "22021", "{text:?}");
    }
    assert_eq!(client.say("select count(*) from t"), "2; SELECT 1; I");
    // In a transaction it is an error like any other.
    client.say("begin");
    assert_eq!(say(&mut client, b"select '\xff'"), "22021");
    assert_eq!(client.say("select 1"), "25P02; E");
    client.say("rollback");
    // The extended protocol: the text, names of statements and portals.
    let parse = Client::message('P', b"s\0select '\xff'\0\0\0");
    let named = Client::message('P', b"\xff\0select 1\0\0\0");
    let good = Client::parse("s", "select 1", &[]);
    let bound = Client::message('B', b"\xff\0s\0\0\0\0\0\0\0");
    let described = Client::message('D', b"S\xff\0");
    let executed = Client::message('E', b"\xff\0\0\0\0\0");
    let closed = Client::message('C', b"P\xff\0");
    for (first, second) in [
        (&parse, None),
        (&named, None),
        (&good, Some(&bound)),
        (&described, None),
        (&executed, None),
        (&closed, None),
    ] {
        client.send_raw(first);
        second.into_iter().for_each(|bytes| client.send_raw(bytes));
        // What follows is passed over, up to the Sync.
        client.send_raw(&Client::execute("", 0));
        client.send_raw(&Client::sync());
        let said = client.until_ready();
        let code = said.iter().find(|message| message.0 == 'E').and_then(|message| message.field('C'));
        assert_eq!(code.as_deref(), Some("22021"), "{first:?}");
        assert_eq!(said.iter().filter(|message| message.0 == 'E').count(), 1, "{said:?}");
    }
    assert_eq!(client.say("select 1"), "1; SELECT 1; I");
    // Parameters and lines of a COPY, as before.
    client.send_raw(&Client::parse("", "select $1::text", &[]));
    client.send_raw(&Client::bind("", "", &[Some(b"\xff")], (0, 0)));
    client.send_raw(&Client::sync());
    let said = client.until_ready();
    assert_eq!(said[1].field('C').as_deref(), Some("22021"));
}

/// Before login: lengths beyond the message, messages of other kinds, what proves nothing.
#[test]
fn passwords_that_are_none_end_the_connection() {
    let passwords = Passwords::parse("postgres:secret").expect("it is well formed");
    let server = Running::with(|config| Config { passwords, ..config });
    let scram = b"SCRAM-SHA-256\0";
    let long = [&scram[..], &[0x7f, 0xff, 0xff, 0xff], b"n,,n=,r=x"].concat();
    let negative = [&scram[..], &[0xff, 0xff, 0xff, 0xfe], b"n,,n=,r=x"].concat();
    let short = [&scram[..], &[0, 0, 0, 1], b"n,,n=,r=x"].concat();
    let none = [&scram[..], &[0xff, 0xff, 0xff, 0xff]].concat();
    let garbage = [&scram[..], &[0, 0, 0, 4], &[0xff, 0xfe, 0, 1]].concat();
    let bad: [(char, &[u8], &str); 9] = [
        ('p', &long, "08P01"),
        ('p', &negative, "08P01"),
        ('p', &short, "08P01"),
        ('p', &none, "28P01"),
        ('p', &garbage, "28P01"),
        ('p', b"", "08P01"),
        ('p', b"SCRAM-SHA-256", "08P01"),
        ('p', b"PLAIN\0\0\0\0\0", "08P01"),
        ('Q', b"select 1\0", "08P01"),
    ];
    for (kind, body, wanted) in bad {
        let mut client = server.socket();
        client.send_raw(&Client::startup_message(&[("user", "postgres")]));
        client.send(kind, body);
        assert_eq!(code(&mut client).as_deref(), Some(wanted), "{kind} {body:?}");
    }
    // A length that no password has.
    let mut client = server.socket();
    client.send_raw(&Client::startup_message(&[("user", "postgres")]));
    client.send_raw(b"p\xff\xff\xff\xff");
    assert_eq!(code(&mut client).as_deref(), Some("08P01"));
    // Proofs of every beginning of a real exchange.
    let first = [&scram[..], &[0, 0, 0, 9], b"n,,n=,r=x"].concat();
    for last in [&b""[..], b"c=biws,r=x", b"c=biws,r=x,p=", b"c=biws,r=x,p=AAAA", b"\xff", b"c=,r=,p="] {
        let mut client = server.socket();
        client.send_raw(&Client::startup_message(&[("user", "postgres")]));
        client.send('p', &first);
        client.send('p', last);
        assert_eq!(code(&mut client).as_deref(), Some("28P01"), "{last:?}");
    }
}

#[test]
fn every_beginning_of_a_session_may_be_its_end() {
    let server = Running::new();
    let whole = [
        Client::startup_message(&[("user", "postgres")]),
        Client::parse("s", "select $1::int4", &[23]),
        Client::bind("", "s", &[Some(b"1")], (0, 0)),
        Client::execute("", 0),
        Client::sync(),
    ]
    .concat();
    for end in 0..whole.len() {
        let mut client = server.socket();
        client.send_raw(&whole[..end]);
    }
    is_well(&server);
}

#[test]
fn long_statements_are_answered() {
    let server = Running::new();
    let mut client = server.connect();
    let text = format!("select length('{}')", "x".repeat(1 << 20));
    assert_eq!(client.say(&text), "1048576; SELECT 1; I");
    assert_eq!(client.say(&format!("select {}1{}", "(".repeat(100_000), ")".repeat(100_000))), "54001; I");
    let terms = vec!["1"; 100_000].join(" + ");
    assert_eq!(client.say(&format!("select {terms}")), "54001; I");
}

#[test]
fn slow_peers_hold_up_nobody() {
    let server = Running::new();
    let mut slow = server.socket();
    slow.send_raw(&[0, 0]);
    let mut half = server.connect();
    half.send_raw(b"Q\0\0");
    is_well(&server);
    // A client that does not read its answer.
    let mut deaf = server.connect();
    deaf.send('Q', b"select repeat('x', 1000) from generate_series(1, 50000)\0");
    is_well(&server);
    half.send_raw(b"\0\x0dselect 1\0");
    assert_eq!(half.until_ready().len(), 4);
}
