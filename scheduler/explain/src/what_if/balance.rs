//! Pods before and after the changes, counted: no pod disappears from a report.

use super::WhatIfWorld;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The place of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPlace {
    /// On a node that exists.
    OnNode,
    /// Without a node; belongs to this scheduler.
    Waiting,
}

/// The places of pods, by `namespace/name`.
pub type PodPlaces = BTreeMap<String, PodPlace>;

/// The pods before and after the changes: `on_nodes_before` + `waiting_before` + `added` − `removed` − `lost` −
/// `evicted` = `on_nodes_after` + `waiting_after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Balance {
    /// Pods on nodes before.
    pub on_nodes_before: usize,
    /// Pods that wait before.
    pub waiting_before: usize,
    /// Pods that the changes add.
    pub added: usize,
    /// Pods that the changes delete.
    pub removed: usize,
    /// Pods that end with their node.
    pub lost: usize,
    /// Pods that preemption evicts.
    pub evicted: usize,
    /// Pods on nodes after.
    pub on_nodes_after: usize,
    /// Pods that wait after.
    pub waiting_after: usize,
}

impl Balance {
    /// Compares the initial places with the places in a world after the changes. `lost` are the pods that end with
    /// their node.
    pub fn new(before: &PodPlaces, after: &WhatIfWorld, lost: &BTreeSet<String>) -> Self {
        let now = after.places();
        let count = |places: &PodPlaces, place| places.values().filter(|p| **p == place).count();
        let evicted: BTreeSet<&str> = after.evicted.iter().map(|pod| pod.pod.as_str()).collect();
        let mut balance = Self {
            on_nodes_before: count(before, PodPlace::OnNode),
            waiting_before: count(before, PodPlace::Waiting),
            on_nodes_after: count(&now, PodPlace::OnNode),
            waiting_after: count(&now, PodPlace::Waiting),
            ..Self::default()
        };
        for pod in before.keys().filter(|pod| !now.contains_key(*pod)) {
            if lost.contains(pod) {
                balance.lost += 1;
            } else if evicted.contains(pod.as_str()) {
                balance.evicted += 1;
            } else {
                balance.removed += 1;
            }
        }
        for pod in now.keys().filter(|pod| !before.contains_key(*pod)) {
            balance.added += 1;
            debug_assert!(!lost.contains(pod), "a pod that is lost exists");
        }
        // The pod was added and evicted at once.
        for pod in evicted {
            if !before.contains_key(pod) && !now.contains_key(pod) {
                balance.added += 1;
                balance.evicted += 1;
            }
        }
        balance
    }

    /// The pods before.
    pub fn before(&self) -> usize {
        self.on_nodes_before + self.waiting_before
    }

    /// The pods after.
    pub fn after(&self) -> usize {
        self.on_nodes_after + self.waiting_after
    }

    /// Returns whether the equation holds.
    pub fn is_even(&self) -> bool {
        self.before() + self.added == self.after() + self.removed + self.lost + self.evicted
    }
}

impl WhatIfWorld {
    /// The places of all pods.
    pub fn places(&self) -> PodPlaces {
        let nodes = &self.scheduler().cache().cluster().nodes;
        let place = |pod: &berth_api::Pod| {
            if nodes.node(&pod.spec.node_name).is_some() {
                Some(PodPlace::OnNode)
            } else if self.waits(pod) {
                Some(PodPlace::Waiting)
            } else {
                None
            }
        };
        let pods = self.pods().filter_map(|pod| Some((pod.key(), place(pod)?)));
        pods.collect()
    }

    /// The controller of a pod, `namespace/name`, as kind and name.
    pub fn owner_of(&self, pod: &str) -> Option<(String, String)> {
        let owner = self.pod(pod)?.metadata.controller()?;
        Some((owner.kind.to_string(), owner.name.to_string()))
    }
}
