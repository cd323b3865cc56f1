//! The followed agree with the extension points after every change.
//!
//! Clusters, pods and changes are drawn from few names, labels and keys. A case that fails is made smaller by leaving
//! out step after step, and printed with its seed.

use super::super::{PodTopologySpread, PodTopologySpreadArgs};
use super::counts::MISSING;
use super::*;
use crate::testing::{full_pod, node};
use berth_api::{Kind, Object, Str, Time};
use berth_framework::keep::Class;
use berth_framework::plugin::{Filter, PreFilter, PreFilterResult, PreScore, Score};
use berth_framework::table::{PodSignatures, TableChange};
use berth_framework::{Cluster, CycleState, FeatureGates};
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// To try a seed again, make it the only one.
const SEEDS: Range<u64> = 0..1500;

/// Something that happens to the cluster.
#[derive(Debug, Clone)]
enum Op {
    SetNode(String, Value),
    RemoveNode(String),
    AddPod(String, String, Value),
    RemovePod(String),
    SetService(String, Value),
    RemoveService(String),
    /// The ledgers catch up and are compared. The number selects the feasible nodes; zero selects the nodes that pass
    /// the filter.
    CatchUp(u64),
}

#[derive(Debug, Clone)]
struct Case {
    args: Value,
    /// The first pod opens the ledgers; the others use them if they have the same fragment.
    pods: Vec<Value>,
    ops: Vec<Op>,
}

fn pick<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())].clone()
}

fn chance(rng: &mut Rng, one_in: u32) -> bool {
    rng.u32(..one_in) == 0
}

const KEYS: [&str; 4] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "rack",
    "topology.kubernetes.io/zone",
];

fn labels(rng: &mut Rng) -> Value {
    let mut labels = json!({"app": pick(rng, &["x", "x", "y"])});
    if chance(rng, 2) {
        labels["tier"] = json!(pick(rng, &["1", "2"]));
    }
    labels
}

fn some_node(rng: &mut Rng, name: &str, zones: u32) -> Value {
    let mut labels = json!({});
    if !chance(rng, 8) {
        let host = if chance(rng, 8) { "shared" } else { name };
        labels["kubernetes.io/hostname"] = json!(host);
    }
    if !chance(rng, 8) {
        labels["topology.kubernetes.io/zone"] = match rng.u32(..12) {
            0 => json!(""),
            _ => json!(format!("z{}", rng.u32(..zones))),
        };
    }
    if chance(rng, 2) {
        labels["rack"] = json!(format!("r{}", rng.u32(..9)));
    }
    if chance(rng, 3) {
        labels["disk"] = json!("ssd");
    }
    let mut spec = json!({});
    if chance(rng, 6) {
        spec["taints"] =
            json!([{"key": "t", "effect": pick(rng, &["NoSchedule", "PreferNoSchedule"])}]);
    }
    json!({"metadata": {"labels": labels}, "spec": spec})
}

fn selector(rng: &mut Rng) -> Value {
    match rng.u32(..8) {
        0 => Value::Null,
        1 => json!({}),
        2 => json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
        3 => json!({"matchLabels": {"app": "y"}}),
        _ => json!({"matchLabels": {"app": "x"}}),
    }
}

fn constraint(rng: &mut Rng, action: &str) -> Value {
    let mut constraint = json!({
        "maxSkew": rng.i32(1..4),
        "topologyKey": pick(rng, &KEYS),
        "whenUnsatisfiable": action,
        "labelSelector": selector(rng),
    });
    if chance(rng, 4) {
        constraint["minDomains"] = json!(rng.i32(1..5));
    }
    if chance(rng, 4) {
        constraint["nodeAffinityPolicy"] = json!(pick(rng, &["Honor", "Ignore"]));
    }
    if chance(rng, 4) {
        constraint["nodeTaintsPolicy"] = json!(pick(rng, &["Honor", "Ignore"]));
    }
    if chance(rng, 4) {
        constraint["matchLabelKeys"] = json!(["tier"]);
    }
    constraint
}

fn waiting_pod(rng: &mut Rng) -> Value {
    let mut spec = json!({});
    let mut constraints = Vec::new();
    if !chance(rng, 4) {
        for action in ["DoNotSchedule", "ScheduleAnyway"] {
            constraints.extend((0..rng.u32(..3)).map(|_| constraint(rng, action)));
        }
    }
    spec["topologySpreadConstraints"] = json!(constraints);
    if chance(rng, 4) {
        spec["nodeSelector"] = json!({"disk": "ssd"});
    }
    if chance(rng, 4) {
        spec["tolerations"] = json!([{"key": "t", "operator": "Exists"}]);
    }
    let namespace = pick(rng, &["default", "default", "other"]);
    json!({"metadata": {"namespace": namespace, "labels": labels(rng)}, "spec": spec})
}

fn variant(rng: &mut Rng, pod: &Value) -> Value {
    let mut pod = pod.clone();
    match rng.u32(..4) {
        0 => pod["metadata"]["labels"] = labels(rng),
        1 => pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]),
        2 => pod["spec"]["nodeSelector"] = json!({"disk": "ssd"}),
        _ => pod["spec"]["priority"] = json!(rng.i32(..9)),
    }
    pod
}

fn placed_pod(rng: &mut Rng) -> Value {
    let namespace = pick(rng, &["default", "default", "default", "other"]);
    let mut metadata = json!({"namespace": namespace, "labels": labels(rng)});
    if chance(rng, 8) {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    json!({ "metadata": metadata })
}

impl Case {
    fn new(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let args = match rng.u32(..4) {
            0 => {
                let mut keys = KEYS[..3].to_vec();
                rng.shuffle(&mut keys);
                let list: Vec<Value> = keys[..rng.usize(..3)]
                    .iter()
                    .map(|key| {
                        let action = pick(rng, &["DoNotSchedule", "ScheduleAnyway"]);
                        json!({"maxSkew": rng.i32(1..4), "topologyKey": key, "whenUnsatisfiable": action})
                    })
                    .collect();
                json!({"defaultingType": "List", "defaultConstraints": list})
            }
            _ => Value::Null,
        };
        let pod = waiting_pod(rng);
        let mut pods = vec![pod.clone()];
        pods.extend((0..2).map(|_| variant(rng, &pod)));
        // In some cases there are large domains, and domains that become large or small.
        let (nodes, zones) = pick(rng, &[(4, 2), (8, 3), (24, 1), (40, 2)]);
        let mut ops = Vec::new();
        for at in 0..rng.u32(nodes / 2..=nodes) {
            let name = format!("n{at}");
            let fields = some_node(rng, &name, zones);
            ops.push(Op::SetNode(name, fields));
        }
        for _ in 0..rng.u32(20..80) {
            let name = format!("n{}", rng.u32(..nodes));
            ops.push(match rng.u32(..24) {
                0..2 => {
                    let fields = some_node(rng, &name, zones);
                    Op::SetNode(name, fields)
                }
                2 => Op::RemoveNode(name),
                3..12 => Op::AddPod(format!("p{}", rng.u32(..60)), name, placed_pod(rng)),
                12..16 => Op::RemovePod(format!("p{}", rng.u32(..60))),
                16 => Op::SetService(pick(rng, &["s", "t"]).to_owned(), labels(rng)),
                17 => Op::RemoveService(pick(rng, &["s", "t"]).to_owned()),
                _ => Op::CatchUp(if rng.bool() { 0 } else { rng.u64(..) }),
            });
        }
        ops.push(Op::CatchUp(0));
        Self { args, pods, ops }
    }

    /// Returns whether the ledger agrees with the extension points; the error contains the difference.
    fn check(&self) -> Result<(), String> {
        let run = || Run::new(self).follow(&self.ops);
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => result,
            Err(panic) => Err(match panic.downcast_ref::<String>() {
                Some(text) => format!("it panicked: {text}"),
                None => "it panicked".to_owned(),
            }),
        }
    }

    /// The same with as few steps as will do.
    fn smaller(mut self) -> Self {
        let mut at = self.ops.len();
        while at > 0 {
            at -= 1;
            let mut fewer = self.clone();
            fewer.ops.remove(at);
            if fewer.check().is_err() {
                self = fewer;
            }
        }
        self
    }
}

/// The answers for a pod: the status of each node, and the scores of the feasible nodes; `None` if the plugin does not
/// score the pod.
type Answers = (BTreeMap<Slot, Status>, Option<BTreeMap<Slot, i64>>);

struct FollowedLedger {
    ledger: Box<dyn Ledger>,
    classes: BTreeMap<Slot, Class>,
}

struct Run {
    plugin: PodTopologySpread,
    pods: Vec<Arc<PodInfo>>,
    cluster: Cluster,
    features: FeatureGates,
    on: BTreeMap<String, String>,
    opened: Option<(Vec<u8>, Option<FollowedLedger>)>,
    read_to: u64,
    compared: usize,
}

fn class_of(ledger: &dyn Ledger, slot: Slot) -> Class {
    let mut class = Class::from_elem(0, ledger.state().class_len);
    ledger.write_classes(&[slot], &mut class);
    class
}

impl Run {
    fn new(case: &Case) -> Self {
        let args = PodTopologySpreadArgs::decode(&case.args).expect("arguments");
        let pods = case.pods.iter();
        let pods = pods.map(|pod| Arc::new(PodInfo::new(Arc::new(full_pod("p", pod.clone())))));
        Self {
            plugin: PodTopologySpread::new(args),
            pods: pods.collect(),
            cluster: Cluster::default(),
            features: FeatureGates::default(),
            on: BTreeMap::new(),
            opened: None,
            read_to: 0,
            compared: 0,
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            now: Time::from_secs(1_000),
            cluster: &self.cluster,
            features: &self.features,
            work: None,
        }
    }

    fn follow(&mut self, ops: &[Op]) -> Result<(), String> {
        ops.iter().try_for_each(|op| self.step(op))
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::SetNode(name, fields) => {
                let node = node(name, fields.clone());
                self.cluster.nodes.set_node(Arc::new(node));
            }
            Op::RemoveNode(name) => {
                self.cluster.nodes.remove_node(name);
            }
            Op::AddPod(name, node, fields) => {
                if !self.on.contains_key(name) {
                    let pod = PodInfo::new(Arc::new(full_pod(name, fields.clone())));
                    self.cluster.nodes.add_pod(&Str::new(node), Arc::new(pod));
                    self.on.insert(name.clone(), node.clone());
                }
            }
            Op::RemovePod(name) => {
                if let Some(node) = self.on.remove(name) {
                    let removed = self.cluster.nodes.remove_pod(&node, name);
                    removed.map_err(|error| error.to_string())?;
                }
            }
            Op::SetService(name, selector) => {
                let service = json!({
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"selector": selector},
                });
                let service = Kind::Service.decode(service.to_string().as_bytes());
                self.cluster.set(&service.expect("a service"));
            }
            Op::RemoveService(name) => {
                let services = self.cluster.workloads().services();
                if let Some(service) = services.get("default", name).cloned() {
                    self.cluster.unset(&Object::Service(service));
                }
            }
            Op::CatchUp(choice) => {
                self.catch_up()?;
                self.compare(*choice)?;
            }
        }
        Ok(())
    }

    /// Follows the changes as the evaluator does: a changed node is reported once, without the changes of its pods.
    fn catch_up(&mut self) -> Result<(), String> {
        let end = self.cluster.nodes.log().end();
        let since = std::mem::replace(&mut self.read_to, end);
        let Some((key, mut followed)) = self.opened.take() else {
            return Ok(());
        };
        if let Some(followed) = &mut followed {
            followed.follow(&self.context(), since)?;
        }
        self.opened = Some((key, followed));
        Ok(())
    }

    fn fragment(&self, pod: &PodInfo) -> Vec<u8> {
        let mut fragment = Fragment::default();
        let kept = self.plugin.fragment(&self.context(), pod, &mut fragment);
        assert_eq!(kept, Kept::ByFragment);
        fragment.as_bytes().to_vec()
    }

    fn compare(&mut self, choice: u64) -> Result<(), String> {
        let key = self.fragment(&self.pods[0]);
        if self
            .opened
            .as_ref()
            .is_none_or(|(opened, _)| *opened != key)
        {
            let cx = self.context();
            let ledger = self.plugin.open(&cx, &self.pods[0]);
            let followed = ledger.map(|ledger| FollowedLedger::new(ledger, &self.cluster));
            self.opened = Some((key.clone(), followed));
        }
        let Some((_, followed)) = &self.opened else {
            return Ok(());
        };
        let mut compared = 0;
        for pod in &self.pods {
            if self.fragment(pod) != key {
                continue;
            }
            let feasible = self.feasible(pod, choice);
            let expected = self.plain(pod, &feasible);
            let got = match followed {
                None => {
                    let success =
                        |view: berth_framework::NodeView<'_>| (view.slot(), Status::success());
                    (self.cluster.nodes.iter().map(success).collect(), None)
                }
                Some(followed) => followed.answers(&feasible),
            };
            if got != expected {
                return Err(format!("got {got:#?}\nexpected {expected:#?}"));
            }
            compared += 1;
        }
        self.compared += compared;
        Ok(())
    }

    /// The nodes that the plugin lets pass, or any.
    fn feasible(&self, pod: &PodInfo, choice: u64) -> Vec<Slot> {
        let all: Vec<Slot> = self.cluster.nodes.iter().map(|view| view.slot()).collect();
        if choice != 0 {
            let rng = &mut Rng::with_seed(choice);
            return all.into_iter().filter(|_| rng.bool()).collect();
        }
        let (statuses, _) = self.plain(pod, &[]);
        all.into_iter()
            .filter(|slot| statuses[slot].is_success())
            .collect()
    }

    fn plain(&self, pod: &PodInfo, feasible: &[Slot]) -> Answers {
        let cx = &self.context();
        let state = &mut CycleState::default();
        let filters = match self.plugin.pre_filter(cx, state, pod) {
            PreFilterResult::Skip => false,
            PreFilterResult::AllNodes => true,
            other => panic!("PreFilter returned {other:?}"),
        };
        let statuses = self.cluster.nodes.iter().map(|view| {
            let status = if filters {
                self.plugin.filter(cx, state, pod, view)
            } else {
                Status::success()
            };
            (view.slot(), status)
        });
        let statuses = statuses.collect();
        if feasible.is_empty() || self.plugin.pre_score(cx, state, pod, feasible).is_skip() {
            return (statuses, None);
        }
        let mut scores: Vec<(Slot, i64)> = feasible
            .iter()
            .map(|slot| {
                let view = cx.cluster.nodes.get(*slot).expect("a node");
                let score = self.plugin.score(cx, state, pod, view);
                (*slot, score.expect("a score"))
            })
            .collect();
        let status = self.plugin.normalize(cx, state, pod, &mut scores);
        assert!(status.is_success());
        (statuses, Some(scores.into_iter().collect()))
    }
}

impl FollowedLedger {
    fn new(ledger: Box<dyn Ledger>, cluster: &Cluster) -> Self {
        let mut followed = Self {
            ledger,
            classes: BTreeMap::new(),
        };
        for view in cluster.nodes.iter() {
            followed.read(view.slot());
        }
        followed
    }

    fn read(&mut self, slot: Slot) {
        let class = class_of(&*self.ledger, slot);
        self.classes.insert(slot, class);
    }

    fn follow(&mut self, cx: &Context<'_>, since: u64) -> Result<(), String> {
        let nodes = &cx.cluster.nodes;
        let changes = || nodes.log().since(since).expect("few changes");
        let of_node = |change: &TableChange| matches!(change, TableChange::Node(_));
        let whole: BTreeSet<Slot> = changes()
            .filter(|c| of_node(c))
            .filter_map(TableChange::slot)
            .collect();
        let mut notified = BTreeSet::new();
        let mut changed = Vec::new();
        for change in changes() {
            let Some(slot) = change.slot() else {
                continue;
            };
            let (pod, is_added) = match change {
                _ if whole.contains(&slot) => {
                    if notified.insert(slot) {
                        let change = LedgerChange::Node;
                        self.ledger.follow(cx, slot, change, &mut changed);
                    }
                    continue;
                }
                TableChange::PodAdded(_, pod) => (pod, true),
                TableChange::PodRemoved(_, pod) => (pod, false),
                TableChange::Node(_) | TableChange::Storage(_) | TableChange::Claim { .. } => {
                    continue;
                }
            };
            let before = changed.len();
            let concerned = self.ledger.concerns(cx, pod);
            let change = LedgerChange::Pod {
                pod,
                signatures: &PodSignatures::of_pod(pod),
                is_added,
            };
            self.ledger.follow(cx, slot, change, &mut changed);
            if !concerned && changed.len() > before {
                return Err(format!("{} was not to change anything", pod.pod.key()));
            }
        }
        changed.extend(whole);
        for slot in changed {
            if nodes.get(slot).is_some() {
                self.read(slot);
            } else {
                self.classes.remove(&slot);
            }
        }
        for view in nodes.iter() {
            let class = class_of(&*self.ledger, view.slot());
            if self.classes.get(&view.slot()) != Some(&class) {
                return Err(format!(
                    "it was not reported that {} is {class:?} now",
                    view.name()
                ));
            }
        }
        Ok(())
    }

    fn answers(&self, feasible: &[Slot]) -> Answers {
        let status = |class: &Class| self.ledger.filter(class).err().unwrap_or_default();
        let statuses = self
            .classes
            .iter()
            .map(|(slot, class)| (*slot, status(class)));
        let mut groups: BTreeMap<&Class, usize> = BTreeMap::new();
        for slot in feasible {
            *groups.entry(&self.classes[slot]).or_default() += 1;
        }
        let classes: Vec<FeasibleClass<'_>> = groups
            .iter()
            .map(|(class, nodes)| FeasibleClass {
                class,
                nodes: *nodes,
            })
            .collect();
        let mut scores = vec![0; classes.len()];
        let scored = !feasible.is_empty() && self.ledger.score(&classes, &mut scores);
        let by_class: BTreeMap<&Class, i64> = groups.into_keys().zip(scores).collect();
        let of = |slot: &Slot| (*slot, by_class[&self.classes[slot]]);
        let scores = scored.then(|| feasible.iter().map(of).collect());
        (statuses.collect(), scores)
    }
}

/// PL-95 to PL-105.
#[test]
fn ledgers_answer_as_the_extension_points() {
    for seed in SEEDS {
        let case = Case::new(seed);
        if case.check().is_err() {
            let case = case.smaller();
            let why = case.check().err().unwrap_or_default();
            panic!("seed {seed}: {case:#?}\n{why}");
        }
    }
}

/// The cases are not all about nothing.
#[test]
fn the_cases_are_of_every_kind() {
    let (mut compared, mut turned_down, mut scored, mut large) = (0, 0, 0, 0);
    for seed in 0..200 {
        let case = Case::new(seed);
        let mut run = Run::new(&case);
        assert_eq!(run.follow(&case.ops), Ok(()), "seed {seed}");
        compared += run.compared;
        let Some((_, Some(followed))) = &run.opened else {
            continue;
        };
        let (statuses, scores) = followed.answers(&run.feasible(&run.pods[0], 0));
        turned_down += usize::from(statuses.values().any(|status| !status.is_success()));
        let differ =
            |scores: BTreeMap<Slot, i64>| scores.values().collect::<BTreeSet<_>>().len() > 1;
        scored += usize::from(scores.is_some_and(differ));
        large += usize::from(
            followed
                .classes
                .values()
                .flatten()
                .any(|n| *n < MISSING && *n != IGNORED),
        );
    }
    let kinds = [compared / 10, turned_down, scored, large];
    assert!(kinds.into_iter().all(|kind| kind >= 10), "{kinds:?}");
}

/// Hosts with equal numbers of pods are one class; zones are separate classes. An added pod changes the class of its
/// own host only.
#[test]
fn there_are_few_classes_and_few_changes() {
    let mut cluster = Cluster::default();
    let features = FeatureGates::default();
    for at in 0..300 {
        let labels = json!({
            "kubernetes.io/hostname": format!("n{at}"),
            "topology.kubernetes.io/zone": format!("z{}", at % 3),
        });
        let fields = json!({"metadata": {"labels": labels}});
        let node = node(&format!("n{at}"), fields);
        cluster.nodes.set_node(Arc::new(node));
    }
    let constraint = |key: &str, action: &str| {
        json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action,
            "labelSelector": {"matchLabels": {"app": "x"}}})
    };
    let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
    let constraints = [
        constraint(host, "DoNotSchedule"),
        constraint(zone, "DoNotSchedule"),
        constraint(host, "ScheduleAnyway"),
    ];
    let labelled = |name: &str| {
        let fields = json!({
            "metadata": {"labels": {"app": "x"}},
            "spec": {"topologySpreadConstraints": constraints},
        });
        Arc::new(PodInfo::new(Arc::new(full_pod(name, fields))))
    };
    let plugin = PodTopologySpread::default();
    fn context<'a>(cluster: &'a Cluster, features: &'a FeatureGates) -> Context<'a> {
        Context {
            now: Time::from_secs(1_000),
            cluster,
            features,
            work: None,
        }
    }
    let opened = plugin.open(&context(&cluster, &features), &labelled("p"));
    let mut ledger = opened.expect("there are constraints");
    let classes = |ledger: &dyn Ledger, cluster: &Cluster| -> BTreeSet<Class> {
        let nodes = cluster.nodes.iter();
        nodes.map(|view| class_of(ledger, view.slot())).collect()
    };
    assert_eq!(classes(&*ledger, &cluster).len(), 3);
    let other = labelled("q");
    let slot = cluster.nodes.add_pod(&"n7".into(), other.clone());
    let mut changed = Vec::new();
    let cx = context(&cluster, &features);
    let change = LedgerChange::Pod {
        pod: &other,
        signatures: &PodSignatures::of_pod(&other),
        is_added: true,
    };
    ledger.follow(&cx, slot, change, &mut changed);
    assert_eq!(changed, [slot]);
    assert_eq!(classes(&*ledger, &cluster).len(), 4);
    let bytes = ledger.state().bytes;
    assert!(bytes < 300 * 300, "{bytes} bytes");
}
