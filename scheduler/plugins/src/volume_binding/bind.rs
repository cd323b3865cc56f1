//! The steps from a chosen node to bound claims: Reserve, PreBind and Unreserve.
//!
//! ```text
//! Reserve    chooses the volumes again, for this node only, and assumes them
//! PreBind    writes them, volumes before claims, one after another; then waits until the claims are bound
//! Unreserve  reverts unwritten assumptions
//! ```
//!
//! The scheduler does not bind or provision: it writes the claim to a volume, or the selected node to a claim, and
//! controllers do the rest. Their results arrive through watches, without polling. A write is not reverted if the
//! attempt fails: the claim has its volume then, and the next attempt finds it.

use super::claims::{BoundVolume, Claims};
use super::find::{Provision, find};
use super::{VolumeBinding, VolumePreFilterState, writes as api};
use crate::volumes::VolumeError;
use berth_api::storage::SELECTED_NODE_ANNOTATION;
use berth_api::{Duration, Kind, ObjectMeta, PersistentVolume, PersistentVolumeClaim, Str, Time};
use berth_framework::object_name::ObjectName;
use berth_framework::plugin::{PreBind, Reserve};
use berth_framework::stage::{Observation, StageContext, Step, Wait, WaitOn, Wake, WakeReason};
use berth_framework::{Cluster, CycleState, PodInfo, Status, Write};
use std::sync::Arc;

/// The time for which PreBind waits for one write. The dispatcher ends every call earlier, so this only limits the
/// wait.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(5 * 60);

/// The decision of Reserve.
enum Reserved {
    /// Every claim has its volume.
    AllBound,
    /// Some claims get one.
    Chosen(Choice),
}

/// The volumes that a pod gets on its node.
struct Choice {
    node: Str,
    /// Claims with the volumes that were chosen for them.
    bindings: Vec<(Arc<PersistentVolumeClaim>, Str)>,
    /// Claims for which a volume is provisioned.
    provisions: Vec<Arc<PersistentVolumeClaim>>,
    /// The writes, volumes first.
    writes: Vec<Write>,
    /// The number of writes that are done.
    made: usize,
    /// The deadline for the claims; set when everything is written.
    deadline: Option<Time>,
}

/// The state of the claims.
#[derive(Debug, PartialEq, Eq)]
enum BindProgress {
    /// All are bound.
    Bound,
    /// Some claims are not bound; a change of one of these objects may bind them.
    Pending(Vec<ObjectName>),
}

fn claim_key(claim: &PersistentVolumeClaim) -> String {
    format!("{}/{}", claim.metadata.namespace, claim.metadata.name)
}

/// The claims of a pod will not be bound: the pod must be retried. The texts are kube-scheduler's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum BindError {
    #[error("failed to get node {0:?}: node {0:?} not found")]
    NodeNotFound(Str),
    #[error("pod does not exist any more: pod {0:?} not found")]
    PodNotFound(Str),
    #[error("{failed}{error}")]
    Volume {
        failed: &'static str,
        error: VolumeError,
    },
    #[error(
        "pv {volume:?} node affinity doesn't match node {node:?}: no matching NodeSelectorTerms"
    )]
    OtherNode { volume: Str, node: Str },
    #[error("failed to check binding: could not find v1.PersistentVolume {0:?}")]
    VolumeNotFound(Str),
    #[error("failed to check {checked}: could not find v1.PersistentVolumeClaim {claim:?}")]
    ClaimNotFound {
        checked: &'static str,
        claim: String,
    },
    #[error("ClaimRef got reset for pv {0:?}")]
    ClaimRefReset(Str),
    #[error("selectedNode annotation reset for PVC {0:?}")]
    SelectedNodeReset(Str),
    #[error("provisioning failed for PVC {0:?}")]
    NotProvisioned(Str),
}

impl Choice {
    /// Chooses volumes on a node.
    ///
    /// # Errors
    /// The reason why there are none, or why they cannot be assumed.
    fn make(cluster: &Cluster, claims: &Claims, node: &Str) -> Result<Self, Status> {
        let Some(view) = cluster.nodes.node(node) else {
            let error = BindError::NodeNotFound(node.clone());
            return Err(Status::error(error.to_string()));
        };
        let (found, obstacles) =
            find(cluster, claims, view.node()).map_err(|error| Status::error(error.to_string()))?;
        let status = obstacles.into_status();
        if !status.is_success() {
            return Err(status);
        }
        let mut writes = Vec::new();
        let mut bindings = Vec::new();
        for (claim, volume) in found.bindings {
            writes.extend(api::give(&volume, &claim));
            bindings.push((claim, volume.metadata.name.clone()));
        }
        for Provision { claim, .. } in &found.provisions {
            let meta = &claim.metadata;
            let claims = cluster.storage().claims();
            let seen = claims.get(&meta.namespace, &meta.name);
            // A claim that has changed since PreFilter fails the cycle (PL-139).
            if !seen.is_some_and(|seen| is_same_claim(seen, claim)) {
                return Err(out_of_sync(&claim_key(claim)));
            }
            writes.extend(api::select_node(claim, node));
        }
        Ok(Self {
            node: node.clone(),
            bindings,
            provisions: found.provisions.into_iter().map(|p| p.claim).collect(),
            writes,
            made: 0,
            deadline: None,
        })
    }

    /// Returns whether the object is as before the write.
    fn is_before_write(&self, kind: Kind, meta: &ObjectMeta) -> bool {
        let mut writes = self.writes.iter();
        writes.any(|write| {
            let name = write.object();
            name.kind == kind
                && name.namespace == meta.namespace
                && name.name == meta.name
                && write.comes_after(meta)
        })
    }

    /// Checks the claims.
    ///
    /// # Errors
    /// The reason why they will not be bound, with kube-scheduler's text: the pod must be retried.
    fn progress(&self, cluster: &Cluster, pod: &PodInfo) -> Result<BindProgress, BindError> {
        let Some(node) = cluster.nodes.node(&self.node) else {
            return Err(BindError::NodeNotFound(self.node.clone()));
        };
        let pod = &pod.pod;
        if !cluster.pods.contains_key(pod.uid()) {
            return Err(BindError::PodNotFound(pod.name().clone()));
        }
        let check_reach = |volume: &Arc<PersistentVolume>, failed: &'static str| {
            let bound = BoundVolume::of(volume);
            let is_reachable = bound.is_reachable(cluster.storage(), node.node());
            if is_reachable.map_err(|error| BindError::Volume { failed, error })? {
                return Ok(());
            }
            Err(BindError::OtherNode {
                volume: volume.metadata.name.clone(),
                node: self.node.clone(),
            })
        };
        let mut bound = true;
        let mut awaited = vec![
            ObjectName::new(Kind::Node, &Str::default(), &self.node),
            ObjectName::new(Kind::Pod, pod.namespace(), pod.name()),
        ];
        let volume_name =
            |name: &Str| ObjectName::new(Kind::PersistentVolume, &Str::default(), name);
        for (claim, name) in &self.bindings {
            let volume = cluster.storage().volumes().get(name);
            let volume = volume.ok_or_else(|| BindError::VolumeNotFound(name.clone()))?;
            let claim = look_up(cluster, claim, &mut awaited, "binding")?;
            awaited.push(volume_name(name));
            if self.is_before_write(Kind::PersistentVolume, &volume.metadata) {
                bound = false;
                continue;
            }
            check_reach(volume, "failed to translate pv to csi: ")?;
            let given = volume.spec.claim_ref.as_ref();
            if given.is_none_or(|given| given.uid.is_empty()) {
                return Err(BindError::ClaimRefReset(name.clone()));
            }
            bound &= claim.is_fully_bound();
        }
        for claim in &self.provisions {
            let claim = look_up(cluster, claim, &mut awaited, "provisioning pvc")?;
            let meta = &claim.metadata;
            if self.is_before_write(Kind::PersistentVolumeClaim, meta) {
                bound = false;
                continue;
            }
            if meta.annotations.is_empty() {
                return Err(BindError::SelectedNodeReset(meta.name.clone()));
            }
            if meta.annotations.get(SELECTED_NODE_ANNOTATION) != Some(self.node.as_str()) {
                return Err(BindError::NotProvisioned(meta.name.clone()));
            }
            let volume = &claim.spec.volume_name;
            if !volume.is_empty() {
                awaited.push(volume_name(volume));
                match cluster.storage().volumes().get(volume) {
                    Some(volume) => check_reach(volume, "")?,
                    // The watch showed the claim before its volume.
                    None => bound = false,
                }
            }
            bound &= claim.is_fully_bound();
        }
        Ok(if bound {
            BindProgress::Bound
        } else {
            BindProgress::Pending(awaited)
        })
    }

    /// Makes the next write, or waits until the claims are bound.
    fn go_on(&mut self, cx: &mut StageContext<'_>, pod: &PodInfo, limit: Duration) -> Step {
        if let Some(write) = self.writes.get(self.made) {
            return cx.wait_for_call(WRITE_WAIT_MAX, write.clone());
        }
        let deadline = *self.deadline.get_or_insert(cx.now + limit);
        match self.progress(cx.cluster, pod) {
            Ok(BindProgress::Bound) => Step::success(),
            Ok(BindProgress::Pending(objects)) => Step::Wait(Wait {
                on: WaitOn::Objects(objects),
                deadline,
            }),
            Err(error) => failed(
                cx,
                "bind",
                Status::error(format!("binding volumes: {error}")),
            ),
        }
    }
}

/// Ends a step, and counts a failure.
fn failed(cx: &mut StageContext<'_>, operation: &'static str, status: Status) -> Step {
    cx.outbox.observe(Observation::VolumeStageFailed(operation));
    Step::Done(status)
}

fn out_of_sync(name: &str) -> Status {
    Status::error(format!("{name:?} is out of sync"))
}

/// Returns whether the claim, including its assumed changes, is unchanged since a volume was chosen for it.
fn is_same_claim(seen: &Arc<PersistentVolumeClaim>, chosen: &Arc<PersistentVolumeClaim>) -> bool {
    let selected = |claim: &PersistentVolumeClaim| {
        let annotations = &claim.metadata.annotations;
        annotations.get_str(SELECTED_NODE_ANNOTATION).cloned()
    };
    Arc::ptr_eq(seen, chosen)
        || (seen.metadata.uid == chosen.metadata.uid
            && seen.metadata.resource_version == chosen.metadata.resource_version
            && selected(seen) == selected(chosen))
}

/// The current version of the claim; not another one of its name.
fn look_up<'a>(
    cluster: &'a Cluster,
    claim: &PersistentVolumeClaim,
    awaited: &mut Vec<ObjectName>,
    checked: &'static str,
) -> Result<&'a Arc<PersistentVolumeClaim>, BindError> {
    let meta = &claim.metadata;
    let kind = Kind::PersistentVolumeClaim;
    awaited.push(ObjectName::new(kind, &meta.namespace, &meta.name));
    let claims = cluster.storage().claims();
    let found = claims.get(&meta.namespace, &meta.name);
    found
        .filter(|found| found.metadata.uid == meta.uid)
        .ok_or_else(|| BindError::ClaimNotFound {
            checked,
            claim: claim_key(claim),
        })
}

impl Reserve for VolumeBinding {
    fn reserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        _wake: Option<Wake<'_>>,
    ) -> Step {
        // If the answers of PreFilter and Filter were kept from other pods, there is no state.
        let own;
        let claims = match state.read::<VolumePreFilterState>() {
            Some(kept) => &kept.claims,
            None => {
                let claims = Claims::of(cx.cluster, &pod.pod);
                own = claims.map_err(|error| Status::error(error.to_string()));
                match &own {
                    Ok(claims) => claims,
                    Err(status) => return failed(cx, "assume", status.clone()),
                }
            }
        };
        let reserved = if claims.delayed.is_empty() {
            Reserved::AllBound
        } else {
            match Choice::make(cx.cluster, claims, node) {
                Ok(choice) => Reserved::Chosen(choice),
                Err(status) => return failed(cx, "assume", status),
            }
        };
        if let Reserved::Chosen(choice) = &reserved {
            for write in &choice.writes {
                cx.outbox.assume(write.clone());
            }
        }
        state.write(reserved);
        Step::success()
    }

    fn unreserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        _pod: &PodInfo,
        _node: &Str,
    ) {
        let Some(Reserved::Chosen(choice)) = state.read_mut() else {
            return;
        };
        let made = choice.made.min(choice.writes.len());
        for write in choice.writes.drain(made..) {
            cx.outbox.revert(write);
        }
    }
}

impl PreBind for VolumeBinding {
    fn pre_flight(
        &self,
        _cx: &mut StageContext<'_>,
        state: &mut CycleState,
        _pod: &PodInfo,
        node: &Str,
    ) -> Status {
        match state.read() {
            Some(Reserved::AllBound) => Status::skip(),
            Some(Reserved::Chosen(choice)) if choice.node == *node => Status::success(),
            Some(Reserved::Chosen(_)) | None => nothing_chosen(node),
        }
    }

    fn runs_in_parallel(&self, _state: &CycleState, _pod: &PodInfo) -> bool {
        true
    }

    fn pre_bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        let choice = match state.read_mut() {
            Some(Reserved::AllBound) => return Step::success(),
            Some(Reserved::Chosen(choice)) if choice.node == *node => choice,
            // Nothing was chosen for this node (PL-140).
            Some(Reserved::Chosen(_)) | None => return Step::Done(nothing_chosen(node)),
        };
        match wake.map(Wake::reason) {
            Some(WakeReason::Call(Ok(_))) => choice.made += 1,
            Some(WakeReason::Call(Err(error))) => {
                return failed(cx, "bind", Status::error(error.to_string()));
            }
            // An object has changed: the progress is checked below.
            None | Some(WakeReason::Object | WakeReason::Job(_)) => {}
            Some(WakeReason::Deadline | WakeReason::Timer) => {
                // The deadline of the write in flight, or of the wait for the controllers.
                let why = match choice.writes.get(choice.made) {
                    None => "binding volumes: context deadline exceeded".to_owned(),
                    Some(write) => format!(
                        "updating {}: no answer within {} s",
                        write.object(),
                        WRITE_WAIT_MAX.as_secs()
                    ),
                };
                return failed(cx, "bind", Status::error(why));
            }
        }
        choice.go_on(cx, pod, self.args().bind_timeout)
    }
}

fn nothing_chosen(node: &str) -> Status {
    Status::error(format!("no pod volumes found for node {node:?}"))
}
