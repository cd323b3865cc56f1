//! The values that were computed lately, by template.

use super::Computed;
use berth_api::pod::{PodTemplate, SharedStatus};
use berth_api::requests::Footprint;
use berth_api::{Pod, Shared, Str};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::Arc;

/// The number of results that a thread remembers before it forgets them all.
const REMEMBERED_MAX: usize = 8 * 1024;

/// Everything that a result depends on, by address: equal addresses of living values mean the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct MemoKey {
    template: usize,
    /// Zero where the status does not matter.
    status: usize,
    /// Zero where the namespace does not matter.
    namespace: usize,
    /// The default where the status does not matter.
    footprint: Footprint,
}

/// Everything that plugins read of a pod without claims, volumes, a node and a status, by address. It means a template
/// as long as one pod with the key is kept: equal values may have different keys, but not the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TemplateKey {
    template: usize,
    namespace: usize,
    labels: usize,
    annotations: usize,
    owners: usize,
}

impl TemplateKey {
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let (meta, status) = (&pod.metadata, &pod.status);
        let is_bare = pod.spec.node_name.is_empty()
            && pod.spec.volumes.is_empty()
            && !pod.has_claims()
            && !status_matters(status);
        is_bare.then(|| Self {
            template: pod.spec.template.address(),
            namespace: meta.namespace.as_ptr() as usize,
            labels: meta.labels.as_slice().as_ptr() as usize,
            annotations: meta.annotations.as_slice().as_ptr() as usize,
            owners: meta.owner_references.address(),
        })
    }
}

/// A result, with references that keep the addresses of its key valid.
struct Remembered {
    computed: Arc<Computed>,
    _template: Shared<PodTemplate>,
    _status: Option<Shared<SharedStatus>>,
    _namespace: Option<Str>,
}

thread_local! {
    static REMEMBERED: RefCell<FxHashMap<MemoKey, Remembered>> = RefCell::default();
}

/// Returns whether the sums depend on the status: only where containers or the pod have been resized in place.
fn status_matters(status: &SharedStatus) -> bool {
    !status.container_statuses.is_empty()
        || !status.init_container_statuses.is_empty()
        || status.resources.is_some()
        || !status.allocated_resources.is_empty()
        || !status.node_allocatable_resource_claim_statuses.is_empty()
}

/// The values that are computed from `pod`.
pub(super) fn computed(pod: &Pod, footprint: Footprint) -> Arc<Computed> {
    let template = &pod.spec.template;
    let status = Some(&pod.status.shared).filter(|status| status_matters(status));
    // Terms without namespaces mean the pod's own.
    let namespace = Some(pod.namespace()).filter(|_| template.affinity.is_some());
    let key = MemoKey {
        template: template.address(),
        status: status.map_or(0, Shared::address),
        namespace: namespace.map_or(0, |namespace| namespace.as_ptr() as usize),
        footprint: status.map_or_else(Footprint::default, |_| footprint),
    };
    REMEMBERED.with_borrow_mut(|remembered| {
        if let Some(found) = remembered.get(&key) {
            return found.computed.clone();
        }
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        let computed = Arc::new(Computed::of(pod, footprint));
        let entry = Remembered {
            computed: computed.clone(),
            _template: template.clone(),
            _status: status.cloned(),
            _namespace: namespace.cloned(),
        };
        remembered.insert(key, entry);
        computed
    })
}
