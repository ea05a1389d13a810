//! The door: one thread that accepts clients, hears who they are, and hands them to the threads that serve them.
//!
//! Requests to cancel are answered here, so that they come through while every serving thread is at work. So nothing here takes long:
//! passwords are compared by verifiers, whose rounds of hashing were done when the server began, or when the file was written.
//!
//! A client has [`PATIENCE`] to say who it is; one that says nothing costs a socket and this task. Of those there are as many as the
//! server has places, and as the system's files allow with [`KEPT_FILES`](crate::lobby::KEPT_FILES) left to the database: the one that has waited longest
//! goes when another one comes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use pgwire::api::auth::sasl::scram::{ScramSecret, ScramServerAuth};
use pgwire::messages::startup::{Authentication, NegotiateProtocolVersion};
use thermocline_sql::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::UnboundedSender;

use crate::config::Verifier;
use crate::lobby::Lobby;
use crate::log;
use crate::message;
use crate::shared::{Peer, Shared, add};
use crate::stream::{Detached, Stream};
use crate::wire;

/// How long a client may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest message before a client is let in; PostgreSQL's limit.
const STARTUP_BYTES: usize = 10_000;
/// The version of the protocol, 3.0.
const PROTOCOL: u32 = 3 << 16;
/// What a first message asks for where others have the version of the protocol.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// A client that was let in.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) stream: Detached,
    pub(crate) peer: Arc<Peer>,
    /// Settings that it asks for.
    pub(crate) settings: Vec<(String, String)>,
    /// What it has sent already.
    pub(crate) input: BytesMut,
}

/// Why a client was not let in.
enum Refusal {
    /// It is told.
    Told(Box<Error>),
    /// It is gone, or wanted nothing more.
    Silent,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Told(Box::new(error))
    }
}

impl From<std::io::Error> for Refusal {
    fn from(_: std::io::Error) -> Self {
        Self::Silent
    }
}

/// Hands each guest to the next thread in turn.
#[derive(Clone)]
pub(crate) struct Usher {
    pub(crate) threads: Arc<[UnboundedSender<Guest>]>,
    pub(crate) next: Arc<std::sync::atomic::AtomicUsize>,
}

impl Usher {
    fn seat(&self, guest: Guest) {
        let turn = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // A thread that has ended drops what it is given, and so closes the socket.
        let _ = self.threads[turn % self.threads.len()].send(guest);
    }
}

/// Accepts clients until the server stops.
pub(crate) async fn accept_tcp(listener: TcpListener, shared: Arc<Shared>, usher: Usher, lobby: Lobby) {
    loop {
        tokio::select! {
            () = shared.stop.notified() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    receive(Stream::Tcp(stream), &shared, &usher, &lobby);
                }
                Err(error) => out_of_sockets(&error, &lobby).await,
            },
        }
        if shared.is_stopping() {
            return;
        }
    }
}

/// The same for a Unix socket.
pub(crate) async fn accept_unix(listener: UnixListener, shared: Arc<Shared>, usher: Usher, lobby: Lobby) {
    loop {
        tokio::select! {
            () = shared.stop.notified() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => receive(Stream::Unix(stream), &shared, &usher, &lobby),
                Err(error) => out_of_sockets(&error, &lobby).await,
            },
        }
        if shared.is_stopping() {
            return;
        }
    }
}

/// Too many files are open, most likely: others have to go first.
async fn out_of_sockets(error: &std::io::Error, lobby: &Lobby) {
    if log::REFUSALS.allows() {
        tracing::warn!(%error, "cannot accept a client");
    }
    lobby.send_one_away();
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn receive(stream: Stream, shared: &Arc<Shared>, usher: &Usher, lobby: &Lobby) {
    if !lobby.has_room_for(&stream) {
        add(&shared.counts.refused, 1);
        let mut out = BytesMut::new();
        let hint = "The system allows this process too few open files; see `ulimit -n`.";
        wire::put_error(
            &mut out,
            "FATAL",
            &Error::new("53300", "sorry, too many clients already").hint(hint),
        );
        // What its socket does not take at once it does not get.
        stream.try_write(&out);
        return;
    }
    let (shared, usher) = (shared.clone(), usher.clone());
    lobby.wait(async move {
        let entered = tokio::time::timeout(PATIENCE, enter(&stream, &shared)).await;
        let told = match entered {
            Ok(Ok((peer, settings, input))) => {
                if let Ok(stream) = stream.detach() {
                    usher.seat(Guest { stream, peer, settings, input });
                }
                return;
            }
            Ok(Err(Refusal::Silent)) => return,
            Ok(Err(Refusal::Told(error))) => *error,
            Err(_) => Error::new("08P01", "the client did not say who it is in time"),
        };
        if log::REFUSALS.allows() {
            tracing::info!(code = told.code, message = %told.message, "a client was not let in");
        }
        let mut out = BytesMut::new();
        wire::put_error(&mut out, "FATAL", &told);
        let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&out)).await;
    });
}

type Entered = (Arc<Peer>, Vec<(String, String)>, BytesMut);

/// Hears who the client is; ends with it let in.
async fn enter(stream: &Stream, shared: &Arc<Shared>) -> Result<Entered, Refusal> {
    let mut input = BytesMut::with_capacity(1024);
    let mut out = BytesMut::new();
    let mut offers = 0;
    let startup = loop {
        let length = first_message(stream, &mut input).await?;
        let word = |at: usize| u32::from_be_bytes([input[at], input[at + 1], input[at + 2], input[at + 3]]);
        match word(4) {
            // Each is asked for once.
            SSL_REQUEST | GSS_REQUEST if length == 8 && offers < 2 => {
                offers += 1;
                input.advance(8);
                stream.write_all(b"N").await?;
                continue;
            }
            CANCEL_REQUEST => {
                if length == 16 {
                    shared.cancel(word(8).cast_signed(), word(12).cast_signed());
                }
                return Err(Refusal::Silent);
            }
            version if version >> 16 != 3 => {
                let (major, minor) = (version >> 16, version & 0xffff);
                let message =
                    format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0");
                return Err(Error::new("0A000", message).into());
            }
            version => {
                let mut body = input.split_to(length).freeze();
                body.advance(8);
                let startup = message::startup(body).map_err(|wrong| Refusal::from(Error::from(wrong)))?;
                // Of a later version of the protocol, or its options: ours is offered, which has none.
                let unknown: Vec<String> = startup
                    .iter()
                    .map(|(name, _)| name.clone())
                    .filter(|name| name.starts_with("_pq_."))
                    .collect();
                if version > PROTOCOL || !unknown.is_empty() {
                    let ours = PROTOCOL.cast_signed();
                    wire::put(&mut out, &NegotiateProtocolVersion::new(ours, unknown));
                }
                break startup;
            }
        }
    };
    let settings = introduced(&startup)?;
    if shared.is_stopping() {
        return Err(Error::new("57P03", "the database system is shutting down").into());
    }
    let role = given(&startup, "user").unwrap_or_default();
    authenticate(stream, shared, role, &mut input, &mut out).await?;
    let Some(peer) = shared.admit() else {
        let limit = shared.config.max_connections;
        return Err(Error::new("53300", "sorry, too many clients already")
            .hint(format!("At most {limit} are served at once; see --max-connections."))
            .into());
    };
    wire::put(&mut out, &Authentication::Ok);
    stream.write_all(&out).await?;
    Ok((peer, settings, input))
}

/// Reads a whole first message, which has a length and no kind; its length.
async fn first_message(stream: &Stream, input: &mut BytesMut) -> Result<usize, Refusal> {
    loop {
        if let Some(length) = input.first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            if !(8..=STARTUP_BYTES).contains(&length) {
                return Err(Error::new("08P01", "invalid length of startup packet").into());
            }
            if input.len() >= length {
                return Ok(length);
            }
        }
        if stream.read(input).await? == 0 {
            return Err(Refusal::Silent);
        }
    }
}

/// What a startup message says of this; of two the last.
fn given<'s>(startup: &'s [(String, String)], name: &str) -> Option<&'s str> {
    let found = startup.iter().rev().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

/// Role, database and settings of a startup message.
fn introduced(startup: &[(String, String)]) -> Result<Vec<(String, String)>, Refusal> {
    let mut settings = Vec::new();
    let Some(role) = given(startup, "user") else {
        return Err(Error::new("28000", "no PostgreSQL user name specified in startup packet").into());
    };
    if role != crate::ROLE {
        let message = format!("role \"{role}\" does not exist");
        let hint = format!("The only role is {0}: connect with -U {0}, or user={0}.", crate::ROLE);
        return Err(Error::new("28000", message).hint(hint).into());
    }
    let database = given(startup, "database").unwrap_or(role);
    if database != crate::DATABASE {
        let message = format!("database \"{database}\" does not exist");
        let hint = format!("The only database is {}.", crate::DATABASE);
        return Err(Error::new("3D000", message).hint(hint).into());
    }
    for (name, value) in startup {
        match name.as_str() {
            "user" | "database" => {}
            "replication" if ["false", "off", "no", "0"].contains(&value.as_str()) => {}
            "replication" => return Err(Error::new("0A000", "replication is not supported yet").into()),
            "options" => options(value, &mut settings)?,
            name if name.starts_with("_pq_.") => {}
            name => settings.push((name.to_owned(), value.clone())),
        }
    }
    Ok(settings)
}

/// Words with blanks between; a backslash takes the next sign as it is (`pg_split_opts`).
fn words_of(text: &str) -> Vec<String> {
    let (mut words, mut word, mut signs) = (Vec::new(), None::<String>, text.chars());
    while let Some(sign) = signs.next() {
        match sign {
            sign if sign.is_ascii_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(signs.next()),
            sign => word.get_or_insert_default().push(sign),
        }
    }
    words.extend(word);
    words
}

/// `-c name=value` and `--name=value`, with blanks between.
fn options(text: &str, settings: &mut Vec<(String, String)>) -> Result<(), Refusal> {
    let all = words_of(text);
    let mut words = all.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next().unwrap_or(""),
            Some(joined) => joined,
            None => word.strip_prefix("--").unwrap_or(""),
        };
        let Some((name, value)) = setting.split_once('=') else {
            let message = format!("invalid command-line argument for server process: {word}");
            return Err(Error::new("42601", message).into());
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(())
}

/// Trusts who is on this machine where there are no passwords; asks everybody else for the password by SCRAM-SHA-256.
async fn authenticate(
    stream: &Stream,
    shared: &Shared,
    role: &str,
    input: &mut BytesMut,
    out: &mut BytesMut,
) -> Result<(), Refusal> {
    if shared.config.passwords.is_empty() {
        if stream.is_local() {
            return Ok(());
        }
        return Err(Error::new("28000", "no connections from other machines are taken without passwords")
            .hint("Start the server with --password-file.")
            .into());
    }
    let wrong =
        || Refusal::from(Error::new("28P01", format!("password authentication failed for user \"{role}\"")));
    let verifier = shared.config.passwords.of(role).ok_or_else(wrong)?;
    wire::put(out, &Authentication::SASL(vec!["SCRAM-SHA-256".to_owned()]));
    stream.write_all(out).await?;
    out.clear();
    let (mechanism, data) = message::sasl_initial(password_message(stream, input).await?)
        .map_err(|wrong| Refusal::from(Error::from(wrong)))?;
    if mechanism != "SCRAM-SHA-256" {
        return Err(Error::new("08P01", "client selected an invalid SASL authentication mechanism").into());
    }
    let server = ScramServerAuth::new();
    let first = server.on_client_first_message_with_secret(&data, secret_of(verifier));
    let (reply, waiting) = first.map_err(|_| wrong())?;
    wire::put(out, &Authentication::SASLContinue(Bytes::from(reply)));
    stream.write_all(out).await?;
    out.clear();
    let last = password_message(stream, input).await?;
    let reply = waiting.on_client_final_message(&last).map_err(|_| wrong())?;
    wire::put(out, &Authentication::SASLFinal(Bytes::from(reply)));
    Ok(())
}

fn secret_of(verifier: &Verifier) -> ScramSecret {
    let Verifier { salt, iterations, stored_key, server_key } = verifier.clone();
    ScramSecret::Verifier { salt, iterations, stored_key, server_key }
}

/// Takes bytes for what a client says while it proves that it knows a password. For the fuzz target.
pub(crate) fn answer_sasl(bytes: &[u8]) {
    let verifier =
        Verifier { salt: vec![1; 16], iterations: 4096, stored_key: vec![2; 32], server_key: vec![3; 32] };
    for first in [bytes, b"n,,n=,r=abc"] {
        let server = ScramServerAuth::new();
        if let Ok((_, waiting)) = server.on_client_first_message_with_secret(first, secret_of(&verifier)) {
            let _ = waiting.on_client_final_message(bytes);
        }
    }
}

/// The body of the next message, which has to be one about a password.
async fn password_message(stream: &Stream, input: &mut BytesMut) -> Result<Bytes, Refusal> {
    loop {
        if let Some(&[kind, a, b, c, d]) = input.first_chunk::<5>() {
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            if kind != b'p' {
                return Err(Error::new("08P01", "expected a password message").into());
            }
            if !(4..=STARTUP_BYTES).contains(&length) {
                return Err(Error::new("08P01", "invalid password packet size").into());
            }
            if input.len() > length {
                let mut body = input.split_to(length + 1).freeze();
                body.advance(5);
                return Ok(body);
            }
        }
        if stream.read(input).await? == 0 {
            return Err(Refusal::Silent);
        }
    }
}

/// Opens what the server listens on.
pub(crate) fn listen(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What a client needs to cancel: its number and secret.
pub(crate) fn put_key(out: &mut BytesMut, peer: &Peer) {
    out.put_u8(b'K');
    out.put_i32(12);
    out.put_i32(peer.id);
    out.put_i32(peer.secret);
}
