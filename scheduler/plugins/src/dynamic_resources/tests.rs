//! PreEnqueue, PreFilter, Filter and Score of DynamicResources.

use super::*;
use crate::testing::{World, delete, full_hint, namespaced, pod, pod_info};
use berth_api::ResourceClaim;
use berth_framework::event::Hint;
use serde_json::{Value, json};

/// A resource claim of this name (also its UID); its namespace is `default` unless the fields contain another one.
pub(super) fn claim(name: &str, fields: Value) -> ResourceClaim {
    namespaced(name, fields)
}

/// The fields of a claim that was made for a pod.
pub(super) fn made_for(pod: &str) -> Value {
    json!({"metadata": {"ownerReferences": [{"kind": "Pod", "uid": pod, "controller": true}]}})
}

/// The fields of a claim that has its devices.
pub(super) fn allocated() -> Value {
    let device = json!({"request": "r", "driver": "d", "pool": "p", "device": "dev-0"});
    json!({"status": {"allocation": {"devices": {"results": [device]}}}})
}

/// Q-28: PreEnqueue blocks a pod while its claims do not exist, with upstream's message; devices make no
/// difference.
#[test]
fn a_pod_is_rejected_until_its_claims_exist() {
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]});
    let waiting = pod("p", spec);
    let world = World::new();
    // Without the gate, the status is not reported to users, and the message is upstream's log line.
    let mut unreported = World::new();
    let report = Feature::SchedulerPreEnqueuePodStatus;
    unreported.features = unreported.features.with(report, false);
    let log = "could not find ResourceClaim \"default/c\"";
    for (world, expected) in [
        (
            world,
            Status::unresolvable("Waiting for resource claim \"c\" to be present"),
        ),
        (unreported, Status::unresolvable(log)),
        (World::new().with(claim("c", json!({}))), Status::success()),
        (
            World::new().with(claim("c", allocated())),
            Status::success(),
        ),
    ] {
        let status = DynamicResources::default().pre_enqueue(&world.context(), &waiting);
        assert_eq!(status, expected);
    }
    let without = pod("p", json!({}));
    let status = DynamicResources::default().pre_enqueue(&World::new().context(), &without);
    assert_eq!(status, Status::success());
}

/// A slice with these devices of a node.
fn slice(node: &str, devices: Value) -> berth_api::ResourceSlice {
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d", "pool": pool, "nodeName": node, "devices": devices});
    namespaced(node, json!({"spec": spec}))
}

/// PL-166: a slice that is deleted may complete its pool, or make an earlier generation count again.
#[test]
fn a_deleted_slice_wakes_if_its_pool_remains() {
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]});
    let pod = pod("p", spec);
    let named = |name: &str, pool: &str| {
        let mut other = slice(pool, json!([]));
        other.metadata.name = name.into();
        other
    };
    for (name, world, expected) in [
        ("the last one", World::new(), Hint::Skip),
        (
            "still there",
            World::new().with(named("a", "n")),
            Hint::Skip,
        ),
        (
            "one of two",
            World::new().with(named("b", "n")),
            Hint::Queue,
        ),
        (
            "of another pool",
            World::new().with(named("b", "m")),
            Hint::Skip,
        ),
    ] {
        let changed = delete(named("a", "n"));
        let hint = full_hint(DynamicResources::default(), &world, &pod, &changed);
        assert_eq!(hint, expected, "{name}");
    }
}

fn class(name: &str) -> berth_api::DeviceClass {
    namespaced(name, json!({}))
}

/// The fields of a claim that requests one device of a class.
fn wants(class: &str) -> Value {
    let exactly = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": 1});
    json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
}

/// A pod with these claims.
fn with_claims(claims: &[&str]) -> PodInfo {
    let claims = claims
        .iter()
        .map(|name| json!({"name": name, "resourceClaimName": name}));
    pod_info("p", json!({"resourceClaims": claims.collect::<Vec<_>>()}))
}

/// PL-152, PL-157: without claims PreFilter returns Skip; a problem with a claim rejects the pod.
#[test]
fn pods_are_rejected_for_claims_that_cannot_be_allocated() {
    let mut in_flight = claim("in-flight", allocated());
    in_flight.status.is_assumed = true;
    let world = World::new()
        .node("n", json!({}))
        .with(class("gpu"))
        .with(claim("c", wants("gpu")))
        .with(claim("d", wants("tpu")))
        .with(claim("taken", allocated()))
        .with(in_flight);
    let rejected = |why: &'static str| Some(Status::unresolvable(why));
    for (claims, expected) in [
        (vec![], None),
        (vec!["c"], Some(Status::success())),
        (vec!["taken"], Some(Status::success())),
        (
            vec!["d"],
            rejected("request r: device class tpu does not exist"),
        ),
        (
            vec!["c", "missing"],
            rejected("could not find ResourceClaim \"default/missing\""),
        ),
        (
            vec!["in-flight"],
            rejected("resource claim default/in-flight is in the process of being allocated"),
        ),
    ] {
        let state = &mut CycleState::default();
        let plugin = DynamicResources::default();
        let result = match plugin.pre_filter(&world.context(), state, &with_claims(&claims)) {
            PreFilterResult::Skip => None,
            PreFilterResult::Reject(status) => Some(status),
            PreFilterResult::AllNodes => Some(Status::success()),
            other => panic!("{claims:?}: {other:?}"),
        };
        assert_eq!(result, expected, "{claims:?}");
    }
}

/// PL-158: nodes with matching devices, and nodes that can use the allocated devices.
#[test]
fn a_node_fits_if_it_has_or_can_use_the_devices() {
    let mut elsewhere = allocated();
    elsewhere["status"]["allocation"]["nodeSelector"] = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["empty"]}]}]});
    let mut taken = allocated();
    let result = json!({"request": "r", "driver": "d", "pool": "full", "device": "a"});
    taken["status"]["allocation"]["devices"]["results"] = json!([result]);
    let world = World::new()
        .node("empty", json!({}))
        .node("full", json!({}))
        .node("free", json!({}))
        .with(class("gpu"))
        .with(slice("full", json!([{"name": "a"}])))
        .with(slice("free", json!([{"name": "a"}])))
        .with(claim("taken", taken))
        .with(claim("there", elsewhere))
        .with(claim("one", wants("gpu")))
        .with(claim("two", wants("gpu")));
    let lacks = || crate::testing::unresolvable(filter::CANNOT_ALLOCATE);
    let other = || crate::testing::unresolvable(filter::NOT_AVAILABLE);
    for (claims, expected) in [
        (vec!["one"], [lacks(), lacks(), None]),
        (vec!["one", "two"], [lacks(), lacks(), lacks()]),
        (vec!["there"], [None, other(), other()]),
        (vec!["taken"], [None, None, None]),
        (vec!["there", "one"], [lacks(), lacks(), other()]),
    ] {
        let got = world.filter(&DynamicResources::default(), &with_claims(&claims));
        assert_eq!(got, Ok(expected.to_vec()), "{claims:?}");
    }
}

/// PL-178: the devices that Reserve has chosen reject other pods, and not the pod itself.
#[test]
fn chosen_devices_do_not_reject_their_pod() {
    let stored = claim("c", wants("gpu"));
    let pod = with_claims(&["c"]);
    let other = crate::testing::pod("q", json!({}));
    let results = json!([{"request": "r", "driver": "d", "pool": "n", "device": "a"}]);
    let chosen = serde_json::from_value(json!({"devices": {"results": results}}));
    let chosen = chosen.expect("an allocation");
    let why = "resource claim default/c is in the process of being allocated";
    for (chosen_for, expected) in [
        (&*pod.pod, Ok(vec![None])),
        (&other, Err(crate::testing::unresolvable(why))),
    ] {
        let write = writes::assume(
            &stored,
            &chosen,
            chosen_for,
            &claims::pod_consumer(chosen_for),
        );
        let object = berth_api::Object::ResourceClaim(Arc::new(stored.clone()));
        let shown = write.applied_to(&object);
        let shown = shown.as_resource_claim().expect("a claim");
        let world = World::new()
            .node("n", json!({}))
            .with(class("gpu"))
            .with(slice("n", json!([{"name": "a"}])))
            .with(ResourceClaim::clone(shown));
        assert_eq!(world.filter(&DynamicResources::default(), &pod), expected);
    }
}

/// PL-159: a search that is too long and a selector that fails are errors, which retry the pod after a backoff.
#[test]
fn searches_without_an_answer_are_errors() {
    let mut failing = wants("gpu");
    let selector = json!({"cel": {"expression": "device.attributes[\"d\"].model == \"x\""}});
    failing["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = json!([selector]);
    let world = World::new()
        .node("n", json!({}))
        .with(class("gpu"))
        .with(slice("n", json!([{"name": "a"}])))
        .with(claim("fails", failing))
        .with(claim("one", wants("gpu")));
    let hurried = DynamicResources {
        args: DynamicResourcesArgs {
            filter_timeout: "1ns".parse().expect("a duration"),
            ..DynamicResourcesArgs::default()
        },
    };
    let runtime = "claim default/fails: selector #0: CEL runtime error: no such key: model";
    let late = "node n: timed out trying to allocate devices";
    for (plugin, claim, expected) in [
        (DynamicResources::default(), "fails", runtime),
        (hurried, "one", late),
    ] {
        let got = world.filter(&plugin, &with_claims(&[claim]));
        let expected = vec![Some((Code::Error, vec![expected.to_owned()]))];
        assert_eq!(got, Ok(expected), "{claim}");
    }
}

/// Every scored pod has an entry of this plugin, with 0.
#[test]
fn every_node_scores_zero() {
    let world = World::new().node("n1", json!({})).node("n2", json!({}));
    let pod = pod_info("p", json!({}));
    assert_eq!(
        world.normalized_scores(&DynamicResources::default(), &pod),
        [0, 0]
    );
}
