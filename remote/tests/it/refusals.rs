//! Refusals, and how they are told.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use thermocline_remote::key::{Key, KeyError};
use thermocline_remote::server::{Server, ServerError};
use thermocline_remote::tcp::{Address, TcpConnect};
use thermocline_remote::transport::LinkError;

use crate::{client, connect, options, page};

fn refused(address: &Address, key: Option<&Key>) -> LinkError {
    connect(address, key).connect().expect_err("it is refused")
}

#[test]
fn a_wrong_key_or_none_is_refused() {
    let key = Key::fresh();
    let server = Server::start(&options(&["127.0.0.1:0"], Some(&key), 1)).unwrap();
    let address = &server.addresses()[0];
    for other in [Some(&Key::fresh()), None] {
        let error = refused(address, other);
        assert!(matches!(error, LinkError::Unauthenticated), "{error}");
        assert!(error.to_string().contains("--key-file"));
    }
    assert!(connect(address, Some(&key)).connect().is_ok());
    assert_eq!(server.leases(), 0);
}

#[test]
fn a_stranger_is_no_server() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n").unwrap();
    });
    let error = refused(&address, Some(&Key::fresh()));
    assert!(matches!(error, LinkError::Malformed | LinkError::Unauthenticated | LinkError::Io(_)), "{error}");
    stranger.join().unwrap();
}

#[test]
fn random_bytes_and_cut_handshakes_end_the_connection_only() {
    let key = Key::fresh();
    let server = Server::start(&options(&["127.0.0.1:0"], Some(&key), 1)).unwrap();
    let Address::Tcp(address) = &server.addresses()[0] else { panic!("it listens on TCP") };
    let mut rng = thermocline_base::rng::Rng::new(1);
    for round in 0..50 {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut bytes = vec![0; round * 3];
        rng.fill(&mut bytes);
        if round % 2 == 0 {
            // As far as a stranger knows the protocol.
            bytes.splice(0..0, *b"thermRM1\x01\x30\x00");
        }
        // The server may have closed already.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let mut client = client(1, &[&server], Some(&key));
    let ticket = client.page_out(page(1));
    assert!(
        matches!(&crate::events(&mut client, 1)[..], [thermocline_remote::client::Event::Out { ticket: of, .. }] if *of == ticket)
    );
}

#[test]
fn a_handshake_that_is_replayed_gets_no_lease() {
    let key = Key::fresh();
    let server = Server::start(&options(&["127.0.0.1:0"], Some(&key), 1)).unwrap();
    let Address::Tcp(address) = &server.addresses()[0] else { panic!("it listens on TCP") };
    // A wire that is listened on: what the client says is kept.
    let tap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tapped: Address = tap.local_addr().unwrap().to_string().parse().unwrap();
    let target = address.clone();
    let wire = std::thread::spawn(move || {
        let (mut near, _) = tap.accept().unwrap();
        let mut far = TcpStream::connect(target).unwrap();
        let mut back = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
        let mut said = Vec::new();
        let mut some = [0; 4096];
        while let Ok(count @ 1..) = near.read(&mut some) {
            said.extend_from_slice(&some[..count]);
            let _ = far.write_all(&some[..count]);
        }
        said
    });
    drop(connect(&tapped, Some(&key)).connect().unwrap());
    let said = wire.join().unwrap();
    assert!(said.len() > 70, "hello, e, and the sealed byte");
    let mut replay = TcpStream::connect(address).unwrap();
    replay.write_all(&said).unwrap();
    let mut answer = Vec::new();
    // The server closes when the sealed byte does not open.
    let _ = replay.read_to_end(&mut answer);
    assert!(answer.len() < 64, "no more than its half of the handshake: {}", answer.len());
    assert_eq!(server.leases(), 0);
}

#[test]
fn servers_that_cannot_be_started() {
    let error = |listen: &[&str], segments: u64| {
        Server::start(&options(listen, None, segments)).expect_err("it is refused")
    };
    assert!(matches!(error(&[], 1), ServerError::NoAddress));
    assert!(matches!(error(&["0.0.0.0:0"], 1), ServerError::NoKey(_)));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let text = path.to_str().unwrap();
    assert!(matches!(error(&[text], 0), ServerError::TooLittle { .. }));
    let running = Server::start(&options(&[text], None, 1)).unwrap();
    assert!(matches!(error(&[text], 1), ServerError::Listen(..)), "another one listens there");
    drop(running);
    assert!("nonsense".parse::<Address>().unwrap_err().contains("HOST:PORT"));
}

#[test]
fn keys_that_are_none() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    assert!(matches!(Key::read(&path), Err(KeyError::Io(..))));
    let key = Key::fresh();
    std::fs::write(&path, key.to_hex() + "\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Key::read(&path), Err(KeyError::Open(_, 0o640))));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(Key::read(&path).unwrap(), key);
    for wrong in ["", "12", &"x".repeat(64), &"1".repeat(63)] {
        std::fs::write(&path, wrong).unwrap();
        assert!(matches!(Key::read(&path), Err(KeyError::Malformed(_))), "{wrong:?}");
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_its_reason() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
    drop(listener);
    let connects =
        vec![Box::new(TcpConnect::new(address.clone(), Some(Key::fresh()), false, Duration::from_secs(60)))
            as _];
    let options = thermocline_remote::client::ClientOptions { batch_ns: 0, ..Default::default() };
    let mut client = thermocline_remote::client::Client::new(
        options,
        std::sync::Arc::new(thermocline_base::clock::SystemClock),
        connects,
    );
    let _ = client.page_out(page(1));
    let events = crate::events(&mut client, 1);
    assert!(
        matches!(&events[..], [thermocline_remote::client::Event::Failed { error, .. }] if error.to_string().contains("no room"))
    );
    let troubles: Vec<_> = client.troubles().map(|(name, why)| (name, why.to_owned())).collect();
    assert_eq!(troubles[0].0, address.to_string());
    assert!(troubles[0].1.contains("refused"), "{troubles:?}");
}
