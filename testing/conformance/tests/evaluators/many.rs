//! Clusters in which nearly all pods differ, so that answers about all nodes are computed for each. In every second
//! cluster, pods also have affinity terms and spread constraints.

use berth_api::{Duration, Kind, Time};
use berth_framework::ApiCall;
use berth_framework::call::Response;
use berth_scheduler::profile::{PluginConfig, ProfileSpec};
use berth_scheduler::{ClusterChange, ScheduleOutcome, Scheduler, SchedulerOptions};
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

const STEPS: usize = 60;

struct Cluster {
    core: Scheduler,
    rng: Rng,
    now: Time,
    nodes: BTreeMap<usize, Value>,
    pods: BTreeMap<String, Value>,
    made: usize,
    offers: usize,
    has_constraints: bool,
}

/// One or two affinity terms or spread constraints.
fn constrain(rng: &mut Rng, pod: &mut Value) {
    let group = |rng: &mut Rng| format!("g{}", rng.u8(..5));
    let labels = json!({"group": group(rng)});
    pod["metadata"]["labels"]["group"] = labels["group"].clone();
    let keys = [
        "zone",
        "zone",
        "kubernetes.io/hostname",
        "kubernetes.io/hostname",
        "rack",
    ];
    for _ in 0..rng.usize(..3) {
        let key = keys[rng.usize(..keys.len())];
        // Mostly its own group.
        let selector = match rng.u8(..4) {
            0 => json!({"matchLabels": {"group": group(rng)}}),
            _ => json!({"matchLabels": labels}),
        };
        let mut term = json!({"labelSelector": selector, "topologyKey": key});
        if rng.u8(..4) == 0 {
            term["namespaceSelector"] = json!({});
        }
        let spread = |action: &str, skew: i32| {
            json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action,
                "labelSelector": selector})
        };
        let (required, preferred) = (
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        );
        let weighted = json!([{"weight": rng.i32(1..100), "podAffinityTerm": term}]);
        match rng.u8(..8) {
            0 if key != "kubernetes.io/hostname" => {
                pod["spec"]["affinity"]["podAffinity"][required] = json!([term]);
            }
            0 | 1 if key != "zone" => {
                pod["spec"]["affinity"]["podAntiAffinity"][required] = json!([term]);
            }
            0..=2 => pod["spec"]["affinity"]["podAffinity"][preferred] = weighted,
            3 => pod["spec"]["affinity"]["podAntiAffinity"][preferred] = weighted,
            4 | 5 => {
                pod["spec"]["topologySpreadConstraints"] =
                    json!([spread("DoNotSchedule", rng.i32(1..4))]);
            }
            _ => {
                pod["spec"]["topologySpreadConstraints"] = json!([spread("ScheduleAnyway", 1)]);
            }
        }
    }
}

/// Profiles whose scores by resources differ.
fn profile(rng: &mut Rng) -> ProfileSpec {
    let mut profile = ProfileSpec::default();
    let cpu_and_memory = |cpu: u8, memory: u8| json!([{"name": "cpu", "weight": cpu}, {"name": "memory", "weight": memory}]);
    let strategy = match rng.u8(..6) {
        0 | 1 => return profile,
        2 | 3 => json!({"type": "MostAllocated", "resources": cpu_and_memory(1, rng.u8(1..5))}),
        4 => json!({"type": "LeastAllocated", "resources": cpu_and_memory(rng.u8(1..9), 2)}),
        _ => json!({"type": "RequestedToCapacityRatio", "resources": cpu_and_memory(1, 1),
            "requestedToCapacityRatio": {"shape": [
                {"utilization": 0, "score": 2}, {"utilization": 50, "score": 9}, {"utilization": 100, "score": 0}]}}),
    };
    profile.plugin_config = vec![PluginConfig {
        name: "NodeResourcesFit".to_owned(),
        args: json!({"scoringStrategy": strategy}),
    }];
    profile
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let options = SchedulerOptions {
            profiles: vec![profile(&mut rng)],
            seed,
            compares_evaluators: true,
            ..SchedulerOptions::default()
        };
        let now = Time::from_secs(1_800_000_000);
        let core = Scheduler::new(options, &berth_plugins::in_tree(), now).expect("the profile");
        let offers = rng.usize(1..4);
        let mut cluster = Self {
            core,
            rng,
            now,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            made: 0,
            offers,
            has_constraints: seed % 2 == 1,
        };
        for _ in 0..cluster.rng.usize(10..40) {
            cluster.set_node();
        }
        cluster
    }

    fn show(&mut self, object: &Value, is_there: bool) {
        self.made += 1;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(self.made.to_string());
        let kind = object["kind"].as_str().unwrap_or_default();
        let kind = Kind::by_name("v1", kind).expect("a kind that is followed");
        let decoded = kind
            .decode(object.to_string().as_bytes())
            .expect("it decodes");
        let change = if is_there {
            ClusterChange::Applied(decoded)
        } else {
            ClusterChange::Deleted(decoded)
        };
        self.core.apply(change, self.now);
    }

    /// A node is added or changed.
    fn set_node(&mut self) {
        let at = self.rng.usize(..60);
        let offer = self.rng.usize(..self.offers);
        let taints = match self.rng.u8(..12) {
            0 => json!([{"key": "only", "effect": "NoSchedule"}]),
            _ => json!([]),
        };
        let (cpu, memory, pods) =
            [("2", "4Gi", "12"), ("3", "9Gi", "6"), ("4", "7Gi", "30")][offer];
        let mut allocatable = json!({"cpu": cpu, "memory": memory, "pods": pods});
        if offer == 2 {
            allocatable["example.com/gpu"] = json!("3");
        }
        let mut labels = json!({});
        if !self.has_constraints || self.rng.u8(..40) != 0 {
            labels["kubernetes.io/hostname"] = json!(format!("node-{at}"));
        }
        if self.has_constraints {
            labels["zone"] = json!(format!("zone-{}", at % 3));
            if self.rng.u8(..8) != 0 {
                labels["rack"] = json!(format!("rack-{}", at % 7));
            }
        }
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("node-{at}"), "uid": format!("uid-node-{at}"),
                "labels": labels},
            "spec": {"taints": taints, "unschedulable": self.rng.u8(..20) == 0},
            "status": {"allocatable": allocatable},
        });
        self.show(&node, true);
        self.nodes.insert(at, node);
    }

    fn new_pods(&mut self) {
        for _ in 0..self.rng.usize(1..9) {
            self.made += 1;
            let mut requests = json!({});
            if self.rng.u8(..8) != 0 {
                requests["cpu"] = json!(format!("{}m", self.rng.u32(1..900)));
            }
            if self.rng.u8(..8) != 0 {
                requests["memory"] = json!(format!("{}Ki", self.rng.u32(1..2_000_000)));
            }
            if self.rng.u8(..20) == 0 {
                requests["example.com/gpu"] = json!("1");
            }
            let uid = format!("uid-{}", self.made);
            let mut pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("pod-{}", self.made), "namespace": "ns", "uid": uid,
                    "labels": {"app": format!("app-{}", self.made)}},
                "spec": {"schedulerName": "default-scheduler",
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]},
            });
            match self.rng.u8(..60) {
                0 => {
                    pod["spec"]["containers"][0]["ports"] =
                        json!([{"hostPort": 80, "containerPort": 80}]);
                }
                1 => {
                    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
                }
                2 => {
                    pod["spec"]["priority"] = json!(5);
                }
                _ => {}
            }
            if self.has_constraints {
                constrain(&mut self.rng, &mut pod);
            }
            self.show(&pod, true);
            self.pods.insert(uid, pod);
        }
    }

    fn delete_pods(&mut self) {
        for _ in 0..self.rng.usize(1..9) {
            let all = self.pods.len();
            let at = self.rng.usize(..all.max(1));
            let Some(uid) = self.pods.keys().nth(at).cloned() else {
                return;
            };
            if let Some(pod) = self.pods.remove(&uid) {
                self.show(&pod, false);
            }
        }
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(self.rng.u64(1..4_000));
        match self.rng.u8(..16) {
            0..=9 => self.new_pods(),
            10..=12 => self.delete_pods(),
            13 | 14 => self.set_node(),
            _ => {
                let at = self.rng.usize(..60);
                if let Some(node) = self.nodes.remove(&at) {
                    self.show(&node, false);
                }
            }
        }
        loop {
            self.now = self.now + Duration::from_millis(1);
            let outcome = self.core.schedule_one(self.now);
            self.answer();
            if !matches!(outcome, ScheduleOutcome::Done { .. }) {
                break;
            }
        }
    }

    fn answer(&mut self) {
        loop {
            let calls = self.core.take_outputs(self.now).calls;
            if calls.is_empty() {
                return;
            }
            for (id, call) in calls {
                self.core.complete(id, Ok(Response::default()), self.now);
                let Some(uid) = call.pod().map(|pod| pod.uid.to_string()) else {
                    continue;
                };
                let Some(mut pod) = self.pods.remove(&uid) else {
                    continue;
                };
                match call {
                    ApiCall::DeletePod { .. } => {
                        self.show(&pod, false);
                        continue;
                    }
                    ApiCall::BindPod { node, .. } => {
                        pod["spec"]["nodeName"] = json!(node.as_str());
                        self.show(&pod, true);
                    }
                    _ => {}
                }
                self.pods.insert(uid, pod);
            }
        }
    }
}

fn play(seeds: impl Iterator<Item = u64>) {
    let (mut clusters, mut kept, mut made) = ([0; 2], [0; 2], [0; 2]);
    for seed in seeds {
        let played = std::panic::catch_unwind(|| {
            let mut cluster = Cluster::new(seed);
            (0..STEPS).for_each(|_| cluster.step());
            cluster.core.answer_cache().counts()
        });
        let counts = played.unwrap_or_else(|cause| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(cause)
        });
        let of = usize::from(seed % 2 == 1);
        clusters[of] += 1;
        kept[of] += counts.kept;
        made[of] += counts.group_answers;
    }
    for (of, constraints) in ["without", "with"].into_iter().enumerate() {
        let (clusters, kept, made) = (clusters[of], kept[of], made[of]);
        eprintln!(
            "{clusters} clusters {constraints} constraints: {made} sets of answers for {kept} decisions"
        );
        assert!(made >= 30 * clusters, "only {made} for {kept}");
    }
}

#[test]
fn decisions_about_unlike_pods_are_those_of_the_plain_evaluator() {
    play(0..12);
}

/// Other clusters in each run.
#[test]
#[ignore = "long; a step of .ci/run"]
fn decisions_about_unlike_pods_are_right_in_fresh_clusters() {
    let first = RandomState::new().hash_one(()) % (1 << 40);
    eprintln!("fresh seeds from {first} on");
    play(first..first + 300);
}
