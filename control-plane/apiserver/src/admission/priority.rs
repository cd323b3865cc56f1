//! Priority: from the class that a pod or a group names, or the cluster's default class, to numbers.

use crate::registry::{Api, ListRequest};
use berth_objects::catalog::{self, ServedResource};
use berth_objects::status::ApiError;
use berth_objects::view::FieldView;
use serde_json::{Map, Value};

const PREEMPT: &str = "PreemptLowerPriority";

/// The priority of a pod by its class.
struct Resolved {
    class: Option<String>,
    priority: i64,
    preemption: String,
}

/// Sets `priority`, `preemptionPolicy` and, for the default class, `priorityClassName`.
pub(super) fn resolve(api: &Api, pods: &ServedResource, pod: &mut Value) -> Result<(), ApiError> {
    let name = super::given_name(pod).to_owned();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let forbid = |message: String| Err(ApiError::forbidden(pods.subject(&name), &message));
    let resolved = match class_of(api, spec) {
        Ok(resolved) => resolved,
        Err(message) => return forbid(message),
    };
    let given = spec.maybe_int("priority");
    // A client may state the priority, but only the value of its class.
    if let Some(given) = given
        && given != resolved.priority
    {
        return forbid(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            resolved.priority
        ));
    }
    let given = text(spec, "preemptionPolicy");
    if !given.is_empty() && given != resolved.preemption {
        return forbid(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            resolved.preemption
        ));
    }
    if let Some(class) = resolved.class {
        spec.insert("priorityClassName".to_owned(), class.into());
    }
    spec.insert("priority".to_owned(), resolved.priority.into());
    spec.insert("preemptionPolicy".to_owned(), resolved.preemption.into());
    Ok(())
}

/// The same for a group.
pub(super) fn resolve_group(
    api: &Api,
    groups: &ServedResource,
    group: &mut Value,
) -> Result<(), ApiError> {
    let name = group.part("metadata").text("name").to_owned();
    let Some(spec) = group.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let forbid = |message: String| Err(ApiError::forbidden(groups.subject(&name), &message));
    let resolved = match class_of(api, spec) {
        Ok(resolved) => resolved,
        Err(message) => return forbid(message),
    };
    let given = spec.maybe_int("priority");
    if let Some(given) = given.filter(|given| *given != resolved.priority) {
        return forbid(format!(
            "priority set in the pod group ({given}) must match the priority computed ({}) based on the priority class set in the spec",
            resolved.priority
        ));
    }
    // Groups have a preemption policy only with this gate.
    if api.groups.has("PodGroupPreemptionPolicy") {
        let given = text(spec, "preemptionPolicy");
        if !given.is_empty() && given != resolved.preemption {
            return forbid(format!(
                "preemptionPolicy set in the pod group ({given}) must match the preemptionPolicy computed ({}) based on the priority class set in the spec",
                resolved.preemption
            ));
        }
        spec.insert("preemptionPolicy".to_owned(), resolved.preemption.into());
    }
    if let Some(class) = resolved.class {
        spec.insert("priorityClassName".to_owned(), class.into());
    }
    spec.insert("priority".to_owned(), resolved.priority.into());
    Ok(())
}

/// The class of a spec, or the default class.
fn class_of(api: &Api, spec: &Map<String, Value>) -> Result<Resolved, String> {
    match text(spec, "priorityClassName") {
        "" => Ok(default_class(api)),
        wanted => find(api, wanted).ok_or(format!("no PriorityClass with name {wanted} was found")),
    }
}

/// An update that leaves the numbers out keeps them.
pub(super) fn keep(new: &mut Value, old: &Value) {
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for field in ["priority", "preemptionPolicy"] {
        let before = old.get("spec").and_then(|s| s.get(field));
        if let Some(before) = before
            && spec.get(field).is_none_or(Value::is_null)
        {
            spec.insert(field.to_owned(), before.clone());
        }
    }
}

/// The cluster can have only one default class.
pub(super) fn check_class(
    api: &Api,
    classes: &ServedResource,
    class: &Value,
) -> Result<(), ApiError> {
    if class.get("globalDefault") != Some(&Value::Bool(true)) {
        return Ok(());
    }
    let name = class.part("metadata").text("name");
    match default_class(api).class {
        Some(other) if other != name => Err(ApiError::forbidden(
            classes.subject(name),
            &format!(
                "PriorityClass {other} is already marked as default. Only one default can exist"
            ),
        )),
        _ => Ok(()),
    }
}

fn text<'a>(spec: &'a Map<String, Value>, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or("")
}

fn find(api: &Api, name: &str) -> Option<Resolved> {
    let classes = catalog::find("scheduling.k8s.io", "priorityclasses")?;
    let class = api.get(classes, "", name).ok()?;
    Some(resolved(&class.object()))
}

/// The default class (the lowest of several), or the priority of pods without one.
fn default_class(api: &Api) -> Resolved {
    let classes = catalog::find("scheduling.k8s.io", "priorityclasses");
    let listed = classes.and_then(|classes| api.list(classes, &ListRequest::default()).ok());
    listed
        .into_iter()
        .flat_map(|l| l.items)
        .filter(|v| v.object().get("globalDefault") == Some(&Value::Bool(true)))
        .map(|v| resolved(&v.object()))
        .min_by_key(|r| r.priority)
        .unwrap_or_else(|| Resolved {
            class: None,
            priority: 0,
            preemption: PREEMPT.to_owned(),
        })
}

fn resolved(class: &Value) -> Resolved {
    Resolved {
        class: class.part("metadata").maybe_text("name").map(str::to_owned),
        priority: class.int("value"),
        preemption: class
            .maybe_text("preemptionPolicy")
            .unwrap_or(PREEMPT)
            .to_owned(),
    }
}
