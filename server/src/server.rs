//! A running server: its threads, from start to stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use thermocline_engine::Database;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::LocalSet;

use crate::config::Config;
use crate::connection;
use crate::door::{self, Guest, Usher};
use crate::lobby::{Lobby, files_allowed};
use crate::shared::{Shared, add};

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(SocketAddr, std::io::Error),
    /// The Unix socket cannot be made there.
    Socket(PathBuf, std::io::Error),
    /// The system has no thread for it.
    Thread(std::io::Error),
    /// There is nothing to listen on, or a limit is none.
    Config(&'static str),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listen(address, error) => {
                write!(f, "cannot listen on {address}: {error}; choose another address with --listen")
            }
            Self::Socket(path, error) => {
                write!(f, "cannot make the socket {}: {error}; choose another --socket-dir", path.display())
            }
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Config(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StartError {}

/// A running server. Dropping it without [`Server::stop`] leaves it running.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
    socket: Option<PathBuf>,
    metrics: Option<SocketAddr>,
}

impl Server {
    /// Starts to serve a database.
    ///
    /// # Errors
    /// What cannot be listened on.
    pub fn start(db: Database, config: Config) -> Result<Self, StartError> {
        if config.listen.is_empty() && config.socket_dir.is_none() {
            return Err(StartError::Config(
                "there is nothing to listen on; name an address or a socket directory",
            ));
        }
        if config.threads == 0 || config.max_connections == 0 {
            return Err(StartError::Config("at least one thread and one connection are needed"));
        }
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in &config.listen {
            let listener = door::listen(*address).map_err(|error| StartError::Listen(*address, error))?;
            addresses.push(listener.local_addr().map_err(|error| StartError::Listen(*address, error))?);
            listeners.push(listener);
        }
        let port = addresses.first().map_or(5433, SocketAddr::port);
        let socket = config.socket_dir.as_ref().map(|dir| dir.join(format!(".s.PGSQL.{port}")));
        let unix = match &socket {
            Some(path) => Some(bind(path).map_err(|error| StartError::Socket(path.clone(), error))?),
            None => None,
        };
        let metrics = match config.metrics {
            Some(address) => Some(door::listen(address).map_err(|error| StartError::Listen(address, error))?),
            None => None,
        };
        let metrics_address = metrics.as_ref().and_then(|listener| listener.local_addr().ok());
        let count = config.threads;
        let shared = Arc::new(Shared::new(db, config));
        let mut threads = Vec::new();
        let mut senders = Vec::new();
        for number in 0..count {
            let (sender, receiver) = unbounded_channel();
            senders.push(sender);
            let shared = shared.clone();
            let body = move || serve(receiver, &shared);
            threads.push(spawn(format!("serve-{number}"), SERVING_STACK, body)?);
        }
        let usher = Usher { threads: senders.into(), next: Arc::new(AtomicUsize::new(0)) };
        let inside = shared.clone();
        threads.push(spawn("door".to_owned(), DOOR_STACK, move || {
            open(listeners, unix, metrics, &inside, &usher);
        })?);
        Ok(Self { shared, threads, addresses, socket, metrics: metrics_address })
    }

    /// The addresses that it listens on.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The Unix socket.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// The address that answers Prometheus.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Clients that are connected.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.shared.connected()
    }

    /// Ends all connections (57P01), rolls their transactions back, and closes the database.
    ///
    /// # Errors
    /// Those of closing the database.
    pub fn stop(self) -> thermocline_engine::Result<()> {
        self.shared.begin_stop();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the server has panicked");
            }
        }
        if let Some(path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
        self.shared.db.clone().close()
    }
}

/// Stacks of threads, of which the system gives memory only to what was used: statements nest as deeply as theirs allow.
const SERVING_STACK: usize = 16 << 20;
const DOOR_STACK: usize = 2 << 20;

fn spawn(
    name: String,
    stack: usize,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new().name(name).stack_size(stack).spawn(body).map_err(StartError::Thread)
}

/// Makes a socket; one that no server listens on any more is replaced.
fn bind(path: &Path) -> std::io::Result<std::os::unix::net::UnixListener> {
    use std::os::unix::net::{UnixListener, UnixStream};
    if std::fs::symlink_metadata(path).is_ok() && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system has an event queue for each thread")
}

/// The thread at the door.
fn open(
    listeners: Vec<std::net::TcpListener>,
    unix: Option<std::os::unix::net::UnixListener>,
    metrics: Option<std::net::TcpListener>,
    shared: &Arc<Shared>,
    usher: &Usher,
) {
    let local = LocalSet::new();
    local.block_on(&runtime(), async {
        let mut tasks = Vec::new();
        let lobby = Lobby::new(shared.config.max_connections, files_allowed());
        for listener in listeners {
            match TcpListener::from_std(listener) {
                Ok(listener) => {
                    let task = door::accept_tcp(listener, shared.clone(), usher.clone(), lobby.clone());
                    tasks.push(tokio::task::spawn_local(task));
                }
                Err(error) => tracing::error!(%error, "cannot accept clients"),
            }
        }
        if let Some(Ok(listener)) = unix.map(UnixListener::from_std) {
            let task = door::accept_unix(listener, shared.clone(), usher.clone(), lobby.clone());
            tasks.push(tokio::task::spawn_local(task));
        }
        if let Some(Ok(listener)) = metrics.map(TcpListener::from_std) {
            tasks.push(tokio::task::spawn_local(crate::metrics::answer(listener, shared.clone())));
        }
        while !shared.is_stopping() {
            shared.stop.notified().await;
        }
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

/// A thread that serves clients, until the door closes and the last one has gone.
fn serve(mut guests: UnboundedReceiver<Guest>, shared: &Arc<Shared>) {
    let local = LocalSet::new();
    local.block_on(&runtime(), async {
        let mut clients = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                guest = guests.recv() => match guest {
                    Some(guest) => {
                        clients.spawn_local(connection::serve(guest, shared.clone()));
                    }
                    None => break,
                },
                Some(ended) = clients.join_next() => note(ended, shared),
            }
        }
        while let Some(ended) = clients.join_next().await {
            note(ended, shared);
        }
    });
}

fn note(ended: Result<(), tokio::task::JoinError>, shared: &Shared) {
    if let Err(error) = ended
        && error.is_panic()
    {
        add(&shared.counts.panics, 1);
        tracing::error!(%error, "a connection has panicked; it is closed, its transaction rolled back");
    }
}
