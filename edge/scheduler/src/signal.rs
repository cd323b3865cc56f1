//! Ctrl-C and SIGTERM.

use crate::exit::CommandFailure;
use std::time::Duration;

/// The time limit of a clean stop, after which remaining tasks are dropped.
pub const STOP_PATIENCE: Duration = Duration::from_millis(1_500);
/// The limit for a scheduler of a real cluster, which releases its lease over a possibly slow network.
pub(crate) const SCHEDULER_STOP_PATIENCE: Duration = Duration::from_secs(8);
/// The process ends this long after its shutdown limit, even if something still runs: a blocked thread, memory being
/// freed.
const END_AFTER: Duration = Duration::from_millis(100);

/// Signals that stop the process. They are received while this exists; before, they end the process at once.
pub struct StopSignals(platform::Signals);

impl StopSignals {
    /// Receives the signals from now on.
    ///
    /// # Errors
    /// When signals cannot be received.
    pub fn listen() -> Result<Self, CommandFailure> {
        platform::Signals::listen()
            .map(Self)
            .map_err(|e| CommandFailure::Environment(format!("failed to listen for signals: {e}")))
    }

    /// Resolves when a signal stops the process. The process then exits after `patience` and a short margin at the
    /// latest.
    pub async fn stop_requested(mut self, patience: Duration) -> &'static str {
        let why = self.0.received().await;
        std::thread::spawn(move || {
            std::thread::sleep(patience + END_AFTER);
            std::process::exit(0);
        });
        why
    }
}

/// Requests to read the configuration again: SIGHUP, on systems with this signal. Before this exists, the signal ends
/// the process.
pub(crate) struct ReloadSignals(platform::ReloadSignals);

impl ReloadSignals {
    /// # Errors
    /// When signals cannot be received.
    pub(crate) fn listen() -> Result<Self, CommandFailure> {
        platform::ReloadSignals::listen()
            .map(Self)
            .map_err(|e| CommandFailure::Environment(format!("failed to listen for signals: {e}")))
    }

    /// Resolves when there is a request.
    pub(crate) async fn requested(&mut self) {
        self.0.received().await;
    }
}

/// Asks another process to stop.
///
/// # Errors
/// When it does not exist, or is another user's.
pub fn terminate(pid: u32) -> std::io::Result<()> {
    platform::terminate(pid)
}

#[cfg(unix)]
mod platform {
    use rustix::process::{Pid, Signal as Number, kill_process};
    use std::io;
    use tokio::signal::unix::{Signal, SignalKind, signal};

    pub(super) fn terminate(pid: u32) -> io::Result<()> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("it is no number of a process"))?;
        kill_process(pid, Number::TERM).map_err(io::Error::from)
    }

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

    pub(super) struct ReloadSignals(Signal);

    impl ReloadSignals {
        pub(super) fn listen() -> io::Result<Self> {
            signal(SignalKind::hangup()).map(Self)
        }

        pub(super) async fn received(&mut self) {
            self.0.recv().await;
        }
    }
}

#[cfg(windows)]
mod platform {
    use std::io;
    use tokio::signal::windows::{CtrlC, ctrl_c};

    pub(super) fn terminate(pid: u32) -> io::Result<()> {
        let ended = std::process::Command::new("taskkill")
            .args(["/F", "/PID", &pid.to_string()])
            .status()?;
        if ended.success() {
            Ok(())
        } else {
            Err(io::Error::other("taskkill failed"))
        }
    }

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

    pub(super) struct ReloadSignals;

    impl ReloadSignals {
        pub(super) fn listen() -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) async fn received(&mut self) {
            std::future::pending().await
        }
    }
}
