//! The transport `profile`: over any other, answers come as late as a network of some kind would bring them.
//!
//! ```text
//!   request:  waits for the line out (its bytes ÷ bandwidth each), then travels half of the round trip
//!   answer:   from there, waits for the line in, then travels the other half
//! ```
//!
//! An answer that is really later than that is given when it is there. The figures are round ones for hardware of that kind, chosen
//! by us and not measured: what a run with a profile says, it says of a network that behaves like this.
//!
//! Limits: a network without loss or other traffic; waits below 100 µs are spent asking for the time.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::Clock;

use crate::message::{Ask, Message, Told};
use crate::transport::{Connect, LinkError, Transport};

/// Bytes of a message beside its pages.
const HEAD_BYTES: u64 = 32;
/// Sleeping is no more exact than this.
const SPIN: Duration = Duration::from_micros(100);

/// A kind of network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// On the command line and in results.
    pub name: &'static str,
    /// There and back, of a message without bytes.
    pub round_trip_ns: u64,
    /// Each way.
    pub bytes_per_s: u64,
}

/// Those that have names.
pub const PROFILES: [Profile; 4] = [
    // Four lanes of 2.5 Gb/s, of which 8 in 10 bits are data; the paper's.
    Profile { name: "ib-2007", round_trip_ns: 10_000, bytes_per_s: 1_000_000_000 },
    Profile { name: "rdma-100g", round_trip_ns: 3_000, bytes_per_s: 12_000_000_000 },
    Profile { name: "ethernet-25g", round_trip_ns: 20_000, bytes_per_s: 3_000_000_000 },
    Profile { name: "ethernet-1g", round_trip_ns: 60_000, bytes_per_s: 118_000_000 },
];

impl Profile {
    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        PROFILES.into_iter().find(|profile| profile.name == name)
    }

    fn travel_ns(&self, bytes: u64) -> u64 {
        (u128::from(HEAD_BYTES + bytes) * 1_000_000_000 / u128::from(self.bytes_per_s)) as u64
    }
}

/// Connections that are slow in this way.
#[derive(Debug)]
pub struct ProfileConnect {
    inner: Box<dyn Connect>,
    profile: Profile,
    clock: Arc<dyn Clock>,
}

impl ProfileConnect {
    /// Over the connections of `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Connect>, profile: Profile, clock: Arc<dyn Clock>) -> Self {
        Self { inner, profile, clock }
    }
}

impl Connect for ProfileConnect {
    fn connect(&mut self) -> Result<Box<dyn Transport>, LinkError> {
        Ok(Box::new(Profiled {
            inner: self.inner.connect()?,
            profile: self.profile,
            clock: Arc::clone(&self.clock),
            out_free_ns: 0,
            in_free_ns: 0,
            arrives_ns: HashMap::new(),
            due: BTreeMap::new(),
            count: 0,
        }))
    }

    fn address(&self) -> String {
        self.inner.address()
    }
}

#[derive(Debug)]
struct Profiled {
    inner: Box<dyn Transport>,
    profile: Profile,
    clock: Arc<dyn Clock>,
    /// When the lines have nothing to carry any more.
    out_free_ns: u64,
    in_free_ns: u64,
    /// By number: when the request is at the server.
    arrives_ns: HashMap<u64, u64>,
    /// Answers that are here and not due; the count tells those of one moment apart.
    due: BTreeMap<(u64, u64), Message<Told>>,
    count: u64,
}

impl Profiled {
    /// Takes what is really there, and says when it would be.
    fn take(&mut self, wait: Duration) -> Result<(), LinkError> {
        let mut wait = wait;
        while let Some(answer) = self.inner.receive(wait)? {
            wait = Duration::ZERO;
            let bytes = if let Told::Pages(bytes) = &answer.body { bytes.len() as u64 } else { 0 };
            let arrived = self.arrives_ns.remove(&answer.number).unwrap_or_else(|| self.clock.now_ns());
            self.in_free_ns = self.in_free_ns.max(arrived) + self.profile.travel_ns(bytes);
            self.count += 1;
            self.due.insert((self.in_free_ns + self.profile.round_trip_ns / 2, self.count), answer);
        }
        Ok(())
    }

    fn first_due_ns(&self) -> Option<u64> {
        self.due.keys().next().map(|(due, _)| *due)
    }
}

impl Transport for Profiled {
    fn send(&mut self, request: Message<Ask>) -> Result<(), LinkError> {
        let bytes = if let Ask::Write { bytes, .. } = &request.body { bytes.len() as u64 } else { 0 };
        self.out_free_ns = self.out_free_ns.max(self.clock.now_ns()) + self.profile.travel_ns(bytes);
        self.arrives_ns.insert(request.number, self.out_free_ns + self.profile.round_trip_ns / 2);
        self.inner.send(request)
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        self.inner.flush()
    }

    fn is_sending(&self) -> bool {
        self.inner.is_sending()
    }

    fn receive(&mut self, wait: Duration) -> Result<Option<Message<Told>>, LinkError> {
        self.take(Duration::ZERO)?;
        if self.due.is_empty() && !wait.is_zero() {
            self.take(wait)?;
        }
        let Some(due) = self.first_due_ns() else { return Ok(None) };
        let left = Duration::from_nanos(due.saturating_sub(self.clock.now_ns()));
        if left > wait {
            return Ok(None);
        }
        if left > SPIN {
            std::thread::sleep(left - SPIN);
        }
        while self.clock.now_ns() < due {
            std::hint::spin_loop();
        }
        Ok(self.due.pop_first().map(|(_, answer)| answer))
    }

    fn socket(&self) -> Option<Arc<OwnedFd>> {
        self.inner.socket()
    }

    fn due_ns(&self) -> Option<u64> {
        self.first_due_ns()
    }

    fn is_one_sided(&self) -> bool {
        self.inner.is_one_sided()
    }
}

#[cfg(test)]
mod tests {
    use thermocline_base::clock::ManualClock;

    use super::*;
    use crate::message::Refusal;

    /// Answers at once: reads with a page.
    #[derive(Debug, Default)]
    struct Echo(Vec<Message<Told>>);

    impl Transport for Echo {
        fn send(&mut self, request: Message<Ask>) -> Result<(), LinkError> {
            let body = match request.body {
                Ask::Read { .. } => Told::Pages(vec![0; 4096]),
                _ => Told::Refused(Refusal::Draining),
            };
            self.0.push(Message { lease: request.lease, number: request.number, body });
            Ok(())
        }

        fn flush(&mut self) -> Result<(), LinkError> {
            Ok(())
        }

        fn receive(&mut self, _wait: Duration) -> Result<Option<Message<Told>>, LinkError> {
            Ok(if self.0.is_empty() { None } else { Some(self.0.remove(0)) })
        }
    }

    impl Connect for Echo {
        fn connect(&mut self) -> Result<Box<dyn Transport>, LinkError> {
            Ok(Box::new(Echo::default()))
        }

        fn address(&self) -> String {
            "echo".to_owned()
        }
    }

    #[test]
    fn answers_come_when_the_network_would_bring_them() {
        let clock = Arc::new(ManualClock::new(0));
        let profile = Profile { name: "test", round_trip_ns: 1_000, bytes_per_s: 1_000_000_000 };
        let mut connect = ProfileConnect::new(Box::new(Echo::default()), profile, Arc::clone(&clock) as _);
        let mut link = connect.connect().unwrap();
        for number in 1..=2 {
            link.send(Message { lease: 1, number, body: Ask::Read { page: 0, pages: 1 } }).unwrap();
        }
        // 32 ns out, 500 there, 4,128 in, 500 back; the second answer waits for the line in.
        let firsts = 32 + 500 + 4_128 + 500;
        clock.advance(Duration::from_nanos(firsts - 1));
        assert!(link.receive(Duration::ZERO).unwrap().is_none());
        clock.advance(Duration::from_nanos(1));
        assert_eq!(link.receive(Duration::ZERO).unwrap().map(|answer| answer.number), Some(1));
        clock.advance(Duration::from_nanos(4_127));
        assert!(link.receive(Duration::ZERO).unwrap().is_none());
        clock.advance(Duration::from_nanos(1));
        assert_eq!(link.receive(Duration::ZERO).unwrap().map(|answer| answer.number), Some(2));
        // A write takes its time on the line out.
        link.send(Message { lease: 1, number: 3, body: Ask::Write { page: 0, bytes: vec![0; 40_968] } })
            .unwrap();
        clock.advance(Duration::from_nanos(41_000 + 500 + 32 + 499));
        assert!(link.receive(Duration::ZERO).unwrap().is_none());
        clock.advance(Duration::from_nanos(1));
        assert_eq!(link.receive(Duration::ZERO).unwrap().map(|answer| answer.number), Some(3));
        assert!(Profile::named("ib-2007").is_some() && Profile::named("floppy").is_none());
    }
}
