//! Pod groups, composite pod groups, and the forest that they form (KEP-4671, KEP-6012).
//!
//! A group names its parent; the parent does not list its children. A group may be known by name alone, because a pod
//! or a child names it before it exists. The members of a pod group are counted with the pods
//! ([`Pods::members`](super::Pods::members)).

use super::Namespaced;
use berth_api::groups::{GroupSpec, GroupStatus};
use berth_api::{CompositePodGroup, Kind, Object, ObjectMeta, Pod, PodGroup, Str};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::fmt;

/// The plugin that holds back the pods of a group that is not complete. The queue reports in its name about pods whose
/// group does not exist, for which no plugin runs.
pub const GROUP_GATE_PLUGIN: &str = "GangScheduling";

/// The greatest number of levels of a hierarchy, pod groups included (KEP-6012).
pub const HIERARCHY_DEPTH_MAX: usize = 4;

/// The number of levels that a walk to the root follows. Deeper hierarchies are taken for cycles.
const WALK_MAX: usize = 32;

/// The kind of a group. Composite groups are first, as in the order of children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupKind {
    /// A composite pod group.
    CompositePodGroup,
    /// A pod group.
    PodGroup,
}

impl GroupKind {
    /// The word in metrics, events and keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CompositePodGroup => "compositepodgroup",
            Self::PodGroup => "podgroup",
        }
    }

    /// The kind of the objects.
    pub fn kind(self) -> Kind {
        match self {
            Self::CompositePodGroup => Kind::CompositePodGroup,
            Self::PodGroup => Kind::PodGroup,
        }
    }
}

/// The name of a group. A pod group and a composite one may share namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// The kind.
    pub kind: GroupKind,
    /// The namespace.
    pub namespace: Str,
    /// The name.
    pub name: Str,
}

impl GroupKey {
    /// The pod group of that name.
    pub fn pod_group(namespace: &Str, name: &Str) -> Self {
        Self {
            kind: GroupKind::PodGroup,
            namespace: namespace.clone(),
            name: name.clone(),
        }
    }

    /// The composite pod group of that name.
    pub fn composite(namespace: &Str, name: &Str) -> Self {
        Self {
            kind: GroupKind::CompositePodGroup,
            namespace: namespace.clone(),
            name: name.clone(),
        }
    }

    /// The pod group that a pod names.
    pub fn of_pod(pod: &Pod) -> Option<Self> {
        let name = pod.pod_group_name()?;
        Some(Self::pod_group(pod.namespace(), name))
    }

    /// The group that an object is, if it is one.
    pub fn of_object(object: &Object) -> Option<Self> {
        let meta = object.metadata();
        match object {
            Object::PodGroup(_) => Some(Self::pod_group(&meta.namespace, &meta.name)),
            Object::CompositePodGroup(_) => Some(Self::composite(&meta.namespace, &meta.name)),
            _ => None,
        }
    }

    /// `namespace/name`.
    pub fn namespaced_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        write!(f, "{}/{namespace}/{name}", kind.as_str())
    }
}

/// A group whose object exists.
#[derive(Debug, Clone, Copy)]
pub struct GroupView<'a> {
    /// Name, namespace and identity.
    pub metadata: &'a ObjectMeta,
    /// The wanted behaviour.
    pub spec: &'a GroupSpec,
    /// The state.
    pub status: &'a GroupStatus,
}

/// The reason why a group has no root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRoot {
    /// The group or an ancestor does not exist.
    #[error("{} {} not found in workload forest", .0.kind.as_str(), .0.namespaced_name())]
    Missing(GroupKey),
    /// The ancestors form a circle.
    #[error("cycle detected in hierarchy of {0}")]
    Cycle(GroupKey),
}

/// The groups that exist, with their children.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    pod_groups: Namespaced<PodGroup>,
    composites: Namespaced<CompositePodGroup>,
    /// The groups that name a composite group as their parent, whether that exists or not.
    children: FxHashMap<GroupKey, BTreeSet<GroupKey>>,
}

impl Groups {
    /// Returns whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.pod_groups.iter().next().is_none() && self.composites.iter().next().is_none()
    }

    /// A group, if it exists.
    pub fn get(&self, key: &GroupKey) -> Option<GroupView<'_>> {
        match key.kind {
            GroupKind::PodGroup => {
                let group = self.pod_groups.get(&key.namespace, &key.name)?;
                Some(GroupView {
                    metadata: &group.metadata,
                    spec: &group.spec,
                    status: &group.status,
                })
            }
            GroupKind::CompositePodGroup => {
                let group = self.composites.get(&key.namespace, &key.name)?;
                Some(GroupView {
                    metadata: &group.metadata,
                    spec: &group.spec,
                    status: &group.status,
                })
            }
        }
    }

    /// The wanted behaviour of a group, if it exists.
    pub fn spec(&self, key: &GroupKey) -> Option<&GroupSpec> {
        self.get(key).map(|group| group.spec)
    }

    /// The pod groups, in no particular order.
    pub fn pod_groups(&self) -> impl Iterator<Item = &std::sync::Arc<PodGroup>> {
        self.pod_groups.iter()
    }

    /// The composite pod groups, in no particular order.
    pub fn composites(&self) -> impl Iterator<Item = &std::sync::Arc<CompositePodGroup>> {
        self.composites.iter()
    }

    /// The parent that a group names.
    pub fn parent(&self, key: &GroupKey) -> Option<GroupKey> {
        let parent = self.spec(key)?.parent()?;
        Some(GroupKey::composite(&key.namespace, parent))
    }

    /// The groups that name this one as their parent: by creation time, name and kind.
    pub fn children(&self, key: &GroupKey) -> Vec<GroupKey> {
        let mut children: Vec<GroupKey> = self
            .children
            .get(key)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        children.sort_by_cached_key(|child| {
            let created = self.get(child).and_then(|g| g.metadata.creation_timestamp);
            (created, child.name.clone(), child.kind)
        });
        children
    }

    /// The groups that name this one as their parent, in no useful order.
    pub fn children_unordered(&self, key: &GroupKey) -> impl Iterator<Item = &GroupKey> {
        self.children.get(key).into_iter().flatten()
    }

    /// The group without parent above a group, or the group itself.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn root_of(&self, key: &GroupKey) -> Result<GroupKey, NoRoot> {
        let path = self.path_to_root(key)?;
        Ok(path.last().unwrap_or(key).clone())
    }

    /// A group and its ancestors, the root last.
    ///
    /// # Errors
    /// The reason why there is no root.
    pub fn path_to_root(&self, key: &GroupKey) -> Result<SmallVec<[GroupKey; 4]>, NoRoot> {
        let mut path: SmallVec<[GroupKey; 4]> = SmallVec::new();
        let mut at = key.clone();
        loop {
            let Some(spec) = self.spec(&at) else {
                return Err(NoRoot::Missing(at));
            };
            let parent = spec.parent().map(|p| GroupKey::composite(&at.namespace, p));
            path.push(at);
            match parent {
                None => return Ok(path),
                Some(parent) if path.contains(&parent) || path.len() >= WALK_MAX => {
                    let first = path.iter().min().unwrap_or(key);
                    return Err(NoRoot::Cycle(first.clone()));
                }
                Some(parent) => at = parent,
            }
        }
    }

    /// A group and all groups below it, each before its children. Children are in their order.
    pub fn tree(&self, root: &GroupKey) -> Vec<GroupKey> {
        let mut tree = Vec::new();
        let mut open = vec![(root.clone(), 1)];
        while let Some((key, depth)) = open.pop() {
            if depth < WALK_MAX && key.kind == GroupKind::CompositePodGroup {
                let children = self.children(&key).into_iter().rev();
                open.extend(children.map(|child| (child, depth + 1)));
            }
            tree.push(key);
        }
        tree
    }

    /// The pod groups of a tree, in the order in which they are scheduled.
    pub fn leaves(&self, root: &GroupKey) -> Vec<GroupKey> {
        if root.kind == GroupKind::PodGroup {
            return vec![root.clone()];
        }
        let mut tree = self.tree(root);
        tree.retain(|key| key.kind == GroupKind::PodGroup);
        tree
    }

    /// The highest ancestor of a pod group, or the group itself, that is evicted as a whole.
    pub fn disrupted_as_a_whole(&self, leaf: &GroupKey) -> Option<GroupKey> {
        let path = self.path_to_root(leaf).ok()?;
        let mut highest_first = path.into_iter().rev();
        highest_first.find(|key| {
            let spec = self.spec(key);
            spec.is_some_and(GroupSpec::is_disrupted_as_a_whole)
        })
    }

    /// Sets or removes an object if it is a group, and returns whether it is one.
    pub(super) fn put(&mut self, object: &Object, is_there: bool) -> bool {
        let Some(key) = GroupKey::of_object(object) else {
            return false;
        };
        if let Some(parent) = self.parent(&key)
            && let Some(children) = self.children.get_mut(&parent)
        {
            children.remove(&key);
            if children.is_empty() {
                self.children.remove(&parent);
            }
        }
        let meta = object.metadata();
        match object {
            Object::PodGroup(group) => drop(self.pod_groups.put(meta, group, is_there)),
            Object::CompositePodGroup(group) => drop(self.composites.put(meta, group, is_there)),
            _ => {}
        }
        if let Some(parent) = self.parent(&key) {
            self.children.entry(parent).or_default().insert(key);
        }
        true
    }
}

#[cfg(test)]
mod tests;
