//! The amounts of a resource in reasons.

use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use berth_framework::NodeView;
use berth_framework::PodInfo;

/// The amount of a resource that a pod requests: milli-CPU for `cpu`, otherwise in the unit of the resource.
pub fn wanted(pod: &PodInfo, resource: &str) -> i64 {
    let requests = &pod.requests;
    match resource {
        CPU => requests.milli_cpu,
        MEMORY => requests.memory,
        EPHEMERAL_STORAGE => requests.ephemeral_storage,
        PODS => 1,
        name => {
            let mut scalars = requests.scalars.iter();
            let found = scalars.find(|(known, _)| known.as_str() == name);
            found.map_or(0, |(_, amount)| *amount)
        }
    }
}

/// The free amount of a resource on a node; negative if the requests exceed the allocatable amount.
pub fn free(node: NodeView<'_>, resource: &str) -> i64 {
    match resource {
        PODS => node.allocatable_of(PODS) - i64::try_from(node.pods().len()).unwrap_or(i64::MAX),
        name => node.allocatable_of(name) - node.requested_of(name),
    }
}
