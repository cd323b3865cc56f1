//! `berth perf explain`: what explanations cost, and what they cost the pods that are scheduled meanwhile.
//!
//! The cluster is half full. The waiting pods are of ten kinds, each of which lacks something else, and half of each
//! kind may preempt. First answers are timed while nothing is scheduled. Then one thread schedules pods without a pause
//! while another one asks. Turns with and without questions alternate, so that both meet the same load of the machine.

use super::args::PerfExplainArgs;
use berth_api::{Kind, Object, Time};
use berth_edge::exit::CommandFailure;
use berth_explain::{
    Copied, PodFacts, QueueFacts, Snapshot, explain_node, explain_pod, explain_queue,
};
use berth_framework::registry::Registry;
use berth_scheduler::{ClusterChange, CycleResult, ScheduleOutcome, Scheduler, SchedulerOptions};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The time of the core when it is filled.
const NOW: Time = Time::from_secs(1_800_000_000);
/// Bound pods on each node.
const BOUND_PER_NODE: usize = 4;
/// One in this number of bound pods has required anti-affinity, in the cluster with such pods.
const APART_SHARE: usize = 100;
/// The number of kinds of waiting pods.
const KINDS: usize = 10;
/// The number of pods that were placed and stay before the oldest is deleted.
const KEPT: usize = 1_000;
/// A question begins so long after the one before, or as soon as a scheduler would answer it.
const PACES: [Duration; 2] = [Duration::from_millis(100), Duration::ZERO];
/// The goals: the 99th percentile of answers, and the share of the rate of decisions while questions are asked.
const ANSWERED_WITHIN_MS: f64 = 100.0;
const RATE_SHARE: f64 = 0.97;

/// The duration of a measurement, in milliseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Took {
    what: &'static str,
    median_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// The cost of questions for the pods that are scheduled meanwhile.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Meanwhile {
    pace_ms: u64,
    questions_per_second: f64,
    /// Decisions per second with questions and without.
    asked: f64,
    not_asked: f64,
    /// The rate with questions as a share of the rate without: the median of all pairs of turns.
    share: f64,
    answers: Took,
}

/// The figures of one cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplainedCluster {
    bound: usize,
    /// The number of bound pods with required anti-affinity. Every answer takes it into account.
    apart: usize,
    answers: Vec<Took>,
    meanwhile: Vec<Meanwhile>,
    /// The memory of the data for explanations, in bytes.
    kept_bytes: usize,
}

/// The figures.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainReport {
    nodes: usize,
    waiting: usize,
    clusters: Vec<ExplainedCluster>,
}

impl Took {
    fn new(what: &'static str, mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at = |share: f64| {
            let at = (took.len().saturating_sub(1) as f64 * share) as usize;
            took.get(at).map_or(0.0, |took| took.as_secs_f64() * 1e3)
        };
        Self {
            what,
            median_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        }
    }
}

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            median_ms,
            p99_ms,
            max_ms,
        } = self;
        write!(
            f,
            "{what:<34}{median_ms:>10.1} ms{p99_ms:>10.1} ms{max_ms:>10.1} ms"
        )
    }
}

fn reached(is_reached: bool) -> &'static str {
    if is_reached { "reached" } else { "NOT reached" }
}

impl fmt::Display for ExplainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cluster in &self.clusters {
            writeln!(
                f,
                "{} nodes, {} waiting pods, {} bound pods, {} of them with anti-affinity; {:.1} MB are kept for explanations",
                self.nodes,
                self.waiting,
                cluster.bound,
                cluster.apart,
                cluster.kept_bytes as f64 / 1e6
            )?;
            writeln!(f, "{:<34}{:>13}{:>13}{:>13}", "", "median", "p99", "max")?;
            for took in &cluster.answers {
                writeln!(f, "{took}")?;
            }
            for meanwhile in &cluster.meanwhile {
                let Meanwhile {
                    questions_per_second,
                    asked,
                    not_asked,
                    share,
                    answers,
                    ..
                } = meanwhile;
                writeln!(
                    f,
                    "{questions_per_second:.0} questions/s: {asked:.0} decisions/s, {not_asked:.0} without questions; {:.1} % \
                     of the rate (goal {:.0} %: {})",
                    100.0 * share,
                    100.0 * RATE_SHARE,
                    reached(*share >= RATE_SHARE)
                )?;
                writeln!(
                    f,
                    "{answers} (goal {ANSWERED_WITHIN_MS} ms: {})",
                    reached(answers.p99_ms <= ANSWERED_WITHIN_MS)
                )?;
            }
        }
        Ok(())
    }
}

fn pod(name: &str, labels: Value, spec: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": labels},
        "spec": spec,
    })
}

/// The spec of a pod with one container.
fn requesting(requests: Value) -> Value {
    json!({
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "image": "registry.example/c:1", "resources": {"requests": requests}}],
    })
}

fn node(at: usize) -> Value {
    let name = format!("n{at}");
    let zone = ["a", "b", "c"][at % 3];
    let mut node = json!({
        "metadata": {
            "name": name, "uid": format!("uid-{name}"),
            "labels": {"kubernetes.io/hostname": name, "zone": zone},
        },
        "status": {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}},
    });
    if at.is_multiple_of(10) {
        node["spec"] =
            json!({"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]});
    }
    node
}

fn bound(at: usize, node: usize, is_apart: bool) -> Value {
    let mut spec = requesting(json!({"cpu": "500m", "memory": "1Gi"}));
    spec["nodeName"] = format!("n{node}").into();
    if is_apart {
        spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}},
        ]}});
    }
    let app = if is_apart { "apart" } else { "bound" };
    pod(&format!("b{at}"), json!({"app": app}), spec)
}

fn waiting(at: usize) -> Value {
    let kind = at % KINDS;
    let app = format!("app-{kind}");
    let mut spec = match kind {
        0..=4 => requesting(json!({"cpu": (5 + kind).to_string()})),
        5 => requesting(json!({"memory": "64Gi"})),
        6 => requesting(json!({"example.com/gpu": "1"})),
        7 | 8 => requesting(json!({})),
        _ => requesting(json!({"cpu": "3500m"})),
    };
    match kind {
        7 => spec["schedulingGates"] = json!([{"name": "example.com/gate"}]),
        8 => spec["nodeSelector"] = json!({"disk": "none"}),
        9 => {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "minDomains": 9, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
            }]);
        }
        _ => {}
    }
    // Half of each kind may preempt: then preemption is tried for an answer, with higher priorities, too.
    spec["preemptionPolicy"] = ["Never", "PreemptLowerPriority"][at / KINDS % 2].into();
    pod(&format!("w{at}"), json!({"app": app}), spec)
}

fn decode(kind: Kind, value: &Value) -> Result<Object, CommandFailure> {
    let text = value.to_string();
    kind.decode(text.as_bytes())
        .map_err(CommandFailure::environment)
}

/// A core that has tried every waiting pod once.
fn filled(
    args: &PerfExplainArgs,
    registry: &Registry,
    has_apart: bool,
) -> Result<Scheduler, CommandFailure> {
    let scheduler = Scheduler::new(SchedulerOptions::default(), registry, NOW);
    let mut scheduler = scheduler.map_err(CommandFailure::usage)?;
    let nodes = (0..args.nodes).map(|at| decode(Kind::Node, &node(at)));
    let nodes = nodes.collect::<Result<_, _>>()?;
    scheduler.apply(ClusterChange::Replaced(Kind::Node, nodes), NOW);
    let bound = (0..args.nodes * BOUND_PER_NODE).map(|at| {
        let is_apart = has_apart && at.is_multiple_of(APART_SHARE);
        bound(at, at / BOUND_PER_NODE, is_apart)
    });
    let pods = bound.chain((0..args.pods).map(waiting));
    let pods = pods.map(|pod| decode(Kind::Pod, &pod));
    let pods = pods.collect::<Result<_, _>>()?;
    scheduler.apply(ClusterChange::Replaced(Kind::Pod, pods), NOW);
    while scheduler.schedule_one(NOW).is_attempt() {
        scheduler.take_outputs(NOW);
    }
    Ok(scheduler)
}

/// The waiting pod that a question is about.
fn asked(question: usize, args: &PerfExplainArgs) -> String {
    format!("w{}", question * 97 % args.pods.max(1))
}

/// Times answers while nothing is scheduled.
fn alone(scheduler: &Scheduler, args: &PerfExplainArgs) -> Option<Vec<Took>> {
    let (mut copied, mut whole) = (Vec::new(), Vec::new());
    for question in 0..args.rounds {
        let began = Instant::now();
        let facts = PodFacts::take(scheduler, "default", &asked(question, args))?;
        let mut snapshot = Snapshot::take(scheduler, NOW);
        copied.push(began.elapsed());
        serde_json::to_vec(&explain_pod(&mut snapshot, &facts)).ok()?;
        whole.push(began.elapsed());
    }
    let (mut queue, mut of_node) = (Vec::new(), Vec::new());
    for question in 0..args.rounds.div_ceil(10) {
        let began = Instant::now();
        let facts = QueueFacts::take(scheduler, NOW);
        explain_queue(&facts);
        queue.push(began.elapsed());
        let began = Instant::now();
        let mut snapshot = Snapshot::take(scheduler, NOW);
        let name = format!("n{}", question * 131 % args.nodes.max(1));
        explain_node(&mut snapshot, &facts, &name)?;
        of_node.push(began.elapsed());
    }
    Some(vec![
        Took::new("pod: copy, nothing is scheduled", copied),
        Took::new("pod: whole answer", whole),
        Took::new("queue: whole answer", queue),
        Took::new("node: whole answer", of_node),
    ])
}

/// A question to the thread that schedules: the name of a pod, and the last copy of the cluster, to be renewed if it is
/// too old.
struct ThreadQuestion {
    name: String,
    copy: Option<Copied<Snapshot>>,
    reply: mpsc::Sender<(PodFacts, Copied<Snapshot>)>,
}

/// Creates a pod, schedules it and deletes an old one: one decision. Between two decisions it answers a question, as
/// the thread of a scheduler does.
struct Scheduling {
    scheduler: Scheduler,
    placed: VecDeque<Object>,
    number: usize,
    began: Instant,
}

impl Scheduling {
    fn decide(&mut self) -> Result<(), CommandFailure> {
        let name = format!("s{}", self.number);
        self.number += 1;
        let mut made = pod(
            &name,
            json!({"app": "steady"}),
            requesting(json!({"cpu": "50m"})),
        );
        let scheduler = &mut self.scheduler;
        let applied = ClusterChange::Applied(decode(Kind::Pod, &made)?);
        scheduler.apply(applied, NOW);
        let ScheduleOutcome::Done {
            result: CycleResult::Placed { node },
            ..
        } = scheduler.schedule_one(NOW)
        else {
            return Err(CommandFailure::environment(
                "a pod that fits was not placed",
            ));
        };
        for (id, _) in scheduler.take_outputs(NOW).calls {
            scheduler.complete(id, Ok(()), NOW);
        }
        made["spec"]["nodeName"] = node.as_str().into();
        let bound = decode(Kind::Pod, &made)?;
        scheduler.apply(ClusterChange::Applied(bound.clone()), NOW);
        self.placed.push_back(bound);
        if self.placed.len() > KEPT
            && let Some(oldest) = self.placed.pop_front()
        {
            scheduler.apply(ClusterChange::Deleted(oldest), NOW);
        }
        scheduler.take_outputs(NOW);
        Ok(())
    }

    fn answer(&self, question: ThreadQuestion) {
        let Some(facts) = PodFacts::take(&self.scheduler, "default", &question.name) else {
            return;
        };
        let now = NOW + self.began.elapsed();
        let copy = match question.copy {
            Some(kept) if !kept.pause(now).is_zero() => kept,
            old => {
                let began = Instant::now();
                let snapshot = match old {
                    Some(mut old) => {
                        old.value.renew(&self.scheduler, NOW);
                        old.value
                    }
                    None => Snapshot::take(&self.scheduler, NOW),
                };
                Copied::new(snapshot, NOW + self.began.elapsed(), began.elapsed())
            }
        };
        // The thread that asked may have ended.
        let _ = question.reply.send((facts, copy));
    }
}

/// The schedule of the thread that asks.
#[derive(Default)]
struct AskingSchedule {
    asks: AtomicBool,
    is_busy: AtomicBool,
    is_over: AtomicBool,
}

/// Asks until it is over. Returns how long the answers took.
fn ask(
    asking: &AskingSchedule,
    questions: &mpsc::Sender<ThreadQuestion>,
    args: &PerfExplainArgs,
    pace: Duration,
) -> Vec<Duration> {
    let (mut took, mut copy) = (Vec::new(), None::<Copied<Snapshot>>);
    while !asking.is_over.load(Ordering::SeqCst) {
        asking.is_busy.store(true, Ordering::SeqCst);
        if !asking.asks.load(Ordering::SeqCst) {
            asking.is_busy.store(false, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let asked_at = Instant::now();
        let (reply, answer) = mpsc::channel();
        let question = ThreadQuestion {
            name: asked(took.len(), args),
            copy: copy.take(),
            reply,
        };
        if questions.send(question).is_err() {
            break;
        }
        let Ok((facts, mut copied)) = answer.recv() else {
            break;
        };
        let computing = Instant::now();
        if serde_json::to_vec(&explain_pod(&mut copied.value, &facts)).is_err() {
            break;
        }
        let computed = computing.elapsed();
        copy = Some(copied);
        took.push(asked_at.elapsed());
        asking.is_busy.store(false, Ordering::SeqCst);
        // Computing takes half of the time at most, as in a scheduler.
        std::thread::sleep(pace.saturating_sub(asked_at.elapsed()).max(computed));
    }
    asking.is_busy.store(false, Ordering::SeqCst);
    took
}

/// Alternates turns with and without questions.
fn meanwhile(
    scheduling: &mut Scheduling,
    args: &PerfExplainArgs,
    pace: Duration,
) -> Result<Meanwhile, CommandFailure> {
    let asking = AskingSchedule::default();
    let (questions, received) = mpsc::channel::<ThreadQuestion>();
    let turn = Duration::from_millis(args.turn_milliseconds);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let took = std::thread::scope(|scope| {
        let asker = scope.spawn(|| ask(&asking, &questions, args, pace));
        let mut step = || {
            let decided = scheduling.decide();
            if let Ok(question) = received.try_recv() {
                scheduling.answer(question);
            }
            decided
        };
        let mut turns = || -> Result<(), CommandFailure> {
            for at in 0..2 * args.turns {
                let is_asked = at.is_multiple_of(2);
                asking.asks.store(is_asked, Ordering::SeqCst);
                // The last question of a turn is answered before the next turn begins.
                while !is_asked && asking.is_busy.load(Ordering::SeqCst) {
                    step()?;
                }
                let (began, mut decisions) = (Instant::now(), 0_u64);
                while began.elapsed() < turn {
                    step()?;
                    decisions += 1;
                }
                let rates = if is_asked { &mut with } else { &mut without };
                rates.push(decisions as f64 / began.elapsed().as_secs_f64());
            }
            Ok(())
        };
        let result = turns();
        asking.is_over.store(true, Ordering::SeqCst);
        // A question that has no answer yet ends with its sender.
        drop(received);
        let took = asker.join().unwrap_or_default();
        result.map(|()| took)
    })?;
    // A turn is compared with the one after it, which met about the same load of the machine.
    let mut shares: Vec<f64> = with.iter().zip(&without).map(|(a, b)| a / b).collect();
    shares.sort_by(f64::total_cmp);
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    Ok(Meanwhile {
        pace_ms: u64::try_from(pace.as_millis()).unwrap_or(u64::MAX),
        questions_per_second: took.len() as f64 / (turn.as_secs_f64() * args.turns.max(1) as f64),
        asked: mean(&with),
        not_asked: mean(&without),
        share: shares.get(shares.len() / 2).copied().unwrap_or(1.0),
        answers: Took::new("pod: whole answer meanwhile", took),
    })
}

/// Measures explanations in a cluster without anti-affinity, and in one with.
///
/// # Errors
/// When the core cannot be filled, or there is nothing to ask about.
pub(super) fn run(
    args: &PerfExplainArgs,
    registry: &Registry,
) -> Result<ExplainReport, CommandFailure> {
    if args.nodes == 0 || args.pods == 0 || args.turns == 0 {
        let message = "--nodes, --pods and --turns must be at least 1";
        return Err(CommandFailure::usage(message));
    }
    let mut clusters = Vec::new();
    for has_apart in [false, true] {
        let scheduler = filled(args, registry, has_apart)?;
        let answers = alone(&scheduler, args);
        let answers = answers.ok_or_else(|| {
            CommandFailure::environment("a pod or node of the cluster is missing")
        })?;
        let mut scheduling = Scheduling {
            scheduler,
            placed: VecDeque::new(),
            number: 0,
            began: Instant::now(),
        };
        let paces = PACES.map(|pace| meanwhile(&mut scheduling, args, pace));
        let bound = args.nodes * BOUND_PER_NODE;
        clusters.push(ExplainedCluster {
            bound,
            apart: if has_apart {
                bound.div_ceil(APART_SHARE)
            } else {
                0
            },
            answers,
            meanwhile: paces.into_iter().collect::<Result<_, _>>()?,
            kept_bytes: scheduling.scheduler.explanation_bytes(),
        });
    }
    Ok(ExplainReport {
        nodes: args.nodes,
        waiting: args.pods,
        clusters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part is measured, and the cluster is as the report states.
    #[test]
    fn answers_are_measured_alone_and_while_pods_are_scheduled() {
        let args = PerfExplainArgs {
            nodes: 30,
            pods: 100,
            rounds: 20,
            turns: 1,
            turn_milliseconds: 100,
            output: berth_edge::print::Output::Text,
        };
        let registry = berth_plugins::in_tree();
        let scheduler = filled(&args, &registry, true).expect("a core");
        let queue = scheduler.queue().places().counts();
        assert_eq!((queue.gated, queue.unschedulable), (10, 90), "{queue:?}");
        let report = run(&args, &registry).expect("a report");
        assert_eq!(report.clusters.len(), 2);
        for (cluster, apart) in report.clusters.iter().zip([0, 2]) {
            assert_eq!((cluster.bound, cluster.apart), (120, apart));
            let answers = cluster.answers.iter();
            assert!(answers.clone().all(|took| took.median_ms > 0.0), "{report}");
            for meanwhile in &cluster.meanwhile {
                assert!(meanwhile.asked > 0.0 && meanwhile.not_asked > 0.0);
                assert!(meanwhile.questions_per_second > 0.0, "{report}");
            }
        }
        assert!(report.to_string().contains("decisions/s"), "{report}");
    }
}
