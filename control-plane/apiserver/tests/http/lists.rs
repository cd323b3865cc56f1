//! Lists: pages, revisions, selectors, views.

use super::*;
use berth_apiserver::storage::HistoryLimits;
use std::time::Duration;

#[tokio::test]
async fn pages_show_one_revision_whatever_happens_between() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c", "d"] {
        cluster
            .create(CONFIG_MAPS, &config_map(name, json!({})))
            .await;
    }
    let first = cluster.get(&format!("{CONFIG_MAPS}?limit=2")).await.json();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(*at(&first, "/metadata/remainingItemCount"), json!(2));
    cluster
        .delete(&format!("{CONFIG_MAPS}/c"), &Value::Null)
        .await;
    cluster
        .create(CONFIG_MAPS, &config_map("bb", json!({})))
        .await;
    let token = text(&first, "/metadata/continue");
    let second = cluster
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
        .await
        .json();
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(text(&second, "/metadata/continue"), "");
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let exact = text(&first, "/metadata/resourceVersion");
    let then = cluster
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersion={exact}&resourceVersionMatch=Exact"
        ))
        .await
        .json();
    assert_eq!(names(&then), ["a", "b", "c", "d"]);
    let now = cluster
        .get(&format!("{CONFIG_MAPS}?resourceVersion={exact}"))
        .await
        .json();
    assert_eq!(names(&now), ["a", "b", "bb", "d"]);
}

#[tokio::test]
async fn a_forgotten_page_is_410_and_brings_a_token_to_go_on() {
    let cluster = Cluster::with(ServerOptions {
        history: HistoryLimits {
            age_min: Duration::ZERO,
            events_min: 2,
            events_max: 2,
            ..HistoryLimits::default()
        },
        ..ServerOptions::default()
    })
    .await;
    for name in ["a", "b", "c"] {
        cluster
            .create(CONFIG_MAPS, &config_map(name, json!({})))
            .await;
    }
    let first = cluster.get(&format!("{CONFIG_MAPS}?limit=1")).await.json();
    let token = text(&first, "/metadata/continue").to_owned();
    for name in ["d", "e", "f", "g"] {
        cluster
            .create(CONFIG_MAPS, &config_map(name, json!({})))
            .await;
    }
    let expired = cluster
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await;
    assert_eq!(expired.status, 410, "{}", expired.text());
    let expired = expired.json();
    assert_eq!(text(&expired, "/reason"), "Expired");
    let fresh = text(&expired, "/metadata/continue");
    let rest = cluster
        .get(&format!("{CONFIG_MAPS}?continue={fresh}"))
        .await
        .json();
    assert_eq!(names(&rest), ["b", "c", "d", "e", "f", "g"]);
    let old = text(&first, "/metadata/resourceVersion");
    let exact = cluster
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact"
        ))
        .await;
    assert_eq!(exact.status, 410);
    let not_older = cluster
        .get(&format!("{CONFIG_MAPS}?resourceVersion={old}"))
        .await;
    assert_eq!(not_older.status, 200);
}

#[tokio::test]
async fn a_revision_of_the_future_is_waited_for_but_not_for_ever() {
    let cluster = Cluster::start().await;
    let next = cluster.server.revision() + 1;
    let path = format!("{CONFIG_MAPS}?resourceVersion={next}&resourceVersionMatch=NotOlderThan");
    let object = config_map("a", json!({}));
    let (list, _) = tokio::join!(cluster.get(&path), async {
        cluster
            .reaches("apiserver_current_inflight_requests 1")
            .await;
        cluster.create(CONFIG_MAPS, &object).await
    });
    assert_eq!(names(&list.json()), ["a"]);
    let path = format!("{CONFIG_MAPS}?resourceVersion={}", next + 10);
    let never = cluster.get(&path).await;
    assert_eq!(never.status, 504, "{}", never.text());
    let status = never.json();
    assert_eq!(
        text(&status, "/details/causes/0/reason"),
        "ResourceVersionTooLarge"
    );
    assert_eq!(*at(&status, "/details/retryAfterSeconds"), json!(1));
    assert_eq!(never.header("retry-after"), "1");
}

#[tokio::test]
async fn options_that_contradict_each_other_are_refused() {
    let cluster = Cluster::start().await;
    let cases = [
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("resourceVersion=1&resourceVersionMatch=Sometimes", 422),
        ("sendInitialEvents=true", 422),
        ("continue=nonsense", 400),
        ("limit=x", 400),
        ("limit=-1", 200),
        ("timeoutSeconds=x", 400),
        ("resourceVersion=0", 200),
        (
            "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=5",
            200,
        ),
    ];
    for (query, status) in cases {
        let reply = cluster.get(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(reply.status, status, "{query}: {}", reply.text());
    }
}

#[tokio::test]
async fn selectors_and_namespaces_narrow_a_list() {
    let cluster = Cluster::start().await;
    cluster
        .create(CONFIG_MAPS, &config_map("a", json!({"app": "x"})))
        .await;
    cluster
        .create(CONFIG_MAPS, &config_map("b", json!({"app": "y"})))
        .await;
    cluster
        .create(
            "/api/v1/namespaces/kube-system/configmaps",
            &config_map("c", json!({"app": "x"})),
        )
        .await;
    let all = "/api/v1/configmaps";
    let cases = [
        (all, "labelSelector=app", vec!["a", "b", "c"]),
        (CONFIG_MAPS, "", vec!["a", "b"]),
        (all, "labelSelector=app%3Dx", vec!["a", "c"]),
        (all, "labelSelector=app,app+notin+(x)", vec!["b"]),
        (CONFIG_MAPS, "fieldSelector=metadata.name%3Db", vec!["b"]),
        (
            CONFIG_MAPS,
            "fieldSelector=metadata.name%3Db&labelSelector=app%3Dx",
            vec![],
        ),
        (
            all,
            "fieldSelector=metadata.namespace%3Dkube-system&labelSelector=app",
            vec!["c"],
        ),
        (all, "labelSelector=app%3Dx&limit=1", vec!["a"]),
    ];
    for (path, query, expect) in cases {
        let list = cluster.get(&format!("{path}?{query}")).await.json();
        assert_eq!(names(&list), expect, "{path}?{query}");
    }
}

#[tokio::test]
async fn views_show_rows_or_metadata() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, &pod("p")).await;
    let ask = |path: &str, accept: &str| Ask {
        path: path.to_owned(),
        accept: accept.to_owned(),
        ..Ask::default()
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let one = cluster.ask(ask(&format!("{PODS}/p"), table)).await.json();
    assert_eq!(text(&one, "/kind"), "Table");
    assert_eq!(text(&one, "/rows/0/cells/2"), "Pending");
    assert_eq!(text(&one, "/rows/0/object/kind"), "PartialObjectMetadata");
    for (include, kind) in [("None", Value::Null), ("Object", json!("Pod"))] {
        let path = format!("{PODS}?includeObject={include}");
        let list = cluster.ask(ask(&path, table)).await.json();
        assert_eq!(*at(&list, "/rows/0/object/kind"), kind, "{include}");
    }
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = cluster.ask(ask(PODS, metadata)).await.json();
    assert_eq!(text(&list, "/kind"), "PartialObjectMetadataList");
    assert_eq!(text(&list, "/items/0/metadata/name"), "p");
    assert_eq!(*at(&list, "/items/0/spec"), Value::Null);
    assert_eq!(cluster.ask(ask(PODS, "text/html")).await.status, 406);
}
