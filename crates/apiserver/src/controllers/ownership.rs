//! Which pods belong to a workload: pods that match its selector and have no controller are adopted, pods that no
//! longer match are released. Shared by the controllers of all workloads.
//!
//! Cost follows the change: pods without a controller are examined when they appear, and when a workload appears.

use super::object::{
    self, Key, Kind, POD, controller_of, controller_reference, is_deleting, labels, name,
    namespace, uid,
};
use super::pod;
use super::runtime::{Context, Difference, Index, Watch, watching};
use super::selector::Selector;
use crate::access::{AccessError, Object};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use std::time::Duration;

/// A reconcile examines all pods of its workload. So that it does not do so for each change of many pods, it waits for
/// further changes, the longer the more pods there are: about ten times as long as it takes …
const PAUSE_PER_POD: Duration = Duration::from_micros(100);
/// … and never longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pods of the workloads of one kind.
#[derive(Debug)]
pub(super) struct Ownership {
    kind: Kind,
    /// Workloads (by UID) that have examined the pods that existed before them.
    introduced: FxHashSet<String>,
    /// Pods without a controller that a workload may adopt.
    candidates: FxHashMap<Key, FxHashSet<Key>>,
}

/// The selector of a workload: a map of labels in a ReplicationController, a label selector elsewhere.
pub(super) fn selector_of(kind: Kind, workload: &Value) -> Selector {
    let selector = &workload["spec"]["selector"];
    if kind == object::REPLICATION_CONTROLLER {
        Selector::of_labels(selector)
    } else {
        Selector::parse(selector)
    }
}

impl Ownership {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            introduced: FxHashSet::default(),
            candidates: FxHashMap::default(),
        }
    }

    /// What a controller of these workloads watches.
    pub(super) fn watches(&self) -> Vec<Watch> {
        vec![
            watching(self.kind, &[Index::Controller, Index::Namespace]),
            watching(POD, &[Index::Controller, Index::Orphan]),
        ]
    }

    /// A workload or a pod has changed: the workloads that this concerns are enqueued.
    pub(super) fn observe(
        &mut self,
        cx: &mut Context<Key>,
        kind: crate::access::GroupResource,
        diff: &Difference,
    ) {
        if kind == POD.resource {
            self.observe_pod(cx, diff);
        } else if kind == self.kind.resource
            && let Some(workload) = diff.new.as_ref().or(diff.old.as_ref())
        {
            let key = Key::of(workload);
            if diff.new.is_none() {
                self.introduced.remove(uid(workload));
                self.candidates.remove(&key);
            } else {
                cx.enqueue(key);
            }
        }
    }

    fn observe_pod(&mut self, cx: &mut Context<Key>, diff: &Difference) {
        for pod in [&diff.old, &diff.new].into_iter().flatten() {
            if let Some(owner) = controller_of(pod)
                && owner["kind"] == self.kind.kind
                && owner["apiVersion"] == self.kind.api_version
            {
                let key = Key::new(namespace(pod), owner["name"].as_str().unwrap_or(""));
                let owner = owner["uid"].as_str().unwrap_or_default();
                let pods = cx.cache(POD).count_by(Index::Controller, owner);
                let pods = u32::try_from(pods).unwrap_or(u32::MAX);
                let pause = PAUSE_PER_POD.saturating_mul(pods).min(PAUSE_MAX);
                let is_short = pause < Duration::from_millis(1);
                cx.enqueue_after(key, if is_short { Duration::ZERO } else { pause });
            }
        }
        let Some(pod) = &diff.new else { return };
        if controller_of(pod).is_some() || !pod::is_active(pod) {
            return;
        }
        // An update that changes neither labels nor owners cannot make it adoptable.
        if let Some(old) = &diff.old
            && labels(old) == labels(pod)
            && controller_of(old).is_none()
        {
            return;
        }
        let adopters: Vec<Key> = cx
            .cache(self.kind)
            .by(Index::Namespace, namespace(pod))
            .filter(|workload| selector_of(self.kind, workload).matches(labels(pod)))
            .map(|workload| Key::of(workload))
            .collect();
        for key in adopters {
            self.candidates
                .entry(key.clone())
                .or_default()
                .insert(Key::of(pod));
            cx.enqueue(key);
        }
    }

    /// Adopts and releases pods, and returns those that the workload has then.
    pub(super) fn claim(
        &mut self,
        cx: &mut Context<Key>,
        key: &Key,
        workload: &Object,
    ) -> Result<Vec<Object>, AccessError> {
        let selector = selector_of(self.kind, workload);
        let strays: Vec<Object> = owned(cx, workload)
            .filter(|p| pod::is_active(p) && !selector.matches(labels(p)))
            .collect();
        for pod in strays {
            let mut released = (*pod).clone();
            object::remove_owners(&mut released, |owner| owner == uid(workload));
            ignore_not_found(cx.update(POD.resource, released))?;
        }
        if !is_deleting(workload) {
            self.adopt_all(cx, key, workload, &selector)?;
        }
        Ok(owned(cx, workload).collect())
    }

    fn adopt_all(
        &mut self,
        cx: &mut Context<Key>,
        key: &Key,
        workload: &Object,
        selector: &Selector,
    ) -> Result<(), AccessError> {
        let mut candidates = self.candidates.remove(key).unwrap_or_default();
        if self.introduced.insert(uid(workload).to_owned()) {
            candidates.extend(
                cx.cache(POD)
                    .by(Index::Orphan, namespace(workload))
                    .map(|p| Key::of(p)),
            );
        }
        let mut problem = Ok(());
        for candidate in candidates {
            if let Err(error) = self.adopt(cx, workload, selector, &candidate) {
                self.candidates
                    .entry(key.clone())
                    .or_default()
                    .insert(candidate);
                problem = Err(error);
            }
        }
        problem
    }

    fn adopt(
        &self,
        cx: &mut Context<Key>,
        workload: &Object,
        selector: &Selector,
        candidate: &Key,
    ) -> Result<(), AccessError> {
        let Some(pod) = cx.cache(POD).get(candidate) else {
            return Ok(());
        };
        if controller_of(pod).is_some() || !pod::is_active(pod) || !selector.matches(labels(pod)) {
            return Ok(());
        }
        let mut adopted = (**pod).clone();
        // A workload that is being deleted or has been replaced must not adopt; the view may be late.
        let fresh = cx
            .api()
            .get(self.kind.resource, namespace(workload), name(workload))?;
        if uid(&fresh) != uid(workload) || is_deleting(&fresh) {
            return Ok(());
        }
        object::add_owner(&mut adopted, controller_reference(self.kind, workload));
        ignore_not_found(cx.update(POD.resource, adopted))
    }
}

/// The pods of which a workload is the controller.
pub(super) fn owned<'a>(
    cx: &'a Context<Key>,
    workload: &'a Value,
) -> impl Iterator<Item = Object> + 'a {
    cx.cache(POD).by(Index::Controller, uid(workload)).cloned()
}

fn ignore_not_found(result: Result<Object, AccessError>) -> Result<(), AccessError> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
