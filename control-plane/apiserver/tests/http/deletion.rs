//! Deleting: grace, finalizers, preconditions, namespaces, many at once.

use super::*;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};

async fn bind(cluster: &Cluster, name: &str) {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"kind": "Node", "name": "n"},
    });
    let reply = cluster
        .post(&format!("{PODS}/{name}/binding"), &binding)
        .await;
    assert_eq!(reply.status, 201, "{}", reply.text());
}

#[tokio::test]
async fn a_pod_on_a_node_waits_for_its_kubelet() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, &pod("p")).await;
    bind(&cluster, "p").await;
    let path = format!("{PODS}/p");
    let seconds = |value: &Value| -> i64 {
        let end = text(value, "/metadata/deletionTimestamp").parse::<jiff::Timestamp>();
        end.map(|t| t.duration_since(jiff::Timestamp::now()).as_secs())
            .unwrap_or(i64::MIN)
    };
    let marked = cluster
        .delete(&path, &json!({"gracePeriodSeconds": 60}))
        .await
        .json();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], json!(60));
    assert!((57..=60).contains(&seconds(&marked)), "{marked}");
    assert_eq!(marked["metadata"]["generation"], json!(2));
    let longer = cluster
        .delete(&path, &json!({"gracePeriodSeconds": 90}))
        .await
        .json();
    assert_eq!(longer, marked, "grace is never lengthened");
    let shorter = cluster
        .delete(&path, &json!({"gracePeriodSeconds": 10}))
        .await
        .json();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], json!(10));
    assert!((7..=10).contains(&seconds(&shorter)), "{shorter}");
    assert_eq!(cluster.get(&path).await.status, 200);
    let gone = cluster
        .delete(&path, &json!({"gracePeriodSeconds": 0}))
        .await;
    assert_eq!(gone.status, 200);
    assert_eq!(cluster.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_pod_on_no_node_or_at_its_end_goes_at_once() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, &pod("unbound")).await;
    cluster.create(PODS, &pod("over")).await;
    bind(&cluster, "over").await;
    let status = cluster
        .merge(
            &format!("{PODS}/over/status"),
            &json!({"status": {"phase": "Succeeded"}}),
        )
        .await;
    assert_eq!(status.status, 200, "{}", status.text());
    for name in ["unbound", "over"] {
        let path = format!("{PODS}/{name}");
        assert_eq!(cluster.delete(&path, &Value::Null).await.status, 200);
        assert_eq!(cluster.get(&path).await.status, 404, "{name}");
    }
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let cluster = Cluster::start().await;
    let mut object = config_map("a", json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    cluster.create(CONFIG_MAPS, &object).await;
    let path = format!("{CONFIG_MAPS}/a");
    let marked = cluster.delete(&path, &Value::Null).await;
    assert_eq!(marked.status, 200);
    let marked = marked.json();
    assert_eq!(marked["kind"], json!("ConfigMap"));
    assert_ne!(*at(&marked, "/metadata/deletionTimestamp"), Value::Null);
    let added = cluster
        .merge(
            &path,
            &json!({"metadata": {"finalizers": ["example.com/a", "example.com/c"]}}),
        )
        .await;
    assert_eq!(added.status, 422, "{}", added.text());
    let one = cluster
        .merge(
            &path,
            &json!({"metadata": {"finalizers": ["example.com/b"]}}),
        )
        .await;
    assert_eq!(one.status, 200);
    assert_eq!(cluster.get(&path).await.status, 200);
    let none = cluster
        .merge(&path, &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(none.status, 200, "{}", none.text());
    assert_eq!(cluster.get(&path).await.status, 404);
}

#[tokio::test]
async fn propagation_becomes_a_finalizer() {
    let cluster = Cluster::start().await;
    let cases = [
        (
            json!({"propagationPolicy": "Foreground"}),
            Some(json!(["foregroundDeletion"])),
        ),
        (
            json!({"propagationPolicy": "Orphan"}),
            Some(json!(["orphan"])),
        ),
        (json!({"orphanDependents": true}), Some(json!(["orphan"]))),
        (json!({"propagationPolicy": "Background"}), None),
        (Value::Null, None),
    ];
    for (i, (options, finalizers)) in cases.into_iter().enumerate() {
        let path = format!("{DEPLOYMENTS}/d{i}");
        cluster
            .create(DEPLOYMENTS, &deployment(&format!("d{i}")))
            .await;
        let reply = cluster.delete(&path, &options).await;
        assert_eq!(reply.status, 200, "{options}: {}", reply.text());
        let left = cluster.get(&path).await;
        match finalizers {
            Some(finalizers) => {
                assert_eq!(
                    *at(&left.json(), "/metadata/finalizers"),
                    finalizers,
                    "{options}"
                );
                assert_eq!(*at(&left.json(), "/metadata/generation"), json!(2));
            }
            None => {
                assert_eq!(left.status, 404, "{options}");
                assert_eq!(text(&reply.json(), "/status"), "Success");
                assert_eq!(text(&reply.json(), "/details/kind"), "deployments");
                assert_eq!(text(&reply.json(), "/details/group"), "apps");
            }
        }
    }
    cluster.create(DEPLOYMENTS, &deployment("x")).await;
    for (options, status) in [
        (json!({"propagationPolicy": "Sideways"}), 422),
        (
            json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
            422,
        ),
        (json!({"gracePeriodSeconds": "soon"}), 400),
    ] {
        let reply = cluster.delete(&format!("{DEPLOYMENTS}/x"), &options).await;
        assert_eq!(reply.status, status, "{options}: {}", reply.text());
    }
}

#[tokio::test]
async fn preconditions_must_hold_and_dry_runs_delete_nothing() {
    let cluster = Cluster::start().await;
    let created = cluster
        .create(CONFIG_MAPS, &config_map("a", json!({})))
        .await;
    let path = format!("{CONFIG_MAPS}/a");
    let uid = created["metadata"]["uid"].clone();
    let cases = [
        (json!({"preconditions": {"uid": "other"}}), 409),
        (json!({"preconditions": {"resourceVersion": "1"}}), 409),
        (json!({"dryRun": ["All"]}), 200),
        (
            json!({"preconditions": {"uid": uid, "resourceVersion": created["metadata"]["resourceVersion"]}}),
            200,
        ),
        (Value::Null, 404),
    ];
    for (options, status) in cases {
        let reply = cluster.delete(&path, &options).await;
        assert_eq!(reply.status, status, "{options}: {}", reply.text());
    }
}

#[tokio::test]
async fn a_namespace_terminates_until_it_is_finalized() {
    let cluster = Cluster::start().await;
    let namespaces = "/api/v1/namespaces";
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}});
    let created = cluster.create(namespaces, &namespace).await;
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(created["status"]["phase"], json!("Active"));
    assert_eq!(
        created["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "x"})
    );
    cluster
        .create(
            "/api/v1/namespaces/x/configmaps",
            &config_map("a", json!({})),
        )
        .await;

    let path = format!("{namespaces}/x");
    let deleted = cluster.delete(&path, &Value::Null).await;
    assert_eq!(deleted.json()["status"]["phase"], json!("Terminating"));
    let refused = cluster
        .post(
            "/api/v1/namespaces/x/configmaps",
            &config_map("b", json!({})),
        )
        .await;
    assert_eq!(refused.status, 403);
    assert_eq!(
        text(&refused.json(), "/message"),
        "configmaps \"b\" is forbidden: unable to create new content in namespace x because it is being terminated"
    );
    assert_eq!(
        text(&refused.json(), "/details/causes/0/reason"),
        "NamespaceTerminating"
    );
    let mut finalized = cluster.get(&path).await.json();
    finalized["spec"] = json!({});
    let plain = cluster.send("PUT", &path, &finalized).await;
    assert_eq!(plain.status, 200, "{}", plain.text());
    assert_eq!(
        cluster.get(&path).await.status,
        200,
        "only finalize finalizes"
    );
    finalized["metadata"]["resourceVersion"] = plain.json()["metadata"]["resourceVersion"].clone();
    let reply = cluster
        .send("PUT", &format!("{path}/finalize"), &finalized)
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(cluster.get(&path).await.status, 404);

    let immortal = cluster
        .delete(&format!("{namespaces}/default"), &Value::Null)
        .await;
    assert_eq!(immortal.status, 403);
}

#[tokio::test]
async fn events_are_deleted_when_they_are_not_written_for_a_while() {
    let cluster = Cluster::with(ServerOptions {
        event_ttl: std::time::Duration::from_millis(500),
        ..ServerOptions::default()
    })
    .await;
    let events = "/api/v1/namespaces/default/events";
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "R", "message": "m", "source": {"component": "c"}, "count": 1,
    });
    cluster.create(events, &event).await;
    cluster
        .create(CONFIG_MAPS, &config_map("a", json!({})))
        .await;
    let gone = async { while !names(&cluster.get(events).await.json()).is_empty() {} };
    assert!(
        timeout(PATIENCE, gone).await.is_ok(),
        "the event is there after {PATIENCE:?}"
    );
    assert_eq!(names(&cluster.get(CONFIG_MAPS).await.json()), ["a"]);
}

#[tokio::test]
async fn many_are_deleted_by_selector() {
    let cluster = Cluster::start().await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        cluster
            .create(CONFIG_MAPS, &config_map(name, json!({"l": label})))
            .await;
    }
    let reply = cluster
        .delete(&format!("{CONFIG_MAPS}?labelSelector=l%3Dx"), &Value::Null)
        .await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(names(&reply.json()), ["a", "c"]);
    assert_eq!(names(&cluster.get(CONFIG_MAPS).await.json()), ["b"]);
    let namespaces = cluster.delete("/api/v1/namespaces", &Value::Null).await;
    assert_eq!(namespaces.status, 405);
}

#[tokio::test]
async fn system_priority_classes_stay() {
    let cluster = Cluster::start().await;
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical";
    let reply = cluster.delete(path, &Value::Null).await;
    assert_eq!(
        (reply.status, text(&reply.json(), "/message")),
        (
            403,
            "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and cannot be deleted"
        )
    );
    assert_eq!(cluster.get(path).await.status, 200);
}

/// The controllers of other projects read a pod again when it changes, and act on its `deletionTimestamp`.
#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_at_once_is_read_with_its_deletion_timestamp_before_it_is_gone() {
    let cluster = Cluster::start().await;
    let local = cluster.server.local();
    let send = |method: &str, path: &str, body: Value| {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(match body {
                Value::Null => String::new(),
                body => body.to_string(),
            })));
        let answer = local.answer(request.expect("a request"));
        async {
            let answer = answer.await;
            let code = answer.status().as_u16();
            let body = answer.into_body().collect().await.map(|b| b.to_bytes());
            let body = serde_json::from_slice(&body.unwrap_or_default());
            (code, body.unwrap_or(Value::Null))
        }
    };
    let path = format!("{PODS}/p");
    let now = json!({"gracePeriodSeconds": 0});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "default"}, "deleteOptions": now});
    // (method, path, body, code, whether the request writes the status first)
    let requests = [
        ("DELETE", path.clone(), now.clone(), 200, false),
        ("DELETE", PODS.to_owned(), now.clone(), 200, false),
        ("POST", format!("{path}/eviction"), eviction, 201, true),
    ];
    for (method, target, body, expected, writes_status) in requests {
        let (code, created) = send("POST", PODS, pod("p")).await;
        assert_eq!(code, 201, "{created}");
        let revision = text(&created, "/metadata/resourceVersion").to_owned();
        let deletion = tokio::spawn(send(method, &target, body));
        // Virtual time does not advance while a task can run: the pod is not removed before the read.
        let marked = loop {
            tokio::task::yield_now().await;
            let (code, read) = send("GET", &path, Value::Null).await;
            assert_eq!(code, 200);
            if !at(&read, "/metadata/deletionTimestamp").is_null() {
                break read;
            }
        };
        assert_eq!(
            at(&marked, "/metadata/deletionGracePeriodSeconds"),
            &json!(0)
        );
        let (code, _) = deletion.await.expect("an answer");
        assert_eq!(code, expected);
        assert_eq!(send("GET", &path, Value::Null).await.0, 404);
        let watch = format!("{PODS}?watch=1&timeoutSeconds=1&resourceVersion={revision}");
        let events = cluster.get(&watch).await.events();
        let seen: Vec<(&str, &str)> = events
            .iter()
            .skip(usize::from(writes_status))
            .map(|e| {
                (
                    text(e, "/type"),
                    text(e, "/object/metadata/resourceVersion"),
                )
            })
            .collect();
        let [("MODIFIED", first), ("DELETED", second)] = seen[..] else {
            panic!("{seen:?}");
        };
        assert_eq!(first, text(&marked, "/metadata/resourceVersion"));
        assert_ne!(first, second);
    }
}
