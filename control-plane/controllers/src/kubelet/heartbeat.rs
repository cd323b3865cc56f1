//! The kubelets' signs of life: leases every ten seconds, conditions when they change and every five minutes.

use super::annotations;
use super::node::{SimulatedNodeShape, is_silent, reported};
use super::{KubeletOptions, LEASE_NAMESPACE};
use crate::runtime::{CacheDifference, Controller, ControllerContext, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject};
use berth_objects::object::{ControllerKey, LEASE, NODE, condition, micros, name, set, uid};
use berth_objects::well_known::is_simulated;
use rustc_hash::{FxHashMap, FxHasher};
use serde_json::{Value, json};
use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The validity of a lease. Upstream: 40 s.
const LEASE_SECONDS: u32 = 40;
/// The interval at which unchanged conditions are renewed. Upstream: 5 minutes.
const STATUS_EVERY: Duration = Duration::from_secs(300);
/// The number of moments per interval at which nodes renew their leases. Nodes with the same moment wake the process
/// and the watches of leases only once.
const MOMENTS: u32 = 20;

#[derive(Debug)]
struct Beat {
    /// The version of the node whose status was compared last with the status to report.
    checked: Option<StoredObject>,
    /// The lease as last written, and its node.
    lease: Option<StoredObject>,
    node_uid: String,
    renew_at: Instant,
    status_at: Instant,
}

/// See the module. Its keys are node names.
#[derive(Debug)]
pub(super) struct Heartbeats {
    shape: SimulatedNodeShape,
    renewal: Duration,
    /// The start of the first interval.
    began: Instant,
    events: bool,
    beats: FxHashMap<String, Beat>,
}

impl Heartbeats {
    pub(super) fn new(options: &KubeletOptions) -> Self {
        Self {
            shape: options.shape.clone(),
            renewal: options.lease_renewal.max(Duration::from_millis(100)),
            began: Instant::now(),
            events: options.events,
            beats: FxHashMap::default(),
        }
    }

    /// The first renewal moment at or after `at`.
    fn moment_from(&self, at: Instant) -> Instant {
        let step = self.renewal.div_f64(f64::from(MOMENTS));
        let passed = at.saturating_duration_since(self.began);
        let steps = passed.div_duration_f64(step).ceil();
        self.began + step.mul_f64(steps)
    }

    /// Reports a state of a node by an event.
    fn notify(&self, cx: &mut ControllerContext<String>, node: &Value, reason: &str) {
        if self.events {
            let message = format!("Node {} status is now: {reason}", name(node));
            cx.normal(node, reason, message);
        }
    }
}

fn is_ready(node: &Value) -> bool {
    condition(&node["status"], "Ready").is_some_and(|c| c["status"] == "True")
}

/// A part of `period` that differs from node to node, so that not all beat at once.
fn share_of(period: Duration, name: &str) -> Duration {
    let mut hasher = FxHasher::default();
    hasher.write(name.as_bytes());
    period.mul_f64((hasher.finish() >> 32) as f64 / f64::from(u32::MAX))
}

impl Controller for Heartbeats {
    type Key = String;
    const NAME: &'static str = "kubelet";
    const WATCHES: &'static [Watch] = &[watching(NODE, &[])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<String>,
        _kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if let Some(node) = diff.new.as_ref().or(diff.old.as_ref()) {
            cx.enqueue(name(node).to_owned());
        }
        if let Some(new) = diff.new.as_ref().filter(|node| is_simulated(node))
            && self.events
        {
            let old = diff.old.as_ref();
            let known = old.map_or_else(Vec::new, |old| annotations::wrong_of_node(old));
            let wrong = annotations::wrong_of_node(new).into_iter();
            for text in wrong.filter(|text| !known.contains(text)) {
                cx.warn(new, annotations::INVALID, text);
            }
        }
        if let (Some(old), Some(new)) = (&diff.old, &diff.new)
            && is_simulated(new)
        {
            let cordoned = |node: &Value| node["spec"]["unschedulable"] == true;
            match (cordoned(old), cordoned(new)) {
                (false, true) => self.notify(cx, new, "NodeNotSchedulable"),
                (true, false) => self.notify(cx, new, "NodeSchedulable"),
                _ => {}
            }
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<String>,
        key: &String,
    ) -> Result<(), AccessError> {
        let key_of_node = ControllerKey::new("", key);
        let node = cx.cache(NODE).get(&key_of_node).cloned();
        let Some(node) = node.filter(|n| is_simulated(n) && !is_silent(n)) else {
            self.beats.remove(key);
            return Ok(());
        };
        let now = Instant::now();
        let is_new = self.beats.get(key).is_none_or(|b| b.node_uid != uid(&node));
        if is_new {
            let beat = Beat {
                checked: None,
                lease: None,
                node_uid: uid(&node).to_owned(),
                renew_at: now,
                status_at: now + STATUS_EVERY / 2 + share_of(STATUS_EVERY / 2, key),
            };
            self.beats.insert(key.clone(), beat);
            if self.events {
                let message = "Starting kubelet.".to_owned();
                cx.normal(&node, "Starting", message);
            }
        }
        let beat = self.beats.get(key);
        let is_due = beat.is_some_and(|b| b.status_at <= now);
        let checked = beat.and_then(|b| b.checked.as_ref());
        let is_as_checked = checked.is_some_and(|checked| Arc::ptr_eq(checked, &node));
        if (is_due || !is_as_checked)
            && let Some(new) = reported(&node, &self.shape, cx.now(), is_due)
        {
            let updated = cx.update_status(NODE, new)?;
            match (is_ready(&node), is_ready(&updated)) {
                (false, true) => self.notify(cx, &updated, "NodeReady"),
                (true, false) => self.notify(cx, &updated, "NodeNotReady"),
                _ => {}
            }
        }
        // After the first renewal the node waits until its own moment, then one interval at a time. Half a step less
        // compensates for a late wake-up.
        let next_renewal = self.moment_from(if is_new {
            now + share_of(self.renewal, key)
        } else {
            now + self.renewal - self.renewal / (2 * MOMENTS)
        });
        let Some(beat) = self.beats.get_mut(key) else {
            return Ok(());
        };
        beat.checked = Some(node.clone());
        if is_due {
            beat.status_at = now + STATUS_EVERY;
        }
        if beat.renew_at <= now {
            beat.lease = Some(renew(cx, beat.lease.take(), &node)?);
            beat.renew_at = next_renewal;
        }
        let next = beat.renew_at.min(beat.status_at);
        cx.enqueue_after(key.clone(), next.saturating_duration_since(now));
        Ok(())
    }
}

fn renew(
    cx: &ControllerContext<String>,
    last: Option<StoredObject>,
    node: &Value,
) -> Result<StoredObject, AccessError> {
    let now = micros(cx.now());
    let last = match last {
        Some(lease) => Some(lease),
        None => cx
            .api()
            .get(LEASE.resource, LEASE_NAMESPACE, name(node))
            .ok(),
    };
    if let Some(last) = last {
        let mut lease = (*last).clone();
        set(&mut lease, &["spec", "renewTime"], now.clone());
        set(&mut lease, &["spec", "holderIdentity"], name(node).into());
        match cx.api().update(LEASE.resource, lease) {
            // The lease was deleted: a new one is created.
            Err(error) if error.is_not_found() => {}
            other => return other,
        }
    }
    let lease = LEASE.object(json!({"metadata": {
            "name": name(node),
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [{
                "apiVersion": NODE.api_version,
                "kind": NODE.kind,
                "name": name(node),
                "uid": uid(node),
            }],
        },
        "spec": {
            "holderIdentity": name(node),
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
        },
    }));
    cx.api().create(LEASE.resource, lease)
}
