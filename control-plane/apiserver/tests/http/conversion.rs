//! Custom resources with conversion webhooks. The texts equal kube-apiserver 1.36's.

use super::*;
use crate::webhooks::receiver::Webhook;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/boxes";
const V2: &str = "/apis/example.com/v2/namespaces/default/boxes";

/// Boxes, stored as v1 with a `width`, which v2 calls `size`.
fn definition(conversion: Value) -> Value {
    let version = |name: &str, field: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                "type": "object", "properties": {field: {"type": "integer", "maximum": 100}},
            }}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "boxes", "singular": "box", "kind": "Box"},
            "versions": [version("v1", "width"), version("v2", "size")],
            "conversion": conversion,
        },
    })
}

fn in_v1(name: &str, width: i64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": name}, "spec": {"width": width}})
}

fn in_v2(name: &str, size: i64) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Box", "metadata": {"name": name}, "spec": {"size": size}})
}

fn conversion(webhook: &Webhook, path: &str, versions: Value) -> Value {
    json!({
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"url": format!("{}{path}", webhook.url), "caBundle": webhook.ca},
            "conversionReviewVersions": versions,
        },
    })
}

/// The objects of a review in the requested version.
fn converted(review: &Value) -> Vec<Value> {
    let wanted = review["request"]["desiredAPIVersion"].clone();
    let (from, to) = if wanted == "example.com/v2" {
        ("width", "size")
    } else {
        ("size", "width")
    };
    let objects = at(review, "/request/objects").as_array().cloned();
    let convert = |mut object: Value| {
        object["apiVersion"] = wanted.clone();
        let value = object["spec"][from].take();
        object["spec"] = json!({to: value, "unknown": true});
        object["metadata"]["labels"] = json!({"converted": "yes"});
        object["metadata"]["generation"] = json!(77);
        object
    };
    objects.into_iter().flatten().map(convert).collect()
}

fn answer(review: &Value, response: Value) -> (u16, Vec<u8>) {
    let mut response = response;
    response["uid"] = review["request"]["uid"].clone();
    let answer = json!({
        "apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": response,
    });
    (200, answer.to_string().into_bytes())
}

impl Webhook {
    fn converts(&self, path: &str) {
        self.respond(path, |review| {
            let objects = converted(review);
            answer(
                review,
                json!({"result": {"status": "Success"}, "convertedObjects": objects}),
            )
        });
    }
}

impl Cluster {
    async fn define_boxes(&self, conversion: Value) {
        let reply = self.post(DEFINITIONS, &definition(conversion)).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        self.answers("/apis/example.com/v2", 200).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_converts_objects_of_another_version_than_the_wanted_one() {
    for review_version in ["v1", "v1beta1"] {
        let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
        webhook.converts("/convert");
        let stated = json!(["v3", review_version]);
        cluster
            .define_boxes(conversion(&webhook, "/convert", stated))
            .await;
        // The stored version is not converted.
        let created = cluster.create(V1, &in_v1("a", 1)).await;
        assert_eq!(created["spec"], json!({"width": 1}));
        assert_eq!(cluster.get(&format!("{V1}/a")).await.status, 200);
        assert_eq!(webhook.take_requests(), Vec::<Value>::new());
        // Read.
        let shown = cluster.get(&format!("{V2}/a")).await.json();
        assert_eq!(shown["apiVersion"], json!("example.com/v2"));
        assert_eq!(shown["spec"], json!({"size": 1}), "pruned");
        assert_eq!(shown["metadata"]["generation"], json!(1));
        assert_eq!(shown["metadata"]["labels"], json!({"converted": "yes"}));
        assert_eq!(shown["metadata"]["uid"], created["metadata"]["uid"]);
        let requests = webhook.take_requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(
            text(&requests[0], "/desiredAPIVersion"),
            "example.com/v2",
            "{requests:?}"
        );
        let sent = at(&requests[0], "/objects/0");
        assert_eq!(text(sent, "/apiVersion"), "example.com/v1");
        assert!(at(sent, "/metadata/managedFields/0/fieldsV1").is_object());
        // Create in another version: validated as written, stored as v1.
        let refused = cluster.post(V2, &in_v2("b", 101)).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        let created = cluster.create(V2, &in_v2("b", 2)).await;
        assert_eq!(created["spec"], json!({"size": 2}));
        assert_eq!(created["apiVersion"], json!("example.com/v2"));
        let stored = cluster.get(&format!("{V1}/b")).await.json();
        assert_eq!(stored["spec"], json!({"width": 2}));
        // A list is one call.
        webhook.take_requests();
        let list = cluster.get(V2).await.json();
        assert_eq!(names(&list), ["a", "b"]);
        assert_eq!(at(&list, "/items/1/spec"), &json!({"size": 2}));
        let requests = webhook.take_requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(
            at(&requests[0], "/objects").as_array().map(Vec::len),
            Some(2)
        );
        // Update, patch and apply.
        let mut object = cluster.get(&format!("{V2}/b")).await.json();
        object["spec"]["size"] = json!(3);
        let updated = cluster.send("PUT", &format!("{V2}/b"), &object).await;
        assert_eq!(updated.status, 200, "{}", updated.text());
        assert_eq!(updated.json()["spec"], json!({"size": 3}));
        assert_eq!(updated.json()["metadata"]["generation"], json!(2));
        let patched = cluster
            .merge(&format!("{V2}/b"), &json!({"spec": {"size": 4}}))
            .await;
        assert_eq!(patched.json()["spec"], json!({"size": 4}));
        let path = format!("{V2}/b?fieldManager=m&force=true");
        let applied = cluster
            .send_as(
                "PATCH",
                &path,
                "application/apply-patch+yaml",
                &in_v2("b", 5),
            )
            .await;
        assert_eq!(applied.status, 200, "{}", applied.text());
        let stored = cluster.get(&format!("{V1}/b")).await.json();
        assert_eq!(stored["spec"], json!({"width": 5}));
        assert_eq!(stored["metadata"]["generation"], json!(4));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_objects_in_its_version() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    webhook.converts("/convert");
    cluster
        .define_boxes(conversion(&webhook, "/convert", json!(["v1"])))
        .await;
    cluster.create(V1, &in_v1("a", 1)).await;
    let list = cluster.get(V1).await.json();
    cluster.create(V1, &in_v1("b", 2)).await;
    let since = text(&list, "/metadata/resourceVersion");
    let watch = |since: &str| format!("{V2}?watch=1&timeoutSeconds=1&resourceVersion={since}");
    for (since, expect) in [("", 2), (since, 1)] {
        let events = cluster.get(&watch(since)).await.events();
        assert_eq!(events.len(), expect, "{events:?}");
        let last = events.last().cloned().unwrap_or_default();
        assert_eq!(text(&last, "/type"), "ADDED");
        assert_eq!(text(&last, "/object/apiVersion"), "example.com/v2");
        assert_eq!(at(&last, "/object/spec"), &json!({"size": 2}));
    }
    // A conversion that fails ends the watch with the reason.
    webhook.respond("/convert", |_| (500, Vec::new()));
    let events = cluster.get(&watch(since)).await.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(text(&events[0], "/type"), "ERROR");
    let message = text(&events[0], "/object/message").to_owned();
    let expect = "conversion webhook for example.com/v1, Kind=Box failed: ";
    assert!(message.starts_with(expect), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_the_webhook_have_the_texts_of_kubernetes() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    cluster
        .define_boxes(conversion(&webhook, "/convert", json!(["v1"])))
        .await;
    let created = cluster.create(V1, &in_v1("a", 1)).await;
    let success =
        |objects: Value| json!({"result": {"status": "Success"}, "convertedObjects": objects});
    let good = json!({
        "apiVersion": "example.com/v2", "kind": "Box", "spec": {"size": 1},
        "metadata": {"name": "a", "namespace": "default", "uid": created["metadata"]["uid"]},
    });
    let with = |pointer: &str, value: Value| {
        let mut object = good.clone();
        if let Some(slot) = object.pointer_mut(pointer) {
            *slot = value;
        }
        object
    };
    for (response, expect) in [
        (
            json!({"result": {"status": "Failed", "message": "out of boxes"}}),
            "failed: out of boxes",
        ),
        (
            json!({"result": {"status": "Failed"}}),
            "failed: response.result.status was 'Failed', not 'Success'",
        ),
        (success(json!([])), "returned 0 objects, expected 1"),
        (
            success(json!([with("/apiVersion", json!("example.com/v1"))])),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)",
        ),
        (
            success(json!([with("/metadata/name", json!("b"))])),
            "returned invalid object: must have the same name: a != b",
        ),
        (
            success(json!([with(
                "/metadata",
                json!({"name": "a", "namespace": "default", "uid": created["metadata"]["uid"], "labels": 1})
            )])),
            "returned invalid metadata: invalid metadata.labels of type int64 in converted object",
        ),
    ] {
        webhook.respond("/convert", move |review| answer(review, response.clone()));
        let reply = cluster.get(&format!("{V2}/a")).await;
        assert_eq!(reply.status, 500, "{}", reply.text());
        let status = reply.json();
        let expect = format!("conversion webhook for example.com/v1, Kind=Box {expect}");
        assert_eq!(text(&status, "/message"), expect);
        assert_eq!(at(&status, "/reason"), &Value::Null);
    }
    webhook.respond("/convert", |review| {
        let answer = json!({"apiVersion": "x/v1", "kind": "Y", "response": {"uid": review["request"]["uid"]}});
        (200, answer.to_string().into_bytes())
    });
    let reply = cluster.get(&format!("{V2}/a")).await.json();
    let expect = "conversion webhook for example.com/v1, Kind=Box failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got x/v1, Kind=Y";
    assert_eq!(text(&reply, "/message"), expect);
    // Objects that need no conversion are served: the stored version, and the deletion of the namespace's objects
    // through it.
    assert_eq!(cluster.get(&format!("{V1}/a")).await.status, 200);
    assert_eq!(
        cluster
            .delete(&format!("{V2}/a"), &Value::Null)
            .await
            .status,
        500
    );
    assert_eq!(cluster.get(&format!("{V1}/a")).await.status, 200);
    assert_eq!(
        cluster
            .delete(&format!("{V1}/a"), &Value::Null)
            .await
            .status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_behind_a_service_without_endpoints_is_not_called() {
    let cluster = Cluster::start().await;
    let client = json!({"service": {"namespace": "default", "name": "boxes", "path": "/convert"}});
    let stated = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
    });
    cluster.define_boxes(stated).await;
    let stored = cluster
        .get(&format!("{DEFINITIONS}/boxes.example.com"))
        .await
        .json();
    let port = at(
        &stored,
        "/spec/conversion/webhook/clientConfig/service/port",
    );
    assert_eq!(port, &json!(443));
    cluster.create(V1, &in_v1("a", 1)).await;
    let reply = cluster.get(&format!("{V2}/a")).await.json();
    assert_eq!(
        text(&reply, "/message"),
        "conversion webhook for example.com/v1, Kind=Box failed: Post \"https://boxes.default.svc:443/convert?timeout=30s\": service \"boxes\" not found"
    );
}

#[tokio::test]
async fn conversions_are_validated() {
    let cluster = Cluster::start().await;
    let webhook = |client: Value, versions: Value| json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": versions}});
    let client = || json!({"url": "https://example.com/convert"});
    for (conversion, expect) in [
        (
            json!({"strategy": "Magic"}),
            "spec.conversion.strategy: Unsupported value: \"Magic\": supported values: \"None\", \"Webhook\"",
        ),
        (
            json!({"strategy": "None", "webhook": {"clientConfig": client(), "conversionReviewVersions": ["v1"]}}),
            "[spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook, spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook]",
        ),
        (
            json!({"strategy": "Webhook"}),
            "[spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook, spec.conversion.conversionReviewVersions: Required value]",
        ),
        (
            webhook(json!({}), json!(["v1"])),
            "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
        ),
        (
            webhook(json!({"url": "http://example.com"}), json!(["v1"])),
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (
            webhook(client(), json!(["v2", "v2"])),
            "[spec.conversion.conversionReviewVersions[1]: Invalid value: \"v2\": duplicate version, spec.conversion.conversionReviewVersions: Invalid value: [\"v2\",\"v2\"]: must include at least one of v1, v1beta1]",
        ),
        (
            webhook(
                json!({"url": "https://example.com", "caBundle": "Zm9v"}),
                json!(["v1"]),
            ),
            "spec.conversion.webhookClientConfig.caBundle: Invalid value: unable to load root certificates: unable to parse bytes as PEM block",
        ),
    ] {
        let reply = cluster.post(DEFINITIONS, &definition(conversion)).await;
        assert_eq!(reply.status, 422, "{}", reply.text());
        let message = text(&reply.json(), "/message").to_owned();
        let prefix =
            "CustomResourceDefinition.apiextensions.k8s.io \"boxes.example.com\" is invalid: ";
        assert_eq!(message.strip_prefix(prefix), Some(expect), "{message}");
    }
    // White space counts as an empty authority: stock manifests contain a line break.
    let blank = webhook(
        json!({"url": "https://example.com", "caBundle": "Cg=="}),
        json!(["v1"]),
    );
    let reply = cluster.post(DEFINITIONS, &definition(blank)).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
}
