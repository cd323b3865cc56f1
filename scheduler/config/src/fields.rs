//! All fields of the configuration and their effect in Berth: one table for the documentation and for the warnings
//! about fields without effect.

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
    /// The value, as JSON, that needs no warning because it is the default behaviour; for fields without effect.
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
    works("parallelism", "The maximum number of API calls in flight is 8 times this value. kube-scheduler also evaluates this number of nodes in parallel; Berth's core is one thread."),
    works("leaderElection.leaderElect", "Whether this scheduler acquires the leader lease before it schedules."),
    works("leaderElection.leaseDuration", "The duration for which a standby waits after the last observed renewal before it acquires the lease."),
    works("leaderElection.renewDeadline", "The duration for which the leader retries to renew the lease before it stops."),
    works("leaderElection.retryPeriod", "The pause between two attempts to acquire or renew the lease."),
    works("leaderElection.resourceLock", "The type of object for leader election; only `leases`."),
    works("leaderElection.resourceName", "The name of the Lease."),
    works("leaderElection.resourceNamespace", "The namespace of the Lease."),
    works("clientConnection.kubeconfig", "The kubeconfig. Without one, `KUBECONFIG`, `~/.kube/config` and the service account of the pod are tried."),
    works("clientConnection.acceptContentTypes", "The accepted content types of responses: the header `Accept`. Empty: `contentType`, else the preference of the API server."),
    works("clientConnection.contentType", "The content type of requests to the API server: `application/vnd.kubernetes.protobuf` or `application/json`. Patches and custom resources are JSON."),
    works("clientConnection.qps", "The average number of requests per second to the API server. Negative: no limit."),
    works("clientConnection.burst", "The maximum burst of requests."),
    works("enableProfiling", "Whether profiles of the process are served at `/debug/pprof/`."),
    ConfigField {
        path: "enableContentionProfiling",
        meaning: "Whether lock contention is profiled.",
        no_effect: "the scheduling core has no locks to profile",
        neutral: "false",
    },
    works("percentageOfNodesToScore", "The percentage of the nodes that is searched for feasible nodes. Unset or 0: all nodes."),
    works("podInitialBackoffSeconds", "The backoff of a pod after its first failed attempt, in seconds."),
    works("podMaxBackoffSeconds", "The longest backoff of a pod, in seconds."),
    works("delayCacheUntilActive", "Whether a standby watches nothing until it becomes the leader."),
    works("profiles[].schedulerName", "The name by which pods select this profile."),
    works("profiles[].percentageOfNodesToScore", "`percentageOfNodesToScore` of one profile."),
    works("profiles[].plugins", "The plugins to enable and disable at each extension point."),
    works("profiles[].pluginConfig", "The arguments of plugins."),
    works("extenders[].urlPrefix", "The address of the extender."),
    works("extenders[].filterVerb", "The path that filters nodes."),
    works("extenders[].preemptVerb", "The path that selects victims of preemption."),
    works("extenders[].prioritizeVerb", "The path that scores nodes."),
    works("extenders[].weight", "The factor of the extender's scores."),
    works("extenders[].bindVerb", "The path that binds pods."),
    works("extenders[].enableHTTPS", "Whether the extender is called over TLS."),
    works("extenders[].tlsConfig", "Certificates and names for TLS."),
    works("extenders[].httpTimeout", "The time limit of a call."),
    works("extenders[].nodeCacheCapable", "Whether requests contain names of nodes instead of complete nodes."),
    works("extenders[].managedResources", "The resources that the extender manages."),
    works("extenders[].ignorable", "Whether scheduling continues without the extender if it fails."),
];

/// A warning for every field of a document whose value has no effect.
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
