//! `berth apiserver --data-dir` under load, ended by SIGKILL at random moments: afterwards, the store contains exactly
//! the acknowledged writes.
//!
//! Each writer has its own objects and knows the state of each. For the write in flight at the end of the process, it
//! accepts both outcomes.

use crate::BINARY;
use crate::e2e::{Api, PATIENCE, Running, Scratch};
use berth_client::request::{self, Resource};
use berth_client::{ApiError, Transport};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

const CONFIG_MAPS: Resource = Resource {
    group: "",
    version: "v1",
    plural: "configmaps",
};
const NAMESPACE: &str = "default";
const WRITERS: usize = 16;
/// Objects of one writer.
const OBJECTS: usize = 20;
/// The maximum number of acknowledged writes before the process is killed.
const WRITES_MAX: usize = 400;
/// Kills in `cargo test`, and in the ignored test.
const KILLS: usize = 4;
const KILLS_MANY: usize = 300;

fn start(scratch: &Scratch) -> Running {
    let mut command = Command::new(BINARY);
    command
        .args(["apiserver", "--controllers", "off"])
        .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
        .arg("--data-dir")
        .arg(scratch.path("data"))
        .arg("--kubeconfig")
        .arg(scratch.path("kubeconfig"));
    Running::start(&mut command)
}

/// Counts acknowledged writes, and reports when there are enough.
struct Load {
    left: AtomicUsize,
    enough: Notify,
}

struct Writer {
    prefix: String,
    random: fastrand::Rng,
    next_value: usize,
    /// The value of each object, as acknowledged.
    objects: BTreeMap<String, String>,
    /// The change of the write in flight; `None` deletes.
    in_flight: Option<(String, Option<String>)>,
    /// The newest revision of an answer.
    revision: u64,
}

impl Writer {
    /// Writes until the server has ended.
    async fn write(&mut self, transport: &Transport, load: &Load) {
        loop {
            let name = format!("{}-{}", self.prefix, self.random.usize(..OBJECTS));
            self.next_value += 1;
            let value = self.next_value.to_string();
            let (request, after) = match self.objects.get(&name) {
                None => {
                    let object = json!({
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {"name": name},
                        "data": {"value": value, "padding": "x".repeat(self.random.usize(..2_000))},
                    });
                    let create = request::create(CONFIG_MAPS, NAMESPACE, &object);
                    (create, Some(value))
                }
                Some(_) if self.random.u8(..3) == 0 => {
                    let delete = request::delete(CONFIG_MAPS, NAMESPACE, &name, &json!({}));
                    (delete, None)
                }
                Some(_) => {
                    let patch = json!({"data": {"value": value}});
                    let patch = request::merge_patch(CONFIG_MAPS, NAMESPACE, &name, &patch);
                    (patch, Some(value))
                }
            };
            self.in_flight = Some((name.clone(), after.clone()));
            let answer = match transport.request::<Value>(&request).await {
                Ok(answer) => answer,
                Err(error @ ApiError::Status { .. }) => panic!("{}: {error}", request.describe()),
                Err(_) => return,
            };
            self.in_flight = None;
            match after {
                Some(value) => self.objects.insert(name, value),
                None => self.objects.remove(&name),
            };
            let revision = answer["metadata"]["resourceVersion"].as_str();
            self.revision = revision
                .and_then(|text| text.parse().ok())
                .unwrap_or(0)
                .max(self.revision);
            if load.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                load.enough.notify_one();
            }
        }
    }

    /// Compares the objects with the objects of the server.
    fn verify(&mut self, stored: &BTreeMap<String, String>, revision: u64) {
        assert!(
            revision >= self.revision,
            "revision {revision} is older than the acknowledged {}",
            self.revision
        );
        let prefix = format!("{}-", self.prefix);
        let found: BTreeMap<String, String> = stored
            .iter()
            .filter(|(name, _)| name.starts_with(&prefix))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if found == self.objects {
            self.in_flight = None;
            return;
        }
        let mut with_last = self.objects.clone();
        match self.in_flight.take() {
            Some((name, Some(value))) => with_last.insert(name, value),
            Some((name, None)) => with_last.remove(&name),
            None => None,
        };
        assert_eq!(found, with_last, "neither with nor without the last write");
        self.objects = with_last;
    }
}

/// The values of all objects, and the revision of the list.
fn stored(api: &Api) -> (BTreeMap<String, String>, u64) {
    let list = api.send(&request::list(CONFIG_MAPS, "", 0, ""));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = list["items"].as_array().into_iter().flatten();
    let values = objects
        .map(|o| (text(&o["metadata"]["name"]), text(&o["data"]["value"])))
        .collect();
    let revision = text(&list["metadata"]["resourceVersion"]);
    (values, revision.parse().unwrap_or(0))
}

fn kill_many(name: &str, seed: u64, kills: usize) {
    eprintln!("seed {seed}");
    let scratch = Scratch::new(name);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|i| Writer {
            prefix: format!("w{i}"),
            random: random.fork(),
            next_value: 0,
            objects: BTreeMap::new(),
            in_flight: None,
            revision: 0,
        })
        .collect();
    let mut acknowledged = 0;
    for _ in 0..kills {
        let running = start(&scratch);
        let api = Api::at(scratch.path("kubeconfig"));
        let (values, revision) = stored(&api);
        for writer in &mut writers {
            writer.verify(&values, revision);
        }
        let count = random.usize(1..WRITES_MAX);
        acknowledged += count;
        let load = Arc::new(Load {
            left: AtomicUsize::new(count),
            enough: Notify::new(),
        });
        writers = api.runtime.block_on(async {
            let tasks: Vec<_> = writers
                .into_iter()
                .map(|mut writer| {
                    let (transport, load) = (api.transport.clone(), Arc::clone(&load));
                    tokio::spawn(async move {
                        writer.write(&transport, &load).await;
                        writer
                    })
                })
                .collect();
            let enough = tokio::time::timeout(PATIENCE, load.enough.notified()).await;
            assert!(enough.is_ok(), "the writers have stopped");
            // SIGKILL.
            drop(running);
            let mut writers = Vec::new();
            for task in tasks {
                writers.push(task.await.expect("a writer does not panic"));
            }
            writers
        });
    }
    let _running = start(&scratch);
    let (values, revision) = stored(&Api::at(scratch.path("kubeconfig")));
    for writer in &mut writers {
        writer.verify(&values, revision);
    }
    eprintln!("{kills} kills, at least {acknowledged} acknowledged writes, none lost");
}

#[test]
fn acknowledged_writes_survive_sigkill() {
    kill_many("kill", 1, KILLS);
}

#[test]
#[ignore = "long; a step of .ci/run"]
fn acknowledged_writes_survive_many_sigkills() {
    kill_many("kill-many", 2, KILLS_MANY);
}
