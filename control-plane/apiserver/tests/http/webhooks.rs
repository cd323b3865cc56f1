//! Admission webhooks against an HTTPS server of the test. The texts equal kube-apiserver 1.36's.

pub(super) mod receiver;
mod recorded;
mod selection;

use super::*;
use receiver::{Webhook, patch, rule};
use tokio::net::TcpListener;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
pub(super) const MUTATING: &str = "MutatingWebhookConfiguration";
const VALIDATING: &str = "ValidatingWebhookConfiguration";

impl Cluster {
    /// Replaces the configurations of a kind by one of these webhooks.
    pub(super) async fn configure(&self, kind: &str, hooks: Value) {
        let reply = self.try_configure(kind, hooks).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
    }

    async fn try_configure(&self, kind: &str, hooks: Value) -> Reply {
        let path = format!("{CONFIGURATIONS}/{}s", kind.to_lowercase());
        self.delete(&path, &Value::Null).await;
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "test"}, "webhooks": hooks,
        });
        self.post(&path, &configuration).await
    }

    /// Creates a config map of a free name.
    async fn post_config_map(&self, query: &str) -> Reply {
        let mut object = config_map("", json!({}));
        object["metadata"] = json!({"generateName": "c-"});
        self.post(&format!("{CONFIG_MAPS}{query}"), &object).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_adds_a_scheduling_gate_to_new_pods() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    webhook.answer("/gate", |_| {
        patch(json!([{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "example.com/quota"}]}]))
    });
    let hook = webhook.hook("/gate", json!({"rules": [rule("", "pods", "CREATE")]}));
    cluster.configure(MUTATING, json!([hook])).await;
    let created = cluster.create(PODS, &pod("p")).await;
    assert_eq!(
        created["spec"]["schedulingGates"],
        json!([{"name": "example.com/quota"}])
    );
    let requests = webhook.take_requests();
    let [request] = requests.as_slice() else {
        panic!("one call: {requests:?}");
    };
    let pods = json!({"group": "", "version": "v1", "resource": "pods"});
    let expect = [
        (
            "/kind",
            json!({"group": "", "version": "v1", "kind": "Pod"}),
        ),
        ("/resource", pods.clone()),
        ("/requestResource", pods),
        ("/name", json!("p")),
        ("/namespace", json!("default")),
        ("/operation", json!("CREATE")),
        ("/userInfo/username", json!("berth-admin")),
        ("/object/kind", json!("Pod")),
        ("/object/metadata/uid", Value::Null),
        ("/object/spec/serviceAccountName", json!("default")),
        ("/oldObject", Value::Null),
        ("/dryRun", json!(false)),
        ("/options/kind", json!("CreateOptions")),
    ];
    for (pointer, value) in expect {
        assert_eq!(*at(request, pointer), value, "{pointer}");
    }
    assert!(at(request, "/object/metadata/managedFields/0/fieldsV1").is_object());
    // A controller removes the gate; the webhook does not receive updates.
    let path = format!("{PODS}/p");
    let freed = cluster
        .merge(&path, &json!({"spec": {"schedulingGates": null}}))
        .await;
    assert_eq!(freed.json()["spec"].get("schedulingGates"), None);
    assert_eq!(webhook.take_requests().len(), 0);
}

/// The codes and texts of kube-apiserver 1.36; the text for a changed kind is Berth's.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_may_not_move_an_object() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    cluster
        .create(CONFIG_MAPS, &config_map("old", json!({})))
        .await;
    let rules = json!({"rules": [rule("", "configmaps", "*")]});
    cluster
        .configure(MUTATING, json!([webhook.hook("/move", rules)]))
        .await;
    let namespace =
        "the namespace of the provided object does not match the namespace sent on the request";
    let immutable = "ConfigMap \"other\" is invalid: metadata.name: Invalid value: \"other\": field is immutable";
    let changed = |field: &str, from: &str, to: &str| {
        format!(
            "Internal error occurred: admission webhook \"a.example.com\" changed {field} from {from:?} to {to:?}"
        )
    };
    let cases = [
        // (the patch, the refusals of a create and of an update)
        (
            json!({"op": "add", "path": "/metadata/namespace", "value": "kube-system"}),
            Some((400, namespace.to_owned())),
            Some((400, namespace.to_owned())),
        ),
        (
            json!({"op": "replace", "path": "/metadata/name", "value": "other"}),
            None,
            Some((422, immutable.to_owned())),
        ),
        (
            json!({"op": "remove", "path": "/metadata/namespace"}),
            None,
            None,
        ),
        (json!({"op": "remove", "path": "/kind"}), None, None),
        (
            json!({"op": "replace", "path": "/kind", "value": "Secret"}),
            Some((500, changed("kind", "ConfigMap", "Secret"))),
            Some((500, changed("kind", "ConfigMap", "Secret"))),
        ),
        (
            json!({"op": "replace", "path": "/apiVersion", "value": "apps/v1"}),
            Some((500, changed("apiVersion", "v1", "apps/v1"))),
            Some((500, changed("apiVersion", "v1", "apps/v1"))),
        ),
    ];
    let path = format!("{CONFIG_MAPS}/old");
    for (i, (operation, of_create, of_update)) in cases.into_iter().enumerate() {
        let given = operation.clone();
        webhook.answer("/move", move |_| patch(json!([given])));
        let new = config_map(&format!("n{i}"), json!({}));
        let created = cluster.post(CONFIG_MAPS, &new).await;
        let mut update = config_map("old", json!({}));
        update["data"] = json!({"i": i.to_string()});
        let updated = cluster.send("PUT", &path, &update).await;
        for (reply, refusal) in [(created, of_create), (updated, of_update)] {
            let answer = reply.json();
            match refusal {
                None => assert_eq!(
                    answer["metadata"]["namespace"], "default",
                    "{operation}: {answer}"
                ),
                Some((code, message)) => {
                    assert_eq!(text(&answer, "/message"), message, "{operation}");
                    assert_eq!(reply.status, code, "{operation}");
                }
            }
        }
    }
    // As in Kubernetes, a webhook may choose the name of a new object.
    assert_eq!(
        cluster.get(&format!("{CONFIG_MAPS}/other")).await.status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_failures_have_the_texts_of_kubernetes() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    let refusals = [
        (json!({"message": "no way"}), 400, ": no way", Value::Null),
        (
            json!({"reason": "Forbidden", "code": 403}),
            403,
            ": Forbidden",
            json!("Forbidden"),
        ),
        (Value::Null, 400, " without explanation", Value::Null),
        (
            json!({"message": "m", "code": 200, "status": "Success"}),
            400,
            ": m",
            Value::Null,
        ),
    ];
    for kind in [MUTATING, VALIDATING] {
        for (status, code, text, reason) in &refusals {
            let given = status.clone();
            webhook.answer("/deny", move |_| match &given {
                Value::Null => json!({"allowed": false}),
                status => json!({"allowed": false, "status": status}),
            });
            cluster
                .configure(kind, json!([webhook.hook("/deny", Value::Null)]))
                .await;
            let reply = cluster.post_config_map("").await;
            assert_eq!(reply.status, *code, "{status}");
            let answer = reply.json();
            assert_eq!(
                answer["message"],
                format!("admission webhook \"a.example.com\" denied the request{text}")
            );
            assert_eq!(
                (&answer["status"], at(&answer, "/reason")),
                (&json!("Failure"), reason)
            );
        }
        cluster
            .delete(
                &format!("{CONFIGURATIONS}/{}s", kind.to_lowercase()),
                &Value::Null,
            )
            .await;
    }
    let review = |response: Value| json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    let failures = [
        (
            (
                200,
                review(json!({"uid": "x", "allowed": true})).to_string(),
            ),
            "received invalid webhook response: expected response.uid=",
        ),
        (
            (200, json!({"kind": "AdmissionReview"}).to_string()),
            "received invalid webhook response: webhook response was absent",
        ),
        (
            (200, String::new()),
            "failed to call webhook: 0-length response with status code: 200",
        ),
        (
            (200, "hello".to_owned()),
            "failed to call webhook: couldn't get version/kind; json parse error",
        ),
        (
            (200, format!("\"{}\"", "x".repeat(5 << 20))),
            "failed to call webhook: Post",
        ),
        (
            (404, String::new()),
            "failed to call webhook: the server could not find the requested resource",
        ),
        (
            (500, "boom".to_owned()),
            "failed to call webhook: an error on the server (\"unknown\") has prevented the request from succeeding",
        ),
    ];
    for ((code, body), text) in failures {
        webhook.respond("/broken", move |_| (code, body.clone().into_bytes()));
        cluster
            .configure(VALIDATING, json!([webhook.hook("/broken", Value::Null)]))
            .await;
        let reply = cluster.post_config_map("").await;
        let expect =
            format!("Internal error occurred: failed calling webhook \"a.example.com\": {text}");
        assert_eq!(reply.status, 500, "{text}");
        assert!(
            text_of(&reply).starts_with(&expect),
            "{}: not {expect}",
            text_of(&reply)
        );
        let ignore = webhook.hook("/broken", json!({"failurePolicy": "Ignore"}));
        cluster.configure(VALIDATING, json!([ignore])).await;
        assert_eq!(cluster.post_config_map("").await.status, 201, "{text}");
    }
}

fn text_of(reply: &Reply) -> String {
    text(&reply.json(), "/message").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_cannot_be_reached_fail_within_their_time() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = closed.local_addr().expect("an address").port();
    drop(closed);
    let own = webhook.port;
    let service = |name: &str| json!({"service": {"namespace": "default", "name": name}, "caBundle": webhook.ca});
    let cases = [
        (
            json!({"clientConfig": {"url": format!("https://127.0.0.1:{port}/x"), "caBundle": webhook.ca}}),
            format!("Post \"https://127.0.0.1:{port}/x?timeout=10s\": dial tcp 127.0.0.1:{port}: connect: connection refused"),
        ),
        (
            json!({"clientConfig": {"url": format!("https://127.0.0.1:{own}/silent"), "caBundle": webhook.ca}, "timeoutSeconds": 1}),
            format!("Post \"https://127.0.0.1:{own}/silent?timeout=1s\": context deadline exceeded"),
        ),
        (
            json!({"clientConfig": {"url": format!("https://127.0.0.1:{own}/x")}}),
            format!("Post \"https://127.0.0.1:{own}/x?timeout=10s\": tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        ),
        (
            json!({"clientConfig": service("nosvc")}),
            "Post \"https://nosvc.default.svc:443/?timeout=10s\": service \"nosvc\" not found".to_owned(),
        ),
        (
            json!({"clientConfig": service("kubernetes")}),
            "Post \"https://kubernetes.default.svc:443/?timeout=10s\": tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned(),
        ),
    ];
    for (config, text) in cases {
        cluster
            .configure(VALIDATING, json!([webhook.hook("/x", config)]))
            .await;
        let reply = cluster.post_config_map("").await;
        let expect = format!(
            "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: {text}"
        );
        assert_eq!((reply.status, text_of(&reply)), (500, expect));
    }
}

/// Servers written in Go redirect `//path`, as envtest writes URLs, to `/path`. Other servers are not called.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_may_redirect_to_another_path() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    webhook.answer(
        "/deny",
        |_| json!({"allowed": false, "status": {"message": "reached"}}),
    );
    let location = format!("{}/deny?timeout=10s", webhook.url);
    webhook.respond("//deny", |_| (307, b"/deny?timeout=10s".to_vec()));
    webhook.respond("/absolute", move |_| (307, location.clone().into_bytes()));
    webhook.respond("/loop", |_| (307, b"/loop".to_vec()));
    webhook.respond("/other", |_| (307, b"https://192.0.2.1/deny".to_vec()));
    webhook.respond("/network", |_| (307, b"//192.0.2.1/deny".to_vec()));
    let denied = "admission webhook \"a.example.com\" denied the request: reached";
    let not_followed =
        "the server responded with the status code 307 but did not return more information";
    for (path, message) in [
        ("//deny", denied),
        ("/absolute", denied),
        ("/loop", "stopped after 10 redirects"),
        ("/other", not_followed),
        ("/network", not_followed),
    ] {
        let hook = webhook.hook(path, json!({}));
        cluster.configure(VALIDATING, json!([hook])).await;
        let reply = cluster.post_config_map("").await;
        assert!(
            text_of(&reply).ends_with(message),
            "{path}: {}",
            reply.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_leads_to_its_ready_endpoints() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    webhook.answer(
        "/hooks/deny",
        |_| json!({"allowed": false, "status": {"message": "reached"}}),
    );
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "gates"},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": 8443}]},
    });
    cluster
        .create("/api/v1/namespaces/default/services", &service)
        .await;
    let config = json!({
        "service": {"namespace": "default", "name": "gates", "path": "/hooks/deny"}, "caBundle": webhook.ca,
    });
    let hook = webhook.hook("", json!({"clientConfig": config}));
    cluster.configure(VALIDATING, json!([hook])).await;
    let reply = cluster.post_config_map("").await;
    assert!(
        text_of(&reply).ends_with("no endpoints available for service \"gates\""),
        "{}",
        reply.text()
    );
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "simulated", "labels": {"berth.dev/simulated": "true"}},
    });
    cluster.create("/api/v1/nodes", &node).await;
    let slice = |name: &str, endpoints: Value| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "gates"}},
            "endpoints": endpoints, "ports": [{"name": "https", "port": webhook.port}],
        })
    };
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    // Another machine may have the address of a simulated pod.
    let simulated = json!([{"addresses": ["127.0.0.1"], "nodeName": "simulated"}]);
    cluster.create(slices, &slice("simulated", simulated)).await;
    let reply = cluster.post_config_map("").await;
    assert!(
        text_of(&reply).ends_with("no endpoints available for service \"gates\": its pods are on simulated nodes, where no process listens"),
        "{}",
        reply.text()
    );
    let endpoints = json!([
        {"addresses": ["192.0.2.1"], "conditions": {"ready": false}},
        {"addresses": ["127.0.0.1"]},
    ]);
    cluster.create(slices, &slice("gates", endpoints)).await;
    let reply = cluster.post_config_map("").await;
    assert_eq!(
        text_of(&reply),
        "admission webhook \"a.example.com\" denied the request: reached"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_called_again_after_changes_and_in_order() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    let count = |review: &Value| {
        let seen = text(review, "/request/object/data/count")
            .parse()
            .unwrap_or(0);
        patch(json!([{"op": "add", "path": "/data/count", "value": (seen + 1).to_string()}]))
    };
    webhook.answer("/count", count);
    webhook.answer("/label", |_| {
        patch(json!([
            {"op": "add", "path": "/metadata/labels", "value": {"l": "1"}},
            {"op": "add", "path": "/nothing", "value": 1},
        ]))
    });
    for (policy, expect) in [("IfNeeded", "2"), ("Never", "1")] {
        let first = webhook.hook("/count", json!({"reinvocationPolicy": policy}));
        let second = webhook.hook("/label", json!({"name": "b.example.com"}));
        cluster.configure(MUTATING, json!([first, second])).await;
        let created = cluster.post_config_map("").await.json();
        assert_eq!(
            created["data"],
            json!({"a": "b", "count": expect}),
            "{policy}"
        );
        assert_eq!(created["metadata"]["labels"], json!({"l": "1"}));
        assert_eq!(created.get("nothing"), None, "unknown fields are dropped");
    }
    webhook.answer("/bad", |_| {
        patch(json!([{"op": "add", "path": "/data", "value": [1]}]))
    });
    cluster
        .configure(MUTATING, json!([webhook.hook("/bad", Value::Null)]))
        .await;
    let reply = cluster.post_config_map("").await;
    assert_eq!(
        text_of(&reply),
        "Internal error occurred: json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"
    );
    let delete = webhook.hook(
        "/count",
        json!({"rules": [rule("", "configmaps", "DELETE")]}),
    );
    cluster.configure(MUTATING, json!([delete])).await;
    cluster
        .create(CONFIG_MAPS, &config_map("kept", json!({})))
        .await;
    let reply = cluster
        .delete(&format!("{CONFIG_MAPS}/kept"), &Value::Null)
        .await;
    assert_eq!(
        text_of(&reply),
        "Internal error occurred: admission webhook \"a.example.com\" attempted to modify the object, which is not supported for this operation"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn warnings_and_dry_runs_reach_the_client() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    webhook.answer("/warn", |review| {
        let allowed = review["request"]["dryRun"] == true;
        json!({"allowed": allowed, "warnings": ["careful \"x\""], "status": {"message": "m"}})
    });
    cluster
        .configure(VALIDATING, json!([webhook.hook("/warn", Value::Null)]))
        .await;
    for (query, code) in [("", 400), ("?dryRun=All", 201)] {
        let reply = cluster.post_config_map(query).await;
        assert_eq!(reply.status, code, "{query}");
        assert_eq!(
            reply.header("warning"),
            "299 - \"careful \\\"x\\\"\"",
            "{query}"
        );
    }
    assert_eq!(
        names(&cluster.get(CONFIG_MAPS).await.json()),
        Vec::<String>::new()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_reach_webhooks_of_either_group() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    webhook.answer("/allow", |_| json!({"allowed": true}));
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "R", "message": "m", "type": "Normal",
    });
    for (policy, calls) in [("Equivalent", 1), ("Exact", 0)] {
        let rules =
            json!({"rules": [rule("events.k8s.io", "events", "CREATE")], "matchPolicy": policy});
        cluster
            .configure(VALIDATING, json!([webhook.hook("/allow", rules)]))
            .await;
        cluster
            .delete("/api/v1/namespaces/default/events/e", &Value::Null)
            .await;
        cluster
            .create("/api/v1/namespaces/default/events", &event)
            .await;
        let requests = webhook.take_requests();
        assert_eq!(requests.len(), calls, "{policy}");
        for request in requests {
            assert_eq!(text(&request, "/object/apiVersion"), "events.k8s.io/v1");
            assert_eq!(text(&request, "/object/note"), "m");
            assert_eq!(text(&request, "/requestResource/group"), "");
            assert_eq!(text(&request, "/resource/group"), "events.k8s.io");
        }
    }
}

#[tokio::test]
async fn configurations_are_validated_as_in_kubernetes() {
    let cluster = Cluster::start().await;
    let hook = |more: Value| {
        let mut hook = json!({
            "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1/x"}, "rules": [rule("", "pods", "CREATE")],
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            hook[field] = value.clone();
        }
        hook
    };
    let url = |url: &str| json!({"clientConfig": {"url": url}});
    let cases = [
        (
            json!({"name": "a.b"}),
            "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
        ),
        (json!({"name": ""}), "webhooks[0].name: Required value"),
        (
            json!({"sideEffects": "Some"}),
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        (
            json!({"sideEffects": null}),
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
        ),
        (
            json!({"timeoutSeconds": 31}),
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            json!({"failurePolicy": "x"}),
            "webhooks[0].failurePolicy: Unsupported value: \"x\": supported values: \"Fail\", \"Ignore\"",
        ),
        (
            json!({"admissionReviewVersions": []}),
            "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
        ),
        (
            json!({"admissionReviewVersions": ["v9", "v9"]}),
            "[webhooks[0].admissionReviewVersions[1]: Invalid value: \"v9\": duplicate version, webhooks[0].admissionReviewVersions: Invalid value: [\"v9\",\"v9\"]: must include at least one of v1, v1beta1]",
        ),
        (
            json!({"clientConfig": {}}),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            url("http://x/y"),
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (
            url("https:///y"),
            "webhooks[0].clientConfig.url: Invalid value: \"\": host must be specified; desired format: https://host[/path]",
        ),
        (
            url("https://u:p@x/y?a=b#c"),
            "[webhooks[0].clientConfig.url: Invalid value: \"u:p\": user information is not permitted in the URL, webhooks[0].clientConfig.url: Invalid value: \"c\": fragments are not permitted in the URL, webhooks[0].clientConfig.url: Invalid value: \"a=b\": query parameters are not permitted in the URL]",
        ),
        (
            url("foo"),
            "[webhooks[0].clientConfig.url: Invalid value: \"\": 'https' is the only allowed URL scheme; desired format: https://host[/path], webhooks[0].clientConfig.url: Invalid value: \"\": host must be specified; desired format: https://host[/path]]",
        ),
        (
            json!({"clientConfig": {"service": {"name": "a", "namespace": "b", "port": 70_000, "path": "//"}}}),
            "[webhooks[0].clientConfig.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive, webhooks[0].clientConfig.service.path: Invalid value: \"//\": segment[0] may not be empty]",
        ),
        (
            json!({"rules": [{}]}),
            "[webhooks[0].rules[0].operations: Required value, webhooks[0].rules[0].apiGroups: Required value, webhooks[0].rules[0].apiVersions: Required value, webhooks[0].rules[0].resources: Required value]",
        ),
        (
            json!({"rules": [{"apiGroups": ["*", "a"], "apiVersions": ["v1"], "operations": ["X"], "resources": ["pods/*", "pods/status"]}]}),
            "[webhooks[0].rules[0].operations[0]: Unsupported value: \"X\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\", webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other API groups, webhooks[0].rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status]",
        ),
        (
            json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            "webhooks[0].objectSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
    ];
    for kind in [MUTATING, VALIDATING] {
        for (more, expect) in &cases {
            let reply = cluster
                .try_configure(kind, json!([hook(more.clone())]))
                .await;
            let expect =
                format!("{kind}.admissionregistration.k8s.io \"test\" is invalid: {expect}");
            assert_eq!((reply.status, text_of(&reply)), (422, expect), "{more}");
        }
        let reply = cluster
            .try_configure(kind, json!([hook(Value::Null), hook(Value::Null)]))
            .await;
        assert!(
            text_of(&reply).ends_with("webhooks[1].name: Duplicate value: \"a.example.com\""),
            "{}",
            reply.text()
        );
        let reply = cluster
            .try_configure(kind, json!([hook(Value::Null)]))
            .await
            .json();
        let defaults = json!({
            "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "timeoutSeconds": 10,
        });
        for (field, value) in defaults.as_object().into_iter().flatten() {
            assert_eq!(
                at(&reply, &format!("/webhooks/0/{field}")),
                value,
                "{field}"
            );
        }
        assert_eq!(*at(&reply, "/webhooks/0/rules/0/scope"), json!("*"));
    }
}
