//! The findings of `bench ssd`, for programs and for people.

use serde::Serialize;

use super::Way;
use crate::report::{grouped, size};
use crate::settings::Settings;

/// The findings of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct SsdReport {
    /// The program's version.
    pub version: &'static str,
    /// The settings of all ways.
    #[serde(flatten)]
    pub settings: Settings,
    /// The emulated device, and what it is emulated over.
    pub emulated: String,
    /// Bytes of the cold store on its device.
    pub cold_bytes: u64,
    /// Bytes of the SSD's file.
    pub ssd_size_bytes: u64,
    /// The slow device alone.
    pub alone: Way,
    /// The slow device below the SSD.
    pub ssd: Way,
    /// The local disk, without the SSD.
    pub local: Way,
    /// The SSD's throughput against the local disk's.
    pub share_of_local: f64,
    /// The SSD's throughput against that of the slow device alone.
    pub gain: f64,
    /// Which part of the pages that were looked for there the SSD gave, in the measured time.
    pub hit_ratio: f64,
    /// The same of its policy in the simulator, on the trace that was captured in this run.
    pub simulated_hit_ratio: Option<f64>,
    /// The same of the best policy there that does not know the future.
    pub best_hit_ratio: Option<f64>,
    /// Which that is.
    pub best_policy: Option<&'static str>,
    /// The same where merges leave the warmth of pages behind; for workloads that write.
    pub hit_ratio_without_heat: Option<f64>,
    /// Number of times that the cold store was written anew in the measured time.
    pub rewritten: f64,
    /// Of the last 100,000 reads before the database was closed.
    pub last_hit_ratio: Option<f64>,
    /// Of the first 100,000 reads after it was opened again.
    pub restart_hit_ratio: Option<f64>,
    /// Of the last 100,000 reads before the process was killed, in the round in which most was lost.
    pub before_kill_hit_ratio: Option<f64>,
    /// Of the first 100,000 reads of the next process then.
    pub killed_hit_ratio: Option<f64>,
    /// Processor time of the process for each page that the SSD gave, above that of a read of the local disk, in microseconds.
    /// With misses beside the hits, what the emulation of the slow device takes is in it.
    pub cpu_us_per_hit: f64,
    /// Pages that were there in another version, since the opening, as all that follows.
    pub stale: u64,
    /// Pages that were admitted.
    pub admitted: u64,
    /// Pages that were admitted when merges had written them.
    pub moved: u64,
    /// Pages that the policy refused.
    pub refused: u64,
    /// Admitted pages that were dropped before they were written.
    pub dropped: u64,
    /// Bytes written to the SSD.
    pub ssd_bytes_written: u64,
    /// Bytes that merges had from it.
    pub merge_bytes_saved: u64,
    /// Memory for each cached page.
    pub bytes_per_page: f64,
    /// Its policy.
    pub policy: &'static str,
    /// Is it on, and if not, why.
    pub state: String,
}

impl SsdReport {
    /// The result for programs.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::report::json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut text = format!(
            "emulated: {}\ncold store {}, SSD {} with policy {}\n\n{:<22}{:>14}{:>12}{:>12}\n",
            self.emulated,
            size(self.cold_bytes),
            size(self.ssd_size_bytes),
            self.policy,
            "cold rows on",
            "commits/s",
            "p99 µs",
            "cpu µs"
        );
        let ways = [
            ("the slow device alone", &self.alone),
            ("the same below an SSD", &self.ssd),
            ("the local disk", &self.local),
        ];
        for (name, way) in ways {
            text += &format!(
                "{name:<22}{:>14}{:>12}{:>12.1}\n",
                grouped(way.throughput_tps),
                grouped(way.p99_us),
                way.cpu_us
            );
        }
        text += &format!(
            "\nSSD: {}; {:.1} % of the pages from there; {:.2} × the slow device, {:.0} % of the local disk\n",
            self.state,
            100.0 * self.hit_ratio,
            self.gain,
            100.0 * self.share_of_local
        );
        text += &format!(
            "admitted {}, moved by merges {}, refused {}, dropped {}, stale {}, {} written, {:.1} bytes of memory a page\n",
            grouped(self.admitted as f64),
            grouped(self.moved as f64),
            grouped(self.refused as f64),
            grouped(self.dropped as f64),
            grouped(self.stale as f64),
            size(self.ssd_bytes_written),
            self.bytes_per_page
        );
        text += &format!(
            "{:.2} µs of the processor a page from the SSD; merges had {} from there; the store was written anew {:.2} ×\n",
            self.cpu_us_per_hit,
            size(self.merge_bytes_saved),
            self.rewritten
        );
        let percent = |ratio: f64| format!("{:.1} %", 100.0 * ratio);
        if let (Some(own), Some(best), Some(policy)) =
            (self.simulated_hit_ratio, self.best_hit_ratio, self.best_policy)
        {
            text += &format!(
                "the same reads in the simulator: {} with this policy, {} with the best one ({policy})\n",
                percent(own),
                percent(best)
            );
        }
        if let Some(ratio) = self.hit_ratio_without_heat {
            text += &format!("where merges leave heat behind: {}\n", percent(ratio));
        }
        if let (Some(last), Some(first)) = (self.last_hit_ratio, self.restart_hit_ratio) {
            text += &format!(
                "the last 100,000 reads before closing: {}; the first ones after opening again: {}\n",
                percent(last),
                percent(first)
            );
        }
        if let (Some(before), Some(after)) = (self.before_kill_hit_ratio, self.killed_hit_ratio) {
            text += &format!(
                "the last 100,000 reads before a kill: {}; the first ones after it: {}\n",
                percent(before),
                percent(after)
            );
        }
        text
    }
}
