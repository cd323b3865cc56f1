//! The API that an embedded API server has with the feature gates of a command line.

use berth_framework::features::{Feature, FeatureGates};
use berth_objects::groups::GroupGates;
use berth_objects::releases::ApiRelease;

/// The value of a gate in `A=true,B=false`, if present.
fn given(text: &str, name: &str) -> Option<bool> {
    let mut entries = text.rsplit(',').filter_map(|entry| entry.split_once('='));
    let (_, on) = entries.find(|(gate, _)| gate.trim().trim_start_matches("kube:") == name)?;
    let on = on.trim();
    Some(on == "1" || on.eq_ignore_ascii_case("t") || on.eq_ignore_ascii_case("true"))
}

/// The parts of group scheduling in a control plane: with every release, all parts that the command line does not switch
/// off.
pub fn groups(text: &str) -> GroupGates {
    let is_on = |name: &str| given(text, name) != Some(false);
    let topology_aware_workload_scheduling = is_on("TopologyAwareWorkloadScheduling");
    GroupGates {
        generic_workload: is_on("GenericWorkload"),
        topology_aware_workload_scheduling,
        composite_pod_group: topology_aware_workload_scheduling && is_on("CompositePodGroup"),
        pod_group_preemption_policy: is_on("PodGroupPreemptionPolicy"),
        dra_workload_resource_claims: is_on("DRAWorkloadResourceClaims"),
        workload_with_job: is_on("WorkloadWithJob"),
    }
}

/// The API of a release with feature gates. `text` is the command line with the gates, including gates of the API
/// server that the scheduler does not have.
pub fn api(features: &FeatureGates, text: &str) -> ApiRelease {
    let mut api = ApiRelease::of(features.release());
    for name in ApiRelease::gates() {
        let set = match Feature::by_name(name) {
            Some(feature) => {
                let on = features.enabled(feature);
                (on != feature.default_on(features.versions())).then_some(on)
            }
            None => given(text, name),
        };
        if let Some(on) = set {
            api = api.with_gate(name, on);
        }
    }
    api
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Release;
    use berth_framework::features::{GateState, Support, Versions};

    /// API-76: the API server has the defaults of Kubernetes for the gates of the scheduler, except for features on in Berth.
    #[test]
    fn gates_of_the_api_have_the_defaults_of_kubernetes() {
        for name in ApiRelease::gates() {
            let Some(feature) = Feature::by_name(name) else {
                continue;
            };
            for release in Release::ALL {
                let of_api = ApiRelease::default_of_gate(name, release);
                let expected = match feature.upstream(release) {
                    GateState::PreAlpha => None,
                    GateState::Known(spec) => Some(spec.on),
                    GateState::Removed => Some(true),
                };
                // A feature without a part in the scheduler may be on in the embedded API server.
                let may_differ = feature.support() == Support::Missing;
                assert!(of_api == expected || may_differ, "{name} in {release}");
            }
        }
    }

    /// API-76: `--feature-gates` of one command line sets gates of the scheduler and of the API server.
    #[test]
    fn gates_of_a_command_line_reach_the_api() {
        let (preemption, signals) = (
            "InPlacePodVerticalScalingSchedulerPreemption",
            "ContainerStopSignals",
        );
        for (text, expected) in [
            ("", vec![]),
            (
                "InPlacePodVerticalScalingSchedulerPreemption=true",
                vec![preemption],
            ),
            ("ContainerStopSignals=true", vec![signals]),
            (
                "kube:ContainerStopSignals=T,VolumeLimitScaling=true",
                vec![signals],
            ),
            (
                "ContainerStopSignals=true,ContainerStopSignals=false",
                vec![],
            ),
        ] {
            let versions = Versions::of(Release::V1_37);
            let (features, _) = FeatureGates::parse(text, versions).expect(text);
            let mut wanted = ApiRelease::of(Release::V1_37);
            for name in expected {
                wanted = wanted.with_gate(name, true);
            }
            assert_eq!(api(&features, text), wanted, "{text}");
        }
    }

    /// Groups are served with every release, except the parts that are switched off.
    #[test]
    fn groups_are_served_unless_a_gate_is_off() {
        let all = GroupGates::default();
        for (text, expected) in [
            ("", all),
            ("GenericWorkload=true", all),
            (
                "kube:PodGroupPreemptionPolicy=false",
                GroupGates {
                    pod_group_preemption_policy: false,
                    ..all
                },
            ),
            (
                "TopologyAwareWorkloadScheduling=false",
                GroupGates {
                    topology_aware_workload_scheduling: false,
                    composite_pod_group: false,
                    ..all
                },
            ),
        ] {
            assert_eq!(groups(text), expected, "{text}");
        }
        assert!(!groups("GenericWorkload=false").has("GenericWorkload"));
    }
}
