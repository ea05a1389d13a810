//! The spread of temperatures over the rows of each table, for people to look at.
//!
//! Estimated from the classifier's sample: each row of it stands for as many as the inverse of the sampled share.

use std::collections::BTreeMap;

use thermocline_base::ids::TableId;

use super::classify::TableBudget;

/// Steps of a histogram. Each is four times as warm as the one below.
const STEPS: usize = 12;
/// Where the second step begins: four to the power of this, in accesses a quantum.
const LOWEST: i32 = -4;

/// The temperatures of a database's rows, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Temperatures {
    /// Accesses a quantum (of one second, in a database) and byte from which on a row is hot; 0: all that is accessed
    /// fits.
    pub threshold: f64,
    /// Rows of the sample that this comes from.
    pub sampled_rows: u64,
    /// By table; one of which nothing is known is not there.
    pub tables: BTreeMap<TableId, TableTemperatures>,
}

/// The temperatures of a table's rows. Rows that have faded, or were never accessed, are in none of these.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableTemperatures {
    /// From the coldest to the warmest.
    pub steps: Vec<TemperatureStep>,
    /// Rows at the threshold or above.
    pub hot: TableBudget,
}

/// Rows of about one temperature.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TemperatureStep {
    /// The least temperature, in accesses a quantum; the next step's is the greatest.
    pub from: f64,
    /// Rows, estimated.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Default for TableTemperatures {
    fn default() -> Self {
        let from = |step: usize| if step == 0 { 0.0 } else { 4_f64.powi(LOWEST + step as i32 - 1) };
        let steps = (0..STEPS).map(|step| TemperatureStep { from: from(step), rows: 0, bytes: 0 });
        Self { steps: steps.collect(), hot: TableBudget::default() }
    }
}

impl Temperatures {
    /// Adds a row that stands for `scale` rows.
    pub(super) fn add(&mut self, table: TableId, temperature: f64, bytes: u64, scale: f64) {
        let of = self.tables.entry(table).or_default();
        let step = of.steps.partition_point(|step| step.from <= temperature).saturating_sub(1);
        let (rows, all) = (scale as u64, (bytes as f64 * scale) as u64);
        of.steps[step].rows += rows;
        of.steps[step].bytes += all;
        if temperature > 0.0 && temperature >= self.threshold * bytes as f64 {
            of.hot.rows += rows;
            of.hot.bytes += all;
        }
        self.sampled_rows += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fall_into_the_step_of_their_temperature() {
        let mut found = Temperatures { threshold: 0.01, ..Temperatures::default() };
        let table = TableId(3);
        // Below all, at the edge of the second, just below and at an edge in the middle, beyond the last.
        for (temperature, scale) in [(0.001, 2.0), (1.0 / 256.0, 1.0), (0.99, 1.0), (1.0, 4.0), (1e9, 8.0)] {
            found.add(table, temperature, 100, scale);
        }
        let of = &found.tables[&table];
        let rows: Vec<u64> = of.steps.iter().map(|step| step.rows).collect();
        assert_eq!(rows, [2, 1, 0, 0, 1, 4, 0, 0, 0, 0, 0, 8]);
        assert_eq!(of.steps[5].from, 1.0);
        assert!(of.steps.is_sorted_by(|a, b| a.from < b.from));
        assert_eq!(of.hot, TableBudget { rows: 12, bytes: 1200 });
        assert_eq!(found.sampled_rows, 5);
    }
}
