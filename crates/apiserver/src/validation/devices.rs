//! The rules of DeviceClasses and ResourceSlices, as far as structure goes. What selectors say in CEL is stored as it
//! is and not looked at here.

use super::errors::{Errors, IS_IMMUTABLE, Path, Shown};
use super::names;
use super::normal;
use super::view::View;
use super::workloads::spec_of;
use crate::field::FieldError;
use crate::strategy::{Strategy, Subresource};
use serde_json::Value;
use std::collections::HashSet;

/// How many selectors a list may have, and how many pieces of configuration.
const LIST_MAX: usize = 32;
/// How many devices a slice may have, and attributes and capacities a device.
const DEVICES_MAX: usize = 128;
const ATTRIBUTES_MAX: usize = 32;
/// How long names of drivers and pools may be.
const DRIVER_NAME_MAX: usize = 63;
const POOL_NAME_MAX: usize = 253;

/// Errors of a list of selectors: each has an expression.
pub(super) fn validate_selectors(errors: &mut Errors, of: &Value, path: &Path) {
    let selectors = of.items("selectors");
    let path = path.child("selectors");
    errors.check_at_most(&path, selectors.len(), LIST_MAX);
    for (i, selector) in selectors.iter().enumerate() {
        let at = path.index(i).child("cel");
        match selector.field("cel") {
            None => errors.required(&at, ""),
            Some(cel) if cel.text("expression").is_empty() => {
                errors.required(&at.child("expression"), "");
            }
            Some(_) => {}
        }
    }
}

fn validate_driver(errors: &mut Errors, driver: &str, path: &Path) {
    if driver.is_empty() {
        errors.required(path, "");
    }
    if driver.len() > DRIVER_NAME_MAX {
        errors.too_long(path, DRIVER_NAME_MAX);
    }
    if !driver.is_empty() {
        errors.each_invalid(path, driver, names::dns_subdomain(driver));
    }
}

/// The strategy of DeviceClasses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceClassStrategy;

impl Strategy for DeviceClassStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("resource.k8s.io", "v1", "DeviceClass"));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (spec, path) = (spec_of(object), Path::new("spec"));
        validate_selectors(&mut errors, spec, &path);
        let (config, at) = (spec.items("config"), path.child("config"));
        errors.check_at_most(&at, config.len(), LIST_MAX);
        for (i, entry) in config.iter().enumerate() {
            let at = at.index(i).child("opaque");
            match entry.field("opaque") {
                None => errors.required(&at, ""),
                Some(opaque) => {
                    validate_driver(&mut errors, opaque.text("driver"), &at.child("driver"));
                }
            }
        }
        errors.into_vec()
    }
}

/// From where the devices of a slice can be used: exactly one way of saying so.
fn validate_reach(errors: &mut Errors, spec: &Value, path: &Path) {
    const WAYS: &str = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`";
    let node = spec.maybe_text("nodeName");
    if let Some(name) = node {
        let at = path.child("nodeName");
        if name.is_empty() {
            errors.invalid(
                &at,
                name,
                "must be either unset or set to a non-empty string",
            );
        } else {
            errors.each_invalid(&at, name, names::dns_subdomain(name));
        }
    }
    if let Some(selector) = spec.field("nodeSelector")
        && selector.items("nodeSelectorTerms").len() != 1
    {
        let at = path.child("nodeSelector").child("nodeSelectorTerms");
        errors.invalid(
            &at,
            Shown::absent(),
            "must have exactly one node selector term",
        );
    }
    let said = [
        node.is_some(),
        spec.field("nodeSelector").is_some(),
        spec.flag("allNodes"),
        spec.flag("perDeviceNodeSelection"),
    ];
    match said.iter().filter(|said| **said).count() {
        0 => errors.required(path, format!("exactly one of {WAYS} is required")),
        1 => {}
        _ => errors.invalid(
            path,
            Shown::absent(),
            format!("exactly one of {WAYS} is required, but multiple fields are set"),
        ),
    }
}

fn validate_pool(errors: &mut Errors, pool: &Value, path: &Path) {
    let (name, at) = (pool.text("name"), path.child("name"));
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        if name.len() > POOL_NAME_MAX {
            errors.too_long(&at, POOL_NAME_MAX);
        }
        for part in name.split('/') {
            errors.each_invalid(&at, part, names::dns_subdomain(part));
        }
    }
    let (count, at) = (
        pool.int("resourceSliceCount"),
        path.child("resourceSliceCount"),
    );
    if count <= 0 {
        errors.invalid(&at, count, "must be greater than zero");
    }
    let (generation, at) = (pool.int("generation"), path.child("generation"));
    if generation < 0 {
        errors.invalid(&at, generation, "must be greater than or equal to zero");
    }
}

fn validate_devices(errors: &mut Errors, spec: &Value, path: &Path) {
    let devices = spec.items("devices");
    let path = path.child("devices");
    errors.check_at_most(&path, devices.len(), DEVICES_MAX);
    let mut seen = HashSet::new();
    for (i, device) in devices.iter().enumerate() {
        let path = path.index(i);
        let (name, at) = (device.text("name"), path.child("name"));
        errors.check_name(&at, name, names::dns_label);
        if !seen.insert(name) {
            errors.duplicate(&at, name);
        }
        let said = device.entries("attributes").len() + device.entries("capacity").len();
        if said > ATTRIBUTES_MAX {
            errors.invalid(
                &path,
                said as i64,
                format!(
                    "the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}"
                ),
            );
        }
    }
}

/// The strategy of ResourceSlices.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResourceSliceStrategy;

impl Strategy for ResourceSliceStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("resource.k8s.io", "v1", "ResourceSlice"));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (spec, path) = (spec_of(object), Path::new("spec"));
        validate_driver(&mut errors, spec.text("driver"), &path.child("driver"));
        let empty = Value::Null;
        let pool = spec.field("pool").unwrap_or(&empty);
        validate_pool(&mut errors, pool, &path.child("pool"));
        validate_reach(&mut errors, spec, &path);
        validate_devices(&mut errors, spec, &path);
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        _subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let path = Path::new("spec");
        let (after, before) = (spec_of(new), spec_of(old));
        for names in [&["driver"][..], &["pool", "name"], &["nodeName"]] {
            if after.at(names) != before.at(names) {
                let at = names.iter().fold(path.clone(), |at, name| at.child(name));
                let text = after.at(names).and_then(Value::as_str).unwrap_or_default();
                errors.invalid(&at, text, IS_IMMUTABLE);
            }
        }
        let mut all = self.validate(new);
        all.extend(errors.into_vec());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice() -> Value {
        json!({"spec": {
            "driver": "gpu.example.com", "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "dev-0", "attributes": {"model": {"string": "a"}}}],
        }})
    }

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.field.as_str()).collect()
    }

    #[test]
    fn malformed_slices_are_named() {
        assert_eq!(ResourceSliceStrategy.validate(&slice()), []);
        let too_many = (0..129).map(|n| json!({"name": format!("d{n}")}));
        let too_many: Value = too_many.collect();
        for (pointer, value, expected) in [
            ("/spec/driver", json!(""), "spec.driver"),
            ("/spec/driver", json!("GPU"), "spec.driver"),
            ("/spec/driver", json!("d".repeat(64)), "spec.driver"),
            ("/spec/pool/name", json!(""), "spec.pool.name"),
            ("/spec/pool/name", json!("a/B"), "spec.pool.name"),
            (
                "/spec/pool/resourceSliceCount",
                json!(0),
                "spec.pool.resourceSliceCount",
            ),
            ("/spec/pool/generation", json!(-1), "spec.pool.generation"),
            ("/spec/nodeName", Value::Null, "spec"),
            ("/spec/devices/0/name", json!("a.b"), "spec.devices[0].name"),
            (
                "/spec/devices",
                json!([{"name": "a"}, {"name": "a"}]),
                "spec.devices[1].name",
            ),
            ("/spec/devices", too_many, "spec.devices"),
        ] {
            let mut changed = slice();
            *changed.pointer_mut(pointer).expect("it is there") = value;
            let errors = ResourceSliceStrategy.validate(&changed);
            assert_eq!(fields(&errors), [expected], "{pointer}");
        }
        let mut twice = slice();
        twice["spec"]["allNodes"] = json!(true);
        assert_eq!(fields(&ResourceSliceStrategy.validate(&twice)), ["spec"]);
    }

    #[test]
    fn a_slice_stays_with_its_node_and_driver() {
        for (pointer, field) in [
            ("/spec/driver", "spec.driver"),
            ("/spec/pool/name", "spec.pool.name"),
            ("/spec/nodeName", "spec.nodeName"),
        ] {
            let mut changed = slice();
            *changed.pointer_mut(pointer).expect("it is there") = json!("other");
            let errors =
                ResourceSliceStrategy.validate_update(&changed, &slice(), Subresource::Main);
            assert_eq!(fields(&errors), [field]);
        }
        let mut more = slice();
        more["spec"]["devices"] = json!([{"name": "dev-0"}, {"name": "dev-1"}]);
        let errors = ResourceSliceStrategy.validate_update(&more, &slice(), Subresource::Main);
        assert_eq!(errors, []);
    }

    #[test]
    fn malformed_classes_are_named() {
        let selector = json!({"cel": {"expression": "device.driver == 'd'"}});
        let config = json!({"opaque": {"driver": "d", "parameters": {"any": "thing"}}});
        for (spec, expected) in [
            (json!({}), vec![]),
            (
                json!({"selectors": [selector], "config": [config], "extendedResourceName": "example.com/gpu"}),
                vec![],
            ),
            (json!({"selectors": [{}]}), vec!["spec.selectors[0].cel"]),
            (
                json!({"selectors": [{"cel": {"expression": ""}}]}),
                vec!["spec.selectors[0].cel.expression"],
            ),
            (
                json!({"selectors": vec![selector; 33]}),
                vec!["spec.selectors"],
            ),
            (json!({"config": [{}]}), vec!["spec.config[0].opaque"]),
            (
                json!({"config": [{"opaque": {"driver": ""}}]}),
                vec!["spec.config[0].opaque.driver"],
            ),
        ] {
            let class = json!({"spec": spec});
            let errors = DeviceClassStrategy.validate(&class);
            assert_eq!(fields(&errors), expected, "{class}");
            let errors = DeviceClassStrategy.validate_update(&class, &class, Subresource::Main);
            assert_eq!(fields(&errors), expected, "{class}");
        }
    }
}
