//! The events for which the in-tree plugins are registered, and the answers of their hints in the cases that the rules
//! of the queue name.

use crate::in_tree;
use crate::testing::{full_pod, node};
use berth_api::{Kind, Object};
use berth_framework::event::{Change, EventRegistration};
use berth_framework::registry::FactoryContext;
use berth_framework::{ActionType, Cluster, ClusterEvent, EventResource, FeatureGates, Hint};
use serde_json::{Value, json};
use std::sync::Arc;

fn registrations(plugin: &str) -> Vec<EventRegistration> {
    registrations_with(plugin, &Value::Null)
}

fn registrations_with(plugin: &str, args: &Value) -> Vec<EventRegistration> {
    let features = FeatureGates::default();
    let cx = FactoryContext {
        args,
        features: &features,
    };
    let registry = in_tree();
    let factory = registry.get(plugin).expect("a plugin of that name");
    let plugin = factory.make(&cx).expect("defaults are valid");
    let events = plugin.events.expect("it receives events");
    events.events(&features)
}

/// the registrations, as `Resource:Action,Action`. Registrations for kinds that kube-scheduler's plugins do not
/// register for are supplements, and so are a new node for volume limits, deleted CSINodes and slices, and the second
/// registration for CSIDrivers.
#[test]
fn each_plugin_registers_for_what_may_help_its_pods() {
    const POD_UPDATE: &str = "UpdateNodeAllocatable,UpdateNodeLabel,UpdateNodeTaint,UpdateNodeCondition,UpdateNodeAnnotation,UpdateNodeDeclaredFeature,UpdateNodePreemptionPolicy,UpdatePodLabel,UpdatePodScaleDown,UpdatePodScaleUp,UpdatePodToleration,UpdatePodSchedulingGatesEliminated,UpdatePodGeneratedResourceClaim";
    for (plugin, expected) in [
        ("SchedulingGates", "Pod:UpdatePodSchedulingGatesEliminated"),
        (
            "NodeUnschedulable",
            "Node:Add,UpdateNodeTaint Pod:UpdatePodToleration",
        ),
        ("NodeName", "Node:Add"),
        (
            "TaintToleration",
            "Node:Add,UpdateNodeTaint Pod:UpdatePodToleration",
        ),
        ("NodeAffinity", "Node:Add,UpdateNodeLabel"),
        ("NodePorts", "Pod:Delete Node:Add"),
        (
            "NodeResourcesFit",
            "Pod:Delete,UpdatePodScaleDown Node:Add,UpdateNodeAllocatable resource.k8s.io/DeviceClass:Add,*",
        ),
        (
            "VolumeRestrictions",
            "Pod:Delete Node:Add PersistentVolumeClaim:Add",
        ),
        (
            "NodeVolumeLimits",
            "storage.k8s.io/CSINode:Add storage.k8s.io/CSINode:* storage.k8s.io/CSINode:* storage.k8s.io/CSINode:Delete Node:Add Pod:Delete PersistentVolumeClaim:Add storage.k8s.io/VolumeAttachment:Delete",
        ),
        (
            "VolumeBinding",
            "storage.k8s.io/StorageClass:Add,* PersistentVolumeClaim:Add,* PersistentVolume:Add,* Node:Add,UpdateNodeLabel storage.k8s.io/CSINode:Add,* storage.k8s.io/CSIDriver:* storage.k8s.io/CSIDriver:Delete,* storage.k8s.io/CSINode:Delete storage.k8s.io/CSIStorageCapacity:Add,*",
        ),
        (
            "VolumeZone",
            "storage.k8s.io/StorageClass:Add Node:Add,UpdateNodeLabel PersistentVolumeClaim:Add,* PersistentVolume:Add,*",
        ),
        (
            "PodTopologySpread",
            "Pod:Add,Delete,UpdatePodLabel,UpdatePodToleration Node:Add,Delete,UpdateNodeLabel,UpdateNodeTaint",
        ),
        (
            "InterPodAffinity",
            "Pod:Add,Delete,UpdatePodLabel Node:Add,UpdateNodeLabel namespaces.v1.:Add,Delete,*",
        ),
        (
            "NodeDeclaredFeatures",
            "Node:Add,UpdateNodeDeclaredFeature Pod:*",
        ),
        (
            "DynamicResources",
            "Node:Add,UpdateNodeAllocatable,UpdateNodeLabel Pod:UpdatePodGeneratedResourceClaim resource.k8s.io/ResourceClaim:Add,* resource.k8s.io/ResourceClaim:Delete resource.k8s.io/DeviceClass:Add,* resource.k8s.io/ResourceSlice:Add,* resource.k8s.io/ResourceSlice:Delete resource.k8s.io/DeviceClass:Delete",
        ),
        ("DefaultPreemption", "Pod:Delete"),
    ] {
        let received: Vec<String> = registrations(plugin)
            .iter()
            .map(|registration| {
                let event = &registration.event;
                let actions: Vec<&str> = event.action.bits().map(|(_, name)| name).collect();
                let actions = actions.join(",").replace(POD_UPDATE, "*");
                format!("{}:{actions}", event.resource.as_str())
            })
            .collect();
        assert_eq!(received.join(" "), expected, "{plugin}");
    }
}

fn pod(fields: Value) -> Object {
    Object::Pod(Arc::new(full_pod("changed", fields)))
}

fn on_node(mut fields: Value) -> Object {
    fields["spec"]["nodeName"] = json!("n1");
    pod(fields)
}

fn a_node(fields: Value) -> Object {
    Object::Node(Arc::new(node("n1", fields)))
}

fn offering(cpu: &str, pods: &str) -> Object {
    a_node(json!({"status": {"allocatable": {"cpu": cpu, "pods": pods}}}))
}

fn object(kind: Kind, fields: Value) -> Object {
    let mut object = fields;
    object["metadata"]["name"] = json!("o");
    kind.decode(object.to_string().as_bytes())
        .expect("an object")
}

/// The hint of `plugin` for the waiting pod; `None` when the plugin is not registered for the event.
fn stated(plugin: &str, event: &ClusterEvent, waiting: &Value, change: Change<'_>) -> Option<Hint> {
    let waiting = full_pod("waiting", waiting.clone());
    let cluster = Cluster::default();
    let mut answer = None;
    for registration in registrations(plugin) {
        if registration.event.matches(event) {
            let hint = registration.hint.as_ref();
            let stated = hint.map_or(Ok(Hint::Queue), |hint| hint(&cluster, &waiting, change));
            answer = answer.max(Some(stated == Ok(Hint::Queue)));
        }
    }
    answer.map(|helps| if helps { Hint::Queue } else { Hint::Skip })
}

/// Cases 96 to 107: the results of the hints, and the events that plugins do not register for.
#[test]
fn hints_state_what_the_rules_name() {
    use ActionType as A;
    use EventResource as R;
    const YES: Option<Hint> = Some(Hint::Queue);
    const NO: Option<Hint> = Some(Hint::Skip);
    let wants_cpu =
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}});
    let near = json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"},
    ]}}}});
    let spread = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }]}});
    let on_ssd = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
    let port =
        |port: u16| json!({"spec": {"containers": [{"name": "c", "ports": [{"hostPort": port}]}]}});
    let inline = json!({"spec": {"volumes": [{"name": "v", "csi": {"driver": "o"}}]}});
    let plain = json!({});
    let tolerant = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    let labelled = |labels: Value| a_node(json!({"metadata": {"labels": labels}}));
    let cordoned = |cordoned: bool| a_node(json!({"spec": {"unschedulable": cordoned}}));
    let volume = |zone: &str| {
        object(
            Kind::PersistentVolume,
            json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}),
        )
    };
    let capacity = |size: &str| {
        object(
            Kind::CsiStorageCapacity,
            json!({"capacity": size, "storageClassName": "fast"}),
        )
    };
    let driver = |counts: bool| {
        object(
            Kind::CsiDriver,
            json!({"spec": {"storageCapacity": counts}}),
        )
    };
    let app = || on_node(json!({"metadata": {"labels": {"app": "a"}}}));
    let cpu = |amount: &str| {
        on_node(
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]}}),
        )
    };
    let itself = |fields: &Value| Object::Pod(Arc::new(full_pod("waiting", fields.clone())));
    for (case, plugin, resource, action, waiting, old, new, expected) in [
        (
            96,
            "NodeResourcesFit",
            R::AssignedPod,
            A::DELETE,
            &wants_cpu,
            Some(app()),
            None,
            YES,
        ),
        (
            96,
            "NodeResourcesFit",
            R::AssignedPod,
            A::ADD,
            &wants_cpu,
            None,
            Some(app()),
            None,
        ),
        (
            96,
            "InterPodAffinity",
            R::AssignedPod,
            A::ADD,
            &near,
            None,
            Some(app()),
            YES,
        ),
        (
            96,
            "PodTopologySpread",
            R::AssignedPod,
            A::ADD,
            &spread,
            None,
            Some(app()),
            YES,
        ),
        (
            97,
            "NodeResourcesFit",
            R::AssignedPod,
            A::UPDATE_POD_SCALE_DOWN,
            &wants_cpu,
            Some(cpu("2")),
            Some(cpu("1")),
            YES,
        ),
        (
            98,
            "TaintToleration",
            R::UnschedulablePod,
            A::UPDATE_POD_LABEL,
            &plain,
            Some(itself(&plain)),
            Some(itself(&spread)),
            None,
        ),
        (
            99,
            "NodeAffinity",
            R::Node,
            A::UPDATE_NODE_LABEL,
            &on_ssd,
            Some(labelled(json!({"disk": "ssd"}))),
            Some(labelled(json!({"disk": "ssd", "x": "y"}))),
            NO,
        ),
        (
            99,
            "NodeAffinity",
            R::Node,
            A::UPDATE_NODE_LABEL,
            &on_ssd,
            Some(labelled(json!({"x": "y"}))),
            Some(labelled(json!({"disk": "ssd"}))),
            YES,
        ),
        (
            100,
            "NodeResourcesFit",
            R::Node,
            A::UPDATE_NODE_ALLOCATABLE,
            &wants_cpu,
            Some(offering("1", "9")),
            Some(offering("1500m", "9")),
            NO,
        ),
        (
            100,
            "NodeResourcesFit",
            R::Node,
            A::UPDATE_NODE_ALLOCATABLE,
            &wants_cpu,
            Some(offering("4", "9")),
            Some(offering("4", "10")),
            YES,
        ),
        (
            101,
            "NodeUnschedulable",
            R::Node,
            A::ADD,
            &plain,
            None,
            Some(cordoned(true)),
            NO,
        ),
        (
            101,
            "NodeUnschedulable",
            R::Node,
            A::UPDATE_NODE_TAINT,
            &plain,
            Some(cordoned(true)),
            Some(cordoned(false)),
            YES,
        ),
        (
            102,
            "TaintToleration",
            R::UnschedulablePod,
            A::UPDATE_POD_TOLERATION,
            &tolerant,
            Some(itself(&plain)),
            Some(itself(&tolerant)),
            YES,
        ),
        (
            102,
            "NodeUnschedulable",
            R::UnschedulablePod,
            A::UPDATE_POD_TOLERATION,
            &tolerant,
            Some(itself(&plain)),
            Some(itself(&tolerant)),
            YES,
        ),
        (
            103,
            "VolumeZone",
            R::PersistentVolume,
            A::UPDATE,
            &plain,
            Some(volume("a")),
            Some(volume("a")),
            NO,
        ),
        (
            103,
            "VolumeZone",
            R::PersistentVolume,
            A::UPDATE,
            &plain,
            Some(volume("a")),
            Some(volume("b")),
            YES,
        ),
        (
            104,
            "VolumeBinding",
            R::CsiStorageCapacity,
            A::UPDATE,
            &plain,
            Some(capacity("2Gi")),
            Some(capacity("1Gi")),
            NO,
        ),
        (
            104,
            "VolumeBinding",
            R::CsiStorageCapacity,
            A::UPDATE,
            &plain,
            Some(capacity("1Gi")),
            Some(capacity("2Gi")),
            YES,
        ),
        (
            105,
            "VolumeBinding",
            R::CsiDriver,
            A::UPDATE,
            &inline,
            Some(driver(true)),
            Some(driver(true)),
            NO,
        ),
        (
            105,
            "VolumeBinding",
            R::CsiDriver,
            A::UPDATE,
            &inline,
            Some(driver(true)),
            Some(driver(false)),
            YES,
        ),
        (
            106,
            "NodePorts",
            R::AssignedPod,
            A::DELETE,
            &port(80),
            Some(on_node(port(80))),
            None,
            YES,
        ),
        (
            106,
            "NodePorts",
            R::AssignedPod,
            A::DELETE,
            &port(80),
            Some(on_node(port(81))),
            None,
            NO,
        ),
        (
            107,
            "PodTopologySpread",
            R::Node,
            A::DELETE,
            &spread,
            Some(labelled(json!({"zone": "a"}))),
            None,
            YES,
        ),
        (
            107,
            "PodTopologySpread",
            R::Node,
            A::DELETE,
            &spread,
            Some(labelled(json!({"rack": "a"}))),
            None,
            NO,
        ),
    ] {
        let event = ClusterEvent::new(resource, action);
        let change = Change {
            old: old.as_ref(),
            new: new.as_ref(),
        };
        let got = stated(plugin, &event, waiting, change);
        assert_eq!(
            got, expected,
            "edge case {case}: {plugin}, {event}, {waiting}"
        );
    }
}

/// The supplements for events that kube-scheduler's plugins do not receive: labels of namespaces, and the selectors
/// behind default spread constraints. Their hints return Skip, so only the supplement queues the pod.
#[test]
fn supplements_cover_namespaces_and_selectors() {
    let namespace = |name: &str, labels: Value| {
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        let text = namespace.to_string();
        Some(
            Kind::Namespace
                .decode(text.as_bytes())
                .expect("a namespace"),
        )
    };
    let service = |selector: Value| {
        let meta = json!({"namespace": "default"});
        let service = json!({"metadata": meta, "spec": {"selector": selector}});
        Some(object(Kind::Service, service))
    };
    let looks_up = json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {}, "topologyKey": "zone", "namespaceSelector": {"matchLabels": {"team": "a"}}},
    ]}}}});
    let plain = json!({"metadata": {"labels": {"app": "a"}}});
    let own = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}},
    ]}});
    let defaults = json!({"defaultingType": "List", "defaultConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
    ]});
    let (affinity, spread) = ("InterPodAffinity", "PodTopologySpread");
    let (a, b) = (|| json!({"team": "a"}), || json!({"team": "b"}));
    for (situation, plugin, waiting, old, new, helps) in [
        (
            "comes to be meant",
            affinity,
            &looks_up,
            namespace("other", b()),
            namespace("other", a()),
            true,
        ),
        (
            "is meant no longer",
            affinity,
            &looks_up,
            namespace("other", a()),
            namespace("other", b()),
            false,
        ),
        (
            "stays as it was",
            affinity,
            &looks_up,
            namespace("other", a()),
            namespace("other", a()),
            false,
        ),
        (
            "its own namespace",
            affinity,
            &plain,
            namespace("default", a()),
            namespace("default", b()),
            true,
        ),
        (
            "another namespace",
            affinity,
            &plain,
            namespace("other", a()),
            namespace("other", b()),
            false,
        ),
        (
            "known late",
            affinity,
            &looks_up,
            None,
            namespace("other", a()),
            true,
        ),
        (
            "a service comes",
            spread,
            &plain,
            None,
            service(json!({"app": "a"})),
            true,
        ),
        (
            "a service goes",
            spread,
            &plain,
            service(json!({"app": "a"})),
            None,
            true,
        ),
        (
            "of other pods",
            spread,
            &plain,
            None,
            service(json!({"app": "b"})),
            false,
        ),
        (
            "unchanged",
            spread,
            &plain,
            service(json!({"app": "a"})),
            service(json!({"app": "a"})),
            false,
        ),
        (
            "constraints of its own",
            spread,
            &own,
            None,
            service(json!({"app": "a"})),
            false,
        ),
    ] {
        let waiting = full_pod("waiting", waiting.clone());
        let cluster = Cluster::default();
        let change = Change {
            old: old.as_ref(),
            new: new.as_ref(),
        };
        let kind = new
            .as_ref()
            .or(old.as_ref())
            .map(Object::kind)
            .expect("an object");
        let args = if plugin == spread {
            &defaults
        } else {
            &Value::Null
        };
        let registrations = registrations_with(plugin, args);
        let registration = registrations
            .iter()
            .find(|registration| registration.event.resource == EventResource::of_kind(kind))
            .expect("it receives that");
        let statement = |hint: &berth_framework::event::HintFn| hint(&cluster, &waiting, change);
        let hint = registration.hint.as_ref().map(statement);
        assert_eq!(hint, Some(Ok(Hint::Skip)), "{situation}");
        let supplement = registration.supplement.as_ref().map(statement);
        let expected = if helps { Hint::Queue } else { Hint::Skip };
        assert_eq!(supplement, Some(Ok(expected)), "{situation}");
    }
}
