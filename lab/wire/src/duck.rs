//! DuckDB beside the servers: its Python package in a process of its own, which answers lines of JSON.
//!
//! The time is that of `execute` and `fetchall`, so that the answer is there as a whole, as it is with the servers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::Result;

const PROGRAM: &str = include_str!("duck.py");

/// The process. It ends when its input does.
pub(crate) struct Duck {
    process: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) version: String,
}

/// An answer: seconds and rows, or the error in one line.
pub(crate) type Answer = std::result::Result<(f64, Vec<Vec<Option<String>>>), String>;

impl Duck {
    /// Starts `python` with DuckDB on so many threads.
    pub(crate) fn start(python: &str, threads: usize) -> Result<Self> {
        let mut process = Command::new(python)
            .args(["-c", PROGRAM, &threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let asks = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().ok_or("a process without output")?);
        let mut duck = Self { process, asks, answers, version: String::new() };
        duck.version = duck.line()?["version"].as_str().unwrap_or_default().to_owned();
        Ok(duck)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("DuckDB's process has ended: `pip install duckdb`, or leave --duckdb out".into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Asks, and interrupts what takes longer than `limit` seconds.
    pub(crate) fn ask(&mut self, sql: &str, limit: u64) -> Result<Answer> {
        let asks = self.asks.as_mut().ok_or("a process without input")?;
        writeln!(asks, "{}", json!({ "sql": sql, "seconds": limit }))?;
        asks.flush()?;
        let mut answer = self.line()?;
        if let Some(error) = answer["error"].as_str() {
            return Ok(Err(error.to_owned()));
        }
        let seconds = answer["seconds"].as_f64().ok_or("an answer without its time")?;
        Ok(Ok((seconds, serde_json::from_value(answer["rows"].take())?)))
    }
}

impl Drop for Duck {
    fn drop(&mut self) {
        self.asks = None;
        // It has nothing left to do but to end.
        _ = self.process.wait();
    }
}
