//! Tests of DefaultPreemption.

mod choice;
mod eligibility;
mod evictions;
mod search;
mod victims;

use super::*;
use crate::inter_pod_affinity::InterPodAffinity;
use crate::node_ports::NodePorts;
use crate::node_resources::NodeResourcesFit;
use crate::testing::{Recorder, World, full_pod};
use berth_framework::plugin::{Context, Filter, PostFilterResult, PreFilter, PreFilterResult};
use berth_framework::{Cluster, CycleState, NodeView, Slot};
use serde_json::{Value, json};

/// A dry run: runs some filters while pods are added and removed.
struct Trial<'a> {
    world: &'a mut World,
    pod: &'a PodInfo,
    state: CycleState,
    filters: Vec<(Box<dyn PreFilter>, Box<dyn Filter>)>,
    undo: Vec<Option<(Slot, Arc<PodInfo>, bool)>>,
    nominated: Vec<Arc<PodInfo>>,
    /// The nodes from which pods were removed in the dry run, in order.
    tried: Vec<Slot>,
    /// Nodes on which filters fail once the dry run has changed a node.
    broken: Vec<&'static str>,
}

impl<'a> Trial<'a> {
    fn new(world: &'a mut World, pod: &'a PodInfo) -> Self {
        let mut state = CycleState::default();
        let mut filters: Vec<(Box<dyn PreFilter>, Box<dyn Filter>)> = Vec::new();
        let fit = NodeResourcesFit::default;
        if !run_pre_filter(world, &fit(), &mut state, pod) {
            filters.push((Box::new(fit()), Box::new(fit())));
        }
        if !run_pre_filter(world, &NodePorts, &mut state, pod) {
            filters.push((Box::new(NodePorts), Box::new(NodePorts)));
        }
        let affinity = InterPodAffinity::default;
        if !run_pre_filter(world, &affinity(), &mut state, pod) {
            filters.push((Box::new(affinity()), Box::new(affinity())));
        }
        Self {
            world,
            pod,
            state,
            filters,
            undo: Vec::new(),
            nominated: Vec::new(),
            tried: Vec::new(),
            broken: Vec::new(),
        }
    }

    fn notify(&mut self, node: Slot, other: &PodInfo, comes: bool) {
        let Self {
            world,
            pod,
            state,
            filters,
            ..
        } = self;
        let cx = world.context();
        let view = cx.cluster.nodes.get(node).expect("it exists");
        for (pre_filter, _) in filters {
            let status = if comes {
                pre_filter.add_pod(&cx, state, pod, other, view)
            } else {
                pre_filter.remove_pod(&cx, state, pod, other, view)
            };
            assert!(status.is_success());
        }
    }

    fn check(&self, view: NodeView<'_>) -> Status {
        let cx: Context<'_> = self.world.context();
        let statuses = self
            .filters
            .iter()
            .map(|(_, f)| f.filter(&cx, &self.state, self.pod, view));
        statuses
            .into_iter()
            .find(|s| !s.is_success())
            .unwrap_or_default()
    }

    /// The answer of every node, as after filtering.
    fn statuses(&self) -> NodeStatuses {
        let mut statuses = NodeStatuses::new();
        for view in self.world.cluster.nodes.iter() {
            statuses.insert(view.slot(), self.check(view));
        }
        statuses
    }
}

/// Returns whether the plugin returns Skip.
fn run_pre_filter(
    world: &World,
    plugin: &impl PreFilter,
    state: &mut CycleState,
    pod: &PodInfo,
) -> bool {
    match plugin.pre_filter(&world.context(), state, pod) {
        PreFilterResult::Skip => true,
        PreFilterResult::AllNodes => false,
        other => panic!("{other:?}"),
    }
}

impl DryRun for Trial<'_> {
    fn cluster(&self) -> &Cluster {
        &self.world.cluster
    }

    fn state(&mut self) -> &mut CycleState {
        &mut self.state
    }

    fn begin(&mut self) {
        self.undo.push(None);
    }

    fn add_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) -> Status {
        self.world.cluster.nodes.add_pod_at(node, pod.clone());
        self.notify(node, pod, true);
        self.undo.push(Some((node, pod.clone(), true)));
        Status::success()
    }

    fn remove_pod(&mut self, node: Slot, pod: &Arc<PodInfo>) -> Status {
        let removed = self.world.cluster.nodes.remove_pod_at(node, pod.pod.uid());
        assert!(removed.is_some(), "{} is not there", pod.pod.key());
        if self.tried.last() != Some(&node) {
            self.tried.push(node);
        }
        self.notify(node, pod, false);
        self.undo.push(Some((node, pod.clone(), false)));
        Status::success()
    }

    fn rollback(&mut self) {
        while let Some(Some((node, pod, arrived))) = self.undo.pop() {
            if arrived {
                self.world.cluster.nodes.remove_pod_at(node, pod.pod.uid());
            } else {
                self.world.cluster.nodes.add_pod_at(node, pod.clone());
            }
            self.notify(node, &pod, !arrived);
        }
    }

    fn filter(&mut self, node: Slot) -> Status {
        let view = self.world.cluster.nodes.get(node).expect("it exists");
        if self.broken.contains(&view.name().as_str()) {
            // Nodes with a number have the text in common.
            let name = view.name().trim_end_matches(|c: char| c.is_ascii_digit());
            return Status::error(format!("{name} is out of order"));
        }
        self.check(view)
    }

    fn nominated_to(&self, node: Slot) -> Vec<Arc<PodInfo>> {
        let view = self.world.cluster.nodes.get(node).expect("it exists");
        let there = |pod: &&Arc<PodInfo>| pod.pod.status.nominated_node_name == *view.name();
        self.nominated.iter().filter(there).cloned().collect()
    }
}

fn pod(name: &str, priority: i32, cpu: u32, fields: Value) -> Pod {
    let mut fields = fields;
    fields["spec"]["priority"] = json!(priority);
    fields["spec"]["containers"] =
        json!([{"name": "c", "resources": {"requests": {"cpu": cpu.to_string()}}}]);
    full_pod(name, fields)
}

/// A pod of this priority that requests a number of CPUs.
fn plain(name: &str, priority: i32, cpu: u32) -> Pod {
    pod(name, priority, cpu, json!({}))
}

fn started_at(name: &str, priority: i32, cpu: u32, minute: u32) -> Pod {
    pod(
        name,
        priority,
        cpu,
        json!({"status": {"startTime": format!("2026-01-01T00:{minute:02}:00Z")}}),
    )
}

fn labelled(name: &str, priority: i32, cpu: u32, app: &str) -> Pod {
    pod(
        name,
        priority,
        cpu,
        json!({"metadata": {"labels": {"app": app}}}),
    )
}

fn budget(
    name: &str,
    app: &str,
    allowed: i32,
    disrupted: &[&str],
) -> berth_api::PodDisruptionBudget {
    let disrupted: serde_json::Map<String, Value> = disrupted
        .iter()
        .map(|pod| ((*pod).to_owned(), json!("2026-01-01T00:00:00Z")))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": disrupted},
    }))
    .expect("a budget")
}

/// Nodes with 4 CPUs each and these pods.
fn world(nodes: Vec<(&str, Vec<Pod>)>) -> World {
    let mut world = World::new();
    world.now = "2026-01-01T01:00:00Z".parse().expect("a time");
    for (name, pods) in nodes {
        let allocatable = json!({"cpu": "4", "pods": 10});
        world = world.node(name, json!({"status": {"allocatable": allocatable}}));
        for pod in pods {
            world = world.bound_pod(name, pod);
        }
    }
    world
}

fn with_budget(mut world: World, budget: berth_api::PodDisruptionBudget) -> World {
    assert!(
        world
            .cluster
            .set(&berth_api::Object::PodDisruptionBudget(Arc::new(budget)))
    );
    world
}

struct Outcome {
    result: PostFilterResult,
    outbox: Recorder,
    /// The nodes on which evictions were tried, in order.
    tried: Vec<String>,
}

impl Outcome {
    /// The chosen node and the victims, or the message.
    fn text(&self) -> String {
        if !self.result.status.is_success() {
            return self.result.status.message();
        }
        let Nominating::Set(node) = &self.result.nominating else {
            return "success without a node".to_owned();
        };
        let mut victims = self.victims();
        victims.sort();
        format!("{node}: {}", victims.join(" "))
    }

    /// The victims in the order in which they are listed.
    fn victims(&self) -> Vec<String> {
        let victims = self.outbox.preemptions.iter().flat_map(|p| &p.victims);
        let names = victims.map(|victim| victim.event.regarding.name.to_string());
        names.collect()
    }
}

/// The status of a node by its name, if any.
type Stated = Box<dyn Fn(&str) -> Option<Status>>;

/// One preemption attempt: the pod, and its results.
struct Attempt {
    world: World,
    preemptor: Pod,
    args: Value,
    nominated: Vec<Pod>,
    /// The node statuses that replace the statuses of the filters.
    stated: Option<Stated>,
    broken: Vec<&'static str>,
}

/// A pod in a cluster that knows it.
fn attempt(mut world: World, preemptor: Pod) -> Attempt {
    let known = Arc::new(preemptor.clone());
    world.cluster.pods.insert(preemptor.uid().clone(), known);
    Attempt {
        world,
        preemptor,
        args: Value::Null,
        nominated: Vec::new(),
        stated: None,
        broken: Vec::new(),
    }
}

impl Attempt {
    fn args(mut self, percentage: u32, absolute: u32) -> Self {
        self.args = json!({
            "minCandidateNodesPercentage": percentage,
            "minCandidateNodesAbsolute": absolute,
        });
        self
    }

    fn nominated(mut self, pods: Vec<Pod>) -> Self {
        self.nominated = pods;
        self
    }

    fn stated(mut self, stated: impl Fn(&str) -> Option<Status> + 'static) -> Self {
        self.stated = Some(Box::new(stated));
        self
    }

    fn broken(mut self, nodes: &[&'static str]) -> Self {
        self.broken = nodes.to_vec();
        self
    }

    fn run(self) -> Outcome {
        let args = DefaultPreemptionArgs::decode(&self.args).expect("arguments");
        let plugin = DefaultPreemption::new(args);
        let mut world = self.world;
        let pod = PodInfo::new(Arc::new(self.preemptor));
        let (now, features) = (world.now, world.features);
        let mut trial = Trial::new(&mut world, &pod);
        trial.broken = self.broken;
        let nominated = self.nominated.into_iter();
        trial.nominated = nominated
            .map(|p| Arc::new(PodInfo::new(Arc::new(p))))
            .collect();
        let before = trial.statuses();
        let statuses = match self.stated {
            None => before.clone(),
            Some(stated) => {
                let nodes = trial.world.cluster.nodes.iter();
                nodes
                    .filter_map(|view| Some((view.slot(), stated(view.name())?)))
                    .collect()
            }
        };
        let mut outbox = Recorder::default();
        let mut cx = PostFilterContext {
            now,
            features: &features,
            outbox: &mut outbox,
            dry_run: &mut trial,
        };
        let PostFilterStep::Done(result) = plugin.post_filter(&mut cx, &pod, &statuses, None)
        else {
            panic!("evictions are not waited for");
        };
        let after = trial.statuses();
        before.each(|node, status| {
            assert_eq!(status, after.get(node), "the cluster is as before");
            std::ops::ControlFlow::Continue(())
        });
        let nodes = &trial.world.cluster.nodes;
        let tried = trial.tried.iter();
        let tried = tried.map(|slot| nodes.get(*slot).expect("it exists").name().to_string());
        Outcome {
            result,
            tried: tried.collect(),
            outbox,
        }
    }
}

fn default(world: World, preemptor: Pod) -> String {
    attempt(world, preemptor).run().text()
}
