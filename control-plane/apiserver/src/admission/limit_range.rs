//! LimitRanger: default resources of containers, and bounds for containers, pods and claims.

use super::siblings;
use crate::registry::Api;
use crate::registry::BODY_BYTES_MAX;
use berth_api::Quantity;
use berth_objects::access::gr;
use berth_objects::catalog::ServedResource;
use berth_objects::status::ApiError;
use berth_objects::validation::amounts::{self, Amounts};
use berth_objects::validation::pod::requests;
use berth_objects::view::{FieldView, child, items_mut, set_if_absent};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The annotation that lists the defaulted resources.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// The lists of containers of a pod and their names in messages.
const CONTAINERS: [(&str, &str); 2] = [
    ("containers", "container"),
    ("initContainers", "init container"),
];

/// Gives containers without requests or limits the defaults of the limit ranges of the namespace.
///
/// # Errors
/// 413 when the defaults of all containers are larger than a request may be.
pub(super) fn set_defaults(api: &Api, namespace: &str, pod: &mut Value) -> Result<(), ApiError> {
    let mut bytes = 0;
    for range in siblings(api, "limitranges", namespace) {
        // Later ranges and later items override earlier ones, as in kube-apiserver.
        let (mut requests, mut limits) = (Map::new(), Map::new());
        for item in range.object().part("spec").items("limits") {
            if item.text("type") == "Container" {
                for (list, field) in [(&mut requests, "defaultRequest"), (&mut limits, "default")] {
                    list.extend(item.map(field).cloned().unwrap_or_default());
                }
            }
        }
        let mut notes = Vec::new();
        for (list, what) in CONTAINERS {
            let Some(spec) = child(pod, "spec") else {
                return Ok(());
            };
            for container in items_mut(spec, list) {
                let name = container.text("name").to_owned();
                for (field, defaults, noun) in [
                    ("requests", &requests, "request"),
                    ("limits", &limits, "limit"),
                ] {
                    let set = fill(container, field, defaults);
                    bytes += set.iter().map(|name| name.len()).sum::<usize>();
                    if bytes > BODY_BYTES_MAX {
                        return Err(ApiError::too_large(format!(
                            "the names of the resources that limit range {:?} adds to the containers are larger than {BODY_BYTES_MAX} bytes; use fewer containers or fewer defaults",
                            range.object().part("metadata").text("name")
                        )));
                    }
                    if !set.is_empty() {
                        notes.push(format!("{} {noun} for {what} {name}", set.join(", ")));
                    }
                }
            }
        }
        // kube-apiserver records the defaults that it sets in an annotation.
        if !notes.is_empty() {
            let note = format!("LimitRanger plugin set: {}", notes.join("; "));
            let annotations = child(pod, "metadata").and_then(|m| child(m, "annotations"));
            if let Some(annotations) = annotations {
                annotations[ANNOTATION] = note.into();
            }
        }
    }
    Ok(())
}

/// Sets the amounts that a container does not state and returns their names.
fn fill<'d>(container: &mut Value, field: &str, defaults: &'d Map<String, Value>) -> Vec<&'d str> {
    let stated = container.part("resources").map(field);
    let missing = |name: &str| stated.is_none_or(|stated| !stated.contains_key(name));
    let mut names: Vec<&str> = defaults.keys().map(String::as_str).collect();
    names.retain(|name| missing(name));
    names.sort_unstable();
    if let Some(list) = child(container, "resources").filter(|_| !names.is_empty())
        && let Some(list) = child(list, field)
    {
        for name in &names {
            set_if_absent(list, name, defaults[*name].clone());
        }
    }
    names
}

/// Compares a pod or a claim with the limit ranges of its namespace.
///
/// # Errors
/// 403 that names every bound of the first range that does not hold.
pub(super) fn check(
    api: &Api,
    resource: &ServedResource,
    namespace: &str,
    object: &Value,
) -> Result<(), ApiError> {
    let spec = object.part("spec");
    for range in siblings(api, "limitranges", namespace) {
        let mut faults = Vec::new();
        for item in range.object().part("spec").items("limits") {
            let kind = item.text("type");
            match (kind, resource.resource == gr("", "pods")) {
                ("Container", true) => {
                    let mut bounds = Bounds::of(item);
                    for (list, _) in CONTAINERS {
                        for container in spec.items(list) {
                            let own = |list| amounts::list(container.part("resources"), list);
                            bounds.compare(&own("requests"), Some(&own("limits")), &mut faults);
                        }
                    }
                }
                ("Pod", true) => {
                    let own = |list| requests::with_pod_level(spec, list);
                    let limits = own("limits");
                    Bounds::of(item).compare(&own("requests"), Some(&limits), &mut faults);
                }
                ("PersistentVolumeClaim", false) => {
                    let requests = amounts::list(spec.part("resources"), "requests");
                    Bounds::of(item).compare(&requests, None, &mut faults);
                }
                _ => {}
            }
        }
        // Several containers can break the same bound with the same text.
        let mut seen = BTreeSet::new();
        faults.retain(|fault| seen.insert(fault.clone()));
        let message = match faults.as_slice() {
            [] => continue,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let name = object.part("metadata").text("name");
        return Err(ApiError::forbidden(resource.subject(name), &message));
    }
    Ok(())
}

/// The bounds of an entry of a limit range.
struct Bounds<'i> {
    kind: &'i str,
    min: Bound,
    max: Bound,
    ratio: Bound,
}

/// Bounds of one sort, by resource.
struct Bound {
    amounts: Amounts,
    /// The resources whose missing amount is not reported yet. The fault has the same text for all containers and is
    /// reported once.
    unreported: BTreeSet<String>,
}

impl Bound {
    fn of(item: &Value, list: &str) -> Self {
        let amounts = amounts::list(item, list);
        let unreported = amounts.keys().cloned().collect();
        Self {
            amounts,
            unreported,
        }
    }

    /// The bounds that the amounts of a container can violate, sorted by resource: bounds of its resources, and bounds
    /// whose missing amount is reported for the first time. The absence of an amount of `required` is a fault. The
    /// comparisons with all containers of a pod grow with the sum of the lists, not with their product.
    fn relevant(
        &mut self,
        required: &Amounts,
        requests: &Amounts,
        limits: Option<&Amounts>,
    ) -> Vec<(String, Quantity)> {
        let stated = requests
            .keys()
            .chain(limits.into_iter().flatten().map(|(name, _)| name));
        let mut names: BTreeSet<String> = stated.cloned().collect();
        let unstated = self.unreported.iter();
        let unstated = unstated.filter(|name| !required.contains_key(*name));
        let unstated: Vec<String> = unstated.cloned().collect();
        for name in &unstated {
            self.unreported.remove(name);
        }
        names.extend(unstated);
        let bounds = names.into_iter();
        bounds
            .filter_map(|name| {
                let bound = *self.amounts.get(&name)?;
                Some((name, bound))
            })
            .collect()
    }
}

impl<'i> Bounds<'i> {
    fn of(item: &'i Value) -> Self {
        Self {
            kind: item.text("type"),
            min: Bound::of(item, "min"),
            max: Bound::of(item, "max"),
            ratio: Bound::of(item, "maxLimitRequestRatio"),
        }
    }

    /// The faults of amounts under the bounds. Claims have no limits: their maximum is one of the request.
    fn compare(&mut self, requests: &Amounts, limits: Option<&Amounts>, faults: &mut Vec<String>) {
        let kind = self.kind;
        let limit_of = |name: &str| limits.and_then(|limits| limits.get(name));
        for (name, least) in self.min.relevant(requests, requests, limits) {
            let bound = format!("minimum {name} usage per {kind} is {least}");
            match (requests.get(&name), limit_of(&name)) {
                (None, _) => faults.push(format!("{bound}.  No request is specified")),
                (Some(request), _) if *request < least => {
                    faults.push(format!("{bound}, but request is {request}"));
                }
                (_, Some(limit)) if *limit < least => {
                    faults.push(format!("{bound}, but limit is {limit}"));
                }
                _ => {}
            }
        }
        for (name, most) in self
            .max
            .relevant(limits.unwrap_or(requests), requests, limits)
        {
            let bound = format!("maximum {name} usage per {kind} is {most}");
            match (requests.get(&name), limit_of(&name)) {
                (_, None) if limits.is_some() => {
                    faults.push(format!("{bound}.  No limit is specified"));
                }
                (_, Some(limit)) if *limit > most => {
                    faults.push(format!("{bound}, but limit is {limit}"));
                }
                (Some(request), _) if *request > most => {
                    faults.push(format!("{bound}, but request is {request}"));
                }
                (None, _) if limits.is_none() => {
                    faults.push(format!("{bound}.  No request is specified"));
                }
                _ => {}
            }
        }
        if limits.is_none() {
            return;
        }
        for (name, most) in self.ratio.relevant(requests, requests, limits) {
            let bound = format!("{name} max limit to request ratio per {kind} is {most}");
            let given = |amount: Option<&Quantity>| amount.copied().filter(|q| q.sign() != 0);
            match (given(requests.get(&name)), given(limit_of(&name))) {
                (None, _) => faults.push(format!(
                    "{bound}, but no request is specified or request is 0"
                )),
                (_, None) => {
                    faults.push(format!("{bound}, but no limit is specified or limit is 0"));
                }
                (Some(request), Some(limit)) => {
                    let ratio = limit.as_f64() / request.as_f64();
                    if ratio > most.as_f64() {
                        faults.push(format!("{bound}, but provided ratio is {ratio:.6}"));
                    }
                }
            }
        }
    }
}
