//! The signals that ask a serving process to end.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT. The next one of these ends the process at once, with the exit code 130.
///
/// # Errors
/// If the system refuses to tell of signals.
pub fn wait_for_end() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut term, mut int) = runtime.block_on(async {
        std::io::Result::Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    })?;
    runtime.block_on(async {
        tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
    });
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
        });
        std::process::exit(130);
    });
    Ok(())
}
