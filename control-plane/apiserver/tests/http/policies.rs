//! ValidatingAdmissionPolicies. The texts equal kube-apiserver 1.36's.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// A policy on new and changed config maps.
fn policy(name: &str, spec: Value) -> Value {
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"],
        }]}},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        policy["spec"][field] = value.clone();
    }
    policy
}

fn binding(policy: &str, spec: Value) -> Value {
    let mut binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{policy}-b")},
        "spec": {"policyName": policy, "validationActions": ["Deny"]},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        binding["spec"][field] = value.clone();
    }
    binding
}

/// A cluster with one policy and its binding.
async fn with(spec: Value, bound: Value) -> Cluster {
    let cluster = Cluster::start().await;
    cluster.create(POLICIES, &policy("p", spec)).await;
    cluster.create(BINDINGS, &binding("p", bound)).await;
    cluster
}

fn no_x() -> Value {
    json!({"validations": [{"expression": "!has(object.data.x)"}]})
}

fn with_x(name: &str) -> Value {
    let mut map = config_map(name, json!({}));
    map["data"]["x"] = "1".into();
    map
}

#[tokio::test]
async fn a_policy_takes_effect_through_its_binding() {
    let cluster = Cluster::start().await;
    cluster.create(POLICIES, &policy("p", no_x())).await;
    cluster.create(CONFIG_MAPS, &with_x("unbound")).await;
    cluster.create(BINDINGS, &binding("p", json!({}))).await;
    cluster
        .create(CONFIG_MAPS, &config_map("good", json!({})))
        .await;
    let refused = cluster.post(CONFIG_MAPS, &with_x("bad")).await;
    let message = "ValidatingAdmissionPolicy 'p' with binding 'p-b' denied request: failed expression: !has(object.data.x)";
    let status = refused.json();
    assert_eq!(
        (refused.status, text(&status, "/reason")),
        (422, "Invalid"),
        "{status}"
    );
    assert_eq!(
        text(&status, "/message"),
        format!("configmaps \"bad\" is forbidden: {message}")
    );
    assert_eq!(
        *at(&status, "/details/causes"),
        json!([{"message": message}])
    );
    let good = format!("{CONFIG_MAPS}/good");
    let change = cluster.merge(&good, &json!({"data": {"x": "1"}})).await;
    assert_eq!(change.status, 422);
    // `object` of a deletion is null, and `has` of it fails.
    let deletion = cluster.delete(&good, &Value::Null).await;
    assert_eq!(deletion.status, 422);
    cluster
        .delete(&format!("{BINDINGS}/p-b"), &Value::Null)
        .await;
    cluster.create(CONFIG_MAPS, &with_x("bad")).await;
}

#[tokio::test]
async fn a_violation_is_reported_as_the_policy_states() {
    let name = "object.metadata.name";
    for (validation, code, reason, message) in [
        (json!({"message": " no x "}), 422, "Invalid", "no x"),
        (
            json!({"reason": "Forbidden", "message": "no x"}),
            403,
            "Forbidden",
            "no x",
        ),
        (
            json!({"reason": "RequestEntityTooLarge", "message": "no x"}),
            413,
            "RequestEntityTooLarge",
            "no x",
        ),
        (
            json!({"messageExpression": format!("'no x in ' + {name}"), "message": "other"}),
            422,
            "Invalid",
            "no x in bad",
        ),
        (
            json!({"messageExpression": "object.missing", "message": "other"}),
            422,
            "Invalid",
            "other",
        ),
    ] {
        let mut spec = no_x();
        for (field, value) in validation.as_object().into_iter().flatten() {
            spec["validations"][0][field] = value.clone();
        }
        let cluster = with(spec, json!({})).await;
        let refused = cluster.post(CONFIG_MAPS, &with_x("bad")).await;
        let status = refused.json();
        assert_eq!(refused.status, code, "{status}");
        assert_eq!(text(&status, "/reason"), reason);
        assert!(
            text(&status, "/message").ends_with(&format!("denied request: {message}")),
            "{status}"
        );
    }
}

#[tokio::test]
async fn expressions_see_the_request_and_the_variables_of_the_policy() {
    for (spec, expect) in [
        (
            "request.operation == 'CREATE' && request.name == 'm'",
            Ok(()),
        ),
        ("oldObject == null && object.data.a == 'b'", Ok(())),
        ("namespaceObject.metadata.name == 'default'", Ok(())),
        ("variables.size == 1 && variables.twice == 2", Ok(())),
        (
            "request.userInfo.username == 'nobody'",
            Err("failed expression"),
        ),
        (
            "!has(object.data.a) || variables.broken == 1",
            Err(
                "expression '!has(object.data.a) || variables.broken == 1' resulted in error: composited variable \"broken\" fails to evaluate: no such key: missing",
            ),
        ),
        ("has(object.data.a) || variables.broken == 1", Ok(())),
    ] {
        let cluster = with(
            json!({
                "variables": [
                    {"name": "size", "expression": "object.data.size()"},
                    {"name": "twice", "expression": "variables.size * 2"},
                    {"name": "broken", "expression": "object.data.missing"},
                ],
                "validations": [{"expression": spec}],
            }),
            json!({}),
        )
        .await;
        let reply = cluster.post(CONFIG_MAPS, &config_map("m", json!({}))).await;
        match expect {
            Ok(()) => assert_eq!(reply.status, 201, "{spec}: {}", reply.text()),
            Err(message) => {
                assert_eq!(reply.status, 422, "{spec}: {}", reply.text());
                let status = reply.json();
                assert!(text(&status, "/message").contains(message), "{status}");
            }
        }
    }
}

#[tokio::test]
async fn only_matching_requests_are_checked() {
    let never = json!([{"expression": "false"}]);
    let rule = |extra: Value| {
        let mut rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"],
        });
        for (field, value) in extra.as_object().into_iter().flatten() {
            rule[field] = value.clone();
        }
        rule
    };
    for (spec, bound, code) in [
        (
            json!({"matchConditions": [{"name": "c", "expression": "request.name != 'm'"}]}),
            json!({}),
            201,
        ),
        (
            json!({"matchConditions": [{"name": "c", "expression": "object.missing"}]}),
            json!({}),
            422,
        ),
        (
            json!({"failurePolicy": "Ignore", "matchConditions": [{"name": "c", "expression": "object.missing"}]}),
            json!({}),
            201,
        ),
        (
            json!({"matchConstraints": {"resourceRules": [rule(json!({}))], "excludeResourceRules": [rule(json!({"resourceNames": ["m"]}))]}}),
            json!({}),
            201,
        ),
        (
            json!({"matchConstraints": {"resourceRules": [rule(json!({"resourceNames": ["other"]}))]}}),
            json!({}),
            201,
        ),
        (
            json!({"matchConstraints": {"resourceRules": [rule(json!({}))], "objectSelector": {"matchLabels": {"a": "b"}}}}),
            json!({}),
            201,
        ),
        (
            json!({}),
            json!({"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
            201,
        ),
        (
            json!({}),
            json!({"matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}}),
            422,
        ),
        (
            json!({}),
            json!({"matchResources": {"resourceRules": [rule(json!({"operations": ["UPDATE"]}))]}}),
            201,
        ),
    ] {
        let mut spec = spec;
        spec["validations"] = never.clone();
        let cluster = with(spec.clone(), bound.clone()).await;
        let reply = cluster.post(CONFIG_MAPS, &config_map("m", json!({}))).await;
        assert_eq!(reply.status, code, "{spec} {bound}: {}", reply.text());
    }
}

#[tokio::test]
async fn a_binding_names_or_selects_parameters() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "c", "expression": "object.metadata.name == 'm'"}],
        "validations": [{
            "expression": "params == null || object.data.size() <= int(params.data.max)",
            "messageExpression": "'at most ' + params.data.max",
        }],
    });
    for (reference, expect) in [
        (Value::Null, None),
        (
            json!({"name": "two", "parameterNotFoundAction": "Deny"}),
            None,
        ),
        (
            json!({"name": "one", "parameterNotFoundAction": "Deny"}),
            Some("at most 1"),
        ),
        (
            json!({"selector": {"matchLabels": {"limits": "all"}}, "parameterNotFoundAction": "Deny"}),
            Some("at most 1"),
        ),
        (
            json!({"name": "none", "parameterNotFoundAction": "Allow"}),
            None,
        ),
        (
            json!({"name": "none", "parameterNotFoundAction": "Deny"}),
            Some(
                "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
            ),
        ),
        (
            json!({"name": "two", "namespace": "kube-system", "parameterNotFoundAction": "Allow"}),
            None,
        ),
    ] {
        let cluster = Cluster::start().await;
        for (name, max) in [("one", "1"), ("two", "2")] {
            let mut limits = config_map(name, json!({"limits": "all"}));
            limits["data"] = json!({"max": max});
            cluster.create(CONFIG_MAPS, &limits).await;
        }
        cluster.create(POLICIES, &policy("p", spec.clone())).await;
        let bound = json!({"paramRef": reference});
        cluster.create(BINDINGS, &binding("p", bound)).await;
        let reply = cluster.post(CONFIG_MAPS, &with_x("m")).await;
        match expect {
            None => assert_eq!(reply.status, 201, "{reference}: {}", reply.text()),
            Some(message) => {
                let status = reply.json();
                assert!(
                    text(&status, "/message").ends_with(message),
                    "{reference}: {status}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_binding_can_warn_instead() {
    let cluster = with(no_x(), json!({"validationActions": ["Warn", "Audit"]})).await;
    let reply = cluster.post(CONFIG_MAPS, &with_x("m")).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_eq!(
        reply.header("warning"),
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-b': failed expression: !has(object.data.x)\""
    );
}

#[tokio::test]
async fn policies_are_validated() {
    let cluster = Cluster::start().await;
    for (spec, expect) in [
        (
            json!({"validations": [{"expression": "1"}]}),
            "spec.validations[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
        ),
        (
            json!({"validations": [{"expression": "params.x == 1"}]}),
            "spec.validations[0].expression: Invalid value: \"params.x == 1\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^",
        ),
        (
            json!({"validations": [{"expression": "authorizer.path('/').check('get').allowed()"}]}),
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')\n | authorizer.path('/').check('get').allowed()\n | ^",
        ),
        (
            json!({"variables": [{"name": "a", "expression": "1"}], "validations": [{"expression": "variables.b == 1"}]}),
            "compilation failed: ERROR: <input>:1:10: undefined field 'b'\n | variables.b == 1\n | .........^",
        ),
        (
            json!({"variables": [{"name": "if", "expression": "1"}], "validations": [{"expression": "true"}]}),
            "spec.variables[0].name: Invalid value: \"if\": must be a valid CEL identifier",
        ),
        (
            json!({"paramKind": {}, "validations": []}),
            "[spec.paramKind.apiVersion: Required value, spec.paramKind.kind: Required value, spec.validations: Required value: validations or auditAnnotations must contain at least one item, spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]",
        ),
        (
            json!({
                "matchConditions": [{"name": "c", "expression": "1"}],
                "validations": [{"expression": "true", "message": "a\nb", "reason": "X", "messageExpression": "1"}],
                "auditAnnotations": [{"key": "k", "valueExpression": "1"}, {"key": "ok", "valueExpression": "null"}],
            }),
            "[spec.matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int, spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int, spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks, spec.validations[0].reason: Unsupported value: \"X\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\", spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string null_type] but got int]",
        ),
        (
            json!({"matchConstraints": {"matchPolicy": "x"}, "validations": [{"expression": "true"}]}),
            "[spec.matchConstraints.matchPolicy: Unsupported value: \"x\": supported values: \"Equivalent\", \"Exact\", spec.matchConstraints.resourceRules: Required value]",
        ),
        (
            json!({"matchConstraints": null, "validations": [{"expression": "true"}]}),
            "spec.matchConstraints: Required value",
        ),
    ] {
        let reply = cluster.post(POLICIES, &policy("p", spec.clone())).await;
        assert_eq!(reply.status, 422, "{spec}: {}", reply.text());
        let status = reply.json();
        assert!(
            text(&status, "/message").ends_with(expect),
            "{spec}: {}",
            text(&status, "/message")
        );
    }
    for (spec, expect) in [
        (
            json!({"policyName": "", "validationActions": []}),
            "[spec.policyName: Required value, spec.validationActions: Required value: at least one validation action is required]",
        ),
        (
            json!({"validationActions": ["Deny", "Warn"]}),
            "spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        ),
        (
            json!({"validationActions": ["X", "X"]}),
            "[spec.validationActions[0]: Unsupported value: \"X\": supported values: \"Audit\", \"Deny\", \"Warn\", spec.validationActions[1]: Unsupported value: \"X\": supported values: \"Audit\", \"Deny\", \"Warn\", spec.validationActions[1]: Duplicate value: \"X\"]",
        ),
        (
            json!({"paramRef": {"parameterNotFoundAction": "x"}}),
            "[spec.paramRef: Required value: one of name or selector must be specified, spec.paramRef.parameterNotFoundAction: Unsupported value: \"x\": supported values: \"Deny\", \"Allow\"]",
        ),
        (
            json!({"paramRef": {"name": "x", "selector": {}}}),
            "[spec.paramRef.name: Forbidden: name and selector are mutually exclusive, spec.paramRef.selector: Forbidden: name and selector are mutually exclusive, spec.paramRef.parameterNotFoundAction: Required value]",
        ),
    ] {
        let reply = cluster.post(BINDINGS, &binding("p", spec.clone())).await;
        assert_eq!(reply.status, 422, "{spec}: {}", reply.text());
        let status = reply.json();
        assert!(
            text(&status, "/message").ends_with(expect),
            "{spec}: {}",
            text(&status, "/message")
        );
    }
}

#[tokio::test]
async fn policies_are_printed_and_patched_as_other_kinds() {
    let mut spec = no_x();
    spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let reference = json!({"name": "m", "parameterNotFoundAction": "Allow"});
    let cluster = with(spec, json!({"paramRef": reference})).await;
    for (path, cells) in [
        (POLICIES, json!(["p", 1, "v1/ConfigMap"])),
        (BINDINGS, json!(["p-b", "p", "*/m"])),
    ] {
        let ask = Ask {
            path: path.to_owned(),
            accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
            ..Ask::default()
        };
        let table = cluster.ask(ask).await.json();
        let shown = at(&table, "/rows/0/cells").as_array().cloned();
        let shown = shown.map(|cells| cells.into_iter().take(3).collect());
        assert_eq!(shown.unwrap_or(Value::Null), cells, "{table}");
    }
    let path = format!("{POLICIES}/p");
    let patched = cluster
        .merge(&path, &json!({"spec": {"failurePolicy": "Ignore"}}))
        .await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(*at(&patched.json(), "/metadata/generation"), json!(2));
    let status = json!({"status": {"observedGeneration": 2, "typeChecking": {}}, "spec": {"failurePolicy": "Fail"}});
    let patched = cluster
        .merge(&format!("{path}/status"), &status)
        .await
        .json();
    assert_eq!(*at(&patched, "/status"), status["status"]);
    assert_eq!(text(&patched, "/spec/failurePolicy"), "Ignore");
}

/// A server whose clock is moved by these seconds whenever it is read.
async fn with_clock(step: &Arc<AtomicI64>) -> Cluster {
    let (now, step) = (AtomicI64::new(1_800_000_000), Arc::clone(step));
    let clock = Arc::new(move || {
        let seconds = now.fetch_add(step.load(Ordering::SeqCst), Ordering::SeqCst);
        jiff::Timestamp::from_second(seconds).unwrap_or_default()
    });
    let server = Server::start_with_clock(ServerOptions::default(), clock).await;
    let server = server.unwrap_or_else(|e| panic!("{e}"));
    let client = Loopback::new(&server).unwrap_or_else(|e| panic!("{e}"));
    Cluster { server, client }
}

#[tokio::test]
async fn a_request_ends_in_time_however_long_its_policies_take() {
    let step = Arc::new(AtomicI64::new(0));
    let cluster = with_clock(&step).await;
    let all: Vec<Value> = (0..50).map(|_| json!({"expression": "true"})).collect();
    let validations = json!({"validations": all});
    cluster.create(POLICIES, &policy("p", validations)).await;
    cluster.create(BINDINGS, &binding("p", json!({}))).await;
    for (path, seconds, code) in [
        (CONFIG_MAPS.to_owned(), 0, 201),
        (CONFIG_MAPS.to_owned(), 10, 504),
        // 50 reads of the clock take 5 s and more.
        (format!("{CONFIG_MAPS}?timeout=5s"), 1, 504),
        // The server limits the timeout.
        (format!("{CONFIG_MAPS}?timeout=24h"), 10, 504),
        (format!("{CONFIG_MAPS}?timeout=0s"), 10, 504),
        (format!("{CONFIG_MAPS}?timeout=soon"), 0, 400),
    ] {
        step.store(seconds, Ordering::SeqCst);
        let reply = cluster.post(&path, &config_map("m", json!({}))).await;
        step.store(0, Ordering::SeqCst);
        let answer = reply.json();
        assert_eq!(reply.status, code, "{path}: {answer}");
        let message = match code {
            504 => "Timeout: request did not complete within the allotted timeout",
            400 => "invalid timeout specified in the request URL - time: invalid duration \"soon\"",
            _ => "",
        };
        assert_eq!(text(&answer, "/message"), message, "{path}");
        // A request after its deadline stores nothing.
        let stored = cluster
            .delete(&format!("{CONFIG_MAPS}/m"), &Value::Null)
            .await;
        assert_eq!(stored.status, if code == 201 { 200 } else { 404 }, "{path}");
    }
}

#[tokio::test]
async fn policies_have_no_effect_when_their_plugin_is_off() {
    let mut options = ServerOptions::default();
    options.admission.validating_admission_policy = false;
    let cluster = Cluster::with(options).await;
    cluster.create(POLICIES, &policy("p", no_x())).await;
    cluster.create(BINDINGS, &binding("p", json!({}))).await;
    cluster.create(CONFIG_MAPS, &with_x("a")).await;
}
