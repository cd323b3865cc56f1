//! Carries pods on simulated nodes through their lives: takes the steps of [`super::steps`]. Each change of a pod causes the
//! next step.

use super::KubeletOptions;
use super::admission::{self, NodeShare, Rejection};
use super::annotations;
use super::events::{StepEvents, notify, report_one, report_step, subject};
use super::node::{internal_ip, is_silent};
use super::refusal::Refusals;
use super::resize;
use super::steps::{Defaults, PodRecord, PodStep, after, next, outdated};
use crate::runtime::{
    CacheDifference, Controller, ControllerContext, EventType, Index, Watch, watching,
};
use berth_objects::access::{AccessError, DeleteOptions, GroupResource, StoredObject};
use berth_objects::object::{ControllerKey, NODE, POD, is_deleting, name, uid};
use berth_objects::pod;
use berth_objects::well_known::is_simulated;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// Pods get consecutive addresses from 10.0.0.0/8.
const POD_NETWORK: u32 = u32::from_be_bytes([10, 0, 0, 0]);
const POD_ADDRESSES: u32 = 1 << 24;

/// See the module.
#[derive(Debug)]
pub(super) struct KubeletPods {
    defaults: Defaults,
    events: bool,
    records: FxHashMap<ControllerKey, PodRecord>,
    refusals: Refusals,
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
            refusals: Refusals::default(),
            addresses: 0,
        }
    }

    /// An address that no living pod has, below a total of 16 million pods.
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

    /// The reason why the node of a pod that is new to it does not run it, and whether the annotation of the node requests
    /// that.
    fn reject(
        &mut self,
        cx: &ControllerContext<ControllerKey>,
        key: &ControllerKey,
        pod: &Value,
        node: &Value,
    ) -> Option<(Rejection, bool)> {
        let is_new = !is_deleting(pod) && !pod::is_terminal(pod) && !admission::runs(pod);
        if !is_new || self.record(key, pod, internal_ip(node)).is_admitted {
            return None;
        }
        if let Some(refused) = self.refusals.next(node) {
            return Some((refused, true));
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
        Some((rejection?, false))
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
        // After a restart, continue after the last used address.
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
        if let Some(node) = diff.new.as_ref().or(diff.old.as_ref()) {
            let new = diff.new.as_deref();
            self.refusals.follow(name(node), new);
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
        if let Some((rejection, is_requested)) = self.reject(cx, key, &pod, &node) {
            let status = rejection.status(&pod, now);
            let written = write(cx, &pod, status)?;
            if is_requested && written.is_some() {
                self.refusals.rejected(&node);
            }
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

/// Writes the status of a pod; `None` if it no longer exists.
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
