//! The transport `tcp`: requests and answers in batches over a stream, by TCP or a unix socket.
//!
//! TCP is encrypted, over loopback, too (what listens there may pass it on), unless that is declined; it is authenticated everywhere
//! but on a unix socket without a key (module `channel`). What is sent together goes in one call.

use std::fmt;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::channel::Channel;
use crate::key::Key;
use crate::message::{Ask, Message, Told};
use crate::transport::{Connect, LinkError, Transport};

/// Bytes that are held back at the most until they are sent.
const BATCH_BYTES: usize = 512 << 10;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// `HOST:PORT`.
    Tcp(String),
    /// The path of a unix socket: it begins with `/` or `./`.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') || text.starts_with("./") {
            return Ok(Self::Unix(text.into()));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(text.to_owned()))
            }
            _ => Err(format!("{text:?} is neither HOST:PORT nor the path of a socket (/…)")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Connects to one server.
#[derive(Debug)]
pub struct TcpConnect {
    address: Address,
    key: Option<Key>,
    plain: bool,
    timeout: Duration,
}

impl TcpConnect {
    /// To `address`; `plain`: authenticated, but never encrypted.
    #[must_use]
    pub fn new(address: Address, key: Option<Key>, plain: bool, timeout: Duration) -> Self {
        Self { address, key, plain, timeout }
    }

    fn channel(&self) -> Result<Channel, LinkError> {
        match &self.address {
            Address::Unix(path) => {
                Channel::connect(UnixStream::connect(path)?.into(), self.key.as_ref(), false)
            }
            Address::Tcp(name) => {
                let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
                for address in name.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, self.timeout) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Channel::connect(stream.into(), self.key.as_ref(), !self.plain);
                        }
                        Err(error) => last = error,
                    }
                }
                Err(LinkError::Io(last))
            }
        }
    }

    /// Asks the server what it has and does.
    ///
    /// # Errors
    /// When it cannot be reached, or does not answer.
    pub fn status(&self) -> Result<String, LinkError> {
        let mut channel = self.channel()?;
        channel.put(&Message { lease: 0, number: 1, body: Ask::Status });
        channel.flush()?;
        match channel.get(self.timeout)? {
            Some(Message { body: Told::Status(text), .. }) => Ok(text),
            Some(Message { body: Told::Refused(why), .. }) => Err(LinkError::Refused(why)),
            Some(_) => Err(LinkError::Malformed),
            None => Err(LinkError::Io(std::io::ErrorKind::TimedOut.into())),
        }
    }
}

impl Connect for TcpConnect {
    fn connect(&mut self) -> Result<Box<dyn Transport>, LinkError> {
        Ok(Box::new(Tcp(self.channel()?)))
    }

    fn address(&self) -> String {
        self.address.to_string()
    }
}

#[derive(Debug)]
struct Tcp(Channel);

impl Transport for Tcp {
    fn send(&mut self, request: Message<Ask>) -> Result<(), LinkError> {
        self.0.put(&request);
        if self.0.waiting_bytes() > BATCH_BYTES { self.0.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        self.0.flush()
    }

    fn is_sending(&self) -> bool {
        self.0.is_sending()
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Message<Told>>, LinkError> {
        self.0.get(wait)
    }

    fn socket(&self) -> Option<Arc<OwnedFd>> {
        Some(self.0.socket())
    }
}
