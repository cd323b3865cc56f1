//! Which requests a webhook receives: rules, selectors, match conditions, and the plugins that call webhooks.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_selectors_decide_which_requests_a_webhook_receives() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    webhook.answer("/allow", |_| json!({"allowed": true}));
    for (name, labels) in [("on", json!({"hooks": "on"})), ("off", json!({}))] {
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        cluster.create("/api/v1/namespaces", &namespace).await;
    }
    let every = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]});
    let with = |field: &str, value: Value| {
        let mut rule = every.clone();
        rule[field] = value;
        json!({"rules": [rule]})
    };
    let on = json!({"matchLabels": {"hooks": "on"}});
    // (the webhook, the requests below that it receives)
    let cases = [
        (
            json!({"rules": [every]}),
            vec![
                "CREATE namespaces",
                "CREATE configmaps on",
                "CREATE configmaps off",
                "UPDATE configmaps on",
                "UPDATE pods/status on",
                "CREATE pods/binding on",
                "CONNECT pods/exec on",
                "DELETE configmaps on",
            ],
        ),
        (
            with("resources", json!(["configmaps"])),
            vec![
                "CREATE configmaps on",
                "CREATE configmaps off",
                "UPDATE configmaps on",
                "DELETE configmaps on",
            ],
        ),
        (
            with("resources", json!(["pods/*"])),
            vec![
                "UPDATE pods/status on",
                "CREATE pods/binding on",
                "CONNECT pods/exec on",
            ],
        ),
        (
            with("resources", json!(["*/status"])),
            vec!["UPDATE pods/status on"],
        ),
        (
            with("operations", json!(["DELETE"])),
            vec!["DELETE configmaps on"],
        ),
        (with("apiGroups", json!(["apps"])), vec![]),
        (with("apiVersions", json!(["v2"])), vec![]),
        (with("scope", json!("Cluster")), vec!["CREATE namespaces"]),
        (
            with("scope", json!("Namespaced")),
            vec![
                "CREATE configmaps on",
                "CREATE configmaps off",
                "UPDATE configmaps on",
                "UPDATE pods/status on",
                "CREATE pods/binding on",
                "CONNECT pods/exec on",
                "DELETE configmaps on",
            ],
        ),
        (
            json!({"rules": [every], "objectSelector": {"matchLabels": {"a": "b"}}}),
            vec!["CREATE configmaps off", "UPDATE configmaps on"],
        ),
        (
            json!({"rules": [every], "namespaceSelector": on}),
            vec![
                "CREATE configmaps on",
                "UPDATE configmaps on",
                "UPDATE pods/status on",
                "CREATE pods/binding on",
                "CONNECT pods/exec on",
                "DELETE configmaps on",
            ],
        ),
    ];
    for (i, (more, expect)) in cases.into_iter().enumerate() {
        let (on, off) = ("/api/v1/namespaces/on", "/api/v1/namespaces/off");
        let pods = format!("{on}/pods");
        let gone = json!({"gracePeriodSeconds": 0});
        cluster.delete(&format!("{pods}/p"), &gone).await;
        cluster.create(&pods, &pod("p")).await;
        let mut hook = webhook.hook("/allow", more);
        hook["name"] = "all.example.com".into();
        cluster.configure(VALIDATING, json!([hook])).await;
        webhook.take_requests();
        let named = |labels| config_map(&format!("c{i}"), labels);
        cluster
            .create(
                "/api/v1/namespaces",
                &json!({"metadata": {"name": format!("n{i}")}}),
            )
            .await;
        cluster
            .create(&format!("{on}/configmaps"), &named(json!({})))
            .await;
        cluster
            .create(&format!("{off}/configmaps"), &named(json!({"a": "b"})))
            .await;
        let path = format!("{on}/configmaps/c{i}");
        cluster
            .merge(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
            .await;
        cluster
            .merge(&path, &json!({"metadata": {"labels": {"a": null}}}))
            .await;
        let status = format!("{pods}/p/status");
        cluster
            .merge(&status, &json!({"status": {"message": "m"}}))
            .await;
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
        cluster.post(&format!("{pods}/p/binding"), &binding).await;
        let exec = cluster
            .post(
                &format!("{pods}/p/exec?command=ls&stdin=true"),
                &Value::Null,
            )
            .await;
        assert_eq!(exec.status, 501, "no container runs");
        cluster.delete(&path, &Value::Null).await;
        let mut received: Vec<String> = Vec::new();
        for request in webhook.take_requests() {
            let (resource, sub) = (
                text(&request, "/resource/resource"),
                text(&request, "/subResource"),
            );
            let sub = if sub.is_empty() {
                String::new()
            } else {
                format!("/{sub}")
            };
            let namespace = match resource {
                "namespaces" => String::new(),
                _ => format!(" {}", text(&request, "/namespace")),
            };
            let line = format!(
                "{} {resource}{sub}{namespace}",
                text(&request, "/operation")
            );
            if received.last() != Some(&line) {
                received.push(line);
            }
        }
        assert_eq!(received, expect, "case {i}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn match_conditions_decide_which_requests_a_webhook_receives() {
    let (cluster, webhook) = (Cluster::start().await, Webhook::start().await);
    webhook.answer("/deny", |_| json!({"allowed": false}));
    // (the expressions, the failure policy, the code of a request)
    let cases: [(&[&str], &str, u16); 6] = [
        (&["object.data.a == 'b'"], "Fail", 400),
        (&["object.data.a == 'c'"], "Fail", 201),
        (
            &["request.operation == 'CREATE'", "oldObject == null"],
            "Fail",
            400,
        ),
        (&["object.data.missing == 'x'", "false"], "Fail", 201),
        (&["object.data.missing == 'x'"], "Ignore", 201),
        (&["request.userInfo.username == 'berth-admin'"], "Fail", 400),
    ];
    for (expressions, policy, code) in cases {
        let conditions: Vec<Value> = expressions
            .iter()
            .enumerate()
            .map(|(i, text)| json!({"name": format!("c{i}"), "expression": text}))
            .collect();
        let more = json!({"matchConditions": conditions, "failurePolicy": policy});
        let hooks = json!([webhook.hook("/deny", more)]);
        cluster.configure(VALIDATING, hooks).await;
        let reply = cluster.post_config_map("").await;
        assert_eq!(reply.status, code, "{expressions:?}: {}", reply.text());
    }
    // A condition without a value rejects the request.
    let more =
        json!({"matchConditions": [{"name": "c", "expression": "object.data.missing == 'x'"}]});
    cluster
        .configure(VALIDATING, json!([webhook.hook("/deny", more)]))
        .await;
    webhook.take_requests();
    let reply = cluster.post_config_map("").await;
    assert_eq!(reply.status, 403);
    assert!(
        text_of(&reply).ends_with("no such key: missing"),
        "{}",
        text_of(&reply)
    );
    assert!(webhook.take_requests().is_empty());
    for (condition, expect) in [
        (
            json!({"name": "c", "expression": "object.x =="}),
            "webhooks[0].matchConditions[0].expression: Invalid value: \"object.x ==\": compilation failed",
        ),
        (
            json!({"name": "c", "expression": "1"}),
            "webhooks[0].matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
        ),
        (
            json!({"name": "", "expression": "true"}),
            "webhooks[0].matchConditions[0].name: Required value",
        ),
    ] {
        let hook = webhook.hook("/deny", json!({"matchConditions": [condition]}));
        let reply = cluster.try_configure(VALIDATING, json!([hook])).await;
        assert_eq!(reply.status, 422);
        assert!(text_of(&reply).contains(expect), "{}", text_of(&reply));
    }
}

#[tokio::test]
async fn webhooks_are_not_called_when_their_plugins_are_off() {
    let mut options = ServerOptions::default();
    options.admission.mutating_admission_webhook = false;
    options.admission.validating_admission_webhook = false;
    let cluster = Cluster::with(options).await;
    for sort in ["Mutating", "Validating"] {
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{sort}WebhookConfiguration"),
            "metadata": {"name": "unreachable"},
            "webhooks": [{
                "name": "unreachable.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
            }],
        });
        let plural = format!("{}webhookconfigurations", sort.to_lowercase());
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
        cluster.create(&path, &configuration).await;
    }
    cluster.create(PODS, &pod("a")).await;
}
