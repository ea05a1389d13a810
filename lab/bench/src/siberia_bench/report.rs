//! The findings of `bench siberia`, for programs and for people.

use super::{SiberiaReport, Spread};
use crate::report::grouped;

impl SiberiaReport {
    /// The result as one JSON object.
    ///
    /// # Panics
    /// Never: a report has string keys only.
    #[must_use]
    pub fn to_json(&self) -> String {
        crate::report::json(self)
    }

    /// The result for people.
    #[must_use]
    pub fn to_table(&self) -> String {
        let settings = &self.settings;
        let mut lines = vec![
            (
                "siberia".to_owned(),
                format!(
                    "{} rows, {:.0} % cold, store {}, {} clients on {} threads, {} µs think time, {:.0} % updates",
                    grouped(settings.rows as f64),
                    100.0 * settings.cold_share,
                    settings.store,
                    settings.clients,
                    settings.threads,
                    settings.think_us,
                    100.0 * settings.updates
                ),
            ),
            (
                "machine".to_owned(),
                format!("{}, {} cores, {}", self.machine.cpu, self.machine.cores, self.machine.kernel),
            ),
            (
                "calibration".to_owned(),
                self.calibration.as_ref().map_or_else(
                    || "left out".to_owned(),
                    |found| {
                        format!(
                            "{:.0} ns a random read of memory ({:.0} with huge pages)",
                            found.dram_random_read_ns, found.dram_random_read_huge_pages_ns
                        )
                    },
                ),
            ),
            ("migration".to_owned(), format!("{} µs of processor time a row", self.cpu_us_per_migrated_row)),
        ];
        if let Some(found) = &self.machinery {
            lines.extend([
                ("hot access".to_owned(), format!("{} ns, 1 client", found.hot_ns)),
                ("cold access".to_owned(), format!("{} ns more", found.cold_added_ns)),
                (
                    "memo without hit".to_owned(),
                    format!("{} ns more, {} ends", found.memo_without_hit_added_ns, found.notices.0),
                ),
                (
                    "memo with hit".to_owned(),
                    format!("{} ns more, {} batches", found.memo_with_hit_added_ns, found.notices.1),
                ),
            ]);
        }
        for share in &self.shares {
            let mut text = format!(
                "{} tx/s ({}-{}), {} µs",
                grouped(share.per_s.median),
                grouped(share.per_s.min),
                grouped(share.per_s.max),
                share.latency_us
            );
            if let (Some(lost), Some(added)) = (share.lost, share.added_us_per_cold_access) {
                text += &format!(", {:.1} % lost, {added} µs a cold access", 100.0 * lost.median);
            }
            if let Some(cpu) = share.added_cpu_us_per_cold_access {
                text += &format!(", {cpu} µs of processor time");
            }
            if let (Some(device), Some(ratio)) = (share.device_us, share.device_ratio) {
                text += &format!(", device {device} µs, ratio {ratio}");
            }
            if let Some(reads) = share.device_reads_per_cold_access {
                text += &format!(", {reads} device reads a cold access");
            }
            if let Some(reachable) = share.reachable_share {
                text += &format!(", {reachable} of what is reachable");
            }
            lines.push((format!("{:.1} % cold accesses", 100.0 * share.cold_access), text));
        }
        if let Some(paced) = &self.paced {
            lines.push((
                "half the rate".to_owned(),
                format!(
                    "{:.1} % cold accesses, {} of {} tx/s, p50 {:.0} µs, p99 {:.0} µs, p99.9 {:.0} µs, longest {:.0} µs; {} \
                     rows/s moved",
                    100.0 * paced.cold_access,
                    grouped(paced.per_s),
                    grouped(paced.wanted_per_s),
                    paced.p50_us,
                    paced.p99_us,
                    paced.p999_us,
                    paced.max_us,
                    grouped(paced.moved_per_s)
                ),
            ));
        }
        if let Some(moving) = &self.moving {
            let percent = |of: Spread| {
                format!("{:.1} ({:.1} to {:.1})", 100.0 * of.median, 100.0 * of.min, 100.0 * of.max)
            };
            lines.push((
                "while rows migrate".to_owned(),
                format!(
                    "{:.1} % cold accesses, {} of {} tx/s, {} % lost, {} % of the processors for it; {} rows/s",
                    100.0 * moving.cold_access,
                    grouped(moving.moving_per_s.median),
                    grouped(moving.still_per_s.median),
                    percent(moving.lost),
                    percent(moving.cpu_share),
                    grouped(moving.rows_per_s)
                ),
            ));
        }
        lines.into_iter().map(|(name, value)| format!("{name:<22}{value}\n")).collect()
    }
}
