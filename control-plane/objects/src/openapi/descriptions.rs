//! Descriptions of types and fields for `kubectl explain`, from `facts/descriptions.txt`. Other types and fields refer
//! to the reference of Kubernetes. A custom resource has the descriptions of its definition.

use rustc_hash::FxHashMap;
use std::sync::OnceLock;

const DESCRIPTIONS: &str = include_str!("../../facts/descriptions.txt");

/// The text for a missing description.
const ELSEWHERE: &str = "<see the Kubernetes API reference>";

/// The descriptions by their keys in the file.
fn all() -> &'static FxHashMap<&'static str, &'static str> {
    static ALL: OnceLock<FxHashMap<&str, &str>> = OnceLock::new();
    ALL.get_or_init(|| {
        let lines = DESCRIPTIONS.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.split_once(": ")).collect()
    })
}

/// The description of a type such as `core.v1.Pod`. Every kind has one; other types are mostly described by the fields
/// that are of them.
pub(super) fn of_type(type_name: &str) -> Option<&'static str> {
    all().get(&*key(type_name)).copied()
}

/// The description of a field of a type.
pub(super) fn of_field(type_name: &str, field: &str, is_kind: bool) -> &'static str {
    let found = all().get(&*format!("{}.{field}", key(type_name))).copied();
    let of_kinds = || {
        is_kind
            .then(|| of_object(field))
            .filter(|text| !text.is_empty())
    };
    found.or_else(of_kinds).unwrap_or(ELSEWHERE)
}

/// The description of a field that every object has; empty for others.
pub(super) fn of_object(field: &str) -> &'static str {
    all()
        .get(&*format!("*.{field}"))
        .copied()
        .unwrap_or_default()
}

/// A type's key: all versions of a group have the same descriptions.
fn key(type_name: &str) -> String {
    let group = type_name.split('.').next().unwrap_or_default();
    let name = type_name.rsplit('.').next().unwrap_or_default();
    format!("{group}.{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schemas;
    use berth_protobuf::facts::Facts;
    use std::collections::BTreeSet;

    /// A description of a misspelt type or field would never be shown.
    #[test]
    fn every_description_is_of_a_type_or_field() {
        let mut known: BTreeSet<String> = ["*.apiVersion", "*.kind", "*.metadata"]
            .map(String::from)
            .into();
        for object_type in Schemas::get().model().object_types() {
            let key = key(&object_type.name);
            known.extend(
                object_type
                    .fields
                    .iter()
                    .map(|field| format!("{key}.{}", field.name)),
            );
            known.insert(key);
        }
        let unknown: Vec<_> = all().keys().filter(|key| !known.contains(**key)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let lines = DESCRIPTIONS
            .lines()
            .filter(|line| line.contains(": ") && !line.starts_with('#'));
        assert_eq!(lines.count(), all().len(), "a key is there twice");
    }

    /// The kinds that users explain first. All their fields are described, including the fields of specs.
    #[test]
    fn all_fields_of_common_kinds_are_described() {
        let types = "core.v1.PodSpec core.v1.PodTemplateSpec core.v1.Service core.v1.ServiceSpec core.v1.ServicePort \
            core.v1.ServiceStatus apps.v1.Deployment apps.v1.DeploymentSpec apps.v1.DeploymentStrategy \
            apps.v1.RollingUpdateDeployment apps.v1.DeploymentStatus batch.v1.Job batch.v1.JobSpec batch.v1.JobStatus \
            batch.v1.PodFailurePolicyRule batch.v1.SuccessPolicyRule batch.v1.CronJobSpec resource.v1.ResourceClaim \
            resource.v1.ResourceClaimSpec resource.v1.ResourceClaimStatus resource.v1.DeviceClaim \
            resource.v1.DeviceRequestAllocationResult apiextensions.v1.CustomResourceDefinition \
            apiextensions.v1.CustomResourceDefinitionSpec apiextensions.v1.CustomResourceDefinitionNames \
            apiextensions.v1.CustomResourceDefinitionVersion apiextensions.v1.CustomResourceDefinitionStatus";
        let types: Vec<&str> = types.split_whitespace().collect();
        let mut found = 0;
        let mut missing = Vec::new();
        for object_type in Schemas::get().model().object_types() {
            if !types.contains(&&*object_type.name) {
                continue;
            }
            found += 1;
            for field in &object_type.fields {
                if of_field(&object_type.name, &field.name, true) == ELSEWHERE {
                    missing.push(format!("{}.{}", object_type.name, field.name));
                }
            }
        }
        assert_eq!(found, types.len());
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn every_kind_is_described() {
        let kinds = Facts::get()
            .resources
            .iter()
            .map(|resource| resource.type_name);
        let missing: BTreeSet<_> = kinds.filter(|name| of_type(name).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
