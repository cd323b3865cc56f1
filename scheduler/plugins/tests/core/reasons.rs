//! The message for users when a pod fits nowhere: the reasons of the in-tree plugins, word for word.

use crate::drivers::{driver, driver_with, with_spec};
use berth_api::{Kind, TaintEffect};
use berth_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use berth_plugins::{
    node_declared_features, node_name, node_volume_limits, volume_binding, volume_zone,
};
use berth_scheduler::profile::PluginConfig;
use berth_scheduler::testing::Driver;
use serde_json::json;

/// The answer of the only node for `pod`, other pods there or not.
fn reason(
    w: &mut Driver,
    the_node: NodeBuilder,
    others: Vec<PodBuilder>,
    pod: PodBuilder,
) -> String {
    w.node(the_node);
    for other in others {
        w.pod(other.on("n1"));
    }
    w.pod(pod);
    let text = w.attempt_named();
    let notified = text
        .split_once("available: 1 ")
        .and_then(|(_, rest)| rest.split_once(". "));
    notified.map_or(text.clone(), |(reason, _)| reason.to_owned())
}

fn room() -> NodeBuilder {
    node("n1").capacity("2", "1Gi", "10").label("zone", "a")
}

fn p() -> PodBuilder {
    pod("p")
}

/// C-31: the reasons that a pod meets on a node.
#[test]
fn nodes_state_why_not_in_kube_schedulers_words() {
    let term = |app: &str| json!([{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}]);
    let affinity = |kind: &str, app: &str| json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": term(app)}}});
    let spread = |key: &str| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2,
            "labelSelector": {"matchLabels": {"app": "a"}}}]})
    };
    let disk = json!({"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "disk"}}]});
    let cases: Vec<(&str, NodeBuilder, Vec<PodBuilder>, PodBuilder)> = vec![
        (
            "Too many pods",
            node("n1").capacity("2", "1Gi", "1"),
            vec![pod("a")],
            p(),
        ),
        ("Insufficient cpu", room(), vec![], p().request("cpu", "3")),
        (
            "Insufficient memory",
            room(),
            vec![],
            p().request("memory", "2Gi"),
        ),
        (
            "Insufficient ephemeral-storage",
            room(),
            vec![],
            p().request("ephemeral-storage", "1Gi"),
        ),
        (
            "Insufficient example.com/gpu",
            room(),
            vec![],
            p().request("example.com/gpu", "1"),
        ),
        (
            "node(s) were unschedulable",
            room().unschedulable(true),
            vec![],
            p(),
        ),
        (
            "node(s) had untolerated taint(s)",
            room().taint("k", "v", TaintEffect::NoSchedule),
            vec![],
            p(),
        ),
        (
            "node(s) didn't match Pod's node affinity/selector",
            room(),
            vec![],
            with_spec(p(), &json!({"nodeSelector": {"disk": "ssd"}})),
        ),
        (
            "node(s) didn't have free ports for the requested pod ports",
            room(),
            vec![pod("a").host_port(80)],
            p().host_port(80),
        ),
        (
            "node(s) had no available disk",
            room(),
            vec![with_spec(pod("a"), &disk)],
            with_spec(p(), &disk),
        ),
        (
            "node(s) didn't match pod topology spread constraints",
            room(),
            vec![pod("a").label("app", "a")],
            with_spec(p().label("app", "a"), &spread("zone")),
        ),
        (
            "node(s) didn't match pod topology spread constraints (missing required label)",
            room(),
            vec![],
            with_spec(p().label("app", "a"), &spread("rack")),
        ),
        (
            "node(s) didn't satisfy existing pods anti-affinity rules",
            room(),
            vec![with_spec(pod("a"), &affinity("podAntiAffinity", "b"))],
            p().label("app", "b"),
        ),
        (
            "node(s) didn't match pod affinity rules",
            room(),
            vec![],
            with_spec(p(), &affinity("podAffinity", "b")),
        ),
        (
            "node(s) didn't match pod anti-affinity rules",
            room(),
            vec![pod("a").label("app", "b")],
            with_spec(p(), &affinity("podAntiAffinity", "b")),
        ),
    ];
    for (expected, the_node, others, pod) in cases {
        let notified = reason(&mut driver(), the_node, others, pod);
        assert_eq!(notified, expected);
    }
    let mut w = driver_with(|options| {
        options.profiles[0].plugin_config = vec![PluginConfig {
            name: "NodeAffinity".to_owned(),
            args: json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}],
            }}}),
        }];
    });
    let notified = reason(&mut w, room(), vec![], p());
    assert_eq!(
        notified,
        "node(s) didn't match scheduler-enforced node affinity"
    );
}

/// C-31: the reasons that have to do with claims and volumes.
#[test]
fn claims_state_why_not_in_kube_schedulers_words() {
    let claim = |modes: &str, volume: &str, class: &str| {
        let mut fields = json!({
            "metadata": {"name": "c", "namespace": "default", "uid": "uid-c"},
            "spec": {"accessModes": [modes], "storageClassName": class,
                     "resources": {"requests": {"storage": "1Gi"}}},
        });
        if !volume.is_empty() {
            fields["spec"]["volumeName"] = json!(volume);
            fields["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
            fields["status"] = json!({"phase": "Bound"});
        }
        fields
    };
    let volume = |zone: &str| {
        json!({
            "metadata": {"name": "v", "uid": "uid-v", "labels": {"topology.kubernetes.io/zone": zone}},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                     "claimRef": {"namespace": "default", "name": "c", "uid": "uid-c"},
                     "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "zone", "operator": "In", "values": [zone]}]}]}}},
        })
    };
    let class = json!({"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
                       "volumeBindingMode": "WaitForFirstConsumer"});
    let uses = |name: &str| {
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
        with_spec(pod(name), &json!({"volumes": volumes}))
    };
    let here = || room().label("topology.kubernetes.io/zone", "a");
    let mut claimed = volume("a");
    claimed["spec"]["nodeAffinity"] = json!(null);
    let mut far = claimed.clone();
    far["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("b");
    for (expected, claim, volume, others) in [
        (
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
             another pod",
            claim("ReadWriteOncePod", "v", ""),
            Some(claimed),
            vec![uses("a")],
        ),
        (
            "node(s) didn't find available persistent volumes to bind",
            claim("ReadWriteOnce", "", "local"),
            None,
            vec![],
        ),
        (
            "node(s) didn't match PersistentVolume's node affinity",
            claim("ReadWriteOnce", "v", ""),
            Some(volume("b")),
            vec![],
        ),
    ] {
        let mut w = driver();
        w.object(Kind::StorageClass, class.clone());
        w.object(Kind::PersistentVolumeClaim, claim);
        if let Some(volume) = volume {
            w.object(Kind::PersistentVolume, volume);
        }
        assert_eq!(reason(&mut w, here(), others, uses("p")), expected);
    }
    let mut w = driver();
    w.object(Kind::PersistentVolumeClaim, claim("ReadWriteOnce", "v", ""));
    w.object(Kind::PersistentVolume, far);
    let notified = reason(&mut w, here(), vec![], uses("p"));
    assert_eq!(notified, "node(s) had no available volume zone");
}

/// C-31: the plugins' own tests cover reasons that need a larger cluster, or that another plugin's reason precedes.
#[test]
fn the_other_reasons_read_like_kube_schedulers() {
    for (reason, text) in [
        (
            node_name::REASON,
            "node(s) didn't match the requested node name",
        ),
        (
            node_volume_limits::REASON,
            "node(s) exceed max volume count",
        ),
        (
            volume_binding::REASON_VOLUME_MISSING,
            "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        ),
        (
            volume_binding::REASON_NO_SPACE,
            "node(s) did not have enough free storage",
        ),
        (volume_zone::REASON, "node(s) had no available volume zone"),
        (
            node_declared_features::REASON,
            "node(s) didn't match Pod's required features",
        ),
    ] {
        assert_eq!(reason, text);
    }
}
