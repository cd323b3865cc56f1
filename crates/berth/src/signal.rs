//! Ctrl-C and SIGTERM.

use crate::exit::Failure;
use std::time::Duration;

/// How long a clean stop may take before the process ends anyway.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_millis(1_800);

/// Resolves when somebody asks the process to stop.
///
/// # Errors
/// When the signals cannot be heard.
#[cfg(unix)]
pub(crate) async fn stop_requested() -> Result<&'static str, Failure> {
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

/// Resolves when somebody asks the process to stop.
///
/// # Errors
/// When the signal cannot be heard.
#[cfg(not(unix))]
pub(crate) async fn stop_requested() -> Result<&'static str, Failure> {
    tokio::signal::ctrl_c()
        .await
        .map(|()| "interrupted")
        .map_err(|e| Failure::Environment(format!("failed to listen for signals: {e}")))
}
