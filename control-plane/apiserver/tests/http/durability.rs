//! A data directory: its contents after a restart, and the reasons why it cannot be used.

use super::*;
use berth_apiserver::StartError;
use std::path::Path;
use tempfile::TempDir;

/// A directory that is removed with the test.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn options(&self) -> ServerOptions {
        ServerOptions {
            data_dir: Some(self.path().to_owned()),
            ..ServerOptions::default()
        }
    }
}

async fn refused(dir: &Path) -> String {
    let options = ServerOptions {
        data_dir: Some(dir.to_owned()),
        ..ServerOptions::default()
    };
    match Server::start(options).await {
        Err(StartError::DataDir(error)) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{} was accepted", dir.display()),
    }
}

#[tokio::test]
async fn a_restart_keeps_objects_revisions_watches_and_credentials() {
    let scratch = Scratch::new();
    let cluster = Cluster::with(scratch.options()).await;
    let (token, ca) = (
        cluster.server.admin_token().to_owned(),
        cluster.server.ca_pem().to_owned(),
    );
    let a = cluster
        .create(CONFIG_MAPS, &config_map("a", json!({"l": "x"})))
        .await;
    let created = text(&a, "/metadata/resourceVersion").to_owned();
    cluster
        .create(CONFIG_MAPS, &config_map("b", json!({"l": "x"})))
        .await;
    cluster
        .merge(
            &format!("{CONFIG_MAPS}/b"),
            &json!({"metadata": {"labels": {"l": "y"}}}),
        )
        .await;
    cluster
        .delete(&format!("{CONFIG_MAPS}/a"), &Value::Null)
        .await;
    let before = cluster.get(CONFIG_MAPS).await.json();
    cluster.server.shutdown().await;

    let cluster = Cluster::with(scratch.options()).await;
    assert_eq!(cluster.server.admin_token(), token);
    assert_eq!(cluster.server.ca_pem(), ca);
    let after = cluster.get(CONFIG_MAPS).await.json();
    let number = |object: &Value| {
        let revision = text(object, "/metadata/resourceVersion");
        revision.parse::<u64>().ok()
    };
    assert_eq!(after["items"], before["items"]);
    // The server has another port, which the Service kubernetes shows.
    assert!(number(&after) >= number(&before), "{after} {before}");
    // A watch continues from its revision, also with a selector, which reads previous versions.
    let watch = format!(
        "{CONFIG_MAPS}?watch=1&labelSelector=l%3Dx&resourceVersion={created}&timeoutSeconds=1"
    );
    let events = cluster.get(&watch).await.events();
    let seen: Vec<_> = events
        .iter()
        .map(|e| format!("{} {}", text(e, "/type"), text(e, "/object/metadata/name")))
        .collect();
    assert_eq!(seen, ["ADDED b", "DELETED b", "DELETED a"]);
    // New revisions continue the previous ones.
    let next = cluster
        .create(CONFIG_MAPS, &config_map("c", json!({})))
        .await;
    assert!(number(&next) > number(&before), "{next} {before}");
    // The built-in objects are not created again.
    let namespaces = cluster.get("/api/v1/namespaces").await.json();
    assert_eq!(
        names(&namespaces),
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn a_data_directory_that_cannot_be_used_is_named_with_the_reason() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let cluster = Cluster::with(scratch.options()).await;
    let in_use = refused(dir).await;
    assert!(in_use.contains("is in use by another process"), "{in_use}");
    cluster.server.shutdown().await;

    let file = dir.join("berth.redb");
    let bytes = std::fs::read(&file).unwrap_or_default();
    for (what, contents) in [
        ("some text", b"this file is not a database".repeat(200)),
        ("half of it", bytes[..bytes.len() / 2].to_vec()),
        ("a damaged header", [&[7; 512], &bytes[512..]].concat()),
    ] {
        assert!(std::fs::write(&file, contents).is_ok());
        let damaged = refused(dir).await;
        assert!(damaged.contains("is damaged"), "{what}: {damaged}");
        assert!(
            damaged.contains(&dir.display().to_string()),
            "{what}: {damaged}"
        );
    }
    // A file where the directory should be.
    let not_a_directory = refused(&file).await;
    assert!(
        not_a_directory.contains("cannot use the data directory"),
        "{not_a_directory}"
    );
}

#[tokio::test]
async fn a_database_that_was_created_halfway_is_created_again() {
    let scratch = Scratch::new();
    assert!(std::fs::write(scratch.path().join("berth.redb.new"), [0; 4096]).is_ok());
    let cluster = Cluster::with(scratch.options()).await;
    cluster
        .create(CONFIG_MAPS, &config_map("a", json!({})))
        .await;
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn a_data_directory_of_a_newer_format_is_refused() {
    let scratch = Scratch::new();
    Cluster::with(scratch.options())
        .await
        .server
        .shutdown()
        .await;
    let Ok(data) = berth_apiserver::storage::DataDir::open(scratch.path()) else {
        panic!("it is not in use");
    };
    assert!(data.set("format", &2_u64.to_le_bytes()).is_ok());
    drop(data);
    let newer = refused(scratch.path()).await;
    assert!(
        newer.contains("has format 2, but this version of Berth reads formats up to 1"),
        "{newer}"
    );
}

#[tokio::test]
async fn an_empty_database_file_is_not_an_empty_cluster() {
    let scratch = Scratch::new();
    let cluster = Cluster::with(scratch.options()).await;
    cluster.server.shutdown().await;
    let file = scratch.path().join("berth.redb");
    std::fs::write(&file, b"").expect("it can be written");
    let error = refused(scratch.path()).await;
    assert!(
        error.contains("is damaged: the file berth.redb is empty; restore it from a backup"),
        "{error}"
    );
    assert_eq!(std::fs::metadata(&file).map(|m| m.len()).ok(), Some(0));
}
