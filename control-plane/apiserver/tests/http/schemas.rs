//! Custom resources whose schema is tightened after they are stored: the recorded answers of kube-apiserver 1.36.2.
//!
//! Each line of `testing/conformance/vectors/custom.jsonl` has a schema, its replacement, and requests with their
//! answers. Faults are compared as a set: kube-apiserver reports them in the order of Go's maps.

use super::*;
use std::collections::BTreeSet;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/crd.example.com/v1/things";
const THING: &str = "/apis/crd.example.com/v1/things/a";

fn vectors() -> Vec<Value> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../testing/conformance/vectors/custom.jsonl"
    );
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

/// A definition whose field `gen` selects the schema that validates an object.
fn definition(schema: &Value, generation: &str, subresources: &Value) -> Value {
    let mut schema = schema.clone();
    schema["properties"]["gen"] = json!({"type": "string", "enum": [generation]});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.crd.example.com"},
        "spec": {
            "group": "crd.example.com", "scope": "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": subresources}],
        },
    })
}

fn thing(name: &str, content: &Value) -> Value {
    let mut thing = content.clone();
    thing["apiVersion"] = "crd.example.com/v1".into();
    thing["kind"] = "Thing".into();
    if thing["metadata"].is_null() {
        thing["metadata"] = json!({});
    }
    thing["metadata"]["name"] = name.into();
    thing
}

impl Cluster {
    /// Waits until objects are validated by this schema.
    async fn validates_by(&self, generation: &str) {
        let probe = thing("probe", &json!({"gen": generation}));
        let reached = async {
            loop {
                let reply = self.post(&format!("{THINGS}?dryRun=All"), &probe).await;
                if reply.status != 404 && !reply.text().contains("gen: Unsupported value") {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        assert!(
            timeout(PATIENCE, reached).await.is_ok(),
            "never {generation}"
        );
    }
}

fn warnings(reply: &Reply) -> Vec<String> {
    let values = reply.headers.get_all("warning").iter();
    let mut warnings: Vec<String> = values
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect();
    warnings.sort();
    warnings
}

/// An answer in the form of the vectors: the code, the object or the faults, and the warnings.
fn answer(reply: &Reply) -> Value {
    let mut body = reply.json();
    let mut answer = json!({"code": reply.status, "warnings": warnings(reply)});
    if body["kind"] != "Status" {
        if let Some(metadata) = body["metadata"].as_object_mut() {
            for field in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "managedFields",
                "deletionTimestamp",
            ] {
                metadata.remove(field);
            }
        }
        answer["object"] = body;
    } else if reply.status >= 400 {
        let causes = body["details"]["causes"].as_array();
        let causes: BTreeSet<[String; 3]> = causes
            .into_iter()
            .flatten()
            .map(|cause| ["reason", "field", "message"].map(|name| text_of(cause, name)))
            .collect();
        answer["reason"] = text_of(&body, "reason").into();
        if causes.len() < 2 {
            answer["message"] = body["message"].take();
        }
        answer["causes"] = json!(causes);
    }
    answer
}

fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

/// The differences between the answers of a scenario and the recorded answers.
async fn differences(vector: &Value) -> Vec<String> {
    let cluster = Cluster::start().await;
    let subresources = &vector["subresources"];
    let first = definition(&vector["before"], "one", subresources);
    let created = cluster.post(DEFINITIONS, &first).await;
    let mut found = Vec::new();
    let mut expect = |what: String, recorded: &Value, given: Value| {
        if given != *recorded {
            found.push(format!("{what}\n  recorded {recorded}\n  given    {given}"));
        }
    };
    expect(
        "the definition".to_owned(),
        &vector["warnings"],
        json!(warnings(&created)),
    );
    cluster.validates_by("one").await;
    for step in vector["steps"].as_array().into_iter().flatten() {
        let (method, path) = (text_of(step, "method"), text_of(step, "path"));
        let mut body = step["body"].clone();
        let reply = match method.as_str() {
            "CREATE" => cluster.post(THINGS, &thing("a", &body)).await,
            "TRY" => {
                let path = format!("{THINGS}?dryRun=All");
                cluster.post(&path, &thing("b", &body)).await
            }
            "CHANGE" => {
                let path = format!("{DEFINITIONS}/things.crd.example.com");
                let mut stored = cluster.get(&path).await.json();
                stored["spec"] = definition(&vector["after"], "two", subresources)["spec"].take();
                let reply = cluster.send("PUT", &path, &stored).await;
                expect(
                    "the change".to_owned(),
                    &step["warnings"],
                    json!(warnings(&reply)),
                );
                cluster.validates_by("two").await;
                continue;
            }
            method => {
                let content_type = text_of(step, "type");
                if content_type.contains("apply") {
                    body = thing("a", &body);
                } else if method == "PUT" && path.is_empty() {
                    let mut stored = cluster.get(THING).await.json();
                    for (name, value) in body.as_object().into_iter().flatten() {
                        stored[name] = value.clone();
                    }
                    body = stored;
                }
                let path = format!("{THING}{path}");
                cluster.send_as(method, &path, &content_type, &body).await
            }
        };
        let mut given = answer(&reply);
        // Answers that contain times are recorded by their code.
        if step["answer"].as_object().is_some_and(|map| map.len() == 1) {
            given = json!({"code": given["code"]});
        }
        let what = format!("{method} {path} {}", step["body"]);
        expect(what, &step["answer"], given);
    }
    found
}

#[tokio::test]
async fn tightened_schemas_are_answered_as_by_kube_apiserver() {
    let vectors = vectors();
    assert!(vectors.len() > 40, "{} scenarios", vectors.len());
    let mut found = Vec::new();
    for vector in &vectors {
        let name = text_of(vector, "name");
        let differences = differences(vector).await;
        found.extend(differences.iter().map(|text| format!("{name}: {text}")));
    }
    assert!(
        found.is_empty(),
        "{} differ\n{}",
        found.len(),
        found.join("\n")
    );
}
