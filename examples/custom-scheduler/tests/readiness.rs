//! The conditions and events of pods that a PreEnqueue plugin blocks, and the API requests for them (KEP-5501): Hold,
//! in a control plane that counts every request.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "../../../berth/tests/e2e/mod.rs"]
mod e2e;

use berth_client::request::{self, PODS, Resource};
use custom_scheduler::hold::{HOLD, RELEASED};
use e2e::{Api, Cluster, Kubectl, Running, eventually, scheduled, seconds};
use serde_json::{Value, json};

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_custom-scheduler");

const NAMESPACES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "namespaces",
};
const REPLICA_SETS: Resource = Resource {
    group: "apps",
    version: "v1",
    plural: "replicasets",
};

const NOT_READY: &str = "NotReadyForScheduling";
/// The message of Hold for a pod that is held for a budget.
const BUDGET: &str = "held for \"budget\" until namespace \"default\" is labelled example.com/released=budget, or the \
                      pod loses its label example.com/hold";
/// The message for a pod that is held for a freeze.
const FREEZE: &str = "held for \"freeze\": bis Montag – fragt Zoë";

/// Hold, and its messages.
fn config(messages: &Value) -> String {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "schedulerName": "default-scheduler",
            "plugins": {"preEnqueue": {"enabled": [{"name": "Hold"}]}},
            "pluginConfig": [{"name": "Hold", "args": {"messages": messages}}],
        }],
    })
    .to_string()
}

/// A control plane, a scheduler, and the numbers of writes so far.
struct World {
    server: Cluster,
    api: Api,
    scheduler: Option<Running>,
    creations: f64,
    patches: f64,
}

impl World {
    fn start() -> Self {
        let server = Cluster::apiserver("readiness", &["--nodes", "3"]);
        Self {
            api: Api::of(&server),
            server,
            scheduler: None,
            creations: 0.0,
            patches: 0.0,
        }
    }

    /// Kills the scheduler without a graceful shutdown, and starts another one.
    fn restart_with(&mut self, messages: &Value) {
        self.scheduler = None;
        let config = self.server.scratch.file("config.yaml", &config(messages));
        let config = config.display().to_string();
        self.scheduler = Some(self.server.scheduler(&["--config", &config]));
    }

    fn scheduler(&self) -> &Running {
        self.scheduler.as_ref().expect("a scheduler runs")
    }

    /// Checks the number of creations (pods, bindings, events) and patches of all clients since the last call. A
    /// surplus request fails this call or, if it arrives late, the next one.
    fn wrote(&mut self, when: &str, creations: u32, patches: u32) {
        self.creations += f64::from(creations);
        self.patches += f64::from(patches);
        let expected = [self.creations, self.patches];
        let requests = || self.server.requests(["POST", "PATCH"]);
        eventually(when, || {
            let so_far = requests();
            (so_far[0] >= expected[0] && so_far[1] >= expected[1]).then_some(())
        });
        assert_eq!(requests(), expected, "POST and PATCH: {when}");
    }

    fn hold(&self, name: &str, reason: &str) -> Value {
        self.api.create_pod(name, &json!({HOLD: reason}))
    }

    fn relabel(&self, name: &str, reason: Value) {
        self.api
            .label(PODS, "default", name, &json!({HOLD: reason}));
    }

    /// Waits until a pod's condition and its event have this message.
    fn reports(&self, name: &str, message: &str) -> Value {
        let condition = eventually("the pod states why it is not ready", || {
            let condition = scheduled(&self.api.pod(name));
            (condition["message"] == message).then_some(condition)
        });
        assert_eq!(condition["status"], "False");
        assert_eq!(condition["reason"], NOT_READY);
        eventually("an event reports the same", || {
            let events = self.api.events(name, NOT_READY);
            let mut notes = events.iter().filter_map(|e| e["message"].as_str());
            let reports = |note: &str| match note.strip_suffix(" ...") {
                // The API takes no longer ones.
                Some(begin) => note.len() >= 1020 && message.starts_with(begin),
                None => note == message,
            };
            notes.any(reports).then_some(())
        });
        condition
    }
}

/// Every write for blocked pods is correct, made once, and made after five seconds.
#[test]
fn a_blocked_pod_is_reported_with_few_writes() {
    let mut world = World::start();
    world.restart_with(&json!({"freeze": "bis Montag – fragt Zoë"}));
    a_held_pod_states_what_it_is_held_for(&mut world);
    a_block_that_ends_within_five_seconds_is_not_reported(&mut world);
    users_go_on_working_with_it(&mut world);
    a_scheduler_that_takes_over_repeats_nothing(&mut world);
    changes_without_a_running_scheduler_are_handled_later(&mut world);
    each_of_many_pods_is_reported_once(&mut world);
}

/// KEP-5501: one condition and one event after five seconds. A gated pod has its condition already (KEP-3521).
fn a_held_pod_states_what_it_is_held_for(world: &mut World) {
    let created = world.hold("held", "budget");
    let gated = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gated"},
        "spec": {
            "schedulingGates": [{"name": "example.com/quota"}],
            "containers": [{"name": "c", "image": "registry.example/c:1"}],
        },
    });
    world.api.send(&request::create(PODS, "default", &gated));
    let condition = world.reports("held", BUDGET);
    assert_eq!(condition["observedGeneration"], 1);
    // Both times are truncated to whole seconds, which never turns five seconds into less.
    let waited = seconds(&condition["lastTransitionTime"])
        - seconds(&created["metadata"]["creationTimestamp"]);
    assert!((5..30).contains(&waited), "reported after {waited} s");
    let event = world.api.event("held", NOT_READY).unwrap_or_default();
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["action"], "Scheduling");
    assert!(world.api.event("held", "FailedScheduling").is_none());
    assert_eq!(
        scheduled(&world.api.pod("gated"))["reason"],
        "SchedulingGated"
    );
    world.wrote("two pods; the message of one of them", 2 + 1, 1);

    let scheduler = world.scheduler();
    assert_eq!(scheduler.pending("gated"), 2.0);
    assert_eq!(scheduler.pending("unschedulable"), 0.0);
    for plugin in ["Hold", "SchedulingGates"] {
        let label = format!("plugin=\"{plugin}\"");
        let kept_out = scheduler.metric("scheduler_unschedulable_pods", &label);
        assert_eq!(kept_out, 1.0, "{plugin}");
    }
    let Some(kubectl) = Kubectl::find(&world.server) else {
        return;
    };
    let described = kubectl.ok(&["describe", "pod", "held"]);
    let notified = |line: &str| line.contains(NOT_READY) && line.contains(BUDGET);
    assert!(described.lines().any(notified), "{described}");
    let row = kubectl.ok(&["get", "pod", "held", "--no-headers"]);
    assert!(row.contains("Pending"), "{row}");
}

/// KEP-5501: a block that ends within five seconds causes neither a patch nor an event. If the message changes during
/// that time, the report contains the last message, and the five seconds do not start again.
fn a_block_that_ends_within_five_seconds_is_not_reported(world: &mut World) {
    for name in ["released", "released-later", "deleted"] {
        world.hold(name, "budget");
    }
    let created = world.hold("changes", "budget");
    world.relabel("released", Value::Null);
    // Held for one reason after another, then released.
    world.relabel("released-later", json!("freeze"));
    world.relabel("released-later", Value::Null);
    let uid = world.api.pod("deleted")["metadata"]["uid"].clone();
    let uid = uid.as_str().unwrap_or_default().into();
    let delete = request::delete_pod(&"default".into(), &"deleted".into(), &uid);
    world.api.send(&delete);
    world.relabel("changes", json!("freeze"));
    // A change of a status that is already written is not written at once either.
    world.relabel("held", json!("freeze"));
    for name in ["released", "released-later"] {
        let condition = scheduled(&world.api.bound(name));
        assert_eq!(condition["status"], "True", "{name}");
    }
    assert_eq!(scheduled(&world.api.pod("held"))["message"], BUDGET);

    let notified = world.reports("changes", FREEZE);
    let waited = seconds(&notified["lastTransitionTime"])
        - seconds(&created["metadata"]["creationTimestamp"]);
    assert!((5..30).contains(&waited), "reported after {waited} s");
    let before = scheduled(&world.api.pod("held"))["lastTransitionTime"].clone();
    let now = world.reports("held", FREEZE);
    assert_eq!(now["lastTransitionTime"], before, "False before and after");
    for name in ["released", "released-later", "deleted"] {
        assert_eq!(world.api.event(name, NOT_READY), None, "{name}");
    }
    // Creations: four pods; two bindings with their events; one event for each of the two pods that stay held. Patches:
    // five labels, and the conditions of the two held pods.
    world.wrote("what is resolved in time", 4 + 2 * 2 + 2, 5 + 2);
    let calls = |of| {
        world
            .scheduler()
            .metric("scheduler_async_api_call_execution_total", of)
    };
    assert_eq!(calls("call_type=\"pod_status_patch\""), 3.0);
    assert_eq!(calls("call_type=\"pod_binding\""), 2.0);
    assert_eq!(calls("result=\"error\""), 0.0);
}

/// Applying and replacing a blocked pod does not change its status, and the scheduler does not write it again.
fn users_go_on_working_with_it(world: &mut World) {
    let Some(kubectl) = Kubectl::find(&world.server) else {
        return;
    };
    let before = scheduled(&world.api.pod("held"));
    let manifest = |note: &str| {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "held", "labels": {HOLD: "freeze"}, "annotations": {"note": note}},
            "spec": {"containers": [{"name": "c", "image": "registry.example/c:2"}]},
        });
        world.server.scratch.file("held.yaml", &pod.to_string())
    };
    kubectl.apply(&manifest("first"));
    kubectl.apply(&manifest("second"));
    let live = kubectl.ok(&["get", "pod", "held", "-o", "json"]);
    let live = live.replace("\"second\"", "\"third\"");
    let live = world.server.scratch.file("live.json", &live);
    kubectl.ok(&["replace", "-f", &live.display().to_string()]);
    let after = world.api.pod("held");
    assert_eq!(after["metadata"]["annotations"]["note"], "third");
    assert_eq!(
        after["spec"]["containers"][0]["image"],
        "registry.example/c:2"
    );
    assert_eq!(scheduled(&after), before);
    world.wrote("what kubectl wrote", 0, 2);
}

/// KEP-5501: the pod's condition is the only memory of a scheduler. A message that is already in it is not written
/// again.
fn a_scheduler_that_takes_over_repeats_nothing(world: &mut World) {
    let pods = ["held", "changes", "gated"];
    let conditions = |world: &World| pods.map(|name| scheduled(&world.api.pod(name)));
    let before = conditions(world);
    world.restart_with(&json!({"freeze": "bis Montag – fragt Zoë"}));
    assert_eq!(world.scheduler().pending("gated"), 3.0);
    // The report of a new pod shows that five seconds have passed, for the other pods as well.
    world.hold("witness", "budget");
    world.reports("witness", BUDGET);
    assert_eq!(conditions(world), before);
    world.wrote("after a restart", 1 + 1, 1);
}

/// Pods that are released while no scheduler runs are bound, and pods with a new reason get a new message. The
/// condition contains a message of any length in full, and the event contains it up to the length limit.
fn changes_without_a_running_scheduler_are_handled_later(world: &mut World) {
    world.scheduler = None;
    world.relabel("changes", Value::Null);
    world.relabel("held", json!("budget"));
    let long = "ä".repeat(1500);
    world.restart_with(&json!({"budget": long}));
    let long = format!("held for \"budget\": {long}");
    assert_eq!(scheduled(&world.api.bound("changes"))["status"], "True");
    for name in ["held", "witness"] {
        world.reports(name, &long);
    }
    // Two labels, two conditions. A binding and its event; another instance's events are not the same series.
    world.wrote("what has changed", 2 + 2, 2 + 2);
}

/// For many pods, there is one patch and one event each, and no further write when they are admitted.
fn each_of_many_pods_is_reported_once(world: &mut World) {
    const MANY: u32 = 200;
    let labels = json!({"app": "many", HOLD: "budget"});
    let many = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "many"},
        "spec": {
            "replicas": MANY,
            "selector": {"matchLabels": {"app": "many"}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
            },
        },
    });
    world
        .api
        .send(&request::create(REPLICA_SETS, "default", &many));
    world.wrote("many pods are rejected", 1 + MANY, MANY);
    assert_eq!(world.scheduler().pending("gated"), f64::from(3 + MANY));

    // They and the two that were held before.
    world
        .api
        .label(NAMESPACES, "", "default", &json!({RELEASED: "budget"}));
    world.wrote("many pods are admitted", 2 * (MANY + 2), 1);
    let scheduler = world.scheduler();
    assert_eq!(scheduler.pending("gated"), 1.0, "the one with a gate");
    assert_eq!(scheduler.pending("unschedulable"), 0.0);
    let flushed = scheduler.metric("scheduler_pod_scheduled_after_flush_total", "");
    assert_eq!(flushed, 0.0, "all were woken by an event");
    let pods = world.api.pods();
    let bound = pods.iter().filter(|pod| scheduled(pod)["status"] == "True");
    assert_eq!(bound.count() as u32, 3 + MANY + 2);
}
