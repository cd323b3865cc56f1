//! The pods that wait for a change other than the event.

use crate::generate;
use berth_api::pod::Volume;
use berth_api::{Pod, Str};
use serde_json::{Value, json};
use std::sync::Arc;

/// The kind of waiting pods that the event does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crowd {
    /// Pods behind scheduling gates.
    Gated,
    /// Pods that fit on no node, because it is too small, lacks a label, or has a taint.
    ForNodes,
    /// Pods that do not tolerate the taints of any node.
    ForTaints,
    /// Pods that require other pods to be near, to be elsewhere, or to be deleted.
    ForPods,
    /// Pods whose claims do not exist.
    ForVolumes,
    /// Pods whose claims need devices that no node has.
    ForDevices,
}

/// The description of some pods of a crowd.
pub(super) struct Like {
    /// The plugin that rejected them; none for gated pods.
    pub(super) plugin: Option<&'static str>,
    /// The edit of these pods.
    pub(super) edit: fn(&mut Value),
}

impl Crowd {
    pub(super) const ALL: [Self; 6] = [
        Self::Gated,
        Self::ForNodes,
        Self::ForTaints,
        Self::ForPods,
        Self::ForVolumes,
        Self::ForDevices,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gated => "gated",
            Self::ForNodes => "for other nodes",
            Self::ForTaints => "for other taints",
            Self::ForPods => "for other pods",
            Self::ForVolumes => "for other claims",
            Self::ForDevices => "for devices",
        }
    }

    /// The kinds of pods of the crowd, in equal parts.
    pub(super) fn likes(self) -> &'static [Like] {
        match self {
            Self::Gated => &[Like {
                plugin: None,
                edit: |pod| pod["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}]),
            }],
            Self::ForNodes => &[
                Like {
                    plugin: Some("NodeResourcesFit"),
                    edit: |pod| request(pod, json!({"cpu": "64", "memory": "1Gi"})),
                },
                Like {
                    plugin: Some("NodeResourcesFit"),
                    edit: |pod| request(pod, json!({"cpu": "1", "example.com/gpu": "1"})),
                },
                Like {
                    plugin: Some("NodeAffinity"),
                    edit: |pod| {
                        pod["spec"]["nodeSelector"] =
                            json!({"disk": "nvme", "topology.kubernetes.io/zone": "zone-a"});
                    },
                },
                Like {
                    plugin: Some("TaintToleration"),
                    edit: |_| {},
                },
                Like {
                    plugin: Some("InterPodAffinity"),
                    edit: |pod| affinity(pod, "podAffinity", "db", "example.com/rack"),
                },
                Like {
                    plugin: Some("PodTopologySpread"),
                    edit: |pod| spread(pod, "web", "example.com/rack"),
                },
            ],
            Self::ForTaints => &[
                Like {
                    plugin: Some("TaintToleration"),
                    edit: |_| {},
                },
                Like {
                    plugin: Some("TaintToleration"),
                    edit: |pod| tolerate(pod, "spot"),
                },
                Like {
                    plugin: Some("NodeUnschedulable"),
                    edit: |_| {},
                },
            ],
            Self::ForPods => &[
                Like {
                    plugin: Some("InterPodAffinity"),
                    edit: |pod| affinity(pod, "podAffinity", "db", "kubernetes.io/hostname"),
                },
                Like {
                    plugin: Some("InterPodAffinity"),
                    edit: |pod| affinity(pod, "podAntiAffinity", "db", "kubernetes.io/hostname"),
                },
                Like {
                    plugin: Some("PodTopologySpread"),
                    edit: |pod| spread(pod, "db", "kubernetes.io/hostname"),
                },
                Like {
                    plugin: Some("NodePorts"),
                    edit: |pod| {
                        pod["spec"]["containers"][0]["ports"] =
                            json!([{"containerPort": 80, "hostPort": 8080}])
                    },
                },
                Like {
                    plugin: Some("VolumeRestrictions"),
                    edit: |pod| claim(pod, "own"),
                },
            ],
            Self::ForVolumes => &[
                Like {
                    plugin: Some("VolumeBinding"),
                    edit: |pod| claim(pod, "own"),
                },
                Like {
                    plugin: Some("VolumeZone"),
                    edit: |pod| claim(pod, "own"),
                },
            ],
            Self::ForDevices => &[Like {
                plugin: Some("DynamicResources"),
                edit: |pod| device_claim(pod, "own"),
            }],
        }
    }
}

pub(super) fn request(pod: &mut Value, requests: Value) {
    pod["spec"]["containers"][0]["resources"] = json!({"requests": requests});
}

pub(super) fn affinity(pod: &mut Value, kind: &str, app: &str, topology: &str) {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology});
    pod["spec"]["affinity"] =
        json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
}

pub(super) fn spread(pod: &mut Value, app: &str, topology: &str) {
    pod["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }]);
}

pub(super) fn tolerate(pod: &mut Value, key: &str) {
    if let Some(tolerations) = pod["spec"]["tolerations"].as_array_mut() {
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}));
    }
}

pub(super) fn claim(pod: &mut Value, name: &str) {
    pod["spec"]["volumes"] =
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
}

pub(super) fn device_claim(pod: &mut Value, name: &str) {
    pod["spec"]["resourceClaims"] = json!([{"name": "gpus", "resourceClaimName": name}]);
}

fn is_own(claim: &Option<Str>) -> bool {
    claim.as_ref().is_some_and(|claim| **claim == *"own")
}

/// Pods like a decoded one, with other names; a pod with a claim of its own gets one of its own.
pub(super) struct Mould(Arc<Pod>);

impl Mould {
    pub(super) fn new(edit: impl FnOnce(&mut Value)) -> Self {
        Self(generate::pod(0, edit))
    }

    pub(super) fn cast(&self, name: &str) -> Arc<Pod> {
        let mut pod = Pod::clone(&self.0);
        pod.metadata.name = name.into();
        pod.metadata.uid = format!("uid-of-{name}").into();
        let own = |volume: &Volume| {
            let claim = volume.persistent_volume_claim.as_ref();
            claim.is_some_and(|claim| claim.claim_name == "own")
        };
        // Pods without claims of their own share the spec, like the pods of a template.
        if pod.spec.volumes.iter().any(own) {
            for volume in pod.spec.volumes.iter_mut() {
                if let Some(claim) = &mut volume.persistent_volume_claim {
                    claim.claim_name = format!("data-{name}").into();
                }
            }
        }
        let claims = &pod.spec.resource_claims;
        if claims
            .iter()
            .any(|claim| is_own(&claim.resource_claim_name))
        {
            for claim in &mut pod.spec.resource_claims {
                claim.resource_claim_name = Some(format!("gpus-{name}").into());
            }
        }
        Arc::new(pod)
    }
}
