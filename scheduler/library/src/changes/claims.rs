//! Resource claims of new pods, which a controller creates from ResourceClaimTemplates.

use super::strict::hint;
use super::{Added, DELETE, merge, name_of, namespace_of};
use crate::InputError;
use crate::json::{ClusterJson, set_defaults};
use berth_api::{Kind, Object, ResourceClaim};
use berth_objects::object::decoded;
use serde::de::Error;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The API versions whose templates are read. The claims have the same fields in both.
const VERSIONS: [&str; 2] = ["resource.k8s.io/v1", "resource.k8s.io/v1beta2"];

/// Returns whether an object is a ResourceClaimTemplate.
pub(crate) fn is_one(object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    object["kind"] == "ResourceClaimTemplate" && VERSIONS.contains(&version)
}

/// ResourceClaimTemplates by namespace and name.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimTemplates(BTreeMap<(String, String), Value>);

/// A claim that a pod needs.
pub(crate) struct NewClaim {
    /// The entry of `spec.resourceClaims`.
    entry: String,
    claim: Value,
}

impl ClaimTemplates {
    /// Adds, changes or deletes a template.
    ///
    /// # Errors
    /// When it has no name, or a template that does not exist is deleted.
    pub(crate) fn change(&mut self, place: &str, object: Value) -> Result<(), InputError> {
        let wrong =
            |what: String| InputError::object(place, format!("ResourceClaimTemplate: {what}"));
        let name = name_of(&object).ok_or_else(|| wrong("metadata.name is missing".to_owned()))?;
        let key = (namespace_of(&object), name);
        if object["metadata"]["annotations"][DELETE] == "delete" {
            if self.0.remove(&key).is_none() {
                let (namespace, name) = &key;
                let others = self.0.keys().filter(|(other, _)| other == namespace);
                let hint = hint(name, others.map(|(_, name)| name.as_str()));
                return Err(wrong(format!("there is no {name} to delete{hint}")));
            }
            return Ok(());
        }
        let template = self.0.entry(key).or_default();
        merge(template, object);
        set_defaults(template);
        Ok(())
    }

    /// The missing claims of a pod with a UID. Unknown templates are added to `missing`.
    pub(crate) fn claims_of(
        &self,
        pod: &Value,
        missing: &mut BTreeSet<(String, String)>,
    ) -> Vec<NewClaim> {
        let namespace = namespace_of(pod);
        let pod_name = name_of(pod).unwrap_or_default();
        let made = pod["status"]["resourceClaimStatuses"].as_array();
        let has = |entry: &Value| made.into_iter().flatten().any(|of| of["name"] == *entry);
        let entries = pod["spec"]["resourceClaims"].as_array();
        let mut claims = Vec::new();
        for entry in entries.into_iter().flatten() {
            let Some(template) = entry["resourceClaimTemplateName"].as_str() else {
                continue;
            };
            // The pod has this claim already.
            if has(&entry["name"]) {
                continue;
            }
            let key = (namespace.clone(), template.to_owned());
            let Some(template) = self.0.get(&key) else {
                missing.insert(key);
                continue;
            };
            let entry = entry["name"].as_str().unwrap_or_default().to_owned();
            let name = format!("{pod_name}-{entry}-what-if");
            claims.push(NewClaim {
                claim: json!({
                    "apiVersion": VERSIONS[0],
                    "kind": "ResourceClaim",
                    "metadata": {
                        "name": name,
                        "namespace": namespace,
                        "uid": format!("what-if-claim-{namespace}-{name}"),
                        "ownerReferences": [{
                            "apiVersion": "v1", "kind": "Pod", "name": pod_name,
                            "uid": pod["metadata"]["uid"], "controller": true,
                        }],
                    },
                    "spec": template["spec"]["spec"],
                }),
                entry,
            });
        }
        claims
    }

    /// Creates the claims of new pods. Returns a note for each unknown template.
    pub(crate) fn make(&self, raw: &mut ClusterJson, added: &Added) -> Vec<String> {
        let mut missing = BTreeSet::new();
        for key in &added.pods {
            let Some(pod) = raw.get_mut(key) else {
                continue;
            };
            let claims = self.claims_of(pod, &mut missing);
            if claims.is_empty() {
                continue;
            }
            let statuses = &mut pod["status"]["resourceClaimStatuses"];
            if !statuses.is_array() {
                *statuses = json!([]);
            }
            for claim in &claims {
                let status = json!({"name": claim.entry, "resourceClaimName": claim.claim["metadata"]["name"]});
                if let Some(all) = statuses.as_array_mut() {
                    all.push(status);
                }
            }
            for NewClaim { claim, .. } in claims {
                let name = name_of(&claim).unwrap_or_default();
                raw.insert((Kind::ResourceClaim, key.1.clone(), name), claim);
            }
        }
        notes(missing)
    }
}

/// A note for each unknown template.
pub(crate) fn notes(missing: BTreeSet<(String, String)>) -> Vec<String> {
    let note = |(namespace, name)| {
        format!(
            "ResourceClaimTemplate {namespace}/{name} is not known: pods that refer to it wait for their claims; give it \
             with -f"
        )
    };
    missing.into_iter().map(note).collect()
}

impl NewClaim {
    /// The claim with its entry, as the scheduler reads it.
    ///
    /// # Errors
    /// When the template is malformed.
    pub(crate) fn decoded(self) -> Result<(String, ResourceClaim), serde_json::Error> {
        match decoded(Kind::ResourceClaim, &self.claim)? {
            Object::ResourceClaim(claim) => Ok((self.entry, Arc::unwrap_or_clone(claim))),
            other => Err(Error::custom(format_args!(
                "{:?} is no claim",
                other.kind()
            ))),
        }
    }
}
