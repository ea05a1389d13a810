//! The hits that other policies would have had in the reads of a run: its captured trace, in the simulator.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use thermocline_base::device_model::DeviceModel;
use thermocline_pool::cache::CacheKind;
use thermocline_pool::simulate::trace::{Result as TraceResult, TraceReader, TraceRequest, TraceSource};
use thermocline_pool::simulate::{Mode, Outcome, Simulation, replay};

use super::super::RunError;

/// A hit ratio of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Simulated {
    pub(super) policy: CacheKind,
    pub(super) hit_ratio: f64,
}

/// The simulator's findings for a captured trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Best {
    /// The policy with the most hits that does not know the future.
    pub(super) best: Simulated,
    /// The policy that ran.
    pub(super) own: Simulated,
}

/// The first requests of a trace.
struct First<S> {
    source: S,
    left: u64,
}

impl<S: TraceSource> TraceSource for First<S> {
    fn next_batch(&mut self, batch: &mut Vec<TraceRequest>) -> TraceResult<bool> {
        let before = batch.len();
        if self.left == 0 || !self.source.next_batch(batch)? {
            return Ok(false);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        batch.truncate(before.saturating_add(most));
        self.left -= (batch.len() - before) as u64;
        Ok(true)
    }
}

/// Reads and hits of each policy after the first `requests` of a trace.
fn hits(path: &Path, requests: u64, simulation: &Simulation) -> Result<Outcome, RunError> {
    let failed = |error: String| RunError::Capture(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let source = TraceReader::new(BufReader::new(file)).map_err(|error| failed(error.to_string()))?;
    let mut source = First { source, left: requests };
    replay(&mut source, simulation, &mut |_| {}).map_err(|error| failed(error.to_string()))
}

/// The hit ratios of all online policies with so many slots, in a captured trace behind its first `warm` requests.
pub(super) fn best(
    path: &Path,
    warm: u64,
    slots: u64,
    own: CacheKind,
    profile: &str,
) -> Result<Option<Best>, RunError> {
    let named = |name: &str| DeviceModel::named(name);
    let (Some(disk), Some(ssd)) = (named(profile), named("fusion-io")) else { return Ok(None) };
    let policies: Vec<CacheKind> = CacheKind::ALL.into_iter().filter(|kind| kind.is_online()).collect();
    let simulation = Simulation {
        page_bytes: super::PAGE_BYTES as u32,
        extent_pages: 32,
        frames: 0,
        slots: vec![slots.min(u64::from(u32::MAX)) as u32],
        policies,
        disk,
        ssd,
        mode: Mode::WriteThrough,
        threads: crate::machine::cores(),
    };
    let before = hits(path, warm, &simulation)?;
    let after = hits(path, u64::MAX, &simulation)?;
    let ratios = before.rows.iter().zip(&after.rows).filter_map(|(before, after)| {
        let reads = after.counts.reads - before.counts.reads;
        let hit_ratio = (after.counts.hits - before.counts.hits) as f64 / reads.max(1) as f64;
        Some(Simulated { policy: after.policy?, hit_ratio })
    });
    let ratios: Vec<Simulated> = ratios.collect();
    let best = ratios.iter().copied().max_by(|one, other| one.hit_ratio.total_cmp(&other.hit_ratio));
    let own = ratios.iter().copied().find(|simulated| simulated.policy == own);
    Ok(best.zip(own).map(|(best, own)| Best { best, own }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_pool::simulate::trace::{TraceKind, TraceWriter};

    #[test]
    fn the_reads_before_the_measured_time_warm_and_do_not_count() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("trace");
        let file = File::create(&path).expect("a file");
        let mut writer = TraceWriter::new(file, 4096, 32).expect("a file");
        // Pages that all fit come once before the measured time, and in it.
        for page in (0..50).chain(0..50) {
            writer.push(&TraceRequest::new(page, TraceKind::Read)).expect("a file");
        }
        writer.finish().expect("a file");
        let found = |warm| {
            best(&path, warm, 64, CacheKind::Lru, "network-volume").expect("a trace").expect("devices")
        };
        assert_eq!((found(50).own.hit_ratio, found(50).best.hit_ratio), (1.0, 1.0));
        assert_eq!(found(0).own.hit_ratio, 0.5);
    }
}
