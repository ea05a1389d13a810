//! Interleaved rounds and their statistics.
//!
//! Machines are shared and drift, so no two figures are compared that were not taken within seconds of each other:
//! each round measures every contender once, the order rotating from round to round, and ratios are formed inside a
//! round. What is reported of rounds is the median, with the lowest and the highest.

use serde_json::{Value, json};

/// Median, lowest and highest of some rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// Of at least one figure.
    pub fn of(figures: &[f64]) -> Self {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (middle, last) = (sorted.len() / 2, sorted.len() - 1);
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Self { median, low: sorted[0], high: sorted[last] }
    }

    fn json(self) -> Value {
        json!({ "median": self.median, "low": self.low, "high": self.high })
    }
}

/// The figures of the contenders, round by round.
#[derive(Debug)]
pub struct Rounds {
    names: Vec<String>,
    /// One list a contender, one figure a round.
    figures: Vec<Vec<f64>>,
}

impl Rounds {
    /// Of these contenders; ratios are those of the first one to each other.
    pub fn new(names: Vec<String>) -> Self {
        let figures = vec![Vec::new(); names.len()];
        Self { names, figures }
    }

    /// Runs `rounds` of them: `measure` gives the figure of a contender by its place.
    pub fn run<E>(
        &mut self,
        rounds: usize,
        mut measure: impl FnMut(usize) -> Result<f64, E>,
    ) -> Result<(), E> {
        for round in 0..rounds {
            for turn in 0..self.names.len() {
                let contender = (round + turn) % self.names.len();
                let figure = measure(contender)?;
                eprintln!("round {} {:<16} {figure:.3}", round + 1, self.names[contender]);
                self.figures[contender].push(figure);
            }
        }
        Ok(())
    }

    /// The first contender's figures over those of `other`, round by round.
    fn ratios(&self, other: usize) -> Vec<f64> {
        self.figures[0].iter().zip(&self.figures[other]).map(|(ours, theirs)| ours / theirs).collect()
    }

    /// For people.
    pub fn table(&self, unit: &str) -> String {
        let mut text = format!("{:<16} {unit:>12}   lowest  highest   {} to it", "", self.names[0]);
        for (at, name) in self.names.iter().enumerate() {
            let Spread { median, low, high } = Spread::of(&self.figures[at]);
            text += &format!("\n{name:<16} {median:>12.3} {low:>8.3} {high:>8.3}");
            if at > 0 {
                let Spread { median, low, high } = Spread::of(&self.ratios(at));
                text += &format!("   {median:.2} ({low:.2} to {high:.2})");
            }
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let contender = |at: usize| {
            json!({
                "name": self.names[at],
                "rounds": self.figures[at],
                "figure": Spread::of(&self.figures[at]).json(),
                "ratio": Spread::of(&self.ratios(at)).json(),
            })
        };
        (0..self.names.len()).map(contender).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0]), Spread { median: 2.5, low: 1.0, high: 4.0 });
    }

    #[test]
    fn rounds_rotate_and_ratios_stay_inside_of_them() {
        let mut rounds = Rounds::new(vec!["a".to_owned(), "b".to_owned()]);
        let mut order = Vec::new();
        let mut drift = 1.0;
        rounds
            .run(4, |contender| {
                order.push(contender);
                // The machine gets faster round by round; the ratio does not.
                drift *= if order.len() % 2 == 1 { 2.0 } else { 1.0 };
                Ok::<_, ()>(if contender == 0 { 3.0 * drift } else { drift })
            })
            .unwrap();
        assert_eq!(order, [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(Spread::of(&rounds.ratios(1)), Spread { median: 3.0, low: 3.0, high: 3.0 });
        assert_eq!(rounds.json()[1]["rounds"].as_array().map(Vec::len), Some(4));
        assert!(rounds.table("M op/s").contains("3.00 (3.00 to 3.00)"));
    }
}
