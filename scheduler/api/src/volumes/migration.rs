//! The nodes that can access an in-tree volume where its plugin is migrated to a CSI driver.
//!
//! On such a node the volume is treated as a volume of the driver, whose nodes have a label of its own: the zone in the
//! node affinity of the volume, or in the labels of the volume, becomes a requirement on that label
//! (csi-translation-lib).

use super::{AWS_EBS, AZURE_DISK, CINDER, GCE_PD, PORTWORX};
use crate::node_selector::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use crate::{CsiNode, PersistentVolume, Str};
use std::collections::BTreeSet;

/// The annotation of a CSINode that lists the in-tree plugins that are migrated on the node.
pub const MIGRATED_PLUGINS_ANNOTATION: &str = "storage.alpha.kubernetes.io/migrated-plugins";

const ZONE: &str = "topology.kubernetes.io/zone";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// Between the zones of a volume in several zones.
const ZONE_DELIMITER: &str = "__";

/// An in-tree volume as the CSI volume that it is on nodes where its plugin is migrated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Migration {
    /// The in-tree plugin.
    pub plugin: &'static str,
    /// The affinity of the CSI volume; `None` when all nodes can access it. An error when the volume cannot be
    /// translated, with kube-scheduler's text.
    pub affinity: Result<Option<NodeSelector>, String>,
}

impl CsiNode {
    /// Returns whether an in-tree plugin is migrated to a CSI driver on the node.
    pub fn has_migrated(&self, plugin: &str) -> bool {
        let annotations = &self.metadata.annotations;
        let plugins = annotations.get(MIGRATED_PLUGINS_ANNOTATION);
        plugins.is_some_and(|plugins| plugins.split(',').any(|known| known == plugin))
    }
}

impl PersistentVolume {
    /// The nodes that can access the volume, where its plugin is not migrated. `None` for all.
    pub fn required_affinity(&self) -> Option<&NodeSelector> {
        self.spec.node_affinity.as_ref()?.required.as_ref()
    }

    /// The volume as a CSI volume, if it is an in-tree volume of a plugin that can be migrated.
    pub fn migration(&self) -> Option<Migration> {
        let (plugin, topology_label) = match self.source()? {
            AWS_EBS => (AWS_EBS, Some("topology.ebs.csi.aws.com/zone")),
            GCE_PD => (GCE_PD, Some("topology.gke.io/zone")),
            CINDER => (CINDER, Some("topology.cinder.csi.openstack.org/zone")),
            // Their translation does not change the topology.
            AZURE_DISK => (AZURE_DISK, None),
            _ => (PORTWORX, None),
        };
        let affinity = self.check_translation().map(|()| {
            let affinity = self.required_affinity().cloned();
            match topology_label {
                Some(label) => self.translated(affinity, label),
                None => affinity,
            }
        });
        Some(Migration { plugin, affinity })
    }

    /// The in-tree plugin of the volume.
    fn source(&self) -> Option<&'static str> {
        let spec = &self.spec;
        let sources = [
            (AWS_EBS, spec.aws_elastic_block_store.is_some()),
            (GCE_PD, spec.gce_persistent_disk.is_some()),
            (AZURE_DISK, spec.azure_disk.is_some()),
            (CINDER, spec.cinder.is_some()),
            (PORTWORX, spec.portworx_volume.is_some()),
        ];
        let mut sources = sources.into_iter();
        sources.find(|(_, is_it)| *is_it).map(|(plugin, _)| plugin)
    }

    /// Returns whether the source can be translated.
    fn check_translation(&self) -> Result<(), String> {
        let spec = &self.spec;
        if let Some(ebs) = &spec.aws_elastic_block_store
            && let Some(url) = ebs.volume_id.strip_prefix("aws://")
        {
            // Behind the zone, which may be empty.
            let path = url.split_once('/').map_or("", |(_, path)| path);
            let id = path.trim_matches('/');
            if !id.starts_with("vol-") || id.contains('/') {
                return Err(format!(
                    "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({})",
                    ebs.volume_id
                ));
            }
        }
        if spec.gce_persistent_disk.is_some() {
            let labels = &self.metadata.labels;
            let zones = labels.get(BETA_ZONE).filter(|zones| !zones.is_empty());
            let zones = zones.or_else(|| labels.get(ZONE)).unwrap_or_default();
            let zones: Vec<&str> = zones.split(ZONE_DELIMITER).collect();
            if zones.len() > 1 {
                check_region(&zones)
                    .map_err(|why| format!("failed to get region from zones: {why}"))?;
            }
        }
        if let Some(kind) = spec.azure_disk.as_ref().and_then(|disk| disk.kind.as_ref())
            && !kind.eq_ignore_ascii_case("Managed")
        {
            return Err(format!("kind({kind}) is not supported in csi migration"));
        }
        Ok(())
    }

    /// The affinity of the volume with a requirement on the label of the driver. It replaces the requirement on the
    /// zone, or is taken from the zone in the labels of the volume.
    fn translated(&self, affinity: Option<NodeSelector>, label: &str) -> Option<NodeSelector> {
        let labels = &self.metadata.labels;
        let requires = |key: &str| {
            let terms = affinity.iter().flat_map(|a| &a.node_selector_terms);
            let mut requirements = terms.flat_map(|term| &term.match_expressions);
            requirements.any(|requirement| requirement.key == key)
        };
        let has_values = |key: &str| {
            let terms = affinity.iter().flat_map(|a| &a.node_selector_terms);
            let mut requirements = terms.flat_map(|term| &term.match_expressions);
            requirements.any(|r| r.key == key && !r.values.is_empty())
        };
        // The zone label decides which generation of labels the driver migration translates.
        let is_beta = !requires(ZONE)
            && (requires(BETA_ZONE)
                || (labels.get(ZONE).is_none() && labels.get(BETA_ZONE).is_some()));
        let (zone, region) = if is_beta {
            (BETA_ZONE, BETA_REGION)
        } else {
            (ZONE, REGION)
        };
        let (in_affinity, has_beta_region) = (
            has_values(zone),
            region == BETA_REGION && has_values(region),
        );
        let mut affinity = affinity;
        // The affinity takes precedence over the labels of the volume, which may be outdated.
        if in_affinity {
            replace(&mut affinity, zone, label);
        } else if let Some(zones) = labels.get(zone) {
            add(&mut affinity, label, zones);
        }
        if has_beta_region {
            replace(&mut affinity, region, REGION);
        }
        affinity
    }
}

/// Gives requirements another key.
fn replace(affinity: &mut Option<NodeSelector>, old: &str, new: &str) {
    let terms = affinity.iter_mut().flat_map(|a| &mut a.node_selector_terms);
    for requirement in terms.flat_map(|term| &mut term.match_expressions) {
        if requirement.key == old {
            requirement.key = Str::new(new);
        }
    }
}

/// Requires one of the zones in every term.
fn add(affinity: &mut Option<NodeSelector>, label: &str, zones: &str) {
    let zones = zones.split(ZONE_DELIMITER).map(str::trim);
    let zones: BTreeSet<&str> = zones.filter(|zone| !zone.is_empty()).collect();
    if zones.is_empty() {
        return;
    }
    let requirement = NodeSelectorRequirement {
        key: Str::new(label),
        operator: Str::new("In"),
        values: zones.into_iter().map(Str::new).collect(),
    };
    let affinity = affinity.get_or_insert_default();
    if affinity.node_selector_terms.is_empty() {
        affinity
            .node_selector_terms
            .push(NodeSelectorTerm::default());
    }
    for term in &mut affinity.node_selector_terms {
        term.match_expressions.push(requirement.clone());
    }
}

/// Returns whether zones such as `us-central1-a` are of one region.
fn check_region(zones: &[&str]) -> Result<(), String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [locale, region, _] = parts[..] else {
            return Err(format!(
                "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            ));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    if regions.len() == 1 {
        return Ok(());
    }
    // As Go prints a set.
    let regions: Vec<String> = regions
        .iter()
        .map(|region| format!("{region}:{{}}"))
        .collect();
    Err(format!(
        "multiple or no regions gotten from zones, got: map[{}]",
        regions.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(source: Value, labels: Value, terms: Value) -> PersistentVolume {
        let mut spec = source;
        if !terms.is_null() {
            spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
        }
        let volume = json!({"metadata": {"name": "v", "labels": labels}, "spec": spec});
        serde_json::from_value(volume).expect("a volume")
    }

    fn within(key: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": "In", "values": values})
    }

    fn one(requirements: &[Value]) -> Value {
        json!([{"matchExpressions": requirements}])
    }

    const GKE: &str = "topology.gke.io/zone";

    #[test]
    fn zones_become_the_topology_of_the_driver() {
        let gce = || json!({"gcePersistentDisk": {"pdName": "d"}});
        let ebs = || json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
        let cinder = || json!({"cinder": {"volumeID": "x"}});
        let other = within("example.com/rack", &["r"]);
        for (situation, source, labels, terms, expected) in [
            (
                "nothing is known of its place",
                gce(),
                json!({}),
                Value::Null,
                Value::Null,
            ),
            (
                "the zone in its labels",
                gce(),
                json!({ZONE: "z1"}),
                Value::Null,
                one(&[within(GKE, &["z1"])]),
            ),
            (
                "several zones in its labels",
                gce(),
                json!({ZONE: "us-central1-b__us-central1-a"}),
                Value::Null,
                one(&[within(GKE, &["us-central1-a", "us-central1-b"])]),
            ),
            (
                "the old label",
                ebs(),
                json!({BETA_ZONE: "z1"}),
                Value::Null,
                one(&[within("topology.ebs.csi.aws.com/zone", &["z1"])]),
            ),
            (
                "the zone in its affinity, which has precedence over labels",
                cinder(),
                json!({ZONE: "z2"}),
                one(&[within(ZONE, &["z1"]), other.clone()]),
                one(&[
                    within("topology.cinder.csi.openstack.org/zone", &["z1"]),
                    other.clone(),
                ]),
            ),
            (
                "an affinity without a zone",
                gce(),
                json!({ZONE: "z1"}),
                one(std::slice::from_ref(&other)),
                one(&[other.clone(), within(GKE, &["z1"])]),
            ),
            (
                "the old labels in its affinity",
                gce(),
                json!({ZONE: "z2"}),
                one(&[within(BETA_ZONE, &["z1"]), within(BETA_REGION, &["r1"])]),
                one(&[within(GKE, &["z1"]), within(REGION, &["r1"])]),
            ),
            (
                "the region stays",
                gce(),
                json!({}),
                one(&[within(ZONE, &["z1"]), within(REGION, &["r1"])]),
                one(&[within(GKE, &["z1"]), within(REGION, &["r1"])]),
            ),
            (
                "an empty zone",
                gce(),
                json!({ZONE: ""}),
                Value::Null,
                Value::Null,
            ),
            (
                "a driver without zones",
                json!({"portworxVolume": {"volumeID": "x"}}),
                json!({ZONE: "z1"}),
                Value::Null,
                Value::Null,
            ),
            (
                "a driver with the topology of the volume",
                json!({"azureDisk": {"diskURI": "x", "kind": "managed"}}),
                json!({}),
                one(&[within(ZONE, &["z1"])]),
                one(&[within(ZONE, &["z1"])]),
            ),
        ] {
            let volume = volume(source, labels, terms);
            let migration = volume.migration().expect("an in-tree volume");
            let expected = match expected {
                Value::Null => None,
                terms => {
                    serde_json::from_value(json!({"nodeSelectorTerms": terms})).expect("a selector")
                }
            };
            assert_eq!(migration.affinity, Ok(expected), "{situation}");
        }
        let csi = json!({"csi": {"driver": "d", "volumeHandle": "x"}});
        assert_eq!(
            volume(csi, json!({ZONE: "z1"}), Value::Null).migration(),
            None
        );
    }

    #[test]
    fn what_cannot_be_translated_is_an_error() {
        for (source, labels, error) in [
            (
                json!({"awsElasticBlockStore": {"volumeID": "aws://z/x"}}),
                json!({}),
                "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://z/x)",
            ),
            (
                json!({"gcePersistentDisk": {"pdName": "d"}}),
                json!({ZONE: "a__b"}),
                "failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: a",
            ),
            (
                json!({"gcePersistentDisk": {"pdName": "d"}}),
                json!({ZONE: "us-a-1__us-b-1"}),
                "failed to get region from zones: multiple or no regions gotten from zones, got: map[us-a:{} us-b:{}]",
            ),
            (
                json!({"azureDisk": {"diskURI": "x", "kind": "Dedicated"}}),
                json!({}),
                "kind(Dedicated) is not supported in csi migration",
            ),
        ] {
            let migration = volume(source, labels, Value::Null).migration();
            assert_eq!(
                migration.expect("an in-tree volume").affinity,
                Err(error.to_owned())
            );
        }
        for id in ["vol-1", "anything", "aws:///vol-1", "aws://z/vol-1"] {
            let ebs = json!({"awsElasticBlockStore": {"volumeID": id}});
            let migration = volume(ebs, json!({}), Value::Null).migration();
            assert_eq!(
                migration.expect("an in-tree volume").affinity,
                Ok(None),
                "{id}"
            );
        }
    }

    #[test]
    fn a_node_lists_the_plugins_that_are_migrated_there() {
        let node = |plugins: &str| -> CsiNode {
            let annotations = json!({MIGRATED_PLUGINS_ANNOTATION: plugins});
            serde_json::from_value(json!({"metadata": {"annotations": annotations}}))
                .expect("a node")
        };
        assert!(node("kubernetes.io/aws-ebs,kubernetes.io/gce-pd").has_migrated(GCE_PD));
        assert!(!node("kubernetes.io/aws-ebs").has_migrated(GCE_PD));
        assert!(!node("").has_migrated(GCE_PD));
        assert!(!CsiNode::default().has_migrated(GCE_PD));
    }
}
