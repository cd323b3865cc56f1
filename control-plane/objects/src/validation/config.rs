//! The checks that tables cannot express for ConfigMaps and Secrets.

use super::errors::{ErrorPath, Errors};
use super::names;
use super::owner::Owner;
use crate::view::{FieldView, child, remove, set};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The greatest size of a config map or secret, in bytes.
const DATA_BYTES_MAX: usize = 1024 * 1024;
pub(super) const IMMUTABLE: &str = "field is immutable when `immutable` is set";

/// The decoded size of a base64 text.
fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// Errors of changes to an object that is marked as immutable.
fn validate_frozen(errors: &mut Errors, owner: &Owner, fields: &[&'static str]) {
    let Some(old) = owner.old.filter(|old| old.flag("immutable")) else {
        return;
    };
    if !owner.value.flag("immutable") {
        errors.forbidden(&ErrorPath::new("immutable"), IMMUTABLE);
    }
    for field in fields {
        if owner.value.entries(field) != old.entries(field) {
            errors.forbidden(&ErrorPath::new(field), IMMUTABLE);
        }
    }
}

pub(crate) fn config_map(errors: &mut Errors, owner: &Owner, object: &Value, _: &ErrorPath) {
    validate_frozen(errors, owner, &["data", "binaryData"]);
    let mut bytes = 0;
    for (key, value) in object.labels("data") {
        let path = ErrorPath::new("data").key(key);
        errors.each_invalid(&path, key, names::config_key(key));
        if object.part("binaryData").field(key).is_some() {
            errors.invalid(&path, key, "duplicate of key present in binaryData");
        }
        bytes += value.len();
    }
    for (key, value) in object.labels("binaryData") {
        let path = ErrorPath::new("binaryData").key(key);
        errors.each_invalid(&path, key, names::config_key(key));
        bytes += decoded_len(value);
    }
    if bytes > DATA_BYTES_MAX {
        errors.too_long(&ErrorPath::new(""), DATA_BYTES_MAX);
    }
}

/// Plain text in the request takes precedence over the existing base64 data.
pub(super) fn default_secret(object: &mut Value) {
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

pub(crate) fn secret(errors: &mut Errors, owner: &Owner, object: &Value, _: &ErrorPath) {
    validate_frozen(errors, owner, &["data"]);
    let path = ErrorPath::new("data");
    let mut bytes = 0;
    // The limit applies to all values together, after decoding.
    for (key, value) in object.labels("data") {
        errors.each_invalid(&path.key(key), key, names::config_key(key));
        bytes += decoded_len(value);
    }
    if bytes > DATA_BYTES_MAX {
        errors.too_long(&path, DATA_BYTES_MAX);
    }
    let data = object.part("data");
    let has = |key: &str| data.field(key).is_some();
    match object.text("type") {
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            if object
                .part("metadata")
                .part("annotations")
                .text(ACCOUNT)
                .is_empty()
            {
                errors.required(&ErrorPath::new("metadata.annotations").key(ACCOUNT), "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(errors, data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker_config(errors, data, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.required(&path.key("username"), "");
            errors.required(&path.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if data.text("ssh-privatekey").is_empty() => {
            errors.required(&path.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| !has(key)) {
                errors.required(&path.key(key), "");
            }
        }
        _ => {}
    }
}

fn docker_config(errors: &mut Errors, data: &Value, key: &str) {
    let path = ErrorPath::new("data").key(key);
    let Some(text) = data.maybe_text(key) else {
        errors.required(&path, "");
        return;
    };
    let decoded = STANDARD.decode(text).unwrap_or_default();
    if let Err(e) = serde_json::from_slice::<serde_json::Map<String, Value>>(&decoded) {
        errors.invalid(&path, "<secret contents redacted>", e.to_string());
    }
}

#[cfg(test)]
mod tests {
    use crate::access::gr;
    use crate::kinds::strategy;
    use crate::strategy::Subresource;
    use serde_json::json;

    #[test]
    fn secrets_hold_base64_and_have_a_type() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"b": "y", "a": "z"}});
        strategy(gr("", "secrets")).default(&mut secret);
        assert_eq!(
            secret,
            json!({"metadata": {}, "type": "Opaque", "data": {"a": "eg==", "b": "eQ=="}})
        );
        assert_eq!(strategy(gr("", "secrets")).validate(&secret), []);
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
            let errors = strategy(gr("", "secrets")).validate(&secret);
            let got: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
            assert_eq!(got, fields);
        }
    }

    #[test]
    fn what_is_immutable_stays() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        let new = json!({"data": {"a": "2"}});
        let errors = strategy(gr("", "configmaps")).validate_update(&new, &old, Subresource::Main);
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["immutable", "data"]);
        assert_eq!(
            strategy(gr("", "configmaps")).validate_update(&old, &old, Subresource::Main),
            []
        );
    }
}
