//! Ledgers against the plain extension points, in random clusters through random changes.

use super::*;
use crate::inter_pod_affinity::InterPodAffinityArgs;
use crate::testing::{full_pod, node};
use berth_api::{Kind, Time};
use berth_framework::keep::Class;
use berth_framework::plugin::{Filter, PreFilter, PreFilterResult, PreScore, Score};
use berth_framework::table::{PodSignatures, TableChange};
use berth_framework::{Cluster, CycleState, FeatureGates};
use fastrand::Rng;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// The number of clusters that are tried, and how often each changes.
const CLUSTERS: u64 = 400;
const ROUNDS: usize = 12;

const NAMESPACES: [&str; 3] = ["default", "red", "blue"];
/// One node each, some nodes each, and a label that seldom is there.
const KEYS: [&str; 3] = ["host", "zone", "rack"];

/// The default, a column for each key, and none.
const DOMAIN_COSTS: [usize; 3] = [DOMAIN_COST, 0, usize::MAX];

/// Generates random objects of a cluster.
struct Chance(Rng);

impl Chance {
    fn one_in(&mut self, n: u32) -> bool {
        self.0.u32(..n) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.0.usize(..list.len())]
    }

    fn node(&mut self, name: &str) -> berth_api::Node {
        let mut labels = json!({});
        for (key, values, present) in [
            ("zone", &["a", "b", "c"][..], 4),
            ("rack", &["1", "2", "3", "4", "5", "6"][..], 2),
        ] {
            if !self.one_in(present) {
                labels[key] = json!(self.of(values));
            }
        }
        if !self.one_in(6) {
            // Hosts usually have their own name.
            let shared = self.one_in(8);
            labels["host"] = json!(if shared { "n0" } else { name });
        }
        node(name, json!({"metadata": {"labels": labels}}))
    }

    fn namespace(&mut self) -> Value {
        let mut labels = json!({});
        if !self.one_in(3) {
            labels["team"] = json!(self.of(&["red", "blue"]));
        }
        labels
    }

    fn selector(&mut self) -> Value {
        match self.0.u32(..10) {
            0 => json!({}),
            1 => json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
            2 => json!({"matchExpressions": [
                {"key": "app", "operator": "NotIn", "values": [self.of(&["x", "y"])]}]}),
            3 => {
                json!({"matchLabels": {"app": self.of(&["x", "y"]), "tier": self.of(&["1", "2"])}})
            }
            4 => json!({"matchLabels": {"tier": self.of(&["1", "2"])}}),
            _ => json!({"matchLabels": {"app": self.of(&["x", "y", "z"])}}),
        }
    }

    fn term(&mut self) -> Value {
        let mut term = json!({"topologyKey": self.of(&KEYS)});
        if !self.one_in(12) {
            term["labelSelector"] = self.selector();
        }
        match self.0.u32(..8) {
            0 => term["namespaces"] = json!([self.of(&NAMESPACES)]),
            1 => term["namespaceSelector"] = json!({}),
            2 => {
                term["namespaceSelector"] =
                    json!({"matchLabels": {"team": self.of(&["red", "blue"])}});
            }
            3 => {
                term["namespaceSelector"] = json!({"matchExpressions": [
                    {"key": "team", "operator": "NotIn", "values": [self.of(&["red", "blue"])]}]});
            }
            _ => {}
        }
        term
    }

    fn terms(&mut self, most: usize) -> Vec<Value> {
        (0..self.0.usize(..=most)).map(|_| self.term()).collect()
    }

    fn weighted(&mut self) -> Vec<Value> {
        let terms = self.terms(2);
        let mut weigh = |term| {
            // Now and then points cancel each other out.
            let weight = self.of(&[0, 1, 1, 50, 100]);
            json!({"weight": weight, "podAffinityTerm": term})
        };
        terms.into_iter().map(&mut weigh).collect()
    }

    fn side(&mut self) -> Value {
        let mut side = json!({});
        if self.one_in(2) {
            side["requiredDuringSchedulingIgnoredDuringExecution"] = json!(self.terms(2));
        }
        if self.one_in(2) {
            side["preferredDuringSchedulingIgnoredDuringExecution"] = json!(self.weighted());
        }
        side
    }

    fn labels(&mut self, name: &str) -> Value {
        let mut labels = json!({});
        for (key, values) in [("app", &["x", "y", "z"][..]), ("tier", &["1", "2"][..])] {
            if !self.one_in(4) {
                labels[key] = json!(self.of(values));
            }
        }
        if self.one_in(2) {
            labels["hash"] = json!(name);
        }
        labels
    }

    fn pod(&mut self, name: &str) -> Arc<PodInfo> {
        let labels = self.labels(name);
        let mut affinity = json!({});
        if self.one_in(3) {
            affinity["podAffinity"] = self.side();
        }
        if self.one_in(3) {
            affinity["podAntiAffinity"] = self.side();
        }
        let namespace = self.of(&NAMESPACES);
        let pod = full_pod(
            name,
            json!({"metadata": {"labels": labels, "namespace": namespace}, "spec": {"affinity": affinity}}),
        );
        Arc::new(PodInfo::new(Arc::new(pod)))
    }

    /// A pod with the terms of another one.
    fn twin(&mut self, name: &str, of: &PodInfo) -> Arc<PodInfo> {
        let mut pod = berth_api::Pod::clone(&of.pod);
        pod.metadata.name = name.into();
        pod.metadata.uid = name.into();
        if !self.one_in(4) {
            let labels = self.labels(name);
            pod.metadata.labels = serde_json::from_value(labels).expect("labels");
        }
        if self.one_in(4) {
            pod.metadata.namespace = self.of(&NAMESPACES).into();
        }
        Arc::new(PodInfo::new(Arc::new(pod)))
    }
}

/// A cluster that changes, and which pods are on which node.
struct Scene {
    chance: Chance,
    cluster: Cluster,
    placed: Vec<(berth_api::Str, Arc<PodInfo>)>,
    /// Every generated pod.
    seen: Vec<Arc<PodInfo>>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut scene = Self {
            chance: Chance(Rng::with_seed(seed)),
            cluster: Cluster::default(),
            placed: Vec::new(),
            seen: Vec::new(),
        };
        for name in NAMESPACES {
            scene.relabel(name);
        }
        for at in 0..scene.chance.0.usize(1..12) {
            let node = scene.chance.node(&format!("n{at}"));
            scene.cluster.nodes.set_node(Arc::new(node));
        }
        for _ in 0..scene.chance.0.usize(..12) {
            scene.place();
        }
        scene
    }

    fn relabel(&mut self, name: &str) {
        let labels = self.chance.namespace();
        let json = json!({"metadata": {"name": name, "labels": labels}}).to_string();
        let namespace = Kind::Namespace
            .decode(json.as_bytes())
            .expect("a namespace");
        self.cluster.set(&namespace);
    }

    /// A pod of a template that was there before, or of a new one.
    fn some_pod(&mut self) -> Arc<PodInfo> {
        let count = self.seen.len();
        let name = format!("p{count}");
        let pod = if count > 0 && self.chance.one_in(2) {
            let of = self.seen[self.chance.0.usize(..count)].clone();
            self.chance.twin(&name, &of)
        } else {
            self.chance.pod(&name)
        };
        self.seen.push(pod.clone());
        pod
    }

    /// Places a pod, perhaps on a node that is not there.
    fn place(&mut self) {
        let pod = self.some_pod();
        let node = berth_api::Str::from(format!("n{}", self.chance.0.usize(..13)));
        self.cluster.nodes.add_pod(&node, pod.clone());
        self.placed.push((node, pod));
    }

    /// Changes something.
    fn change(&mut self) {
        let name = format!("n{}", self.chance.0.usize(..13));
        match self.chance.0.u32(..12) {
            0..5 => self.place(),
            5..8 if self.placed.is_empty() => {}
            5..8 => {
                let at = self.chance.0.usize(..self.placed.len());
                let (node, pod) = self.placed.swap_remove(at);
                let removed = self.cluster.nodes.remove_pod(&node, pod.pod.uid());
                assert!(removed.is_ok(), "it was there");
            }
            8 | 9 => {
                let node = self.chance.node(&name);
                self.cluster.nodes.set_node(Arc::new(node));
            }
            10 => {
                self.cluster.nodes.remove_node(&name);
            }
            _ => {
                let name = self.chance.of(&NAMESPACES);
                self.relabel(name);
            }
        }
    }
}

/// The answers about a pod on every node, and of its scores.
#[derive(Debug, PartialEq)]
struct Answers {
    statuses: Vec<(Slot, Status)>,
    feasible: Vec<Slot>,
    scores: Option<Vec<(Slot, i64)>>,
}

/// The feasible nodes that are scored: all, or a random part as after a search that did not cover all nodes.
fn looked_at(fit: Vec<Slot>, seed: u64) -> Vec<Slot> {
    let mut rng = Rng::with_seed(seed);
    let all = rng.bool();
    fit.into_iter().filter(|_| all || rng.bool()).collect()
}

fn plain(plugin: &InterPodAffinity, cx: &Context<'_>, pod: &PodInfo, seed: u64) -> Answers {
    let mut state = CycleState::default();
    let statuses: Vec<(Slot, Status)> = match plugin.pre_filter(cx, &mut state, pod) {
        PreFilterResult::Skip => cx
            .cluster
            .nodes
            .iter()
            .map(|view| (view.slot(), Status::success()))
            .collect(),
        PreFilterResult::AllNodes => cx
            .cluster
            .nodes
            .iter()
            .map(|view| (view.slot(), plugin.filter(cx, &state, pod, view)))
            .collect(),
        other => panic!("{other:?}"),
    };
    let fit = statuses.iter().filter(|(_, status)| status.is_success());
    let feasible = looked_at(fit.map(|(slot, _)| *slot).collect(), seed);
    let status = plugin.pre_score(cx, &mut state, pod, &feasible);
    let scores = (!feasible.is_empty() && !status.is_skip()).then(|| {
        let mut raw = Vec::new();
        let scored = plugin.score_many(cx, &state, pod, &feasible, &mut raw);
        assert!(scored.is_ok(), "{scored:?}");
        let mut scores: Vec<(Slot, i64)> = feasible.iter().copied().zip(raw).collect();
        plugin.normalize(cx, &state, pod, &mut scores);
        scores
    });
    Answers {
        statuses,
        feasible,
        scores,
    }
}

/// A ledger and the state that an evaluator keeps of it: the classes of the nodes, read again only where the ledger
/// reports a change.
struct Follower {
    ledger: AffinityLedger,
    classes: FxHashMap<Slot, Class>,
    seen: u64,
}

impl Follower {
    fn open(
        plugin: &InterPodAffinity,
        cx: &Context<'_>,
        pod: &Arc<PodInfo>,
        domain_cost: usize,
    ) -> Self {
        let incoming = Incoming::new(&plugin.args, cx.cluster, pod);
        let ledger = AffinityLedger::open(incoming, &cx.cluster.nodes, domain_cost);
        assert!(!ledger.state().is_stale, "just opened");
        let mut follower = Self {
            ledger,
            classes: FxHashMap::default(),
            seen: cx.cluster.nodes.log().end(),
        };
        for view in cx.cluster.nodes.iter() {
            follower.read(cx, view.slot());
        }
        follower
    }

    fn read(&mut self, cx: &Context<'_>, slot: Slot) {
        self.classes.remove(&slot);
        if cx.cluster.nodes.get(slot).is_some() {
            let mut class = Class::from_elem(0, self.ledger.state().class_len);
            self.ledger.write_classes(&[slot], &mut class);
            self.classes.insert(slot, class);
        }
    }

    fn catch_up(&mut self, cx: &Context<'_>) {
        let nodes = &cx.cluster.nodes;
        let log: Vec<&TableChange> = match nodes.log().since(self.seen) {
            Some(changes) => changes.collect(),
            None => panic!("too many changes"),
        };
        let mut recounted: Vec<Slot> = log
            .iter()
            .filter(|change| matches!(change, TableChange::Node(_)))
            .filter_map(|change| change.slot())
            .collect();
        recounted.sort_unstable();
        recounted.dedup();
        let mut changed = Vec::new();
        for change in log {
            let (slot, pod, is_added) = match change {
                TableChange::Node(_) | TableChange::Storage(_) | TableChange::Claim { .. } => {
                    continue;
                }
                TableChange::PodAdded(slot, pod) => (*slot, pod, true),
                TableChange::PodRemoved(slot, pod) => (*slot, pod, false),
            };
            if !recounted.contains(&slot) {
                let change = LedgerChange::Pod {
                    pod,
                    signatures: &PodSignatures::of_pod(pod),
                    is_added,
                };
                self.ledger.follow(cx, slot, change, &mut changed);
            }
        }
        for slot in &recounted {
            let change = LedgerChange::Node;
            self.ledger.follow(cx, *slot, change, &mut changed);
        }
        for slot in recounted.into_iter().chain(changed) {
            self.read(cx, slot);
        }
        self.seen = nodes.log().end();
    }

    fn answers(&self, cx: &Context<'_>, seed: u64) -> Answers {
        let statuses: Vec<(Slot, Status)> = cx
            .cluster
            .nodes
            .iter()
            .map(|view| {
                let verdict = self.ledger.filter(&self.classes[&view.slot()]);
                (view.slot(), verdict.err().unwrap_or_else(Status::success))
            })
            .collect();
        let fit = statuses.iter().filter(|(_, status)| status.is_success());
        let feasible = looked_at(fit.map(|(slot, _)| *slot).collect(), seed);
        let mut nodes: FxHashMap<&Class, usize> = FxHashMap::default();
        for slot in &feasible {
            *nodes.entry(&self.classes[slot]).or_default() += 1;
        }
        let classes: Vec<FeasibleClass<'_>> = nodes
            .iter()
            .map(|(class, nodes)| FeasibleClass {
                class,
                nodes: *nodes,
            })
            .collect();
        let mut of_class = vec![0; classes.len()];
        let has_scores = !classes.is_empty() && self.ledger.score(&classes, &mut of_class);
        let scores = has_scores.then(|| {
            let score = |slot: &Slot| {
                let class = &self.classes[slot][..];
                let at = classes.iter().position(|known| known.class == class);
                of_class[at.expect("its class is there")]
            };
            feasible.iter().map(|slot| (*slot, score(slot))).collect()
        });
        Answers {
            statuses,
            feasible,
            scores,
        }
    }
}

fn plugin(chance: &mut Chance) -> InterPodAffinity {
    InterPodAffinity::new(InterPodAffinityArgs {
        hard_pod_affinity_weight: chance.of(&[0, 1, 1, 7]),
        ignore_preferred_terms_of_existing_pods: chance.one_in(4),
    })
}

fn context<'a>(cluster: &'a Cluster, features: &'a FeatureGates) -> Context<'a> {
    Context {
        now: Time::from_secs(1_000),
        cluster,
        features,
        work: None,
    }
}

fn fragment(plugin: &InterPodAffinity, cx: &Context<'_>, pod: &PodInfo) -> Fragment {
    let mut fragment = Fragment::default();
    assert_eq!(plugin.fragment(cx, pod, &mut fragment), Kept::ByFragment);
    fragment
}

/// For every order of changes and every pod with the fragment: the answer of the ledger is equal to a direct count for
/// that pod. PL-80 to PL-87.
#[test]
fn ledgers_answer_as_the_plain_plugin() {
    let features = FeatureGates::default();
    let (mut asked, mut shared) = (0, 0);
    for seed in 0..CLUSTERS {
        let mut scene = Scene::new(seed);
        let plugin = plugin(&mut scene.chance);
        let mut followers: Vec<(Fragment, Arc<PodInfo>, Follower)> = Vec::new();
        let mut candidates: Vec<Arc<PodInfo>> = (0..3).map(|_| scene.some_pod()).collect();
        for round in 0..ROUNDS {
            for _ in 0..scene.chance.0.usize(..4) {
                scene.change();
            }
            let fresh = scene.some_pod();
            candidates.push(fresh);
            let domain_cost = scene.chance.of(&DOMAIN_COSTS);
            let reader = scene.chance.0.u64(..);
            let cx = context(&scene.cluster, &features);
            for pod in &candidates {
                let own = fragment(&plugin, &cx, pod);
                let at = match followers.iter().position(|(known, _, _)| *known == own) {
                    Some(at) => at,
                    None => {
                        let follower = Follower::open(&plugin, &cx, pod, domain_cost);
                        followers.push((own, pod.clone(), follower));
                        followers.len() - 1
                    }
                };
                let (_, opener, follower) = &mut followers[at];
                follower.catch_up(&cx);
                shared += usize::from(opener.pod.uid() != pod.pod.uid());
                asked += 1;
                assert_eq!(
                    follower.answers(&cx, reader),
                    plain(&plugin, &cx, pod, reader),
                    "seed {seed}, round {round}, {:?} asked the ledger of {:?}:\n{follower:#?}",
                    pod.pod.name(),
                    opener.pod.name(),
                    follower = follower.ledger,
                );
                if follower.ledger.state().is_stale {
                    followers.swap_remove(at);
                }
            }
        }
    }
    assert!(
        asked > 10_000 && shared > 300,
        "{asked} asked, {shared} shared"
    );
}

/// The addition of a pod that concerns no ledger changes no answer.
#[test]
fn pods_that_do_not_concern_a_ledger_change_nothing() {
    let features = FeatureGates::default();
    let (mut concerned, mut unconcerned) = (0, 0);
    for seed in 0..CLUSTERS * 2 {
        let mut scene = Scene::new(seed);
        let plugin = plugin(&mut scene.chance);
        let opener = scene.some_pod();
        let candidates: Vec<Arc<PodInfo>> = (0..12).map(|_| scene.some_pod()).collect();
        let cx = context(&scene.cluster, &features);
        let own = fragment(&plugin, &cx, &opener);
        let follower = Follower::open(&plugin, &cx, &opener, DOMAIN_COST);
        let same: Vec<&Arc<PodInfo>> = candidates
            .iter()
            .chain([&opener])
            .filter(|pod| fragment(&plugin, &cx, pod) == own)
            .collect();
        let before: Vec<Answers> = same
            .iter()
            .map(|pod| plain(&plugin, &cx, pod, seed))
            .collect();
        let coming = scene.some_pod();
        let cx = context(&scene.cluster, &features);
        if follower.ledger.concerns(&cx, &coming) {
            concerned += 1;
            continue;
        }
        unconcerned += 1;
        let slots: Vec<Slot> = scene.cluster.nodes.iter().map(|view| view.slot()).collect();
        for slot in slots {
            scene.cluster.nodes.add_pod_at(slot, coming.clone());
            let cx = context(&scene.cluster, &features);
            for (pod, before) in same.iter().zip(&before) {
                assert_eq!(plain(&plugin, &cx, pod, seed), *before, "seed {seed}");
            }
            let nodes = &mut scene.cluster.nodes;
            assert!(nodes.remove_pod_at(slot, coming.pod.uid()).is_some());
        }
    }
    assert!(
        concerned > 50 && unconcerned > 50,
        "{concerned} concerned, {unconcerned} unconcerned"
    );
}

/// If a ledger is indifferent, the plugin accepts the pod on every node, after the removal of any pods.
#[test]
fn indifferent_ledgers_stay_so_when_pods_go() {
    let features = FeatureGates::default();
    let (mut indifferent, mut with_terms, mut partial) = (0, 0, 0);
    for seed in 0..CLUSTERS * 2 {
        let mut scene = Scene::new(seed);
        let plugin = plugin(&mut scene.chance);
        let pod = scene.some_pod();
        let mut follower = {
            let cx = context(&scene.cluster, &features);
            Follower::open(&plugin, &cx, &pod, DOMAIN_COST)
        };
        let at_first = follower.ledger.state().is_indifferent;
        loop {
            let cx = context(&scene.cluster, &features);
            follower.catch_up(&cx);
            let answers = plain(&plugin, &cx, &pod, seed);
            let all_pass = answers
                .statuses
                .iter()
                .all(|(_, status)| status.is_success());
            if follower.ledger.state().is_indifferent {
                assert!(
                    all_pass && answers.scores.is_none(),
                    "seed {seed}: {answers:?}"
                );
            } else {
                assert!(!at_first, "seed {seed}: nothing has come");
            }
            let Some((node, gone)) = scene.placed.pop() else {
                break;
            };
            let removed = scene.cluster.nodes.remove_pod(&node, gone.pod.uid());
            assert!(removed.is_ok(), "it was there");
        }
        indifferent += usize::from(at_first);
        with_terms +=
            usize::from(at_first && follower.ledger.incoming.topology_keys().next().is_some());
        partial += usize::from(!at_first);
    }
    assert!(
        indifferent > 50 && with_terms > 10 && partial > 50,
        "{indifferent} indifferent, {with_terms} of them with terms, {partial} not"
    );
}
