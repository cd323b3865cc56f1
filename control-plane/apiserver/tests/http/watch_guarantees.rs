//! The guarantees that etcd names for watches, checked over the recorded history of concurrent writers: events are
//! ordered, unique, reliable and atomic, and watches are resumable and bookmarkable.
//!
//! Writers record the answer to each write. Watchers record each event and bookmark that they receive. The validator
//! compares both, without access to the server.

use super::*;
use http_body_util::BodyExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const WRITERS: u64 = 8;
const WRITES: usize = 60;
const NAMES: u64 = 10;
const WATCHERS: u64 = 6;

/// The events of a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Received {
    Event {
        revision: u64,
        kind: String,
        name: String,
        writer: String,
    },
    /// Everything up to this revision has been sent.
    Bookmark(u64),
    /// The connection was closed, and the watch continues after this revision.
    Resumed(u64),
}

/// An acknowledged write: its revision, ADDED, MODIFIED or DELETED, the name, and a value that only it has.
type Write = (u64, &'static str, String, String);

/// Compares the events of a watcher, from `start` on, with the writes.
///
/// # Errors
/// The name of the guarantee that does not hold, and where.
fn validate(writes: &[Write], start: u64, received: &[Received]) -> Result<(), String> {
    let written: BTreeMap<u64, &Write> = writes.iter().map(|w| (w.0, w)).collect();
    let mut seen = BTreeSet::new();
    let mut last = start;
    // The revision up to which the watcher must be complete.
    let mut complete = start;
    for item in received {
        match item {
            Received::Event {
                revision,
                kind,
                name,
                writer,
            } => {
                if !seen.insert(*revision) {
                    return Err(format!("unique: revision {revision} came twice"));
                }
                if *revision <= last {
                    return Err(format!("ordered: {revision} came after {last}"));
                }
                if *revision <= complete {
                    return Err(format!("bookmarkable: {revision} came after {complete}"));
                }
                last = *revision;
                match written.get(revision) {
                    Some((_, k, n, w)) if k == kind && n == name && w == writer => {}
                    other => {
                        return Err(format!("atomic: {item:?} was written as {other:?}"));
                    }
                }
            }
            Received::Bookmark(revision) | Received::Resumed(revision) => {
                if *revision < complete {
                    return Err(format!("bookmarkable: {revision} came after {complete}"));
                }
                let guarantee = match item {
                    Received::Bookmark(_) => "bookmarkable",
                    _ => "resumable",
                };
                if let Some((missing, _)) = written
                    .range(start + 1..)
                    .take_while(|(written, _)| *written <= revision)
                    .find(|(revision, _)| !seen.contains(revision))
                {
                    return Err(format!(
                        "{guarantee}: {missing} is missing before {revision}"
                    ));
                }
                complete = *revision;
                last = last.max(*revision);
            }
        }
    }
    let missing = written
        .range(start + 1..)
        .find(|(revision, _)| !seen.contains(revision));
    match missing {
        Some((revision, write)) => Err(format!("reliable: {revision} {write:?} is missing")),
        None => Ok(()),
    }
}

#[test]
fn the_validator_finds_each_violation() {
    let write =
        |revision: u64, kind, name: &str| (revision, kind, name.to_owned(), revision.to_string());
    let writes = [
        write(5, "ADDED", "a"),
        write(7, "MODIFIED", "a"),
        write(8, "DELETED", "a"),
    ];
    let event = |revision: u64, kind: &str| Received::Event {
        revision,
        kind: kind.to_owned(),
        name: "a".to_owned(),
        writer: revision.to_string(),
    };
    let (added, modified, deleted) = (event(5, "ADDED"), event(7, "MODIFIED"), event(8, "DELETED"));
    let all = [added.clone(), modified.clone(), deleted.clone()];
    let cases: [(&str, Vec<Received>); 9] = [
        ("", all.to_vec()),
        (
            "",
            vec![
                Received::Bookmark(4),
                added.clone(),
                Received::Bookmark(6),
                modified.clone(),
                Received::Resumed(7),
                deleted.clone(),
                Received::Bookmark(9),
            ],
        ),
        ("reliable", vec![added.clone(), deleted.clone()]),
        (
            "ordered",
            vec![modified.clone(), added.clone(), deleted.clone()],
        ),
        ("unique", vec![added.clone(), added.clone()]),
        (
            "atomic",
            vec![added.clone(), event(7, "ADDED"), deleted.clone()],
        ),
        (
            "bookmarkable",
            vec![
                added.clone(),
                Received::Bookmark(7),
                modified.clone(),
                deleted.clone(),
            ],
        ),
        (
            "bookmarkable",
            vec![added.clone(), Received::Bookmark(6), Received::Bookmark(5)],
        ),
        ("resumable", vec![added, Received::Resumed(7), deleted]),
    ];
    for (guarantee, received) in cases {
        let result = validate(&writes, 4, &received);
        let found = result.err().unwrap_or_default();
        let name = found.split(':').next().unwrap_or_default();
        assert_eq!(name, guarantee, "{received:?}: {found}");
    }
}

fn number(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion")
        .parse()
        .unwrap_or(0)
}

/// Creates, patches and deletes objects with names that other writers use, too.
async fn writer(cluster: Arc<Cluster>, seed: u64) -> Vec<Write> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut writes = Vec::new();
    for i in 0..WRITES {
        let name = format!("n{}", random.u64(..NAMES));
        let path = format!("{CONFIG_MAPS}/{name}");
        let value = format!("{seed}-{i}");
        let (kind, reply) = match random.u8(..4) {
            0 | 1 => {
                let mut object = config_map(&name, json!({}));
                object["data"] = json!({"writer": value});
                ("ADDED", cluster.post(CONFIG_MAPS, &object).await)
            }
            2 => {
                let patch = json!({"data": {"writer": value}});
                ("MODIFIED", cluster.merge(&path, &patch).await)
            }
            _ => ("DELETED", cluster.delete(&path, &Value::Null).await),
        };
        match (reply.status, kind) {
            (404 | 409, _) => {}
            // The answer to a deletion does not have its revision; a patch before it makes it known.
            (200, "DELETED") => writes.push((0, kind, name, String::new())),
            (200 | 201, _) => writes.push((number(&reply.json()), kind, name, value)),
            _ => panic!("{kind} {name}: {}", reply.text()),
        }
    }
    writes
}

/// Watches after `start` until it has received the deletion of the object `end`. Now and then it closes the connection
/// and continues after the newest revision that it knows.
async fn watcher(cluster: Arc<Cluster>, start: u64, seed: u64) -> Vec<Received> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut received = Vec::new();
    let mut after = start;
    loop {
        let path = format!(
            "{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={after}&timeoutSeconds=50"
        );
        let ask = Ask {
            path,
            ..Ask::default()
        };
        let Ok((_, _, mut body)) = cluster.client.send(&ask).await else {
            panic!("the watch is not answered");
        };
        // The first watcher never closes its connection.
        let mut left = match seed {
            0 => usize::MAX,
            _ => random.usize(1..120),
        };
        let mut line = Vec::new();
        'connection: while let Some(Ok(frame)) = body.frame().await {
            for byte in frame.into_data().unwrap_or_default() {
                if byte != b'\n' {
                    line.push(byte);
                    continue;
                }
                let event: Value = serde_json::from_slice(&line).unwrap_or_default();
                line.clear();
                let object = at(&event, "/object");
                after = number(object);
                received.push(match text(&event, "/type") {
                    "BOOKMARK" => Received::Bookmark(after),
                    "ERROR" => panic!("{event}"),
                    kind => Received::Event {
                        revision: after,
                        kind: kind.to_owned(),
                        name: text(object, "/metadata/name").to_owned(),
                        writer: text(object, "/data/writer").to_owned(),
                    },
                });
                if text(&event, "/type") == "DELETED" && text(object, "/metadata/name") == "end" {
                    return received;
                }
                left -= 1;
                if left == 0 {
                    break 'connection;
                }
            }
        }
        received.push(Received::Resumed(after));
    }
}

/// Deletions are acknowledged without their revision: the deletions of the first watcher are used, and each must
/// correspond to an acknowledged deletion of that name.
fn with_deletions(writes: Vec<Write>, received: &[Received]) -> Vec<Write> {
    let mut known: Vec<Write> = writes.iter().filter(|w| w.0 > 0).cloned().collect();
    let mut unknown: Vec<&str> = writes
        .iter()
        .filter(|w| w.0 == 0)
        .map(|w| w.2.as_str())
        .collect();
    for item in received {
        if let Received::Event {
            revision,
            kind,
            name,
            writer,
        } = item
            && kind == "DELETED"
        {
            let place = unknown.iter().position(|n| n == name);
            let Some(place) = place else {
                panic!("{item:?} was not acknowledged");
            };
            unknown.swap_remove(place);
            known.push((*revision, "DELETED", name.clone(), writer.clone()));
        }
    }
    assert!(
        unknown.is_empty(),
        "deletions without an event: {unknown:?}"
    );
    known
}

async fn guarantees_hold(options: ServerOptions) {
    let cluster = Arc::new(Cluster::with(options).await);
    let start = cluster.server.revision();
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|seed| tokio::spawn(watcher(Arc::clone(&cluster), start, seed)))
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| tokio::spawn(writer(Arc::clone(&cluster), seed)))
        .collect();
    let mut writes = Vec::new();
    for task in writers {
        writes.extend(task.await.unwrap_or_else(|e| panic!("{e}")));
    }
    let end = cluster
        .create(CONFIG_MAPS, &config_map("end", json!({})))
        .await;
    writes.push((number(&end), "ADDED", "end".to_owned(), String::new()));
    cluster
        .delete(&format!("{CONFIG_MAPS}/end"), &Value::Null)
        .await;
    writes.push((0, "DELETED", "end".to_owned(), String::new()));
    let mut all = Vec::new();
    for task in watchers {
        all.push(task.await.unwrap_or_else(|e| panic!("{e}")));
    }
    let writes = with_deletions(writes, &all[0]);
    for (seed, received) in all.iter().enumerate() {
        if let Err(violation) = validate(&writes, start, received) {
            panic!("watcher {seed}: {violation}");
        }
    }
}

fn often() -> ServerOptions {
    ServerOptions {
        bookmark_interval: Duration::from_millis(5),
        ..ServerOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watches_keep_their_guarantees_in_memory() {
    guarantees_hold(often()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watches_keep_their_guarantees_with_a_data_directory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    guarantees_hold(ServerOptions {
        data_dir: Some(dir.path().to_owned()),
        ..often()
    })
    .await;
}
