//! The reason why a pod fits nowhere: the answer of each node, and the text of its condition.

use berth_api::Str;
use berth_framework::plugin::NodeStatuses;
use berth_framework::{Code, Slot, Status};
use std::fmt;

/// Results about a pod that fits nowhere.
#[derive(Debug, Clone)]
pub struct Diagnosis {
    /// The answer of each node.
    pub statuses: NodeStatuses,
    /// The plugins that rejected the pod, sorted.
    pub unschedulable_plugins: Vec<Str>,
    /// The plugins that wait for something on its behalf, sorted.
    pub pending_plugins: Vec<Str>,
    /// The rejection of the pod by PreFilter on every node, if any.
    pub pre_filter: Option<Status>,
    /// The nodes that PreFilter left, by name and sorted, if it left out any.
    pub pre_filter_nodes: Option<Vec<Str>>,
    /// The message of PostFilter; empty for nothing.
    pub post_filter_message: String,
}

impl Default for Diagnosis {
    fn default() -> Self {
        Self {
            statuses: NodeStatuses::new(),
            unschedulable_plugins: Vec::new(),
            pending_plugins: Vec::new(),
            pre_filter: None,
            pre_filter_nodes: None,
            post_filter_message: String::new(),
        }
    }
}

impl Diagnosis {
    /// Notes the plugins that rejected the pod, by the kind of the answer (F-4).
    pub fn add_plugin_of(&mut self, status: &Status) {
        let (Some(plugin), code) = (status.plugin(), status.code()) else {
            return;
        };
        match code {
            Code::Unschedulable | Code::UnschedulableAndUnresolvable => {
                insert_sorted(&mut self.unschedulable_plugins, plugin);
            }
            Code::Pending => insert_sorted(&mut self.pending_plugins, plugin),
            _ => {}
        }
    }

    /// Notes what a node answered.
    pub(crate) fn reject(&mut self, node: Slot, status: Status) {
        self.add_plugin_of(&status);
        self.statuses.insert(node, status);
    }
}

/// Puts `name` into a sorted list, once.
pub fn insert_sorted(names: &mut Vec<Str>, name: &Str) {
    if let Err(at) = names.binary_search(name) {
        names.insert(at, name.clone());
    }
}

/// No node is feasible for a pod. The text is that of kube-scheduler (C-28).
#[derive(Debug, Clone)]
pub struct FitError {
    /// The number of nodes.
    pub nodes: usize,
    /// The diagnosis.
    pub diagnosis: Diagnosis,
}

impl FitError {
    /// The pod was rejected on the one node that had been chosen for it (C-36, C-40).
    pub fn of_one(node: Option<Slot>, status: Status) -> Self {
        let mut diagnosis = Diagnosis::default();
        match node {
            Some(node) => diagnosis.reject(node, status),
            None => {
                diagnosis.add_plugin_of(&status);
                diagnosis.statuses.absent = status;
            }
        }
        Self {
            nodes: 1,
            diagnosis,
        }
    }
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available:", self.nodes)?;
        let diagnosis = &self.diagnosis;
        let pre_filter = diagnosis.pre_filter.as_ref().map(Status::message);
        match pre_filter.filter(|message| !message.is_empty()) {
            Some(message) => write!(f, " {message}.")?,
            None => {
                let lines = diagnosis.statuses.histogram(self.nodes);
                if !lines.is_empty() {
                    write!(f, " {}.", lines.join(", "))?;
                }
            }
        }
        if !diagnosis.post_filter_message.is_empty() {
            write!(f, " {}", diagnosis.post_filter_message)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(index: u32) -> Slot {
        Slot::from_index(index)
    }

    /// C-28, C-30, edge case 227.
    #[test]
    fn the_text_counts_reasons_and_sorts_them_as_text() {
        let cpu = Status::unschedulable("Insufficient cpu");
        let both = Status::new(
            Code::Unschedulable,
            ["Insufficient cpu".into(), "Insufficient memory".into()],
        );
        let absent = Status::unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]");
        let case =
            |nodes, statuses: &[Status], absent: Option<&Status>, pre: Option<&str>, post: &str| {
                let mut diagnosis = Diagnosis {
                    pre_filter: pre.map(|m| Status::unresolvable(m.to_owned())),
                    post_filter_message: post.to_owned(),
                    ..Diagnosis::default()
                };
                if let Some(absent) = absent {
                    diagnosis.statuses.absent = absent.clone();
                }
                for (status, index) in statuses.iter().zip(0..) {
                    diagnosis.reject(slot(index), status.clone());
                }
                FitError { nodes, diagnosis }.to_string()
            };
        let many: Vec<Status> = std::iter::repeat_n(cpu.clone(), 10)
            .chain([both.clone(), both.clone()])
            .collect();
        for (got, expected) in [
            (
                case(3, &[cpu.clone(), both.clone(), cpu.clone()], None, None, ""),
                "0/3 nodes are available: 1 Insufficient memory, 3 Insufficient cpu.",
            ),
            (
                case(12, &many, None, None, ""),
                "0/12 nodes are available: 12 Insufficient cpu, 2 Insufficient memory.",
            ),
            (
                case(
                    5,
                    std::slice::from_ref(&cpu),
                    Some(&absent),
                    None,
                    "preemption: no",
                ),
                "0/5 nodes are available: 1 Insufficient cpu, 4 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: no",
            ),
            (
                case(4, &[], None, Some("no such claim"), "later"),
                "0/4 nodes are available: no such claim. later",
            ),
            (case(2, &[], None, None, ""), "0/2 nodes are available:"),
        ] {
            assert_eq!(got, expected);
        }
    }

    /// F-4: statuses without a plugin, and errors, add no plugin to the diagnosis.
    #[test]
    fn plugins_are_noted_by_the_kind_of_their_answer() {
        let mut diagnosis = Diagnosis::default();
        for status in [
            Status::unschedulable("x").by("B"),
            Status::unresolvable("x").by("A"),
            Status::unschedulable("x").by("B"),
            Status::pending("x").by("C"),
            Status::unschedulable("no plugin's"),
            Status::error("x").by("D"),
        ] {
            diagnosis.add_plugin_of(&status);
        }
        assert_eq!(diagnosis.unschedulable_plugins, ["A", "B"]);
        assert_eq!(diagnosis.pending_plugins, ["C"]);
    }
}
