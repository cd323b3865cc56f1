//! The garbage collector: deletes objects whose owners were deleted.
//!
//! Watches every kind and keeps the dependants of each owner UID. An object is examined when its owners may be deleted:
//! when it is created, when its owner references change, and when an owner is deleted. Deletion is background (the
//! owner is deleted first, then its dependants one by one), foreground (the owner keeps the finalizer
//! `foregroundDeletion` until its blocking dependants are deleted) or orphaning (the finalizer `orphan`: references of
//! the dependants are removed first).

use super::runtime::{CacheDifference, Controller, ControllerContext, Watch};
use super::served_kinds::{DEFINITIONS, SERVED_AFTER, ServedKinds};
use berth_objects::access::{
    Access, AccessError, DeleteOptions, GroupResource, KindInfo, Propagation, StoredObject,
    unless_not_found,
};
use berth_objects::object::{
    self, ControllerKey, EVENT, has_finalizer, is_deleting, namespace, owner_references,
    remove_finalizer, set, uid,
};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// An object of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct DependantItem {
    kind: GroupResource,
    key: ControllerKey,
}

/// The target of an owner reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The owner exists, or its kind is not served, so that its state is unknown.
    Solid,
    /// The owner does not exist.
    Dangling,
    /// The owner is being deleted and waits for its dependants.
    Waiting,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Garbage {
    kinds: ServedKinds,
    /// By the UID of an owner.
    dependants: FxHashMap<String, FxHashSet<DependantItem>>,
}

impl Garbage {
    pub(super) fn new(api: &dyn Access) -> Self {
        Self {
            // Events outlive the objects that they refer to.
            kinds: ServedKinds::new(api, |k| k.resource.resource != EVENT.resource.resource),
            dependants: FxHashMap::default(),
        }
    }

    fn kind_of(&self, reference: &Value) -> Option<&KindInfo> {
        let api_version = reference["apiVersion"].as_str()?;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.kinds
            .iter()
            .find(|k| k.resource.group == group && reference["kind"] == k.kind)
    }

    fn dependants_of(
        &self,
        cx: &ControllerContext<DependantItem>,
        owner: &str,
    ) -> Vec<(DependantItem, StoredObject)> {
        let items = self.dependants.get(owner).into_iter().flatten();
        items
            .filter_map(|item| {
                let object = cx.cache_of(item.kind).get(&item.key)?;
                Some((item.clone(), object.clone()))
            })
            .collect()
    }

    /// The object of a reference, by its kind, namespace and name; its UID may differ.
    fn place(&self, reference: &Value, of: &Value) -> Option<DependantItem> {
        let info = self.kind_of(reference)?;
        let name = reference["name"].as_str()?;
        let namespace = match (info.namespaced, namespace(of)) {
            (false, _) => "",
            // A cluster-scoped object cannot have a namespaced owner.
            (true, "") => return None,
            (true, namespace) => namespace,
        };
        Some(DependantItem {
            kind: info.resource,
            key: ControllerKey::new(namespace, name),
        })
    }

    fn find_owner(
        &self,
        cx: &ControllerContext<DependantItem>,
        reference: &Value,
        of: &Value,
    ) -> Result<Owner, AccessError> {
        let Some(place) = self.place(reference, of) else {
            return Ok(Owner::Solid);
        };
        let wanted = reference["uid"].as_str().unwrap_or_default();
        let known = cx
            .cache_of(place.kind)
            .get(&place.key)
            .filter(|o| uid(o) == wanted)
            .cloned();
        let owner = match known {
            Some(owner) => owner,
            // The view of the kind may be late: only the API knows that an owner does not exist.
            None => match cx
                .api()
                .get(place.kind, &place.key.namespace, &place.key.name)
            {
                Ok(owner) if uid(&owner) == wanted => owner,
                Ok(_) => return Ok(Owner::Dangling),
                Err(error) if error.is_not_found() => return Ok(Owner::Dangling),
                Err(error) => return Err(error),
            },
        };
        let waits = is_deleting(&owner) && has_finalizer(&owner, FOREGROUND);
        Ok(if waits { Owner::Waiting } else { Owner::Solid })
    }

    /// Deletes an object if all its owners were deleted; otherwise removes its references to deleted owners.
    fn check_owners(
        &self,
        cx: &mut ControllerContext<DependantItem>,
        item: &DependantItem,
        object: &StoredObject,
    ) -> Result<(), AccessError> {
        let mut found = Vec::new();
        for reference in owner_references(object) {
            found.push((
                reference["uid"].as_str().unwrap_or_default().to_owned(),
                self.find_owner(cx, reference, object)?,
            ));
        }
        let has = |what: Owner| found.iter().any(|(_, owner)| *owner == what);
        if found.is_empty() || !(has(Owner::Dangling) || has(Owner::Waiting)) {
            return Ok(());
        }
        // One owner that remains keeps the object; only the references to the others are removed.
        if has(Owner::Solid) {
            let mut kept = (**object).clone();
            object::remove_owners(&mut kept, |uid| {
                found.iter().any(|(u, o)| u == uid && *o != Owner::Solid)
            });
            return unless_not_found(cx.update(item.kind, kept));
        }
        let has_dependants = !self.dependants_of(cx, uid(object)).is_empty();
        // A cycle of owners that wait for each other would block the deletion forever.
        let propagation = if has(Owner::Waiting) && has_dependants {
            self.break_circle(cx, object)?;
            Propagation::Foreground
        } else if has_finalizer(object, ORPHAN) {
            Propagation::Orphan
        } else if has_finalizer(object, FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        let options = DeleteOptions {
            propagation,
            ..DeleteOptions::default()
        };
        cx.delete_with(item.kind, object, options)
    }

    /// Objects that own each other and all wait for their dependants would wait forever: a dependant that is itself
    /// waiting no longer blocks.
    fn break_circle(
        &self,
        cx: &mut ControllerContext<DependantItem>,
        owner: &Value,
    ) -> Result<(), AccessError> {
        for (item, dependant) in self.dependants_of(cx, uid(owner)) {
            if !is_deleting(&dependant) || !has_finalizer(&dependant, FOREGROUND) {
                continue;
            }
            let mut references = owner_references(&dependant).to_vec();
            let mut changed = false;
            for reference in &mut references {
                if reference["uid"] == uid(owner) && reference["blockOwnerDeletion"] == true {
                    reference["blockOwnerDeletion"] = false.into();
                    changed = true;
                }
            }
            if changed {
                let mut unblocked = (*dependant).clone();
                set(
                    &mut unblocked,
                    &["metadata", "ownerReferences"],
                    references.into(),
                );
                unless_not_found(cx.update(item.kind, unblocked))?;
            }
        }
        Ok(())
    }

    /// Removes the owner references of an object's dependants, then the object.
    fn orphan(
        &self,
        cx: &mut ControllerContext<DependantItem>,
        item: &DependantItem,
        owner: &StoredObject,
    ) -> Result<(), AccessError> {
        for (dependant_item, dependant) in self.dependants_of(cx, uid(owner)) {
            let mut free = (*dependant).clone();
            if object::remove_owners(&mut free, |u| u == uid(owner)) {
                unless_not_found(cx.update(dependant_item.kind, free))?;
            }
        }
        finish(cx, item, owner, ORPHAN)
    }

    /// Deletes the dependants of an object that waits for them; removes its finalizer when none blocks it.
    fn wait_for_dependants(
        &self,
        cx: &mut ControllerContext<DependantItem>,
        item: &DependantItem,
        owner: &StoredObject,
    ) -> Result<(), AccessError> {
        let blocks = |dependant: &Value| {
            owner_references(dependant)
                .iter()
                .any(|r| r["uid"] == uid(owner) && r["blockOwnerDeletion"] == true)
        };
        let dependants = self.dependants_of(cx, uid(owner));
        if !dependants.iter().any(|(_, d)| blocks(d)) {
            return finish(cx, item, owner, FOREGROUND);
        }
        for (dependant_item, dependant) in dependants {
            if !is_deleting(&dependant) {
                cx.enqueue(dependant_item);
            }
        }
        Ok(())
    }
}

/// The UIDs of the owners of an object, with the references to them.
fn owners(object: &Option<StoredObject>) -> Vec<(&str, &Value)> {
    let references = object.as_ref().map_or(&[][..], |o| owner_references(o));
    fn with_uid(reference: &Value) -> Option<(&str, &Value)> {
        Some((reference["uid"].as_str()?, reference))
    }
    references.iter().filter_map(with_uid).collect()
}

fn finish(
    cx: &mut ControllerContext<DependantItem>,
    item: &DependantItem,
    object: &StoredObject,
    finalizer: &str,
) -> Result<(), AccessError> {
    let mut done = (**object).clone();
    remove_finalizer(&mut done, finalizer);
    unless_not_found(cx.update(item.kind, done))
}

impl Controller for Garbage {
    type Key = DependantItem;
    const NAME: &'static str = "garbage-collector-controller";

    fn watches(&self) -> Vec<Watch> {
        self.kinds
            .iter()
            .map(|k| Watch {
                kind: k.resource,
                indexes: &[],
            })
            .collect()
    }

    fn added(&mut self) -> Vec<Watch> {
        let added = self.kinds.take_added().into_iter();
        added.map(|kind| Watch { kind, indexes: &[] }).collect()
    }

    fn removed(&mut self) -> Vec<GroupResource> {
        self.kinds.take_removed()
    }

    fn observe(
        &mut self,
        cx: &mut ControllerContext<DependantItem>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        let Some(object) = diff.new.as_ref().or(diff.old.as_ref()) else {
            return;
        };
        let item = DependantItem {
            kind,
            key: ControllerKey::of(object),
        };
        if ServedKinds::concerns(kind, diff) {
            cx.enqueue_after(item.clone(), SERVED_AFTER);
        }
        let (before, after) = (owners(&diff.old), owners(&diff.new));
        for (owner, reference) in &before {
            if after.iter().any(|(o, r)| o == owner && r == reference) {
                continue;
            }
            if !after.iter().any(|(o, _)| o == owner)
                && let Some(dependants) = self.dependants.get_mut(*owner)
            {
                dependants.remove(&item);
                if dependants.is_empty() {
                    self.dependants.remove(*owner);
                }
            }
            // An owner that waits for its dependants may have one less.
            if let Some(place) = self.place(reference, object) {
                cx.enqueue(place);
            }
        }
        let is_filed = |owner: &str| before.iter().any(|(o, _)| *o == owner);
        for (owner, _) in after.iter().filter(|(owner, _)| !is_filed(owner)) {
            let dependants = self.dependants.entry((*owner).to_owned()).or_default();
            dependants.insert(item.clone());
        }
        let Some(new) = &diff.new else {
            for dependant in self.dependants.get(uid(object)).into_iter().flatten() {
                cx.enqueue(dependant.clone());
            }
            return;
        };
        let waits =
            is_deleting(new) && (has_finalizer(new, ORPHAN) || has_finalizer(new, FOREGROUND));
        if waits || (before != after && !after.is_empty()) {
            cx.enqueue(item);
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<DependantItem>,
        item: &DependantItem,
    ) -> Result<(), AccessError> {
        if item.kind == DEFINITIONS {
            _ = self.kinds.refresh(cx.api());
        }
        let Some(object) = cx.cache_of(item.kind).get(&item.key).cloned() else {
            return Ok(());
        };
        if !is_deleting(&object) {
            return self.check_owners(cx, item, &object);
        }
        if has_finalizer(&object, ORPHAN) {
            self.orphan(cx, item, &object)
        } else if has_finalizer(&object, FOREGROUND) {
            self.wait_for_dependants(cx, item, &object)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
