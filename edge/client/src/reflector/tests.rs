//! Following a kind, on servers that answer in JSON and in protobuf.

use super::*;
use crate::content::{ContentTypes, Format};
use crate::testing::{Scripted, status};
use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};
use std::sync::Mutex;
use tokio::time::timeout;

/// The answer of a server without streaming lists.
fn no_streams() -> (u16, Value) {
    status(422, "sendInitialEvents is forbidden for watch")
}

fn page(version: &str, name: &str) -> (u16, Value) {
    let items = [json!({"metadata": {"name": name}})];
    let list = json!({
        "apiVersion": "v1", "kind": "PodList",
        "metadata": {"resourceVersion": version}, "items": items,
    });
    (200, list)
}

/// All pods, which are needed.
const PODS: Followed = Followed {
    resource: request::PODS,
    other_versions: &[],
    field_selector: "",
    need: Need::Essential,
    json_only: false,
};

const FORMATS: [Format; 2] = [Format::Json, Format::Protobuf];

/// Follows pods on a server that gives these answers. The client prefers protobuf.
async fn following(
    format: Format,
    need: Need,
    answers: Vec<(u16, Value)>,
) -> (mpsc::Receiver<Update<String>>, Scripted) {
    following_versions(format, need, &[], answers).await
}

async fn following_versions(
    format: Format,
    need: Need,
    other_versions: &'static [&'static str],
    answers: Vec<(u16, Value)>,
) -> (mpsc::Receiver<Update<String>>, Scripted) {
    let server = Scripted::speaking(format, answers).await;
    let content = ContentTypes::new("application/vnd.kubernetes.protobuf", "");
    let (updates, notified) = mpsc::channel(8);
    let followed = Followed {
        other_versions,
        need,
        ..PODS
    };
    let name = |object: Payload<'_>| Ok(object.decode::<ListVersion>()?.metadata.name);
    let availability = Arc::default();
    tokio::spawn(follow(
        server.client().speaking(content.expect("a header")),
        followed,
        name,
        updates,
        availability,
    ));
    (notified, server)
}

const PATIENCE: Duration = Duration::from_secs(20);

async fn next(notified: &mut mpsc::Receiver<Update<String>>) -> Option<Update<String>> {
    timeout(PATIENCE, notified.recv())
        .await
        .expect("an update in time")
}

#[tokio::test]
async fn a_version_that_the_server_cannot_go_on_from_means_a_new_list() {
    let cases = [
        (410, "too old resource version: 90 (95)"),
        (504, "Too large resource version: 90, current: 7"),
    ];
    for (format, (code, message)) in FORMATS.iter().flat_map(|f| cases.map(|case| (*f, case))) {
        let answers = vec![
            no_streams(),
            page("90", "a"),
            status(code, message),
            page("7", "b"),
        ];
        let (mut notified, mut server) = following(format, Need::Essential, answers).await;
        for name in ["a", "b"] {
            let update = next(&mut notified).await;
            let expected = Update::Replaced(vec![name.to_owned()]);
            assert_eq!(update, Some(expected), "{code}");
        }
        let mut watches = Vec::new();
        while let Some(request) = timeout(PATIENCE, server.asked.recv())
            .await
            .expect("an end in time")
        {
            watches.push(request.line().contains("watch="));
        }
        assert_eq!(watches, [true, false, true, false], "{code}");
    }
}

fn namespaces(uid: &str, version: &str) -> (u16, Value) {
    let list = json!({
        "apiVersion": "v1", "kind": "NamespaceList", "metadata": {"resourceVersion": version},
        "items": [{"metadata": {"name": "kube-system", "uid": uid}}],
    });
    (200, list)
}

/// A watch of a store that was replaced or restored would be silent: all objects are listed again. The watch of the
/// same store continues.
#[tokio::test]
async fn a_watch_goes_on_in_the_same_store_only() {
    let ended = || (200, json!([]));
    for (situation, looks, is_listed) in [
        (
            "the same store",
            [namespaces("a", "90"), namespaces("a", "95")],
            false,
        ),
        (
            "another store",
            [namespaces("a", "90"), namespaces("b", "7")],
            true,
        ),
        (
            "another store with more versions",
            [namespaces("a", "90"), namespaces("b", "900")],
            true,
        ),
        (
            "a backup",
            [namespaces("a", "90"), namespaces("a", "80")],
            true,
        ),
    ] {
        let [before, after] = looks;
        let answers = vec![
            before,
            no_streams(),
            page("90", "old"),
            ended(),
            after,
            page("95", "new"),
        ];
        let mut server = Scripted::start(answers).await;
        let (updates, mut notified) = mpsc::channel(8);
        let followed = PODS;
        let name = |object: Payload<'_>| Ok(object.decode::<ListVersion>()?.metadata.name);
        let transport = server.client().checking_store();
        tokio::spawn(follow(transport, followed, name, updates, Arc::default()));
        let listed = |name: &str| Some(Update::Replaced(vec![name.to_owned()]));
        assert_eq!(next(&mut notified).await, listed("old"), "{situation}");
        let mut last = String::new();
        while let Some(request) = timeout(PATIENCE, server.asked.recv())
            .await
            .expect("an end")
        {
            last = request.line().to_owned();
        }
        assert_eq!(last.contains("watch="), !is_listed, "{situation}: {last}");
        if is_listed {
            assert_eq!(next(&mut notified).await, listed("new"), "{situation}");
        }
    }
}

/// Follows pods for 25 s, at a server that ends each watch after `lasts` without an event, and answers over the connection of
/// the position of the watch; the watch after the last connection stays open. Returns the requests in their order.
async fn asked_with(connections: &[Option<ConnectionId>], lasts: Duration) -> Vec<&'static str> {
    let asked = Arc::<Mutex<Vec<&str>>>::default();
    let seen = Arc::clone(&asked);
    let connections = connections.to_vec();
    let answer = move |request: http::Request<Full<Bytes>>| {
        let query = request.uri().query().unwrap_or_default();
        let kind = match request.uri().path() {
            "/api/v1/namespaces" => "look",
            _ if query.contains("sendInitialEvents") => "list",
            _ if query.contains("watch=true") => "watch",
            _ => "list",
        };
        let mut seen = seen.lock().expect("no panic");
        let watches = seen.iter().filter(|kind| **kind == "watch").count();
        let (code, body) = match kind {
            "look" => namespaces("a", "90"),
            _ if query.contains("sendInitialEvents") => no_streams(),
            "list" => page("90", "a"),
            _ => (200, Value::Null),
        };
        seen.push(kind);
        let connection = connections.get(watches).copied().flatten();
        let ends = watches + 1 < connections.len();
        async move {
            let body = match kind {
                "watch" if ends => {
                    sleep(lasts).await;
                    String::new()
                }
                "watch" => std::future::pending().await,
                _ => body.to_string(),
            };
            let mut response = http::Response::new(Full::from(body));
            *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
            if let Some(connection) = connection {
                response.extensions_mut().insert(connection);
            }
            response
        }
    };
    let transport = Transport::in_process(answer, "https://server".into(), "test".into());
    let (updates, _notified) = mpsc::channel(8);
    let followed = PODS;
    let name = |object: Payload<'_>| Ok(object.decode::<ListVersion>()?.metadata.name);
    let transport = transport.checking_store();
    let following = follow(transport, followed, name, updates, Arc::default());
    let _ = timeout(Duration::from_secs(25), following).await;
    asked.lock().expect("no panic").clone()
}

/// A busy server ends watches that it cannot serve in time. The next watch uses the same connection without a request
/// before it; over another connection, or after a while, the store is identified first.
#[tokio::test(start_paused = true)]
async fn the_next_watch_over_the_same_connection_needs_no_other_request() {
    let (a, b) = (Some(ConnectionId::unique()), Some(ConnectionId::unique()));
    let soon = Duration::from_millis(1);
    for (situation, connections, lasts, expected) in [
        (
            "the same",
            [a, a, a],
            soon,
            "look list list watch watch watch",
        ),
        (
            "another one",
            [a, b, b],
            soon,
            "look list list watch watch look watch",
        ),
        (
            "the same after a while",
            [a, a, a],
            Duration::from_secs(11),
            "look list list watch look watch look watch",
        ),
        (
            "one for each request",
            [None; 3],
            soon,
            "look list list watch look watch look watch",
        ),
    ] {
        let asked = asked_with(&connections, lasts).await.join(" ");
        assert_eq!(asked, expected, "{situation}");
    }
}

/// An older version is used if the server does not have the preferred version of a kind.
#[tokio::test]
async fn an_older_version_is_followed_where_the_server_has_no_newer_one() {
    let missing = || status(404, "the server could not find the requested resource");
    for (answers, expected, paths) in [
        (
            vec![no_streams(), missing(), page("7", "a")],
            vec!["a".to_owned()],
            vec!["/api/v1/pods", "/api/v1/pods", "/api/v1beta2/pods"],
        ),
        (
            vec![no_streams(), missing(), missing()],
            Vec::new(),
            vec!["/api/v1/pods", "/api/v1/pods", "/api/v1beta2/pods"],
        ),
    ] {
        let (mut notified, mut server) =
            following_versions(Format::Json, Need::Readable, &["v1beta2"], answers).await;
        let update = next(&mut notified).await;
        assert_eq!(update, Some(Update::Replaced(expected)));
        for path in paths {
            let asked = server.asked.recv().await.expect("a request");
            let line = asked.line();
            assert!(line.starts_with(&format!("GET {path}?")), "{line}");
        }
    }
}

/// A kind that cannot be listed counts as empty only if that is harmless; otherwise it is requested until it can be
/// listed.
#[tokio::test]
async fn what_the_server_does_not_have_or_show_is_nothing_or_waited_for() {
    for (need, code, is_nothing) in [
        (Need::Essential, 404, false),
        (Need::Essential, 403, false),
        (Need::Known, 404, true),
        (Need::Known, 403, false),
        (Need::Readable, 404, true),
        (Need::Readable, 403, true),
        (Need::Readable, 500, false),
        (Need::Optional, 404, true),
        (Need::Optional, 403, true),
    ] {
        let answers = vec![no_streams(), status(code, "not available"), page("7", "a")];
        let (mut notified, _server) = following(Format::Json, need, answers).await;
        let expected = if is_nothing {
            Vec::new()
        } else {
            vec!["a".to_owned()]
        };
        let update = next(&mut notified).await;
        assert_eq!(update, Some(Update::Replaced(expected)), "{need:?} {code}");
    }
}

fn event(kind: &str, name: &str, version: u32) -> Value {
    let metadata = json!({"name": name, "resourceVersion": version.to_string()});
    json!({"type": kind, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}})
}

/// KEP-3157: the watch begins with all objects, and continues as a watch.
#[tokio::test]
async fn a_list_is_streamed_by_the_watch_where_the_server_offers_it() {
    for format in FORMATS {
        let mut end = event("BOOKMARK", "", 7);
        end["object"]["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        let stream = json!([
            event("ADDED", "a", 3),
            event("ADDED", "b", 4),
            event("BOOKMARK", "", 4),
            event("DELETED", "a", 5),
            event("ADDED", "c", 6),
            end,
            event("ADDED", "d", 8),
        ]);
        let answers = vec![(200, stream), (200, json!([event("DELETED", "b", 9)]))];
        let (mut notified, mut server) = following(format, Need::Essential, answers).await;
        let name = |name: &str| name.to_owned();
        for expected in [
            Update::Replaced(vec![name("b"), name("c")]),
            Update::Applied(name("d")),
            Update::Deleted(name("b")),
        ] {
            assert_eq!(next(&mut notified).await, Some(expected), "{format:?}");
        }
        for part in ["&sendInitialEvents=true&", "&resourceVersion=8&"] {
            let asked = server.asked.recv().await.expect("a request");
            assert!(asked.line().contains(part), "{}", asked.line());
        }
    }
}

/// A stream that ends before the list is complete counts as no list.
#[tokio::test]
async fn a_streamed_list_that_ends_early_is_read_by_pages() {
    for format in FORMATS {
        let answers = vec![(200, json!([event("ADDED", "a", 3)])), page("7", "b")];
        let (mut notified, _server) = following(format, Need::Essential, answers).await;
        let expected = Update::Replaced(vec!["b".to_owned()]);
        assert_eq!(next(&mut notified).await, Some(expected), "{format:?}");
    }
}

/// A watch whose version has expired ends with an error event, and the kind is listed again.
#[tokio::test]
async fn an_error_event_means_a_new_list() {
    for format in FORMATS {
        let (_, expired) = status(410, "too old resource version: 90 (95)");
        let error = json!([{"type": "ERROR", "object": expired}]);
        let answers = vec![no_streams(), page("90", "a"), (200, error), page("95", "b")];
        let (mut notified, mut server) = following(format, Need::Essential, answers).await;
        for name in ["a", "b"] {
            let expected = Update::Replaced(vec![name.to_owned()]);
            assert_eq!(next(&mut notified).await, Some(expected), "{format:?}");
        }
        let asked = server.asked.recv().await.expect("a request");
        let accepted = "application/vnd.kubernetes.protobuf;drop=metadata.managedFields, \
                        */*;drop=metadata.managedFields, application/vnd.kubernetes.protobuf, */*";
        assert_eq!(asked.header("accept"), accepted);
    }
}

/// An object that does not decode is skipped; other objects arrive, and the watch continues.
#[tokio::test]
async fn an_object_that_does_not_decode_is_passed_over() {
    for format in FORMATS {
        let server = Scripted::speaking(
            format,
            vec![
                no_streams(),
                page("7", "bad"),
                (
                    200,
                    json!([event("ADDED", "bad", 8), event("ADDED", "good", 9)]),
                ),
            ],
        )
        .await;
        let (updates, mut notified) = mpsc::channel(8);
        let followed = PODS;
        let decode = |object: Payload<'_>| {
            let name = object.decode::<ListVersion>()?.metadata.name;
            match name.as_str() {
                "bad" => Err(DecodeError::Json(serde::de::Error::custom("bad"))),
                _ => Ok(name),
            }
        };
        tokio::spawn(follow(
            server.client(),
            followed,
            decode,
            updates,
            Arc::default(),
        ));
        for expected in [
            Update::Replaced(Vec::new()),
            Update::Applied("good".to_owned()),
        ] {
            assert_eq!(next(&mut notified).await, Some(expected), "{format:?}");
        }
    }
}

/// Q-87b: while an object is unreadable, the kind is listed again whenever a watch ends.
#[tokio::test]
async fn a_kind_with_an_object_that_cannot_be_read_is_listed_again() {
    for format in FORMATS {
        let server = Scripted::speaking(
            format,
            vec![
                no_streams(),
                page("7", "bad"),
                (200, json!([event("ADDED", "good", 9)])),
                page("10", "better"),
                (200, json!([])),
            ],
        );
        let mut server = server.await;
        let (updates, mut notified) = mpsc::channel(8);
        let availability = Arc::<Availability>::default();
        let decode = |object: Payload<'_>| {
            let name = object.decode::<ListVersion>()?.metadata.name;
            match name.as_str() {
                "bad" => Err(DecodeError::Unidentified("bad".to_owned())),
                _ => Ok(name),
            }
        };
        tokio::spawn(follow(
            server.client(),
            PODS,
            decode,
            updates,
            Arc::clone(&availability),
        ));
        for (expected, unreadable) in [
            (Update::Replaced(Vec::new()), 1),
            (Update::Applied("good".to_owned()), 1),
            (Update::Replaced(vec!["better".to_owned()]), 0),
        ] {
            assert_eq!(next(&mut notified).await, Some(expected), "{format:?}");
            assert_eq!(availability.unreadable_objects(), [("pods", unreadable)]);
        }
        let mut kinds = Vec::new();
        for _ in 0..5 {
            let asked = server.asked.recv().await.expect("a request");
            kinds.push(asked.line().contains("watch="));
        }
        assert_eq!(kinds, [true, false, true, false, true], "{format:?}");
    }
}

/// Q-87b: a completely unreadable event causes a new list, because the changed object is unknown.
#[tokio::test]
async fn an_event_that_cannot_be_read_means_a_new_list() {
    let answers = vec![
        no_streams(),
        page("90", "a"),
        (
            200,
            json!([event("ADDED", "b", 91), "nonsense", event("ADDED", "c", 92)]),
        ),
        page("95", "d"),
    ];
    let (mut notified, _server) = following(Format::Json, Need::Essential, answers).await;
    for expected in [
        Update::Replaced(vec!["a".to_owned()]),
        Update::Applied("b".to_owned()),
        Update::Replaced(vec!["d".to_owned()]),
    ] {
        assert_eq!(next(&mut notified).await, Some(expected));
    }
}

/// Lists and watches ask for objects without `metadata.managedFields`, and for objects as they are from servers that
/// refuse the parameter.
#[tokio::test]
async fn managed_fields_are_not_asked_for() {
    let answers = vec![no_streams(), page("90", "a"), status(410, "too old")];
    let (mut notified, mut server) = following(Format::Protobuf, Need::Essential, answers).await;
    next(&mut notified).await;
    for _ in 0..3 {
        let asked = server.asked.recv().await.expect("a request");
        let accept = asked.header("accept").to_owned();
        let (first, rest) = accept.split_once(", ").expect("several media types");
        assert_eq!(
            first,
            "application/vnd.kubernetes.protobuf;drop=metadata.managedFields"
        );
        assert!(
            rest.ends_with(", application/vnd.kubernetes.protobuf, */*"),
            "{accept}"
        );
    }
}

/// A server, or a proxy before it, that ends each watch immediately is asked with pauses.
#[tokio::test(start_paused = true)]
async fn a_server_that_ends_each_watch_at_once_is_asked_rarely() {
    let connections = [Some(ConnectionId::unique()); 1_000];
    let asked = asked_with(&connections, Duration::ZERO).await;
    let watches = asked.iter().filter(|kind| **kind == "watch").count();
    assert!((2..=16).contains(&watches), "{watches} watches in 25 s");
}

/// How a server, or a proxy before it, ends each watch.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// After an event with a new version, within the next event.
    WithinEvent,
    /// Within the first event.
    WithinFirstEvent,
    /// With an error event: the version is too old.
    Expired,
}

/// The number of watch requests within 60 s if each watch lasts this long and ends this way. In the first 100 s, each
/// watch has ended at once without an event, so that the pauses are long.
async fn watches_after_failures(lasts: Duration, cut: Cut) -> usize {
    let watches = Arc::<Mutex<Vec<Instant>>>::default();
    let (seen, began) = (Arc::clone(&watches), Instant::now());
    let answer = move |request: http::Request<Full<Bytes>>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let mut seen = seen.lock().expect("no panic");
        let is_watch = query.contains("watch=true") && !query.contains("sendInitialEvents");
        if is_watch {
            seen.push(Instant::now());
        }
        let version = 100 + u32::try_from(seen.len()).expect("few watches");
        let fails = began.elapsed() < Duration::from_secs(100);
        async move {
            let (code, body) = if query.contains("sendInitialEvents") {
                no_streams()
            } else {
                page("90", "a")
            };
            let (code, body) = match cut {
                _ if !is_watch => (code, body.to_string()),
                _ if fails => (200, String::new()),
                Cut::WithinEvent => {
                    let whole = event("MODIFIED", "a", version);
                    (200, format!("{whole}\n{{\"type\":"))
                }
                Cut::WithinFirstEvent => (200, "{\"type\":".to_owned()),
                Cut::Expired => {
                    let status = json!({"kind": "Status", "code": 410, "reason": "Expired"});
                    let error = json!({"type": "ERROR", "object": status});
                    (200, error.to_string())
                }
            };
            if is_watch && !fails {
                sleep(lasts).await;
            }
            let mut response = http::Response::new(Full::from(body));
            *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
            response
        }
    };
    let transport = Transport::in_process(answer, "https://server".into(), "test".into());
    let (updates, mut notified) = mpsc::channel(8);
    let name = |object: Payload<'_>| Ok(object.decode::<ListVersion>()?.metadata.name);
    tokio::spawn(follow(transport, PODS, name, updates, Arc::default()));
    let taken = async { while notified.recv().await.is_some() {} };
    let _ = timeout(Duration::from_secs(260), taken).await;
    let watches = watches.lock().expect("no panic");
    // The pause that began before 100 s ends within 60 s.
    let counted = (Duration::from_secs(200), Duration::from_secs(260));
    let counted = watches.iter().filter(|at| {
        let at = **at - began;
        at >= counted.0 && at < counted.1
    });
    counted.count()
}

/// A watch that has delivered an event or lasted a second resets the pause, however it ends. Otherwise failures add up,
/// and so do versions that the server does not know, one after another.
#[tokio::test(start_paused = true)]
async fn a_watch_that_has_worked_resets_the_pause() {
    let (at_once, six_seconds) = (Duration::ZERO, Duration::from_secs(6));
    for (lasts, cut, watches) in [
        // Pauses of 100 to 200 ms.
        (at_once, Cut::WithinEvent, 300..=600),
        (six_seconds, Cut::WithinEvent, 9..=10),
        (six_seconds, Cut::WithinFirstEvent, 9..=10),
        (six_seconds, Cut::Expired, 9..=11),
        // Pauses of 2 to 4 s: the server answers, but no event is complete.
        (at_once, Cut::WithinFirstEvent, 14..=31),
        // Pauses of 30 to 60 s.
        (at_once, Cut::Expired, 1..=3),
    ] {
        let got = watches_after_failures(lasts, cut).await;
        assert!(
            watches.contains(&got),
            "{cut:?} after {lasts:?}: {got} watches"
        );
    }
}
