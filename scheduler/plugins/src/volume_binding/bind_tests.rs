//! Reserve, PreBind and Unreserve of VolumeBinding.

use super::tests::{bound, free, in_zone, local, using, wanting, world};
use super::{VolumeBinding, VolumeBindingArgs};
use crate::testing::{Recorder, World, pod_info, volume};
use berth_api::storage::SELECTED_NODE_ANNOTATION;
use berth_api::{Duration, Kind, Object, PersistentVolume, PersistentVolumeClaim, Str};
use berth_framework::call::{CallError, CallErrorKind, Response};
use berth_framework::plugin::{PreBind, PreFilter, PreFilterResult, Reserve};
use berth_framework::stage::{Step, Wait, WaitOn, WakeReason};
use berth_framework::write::Action;
use berth_framework::{ApiCall, Code, CycleState, PodInfo, Write};
use serde_json::{Value, json};
use std::sync::Arc;

/// A pod that is being bound to the node `a`.
struct Run {
    world: World,
    plugin: VolumeBinding,
    state: CycleState,
    outbox: Recorder,
    pod: PodInfo,
}

/// The result of a step, in words.
fn notified(step: &Step) -> String {
    match step {
        Step::Done(status) if status.is_success() => "done".to_owned(),
        Step::Done(status) => format!("{}: {}", status.code(), status.message()),
        Step::Wait(Wait { on, .. }) => match on {
            WaitOn::Call(_) => "writes".to_owned(),
            WaitOn::Objects(_) => "waits".to_owned(),
            WaitOn::Job(_) | WaitOn::Timer => panic!("no step waits for {on:?}"),
        },
    }
}

fn in_short(write: &Write) -> String {
    let name = &write.object().name;
    let Action::Patch(body) = write.action() else {
        panic!("volumes and claims are patched, got {write:?}");
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let annotations = &body["metadata"]["annotations"];
    let claim = &body["spec"]["claimRef"];
    if claim.is_null() {
        return format!("{name} on {}", text(&annotations[SELECTED_NODE_ANNOTATION]));
    }
    let by = if annotations.is_null() { "" } else { ", by us" };
    format!(
        "{name} to {}/{}{by}",
        text(&claim["namespace"]),
        text(&claim["name"])
    )
}

impl Run {
    /// As far as PreFilter.
    fn new(mut world: World, claims: &[&str]) -> Self {
        let pod = pod_info("p", using(claims));
        let stored = pod.pod.clone();
        world.cluster.pods.insert(stored.uid().clone(), stored);
        let plugin = VolumeBinding::default();
        let mut state = CycleState::default();
        let result = plugin.pre_filter(&world.context(), &mut state, &pod);
        assert!(
            !matches!(result, PreFilterResult::Reject(_)),
            "{result:?} for {claims:?}"
        );
        Self {
            world,
            plugin,
            state,
            outbox: Recorder::default(),
            pod,
        }
    }

    fn reserve(&mut self) -> String {
        let mut cx = self.world.stage(&mut self.outbox);
        let node = Str::new("a");
        let step = self
            .plugin
            .reserve(&mut cx, &mut self.state, &self.pod, &node, None);
        notified(&step)
    }

    fn unreserve(&mut self) {
        let mut cx = self.world.stage(&mut self.outbox);
        let node = Str::new("a");
        self.plugin
            .unreserve(&mut cx, &mut self.state, &self.pod, &node);
    }

    fn pre_flight(&mut self) -> (Code, String) {
        let mut cx = self.world.stage(&mut self.outbox);
        let node = Str::new("a");
        let plugin = &self.plugin;
        let status = plugin.pre_flight(&mut cx, &mut self.state, &self.pod, &node);
        (status.code(), status.message())
    }

    fn pre_bind(&mut self) -> Step {
        let mut cx = self.world.stage(&mut self.outbox);
        let node = Str::new("a");
        self.plugin
            .pre_bind(&mut cx, &mut self.state, &self.pod, &node, None)
    }

    fn resume(&mut self, reason: WakeReason) -> Step {
        let mut cx = self.world.stage(&mut self.outbox);
        let node = Str::new("a");
        let (plugin, state) = (&self.plugin, &mut self.state);
        plugin.pre_bind(&mut cx, state, &self.pod, &node, Some(reason.into()))
    }

    /// Makes all writes, until the wait for the claims or the end.
    fn write_all(&mut self) -> Step {
        let mut step = self.pre_bind();
        while notified(&step) == "writes" {
            step = self.resume(WakeReason::Call(Ok(Response::default())));
        }
        step
    }

    fn assumed(&self) -> Vec<String> {
        self.outbox.assumed.iter().map(in_short).collect()
    }

    fn reverted(&self) -> Vec<String> {
        self.outbox.reverted.iter().map(in_short).collect()
    }

    fn set(&mut self, object: Object) {
        assert!(self.world.cluster.set(&object));
    }

    /// The API shows the volume changed, in a later version.
    fn change_volume(&mut self, name: &str, change: impl FnOnce(&mut PersistentVolume)) {
        let volume = self.world.cluster.storage().volumes()[name].clone();
        let mut volume = PersistentVolume::clone(&volume);
        volume.metadata.resource_version = later(&volume.metadata.resource_version);
        change(&mut volume);
        self.set(Object::PersistentVolume(Arc::new(volume)));
    }

    /// The API shows the claim changed, in a later version.
    fn change_claim(&mut self, name: &str, change: impl FnOnce(&mut PersistentVolumeClaim)) {
        let claims = self.world.cluster.storage().claims();
        let claim = claims.get("default", name).expect("the claim is there");
        let mut claim = PersistentVolumeClaim::clone(claim);
        claim.metadata.resource_version = later(&claim.metadata.resource_version);
        change(&mut claim);
        self.set(Object::PersistentVolumeClaim(Arc::new(claim)));
    }

    /// The API shows the written objects.
    fn show_writes(&mut self) {
        for call in self.outbox.calls.clone() {
            let ApiCall::Write(write) = call else {
                panic!("only volumes and claims are written, got {call:?}");
            };
            let name = write.object().name.to_string();
            let show = |object: Object| write.applied_to(&object);
            if write.object().kind == Kind::PersistentVolume {
                self.change_volume(&name, |volume| {
                    let shown = show(Object::PersistentVolume(Arc::new(volume.clone())));
                    *volume = shown
                        .as_persistent_volume()
                        .expect("a volume")
                        .as_ref()
                        .clone();
                });
            } else {
                self.change_claim(&name, |claim| {
                    let shown = show(Object::PersistentVolumeClaim(Arc::new(claim.clone())));
                    *claim = shown
                        .as_persistent_volume_claim()
                        .expect("a claim")
                        .as_ref()
                        .clone();
                });
            }
        }
    }

    fn is_bound(&mut self, claim: &str, volume: &str) {
        self.change_claim(claim, |claim| {
            claim.spec.volume_name = volume.into();
            let annotations = &mut claim.metadata.annotations;
            *annotations = annotations.with("pv.kubernetes.io/bind-completed", "yes");
        });
    }
}

fn later(version: &str) -> Str {
    let version: u64 = version.parse().unwrap_or_default();
    Str::new(&(version + 1).to_string())
}

fn claim_ref(name: &str, uid: &str) -> Value {
    json!({"claimRef": {"namespace": "default", "name": name, "uid": uid}})
}

fn selected(name: &str, node: &str) -> PersistentVolumeClaim {
    let mut claim = wanting(name, "csi", "1Gi");
    let annotations = &mut claim.metadata.annotations;
    *annotations = annotations.with("volume.kubernetes.io/selected-node", node);
    claim
}

/// A free volume `v` for the claim `c`, and a claim `d` that is provisioned for.
fn both() -> Run {
    let world = world()
        .with(wanting("c", "local", "1Gi"))
        .with(free(&local("v", "1Gi", "a"), json!({})))
        .with(wanting("d", "csi", "1Gi"));
    let mut run = Run::new(world, &["c", "d"]);
    assert_eq!(run.reserve(), "done");
    run
}

/// PL-138: the assumed volumes, and whether PreBind has anything to write.
#[test]
fn reserve_takes_what_filter_has_found() {
    let base = || world().with(wanting("c", "local", "1Gi"));
    let meant = |uid: &str| {
        let volume = free(&local("v", "1Gi", "a"), claim_ref("c", uid));
        base().with(volume)
    };
    let dynamic = || world().with(wanting("d", "csi", "1Gi"));
    for (situation, world, claims, taken, flight) in [
        ("no claims", world(), vec![], vec![], Code::Skip),
        (
            "all bound",
            world().with(bound("c", "v")).with(volume("v", json!({}))),
            vec!["c"],
            vec![],
            Code::Skip,
        ),
        (
            "a free volume",
            base().with(free(&local("v", "1Gi", "a"), json!({}))),
            vec!["c"],
            vec!["v to default/c, by us"],
            Code::Success,
        ),
        (
            "a volume that is meant for the claim",
            meant(""),
            vec!["c"],
            vec!["v to default/c"],
            Code::Success,
        ),
        (
            "a volume that was given to it before a restart",
            meant("c"),
            vec!["c"],
            vec![],
            Code::Success,
        ),
        (
            "to be made",
            dynamic(),
            vec!["d"],
            vec!["d on a"],
            Code::Success,
        ),
        (
            "being made since before a restart",
            world().with(selected("d", "a")),
            vec!["d"],
            vec![],
            Code::Success,
        ),
        (
            "volumes precede claims",
            dynamic()
                .with(wanting("c", "local", "2Gi"))
                .with(free(&local("v", "2Gi", "a"), json!({}))),
            vec!["d", "c"],
            vec!["v to default/c, by us", "d on a"],
            Code::Success,
        ),
        (
            "the smaller claim takes the smaller volume",
            base()
                .with(wanting("e", "local", "2Gi"))
                .with(free(&local("large", "2Gi", "a"), json!({})))
                .with(free(&local("small", "1Gi", "a"), json!({}))),
            vec!["e", "c"],
            vec!["small to default/c, by us", "large to default/e, by us"],
            Code::Success,
        ),
    ] {
        let mut run = Run::new(world, &claims);
        assert_eq!(run.reserve(), "done", "{situation}");
        assert_eq!(run.assumed(), taken, "{situation}");
        assert_eq!(run.pre_flight().0, flight, "{situation}");
        assert!(
            run.outbox.calls.is_empty(),
            "{situation}: nothing is written yet"
        );
    }
}

/// PL-139: the found volumes have changed while the cycle was parked.
#[test]
fn reserve_notices_what_has_changed() {
    type Change = fn(&mut Run);
    let cases: [(&str, Change, &str); 3] = [
        (
            "another pod has taken the volume",
            |run| {
                let taken = free(&local("v", "1Gi", "a"), claim_ref("x", "x"));
                run.set(Object::PersistentVolume(Arc::new(taken)));
            },
            "UnschedulableAndUnresolvable: node(s) didn't find available persistent volumes to bind",
        ),
        (
            "a later version of the claim",
            |run| run.change_claim("d", |_| {}),
            "Error: \"default/d\" is out of sync",
        ),
        (
            "the node is gone",
            |run| {
                assert!(run.world.cluster.nodes.remove_node("a").is_some());
            },
            "Error: failed to get node \"a\": node \"a\" not found",
        ),
    ];
    for (situation, change, expected) in cases {
        let world = both().world;
        let mut run = Run::new(world, &["c", "d"]);
        change(&mut run);
        assert_eq!(run.reserve(), expected, "{situation}");
        assert_eq!(run.assumed(), Vec::<String>::new(), "{situation}");
        run.unreserve();
        assert_eq!(run.reverted(), Vec::<String>::new(), "{situation}");
    }
}

/// Reserve chooses among the volumes that exist at that time, and uses the latest version of a volume.
#[test]
fn reserve_takes_a_volume_as_it_is_now() {
    let mut run = Run::new(both().world, &["c", "d"]);
    run.change_volume("v", |_| {});
    assert_eq!(run.reserve(), "done");
}

/// PL-140: nothing was chosen.
#[test]
fn nothing_is_bound_that_was_not_reserved() {
    let expected = "no pod volumes found for node \"a\"";
    let mut run = Run::new(world().with(wanting("d", "csi", "1Gi")), &["d"]);
    assert_eq!(run.pre_flight(), (Code::Error, expected.to_owned()));
    assert_eq!(notified(&run.pre_bind()), format!("Error: {expected}"));
    run.unreserve();
    assert_eq!(run.reverted(), Vec::<String>::new());
}

/// If pods are alike, PreFilter runs for the first of them alone: Reserve looks up the claims of the others.
#[test]
fn reserve_needs_no_state_of_pre_filter() {
    for (claims, flight) in [(&[][..], Code::Skip), (&["d"][..], Code::Success)] {
        let mut run = Run::new(world().with(wanting("d", "csi", "1Gi")), claims);
        run.state.clear();
        assert_eq!(run.reserve(), "done", "{claims:?}");
        assert_eq!(run.pre_flight().0, flight, "{claims:?}");
    }
}

/// PL-141: one write after another, volumes first; the first failure ends the sequence and reverts unwritten
/// assumptions.
#[test]
fn writes_are_made_one_after_another() {
    let refused = || {
        WakeReason::Call(Err(CallError::new(
            CallErrorKind::Conflict,
            "the object has been modified",
        )))
    };
    let all = ["v to default/c, by us", "d on a"];
    for (made, wake, expected) in [
        (0, refused(), "Error: the object has been modified"),
        (1, refused(), "Error: the object has been modified"),
        (
            0,
            WakeReason::Deadline,
            "Error: updating persistentvolumes/v: no answer within 300 s",
        ),
        (
            1,
            WakeReason::Deadline,
            "Error: updating persistentvolumeclaims/default/d: no answer within 300 s",
        ),
    ] {
        let mut run = both();
        assert_eq!(run.assumed(), all);
        assert_eq!(notified(&run.pre_bind()), "writes");
        for _ in 0..made {
            assert_eq!(
                notified(&run.resume(WakeReason::Call(Ok(Response::default())))),
                "writes"
            );
        }
        assert_eq!(run.outbox.calls.len(), made + 1);
        assert_eq!(notified(&run.resume(wake)), expected);
        run.unreserve();
        assert_eq!(run.reverted(), all[made..], "after {made}");
        run.unreserve();
        assert_eq!(run.reverted(), all[made..], "once");
    }
}

/// PL-142: the conditions that the pod waits for, and the end of the wait.
#[test]
fn the_pod_waits_until_its_claims_are_bound() {
    type Change = fn(&mut Run);
    fn unlabelled(run: &mut Run) {
        let node = crate::testing::node("a", json!({}));
        run.world.cluster.nodes.set_node(Arc::new(node));
    }
    fn shown(run: &mut Run) {
        run.show_writes();
        run.is_bound("c", "v");
    }
    let cases: [(&str, Change, &str); 16] = [
        ("nothing is shown yet", |_| {}, "waits"),
        ("the writes are shown", Run::show_writes, "waits"),
        ("one claim is bound", shown, "waits"),
        (
            "both are bound",
            |run| {
                shown(run);
                run.set(Object::PersistentVolume(Arc::new(volume("w", json!({})))));
                run.is_bound("d", "w");
            },
            "done",
        ),
        (
            "the claim is seen before its volume",
            |run| {
                shown(run);
                run.is_bound("d", "w");
            },
            "waits",
        ),
        (
            "the volume that was made is out of reach",
            |run| {
                shown(run);
                let made = volume("w", json!({"spec": {"nodeAffinity": in_zone("b")}}));
                run.set(Object::PersistentVolume(Arc::new(made)));
                run.is_bound("d", "w");
            },
            "Error: binding volumes: pv \"w\" node affinity doesn't match node \"a\": no matching NodeSelectorTerms",
        ),
        (
            "the node has moved to another zone",
            |run| {
                run.show_writes();
                unlabelled(run);
            },
            "Error: binding volumes: pv \"v\" node affinity doesn't match node \"a\": no matching NodeSelectorTerms",
        ),
        (
            "the node is gone",
            |run| {
                assert!(run.world.cluster.nodes.remove_node("a").is_some());
            },
            "Error: binding volumes: failed to get node \"a\": node \"a\" not found",
        ),
        (
            "the pod is gone",
            |run| {
                assert!(run.world.cluster.pods.remove("p").is_some());
            },
            "Error: binding volumes: pod does not exist any more: pod \"p\" not found",
        ),
        (
            "the volume was taken away",
            |run| {
                run.show_writes();
                run.change_volume("v", |volume| volume.spec.claim_ref = None);
            },
            "Error: binding volumes: ClaimRef got reset for pv \"v\"",
        ),
        (
            "the volume is meant for the claim again, no more",
            |run| {
                run.show_writes();
                run.change_volume("v", |volume| {
                    if let Some(claim) = &mut volume.spec.claim_ref {
                        claim.uid = Str::default();
                    }
                });
            },
            "Error: binding volumes: ClaimRef got reset for pv \"v\"",
        ),
        (
            "the volume is gone",
            |run| {
                let volume = run.world.cluster.storage().volumes()["v"].clone();
                run.world.cluster.unset(&Object::PersistentVolume(volume));
            },
            "Error: binding volumes: failed to check binding: could not find v1.PersistentVolume \"v\"",
        ),
        (
            "the claim is gone",
            |run| {
                let claim = run.world.cluster.storage().claims().get("default", "c");
                let claim = Object::PersistentVolumeClaim(claim.expect("a claim").clone());
                run.world.cluster.unset(&claim);
            },
            "Error: binding volumes: failed to check binding: could not find v1.PersistentVolumeClaim \"default/c\"",
        ),
        (
            "another claim has its name",
            |run| run.change_claim("d", |claim| claim.metadata.uid = "other".into()),
            "Error: binding volumes: failed to check provisioning pvc: could not find v1.PersistentVolumeClaim \"default/d\"",
        ),
        (
            "the provisioner has given up",
            |run| {
                run.show_writes();
                run.change_claim("d", |claim| {
                    let meta = &mut claim.metadata;
                    meta.annotations = meta
                        .annotations
                        .with(
                            "volume.kubernetes.io/storage-provisioner",
                            "csi.example.com",
                        )
                        .without("volume.kubernetes.io/selected-node");
                });
            },
            "Error: binding volumes: provisioning failed for PVC \"d\"",
        ),
        (
            "all annotations are gone",
            |run| {
                run.show_writes();
                run.change_claim("d", |claim| {
                    claim.metadata.annotations = berth_api::Labels::default();
                });
            },
            "Error: binding volumes: selectedNode annotation reset for PVC \"d\"",
        ),
    ];
    for (situation, change, expected) in cases {
        let mut run = both();
        assert_eq!(notified(&run.write_all()), "waits", "{situation}");
        change(&mut run);
        assert_eq!(
            notified(&run.resume(WakeReason::Object)),
            expected,
            "{situation}"
        );
        run.unreserve();
        assert_eq!(
            run.reverted(),
            Vec::<String>::new(),
            "{situation}: what is written stays"
        );
    }
}

/// Every object that can end the wait is watched, and a volume that was made from when it is known.
#[test]
fn the_pod_waits_for_the_objects_that_matter() {
    let awaited = |step: &Step| -> Vec<String> {
        let Step::Wait(Wait {
            on: WaitOn::Objects(objects),
            ..
        }) = step
        else {
            panic!("the pod waits for objects, got {step:?}");
        };
        objects.iter().map(ToString::to_string).collect()
    };
    let mut run = both();
    let mut expected = vec![
        "nodes/a",
        "pods/default/p",
        "persistentvolumeclaims/default/c",
        "persistentvolumes/v",
        "persistentvolumeclaims/default/d",
    ];
    assert_eq!(awaited(&run.write_all()), expected);
    run.show_writes();
    run.is_bound("d", "w");
    expected.push("persistentvolumes/w");
    assert_eq!(awaited(&run.resume(WakeReason::Object)), expected);
}

/// PL-143: counted from the last write, whatever happens in between.
#[test]
fn the_wait_has_a_limit() {
    for seconds in [0, 30, 600] {
        let mut run = both();
        run.plugin = VolumeBinding::new(VolumeBindingArgs {
            bind_timeout: Duration::from_secs(seconds),
            ..VolumeBindingArgs::default()
        });
        let deadline = run.world.now + Duration::from_secs(seconds);
        for wake in [None, Some(WakeReason::Object)] {
            let step = match wake {
                None => run.write_all(),
                Some(wake) => run.resume(wake),
            };
            let Step::Wait(wait) = step else {
                panic!("{seconds}: {step:?}");
            };
            assert_eq!(wait.deadline, deadline);
            run.world.now = run.world.now + Duration::from_secs(7);
        }
        assert_eq!(
            notified(&run.resume(WakeReason::Deadline)),
            "Error: binding volumes: context deadline exceeded"
        );
    }
}

/// PL-144: a pod whose claims were bound while it was placed has nothing to wait for.
#[test]
fn what_is_bound_already_is_not_waited_for() {
    let given = free(&local("v", "1Gi", "a"), claim_ref("c", "c"));
    let world = world().with(wanting("c", "local", "1Gi")).with(given);
    let mut run = Run::new(world, &["c"]);
    assert_eq!(run.reserve(), "done");
    run.is_bound("c", "v");
    assert_eq!(notified(&run.pre_bind()), "done");
    assert!(run.outbox.calls.is_empty());
}

/// The view of the next pod on an assumption: the volume is taken, the claim is for its node.
#[test]
fn the_next_pod_sees_what_is_taken() {
    let mut first = both();
    for write in std::mem::take(&mut first.outbox.assumed) {
        let cluster = &first.world.cluster;
        let object = match cluster.storage().volumes().get(&write.object().name) {
            Some(volume) => Object::PersistentVolume(volume.clone()),
            None => {
                let claims = cluster.storage().claims();
                let claim = claims.get("default", &write.object().name);
                Object::PersistentVolumeClaim(claim.expect("a claim").clone())
            }
        };
        first.set(write.applied_to(&object));
    }
    let world = first.world.with(wanting("e", "local", "1Gi"));
    for (claims, expected) in [(["e"], "BB"), (["c"], ".B"), (["d"], ".B")] {
        let filtered = super::tests::filtered(&world, &claims);
        assert_eq!(filtered, expected, "{claims:?}");
    }
    // A second pod with the same claims has nothing to write, and waits for the same.
    let mut second = Run::new(world, &["c", "d"]);
    assert_eq!(second.reserve(), "done");
    assert_eq!(second.assumed(), Vec::<String>::new());
    assert_eq!(notified(&second.pre_bind()), "waits");
}
