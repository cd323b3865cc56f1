//! The template of a pod: the fields that plugins read.

use berth_api::Pod;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// All fields of a pod that plugins read, for pods without claims of their own and without a nominated node.
///
/// The hash is stored because a pod is looked up several times while it starts and stops waiting.
#[derive(Debug, Clone)]
pub struct PodTemplateKey {
    hash: u64,
    /// A pod of the template.
    pod: Arc<Pod>,
}

impl PodTemplateKey {
    /// The template of a pod; `None` for a pod whose answers can differ from those of all other pods.
    pub fn of(pod: &Arc<Pod>) -> Option<Self> {
        if !pod.status.nominated_node_name.is_empty() || pod.has_claims() {
            return None;
        }
        let meta = &pod.metadata;
        let mut hasher = FxHasher::default();
        (&meta.namespace, &meta.labels, &meta.annotations).hash(&mut hasher);
        (&meta.owner_references, &pod.spec.template).hash(&mut hasher);
        Some(Self {
            hash: hasher.finish(),
            pod: pod.clone(),
        })
    }

    /// Returns whether this is the template of a pod.
    pub fn is_of(&self, pod: &Pod) -> bool {
        pod.status.nominated_node_name.is_empty() && self.pod.reads_as(pod)
    }
}

impl PartialEq for PodTemplateKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.pod.reads_as(&other.pod)
    }
}

impl Eq for PodTemplateKey {}

impl Hash for PodTemplateKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}
