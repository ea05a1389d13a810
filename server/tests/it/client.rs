//! A client that shows the protocol as it is: messages out, messages in.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A message: its kind and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message(pub(crate) char, pub(crate) Vec<u8>);

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Number and secret of the connection.
    pub(crate) key: (i32, i32),
}

impl Message {
    /// The field of an error or notice.
    pub(crate) fn field(&self, kind: char) -> Option<String> {
        assert!("EN".contains(self.0), "{self:?} has no fields");
        let fields = self.1.split(|byte| *byte == 0);
        let mut found = fields.filter(|field| field.first() == Some(&(kind as u8)));
        found.next().map(|field| String::from_utf8_lossy(&field[1..]).into_owned())
    }

    /// The values of a DataRow.
    pub(crate) fn values(&self) -> Vec<Option<Vec<u8>>> {
        assert_eq!(self.0, 'D', "{self:?} is no row");
        let count = u16::from_be_bytes([self.1[0], self.1[1]]);
        let mut rest = &self.1[2..];
        (0..count)
            .map(|_| {
                let (length, after) = rest.split_at(4);
                let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
                rest = after;
                let length = usize::try_from(length).ok()?;
                let (value, after) = rest.split_at(length);
                rest = after;
                Some(value.to_vec())
            })
            .collect()
    }

    /// The text of a body that is one.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.1.strip_suffix(&[0]).unwrap_or(&self.1)).into_owned()
    }
}

/// Kinds of messages in a row, as one word.
pub(crate) fn kinds(messages: &[Message]) -> String {
    messages.iter().map(|message| message.0).collect()
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it accepts");
        // A test that would wait for ever fails instead.
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket takes a timeout");
        Self { stream, key: (0, 0) }
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it is sent");
    }

    pub(crate) fn startup_message(settings: &[(&str, &str)]) -> Vec<u8> {
        Self::startup_of_version(0x0003_0000, settings)
    }

    pub(crate) fn startup_of_version(version: u32, settings: &[(&str, &str)]) -> Vec<u8> {
        let mut body = version.to_be_bytes().to_vec();
        for (name, value) in settings {
            body.extend(name.bytes().chain([0]).chain(value.bytes()).chain([0]));
        }
        body.push(0);
        let mut all = (body.len() as i32 + 4).to_be_bytes().to_vec();
        all.extend(body);
        all
    }

    pub(crate) fn startup(&mut self, settings: &[(&str, &str)]) -> Vec<Message> {
        self.send_raw(&Self::startup_message(settings));
        let messages = self.until_ready();
        let key = messages.iter().find(|message| message.0 == 'K').expect("a key is told");
        let int = |at: usize| i32::from_be_bytes(key.1[at..at + 4].try_into().expect("four bytes"));
        self.key = (int(0), int(4));
        messages
    }

    pub(crate) fn message(kind: char, body: &[u8]) -> Vec<u8> {
        let mut all = vec![kind as u8];
        all.extend((body.len() as i32 + 4).to_be_bytes());
        all.extend(body);
        all
    }

    pub(crate) fn send(&mut self, kind: char, body: &[u8]) {
        self.send_raw(&Self::message(kind, body));
    }

    /// The next message; none at the end of the connection.
    pub(crate) fn read(&mut self) -> Option<Message> {
        let mut head = [0; 5];
        match self.stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the server does not answer")
            }
            Err(_) => return None,
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
        let mut body = vec![0; length];
        // A server that is killed may leave a message unfinished.
        self.stream.read_exact(&mut body).ok()?;
        Some(Message(head[0].into(), body))
    }

    /// Messages up to ReadyForQuery, which is among them.
    pub(crate) fn until_ready(&mut self) -> Vec<Message> {
        let mut all = Vec::new();
        loop {
            let message = self.read().unwrap_or_else(|| panic!("the connection ended after {all:?}"));
            let last = message.0 == 'Z';
            all.push(message);
            if last {
                return all;
            }
        }
    }

    /// Messages up to the end of the connection.
    pub(crate) fn until_end(&mut self) -> Vec<Message> {
        std::iter::from_fn(|| self.read()).collect()
    }

    pub(crate) fn query(&mut self, text: &str) -> Vec<Message> {
        self.send('Q', &[text.as_bytes(), &[0]].concat());
        self.until_ready()
    }

    /// What a query says, in words: rows, tags, SQLSTATEs, and the state behind them.
    pub(crate) fn say(&mut self, text: &str) -> String {
        let mut said: Vec<String> = Vec::new();
        for message in self.query(text) {
            match message.0 {
                'D' => {
                    let value = |value: Option<Vec<u8>>| {
                        value.map_or("null".to_owned(), |value| String::from_utf8_lossy(&value).into_owned())
                    };
                    said.push(message.values().into_iter().map(value).collect::<Vec<_>>().join("|"));
                }
                'C' | 'Z' => said.push(message.text()),
                'E' => said.push(message.field('C').expect("an error has a code")),
                'N' => said.push(format!("notice {}", message.field('C').expect("a notice has a code"))),
                'I' => said.push("empty".to_owned()),
                _ => {}
            }
        }
        said.join("; ")
    }

    pub(crate) fn parse(name: &str, text: &str, types: &[u32]) -> Vec<u8> {
        let mut body = [name.as_bytes(), &[0], text.as_bytes(), &[0]].concat();
        body.extend((types.len() as u16).to_be_bytes());
        types.iter().for_each(|ty| body.extend(ty.to_be_bytes()));
        Self::message('P', &body)
    }

    /// Bind with parameters and results in one format each (0 text, 1 binary).
    pub(crate) fn bind(
        portal: &str,
        name: &str,
        parameters: &[Option<&[u8]>],
        (given, wanted): (i16, i16),
    ) -> Vec<u8> {
        let mut body = [portal.as_bytes(), &[0], name.as_bytes(), &[0]].concat();
        body.extend(1u16.to_be_bytes());
        body.extend(given.to_be_bytes());
        body.extend((parameters.len() as u16).to_be_bytes());
        for parameter in parameters {
            match parameter {
                None => body.extend((-1i32).to_be_bytes()),
                Some(bytes) => {
                    body.extend((bytes.len() as i32).to_be_bytes());
                    body.extend(*bytes);
                }
            }
        }
        body.extend(1u16.to_be_bytes());
        body.extend(wanted.to_be_bytes());
        Self::message('B', &body)
    }

    pub(crate) fn describe(kind: char, name: &str) -> Vec<u8> {
        Self::message('D', &[&[kind as u8], name.as_bytes(), &[0]].concat())
    }

    pub(crate) fn execute(portal: &str, rows: i32) -> Vec<u8> {
        Self::message('E', &[portal.as_bytes(), &[0], &rows.to_be_bytes()].concat())
    }

    pub(crate) fn sync() -> Vec<u8> {
        Self::message('S', &[])
    }
}

/// Asks until the answer is this one: another client is about to do something.
pub(crate) fn until(client: &mut Client, text: &str, wanted: &str) {
    for _ in 0..100_000 {
        if client.say(text) == wanted {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{text} says {} and not {wanted}", client.say(text));
}
