//! One reconcile of a deployment: the deployment, its replica sets, and the step to take.

use super::revision::{self, annotate_new, note_revision, note_sizes};
use super::rolling::{Bounds, Size};
use super::scaling::{Share, proportional};
use super::status::{self, new_condition, set_condition};
use super::template::{self, HASH_LABEL};
use crate::runtime::{ControllerContext, Index};
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    ControllerKey, DEPLOYMENT, POD, REPLICA_SET, by_age, controller_reference, controller_uid,
    count, generation, is_deleting, name, namespace, next_count, set, uid,
};
use berth_objects::pod;
use serde_json::{Value, json};
use std::cmp::Reverse;

/// See the module.
#[derive(Debug)]
pub(super) struct Rollout {
    pub(super) deployment: StoredObject,
    /// The replica set of the present template.
    new: Option<StoredObject>,
    /// The others, oldest first.
    old: Vec<StoredObject>,
}

fn replicas(set: &Value) -> i32 {
    count(&set["spec"]["replicas"], 1)
}

fn size(set: &Value) -> Size {
    Size {
        replicas: replicas(set),
        available: count(&set["status"]["availableReplicas"], 0),
    }
}

impl Rollout {
    pub(super) fn new(deployment: StoredObject, mut sets: Vec<StoredObject>) -> Self {
        sets.sort_by(|a, b| by_age(a, b));
        // Of several with the same template, which only mishaps make, the oldest is taken always.
        let new = sets
            .iter()
            .position(|s| template::same(&s["spec"]["template"], &deployment["spec"]["template"]))
            .map(|i| sets.remove(i));
        Self {
            deployment,
            new,
            old: sets,
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds::of(&self.deployment)
    }

    fn all(&self) -> Vec<&StoredObject> {
        self.old.iter().chain(&self.new).collect()
    }

    /// Returns whether the desired number of pods has changed since the replica sets were last scaled.
    pub(super) fn is_being_scaled(&self) -> bool {
        let wanted = self.bounds().replicas;
        self.all()
            .iter()
            .filter(|s| replicas(s) > 0)
            .any(|s| revision::desired(s).is_some_and(|desired| desired != wanted))
    }

    /// A step of a paused deployment or of one that is being scaled: sizes, but no rolling.
    pub(super) fn sync(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
    ) -> Result<(), AccessError> {
        self.keep_new_current(cx)?;
        self.scale(cx)?;
        if self.deployment["spec"]["paused"] == true {
            self.clean_up(cx)?;
        }
        self.sync_status_only(cx)
    }

    /// A step of a rolling update: up first, then down.
    pub(super) fn roll(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
    ) -> Result<(), AccessError> {
        self.keep_new_current(cx)?;
        let Some(new) = self.make_new(cx)? else {
            return Ok(());
        };
        let total = self.all().iter().map(|s| replicas(s)).sum();
        let grown = self.bounds().grow(replicas(&new), total);
        if self.resize_new(cx, grown)? {
            return self.sync_status(cx);
        }
        let old: Vec<Size> = self.old.iter().map(|s| size(s)).collect();
        let shrunk = self.bounds().shrink(size(&new), &old);
        if self.resize_old(cx, &shrunk)? {
            return self.sync_status(cx);
        }
        if status::is_complete(&self.deployment, &self.deployment["status"]) {
            self.clean_up(cx)?;
        }
        self.sync_status(cx)
    }

    /// A step of a deployment that removes all its old pods before it starts new pods.
    pub(super) fn recreate(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
    ) -> Result<(), AccessError> {
        self.keep_new_current(cx)?;
        let none = vec![0; self.old.len()];
        if self.resize_old(cx, &none)? || self.old_pods_run(cx) {
            return self.sync_status(cx);
        }
        if self.make_new(cx)?.is_none() {
            return Ok(());
        }
        self.resize_new(cx, self.bounds().replicas)?;
        if status::is_complete(&self.deployment, &self.deployment["status"]) {
            self.clean_up(cx)?;
        }
        self.sync_status(cx)
    }

    fn old_pods_run(&self, cx: &ControllerContext<ControllerKey>) -> bool {
        self.old.iter().any(|set| {
            count(&set["status"]["replicas"], 0) > 0
                || cx
                    .cache(POD)
                    .by(Index::Controller, uid(set))
                    .any(|p| !pod::is_terminal(p))
        })
    }

    // === the new replica set ===

    fn next_revision(&self) -> i64 {
        let highest = self.old.iter().map(|s| revision::revision(s)).max();
        highest.unwrap_or_default().saturating_add(1)
    }

    /// Keeps the revision and the copied fields of the new replica set, if there is one, up to date.
    fn keep_new_current(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
    ) -> Result<(), AccessError> {
        let Some(current) = self.new.clone() else {
            return Ok(());
        };
        let mut wanted = (*current).clone();
        let mut changed = annotate_new(&mut wanted, &self.deployment, self.next_revision());
        let min_ready = &self.deployment["spec"]["minReadySeconds"];
        if count(min_ready, 0) != count(&wanted["spec"]["minReadySeconds"], 0) {
            set(
                &mut wanted,
                &["spec", "minReadySeconds"],
                count(min_ready, 0).into(),
            );
            changed = true;
        }
        if changed {
            // The revision of the deployment follows in the next step, which this write brings.
            self.new = Some(cx.update(REPLICA_SET, wanted)?);
        }
        let message = format!("Found new replica set {:?}", name(&current));
        self.note_new(cx, "FoundNewReplicaSet", &message, false)
    }

    /// Writes the revision, and the reason if the rollout has none yet (or `always`), into the deployment.
    fn note_new(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        reason: &str,
        message: &str,
        always: bool,
    ) -> Result<(), AccessError> {
        let Some(new) = &self.new else { return Ok(()) };
        let mut deployment = (*self.deployment).clone();
        if note_revision(&mut deployment, new) {
            self.deployment = cx.update(DEPLOYMENT, deployment)?;
        }
        let written = &self.deployment["status"];
        let is_missing = berth_objects::object::condition(written, status::PROGRESSING).is_none();
        if status::progress_deadline(&self.deployment).is_some() && (always || is_missing) {
            let condition = new_condition(status::PROGRESSING, "True", reason, message, cx.now());
            self.write_condition(cx, condition)?;
        }
        Ok(())
    }

    fn write_condition(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        condition: Value,
    ) -> Result<(), AccessError> {
        let mut status = self.deployment["status"].clone();
        set_condition(&mut status, condition);
        self.deployment = cx.write_status(DEPLOYMENT, &self.deployment, status)?;
        Ok(())
    }

    /// The new replica set, created if it does not exist. `None` if it cannot be created, as in a namespace that is
    /// being deleted.
    fn make_new(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
    ) -> Result<Option<StoredObject>, AccessError> {
        if let Some(new) = &self.new {
            return Ok(Some(new.clone()));
        }
        let wanted = self.new_set();
        let wanted_name = name(&wanted).to_owned();
        let (created, is_ours) = match cx.create(REPLICA_SET, wanted) {
            Ok(created) => (created, false),
            // A set with this name is either ours, from an attempt that was not recorded, or a hash collision.
            Err(error) if error.reason == "AlreadyExists" => {
                (self.taken(cx, &wanted_name, error)?, true)
            }
            Err(error) if error.is_namespace_terminating() => return Ok(None),
            Err(error) => {
                let message = format!("Failed to create new replica set {wanted_name:?}: {error}");
                if status::progress_deadline(&self.deployment).is_some() {
                    let reason = "ReplicaSetCreateError";
                    let now = cx.now();
                    let condition =
                        new_condition(status::PROGRESSING, "False", reason, &message, now);
                    // A set that was found had its event when it was made.
                    self.write_condition(cx, condition)?;
                }
                return Err(error);
            }
        };
        if !is_ours && replicas(&created) > 0 {
            self.report_scaled(cx, &created, 0, replicas(&created));
        }
        self.new = Some(created.clone());
        let message = format!("Created new replica set {wanted_name:?}");
        self.note_new(cx, "NewReplicaSetCreated", &message, !is_ours)?;
        Ok(Some(created))
    }

    fn new_set(&self) -> Value {
        let deployment = &self.deployment;
        let template = &deployment["spec"]["template"];
        let collisions = deployment["status"]["collisionCount"].as_i64();
        let hash = template::hash(template, collisions);
        let bounds = self.bounds();
        let total = self.old.iter().map(|s| replicas(s)).sum();
        let replicas = if super::rolling::is_recreate(deployment) {
            bounds.replicas
        } else {
            // A rolling update starts with the remaining surge only.
            bounds.grow(0, total)
        };
        let mut new = REPLICA_SET.object(json!({"metadata": {
                "name": format!("{}-{hash}", name(deployment)),
                "namespace": namespace(deployment),
                "labels": template["metadata"]["labels"],
                "ownerReferences": [controller_reference(DEPLOYMENT, deployment)],
            },
            "spec": {
                "replicas": replicas,
                "selector": deployment["spec"]["selector"],
                "template": template,
            },
        }));
        let hash = Value::String(hash);
        for path in [
            &["metadata", "labels", HASH_LABEL][..],
            &["spec", "selector", "matchLabels", HASH_LABEL],
            &["spec", "template", "metadata", "labels", HASH_LABEL],
        ] {
            set(&mut new, path, hash.clone());
        }
        let min_ready = count(&deployment["spec"]["minReadySeconds"], 0);
        if min_ready > 0 {
            set(&mut new, &["spec", "minReadySeconds"], min_ready.into());
        }
        annotate_new(&mut new, deployment, self.next_revision());
        note_sizes(&mut new, bounds);
        new
    }

    /// The existing replica set of that name, if it is the desired one. Otherwise another hash is necessary.
    fn taken(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        name: &str,
        error: AccessError,
    ) -> Result<StoredObject, AccessError> {
        let found = cx
            .api()
            .get(REPLICA_SET.resource, namespace(&self.deployment), name)?;
        let template = &self.deployment["spec"]["template"];
        if controller_uid(&found) == Some(uid(&self.deployment))
            && template::same(&found["spec"]["template"], template)
        {
            return Ok(found);
        }
        let mut deployment = (*self.deployment).clone();
        let collisions = deployment["status"]["collisionCount"].as_i64();
        let collisions = next_count(collisions.unwrap_or_default());
        set(
            &mut deployment,
            &["status", "collisionCount"],
            collisions.into(),
        );
        self.deployment = cx.update_status(DEPLOYMENT, deployment)?;
        Err(error)
    }

    // === sizes ===

    fn resize_new(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        size: i32,
    ) -> Result<bool, AccessError> {
        let Some(new) = self.new.clone() else {
            return Ok(false);
        };
        if replicas(&new) == size {
            return Ok(false);
        }
        self.new = Some(self.resize(cx, &new, size)?);
        Ok(true)
    }

    /// Scales the old replica sets to these sizes; returns whether a size changed.
    fn resize_old(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        sizes: &[i32],
    ) -> Result<bool, AccessError> {
        let mut changed = false;
        for (i, size) in sizes.iter().enumerate().take(self.old.len()) {
            let set = self.old[i].clone();
            if replicas(&set) != *size {
                self.old[i] = self.resize(cx, &set, *size)?;
                changed = true;
            }
        }
        Ok(changed)
    }

    /// Scales a replica set, and records the desired number of replicas of the deployment.
    fn resize(
        &self,
        cx: &mut ControllerContext<ControllerKey>,
        current: &StoredObject,
        size: i32,
    ) -> Result<StoredObject, AccessError> {
        let before = replicas(current);
        let mut wanted = (**current).clone();
        if !note_sizes(&mut wanted, self.bounds()) && before == size {
            return Ok(current.clone());
        }
        set(&mut wanted, &["spec", "replicas"], size.into());
        let resized = cx.update(REPLICA_SET, wanted)?;
        if before != size {
            self.report_scaled(cx, &resized, before, size);
        }
        Ok(resized)
    }

    fn report_scaled(
        &self,
        cx: &mut ControllerContext<ControllerKey>,
        set: &Value,
        from: i32,
        to: i32,
    ) {
        let direction = if from < to { "up" } else { "down" };
        let message = format!(
            "Scaled {direction} replica set {} from {from} to {to}",
            name(set)
        );
        cx.normal(&self.deployment, "ScalingReplicaSet", message);
    }

    /// Follows a change of the desired number of pods.
    fn scale(&mut self, cx: &mut ControllerContext<ControllerKey>) -> Result<(), AccessError> {
        let bounds = self.bounds();
        let active = self.all().iter().filter(|s| replicas(s) > 0).count();
        if active <= 1 {
            let index = self.old.iter().position(|s| replicas(s) > 0);
            match index {
                Some(i) => self.old[i] = self.resize(cx, &self.old[i].clone(), bounds.replicas)?,
                None if self.new.is_some() => {
                    if let Some(new) = self.new.clone() {
                        self.new = Some(self.resize(cx, &new, bounds.replicas)?);
                    }
                }
                None => {
                    if let Some(newest) = self.old.last().cloned() {
                        let resized = self.resize(cx, &newest, bounds.replicas)?;
                        self.old.pop();
                        self.old.push(resized);
                    }
                }
            }
            return Ok(());
        }
        if self.new.as_ref().is_some_and(|s| is_saturated(s, bounds)) {
            let none = vec![0; self.old.len()];
            self.resize_old(cx, &none)?;
            return Ok(());
        }
        if super::rolling::is_recreate(&self.deployment) {
            return Ok(());
        }
        let mut sets: Vec<StoredObject> = self
            .all()
            .into_iter()
            .filter(|s| replicas(s) > 0)
            .cloned()
            .collect();
        sets.sort_by(|a, b| by_age(b, a));
        let shares: Vec<Share> = sets
            .iter()
            .map(|s| Share {
                replicas: replicas(s),
                pods_max: revision::pods_max(s),
            })
            .collect();
        let pods = count(&self.deployment["status"]["replicas"], 0);
        for (set, size) in sets.iter().zip(proportional(bounds, &shares, pods)) {
            let resized = self.resize(cx, set, size)?;
            let slot = self.old.iter_mut().chain(&mut self.new);
            for slot in slot.filter(|s| uid(s) == uid(set)) {
                *slot = resized.clone();
            }
        }
        Ok(())
    }

    // === history and status ===

    /// Deletes the oldest replica sets without pods that the history limit leaves no place for.
    fn clean_up(&mut self, cx: &mut ControllerContext<ControllerKey>) -> Result<(), AccessError> {
        let limit = match self.deployment["spec"]["revisionHistoryLimit"].as_i64() {
            None => return Ok(()),
            Some(limit) if limit == i64::from(i32::MAX) => return Ok(()),
            Some(limit) => usize::try_from(limit).unwrap_or_default(),
        };
        let mut candidates: Vec<StoredObject> = self
            .old
            .iter()
            .filter(|s| !is_deleting(s))
            .cloned()
            .collect();
        candidates.sort_by_key(|s| Reverse(revision::revision(s)));
        for set in candidates.into_iter().skip(limit).rev() {
            let observed = set["status"]["observedGeneration"].as_i64();
            let is_idle = replicas(&set) == 0
                && count(&set["status"]["replicas"], 0) == 0
                && observed.unwrap_or_default() >= generation(&set);
            if is_idle {
                cx.delete(REPLICA_SET, &set)?;
            }
        }
        Ok(())
    }

    /// Brings the counts up to date, and keeps the condition Progressing.
    pub(super) fn sync_status_only(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
    ) -> Result<(), AccessError> {
        let status = self.counts(cx);
        self.write_status(cx, status)
    }

    /// Brings counts and progress up to date, and sees to it that a deadline is noticed.
    fn sync_status(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
    ) -> Result<(), AccessError> {
        let mut status = self.counts(cx);
        status::progress(
            &self.deployment,
            &mut status,
            &self.all(),
            self.new.as_ref(),
            cx.now(),
        );
        if let Some(at) = status::check_again_at(&self.deployment, &status) {
            cx.enqueue_at(ControllerKey::of(&self.deployment), at);
        }
        self.write_status(cx, status)
    }

    fn counts(&self, cx: &ControllerContext<ControllerKey>) -> Value {
        status::counts(
            &self.deployment,
            &self.all(),
            self.new.as_ref(),
            self.bounds(),
            cx.now(),
        )
    }

    fn write_status(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        status: Value,
    ) -> Result<(), AccessError> {
        self.deployment = cx.write_status(DEPLOYMENT, &self.deployment, status)?;
        Ok(())
    }
}

fn is_saturated(set: &Value, bounds: Bounds) -> bool {
    replicas(set) == bounds.replicas
        && revision::desired(set) == Some(bounds.replicas)
        && count(&set["status"]["availableReplicas"], 0) == bounds.replicas
}
