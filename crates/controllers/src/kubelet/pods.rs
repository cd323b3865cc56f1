//! Carries pods on simulated nodes through their lives.
//!
//! [`next`] is pure: from a pod, what is remembered of it and the time it gives the one step to take now. The
//! controller takes it; the change brings the next one.

use super::admission::{self, NodeShare, Rejection};
use super::annotations;
use super::container;
use super::events::{StepEvents, notify, report_one, report_step, subject};
use super::node::{internal_ip, is_silent};
use super::resize;
use super::status::{Containers, PodAddress, restarts, status_of};
use super::{KubeletOptions, READY_SECONDS, STARTUP_SECONDS, STOP_SECONDS};
use crate::runtime::{
    CacheDifference, Controller, ControllerContext, EventType, Index, Watch, watching,
};
use berth_objects::access::{AccessError, DeleteOptions, GroupResource, StoredObject};
use berth_objects::object::{
    ControllerKey, NODE, POD, condition, is_deleting, items, name, time, uid,
};
use berth_objects::pod;
use berth_objects::view::FieldView;
use berth_objects::well_known::is_simulated;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// The longest pause before containers that ended run again.
const BACK_OFF_SECONDS_MAX: u64 = 300;
/// The time for which kubelets report that an image cannot be pulled before they report that they wait.
const PULL_BACK_OFF: Duration = Duration::from_secs(10);
/// A pod that is still there after this time is deleted again.
const DELETED_AGAIN: Duration = Duration::from_secs(1);
/// Pods get addresses from 10.0.0.0/8, in turn.
const POD_NETWORK: u32 = u32::from_be_bytes([10, 0, 0, 0]);
const POD_ADDRESSES: u32 = 1 << 24;

/// The time that things take where the pod does not state them.
#[derive(Debug, Clone, Copy)]
struct Defaults {
    startup: Duration,
    job_run: Option<Duration>,
    stop: Duration,
}

/// The record of a pod. All of it can be found again from the pod, but for fractions of seconds.
#[derive(Debug, Default)]
struct PodRecord {
    uid: String,
    ip: String,
    bound_at: Option<Timestamp>,
    running_since: Option<Timestamp>,
    restart_at: Option<Timestamp>,
    pull_failed_at: Option<Timestamp>,
    is_admitted: bool,
    stop_at: Option<Timestamp>,
    /// The time at which the kubelet deleted the pod. The API server removes it a moment later.
    deleted_at: Option<Timestamp>,
    /// The part of the node that the pod uses, with the resource version for which that was read.
    taken: Option<(String, Arc<NodeShare>)>,
}

impl PodRecord {
    /// The part of the node that the pod uses, read again only for another version of the pod.
    fn taken(&mut self, pod: &Value) -> Result<Arc<NodeShare>, serde_json::Error> {
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
enum PodStep {
    Write(Value, StepEvents),
    Delete,
    WaitUntil(Timestamp),
    Nothing,
}

fn after(time: Timestamp, delay: Duration) -> Timestamp {
    SignedDuration::try_from(delay)
        .ok()
        .and_then(|d| time.checked_add(d).ok())
        .unwrap_or(Timestamp::MAX)
}

/// The step to take now.
fn next(
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

/// The time for which the containers run, if they end by themselves. Those of Jobs do, or no Job would ever complete.
fn run_time(pod: &Value, defaults: Defaults) -> Option<Duration> {
    let owners = items(&pod["metadata"]["ownerReferences"]);
    let is_of_job = || {
        let mut owners = owners.iter();
        owners.any(|owner| owner["controller"] == true && owner["kind"] == "Job")
    };
    container::ends_after(pod).or_else(|| defaults.job_run.filter(|_| is_of_job()))
}

/// The running containers of a pod whose image was changed.
fn outdated(pod: &Value) -> Vec<&Value> {
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

/// Returns whether a status contains more than the present one.
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
            // The first restart is immediate, the next ones after 10, 20, 40, … seconds.
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

/// See the module.
#[derive(Debug)]
pub(super) struct KubeletPods {
    defaults: Defaults,
    events: bool,
    records: FxHashMap<ControllerKey, PodRecord>,
    addresses: u32,
}

impl KubeletPods {
    pub(super) fn new(options: &KubeletOptions) -> Self {
        Self {
            defaults: Defaults {
                startup: options.startup,
                job_run: options.job_run,
                stop: options.stop,
            },
            events: options.events,
            records: FxHashMap::default(),
            addresses: 0,
        }
    }

    /// An address that no living pod has, as long as there are fewer than 16 million pods.
    fn address(&mut self) -> String {
        self.addresses = (self.addresses + 1) % POD_ADDRESSES;
        Ipv4Addr::from(POD_NETWORK | self.addresses).to_string()
    }

    /// Reports the annotations of a pod that cannot be read, when the pod is bound and when they change.
    fn report_wrong_annotations(
        &self,
        cx: &mut ControllerContext<ControllerKey>,
        diff: &CacheDifference,
    ) {
        let Some(pod) = diff.new.as_ref().filter(|_| self.events) else {
            return;
        };
        let wrong = annotations::wrong_of_pod(pod);
        if wrong.is_empty() {
            return;
        }
        let node =
            pod::node_name(pod).and_then(|name| cx.cache(NODE).get(&ControllerKey::new("", name)));
        if !node.is_some_and(|node| is_simulated(node)) {
            return;
        }
        let old = diff.old.as_ref();
        let old = old.filter(|old| pod::node_name(old).is_some());
        let known = old.map(|old| annotations::wrong_of_pod(old));
        let known = known.unwrap_or_default();
        for text in wrong.into_iter().filter(|text| !known.contains(text)) {
            let subject = subject(pod, "");
            cx.event(subject, EventType::Warning, annotations::INVALID, text);
        }
    }

    /// A pod that ends makes room for deferred resizes of its node.
    fn retry_resizes(&self, cx: &mut ControllerContext<ControllerKey>, diff: &CacheDifference) {
        let has_ended = diff.new.as_ref().is_none_or(|pod| pod::is_terminal(pod));
        let node = diff.old.as_ref().and_then(|pod| pod::node_name(pod));
        let Some(node) = node.filter(|_| has_ended) else {
            return;
        };
        let deferred = cx
            .cache(POD)
            .by(Index::Node, node)
            .filter(|p| resize::is_deferred(p));
        let keys: Vec<ControllerKey> = deferred.map(|p| ControllerKey::of(p)).collect();
        for key in keys {
            cx.enqueue(key);
        }
    }

    /// The reason why the node of a pod that is new to it cannot run it.
    fn reject(
        &mut self,
        cx: &ControllerContext<ControllerKey>,
        key: &ControllerKey,
        pod: &Value,
        node: &Value,
    ) -> Option<Rejection> {
        let is_new = !is_deleting(pod) && !pod::is_terminal(pod) && !admission::runs(pod);
        if !is_new || self.record(key, pod, internal_ip(node)).is_admitted {
            return None;
        }
        let records = &mut self.records;
        let neighbours = cx.cache(POD).by(Index::Node, name(node));
        let taken = neighbours
            .filter(|p| uid(p) != uid(pod) && !pod::is_terminal(p))
            .filter_map(|p| {
                let record = records.get_mut(&ControllerKey::of(p));
                let record = record.filter(|r| r.uid == uid(p));
                let is_there = admission::runs(p) || record.as_ref().is_some_and(|r| r.is_admitted);
                is_there.then(|| match record {
                    Some(record) => record.taken(p),
                    None => NodeShare::by(p).map(Arc::new),
                })
            });
        let rejection = admission::reject(pod, node, taken.collect());
        let record = self.record(key, pod, internal_ip(node));
        record.is_admitted = rejection.is_none();
        rejection
    }

    fn record(&mut self, key: &ControllerKey, pod: &Value, host_ip: &str) -> &mut PodRecord {
        let is_known = self.records.get(key).is_some_and(|r| r.uid == uid(pod));
        if !is_known {
            let ip = match pod["status"]["podIP"].as_str() {
                Some(ip) => ip.to_owned(),
                None if pod["spec"]["hostNetwork"] == true => host_ip.to_owned(),
                None => self.address(),
            };
            let record = PodRecord {
                uid: uid(pod).to_owned(),
                ip,
                ..PodRecord::default()
            };
            self.records.insert(key.clone(), record);
        }
        self.records.entry(key.clone()).or_default()
    }
}

impl Controller for KubeletPods {
    type Key = ControllerKey;
    const NAME: &'static str = "kubelet";
    const WATCHES: &'static [Watch] = &[watching(POD, &[Index::Node]), watching(NODE, &[])];

    fn start(&mut self, cx: &mut ControllerContext<ControllerKey>) {
        // After a restart, go on where the addresses ended.
        let used = cx.cache(POD).iter().filter_map(|(_, pod)| {
            let ip: Ipv4Addr = pod["status"]["podIP"].as_str()?.parse().ok()?;
            let ip = u32::from(ip);
            (ip & !(POD_ADDRESSES - 1) == POD_NETWORK).then_some(ip & (POD_ADDRESSES - 1))
        });
        self.addresses = used.max().unwrap_or_default();
    }

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if kind == POD.resource {
            self.retry_resizes(cx, diff);
            self.report_wrong_annotations(cx, diff);
            match &diff.new {
                Some(pod) if pod::node_name(pod).is_some() => cx.enqueue(ControllerKey::of(pod)),
                Some(_) => {}
                None => {
                    if let Some(pod) = &diff.old {
                        self.records.remove(&ControllerKey::of(pod));
                    }
                }
            }
            return;
        }
        // A kubelet that is new, or no longer silent, reconciles its pods.
        let serves = |node: &Option<StoredObject>| {
            node.as_ref()
                .is_some_and(|n| is_simulated(n) && !is_silent(n))
        };
        if serves(&diff.new)
            && !serves(&diff.old)
            && let Some(node) = &diff.new
        {
            let pods: Vec<ControllerKey> = cx
                .cache(POD)
                .by(Index::Node, name(node))
                .map(|p| ControllerKey::of(p))
                .collect();
            for key in pods {
                cx.enqueue(key);
            }
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(pod) = cx.cache(POD).get(key).cloned() else {
            self.records.remove(key);
            return Ok(());
        };
        let node = pod::node_name(&pod)
            .and_then(|name| cx.cache(NODE).get(&ControllerKey::new("", name)))
            .filter(|n| is_simulated(n) && !is_silent(n))
            .cloned();
        let Some(node) = node else { return Ok(()) };
        let now = cx.now();
        if pod::phase(&pod) == "Running" && !is_deleting(&pod) {
            let neighbours = cx.cache(POD).by(Index::Node, name(&node));
            if let Some(status) = resize::step(&pod, &node, neighbours, now) {
                return write(cx, &pod, status).map(|_| ());
            }
        }
        let (defaults, events) = (self.defaults, self.events);
        if let Some(rejection) = self.reject(cx, key, &pod, &node) {
            let status = rejection.status(&pod, now);
            let written = write(cx, &pod, status)?;
            if let (true, Some(pod)) = (events, written) {
                let message = rejection.message;
                cx.event(
                    subject(&pod, ""),
                    EventType::Warning,
                    &rejection.reason,
                    message,
                );
            }
            return Ok(());
        }
        let record = self.record(key, &pod, internal_ip(&node));
        let was_stopping = record.stop_at.is_some();
        let step = next(&pod, record, internal_ip(&node), defaults, now);
        if events && !was_stopping && record.stop_at.is_some() && pod::phase(&pod) == "Running" {
            notify(cx, &pod, EventType::Normal, "Killing", |c| {
                format!("Stopping container {c}")
            });
        }
        match step {
            PodStep::Nothing => Ok(()),
            PodStep::WaitUntil(at) => {
                cx.enqueue_at(key.clone(), at);
                Ok(())
            }
            PodStep::Delete => {
                let options = DeleteOptions {
                    grace_period_seconds: Some(0),
                    ..DeleteOptions::default()
                };
                cx.delete_with(POD, &pod, options)
            }
            PodStep::Write(status, what) => {
                let Some(written) = write(cx, &pod, status)? else {
                    return Ok(());
                };
                if events && what == StepEvents::Replaced {
                    for container in outdated(&pod) {
                        let text = container["name"].as_str().unwrap_or_default();
                        let text =
                            format!("Container {text} definition changed, will be restarted");
                        report_one(cx, &pod, container, EventType::Normal, "Killing", text);
                    }
                } else if events {
                    report_step(cx, &written, what);
                }
                // A write that changed the pod brings the next look; without a change, this one does.
                cx.enqueue_at(key.clone(), after(now, Duration::from_secs(1)));
                Ok(())
            }
        }
    }
}

/// Writes the status of a pod; `None` when it does not exist any more.
fn write(
    cx: &mut ControllerContext<ControllerKey>,
    pod: &Value,
    status: Value,
) -> Result<Option<StoredObject>, AccessError> {
    let mut new = pod.clone();
    new["status"] = status;
    match cx.update_status(POD, new) {
        Err(error) if error.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}
