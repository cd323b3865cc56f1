//! ResourceQuotas: the admission of new pods.

use super::strict::hint;
use super::{Added, DELETE, merge, name_of, namespace_of};
use crate::InputError;
use crate::json::ClusterJson;
use berth_api::{Kind, Time};
use berth_explain::what_if::PendingPod;
use berth_objects::quota::PodQuota;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// Quotas by namespace and name.
pub(crate) type Quotas = BTreeMap<(String, String), Value>;

/// Returns whether an object is a ResourceQuota.
pub(crate) fn is_one(object: &Value) -> bool {
    object["apiVersion"] == "v1" && object["kind"] == "ResourceQuota"
}

/// Adds, changes or deletes a quota.
///
/// # Errors
/// When it has no name, or a quota that does not exist is deleted.
pub(crate) fn change(quotas: &mut Quotas, place: &str, object: Value) -> Result<(), InputError> {
    let wrong = |what: &str| InputError::object(place, format!("ResourceQuota: {what}"));
    let name = name_of(&object).ok_or_else(|| wrong("metadata.name is missing"))?;
    let key = (namespace_of(&object), name);
    if object["metadata"]["annotations"][DELETE] == "delete" {
        return match quotas.remove(&key) {
            Some(_) => Ok(()),
            None => {
                let known = quotas.keys().filter(|known| known.0 == key.0);
                let hint = hint(&key.1, known.map(|known| known.1.as_str()));
                let text = format!("there is no {}/{} to delete{hint}", key.0, key.1);
                Err(wrong(&text))
            }
        };
    }
    let namespace = key.0.clone();
    let quota = quotas.entry(key).or_default();
    merge(quota, object);
    quota["metadata"]["namespace"] = namespace.into();
    Ok(())
}

/// Removes the new pods that the quotas do not admit, in the order of their addition; returns them.
pub(crate) fn admit(
    raw: &mut ClusterJson,
    quotas: &Quotas,
    added: &Added,
    now: Time,
) -> Vec<PendingPod> {
    let now = Timestamp::from_nanosecond(now.as_nanos().into()).unwrap_or_default();
    let counting = quotas
        .values()
        .filter_map(|quota| PodQuota::new(quota, now));
    let mut counting: Vec<PodQuota> = counting.collect();
    if counting.is_empty() || added.pods.is_empty() {
        return Vec::new();
    }
    let is_new: std::collections::BTreeSet<_> = added.pods.iter().collect();
    for (key, pod) in raw.iter().filter(|(key, _)| key.0 == Kind::Pod) {
        let quotas = counting.iter_mut().filter(|q| q.namespace() == key.1);
        if !is_new.contains(key) {
            quotas.for_each(|quota| quota.count(pod));
        }
    }
    let mut refused = Vec::new();
    for key in &added.pods {
        let Some(pod) = raw.get(key) else {
            continue;
        };
        // All quotas count the pod, or none does.
        let mut after = counting.clone();
        let mut quotas = after.iter_mut().filter(|q| q.namespace() == key.1);
        match quotas.try_for_each(|quota| quota.admit(pod)) {
            Ok(()) => counting = after,
            Err(reason) => {
                raw.remove(key);
                refused.push(PendingPod {
                    pod: format!("{}/{}", key.1, key.2),
                    reason,
                });
            }
        }
    }
    refused
}
