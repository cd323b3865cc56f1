//! The file of `--config` is followed: a mounted ConfigMap that changes, SIGHUP, and a file with mistakes.

use crate::e2e::{Api, Cluster, Running, Scratch, eventually};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A directory with a mounted ConfigMap: the file is a link into `..data`, which is a link to a directory that is
/// replaced.
struct Mounted {
    scratch: Scratch,
    versions: usize,
}

impl Mounted {
    fn new(text: &str) -> Self {
        let scratch = Scratch::new("reload");
        symlink(Path::new("..data/config.yaml"), scratch.path("config.yaml")).expect("a link");
        let mut mounted = Self {
            scratch,
            versions: 0,
        };
        mounted.replace(text);
        mounted
    }

    fn file(&self) -> PathBuf {
        self.scratch.path("config.yaml")
    }

    /// As the kubelet does: a new directory, and then another link in one step.
    fn replace(&mut self, text: &str) {
        self.versions += 1;
        let name = format!("..version{}", self.versions);
        let directory = self.scratch.path(&name);
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(directory.join("config.yaml"), text).expect("a file");
        let new = self.scratch.path("..data_tmp");
        symlink(&name, &new).expect("a link");
        std::fs::rename(new, self.scratch.path("..data")).expect("another link");
    }
}

/// A configuration with these profiles, as YAML, and a rate limit.
fn config(qps: u32, profiles: &str) -> String {
    format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
         leaderElection: {{leaderElect: false}}\nclientConnection: {{qps: {qps}, burst: 200}}\nprofiles:\n{profiles}"
    )
}

/// A profile that places pods only on one node.
fn only_on(node: &str) -> String {
    let term =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let affinity =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    let args = json!({"addedAffinity": affinity});
    let profile = json!({
        "schedulerName": "default-scheduler",
        "pluginConfig": [{"name": "NodeAffinity", "args": args}],
    });
    format!("- {profile}\n")
}

fn configz(scheduler: &Running) -> Value {
    let answer = scheduler.http_get("/configz");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

fn condition(scheduler: &Running, kind: &str) -> Value {
    let page = configz(scheduler);
    let conditions = page["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions
        .into_iter()
        .find(|condition| condition["type"] == kind);
    found.unwrap_or_default()
}

fn reloads(scheduler: &Running, result: &str) -> f64 {
    scheduler.metric("berth_config_reload_total", &format!("result=\"{result}\""))
}

fn node_of(api: &Api, pod: &str) -> Value {
    api.bound(pod)["spec"]["nodeName"].clone()
}

/// A pod that the first configuration rejects is bound with the second one, which is written as the kubelet updates a
/// ConfigMap; the node is selected by the configuration in effect. Nothing is restarted.
#[test]
fn a_changed_config_map_is_taken_over_without_a_restart() {
    let cluster = Cluster::apiserver("reload", &["--nodes", "2"]);
    let api = Api::of(&cluster);
    let mut mounted = Mounted::new(&config(50, &only_on("node-none")));
    let file = mounted.file().display().to_string();
    let scheduler = cluster.scheduler(&["--config", &file]);
    let hash = scheduler.metric("berth_config_hash", "");
    assert_eq!(condition(&scheduler, "Applied")["status"], "True");
    let names = node_names(&api);
    api.create_pod("waits", &json!({}));
    eventually("the pod is rejected", || {
        (scheduler.pending("unschedulable") == 1.0).then_some(())
    });

    // A comment has no effect on pods.
    mounted.replace(
        &config(50, &only_on("node-none")).replace("profiles:", "# A comment.\nprofiles:"),
    );
    let taken_over = |count: f64| {
        eventually("the reload is counted", || {
            (reloads(&scheduler, "applied") == count).then_some(())
        });
    };
    taken_over(1.0);
    let evaluated = || {
        let event = "event=\"ConfigurationChange\"";
        scheduler.metric("scheduler_queue_incoming_pods_total", event)
    };
    assert_eq!(evaluated(), 0.0);

    // A new ConfigMap.
    mounted.replace(&config(50, &only_on(&names[1])));
    assert_eq!(node_of(&api, "waits"), names[1].as_str());
    taken_over(2.0);
    assert_eq!(evaluated(), 1.0);
    assert_ne!(scheduler.metric("berth_config_hash", ""), hash);

    // An invalid one is refused as a whole.
    let broken = only_on(&names[0])
        + "- schedulerName: second\n  plugins: {filter: {enabled: [{name: Nope}]}}\n";
    mounted.replace(&config(50, &broken));
    eventually("the file is refused", || {
        (reloads(&scheduler, "refused") == 1.0).then_some(())
    });
    assert_eq!(
        scheduler.metric("berth_config_last_reload_successful", ""),
        0.0
    );
    let refused = condition(&scheduler, "Applied");
    assert_eq!(refused["status"], "False");
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains("Nope"), "{message}");
    api.create_pod("second", &json!({}));
    assert_eq!(node_of(&api, "second"), names[1].as_str());

    // Fields that need a restart are named, and the rest is taken over. SIGHUP does not wait for the next look.
    mounted.replace(&config(70, &only_on(&names[0])));
    scheduler.signal("-HUP");
    eventually("the file is taken over", || {
        (reloads(&scheduler, "restart_required") >= 1.0).then_some(())
    });
    let required = condition(&scheduler, "RestartRequired");
    assert_eq!(required["status"], "True");
    let message = required["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("clientConnection"), "{message}");
    let page = configz(&scheduler);
    assert_eq!(
        without_times(page["conditions"].clone()),
        documented_conditions()
    );
    assert_eq!(page["componentconfig"]["clientConnection"]["qps"], 50);
    assert_eq!(condition(&scheduler, "Applied")["status"], "True");
    api.create_pod("third", &json!({}));
    assert_eq!(node_of(&api, "third"), names[0].as_str());
}

/// `berth up` follows its file, too.
#[test]
fn berth_up_follows_its_file() {
    let mut mounted = Mounted::new(&config(50, &only_on("node-none")));
    let file = mounted.file().display().to_string();
    let cluster = Cluster::up("reload-up", &["--nodes", "2", "--config", &file]);
    let api = Api::of(&cluster);
    let names = node_names(&api);
    api.create_pod("waits", &json!({}));
    eventually("the pod is rejected", || {
        let pod = api.pod("waits");
        let conditions = pod["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        conditions.find(|condition| condition["reason"] == "Unschedulable")
    });
    mounted.replace(&config(50, &only_on(&names[1])));
    assert_eq!(node_of(&api, "waits"), names[1].as_str());
}

/// The conditions that the page about operations shows.
fn documented_conditions() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/use/operations.md");
    let page = std::fs::read_to_string(path).expect("a page");
    let (_, after) = page.split_once("| jq .conditions\n").expect("a command");
    let output: Vec<&str> = after
        .lines()
        .take_while(|line| line.starts_with("    "))
        .collect();
    without_times(serde_json::from_str(&output.join("\n")).expect("JSON"))
}

fn without_times(mut conditions: Value) -> Value {
    for condition in conditions.as_array_mut().into_iter().flatten() {
        let time = condition["lastTransitionTime"].take();
        assert!(
            time.as_str().is_some_and(|time| time.ends_with('Z')),
            "{time}"
        );
    }
    conditions
}

/// The names of the nodes.
fn node_names(api: &Api) -> Vec<String> {
    let list = api.send(&berth_client::request::get_path("/api/v1/nodes"));
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let names = items
        .iter()
        .filter_map(|node| node["metadata"]["name"].as_str());
    names.map(str::to_owned).collect()
}
