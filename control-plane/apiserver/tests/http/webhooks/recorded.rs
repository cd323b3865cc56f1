//! Reviews of built-in kinds, as kube-apiserver 1.36.2 has sent them to a webhook for the same requests.

use super::*;

const APPS: &str = "/apis/apps/v1/namespaces/default";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const NETWORKING: &str = "/apis/networking.k8s.io/v1";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

fn object(api_version: &str, kind: &str, content: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
    for (field, value) in content.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

fn role(content: Value) -> Value {
    object("rbac.authorization.k8s.io/v1", "ClusterRole", content)
}

fn slice(content: Value) -> Value {
    let mut slice = object("discovery.k8s.io/v1", "EndpointSlice", content);
    slice["addressType"] = "IPv4".into();
    slice
}

/// Webhooks that receive every request, one of them in an older version of some resources.
async fn listen(cluster: &Cluster, webhook: &Webhook, older: Value) {
    for path in ["/mutate", "/validate", "/older"] {
        webhook.answer(path, |_| json!({"allowed": true}));
    }
    let every = json!({"rules": [{
        "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"],
    }]});
    let mut hooks = vec![webhook.hook("/validate", every.clone())];
    if !older.is_null() {
        let mut hook = webhook.hook("/older", json!({"rules": [older]}));
        hook["name"] = "older.example.com".into();
        hooks.push(hook);
    }
    cluster
        .configure("ValidatingWebhookConfiguration", hooks.into())
        .await;
    cluster
        .configure(MUTATING, json!([webhook.hook("/mutate", every)]))
        .await;
}

/// API-80. Each line is Go's encoding of one value that was sent.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_see_empty_lists_and_maps_as_go_encodes_them() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    listen(&cluster, &webhook, Value::Null).await;
    let policy = |spec: Value| {
        let mut policy = object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": spec}),
        );
        policy["spec"]["podSelector"] = json!({});
        policy
    };
    let class = |content: Value| {
        let mut class = object("storage.k8s.io/v1", "StorageClass", content);
        class["provisioner"] = "p.example".into();
        class
    };
    let backend = json!({"service": {"name": "a", "port": {"number": 80}}});
    let ingress = |rules: Value| {
        let spec = json!({"defaultBackend": backend, "rules": rules});
        object("networking.k8s.io/v1", "Ingress", json!({"spec": spec}))
    };
    let job = object(
        "batch/v1",
        "Job",
        json!({"spec": {
            "podFailurePolicy": {"rules": []},
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        }}),
    );
    let volumes = json!([{"name": "v", "projected": {"sources": []}}]);
    let mut projected = pod("x");
    projected["spec"]["volumes"] = volumes;
    projected["spec"]["containers"][0]["args"] = json!([]);
    let limits = object("v1", "LimitRange", json!({"spec": {"limits": []}}));
    let node = object(
        "storage.k8s.io/v1",
        "CSINode",
        json!({"spec": {"drivers": []}}),
    );
    let (empty, null) = (|| Some(json!([])), || Some(Value::Null));
    let policies = format!("{NETWORKING}/namespaces/default/networkpolicies");
    let ingresses = format!("{NETWORKING}/namespaces/default/ingresses");
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let cases = [
        (ROLES, role(json!({"rules": []})), "/rules", empty()),
        (ROLES, role(json!({"rules": null})), "/rules", null()),
        (ROLES, role(json!({})), "/rules", null()),
        (
            SLICES,
            slice(json!({"endpoints": [], "ports": []})),
            "/endpoints",
            empty(),
        ),
        (
            SLICES,
            slice(json!({"endpoints": [], "ports": []})),
            "/ports",
            empty(),
        ),
        (SLICES, slice(json!({"endpoints": []})), "/ports", null()),
        (
            "/api/v1/namespaces/default/limitranges",
            limits,
            "/spec/limits",
            empty(),
        ),
        (
            "/apis/storage.k8s.io/v1/csinodes",
            node,
            "/spec/drivers",
            empty(),
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            job,
            "/spec/podFailurePolicy/rules",
            empty(),
        ),
        (
            PODS,
            projected.clone(),
            "/spec/volumes/0/projected/sources",
            empty(),
        ),
        (PODS, projected, "/spec/containers/0/args", None),
        (
            &*policies,
            policy(json!({"egress": []})),
            "/spec/egress",
            None,
        ),
        (&*ingresses, ingress(json!([])), "/spec/rules", None),
        (&*ingresses, ingress(Value::Null), "/spec/rules", None),
        (
            classes,
            class(json!({"parameters": {}})),
            "/parameters",
            None,
        ),
        (
            CONFIG_MAPS,
            object("v1", "ConfigMap", json!({"data": {}})),
            "/data",
            None,
        ),
        (
            CONFIG_MAPS,
            object("v1", "ConfigMap", json!({"data": null})),
            "/data",
            None,
        ),
    ];
    for (path, sent, pointer, expected) in cases {
        webhook.take_requests();
        let reply = cluster.post(&format!("{path}?dryRun=All"), &sent).await;
        assert_eq!(reply.status, 201, "{path}: {}", reply.text());
        let requests = webhook.take_requests();
        assert_eq!(requests.len(), 2, "{path}");
        for request in requests {
            let shown = request["object"].pointer(pointer);
            assert_eq!(shown, expected.as_ref(), "{path} {pointer} of {sent}");
        }
        // The stored object does not have it.
        let answer = reply.json().pointer(pointer).cloned();
        assert_eq!(answer, expected.map(|_| Value::Null), "{path} {pointer}");
    }
}

/// API-80.
#[tokio::test(flavor = "multi_thread")]
async fn the_old_object_has_null_where_an_empty_list_is_sent_again() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    listen(&cluster, &webhook, Value::Null).await;
    cluster.create(ROLES, &role(json!({"rules": []}))).await;
    let path = format!("{ROLES}/x");
    let labelled = |rules: Value| json!({"metadata": {"labels": {"a": "b"}}, "rules": rules});
    let merge = "application/merge-patch+json";
    let strategic = "application/strategic-merge-patch+json";
    let apply = "application/apply-patch+yaml";
    let empty = json!([]);
    let unchanged = json!({"metadata": {"labels": {"a": "c"}}});
    for (method, query, kind, body, expected) in [
        (
            "PUT",
            "",
            "application/json",
            role(json!({"rules": []})),
            &empty,
        ),
        ("PUT", "", "application/json", role(json!({})), &Value::Null),
        ("PATCH", "", merge, unchanged, &Value::Null),
        ("PATCH", "", merge, labelled(json!([])), &empty),
        ("PATCH", "", strategic, labelled(json!([])), &empty),
        (
            "PATCH",
            "?fieldManager=m&force=true",
            apply,
            role(json!({"rules": []})),
            &empty,
        ),
    ] {
        webhook.take_requests();
        let reply = cluster
            .send_as(method, &format!("{path}{query}"), kind, &body)
            .await;
        assert_eq!(reply.status, 200, "{kind}: {}", reply.text());
        assert_eq!(reply.json()["rules"], Value::Null, "{kind}");
        let requests = webhook.take_requests();
        assert_eq!(requests.len(), 2, "{kind}");
        for request in requests {
            assert_eq!(request["object"]["rules"], *expected, "{kind} {body}");
            assert_eq!(request["oldObject"]["rules"], Value::Null, "{kind} {body}");
        }
    }
}

/// API-80.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_appends_to_an_empty_list_that_was_sent() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    let added = json!([{"op": "add", "path": "/rules/-", "value": rule}]);
    webhook.answer("/append", move |_| patch(added.clone()));
    let rules =
        json!({"rules": [super::receiver::rule("rbac.authorization.k8s.io", "clusterroles", "*")]});
    cluster
        .configure(MUTATING, json!([webhook.hook("/append", rules)]))
        .await;
    let created = cluster.create(ROLES, &role(json!({"rules": []}))).await;
    assert_eq!(created["rules"], json!([rule]));
    let mut other = role(json!({}));
    other["metadata"]["name"] = "y".into();
    assert_eq!(cluster.post(ROLES, &other).await.status, 500);
}

/// Webhooks receive the stated field manager of a request, not the manager from the name of the client.
#[tokio::test(flavor = "multi_thread")]
async fn options_have_the_field_manager_that_is_stated() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    listen(&cluster, &webhook, Value::Null).await;
    for (query, manager) in [("", None), ("?fieldManager=m", Some("m"))] {
        webhook.take_requests();
        let mut map = object("v1", "ConfigMap", json!({}));
        map["metadata"] = json!({"generateName": "m-"});
        let path = format!("{CONFIG_MAPS}{query}");
        let created = cluster.create(&path, &map).await;
        let named = &created["metadata"]["managedFields"][0]["manager"];
        assert!(
            named.as_str().is_some_and(|name| !name.is_empty()),
            "{created}"
        );
        for request in webhook.take_requests() {
            let stated = request["options"]["fieldManager"].as_str();
            assert_eq!(stated, manager, "{query:?}");
        }
    }
}

/// Fields that Go always writes in an older version, and its annotations.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_see_converted_objects_as_kube_apiserver_converts_them() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    let older = json!({
        "apiGroups": ["autoscaling", "resource.k8s.io"], "apiVersions": ["v1beta1", "v1"],
        "resources": ["horizontalpodautoscalers", "resourceclaims"], "operations": ["CREATE"],
    });
    let v1 = {
        let mut rule = older.clone();
        rule["apiGroups"] = json!(["autoscaling"]);
        rule["apiVersions"] = json!(["v1"]);
        rule
    };
    listen(&cluster, &webhook, v1).await;
    let scaled = object(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        json!({"spec": {
            "maxReplicas": 2,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
            "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 10}]}, "scaleDown": {}},
        }}),
    );
    let reply = cluster
        .post(&format!("{AUTOSCALERS}?dryRun=All"), &scaled)
        .await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let requests = webhook.take_requests();
    let converted = requests.iter().find(|r| r["kind"]["version"] == "v1");
    let converted = &converted.expect("a review in version 1")["object"];
    assert_eq!(
        converted["status"],
        json!({"currentReplicas": 0, "desiredReplicas": 0})
    );
    assert_eq!(
        converted["metadata"]["annotations"],
        json!({"autoscaling.alpha.kubernetes.io/behavior": "{\"ScaleUp\":{\"StabilizationWindowSeconds\":0,\"SelectPolicy\":\"Max\",\"Policies\":[{\"Type\":\"Pods\",\"Value\":1,\"PeriodSeconds\":10}],\"Tolerance\":null},\"ScaleDown\":{\"StabilizationWindowSeconds\":null,\"SelectPolicy\":\"Max\",\"Policies\":[{\"Type\":\"Percent\",\"Value\":100,\"PeriodSeconds\":15}],\"Tolerance\":null}}"}),
    );
    let v1beta1 = {
        let mut rule = older;
        rule["apiGroups"] = json!(["resource.k8s.io"]);
        rule["apiVersions"] = json!(["v1beta1"]);
        rule
    };
    listen(&cluster, &webhook, v1beta1).await;
    let claim = object(
        "resource.k8s.io/v1",
        "ResourceClaim",
        json!({"spec": {"devices": {"requests": [
            {"name": "f", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]},
        ]}}}),
    );
    let reply = cluster.post(&format!("{CLAIMS}?dryRun=All"), &claim).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let requests = webhook.take_requests();
    let converted = requests.iter().find(|r| r["kind"]["version"] == "v1beta1");
    let converted = &converted.expect("a review in v1beta1")["object"];
    assert_eq!(
        converted["spec"]["devices"]["requests"][0]["deviceClassName"],
        ""
    );
}

/// The behavior in an annotation of version 1 has Go's field names; the names of version 2 are read, too.
#[tokio::test]
async fn the_behavior_of_an_autoscaler_of_version_1_is_read() {
    let cluster = Cluster::start().await;
    let of_v1 = AUTOSCALERS.replace("/v2/", "/v1/");
    for (name, behavior) in [
        (
            "go",
            r#"{"ScaleUp":{"StabilizationWindowSeconds":5,"Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":10}]}}"#,
        ),
        (
            "served",
            r#"{"scaleUp":{"stabilizationWindowSeconds":5,"policies":[{"type":"Pods","value":1,"periodSeconds":10}]}}"#,
        ),
    ] {
        let mut scaled = object(
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            json!({"spec": {
                "maxReplicas": 2, "scaleTargetRef": {"kind": "D", "name": "d", "apiVersion": "apps/v1"},
            }}),
        );
        scaled["metadata"] = json!({"name": name, "annotations": {"autoscaling.alpha.kubernetes.io/behavior": behavior}});
        cluster.create(&of_v1, &scaled).await;
        let read = cluster.get(&format!("{AUTOSCALERS}/{name}")).await.json();
        assert_eq!(
            read["spec"]["behavior"],
            json!({
                "scaleUp": {
                    "stabilizationWindowSeconds": 5, "selectPolicy": "Max",
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 10}],
                },
                "scaleDown": {
                    "selectPolicy": "Max",
                    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
                },
            }),
            "{name}",
        );
    }
}

/// The template of a StatefulSet is checked as its controller completes it.
#[tokio::test]
async fn the_template_of_a_stateful_set_is_checked() {
    let cluster = Cluster::start().await;
    let path = format!("{APPS}/statefulsets?dryRun=All");
    let claims = json!([{"metadata": {"name": "d"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}},
    }}]);
    let mounted = |volume: &str| {
        json!({"containers": [
            {"name": "c", "image": "i", "volumeMounts": [{"name": volume, "mountPath": "/x"}]},
        ]})
    };
    let mut of_controller = mounted("d");
    of_controller["hostname"] = "UPPER".into();
    of_controller["subdomain"] = "A_B".into();
    for (spec, refusal) in [
        (of_controller, None),
        (
            mounted("e"),
            Some("spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"e\""),
        ),
        (
            json!({"containers": [{"name": "c"}]}),
            Some("spec.template.spec.containers[0].image: Required value"),
        ),
        (
            json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}),
            Some(
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
        ),
    ] {
        let set = object(
            "apps/v1",
            "StatefulSet",
            json!({"spec": {
                "selector": {"matchLabels": {"a": "b"}}, "volumeClaimTemplates": claims,
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec},
            }}),
        );
        let reply = cluster.post(&path, &set).await;
        match refusal {
            None => assert_eq!(reply.status, 201, "{}", reply.text()),
            Some(refusal) => {
                let expected = format!("StatefulSet.apps \"x\" is invalid: {refusal}");
                assert_eq!(reply.json()["message"], expected);
            }
        }
    }
}

/// `dataSource` is dropped when only `dataSourceRef` can state it, and is equal to the latter otherwise.
#[tokio::test]
async fn the_sources_of_a_claim_are_completed_when_it_is_stored() {
    let cluster = Cluster::start().await;
    let path = "/api/v1/namespaces/default/persistentvolumeclaims";
    let other = json!({"apiGroup": "a.b", "kind": "K", "name": "n"});
    let claim = json!({"kind": "PersistentVolumeClaim", "name": "n"});
    let shown = json!({"apiGroup": null, "kind": "PersistentVolumeClaim", "name": "n"});
    let null = &Value::Null;
    for (name, field, source, stored) in [
        ("a", "dataSource", &other, null),
        ("b", "dataSource", &claim, &shown),
        ("c", "dataSourceRef", &other, &other),
        ("d", "dataSourceRef", &claim, &shown),
    ] {
        let mut sent = object(
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}},
            }}),
        );
        sent["metadata"]["name"] = name.into();
        sent["spec"][field] = source.clone();
        let created = cluster.create(path, &sent).await;
        let put = cluster.send("PUT", &format!("{path}/{name}"), &sent).await;
        assert_eq!(put.status, 200, "{name}: {}", put.text());
        for claim in [created, put.json()] {
            assert_eq!(claim["spec"]["dataSource"], *stored, "{name}");
            assert_eq!(claim["spec"]["dataSourceRef"], *stored, "{name}");
        }
    }
}

/// A role that is aggregated from others states which ones.
#[tokio::test]
async fn an_aggregated_role_has_a_selector() {
    let cluster = Cluster::start().await;
    let refused = "ClusterRole.rbac.authorization.k8s.io \"x\" is invalid: aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil";
    for rule in [json!({}), json!({"clusterRoleSelectors": []})] {
        let reply = cluster
            .post(ROLES, &role(json!({"aggregationRule": rule})))
            .await;
        assert_eq!(reply.status, 422);
        assert_eq!(reply.json()["message"], refused);
    }
}

/// A Job has the labels of its template, including the labels of its pods; taints of devices have the time of the
/// request.
#[tokio::test]
async fn labels_and_times_are_completed() {
    let cluster = Cluster::start().await;
    let job = object(
        "batch/v1",
        "Job",
        json!({"spec": {"template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        }}}),
    );
    let created = cluster
        .create("/apis/batch/v1/namespaces/default/jobs", &job)
        .await;
    let uid = &created["metadata"]["uid"];
    assert_eq!(
        created["metadata"]["labels"],
        json!({
            "a": "b", "controller-uid": uid, "batch.kubernetes.io/controller-uid": uid,
            "job-name": "x", "batch.kubernetes.io/job-name": "x",
        })
    );
    let slice = object(
        "resource.k8s.io/v1",
        "ResourceSlice",
        json!({"spec": {
            "driver": "a.b", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d", "taints": [{"key": "k", "effect": "NoSchedule"}]}],
        }}),
    );
    let created = cluster
        .create("/apis/resource.k8s.io/v1/resourceslices", &slice)
        .await;
    let time = &created["spec"]["devices"][0]["taints"][0]["timeAdded"];
    assert_eq!(*time, created["metadata"]["creationTimestamp"]);
}
