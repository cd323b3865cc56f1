//! Blocks pods in PreEnqueue while the deferred quotas of their namespace have no room.
//!
//! ```text
//! quota team-a: requests.cpu: 16, used 14; the pod requests 4   → PreEnqueue rejects it
//! a pod of the namespace ends, used 12                          → the pod is queued
//! ```
//!
//! The decisions are made by [`Quotas`](berth_framework::cluster::Quotas), which follow the pods of the cluster. The
//! plugin checks one pod at a time, and returns the names of admitted pods (KEP-6132).

use berth_api::{Pod, Str};
use berth_framework::cluster::{DEFERRED_QUOTA, QUOTA_GATE_PLUGIN};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, Hint, HintError, Narrowed, Touched,
};
use berth_framework::plugin::{Context, EnqueueExtensions, PreEnqueue, Reserve};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::stage::{StageContext, Step, Wake};
use berth_framework::{Cluster, CycleState, FeatureGates, PodInfo, ReasonCode, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = QUOTA_GATE_PLUGIN;

/// Deferred quotas.
#[derive(Debug, Default)]
pub struct DeferredQuota;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(DeferredQuota)
            .pre_enqueue()
            .reserve()
            .events()
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl PreEnqueue for DeferredQuota {
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status {
        match cx.cluster.quotas().obstacle(pod) {
            None => Status::success(),
            Some(obstacle) => {
                Status::unresolvable(ReasonCode::DeferredQuota.reason(obstacle.to_string()))
            }
        }
    }
}

impl Reserve for DeferredQuota {
    /// The pod is counted on its node already. An admitted pod has room, unless the limit was lowered or another
    /// scheduler has placed pods since then.
    fn reserve(
        &self,
        cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        _node: &Str,
        _wake: Option<Wake<'_>>,
    ) -> Step {
        Step::Done(match cx.cluster.quotas().excess(&pod.pod) {
            None => Status::success(),
            Some(excess) => {
                Status::unresolvable(ReasonCode::DeferredQuota.reason(excess.to_string()))
            }
        })
    }

    /// The room is free again when the pod no longer counts on its node.
    fn unreserve(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        _pod: &PodInfo,
        _node: &Str,
    ) {
    }
}

/// The pods that were admitted since the last event.
fn admitted(cluster: &Cluster, _change: Change<'_>) -> Result<Narrowed, HintError> {
    let admitted = cluster.quotas().changes().admitted.iter();
    let pods = admitted.filter_map(|uid| cluster.pods.get(uid));
    let named = pods.map(|pod| (pod.namespace().clone(), pod.name().clone()));
    Ok(Narrowed::Pods(named.collect()))
}

impl EnqueueExtensions for DeferredQuota {
    /// Changes of pods, groups, claims and quotas that make room reach the plugin as this event.
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        let quotas = EventResource::Other(DEFERRED_QUOTA.to_string().into());
        vec![
            EventRegistration::with_hint(quotas, ActionType::UPDATE, |cluster, pod, _| {
                Ok(Hint::queue_if(cluster.quotas().passes(pod)))
            })
            .touching(|_, _| Touched::everything())
            .narrowed_by(admitted)
            .with_every_version(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::{Kind, Object};
    use berth_framework::testing::{Recorder, World, pod};
    use serde_json::json;

    fn quota(cpu: &str) -> Object {
        let json = json!({
            "metadata": {"name": "team-a", "namespace": "default", "uid": "q"},
            "spec": {"hard": {"requests.cpu": cpu}},
        });
        let kind = Kind::Custom(DEFERRED_QUOTA);
        kind.decode(json.to_string().as_bytes()).expect("a quota")
    }

    fn world() -> World {
        let mut world = World::default();
        world
            .cluster
            .defer_pods_of(vec!["default-scheduler".into()]);
        world.cluster.set(&quota("16"));
        world
    }

    /// DQ-2, DQ-13: the pod that does not fit is rejected, with the amounts.
    #[test]
    fn a_pod_without_room_is_rejected() {
        let world = world()
            .pod(pod("running").request("cpu", "14").on("n1"))
            .pod(pod("first").request("cpu", "4").created(1))
            .pod(pod("second").request("cpu", "1").created(2));
        let asked = |name: &str| {
            let pod = world.cluster.pods.get(name).expect("it is known");
            DeferredQuota.pre_enqueue(&world.context(), pod).message()
        };
        assert_eq!(
            asked("uid-first"),
            "deferred quota \"team-a\": requests.cpu: requested 4, used 14 of 16"
        );
        assert_eq!(
            asked("uid-second"),
            "deferred quota \"team-a\": 1 pod is before this one"
        );
        let other = pod("other")
            .namespace("elsewhere")
            .request("cpu", "100")
            .build();
        let status = DeferredQuota.pre_enqueue(&world.context(), &other);
        assert!(status.is_success(), "{status:?}");
    }

    /// DQ-5: Reserve refuses a pod that counts beyond the limit.
    #[test]
    fn reserve_counts_again() {
        for (limit, refused) in [("16", false), ("15", true)] {
            let mut world = world()
                .pod(pod("running").request("cpu", "12").on("n1"))
                .pod(pod("placed").request("cpu", "4").on("n1"));
            world.cluster.set(&quota(limit));
            let mut recorder = Recorder::default();
            let info = pod("placed").request("cpu", "4").on("n1").info();
            let mut state = CycleState::default();
            let step = DeferredQuota.reserve(
                &mut world.stage(&mut recorder),
                &mut state,
                &info,
                &"n1".into(),
                None,
            );
            let Step::Done(status) = step else {
                panic!("it does not wait");
            };
            assert_eq!(!status.is_success(), refused, "{limit}: {status:?}");
        }
    }
}
