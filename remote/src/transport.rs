//! Transports: how requests come to a server, and answers back.
//!
//! | transport | what it is |
//! |---|---|
//! | [`crate::tcp`] | a connection over TCP or a unix socket, authenticated, encrypted where it leaves the machine |
//! | [`crate::profile`] | over any other: answers as late as a network of that kind would bring them |
//! | `sim` (tests) | in the process: delay, loss, order and duplicates by seed |
//!
//! A transport may lose, delay, repeat and reorder; its user checks what it brings. After an error it is of no
//! further use.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Ask, Message, Refusal, Told};

/// Why a connection is of no use, or could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum LinkError {
    /// The system's.
    Io(std::io::Error),
    /// The other side is no server of ours, or has another key.
    Unauthenticated,
    /// The bytes that came make no sense.
    Malformed,
    /// The server refuses.
    Refused(Refusal),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Unauthenticated => f.write_str(
                "the other side does not prove that it has the same key; give both sides the same --key-file, and look whether it is a memory server",
            ),
            Self::Malformed => crate::message::Malformed.fmt(f),
            Self::Refused(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for LinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<std::io::Error> for LinkError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connection to a server.
pub trait Transport: Send + fmt::Debug {
    /// Takes a request; it may wait for [`Transport::flush`].
    ///
    /// # Errors
    /// When the connection is broken.
    fn send(&mut self, request: Message<Ask>) -> Result<(), LinkError>;

    /// Sends what was taken, as far as that needs no wait.
    ///
    /// # Errors
    /// When the connection is broken.
    fn flush(&mut self) -> Result<(), LinkError>;

    /// Is there something left that a flush could not send without waiting?
    fn is_sending(&self) -> bool {
        false
    }

    /// The next answer. `None`: none came within `wait`.
    ///
    /// # Errors
    /// When the connection is broken.
    fn receive(&mut self, wait: Duration) -> Result<Option<Message<Told>>, LinkError>;

    /// Where answers come, for an owner that sleeps there; `None`: it has to be asked.
    fn socket(&self) -> Option<Arc<OwnedFd>> {
        None
    }

    /// When an answer can be taken that is here already, if there is such a one.
    fn due_ns(&self) -> Option<u64> {
        None
    }

    /// Are pages read and written without the server? Then their answers do not prove that it has heard of the lease.
    fn is_one_sided(&self) -> bool {
        false
    }
}

/// Makes connections to one server.
pub trait Connect: Send + fmt::Debug {
    /// Makes one, authenticated.
    ///
    /// # Errors
    /// When the server cannot be reached or does not prove itself.
    fn connect(&mut self) -> Result<Box<dyn Transport>, LinkError>;

    /// The server's address, for people.
    fn address(&self) -> String;
}
