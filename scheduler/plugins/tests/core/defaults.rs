//! The in-tree plugins together: the extension points of each, the registered events, and the results.

use crate::drivers::driver;
use berth_api::{Kind, TaintEffect};
use berth_framework::event::{ActionType, EventRegistration};
use berth_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::profile::{EnabledPlugin, Point, Profile, ProfileSpec};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn profile(spec: &ProfileSpec, features: FeatureGates) -> Result<Profile, String> {
    Profile::build(spec, &berth_plugins::in_tree(), &features).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.join("; ")
    })
}

fn scores(profile: &Profile) -> Vec<(&str, i64)> {
    let members = profile.score.iter();
    members
        .map(|score| (score.member.name.as_str(), score.weight))
        .collect()
}

/// PL-1: the plugins of a profile without settings, in kube-scheduler's order, with its weights.
#[test]
fn the_default_plugins() {
    let built = profile(&ProfileSpec::default(), FeatureGates::default());
    let p = built.unwrap_or_else(|e| panic!("{e}"));
    macro_rules! names {
        ($field:ident) => {
            p.$field
                .iter()
                .map(|member| member.name.as_str())
                .collect::<Vec<_>>()
        };
    }
    for (point, got, expected) in [
        (
            "PreEnqueue",
            names!(pre_enqueue),
            vec![
                "SchedulingGates",
                "DynamicResources",
                "DefaultPreemption",
                "DeferredQuota",
            ],
        ),
        (
            "PreFilter",
            names!(pre_filter),
            vec![
                "NodeAffinity",
                "NodePorts",
                "NodeResourcesFit",
                "VolumeRestrictions",
                "NodeVolumeLimits",
                "VolumeBinding",
                "VolumeZone",
                "PodTopologySpread",
                "InterPodAffinity",
                "DynamicResources",
                "NodeDeclaredFeatures",
            ],
        ),
        (
            "Filter",
            names!(filter),
            vec![
                "NodeUnschedulable",
                "NodeName",
                "TaintToleration",
                "NodeAffinity",
                "NodePorts",
                "NodeResourcesFit",
                "VolumeRestrictions",
                "NodeVolumeLimits",
                "VolumeBinding",
                "VolumeZone",
                "PodTopologySpread",
                "InterPodAffinity",
                "DynamicResources",
                "NodeDeclaredFeatures",
            ],
        ),
        (
            "PostFilter",
            names!(post_filter),
            vec!["DynamicResources", "DefaultPreemption"],
        ),
        (
            "Reserve",
            names!(reserve),
            vec!["VolumeBinding", "DynamicResources", "DeferredQuota"],
        ),
        (
            "PreBind",
            names!(pre_bind),
            vec!["VolumeBinding", "DynamicResources"],
        ),
        ("Bind", names!(bind), vec!["DefaultBinder"]),
    ] {
        assert_eq!(got, expected, "{point}");
    }
    assert_eq!(p.queue_sort.name, "PrioritySort");
    assert_eq!(
        scores(&p),
        [
            ("TaintToleration", 3),
            ("NodeAffinity", 2),
            ("NodeResourcesFit", 1),
            ("PodTopologySpread", 2),
            ("InterPodAffinity", 2),
            ("DynamicResources", 2),
            ("NodeResourcesBalancedAllocation", 1),
            ("ImageLocality", 1),
        ]
    );

    let without = FeatureGates::default().with(Feature::NodeDeclaredFeatures, false);
    let built = profile(&ProfileSpec::default(), without);
    let p = built.unwrap_or_else(|e| panic!("{e}"));
    assert!(p.filter.iter().all(|m| m.name != "NodeDeclaredFeatures"));
}

/// PL-2: the plugins after a configuration changes the defaults.
#[test]
fn configurations_change_the_defaults() {
    type Change = fn(&mut ProfileSpec);
    let cases: [(&str, Change, Result<&str, &str>); 6] = [
        (
            "0.1.1: one is disabled everywhere",
            |s| s.plugins.multi_point.disabled = vec!["TaintToleration".into()],
            Ok(
                "NodeAffinity 2, NodeResourcesFit 1, PodTopologySpread 2, InterPodAffinity 2, DynamicResources 2, \
                NodeResourcesBalancedAllocation 1, ImageLocality 1",
            ),
        ),
        (
            "0.1.1, 0.1.3: all are disabled at a point, one is enabled there",
            |s| {
                let score = s.plugins.point_mut(Point::Score);
                score.disabled = vec!["*".into()];
                score.enabled = vec![EnabledPlugin::weighted("ImageLocality", 7)];
            },
            Ok("ImageLocality 7"),
        ),
        (
            "0.1.2: one enabled anew keeps its place and takes the weight",
            |s| s.plugins.multi_point.enabled = vec![EnabledPlugin::weighted("NodeAffinity", 9)],
            Ok(
                "TaintToleration 3, NodeAffinity 9, NodeResourcesFit 1, PodTopologySpread 2, InterPodAffinity 2, \
                DynamicResources 2, NodeResourcesBalancedAllocation 1, ImageLocality 1",
            ),
        ),
        (
            "0.1.3, 0.1.5: those of the point come first, with the weight of the point",
            |s| {
                s.plugins.point_mut(Point::Score).enabled = vec![
                    EnabledPlugin::weighted("ImageLocality", 5),
                    EnabledPlugin::new("PodTopologySpread"),
                ];
            },
            Ok(
                "ImageLocality 5, PodTopologySpread 2, TaintToleration 3, NodeAffinity 2, NodeResourcesFit 1, \
                InterPodAffinity 2, DynamicResources 2, NodeResourcesBalancedAllocation 1",
            ),
        ),
        (
            "0.1.4: one is listed twice",
            |s| {
                s.plugins.point_mut(Point::Score).enabled = vec![
                    EnabledPlugin::new("ImageLocality"),
                    EnabledPlugin::new("ImageLocality"),
                ];
            },
            Err("plugin \"ImageLocality\" already registered"),
        ),
        (
            "0.1.5: the totals could overflow",
            |s| {
                s.plugins.point_mut(Point::Score).enabled =
                    vec![EnabledPlugin::weighted("ImageLocality", i64::MAX / 2)];
            },
            Err("total score of Score plugins could overflow"),
        ),
    ];
    for (name, change, expected) in cases {
        let mut spec = ProfileSpec::default();
        change(&mut spec);
        let got = profile(&spec, FeatureGates::default()).map(|profile| {
            let scores = scores(&profile).into_iter();
            let texts: Vec<String> = scores.map(|(n, w)| format!("{n} {w}")).collect();
            texts.join(", ")
        });
        match (got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{name}"),
            (Err(got), Err(expected)) => assert!(got.contains(expected), "{name}: {got}"),
            (got, expected) => panic!("{name}: {got:?}, expected {expected:?}"),
        }
    }
}

/// The events of a registration in short form: `!` marks events that help every pod.
fn events_of(registration: &EventRegistration) -> Vec<String> {
    let action = registration.event.action;
    let mut names: Vec<&str> = Vec::new();
    for (bit, name) in action.bits() {
        let is_update = ActionType::UPDATE.intersects(bit);
        match is_update && action.contains(ActionType::UPDATE) {
            false => names.push(name),
            true if !names.contains(&"Update") => names.push("Update"),
            true => {}
        }
    }
    let always = if registration.hint.is_none() { "!" } else { "" };
    let resource = registration.event.resource.as_str();
    let resource = resource.rsplit('/').next().unwrap_or(resource);
    names
        .iter()
        .map(|name| format!("{resource}/{name}{always}"))
        .collect()
}

/// the events that each plugin registers for, as in kube-scheduler. The namespace events are Berth's own, see
/// `docs/use/reference/differences.md`.
#[test]
fn what_plugins_register_for() {
    let built = profile(&ProfileSpec::default(), FeatureGates::default());
    let p = built.unwrap_or_else(|e| panic!("{e}"));
    for (name, expected) in [
        ("SchedulingGates", "Pod/UpdatePodSchedulingGatesEliminated"),
        (
            "NodeUnschedulable",
            "Node/Add Node/UpdateNodeTaint Pod/UpdatePodToleration",
        ),
        ("NodeName", "Node/Add!"),
        (
            "TaintToleration",
            "Node/Add Node/UpdateNodeTaint Pod/UpdatePodToleration",
        ),
        ("NodeAffinity", "Node/Add Node/UpdateNodeLabel"),
        ("NodePorts", "Pod/Delete Node/Add!"),
        (
            "NodeResourcesFit",
            "Pod/Delete Pod/UpdatePodScaleDown Node/Add Node/UpdateNodeAllocatable DeviceClass/Add DeviceClass/Update",
        ),
        (
            "VolumeRestrictions",
            "Pod/Delete Node/Add! PersistentVolumeClaim/Add",
        ),
        (
            "NodeVolumeLimits",
            "CSINode/Add! CSINode/Update Pod/Delete PersistentVolumeClaim/Add VolumeAttachment/Delete",
        ),
        (
            "VolumeBinding",
            "StorageClass/Add StorageClass/Update PersistentVolumeClaim/Add PersistentVolumeClaim/Update \
             PersistentVolume/Add! PersistentVolume/Update! Node/Add! Node/UpdateNodeLabel! CSINode/Add \
             CSINode/Update CSIDriver/Update CSIStorageCapacity/Add CSIStorageCapacity/Update",
        ),
        (
            "VolumeZone",
            "StorageClass/Add Node/Add! Node/UpdateNodeLabel! PersistentVolumeClaim/Add PersistentVolumeClaim/Update \
             PersistentVolume/Add PersistentVolume/Update",
        ),
        (
            "PodTopologySpread",
            "Pod/Add Pod/UpdatePodLabel Pod/UpdatePodToleration Pod/Delete Node/Add Node/Delete Node/UpdateNodeLabel \
             Node/UpdateNodeTaint",
        ),
        (
            "InterPodAffinity",
            "Pod/Add Pod/UpdatePodLabel Pod/Delete Node/Add Node/UpdateNodeLabel",
        ),
        ("DefaultPreemption", "Pod/Delete"),
        (
            "NodeDeclaredFeatures",
            "Node/Add Node/UpdateNodeDeclaredFeature Pod/Update",
        ),
    ] {
        let plugin = p.plugins.iter().find(|plugin| plugin.name == name);
        let events = plugin.and_then(|plugin| plugin.events.clone());
        let events = events.unwrap_or_else(|| panic!("{name} registers for events"));
        let registrations = events.events(&FeatureGates::default());
        // Supplements are for events that kube-scheduler's plugins do not register for.
        let received = registrations.iter().filter(|r| !r.is_supplementary);
        let got: BTreeSet<String> = received.flat_map(events_of).collect();
        let got: BTreeSet<&str> = got.iter().map(String::as_str).collect();
        assert_eq!(got, expected.split(' ').collect(), "{name}");
    }
}

/// A claim of the pod, with the volume that it is bound to.
fn with_claim(w: &mut Driver, pod: PodBuilder, access: &str, volume: Value) -> PodBuilder {
    w.object(
        Kind::PersistentVolumeClaim,
        json!({
            "metadata": {"name": "data", "namespace": "default", "uid": "data",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": "pv", "accessModes": [access]},
            "status": {"phase": "Bound"},
        }),
    );
    let mut fields = volume;
    fields["metadata"]["name"] = json!("pv");
    w.object(Kind::PersistentVolume, fields);
    uses_claim(pod)
}

fn uses_claim(pod: PodBuilder) -> PodBuilder {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod.with(|p| p.spec.volumes = serde_json::from_value(volumes).unwrap_or_default())
}

/// PL-3: a plugin that registers for new nodes also receives taint changes, because it may have ignored a new node that
/// was tainted. A plugin that registers for taint changes itself decides with its own hint.
#[test]
fn a_changed_taint_counts_as_a_new_node() {
    type Prepare = fn(&mut Driver, PodBuilder) -> PodBuilder;
    let cases: [(&str, Prepare, bool); 9] = [
        (
            "NodeAffinity",
            |_, p| {
                p.with(|p| {
                    p.spec.node_selector =
                        serde_json::from_value(json!({"zone": "b"})).unwrap_or_default();
                })
            },
            true,
        ),
        (
            "NodePorts",
            |w, p| {
                w.pod(pod("other").on("n1").priority(9).host_port(80));
                p.host_port(80)
            },
            true,
        ),
        ("NodeResourcesFit", |_, p| p.request("cpu", "99"), true),
        (
            "VolumeRestrictions",
            |w, p| {
                let p = with_claim(w, p, "ReadWriteOncePod", json!({}));
                w.pod(uses_claim(pod("other").priority(9)).on("n1"));
                p
            },
            true,
        ),
        (
            "VolumeZone",
            |w, p| {
                let zoned = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "b"}}});
                with_claim(w, p, "ReadWriteOnce", zoned)
            },
            true,
        ),
        (
            "VolumeBinding",
            |w, p| {
                let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]});
                let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
                with_claim(
                    w,
                    p,
                    "ReadWriteOnce",
                    json!({"spec": {"nodeAffinity": affinity}}),
                )
            },
            true,
        ),
        (
            "InterPodAffinity",
            |_, p| {
                let term =
                    json!({"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"});
                let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
                p.with(|p| {
                    p.spec.affinity =
                        serde_json::from_value(json!({"podAffinity": terms})).unwrap_or_default();
                })
            },
            true,
        ),
        (
            "NodeDeclaredFeatures",
            |_, p| {
                p.with(|p| {
                    p.spec.host_network = true;
                    p.spec.host_users = Some(false);
                })
            },
            true,
        ),
        // It knows that the node has got no better.
        ("NodeUnschedulable", |_, p| p, false),
    ];
    for (name, prepare, wakes) in cases {
        let mut w = driver();
        let n1 = |taint: bool| -> NodeBuilder {
            let labels = [("zone", "a"), ("topology.kubernetes.io/zone", "a")];
            let mut n1 = node("n1").unschedulable(!wakes);
            for (key, value) in labels {
                n1 = n1.label(key, value);
            }
            if taint {
                n1 = n1.taint("k", "v", TaintEffect::PreferNoSchedule);
            }
            n1
        };
        w.node(n1(true));
        let waiting = prepare(&mut w, pod("p"));
        w.pod(waiting);
        let text = w.attempt_named();
        assert!(
            text.starts_with("p: 0/1 nodes are available: "),
            "{name}: {text}"
        );
        let rejectors = |w: &Driver| {
            let (_, info) = w
                .scheduler
                .queue()
                .get("default", "p")
                .unwrap_or_else(|| panic!("{name}"));
            info.unschedulable_plugins
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(rejectors(&w), [name], "no other plugin rejected it");
        assert_eq!(w.place_of("p"), Some(QueuedIn::Unschedulable), "{name}");
        w.node(n1(false));
        let woken = w.place_of("p") != Some(QueuedIn::Unschedulable);
        assert_eq!(woken, wakes, "{name}: {:?}", w.place_of("p"));
    }
}

/// PL-122: if PreFilter skips a plugin, nominated pods are skipped, too: a claim that only a nominated pod will use
/// does not block another pod.
#[test]
fn what_is_skipped_is_skipped_for_nominated_pods_too() {
    for (access, used, placed) in [
        ("ReadWriteOncePod", false, true),
        ("ReadWriteOncePod", true, false),
        ("ReadWriteOnce", true, true),
    ] {
        let mut w = driver();
        w.node(node("n1").capacity("4", "1Gi", "10"));
        w.node(node("n2").capacity("4", "1Gi", "10"));
        let waiting = with_claim(&mut w, pod("p"), access, json!({}));
        if used {
            w.pod(uses_claim(pod("user").priority(9)).on("n2"));
        }
        w.pod(
            uses_claim(pod("vip").priority(9))
                .request("cpu", "99")
                .nominated("n1"),
        );
        w.attempt_named();
        w.answer_all();
        w.change("vip", |p| p.nominated("n1"));
        assert_eq!(w.nominated("vip"), "n1");
        w.pod(waiting);
        let tried = w.attempts();
        let on = tried.iter().any(|text| text.starts_with("p on"));
        assert_eq!(on, placed, "{access}, used {used}: {tried:?}");
    }
}
