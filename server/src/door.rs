//! The door: one thread that accepts clients, hears who they are, and hands them to the threads that serve them.
//!
//! Requests to cancel are answered here, so that they come through while every serving thread is at work. A client has
//! [`PATIENCE`] to say who it is; one that says nothing costs a socket and this task.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use pgwire::api::auth::sasl::scram::{ScramSecret, ScramServerAuth, gen_salted_password};
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::startup::{
    Authentication, GssEncRequest, NegotiateProtocolVersion, PasswordMessageFamily, SecretKey, SslRequest,
    Startup,
};
use pgwire::messages::{DecodeContext, Message, PgWireFrontendMessage, ProtocolVersion};
use thermocline_sql::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::UnboundedSender;

use crate::shared::{Peer, Shared};
use crate::stream::{Detached, Stream};
use crate::wire;

/// How long a client may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest message before a client is let in; PostgreSQL's limit.
const STARTUP_BYTES: usize = 10_000;
/// Rounds of the key derivation of SCRAM (RFC 7677 §4).
const ITERATIONS: usize = 4096;

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
pub(crate) async fn accept_tcp(listener: TcpListener, shared: Arc<Shared>, usher: Usher) {
    loop {
        tokio::select! {
            () = shared.stop.notified() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    receive(Stream::Tcp(stream), &shared, &usher);
                }
                Err(error) => out_of_sockets(&error).await,
            },
        }
        if shared.is_stopping() {
            return;
        }
    }
}

/// The same for a Unix socket.
pub(crate) async fn accept_unix(listener: UnixListener, shared: Arc<Shared>, usher: Usher) {
    loop {
        tokio::select! {
            () = shared.stop.notified() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => receive(Stream::Unix(stream), &shared, &usher),
                Err(error) => out_of_sockets(&error).await,
            },
        }
        if shared.is_stopping() {
            return;
        }
    }
}

/// Too many files are open, most likely: others have to go first.
async fn out_of_sockets(error: &std::io::Error) {
    tracing::warn!(%error, "cannot accept a client");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn receive(stream: Stream, shared: &Arc<Shared>, usher: &Usher) {
    let (shared, usher) = (shared.clone(), usher.clone());
    tokio::task::spawn_local(async move {
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
        tracing::info!(code = told.code, message = %told.message, "a client was not let in");
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
    // Version 3.0: secrets of 32 bits.
    let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
    context.awaiting_frontend_ssl = false;
    let startup = loop {
        first_message(stream, &mut input).await?;
        if SslRequest::is_ssl_request_packet(&input) || GssEncRequest::is_gss_enc_request_packet(&input) {
            let _ = input.split_to(8);
            stream.write_all(b"N").await?;
            continue;
        }
        if CancelRequest::is_cancel_request_packet(&input) {
            let request = CancelRequest::decode(&mut input, &context).ok().flatten();
            if let Some(CancelRequest { pid, secret_key: SecretKey::I32(secret), .. }) = request {
                shared.cancel(pid, secret);
            }
            return Err(Refusal::Silent);
        }
        let (major, minor) =
            (u16::from_be_bytes([input[4], input[5]]), u16::from_be_bytes([input[6], input[7]]));
        if major != 3 {
            let message =
                format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0");
            return Err(Error::new("0A000", message).into());
        }
        // A later version of the protocol than ours: ours is offered.
        if minor > 0 {
            wire::put(&mut out, &NegotiateProtocolVersion::new(0, Vec::new()));
            input[6..8].copy_from_slice(&[0, 0]);
        }
        match Startup::decode(&mut input, &context) {
            Ok(Some(startup)) => break startup,
            Ok(None) | Err(_) => {
                return Err(Error::new("08P01", "invalid startup packet layout").into());
            }
        }
    };
    let settings = introduced(&startup)?;
    if shared.is_stopping() {
        return Err(Error::new("57P03", "the database system is shutting down").into());
    }
    let role = startup.parameters.get("user").map_or("", String::as_str);
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

/// Reads a whole first message, which has a length and no kind.
async fn first_message(stream: &Stream, input: &mut BytesMut) -> Result<(), Refusal> {
    loop {
        if let Some(length) = input.first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            if !(8..=STARTUP_BYTES).contains(&length) {
                return Err(Error::new("08P01", "invalid length of startup packet").into());
            }
            if input.len() >= length {
                return Ok(());
            }
        }
        if stream.read(input).await? == 0 {
            return Err(Refusal::Silent);
        }
    }
}

/// Role, database and settings of a startup message.
fn introduced(startup: &Startup) -> Result<Vec<(String, String)>, Refusal> {
    let mut settings = Vec::new();
    let given =
        |name: &str| startup.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let Some(role) = given("user") else {
        return Err(Error::new("28000", "no PostgreSQL user name specified in startup packet").into());
    };
    if role != crate::ROLE {
        let message = format!("role \"{role}\" does not exist");
        let hint = format!("The only role is {0}: connect with -U {0}, or user={0}.", crate::ROLE);
        return Err(Error::new("28000", message).hint(hint).into());
    }
    let database = given("database").unwrap_or(role);
    if database != crate::DATABASE {
        let message = format!("database \"{database}\" does not exist");
        let hint = format!("The only database is {}.", crate::DATABASE);
        return Err(Error::new("3D000", message).hint(hint).into());
    }
    for (name, value) in &startup.parameters {
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

/// `-c name=value` and `--name=value`, with blanks between.
fn options(text: &str, settings: &mut Vec<(String, String)>) -> Result<(), Refusal> {
    let mut words = text.split_ascii_whitespace();
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
    let password = shared.config.passwords.of(role).ok_or_else(wrong)?;
    wire::put(out, &Authentication::SASL(vec!["SCRAM-SHA-256".to_owned()]));
    stream.write_all(out).await?;
    out.clear();
    let first = password_message(stream, input).await?.into_sasl_initial_response().map_err(|_| wrong())?;
    if first.auth_method != "SCRAM-SHA-256" {
        return Err(Error::new("08P01", "client selected an invalid SASL authentication mechanism").into());
    }
    let salt = thermocline_base::rng::fresh_id();
    let salted = gen_salted_password(password, &salt, ITERATIONS);
    let secret = ScramSecret::SaltedPassword { salt: salt.to_vec(), salted_password: salted };
    let mut server = ScramServerAuth::new();
    server.set_iterations(ITERATIONS);
    let data = first.data.unwrap_or_default();
    let (reply, waiting) = server.on_client_first_message_with_secret(&data, secret).map_err(|_| wrong())?;
    wire::put(out, &Authentication::SASLContinue(Bytes::from(reply)));
    stream.write_all(out).await?;
    out.clear();
    let last = password_message(stream, input).await?.into_sasl_response().map_err(|_| wrong())?;
    let reply = waiting.on_client_final_message(&last.data).map_err(|_| wrong())?;
    wire::put(out, &Authentication::SASLFinal(Bytes::from(reply)));
    Ok(())
}

async fn password_message(stream: &Stream, input: &mut BytesMut) -> Result<PasswordMessageFamily, Refusal> {
    let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
    context.awaiting_frontend_ssl = false;
    context.awaiting_frontend_startup = false;
    loop {
        if let Some(&[_, a, b, c, d]) = input.first_chunk::<5>()
            && !(4..=STARTUP_BYTES).contains(&(u32::from_be_bytes([a, b, c, d]) as usize))
        {
            return Err(Error::new("08P01", "invalid password packet size").into());
        }
        match PgWireFrontendMessage::decode(input, &context) {
            Ok(Some(PgWireFrontendMessage::PasswordMessageFamily(message))) => return Ok(message),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Err(Error::new("08P01", "expected a password message").into()),
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
