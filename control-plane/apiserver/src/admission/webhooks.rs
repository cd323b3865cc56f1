//! Admission webhooks: HTTPS servers that change or reject requests (`admissionregistration.k8s.io/v1`).
//!
//! Mutating webhooks are called one after the other, in the order of the names of their configurations, between the
//! built-in changes of admission and validation. Validating webhooks are called at the same time, after validation and
//! before quotas. The thread of a request waits for them; the calls run on a separate thread. Requests that no webhook
//! receives do not wait.

pub(super) mod hook;

use super::Plugins;
use super::policies::{self, Mutations};
use crate::admission::RequestObjects;
use crate::registry::attributes::{Attributes, CONNECTS};
use crate::registry::endpoints::endpoints;
use crate::registry::{Api, ListRequest, scale_of, scale_put, show};
use crate::webhook_client::{Pending, blocking};
use berth_objects::catalog::{ServedResource, find};
use berth_objects::patch::{self, PatchError};
use berth_objects::raw_json::managed_fields_to_json;
use berth_objects::status::ApiError;
use berth_objects::view::meta_mut;
use hook::{Hook, WebhookVerdict};
use rustc_hash::FxHashSet;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// The kinds of configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Mutating,
    Validating,
}

/// The configured webhooks.
#[derive(Debug, Default)]
pub(super) struct Webhooks {
    mutating: KnownWebhooks,
    validating: KnownWebhooks,
}

/// The webhooks of the configurations of one sort, with the revisions of the configurations.
#[derive(Debug, Default)]
struct KnownWebhooks(Mutex<(Vec<u64>, Arc<Vec<Hook>>)>);

impl Sort {
    fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }
}

// === impl Attributes ===

impl Attributes<'_> {
    /// An object in the version of a resource.
    ///
    /// # Errors
    /// 500 when the conversion webhook of a custom resource fails.
    pub(super) fn shown(
        &self,
        api: &Api,
        resource: &ServedResource,
        object: &Value,
    ) -> Result<Value, ApiError> {
        if !self.is_whole() {
            return Ok(object.clone());
        }
        let mut shown = show(api, resource, object)?;
        shown["apiVersion"] = resource.api_version().into();
        shown["kind"] = resource.kind.into();
        managed_fields_to_json(&mut shown);
        Ok(shown)
    }

    /// The object of the request as [`Attributes::shown`], with the empty lists and maps that were sent: Go encodes
    /// them as `[]` and `{}` until the object is stored.
    ///
    /// # Errors
    /// As [`Attributes::shown`].
    pub(super) fn shown_as_sent(
        &self,
        api: &Api,
        resource: &ServedResource,
        object: &Value,
    ) -> Result<Value, ApiError> {
        let mut shown = self.shown(api, resource, object)?;
        if let Some(empties) = self.empties {
            empties.replace_nulls(&mut shown);
        }
        Ok(shown)
    }

    /// The object that a webhook or a policy made of `object`, which it received as `shown`; `None` if it is unchanged.
    ///
    /// # Errors
    /// 500 if it is not an object of its kind, and if the conversion webhook of a custom resource fails.
    pub(super) fn accept(
        &self,
        api: &Api,
        resource: &ServedResource,
        object: &Value,
        shown: &Value,
        new: Value,
    ) -> Result<Option<Value>, ApiError> {
        if new == *shown {
            return Ok(None);
        }
        let mut new = self.accepted(resource, new)?;
        if new == *shown {
            return Ok(None);
        }
        if self.is_whole() {
            new = resource.stored(new);
            let resource = self.resource;
            if resource.custom.is_some() {
                new = show(api, resource, &new)?;
            }
            // Fields that admission changes have no manager.
            let managers = object.pointer("/metadata/managedFields").cloned();
            let metadata = meta_mut(&mut new);
            metadata.remove("managedFields");
            metadata.extend(managers.map(|list| ("managedFields".to_owned(), list)));
            resource.strategy().default(&mut new);
        }
        Ok(Some(new))
    }
}

// === impl Webhooks ===

impl Webhooks {
    /// The webhooks of a sort; `None` when there are none.
    fn hooks(&self, api: &Api, sort: Sort) -> Option<Arc<Vec<Hook>>> {
        let resource = find("admissionregistration.k8s.io", sort.plural())?;
        if api.store().count(resource.store?) == 0 {
            return None;
        }
        let configurations = api.list(resource, &ListRequest::default()).ok()?.items;
        let revisions: Vec<u64> = configurations.iter().map(|v| v.revision()).collect();
        let known = match sort {
            Sort::Mutating => &self.mutating,
            Sort::Validating => &self.validating,
        };
        let mut known = known.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != revisions {
            let hooks = configurations.iter().flat_map(|v| Hook::read(&v.object()));
            *known = (revisions, Arc::new(hooks.collect()));
        }
        Some(Arc::clone(&known.1))
    }
}

/// Returns whether a webhook or a policy is configured.
pub(super) fn any(api: &Api) -> bool {
    let has_hooks = |sort: Sort| {
        let resource = find("admissionregistration.k8s.io", sort.plural());
        let store = resource.and_then(|r| r.store);
        store.is_some_and(|store| api.store().count(store) > 0)
    };
    has_hooks(Sort::Mutating)
        || has_hooks(Sort::Validating)
        || policies::any(api)
        || policies::any_mutating(api)
}

impl Plugins {
    /// Evaluates the mutating policies of a request and calls its mutating webhooks. Returns the object as they have
    /// changed it. `again` repeats the built-in changes, after one of them has changed the object.
    ///
    /// # Errors
    /// The refusal of a policy or a webhook; 500 when a webhook cannot be called.
    pub(super) fn mutate(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        object: Option<Value>,
        old: Option<&Value>,
        again: impl Fn(&mut Value) -> Result<(), ApiError>,
    ) -> Result<Option<Value>, ApiError> {
        let hooks = self
            .hooks(api, attributes, Sort::Mutating)
            .unwrap_or_default();
        let mut mutations = Mutations::default();
        let mut object = object;
        // As in kube-apiserver: a change repeats all previous webhooks with the reinvocation policy IfNeeded, once.
        let (mut called, mut repeated) = (FxHashSet::default(), FxHashSet::default());
        let (mut is_changed, mut last) = (false, None);
        for round in 0..2 {
            if round == 1 {
                let Some(object) = object.as_mut().filter(|_| is_changed) else {
                    break;
                };
                again(object)?;
            }
            if let Some(object) = &mut object
                && self.rules.mutating_admission_policy
                && policies::any_mutating(api)
            {
                let is_repeated = round == 1;
                is_changed |= blocking(|| {
                    mutations.run(api, &self.policies, attributes, object, old, is_repeated)
                })?;
            }
            if round == 1 && object != last {
                repeated.extend(called.drain());
            }
            for (i, hook) in hooks.iter().enumerate() {
                let objects = RequestObjects::new(object.as_ref(), old);
                let Some(resource) = hook.receives(api, attributes, objects)? else {
                    continue;
                };
                if round == 1 && !repeated.contains(&i) {
                    continue;
                }
                let call = self.call(api, attributes, hook, &resource, objects, true)?;
                let verdict = call.wait(hook, true);
                attributes.in_time(api)?;
                let verdict = match verdict {
                    Ok(verdict) => verdict,
                    Err(failure) => {
                        fail(hook, &failure)?;
                        continue;
                    }
                };
                take_warnings(attributes, &verdict);
                if !verdict.allowed {
                    return Err(ApiError::denied_by_webhook(&hook.name, verdict.status));
                }
                let patched = match verdict.patch {
                    Some(operations) => patched(
                        api,
                        attributes,
                        hook,
                        &resource,
                        object.as_ref(),
                        operations,
                    )?,
                    None => None,
                };
                if let Some(new) = patched {
                    repeated.extend(called.drain());
                    is_changed = true;
                    object = Some(new);
                }
                if hook.is_reinvoked {
                    called.insert(i);
                }
            }
            if round == 0 && is_changed {
                last.clone_from(&object);
            }
        }
        Ok(object)
    }

    /// Evaluates the policies of a request, then calls its validating webhooks, all at the same time.
    ///
    /// # Errors
    /// The refusal of a policy or a webhook; 500 when one cannot be called.
    pub(super) fn check(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        objects: RequestObjects<'_>,
    ) -> Result<(), ApiError> {
        if self.rules.validating_admission_policy && policies::any(api) {
            // Policies can take seconds; other requests are answered in the meantime.
            blocking(|| self.policies.check(api, attributes, objects))?;
        }
        let Some(hooks) = self.hooks(api, attributes, Sort::Validating) else {
            return Ok(());
        };
        // All calls are started before the first answer is awaited: they run at the same time.
        let mut calls = Vec::new();
        for hook in hooks.iter() {
            if let Some(resource) = hook.receives(api, attributes, objects)? {
                calls.push((
                    hook,
                    self.call(api, attributes, hook, &resource, objects, false),
                ));
            }
        }
        let mut result = Ok(());
        for (hook, call) in calls {
            let answer = call.and_then(|call| match call.wait(hook, false) {
                Ok(verdict) => {
                    take_warnings(attributes, &verdict);
                    if verdict.allowed {
                        Ok(())
                    } else {
                        Err(ApiError::denied_by_webhook(&hook.name, verdict.status))
                    }
                }
                Err(failure) => fail(hook, &failure),
            });
            // The first refusal is returned, but all calls are awaited, because their warnings count.
            result = result.and(answer);
        }
        attributes.in_time(api)?;
        result
    }

    /// Calls the mutating webhooks of an update of an object or of its scale.
    ///
    /// # Errors
    /// As [`Plugins::mutate`].
    pub(super) fn mutate_changed(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        new: Value,
        old: &Value,
        again: impl Fn(&mut Value) -> Result<(), ApiError>,
    ) -> Result<Value, ApiError> {
        if !any(api) {
            return Ok(new);
        }
        if attributes.sub != "scale" {
            let mutated = self.mutate(api, attributes, Some(new), Some(old), again)?;
            return Ok(mutated.unwrap_or_default());
        }
        let scale = scale_of(attributes.resource, &new);
        let old = scale_of(attributes.resource, old);
        let mutated = self.mutate(api, attributes, Some(scale.clone()), Some(&old), |_| Ok(()))?;
        match mutated {
            Some(mutated) if mutated != scale => scale_put(attributes.resource, &new, &mutated),
            _ => Ok(new),
        }
    }

    /// Calls the validating webhooks of a write of an object or of its scale.
    ///
    /// # Errors
    /// As [`Plugins::check`].
    pub(super) fn check_write(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        if !any(api) {
            return Ok(());
        }
        if attributes.sub == "scale" {
            let scale = |object: &Value| scale_of(attributes.resource, object);
            let (new, old) = (scale(new), old.map(scale));
            return self.check(
                api,
                attributes,
                RequestObjects::new(Some(&new), old.as_ref()),
            );
        }
        self.check(api, attributes, RequestObjects::new(Some(new), old))
    }

    /// The webhooks that may receive a request; `None` when there are none.
    fn hooks(&self, api: &Api, attributes: &Attributes<'_>, sort: Sort) -> Option<Arc<Vec<Hook>>> {
        // Webhooks do not decide about the configurations of webhooks.
        if attributes.resource.resource.group == "admissionregistration.k8s.io" {
            return None;
        }
        let rules = self.rules;
        let is_on = match sort {
            Sort::Mutating => rules.mutating_admission_webhook,
            Sort::Validating => rules.validating_admission_webhook,
        };
        if is_on {
            self.webhooks.hooks(api, sort)
        } else {
            None
        }
    }

    fn call(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        hook: &Hook,
        resource: &ServedResource,
        objects: RequestObjects<'_>,
        mutates: bool,
    ) -> Result<WebhookCall, ApiError> {
        if attributes.options.dry_run() && !hook.allows_dry_run {
            return Err(ApiError::bad_request(format!(
                "admission webhook {:?} does not support dry run",
                hook.name
            )));
        }
        let uid = api.new_uid();
        let request = hook::request(api, attributes, resource, &uid, objects)?;
        let review = hook::review(hook, request);
        tracing::debug!(webhook = hook.name, mutates, "calling an admission webhook");
        let find = |namespace: &str, name: &str, port| endpoints(api, namespace, name, port);
        let calls = &api.webhook_calls;
        // A call ends with the request.
        let left = attributes.options.requester().left(api.now());
        let limit = left.map_or(hook.timeout, |left| left.min(hook.timeout));
        let pending = calls.post(&find, &hook.target, limit, &review);
        Ok(WebhookCall { uid, pending })
    }
}

/// A call of a webhook that runs.
struct WebhookCall {
    uid: String,
    pending: Result<Pending, String>,
}

impl WebhookCall {
    /// The answer of the webhook.
    ///
    /// # Errors
    /// Why it cannot be called or understood.
    fn wait(self, hook: &Hook, mutates: bool) -> Result<WebhookVerdict, String> {
        let review = self.pending.and_then(Pending::wait);
        let review = review.map_err(|e| format!("failed to call webhook: {e}"))?;
        hook::verdict(hook, &self.uid, mutates, &review)
    }
}

/// A call that failed: an error, or a line of the log when the webhook fails open.
fn fail(hook: &Hook, failure: &str) -> Result<(), ApiError> {
    let message = format!("failed calling webhook {:?}: {failure}", hook.name);
    if hook.fails_open {
        tracing::warn!("{message}; the request continues, as failurePolicy is Ignore");
        return Ok(());
    }
    tracing::warn!("{message}; the request fails, as failurePolicy is Fail");
    Err(ApiError::internal(message))
}

fn take_warnings(attributes: &Attributes<'_>, verdict: &WebhookVerdict) {
    for warning in &verdict.warnings {
        attributes.options.requester().warn(warning);
    }
}

/// The object with the patch of a webhook; `None` if the patch changes nothing.
fn patched(
    api: &Api,
    attributes: &Attributes<'_>,
    hook: &Hook,
    resource: &ServedResource,
    object: Option<&Value>,
    operations: Value,
) -> Result<Option<Value>, ApiError> {
    let Some(object) = object else {
        return Err(ApiError::internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        )));
    };
    let shown = attributes.shown_as_sent(api, resource, object)?;
    let applied = patch::apply_json(shown.clone(), operations);
    let new = applied.map_err(|e: PatchError| ApiError::internal(e.to_string()))?;
    for field in ["apiVersion", "kind"] {
        let (was, is) = (shown[field].as_str(), new[field].as_str());
        if is.is_some_and(|is| !is.is_empty()) && is != was {
            return Err(ApiError::internal(format!(
                "admission webhook {:?} changed {field} from {:?} to {:?}",
                hook.name,
                was.unwrap_or(""),
                is.unwrap_or("")
            )));
        }
    }
    attributes.accept(api, resource, object, &shown, new)
}

/// The options of a CONNECT to a pod, which are its object, from the query of the request; `None` for another
/// subresource.
pub(crate) fn connect_options<'q>(
    sub: &str,
    query: impl Iterator<Item = (&'q str, &'q str)>,
) -> Option<Value> {
    let (_, kind) = CONNECTS.iter().find(|(known, _)| *known == sub)?;
    let mut options = json!({"apiVersion": "v1", "kind": kind});
    for (field, text) in query {
        match field {
            "container" | "path" => options[field] = text.into(),
            "stdin" | "stdout" | "stderr" | "tty" if matches!(text, "1" | "true") => {
                options[field] = true.into();
            }
            "command" | "ports" => {
                let entry = match text.parse::<u16>() {
                    Ok(port) if field == "ports" => json!(port),
                    _ => text.into(),
                };
                match options[field].as_array_mut() {
                    Some(list) => list.push(entry),
                    None => options[field] = json!([entry]),
                }
            }
            _ => {}
        }
    }
    Some(options)
}
