//! Every field of the configuration and what it does in Berth: one table for the documentation and for the warnings
//! about fields that have no effect.

use serde_json::Value;

/// A field of KubeSchedulerConfiguration.
#[derive(Debug, Clone, Copy)]
pub struct ConfigField {
    /// Its path; `[]` means each entry of a list.
    pub path: &'static str,
    /// Its effect, in one sentence.
    pub meaning: &'static str,
    /// The reason why it has no effect; empty when it has one.
    pub no_effect: &'static str,
    /// The value, as JSON, that asks for nothing and needs no warning; for fields without effect.
    neutral: &'static str,
}

const fn works(path: &'static str, meaning: &'static str) -> ConfigField {
    ConfigField {
        path,
        meaning,
        no_effect: "",
        neutral: "",
    }
}

/// Every field but `apiVersion` and `kind`.
#[rustfmt::skip]
pub const FIELDS: &[ConfigField] = &[
    works("parallelism", "How many API calls may be in flight: 8 for each. kube-scheduler also evaluates so many nodes at once; Berth's core is one thread."),
    works("leaderElection.leaderElect", "Whether this scheduler takes part in leader election before it schedules."),
    works("leaderElection.leaseDuration", "How long a standby waits after the last renewal it has seen before it takes over."),
    works("leaderElection.renewDeadline", "How long the leader tries to renew the lease before it stops."),
    works("leaderElection.retryPeriod", "The pause between two attempts to acquire or renew the lease."),
    works("leaderElection.resourceLock", "The type of object for leader election; only `leases`."),
    works("leaderElection.resourceName", "The name of the Lease."),
    works("leaderElection.resourceNamespace", "The namespace of the Lease."),
    works("clientConnection.kubeconfig", "The kubeconfig. Without one, `KUBECONFIG`, `~/.kube/config` and the service account of the pod are tried."),
    works("clientConnection.acceptContentTypes", "The content types that are accepted from the API server: the header `Accept`. Empty: `contentType`, else what the API server prefers."),
    works("clientConnection.contentType", "The content type of requests to the API server: `application/vnd.kubernetes.protobuf` or `application/json`. Patches and custom resources are JSON."),
    works("clientConnection.qps", "How many requests a second are sent to the API server on average. Negative: no limit."),
    works("clientConnection.burst", "How many requests may be sent at once."),
    works("enableProfiling", "Whether profiles of the process are served at `/debug/pprof/`."),
    ConfigField {
        path: "enableContentionProfiling",
        meaning: "Whether lock contention is profiled.",
        no_effect: "the scheduling core has no locks to profile",
        neutral: "false",
    },
    works("percentageOfNodesToScore", "How many per cent of the nodes are searched for feasible ones. Unset or 0: all of them."),
    works("podInitialBackoffSeconds", "The backoff of a pod after its first failed attempt, in seconds."),
    works("podMaxBackoffSeconds", "The longest backoff of a pod, in seconds."),
    works("delayCacheUntilActive", "Whether a standby watches nothing until it becomes the leader."),
    works("profiles[].schedulerName", "The name by which pods choose this profile."),
    works("profiles[].percentageOfNodesToScore", "The same for one profile."),
    works("profiles[].plugins", "The plugins to enable and disable at each extension point. Plugins for placementGenerate and placementScore are refused."),
    works("profiles[].pluginConfig", "The arguments of plugins."),
    works("extenders[].urlPrefix", "The address of the extender."),
    works("extenders[].filterVerb", "The path that filters nodes."),
    works("extenders[].preemptVerb", "The path that chooses victims of preemption."),
    works("extenders[].prioritizeVerb", "The path that scores nodes."),
    works("extenders[].weight", "The factor of the extender's scores."),
    works("extenders[].bindVerb", "The path that binds pods."),
    works("extenders[].enableHTTPS", "Whether the extender is called over TLS."),
    works("extenders[].tlsConfig", "Certificates and names for TLS."),
    works("extenders[].httpTimeout", "The time limit of a call."),
    works("extenders[].nodeCacheCapable", "Whether the extender gets names of nodes instead of whole nodes."),
    works("extenders[].managedResources", "The resources the extender manages."),
    works("extenders[].ignorable", "Whether scheduling goes on without the extender when it fails."),
];

/// A warning for every field of a document that asks for something that it does not get.
pub(super) fn warnings(document: &Value) -> Vec<String> {
    FIELDS
        .iter()
        .filter(|field| !field.no_effect.is_empty())
        .filter_map(|field| {
            let pointer = format!("/{}", field.path.replace('.', "/"));
            let given = document.pointer(&pointer)?;
            let is_neutral = given.is_null()
                || serde_json::from_str(field.neutral)
                    .is_ok_and(|neutral: Value| neutral == *given);
            (!is_neutral).then(|| format!("{} has no effect: {}", field.path, field.no_effect))
        })
        .collect()
}
