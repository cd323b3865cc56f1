//! Kept answers and answers about many nodes at once are those that each node gets when it is asked about alone.
//!
//! Clusters, pods and arguments are drawn from few names and amounts, so that they often have something in common.
//! The seed is printed with a failure.

use crate::in_tree;
use crate::testing::{full_pod, node};
use berth_api::{Kind, Time};
use berth_framework::keep::{Fragment, Kept};
use berth_framework::plugin::{Context, PreFilterResult};
use berth_framework::registry::{Extensions, FactoryContext};
use berth_framework::{Cluster, CycleState, FeatureGates, PodInfo, Slot, Status};
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

/// To try a seed again, make it the only one.
const SEEDS: Range<u64> = 0..400;

fn pick<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())].clone()
}

fn chance(rng: &mut Rng, one_in: u32) -> bool {
    rng.u32(..one_in) == 0
}

fn some<T>(rng: &mut Rng, max: usize, mut make: impl FnMut(&mut Rng) -> T) -> Vec<T> {
    (0..rng.usize(..=max)).map(|_| make(rng)).collect()
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const IMAGES: [&str; 3] = ["web", "db:1", "host:5000/cache"];
const RESOURCES: [&str; 5] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "example.com/gpu",
    "example.com/nic",
];

/// An amount, now and then so large that sums and products of it do not fit into 64 bits.
fn amount(rng: &mut Rng) -> Value {
    match rng.u32(..20) {
        0 => json!(i64::MAX / 3),
        1 => json!(0),
        _ => json!(rng.i64(1..12)),
    }
}

fn resources(rng: &mut Rng, one_in: u32) -> Value {
    let mut list = json!({});
    for name in RESOURCES {
        if chance(rng, one_in) {
            list[name] = amount(rng);
        }
    }
    list
}

fn some_node(rng: &mut Rng, name: &str) -> Value {
    let mut allocatable = resources(rng, 2);
    for name in ["cpu", "memory"] {
        if !chance(rng, 8) {
            allocatable[name] = json!(rng.i64(4..40));
        }
    }
    if !chance(rng, 8) {
        allocatable["pods"] = json!(rng.i64(0..6));
    }
    let taints = some(
        rng,
        2,
        |rng| json!({"key": pick(rng, &["a", "b"]), "value": "1", "effect": pick(rng, &EFFECTS)}),
    );
    let images = some(rng, 2, |rng| {
        let name = pick(
            rng,
            &["web:latest", "db:1", "host:5000/cache:latest", "other:1"],
        );
        json!({"names": [name], "sizeBytes": rng.i64(1..2_000) * 1024 * 1024})
    });
    let features = some(rng, 2, |rng| {
        pick(
            rng,
            &[
                "UserNamespacesHostNetworkSupport",
                "RestartAllContainersOnContainerExits",
            ],
        )
    });
    json!({
        "metadata": {"name": name, "labels": {"zone": pick(rng, &["1", "2", "3"])}},
        "spec": {"unschedulable": chance(rng, 4), "taints": taints},
        "status": {"allocatable": allocatable, "images": images, "declaredFeatures": features},
    })
}

fn expression(rng: &mut Rng) -> Value {
    let operator = pick(
        rng,
        &["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Bad"],
    );
    let values: Vec<&str> = match operator {
        "Exists" | "DoesNotExist" => vec![],
        _ => vec![pick(rng, &["1", "2", "3"])],
    };
    json!({"key": pick(rng, &["zone", "rack"]), "operator": operator, "values": values})
}

fn term(rng: &mut Rng) -> Value {
    let expressions = some(rng, 2, expression);
    if chance(rng, 4) {
        let name = format!("n{}", rng.u32(..8));
        let field = json!({"key": "metadata.name", "operator": "In", "values": [name]});
        return json!({"matchExpressions": expressions, "matchFields": [field]});
    }
    json!({ "matchExpressions": expressions })
}

fn container(rng: &mut Rng, at: usize) -> Value {
    let mut container = json!({
        "name": format!("c{at}"),
        "image": pick(rng, &IMAGES),
        "resources": {"requests": resources(rng, 3)},
    });
    if chance(rng, 4) {
        container["ports"] = json!([{"hostPort": rng.i32(80..83)}]);
    }
    if chance(rng, 8) {
        container["restartPolicyRules"] = json!([{"action": "RestartAllContainers"}]);
    }
    container
}

fn some_pod(rng: &mut Rng) -> Value {
    let mut at = 0;
    let mut containers = |rng: &mut Rng, max| {
        some(rng, max, |rng| {
            at += 1;
            container(rng, at)
        })
    };
    let mut spec = json!({"containers": containers(rng, 2)});
    if chance(rng, 4) {
        spec["initContainers"] = json!(containers(rng, 1));
    }
    if chance(rng, 4) {
        spec["nodeSelector"] = json!({"zone": pick(rng, &["1", "2"])});
    }
    if chance(rng, 3) {
        let required = some(rng, 2, term);
        spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({ "nodeSelectorTerms": required });
    }
    if chance(rng, 3) {
        let preferred = some(
            rng,
            2,
            |rng| json!({"weight": rng.i32(0..9), "preference": term(rng)}),
        );
        spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!(preferred);
    }
    if chance(rng, 2) {
        spec["tolerations"] = json!(some(rng, 2, |rng| {
            let key = pick(rng, &["", "a", "b", "node.kubernetes.io/unschedulable"]);
            json!({"key": key, "operator": "Exists", "effect": pick(rng, &["", "NoSchedule", "PreferNoSchedule"])})
        }));
    }
    if chance(rng, 8) {
        spec["nodeName"] = json!(format!("n{}", rng.u32(..8)));
    }
    if chance(rng, 6) {
        spec["resources"] = json!({"requests": {"cpu": amount(rng), "memory": amount(rng)}});
    }
    if chance(rng, 6) {
        spec["hostNetwork"] = json!(true);
        spec["hostUsers"] = json!(false);
    }
    if chance(rng, 8) {
        spec["overhead"] = json!({"cpu": amount(rng)});
    }
    if chance(rng, 6) {
        let source = pick(
            rng,
            &[
                json!({"persistentVolumeClaim": {"claimName": "c"}}),
                json!({"ephemeral": {}}),
                json!({"awsElasticBlockStore": {"volumeID": "v"}}),
                json!({"emptyDir": {}}),
            ],
        );
        spec["volumes"] = json!([source]);
        spec["volumes"][0]["name"] = json!("v");
    }
    if chance(rng, 12) {
        spec["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    }
    let mut status = json!({});
    if chance(rng, 10) {
        status["containerStatuses"] = json!([{
            "name": "c1",
            "resources": {"requests": {"cpu": amount(rng)}},
            "allocatedResources": {"memory": amount(rng)},
        }]);
    }
    json!({"spec": spec, "status": status})
}

/// The arguments of a plugin: often the defaults.
fn args(rng: &mut Rng, plugin: &str) -> Value {
    let scored = some(
        rng,
        4,
        |rng| json!({"name": pick(rng, &RESOURCES), "weight": rng.i64(1..=100)}),
    );
    match plugin {
        "NodeResourcesFit" if chance(rng, 2) => {
            let kind = pick(
                rng,
                &[
                    "LeastAllocated",
                    "MostAllocated",
                    "RequestedToCapacityRatio",
                ],
            );
            let mut strategy = json!({"type": kind, "resources": scored});
            if kind == "RequestedToCapacityRatio" {
                let points = json!([{"utilization": 0, "score": rng.i64(0..=10)}, {"utilization": 70, "score": 10}]);
                strategy["requestedToCapacityRatio"] = json!({ "shape": points });
            }
            let ignored = some(rng, 1, |_| "example.com/nic");
            json!({"scoringStrategy": strategy, "ignoredResources": ignored})
        }
        "NodeResourcesBalancedAllocation" if chance(rng, 2) => {
            let mut names: Vec<_> = scored.iter().map(|entry| entry["name"].clone()).collect();
            names.sort_by_key(ToString::to_string);
            names.dedup();
            let scored: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
            json!({ "resources": scored })
        }
        _ => Value::Null,
    }
}

struct World {
    cluster: Cluster,
    features: FeatureGates,
    pods: u32,
}

impl World {
    fn new(rng: &mut Rng) -> Self {
        let mut world = Self {
            cluster: Cluster::default(),
            features: FeatureGates::default(),
            pods: 0,
        };
        for _ in 0..rng.usize(1..12) {
            world.change(rng);
        }
        world
    }

    fn change(&mut self, rng: &mut Rng) {
        let name = format!("n{}", rng.u32(..8));
        match rng.u32(..10) {
            0..5 => {
                let fields = some_node(rng, &name);
                self.cluster.nodes.set_node(Arc::new(node(&name, fields)));
            }
            5 => {
                self.cluster.nodes.remove_node(&name);
            }
            6 => {
                let class = json!({
                    "metadata": {"name": pick(rng, &["x", "y"])},
                    "spec": {"extendedResourceName": pick(rng, &["example.com/gpu", "example.com/nic"])},
                });
                let class = Kind::DeviceClass.decode(class.to_string().as_bytes());
                self.cluster.set(&class.expect("a class"));
            }
            _ => {
                self.pods += 1;
                let mut fields = some_pod(rng);
                fields["spec"]["nodeName"] = json!(name);
                let pod = full_pod(&format!("there-{}", self.pods), fields);
                let info = Arc::new(PodInfo::new(Arc::new(pod)));
                self.cluster.nodes.add_pod(&name.as_str().into(), info);
            }
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            now: Time::from_secs(1_000),
            cluster: &self.cluster,
            features: &self.features,
        }
    }

    fn slots(&self) -> Vec<Slot> {
        self.cluster.nodes.iter().map(|node| node.slot()).collect()
    }
}

fn plugins(rng: &mut Rng) -> Vec<Extensions> {
    let registry = in_tree();
    let features = &FeatureGates::default();
    let names: Vec<&str> = registry.names().collect();
    let made = names.into_iter().map(|name| {
        let args = &args(rng, name);
        let factory = registry.get(name).expect("it is registered");
        let made = factory.make(&FactoryContext { args, features });
        made.unwrap_or_else(|error| panic!("{name} {args}: {error}"))
    });
    made.filter(|plugin| plugin.keep.is_some()).collect()
}

/// Everything that a plugin says about a pod, node by node, with a state of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Answers {
    pre_filter: String,
    pre_score: Option<Status>,
    filter: BTreeMap<Slot, Status>,
    score: BTreeMap<Slot, Result<i64, Status>>,
}

fn ask(plugin: &Extensions, cx: &Context<'_>, pod: &PodInfo) -> (CycleState, Answers) {
    let mut state = CycleState::default();
    let mut answers = Answers::default();
    let mut filters = true;
    if let Some(point) = &plugin.pre_filter {
        let result = point.pre_filter(cx, &mut state, pod);
        filters = !matches!(result, PreFilterResult::Skip | PreFilterResult::Reject(_));
        write!(answers.pre_filter, "{result:?}").expect("text");
    }
    for view in cx.cluster.nodes.iter() {
        if let Some(point) = plugin.filter.as_ref().filter(|_| filters) {
            let status = point.filter(cx, &state, pod, view);
            answers.filter.insert(view.slot(), status);
        }
    }
    if let Some(point) = &plugin.pre_score {
        answers.pre_score = Some(point.pre_score(cx, &mut state, pod, &[]));
    }
    if answers.pre_score.as_ref().is_none_or(Status::is_success)
        && let Some(point) = &plugin.score
    {
        for view in cx.cluster.nodes.iter() {
            let score = point.score(cx, &state, pod, view);
            answers.score.insert(view.slot(), score);
        }
    }
    (state, answers)
}

fn check_many(plugin: &Extensions, cx: &Context<'_>, rng: &mut Rng, pod: &PodInfo) {
    let (state, alone) = ask(plugin, cx, pod);
    // Slots that hold no node, and some that never were.
    let slots = u32::try_from(cx.cluster.nodes.slots()).expect("few") + 2;
    let mut all: Vec<Slot> = (0..slots).map(Slot::from_index).collect();
    rng.shuffle(&mut all);
    if let Some(point) = plugin.filter.as_ref().filter(|_| !alone.filter.is_empty()) {
        let mut left = all.clone();
        let mut rejected = BTreeMap::new();
        point.filter_many(cx, &state, pod, &mut left, &mut |slot, status| {
            assert!(rejected.insert(slot, status).is_none(), "once each");
        });
        let passed: Vec<Slot> = all
            .iter()
            .copied()
            .filter(|slot| left.contains(slot))
            .collect();
        assert_eq!(left, passed, "{} keeps the order", plugin.name);
        let success = left.into_iter().map(|slot| (slot, Status::success()));
        let together: BTreeMap<Slot, Status> = rejected.into_iter().chain(success).collect();
        assert_eq!(together, alone.filter, "{} filters", plugin.name);
    }
    if let Some(point) = plugin.score.as_ref().filter(|_| !alone.score.is_empty()) {
        let there: Vec<Slot> = all
            .iter()
            .copied()
            .filter(|slot| cx.cluster.nodes.get(*slot).is_some())
            .collect();
        let mut scores = vec![-7];
        let result = point.score_many(cx, &state, pod, &there, &mut scores);
        let expected: Result<Vec<i64>, Status> = [Ok(-7)]
            .into_iter()
            .chain(there.iter().map(|slot| alone.score[slot].clone()))
            .collect();
        assert_eq!(result.map(|()| scores), expected, "{} scores", plugin.name);
    }
}

/// What plugins say about many nodes is what they say about each.
#[test]
fn many_nodes_get_the_answers_of_each() {
    for seed in SEEDS {
        let rng = &mut Rng::with_seed(seed);
        let world = World::new(rng);
        let cx = world.context();
        for plugin in plugins(rng) {
            for _ in 0..4 {
                let fields = some_pod(rng);
                let pod = PodInfo::new(Arc::new(full_pod("p", fields.clone())));
                let check = std::panic::AssertUnwindSafe(|| {
                    check_many(&plugin, &cx, &mut rng.clone(), &pod);
                });
                if let Err(panic) = std::panic::catch_unwind(check) {
                    eprintln!("seed {seed}: {} about {fields}", plugin.name);
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}

/// As long as a fragment and a node stay as they are, so do the answers, whatever else changes; and what PreFilter
/// and PreScore have left behind serves every pod with the fragment.
#[test]
fn answers_depend_on_the_fragment_and_the_node_alone() {
    let mut compared = BTreeMap::<String, u32>::new();
    for seed in SEEDS {
        let rng = &mut Rng::with_seed(seed);
        let mut world = World::new(rng);
        let plugins = plugins(rng);
        let templates: Vec<Value> = (0..6).map(|_| some_pod(rng)).collect();
        let mut known: BTreeMap<(usize, Vec<u8>), Known> = BTreeMap::new();
        for step in 0..12 {
            for (at, plugin) in plugins.iter().enumerate() {
                let cx = world.context();
                let fields = pick(rng, &templates);
                let pod = PodInfo::new(Arc::new(full_pod("p", fields.clone())));
                let mut fragment = Fragment::default();
                let keep = plugin.keep.as_ref().expect("it keeps");
                if keep.fragment(&cx, &pod, &mut fragment) == Kept::Never {
                    continue;
                }
                let key = (at, fragment.as_bytes().to_vec());
                let (state, now) = ask(plugin, &cx, &pod);
                if let Some(before) = known.get(&key) {
                    let place = format!("seed {seed} step {step}: {} {fields}", plugin.name);
                    before.compare(plugin, &cx, &pod, &now, &place);
                    *compared.entry(plugin.name.clone()).or_default() += 1;
                }
                let nodes = &world.cluster.nodes;
                known.insert(
                    key,
                    Known {
                        state,
                        answers: now,
                        seen: world
                            .slots()
                            .into_iter()
                            .map(|slot| (slot, nodes.changed_at(slot)))
                            .collect(),
                    },
                );
            }
            world.change(rng);
        }
    }
    // Each plugin had its say, often.
    if SEEDS.end - SEEDS.start > 1 {
        assert_eq!(compared.len(), 14, "{compared:?}");
        assert!(compared.values().all(|times| *times > 100), "{compared:?}");
    }
}

struct Known {
    state: CycleState,
    answers: Answers,
    seen: BTreeMap<Slot, u64>,
}

impl Known {
    fn compare(
        &self,
        plugin: &Extensions,
        cx: &Context<'_>,
        pod: &PodInfo,
        now: &Answers,
        place: &str,
    ) {
        let before = &self.answers;
        assert_eq!(before.pre_filter, now.pre_filter, "{place}");
        assert_eq!(before.pre_score, now.pre_score, "{place}");
        for view in cx.cluster.nodes.iter() {
            let slot = view.slot();
            let unchanged = self.seen.get(&slot) == Some(&cx.cluster.nodes.changed_at(slot));
            if let Some(status) = now.filter.get(&slot) {
                let filter = plugin.filter.as_ref().expect("it filters");
                let anew = filter.filter(cx, &self.state, pod, view);
                assert_eq!(anew, *status, "{place}: kept state, {}", view.name());
                if unchanged {
                    assert_eq!(before.filter[&slot], *status, "{place}: {}", view.name());
                }
            }
            if let Some(score) = now.score.get(&slot) {
                let point = plugin.score.as_ref().expect("it scores");
                let anew = point.score(cx, &self.state, pod, view);
                assert_eq!(anew, *score, "{place}: kept state, {}", view.name());
                if unchanged {
                    assert_eq!(before.score[&slot], *score, "{place}: {}", view.name());
                }
            }
        }
    }
}
