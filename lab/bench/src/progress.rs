//! Tells the person in front of a long run what it is doing: one line on standard error, rewritten in place on a
//! terminal, printed once a second elsewhere (in a log of continuous integration, say).

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::time::{self, Moment};

/// The progress line.
#[derive(Debug)]
pub struct Progress {
    to: To,
    shown: Option<Moment>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum To {
    Nobody,
    Terminal,
    Log,
}

impl Progress {
    /// A progress line, or none if `quiet`.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        let to = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => To::Nobody,
            (false, true) => To::Terminal,
            (false, false) => To::Log,
        };
        Self { to, shown: None }
    }

    /// Shows `text` if the last line is old enough; the text is made only then. May be called often.
    pub fn show<T: std::fmt::Display>(&mut self, text: impl FnOnce() -> T) {
        let pause = match self.to {
            To::Nobody => return,
            To::Terminal => Duration::from_millis(200),
            To::Log => Duration::from_millis(950),
        };
        if self.shown.is_some_and(|shown| shown.elapsed() < pause) {
            return;
        }
        self.shown = Some(time::now());
        self.write(&text());
    }

    /// Begins a new part of the run: `text` is shown in any case.
    pub fn begin(&mut self, text: &str) {
        if self.to != To::Nobody {
            self.shown = Some(time::now());
            self.write(&text);
        }
    }

    /// Leaves the terminal's line to others.
    pub fn end(&mut self) {
        if self.to == To::Terminal && self.shown.take().is_some() {
            Self::print(format_args!("\r\x1b[K"));
        }
    }

    fn write(&self, text: &dyn std::fmt::Display) {
        match self.to {
            To::Nobody => {}
            To::Terminal => Self::print(format_args!("\r\x1b[K{text}")),
            To::Log => Self::print(format_args!("{text}\n")),
        }
    }

    fn print(text: std::fmt::Arguments<'_>) {
        let mut stderr = std::io::stderr().lock();
        // A closed standard error is no reason to stop a run.
        let _ = stderr.write_fmt(text).and_then(|()| stderr.flush());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_one_makes_no_text() {
        let mut progress = Progress::new(true);
        progress.show(|| -> &str { panic!("nobody reads this") });
    }

    #[test]
    fn texts_are_made_only_when_they_are_shown() {
        let mut progress = Progress { to: To::Log, shown: Some(time::now()) };
        progress.show(|| -> &str { panic!("too early") });
        progress.shown = None;
        let mut shown = false;
        progress.show(|| {
            shown = true;
            "a line of the progress test"
        });
        assert!(shown);
    }
}
