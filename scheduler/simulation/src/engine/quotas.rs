//! Quotas: a pod is created, or its gate removed, when the quota of its namespace has room.

use super::Simulation;
use super::events::PodIndex;
use super::plan::{Plan, whole};
use crate::trace::Trace;
use berth_api::Str;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

/// The quota of a namespace.
#[derive(Debug)]
struct NamespaceQuota {
    /// The maximum amounts of some resources, by their index.
    hard: Vec<(usize, i64)>,
    /// The amounts in use, in the same order.
    used: Vec<i64>,
    /// The waiting pods, by shape, each in the order of arrival.
    held: BTreeMap<u32, VecDeque<PodIndex>>,
}

impl NamespaceQuota {
    fn has_room(&self, requests: &[i64]) -> bool {
        let mut amounts = self.hard.iter().zip(&self.used);
        amounts.all(|((resource, hard), used)| used + requests[*resource] <= *hard)
    }

    fn add(&mut self, requests: &[i64], sign: i64) {
        for ((resource, _), used) in self.hard.iter().zip(&mut self.used) {
            *used += sign * requests[*resource];
        }
    }
}

/// All quotas. Several quotas of a namespace are combined, with the smallest amounts.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    by_namespace: FxHashMap<u32, NamespaceQuota>,
}

impl Quotas {
    pub(super) fn new(trace: &Trace, plan: &Plan) -> Self {
        let mut by_namespace: FxHashMap<u32, NamespaceQuota> = FxHashMap::default();
        for quota in &trace.quotas {
            let index =
                |namespace: &Str| plan.namespaces.iter().position(|known| known == namespace);
            let Some(namespace) = index(&quota.namespace) else {
                continue;
            };
            let entry = by_namespace.entry(namespace as u32);
            let known = entry.or_insert_with(|| NamespaceQuota {
                hard: Vec::new(),
                used: Vec::new(),
                held: BTreeMap::new(),
            });
            for (name, amount) in quota.hard.iter() {
                let Some(resource) = plan.resources.iter().position(|known| known == name) else {
                    continue;
                };
                known.hard.push((resource, whole(name, *amount)));
                known.used.push(0);
            }
        }
        Self { by_namespace }
    }
}

impl Simulation {
    /// Counts a pod if there is room, and queues it otherwise. Returns whether it is counted.
    pub(super) fn charge_or_hold(&mut self, pod: PodIndex) -> bool {
        let shape = self.shape_of(pod);
        let of_shape = &self.plan.shapes[shape as usize];
        let Some(quota) = self.quotas.by_namespace.get_mut(&of_shape.namespace) else {
            self.admit_gate(pod);
            return true;
        };
        let has_room = quota.has_room(&of_shape.requests);
        if has_room {
            quota.add(&of_shape.requests, 1);
            self.pods.get_mut(pod).is_counted_by_quota = true;
            self.admit_gate(pod);
        } else {
            quota.held.entry(shape).or_default().push_back(pod);
        }
        has_room
    }

    /// An existing pod has a gate that waits for the quota.
    fn admit_gate(&mut self, pod: PodIndex) {
        if self.pods.get(pod).phase.exists() {
            self.admitted_by_quota(pod);
        }
    }

    /// A pod was removed. Its room is given to waiting pods, the earliest that fits first. A pod that was not counted
    /// is removed from the waiting pods.
    pub(super) fn release_quota(&mut self, pod: PodIndex, was_counted: bool) {
        let shape = &self.plan.shapes[self.shape_of(pod) as usize];
        let Some(quota) = self.quotas.by_namespace.get_mut(&shape.namespace) else {
            return;
        };
        let namespace = shape.namespace;
        if was_counted {
            quota.add(&shape.requests, -1);
        } else {
            // It was waiting with a gate.
            quota.held.retain(|_, pods| {
                pods.retain(|held| *held != pod);
                !pods.is_empty()
            });
        }
        while let Some(quota) = self.quotas.by_namespace.get_mut(&namespace) {
            let shapes = &self.plan.shapes;
            let fitting = quota.held.iter().filter_map(|(shape, pods)| {
                let has_room = quota.has_room(&shapes[*shape as usize].requests);
                pods.front().filter(|_| has_room).map(|pod| (*pod, *shape))
            });
            let Some((next, shape)) = fitting.min() else {
                return;
            };
            quota.add(&self.plan.shapes[shape as usize].requests, 1);
            if let Some(pods) = quota.held.get_mut(&shape) {
                pods.pop_front();
                if pods.is_empty() {
                    quota.held.remove(&shape);
                }
            }
            self.pods.get_mut(next).is_counted_by_quota = true;
            self.admitted_by_quota(next);
        }
    }
}
