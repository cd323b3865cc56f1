//! Rejects nodes outside of the zones and regions in the labels of the pod's volumes.
//!
//! ```text
//! volume label topology.kubernetes.io/zone: a__b   → nodes of zone a or b
//! nodes without any zone or region label           → every node
//! ```

use crate::volumes::{VolumeError, look_up, shared_claim_names, when_own_claim};
use berth_api::volumes::shared_claims;
use berth_api::{Labels, Object, PersistentVolume, PersistentVolumeClaim, Pod, Str};
use berth_framework::event::{ActionType, Change, EventRegistration, EventResource, HintError};
use berth_framework::keep::constant;
use berth_framework::lack::VolumeLack;
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::NodeFilter;
use berth_framework::{Cluster, FeatureGates, Lack, NodeView, PodInfo, ReasonCode, Status};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "VolumeZone";

/// The reason on a node of another zone.
pub const REASON: &str = "node(s) had no available volume zone";

/// The labels of zones and regions, each with the newer name that also counts on nodes.
const TOPOLOGY_LABELS: [(&str, Option<&str>); 4] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        Some("topology.kubernetes.io/zone"),
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        Some("topology.kubernetes.io/region"),
    ),
    ("topology.kubernetes.io/zone", None),
    ("topology.kubernetes.io/region", None),
];

/// Zones of volumes.
#[derive(Debug, Default)]
pub struct VolumeZone;

/// A label of a volume: a node must have one of the values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Topology {
    key: &'static str,
    beta_key: Option<&'static str>,
    values: BTreeSet<String>,
}

/// The values of a label of a volume; nothing when it is malformed.
fn values(label: &str) -> Option<BTreeSet<String>> {
    label
        .split("__")
        .map(str::trim)
        .map(|value| (!value.is_empty()).then(|| value.to_owned()))
        .collect()
}

/// The zones and regions of a volume. A malformed label counts as none.
fn topologies(volume: &PersistentVolume) -> impl Iterator<Item = Topology> {
    TOPOLOGY_LABELS.iter().filter_map(|(key, beta_key)| {
        let values = values(volume.metadata.labels.get(key)?)?;
        Some(Topology {
            key,
            beta_key: *beta_key,
            values,
        })
    })
}

fn of_claim(
    cluster: &Cluster,
    claim: &PersistentVolumeClaim,
) -> Result<Option<Arc<PersistentVolume>>, VolumeError> {
    let name = &claim.spec.volume_name;
    if !name.is_empty() {
        let volume = cluster.storage().volumes().get(name);
        return volume
            .cloned()
            .map(Some)
            .ok_or_else(|| VolumeError::VolumeNotFound(name.clone()));
    }
    let class = claim.class();
    if class.is_empty() {
        return Err(VolumeError::UnnamedVolumeAndClass);
    }
    let found = cluster
        .storage()
        .classes()
        .get(class)
        .ok_or_else(|| VolumeError::ClassNotFound(class.to_owned()))?;
    match &found.volume_binding_mode {
        None => Err(VolumeError::NoBindingMode(class.to_owned())),
        Some(mode) if mode == "WaitForFirstConsumer" => Ok(None),
        Some(_) => Err(VolumeError::UnnamedVolume),
    }
}

/// The zones and regions of all volumes of a pod.
fn of_pod(cluster: &Cluster, pod: &Pod) -> Result<Vec<Topology>, VolumeError> {
    let mut all = Vec::new();
    for name in shared_claims(pod) {
        if name.is_empty() {
            return Err(VolumeError::UnnamedClaim);
        }
        let claim = look_up(cluster, pod, name)?;
        if let Some(volume) = of_claim(cluster, claim)? {
            all.extend(topologies(&volume));
        }
    }
    Ok(all)
}

/// The zones and regions that the node is not in. Where nodes have none, every node is in all.
fn missed<'a>(
    topologies: &'a [Topology],
    labels: &'a Labels,
) -> impl Iterator<Item = (&'a Topology, Option<&'a str>)> {
    let has_any = TOPOLOGY_LABELS
        .iter()
        .any(|(key, _)| labels.contains_key(key));
    let topologies = topologies.iter().filter(move |_| has_any);
    let found = topologies.map(|topology| {
        let value = labels
            .get(topology.key)
            .or_else(|| labels.get(topology.beta_key?));
        (topology, value)
    });
    found.filter(|(topology, value)| value.is_none_or(|value| !topology.values.contains(value)))
}

/// A class whose volumes are created for the first pod was added.
fn adds_late_binding_class(change: &Change<'_>) -> Result<bool, HintError> {
    let (_, class) = change.versions(Object::as_storage_class, "a storage class")?;
    let mode = class.and_then(|class| class.volume_binding_mode.as_ref());
    Ok(mode.is_some_and(|mode| mode != "Immediate"))
}

/// A volume was added, or is in another zone or region now.
fn moves_volume(change: &Change<'_>) -> Result<bool, HintError> {
    let (old, new) = change.versions(Object::as_persistent_volume, "a volume")?;
    let both = old.zip(new);
    Ok(both.is_none_or(|(old, new)| !topologies(old).eq(topologies(new))))
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(VolumeZone)
            .pre_filter()
            .node_filter()
            .events()
            .fragment_version(constant)
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl NodeFilter for VolumeZone {
    type Requirement = Vec<Topology>;

    const READS_PODS: bool = false;

    fn requirement(
        &self,
        cx: &Context<'_>,
        pod: &PodInfo,
    ) -> Result<Option<Vec<Topology>>, Status> {
        let topologies = of_pod(cx.cluster, &pod.pod);
        let topologies = topologies.map_err(Status::unresolvable)?;
        Ok((!topologies.is_empty()).then_some(topologies))
    }

    fn check(&self, topologies: &Vec<Topology>, node: NodeView<'_>) -> Status {
        if missed(topologies, node.labels()).next().is_none() {
            Status::success()
        } else {
            Status::unresolvable(ReasonCode::VolumeZoneMismatch.reason(REASON))
        }
    }

    fn lacks(&self, topologies: &Vec<Topology>, node: NodeView<'_>) -> Vec<Lack> {
        let missed = missed(topologies, node.labels());
        let lacks = missed.map(|(topology, found)| {
            Lack::Volume(VolumeLack::Zone {
                key: Str::new(topology.key),
                allowed: topology
                    .values
                    .iter()
                    .map(|value| Str::new(value))
                    .collect(),
                found: found.map(Str::new),
            })
        });
        lacks.collect()
    }
}

impl EnqueueExtensions for VolumeZone {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        let add_or_update = ActionType::ADD | ActionType::UPDATE;
        vec![
            EventRegistration::when(
                EventResource::StorageClass,
                ActionType::ADD,
                adds_late_binding_class,
            ),
            EventRegistration::always(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_LABEL,
            ),
            when_own_claim(add_or_update, shared_claim_names),
            EventRegistration::when(EventResource::PersistentVolume, add_or_update, moves_volume),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        Answer, World, add, claim, hint, pod, pod_info, storage_class, unresolvable, update, volume,
    };
    use berth_framework::Hint;
    use serde_json::{Value, json};

    fn using(claims: &[&str]) -> Value {
        let volumes: Vec<Value> = claims
            .iter()
            .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
            .collect();
        json!({"volumes": volumes})
    }

    fn labelled(labels: Value) -> Value {
        json!({"metadata": {"labels": labels}})
    }

    const ZONE: &str = "topology.kubernetes.io/zone";
    const REGION: &str = "topology.kubernetes.io/region";
    const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

    /// PL-124: nodes a (zone a, region r), b (zone b, region r), old (the old label, zone a) and
    /// plain, without any.
    #[test]
    fn volumes_keep_pods_to_their_zone() {
        let base = || {
            World::new()
                .node("a", labelled(json!({ZONE: "a", REGION: "r"})))
                .node("b", labelled(json!({ZONE: "b", REGION: "r"})))
                .node("old", labelled(json!({OLD_ZONE: "a"})))
                .node("plain", labelled(json!({"zone": "a"})))
                .with(claim("c", json!({"spec": {"volumeName": "v"}})))
        };
        let picture = |answers: Result<Vec<Answer>, Answer>| -> String {
            let letter = |answer: &Answer| match answer {
                None => '.',
                some if *some == unresolvable(REASON) => 'Z',
                _ => '?',
            };
            answers
                .expect("no rejection by PreFilter")
                .iter()
                .map(letter)
                .collect()
        };
        for (labels, expected) in [
            (json!({}), "...."),
            (json!({ZONE: "a"}), ".ZZ."),
            (json!({ZONE: "a__b"}), "..Z."),
            (json!({ZONE: " a __ b "}), "..Z."),
            (json!({ZONE: "a____b"}), "...."),
            (json!({ZONE: "a", REGION: "other"}), "ZZZ."),
            // The newer label of a node satisfies the older label of a volume, not the other way round.
            (json!({OLD_ZONE: "a"}), ".Z.."),
        ] {
            let world = base().with(volume("v", labelled(labels.clone())));
            let pod = pod_info("p", using(&["c"]));
            let got = picture(world.filter(&VolumeZone, &pod));
            assert_eq!(got, expected, "{labels}");
            let alone = picture(Ok(world.filter_only(&VolumeZone, &pod)));
            assert_eq!(alone, expected, "{labels}, without PreFilter");
        }
        // Every volume counts.
        let world = base()
            .with(volume("v", labelled(json!({ZONE: "a__b"}))))
            .with(claim("d", json!({"spec": {"volumeName": "w"}})))
            .with(volume("w", labelled(json!({ZONE: "b"}))));
        let pod = pod_info("p", using(&["c", "d"]));
        assert_eq!(picture(world.filter(&VolumeZone, &pod)), "Z.Z.");
    }

    /// PL-125: the rejections of PreFilter with upstream's messages.
    #[test]
    fn claims_that_lead_nowhere() {
        let class =
            |name: &str, mode: Value| storage_class(name, json!({"volumeBindingMode": mode}));
        let of_class = |name: &str| claim("c", json!({"spec": {"storageClassName": name}}));
        let world = || World::new().node("n", labelled(json!({ZONE: "a"})));
        for (world, spec, expected) in [
            (
                world(),
                using(&["c"]),
                Some("persistentvolumeclaim \"c\" not found"),
            ),
            (
                world(),
                using(&[""]),
                Some("PersistentVolumeClaim had no name"),
            ),
            (
                world().with(claim("c", json!({"spec": {"volumeName": "v"}}))),
                using(&["c"]),
                Some("persistentvolume \"v\" not found"),
            ),
            (
                world().with(claim("c", json!({}))),
                using(&["c"]),
                Some("PersistentVolumeClaim had no pv name and storageClass name"),
            ),
            (
                world().with(of_class("s")),
                using(&["c"]),
                Some("storageclass.storage.k8s.io \"s\" not found"),
            ),
            (
                world().with(of_class("s")).with(class("s", Value::Null)),
                using(&["c"]),
                Some("VolumeBindingMode not set for StorageClass \"s\""),
            ),
            (
                world()
                    .with(of_class("s"))
                    .with(class("s", json!("Immediate"))),
                using(&["c"]),
                Some("PersistentVolume had no name"),
            ),
            (
                world()
                    .with(of_class("s"))
                    .with(class("s", json!("WaitForFirstConsumer"))),
                using(&["c"]),
                None,
            ),
            (
                world(),
                json!({"volumes": [{"name": "v", "ephemeral": {}}]}),
                None,
            ),
        ] {
            let got = world.filter(&VolumeZone, &pod_info("p", spec));
            match expected {
                None => assert_eq!(got, Ok(vec![None])),
                Some(reason) => assert_eq!(got, Err(unresolvable(reason))),
            }
        }
    }

    /// PL-126: the events that wake a pod.
    #[test]
    fn what_wakes() {
        let ask = |resource: EventResource, action, change| {
            hint(
                VolumeZone,
                &World::new(),
                resource,
                action,
                &pod("p", using(&["c"])),
                change,
            )
        };
        for (mode, expected) in [
            (json!("WaitForFirstConsumer"), Hint::Queue),
            (json!("Immediate"), Hint::Skip),
            (Value::Null, Hint::Skip),
        ] {
            let class = storage_class("s", json!({"volumeBindingMode": mode}));
            assert_eq!(
                ask(EventResource::StorageClass, ActionType::ADD, add(class)),
                Ok(expected),
                "{mode}"
            );
        }
        for (name, expected) in [("c", Hint::Queue), ("d", Hint::Skip)] {
            let new = claim(name, json!({}));
            assert_eq!(
                ask(
                    EventResource::PersistentVolumeClaim,
                    ActionType::ADD,
                    add(new)
                ),
                Ok(expected),
                "{name}"
            );
            let change = update(claim(name, json!({})), claim(name, json!({})));
            let got = ask(
                EventResource::PersistentVolumeClaim,
                ActionType::UPDATE,
                change,
            );
            assert_eq!(got, Ok(expected), "{name} changes");
        }
        let zoned = |zone: &str| volume("v", labelled(json!({ZONE: zone})));
        for (name, change, expected) in [
            (
                "a zone",
                update(volume("v", json!({})), zoned("a")),
                Hint::Queue,
            ),
            ("another zone", update(zoned("a"), zoned("b")), Hint::Queue),
            ("the same zone", update(zoned("a"), zoned("a")), Hint::Skip),
            (
                "another label",
                update(
                    zoned("a"),
                    volume("v", labelled(json!({ZONE: "a", "tier": "1"}))),
                ),
                Hint::Skip,
            ),
            (
                "a region",
                update(
                    zoned("a"),
                    volume("v", labelled(json!({ZONE: "a", REGION: "r"}))),
                ),
                Hint::Queue,
            ),
            (
                "no zone any more",
                update(zoned("a"), volume("v", json!({}))),
                Hint::Queue,
            ),
        ] {
            assert_eq!(
                ask(EventResource::PersistentVolume, ActionType::UPDATE, change),
                Ok(expected),
                "{name}"
            );
        }
        assert_eq!(
            ask(
                EventResource::PersistentVolume,
                ActionType::ADD,
                add(zoned("a"))
            ),
            Ok(Hint::Queue)
        );
    }
}
