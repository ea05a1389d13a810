//! Disks and SSDs in simulated time: for the simulator of an SSD level, and for files that answer as such a device would
//! ([`crate::io::ProfileIo`]).
//!
//! ```text
//!   disk     done = start + seek(distance) + rotation to the place + bytes / rate       one arm a member
//!            reads that go on where the last one ended: from the drive's buffer, at the rate of the media
//!   other    done = start + max(latency, service), the next one starts after its service
//!            service = max(1 / operations a second, bytes / bytes a second)
//! ```
//!
//! Rules:
//! - Seek: least + b × √(distance / capacity), 0 on the same track; b is chosen so that the mean over uniform places is what the
//!   device says ([mean of √|x − y|] = 8 / 15). A database on the first percent of a disk therefore seeks much less.
//! - Rotation: the platter stands where the time says; a place has the angle of its offset. A track has what passes the head in one
//!   revolution, so a short gap costs as long as it takes to pass by.
//! - After a read the drive goes on reading into its buffer, up to 2 MiB, as long as nothing else comes; contiguous writes are
//!   collected in the same way. A buffered byte leaves at the speed of the bus.
//! - Members of a striped set serve their parts beside each other.
//!
//! Limits: one zone (outer tracks are no faster), one segment of buffer, no garbage collection in the SSD.

/// Times of a disk's movements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mechanics {
    /// Mean time of a seek between uniform places.
    pub seek_mean_ns: f64,
    /// Time of the shortest seek.
    pub seek_least_ns: f64,
    /// Time of one revolution; half of it is the mean latency.
    pub revolution_ns: f64,
}

/// A device.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceModel {
    /// Its name in reports.
    pub name: String,
    /// Bytes of each member.
    pub capacity_bytes: u64,
    /// For disks.
    pub mechanics: Option<Mechanics>,
    /// Disks in a striped set.
    pub members: u32,
    /// Bytes that lie on one member before the next one's turn.
    pub stripe_bytes: u64,
    /// Time of the smallest operation on an idle device without an arm.
    pub latency_ns: f64,
    /// Operations a second; infinite where only bytes count.
    pub operations_per_s: f64,
    /// Bytes a second that are read.
    pub read_bytes_per_s: f64,
    /// Bytes a second that are written.
    pub write_bytes_per_s: f64,
    /// Waiting operations among which a disk chooses the next one.
    pub queue: u32,
}

const MIB: f64 = 1_048_576.0;
/// Bytes that a drive reads ahead.
const AHEAD_BYTES: f64 = 2.0 * MIB;
/// Serial ATA, 3 Gb/s with 8 bits of 10.
const BUS_BYTES_PER_NS: f64 = 0.3;
/// Mean of √|x − y| for uniform x and y.
const MEAN_ROOT: f64 = 8.0 / 15.0;

impl DeviceModel {
    /// The models that have a name.
    pub const NAMES: [&'static str; 5] =
        ["hdd-7200", "hdd-7200x3", "fusion-io", "network-volume", "object-store"];

    /// The model of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let pipe = |latency_us: f64, operations_per_s, read: f64, write: f64| Self {
            name: name.to_owned(),
            capacity_bytes: 1 << 50,
            mechanics: None,
            members: 1,
            stripe_bytes: 1 << 50,
            latency_ns: latency_us * 1e3,
            operations_per_s,
            read_bytes_per_s: read,
            write_bytes_per_s: write,
            queue: 32,
        };
        Some(match name {
            // Canim et al., VLDB 2010, §4.1: 1 TB, 8.2 ms, 4.17 ms, 1070 Mb/s. The shortest seek is a common drive's.
            "hdd-7200" => Self::disk(name, 1),
            "hdd-7200x3" => Self::disk(name, 3),
            // Its table 1. 88,000 operations of 4 KiB are the 370 MB/s of its mixed load.
            "fusion-io" => pipe(50.0, 88_000.0, 700e6, 550e6),
            // A usual cloud volume.
            "network-volume" => pipe(700.0, 3_000.0, 125.0 * MIB, 125.0 * MIB),
            // Time to the first byte and requests a second of one prefix, over 10 Gb/s.
            "object-store" => pipe(30_000.0, 5_500.0, 1.25e9, 1.25e9),
            _ => return None,
        })
    }

    fn disk(name: &str, members: u32) -> Self {
        Self {
            name: name.to_owned(),
            capacity_bytes: 1_000_000_000_000,
            mechanics: Some(Mechanics {
                seek_mean_ns: 8.2e6,
                seek_least_ns: 0.8e6,
                revolution_ns: 2.0 * 4.17e6,
            }),
            members,
            stripe_bytes: 512 << 10,
            latency_ns: 0.0,
            operations_per_s: f64::INFINITY,
            read_bytes_per_s: 1070e6 / 8.0,
            write_bytes_per_s: 1070e6 / 8.0,
            queue: 32,
        }
    }

    /// Is there something that no device can be?
    ///
    /// # Errors
    /// What, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        let above = |what: &str, value: f64| match value > 0.0 && !value.is_nan() {
            true => Ok(()),
            false => Err(format!("device {}: {what} is above 0, not {value}", self.name)),
        };
        above("operations a second", self.operations_per_s)?;
        above("bytes a second read", self.read_bytes_per_s)?;
        above("bytes a second written", self.write_bytes_per_s)?;
        above("capacity", self.capacity_bytes as f64)?;
        above("the stripe", self.stripe_bytes as f64)?;
        above("the number of members", f64::from(self.members))?;
        above("the queue", f64::from(self.queue))?;
        if let Some(mechanics) = self.mechanics {
            above("a revolution", mechanics.revolution_ns)?;
            if !(mechanics.seek_least_ns >= 0.0 && mechanics.seek_mean_ns >= mechanics.seek_least_ns) {
                return Err(format!("device {}: the mean seek is at least the shortest one", self.name));
            }
        }
        if !(self.latency_ns >= 0.0 && self.latency_ns.is_finite()) {
            return Err(format!("device {}: latency is 0 or more", self.name));
        }
        Ok(())
    }

    /// Mean time of a read of so many bytes on an idle device: beside the last one, and anywhere.
    #[must_use]
    pub fn read_ns(&self, bytes: u64) -> (f64, f64) {
        let transfer = bytes as f64 * 1e9 / self.read_bytes_per_s;
        match self.mechanics {
            Some(of) => (transfer, of.seek_mean_ns + of.revolution_ns / 2.0 + transfer),
            None => {
                let service = transfer.max(1e9 / self.operations_per_s);
                (service, service.max(self.latency_ns))
            }
        }
    }
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Operation {
    /// Where.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Is it a write?
    pub write: bool,
}

/// One arm, or one device without.
#[derive(Clone, Debug)]
struct Member {
    free_ns: f64,
    /// Where the last operation ended, and whether it wrote.
    end: u64,
    wrote: bool,
}

/// When an operation that starts now would be over.
#[derive(Clone, Copy, Debug)]
struct Served {
    /// Its answer is there.
    done_ns: f64,
    /// The next one can start.
    free_ns: f64,
}

/// A device at work. Operations start in the order of the calls.
#[derive(Clone, Debug)]
pub struct Device {
    model: DeviceModel,
    members: Vec<Member>,
    busy_ns: f64,
    root: f64,
    track_bytes: u64,
}

impl Device {
    /// An idle one.
    #[must_use]
    pub fn new(model: DeviceModel) -> Self {
        let member = Member { free_ns: 0.0, end: 0, wrote: false };
        let (root, track_bytes) = match &model.mechanics {
            Some(of) => (
                (of.seek_mean_ns - of.seek_least_ns) / MEAN_ROOT,
                (model.read_bytes_per_s * of.revolution_ns / 1e9) as u64,
            ),
            None => (0.0, 1),
        };
        Self { members: vec![member; model.members as usize], model, busy_ns: 0.0, root, track_bytes }
    }

    /// The model that it follows.
    #[must_use]
    pub fn model(&self) -> &DeviceModel {
        &self.model
    }

    /// Time that its members were at work, all together.
    #[must_use]
    pub fn busy_ns(&self) -> f64 {
        self.busy_ns
    }

    /// Number of its members.
    #[must_use]
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The member that an offset lies on, and where there.
    #[must_use]
    pub fn place(&self, offset: u64) -> (usize, u64) {
        if self.members.len() == 1 {
            return (0, offset);
        }
        let (stripe, members) = (self.model.stripe_bytes, self.members.len() as u64);
        let (number, within) = (offset / stripe, offset % stripe);
        ((number % members) as usize, number / members * stripe + within)
    }

    /// When the member can begin its next operation.
    #[must_use]
    pub fn free_ns(&self, member: usize) -> f64 {
        self.members[member].free_ns
    }

    /// Time that an operation on a member would take if it began at `now_ns`, and no earlier than the member is free.
    #[must_use]
    pub fn estimate_ns(&self, member: usize, now_ns: f64, operation: &Operation) -> f64 {
        let start = now_ns.max(self.members[member].free_ns);
        self.serve_on(member, start, operation).done_ns - start
    }

    /// Serves an operation on one member, whose offset counts there. Gives the time when it is done.
    pub fn begin(&mut self, member: usize, now_ns: f64, operation: &Operation) -> f64 {
        let start = now_ns.max(self.members[member].free_ns);
        let served = self.serve_on(member, start, operation);
        self.busy_ns += served.free_ns - start;
        self.members[member] = Member {
            free_ns: served.free_ns,
            end: operation.offset + operation.bytes,
            wrote: operation.write,
        };
        served.done_ns
    }

    /// Serves an operation, all of its parts at once. Gives the time when it is done.
    pub fn serve(&mut self, now_ns: f64, operation: &Operation) -> f64 {
        if self.members.len() == 1 {
            return self.begin(0, now_ns, operation);
        }
        let (mut done, mut at) = (now_ns, operation.offset);
        while let Some((member, part)) = self.part_at(operation, at) {
            done = done.max(self.begin(member, now_ns, &part));
            at += part.bytes;
        }
        done
    }

    /// The part of an operation that begins at an offset: on which member, and where there. `None` behind its end.
    #[must_use]
    pub fn part_at(&self, operation: &Operation, at: u64) -> Option<(usize, Operation)> {
        let end = operation.offset + operation.bytes;
        let to = match self.members.len() {
            1 => end,
            _ => end.min((at / self.model.stripe_bytes + 1) * self.model.stripe_bytes),
        };
        let (member, offset) = self.place(at);
        (at < end).then_some((member, Operation { offset, bytes: to - at, write: operation.write }))
    }

    #[inline]
    fn serve_on(&self, member: usize, start: f64, operation: &Operation) -> Served {
        let rate = if operation.write { self.model.write_bytes_per_s } else { self.model.read_bytes_per_s };
        let transfer = operation.bytes as f64 * 1e9 / rate;
        let Some(mechanics) = &self.model.mechanics else {
            let service = transfer.max(1e9 / self.model.operations_per_s);
            return Served { done_ns: start + service.max(self.model.latency_ns), free_ns: start + service };
        };
        let last = &self.members[member];
        if let Some(done_ns) = self.streamed(last, start, operation) {
            return Served { done_ns, free_ns: done_ns };
        }
        let same_track = last.end / self.track_bytes == operation.offset / self.track_bytes;
        let seek = match same_track {
            true => 0.0,
            false => {
                let distance = last.end.abs_diff(operation.offset) as f64 / self.model.capacity_bytes as f64;
                mechanics.seek_least_ns + self.root * distance.sqrt()
            }
        };
        let revolution = mechanics.revolution_ns;
        let angle = (operation.offset % self.track_bytes) as f64 / self.track_bytes as f64 * revolution;
        let mut wait = (angle - (start + seek)).rem_euclid(revolution);
        // What ends just where the next one begins is there already, whatever rounding says.
        if revolution - wait < 1_000.0 {
            wait = 0.0;
        }
        let done_ns = start + seek + wait + transfer;
        Served { done_ns, free_ns: done_ns }
    }

    /// When an operation is done that goes on where the last one ended.
    #[inline]
    fn streamed(&self, last: &Member, start: f64, operation: &Operation) -> Option<f64> {
        let rate = self.model.read_bytes_per_s / 1e9;
        let from_end = operation.offset.checked_sub(last.end)? as f64 + operation.bytes as f64;
        let bus = start + operation.bytes as f64 / BUS_BYTES_PER_NS;
        if operation.write {
            let near = last.wrote && operation.offset == last.end && start - last.free_ns < 1e9;
            return near.then(|| bus.max(start + operation.bytes as f64 / rate));
        }
        let ahead = !last.wrote && last.free_ns > 0.0 && from_end <= AHEAD_BYTES + operation.bytes as f64;
        // From when the head had passed it, unless the drive stopped there.
        ahead.then(|| bus.max(last.free_ns + from_end / rate))
    }
}
