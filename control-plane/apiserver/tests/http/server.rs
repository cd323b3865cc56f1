//! The HTTP server: authentication, limits, and the information about the server itself.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn only_health_and_version_are_open_to_all() {
    let cluster = Cluster::start().await;
    let ask = |path: &str, token: &str| Ask {
        path: path.to_owned(),
        token: Some(token.to_owned()),
        ..Ask::default()
    };
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(cluster.ask(ask(path, "")).await.status, 200, "{path}");
        assert_eq!(cluster.ask(ask(path, "bad")).await.status, 401, "{path}");
    }
    for path in ["/api", "/apis", "/metrics", "/openapi/v3", PODS, "/nothing"] {
        let reply = cluster.ask(ask(path, "")).await;
        assert_eq!(reply.status, 401, "{path}");
        assert_eq!(text(&reply.json(), "/reason"), "Unauthorized", "{path}");
    }
    assert_eq!(cluster.get("/nothing").await.status, 404);
}

#[tokio::test]
async fn bodies_and_watches_have_limits() {
    let cluster = Cluster::with(ServerOptions {
        max_watches: 1,
        ..ServerOptions::default()
    })
    .await;
    let mut large = config_map("a", json!({}));
    large["data"]["a"] = json!("x".repeat(3 * 1024 * 1024));
    let reply = cluster.post(CONFIG_MAPS, &large).await;
    assert_eq!(reply.status, 413, "{}", reply.text());
    assert_eq!(text(&reply.json(), "/reason"), "RequestEntityTooLarge");

    let path = format!("{PODS}?watch=1&timeoutSeconds=1");
    let (first, second) = tokio::join!(cluster.get(&path), async {
        cluster.reaches("apiserver_longrunning_requests 1").await;
        cluster.get(&path).await
    });
    assert_eq!((first.status, second.status), (200, 429));
    assert_eq!(second.header("retry-after"), "1");
    assert_eq!(text(&second.json(), "/reason"), "TooManyRequests");
    assert_eq!(
        cluster.get(&path).await.status,
        200,
        "the permit comes back"
    );
}

#[tokio::test]
async fn malformed_requests_do_not_affect_other_requests() {
    let cluster = Cluster::start().await;
    for nonsense in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0x16, 0x03, 0x01, 0xff, 0xff, 0x00],
    ] {
        let Ok(mut stream) = tokio::net::TcpStream::connect(cluster.server.addr()).await else {
            panic!("the server accepts");
        };
        assert!(stream.write_all(nonsense).await.is_ok());
    }
    for path in [
        "/api/v1/namespaces/%ff/pods",
        "/api/v1/pods?labelSelector=%ff",
    ] {
        assert!(
            matches!(cluster.get(path).await.status, 400 | 404),
            "{path}"
        );
    }
    for body in [
        "[]",
        "null",
        "3",
        "\"x\"",
        "{\"metadata\":3}",
        "{\"metadata\":{\"labels\":[]}}",
    ] {
        let reply = cluster.post(PODS, &json!(body)).await;
        assert!(
            matches!(reply.status, 400 | 422),
            "{body}: {}",
            reply.text()
        );
    }
    assert_eq!(cluster.get("/healthz").await.text(), "ok");
}

/// The lines of an indented text without the commas between them, in order of the alphabet.
fn lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.trim_end_matches(','));
    let mut lines: Vec<&str> = lines.collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn people_get_indented_json() {
    let cluster = Cluster::start().await;
    for i in 0..3 {
        let mut large = config_map(&format!("c{i}"), json!({}));
        large["data"] = json!({"large": "x".repeat(300_000)});
        cluster.create(CONFIG_MAPS, &large).await;
    }
    let namespace = "/api/v1/namespaces/default";
    let cases = [
        // (path, Accept, User-Agent, whether the answer is indented)
        (namespace, "", "", false),
        (namespace, "", "kubectl/v1.36.2", false),
        (namespace, "", "curl/8.5.0", true),
        (namespace, "", "Wget/1.21", true),
        (
            namespace,
            "text/html,*/*;q=0.8",
            "Mozilla/5.0 (X11; Linux)",
            true,
        ),
        (namespace, "application/json;pretty=1", "", true),
        (namespace, "application/json;pretty=0", "", false),
        (
            namespace,
            "application/json;as=Table;v=v1;g=meta.k8s.io;pretty=1",
            "",
            true,
        ),
        ("/api/v1/namespaces/default?pretty=true", "", "", true),
        ("/api/v1/namespaces/default?pretty=1", "", "", true),
        (
            "/api/v1/namespaces/default?pretty=false",
            "",
            "curl/8.5.0",
            false,
        ),
        (
            "/api/v1/namespaces/default?pretty=yes",
            "",
            "curl/8.5.0",
            false,
        ),
        ("/api/v1/namespaces/default?pretty=", "", "curl/8.5.0", true),
        ("/api/v1/namespaces/absent?pretty=true", "", "", true),
        (
            "/api/v1/namespaces/default/configmaps?pretty=true",
            "",
            "",
            true,
        ),
        ("/apis?pretty=true", "", "", true),
        ("/apis/apps/v1?pretty=true", "", "", true),
        ("/openapi/v3?pretty=true", "", "curl/8.5.0", false),
        ("/version", "", "", true),
        ("/", "", "", true),
    ];
    for (path, accept, agent, is_indented) in cases {
        let headers = match agent {
            "" => Vec::new(),
            agent => vec![("user-agent".to_owned(), agent.to_owned())],
        };
        let reply = cluster
            .ask(Ask {
                path: path.to_owned(),
                accept: accept.to_owned(),
                headers,
                ..Ask::default()
            })
            .await;
        let text = reply.text();
        let is = text.starts_with("{\n  \"");
        assert_eq!(is, is_indented, "{path} {accept} {agent}");
        if is_indented {
            // The fields of the parsed object have another order.
            let expect = format!("{:#}", reply.json());
            assert_eq!(lines(&text), lines(&expect), "{path} {accept}");
        }
    }
    let watch = cluster
        .get(&format!(
            "{PODS}?watch=1&timeoutSeconds=1&pretty=true&resourceVersion=0"
        ))
        .await;
    assert!(!watch.text().contains("\n  "), "{}", watch.text());
}

/// The hashes equal kube-apiserver 1.36's.
#[tokio::test]
async fn discovery_states_the_hash_of_the_version_in_which_objects_are_stored() {
    let cluster = Cluster::start().await;
    let cases = [
        ("/api/v1", "pods", json!("xPOwRZ+Yhw8=")),
        ("/api/v1", "nodes", json!("XwShjMxG9Fs=")),
        ("/api/v1", "events", json!("r2yiGXH7wu8=")),
        ("/apis/events.k8s.io/v1", "events", json!("r2yiGXH7wu8=")),
        ("/api/v1", "pods/status", Value::Null),
        ("/api/v1", "bindings", Value::Null),
        ("/apis/apps/v1", "deployments", json!("8aSe+NMegvE=")),
        ("/apis/batch/v1", "cronjobs", json!("sd5LIXh4Fjs=")),
        (
            "/apis/autoscaling/v1",
            "horizontalpodautoscalers",
            json!("qwQve8ut294="),
        ),
    ];
    for (path, name, hash) in cases {
        let list = cluster.get(path).await.json();
        let resources = list["resources"].as_array().cloned().unwrap_or_default();
        let found = resources.iter().find(|r| r["name"] == name);
        let found = found.map(|r| r["storageVersionHash"].clone());
        assert_eq!(found, Some(hash), "{path} {name}");
    }
}

#[tokio::test]
async fn discovery_and_documents_agree() {
    let cluster = Cluster::start().await;
    let groups = cluster.get("/apis").await.json();
    let mut versions = vec!["/api/v1".to_owned()];
    for group in at(&groups, "/groups").as_array().into_iter().flatten() {
        for version in at(group, "/versions").as_array().into_iter().flatten() {
            versions.push(format!("/apis/{}", text(version, "/groupVersion")));
        }
    }
    assert!(versions.len() > 10, "{versions:?}");
    let index = cluster.get("/openapi/v3").await.json();
    for version in &versions {
        let resources = cluster.get(version).await;
        assert_eq!(resources.status, 200, "{version}");
        assert_eq!(text(&resources.json(), "/kind"), "APIResourceList");
        let key = version.trim_start_matches('/');
        let url = text(&index["paths"][key], "/serverRelativeURL").to_owned();
        let document = cluster.get(&url).await;
        assert_eq!(document.status, 200, "{url}");
        assert_eq!(text(&document.json(), "/openapi"), "3.0.0", "{url}");
    }
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for path in ["/api", "/apis"] {
        let reply = cluster
            .ask(Ask {
                path: path.to_owned(),
                accept: format!("{aggregated},application/json"),
                ..Ask::default()
            })
            .await;
        assert_eq!(reply.header("content-type"), aggregated, "{path}");
        assert_eq!(text(&reply.json(), "/kind"), "APIGroupDiscoveryList");
    }
    assert_eq!(cluster.get("/apis/nothing").await.status, 404);
    let group = cluster.get("/apis/apps").await.json();
    assert_eq!(text(&group, "/preferredVersion/groupVersion"), "apps/v1");
}

#[tokio::test]
async fn every_stored_resource_can_be_listed_watched_and_shown_as_rows() {
    for release in berth_api::Release::ALL {
        let api = berth_objects::releases::ApiRelease::of(release);
        let cluster = Cluster::with(ServerOptions {
            api,
            ..ServerOptions::default()
        })
        .await;
        list_and_show_all(&cluster, api).await;
    }
}

async fn list_and_show_all(cluster: &Cluster, api: berth_objects::releases::ApiRelease) {
    let catalog = berth_objects::catalog::Catalog::of_release(api);
    for resource in catalog.resources() {
        if resource.store.is_none() {
            continue;
        }
        let version = resource.api_version();
        let root = if version == "v1" { "/api" } else { "/apis" };
        let path = format!("{root}/{version}/{}", resource.resource.resource);
        let list = cluster.get(&path).await;
        assert_eq!(list.status, 200, "{path}");
        assert_eq!(text(&list.json(), "/kind"), resource.list_kind, "{path}");
        let table = cluster
            .ask(Ask {
                path: path.clone(),
                accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
                ..Ask::default()
            })
            .await;
        assert_eq!(text(&table.json(), "/kind"), "Table", "{path}");
    }
}

#[tokio::test]
async fn the_kubeconfig_is_private_and_written_in_one_step() {
    let cluster = Cluster::start().await;
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let directory = scratch.path();
    let path = directory.join("config");
    assert!(cluster.server.write_kubeconfig(&path, &[]).is_ok());
    let mode = std::fs::metadata(&path).map(|m| m.permissions().mode() & 0o777);
    assert_eq!(mode.ok(), Some(0o600));
    let config = std::fs::read_to_string(&path).unwrap_or_default();
    for part in [
        "current-context: berth",
        &cluster.server.url(),
        cluster.server.admin_token(),
    ] {
        assert!(config.contains(part), "{part}");
    }
    let left = std::fs::read_dir(directory).map(Iterator::count);
    assert_eq!(left.ok(), Some(1), "nothing is left beside it");
    let error = cluster
        .server
        .write_kubeconfig(Path::new("/nonexistent/config"), &[])
        .err()
        .map(|e| e.to_string())
        .unwrap_or_default();
    assert!(error.contains("/nonexistent/config"), "{error}");
    assert!(cluster.server.write_kubeconfig(directory, &[]).is_err());
}

#[tokio::test]
async fn a_busy_port_is_a_clear_error() {
    let cluster = Cluster::start().await;
    let address = cluster.server.addr();
    let second = Server::start(ServerOptions {
        listen: address,
        ..ServerOptions::default()
    })
    .await;
    let error = second.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(
        error.contains(&address.to_string()) && error.contains("choose another address"),
        "{error}"
    );
}

#[tokio::test]
async fn metrics_count_objects_and_requests() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, &pod("p")).await;
    let metrics = cluster.get("/metrics").await.text();
    for line in [
        "apiserver_storage_objects{resource=\"pods\"} 1",
        "apiserver_storage_objects{resource=\"namespaces\"} 4",
        "apiserver_request_total{code=\"201\",verb=\"POST\"} 1",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn a_rejection_reaches_a_client_that_is_still_sending() {
    let cluster = Cluster::start().await;
    let large = vec![b'x'; 4 * 1024 * 1024];
    let small = b"{}".to_vec();
    // (method, path, token, body, code)
    let cases = [
        ("POST", PODS, Some("bad"), &small, 401),
        ("POST", PODS, Some("bad"), &large, 401),
        ("PUT", PODS, None, &small, 405),
        (
            "POST",
            "/api/v1/namespaces/default/widgets",
            None,
            &small,
            404,
        ),
        ("POST", PODS, None, &large, 413),
    ];
    let clients = [cluster.client.clone(), cluster.client.clone().over_http2()];
    for (client, protocol) in clients.iter().zip(["HTTP/1.1", "HTTP/2"]) {
        for (method, path, token, body, code) in cases {
            let ask = Ask {
                method: method.to_owned(),
                path: path.to_owned(),
                content_type: "application/json".to_owned(),
                body: body.clone(),
                token: token.map(str::to_owned),
                ..Ask::default()
            };
            let case = format!("{method} {path}, {} bytes, {protocol}", body.len());
            match client.ask(&ask).await {
                Ok(reply) => {
                    assert_eq!(reply.status, code, "{case}");
                    assert_eq!(reply.json()["code"], code, "{case}");
                }
                Err(error) => panic!("{case}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn nothing_can_be_asked_of_the_containers_of_a_simulated_pod() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, &pod("a")).await;
    for sub in ["log", "exec", "attach", "portforward"] {
        let reply = cluster.get(&format!("{PODS}/a/{sub}")).await;
        assert_eq!(reply.status, 501, "{sub}");
        assert_eq!(
            text(&reply.json(), "/message"),
            format!(
                "pods/{sub} is not served: pods of this cluster are simulated, no container runs"
            )
        );
        let reply = cluster.get(&format!("{PODS}/b/{sub}")).await;
        assert_eq!(text(&reply.json(), "/message"), "pods \"b\" not found");
    }
}

/// Go's `mime` package rejects the `@` of the media type that clients accept; the answer has a point in its place.
#[tokio::test]
async fn the_second_openapi_is_answered_in_protobuf() {
    let cluster = Cluster::start().await;
    let reply = cluster
        .ask(Ask {
            path: "/openapi/v2".to_owned(),
            accept: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf".to_owned(),
            ..Ask::default()
        })
        .await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (
            200,
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        )
    );
}
