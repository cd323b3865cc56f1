//! The objects of a workload: the replica sets of a Deployment, the pods of other workloads. Matching objects without a
//! controller are adopted; owned objects that no longer match are released.
//!
//! Cost follows the change: objects without a controller are examined when they appear, and when a workload appears.

use super::runtime::{CacheDifference, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject, unless_not_found};
use berth_objects::object::{
    ControllerKey, ControllerKind, POD, controller_key, controller_of, controller_reference,
    is_deleting, labels, name, namespace, uid,
};
use berth_objects::selectors::workload::ControllerSelector;
use berth_objects::{object, pod};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use std::time::Duration;

/// A reconcile examines all pods of its workload. To limit this for many changes, it waits for further changes, in
/// proportion to the number of pods: about ten times its own duration …
const PAUSE_PER_POD: Duration = Duration::from_micros(100);
/// … and never longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The objects that the workloads of one kind own.
#[derive(Debug)]
pub(super) struct Ownership {
    kind: ControllerKind,
    /// The kind of the owned objects.
    owned: ControllerKind,
    /// The finalizer that objects have while they belong to a workload.
    finalizer: Option<&'static str>,
    /// Workloads (by UID) that have examined the objects that existed before them.
    introduced: FxHashSet<String>,
    /// Objects without a controller that a workload may adopt.
    candidates: FxHashMap<ControllerKey, FxHashSet<ControllerKey>>,
}

/// The selector of a workload: a map of labels in a ReplicationController, a label selector elsewhere.
pub(super) fn selector_of(kind: ControllerKind, workload: &Value) -> ControllerSelector {
    let selector = &workload["spec"]["selector"];
    if kind == object::REPLICATION_CONTROLLER {
        ControllerSelector::of_labels(selector)
    } else {
        ControllerSelector::parse(selector)
    }
}

impl Ownership {
    /// Workloads that own pods.
    pub(super) fn new(kind: ControllerKind) -> Self {
        Self::over(kind, POD)
    }

    /// Workloads that own objects of another kind.
    pub(super) fn over(kind: ControllerKind, owned: ControllerKind) -> Self {
        Self {
            kind,
            owned,
            finalizer: None,
            introduced: FxHashSet::default(),
            candidates: FxHashMap::default(),
        }
    }

    /// Workloads whose pods have a finalizer while they belong to the workload.
    pub(super) fn with_finalizer(kind: ControllerKind, finalizer: &'static str) -> Self {
        Self {
            finalizer: Some(finalizer),
            ..Self::new(kind)
        }
    }

    /// The kinds that a controller of these workloads watches.
    pub(super) fn watches(&self) -> Vec<Watch> {
        vec![
            watching(self.kind, &[Index::Controller, Index::Namespace]),
            watching(self.owned, &[Index::Controller, Index::Orphan]),
        ]
    }

    /// After a change of a workload or of an object that it may own: enqueues the affected workloads.
    pub(super) fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if kind == self.owned.resource {
            self.observe_owned(cx, diff);
        } else if kind == self.kind.resource
            && let Some(workload) = diff.new.as_ref().or(diff.old.as_ref())
        {
            let key = ControllerKey::of(workload);
            if diff.new.is_none() {
                self.introduced.remove(uid(workload));
                self.candidates.remove(&key);
            } else {
                cx.enqueue(key);
            }
        }
    }

    fn observe_owned(&mut self, cx: &mut ControllerContext<ControllerKey>, diff: &CacheDifference) {
        for object in [&diff.old, &diff.new].into_iter().flatten() {
            if let Some(key) = controller_key(self.kind, object) {
                let owner = object::controller_uid(object).unwrap_or_default();
                let count = cx.cache(self.owned).count_by(Index::Controller, owner);
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                let pause = PAUSE_PER_POD.saturating_mul(count).min(PAUSE_MAX);
                let is_short = pause < Duration::from_millis(1);
                cx.enqueue_after(key, if is_short { Duration::ZERO } else { pause });
            }
        }
        let Some(object) = &diff.new else { return };
        if !is_adoptable(object) {
            return;
        }
        // An update that changes neither labels nor owners cannot make it adoptable.
        if let Some(old) = &diff.old
            && labels(old) == labels(object)
            && controller_of(old).is_none()
        {
            return;
        }
        let adopters: Vec<ControllerKey> = cx
            .cache(self.kind)
            .by(Index::Namespace, namespace(object))
            .filter(|workload| selector_of(self.kind, workload).matches(labels(object)))
            .map(|workload| ControllerKey::of(workload))
            .collect();
        for key in adopters {
            let candidates = self.candidates.entry(key.clone()).or_default();
            candidates.insert(ControllerKey::of(object));
            cx.enqueue(key);
        }
    }

    /// Adopts and releases objects, and returns the owned objects.
    pub(super) fn claim(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
        workload: &StoredObject,
    ) -> Result<Vec<StoredObject>, AccessError> {
        if !is_deleting(workload) {
            let selector = selector_of(self.kind, workload);
            let owned = self.owned_by(cx, workload);
            // A finalizer must be removed from pods that have ended, too.
            let is_held = self.finalizer.is_some();
            for stray in owned.iter().filter(|o| is_held || pod::is_active(o)) {
                if !selector.matches(labels(stray)) {
                    let mut released = Value::clone(stray);
                    object::remove_owners(&mut released, |owner| owner == uid(workload));
                    if let Some(finalizer) = self.finalizer {
                        object::remove_finalizer(&mut released, finalizer);
                    }
                    unless_not_found(cx.update(self.owned, released))?;
                }
            }
            self.adopt_all(cx, key, workload, &selector)?;
        }
        Ok(self.owned_by(cx, workload))
    }

    fn owned_by(
        &self,
        cx: &ControllerContext<ControllerKey>,
        workload: &Value,
    ) -> Vec<StoredObject> {
        let owned = cx.cache(self.owned).by(Index::Controller, uid(workload));
        owned.cloned().collect()
    }

    fn adopt_all(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
        workload: &StoredObject,
        selector: &ControllerSelector,
    ) -> Result<(), AccessError> {
        let mut candidates = self.candidates.remove(key).unwrap_or_default();
        if self.introduced.insert(uid(workload).to_owned()) {
            let orphans = cx.cache(self.owned).by(Index::Orphan, namespace(workload));
            candidates.extend(orphans.map(|o| ControllerKey::of(o)));
        }
        let mut problem = Ok(());
        for candidate in candidates {
            if let Err(error) = self.adopt(cx, workload, selector, &candidate) {
                let candidates = self.candidates.entry(key.clone()).or_default();
                candidates.insert(candidate);
                problem = Err(error);
            }
        }
        problem
    }

    fn adopt(
        &self,
        cx: &mut ControllerContext<ControllerKey>,
        workload: &StoredObject,
        selector: &ControllerSelector,
        candidate: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(object) = cx.cache(self.owned).get(candidate) else {
            return Ok(());
        };
        if !is_adoptable(object) || !selector.matches(labels(object)) {
            return Ok(());
        }
        let mut adopted = Value::clone(object);
        // A workload that is being deleted or has been replaced must not adopt; the view may be late.
        let (namespace, name) = (namespace(workload), name(workload));
        let fresh = cx.api().get(self.kind.resource, namespace, name)?;
        if uid(&fresh) != uid(workload) || is_deleting(&fresh) {
            return Ok(());
        }
        object::add_owner(&mut adopted, controller_reference(self.kind, workload));
        unless_not_found(cx.update(self.owned, adopted))
    }
}

fn is_adoptable(object: &Value) -> bool {
    controller_of(object).is_none() && pod::is_active(object)
}

/// The pods that a workload controls.
pub(super) fn owned<'a>(
    cx: &'a ControllerContext<ControllerKey>,
    workload: &'a Value,
) -> impl Iterator<Item = StoredObject> + 'a {
    cx.cache(POD).by(Index::Controller, uid(workload)).cloned()
}
