//! The rules of ConfigMaps, Secrets and ServiceAccounts.

use super::errors::{Errors, IS_IMMUTABLE, Path};
use super::names;
use super::normal;
use super::view::{View, child, remove, set, set_if_zero};
use crate::field::FieldError;
use crate::strategy::{Strategy, Subresource};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// How much a config map or secret may hold, in bytes.
const DATA_BYTES_MAX: usize = 1024 * 1024;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";

/// The size of what a base64 text stands for.
fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// Errors of changes to an object that is marked as immutable.
fn validate_frozen(errors: &mut Errors, new: &Value, old: &Value, fields: &[&str]) {
    if !old.flag("immutable") {
        return;
    }
    if !new.flag("immutable") {
        errors.forbidden(&Path::new("immutable"), IMMUTABLE);
    }
    for field in fields {
        if new.entries(field) != old.entries(field) {
            errors.forbidden(&Path::new(field), IMMUTABLE);
        }
    }
}

/// The strategy of ConfigMaps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("", "v1", "ConfigMap"));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let mut bytes = 0;
        for (key, value) in object.labels("data") {
            let path = Path::new("data").key(key);
            errors.each_invalid(&path, key, names::config_key(key));
            let twice = object
                .map("binaryData")
                .is_some_and(|b| b.contains_key(key));
            if twice {
                errors.invalid(&path, key, "duplicate of key present in binaryData");
            }
            bytes += value.len();
        }
        for (key, value) in object.labels("binaryData") {
            let path = Path::new("binaryData").key(key);
            errors.each_invalid(&path, key, names::config_key(key));
            bytes += decoded_len(value);
        }
        if bytes > DATA_BYTES_MAX {
            errors.too_long(&Path::new(""), DATA_BYTES_MAX);
        }
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        _subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate_frozen(&mut errors, new, old, &["data", "binaryData"]);
        let mut all = errors.into_vec();
        all.extend(self.validate(new));
        all
    }
}

/// The strategy of Secrets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SecretStrategy;

impl Strategy for SecretStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("", "v1", "Secret"));
        set_if_zero(object, "type", "Opaque");
        // Plain text that was given goes over what is there, in base64.
        let plain: Vec<(String, String)> = object
            .labels("stringData")
            .into_iter()
            .map(|(key, value)| (key.to_owned(), STANDARD.encode(value)))
            .collect();
        remove(object, "stringData");
        if !plain.is_empty()
            && let Some(data) = child(object, "data")
        {
            for (key, value) in plain {
                set(data, &key, value);
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("data");
        let mut bytes = 0;
        for (key, value) in object.labels("data") {
            errors.each_invalid(&path.key(key), key, names::config_key(key));
            bytes += decoded_len(value);
        }
        if bytes > DATA_BYTES_MAX {
            errors.too_long(&path, DATA_BYTES_MAX);
        }
        let data = object.map("data");
        let has = |key: &str| data.is_some_and(|d| d.contains_key(key));
        match object.text("type") {
            "kubernetes.io/service-account-token" => {
                const ACCOUNT: &str = "kubernetes.io/service-account.name";
                let account = object
                    .at(&["metadata", "annotations", ACCOUNT])
                    .and_then(Value::as_str)
                    .unwrap_or("");
                if account.is_empty() {
                    errors.required(&Path::new("metadata.annotations").key(ACCOUNT), "");
                }
            }
            kind @ ("kubernetes.io/dockercfg" | "kubernetes.io/dockerconfigjson") => {
                let key = if kind.ends_with("json") {
                    ".dockerconfigjson"
                } else {
                    ".dockercfg"
                };
                match data.and_then(|d| d.get(key)).and_then(Value::as_str) {
                    None => errors.required(&path.key(key), ""),
                    Some(text) => {
                        let decoded = STANDARD.decode(text).unwrap_or_default();
                        let parsed =
                            serde_json::from_slice::<serde_json::Map<String, Value>>(&decoded);
                        if let Err(e) = parsed {
                            errors.invalid(
                                &path.key(key),
                                "<secret contents redacted>",
                                e.to_string(),
                            );
                        }
                    }
                }
            }
            "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
                errors.required(&path.key("username"), "");
                errors.required(&path.key("password"), "");
            }
            "kubernetes.io/ssh-auth" => {
                let empty = object
                    .at(&["data", "ssh-privatekey"])
                    .and_then(Value::as_str)
                    .is_none_or(str::is_empty);
                if empty {
                    errors.required(&path.key("ssh-privatekey"), "");
                }
            }
            "kubernetes.io/tls" => {
                for key in ["tls.crt", "tls.key"] {
                    if !has(key) {
                        errors.required(&path.key(key), "");
                    }
                }
            }
            _ => {}
        }
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        _subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        if new.text("type") != old.text("type") {
            errors.invalid(&Path::new("type"), new.text("type"), IS_IMMUTABLE);
        }
        validate_frozen(&mut errors, new, old, &["data"]);
        let mut all = errors.into_vec();
        all.extend(self.validate(new));
        all
    }
}

/// The strategy of ServiceAccounts, which have no rules beyond their name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServiceAccountStrategy;

impl Strategy for ServiceAccountStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("", "v1", "ServiceAccount"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_hold_base64_and_have_a_type() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"b": "y", "a": "z"}});
        SecretStrategy.default(&mut secret);
        assert_eq!(
            secret,
            json!({"metadata": {}, "type": "Opaque", "data": {"a": "eg==", "b": "eQ=="}})
        );
        assert_eq!(SecretStrategy.validate(&secret), []);
        let cases = [
            (
                json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
                vec!["data[tls.key]"],
            ),
            (
                json!({"type": "kubernetes.io/basic-auth"}),
                vec!["data[username]", "data[password]"],
            ),
            (
                json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}}),
                vec!["data[.dockerconfigjson]"],
            ),
            (
                json!({"type": "Opaque", "data": {"a b": ""}}),
                vec!["data[a b]"],
            ),
            (
                json!({"type": "Opaque", "data": {"a": "x".repeat(1_500_000)}}),
                vec!["data"],
            ),
        ];
        for (secret, fields) in cases {
            let errors = SecretStrategy.validate(&secret);
            let got: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
            assert_eq!(got, fields);
        }
    }

    #[test]
    fn what_is_immutable_stays() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        let new = json!({"data": {"a": "2"}});
        let errors = ConfigMapStrategy.validate_update(&new, &old, Subresource::Main);
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["immutable", "data"]);
        assert_eq!(
            ConfigMapStrategy.validate_update(&old, &old, Subresource::Main),
            []
        );
    }
}
