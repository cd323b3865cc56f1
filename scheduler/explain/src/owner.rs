//! The owner by which waiting pods are grouped.

use berth_api::{Pod, Str};
use berth_framework::Cluster;

/// Kind and name of the pod group of a pod, otherwise of its controller. For a pod of a ReplicaSet, it is the
/// controller of the ReplicaSet, such as a Deployment, because each revision of the pods has its own ReplicaSet.
pub fn owner_of(cluster: &Cluster, pod: &Pod) -> Option<(Str, Str)> {
    if let Some(group) = pod.pod_group_name() {
        return Some((Str::new("PodGroup"), group.clone()));
    }
    let controller = pod.metadata.controller()?;
    let sets = cluster.workloads().replica_sets();
    let set = match controller.kind.as_str() {
        "ReplicaSet" => sets.get(pod.namespace(), &controller.name),
        _ => None,
    };
    let above = set.and_then(|set| set.metadata.controller());
    let owner = above.unwrap_or(controller);
    Some((owner.kind.clone(), owner.name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Kind;
    use berth_framework::testing::pod;

    #[test]
    fn the_owner_is_the_group_or_the_uppermost_controller_that_is_known() {
        let owners = |kind: &str, name: &str| {
            serde_json::json!({"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true},
            ]})
        };
        let mut cluster = Cluster::default();
        for (name, mut metadata) in [
            ("web-1", owners("Deployment", "web")),
            ("alone", serde_json::json!({})),
        ] {
            metadata["name"] = name.into();
            metadata["namespace"] = "default".into();
            let set = serde_json::json!({ "metadata": metadata }).to_string();
            let set = Kind::ReplicaSet.decode(set.as_bytes());
            cluster.set(&set.unwrap_or_else(|e| panic!("{e}")));
        }
        for (situation, kind, name, group, owner) in [
            (
                "a Deployment",
                "ReplicaSet",
                "web-1",
                "",
                Some("Deployment/web"),
            ),
            (
                "no Deployment",
                "ReplicaSet",
                "alone",
                "",
                Some("ReplicaSet/alone"),
            ),
            ("not known", "ReplicaSet", "new", "", Some("ReplicaSet/new")),
            (
                "the name of a ReplicaSet",
                "Job",
                "web-1",
                "",
                Some("Job/web-1"),
            ),
            ("a group", "Job", "ring", "ring", Some("PodGroup/ring")),
            ("no controller", "", "", "", None),
        ] {
            let made = match group {
                "" => pod("p"),
                group => pod("p").member_of(group),
            };
            let made = made.with(|pod| {
                let named = serde_json::json!({ "metadata": owners(kind, name) });
                let named: Pod = serde_json::from_value(named).unwrap_or_else(|e| panic!("{e}"));
                if !kind.is_empty() {
                    pod.metadata.owner_references = named.metadata.owner_references.clone();
                }
            });
            let found = owner_of(&cluster, &made.build());
            let found = found.map(|(kind, name)| format!("{kind}/{name}"));
            assert_eq!(found.as_deref(), owner, "{situation}");
        }
    }
}
