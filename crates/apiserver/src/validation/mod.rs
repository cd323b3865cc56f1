//! The rules of the kinds: defaulting, preparation and validation.
//!
//! [`strategy`] gives the rules of a kind; [`metadata`] holds those that all kinds share. Errors come in
//! upstream's order with upstream's texts, because clients compare both. Objects are brought into the form that a
//! round trip through Kubernetes' Go types would give them before anything else looks at them.

mod amounts;
mod claims;
mod config;
mod devices;
pub(crate) mod engine;
mod errors;
pub(crate) mod events;
mod job;
pub mod metadata;
pub(crate) mod names;
mod node;
mod normal;
pub mod pod;
mod selectors;
mod service;
mod service_rules;
mod sets;
mod small;
pub(crate) mod view;
mod volumes;
mod workloads;

use crate::access::GroupResource;
use crate::field::FieldError;
use crate::schema::Schemas;
use crate::strategy::{Plain, RequestContext, Strategy, Subresource};
pub(crate) use engine::CheckFn;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::sync::LazyLock;

/// Finds the faults of a string.
pub(crate) type Format = fn(&str) -> Vec<String>;

/// A format by the name that the rules give it.
pub(crate) fn format(name: &str) -> Option<Format> {
    Some(match name {
        "config-key" => names::config_key,
        "dns-label" | "short-name" => names::dns_label,
        "dns-subdomain" | "long-name" => names::dns_subdomain,
        "env-name" => names::env_var_name,
        "label-key" | "qualified-name" => names::qualified_name,
        "label-value" => names::label_value,
        "path-segment-name" => |name| names::path_segment(name, false),
        "port-name" => names::port_name,
        _ => return None,
    })
}

/// A check by the name that the rules give it.
pub(crate) fn check_fn(_name: &str) -> Option<CheckFn> {
    None
}

/// A function that fills in defaults by the name that the rules give it.
pub(crate) fn default_fn(_name: &str) -> Option<fn(&mut Value)> {
    None
}

/// The rules of a kind: those that the tables state, then what only code can say.
pub fn strategy(kind: GroupResource) -> &'static dyn Strategy {
    static RULES: LazyLock<FxHashMap<GroupResource, Rules>> = LazyLock::new(|| {
        let resources = crate::registry::built_in().resources().iter();
        resources
            .map(|r| {
                let kind = (r.resource.group, r.version, r.kind);
                let code = of_code(r.resource);
                (r.resource, Rules { kind, code })
            })
            .collect()
    });
    match RULES.get(&kind) {
        Some(rules) => rules,
        None => &Plain,
    }
}

/// What only code can say of a kind.
fn of_code(kind: GroupResource) -> &'static dyn Strategy {
    match (kind.group, kind.resource) {
        ("", "configmaps") => &config::ConfigMapStrategy,
        ("", "events") | ("events.k8s.io", "events") => &small::EventStrategy,
        ("", "namespaces") => &small::NamespaceStrategy,
        ("", "nodes") => &node::NodeStrategy,
        ("", "persistentvolumeclaims") => &volumes::ClaimStrategy,
        ("", "persistentvolumes") => &volumes::VolumeStrategy,
        ("", "pods") => &pod::PodStrategy,
        ("", "replicationcontrollers") => &workloads::ReplicationControllerStrategy,
        ("", "secrets") => &config::SecretStrategy,
        ("", "serviceaccounts") => &config::ServiceAccountStrategy,
        ("", "services") => &service::ServiceStrategy,
        ("apps", "daemonsets") => &sets::DaemonSetStrategy,
        ("apps", "deployments") => &workloads::DeploymentStrategy,
        ("apps", "replicasets") => &workloads::ReplicaSetStrategy,
        ("apps", "statefulsets") => &sets::StatefulSetStrategy,
        ("batch", "jobs") => &job::JobStrategy,
        ("coordination.k8s.io", "leases") => &small::LeaseStrategy,
        ("policy", "poddisruptionbudgets") => &small::DisruptionBudgetStrategy,
        ("resource.k8s.io", "deviceclasses") => &devices::DeviceClassStrategy,
        ("resource.k8s.io", "resourceslices") => &devices::ResourceSliceStrategy,
        ("resource.k8s.io", "resourceclaims") => &claims::ResourceClaimStrategy,
        ("resource.k8s.io", "resourceclaimtemplates") => &claims::ResourceClaimTemplateStrategy,
        ("scheduling.k8s.io", "priorityclasses") => &small::PriorityClassStrategy,
        ("storage.k8s.io", "storageclasses") => &volumes::StorageClassStrategy,
        _ => &Plain,
    }
}

/// The rules of the tables for a kind, and its code.
struct Rules {
    kind: (&'static str, &'static str, &'static str),
    code: &'static dyn Strategy,
}

impl Strategy for Rules {
    fn default(&self, object: &mut Value) {
        let (group, version, kind) = self.kind;
        let schemas = Schemas::get();
        schemas.normalize(group, version, kind, object);
        schemas.fill_defaults(group, version, kind, object);
        self.code.default(object);
    }

    fn prepare_for_create(&self, object: &mut Value, cx: &RequestContext) {
        self.code.prepare_for_create(object, cx);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = engine::run(self.kind, object, None, Subresource::Main).into_vec();
        errors.extend(self.code.validate(object));
        errors
    }

    fn prepare_for_update(
        &self,
        new: &mut Value,
        old: &Value,
        subresource: Subresource,
        cx: &RequestContext,
    ) {
        self.code.prepare_for_update(new, old, subresource, cx);
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = engine::run(self.kind, new, Some(old), subresource).into_vec();
        errors.extend(self.code.validate_update(new, old, subresource));
        errors
    }

    fn grace_period_seconds(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        self.code.grace_period_seconds(object, requested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::gr;
    use serde_json::json;

    const KINDS: &[(&str, &str)] = &[
        ("", "configmaps"),
        ("", "events"),
        ("", "namespaces"),
        ("", "nodes"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "pods"),
        ("", "replicationcontrollers"),
        ("", "secrets"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("batch", "jobs"),
        ("coordination.k8s.io", "leases"),
        ("policy", "poddisruptionbudgets"),
        ("resource.k8s.io", "deviceclasses"),
        ("resource.k8s.io", "resourceslices"),
        ("resource.k8s.io", "resourceclaims"),
        ("resource.k8s.io", "resourceclaimtemplates"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("storage.k8s.io", "storageclasses"),
        ("example.com", "unknown"),
    ];

    fn run_all(kind: &(&'static str, &'static str), object: &Value) -> Value {
        let rules = strategy(gr(kind.0, kind.1));
        let cx = RequestContext {
            now: "2026-01-01T00:00:00Z".to_owned(),
            namespace: "default".to_owned(),
        };
        let mut created = object.clone();
        rules.default(&mut created);
        let defaulted = created.clone();
        rules.prepare_for_create(&mut created, &cx);
        rules.validate(&created);
        for subresource in [Subresource::Main, Subresource::Status] {
            let mut new = object.clone();
            rules.default(&mut new);
            rules.prepare_for_update(&mut new, &created, subresource, &cx);
            rules.validate_update(&new, &created, subresource);
            rules.validate_update(&created, &new, subresource);
        }
        rules.grace_period_seconds(&created, None);
        defaulted
    }

    #[test]
    fn no_shape_of_an_object_makes_the_rules_panic() {
        let odd = [
            json!(null),
            json!(-1),
            json!("é\u{0}"),
            json!([[], {}, null, 1, "x"]),
            json!({"": {"a": [null]}}),
        ];
        let names = [
            "metadata",
            "spec",
            "status",
            "data",
            "labels",
            "template",
            "containers",
            "affinity",
            "tolerations",
            "volumes",
            "ports",
            "selector",
            "nodeSelector",
            "resources",
            "devices",
            "requests",
            "limits",
            "schedulingGates",
            "topologySpreadConstraints",
            "strategy",
            "value",
            "taints",
            "name",
        ];
        for kind in KINDS {
            for value in &odd {
                run_all(kind, value);
                for name in names {
                    run_all(kind, &json!({name: value, "metadata": {"name": "x"}}));
                    run_all(kind, &json!({"spec": {name: value}}));
                    run_all(
                        kind,
                        &json!({"spec": {"template": {"spec": {name: value}}}}),
                    );
                    run_all(
                        kind,
                        &json!({"spec": {"containers": [{name: value}], "volumes": [{name: value}]}}),
                    );
                }
            }
        }
    }

    #[test]
    fn defaults_are_the_same_the_second_time() {
        let objects = [
            json!({"metadata": {"name": "x"}}),
            json!({"metadata": {"name": "x"}, "spec": {}}),
            json!({"metadata": {"name": "x"}, "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "ports": [{"port": 80}],
                "containers": [{"name": "c", "image": "a"}],
                "template": {"metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "a"}]}},
            }}),
        ];
        for kind in KINDS {
            for object in &objects {
                let once = run_all(kind, object);
                assert_eq!(run_all(kind, &once), once, "{kind:?}");
            }
        }
    }
}
