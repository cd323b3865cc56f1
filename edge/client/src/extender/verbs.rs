//! The four requests to an extender.

use super::raw::ObjectJson;
use super::wire::{
    Empty, ExtenderArgs, ExtenderBindingArgs, ExtenderBindingResult, ExtenderFilterResult,
    ExtenderPreemptionArgs, ExtenderPreemptionResult, ExtenderVictims, HostPriority, MetaPodArgs,
    MetaVictimsArgs, NodeList,
};
use super::{ExtenderClient, ExtenderError};
use berth_api::Str;

/// The nodes that a question is about: by name for an extender that keeps nodes itself, otherwise whole.
#[derive(Debug, Clone, Copy)]
pub enum Nodes<'a> {
    /// By name.
    Names(&'a [Str]),
    /// Whole.
    Whole(&'a [ObjectJson]),
}

/// The answer of an extender about the remaining nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilterAnswer {
    /// The feasible nodes.
    pub nodes: Vec<String>,
    /// The infeasible nodes, each with the reason.
    pub failed: Vec<(String, String)>,
    /// The same where evictions do not help.
    pub failed_and_unresolvable: Vec<(String, String)>,
}

/// The victims on a node.
#[derive(Debug, Clone)]
pub struct VictimsOf<'a> {
    /// The node.
    pub node: &'a str,
    /// The pods, by UID for an extender that keeps nodes itself.
    pub pods: Vec<&'a str>,
    /// The pods, whole, for one that does not.
    pub whole: Option<Vec<ObjectJson>>,
    /// The number of them that violate their disruption budget.
    pub violations: usize,
}

/// The victims on a node, by identity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetaVictimsOf {
    /// The node.
    pub node: String,
    /// The pods by UID.
    pub pods: Vec<String>,
    /// The number of them that violate their disruption budget.
    pub violations: usize,
}

impl VictimsOf<'_> {
    fn whole(&self) -> ExtenderVictims<'_> {
        ExtenderVictims {
            pods: self.whole.iter().flatten().map(|pod| &**pod).collect(),
            num_pdb_violations: self.violations,
        }
    }

    fn meta(&self) -> MetaVictimsArgs<'_> {
        MetaVictimsArgs {
            pods: self.pods.iter().map(|uid| MetaPodArgs { uid }).collect(),
            num_pdb_violations: self.violations,
        }
    }
}

impl Nodes<'_> {
    /// The question about a pod and these nodes.
    fn ask<T>(self, pod: &ObjectJson, then: impl FnOnce(ExtenderArgs<'_>) -> T) -> T {
        match self {
            Self::Names(names) => {
                let names: Vec<&str> = names.iter().map(Str::as_str).collect();
                then(ExtenderArgs {
                    pod,
                    nodes: None,
                    node_names: Some(&names),
                })
            }
            Self::Whole(nodes) => then(ExtenderArgs {
                pod,
                nodes: Some(NodeList {
                    metadata: Empty {},
                    items: nodes.iter().map(|node| &**node).collect(),
                }),
                node_names: None,
            }),
        }
    }
}

impl ExtenderClient {
    /// The feasible nodes for the pod.
    ///
    /// # Errors
    /// The reason for the missing answer.
    pub async fn filter(
        &self,
        verb: &str,
        pod: &ObjectJson,
        nodes: Nodes<'_>,
    ) -> Result<FilterAnswer, ExtenderError> {
        let question = nodes.ask(pod, |args| Self::written(&args));
        let stated: ExtenderFilterResult = self.ask(verb, question).await?;
        if !stated.error.is_empty() {
            return Err(ExtenderError::Stated(stated.error));
        }
        let by_name = match nodes {
            Nodes::Names(_) => stated.node_names,
            Nodes::Whole(_) => None,
        };
        let left = by_name.unwrap_or_else(|| {
            let nodes = stated.nodes.unwrap_or_default().items;
            nodes.into_iter().map(|node| node.metadata.name).collect()
        });
        Ok(FilterAnswer {
            nodes: left,
            failed: stated.failed_nodes.into_iter().collect(),
            failed_and_unresolvable: stated.failed_and_unresolvable_nodes.into_iter().collect(),
        })
    }

    /// The scores of nodes for the pod, each from 0 to 10.
    ///
    /// # Errors
    /// The reason for the missing answer.
    pub async fn prioritize(
        &self,
        verb: &str,
        pod: &ObjectJson,
        nodes: Nodes<'_>,
    ) -> Result<Vec<(String, i64)>, ExtenderError> {
        let question = nodes.ask(pod, |args| Self::written(&args));
        let stated: Option<Vec<HostPriority>> = self.ask(verb, question).await?;
        let scores = stated.unwrap_or_default().into_iter();
        Ok(scores.map(|given| (given.host, given.score)).collect())
    }

    /// Binds a pod to a node.
    ///
    /// # Errors
    /// The reason why it is not bound, or why this is unknown.
    pub async fn bind(
        &self,
        verb: &str,
        binding: &ExtenderBindingArgs<'_>,
    ) -> Result<(), ExtenderError> {
        let question = Self::written(binding);
        let stated: ExtenderBindingResult = self.ask(verb, question).await?;
        if stated.error.is_empty() {
            Ok(())
        } else {
            Err(ExtenderError::Stated(stated.error))
        }
    }

    /// The candidate nodes for a preemption, and the victims on each.
    ///
    /// # Errors
    /// The reason for the missing answer.
    pub async fn preempt(
        &self,
        verb: &str,
        pod: &ObjectJson,
        victims: &[VictimsOf<'_>],
    ) -> Result<Vec<MetaVictimsOf>, ExtenderError> {
        let is_whole = victims.iter().any(|of| of.whole.is_some());
        let question = Self::written(&ExtenderPreemptionArgs {
            pod,
            node_name_to_victims: is_whole
                .then(|| victims.iter().map(|of| (of.node, of.whole())).collect()),
            node_name_to_meta_victims: (!is_whole)
                .then(|| victims.iter().map(|of| (of.node, of.meta())).collect()),
        });
        let stated: ExtenderPreemptionResult = self.ask(verb, question).await?;
        let nodes = stated.node_name_to_meta_victims.into_iter();
        let notified = nodes.map(|(node, victims)| {
            let victims = victims.unwrap_or_default();
            MetaVictimsOf {
                node,
                pods: victims.pods.into_iter().map(|pod| pod.uid).collect(),
                violations: usize::try_from(victims.num_pdb_violations).unwrap_or(0),
            }
        });
        Ok(notified.collect())
    }
}
