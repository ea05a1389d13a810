//! A channel: a stream socket whose other side has proved that it has the key, encrypted where that is wanted.
//!
//! ```text
//!   client                                   server
//!   magic, kind ───────────────────────────►             kind: with a key, or without
//!   Noise NNpsk0: psk, e ──────────────────►             each piece behind its length in 16 bits
//!               ◄───────────────────── e, ee
//!   sealed: encrypted from now on? ────────►             only a peer with the key comes so far
//!               ◄────────────────── sealed: 1
//! ```
//!
//! The protocol is Noise (Perrin, 2018) by the crate `snow`: `NNpsk0`, so both sides prove the key, and each connection has keys
//! of its own; a handshake that is replayed ends at the third piece. Without a key only a unix socket of the same user
//! is served. A stranger costs a server a thread, [`STRANGER_BYTES`] and [`STRANGER_TIME`].

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use snow::{Builder, HandshakeState, TransportState};

use crate::key::Key;
use crate::message::{Body, MESSAGE_MAX, Message};
use crate::transport::LinkError;

const MAGIC: [u8; 8] = *b"thermRM1";
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// Bytes that are read of a side that has not proved the key.
pub(crate) const STRANGER_BYTES: usize = 512;
/// Time that a side may take to prove the key.
pub(crate) const STRANGER_TIME: Duration = Duration::from_secs(5);
/// A piece of Noise: 65,535 bytes with its tag of 16.
const PIECE_MAX: usize = 65_535 - 16;
const READ_BYTES: usize = 256 << 10;
/// Waits from here on are left to the socket.
const BLOCKING: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Arc<OwnedFd>,
    noise: Option<Box<TransportState>>,
    /// As it came, encrypted; empty where nothing is.
    raw: Vec<u8>,
    /// Bytes that came, in clear; read up to `at`.
    clear: Vec<u8>,
    at: usize,
    out: Vec<u8>,
    wire: Vec<u8>,
    chunk: Box<[u8]>,
    /// Time for which a read blocks, if that was set.
    patience: Option<Duration>,
}

impl Channel {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket: Arc::new(socket),
            noise: None,
            raw: Vec::new(),
            clear: Vec::new(),
            at: 0,
            out: Vec::new(),
            wire: Vec::new(),
            chunk: vec![0; READ_BYTES].into(),
            patience: None,
        }
    }

    /// The side of the client.
    pub(crate) fn connect(socket: OwnedFd, key: Option<&Key>, encrypted: bool) -> Result<Self, LinkError> {
        let mut channel = Self::new(socket);
        channel.set_patience(Some(STRANGER_TIME))?;
        let mut hello = MAGIC.to_vec();
        hello.push(u8::from(key.is_some()));
        channel.send_all(&hello)?;
        if let Some(key) = key {
            let mut noise = builder(key)?.build_initiator().map_err(|_| LinkError::Unauthenticated)?;
            channel.say(&mut noise)?;
            channel.hear(&mut noise)?;
            let mut noise = noise.into_transport_mode().map_err(|_| LinkError::Unauthenticated)?;
            channel.say_sealed(&mut noise, u8::from(encrypted))?;
            channel.hear_sealed(&mut noise)?;
            channel.noise = encrypted.then(|| Box::new(noise));
        } else {
            let mut welcome = [0; 1];
            channel.recv_exact(&mut welcome)?;
        }
        channel.set_patience(None)?;
        Ok(channel)
    }

    /// The side of the server. `same_user`: the other side is a process of this user on this machine.
    pub(crate) fn accept(socket: OwnedFd, key: Option<&Key>, same_user: bool) -> Result<Self, LinkError> {
        let mut channel = Self::new(socket);
        channel.set_patience(Some(STRANGER_TIME))?;
        let mut hello = [0; MAGIC.len() + 1];
        channel.recv_exact(&mut hello)?;
        let keyed = hello[MAGIC.len()];
        if hello[..MAGIC.len()] != MAGIC || keyed > 1 {
            return Err(LinkError::Malformed);
        }
        match key {
            Some(key) if keyed == 1 => {
                let mut noise = builder(key)?.build_responder().map_err(|_| LinkError::Unauthenticated)?;
                channel.hear(&mut noise)?;
                channel.say(&mut noise)?;
                let mut noise = noise.into_transport_mode().map_err(|_| LinkError::Unauthenticated)?;
                let encrypted = channel.hear_sealed(&mut noise)? != 0;
                channel.say_sealed(&mut noise, 1)?;
                channel.noise = encrypted.then(|| Box::new(noise));
            }
            _ if keyed == 0 && same_user => channel.send_all(&[1])?,
            _ => return Err(LinkError::Unauthenticated),
        }
        channel.set_patience(None)?;
        Ok(channel)
    }

    /// Where messages come.
    pub(crate) fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, patience)?;
        Ok(sockopt::set_socket_timeout(
            &self.socket,
            sockopt::Timeout::Send,
            patience.or(Some(STRANGER_TIME)),
        )?)
    }

    /// Has reads that block end after `wait`.
    fn be_patient(&mut self, wait: Duration) -> io::Result<()> {
        if self.patience != Some(wait) {
            sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(wait))?;
            self.patience = Some(wait);
        }
        Ok(())
    }

    fn say(&mut self, noise: &mut HandshakeState) -> Result<(), LinkError> {
        let mut piece = [0; STRANGER_BYTES];
        let len = noise.write_message(&[], &mut piece).map_err(|_| LinkError::Unauthenticated)?;
        self.say_piece(&piece[..len])
    }

    fn hear(&mut self, noise: &mut HandshakeState) -> Result<(), LinkError> {
        let piece = self.hear_piece()?;
        noise.read_message(&piece, &mut [0; STRANGER_BYTES]).map_err(|_| LinkError::Unauthenticated)?;
        Ok(())
    }

    fn say_sealed(&mut self, noise: &mut TransportState, byte: u8) -> Result<(), LinkError> {
        let mut piece = [0; 64];
        let len = noise.write_message(&[byte], &mut piece).map_err(|_| LinkError::Unauthenticated)?;
        self.say_piece(&piece[..len])
    }

    fn hear_sealed(&mut self, noise: &mut TransportState) -> Result<u8, LinkError> {
        let piece = self.hear_piece()?;
        let mut byte = [0; STRANGER_BYTES];
        match noise.read_message(&piece, &mut byte) {
            Ok(1) => Ok(byte[0]),
            _ => Err(LinkError::Unauthenticated),
        }
    }

    fn say_piece(&mut self, piece: &[u8]) -> Result<(), LinkError> {
        let mut whole = (piece.len() as u16).to_le_bytes().to_vec();
        whole.extend_from_slice(piece);
        Ok(self.send_all(&whole)?)
    }

    fn hear_piece(&mut self) -> Result<Vec<u8>, LinkError> {
        let mut len = [0; 2];
        self.recv_exact(&mut len)?;
        let len = u16::from_le_bytes(len) as usize;
        if len > STRANGER_BYTES {
            return Err(LinkError::Malformed);
        }
        let mut piece = vec![0; len];
        self.recv_exact(&mut piece)?;
        Ok(piece)
    }

    /// During the handshake; a side that closes has refused.
    fn recv_exact(&mut self, into: &mut [u8]) -> Result<(), LinkError> {
        let mut done = 0;
        while done < into.len() {
            match recv(&self.socket, &mut into[done..], RecvFlags::empty()) {
                Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => return Err(LinkError::Unauthenticated),
                Ok((_, count)) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(LinkError::Io(error.into())),
            }
        }
        Ok(())
    }

    fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes a message; it goes with the next [`Channel::flush`].
    pub(crate) fn put<T: Body>(&mut self, message: &Message<T>) {
        message.put(&mut self.out);
    }

    /// Bytes that wait for a flush.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.out.len()
    }

    /// Sends what was taken.
    pub(crate) fn flush(&mut self) -> Result<(), LinkError> {
        if self.out.is_empty() {
            return Ok(());
        }
        match &mut self.noise {
            None => self.send_all(&self.out)?,
            Some(noise) => {
                self.wire.clear();
                for piece in self.out.chunks(PIECE_MAX) {
                    let start = self.wire.len();
                    self.wire.resize(start + 2 + piece.len() + 16, 0);
                    let len = noise
                        .write_message(piece, &mut self.wire[start + 2..])
                        .map_err(|_| LinkError::Malformed)?;
                    self.wire[start..start + 2].copy_from_slice(&(len as u16).to_le_bytes());
                }
                self.send_all(&self.wire)?;
            }
        }
        self.out.clear();
        Ok(())
    }

    /// The next message. `None`: none came within `wait`.
    pub(crate) fn get<T: Body>(&mut self, wait: Duration) -> Result<Option<Message<T>>, LinkError> {
        if let Some(message) = self.parse()? {
            return Ok(Some(message));
        }
        if !self.fill(wait)? {
            return Ok(None);
        }
        // The rest of a message that has begun is on its way.
        loop {
            if let Some(message) = self.parse()? {
                return Ok(Some(message));
            }
            if !self.fill(wait.min(Duration::from_millis(1)))? {
                return Ok(None);
            }
        }
    }

    /// The next message of those that have come already.
    pub(crate) fn parse<T: Body>(&mut self) -> Result<Option<Message<T>>, LinkError> {
        let found = Message::get(&self.clear[self.at..], MESSAGE_MAX).map_err(|_| LinkError::Malformed)?;
        let Some((message, len)) = found else { return Ok(None) };
        self.at += len;
        if self.at == self.clear.len() {
            self.clear.clear();
            self.at = 0;
        }
        Ok(Some(message))
    }

    /// Takes what has come. `false`: nothing has.
    fn fill(&mut self, wait: Duration) -> Result<bool, LinkError> {
        let mut waited = wait.is_zero();
        // The system counts time-outs of sockets by milliseconds; a long wait is one call with them, a short one needs two.
        let blocks = wait >= BLOCKING;
        if blocks {
            self.be_patient(wait)?;
            waited = true;
        }
        let flags = if blocks { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let count = loop {
            match recv(&self.socket, &mut self.chunk[..], flags) {
                Ok((_, 0)) => return Err(LinkError::Io(io::ErrorKind::ConnectionAborted.into())),
                Ok((_, count)) => break count,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) if waited => return Ok(false),
                Err(rustix::io::Errno::AGAIN) => {
                    waited = true;
                    let limit =
                        Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
                    // Interrupted or over: what has come decides.
                    let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&limit));
                }
                Err(error) => return Err(LinkError::Io(error.into())),
            }
        };
        if self.at > 0 {
            self.clear.drain(..self.at);
            self.at = 0;
        }
        let Some(noise) = &mut self.noise else {
            self.clear.extend_from_slice(&self.chunk[..count]);
            return Ok(true);
        };
        self.raw.extend_from_slice(&self.chunk[..count]);
        let mut used = 0;
        while let Some((head, rest)) = self.raw[used..].split_first_chunk::<2>() {
            let len = u16::from_le_bytes(*head) as usize;
            let Some(piece) = rest.get(..len) else { break };
            let start = self.clear.len();
            self.clear.resize(start + len, 0);
            let got =
                noise.read_message(piece, &mut self.clear[start..]).map_err(|_| LinkError::Malformed)?;
            self.clear.truncate(start + got);
            used += 2 + len;
        }
        self.raw.drain(..used);
        Ok(true)
    }
}

fn builder(key: &Key) -> Result<Builder<'_>, LinkError> {
    let pattern = PATTERN.parse().map_err(|_| LinkError::Malformed)?;
    Builder::new(pattern).psk(0, &key.0).map_err(|_| LinkError::Unauthenticated)
}
