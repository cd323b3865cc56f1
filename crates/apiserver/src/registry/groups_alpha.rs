//! Workloads and PodGroups as scheduling.k8s.io/v1alpha2 shows them: disruption modes are words, the reference to a
//! template is nested, and the condition of a group that has been scheduled has another name.

use super::api::Api;
use super::list::ListRequest;
use super::resource;
use crate::groups::GROUP;
use crate::validation::view::{FieldView, existing, items_mut, remove, set};
use serde_json::{Map, Value, json};

/// The names of a disruption mode in v1alpha2 and in v1beta1.
const MODES: [(&str, &str); 2] = [("Pod", "single"), ("PodGroup", "all")];
/// The types of the condition of a group that has been scheduled.
const SCHEDULED: (&str, &str) = ("PodGroupScheduled", "PodGroupInitiallyScheduled");

/// The version in which earlier releases of Berth stored these objects.
const STORED_BEFORE: &str = "scheduling.k8s.io/v1alpha2";

/// Converts the objects of a data directory that an earlier release of Berth has written.
pub(super) fn migrate(api: &Api) {
    for plural in ["podgroups", "workloads"] {
        let Some(resource) = resource::find(GROUP, plural) else {
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

/// An object of v1beta1 from one of v1alpha2.
pub(super) fn from_v1alpha2(mut object: Value) -> Value {
    object["apiVersion"] = "scheduling.k8s.io/v1beta1".into();
    for spec in specs(&mut object) {
        let word = spec.text("disruptionMode").to_owned();
        if let Some((_, member)) = MODES.iter().find(|(old, _)| *old == word) {
            set(spec, "disruptionMode", json!({ *member: {} }));
        } else if spec.field("disruptionMode").is_some_and(Value::is_string) {
            // A union without a known member is reported by validation.
            set(spec, "disruptionMode", Map::new());
        }
        let reference = spec.field("podGroupTemplateRef").cloned();
        remove(spec, "podGroupTemplateRef");
        if let Some(reference) = reference {
            let workload = reference.part("workload");
            let converted = json!({
                "workloadName": workload.text("workloadName"),
                "templateName": workload.text("podGroupTemplateName"),
            });
            set(spec, "workloadRef", converted);
        }
    }
    rename_condition(&mut object, SCHEDULED.0, SCHEDULED.1);
    object
}

/// An object of v1alpha2 from one of v1beta1. What v1alpha2 does not have is left out.
pub(super) fn to_v1alpha2(object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = STORED_BEFORE.into();
    for spec in specs(&mut object) {
        let mode = spec.part("disruptionMode");
        let mode = MODES
            .iter()
            .find(|(_, member)| mode.field(member).is_some());
        let mode = mode.map(|(word, _)| *word);
        remove(spec, "disruptionMode");
        if let Some(word) = mode {
            set(spec, "disruptionMode", word);
        }
        let reference = spec.field("workloadRef").cloned();
        for field in [
            "workloadRef",
            "parentCompositePodGroupName",
            "preemptionPolicy",
        ] {
            remove(spec, field);
        }
        // v1alpha2 has the reference under another name and without a choice.
        if let Some(reference) = reference {
            let workload = json!({
                "workloadName": reference.text("workloadName"),
                "podGroupTemplateName": reference.text("templateName"),
            });
            set(spec, "podGroupTemplateRef", json!({ "workload": workload }));
        }
    }
    if let Some(spec) = existing(&mut object, "spec") {
        remove(spec, "compositePodGroupTemplates");
    }
    rename_condition(&mut object, SCHEDULED.1, SCHEDULED.0);
    object
}

/// The spec of a PodGroup, or the templates of a Workload.
fn specs(object: &mut Value) -> Vec<&mut Value> {
    let is_workload = object.text("kind") == "Workload";
    match existing(object, "spec") {
        Some(spec) if is_workload => items_mut(spec, "podGroupTemplates").iter_mut().collect(),
        spec => spec.into_iter().collect(),
    }
}

fn rename_condition(object: &mut Value, from: &str, to: &str) {
    let Some(status) = existing(object, "status") else {
        return;
    };
    for condition in items_mut(status, "conditions") {
        if condition.text("type") == from {
            set(condition, "type", to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Admission;
    use crate::auth::Authorization;
    use crate::groups::GroupGates;
    use crate::registry::ApiOptions;
    use crate::storage::HistoryLimits;
    use std::sync::Arc;

    #[test]
    fn stored_objects_of_an_earlier_version_are_converted() {
        let options = ApiOptions {
            admission: Admission::default(),
            authorization: Authorization::default(),
            groups: GroupGates::default(),
            service_cidr: "10.96.0.0/12".to_owned(),
            history: HistoryLimits::default(),
            api: crate::releases::ApiRelease::EVERY,
            clock: Arc::new(jiff::Timestamp::now),
            seed: 1,
        };
        let api = Api::open(options, None).expect("in memory");
        let groups = resource::find(GROUP, "podgroups").expect("is served");
        let object = json!({
            "apiVersion": STORED_BEFORE, "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": "PodGroup"},
        });
        let store = groups.store.expect("it is stored");
        let key = groups.key("default", "g");
        api.store.create(store, &key, object).expect("it is new");
        migrate(&api);
        let group = api
            .get(groups, "default", "g")
            .expect("it is there")
            .object();
        assert_eq!(group["apiVersion"], "scheduling.k8s.io/v1beta1");
        assert_eq!(group["spec"]["disruptionMode"], json!({"all": {}}));
    }

    #[test]
    fn objects_are_the_same_after_both_conversions() {
        let cases = [
            json!({
                "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
                "spec": {
                    "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
                    "schedulingPolicy": {"gang": {"minCount": 3}},
                    "disruptionMode": "PodGroup",
                },
                "status": {"conditions": [{"type": "PodGroupScheduled", "status": "True"}]},
            }),
            json!({
                "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload",
                "spec": {"podGroupTemplates": [{"name": "t", "disruptionMode": "Pod"}]},
            }),
        ];
        for shown in cases {
            let stored = from_v1alpha2(shown.clone());
            assert_eq!(stored["apiVersion"], "scheduling.k8s.io/v1beta1");
            assert_ne!(stored["spec"], shown["spec"]);
            assert_eq!(to_v1alpha2(&stored), shown);
        }
        let group = from_v1alpha2(json!({"kind": "PodGroup", "spec": {"disruptionMode": "Pod"}}));
        assert_eq!(group["spec"]["disruptionMode"], json!({"single": {}}));
    }
}
