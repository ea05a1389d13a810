//! Grants: what a memory server decides, without I/O: which lease has which segment, and until when.
//!
//! ```text
//!   segment:  free ──grant──► of lease L ──close, or grace over──► dirty ──zeroed──► free
//! ```
//!
//! - A lease is one opening of one database. Its id is drawn anew, so no former life's requests can name it.
//! - A lease ends when its holder says so, or when no request of it came for the grace. The holder gives it up at
//!   half of that, counted from when it *sent* the last request that was answered, so it ends there first (`LeaseEndsAtHalf`).
//! - A segment is zeroed before it is granted again (`WipeBeforeGrant`), and a request reaches only segments of the lease that
//!   it names (`OwnerOnly`).
//! - Requests of a lease are done in the order of their numbers, each at most once (`RequestsInOrder`): a copy of an old
//!   write that arrives late would land in a slot that was given anew.
//! - While it drains, a server grants nothing, and its answers say so.

use std::collections::HashMap;
use std::io;

use crate::message::{Ask, Message, Refusal, Told, VERSION};
use crate::mutation::{Rule, on};

/// The memory behind the grants.
pub trait Memory {
    /// Appends pages of a segment.
    ///
    /// # Errors
    /// The system's.
    fn read(&mut self, segment: u32, page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()>;

    /// Overwrites pages of a segment.
    ///
    /// # Errors
    /// The system's.
    fn write(&mut self, segment: u32, page: u32, bytes: &[u8]) -> io::Result<()>;

    /// Makes a segment zeros.
    ///
    /// # Errors
    /// The system's.
    fn wipe(&mut self, segment: u32) -> io::Result<()>;
}

/// The memory that a server exports, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export {
    /// Segments.
    pub segments: u32,
    /// Pages of each.
    pub segment_pages: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Without a request for this long, a lease ends.
    pub grace_ms: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Segment {
    Free,
    Dirty,
    Of(u64),
}

#[derive(Debug)]
struct Lease {
    heard_ns: u64,
    last_number: u64,
}

/// The counts of a server so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Pages read by holders.
    pub pages_read: u64,
    /// Pages written by holders.
    pub pages_written: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Leases that ended by their grace.
    pub expired: u64,
}

/// The state of a server.
#[derive(Debug)]
pub struct Grants {
    export: Export,
    segments: Vec<Segment>,
    leases: HashMap<u64, Lease>,
    draining: bool,
    counts: Counts,
}

impl Grants {
    /// With all segments free; their memory is zeros.
    #[must_use]
    pub fn new(export: Export) -> Self {
        Self {
            segments: vec![Segment::Free; export.segments as usize],
            export,
            leases: HashMap::new(),
            draining: false,
            counts: Counts::default(),
        }
    }

    /// Leases that have not ended.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.leases.len()
    }

    /// Is this lease granted and not ended?
    #[must_use]
    pub fn is_live(&self, lease: u64) -> bool {
        self.leases.contains_key(&lease)
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Segments that are free and zeros.
    #[must_use]
    pub fn free_segments(&self) -> u32 {
        self.segments.iter().filter(|segment| **segment == Segment::Free).count() as u32
    }

    /// Grants nothing from now on, and says in each answer that the memory is wanted back.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Ends the leases whose grace is over. Their segments are dirty.
    pub fn expire(&mut self, now_ns: u64) {
        let grace_ns = u64::from(self.export.grace_ms) * 1_000_000;
        let over = |lease: &Lease| now_ns.saturating_sub(lease.heard_ns) > grace_ns;
        let ended: Vec<u64> =
            self.leases.iter().filter(|(_, lease)| over(lease)).map(|(id, _)| *id).collect();
        self.counts.expired += ended.len() as u64;
        ended.into_iter().for_each(|lease| self.end(lease));
    }

    /// Makes one dirty segment zeros and free. `false`: none is dirty.
    ///
    /// # Errors
    /// The memory's; the segment stays dirty.
    pub fn clean_one(&mut self, memory: &mut dyn Memory) -> io::Result<bool> {
        let Some(at) = self.dirty() else { return Ok(false) };
        if on(Rule::WipeBeforeGrant) {
            memory.wipe(at)?;
        }
        self.is_clean(at);
        Ok(true)
    }

    /// A segment to be zeroed, if there is one: it is no lease's until [`Grants::is_clean`] is called, so whoever does so needs no lock.
    #[must_use]
    pub fn dirty(&self) -> Option<u32> {
        (0..).zip(&self.segments).find(|(_, segment)| **segment == Segment::Dirty).map(|(at, _)| at)
    }

    /// A dirty segment is zeros, and free.
    ///
    /// # Panics
    /// When it is not dirty.
    pub fn is_clean(&mut self, segment: u32) {
        let state = &mut self.segments[segment as usize];
        assert_eq!(*state, Segment::Dirty, "only a dirty segment is zeroed");
        *state = Segment::Free;
    }

    fn end(&mut self, lease: u64) {
        self.leases.remove(&lease);
        for segment in self.segments.iter_mut().filter(|segment| **segment == Segment::Of(lease)) {
            *segment = Segment::Dirty;
        }
    }

    /// Does a request. `fresh` is the id of the lease that it opens, drawn by the caller.
    pub fn handle(
        &mut self,
        now_ns: u64,
        fresh: u64,
        request: Message<Ask>,
        memory: &mut dyn Memory,
    ) -> Message<Told> {
        let Message { mut lease, number, body } = request;
        let told = match body {
            Ask::Open { version, page_bytes } => {
                let opened = self.open(now_ns, fresh, version, page_bytes);
                if opened.is_ok() {
                    lease = fresh;
                }
                opened
            }
            Ask::Status => Ok(Told::Status(self.status())),
            body => self.admit(now_ns, lease, number).and_then(|()| self.act(lease, body, memory)),
        };
        let body = told.unwrap_or_else(|why| {
            self.counts.refused += 1;
            Told::Refused(why)
        });
        Message { lease, number, body }
    }

    fn open(&mut self, now_ns: u64, fresh: u64, version: u16, page_bytes: u32) -> Result<Told, Refusal> {
        match () {
            () if version != VERSION => Err(Refusal::Version),
            () if page_bytes != self.export.page_bytes => Err(Refusal::PageSize),
            () if self.draining => Err(Refusal::Draining),
            () => {
                self.leases.insert(fresh, Lease { heard_ns: now_ns, last_number: 0 });
                let Export { grace_ms, segment_pages, .. } = self.export;
                Ok(Told::Opened { grace_ms, segment_pages, free_segments: self.free_segments() })
            }
        }
    }

    /// Is this request of a living lease, and younger than what was seen of it?
    fn admit(&mut self, now_ns: u64, lease: u64, number: u64) -> Result<(), Refusal> {
        let lease = self.leases.get_mut(&lease).ok_or(Refusal::NoLease)?;
        if number <= lease.last_number && on(Rule::RequestsInOrder) {
            return Err(Refusal::OutOfOrder);
        }
        lease.last_number = lease.last_number.max(number);
        lease.heard_ns = now_ns;
        Ok(())
    }

    /// Does what was asked, whatever its number: what a one-sided transport does without the server, and [`Grants::handle`]
    /// with it.
    ///
    /// # Errors
    /// When the segment is not the lease's, or there are no such pages.
    pub fn act(&mut self, lease: u64, body: Ask, memory: &mut dyn Memory) -> Result<Told, Refusal> {
        match body {
            Ask::Grant(wanted) => return Ok(Told::Granted(self.grant(lease, wanted))),
            Ask::Read { page, pages } => {
                let (segment, first) = self.owned(lease, page, u64::from(pages))?;
                let mut bytes = Vec::with_capacity(pages as usize * self.export.page_bytes as usize);
                memory.read(segment, first, pages, &mut bytes).map_err(|_| Refusal::Malformed)?;
                self.counts.pages_read += u64::from(pages);
                return Ok(Told::Pages(bytes));
            }
            Ask::Write { page, bytes } => {
                let pages = bytes.len() as u64 / u64::from(self.export.page_bytes);
                if pages * u64::from(self.export.page_bytes) != bytes.len() as u64 {
                    return Err(Refusal::Malformed);
                }
                let (segment, first) = self.owned(lease, page, pages)?;
                memory.write(segment, first, &bytes).map_err(|_| Refusal::Malformed)?;
                self.counts.pages_written += pages;
            }
            Ask::Close => self.end(lease),
            Ask::Renew => {}
            Ask::Open { .. } | Ask::Status => return Err(Refusal::Malformed),
        }
        Ok(Told::Done { free_segments: self.free_segments(), draining: self.draining })
    }

    fn grant(&mut self, lease: u64, wanted: u32) -> Vec<u32> {
        let wanted = if self.draining { 0 } else { wanted as usize };
        let free = (0_u32..).zip(&mut self.segments).filter(|(_, segment)| **segment == Segment::Free);
        free.take(wanted)
            .map(|(at, segment)| {
                *segment = Segment::Of(lease);
                at
            })
            .collect()
    }

    /// Segment and first page of a run that lies in one segment of this lease.
    fn owned(&self, lease: u64, page: u64, pages: u64) -> Result<(u32, u32), Refusal> {
        let of = u64::from(self.export.segment_pages);
        let (segment, first) = (page / of, page % of);
        let owner =
            self.segments.get(usize::try_from(segment).unwrap_or(usize::MAX)).ok_or(Refusal::Malformed)?;
        if !(1..=64).contains(&pages) || first + pages > of {
            return Err(Refusal::Malformed);
        }
        if *owner != Segment::Of(lease) && on(Rule::OwnerOnly) {
            return Err(Refusal::NotOwner);
        }
        Ok((segment as u32, first as u32))
    }

    /// Lines for people.
    fn status(&self) -> String {
        let Export { segments, segment_pages, page_bytes, grace_ms } = self.export;
        let of = |state: fn(&Segment) -> bool| self.segments.iter().filter(|segment| state(segment)).count();
        let Counts { pages_read, pages_written, refused, expired } = self.counts;
        format!(
            "exports: {segments} segments of {} KiB, {} granted, {} to be zeroed, {} free\nleases: {}, grace {} s, {expired} expired{}\npages: {pages_read} read, {pages_written} written; {refused} requests refused\n",
            u64::from(segment_pages) * u64::from(page_bytes) / 1024,
            of(|segment| matches!(segment, Segment::Of(_))),
            of(|segment| *segment == Segment::Dirty),
            of(|segment| *segment == Segment::Free),
            self.leases.len(),
            f64::from(grace_ms) / 1000.0,
            if self.draining { "; draining" } else { "" },
        )
    }
}
