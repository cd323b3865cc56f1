//! The conversion of objects in a data directory that an earlier release of Berth has written.

use super::api::Api;
use super::list::ListRequest;
use berth_objects::catalog;
use berth_objects::conversion::groups_alpha::{STORED_BEFORE, from_v1alpha2};
use berth_objects::groups::GROUP;
use berth_objects::view::FieldView;
use serde_json::Value;

/// Converts the objects of a data directory that an earlier release of Berth has written.
pub(super) fn groups_alpha(api: &Api) {
    for plural in ["podgroups", "workloads"] {
        let Some(resource) = catalog::find(GROUP, plural) else {
            continue;
        };
        let listed = api.list(resource, &ListRequest::default());
        for version in listed.map(|listed| listed.items).unwrap_or_default() {
            let object = version.object();
            let Some(store) = resource
                .store
                .filter(|_| object.text("apiVersion") == STORED_BEFORE)
            else {
                continue;
            };
            let metadata = object.part("metadata");
            let key = resource.key(metadata.text("namespace"), metadata.text("name"));
            let mut converted = from_v1alpha2(Value::clone(&object));
            resource.strategy().default(&mut converted);
            if let Err(error) = api
                .store
                .replace(store, &key, version.revision(), converted)
            {
                tracing::warn!(plural, key, %error, "failed to convert an object of an earlier version");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Admission;
    use crate::auth::Authorization;
    use crate::registry::ApiOptions;
    use crate::storage::HistoryLimits;
    use berth_objects::groups::GroupGates;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn stored_objects_of_an_earlier_version_are_converted() {
        let options = ApiOptions {
            admission: Admission::default().plugins(),
            authorization: Authorization::default(),
            groups: GroupGates::default(),
            service_cidr: "10.96.0.0/12".to_owned(),
            history: HistoryLimits::default(),
            api: berth_objects::releases::ApiRelease::EVERY,
            clock: Arc::new(jiff::Timestamp::now),
            seed: 1,
        };
        let api = Api::open(options, None).expect("in memory");
        let groups = catalog::find(GROUP, "podgroups").expect("is served");
        let object = json!({
            "apiVersion": STORED_BEFORE, "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": "PodGroup"},
        });
        let store = groups.store.expect("it is stored");
        let key = groups.key("default", "g");
        api.store.create(store, &key, object).expect("it is new");
        groups_alpha(&api);
        let group = api
            .get(groups, "default", "g")
            .expect("it is there")
            .object();
        assert_eq!(group["apiVersion"], "scheduling.k8s.io/v1beta1");
        assert_eq!(group["spec"]["disruptionMode"], json!({"all": {}}));
    }
}
