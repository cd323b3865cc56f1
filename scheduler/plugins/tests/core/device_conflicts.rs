//! Writes of resource claims that are refused, that conflict with other writers, or whose result is unknown.

use crate::devices::{
    allocate, answer_statuses, answer_write, bindings, claim, is_claim_write, using, with_status,
    world, world_with, writes,
};
use berth_api::Kind;
use berth_framework::call::{CallErrorKind, Response};
use berth_framework::{ApiCall, Feature, FeatureGates};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

/// PL-161: a device whose allocation was not written is free again, and pods that waited are retried.
#[test]
fn a_refused_allocation_frees_the_device() {
    let mut w = world(&["n1"]);
    w.object(Kind::ResourceClaim, claim("mine"));
    w.object(Kind::ResourceClaim, claim("other"));
    w.pod(using("p", &["mine"]));
    assert_eq!(w.attempt_named(), "p on n1");
    w.pod(using("q", &["other"]));
    w.attempt_named();
    assert_eq!(w.place_of("q"), Some(QueuedIn::Unschedulable));
    answer_write(&mut w, None);
    answer_write(&mut w, Some(CallErrorKind::Refused));
    assert_eq!(w.scheduler.cache().assumed_objects(), 0);
    // The result of a write in flight is unknown, so the reservation is removed.
    let release = json!({"status": {"reservedFor": [{"$patch": "delete", "uid": "uid-p"}]}});
    assert_eq!(writes(&w), [("mine".to_owned(), "status", release)]);
    assert_ne!(w.place_of("q"), Some(QueuedIn::Unschedulable));
    assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff));
}

/// PL-162: after a conflict the write is repeated for the newer version of the claim; an allocation by another
/// component is not overwritten.
#[test]
fn a_conflict_is_resolved_with_the_newer_claim() {
    for (situation, newer, bound) in [
        ("a label changed", json!({}), true),
        (
            "allocated elsewhere",
            json!({"allocation": {"devices": {"results": []}}}),
            false,
        ),
        (
            "allocated elsewhere, and reserved for the pod",
            json!({"allocation": {"devices": {"results": []}}, "reservedFor": [user("p")]}),
            false,
        ),
    ] {
        let mut w = world(&["n1"]);
        w.object(Kind::ResourceClaim, claim("mine"));
        w.pod(using("p", &["mine"]));
        w.attempt_named();
        answer_write(&mut w, None);
        answer_write(&mut w, Some(CallErrorKind::Conflict));
        assert_eq!(writes(&w), [], "{situation}");
        w.object(Kind::ResourceClaim, with_status("mine", newer));
        if bound {
            answer_write(&mut w, None);
            answer_statuses(&mut w);
            assert_eq!(bindings(&w), ["p on n1"], "{situation}");
        } else {
            assert_eq!(bindings(&w), [""; 0], "{situation}");
            let place = Some(QueuedIn::ErrorBackoff);
            assert_eq!(w.place_of("p"), place, "{situation}");
        }
    }
}

/// The pod as a user of a claim.
fn user(name: &str) -> Value {
    json!({"resource": "pods", "name": name, "uid": format!("uid-{name}")})
}

/// The status of a claim with the device of a node.
fn with_device_of(node: &str, users: &[&str]) -> Value {
    let result =
        json!({"request": "r", "driver": "gpu.example.com", "pool": node, "device": "gpu-0"});
    let users: Vec<Value> = users.iter().map(|name| user(name)).collect();
    json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": users})
}

/// PL-162: the binding of a pod fails, so that the reservation of its claim ends, and the watch of claims is behind. In
/// the next attempt, the watch still shows the ended reservation. The pod is bound only after the API server has
/// confirmed a new reservation.
#[test]
fn a_reservation_that_has_ended_is_made_again() {
    let reservation = json!({"status": {"reservedFor": [user("p")]}});
    for shown_early in [true, false] {
        let mut w = world(&["n1"]);
        let shown = |users: &[&str]| with_status("mine", with_device_of("n1", users));
        w.object(Kind::ResourceClaim, shown(&[]));
        w.pod(using("p", &["mine"]));
        assert_eq!(w.attempt_named(), "p on n1");
        assert_eq!(answer_write(&mut w, None), reservation);
        answer_statuses(&mut w);
        assert_eq!(bindings(&w), ["p on n1"]);
        let is_binding = |call: &ApiCall| matches!(call, ApiCall::BindPod { .. });
        w.answer_which(is_binding, Some(CallErrorKind::Conflict), false);
        let release = json!({"status": {"reservedFor": [{"$patch": "delete", "uid": "uid-p"}]}});
        assert_eq!(answer_write(&mut w, None), release);

        // The watch shows the reservation of the first attempt late: before the second attempt, or during it.
        if shown_early {
            w.object(Kind::ResourceClaim, shown(&["p"]));
        }
        w.wait(10);
        answer_statuses(&mut w);
        assert_eq!(w.attempt_named(), "p on n1");
        let refused = Some(CallErrorKind::Conflict);
        assert_eq!(answer_write(&mut w, refused), reservation, "{shown_early}");
        if !shown_early {
            w.object(Kind::ResourceClaim, shown(&["p"]));
            assert_eq!(answer_write(&mut w, refused), reservation);
        }
        answer_statuses(&mut w);
        assert_eq!(bindings(&w), [""; 0], "{shown_early}");

        w.object(Kind::ResourceClaim, shown(&[]));
        assert_eq!(answer_write(&mut w, None), reservation);
        answer_statuses(&mut w);
        assert_eq!(bindings(&w), ["p on n1"], "{shown_early}");
    }
}

/// PL-162: after a conflict the reservation is made again at once if the watch shows the newer version of the claim before
/// the answer.
#[test]
fn a_conflict_is_resolved_at_once_with_the_version_that_the_watch_shows() {
    let mut w = world(&["n1"]);
    let shown = |users: &[&str]| with_status("mine", with_device_of("n1", users));
    w.object(Kind::ResourceClaim, shown(&[]));
    w.pod(using("p", &["mine"]));
    assert_eq!(w.attempt_named(), "p on n1");
    let reservation = json!({"status": {"reservedFor": [user("p")]}});
    w.object(Kind::ResourceClaim, shown(&["other"]));
    assert_eq!(
        answer_write(&mut w, Some(CallErrorKind::Conflict)),
        reservation
    );
    // Another conflict: no version is shown that is newer than the version of this write.
    assert_eq!(
        answer_write(&mut w, Some(CallErrorKind::Conflict)),
        reservation
    );
    assert_eq!(writes(&w), []);
    w.object(Kind::ResourceClaim, shown(&["other", "third"]));
    assert_eq!(answer_write(&mut w, None), reservation);
    answer_statuses(&mut w);
    assert_eq!(bindings(&w), ["p on n1"]);
}

/// D-29, PL-162: the reservation of a pod whose binding fails ends, also if another pod reserves the claim at the same
/// time, and if the API server does not answer at first.
#[test]
fn the_end_of_a_reservation_is_not_replaced_by_another_reservation() {
    for failure in [None, Some(CallErrorKind::Unavailable)] {
        let mut w = world(&["n1"]);
        let reserve = |name: &str| json!({"status": {"reservedFor": [user(name)]}});
        w.object(
            Kind::ResourceClaim,
            with_status("mine", with_device_of("n1", &[])),
        );
        w.pod(using("p", &["mine"]));
        assert_eq!(w.attempt_named(), "p on n1");
        assert_eq!(answer_write(&mut w, None), reserve("p"));
        answer_statuses(&mut w);
        w.pod(using("q", &["mine"]));
        assert_eq!(w.attempt_named(), "q on n1");
        // The binding of the first pod fails while the reservation of the second is on its way.
        let is_binding = |call: &ApiCall| matches!(call, ApiCall::BindPod { .. });
        w.answer_which(is_binding, Some(CallErrorKind::Conflict), false);
        w.pod(using("r", &["mine"]));
        assert_eq!(w.attempt_named(), "r on n1");
        assert_eq!(answer_write(&mut w, None), reserve("q"));
        let release = json!({"status": {"reservedFor": [{"$patch": "delete", "uid": "uid-p"}]}});
        if failure.is_some() {
            assert_eq!(answer_write(&mut w, failure), release);
            w.wait(10);
        }
        assert_eq!(answer_write(&mut w, None), release, "{failure:?}");
        assert_eq!(answer_write(&mut w, None), reserve("r"), "{failure:?}");
        answer_statuses(&mut w);
        assert_eq!(bindings(&w), ["q on n1", "r on n1"], "{failure:?}");
    }
}

/// PL-162: a claim was freed and got the device of another node after the pod's node was chosen: the pod is not bound
/// there.
#[test]
fn a_pod_is_not_bound_where_its_claim_has_lost_its_device() {
    for users in [&[][..], &["p"], &["other"]] {
        let mut w = world(&["n1", "n2"]);
        w.object(
            Kind::ResourceClaim,
            with_status("mine", with_device_of("n1", &[])),
        );
        w.pod(using("p", &["mine"]));
        let placed = w.attempt_named();
        assert!(placed.starts_with("p on n"), "{placed}");
        answer_write(&mut w, Some(CallErrorKind::Conflict));
        w.object(
            Kind::ResourceClaim,
            with_status("mine", with_device_of("n2", users)),
        );
        answer_statuses(&mut w);
        assert_eq!(bindings(&w), [""; 0], "{users:?}");
        assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff), "{users:?}");
    }
}

/// One device and the claims `mine` and `other`: the finalizer of `mine` is written, its allocation to `p` is on its
/// way.
fn allocating_mine() -> Driver {
    let mut w = world(&["n1"]);
    w.object(Kind::ResourceClaim, claim("mine"));
    w.object(Kind::ResourceClaim, claim("other"));
    w.pod(using("p", &["mine"]));
    assert_eq!(w.attempt_named(), "p on n1");
    answer_write(&mut w, None);
    w
}

/// PL-161: the request that allocates a claim gets no answer, and its pod is deleted. The API server may have stored
/// the allocation: no other claim gets the device until the release is answered.
#[test]
fn a_device_is_not_free_while_it_is_unknown_whether_it_was_allocated() {
    for was_made in [false, true] {
        let mut w = allocating_mine();
        let status = answer_write(&mut w, Some(CallErrorKind::Timeout))["status"].clone();
        w.deleted("p");
        w.pod(using("q", &["other"]));
        let tried = w.attempt_named();
        assert!(tried.contains("cannot allocate all claims"), "{tried}");
        if was_made {
            w.object(Kind::ResourceClaim, with_status("mine", status));
        }
        // The release waits as long as a retry would.
        w.wait(10);
        let release = answer_write(&mut w, None);
        assert!(release["status"]["reservedFor"].is_array(), "{release}");
        if !was_made {
            assert_eq!(w.scheduler.cache().assumed_objects(), 1);
            w.object(Kind::ResourceClaim, claim("mine"));
        }
        assert_eq!(w.scheduler.cache().assumed_objects(), 0, "{was_made}");
        w.wait(10);
        let expected = if was_made { "idle" } else { "q on n1" };
        assert_eq!(w.attempt_named(), expected);
    }
}

/// PL-161: a pod is deleted while the allocation of its claim is on its way. The API may carry it out, so no other
/// claim gets the device until the answer is known.
#[test]
fn a_device_is_not_free_while_its_allocation_is_on_its_way() {
    for failure in [Some(CallErrorKind::Refused), None] {
        let mut w = allocating_mine();
        w.deleted("p");
        w.pod(using("q", &["other"]));
        let tried = w.attempt_named();
        assert!(tried.contains("cannot allocate all claims"), "{tried}");
        let status = answer_write(&mut w, failure)["status"].clone();
        if failure.is_none() {
            w.object(Kind::ResourceClaim, with_status("mine", status));
        }
        assert_eq!(w.scheduler.cache().assumed_objects(), 0);
        w.wait(10);
        let expected = if failure.is_some() { "q on n1" } else { "idle" };
        assert_eq!(w.attempt_named(), expected);
    }
}

/// D-30, PL-160: without asynchronous calls, pods that share a claim reserve it one after the other, each for the
/// version that the previous write created. No write fails with a conflict.
#[test]
fn pods_that_share_a_claim_reserve_it_without_conflicts() {
    const PODS: usize = 15;
    let features = FeatureGates::default()
        .with(Feature::SchedulerAsyncAPICalls, false)
        .with(Feature::SchedulerPreEnqueuePodStatus, false);
    let mut w = world_with(features, &["n1"]);
    w.object(Kind::ResourceClaim, claim("shared"));
    w.pod(using("first", &["shared"]));
    assert_eq!(w.attempts(), ["first on n1"]);
    allocate(&mut w, "shared");
    for n in 0..PODS {
        w.pod(using(&format!("p{n}"), &["shared"]));
    }
    assert_eq!(w.attempts().len(), PODS);
    let claims = w.scheduler.cache().cluster().devices().claims();
    let shown = claims.get("default", "shared").expect("the claim exists");
    let mut version = shown.metadata.resource_version.clone();
    for n in 0..PODS {
        let mut calls = w.calls.iter();
        let at = calls.position(|(_, call)| is_claim_write(call));
        let (id, call) = w.calls.remove(at.expect("a reservation is sent"));
        let ApiCall::Write(write) = &call else {
            panic!("{call:?}")
        };
        assert_eq!(write.resource_version(), Some(&version), "reservation {n}");
        assert_eq!(writes(&w), [], "one call at a time");
        version = format!("{}", 1_000 + n).into();
        w.complete(id, Ok(Response::written(version.clone())));
    }
    answer_statuses(&mut w);
    assert_eq!(bindings(&w).len(), PODS + 1);
}
