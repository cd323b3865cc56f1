//! The cluster as the scheduler knows it.

use crate::table::NodeTable;
use berth_api::{Labels, Namespace, Pod, Str};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Nodes with their pods, and every other object that plugins may look up.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The nodes and what runs on them, assumed pods included.
    pub nodes: NodeTable,
    /// Namespaces by name.
    pub namespaces: FxHashMap<Str, Arc<Namespace>>,
    /// Every pod that is known, by UID: the stored object with our unconfirmed writes applied.
    pub pods: FxHashMap<Str, Arc<Pod>>,
}

impl Cluster {
    /// The labels of a namespace; none when it is not known.
    pub fn namespace_labels(&self, name: &str) -> Labels {
        self.namespaces
            .get(name)
            .map(|namespace| namespace.metadata.labels.clone())
            .unwrap_or_default()
    }
}
