//! The server over sockets, asked by a small client of our own: nothing has to be installed for it.

mod activity;
mod cancels;
mod client;
mod definitions;
mod extended;
mod hostile;
mod simple;
mod startup;
mod streams;
mod turns;

use client::Client;
use thermocline_engine::{Database, Options};
use thermocline_server::{Config, Server};

/// A server of an empty database in memory.
struct Running(Option<Server>);

impl Running {
    fn new() -> Self {
        Self::with(|config| config)
    }

    fn with(change: impl FnOnce(Config) -> Config) -> Self {
        let db = Database::open_in_memory(Options::default()).expect("a database in memory opens");
        Self::of(db, change)
    }

    fn of(db: Database, change: impl FnOnce(Config) -> Config) -> Self {
        let listen = vec![([127, 0, 0, 1], 0).into()];
        let config = change(Config { listen, threads: 1, ..Config::default() });
        Self(Some(Server::start(db, config).expect("it starts")))
    }

    fn server(&self) -> &Server {
        self.0.as_ref().expect("it runs")
    }

    fn connect(&self) -> Client {
        let mut client = self.socket();
        client.startup(&[("user", "postgres"), ("application_name", "it")]);
        client
    }

    fn socket(&self) -> Client {
        Client::connect(self.server().addresses()[0])
    }

    /// Asks to cancel what the connection with this number and secret does.
    fn cancel(&self, (id, secret): (i32, i32)) {
        let mut socket = self.socket();
        socket.send_raw(&[16, 80_877_102, id, secret].map(i32::to_be_bytes).concat());
        assert_eq!(socket.read(), None, "a request to cancel has no answer");
    }

    fn stop(&mut self) {
        self.0.take().expect("it runs").stop().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.0.take() {
            let stopped = server.stop();
            assert!(stopped.is_ok() || std::thread::panicking(), "it ends: {stopped:?}");
        }
    }
}
