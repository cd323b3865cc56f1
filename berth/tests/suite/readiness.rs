//! Pod Scheduling Readiness (KEP-3521) in a whole cluster: the behaviour that its documentation specifies for users,
//! controllers and operators.

use crate::e2e::{Api, Cluster, Kubectl, eventually, scheduled};
use berth_client::request::{self, ApiRequest, PODS, Resource};
use serde_json::{Value, json};

const DEPLOYMENTS: Resource = Resource {
    group: "apps",
    version: "v1",
    plural: "deployments",
};
const NODES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "nodes",
};

/// Profiles whose configuration of PreEnqueue plugins differs from the default.
const PROFILES: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: by-multipoint
  plugins:
    multiPoint: {disabled: [{name: '*'}], enabled: [{name: SchedulingGates}, {name: PrioritySort}, {name: DefaultBinder}]}
- schedulerName: by-pre-enqueue
  plugins:
    preEnqueue: {disabled: [{name: '*'}], enabled: [{name: SchedulingGates}]}
- schedulerName: without-gates
  plugins:
    preEnqueue: {disabled: [{name: SchedulingGates}]}
";

/// A cluster whose nodes are called fast and slow by their label `disk`.
struct World {
    cluster: Cluster,
    api: Api,
}

impl World {
    fn start() -> Self {
        let scratch = crate::e2e::Scratch::new("gates-config");
        let config = scratch.file("config.yaml", PROFILES).display().to_string();
        let cluster = Cluster::up("gates", &["--nodes", "2", "--config", &config]);
        let api = Api::of(&cluster);
        // Existing labels of nodes at the first list are not changes of labels.
        eventually("the scheduler knows the nodes", || {
            let nodes = cluster.metric("scheduler_cache_size", "type=\"nodes\"");
            (nodes == 2.0).then_some(())
        });
        for (node, disk) in [("berth-node-1", "fast"), ("berth-node-2", "slow")] {
            api.label(NODES, "", node, &json!({"disk": disk}));
        }
        eventually("the scheduler has seen the labels", || {
            let seen = "scheduler_event_handling_duration_seconds_count";
            (cluster.metric(seen, "NodeUpdateNodeLabel") >= 2.0).then_some(())
        });
        Self { cluster, api }
    }

    /// Creates a pod with gates and the other fields of its spec.
    fn gated(&self, name: &str, gates: &[&str], spec: Value) {
        let mut spec = spec;
        let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
        spec["schedulingGates"] = gates.into();
        spec["containers"] = json!([{"name": "c", "image": "registry.example/c:1"}]);
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.api.send(&request::create(PODS, "default", &pod));
    }

    fn patch(&self, name: &str, spec: &Value) -> ApiRequest {
        request::merge_patch(PODS, "default", name, &json!({"spec": spec}))
    }

    /// Removes all gates of a pod, and applies the rest of the patch.
    fn ungate(&self, name: &str) {
        self.api
            .send(&self.patch(name, &json!({"schedulingGates": null})));
    }

    /// Sends a request that must be refused and returns the reason.
    fn refused(&self, request: &ApiRequest) -> (Option<u16>, String) {
        let answer = self
            .api
            .runtime
            .block_on(self.api.transport.execute(request));
        let error = answer.expect_err("this is refused");
        (error.code(), error.to_string())
    }
}

#[test]
fn gates_do_what_their_documentation_states() {
    let world = World::start();
    a_deployment_of_gated_pods_costs_nothing_until_they_are_ready(&world);
    what_is_tightened_meanwhile_decides_where_the_pod_goes(&world);
    nothing_is_widened_and_no_gate_comes_late(&world);
    profiles_state_whether_gates_count(&world);
    kubectl_shows_and_edits_gates(&world);
}

/// Controllers remove the gates of a pod template. Until then the scheduler neither writes nor tries the pods.
fn a_deployment_of_gated_pods_costs_nothing_until_they_are_ready(world: &World) {
    let World { cluster, api } = world;
    let labels = json!({"app": "batch"});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "batch"},
        "spec": {
            "replicas": 6,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "schedulingGates": [{"name": "example.com/quota"}, {"name": "example.com/data"}],
                    "containers": [{"name": "c", "image": "registry.example/c:1"}],
                },
            },
        },
    });
    api.send(&request::create(DEPLOYMENTS, "default", &deployment));
    eventually("the pods wait behind their gates", || {
        (cluster.pending("gated") == 6.0).then_some(())
    });
    for pod in api.pods() {
        let condition = scheduled(&pod);
        assert_eq!(condition["status"], "False");
        assert_eq!(condition["reason"], "SchedulingGated");
        let message = "Scheduling is blocked due to non-empty scheduling gates";
        assert_eq!(condition["message"], message);
    }
    let plugin = "plugin=\"SchedulingGates\"";
    assert_eq!(cluster.metric("scheduler_unschedulable_pods", plugin), 6.0);
    let timed = "scheduler_plugin_execution_duration_seconds_count";
    assert!(cluster.metric(timed, plugin) >= 1.0, "the first is timed");
    for (metric, label) in [
        ("scheduler_schedule_attempts_total", ""),
        ("scheduler_async_api_call_execution_total", ""),
        ("scheduler_pending_async_api_calls", ""),
        ("scheduler_queue_incoming_pods_total", "queue=\"active\""),
    ] {
        assert_eq!(cluster.metric(metric, label), 0.0, "{metric}");
    }
    assert_eq!(cluster.pending("unschedulable"), 0.0);

    // The gate of one controller, then the gate of the other.
    let pods = api.pods();
    let names: Vec<&str> = pods
        .iter()
        .filter_map(|p| p["metadata"]["name"].as_str())
        .collect();
    for left in [json!([{"name": "example.com/quota"}]), json!([])] {
        assert_eq!(cluster.pending("gated"), 6.0);
        for name in &names {
            api.send(&world.patch(name, &json!({"schedulingGates": left})));
        }
    }
    for name in &names {
        assert_eq!(scheduled(&api.bound(name))["status"], "True");
        assert!(api.event(name, "FailedScheduling").is_none(), "{name}");
    }
    assert_eq!(cluster.pending("gated"), 0.0);
    assert_eq!(cluster.metric("scheduler_unschedulable_pods", plugin), 0.0);
    let calls = |of| cluster.metric("scheduler_async_api_call_execution_total", of);
    assert_eq!(calls("call_type=\"pod_status_patch\""), 0.0);
    eventually("the deployment is available", || {
        let deployment = api.send(&request::get(DEPLOYMENTS, "default", "batch"));
        (deployment["status"]["availableReplicas"] == 6).then_some(())
    });
}

fn required(terms: &Value) -> Value {
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }}})
}

fn disk_in(values: &[&str]) -> Value {
    json!({"key": "disk", "operator": "In", "values": values})
}

/// A constraint that narrows the choice of nodes may be added while a gate exists, up to the patch that removes the
/// last gate.
fn what_is_tightened_meanwhile_decides_where_the_pod_goes(world: &World) {
    let api = &world.api;
    let affine = required(&json!([{"matchExpressions": [disk_in(&["fast", "slow"])]}]));
    let tighter = json!([{"matchExpressions": [disk_in(&["fast", "slow"]), disk_in(&["slow"])]}]);
    for (name, spec, tightened) in [
        (
            "selector",
            json!({}),
            json!({"nodeSelector": {"disk": "slow"}}),
        ),
        (
            "affinity-set",
            json!({}),
            required(&json!([{"matchExpressions": [disk_in(&["slow"])]}])),
        ),
        ("affinity-tightened", affine, required(&tighter)),
    ] {
        world.gated(name, &["example.com/place"], spec);
        api.send(&world.patch(name, &tightened));
        world.ungate(name);
        let pod = api.bound(name);
        assert_eq!(pod["spec"]["nodeName"], "berth-node-2", "{name}");
    }
    // In one patch with the last gate; preferences may change as they like.
    world.gated("at-once", &["example.com/place"], json!({}));
    let preferred = json!({"affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [disk_in(&["fast"])]}},
        ],
    }}});
    api.send(&world.patch("at-once", &preferred));
    let last = json!({"schedulingGates": null, "nodeSelector": {"disk": "slow"}, "affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": null,
    }}});
    api.send(&world.patch("at-once", &last));
    assert_eq!(api.bound("at-once")["spec"]["nodeName"], "berth-node-2");
    // A pod whose node selector matches no node is reported as unschedulable once its gates are removed, not before.
    world.gated("nowhere", &["example.com/place"], json!({}));
    api.send(&world.patch("nowhere", &json!({"nodeSelector": {"disk": "none"}})));
    let gated = scheduled(&api.pod("nowhere"));
    assert_eq!(gated["reason"], "SchedulingGated");
    world.ungate("nowhere");
    let failed = eventually("the pod states why it waits", || {
        let condition = scheduled(&api.pod("nowhere"));
        (condition["reason"] == "Unschedulable").then_some(condition)
    });
    assert_eq!(
        failed["lastTransitionTime"], gated["lastTransitionTime"],
        "False before and after"
    );
}

/// Everything else is refused, in the words that clients know.
fn nothing_is_widened_and_no_gate_comes_late(world: &World) {
    let affine = required(&json!([{"matchExpressions": [disk_in(&["fast", "slow"])]}]));
    let mut spec = affine.clone();
    spec["nodeSelector"] = json!({"disk": "fast"});
    world.gated("strict", &["example.com/a", "example.com/b"], spec);
    world.gated("plain", &[], json!({}));
    let terms = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let new_gate = "only deletion is allowed, but found new scheduling gate 'example.com/c'";
    let fields =
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,";
    for (pod, change, notified) in [
        (
            "strict",
            json!({"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/c"}]}),
            format!("spec.schedulingGates[1].name: Forbidden: {new_gate}"),
        ),
        (
            "plain",
            json!({"schedulingGates": [{"name": "example.com/c"}]}),
            format!("spec.schedulingGates[0].name: Forbidden: {new_gate}"),
        ),
        (
            "strict",
            json!({"nodeSelector": {"disk": "slow"}}),
            "spec.nodeSelector: Invalid value: {\"disk\":\"slow\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)".to_owned(),
        ),
        (
            "strict",
            json!({"nodeSelector": null}),
            "spec.nodeSelector: Invalid value: null: only additions to spec.nodeSelector are allowed (no mutations or deletions)".to_owned(),
        ),
        (
            "strict",
            required(&json!([{"matchExpressions": [disk_in(&["fast"])]}])),
            format!("{terms}[0]: Invalid value: {{\"MatchExpressions\":[{{\"Key\":\"disk\",\"Operator\":\"In\",\"Values\":[\"fast\"]}}],\"MatchFields\":null}}: only additions are allowed (no mutations or deletions)"),
        ),
        (
            "strict",
            required(&Value::Null),
            format!("{terms}: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed"),
        ),
        (
            "strict",
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "disk", "labelSelector": {"matchLabels": {"a": "b"}}},
            ]}}}),
            fields.to_owned(),
        ),
        ("plain", json!({"nodeSelector": {"disk": "slow"}}), fields.to_owned()),
    ] {
        let (code, message) = world.refused(&world.patch(pod, &change));
        assert_eq!(code, Some(422), "{change}: {message}");
        assert!(message.contains(&notified), "{change}: {message}");
    }
    let binding = request::bind_pod(
        &"default".into(),
        &"strict".into(),
        &"".into(),
        &"berth-node-1".into(),
    );
    let (code, message) = world.refused(&binding);
    assert_eq!(code, Some(409));
    let notified = "Operation cannot be fulfilled on pods/binding \"strict\": pod strict has non-empty .spec.schedulingGates";
    assert!(message.contains(notified), "{message}");
    let mut placed = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "placed"}});
    placed["spec"] = json!({
        "nodeName": "berth-node-1",
        "schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/a"}],
        "containers": [{"name": "c", "image": "registry.example/c:1"}],
    });
    let (code, message) = world.refused(&request::create(PODS, "default", &placed));
    assert_eq!(code, Some(422));
    for notified in [
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        "spec.schedulingGates[1]: Duplicate value: \"example.com/a\"",
    ] {
        assert!(message.contains(notified), "{message}");
    }
    assert_eq!(
        scheduled(&world.api.pod("strict"))["reason"],
        "SchedulingGated"
    );
}

/// The plugin is configured like any other, at its extension point or at all points. Without it, gated pods are
/// attempted, and the API server refuses to bind them.
fn profiles_state_whether_gates_count(world: &World) {
    let api = &world.api;
    for name in ["by-multipoint", "by-pre-enqueue", "without-gates"] {
        world.gated(name, &["example.com/a"], json!({"schedulerName": name}));
    }
    let refused = eventually("a pod whose gates are not looked at is tried", || {
        let condition = scheduled(&api.pod("without-gates"));
        (condition["reason"] == "SchedulerError").then_some(condition)
    });
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("pod without-gates has non-empty .spec.schedulingGates"),
        "{message}"
    );
    for name in ["by-multipoint", "by-pre-enqueue"] {
        assert_eq!(
            scheduled(&api.pod(name))["reason"],
            "SchedulingGated",
            "{name}"
        );
    }
    for name in ["by-multipoint", "by-pre-enqueue", "without-gates"] {
        world.ungate(name);
        api.bound(name);
    }
}

/// The steps of the documentation's page.
fn kubectl_shows_and_edits_gates(world: &World) {
    let Some(kubectl) = Kubectl::find(&world.cluster) else {
        return;
    };
    world.gated("shown", &["example.com/foo", "example.com/bar"], json!({}));
    let row = kubectl.ok(&["get", "pod", "shown", "--no-headers"]);
    assert!(row.contains("SchedulingGated"), "{row}");
    let gates = kubectl.ok(&[
        "get",
        "pod",
        "shown",
        "-o",
        "jsonpath={.spec.schedulingGates}",
    ]);
    assert_eq!(
        gates,
        r#"[{"name":"example.com/foo"},{"name":"example.com/bar"}]"#
    );
    let dry = r#"[{"op":"remove","path":"/spec/schedulingGates"}]"#;
    kubectl.ok(&[
        "patch",
        "pod",
        "shown",
        "--type=json",
        "-p",
        dry,
        "--dry-run=server",
    ]);
    let row = kubectl.ok(&["get", "pod", "shown", "--no-headers"]);
    assert!(row.contains("SchedulingGated"), "{row}");
    let late =
        r#"[{"op":"add","path":"/spec/schedulingGates/-","value":{"name":"example.com/c"}}]"#;
    let refused = kubectl.fails(&["patch", "pod", "shown", "--type=json", "-p", late]);
    let notified = "The Pod \"shown\" is invalid: spec.schedulingGates[2].name: Forbidden: only deletion is allowed, but found new scheduling gate 'example.com/c'";
    assert_eq!(refused.trim(), notified);
    kubectl.ok(&["patch", "pod", "shown", "--type=json", "-p", dry]);
    kubectl.ok(&[
        "wait",
        "--for=condition=Ready",
        "pod/shown",
        "--timeout=60s",
    ]);
    let gates = kubectl.ok(&[
        "get",
        "pod",
        "shown",
        "-o",
        "jsonpath={.spec.schedulingGates}",
    ]);
    assert_eq!(gates, "");
}
