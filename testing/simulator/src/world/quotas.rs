//! Deferred quotas: the actions of users, and the writes of schedulers.

use super::{Refusal, World};
use crate::shapes::{QuotaShape, quota_name, quota_namespace};
use berth_api::{CustomObject, Object, Str};
use berth_framework::write::{Action, Write};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

impl World {
    /// Creates a quota, or changes its spec.
    pub fn set_quota(&mut self, number: usize, shape: &QuotaShape) {
        let mut quota = shape.build(number);
        let (namespace, name) = (quota_namespace(number), quota_name(number));
        match self.others().quota(namespace, &name) {
            Some(known) if known.value["spec"] == quota.value["spec"] => return,
            Some(known) => {
                quota.metadata = known.metadata.clone();
                quota.value["status"] = known.value["status"].clone();
                quota.metadata.generation = quota.metadata.generation.map(|g| g + 1);
                self.store.change(&mut quota.metadata);
            }
            None => {
                quota.metadata.generation = Some(1);
                self.store.create(&mut quota.metadata);
            }
        }
        self.store.put(Object::Custom(Arc::new(quota)));
    }

    /// Deletes a quota.
    pub fn delete_quota(&mut self, number: usize) {
        let known = self
            .others()
            .quota(quota_namespace(number), &quota_name(number));
        if let Some(quota) = known.cloned() {
            self.store.remove(Object::Custom(quota));
        }
    }

    /// A scheduler writes the status of a quota with a merge patch.
    ///
    /// # Errors
    /// When the quota was deleted or replaced.
    pub fn write_quota(&mut self, write: &Write) -> Result<(), Refusal> {
        let object = write.object();
        let known = self.others().quota(&object.namespace, &object.name);
        let known = known.ok_or(Refusal::NotFound)?;
        if *write.uid() != known.metadata.uid {
            return Err(Refusal::Conflict);
        }
        let Action::Patch(patch) = write.action() else {
            return Err(Refusal::Conflict);
        };
        let mut quota = CustomObject::clone(known);
        merge(&mut quota.value["status"], &patch["status"]);
        if quota.value != known.value {
            self.store.change(&mut quota.metadata);
            self.store.put(Object::Custom(Arc::new(quota)));
        }
        Ok(())
    }

    /// Sets the pods that wait for quotas.
    pub(crate) fn set_quota_waits(&mut self, waits: BTreeSet<Str>) {
        self.store.set_quota_waits(waits);
    }
}

/// Applies a merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    for (field, value) in fields {
        match (value, target.as_object_mut()) {
            (Value::Null, Some(target)) => drop(target.remove(field)),
            (value, Some(target)) => merge(target.entry(field).or_insert(Value::Null), value),
            (_, None) => {}
        }
    }
}
