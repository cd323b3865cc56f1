//! PriorityClasses: the priority of new pods, as admission sets it.

use super::strict::hint;
use super::{Added, DELETE, merge, name_of};
use crate::InputError;
use crate::json::{ClusterJson, shown};
use serde_json::Value;
use std::collections::BTreeMap;

/// The classes that every cluster has.
const OF_THE_SYSTEM: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

/// Returns whether an object is a PriorityClass.
pub(crate) fn is_one(object: &Value) -> bool {
    object["apiVersion"] == "scheduling.k8s.io/v1" && object["kind"] == "PriorityClass"
}

/// PriorityClasses by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Priorities(BTreeMap<String, Value>);

impl Priorities {
    /// Adds, changes or deletes a class.
    ///
    /// # Errors
    /// When it has no name, or a class that does not exist is deleted.
    pub(crate) fn change(&mut self, place: &str, object: Value) -> Result<(), InputError> {
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

    /// Sets the priority of new pods that do not state it.
    ///
    /// # Errors
    /// When a pod names a class that does not exist.
    pub(crate) fn resolve(&self, raw: &mut ClusterJson, added: &Added) -> Result<(), InputError> {
        for key in &added.pods {
            let Some(pod) = raw.get_mut(key) else {
                continue;
            };
            // The priority that a pod states counts.
            if pod["spec"].is_null() || !pod["spec"]["priority"].is_null() {
                continue;
            }
            let name = pod["spec"]["priorityClassName"]
                .as_str()
                .unwrap_or_default();
            let class = match name {
                "" => self.0.values().find(|class| class["globalDefault"] == true),
                name => self.0.get(name),
            };
            let of_system = OF_THE_SYSTEM.iter().find(|(known, _)| *known == name);
            let priority = match (class, of_system) {
                (Some(class), _) => class["value"].as_i64().unwrap_or_default(),
                (None, Some((_, value))) => *value,
                // Without a class and a default, the priority is zero.
                (None, None) if name.is_empty() => continue,
                (None, None) => {
                    let known = self.0.keys().map(String::as_str);
                    return Err(InputError::object(
                        &format!("Pod {}", shown(key)),
                        format!(
                            "no PriorityClass with name {name} was found{}",
                            hint(name, known)
                        ),
                    ));
                }
            };
            let policy = class.map(|class| class["preemptionPolicy"].clone());
            pod["spec"]["priority"] = priority.into();
            if let Some(policy) = policy.filter(|policy| !policy.is_null())
                && pod["spec"]["preemptionPolicy"].is_null()
            {
                pod["spec"]["preemptionPolicy"] = policy;
            }
        }
        Ok(())
    }
}
