//! The limits of concurrent work, and its counters: permits and counters.

use berth_objects::status::ApiError;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The `Retry-After` of a refused request, in seconds.
pub(super) const RETRY_AFTER_SECONDS: u32 = 1;

/// One permit of this number is reserved for system users, so that other clients cannot block controllers, schedulers
/// and the administrator.
const RESERVED_SHARE: usize = 10;

/// Permits for requests and watches, and counts of finished requests.
#[derive(Debug)]
pub(crate) struct Limits {
    requests: Arc<Semaphore>,
    requests_max: usize,
    watches: Arc<Semaphore>,
    watches_max: usize,
    /// Finished requests by method and code.
    finished: Mutex<BTreeMap<(&'static str, u16), u64>>,
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
    pub(super) fn request(&self, is_system: bool) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = acquire(&self.requests)?;
        // With this permit taken, so that requests at the same time cannot both pass.
        if !is_system && self.requests.available_permits() < self.requests_max / RESERVED_SHARE {
            return Err(too_many());
        }
        Ok(permit)
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
            "GET" => "GET",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            _ => "other",
        };
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        *finished.entry((method, code)).or_default() += 1;
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
    let permit = Arc::clone(semaphore).try_acquire_owned();
    permit.map_err(|_| too_many())
}

fn too_many() -> ApiError {
    ApiError::too_many_requests(
        "Too many requests, please try again later.",
        RETRY_AFTER_SECONDS,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_requests_run_than_there_are_permits() {
        let limits = Limits::new(2, 1);
        let held = (limits.request(false), limits.request(false));
        assert!(held.0.is_ok() && held.1.is_ok());
        let refused = limits.request(true).err();
        assert_eq!(refused.as_ref().map(|e| e.code), Some(429));
        assert!(limits.watch().is_ok(), "watches have permits of their own");
        drop(held);
        assert!(limits.request(false).is_ok());
    }

    #[test]
    fn a_share_of_the_permits_is_for_system_users() {
        let limits = Limits::new(20, 1);
        let mut held: Vec<_> = (0..18).map(|_| limits.request(false)).collect();
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(limits.request(false).err().map(|e| e.code), Some(429));
        held.extend([limits.request(true), limits.request(true)]);
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(limits.request(true).err().map(|e| e.code), Some(429));
    }
}
