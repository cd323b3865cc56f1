//! The four questions and their answers, byte for byte as kube-scheduler's extenders know them.

use super::*;

/// F-38: the address and the form of a request.
#[tokio::test]
async fn a_question_is_posted_as_json_behind_the_prefix() {
    for (prefix, path) in [
        ("", "/f"),
        ("/", "/f"),
        ("/a/b", "/a/b/f"),
        ("/a//", "/a/f"),
    ] {
        let mut server = Server::start(Reply::json(&json!({}))).await;
        let client = client(&format!("{}{prefix}", server.url)).await;
        let asked = client.filter("f", &pod(), Nodes::Names(&[])).await;
        asked.unwrap_or_else(|e| panic!("{prefix}: {e}"));
        let (head, _) = server.requests.recv().await.expect("a request");
        assert!(
            head.starts_with(&format!("post {path} http/1.1\r\n")),
            "{head}"
        );
        for line in [
            "content-type: application/json\r\n",
            "user-agent: berth-test\r\n",
        ] {
            assert!(head.contains(line), "{head}");
        }
    }
}

/// F-38, F-39: names for extenders with a node cache, complete nodes for others; `null` for the other field.
#[tokio::test]
async fn nodes_are_sent_by_name_or_whole() {
    let whole = [
        raw(&json!({"metadata": {"name": "n1"}, "status": {"phase": "x"}})),
        raw(&json!({"metadata": {"name": "n2"}})),
    ];
    let by_name = names(&["n1", "n2"]);
    let pod_of = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"whatever": [1]}});
    for (nodes, expected) in [
        (
            Nodes::Names(&by_name),
            json!({"Pod": pod_of, "Nodes": null, "NodeNames": ["n1", "n2"]}),
        ),
        (
            Nodes::Whole(&whole),
            json!({
                "Pod": pod_of,
                "Nodes": {"metadata": {}, "items": [
                    {"metadata": {"name": "n1"}, "status": {"phase": "x"}},
                    {"metadata": {"name": "n2"}},
                ]},
                "NodeNames": null,
            }),
        ),
    ] {
        let mut server = Server::start(Reply::json(&json!(null))).await;
        let client = client(&server.url).await;
        let scores = client.prioritize("p", &pod(), nodes).await;
        assert_eq!(scores.expect("null is no score"), []);
        let left = client.filter("f", &pod(), nodes).await;
        assert_eq!(left.expect("null is no node"), FilterAnswer::default());
        for _ in ["p", "f"] {
            let (_, question) = server.requests.recv().await.expect("a request");
            assert_eq!(question, expected);
        }
    }
}

/// F-38, F-39: in an answer, names count for extenders with a node cache and complete nodes for others; field names are
/// case-insensitive.
#[tokio::test]
async fn an_answer_is_read_in_any_case() {
    let left = |nodes: &[&str]| nodes.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let items = json!({"items": [{"metadata": {"name": "n2"}, "spec": {}}]});
    let cases: [(&str, Value, Vec<String>); 7] = [
        ("names", json!({"NodeNames": ["n1"]}), left(&["n1"])),
        (
            "in another case",
            json!({"nodenames": ["n1"], "FAILEDNODES": null}),
            left(&["n1"]),
        ),
        ("no names", json!({"NodeNames": []}), left(&[])),
        ("nodes instead", json!({"Nodes": items}), left(&["n2"])),
        (
            "both",
            json!({"Nodes": items, "NodeNames": ["n1"]}),
            left(&["n1"]),
        ),
        ("null", json!({"Nodes": null, "NodeNames": null}), left(&[])),
        (
            "other things",
            json!({"Other": {"a": [1]}, "NodeNames": ["n1"]}),
            left(&["n1"]),
        ),
    ];
    for (situation, stated, expected) in cases {
        let answer = filtered(Reply::json(&stated)).await.expect(situation);
        assert_eq!(answer.nodes, expected, "{situation}");
    }
    let stated = json!({
        "nodeNames": ["n1"], "FailedNodes": {"n2": "why"}, "failedAndUnresolvableNodes": {"N3": "never"},
    });
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        filtered(Reply::json(&stated)).await,
        Ok(FilterAnswer {
            nodes: left(&["n1"]),
            failed: vec![pair("n2", "why")],
            failed_and_unresolvable: vec![pair("N3", "never")],
        })
    );
    let server = Server::start(Reply::json(&json!({"Nodes": items, "NodeNames": ["n1"]}))).await;
    let whole = [raw(&json!({"metadata": {"name": "n2"}}))];
    let answer = client(&server.url)
        .await
        .filter("f", &pod(), Nodes::Whole(&whole))
        .await;
    assert_eq!(
        answer.expect("an answer").nodes,
        ["n2"],
        "whole nodes were asked about"
    );
}

/// F-38, F-39, F-42: the errors that the extender reports.
#[tokio::test]
async fn an_error_in_the_answer_is_one() {
    let stated = filtered(Reply::json(
        &json!({"Error": "no more licences", "NodeNames": ["n1"]}),
    ))
    .await;
    assert_eq!(stated, Err("no more licences".to_owned()));
    for (stated, expected) in [
        (json!({}), Ok(())),
        (json!({"Error": ""}), Ok(())),
        (json!(null), Ok(())),
        (json!({"error": "taken"}), Err("taken".to_owned())),
    ] {
        let mut server = Server::start(Reply::json(&stated)).await;
        let bound = client(&server.url).await.bind("b", &BINDING).await;
        assert_eq!(bound.map_err(|e| e.to_string()), expected);
        let (_, question) = server.requests.recv().await.expect("a request");
        let of = json!({"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"});
        assert_eq!(question, of);
    }
}

/// F-38, F-41.
#[tokio::test]
async fn scores_are_a_list() {
    let stated = json!([{"Host": "n1", "Score": 7}, {"host": "n2", "score": -1}, {"Host": "n3"}]);
    let server = Server::start(Reply::json(&stated)).await;
    let nodes = names(&["n1"]);
    let scores = client(&server.url)
        .await
        .prioritize("p", &pod(), Nodes::Names(&nodes))
        .await;
    let score = |name: &str, score| (name.to_owned(), score);
    assert_eq!(
        scores.expect("scores"),
        [score("n1", 7), score("n2", -1), score("n3", 0)]
    );
}

/// F-38, F-43: victims whole or by identity; the answer is always by identity.
#[tokio::test]
async fn victims_are_sent_whole_or_by_identity() {
    let victim = json!({"metadata": {"name": "v", "uid": "v1"}});
    let of = |whole| {
        [VictimsOf {
            node: "n1",
            pods: vec!["v1"],
            whole,
            violations: 2,
        }]
    };
    let pod_of = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"whatever": [1]}});
    for (victims, expected) in [
        (
            of(Some(vec![raw(&victim)])),
            json!({
                "Pod": pod_of,
                "NodeNameToVictims": {"n1": {"Pods": [victim], "NumPDBViolations": 2}},
                "NodeNameToMetaVictims": null,
            }),
        ),
        (
            of(None),
            json!({
                "Pod": pod_of,
                "NodeNameToVictims": null,
                "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v1"}], "NumPDBViolations": 2}},
            }),
        ),
    ] {
        let stated = json!({"nodeNameToMetaVictims": {
            "n1": {"pods": [{"uid": "v2"}], "numPDBViolations": 1},
            "n2": null,
            "n3": {"Pods": null, "NumPDBViolations": -3},
        }});
        let mut server = Server::start(Reply::json(&stated)).await;
        let answer = client(&server.url)
            .await
            .preempt("x", &pod(), &victims)
            .await;
        let named = |node: &str, pods: &[&str], violations| MetaVictimsOf {
            node: node.to_owned(),
            pods: pods.iter().map(|p| (*p).to_owned()).collect(),
            violations,
        };
        assert_eq!(
            answer.expect("an answer"),
            [
                named("n1", &["v2"], 1),
                named("n2", &[], 0),
                named("n3", &[], 0)
            ]
        );
        let (_, question) = server.requests.recv().await.expect("a request");
        assert_eq!(question, expected);
    }
}
