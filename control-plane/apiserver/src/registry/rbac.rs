//! Authorization by roles (RBAC), and the roles that every cluster has.
//!
//! Rules are read for each request from the stored roles and bindings. A role with an `aggregationRule` has the rules
//! of the roles that it selects. Members of `system:masters` have all permissions.

use super::api::Api;
use super::list::ListRequest;
use crate::auth::user::groups_of;
use crate::auth::{Authorization, RequestUser};
use crate::storage::ObjectVersion;
use berth_objects::catalog;
use berth_objects::selectors::workload::ControllerSelector;
use berth_objects::status::{ApiError, StatusSubject};
use berth_objects::view::{FieldView, meta};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const GROUP: &str = "rbac.authorization.k8s.io";
const BOOTSTRAP: &str = include_str!("../../facts/rbac.txt");

/// The attributes of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestAttributes<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) sub: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The path of a request that is not about a resource; then the fields above, but for the verb, are empty.
    pub(crate) path: &'a str,
}

impl RequestAttributes<'_> {
    fn qualified(&self) -> String {
        match self.sub {
            "" => self.resource.to_owned(),
            sub => format!("{}/{sub}", self.resource),
        }
    }

    /// 403 for this user.
    pub(crate) fn forbidden(&self, user: &RequestUser) -> ApiError {
        let (user, verb) = (&user.name, self.verb);
        if !self.path.is_empty() {
            let path = self.path;
            return ApiError::forbidden_path(format!("User {user:?} cannot {verb} path {path:?}"));
        }
        let place = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let subject = StatusSubject {
            group: self.group,
            resource: self.resource,
            name: self.name,
        };
        let message = format!(
            "User {user:?} cannot {verb} resource {:?} in API group {:?} {place}",
            self.qualified(),
            self.group
        );
        ApiError::forbidden(subject, &message)
    }
}

/// Returns whether a list of a rule has an entry, or `*`.
fn lists(rule: &Value, field: &str, entry: &str) -> bool {
    let mut entries = rule.items(field).iter().filter_map(Value::as_str);
    entries.any(|known| known == "*" || known == entry)
}

fn allows(rule: &Value, asked: &RequestAttributes<'_>) -> bool {
    if !lists(rule, "verbs", asked.verb) {
        return false;
    }
    if !asked.path.is_empty() {
        let mut paths = rule
            .items("nonResourceURLs")
            .iter()
            .filter_map(Value::as_str);
        return paths.any(|known| match known.strip_suffix('*') {
            Some(prefix) => asked.path.starts_with(prefix),
            None => known == asked.path,
        });
    }
    let all_subs = format!("*/{}", asked.sub);
    let resource = asked.qualified();
    let names = rule.items("resourceNames");
    lists(rule, "apiGroups", asked.group)
        && (lists(rule, "resources", &resource)
            || (!asked.sub.is_empty() && rule.items("resources").iter().any(|r| *r == *all_subs)))
        && (names.is_empty() || (!asked.name.is_empty() && names.iter().any(|n| n == asked.name)))
}

/// Returns whether a binding in `namespace` names the user.
fn names_user(subject: &Value, namespace: &str, user: &RequestUser) -> bool {
    let name = subject.text("name");
    match subject.text("kind") {
        "User" => name == user.name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            let namespace = match subject.text("namespace") {
                "" => namespace,
                given => given,
            };
            user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn stored(api: &Api, plural: &str, namespace: Option<&str>) -> Vec<Arc<ObjectVersion>> {
    let request = ListRequest {
        namespace,
        ..ListRequest::default()
    };
    let listed = catalog::find(GROUP, plural).and_then(|r| api.list(r, &request).ok());
    listed.map(|l| l.items).unwrap_or_default()
}

/// The rules of the role of a binding, and of all roles that it aggregates, directly or indirectly.
fn rules_of(api: &Api, reference: &Value, namespace: &str) -> Vec<Value> {
    let (plural, namespace) = match reference.text("kind") {
        "Role" => ("roles", namespace),
        _ => ("clusterroles", ""),
    };
    let found = catalog::find(GROUP, plural)
        .and_then(|roles| api.get(roles, namespace, reference.text("name")).ok());
    let mut pending: Vec<Arc<ObjectVersion>> = found.into_iter().collect();
    // Roles may select each other.
    let mut seen = BTreeSet::new();
    let mut rules = Vec::new();
    while let Some(role) = pending.pop() {
        let role = &*role.object();
        if !seen.insert(meta(role, "name").to_owned()) {
            continue;
        }
        rules.extend_from_slice(role.items("rules"));
        let selectors = role.part("aggregationRule").items("clusterRoleSelectors");
        let selectors: Vec<ControllerSelector> =
            selectors.iter().map(ControllerSelector::parse).collect();
        if !selectors.is_empty() {
            let mut others = stored(api, "clusterroles", None);
            others.retain(|other| {
                let other = other.object();
                let labels = other.part("metadata").map("labels");
                selectors.iter().any(|s| s.matches(labels))
            });
            pending.append(&mut others);
        }
    }
    rules
}

/// The rules that a user has in a namespace, or, with an empty one, in the whole cluster.
pub(crate) fn rules(api: &Api, user: &RequestUser, namespace: &str) -> Vec<Value> {
    let mut bindings = stored(api, "clusterrolebindings", None);
    if !namespace.is_empty() {
        bindings.extend(stored(api, "rolebindings", Some(namespace)));
    }
    bindings
        .iter()
        .map(|binding| binding.object())
        .filter(|binding| {
            let mut subjects = binding.items("subjects").iter();
            subjects.any(|s| names_user(s, meta(binding, "namespace"), user))
        })
        .flat_map(|binding| rules_of(api, binding.part("roleRef"), meta(&binding, "namespace")))
        .collect()
}

/// Returns whether a user has the permission for a request.
pub(crate) fn is_allowed(api: &Api, user: &RequestUser, asked: &RequestAttributes<'_>) -> bool {
    user.is_master()
        || api.authorization == Authorization::AlwaysAllow
        || rules(api, user, asked.namespace)
            .iter()
            .any(|rule| allows(rule, asked))
}

/// # Errors
/// 403 when the user may not do this.
pub(crate) fn authorize(
    api: &Api,
    user: &RequestUser,
    asked: &RequestAttributes<'_>,
) -> Result<(), ApiError> {
    if is_allowed(api, user, asked) {
        Ok(())
    } else {
        Err(asked.forbidden(user))
    }
}

/// The sender of a request, or the impersonated user.
///
/// # Errors
/// 403 when the sender may not impersonate that user.
pub(crate) fn acting_user(
    api: &Api,
    sender: RequestUser,
    impersonated: Option<RequestUser>,
) -> Result<RequestUser, ApiError> {
    let Some(user) = impersonated else {
        return Ok(sender);
    };
    let account = user.name.strip_prefix("system:serviceaccount:");
    let account = account.and_then(|rest| rest.split_once(':'));
    let (resource, namespace, name) = match account {
        Some((namespace, name)) => ("serviceaccounts", namespace, name),
        None => ("users", "", user.name.as_str()),
    };
    let asked = |group, resource, namespace, name| RequestAttributes {
        verb: "impersonate",
        group,
        resource,
        namespace,
        name,
        ..RequestAttributes::default()
    };
    authorize(api, &sender, &asked("", resource, namespace, name))?;
    // The implied groups of a name need no separate permission.
    let implied = groups_of(&user.name);
    for group in user.groups.iter().filter(|group| !implied.contains(group)) {
        authorize(api, &sender, &asked("", "groups", "", group))?;
    }
    if !user.uid.is_empty() {
        authorize(
            api,
            &sender,
            &asked("authentication.k8s.io", "uids", "", &user.uid),
        )?;
    }
    for (key, values) in &user.extra {
        for value in values {
            let asked = RequestAttributes {
                sub: key,
                ..asked("authentication.k8s.io", "userextras", "", value)
            };
            authorize(api, &sender, &asked)?;
        }
    }
    Ok(user)
}

/// The roles and bindings that every cluster has: their plural names and objects.
pub(super) fn bootstrap() -> Vec<(&'static str, Value)> {
    let object = |kind: &str, name: &str, namespace: &str| {
        let mut object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
                "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            },
        });
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    };
    let list = |word: &str| -> Vec<String> {
        let entries = word.split(',').map(|entry| entry.trim_start_matches('-'));
        entries.map(str::to_owned).collect()
    };
    let option = |options: &[&'static str], key: &str| -> &'static str {
        let mut pairs = options.iter().filter_map(|option| option.split_once('='));
        pairs
            .find(|(k, _)| *k == key)
            .map_or("", |(_, value)| value)
    };
    let aggregate = |label: &str| format!("rbac.authorization.k8s.io/aggregate-to-{label}");
    let mut objects: Vec<(&'static str, Value)> = Vec::new();
    for line in BOOTSTRAP.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&'static str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["role", name, options @ ..] => {
                let (plural, kind) = match option(options, "namespace") {
                    "" => ("clusterroles", "ClusterRole"),
                    _ => ("roles", "Role"),
                };
                let mut role = object(kind, name, option(options, "namespace"));
                match option(options, "label") {
                    "" => {}
                    label => role["metadata"]["labels"][aggregate(label)] = "true".into(),
                }
                match option(options, "aggregates") {
                    "" => {}
                    label => {
                        let labels: Map<String, Value> =
                            [(aggregate(label), "true".into())].into_iter().collect();
                        role["aggregationRule"] =
                            json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
                    }
                }
                objects.push((plural, role));
            }
            ["bind", name, options @ ..] => {
                let (plural, kind, role_kind) = match option(options, "namespace") {
                    "" => ("clusterrolebindings", "ClusterRoleBinding", "ClusterRole"),
                    _ => ("rolebindings", "RoleBinding", "Role"),
                };
                let mut binding = object(kind, name, option(options, "namespace"));
                let role = match option(options, "role") {
                    "" => *name,
                    role => role,
                };
                binding["roleRef"] = json!({"apiGroup": GROUP, "kind": role_kind, "name": role});
                let subjects = options.iter().filter_map(|s| s.split_once('='));
                let subjects: Vec<Value> = subjects
                    .filter_map(|(kind, name)| {
                        Some(match kind {
                            "user" => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
                            "group" => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
                            "account" => {
                                let namespace = option(options, "namespace");
                                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
                            }
                            _ => return None,
                        })
                    })
                    .collect();
                binding["subjects"] = subjects.into();
                objects.push((plural, binding));
            }
            ["url", verbs, paths] => {
                let rule = json!({"verbs": list(verbs), "nonResourceURLs": list(paths)});
                push_rule(&mut objects, rule);
            }
            [verbs, groups, resources, options @ ..] => {
                let mut rule = json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources)});
                match option(options, "names") {
                    "" => {}
                    names => rule["resourceNames"] = list(names).into(),
                }
                push_rule(&mut objects, rule);
            }
            _ => {}
        }
    }
    objects
}

fn push_rule(objects: &mut [(&'static str, Value)], rule: Value) {
    if let Some((_, role)) = objects.last_mut() {
        let mut rules = role.items("rules").to_vec();
        rules.push(rule);
        role["rules"] = rules.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_allow_what_they_list() {
        let rule = |text: &str| -> Value {
            let line: Vec<&str> = text.split(' ').collect();
            let list = |word: &str| -> Vec<String> {
                word.split(',').map(|w| w.replace('-', "")).collect()
            };
            json!({"verbs": list(line[0]), "apiGroups": list(line[1]), "resources": list(line[2]),
                "resourceNames": line.get(3).map(|names| list(names)).unwrap_or_default()})
        };
        let cases = [
            ("get - pods", ("get", "", "pods", "", "x"), true),
            ("get - pods", ("list", "", "pods", "", ""), false),
            ("get apps pods", ("get", "", "pods", "", "x"), false),
            ("* * *", ("escalate", "rbac", "roles", "", ""), true),
            ("get - pods", ("get", "", "pods", "log", "x"), false),
            ("get - pods/log", ("get", "", "pods", "log", "x"), true),
            (
                "update apps */scale",
                ("update", "apps", "deployments", "scale", "x"),
                true,
            ),
            (
                "update apps */scale",
                ("update", "apps", "deployments", "", "x"),
                false,
            ),
            ("get - pods x,y", ("get", "", "pods", "", "y"), true),
            ("get - pods x,y", ("get", "", "pods", "", "z"), false),
            ("list - pods x", ("list", "", "pods", "", ""), false),
        ];
        for (text, (verb, group, resource, sub, name), expect) in cases {
            let asked = RequestAttributes {
                verb,
                group,
                resource,
                sub,
                name,
                ..RequestAttributes::default()
            };
            assert_eq!(allows(&rule(text), &asked), expect, "{text} {asked:?}");
        }
        let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/api/*", "/version"]});
        for (path, expect) in [
            ("/api/v1", true),
            ("/version", true),
            ("/versions", false),
            ("/metrics", false),
        ] {
            let asked = RequestAttributes {
                verb: "get",
                path,
                ..RequestAttributes::default()
            };
            assert_eq!(allows(&urls, &asked), expect, "{path}");
        }
    }
}
