//! The ReplicaSet controller: keeps as many pods of a template as asked for.
//!
//! Adopts pods that match the selector and have no controller, releases pods that no longer match. Cost follows
//! the change: a reconcile touches the pods of its own replica set; pods without a controller are looked at when
//! they appear and when a replica set appears.

mod ranking;
mod status;

use self::ranking::pods_to_delete;
use self::status::{Failed, summarize};
use super::object::{
    self, Key, Kind, POD, REPLICA_SET, controller_of, controller_reference, controller_uid, count,
    is_deleting, labels, name, namespace, uid,
};
use super::pod;
use super::runtime::{Context, Controller, Difference, EventType, Index, Watch, watching};
use super::selector::Selector;
use crate::access::{AccessError, DeleteOptions, GroupResource, Object};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};
use std::time::Duration;

/// How many pods one reconcile makes or deletes at most.
const BURST: usize = 500;
/// A reconcile looks at all pods of its replica set. So that it does not do so for each change of many pods, it
/// waits for further changes, the longer the more pods there are: about ten times as long as it takes …
const PAUSE_PER_POD: Duration = Duration::from_micros(100);
/// … and never longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Whether a write was refused because its namespace is going away, after which there is nothing to do.
pub(super) fn is_namespace_terminating(error: &AccessError) -> bool {
    error.code == 403 && error.message.contains("because it is being terminated")
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ReplicaSets {
    /// Replica sets (by UID) that have looked at the pods that were there before them.
    introduced: FxHashSet<String>,
    /// Pods without a controller that a replica set may adopt.
    candidates: FxHashMap<Key, FxHashSet<Key>>,
}

impl Controller for ReplicaSets {
    type Key = Key;

    fn name(&self) -> &'static str {
        "replicaset-controller"
    }

    fn watches(&self) -> Vec<Watch> {
        vec![
            watching(REPLICA_SET, &[Index::Controller, Index::Namespace]),
            watching(POD, &[Index::Controller, Index::Orphan]),
        ]
    }

    fn observe(&mut self, cx: &mut Context<Key>, kind: GroupResource, diff: &Difference) {
        if kind == POD.resource {
            self.observe_pod(cx, diff);
            return;
        }
        if let Some(set) = diff.new.as_ref().or(diff.old.as_ref()) {
            let key = Key::of(set);
            if diff.new.is_none() {
                self.introduced.remove(uid(set));
                self.candidates.remove(&key);
            } else {
                cx.enqueue(key);
            }
        }
    }

    fn reconcile(&mut self, cx: &mut Context<Key>, key: &Key) -> Result<(), AccessError> {
        let Some(set) = cx.cache(REPLICA_SET).get(key).cloned() else {
            return Ok(());
        };
        let selector = Selector::parse(&set["spec"]["selector"]);
        let mut pods: Vec<Object> = owned(cx, &set).collect();
        if self.claim(cx, key, &set, &selector, &pods)? {
            pods = owned(cx, &set).collect();
        }
        let mut failed = None;
        if !is_deleting(&set) {
            match manage(cx, &set, &pods) {
                Ok(false) => {}
                Ok(true) => pods = owned(cx, &set).collect(),
                Err(error) => {
                    pods = owned(cx, &set).collect();
                    failed = Some(error);
                }
            }
        }
        let problem = failed.as_ref().map(|(creating, error)| match creating {
            true => Failed::Create(error),
            false => Failed::Delete(error),
        });
        let summary = summarize(&set, &pods, problem, cx.now());
        if summary.status != set["status"] {
            let mut new = (*set).clone();
            new["status"] = summary.status;
            cx.update_status(REPLICA_SET, new)?;
        }
        if let Some(at) = summary.next_available {
            cx.enqueue_at(key.clone(), at);
        }
        match failed {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}

impl ReplicaSets {
    fn observe_pod(&mut self, cx: &mut Context<Key>, diff: &Difference) {
        for pod in [&diff.old, &diff.new].into_iter().flatten() {
            if let Some(owner) = controller_of(pod)
                && is_ours(owner)
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
            .cache(REPLICA_SET)
            .by(Index::Namespace, namespace(pod))
            .filter(|set| Selector::parse(&set["spec"]["selector"]).matches(labels(pod)))
            .map(|set| Key::of(set))
            .collect();
        for key in adopters {
            self.candidates
                .entry(key.clone())
                .or_default()
                .insert(Key::of(pod));
            cx.enqueue(key);
        }
    }

    /// Adopts and releases pods; whether there were any.
    fn claim(
        &mut self,
        cx: &mut Context<Key>,
        key: &Key,
        set: &Object,
        selector: &Selector,
        pods: &[Object],
    ) -> Result<bool, AccessError> {
        let mut changed = false;
        let strays = pods
            .iter()
            .filter(|p| pod::is_active(p) && !selector.matches(labels(p)));
        for pod in strays {
            let mut released = (**pod).clone();
            object::remove_owners(&mut released, |owner| owner == uid(set));
            ignore_not_found(cx.update(POD.resource, released))?;
            changed = true;
        }
        if is_deleting(set) {
            return Ok(changed);
        }
        let mut candidates = self.candidates.remove(key).unwrap_or_default();
        if self.introduced.insert(uid(set).to_owned()) {
            candidates.extend(
                cx.cache(POD)
                    .by(Index::Orphan, namespace(set))
                    .map(|p| Key::of(p)),
            );
        }
        let mut problem = None;
        for candidate in candidates {
            match adopt(cx, set, selector, &candidate) {
                Ok(adopted) => changed |= adopted,
                Err(error) => {
                    self.candidates
                        .entry(key.clone())
                        .or_default()
                        .insert(candidate);
                    problem = Some(error);
                }
            }
        }
        problem.map_or(Ok(changed), Err)
    }
}

fn ignore_not_found(result: Result<Object, AccessError>) -> Result<(), AccessError> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

fn is_ours(owner: &Value) -> bool {
    owner["kind"] == REPLICA_SET.kind && owner["apiVersion"] == REPLICA_SET.api_version
}

fn owned<'a>(cx: &'a Context<Key>, set: &'a Value) -> impl Iterator<Item = Object> + 'a {
    cx.cache(POD).by(Index::Controller, uid(set)).cloned()
}

fn adopt(
    cx: &mut Context<Key>,
    set: &Object,
    selector: &Selector,
    candidate: &Key,
) -> Result<bool, AccessError> {
    let Some(pod) = cx.cache(POD).get(candidate) else {
        return Ok(false);
    };
    if controller_of(pod).is_some() || !pod::is_active(pod) || !selector.matches(labels(pod)) {
        return Ok(false);
    }
    let mut adopted = (**pod).clone();
    // A replica set that is going away or has been replaced must not adopt; the view may be late to know.
    let fresh = cx
        .api()
        .get(REPLICA_SET.resource, namespace(set), name(set))?;
    if uid(&fresh) != uid(set) || is_deleting(&fresh) {
        return Ok(false);
    }
    object::add_owner(&mut adopted, controller_reference(REPLICA_SET, set));
    ignore_not_found(cx.update(POD.resource, adopted))?;
    Ok(true)
}

/// Makes or deletes pods until there are as many as wanted; whether that was needed. The error says whether it was
/// about creating.
fn manage(
    cx: &mut Context<Key>,
    set: &Object,
    pods: &[Object],
) -> Result<bool, (bool, AccessError)> {
    let wanted = usize::try_from(count(&set["spec"]["replicas"], 1)).unwrap_or_default();
    let active = pods.iter().filter(|p| pod::is_active(p));
    let there = active.clone().count();
    let burst = there.abs_diff(wanted).min(BURST);
    if there < wanted {
        create_pods(cx, set, burst).map_err(|error| (true, error))?;
    } else if there > wanted {
        let active = active.cloned().collect();
        delete_pods(cx, set, active, burst).map_err(|error| (false, error))?;
    }
    if there.abs_diff(wanted) > BURST {
        cx.enqueue(Key::of(set));
    }
    Ok(there != wanted)
}

/// Makes pods in batches that double, so that a namespace without quota is not asked in vain for each of them.
fn create_pods(cx: &mut Context<Key>, set: &Object, wanted: usize) -> Result<(), AccessError> {
    let template = pod_from_template(&set["spec"]["template"], REPLICA_SET, set);
    let mut left = wanted;
    let mut batch = 1;
    while left > 0 {
        let mut problem = None;
        for _ in 0..batch.min(left) {
            match cx.create(POD, template.clone()) {
                Ok(pod) => {
                    let message = format!("Created pod: {}", name(&pod));
                    cx.event(
                        REPLICA_SET,
                        set,
                        EventType::Normal,
                        "SuccessfulCreate",
                        message,
                    );
                }
                Err(error) if is_namespace_terminating(&error) => return Ok(()),
                Err(error) => {
                    let message = format!("Error creating: {error}");
                    cx.event(
                        REPLICA_SET,
                        set,
                        EventType::Warning,
                        "FailedCreate",
                        message,
                    );
                    problem = Some(error);
                }
            }
        }
        if let Some(error) = problem {
            return Err(error);
        }
        left -= batch.min(left);
        batch *= 2;
    }
    Ok(())
}

fn delete_pods(
    cx: &mut Context<Key>,
    set: &Object,
    active: Vec<Object>,
    surplus: usize,
) -> Result<(), AccessError> {
    let related: Vec<Object> = match controller_uid(set) {
        Some(owner) => cx
            .cache(REPLICA_SET)
            .by(Index::Controller, owner)
            .flat_map(|sibling| owned(cx, sibling))
            .collect(),
        None => active.clone(),
    };
    let mut problem = Ok(());
    for pod in pods_to_delete(active, &related, surplus, cx.now()) {
        match cx.delete(POD.resource, &pod, DeleteOptions::default()) {
            Ok(()) => {
                let message = format!("Deleted pod: {}", name(&pod));
                cx.event(
                    REPLICA_SET,
                    set,
                    EventType::Normal,
                    "SuccessfulDelete",
                    message,
                );
            }
            Err(error) => {
                let message = format!("Error deleting: {error}");
                cx.event(
                    REPLICA_SET,
                    set,
                    EventType::Warning,
                    "FailedDelete",
                    message,
                );
                problem = Err(error);
            }
        }
    }
    problem
}

/// The pod that a workload's template asks for, owned by the workload.
pub(super) fn pod_from_template(template: &Value, kind: Kind, owner: &Value) -> Value {
    let mut metadata = json!({
        "generateName": format!("{}-", name(owner)),
        "namespace": namespace(owner),
        "ownerReferences": [controller_reference(kind, owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    json!({
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": metadata,
        "spec": template["spec"],
    })
}

#[cfg(test)]
mod tests;
