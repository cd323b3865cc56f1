//! Which controllers run, by the names that kube-controller-manager gives them.

use std::collections::BTreeSet;
use std::str::FromStr;

pub(super) const CRON_JOB: &str = "cronjob-controller";
pub(super) const DAEMON_SET: &str = "daemonset-controller";
pub(super) const DEPLOYMENT: &str = "deployment-controller";
pub(super) const DISRUPTION: &str = "disruption-controller";
pub(super) const EVENT_TTL: &str = "event-ttl-controller";
pub(super) const GARBAGE_COLLECTOR: &str = "garbage-collector-controller";
pub(super) const JOB: &str = "job-controller";
pub(super) const NAMESPACE: &str = "namespace-controller";
pub(super) const NODE_LIFECYCLE: &str = "node-lifecycle-controller";
pub(super) const PERSISTENT_VOLUME_BINDER: &str = "persistentvolume-binder-controller";
pub(super) const POD_GARBAGE_COLLECTOR: &str = "pod-garbage-collector-controller";
pub(super) const REPLICASET: &str = "replicaset-controller";
pub(super) const REPLICATION_CONTROLLER: &str = "replicationcontroller-controller";
pub(super) const RESOURCE_CLAIM: &str = "resourceclaim-controller";
pub(super) const RESOURCE_QUOTA: &str = "resourcequota-controller";
pub(super) const SERVICE_ACCOUNT: &str = "serviceaccount-controller";
pub(super) const STATEFUL_SET: &str = "statefulset-controller";

/// Every controller.
const NAMES: [&str; 17] = [
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    DISRUPTION,
    EVENT_TTL,
    GARBAGE_COLLECTOR,
    JOB,
    NAMESPACE,
    NODE_LIFECYCLE,
    PERSISTENT_VOLUME_BINDER,
    POD_GARBAGE_COLLECTOR,
    REPLICASET,
    REPLICATION_CONTROLLER,
    RESOURCE_CLAIM,
    RESOURCE_QUOTA,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
];

/// Which controllers run: `on` (all), `off` (none), or names separated by commas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// All of them.
    #[default]
    All,
    /// These only.
    Named(BTreeSet<&'static str>),
}

/// A name that no controller has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown controller {0:?}; use on, off, or some of {names}", names = NAMES.join(","))]
pub struct UnknownController(String);

impl Selection {
    /// Whether a controller runs.
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(name),
        }
    }

    /// Whether no controller runs.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Named(names) if names.is_empty())
    }
}

impl FromStr for Selection {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, UnknownController> {
        match text {
            "on" => return Ok(Self::All),
            "off" => return Ok(Self::Named(BTreeSet::new())),
            _ => {}
        }
        let named = text.split(',').map(|name| {
            let known = NAMES.into_iter().find(|known| *known == name);
            known.ok_or_else(|| UnknownController(name.to_owned()))
        });
        named.collect::<Result<_, _>>().map(Self::Named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_selected_by_name() {
        for (text, namespace, deployment) in [
            ("on", true, true),
            ("off", false, false),
            ("namespace-controller", true, false),
            ("namespace-controller,deployment-controller", true, true),
        ] {
            let selection: Selection = text.parse().expect(text);
            assert_eq!(selection.has(NAMESPACE), namespace, "{text}");
            assert_eq!(selection.has(DEPLOYMENT), deployment, "{text}");
        }
        let error = "namespaces".parse::<Selection>().unwrap_err().to_string();
        assert!(
            error.contains("unknown controller \"namespaces\""),
            "{error}"
        );
        assert!(error.contains("namespace-controller"), "{error}");
    }
}
