//! Deferred quotas in the core: admitted pods are queued, pods without their former admission are blocked, and the
//! statuses of quotas are written.
//!
//! The quotas themselves are part of the cluster and follow its pods ([`Quotas`](berth_framework::cluster::Quotas)).
//! Their changes are handled after each step.

use crate::core::{Calls, Framework, QuotaStatuses, recheck};
use berth_api::{Kind, Pod, Str};
use berth_framework::call::{EventKind, PodEvent, PodRef, RelatedObject};
use berth_framework::cluster::{DEFERRED_QUOTA, DEFERRED_QUOTA_KIND, Quotas, RemovedQuota};
use berth_framework::event::Change;
use berth_framework::{ActionType, ApiCall, ClusterEvent, EventResource};
use berth_queue::SchedulingQueue;
use berth_telemetry::metrics::{Metric, Metrics};

/// Handles the changes of quotas. Returns whether there were any.
pub(crate) fn follow_quotas(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    statuses: &mut QuotaStatuses,
) -> bool {
    if framework.cache.cluster().quotas().changes().is_empty() {
        return false;
    }
    if !framework
        .cache
        .cluster()
        .quotas()
        .changes()
        .admitted
        .is_empty()
    {
        let resource = EventResource::of_kind(Kind::Custom(DEFERRED_QUOTA));
        let event = ClusterEvent {
            custom_label: Some("DeferredQuotaRoom"),
            ..ClusterEvent::new(resource, ActionType::UPDATE)
        };
        // The plugin that receives the event reads the admitted pods, so the changes are taken after the event.
        queue.move_all(
            &framework.context(),
            &event,
            Change {
                old: None,
                new: None,
            },
            None,
        );
    }
    let changes = framework.cache.cluster_mut().quotas_mut().take_changes();
    for wait in &changes.waits {
        framework
            .metrics
            .observe(Metric::DeferredQuotaWaitDuration, &[], wait.as_secs_f64());
    }
    for uid in &changes.withdrawn {
        recheck(framework, queue, uid);
    }
    let now = framework.clock.now();
    statuses.removed(changes.removed, now);
    for id in &changes.quotas {
        if framework
            .cache
            .cluster()
            .quotas()
            .get(&id.0, &id.1)
            .is_some()
        {
            statuses.changed(id, now);
        } else {
            statuses.forget(id);
        }
    }
    true
}

/// Writes the due statuses that differ from the quotas.
pub(crate) fn write_statuses(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    calls: &mut Calls,
    statuses: &mut QuotaStatuses,
) {
    let now = framework.clock.now();
    for removed in statuses.take_removed(now) {
        if let Some(pod) = framework.cache.stored(&removed.first) {
            let event = removal_event(&removed, pod);
            framework.outbound.publish(event, &pod.spec.scheduler_name);
        }
    }
    while let Some(id) = statuses.take_due(now) {
        let quotas = framework.cache.cluster().quotas();
        let write = statuses.write(quotas, &id, now);
        let heads = statuses.heads(quotas, &id, now);
        if let Some(write) = write {
            calls.make(ApiCall::from(write), now);
        }
        // Their conditions state the current obstacle.
        for uid in heads {
            recheck(framework, queue, &uid);
        }
    }
}

/// The event about the end of all waits for a deleted quota (DQ-15): one event, for the first pod in line.
fn removal_event(removed: &RemovedQuota, first: &Pod) -> PodEvent {
    let metadata = &removed.object.metadata;
    let pods = match removed.waiting {
        1 => "1 waiting pod continues".to_owned(),
        waiting => format!("{waiting} waiting pods continue"),
    };
    PodEvent {
        regarding: PodRef::of(first),
        related: Some(RelatedObject::Custom {
            resource: DEFERRED_QUOTA,
            kind: DEFERRED_QUOTA_KIND,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
        }),
        kind: EventKind::Normal,
        reason: "DeferredQuotaDeleted",
        action: "Scheduling",
        note: format!(
            "deferred quota {:?} was deleted: {pods}",
            metadata.name.as_str()
        ),
    }
}

/// The number of quotas with their own series in the metrics. The others are omitted.
const SERIES_MAX: usize = 1_000;

/// Sets the gauges of quotas.
pub(crate) fn set_gauges(quotas: &Quotas, metrics: &mut Metrics) {
    if quotas.is_idle() {
        return;
    }
    let mut ids: Vec<(&Str, &Str)> = quotas.iter().collect();
    ids.sort_unstable();
    for (namespace, name) in ids.into_iter().take(SERIES_MAX) {
        let Some(quota) = quotas.get(namespace, name) else {
            continue;
        };
        let labels = [namespace.as_str(), name.as_str()];
        for (at, amount) in quota.amounts.iter().enumerate() {
            let Some(limit) = quota.spec.and_then(|spec| spec.limits.get(at)) else {
                continue;
            };
            let labels = [labels[0], labels[1], amount.key.as_str()];
            let value = |amount: i64| limit.resource.quantity(amount, limit.format).as_f64();
            metrics.set(Metric::DeferredQuotaHard, &labels, value(amount.hard));
            metrics.set(Metric::DeferredQuotaUsed, &labels, value(amount.used));
            if quota.spec.is_some_and(|spec| spec.cohort.is_some()) {
                let borrowed = value(amount.borrowed());
                metrics.set(Metric::DeferredQuotaBorrowed, &labels, borrowed);
            }
        }
        metrics.set(Metric::DeferredQuotaWaiting, &labels, quota.waiting as f64);
        let stuck = f64::from(u8::from(quota.stuck.is_some()));
        metrics.set(Metric::DeferredQuotaStuck, &labels, stuck);
    }
}
