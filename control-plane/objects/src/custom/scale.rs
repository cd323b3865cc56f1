//! The subresource `scale` of custom resources: the fields that hold the replicas and the selector.

use crate::field::{ErrorType, FieldError};
use crate::validation::errors::{json_text, quote};
use crate::view::FieldView;
use serde_json::Value;

/// The paths of the subresource `scale`.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    /// The desired number of replicas.
    pub spec: ScalePath,
    /// The number of replicas.
    pub status: ScalePath,
    /// The selector of the pods, as text.
    pub selector: Option<ScalePath>,
}

/// A path of fields, as a definition states it and as a JSON pointer.
#[derive(Debug, Clone)]
pub struct ScalePath {
    /// The path as the definition states it, such as `.spec.replicas`.
    pub stated: String,
    /// The path as a JSON pointer, such as `/spec/replicas`.
    pub pointer: String,
}

impl ScalePath {
    fn new(stated: &str) -> Self {
        // Names end at dots alone: brackets are parts of them.
        let escaped = stated.replace('~', "~0").replace('/', "~1");
        let fields = escaped.strip_prefix('.').unwrap_or(&escaped);
        Self {
            stated: stated.to_owned(),
            pointer: format!("/{}", fields.replace('.', "/")),
        }
    }

    /// The value at the path.
    ///
    /// # Errors
    /// kube-apiserver's text for a field on the path that is not an object.
    fn find<'v>(&self, object: &'v Value) -> Result<Option<&'v Value>, String> {
        let (mut value, mut path) = (object, String::new());
        let fields = self.stated.strip_prefix('.').unwrap_or(&self.stated);
        for field in fields.split('.') {
            match value {
                Value::Null => return Ok(None),
                Value::Object(map) => match map.get(field) {
                    Some(below) => value = below,
                    None => return Ok(None),
                },
                other => return Err(wrong_type(&path, other, "map[string]interface {}")),
            }
            path.push('.');
            path.push_str(field);
        }
        Ok(Some(value))
    }

    /// The whole number at the path.
    ///
    /// # Errors
    /// The text of kube-apiserver about a value of another type.
    pub fn number(&self, object: &Value) -> Result<Option<i64>, String> {
        let Some(value) = self.find(object)? else {
            return Ok(None);
        };
        let wrong = || wrong_type(&self.dotted(), value, "int64");
        value.as_i64().map(Some).ok_or_else(wrong)
    }

    /// The text at the path.
    ///
    /// # Errors
    /// As [`ScalePath::number`].
    pub fn text<'v>(&self, object: &'v Value) -> Result<Option<&'v str>, String> {
        let Some(value) = self.find(object)? else {
            return Ok(None);
        };
        let wrong = || wrong_type(&self.dotted(), value, "string");
        value.as_str().map(Some).ok_or_else(wrong)
    }

    fn dotted(&self) -> String {
        self.pointer.replace('/', ".")
    }
}

/// The message about a value of another type than `wanted`, with Go's names of both.
fn wrong_type(path: &str, value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let shown = match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        other => json_text(other.clone()),
    };
    format!("{path} accessor error: {shown} is of the type {found}, expected {wanted}")
}

impl ScalePaths {
    /// The paths that the subresources of a version state.
    pub(super) fn of(subresources: &Value) -> Option<Self> {
        let scale = subresources.field("scale")?;
        Some(Self {
            spec: ScalePath::new(scale.text("specReplicasPath")),
            status: ScalePath::new(scale.text("statusReplicasPath")),
            selector: scale.maybe_text("labelSelectorPath").map(ScalePath::new),
        })
    }

    /// The faults of the desired replicas.
    pub(super) fn faults_of_spec(&self, object: &Value) -> Vec<FieldError> {
        replicas_fault(&self.spec, object).into_iter().collect()
    }

    /// The faults of the replicas and the selector of the status.
    pub(super) fn faults_of_status(&self, object: &Value) -> Vec<FieldError> {
        let replicas = replicas_fault(&self.status, object);
        let selector = self.selector.as_ref().and_then(|path| {
            let fault = path.text(object).err()?;
            Some(invalid(path, quote(""), fault))
        });
        replicas.into_iter().chain(selector).collect()
    }
}

fn replicas_fault(path: &ScalePath, object: &Value) -> Option<FieldError> {
    let (replicas, detail) = match path.number(object) {
        Err(fault) => (0, fault),
        Ok(None) => return None,
        Ok(Some(n)) if n < 0 => (n, "should be a non-negative integer".to_owned()),
        Ok(Some(n)) if n > i64::from(i32::MAX) => {
            (n, format!("should be less than or equal to {}", i32::MAX))
        }
        Ok(Some(_)) => return None,
    };
    Some(invalid(path, replicas.to_string(), detail))
}

fn invalid(path: &ScalePath, value: String, detail: String) -> FieldError {
    FieldError {
        kind: ErrorType::Invalid,
        field: path.stated.clone(),
        value: Some(value),
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn replicas_and_selectors_have_the_types_of_a_scale() {
        let paths = json!({"scale": {"specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}});
        let paths = ScalePaths::of(&paths).expect("a scale");
        for (object, expect) in [
            (json!({}), &[][..]),
            (
                json!({"spec": {"replicas": 3}, "status": {"selector": "a=b"}}),
                &[],
            ),
            (
                json!({"spec": {"replicas": -1}, "status": {"replicas": 3_000_000_000_i64, "selector": 1}}),
                &[
                    ".spec.replicas: Invalid value: -1: should be a non-negative integer",
                    ".status.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647",
                    ".status.selector: Invalid value: \"\": .status.selector accessor error: 1 is of the type int64, expected string",
                ],
            ),
            (
                json!({"spec": "x", "status": {"replicas": "2"}}),
                &[
                    ".spec.replicas: Invalid value: 0: .spec accessor error: x is of the type string, expected map[string]interface {}",
                    ".status.replicas: Invalid value: 0: .status.replicas accessor error: 2 is of the type string, expected int64",
                ],
            ),
        ] {
            let mut faults = paths.faults_of_spec(&object);
            faults.extend(paths.faults_of_status(&object));
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            assert_eq!(texts, expect, "{object}");
        }
    }
}
