//! Admission: defaults of the cluster for objects before validation, and rejections.
//!
//! Each plugin is a switch of [`Admission`]: NamespaceLifecycle, LimitRanger, ServiceAccount, Priority,
//! DefaultTolerationSeconds, RuntimeClass, ResourceQuota, StorageObjectInUseProtection, PodGroupProtection,
//! DefaultStorageClass, TaintNodesByCondition, and PodTopologyLabels, which is applied at binding. Admission webhooks
//! are in `webhooks`, admission policies in `policies`.

mod groups;
mod limit_range;
mod matching;
mod node_restriction;
mod node_taint;
mod policies;
mod priority;
mod quota;
mod rules;
mod runtime_class;
mod service_account;
mod storage_class;
pub(crate) mod webhooks;

pub use rules::Admission;

use crate::registry::attributes::{AdmissionPlugins, Attributes};
use crate::registry::{Api, ListRequest};
use crate::storage::ObjectVersion;
use berth_objects::access::gr;
use berth_objects::catalog::{self, ServedResource};
use berth_objects::groups::{GROUP, finalizer};
use berth_objects::status::{ApiError, Cause};
use berth_objects::view::{FieldView, at_path, meta_mut};
use berth_objects::well_known::{CLAIM_PROTECTION, NOT_READY, VOLUME_PROTECTION};
use policies::Policies;
use serde_json::{Value, json};
use std::sync::Arc;
use webhooks::Webhooks;

/// The objects of a request.
#[derive(Debug, Clone, Copy)]
struct RequestObjects<'a> {
    /// The object as it is to be stored; `None` for a deletion.
    new: Option<&'a Value>,
    /// The stored object; `None` for a create.
    old: Option<&'a Value>,
}

impl<'a> RequestObjects<'a> {
    fn new(new: Option<&'a Value>, old: Option<&'a Value>) -> Self {
        Self { new, old }
    }
}

/// The tolerated time on a node that is not ready or unreachable.
const TOLERATION_SECONDS: i64 = 300;
/// The field of an object whose deletion was requested.
const DELETED_AT: &str = "/metadata/deletionTimestamp";
const TOLERATED: [&str; 2] = [NOT_READY, "node.kubernetes.io/unreachable"];

/// The objects of a core resource in a namespace.
fn siblings(api: &Api, plural: &str, namespace: &str) -> Vec<Arc<ObjectVersion>> {
    let request = ListRequest {
        namespace: Some(namespace),
        ..ListRequest::default()
    };
    let listed = catalog::find("", plural).and_then(|r| api.list(r, &request).ok());
    listed.map(|l| l.items).unwrap_or_default()
}

/// The name of a new object in errors, when its name may not have been generated yet.
fn given_name(object: &Value) -> &str {
    let metadata = object.part("metadata");
    match metadata.text("name") {
        "" => metadata.text("generateName"),
        name => name,
    }
}

/// The plugins that are on, with the webhooks and the policies of the cluster.
#[derive(Debug)]
struct Plugins {
    rules: Admission,
    webhooks: Webhooks,
    policies: Policies,
}

impl Admission {
    /// The plugins that are on.
    pub fn plugins(self) -> Arc<dyn AdmissionPlugins> {
        Arc::new(Plugins {
            rules: self,
            webhooks: Webhooks::default(),
            policies: Policies::default(),
        })
    }
}

impl AdmissionPlugins for Plugins {
    fn mutate_create(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        object: Value,
    ) -> Result<Value, ApiError> {
        let mut object = object;
        let (resource, namespace) = (attributes.resource, attributes.namespace);
        let rules = resource.stored_as();
        self.set_defaults(api, rules, namespace, &mut object)?;
        let user = &attributes.options.requester().user;
        node_restriction::check(user, resource, "create", &object)?;
        if !webhooks::any(api) {
            return Ok(object);
        }
        let again = |object: &mut Value| self.set_defaults(api, rules, namespace, object);
        let mutated = self.mutate(api, attributes, Some(object), None, again)?;
        Ok(mutated.unwrap_or_default())
    }

    fn mutate_update(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        new: Value,
        old: &Value,
    ) -> Result<Value, ApiError> {
        let mut new = new;
        let rules = attributes.resource.stored_as();
        self.keep_defaults(rules, &mut new, old);
        let again = |new: &mut Value| {
            self.keep_defaults(rules, new, old);
            Ok(())
        };
        self.mutate_changed(api, attributes, new, old, again)
    }

    /// Limit ranges are checked first, then webhooks, then quotas.
    fn validate(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        object: &Value,
        old: Option<&Value>,
        charges: bool,
    ) -> Result<(), ApiError> {
        let (resource, sub) = (attributes.resource.stored_as(), attributes.sub);
        let namespace = attributes.namespace;
        let rules = self.rules;
        let is_deleting = old.is_some_and(|old| at_path(old, DELETED_AT).is_some());
        let is_changed = old.is_some_and(|old| old.get("spec") != object.get("spec"));
        let (bounded, counted) = match (resource.resource.resource, sub) {
            _ if !resource.namespaced || resource.kind == "Event" => (false, false),
            (_, "") if old.is_none() => (true, true),
            ("pods", "") => (false, is_changed),
            ("pods", "resize") => (true, true),
            ("persistentvolumeclaims", "") => (true, is_changed),
            ("services" | "resourceclaims", "") => (false, is_changed),
            _ => (false, false),
        };
        // An update of a deleted object must not fail, or its finalizers could not be removed.
        let is_limited = matches!(resource.kind, "Pod" | "PersistentVolumeClaim");
        if rules.limit_ranger && bounded && is_limited && !is_deleting {
            limit_range::check(api, resource, namespace, object)?;
        }
        if rules.pod_group_protection && sub.is_empty() && old.is_none() {
            groups::check_parent(api, resource, namespace, object)?;
        }
        // Webhooks receive the object with all defaults, before quotas are charged: a rejected write costs no quota.
        self.check_write(api, attributes, object, old)?;
        if rules.resource_quota && counted {
            quota::charge(api, resource, namespace, object, old, !charges)?;
        }
        Ok(())
    }

    fn admit_action(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        body: Value,
    ) -> Result<Value, ApiError> {
        if !webhooks::any(api) {
            return Ok(body);
        }
        let body = self.mutate(api, attributes, Some(body), None, |_| Ok(()))?;
        let body = body.unwrap_or_default();
        self.check(api, attributes, RequestObjects::new(Some(&body), None))?;
        Ok(body)
    }

    fn admit_delete(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        object: &Value,
    ) -> Result<(), ApiError> {
        let user = &attributes.options.requester().user;
        node_restriction::check(user, attributes.resource, "delete", object)?;
        if !webhooks::any(api) {
            return Ok(());
        }
        self.mutate(api, attributes, None, Some(object), |_| Ok(()))?;
        self.check(api, attributes, RequestObjects::new(None, Some(object)))
    }

    fn labels_bound_pods(&self) -> bool {
        self.rules.pod_topology_labels
    }
}

impl Plugins {
    /// The rules for a new object.
    fn set_defaults(
        &self,
        api: &Api,
        resource: &ServedResource,
        namespace: &str,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        let rules = self.rules;
        if rules.namespace_lifecycle && resource.namespaced {
            check_namespace(api, resource, namespace, object)?;
        }
        if resource.resource == gr("", "pods") {
            if rules.limit_ranger {
                limit_range::set_defaults(api, namespace, object)?;
            }
            if rules.service_account {
                service_account::apply(api, resource, namespace, object)?;
            }
            if rules.priority {
                priority::resolve(api, resource, object)?;
            }
            if rules.default_toleration_seconds {
                tolerate(object);
            }
            if rules.runtime_class {
                runtime_class::apply(api, resource, object)?;
            }
        } else if resource.resource == gr("scheduling.k8s.io", "priorityclasses") && rules.priority
        {
            priority::check_class(api, resource, object)?;
        } else if finalizer(resource.resource).is_some() && rules.priority {
            priority::resolve_group(api, resource, object)?;
        }
        match (resource.resource.group, resource.resource.resource) {
            ("", "nodes") if rules.taint_nodes_by_condition => node_taint::add(object),
            ("", "persistentvolumeclaims") if rules.default_storage_class => {
                storage_class::set_default(api, object);
            }
            _ => {}
        }
        let finalizer = match (resource.resource.group, resource.resource.resource) {
            (GROUP, _) if !rules.pod_group_protection => None,
            (GROUP, _) => finalizer(resource.resource),
            _ if !rules.storage_object_in_use_protection => None,
            ("", "persistentvolumeclaims") => Some(CLAIM_PROTECTION),
            ("", "persistentvolumes") => Some(VOLUME_PROTECTION),
            _ => None,
        };
        if let Some(finalizer) = finalizer {
            let finalizers = meta_mut(object).entry("finalizers");
            let finalizers = finalizers.or_insert_with(|| json!([])).as_array_mut();
            if let Some(all) = finalizers.filter(|all| all.iter().all(|f| f != finalizer)) {
                all.push(finalizer.into());
            }
        }
        Ok(())
    }

    /// The rules for a changed object.
    fn keep_defaults(&self, resource: &ServedResource, new: &mut Value, old: &Value) {
        if resource.resource != gr("", "pods") {
            return;
        }
        if self.rules.priority {
            priority::keep(new, old);
        }
        if self.rules.default_toleration_seconds {
            tolerate(new);
        }
    }
}

fn check_namespace(
    api: &Api,
    resource: &ServedResource,
    namespace: &str,
    object: &Value,
) -> Result<(), ApiError> {
    let namespaces = catalog::find("", "namespaces").ok_or_else(ApiError::no_such_resource)?;
    let found = api.get(namespaces, "", namespace)?;
    if at_path(&found.object(), DELETED_AT).is_none() {
        return Ok(());
    }
    let name = object.part("metadata").text("name");
    let error = ApiError::forbidden(
        resource.subject(name),
        &format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ),
    );
    Err(error.with_cause(Cause {
        reason: "NamespaceTerminating",
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    }))
}

fn tolerate(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let had = spec.get("tolerations").and_then(Value::as_array);
    let missing: Vec<Value> = TOLERATED
        .into_iter()
        .filter(|key| !had.into_iter().flatten().any(|t| covers(t, key)))
        .map(|key| {
            json!({
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS,
            })
        })
        .collect();
    if missing.is_empty() {
        return;
    }
    let mut all = had.cloned().unwrap_or_default();
    all.extend(missing);
    spec.insert("tolerations".to_owned(), all.into());
}

/// Returns whether a toleration already refers to the taint `key:NoExecute`.
fn covers(toleration: &Value, key: &str) -> bool {
    let text = |field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or("");
    (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "NoExecute" | "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_are_added_only_where_the_pod_is_silent() {
        let keys = |pod: &Value| -> Vec<String> {
            pod.pointer("/spec/tolerations")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|t| t["key"].as_str().unwrap_or("").to_owned())
                .collect()
        };
        let cases = [
            (json!(null), vec![TOLERATED[0], TOLERATED[1]]),
            (
                json!([{"key": TOLERATED[0], "operator": "Exists", "effect": "NoExecute"}]),
                vec![TOLERATED[0], TOLERATED[1]],
            ),
            (json!([{"operator": "Exists"}]), vec![""]),
            (
                json!([{"operator": "Exists", "effect": "NoSchedule"}]),
                vec!["", TOLERATED[0], TOLERATED[1]],
            ),
        ];
        for (tolerations, expect) in cases {
            let mut pod = json!({"spec": {}});
            if !tolerations.is_null() {
                pod["spec"]["tolerations"] = tolerations;
            }
            tolerate(&mut pod);
            assert_eq!(keys(&pod), expect);
        }
    }
}
