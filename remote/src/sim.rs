//! The transport `sim`: servers and networks inside of a test, with delay, loss, order and duplicates by seed.
//!
//! A link of a server outlives connections: what was under way when a client gave up may still arrive, and its answer may
//! come back into the next connection. One-sided, reads and writes reach the memory without the server, in any order; then
//! nothing is repeated, as RDMA does not, and only the owner of the segment is asked (its key is withdrawn with the lease).

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use thermocline_base::clock::{Clock, ManualClock};
use thermocline_base::rng::Rng;

use crate::grants::{Export, Grants, Memory};
use crate::message::{Ask, Message, Told};
use crate::transport::{Connect, LinkError, Transport};

/// The behaviour of the network.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// Of a message, that it never arrives.
    pub(crate) loss: f64,
    /// Of a message, that it arrives twice.
    pub(crate) twice: f64,
    /// Of a step, that it is not the oldest message that arrives.
    pub(crate) disorder: f64,
    /// Of a page that is read, that it arrives changed.
    pub(crate) damage: f64,
    /// Of a step, that nothing arrives.
    pub(crate) delay: f64,
    pub(crate) one_sided: bool,
}

/// Memory in a vector.
#[derive(Debug)]
struct Plain {
    bytes: Vec<u8>,
    page_bytes: usize,
    segment_bytes: usize,
}

impl Memory for Plain {
    fn read(&mut self, segment: u32, page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()> {
        let start = segment as usize * self.segment_bytes + page as usize * self.page_bytes;
        into.extend_from_slice(&self.bytes[start..start + pages as usize * self.page_bytes]);
        Ok(())
    }

    fn write(&mut self, segment: u32, page: u32, bytes: &[u8]) -> io::Result<()> {
        let start = segment as usize * self.segment_bytes + page as usize * self.page_bytes;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn wipe(&mut self, segment: u32) -> io::Result<()> {
        let start = segment as usize * self.segment_bytes;
        self.bytes[start..start + self.segment_bytes].fill(0);
        Ok(())
    }
}

/// Requests and answers that are under way.
type Line = (Vec<Message<Ask>>, Vec<Message<Told>>);

/// A server, and its network to one client after another.
#[derive(Debug)]
pub(crate) struct SimServer {
    pub(crate) grants: Grants,
    memory: Plain,
    export: Export,
    weather: Weather,
    rng: Rng,
    clock: Arc<ManualClock>,
    /// By client.
    lines: Vec<Line>,
    /// Second copies of requests, which arrive much later: client and request.
    ghosts: Vec<(usize, Message<Ask>)>,
    /// Answers that got lost: they turn up when no client waits for them any more.
    late: Vec<(usize, Message<Told>)>,
    pub(crate) reachable: bool,
    /// An event that must never happen, and did.
    pub(crate) wrong: Option<String>,
}

/// Shared by the world and the links.
pub(crate) type Shared = Arc<Mutex<SimServer>>;

pub(crate) fn locked(server: &Shared) -> MutexGuard<'_, SimServer> {
    server.lock().expect("a test that panicked has failed already")
}

impl SimServer {
    pub(crate) fn shared(
        export: Export,
        clients: usize,
        weather: Weather,
        seed: u64,
        clock: &Arc<ManualClock>,
    ) -> Shared {
        let segment_bytes = (export.segment_pages * export.page_bytes) as usize;
        Arc::new(Mutex::new(Self {
            grants: Grants::new(export),
            memory: Plain {
                bytes: vec![0; segment_bytes * export.segments as usize],
                page_bytes: export.page_bytes as usize,
                segment_bytes,
            },
            export,
            weather,
            rng: Rng::new(seed),
            clock: Arc::clone(clock),
            lines: (0..clients).map(|_| (Vec::new(), Vec::new())).collect(),
            ghosts: Vec::new(),
            late: Vec::new(),
            reachable: true,
            wrong: None,
        }))
    }

    pub(crate) fn connect(server: &Shared, client: usize) -> Box<dyn Connect> {
        Box::new(SimLink { server: Arc::clone(server), client })
    }

    /// It forgets everything, as a process that is killed and started again.
    pub(crate) fn restart(&mut self) {
        self.grants = Grants::new(self.export);
        self.memory.bytes.fill(0);
    }

    /// Bytes that stand in each page of a segment first: they name its author.
    pub(crate) fn authors(&self, segment: u32) -> impl Iterator<Item = u8> {
        let start = segment as usize * self.memory.segment_bytes;
        let pages =
            self.memory.bytes[start..start + self.memory.segment_bytes].chunks(self.memory.page_bytes);
        pages.map(|page| page[0])
    }

    /// A request arrives, and its answer is under way.
    pub(crate) fn step(&mut self, client: usize) {
        let disorder = self.rng.chance(self.weather.disorder);
        if !self.ghosts.is_empty() && self.rng.chance(0.1) {
            let at = self.rng.below(self.ghosts.len() as u64) as usize;
            let (client, request) = self.ghosts.swap_remove(at);
            self.lines[client].0.insert(0, request);
        }
        if !self.late.is_empty() && self.rng.chance(0.05) {
            let at = self.rng.below(self.late.len() as u64) as usize;
            let (client, answer) = self.late.swap_remove(at);
            self.lines[client].1.insert(0, answer);
        }
        let requests = &mut self.lines[client].0;
        if requests.is_empty() || self.rng.chance(self.weather.delay) {
            return;
        }
        let at = if disorder { self.rng.below(requests.len().min(4) as u64) as usize } else { 0 };
        // One-sided, what goes to the server itself still comes by a stream, in its order.
        let one_sided = self.weather.one_sided;
        let direct = |body: &Ask| one_sided && matches!(body, Ask::Read { .. } | Ask::Write { .. });
        let at = match requests.iter().position(|request| !direct(&request.body)) {
            Some(first) if one_sided && !direct(&requests[at].body) => first,
            _ => at,
        };
        let request = requests.remove(at);
        if !self.reachable {
            return;
        }
        let direct = direct(&request.body);
        if !direct && self.rng.chance(self.weather.twice) {
            self.ghosts.push((client, request.clone()));
        }
        let Message { lease, number, .. } = request;
        let mut answer = if direct {
            let told = self.grants.act(lease, request.body, &mut self.memory);
            Message { lease, number, body: told.unwrap_or_else(Told::Refused) }
        } else {
            let fresh = self.rng.next_u64() | 1;
            let now = self.clock.now_ns();
            self.grants.handle(now, fresh, request, &mut self.memory)
        };
        if let Told::Granted(segments) = &answer.body {
            let dirty = segments.iter().find(|segment| self.authors(**segment).any(|author| author != 0));
            if let Some(segment) = dirty {
                self.wrong = Some(format!("segment {segment} was granted with another lease's pages in it"));
            }
        }
        if let Told::Pages(bytes) = &mut answer.body
            && self.rng.chance(self.weather.damage)
        {
            let bit = self.rng.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        // Refusals are answers to what the client has given up already, or to copies: a stream would not bring them.
        let stale = matches!(answer.body, Told::Refused(_)) && !direct;
        if !stale && self.rng.chance(self.weather.loss) {
            self.late.push((client, answer));
        } else if !stale {
            if !direct && self.rng.chance(self.weather.twice) {
                self.lines[client].1.push(answer.clone());
            }
            self.lines[client].1.push(answer);
        }
    }

    pub(crate) fn clean(&mut self) {
        self.grants.clean_one(&mut self.memory).expect("memory in a vector is always there");
    }
}

#[derive(Debug)]
struct SimLink {
    server: Shared,
    client: usize,
}

impl Connect for SimLink {
    fn connect(&mut self) -> Result<Box<dyn Transport>, LinkError> {
        if !locked(&self.server).reachable {
            return Err(LinkError::Io(io::ErrorKind::ConnectionRefused.into()));
        }
        Ok(Box::new(SimLink { server: Arc::clone(&self.server), client: self.client }))
    }

    fn address(&self) -> String {
        "sim".to_owned()
    }
}

impl Transport for SimLink {
    fn send(&mut self, request: Message<Ask>) -> Result<(), LinkError> {
        let mut server = locked(&self.server);
        if request.lease != 0
            && server.reachable
            && !server.grants.is_live(request.lease)
            && request.body != Ask::Close
        {
            server.wrong = Some(format!("lease {} is used after its server has ended it", request.lease));
        }
        let lost = server.weather.loss;
        if !server.rng.chance(lost) {
            server.lines[self.client].0.push(request);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    fn receive(&mut self, _wait: Duration) -> Result<Option<Message<Told>>, LinkError> {
        let mut server = locked(&self.server);
        let disorder = server.weather.disorder;
        // An answer may stay under way for a while.
        let count = server.lines[self.client].1.len() as u64;
        if count == 0 || server.rng.chance(0.3) {
            return Ok(None);
        }
        let odd = server.rng.chance(disorder);
        let at = if odd { server.rng.below(count.min(4)) } else { 0 } as usize;
        Ok(Some(server.lines[self.client].1.remove(at)))
    }

    fn is_one_sided(&self) -> bool {
        locked(&self.server).weather.one_sided
    }
}
