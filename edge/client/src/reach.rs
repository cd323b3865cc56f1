//! Reachability of the API server, reported once for all users of a connection instead of at each attempt.

use crate::ApiError;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// That the API is out of reach is logged again after this time.
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// The time after a restart in which an API server may still load its roles.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    state: Mutex<ReachState>,
    /// Whether outages are not logged.
    is_silent: bool,
}

#[derive(Debug, Default)]
struct ReachState {
    /// The start of the outage.
    lost: Option<Instant>,
    /// The time of the last report.
    reported: Option<Instant>,
    /// The time of the first success after an outage.
    back: Option<Instant>,
}

/// The news to log.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// The server is unreachable, for this time already.
    Lost(Duration),
    /// The server is reachable again, after this time.
    Back(Duration),
}

impl Reach {
    /// For a client that asks once and reports the error itself.
    pub(crate) fn silent() -> Self {
        Self {
            is_silent: true,
            ..Self::default()
        }
    }

    /// Returns whether the server was reached again a moment ago: until it has loaded its roles it answers 403.
    pub(crate) fn is_settling(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state
            .back
            .is_some_and(|back| back.elapsed() < SETTLES_WITHIN)
    }

    /// Takes note of how an exchange with the server went.
    pub(crate) fn note<T>(&self, server: &str, result: &Result<T, ApiError>) {
        let error = result.as_ref().err().filter(|e| e.is_out_of_reach());
        let news = self
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .note(error.is_some(), Instant::now());
        let news = news.filter(|_| !self.is_silent);
        match (news, error) {
            (Some(News::Lost(since)), Some(error)) => {
                let hint = match error.code() {
                    Some(_) => {
                        "the server refuses our credentials: does the kubeconfig belong to it?"
                    }
                    None => "is it running, and does the kubeconfig belong to it?",
                };
                let since = since.as_secs();
                tracing::warn!(server, %error, since_seconds = since, "failed to reach the API server, retrying; {hint}");
            }
            (Some(News::Back(after)), _) => {
                let after = after.as_secs();
                tracing::warn!(
                    server,
                    after_seconds = after,
                    "the API server is within reach again"
                );
            }
            _ => {}
        }
    }
}

impl ReachState {
    fn note(&mut self, failed: bool, now: Instant) -> Option<News> {
        if failed {
            let lost = *self.lost.get_or_insert(now);
            let is_due = self
                .reported
                .is_none_or(|reported| now.saturating_duration_since(reported) >= REPORT_EVERY);
            return is_due.then(|| {
                self.reported = Some(now);
                News::Lost(now.saturating_duration_since(lost))
            });
        }
        if self.lost.is_some() {
            self.back = Some(now);
        }
        let lost = self.lost.take()?;
        // The return is reported only if the loss was.
        (self.reported? >= lost).then(|| News::Back(now.saturating_duration_since(lost)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_logged_when_it_begins_now_and_then_and_when_it_ends() {
        let begin = Instant::now();
        let seconds = Duration::from_secs;
        // (second, failed, news)
        let cases = [
            (0, false, None),
            (1, true, Some(News::Lost(seconds(0)))),
            (2, true, None),
            (30, true, None),
            (31, true, Some(News::Lost(seconds(30)))),
            (32, false, Some(News::Back(seconds(31)))),
            (33, false, None),
            // A state that changes often is not logged each time.
            (34, true, None),
            (35, false, None),
            (70, true, Some(News::Lost(seconds(0)))),
        ];
        let mut state = ReachState::default();
        for (second, failed, news) in cases {
            assert_eq!(
                state.note(failed, begin + seconds(second)),
                news,
                "{second}"
            );
        }
    }
}
