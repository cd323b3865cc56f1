//! Compares recorded with actual results, and records the omitted parts.

use super::CaseOutcome;
use super::recorded::{DecisionExpectation, PostFiltered, Rejection};
use berth_api::Str;
use berth_framework::registry::Registry;
use berth_framework::{Cluster, Slot, Status};
use berth_scheduler::evaluator::{FitError, Scores};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The maximum number of printed differences of one case.
const DIFFERENCES_MAX: usize = 5;

/// The comparison of one case.
pub(super) struct CaseComparison<'a> {
    registry: &'a Registry,
    differences: Vec<String>,
    /// The plugins whose entries were left out.
    left_out: Vec<String>,
    /// Whether a plugin that Berth does not have rejected a node or the pod.
    rejection_left_out: bool,
}

impl<'a> CaseComparison<'a> {
    pub(super) fn new(registry: &'a Registry) -> Self {
        Self {
            registry,
            differences: Vec::new(),
            left_out: Vec::new(),
            rejection_left_out: false,
        }
    }

    pub(super) fn outcome(self) -> Result<CaseOutcome, String> {
        if !self.differences.is_empty() {
            let more = self.differences.len().saturating_sub(DIFFERENCES_MAX);
            let mut text = self.differences;
            text.truncate(DIFFERENCES_MAX);
            if more > 0 {
                text.push(format!("and {more} more"));
            }
            return Err(text.join("; "));
        }
        Ok(if self.left_out.is_empty() {
            CaseOutcome::Passed
        } else {
            CaseOutcome::Partly
        })
    }

    fn same<T: PartialEq + Debug>(&mut self, what: &str, recorded: &T, got: &T) {
        if recorded != got {
            self.differences
                .push(format!("{what}: recorded {recorded:?}, got {got:?}"));
        }
    }

    /// Returns whether Berth has the plugin; otherwise its entry is omitted.
    fn is_built(&mut self, plugin: &str) -> bool {
        let built = self.registry.get(plugin).is_some();
        if !built && !self.left_out.iter().any(|name| name == plugin) {
            self.left_out.push(plugin.to_owned());
        }
        built
    }

    pub(super) fn pre_filter(
        &mut self,
        expect: &DecisionExpectation,
        status: Option<&Status>,
        nodes: Option<&[Str]>,
    ) {
        let recorded = expect.pre_filter.as_ref();
        if recorded.is_some_and(|rejection| !self.is_built(&rejection.plugin)) {
            self.rejection_left_out = true;
            return;
        }
        self.same(
            "PreFilter",
            &recorded.cloned().map(sorted),
            &status.map(rejection).map(sorted),
        );
        if status.is_none() {
            let got = nodes.map(|names| names.iter().map(ToString::to_string).collect());
            self.same(
                "nodes that PreFilter leaves",
                &expect.pre_filter_nodes,
                &got,
            );
        }
    }

    /// Returns the nodes that are feasible in Berth and that no plugin missing in Berth rejects.
    pub(super) fn filter(
        &mut self,
        expect: &DecisionExpectation,
        cluster: &Cluster,
        statuses: &[(Slot, Status)],
    ) -> Vec<Slot> {
        let mut feasible = Vec::new();
        let names = |slot: Slot| cluster.nodes.get(slot).map(|node| node.name().to_string());
        let asked: Vec<String> = statuses
            .iter()
            .filter_map(|(slot, _)| names(*slot))
            .collect();
        for name in expect.filter.keys() {
            if !asked.contains(name) {
                self.differences
                    .push(format!("filter of {name}: recorded, but not asked"));
            }
        }
        for (slot, status) in statuses {
            let Some(name) = names(*slot) else { continue };
            let Some(recorded) = expect.filter.get(&name) else {
                self.differences
                    .push(format!("filter of {name}: asked, but not recorded"));
                continue;
            };
            if recorded
                .as_ref()
                .is_some_and(|rejection| !self.is_built(&rejection.plugin))
            {
                self.rejection_left_out = true;
                continue;
            }
            if status.is_success() {
                feasible.push(*slot);
            }
            let got = (!status.is_success()).then(|| sorted(rejection(status)));
            self.same(
                &format!("filter of {name}"),
                &recorded.clone().map(sorted),
                &got,
            );
        }
        feasible
    }

    pub(super) fn scores(
        &mut self,
        expect: &DecisionExpectation,
        cluster: &Cluster,
        scores: &Scores,
    ) {
        self.totals(expect, cluster, &scores.nodes);
        for (i, (slot, _)) in scores.nodes.iter().enumerate() {
            let node = cluster.nodes.get(*slot);
            let name = node.map(|node| node.name().to_string()).unwrap_or_default();
            let Some(recorded) = expect.scores.get(&name) else {
                continue;
            };
            let mut plugins = recorded.plugins.clone();
            plugins.retain(|plugin, _| self.is_built(plugin));
            let of_plugins = scores.plugins.iter();
            let ours: BTreeMap<String, i64> = of_plugins
                .filter_map(|of| Some((of.plugin.to_string(), *of.weighted.get(i)?)))
                .collect();
            self.same(&format!("scores of {name}"), &plugins, &ours);
        }
        let mut recorded: Vec<String> = expect.skipped_score_plugins.clone();
        recorded.retain(|plugin| self.is_built(plugin));
        let mut skipped: Vec<String> = scores.skipped.iter().map(ToString::to_string).collect();
        recorded.sort();
        skipped.sort();
        self.same("plugins without a preference", &recorded, &skipped);
    }

    /// The feasible nodes have the recorded totals, without plugins that are not built.
    pub(super) fn totals(
        &mut self,
        expect: &DecisionExpectation,
        cluster: &Cluster,
        totals: &[(Slot, i64)],
    ) {
        let named = totals.iter().filter_map(|(slot, total)| {
            let node = cluster.nodes.get(*slot)?;
            Some((node.name().to_string(), *total))
        });
        let mut got: BTreeMap<String, i64> = named.collect();
        for (name, recorded) in &expect.scores {
            let plugins = recorded.plugins.iter();
            let not_built = plugins.filter(|(plugin, _)| !self.is_built(plugin));
            let not_built: i64 = not_built.map(|(_, score)| score).sum();
            let total = Some(recorded.total - not_built);
            self.same(&format!("total of {name}"), &total, &got.remove(name));
        }
        for name in got.keys() {
            self.differences
                .push(format!("total of {name}: not recorded"));
        }
    }

    /// The chosen node has the greatest recorded total.
    pub(super) fn placed(&mut self, expect: &DecisionExpectation, node: &Str) {
        if !self.left_out.is_empty() {
            return;
        }
        let best = expect.scores.values().map(|scores| scores.total).max();
        let chosen = expect.scores.get(node.as_str()).map(|scores| scores.total);
        self.same("total of the chosen node", &best, &chosen);
    }

    pub(super) fn unfit(&mut self, expect: &DecisionExpectation, error: &FitError) {
        if self.rejection_left_out {
            return;
        }
        self.same("message", &expect.fit_error, &Some(error.to_string()));
        let mut recorded = expect.unschedulable_plugins.clone();
        recorded.sort();
        let got = &error.diagnosis.unschedulable_plugins;
        let got: Vec<String> = got.iter().map(ToString::to_string).collect();
        self.same("rejecting plugins", &recorded, &got);
    }

    /// Without the missing plugin, the search can proceed further than the recorded one.
    pub(super) fn failed(&mut self, status: &Status) {
        if self.rejection_left_out {
            return;
        }
        self.differences
            .push(format!("the search failed: {}", status.message()));
    }

    /// The result of PostFilter, if Berth has all plugins that contributed to it.
    pub(super) fn post_filter(
        &mut self,
        expect: &DecisionExpectation,
        got: impl FnOnce() -> Result<PostFiltered, String>,
    ) {
        let Some(recorded) = &expect.post_filter else {
            return;
        };
        if !self.is_built("DefaultPreemption") || self.rejection_left_out {
            return;
        }
        match got() {
            Ok(got) => self.same("PostFilter", recorded, &got),
            Err(what) => self.differences.push(format!("PostFilter: {what}")),
        }
    }
}

pub(super) fn rejection(status: &Status) -> Rejection {
    Rejection {
        code: status.code().to_string(),
        plugin: status.plugin().map(ToString::to_string).unwrap_or_default(),
        reasons: status.reasons().iter().map(ToString::to_string).collect(),
    }
}

/// Reasons are compared as a multiset, because upstream's order of several scalar resources is random.
fn sorted(mut rejection: Rejection) -> Rejection {
    rejection.reasons.sort();
    rejection
}
