//! A client that was let in: its messages, one after the other, on one thread.
//!
//! ```text
//! read ─► messages ─► session (crate sql) ─► send buffer ─► write, when no whole message is left to read
//! ```
//!
//! Rules:
//!
//! - What a client sent in one piece is answered in one piece: the send buffer is written when there is nothing more to do, or
//!   [`FLUSH_BYTES`] have gathered.
//! - An error in the extended protocol skips what follows up to the next Sync (PostgreSQL's documentation, §55.2.3).
//! - Statements between two Syncs are one transaction, unless Sync follows at once: then the statement is its own.
//! - A message that is none, or too long, ends this connection and nothing else.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use pgwire::messages::startup::ParameterStatus;
use thermocline_sql::{Cause, Column, Copying, Datum, Error, Prepared, Rows, Session};

use crate::door::Guest;
use crate::extended::{Portal, Statement};
use crate::log;
use crate::message::{self, Message, Wrong};
use crate::shared::{Peer, Shared, add};
use crate::stream::Stream;
use crate::wire::{self, Formats, Scratch};

/// Bytes of answers that are written before all messages are done.
const FLUSH_BYTES: usize = 64 << 10;
/// Buffers longer than this are given back when they are empty.
const KEPT_BYTES: usize = 64 << 10;
/// Settings whose values clients are told, at the beginning and after a change.
const REPORTED: &[(&str, &str)] = &[
    ("application_name", "application_name"),
    ("client_encoding", "client_encoding"),
    ("datestyle", "DateStyle"),
    ("default_transaction_read_only", "default_transaction_read_only"),
    ("in_hot_standby", "in_hot_standby"),
    ("integer_datetimes", "integer_datetimes"),
    ("intervalstyle", "IntervalStyle"),
    ("is_superuser", "is_superuser"),
    ("server_encoding", "server_encoding"),
    ("server_version", "server_version"),
    ("session_authorization", "session_authorization"),
    ("standard_conforming_strings", "standard_conforming_strings"),
    ("timezone", "TimeZone"),
];

/// Why a connection ends.
pub(crate) enum End {
    /// The client said so, or is gone.
    Gone,
    /// The client is told why.
    Fatal(Box<Error>),
}

impl From<std::io::Error> for End {
    fn from(_: std::io::Error) -> Self {
        Self::Gone
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Fatal(Box::new(error))
    }
}

pub(crate) struct Connection {
    stream: Stream,
    pub(crate) peer: Arc<Peer>,
    shared: Arc<Shared>,
    pub(crate) session: Session,
    pub(crate) input: BytesMut,
    pub(crate) out: BytesMut,
    scratch: Scratch,
    pub(crate) statements: HashMap<String, Rc<Statement>>,
    pub(crate) portals: HashMap<String, Portal>,
    /// An error was sent; messages are passed over up to Sync.
    pub(crate) skipping: bool,
    reported: (u64, Vec<String>),
}

/// Rows into the send buffer.
struct Sink<'s> {
    out: &'s mut BytesMut,
    columns: &'s [Column],
    formats: &'s Formats,
    scratch: &'s mut Scratch,
    start: usize,
}

impl Rows for Sink<'_> {
    fn row(&mut self, row: &[Datum]) {
        wire::put_row(self.out, self.columns, self.formats, row, self.scratch);
    }

    fn restart(&mut self) {
        self.out.truncate(self.start);
    }
}

/// Serves a client until it ends.
pub(crate) async fn serve(guest: Guest, shared: Arc<Shared>) {
    let Ok(stream) = Stream::attach(guest.stream) else { return };
    let session = Session::new(&shared.db)
        .with_interrupt(guest.peer.interrupt.clone())
        .with_common(&shared.common, guest.peer.id)
        .with_client(client_of(&guest.peer, stream.peer_address()));
    let mut connection = Connection {
        stream,
        peer: guest.peer,
        shared,
        session,
        input: guest.input,
        out: BytesMut::new(),
        scratch: Scratch::default(),
        statements: HashMap::new(),
        portals: HashMap::new(),
        skipping: false,
        reported: (0, Vec::new()),
    };
    let end = match caught(connection.run(&guest.settings)).await {
        Ok(Err(end)) => end,
        Err(Panicked) => {
            add(&connection.shared.counts.panics, 1);
            // A message may have been cut off.
            connection.out.clear();
            let message = "the server has met a case that it was not made for; this session has ended";
            Error::new("XX000", message)
                .hint("Its transaction was rolled back. Please report the statement.")
                .into()
        }
    };
    if let End::Fatal(error) = end {
        add(&connection.shared.counts.errors, 1);
        if log::ENDS.allows() {
            let client = connection.peer.id;
            tracing::info!(client, code = error.code, message = %error.message, "a connection ends");
        }
        wire::put_error(&mut connection.out, "FATAL", &error);
        let last = connection.stream.write_all(&connection.out);
        let _ = tokio::time::timeout(Duration::from_secs(1), last).await;
    }
}

/// The work has panicked; the hook of panics has told where.
struct Panicked;

/// Does work whose panic ends this connection and nothing else. What it has left is to be dropped.
async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        let poll = std::panic::AssertUnwindSafe(|| work.as_mut().poll(context));
        std::panic::catch_unwind(poll).map_or(Poll::Ready(Err(Panicked)), |polled| polled.map(Ok))
    })
    .await
}

impl Connection {
    async fn run(&mut self, settings: &[(String, String)]) -> Result<std::convert::Infallible, End> {
        for (name, value) in settings {
            self.session.set(name, value)?;
        }
        self.report();
        crate::door::put_key(&mut self.out, &self.peer);
        wire::put_ready(&mut self.out, 'I');
        loop {
            while let Some(message) = self.message()? {
                self.answer(message).await?;
                if self.out.len() >= FLUSH_BYTES {
                    self.flush().await?;
                }
            }
            self.flush().await?;
            self.read().await?;
        }
    }

    /// Reads more, unless the server ends meanwhile.
    pub(crate) async fn read(&mut self) -> Result<(), End> {
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
            self.input = BytesMut::new();
        }
        loop {
            if self.peer.interrupt.raised() == Some(Cause::Shutdown) {
                return Err(Cause::Shutdown.error().into());
            }
            self.input.reserve(1024);
            tokio::select! {
                read = self.stream.read(&mut self.input) => {
                    let count = read?;
                    add(&self.shared.counts.bytes_in, count as u64);
                    return if count == 0 { Err(End::Gone) } else { Ok(()) };
                }
                () = self.peer.wake.notified() => {}
            }
        }
    }

    pub(crate) async fn flush(&mut self) -> Result<(), End> {
        if self.out.is_empty() {
            return Ok(());
        }
        add(&self.shared.counts.bytes_out, self.out.len() as u64);
        tokio::select! {
            written = self.stream.write_all(&self.out) => written?,
            () = ended(&self.peer) => return Err(End::Gone),
        }
        if self.out.capacity() > 4 * KEPT_BYTES {
            self.out = BytesMut::new();
        } else {
            self.out.clear();
        }
        Ok(())
    }

    /// The next whole message, if it is here.
    pub(crate) fn message(&mut self) -> Result<Option<Message>, End> {
        let Some(&[kind, a, b, c, d]) = self.input.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let limit = self.shared.config.max_message_bytes;
        if length < 4 {
            return Err(Error::new("08P01", "invalid message length").into());
        }
        if length > limit {
            let message = format!("a message of {length} bytes is longer than the {limit} that are taken");
            return Err(Error::new("54000", message).into());
        }
        if self.input.len() < length + 1 {
            self.input.reserve((length + 1 - self.input.len()).min(KEPT_BYTES));
            return Ok(None);
        }
        let mut body = self.input.split_to(length + 1).freeze();
        body.advance(5);
        match message::decode(kind, body) {
            Ok(message) => Ok(Some(message)),
            Err(Wrong::Text(error)) => Ok(Some(Message::NoText(kind, error))),
            Err(Wrong::Malformed(error)) => Err(error.into()),
        }
    }

    async fn answer(&mut self, message: Message) -> Result<(), End> {
        if self.skipping && !matches!(message, Message::Sync | Message::Terminate) {
            return Ok(());
        }
        let done = match message {
            Message::Query(text) => {
                self.query(&text).await?;
                return Ok(());
            }
            Message::NoText(b'Q', error) => {
                self.refuse(&error);
                self.ready().await;
                return Ok(());
            }
            Message::NoText(_, error) => Err(error),
            Message::Parse { name, text, types } => self.parse(name, &text, &types),
            Message::Bind(bind) => self.bind(bind),
            Message::Describe(target) => self.describe(&target),
            Message::Execute { portal, max_rows } => self.execute(&portal, max_rows).await?,
            Message::Close(target) => {
                self.close(&target);
                Ok(())
            }
            Message::Sync => {
                self.sync().await;
                Ok(())
            }
            Message::Flush => return self.flush().await,
            Message::Terminate => return Err(End::Gone),
            // What a client sends of a COPY that has failed.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => Ok(()),
            Message::Unexpected(kind) => {
                let message = format!("invalid frontend message type {kind}");
                return Err(Error::new("08P01", message).into());
            }
        };
        if let Err(error) = done {
            self.refuse(&error);
            self.skipping = true;
        }
        Ok(())
    }

    /// Tells the client of an error.
    pub(crate) fn refuse(&mut self, error: &Error) {
        add(&self.shared.counts.errors, 1);
        self.session.abandon();
        wire::put_error(&mut self.out, "ERROR", error);
    }

    async fn sync(&mut self) {
        self.skipping = false;
        self.ready().await;
    }

    /// Ends the implicit transaction and says what state the session is in.
    async fn ready(&mut self) {
        if let Err(error) = self.session.end_implicit().await {
            self.refuse(&error);
        }
        if self.session.status() == 'I' {
            self.portals.clear();
        }
        self.report();
        wire::put_ready(&mut self.out, self.session.status());
    }

    /// All statements of a text, one transaction round those that open none themselves.
    async fn query(&mut self, text: &str) -> Result<(), End> {
        match self.session.parse(text) {
            Err(error) => self.refuse(&error),
            Ok(statements) if statements.is_empty() => wire::put_bare(&mut self.out, b'I'),
            Ok(statements) => {
                let several = statements.len() > 1;
                for mut statement in statements {
                    if let Err(error) = self.simple(&mut statement, several).await? {
                        self.refuse(&error);
                        break;
                    }
                    if self.out.len() >= FLUSH_BYTES {
                        self.flush().await?;
                    }
                }
            }
        }
        self.ready().await;
        Ok(())
    }

    async fn simple(&mut self, statement: &mut Prepared, several: bool) -> Result<Result<(), Error>, End> {
        let opened = if several && !statement.is_boundary() { self.session.begin_implicit() } else { Ok(()) };
        if let Err(error) = opened.and_then(|()| self.session.describe(statement, &[])) {
            return Ok(Err(error));
        }
        let start = self.out.len();
        let columns: Rc<[Column]> = statement.columns().into();
        if statement.returns_rows() {
            wire::put_columns(&mut self.out, &columns, &Formats::TEXT);
        }
        match self.run_statement(statement, &columns, &Formats::TEXT, Vec::new()).await? {
            Ok(tag) => {
                wire::put_complete(&mut self.out, &tag);
                Ok(Ok(()))
            }
            Err(error) => {
                self.out.truncate(start);
                Ok(Err(error))
            }
        }
    }

    /// Runs a statement with its rows into the send buffer; returns its tag.
    pub(crate) async fn run_statement(
        &mut self,
        statement: &mut Prepared,
        columns: &[Column],
        formats: &Formats,
        parameters: Vec<Datum>,
    ) -> Result<Result<String, Error>, End> {
        if statement.copying().is_some() {
            // A COPY is no plan: its table is what has the name now.
            if let Err(error) = self.session.describe(statement, &[]) {
                return Ok(Err(error));
            }
        }
        if let Some(copying) = statement.copying() {
            return match copying {
                Copying::In(columns) => self.copy_in(statement, columns).await,
                Copying::Out(format) => self.copy_out(statement, &format).await,
            };
        }
        if let Some(name) = statement.deallocates()
            && let Some(tag) = self.deallocate(name)
        {
            return Ok(Ok(tag));
        }
        let start = self.out.len();
        let limit = self.session.statement_timeout();
        let mut sink = Sink { out: &mut self.out, columns, formats, scratch: &mut self.scratch, start };
        let ran =
            interruptible(&self.peer, limit, self.session.execute_to(statement, parameters, &mut sink)).await;
        let answer = match ran {
            Ok(answer) => answer,
            Err(error) => {
                self.out.truncate(start);
                if error.code == "57P01" {
                    return Err(error.into());
                }
                return Ok(Err(error));
            }
        };
        add(&self.shared.counts.statements, 1);
        add(&self.shared.counts.rows, answer.count);
        answer.notices.iter().for_each(|notice| wire::put_notice(&mut self.out, notice));
        Ok(Ok(answer.tag))
    }

    /// Runs a statement and keeps its rows; returns them with its tag.
    pub(crate) async fn run_kept(
        &mut self,
        statement: &mut Prepared,
        parameters: Vec<Datum>,
    ) -> Result<Result<(String, Vec<Vec<Datum>>), Error>, End> {
        let mut rows: Vec<Vec<Datum>> = Vec::new();
        let limit = self.session.statement_timeout();
        match interruptible(&self.peer, limit, self.session.execute_to(statement, parameters, &mut rows))
            .await
        {
            Ok(answer) => {
                add(&self.shared.counts.statements, 1);
                add(&self.shared.counts.rows, answer.count);
                answer.notices.iter().for_each(|notice| wire::put_notice(&mut self.out, notice));
                Ok(Ok((answer.tag, rows)))
            }
            Err(error) if error.code == "57P01" => Err(error.into()),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Forgets a statement of the extended protocol, or all; returns the tag if it was one.
    fn deallocate(&mut self, name: Option<&str>) -> Option<String> {
        match name {
            Some(name) => self.statements.remove(name).map(|_| "DEALLOCATE".to_owned()),
            None => {
                self.statements.retain(|name, _| name.is_empty());
                None
            }
        }
    }

    pub(crate) fn put_rows(
        &mut self,
        columns: &[Column],
        formats: &Formats,
        rows: impl Iterator<Item = Vec<Datum>>,
    ) {
        rows.for_each(|row| wire::put_row(&mut self.out, columns, formats, &row, &mut self.scratch));
    }

    /// Tells the client of settings that have changed.
    fn report(&mut self) {
        let version = self.session.settings_version() + 1;
        if self.reported.0 == version {
            return;
        }
        let value = |name: &str| match name {
            "in_hot_standby" => "off".to_owned(),
            "is_superuser" => "on".to_owned(),
            "session_authorization" => crate::ROLE.to_owned(),
            name => self.session.setting(name).unwrap_or_default(),
        };
        let values: Vec<String> = REPORTED.iter().map(|(name, _)| value(name)).collect();
        for (place, ((_, name), value)) in REPORTED.iter().zip(&values).enumerate() {
            if self.reported.1.get(place) != Some(value) {
                wire::put(&mut self.out, &ParameterStatus::new((*name).to_owned(), value.clone()));
            }
        }
        self.reported = (version, values);
    }
}

/// The client as other sessions reach it.
fn client_of(peer: &Arc<Peer>, address: Option<std::net::SocketAddr>) -> thermocline_sql::Client {
    let peer = Arc::downgrade(peer);
    let raise = move |cause| {
        if let Some(peer) = peer.upgrade() {
            peer.raise(cause);
        }
    };
    thermocline_sql::Client { address, raise: Arc::new(raise) }
}

/// Runs until it ends or is interrupted; an interrupt before it does not count, but for the server's end. A commit that is decided
/// is waited for: a client that were told of a cancel would do its work twice.
pub(crate) async fn interruptible<T>(
    peer: &Peer,
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    if peer.interrupt.raised() != Some(Cause::Shutdown) {
        peer.interrupt.clear();
    }
    let mut work = std::pin::pin!(work);
    let late = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let mut late = std::pin::pin!(late);
    let mut timed = limit.is_some();
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = peer.wake.notified() => {
                if let Some(cause) = peer.interrupt.raised().filter(|_| !peer.interrupt.is_decided()) {
                    return Err(cause.error());
                }
            }
            () = &mut late, if timed => {
                if !peer.interrupt.is_decided() {
                    return Err(Cause::TimedOut.error());
                }
                timed = false;
            }
        }
    }
}

/// Ends when the server does.
async fn ended(peer: &Peer) {
    while peer.interrupt.raised() != Some(Cause::Shutdown) {
        peer.wake.notified().await;
    }
}
