//! Peers that do what they should not: at worst their own connection ends.

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
    let bad: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
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
    is_well(&server);
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
