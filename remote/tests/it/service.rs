//! Pages over sockets: out, in, back; two copies, a server that goes, one that drains.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thermocline_base::clock::SystemClock;
use thermocline_remote::client::{Client, ClientOptions, Event, PageError};
use thermocline_remote::key::Key;
use thermocline_remote::message::{Ask, Message, Told};
use thermocline_remote::server::Server;
use thermocline_remote::tcp::TcpConnect;
use thermocline_remote::transport::{Connect, LinkError, Transport};

use crate::{check, client, options, out, page};

#[test]
fn pages_go_out_and_come_in_over_tcp() {
    let key = Key::fresh();
    let server = Server::start(&options(&["127.0.0.1:0"], Some(&key), 4)).unwrap();
    let mut client = client(1, &[&server], Some(&key));
    let slots = out(&mut client, 0..700);
    check(&mut client, &slots, 0);
    let statistics = client.statistics();
    assert_eq!((statistics.page_outs, statistics.page_ins, statistics.remote_pages), (700, 700, 700));
    assert!(statistics.runs <= 20, "{} messages for 700 pages in batches of 64", statistics.runs);
    slots.iter().for_each(|slot| client.free(*slot));
    assert_eq!(client.statistics().remote_pages, 0);
    let status =
        TcpConnect::new(server.addresses()[0].clone(), Some(key), false, Duration::from_secs(60)).status();
    let status = status.unwrap();
    assert!(status.contains("4 segments of 1024 KiB") && status.contains("700 written"), "{status}");
    client.close();
    while server.leases() > 0 || server.free_segments() < 4 {
        std::thread::yield_now();
    }
}

#[test]
fn a_unix_socket_of_the_same_user_goes_without_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("memory.socket");
    let start = || Server::start(&options(&[path.to_str().unwrap()], None, 2)).unwrap();
    let server = start();
    let mut one = client(1, &[&server], None);
    let slots = out(&mut one, 0..100);
    check(&mut one, &slots, 0);
    drop(server);
    assert!(!path.exists());
    // A socket that a killed server leaves behind is in no later server's way.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(start());
}

/// Until each server has granted its first segment, and the client knows of it: from then on where pages go is drawn from the
/// client's seed, and each of the servers gets some.
fn all_grant(client: &mut Client, servers: &[&Server]) {
    while servers.iter().any(|server| server.free_segments() == 2) || !client.is_idle() {
        client.drive(Duration::from_millis(1));
    }
}

#[test]
fn two_copies_outlive_a_server() {
    let key = Key::fresh();
    let start = || Server::start(&options(&["127.0.0.1:0"], Some(&key), 2)).unwrap();
    let (one, two, three) = (start(), start(), start());
    let mut client = client(2, &[&one, &two, &three], Some(&key));
    all_grant(&mut client, &[&one, &two, &three]);
    let slots = out(&mut client, 0..300);
    drop(one);
    check(&mut client, &slots, 0);
    while client.statistics().lost_servers < 1 || client.statistics().short_pages > 0 {
        client.drive(Duration::from_millis(10));
    }
    // A scan may still be under way when nothing is known to be short.
    for _ in 0..20 {
        client.drive(Duration::from_millis(1));
    }
    while client.statistics().short_pages > 0 {
        client.drive(Duration::from_millis(10));
    }
    drop(two);
    check(&mut client, &slots, 0);
    assert_eq!(client.statistics().lost_servers, 2);
}

#[test]
fn a_server_that_drains_loses_its_leases_and_no_page() {
    let key = Key::fresh();
    let start = || Server::start(&options(&["127.0.0.1:0"], Some(&key), 2)).unwrap();
    let (one, two) = (start(), start());
    let mut client = client(1, &[&one, &two], Some(&key));
    while client.statistics().leases < 2 {
        client.drive(Duration::from_millis(100));
    }
    let slots = out(&mut client, 0..150);
    one.drain();
    // It is told with the next answer that writes or renews.
    let more = out(&mut client, 150..400);
    while one.leases() > 0 {
        client.drive(Duration::from_millis(10));
    }
    drop(one);
    check(&mut client, &slots, 0);
    check(&mut client, &more, 150);
    assert_eq!(client.statistics().lost_servers, 0);
    assert_eq!(page(3)[..8], (3 * 512_u64).to_le_bytes());
}

/// Answers that stay where they are as long as a test wants it so.
#[derive(Debug)]
struct Stalled(Box<dyn Transport>, Arc<AtomicBool>);

impl Transport for Stalled {
    fn send(&mut self, request: Message<Ask>) -> Result<(), LinkError> {
        self.0.send(request)
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        self.0.flush()
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Message<Told>>, LinkError> {
        if self.1.load(Ordering::SeqCst) {
            std::thread::sleep(wait.min(Duration::from_millis(1)));
            return Ok(None);
        }
        self.0.receive(wait)
    }
}

#[derive(Debug)]
struct StalledConnect(Box<dyn Connect>, Arc<AtomicBool>);

impl Connect for StalledConnect {
    fn connect(&mut self) -> Result<Box<dyn Transport>, LinkError> {
        Ok(Box::new(Stalled(self.0.connect()?, Arc::clone(&self.1))))
    }

    fn address(&self) -> String {
        self.0.address()
    }
}

/// A server that hangs holds up no read of a page that has another copy, is not lost for that, and what it answers later changes
/// nothing.
#[test]
fn a_slow_answer_is_overtaken_by_the_other_copy() {
    let key = Key::fresh();
    let start = || Server::start(&options(&["127.0.0.1:0"], Some(&key), 2)).unwrap();
    let (one, two) = (start(), start());
    let stalled = Arc::new(AtomicBool::new(false));
    let connects: Vec<Box<dyn Connect>> = vec![
        Box::new(StalledConnect(crate::connect(&one.addresses()[0], Some(&key)), Arc::clone(&stalled))),
        crate::connect(&two.addresses()[0], Some(&key)),
    ];
    let mut client = crate::client_of(2, connects);
    while client.statistics().leases < 2 {
        client.drive(Duration::from_millis(10));
    }
    let slots = out(&mut client, 0..200);
    check(&mut client, &slots, 0);
    for round in 0..3 {
        stalled.store(true, Ordering::SeqCst);
        check(&mut client, &slots, 0);
        let statistics = client.statistics();
        assert_eq!((statistics.lost_servers, statistics.damaged_answers), (0, 0), "round {round}");
        stalled.store(false, Ordering::SeqCst);
        while !client.is_idle() {
            client.drive(Duration::from_millis(1));
        }
    }
    assert!(client.statistics().second_reads > 0);
    slots.iter().for_each(|slot| client.free(*slot));
    assert_eq!(client.statistics().remote_pages, 0, "no read holds a slot any more");
}

/// A server that looks at what it is given, and changes what it gives so that the checksum stays.
#[derive(Debug)]
struct Forging(Box<dyn Transport>, Arc<Mutex<Vec<u8>>>);

/// The polynomial of CRC-32C as the bits of a message have it, lowest bit first: to add it changes the message and not the sum.
const NO_CHANGE: u64 = (0x1EDC_6F41_u32.reverse_bits() as u64) << 1 | 1;

impl Transport for Forging {
    fn send(&mut self, request: Message<Ask>) -> Result<(), LinkError> {
        if let Ask::Write { bytes, .. } = &request.body {
            self.1.lock().expect("no panic").extend_from_slice(bytes);
        }
        self.0.send(request)
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        self.0.flush()
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Message<Told>>, LinkError> {
        let mut answer = self.0.receive(wait)?;
        if let Some(Message { body: Told::Pages(bytes), .. }) = &mut answer {
            for (byte, change) in bytes[2000..].iter_mut().zip(NO_CHANGE.to_le_bytes()) {
                *byte ^= change;
            }
        }
        Ok(answer)
    }
}

#[derive(Debug)]
struct ForgingConnect(Box<dyn Connect>, Arc<Mutex<Vec<u8>>>);

impl Connect for ForgingConnect {
    fn connect(&mut self) -> Result<Box<dyn Transport>, LinkError> {
        Ok(Box::new(Forging(self.0.connect()?, Arc::clone(&self.1))))
    }

    fn address(&self) -> String {
        self.0.address()
    }
}

/// A checksum is no proof against a server that means it. A seal is, and says nothing of the page.
#[test]
fn a_server_sees_and_forges_pages_unless_they_are_sealed() {
    let key = Key::fresh();
    for sealed in [false, true] {
        let server = Server::start(&options(&["127.0.0.1:0"], Some(&key), 2)).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connect = crate::connect(&server.addresses()[0], Some(&key));
        let connects: Vec<Box<dyn Connect>> = vec![Box::new(ForgingConnect(connect, Arc::clone(&seen)))];
        let options = ClientOptions { sealed, ..crate::client_options(1) };
        let mut client = Client::new(options, Arc::new(SystemClock), connects);
        let slots = out(&mut client, 5..6);
        let bytes = page(5);
        let is_seen = seen.lock().unwrap().windows(64).any(|some| *some == bytes[..64]);
        assert_eq!(is_seen, !sealed);
        let ticket = client.page_in(slots[0]);
        match &crate::events(&mut client, 1)[..] {
            [Event::In { bytes: forged, .. }] => assert!(!sealed && *forged != bytes),
            [Event::Failed { ticket: of, error }] => {
                assert!(sealed && *of == ticket && matches!(error, PageError::Lost { .. }));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(client.statistics().damaged_answers, u64::from(sealed));
    }
}

/// Sealed pages come back, from either copy, and from where they were moved to.
#[test]
fn sealed_pages_outlive_a_server() {
    let key = Key::fresh();
    let start = || Server::start(&options(&["127.0.0.1:0"], Some(&key), 2)).unwrap();
    let (one, two, three) = (start(), start(), start());
    let connects = [&one, &two, &three].map(|server| crate::connect(&server.addresses()[0], Some(&key)));
    let options = ClientOptions { sealed: true, ..crate::client_options(2) };
    let mut client = Client::new(options, Arc::new(SystemClock), connects.into());
    all_grant(&mut client, &[&one, &two, &three]);
    let slots = out(&mut client, 0..200);
    check(&mut client, &slots, 0);
    drop(one);
    while client.statistics().lost_servers < 1 || client.statistics().moved_pages == 0 {
        client.drive(Duration::from_millis(10));
    }
    check(&mut client, &slots, 0);
    slots.iter().for_each(|slot| client.free(*slot));
    let again = out(&mut client, 300..400);
    check(&mut client, &again, 300);
}
