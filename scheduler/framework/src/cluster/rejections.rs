//! Recent rejections of pods by kubelets, by template and node.
//!
//! A kubelet checks a bound pod again before it starts it. A pod that fails the check gets the phase Failed and the
//! check as its reason, such as `OutOfcpu` or `TopologyAffinityError`. Its controller creates the next pod, for which
//! the same node is the best one again. Rejections are therefore remembered, by the **template** of the pod (its
//! controller and its requests) and the node:
//!
//! - A rejection counts [`REJECTION_WEIGHT`], and half as much after each half-life.
//! - After a number of rejections within a window, the node is excluded for the template for some time.
//! - A change of the allocatable resources of a node, or the removal of a pod from it, clears the rejections of the
//!   node.
//!
//! **Architecture invariants:** the readable state changes only with [`Rejections::version`], so that answers can be
//! kept. Time is an argument of [`Rejections::advance`]; weights are integers and equal on every machine. At most
//! [`REJECTIONS_MAX`] pairs of template and node are remembered.

#[cfg(test)]
mod tests;

use crate::pod_info::{HostPort, PodInfo};
use berth_api::{Duration, Pod, Resources, Str, Time};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The weight of a rejection at its time.
pub const REJECTION_WEIGHT: u32 = 64;
/// The number of half-lives after which a rejection weighs nothing.
const HALVINGS_MAX: u32 = REJECTION_WEIGHT.ilog2() + 1;
/// The number of pairs of template and node that are remembered. The pair with the oldest rejection is forgotten first.
pub const REJECTIONS_MAX: usize = 4096;

/// The reasons that are labels of the metric as they are: resources that every node has, and kubelet's other checks.
const LABELS: [&str; 17] = [
    "AppArmor",
    "Evicted",
    "InvalidNodeInfo",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "NodeShutdown",
    "OutOfcpu",
    "OutOfephemeral-storage",
    "OutOfmemory",
    "OutOfpods",
    "PodOSNotSupported",
    "SMTAlignmentError",
    "SysctlForbidden",
    "TaintToleration",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
];

/// The label of a reason in metrics. Other resources share one label, and so do other reasons, to limit the number of
/// labels.
pub fn rejection_label(reason: &str) -> &str {
    if LABELS.contains(&reason) {
        reason
    } else if reason.starts_with("OutOf") {
        "OutOfOtherResource"
    } else {
        "Other"
    }
}

/// Reasons of failed pods that are not checks of a kubelet, although the pods may never have started.
const REASONS_OF_OTHERS: [&str; 4] = ["DeadlineExceeded", "NodeLost", "Shutdown", "Terminated"];

/// The reason for which a kubelet rejected a pod before it started; `None` for any other pod.
pub fn rejection_of(pod: &Pod) -> Option<&Str> {
    let status = &pod.status;
    let never_started =
        status.container_statuses.is_empty() && status.init_container_statuses.is_empty();
    let is_rejected = status.phase == "Failed"
        && pod.is_assigned()
        && never_started
        && !status.reason.is_empty()
        && !REASONS_OF_OTHERS.contains(&status.reason.as_str());
    is_rejected.then_some(&status.reason)
}

/// The conditions under which rejections exclude a node for the pods of a profile, and their lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectionPolicy {
    /// The number of rejections that exclude a node; at least 1.
    pub exclude_after: usize,
    /// The time within which they are counted.
    pub window: Duration,
    /// The time for which the node is excluded from the last rejection on.
    pub exclude_for: Duration,
    /// The time after which a rejection weighs half as much; more than zero.
    pub half_life: Duration,
}

impl RejectionPolicy {
    /// The number of half-lives since a rejection.
    fn halvings(&self, rejected: Time, now: Time) -> u32 {
        let half_lives = now.since(rejected).as_nanos() / self.half_life.as_nanos().max(1);
        u32::try_from(half_lives).map_or(HALVINGS_MAX, |n| n.min(HALVINGS_MAX))
    }

    fn weight(&self, rejected: Time, now: Time) -> u32 {
        REJECTION_WEIGHT >> self.halvings(rejected, now)
    }

    /// Returns whether a rejection neither weighs anything nor counts for an exclusion.
    fn is_over(&self, rejected: Time, now: Time) -> bool {
        self.weight(rejected, now) == 0 && now.since(rejected) >= self.window
    }

    /// The next time at which a rejection weighs less, or is forgotten.
    fn next_change(&self, rejected: Time, now: Time) -> Time {
        let halvings = self.halvings(rejected, now);
        if halvings < HALVINGS_MAX {
            rejected + self.half_life.saturating_mul(halvings + 1)
        } else {
            rejected + self.window
        }
    }
}

/// Pods for which a kubelet has the same answer: pods of one controller with equal requests. Pods without a controller
/// differ by namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Template {
    scheduler: Str,
    namespace: Str,
    controller: Option<Str>,
    requests: Resources,
    host_ports: SmallVec<[HostPort; 1]>,
}

impl Template {
    fn of(pod: &PodInfo) -> Self {
        let controller = pod.pod.metadata.controller();
        Self {
            scheduler: pod.pod.spec.scheduler_name.clone(),
            namespace: pod.pod.namespace().clone(),
            controller: controller.map(|controller| controller.uid.clone()),
            requests: pod.requests.clone(),
            host_ports: pod.host_ports.clone(),
        }
    }
}

/// The rejections of a template by a node.
#[derive(Debug, Clone)]
struct Remembered {
    /// The latest rejections, the latest last; at most the number that excludes a node.
    times: SmallVec<[Time; 4]>,
    /// The reason of the last one.
    reason: Str,
    excluded_until: Option<Time>,
    /// The number of the last one among all rejections.
    last: u64,
}

/// The rejections of a template by a node, to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRejections<'a> {
    /// The node.
    pub node: &'a Str,
    /// The weight of the rejections: [`REJECTION_WEIGHT`] for each at first.
    pub weight: u32,
    /// The number of remembered rejections.
    pub count: usize,
    /// The reason of the last one.
    pub reason: &'a Str,
    /// The end of the exclusion of the node, if it is excluded.
    pub excluded_until: Option<Time>,
}

/// The pods that kubelets rejected.
#[derive(Debug, Clone, Default)]
pub struct Rejections {
    /// By scheduler name. Rejections of other pods are not remembered.
    policies: BTreeMap<Str, RejectionPolicy>,
    by_template: FxHashMap<Template, BTreeMap<Str, Remembered>>,
    /// The number of templates that each node has rejected.
    nodes: FxHashMap<Str, usize>,
    /// The number of pairs of template and node.
    len: usize,
    /// The number of rejections so far.
    count: u64,
    now: Time,
    /// The next time at which [`Rejections::advance`] changes anything.
    next_change: Option<Time>,
    /// The next time at which an exclusion ends.
    next_end: Option<Time>,
    version: u64,
    /// Whether an exclusion of a node ended since the last [`Rejections::take_freed`].
    has_freed: bool,
}

impl Rejections {
    /// Returns whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of pairs of template and node that are remembered.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Changes with everything that is read. It never decreases.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The rejections of the template of a pod, by node name.
    pub fn of<'a>(&'a self, pod: &PodInfo) -> impl Iterator<Item = NodeRejections<'a>> + use<'a> {
        // Usually there are no rejections, and no template is computed.
        let template = (!self.is_empty()).then(|| Template::of(pod));
        let nodes = template.and_then(|template| self.by_template.get(&template));
        let policy = self.policies.get(&pod.pod.spec.scheduler_name);
        let of_policy = nodes.into_iter().flatten().zip(std::iter::repeat(policy));
        of_policy.filter_map(|((node, remembered), policy)| {
            let policy = policy?;
            let weights = remembered.times.iter();
            Some(NodeRejections {
                node,
                weight: weights.map(|at| policy.weight(*at, self.now)).sum(),
                count: remembered.times.len(),
                reason: &remembered.reason,
                excluded_until: remembered.excluded_until,
            })
        })
    }

    /// Sets the policies of the profiles that remember rejections, by scheduler name. The rejections of a profile with
    /// a changed policy are dropped.
    pub fn set_policies(&mut self, policies: BTreeMap<Str, RejectionPolicy>) {
        if self.policies == policies {
            return;
        }
        let before = std::mem::replace(&mut self.policies, policies);
        let policies = &self.policies;
        let is_same = |scheduler: &Str| before.get(scheduler) == policies.get(scheduler);
        let changed: Vec<Template> = self
            .by_template
            .keys()
            .filter(|template| !is_same(&template.scheduler))
            .cloned()
            .collect();
        for template in changed {
            let nodes = self.by_template.get(&template);
            let nodes: Vec<Str> = nodes
                .into_iter()
                .flatten()
                .map(|(n, _)| n.clone())
                .collect();
            for node in nodes {
                self.forget(&template, &node);
            }
        }
        self.changed();
    }

    /// Remembers that the kubelet of a node rejected a pod. Returns false if the profile of the pod has no policy.
    pub fn remember(&mut self, pod: &PodInfo, node: &Str, reason: &Str, now: Time) -> bool {
        let Some(policy) = self.policies.get(&pod.pod.spec.scheduler_name).copied() else {
            return false;
        };
        self.advance(now);
        // `advance` sets the time only if something changes.
        self.now = self.now.max(now);
        self.count += 1;
        let nodes = self.by_template.entry(Template::of(pod)).or_default();
        let remembered = nodes.entry(node.clone()).or_insert_with(|| {
            self.len += 1;
            *self.nodes.entry(node.clone()).or_default() += 1;
            Remembered {
                times: SmallVec::new(),
                reason: reason.clone(),
                excluded_until: None,
                last: 0,
            }
        });
        remembered.reason = reason.clone();
        remembered.last = self.count;
        remembered.times.push(now);
        // At most `excludeAfter` rejections are remembered (PL-353).
        if remembered.times.len() > policy.exclude_after {
            remembered.times.remove(0);
        }
        let in_window = remembered.times.iter();
        let in_window = in_window.filter(|at| now.since(**at) < policy.window);
        if in_window.count() >= policy.exclude_after {
            remembered.excluded_until = Some(now + policy.exclude_for);
        }
        if self.len > REJECTIONS_MAX {
            self.forget_oldest();
        }
        self.changed();
        true
    }

    /// Drops the rejections of a node after a change of its allocatable resources, the removal of a pod, or its
    /// deletion.
    pub fn node_changed(&mut self, node: &str) {
        if !self.nodes.contains_key(node) {
            return;
        }
        let templates = self.by_template.iter();
        let rejected = templates.filter(|(_, nodes)| nodes.contains_key(node));
        let rejected: Vec<Template> = rejected.map(|(template, _)| template.clone()).collect();
        for template in rejected {
            self.forget(&template, node);
        }
        self.changed();
    }

    /// Time has passed: rejections weigh less, and exclusions end. Costs nothing until something changes.
    pub fn advance(&mut self, now: Time) {
        if self.next_change.is_none_or(|at| now < at) {
            return;
        }
        self.now = now;
        let mut over: Vec<(Template, Str)> = Vec::new();
        for (template, nodes) in &mut self.by_template {
            let Some(policy) = self.policies.get(&template.scheduler) else {
                continue;
            };
            for (node, remembered) in nodes {
                if remembered.excluded_until.is_some_and(|until| until <= now) {
                    remembered.excluded_until = None;
                    self.has_freed = true;
                }
                // The explanation of an exclusion names the rejections.
                if remembered.excluded_until.is_none() {
                    remembered.times.retain(|at| !policy.is_over(*at, now));
                }
                if remembered.times.is_empty() {
                    over.push((template.clone(), node.clone()));
                }
            }
        }
        for (template, node) in over {
            self.forget(&template, &node);
        }
        self.changed();
    }

    /// The time at which a node that is excluded can be used again, if nothing else happens before.
    pub fn next_end(&self) -> Option<Time> {
        self.next_end
    }

    /// Returns whether a node that was excluded for a template can be used again since the last call.
    pub fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.has_freed)
    }

    fn forget(&mut self, template: &Template, node: &str) {
        let Some(nodes) = self.by_template.get_mut(template) else {
            return;
        };
        let Some(forgotten) = nodes.remove(node) else {
            return;
        };
        if nodes.is_empty() {
            self.by_template.remove(template);
        }
        self.has_freed |= forgotten.excluded_until.is_some();
        self.len -= 1;
        if let Some(templates) = self.nodes.get_mut(node) {
            *templates -= 1;
            if *templates == 0 {
                self.nodes.remove(node);
            }
        }
    }

    fn forget_oldest(&mut self) {
        let pairs = self.by_template.iter().flat_map(|(template, nodes)| {
            let nodes = nodes.iter();
            nodes.map(move |(node, remembered)| (remembered.last, template, node))
        });
        let oldest = pairs.min_by_key(|(last, _, _)| *last);
        if let Some((_, template, node)) = oldest {
            let (template, node) = (template.clone(), node.clone());
            self.forget(&template, &node);
        }
    }

    /// Something that is read has changed.
    fn changed(&mut self) {
        self.version += 1;
        let (mut next_change, mut next_end) = (Time::MAX, Time::MAX);
        for (template, nodes) in &self.by_template {
            let Some(policy) = self.policies.get(&template.scheduler) else {
                continue;
            };
            for remembered in nodes.values() {
                let times = remembered.times.iter();
                let changes = times.map(|at| policy.next_change(*at, self.now));
                let changes = changes.chain(remembered.excluded_until);
                let next = changes.filter(|at| *at > self.now).min();
                next_change = next_change.min(next.unwrap_or(Time::MAX));
                next_end = next_end.min(remembered.excluded_until.unwrap_or(Time::MAX));
            }
        }
        self.next_change = (next_change < Time::MAX).then_some(next_change);
        self.next_end = (next_end < Time::MAX).then_some(next_end);
    }
}
