//! The preview of an upgrade: decisions that another release of Kubernetes would change, pod by pod, and the
//! responsible changes.
//!
//! The same pods are decided with the present release, with the other one, and with the present one and each single
//! change of the other. A change that alone causes the new outcome of a pod is responsible for it.

use berth_api::Release;
use berth_edge::exit::CommandFailure;
use berth_edge::print::print_line;
use berth_framework::FeatureGates;
use berth_framework::features::ReleaseChange;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The outcome of each pod, by a key that is the same in all runs: its name and the outcome in words.
pub(crate) type Outcomes = BTreeMap<String, (String, String)>;

/// A pod whose outcome differs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PodDifference {
    pod: String,
    present: String,
    other: String,
    /// The responsible changes; empty if only several changes together are responsible.
    causes: Vec<ReleaseChange>,
}

/// The changes of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preview {
    present: Release,
    other: Release,
    differences: Vec<PodDifference>,
}

/// Compares two sets of gates. `decide` returns the outcomes of the same pods with some gates.
///
/// # Errors
/// The errors of `decide`.
pub(crate) fn compare(
    present: FeatureGates,
    other: FeatureGates,
    mut decide: impl FnMut(FeatureGates) -> Result<Outcomes, CommandFailure>,
) -> Result<Preview, CommandFailure> {
    let (before, after) = (decide(present)?, decide(other)?);
    let keys = before.keys().filter(|key| after.contains_key(*key));
    let differing: Vec<&String> = keys.filter(|key| before[*key].1 != after[*key].1).collect();
    let changes = if differing.is_empty() {
        Vec::new()
    } else {
        ReleaseChange::between(&present, &other)
    };
    let mut exact: BTreeMap<&String, Vec<ReleaseChange>> = BTreeMap::new();
    let mut near: BTreeMap<&String, Vec<ReleaseChange>> = BTreeMap::new();
    for change in &changes {
        let alone = decide(change.applied_to(present))?;
        for key in &differing {
            match alone.get(*key).map(|(_, end)| end) {
                Some(end) if *end == after[*key].1 => exact.entry(key).or_default().push(*change),
                Some(end) if *end != before[*key].1 => near.entry(key).or_default().push(*change),
                _ => {}
            }
        }
    }
    let is_explained = |key: &String| exact.contains_key(key) || near.contains_key(key);
    if differing.iter().any(|key| !is_explained(key)) {
        // Each of several changes is needed.
        for change in &changes {
            let without = decide(change.taken_from(other))?;
            for key in differing.iter().filter(|key| !exact.contains_key(**key)) {
                if without.get(*key).map(|(_, end)| end) == Some(&before[*key].1) {
                    let causes = near.entry(key).or_default();
                    if !causes.contains(change) {
                        causes.push(*change);
                    }
                }
            }
        }
    }
    let differences = differing.iter().map(|key| PodDifference {
        pod: before[*key].0.clone(),
        present: before[*key].1.clone(),
        other: after[*key].1.clone(),
        causes: exact
            .get(*key)
            .or_else(|| near.get(*key))
            .cloned()
            .unwrap_or_default(),
    });
    Ok(Preview {
        present: present.release(),
        other: other.release(),
        differences: differences.collect(),
    })
}

/// A release would not start with the present settings.
pub(crate) fn refused(release: Release, failure: CommandFailure) -> CommandFailure {
    match failure {
        CommandFailure::Usage(text) => CommandFailure::Usage(format!(
            "with Kubernetes {release}, the scheduler would not start with these settings: {text}"
        )),
        other => other,
    }
}

impl Preview {
    /// The number of pods that each change concerns.
    fn totals(&self) -> Vec<(ReleaseChange, usize)> {
        let mut totals: BTreeMap<ReleaseChange, usize> = BTreeMap::new();
        for change in self.differences.iter().flat_map(|pod| &pod.causes) {
            *totals.entry(*change).or_default() += 1;
        }
        totals.into_iter().collect()
    }

    /// For people; at most `shown_max` pods.
    pub(crate) fn text(&self, shown_max: usize) -> String {
        let Self { present, other, .. } = self;
        let mut text = String::new();
        for pod in self.differences.iter().take(shown_max) {
            let _ = writeln!(
                text,
                "{}: {}; with Kubernetes {other} {}",
                pod.pod, pod.present, pod.other
            );
            for cause in &pod.causes {
                let _ = writeln!(text, "    {}", cause.title());
            }
            // No single change is responsible for this pod.
            if pod.causes.is_empty() {
                let _ = writeln!(text, "    several changes together");
            }
        }
        let count = self.differences.len();
        if count > shown_max {
            let _ = writeln!(text, "… and {} further pods", count - shown_max);
        }
        match count {
            0 => {
                let _ = writeln!(
                    text,
                    "Kubernetes {other} decides as Kubernetes {present} about every pod"
                );
            }
            _ => {
                let _ = writeln!(
                    text,
                    "{count} pods differ between Kubernetes {present} and {other}"
                );
            }
        }
        for (change, pods) in self.totals() {
            let _ = writeln!(text, "{pods:>7} pods  {}", change.title());
        }
        text
    }

    /// For programs; at most `shown_max` pods.
    pub(crate) fn json(&self, shown_max: usize) -> Value {
        let cause = |change: &ReleaseChange| {
            json!({
                "name": change.name(),
                "title": change.title(),
                "rule": change.rule(),
            })
        };
        let shown = self.differences.iter().take(shown_max).map(|pod| {
            json!({
                "pod": pod.pod,
                "present": pod.present,
                "other": pod.other,
                "causes": pod.causes.iter().map(cause).collect::<Vec<_>>(),
            })
        });
        let totals = self.totals().into_iter().map(|(change, pods)| {
            let mut total = cause(&change);
            total["pods"] = pods.into();
            total
        });
        json!({
            "present": self.present.as_str(),
            "other": self.other.as_str(),
            "podsDiffer": self.differences.len(),
            "pods": shown.collect::<Vec<_>>(),
            "causes": totals.collect::<Vec<_>>(),
        })
    }

    /// Prints the text.
    ///
    /// # Errors
    /// The reader has closed the output.
    pub(crate) fn print(&self, shown_max: usize) -> Result<(), CommandFailure> {
        print_line!("{}", self.text(shown_max).trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::Feature;
    use berth_framework::features::Behaviour;

    /// The outcomes of the pods a, b and c, whose decisions depend on some changes.
    fn decide(gates: FeatureGates) -> Result<Outcomes, CommandFailure> {
        let has = |behaviour| gates.has(behaviour);
        let image = has(Behaviour::ImageVolumesRaiseImageThreshold);
        let spread = has(Behaviour::EmptySpreadSelectorCountsAllPods);
        let storage = gates.enabled(Feature::StorageCapacityScoring);
        let pods = [
            ("a", if image { "on n2" } else { "on n1" }),
            ("b", if spread && storage { "on n3" } else { "on n1" }),
            ("c", if storage { "on n2" } else { "on n1" }),
            ("d", "on n1"),
        ];
        let outcome = |(pod, end): (&str, &str)| {
            (
                format!("uid-{pod}"),
                (format!("default/{pod}"), end.to_owned()),
            )
        };
        Ok(pods.into_iter().map(outcome).collect())
    }

    /// Each pod has the changes that make its difference, alone or together.
    #[test]
    fn each_difference_names_the_changes_that_make_it() {
        let gates = FeatureGates::of;
        let causes = |from, to| -> Vec<String> {
            let preview = compare(gates(from), gates(to), decide).expect("outcomes");
            let pods = preview.differences.iter().map(|pod| {
                let causes: Vec<&str> = pod.causes.iter().map(|cause| cause.name()).collect();
                format!(
                    "{}: {} → {}: {}",
                    pod.pod,
                    pod.present,
                    pod.other,
                    causes.join(", ")
                )
            });
            pods.collect()
        };
        for (from, to, expected) in [
            (Release::V1_36, Release::V1_36, vec![]),
            (
                Release::V1_36,
                Release::V1_37,
                vec![
                    "default/a: on n1 → on n2: ImageVolumesRaiseImageThreshold",
                    "default/c: on n1 → on n2: StorageCapacityScoring",
                ],
            ),
            (
                Release::V1_36,
                Release::V1_38,
                vec![
                    "default/a: on n1 → on n2: ImageVolumesRaiseImageThreshold",
                    "default/b: on n1 → on n3: StorageCapacityScoring, EmptySpreadSelectorCountsAllPods",
                    "default/c: on n1 → on n2: StorageCapacityScoring",
                ],
            ),
            (
                Release::V1_37,
                Release::V1_38,
                vec!["default/b: on n1 → on n3: EmptySpreadSelectorCountsAllPods"],
            ),
            (
                Release::V1_37,
                Release::V1_36,
                vec![
                    "default/a: on n2 → on n1: ImageVolumesRaiseImageThreshold",
                    "default/c: on n2 → on n1: StorageCapacityScoring",
                ],
            ),
        ] {
            assert_eq!(causes(from, to), expected, "{from} to {to}");
        }
    }

    #[test]
    fn the_text_has_the_titles_and_the_totals() {
        let (from, to) = (Release::V1_37, Release::V1_38);
        let preview = compare(FeatureGates::of(from), FeatureGates::of(to), decide);
        let title = Behaviour::EmptySpreadSelectorCountsAllPods.title();
        assert_eq!(
            preview.expect("outcomes").text(10),
            format!(
                "default/b: on n1; with Kubernetes 1.38 on n3\n    {title}\n1 pods differ between Kubernetes 1.37 and 1.38\n      1 pods  {title}\n"
            )
        );
    }
}
