//! Evicts the victims of preemptions, asynchronously to the scheduling loop (P-17, P-20 to P-23).
//!
//! The victims of one preemption are evicted in parallel, except the last one: it is evicted after all others, so that
//! a failure evicts one pod less. Until the API shows that the last victim is terminating or deleted, the preemptor
//! must not be tried: it counts as [preempting](berth_framework::Cluster::preempting), and PreEnqueue rejects it. The
//! event about a victim is published after its eviction.

use crate::cache::Cache;
use crate::core::{
    Calls, Core, Framework, OpenPreemption, OpenPreemptions, Outbound, Settings, is_responsible,
};
use berth_api::{Pod, Str};
use berth_dispatcher::Finished;
use berth_framework::call::{PodEvent, PodRef};
use berth_framework::stage::{Eviction, Preemption};
use berth_framework::{Cluster, Feature};
use berth_queue::{Nominator, QueuedIn, SchedulingQueue};
use berth_telemetry::LogLine;
use berth_telemetry::metrics::Metric;
use std::sync::Arc;

/// Begins with a preemption.
pub(crate) fn start(core: &mut Core, preemption: Preemption, reporter: Str) {
    let Preemption {
        preemptor,
        kind,
        plugin,
        mut victims,
    } = preemption;
    let id = core.preemptions.next_id();
    core.framework
        .outbound
        .log
        .v(2, "Start the preemption asynchronously", |line| {
            let line = line.with("preemptor", &preemptor);
            line.with("numVictims", victims.len())
        });
    // The last victim is evicted after all others, so that the event of its deletion wakes the preemptor.
    let last = victims.pop();
    core.framework.cache.begins_to_preempt(&preemptor.uid);
    let mut running = OpenPreemption {
        preemptor,
        kind,
        plugin,
        reporter,
        began: core.framework.clock.now(),
        pending: 0,
        last,
        has_failed: false,
    };
    for victim in victims {
        let Core {
            framework,
            calls,
            preemptions,
            ..
        } = &mut *core;
        evict(framework, calls, preemptions, id, &mut running, victim);
    }
    go_on(core, id, running, None);
}

/// Evicts a victim. Returns whether this requires a call.
fn evict(
    framework: &mut Framework,
    calls: &mut Calls,
    preemptions: &mut OpenPreemptions,
    id: u64,
    running: &mut OpenPreemption,
    victim: Eviction,
) -> bool {
    let uid = &victim.event.regarding.uid;
    // Another scheduler may have bound it during its preparation. In this case it has to be evicted through the API.
    let stored = framework.cache.stored(uid);
    let is_bound = stored.is_some_and(|pod| pod.is_assigned());
    if !is_bound && framework.unbound.preempt(uid, &running.plugin) {
        let mut event = victim.event;
        event.note += Eviction::IN_MEMORY;
        preempted(&mut framework.outbound, running, event);
        return false;
    }
    let call = calls.make(victim.call(), framework.clock.now());
    preemptions.note_call(call, id, victim.event);
    running.pending += 1;
    true
}

/// A victim is evicted.
fn preempted(outbound: &mut Outbound, running: &OpenPreemption, event: PodEvent) {
    outbound
        .log
        .v(2, "Preemptor Pod preempted victim Pod", |line| {
            let line = line.with("preemptor", &running.preemptor);
            line.with("victim", &event.regarding)
        });
    outbound.publish(event, &running.reporter);
}

/// The next step of a preemption. `evicted` is the victim that the API server has just evicted.
fn go_on(core: &mut Core, id: u64, mut running: OpenPreemption, evicted: Option<Str>) {
    let Core {
        framework,
        queue,
        calls,
        preemptions,
        ..
    } = core;
    // A preemptor that was deleted or bound, or whose profile was removed, needs no preemption.
    let stored = framework.cache.stored(&running.preemptor.uid);
    let is_wanted = stored.is_some_and(|pod| {
        let waits = !pod.is_assigned() && is_responsible(framework, queue, pod);
        waits || framework.settings.makes_room_for_resize(pod)
    });
    if running.pending == 0
        && !running.has_failed
        && is_wanted
        && let Some(last) = running.last.take()
    {
        let uid = last.event.regarding.uid.clone();
        if evict(framework, calls, preemptions, id, &mut running, last) {
            preemptions.note_last(uid, id);
        }
    }
    if running.pending > 0 {
        preemptions.keep(id, running);
    } else {
        preemption_ended(framework, queue, preemptions, running, evicted);
    }
}

/// The call that evicts a victim has ended, if it is one.
pub(crate) fn eviction_ended(core: &mut Core, finished: &Finished) {
    let preemptions = &mut core.preemptions;
    let Some((id, event)) = preemptions.take_call(finished.id) else {
        return;
    };
    let Some(mut running) = preemptions.take(id) else {
        return;
    };
    running.pending -= 1;
    let evicted = finished.result.is_ok();
    let evicted = evicted.then(|| event.regarding.uid.clone());
    match &finished.result {
        Ok(_) => preempted(&mut core.framework.outbound, &running, event),
        Err(_) if finished.is_done() => {}
        Err(error) => {
            let line = LogLine::error("Failed to preempt pod")
                .with("preemptor", &running.preemptor)
                .with("victim", &event.regarding)
                .with("err", error.to_string());
            core.framework.outbound.log.push(line);
            running.has_failed = true;
        }
    }
    go_on(core, id, running, evicted);
}

/// The evictions of a preemption have ended; `evicted` is the last victim. If an eviction has failed, an event for the
/// preemptor may never happen, so it is retried.
fn preemption_ended(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    preemptions: &mut OpenPreemptions,
    running: OpenPreemption,
    evicted: Option<Str>,
) {
    let result = if running.has_failed {
        "error"
    } else {
        "success"
    };
    framework
        .outbound
        .log
        .v(2, "Async Preemption finished completely", |line| {
            line.with("preemptor", &running.preemptor)
                .with("result", result)
        });
    let seconds = framework.clock.now().since(running.began).as_secs_f64();
    framework
        .metrics
        .observe(Metric::PreemptionGoroutinesDuration, &[result], seconds);
    framework
        .metrics
        .count(Metric::PreemptionGoroutinesExecutions, &[result]);
    if framework.settings.is_on(Feature::GenericWorkload) {
        let metric = Metric::PreemptionExecutionDuration;
        framework
            .metrics
            .observe(metric, &[running.kind, result], seconds);
    }
    let OpenPreemption {
        preemptor,
        plugin,
        has_failed,
        ..
    } = running;
    // PreEnqueue admits the pod when its last preemption has ended. The answer of the API server can arrive before the
    // watch shows the victim's deletion: an attempt in between would fail, with an event and a status.
    if !preemptions.is_preempting(&preemptor.uid) {
        match evicted.filter(|victim| !has_failed && is_unseen(&framework.cache, victim)) {
            Some(victim) => preemptions.await_seen(victim, preemptor.clone(), plugin),
            None => admit(framework, queue, &preemptor, &plugin),
        }
    }
    if has_failed && let Some(pod) = framework.cache.effective(&preemptor.uid).cloned() {
        queue.activate(&framework.context(), &[pod]);
    }
}

/// Returns whether the API does not show the eviction of the pod yet.
fn is_unseen(cache: &Cache, uid: &str) -> bool {
    let stored = cache.stored(uid);
    stored.is_some_and(|pod| !pod.is_terminating())
}

/// A pod is terminating or deleted: preemptors with this pod as the last victim may be tried again. Returns them; they
/// are [admitted](admit) after the change has been applied.
pub(crate) fn seen_terminating(
    preemptions: &mut OpenPreemptions,
    cache: &mut Cache,
    uid: &str,
) -> Vec<(PodRef, Str)> {
    let mut preemptors = preemptions.ending_with(uid);
    preemptors.extend(preemptions.take_seen(uid));
    for (preemptor, _) in &preemptors {
        cache.ends_to_preempt(&preemptor.uid);
    }
    preemptors
}

/// The API does not show the eviction of a victim: preemptors that waited for it may be tried again.
pub(crate) fn victim_stays(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    preemptions: &mut OpenPreemptions,
    uid: &str,
) {
    for (preemptor, plugin) in preemptions.take_seen(uid) {
        admit(framework, queue, &preemptor, &plugin);
    }
}

/// Admits the preemptor to the queue again. It is activated if its PreEnqueue plugin has rejected it, because an event
/// had already woken it, and if it is unschedulable and no deletion of a victim will wake it. Deletions of its victims
/// do not wake it while it is preempting.
pub(crate) fn admit(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    preemptor: &PodRef,
    plugin: &Str,
) {
    framework.cache.ends_to_preempt(&preemptor.uid);
    let Some(pod) = framework.cache.effective(&preemptor.uid).cloned() else {
        return;
    };
    let queued = queue.get(&preemptor.namespace, &preemptor.name);
    let is_due = queued.is_some_and(|(place, info)| match place {
        QueuedIn::Gated => info.gating_plugin() == Some(plugin),
        QueuedIn::Unschedulable => {
            let (cluster, nominator) = (framework.cache.cluster(), queue.nominator());
            !awaits_victims(&framework.settings, cluster, nominator, &pod)
        }
        _ => false,
    });
    if is_due {
        queue.activate(&framework.context(), &[pod]);
    }
}

/// Returns whether the pod was evicted by a preemption.
pub(crate) fn is_victim(pod: &Pod) -> bool {
    pod.is_terminating() && pod.condition("DisruptionTarget").is_some()
}

/// Returns whether the deletion of a victim wakes the pod: victims of lower priority are terminating on its nominated
/// node, or it is queued with its group, which the deletion of any victim wakes.
fn awaits_victims(
    settings: &Settings,
    cluster: &Cluster,
    nominator: &Nominator,
    pod: &Pod,
) -> bool {
    if settings.is_on(Feature::GenericWorkload) && pod.pod_group_name().is_some() {
        return true;
    }
    let node = nominator.node_of(pod.uid());
    let view = node.and_then(|node| cluster.nodes.node(node));
    view.is_some_and(|view| {
        view.pods().iter().any(|counted| {
            let known = cluster.pods.get(counted.pod.uid());
            known.is_some_and(|known| is_victim(known) && known.priority() < pod.priority())
        })
    })
}

/// A victim is deleted, or its eviction has failed: pods of higher priority that are nominated to its node are retried.
/// The plugins that rejected such a pod may not register for the victim's deletion, so no event would wake it, and its
/// nomination would keep other pods from the node (P-5, P-20).
pub(crate) fn wake_nominees(framework: &Framework, queue: &mut SchedulingQueue, victim: &Pod) {
    let cache = &framework.cache;
    let nominees = queue.nominator().pods_on(&victim.spec.node_name).iter();
    let waiting = nominees.filter(|info| {
        let pod = &info.pod;
        let queued = queue.get(pod.namespace(), pod.name());
        let waits = match queued {
            Some((place, _)) => place == QueuedIn::Unschedulable,
            None => queue.in_flight().contains(pod.uid()),
        };
        let preempts = cache.cluster().preempting.contains(pod.uid());
        waits && !preempts && pod.priority() > victim.priority()
    });
    let pods: Vec<Arc<Pod>> = waiting
        .filter_map(|info| cache.effective(info.pod.uid()).cloned())
        .collect();
    if !pods.is_empty() {
        queue.activate(&framework.context(), &pods);
    }
}
