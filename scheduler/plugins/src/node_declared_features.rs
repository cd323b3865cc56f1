//! Rejects nodes that do not declare a kubelet feature that the pod requires (KEP-5328).
//!
//! ```text
//! hostNetwork: true, hostUsers: false   → only nodes that declare UserNamespacesHostNetworkSupport
//! ```

use berth_api::{Pod, Str};
use berth_framework::event::{ActionType, Change, EventRegistration, EventResource, HintError};
use berth_framework::features::Behaviour;
use berth_framework::keep::constant;
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::NodeFilter;
use berth_framework::{Feature, FeatureGates, Lack, NodeView, PodInfo, ReasonCode, Status};
use smallvec::SmallVec;
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodeDeclaredFeatures";

/// The reason on a node that lacks a feature.
pub const REASON: &str = "node(s) didn't match Pod's required features";

/// A container's exit can restart all containers of the pod.
const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";
/// A pod on the node's network can have a user namespace.
const USER_NAMESPACES: &str = "UserNamespacesHostNetworkSupport";
/// Volumes can be mounted with options for bind mounts.
const BIND_MOUNT_OPTIONS: &str = "VolumeBindMountOptions";

/// Declared features of nodes.
#[derive(Debug, Default)]
pub struct NodeDeclaredFeatures;

type Features = SmallVec<[&'static str; 3]>;

/// The features that a pod requires in any release. Other declared features matter only for updates of running pods.
fn required(pod: &Pod) -> Features {
    let mut features = Features::new();
    let restarts_all = pod.all_containers().any(|container| {
        let mut rules = container.restart_policy_rules.iter();
        rules.any(|rule| rule.action == "RestartAllContainers")
    });
    if restarts_all {
        features.push(RESTART_ALL);
    }
    if pod.spec.host_network && pod.spec.host_users == Some(false) {
        features.push(USER_NAMESPACES);
    }
    let binds_with_options = pod.all_containers().any(|container| {
        let mut mounts = container.volume_mounts.iter();
        mounts.any(|mount| !mount.bind_mount_options.is_empty())
    });
    if binds_with_options {
        features.push(BIND_MOUNT_OPTIONS);
    }
    features
}

/// The declared features of a node changed. As in kube-scheduler, they are not compared with the features that the pod
/// requires.
fn declares_others(change: &Change<'_>) -> Result<bool, HintError> {
    let (old, new) = change.nodes()?;
    let both = old.zip(new);
    Ok(both.is_none_or(|(old, new)| old.status.declared_features != new.status.declared_features))
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(NodeDeclaredFeatures)
            .pre_filter()
            .node_filter()
            .events()
            .fragment_version(constant)
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
    .gated_by(Feature::NodeDeclaredFeatures)
}

/// The required features that the node does not declare.
fn missing<'a>(
    required: &'a Features,
    node: NodeView<'a>,
) -> impl Iterator<Item = &'static str> + 'a {
    let declared = &node.node().status.declared_features;
    let required = required.iter().copied();
    required.filter(|feature| !declared.iter().any(|declared| declared == feature))
}

impl NodeFilter for NodeDeclaredFeatures {
    type Requirement = Features;

    const READS_PODS: bool = false;

    fn requirement(&self, cx: &Context<'_>, pod: &PodInfo) -> Result<Option<Features>, Status> {
        let mut required = required(&pod.pod);
        if !cx.features.has(Behaviour::BindMountOptionsNeedTheirFeature) {
            required.retain(|feature| *feature != BIND_MOUNT_OPTIONS);
        }
        Ok((!required.is_empty()).then_some(required))
    }

    fn check(&self, required: &Features, node: NodeView<'_>) -> Status {
        if missing(required, node).next().is_none() {
            Status::success()
        } else {
            Status::unresolvable(ReasonCode::FeatureMissing.reason(REASON))
        }
    }

    fn lacks(&self, required: &Features, node: NodeView<'_>) -> Vec<Lack> {
        let lacks = missing(required, node).map(|feature| Lack::Feature {
            feature: Str::new(feature),
        });
        lacks.collect()
    }
}

impl EnqueueExtensions for NodeDeclaredFeatures {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            EventRegistration::when(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_DECLARED_FEATURE,
                declares_others,
            ),
            EventRegistration::when_itself(ActionType::UPDATE, |old, new| {
                old.is_some_and(|old| required(old) != required(new))
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, add, hint, node, pod, pod_info, unresolvable, update};
    use berth_api::Release;
    use berth_framework::Hint;
    use serde_json::{Value, json};

    fn declaring(features: Value) -> Value {
        json!({"status": {"declaredFeatures": features}})
    }

    /// PL-57: the features that a pod needs and the nodes that declare them.
    #[test]
    fn a_pod_needs_what_it_uses() {
        let rules = json!([{"action": "Restart"}, {"action": "RestartAllContainers"}]);
        let world = || {
            World::new()
                .node("none", declaring(json!([])))
                .node("restart", declaring(json!([RESTART_ALL])))
                .node("users", declaring(json!(["Unknown", USER_NAMESPACES])))
                .node("both", declaring(json!([RESTART_ALL, USER_NAMESPACES])))
        };
        for (spec, fits) in [
            (json!({}), [true; 4]),
            (json!({"hostNetwork": true}), [true; 4]),
            (json!({"hostUsers": false}), [true; 4]),
            (
                json!({"hostNetwork": true, "hostUsers": false}),
                [false, false, true, true],
            ),
            (
                json!({"containers": [{"name": "c", "restartPolicyRules": rules}]}),
                [false, true, false, true],
            ),
            (
                json!({"initContainers": [{"name": "i", "restartPolicyRules": rules}], "hostNetwork": true, "hostUsers": false}),
                [false, false, false, true],
            ),
        ] {
            let expected: Vec<_> = fits
                .into_iter()
                .map(|fits| if fits { None } else { unresolvable(REASON) })
                .collect();
            let got = world().filter(&NodeDeclaredFeatures, &pod_info("p", spec.clone()));
            assert_eq!(got, Ok(expected), "{spec}");
        }
    }

    /// PL-57: options of bind mounts need a feature of the node since 1.37.
    #[test]
    fn bind_mount_options_need_their_feature() {
        let mount = |options: Value| {
            let mounts = json!([{"name": "v", "mountPath": "/v", "bindMountOptions": options}]);
            json!({"containers": [{"name": "c", "volumeMounts": mounts}]})
        };
        let world = || {
            World::new()
                .node("none", declaring(json!([])))
                .node("mounts", declaring(json!([BIND_MOUNT_OPTIONS])))
        };
        for release in Release::ALL {
            for (options, is_needed) in [
                (json!(null), false),
                (json!([]), false),
                (json!(["noexec"]), release >= Release::V1_37),
            ] {
                let mut world = world();
                world.features = FeatureGates::of(release);
                let got = world.filter(
                    &NodeDeclaredFeatures,
                    &pod_info("p", mount(options.clone())),
                );
                let missing = if is_needed {
                    unresolvable(REASON)
                } else {
                    None
                };
                let expected = vec![missing, None];
                assert_eq!(got, Ok(expected), "{options} in {release}");
            }
        }
    }

    /// PL-58: changed lists of nodes and changed needs of the pod itself.
    #[test]
    fn changed_features_wake() {
        let needs = || pod("p", json!({"hostNetwork": true, "hostUsers": false}));
        let plain = |name: &str| pod(name, json!({}));
        let declares = |features: Value| node("n", declaring(features));
        let (node_kind, pod_kind) = (EventResource::Node, EventResource::Pod);
        let declared = ActionType::UPDATE_NODE_DECLARED_FEATURE;
        for (name, resource, action, change, expected) in [
            (
                "new node",
                node_kind.clone(),
                ActionType::ADD,
                add(declares(json!([]))),
                Hint::Queue,
            ),
            (
                "other features",
                node_kind.clone(),
                declared,
                update(declares(json!([])), declares(json!(["x"]))),
                Hint::Queue,
            ),
            (
                "another order",
                node_kind.clone(),
                declared,
                update(declares(json!(["x", "y"])), declares(json!(["y", "x"]))),
                Hint::Queue,
            ),
            (
                "the same",
                node_kind,
                declared,
                update(declares(json!(["x"])), declares(json!(["x"]))),
                Hint::Skip,
            ),
            (
                "it needs less",
                pod_kind.clone(),
                ActionType::UPDATE,
                update(needs(), plain("p")),
                Hint::Queue,
            ),
            (
                "it needs the same",
                pod_kind.clone(),
                ActionType::UPDATE,
                update(needs(), needs()),
                Hint::Skip,
            ),
            (
                "another pod",
                pod_kind,
                ActionType::UPDATE,
                update(plain("q"), plain("q")),
                Hint::Skip,
            ),
        ] {
            let got = hint(
                NodeDeclaredFeatures,
                &World::new(),
                resource,
                action,
                &needs(),
                change,
            );
            assert_eq!(got, Ok(expected), "{name}");
        }
    }
}
