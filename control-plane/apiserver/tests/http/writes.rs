//! Creating, updating and patching.

use super::*;
use berth_protobuf::envelope::Envelope;

#[tokio::test]
async fn unknown_fields_fail_warn_or_vanish() {
    let cluster = Cluster::start().await;
    let cases = [
        ("Strict", 400, ""),
        (
            "Warn",
            201,
            "299 - \"unknown field \\\"spec.nodeSelektor\\\"\"",
        ),
        ("Ignore", 201, ""),
        ("", 201, "299 - \"unknown field \\\"spec.nodeSelektor\\\"\""),
    ];
    for (validation, status, warning) in cases {
        let mut object = pod(&format!("p-{}", validation.to_lowercase()));
        object["metadata"]["name"] = format!("p{}", validation.to_lowercase()).into();
        object["spec"]["nodeSelektor"] = json!({"a": "b"});
        let reply = cluster
            .post(&format!("{PODS}?fieldValidation={validation}"), &object)
            .await;
        assert_eq!(reply.status, status, "{validation}: {}", reply.text());
        assert_eq!(reply.header("warning"), warning, "{validation}");
        assert_eq!(*at(&reply.json(), "/spec/nodeSelektor"), Value::Null);
    }
    let reply = cluster
        .post(&format!("{PODS}?fieldValidation=Maybe"), &pod("p"))
        .await;
    assert_eq!(reply.status, 422, "{}", reply.text());
}

#[tokio::test]
async fn a_duplicate_field_is_reported() {
    let cluster = Cluster::start().await;
    let body = json!(
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","x":"2"}}"#
    );
    let strict = cluster
        .post(&format!("{CONFIG_MAPS}?fieldValidation=Strict"), &body)
        .await;
    assert_eq!(strict.status, 400);
    assert!(
        strict.text().contains("duplicate field"),
        "{}",
        strict.text()
    );
    let warned = cluster.post(CONFIG_MAPS, &body).await;
    assert_eq!(warned.status, 201);
    assert!(warned.header("warning").contains("duplicate field"));
}

#[tokio::test]
async fn bodies_and_answers_may_be_yaml_or_protobuf() {
    let cluster = Cluster::start().await;
    let yaml =
        json!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: from-yaml\ndata:\n  a: b\n");
    let reply = cluster
        .send_as("POST", CONFIG_MAPS, "application/yaml", &yaml)
        .await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    // As kubectl sends `create configmap a --from-literal=x=y`.
    let protobuf =
        b"k8s\0\n\x0f\n\x02v1\x12\tConfigMap\x12\x0d\n\x03\n\x01a\x12\x06\n\x01x\x12\x01y";
    let reply = cluster
        .ask(Ask {
            method: "POST".to_owned(),
            path: CONFIG_MAPS.to_owned(),
            content_type: "application/vnd.kubernetes.protobuf".to_owned(),
            accept: "application/vnd.kubernetes.protobuf,application/json".to_owned(),
            body: protobuf.to_vec(),
            ..Ask::default()
        })
        .await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_eq!(
        reply.header("content-type"),
        "application/vnd.kubernetes.protobuf"
    );
    let created = Envelope::open(&reply.body).and_then(|body| body.decode());
    let created: Value = created.expect("protobuf");
    assert_eq!(*at(&created, "/data"), json!({"x": "y"}));
    assert_eq!(text(&created, "/kind"), "ConfigMap");
    let reply = cluster
        .ask(Ask {
            path: format!("{CONFIG_MAPS}/a"),
            accept: "application/yaml".to_owned(),
            ..Ask::default()
        })
        .await;
    assert_eq!(reply.header("content-type"), "application/yaml");
    assert!(reply.text().contains("\n  x: "), "{}", reply.text());
    let reply = cluster
        .send_as("POST", CONFIG_MAPS, "text/html", &yaml)
        .await;
    assert_eq!(reply.status, 415);
}

#[tokio::test]
async fn names_are_generated_and_a_dry_run_stores_nothing() {
    let cluster = Cluster::start().await;
    let mut object = pod("");
    object["metadata"] = json!({"generateName": "web-"});
    let first = cluster.create(PODS, &object).await;
    let second = cluster.create(PODS, &object).await;
    for created in [&first, &second] {
        let name = text(created, "/metadata/name");
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    }
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);

    let before = cluster.server.revision();
    let path = format!("{PODS}?dryRun=All");
    let dry = cluster.create(&path, &pod("dry")).await;
    assert_eq!(dry["metadata"]["resourceVersion"], Value::Null);
    assert_eq!(cluster.get(&format!("{PODS}/dry")).await.status, 404);
    assert_eq!(cluster.server.revision(), before);

    object["metadata"] = json!({});
    let reply = cluster.post(PODS, &object).await;
    assert_eq!(reply.status, 422);
    assert!(
        reply.text().contains("name or generateName is required"),
        "{}",
        reply.text()
    );
}

#[tokio::test]
async fn an_update_replaces_the_version_that_it_names() {
    let cluster = Cluster::start().await;
    let created = cluster
        .create(CONFIG_MAPS, &config_map("a", json!({})))
        .await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut changed = created.clone();
    changed["data"] = json!({"a": "c"});
    let updated = cluster.send("PUT", &path, &changed).await;
    assert_eq!(updated.status, 200, "{}", updated.text());
    let stale = cluster.send("PUT", &path, &changed).await;
    assert_eq!(stale.status, 409);

    let mut blind = changed.clone();
    blind["metadata"] = json!({"name": "a"});
    blind["data"] = json!({"a": "d"});
    let reply = cluster.send("PUT", &path, &blind).await;
    assert_eq!(reply.status, 200, "without a version the last writer wins");
    assert_eq!(reply.json()["metadata"]["uid"], created["metadata"]["uid"]);
    let again = cluster.send("PUT", &path, &blind).await;
    assert_eq!(
        again.json()["metadata"]["resourceVersion"],
        reply.json()["metadata"]["resourceVersion"],
        "an update that changes nothing writes nothing"
    );

    blind["metadata"]["uid"] = json!("another");
    assert_eq!(cluster.send("PUT", &path, &blind).await.status, 409);
    blind["metadata"] = json!({"name": "b"});
    assert_eq!(cluster.send("PUT", &path, &blind).await.status, 400);
    let missing = cluster
        .send("PUT", &format!("{CONFIG_MAPS}/b"), &blind)
        .await;
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn a_lease_is_not_updated_blindly() {
    let cluster = Cluster::start().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "n"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 40},
    });
    let created = cluster.create(leases, &lease).await;
    let path = format!("{leases}/n");
    assert_eq!(cluster.send("PUT", &path, &lease).await.status, 422);
    assert_eq!(cluster.send("PUT", &path, &created).await.status, 200);
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec() {
    let cluster = Cluster::start().await;
    cluster.create(DEPLOYMENTS, &deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d");
    let status = format!("{path}/status");
    let cases = [
        (&path, json!({"spec": {"replicas": 3}}), 2),
        (&path, json!({"spec": {"replicas": 3}}), 2),
        (&path, json!({"metadata": {"labels": {"x": "y"}}}), 2),
        (&path, json!({"metadata": {"annotations": {"x": "y"}}}), 3),
        (&status, json!({"status": {"replicas": 3}}), 3),
        (&status, json!({"spec": {"replicas": 9}}), 3),
        (&path, json!({"status": {"replicas": 7}}), 3),
    ];
    for (path, patch, generation) in cases {
        let reply = cluster.merge(path, &patch).await;
        assert_eq!(reply.status, 200, "{patch}: {}", reply.text());
        let got = reply.json();
        assert_eq!(got["metadata"]["generation"], json!(generation), "{patch}");
    }
    let last = cluster.get(&path).await.json();
    assert_eq!(last["spec"]["replicas"], json!(3));
    assert_eq!(last["status"]["replicas"], json!(3));
}

#[tokio::test]
async fn patches_that_do_not_fit_are_refused() {
    let cluster = Cluster::start().await;
    cluster
        .create(CONFIG_MAPS, &config_map("a", json!({})))
        .await;
    let path = format!("{CONFIG_MAPS}/a");
    let operations: Vec<Value> = (0..10_001)
        .map(|_| json!({"op": "test", "path": "/data/a", "value": "b"}))
        .collect();
    let cases = [
        (
            "application/json-patch+json",
            "",
            json!([{"op": "remove", "path": "/data/zzz"}]),
            422,
        ),
        (
            "application/json-patch+json",
            "",
            json!({"op": "remove"}),
            400,
        ),
        ("application/json-patch+json", "", json!(operations), 413),
        ("application/merge-patch+json", "", json!([1]), 400),
        (
            "application/merge-patch+json",
            "",
            json!({"data": {"a": 1}}),
            422,
        ),
        (
            "application/merge-patch+json",
            "?fieldValidation=Strict",
            json!({"daat": {}}),
            422,
        ),
        (
            "application/merge-patch+json",
            "?fieldValidation=Ignore",
            json!({"daat": {}}),
            200,
        ),
        (
            "application/merge-patch+json",
            "",
            json!({"metadata": {"name": "b"}}),
            400,
        ),
        (
            "application/merge-patch+json",
            "",
            json!({"metadata": {"resourceVersion": "1"}}),
            409,
        ),
        (
            "application/merge-patch+json",
            "",
            json!({"metadata": {"uid": "x"}}),
            422,
        ),
        (
            "application/strategic-merge-patch+json",
            "",
            json!({"data": {"c": "d"}}),
            200,
        ),
        (
            "application/apply-patch+cbor",
            "?fieldManager=x",
            json!({}),
            415,
        ),
    ];
    for (content_type, query, patch, status) in cases {
        let reply = cluster
            .send_as("PATCH", &format!("{path}{query}"), content_type, &patch)
            .await;
        let shown: String = patch.to_string().chars().take(80).collect();
        assert_eq!(
            reply.status,
            status,
            "{content_type} {shown}: {}",
            reply.text()
        );
    }
    let last = cluster.get(&path).await.json();
    assert_eq!(last["data"], json!({"a": "b", "c": "d"}));
}

#[tokio::test]
async fn scale_speaks_of_replicas_whatever_the_kind() {
    let cluster = Cluster::start().await;
    cluster.create(DEPLOYMENTS, &deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let scale = cluster.get(&path).await.json();
    assert_eq!(scale["spec"]["replicas"], json!(2));
    assert_eq!(scale["status"]["selector"], json!("a=b"));
    let mut wanted = scale.clone();
    wanted["spec"]["replicas"] = json!(7);
    let reply = cluster.send("PUT", &path, &wanted).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["spec"]["replicas"], json!(7));
    assert_eq!(cluster.send("PUT", &path, &wanted).await.status, 409);
    let negative = cluster
        .merge(&path, &json!({"spec": {"replicas": -1}}))
        .await;
    assert_eq!(negative.status, 422);
    let stored = cluster.get(&format!("{DEPLOYMENTS}/d")).await.json();
    assert_eq!(stored["spec"]["replicas"], json!(7));
    assert_eq!(stored["metadata"]["generation"], json!(2));
}

#[tokio::test]
async fn events_are_the_same_objects_in_both_groups() {
    let cluster = Cluster::start().await;
    let core = "/api/v1/namespaces/default/events";
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "Scheduled",
        "message": "m",
        "type": "Normal",
        "source": {"component": "test"},
        "count": 1,
    });
    cluster.create(core, &event).await;
    let other = "/apis/events.k8s.io/v1/namespaces/default/events";
    let seen = cluster.get(&format!("{other}/e")).await.json();
    assert_eq!(seen["apiVersion"], json!("events.k8s.io/v1"));
    assert_eq!(seen["regarding"]["name"], json!("p"));
    assert_eq!(seen["note"], json!("m"));
    let patch = "application/strategic-merge-patch+json";
    let series = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"});
    // Through the newer API only the series may change.
    for (path, change, code) in [
        (other, json!({"note": "n"}), 422),
        (other, json!({"series": series}), 200),
        (core, json!({"message": "n"}), 200),
    ] {
        let reply = cluster
            .send_as("PATCH", &format!("{path}/e"), patch, &change)
            .await;
        assert_eq!(reply.status, code, "{path} {change}: {}", reply.text());
    }
    let back = cluster.get(&format!("{other}/e")).await.json();
    assert_eq!(
        (&back["note"], &back["series"]["count"]),
        (&json!("n"), &json!(2))
    );
    for (path, selector, found) in [
        (core, "involvedObject.name=p,reason=Scheduled", 1),
        (core, "involvedObject.name=q", 0),
        (other, "regarding.name=p", 1),
    ] {
        let list = cluster
            .get(&format!("{path}?fieldSelector={selector}"))
            .await;
        assert_eq!(names(&list.json()).len(), found, "{path} {selector}");
    }
}

#[tokio::test]
async fn priority_comes_from_the_class() {
    let cluster = Cluster::start().await;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name: &str, value: i64, default: bool| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "globalDefault": default,
        })
    };
    let with = |name: &str, spec: Value| {
        let mut object = pod(name);
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        object
    };
    let plain = cluster.create(PODS, &pod("plain")).await;
    assert_eq!(plain["spec"]["priority"], json!(0));
    cluster.create(classes, &class("standard", 5, true)).await;
    let second = cluster.post(classes, &class("other", 6, true)).await;
    assert_eq!(second.status, 403, "{}", second.text());
    cluster.create(classes, &class("high", 1000, false)).await;
    let cases = [
        ("default", json!({}), 201, 5),
        ("named", json!({"priorityClassName": "high"}), 201, 1000),
        (
            "system",
            json!({"priorityClassName": "system-node-critical"}),
            201,
            2_000_001_000,
        ),
        (
            "same",
            json!({"priorityClassName": "high", "priority": 1000}),
            201,
            1000,
        ),
        (
            "other",
            json!({"priorityClassName": "high", "priority": 7}),
            403,
            0,
        ),
        ("absent", json!({"priorityClassName": "nope"}), 403, 0),
    ];
    for (name, spec, status, priority) in cases {
        let reply = cluster.post(PODS, &with(name, spec)).await;
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
        if status == 201 {
            assert_eq!(reply.json()["spec"]["priority"], json!(priority), "{name}");
        }
    }
}

#[tokio::test]
async fn admission_can_be_switched_off() {
    let mut options = ServerOptions::default();
    let on = Cluster::with(options.clone()).await;
    options.admission.service_account = false;
    options.admission.default_toleration_seconds = false;
    let off = Cluster::with(options).await;
    let with = on.create(PODS, &pod("p")).await;
    assert_eq!(text(&with, "/spec/serviceAccountName"), "default");
    assert_eq!(
        at(&with, "/spec/tolerations").as_array().map(Vec::len),
        Some(2)
    );
    let without = off.create(PODS, &pod("p")).await;
    assert_eq!(text(&without, "/spec/serviceAccountName"), "");
    assert_eq!(*at(&without, "/spec/tolerations"), Value::Null);
}

/// The account `default` may be missing: it is created after its namespace.
#[tokio::test]
async fn a_pod_of_an_account_that_does_not_exist_is_rejected() {
    let cluster = Cluster::start().await;
    let mut robot = pod("p");
    robot["spec"]["serviceAccountName"] = "robot".into();
    let refused = cluster.post(PODS, &robot).await;
    assert_eq!(
        (refused.status, text(&refused.json(), "/message")),
        (
            403,
            "pods \"p\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found"
        )
    );
    // The name is not generated yet.
    robot["metadata"] = json!({"generateName": "gen-"});
    let refused = cluster.post(PODS, &robot).await;
    let message = refused.json();
    assert!(
        text(&message, "/message").starts_with("pods \"gen-\" is forbidden: "),
        "{message}"
    );
    cluster.create(PODS, &pod("q")).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.create(accounts, &account).await;
    cluster.create(PODS, &robot).await;
}

#[tokio::test]
async fn reviews_are_answered_and_not_stored() {
    let cluster = Cluster::start().await;
    let access = |user: &str, groups: Value| {
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups, "resourceAttributes": {"verb": "get", "resource": "pods"}},
        })
    };
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let reply = cluster
        .create(path, &access("a", json!(["system:masters"])))
        .await;
    assert_eq!(reply["status"]["allowed"], json!(true));
    let reply = cluster.create(path, &access("a", json!(["others"]))).await;
    assert_eq!(reply["status"]["allowed"], json!(false));
    let token = |token: &str| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let good = cluster
        .create(path, &token(cluster.server.admin_token()))
        .await;
    assert_eq!(good["status"]["authenticated"], json!(true));
    let bad = cluster.create(path, &token("x")).await;
    assert_eq!(*at(&bad, "/status/authenticated"), Value::Null);
    assert_eq!(cluster.get(path).await.status, 405);
}

#[tokio::test]
async fn what_is_made_from_a_name_is_made_from_a_generated_one_too() {
    let cluster = Cluster::start().await;
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "j-"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "registry.example/a:1"}],
        }}},
    });
    let created = cluster
        .create("/apis/batch/v1/namespaces/default/jobs", &job)
        .await;
    let name = text(&created, "/metadata/name");
    assert!(name.starts_with("j-") && name.len() == 7, "{name}");
    let labels = at(&created, "/spec/template/metadata/labels");
    assert_eq!(labels["job-name"], name);
    assert_eq!(labels["batch.kubernetes.io/job-name"], name);
}

#[tokio::test]
async fn what_is_hardly_meant_gives_a_warning() {
    let cluster = Cluster::start().await;
    let mut old = pod("old");
    old["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/os": "linux"});
    let reply = cluster.post(PODS, &old).await;
    assert_eq!(
        reply.header("warning"),
        "299 - \"spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \\\"kubernetes.io/os\\\" instead\""
    );
    assert_eq!(cluster.post(PODS, &pod("p")).await.header("warning"), "");
    let reply = cluster.get("/api/v1/namespaces/default/endpoints").await;
    assert!(
        reply
            .header("warning")
            .contains("use discovery.k8s.io/v1 EndpointSlice")
    );
}

#[tokio::test]
async fn fields_with_a_list_of_values_take_each_of_them() {
    let cluster = Cluster::start().await;
    let networking = "/apis/networking.k8s.io/v1/namespaces/default";
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices".to_owned();
    let named = |kind: &str, api_version: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    for (i, value) in ["Exact", "ImplementationSpecific", "Prefix"]
        .iter()
        .enumerate()
    {
        let mut ingress = named("Ingress", "networking.k8s.io/v1", &format!("i{i}"));
        let service = json!({"name": "s", "port": {"number": 80}});
        ingress["spec"] = json!({"rules": [{"http": {"paths": [
            {"path": "/", "pathType": value, "backend": {"service": service}},
        ]}}]});
        cluster
            .create(&format!("{networking}/ingresses"), &ingress)
            .await;
    }
    for (i, value) in ["SCTP", "TCP", "UDP"].iter().enumerate() {
        let mut policy = named("NetworkPolicy", "networking.k8s.io/v1", &format!("p{i}"));
        policy["spec"] = json!({
            "podSelector": {},
            "ingress": [{"ports": [{"port": 80, "protocol": value}]}],
        });
        cluster
            .create(&format!("{networking}/networkpolicies"), &policy)
            .await;
        let mut slice = named("EndpointSlice", "discovery.k8s.io/v1", &format!("s{i}"));
        slice["addressType"] = "IPv4".into();
        slice["endpoints"] = json!([]);
        slice["ports"] = json!([{"name": "a", "port": 80, "protocol": value}]);
        cluster.create(&slices, &slice).await;
    }
    for (i, value) in ["File", "None", "ReadWriteOnceWithFSType"]
        .iter()
        .enumerate()
    {
        let mut driver = named(
            "CSIDriver",
            "storage.k8s.io/v1",
            &format!("d{i}.example.com"),
        );
        driver["spec"] = json!({"fsGroupPolicy": value});
        cluster
            .create("/apis/storage.k8s.io/v1/csidrivers", &driver)
            .await;
    }
    let mut wrong = named("EndpointSlice", "discovery.k8s.io/v1", "wrong");
    wrong["addressType"] = "IPv5".into();
    wrong["endpoints"] = json!([]);
    let refused = cluster.post(&slices, &wrong).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let expect =
        r#"addressType: Unsupported value: "IPv5": supported values: "FQDN", "IPv4", "IPv6""#;
    assert!(
        refused.text().replace("\\\"", "\"").contains(expect),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn the_api_server_is_found_as_the_service_kubernetes() {
    let cluster = Cluster::start().await;
    let service = cluster
        .get("/api/v1/namespaces/default/services/kubernetes")
        .await;
    assert_eq!(text(&service.json(), "/spec/clusterIP"), "10.96.0.1");
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = cluster.get(path).await.json();
    let port = i64::from(cluster.server.addr().port());
    assert_eq!(*at(&slice, "/ports/0/port"), json!(port));
    assert_eq!(text(&slice, "/endpoints/0/addresses/0"), "127.0.0.1");
}

#[tokio::test]
async fn strict_validation_reports_fields_in_the_order_of_the_document() {
    let cluster = Cluster::start().await;
    let body = r#"{"zz": 1, "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "x", "zfoo": 1, "name": "x", "afoo": 2},
        "spec": {"zspec": 1, "containers": [{"name": "c", "image": "i", "image": "j"}],
            "aspec": 2, "containers": [{"name": "c", "image": "i"}], "zspec": 3},
        "aa": 1, "zz": 2}"#;
    let path = format!("{PODS}?fieldValidation=Strict");
    let reply = cluster
        .send_as("POST", &path, "application/json", &json!(body))
        .await;
    let expect = [
        "unknown field \"zz\"",
        "unknown field \"metadata.zfoo\"",
        "duplicate field \"metadata.name\"",
        "unknown field \"metadata.afoo\"",
        "unknown field \"spec.zspec\"",
        "duplicate field \"spec.containers[0].image\"",
        "unknown field \"spec.aspec\"",
        "duplicate field \"spec.containers\"",
        "unknown field \"aa\"",
    ];
    assert_eq!(
        text(&reply.json(), "/message"),
        format!(
            "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: {}",
            expect.join(", ")
        )
    );
}

#[tokio::test]
async fn pods_mount_the_token_of_their_account_unless_they_opt_out() {
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let cluster = Cluster::start().await;
    for (name, automount) in [("on", true), ("off", false)] {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name},
            "automountServiceAccountToken": automount,
            "imagePullSecrets": [{"name": "pull"}],
        });
        cluster.create(ACCOUNTS, &account).await;
    }
    let own = json!([{"name": "own", "mountPath": PATH}]);
    let volume = json!([{"name": "own", "emptyDir": {}}]);
    for (name, spec, is_mounted) in [
        ("plain", json!({}), true),
        (
            "pod-off",
            json!({"automountServiceAccountToken": false}),
            false,
        ),
        ("account-off", json!({"serviceAccountName": "off"}), false),
        (
            "pod-on",
            json!({"serviceAccountName": "off", "automountServiceAccountToken": true}),
            true,
        ),
        (
            "own-mount",
            json!({"volumes": volume, "containers": [{"name": "c", "image": "a", "volumeMounts": own}]}),
            false,
        ),
    ] {
        let mut object = pod(name);
        for (field, value) in spec.as_object().into_iter().flatten() {
            object["spec"][field] = value.clone();
        }
        let created = cluster.create(PODS, &object).await;
        let volumes = at(&created, "/spec/volumes").as_array().cloned();
        let volumes = volumes.unwrap_or_default();
        let token = volumes
            .iter()
            .find(|v| text(v, "/name").starts_with("kube-api-access-"));
        assert_eq!(token.is_some(), is_mounted, "{name}: {created}");
        let Some(token) = token else {
            continue;
        };
        assert_eq!(
            at(token, "/projected"),
            &json!({"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
            ]})
        );
        assert_eq!(
            at(&created, "/spec/containers/0/volumeMounts"),
            &json!([{"name": text(token, "/name"), "mountPath": PATH, "readOnly": true}])
        );
    }
    let mut object = pod("pulls");
    object["spec"]["serviceAccountName"] = "on".into();
    let created = cluster.create(PODS, &object).await;
    assert_eq!(
        at(&created, "/spec/imagePullSecrets"),
        &json!([{"name": "pull"}])
    );
}
