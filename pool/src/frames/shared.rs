//! The pool's state: what is read without locks, and what stands under the lock.
//!
//! Lock order: the pool ([`Shared::core`]), then a read's waiters. Nothing is submitted to a device and no waiter is
//! woken under a lock: [`Shared::with`] does that afterwards, with what was left in [`Core::after`].
//!
//! # Why no waiter sleeps for ever
//! A future that needs a frame, or a page without pins, takes a [`Ticket`] first: that raises `waiting`; then it
//! looks once more; then it sleeps until the pool's events have moved on. Pins are given back without the lock; the
//! thread that gives the last one back lowers the state's pins, *then* looks at `waiting`. All four steps are
//! sequentially consistent, so either the waiter sees the pin gone, or the pin's owner sees the waiter. Everything
//! else that frees something is done under the lock and says so there.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use thermocline_base::io::{AlignedBytes, IoError};
use thermocline_base::sync::{AtomicU32, AtomicU64, CachePadded, MAX_THREADS, Mutex, Ordering, thread_index};

use super::guard::{PageGuard, Target};
use super::map::{self, DIRTY, DOOMED, DOOMED_KEY, LATCHED, PageMap, Slot, WRITING};
use super::memory::FrameMemory;
use super::read::{ReadFlight, ReadWait};
use super::stats::DeviceStats;
use super::write::WriteFlight;
use super::{DeviceId, PageId};
use crate::device::{PageDevice, Wanted};
use crate::error::PoolError;
use crate::mutation::{self, Rule};
use crate::page::PageSize;
use crate::policy::{Candidates, Policy};

/// Buffers of one page that are kept for the next read.
const SPARE_BUFFERS: usize = 256;

pub(super) struct Shared {
    pub(super) map: PageMap,
    pub(super) memory: FrameMemory,
    pub(super) page_size: PageSize,
    /// Hits of a page are counted up to this number.
    pub(super) most_uses: u16,
    /// Number of those that want to know when a last pin goes: tickets, one more while frames lie behind the limit,
    /// and one while pages stand in a former table of the map.
    pub(super) waiting: CachePadded<AtomicU32>,
    pub(super) hits: Box<[CachePadded<Hits>; MAX_THREADS]>,
    pub(super) core: Mutex<Core>,
    pub(super) resizing: Mutex<()>,
    buffers: Mutex<Vec<AlignedBytes>>,
    /// Bytes of buffers of reads and writes that are under way.
    pub(super) in_flight_bytes: AtomicU64,
    me: Weak<Shared>,
}

/// Hits of one thread: written by it alone.
pub(super) struct Hits {
    pub(super) optimistic: AtomicU64,
    pub(super) pinned: AtomicU64,
}

impl Hits {
    const fn new() -> Self {
        Self { optimistic: AtomicU64::new(0), pinned: AtomicU64::new(0) }
    }
}

/// The use of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// Nothing, and its memory was given back.
    Nothing,
    /// Nothing, and it is in the list of free frames.
    Free,
    /// A read or a new page that is not published.
    Reserved,
    /// A page that the map finds.
    Resident,
    /// A page that was dropped while it was pinned.
    Doomed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) page: u64,
    pub(super) slot: Slot,
    pub(super) usage: Use,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) misses: u64,
    pub(super) joined: u64,
    pub(super) read_ahead: u64,
    pub(super) evictions: u64,
    pub(super) reads: u64,
    pub(super) read_errors: u64,
    pub(super) writes: u64,
    pub(super) pages_written: u64,
    pub(super) write_errors: u64,
}

pub(super) struct Core {
    devices: Vec<Option<Device>>,
    /// Frames `0..limit` may be used.
    pub(super) limit: u32,
    pub(super) budget_bytes: u64,
    pub(super) frames: Vec<Frame>,
    pub(super) free: Vec<u32>,
    /// Frames behind the limit that are still in use.
    pub(super) overhang: u32,
    /// The shrinking thread gives the memory of frames behind the limit back, all together.
    pub(super) give_back_later: bool,
    pub(super) policy: Box<dyn Policy>,
    /// Pages that are being read, and which of a read's pages they are.
    pub(super) reads: HashMap<u64, (ReadFlight, usize)>,
    /// Changed pages that no write is under way of, or that were changed again since it began; and when they were changed.
    pub(super) dirty: BTreeMap<u64, u64>,
    /// Pages that are being written, and when what is written was changed.
    pub(super) writes: BTreeMap<u64, u64>,
    /// Counts changes.
    pub(super) changes: u64,
    /// Counts what waiters may wait for.
    events: u64,
    sleepers: BTreeMap<u64, Waker>,
    tickets: u64,
    pub(super) counts: Counts,
    pub(super) after: After,
}

struct Device {
    device: Arc<PageDevice>,
    counts: DeviceStats,
    write_failures: u64,
    last_failure: Option<IoError>,
}

/// Work that is done once the lock is released.
#[derive(Default)]
pub(super) struct After {
    pub(super) reads: Vec<ReadFlight>,
    pub(super) writes: Vec<(WriteFlight, AlignedBytes)>,
    pub(super) wakers: Vec<Waker>,
}

impl Core {
    /// Frames whose memory was not given back. Behind the limit these are the overhang: what is free there is nothing at once.
    pub(super) fn frames_with_memory(&self) -> u64 {
        let before = self.frames.len().min(self.limit as usize);
        let count = before as u64 + u64::from(self.overhang);
        debug_assert_eq!(count, self.frames.iter().filter(|it| it.usage != Use::Nothing).count() as u64);
        debug_assert_eq!(self.free.len(), self.frames.iter().filter(|it| it.usage == Use::Free).count());
        count
    }

    pub(super) fn device(&self, id: DeviceId) -> Result<&Arc<PageDevice>, PoolError> {
        self.entry(id).map(|entry| &entry.device).ok_or(PoolError::UnknownDevice(id.0))
    }

    fn entry(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(usize::from(id.0).checked_sub(1)?)?.as_ref()
    }

    pub(super) fn add_device(&mut self, device: Arc<PageDevice>) -> DeviceId {
        let entry =
            Some(Device { device, counts: DeviceStats::default(), write_failures: 0, last_failure: None });
        let place = self.devices.iter().position(Option::is_none).unwrap_or(self.devices.len());
        let id = u16::try_from(place + 1).ok().filter(|id| *id < u16::MAX);
        let id = id.expect("a database has fewer than 65,534 page files");
        if place == self.devices.len() {
            self.devices.push(entry);
        } else {
            self.devices[place] = entry;
        }
        DeviceId(id)
    }

    /// The counts of a device; something to count in, if it was removed.
    pub(super) fn counts_of<T: Default>(
        &mut self,
        id: DeviceId,
        count: impl FnOnce(&mut DeviceStats) -> T,
    ) -> T {
        let place = usize::from(id.0).checked_sub(1);
        let entry = place.and_then(|place| self.devices.get_mut(place)).and_then(Option::as_mut);
        entry.map_or_else(T::default, |entry| count(&mut entry.counts))
    }

    pub(super) fn remove_device(&mut self, id: DeviceId) {
        if let Some(entry) = usize::from(id.0).checked_sub(1).and_then(|place| self.devices.get_mut(place)) {
            *entry = None;
        }
    }

    /// Number of writes to a device that have failed, and the last failure.
    pub(super) fn write_failures(&self, id: DeviceId) -> (u64, Option<IoError>) {
        self.entry(id).map_or((0, None), |entry| (entry.write_failures, entry.last_failure.clone()))
    }

    /// The same for all devices.
    pub(super) fn all_write_failures(&self) -> (u64, Option<IoError>) {
        let entries = self.devices.iter().flatten();
        entries.fold((0, None), |(count, last), entry| {
            (count + entry.write_failures, entry.last_failure.clone().or(last))
        })
    }

    pub(super) fn note_write_failure(&mut self, id: DeviceId, error: IoError) {
        self.counts.write_errors += 1;
        if let Some(Some(entry)) =
            usize::from(id.0).checked_sub(1).and_then(|place| self.devices.get_mut(place))
        {
            entry.write_failures += 1;
            entry.last_failure = Some(error);
        }
    }

    /// Something has become free.
    pub(super) fn notify(&mut self) {
        self.events += 1;
        while let Some((_, waker)) = self.sleepers.pop_first() {
            self.after.wakers.push(waker);
        }
    }
}

/// The result of the first step of a pin.
pub(super) enum Begin<'a> {
    /// The page is there.
    Hit(PageGuard<'a>),
    /// It is being read.
    Wait(ReadWait<'a>),
    /// A writer or an eviction has it alone, or no frame is free. Says how many writes have failed so far, and the
    /// last failure.
    Busy(u64, Option<IoError>),
}

/// The pool's answer to the policy.
struct Eviction<'a> {
    map: &'a PageMap,
    frames: &'a [Frame],
    /// Pages that have to be written before they can go.
    dirty: Vec<u64>,
    /// The page taken was the last one in former tables of the map.
    emptied: bool,
}

/// Pages that are written at a time because frames are needed.
const CLEAN_AT_ONCE: usize = 32;

impl Candidates for Eviction<'_> {
    fn uses(&self, frame: u32) -> u16 {
        self.map.uses(self.frames[frame as usize].slot)
    }

    fn set_uses(&self, frame: u32, uses: u16) {
        self.map.set_uses(self.frames[frame as usize].slot, uses);
    }

    fn take(&mut self, frame: u32) -> bool {
        let Frame { page, slot, .. } = self.frames[frame as usize];
        if self.map.latch(slot, DIRTY | WRITING | DOOMED).is_some() {
            self.emptied = self.map.remove(slot, page);
            return true;
        }
        let state = self.map.state(slot).load(Ordering::Relaxed);
        if state & (DIRTY | WRITING) == DIRTY && self.dirty.len() < CLEAN_AT_ONCE {
            self.dirty.push(page);
        }
        false
    }
}

impl Shared {
    pub(super) fn new(
        page_size: PageSize,
        frames_max: u64,
        policy: Box<dyn Policy>,
    ) -> Result<Arc<Self>, PoolError> {
        let memory = FrameMemory::new(page_size, frames_max)?;
        let frames = frames_max.min(memory.frames()).min(1 << map::FRAME_BITS);
        let map = PageMap::new(frames)?;
        let core = Core {
            devices: Vec::new(),
            limit: 0,
            budget_bytes: 0,
            frames: Vec::new(),
            free: Vec::new(),
            overhang: 0,
            give_back_later: false,
            reads: HashMap::new(),
            dirty: BTreeMap::new(),
            writes: BTreeMap::new(),
            changes: 0,
            events: 0,
            sleepers: BTreeMap::new(),
            tickets: 0,
            counts: Counts::default(),
            after: After::default(),
            policy,
        };
        Ok(Arc::new_cyclic(|me| Self {
            map,
            memory,
            page_size,
            most_uses: core.policy.most_uses(),
            waiting: CachePadded::default(),
            hits: Box::new([const { CachePadded(Hits::new()) }; MAX_THREADS]),
            core: Mutex::new(core),
            resizing: Mutex::new(()),
            buffers: Mutex::new(Vec::new()),
            in_flight_bytes: AtomicU64::new(0),
            me: Weak::clone(me),
        }))
    }

    pub(super) fn me(&self) -> Arc<Self> {
        self.me.upgrade().expect("a pool that is in use exists")
    }

    /// Runs `step` under the lock, and afterwards what it left to be done without.
    pub(super) fn with<T>(&self, step: impl FnOnce(&mut Core) -> T) -> T {
        let (value, after) = {
            let mut core = self.core.lock();
            let value = step(&mut core);
            (value, std::mem::take(&mut core.after))
        };
        for waker in after.wakers {
            waker.wake();
        }
        for (flight, buffer) in after.writes {
            flight.begin(buffer);
        }
        for flight in after.reads {
            flight.begin();
        }
        value
    }

    // Hits.

    #[inline(always)]
    fn hit(&self) -> &Hits {
        // Below `MAX_THREADS` anyway; the compiler does not know.
        &self.hits[thread_index() % MAX_THREADS]
    }

    #[inline(always)]
    pub(super) fn count_optimistic(&self) {
        let count = &self.hit().optimistic;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn count_pinned(&self) {
        let count = &self.hit().pinned;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn try_pin(&self, page: u64) -> Option<PageGuard<'_>> {
        match self.map.pin(page, self.most_uses) {
            Ok((slot, frame)) => {
                self.count_pinned();
                Some(PageGuard::new(self, slot, frame))
            }
            Err(None) => None,
            Err(Some(wrong)) => {
                self.unpin(wrong);
                None
            }
        }
    }

    #[inline(always)]
    pub(super) fn unpin(&self, slot: Slot) {
        let before = self.map.unpin(slot);
        if map::pins_of(before) == 1 && (before & DOOMED != 0 || self.someone_waits()) {
            self.last_unpin(slot);
        }
    }

    #[inline(always)]
    fn someone_waits(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0 && mutation::on(Rule::LastUnpinNotifies)
    }

    #[cold]
    fn last_unpin(&self, slot: Slot) {
        self.with(|core| {
            if self.map.page_in(slot) == DOOMED_KEY {
                self.free_doomed(core, slot);
            } else {
                self.tidy(core, slot);
            }
            core.notify();
        });
    }

    /// Takes an entry out of the map that the caller has latched.
    fn remove_entry(&self, slot: Slot, page: u64) {
        if self.map.remove(slot, page) {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Frees a doomed page if it has no pin any more.
    fn free_doomed(&self, core: &mut Core, slot: Slot) {
        if let Some(state) = self.map.latch(slot, 0) {
            let frame = map::frame_of(state);
            self.remove_entry(slot, core.frames[frame as usize].page);
            self.release_frame(core, frame);
        }
    }

    /// Puts a page where it belongs by now, if it has no pin: into a frame before the limit, or nowhere if there is
    /// none, and into the current table of the map.
    pub(super) fn tidy(&self, core: &mut Core, slot: Slot) {
        let frame = map::frame_of(self.map.state(slot).load(Ordering::SeqCst));
        let is_page = |it: &Frame| it.usage == Use::Resident && it.slot == slot;
        if !core.frames.get(frame as usize).is_some_and(is_page) {
            return;
        }
        let frame = if frame < core.limit { Some(frame) } else { self.leave_overhang(core, slot, frame) };
        if let Some(frame) = frame
            && self.map.is_former(slot)
            && self.map.latch(slot, DOOMED).is_some()
        {
            let page = core.frames[frame as usize].page;
            core.frames[frame as usize].slot = self.map.insert_again(slot);
            self.remove_entry(slot, page);
        }
    }

    /// Moves a page from behind the limit into a free frame, or into that of the coldest page; takes it out if there is
    /// neither. Gives the frame that it has then; it keeps its own as long as it is in use, or is to be written and
    /// found no other.
    fn leave_overhang(&self, core: &mut Core, slot: Slot, from: u32) -> Option<u32> {
        // Latched, it is no candidate itself.
        if self.map.latch(slot, DOOMED).is_none() {
            return Some(from);
        }
        let page = core.frames[from as usize].page;
        if let Ok(Some(to)) = self.acquire_frame(core) {
            // SAFETY: the latch is ours, so no other thread fills the frame.
            self.memory.fill(to, unsafe { self.memory.bytes(from) });
            self.map.relocate(slot, to);
            core.frames[to as usize] = Frame { page, slot, usage: Use::Resident };
            core.policy.moved(from, to);
            self.release_frame(core, from);
            return Some(to);
        }
        if self.map.state(slot).load(Ordering::SeqCst) & (DIRTY | WRITING) == 0 {
            self.remove_entry(slot, page);
            core.policy.remove(from);
            core.counts.evictions += 1;
            self.release_frame(core, from);
            return None;
        }
        self.map.state(slot).fetch_and(!LATCHED, Ordering::SeqCst);
        if core.dirty.contains_key(&page) {
            self.start_write(core, page);
        }
        Some(from)
    }

    // Frames.

    /// An empty frame, if one can be had at once. Otherwise changed pages may be on their way to the device.
    pub(super) fn acquire_frame(&self, core: &mut Core) -> Result<Option<u32>, PoolError> {
        if core.limit == 0 {
            let (budget_bytes, page_bytes) = (core.budget_bytes, self.page_size.bytes());
            return Err(PoolError::NoFrames { budget_bytes, page_bytes });
        }
        if let Some(frame) = core.free.pop() {
            core.frames[frame as usize].usage = Use::Reserved;
            return Ok(Some(frame));
        }
        if core.frames.len() < core.limit as usize {
            core.frames.push(Frame { page: 0, slot: Slot(0), usage: Use::Reserved });
            return Ok(Some(core.frames.len() as u32 - 1));
        }
        loop {
            let Some(frame) = self.evict(core) else { return Ok(None) };
            core.frames[frame as usize].usage = Use::Reserved;
            if frame < core.limit {
                return Ok(Some(frame));
            }
            self.release_frame(core, frame);
        }
    }

    /// Lets the policy take a page out of its frame, which is the caller's then. If that is impossible, changed pages may
    /// be on their way to the device.
    pub(super) fn evict(&self, core: &mut Core) -> Option<u32> {
        let Core { policy, frames, .. } = core;
        let mut eviction = Eviction { map: &self.map, frames, dirty: Vec::new(), emptied: false };
        let chosen = policy.choose(&mut eviction);
        let Eviction { dirty, emptied, .. } = eviction;
        if emptied {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        match chosen {
            Some(_) => core.counts.evictions += 1,
            None => dirty.into_iter().for_each(|page| self.start_write(core, page)),
        }
        chosen
    }

    /// Takes a frame from its owner: it is free, or nothing behind the limit.
    pub(super) fn release_frame(&self, core: &mut Core, frame: u32) {
        let entry = &mut core.frames[frame as usize];
        debug_assert!(!matches!(entry.usage, Use::Nothing | Use::Free), "frame {frame} is released once");
        if frame < core.limit {
            entry.usage = Use::Free;
            core.free.push(frame);
        } else {
            entry.usage = Use::Nothing;
            core.overhang -= 1;
            if core.overhang == 0 {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            if !core.give_back_later {
                self.memory.give_back(frame, 1);
            }
        }
        core.notify();
    }

    /// Puts the page that is in a reserved frame into the map.
    pub(super) fn settle_frame(&self, core: &mut Core, frame: u32, page: u64, flags: u64, pins: u64) -> Slot {
        let slot = self.map.insert(page, frame, flags, pins);
        core.frames[frame as usize] = Frame { page, slot, usage: Use::Resident };
        core.policy.insert(frame, page);
        slot
    }

    /// Takes a page out of the map, whatever state it is in, without writing it.
    pub(super) fn drop_page(&self, core: &mut Core, page: u64) {
        core.dirty.remove(&page);
        let Some(slot) = self.map.find(page) else { return };
        let frame = map::frame_of(self.map.state(slot).load(Ordering::SeqCst));
        core.policy.remove(frame);
        if self.map.latch(slot, 0).is_some() {
            self.remove_entry(slot, page);
            self.release_frame(core, frame);
            return;
        }
        core.frames[frame as usize].usage = Use::Doomed;
        self.map.doom(slot);
        // The last pin may have gone just before.
        self.free_doomed(core, slot);
    }

    /// Drops a page, and lets no later pin find what is being read of it.
    pub(super) fn forget_page(&self, core: &mut Core, page: u64) {
        self.drop_page(core, page);
        if mutation::off(Rule::DiscardDetachesReads) {
            return;
        }
        if let Some((flight, index)) = core.reads.remove(&page) {
            flight.detach(index);
        }
    }

    /// The same for a range of pages, at once. Looks through all frames.
    pub(super) fn forget_pages(&self, core: &mut Core, first: u64, last: u64) {
        let frames = core.frames.iter().filter(|frame| frame.usage == Use::Resident);
        let mut pages: Vec<u64> = frames.map(|frame| frame.page).collect();
        pages.extend(core.reads.keys());
        for page in pages.into_iter().filter(|page| (first..=last).contains(page)) {
            self.forget_page(core, page);
        }
    }

    /// The first step of a pin.
    pub(super) fn begin(&self, id: PageId, wanted: Wanted) -> Result<Begin<'_>, PoolError> {
        self.with(|core| {
            let page = id.packed();
            let busy = |core: &Core| {
                let (failures, error) = core.all_write_failures();
                Ok(Begin::Busy(failures, error))
            };
            if self.map.find(page).is_some() {
                return match self.try_pin(page) {
                    Some(guard) => Ok(Begin::Hit(guard)),
                    None => busy(core),
                };
            }
            if let Some((flight, index)) = core.reads.get(&page) {
                let wait = ReadWait::join(self, flight, *index);
                core.counts.joined += 1;
                core.counts_of(id.device(), |counts| counts.joined += 1);
                return Ok(Begin::Wait(wait));
            }
            let device = Arc::clone(core.device(id.device())?);
            // What is still being written of its former life must not be read.
            if core.writes.contains_key(&page) {
                return busy(core);
            }
            let Some(frame) = self.acquire_frame(core)? else { return busy(core) };
            core.counts.misses += 1;
            core.counts_of(id.device(), |counts| counts.misses += 1);
            let flight = ReadFlight::new(self.me(), device, id, vec![frame], wanted);
            let wait = ReadWait::join(self, &flight, 0);
            core.reads.insert(page, (flight.clone(), 0));
            core.after.reads.push(flight);
            Ok(Begin::Wait(wait))
        })
    }

    // Writers.

    /// A changed or new page becomes visible.
    pub(super) fn publish(&self, id: PageId, target: &Target, bytes: &[u8]) {
        let page = id.packed();
        self.with(|core| {
            match *target {
                Target::Resident(slot, frame) => {
                    if self.map.state(slot).load(Ordering::SeqCst) & DOOMED != 0 {
                        self.remove_entry(slot, page);
                        self.release_frame(core, frame);
                        return;
                    }
                    self.map.change(slot, || self.memory.fill(frame, bytes));
                    self.map.state(slot).fetch_or(DIRTY, Ordering::SeqCst);
                    self.map.state(slot).fetch_and(!LATCHED, Ordering::SeqCst);
                }
                Target::New(frame) => {
                    self.forget_page(core, page);
                    self.memory.fill(frame, bytes);
                    self.settle_frame(core, frame, page, DIRTY, 0);
                }
            }
            core.changes += 1;
            core.dirty.insert(page, core.changes);
            if (core.overhang > 0 || self.map.has_former())
                && let Some(slot) = self.map.find(page)
            {
                self.tidy(core, slot);
            }
            core.notify();
        });
    }

    /// A writer changes nothing.
    pub(super) fn give_up(&self, id: PageId, target: &Target) {
        self.with(|core| match *target {
            Target::Resident(slot, frame) => {
                if self.map.state(slot).load(Ordering::SeqCst) & DOOMED != 0 {
                    self.remove_entry(slot, id.packed());
                    self.release_frame(core, frame);
                } else {
                    self.map.state(slot).fetch_and(!LATCHED, Ordering::SeqCst);
                    self.tidy(core, slot);
                    core.notify();
                }
            }
            Target::New(frame) => self.release_frame(core, frame),
        });
    }

    // Buffers.

    /// A buffer for some pages, counted until it is given back.
    pub(super) fn take_buffer(&self, pages: usize) -> AlignedBytes {
        let bytes = pages * self.page_size.bytes();
        self.in_flight_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let spare = if pages == 1 { self.buffers.lock().pop() } else { None };
        spare.unwrap_or_else(|| AlignedBytes::zeroed(bytes))
    }

    pub(super) fn give_buffer(&self, buffer: AlignedBytes) {
        self.in_flight_bytes.fetch_sub(buffer.len() as u64, Ordering::Relaxed);
        if buffer.len() == self.page_size.bytes() {
            let mut buffers = self.buffers.lock();
            if buffers.len() < SPARE_BUFFERS {
                buffers.push(buffer);
            }
        }
    }

    /// Memory of buffers that wait for the next read.
    pub(super) fn spare_buffer_bytes(&self) -> usize {
        self.buffers.lock().len() * self.page_size.bytes()
    }
}

/// The wish to know when something becomes free, from now on.
pub(super) struct Ticket<'a> {
    shared: &'a Shared,
    number: u64,
    seen: u64,
}

impl<'a> Ticket<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        let mut core = shared.core.lock();
        core.tickets += 1;
        Self { shared, number: core.tickets, seen: core.events }
    }
}

impl Future for Ticket<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        // The former waker goes when the lock is free: with it a whole task may go, and the guards that it holds.
        let _former = {
            let mut core = self.shared.core.lock();
            if core.events != self.seen {
                return Poll::Ready(());
            }
            core.sleepers.insert(self.number, waker)
        };
        Poll::Pending
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let removed = self.shared.core.lock().sleepers.remove(&self.number);
        drop(removed);
        self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
