//! The store in memory. The tests with a disk are in `disk`.

mod disk;

use super::*;
use serde_json::json;

const KIND: usize = 0;

fn store(limits: HistoryLimits) -> ObjectStore {
    ObjectStore::new(2, limits)
}

fn object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"x": 1}})
}

fn create(store: &ObjectStore, key: &str) -> u64 {
    match store.create(KIND, key, object(key)) {
        Ok(version) => version.revision(),
        Err(e) => panic!("create {key}: {e}"),
    }
}

fn keys(store: &ObjectStore, query: &ListQuery<'_>) -> (Vec<String>, u64) {
    match store.list(KIND, query) {
        Ok(page) => (
            page.items
                .iter()
                .map(|v| {
                    v.object()["metadata"]["name"]
                        .as_str()
                        .unwrap_or("")
                        .to_owned()
                })
                .collect(),
            page.revision,
        ),
        Err(e) => panic!("list: {e}"),
    }
}

#[test]
fn writes_need_the_version_that_they_read() {
    let store = store(HistoryLimits::default());
    let first = create(&store, "a");
    assert_eq!(
        store.create(KIND, "a", object("a")).err(),
        Some(StoreError::Exists)
    );
    let second = store
        .replace(KIND, "a", first, object("a"))
        .map(|v| v.revision());
    assert_eq!(second, Ok(first + 1));
    assert_eq!(
        store.replace(KIND, "a", first, object("a")).err(),
        Some(StoreError::Modified)
    );
    assert_eq!(
        store.delete(KIND, "a", first, object("a")).err(),
        Some(StoreError::Modified)
    );
    let gone = store.delete(KIND, "a", first + 1, object("a"));
    assert_eq!(
        gone.map(|v| v.object()["metadata"]["resourceVersion"].clone()),
        Ok(json!((first + 2).to_string()))
    );
    assert_eq!(
        store.replace(KIND, "a", first + 1, object("a")).err(),
        Some(StoreError::NotFound)
    );
    assert_eq!(
        store.revision(),
        first + 2,
        "refused writes draw no revision"
    );
}

#[test]
fn a_list_of_an_earlier_revision_shows_what_was_there() {
    let store = store(HistoryLimits::default());
    create(&store, "ns/a");
    let b = create(&store, "ns/b");
    let then = store.revision();
    create(&store, "ns/aa");
    assert!(store.delete(KIND, "ns/b", b, object("ns/b")).is_ok());
    create(&store, "other/z");
    let at = |at, after, limit| {
        keys(
            &store,
            &ListQuery {
                prefix: "ns/",
                after,
                limit,
                at,
                filter: None,
            },
        )
    };
    assert_eq!(at(None, None, None).0, ["ns/a", "ns/aa"]);
    assert_eq!(
        at(Some(then), None, None),
        (vec!["ns/a".into(), "ns/b".into()], then)
    );
    assert_eq!(at(Some(then), Some("ns/a"), None).0, ["ns/b"]);
    assert_eq!(at(Some(then), None, Some(1)).0, ["ns/a"]);
    assert_eq!(
        store
            .list(
                KIND,
                &ListQuery {
                    at: Some(99),
                    ..ListQuery::default()
                }
            )
            .err(),
        Some(StoreError::Future {
            requested: 99,
            current: store.revision()
        })
    );
}

#[test]
fn pages_state_where_to_go_on_and_what_remains() {
    let store = store(HistoryLimits::default());
    for key in ["a", "b", "c"] {
        create(&store, key);
    }
    let page = |after, limit, filter| {
        store.list(
            KIND,
            &ListQuery {
                after,
                limit,
                filter,
                ..ListQuery::default()
            },
        )
    };
    let first = page(None, Some(2), None).unwrap_or_default();
    assert_eq!(
        (
            first.items.len(),
            first.more_after.as_deref(),
            first.remaining
        ),
        (2, Some("b"), Some(1))
    );
    let last = page(Some("b"), Some(2), None).unwrap_or_default();
    assert_eq!((last.items.len(), last.more_after), (1, None));
    let not_b = |version: &ObjectVersion| version.object()["metadata"]["name"] != "b";
    let filtered = page(None, Some(1), Some(&not_b)).unwrap_or_default();
    assert_eq!(
        (filtered.more_after.as_deref(), filtered.remaining),
        (Some("a"), None)
    );
}

#[test]
fn a_cursor_reads_every_change_after_its_revision() {
    let store = store(HistoryLimits::default());
    let a = create(&store, "a");
    let b = create(&store, "b");
    let Ok(mut cursor) = store.watch_after(KIND, a) else {
        panic!("the history holds revision {a}");
    };
    let read = |cursor: &mut Cursor| {
        cursor.read(10).map(|(events, complete)| {
            let events: Vec<_> = events.iter().map(|e| (e.kind, e.revision())).collect();
            (events, complete)
        })
    };
    assert_eq!(read(&mut cursor), Ok((vec![(EventKind::Created, b)], None)));
    assert_eq!(read(&mut cursor), Ok((vec![], Some(b))));
    assert!(store.delete(KIND, "a", a, object("a")).is_ok());
    assert_eq!(
        read(&mut cursor),
        Ok((vec![(EventKind::Deleted, b + 1)], None))
    );
    let Ok((items, revision, mut cursor)) = store.watch_now(KIND, "") else {
        panic!("the kind exists");
    };
    assert_eq!((items.len(), revision), (1, b + 1));
    assert_eq!(read(&mut cursor), Ok((vec![], Some(b + 1))));
}

#[test]
fn history_is_bounded_and_states_when_it_is_gone() {
    let store = store(HistoryLimits {
        age_min: Duration::from_secs(3600),
        events_min: 1,
        events_max: 3,
        ..HistoryLimits::default()
    });
    let first = create(&store, "k0");
    let Ok(mut slow) = store.watch_after(KIND, first) else {
        panic!("the history holds revision {first}");
    };
    for i in 1..10 {
        create(&store, &format!("k{i}"));
    }
    let oldest = store.revision() - 3;
    assert_eq!(slow.read(10).err(), Some(Lost { oldest }));
    let expired = StoreError::Expired {
        requested: first,
        oldest,
    };
    assert_eq!(store.watch_after(KIND, first).err(), Some(expired.clone()));
    let query = ListQuery {
        at: Some(first),
        ..ListQuery::default()
    };
    assert_eq!(store.list(KIND, &query).err(), Some(expired));
    assert!(store.watch_after(KIND, oldest).is_ok());
}

#[tokio::test]
async fn waiting_for_a_revision_ends_when_it_is_written_or_patience_does() {
    let store = Arc::new(store(HistoryLimits::default()));
    let next = store.revision() + 1;
    assert_eq!(
        store.reached(next, Duration::from_millis(10)).await,
        Err(StoreError::Future {
            requested: next,
            current: next - 1
        })
    );
    let writer = Arc::clone(&store);
    let waiting = store.reached(next, Duration::from_secs(60));
    let (waited, _) = tokio::join!(waiting, async move {
        create(&writer, "a");
    });
    assert_eq!(waited, Ok(()));
}

#[test]
fn the_body_of_a_version_has_no_kind_and_begins_with_metadata() {
    let version = ObjectVersion::unstored(object("a"));
    assert_eq!(
        version.body().as_ref(),
        br#"{"metadata":{"name":"a"},"spec":{"x":1}}"#
    );
}

#[test]
fn compaction_drops_changes_that_are_old() {
    let store = store(HistoryLimits {
        age_min: Duration::ZERO,
        events_min: 3,
        events_max: 100,
        ..HistoryLimits::default()
    });
    for i in 0..50 {
        create(&store, &format!("k{i}"));
    }
    let newest = store.revision();
    assert!(
        store.watch_after(KIND, 1).is_ok(),
        "writes drop nothing yet"
    );
    store.compact();
    assert!(store.watch_after(KIND, newest - 3).is_ok());
    assert_eq!(
        store.watch_after(KIND, newest - 4).err(),
        Some(StoreError::Expired {
            requested: newest - 4,
            oldest: newest - 3
        })
    );
}

/// A kind that has not changed has all of its history, but a list of its past ends as in etcd.
#[test]
fn revisions_that_are_old_are_not_listed() {
    let store = store(HistoryLimits {
        listed_age: Duration::ZERO,
        ..HistoryLimits::default()
    });
    create(&store, "a");
    let then = store.revision();
    create(&store, "b");
    let listed = |at| {
        let query = ListQuery {
            at: Some(at),
            ..ListQuery::default()
        };
        store.list(KIND, &query).map(|page| page.items.len())
    };
    assert_eq!((listed(then), listed(then + 1)), (Ok(1), Ok(2)));
    store.compact();
    let expired = StoreError::Expired {
        requested: then,
        oldest: then + 1,
    };
    assert_eq!((listed(then), listed(then + 1)), (Err(expired), Ok(2)));
    assert!(store.watch_after(KIND, then).is_ok());
}

#[test]
fn deleted_objects_leave_memory_with_the_history() {
    let store = store(HistoryLimits {
        age_min: Duration::ZERO,
        events_min: 10,
        events_max: 100_000,
        ..HistoryLimits::default()
    });
    let mut versions = Vec::new();
    for i in 0..5_000 {
        let key = format!("k{i}");
        let Ok(version) = store.create(KIND, &key, object(&key)) else {
            panic!("{key} is new");
        };
        assert!(
            store
                .delete(KIND, &key, version.revision(), object(&key))
                .is_ok()
        );
        versions.push(Arc::downgrade(&version));
    }
    let in_memory = |versions: &[std::sync::Weak<ObjectVersion>]| {
        versions.iter().filter(|v| v.strong_count() > 0).count()
    };
    assert_eq!(in_memory(&versions), 5_000);
    store.compact();
    // The 10 newest changes are 5 creations and 5 deletions, which keep the previous versions.
    assert_eq!(in_memory(&versions), 5);
}
