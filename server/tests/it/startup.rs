//! The start of a session: versions of the protocol, settings that clients send, and limits of a silence.

use crate::Running;
use crate::client::{Client, kinds};

/// The answer to the first message of a client.
fn begun(server: &Running, version: u32, settings: &[(&str, &str)]) -> (Client, Vec<crate::client::Message>) {
    let mut client = Client::connect(server.server().addresses()[0]);
    client.send_raw(&Client::startup_of_version(version, settings));
    let messages = client.until_ready();
    (client, messages)
}

#[test]
fn a_later_version_of_the_protocol_is_offered_ours() {
    let server = Running::new();
    let user = ("user", "postgres");
    for (version, options, expected) in [
        (0x0003_0000, &[user][..], None),
        (0x0003_0002, &[user], Some(vec![0, 3, 0, 0, 0, 0, 0, 0])),
        (0x0003_270f, &[user], Some(vec![0, 3, 0, 0, 0, 0, 0, 0])),
        (
            0x0003_0000,
            &[user, ("_pq_.grease", "1")],
            Some([&[0, 3, 0, 0, 0, 0, 0, 1][..], b"_pq_.grease\0"].concat()),
        ),
    ] {
        let (mut client, messages) = begun(&server, version, options);
        let offer = messages.iter().find(|message| message.0 == 'v').map(|message| message.1.clone());
        assert_eq!(offer, expected, "version {version:x}");
        assert!(expected.is_none() || messages[0].0 == 'v', "it comes first: {}", kinds(&messages));
        assert_eq!(client.say("select 1"), "1; SELECT 1; I");
    }
}

#[test]
fn settings_of_clients_and_pools_are_taken() {
    let server = Running::new();
    let settings = [
        ("user", "postgres"),
        ("work_mem", "64MB"),
        ("check_function_bodies", "off"),
        ("tcp_keepalives_idle", "60"),
        ("idle_in_transaction_session_timeout", "1h"),
        ("jit", "off"),
        (
            "options",
            "-c application_name=a\\ b\\\\c --enable-seqscan=off -crandom_page_cost=1.1 -c search_path=public",
        ),
    ];
    let (mut client, _) = begun(&server, 0x0003_0000, &settings);
    assert_eq!(client.say("show work_mem"), "64MB; SHOW; I");
    assert_eq!(client.say("show application_name"), "a b\\c; SHOW; I");
    assert_eq!(client.say("show enable_seqscan"), "off; SHOW; I");
    assert_eq!(client.say("show random_page_cost"), "1.1; SHOW; I");
    assert_eq!(client.say("reset work_mem"), "RESET; I");
    let mut client = Client::connect(server.server().addresses()[0]);
    client.send_raw(&Client::startup_message(&[("user", "postgres"), ("work_mem", "much")]));
    let error = client.read().filter(|message| message.0 != 'R').or_else(|| client.read());
    assert_eq!(error.and_then(|error| error.field('C')).as_deref(), Some("22023"));
}

/// Drivers send the zone of their machine, and pools reset sessions: that zone is what RESET goes back to.
#[test]
fn the_zone_of_a_client_is_that_of_its_session() {
    let server = Running::new();
    let zone = [("user", "postgres"), ("TimeZone", "america/new_york")];
    let (mut client, messages) = begun(&server, 0x0003_0000, &zone);
    let told = |messages: &[crate::client::Message]| -> Vec<String> {
        let texts = messages.iter().filter(|it| it.0 == 'S').map(|it| it.text().replace('\0', "="));
        texts.filter(|text| text.starts_with("TimeZone")).collect()
    };
    assert_eq!(told(&messages), ["TimeZone=America/New_York"]);
    let moment = "select timestamptz '2021-07-01 12:00'";
    assert_eq!(client.say(moment), "2021-07-01 12:00:00-04; SELECT 1; I");
    let messages = client.query("set time zone interval '+00:00' hour to minute");
    assert_eq!(told(&messages), ["TimeZone=<+00>-00"]);
    assert_eq!(client.say(moment), "2021-07-01 12:00:00+00; SELECT 1; I");
    let out = client.query("copy (select timestamptz '2021-07-01 00:00-04') to stdout");
    assert_eq!((kinds(&out).as_str(), &out[1].1[..]), ("HdcCZ", &b"2021-07-01 04:00:00+00\n"[..]));
    for back in ["reset all", "set time zone 'Asia/Tokyo'; discard all", "set time zone local"] {
        client.say("set time zone 'Europe/Paris'");
        client.say(back);
        assert_eq!(client.say("show timezone"), "America/New_York; SHOW; I", "{back}");
    }
    let mut client = Client::connect(server.server().addresses()[0]);
    client.send_raw(&Client::startup_message(&[("user", "postgres"), ("TimeZone", "Mars/Phobos")]));
    let error = client.read().filter(|message| message.0 != 'R').or_else(|| client.read());
    assert_eq!(error.and_then(|error| error.field('C')).as_deref(), Some("22023"));
}

/// A client that says nothing for longer than it may is told so, and goes.
#[test]
fn a_silence_has_a_limit() {
    let server = Running::new();
    let mut client = server.connect();
    client.say("create table t (id int)");
    assert_eq!(client.say("set idle_in_transaction_session_timeout = 1"), "SET; I");
    // Outside of a transaction it may be silent.
    assert_eq!(client.say("select 1"), "1; SELECT 1; I");
    assert_eq!(client.say("begin; insert into t values (1)"), "BEGIN; INSERT 0 1; T");
    let error = client.read().expect("it is told");
    assert_eq!(
        (error.0, error.field('S').as_deref(), error.field('C').as_deref()),
        ('E', Some("FATAL"), Some("25P03"))
    );
    assert!(client.read().is_none(), "the connection has ended");
    let mut client = server.connect();
    assert_eq!(client.say("select count(*) from t"), "0; SELECT 1; I");
    client.send('Q', b"set idle_session_timeout = 1\0");
    let mut last = None;
    while let Some(message) = client.read() {
        last = Some(message);
    }
    assert_eq!(last.and_then(|error| error.field('C')).as_deref(), Some("57P05"));
}
