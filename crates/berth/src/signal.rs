//! Ctrl-C and SIGTERM.

use crate::exit::Failure;
use std::time::Duration;

/// How long a clean stop may take before what is left over is not waited for any more.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_millis(1_500);
/// The same for a scheduler of a real cluster, which gives back its lease over a network that may be slow.
pub(crate) const SCHEDULER_STOP_PATIENCE: Duration = Duration::from_secs(8);
/// The process ends this long after its patience has, whatever still runs: a blocked thread, memory being freed.
const END_AFTER: Duration = Duration::from_millis(100);

/// Signals that ask the process to stop. They are received from the moment at which this exists; before, they end the
/// process at once.
pub(crate) struct StopSignals(platform::Signals);

impl StopSignals {
    /// # Errors
    /// When signals cannot be received.
    pub(crate) fn listen() -> Result<Self, Failure> {
        platform::Signals::listen()
            .map(Self)
            .map_err(|e| Failure::Environment(format!("failed to listen for signals: {e}")))
    }

    /// Resolves when the process is asked to stop. The process ends within `patience` after that and a moment.
    pub(crate) async fn stop_requested(mut self, patience: Duration) -> &'static str {
        let why = self.0.received().await;
        std::thread::spawn(move || {
            std::thread::sleep(patience + END_AFTER);
            std::process::exit(0);
        });
        why
    }
}

#[cfg(unix)]
mod platform {
    use std::io;
    use tokio::signal::unix::{Signal, SignalKind, signal};

    pub(super) struct Signals {
        interrupt: Signal,
        terminate: Signal,
    }

    impl Signals {
        pub(super) fn listen() -> io::Result<Self> {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        }

        pub(super) async fn received(&mut self) -> &'static str {
            tokio::select! {
                _ = self.interrupt.recv() => "interrupted",
                _ = self.terminate.recv() => "asked to terminate",
            }
        }
    }
}

#[cfg(windows)]
mod platform {
    use std::io;
    use tokio::signal::windows::{CtrlC, ctrl_c};

    pub(super) struct Signals(CtrlC);

    impl Signals {
        pub(super) fn listen() -> io::Result<Self> {
            ctrl_c().map(Self)
        }

        pub(super) async fn received(&mut self) -> &'static str {
            self.0.recv().await;
            "interrupted"
        }
    }
}
