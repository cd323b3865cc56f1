//! The cost of explanations, and their effect on scheduling.
//!
//! The cluster is half full. The waiting pods are of ten kinds, each rejected for a different reason, and half of the
//! pods of each kind may preempt. The first answers are timed without scheduling. Then one thread schedules pods
//! without a pause while another thread asks questions. Turns with and without questions alternate, so that both have
//! the same load of the machine.

use crate::error::PerfError;
use crate::generate;
use crate::options::at_least_one;
use crate::stats::{median, milliseconds};
use berth_api::{Kind, Object, Pod, Time};
use berth_explain::{
    Copied, PodFacts, QueueFacts, Snapshot, explain_node, explain_pod, explain_queue,
};
use berth_framework::registry::Registry;
use berth_scheduler::{ClusterChange, CycleResult, ScheduleOutcome, Scheduler, SchedulerOptions};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
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
/// The number of placed pods that are kept before the oldest one is deleted.
const KEPT: usize = 1_000;
/// The minimum time between two questions. A question is asked only when a scheduler would answer it.
const PACES: [Duration; 2] = [Duration::from_millis(100), Duration::ZERO];

/// The measurement options.
#[derive(Debug, Clone, Args)]
pub struct ExplainPerfOptions {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value = "5000", value_parser = at_least_one())]
    pub nodes: usize,
    /// Number of waiting pods
    #[arg(long, value_name = "N", default_value = "10000", value_parser = at_least_one())]
    pub pods: usize,
    /// Number of explanations without concurrent scheduling
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub rounds: usize,
    /// Number of turns with and without questions
    #[arg(long, value_name = "N", default_value = "24", value_parser = at_least_one())]
    pub turns: usize,
    /// Duration of a turn in milliseconds
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub turn_milliseconds: u64,
}

/// The times of answers, in milliseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerTimes {
    what: &'static str,
    median_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// The effect of questions on scheduling.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Meanwhile {
    questions_per_second: f64,
    /// Decisions per second with questions and without.
    asked: f64,
    not_asked: f64,
    /// The rate with questions as a share of the rate without: the median of all pairs of turns.
    share: f64,
    answers: AnswerTimes,
}

/// The figures of one cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedCluster {
    bound: usize,
    /// The number of bound pods with required anti-affinity. Every answer takes it into account.
    apart: usize,
    answers: Vec<AnswerTimes>,
    meanwhile: Vec<Meanwhile>,
    /// The memory of the data for explanations, in bytes.
    kept_bytes: usize,
}

/// The figures.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainReport {
    nodes: usize,
    waiting: usize,
    clusters: Vec<ExplainedCluster>,
}

impl AnswerTimes {
    fn new(what: &'static str, took: &[Duration]) -> Self {
        let buckets = milliseconds(took);
        Self {
            what,
            median_ms: buckets.map_or(0.0, |b| b.perc50),
            p99_ms: buckets.map_or(0.0, |b| b.perc99),
            max_ms: took
                .iter()
                .max()
                .map_or(0.0, |took| took.as_secs_f64() * 1e3),
        }
    }
}

impl fmt::Display for AnswerTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, p99, max) = (self.median_ms, self.p99_ms, self.max_ms);
        writeln!(
            f,
            "{:<34}{median:>10.1} ms{p99:>10.1} ms{max:>10.1} ms",
            self.what
        )
    }
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
            for answers in &cluster.answers {
                write!(f, "{answers}")?;
            }
            for meanwhile in &cluster.meanwhile {
                writeln!(
                    f,
                    "{:.0} questions/s: {:.0} decisions/s, {:.0} without questions; {:.1} % of the rate",
                    meanwhile.questions_per_second,
                    meanwhile.asked,
                    meanwhile.not_asked,
                    100.0 * meanwhile.share
                )?;
                write!(f, "{}", meanwhile.answers)?;
            }
        }
        Ok(())
    }
}

/// A pod with one container, whose UID is its name.
fn pod(name: &str, app: &str, requests: Value, more: impl FnOnce(&mut Value)) -> Arc<Pod> {
    generate::pod(0, |pod| {
        pod["metadata"]["name"] = name.into();
        pod["metadata"]["uid"] = name.into();
        pod["metadata"]["labels"] = json!({"app": app});
        pod["spec"]["containers"][0]["resources"] = json!({"requests": requests});
        more(&mut pod["spec"]);
    })
}

fn node(at: usize) -> Object {
    Object::Node(generate::node(at, |node| {
        if at.is_multiple_of(10) {
            node["spec"]["taints"] =
                json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]);
        }
    }))
}

fn bound(at: usize, is_apart: bool) -> Arc<Pod> {
    let app = if is_apart { "apart" } else { "bound" };
    let requests = json!({"cpu": "500m", "memory": "1Gi"});
    pod(&format!("b{at}"), app, requests, |spec| {
        spec["nodeName"] = format!("node-{}", at / BOUND_PER_NODE).into();
        if is_apart {
            spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}},
            ]}});
        }
    })
}

fn waiting(at: usize) -> Arc<Pod> {
    let kind = at % KINDS;
    let app = format!("app-{kind}");
    let requests = match kind {
        0..=4 => json!({"cpu": (5 + kind).to_string()}),
        5 => json!({"memory": "64Gi"}),
        6 => json!({"example.com/gpu": "1"}),
        7 | 8 => json!({}),
        _ => json!({"cpu": "3500m"}),
    };
    pod(&format!("w{at}"), &app, requests, |spec| {
        match kind {
            7 => spec["schedulingGates"] = json!([{"name": "example.com/gate"}]),
            8 => spec["nodeSelector"] = json!({"disk": "none"}),
            9 => {
                spec["topologySpreadConstraints"] = json!([{
                    "maxSkew": 1, "minDomains": 9, "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": app}},
                }]);
            }
            _ => {}
        }
        // Half of each kind may preempt: their answers include a preemption attempt, also with higher priorities.
        spec["preemptionPolicy"] = ["Never", "PreemptLowerPriority"][at / KINDS % 2].into();
    })
}

/// A core that has attempted every waiting pod once.
fn filled(
    options: &ExplainPerfOptions,
    registry: &Registry,
    has_apart: bool,
) -> Result<Scheduler, PerfError> {
    let scheduler = Scheduler::new(SchedulerOptions::default(), registry, NOW);
    let mut scheduler = scheduler.map_err(|error| PerfError::Setup(error.to_string()))?;
    let nodes = (0..options.nodes).map(node).collect();
    scheduler.apply(ClusterChange::Replaced(Kind::Node, nodes), NOW);
    let bound = (0..options.nodes * BOUND_PER_NODE)
        .map(|at| bound(at, has_apart && at.is_multiple_of(APART_SHARE)));
    let pods = bound.chain((0..options.pods).map(waiting));
    let pods = pods.map(Object::Pod).collect();
    scheduler.apply(ClusterChange::Replaced(Kind::Pod, pods), NOW);
    while scheduler.schedule_one(NOW).is_attempt() {
        scheduler.take_outputs(NOW);
    }
    Ok(scheduler)
}

/// The waiting pod of a question.
fn asked(question: usize, options: &ExplainPerfOptions) -> String {
    format!("w{}", question * 97 % options.pods)
}

/// Times answers while nothing is scheduled.
fn alone(scheduler: &Scheduler, options: &ExplainPerfOptions) -> Option<Vec<AnswerTimes>> {
    let (mut copied, mut whole) = (Vec::new(), Vec::new());
    for question in 0..options.rounds {
        let began = Instant::now();
        let facts = PodFacts::take(scheduler, "default", &asked(question, options))?;
        let mut snapshot = Snapshot::take(scheduler, NOW);
        copied.push(began.elapsed());
        serde_json::to_vec(&explain_pod(&mut snapshot, &facts)).ok()?;
        whole.push(began.elapsed());
    }
    let (mut queue, mut of_node) = (Vec::new(), Vec::new());
    for question in 0..options.rounds.div_ceil(10) {
        let began = Instant::now();
        let facts = QueueFacts::take(scheduler, NOW);
        explain_queue(&facts);
        queue.push(began.elapsed());
        let began = Instant::now();
        let mut snapshot = Snapshot::take(scheduler, NOW);
        let name = format!("node-{}", question * 131 % options.nodes);
        explain_node(&mut snapshot, &facts, &name)?;
        of_node.push(began.elapsed());
    }
    Some(vec![
        AnswerTimes::new("pod: copy, nothing is scheduled", &copied),
        AnswerTimes::new("pod: whole answer", &whole),
        AnswerTimes::new("queue: whole answer", &queue),
        AnswerTimes::new("node: whole answer", &of_node),
    ])
}

/// A question to the scheduling thread: the name of a pod, and the last copy of the cluster, which is renewed if it is
/// too old.
struct ThreadQuestion {
    name: String,
    copy: Option<Copied<Snapshot>>,
    reply: mpsc::Sender<(PodFacts, Copied<Snapshot>)>,
}

/// Creates a pod, schedules it and deletes an old one: one decision. Between two decisions it answers a question, like
/// the thread of a scheduler.
struct Scheduling {
    scheduler: Scheduler,
    placed: VecDeque<Arc<Pod>>,
    number: usize,
    began: Instant,
}

impl Scheduling {
    fn decide(&mut self) -> Result<(), PerfError> {
        self.number += 1;
        let name = format!("s{}", self.number);
        let mut made = pod(&name, "steady", json!({"cpu": "50m"}), |_| {});
        let scheduler = &mut self.scheduler;
        scheduler.apply(ClusterChange::Applied(Object::Pod(made.clone())), NOW);
        let ScheduleOutcome::Done {
            result: CycleResult::Placed { node },
            ..
        } = scheduler.schedule_one(NOW)
        else {
            return Err(PerfError::Unscheduled(self.number, self.number));
        };
        for (id, _) in scheduler.take_outputs(NOW).calls {
            scheduler.complete(id, Ok(()), NOW);
        }
        Arc::make_mut(&mut made).spec.node_name = node;
        scheduler.apply(ClusterChange::Applied(Object::Pod(made.clone())), NOW);
        self.placed.push_back(made);
        if self.placed.len() > KEPT
            && let Some(oldest) = self.placed.pop_front()
        {
            scheduler.apply(ClusterChange::Deleted(Object::Pod(oldest)), NOW);
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
        // The asking thread may have ended.
        let _ = question.reply.send((facts, copy));
    }

    /// Schedules for the duration of a turn, and then until `is_over`. Returns the rate of the turn, per second.
    fn turn(
        &mut self,
        duration: Duration,
        questions: &mpsc::Receiver<ThreadQuestion>,
        is_over: impl Fn(bool) -> bool,
    ) -> Result<f64, PerfError> {
        let (began, mut decisions) = (Instant::now(), 0_u64);
        let mut rate = None;
        while !is_over(rate.is_some()) {
            self.decide()?;
            if let Ok(question) = questions.try_recv() {
                self.answer(question);
            }
            decisions += 1;
            if rate.is_none() && began.elapsed() >= duration {
                rate = Some(decisions as f64 / began.elapsed().as_secs_f64());
            }
        }
        Ok(rate.unwrap_or_default())
    }
}

/// The asking thread: the durations of the answers, and the last copy of the cluster.
#[derive(Default)]
struct Asker {
    took: Vec<Duration>,
    copy: Option<Copied<Snapshot>>,
}

impl Asker {
    /// Asks questions until the measurement is over.
    fn ask(
        &mut self,
        is_over: &AtomicBool,
        questions: &mpsc::Sender<ThreadQuestion>,
        options: &ExplainPerfOptions,
        pace: Duration,
    ) {
        while !is_over.load(Ordering::SeqCst) {
            let sent_at = Instant::now();
            let (reply, answer) = mpsc::channel();
            let question = ThreadQuestion {
                name: asked(self.took.len(), options),
                copy: self.copy.take(),
                reply,
            };
            if questions.send(question).is_err() {
                return;
            }
            let Ok((facts, mut copied)) = answer.recv() else {
                return;
            };
            let computing = Instant::now();
            if serde_json::to_vec(&explain_pod(&mut copied.value, &facts)).is_err() {
                return;
            }
            let computed = computing.elapsed();
            self.copy = Some(copied);
            self.took.push(sent_at.elapsed());
            // At most half of the time is spent on answers, as in a scheduler.
            std::thread::sleep(pace.saturating_sub(sent_at.elapsed()).max(computed));
        }
    }
}

/// Alternates turns with and without questions.
fn meanwhile(
    scheduling: &mut Scheduling,
    options: &ExplainPerfOptions,
    pace: Duration,
) -> Result<Meanwhile, PerfError> {
    let turn = Duration::from_millis(options.turn_milliseconds);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut asker = Asker::default();
    for _ in 0..options.turns {
        let is_over = AtomicBool::new(false);
        let (questions, received) = mpsc::channel();
        let rate = std::thread::scope(|scope| {
            let asking = scope.spawn(|| asker.ask(&is_over, &questions, options, pace));
            // The last question of a turn is answered before the next turn begins.
            let rate = scheduling.turn(turn, &received, |is_timed| {
                is_over.store(is_timed, Ordering::SeqCst);
                asking.is_finished()
            });
            // If the turn failed, a pending question ends with its receiver.
            drop(received);
            rate
        });
        with.push(rate?);
        let (_, none) = mpsc::channel();
        without.push(scheduling.turn(turn, &none, |is_timed| is_timed)?);
    }
    // Compare each turn with the next one, which has about the same load of the machine.
    let shares: Vec<f64> = with.iter().zip(&without).map(|(a, b)| a / b).collect();
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    Ok(Meanwhile {
        questions_per_second: asker.took.len() as f64 / (turn.as_secs_f64() * options.turns as f64),
        asked: mean(&with),
        not_asked: mean(&without),
        share: median(&shares).unwrap_or(1.0),
        answers: AnswerTimes::new("pod: whole answer meanwhile", &asker.took),
    })
}

/// Measures explanations in a cluster without anti-affinity, and in a cluster with anti-affinity.
///
/// # Errors
/// When the core cannot be filled, or no pod waits.
pub fn run(options: &ExplainPerfOptions, registry: &Registry) -> Result<ExplainReport, PerfError> {
    let mut clusters = Vec::new();
    for has_apart in [false, true] {
        let scheduler = filled(options, registry, has_apart)?;
        let answers = alone(&scheduler, options).ok_or(PerfError::Missing)?;
        let mut scheduling = Scheduling {
            scheduler,
            placed: VecDeque::new(),
            number: 0,
            began: Instant::now(),
        };
        let paces = PACES.map(|pace| meanwhile(&mut scheduling, options, pace));
        let bound = options.nodes * BOUND_PER_NODE;
        clusters.push(ExplainedCluster {
            bound,
            apart: usize::from(has_apart) * bound.div_ceil(APART_SHARE),
            answers,
            meanwhile: paces.into_iter().collect::<Result<_, _>>()?,
            kept_bytes: scheduling.scheduler.explanation_bytes(),
        });
    }
    Ok(ExplainReport {
        nodes: options.nodes,
        waiting: options.pods,
        clusters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part is measured, and the cluster is as the report states.
    #[test]
    fn explanations_are_measured_alone_and_during_scheduling() {
        let options = ExplainPerfOptions {
            nodes: 30,
            pods: 100,
            rounds: 20,
            turns: 1,
            turn_milliseconds: 100,
        };
        let registry = berth_plugins::in_tree();
        let scheduler = filled(&options, &registry, true).expect("a core");
        let queue = scheduler.queue().places().counts();
        assert_eq!((queue.gated, queue.unschedulable), (10, 90), "{queue:?}");
        let report = run(&options, &registry).expect("a report");
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
