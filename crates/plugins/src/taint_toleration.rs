//! Keeps pods off nodes whose taints they do not tolerate, and prefers nodes with few `PreferNoSchedule` taints.
//!
//! ```text
//! node taint gpu=yes:NoSchedule,       pod without toleration  → not this node
//! node taint spot=:PreferNoSchedule,   pod without toleration  → this node last
//! ```

use crate::change::{is_same_pod, nodes, pods};
use crate::wake::only_the_pod;
use berth_api::taint::{count_intolerable_prefer_no_schedule, first_untolerated};
use berth_api::{Node, Pod, Taint, TaintEffect, Toleration};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, Hint, Touched, WaitKey, Waits,
};
use berth_framework::keep::{Fragment, Keep, Kept};
use berth_framework::plugin::{
    Context, EnqueueExtensions, Filter, MAX_NODE_SCORE, Plugin, PreScore, Score, default_normalize,
};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::{CycleState, Feature, FeatureGates, NodeView, PodInfo, Slot, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "TaintToleration";

/// The reason on a node with a taint that the pod does not tolerate.
pub const REASON: &str = "node(s) had untolerated taint(s)";

/// Keeps pods to nodes whose taints they tolerate.
#[derive(Debug, Default)]
pub struct TaintToleration;

/// The tolerations that count when nodes are scored.
struct PreScoreState {
    tolerations: Vec<Toleration>,
}

fn has_untolerated(node: &Node, tolerations: &[Toleration], comparison_operators: bool) -> bool {
    first_untolerated(
        &node.spec.taints,
        tolerations,
        TaintEffect::forbids_scheduling,
        comparison_operators,
    )
    .is_some()
}

/// A pod that tolerates taints with this key, or with whatever key, and this effect.
fn tolerance(key: Option<&str>, effect: TaintEffect) -> WaitKey {
    WaitKey::of((key, effect))
}

/// What a pod that was turned down waits for: nodes whose taints it may tolerate.
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

/// Whom a change of a node may help: those that tolerate one of the taints that are left; anybody when none is left.
fn touched_by_node(change: &Change<'_>) -> Touched {
    let Ok((old, new)) = nodes(change) else {
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
        return Touched::nobody();
    };
    if old.is_some_and(|old| forbidding(old).iter().all(|taint| left.contains(taint))) {
        // Whoever was kept off still is.
        return Touched::nobody();
    }
    // Taints of Kubernetes itself are tolerated by many.
    let own = |taint: &&Taint| !taint.key.starts_with("node.kubernetes.io/");
    match left.iter().find(own).or(left.first()) {
        None => Touched::everything(),
        Some(taint) => [Some(taint.key.as_str()), None]
            .map(|key| tolerance(key, taint.effect))
            .into_iter()
            .collect(),
    }
}

fn for_scoring(pod: &PodInfo) -> Vec<Toleration> {
    let tolerations = pod.pod.spec.tolerations.iter();
    tolerations
        .filter(|toleration| toleration.is_about_prefer_no_schedule())
        .cloned()
        .collect()
}

fn comparison_operators(cx: &Context<'_>) -> bool {
    cx.features
        .enabled(Feature::TaintTolerationComparisonOperators)
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(TaintToleration)
            .filter()
            .pre_score()
            .score()
            .events()
            .keep()
            .build())
    })
    .args(ArgsKind::None)
    .by_default(Some(3))
}

impl Plugin for TaintToleration {
    fn name(&self) -> &str {
        NAME
    }
}

impl Filter for TaintToleration {
    fn filter(
        &self,
        cx: &Context<'_>,
        _state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let tolerations = &pod.pod.spec.tolerations;
        if has_untolerated(node.node(), tolerations, comparison_operators(cx)) {
            Status::unresolvable(REASON)
        } else {
            Status::success()
        }
    }

    /// Most nodes have nothing to be tolerated.
    fn filter_many(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &mut Vec<Slot>,
        reject: &mut dyn FnMut(Slot, Status),
    ) {
        let table = &cx.cluster.nodes;
        nodes.retain(|slot| {
            if table.is_untainted(*slot) {
                return true;
            }
            let Some(view) = table.get(*slot) else {
                return false;
            };
            let status = self.filter(cx, state, pod, view);
            let fits = status.is_success();
            if !fits {
                reject(*slot, status);
            }
            fits
        });
    }
}

impl PreScore for TaintToleration {
    /// Never Skip: even a pod without tolerations prefers nodes without taints.
    fn pre_score(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        _nodes: &[Slot],
    ) -> Status {
        state.write(PreScoreState {
            tolerations: for_scoring(pod),
        });
        Status::success()
    }
}

impl Score for TaintToleration {
    fn score(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Result<i64, Status> {
        let count = |tolerations: &[Toleration]| {
            count_intolerable_prefer_no_schedule(
                &node.node().spec.taints,
                tolerations,
                comparison_operators(cx),
            )
        };
        let count = match state.read::<PreScoreState>() {
            Some(kept) => count(&kept.tolerations),
            None => count(&for_scoring(pod)),
        };
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn score_many(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &[Slot],
        scores: &mut Vec<i64>,
    ) -> Result<(), Status> {
        let table = &cx.cluster.nodes;
        for slot in nodes {
            scores.push(match table.is_untainted(*slot) {
                true => 0,
                false => {
                    let view = table.get(*slot);
                    let view = view.ok_or_else(|| Status::error("the node is gone"))?;
                    self.score(cx, state, pod, view)?
                }
            });
        }
        Ok(())
    }

    fn normalize(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        scores: &mut [(Slot, i64)],
    ) -> Status {
        default_normalize(MAX_NODE_SCORE, true, scores);
        Status::success()
    }
}

impl Keep for TaintToleration {
    fn reads_pods(&self) -> bool {
        false
    }

    fn fragment(&self, _cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        fragment.put(&pod.pod.spec.tolerations);
        Kept::ByFragment
    }

    fn normalizes(&self) -> bool {
        true
    }
}

impl EnqueueExtensions for TaintToleration {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let comparison = features.enabled(Feature::TaintTolerationComparisonOperators);
        vec![
            EventRegistration::with_hint(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_TAINT,
                move |_, pod, change| {
                    let (old, new) = nodes(&change)?;
                    let kept_off =
                        |node: &Node| has_untolerated(node, &pod.spec.tolerations, comparison);
                    let helped = old.is_none_or(kept_off) && new.is_some_and(|n| !kept_off(n));
                    Ok(if helped { Hint::Queue } else { Hint::Skip })
                },
            )
            .found_by(waits_for_nodes, |_, change| touched_by_node(&change)),
            // Tolerations can only be added, so any change of them may help.
            EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::UPDATE_POD_TOLERATION,
                |_, pod, change| {
                    let (_, new) = pods(&change)?;
                    Ok(match new {
                        Some(new) if is_same_pod(new, pod) => Hint::Queue,
                        _ => Hint::Skip,
                    })
                },
            )
            .touching(|_, change| only_the_pod(change)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, add, hint, node, pod, pod_info, unresolvable, update};
    use serde_json::{Value, json};

    fn tainted(effects: &[&str]) -> Value {
        let taints: Vec<Value> = effects
            .iter()
            .enumerate()
            .map(|(i, effect)| json!({"key": format!("k{i}"), "value": "v", "effect": effect}))
            .collect();
        json!({"spec": {"taints": taints}})
    }

    /// plugins 1.6, 2.6: NoSchedule and NoExecute keep off, PreferNoSchedule does not.
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
                world.filter_only(&TaintToleration, &pod),
                [expected],
                "{effects:?} {tolerations}"
            );
        }
    }

    /// plugins 1.7, 2.6, 15.12, the listed cases: counts 0, 1, 2; all equal; all zero; NoSchedule does not count.
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
            let got = world.scores(&TaintToleration, &pod);
            assert_eq!(got, Some(scores), "{nodes:?} {tolerations}");
        }
    }

    /// plugins 2.6 and 16 (TaintToleration hints): only a node that becomes tolerable helps.
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
                TaintToleration,
                &World::new(),
                EventResource::Node,
                action,
                &waiting,
                change,
            );
            assert_eq!(got, Ok(expected), "{name}");
        }
    }

    /// plugins 2.6: the pod's own tolerations.
    #[test]
    fn the_pods_own_tolerations_wake_it() {
        for (who, expected) in [("p", Hint::Queue), ("q", Hint::Skip)] {
            let got = hint(
                TaintToleration,
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
