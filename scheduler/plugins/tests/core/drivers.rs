//! Drivers of a scheduler with the in-tree plugins.

use berth_api::Kind;
use berth_framework::testing::PodBuilder;
use berth_framework::{ApiCall, FeatureGates};
use berth_scheduler::SchedulerOptions;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

pub(crate) fn driver() -> Driver {
    driver_with(|_| {})
}

pub(crate) fn driver_of(features: FeatureGates) -> Driver {
    driver_with(|options| options.features = features)
}

pub(crate) fn driver_with(change: impl FnOnce(&mut SchedulerOptions)) -> Driver {
    Driver::new(&berth_plugins::in_tree(), change)
}

/// A pod with some fields of its spec as JSON has them: affinity, selector, volumes, spread and overhead.
pub(crate) fn with_spec(pod: PodBuilder, fields: &Value) -> PodBuilder {
    let object = json!({"metadata": {"name": "x"}, "spec": fields}).to_string();
    let object = Kind::Pod.decode(object.as_bytes());
    let object = object.unwrap_or_else(|e| panic!("{fields}: {e}"));
    pod.with(|pod| {
        let read = object.as_pod().expect("a pod").spec.clone();
        pod.spec.affinity.clone_from(&read.affinity);
        pod.spec.node_selector.clone_from(&read.node_selector);
        pod.spec.volumes.clone_from(&read.volumes);
        pod.spec.overhead.clone_from(&read.overhead);
        let spread = &read.topology_spread_constraints;
        pod.spec.topology_spread_constraints.clone_from(spread);
    })
}

pub(crate) fn is_deletion(call: &ApiCall) -> bool {
    matches!(call, ApiCall::DeletePod { .. })
}

/// Returns whether the call writes the status of this pod.
pub(crate) fn is_status_of(name: &str) -> impl Fn(&ApiCall) -> bool {
    let name = name.to_owned();
    move |call| matches!(call, ApiCall::PatchPodStatus { pod, .. } if pod.name == *name)
}
