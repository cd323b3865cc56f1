//! The questions that are repeated and those that are not, with a plugin that counts.

use super::*;
use crate::NoNominations;
use berth_api::Time;
use berth_framework::keep::{FollowOutcome, Keep, Kept as KeptAnswers};
use berth_framework::plugin::{Context, Filter, Score};
use berth_framework::registry::{Extensions, ExtensionsBuilder};
use berth_framework::table::{Columns, ResourceId};
use berth_framework::testing::{fake, node, pod};
use berth_framework::{Cluster, CycleState, FeatureGates, NodeView, PodInfo, Status};
use berth_profile::Profile;
use berth_profile::testing::registered;
use berth_telemetry::NoStopwatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn named<P>(name: &str, made: ExtensionsBuilder<P>) -> Extensions {
    Extensions {
        name: name.to_owned(),
        ..made.build()
    }
}

/// Keeps pods off nodes labelled `closed`, breaks on those labelled `broken`, and prefers a high `rank`. It reads the
/// pod's label `team`; about pods of team `odd` nothing may be kept.
struct Ranks {
    asked: Arc<AtomicUsize>,
}

impl Filter for Ranks {
    fn filter(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match (node.labels().get("closed"), node.labels().get("broken")) {
            (Some(_), _) => Status::unschedulable("closed"),
            (_, Some(_)) => Status::error("broken"),
            _ => Status::success(),
        }
    }
}

impl Score for Ranks {
    fn score(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Result<i64, Status> {
        let rank = node.labels().get("rank").and_then(|rank| rank.parse().ok());
        Ok(rank.unwrap_or(0))
    }
}

impl Keep for Ranks {
    fn fragment(&self, _cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> KeptAnswers {
        let team = pod.pod.labels().get("team");
        fragment.put(&team);
        match team {
            Some("odd") => KeptAnswers::Never,
            _ => KeptAnswers::ByFragment,
        }
    }

    fn reads_pods(&self) -> bool {
        false
    }
}

/// Keeps pods off the node that has the lease, which moves from node to node without a change of one. Zero means that
/// the holders of before are not known.
struct Lease {
    holder: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

/// The holder when answers were given.
struct HolderSeen(usize);

impl Filter for Lease {
    fn filter(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if **node.name() == *format!("n{}", self.holder.load(Ordering::Relaxed)) {
            Status::unschedulable("leased")
        } else {
            Status::success()
        }
    }
}

impl Keep for Lease {
    fn fragment(&self, _cx: &Context<'_>, _pod: &PodInfo, _fragment: &mut Fragment) -> KeptAnswers {
        KeptAnswers::ByFragment
    }

    fn follow(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        changed: &mut Vec<Slot>,
    ) -> FollowOutcome {
        let holder = self.holder.load(Ordering::Relaxed);
        let before = state.read::<HolderSeen>().map(|seen| seen.0);
        state.write(HolderSeen(holder));
        if before == Some(holder) {
            return FollowOutcome::Changes;
        }
        if holder == 0 && before.is_some() {
            return FollowOutcome::Lost;
        }
        let both = before.into_iter().chain([holder]);
        changed.extend(both.filter_map(|rank| cx.cluster.nodes.slot(&format!("n{rank}"))));
        FollowOutcome::Changes
    }
}

/// Keeps pods off nodes with less than one free CPU.
struct FreeCpu {
    asked: Arc<AtomicUsize>,
    /// Whether it answers about amounts without nodes.
    filters_amounts: bool,
}

impl Filter for FreeCpu {
    fn filter(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if node.allocatable(ResourceId::CPU) - node.requested(ResourceId::CPU) < 1_000 {
            Status::unschedulable("full")
        } else {
            Status::success()
        }
    }

    fn filter_amounts(&self, _state: &CycleState, amounts: &Columns, fits: &mut [bool]) {
        let cpu = amounts.get(ResourceId::CPU);
        let amounts = cpu.allocatable.iter().zip(&cpu.requested);
        for (fits, (allocatable, requested)) in fits.iter_mut().zip(amounts) {
            *fits &= self.filters_amounts && allocatable - requested >= 1_000;
        }
    }
}

impl Keep for FreeCpu {
    fn fragment(&self, _cx: &Context<'_>, _pod: &PodInfo, _fragment: &mut Fragment) -> KeptAnswers {
        KeptAnswers::ByAmounts
    }
}

struct World {
    cluster: Cluster,
    profile: Profile,
    answer_cache: AnswerCache,
    asked: Arc<AtomicUsize>,
    /// The points that the last decision went through, sorted.
    points: Vec<Point>,
    /// The calls of each filter in the last decision, for the metrics.
    filtered: Vec<u32>,
}

impl World {
    /// Five nodes of ranks 0 to 4; beside [`Ranks`] the other plugins.
    fn new(others: Vec<Extensions>) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        let ranks = Ranks {
            asked: asked.clone(),
        };
        let plugins = [
            fake("Sort").less(|a, b| a.timestamp < b.timestamp).build(),
            fake("Binder")
                .bind(|_, _, _, _, _| berth_framework::Step::success())
                .build(),
            named("Ranks", Extensions::of(ranks).filter().score().keep()),
        ];
        let (registry, spec) = registered(plugins.into_iter().chain(others));
        let mut world = Self {
            cluster: Cluster::default(),
            profile: Profile::build(&spec, &registry, &FeatureGates::default()).unwrap(),
            answer_cache: AnswerCache::default(),
            asked,
            points: Vec::new(),
            filtered: Vec::new(),
        };
        for rank in 0..5 {
            world.set_node(rank, None);
        }
        world
    }

    fn set_node(&mut self, rank: usize, label: Option<&str>) {
        let mut node = node(&format!("n{rank}")).label("rank", &rank.to_string());
        if let Some(label) = label {
            node = node.label(label, "");
        }
        self.cluster.nodes.set_node(node.arc());
    }

    /// The outcome for a pod of a team, how many nodes Ranks was asked about from kept answers, and whether the plain
    /// evaluator decided.
    fn decide(&mut self, team: &str, percentage: Option<i32>) -> (String, usize, bool) {
        let pod = pod("p").label("team", team).info();
        let mut evaluation = Evaluation::default();
        let before = self.answer_cache.counts().plain;
        self.asked.store(0, Ordering::Relaxed);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut evaluator = Evaluator {
            profile: &self.profile,
            features: &FeatureGates::default(),
            now: Time::EPOCH,
            cluster: &mut self.cluster,
            nominated: &NoNominations,
            pod: &pod,
            evaluation: &mut evaluation,
            work: None,
            stopwatch: &NoStopwatch,
        };
        let kept = self
            .answer_cache
            .find(&mut evaluator, None, percentage, &mut 0, &mut rng);
        let asked = self.asked.load(Ordering::Relaxed);
        let is_plain = kept.is_none();
        assert_eq!(
            self.answer_cache.counts().plain - before,
            u64::from(is_plain)
        );
        let found = kept.unwrap_or_else(|| {
            let answer_cache = &mut self.answer_cache;
            evaluator.find_with(answer_cache, true, None, percentage, &mut 0, &mut rng)
        });
        let stated = match found {
            Found::Placed(placement) => placement.name.to_string(),
            Found::Unfit(error) => error.to_string(),
            Found::NoNodes(status) | Found::Failed(status) => status.message(),
        };
        let spans = evaluation.tally.spans.iter();
        self.points = spans.map(|span| span.point).collect();
        self.points.sort_unstable();
        self.filtered = evaluation.tally.filter.to_vec();
        (stated, asked, is_plain)
    }
}

#[test]
fn only_nodes_that_changed_are_asked_again() {
    let mut world = World::new(Vec::new());
    let kept = |name: &str, asked| (name.to_owned(), asked, false);
    assert_eq!(world.decide("a", None), kept("n4", 5));
    assert_eq!(world.decide("a", None), kept("n4", 0));
    world.set_node(4, Some("closed"));
    assert_eq!(world.decide("a", None), kept("n3", 1));
    assert_eq!(world.decide("b", None), kept("n3", 5));
    world.cluster.nodes.remove_node("n3");
    assert_eq!(world.decide("b", None), kept("n2", 0));
    world.set_node(3, None);
    assert_eq!(world.decide("b", None), kept("n3", 1));
    assert_eq!(world.decide("a", None), kept("n3", 1));
    // A pod that comes changes nothing for a plugin that reads nodes alone.
    let placed = pod("q").info();
    world.cluster.nodes.add_pod(&"n3".into(), placed);
    assert_eq!(world.decide("a", None), kept("n3", 0));
    for rank in 0..5 {
        world.set_node(rank, Some("closed"));
    }
    let (stated, asked, is_plain) = world.decide("a", None);
    assert_eq!(stated, "0/5 nodes are available: 5 closed.");
    // The fourth is as it was.
    assert_eq!((asked, is_plain), (4, false));
}

/// The slot of an unknown node, which has pods already, is the first of a block without nodes.
#[test]
fn a_pod_can_come_before_its_node() {
    let mut world = World::new(Vec::new());
    for rank in 5..64 {
        world.set_node(rank, None);
    }
    let kept = |name: &str, asked| (name.to_owned(), asked, false);
    assert_eq!(world.decide("a", None), kept("n63", 64));
    world.cluster.nodes.add_pod(&"n64".into(), pod("q").info());
    assert_eq!(world.decide("a", None), kept("n63", 0));
    world.set_node(64, None);
    assert_eq!(world.decide("a", None), kept("n64", 1));
}

/// Answers that depend on what no node shows are computed again where their plugin reports a change: for all pods of the
/// shape, whether a node has changed or not.
#[test]
fn what_a_plugin_follows_is_asked_again() {
    let [holder, asked] = [4, 0].map(|n| Arc::new(AtomicUsize::new(n)));
    let lease = Lease {
        holder: holder.clone(),
        asked: asked.clone(),
    };
    let mut world = World::new(vec![named("Lease", Extensions::of(lease).filter().keep())]);
    for (situation, now, expected, asked_now) in [
        ("the first pod", 4, "n3", 5),
        ("nothing has changed", 4, "n3", 0),
        ("the lease moves", 3, "n4", 2),
        ("it moves on", 2, "n4", 2),
        ("it moves, and it is not known from where", 0, "n4", 5),
        ("it moves back", 4, "n3", 2),
    ] {
        holder.store(now, Ordering::Relaxed);
        asked.store(0, Ordering::Relaxed);
        let (node, _, is_plain) = world.decide("a", None);
        assert_eq!((node.as_str(), is_plain), (expected, false), "{situation}");
        assert_eq!(asked.load(Ordering::Relaxed), asked_now, "{situation}");
    }
}

/// A plugin that reads amounts alone answers once for nodes with equal amounts, node by node or for all amounts together,
/// and each answer is counted once.
#[test]
fn nodes_with_equal_amounts_are_asked_about_once() {
    for filters_amounts in [false, true] {
        check_equal_amounts(filters_amounts);
    }
}

fn check_equal_amounts(filters_amounts: bool) {
    let asked = Arc::new(AtomicUsize::new(0));
    let free_cpu = FreeCpu {
        asked: asked.clone(),
        filters_amounts,
    };
    let mut world = World::new(vec![named(
        "FreeCpu",
        Extensions::of(free_cpu).filter().keep(),
    )]);
    let set = |world: &mut World, rank: usize, offered: &[(&str, &str)]| {
        let mut node = node(&format!("n{rank}")).label("rank", &rank.to_string());
        for (resource, amount) in offered {
            node = node.allocatable(resource, amount);
        }
        world.cluster.nodes.set_node(node.arc());
    };
    for rank in 0..5 {
        set(&mut world, rank, &[("cpu", "4")]);
    }
    let decide = |world: &mut World, expected: &str, asked_now: usize, situation: &str| {
        asked.store(0, Ordering::Relaxed);
        let (node, _, is_plain) = world.decide("a", None);
        assert_eq!((node.as_str(), is_plain), (expected, false), "{situation}");
        let asked = asked.load(Ordering::Relaxed);
        let is_expected = asked == asked_now || filters_amounts && asked < asked_now;
        assert!(is_expected, "{situation}: {asked} nodes were asked");
        let counted = world.filtered.get(1).copied().unwrap_or_default();
        assert_eq!(counted as usize, asked_now, "{situation}");
    };
    decide(&mut world, "n4", 1, "all are equal");
    for node in ["n4", "n3"] {
        let large = pod(&format!("on-{node}")).request("cpu", "4").info();
        world.cluster.nodes.add_pod(&node.into(), large);
    }
    decide(&mut world, "n2", 1, "two nodes are full");
    let small = pod("small").request("cpu", "1").info();
    world.cluster.nodes.add_pod(&"n2".into(), small);
    decide(&mut world, "n2", 1, "one more kind of nodes");
    decide(&mut world, "n2", 0, "nothing has changed");
    set(&mut world, 5, &[("cpu", "4"), ("example.com/gpu", "1")]);
    decide(
        &mut world,
        "n5",
        4,
        "a resource is new, by which all nodes are compared",
    );
    let removed = world.cluster.nodes.remove_pod("n4", "uid-on-n4");
    assert!(removed.is_ok());
    decide(&mut world, "n5", 0, "n4 is as others are");
}

/// C-19: with a percentage, the search ends in kept answers where the plain evaluator's ends, and the next one begins
/// there. Each decision is made by both.
#[test]
fn a_percentage_ends_the_search_in_kept_answers() {
    let mut world = World::new(Vec::new());
    for rank in 0..=100 {
        world.set_node(rank, None);
    }
    let mut start = 0;
    // At least 100 nodes are searched for.
    for (percentage, start_after) in [(40, 100), (40, 99), (50, 98)] {
        let pod = pod("p").label("team", "a").info();
        let (mut evaluation, mut rng) = (Evaluation::default(), fastrand::Rng::with_seed(1));
        let mut evaluator = Evaluator {
            profile: &world.profile,
            features: &FeatureGates::default(),
            now: Time::EPOCH,
            cluster: &mut world.cluster,
            nominated: &NoNominations,
            pod: &pod,
            evaluation: &mut evaluation,
            work: None,
            stopwatch: &NoStopwatch,
        };
        let cache = &mut world.answer_cache;
        let found = evaluator.find_with(cache, true, None, Some(percentage), &mut start, &mut rng);
        let Found::Placed(placement) = found else {
            panic!("{found:?}");
        };
        assert_eq!(placement.feasible, 100);
        assert_eq!((placement.evaluated, start), (100, start_after));
    }
    assert_eq!(world.answer_cache.counts().plain, 0);
}

#[test]
fn what_cannot_be_kept_is_decided_plainly() {
    let mut world = World::new(Vec::new());
    assert_eq!(world.decide("odd", None), ("n4".to_owned(), 0, true));
    world.set_node(0, Some("broken"));
    let (stated, _, is_plain) = world.decide("a", None);
    assert!(is_plain && stated.contains("broken"), "{stated}");
    world.set_node(0, None);
    assert_eq!(world.decide("a", None), ("n4".to_owned(), 1, false));

    // A filter of which nothing is known.
    let stranger = fake("Stranger").filter(|_, _, node| match node.name().as_str() {
        "n4" => Status::unschedulable("no"),
        _ => Status::success(),
    });
    let mut world = World::new(vec![stranger.build()]);
    assert_eq!(world.decide("a", None), ("n3".to_owned(), 0, true));
}

/// F-7: decisions from kept answers show as runs of the same points as those of the plain evaluator.
#[test]
fn kept_decisions_go_through_the_same_points() {
    let all = [
        Point::PreFilter,
        Point::Filter,
        Point::PreScore,
        Point::Score,
    ];
    let mut world = World::new(Vec::new());
    for (team, closed, is_plain, points) in [
        ("a", 0, false, &all[..]),
        ("odd", 0, true, &all),
        ("a", 4, false, &all[..2]),
        ("odd", 4, true, &all[..2]),
        ("a", 5, false, &all[..2]),
        ("odd", 5, true, &all[..2]),
    ] {
        for rank in 0..closed {
            world.set_node(rank, Some("closed"));
        }
        assert_eq!(world.decide(team, None).2, is_plain);
        assert_eq!(world.points, points, "{team}, {closed} closed");
    }
}

/// A PreFilter of which nothing is known may do as it likes with the state of the cycle; it runs for every pod.
#[test]
fn an_unknown_pre_filter_runs_every_time() {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let counting = fake("Counting").pre_filter(move |_, _, _| {
        count.fetch_add(1, Ordering::Relaxed);
        PreFilterResult::AllNodes
    });
    let mut world = World::new(vec![counting.build()]);
    for times in 1..4 {
        let (stated, _, is_plain) = world.decide("a", None);
        assert_eq!((stated.as_str(), is_plain), ("n4", false));
        assert_eq!(ran.load(Ordering::Relaxed), times);
    }
    let narrowing =
        fake("Narrowing").pre_filter(|_, _, _| PreFilterResult::Nodes(vec!["n2".into()]));
    let mut world = World::new(vec![narrowing.build()]);
    assert_eq!(world.decide("a", None), ("n2".to_owned(), 0, true));
}
