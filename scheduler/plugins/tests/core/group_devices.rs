//! Resource claims that the pods of a group share, and claims that belong to a group.

use crate::devices::{
    FINALIZER, allocate, answer_statuses, answer_write, bindings, claim, is_claim_write, using,
    with_status, world_with, writes,
};
use crate::groups::{gang, gates, group, node_of, stated};
use berth_api::Kind;
use berth_framework::Feature;
use berth_framework::call::CallErrorKind;
use berth_framework::testing::{PodBuilder, pod};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

/// A gang whose members use one claim, on nodes with one device each.
fn gang_with_a_claim(members: &[&str], cpu: &str) -> Driver {
    let mut w = world_with(gates(), &["n1", "n2"]);
    let min = i32::try_from(members.len()).expect("a small gang");
    let gang = group("g", gang(min));
    w.object(Kind::PodGroup, gang);
    w.object(Kind::ResourceClaim, claim("shared"));
    for name in members {
        w.pod(using(name, &["shared"]).member_of("g").request("cpu", cpu));
    }
    w
}

/// G-31: the members of a gang use one claim: they go where its devices are, and one of them writes the allocation.
#[test]
fn members_of_a_gang_share_a_claim() {
    let members = ["a", "b", "c", "d", "e"];
    let mut w = gang_with_a_claim(&members, "1");
    assert_eq!(w.attempts().len(), 1);
    let nodes: Vec<String> = members.iter().map(|m| node_of(&w, m)).collect();
    assert!(["n1", "n2"].contains(&&*nodes[0]), "{nodes:?}");
    assert_eq!(nodes, vec![nodes[0].clone(); 5]);
    let status = allocate(&mut w, "shared");
    let reserved = status["reservedFor"].as_array().expect("a list");
    let users: Vec<&Value> = reserved.iter().map(|user| &user["name"]).collect();
    assert_eq!(users.len(), 5, "{users:?}");
    answer_statuses(&mut w);
    assert_eq!(writes(&w), []);
    assert_eq!(bindings(&w).len(), 5);
}

/// G-31: without room for all, no pod keeps the devices.
#[test]
fn a_gang_that_cannot_start_gives_the_devices_back() {
    let mut w = gang_with_a_claim(&["a", "b", "c"], "3");
    w.attempts();
    for member in ["a", "b", "c"] {
        assert_eq!(node_of(&w, member), "");
    }
    assert_eq!(writes(&w), []);
    assert_eq!(w.scheduler.cache().assumed_objects(), 1, "the condition");
    // Another pod can have them, on either node.
    w.object(Kind::ResourceClaim, claim("other"));
    w.pod(using("lone", &["other"]));
    let lone = w.attempt_named();
    assert!(lone.starts_with("lone on n"), "{lone}");
}

/// G-31: a member whose allocation is refused leaves the devices to the others; one of them writes the allocation.
#[test]
fn a_member_that_fails_leaves_the_devices_to_the_others() {
    let mut w = gang_with_a_claim(&["a", "b"], "1");
    w.attempts();
    answer_write(&mut w, None);
    answer_write(&mut w, Some(CallErrorKind::Refused));
    // The other member continues after a timeout.
    w.wait(6);
    let bodies: Vec<Value> = writes(&w).into_iter().map(|(_, _, body)| body).collect();
    assert!(!bodies.is_empty());
    while !writes(&w).is_empty() {
        let first = writes(&w).remove(0).2;
        w.answer_which(is_claim_write, None, false);
        if first["status"]["allocation"].is_object() {
            w.object(
                Kind::ResourceClaim,
                with_status("shared", first["status"].clone()),
            );
        }
    }
    answer_statuses(&mut w);
    assert_eq!(bindings(&w).len(), 1);
}

/// A pod group whose members use a claim that is made for the group.
fn group_with_a_claim(min: i32) -> (Value, Value) {
    let mut group = group("g", gang(min));
    let entry = json!([{"name": "gpu", "resourceClaimTemplateName": "gpus"}]);
    group["spec"]["resourceClaims"] = entry;
    let made = json!([{"name": "gpu", "resourceClaimName": "of-group"}]);
    group["status"] = json!({"resourceClaimStatuses": made});
    let mut claim = claim("of-group");
    claim["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g",
        "uid": "uid-group-g", "controller": true,
    }]);
    (group, claim)
}

fn member_with_the_claim(name: &str, cpu: &str) -> PodBuilder {
    let entry = json!([{"name": "gpu", "resourceClaimTemplateName": "gpus"}]);
    let made = json!([{"name": "gpu", "resourceClaimName": "of-group"}]);
    pod(name).member_of("g").request("cpu", cpu).with(|pod| {
        pod.spec.resource_claims = serde_json::from_value(entry).expect("claims");
        pod.status.resource_claim_statuses = serde_json::from_value(made).expect("statuses");
    })
}

fn with_group_claims(is_on: bool) -> Driver {
    let gates = gates().with(Feature::DRAWorkloadResourceClaims, is_on);
    world_with(gates, &["n1", "n2"])
}

/// G-32: a claim of the group is reserved for the group, once for all members.
#[test]
fn a_claim_of_the_group_is_reserved_for_the_group() {
    let mut w = with_group_claims(true);
    let (group, claim) = group_with_a_claim(3);
    w.object(Kind::PodGroup, group);
    w.object(Kind::ResourceClaim, claim);
    for member in ["a", "b", "c"] {
        w.pod(member_with_the_claim(member, "1"));
    }
    w.attempts();
    let body = answer_write(&mut w, None);
    assert_eq!(body, json!({"metadata": {"finalizers": [FINALIZER]}}));
    let body = answer_write(&mut w, None);
    let user = json!({
        "apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-group-g",
    });
    assert_eq!(body["status"]["reservedFor"], json!([user]));
    let (_, mut stored) = group_with_a_claim(3);
    stored["metadata"]["finalizers"] = json!([FINALIZER]);
    stored["status"] = body["status"].clone();
    w.object(Kind::ResourceClaim, stored);
    answer_statuses(&mut w);
    assert_eq!(writes(&w), []);
    assert_eq!(bindings(&w).len(), 3);
}

/// G-32: without the gate, a pod cannot use a claim that was created for its group; with it, only the group's claim.
#[test]
fn a_claim_of_another_owner_is_not_the_groups() {
    for (is_on, owner, why) in [
        (
            false,
            "uid-group-g",
            "Resource claim \"of-group\" was created for something else",
        ),
        (
            true,
            "uid-group-h",
            "waiting for one that is created for pod group \"g\"",
        ),
    ] {
        let mut w = with_group_claims(is_on);
        let (group, mut claim) = group_with_a_claim(1);
        claim["metadata"]["ownerReferences"][0]["uid"] = json!(owner);
        w.object(Kind::PodGroup, group);
        w.object(Kind::ResourceClaim, claim);
        w.pod(member_with_the_claim("a", "1"));
        assert_eq!(w.attempts(), [""; 0], "{is_on}");
        assert_eq!(w.place_of("a"), Some(QueuedIn::Gated), "{is_on}");
        w.wait(10);
        w.answer_all();
        let stated = stated(&w, "a");
        assert!(stated.contains(why), "{is_on}: {stated}");
    }
}

/// G-33: a group without running members gives up the reservation and then the devices of its claim, which may be the
/// wrong ones.
#[test]
fn a_group_that_cannot_start_gives_up_its_devices() {
    let mut w = with_group_claims(true);
    let (group, mut stored) = group_with_a_claim(1);
    let result =
        json!({"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"});
    let only = json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]});
    let user = json!({
        "apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-group-g",
    });
    stored["status"] = json!({
        "allocation": {"devices": {"results": [result]}, "nodeSelector": only}, "reservedFor": [user],
    });
    w.pod(pod("filler").request("cpu", "8").on("n1"));
    w.object(Kind::PodGroup, group);
    w.object(Kind::ResourceClaim, stored.clone());
    w.pod(member_with_the_claim("a", "1"));
    w.attempts();
    let release = json!({"status": {"reservedFor": [{"$patch": "delete", "uid": "uid-group-g"}]}});
    assert_eq!(answer_write(&mut w, None), release);
    stored["status"]["reservedFor"] = json!([]);
    w.object(Kind::ResourceClaim, stored.clone());
    w.wait(20);
    w.attempts();
    let free = json!({"status": {"allocation": null, "reservedFor": null, "devices": null}});
    assert_eq!(answer_write(&mut w, None), free);
    stored["status"] = json!({});
    w.object(Kind::ResourceClaim, stored);
    w.wait(20);
    w.attempts();
    assert_eq!(node_of(&w, "a"), "n2");
}
