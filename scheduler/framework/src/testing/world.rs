//! A small cluster in which a plugin is called: nodes and pods, a time, and a record of the plugin's requests.

use super::{NodeBuilder, PodBuilder};
use crate::call::{ApiCall, CallId, PodEvent};
use crate::cluster::Cluster;
use crate::event::{Change, ClusterEvent, Hint, HintError};
use crate::extender::Extenders;
use crate::features::FeatureGates;
use crate::job::{Job, JobId};
use crate::lack::Lack;
use crate::plugin::{Context, EnqueueExtensions, Filter, Score};
use crate::pod_info::PodInfo;
use crate::stage::{Observation, Outbox, Preemption, StageContext, WaitingPod};
use crate::state::CycleState;
use crate::status::Status;
use crate::table::{NodeView, Slot};
use crate::write::{PodEdit, Write};
use berth_api::{Labels, Namespace, Object, Pod, Str, Time};
use std::fmt;
use std::sync::Arc;

/// Nodes, pods and whatever else a plugin reads.
///
/// ```
/// use berth_framework::testing::{World, node, pod};
/// let world = World::default()
///     .node(node("n1").label("zone", "a"))
///     .pod(pod("placed").on("n1"))
///     .namespace("default", [("team", "search")]);
/// assert_eq!(world.cluster.namespaces().labels("default").get("team"), Some("search"));
/// ```
#[derive(Debug, Default)]
pub struct World {
    /// The cluster.
    pub cluster: Cluster,
    /// The feature gates.
    pub features: FeatureGates,
    /// The time.
    pub now: Time,
    /// In the order in which they were added.
    slots: Vec<Slot>,
}

impl World {
    /// With one more node.
    #[must_use]
    pub fn node(mut self, node: NodeBuilder) -> Self {
        self.slots.push(self.cluster.nodes.set_node(node.arc()));
        self
    }

    /// With one more pod; one that has a node counts there.
    #[must_use]
    pub fn pod(mut self, pod: PodBuilder) -> Self {
        let info = pod.info();
        let pod = info.pod.clone();
        self.cluster.set_pod(pod.uid().clone(), pod.clone());
        if pod.is_assigned() {
            self.cluster.nodes.add_pod(&pod.spec.node_name, info);
        }
        self
    }

    /// With one more namespace.
    #[must_use]
    pub fn namespace<'l>(
        mut self,
        name: &str,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    ) -> Self {
        let mut namespace = Namespace::default();
        namespace.metadata.name = name.into();
        namespace.metadata.labels = Labels::from_pairs(labels);
        self.cluster.set(&Object::Namespace(namespace.into()));
        self
    }

    /// The state that a plugin may read while it decides.
    pub fn context(&self) -> Context<'_> {
        Context {
            now: self.now,
            cluster: &self.cluster,
            features: &self.features,
            work: None,
        }
    }

    /// The state that a plugin may use in Reserve, Permit, PreBind and Bind.
    pub fn stage<'a>(&'a self, outbox: &'a mut dyn Outbox) -> StageContext<'a> {
        StageContext {
            now: self.now,
            cluster: &self.cluster,
            features: &self.features,
            outbox,
        }
    }

    /// The nodes, in the order in which they were added.
    pub fn views(&self) -> impl Iterator<Item = NodeView<'_>> {
        let nodes = &self.cluster.nodes;
        self.slots.iter().filter_map(|slot| nodes.get(*slot))
    }

    /// The answer of Filter for each node, in the order in which they were added.
    pub fn filter(&self, plugin: &impl Filter, state: &CycleState, pod: &PodInfo) -> Vec<Status> {
        let cx = self.context();
        self.views()
            .map(|node| plugin.filter(&cx, state, pod, node))
            .collect()
    }

    /// The things that each node lacks for the pod, in the order in which they were added.
    pub fn lacks(&self, plugin: &impl Filter, state: &CycleState, pod: &PodInfo) -> Vec<Vec<Lack>> {
        let cx = self.context();
        self.views()
            .map(|node| plugin.lacking(&cx, state, pod, node))
            .collect()
    }

    /// The normalised score of each node, in the order in which they were added.
    ///
    /// # Errors
    /// The first status that is no success.
    pub fn scores(
        &self,
        plugin: &impl Score,
        state: &CycleState,
        pod: &PodInfo,
    ) -> Result<Vec<i64>, Status> {
        let cx = self.context();
        let mut scores = Vec::with_capacity(self.slots.len());
        for node in self.views() {
            scores.push((node.slot(), plugin.score(&cx, state, pod, node)?));
        }
        let status = plugin.normalize(&cx, state, pod, &mut scores);
        if !status.is_success() {
            return Err(status);
        }
        Ok(scores.into_iter().map(|(_, score)| score).collect())
    }

    /// The answer of the plugin about a pending pod for an event; `None` if it has not registered for the event. As in
    /// the queue, one registration that returns [`Hint::Queue`] is enough.
    ///
    /// # Errors
    /// The error of a hint.
    pub fn hint(
        &self,
        plugin: impl EnqueueExtensions,
        event: &ClusterEvent,
        pod: &Pod,
        old: Option<Object>,
        new: Option<Object>,
    ) -> Result<Option<Hint>, HintError> {
        let change = Change {
            old: old.as_ref(),
            new: new.as_ref(),
        };
        let mut answer = None;
        for registration in Arc::new(plugin).events(&self.features) {
            if !registration.event.matches(event) {
                continue;
            }
            let hint = match &registration.hint {
                Some(hint) => hint(&self.cluster, pod, change)?,
                None => Hint::Queue,
            };
            if answer != Some(Hint::Queue) {
                answer = Some(hint);
            }
        }
        Ok(answer)
    }
}

/// An outbox that remembers everything.
#[derive(Default)]
pub struct Recorder {
    /// The calls, in order; a call's id is its place.
    pub calls: Vec<ApiCall>,
    /// The jobs, in order; a job's id is its place. A test may run them.
    pub jobs: Vec<Job>,
    /// The events, in order.
    pub events: Vec<PodEvent>,
    /// The pods to be tried at once, as namespace and name.
    pub activated: Vec<(Str, Str)>,
    /// The assumed writes.
    pub assumed: Vec<Write>,
    /// The reverted writes.
    pub reverted: Vec<Write>,
    /// The preemptions that were begun; no pod is evicted.
    pub preemptions: Vec<Preemption>,
    /// The observations for metrics.
    pub observations: Vec<Observation>,
    /// Whether every pod can be stopped in memory.
    pub in_memory: bool,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("calls", &self.calls)
            .field("jobs", &self.jobs.len())
            .field("events", &self.events)
            .field("activated", &self.activated)
            .field("assumed", &self.assumed)
            .field("reverted", &self.reverted)
            .field("preemptions", &self.preemptions)
            .field("observations", &self.observations)
            .finish_non_exhaustive()
    }
}

impl Outbox for Recorder {
    fn call(&mut self, call: ApiCall) -> CallId {
        self.calls.push(call);
        CallId(self.calls.len() as u64 - 1)
    }

    fn job(&mut self, job: Job) -> JobId {
        self.jobs.push(job);
        JobId(self.jobs.len() as u64 - 1)
    }

    fn publish(&mut self, event: PodEvent) {
        self.events.push(event);
    }

    fn activate(&mut self, namespace: &Str, name: &Str) {
        self.activated.push((namespace.clone(), name.clone()));
    }

    fn assume(&mut self, write: Write) {
        self.assumed.push(write);
    }

    fn revert(&mut self, write: Write) {
        self.reverted.push(write);
    }

    fn preempt(&mut self, _uid: &str, _plugin: &str) -> bool {
        self.in_memory
    }

    fn start_preemption(&mut self, preemption: Preemption) {
        self.preemptions.push(preemption);
    }

    fn observe(&mut self, observation: Observation) {
        self.observations.push(observation);
    }

    // No test reads these.
    fn give_up(&mut self, _write: Write) {}
    fn count(&mut self, _edit: PodEdit) {}
    fn log(&mut self, _text: String) {}

    // There are no other pods and no extenders.
    fn waiting_pods(&self) -> Vec<WaitingPod> {
        Vec::new()
    }

    fn allow(&mut self, _uid: &str, _plugin: &str) {}

    fn reject(&mut self, _uid: &str, _plugin: &str, _message: &str) -> bool {
        false
    }

    fn extenders(&self) -> Extenders {
        Extenders::default()
    }
}
