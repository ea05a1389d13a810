//! Memory servers and clients over real sockets: what works, and what is refused.

mod file;
mod refusals;
mod service;

use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::SystemClock;
use thermocline_remote::client::{Client, ClientOptions, Event};
use thermocline_remote::key::Key;
use thermocline_remote::server::{Server, ServerOptions};
use thermocline_remote::tcp::{Address, TcpConnect};
use thermocline_remote::transport::Connect;

/// A server of some small segments, which are not locked: a test may run without that right.
pub(crate) fn options(listen: &[&str], key: Option<&Key>, segments: u64) -> ServerOptions {
    ServerOptions {
        memory_bytes: segments << 20,
        segment_bytes: 1 << 20,
        listen: listen.iter().map(|address| address.parse().expect("an address")).collect(),
        key: key.cloned(),
        huge: false,
        locked: false,
        grace: Duration::from_secs(3600),
    }
}

pub(crate) fn connect(address: &Address, key: Option<&Key>) -> Box<dyn Connect> {
    Box::new(TcpConnect::new(address.clone(), key.cloned(), false, Duration::from_secs(60)))
}

pub(crate) fn client(copies: u8, servers: &[&Server], key: Option<&Key>) -> Client {
    client_of(copies, servers.iter().map(|server| connect(&server.addresses()[0], key)).collect())
}

pub(crate) fn client_of(copies: u8, connects: Vec<Box<dyn Connect>>) -> Client {
    Client::new(client_options(copies), Arc::new(SystemClock), connects)
}

/// No time-out shortens a test on a machine that is busy.
pub(crate) fn client_options(copies: u8) -> ClientOptions {
    ClientOptions {
        copies,
        batch_ns: 0,
        timeout_ns: u64::MAX,
        retry_ns: u64::MAX / 2,
        ..ClientOptions::default()
    }
}

pub(crate) fn page(number: u64) -> Arc<[u8]> {
    (0..512_u64).flat_map(|word| (number * 512 + word).to_le_bytes()).collect()
}

/// Drives until so many events have come.
pub(crate) fn events(client: &mut Client, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        client.drive(Duration::from_millis(100));
        events.extend(std::iter::from_fn(|| client.event()));
    }
    events
}

/// Sends pages out; gives their slots in order.
pub(crate) fn out(client: &mut Client, pages: std::ops::Range<u64>) -> Vec<u64> {
    let tickets: Vec<_> = pages.map(|number| client.page_out(page(number))).collect();
    let mut slots: Vec<_> = events(client, tickets.len())
        .into_iter()
        .map(|event| match event {
            Event::Out { ticket, slot } => (ticket, slot),
            other => panic!("a page does not go out: {other:?}"),
        })
        .collect();
    slots.sort_unstable();
    slots.into_iter().map(|(_, slot)| slot).collect()
}

/// Reads slots, and compares them with the pages from `first` on.
pub(crate) fn check(client: &mut Client, slots: &[u64], first: u64) {
    let tickets: Vec<_> = slots.iter().map(|slot| client.page_in(*slot)).collect();
    for event in events(client, slots.len()) {
        let Event::In { ticket, bytes } = event else { panic!("a page does not come in: {event:?}") };
        let at = tickets.iter().position(|asked| *asked == ticket).expect("asked for") as u64;
        assert_eq!(bytes, page(first + at));
    }
}
