//! The effect of deferred quotas on a waiting pod: its place in line, and the changes that make room.

use crate::answer::{QuotaLine, QuotaWait};
use crate::change::{PodRef, QuotaRaise, TriedChange};
use crate::overlay::with_edits;
use crate::snapshot::Snapshot;
use crate::words::seconds;
use berth_api::{Pod, Str, Time};
use berth_framework::cluster::{
    EntryKey, LackOf, QuotaLack, QuotaObstacle, QuotaOrder, QuotaView, Quotas,
};
use berth_framework::{Cluster, PodInfo};
use std::cmp::Reverse;
use std::sync::Arc;

/// The number of times that a limit is raised to find a sufficient one.
const RAISES_MAX: usize = 10;
/// The number of pods whose end is tried.
const ENDS_MAX: usize = 16;
/// The number of quotas that are listed.
const QUOTAS_MAX: usize = 100;

fn order_of(quota: &QuotaView<'_>) -> &'static str {
    match quota.spec.map(|spec| spec.order) {
        Some(QuotaOrder::BestEffort) => "BestEffort",
        _ => "Strict",
    }
}

/// A member of the first entry in line.
fn first_of(cluster: &Cluster, namespace: &str, name: &str) -> Option<Arc<Pod>> {
    let quotas = cluster.quotas();
    let (_, first) = quotas.line(namespace, name).next()?;
    let uid = quotas.members(namespace, first).next()?;
    cluster.pods.get(uid).cloned()
}

/// The quota for which a pod waits.
pub(crate) fn quota_wait(cluster: &Cluster, pod: &Pod) -> Option<QuotaWait> {
    let quotas = cluster.quotas();
    let QuotaObstacle {
        quota: name,
        lack,
        out,
        ..
    } = quotas.obstacle(pod)?;
    let namespace = pod.namespace();
    let quota = quotas.get(namespace, &name)?;
    let has_pod = |(_, key): (_, &EntryKey)| {
        let mut members = quotas.members(namespace, key);
        members.any(|uid| uid == pod.uid())
    };
    let place = quotas.line(namespace, &name).position(has_pod);
    let lack = lack.as_ref();
    let text = |of: fn(&QuotaLack) -> &String| lack.map_or_else(String::new, |l| of(l).clone());
    Some(QuotaWait {
        quota: name.to_string(),
        order: order_of(&quota).to_owned(),
        place: place.filter(|_| out.is_none()).map_or(0, |place| place + 1),
        entries: quotas.line(namespace, &name).count(),
        first: first_of(cluster, namespace, &name).map_or_else(String::new, |pod| pod.key()),
        key: lack.map_or_else(String::new, |lack| lack.key.to_string()),
        requested: text(|lack| &lack.requested),
        used: text(|lack| &lack.used),
        limit: text(|lack| &lack.limit),
        missing: text(|lack| &lack.missing),
        cohort: match lack.map(|lack| &lack.of) {
            Some(LackOf::Cohort(cohort)) => cohort.to_string(),
            _ => String::new(),
        },
        never_fits: lack.is_some_and(|lack| lack.never_fits),
    })
}

/// The deferred quotas for which pods wait, the longest line first, at most 100.
pub fn quota_lines(cluster: &Cluster, now: Time) -> Vec<QuotaLine> {
    let quotas = cluster.quotas();
    let mut named: Vec<(usize, (&Str, &Str))> = quotas.waiting().collect();
    named.sort_unstable_by_key(|(waiting, id)| (Reverse(*waiting), *id));
    named.truncate(QUOTAS_MAX);
    let lines = named
        .into_iter()
        .filter_map(|(waiting, (namespace, name))| {
            let quota = quotas.get(namespace, name)?;
            let first = first_of(cluster, namespace, name);
            let obstacle = first.as_ref().and_then(|pod| quotas.obstacle(pod));
            Some(QuotaLine {
                namespace: namespace.to_string(),
                quota: name.to_string(),
                order: order_of(&quota).to_owned(),
                waiting,
                oldest_seconds: quota.oldest.map_or(0.0, |oldest| seconds(oldest, now)),
                first: first.map_or_else(String::new, |pod| pod.name().to_string()),
                message: obstacle.map_or_else(String::new, |obstacle| obstacle.to_string()),
                is_stuck: quota.stuck.is_some(),
            })
        });
    lines.collect()
}

/// The changes that may let quotas admit a pod. They do not consider whether the pod then fits on a node.
pub(crate) fn changes(snapshot: &mut Snapshot, pod: &Arc<PodInfo>) -> Vec<TriedChange> {
    let obstacle = snapshot.cluster.quotas().obstacle(&pod.pod);
    let Some(obstacle) = obstacle.filter(|obstacle| obstacle.out.is_none()) else {
        return Vec::new();
    };
    let mut changes = ends(snapshot, pod, &obstacle);
    changes.extend(raise(snapshot, pod));
    changes
}

/// The missing amount of a limit: for the pod, or for the first entry in line if the pod only waits for its turn.
fn missing(cluster: &Cluster, pod: &Pod) -> Result<(), Option<Box<(Str, QuotaLack)>>> {
    let quotas = cluster.quotas();
    let Some(obstacle) = quotas.obstacle(pod) else {
        return Ok(());
    };
    let obstacle = match obstacle.lack {
        Some(_) => Some(obstacle),
        None => first_of(cluster, pod.namespace(), &obstacle.quota)
            .and_then(|first| quotas.obstacle(&first)),
    };
    Err(obstacle.and_then(|obstacle| Some(Box::new((obstacle.quota, obstacle.lack?)))))
}

/// The necessary raises of limits for the admission of the pod: for the pod itself, and for the pods ahead of it.
fn raise(snapshot: &mut Snapshot, pod: &Arc<PodInfo>) -> Option<TriedChange> {
    let mut raises: Vec<QuotaRaise> = Vec::new();
    for _ in 0..RAISES_MAX {
        let change = TriedChange::RaiseQuota {
            raises: raises.clone(),
        };
        let edits = change.edits(&snapshot.cluster, &pod.pod)?;
        let found = with_edits(snapshot, pod, &edits, |snapshot, pod| {
            missing(&snapshot.cluster, &pod.pod)
        });
        let (quota, lack) = *match found {
            Ok(()) => return Some(change),
            Err(found) => found?,
        };
        add(
            &snapshot.cluster,
            pod.pod.namespace(),
            &mut raises,
            quota,
            &lack,
        )?;
    }
    None
}

/// Adds the missing amount to the raised limits.
fn add(
    cluster: &Cluster,
    namespace: &Str,
    raises: &mut Vec<QuotaRaise>,
    quota: Str,
    lack: &QuotaLack,
) -> Option<()> {
    let view = cluster.quotas().get(namespace, &quota)?;
    let mut limits = view.spec?.limits.iter();
    let limit = limits.find(|limit| limit.key == lack.key)?;
    let amount = |text: &str| Some(limit.resource.amount(text.parse().ok()?));
    let more = amount(&lack.missing).filter(|more| *more > 0)?;
    let known = raises
        .iter()
        .position(|raise| *raise.quota == *quota && *raise.key == *lack.key);
    let before = known
        .and_then(|at| amount(&raises.get(at)?.by))
        .unwrap_or(0);
    let by = before.saturating_add(more);
    let raised = QuotaRaise {
        quota: quota.to_string(),
        key: lack.key.to_string(),
        by: limit.text(by),
        to: limit.text(limit.hard.saturating_add(by)),
    };
    match known.and_then(|at| raises.get_mut(at)) {
        Some(known) => *known = raised,
        None => raises.push(raised),
    }
    Some(())
}

/// The quotas whose pods use the missing amount: the quota itself, or all quotas of its cohort.
fn holders(quotas: &Quotas, namespace: &Str, obstacle: &QuotaObstacle) -> Vec<(Str, Str)> {
    let cohort = match obstacle.lack.as_ref().map(|lack| &lack.of) {
        Some(LackOf::Cohort(cohort)) => cohort,
        _ => return vec![(namespace.clone(), obstacle.quota.clone())],
    };
    let of_cohort = quotas.iter().filter(|(namespace, name)| {
        let spec = quotas.get(namespace, name).and_then(|quota| quota.spec);
        spec.is_some_and(|spec| spec.cohort.as_ref() == Some(cohort))
    });
    let of_cohort = of_cohort.map(|(namespace, name)| (namespace.clone(), name.clone()));
    of_cohort.collect()
}

/// The pods whose end makes room: each alone, or the smallest set of them.
fn ends(snapshot: &mut Snapshot, pod: &Arc<PodInfo>, obstacle: &QuotaObstacle) -> Vec<TriedChange> {
    let quotas = snapshot.cluster.quotas();
    let holders = holders(quotas, pod.pod.namespace(), obstacle);
    let uses = |other: &Pod| {
        let mut of_pod = holders.iter().filter(|(ns, _)| ns == other.namespace());
        of_pod.any(|(namespace, name)| {
            let spec = quotas.get(namespace, name).and_then(|quota| quota.spec);
            spec.is_some_and(|spec| spec.selects(other))
        })
    };
    let on_nodes = snapshot.cluster.pods.values();
    let mut on_nodes: Vec<&Arc<Pod>> = on_nodes
        .filter(|other| other.is_assigned() && !other.is_terminal() && uses(other))
        .collect();
    on_nodes.sort_by_key(|pod| (pod.priority(), pod.namespace().clone(), pod.name().clone()));
    let refs = on_nodes.iter().take(ENDS_MAX).map(|pod| PodRef::of(pod));
    let refs: Vec<PodRef> = refs.collect();
    let end_of = |pods: &[PodRef]| TriedChange::EndPods {
        pods: pods.to_vec(),
    };
    let mut is_enough = |pods: &[PodRef]| {
        let edits = end_of(pods).edits(&snapshot.cluster, &pod.pod);
        edits.is_some_and(|edits| {
            with_edits(snapshot, pod, &edits, |snapshot, pod| {
                snapshot.cluster.quotas().obstacle(&pod.pod).is_none()
            })
        })
    };
    let singles = refs.iter().map(std::slice::from_ref);
    let singles: Vec<&[PodRef]> = singles.filter(|single| is_enough(single)).collect();
    if !singles.is_empty() {
        return singles.into_iter().map(end_of).collect();
    }
    if !is_enough(&refs) {
        return Vec::new();
    }
    // Pods of the highest priority are removed from the set first.
    let mut needed = refs;
    for at in (0..needed.len()).rev() {
        let left_out = needed.remove(at);
        if !is_enough(&needed) {
            needed.insert(at, left_out);
        }
    }
    vec![end_of(&needed)]
}
