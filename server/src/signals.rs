//! The signals that ask a serving process to end.

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, heard since this was made: a process that says that it listens ends well from then on.
pub struct Ends {
    runtime: Runtime,
    signals: (Signal, Signal),
}

impl Ends {
    /// Hears the signals from now on.
    ///
    /// # Errors
    /// If the system refuses to tell of signals.
    pub fn heard() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let signals = runtime.block_on(async {
            std::io::Result::Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
        })?;
        Ok(Self { runtime, signals })
    }

    /// Waits for one of them. The next one ends the process at once, with the exit code 130.
    pub fn wait(self) {
        let Self { runtime, signals: (mut term, mut int) } = self;
        runtime.block_on(async {
            tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
        });
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
            });
            std::process::exit(130);
        });
    }
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ends")
    }
}
