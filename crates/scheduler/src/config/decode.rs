//! The document as a whole: what it is, and the fields at its top.

use super::error::Problems;
use super::extender::Extender;
use super::profile::ProfileConfig;
use super::value::Object;
use super::{API_GROUP, API_VERSION, ClientConnection, Config, KIND, Known, LeaderElection};
use crate::profile::ProfileSpec;
use berth_api::GoDuration;
use serde_json::Value;

/// Reads a document. None when it is something else altogether; then reading on would only confuse.
pub(super) fn decode(document: &Value, known: Known, problems: &mut Problems) -> Option<Config> {
    if !document.is_object() {
        let hint = format!("start with `apiVersion: {API_VERSION}` and `kind: {KIND}`");
        let message = match document {
            Value::Null => "Object 'Kind' is missing: the configuration is empty",
            _ => "the configuration must be an object",
        };
        problems.add_with_hint("", message, hint);
        return None;
    }
    let mut at = Object::open(document, String::new(), problems);
    if !check_type(&mut at, problems) {
        return None;
    }
    let mut config = Config::of(known);
    if let Some(at) = at.object("leaderElection", problems) {
        config.leader_election = LeaderElection::decode(at, problems);
    }
    if let Some(at) = at.object("clientConnection", problems) {
        config.client_connection = ClientConnection::decode(at, problems);
    }
    if let Some(parallelism) = at.i32("parallelism", problems) {
        config.parallelism = parallelism;
    }
    config.enable_profiling = at.bool("enableProfiling", problems).unwrap_or(true);
    config.enable_contention_profiling = at
        .bool("enableContentionProfiling", problems)
        .unwrap_or(config.enable_profiling);
    config.percentage_of_nodes_to_score = at.i32("percentageOfNodesToScore", problems);
    if let Some(seconds) = at.i64("podInitialBackoffSeconds", problems) {
        config.pod_initial_backoff_seconds = seconds;
    }
    if let Some(seconds) = at.i64("podMaxBackoffSeconds", problems) {
        config.pod_max_backoff_seconds = seconds;
    }
    config.delay_cache_until_active = at.bool("delayCacheUntilActive", problems).unwrap_or(false);
    config.extenders = at
        .objects("extenders", problems)
        .into_iter()
        .map(|at| Extender::decode(at, problems))
        .collect();
    let profiles: Vec<ProfileConfig> = at
        .objects("profiles", problems)
        .into_iter()
        .map(|at| ProfileConfig::decode(at, &config.known, problems))
        .collect();
    if !profiles.is_empty() {
        config.profiles = profiles;
    }
    if let [only] = &mut config.profiles[..]
        && only.scheduler_name.is_empty()
    {
        only.scheduler_name = ProfileSpec::DEFAULT_SCHEDULER_NAME.to_owned();
    }
    at.close(problems);
    Some(config)
}

/// Whether the document is a configuration of this version, as far as it says.
fn check_type(at: &mut Object<'_>, problems: &mut Problems) -> bool {
    let kind = at.string("kind", problems);
    let version = at.string("apiVersion", problems);
    match &kind {
        Some(kind) if kind != KIND => {
            let version = version.as_deref().unwrap_or_default();
            let message = format!("no kind {kind:?} is registered for version {version:?}");
            problems.add_with_hint("kind", message, format!("it must be {KIND:?}"));
            return false;
        }
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
    /// What is zero or empty is the default, as upstream.
    fn decode(mut at: Object<'_>, problems: &mut Problems) -> Self {
        let defaults = Self::default();
        let mut duration = |field, default| {
            at.duration(field, problems)
                .filter(|given| *given != GoDuration::default())
                .unwrap_or(default)
        };
        let lease_duration = duration("leaseDuration", defaults.lease_duration);
        let renew_deadline = duration("renewDeadline", defaults.renew_deadline);
        let retry_period = duration("retryPeriod", defaults.retry_period);
        let mut text = |field, default| {
            at.string(field, problems)
                .filter(|given| !given.is_empty())
                .unwrap_or(default)
        };
        let resource_lock = text("resourceLock", defaults.resource_lock);
        let resource_namespace = text("resourceNamespace", defaults.resource_namespace);
        let resource_name = text("resourceName", defaults.resource_name);
        let leader_elect = at
            .bool("leaderElect", problems)
            .unwrap_or(defaults.leader_elect);
        at.close(problems);
        Self {
            leader_elect,
            lease_duration,
            renew_deadline,
            retry_period,
            resource_lock,
            resource_namespace,
            resource_name,
        }
    }
}

impl ClientConnection {
    /// What is zero or empty is the default, as upstream.
    fn decode(mut at: Object<'_>, problems: &mut Problems) -> Self {
        let defaults = Self::default();
        let connection = Self {
            kubeconfig: at.string("kubeconfig", problems).unwrap_or_default(),
            accept_content_types: at
                .string("acceptContentTypes", problems)
                .unwrap_or_default(),
            content_type: at
                .string("contentType", problems)
                .filter(|given| !given.is_empty())
                .unwrap_or(defaults.content_type),
            qps: at
                .f32("qps", problems)
                .filter(|given| *given != 0.0)
                .unwrap_or(defaults.qps),
            burst: at
                .i32("burst", problems)
                .filter(|given| *given != 0)
                .unwrap_or(defaults.burst),
        };
        at.close(problems);
        connection
    }
}
