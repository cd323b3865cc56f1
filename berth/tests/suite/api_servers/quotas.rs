//! Deferred quotas on every API server: the definition with its rules, the statuses of pods and quotas, and leaders that
//! end while pods wait.

use super::failover::Pair;
use super::{SHORT_TERMS, create_pod, deletion_at_once, pod, ready, scheduler};
use crate::BINARY;
use crate::e2e::server::{ACCOUNT, NAMESPACE, Server, on_each};
use crate::e2e::watch_log::WatchLog;
use crate::e2e::{Api, Running, eventually, free_port};
use berth_client::request::{self, PODS, Resource};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const DEFINITIONS: Resource = Resource {
    group: "apiextensions.k8s.io",
    version: "v1",
    plural: "customresourcedefinitions",
};
pub(super) const QUOTAS: Resource = Resource {
    group: "scheduling.berth.dev",
    version: "v1alpha1",
    plural: "deferredquotas",
};

/// Serves the kind, as an administrator does with `kubectl apply`.
pub(super) fn define(server: &Server) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/deferred-quota/crd.yaml");
    let text = std::fs::read_to_string(path).expect("the definition");
    let definition: Value = serde_saphyr::from_str(&text).expect("YAML");
    let api = &server.api;
    api.ensure(&request::create(DEFINITIONS, "", &definition));
    eventually("quotas are served", || {
        let list = request::list(QUOTAS, "", 0, "");
        let listed = api.transport.execute(&list);
        api.runtime.block_on(listed).ok()
    });
}

pub(super) fn quota(spec: &Value) -> Value {
    json!({
        "apiVersion": "scheduling.berth.dev/v1alpha1", "kind": "DeferredQuota",
        "metadata": {"name": "team-a", "namespace": "default"}, "spec": spec,
    })
}

fn is_on_node(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

/// The message of a pod that waits.
fn waits(api: &Api, name: &str) -> String {
    eventually("the pod waits with a reason", || {
        let pod = api.pod(name);
        assert!(!is_on_node(&pod), "{pod}");
        let conditions = pod["status"]["conditions"].as_array()?;
        let mut conditions = conditions.iter();
        let condition = conditions.find(|c| c["type"] == "PodScheduled")?;
        assert_ne!(condition["reason"], "Unschedulable", "{pod}");
        let message = condition["message"].as_str()?.to_owned();
        (condition["reason"] == "NotReadyForScheduling").then_some(message)
    })
}

/// DQ-2, DQ-12, DQ-13, DQ-17: pods wait with a condition and one event, start when room is made, and the status of the
/// quota is written without conflicts and no more often than it changes.
#[test]
fn pods_wait_for_a_quota_and_start() {
    on_each("quotas", |server| {
        define(server);
        server.create_nodes(2, 110);
        let api = &server.api;
        // The rules of the definition.
        for (spec, path) in [
            (json!({"hard": {"cpu": "1"}}), "spec.hard"),
            (json!({"hard": {"pods": "-1"}}), "spec.hard.pods"),
            (
                json!({"hard": {"pods": "1"}, "borrowingLimit": {"pods": "1"}}),
                "spec.borrowingLimit",
            ),
            (json!({"hard": {"pods": "1"}, "order": "Any"}), "spec.order"),
        ] {
            let create = request::create(QUOTAS, "default", &quota(&spec));
            let refused = api.runtime.block_on(api.transport.execute(&create));
            let error = refused
                .expect_err("a quota that makes no sense")
                .to_string();
            assert!(error.contains(path), "{spec}: {error}");
        }
        let spec = json!({"hard": {"requests.cpu": "3", "pods": "10"}});
        api.send(&request::create(QUOTAS, "default", &quota(&spec)));
        let scheduler = scheduler(&server.kubeconfig(), &["--leader-elect=false"]);
        ready(&scheduler);
        create_pod(api, "first", "2", &json!({}));
        api.bound("first");
        create_pod(api, "second", "2", &json!({}));
        let message = waits(api, "second");
        assert_eq!(
            message,
            "deferred quota \"team-a\": requests.cpu: requested 2, used 2 of 3"
        );
        create_pod(api, "third", "1", &json!({}));
        let message = waits(api, "third");
        assert_eq!(
            message,
            "deferred quota \"team-a\": 1 pod is before this one"
        );
        let get = request::get(QUOTAS, "default", "team-a");
        let status = eventually("the status counts the pods", || {
            let status = api.send(&get)["status"].clone();
            (status["waiting"]["pods"] == 2).then_some(status)
        });
        assert_eq!(
            status["used"],
            json!({"pods": "1", "requests.cpu": "2"}),
            "{status}"
        );
        assert!(status["waiting"]["oldest"].is_string(), "{status}");
        // The limit is raised.
        let raised = json!({"spec": {"hard": {"requests.cpu": "4"}}});
        api.send(&request::merge_patch(QUOTAS, "default", "team-a", &raised));
        api.bound("second");
        // A pod ends.
        api.send(&deletion_at_once("first"));
        api.bound("third");
        eventually("the status shows the end", || {
            let status = api.send(&get)["status"].clone();
            let is_final = status["waiting"]["pods"] == 0
                && status["used"] == json!({"pods": "2", "requests.cpu": "3"});
            is_final.then_some(())
        });
        eventually("the pod has its event", || {
            (api.events("second", "NotReadyForScheduling").len() == 1).then_some(())
        });
        // The quota is created, three pods arrive, three are bound, one ends, the limit is raised; the kubelet of no pod
        // writes. Each change is at most one write.
        let of_quotas = "call_type=\"deferred_quota_status_patch\"";
        let executed = "scheduler_async_api_call_execution_total";
        let writes = scheduler.metric(executed, of_quotas);
        assert!((1.0..=10.0).contains(&writes), "{writes} writes");
        let metrics = scheduler.http_get("/metrics");
        let failed = metrics.lines().find(|line| {
            line.starts_with(executed) && line.contains(of_quotas) && line.contains("\"error\"")
        });
        assert_eq!(failed, None);
    });
}

/// DQ-15: a role that does not allow reading quotas holds no pod back, and is reported once. A cluster without the kind is
/// not reported.
#[test]
fn quotas_that_cannot_be_read_hold_no_pod_back() {
    on_each("quotas-role", |server| {
        server.create_nodes(1, 110);
        server.ensure_account(NAMESPACE, ACCOUNT);
        server.deploy("base/rbac.yaml");
        let user = json!({"token": server.account_token(None)});
        let kubeconfig = server.kubeconfig_with("scheduler", |_, old| *old = user.clone());
        let run = |name: &str| {
            let log = server.scratch.path(&format!("{name}.log"));
            let script = "log=$1; shift; exec \"$0\" \"$@\" 2>\"$log\"";
            let mut command = Command::new("sh");
            command
                .args(["-c", script, BINARY])
                .arg(&log)
                .args([
                    "scheduler",
                    "--leader-elect=false",
                    "--bind-address=127.0.0.1",
                ])
                .args(["--secure-port", &free_port()])
                .args(["--authorization-always-allow-paths", "/*"]);
            for flag in [
                "--kubeconfig",
                "--authentication-kubeconfig",
                "--authorization-kubeconfig",
            ] {
                command.arg(flag).arg(&kubeconfig);
            }
            let scheduler = Running::start(&mut command);
            ready(&scheduler);
            create_pod(&server.api, name, "1m", &json!({}));
            server.api.bound(name);
            assert_eq!(scheduler.stop("-TERM"), Some(0));
            let text = std::fs::read_to_string(log).expect("the log");
            let about = text.lines().filter(|line| line.contains("deferredquotas"));
            about.map(str::to_owned).collect::<Vec<String>>()
        };
        assert_eq!(run("no-kind"), [""; 0]);
        define(server);
        let roles = Resource {
            group: "rbac.authorization.k8s.io",
            version: "v1",
            plural: "clusterroles",
        };
        let role = server.api.send(&request::get(roles, "", "berth-scheduler"));
        let rules = role["rules"].as_array().expect("rules").iter();
        let rules = rules.filter(|rule| rule["apiGroups"] != json!(["scheduling.berth.dev"]));
        let rules = json!({"rules": rules.collect::<Vec<_>>()});
        let patch = request::merge_patch(roles, "", "berth-scheduler", &rules);
        server.api.send(&patch);
        let quota = quota(&json!({"hard": {"pods": "0"}}));
        server.api.send(&request::create(QUOTAS, "default", &quota));
        let lines = run("no-right");
        let [line] = &lines[..] else {
            panic!("one line: {lines:?}");
        };
        assert!(line.contains("does not allow reading these"), "{line}");
    });
}

/// DQ-5, DQ-6: leaders end while pods wait for the quota and others are in flight. At no look does the namespace have more
/// pods on nodes than the limit, and every pod gets a node.
#[test]
fn the_limit_holds_when_leaders_are_killed_or_stopped() {
    const LIMIT: usize = 20;
    const ALL: usize = 100;
    on_each("quotas-failover", |server| {
        define(server);
        server.create_nodes(5, 110);
        let api = &server.api;
        let spec = json!({"hard": {"pods": LIMIT.to_string()}});
        api.send(&request::create(QUOTAS, "default", &quota(&spec)));
        let log = WatchLog::start(api);
        let create = (0..ALL).map(|number| {
            let pod = pod(&format!("p-{number}"), "1m", &json!({}));
            request::create(PODS, "default", &pod)
        });
        api.send_all(create.collect());
        let mut pair = Pair::start(server, 40, &SHORT_TERMS);
        // Pods on nodes end, so that others start.
        let run_until = |bound: usize| {
            eventually("pods start as others end", || {
                let pods = api.pods();
                let on_nodes: Vec<&Value> = pods.iter().filter(|pod| is_on_node(pod)).collect();
                assert!(on_nodes.len() <= LIMIT, "{} pods on nodes", on_nodes.len());
                if log.bound() >= bound {
                    return Some(());
                }
                // Some are left, so that the limit is reached again at once.
                let ended = on_nodes.iter().take(LIMIT / 2);
                let names = ended.filter_map(|pod| pod["metadata"]["name"].as_str());
                api.send_all(names.map(deletion_at_once).collect());
                None
            });
        };
        run_until(ALL / 3);
        drop(pair.take_leader());
        pair.add();
        run_until(2 * ALL / 3);
        assert_eq!(pair.take_leader().stop("-TERM"), Some(0));
        run_until(ALL);
        log.assert_each_bound_once(ALL, 110);
    });
}
