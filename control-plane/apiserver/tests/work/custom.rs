//! Lists of custom resources: maps by keys, sets, and atomic lists, up to the maximum size of a request.

use super::requests::Tester;
use serde_json::{Value, json};

const ENTRIES: usize = 30_000;
const ROOT: &str = "/apis/example.com/v1/namespaces/default/lists";

fn definition() -> Value {
    let text = json!({"type": "string"});
    let entry = json!({"type": "object", "required": ["k"],
        "properties": {"k": text, "v": {"type": "integer", "default": 1}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lists.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "lists", "kind": "List"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "map": {"type": "array", "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["k"], "items": entry},
                    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
                    "atomic": {"type": "array", "items": entry},
                },
            }}}],
        },
    })
}

/// An object with one list; `first` is the index of its first entry.
fn object(list: &str, first: usize) -> Value {
    let entries = (first..ENTRIES).chain(0..first);
    let entries: Vec<Value> = entries
        .map(|i| match list {
            "set" => json!(format!("e{i}")),
            _ => json!({"k": format!("e{i}")}),
        })
        .collect();
    json!({"apiVersion": "example.com/v1", "kind": "List", "metadata": {"name": list}, list: entries})
}

#[test]
fn long_lists_of_custom_resources_are_written_in_linear_time() {
    let tester = Tester::new();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let json = "application/json";
    let created = tester.ask(
        "POST",
        definitions,
        json,
        json,
        definition().to_string().as_bytes(),
    );
    assert_eq!(created.code, 201, "{}", created.body);
    tester.wait_until_served(ROOT);
    // Quadratic work would be half a billion comparisons for each request.
    for list in ["map", "set", "atomic"] {
        let (given, changed) = (object(list, 0).to_string(), object(list, 1).to_string());
        let path = format!("{ROOT}/{list}");
        let apply = format!("{path}?fieldManager=a&force=true");
        for (method, path, content, body, code) in [
            ("POST", ROOT, json, &given, 201),
            (
                "PATCH",
                &path,
                "application/merge-patch+json",
                &changed,
                200,
            ),
            ("PATCH", &apply, "application/apply-patch+yaml", &given, 200),
            (
                "PATCH",
                &apply,
                "application/apply-patch+yaml",
                &changed,
                200,
            ),
        ] {
            let answer = tester.ask(method, path, content, json, body.as_bytes());
            let message = answer.body["message"].as_str().unwrap_or_default();
            assert_eq!(answer.code, code, "{list}: {method} {content}: {message}");
            let entries = answer.body[list].as_array().map(Vec::len);
            assert_eq!(entries, Some(ENTRIES), "{list}");
        }
    }
}
