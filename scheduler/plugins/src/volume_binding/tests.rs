//! The pods and nodes that VolumeBinding rejects.

use super::*;
use crate::testing::{
    Answer, World, claim, csi_node, pod_info, storage_class, unresolvable, volume,
};
use berth_api::{CsiDriver, CsiStorageCapacity, Object, PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

pub(super) fn using(claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .collect();
    json!({"volumes": volumes})
}

fn zone(name: &str) -> Value {
    json!({"metadata": {"labels": {"zone": name}}})
}

pub(super) fn in_zone(name: &str) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]}]}})
}

/// A volume of the class `local`, of this size, accessible from one zone.
pub(super) fn local(name: &str, size: &str, zone: &str) -> Value {
    json!({"name": name, "size": size, "zone": zone})
}

pub(super) fn free(fields: &Value, more: Value) -> PersistentVolume {
    let mut spec = json!({
        "capacity": {"storage": fields["size"]},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "nodeAffinity": in_zone(fields["zone"].as_str().expect("a zone")),
    });
    for (key, value) in more.as_object().expect("fields") {
        spec[key] = value.clone();
    }
    let phase = if spec.get("claimRef").is_some() {
        "Bound"
    } else {
        "Available"
    };
    volume(
        fields["name"].as_str().expect("a name"),
        json!({"spec": spec, "status": {"phase": phase}}),
    )
}

/// A claim of this class and size without a volume.
pub(super) fn wanting(name: &str, class: &str, size: &str) -> PersistentVolumeClaim {
    claim(
        name,
        json!({"spec": {
            "storageClassName": class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
        }}),
    )
}

pub(super) fn bound(name: &str, volume: &str) -> PersistentVolumeClaim {
    claim(
        name,
        json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume},
        }),
    )
}

/// Nodes a and b in zones of their names; classes local (no provisioner), csi (provisioned, waits) and now (at once).
pub(super) fn world() -> World {
    let class = |name: &str, provisioner: &str, mode: &str| {
        storage_class(
            name,
            json!({"provisioner": provisioner, "volumeBindingMode": mode}),
        )
    };
    World::new()
        .node("a", zone("a"))
        .node("b", zone("b"))
        .with(class(
            "local",
            "kubernetes.io/no-provisioner",
            "WaitForFirstConsumer",
        ))
        .with(class("csi", "csi.example.com", "WaitForFirstConsumer"))
        .with(class("now", "csi.example.com", "Immediate"))
}

/// Letters for the answers: `.` fits, `N` node affinity, `B` nothing to bind, `S` no space, `M` volume missing.
fn picture(answers: Result<Vec<Answer>, Answer>) -> String {
    let letter = |answer: &Answer| match answer {
        None => '.',
        some if *some == unresolvable(REASON_NODE_CONFLICT) => 'N',
        some if *some == unresolvable(REASON_BIND_CONFLICT) => 'B',
        some if *some == unresolvable(REASON_NO_SPACE) => 'S',
        some if *some == unresolvable(REASON_VOLUME_MISSING) => 'M',
        _ => '?',
    };
    match answers {
        Ok(answers) => answers.iter().map(letter).collect(),
        Err(answer) => panic!("rejected by PreFilter: {answer:?}"),
    }
}

pub(super) fn filtered(world: &World, claims: &[&str]) -> String {
    picture(world.filter(&VolumeBinding::default(), &pod_info("p", using(claims))))
}

/// PL-180: if an in-tree plugin is migrated to a CSI driver, its volumes get the affinity of the CSI volumes.
#[test]
fn migrated_volumes_are_reached_by_the_topology_of_their_driver() {
    const ZONE: &str = "topology.kubernetes.io/zone";
    let in_tree = |source: Value, labels: Value, affinity: Option<&str>| {
        let mut spec = source;
        spec["capacity"] = json!({"storage": "1Gi"});
        spec["accessModes"] = json!(["ReadWriteOnce"]);
        spec["claimRef"] = json!({"namespace": "default", "name": "c"});
        if let Some(zone) = affinity {
            let expression = json!({"key": ZONE, "operator": "In", "values": [zone]});
            spec["nodeAffinity"] =
                json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
        }
        volume("v", json!({"metadata": {"labels": labels}, "spec": spec}))
    };
    let gce = || json!({"gcePersistentDisk": {"pdName": "d"}});
    let migrated = |node: &str, plugins: &str| {
        csi_node(
            node,
            json!({"metadata": {"annotations": {"storage.alpha.kubernetes.io/migrated-plugins": plugins}}}),
        )
    };
    // Node a has the label of Kubernetes, node b also the label of the driver, and node c is in another zone.
    let world = |volume: PersistentVolume| {
        World::new()
            .node("a", json!({"metadata": {"labels": {ZONE: "z1"}}}))
            .node(
                "b",
                json!({"metadata": {"labels": {ZONE: "z1", "topology.gke.io/zone": "z1"}}}),
            )
            .node(
                "c",
                json!({"metadata": {"labels": {ZONE: "z2", "topology.gke.io/zone": "z2"}}}),
            )
            .with(volume)
            .with(bound("c", "v"))
    };
    let all = |world: World, plugins: &str| {
        let nodes = ["a", "b", "c"];
        nodes
            .into_iter()
            .fold(world, |world, node| world.with(migrated(node, plugins)))
    };
    let zone = || json!({ZONE: "z1"});
    for (situation, world, expected) in [
        (
            "no node has a CSINode",
            world(in_tree(gce(), zone(), None)),
            "...",
        ),
        (
            "another plugin is migrated",
            all(world(in_tree(gce(), zone(), None)), "kubernetes.io/aws-ebs"),
            "...",
        ),
        (
            "the zone in the volume's labels",
            all(
                world(in_tree(gce(), zone(), None)),
                "kubernetes.io/aws-ebs,kubernetes.io/gce-pd",
            ),
            "N.N",
        ),
        (
            "the zone in the volume's affinity",
            all(
                world(in_tree(gce(), json!({}), Some("z1"))),
                "kubernetes.io/gce-pd",
            ),
            "N.N",
        ),
        (
            "the affinity where the plugin is not migrated",
            world(in_tree(gce(), json!({}), Some("z1")))
                .with(migrated("b", "kubernetes.io/gce-pd")),
            "..N",
        ),
        (
            "a plugin whose driver has no topology",
            all(
                world(in_tree(
                    json!({"portworxVolume": {"volumeID": "x"}}),
                    zone(),
                    None,
                )),
                "kubernetes.io/portworx-volume",
            ),
            "...",
        ),
    ] {
        assert_eq!(filtered(&world, &["c"]), expected, "{situation}");
    }
    let wrong = json!({"azureDisk": {"diskURI": "x", "kind": "Dedicated"}});
    let world = all(
        world(in_tree(wrong, json!({}), None)),
        "kubernetes.io/azure-disk",
    );
    let answers = world.filter(&VolumeBinding::default(), &pod_info("p", using(&["c"])));
    let error = "could not translate pv: kind(Dedicated) is not supported in csi migration";
    let answers = answers.expect("PreFilter admits the pod");
    assert_eq!(answers[0], Some((Code::Error, vec![error.to_owned()])));
}

/// PL-130: the rejections of PreFilter with upstream's messages.
#[test]
fn claims_that_cannot_be_used() {
    let lost = claim(
        "c",
        json!({"spec": {"volumeName": "v"}, "status": {"phase": "Lost"}}),
    );
    let going = claim(
        "c",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    let prebound = claim(
        "c",
        json!({"spec": {"storageClassName": "csi", "volumeName": "v"}}),
    );
    let no_mode = storage_class("odd", json!({"provisioner": "x"}));
    let ephemeral = || json!({"volumes": [{"name": "v", "ephemeral": {}}]});
    for (world, spec, expected) in [
        (
            world(),
            using(&["c"]),
            "persistentvolumeclaim \"c\" not found",
        ),
        (
            world(),
            ephemeral(),
            "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v\"",
        ),
        (
            world().with(lost),
            using(&["c"]),
            "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"",
        ),
        (
            world().with(going),
            using(&["c"]),
            "persistentvolumeclaim \"c\" is being deleted",
        ),
        (
            world().with(claim("p-v", json!({}))),
            ephemeral(),
            "PVC default/p-v was not created for pod default/p (pod is not owner)",
        ),
        (
            world().with(wanting("c", "now", "1Gi")),
            using(&["c"]),
            REASON_IMMEDIATE,
        ),
        (world().with(prebound), using(&["c"]), REASON_IMMEDIATE),
        (
            world().with(claim("c", json!({}))),
            using(&["c"]),
            REASON_IMMEDIATE,
        ),
    ] {
        let got = world.filter(&VolumeBinding::default(), &pod_info("p", spec));
        assert_eq!(got, Err(unresolvable(expected)));
    }
    let odd = world().with(no_mode).with(wanting("c", "odd", "1Gi"));
    let got = odd.filter(&VolumeBinding::default(), &pod_info("p", using(&["c"])));
    let error = Some((
        Code::Error,
        vec!["VolumeBindingMode not set for StorageClass \"odd\"".to_owned()],
    ));
    assert_eq!(got, Err(error));
    let none = world().filter(&VolumeBinding::default(), &pod_info("p", json!({})));
    assert_eq!(none, Ok(vec![None, None]), "no claims at all");
}

/// PL-131: claims with a volume.
#[test]
fn bound_claims_go_where_their_volume_is() {
    let reachable = |affinity: Value| volume("v", json!({"spec": {"nodeAffinity": affinity}}));
    for (name, world, expected) in [
        (
            "from everywhere",
            world().with(volume("v", json!({}))),
            "..",
        ),
        ("from zone a", world().with(reachable(in_zone("a"))), ".N"),
        (
            "no terms",
            world().with(reachable(json!({"required": {"nodeSelectorTerms": []}}))),
            "NN",
        ),
        ("no volume", world(), "MM"),
    ] {
        assert_eq!(
            filtered(&world.with(bound("c", "v")), &["c"]),
            expected,
            "{name}"
        );
    }
}

/// PL-132: which volume a claim takes.
#[test]
fn claims_take_the_smallest_volume_that_will_do() {
    let base = || world().with(wanting("c", "local", "2Gi"));
    let two = || base().with(wanting("d", "local", "1Gi"));
    let plain = |size: &str, zone: &str| free(&local("v", size, zone), json!({}));
    let with = |more: Value| free(&local("v", "2Gi", "a"), more);
    let claim_ref = |name: &str, uid: &str| json!({"claimRef": {"namespace": "default", "name": name, "uid": uid}});
    let mut released = plain("2Gi", "a");
    released.status.phase = "Released".into();
    let mut going = plain("2Gi", "a");
    going.metadata.deletion_timestamp = Some(berth_api::Time::EPOCH);
    for (name, world, claims, expected) in [
        (
            "where it can be reached",
            base().with(plain("2Gi", "a")),
            vec!["c"],
            ".B",
        ),
        ("too small", base().with(plain("1Gi", "a")), vec!["c"], "BB"),
        (
            "of another mode",
            base().with(with(json!({"volumeMode": "Block"}))),
            vec!["c"],
            "BB",
        ),
        (
            "of another access mode",
            base().with(with(json!({"accessModes": ["ReadOnlyMany"]}))),
            vec!["c"],
            "BB",
        ),
        (
            "of another class",
            base().with(with(json!({"storageClassName": "csi"}))),
            vec!["c"],
            "BB",
        ),
        (
            "of another attributes class",
            base().with(with(json!({"volumeAttributesClassName": "gold"}))),
            vec!["c"],
            "BB",
        ),
        ("released", base().with(released), vec!["c"], "BB"),
        ("being deleted", base().with(going), vec!["c"], "BB"),
        (
            "meant for the claim",
            base().with(with(claim_ref("c", ""))),
            vec!["c"],
            ".B",
        ),
        (
            "meant for this very claim",
            base().with(with(claim_ref("c", "c"))),
            vec!["c"],
            ".B",
        ),
        (
            "meant for one before it",
            base().with(with(claim_ref("c", "old"))),
            vec!["c"],
            "BB",
        ),
        (
            "meant for another",
            base().with(with(claim_ref("d", ""))),
            vec!["c"],
            "BB",
        ),
        (
            "meant for it, another access mode",
            base().with(with(
                json!({"claimRef": {"namespace": "default", "name": "c"}, "accessModes": []}),
            )),
            vec!["c"],
            ".B",
        ),
        // A volume that is meant for the claim decides, though another one can be reached from b.
        (
            "meant for it, out of reach",
            base()
                .with(with(claim_ref("c", "")))
                .with(free(&local("w", "2Gi", "b"), json!({}))),
            vec!["c"],
            ".B",
        ),
        (
            "two claims, one volume",
            two().with(plain("2Gi", "a")),
            vec!["c", "d"],
            "BB",
        ),
        // The smaller claim takes the smaller volume, and leaves the larger to the other.
        (
            "two claims, two volumes",
            two()
                .with(plain("2Gi", "a"))
                .with(free(&local("w", "1Gi", "a"), json!({}))),
            vec!["c", "d"],
            ".B",
        ),
    ] {
        assert_eq!(filtered(&world, &claims), expected, "{name}");
    }
}

/// PL-133: a claim's selector.
#[test]
fn claims_can_select_volumes() {
    let selecting = |selector: Value| {
        let mut claim = wanting("c", "local", "1Gi");
        claim.spec.selector = serde_json::from_value(selector).expect("a selector");
        let mut volume = free(&local("v", "1Gi", "a"), json!({}));
        volume.metadata.labels = volume.metadata.labels.with("tier", "fast");
        world().with(claim).with(volume)
    };
    assert_eq!(
        filtered(&selecting(json!({"matchLabels": {"tier": "fast"}})), &["c"]),
        ".B"
    );
    assert_eq!(
        filtered(&selecting(json!({"matchLabels": {"tier": "slow"}})), &["c"]),
        "BB"
    );
}

/// PL-134: volumes that are to be made.
#[test]
fn volumes_can_be_made_where_the_class_allows() {
    let base = || world().with(wanting("c", "csi", "2Gi"));
    let selected = |node: &str| {
        let mut claim = wanting("c", "csi", "2Gi");
        claim.metadata.annotations = claim
            .metadata
            .annotations
            .with("volume.kubernetes.io/selected-node", node);
        world().with(claim)
    };
    let only_in = |terms: Value| {
        base().with(storage_class(
            "csi",
            json!({
                "provisioner": "csi.example.com",
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowedTopologies": terms,
            }),
        ))
    };
    let term =
        |values: Value| json!({"matchLabelExpressions": [{"key": "zone", "values": values}]});
    for (name, world, expected) in [
        ("everywhere", base(), ".."),
        ("for a node", selected("a"), ".B"),
        ("in zone b", only_in(json!([term(json!(["b", "c"]))])), "B."),
        (
            "in either",
            only_in(json!([term(json!(["a"])), term(json!(["b"]))])),
            "..",
        ),
        ("an empty term is nowhere", only_in(json!([{}])), "BB"),
        (
            "no provisioner",
            world().with(wanting("c", "local", "2Gi")),
            "BB",
        ),
        (
            "a provisioner without a name",
            base().with(storage_class(
                "csi",
                json!({"provisioner": "", "volumeBindingMode": "WaitForFirstConsumer"}),
            )),
            "BB",
        ),
    ] {
        assert_eq!(filtered(&world, &["c"]), expected, "{name}");
    }
    let missing = {
        let mut world = base();
        let class = world.cluster.storage().classes()["csi"].clone();
        world.cluster.unset(&Object::StorageClass(class));
        world
    };
    let got = missing.filter(&VolumeBinding::default(), &pod_info("p", using(&["c"])));
    assert_eq!(
        got,
        Err(unresolvable(REASON_IMMEDIATE)),
        "a class that does not exist delays no pod"
    );
}

pub(super) fn driver(counts: Value) -> CsiDriver {
    let fields =
        json!({"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": counts}});
    serde_json::from_value(fields).expect("a driver")
}

pub(super) fn capacity(fields: Value) -> CsiStorageCapacity {
    let mut fields = fields;
    fields["metadata"] = json!({"name": "s", "namespace": "kube-system"});
    if fields.get("storageClassName").is_none() {
        fields["storageClassName"] = json!("csi");
    }
    serde_json::from_value(fields).expect("a capacity")
}

/// PL-135: drivers that count their space.
#[test]
fn new_volumes_need_space() {
    let base = || world().with(wanting("c", "csi", "2Gi"));
    let in_a = || json!({"matchLabels": {"zone": "a"}});
    let counting = || base().with(driver(json!(true)));
    for (name, world, expected) in [
        (
            "the driver does not count",
            base().with(driver(json!(false))),
            "..",
        ),
        ("no driver reports space", counting(), "SS"),
        (
            "enough in zone a",
            counting().with(capacity(json!({"capacity": "2Gi", "nodeTopology": in_a()}))),
            ".S",
        ),
        (
            "enough everywhere",
            counting().with(capacity(json!({"capacity": "2Gi", "nodeTopology": {}}))),
            "..",
        ),
        (
            "enough, but out of reach",
            counting().with(capacity(json!({"capacity": "2Gi"}))),
            "SS",
        ),
        (
            "not enough",
            counting().with(capacity(json!({"capacity": "1Gi", "nodeTopology": {}}))),
            "SS",
        ),
        (
            "a volume may not be so large",
            counting().with(capacity(
                json!({"capacity": "9Gi", "maximumVolumeSize": "1Gi", "nodeTopology": {}}),
            )),
            "SS",
        ),
        (
            "nothing is stated",
            counting().with(capacity(json!({"nodeTopology": {}}))),
            "SS",
        ),
        (
            "of another class",
            counting().with(capacity(
                json!({"capacity": "2Gi", "nodeTopology": {}, "storageClassName": "x"}),
            )),
            "SS",
        ),
        (
            "the driver is not known",
            base().with(capacity(json!({"capacity": "1Gi", "nodeTopology": {}}))),
            "..",
        ),
        (
            "no size is asked for",
            counting().with(claim(
                "c",
                json!({"spec": {"storageClassName": "csi", "accessModes": ["ReadWriteOnce"]}}),
            )),
            "..",
        ),
    ] {
        assert_eq!(filtered(&world, &["c"]), expected, "{name}");
    }
}

/// PL-136: several reasons are reported in upstream's order.
#[test]
fn obstacles_are_reported_together() {
    let world = world()
        .with(bound("c", "v"))
        .with(volume("v", json!({"spec": {"nodeAffinity": in_zone("b")}})))
        .with(wanting("d", "local", "1Gi"));
    let got = world.filter(
        &VolumeBinding::default(),
        &pod_info("p", using(&["c", "d"])),
    );
    let both = vec![
        REASON_NODE_CONFLICT.to_owned(),
        REASON_BIND_CONFLICT.to_owned(),
    ];
    let expected = Some((Code::UnschedulableAndUnresolvable, both));
    assert_eq!(got, Ok(vec![expected, unresolvable(REASON_BIND_CONFLICT)]));
}
