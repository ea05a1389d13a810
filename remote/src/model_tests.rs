//! The protocol of leases, slots, copies and late answers as a model over the real code: clients and servers on `sim`, one
//! schedule a seed, compared with a plain map; and each rule switched off, which must be missed.
//!
//! What must hold in each schedule:
//! - A page that comes in is the one that went out under its slot.
//! - No page is lost unless a server was; with two copies, none when one server of three is killed.
//! - An honest server's page is never taken for damaged; no page of one client stands in a segment of another.
//! - No request is sent under a lease that its server has ended by its grace; a segment is zeros when it is granted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::ManualClock;
use thermocline_base::depth;
use thermocline_base::rng::Rng;

use crate::client::{Client, ClientOptions, Event, PageError, Ticket};
use crate::grants::Export;
use crate::sim::{Shared, SimServer, Weather, locked};

const PAGE: usize = 16;
const MS: u64 = 1_000_000;
const GRACE_MS: u32 = 80;

/// A kind of world.
#[derive(Clone, Copy, Debug)]
struct Scene {
    servers: usize,
    clients: usize,
    copies: u8,
    /// Of each server; with one, places are given anew all the time.
    segments: u32,
    weather: Weather,
    /// Of a step, that a server is killed and comes back empty.
    restarts: f64,
    /// Of a step, that time leaps over a good part of the grace.
    leaps: f64,
    /// One server is drained halfway.
    drains: bool,
    /// Clients have their pages elsewhere, too.
    elsewhere: bool,
}

const CALM: Scene = Scene {
    servers: 1,
    clients: 1,
    copies: 1,
    segments: 3,
    weather: Weather { loss: 0.0, twice: 0.0, disorder: 0.0, damage: 0.0, delay: 0.0, one_sided: false },
    restarts: 0.0,
    leaps: 0.0,
    drains: false,
    elsewhere: false,
};

/// Requests and answers twice and in any order, but none lost.
const REPEATS: Scene = Scene { segments: 1, weather: Weather { twice: 0.3, ..CALM.weather }, ..CALM };
const ONE_SIDED: Scene = Scene {
    segments: 1,
    weather: Weather { disorder: 0.6, delay: 0.4, one_sided: true, ..CALM.weather },
    ..CALM
};
const LOSSES: Scene =
    Scene { clients: 2, leaps: 0.2, weather: Weather { loss: 0.05, ..CALM.weather }, ..CALM };
/// Leases come and go while answers are late.
const LATE: Scene = Scene { leaps: 0.03, weather: Weather { loss: 0.15, ..CALM.weather }, ..CALM };
const STORM: Scene = Scene {
    servers: 3,
    clients: 2,
    copies: 2,
    segments: 3,
    weather: Weather { loss: 0.02, twice: 0.1, disorder: 0.3, ..CALM.weather },
    restarts: 0.01,
    leaps: 0.02,
    drains: true,
    elsewhere: false,
};
const LIARS: Scene =
    Scene { servers: 3, copies: 2, weather: Weather { damage: 0.05, ..CALM.weather }, ..CALM };
const KILLS: Scene = Scene { servers: 3, copies: 2, restarts: 0.01, ..CALM };
const DRAIN: Scene = Scene { servers: 2, drains: true, ..CALM };
/// Servers are slow, and silent for some time.
const ELSEWHERE: Scene = Scene {
    servers: 2,
    clients: 2,
    restarts: 0.005,
    weather: Weather { delay: 0.8, ..CALM.weather },
    elsewhere: true,
    ..CALM
};
const SCENES: [Scene; 10] = [CALM, REPEATS, ONE_SIDED, LOSSES, LATE, STORM, LIARS, KILLS, DRAIN, ELSEWHERE];

/// A client, and the pages that it should have.
struct Owner {
    client: Client,
    author: u8,
    next: u64,
    going: BTreeMap<Ticket, Vec<u8>>,
    out: BTreeMap<u64, Vec<u8>>,
    coming: BTreeMap<Ticket, (u64, Vec<u8>)>,
}

struct World {
    scene: Scene,
    rng: Rng,
    clock: Arc<ManualClock>,
    servers: Vec<Shared>,
    owners: Vec<Owner>,
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl World {
    fn new(scene: Scene, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let clock = Arc::new(ManualClock::new(0));
        let export = Export {
            segments: scene.segments,
            segment_pages: 4,
            page_bytes: PAGE as u32,
            grace_ms: GRACE_MS,
        };
        let servers: Vec<Shared> = (0..scene.servers)
            .map(|_| SimServer::shared(export, scene.clients, scene.weather, rng.next_u64(), &clock))
            .collect();
        let owners = (0..scene.clients)
            .map(|client| {
                let options = ClientOptions {
                    copies: scene.copies,
                    elsewhere: scene.elsewhere,
                    page_bytes: PAGE as u32,
                    batch_pages: 3,
                    batch_ns: MS,
                    timeout_ns: 20 * MS,
                    retry_ns: 5 * MS,
                    segments_max: 6,
                    moves_max: 2,
                    seed: rng.next_u64(),
                    sealed: seed.is_multiple_of(4),
                };
                let connects = servers.iter().map(|server| SimServer::connect(server, client)).collect();
                Owner {
                    client: Client::new(options, Arc::clone(&clock) as _, connects),
                    author: client as u8 + 1,
                    next: 0,
                    going: BTreeMap::new(),
                    out: BTreeMap::new(),
                    coming: BTreeMap::new(),
                }
            })
            .collect();
        Self { scene, rng, clock, servers, owners }
    }

    /// Takes so many steps, then is calm until nothing is under way, and every page is read.
    fn run(&mut self, steps: u64) -> Result<(), String> {
        for step in 0..steps {
            if self.scene.drains && step == steps / 2 {
                locked(&self.servers[0]).grants.drain();
            }
            self.step()?;
        }
        for at in 0..self.owners.len() {
            let slots: Vec<u64> = self.owners[at].out.keys().copied().collect();
            slots.into_iter().for_each(|slot| self.owners[at].ask(slot));
        }
        for _ in 0..600 {
            self.clock.advance(Duration::from_micros(100));
            self.network_step()?;
            for at in 0..self.owners.len() {
                self.drive(at)?;
            }
            if self.owners.iter().all(|owner| owner.coming.is_empty() && owner.client.is_idle()) {
                break;
            }
        }
        if self.scene.weather.loss == 0.0 {
            check(self.owners.iter().all(|owner| owner.coming.is_empty()), || {
                "a read never ends".to_owned()
            })?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.clock.advance(Duration::from_micros(self.rng.below(400)));
        if self.rng.chance(self.scene.leaps) {
            self.clock.advance(Duration::from_millis(self.rng.below(u64::from(GRACE_MS))));
        }
        if self.rng.chance(self.scene.restarts) {
            let server = self.rng.below(self.servers.len() as u64) as usize;
            self.restart(server);
        }
        let at = self.rng.below(self.owners.len() as u64) as usize;
        let owner = &mut self.owners[at];
        match self.rng.below(10) {
            0..3 if owner.going.len() + owner.out.len() < 10 => owner.put(),
            3 => {
                if let Some(ticket) = owner.going.keys().next().copied() {
                    owner.going.remove(&ticket);
                    owner.client.take_back(ticket);
                }
            }
            4 | 5 => {
                if let Some(slot) = owner.pick(&mut self.rng) {
                    owner.ask(slot);
                }
            }
            6 => {
                if let Some(slot) = owner.pick(&mut self.rng) {
                    owner.out.remove(&slot);
                    owner.client.free(slot);
                }
            }
            _ => self.drive(at)?,
        }
        self.network_step()
    }

    fn restart(&mut self, server: usize) {
        let mut server = locked(&self.servers[server]);
        server.restart();
    }

    fn network_step(&mut self) -> Result<(), String> {
        for server in &self.servers {
            let mut server = locked(server);
            let now = thermocline_base::clock::Clock::now_ns(&*self.clock);
            match self.rng.below(4) {
                0 => server.grants.expire(now),
                1 => server.clean(),
                _ => {}
            }
            let client = self.rng.below(self.owners.len() as u64) as usize;
            server.step(client);
            if let Some(wrong) = server.wrong.take() {
                // A server that was killed has ended its leases without anybody's knowing.
                if self.scene.restarts == 0.0 || !wrong.contains("is used after") {
                    return Err(wrong);
                }
            }
        }
        Ok(())
    }

    fn drive(&mut self, at: usize) -> Result<(), String> {
        let honest = self.scene.weather.damage == 0.0;
        // The connection of a server that was killed breaks; `sim` has none that break, so its loss shows by time or lies.
        let kills = self.scene.restarts > 0.0;
        let lasts = self.scene.leaps == 0.0 && !self.scene.elsewhere;
        let safe = !kills && self.scene.weather.loss == 0.0 && lasts;
        let owner = &mut self.owners[at];
        owner.client.drive(Duration::ZERO);
        while let Some(event) = owner.client.event() {
            match event {
                Event::Out { ticket, slot } => {
                    let bytes = owner.going.remove(&ticket).ok_or("a page is out that nobody sent")?;
                    check(owner.out.insert(slot, bytes).is_none(), || {
                        format!("slot {slot} was given twice")
                    })?;
                }
                Event::In { ticket, bytes } => {
                    let (slot, expected) =
                        owner.coming.remove(&ticket).ok_or("a page came that nobody asked for")?;
                    check(*bytes == *expected, || {
                        format!("slot {slot}: {bytes:?} came in, {expected:?} had gone out")
                    })?;
                }
                Event::Failed { ticket, error: PageError::Full } => {
                    owner.going.remove(&ticket).ok_or("a page failed that nobody sent")?;
                }
                Event::Failed { ticket, error: PageError::Lost { slot } } => {
                    owner.coming.remove(&ticket).ok_or("a read failed that nobody asked for")?;
                    check(!safe || !honest, || format!("slot {slot} is lost, and no server was"))?;
                }
                Event::Failed { ticket, error: PageError::Silent { slot } } => {
                    owner.coming.remove(&ticket).ok_or("a read failed that nobody asked for")?;
                    check(self.scene.elsewhere, || format!("slot {slot} is nowhere else"))?;
                }
            }
        }
        let statistics = owner.client.statistics();
        check(!honest || kills || statistics.damaged_answers == 0, || {
            "an honest server passes for a liar".to_owned()
        })?;
        check(!safe || !honest || statistics.lost_servers == 0, || {
            let troubles: Vec<_> = owner.client.troubles().map(|(_, why)| why.to_owned()).collect();
            format!("a server was given up without a reason: {troubles:?}")
        })?;
        Ok(())
    }
}

impl Owner {
    fn put(&mut self) {
        self.next += 1;
        let mut bytes = vec![self.author; PAGE];
        bytes[8..].copy_from_slice(&self.next.to_le_bytes());
        let ticket = self.client.page_out(bytes.clone().into());
        self.going.insert(ticket, bytes);
    }

    fn pick(&self, rng: &mut Rng) -> Option<u64> {
        let count = self.out.len() as u64;
        if count == 0 { None } else { self.out.keys().nth(rng.below(count) as usize).copied() }
    }

    fn ask(&mut self, slot: u64) {
        let ticket = self.client.page_in(slot);
        self.coming.insert(ticket, (slot, self.out[&slot].clone()));
    }
}

fn schedules(scene: Scene, from: u64, count: u64) -> Result<(), String> {
    for seed in from..from + count {
        World::new(scene, seed).run(120).map_err(|wrong| format!("{scene:?}, seed {seed}: {wrong}"))?;
    }
    Ok(())
}

#[test]
fn model_of_all_scenes() {
    for scene in SCENES {
        schedules(scene, depth::seed() << 32, 400).unwrap();
    }
}

#[test]
fn model_of_one_server_that_is_killed() {
    for seed in 0..200 {
        let mut world = World::new(Scene { restarts: 0.0, ..KILLS }, seed);
        (0..80).for_each(|_| world.step().unwrap());
        world.restart((seed % 3) as usize);
        locked(&world.servers[(seed % 3) as usize]).reachable = seed % 2 == 0;
        // What is sent to it gets no answer, so its lease is given up in time.
        for _ in 0..600 {
            world.clock.advance(Duration::from_micros(100));
            world.servers.iter().for_each(|server| {
                let mut server = locked(server);
                server.step(0);
                server.wrong = None;
            });
            world.owners[0].client.drive(Duration::ZERO);
            while let Some(event) = world.owners[0].client.event() {
                let owner = &mut world.owners[0];
                match event {
                    Event::Out { ticket, slot } => {
                        owner.out.insert(slot, owner.going.remove(&ticket).expect("sent by us"));
                    }
                    Event::In { ticket, bytes } => {
                        assert_eq!(*bytes, *owner.coming.remove(&ticket).expect("asked for by us").1);
                    }
                    Event::Failed { ticket, error } => {
                        assert_eq!(error, PageError::Full, "seed {seed}");
                        owner.going.remove(&ticket);
                    }
                }
            }
        }
        let statistics = world.owners[0].client.statistics();
        assert_eq!((statistics.short_pages, statistics.lost_servers), (0, 1), "seed {seed}: {statistics:?}");
        let slots: Vec<u64> = world.owners[0].out.keys().copied().collect();
        world.scene.restarts = f64::MIN_POSITIVE;
        world.run(0).unwrap();
        let came = world.owners[0].client.statistics().page_ins - statistics.page_ins;
        assert_eq!(came, slots.len() as u64, "seed {seed}: each page has come in");
    }
}

/// The requests that a silent server owes are the probe; nothing else is asked of it, and nothing is lost when it comes back.
#[test]
fn a_silent_server_is_asked_for_nothing_more() {
    let scene = Scene { elsewhere: true, ..CALM };
    let mut world = World::new(scene, 1);
    let step = |world: &mut World, us: u64, answers: bool| {
        world.clock.advance(Duration::from_micros(us));
        if answers {
            locked(&world.servers[0]).step(0);
        }
        world.owners[0].client.drive(Duration::ZERO);
        std::iter::from_fn(|| world.owners[0].client.event()).collect::<Vec<_>>()
    };
    for byte in 0..3 {
        world.owners[0].client.page_out(vec![byte; PAGE].into());
    }
    let mut slots = Vec::new();
    while slots.len() < 3 {
        let of = |event: Event| match event {
            Event::Out { slot, .. } => slot,
            other => panic!("the server is there: {other:?}"),
        };
        slots.extend(step(&mut world, 100, true).into_iter().map(of));
    }
    // All that is under way is answered.
    while !world.owners[0].client.is_idle() {
        step(&mut world, 10, true);
    }
    let probe = world.owners[0].client.page_in(slots[0]);
    assert!(step(&mut world, 4_900, false).is_empty(), "it may answer yet");
    let early = world.owners[0].client.page_in(slots[1]);
    assert!(step(&mut world, 200, false).is_empty(), "what was asked for is waited for");
    let late = world.owners[0].client.page_in(slots[2]);
    let told = step(&mut world, 1, false);
    assert_eq!(told, [Event::Failed { ticket: late, error: PageError::Silent { slot: slots[2] } }]);
    let mut came = Vec::new();
    while came.len() < 2 {
        came.extend(step(&mut world, 1, true));
    }
    let ticket_of = |event: &Event| match event {
        Event::In { ticket, .. } => *ticket,
        other => panic!("it is back: {other:?}"),
    };
    assert_eq!(came.iter().map(ticket_of).collect::<Vec<_>>(), [probe, early]);
    while !world.owners[0].client.is_idle() {
        step(&mut world, 1, true);
    }
    let again = world.owners[0].client.page_in(slots[2]);
    let mut came = Vec::new();
    while came.is_empty() {
        came.extend(step(&mut world, 1, true));
    }
    assert_eq!(came.iter().map(ticket_of).collect::<Vec<_>>(), [again]);
    assert_eq!(world.owners[0].client.statistics().lost_servers, 0);
}

#[test]
#[ignore = "a million schedules, minutes: .ci/deep remote"]
fn model_of_all_scenes_for_long() {
    std::thread::scope(|scope| {
        for half in SCENES.chunks(5) {
            scope.spawn(move || {
                for scene in half {
                    schedules(*scene, depth::seed() << 32, 130_000).unwrap();
                }
            });
        }
    });
}

#[cfg(feature = "model")]
mod mutations {
    use std::panic::catch_unwind;

    use super::*;
    use crate::mutation::Rule;

    fn missed(rule: Rule, scene: Scene) {
        let off = thermocline_base::mutation::switch_off(rule);
        let found = catch_unwind(|| schedules(scene, 0, 4_000));
        drop(off);
        let wrong = found.unwrap_or_else(|_| panic!("{rule:?} shows in a panic, not in what is checked"));
        let Err(wrong) = wrong else { panic!("{rule:?} is off, and nothing was found") };
        println!("{rule:?}: {wrong}");
        schedules(scene, 0, 50).expect("with all rules nothing is wrong");
    }

    #[test]
    fn mutations_are_caught() {
        missed(Rule::ReadHoldsSlot, ONE_SIDED);
        missed(Rule::WriteHoldsSlot, ONE_SIDED);
        missed(Rule::RequestsInOrder, REPEATS);
        missed(Rule::LeaseEndsAtHalf, LOSSES);
        missed(Rule::AnswersNameLease, LATE);
        missed(Rule::WipeBeforeGrant, LOSSES);
        missed(
            Rule::OwnerOnly,
            Scene { weather: Weather { one_sided: true, disorder: 0.6, ..LOSSES.weather }, ..LOSSES },
        );
    }
}
