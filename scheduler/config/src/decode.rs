//! The document as a whole: its kind, and its top-level fields.

use super::error::Problems;
use super::extender::Extender;
use super::profile::ProfileConfig;
use super::value::ConfigObject;
use super::{API_GROUP, API_VERSION, ClientConnection, Config, KIND, KnownPlugins, LeaderElection};
use berth_profile::ProfileSpec;
use serde_json::Value;

/// Decodes a document. `None` if it is not a configuration at all; further errors would only confuse.
pub(super) fn decode(document: &Value, known: KnownPlugins, problems: &Problems) -> Option<Config> {
    if !document.is_object() {
        let hint = format!("start with `apiVersion: {API_VERSION}` and `kind: {KIND}`");
        let message = match document {
            Value::Null => "Object 'Kind' is missing: the configuration is empty",
            _ => "the configuration must be an object",
        };
        problems.add_with_hint("", message, hint);
        return None;
    }
    let mut at = ConfigObject::open(document, String::new(), problems);
    if !check_type(&mut at) {
        return None;
    }
    let mut config = Config::of(known);
    if let Some(at) = at.object("leaderElection") {
        config.leader_election = LeaderElection::decode(at);
    }
    if let Some(at) = at.object("clientConnection") {
        config.client_connection = ClientConnection::decode(at);
    }
    config.parallelism = at.read("parallelism").unwrap_or(config.parallelism);
    config.enable_profiling = at.read("enableProfiling").unwrap_or(true);
    let contention = at.read("enableContentionProfiling");
    config.enable_contention_profiling = contention.unwrap_or(config.enable_profiling);
    config.percentage_of_nodes_to_score = at.read("percentageOfNodesToScore");
    if let Some(seconds) = at.read("podInitialBackoffSeconds") {
        config.pod_initial_backoff_seconds = seconds;
    }
    if let Some(seconds) = at.read("podMaxBackoffSeconds") {
        config.pod_max_backoff_seconds = seconds;
    }
    config.delay_cache_until_active = at.or_default("delayCacheUntilActive");
    let extenders = at.objects("extenders").into_iter();
    config.extenders = extenders.map(Extender::decode).collect();
    let profiles = at.objects("profiles").into_iter();
    let profiles: Vec<_> = profiles
        .map(|at| ProfileConfig::decode(at, &config.known))
        .collect();
    if !profiles.is_empty() {
        config.profiles = profiles;
    }
    // An empty name counts as given, and is refused.
    let is_named = document
        .pointer("/profiles/0/schedulerName")
        .is_some_and(|name| !name.is_null());
    if let [only] = &mut config.profiles[..]
        && !is_named
        && only.scheduler_name.is_empty()
    {
        only.scheduler_name = ProfileSpec::DEFAULT_SCHEDULER_NAME.to_owned();
    }
    at.close();
    Some(config)
}

/// Returns whether the document is a configuration of this version. Absent fields do not contradict that.
fn check_type(at: &mut ConfigObject<'_>) -> bool {
    let problems = at.problems;
    let kind: Option<String> = at.read("kind");
    let version: Option<String> = at.read("apiVersion");
    match &kind {
        Some(kind) if kind != KIND => {
            let version = version.as_deref().unwrap_or_default();
            let message = format!("no kind {kind:?} is registered for version {version:?}");
            problems.add_with_hint("kind", message, format!("it must be {KIND:?}"));
            return false;
        }
        // A field of the wrong type was reported already.
        None if !problems.has("kind", false) => {
            let hint = format!("add `kind: {KIND}`");
            problems.add_with_hint("kind", "Object 'Kind' is missing", hint);
        }
        _ => {}
    }
    match &version {
        Some(version) if version != API_VERSION => {
            let message = format!("no kind {KIND:?} is registered for version {version:?}");
            let hint = if version.starts_with(API_GROUP) {
                format!("that version is gone: use {API_VERSION:?} and change the fields to match")
            } else {
                format!("it must be {API_VERSION:?}")
            };
            problems.add_with_hint("apiVersion", message, hint);
            return false;
        }
        None if !problems.has("apiVersion", false) => {
            let hint = format!("add `apiVersion: {API_VERSION}`");
            problems.add_with_hint("apiVersion", "Object 'apiVersion' is missing", hint);
        }
        _ => {}
    }
    true
}

impl LeaderElection {
    /// A zero or empty value is the default, as upstream.
    fn decode(mut at: ConfigObject<'_>) -> Self {
        let defaults = Self::default();
        let election = Self {
            lease_duration: at.non_zero("leaseDuration", defaults.lease_duration),
            renew_deadline: at.non_zero("renewDeadline", defaults.renew_deadline),
            retry_period: at.non_zero("retryPeriod", defaults.retry_period),
            resource_lock: at.non_zero("resourceLock", defaults.resource_lock),
            resource_namespace: at.non_zero("resourceNamespace", defaults.resource_namespace),
            resource_name: at.non_zero("resourceName", defaults.resource_name),
            leader_elect: at.read("leaderElect").unwrap_or(defaults.leader_elect),
        };
        at.close();
        election
    }
}

impl ClientConnection {
    /// A zero or empty value is the default, as upstream.
    fn decode(mut at: ConfigObject<'_>) -> Self {
        let defaults = Self::default();
        let connection = Self {
            kubeconfig: at.or_default("kubeconfig"),
            accept_content_types: at.or_default("acceptContentTypes"),
            content_type: at.non_zero("contentType", defaults.content_type),
            qps: at.non_zero("qps", defaults.qps),
            burst: at.non_zero("burst", defaults.burst),
        };
        at.close();
        connection
    }
}
