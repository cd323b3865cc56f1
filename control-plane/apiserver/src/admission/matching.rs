//! The requests that webhooks and policies receive: rules and selectors.

use crate::admission::RequestObjects;
use crate::registry::Api;
use crate::registry::attributes::{Attributes, WebhookOperation};
use berth_objects::catalog::{ServedResource, find};
use berth_objects::status::ApiError;
use berth_objects::validation::selectors;
use berth_objects::view::FieldView;
use serde_json::{Value, json};
use std::sync::Arc;

/// The requests that a webhook or a policy receives.
#[derive(Debug)]
pub(super) struct Matching {
    rules: Vec<MatchRule>,
    excluded: Vec<MatchRule>,
    matches_equivalents: bool,
    namespaces: Value,
    objects: Value,
}

#[derive(Debug)]
struct MatchRule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    /// The names of objects; empty for all.
    names: Vec<String>,
    scope: String,
}

impl Matching {
    /// The selectors of an object with these rules.
    pub(super) fn new(stated: &Value, rules: &[Value]) -> Self {
        Self {
            rules: rules.iter().map(MatchRule::of).collect(),
            excluded: stated
                .items("excludeResourceRules")
                .iter()
                .map(MatchRule::of)
                .collect(),
            matches_equivalents: stated.text("matchPolicy") != "Exact",
            namespaces: stated.part("namespaceSelector").clone(),
            objects: stated.part("objectSelector").clone(),
        }
    }

    /// The rules that the `matchResources` of a binding state, which match every resource without rules.
    pub(super) fn of_binding(stated: &Value) -> Self {
        let all = json!([{
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
        }]);
        match stated.items("resourceRules") {
            [] => Self::new(stated, all.as_array().map_or(&[], Vec::as_slice)),
            rules => Self::new(stated, rules),
        }
    }

    /// The matched resource and version of the request; `None` if it does not match.
    ///
    /// # Errors
    /// 404 when the labels of the namespace decide and it does not exist.
    pub(super) fn resource(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        objects: RequestObjects<'_>,
    ) -> Result<Option<Arc<ServedResource>>, ApiError> {
        let selected = |object: &Value| selectors::matches(&self.objects, object.part("metadata"));
        if !selectors::is_empty(&self.objects)
            && !objects.new.is_some_and(selected)
            && !objects.old.is_some_and(selected)
        {
            return Ok(None);
        }
        if !self.excluded.is_empty() && self.rule(api, attributes, &self.excluded).is_some() {
            return Ok(None);
        }
        let Some(resource) = self.rule(api, attributes, &self.rules) else {
            return Ok(None);
        };
        let is_received = self.is_in_namespace(api, attributes, objects.new.or(objects.old))?;
        Ok(is_received.then_some(resource))
    }

    /// The resource of the first matching rule: the requested resource, or an equivalent one.
    fn rule(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        rules: &[MatchRule],
    ) -> Option<Arc<ServedResource>> {
        let requested = attributes.resource;
        let catalog = api.catalog();
        let same =
            |r: &ServedResource| (r.resource, r.version) == (requested.resource, requested.version);
        let shares = |r: &ServedResource| {
            r.store.is_some() && (r.store, &r.prefix) == (requested.store, &requested.prefix)
        };
        let matching =
            |resource: &ServedResource| rules.iter().any(|rule| rule.matches(attributes, resource));
        let mut all = catalog.resources().iter();
        if matching(requested) {
            return all.find(|r| same(r)).cloned();
        }
        if !self.matches_equivalents {
            return None;
        }
        all.find(|r| shares(r) && !same(r) && matching(r)).cloned()
    }

    fn is_in_namespace(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<bool, ApiError> {
        if selectors::is_empty(&self.namespaces) || attributes.namespace.is_empty() {
            return Ok(true);
        }
        let writes = matches!(
            attributes.operation,
            WebhookOperation::Create | WebhookOperation::Update
        );
        if attributes.is_of_namespace() && attributes.sub.is_empty() && writes {
            let metadata = object.map_or(&Value::Null, |object| object.part("metadata"));
            return Ok(selectors::matches(&self.namespaces, metadata));
        }
        let namespaces = find("", "namespaces").ok_or_else(ApiError::no_such_resource)?;
        let namespace = api.get(namespaces, "", attributes.namespace)?;
        let namespace = namespace.object();
        let metadata = namespace.part("metadata");
        Ok(selectors::matches(&self.namespaces, metadata))
    }
}

impl MatchRule {
    fn of(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            rule.strings(field).into_iter().map(str::to_owned).collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            scope: rule.text("scope").to_owned(),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, resource: &ServedResource) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|e| e == "*" || e == wanted);
        let is_of_cluster = attributes.namespace.is_empty() || attributes.is_of_namespace();
        let in_scope = match self.scope.as_str() {
            "Cluster" => is_of_cluster,
            "Namespaced" => !is_of_cluster,
            _ => true,
        };
        let is_named = |name: &String| name == attributes.name;
        in_scope
            && (self.names.is_empty() || self.names.iter().any(is_named))
            && has(&self.operations, attributes.operation.text())
            && has(&self.groups, resource.resource.group)
            && has(&self.versions, resource.version)
            && self.resources.iter().any(|entry| {
                let (plural, sub) = entry.split_once('/').unwrap_or((entry, ""));
                let is = |pattern: &str, text: &str| pattern == "*" || pattern == text;
                is(plural, resource.resource.resource) && is(sub, attributes.sub)
            })
    }
}
