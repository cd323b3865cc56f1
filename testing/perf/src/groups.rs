//! Groups of pods in the core alone: one attempt of a gang, a search over racks, a plan of evictions, and what parked gangs
//! cost pods without a group.
//!
//! Every call is answered at once and shown by a watch at once, as in [`core`](crate::core). An attempt is measured without the
//! calls that follow from it, and with them.

use crate::core::{ClusterScale, CoreWorld, PerfError, Row};
use crate::generate;
use berth_api::{Duration, Kind, Object, Release};
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::{CycleResult, ScheduleOutcome, SchedulerOptions};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;

/// The label of the racks.
const RACK: &str = "example.com/rack";
/// The number of gangs that wait, and of their members.
const PARKED: (usize, usize) = (1_000, 3);
/// The time after which a group that was rejected has ended its backoff.
const BACKOFF: Duration = Duration::from_secs(60);

/// The options of the measurement.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of measurements of each row.
    pub repeats: usize,
    /// All sizes are divided by this, for a quick look.
    pub divide: usize,
    /// The seed of the scheduler.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            repeats: 5,
            divide: 1,
            seed: 1,
        }
    }
}

/// All figures.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The seed of the scheduler.
    pub seed: u64,
    /// Attempts of groups.
    pub attempts: Vec<AttemptFigures>,
    /// Pods without a group, beside parked gangs.
    pub beside: BesideFigures,
}

/// One attempt of a group.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptFigures {
    /// The name of the row.
    pub name: &'static str,
    /// The nodes of the cluster.
    pub nodes: usize,
    /// The members of the group.
    pub members: usize,
    /// The pods that run before.
    pub running: usize,
    /// The members that were placed in an attempt.
    pub placed: usize,
    /// The pods that were evicted.
    pub evicted: usize,
    /// The median time of the attempt, in milliseconds.
    pub attempt_millis: f64,
    /// The median with the calls that follow, in milliseconds.
    pub with_calls_millis: f64,
}

/// Pods without a group while gangs wait that fit nowhere.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BesideFigures {
    /// The nodes of the cluster.
    pub nodes: usize,
    /// The gangs that wait.
    pub gangs: usize,
    /// Decisions per second without them: the median of the turns.
    pub alone_per_second: f64,
    /// Decisions per second beside them: the median of the turns.
    pub beside_per_second: f64,
    /// The attempts of gangs meanwhile.
    pub gang_attempts: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:>8} {:>8} {:>8} {:>7} {:>8} {:>12} {:>14}",
            "group",
            "nodes",
            "members",
            "running",
            "placed",
            "evicted",
            "attempt ms",
            "with calls ms"
        )?;
        for row in &self.attempts {
            writeln!(
                f,
                "{:<28} {:>8} {:>8} {:>8} {:>7} {:>8} {:>12.3} {:>14.3}",
                row.name,
                row.nodes,
                row.members,
                row.running,
                row.placed,
                row.evicted,
                row.attempt_millis,
                row.with_calls_millis
            )?;
        }
        let beside = &self.beside;
        writeln!(
            f,
            "\npods without a group, {} nodes: {:.0}/s; beside {} gangs that wait: {:.0}/s ({:+.1} %, {} attempts of gangs)",
            beside.nodes,
            beside.alone_per_second,
            beside.gangs,
            beside.beside_per_second,
            (beside.beside_per_second / beside.alone_per_second - 1.0) * 100.0,
            beside.gang_attempts
        )
    }
}

/// A cluster and a group in it.
#[derive(Clone, Copy)]
struct GroupScene {
    name: &'static str,
    nodes: usize,
    members: usize,
    /// The nodes of a rack, for a group that must be in one.
    rack: Option<usize>,
    /// The pods of lower priority on each node.
    running: usize,
    /// The CPU request of a member.
    cpu: &'static str,
    repeats: usize,
}

impl GroupScene {
    fn all(options: &Options) -> Vec<Self> {
        let repeats = options.repeats.max(1);
        let scene = |name, nodes, members, repeats| Self {
            name,
            nodes,
            members,
            rack: None,
            running: 0,
            cpu: "100m",
            repeats,
        };
        let full = |name, nodes, members, cpu, repeats| Self {
            running: 10,
            cpu,
            ..scene(name, nodes, members, repeats)
        };
        let all = [
            scene("gang", 5_000, 3, 40 * repeats),
            scene("gang", 5_000, 1_000, repeats),
            scene("gang", 5_000, 5_000, repeats),
            Self {
                rack: Some(100),
                ..scene("gang in one of 50 racks", 5_000, 4, 40 * repeats)
            },
            Self {
                rack: Some(100),
                ..scene("gang in one of 1,000 racks", 100_000, 64, 2 * repeats)
            },
            full("gang that evicts", 100, 100, "3900m", repeats),
            full("gang that evicts", 5_000, 1_000, "3900m", repeats),
        ];
        let smaller = |count: usize| (count / options.divide.max(1)).max(1);
        all.map(|scene| Self {
            nodes: smaller(scene.nodes),
            members: smaller(scene.members),
            rack: scene.rack.map(smaller),
            ..scene
        })
        .to_vec()
    }
}

/// The number of steps of which `progress` learns.
pub fn steps(options: &Options) -> usize {
    GroupScene::all(options).len() + 1
}

/// Measures; `progress` is called before each row.
///
/// # Errors
/// When the core does not do its work; an internal error.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> Result<Report, PerfError> {
    let mut attempts = Vec::new();
    for scene in GroupScene::all(options) {
        progress(format!("{}, {} members", scene.name, scene.members));
        attempts.push(measure(&scene, options.seed)?);
    }
    progress("pods without a group".to_owned());
    Ok(Report {
        seed: options.seed,
        attempts,
        beside: beside(options)?,
    })
}

fn world(nodes: usize, rack: Option<usize>, seed: u64) -> Result<CoreWorld, PerfError> {
    let features = FeatureGates::of(Release::V1_38)
        .with(Feature::GenericWorkload, true)
        .with(Feature::TopologyAwareWorkloadScheduling, true);
    let options = SchedulerOptions {
        features,
        seed,
        ..SchedulerOptions::default()
    };
    let scale = ClusterScale::default();
    let mut world =
        CoreWorld::new(Row::Unconstrained, &scale, options).map_err(PerfError::Setup)?;
    for index in 0..nodes {
        let node = generate::node(index, |node| {
            if let Some(size) = rack {
                node["metadata"]["labels"][RACK] = json!(format!("rack-{:05}", index / size));
            }
        });
        world.show_object(Object::Node(node));
    }
    Ok(world)
}

fn group(name: &str, min: usize, priority: i32, rack: bool) -> (Kind, Value) {
    let topology = if rack {
        json!([{"key": RACK}])
    } else {
        json!([])
    };
    let group = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "generation": 1},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": min}},
            "schedulingConstraints": {"topology": topology},
            "priority": priority,
        },
        "status": {},
    });
    (Kind::PodGroup, group)
}

/// Adds the members of a group.
fn add_members(
    world: &mut CoreWorld,
    group: &str,
    from: usize,
    count: usize,
    (cpu, priority): (&str, i32),
) {
    for index in from..from + count {
        let pod = generate::pod(index, |pod| {
            pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
            pod["spec"]["priority"] = json!(priority);
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        });
        world.add(pod);
    }
}

fn stuck(nodes: usize, pods: usize) -> PerfError {
    PerfError::Stuck {
        row: Row::Unconstrained,
        nodes,
        pods,
        left: pods,
    }
}

fn measure(scene: &GroupScene, seed: u64) -> Result<AttemptFigures, PerfError> {
    let GroupScene { nodes, members, .. } = *scene;
    let mut attempts = Vec::new();
    let mut with_calls = Vec::new();
    let (mut placed, mut evicted) = (0, 0);
    let running = scene.running * nodes;
    let mut cluster = None;
    for repeat in 0..scene.repeats {
        // Evictions change the cluster: each needs a new one.
        let fresh = match cluster.take() {
            Some(world) if running == 0 => world,
            _ => with_running(scene, seed)?,
        };
        let world = cluster.insert(fresh);
        let name = format!("g{repeat}");
        let priority = if running > 0 { 10 } else { 0 };
        world.show_stored(vec![group(&name, members, priority, scene.rack.is_some())]);
        let from = running + repeat * members;
        add_members(world, &name, from, members, (scene.cpu, priority));
        let before = world.pods();
        let (outcome, attempt, all) = loop {
            let (outcome, attempt, all) = world.timed_step();
            match outcome {
                ScheduleOutcome::Group { .. } => break (outcome, attempt, all),
                ScheduleOutcome::Idle { next_wake: None } => return Err(stuck(nodes, members)),
                _ => {}
            }
        };
        attempts.push(attempt * 1e3);
        with_calls.push(all * 1e3);
        placed = outcome
            .decided()
            .filter(|(_, result)| matches!(result, CycleResult::Placed { .. }))
            .count();
        evicted = before.saturating_sub(world.pods());
        world.settle();
    }
    Ok(AttemptFigures {
        name: scene.name,
        nodes,
        members,
        running,
        placed,
        evicted,
        attempt_millis: median(attempts),
        with_calls_millis: median(with_calls),
    })
}

fn with_running(scene: &GroupScene, seed: u64) -> Result<CoreWorld, PerfError> {
    let mut world = world(scene.nodes, scene.rack, seed)?;
    for index in 0..scene.running * scene.nodes {
        let pod = generate::pod(index, |pod| {
            pod["spec"]["nodeName"] = json!(format!("node-{}", index % scene.nodes));
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("40m");
        });
        world.add(pod);
    }
    world.settle();
    // The first pod of its kind fills the kept answers; one that is rejected starts none.
    Ok(world)
}

/// Pods without a group with and without parked gangs, in turns.
fn beside(options: &Options) -> Result<BesideFigures, PerfError> {
    let divide = options.divide.max(1);
    let (nodes, gangs, pods) = (5_000 / divide, PARKED.0 / divide, 5_000 / divide);
    let (mut alone, mut with_gangs, mut gang_attempts) = (Vec::new(), Vec::new(), 0);
    for turn in 0..2 * options.repeats.max(1) {
        let has_gangs = turn % 2 == 1;
        let mut world = world(nodes, None, options.seed)?;
        if has_gangs {
            for number in 0..gangs {
                let name = format!("parked-{number}");
                world.show_stored(vec![group(&name, PARKED.1, 0, false)]);
                add_members(&mut world, &name, number * PARKED.1, PARKED.1, ("100", 0));
            }
            world.settle();
            world.pass(BACKOFF);
            world.settle();
        }
        for index in 0..pods {
            world.add(generate::pod(1_000_000 + index, |_| {}));
        }
        let (mut decided, mut seconds) = (0, 0.0);
        while decided < pods {
            let (outcome, _, all) = world.timed_step();
            seconds += all;
            match outcome {
                ScheduleOutcome::Done { .. } => decided += 1,
                ScheduleOutcome::Group { .. } => gang_attempts += 1,
                ScheduleOutcome::Idle { next_wake: None } => return Err(stuck(nodes, pods)),
                _ => {}
            }
        }
        let per_second = pods as f64 / f64::max(seconds, f64::EPSILON);
        if has_gangs {
            with_gangs.push(per_second);
        } else {
            alone.push(per_second);
        }
    }
    Ok(BesideFigures {
        nodes,
        gangs,
        alone_per_second: median(alone),
        beside_per_second: median(with_gangs),
        gang_attempts,
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row does what its name states: all members are placed, or room is made for them. Parked gangs are not tried
    /// while other pods are placed.
    #[test]
    fn the_rows_do_what_they_state() {
        let options = Options {
            repeats: 1,
            divide: 50,
            seed: 7,
        };
        let report = run(&options, |_| {}).expect("the profile is built");
        for row in &report.attempts {
            match row.running {
                0 => assert_eq!(row.placed, row.members, "{row:?}"),
                running => {
                    assert_eq!(row.placed, 0, "{row:?}");
                    assert!(row.evicted > 0 && row.evicted <= running, "{row:?}");
                }
            }
        }
        assert_eq!(report.beside.gang_attempts, 0, "{report}");
    }
}
