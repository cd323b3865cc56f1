//! Rejects nodes with taints that the pod does not tolerate, and prefers nodes with few `PreferNoSchedule` taints.
//!
//! ```text
//! node taint gpu=yes:NoSchedule,       pod without toleration  → not this node
//! node taint spot=:PreferNoSchedule,   pod without toleration  → this node last
//! ```

use berth_api::pod::PodTemplate;
use berth_api::taint::{count_intolerable_prefer_no_schedule, untolerated};
use berth_api::{Node, Pod, Shared, Taint, TaintEffect, Toleration};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, Hint, HintError, Touched, WaitKey, Waits,
};
use berth_framework::keep::constant;
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::registry::{ArgsKind, Extensions, FactoryContext, Registration};
use berth_framework::requirement::{NodeFilter, NodeScore, ScoreScale};
use berth_framework::{
    Feature, FeatureGates, Lack, NodeTable, NodeView, PodInfo, ReasonCode, Slot, Status,
};
use rustc_hash::FxHashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "TaintToleration";

/// The reason on a node with a taint that the pod does not tolerate.
pub const REASON: &str = "node(s) had untolerated taint(s)";

/// Taints and tolerations.
#[derive(Debug, Default)]
pub struct TaintToleration {
    /// Whether tolerations may compare numbers (`Lt`, `Gt`).
    comparison_operators: bool,
}

/// The tolerations of a pod.
#[derive(Debug)]
pub struct Tolerations(Shared<PodTemplate>);

impl Hash for Tolerations {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.tolerations.hash(state);
    }
}

impl TaintToleration {
    /// The plugin while these feature gates are on.
    pub fn new(features: &FeatureGates) -> Self {
        Self {
            comparison_operators: features.enabled(Feature::TaintTolerationComparisonOperators),
        }
    }

    /// The taints of a node that reject the pod.
    fn untolerated<'n>(
        &self,
        tolerations: &'n [Toleration],
        node: &'n Node,
    ) -> impl Iterator<Item = &'n Taint> {
        let forbids = TaintEffect::forbids_scheduling;
        untolerated(
            &node.spec.taints,
            tolerations,
            forbids,
            self.comparison_operators,
        )
    }

    fn tolerates(&self, tolerations: &[Toleration], node: &Node) -> bool {
        self.untolerated(tolerations, node).next().is_none()
    }

    /// A node helps if its taints are tolerated now and its previous taints were not.
    fn after_node_change(&self, pod: &Pod, change: &Change<'_>) -> Result<Hint, HintError> {
        let (old, new) = change.nodes()?;
        let tolerates = |node: &Node| self.tolerates(&pod.spec.tolerations, node);
        let helps = !old.is_some_and(tolerates) && new.is_some_and(tolerates);
        Ok(Hint::queue_if(helps))
    }
}

/// A pod that tolerates taints with this key, or with any key, and this effect.
fn tolerance(key: Option<&str>, effect: TaintEffect) -> WaitKey {
    WaitKey::of((key, effect))
}

/// The keys under which a rejected pod waits: nodes with taints that it may tolerate.
fn waits_for_nodes(pod: &Pod) -> Waits {
    let tolerations = pod.spec.tolerations.iter().flat_map(|toleration| {
        let key = (!toleration.key.is_empty()).then_some(toleration.key.as_str());
        [TaintEffect::NoSchedule, TaintEffect::NoExecute]
            .into_iter()
            .filter(|effect| [TaintEffect::Unset, *effect].contains(&toleration.effect))
            .map(move |effect| tolerance(key, effect))
    });
    tolerations.collect()
}

/// The pods that a change of a node may help: pods that tolerate one of the remaining taints, or all pods if no taint
/// is left.
fn touched_by_node(change: &Change<'_>) -> Touched {
    let Ok((old, new)) = change.nodes() else {
        return Touched::everything();
    };
    let forbidding = |node: &'_ Node| -> Vec<Taint> {
        let taints = node.spec.taints.iter();
        taints
            .filter(|taint| taint.effect.forbids_scheduling())
            .map(|taint| Taint::new(&taint.key, &taint.value, taint.effect))
            .collect()
    };
    let Some(left) = new.map(forbidding) else {
        return Touched::no_pod();
    };
    let still: FxHashSet<&Taint> = left.iter().collect();
    if old.is_some_and(|old| forbidding(old).iter().all(|taint| still.contains(taint))) {
        // The taints that rejected a pod are still there.
        return Touched::no_pod();
    }
    // Many pods tolerate Kubernetes' own taints.
    let own = |taint: &&Taint| !taint.key.starts_with("node.kubernetes.io/");
    match left.iter().find(own).or(left.first()) {
        None => Touched::everything(),
        Some(taint) => [Some(taint.key.as_str()), None]
            .map(|key| tolerance(key, taint.effect))
            .into_iter()
            .collect(),
    }
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx: &FactoryContext<'_>| {
        Ok(Extensions::of(TaintToleration::new(cx.features))
            .node_filter()
            .pre_score()
            .node_score()
            .events()
            .fragment_version(constant)
            .build())
    })
    .args(ArgsKind::None)
    .by_default(Some(3))
}

impl NodeFilter for TaintToleration {
    type Requirement = Tolerations;

    const READS_PODS: bool = false;

    fn requirement(&self, _cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Tolerations>, Status> {
        Ok(Some(Tolerations(pod.pod.spec.template.clone())))
    }

    fn check(&self, Tolerations(of): &Tolerations, node: NodeView<'_>) -> Status {
        if self.tolerates(&of.tolerations, node.node()) {
            Status::success()
        } else {
            Status::unresolvable(ReasonCode::UntoleratedTaint.reason(REASON))
        }
    }

    fn lacks(&self, Tolerations(of): &Tolerations, node: NodeView<'_>) -> Vec<Lack> {
        let taints = self.untolerated(&of.tolerations, node.node());
        taints.map(|taint| Lack::Taint(taint.clone())).collect()
    }

    fn quick_check<'a>(
        &'a self,
        _: &'a Tolerations,
        nodes: &'a NodeTable,
    ) -> impl Fn(Slot) -> bool + 'a {
        |slot| nodes.is_untainted(slot)
    }
}

impl NodeScore for TaintToleration {
    /// The tolerations for `PreferNoSchedule`. Always `Some`: even a pod without tolerations prefers nodes without
    /// taints.
    type Preference = Vec<Toleration>;

    const READS_PODS: bool = false;
    const SCALE: ScoreScale = ScoreScale::GreatestReversed;

    fn preference(
        &self,
        _cx: &Context<'_>,
        pod: &PodInfo,
    ) -> Result<Option<Vec<Toleration>>, Status> {
        let tolerations = pod.pod.spec.tolerations.iter();
        let soft = tolerations.filter(|toleration| toleration.is_about_prefer_no_schedule());
        Ok(Some(soft.cloned().collect()))
    }

    fn rate<'a>(
        &'a self,
        tolerations: &'a Vec<Toleration>,
        nodes: &'a NodeTable,
    ) -> impl Fn(Slot) -> i64 + 'a {
        move |slot| {
            if nodes.is_untainted(slot) {
                return 0;
            }
            let count = nodes.get(slot).map_or(0, |node| {
                let taints = &node.node().spec.taints;
                let comparison = self.comparison_operators;
                count_intolerable_prefer_no_schedule(taints, tolerations, comparison)
            });
            i64::try_from(count).unwrap_or(i64::MAX)
        }
    }
}

impl EnqueueExtensions for TaintToleration {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_TAINT,
                move |_, pod, change| self.after_node_change(pod, &change),
            )
            .found_by(waits_for_nodes, |_, change| touched_by_node(&change)),
            // Tolerations can only be added, so any change of them may help.
            EventRegistration::when_itself(ActionType::UPDATE_POD_TOLERATION, |_, _| true),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, add, hint, node, pod, pod_info, unresolvable, update};
    use serde_json::{Value, json};

    fn plugin() -> TaintToleration {
        TaintToleration::new(&FeatureGates::default())
    }

    fn tainted(effects: &[&str]) -> Value {
        let taints: Vec<Value> = effects
            .iter()
            .enumerate()
            .map(|(i, effect)| json!({"key": format!("k{i}"), "value": "v", "effect": effect}))
            .collect();
        json!({"spec": {"taints": taints}})
    }

    /// PL-38: NoSchedule and NoExecute keep off, PreferNoSchedule does not.
    #[test]
    fn untolerated_taints_keep_pods_off() {
        for (effects, tolerations, fits) in [
            (vec!["NoSchedule"], json!([]), false),
            (vec!["NoExecute"], json!([]), false),
            (vec!["PreferNoSchedule"], json!([]), true),
            (
                vec!["NoSchedule"],
                json!([{"key": "k0", "value": "v", "effect": "NoSchedule"}]),
                true,
            ),
            (
                vec!["NoSchedule"],
                json!([{"key": "k0", "value": "other"}]),
                false,
            ),
            (
                vec!["NoSchedule", "NoExecute"],
                json!([{"key": "k0", "operator": "Exists"}]),
                false,
            ),
            // An empty key with Exists tolerates everything.
            (
                vec!["NoSchedule", "NoExecute"],
                json!([{"operator": "Exists"}]),
                true,
            ),
        ] {
            let world = World::new().node("n", tainted(&effects));
            let pod = pod_info("p", json!({"tolerations": tolerations}));
            let expected = if fits { None } else { unresolvable(REASON) };
            assert_eq!(
                world.filter_only(&plugin(), &pod),
                [expected],
                "{effects:?} {tolerations}"
            );
        }
    }

    /// PL-39: counts 0, 1, 2; all equal; all zero; NoSchedule does not count.
    #[test]
    fn soft_taints_lower_the_score() {
        let soft = "PreferNoSchedule";
        for (nodes, tolerations, scores) in [
            (
                vec![vec![], vec![soft], vec![soft, soft]],
                json!([]),
                vec![100, 50, 0],
            ),
            (
                vec![vec![soft, soft], vec![soft, soft]],
                json!([]),
                vec![0, 0],
            ),
            (vec![vec![], vec![]], json!([]), vec![100, 100]),
            (
                vec![vec!["NoSchedule"], vec![soft]],
                json!([{"operator": "Exists", "effect": "NoSchedule"}]),
                vec![100, 0],
            ),
            (
                vec![vec![], vec![soft]],
                json!([{"operator": "Exists", "effect": "PreferNoSchedule"}]),
                vec![100, 100],
            ),
            // A toleration for another effect does not make a soft taint count less.
            (
                vec![vec![], vec![soft]],
                json!([{"operator": "Exists", "effect": "NoExecute"}]),
                vec![100, 0],
            ),
        ] {
            let mut world = World::new();
            for (i, effects) in nodes.iter().enumerate() {
                world = world.node(&format!("n{i}"), tainted(effects));
            }
            let pod = pod_info("p", json!({"tolerations": tolerations}));
            let got = world.scores(&plugin(), &pod);
            assert_eq!(got, Some(scores), "{nodes:?} {tolerations}");
        }
    }

    /// PL-40: only a node that becomes tolerable helps.
    #[test]
    fn a_node_that_becomes_tolerable_wakes() {
        let clean = || node("n", json!({}));
        let hard = |key: &str| {
            node(
                "n",
                json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}),
            )
        };
        let tolerated = || hard("tolerated");
        let update_taint = ActionType::UPDATE_NODE_TAINT;
        for (name, action, change, expected) in [
            (
                "new node without taints",
                ActionType::ADD,
                add(clean()),
                Hint::Queue,
            ),
            (
                "new node with a taint",
                ActionType::ADD,
                add(hard("a")),
                Hint::Skip,
            ),
            (
                "taint taken away",
                update_taint,
                update(hard("a"), clean()),
                Hint::Queue,
            ),
            (
                "taint replaced by another",
                update_taint,
                update(hard("a"), hard("b")),
                Hint::Skip,
            ),
            (
                "tolerated taint added",
                update_taint,
                update(clean(), tolerated()),
                Hint::Skip,
            ),
            (
                "taint replaced by a tolerated one",
                update_taint,
                update(hard("a"), tolerated()),
                Hint::Queue,
            ),
        ] {
            let waiting = pod(
                "p",
                json!({"tolerations": [{"key": "tolerated", "operator": "Exists"}]}),
            );
            let got = hint(
                plugin(),
                &World::new(),
                EventResource::Node,
                action,
                &waiting,
                change,
            );
            assert_eq!(got, Ok(expected), "{name}");
        }
    }

    /// PL-41: the pod's own tolerations.
    #[test]
    fn the_pods_own_tolerations_wake_it() {
        for (who, expected) in [("p", Hint::Queue), ("q", Hint::Skip)] {
            let got = hint(
                plugin(),
                &World::new(),
                EventResource::Pod,
                ActionType::UPDATE_POD_TOLERATION,
                &pod("p", json!({})),
                update(
                    pod(who, json!({})),
                    pod(who, json!({"tolerations": [{"operator": "Exists"}]})),
                ),
            );
            assert_eq!(got, Ok(expected), "{who}");
        }
    }
}
