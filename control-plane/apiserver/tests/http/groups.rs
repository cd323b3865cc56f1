//! Workloads, PodGroups and CompositePodGroups over HTTP: versions, admission, deletion, tables.

use super::*;
use berth_api::Release;
use berth_objects::groups::GroupGates;
use berth_objects::releases::ApiRelease;

const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

fn path(version: &str, plural: &str) -> String {
    format!("/apis/scheduling.k8s.io/{version}/namespaces/default/{plural}")
}

fn groups() -> String {
    path("v1beta1", "podgroups")
}

fn composites() -> String {
    path("v1alpha3", "compositepodgroups")
}

fn group(name: &str) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    })
}

fn composite(name: &str) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": name},
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": 1}},
            "workloadRef": {"workloadName": "w", "templateName": "t"},
        },
    })
}

fn member(name: &str, group: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
    pod
}

fn class(name: &str, value: i64, is_default: bool) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
        "value": value, "globalDefault": is_default,
    })
}

/// Waits until an object is deleted.
async fn gone(cluster: &Cluster, path: &str) {
    let is_gone = async {
        while cluster.get(path).await.status != 404 {
            tokio::task::yield_now().await;
        }
    };
    if timeout(PATIENCE, is_gone).await.is_err() {
        panic!("{path} is still there: {}", cluster.get(path).await.text());
    }
}

#[tokio::test]
async fn the_versions_follow_the_release_and_the_gates() {
    let versions = |release, groups| async move {
        let cluster = Cluster::with(ServerOptions {
            api: ApiRelease::of(release),
            groups,
            ..ServerOptions::default()
        })
        .await;
        let group = cluster.get("/apis/scheduling.k8s.io").await.json();
        let versions = at(&group, "/versions").as_array().cloned();
        let versions = versions.unwrap_or_default();
        let names = versions.iter().map(|v| text(v, "/version").to_owned());
        names.collect::<Vec<String>>()
    };
    let on = GroupGates::default();
    assert_eq!(
        versions(Release::V1_38, on).await,
        ["v1", "v1beta1", "v1alpha3"]
    );
    let old = versions(Release::V1_36, on).await;
    assert_eq!(old, ["v1", "v1beta1", "v1alpha3", "v1alpha2"]);
    assert_eq!(versions(Release::V1_38, GroupGates::OFF).await, ["v1"]);
    let off = Cluster::with(ServerOptions {
        groups: GroupGates::OFF,
        ..ServerOptions::default()
    })
    .await;
    assert_eq!(off.post(&groups(), &group("g")).await.status, 404);
    let pod = off.create(PODS, &member("p", "g")).await;
    assert_eq!(at(&pod, "/spec/schedulingGroup"), &Value::Null);
}

#[tokio::test]
async fn a_group_is_shown_in_each_version() {
    let cluster = Cluster::start().await;
    let mut new = group("g");
    new["spec"]["workloadRef"] = json!({"workloadName": "w", "templateName": "t"});
    new["spec"]["disruptionMode"] = json!({"all": {}});
    let created = cluster.create(&groups(), &new).await;
    assert_eq!(at(&created, "/metadata/generation"), &Value::Null);
    for (version, mode, reference) in [
        (
            "v1beta1",
            json!({"all": {}}),
            "/spec/workloadRef/workloadName",
        ),
        (
            "v1alpha3",
            json!({"all": {}}),
            "/spec/workloadRef/workloadName",
        ),
        (
            "v1alpha2",
            json!("PodGroup"),
            "/spec/podGroupTemplateRef/workload/workloadName",
        ),
    ] {
        let shown = cluster
            .get(&format!("{}/g", path(version, "podgroups")))
            .await
            .json();
        let expected = format!("scheduling.k8s.io/{version}");
        assert_eq!(text(&shown, "/apiVersion"), expected);
        assert_eq!(at(&shown, "/spec/disruptionMode"), &mode, "{version}");
        assert_eq!(text(&shown, reference), "w", "{version}");
    }
    let old = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "old"},
        "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": "Pod"},
    });
    cluster.create(&path("v1alpha2", "podgroups"), &old).await;
    let shown = cluster.get(&format!("{}/old", groups())).await.json();
    assert_eq!(at(&shown, "/spec/disruptionMode"), &json!({"single": {}}));
    let larger = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 7}}}});
    let patched = cluster
        .merge(&format!("{}/g", path("v1alpha3", "podgroups")), &larger)
        .await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(
        at(&patched.json(), "/spec/schedulingPolicy/gang/minCount"),
        &json!(7)
    );
}

#[tokio::test]
async fn groups_get_their_priority_and_policy_from_the_class() {
    let cluster = Cluster::start().await;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let spec = |name: &'static str, fields: Value| {
        let mut group = group(name);
        for (field, value) in fields.as_object().into_iter().flatten() {
            group["spec"][field] = value.clone();
        }
        group
    };
    let plain = cluster.create(&groups(), &group("plain")).await;
    assert_eq!(at(&plain, "/spec/priority"), &json!(0));
    assert_eq!(
        text(&plain, "/spec/preemptionPolicy"),
        "PreemptLowerPriority"
    );
    assert_eq!(at(&plain, "/spec/priorityClassName"), &Value::Null);
    let mut quiet = class("quiet", 7, false);
    quiet["preemptionPolicy"] = "Never".into();
    cluster.create(classes, &quiet).await;
    cluster.create(classes, &class("usual", 5, true)).await;
    let named = spec("named", json!({"priorityClassName": "quiet"}));
    let named = cluster.create(&groups(), &named).await;
    assert_eq!(at(&named, "/spec/priority"), &json!(7));
    assert_eq!(text(&named, "/spec/preemptionPolicy"), "Never");
    let usual = cluster.create(&composites(), &composite("usual")).await;
    assert_eq!(at(&usual, "/spec/priority"), &json!(5));
    assert_eq!(text(&usual, "/spec/priorityClassName"), "usual");
    for (fields, expected) in [
        (
            json!({"priorityClassName": "none"}),
            "no PriorityClass with name none was found",
        ),
        (
            json!({"priority": 9}),
            "priority set in the pod group (9) must match the priority computed (5) based on the priority class set in the spec",
        ),
    ] {
        let reply = cluster.post(&groups(), &spec("bad", fields)).await;
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert!(reply.text().contains(expected), "{}", reply.text());
    }
    // The value of a class of the system is more than a group may have.
    let system = spec(
        "system",
        json!({"priorityClassName": "system-cluster-critical"}),
    );
    let reply = cluster.post(&groups(), &system).await;
    assert_eq!(reply.status, 422);
    assert!(
        reply
            .text()
            .contains("must be less than or equal to 1000000000")
    );
}

#[tokio::test]
async fn groups_that_are_deleted_stay_for_their_members_and_get_no_more() {
    let cluster = Cluster::start().await;
    let _controllers = berth_controllers::spawn(
        cluster.server.api("controllers"),
        berth_controllers::ControllerOptions::default(),
    );
    cluster.create(&composites(), &composite("top")).await;
    let mut child = group("g");
    child["spec"]["parentCompositePodGroupName"] = "top".into();
    child["spec"]["workloadRef"] = json!({"workloadName": "w", "templateName": "t"});
    let created = cluster.create(&groups(), &child).await;
    assert_eq!(at(&created, "/metadata/finalizers"), &json!([FINALIZER]));
    // A group may be created after its pods.
    cluster.create(PODS, &member("p", "g")).await;
    cluster.create(PODS, &member("other", "later")).await;
    let (top, g) = (format!("{}/top", composites()), format!("{}/g", groups()));
    for path in [&top, &g] {
        let reply = cluster.delete(path, &Value::Null).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let shown = cluster.get(path).await.json();
        assert_ne!(at(&shown, "/metadata/deletionTimestamp"), &Value::Null);
    }
    let refused = [
        (
            PODS.to_owned(),
            member("q", "g"),
            r#"cannot create Pod referencing PodGroup \"g\" because it is being deleted"#,
        ),
        (
            groups(),
            {
                let mut late = child.clone();
                late["metadata"]["name"] = "late".into();
                late
            },
            r#"cannot create PodGroup referencing CompositePodGroup \"top\" because it is being deleted"#,
        ),
        (
            composites(),
            {
                let mut late = composite("late");
                late["spec"]["parentCompositePodGroupName"] = "top".into();
                late
            },
            r#"cannot create CompositePodGroup referencing CompositePodGroup \"top\" because it is being deleted"#,
        ),
    ];
    for (path, object, expected) in refused {
        let reply = cluster.post(&path, &object).await;
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert!(reply.text().contains(expected), "{}", reply.text());
    }
    let options = json!({"gracePeriodSeconds": 0});
    cluster.delete(&format!("{PODS}/p"), &options).await;
    gone(&cluster, &g).await;
    gone(&cluster, &top).await;
    // The name is free for another group.
    cluster.create(&groups(), &group("g")).await;
}

#[tokio::test]
async fn tables_and_the_status_show_how_far_a_group_is() {
    let cluster = Cluster::start().await;
    cluster.create(&groups(), &group("g")).await;
    cluster.create(&composites(), &composite("c")).await;
    let row = |path: String| {
        let cluster = &cluster;
        async move {
            let table = cluster
                .ask(Ask {
                    path,
                    accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
                    ..Ask::default()
                })
                .await
                .json();
            let columns = at(&table, "/columnDefinitions").as_array().cloned();
            let columns: Vec<String> = columns
                .unwrap_or_default()
                .iter()
                .map(|c| text(c, "/name").to_owned())
                .collect();
            assert_eq!(columns, ["Name", "Policy", "Workload", "Status", "Age"]);
            let cells = at(&table, "/rows/0/cells").as_array().cloned();
            cells
                .unwrap_or_default()
                .into_iter()
                .take(4)
                .collect::<Vec<Value>>()
        }
    };
    assert_eq!(row(groups()).await, ["g", "Gang", "<none>", "Pending"]);
    assert_eq!(row(composites()).await, ["c", "Gang", "w", "Pending"]);
    for (path, kind, version) in [
        (format!("{}/g/status", groups()), "PodGroup", "v1beta1"),
        (
            format!("{}/c/status", composites()),
            "CompositePodGroup",
            "v1alpha3",
        ),
    ] {
        let condition = |status: &str, reason: &str| {
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"schedulingPolicy": {"basic": {}}}, "status": {"conditions": [{
                "type": format!("{kind}InitiallyScheduled"), "status": status, "reason": reason,
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]}})
        };
        let reply = cluster
            .merge(&path, &condition("False", "Unschedulable"))
            .await;
        assert_eq!(reply.status, 200, "{version}: {}", reply.text());
        let written = reply.json();
        // Only the status is written.
        assert_eq!(at(&written, "/metadata/labels"), &Value::Null);
        assert_eq!(at(&written, "/spec/schedulingPolicy/basic"), &Value::Null);
    }
    assert_eq!(row(groups()).await[3], "Unschedulable");
    assert_eq!(row(composites()).await[3], "Unschedulable");
    let old = cluster
        .get(&format!("{}/g", path("v1alpha2", "podgroups")))
        .await
        .json();
    assert_eq!(text(&old, "/status/conditions/0/type"), "PodGroupScheduled");
}

#[tokio::test]
async fn a_job_with_scheduling_gets_a_workload_a_group_and_members() {
    let cluster = Cluster::start().await;
    let _controllers = berth_controllers::spawn(
        cluster.server.api("controllers"),
        berth_controllers::ControllerOptions::default(),
    );
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = |name: &str, scheduling: Value| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {
                "parallelism": 3, "completions": 3, "completionMode": "Indexed", "scheduling": scheduling,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "a:1"}]}},
            },
        })
    };
    let scheduling = json!({"schedulingPolicy": {"gang": {}}, "disruptionMode": {"all": {}}});
    cluster.create(jobs, &job("train", scheduling)).await;
    let members = async {
        loop {
            let pods = cluster.get(PODS).await.json();
            if names(&pods).len() == 3 {
                break pods;
            }
            tokio::task::yield_now().await;
        }
    };
    let pods = timeout(PATIENCE, members).await.expect("three pods");
    let workloads = cluster.get(&path("v1beta1", "workloads")).await.json();
    let workload = at(&workloads, "/items/0");
    assert_eq!(
        at(workload, "/spec/controllerRef"),
        &json!({"apiGroup": "batch", "kind": "Job", "name": "train"})
    );
    let template = at(workload, "/spec/podGroupTemplates/0");
    assert_eq!(text(template, "/name"), "train-pgt-0");
    assert_eq!(at(template, "/schedulingPolicy/gang/minCount"), &json!(3));
    let listed = cluster.get(&groups()).await.json();
    let group = at(&listed, "/items/0");
    let name = text(group, "/metadata/name");
    assert_eq!(at(group, "/spec/disruptionMode"), &json!({"all": {}}));
    assert_eq!(text(group, "/spec/workloadRef/templateName"), "train-pgt-0");
    let owners = at(group, "/metadata/ownerReferences")
        .as_array()
        .cloned()
        .unwrap_or_default();
    let kinds: Vec<&str> = owners.iter().map(|o| text(o, "/kind")).collect();
    assert_eq!(kinds, ["Job", "Workload"]);
    for i in 0..3 {
        let pod = at(&pods, &format!("/items/{i}")).clone();
        assert_eq!(text(&pod, "/spec/schedulingGroup/podGroupName"), name);
        assert_eq!(text(&pod, "/metadata/ownerReferences/1/name"), name);
    }
    // A larger gang applies to later pods.
    let larger = json!({"spec": {"parallelism": 4, "completions": 4}});
    let reply = cluster.merge(&format!("{jobs}/train"), &larger).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let grown = async {
        let count = json!(4);
        while at(
            &cluster.get(&format!("{}/{name}", groups())).await.json(),
            "/spec/schedulingPolicy/gang/minCount",
        ) != &count
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, grown).await.expect("a gang of four");
    // A Job without `scheduling` has no group.
    cluster.create(jobs, &job("plain", json!(null))).await;
    let plain = async {
        loop {
            let pods = cluster
                .get(&format!("{PODS}?labelSelector=job-name%3Dplain"))
                .await
                .json();
            if !names(&pods).is_empty() {
                break pods;
            }
            tokio::task::yield_now().await;
        }
    };
    let pods = timeout(PATIENCE, plain).await.expect("a pod");
    assert_eq!(at(&pods, "/items/0/spec/schedulingGroup"), &Value::Null);
    assert_eq!(names(&cluster.get(&groups()).await.json()).len(), 1);
}

#[tokio::test]
async fn explain_and_server_side_apply_know_the_types() {
    let cluster = Cluster::start().await;
    let document = cluster
        .get("/openapi/v3/apis/scheduling.k8s.io/v1beta1")
        .await
        .json();
    let schemas = "/components/schemas/io.k8s.api.scheduling.v1beta1";
    for (of, fields) in [
        (
            "PodGroupSpec",
            &[
                "parentCompositePodGroupName",
                "workloadRef",
                "schedulingPolicy",
                "preemptionPolicy",
            ][..],
        ),
        ("CompositePodGroupTemplate", &["compositePodGroupTemplates"]),
        ("GangSchedulingPolicy", &["minCount"]),
    ] {
        let properties = at(&document, &format!("{schemas}.{of}/properties")).clone();
        for field in fields {
            assert!(
                properties.get(field).is_some(),
                "{of}.{field}: {properties}"
            );
        }
    }
    let apply = |version: &str, count: i64| {
        json!({
            "apiVersion": format!("scheduling.k8s.io/{version}"), "kind": "PodGroup", "metadata": {"name": "g"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
        })
    };
    for (version, count) in [("v1beta1", 2), ("v1beta1", 4)] {
        let url = format!("{}/g?fieldManager=me", path(version, "podgroups"));
        let reply = cluster
            .send_as(
                "PATCH",
                &url,
                "application/apply-patch+yaml",
                &apply(version, count),
            )
            .await;
        assert!(reply.status < 300, "{}", reply.text());
        assert_eq!(
            at(&reply.json(), "/spec/schedulingPolicy/gang/minCount"),
            &json!(count)
        );
    }
}
