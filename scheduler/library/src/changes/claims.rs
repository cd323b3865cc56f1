//! ResourceClaimTemplates, from which a controller creates the claims of new pods.

use super::strict::hint;
use super::{DELETE, merge, name_of, namespace_of};
use crate::InputError;
use crate::json::{ClusterJson, set_defaults};
use berth_api::{Kind, Object};
use berth_explain::engine::ClaimTemplates as DecodedTemplates;
use berth_objects::object::decoded;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

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

    /// Adds unknown templates from the claims of pods: the spec of a template is immutable, so the claim has it.
    pub(crate) fn add_from_claims(&mut self, raw: &ClusterJson) {
        for (key, pod) in raw.iter().filter(|(key, _)| key.0 == Kind::Pod) {
            let made = pod["status"]["resourceClaimStatuses"].as_array();
            for made in made.into_iter().flatten() {
                let entries = pod["spec"]["resourceClaims"].as_array();
                let mut entries = entries.into_iter().flatten();
                let entry = entries.find(|entry| entry["name"] == made["name"]);
                let template = entry.and_then(|entry| entry["resourceClaimTemplateName"].as_str());
                let name = made["resourceClaimName"].as_str();
                let (Some(template), Some(name)) = (template, name) else {
                    continue;
                };
                let claim = (Kind::ResourceClaim, key.1.clone(), name.to_owned());
                if let Some(claim) = raw.get(&claim) {
                    let template = (key.1.clone(), template.to_owned());
                    let of_claim = || json!({"spec": {"spec": claim["spec"]}});
                    self.0.entry(template).or_insert_with(of_claim);
                }
            }
        }
    }

    /// The templates as the scheduler reads claims.
    ///
    /// # Errors
    /// When a template is malformed.
    pub(crate) fn decoded(&self) -> Result<DecodedTemplates, InputError> {
        let claims = self.0.iter().map(|((namespace, name), template)| {
            let claim = json!({
                "apiVersion": VERSIONS[0],
                "kind": "ResourceClaim",
                "metadata": {"namespace": namespace, "name": name},
                "spec": template["spec"]["spec"],
            });
            match decoded(Kind::ResourceClaim, &claim) {
                Ok(Object::ResourceClaim(claim)) => Ok(claim),
                Ok(_) => Err("it is no template of a claim".to_owned()),
                Err(reason) => Err(reason.to_string()),
            }
            .map_err(|reason| InputError::Field {
                object: format!("ResourceClaimTemplate {namespace}/{name}"),
                reason,
            })
        });
        let claims: Vec<_> = claims.collect::<Result<_, _>>()?;
        Ok(DecodedTemplates::new(claims))
    }

    /// A note for each unknown template of pods without a node.
    pub(crate) fn missing<'a>(&self, pods: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
        let mut missing = BTreeSet::new();
        for pod in pods {
            let made = pod["status"]["resourceClaimStatuses"].as_array();
            let has = |entry: &Value| made.into_iter().flatten().any(|of| of["name"] == *entry);
            let entries = pod["spec"]["resourceClaims"].as_array();
            for entry in entries.into_iter().flatten() {
                if let Some(template) = entry["resourceClaimTemplateName"].as_str()
                    && !has(&entry["name"])
                {
                    let template = (namespace_of(pod), template.to_owned());
                    if !self.0.contains_key(&template) {
                        missing.insert(template);
                    }
                }
            }
        }
        let note = |(namespace, name)| {
            format!(
                "ResourceClaimTemplate {namespace}/{name} is not known: pods that refer to it wait for their claims; give \
                 it with -f"
            )
        };
        missing.into_iter().map(note).collect()
    }
}
