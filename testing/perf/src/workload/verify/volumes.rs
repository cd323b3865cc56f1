//! Volumes and devices: where a volume can be used, how many volumes a node may attach, and that no device or volume is
//! allocated twice.

use super::{LogWorld, PlacedEntry, Violation};
use berth_api::node_selector::NodeSelector;
use berth_api::volumes::PodClaim;
use berth_api::{Labels, Node, Pod};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The objects other than pods and nodes to which rules refer, as they are at the end of the run.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The labels of namespaces.
    pub namespaces: BTreeMap<String, Labels>,
    /// Claims by `namespace/name`.
    claims: HashMap<String, VerifiedClaim>,
    /// Volumes by name.
    volumes: HashMap<String, Volume>,
    /// The attach limits of nodes: by node, then by driver.
    limits: HashMap<String, BTreeMap<String, usize>>,
    resource_claims: Vec<Value>,
    /// Extended resources that device classes offer.
    device_resources: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct VerifiedClaim {
    volume: String,
    is_for_one_pod: bool,
}

#[derive(Debug, Clone, Default)]
struct Volume {
    /// Driver and handle.
    csi: Option<(String, String)>,
    nodes: Option<NodeSelector>,
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

impl Surroundings {
    /// Records an object of any kind; kinds that no rule refers to are ignored.
    pub fn add(&mut self, plural: &str, object: &Value) {
        let name = text(object, "/metadata/name").to_owned();
        match plural {
            "namespaces" => {
                let labels = object["metadata"]["labels"]
                    .as_object()
                    .into_iter()
                    .flatten();
                let pairs =
                    labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
                self.namespaces.insert(name, Labels::from_pairs(pairs));
            }
            "persistentvolumeclaims" => {
                let modes = object["spec"]["accessModes"].as_array();
                let claim = VerifiedClaim {
                    volume: text(object, "/spec/volumeName").to_owned(),
                    is_for_one_pod: modes.into_iter().flatten().any(|m| m == "ReadWriteOncePod"),
                };
                let key = format!("{}/{name}", text(object, "/metadata/namespace"));
                self.claims.insert(key, claim);
            }
            "persistentvolumes" => {
                let csi = &object["spec"]["csi"];
                let volume = Volume {
                    csi: csi.is_object().then(|| {
                        (
                            text(csi, "/driver").to_owned(),
                            text(csi, "/volumeHandle").to_owned(),
                        )
                    }),
                    nodes: object
                        .pointer("/spec/nodeAffinity/required")
                        .and_then(|selector| NodeSelector::deserialize(selector).ok()),
                };
                self.volumes.insert(name, volume);
            }
            "csinodes" => {
                let drivers = object["spec"]["drivers"].as_array().into_iter().flatten();
                let limits = drivers.filter_map(|driver| {
                    let count = driver.pointer("/allocatable/count")?.as_u64()?;
                    let count = usize::try_from(count).ok()?;
                    Some((text(driver, "/name").to_owned(), count))
                });
                self.limits.insert(name, limits.collect());
            }
            "resourceclaims" => self.resource_claims.push(object.clone()),
            "deviceclasses" => {
                let extended = text(object, "/spec/extendedResourceName");
                if !extended.is_empty() {
                    self.device_resources.insert(extended.to_owned());
                }
            }
            _ => {}
        }
    }

    /// Returns whether devices may provide an extended resource.
    pub(super) fn is_backed_by_devices(&self, resource: &str) -> bool {
        resource.starts_with("deviceclass.resource.kubernetes.io/")
            || self.device_resources.contains(resource)
    }

    fn claims_of<'s>(&'s self, pod: &'s Pod) -> impl Iterator<Item = (String, &'s VerifiedClaim)> {
        pod.spec
            .volumes
            .iter()
            .filter_map(|volume| PodClaim::of(pod, volume))
            .filter_map(|claim| {
                let key = format!("{}/{}", pod.namespace(), claim.name);
                let found = self.claims.get(&key)?;
                Some((key, found))
            })
    }

    /// Drivers and handles of the CSI volumes of a pod.
    fn attached<'s>(&'s self, pod: &'s Pod) -> impl Iterator<Item = &'s (String, String)> {
        self.claims_of(pod)
            .filter_map(|(_, claim)| self.volumes.get(&claim.volume)?.csi.as_ref())
    }
}

/// The rule about volumes that is broken by a pod on `node`.
pub(super) fn broken_rule(
    world: &LogWorld<'_>,
    placed: &PlacedEntry,
    name: &Arc<str>,
    node: &Node,
) -> Option<String> {
    let (surroundings, pod) = (world.surroundings, &placed.pod);
    if pod.spec.volumes.is_empty() {
        return None;
    }
    for (key, claim) in surroundings.claims_of(pod) {
        if let Some(selector) = surroundings
            .volumes
            .get(&claim.volume)
            .and_then(|volume| volume.nodes.as_ref())
            && !berth_oracle::matches_terms(selector, node)
        {
            return Some(format!(
                "volume {} cannot be used on the node",
                claim.volume
            ));
        }
        if claim.is_for_one_pod
            && let Some(other) = world.pods.values().find(|other| {
                other.node.is_some()
                    && other.gone.is_none()
                    && surroundings
                        .claims_of(&other.pod)
                        .any(|(used, _)| used == key)
            })
        {
            return Some(format!(
                "claim {key} is for one pod and used by {}",
                other.pod.key()
            ));
        }
    }
    let limits = surroundings.limits.get(node.name().as_str())?;
    let own: BTreeSet<_> = surroundings.attached(pod).collect();
    let mut all = own.clone();
    for other in world.pods_on(name) {
        all.extend(surroundings.attached(&other.pod));
    }
    let over = limits.iter().find(|(driver, limit)| {
        let of_driver = |volume: &&&(String, String)| volume.0 == **driver;
        own.iter().any(|volume| volume.0 == **driver)
            && all.iter().filter(of_driver).count() > **limit
    })?;
    Some(format!(
        "more than {} volumes of driver {} are attached",
        over.1, over.0
    ))
}

/// Devices that are allocated to more than one claim.
pub(super) fn devices(surroundings: &Surroundings) -> Vec<Violation> {
    let mut owners: HashMap<(String, String, String), String> = HashMap::new();
    let mut violations = Vec::new();
    for claim in &surroundings.resource_claims {
        let key = format!(
            "{}/{}",
            text(claim, "/metadata/namespace"),
            text(claim, "/metadata/name")
        );
        let results = claim.pointer("/status/allocation/devices/results");
        for result in results.and_then(Value::as_array).into_iter().flatten() {
            if result["adminAccess"] == true || result["shareID"].is_string() {
                continue;
            }
            let device = (
                text(result, "/driver").to_owned(),
                text(result, "/pool").to_owned(),
                text(result, "/device").to_owned(),
            );
            let shown = format!("{}/{}/{}", device.0, device.1, device.2);
            if let Some(other) = owners.insert(device, key.clone()) {
                violations.push(Violation {
                    pod: format!("with claim {key}"),
                    node: text(result, "/pool").to_owned(),
                    rule: format!("device {shown} is allocated to claim {other}, too"),
                });
            }
        }
    }
    violations
}
