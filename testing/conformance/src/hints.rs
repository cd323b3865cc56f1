//! Replays queueing hints: decides whether an event justifies another attempt of a pod.
//!
//! A change of an object is converted to events as in production, and the hints of each plugin that registered for an
//! event are called. Unconditional wake-ups (every node that loses a taint wakes the pods that wait for new nodes) are
//! not recorded. The PreQueueingHint and the keys of a plugin must select every pod that its hint queues.

use crate::cases::{self, LaterAnswers};
use crate::cluster;
use crate::report::CaseReport;
use berth_api::{Object, Pod, Release};
use berth_framework::event::{Change, Narrowed};
use berth_framework::registry::Registry;
use berth_framework::{ActionType, Cluster, ClusterEvent, EventResource, FeatureGates, Hint};
use berth_scheduler::cache::node_update_events;
use berth_scheduler::profile::{Profile, ProfileSpec};
use berth_scheduler::queue::{PluginEvents, ProfileHooks, pod_update_events};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::BufRead;

/// The answers that later releases change.
const LATER: &str = include_str!("../later/hints.jsonl");

/// The answers of each plugin, by event label and plugin.
type PluginAnswers = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Debug, Deserialize)]
struct HintCase {
    id: String,
    objects: Vec<Value>,
    pod: Value,
    event: RecordedEvent,
    expect: PluginAnswers,
}

#[derive(Debug, Deserialize)]
struct RecordedEvent {
    kind: String,
    old: Option<Value>,
    new: Option<Value>,
}

impl HintCase {
    /// Returns whether the event is a change of the waiting pod.
    fn is_about_itself(&self) -> bool {
        let changed = self.event.new.as_ref().or(self.event.old.as_ref());
        let uid = |pod: &Value| pod["metadata"]["uid"].clone();
        self.event.kind == "Pod" && changed.is_some_and(|changed| uid(changed) == uid(&self.pod))
    }
}

/// Replays hints, one JSON object per line, with the answers of a release. Unreadable lines fail under their number.
pub fn replay(reader: impl BufRead, release: Release) -> CaseReport {
    let mut report = CaseReport::new();
    let asked = match AskedPlugins::new(FeatureGates::of(release)) {
        Ok(asked) => asked,
        Err(what) => {
            report.fail("the default profile", what);
            return report;
        }
    };
    let answers = match LaterAnswers::read(LATER, release) {
        Ok(answers) => answers,
        Err(what) => {
            report.fail("the later answers", what);
            return report;
        }
    };
    cases::each(reader, &answers, &mut report, |case, report| {
        asked.check(case, report);
    });
    report
}

/// The plugins of the default profile with their registrations.
struct AskedPlugins {
    registry: Registry,
    features: FeatureGates,
    events: Vec<PluginEvents>,
}

impl AskedPlugins {
    fn new(features: FeatureGates) -> Result<Self, String> {
        let registry = berth_plugins::in_tree();
        let profile = Profile::build(&ProfileSpec::default(), &registry, &features)
            .map_err(|errors| format!("{errors:?}"))?;
        let sort = profile.queue_sort.plugin.clone();
        let hooks = profile
            .plugins
            .iter()
            .fold(ProfileHooks::new(profile.name.clone(), sort), |hooks, p| {
                hooks.with_plugin(p, &features)
            });
        Ok(Self {
            registry,
            features,
            events: hooks.events,
        })
    }

    fn check(&self, case: HintCase, report: &mut CaseReport) {
        let got = match self.replay(&case) {
            Ok(got) => got,
            Err(what) => return report.fail(case.id, what),
        };
        let is_itself = case.is_about_itself();
        let recorded = case.expect.into_iter();
        let mut recorded: PluginAnswers = recorded
            .map(|(label, plugins)| (self.label(&label, is_itself), plugins))
            .collect();
        let mut left_out = false;
        for plugins in recorded.values_mut() {
            plugins.retain(|plugin, _| {
                let built = self.registry.get(plugin).is_some();
                left_out |= !built;
                built
            });
        }
        if recorded != got {
            report.fail(case.id, format!("recorded {recorded:?}, got {got:?}"));
        } else if left_out {
            report.partly(case.id);
        } else {
            report.pass(case.id);
        }
    }

    /// The label of a recorded event. Since 1.37, events of pods without a node have other names.
    fn label(&self, recorded: &str, is_itself: bool) -> String {
        let named = EventResource::of_unassigned(&self.features, is_itself);
        let before = EventResource::UnschedulablePod;
        match recorded.strip_prefix(before.as_str()) {
            Some(action) => format!("{}{action}", named.as_str()),
            None => recorded.to_owned(),
        }
    }

    /// The answers of the plugins.
    fn replay(&self, case: &HintCase) -> Result<PluginAnswers, String> {
        let kind = &case.event.kind;
        let decoded = |object: &Option<Value>| match object {
            None => Ok(None),
            Some(object) => match cluster::decode(object)? {
                None => Err(format!(
                    "the scheduler does not watch objects of the kind {kind}"
                )),
                object => Ok(object),
            },
        };
        let (old, new) = (decoded(&case.event.old)?, decoded(&case.event.new)?);
        let mut cluster = cluster::build(&case.objects, &self.features)?;
        let pod = cluster::decode_pod(&case.pod)?;
        // The scheduler knows the pods that wait.
        cluster.pods.insert(pod.uid().clone(), pod.clone());
        let change = Change {
            old: old.as_ref(),
            new: new.as_ref(),
        };
        let events = events(&change, &self.features, case.is_about_itself())
            .ok_or_else(|| format!("no event of a {}", case.event.kind))?;
        let answers = events
            .into_iter()
            .map(|event| (event.label(), self.ask(&event, &cluster, &pod, change)))
            .collect();
        Ok(answers)
    }

    fn ask(
        &self,
        event: &ClusterEvent,
        cluster: &Cluster,
        pod: &Pod,
        change: Change<'_>,
    ) -> BTreeMap<String, String> {
        let mut answers = BTreeMap::new();
        for plugin in &self.events {
            for registration in &plugin.registrations {
                // An event without a registration by kube-scheduler's plugin has no recorded answer.
                if registration.is_supplementary || !registration.event.matches(event) {
                    continue;
                }
                let answer = match &registration.hint {
                    None => "Queue",
                    Some(hint) => match hint(cluster, pod, change) {
                        Ok(Hint::Queue) => "Queue",
                        Ok(Hint::Skip) => "QueueSkip",
                        Err(_) => "Error",
                    },
                };
                // The index must find a pod that a hint queues.
                let index = registration.index.as_ref();
                let is_found = index.is_none_or(|index| index.finds(cluster, pod, change));
                let is_named = registration
                    .pre_queueing_hint
                    .as_ref()
                    .is_none_or(|narrow| {
                        let own = (pod.namespace(), pod.name());
                        match narrow(cluster, change) {
                            Ok(Narrowed::Pods(pods)) => {
                                pods.iter().any(|(ns, name)| (ns, name) == own)
                            }
                            Ok(Narrowed::AllPods) | Err(_) => true,
                        }
                    });
                let answer = if (is_found && is_named) || answer == "QueueSkip" {
                    answer
                } else {
                    "not found"
                };
                answers.insert(plugin.plugin.to_string(), answer.to_owned());
            }
        }
        answers
    }
}

/// The events of a change.
fn events(
    change: &Change<'_>,
    features: &FeatureGates,
    is_itself: bool,
) -> Option<Vec<ClusterEvent>> {
    if let (Some(Object::Node(old)), Some(Object::Node(new))) = (change.old, change.new) {
        return Some(node_update_events(old, new, features).to_vec());
    }
    if let (Some(Object::Pod(old)), Some(Object::Pod(new))) = (change.old, change.new) {
        return Some(pod_update_events(old, new, features).to_vec());
    }
    let action = match (change.old, change.new) {
        (None, Some(_)) => ActionType::ADD,
        (Some(_), Some(_)) => ActionType::UPDATE,
        (Some(_), None) => ActionType::DELETE,
        (None, None) => return None,
    };
    let object = change.new.or(change.old)?;
    let resource = match object {
        Object::Pod(pod) if pod.is_assigned() => EventResource::AssignedPod,
        Object::Pod(_) => EventResource::of_unassigned(features, is_itself),
        other => EventResource::of_kind(other.kind()),
    };
    Some(vec![ClusterEvent::new(resource, action)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn recorded() -> impl Iterator<Item = String> {
        let packed: &[u8] = include_bytes!("../vectors/hints.jsonl.gz");
        BufReader::new(flate2::read::GzDecoder::new(packed))
            .lines()
            .map(|line| line.expect("a line"))
    }

    fn replay_lines(lines: impl IntoIterator<Item = String>, release: Release) -> CaseReport {
        let text: Vec<String> = lines.into_iter().collect();
        replay(text.join("\n").as_bytes(), release)
    }

    /// the cases include events of claims, slices and classes. A PreQueueingHint selects every pod
    /// that the hint queues.
    #[test]
    fn every_hint_comes_out_as_recorded() {
        for release in Release::ALL {
            let report = replay_lines(recorded(), release);
            assert!(report.is_ok(), "{release}: {report}");
            assert_eq!(report.partly, [""; 0], "every plugin is there");
            assert_eq!(report.passed.len(), 2_602, "{release}");
        }
    }

    /// A replay that cannot fail shows nothing.
    #[test]
    fn a_difference_is_noticed() {
        let line = recorded().next().expect("a case");
        let change = |edit: &dyn Fn(&mut Value)| {
            let mut case: Value = serde_json::from_str(&line).expect("a case");
            edit(&mut case["expect"]);
            replay_lines([case.to_string()], Release::V1_36).is_ok()
        };
        assert!(change(&|_| {}));
        assert!(!change(
            &|e| e["NodeAdd"]["NodeAffinity"] = "QueueSkip".into()
        ));
        assert!(!change(&|e| {
            e["NodeAdd"]
                .as_object_mut()
                .expect("answers")
                .remove("NodeName");
        }));
        assert!(!change(
            &|e| e["NodeUpdateNodeTaint"] = Value::Object(serde_json::Map::new())
        ));
    }
}
