//! A part of a node that a pod gets with it, such as devices, cores or ports, recorded in labels of the pod.
//!
//! A plugin states which part it is ([`Assignment::assign`]). The rest is derived:
//!
//! | extension point | derived as |
//! |---|---|
//! | Reserve | asks for the part, and counts the pod with its labels from then on ([`Outbox::count`](crate::stage::Outbox::count)) |
//! | PreBind | writes the labels before the pod is bound; the binding fails with the write |
//!
//! The labels are the only record: a scheduler that restarts, or a second one, finds every assignment in the pods. There is
//! nothing to revert, because the labels of a pod count on its node alone.

pub mod devices;

use crate::plugin::{PreBind, Reserve};
use crate::pod_info::PodInfo;
use crate::stage::{StageContext, Step, Wake, WakeReason};
use crate::state::CycleState;
use crate::status::Status;
use crate::table::NodeView;
use crate::write::{CallType, PodEdit, Write};
use berth_api::{Duration, Labels, Object, Pod, Str};
use serde_json::{Map, Value, json};
use std::marker::PhantomData;
use std::sync::Arc;

/// The time limit of the write. The dispatcher ends every call before that.
const CALL_MAX: Duration = Duration::from_secs(60);

/// Assigns parts of nodes to pods. Implements [`Reserve`] and [`PreBind`]; register it with
/// [`assignment`](crate::registry::ExtensionsBuilder::assignment).
pub trait Assignment: Send + Sync + 'static {
    /// The type of the calls that write the labels: of pods, with a relevance of its own.
    const CALL: &'static CallType;

    /// The labels that record the assigned part of the node; `None` if the pod needs none. The pods of the node include
    /// the pod itself, with the labels of an earlier attempt if there are any.
    ///
    /// # Errors
    /// The rejection, when the node does not have what the pod needs.
    fn assign(&self, pod: &PodInfo, node: NodeView<'_>) -> Result<Option<Labels>, Status>;
}

/// The labels of a pod that `P` assigns, from Reserve to PreBind.
struct Assigned<P>(Labels, PhantomData<fn() -> P>);

impl<P: Assignment> Reserve for P {
    fn reserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        _wake: Option<Wake<'_>>,
    ) -> Step {
        let Some(view) = cx.cluster.nodes.node(node) else {
            return Step::Done(Status::error(format!("node {node} was deleted")));
        };
        match self.assign(pod, view) {
            Ok(Some(labels)) => {
                let counted = labels.clone();
                cx.outbox
                    .count(PodEdit::new(move |pod| add_labels(pod, &counted)));
                state.write(Assigned::<P>(labels, PhantomData));
                Step::success()
            }
            Ok(None) => Step::success(),
            Err(status) => Step::Done(status),
        }
    }

    fn unreserve(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _node: &Str,
    ) {
    }
}

impl<P: Assignment> PreBind for P {
    fn pre_flight(
        &self,
        _cx: &mut StageContext<'_>,
        state: &mut CycleState,
        _pod: &PodInfo,
        _node: &Str,
    ) -> Status {
        match state.read::<Assigned<P>>() {
            Some(_) => Status::success(),
            None => Status::skip(),
        }
    }

    fn pre_bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        let Some(Assigned(labels, _)) = state.read::<Assigned<P>>() else {
            return Step::success();
        };
        match wake.map(Wake::reason) {
            None => cx.wait_for_call(CALL_MAX, record(P::CALL, &pod.pod, labels.clone())),
            Some(WakeReason::Call(Ok(_))) => Step::success(),
            Some(WakeReason::Call(Err(error))) => Step::Done(Status::error(error.to_string())),
            Some(_) => Step::Done(Status::error(format!(
                "failed to label pod {}: no answer within {} s",
                pod.pod.key(),
                CALL_MAX.as_secs()
            ))),
        }
    }
}

fn add_labels(pod: &mut Pod, labels: &Labels) {
    for (key, value) in labels.iter() {
        pod.metadata.labels = pod.metadata.labels.with(key, value);
    }
}

/// The write of the labels.
fn record(call: &'static CallType, pod: &Pod, labels: Labels) -> Write {
    let metadata = &pod.metadata;
    let pairs = labels.iter();
    let body: Map<String, Value> = pairs
        .map(|(key, value)| (key.to_string(), Value::from(value.as_str())))
        .collect();
    let body = json!({"metadata": {"labels": body}});
    Write::patch(call, &metadata.namespace, &metadata.name, body)
        .of(metadata)
        .seen_as(move |object| {
            let mut labelled = object.clone();
            if let Object::Pod(pod) = &mut labelled {
                add_labels(Arc::make_mut(pod), &labels);
            }
            labelled
        })
}
