//! `pods/eviction`: deletes a pod if its PodDisruptionBudget allows that.

use super::api::Api;
use super::list::ListRequest;
use super::revise::WRITE_ATTEMPTS_MAX;
use super::write::{action, check_namespace};
use crate::registry::request::{DeleteRequest, Deletion, Method, UpdateInputs, WriteOptions};
use crate::storage::ObjectVersion;
use berth_objects::body::{Encoding, WriteBody};
use berth_objects::catalog::ServedResource;
use berth_objects::object::{
    condition, count, generation, is_deleting, labels, put_condition, seconds,
};
use berth_objects::schema::GroupVersionKind;
use berth_objects::selectors::workload::ControllerSelector;
use berth_objects::status::{ApiError, Cause, StatusSubject};
use berth_objects::view::meta;
use berth_objects::{catalog, decode, disruption, pod};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// A budget lists no more pods whose eviction it admitted and that are not deleted yet.
const DISRUPTED_PODS_MAX: usize = 2_000;
/// The `Retry-After` of a request while the status of a budget is out of date, in seconds.
const RETRY_SECONDS: u32 = 10;
const DISRUPTION_TARGET: &str = "DisruptionTarget";
const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// An eviction that was admitted.
#[derive(Debug)]
pub(crate) struct Eviction {
    /// The deletion of the pod, whose second step is left to the caller.
    pub(crate) begun: Deletion,
    /// The request for this deletion.
    pub(crate) request: DeleteRequest,
    /// The warnings for the client.
    pub(crate) warnings: Vec<String>,
}

impl Api {
    /// POST `…/eviction`: the first step of the deletion of the pod.
    ///
    /// # Errors
    /// 400 and 404; 429 when the budget does not allow it; 500 when several budgets select the pod.
    pub(crate) fn evict(
        &self,
        pods: &ServedResource,
        namespace: &str,
        name: &str,
        body: WriteBody<'_>,
        options: &WriteOptions,
    ) -> Result<Eviction, ApiError> {
        let kind = GroupVersionKind::new("policy", "v1", "Eviction");
        let (eviction, warnings) = decode::of_kind(kind, body, options.validation)?;
        if meta(&eviction, "name") != name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        check_namespace(namespace, &eviction)?;
        let action = action(pods, "eviction", namespace, name, options);
        let eviction = (self.admission).admit_action(self, &action, eviction)?;
        let mut request = delete_request(&eviction)?;
        request.dry_run |= options.dry_run;
        request.requester = Arc::clone(&options.requester);
        for _ in 0..WRITE_ATTEMPTS_MAX {
            let current = self.get(pods, namespace, name)?;
            let guard = guard(self, namespace, &current, request.dry_run)?;
            // The eviction depends on the state of the pod. If the pod has changed, the eviction is judged again.
            let pin = (guard != Guard::Free).then(|| current.revision());
            match disrupt(self, pods, namespace, name, pin, request.clone()) {
                Err(e) if e.is_conflict() && pin.is_some() && !is_pinned(&request) => {
                    // The budget has to see the change of an unready pod first.
                    if let Guard::Unready(budget) = guard {
                        return Err(out_of_date(&budget));
                    }
                }
                result => {
                    return result.map(|(begun, request)| Eviction {
                        begun,
                        request,
                        warnings,
                    });
                }
            }
        }
        Err(ApiError::modified(pods.subject(name)))
    }
}

/// Determines the object that protects a pod. A budget that protects it is charged for the disruption.
fn guard(
    api: &Api,
    namespace: &str,
    current: &ObjectVersion,
    dry_run: bool,
) -> Result<Guard, ApiError> {
    let evicted = &*current.object();
    if pod::is_terminal(evicted) || is_deleting(evicted) {
        return Ok(Guard::Free);
    }
    if pod::phase(evicted) == "Pending" {
        return Ok(Guard::Pending);
    }
    let budgets =
        catalog::find("policy", "poddisruptionbudgets").ok_or_else(ApiError::no_such_resource)?;
    let request = ListRequest {
        namespace: Some(namespace),
        ..ListRequest::default()
    };
    let mut selecting = api.list(budgets, &request)?.items;
    selecting.retain(|budget| {
        let selector = ControllerSelector::parse(&budget.object()["spec"]["selector"]);
        selector.matches(labels(evicted))
    });
    let budget = match selecting.as_slice() {
        [] => return Ok(Guard::Free),
        [one] => &*one.object(),
        _ => {
            return Err(ApiError::internal_plain(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.".to_owned(),
            ));
        }
    };
    let name = meta(budget, "name");
    let status = &budget["status"];
    let number = |field: &str| count(&status[field], 0);
    let is_spare = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0);
    if !pod::is_ready(evicted) && is_spare {
        return Ok(Guard::Unready(name.to_owned()));
    }
    let options = WriteOptions {
        dry_run,
        manager: "kube-apiserver".to_owned(),
        ..WriteOptions::default()
    };
    let change = UpdateInputs {
        resource: budgets,
        namespace,
        name,
        sub: "status",
        options: &options,
        by: Method::Put,
        is_decoded: false,
    };
    let evicted = meta(evicted, "name");
    for _ in 0..WRITE_ATTEMPTS_MAX {
        match api.update(&change, |budget| charged(budget, evicted, api.now())) {
            Err(e) if e.is_conflict() => {}
            result => return result.map(|_| Guard::Free),
        }
    }
    Err(ApiError::modified(budgets.subject(name)))
}

/// Records in the status of a pod that it is evicted, and begins its deletion. `pin` is the revision that it must have.
fn disrupt(
    api: &Api,
    pods: &ServedResource,
    namespace: &str,
    name: &str,
    pin: Option<u64>,
    mut request: DeleteRequest,
) -> Result<(Deletion, DeleteRequest), ApiError> {
    let store = pods.store.ok_or_else(ApiError::method_not_allowed)?;
    let mark = |current: Arc<ObjectVersion>| {
        let evicted = &*current.object();
        request.preconditions.check(pods, name, evicted)?;
        if pin.is_some_and(|revision| revision != current.revision()) {
            return Err(ApiError::modified(pods.subject(name)));
        }
        let mut marked = Value::clone(evicted);
        let since = condition(&evicted["status"], DISRUPTION_TARGET)
            .filter(|c| c["status"] == "True")
            .map(|c| c["lastTransitionTime"].clone());
        put_condition(
            &mut marked["status"],
            json!({
                "type": DISRUPTION_TARGET,
                "status": "True",
                "lastProbeTime": null,
                "lastTransitionTime": since.unwrap_or_else(|| api.now_text().into()),
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }),
        );
        let key = pods.key(namespace, name);
        Ok(api.store.replace(store, &key, current.revision(), marked))
    };
    let mut pin = pin;
    if !request.dry_run {
        let marked = api.revise(pods, namespace, name, mark)?;
        if pin.is_some() || is_pinned(&request) {
            pin = Some(marked.revision());
        }
    }
    if let Some(revision) = pin {
        request.preconditions.resource_version = Some(revision.to_string());
    }
    request.is_admitted = true;
    let begun = api.begin_deletion(pods, namespace, name, &request)?;
    Ok((begun, request))
}

/// The object that protects a pod from its eviction.
#[derive(Debug, PartialEq, Eq)]
enum Guard {
    /// No budget, or a budget that allows the eviction.
    Free,
    /// It does not run yet and is evicted unless that changes.
    Pending,
    /// It is not ready and is evicted unless that changes. The name of its budget.
    Unready(String),
}

fn is_pinned(request: &DeleteRequest) -> bool {
    request.preconditions.resource_version.is_some()
}

/// The `deleteOptions` of an eviction.
fn delete_request(eviction: &Value) -> Result<DeleteRequest, ApiError> {
    let mut options = eviction["deleteOptions"].clone();
    if options.is_null() {
        return DeleteRequest::parse(None, |_| None);
    }
    if let Some(map) = options.as_object_mut() {
        map.insert("kind".to_owned(), "DeleteOptions".into());
    }
    let text = options.to_string();
    let body = WriteBody {
        bytes: text.as_bytes(),
        encoding: Encoding::Json,
    };
    DeleteRequest::parse(Some(body), |_| None)
}

/// A budget with one disruption less, and the pod in its list.
fn charged(budget: &Value, evicted: &str, now: Timestamp) -> Result<Value, ApiError> {
    let (name, status) = (meta(budget, "name"), &budget["status"]);
    let observed = status["observedGeneration"].as_i64().unwrap_or(0);
    // The budget has changed since the controller counted: its numbers are not valid.
    if observed < generation(budget) {
        return Err(out_of_date(name));
    }
    let listed = status["disruptedPods"].as_object();
    // The map grows while the controller does not confirm evictions; the limit bounds the object.
    if listed.is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
        let subject = StatusSubject {
            group: "policy",
            resource: "poddisruptionbudget",
            name,
        };
        return Err(ApiError::forbidden(
            subject,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    let allowed = count(&status["disruptionsAllowed"], 0);
    if allowed <= 0 {
        return Err(ApiError::too_many_requests(VIOLATION, 0).with_cause(Cause {
            reason: "DisruptionBudget",
            message: why(name, status),
            field: String::new(),
        }));
    }
    let mut new = budget.clone();
    let status = &mut new["status"];
    status["disruptionsAllowed"] = (allowed - 1).into();
    if !status["disruptedPods"].is_object() {
        status["disruptedPods"] = json!({});
    }
    status["disruptedPods"][evicted] = seconds(now);
    // The condition follows the number at once, not at the next turn of the controller.
    if allowed == 1 {
        disruption::set_allowed(status, now);
    }
    Ok(new)
}

/// The reason why a budget allows no disruption.
fn why(name: &str, status: &Value) -> String {
    let number = |field: &str| count(&status[field], 0);
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    let text = |field: &str| {
        let blocking = condition(status, "DisruptionAllowed").filter(|c| c["status"] == "False");
        blocking.and_then(|c| c[field].as_str()).unwrap_or("")
    };
    let (reason, message) = (text("reason"), text("message"));
    if reason == "SyncFailed" && !message.is_empty() {
        format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        )
    } else if healthy <= desired {
        format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        )
    } else if !message.is_empty() {
        format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
        )
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    }
}

/// 429 until the status of the budget is up to date.
fn out_of_date(budget: &str) -> ApiError {
    ApiError::too_many_requests(VIOLATION, RETRY_SECONDS).with_cause(Cause {
        reason: "DisruptionBudget",
        message: format!("The disruption budget {budget} is still being processed by the server."),
        field: String::new(),
    })
}
