//! What asking costs: `cargo run --release -p berth-explain --example cost -- [NODES] [WAITING]`.
//!
//! The cluster is half full; the waiting pods are of ten kinds, each of which lacks something else, and half of each kind
//! may preempt. First the parts of an
//! answer are timed: the copy, during which nothing is scheduled, and the computation, which runs on another thread. Then
//! one thread schedules pods without a pause while another one asks; turns with and without questions alternate, so that
//! both meet the same load of the machine. At last the goals are listed with whether they are reached.

// It measures, so it asks the clock.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use berth_api::{Labels, Object, Pod, TaintEffect, Time};
use berth_explain::{
    Copied, PodFacts, QueueFacts, Snapshot, explain_node, explain_pod, explain_queue,
};
use berth_framework::testing::{node, pod};
use berth_scheduler::{ClusterChange, CycleResult, Outcome, Scheduler, SchedulerOptions};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const NOW: Time = Time::from_secs(1_000);
/// How many pods are asked about.
const QUESTIONS: usize = 200;
/// The length of a turn with or without questions.
const TURN: Duration = Duration::from_millis(500);
/// How many turns of each there are.
const TURNS: usize = 24;
/// How many pods that were placed stay before the oldest is deleted.
const KEPT: usize = 1_000;
/// The goals: the 99th percentile of answers, and the share of the rate of decisions while questions are asked.
const ANSWERED_WITHIN: Duration = Duration::from_millis(100);
const RATE_SHARE: f64 = 0.97;
/// The pauses between two questions.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::ZERO];

fn waiting(at: usize) -> Pod {
    let made = pod(&format!("w{at}")).label("app", &format!("app-{}", at % 10));
    let made = match at % 10 {
        0..=4 => made.request("cpu", &format!("{}", 5 + at % 5)),
        5 => made.request("memory", "64Gi"),
        6 => made.request("example.com/gpu", "1"),
        7 => made.gate("example.com/gate"),
        8 => made.with(|pod| {
            pod.spec.node_selector = Some(Labels::from_pairs([("disk", "none")]));
        }),
        _ => made.request("cpu", "3500m").with(|pod| {
            let spread = r#"{"spec":{"topologySpreadConstraints":[{"maxSkew":1,"minDomains":9,"topologyKey":"zone",
                "whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"app-9"}}}]}}"#;
            let spread: Pod = serde_json::from_str(spread).expect("a pod");
            pod.spec.topology_spread_constraints = spread.spec.topology_spread_constraints.clone();
        }),
    };
    // Half of each kind may preempt: then preemption is tried for an answer, with higher priorities, too.
    let policy = ["Never", "PreemptLowerPriority"][at / 10 % 2];
    made.with(|pod| pod.spec.preemption_policy = Some(policy.into()))
        .build()
}

/// Prints a distribution. Returns the 99th percentile.
fn report(what: &str, mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    let mean = took.iter().sum::<Duration>() / took.len() as u32;
    println!(
        "{what:<34} mean {mean:>10.1?}   p50 {:>10.1?}   p99 {:>10.1?}   max {:>10.1?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    at(0.99)
}

/// A question to the scheduling thread: the name of a pod, and whether the cluster is copied.
type Question = (
    String,
    bool,
    mpsc::Sender<(PodFacts, Option<Copied<Snapshot>>)>,
);

/// The time of the wall clock since the beginning.
fn clock(begun: Instant) -> Time {
    NOW + begun.elapsed()
}

/// Creates a pod, schedules it and deletes an old one: one decision. Answers a question between two decisions, as the
/// thread of a scheduler does.
struct Scheduling<'a> {
    scheduler: &'a mut Scheduler,
    placed: VecDeque<Object>,
    number: usize,
    begun: Instant,
}

impl Scheduling<'_> {
    fn decide(&mut self) {
        let name = format!("s{}", self.number);
        self.number += 1;
        let made = pod(&name)
            .label("app", "steady")
            .request("cpu", "50m")
            .object();
        let scheduler = &mut *self.scheduler;
        scheduler.apply(ClusterChange::Applied(made.clone()), NOW);
        let Outcome::Done { result, .. } = scheduler.schedule_one(NOW) else {
            panic!("a decision");
        };
        let CycleResult::Placed { node } = result else {
            panic!("{name} fits: {result:?}");
        };
        for (id, _) in scheduler.take_outputs(NOW).calls {
            scheduler.complete(id, Ok(()), NOW);
        }
        let Object::Pod(made) = made else {
            return;
        };
        let mut bound = Pod::clone(&made);
        bound.spec.node_name = node;
        bound.metadata.resource_version = "2".into();
        let bound = Object::Pod(bound.into());
        scheduler.apply(ClusterChange::Applied(bound.clone()), NOW);
        self.placed.push_back(bound);
        if self.placed.len() > KEPT
            && let Some(oldest) = self.placed.pop_front()
        {
            scheduler.apply(ClusterChange::Deleted(oldest), NOW);
        }
        scheduler.take_outputs(NOW);
    }

    fn answer(&self, (name, copies, reply): Question) {
        let facts = PodFacts::take(self.scheduler, "default", &name).expect("the pod");
        let copied = copies.then(|| {
            let began = Instant::now();
            let snapshot = Snapshot::take(self.scheduler, NOW);
            Copied::new(snapshot, clock(self.begun), began.elapsed())
        });
        // The thread that asked may have ended.
        let _ = reply.send((facts, copied));
    }
}

/// What a turn with or without questions has come to.
#[derive(Clone, Copy)]
struct Turn {
    decisions: u64,
    took: Duration,
}

impl Turn {
    fn rate(self) -> f64 {
        self.decisions as f64 / self.took.as_secs_f64()
    }
}

/// Alternates turns with and without questions; prints the rates of both and the times of the answers. Returns the rate
/// with questions as a share of the rate without, and the 99th percentile of the answers.
fn interleaved(
    scheduling: &mut Scheduling<'_>,
    waiting: usize,
    pause: Duration,
) -> (f64, Duration) {
    let (asks, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let is_busy = AtomicBool::new(false);
    let (questions, received) = mpsc::channel::<Question>();
    let begun = scheduling.begun;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let took = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let (mut took, mut kept) = (Vec::new(), None::<Copied<Snapshot>>);
            while !is_over.load(Ordering::SeqCst) {
                is_busy.store(true, Ordering::SeqCst);
                if !asks.load(Ordering::SeqCst) {
                    is_busy.store(false, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let began = Instant::now();
                let name = format!("w{}", took.len() * 97 % waiting);
                let now = clock(begun);
                let copies = kept.as_ref().is_none_or(|kept| kept.pause(now).is_zero());
                let (reply, answer) = mpsc::channel();
                if questions.send((name, copies, reply)).is_err() {
                    break;
                }
                let Ok((facts, copied)) = answer.recv() else {
                    break;
                };
                kept = copied.or(kept);
                let Some(copied) = &mut kept else {
                    break;
                };
                let answer = explain_pod(&mut copied.value, &facts);
                let json = serde_json::to_vec(&answer).expect("JSON");
                assert!(!json.is_empty());
                took.push(began.elapsed());
                is_busy.store(false, Ordering::SeqCst);
                std::thread::sleep(pause.saturating_sub(began.elapsed()));
            }
            took
        });
        let mut step = || {
            scheduling.decide();
            if let Ok(question) = received.try_recv() {
                scheduling.answer(question);
            }
        };
        for turn in 0..2 * TURNS {
            let is_asked = turn % 2 == 0;
            asks.store(is_asked, Ordering::SeqCst);
            // The last question of a turn is answered before the next turn begins.
            while !is_asked && is_busy.load(Ordering::SeqCst) {
                step();
            }
            let began = Instant::now();
            let mut decisions = 0_u64;
            while began.elapsed() < TURN {
                step();
                decisions += 1;
            }
            let turns = if is_asked { &mut with } else { &mut without };
            turns.push(Turn {
                decisions,
                took: began.elapsed(),
            });
        }
        is_over.store(true, Ordering::SeqCst);
        // The last question has an answer, or none: its sender is dropped.
        while let Ok(question) = received.try_recv() {
            scheduling.answer(question);
        }
        drop(received);
        asking.join().expect("no panic")
    });
    // A turn is compared with the one after it, which met about the same load of the machine.
    let pairs = with.iter().zip(&without);
    let mut shares: Vec<f64> = pairs
        .map(|(with, without)| with.rate() / without.rate())
        .collect();
    shares.sort_by(f64::total_cmp);
    let share = shares[shares.len() / 2];
    let mean = |turns: &[Turn]| turns.iter().map(|turn| turn.rate()).sum::<f64>() / TURNS as f64;
    println!(
        "{:.0} questions/s: {:.0} decisions/s, {:.0} without questions; {:.1} % of the rate (median of {TURNS} pairs of \
         turns, {:.1} to {:.1} %)",
        took.len() as f64 / (TURN.as_secs_f64() * TURNS as f64),
        mean(&with),
        mean(&without),
        100.0 * share,
        100.0 * shares[0],
        100.0 * shares[shares.len() - 1]
    );
    (share, report("pod: whole, while pods are scheduled", took))
}

/// What the scheduler keeps for explanations.
fn kept(scheduler: &Scheduler) {
    println!(
        "kept for explanations: {:.2} MB, with {} decisions; resident memory {:.0} MB",
        scheduler.explanation_bytes() as f64 / 1e6,
        scheduler.decisions().count(),
        resident()
    );
}

/// The resident memory of the process in MB; zero where the system does not report it.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibi = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    kibi.unwrap_or(0.0) * 1.024e-3
}

/// Whether a goal is reached.
fn goal(what: &str, is_reached: bool) {
    let mark = if is_reached { "reached" } else { "NOT reached" };
    println!("goal {mark}: {what}");
}

/// A scheduler that has tried every waiting pod once. With `affinity`, one of a hundred bound pods has required
/// anti-affinity to its own kind, so that every answer takes it into account.
fn cluster(nodes: usize, pods: usize, affinity: bool) -> Scheduler {
    let options = SchedulerOptions::default();
    let mut scheduler =
        Scheduler::new(options, &berth_plugins::in_tree(), NOW).unwrap_or_else(|e| panic!("{e}"));
    let mut apply = |object: Object| scheduler.apply(ClusterChange::Applied(object), NOW);
    let apart = r#"{"spec":{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
        {"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"apart"}}}]}}}}"#;
    let apart: Pod = serde_json::from_str(apart).expect("a pod");
    for at in 0..nodes {
        let name = format!("n{at}");
        let made = node(&name)
            .capacity("4", "32Gi", "110")
            .label("kubernetes.io/hostname", &name)
            .label("zone", ["a", "b", "c"][at % 3]);
        let made = match at % 10 {
            0 => made.taint("dedicated", "db", TaintEffect::NoSchedule),
            _ => made,
        };
        apply(made.object());
        for pod_at in 0..4 {
            let is_apart = affinity && (at * 4 + pod_at) % 100 == 0;
            let made = pod(&format!("b{at}-{pod_at}"))
                .on(&name)
                .label("app", if is_apart { "apart" } else { "bound" })
                .request("cpu", "500m")
                .request("memory", "1Gi");
            let made = match is_apart {
                true => made.with(|pod| pod.spec.affinity = apart.spec.affinity.clone()),
                false => made,
            };
            apply(made.object());
        }
    }
    for at in 0..pods {
        apply(Object::Pod(waiting(at).into()));
    }
    let begun = Instant::now();
    let mut attempts = 0;
    while let Outcome::Done { .. } = scheduler.schedule_one(NOW) {
        scheduler.take_outputs(NOW);
        attempts += 1;
    }
    println!(
        "{nodes} nodes, {} bound pods ({} with anti-affinity), {pods} waiting pods; {attempts} attempts in {:.1?}",
        nodes * 4,
        if affinity { nodes * 4 / 100 } else { 0 },
        begun.elapsed()
    );
    scheduler
}

/// Prints what an answer costs while nothing is scheduled. Returns the 99th percentile of answers about pods.
fn alone(scheduler: &Scheduler, nodes: usize, pods: usize) -> Duration {
    let (mut copied, mut computed, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..QUESTIONS {
        let name = format!("w{}", at * 97 % pods);
        let begun = Instant::now();
        let facts = PodFacts::take(scheduler, "default", &name).expect("the pod");
        let mut snapshot = Snapshot::take(scheduler, NOW);
        copied.push(begun.elapsed());
        let computing = Instant::now();
        let answer = explain_pod(&mut snapshot, &facts);
        let json = serde_json::to_vec(&answer).expect("JSON");
        computed.push(computing.elapsed());
        whole.push(begun.elapsed());
        assert!(!json.is_empty());
    }
    report("pod: copy (nothing is scheduled)", copied);
    report("pod: computation", computed);
    let answered = report("pod: whole", whole);
    let (mut taken, mut queue, mut of_node) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..QUESTIONS / 10 {
        let begun = Instant::now();
        let facts = QueueFacts::take(scheduler, NOW);
        taken.push(begun.elapsed());
        explain_queue(&facts);
        queue.push(begun.elapsed());
        let begun = Instant::now();
        let mut snapshot = Snapshot::take(scheduler, NOW);
        explain_node(&mut snapshot, &facts, &format!("n{}", at * 131 % nodes)).expect("a node");
        of_node.push(begun.elapsed());
    }
    report("queue: copy (nothing is scheduled)", taken);
    report("queue: whole", queue);
    report("node: whole", of_node);
    answered
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let nodes: usize = numbers.next().unwrap_or(5_000);
    let pods: usize = numbers.next().unwrap_or(10_000);
    for affinity in [false, true] {
        let mut scheduler = cluster(nodes, pods, affinity);
        kept(&scheduler);
        let answered = alone(&scheduler, nodes, pods);
        let mut scheduling = Scheduling {
            scheduler: &mut scheduler,
            placed: VecDeque::new(),
            number: 0,
            begun: Instant::now(),
        };
        let results = PAUSES.map(|pause| (pause, interleaved(&mut scheduling, pods, pause)));
        kept(&scheduler);
        goal("answers within 100 ms (p99)", answered <= ANSWERED_WITHIN);
        for (pause, (share, answered)) in results {
            let pause = pause.as_millis();
            goal(
                &format!("a question every {pause} ms: answers within 100 ms (p99)"),
                answered <= ANSWERED_WITHIN,
            );
            goal(
                &format!("a question every {pause} ms: scheduling at 97 % of its rate"),
                share >= RATE_SHARE,
            );
        }
        println!();
    }
}
