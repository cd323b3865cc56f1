//! Ctrl-C and SIGTERM.

use crate::exit::Failure;
use std::time::Duration;

/// How long a clean stop may take before what is left over is not waited for any more.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_millis(1_500);
/// The process ends this long after it was asked to, whatever still runs: a blocked thread, memory being given back.
const END_AFTER: Duration = Duration::from_millis(1_600);

/// Resolves when somebody asks the process to stop, which then ends within two seconds.
///
/// # Errors
/// When the signals cannot be heard.
pub(crate) async fn stop_requested() -> Result<&'static str, Failure> {
    let why = signalled().await?;
    std::thread::spawn(|| {
        std::thread::sleep(END_AFTER);
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
