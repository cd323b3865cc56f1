//! Reasons for programs: stable codes for the texts of plugins, which clients compare with those of kube-scheduler and
//! which have names and numbers in them.

use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use berth_framework::NodeView;
use berth_framework::PodInfo;

/// The code of a reason that has no other one.
pub const OTHER: &str = "Other";
/// The code of scheduling gates.
pub const SCHEDULING_GATE: &str = "SchedulingGate";
/// The code of a resource of which a node has too little.
pub const INSUFFICIENT_RESOURCE: &str = "InsufficientResource";

/// Code, plugin and the part of its text by which the reason is known. The first line that matches counts.
const CODES: &[(&str, &str, &str)] = &[
    (INSUFFICIENT_RESOURCE, "NodeResourcesFit", "Insufficient "),
    ("TooManyPods", "NodeResourcesFit", "Too many pods"),
    ("UntoleratedTaint", "TaintToleration", ""),
    ("NodeAffinityMismatch", "NodeAffinity", ""),
    ("NodeNameMismatch", "NodeName", ""),
    ("NodeCordoned", "NodeUnschedulable", ""),
    ("HostPortTaken", "NodePorts", ""),
    (
        "TopologyLabelMissing",
        "PodTopologySpread",
        "missing required label",
    ),
    ("TopologySpread", "PodTopologySpread", ""),
    (
        "ExistingPodsAntiAffinity",
        "InterPodAffinity",
        "existing pods anti-affinity",
    ),
    ("PodAntiAffinity", "InterPodAffinity", "anti-affinity"),
    ("PodAffinity", "InterPodAffinity", "affinity"),
    (
        "VolumeZoneMismatch",
        "VolumeZone",
        "no available volume zone",
    ),
    ("ClaimMissing", "", "persistentvolumeclaim"),
    ("ClaimMissing", "", "Resource claim"),
    ("ClaimMissing", "", "resourceclaim"),
    ("ClaimUnbound", "VolumeBinding", "unbound immediate"),
    ("VolumeNodeAffinity", "VolumeBinding", "node affinity"),
    (
        "VolumeUnavailable",
        "VolumeBinding",
        "available persistent volumes",
    ),
    ("StorageFull", "VolumeBinding", "free storage"),
    ("VolumeMissing", "VolumeBinding", "non-existent"),
    ("DiskTaken", "VolumeRestrictions", "no available disk"),
    (
        "ReadWriteOncePodTaken",
        "VolumeRestrictions",
        "ReadWriteOncePod",
    ),
    ("VolumeLimit", "NodeVolumeLimits", ""),
    ("FeatureMissing", "NodeDeclaredFeatures", ""),
    ("DeviceBinding", "DynamicResources", "binding conditions"),
    (
        "DevicesUnavailable",
        "DynamicResources",
        "cannot allocate all claims",
    ),
    (
        "DevicesUnavailable",
        "DynamicResources",
        "not available on the node",
    ),
    ("ClaimMissing", "DynamicResources", ""),
    (SCHEDULING_GATE, "SchedulingGates", ""),
    ("PodGroup", "GangScheduling", ""),
    ("Preempting", "DefaultPreemption", ""),
    ("Extender", "Extender", ""),
];

/// Every code.
pub fn all() -> Vec<&'static str> {
    let mut codes: Vec<&str> = CODES.iter().map(|(code, _, _)| *code).collect();
    codes.push(OTHER);
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// The code of a reason.
pub fn code_of(plugin: &str, text: &str) -> &'static str {
    let found = CODES
        .iter()
        .find(|(_, by, part)| (by.is_empty() || *by == plugin) && text.contains(part));
    found.map_or(OTHER, |(code, _, _)| code)
}

/// The resource that a reason names.
pub fn resource_of(code: &str, text: &str) -> Option<String> {
    match code {
        INSUFFICIENT_RESOURCE => text.strip_prefix("Insufficient ").map(str::to_owned),
        "TooManyPods" => Some(PODS.to_owned()),
        _ => None,
    }
}

/// The amount of a resource that a pod requests.
pub(crate) fn wanted(pod: &PodInfo, resource: &str) -> i64 {
    let requests = &pod.requests;
    match resource {
        CPU => requests.milli_cpu,
        MEMORY => requests.memory,
        EPHEMERAL_STORAGE => requests.ephemeral_storage,
        PODS => 1,
        name => {
            let mut scalars = requests.scalars.iter();
            let found = scalars.find(|(known, _)| known.as_str() == name);
            found.map_or(0, |(_, amount)| *amount)
        }
    }
}

/// The amount of a resource that is free on a node.
pub(crate) fn free(node: NodeView<'_>, resource: &str) -> i64 {
    match resource {
        PODS => node.allocatable_of(PODS) - i64::try_from(node.pods().len()).unwrap_or(i64::MAX),
        name => node.allocatable_of(name) - node.requested_of(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_plugins_have_codes() {
        for (plugin, text, code, resource) in [
            (
                "NodeResourcesFit",
                "Insufficient cpu",
                INSUFFICIENT_RESOURCE,
                Some("cpu"),
            ),
            (
                "NodeResourcesFit",
                "Insufficient example.com/gpu",
                INSUFFICIENT_RESOURCE,
                Some("example.com/gpu"),
            ),
            (
                "NodeResourcesFit",
                "Too many pods",
                "TooManyPods",
                Some("pods"),
            ),
            (
                "TaintToleration",
                "node(s) had untolerated taint(s)",
                "UntoleratedTaint",
                None,
            ),
            (
                "InterPodAffinity",
                "node(s) didn't satisfy existing pods anti-affinity rules",
                "ExistingPodsAntiAffinity",
                None,
            ),
            (
                "InterPodAffinity",
                "node(s) didn't match pod affinity rules",
                "PodAffinity",
                None,
            ),
            (
                "PodTopologySpread",
                "node(s) didn't match pod topology spread constraints (missing required label)",
                "TopologyLabelMissing",
                None,
            ),
            (
                "VolumeBinding",
                "persistentvolumeclaim \"c\" not found",
                "ClaimMissing",
                None,
            ),
            (
                "DynamicResources",
                "cannot allocate all claims",
                "DevicesUnavailable",
                None,
            ),
            ("example.com/Plugin", "no", OTHER, None),
        ] {
            let found = code_of(plugin, text);
            assert_eq!(found, code, "{plugin}: {text}");
            assert_eq!(resource_of(found, text).as_deref(), resource, "{text}");
            assert!(all().contains(&code));
        }
    }
}
