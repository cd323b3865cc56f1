//! PriorityClasses: the priority of new pods and groups, as admission sets it.

use super::strict::hint;
use super::{Added, DELETE, merge, name_of};
use crate::InputError;
use crate::json::{ClusterJson, shown_with_kind};
use serde_json::Value;
use std::collections::BTreeMap;

/// The built-in classes of every cluster.
const OF_THE_SYSTEM: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

/// Returns whether an object is a PriorityClass.
pub fn is_priority_class(object: &Value) -> bool {
    object["apiVersion"] == "scheduling.k8s.io/v1" && object["kind"] == "PriorityClass"
}

/// PriorityClasses by name.
#[derive(Debug, Clone, Default)]
pub struct PriorityClasses(BTreeMap<String, Value>);

/// The values that a pod gets from its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassPriority<'c> {
    /// The priority.
    pub value: i64,
    /// The preemption policy, if the class states one.
    pub preemption_policy: Option<&'c str>,
}

impl PriorityClasses {
    /// Adds, changes or deletes a class.
    ///
    /// # Errors
    /// When it has no name, or a class that does not exist is deleted.
    pub fn change(&mut self, place: &str, object: Value) -> Result<(), InputError> {
        let wrong = |what: String| InputError::object(place, format!("PriorityClass: {what}"));
        let name = name_of(&object).ok_or_else(|| wrong("metadata.name is missing".to_owned()))?;
        if object["metadata"]["annotations"][DELETE] == "delete" {
            if self.0.remove(&name).is_none() {
                let hint = hint(&name, self.0.keys().map(String::as_str));
                return Err(wrong(format!("there is no {name} to delete{hint}")));
            }
            return Ok(());
        }
        merge(self.0.entry(name).or_default(), object);
        Ok(())
    }

    /// The values for a pod that names this class, or the default class for an empty name; `None` for a pod without a class
    /// in a cluster without a default.
    ///
    /// # Errors
    /// The message of the API server, when the class does not exist.
    pub fn find(&self, name: &str) -> Result<Option<ClassPriority<'_>>, String> {
        let class = match name {
            "" => self.0.values().find(|class| class["globalDefault"] == true),
            name => self.0.get(name),
        };
        if let Some(class) = class {
            return Ok(Some(ClassPriority {
                value: class["value"].as_i64().unwrap_or_default(),
                preemption_policy: class["preemptionPolicy"].as_str(),
            }));
        }
        let mut of_system = OF_THE_SYSTEM.iter();
        match of_system.find(|(known, _)| *known == name) {
            Some((_, value)) => Ok(Some(ClassPriority {
                value: *value,
                preemption_policy: None,
            })),
            // Without a class and a default, the priority is zero.
            None if name.is_empty() => Ok(None),
            None => {
                let hint = hint(name, self.0.keys().map(String::as_str));
                Err(format!("no PriorityClass with name {name} was found{hint}"))
            }
        }
    }

    /// Sets the priority of new pods and groups that do not state it.
    ///
    /// # Errors
    /// When one of them names a class that does not exist.
    pub(crate) fn resolve(&self, raw: &mut ClusterJson, added: &Added) -> Result<(), InputError> {
        for key in added.pods.iter().chain(&added.groups) {
            let Some(object) = raw.get_mut(key) else {
                continue;
            };
            // A stated priority takes precedence.
            if object["spec"].is_null() || !object["spec"]["priority"].is_null() {
                continue;
            }
            let name = object["spec"]["priorityClassName"]
                .as_str()
                .unwrap_or_default();
            let found = self.find(name);
            let found = found.map_err(|e| InputError::object(&shown_with_kind(key), e))?;
            let Some(class) = found else {
                continue;
            };
            object["spec"]["priority"] = class.value.into();
            if let Some(policy) = class.preemption_policy
                && object["spec"]["preemptionPolicy"].is_null()
            {
                object["spec"]["preemptionPolicy"] = policy.into();
            }
        }
        Ok(())
    }
}
