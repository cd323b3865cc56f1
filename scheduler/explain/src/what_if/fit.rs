//! The number of further pods of a template that fit.

use super::{Fit, NodeFit, WhatIfWorld};
use crate::answer::Reason;
use crate::examine::examine;
use crate::snapshot::Snapshot;
use berth_api::{Object, Pod, Str};
use berth_framework::PodInfo;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of pods added at once.
const BATCH_MAX: usize = 256;

impl WhatIfWorld {
    /// Adds up to `max` copies of a pod until one does not fit. The copies preempt no pod. Each copy has its own claims.
    pub fn fit(&mut self, template: &Pod, max: usize) -> Fit {
        let mut fit = Fit {
            pod: template.key(),
            ..Fit::default()
        };
        let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
        let mut batch = 1;
        loop {
            let count = batch.min(max - fit.pods);
            if count == 0 {
                fit.is_limited = true;
                break;
            }
            let first = fit.pods + 1;
            let names: Vec<String> = (first..first + count)
                .map(|number| format!("{}-fit-{number}", template.name()))
                .collect();
            for name in &names {
                let mut pod = copy(template, name);
                self.engine.create_claims(&mut pod);
                self.engine.set(Object::Pod(Arc::new(pod)));
            }
            self.run();
            let mut waiting = None;
            for name in &names {
                let key = format!("{}/{name}", template.namespace());
                // Removed, because the copies are not placed pods of the report.
                match self.placed.remove(&key) {
                    Some(node) => {
                        fit.pods += 1;
                        *nodes.entry(node).or_default() += 1;
                    }
                    None => {
                        waiting.get_or_insert_with(|| name.clone());
                    }
                }
            }
            if let Some(name) = waiting {
                fit.bottleneck = self.bottleneck(template, &name);
                break;
            }
            // Doubling needs few runs for large clusters, and adds few surplus copies to small ones.
            batch = (batch * 2).min(BATCH_MAX);
        }
        let nodes = nodes.into_iter().map(|(node, pods)| NodeFit { node, pods });
        fit.nodes = nodes.collect();
        fit.nodes.sort_by_key(|node| Reverse(node.pods));
        fit
    }

    /// The reason why a copy fits nowhere, the most frequent reason first.
    fn bottleneck(&self, template: &Pod, name: &str) -> Vec<Reason> {
        let Some(pod) = self.pod(&format!("{}/{name}", template.namespace())) else {
            return Vec::new();
        };
        let mut snapshot = Snapshot::take(self.scheduler(), self.now());
        let profile = snapshot.profiles.get(&pod.spec.scheduler_name).cloned();
        let Some(profile) = profile else {
            return Vec::new();
        };
        let pod = Arc::new(PodInfo::new(pod.clone()));
        let context = snapshot.context();
        let mut gates = profile.pre_enqueue.iter().filter_map(|member| {
            let status = member.plugin.pre_enqueue(&context, &pod.pod);
            let status = status.from_plugin(&member.name);
            (!status.is_success()).then(|| Reason::of_status(&status, &pod))
        });
        if let Some(gate) = gates.next() {
            return vec![gate];
        }
        drop(gates);
        let verdict = examine(&mut snapshot, &profile, &pod).verdict(&snapshot.cluster, &pod);
        match verdict.pre_filter {
            Some(reason) => vec![reason],
            None => verdict.reasons,
        }
    }
}

fn copy(template: &Pod, name: &str) -> Pod {
    let mut pod = template.clone();
    pod.metadata.name = name.into();
    pod.metadata.uid = format!("fit-{}-{name}", template.namespace()).into();
    pod.spec.node_name = Str::default();
    pod.spec.preemption_policy = Some("Never".into());
    pod
}
