//! Requests whose work is counted.

use super::lists::Place;
use super::objects;
use berth_apiserver::admission::Admission;
use berth_apiserver::{LocalRequests, RunningServer, Server, ServerOptions};
use berth_objects::releases::ApiRelease;
use berth_objects::view::reads;
use berth_protobuf::facts::ResourceFacts;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The maximum number of times that controllers may change an object while it is updated.
const CONFLICTS_MAX: usize = 100;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// The counted work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Fields of objects that were read.
    pub(super) reads: usize,
    pub(super) allocations: usize,
    pub(super) bytes: usize,
}

/// A server, and the runtime that answers requests on the thread of the test.
pub(super) struct Tester {
    runtime: Runtime,
    requests: LocalRequests,
    _server: (RunningServer, Runtime),
    names: usize,
}

pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: Value,
    pub(super) work: Work,
}

/// The path of the objects of a kind.
fn path_of(kind: &ResourceFacts) -> String {
    let root = match kind.group {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    };
    if kind.namespaced {
        format!("{root}/namespaces/default/{}", kind.plural)
    } else {
        format!("{root}/{}", kind.plural)
    }
}

impl Tester {
    pub(super) fn new() -> Self {
        // Background work of the server runs on another thread and is not counted.
        let server_runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let options = ServerOptions {
            api: ApiRelease::EVERY,
            admission: Admission {
                service_account: false,
                ..Admission::default()
            },
            ..ServerOptions::default()
        };
        let server = server_runtime.block_on(async { Server::start(options).await });
        let server = server.expect("a server");
        let tester = Self {
            requests: server.local(),
            runtime,
            _server: (server, server_runtime),
            names: 0,
        };
        // New objects are counted, and containers get defaults.
        for (plural, object) in [
            (
                "resourcequotas",
                json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                    "spec": {"hard": {"pods": "9000", "requests.cpu": "9000", "services": "9000"}}}),
            ),
            (
                "limitranges",
                json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
                    "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"},
                        "defaultRequest": {"cpu": "1m"}}]}}),
            ),
        ] {
            let path = format!("/api/v1/namespaces/default/{plural}");
            let body = object.to_string();
            let answer = tester.ask("POST", &path, JSON, JSON, body.as_bytes());
            assert_eq!(answer.code, 201, "{}", answer.body);
        }
        tester
    }

    /// Sends a request and counts the work of the answer.
    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        content: &str,
        accept: &str,
        body: &[u8],
    ) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .header("accept", accept)
            .header("user-agent", "a")
            .body(Full::new(Bytes::copy_from_slice(body)))
            .expect("a request");
        let mut answered = None;
        reads::take();
        let counted = allocation_counter::measure(|| {
            answered = Some(self.runtime.block_on(async {
                let answer = self.requests.answer(request).await;
                let code = answer.status().as_u16();
                let body = answer.into_body().collect().await.map(|b| b.to_bytes());
                (code, body.unwrap_or_default())
            }));
        });
        let reads = reads::take();
        let (code, body) = answered.unwrap_or_default();
        Answer {
            code,
            body: serde_json::from_slice(&body).unwrap_or_default(),
            work: Work {
                reads,
                allocations: usize::try_from(counted.count_total).unwrap_or_default(),
                bytes: usize::try_from(counted.bytes_total).unwrap_or_default(),
            },
        }
    }

    /// Lets the server work until it serves a path.
    pub(super) fn wait_until_served(&self, path: &str) {
        while self.ask("GET", path, JSON, JSON, b"").code == 404 {
            self.runtime.block_on(tokio::task::yield_now());
        }
    }

    /// Creates an object, or replaces it. Returns whether it is valid.
    pub(super) fn put(&self, kind: &ResourceFacts, object: &Value) -> bool {
        let list = path_of(kind);
        let one = format!(
            "{list}/{}",
            object["metadata"]["name"].as_str().unwrap_or_default()
        );
        let body = object.to_string();
        let mut answer = self.ask("PUT", &one, JSON, JSON, body.as_bytes());
        if answer.code == 404 {
            answer = self.ask("POST", &list, JSON, JSON, body.as_bytes());
        }
        answer.code < 300
    }

    /// The fields that are read while an object would be created. It may be refused.
    pub(super) fn dry_run(&self, kind: &ResourceFacts, object: &Value) -> i64 {
        let path = format!("{}?dryRun=All", path_of(kind));
        let answer = self.ask("POST", &path, JSON, JSON, object.to_string().as_bytes());
        assert_ne!(answer.code, 413, "{path}");
        i64::try_from(answer.work.reads).unwrap_or(i64::MAX)
    }

    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("x{}", self.names)
    }

    /// Replaces an object with the UID and the version that the server has. A controller may change the object between
    /// the two requests, for example the status of a new definition: a conflict is no answer about the list.
    fn update(&self, one: &str, path: &str, changed: &Value) -> Answer {
        let mut put = changed.clone();
        for _ in 0..CONFLICTS_MAX {
            let read = self.ask("GET", one, JSON, JSON, b"");
            for field in ["uid", "resourceVersion"] {
                put["metadata"][field] = read.body["metadata"][field].clone();
            }
            let answer = self.ask("PUT", path, JSON, JSON, put.to_string().as_bytes());
            let is_changed = || {
                let now = self.ask("GET", one, JSON, JSON, b"");
                now.body["metadata"]["resourceVersion"] != put["metadata"]["resourceVersion"]
            };
            if answer.code != 409 || !is_changed() {
                return answer;
            }
        }
        panic!("{one} has changed {CONFLICTS_MAX} times between a GET and a PUT");
    }

    /// The requests about an object with a list of `count` entries, with their work, and why it was refused.
    pub(super) fn measure(
        &mut self,
        place: &Place,
        count: usize,
    ) -> (Vec<(&'static str, Work)>, Option<String>) {
        let kind = place.kind;
        let list = path_of(kind);
        let mut work = Vec::new();
        let mut object = objects::with_list(place, count, false);
        let mut changed = objects::with_list(place, count, true);
        let mut name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if name.is_empty() {
            name = self.new_name();
        }
        if kind.plural == "customresourcedefinitions" {
            // A deleted definition continues to exist for a while.
            let group = format!("{}.example.com", self.new_name());
            name = format!("things.{group}");
            for object in [&mut object, &mut changed] {
                object["spec"]["group"] = group.as_str().into();
            }
        }
        for object in [&mut object, &mut changed] {
            object["metadata"]["name"] = name.as_str().into();
        }
        changed["metadata"]["labels"] = json!({"changed": "a"});
        let sub = if place.is_status() { "/status" } else { "" };
        let one = format!("{list}/{name}");
        let part = format!("{one}{sub}");
        let mut created = self.ask("POST", &list, JSON, JSON, object.to_string().as_bytes());
        if created.code == 409 {
            let read = self.ask("GET", &one, JSON, JSON, b"");
            object["metadata"]["resourceVersion"] =
                read.body["metadata"]["resourceVersion"].clone();
            created = self.ask("PUT", &one, JSON, JSON, object.to_string().as_bytes());
        }
        work.push(("create", created.work));
        let refused = |what: &str, answer: &Answer| {
            (!(200..300).contains(&answer.code)).then(|| {
                let message = answer.body["message"].as_str().unwrap_or_default();
                format!("{what}: {} {message:.300}", answer.code)
            })
        };
        if let Some(why) = refused("create", &created) {
            return (work, Some(why));
        }
        let mut why = None;
        if !sub.is_empty() {
            let mut with_status = created.body.clone();
            with_status["status"] = object["status"].clone();
            let written = self.ask("PUT", &part, JSON, JSON, with_status.to_string().as_bytes());
            work.push(("update the status", written.work));
            why = refused("update the status", &written);
        }
        let dry = format!("{part}?dryRun=All");
        let body = changed.to_string();
        let read = self.ask("GET", &one, JSON, JSON, b"");
        work.push(("get", read.work));
        let answers = [
            ("update", self.update(&one, &dry, &changed)),
            (
                "merge patch",
                self.ask(
                    "PATCH",
                    &dry,
                    "application/merge-patch+json",
                    JSON,
                    body.as_bytes(),
                ),
            ),
            (
                "strategic patch",
                self.ask(
                    "PATCH",
                    &dry,
                    "application/strategic-merge-patch+json",
                    JSON,
                    body.as_bytes(),
                ),
            ),
            (
                "apply",
                self.ask(
                    "PATCH",
                    &format!("{dry}&fieldManager=b&force=true"),
                    "application/apply-patch+yaml",
                    JSON,
                    body.as_bytes(),
                ),
            ),
            (
                "apply and store",
                self.ask(
                    "PATCH",
                    &format!("{part}?fieldManager=b&force=true"),
                    "application/apply-patch+yaml",
                    JSON,
                    body.as_bytes(),
                ),
            ),
            (
                "apply again",
                self.ask(
                    "PATCH",
                    &format!("{part}?fieldManager=b&force=true"),
                    "application/apply-patch+yaml",
                    JSON,
                    objects::base(place)
                        .to_string()
                        .replace(
                            "\"metadata\":{",
                            &format!("\"metadata\":{{\"name\":{name:?},"),
                        )
                        .as_bytes(),
                ),
            ),
            ("table", self.ask("GET", &one, JSON, TABLE, b"")),
            ("protobuf", self.ask("GET", &one, JSON, PROTOBUF, b"")),
            (
                "selected list",
                self.ask(
                    "GET",
                    &format!(
                        "{list}?labelSelector=changed%3Da,x!%3Dy&fieldSelector=metadata.name!%3Da"
                    ),
                    JSON,
                    JSON,
                    b"",
                ),
            ),
        ];
        for (request, answer) in answers {
            work.push((request, answer.work));
        }
        if let Some(message) = berth_protobuf::encode_body(&object) {
            let answer = self.ask(
                "POST",
                &format!("{list}?dryRun=All"),
                PROTOBUF,
                PROTOBUF,
                &message,
            );
            work.push(("create from protobuf", answer.work));
        }
        let options = br#"{"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}"#;
        let deleted = self.ask("DELETE", &one, JSON, JSON, options);
        work.push(("delete", deleted.work));
        (work, why)
    }
}
