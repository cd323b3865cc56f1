//! The checks and defaults of objects that no API server stores, for what-if: strict decoding and validation, as the
//! API server does with `fieldValidation=Strict`.

use crate::access::GroupResource;
use crate::kinds::strategy;
use crate::schema::GroupVersionKind;
use crate::schema::Schemas;
use crate::schema::model::{Model, ValueShape};
use crate::strategy::KindStrategy;
use berth_protobuf::facts::{Facts, ResourceFacts};
use serde_json::Value;

/// A field that the type of an object does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// The field, such as `spec.containers[0].foo`.
    pub path: String,
    /// The fields that the type has.
    pub siblings: Vec<String>,
}

/// The faults that strict decoding rejects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Misfits {
    /// The fields that its type does not have.
    pub unknown_fields: Vec<UnknownField>,
    /// Values of the wrong type, as complete messages.
    pub type_errors: Vec<String>,
}

fn group_and_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The kind of the objects of a resource.
fn kind_of(resource: &ResourceFacts) -> &'static str {
    let name = resource.type_name;
    name.rsplit('.').next().unwrap_or(name)
}

/// Every kind of Kubernetes' API: `apiVersion` and `kind`.
pub fn kinds() -> Vec<(String, &'static str)> {
    let resources = Facts::get().resources.iter();
    let kinds = resources.map(|resource| {
        let api_version = match resource.group {
            "" => resource.version.to_owned(),
            group => format!("{group}/{}", resource.version),
        };
        (api_version, kind_of(resource))
    });
    kinds.collect()
}

/// The faults of an object, or of some of its fields; `None` for an unknown kind.
pub fn check(api_version: &str, kind: &str, object: &Value) -> Option<Misfits> {
    let schemas = Schemas::get();
    let (group, version) = group_and_version(api_version);
    let kind = GroupVersionKind::new(group, version, kind);
    let root = schemas.find(kind)?;
    let decoded = schemas.check(kind, object);
    let unknown = decoded.unknown_fields.into_iter();
    let unknown_fields = unknown.map(|path| UnknownField {
        siblings: siblings(schemas.model(), ValueShape::Object(root), &path),
        path,
    });
    Some(Misfits {
        unknown_fields: unknown_fields.collect(),
        type_errors: decoded.type_errors,
    })
}

/// The fields of the object that contains the field at `path`; none if the path leads through a value without a type.
fn siblings(model: &Model, root: ValueShape, path: &str) -> Vec<String> {
    let mut steps: Vec<&str> = path.split('.').collect();
    steps.pop();
    let mut shape = root;
    let mut steps = steps.into_iter();
    while let Some(step) = steps.next() {
        let ValueShape::Object(id) = shape else {
            return Vec::new();
        };
        let name = step.split('[').next().unwrap_or(step);
        let Some(field) = model.object_type(id).field(name) else {
            return Vec::new();
        };
        shape = match &field.shape {
            ValueShape::List(items) => (**items).clone(),
            ValueShape::Map(values) => {
                // The key.
                steps.next();
                (**values).clone()
            }
            other => other.clone(),
        };
    }
    match shape {
        ValueShape::Object(id) => {
            let fields = model.object_type(id).fields.iter();
            fields.map(|field| field.name.to_string()).collect()
        }
        _ => Vec::new(),
    }
}

/// Sets the defaults of a new object as the API server does; none for an unknown kind.
pub fn set_defaults(api_version: &str, kind: &str, object: &mut Value) {
    if let Some(rules) = rules_of(api_version, kind) {
        rules.default(object);
    }
}

/// The errors of the API server for a new object, without errors of its metadata; none for an unknown kind.
pub fn errors_of_new(api_version: &str, kind: &str, object: &Value) -> Vec<String> {
    let Some(rules) = rules_of(api_version, kind) else {
        return Vec::new();
    };
    let mut object = object.clone();
    rules.default(&mut object);
    let errors = rules.validate(&object).into_iter();
    errors.map(|error| error.to_string()).collect()
}

fn rules_of(api_version: &str, kind: &str) -> Option<&'static dyn KindStrategy> {
    let (group, version) = group_and_version(api_version);
    let mut resources = Facts::get().resources.iter();
    let resource = resources.find(|resource| {
        resource.group == group && resource.version == version && kind_of(resource) == kind
    })?;
    Some(strategy(GroupResource {
        group: resource.group,
        resource: resource.plural,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_misspelt_field_is_found_with_the_fields_of_its_type() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "imagee": "i"}]}});
        let misfits = check("v1", "Pod", &pod).expect("a kind");
        let [unknown] = &misfits.unknown_fields[..] else {
            panic!("{misfits:?}");
        };
        assert_eq!(unknown.path, "spec.containers[0].imagee");
        assert!(unknown.siblings.contains(&"image".to_owned()));
        let top = check("v1", "Node", &json!({"sepc": {}})).expect("a kind");
        assert_eq!(top.unknown_fields[0].path, "sepc");
        assert!(top.unknown_fields[0].siblings.contains(&"spec".to_owned()));
        let wrong = check("v1", "Node", &json!({"spec": {"unschedulable": "yes"}}));
        assert_eq!(wrong.map(|misfits| misfits.type_errors.len()), Some(1));
        assert_eq!(check("v1", "Nodee", &json!({})), None);
    }

    #[test]
    fn a_new_object_gets_the_defaults() {
        let limits = json!({"cpu": "2"});
        let mut pod = json!({"metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}});
        set_defaults("v1", "Pod", &mut pod);
        assert_eq!(pod["spec"]["schedulerName"], "default-scheduler");
        assert_eq!(
            pod["spec"]["containers"][0]["resources"]["requests"],
            limits
        );
        let exactly = json!({"deviceClassName": "gpu"});
        let spec = json!({"devices": {"requests": [{"name": "a", "exactly": exactly}]}});
        let mut template = json!({"metadata": {"name": "t"}, "spec": {"spec": spec}});
        set_defaults("resource.k8s.io/v1", "ResourceClaimTemplate", &mut template);
        let request = &template["spec"]["spec"]["devices"]["requests"][0]["exactly"];
        assert_eq!(
            (&request["allocationMode"], &request["count"]),
            (&json!("ExactCount"), &json!(1))
        );
        let mut unknown = json!({});
        set_defaults("v1", "Nothing", &mut unknown);
        assert_eq!(unknown, json!({}));
    }

    #[test]
    fn a_new_object_is_validated() {
        let errors = errors_of_new("v1", "Pod", &json!({"metadata": {"name": "p"}}));
        let expected = "spec.containers: Required value";
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{errors:?}"
        );
    }
}
