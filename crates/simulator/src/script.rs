//! What happens in a run: a list of steps, drawn from a seed. A step names the objects it is about, so it keeps its
//! meaning when others are left out; where its object is not there, nothing happens.

use crate::shapes::{NodeChange, NodeShape, PodShape, Slow, chance, random_app, random_taint};
use berth_api::Duration;
use berth_framework::{Feature, FeatureGates};
use fastrand::Rng;
use std::fmt;

/// A kind of object that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// Pods.
    Pods,
    /// Nodes.
    Nodes,
}

/// What the API says to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// What is true: done, or refused for a reason.
    Honest,
    /// 409 though nothing stands against it: somebody else wrote at the same time.
    Conflict,
    /// 429.
    TooManyRequests,
    /// 500, and nothing was done.
    ServerError,
    /// No answer in time, and nothing was done.
    TimeoutBefore,
    /// No answer in time, but it was done.
    TimeoutAfter,
}

/// One thing that happens. Pods and nodes are known by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A user creates a pod.
    CreatePod(usize, PodShape),
    /// A user replaces a pod by another one of the same name.
    ReplacePod(usize, PodShape),
    /// Somebody else puts a pod on a node.
    PlacePod(usize, PodShape, usize),
    /// A gate of a pod is removed.
    RemoveGate(usize, usize),
    /// A pod is kept out by its label, or not any more.
    Hold(usize, bool),
    /// A pod is made slow, or not any more.
    Slow(usize, Option<Slow>),
    /// A pod gets another label.
    Relabel(usize, &'static str),
    /// A pod gets a toleration.
    Tolerate(usize, &'static str),
    /// A pod is being deleted, and stays for a while.
    TerminatePod(usize),
    /// A pod is deleted.
    DeletePod(usize),
    /// A pod runs to its end.
    FinishPod(usize),
    /// Pods that are being deleted go.
    Reap,
    /// A node comes, perhaps again.
    CreateNode(usize, NodeShape),
    /// A node changes.
    ChangeNode(usize, NodeChange),
    /// A node goes.
    DeleteNode(usize),
    /// Pods without their node are removed.
    CollectGarbage,
    /// A watch delivers so many events.
    Deliver(Watched, usize),
    /// A watch delivers its last event once more.
    Repeat(Watched),
    /// A watch breaks, and everything is listed again.
    Relist(Watched),
    /// Time passes.
    Advance(Duration),
    /// The scheduler tries so many pods.
    Schedule(usize),
    /// So many calls are answered, from this one on (counted round).
    Answer(usize, usize, Answer),
    /// A job ends, well or not.
    EndJob(usize, bool),
    /// The scheduler dies and another one starts. Bit by bit: whether each call under way was carried out.
    Restart(u64),
}

/// The name of a pod.
pub(crate) fn pod_name(number: usize) -> String {
    format!("p{number}")
}

/// The name of a node.
pub(crate) fn node_name(number: usize) -> String {
    format!("n{number}")
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreatePod(pod, shape) => write!(f, "create pod p{pod}: {shape}"),
            Self::ReplacePod(pod, shape) => {
                write!(f, "delete pod p{pod} and create it anew: {shape}")
            }
            Self::PlacePod(pod, shape, node) => {
                write!(f, "somebody else puts pod p{pod} on node n{node}: {shape}")
            }
            Self::RemoveGate(pod, gate) => write!(f, "remove gate {gate} of pod p{pod}"),
            Self::Hold(pod, true) => write!(f, "hold pod p{pod}"),
            Self::Hold(pod, false) => write!(f, "stop holding pod p{pod}"),
            Self::Slow(pod, Some(slow)) => write!(f, "make pod p{pod} slow at {}", slow.as_str()),
            Self::Slow(pod, None) => write!(f, "make pod p{pod} quick"),
            Self::Relabel(pod, app) => write!(f, "label pod p{pod} app={app}"),
            Self::Tolerate(pod, taint) => write!(f, "let pod p{pod} tolerate {taint}"),
            Self::TerminatePod(pod) => write!(f, "begin to delete pod p{pod}"),
            Self::DeletePod(pod) => write!(f, "delete pod p{pod}"),
            Self::FinishPod(pod) => write!(f, "pod p{pod} runs to its end"),
            Self::Reap => f.write_str("pods that are being deleted go"),
            Self::CreateNode(node, shape) => write!(f, "create node n{node}: {shape}"),
            Self::ChangeNode(node, change) => write!(f, "change node n{node}: {change}"),
            Self::DeleteNode(node) => write!(f, "delete node n{node}"),
            Self::CollectGarbage => f.write_str("remove the pods whose node is gone"),
            Self::Deliver(what, count) => write!(f, "the watch of {what} delivers {count}"),
            Self::Repeat(what) => write!(f, "the watch of {what} repeats its last event"),
            Self::Relist(what) => write!(f, "the watch of {what} breaks: relist"),
            Self::Advance(span) => write!(f, "{} ms pass", span.as_millis()),
            Self::Schedule(count) => write!(f, "schedule {count}"),
            Self::Answer(first, count, answer) => {
                let answer = match answer {
                    Answer::Honest => "as is true",
                    Answer::Conflict => "with 409",
                    Answer::TooManyRequests => "with 429",
                    Answer::ServerError => "with 500",
                    Answer::TimeoutBefore => "with a timeout, not done",
                    Answer::TimeoutAfter => "with a timeout, but done",
                };
                write!(f, "answer {count} calls from {first} on {answer}")
            }
            Self::EndJob(job, true) => write!(f, "job {job} ends well"),
            Self::EndJob(job, false) => write!(f, "job {job} fails"),
            Self::Restart(done) => {
                write!(f, "the scheduler restarts (calls carried out: {done:b})")
            }
        }
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pods => "pods",
            Self::Nodes => "nodes",
        })
    }
}

/// Everything that a run depends on beside what is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Where the scheduler's randomness comes from.
    pub seed: u64,
    /// The feature gates.
    pub features: FeatureGates,
    /// What happens.
    pub steps: Vec<Step>,
}

/// The gates that differ from seed to seed.
const VARIED: [Feature; 5] = [
    Feature::SchedulerAsyncAPICalls,
    Feature::SchedulerPreEnqueuePodStatus,
    Feature::SchedulerPopFromBackoffQ,
    Feature::SchedulerPreQueueingHints,
    Feature::NominatedNodeNameForExpectation,
];

impl Script {
    /// The script of a seed. A longer one begins like a shorter one. Without `faults` nothing fails: calls are
    /// answered as is true, watches neither repeat nor break, the scheduler stays alive.
    pub fn draw(seed: u64, steps: usize, faults: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut features = FeatureGates::default();
        for feature in VARIED {
            if chance(&mut rng, 20) {
                features = features.with(feature, false);
            }
        }
        if !features.enabled(Feature::SchedulerAsyncAPICalls) {
            features = features.with(Feature::SchedulerPreEnqueuePodStatus, false);
        }
        let mut drawing = Drawing {
            nodes: rng.usize(3..8),
            // A seed has a temper: how much is delivered and answered compared with what happens.
            haste: rng.u32(0..20),
            pods: 0,
            faults,
            rng,
        };
        let steps = (0..steps).map(|n| drawing.step(n)).collect();
        Self {
            seed,
            features,
            steps,
        }
    }

    /// The gates that are not as usual, as `--feature-gates` takes them.
    pub fn unusual_features(&self) -> String {
        let usual = FeatureGates::default();
        let unusual = VARIED
            .iter()
            .filter(|feature| self.features.enabled(**feature) != usual.enabled(**feature));
        let texts: Vec<String> = unusual
            .map(|feature| format!("{feature}={}", self.features.enabled(*feature)))
            .collect();
        texts.join(",")
    }
}

struct Drawing {
    rng: Rng,
    nodes: usize,
    haste: u32,
    pods: usize,
    faults: bool,
}

/// Pods further back are left alone, mostly.
const RECENT: usize = 30;

impl Drawing {
    fn pod(&mut self) -> usize {
        let oldest = self.pods.saturating_sub(RECENT);
        self.rng.usize(oldest..=self.pods.max(oldest))
    }

    fn node(&mut self) -> usize {
        self.rng.usize(..self.nodes)
    }

    fn watched(&mut self) -> Watched {
        if chance(&mut self.rng, 70) {
            Watched::Pods
        } else {
            Watched::Nodes
        }
    }

    fn step(&mut self, n: usize) -> Step {
        // A cluster to begin with.
        if n < self.nodes / 2 {
            return Step::CreateNode(n, NodeShape::random(&mut self.rng));
        }
        let total = 100 + 2 * self.haste;
        match self.rng.u32(..total) {
            0..16 => {
                self.pods += 1;
                Step::CreatePod(self.pods, PodShape::random(&mut self.rng))
            }
            16..18 => Step::ReplacePod(self.pod(), PodShape::random(&mut self.rng)),
            18 => {
                self.pods += 1;
                let mut shape = PodShape::random(&mut self.rng);
                (shape.gates, shape.held, shape.slow) = (0, false, None);
                Step::PlacePod(self.pods, shape, self.node())
            }
            19..27 => Step::RemoveGate(self.pod(), self.rng.usize(..3)),
            27..30 => Step::Hold(self.pod(), chance(&mut self.rng, 30)),
            30 => {
                let slow = Slow::ALL[self.rng.usize(..4)];
                Step::Slow(self.pod(), chance(&mut self.rng, 40).then_some(slow))
            }
            31..33 => Step::Relabel(self.pod(), random_app(&mut self.rng)),
            33 => Step::Tolerate(self.pod(), random_taint(&mut self.rng)),
            34 => Step::TerminatePod(self.pod()),
            35..40 => Step::DeletePod(self.pod()),
            40..43 => Step::FinishPod(self.pod()),
            43 => Step::Reap,
            44..47 => Step::CreateNode(self.node(), NodeShape::random(&mut self.rng)),
            47..52 => Step::ChangeNode(self.node(), NodeChange::random(&mut self.rng)),
            52 => Step::DeleteNode(self.node()),
            53 => Step::CollectGarbage,
            54..56 if self.faults => Step::Repeat(self.watched()),
            56 if self.faults && chance(&mut self.rng, 60) => Step::Relist(self.watched()),
            57 if self.faults && chance(&mut self.rng, 30) => Step::Restart(self.rng.u64(..)),
            54..65 => {
                let spans = [10, 100, 400, 1000, 2000, 5000, 11_000];
                let millis = spans[self.rng.usize(..spans.len())];
                Step::Advance(Duration::from_millis(millis))
            }
            65..68 => Step::EndJob(
                self.rng.usize(..4),
                !self.faults || chance(&mut self.rng, 70),
            ),
            n if n < 68 + 12 + self.haste => self.answer(),
            n if n < 68 + 24 + 2 * self.haste => Step::Schedule(self.rng.usize(1..4)),
            _ => Step::Deliver(self.watched(), self.rng.usize(1..8)),
        }
    }

    fn answer(&mut self) -> Step {
        let answer = match self.rng.u32(..14) {
            0 if self.faults => Answer::Conflict,
            1 if self.faults => Answer::TooManyRequests,
            2 if self.faults => Answer::ServerError,
            3 if self.faults => Answer::TimeoutBefore,
            4 if self.faults => Answer::TimeoutAfter,
            _ => Answer::Honest,
        };
        Step::Answer(self.rng.usize(..6), self.rng.usize(1..4), answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_script_again_and_a_longer_one_begins_alike() {
        let script = Script::draw(7, 100, true);
        assert_eq!(script, Script::draw(7, 100, true));
        assert_eq!(script.steps, Script::draw(7, 200, true).steps[..100]);
        assert_ne!(script.steps, Script::draw(8, 100, true).steps);
    }

    #[test]
    fn without_faults_nothing_fails() {
        for seed in 0..20 {
            for step in Script::draw(seed, 500, false).steps {
                let fails = match &step {
                    Step::Answer(_, _, answer) => *answer != Answer::Honest,
                    Step::EndJob(_, well) => !well,
                    Step::Repeat(_) | Step::Relist(_) | Step::Restart(_) => true,
                    _ => false,
                };
                assert!(!fails, "seed {seed}: {step}");
            }
        }
    }
}
