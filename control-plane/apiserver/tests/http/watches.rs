//! Watches.

use super::*;
use berth_apiserver::storage::HistoryLimits;
use berth_objects::access::gr;
use http_body_util::BodyExt;
use std::time::Duration;

/// Type and name of each event.
fn seen(events: &[Value]) -> Vec<String> {
    events
        .iter()
        .map(|e| format!("{} {}", text(e, "/type"), text(e, "/object/metadata/name")))
        .collect()
}

#[tokio::test]
async fn an_object_that_enters_or_leaves_the_selector_comes_or_goes() {
    let cluster = Cluster::start().await;
    let start = cluster.server.revision();
    cluster
        .create(CONFIG_MAPS, &config_map("a", json!({"l": "x"})))
        .await;
    cluster
        .create(CONFIG_MAPS, &config_map("b", json!({"l": "y"})))
        .await;
    for (name, label) in [("b", "x"), ("a", "x2"), ("a", "x3"), ("b", "x")] {
        let patch = json!({"metadata": {"labels": {"l": label, "n": label}}});
        cluster
            .merge(&format!("{CONFIG_MAPS}/{name}"), &patch)
            .await;
    }
    cluster
        .merge(&format!("{CONFIG_MAPS}/b"), &json!({"data": {"c": "d"}}))
        .await;
    cluster
        .delete(&format!("{CONFIG_MAPS}/b"), &Value::Null)
        .await;
    cluster
        .delete(&format!("{CONFIG_MAPS}/a"), &Value::Null)
        .await;
    let watch = format!(
        "{CONFIG_MAPS}?watch=1&labelSelector=l%3Dx&resourceVersion={start}&timeoutSeconds=1"
    );
    let events = cluster.get(&watch).await.events();
    assert_eq!(
        seen(&events),
        ["ADDED a", "ADDED b", "DELETED a", "MODIFIED b", "DELETED b"]
    );
    let left = &events[2]["object"];
    assert_eq!(
        text(left, "/metadata/labels/l"),
        "x",
        "it leaves as the watcher knew it"
    );
    let versions: Vec<u64> = events
        .iter()
        .filter_map(|e| text(e, "/object/metadata/resourceVersion").parse().ok())
        .collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
}

#[tokio::test]
async fn the_initial_state_ends_with_a_bookmark_and_bookmarks_go_on() {
    let cluster = Cluster::with(ServerOptions {
        bookmark_interval: Duration::from_millis(300),
        ..ServerOptions::default()
    })
    .await;
    cluster
        .create(CONFIG_MAPS, &config_map("a", json!({})))
        .await;
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&{initial}");
    let object = pod("p");
    let (events, _) = tokio::join!(cluster.get(&path), async {
        cluster.reaches("apiserver_longrunning_requests 1").await;
        cluster.create(PODS, &object).await
    });
    let events = events.events();
    assert_eq!(seen(&events)[..2], ["ADDED a", "BOOKMARK "]);
    assert_eq!(
        events[1]["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    let last = events.last().cloned().unwrap_or_default();
    assert_eq!(text(&last, "/type"), "BOOKMARK");
    assert_eq!(
        text(&last, "/object/metadata/resourceVersion"),
        cluster.server.revision().to_string(),
        "a bookmark states that nothing of this kind happened up to the newest revision of the store"
    );
    assert_eq!(*at(&last, "/object/metadata/annotations"), Value::Null);
    let without = cluster
        .get(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1&{initial}"))
        .await
        .events();
    assert_eq!(seen(&without), ["ADDED a"]);
}

#[tokio::test]
async fn a_watch_from_a_forgotten_revision_ends_with_410() {
    let cluster = Cluster::with(ServerOptions {
        history: HistoryLimits {
            age_min: Duration::ZERO,
            events_min: 1,
            events_max: 1,
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
    let events = cluster
        .get(&format!(
            "{CONFIG_MAPS}?watch=1&resourceVersion=2&timeoutSeconds=5"
        ))
        .await
        .events();
    assert_eq!(events.len(), 1);
    assert_eq!(text(&events[0], "/type"), "ERROR");
    assert_eq!(*at(&events[0], "/object/code"), json!(410));
    assert_eq!(text(&events[0], "/object/reason"), "Expired");
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut_off() {
    let cluster = Cluster::with(ServerOptions {
        history: HistoryLimits {
            age_min: Duration::ZERO,
            events_min: 10,
            events_max: 10,
            ..HistoryLimits::default()
        },
        ..ServerOptions::default()
    })
    .await;
    let (_, _, mut body) = match cluster
        .client
        .send(&Ask {
            path: format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=30"),
            ..Ask::default()
        })
        .await
    {
        Ok(answer) => answer,
        Err(e) => panic!("{e}"),
    };
    let api = cluster.server.api("test");
    let large = "x".repeat(64 * 1024);
    let written = tokio::task::spawn_blocking(move || {
        let config_maps = gr("", "configmaps");
        for i in 0..1_000 {
            let mut object = config_map(&format!("c{i}"), json!({}));
            object["metadata"]["namespace"] = json!("default");
            object["data"]["large"] = json!(large);
            if let Err(e) = api.create(config_maps, object) {
                panic!("{e}");
            }
        }
    });
    assert!(written.await.is_ok());
    let mut all = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            all.extend_from_slice(data);
        }
    }
    let text = String::from_utf8_lossy(&all);
    let last = text.lines().last().unwrap_or("");
    assert!(
        last.starts_with("{\"type\":\"ERROR\"") && last.contains("\"code\":410"),
        "{:.200}",
        last
    );
}

#[tokio::test]
async fn rows_in_a_stream_carry_their_columns_once() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, &pod("a")).await;
    cluster.create(PODS, &pod("b")).await;
    let events = cluster
        .ask(Ask {
            path: format!("{PODS}?watch=1&timeoutSeconds=1"),
            accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
            ..Ask::default()
        })
        .await
        .events();
    let columns: Vec<bool> = events
        .iter()
        .map(|e| at(e, "/object/columnDefinitions").is_array())
        .collect();
    assert_eq!(columns, [true, false]);
}

#[tokio::test]
async fn rows_of_a_streamed_list_end_with_a_marked_row() {
    let cluster = Cluster::start().await;
    cluster
        .create(CONFIG_MAPS, &config_map("a", json!({})))
        .await;
    let initial =
        "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let events = cluster
        .ask(Ask {
            path: format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1&{initial}"),
            accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
            ..Ask::default()
        })
        .await
        .events();
    assert_eq!(text(&events[1], "/type"), "BOOKMARK");
    let table = &events[1]["object"];
    assert_eq!(table["rows"][0]["cells"], json!(["", 0, "<unknown>"]));
    let revision = &table["metadata"]["resourceVersion"];
    assert_eq!(table["metadata"], json!({"resourceVersion": revision}));
    assert_eq!(
        table["rows"][0]["object"],
        json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {
                "resourceVersion": revision,
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        })
    );
    // The rows of kube-apiserver 1.36 for an object without fields.
    let events = cluster
        .ask(Ask {
            path: format!("{PODS}?watch=1&timeoutSeconds=1&{initial}"),
            accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
            ..Ask::default()
        })
        .await
        .events();
    let none = "<none>";
    assert_eq!(
        events[0]["object"]["rows"][0]["cells"],
        json!(["", "0/0", "", "0", "<unknown>", none, none, none, none])
    );
}

#[tokio::test]
async fn a_shutdown_ends_watches_at_once() {
    let cluster = Cluster::start().await;
    let client = cluster.client.clone();
    let watching = tokio::spawn(async move {
        client
            .ask(&Ask {
                path: format!("{PODS}?watch=1"),
                ..Ask::default()
            })
            .await
    });
    cluster.reaches("apiserver_longrunning_requests 1").await;
    cluster.server.shutdown().await;
    // A request that is aborted by the shutdown of the server returns an error.
    let reply = watching.await;
    assert!(
        matches!(reply, Ok(Ok(ref reply)) if reply.status == 200),
        "the stream ends as streams do: {reply:?}"
    );
}

#[tokio::test]
async fn options_that_make_no_watch_are_refused() {
    let cluster = Cluster::start().await;
    let cases = [
        ("sendInitialEvents=true", 422),
        ("resourceVersionMatch=NotOlderThan", 422),
        ("resourceVersion=abc", 400),
        ("fieldSelector=spec.color%3Dred", 400),
        ("timeoutSeconds=soon", 400),
    ];
    for (query, status) in cases {
        let reply = cluster.get(&format!("{PODS}?watch=1&{query}")).await;
        assert_eq!(reply.status, status, "{query}: {}", reply.text());
    }
}

/// API-61: with `drop=metadata.managedFields` every answer omits them, in each format and view; other targets and
/// clients without the parameter are not affected.
#[tokio::test]
async fn managed_fields_are_left_out_for_clients_that_ask_for_it() {
    const DROP: &str = ";drop=spec.unknown+metadata.managedFields";
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    const ROWS: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
    const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let cluster = Cluster::start().await;
    let start = cluster.server.revision();
    cluster.create(PODS, &pod("a")).await;
    let one = format!("{PODS}/a");
    let rows = format!("{PODS}?includeObject=Object");
    let watch = format!("{PODS}?watch=1&timeoutSeconds=1&resourceVersion={start}");
    for path in [&one, PODS, &rows, &watch] {
        for accept in [
            "application/json",
            "application/yaml",
            PROTOBUF,
            ROWS,
            METADATA,
        ] {
            for (parameter, expected) in
                [("", true), (";drop=metadata.labels", true), (DROP, false)]
            {
                let place = format!("{path} {accept}{parameter}");
                let ask = Ask {
                    path: path.to_owned(),
                    accept: format!("{accept}{parameter}"),
                    ..Ask::default()
                };
                let reply = cluster.ask(ask).await;
                assert_eq!(reply.status, 200, "{place}");
                // The value of the field, which has no other place in a pod.
                let body = String::from_utf8_lossy(&reply.body).into_owned();
                assert_eq!(body.contains("f:spec"), expected, "{place}: {body}");
                assert!(
                    body.contains("\"a\"") || accept == PROTOBUF || accept.ends_with("yaml"),
                    "{place}"
                );
            }
        }
    }
    // The rest of the object is the same.
    let mut whole = cluster.get(&one).await.json();
    whole["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    let ask = Ask {
        path: one.clone(),
        accept: format!("application/json{DROP}"),
        ..Ask::default()
    };
    assert_eq!(cluster.ask(ask).await.json(), whole);
    // Writes are answered so, too.
    let ask = Ask {
        method: "PATCH".to_owned(),
        path: one,
        content_type: "application/merge-patch+json".to_owned(),
        accept: format!("application/json{DROP}"),
        body: json!({"metadata": {"labels": {"x": "y"}}})
            .to_string()
            .into_bytes(),
        ..Ask::default()
    };
    let patched = cluster.ask(ask).await.json();
    assert_eq!(*at(&patched, "/metadata/labels/x"), "y");
    assert_eq!(*at(&patched, "/metadata/managedFields"), Value::Null);
}
