//! Workloads and PodGroups as scheduling.k8s.io/v1alpha2 shows them: disruption modes are words, the reference to a
//! template is nested, and the condition of a group that has been scheduled has another name.

use crate::view::{FieldView, existing, items_mut, remove, set, set_if_absent};
use berth_api::groups::{
    DISRUPTION_MODES_OF_V1ALPHA2 as MODES, POD_GROUP_INITIALLY_SCHEDULED,
    POD_GROUP_SCHEDULED_OF_V1ALPHA2,
};
use serde_json::{Map, Value, json};

/// The types of the condition of a group that has been scheduled.
const SCHEDULED: (&str, &str) = (
    POD_GROUP_SCHEDULED_OF_V1ALPHA2,
    POD_GROUP_INITIALLY_SCHEDULED,
);

/// The fields of a PodGroup or of its template that v1alpha2 does not have.
const UNSHOWN: [&str; 2] = ["parentCompositePodGroupName", "preemptionPolicy"];

/// The storage version of these objects in earlier releases of Berth.
pub const STORED_BEFORE: &str = "scheduling.k8s.io/v1alpha2";

/// An object of v1beta1 from one of v1alpha2.
pub fn from_v1alpha2(mut object: Value) -> Value {
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

/// An object of v1alpha2 from an object of v1beta1. Fields that v1alpha2 does not have are dropped.
pub(crate) fn to_v1alpha2(object: &Value) -> Value {
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
        remove(spec, "workloadRef");
        for field in UNSHOWN {
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

/// Gives an object that was written in v1alpha2 the fields that this version does not show, as they are stored. Without
/// them, an update would remove them, and they cannot be changed.
pub fn keep_unshown(new: &mut Value, old: &Value) {
    let is_workload = new.text("kind") == "Workload";
    let before = old.part("spec");
    for spec in specs(new) {
        let name = spec.text("name").to_owned();
        let mut templates = before.items("podGroupTemplates").iter();
        let before = if is_workload {
            templates.find(|template| template.text("name") == name)
        } else {
            Some(before)
        };
        for field in UNSHOWN {
            if let Some(value) = before.and_then(|before| before.field(field)) {
                set_if_absent(spec, field, value.clone());
            }
        }
    }
    if let (Some(spec), Some(value)) = (
        existing(new, "spec"),
        before.field("compositePodGroupTemplates"),
    ) {
        set_if_absent(spec, "compositePodGroupTemplates", value.clone());
    }
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

    #[test]
    fn an_update_keeps_the_fields_that_the_version_does_not_show() {
        let cases = [
            json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "spec": {
                "parentCompositePodGroupName": "c", "preemptionPolicy": "Never", "priority": 1,
            }}),
            json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload", "spec": {
                "podGroupTemplates": [{"name": "a"}, {"name": "b", "preemptionPolicy": "Never"}],
                "compositePodGroupTemplates": [{"name": "c"}],
            }}),
        ];
        for stored in cases {
            let mut written = from_v1alpha2(to_v1alpha2(&stored));
            assert_ne!(written, stored);
            keep_unshown(&mut written, &stored);
            assert_eq!(written, stored);
        }
    }
}
