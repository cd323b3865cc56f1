//! The images of nodes: how many nodes have each.

use berth_api::{Node, Str};
use rustc_hash::FxHashMap;

/// An image in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageState {
    /// In bytes, as the first node that was seen with the image reported.
    pub size: i64,
    /// How many nodes have it.
    pub nodes: usize,
}

/// The images of all nodes, by name.
#[derive(Debug, Clone, Default)]
pub struct Images {
    by_name: FxHashMap<Str, ImageState>,
    version: u64,
}

impl Images {
    /// Changes whenever a node comes or goes, or has other images than before.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// An image, if any node has it.
    pub fn get(&self, name: &str) -> Option<ImageState> {
        self.by_name.get(name).copied()
    }

    /// A node is replaced by another version, added or removed.
    pub(super) fn replace(&mut self, old: Option<&Node>, new: Option<&Node>) {
        let is_same =
            matches!((old, new), (Some(old), Some(new)) if old.status.images == new.status.images);
        self.version += u64::from(!is_same);
        for name in names(old) {
            if let Some(state) = self.by_name.get_mut(name) {
                state.nodes = state.nodes.saturating_sub(1);
                if state.nodes == 0 {
                    self.by_name.remove(name);
                }
            }
        }
        for image in new.iter().flat_map(|node| &node.status.images) {
            for name in &image.names {
                let size = image.size_bytes;
                let state = self.by_name.entry(name.clone());
                state.or_insert(ImageState { size, nodes: 0 }).nodes += 1;
            }
        }
    }
}

fn names(node: Option<&Node>) -> impl Iterator<Item = &Str> {
    let images = node.into_iter().flat_map(|node| &node.status.images);
    images.flat_map(|image| &image.names)
}
