//! One run: schedulers in their world, step by step, judged by the checker.

mod instance;
mod judge;
mod quotas;
mod rest;
mod schedulers;
mod surroundings;
mod tally;

use crate::api::{Api, FaithfulApi};
use crate::checker::{Foreign, Violation};
use crate::panics::{Panicked, caught};
use crate::plugins::{CLOSES, Closes, HOLDS, Holds, STAGES, Stages};
use crate::script::{Script, Step};
use crate::shapes::{SCHEDULERS, ZONE};
use crate::world::World;
use berth_api::{Duration, Str, Time};
use berth_framework::call::ApiCall;
use berth_framework::extender::Extenders;
use berth_framework::registry::{AlreadyRegistered, Registry};
use berth_scheduler::profile::{EnabledPlugin, PluginConfig, Point, ProfileSpec};
use berth_scheduler::{Observer, Reconfiguration, SchedulerOptions};
use instance::{Instance, Role, Setup};
use quotas::Disturbed;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use tally::Tally;

/// The plugin that reads the rejections of kubelets.
const REJECTIONS: &str = "KubeletRejections";

/// The judged parts: the plugins of the scheduler with their options, and the API.
#[derive(Clone)]
pub struct Subject {
    /// The plugins.
    pub registry: Registry,
    /// The profiles with which schedulers start, and that apply at rest.
    pub profiles: Vec<ProfileSpec>,
    /// The configurations that a script applies, other than that of `profiles`.
    pub others: Vec<Configuration>,
    /// The API.
    pub api: Arc<dyn Api>,
    /// Observes the schedulers; none for most runs.
    pub observe: Option<Observe>,
}

/// A configuration that running schedulers take over.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The profiles.
    pub profiles: Vec<ProfileSpec>,
    /// The share of nodes to score, in per cent.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The initial and the maximum backoff.
    pub backoffs: (Duration, Duration),
}

/// Creates the observer of a scheduler from its options and its start time, or none.
pub type Observe = Arc<dyn Fn(&SchedulerOptions, Time) -> Option<Box<dyn Observer>> + Send + Sync>;

impl Subject {
    /// The in-tree plugins in their default profile, with the plugins of the simulator, and a faithful API. A second
    /// profile has another order of PreEnqueue plugins, and prefers full nodes.
    ///
    /// # Errors
    /// When an in-tree plugin has the name of one of the simulator's.
    pub fn in_tree() -> Result<Self, AlreadyRegistered> {
        let mut registry = berth_plugins::in_tree();
        registry.register(HOLDS, |_| Ok(Holds::extensions()))?;
        registry.register(CLOSES, |_| Ok(Closes::extensions()))?;
        registry.register(STAGES, |_| Ok(Stages::extensions()))?;
        let profile = |name: &str| {
            let mut profile = ProfileSpec::named(name);
            let wanted = &mut profile.plugins.multi_point.enabled;
            wanted.extend([HOLDS, CLOSES, STAGES, REJECTIONS].map(EnabledPlugin::new));
            // The exclusion must end before the run is at rest.
            profile.plugin_config.push(PluginConfig {
                name: REJECTIONS.to_owned(),
                args: serde_json::json!({
                    "excludeAfter": 1, "window": "30s", "excludeFor": "15s", "halfLife": "5s",
                }),
            });
            profile
        };
        let mut second = profile(SCHEDULERS[1]);
        let first_asked = &mut second.plugins.point_mut(Point::PreEnqueue).enabled;
        first_asked.extend([CLOSES, HOLDS, "SchedulingGates"].map(EnabledPlugin::new));
        second.plugin_config.push(PluginConfig {
            name: "NodeResourcesFit".to_owned(),
            args: serde_json::json!({"scoringStrategy": {"type": "MostAllocated"}}),
        });
        let profiles = vec![profile(SCHEDULERS[0]), second];
        Ok(Self {
            registry,
            others: other_configurations(&profiles),
            profiles,
            api: Arc::new(FaithfulApi),
            observe: None,
        })
    }
}

impl Subject {
    /// A configuration by its number; 0 is the configuration at the start.
    pub fn configuration(&self, number: usize) -> Reconfiguration {
        let usual = SchedulerOptions::default();
        let first = Configuration {
            profiles: self.profiles.clone(),
            percentage_of_nodes_to_score: None,
            backoffs: (usual.pod_initial_backoff, usual.pod_max_backoff),
        };
        let chosen = match number.checked_sub(1) {
            Some(other) if !self.others.is_empty() => {
                self.others[other % self.others.len()].clone()
            }
            _ => first,
        };
        Reconfiguration {
            profiles: chosen.profiles,
            percentage_of_nodes_to_score: chosen.percentage_of_nodes_to_score,
            pod_initial_backoff: chosen.backoffs.0,
            pod_max_backoff: chosen.backoffs.1,
            extenders: Extenders::default(),
            source: number.to_string().into(),
        }
    }
}

/// A stricter configuration that evicts no pods, one with other scores and backoffs, and one without the second
/// profile. None permits anything that the first one does not: the checker judges by the rules of the API.
fn other_configurations(profiles: &[ProfileSpec]) -> Vec<Configuration> {
    let usual = SchedulerOptions::default();
    let backoffs = (usual.pod_initial_backoff, usual.pod_max_backoff);
    let mut strict = profiles.to_vec();
    for profile in &mut strict {
        let disabled = &mut profile.plugins.multi_point.disabled;
        disabled.push("DefaultPreemption".to_owned());
        let zone = serde_json::json!({"key": ZONE, "operator": "In", "values": ["a"]});
        let term = serde_json::json!({"matchExpressions": [zone]});
        profile.plugin_config.push(PluginConfig {
            name: "NodeAffinity".to_owned(),
            args: serde_json::json!({"addedAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
            }}),
        });
    }
    let mut swapped = profiles.to_vec();
    if let [first, second] = &mut swapped[..] {
        std::mem::swap(&mut first.plugin_config, &mut second.plugin_config);
        let preferred = EnabledPlugin {
            weight: Some(50),
            ..EnabledPlugin::new("ImageLocality")
        };
        first
            .plugins
            .point_mut(Point::Score)
            .enabled
            .push(preferred);
    }
    vec![
        Configuration {
            profiles: strict,
            percentage_of_nodes_to_score: None,
            backoffs,
        },
        Configuration {
            profiles: swapped,
            percentage_of_nodes_to_score: Some(40),
            backoffs: (Duration::from_secs(3), Duration::from_secs(30)),
        },
        Configuration {
            profiles: profiles[..1].to_vec(),
            percentage_of_nodes_to_score: None,
            backoffs: (Duration::from_secs(1), Duration::from_secs(2)),
        },
    ]
}

/// A run that has shown a violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The step, counted from 0; the number of steps if the violation occurred while the run came to rest.
    pub step: usize,
    /// The violation.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.violation)
    }
}

/// Receives the log of a run, line by line.
pub type Listener<'a> = &'a mut dyn FnMut(&str);

/// Runs a script.
///
/// # Errors
/// The first violation.
pub fn run(subject: &Subject, script: &Script) -> Result<Tally, Failure> {
    run_with(subject, script, None)
}

/// Runs a script and reports each step, and each input, decision and call of the scheduler.
///
/// # Errors
/// The first violation.
pub fn notify(
    subject: &Subject,
    script: &Script,
    listener: Listener<'_>,
) -> Result<Tally, Failure> {
    run_with(subject, script, Some(listener))
}

fn run_with(
    subject: &Subject,
    script: &Script,
    listener: Option<Listener<'_>>,
) -> Result<Tally, Failure> {
    let mut step = 0;
    let ended = caught(|| {
        let mut run = Run::new(subject, script, listener)?;
        for at in &script.steps {
            run.print_line(|| format!("--- {at}"));
            run.step(at)?;
            run.take_over_all()?;
            run.check_books()?;
            run.check_moment()?;
            step += 1;
        }
        run.run_to_rest()?;
        for instance in &run.instances {
            run.tally.placements += instance.checker.decisions();
        }
        Ok(run.tally)
    });
    let violation = match ended {
        Ok(Ok(tally)) => return Ok(tally),
        Ok(Err(violation)) => violation,
        Err(Panicked { message, place }) => Violation::Panic { message, place },
    };
    Err(Failure { step, violation })
}

/// The index of the leading scheduler.
const LEADER: usize = 0;
/// The index of the other scheduler, if any: it is on standby, or believes that it still leads.
const OTHER: usize = 1;

struct Run<'a, 'l> {
    subject: &'a Subject,
    listener: Option<Listener<'l>>,
    setup: Setup<'a>,
    world: World,
    /// The leading scheduler, and possibly another one.
    instances: Vec<Instance>,
    now: Time,
    /// Calls of exited schedulers that have not arrived yet.
    orphans: Vec<ApiCall>,
    /// The last write of a former leader.
    foreign: Foreign,
    /// The last written nominations, by the UID of the pod.
    nominations: BTreeMap<Str, Str>,
    /// The quotas whose usage may exceed their limits without a fault of a scheduler.
    disturbed: Disturbed,
    tally: Tally,
}

/// A call in a line.
fn in_short(call: &ApiCall) -> String {
    let object = &call.object().name;
    let nominates = |node: &Option<Str>| {
        let node = node.as_ref();
        node.map_or(String::new(), |node| {
            format!(" nominated {:?}", node.as_str())
        })
    };
    match call {
        ApiCall::BindPod { node, .. } => format!("bind {object} to {node}"),
        ApiCall::PatchPodStatus {
            conditions,
            nominated_node,
            ..
        } => {
            let mut text = format!("patch {object}");
            for c in conditions {
                text += &format!(" {}={} {}: {}", c.kind, c.status, c.reason, c.message);
            }
            text + &nominates(nominated_node)
        }
        ApiCall::ClearPreEnqueueStatus { nominated_node, .. } => {
            format!("clear the status of {object}{}", nominates(nominated_node))
        }
        ApiCall::DeletePod { .. } => format!("delete {object}"),
        ApiCall::Write(write) => format!("write {object}: {:?}", write.action()),
    }
}

impl<'a, 'l> Run<'a, 'l> {
    fn new(
        subject: &'a Subject,
        script: &Script,
        listener: Option<Listener<'l>>,
    ) -> Result<Self, Violation> {
        let now = Time::from_secs(1_000_000);
        let setup = Setup {
            subject,
            features: script.features,
            evaluator: script.evaluator,
            seed: script.seed,
            configuration: 0,
            started: 0,
        };
        let mut run = Self {
            subject,
            listener,
            setup,
            world: World::furnished(),
            instances: Vec::new(),
            now,
            orphans: Vec::new(),
            foreign: Foreign::default(),
            nominations: BTreeMap::new(),
            disturbed: Disturbed::new(),
            tally: Tally::default(),
        };
        let leader = Instance::start(&mut run.setup, Role::Leads, now)?;
        run.instances.push(leader);
        if script.standby {
            let standby = Instance::start(&mut run.setup, Role::Standby, now)?;
            run.instances.push(standby);
        }
        Ok(run)
    }

    fn print_line(&mut self, what: impl FnOnce() -> String) {
        if let Some(listener) = &mut self.listener {
            listener(&what());
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Violation> {
        match step {
            Step::Advance(span) => self.advance(*span),
            Step::Reconfigure(number) => {
                self.setup.configuration = *number;
                Ok(())
            }
            Step::Restart(fate) => self.restart(*fate),
            Step::Land(at) => self.land(*at),
            Step::FailOver => self.fail_over(),
            Step::StepDown => self.step_down(),
            Step::Other(step) if self.instances.len() > OTHER => self.drive(OTHER, step),
            Step::Other(_) => Ok(()),
            step => {
                self.note_disturbed_quotas(step);
                self.change_world(step);
                self.drive(LEADER, step)
            }
        }
    }
}
