//! The requests of a pod as a whole: sums over its containers, pod-level defaults, and its quality of service.
//!
//! The sums follow KEP-753 (sidecars) and the pod-level rules KEP-2837.

use crate::validation::amounts::{self, Amounts};
use crate::view::{FieldView, existing, set_if_absent};
use berth_api::Quantity;
use serde_json::{Map, Value};

/// Resources that may be given for a pod as a whole.
pub(crate) fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || amounts::is_huge_page(resource)
}

fn amounts_of(container: &Value, list: &str) -> Amounts {
    amounts::list(container.part("resources"), list)
}

/// Adds amounts to others, name by name.
pub(crate) fn add(into: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        *into.entry(name.clone()).or_default() += *amount;
    }
}

fn raise(into: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let current = into.entry(name.clone()).or_default();
        if amount > current {
            *current = *amount;
        }
    }
}

/// Returns whether an init container is a sidecar.
pub(crate) fn is_sidecar(container: &Value) -> bool {
    container.text("restartPolicy") == "Always"
}

/// The effective requests or limits (`list`) of all containers: the sum of concurrently running containers, or of an
/// init container and the sidecars started before it, if that is larger.
pub(crate) fn aggregate(spec: &Value, list: &str) -> Amounts {
    let mut total = Amounts::new();
    for container in spec.items("containers") {
        add(&mut total, &amounts_of(container, list));
    }
    let mut sidecars = Amounts::new();
    let mut init = Amounts::new();
    for container in spec.items("initContainers") {
        let own = amounts_of(container, list);
        if is_sidecar(container) {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut init, &sidecars);
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            raise(&mut init, &together);
        }
    }
    raise(&mut total, &init);
    total
}

/// As `aggregate`, with the CPU and memory that are given for the pod as a whole in their place.
pub fn with_pod_level(spec: &Value, list: &str) -> Amounts {
    let mut total = aggregate(spec, list);
    for (name, amount) in amounts::list(spec.part("resources"), list) {
        if matches!(name.as_str(), "cpu" | "memory") {
            total.insert(name, amount);
        }
    }
    total
}

/// Completes `spec.resources` (KEP-2837): huge-page limits from the containers, requests from the containers or
/// from the limits, limits from the containers where all of them have one.
pub(crate) fn default_pod_level(spec: &mut Value) {
    let Some(resources) = spec.field("resources") else {
        return;
    };
    let has = |list: &str| !resources.entries(list).is_empty();
    let (has_limits, has_requests) = (has("limits"), has("requests"));
    if !has_limits && !has_requests {
        return;
    }
    let mut limits = resources.map("limits").cloned().unwrap_or_default();
    let mut requests = resources.map("requests").cloned().unwrap_or_default();
    let text = |q: Quantity| Value::String(q.to_string());
    let container_limits = aggregate(spec, "limits");
    for (name, amount) in &container_limits {
        if amounts::is_huge_page(name) && !requests.contains_key(name) && !limits.contains_key(name)
        {
            limits.insert(name.clone(), text(*amount));
        }
    }
    if !limits.is_empty() {
        for (name, amount) in aggregate(spec, "requests") {
            if !requests.contains_key(&name)
                && is_pod_level(&name)
                && amounts::is_overcommit_allowed(&name)
            {
                requests.insert(name, text(amount));
            }
        }
        for (name, amount) in &limits {
            if !requests.contains_key(name) && is_pod_level(name) {
                requests.insert(name.clone(), amount.clone());
            }
        }
    } else {
        for (name, amount) in &container_limits {
            let all_have = ["containers", "initContainers"].iter().all(|list| {
                spec.items(list)
                    .iter()
                    .all(|c| amounts_of(c, "limits").contains_key(name))
            });
            if is_pod_level(name) && amounts::is_overcommit_allowed(name) && all_have {
                limits.insert(name.clone(), text(*amount));
            }
        }
    }
    if let Some(resources) = existing(spec, "resources") {
        for (list, amounts) in [("limits", limits), ("requests", requests)] {
            if !amounts.is_empty() {
                set_if_absent(resources, list, Map::new());
                if let Some(target) = resources.get_mut(list) {
                    *target = Value::Object(amounts);
                }
            }
        }
    }
}

/// The quality of service: `Guaranteed`, `Burstable` or `BestEffort`, from CPU and memory alone.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let holder;
    // With pod-level resources the pod counts as one container.
    let holders: Vec<&Value> = match spec.field("resources") {
        Some(_) => {
            holder = spec;
            vec![holder]
        }
        None => ["containers", "initContainers"]
            .iter()
            .flat_map(|list| spec.items(list))
            .collect(),
    };
    let mut requests = Amounts::new();
    let mut limits = Amounts::new();
    let mut guaranteed = true;
    let counts = |name: &str, q: Quantity| matches!(name, "cpu" | "memory") && q.sign() > 0;
    for holder in holders {
        let mut limited = 0;
        for (name, amount) in amounts_of(holder, "requests") {
            if counts(&name, amount) {
                *requests.entry(name).or_default() += amount;
            }
        }
        for (name, amount) in amounts_of(holder, "limits") {
            if counts(&name, amount) {
                limited += 1;
                *limits.entry(name).or_default() += amount;
            }
        }
        // Each container needs a limit of both resources.
        guaranteed &= limited == 2;
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    if guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn container(resources: Value) -> Value {
        json!({"name": "c", "resources": resources})
    }

    #[test]
    fn quality_of_service_follows_cpu_and_memory() {
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let cases = [
            (vec![json!({})], "BestEffort"),
            (
                vec![json!({"requests": {"example.com/gpu": "1"}})],
                "BestEffort",
            ),
            (vec![json!({"requests": {"cpu": "0"}})], "BestEffort"),
            (vec![json!({"requests": {"cpu": "1"}})], "Burstable"),
            (
                vec![json!({"requests": both, "limits": both})],
                "Guaranteed",
            ),
            (
                vec![json!({"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": both})],
                "Guaranteed",
            ),
            (
                vec![json!({"requests": both, "limits": both}), json!({})],
                "Burstable",
            ),
            (
                vec![json!({"requests": both, "limits": {"cpu": "1", "memory": "2Gi"}})],
                "Burstable",
            ),
        ];
        for (resources, class) in cases {
            let shown = format!("{resources:?}");
            let containers: Vec<Value> = resources.into_iter().map(container).collect();
            assert_eq!(
                qos_class(&json!({"containers": containers})),
                class,
                "{shown}"
            );
        }
        let spec = json!({"resources": {"requests": both, "limits": both},
            "containers": [container(json!({}))]});
        assert_eq!(qos_class(&spec), "Guaranteed");
    }

    #[test]
    fn containers_run_together_and_init_containers_in_turn() {
        let cpu = |n: &str| json!({"requests": {"cpu": n}});
        let mut sidecar = container(cpu("1"));
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({
            "containers": [container(cpu("2")), container(cpu("3"))],
            "initContainers": [container(cpu("4")), sidecar, container(cpu("6"))],
        });
        // Together: 2 + 3 + 1 = 6; the last init container with the sidecar: 6 + 1 = 7.
        assert_eq!(aggregate(&spec, "requests")["cpu"].value(), 7);
    }

    #[test]
    fn pod_level_resources_are_completed() {
        let mut spec = json!({
            "resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
            "containers": [container(json!({"requests": {"cpu": "1"}}))],
        });
        default_pod_level(&mut spec);
        assert_eq!(
            spec["resources"]["requests"],
            json!({"cpu": "1", "memory": "1Gi"})
        );
    }
}
