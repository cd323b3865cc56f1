//! Sends one event, again where that may help.

use super::series::Write;
use super::{Event, RETRY_BUDGET, Regarding};
use crate::limit::Lane;
use crate::request::{self, ApiRequest, Body, EVENTS};
use crate::{ApiError, Transport};
use berth_api::Time;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

/// The first and the longest pause before another attempt. A longer `Retry-After` of the server takes precedence.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));

/// The receiver of requests.
pub(super) trait EventApi: Send + Sync + 'static {
    /// Sends a request whose answer does not matter beyond success.
    fn send(&self, request: &ApiRequest) -> impl Future<Output = Result<(), ApiError>> + Send;

    /// Returns whether the server has just returned and may not have loaded its roles yet.
    fn is_settling(&self) -> bool;
}

impl EventApi for Transport {
    async fn send(&self, request: &ApiRequest) -> Result<(), ApiError> {
        self.execute(request).await
    }

    fn is_settling(&self) -> bool {
        Self::is_settling(self)
    }
}

/// The request to send.
pub(super) struct EventJob {
    pub(super) event: Event,
    pub(super) at: Time,
    pub(super) write: Write,
    /// The place in the queue, released when the job ends. Writes of series by the clock have none.
    pub(super) _place: Option<OwnedSemaphorePermit>,
}

/// The result of a job.
pub(super) struct JobEnd {
    pub(super) event: Event,
    pub(super) result: Result<(), ApiError>,
}

/// Sends a job until it succeeds, is refused, or exceeds its time.
pub(super) async fn deliver(
    api: &impl EventApi,
    instance: &str,
    mut job: EventJob,
    mut jitter: fastrand::Rng,
) -> JobEnd {
    let began = Instant::now();
    let mut pause = PAUSES.0;
    let mut is_repeated = false;
    let result = loop {
        let Err(error) = api.send(&request(&job, instance)).await else {
            break Ok(());
        };
        match &mut job.write {
            // The event has expired or never existed: create it again.
            Write::Grow { name, .. } if error.is_not_found() => {
                job.write = Write::Create(std::mem::take(name));
                continue;
            }
            // An earlier attempt succeeded, but its answer was lost.
            Write::Create(_) if is_repeated && error.code() == Some(409) => break Ok(()),
            // Roles are loaded a little later than requests are answered.
            _ if error.is_forbidden() && api.is_settling() => {}
            _ if !error.is_retryable() => break Err(error),
            _ => {}
        }
        let asked = match &error {
            ApiError::Status {
                retry_after_seconds: Some(seconds),
                ..
            } => Duration::from_secs(*seconds).min(RETRY_BUDGET),
            _ => Duration::ZERO,
        };
        let wait = pause.max(asked).mul_f64(1.0 + jitter.f64() / 2.0);
        if began.elapsed().saturating_add(wait) > RETRY_BUDGET {
            break Err(error);
        }
        sleep(wait).await;
        pause = (pause * 2).min(PAUSES.1);
        is_repeated = true;
    };
    JobEnd {
        event: job.event,
        result,
    }
}

/// An object as events refer to it.
fn reference(object: &Regarding) -> Value {
    json!({
        "apiVersion": object.api_version,
        "kind": object.kind,
        "namespace": object.namespace,
        "name": object.name,
        "uid": object.uid,
    })
}

fn request(job: &EventJob, instance: &str) -> ApiRequest {
    let event = &job.event;
    let namespace = if event.regarding.namespace.is_empty() {
        "default"
    } else {
        &event.regarding.namespace
    };
    match &job.write {
        Write::Create(name) => {
            let mut body = json!({
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "eventTime": job.at.rfc3339_micros(),
                "reportingController": event.reporting_controller,
                "reportingInstance": format!("{}-{instance}", event.reporting_controller),
                "action": event.action,
                "reason": event.reason,
                "regarding": reference(&event.regarding),
                "note": event.note,
                "type": event.kind,
            });
            if let Some(related) = &event.related {
                body["related"] = reference(related);
            }
            ApiRequest {
                body: Body::Value(body),
                ..request::create(EVENTS, namespace, &Value::Null)
            }
        }
        Write::Grow { name, count, last } => {
            // All other fields of an event are immutable.
            let patch = json!({
                "series": {"count": count, "lastObservedTime": last.rfc3339_micros()},
            });
            request::merge_patch(EVENTS, namespace, name, &patch).in_lane(Lane::Status)
        }
    }
}
