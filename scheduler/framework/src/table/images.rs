//! The images of nodes: how many nodes have each.

use berth_api::{Node, Str};
use rustc_hash::FxHashMap;

/// An image in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageState {
    /// In bytes, as the first node that was seen with the image reported.
    pub size: i64,
    /// The number of nodes with the image.
    pub nodes: usize,
}

/// The images of all nodes, by name.
#[derive(Debug, Clone, Default)]
pub struct Images {
    by_name: FxHashMap<Str, ImageState>,
    version: u64,
}

impl Images {
    /// Changes whenever a node is added or removed or has other images than before, and when the size of an image
    /// changes.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// An image, if any node has it.
    pub fn get(&self, name: &str) -> Option<ImageState> {
        self.by_name.get(name).copied()
    }

    /// A node is replaced by another version, added or removed.
    pub(super) fn replace(&mut self, old: Option<&Node>, new: Option<&Node>) {
        if let (Some(old), Some(new)) = (old, new)
            && old.status.images == new.status.images
        {
            return self.resize(new);
        }
        self.version += 1;
        for (name, _) in old.into_iter().flat_map(sized) {
            if let Some(state) = self.by_name.get_mut(name) {
                state.nodes = state.nodes.saturating_sub(1);
                if state.nodes == 0 {
                    self.by_name.remove(name);
                }
            }
        }
        for (name, size) in new.into_iter().flat_map(sized) {
            let state = self.by_name.entry(name.clone());
            state.or_insert(ImageState { size, nodes: 0 }).nodes += 1;
        }
    }

    /// Updates the sizes of the images of a node that was replaced by a version with the same images. As in
    /// kube-scheduler, an image that no other node has gets the size that this node reports.
    fn resize(&mut self, node: &Node) {
        for (name, size) in sized(node) {
            if let Some(state) = self.by_name.get_mut(name)
                && state.nodes == 1
                && state.size != size
            {
                state.size = size;
                self.version += 1;
            }
        }
    }
}

fn sized(node: &Node) -> impl Iterator<Item = (&Str, i64)> {
    let images = node.status.images.iter();
    images.flat_map(|image| image.names.iter().map(|name| (name, image.size_bytes)))
}
