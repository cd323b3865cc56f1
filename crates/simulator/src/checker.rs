//! Judges what a scheduler does, from the world's side.
//!
//! The checker keeps its own account of what the scheduler was told and of what it decided, and holds every decision
//! against the rules as they stood for the scheduler at that moment. It is told of decisions, calls and answers as
//! plain values and shares nothing with the scheduler but the types of `berth-api`.

use crate::rules::{Forbids, forbids};
use crate::shapes::HOLD;
use crate::world::{WatchEvent, World};
use berth_api::{Node, Pod, Str};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Something that must never happen, or must happen and did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A pod was sent to a second node, or again while its binding stands or is under way.
    DoubleBind {
        /// The pod.
        pod: Str,
        /// The node of the earlier binding.
        first: Str,
        /// The node of the later one.
        second: Str,
    },
    /// A pod with scheduling gates was given a node.
    GateBypassed {
        /// The pod.
        pod: Str,
    },
    /// A node was given more than it has.
    Overcommit {
        /// The node.
        node: Str,
        /// The pod that is too much.
        pod: Str,
        /// The resource or port.
        resource: String,
    },
    /// A pod was put where it may not run.
    Misplaced {
        /// The pod.
        pod: Str,
        /// The node.
        node: Str,
        /// What forbids it.
        rule: &'static str,
    },
    /// A pod was deleted to make room though that was not needed.
    NeedlessPreemption {
        /// The pod that was deleted.
        victim: Str,
        /// Why it should not have been.
        reason: String,
    },
    /// A pod that fits on a node was left behind though everything has come to rest.
    Lost {
        /// The pod.
        pod: Str,
        /// A node where it fits.
        node: Str,
        /// Where the scheduler has it.
        whereabouts: String,
    },
    /// The scheduler holds a place for a pod, though everything has come to rest and the pod is not there.
    Unresolved {
        /// What is left over.
        what: String,
    },
    /// A pod's PodScheduled condition does not say what is true, though everything has come to rest.
    StatusWrong {
        /// The pod.
        pod: Str,
        /// What the condition says.
        condition: String,
        /// What it should say.
        expected: &'static str,
    },
    /// The scheduler's own books do not add up.
    Books(String),
    /// The scheduler panicked.
    Panic(String),
    /// Things do not come to rest.
    Restless {
        /// What is still going on.
        what: String,
    },
}

impl Violation {
    /// The kind of violation, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DoubleBind { .. } => "double bind",
            Self::GateBypassed { .. } => "bypassed gate",
            Self::Overcommit { .. } => "overcommit",
            Self::Misplaced { .. } => "misplaced",
            Self::NeedlessPreemption { .. } => "needless preemption",
            Self::Lost { .. } => "lost pod",
            Self::Unresolved { .. } => "unresolved",
            Self::StatusWrong { .. } => "wrong status",
            Self::Books(_) => "books",
            Self::Panic(_) => "panic",
            Self::Restless { .. } => "no rest",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind())?;
        match self {
            Self::DoubleBind { pod, first, second } => write!(
                f,
                "pod {pod} is sent to node {second} though it is bound or being bound to {first}"
            ),
            Self::GateBypassed { pod } => {
                write!(
                    f,
                    "pod {pod} is given a node though it has scheduling gates"
                )
            }
            Self::Overcommit {
                node,
                pod,
                resource,
            } => {
                write!(
                    f,
                    "pod {pod} is one too many on node {node}: not enough {resource}"
                )
            }
            Self::Misplaced { pod, node, rule } => {
                write!(f, "pod {pod} may not run on node {node}: {rule}")
            }
            Self::NeedlessPreemption { victim, reason } => {
                write!(f, "pod {victim} is deleted to make room: {reason}")
            }
            Self::Lost {
                pod,
                node,
                whereabouts,
            } => write!(
                f,
                "pod {pod} fits on node {node} and is left in {whereabouts} (the periodic flush is off)"
            ),
            Self::Unresolved { what } => write!(f, "at rest there is still {what}"),
            Self::StatusWrong {
                pod,
                condition,
                expected,
            } => write!(
                f,
                "pod {pod} says PodScheduled {condition}, expected {expected}"
            ),
            Self::Books(text) | Self::Panic(text) => f.write_str(text),
            Self::Restless { what } => write!(f, "without faults there is still {what}"),
        }
    }
}

/// A decision that the API does not show yet, as far as the scheduler was told.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Placement {
    node: Str,
    binding: Binding,
}

/// How far the binding of a placed pod has come, as far as the scheduler can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binding {
    /// It has not been sent.
    Unsent,
    /// It was sent and has not been answered.
    UnderWay,
    /// The scheduler was told that it stands.
    Stands,
}

/// What a scheduler was told and what it has decided. See the [module](self).
#[derive(Debug, Default)]
pub struct Checker {
    /// By name, as last told.
    nodes: BTreeMap<Str, Arc<Node>>,
    /// By UID, as last told.
    pods: BTreeMap<Str, Arc<Pod>>,
    /// By UID.
    placed: BTreeMap<Str, Placement>,
    /// By UID, the node on which the scheduler keeps room free for a pod.
    nominated: BTreeMap<Str, Str>,
    /// UIDs of pods that the scheduler deletes to make room, until it is told so or gives it up.
    victims: BTreeSet<Str>,
    decisions: u64,
}

impl Checker {
    /// The checker of a scheduler that knows nothing yet, in the place of one that has died.
    pub fn restarted(&mut self) {
        let decisions = self.decisions;
        *self = Self {
            decisions,
            ..Self::default()
        };
    }

    /// How many placements were judged.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    // --- what the scheduler is told ------------------------------------------------------------------------

    /// The scheduler is told of a change.
    pub fn told(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::PodApplied(pod) => self.told_pod(pod),
            WatchEvent::PodDeleted(pod) => {
                self.pods.remove(pod.uid());
                self.placed.remove(pod.uid());
            }
            WatchEvent::NodeApplied(node) => {
                self.nodes.insert(node.name().clone(), node.clone());
            }
            WatchEvent::NodeDeleted(node) => {
                self.nodes.remove(node.name());
            }
        }
    }

    fn told_pod(&mut self, pod: &Arc<Pod>) {
        if pod.is_terminating() {
            self.victims.remove(pod.uid());
        }
        let replaced = self
            .pods
            .values()
            .find(|other| other.name() == pod.name() && other.uid() != pod.uid());
        if let Some(uid) = replaced.map(|other| other.uid().clone()) {
            self.pods.remove(&uid);
            self.placed.remove(&uid);
        }
        // From here on the API itself says where the pod is, or that it will never be anywhere.
        if pod.is_assigned() || pod.is_terminal() || pod.is_terminating() {
            self.placed.remove(pod.uid());
        }
        self.pods.insert(pod.uid().clone(), pod.clone());
    }

    /// The scheduler is told of all pods there are.
    pub fn told_all_pods(&mut self, pods: &[Arc<Pod>]) {
        self.pods.clear();
        for pod in pods {
            self.told_pod(pod);
        }
        let pods = &self.pods;
        self.placed.retain(|uid, _| pods.contains_key(uid));
    }

    /// The scheduler is told of all nodes there are.
    pub fn told_all_nodes(&mut self, nodes: &[Arc<Node>]) {
        self.nodes = nodes
            .iter()
            .map(|node| (node.name().clone(), node.clone()))
            .collect();
    }

    /// The pods that wait for a node, as the scheduler was told.
    pub fn waiting_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods
            .values()
            .filter(|pod| !pod.is_assigned() && !pod.is_terminal())
    }

    // --- what the scheduler does ---------------------------------------------------------------------------

    /// The node that the scheduler has chosen for a pod, if that has been judged and not been given up.
    pub fn placement(&self, uid: &str) -> Option<&Str> {
        Some(&self.placed.get(uid)?.node)
    }

    /// The pods with a node that the API does not show yet.
    pub fn placed(&self) -> impl Iterator<Item = &Str> {
        self.placed.keys()
    }

    /// The scheduler has chosen a node for a pod.
    ///
    /// # Errors
    /// When the pod has or is getting a node, is gated, or does not fit there.
    pub fn decided(&mut self, uid: &Str, node: &Str) -> Result<(), Violation> {
        self.decisions += 1;
        let Some(pod) = self.pods.get(uid) else {
            return Err(Violation::Books(format!(
                "a node is chosen for the unknown pod {uid}"
            )));
        };
        let name = pod.name().clone();
        let earlier = self
            .placed
            .get(uid)
            .filter(|p| p.binding != Binding::Unsent);
        let earlier = earlier.map(|p| &p.node);
        if let Some(first) = earlier.or(pod.is_assigned().then_some(&pod.spec.node_name)) {
            return Err(Violation::DoubleBind {
                pod: name,
                first: first.clone(),
                second: node.clone(),
            });
        }
        if !pod.spec.scheduling_gates.is_empty() {
            return Err(Violation::GateBypassed { pod: name });
        }
        let misplaced = |rule| Violation::Misplaced {
            pod: name.clone(),
            node: node.clone(),
            rule,
        };
        let Some(object) = self.nodes.get(node) else {
            return Err(misplaced("there is no such node"));
        };
        let neighbours: Vec<&Pod> = self.neighbours(pod, node).collect();
        match forbids(pod, object, &neighbours) {
            Some(Forbids::Rule(rule)) => return Err(misplaced(rule)),
            Some(Forbids::Lacks(resource)) => {
                return Err(Violation::Overcommit {
                    node: node.clone(),
                    pod: name,
                    resource,
                });
            }
            None => {}
        }
        let placement = Placement {
            node: node.clone(),
            binding: Binding::Unsent,
        };
        self.placed.insert(uid.clone(), placement);
        Ok(())
    }

    /// The scheduler has given up a choice. One whose binding is under way cannot be given up.
    pub fn gave_up(&mut self, uid: &str) {
        if self
            .placed
            .get(uid)
            .is_some_and(|p| p.binding == Binding::Unsent)
        {
            self.placed.remove(uid);
        }
    }

    /// The scheduler sends a pod to a node.
    ///
    /// # Errors
    /// When that is not the node that was chosen, or an earlier binding stands or is under way.
    pub fn bind_sent(&mut self, uid: &str, node: &Str) -> Result<(), Violation> {
        // A pod that the scheduler knows to be gone or bound by now: the API will refuse.
        let Some(placement) = self.placed.get_mut(uid) else {
            return Ok(());
        };
        if placement.node != *node || placement.binding != Binding::Unsent {
            return Err(Violation::DoubleBind {
                pod: self
                    .pods
                    .get(uid)
                    .map_or_else(|| uid.into(), |pod| pod.name().clone()),
                first: placement.node.clone(),
                second: node.clone(),
            });
        }
        placement.binding = Binding::UnderWay;
        Ok(())
    }

    /// The scheduler is told how a binding went. After a failure it may choose again.
    pub fn bind_answered(&mut self, uid: &str, node: &Str, success: bool) {
        let Some(placement) = self.placed.get_mut(uid).filter(|p| p.node == *node) else {
            return;
        };
        placement.binding = if success {
            Binding::Stands
        } else {
            Binding::Unsent
        };
    }

    /// The nodes on which the scheduler keeps room free, by the UID of the pod that it is for.
    pub fn keeps_free(&mut self, nominated: impl IntoIterator<Item = (Str, Str)>) {
        self.nominated = nominated.into_iter().collect();
    }

    /// The pods that are or are to be on a node, `pod` itself aside.
    fn neighbours<'a>(&'a self, pod: &'a Pod, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods
            .values()
            .map(|other| &**other)
            .filter(|other| other.uid() != pod.uid() && !other.is_terminal())
            .filter(move |other| {
                let chosen = self.placed.get(other.uid()).map(|p| &p.node);
                chosen.unwrap_or(&other.spec.node_name).as_str() == node
            })
    }

    /// The pods, no less important than `pod`, for which a node may be kept free.
    fn nominees<'a>(&'a self, pod: &'a Pod, node: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.waiting_pods()
            .map(|other| &**other)
            .filter(|other| other.uid() != pod.uid() && other.priority() >= pod.priority())
            .filter(move |other| {
                let kept = self.nominated.get(other.uid()).map(Str::as_str);
                !self.placed.contains_key(other.uid()) && kept == Some(node)
            })
    }

    /// The pods that the scheduler may delete to make room.
    pub fn living_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values().filter(|pod| !pod.is_terminating())
    }

    /// The scheduler does not delete a pod after all.
    pub fn spared(&mut self, uid: &str) {
        self.victims.remove(uid);
    }

    /// The scheduler deletes a pod to make room for the one that it has just failed to place, if that is known.
    /// Whether that is news.
    ///
    /// # Errors
    /// When the other pod is not more important, or fits somewhere without that.
    pub fn preempts(&mut self, victim: &Str, preemptor: Option<&str>) -> Result<bool, Violation> {
        if !self.victims.insert(victim.clone()) {
            return Ok(false);
        }
        self.check_need(victim, preemptor).map(|()| true)
    }

    fn check_need(&self, victim: &str, preemptor: Option<&str>) -> Result<(), Violation> {
        let (Some(victim), Some(preemptor)) = (
            self.pods.get(victim),
            preemptor.and_then(|uid| self.pods.get(uid)),
        ) else {
            return Ok(());
        };
        let needless = |reason: String| {
            Err(Violation::NeedlessPreemption {
                victim: victim.name().clone(),
                reason,
            })
        };
        if victim.priority() >= preemptor.priority() {
            return needless(format!(
                "it is no less important than pod {}",
                preemptor.name()
            ));
        }
        let fits = self.nodes.values().find(|node| {
            let there: Vec<&Pod> = self.neighbours(preemptor, node.name()).collect();
            let announced = self.nominees(preemptor, node.name());
            let all: Vec<&Pod> = there.iter().copied().chain(announced).collect();
            forbids(preemptor, node, &there).is_none() && forbids(preemptor, node, &all).is_none()
        });
        match fits {
            Some(node) => needless(format!(
                "pod {} fits on node {} as it is",
                preemptor.name(),
                node.name()
            )),
            None => Ok(()),
        }
    }
}

/// Which statuses can be expected.
#[derive(Debug, Default)]
pub struct Statuses {
    /// Whether a pod's status tells that a PreEnqueue plugin keeps it out.
    pub holds: bool,
    /// UIDs of pods whose status the API would not take.
    pub missing: BTreeSet<Str>,
}

/// Judges the world once everything has come to rest.
///
/// # Errors
/// The first pod that was lost or whose status is wrong.
pub fn check_rest(world: &World, statuses: &Statuses) -> Result<(), Violation> {
    for pod in world.pods().values().filter(|pod| !pod.is_terminal()) {
        let condition = pod.condition("PodScheduled");
        let says = |status: &str, reason: &str| {
            condition.is_some_and(|c| c.status == status && c.reason == reason)
        };
        let explains = condition.is_some_and(|c| !c.message.is_empty());
        let wrong = |expected| {
            Err(Violation::StatusWrong {
                pod: pod.name().clone(),
                condition: condition.map_or_else(
                    || "nothing".to_owned(),
                    |c| format!("{} {} {:?}", c.status, c.reason, c.message.as_str()),
                ),
                expected,
            })
        };
        if pod.is_assigned() {
            if condition.is_none_or(|c| c.status != "True") {
                return wrong("True");
            }
            continue;
        }
        if !pod.spec.scheduling_gates.is_empty() {
            if !says("False", "SchedulingGated") || !explains {
                return wrong("False SchedulingGated");
            }
            continue;
        }
        if pod.labels().contains_key(HOLD) {
            // A pod that a cycle has found unschedulable goes on saying so.
            let told = says("False", "NotReadyForScheduling") || says("False", "Unschedulable");
            let expected = statuses.holds && !statuses.missing.contains(pod.uid());
            if expected && !(told && explains) {
                return wrong("False NotReadyForScheduling");
            }
            continue;
        }
        for node in world.nodes().values() {
            let neighbours: Vec<&Pod> = world
                .pods()
                .values()
                .filter(|other| other.spec.node_name == *node.name() && !other.is_terminal())
                .map(|other| &**other)
                .collect();
            // A place that is kept free for a pod stays so while that one is on hold.
            let kept_free_for = world.pods().values().filter(|other| {
                !other.is_assigned()
                    && other.uid() != pod.uid()
                    && other.status.nominated_node_name == *node.name()
                    && other.priority() >= pod.priority()
                    && other.labels().contains_key(HOLD)
            });
            let all: Vec<&Pod> = neighbours
                .iter()
                .copied()
                .chain(kept_free_for.map(|other| &**other))
                .collect();
            if forbids(pod, node, &neighbours).is_none() && forbids(pod, node, &all).is_none() {
                return Err(Violation::Lost {
                    pod: pod.name().clone(),
                    node: node.name().clone(),
                    whereabouts: String::new(),
                });
            }
        }
        let told = says("False", "Unschedulable") && explains;
        if !told && !statuses.missing.contains(pod.uid()) {
            return wrong("False Unschedulable with a message");
        }
    }
    Ok(())
}
