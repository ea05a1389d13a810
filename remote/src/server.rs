//! The memory server: memory taken in one piece at start, granted to leases by segments, served over streams.
//!
//! - All of the memory is there, touched and (unless declined) locked before the first connection is accepted, as the paper
//!   registers it at once (Jung, Han and Yeom, 2007, §3.2.1). What is exported is never paged, so two machines short of memory
//!   do not wait for each other.
//! - A connection is a thread; so is each socket that is listened on, and one that ends leases and zeroes segments. What the server
//!   decides stands in [`crate::grants`], behind one lock: requests are done one after another.
//! - Beyond a unix socket of the same user, only a peer that proves the key is served. At most [`STRANGERS_MAX`]
//!   connections have not proved it yet.
//!
//! Segments are zeroed without the lock: a dirty one is no lease's, and it is granted only when it is zeros.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_base::memory_file::{MemoryFile, MemoryFileOptions};
use thermocline_base::rng::{Draw, SystemDraw};
use thermocline_base::sync::{AtomicBool, AtomicU64, Ordering};

use crate::channel::Channel;
use crate::grants::{Export, Grants, Memory};
use crate::key::Key;
use crate::message::Ask;
use crate::tcp::Address;
use crate::transport::LinkError;

/// Bytes of a page.
pub const PAGE_BYTES: u32 = 4096;
/// Bytes of a segment.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Connections that have not proved the key yet.
pub const STRANGERS_MAX: u64 = 64;
/// Time for which a thread sleeps before it looks whether the server ends.
const TICK: Duration = Duration::from_millis(50);
/// Bytes that a connection holds back at the most until they are sent.
const BATCH_BYTES: usize = 512 << 10;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Memory that is exported, rounded down to segments.
    pub memory_bytes: u64,
    /// Bytes of a segment; [`SEGMENT_BYTES`] but in tests.
    pub segment_bytes: u64,
    /// Where it listens.
    pub listen: Vec<Address>,
    /// The key that peers have to prove.
    pub key: Option<Key>,
    /// Of huge pages.
    pub huge: bool,
    /// The memory cannot be paged out.
    pub locked: bool,
    /// Without a request for this long, a lease ends.
    pub grace: Duration,
}

/// Why a server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// The memory cannot be locked.
    Lock {
        /// So much was to be.
        bytes: u64,
    },
    /// There is not so much memory, or not of this kind.
    Memory(io::Error),
    /// Less than a segment is to be exported.
    TooLittle {
        /// Of a segment.
        segment_bytes: u64,
    },
    /// Nowhere to listen.
    NoAddress,
    /// An address that others reach, and no key.
    NoKey(String),
    /// The address cannot be listened on.
    Listen(String, io::Error),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock { bytes } => write!(
                f,
                "cannot lock {} MiB of memory: raise the limit on locked memory (ulimit -l, LimitMEMLOCK), or allow that the export is paged out with --unlocked",
                bytes >> 20
            ),
            Self::Memory(error) => write!(f, "cannot take the memory: {error}"),
            Self::TooLittle { segment_bytes } => {
                write!(f, "memory is granted by segments of {} MiB: export at least one", segment_bytes >> 20)
            }
            Self::NoAddress => f.write_str("a memory server needs --listen HOST:PORT or --socket PATH"),
            Self::NoKey(address) => write!(
                f,
                "{address} can be reached by others: a memory server listens there with --key-file only; without one it serves a unix socket (--socket)"
            ),
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
        }
    }
}

impl std::error::Error for ServerError {}

/// One memory file a segment.
#[derive(Debug)]
struct Segments(Arc<[MemoryFile]>);

impl Memory for Segments {
    fn read(&mut self, segment: u32, page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()> {
        into.resize(pages as usize * PAGE_BYTES as usize, 0);
        self.0[segment as usize].read_at(u64::from(page) * u64::from(PAGE_BYTES), into)
    }

    fn write(&mut self, segment: u32, page: u32, bytes: &[u8]) -> io::Result<()> {
        self.0[segment as usize].write_at(u64::from(page) * u64::from(PAGE_BYTES), bytes)
    }

    fn wipe(&mut self, segment: u32) -> io::Result<()> {
        let memory = &self.0[segment as usize];
        memory.zero(0, memory.len())
    }
}

#[derive(Debug)]
struct State {
    grants: Grants,
    memory: Segments,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The same as in there, for the thread that zeroes them.
    segments: Arc<[MemoryFile]>,
    key: Option<Key>,
    strangers: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // What is behind the lock is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// The memory that was taken at start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registered {
    /// Memory that is exported.
    pub bytes: u64,
    /// Segments of it.
    pub segments: u32,
    /// Microseconds that taking it took.
    pub us: u64,
}

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    addresses: Vec<Address>,
    sockets: Vec<PathBuf>,
    registered: Registered,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Server {
    /// Takes the memory and serves.
    ///
    /// # Errors
    /// When the memory or an address cannot be had.
    pub fn start(options: &ServerOptions) -> Result<Self, ServerError> {
        let listeners = listen(options)?;
        let start = SystemClock.now_us();
        let segments = options.memory_bytes / options.segment_bytes;
        if segments == 0 {
            return Err(ServerError::TooLittle { segment_bytes: options.segment_bytes });
        }
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        let how = MemoryFileOptions { locked: options.locked, huge: options.huge };
        let mut memory = Vec::with_capacity(segments as usize);
        for _ in 0..segments {
            let segment = MemoryFile::new(options.segment_bytes as usize, how);
            memory.push(segment.map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => ServerError::Lock { bytes: options.memory_bytes },
                _ => ServerError::Memory(error),
            })?);
        }
        let bytes = u64::from(segments) * options.segment_bytes;
        let registered = Registered { bytes, segments, us: SystemClock.now_us() - start };
        let grants = Grants::new(Export {
            segments,
            segment_pages: (options.segment_bytes / u64::from(PAGE_BYTES)) as u32,
            page_bytes: PAGE_BYTES,
            grace_ms: options.grace.as_millis() as u32,
        });
        let memory: Arc<[MemoryFile]> = memory.into();
        let shared = Arc::new(Shared {
            state: Mutex::new(State { grants, memory: Segments(Arc::clone(&memory)) }),
            segments: memory,
            key: options.key.clone(),
            strangers: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let mut threads = Vec::new();
        let (mut addresses, mut sockets) = (Vec::new(), Vec::new());
        for (address, listener) in listeners {
            if let Address::Unix(path) = &address {
                sockets.push(path.clone());
            }
            addresses.push(address);
            let shared = Arc::clone(&shared);
            threads.push(std::thread::spawn(move || accept(&shared, &listener)));
        }
        let keeper = Arc::clone(&shared);
        threads.push(std::thread::spawn(move || keep(&keeper)));
        Ok(Self { shared, threads, addresses, sockets, registered })
    }

    /// The memory that was taken at start.
    #[must_use]
    pub fn registered(&self) -> Registered {
        self.registered
    }

    /// Where it listens; a port of 0 has become one.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Grants nothing from now on, and asks the holders of memory to take their pages away.
    pub fn drain(&self) {
        self.shared.state().grants.drain();
    }

    /// Leases that have not ended.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.shared.state().grants.leases()
    }

    /// Segments that may be granted.
    #[must_use]
    pub fn free_segments(&self) -> u32 {
        self.shared.state().grants.free_segments()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        for socket in &self.sockets {
            // Another process may have removed it.
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn listen(options: &ServerOptions) -> Result<Vec<(Address, Listener)>, ServerError> {
    if options.listen.is_empty() {
        return Err(ServerError::NoAddress);
    }
    let mut listeners = Vec::new();
    for address in &options.listen {
        let failed = |error| ServerError::Listen(address.to_string(), error);
        match address {
            Address::Tcp(name) => {
                if options.key.is_none() {
                    return Err(ServerError::NoKey(name.clone()));
                }
                let all: Vec<SocketAddr> = name.to_socket_addrs().map_err(failed)?.collect();
                let listener = TcpListener::bind(&*all).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                listeners.push((Address::Tcp(bound.to_string()), Listener::Tcp(listener)));
            }
            Address::Unix(path) => {
                // A socket without a listener is left behind by a server that was killed.
                if std::os::unix::net::UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
                {
                    std::fs::remove_file(path).map_err(failed)?;
                }
                let listener = UnixListener::bind(path).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                listeners.push((address.clone(), Listener::Unix(listener)));
            }
        }
    }
    Ok(listeners)
}

/// Ends leases by their grace, and makes zeros of what they leave.
fn keep(shared: &Shared) {
    while !shared.ends() {
        let dirty = {
            let mut state = shared.state();
            state.grants.expire(SystemClock.now_ns());
            state.grants.dirty()
        };
        let Some(segment) = dirty else {
            std::thread::sleep(TICK);
            continue;
        };
        let memory = &shared.segments[segment as usize];
        match memory.zero(0, memory.len()) {
            Ok(()) => shared.state().grants.is_clean(segment),
            Err(error) => {
                tracing::error!(%error, "a segment could not be zeroed; it is not granted");
                std::thread::sleep(TICK);
            }
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &Listener) {
    let mut connections: Vec<JoinHandle<()>> = Vec::new();
    while !shared.ends() {
        let accepted: io::Result<(OwnedFd, bool)> = match listener {
            Listener::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Ok((stream.into(), false))
            }),
            Listener::Unix(listener) => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(false)?;
                let peer = rustix::net::sockopt::socket_peercred(&stream)?;
                Ok((stream.into(), peer.uid == rustix::process::geteuid()))
            }),
        };
        match accepted {
            Ok((socket, same_user)) => {
                connections.retain(|thread| !thread.is_finished());
                if shared.strangers.fetch_add(1, Ordering::AcqRel) >= STRANGERS_MAX {
                    shared.strangers.fetch_sub(1, Ordering::AcqRel);
                    continue;
                }
                let shared = Arc::clone(shared);
                connections.push(std::thread::spawn(move || connection(&shared, socket, same_user)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(TICK / 10),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                std::thread::sleep(TICK);
            }
        }
    }
    for thread in connections {
        // A thread that panicked has said so.
        let _ = thread.join();
    }
}

fn connection(shared: &Shared, socket: OwnedFd, same_user: bool) {
    let accepted = Channel::accept(socket, shared.key.as_ref(), same_user);
    shared.strangers.fetch_sub(1, Ordering::AcqRel);
    let ended = accepted.and_then(|mut channel| serve(shared, &mut channel));
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Answers requests until the connection or the server ends. What has come together is answered together.
fn serve(shared: &Shared, channel: &mut Channel) -> Result<(), LinkError> {
    while !shared.ends() {
        let mut next = channel.get::<Ask>(TICK * 4)?;
        while let Some(request) = next {
            let fresh = SystemDraw.draw_u64() | 1;
            let mut state = shared.state();
            let State { grants, memory } = &mut *state;
            let answer = grants.handle(SystemClock.now_ns(), fresh, request, memory);
            drop(state);
            channel.put(&answer);
            if channel.waiting_bytes() > BATCH_BYTES {
                channel.flush()?;
            }
            next = channel.parse()?;
        }
        channel.flush()?;
    }
    Ok(())
}
