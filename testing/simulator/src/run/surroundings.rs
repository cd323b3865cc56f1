//! The actions of users, controllers and kubelets in a run.

use super::Run;
use crate::script::{Step, namespace_name, node_name, pod_name};
use crate::shapes::{APP, CLOSED, HOLD, SLOW, Slow, TEAM, group_name, tolerate};
use crate::world::Devices;
use berth_api::Str;

impl Run<'_, '_> {
    /// Executes a step that concerns the world rather than schedulers.
    pub(super) fn change_world(&mut self, step: &Step) {
        let world = &mut self.world;
        match step {
            Step::CreatePod(pod, shape) => {
                if world.create_pod(&pod_name(*pod), shape.build()) {
                    self.tally.pods_created += 1;
                }
            }
            Step::ReplacePod(pod, shape) => {
                let name = pod_name(*pod);
                if world.delete_pod(&name) && world.create_pod(&name, shape.build()) {
                    self.tally.pods_created += 1;
                }
            }
            Step::PlacePod(pod, shape, node) => {
                let node = node_name(*node);
                if world.nodes().contains_key(node.as_str()) {
                    let mut object = shape.build();
                    object.spec.node_name = Str::from(node);
                    world.create_pod(&pod_name(*pod), object);
                }
            }
            Step::RemoveGate(pod, gate) => world.remove_gate(&pod_name(*pod), *gate),
            Step::Tighten(pod, zone) => world.tighten(&pod_name(*pod), zone),
            Step::Hold(pod, Some(reason)) => world.label_pod(&pod_name(*pod), HOLD, reason),
            Step::Hold(pod, None) => world.unlabel_pod(&pod_name(*pod), HOLD),
            Step::Close(at, reason) => world.label_namespace(namespace_name(*at), CLOSED, *reason),
            Step::Slow(pod, Some(slow)) => {
                // Members of groups may not wait at Reserve and Permit.
                let early = matches!(slow, Slow::Reserve | Slow::Permit);
                if !(early && world.is_member(&pod_name(*pod))) {
                    world.label_pod(&pod_name(*pod), SLOW, slow.as_str());
                }
            }
            Step::CreateGroup(group, shape) => world.create_group(&group_name(*group), shape),
            Step::DeleteGroup(group) => world.delete_group(&group_name(*group)),
            Step::SetQuota(quota, shape) => world.set_quota(*quota, shape),
            Step::DeleteQuota(quota) => world.delete_quota(*quota),
            Step::Slow(pod, None) => world.unlabel_pod(&pod_name(*pod), SLOW),
            Step::Relabel(pod, app) => world.label_pod(&pod_name(*pod), APP, app),
            Step::Tolerate(pod, taint) => world.add_toleration(&pod_name(*pod), tolerate(taint)),
            Step::TerminatePod(pod) => world.terminate_pod(&pod_name(*pod), self.now),
            Step::DeletePod(pod) => {
                world.delete_pod(&pod_name(*pod));
            }
            Step::FinishPod(pod) => world.finish_pod(&pod_name(*pod)),
            Step::RejectPod(pod, reason) => {
                self.tally.rejections += u64::from(world.reject_pod(&pod_name(*pod), reason));
            }
            Step::Reap => world.reap(),
            Step::CreateNode(node, shape) => world.create_node(&node_name(*node), shape),
            Step::ChangeNode(node, change) => world.change_node(&node_name(*node), change),
            Step::DeleteNode(node) => world.delete_node(&node_name(*node)),
            Step::CollectGarbage => world.collect_garbage(),
            Step::CreateClaim(claim, shape) => world.create_claim(*claim, shape),
            Step::DeleteClaim(claim) => world.delete_claim(*claim),
            Step::BindClaims => world.bind_claims(),
            Step::LabelNamespace(at, team) => {
                world.label_namespace(namespace_name(*at), TEAM, Some(team));
            }
            Step::SetBudget(budget) => world.set_budget(budget),
            Step::RemoveBudget(app) => world.remove_budget(app),
            Step::PublishDevices(place, shape) => {
                Devices::of(world).publish_devices(place.map(node_name).as_deref(), *shape);
            }
            Step::WithdrawDevices(place) => {
                Devices::of(world).withdraw_devices(place.map(node_name).as_deref());
            }
            Step::CreateDeviceClaim(claim, want) => {
                Devices::of(world).create_device_claim(*claim, *want)
            }
            Step::DeleteDeviceClaim(claim) => {
                Devices::of(world).delete_device_claim(*claim, self.now)
            }
            Step::ManageClaims => Devices::of(world).manage_claims(self.now),
            Step::Deliver(..)
            | Step::Repeat(_)
            | Step::Relist(_)
            | Step::Advance(_)
            | Step::Schedule(_)
            | Step::Answer(..)
            | Step::CarryOut(..)
            | Step::EndJob(..)
            | Step::Reconfigure(_)
            | Step::Restart(_)
            | Step::Land(_)
            | Step::FailOver
            | Step::StepDown
            | Step::Other(_) => {}
        }
    }
}
