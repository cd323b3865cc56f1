//! The selector of default constraints: the pods of the same services and of the same controller.

use berth_api::{LabelSelector, Labels, Pod, Selector};
use berth_framework::Cluster;

fn merge(labels: &Labels, more: &Labels) -> Labels {
    Labels::from_pairs(
        labels
            .iter()
            .chain(more.iter())
            .map(|(key, value)| (key.clone(), value.clone())),
    )
}

/// The selectors of the pod's services and of its controller together; empty when there are none.
pub(super) fn default_selector(cluster: &Cluster, pod: &Pod) -> Selector {
    let namespace = pod.namespace();
    let mut labels = Labels::default();
    let workloads = cluster.workloads();
    // As upstream, the selectors of all services are merged; a later service overrides equal labels.
    for selector in workloads.services().selectors_of(pod) {
        labels = merge(&labels, selector);
    }
    let selector = Selector::from_labels(&labels);
    let Some(owner) = pod.metadata.controller() else {
        return selector;
    };
    match (owner.api_version.as_str(), owner.kind.as_str()) {
        // Its selector is a map of labels and is merged. The selectors of the others add requirements.
        ("v1", "ReplicationController") => {
            let owner = workloads
                .replication_controllers()
                .get(namespace, &owner.name);
            match owner.and_then(|owner| owner.spec.selector.as_ref()) {
                Some(more) => Selector::from_labels(&merge(&labels, more)),
                None => selector,
            }
        }
        ("apps/v1", "ReplicaSet") => {
            let owner = workloads.replica_sets().get(namespace, &owner.name);
            narrowed(
                selector,
                owner.and_then(|owner| owner.spec.selector.as_ref()),
            )
        }
        ("apps/v1", "StatefulSet") => {
            let owner = workloads.stateful_sets().get(namespace, &owner.name);
            narrowed(
                selector,
                owner.and_then(|owner| owner.spec.selector.as_ref()),
            )
        }
        // As upstream, other controllers, such as Jobs, are ignored.
        _ => selector,
    }
}

/// The selector with the requirements of another one, if that one has some.
fn narrowed(selector: Selector, more: Option<&LabelSelector>) -> Selector {
    match Selector::from_label_selector(more) {
        Ok(more) if !more.is_nothing() => selector.and(more.requirements().iter().cloned()),
        _ => selector,
    }
}
