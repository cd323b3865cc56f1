//! The values behind the rejections of the filters, in addition to kube-scheduler's texts.

use crate::dynamic_resources::DynamicResources;
use crate::inter_pod_affinity::InterPodAffinity;
use crate::node_affinity::NodeAffinity;
use crate::node_declared_features::NodeDeclaredFeatures;
use crate::node_name::NodeName;
use crate::node_ports::NodePorts;
use crate::node_resources::NodeResourcesFit;
use crate::node_unschedulable::NodeUnschedulable;
use crate::node_volume_limits::NodeVolumeLimits;
use crate::pod_topology_spread::PodTopologySpread;
use crate::taint_toleration::TaintToleration;
use crate::testing::{World, claim, csi_node, full_pod, namespaced, pod, storage_class, volume};
use crate::volume_binding::VolumeBinding;
use crate::volume_restrictions::VolumeRestrictions;
use crate::volume_zone::VolumeZone;
use berth_framework::lack::{DeviceShortage, HeldDevice, SpreadLack};
use berth_framework::plugin::{Filter, PreFilter, PreFilterResult};
use berth_framework::{CycleState, FeatureGates, Lack, PodInfo};
use serde_json::{Value, json};
use std::sync::Arc;

/// The reasons of the last node's rejection, and the missing things of that node.
fn explained(
    world: &World,
    plugin: &(impl PreFilter + Filter),
    pod: berth_api::Pod,
) -> (Vec<String>, Vec<Lack>) {
    let (pod, mut state) = (PodInfo::new(Arc::new(pod)), CycleState::default());
    let result = plugin.pre_filter(&world.context(), &mut state, &pod);
    assert!(!matches!(result, PreFilterResult::Reject(_)), "{result:?}");
    let mut answers = world.filter_with(plugin, &state, &pod);
    let (_, reasons) = answers.pop().flatten().expect("a rejection");
    let mut lacks = world.lacks(plugin, &state, &pod);
    (reasons, lacks.pop().expect("a node"))
}

fn texts(lacks: &[Lack]) -> Vec<String> {
    lacks.iter().map(ToString::to_string).collect()
}

fn requesting(cpu: &str, memory: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]})
}

fn sized(cpu: &str, memory: &str, pods: &str) -> Value {
    json!({"status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}}})
}

/// Every shortage is a value with the requested and the free amount.
#[test]
fn resources_have_their_amounts() {
    let world = World::new().node("n", sized("2", "4Gi", "1")).bound(
        "n",
        "other",
        requesting("1500m", "1Gi"),
    );
    let plugin = NodeResourcesFit::default();
    let (reasons, lacks) = explained(&world, &plugin, pod("p", requesting("1", "2Gi")));
    assert_eq!(reasons, ["Too many pods", "Insufficient cpu"]);
    let lack = |resource: &str, wanted, free| Lack::Resource {
        resource: resource.into(),
        wanted,
        free,
    };
    assert_eq!(lacks, [lack("pods", 1, 0), lack("cpu", 1000, 500)]);
    assert_eq!(texts(&lacks), ["no pod slot is free", "500m CPU short"]);
}

/// Every taint, and the cordon.
#[test]
fn taints_and_the_cordon_are_listed() {
    let taint = |key: &str, effect: &str| json!({"key": key, "value": "v", "effect": effect});
    let spec = json!({"unschedulable": true, "taints": [
        taint("a", "NoSchedule"), taint("soft", "PreferNoSchedule"), taint("b", "NoExecute")
    ]});
    let world = World::new().node("n", json!({"spec": spec}));
    let plugin = TaintToleration::new(&FeatureGates::default());
    let (reasons, lacks) = explained(&world, &plugin, pod("p", json!({})));
    assert_eq!(reasons, [crate::taint_toleration::REASON]);
    assert_eq!(
        texts(&lacks),
        [
            "taint a=v:NoSchedule not tolerated",
            "taint b=v:NoExecute not tolerated"
        ]
    );
    let (reasons, lacks) = explained(&world, &NodeUnschedulable::default(), pod("p", json!({})));
    assert_eq!(reasons, [crate::node_unschedulable::REASON]);
    assert_eq!(lacks, [Lack::Cordon]);
}

/// Every label of the node selector that is missing, and the terms that do not match.
#[test]
fn labels_and_terms_are_listed() {
    let world = World::new().node("n", json!({"metadata": {"labels": {"disk": "hdd"}}}));
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["a"]}
    ]}]});
    let spec = json!({
        "nodeSelector": {"disk": "ssd", "gpu": "yes"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
    });
    let (reasons, lacks) = explained(&world, &NodeAffinity::default(), pod("p", spec));
    assert_eq!(reasons, [crate::node_affinity::REASON_POD]);
    assert_eq!(
        texts(&lacks),
        [
            "nodeSelector wants label disk=ssd, the node has hdd",
            "nodeSelector wants label gpu=yes, the node does not have the label",
            "required node affinity does not match the node"
        ]
    );
    let required = serde_json::from_value(required).expect("terms");
    assert_eq!(lacks.last(), Some(&Lack::NodeAffinity { required }));
}

/// The port with the pod that uses it, and the features that are not declared.
#[test]
fn ports_and_features_are_named() {
    let port = |ports: Value| json!({"containers": [{"name": "c", "ports": ports}]});
    let world = World::new().node("n", json!({})).bound(
        "n",
        "web",
        port(json!([{"hostPort": 80}, {"hostPort": 81}])),
    );
    let wanted = port(json!([{"hostPort": 80}, {"hostPort": 82}]));
    let (reasons, lacks) = explained(&world, &NodePorts, pod("p", wanted));
    assert_eq!(reasons, [crate::node_ports::REASON]);
    assert_eq!(
        texts(&lacks),
        ["host port 80/TCP is used by pod default/web"]
    );
    let spec = json!({"hostNetwork": true, "hostUsers": false});
    let (reasons, lacks) = explained(&world, &NodeDeclaredFeatures, pod("p", spec));
    assert_eq!(reasons, [crate::node_declared_features::REASON]);
    assert_eq!(
        texts(&lacks),
        ["the node does not declare feature UserNamespacesHostNetworkSupport"]
    );
}

/// The driver with its limit, the attached volumes and the volumes of the pod.
#[test]
fn volumes_are_counted_by_driver() {
    let mut world = World::new().node("n", json!({})).with(csi_node(
        "n",
        json!({"spec": {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 1}}]}}),
    ));
    for name in ["a", "b"] {
        let source = json!({"driver": "d", "volumeHandle": name});
        world = world
            .with(volume(name, json!({"spec": {"csi": source}})))
            .with(claim(name, json!({"spec": {"volumeName": name}})));
    }
    let using = |claim: &str| json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
    let world = world.bound("n", "other", using("a"));
    let (reasons, lacks) = explained(&world, &NodeVolumeLimits, pod("p", using("b")));
    assert_eq!(reasons, [crate::node_volume_limits::REASON]);
    assert_eq!(
        lacks,
        [Lack::Volumes {
            driver: "d".into(),
            wanted: 1,
            attached: 1,
            limit: 1
        }]
    );
}

/// The violated constraints with the numbers of pods; constraints that hold are not listed.
#[test]
fn spread_constraints_have_their_numbers() {
    let of_zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone, "rack": zone}}});
    let app = json!({"metadata": {"labels": {"app": "web"}}});
    let world = World::new()
        .node("empty", of_zone("b"))
        .node("full", of_zone("a"))
        .bound_pod("full", full_pod("one", app.clone()));
    let constraint = |key: &str, max: i32| {
        json!({"maxSkew": max, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}})
    };
    let mut waiting = app;
    waiting["spec"]["topologySpreadConstraints"] =
        json!([constraint("zone", 1), constraint("rack", 9)]);
    let (reasons, lacks) = explained(
        &world,
        &PodTopologySpread::default(),
        full_pod("p", waiting),
    );
    assert_eq!(reasons, [crate::pod_topology_spread::REASON_SKEW]);
    assert_eq!(
        lacks,
        [Lack::Spread(SpreadLack {
            topology_key: "zone".into(),
            domain: Some("a".into()),
            pods: 1,
            fewest: 0,
            max_skew: 1
        })]
    );
}

/// The rule with the domain that violates it.
#[test]
fn rules_about_pods_name_their_domain() {
    let world = World::new()
        .node("n", json!({"metadata": {"labels": {"zone": "a"}}}))
        .bound_pod(
            "n",
            full_pod("web", json!({"metadata": {"labels": {"app": "web"}}})),
        );
    let term = |app: &str| {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone",
            "labelSelector": {"matchLabels": {"app": app}}}]})
    };
    for (affinity, reason, text) in [
        (
            json!({"podAffinity": term("cache")}),
            crate::inter_pod_affinity::REASON_AFFINITY,
            "required pod affinity: no such pod in zone=a",
        ),
        (
            json!({"podAntiAffinity": term("web")}),
            crate::inter_pod_affinity::REASON_ANTI_AFFINITY,
            "required pod anti-affinity: such a pod is in zone=a",
        ),
    ] {
        let spec = json!({"affinity": affinity});
        let (reasons, lacks) = explained(&world, &InterPodAffinity::default(), pod("p", spec));
        assert_eq!(reasons, [reason]);
        assert_eq!(texts(&lacks), [text]);
    }
}

/// A request with its matching, free and held devices, and the holders.
#[test]
fn devices_have_their_holders() {
    let device = |name: &str| json!({"name": name});
    let pool = json!({"name": "n", "generation": 1, "resourceSliceCount": 1});
    let slice: berth_api::ResourceSlice = namespaced(
        "s",
        json!({"spec": {"driver": "d", "pool": pool, "nodeName": "n",
            "devices": [device("g0"), device("g1")]}}),
    );
    let class: berth_api::DeviceClass = namespaced("gpu", json!({"spec": {}}));
    let result = json!({"request": "r", "driver": "d", "pool": "n", "device": "g0"});
    let held: berth_api::ResourceClaim = namespaced(
        "held",
        json!({"status": {"allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "training", "uid": "t"}]}}),
    );
    let wanted: berth_api::ResourceClaim = namespaced(
        "wanted",
        json!({"spec": {"devices": {"requests": [
            {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}}]}}}),
    );
    let world = World::new().node("n", json!({}));
    let world = world.with(class).with(slice).with(held).with(wanted);
    let spec = json!({"resourceClaims": [{"name": "c", "resourceClaimName": "wanted"}]});
    let (reasons, lacks) = explained(&world, &DynamicResources::default(), pod("p", spec));
    assert_eq!(reasons, ["cannot allocate all claims"]);
    assert_eq!(
        lacks,
        [Lack::Devices(DeviceShortage {
            claim: "default/wanted".into(),
            request: "gpus".into(),
            wanted: Some(2),
            exist: 2,
            matching: 2,
            free: 1,
            held: vec![HeldDevice {
                device: "d/n/g0".to_owned(),
                claim: Some("default/held".into()),
                pods: vec!["default/training".into()],
            }],
            tainted: Vec::new(),
            without_capacity: 0,
            without_counters: 0,
        })]
    );
    assert_eq!(
        texts(&lacks),
        ["request gpus of claim default/wanted wants 2: 2 of its class, 2 match, 1 free, 1 held"]
    );
}

/// The claim or the volume that the node cannot use.
#[test]
fn volumes_and_claims_are_named() {
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]);
    let zone = "topology.kubernetes.io/zone";
    let world = World::new()
        .node(
            "n",
            json!({"metadata": {"labels": {"zone": "a", zone: "a"}}}),
        )
        .with(volume(
            "pv",
            json!({"metadata": {"labels": {zone: "b__c"}},
                "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}),
        ))
        .with(storage_class(
            "late",
            json!({"provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer"}),
        ))
        .with(claim(
            "bound",
            json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOncePod"]}}),
        ))
        .with(claim(
            "unbound",
            json!({"spec": {"storageClassName": "late"}}),
        ));
    let using = |claim: &str| json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
    let binding = VolumeBinding::default();
    let (reasons, lacks) = explained(&world, &binding, pod("p", using("bound")));
    assert_eq!(reasons, [crate::volume_binding::REASON_NODE_CONFLICT]);
    assert_eq!(
        texts(&lacks),
        ["volume pv cannot be accessed from the node"]
    );
    let (reasons, lacks) = explained(&world, &binding, pod("p", using("unbound")));
    assert_eq!(reasons, [crate::volume_binding::REASON_BIND_CONFLICT]);
    assert_eq!(
        texts(&lacks),
        ["no volume can be found or provisioned for claim unbound"]
    );
    let (reasons, lacks) = explained(&world, &VolumeZone, pod("p", using("bound")));
    assert_eq!(reasons, [crate::volume_zone::REASON]);
    assert_eq!(
        texts(&lacks),
        ["a volume wants topology.kubernetes.io/zone b or c, the node has a"]
    );
    let disk = json!({"volumes": [{"name": "d", "awsElasticBlockStore": {"volumeID": "ebs"}}]});
    let world = world
        .bound("n", "other", using("bound"))
        .bound("n", "owner", disk.clone());
    let (reasons, lacks) = explained(&world, &VolumeRestrictions, pod("p", using("bound")));
    assert_eq!(reasons, [crate::volume_restrictions::REASON_ONE_POD]);
    assert_eq!(
        texts(&lacks),
        ["claim bound is for one pod and is used by pod default/other"]
    );
    let (reasons, lacks) = explained(&world, &VolumeRestrictions, pod("p", disk));
    assert_eq!(reasons, [crate::volume_restrictions::REASON_DISK]);
    assert_eq!(texts(&lacks), ["disk ebs is used by pod default/owner"]);
    let (reasons, lacks) = explained(&world, &NodeName, pod("p", json!({"nodeName": "m"})));
    assert_eq!(reasons, [crate::node_name::REASON]);
    assert_eq!(texts(&lacks), ["the pod names node m"]);
}
