//! The envelope and the defaults of plugin arguments, for output and for the plugin.
//!
//! The registry states the arguments of a plugin and their defaults; the plugin itself checks the values, see
//! [`Config::check`](super::Config::check).

use super::API_VERSION;
use super::error::Problems;
use berth_framework::FeatureGates;
use berth_framework::registry::{ArgsKind, Registration};
use serde_json::{Map, Value, json};

/// The default arguments of a plugin with an args kind.
pub(super) fn defaults(plugin: &Registration, features: &FeatureGates) -> Option<Value> {
    match plugin.args_kind() {
        ArgsKind::Typed(_) => Some(complete(plugin, &Value::Null, features)),
        ArgsKind::None | ArgsKind::Unknown => None,
    }
}

/// The arguments with their envelope and defaults. A value that is not an object, and the arguments of a plugin without
/// an args kind, are kept unchanged, and the plugin refuses them.
pub(super) fn complete(plugin: &Registration, given: &Value, features: &FeatureGates) -> Value {
    let ArgsKind::Typed(complete) = plugin.args_kind() else {
        return given.clone();
    };
    let mut fields = match given {
        Value::Null => Map::new(),
        Value::Object(fields) => fields.clone(),
        other => return other.clone(),
    };
    fields.retain(|_, value| !value.is_null());
    fields.insert("apiVersion".to_owned(), json!(API_VERSION));
    fields.insert("kind".to_owned(), json!(format!("{}Args", plugin.name())));
    complete(&mut fields, features);
    Value::Object(fields)
}

/// Adds a problem if the arguments are of another kind than the plugin's, or if the plugin takes none. `path` is their
/// path.
pub(super) fn check_envelope(plugin: &Registration, args: &Value, path: &str, problems: &Problems) {
    let name = plugin.name();
    match plugin.args_kind() {
        ArgsKind::Typed(_) => {}
        ArgsKind::Unknown => return,
        ArgsKind::None => {
            if !args.is_null() && args.as_object().is_none_or(|fields| !fields.is_empty()) {
                let message = format!("plugin {name} takes no arguments");
                problems.add_with_hint(path, message, "leave them out");
            }
            return;
        }
    }
    let text = |field: &str| args.get(field).filter(|value| !value.is_null());
    let kind = format!("{name}Args");
    if let Some(given) = text("kind").filter(|given| **given != kind) {
        let hint = format!("the kind is {given}; {name} takes {kind}");
        problems.add_with_hint(path, "has to match plugin args", hint);
    }
    if let Some(given) = text("apiVersion").filter(|given| **given != API_VERSION) {
        let message = format!("no kind {kind:?} is registered for version {given}");
        let hint = format!("leave it out or set it to {API_VERSION:?}");
        problems.add_with_hint(format!("{path}.apiVersion"), message, hint);
    }
}
