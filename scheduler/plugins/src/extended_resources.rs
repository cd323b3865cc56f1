//! Extended resources that are backed by devices (KEP-5004).
//!
//! A device class may name an extended resource; and every class has one of its own,
//! `deviceclass.resource.kubernetes.io/<class>`. A node that does not offer such a resource itself leaves it to the
//! allocation of devices.

use berth_api::DeviceClass;
use berth_api::names::DEVICE_CLASS_PREFIX;
use berth_framework::plugin::Context;
use berth_framework::{Cluster, Feature};
use std::sync::Arc;

/// The extended resource that is named after a class.
pub(crate) fn implied_resource(class: &DeviceClass) -> String {
    format!("{DEVICE_CLASS_PREFIX}{}", class.metadata.name)
}

/// Returns whether devices may back extended resources.
pub(crate) fn have_backing_classes(cx: &Context<'_>) -> bool {
    cx.features.enabled(Feature::DRAExtendedResource) && !cx.cluster.devices().classes().is_empty()
}

/// The version of fragments that depend on classes; constant without classes.
pub(crate) fn without_backing_classes(cx: &Context<'_>) -> Option<u64> {
    (!have_backing_classes(cx)).then_some(0)
}

/// The class whose devices back a resource: the newest class that names it, then the first by name.
pub(crate) fn class_of<'a>(cluster: &'a Cluster, resource: &str) -> Option<&'a Arc<DeviceClass>> {
    if cluster.devices().classes().is_empty() || !resource.contains('/') {
        return None;
    }
    if let Some(name) = resource.strip_prefix(DEVICE_CLASS_PREFIX) {
        return cluster.devices().classes().get(name);
    }
    cluster.devices().class_of_resource(resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Kind;
    use serde_json::json;

    /// The newest class wins, then the name. A class always provides the resource of its own name.
    #[test]
    fn a_class_is_found_by_the_resource_that_it_provides() {
        let mut cluster = Cluster::default();
        for (name, resource, created) in [
            ("old", "example.com/gpu", "2026-01-01T00:00:00Z"),
            ("b-new", "example.com/gpu", "2026-02-01T00:00:00Z"),
            ("a-new", "example.com/gpu", "2026-02-01T00:00:00Z"),
            ("other", "example.com/nic", "2026-03-01T00:00:00Z"),
        ] {
            let class = json!({
                "metadata": {"name": name, "creationTimestamp": created},
                "spec": {"extendedResourceName": resource},
            });
            let class = Kind::DeviceClass
                .decode(class.to_string().as_bytes())
                .expect("a class");
            cluster.set(&class);
        }
        for (resource, class) in [
            ("example.com/gpu", Some("a-new")),
            ("example.com/nic", Some("other")),
            ("example.com/x", None),
            ("deviceclass.resource.kubernetes.io/old", Some("old")),
            ("deviceclass.resource.kubernetes.io/x", None),
        ] {
            let found = class_of(&cluster, resource).map(|class| class.metadata.name.as_str());
            assert_eq!(found, class, "{resource}");
        }
    }
}
