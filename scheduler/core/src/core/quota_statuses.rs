//! The statuses of deferred quotas: the times of the writes, and their contents.

use berth_api::{CustomObject, Duration, Kind, Str, Time};
use berth_dispatcher::Dispatcher;
use berth_framework::call::CallResult;
use berth_framework::cluster::{DEFERRED_QUOTA, QuotaAmount, QuotaView, Quotas, RemovedQuota};
use berth_framework::write::{Action, CallType, Write};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Statuses of quotas. The last write of a quota takes precedence.
static QUOTA_STATUS: CallType =
    CallType::new("deferred_quota_status_patch", Kind::Custom(DEFERRED_QUOTA));

/// The minimum time between two writes of the status of a quota.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which a status is computed again if the API server did not accept it.
const STATUS_RETRY: Duration = Duration::from_secs(30);

/// The minimum time between two evaluations of the pods at the head of a line for their conditions (DQ-14).
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// The number of pods at the head of a line whose conditions follow the quota (DQ-14).
const REPORTED_MAX: usize = 10;

/// The number of deleted quotas that are kept until their events are published. No event is published for further ones.
const REMOVED_MAX: usize = 100;

/// The maximum age of the deletion of a quota for which an event is published.
const REMOVED_AGE_MAX: Duration = Duration::from_secs(10);

/// Namespace and name of a quota.
type QuotaId = (Str, Str);

/// The quotas whose statuses are to be written, with the times.
#[derive(Debug, Default)]
pub(crate) struct QuotaStatuses {
    due: BTreeSet<(Time, QuotaId)>,
    known: FxHashMap<QuotaId, Planned>,
    /// The quotas that were deleted while pods waited for them, with the times and with pending events.
    removed: Vec<(Time, RemovedQuota)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Planned {
    /// The next time at which the status is compared with the quota.
    due: Option<Time>,
    written: Option<Time>,
    reported: Option<Time>,
}

impl QuotaStatuses {
    /// Lets the dispatcher take writes of statuses.
    pub(crate) fn register(dispatcher: &mut Dispatcher) {
        let registered = dispatcher.register(&QUOTA_STATUS);
        debug_assert!(registered.is_ok(), "a plugin writes quotas: {registered:?}");
    }

    /// The numbers of a quota may have changed: its status is due, though not within a second of the last write.
    pub(crate) fn changed(&mut self, id: &QuotaId, now: Time) {
        let planned = self.known.entry(id.clone()).or_default();
        let at = planned
            .written
            .map_or(now, |at| (at + STATUS_INTERVAL).max(now));
        if planned.due.is_none_or(|due| due > at) {
            self.plan(id, at);
        }
    }

    /// The status is computed again at that time.
    fn plan(&mut self, id: &QuotaId, at: Time) {
        let planned = self.known.entry(id.clone()).or_default();
        if let Some(before) = planned.due.replace(at) {
            self.due.remove(&(before, id.clone()));
        }
        self.due.insert((at, id.clone()));
    }

    /// The next quota whose status is due.
    pub(crate) fn take_due(&mut self, now: Time) -> Option<QuotaId> {
        if self.due.first()?.0 > now {
            return None;
        }
        let (_, id) = self.due.pop_first()?;
        if let Some(planned) = self.known.get_mut(&id) {
            planned.due = None;
        }
        Some(id)
    }

    /// A quota was deleted, or the object is not a quota any more.
    pub(crate) fn forget(&mut self, id: &QuotaId) {
        if let Some(due) = self.known.remove(id).and_then(|planned| planned.due) {
            self.due.remove(&(due, id.clone()));
        }
    }

    /// Quotas were deleted while pods waited for them. Their events are pending.
    pub(crate) fn removed(&mut self, quotas: Vec<RemovedQuota>, now: Time) {
        let left = REMOVED_MAX.saturating_sub(self.removed.len());
        let quotas = quotas.into_iter().take(left);
        self.removed.extend(quotas.map(|quota| (now, quota)));
    }

    /// The deleted quotas with pending events. A scheduler on standby publishes nothing, and the leader has published
    /// the events when the standby takes over, so old ones are dropped.
    pub(crate) fn take_removed(&mut self, now: Time) -> Vec<RemovedQuota> {
        let removed = std::mem::take(&mut self.removed).into_iter();
        let recent = removed.filter(|(at, _)| now.since(*at) < REMOVED_AGE_MAX);
        recent.map(|(_, quota)| quota).collect()
    }

    /// The next time at which a status or an event is due.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let removed = self.removed.first().map(|(at, _)| *at);
        let due = self.due.first().map(|(at, _)| *at);
        removed.into_iter().chain(due).min()
    }

    /// The write of the status of a quota, if it differs from the quota.
    pub(crate) fn write(&mut self, quotas: &Quotas, id: &QuotaId, now: Time) -> Option<Write> {
        let Some(quota) = quotas.get(&id.0, &id.1) else {
            self.forget(id);
            return None;
        };
        let before = quota.object.value.get("status");
        let status = status_of(&quota, now);
        if before == Some(&status) {
            return None;
        }
        self.known.entry(id.clone()).or_default().written = Some(now);
        let patch = json!({"status": patch_of(before, &status)});
        let write = Write::new(&QUOTA_STATUS, &id.0, &id.1, Action::Patch(patch));
        Some(write.of(&quota.object.metadata).to_subresource("status"))
    }

    /// The pods at the head of the line, if their conditions are due to be evaluated.
    pub(crate) fn heads(&mut self, quotas: &Quotas, id: &QuotaId, now: Time) -> Vec<Str> {
        let entries = quotas.line(&id.0, &id.1).take(REPORTED_MAX);
        let members = entries.flat_map(|(_, key)| quotas.members(&id.0, key).take(REPORTED_MAX));
        let uids: Vec<Str> = members.take(REPORTED_MAX).cloned().collect();
        if uids.is_empty() || !self.known.contains_key(id) {
            return Vec::new();
        }
        let planned = self.known.entry(id.clone()).or_default();
        if let Some(reported) = planned.reported
            && now < reported + REPORT_INTERVAL
        {
            if planned.due.is_none() {
                self.plan(id, reported + REPORT_INTERVAL);
            }
            return Vec::new();
        }
        planned.reported = Some(now);
        uids
    }

    /// Handles the result of a write. A status whose write failed is computed again later.
    pub(crate) fn write_ended(&mut self, write: &Write, result: &CallResult, now: Time) {
        let object = write.object();
        if object.kind == Kind::Custom(DEFERRED_QUOTA)
            && let Err(error) = result
            && !error.kind.is_dropped()
        {
            let id = (object.namespace.clone(), object.name.clone());
            self.plan(&id, now + STATUS_RETRY);
        }
    }
}

/// The merge patch that turns one status into the other: obsolete fields are removed.
fn patch_of(before: Option<&Value>, after: &Value) -> Value {
    let (Some(Value::Object(before)), Value::Object(after)) = (before, after) else {
        return after.clone();
    };
    let mut patch = serde_json::Map::new();
    for (field, value) in after {
        patch.insert(field.clone(), patch_of(before.get(field), value));
    }
    for field in before.keys().filter(|field| !after.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// The status of a quota. The transition time of an unchanged condition is kept.
fn status_of(quota: &QuotaView<'_>, now: Time) -> Value {
    let limit = |at: usize| quota.spec.and_then(|spec| spec.limits.get(at));
    let amounts = |of: fn(&QuotaAmount) -> i64, with_zero: bool| -> Value {
        let amounts = quota.amounts.iter().enumerate();
        let texts = amounts.filter_map(|(at, amount)| {
            let value = of(amount);
            let text = limit(at)?.text(value);
            (with_zero || value > 0).then(|| (amount.key.to_string(), json!(text)))
        });
        Value::Object(texts.collect())
    };
    let mut waiting = json!({"pods": quota.waiting});
    if let Some(oldest) = quota.oldest {
        waiting["oldest"] = json!(oldest.rfc3339());
    }
    let valid = match quota.error {
        None => condition(quota.object, "Valid", "True", "Valid", "", now),
        Some(error) => condition(quota.object, "Valid", "False", "InvalidSpec", error, now),
    };
    let stuck = quota.stuck.as_ref().map(ToString::to_string);
    let (status, reason, message) = match &stuck {
        None => ("True", "Fits", String::new()),
        Some(text) => (
            "False",
            "RequestExceedsLimit",
            format!("the first pod in line can never be admitted: {text}"),
        ),
    };
    let fits = condition(quota.object, "FirstFits", status, reason, &message, now);
    let mut status = json!({
        "conditions": [valid, fits],
        "waiting": waiting,
    });
    if quota.spec.is_some() {
        status["hard"] = amounts(|amount| amount.hard, true);
        status["used"] = amounts(|amount| amount.used, true);
        status["admitted"] = amounts(|amount| amount.admitted, false);
        status["borrowed"] = amounts(QuotaAmount::borrowed, false);
        status["summary"] = json!({
            "hard": summary(&status["hard"]),
            "used": summary(&status["used"]),
        });
    }
    status
}

/// The amounts in one line, for the columns of `kubectl get`.
fn summary(amounts: &Value) -> String {
    let amounts = amounts.as_object().into_iter().flatten();
    let texts = amounts.map(|(key, amount)| format!("{key}: {}", amount.as_str().unwrap_or("")));
    texts.collect::<Vec<_>>().join(", ")
}

fn condition(
    object: &CustomObject,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Time,
) -> Value {
    let known = object.value.pointer("/status/conditions");
    let known = known.and_then(Value::as_array).into_iter().flatten();
    let before = known.filter(|known| known["type"] == kind && known["status"] == status);
    let since = before
        .filter_map(|known| known["lastTransitionTime"].as_str())
        .next();
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": object.metadata.generation.unwrap_or(0),
        "lastTransitionTime": since.map_or_else(|| now.rfc3339(), str::to_owned),
    })
}
