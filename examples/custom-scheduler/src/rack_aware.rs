//! Rejects nodes in racks that are being drained, and prefers racks of a better tier.
//!
//! ```text
//! args: {drained: [r13], tiers: [gold, silver]}
//!
//! node with example.com/rack=r13     → rejected
//! node with example.com/tier=gold    → 100
//! node with example.com/tier=silver  →  50
//! any other node                     →   0
//! ```

use berth_framework::event::{ActionType, Change, EventRegistration, EventResource, HintError};
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::registry::{ArgsError, Extensions, FactoryContext};
use berth_framework::requirement::{NodeFilter, NodeScore, ScoreScale};
use berth_framework::{FeatureGates, Lack, NodeTable, NodeView, PodInfo, Slot, Status};
use serde::Deserialize;
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "RackAware";

/// The label that names a node's rack.
pub const RACK: &str = "example.com/rack";
/// The label that names a node's tier.
pub const TIER: &str = "example.com/tier";

/// The reason of the rejection of a node in a drained rack.
pub const DRAINED: &str = "node(s) were in a drained rack";

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RackAwareArgs {
    /// Racks that are being drained.
    pub drained: Vec<String>,
    /// Tiers, the best first.
    pub tiers: Vec<String>,
}

impl RackAwareArgs {
    /// Returns all problems, each with its path.
    fn check(self) -> Result<Self, ArgsError> {
        let mut problems = Vec::new();
        for (list, path) in [(&self.drained, "drained"), (&self.tiers, "tiers")] {
            for (i, name) in list.iter().enumerate() {
                if name.is_empty() {
                    let problem = "Required value: the value of a node label".to_owned();
                    problems.push((format!("{path}[{i}]"), problem));
                } else if list[..i].contains(name) {
                    problems.push((format!("{path}[{i}]"), format!("Duplicate value: {name:?}")));
                }
            }
        }
        if problems.is_empty() {
            Ok(self)
        } else {
            Err(ArgsError { problems })
        }
    }
}

/// Creates the plugin from its arguments.
///
/// # Errors
/// All invalid arguments, each with its path.
pub fn make(cx: &FactoryContext<'_>) -> Result<Extensions, ArgsError> {
    let args: RackAwareArgs = cx.decode_args("RackAwareArgs")?;
    let plugin = RackAware {
        args: args.check()?,
    };
    Ok(Extensions::of(plugin)
        .node_filter()
        .node_score()
        .events()
        .build())
}

/// Rejects nodes in drained racks and prefers better tiers.
#[derive(Debug)]
pub struct RackAware {
    args: RackAwareArgs,
}

impl RackAware {
    fn is_drained(&self, node: &berth_api::Node) -> bool {
        let rack = node.labels().get(RACK);
        rack.is_some_and(|rack| self.args.drained.iter().any(|drained| drained == rack))
    }

    /// Returns whether a node was added outside of drained racks, or left a drained rack.
    fn opens(&self, change: &Change<'_>) -> Result<bool, HintError> {
        let (old, new) = change.nodes()?;
        let is_open = |node| !self.is_drained(node);
        Ok(new.is_some_and(is_open) && !old.is_some_and(is_open))
    }
}

impl NodeFilter for RackAware {
    /// All pods have the same requirement.
    type Requirement = ();

    const READS_PODS: bool = false;

    fn requirement(&self, _cx: &Context<'_>, _pod: &PodInfo) -> Result<Option<()>, Status> {
        Ok((!self.args.drained.is_empty()).then_some(()))
    }

    fn check(&self, _requirement: &(), node: NodeView<'_>) -> Status {
        if self.is_drained(node.node()) {
            Status::unresolvable(DRAINED)
        } else {
            Status::success()
        }
    }

    fn lacks(&self, _requirement: &(), node: NodeView<'_>) -> Vec<Lack> {
        let rack = node.labels().get_str(RACK);
        let rack = rack.filter(|_| self.is_drained(node.node()));
        let lacks = rack.map(|rack| Lack::Other {
            text: format!("rack {rack} is being drained"),
            values: [("rack".into(), rack.clone())].into(),
        });
        lacks.into_iter().collect()
    }
}

impl NodeScore for RackAware {
    /// All pods have the same preference.
    type Preference = ();

    const READS_PODS: bool = false;
    const SCALE: ScoreScale = ScoreScale::Greatest;

    fn preference(&self, _cx: &Context<'_>, _pod: &PodInfo) -> Result<Option<()>, Status> {
        Ok((!self.args.tiers.is_empty()).then_some(()))
    }

    fn rate<'a>(&'a self, _preference: &'a (), nodes: &'a NodeTable) -> impl Fn(Slot) -> i64 + 'a {
        |slot| {
            let tier = nodes.get(slot).and_then(|node| node.labels().get(TIER));
            let mut tiers = self.args.tiers.iter();
            let place = tier.and_then(|tier| tiers.position(|t| t == tier));
            // The last tier is better than no tier.
            place.map_or(0, |place| (self.args.tiers.len() - place) as i64)
        }
    }
}

impl EnqueueExtensions for RackAware {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![EventRegistration::when(
            EventResource::Node,
            ActionType::ADD | ActionType::UPDATE_NODE_LABEL,
            move |change| self.opens(change),
        )]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::{World, node, pod};
    use berth_framework::{ClusterEvent, Code, CycleState, Hint};
    use serde_json::{Value, json};

    fn plugin() -> RackAware {
        RackAware {
            args: RackAwareArgs {
                drained: vec!["r13".into()],
                tiers: vec!["gold".into(), "silver".into()],
            },
        }
    }

    #[test]
    fn a_drained_rack_gets_no_pods() {
        let world = World::default()
            .node(node("open").label(RACK, "r1"))
            .node(node("drained").label(RACK, "r13"))
            .node(node("nowhere"));
        let answers = world.filter(&plugin(), &CycleState::default(), &pod("p").info());
        let codes: Vec<Code> = answers.iter().map(Status::code).collect();
        assert_eq!(
            codes,
            [
                Code::Success,
                Code::UnschedulableAndUnresolvable,
                Code::Success
            ]
        );
        assert_eq!(answers[1].message(), DRAINED);
        let lacks: Vec<String> = world
            .lacks(&plugin(), &CycleState::default(), &pod("p").info())
            .iter()
            .flatten()
            .map(ToString::to_string)
            .collect();
        assert_eq!(lacks, ["rack r13 is being drained"]);
    }

    #[test]
    fn a_better_tier_scores_higher() {
        for (tiers, expected) in [
            (["gold", "silver", "tin"], [100, 50, 0]),
            (["silver", "tin", "tin"], [100, 0, 0]),
            (["tin", "tin", "tin"], [0, 0, 0]),
        ] {
            let mut world = World::default();
            for (i, tier) in tiers.iter().enumerate() {
                world = world.node(node(&format!("n{i}")).label(TIER, tier));
            }
            let scores = world.scores(&plugin(), &CycleState::default(), &pod("p").info());
            assert_eq!(scores, Ok(expected.to_vec()), "{tiers:?}");
        }
    }

    #[test]
    fn a_rack_that_opens_wakes_pods() {
        let of_rack = |rack: &str| Some(node("n").label(RACK, rack).object());
        let added = ClusterEvent::new(EventResource::Node, ActionType::ADD);
        let relabelled = ClusterEvent::new(EventResource::Node, ActionType::UPDATE_NODE_LABEL);
        let tainted = ClusterEvent::new(EventResource::Node, ActionType::UPDATE_NODE_TAINT);
        for (case, event, (old, new), expected) in [
            (
                "a new node",
                &added,
                (None, of_rack("r1")),
                Some(Hint::Queue),
            ),
            (
                "a new node of a drained rack",
                &added,
                (None, of_rack("r13")),
                Some(Hint::Skip),
            ),
            (
                "a node that leaves the drained rack",
                &relabelled,
                (of_rack("r13"), of_rack("r1")),
                Some(Hint::Queue),
            ),
            (
                "a node that was open before",
                &relabelled,
                (of_rack("r1"), of_rack("r2")),
                Some(Hint::Skip),
            ),
            (
                "a change of something else",
                &tainted,
                (of_rack("r1"), of_rack("r1")),
                None,
            ),
        ] {
            let hint = World::default().hint(plugin(), event, &pod("p").build(), old, new);
            assert_eq!(hint, Ok(expected), "{case}");
        }
    }

    #[test]
    fn arguments_are_read_strictly() {
        let features = FeatureGates::default();
        for (args, notified) in [
            (Value::Null, None),
            (json!({"drained": ["r1"], "tiers": ["gold"]}), None),
            (
                json!({"drained": ["r1", "r1"], "tiers": [""]}),
                Some(
                    "drained[1]: Duplicate value: \"r1\", tiers[0]: Required value: the value of a node label",
                ),
            ),
            (
                json!({"draind": []}),
                Some(
                    ": cannot read RackAwareArgs: unknown field `draind`, expected `drained` or `tiers`",
                ),
            ),
        ] {
            let cx = FactoryContext {
                args: &args,
                features: &features,
            };
            let got = make(&cx).err().map(|error| error.to_string());
            assert_eq!(got.as_deref(), notified, "{args}");
        }
    }
}
