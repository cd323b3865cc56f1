//! The runtime of the scheduler's edge: one thread for all network I/O.
//!
//! A decision takes microseconds, so most of the CPU time of a scheduler is the cost of waking threads: each pod causes
//! a few messages, and each message that arrives alone wakes a thread. The edge is therefore one thread, which pauses
//! before a wait while messages arrive in quick succession. Messages that arrive during the pause are read, decoded,
//! answered and written together. The pause ends early when the core has something to send.
//!
//! A thread that is idle does not pause: the first message after a while is taken in at once.

use crate::exit::CommandFailure;
use crate::tasks;
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The longest pause. Under load, half of it is added to the mean latency of messages; without load, none. A longer
/// pause saves little more CPU time (docs/performance/log.md).
const PAUSE: Duration = Duration::from_millis(1);
/// Waits that end sooner than this follow one another closely.
const CLOSE: Duration = Duration::from_millis(2);
/// The number of waits in quick succession after which the thread pauses. A single pod causes fewer messages.
const CLOSE_WAITS_MIN: u32 = 4;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

thread_local! {
    /// The pauses of this thread, if it is the edge of a scheduler.
    static PAUSES: OnceCell<Arc<Pauses>> = const { OnceCell::new() };
}

/// The pauses of a thread before it waits.
#[derive(Debug)]
pub(crate) struct Pauses {
    thread: Thread,
    is_pausing: AtomicBool,
    started: Instant,
    /// The start of the last wait, in microseconds after the start of the thread.
    waited: AtomicU64,
    /// The number of waits that have followed each other closely.
    close: AtomicU32,
}

impl Pauses {
    /// The pauses of this thread, if it is the edge of a scheduler.
    pub(crate) fn current() -> Option<Arc<Self>> {
        PAUSES.with(|pauses| pauses.get().map(Arc::clone))
    }

    fn of_this_thread() -> Self {
        Self {
            thread: thread::current(),
            is_pausing: AtomicBool::new(false),
            started: Instant::now(),
            waited: AtomicU64::new(0),
            close: AtomicU32::new(0),
        }
    }

    /// Ends the pause, if there is one now.
    pub(crate) fn end(&self) {
        if self.is_pausing.load(Ordering::Acquire) {
            self.thread.unpark();
        }
    }

    /// Returns whether to pause before a wait that begins at this time after the start. Only one thread calls this.
    fn is_due(&self, now: Duration) -> bool {
        let before = self.waited.swap(micros(now), Ordering::Relaxed);
        let is_close = micros(now).saturating_sub(before) < micros(CLOSE);
        let close = if is_close {
            self.close.load(Ordering::Relaxed).saturating_add(1)
        } else {
            0
        };
        self.close.store(close, Ordering::Relaxed);
        close >= CLOSE_WAITS_MIN
    }

    /// The thread is about to wait.
    fn before_wait(&self) {
        if self.is_due(self.started.elapsed()) {
            self.is_pausing.store(true, Ordering::Release);
            thread::park_timeout(PAUSE);
            self.is_pausing.store(false, Ordering::Release);
            let now = self.started.elapsed();
            self.waited.store(micros(now), Ordering::Relaxed);
        }
    }
}

/// Runs the edge of a scheduler on this thread. Remaining tasks are dropped at its end.
///
/// # Errors
/// The errors of the edge; the runtime cannot be created.
pub(crate) fn run(
    main: impl Future<Output = Result<(), CommandFailure>>,
) -> Result<(), CommandFailure> {
    let pauses = PAUSES.with(|current| {
        let pauses = current.get_or_init(|| Arc::new(Pauses::of_this_thread()));
        Arc::clone(pauses)
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || pauses.before_wait())
        .build()
        .map_err(|e| CommandFailure::Environment(format!("failed to start the event loop: {e}")))?;
    let result = tasks::block_on(&runtime, main);
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread with waits at these times in milliseconds pauses before these waits.
    #[test]
    fn a_thread_pauses_only_while_messages_keep_coming() {
        let cases: [(&str, &[u64], &[u64]); 4] = [
            ("idle", &[100, 200, 300, 400, 500, 600], &[]),
            ("one pod", &[100, 101, 102, 103, 200, 201, 202, 203], &[]),
            ("many pods", &[100, 101, 102, 103, 104, 105], &[104, 105]),
            (
                "many pods, then idle",
                &[100, 101, 102, 103, 104, 200, 201],
                &[104],
            ),
        ];
        for (situation, waits, paused) in cases {
            let pauses = Pauses::of_this_thread();
            let waits = waits.iter().copied();
            let got: Vec<u64> = waits
                .filter(|at| pauses.is_due(Duration::from_millis(*at)))
                .collect();
            assert_eq!(got, paused, "{situation}");
        }
    }
}
