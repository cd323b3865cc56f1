//! Drawing a script from a seed.

use super::{CallAnswer, Faults, Script, Step, VARIED};
use crate::shapes::{
    Budget, ClaimShape, DEFERRED_QUOTA, DeviceWant, DriverShape, GROUPS, GroupShape, NAMESPACES,
    NodeChange, NodeShape, PodShape, QUOTAS, QuotaShape, Slow, chance, random_app, random_reason,
    random_taint, random_team, random_zone,
};
use crate::world::WATCHED;
use berth_api::{Duration, Kind, Release};
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::evaluator::EvaluatorKind;
use fastrand::Rng;

/// Pods further back are left alone, mostly.
const RECENT: usize = 30;
/// The greatest number of claims.
const CLAIMS: usize = 6;
/// The weight of steps other than those for pods and nodes.
const SURROUNDINGS: u32 = 29;
/// The seeds with groups of pods.
pub const GROUP_SEEDS: std::ops::Range<u64> = 1 << 20..1 << 21;
/// The seeds in which schedulers apply other configurations. Half of them have groups of pods.
pub const CONFIGURATION_SEEDS: std::ops::Range<u64> = 1 << 21..1 << 22;
/// The seeds with deferred quotas. Half of them have groups of pods, and a quarter have changes of configurations.
pub const QUOTA_SEEDS: std::ops::Range<u64> = 1 << 22..1 << 23;
/// The seeds in which kubelets reject pods. Half of them have groups of pods.
pub const REJECTION_SEEDS: std::ops::Range<u64> = 1 << 23..1 << 24;
/// The reasons for which kubelets reject pods.
const REJECTION_REASONS: [&str; 3] = [
    "OutOfcpu",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
];
/// The number of configurations; see [`Subject::configuration`](crate::Subject::configuration).
const CONFIGURATIONS: usize = 4;
/// The gates of groups.
const GROUP_FEATURES: [Feature; 2] = [
    Feature::GenericWorkload,
    Feature::TopologyAwareWorkloadScheduling,
];
/// The other kinds of objects that change, besides pods, nodes and groups.
const OTHER_KINDS: &[Kind] = WATCHED.split_at(2).1.split_at(9).0;

impl Script {
    /// The script of a seed. A longer script begins like a shorter one. Without faults, calls are answered correctly,
    /// watches neither repeat nor break, and one scheduler leads and does not exit.
    pub fn draw(seed: u64, steps: usize, faults: Faults) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Each release with either evaluator.
        let release = Release::ALL[usize::try_from(seed / 2 % 3).unwrap_or_default()];
        let mut features = FeatureGates::of(release);
        for feature in VARIED {
            if chance(&mut rng, 20) {
                features = features.with(feature, false);
            }
        }
        if !features.enabled(Feature::SchedulerAsyncAPICalls) {
            features = features.with(Feature::SchedulerPreEnqueuePodStatus, false);
        }
        let quotas = QUOTA_SEEDS.contains(&seed);
        let configurations = CONFIGURATION_SEEDS.contains(&seed) || quotas && seed / 4 % 4 == 3;
        let rejections = REJECTION_SEEDS.contains(&seed);
        let may_have_groups = CONFIGURATION_SEEDS.contains(&seed) || quotas || rejections;
        let groups = GROUP_SEEDS.contains(&seed) || may_have_groups && seed / 2 % 2 == 1;
        if groups {
            for feature in GROUP_FEATURES {
                features = features.with(feature, true);
            }
        }
        let standby = chance(&mut rng, 35) && faults.failovers;
        let mut drawing = Drawing {
            nodes: rng.usize(3..8),
            // The pace of deliveries and answers relative to changes differs by seed.
            haste: rng.u32(0..20),
            pods: 0,
            groups,
            configurations,
            quotas,
            rejections,
            faults,
            standby,
            rng,
        };
        let steps = (0..steps).map(|n| drawing.step(n)).collect();
        Self {
            seed,
            features,
            evaluator: match seed % 2 {
                0 => EvaluatorKind::Incremental,
                _ => EvaluatorKind::Plain,
            },
            standby,
            steps,
        }
    }
}

struct Drawing {
    rng: Rng,
    nodes: usize,
    haste: u32,
    pods: usize,
    groups: bool,
    configurations: bool,
    quotas: bool,
    rejections: bool,
    faults: Faults,
    standby: bool,
}

impl Drawing {
    fn pod(&mut self) -> usize {
        let oldest = self.pods.saturating_sub(RECENT);
        self.rng.usize(oldest..=self.pods.max(oldest))
    }

    fn node(&mut self) -> usize {
        self.rng.usize(..self.nodes)
    }

    /// The node of a driver; none for the driver of the devices that all nodes can use.
    fn pool(&mut self) -> Option<usize> {
        if chance(&mut self.rng, 20) {
            None
        } else {
            Some(self.node())
        }
    }

    fn shape(&mut self) -> PodShape {
        let shape = PodShape::random(&mut self.rng, CLAIMS);
        self.dated(shape)
    }

    /// With quotas, pods have creation times, because lines are ordered by them.
    fn dated(&mut self, shape: PodShape) -> PodShape {
        PodShape {
            created: self.quotas.then(|| self.rng.i64(0..100)),
            ..shape
        }
    }

    /// A new pod; with groups, usually a member of one.
    fn new_shape(&mut self) -> PodShape {
        if self.groups && chance(&mut self.rng, 60) {
            let group = self.rng.usize(..GROUPS);
            let shape = PodShape::member(&mut self.rng, group);
            return self.dated(shape);
        }
        self.shape()
    }

    fn group_step(&mut self) -> Step {
        let group = self.rng.usize(..GROUPS);
        if chance(&mut self.rng, 80) {
            Step::CreateGroup(group, GroupShape::random(&mut self.rng, group))
        } else {
            Step::DeleteGroup(group)
        }
    }

    fn quota_step(&mut self) -> Step {
        let quota = self.rng.usize(..QUOTAS);
        if chance(&mut self.rng, 75) {
            Step::SetQuota(quota, QuotaShape::random(&mut self.rng))
        } else {
            Step::DeleteQuota(quota)
        }
    }

    fn watched(&mut self) -> Kind {
        if self.quotas && chance(&mut self.rng, 10) {
            return Kind::Custom(DEFERRED_QUOTA);
        }
        if self.groups && chance(&mut self.rng, 10) {
            return Kind::PodGroup;
        }
        match self.rng.u32(..100) {
            0..55 => Kind::Pod,
            55..75 => Kind::Node,
            _ => OTHER_KINDS[self.rng.usize(..OTHER_KINDS.len())],
        }
    }

    fn step(&mut self, n: usize) -> Step {
        // A cluster to begin with.
        if n < self.nodes / 2 {
            return Step::CreateNode(n, NodeShape::random(&mut self.rng));
        }
        if self.quotas {
            // Most quotas exist before the first pod.
            match n - self.nodes / 2 {
                quota @ 0..QUOTAS if chance(&mut self.rng, 60) => {
                    return Step::SetQuota(quota, QuotaShape::random(&mut self.rng));
                }
                QUOTAS => return Step::Deliver(Kind::Custom(DEFERRED_QUOTA), QUOTAS),
                _ if chance(&mut self.rng, 5) => return self.quota_step(),
                _ => {}
            }
        }
        if self.groups && chance(&mut self.rng, 5) {
            return self.group_step();
        }
        if self.configurations && chance(&mut self.rng, 4) {
            return Step::Reconfigure(self.rng.usize(..CONFIGURATIONS));
        }
        if self.rejections && chance(&mut self.rng, 15) {
            let reason = REJECTION_REASONS[self.rng.usize(..REJECTION_REASONS.len())];
            return Step::RejectPod(self.pod(), reason);
        }
        let own = 100 + 2 * self.haste;
        let total = own + SURROUNDINGS + if self.standby { 24 } else { 0 };
        match self.rng.u32(..total) {
            n if n < own => self.usual(n),
            n if n < own + SURROUNDINGS => self.surroundings(n - own),
            n => self.standing_by(n - own - SURROUNDINGS),
        }
    }

    /// A random action of users or schedulers, or an input of schedulers.
    fn usual(&mut self, n: u32) -> Step {
        match n {
            0..16 => {
                self.pods += 1;
                Step::CreatePod(self.pods, self.new_shape())
            }
            16..18 => Step::ReplacePod(self.pod(), self.shape()),
            18 => {
                self.pods += 1;
                let mut shape = self.shape();
                (shape.gates, shape.held, shape.slow) = (0, None, None);
                // A manually placed pod has no claims, because no scheduler reserves them.
                (shape.claim, shape.devices) = (None, None);
                Step::PlacePod(self.pods, shape, self.node())
            }
            19..27 => Step::RemoveGate(self.pod(), self.rng.usize(..3)),
            27..30 => {
                let reason = random_reason(&mut self.rng);
                Step::Hold(self.pod(), chance(&mut self.rng, 40).then_some(reason))
            }
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
            54..56 if self.faults.watches => Step::Repeat(self.watched()),
            56 if self.faults.watches && chance(&mut self.rng, 60) => Step::Relist(self.watched()),
            57 if self.faults.restarts && chance(&mut self.rng, 30) => {
                Step::Restart(self.rng.u64(..))
            }
            58 if self.faults.restarts => Step::Land(self.rng.usize(..6)),
            54..65 => {
                let spans = [10, 100, 400, 1000, 2000, 5000, 11_000];
                let millis = spans[self.rng.usize(..spans.len())];
                Step::Advance(Duration::from_millis(millis))
            }
            65..68 => Step::EndJob(
                self.rng.usize(..4),
                !self.faults.calls || chance(&mut self.rng, 70),
            ),
            n if n < 68 + 12 + self.haste => self.answer(),
            n if n < 68 + 24 + 2 * self.haste => Step::Schedule(self.rng.usize(1..4)),
            _ => Step::Deliver(self.watched(), self.rng.usize(1..8)),
        }
    }

    /// The events around pods and nodes.
    fn surroundings(&mut self, n: u32) -> Step {
        match n {
            0..4 => Step::CreateClaim(
                self.rng.usize(..CLAIMS),
                ClaimShape::random(&mut self.rng, self.nodes),
            ),
            4..6 => Step::DeleteClaim(self.rng.usize(..CLAIMS)),
            6..9 => Step::BindClaims,
            9..11 => Step::LabelNamespace(
                self.rng.usize(..NAMESPACES.len()),
                random_team(&mut self.rng),
            ),
            11 => Step::SetBudget(Budget::random(&mut self.rng)),
            12 => Step::RemoveBudget(random_app(&mut self.rng)),
            13..16 => {
                let at = self.rng.usize(..NAMESPACES.len());
                let reason = random_reason(&mut self.rng);
                Step::Close(at, chance(&mut self.rng, 40).then_some(reason))
            }
            16 => Step::Tighten(self.pod(), random_zone(&mut self.rng)),
            17..21 => Step::PublishDevices(self.pool(), DriverShape::random(&mut self.rng)),
            21 => Step::WithdrawDevices(self.pool()),
            22..25 => {
                let want = DeviceWant::random(&mut self.rng);
                Step::CreateDeviceClaim(self.rng.usize(..CLAIMS), want)
            }
            25 => Step::DeleteDeviceClaim(self.rng.usize(..CLAIMS)),
            _ => Step::ManageClaims,
        }
    }

    /// A step of the scheduler that does not lead.
    fn standing_by(&mut self, n: u32) -> Step {
        let step = match n {
            0 if chance(&mut self.rng, 60) => return Step::FailOver,
            1 => return Step::StepDown,
            2..4 => return Step::Land(self.rng.usize(..6)),
            4 if self.faults.watches => Step::Repeat(self.watched()),
            5 if self.faults.watches => Step::Relist(self.watched()),
            6..10 => Step::Schedule(1),
            10..14 => self.answer(),
            _ => Step::Deliver(self.watched(), self.rng.usize(1..10)),
        };
        Step::Other(Box::new(step))
    }

    fn answer(&mut self) -> Step {
        let number = self.rng.u32(..14);
        let answer = match number {
            0 if self.faults.calls => CallAnswer::Conflict,
            1 if self.faults.calls => CallAnswer::TooManyRequests,
            2 if self.faults.calls => CallAnswer::ServerError,
            3 if self.faults.calls => CallAnswer::TimeoutBefore,
            4 if self.faults.calls => CallAnswer::TimeoutAfter,
            _ => CallAnswer::Honest,
        };
        let (first, count) = (self.rng.usize(..6), self.rng.usize(1..4));
        match number {
            // A server answers after it has executed a call, so the watch may be first.
            5 | 6 => Step::CarryOut(first, count),
            _ => Step::Answer(first, count, answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_script_and_the_start_of_longer_scripts() {
        let script = Script::draw(7, 100, Faults::ALL);
        assert_eq!(script, Script::draw(7, 100, Faults::ALL));
        let longer = Script::draw(7, 200, Faults::ALL);
        assert_eq!(script.steps, longer.steps[..100]);
        assert_ne!(script.steps, Script::draw(8, 100, Faults::ALL).steps);
    }

    #[test]
    fn without_faults_nothing_fails() {
        for seed in 0..20 {
            for step in Script::draw(seed, 500, Faults::NONE).steps {
                let fails = match &step {
                    Step::Answer(_, _, answer) => *answer != CallAnswer::Honest,
                    Step::EndJob(_, well) => !well,
                    Step::Repeat(_)
                    | Step::Relist(_)
                    | Step::Restart(_)
                    | Step::Land(_)
                    | Step::FailOver
                    | Step::StepDown
                    | Step::Other(_) => true,
                    _ => false,
                };
                assert!(!fails, "seed {seed}: {step}");
            }
        }
    }
}
