//! How much is done at once, and how much was done: permits and counters.

use crate::status::ApiError;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// When a client that was turned away should come again.
pub(super) const RETRY_AFTER_SECONDS: u32 = 1;

/// Permits for requests and watches, and what became of them.
#[derive(Debug)]
pub(crate) struct Limits {
    requests: Arc<Semaphore>,
    requests_max: usize,
    watches: Arc<Semaphore>,
    watches_max: usize,
    /// Finished requests by method and code.
    finished: Mutex<BTreeMap<(String, u16), u64>>,
}

impl Limits {
    pub(super) fn new(requests: usize, watches: usize) -> Self {
        let (requests, watches) = (
            requests.clamp(1, Semaphore::MAX_PERMITS),
            watches.clamp(1, Semaphore::MAX_PERMITS),
        );
        Self {
            requests: Arc::new(Semaphore::new(requests)),
            requests_max: requests,
            watches: Arc::new(Semaphore::new(watches)),
            watches_max: watches,
            finished: Mutex::default(),
        }
    }

    /// A permit for a request, to be held until it is answered.
    ///
    /// # Errors
    /// 429 when too many run.
    pub(super) fn request(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        acquire(&self.requests)
    }

    /// A permit for a watch, to be held until it ends.
    ///
    /// # Errors
    /// 429 when too many run.
    pub(super) fn watch(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        acquire(&self.watches)
    }

    pub(super) fn count(&self, method: &http::Method, code: u16) {
        // Only the methods of the API are counted separately, so that clients cannot grow the table.
        let method = match method.as_str() {
            known @ ("GET" | "POST" | "PUT" | "PATCH" | "DELETE") => known,
            _ => "other",
        };
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        *finished.entry((method.to_owned(), code)).or_default() += 1;
    }

    /// The counters in the text format of Prometheus.
    pub(super) fn write_metrics(&self, out: &mut String) {
        let in_flight = self.requests_max - self.requests.available_permits();
        let watching = self.watches_max - self.watches.available_permits();
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "# HELP apiserver_current_inflight_requests Requests that are being worked on, watches aside.\n\
             # TYPE apiserver_current_inflight_requests gauge\n\
             apiserver_current_inflight_requests {in_flight}\n\
             # HELP apiserver_longrunning_requests Watches that run.\n\
             # TYPE apiserver_longrunning_requests gauge\n\
             apiserver_longrunning_requests {watching}\n\
             # HELP apiserver_request_total Requests that were answered.\n\
             # TYPE apiserver_request_total counter"
        );
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        for ((method, code), count) in finished.iter() {
            let _ = writeln!(
                out,
                "apiserver_request_total{{code=\"{code}\",verb=\"{method}\"}} {count}"
            );
        }
    }
}

fn acquire(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiError> {
    Arc::clone(semaphore).try_acquire_owned().map_err(|_| {
        ApiError::too_many_requests(
            "Too many requests, please try again later.",
            RETRY_AFTER_SECONDS,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_requests_run_than_there_are_permits() {
        let limits = Limits::new(2, 1);
        let held = (limits.request(), limits.request());
        assert!(held.0.is_ok() && held.1.is_ok());
        let refused = limits.request().err();
        assert_eq!(refused.as_ref().map(|e| e.code), Some(429));
        assert!(limits.watch().is_ok(), "watches have permits of their own");
        drop(held);
        assert!(limits.request().is_ok());
    }
}
