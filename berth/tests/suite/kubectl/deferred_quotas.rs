//! Deferred quotas in a whole cluster, with kubectl: refused objects, waiting pods, and freed quota.

use crate::e2e::{Cluster, Kubectl, eventually};
use serde_json::{Value, json};

/// A DeferredQuota.
fn quota(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "scheduling.berth.dev/v1alpha1", "kind": "DeferredQuota",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// A pod that requests this much CPU.
fn pod(name: &str, cpu: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{
            "name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": cpu}},
        }]},
    })
}

/// One namespace of a cluster.
struct Team<'a> {
    cluster: &'a Cluster,
    kubectl: &'a Kubectl,
    namespace: &'a str,
}

impl<'a> Team<'a> {
    fn create(cluster: &'a Cluster, kubectl: &'a Kubectl, namespace: &'a str) -> Self {
        kubectl.ok(&["create", "namespace", namespace]);
        Self {
            cluster,
            kubectl,
            namespace,
        }
    }

    fn ok(&self, args: &[&str]) -> String {
        self.kubectl.ok(&[&["-n", self.namespace], args].concat())
    }

    fn apply(&self, object: &Value) {
        let file = self
            .cluster
            .scratch
            .file("object.json", &object.to_string());
        self.ok(&["apply", "-f", &file.display().to_string()]);
    }

    /// Creates a pod. Its creation time differs from the previous pod's: times of objects are whole seconds.
    fn create_pod(&self, name: &str, cpu: &str) {
        self.apply(&pod(name, cpu, &json!({})));
    }

    fn pod(&self, name: &str) -> Value {
        let text = self.ok(&["get", "pod", name, "-o", "json"]);
        serde_json::from_str(&text).expect("JSON")
    }

    fn raise(&self, quota: &str, hard: &Value) {
        let patch = json!({"spec": {"hard": hard}}).to_string();
        self.ok(&[
            "patch",
            "deferredquota",
            quota,
            "--type=merge",
            "-p",
            &patch,
        ]);
    }

    fn runs(&self, name: &str) {
        eventually(&format!("{name} has a node"), || {
            self.pod(name)["spec"]["nodeName"].is_string().then_some(())
        });
    }

    /// Waits for the condition of a pod that waits, and returns its message. No autoscaler adds a node for the pod at any
    /// look.
    fn waits(&self, name: &str) -> String {
        eventually(&format!("{name} waits with a reason"), || {
            let pod = self.pod(name);
            assert!(!is_seen_by_autoscalers(&pod), "{pod}");
            assert!(pod["spec"]["nodeName"].is_null(), "{pod}");
            let condition = scheduled(&pod)?;
            (condition["reason"] == "NotReadyForScheduling").then(|| {
                let message = condition["message"].as_str();
                message.unwrap_or_default().to_owned()
            })
        })
    }

    /// The rows of `kubectl get deferredquotas`, the head first, in columns.
    fn table(&self) -> Vec<Vec<String>> {
        let text = self.ok(&["get", "deferredquotas"]);
        let columns = |line: &str| line.split("  ").map(str::trim).map(str::to_owned).collect();
        let filled = |columns: Vec<String>| columns.into_iter().filter(|c| !c.is_empty()).collect();
        text.lines().map(columns).map(filled).collect()
    }
}

fn scheduled(pod: &Value) -> Option<&Value> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == "PodScheduled")
}

/// The criterion by which cluster-autoscaler (`UnschedulablePodLister`) and Karpenter (`FailedToSchedule`) find the
/// pods for which they add nodes.
fn is_seen_by_autoscalers(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_null()
        && scheduled(pod).is_some_and(|condition| condition["reason"] == "Unschedulable")
}

#[test]
fn quotas_that_make_no_sense_are_refused_with_the_path() {
    let cluster = Cluster::up("kubectl-quotas-refused", &["--nodes", "1"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    for (spec, path, reason) in [
        (json!({}), "spec.hard", "Required value"),
        (json!({"hard": {}}), "spec.hard", "at least 1"),
        (json!({"hard": {"cpu": "1"}}), "spec.hard", "unknown key"),
        (
            json!({"hard": {"services": "1"}}),
            "spec.hard",
            "unknown key",
        ),
        (
            json!({"hard": {"pods": "-1"}}),
            "spec.hard.pods",
            "Invalid value",
        ),
        (
            json!({"hard": {"pods": -1}}),
            "spec.hard.pods",
            "greater than or equal to 0",
        ),
        (
            json!({"hard": {"pods": "many"}}),
            "spec.hard.pods",
            "Invalid value",
        ),
        (
            json!({"hard": {"pods": "1"}, "order": "Random"}),
            "spec.order",
            "Unsupported value",
        ),
        (
            json!({"hard": {"pods": "1"}, "borrowingLimit": {"pods": "1"}}),
            "spec.borrowingLimit",
            "borrowingLimit requires cohort",
        ),
        (
            json!({"hard": {"pods": "1"}, "cohort": "c", "borrowingLimit": {"requests.cpu": "1"}}),
            "spec.borrowingLimit",
            "must be a key of hard",
        ),
        (
            json!({"hard": {"pods": "1"}, "podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
            "spec.podSelector.matchExpressions[0].operator",
            "Unsupported value",
        ),
    ] {
        let file = cluster
            .scratch
            .file("quota.json", &quota("q", &spec).to_string());
        let error = kubectl.fails(&["apply", "-f", &file.display().to_string()]);
        assert!(
            error.contains(path) && error.contains(reason),
            "{spec}: {error}"
        );
    }
    // A quota that makes sense is accepted.
    let spec = json!({
        "hard": {"pods": 1, "requests.cpu": "1500m", "requests.example.com/gpu": "2",
                 "gpu.example.com.deviceclass.resource.k8s.io/devices": "4"},
        "cohort": "research", "borrowingLimit": {"pods": "1"}, "order": "BestEffort",
    });
    let file = cluster
        .scratch
        .file("quota.json", &quota("q", &spec).to_string());
    kubectl.apply(&file);
}

#[test]
fn pods_wait_until_room_is_made() {
    let cluster = Cluster::up("kubectl-quotas", &["--nodes", "3"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    let team = Team::create(&cluster, &kubectl, "team-a");
    let hard = json!({"requests.cpu": "3"});
    let spec = json!({"hard": hard, "podSelector": {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]}});
    team.apply(&quota("cpu", &spec));
    team.create_pod("first", "2");
    team.runs("first");
    team.create_pod("second", "2");
    let message = team.waits("second");
    assert_eq!(
        message,
        "deferred quota \"cpu\": requests.cpu: requested 2, used 2 of 3"
    );
    team.create_pod("third", "1");
    let message = team.waits("third");
    assert_eq!(message, "deferred quota \"cpu\": 1 pod is before this one");
    let row = eventually("the status counts the pods", || {
        let table = team.table();
        let row = table.get(1)?.clone();
        (row.get(3)? == "2").then_some((table.first()?.clone(), row))
    });
    assert_eq!(row.0, ["NAME", "HARD", "USED", "WAITING", "OLDEST"]);
    assert_eq!(row.1[..3], ["cpu", "requests.cpu: 3", "requests.cpu: 2"]);
    assert_eq!(row.1.len(), 5, "{row:?}");
    // One event for each message.
    let events = team.ok(&["get", "events", "-o", "json"]);
    let events: Value = serde_json::from_str(&events).expect("JSON");
    let about_second = events["items"].as_array().expect("events").iter();
    let about_second = about_second.filter(|event| {
        event["reason"] == "NotReadyForScheduling" && event["involvedObject"]["name"] == "second"
    });
    assert_eq!(about_second.count(), 1, "{events}");
    // The quota is raised.
    team.raise("cpu", &json!({"requests.cpu": "5"}));
    team.runs("second");
    team.runs("third");
    // A pod ends.
    team.create_pod("fourth", "1");
    team.waits("fourth");
    team.ok(&["delete", "pod", "third", "--grace-period=1"]);
    team.runs("fourth");
    // The quota no longer applies to the pod.
    team.create_pod("fifth", "1");
    team.waits("fifth");
    team.ok(&["label", "pod", "fifth", "free=yes"]);
    team.runs("fifth");
    // The quota is deleted.
    team.create_pod("sixth", "1");
    team.waits("sixth");
    team.ok(&["delete", "deferredquota", "cpu"]);
    team.runs("sixth");
    // The rule of the autoscalers finds a pod that fits on no node.
    team.create_pod("large", "1000");
    eventually("autoscalers see the pod", || {
        is_seen_by_autoscalers(&team.pod("large")).then_some(())
    });
}

#[test]
fn order_gangs_and_cohorts() {
    let cluster = Cluster::up("kubectl-quotas-order", &["--nodes", "3"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    // BestEffort: a small pod overtakes.
    let team = Team::create(&cluster, &kubectl, "best-effort");
    team.apply(&quota(
        "cpu",
        &json!({"hard": {"requests.cpu": "3"}, "order": "BestEffort"}),
    ));
    team.create_pod("first", "2");
    team.runs("first");
    team.create_pod("large", "2");
    team.waits("large");
    team.create_pod("small", "1");
    team.runs("small");
    team.waits("large");
    // A gang is admitted as a whole or not at all.
    let team = Team::create(&cluster, &kubectl, "gangs");
    team.apply(&quota("pods", &json!({"hard": {"pods": "2"}})));
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    });
    team.apply(&group);
    for worker in ["worker-1", "worker-2", "worker-3"] {
        let mut pod = pod(worker, "1m", &json!({}));
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "train"});
        team.apply(&pod);
    }
    let message = eventually("a member waits for the quota", || {
        let message = team.waits("worker-1");
        message.contains("deferred quota").then_some(message)
    });
    assert!(
        message.contains("pods: requested 3, used 0 of 2"),
        "{message}"
    );
    for worker in ["worker-1", "worker-2", "worker-3"] {
        assert!(team.pod(worker)["spec"]["nodeName"].is_null());
    }
    team.raise("pods", &json!({"pods": "3"}));
    for worker in ["worker-1", "worker-2", "worker-3"] {
        team.runs(worker);
    }
    // A cohort lends its unused amounts, up to the limit of the borrower.
    let lender = Team::create(&cluster, &kubectl, "lender");
    lender.apply(&quota(
        "pods",
        &json!({"hard": {"pods": "2"}, "cohort": "research"}),
    ));
    let borrower = Team::create(&cluster, &kubectl, "borrower");
    let spec =
        json!({"hard": {"pods": "1"}, "cohort": "research", "borrowingLimit": {"pods": "1"}});
    borrower.apply(&quota("pods", &spec));
    for name in ["own", "borrowed"] {
        borrower.create_pod(name, "1m");
        borrower.runs(name);
    }
    borrower.create_pod("waiting", "1m");
    assert_eq!(
        borrower.waits("waiting"),
        "deferred quota \"pods\": pods: requested 1, used 2 of 2"
    );
    let lent = eventually("the status shows what is borrowed", || {
        let path = "jsonpath={.status.borrowed.pods}";
        let lent = borrower.ok(&["get", "deferredquota", "pods", "-o", path]);
        (!lent.is_empty()).then_some(lent)
    });
    assert_eq!(lent, "1");
    // The lender has one pod left; the other one is returned when a pod ends.
    lender.create_pod("first", "1m");
    lender.runs("first");
    lender.create_pod("second", "1m");
    let message = lender.waits("second");
    assert!(message.contains("in cohort \"research\""), "{message}");
    borrower.ok(&["delete", "pod", "borrowed", "--grace-period=1"]);
    lender.runs("second");
}

#[test]
fn pods_continue_when_the_definition_is_deleted() {
    let cluster = Cluster::up("kubectl-quotas-definition", &["--nodes", "1"]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    let team = Team::create(&cluster, &kubectl, "team-a");
    team.apply(&quota("none", &json!({"hard": {"pods": "0"}})));
    team.create_pod("waiting", "1m");
    team.waits("waiting");
    // A quota that can never admit the first pod in line states it.
    let stuck = eventually("the condition of the quota states it", || {
        let path = "jsonpath={.status.conditions[?(@.type==\"FirstFits\")].message}";
        let message = team.ok(&["get", "deferredquota", "none", "-o", path]);
        (!message.is_empty()).then_some(message)
    });
    assert!(stuck.contains("can never be admitted"), "{stuck}");
    assert_eq!(
        cluster.metric("scheduler_deferred_quota_stuck", "quota=\"none\""),
        1.0
    );
    kubectl.ok(&["delete", "crd", "deferredquotas.scheduling.berth.dev"]);
    team.runs("waiting");
    let path = "jsonpath={.items[*].message} {.items[*].related.name}";
    let selector = "reason=DeferredQuotaDeleted,involvedObject.name=waiting";
    let event = eventually("an event states it", || {
        let text = team.ok(&["get", "events", "--field-selector", selector, "-o", path]);
        (!text.trim().is_empty()).then_some(text)
    });
    assert_eq!(
        event.trim(),
        "deferred quota \"none\" was deleted: 1 waiting pod continues none"
    );
}
