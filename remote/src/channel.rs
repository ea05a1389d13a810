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
//! is served. A stranger costs a server a thread, [`STRANGER_BYTES`] and [`STRANGER_TIME`], however slowly its bytes come.
//!
//! A client sends without waiting: what the socket does not take stays here until the next [`Channel::flush`]. A server waits, in the
//! thread of the connection, for [`STRANGER_TIME`] at the most.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use snow::{Builder, HandshakeState, TransportState};
use thermocline_base::clock::{Clock, SystemClock};

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
    /// As it goes out, of which `sent` bytes have gone.
    wire: Vec<u8>,
    sent: usize,
    /// A flush leaves here what the socket does not take at once.
    never_waits: bool,
    chunk: Box<[u8]>,
    /// Time for which a read blocks, if that was set.
    patience: Option<Duration>,
    /// When the handshake has to be over.
    deadline_ns: u64,
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
            sent: 0,
            never_waits: false,
            chunk: vec![0; READ_BYTES].into(),
            patience: None,
            deadline_ns: SystemClock.now_ns() + STRANGER_TIME.as_nanos() as u64,
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
        channel.never_waits = true;
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

    /// During the handshake, until its deadline; a side that closes has refused.
    fn recv_exact(&mut self, into: &mut [u8]) -> Result<(), LinkError> {
        let mut done = 0;
        while done < into.len() {
            let left = Duration::from_nanos(self.deadline_ns.saturating_sub(SystemClock.now_ns()));
            if left.is_zero() {
                return Err(LinkError::Io(io::ErrorKind::TimedOut.into()));
            }
            // The system takes zero for no limit.
            let left = left.max(Duration::from_millis(1));
            sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(left))
                .map_err(|error| LinkError::Io(error.into()))?;
            match recv(&self.socket, &mut into[done..], RecvFlags::empty()) {
                Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => return Err(LinkError::Unauthenticated),
                Ok((_, count)) => done += count,
                // Whether the time is over is seen above.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
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

    /// Are there bytes that the socket did not take yet?
    pub(crate) fn is_sending(&self) -> bool {
        self.sent < self.wire.len()
    }

    /// Sends what was taken; of a client, as far as the socket takes it at once.
    pub(crate) fn flush(&mut self) -> Result<(), LinkError> {
        if !self.out.is_empty() {
            self.encode()?;
        }
        let flags = match self.never_waits {
            true => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            false => SendFlags::NOSIGNAL,
        };
        while self.is_sending() {
            match send(&self.socket, &self.wire[self.sent..], flags) {
                Ok(count) => self.sent += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) if self.never_waits => return Ok(()),
                Err(error) => return Err(LinkError::Io(error.into())),
            }
        }
        self.wire.clear();
        self.sent = 0;
        Ok(())
    }

    /// Appends what was taken to what goes out.
    fn encode(&mut self) -> Result<(), LinkError> {
        self.wire.drain(..self.sent);
        self.sent = 0;
        match &mut self.noise {
            None => self.wire.append(&mut self.out),
            Some(noise) => {
                for piece in self.out.chunks(PIECE_MAX) {
                    let start = self.wire.len();
                    self.wire.resize(start + 2 + piece.len() + 16, 0);
                    let len = noise
                        .write_message(piece, &mut self.wire[start + 2..])
                        .map_err(|_| LinkError::Malformed)?;
                    self.wire[start..start + 2].copy_from_slice(&(len as u16).to_le_bytes());
                }
                self.out.clear();
            }
        }
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::message::Ask;

    /// Both ends of a connection without a key.
    fn pair() -> (Channel, Channel) {
        let (near, far) = UnixStream::pair().expect("the system gives a pair of sockets");
        let server =
            std::thread::spawn(move || Channel::accept(far.into(), None, true).expect("of this user"));
        let client = Channel::connect(near.into(), None, false).expect("a server");
        (client, server.join().expect("no panic"))
    }

    /// A server that reads nothing holds up no client; what it was sent is there, whole, when it reads.
    #[test]
    fn a_client_sends_without_waiting() {
        let (mut client, mut server) = pair();
        let write = |number: u64| Message {
            lease: 1,
            number,
            body: Ask::Write { page: number, bytes: vec![number as u8; 64 << 10] },
        };
        for number in 0..200 {
            client.put(&write(number));
            client.flush().expect("it leaves what it cannot send");
        }
        assert!(client.is_sending(), "12 MiB are more than any socket takes");
        for number in 0..200 {
            let message = loop {
                client.flush().expect("sent on");
                let next = server.get::<Ask>(Duration::from_millis(1)).expect("the peer is there");
                if let Some(message) = next {
                    break message;
                }
            };
            assert!(message.body == write(number).body && message.number == number, "{number}");
        }
        assert!(!client.is_sending());
    }

    /// A stranger that says a byte now and then is heard for no longer than one that says nothing.
    #[test]
    fn a_handshake_has_one_deadline() {
        let (near, far) = UnixStream::pair().expect("the system gives a pair of sockets");
        let mut channel = Channel::new(far.into());
        channel.deadline_ns = SystemClock.now_ns() + 40_000_000;
        let stranger = std::thread::spawn(move || {
            use std::io::Write;
            while (&near).write_all(b"t").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let error = channel.recv_exact(&mut [0; 1 << 20]).expect_err("it is over");
        assert!(matches!(&error, LinkError::Io(io) if io.kind() == std::io::ErrorKind::TimedOut), "{error}");
        drop(channel);
        stranger.join().expect("no panic");
    }
}
