//! Tests of NodeVolumeLimits.

use super::*;
use crate::testing::{
    Answer, World, add, claim, csi_node, delete, full_hint, full_pod, hint, pod, pod_info,
    storage_class, unresolvable, unschedulable, update, volume,
};
use berth_api::Release;
use berth_api::volumes::MIGRATED_PLUGINS_ANNOTATION;
use berth_framework::Code;
use serde_json::{Value, json};

const DRIVER: &str = "csi.example.com";

fn using(claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .collect();
    json!({"volumes": volumes})
}

fn limited(count: Value) -> CsiNode {
    csi_node(
        "n",
        json!({"spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": count}}]}}),
    )
}

/// A node with a limit of 2, and claims c1 to c4 on volumes v1 to v4 of the driver.
fn world() -> World {
    let mut world = World::new().node("n", json!({})).with(limited(json!(2)));
    for i in 1..=4 {
        let (name, source) = (
            format!("v{i}"),
            json!({"driver": DRIVER, "volumeHandle": format!("h{i}")}),
        );
        world = world
            .with(volume(&name, json!({"spec": {"csi": source}})))
            .with(claim(
                &format!("c{i}"),
                json!({"spec": {"volumeName": name}}),
            ));
    }
    world
}

fn attached(name: &str, volume: &str) -> berth_api::VolumeAttachment {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"attacher": DRIVER, "nodeName": "n", "source": {"persistentVolumeName": volume}},
    }))
    .expect("an attachment")
}

fn answer(world: &World, spec: Value) -> Answer {
    let answers = world
        .filter(&NodeVolumeLimits, &pod_info("p", spec))
        .expect("no rejection by PreFilter");
    answers.into_iter().next().expect("one node")
}

/// PL-127: volumes count once a node, new and old together.
#[test]
fn a_node_takes_so_many_volumes() {
    let full = || world().bound("n", "o", using(&["c1", "c2"]));
    let full_but_one = || world().bound("n", "o", using(&["c1"]));
    let ephemeral = || json!({"volumes": [{"name": "v", "ephemeral": {}}]});
    let unbound = |class: &str| claim("u", json!({"spec": {"storageClassName": class}}));
    let class =
        |name: &str, provisioner: &str| storage_class(name, json!({"provisioner": provisioner}));
    let full_message = || unschedulable(REASON);
    for (name, world, spec, expected) in [
        ("two on an empty node", world(), using(&["c1", "c2"]), None),
        (
            "three on an empty node",
            world(),
            using(&["c1", "c2", "c3"]),
            full_message(),
        ),
        (
            "one more on a full node",
            full(),
            using(&["c3"]),
            full_message(),
        ),
        ("one that is there already", full(), using(&["c1"]), None),
        (
            "the same claim twice",
            world().bound("n", "o", using(&["c1"])),
            json!({"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "c2"}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "c2"}}]}),
            None,
        ),
        (
            "no limit",
            full().with(limited(Value::Null)),
            using(&["c3"]),
            None,
        ),
        (
            "another driver's limit",
            full().with(csi_node(
                "n",
                json!({"spec": {"drivers": [{"name": "other", "allocatable": {"count": 0}}]}}),
            )),
            using(&["c3"]),
            None,
        ),
        (
            "no CSI node",
            full().with(csi_node("m", json!({}))).without_csi_node("n"),
            using(&["c3"]),
            None,
        ),
        (
            "an unbound claim counts for its provisioner",
            full().with(class("s", DRIVER)).with(unbound("s")),
            using(&["u"]),
            full_message(),
        ),
        (
            "an unbound claim of another driver",
            full().with(class("s", "other")).with(unbound("s")),
            using(&["u"]),
            None,
        ),
        (
            "an unbound claim without a class",
            full().with(unbound("s")),
            using(&["u"]),
            None,
        ),
        (
            "attached without a pod",
            world().with(attached("a", "v1")).with(attached("b", "v2")),
            using(&["c3"]),
            full_message(),
        ),
        (
            "attached and used count once",
            full().with(attached("a", "v1")),
            using(&["c1"]),
            None,
        ),
        // As in upstream: a volume attached without a pod counts in addition to the same volume of the new pod.
        (
            "attached and wanted count twice",
            world().with(attached("a", "v1")).with(attached("b", "v2")),
            using(&["c1"]),
            full_message(),
        ),
        (
            "a claim that is gone, of another pod",
            world().bound("n", "o", using(&["gone", "c1"])),
            using(&["c2"]),
            None,
        ),
        (
            "a claim that is gone",
            world(),
            using(&["gone"]),
            unresolvable("looking up PVC default/gone: persistentvolumeclaim \"gone\" not found"),
        ),
        (
            "an ephemeral claim of another pod",
            world().with(claim("p-v", json!({}))),
            ephemeral(),
            Some((
                Code::Error,
                vec![
                    "PVC default/p-v was not created for pod default/p (pod is not owner)"
                        .to_owned(),
                ],
            )),
        ),
        (
            "an ephemeral claim that is not there yet",
            full(),
            ephemeral(),
            unresolvable("looking up PVC default/p-v: persistentvolumeclaim \"p-v\" not found"),
        ),
        (
            "an unbound claim whose class is gone",
            full().with(unbound("s")),
            using(&["u"]),
            None,
        ),
        (
            "a claim whose volume is gone counts for its provisioner",
            full().with(class("s", DRIVER)).with(claim(
                "u",
                json!({"spec": {"volumeName": "gone", "storageClassName": "s"}}),
            )),
            using(&["u"]),
            full_message(),
        ),
        (
            "unbound claims of the node count, too",
            world().with(class("s", DRIVER)).with(unbound("s")).bound(
                "n",
                "o",
                using(&["u", "c1"]),
            ),
            using(&["c2"]),
            full_message(),
        ),
        (
            "attached to another node",
            full_but_one().with({
                let mut elsewhere = attached("a", "v3");
                elsewhere.spec.node_name = "m".into();
                elsewhere
            }),
            using(&["c2"]),
            None,
        ),
        (
            "attached, but of no CSI driver",
            full_but_one()
                .with(volume("plain", json!({})))
                .with(attached("a", "plain")),
            using(&["c2"]),
            None,
        ),
        (
            "no volumes that are attached",
            full(),
            json!({"volumes": [{"name": "v", "image": {"reference": "i"}}]}),
            None,
        ),
    ] {
        assert_eq!(answer(&world, spec), expected, "{name}");
    }
}

/// PL-128: an in-tree volume of a migrated plugin counts for the CSI driver on every node with a CSINode, whatever
/// the CSINode's annotation lists.
#[test]
fn migrated_volumes_count_for_their_driver() {
    let ebs = |id: &str| json!({"name": id, "awsElasticBlockStore": {"volumeID": id}});
    let inline = |id: &str| json!({"volumes": [ebs(id)]});
    let node = |annotations: Value, count: u32| {
        csi_node(
            "n",
            json!({
                "metadata": {"annotations": annotations},
                "spec": {"drivers": [{"name": "ebs.csi.aws.com", "allocatable": {"count": count}}]},
            }),
        )
    };
    let listed = json!({MIGRATED_PLUGINS_ANNOTATION: "kubernetes.io/gce-pd,kubernetes.io/aws-ebs"});
    let other = json!({MIGRATED_PLUGINS_ANNOTATION: "kubernetes.io/gce-pd"});
    let with_volume = || {
        let source = json!({"awsElasticBlockStore": {"volumeID": "vol-2"}});
        World::new()
            .with(volume("v", json!({ "spec": source })))
            .with(claim("c", json!({"spec": {"volumeName": "v"}})))
    };
    let with_class = || {
        World::new()
            .with(storage_class(
                "s",
                json!({"provisioner": "kubernetes.io/aws-ebs"}),
            ))
            .with(claim("c", json!({"spec": {"storageClassName": "s"}})))
    };
    for (name, world, csi_node, wanted, expected) in [
        (
            "another volume",
            World::new(),
            node(listed.clone(), 1),
            inline("vol-2"),
            unschedulable(REASON),
        ),
        (
            "the same by another name",
            World::new(),
            node(listed, 1),
            inline("aws://zone/vol-1"),
            None,
        ),
        (
            "an annotation that lists another plugin",
            World::new(),
            node(other, 1),
            inline("vol-2"),
            unschedulable(REASON),
        ),
        (
            "no annotation",
            World::new(),
            node(json!({}), 1),
            inline("vol-2"),
            unschedulable(REASON),
        ),
        (
            "a limit of 0",
            World::new(),
            node(json!({}), 0),
            inline("vol-1"),
            None,
        ),
        (
            "a claim with an in-tree volume",
            with_volume(),
            node(json!({}), 1),
            using(&["c"]),
            unschedulable(REASON),
        ),
        (
            "a claim of an in-tree class",
            with_class(),
            node(json!({}), 1),
            using(&["c"]),
            unschedulable(REASON),
        ),
        (
            "room for two",
            with_class(),
            node(json!({}), 2),
            using(&["c"]),
            None,
        ),
    ] {
        let world = world
            .node("n", json!({}))
            .with(csi_node)
            .bound("n", "o", inline("vol-1"));
        assert_eq!(answer(&world, wanted), expected, "{name}");
    }
    let empty = World::new().node("n", json!({})).with(node(json!({}), 0));
    assert_eq!(answer(&empty, inline("vol-1")), unschedulable(REASON));
    let without = World::new().node("n", json!({}));
    assert_eq!(answer(&without, inline("vol-1")), None, "no CSINode");
}

/// PL-129: the events that wake a pod.
#[test]
fn what_wakes() {
    let ask = |spec: Value, resource: EventResource, action, change| {
        hint(
            NodeVolumeLimits,
            &World::new(),
            resource,
            action,
            &pod("p", spec),
            change,
        )
    };
    let node = EventResource::CsiNode;
    assert_eq!(
        ask(
            using(&["c"]),
            node.clone(),
            ActionType::ADD,
            add(limited(json!(1)))
        ),
        Ok(Hint::Queue)
    );
    for (old, new, expected) in [
        (json!(1), json!(2), Hint::Queue),
        (json!(2), json!(1), Hint::Skip),
        (json!(2), json!(2), Hint::Skip),
        (Value::Null, json!(1), Hint::Queue),
        (json!(1), Value::Null, Hint::Skip),
    ] {
        let got = ask(
            using(&["c"]),
            node.clone(),
            ActionType::UPDATE,
            update(limited(old.clone()), limited(new.clone())),
        );
        assert_eq!(got, Ok(expected), "{old} {new}");
    }
    let on_node = |spec: Value| {
        let mut spec = spec;
        spec["nodeName"] = json!("n");
        full_pod("o", json!({"spec": spec}))
    };
    for (name, deleted, expected) in [
        ("with a claim", on_node(using(&["c"])), Hint::Queue),
        (
            "with an in-tree volume",
            on_node(json!({"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "v"}}]})),
            Hint::Queue,
        ),
        ("without volumes", on_node(json!({})), Hint::Skip),
        ("without a node", pod("o", using(&["c"])), Hint::Skip),
    ] {
        let got = ask(
            using(&["c"]),
            EventResource::Pod,
            ActionType::DELETE,
            delete(deleted),
        );
        assert_eq!(got, Ok(expected), "{name}");
    }
    let ephemeral = json!({"volumes": [{"name": "v", "ephemeral": {}}]});
    for (name, spec, expected) in [
        ("c", using(&["c"]), Hint::Queue),
        ("d", using(&["c"]), Hint::Skip),
        ("p-v", ephemeral, Hint::Queue),
    ] {
        let got = ask(
            spec,
            EventResource::PersistentVolumeClaim,
            ActionType::ADD,
            add(claim(name, json!({}))),
        );
        assert_eq!(got, Ok(expected), "{name}");
    }
    for (name, spec, expected) in [
        ("with a claim", using(&["c"]), Hint::Queue),
        ("without", json!({}), Hint::Skip),
        (
            "an in-tree volume of another driver",
            json!({"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "v"}}]}),
            Hint::Skip,
        ),
    ] {
        let got = ask(
            spec,
            EventResource::VolumeAttachment,
            ActionType::DELETE,
            delete(attached("a", "v")),
        );
        assert_eq!(got, Ok(expected), "{name}");
    }
}

/// Pods with different volumes of a driver have equal requirements while no node has a limit for the driver.
#[test]
fn a_volume_counts_only_if_some_node_has_a_limit_for_its_driver() {
    let required = |world: &World| {
        let requirement =
            NodeVolumeLimits.requirement(&world.context(), &pod_info("p", using(&["c1", "c2"])));
        let required = requirement.expect("no problem").expect("volumes");
        (required.own, required.volumes.len())
    };
    let other_pod = |world: World| world.bound("n", "o", using(&["c2"]));
    let counted = (vec![(Str::from(DRIVER), 1)], 1);
    assert_eq!(required(&other_pod(world())), counted);
    let unlimited = other_pod(world().with(limited(Value::Null)));
    assert_eq!(required(&unlimited), (vec![], 0));
    let elsewhere = json!({"spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": 9}}]}});
    let again = unlimited.with(csi_node("unknown", elsewhere));
    assert_eq!(required(&again), counted);
}

fn driver_object(name: &str, prevents: Value) -> CsiDriver {
    let fields =
        json!({"metadata": {"name": name}, "spec": {"preventPodSchedulingIfMissing": prevents}});
    serde_json::from_value(fields).expect("a driver")
}

fn csi_nodes(name: &str, drivers: &[&str]) -> CsiNode {
    let drivers: Vec<Value> = drivers.iter().map(|name| json!({"name": name})).collect();
    csi_node(name, json!({"spec": {"drivers": drivers}}))
}

fn in_release(world: World, release: Release) -> World {
    let mut world = world;
    world.features = FeatureGates::of(release);
    world
}

/// PL-149: nodes without a driver that asks for it. Until 1.36 they fit.
#[test]
fn nodes_without_the_driver_are_rejected_since_1_37() {
    let missing =
        |driver: &str| unschedulable(&format!("{driver} CSI driver is not installed on the node"));
    let claims = |world: World, claims: &[(&str, &str)]| {
        claims.iter().fold(world, |world, (name, driver)| {
            let source = json!({"driver": driver, "volumeHandle": format!("h-{name}")});
            world
                .with(volume(
                    &format!("v-{name}"),
                    json!({"spec": {"csi": source}}),
                ))
                .with(claim(
                    name,
                    json!({"spec": {"volumeName": format!("v-{name}")}}),
                ))
        })
    };
    let base = || World::new().node("n", json!({}));
    let one = |prevents: Value| {
        claims(
            base().with(driver_object(DRIVER, prevents)),
            &[("c", DRIVER)],
        )
    };
    let new_class = storage_class("new", json!({"provisioner": DRIVER}));
    let in_tree = || {
        let source = json!({"volumeID": "vol-1"});
        base()
            .with(driver_object("ebs.csi.aws.com", json!(true)))
            .with(volume(
                "v",
                json!({"spec": {"awsElasticBlockStore": source}}),
            ))
            .with(claim("c", json!({"spec": {"volumeName": "v"}})))
    };
    for (name, world, spec, expected) in [
        (
            "no CSINode",
            one(json!(true)),
            using(&["c"]),
            missing(DRIVER),
        ),
        (
            "another driver in the CSINode",
            one(json!(true)).with(csi_nodes("n", &["other"])),
            using(&["c"]),
            missing(DRIVER),
        ),
        (
            "the driver, without a limit",
            one(json!(true)).with(csi_nodes("n", &[DRIVER])),
            using(&["c"]),
            None,
        ),
        (
            "the driver does not ask for it",
            one(json!(false)),
            using(&["c"]),
            None,
        ),
        (
            "the field is not set",
            one(Value::Null),
            using(&["c"]),
            None,
        ),
        (
            "no CSIDriver",
            claims(base(), &[("c", DRIVER)]),
            using(&["c"]),
            None,
        ),
        (
            "a claim without a volume yet",
            base()
                .with(driver_object(DRIVER, json!(true)))
                .with(new_class)
                .with(claim("c", json!({"spec": {"storageClassName": "new"}}))),
            using(&["c"]),
            missing(DRIVER),
        ),
        (
            "the first of two missing drivers",
            claims(
                base()
                    .with(driver_object("z.example.com", json!(true)))
                    .with(driver_object("a.example.com", json!(true))),
                &[("c", "z.example.com"), ("d", "a.example.com")],
            ),
            using(&["c", "d"]),
            missing("a.example.com"),
        ),
        (
            "a volume that another pod of the node uses",
            one(json!(true)).bound("n", "other", using(&["c"])),
            using(&["c"]),
            missing(DRIVER),
        ),
        (
            "an inline CSI volume does not count",
            one(json!(true)),
            json!({"volumes": [{"name": "v", "csi": {"driver": DRIVER}}]}),
            None,
        ),
        (
            "an in-tree volume counts on nodes with CSI drivers",
            in_tree().with(csi_nodes("n", &["other"])),
            using(&["c"]),
            missing("ebs.csi.aws.com"),
        ),
        ("and not on others", in_tree(), using(&["c"]), None),
        (
            "before the limit",
            one(json!(true)).with(csi_nodes("n", &["other"])),
            using(&["c"]),
            missing(DRIVER),
        ),
    ] {
        let mut world = world;
        for release in Release::ALL {
            world = in_release(world, release);
            let expected = match release {
                Release::V1_36 => None,
                Release::V1_37 | Release::V1_38 => expected.clone(),
            };
            assert_eq!(
                answer(&world, spec.clone()),
                expected,
                "{name} in {release}"
            );
        }
    }
}

/// PL-149: a driver that is added without a limit, and one that does not ask for it any more, queue pods.
#[test]
fn a_driver_that_appears_wakes() {
    let (none, plain) = (csi_nodes("n", &[]), csi_nodes("n", &[DRIVER]));
    let (asks, not) = (
        driver_object(DRIVER, json!(true)),
        driver_object(DRIVER, json!(false)),
    );
    let with = |on| FeatureGates::of(Release::V1_37).with(Feature::VolumeLimitScaling, on);
    let pod = pod("p", using(&["c1"]));
    for (name, changed, expected) in [
        ("added", update(none.clone(), plain.clone()), Hint::Queue),
        ("removed", update(plain.clone(), none), Hint::Skip),
        ("the same", update(plain.clone(), plain), Hint::Skip),
        (
            "asks no more",
            update(asks.clone(), not.clone()),
            Hint::Queue,
        ),
        ("deleted", delete(asks.clone()), Hint::Queue),
        ("begins to ask", update(not.clone(), asks), Hint::Skip),
        ("deleted without asking", delete(not), Hint::Skip),
    ] {
        let hint = |features: FeatureGates| {
            let mut world = World::new();
            world.features = features;
            full_hint(NodeVolumeLimits, &world, &pod, &changed)
        };
        assert_eq!(hint(with(true)), expected, "{name}");
        assert_eq!(hint(with(false)), Hint::Skip, "{name}, without the gate");
    }
}

/// PL-129: a limit that is lifted queues pods, too. The CSINode of a deleted node may be deleted after the next node of
/// that name was seen.
#[test]
fn a_limit_that_is_lifted_wakes() {
    let pod = pod("p", using(&["c1"]));
    let one = || limited(json!(1));
    for (name, changed, expected) in [
        (
            "no limit any more",
            update(one(), limited(Value::Null)),
            Hint::Queue,
        ),
        (
            "no driver any more",
            update(one(), csi_nodes("n", &[])),
            Hint::Queue,
        ),
        ("no CSINode any more", delete(one()), Hint::Queue),
        (
            "a lower limit",
            update(limited(json!(2)), one()),
            Hint::Skip,
        ),
        (
            "a new limit",
            update(csi_nodes("n", &[DRIVER]), limited(json!(0))),
            Hint::Skip,
        ),
    ] {
        for release in Release::ALL {
            let world = in_release(World::new(), release);
            assert_eq!(
                full_hint(NodeVolumeLimits, &world, &pod, &changed),
                expected,
                "{name} in {release}"
            );
        }
    }
}
