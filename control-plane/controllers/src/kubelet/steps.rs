//! The steps of a pod on a simulated node. [`next`] is pure: it derives the next step from a pod, its record and the
//! time.

use super::admission::NodeShare;
use super::container;
use super::events::StepEvents;
use super::status::{Containers, PodAddress, restarts, status_of};
use super::{READY_SECONDS, STARTUP_SECONDS, STOP_SECONDS};
use berth_objects::object::{condition, is_deleting, items, time};
use berth_objects::pod;
use berth_objects::view::FieldView;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The longest pause before containers that ended run again.
const BACK_OFF_SECONDS_MAX: u64 = 300;
/// The time from the first failed pull of an image until the kubelet reports a back-off.
const PULL_BACK_OFF: Duration = Duration::from_secs(10);
/// A pod that still exists after this time is deleted again.
const DELETED_AGAIN: Duration = Duration::from_secs(1);

/// The default durations of pods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub(super) startup: Duration,
    pub(super) job_run: Option<Duration>,
    pub(super) stop: Duration,
}

/// The record of a pod. All of it can be found again from the pod, but for fractions of seconds.
#[derive(Debug, Default)]
pub(super) struct PodRecord {
    pub(super) uid: String,
    pub(super) ip: String,
    pub(super) bound_at: Option<Timestamp>,
    pub(super) running_since: Option<Timestamp>,
    pub(super) restart_at: Option<Timestamp>,
    pub(super) pull_failed_at: Option<Timestamp>,
    pub(super) is_admitted: bool,
    pub(super) stop_at: Option<Timestamp>,
    /// The time of the deletion by the kubelet. The API server removes the pod a moment later.
    pub(super) deleted_at: Option<Timestamp>,
    /// The pod's share of the node, with the resource version of the pod from which it was computed.
    pub(super) taken: Option<(String, Arc<NodeShare>)>,
}

impl PodRecord {
    /// The part of the node that the pod uses, read again only for another version of the pod.
    pub(super) fn taken(&mut self, pod: &Value) -> Result<Arc<NodeShare>, serde_json::Error> {
        let version = pod.part("metadata").text("resourceVersion");
        if let Some((known, taken)) = &self.taken
            && known == version
        {
            return Ok(taken.clone());
        }
        let taken = Arc::new(NodeShare::by(pod)?);
        self.taken = Some((version.to_owned(), taken.clone()));
        Ok(taken)
    }
}

/// The next step for a pod.
#[derive(Debug, PartialEq)]
pub(super) enum PodStep {
    Write(Value, StepEvents),
    Delete,
    WaitUntil(Timestamp),
    Nothing,
}

pub(super) fn after(time: Timestamp, delay: Duration) -> Timestamp {
    SignedDuration::try_from(delay)
        .ok()
        .and_then(|d| time.checked_add(d).ok())
        .unwrap_or(Timestamp::MAX)
}

/// The step to take now.
pub(super) fn next(
    pod: &Value,
    record: &mut PodRecord,
    host_ip: &str,
    defaults: Defaults,
    now: Timestamp,
) -> PodStep {
    if is_deleting(pod) {
        return stop(pod, record, host_ip, defaults, now);
    }
    if pod::is_terminal(pod) {
        return PodStep::Nothing;
    }
    let place = PodAddress {
        host_ip,
        pod_ip: &record.ip,
    };
    let write = |phase, containers, restarted, notify| {
        let status = status_of(pod, place, phase, containers, restarted, now);
        PodStep::Write(status, notify)
    };
    let deadline = deadline(pod);
    if deadline.is_some_and(|at| at <= now) {
        let ended = Containers::Ended { exit_code: 137 };
        let mut status = status_of(pod, place, "Failed", ended, false, now);
        status["reason"] = "DeadlineExceeded".into();
        status["message"] = "Pod was active on the node longer than the specified deadline".into();
        return PodStep::Write(status, StepEvents::Nothing);
    }
    let soonest = |times: &[Option<Timestamp>]| {
        let earliest = times.iter().flatten().chain(deadline.as_ref()).min();
        earliest.map_or(PodStep::Nothing, |at| PodStep::WaitUntil(*at))
    };
    let ready_after = container::given_seconds(pod, READY_SECONDS).unwrap_or_default();
    let begun = Containers::Running {
        ready: ready_after.is_zero(),
    };
    if pod::phase(pod) != "Running" {
        let bound_at = *record.bound_at.get_or_insert(now);
        let startup = container::given_seconds(pod, STARTUP_SECONDS).unwrap_or(defaults.startup);
        let run_at = after(bound_at, startup);
        if run_at > now {
            if pod["status"]["startTime"].is_string() {
                return soonest(&[Some(run_at)]);
            }
            return write("Pending", Containers::Creating, false, StepEvents::Nothing);
        }
        if container::without_image(pod).next().is_some() {
            let (no_image, notify) = match pull(pod, &mut record.pull_failed_at, now) {
                Pull::Fails => (Containers::NoImage { waits: false }, StepEvents::PullFailed),
                Pull::BacksOff => (Containers::NoImage { waits: true }, StepEvents::PullBackOff),
                Pull::Waits(until) => return soonest(&[until]),
            };
            return write("Pending", no_image, false, notify);
        }
        record.running_since = Some(now);
        return write("Running", begun, false, StepEvents::Started);
    }
    let statuses = || items(&pod["status"]["containerStatuses"]).iter();
    if statuses().any(|c| c["state"]["waiting"].is_object()) {
        let restart_at = *record.restart_at.get_or_insert(now);
        if restart_at > now {
            return soonest(&[Some(restart_at)]);
        }
        record.running_since = Some(now);
        record.restart_at = None;
        return write("Running", begun, true, StepEvents::Nothing);
    }
    if !outdated(pod).is_empty() {
        record.running_since = Some(now);
        return write("Running", begun, false, StepEvents::Replaced);
    }
    let started = || statuses().find_map(|c| time(&c["state"]["running"]["startedAt"]));
    let since = *record
        .running_since
        .get_or_insert_with(|| started().unwrap_or(now));
    let end_at = run_time(pod, defaults).map(|run| after(since, run));
    if end_at.is_some_and(|at| at <= now) {
        return end(pod, record, host_ip, now);
    }
    let ready_at = after(since, ready_after);
    let ready = ready_at <= now;
    let running = Containers::Running { ready };
    let status = status_of(pod, place, "Running", running, false, now);
    if shows_a_change(pod, &status) {
        return PodStep::Write(status, StepEvents::Nothing);
    }
    soonest(&[end_at, (!ready).then_some(ready_at)])
}

/// The run time of containers that terminate by themselves. Containers of Jobs do by default, because no Job would
/// complete otherwise.
fn run_time(pod: &Value, defaults: Defaults) -> Option<Duration> {
    let owners = items(&pod["metadata"]["ownerReferences"]);
    let is_of_job = || {
        let mut owners = owners.iter();
        owners.any(|owner| owner["controller"] == true && owner["kind"] == "Job")
    };
    container::ends_after(pod).or_else(|| defaults.job_run.filter(|_| is_of_job()))
}

/// The running containers of a pod whose image was changed.
pub(super) fn outdated(pod: &Value) -> Vec<&Value> {
    let statuses = items(&pod["status"]["containerStatuses"]);
    let containers = items(&pod["spec"]["containers"]).iter();
    containers
        .filter(|container| {
            statuses.iter().any(|status| {
                status["name"] == container["name"]
                    && status["image"] != container["image"]
                    && status["state"]["running"].is_object()
            })
        })
        .collect()
}

/// Returns whether a status differs from the present one in its readiness, ephemeral containers or observed generation.
fn shows_a_change(pod: &Value, status: &Value) -> bool {
    let old = &pod["status"];
    let differs = |kind: &str| {
        let of = |status| condition(status, kind).map(|c: &Value| (&c["status"], &c["reason"]));
        of(old) != of(status)
    };
    // The generation is not written again and again to a server that does not keep it.
    let generation = &old["observedGeneration"];
    differs("Ready")
        || differs("ContainersReady")
        || items(&pod["spec"]["ephemeralContainers"]).len()
            != items(&old["ephemeralContainerStatuses"]).len()
        || (generation.is_number() && *generation != status["observedGeneration"])
}

fn deadline(pod: &Value) -> Option<Timestamp> {
    let seconds = pod["spec"]["activeDeadlineSeconds"].as_u64()?;
    let start = time(&pod["status"]["startTime"])?;
    Some(after(start, Duration::from_secs(seconds)))
}

/// The containers have ended by themselves.
fn end(pod: &Value, record: &mut PodRecord, host_ip: &str, now: Timestamp) -> PodStep {
    let place = PodAddress {
        host_ip,
        pod_ip: &record.ip,
    };
    let phase = match (
        pod["spec"]["restartPolicy"].as_str(),
        container::is_failing(pod),
    ) {
        (Some("Never" | "OnFailure"), false) => "Succeeded",
        (Some("Never"), true) => "Failed",
        _ => {
            let times = restarts(pod);
            // The first restart is immediate, further ones after 10, 20, 40, … seconds.
            let delay = match u32::try_from(times) {
                Ok(0) => 0,
                Ok(n) => (10u64 << (n - 1).min(10)).min(BACK_OFF_SECONDS_MAX),
                Err(_) => BACK_OFF_SECONDS_MAX,
            };
            record.restart_at = Some(after(now, Duration::from_secs(delay)));
            let back_off = Containers::BackOff { delay };
            let status = status_of(pod, place, "Running", back_off, false, now);
            let notify = if delay > 0 {
                StepEvents::BackOff
            } else {
                StepEvents::Nothing
            };
            return PodStep::Write(status, notify);
        }
    };
    let status = status_of(pod, place, phase, Containers::Exited, false, now);
    PodStep::Write(status, StepEvents::Nothing)
}

/// The next step for a pod with an image that cannot be pulled.
enum Pull {
    Fails,
    BacksOff,
    /// Until a time, or until the image is changed.
    Waits(Option<Timestamp>),
}

fn pull(pod: &Value, failed_at: &mut Option<Timestamp>, now: Timestamp) -> Pull {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let mut statuses = lists.iter().flat_map(|list| items(&pod["status"][*list]));
    let reasons = ["ErrImagePull", "ImagePullBackOff"];
    let reason = statuses.find_map(|c| {
        let reason = c["state"]["waiting"]["reason"].as_str();
        reason.filter(|reason| reasons.contains(reason))
    });
    match reason {
        Some("ErrImagePull") => match after(*failed_at.get_or_insert(now), PULL_BACK_OFF) {
            at if at > now => Pull::Waits(Some(at)),
            _ => Pull::BacksOff,
        },
        Some(_) => Pull::Waits(None),
        None => {
            *failed_at = Some(now);
            Pull::Fails
        }
    }
}

/// The pod is being deleted.
fn stop(
    pod: &Value,
    record: &mut PodRecord,
    host_ip: &str,
    defaults: Defaults,
    now: Timestamp,
) -> PodStep {
    let grace = pod["metadata"]["deletionGracePeriodSeconds"]
        .as_u64()
        .unwrap_or_default();
    let runs = pod::phase(pod) == "Running";
    let takes = container::given_seconds(pod, STOP_SECONDS).unwrap_or(defaults.stop);
    // The containers are stopped when their preStop hooks have slept.
    let sleeps = items(&pod["spec"]["containers"])
        .iter()
        .filter_map(|c| c["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64());
    let takes = takes.saturating_add(Duration::from_secs(sleeps.max().unwrap_or_default()));
    let is_killed = !runs || takes > Duration::from_secs(grace);
    let takes = if runs {
        takes.min(Duration::from_secs(grace))
    } else {
        Duration::ZERO
    };
    // A later deletion with less grace shortens it.
    let latest = after(now, Duration::from_secs(grace));
    let stop_at = record
        .stop_at
        .map_or_else(|| after(now, takes), |at| at.min(latest));
    record.stop_at = Some(stop_at);
    if stop_at > now {
        return PodStep::WaitUntil(stop_at);
    }
    let is_held = !items(&pod["metadata"]["finalizers"]).is_empty();
    if is_held && !pod::is_terminal(pod) {
        // A controller whose finalizer keeps the pod needs its final status.
        let place = PodAddress {
            host_ip,
            pod_ip: &record.ip,
        };
        let exit_code = container::stopped_exit_code(pod, is_killed);
        let phase = if exit_code == 0 {
            "Succeeded"
        } else {
            "Failed"
        };
        let ended = Containers::Ended { exit_code };
        let status = status_of(pod, place, phase, ended, false, now);
        return PodStep::Write(status, StepEvents::Nothing);
    }
    if grace == 0 && is_held {
        return PodStep::Nothing;
    }
    match record.deleted_at.map(|at| after(at, DELETED_AGAIN)) {
        Some(again) if again > now => PodStep::WaitUntil(again),
        _ => {
            record.deleted_at = Some(now);
            PodStep::Delete
        }
    }
}
