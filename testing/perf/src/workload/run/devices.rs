//! Operations of dynamic resource allocation.

use super::{Executor, parallel};
use crate::workload::api::OfferedResource;
use crate::workload::error::RunError;
use crate::workload::objects::{mapping, resource_slice};
use crate::workload::ops::CreateResourceDriver;
use berth_client::ApiError;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

const RESOURCE_API: &str = "/apis/resource.k8s.io/v1";

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A device: driver, pool and name.
type Device = (String, String, String);

impl Executor<'_> {
    /// Publishes one ResourceSlice for each node that matches the pattern.
    pub(super) async fn create_driver(
        &mut self,
        op: &CreateResourceDriver,
    ) -> Result<(), RunError> {
        let nodes = self.list("/api/v1/nodes").await?;
        let names = nodes.iter().map(|node| text(node, "/metadata/name"));
        let slices: Vec<Value> = names
            .filter(|name| glob(&op.nodes, name))
            .map(|name| resource_slice(&op.driver_name, name, op.max_claims_per_node))
            .collect();
        if slices.is_empty() {
            return Err(self.failed(format!("no node matches {:?}", op.nodes)));
        }
        let resource = OfferedResource::of(RESOURCE_API, "resourceslices", false);
        for slice in &slices {
            let path = resource.object("", text(slice, "/metadata/name"));
            self.created
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push(path);
        }
        let (api, count, slices) = (Arc::clone(&self.api), slices.len(), Arc::new(slices));
        let created = parallel(count, move |index| {
            let (api, slices) = (Arc::clone(&api), Arc::clone(&slices));
            let resource = resource.clone();
            async move { api.create(&resource, "", &slices[index]).await.map(drop) }
        });
        created
            .await
            .map_err(|e: ApiError| self.failed(format!("failed to create ResourceSlice: {e}")))
    }

    /// Allocates every claim without an allocation to devices of a random node.
    pub(super) async fn allocate_claims(&mut self, namespace: &str) -> Result<(), RunError> {
        let claims = OfferedResource::of(RESOURCE_API, "resourceclaims", true);
        let all = self.list(&claims.collection("")).await?;
        let classes = self.drivers_of_classes().await?;
        let slices = self.list(&format!("{RESOURCE_API}/resourceslices")).await?;
        let taken: HashSet<Device> = all
            .iter()
            .filter_map(|claim| claim.pointer("/status/allocation/devices/results"))
            .filter_map(Value::as_array)
            .flatten()
            .map(|r| {
                (
                    text(r, "/driver").to_owned(),
                    text(r, "/pool").to_owned(),
                    text(r, "/device").to_owned(),
                )
            })
            .collect();
        // Free devices by node.
        let mut free: Vec<(String, Vec<Device>)> = slices
            .iter()
            .map(|slice| (text(slice, "/spec/nodeName").to_owned(), devices(slice)))
            .collect();
        for (_, devices) in &mut free {
            devices.retain(|device| !taken.contains(device));
        }
        let mut updates = Vec::new();
        for mut claim in all {
            let wanted = namespace.is_empty() || text(&claim, "/metadata/namespace") == namespace;
            if !wanted || claim.pointer("/status/allocation").is_some() {
                continue;
            }
            let requests = requests(&claim, &classes).map_err(|e| self.failed(e))?;
            let random = &mut self.generator.random;
            let allocation = allocate(&requests, &mut free, random).ok_or_else(|| {
                let name = text(&claim, "/metadata/name").to_owned();
                self.failed(format!("no node has free devices for claim {name}"))
            })?;
            mapping(&mut claim, &["status"]).insert("allocation".to_owned(), allocation);
            updates.push(claim);
        }
        let (api, count, updates) = (Arc::clone(&self.api), updates.len(), Arc::new(updates));
        let updated = parallel(count, move |index| {
            let (api, updates, claims) = (Arc::clone(&api), Arc::clone(&updates), claims.clone());
            async move {
                let claim = &updates[index];
                let namespace = text(claim, "/metadata/namespace");
                let status = ["status".to_owned()];
                api.update(&claims, namespace, claim, &status)
                    .await
                    .map(drop)
            }
        });
        updated
            .await
            .map_err(|e: ApiError| self.failed(format!("failed to allocate claim: {e}")))
    }

    async fn list(&self, collection: &str) -> Result<Vec<Value>, RunError> {
        let listed = self.api.list(collection).await;
        let listed = listed.map_err(|e| self.failed(format!("failed to list {collection}: {e}")));
        listed.map(|(items, _)| items)
    }

    /// The driver that each device class selects; the only selector that this operation understands.
    async fn drivers_of_classes(&self) -> Result<BTreeMap<String, Option<String>>, RunError> {
        let classes = self.list(&format!("{RESOURCE_API}/deviceclasses")).await?;
        let driver =
            |class: &Value| match class.pointer("/spec/selectors").and_then(Value::as_array) {
                None => None,
                Some(selectors) => match selectors.as_slice() {
                    [one] => text(one, "/cel/expression")
                        .trim()
                        .strip_prefix("device.driver == \"")
                        .and_then(|rest| rest.strip_suffix('"'))
                        .map(str::to_owned),
                    _ => None,
                },
            };
        let named = classes
            .iter()
            .map(|class| (text(class, "/metadata/name").to_owned(), driver(class)));
        Ok(named.collect())
    }
}

fn devices(slice: &Value) -> Vec<Device> {
    let listed = slice.pointer("/spec/devices").and_then(Value::as_array);
    listed
        .into_iter()
        .flatten()
        .map(|device| {
            (
                text(slice, "/spec/driver").to_owned(),
                text(slice, "/spec/pool/name").to_owned(),
                text(device, "/name").to_owned(),
            )
        })
        .collect()
}

/// The request of a claim: the name of the request, the driver, and the number of devices.
fn requests(
    claim: &Value,
    classes: &BTreeMap<String, Option<String>>,
) -> Result<Vec<(String, String, usize)>, String> {
    let name = text(claim, "/metadata/name");
    let listed = claim
        .pointer("/spec/devices/requests")
        .and_then(Value::as_array);
    let mut requests = Vec::new();
    for request in listed.into_iter().flatten() {
        let exactly = &request["exactly"];
        let class = text(exactly, "/deviceClassName");
        let mode = text(exactly, "/allocationMode");
        let simple = exactly.is_object()
            && exactly["selectors"].as_array().is_none_or(Vec::is_empty)
            && matches!(mode, "" | "ExactCount");
        let driver = classes.get(class).cloned().flatten();
        let (true, Some(driver)) = (simple, driver) else {
            return Err(format!(
                "claim {name}: allocResourceClaims understands requests for a count of devices of a class that selects \
                 a driver (device.driver == \"NAME\"), and no other selectors"
            ));
        };
        let count = exactly["count"].as_u64().unwrap_or(1);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        requests.push((text(request, "/name").to_owned(), driver, count));
    }
    Ok(requests)
}

/// Takes the devices for the requests from a node with enough devices, starting at a random node.
fn allocate(
    requests: &[(String, String, usize)],
    free: &mut [(String, Vec<Device>)],
    random: &mut fastrand::Rng,
) -> Option<Value> {
    let nodes = free.len();
    let start = random.usize(..nodes.max(1));
    for offset in 0..nodes {
        let (node, devices) = &mut free[(start + offset) % nodes];
        let mut left = devices.clone();
        let mut results = Vec::new();
        let fits = requests.iter().all(|(request, driver, count)| {
            (0..*count).all(|_| {
                let Some(found) = left.iter().position(|device| device.0 == *driver) else {
                    return false;
                };
                let (driver, pool, device) = left.remove(found);
                results.push(json!({
                    "request": request, "driver": driver, "pool": pool, "device": device,
                }));
                true
            })
        });
        if fits {
            *devices = left;
            return Some(json!({
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [node]},
                ]}]},
            }));
        }
    }
    None
}

/// Returns whether a name matches a pattern of `*` and `?`.
fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    // The prefixes of the name that match the pattern so far.
    let mut matched = vec![false; name.len() + 1];
    matched[0] = true;
    for symbol in pattern {
        let mut next = vec![false; name.len() + 1];
        for at in 0..=name.len() {
            next[at] = match symbol {
                '*' => matched[at] || (at > 0 && next[at - 1]),
                _ => at > 0 && matched[at - 1] && (symbol == '?' || symbol == name[at - 1]),
            };
        }
        matched = next;
    }
    matched[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expect) in [
            ("scheduler-perf-dra-*", "scheduler-perf-dra-x7k2p", true),
            ("scheduler-perf-dra-*", "scheduler-perf-x7k2p", false),
            ("*", "", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*-a*b", "x-aab", true),
            ("*-a*b", "x-aabc", false),
        ] {
            assert_eq!(glob(pattern, name), expect, "{pattern} {name}");
        }
    }

    #[test]
    fn devices_are_taken_from_one_node_and_once() {
        let device = |pool: &str, name: &str| ("d".to_owned(), pool.to_owned(), name.to_owned());
        let mut free = vec![
            ("a".to_owned(), vec![device("a", "0")]),
            ("b".to_owned(), vec![device("b", "0"), device("b", "1")]),
        ];
        let mut random = fastrand::Rng::with_seed(1);
        let two = [("r".to_owned(), "d".to_owned(), 2)];
        let found = allocate(&two, &mut free, &mut random).expect("node b has two");
        let results = found["devices"]["results"].as_array().expect("results");
        assert_eq!(results.len(), 2);
        assert!(results.iter().all(|r| r["pool"] == "b"), "{results:?}");
        assert_eq!(allocate(&two, &mut free, &mut random), None);
        let one = [("r".to_owned(), "d".to_owned(), 1)];
        assert!(allocate(&one, &mut free, &mut random).is_some());
        assert_eq!(allocate(&one, &mut free, &mut random), None);
    }
}
