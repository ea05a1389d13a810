//! The servers of a client and the leases it holds there: connecting, renewing, asking, hearing, giving up.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::second::SLOW_NS;
use super::{Client, Ticket};
use crate::message::{Ask, Message, Told, VERSION};
use crate::mutation::{Rule, off};
use crate::slots::{Run, Slots};
use crate::table::{HOSTS_MAX, Spot};
use crate::transport::{Connect, LinkError, Transport};

/// A lease asks for another segment when fewer of its pages are free than this share of a segment.
const LOW_WATER: u64 = 4;

/// A lease is renewed this often, if its grace does not ask for more: so a client hears soon that a server drains.
const RENEW_NS: u64 = 1_000_000_000;

/// A server of the list.
#[derive(Debug)]
pub(super) struct Server {
    connect: Box<dyn Connect>,
    /// While there is a connection.
    pub(super) host: Option<Host>,
    retry_ns: u64,
    trouble: String,
}

/// A lease, or one that is being asked for.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) id: u32,
    link: Box<dyn Transport>,
    /// 0: not granted yet.
    lease: u64,
    grace_ns: u64,
    segment_pages: u64,
    segments: u32,
    free_segments: u32,
    draining: bool,
    granting: bool,
    number: u64,
    /// When the latest request that was answered had been sent.
    proven_ns: u64,
    renewing: bool,
    sent: BTreeMap<u64, Sent>,
    /// Free pages of the segments that were granted.
    pub(super) places: Slots,
    /// Of reads, smoothed.
    latency_ns: u64,
    pub(super) damaged: u32,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Sent {
    at_ns: u64,
    what: What,
}

/// The purpose of a request.
#[derive(Debug)]
pub(super) enum What {
    Open,
    Grant,
    Renew,
    Read {
        slot: u64,
        copy: u8,
        /// It was asked for at the other copy, too.
        repeated: bool,
    },
    Write {
        slots: Vec<u64>,
        copy: u8,
    },
    /// Read to be copied: `copy` is the one that will be made.
    MoveRead {
        slot: u64,
        from: u8,
        copy: u8,
    },
    MoveWrite {
        slot: u64,
        copy: u8,
        spot: Spot,
    },
}

impl Server {
    pub(super) fn new(connect: Box<dyn Connect>) -> Self {
        Self { connect, host: None, retry_ns: 0, trouble: "it was not tried yet".to_owned() }
    }

    pub(super) fn retry_ns(&self) -> u64 {
        self.retry_ns
    }

    pub(super) fn trouble(&self) -> (String, &str) {
        (self.connect.address(), &self.trouble)
    }
}

impl Host {
    /// Up to `wanted` neighbours in one segment.
    pub(super) fn take_run(&mut self, wanted: u32) -> Option<Run> {
        let run = self.places.take_run(wanted)?;
        let left = self.segment_pages - run.first % self.segment_pages;
        if u64::from(run.len) > left {
            self.places.give(run.first + left..run.first + u64::from(run.len));
            return Some(Run { first: run.first, len: left as u32 });
        }
        Some(run)
    }

    pub(super) fn socket(&self) -> Option<Arc<OwnedFd>> {
        self.link.socket()
    }

    /// After this time a read is slow.
    fn slow_ns(&self) -> u64 {
        (self.latency_ns * 8).max(SLOW_NS)
    }

    fn slow(&self, now_ns: u64) -> impl Iterator<Item = (u64, &Sent)> {
        let limit_ns = self.slow_ns();
        let slow = move |sent: &Sent| {
            matches!(sent.what, What::Read { .. }) && now_ns.saturating_sub(sent.at_ns) >= limit_ns
        };
        self.sent.iter().filter(move |(_, sent)| slow(sent)).map(|(number, sent)| (*number, sent))
    }

    pub(super) fn has_slow_reads(&self, now_ns: u64) -> bool {
        self.slow(now_ns).next().is_some()
    }

    /// Slow reads that were not repeated: this host, number, slot, copy.
    pub(super) fn slow_reads(&self, now_ns: u64) -> impl Iterator<Item = (u32, u64, u64, u8)> {
        self.slow(now_ns).filter_map(|(number, sent)| match sent.what {
            What::Read { slot, copy, repeated: false } => Some((self.id, number, slot, copy)),
            _ => None,
        })
    }

    /// When the first of its reads will be slow.
    pub(super) fn slow_at_ns(&self) -> Option<u64> {
        let reads = self.sent.values().filter(|sent| matches!(sent.what, What::Read { repeated: false, .. }));
        reads.map(|sent| sent.at_ns.saturating_add(self.slow_ns())).min()
    }

    /// When the oldest request was sent that was not answered.
    pub(super) fn owes_since_ns(&self) -> Option<u64> {
        // Numbers grow with time.
        self.sent.values().next().map(|sent| sent.at_ns)
    }

    pub(super) fn is_opening(&self) -> bool {
        self.lease == 0
    }

    /// When its transport has an answer that is here already.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.link.due_ns()
    }

    /// Did its connection not take all that was to be sent?
    pub(super) fn is_sending(&self) -> bool {
        self.link.is_sending()
    }

    /// Pages that it takes, granted or not.
    pub(super) fn room_now(&self) -> u64 {
        if self.lease == 0 || self.draining { 0 } else { self.room() }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining
    }

    fn used_pages(&self) -> u64 {
        u64::from(self.segments) * self.segment_pages - self.places.free_count()
    }

    fn takes_pages(&self) -> bool {
        self.lease != 0 && !self.draining && self.places.free_count() > 0
    }

    /// Pages that it has room for, granted or not.
    fn room(&self) -> u64 {
        self.places.free_count() + u64::from(self.free_segments) * self.segment_pages
    }

    fn is_low(&self) -> bool {
        let low = self.places.free_count() < self.segment_pages.div_ceil(LOW_WATER);
        self.lease != 0 && !self.draining && low && self.free_segments > 0
    }

    /// Before half of the grace is over since a request that the server has heard.
    fn usable(&self, now_ns: u64) -> bool {
        self.lease == 0
            || now_ns.saturating_sub(self.proven_ns) < self.grace_ns / 2
            || off(Rule::LeaseEndsAtHalf)
    }
}

impl Client {
    pub(super) fn host(&self, server: usize) -> &Host {
        self.servers[server].host.as_ref().expect("a host of the map is there")
    }

    pub(super) fn host_mut(&mut self, server: usize) -> &mut Host {
        self.servers[server].host.as_mut().expect("a host of the map is there")
    }

    /// The work that is due from time to time: connect, renew, ask for memory, give up.
    pub(super) fn tend(&mut self) {
        let now = self.clock.now_ns();
        for server in 0..self.servers.len() {
            if self.servers[server].host.is_none() && now >= self.servers[server].retry_ns {
                self.connect(server, now);
            }
            let Some(host) = &self.servers[server].host else { continue };
            let oldest = host.sent.values().map(|sent| sent.at_ns).min().unwrap_or(now);
            // Where it has the only copy, slowness is no loss; an opening has lost nothing yet.
            let impatient = self.options.copies > 1 || self.options.elsewhere || host.lease == 0;
            if !host.usable(now) {
                self.lose(server, "half of the lease's grace was over without an answer");
            } else if impatient && now.saturating_sub(oldest) > self.options.timeout_ns {
                self.lose(server, "it did not answer in time");
            } else {
                self.renew(server, now);
            }
        }
        self.repeat_slow_reads(now);
    }

    fn renew(&mut self, server: usize, now: u64) {
        let all: u32 =
            self.servers.iter().filter_map(|server| server.host.as_ref()).map(|host| host.segments).sum();
        let more = all < self.options.segments_max;
        let host = self.host_mut(server);
        if host.lease == 0 {
            return;
        }
        if host.is_low() && !host.granting && more {
            host.granting = true;
            self.ask(server, Ask::Grant(1), What::Grant);
        } else if !host.renewing && now.saturating_sub(host.proven_ns) >= (host.grace_ns / 8).min(RENEW_NS) {
            host.renewing = true;
            self.ask(server, Ask::Renew, What::Renew);
        }
        let done = self.servers[server]
            .host
            .as_ref()
            .is_some_and(|host| host.draining && host.used_pages() == 0 && host.sent.is_empty());
        if done {
            self.close_host(server);
        }
    }

    fn connect(&mut self, server: usize, now: u64) {
        let link = match self.servers[server].connect.connect() {
            Ok(link) => link,
            Err(error) => {
                self.servers[server].trouble = error.to_string();
                self.servers[server].retry_ns = now + self.options.retry_ns;
                return;
            }
        };
        while self.hosts.contains_key(&self.next_host) {
            self.next_host = (self.next_host + 1) % HOSTS_MAX;
        }
        let id = self.next_host;
        self.next_host = (id + 1) % HOSTS_MAX;
        self.hosts.insert(id, server);
        let number = self.rng.next_u64() | 1 << 63;
        self.servers[server].host = Some(Host {
            id,
            link,
            lease: 0,
            grace_ns: u64::MAX,
            segment_pages: 1,
            segments: 0,
            free_segments: 0,
            draining: false,
            granting: false,
            number,
            proven_ns: now,
            renewing: false,
            sent: BTreeMap::new(),
            places: Slots::new(),
            latency_ns: 0,
            damaged: 0,
        });
        self.ask(server, Ask::Open { version: VERSION, page_bytes: self.options.page_bytes }, What::Open);
    }

    /// Sends a request. If that fails the server is lost, and the request is treated like all others under way.
    pub(super) fn ask(&mut self, server: usize, body: Ask, what: What) {
        let at_ns = self.clock.now_ns();
        let host = self.host_mut(server);
        let usable = host.usable(at_ns);
        let number = host.number;
        host.number += 1;
        host.sent.insert(number, Sent { at_ns, what });
        if !usable {
            self.lose(server, "half of the lease's grace was over without an answer");
            return;
        }
        let lease = host.lease;
        if let Err(error) = host.link.send(Message { lease, number, body }) {
            self.lose(server, &error.to_string());
        }
    }

    /// Sends what transports hold back.
    pub(super) fn send_all(&mut self) {
        for server in 0..self.servers.len() {
            if let Some(host) = &mut self.servers[server].host
                && let Err(error) = host.link.flush()
            {
                self.lose(server, &error.to_string());
            }
        }
    }

    /// Takes all answers that are there. `false`: there was none.
    pub(super) fn receive_all(&mut self) -> bool {
        let mut any = false;
        for server in 0..self.servers.len() {
            while self.receive(server, Duration::ZERO) {
                any = true;
            }
        }
        any
    }

    /// Takes the answers of one server that are there.
    pub(super) fn receive_from(&mut self, server: usize) {
        while self.receive(server, Duration::ZERO) {}
    }

    /// Waits for the server whose request is the oldest.
    pub(super) fn wait_for_answer(&mut self, wait: Duration) {
        let waits = |server: &Server| server.host.as_ref()?.sent.values().map(|sent| sent.at_ns).min();
        let oldest = (0..self.servers.len())
            .filter_map(|at| Some((waits(&self.servers[at])?, at)))
            .min()
            .map(|(_, at)| at);
        if let Some(server) = oldest {
            // With other servers to hear, no longer than a moment.
            let several = self.hosts.len() > 1;
            self.receive(server, if several { wait.min(Duration::from_micros(200)) } else { wait });
        }
    }

    fn receive(&mut self, server: usize, wait: Duration) -> bool {
        let Some(host) = &mut self.servers[server].host else { return false };
        match host.link.receive(wait) {
            Ok(Some(answer)) => {
                self.hear(server, answer);
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.lose(server, &error.to_string());
                false
            }
        }
    }

    /// An answer counts if it names this lease and a request under way.
    fn hear(&mut self, server: usize, answer: Message<Told>) {
        let now = self.clock.now_ns();
        let host = self.host_mut(server);
        let ours = host.lease == 0 || answer.lease == host.lease || off(Rule::AnswersNameLease);
        let sent = if ours { host.sent.remove(&answer.number) } else { None };
        let Some(Sent { at_ns, what }) = sent else {
            self.statistics.refused_answers += 1;
            return;
        };
        let by_server = !host.link.is_one_sided()
            || !matches!(
                what,
                What::Read { .. } | What::Write { .. } | What::MoveRead { .. } | What::MoveWrite { .. }
            );
        if by_server && !matches!(answer.body, Told::Refused(_)) {
            host.proven_ns = host.proven_ns.max(at_ns);
        }
        if matches!(what, What::Read { .. }) {
            host.latency_ns = (host.latency_ns * 7 + (now - at_ns)) / 8;
        }
        match (what, answer.body) {
            (What::Open, Told::Opened { grace_ms, segment_pages, free_segments }) => {
                host.lease = answer.lease;
                host.number = 1;
                host.grace_ns = u64::from(grace_ms) * 1_000_000;
                host.segment_pages = u64::from(segment_pages).max(1);
                host.free_segments = free_segments;
            }
            (What::Grant, Told::Granted(segments)) => self.granted(server, &segments),
            (What::Renew, Told::Done { free_segments, draining }) => {
                host.renewing = false;
                self.told(server, free_segments, draining);
            }
            (What::Read { slot, copy, .. }, Told::Pages(bytes)) => self.has_read(server, slot, copy, bytes),
            (What::MoveRead { slot, from, copy }, Told::Pages(bytes)) => {
                self.move_read(server, slot, from, copy, bytes);
            }
            (What::Write { slots, .. }, Told::Done { free_segments, draining }) => {
                self.told(server, free_segments, draining);
                slots.into_iter().for_each(|slot| self.written(slot));
            }
            (What::MoveWrite { slot, copy, spot }, Told::Done { free_segments, draining }) => {
                self.told(server, free_segments, draining);
                self.move_written(slot, copy, spot);
            }
            (what, told) => {
                // It is under way as long as nothing is known of it.
                let why = match told {
                    Told::Refused(why) => LinkError::Refused(why).to_string(),
                    _ => LinkError::Malformed.to_string(),
                };
                host.sent.insert(answer.number, Sent { at_ns, what });
                self.lose(server, &why);
            }
        }
    }

    fn told(&mut self, server: usize, free_segments: u32, draining: bool) {
        let host = self.host_mut(server);
        host.free_segments = free_segments;
        host.draining |= draining;
    }

    fn granted(&mut self, server: usize, segments: &[u32]) {
        let host = self.host_mut(server);
        host.granting = false;
        host.free_segments =
            if segments.is_empty() { 0 } else { host.free_segments.saturating_sub(segments.len() as u32) };
        for segment in segments {
            let first = u64::from(*segment) * host.segment_pages;
            let end = first + host.segment_pages;
            host.places.grow(end.max(host.places.len()));
            host.places.give(first..end);
            host.segments += 1;
        }
    }

    /// A request was asked for at the other copy, too.
    pub(super) fn mark_repeated(&mut self, host: u32, number: u64) {
        let Some(&server) = self.hosts.get(&host) else { return };
        if let Some(Sent { what: What::Read { repeated, .. }, .. }) =
            self.host_mut(server).sent.get_mut(&number)
        {
            *repeated = true;
        }
    }

    /// Gives the lease up, for good; what was under way goes elsewhere.
    pub(super) fn lose(&mut self, server: usize, why: &str) {
        let now = self.clock.now_ns();
        let Some(host) = self.servers[server].host.take() else { return };
        self.hosts.remove(&host.id);
        self.servers[server].trouble = why.to_owned();
        self.servers[server].retry_ns = now + self.options.retry_ns;
        self.statistics.lost_servers += u64::from(host.lease != 0);
        let mut reads = Vec::new();
        for (_, Sent { what, .. }) in host.sent {
            match what {
                What::Open | What::Grant | What::Renew => {}
                What::Read { slot, .. } => reads.push(slot),
                What::Write { slots, copy } => slots.into_iter().for_each(|slot| self.write_lost(slot, copy)),
                What::MoveRead { slot, .. } => self.move_failed(slot),
                What::MoveWrite { slot, .. } => self.move_failed(slot),
            }
        }
        self.copies_of_outs_lost(host.id);
        self.moves.scan_from_start();
        reads.into_iter().for_each(|slot| self.read_elsewhere(slot));
    }

    /// A write was not answered by a server that is lost: another one gets the page.
    fn write_lost(&mut self, slot: u64, copy: u8) {
        self.set_spot(slot, copy, None);
        self.let_go(slot);
        if self.table.get(slot).in_use() && self.outs.contains_key(&slot) {
            self.unplaced.push_back((slot, copy));
        }
        self.release(slot);
    }

    /// Pages on their way out had a copy there already.
    fn copies_of_outs_lost(&mut self, host: u32) {
        let slots: Vec<u64> = self.outs.keys().copied().collect();
        for slot in slots {
            for copy in 0..self.options.copies {
                if self.spot(slot, copy).is_some_and(|spot| spot.host == host)
                    && self.table.get(slot).in_use()
                {
                    self.set_spot(slot, copy, None);
                    self.unplaced.push_back((slot, copy));
                    self.outs.get_mut(&slot).expect("its key was just listed").missing += 1;
                }
            }
        }
        // The order of a hash map is none of the protocol's.
        self.unplaced.make_contiguous().sort_unstable();
    }

    pub(super) fn close_host(&mut self, server: usize) {
        let Some(mut host) = self.servers[server].host.take() else { return };
        self.hosts.remove(&host.id);
        self.servers[server].trouble = "its lease was given back".to_owned();
        self.servers[server].retry_ns = self.clock.now_ns() + self.options.retry_ns;
        if host.lease != 0 && host.usable(self.clock.now_ns()) {
            let close = Message { lease: host.lease, number: host.number, body: Ask::Close };
            // Without a connection the server frees the lease by its grace.
            let _ = host.link.send(close).and_then(|()| host.link.flush());
        }
    }

    // ---- choosing ----

    /// Two servers that are not silent are drawn, the one with more room gets the pages, unless it is four times as slow.
    pub(super) fn choose(&mut self, without: Option<u32>) -> Option<usize> {
        let fits = |id: u32, server: usize| {
            Some(id) != without && self.host(server).takes_pages() && !self.seems_silent(server)
        };
        let fit: Vec<usize> = self
            .hosts
            .iter()
            .filter(|(id, server)| fits(**id, **server))
            .map(|(_, server)| *server)
            .collect();
        if fit.is_empty() {
            return None;
        }
        let draw = |client: &mut Self| fit[client.rng.below(fit.len() as u64) as usize];
        let (one, two) = (draw(self), draw(self));
        let (a, b) = (self.host(one), self.host(two));
        let slow =
            |this: &Host, other: &Host| this.latency_ns > other.latency_ns.saturating_mul(4).max(1_000_000);
        let first = (a.room() >= b.room() && !slow(a, b)) || slow(b, a);
        Some(if first { one } else { two })
    }

    /// Is there room for so many pages and all their copies?
    pub(super) fn room_for(&self, pages: u64) -> bool {
        let of = |server: &Server| {
            server.host.as_ref().filter(|host| host.takes_pages()).map(|host| host.places.free_count())
        };
        let rooms: Vec<u64> = self.servers.iter().filter_map(of).collect();
        let waiting = self.unplaced.len() as u64;
        // A page has at most one copy on a server.
        let most: u64 = rooms.iter().map(|room| (*room).min(pages + waiting)).sum();
        most >= (pages + waiting) * u64::from(self.options.copies)
    }

    /// Might there be more room soon?
    pub(super) fn may_get_room(&self) -> bool {
        let all: u32 =
            self.servers.iter().filter_map(|server| server.host.as_ref()).map(|host| host.segments).sum();
        self.servers.iter().any(|server| match &server.host {
            Some(host) => {
                host.lease == 0 || host.granting || (host.is_low() && all < self.options.segments_max)
            }
            None => false,
        })
    }

    /// Is no request under way, and nothing waiting to be sent? Then time alone changes nothing but leases.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let quiet = |server: &Server| server.host.as_ref().is_none_or(|host| host.sent.is_empty());
        self.gathered.is_empty() && self.unplaced.is_empty() && self.servers.iter().all(quiet)
    }

    /// Tickets of pages that are on their way out.
    pub fn on_their_way(&self) -> impl Iterator<Item = Ticket> {
        self.gathered.iter().map(|(ticket, _)| *ticket).chain(self.outs.values().filter_map(|out| out.ticket))
    }
}
