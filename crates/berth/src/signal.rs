//! Ctrl-C and SIGTERM.

use crate::exit::Failure;
use std::time::Duration;

/// How long a clean stop may take before what is left over is not waited for any more.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_millis(1_500);
/// The same for a scheduler of a real cluster, which gives back its lease over a network that may be slow.
pub(crate) const SCHEDULER_STOP_PATIENCE: Duration = Duration::from_secs(8);
/// The process ends this long after its patience has, whatever still runs: a blocked thread, memory being freed.
const END_AFTER: Duration = Duration::from_millis(100);

/// Resolves when the process is asked to stop. It then ends within `patience` and a moment.
///
/// # Errors
/// When signals cannot be received.
pub(crate) async fn stop_requested(patience: Duration) -> Result<&'static str, Failure> {
    let why = signalled().await?;
    std::thread::spawn(move || {
        std::thread::sleep(patience + END_AFTER);
        std::process::exit(0);
    });
    Ok(why)
}

#[cfg(unix)]
async fn signalled() -> Result<&'static str, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| {
        signal(kind).map_err(|e| Failure::Environment(format!("failed to listen for signals: {e}")))
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => Ok("interrupted"),
        _ = terminate.recv() => Ok("asked to terminate"),
    }
}

#[cfg(not(unix))]
async fn signalled() -> Result<&'static str, Failure> {
    tokio::signal::ctrl_c()
        .await
        .map(|()| "interrupted")
        .map_err(|e| Failure::Environment(format!("failed to listen for signals: {e}")))
}
