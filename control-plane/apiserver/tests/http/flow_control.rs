//! FlowSchemas and PriorityLevelConfigurations. The texts equal kube-apiserver 1.36's.

use super::*;

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

fn schema(name: &str, spec: Value) -> Value {
    let mut schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": "global-default"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "bob"}}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
            }],
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        schema["spec"][field] = value.clone();
    }
    schema
}

fn level(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": spec,
    })
}

#[tokio::test]
async fn the_objects_of_every_cluster_are_there() {
    let cluster = Cluster::start().await;
    let schemas = cluster.get(SCHEMAS).await.json();
    assert_eq!(
        names(&schemas),
        [
            "catch-all",
            "exempt",
            "global-default",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-system-service-accounts",
            "probes",
            "service-accounts",
            "system-leader-election",
            "system-node-high",
            "system-nodes",
        ]
    );
    let levels = cluster.get(LEVELS).await.json();
    assert_eq!(
        names(&levels),
        [
            "catch-all",
            "exempt",
            "global-default",
            "leader-election",
            "node-high",
            "system",
            "workload-high",
            "workload-low",
        ]
    );
    let ask = Ask {
        path: LEVELS.to_owned(),
        accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
        ..Ask::default()
    };
    let table = cluster.ask(ask).await.json();
    let shown = |row: &str| {
        let cells = at(&table, &format!("/rows/{row}/cells")).as_array();
        Value::from_iter(cells.into_iter().flatten().take(6).cloned())
    };
    assert_eq!(
        shown("1"),
        json!(["exempt", "Exempt", "<none>", "<none>", "<none>", "<none>"])
    );
    assert_eq!(
        shown("2"),
        json!(["global-default", "Limited", "20", "128", "6", "50"])
    );
    let fixed = json!({"spec": {"matchingPrecedence": 5}});
    let reply = cluster.merge(&format!("{SCHEMAS}/catch-all"), &fixed).await;
    assert_eq!(reply.status, 422);
    assert!(
        text(&reply.json(), "/message").ends_with("spec of 'catch-all' must equal the fixed value")
    );
}

#[tokio::test]
async fn objects_have_defaults_and_a_status_of_their_own() {
    let cluster = Cluster::start().await;
    let created = cluster.create(SCHEMAS, &schema("s", json!({}))).await;
    assert_eq!(*at(&created, "/spec/matchingPrecedence"), json!(1000));
    let limited =
        json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}});
    let created = cluster.create(LEVELS, &level("l", limited)).await;
    assert_eq!(
        *at(&created, "/spec/limited"),
        json!({
            "nominalConcurrencyShares": 30,
            "lendablePercent": 0,
            "limitResponse": {
                "type": "Queue",
                "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50},
            },
        })
    );
    for path in [format!("{SCHEMAS}/s"), format!("{LEVELS}/l")] {
        let status = json!({"status": {"conditions": [{"type": "Dangling", "status": "True"}]}});
        let patched = cluster.merge(&format!("{path}/status"), &status).await;
        assert_eq!(patched.status, 200, "{}", patched.text());
        assert_eq!(text(&patched.json(), "/status/conditions/0/status"), "True");
        let twice = json!({"status": {"conditions": [{"type": "A"}, {"type": "A"}]}});
        let refused = cluster
            .merge(&format!("{path}/status"), &twice)
            .await
            .json();
        assert!(
            text(&refused, "/message")
                .ends_with("status.conditions[1].type: Duplicate value: \"A\""),
            "{refused}"
        );
        assert_eq!(cluster.delete(&path, &Value::Null).await.status, 200);
    }
}

#[tokio::test]
async fn objects_are_validated() {
    let cluster = Cluster::start().await;
    let user = json!([{"kind": "User", "user": {"name": "bob"}}]);
    let rules = |rule: Value| {
        let mut all = json!([{"subjects": user}]);
        for (field, value) in rule.as_object().into_iter().flatten() {
            all[0][field] = value.clone();
        }
        json!({"rules": all})
    };
    let resources = |rule: Value| rules(json!({"resourceRules": [rule]}));
    for (spec, expect) in [
        (
            json!({"matchingPrecedence": 10001}),
            "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
        ),
        (
            json!({"matchingPrecedence": 1}),
            "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
        ),
        (
            json!({"priorityLevelConfiguration": {"name": ""}}),
            "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
        ),
        (
            rules(json!({})),
            "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
        ),
        (
            rules(
                json!({"subjects": [{"kind": "Group", "user": {"name": "a"}}], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}),
            ),
            "[spec.rules[0].subjects[0].group: Required value: group is required when subject kind is 'Group', spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User']",
        ),
        (
            resources(
                json!({"verbs": ["*", "get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["A"]}),
            ),
            "[spec.rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs, spec.rules[0].resourceRules[0].namespaces[0]: Invalid value: \"A\": each member of this list must be '*' or a DNS-1123 label; a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')]",
        ),
        (
            resources(json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]})),
            "spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
        ),
        (
            rules(
                json!({"nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["a", "/*a"]}]}),
            ),
            "[spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"a\": must start with slash, spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: \"/*a\": wildcard can only do suffix matching]",
        ),
    ] {
        let reply = cluster.post(SCHEMAS, &schema("s", spec.clone())).await;
        assert_eq!(reply.status, 422, "{spec}: {}", reply.text());
        let status = reply.json();
        assert!(
            text(&status, "/message").ends_with(expect),
            "{spec}: {status}"
        );
    }
    let queue = |queuing: Value| json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": queuing}}});
    for (spec, expect) in [
        (
            json!({"type": "Exempt"}),
            "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
        ),
        (
            json!({"type": "Limited"}),
            "spec.limited: Required value: must not be empty when type is Limited",
        ),
        (
            json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}}),
            "spec.limited.limitResponse.queuing: Required value: must not be empty if limited.limitResponse.type is Limited",
        ),
        (
            json!({"type": "Limited", "limited": {"lendablePercent": 101, "limitResponse": {"type": "Reject"}}}),
            "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
        ),
        (
            queue(json!({"queues": 4, "handSize": 5})),
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 5: should not be greater than queues (4)",
        ),
        (
            queue(json!({"queues": 1024, "handSize": 7})),
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 7: required entropy bits of deckSize 1024 and handSize 7 should not be greater than 60",
        ),
    ] {
        let reply = cluster.post(LEVELS, &level("l", spec.clone())).await;
        assert_eq!(reply.status, 422, "{spec}: {}", reply.text());
        let status = reply.json();
        assert!(
            text(&status, "/message").ends_with(expect),
            "{spec}: {status}"
        );
    }
}
