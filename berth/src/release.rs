//! The release of Kubernetes whose behaviour a process has: that of `--emulated-version`, or of the API server; and the
//! API that an embedded API server has with the feature gates of a command line.

use crate::exit::CommandFailure;
use crate::flags::Flags;
use crate::settings;
use berth_api::Release;
use berth_client::request::get_path;
use berth_client::{ConnectOptions, Transport, connect};
use berth_framework::features::{Feature, FeatureGates, Versions};
use berth_objects::groups::GroupGates;
use berth_objects::releases::ApiRelease;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// The time for which the version of an API server that does not answer is requested.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two requests.
const PAUSE: Duration = Duration::from_secs(2);
/// The time that a single request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A release, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) release: Release,
    /// For the log.
    pub(crate) reason: String,
}

/// The interval at which an API server that does not answer is asked for its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskingInterval {
    /// Once.
    Once,
    /// Until it answers, for a minute at most.
    Patiently,
}

/// The version that this process reports of itself: `v1.37.0+berth-0.1.0`.
pub(crate) fn reported(release: Release) -> String {
    format!("v{release}.0+berth-{}", env!("CARGO_PKG_VERSION"))
}

/// The value of a gate in `A=true,B=false`, if it is there.
fn given(text: &str, name: &str) -> Option<bool> {
    let mut entries = text.rsplit(',').filter_map(|entry| entry.split_once('='));
    let (_, on) = entries.find(|(gate, _)| gate.trim().trim_start_matches("kube:") == name)?;
    let on = on.trim();
    Some(on == "1" || on.eq_ignore_ascii_case("t") || on.eq_ignore_ascii_case("true"))
}

/// The parts of group scheduling that a control plane has: all of them, whatever the release, except those that the
/// command line switches off.
pub(crate) fn groups(text: &str) -> GroupGates {
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

/// The API of a release with feature gates. `text` is the command line from which the gates were read: it names gates
/// of the API server that the scheduler does not have.
pub(crate) fn api(features: &FeatureGates, text: &str) -> ApiRelease {
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

/// The answer to `/version`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerVersion {
    major: String,
    minor: String,
    #[serde(default)]
    git_version: String,
}

impl ServerVersion {
    /// The release that is closest to it: never above the newest that Berth has, nor below the oldest.
    fn release(&self) -> Option<Release> {
        // Some providers write `37+`.
        let minor = self.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
        match (self.major.as_str(), minor.parse()) {
            ("1", Ok(minor)) => Some(Release::closest_to_minor(minor)),
            _ => None,
        }
    }
}

/// The release for a command line: that of `--emulated-version`, else that of the API server.
///
/// # Errors
/// When `--emulated-version` is not a release that Berth has.
pub(crate) async fn choose(
    flags: &Flags,
    user_agent: String,
    asking: AskingInterval,
) -> Result<Chosen, CommandFailure> {
    let given = &flags.features.emulated_version.value;
    if let Some(release) = Versions::emulated(given).map_err(CommandFailure::usage)? {
        return Ok(Chosen {
            release,
            reason: "--emulated-version".to_owned(),
        });
    }
    let master = &flags.misc.master.value;
    let options = ConnectOptions {
        kubeconfig: settings::kubeconfig(flags).map(PathBuf::from),
        context: None,
        server: (!master.is_empty()).then(|| master.clone()),
        user_agent,
    };
    match connect(&options).await {
        Ok(transport) => Ok(of_server(&transport, asking).await),
        // Code that needs the connection reports the error.
        Err(_) => Ok(newest("there is no usable kubeconfig")),
    }
}

fn newest(reason: &str) -> Chosen {
    Chosen {
        release: Release::NEWEST,
        reason: format!("the newest release that Berth has, because {reason}"),
    }
}

/// The release of an API server. The newest one when the server does not answer.
pub(crate) async fn of_server(transport: &Transport, asking: AskingInterval) -> Chosen {
    let server = transport.server();
    let request = get_path("/version");
    let asked_until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = transport.request::<ServerVersion>(&request);
        let mut may_pass = true;
        let error = match tokio::time::timeout(REQUEST_TIMEOUT, answer).await {
            Ok(Ok(version)) => {
                let shown = &version.git_version;
                return match version.release() {
                    Some(release) => Chosen {
                        release,
                        reason: format!("the API server at {server} is {shown}"),
                    },
                    None => newest(&format!(
                        "the API server at {server} reports the unknown version {shown:?}"
                    )),
                };
            }
            Ok(Err(error)) => {
                let code = error.code();
                // A client error does not pass by itself; a server that is busy may answer later.
                may_pass = !code.is_some_and(|code| (400..500).contains(&code) && code != 429);
                error.to_string()
            }
            Err(_) => "no answer in time".to_owned(),
        };
        if asking == AskingInterval::Once || !may_pass || tokio::time::Instant::now() >= asked_until
        {
            tracing::warn!(
                "failed to read the version of the API server at {server}: {error}; behaving as Kubernetes {}; set \
                 --emulated-version to the version of the cluster",
                Release::NEWEST
            );
            return newest("the API server did not report its version");
        }
        tracing::warn!(
            "failed to read the version of the API server at {server}: {error}; retrying in {}s",
            PAUSE.as_secs()
        );
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::features::{GateState, Support};

    /// API-76: the API server has the gates of the scheduler with the same defaults, except those that Berth has on.
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
                // A feature of which the scheduler has no part may be on in the embedded API server.
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

    /// F-47.
    #[test]
    fn the_release_is_the_servers_within_those_that_berth_has() {
        for (major, minor, expected) in [
            ("1", "34", Some(Release::V1_36)),
            ("1", "36", Some(Release::V1_36)),
            ("1", "37+", Some(Release::V1_37)),
            ("1", "38", Some(Release::V1_38)),
            ("1", "40", Some(Release::V1_38)),
            ("2", "0", None),
            ("1", "", None),
        ] {
            let version = ServerVersion {
                major: major.to_owned(),
                minor: minor.to_owned(),
                git_version: String::new(),
            };
            assert_eq!(version.release(), expected, "{major}.{minor}");
        }
    }
}
