//! The decisions of the scheduler for a changed cluster or configuration.

mod fit;
mod shape;

pub use shape::NodeShape;

use crate::changes::others::Others;
use crate::changes::{Changed, buffers, change_all, strict};
use crate::cluster::ClusterObjects;
use crate::configuration::{CheckedSetup, Configuration};
use crate::documents::{Document, documents};
use crate::error::InputError;
use crate::json::{ClusterJson, decode, has_groups};
use berth_api::{Kind, Object, Pod, Release, Time};
use berth_explain::what_if::{
    Balance, ClaimChanges, CopiedObjects, DisplacedPod, Fate, PendingPod, PlacedPod, PodPlaces,
    Usage, WhatIfReport, WhatIfWorld, consolidate,
};
use berth_framework::FeatureGates;
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The maximum number of pods added to find the number that fits.
pub const FIT_PODS_MAX: usize = fit::PODS_MAX;
/// The maximum number of nodes added to find the number that is needed.
pub const ADDED_NODES_MAX: usize = shape::NODES_MAX;

/// A question: changes of a cluster, and the goals for the changed cluster.
///
/// The waiting pods are always scheduled, with preemption.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct WhatIf {
    /// Changes: objects to add, fields of objects to change, and objects to delete, which have the annotation
    /// `berth.dev/what-if: delete`. Unknown fields and fields of the wrong type are errors.
    pub changes: Vec<Document>,
    /// Another configuration for the changed cluster.
    pub configuration: Option<Configuration>,
    /// Drain these nodes, in this order.
    pub drain: Vec<String>,
    /// Find the nodes that are not needed. Excludes the other goals.
    pub consolidate: bool,
    /// Restore the allowed skew of workloads with topology spread constraints. Excludes the other goals.
    pub rebalance: bool,
    /// Find the number of further pods of this template that fit: a Pod, a PodTemplate or a workload.
    pub fit: Option<Document>,
    /// Find the number of nodes of this shape that the waiting pods need.
    pub add_nodes: Option<NodeShape>,
}

impl WhatIf {
    /// The question for the number of nodes of a shape that the waiting pods need: the name of an existing node, or
    /// resources such as `cpu=8,memory=32Gi`.
    pub fn add_nodes(shape: impl Into<NodeShape>) -> Self {
        Self {
            add_nodes: Some(shape.into()),
            ..Self::default()
        }
    }

    /// The question for the effect of changes in YAML or JSON. `name` is the name of the text in messages.
    ///
    /// # Errors
    /// When the text does not parse.
    pub fn changes(name: &str, text: &str) -> Result<Self, InputError> {
        Ok(Self {
            changes: documents(name, text)?,
            ..Self::default()
        })
    }

    /// The question for the pods of drained nodes.
    pub fn drain<'a>(nodes: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            drain: nodes.into_iter().map(str::to_owned).collect(),
            ..Self::default()
        }
    }

    fn check(&self) -> Result<(), InputError> {
        let goals = !self.drain.is_empty() || self.fit.is_some() || self.add_nodes.is_some();
        if self.consolidate && (goals || self.rebalance) || self.rebalance && goals {
            return Err(InputError::Question(
                "consolidate and rebalance exclude the other goals of a question; ask one question for each",
            ));
        }
        Ok(())
    }
}

/// The answer to a question about a cluster at a time. The cluster is not changed.
///
/// # Errors
/// When an object or the configuration is malformed, or a change does not apply.
pub fn what_if(
    cluster: &ClusterObjects,
    configuration: &Configuration,
    question: &WhatIf,
    now: Time,
) -> Result<WhatIfReport, InputError> {
    ChangedCluster::new(cluster, configuration, question, now)?.answer()
}

/// The cluster before the changes.
#[derive(Debug)]
struct Before {
    usage: Usage,
    places: PodPlaces,
}

/// A cluster with the changes of a question, which can be scheduled with several configurations.
#[derive(Debug)]
pub struct ChangedCluster<'a> {
    configuration: &'a Configuration,
    question: &'a WhatIf,
    now: Time,
    /// The release before the changes.
    release: Release,
    before: Before,
    raw: ClusterJson,
    others: Others,
    changed: Changed,
    claims: ClaimChanges,
    warnings: Vec<String>,
}

impl<'a> ChangedCluster<'a> {
    /// Applies the changes of a question.
    ///
    /// # Errors
    /// When an object or the configuration is malformed, or a change does not apply.
    pub fn new(
        cluster: &ClusterObjects,
        configuration: &'a Configuration,
        question: &'a WhatIf,
        now: Time,
    ) -> Result<Self, InputError> {
        question.check()?;
        let (mut raw, mut others) = (cluster.raw.clone(), cluster.others.clone());
        let before = cluster.decoded()?;
        others.claims.add_from_claims(&raw);
        let changed = change_all(&question.changes, &mut raw, &mut others, now)?;
        check_drained(&question.drain, &raw)?;
        let release = cluster.release();
        // Groups among the changes are included, so that both runs have the same gates.
        let (features, mut warnings) = configuration.gates(release, has_groups(&raw))?;
        let setup = configuration.checked(features)?;
        warnings.extend(setup.warnings.iter().cloned());
        if let Some(other) = &question.configuration {
            let (features, more) = other.gates(release, has_groups(&raw))?;
            warnings.extend(more);
            warnings.extend(other.checked(features)?.warnings);
        }
        warnings.dedup();
        let claims = ClaimChanges {
            templates: others.claims.decoded()?,
            deleted: deleted_pods(&before, &raw),
        };
        let before = setup.world(before, &ClaimChanges::default(), now)?;
        Ok(Self {
            before: Before {
                usage: before.usage(),
                places: before.places(),
            },
            configuration,
            question,
            now,
            release,
            raw,
            others,
            changed,
            claims,
            warnings,
        })
    }

    /// The warnings about the configuration, such as fields without effect.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The feature gates of a configuration for the changed cluster.
    ///
    /// # Errors
    /// Lists every gate that cannot be set as requested.
    pub fn features(&self, configuration: &Configuration) -> Result<FeatureGates, InputError> {
        let gates = configuration.gates(self.release, has_groups(&self.raw))?;
        Ok(gates.0)
    }

    /// Schedules the changed cluster without nodes of [`WhatIf::add_nodes`], with a configuration.
    ///
    /// # Errors
    /// When the configuration or an object is malformed.
    pub fn schedule_with(&self, configuration: &Configuration) -> Result<WhatIfReport, InputError> {
        let setup = configuration.checked(self.features(configuration)?)?;
        self.decided(&setup, decode(&self.raw)?)
    }

    /// The answer.
    ///
    /// # Errors
    /// When the configuration of the question or an object is malformed.
    pub fn answer(self) -> Result<WhatIfReport, InputError> {
        let other = self.question.configuration.as_ref();
        let configuration = other.unwrap_or(self.configuration);
        let setup = configuration.checked(self.features(configuration)?)?;
        let mut report = if self.question.consolidate {
            self.consolidated(&setup)?
        } else if let Some(shape) = &self.question.add_nodes {
            let shape = shape::SpareNode::new(shape, &self.raw)?;
            shape::smallest(&shape, |nodes| {
                let mut raw = self.raw.clone();
                shape.add(&mut raw, &self.others, nodes)?;
                self.decided(&setup, decode(&raw)?)
            })?
        } else {
            self.decided(&setup, decode(&self.raw)?)?
        };
        report.not_admitted = self.changed.not_admitted;
        report.changes = self.changed.done;
        report.notes.extend(self.others.notes);
        Ok(report)
    }

    /// Schedules the waiting pods, drains the nodes of the question, and adds pods of the template.
    fn decided(
        &self,
        setup: &CheckedSetup<'_>,
        objects: CopiedObjects,
    ) -> Result<WhatIfReport, InputError> {
        let fit = self.question.fit.as_ref();
        let fit = fit.map(|document| fit::template(document, &self.others));
        let fit = fit.transpose()?;
        let mut run = setup.world(objects, &self.claims, self.now)?;
        run.run();
        let (mut displaced, mut drained) = (self.changed.displaced.clone(), Vec::new());
        let mut spread = Vec::new();
        if self.question.rebalance {
            let (spreads, deleted) = run.rebalance();
            spread = spreads;
            displaced.extend(deleted);
        }
        let (mut moved, mut blocked) = (Vec::new(), Vec::new());
        for node in &self.question.drain {
            let of_node = run.drain(node);
            // A node with a blocking pod is not empty.
            if !of_node.iter().any(|pod| pod.blocks) {
                drained.push(node.clone());
            }
            moved.extend(of_node.iter().filter_map(|pod| {
                let (node, pod) = (pod.node.clone()?, pod.pod.clone());
                Some(PlacedPod { pod, node })
            }));
            let blocking = of_node.iter().filter(|pod| pod.blocks);
            blocked.extend(blocking.map(|pod| PendingPod {
                pod: pod.pod.clone(),
                reason: pod.reason.clone(),
            }));
            displaced.extend(of_node);
        }
        let balance = Balance::new(&self.before.places, &run, &lost(&displaced));
        let mut report = run.report(self.before.usage.clone(), displaced);
        report.buffers = buffers::rooms(&self.changed.chunks, &run, &report);
        if let Some(template) = fit {
            report.fit = Some(run.fit(&template.pod, fit::PODS_MAX));
            report.notes.extend(template.notes);
        }
        report.moved = moved;
        report.blocked = blocked;
        report.drained = drained;
        report.balance = balance;
        report.spread = spread;
        Ok(report)
    }

    /// Finds the nodes that are not needed.
    fn consolidated(&self, setup: &CheckedSetup<'_>) -> Result<WhatIfReport, InputError> {
        // The claims of deleted pods end in the first world. Later, a replacement may have a claim with the same name.
        let later = ClaimChanges {
            templates: self.claims.templates.clone(),
            deleted: Vec::new(),
        };
        let claims = Cell::new(&self.claims);
        let world = |objects| -> Result<WhatIfWorld, InputError> {
            setup.world(objects, claims.replace(&later), self.now)
        };
        let (mut report, end) = consolidate(decode(&self.raw)?, world)?;
        report.before = self.before.usage.clone();
        report
            .displaced
            .extend(self.changed.displaced.iter().cloned());
        report.balance = Balance::new(&self.before.places, &end, &lost(&report.displaced));
        report.buffers = buffers::rooms(&self.changed.chunks, &end, &report);
        Ok(report)
    }
}

/// Checks that the nodes to drain exist.
fn check_drained(nodes: &[String], raw: &ClusterJson) -> Result<(), InputError> {
    for node in nodes {
        let key = (Kind::Node, String::new(), node.clone());
        if !raw.contains_key(&key) {
            return Err(InputError::Drain {
                node: node.clone(),
                hint: strict::similar(raw, &key),
            });
        }
    }
    Ok(())
}

/// The pods that the changes delete or replace.
fn deleted_pods(before: &CopiedObjects, raw: &ClusterJson) -> Vec<Arc<Pod>> {
    let deleted = before.iter().filter_map(|(key, object)| match object {
        Object::Pod(pod) => {
            let uid = |now: &Value| {
                now["metadata"]["uid"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            let is_same = raw
                .get(key)
                .is_some_and(|now| uid(now) == pod.uid().as_str());
            (!is_same).then(|| pod.clone())
        }
        _ => None,
    });
    deleted.collect()
}

fn lost(displaced: &[DisplacedPod]) -> BTreeSet<String> {
    let lost = displaced.iter().filter(|pod| pod.fate == Fate::Lost);
    lost.map(|pod| pod.pod.clone()).collect()
}
