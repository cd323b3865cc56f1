//! Group scheduling in the API: its feature gates, the served versions of its kinds, and fields whose gate is off.
//! Follows KEP-4671, KEP-5732, KEP-6012 and KEP-5547.

use crate::access::{GroupResource, gr};
use crate::catalog::{Catalog, ServedResource};
use crate::releases::ApiRelease;
use crate::schema::GroupVersionKind;
use crate::schema::Schemas;
use crate::schema::model::{ListType, Model, TypeId, ValueShape};
use crate::view::{FieldView, existing, remove};
use berth_api::Release;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::sync::Arc;

/// The API group of Workloads, PodGroups and CompositePodGroups.
pub const GROUP: &str = "scheduling.k8s.io";

/// The finalizer of PodGroups.
pub const GROUP_PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";
/// The finalizer of CompositePodGroups.
pub const COMPOSITE_PROTECTION: &str = "scheduling.k8s.io/compositepodgroup-protection";

/// PodGroups.
pub(crate) const GROUPS: GroupResource = gr(GROUP, "podgroups");
/// CompositePodGroups.
pub(crate) const COMPOSITES: GroupResource = gr(GROUP, "compositepodgroups");

/// The finalizer that a new group gets.
pub fn finalizer(resource: GroupResource) -> Option<&'static str> {
    match resource {
        GROUPS => Some(GROUP_PROTECTION),
        COMPOSITES => Some(COMPOSITE_PROTECTION),
        _ => None,
    }
}

/// The group that an object belongs to: its kind, where it is stored, and its name.
pub fn parent_of(object: &Value) -> Option<(&'static str, GroupResource, &str)> {
    let spec = object.part("spec");
    match object.text("kind") {
        "Pod" => {
            let name = spec.part("schedulingGroup").maybe_text("podGroupName")?;
            Some(("PodGroup", GROUPS, name))
        }
        "PodGroup" | "CompositePodGroup" => {
            let name = spec.maybe_text("parentCompositePodGroupName")?;
            Some(("CompositePodGroup", COMPOSITES, name))
        }
        _ => None,
    }
}

/// The feature gates of group scheduling, as the API server and the controllers read them. All are on by default, with
/// every release: `berth up` has group scheduling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupGates {
    /// Workloads, PodGroups, and pods that belong to groups. The other gates need it.
    pub generic_workload: bool,
    /// Groups are placed in one domain of a topology.
    pub topology_aware_workload_scheduling: bool,
    /// Groups of groups.
    pub composite_pod_group: bool,
    /// Groups have a preemption policy.
    pub pod_group_preemption_policy: bool,
    /// Resource claims of groups.
    pub dra_workload_resource_claims: bool,
    /// Jobs are scheduled as groups.
    pub workload_with_job: bool,
}

impl Default for GroupGates {
    fn default() -> Self {
        Self {
            generic_workload: true,
            topology_aware_workload_scheduling: true,
            composite_pod_group: true,
            pod_group_preemption_policy: true,
            dra_workload_resource_claims: true,
            workload_with_job: true,
        }
    }
}

impl GroupGates {
    /// No group scheduling.
    pub const OFF: Self = Self {
        generic_workload: false,
        topology_aware_workload_scheduling: false,
        composite_pod_group: false,
        pod_group_preemption_policy: false,
        dra_workload_resource_claims: false,
        workload_with_job: false,
    };

    /// Returns whether a gate is on, by its name in Kubernetes. Gates of other features are.
    pub fn has(&self, gate: &str) -> bool {
        let own = match gate {
            "TopologyAwareWorkloadScheduling" => self.topology_aware_workload_scheduling,
            "CompositePodGroup" => self.composite_pod_group,
            "PodGroupPreemptionPolicy" => self.pod_group_preemption_policy,
            "DRAWorkloadResourceClaims" => self.dra_workload_resource_claims,
            "WorkloadWithJob" => self.workload_with_job,
            "GenericWorkload" => true,
            _ => return true,
        };
        own && self.generic_workload
    }
}

/// A served version of some kinds.
struct ServedVersion {
    version: &'static str,
    plurals: &'static [&'static str],
    gate: &'static str,
    /// The last release that serves it.
    last: Release,
}

/// The versions, with the gate that each needs.
const SERVED: [ServedVersion; 4] = [
    ServedVersion {
        version: "v1beta1",
        plurals: &["podgroups", "workloads"],
        gate: "GenericWorkload",
        last: Release::NEWEST,
    },
    ServedVersion {
        version: "v1alpha3",
        plurals: &["podgroups", "workloads"],
        gate: "GenericWorkload",
        last: Release::NEWEST,
    },
    ServedVersion {
        version: "v1alpha3",
        plurals: &["compositepodgroups"],
        gate: "CompositePodGroup",
        last: Release::NEWEST,
    },
    ServedVersion {
        version: "v1alpha2",
        plurals: &["podgroups", "workloads"],
        gate: "GenericWorkload",
        last: Release::V1_36,
    },
];

/// Returns whether a release with these gates serves a resource. Resources of other features are served always.
fn is_served(resource: &ServedResource, release: Release, gates: GroupGates) -> bool {
    let (group, plural) = (resource.resource.group, resource.resource.resource);
    let is_of_groups = |served: &&ServedVersion| served.plurals.contains(&plural);
    if group != GROUP || !SERVED.iter().any(|served| is_of_groups(&served)) {
        return true;
    }
    let mut versions = SERVED.iter().filter(is_of_groups);
    versions.any(|served| {
        served.version == resource.version && release <= served.last && gates.has(served.gate)
    })
}

/// The resources of Kubernetes that a release with these gates serves.
pub fn catalog(api: ApiRelease, gates: GroupGates) -> Arc<Catalog> {
    let all = Catalog::of_release(api);
    Arc::new(all.filtered(|resource| is_served(resource, api.release(), gates)))
}

/// The fields of the pods of a kind that makes pods.
fn pod_spec<'o>(kind: &str, object: &'o mut Value) -> Option<&'o mut Value> {
    let path = match kind {
        "Pod" => "/spec",
        "PodTemplate" => "/template/spec",
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        "DaemonSet"
        | "Deployment"
        | "Job"
        | "ReplicaSet"
        | "ReplicationController"
        | "StatefulSet" => "/spec/template/spec",
        _ => return None,
    };
    object.pointer_mut(path)
}

/// Drops the fields of a new object whose gate is off. An update keeps the fields that the object already has.
pub fn drop_disabled(
    gates: GroupGates,
    resource: &ServedResource,
    object: &mut Value,
    old: Option<&Value>,
) {
    if gates == GroupGates::default() || resource.custom.is_some() {
        return;
    }
    let kind = resource.kind;
    if !gates.has("GenericWorkload") {
        let mut before = old.cloned();
        let before = before.as_mut().and_then(|old| pod_spec(kind, old));
        let had = before.is_some_and(|spec| spec.field("schedulingGroup").is_some());
        if let Some(spec) = pod_spec(kind, object).filter(|_| !had) {
            remove(spec, "schedulingGroup");
        }
    }
    let schemas = Schemas::get();
    if let Some(id) = schemas.find(GroupVersionKind::new(
        resource.resource.group,
        resource.version,
        kind,
    )) {
        drop_fields(schemas.model(), gates, id, object, old);
    }
}

fn drop_fields(
    model: &Model,
    gates: GroupGates,
    id: TypeId,
    object: &mut Value,
    old: Option<&Value>,
) {
    let object_type = model.object_type(id);
    // Other types have no gates here.
    if !["scheduling.", "batch.v1."]
        .iter()
        .any(|of| object_type.name.starts_with(of))
    {
        return;
    }
    for field in &object_type.fields {
        let before = old.and_then(|old| old.field(&field.name));
        let is_off = field.marker("gate").is_some_and(|gate| !gates.has(gate));
        if is_off && before.is_none() {
            remove(object, &field.name);
        }
        match &field.shape {
            ValueShape::Object(id) => {
                if let Some(value) = existing(object, &field.name) {
                    drop_fields(model, gates, *id, value, before);
                }
            }
            ValueShape::List(entries) => {
                let (ValueShape::Object(id), Some(Value::Array(list))) =
                    (&**entries, object.get_mut(&*field.name))
                else {
                    continue;
                };
                let keys = match &field.list {
                    ListType::Map(keys) => keys.as_slice(),
                    _ => &[],
                };
                // The entries of before by their keys, of equal ones the first.
                let mut known: FxHashMap<Vec<Option<&Value>>, &Value> = FxHashMap::default();
                for old in before.and_then(Value::as_array).into_iter().flatten() {
                    let keys = keys.iter().map(|key| old.get(&**key)).collect();
                    known.entry(keys).or_insert(old);
                }
                for entry in list {
                    let keys: Vec<Option<&Value>> =
                        keys.iter().map(|key| entry.get(&**key)).collect();
                    let before = known.get(&keys).copied();
                    drop_fields(model, gates, *id, entry, before);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn versions(release: Release, gates: GroupGates) -> Vec<String> {
        let catalog = catalog(ApiRelease::of(release), gates);
        let of_groups = catalog
            .resources()
            .iter()
            .filter(|r| r.resource.group == GROUP);
        let names = of_groups.map(|r| format!("{}/{}", r.version, r.resource.resource));
        names.filter(|name| name != "v1/priorityclasses").collect()
    }

    #[test]
    fn kinds_are_served_by_release_and_gate_the_stable_versions_first() {
        let beta = ["v1beta1/podgroups", "v1beta1/workloads"];
        let alpha = ["v1alpha3/podgroups", "v1alpha3/workloads"];
        let all = [&beta[..], &["v1alpha3/compositepodgroups"], &alpha].concat();
        for release in [Release::V1_37, Release::V1_38] {
            assert_eq!(versions(release, GroupGates::default()), all);
        }
        let old = ["v1alpha2/podgroups", "v1alpha2/workloads"];
        let with_old = [&all[..], &old].concat();
        assert_eq!(versions(Release::V1_36, GroupGates::default()), with_old);
        let without_composite = GroupGates {
            composite_pod_group: false,
            ..GroupGates::default()
        };
        let expected = [beta, alpha].concat();
        assert_eq!(versions(Release::V1_38, without_composite), expected);
        assert_eq!(versions(Release::V1_36, GroupGates::OFF), [""; 0]);
    }

    #[test]
    fn fields_of_gates_that_are_off_are_dropped_unless_the_object_has_them() {
        let resource = crate::catalog::find(GROUP, "workloads").expect("is served");
        let gates = GroupGates {
            topology_aware_workload_scheduling: false,
            ..GroupGates::default()
        };
        let template = |name: &str| json!({"name": name, "schedulingConstraints": {"topology": [{"key": "rack"}]}, "priority": 1});
        let object = |names: &[&str]| {
            let templates: Vec<Value> = names.iter().map(|name| template(name)).collect();
            json!({"spec": {"podGroupTemplates": templates}})
        };
        let constrained = |object: &Value| -> Vec<bool> {
            let templates = object["spec"].items("podGroupTemplates").iter();
            let has = |t: &Value| t.field("schedulingConstraints").is_some();
            templates.map(has).collect()
        };
        let mut new = object(&["a", "b"]);
        drop_disabled(gates, resource, &mut new, None);
        assert_eq!(constrained(&new), [false, false]);
        assert_eq!(new["spec"]["podGroupTemplates"][0]["priority"], 1);
        let mut update = object(&["a", "b"]);
        drop_disabled(gates, resource, &mut update, Some(&object(&["b"])));
        assert_eq!(constrained(&update), [false, true]);
    }

    #[test]
    fn pods_join_no_group_without_the_gate() {
        let resource = |group, plural| crate::catalog::find(group, plural).expect("is served");
        let spec = json!({"schedulingGroup": {"podGroupName": "g"}});
        let mut pod = json!({"spec": spec});
        drop_disabled(GroupGates::OFF, resource("", "pods"), &mut pod, None);
        assert_eq!(pod, json!({"spec": {}}));
        let old = json!({"spec": spec});
        let mut pod = old.clone();
        drop_disabled(GroupGates::OFF, resource("", "pods"), &mut pod, Some(&old));
        assert_eq!(pod, old);
        let mut job = json!({"spec": {"template": {"spec": spec}, "scheduling": {"schedulingPolicy": {"basic": {}}}}});
        drop_disabled(GroupGates::OFF, resource("batch", "jobs"), &mut job, None);
        assert_eq!(job, json!({"spec": {"template": {"spec": {}}}}));
    }
}
