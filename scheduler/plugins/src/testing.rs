//! Small clusters for the tests of plugins: nodes and pods from JSON, and the extension points run in order.

use berth_api::{CsiNode, Node, Object, Pod, Time};
use berth_framework::event::{
    ActionType, Change, ClusterEvent, EventResource, Hint, HintError, HintFn,
};
use berth_framework::plugin::{
    EnqueueExtensions, Filter, PreFilter, PreFilterResult, PreScore, Score,
};
use berth_framework::testing::{NodeBuilder, PodBuilder};
use berth_framework::{Code, CycleState, Lack, PodInfo, Reason, ReasonCode, Slot, Status};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use berth_framework::testing::Recorder;

/// The answer of a filter for a node: nothing when the pod fits, else the code and the reasons.
pub(crate) type Answer = Option<(Code, Vec<String>)>;

/// A rejection that preemption may turn.
pub(crate) fn unschedulable(reason: &str) -> Answer {
    Some((Code::Unschedulable, vec![reason.to_owned()]))
}

/// A rejection that preemption cannot turn.
pub(crate) fn unresolvable(reason: &str) -> Answer {
    Some((Code::UnschedulableAndUnresolvable, vec![reason.to_owned()]))
}

fn answer(status: &Status) -> Answer {
    if status.is_success() {
        return None;
    }
    let mut reasons: Vec<String> = status.reasons().iter().map(ToString::to_string).collect();
    if reasons.is_empty() {
        reasons.push(status.message());
    }
    Some((status.code(), reasons))
}

/// A node of this name; `fields` may have `metadata` (its labels), `spec` and `status`.
pub(crate) fn node(name: &str, fields: Value) -> Node {
    let mut fields = fields;
    fields["metadata"]["name"] = json!(name);
    serde_json::from_value(fields).expect("a node")
}

/// A pod of this name (also its UID) in the namespace `default`.
pub(crate) fn pod(name: &str, spec: Value) -> Pod {
    full_pod(name, json!({"spec": spec}))
}

/// A pod of this name (also its UID); `fields` may have `metadata`, `spec` and `status`.
pub(crate) fn full_pod(name: &str, fields: Value) -> Pod {
    namespaced(name, fields)
}

/// An object of this name (also its UID); its namespace is `default` unless the fields contain another one.
pub(crate) fn namespaced<T: serde::de::DeserializeOwned>(name: &str, fields: Value) -> T {
    let mut fields = fields;
    let metadata = &mut fields["metadata"];
    metadata["uid"] = json!(name);
    if metadata.get("namespace").is_none() {
        metadata["namespace"] = json!("default");
    }
    named(name, fields)
}

fn named<T: serde::de::DeserializeOwned>(name: &str, fields: Value) -> T {
    let mut fields = fields;
    fields["metadata"]["name"] = json!(name);
    serde_json::from_value(fields).expect("an object")
}

/// A claim of this name (also its UID) in the namespace `default`.
pub(crate) fn claim(name: &str, fields: Value) -> berth_api::PersistentVolumeClaim {
    namespaced(name, fields)
}

/// A volume of this name.
pub(crate) fn volume(name: &str, fields: Value) -> berth_api::PersistentVolume {
    named(name, fields)
}

/// A storage class of this name.
pub(crate) fn storage_class(name: &str, fields: Value) -> berth_api::StorageClass {
    named(name, fields)
}

/// The CSI drivers of a node.
pub(crate) fn csi_node(name: &str, fields: Value) -> berth_api::CsiNode {
    named(name, fields)
}

/// The same as [`pod`], ready for plugins.
pub(crate) fn pod_info(name: &str, spec: Value) -> PodInfo {
    PodInfo::new(Arc::new(pod(name, spec)))
}

/// The world of the framework's tests, filled from JSON and asked through all extension points.
pub(crate) struct World(berth_framework::testing::World);

impl std::ops::Deref for World {
    type Target = berth_framework::testing::World;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl std::ops::DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = berth_framework::testing::World::default();
        world.now = Time::from_secs(1_000);
        Self(world)
    }

    /// With one more node; see [`node`].
    pub(crate) fn node(self, name: &str, fields: Value) -> Self {
        Self(self.0.node(NodeBuilder::of(&node(name, fields))))
    }

    /// With one more namespace.
    pub(crate) fn namespace(self, name: &str, labels: Value) -> Self {
        let labels: BTreeMap<String, String> = serde_json::from_value(labels).expect("labels");
        let labels = labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        Self(self.0.namespace(name, labels))
    }

    /// With one more object that is neither a pod nor a node.
    pub(crate) fn with(mut self, object: impl IntoObject) -> Self {
        assert!(
            self.cluster.set(&object.into_object()),
            "neither a pod nor a node"
        );
        self
    }

    /// Without the CSI drivers of a node.
    pub(crate) fn without_csi_node(mut self, name: &str) -> Self {
        let mut csi_node = CsiNode::default();
        csi_node.metadata.name = name.into();
        let csi_node = Object::CsiNode(csi_node.into());
        assert!(self.cluster.unset(&csi_node));
        self
    }

    /// With one more pod on a node.
    pub(crate) fn bound(self, node: &str, name: &str, spec: Value) -> Self {
        self.bound_pod(node, full_pod(name, json!({"spec": spec})))
    }

    /// With one more pod on a node.
    pub(crate) fn bound_pod(self, node: &str, pod: Pod) -> Self {
        Self(self.0.pod(PodBuilder::of(&pod).on(node)))
    }

    /// The answer of Filter for each node, without PreFilter.
    pub(crate) fn filter_only(&self, plugin: &impl Filter, pod: &PodInfo) -> Vec<Answer> {
        self.filter_with(plugin, &CycleState::default(), pod)
    }

    /// The answer of Filter for each node.
    pub(crate) fn filter_with(
        &self,
        plugin: &impl Filter,
        state: &CycleState,
        pod: &PodInfo,
    ) -> Vec<Answer> {
        self.views()
            .map(|node| {
                let status = plugin.filter(&self.context(), state, pod, node);
                let lacks = plugin.lacking(&self.context(), state, pod, node);
                assert!(
                    !status.is_success() || lacks.is_empty(),
                    "node {} fits and lacks {lacks:?}",
                    node.name()
                );
                // A program reads one code, in the status and in the values.
                let codes: Vec<ReasonCode> = status.reasons().iter().map(Reason::code).collect();
                let mut values = lacks.iter().map(Lack::code);
                assert!(
                    !status.is_rejected() || values.all(|code| codes.contains(&code)),
                    "the reasons of {status:?} have the codes of {lacks:?}"
                );
                answer(&status)
            })
            .collect()
    }

    /// The answers of PreFilter and Filter for each node, or the rejection of PreFilter. Nodes that PreFilter leaves
    /// out have the code and no reasons.
    pub(crate) fn filter(
        &self,
        plugin: &(impl PreFilter + Filter),
        pod: &PodInfo,
    ) -> Result<Vec<Answer>, Answer> {
        let mut state = CycleState::default();
        match plugin.pre_filter(&self.context(), &mut state, pod) {
            PreFilterResult::Skip => Ok(self.views().map(|_| None).collect()),
            PreFilterResult::AllNodes => Ok(self.filter_with(plugin, &state, pod)),
            PreFilterResult::Nodes(names) => Ok(self
                .views()
                .zip(self.filter_with(plugin, &state, pod))
                .map(|(node, answer)| {
                    if names.contains(node.name()) {
                        answer
                    } else {
                        Some((Code::UnschedulableAndUnresolvable, Vec::new()))
                    }
                })
                .collect()),
            PreFilterResult::Reject(status) => Err(answer(&status)),
        }
    }

    /// The normalised scores of all nodes; nothing when PreScore returns Skip.
    pub(crate) fn scores(
        &self,
        plugin: &(impl PreScore + Score),
        pod: &PodInfo,
    ) -> Option<Vec<i64>> {
        let mut state = CycleState::default();
        let slots: Vec<Slot> = self.views().map(|node| node.slot()).collect();
        let status = plugin.pre_score(&self.context(), &mut state, pod, &slots);
        assert!(
            status.is_success() || status.is_skip(),
            "{}",
            status.message()
        );
        status
            .is_success()
            .then(|| self.scores_with(plugin, &state, pod, true))
    }

    /// The normalised scores of these nodes, the only ones on which the pod fits; nothing when PreScore returns Skip.
    pub(crate) fn scores_among(
        &self,
        plugin: &(impl PreScore + Score),
        pod: &PodInfo,
        feasible: &[&str],
    ) -> Option<Vec<i64>> {
        let slots: Vec<Slot> = feasible
            .iter()
            .map(|name| self.cluster.nodes.node(name).expect("it exists").slot())
            .collect();
        let mut state = CycleState::default();
        let status = plugin.pre_score(&self.context(), &mut state, pod, &slots);
        if status.is_skip() {
            return None;
        }
        assert!(status.is_success(), "{}", status.message());
        let cx = self.context();
        let mut scores: Vec<(Slot, i64)> = slots
            .iter()
            .map(|slot| {
                let node = self.cluster.nodes.get(*slot).expect("it exists");
                (
                    *slot,
                    plugin.score(&cx, &state, pod, node).expect("a score"),
                )
            })
            .collect();
        let status = plugin.normalize(&cx, &state, pod, &mut scores);
        assert!(status.is_success(), "{}", status.message());
        Some(scores.into_iter().map(|(_, score)| score).collect())
    }

    /// The raw scores of all nodes, for a plugin without PreScore.
    pub(crate) fn raw_scores(&self, plugin: &impl Score, pod: &PodInfo) -> Vec<i64> {
        self.scores_with(plugin, &CycleState::default(), pod, false)
    }

    /// The normalised scores of all nodes, for a plugin without PreScore.
    pub(crate) fn normalized_scores(&self, plugin: &impl Score, pod: &PodInfo) -> Vec<i64> {
        self.scores_with(plugin, &CycleState::default(), pod, true)
    }

    fn scores_with(
        &self,
        plugin: &impl Score,
        state: &CycleState,
        pod: &PodInfo,
        normalize: bool,
    ) -> Vec<i64> {
        let mut scores: Vec<(Slot, i64)> = self
            .views()
            .map(|node| {
                let score = plugin.score(&self.context(), state, pod, node);
                (node.slot(), score.expect("a score"))
            })
            .collect();
        if normalize {
            let status = plugin.normalize(&self.context(), state, pod, &mut scores);
            assert!(status.is_success(), "{}", status.message());
        }
        scores.into_iter().map(|(_, score)| score).collect()
    }
}

/// An object before and after.
pub(crate) struct Changed {
    old: Option<Object>,
    new: Option<Object>,
}

/// Anything that is an object.
pub(crate) trait IntoObject {
    fn into_object(self) -> Object;
}

impl IntoObject for Pod {
    fn into_object(self) -> Object {
        Object::Pod(Arc::new(self))
    }
}

macro_rules! objects {
    ($($kind:ident),* $(,)?) => {
        $(impl IntoObject for berth_api::$kind {
            fn into_object(self) -> Object {
                Object::$kind(Arc::new(self))
            }
        })*
    };
}

objects!(
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    DeviceClass,
    PersistentVolume,
    PersistentVolumeClaim,
    ReplicaSet,
    ReplicationController,
    ResourceClaim,
    ResourceSlice,
    Service,
    StatefulSet,
    StorageClass,
    VolumeAttachment,
);

impl IntoObject for Node {
    fn into_object(self) -> Object {
        Object::Node(Arc::new(self))
    }
}

pub(crate) fn add(new: impl IntoObject) -> Changed {
    Changed {
        old: None,
        new: Some(new.into_object()),
    }
}

pub(crate) fn update<T: IntoObject>(old: T, new: T) -> Changed {
    Changed {
        old: Some(old.into_object()),
        new: Some(new.into_object()),
    }
}

pub(crate) fn delete(old: impl IntoObject) -> Changed {
    Changed {
        old: Some(old.into_object()),
        new: None,
    }
}

/// The answer of a plugin to the event.
///
/// # Panics
/// When the plugin has not registered for the event.
pub(crate) fn hint(
    plugin: impl EnqueueExtensions,
    world: &World,
    resource: EventResource,
    action: ActionType,
    pod: &Pod,
    changed: Changed,
) -> Result<Hint, HintError> {
    let event = ClusterEvent::new(resource, action);
    let registrations = Arc::new(plugin).events(&world.features);
    let registration = registrations
        .iter()
        .find(|registration| registration.event.matches(&event))
        .unwrap_or_else(|| panic!("nothing is registered for {event}"));
    let change = Change {
        old: changed.old.as_ref(),
        new: changed.new.as_ref(),
    };
    match &registration.hint {
        None => Ok(Hint::Queue),
        Some(hint) => hint(&world.cluster, pod, change),
    }
}

/// The answer of a plugin to a change of the object, with its additions to kube-scheduler's hints; Skip when it has
/// registered for no such change.
pub(crate) fn full_hint(
    plugin: impl EnqueueExtensions,
    world: &World,
    pod: &Pod,
    changed: &Changed,
) -> Hint {
    let object = changed.new.as_ref().or(changed.old.as_ref());
    let kind = object.expect("an object").kind();
    let action = match (&changed.old, &changed.new) {
        (None, _) => ActionType::ADD,
        (_, None) => ActionType::DELETE,
        _ => ActionType::UPDATE,
    };
    let event = ClusterEvent::new(EventResource::of_kind(kind), action);
    let registrations = Arc::new(plugin).events(&world.features).into_iter();
    let of_kind = registrations.filter(|registration| registration.event.matches(&event));
    let mut hints = of_kind.flat_map(|registration| {
        let change = Change {
            old: changed.old.as_ref(),
            new: changed.new.as_ref(),
        };
        let answer = |hint: Option<HintFn>| {
            hint.map(|hint| hint(&world.cluster, pod, change).expect("a hint"))
        };
        // The queue asks only about the pods that the index finds.
        let index = registration.index.as_ref();
        if index.is_some_and(|index| !index.finds(&world.cluster, pod, change)) {
            return [None, None];
        }
        let plain = match registration.hint {
            None => Some(Hint::Queue),
            hint => answer(hint),
        };
        [plain, answer(registration.supplement)]
    });
    if hints.any(|hint| hint == Some(Hint::Queue)) {
        Hint::Queue
    } else {
        Hint::Skip
    }
}
