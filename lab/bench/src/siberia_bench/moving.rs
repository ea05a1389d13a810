//! The cost of migration for transactions that run meanwhile.

use std::time::Duration;

use super::{
    BATCH_ROWS, Load, MovingReport, Result, SiberiaError, SiberiaSettings, Slice, Spread, World, cpu_us,
    transactions,
};
use crate::machine::Machine;
use crate::progress::Progress;
use crate::time;

/// Slices while rows migrate, at a pace at which a tenth of all rows would in 60 s, in turn with slices while none do.
pub(super) fn measure(
    settings: &SiberiaSettings,
    cold_access: f64,
    world: &mut World,
    progress: &mut Progress,
) -> Result<MovingReport> {
    /// Slices of each kind.
    const ROUNDS: u32 = 6;
    /// Of all rows migrate a second: a tenth in 60 s.
    const SHARE_PER_S: f64 = 0.1 / 60.0;
    progress.begin("throughput while rows migrate");
    let rows = (world.rows as f64 * SHARE_PER_S * settings.seconds).ceil() as u64;
    let last = world.cold + rows * u64::from(ROUNDS);
    if last + 100 > world.rows {
        return Err(SiberiaError::Setting(
            "--cold-share leaves too few rows in memory to migrate some".into(),
        ));
    }
    let processors = Machine::here().cores as f64;
    let (mut still, mut migrating): (Vec<Slice>, Vec<Slice>) = (Vec::new(), Vec::new());
    let (mut beside_still, mut beside_migrating) = (Vec::new(), Vec::new());
    // What moved in the slice before is merged and removed by then.
    let rest = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };
    // The first one is not counted.
    for round in 0..=ROUNDS * 2 {
        progress.show(|| format!("slice {round} of {}", ROUNDS * 2));
        let moves = round > 0 && round.is_multiple_of(2);
        let load = Load {
            cold_access,
            cold_from: 0,
            hot_from: last,
            updates: settings.updates,
            think: Duration::from_micros(settings.think_us),
            clients: settings.clients,
            threads: settings.threads,
            seed: settings.seed << 16 ^ 1 << 13 ^ u64::from(round),
            seconds: settings.seconds,
        };
        let ids = world.cold..world.cold + rows;
        let listed = match moves {
            true => world.steps.batches(
                &world.table,
                |row| world.layout.i64(row, 0).is_some_and(|id| ids.contains(&id.cast_unsigned())),
                BATCH_ROWS,
            ),
            false => Vec::new(),
        };
        let before = cpu_us(rustix::time::ClockId::ProcessCPUTime);
        let slice = beside(world, &load, listed.len(), |batch| {
            world.steps.migrate_listed(&world.table, &listed[batch])?;
            Ok(())
        })?;
        let took = cpu_us(rustix::time::ClockId::ProcessCPUTime) - before;
        let beside = (took - slice.cpu_us) / (slice.seconds * 1e6 * processors);
        if moves {
            world.cold += rows;
            migrating.push(slice);
            beside_migrating.push(beside);
        } else if round > 0 {
            still.push(slice);
            beside_still.push(beside);
        }
        std::thread::sleep(rest);
        if settings.clean {
            world.clean()?;
        }
    }
    let pairs = || still.iter().zip(&migrating);
    Ok(MovingReport {
        cold_access,
        still_per_s: Spread::of(still.iter().map(Slice::per_s).collect()),
        moving_per_s: Spread::of(migrating.iter().map(Slice::per_s).collect()),
        lost: Spread::of(pairs().map(|(still, moving)| 1.0 - moving.per_s() / still.per_s()).collect()),
        cpu_share: Spread::of(beside_still.iter().zip(&beside_migrating).map(|(a, b)| b - a).collect()),
        rows_per_s: rows as f64 / settings.seconds,
        aborted: still.iter().chain(&migrating).map(|slice| slice.aborted).sum(),
    })
}

/// A slice beside which so many batches migrate, at an even pace. They have all moved when it ends.
fn beside(
    world: &World,
    load: &Load,
    batches: usize,
    migrate: impl Fn(usize) -> Result<()> + Sync,
) -> Result<Slice> {
    let pause = Duration::from_secs_f64(load.seconds / batches.max(1) as f64);
    let begin = time::now();
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for (number, batch) in (0..).zip(0..batches) {
                std::thread::sleep((pause * number).saturating_sub(begin.elapsed()));
                migrate(batch)?;
            }
            Ok::<_, SiberiaError>(())
        });
        let slice = transactions(world, load);
        mover.join().expect("the mover does not panic")?;
        slice
    })
}
