//! Aggregated API servers: group versions whose APIService names a service. Requests for them are sent on to the
//! endpoints of the service, and their condition `Available` states whether that is possible.
//!
//! Group versions of this server take precedence. Messages equal kube-aggregator's.

mod availability;
mod discovery;
mod proxy;

pub(super) use discovery::{add_aggregated, add_groups, group};
pub(super) use proxy::forward;

use super::ServerState;
use crate::registry::{Api, ListRequest, RequestAttributes};
use crate::stopping::stopped;
use crate::webhook_client::{Trust, WebhookTarget};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_objects::catalog::find;
use berth_objects::view::FieldView;
use futures_util::future::join_all;
use http::Method;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// The interval of the checks of the services behind APIServices.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The interval at which the resources of an available server are read again.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// The maximum number of changes of APIServices in one read.
const READ_MAX: usize = 1_000;

/// The state of the aggregated servers, by the names of their APIServices.
#[derive(Debug, Default)]
pub(super) struct Aggregation(Mutex<BTreeMap<String, KnownServers>>);

#[derive(Debug)]
struct KnownServers {
    /// The service, authority and other fields of the spec; the fields below are derived from it.
    spec: Value,
    target: Arc<WebhookTarget>,
    /// The resources of the group version, as aggregated discovery lists them.
    resources: Value,
    /// The time of the last answer of the server.
    answered: Option<Instant>,
}

impl Aggregation {
    /// The connection to a server; state of another spec is dropped.
    fn target(&self, service: &Value) -> Arc<WebhookTarget> {
        let (name, spec) = (service.part("metadata").text("name"), service.part("spec"));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(name) {
            Some(entry) if entry.spec == *spec => Arc::clone(&entry.target),
            _ => {
                let target = Arc::new(target(spec));
                let entry = KnownServers {
                    spec: spec.clone(),
                    target: Arc::clone(&target),
                    resources: Value::Null,
                    answered: None,
                };
                known.insert(name.to_owned(), entry);
                target
            }
        }
    }

    /// Returns whether a server has answered lately.
    fn is_fresh(&self, service: &Value) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get(service.part("metadata").text("name"));
        let answered = entry.filter(|entry| entry.spec == *service.part("spec"));
        answered
            .and_then(|entry| entry.answered)
            .is_some_and(|at| at.elapsed() < RESYNC_INTERVAL)
    }

    /// Records the answer of a server; `None` if it has not answered.
    fn note(&self, service: &Value, resources: Option<Value>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = known.get_mut(service.part("metadata").text("name")) {
            entry.answered = resources.is_some().then(Instant::now);
            entry.resources = resources.unwrap_or(std::mem::take(&mut entry.resources));
        }
    }

    /// Drops the state of servers that are no longer registered.
    fn retain(&self, services: &[Arc<Value>]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| {
            let is = |service: &Arc<Value>| service.part("metadata").text("name") == name;
            services.iter().any(is)
        });
    }

    /// The resources of a server, and whether they are current.
    fn resources(&self, service: &Value) -> (Value, bool) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = known.get(service.part("metadata").text("name"));
        entry.map_or((Value::Null, false), |entry| {
            (entry.resources.clone(), entry.answered.is_some())
        })
    }
}

fn target(spec: &Value) -> WebhookTarget {
    let bundle = STANDARD.decode(spec.text("caBundle")).unwrap_or_default();
    let trust = if spec.flag("insecureSkipTLSVerify") {
        Trust::Any
    } else {
        Trust::Bundle(bundle)
    };
    WebhookTarget::of_service(spec.part("service"), trust)
}

/// The APIServices with a service, in the order of their priorities.
fn remote(api: &Api) -> Vec<Arc<Value>> {
    let Some(resource) = find("apiregistration.k8s.io", "apiservices") else {
        return Vec::new();
    };
    let listed = api.list(resource, &ListRequest::default());
    let listed = listed.map(|l| l.items).unwrap_or_default();
    let mut services: Vec<Arc<Value>> = listed.iter().map(|v| v.object()).collect();
    services.retain(|service| is_remote(api, service));
    services.sort_by_key(|service| {
        let spec = service.part("spec");
        let priority = |field: &str| std::cmp::Reverse(spec.int(field));
        (
            priority("groupPriorityMinimum"),
            spec.text("group").to_owned(),
            priority("versionPriority"),
        )
    });
    services
}

/// Returns whether another server serves a group version.
fn is_remote(api: &Api, service: &Value) -> bool {
    let spec = service.part("spec");
    let catalog = api.catalog();
    let is_local = |(group, version): &(&str, &str)| {
        (*group, *version) == (spec.text("group"), spec.text("version"))
    };
    spec.field("service").is_some() && !catalog.group_versions().iter().any(is_local)
}

/// The APIService of another server for a path.
pub(super) fn find_remote(api: &Api, segments: &[String]) -> Option<Arc<Value>> {
    let [first, group, version, ..] = segments else {
        return None;
    };
    if first != "apis" {
        return None;
    }
    let resource = find("apiregistration.k8s.io", "apiservices")?;
    let service = api.get(resource, "", &format!("{version}.{group}")).ok()?;
    let service = service.object();
    is_remote(api, &service).then_some(service)
}

/// The attributes of a request to another server, by its path; `None` for a path that names no resource.
pub(super) fn asked<'a>(
    segments: &'a [String],
    method: &Method,
    is_watch: bool,
) -> Option<RequestAttributes<'a>> {
    let texts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let [_, group, _, rest @ ..] = texts.as_slice() else {
        return None;
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let [resource, rest @ ..] = rest else {
        return None;
    };
    let name = rest.first().copied().unwrap_or("");
    let verb = match method.as_str() {
        "GET" | "HEAD" if !name.is_empty() => "get",
        "GET" | "HEAD" if is_watch => "watch",
        "GET" | "HEAD" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if !name.is_empty() => "delete",
        "DELETE" => "deletecollection",
        // Authorization denies a verb that does not exist.
        _ => "",
    };
    Some(RequestAttributes {
        verb,
        group,
        resource,
        sub: rest.get(1).copied().unwrap_or(""),
        namespace,
        name,
        path: "",
    })
}

/// Keeps the conditions of the APIServices with a service up to date, until the server stops. Without such an
/// APIService it waits for one.
pub(super) async fn check(state: Arc<ServerState>, mut stopping: watch::Receiver<bool>) {
    let store = find("apiregistration.k8s.io", "apiservices");
    let Some(store) = store.and_then(|resource| resource.store) else {
        return;
    };
    loop {
        let Ok((_, _, mut cursor)) = state.api.store().watch_now(store, "") else {
            return;
        };
        // A change after this read leads to another turn.
        while cursor.read(READ_MAX).is_ok() {
            let services = remote(&state.api);
            state.aggregation.retain(&services);
            let checks = services
                .iter()
                .map(|service| availability::check(&state, service));
            join_all(checks).await;
            tokio::select! {
                () = stopped(&mut stopping) => return,
                () = cursor.changed() => {}
                () = sleep(CHECK_INTERVAL), if !services.is_empty() => {}
            }
        }
    }
}
