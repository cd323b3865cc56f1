//! The experiment: pods arrive one after the other, none leaves, until the requested GPUs are 130 % of all GPUs.
//!
//! The workload is the pod list in random order. While it requests less than 130 %, pods drawn from it are added; while
//! it requests more, pods are removed at random. A pod that finds no node counts as requested and waits forever.

use crate::best_fit::BestFit;
use crate::claims;
use crate::devices::{GPU_MILLI, GPU_MODEL, WHOLE, requested_milli};
use crate::fgd::{Fgd, FgdArgs, TypicalPod};
use crate::policy::Policy;
use crate::random::Random;
use berth_api::{Duration, Pod, Str};
use berth_config::ConfigErrors;
use berth_framework::FeatureGates;
use berth_framework::registry::Registry;
use berth_scheduler::SchedulerOptions;
use berth_simulation::trace::{Trace, TraceNode, TracePod};
use berth_simulation::{Run, SimulationError, SimulationOptions, simulate};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// The requested GPUs at the end, in percent of all GPUs.
pub const DEMAND_MAX: usize = 130;
/// The share of the pods that the target workload of FGD covers, as in the simulator of the paper.
const TYPICAL_SHARE: f64 = 0.95;
/// The time between two arrivals: longer than the calls of a binding take.
const ARRIVALS_EVERY: Duration = Duration::from_secs(1);

/// The way in which pods get GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// [`Random`].
    Random,
    /// [`BestFit`].
    BestFit,
    /// [`Fgd`].
    Fgd,
    /// Resource claims, and the default profile.
    Claims,
    /// Resource claims, and the default profile with the scoring strategy MostAllocated.
    ClaimsPacked,
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Random,
        Self::BestFit,
        Self::Fgd,
        Self::Claims,
        Self::ClaimsPacked,
    ];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::BestFit => "best-fit",
            Self::Fgd => "fgd",
            Self::Claims => "claims",
            Self::ClaimsPacked => "claims-packed",
        }
    }

    fn uses_claims(self) -> bool {
        matches!(self, Self::Claims | Self::ClaimsPacked)
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|known| known.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{text:?} is no policy; there are {names}")
        })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason why the experiment cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The traces have nothing to play.
    #[error("the node list has no GPUs, or the pod list asks for none")]
    NoGpus,
    /// The configuration of the scheduler is invalid: a defect of this crate.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The simulation failed.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

/// The allocated share of all GPUs, in percent, when the requested GPUs are 0 %, 1 %, …, 130 %.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Allocation(pub Vec<f64>);

impl Allocation {
    /// The allocated share at this requested share, in percent.
    pub fn at(&self, demand: usize) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get(demand.min(last)).copied().unwrap_or(0.0)
    }
}

/// Nodes and a workload.
#[derive(Debug)]
pub struct Experiment {
    nodes: Vec<TraceNode>,
    workload: Vec<TracePod>,
    /// All GPUs in milli.
    gpu_milli: u64,
    registry: Registry,
}

impl Experiment {
    /// The experiment with a node list and a pod list of the trace.
    ///
    /// # Errors
    /// There are no GPUs, or none is requested.
    pub fn new(nodes: Trace, pods: Trace, registry: Registry) -> Result<Self, ExperimentError> {
        let offered = |node: &TraceNode| {
            let milli = node.node.status.allocatable.get(GPU_MILLI);
            milli.map_or(0, |milli| u64::try_from(milli.value()).unwrap_or(0))
        };
        let gpu_milli = nodes.nodes.iter().map(offered).sum();
        if gpu_milli == 0 || pods.pods.iter().all(|pod| requested_milli(&pod.pod) == 0) {
            return Err(ExperimentError::NoGpus);
        }
        Ok(Self {
            nodes: nodes.nodes,
            workload: pods.pods,
            gpu_milli,
            registry,
        })
    }

    /// The pods of the seed in the order of their arrival.
    pub fn arrivals(&self, seed: u64) -> Vec<TracePod> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pods = self.workload.clone();
        rng.shuffle(&mut pods);
        let most = self.gpu_milli * DEMAND_MAX as u64 / 100;
        let mut sum: u64 = pods.iter().map(|pod| requested_milli(&pod.pod)).sum();
        while sum > most {
            let removed = pods.swap_remove(rng.usize(..pods.len()));
            sum -= requested_milli(&removed.pod);
        }
        loop {
            let drawn = &self.workload[rng.usize(..self.workload.len())];
            sum += requested_milli(&drawn.pod);
            if sum > most {
                break;
            }
            pods.push(drawn.clone());
        }
        let mut arrival = Duration::ZERO;
        for (at, pod) in pods.iter_mut().enumerate() {
            arrival += ARRIVALS_EVERY;
            pod.name = format!("pod-{at}").into();
            pod.arrival = arrival;
            pod.duration = None;
        }
        pods
    }

    /// Runs it once.
    ///
    /// # Errors
    /// The scheduler cannot be created: a defect of this crate.
    pub fn play(&self, contender: Contender, seed: u64) -> Result<Allocation, ExperimentError> {
        let pods = self.arrivals(seed);
        let demands: Vec<u64> = pods.iter().map(|pod| requested_milli(&pod.pod)).collect();
        let mut trace = Trace {
            nodes: self.nodes.clone(),
            pods,
            ..Trace::default()
        };
        if contender.uses_claims() {
            claims::claim_gpus(&mut trace);
        }
        let text = self.config(contender, seed).to_string();
        let features = FeatureGates::default();
        let config = berth_config::parse(&text, contender.name(), features, &self.registry)?;
        let mut scheduler = SchedulerOptions::default();
        config.set_options(&mut scheduler);
        let options = SimulationOptions {
            scheduler,
            config: contender.name().to_owned(),
            seed,
            until: None,
            pods: true,
            retry_without_events: false,
        };
        let run = simulate(&trace, options, &self.registry, &mut |_| {})?;
        Ok(self.allocation(&run, &demands))
    }

    fn allocation(&self, run: &Run, demands: &[u64]) -> Allocation {
        let (mut arrived, mut allocated) = (0, 0);
        let mut shares = vec![0.0];
        for (pod, demand) in run.pods.iter().zip(demands) {
            while shares.len() <= DEMAND_MAX
                && arrived >= self.gpu_milli * shares.len() as u64 / 100
            {
                shares.push(100.0 * allocated as f64 / self.gpu_milli as f64);
            }
            arrived += demand;
            if pod.bound.is_some() {
                allocated += demand;
            }
        }
        // The demand of the last pods may be slightly below the maximum.
        shares.resize(
            DEMAND_MAX + 1,
            100.0 * allocated as f64 / self.gpu_milli as f64,
        );
        Allocation(shares)
    }

    /// The configuration of the scheduler.
    pub fn config(&self, contender: Contender, seed: u64) -> Value {
        let of_policy = |name: &str, args: Value| {
            let names = [
                "PrioritySort",
                "NodeAffinity",
                "NodeResourcesFit",
                name,
                "DefaultBinder",
            ];
            let enabled = names.map(|name| json!({"name": name}));
            json!({
                "plugins": {
                    "multiPoint": {"enabled": enabled, "disabled": [{"name": "*"}]},
                    "score": {"disabled": [{"name": "NodeAffinity"}, {"name": "NodeResourcesFit"}]},
                },
                "pluginConfig": [{"name": name, "args": args}],
            })
        };
        let profile = match contender {
            Contender::Random => of_policy(Random::NAME, json!({"seed": seed})),
            Contender::BestFit => of_policy(BestFit::NAME, json!({})),
            Contender::Fgd => {
                let args = FgdArgs {
                    target_workload: self.target_workload(),
                };
                of_policy(Fgd::NAME, json!(args))
            }
            Contender::Claims => json!({}),
            Contender::ClaimsPacked => claims::packed(),
        };
        json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "percentageOfNodesToScore": 100,
            "profiles": [profile],
        })
    }

    /// The most frequent kinds of pods that together are 95 % of the workload.
    fn target_workload(&self) -> Vec<TypicalPod> {
        let mut counts: HashMap<(i64, u64, Vec<Str>), usize> = HashMap::new();
        for pod in &self.workload {
            let requests = pod
                .pod
                .spec
                .containers
                .first()
                .map(|c| &c.resources.requests);
            let cpu = requests.and_then(|requests| requests.get("cpu"));
            let milli_cpu = cpu.map_or(0, |cpu| cpu.milli_value());
            let kind = (milli_cpu, requested_milli(&pod.pod), models(&pod.pod));
            *counts.entry(kind).or_default() += 1;
        }
        let mut kinds: Vec<_> = counts.into_iter().collect();
        kinds.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
        let enough = TYPICAL_SHARE * self.workload.len() as f64;
        let mut covered = 0;
        let typical = kinds.into_iter().take_while(|(_, count)| {
            let is_needed = (covered as f64) < enough;
            covered += count;
            is_needed
        });
        typical
            .map(|((milli_cpu, gpu_milli, models), count)| TypicalPod {
                milli_cpu,
                gpu_milli: u32::try_from(gpu_milli).unwrap_or(u32::MAX / WHOLE * WHOLE),
                models: models.iter().map(ToString::to_string).collect(),
                share: count as f64,
            })
            .collect()
    }
}

/// The models of GPUs that a pod requires.
fn models(pod: &Pod) -> Vec<Str> {
    let affinity = pod.spec.affinity.as_ref();
    let required = affinity.and_then(|a| a.node_affinity.as_ref()?.required.as_ref());
    let terms = required.into_iter().flat_map(|r| &r.node_selector_terms);
    let requirements = terms.flat_map(|term| &term.match_expressions);
    requirements
        .filter(|requirement| requirement.key == GPU_MODEL)
        .flat_map(|requirement| requirement.values.clone())
        .collect()
}
