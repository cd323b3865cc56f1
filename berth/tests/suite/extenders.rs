//! Extenders: webhooks of a KubeSchedulerConfiguration take part in scheduling, from the file to the bound pod.

use crate::e2e::webhook::{Webhook, nodes};
use crate::e2e::{Api, Cluster, Scratch, eventually, scheduled};
use berth_client::request::{self, PODS, Resource};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

const PRIORITY_CLASSES: Resource = Resource {
    group: "scheduling.k8s.io",
    version: "v1",
    plural: "priorityclasses",
};

fn pod(name: &str, cpu: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"example.com/note": "read by the extender"}},
        "spec": {"containers": [{
            "name": "c",
            "image": "registry.example/c:1",
            "command": ["serve"],
            "resources": {"requests": {"cpu": cpu}},
        }]},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn on(node: &str) -> Value {
    json!({"nodeSelector": {"kubernetes.io/hostname": node}})
}

/// Binds pods as a separate client.
fn bind(kubeconfig: PathBuf) -> impl Fn(&Value) -> Value + Send + Sync {
    move |question| {
        let text = |field: &str| question[field].as_str().unwrap_or_default().into();
        let api = Api::at(kubeconfig.clone());
        let bind = request::bind_pod(
            &text("PodNamespace"),
            &text("PodName"),
            &text("PodUID"),
            &text("Node"),
        );
        match api.runtime.block_on(api.transport.execute(&bind)) {
            Ok(()) => json!({}),
            Err(error) => json!({"Error": error.to_string()}),
        }
    }
}

/// F-38, F-39, F-41 to F-43, P-14, case 91.
#[test]
fn an_extender_filters_scores_binds_and_takes_part_in_evictions() {
    let scratch = Scratch::new("extender-config");
    let kubeconfig = scratch.path("extender-kubeconfig");
    let bind = bind(kubeconfig.clone());
    let webhook = Webhook::serve(move |path, question| {
        let names = nodes(question);
        let answer = match path {
            // The first node is not for it, and pods that lack a licence are for no node.
            "/v1/filter" => {
                let items = question["Nodes"]["items"].as_array().cloned();
                let mut items = items.unwrap_or_default();
                let unlicensed = question["Pod"]["metadata"]["labels"]["licence"] == "none";
                items.retain(|n| n["metadata"]["name"] != "berth-node-1" && !unlicensed);
                let mut failed = json!({});
                for name in names.iter().filter(|_| unlicensed) {
                    failed[name] = "no licence left".into();
                }
                let reserved = json!({"berth-node-1": "node is reserved"});
                json!({
                    "Nodes": {"items": items},
                    "FailedNodes": failed,
                    "FailedAndUnresolvableNodes": if unlicensed { json!({}) } else { reserved },
                })
            }
            "/v1/prioritize" => {
                let score = |name: &String| i32::from(name == "berth-node-3") * 10;
                let scores = names.iter().map(|n| json!({"Host": n, "Score": score(n)}));
                scores.collect()
            }
            "/v1/bind" => bind(question),
            // The third of the candidate nodes of a preemption.
            "/v1/preempt" => {
                let victims = &question["NodeNameToVictims"]["berth-node-3"];
                let uid = |pod: &Value| json!({"UID": pod["metadata"]["uid"]});
                let pods: Value = victims["Pods"]
                    .as_array()
                    .map(|pods| pods.iter().map(uid).collect::<Value>())
                    .into();
                json!({"NodeNameToMetaVictims": {"berth-node-3": {"Pods": pods, "NumPDBViolations": 0}}})
            }
            other => return (404, json!(format!("no {other}"))),
        };
        (200, answer)
    });
    let config = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: {}/v1/
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 100
  bindVerb: bind
  preemptVerb: preempt
",
        webhook.url
    );
    let config = scratch.file("config.yaml", &config).display().to_string();
    let cluster = Cluster::up("extender", &["--nodes", "3", "--config", &config]);
    std::fs::copy(cluster.kubeconfig(), &kubeconfig).expect("the kubeconfig is there");
    let api = Api::of(&cluster);
    let create = |pod: &Value| api.send(&request::create(PODS, "default", pod));

    // It receives the complete pod and nodes, and its scores decide.
    create(&pod("web", "1", json!({})));
    let bound = api.bound("web");
    assert_eq!(bound["spec"]["nodeName"], "berth-node-3");
    let asked = webhook.asked("/v1/filter", "web");
    let (question, of_pod) = (&asked[0], &asked[0]["Pod"]);
    assert_eq!(
        of_pod["metadata"]["annotations"]["example.com/note"],
        "read by the extender"
    );
    assert_eq!(of_pod["spec"]["containers"][0]["command"], json!(["serve"]));
    assert_eq!(nodes(question).len(), 3);
    assert!(
        question["Nodes"]["items"][0]["status"]["nodeInfo"].is_object(),
        "{question}"
    );
    assert_eq!(question["NodeNames"], Value::Null);
    assert_eq!(nodes(&webhook.asked("/v1/prioritize", "web")[0]).len(), 2);
    assert_eq!(
        webhook.asked("/v1/bind", "web"),
        [json!({
            "PodName": "web", "PodNamespace": "default", "PodUID": bound["metadata"]["uid"],
            "Node": "berth-node-3",
        })]
    );
    eventually("the event reports it", || api.event("web", "Scheduled"));

    // The pod's condition contains the extender's reason, and any change of the pod causes another request to the
    // extender.
    let mut unlicensed = pod("unlicensed", "1", json!({}));
    unlicensed["metadata"]["labels"] = json!({"licence": "none"});
    create(&unlicensed);
    let message = eventually("the pod states why it waits", || {
        scheduled(&api.pod("unlicensed"))["message"]
            .as_str()
            .map(str::to_owned)
    });
    assert!(
        message.starts_with("0/3 nodes are available: 3 no licence left."),
        "{message}"
    );
    api.label(PODS, "default", "unlicensed", &json!({"licence": "full"}));
    assert_eq!(api.bound("unlicensed")["spec"]["nodeName"], "berth-node-3");

    // A preemption of one pod would be possible on two nodes: the event names the node.
    api.send(&request::create(
        PRIORITY_CLASSES,
        "",
        &json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "high"}, "value": 1000,
        }),
    ));
    create(&pod("low-2", "3", on("berth-node-2")));
    create(&pod("low-3", "2", on("berth-node-3")));
    api.bound("low-2");
    let victim = api.bound("low-3");
    create(&pod("urgent", "2", json!({"priorityClassName": "high"})));
    assert_eq!(api.bound("urgent")["spec"]["nodeName"], "berth-node-3");
    let asked = &webhook.asked("/v1/preempt", "urgent")[0];
    let notified = &asked["NodeNameToVictims"]["berth-node-3"];
    assert_eq!(notified["NumPDBViolations"], 0);
    assert!(
        asked["NodeNameToVictims"]["berth-node-2"]["Pods"][0]["spec"]["containers"][0]["command"]
            == json!(["serve"]),
        "{asked}"
    );
    assert_eq!(asked["NodeNameToMetaVictims"], Value::Null);
    let preempted = eventually("the event reports it", || api.event("low-3", "Preempted"));
    assert_eq!(
        preempted["involvedObject"]["uid"],
        victim["metadata"]["uid"]
    );
    assert_eq!(api.pod("low-2")["spec"]["nodeName"], "berth-node-2");
}

/// F-39, F-44, case 208.
#[test]
fn one_that_may_fail_is_passed_over_and_one_that_may_not_is_waited_for() {
    let is_well = Arc::new(Mutex::new(false));
    let health = is_well.clone();
    let webhook = Webhook::serve(move |_, question| {
        if *health.lock().expect("unharmed") {
            (200, json!({"nodenames": question["NodeNames"]}))
        } else {
            (503, json!("out of order"))
        }
    });
    // A port without a listener.
    let without_nodes = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("an address").port()
    };
    let scratch = Scratch::new("extender-failing-config");
    let config = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- {{urlPrefix: 'http://127.0.0.1:{without_nodes}', filterVerb: filter, ignorable: true}}
- {{urlPrefix: '{}', filterVerb: filter, nodeCacheCapable: true}}
",
        webhook.url
    );
    let config = scratch.file("config.yaml", &config).display().to_string();
    let cluster = Cluster::up("extender-failing", &["--nodes", "2", "--config", &config]);
    let api = Api::of(&cluster);
    api.create_pod("p", &json!({}));
    let condition = eventually("the pod states why it waits", || {
        let condition = scheduled(&api.pod("p"));
        condition["message"].is_string().then_some(condition)
    });
    assert_eq!(condition["reason"], "SchedulerError");
    let url = format!("{}/filter", webhook.url);
    assert_eq!(
        condition["message"],
        format!("failed filter with extender at URL {url}, code 503")
    );
    *is_well.lock().expect("unharmed") = true;
    api.bound("p");
    let question = &webhook.asked("/filter", "p")[0];
    assert_eq!(question["NodeNames"].as_array().map(Vec::len), Some(2));
    assert_eq!(question["Nodes"], Value::Null);
}
