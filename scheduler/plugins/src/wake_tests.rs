//! The keys and PreQueueingHints find every pod that a hint or a supplement would queue, for random plugins, pods and
//! changes.
//!
//! Pods, nodes and other objects are drawn from a small set of names, labels and amounts, so that they often match. The
//! seed is printed with a failure.

use crate::in_tree;
use crate::testing::full_pod;
use berth_api::{Kind, Node, Object, Pod, Release};
use berth_framework::event::{
    Change, EventIndex, EventRegistration, HintFn, Narrowed, PreQueueingHintFn,
};
use berth_framework::registry::FactoryContext;
use berth_framework::{Cluster, EventResource, FeatureGates, Hint, PodInfo};
use fastrand::Rng;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.usize(0..of.len())]
}

fn chance(rng: &mut Rng, one_in: u32) -> bool {
    rng.u32(0..one_in) == 0
}

/// A list of none to `max` entries.
fn some<T>(rng: &mut Rng, max: usize, mut make: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    (0..rng.usize(0..=max)).map(|_| make(rng)).collect()
}

fn labels(rng: &mut Rng, keys: &[&str]) -> Value {
    let mut labels = Map::new();
    for key in keys {
        if rng.bool() {
            labels.insert((*key).to_owned(), json!(pick(rng, &["1", "2", "3"])));
        }
    }
    Value::Object(labels)
}

fn expression(rng: &mut Rng, keys: &[&str], operators: &[&str]) -> Value {
    let operator = pick(rng, operators);
    let values = match operator {
        "Exists" | "DoesNotExist" => Vec::new(),
        "Gt" | "Lt" => vec![pick(rng, &["1", "2"])],
        _ => (0..rng.usize(1..3))
            .map(|_| pick(rng, &["1", "2", "3"]))
            .collect(),
    };
    json!({"key": pick(rng, keys), "operator": operator, "values": values})
}

const POD_LABELS: [&str; 3] = ["app", "tier", "x"];
const NODE_LABELS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "disk",
    "gen",
];
const SELECTORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
const NODE_OPERATORS: [&str; 7] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Wrong"];

fn selector(rng: &mut Rng) -> Value {
    match rng.u8(0..8) {
        0 => Value::Null,
        1 => json!({}),
        2 | 3 => {
            json!({"matchExpressions": some(rng, 2, |rng| expression(rng, &POD_LABELS, &SELECTORS))})
        }
        4 if chance(rng, 6) => json!({"matchExpressions": [{"key": "app", "operator": "Wrong"}]}),
        _ => json!({"matchLabels": labels(rng, &POD_LABELS)}),
    }
}

fn affinity_term(rng: &mut Rng) -> Value {
    let mut term = json!({"topologyKey": pick(rng, &NODE_LABELS), "labelSelector": selector(rng)});
    if chance(rng, 3) {
        term["namespaces"] = json!([pick(rng, &["default", "other"])]);
    }
    if chance(rng, 3) {
        term["namespaceSelector"] = json!({"matchLabels": labels(rng, &["team"])});
    }
    term
}

fn affinity(rng: &mut Rng) -> Value {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let mut affinity = json!({});
    for kind in ["podAffinity", "podAntiAffinity"] {
        if rng.bool() {
            affinity[kind] = json!({REQUIRED: some(rng, 2, affinity_term)});
        }
    }
    if rng.bool() {
        let terms = some(rng, 2, |rng| {
            let expressions = some(rng, 2, |rng| expression(rng, &NODE_LABELS, &NODE_OPERATORS));
            let fields = if chance(rng, 4) {
                json!([{"key": "metadata.name", "operator": pick(rng, &["In", "NotIn"]), "values": [pick(rng, &["n1", "n2"])]}])
            } else {
                json!([])
            };
            json!({"matchExpressions": expressions, "matchFields": fields})
        });
        affinity["nodeAffinity"] = json!({REQUIRED: {"nodeSelectorTerms": terms}});
    }
    affinity
}

fn requests(rng: &mut Rng) -> Value {
    let mut requests = Map::new();
    for (name, amounts) in [
        ("cpu", ["1", "4", "8"]),
        ("memory", ["1Gi", "8Gi", "64Gi"]),
        ("ephemeral-storage", ["1Gi", "9Gi", "90Gi"]),
        ("example.com/gpu", ["1", "2", "4"]),
        ("deviceclass.resource.kubernetes.io/gpu", ["0", "1", "2"]),
    ] {
        if rng.bool() {
            requests.insert(name.to_owned(), json!(pick(rng, &amounts)));
        }
    }
    Value::Object(requests)
}

fn volume(rng: &mut Rng) -> Value {
    let name = pick(rng, &["v1", "v2"]);
    let source = match rng.u8(0..7) {
        0 => json!({"persistentVolumeClaim": {"claimName": name}}),
        1 => json!({"ephemeral": {}}),
        2 => json!({"gcePersistentDisk": {"pdName": name, "readOnly": rng.bool()}}),
        3 => json!({"awsElasticBlockStore": {"volumeID": name}}),
        4 => json!({"iscsi": {"iqn": name, "readOnly": rng.bool()}}),
        5 => {
            json!({"rbd": {"monitors": ["m"], "pool": "p", "image": name, "readOnly": rng.bool()}})
        }
        _ => json!({"csi": {"driver": pick(rng, &["d1", "ebs.csi.aws.com"])}}),
    };
    let mut volume = source;
    volume["name"] = json!(pick(rng, &["a", "b"]));
    volume
}

/// An entry of `resourceClaims`, with its part of the status.
fn resource_claim(rng: &mut Rng) -> (Value, Value) {
    let name = pick(rng, &["v1", "v2", "gpu"]);
    if chance(rng, 2) {
        (json!({"name": name, "resourceClaimName": name}), json!({}))
    } else {
        (
            json!({"name": name, "resourceClaimTemplateName": "t"}),
            json!({"name": name, "resourceClaimName": pick(rng, &["v1", "v2", "gpu"])}),
        )
    }
}

fn toleration(rng: &mut Rng) -> Value {
    json!({
        "key": pick(rng, &["", "gpu", "spot", "node.kubernetes.io/unschedulable"]),
        "operator": pick(rng, &["Exists", "Equal", "", "Gt"]),
        "value": pick(rng, &["", "1"]),
        "effect": pick(rng, &["", "NoSchedule", "NoExecute", "PreferNoSchedule"]),
    })
}

fn constraint(rng: &mut Rng) -> Value {
    json!({
        "maxSkew": 1, "topologyKey": pick(rng, &NODE_LABELS), "labelSelector": selector(rng),
        "whenUnsatisfiable": pick(rng, &["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
        "matchLabelKeys": some(rng, 1, |rng| pick(rng, &POD_LABELS).to_owned()),
        "nodeTaintsPolicy": pick(rng, &["Honor", "Ignore"]),
    })
}

fn pod(rng: &mut Rng, name: &str) -> Pod {
    let node = pick(rng, &["", "n1", "n2"]);
    let owners = some(rng, 1, |rng| {
        let (kind, version) = [
            ("ReplicaSet", "apps/v1"),
            ("ReplicationController", "v1"),
            ("StatefulSet", "apps/v1"),
        ][rng.usize(0..3)];
        json!({"kind": kind, "apiVersion": version, "name": pick(rng, &["v1", "v2"]), "uid": "o", "controller": true})
    });
    let node_labels = &["disk", "gen", "disk2"][..rng.usize(0..3)];
    let mut constraints = Vec::new();
    if rng.bool() {
        constraints = some(rng, 2, constraint);
    }
    let claims = some(rng, 2, resource_claim);
    let (claims, made): (Vec<Value>, Vec<Value>) = claims.into_iter().unzip();
    let group = if rng.bool() {
        json!({"podGroupName": pick(rng, &["g1", "g2"])})
    } else {
        Value::Null
    };
    full_pod(
        name,
        json!({
            "metadata": {"namespace": pick(rng, &["default", "other"]), "labels": labels(rng, &POD_LABELS), "ownerReferences": owners},
            "spec": {
                "nodeName": node,
                "nodeSelector": labels(rng, node_labels),
                "affinity": affinity(rng),
                "containers": [{
                    "name": "c", "resources": {"requests": requests(rng)},
                    "ports": some(rng, 2, |rng| json!({
                        "hostPort": rng.u16(0..3), "hostIP": pick(rng, &["", "10.0.0.1", "10.0.0.2"]),
                        "protocol": pick(rng, &["TCP", "UDP"]),
                    })),
                }],
                "tolerations": some(rng, 3, toleration),
                "topologySpreadConstraints": constraints,
                "volumes": some(rng, 2, volume),
                "hostNetwork": rng.bool(), "hostUsers": rng.bool(),
                "resourceClaims": claims,
                "schedulingGroup": group,
            },
            "status": {"nominatedNodeName": pick(rng, &["", "", "n1"]), "resourceClaimStatuses": made},
        }),
    )
}

fn node(rng: &mut Rng, name: &str) -> Node {
    let taints = some(rng, 2, |rng| {
        json!({
            "key": pick(rng, &["gpu", "spot", "node.kubernetes.io/not-ready"]), "value": pick(rng, &["", "1"]),
            "effect": pick(rng, &["NoSchedule", "NoExecute", "PreferNoSchedule"]),
        })
    });
    let mut allocatable = requests(rng);
    allocatable["pods"] = json!(pick(rng, &["0", "1", "110"]));
    let node = json!({
        "metadata": {"name": name, "labels": labels(rng, &NODE_LABELS)},
        "spec": {"taints": taints, "unschedulable": rng.bool()},
        "status": {"allocatable": allocatable, "declaredFeatures": some(rng, 1, |_| "f")},
    });
    serde_json::from_value(node).expect("a node")
}

/// The spec of a group, often with a parent.
fn group_spec(rng: &mut Rng, kind: Kind) -> Value {
    let min = match kind {
        Kind::PodGroup => "minCount",
        _ => "minGroupCount",
    };
    let policy = if chance(rng, 4) {
        json!({"basic": {}})
    } else {
        json!({"gang": {min: rng.u8(1..4)}})
    };
    json!({
        "schedulingPolicy": policy,
        "parentCompositePodGroupName": pick(rng, &["", "c1", "c2"]),
    })
}

fn object(rng: &mut Rng, kind: Kind) -> Object {
    let names: &[&str] = match kind {
        Kind::PodGroup => &["g1", "g2"],
        Kind::CompositePodGroup => &["c1", "c2"],
        _ => &["v1", "v2", "default", "other", "gpu", "d1"],
    };
    let metadata = json!({
        "name": pick(rng, names), "namespace": pick(rng, &["default", "other"]),
        "labels": labels(rng, &["team", "topology.kubernetes.io/zone"]),
    });
    let spec = match kind {
        Kind::Service | Kind::ReplicationController => {
            json!({"selector": labels(rng, &POD_LABELS)})
        }
        Kind::ReplicaSet | Kind::StatefulSet => {
            json!({"selector": {"matchLabels": labels(rng, &POD_LABELS)}})
        }
        Kind::CsiDriver => json!({"storageCapacity": rng.bool()}),
        Kind::VolumeAttachment => json!({"attacher": pick(rng, &["d1", "ebs.csi.aws.com"])}),
        Kind::DeviceClass => {
            if rng.bool() {
                json!({"extendedResourceName": "example.com/gpu"})
            } else {
                json!({})
            }
        }
        Kind::ResourceClaim => json!({}),
        kind @ (Kind::PodGroup | Kind::CompositePodGroup) => group_spec(rng, kind),
        Kind::CsiNode => json!({"drivers": some(rng, 1, |rng| json!({
            "name": "d1", "nodeID": "n", "allocatable": {"count": rng.u8(1..3)},
        }))}),
        _ => json!({}),
    };
    let mut object = json!({"metadata": metadata, "spec": spec});
    if kind == Kind::StorageClass {
        object["volumeBindingMode"] = json!(pick(rng, &["Immediate", "WaitForFirstConsumer"]));
    }
    if kind == Kind::CsiStorageCapacity {
        object["capacity"] = json!(pick(rng, &["1Gi", "2Gi"]));
    }
    if kind == Kind::ResourceClaim {
        let metadata = &object["metadata"];
        object["metadata"]["uid"] =
            json!(format!("{}/{}", metadata["namespace"], metadata["name"]));
        object["metadata"]["ownerReferences"] =
            json!([{"uid": pick(rng, &["waiting", "changed"]), "controller": true}]);
        if rng.bool() {
            object["status"]["allocation"] = json!({});
        }
        object["status"]["reservedFor"] =
            json!(some(rng, 1, |_| json!({"resource": "pods", "uid": "x"})));
    }
    let text = object.to_string();
    kind.decode(text.as_bytes())
        .unwrap_or_else(|e| panic!("{kind:?} {text}: {e}"))
}

/// A change of the object of a registration: the object before and after, either possibly absent.
fn change(
    rng: &mut Rng,
    resource: &EventResource,
    waiting: &Pod,
) -> Option<(Option<Object>, Option<Object>)> {
    let mut kinds = Kind::ALL.iter().copied();
    let kind = kinds.find(|kind| EventResource::of_kind(*kind) == *resource)?;
    if kind == Kind::Pod && chance(rng, 4) {
        let mut new = pod(rng, "waiting");
        new.metadata.namespace = waiting.namespace().clone();
        let objects = [waiting.clone(), new].map(|pod| Some(Object::Pod(Arc::new(pod))));
        let [old, new] = objects;
        return Some((old, new));
    }
    let make = |rng: &mut Rng| match kind {
        Kind::Pod => Object::Pod(Arc::new(pod(rng, "changed"))),
        Kind::Node => Object::Node(Arc::new(node(rng, "n1"))),
        kind => object(rng, kind),
    };
    let (old, mut new) = (make(rng), make(rng));
    // Most updates change little.
    if rng.bool()
        && let (Object::Node(old), Object::Node(new)) = (&old, &mut new)
    {
        let mut like = Node::clone(old);
        match rng.u8(0..4) {
            0 => like.metadata.labels = new.metadata.labels.clone(),
            1 => like.spec.taints = new.spec.taints.clone(),
            2 => like.status.allocatable = new.status.allocatable.clone(),
            _ => like.spec.unschedulable = new.spec.unschedulable,
        }
        *new = Arc::new(like);
    }
    if rng.bool()
        && let (Object::Pod(old), Object::Pod(new)) = (&old, &mut new)
    {
        let mut like = Pod::clone(old);
        like.metadata.labels = new.metadata.labels.clone();
        *new = Arc::new(like);
    }
    Some(match rng.u8(0..3) {
        0 => (None, Some(new)),
        1 => (Some(old), None),
        _ => (Some(old), Some(new)),
    })
}

fn cluster(rng: &mut Rng) -> Cluster {
    let mut cluster = Cluster::default();
    for name in ["n1", "n2"] {
        cluster.nodes.set_node(Arc::new(node(rng, name)));
        let placed = pod(rng, "placed");
        cluster
            .nodes
            .add_pod(&name.into(), Arc::new(PodInfo::new(Arc::new(placed))));
    }
    for kind in [
        Kind::Namespace,
        Kind::Service,
        Kind::ReplicaSet,
        Kind::DeviceClass,
        Kind::ResourceClaim,
        Kind::PodGroup,
        Kind::CompositePodGroup,
    ] {
        // A pod waits for a hierarchy only with all its groups.
        let most = match kind {
            Kind::PodGroup | Kind::CompositePodGroup => 6,
            _ => 3,
        };
        for _ in 0..rng.usize(0..most) {
            cluster.set(&object(rng, kind));
        }
    }
    cluster
}

/// The registrations of every in-tree plugin, and of plugins whose arguments add registrations.
fn registrations() -> Vec<(String, EventRegistration)> {
    let registry = in_tree();
    let features = FeatureGates::of(Release::V1_38);
    let hard = json!({
        "defaultingType": "List",
        "defaultConstraints": [{"maxSkew": 1, "topologyKey": "disk", "whenUnsatisfiable": "DoNotSchedule"}],
    });
    let added = json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}],
    }}});
    let mut all = Vec::new();
    let names: Vec<String> = registry.names().map(ToString::to_string).collect();
    for (name, args) in names
        .iter()
        .map(|name| (name.as_str(), &Value::Null))
        .chain([("PodTopologySpread", &hard), ("NodeAffinity", &added)])
    {
        let cx = FactoryContext {
            args,
            features: &features,
        };
        let factory = registry.get(name).expect("a plugin");
        let plugin = factory
            .make(&cx)
            .unwrap_or_else(|e| panic!("{name}: {e:?}"));
        if let Some(events) = &plugin.events {
            let events = events.clone().events(&features);
            all.extend(events.into_iter().map(|event| (name.to_owned(), event)));
        }
    }
    all
}

/// narrowing excludes no pod that a hint would queue, and it excludes some pods.
#[test]
fn whom_a_hint_would_queue_the_keys_find() {
    let registrations = registrations();
    let (mut asked, mut found, mut queued) = (0, 0, 0);
    let mut by_event: BTreeMap<String, [u32; 2]> = BTreeMap::new();
    for seed in 0..4_000 {
        let rng = &mut Rng::with_seed(seed);
        let mut cluster = cluster(rng);
        let waiting = Arc::new(pod(rng, "waiting"));
        cluster.pods.insert(waiting.uid().clone(), waiting.clone());
        for (plugin, registration) in &registrations {
            let (index, narrow) = (&registration.index, &registration.pre_queueing_hint);
            if index.is_none() && narrow.is_none() {
                continue;
            }
            let Some((old, new)) = change(rng, &registration.event.resource, &waiting) else {
                continue;
            };
            let change = Change {
                old: old.as_ref(),
                new: new.as_ref(),
            };
            let statement = |hint: &HintFn| hint(&cluster, &waiting, change);
            // A hint that fails queues the pod; a supplement that fails does not.
            let helps = registration.hint.as_ref().map(statement) != Some(Ok(Hint::Skip))
                || registration.supplement.as_ref().map(statement) == Some(Ok(Hint::Queue));
            let found_by_key = |index: &EventIndex| index.finds(&cluster, &waiting, change);
            let is_named = |narrow: &PreQueueingHintFn| match narrow(&cluster, change) {
                Ok(Narrowed::Pods(pods)) => {
                    let own = (waiting.namespace(), waiting.name());
                    pods.iter()
                        .any(|(namespace, name)| (namespace, name) == own)
                }
                Ok(Narrowed::AllPods) | Err(_) => true,
            };
            let finds =
                index.as_ref().is_none_or(found_by_key) && narrow.as_ref().is_none_or(is_named);
            assert!(
                finds || !helps,
                "seed {seed}, {plugin}, {:?}:\nwaiting {waiting:?}\nold {old:?}\nnew {new:?}",
                registration.event,
            );
            asked += 1;
            found += u32::from(finds);
            queued += u32::from(helps);
            let counts = by_event
                .entry(format!("{plugin} {}", registration.event))
                .or_default();
            counts[0] += 1;
            counts[1] += u32::from(helps);
        }
    }
    for (event, [cases, helped]) in &by_event {
        let never = event.starts_with("DefaultPreemption");
        assert!(*helped > 0 || never, "{event}: none of {cases} helped");
    }
    assert!(
        found < asked / 2,
        "{found} of {asked} found for {queued} to queue"
    );
}
