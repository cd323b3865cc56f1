//! Pods whose volumes are chosen and created while they are placed, from the decision to the binding.
//!
//! The test plays the API server, who binds volumes and claims, and the provisioner.

use crate::drivers::driver;
use berth_api::{Duration, Kind, Object};
use berth_framework::ApiCall;
use berth_framework::call::{CallError, CallErrorKind, CallResult, Response};
use berth_framework::testing::{PodBuilder, node, pod};
use berth_framework::write::{Action, Write};
use berth_scheduler::ClusterChange;
use berth_scheduler::metrics::Metric;
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SELECTED: &str = "volume.kubernetes.io/selected-node";
const NOTHING_TO_BIND: &str = "1 node(s) didn't find available persistent volumes to bind. no new claims to deallocate, preemption: 0/1 nodes \
     are available: 1 Preemption is not helpful for scheduling.";

/// A cluster with a separate store of volumes and claims.
struct Cluster {
    world: Driver,
    /// Volumes and claims as the API stores them; the scheduler has only received the shown ones.
    stored: BTreeMap<String, (Kind, Value)>,
    version: u64,
}

fn claim_fields(name: &str, class: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {
            "storageClassName": class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    })
}

/// A volume of a class that is reached from one node.
fn volume_fields(name: &str, class: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "disk", "operator": "In", "values": [node]},
            ]}]}},
        },
        "status": {"phase": "Available"},
    })
}

/// A pod that uses claims.
fn using(name: &str, claims: &[&str]) -> PodBuilder {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    pod(name).with(|pod| {
        pod.spec.volumes = serde_json::from_value(json!(volumes)).expect("volumes");
    })
}

/// PL-180: if the plugin of a volume becomes migrated, kept answers about the node change; if it no longer is, waiting
/// pods are tried.
#[test]
fn the_migration_of_a_plugin_changes_where_its_volumes_are() {
    let mut w = driver();
    w.node(node("n").label("topology.kubernetes.io/zone", "z1"));
    let csi_node = |plugins: &str| {
        let annotations = json!({"storage.alpha.kubernetes.io/migrated-plugins": plugins});
        json!({"metadata": {"name": "n", "annotations": annotations}, "spec": {"drivers": []}})
    };
    w.object(Kind::CsiNode, csi_node(""));
    let volume = json!({
        "metadata": {"name": "v", "labels": {"topology.kubernetes.io/zone": "z1"}},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "gcePersistentDisk": {"pdName": "d"}, "claimRef": {"namespace": "default", "name": "c"},
        },
    });
    w.object(Kind::PersistentVolume, volume);
    let claim = json!({
        "metadata": {
            "name": "c", "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"storageClassName": "", "volumeName": "v", "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Bound"},
    });
    w.object(Kind::PersistentVolumeClaim, claim);
    w.pod(using("before", &["c"]));
    assert_eq!(w.attempt_named(), "before on n");
    w.object(Kind::CsiNode, csi_node("kubernetes.io/gce-pd"));
    w.pod(using("after", &["c"]));
    let tried = w.attempt_named();
    let why = "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity.";
    assert!(tried.contains(why), "{tried}");
    w.answer_all();
    w.object(Kind::CsiNode, csi_node("kubernetes.io/aws-ebs"));
    w.wait(10);
    assert_eq!(w.attempt_named(), "after on n");
}

impl Cluster {
    /// Nodes of these names, and the classes `local` (no provisioner) and `csi`. Both wait for the first consumer.
    fn new(nodes: &[&str]) -> Self {
        let mut world = driver();
        for name in nodes {
            world.node(node(name).label("disk", name));
        }
        for (name, provisioner) in [
            ("local", "kubernetes.io/no-provisioner"),
            ("csi", "csi.example.com"),
        ] {
            let fields = json!({
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            });
            world.object(Kind::StorageClass, fields);
        }
        Self {
            world,
            stored: BTreeMap::new(),
            version: 10_000,
        }
    }

    fn store(&mut self, kind: Kind, mut fields: Value) -> String {
        self.version += 1;
        fields["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = fields["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        self.stored.insert(name.clone(), (kind, fields));
        name
    }

    fn object(&self, name: &str) -> Object {
        let (kind, fields) = &self.stored[name];
        kind.decode(fields.to_string().as_bytes())
            .expect("an object")
    }

    /// The watch shows the stored object.
    fn show(&mut self, name: &str) -> &mut Self {
        let object = self.object(name);
        self.world.applied(object);
        self
    }

    /// With one more claim.
    fn claim(&mut self, name: &str, class: &str) -> &mut Self {
        let name = self.store(Kind::PersistentVolumeClaim, claim_fields(name, class));
        self.show(&name)
    }

    /// With one more volume of the class `local`.
    fn volume(&mut self, name: &str, node: &str) -> &mut Self {
        let fields = volume_fields(name, "local", node);
        let name = self.store(Kind::PersistentVolume, fields);
        self.show(&name)
    }

    /// Changes an object in the API server, and shows the change in the watch.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        let (kind, mut fields) = self.stored[name].clone();
        change(&mut fields);
        self.store(kind, fields);
        self.show(name)
    }

    fn gone(&mut self, name: &str) {
        let object = self.object(name);
        self.stored.remove(name);
        self.world.gone(object);
    }

    /// The volume controller completes the binding that the scheduler has begun: the claim gets the volume.
    fn bind(&mut self, claim: &str, volume: &str) -> &mut Self {
        self.change(claim, |claim| {
            claim["spec"]["volumeName"] = json!(volume);
            claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
            claim["status"]["phase"] = json!("Bound");
        })
    }

    /// The provisioner makes a volume for the claim, on the node that was selected.
    fn provision(&mut self, claim: &str) -> &mut Self {
        let node = self.stored[claim].1["metadata"]["annotations"][SELECTED].clone();
        let volume = format!("pvc-{claim}");
        let fields = volume_fields(&volume, "csi", node.as_str().expect("a selected node"));
        self.store(Kind::PersistentVolume, fields);
        self.show(&volume);
        self.bind(claim, &volume)
    }

    fn carry_out(&mut self, write: &Write) -> CallResult {
        let name = write.object().name.to_string();
        let Some((kind, mut fields)) = self.stored.get(&name).cloned() else {
            return Err(error(CallErrorKind::NotFound));
        };
        let meta = &fields["metadata"];
        let version = write.resource_version().map_or("", |version| &**version);
        if meta["resourceVersion"] != version || meta["uid"] != **write.uid() {
            return Err(error(CallErrorKind::Conflict));
        }
        let Action::Patch(patch) = write.action() else {
            panic!("volumes and claims are patched, got {write:?}");
        };
        merge(&mut fields, patch);
        if kind == Kind::PersistentVolume {
            fields["status"]["phase"] = json!("Bound");
        }
        self.store(kind, fields);
        Ok(Response::default())
    }

    /// Carries out the oldest write and answers it; the watch does not show it yet. Returns the name of the written
    /// object.
    fn answer_write(&mut self) -> String {
        self.answer_write_with(|_| None)
    }

    /// The same; `answer` may replace the honest answer.
    fn answer_write_with(&mut self, answer: impl Fn(&CallResult) -> Option<CallResult>) -> String {
        let calls = &mut self.world.calls;
        let at = calls
            .iter()
            .position(|(_, call)| matches!(call, ApiCall::Write(_)));
        let (id, call) = calls.remove(at.expect("a write is on its way"));
        let ApiCall::Write(write) = call else {
            unreachable!("it is a write");
        };
        let honest = self.carry_out(&write);
        let result = answer(&honest).unwrap_or(honest);
        self.world.complete(id, result);
        write.object().name.to_string()
    }

    /// Refuses the oldest write without carrying it out.
    fn refuse_write(&mut self, kind: CallErrorKind) {
        let calls = &mut self.world.calls;
        let at = calls
            .iter()
            .position(|(_, call)| matches!(call, ApiCall::Write(_)));
        let (id, _) = calls.remove(at.expect("a write is on its way"));
        self.world.complete(id, Err::<(), _>(error(kind)));
    }

    /// The calls without an answer after all status patches are answered, because a binding is sent after them.
    fn calls(&mut self) -> Vec<String> {
        let is_patch = |call: &ApiCall| matches!(call, ApiCall::PatchPodStatus { .. });
        while self.world.calls.iter().any(|(_, call)| is_patch(call)) {
            self.world.answer_which(is_patch, None, false);
        }
        let calls = self.world.calls.iter().filter_map(|(_, call)| match call {
            ApiCall::BindPod { pod, node } => Some(format!("bind {} to {node}", pod.name)),
            ApiCall::Write(write) => Some(in_short(write)),
            _ => None,
        });
        calls.collect()
    }

    /// The events since the last time.
    fn events(&mut self) -> Vec<String> {
        self.world.take_events()
    }
}

/// A JSON merge patch without deletions.
fn merge(fields: &mut Value, patch: &Value) {
    match (fields, patch) {
        (Value::Object(fields), Value::Object(patch)) => {
            for (name, value) in patch {
                merge(fields.entry(name).or_insert(Value::Null), value);
            }
        }
        (fields, patch) => *fields = patch.clone(),
    }
}

fn in_short(write: &Write) -> String {
    let name = &write.object().name;
    let Action::Patch(body) = write.action() else {
        panic!("volumes and claims are patched, got {write:?}");
    };
    match body["spec"]["claimRef"]["name"].as_str() {
        Some(claim) => format!("{name} to {claim}"),
        None => {
            let node = body["metadata"]["annotations"][SELECTED].as_str();
            format!("{name} on {}", node.unwrap_or_default())
        }
    }
}

fn error(kind: CallErrorKind) -> CallError {
    CallError::new(kind, format!("{kind:?}"))
}

fn scheduled(name: &str, node: &str) -> String {
    format!("Scheduled Successfully assigned default/{name} to {node}")
}

/// A volume that is there is given to the claim, on the node from which it can be reached; the pod is bound when the
/// claim is.
#[test]
fn a_volume_is_bound_for_the_node_of_the_pod() {
    let mut c = Cluster::new(&["n1", "n2"]);
    c.claim("c", "local").volume("v", "n2");
    c.world.pod(using("p", &["c"]));
    assert_eq!(c.world.attempt_named(), "p on n2");
    assert_eq!(c.world.scheduler.cache().assumed_objects(), 1);
    assert_eq!(c.calls(), ["v to c"]);
    assert_eq!(c.answer_write(), "v");
    assert_eq!(c.calls(), [""; 0], "no watch has shown the volume as bound");
    c.show("v");
    assert_eq!(c.world.scheduler.cache().assumed_objects(), 0);
    let volume = &c.stored["v"].1;
    assert_eq!(
        volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"],
        "yes"
    );
    assert_eq!(volume["spec"]["claimRef"]["uid"], "uid-c");
    assert_eq!(c.calls(), [""; 0], "the claim does not know yet");
    c.bind("c", "v");
    assert_eq!(c.calls(), ["bind p to n2"]);
    c.world.answer_all();
    assert_eq!(c.events(), [scheduled("p", "n2")]);
    let labels = ["persistent_volume_update", "success"];
    assert_eq!(c.world.metric(Metric::AsyncApiCallExecutions, &labels), 1.0);
    assert_eq!(c.world.scheduler.bindings_in_flight(), 0);
}

/// A claim of a class that waits for its first consumer: the node is selected, the provisioner does the rest.
#[test]
fn a_volume_is_made_for_the_node_of_the_pod() {
    let mut c = Cluster::new(&["n1"]);
    c.claim("c", "csi");
    c.world.pod(using("p", &["c"]));
    assert_eq!(c.world.attempt_named(), "p on n1");
    assert_eq!(c.calls(), ["c on n1"]);
    assert_eq!(c.answer_write(), "c");
    c.show("c");
    // Nothing polls: the next thing that time brings is the end of the wait.
    c.world.answer_all();
    let end = c.world.now + Duration::from_secs(600);
    let wake = c.world.scheduler.next_wake(c.world.now);
    assert!(wake.is_none_or(|wake| wake <= end), "{wake:?}");
    assert_eq!(c.calls(), [""; 0]);
    c.provision("c");
    assert_eq!(c.calls(), ["bind p to n1"]);
    c.world.answer_all();
    assert_eq!(c.events(), [scheduled("p", "n1")]);
    let labels = ["persistent_volume_claim_update", "success"];
    assert_eq!(c.world.metric(Metric::AsyncApiCallExecutions, &labels), 1.0);
}

/// C-39: binding takes time, so the node is announced before.
#[test]
fn the_node_is_announced_before_the_volumes_are_bound() {
    let mut c = Cluster::new(&["n1"]);
    c.claim("c", "csi");
    c.world.pod(using("p", &["c"]));
    c.world.attempt_named();
    let announced = c.world.calls.iter().any(|(_, call)| {
        matches!(call, ApiCall::PatchPodStatus { nominated_node: Some(node), .. } if *node == "n1")
    });
    assert!(announced, "{:?}", c.world.calls);
}

/// The next pod sees the volume as taken, before anything was written; it is tried again when the volume is free
/// after all, by that and not by a flush.
#[test]
fn two_pods_in_a_row_do_not_take_one_volume() {
    for (situation, refusal) in [
        ("the first gets it", None),
        ("the write is refused", Some(CallErrorKind::Refused)),
    ] {
        let mut c = Cluster::new(&["n1"]);
        c.claim("c", "local").claim("d", "local").volume("v", "n1");
        c.world.pod(using("first", &["c"]));
        c.world.pod(using("second", &["d"]));
        let mut attempts = c.world.attempts();
        attempts.sort();
        let refused = format!("second: 0/1 nodes are available: {NOTHING_TO_BIND}");
        assert_eq!(attempts, ["first on n1".to_owned(), refused], "{situation}");
        assert_eq!(c.world.place_of("second"), Some(QueuedIn::Unschedulable));
        match refusal {
            Some(kind) => {
                c.refuse_write(kind);
                let second = c.world.place_of("second");
                assert!(
                    second.is_some_and(QueuedIn::is_backoff),
                    "{situation}: {second:?}"
                );
            }
            None => {
                c.answer_write();
                c.show("v").bind("c", "v");
                c.world.answer_all();
                assert!(c.events().contains(&scheduled("first", "n1")));
            }
        }
    }
}

/// PL-145: an older version that a watch shows late does not free a volume, and neither does one whose
/// write has been made and not been shown.
#[test]
fn a_taken_volume_stays_taken_until_something_newer_is_shown() {
    let mut c = Cluster::new(&["n1"]);
    c.claim("c", "local").volume("v", "n1");
    let before = c.object("v");
    c.world.pod(using("first", &["c"]));
    assert_eq!(c.world.attempt_named(), "first on n1");
    c.world.applied(before.clone());
    c.answer_write();
    c.world.applied(before);
    c.claim("d", "local");
    c.world.pod(using("second", &["d"]));
    let refused = format!("second: 0/1 nodes are available: {NOTHING_TO_BIND}");
    assert_eq!(c.world.attempt_named(), refused);
    // Its owner takes the volume back: that is newer.
    c.change("v", |volume| {
        volume["spec"]["claimRef"] = Value::Null;
        volume["status"]["phase"] = json!("Available");
    });
    let reset = "FailedScheduling running PreBind plugin \"VolumeBinding\": binding volumes: ClaimRef got reset for \
                 pv \"v\"";
    assert!(c.events().iter().any(|event| event == reset));
    c.world.wait(20);
    assert!(!c.world.attempts().is_empty(), "some pod gets it");
    assert_eq!(c.world.scheduler.cache().assumed_objects(), 1);
}

/// If another client wrote first, all assumptions are undone, and the pod is tried again with the current state.
#[test]
fn a_refused_write_is_undone_and_decided_anew() {
    let mut c = Cluster::new(&["n1"]);
    c.claim("c", "local").volume("v", "n1").volume("w", "n1");
    c.world.pod(using("p", &["c"]));
    assert_eq!(c.world.attempt_named(), "p on n1");
    assert_eq!(c.calls(), ["v to c"]);
    // Another program gives the volume away, and the watch is late.
    let (kind, mut fields) = c.stored["v"].clone();
    fields["spec"]["claimRef"] = json!({"namespace": "default", "name": "x", "uid": "uid-x"});
    c.store(kind, fields);
    assert_eq!(c.answer_write(), "v");
    let events = c.events();
    let failed = "FailedScheduling running PreBind plugin \"VolumeBinding\": Conflict";
    assert_eq!(events, [failed]);
    assert_eq!(c.world.scheduler.cache().assumed_objects(), 0);
    assert_eq!(c.world.place_of("p"), Some(QueuedIn::ErrorBackoff));
    c.show("v");
    c.world.answer_all();
    c.world.wait(10);
    assert_eq!(c.world.attempt_named(), "p on n1");
    assert_eq!(c.calls(), ["w to c"]);
    c.answer_write();
    c.show("w").bind("c", "w");
    c.world.answer_all();
    assert_eq!(c.events(), [scheduled("p", "n1")]);
}

/// The second of two writes is refused: the first write is kept, and the next attempt continues from there.
#[test]
fn what_was_written_is_found_by_the_next_attempt() {
    let mut c = Cluster::new(&["n1", "n2"]);
    c.claim("c", "local").claim("d", "csi").volume("v", "n1");
    c.world.pod(using("p", &["c", "d"]));
    assert_eq!(c.world.attempt_named(), "p on n1");
    assert_eq!(c.answer_write(), "v");
    assert_eq!(c.calls(), ["d on n1"]);
    c.refuse_write(CallErrorKind::Refused);
    // The volume is written, but the watch does not show it yet: no other pod may get it.
    assert_eq!(c.world.scheduler.cache().assumed_objects(), 1);
    c.claim("e", "local");
    c.world.pod(using("thief", &["e"]));
    assert!(
        c.world.attempt_named().starts_with("thief: 0/2"),
        "the volume is taken"
    );
    c.show("v");
    c.world.wait(20);
    c.world.attempts();
    assert_eq!(c.calls(), ["d on n1"], "the volume was given already");
    c.answer_write();
    c.show("d").bind("c", "v").provision("d");
    c.world.answer_all();
    assert!(c.events().contains(&scheduled("p", "n1")));
}

/// PL-143.
#[test]
fn a_pod_whose_claims_are_not_bound_in_time_is_tried_again() {
    let mut c = Cluster::new(&["n1", "n2"]);
    c.claim("c", "csi");
    c.world.pod(using("p", &["c"]));
    let placed = c.world.attempt_named();
    let node = placed.trim_start_matches("p on ").to_owned();
    c.answer_write();
    c.show("c");
    c.world.answer_all();
    c.events();
    c.world.wait(599);
    assert_eq!(c.events(), [""; 0]);
    assert_eq!(c.world.scheduler.bindings_in_flight(), 1);
    c.world.wait(1);
    let failures = Metric::VolumeSchedulingStageErrors;
    assert_eq!(c.world.metric(failures, &["bind"]), 1.0);
    let late = "FailedScheduling running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    assert_eq!(c.events(), [late]);
    assert_eq!(c.world.scheduler.bindings_in_flight(), 0);
    assert_eq!(c.world.place_of("p"), Some(QueuedIn::ErrorBackoff));
    // The claim is still assigned to that node, so the pod cannot use another one.
    c.world.answer_all();
    c.world.wait(20);
    assert_eq!(c.world.attempt_named(), format!("p on {node}"));
    assert_eq!(c.calls(), [""; 0], "there is nothing to write");
    c.provision("c");
    assert_eq!(c.calls(), [format!("bind p to {node}")]);
}

/// A restarted scheduler finds the claim annotated, or the volume reserved, by the previous process.
#[test]
fn what_was_begun_before_a_restart_goes_on() {
    let mut c = Cluster::new(&["n1", "n2"]);
    let mut fields = claim_fields("c", "csi");
    fields["metadata"]["annotations"] = json!({SELECTED: "n2"});
    c.store(Kind::PersistentVolumeClaim, fields);
    c.show("c").claim("d", "local");
    let mut fields = volume_fields("v", "local", "n2");
    fields["spec"]["claimRef"] = json!({"namespace": "default", "name": "d", "uid": "uid-d"});
    c.store(Kind::PersistentVolume, fields);
    c.show("v");
    c.world.pod(using("p", &["c", "d"]));
    assert_eq!(c.world.attempt_named(), "p on n2");
    assert_eq!(c.calls(), [""; 0], "everything is written");
    c.bind("d", "v");
    assert_eq!(c.calls(), [""; 0], "one is still to be made");
    c.provision("c");
    assert_eq!(c.calls(), ["bind p to n2"]);
}

/// The ends of the wait before its time: each is seen at once, and the pod is tried again or forgotten.
#[test]
fn the_wait_ends_when_it_has_become_pointless() {
    type Act = fn(&mut Cluster);
    let cases: [(&str, Act, &str); 4] = [
        (
            "the provisioner gives up",
            |c| {
                c.change("c", |claim| {
                    claim["metadata"]["annotations"] =
                        json!({"volume.kubernetes.io/storage-provisioner": "x"});
                });
            },
            "provisioning failed for PVC \"c\"",
        ),
        (
            "the claim is gone",
            |c| c.gone("c"),
            "failed to check provisioning pvc: could not find v1.PersistentVolumeClaim \"default/c\"",
        ),
        (
            "the node is gone",
            |c| {
                c.world.gone(node("n1").object());
            },
            "failed to get node \"n1\": node \"n1\" not found",
        ),
        (
            "the list without the claim comes after a gap",
            |c| {
                let kind = Kind::PersistentVolumeClaim;
                let change = ClusterChange::Replaced(kind, Vec::new());
                c.world.scheduler.apply(change, c.world.now);
            },
            "failed to check provisioning pvc: could not find v1.PersistentVolumeClaim \"default/c\"",
        ),
    ];
    for (situation, act, why) in cases {
        let mut c = Cluster::new(&["n1"]);
        c.claim("c", "csi");
        c.world.pod(using("p", &["c"]));
        c.world.attempt_named();
        c.answer_write();
        c.show("c");
        c.world.answer_all();
        c.events();
        act(&mut c);
        c.world.wait(0);
        let expected = format!(
            "FailedScheduling running PreBind plugin \"VolumeBinding\": binding volumes: {why}"
        );
        assert_eq!(c.events(), [expected], "{situation}");
        assert_eq!(c.world.scheduler.bindings_in_flight(), 0, "{situation}");
        let place = c.world.place_of("p");
        assert_eq!(place, Some(QueuedIn::ErrorBackoff), "{situation}");
    }
}

/// After the provisioner has given up on one node, another one is tried.
#[test]
fn another_node_is_tried_when_provisioning_fails() {
    let mut c = Cluster::new(&["n1"]);
    c.claim("c", "csi");
    c.world.pod(using("p", &["c"]));
    assert_eq!(c.world.attempt_named(), "p on n1");
    c.answer_write();
    c.show("c");
    c.world.answer_all();
    c.world.node(node("n2").label("disk", "n2"));
    c.world
        .node(node("n1").label("disk", "n1").unschedulable(true));
    c.change("c", |claim| {
        claim["metadata"]["annotations"] = json!({"volume.kubernetes.io/storage-provisioner": "x"});
    });
    c.world.answer_all();
    c.world.wait(20);
    assert_eq!(c.world.attempt_named(), "p on n2");
    assert_eq!(c.calls(), ["c on n2"]);
}

/// C-42: the pod is stopped while it waits, or deleted: the wait is over, and nothing is left behind.
#[test]
fn a_pod_that_is_deleted_waits_no_longer() {
    for written in [false, true] {
        let mut c = Cluster::new(&["n1"]);
        c.claim("c", "csi");
        c.world.pod(using("p", &["c"]));
        c.world.attempt_named();
        if written {
            c.answer_write();
            c.show("c");
        }
        c.world.deleted("p");
        if !written {
            c.answer_write();
            c.show("c");
        }
        c.world.answer_all();
        assert_eq!(
            c.world.scheduler.bindings_in_flight(),
            0,
            "written: {written}"
        );
        assert_eq!(
            c.world.scheduler.cache().assumed_objects(),
            0,
            "written: {written}"
        );
        assert_eq!(
            c.world.scheduler.cache().assumed_pods(),
            0,
            "written: {written}"
        );
    }
}

/// The answer to a write is lost: the watch shows the result, and the next write is not refused because of its version.
#[test]
fn a_lost_answer_does_no_harm() {
    for shown_first in [true, false] {
        let mut c = Cluster::new(&["n1"]);
        c.claim("c", "csi");
        c.world.pod(using("p", &["c"]));
        c.world.attempt_named();
        c.answer_write_with(|_| Some(Err(error(CallErrorKind::Timeout))));
        if shown_first {
            c.show("c");
            c.world.wait(1);
        } else {
            // Sent again, and refused: a later version is there, ours.
            c.world.wait(1);
            c.answer_write();
            c.show("c");
            c.world.wait(1);
        }
        c.provision("c");
        assert_eq!(c.calls(), ["bind p to n1"], "shown first: {shown_first}");
    }
}

/// A claim that two pods share: the second waits for the same volume, and writes nothing.
#[test]
fn pods_share_a_claim() {
    let mut c = Cluster::new(&["n1", "n2"]);
    c.claim("c", "csi");
    c.world.pod(using("first", &["c"]));
    c.world.pod(using("second", &["c"]));
    let attempts = c.world.attempts();
    let nodes: Vec<&str> = attempts
        .iter()
        .filter_map(|a| a.split(" on ").nth(1))
        .collect();
    assert_eq!(nodes.len(), 2, "{attempts:?}");
    assert_eq!(nodes[0], nodes[1], "where the volume will be");
    assert_eq!(c.calls(), [format!("c on {}", nodes[0])]);
    c.answer_write();
    c.show("c").provision("c");
    let bound = ["first", "second"].map(|pod| format!("bind {pod} to {}", nodes[0]));
    let mut calls = c.calls();
    calls.sort();
    assert_eq!(calls, bound);
}

/// Pods with claims of their own share the answers about nodes. A volume that is taken changes the answer of its node.
#[test]
fn pods_with_claims_of_their_own_share_answers() {
    let nodes = ["n1", "n2", "n3"];
    for class in ["csi", "local"] {
        let mut c = Cluster::new(&nodes);
        for node in nodes {
            c.volume(&format!("v-{node}"), node);
            c.claim(&format!("c-{node}"), class);
            c.world
                .pod(using(&format!("p-{node}"), &[&format!("c-{node}")]));
        }
        let attempts = c.world.attempts();
        let placed = attempts.iter().filter_map(|a| a.split(" on ").nth(1));
        let mut placed: Vec<&str> = placed.collect();
        placed.sort_unstable();
        assert_eq!(placed.len(), 3, "{attempts:?}");
        assert!(class == "csi" || placed == nodes, "{attempts:?}");
        let counts = c.world.scheduler.answer_cache().counts();
        let got = (counts.plain, counts.kept, counts.group_answers);
        assert_eq!(got, (0, 3, 2), "{class}");
    }
}
