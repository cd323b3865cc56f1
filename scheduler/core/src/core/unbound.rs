//! Pods that were placed and are not bound yet, and whether they can still be stopped.

use super::Progress as ProgressView;
use super::go_duration;
use berth_api::{Duration, Str, Time};
use berth_framework::stage::WaitingPod;
use berth_framework::{PodInfo, Status};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The maximum time for which a Permit plugin can hold a pod (F-14).
pub(crate) const PERMIT_WAIT_MAX: Duration = Duration::from_secs(15 * 60);

/// A plugin that holds a pod.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    /// The plugin.
    pub(crate) plugin: Str,
    /// Until when at most.
    pub(crate) until: Time,
}

/// The progress of a pod.
#[derive(Debug)]
enum UnboundProgress {
    /// Permit plugins hold it.
    Held(Held),
    /// Its PreBind plugins are running. It can be stopped; the value states the reason once it is.
    Preparing(Option<String>),
    /// It is being bound, or its binding is about to begin. It cannot be stopped.
    Binding,
}

#[derive(Debug)]
struct Held {
    pod: Arc<PodInfo>,
    node: Str,
    since: Time,
    plugins: SmallVec<[Hold; 2]>,
    /// The decision. The first decision counts.
    verdict: Option<Status>,
}

/// The pods between placement and binding.
#[derive(Debug, Default)]
pub(crate) struct UnboundPods {
    pods: FxHashMap<Str, UnboundProgress>,
    /// Pods with a decision that their binding has not processed yet.
    decided: Vec<Str>,
}

impl UnboundPods {
    /// The binding of a placed pod begins.
    pub(crate) fn add(&mut self, uid: &Str) {
        self.pods.insert(uid.clone(), UnboundProgress::Binding);
    }

    /// The binding of a pod has ended.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    /// Returns whether the pod is being bound.
    pub(crate) fn contains(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    fn held_pod(&self, uid: &str) -> Option<&Held> {
        match self.pods.get(uid)? {
            UnboundProgress::Held(held) => Some(held),
            _ => None,
        }
    }

    fn held_pod_mut(&mut self, uid: &str) -> Option<&mut Held> {
        match self.pods.get_mut(uid)? {
            UnboundProgress::Held(held) => Some(held),
            _ => None,
        }
    }

    /// The progress of the binding of a pod.
    pub(crate) fn progress(&self, uid: &str, node: Str) -> ProgressView {
        match self.pods.get(uid) {
            Some(UnboundProgress::Held(held)) => ProgressView::Permit {
                node,
                since: held.since,
                plugins: held
                    .plugins
                    .iter()
                    .map(|hold| (hold.plugin.clone(), hold.until))
                    .collect(),
            },
            Some(UnboundProgress::Preparing(_)) => ProgressView::PreBind { node },
            Some(UnboundProgress::Binding) | None => ProgressView::Bind { node },
        }
    }

    // --- held by Permit plugins (F-15) ---------------------------------------------------------------------

    /// Holds a pod until each of the plugins allows it. Returns the first deadline.
    pub(crate) fn hold(
        &mut self,
        pod: &Arc<PodInfo>,
        node: &Str,
        plugins: SmallVec<[Hold; 2]>,
        now: Time,
    ) -> Time {
        let first = plugins.iter().map(|p| p.until).min();
        let held = Held {
            pod: pod.clone(),
            node: node.clone(),
            since: now,
            plugins,
            verdict: None,
        };
        self.pods
            .insert(pod.pod.uid().clone(), UnboundProgress::Held(held));
        first.unwrap_or(now + PERMIT_WAIT_MAX)
    }

    /// Returns the time since which the pod is held, if the plugin holds it.
    pub(crate) fn held_since(&self, uid: &str, plugin: &str) -> Option<Time> {
        let held = self.held_pod(uid).filter(|held| held.verdict.is_none())?;
        let mut plugins = held.plugins.iter();
        plugins.any(|p| p.plugin == plugin).then_some(held.since)
    }

    /// Sets the time until which a plugin holds the pod. Returns the first deadline.
    pub(crate) fn hold_until(&mut self, uid: &str, plugin: &str, until: Time) -> Option<Time> {
        let held = self.held_pod_mut(uid)?;
        let hold = held.plugins.iter_mut().find(|p| p.plugin == plugin)?;
        hold.until = until;
        held.plugins.iter().map(|p| p.until).min()
    }

    /// The pods that are held, by UID.
    pub(crate) fn held(&self) -> Vec<WaitingPod> {
        let held = self.pods.values().filter_map(|progress| match progress {
            UnboundProgress::Held(held) if held.verdict.is_none() => Some(WaitingPod {
                pod: held.pod.clone(),
                node: held.node.clone(),
                pending_plugins: held.plugins.iter().map(|p| p.plugin.clone()).collect(),
            }),
            _ => None,
        });
        let mut pods: Vec<WaitingPod> = held.collect();
        pods.sort_by(|a, b| a.pod.pod.uid().cmp(b.pod.pod.uid()));
        pods
    }

    /// Decides about a held pod. Returns false if it is not held.
    pub(crate) fn decide(&mut self, uid: &str, verdict: Status) -> bool {
        match self.held_pod_mut(uid) {
            Some(held) if held.verdict.is_none() => {
                held.verdict = Some(verdict);
                self.decided.push(uid.into());
                true
            }
            _ => false,
        }
    }

    /// A plugin does not hold the pod any more.
    pub(crate) fn allow(&mut self, uid: &str, plugin: &str) {
        let Some(held) = self.held_pod_mut(uid) else {
            return;
        };
        held.plugins.retain(|p| p.plugin != plugin);
        if held.plugins.is_empty() {
            self.decide(uid, Status::success());
        }
    }

    /// A plugin, or with an empty name the scheduler itself, rejects the pod.
    pub(crate) fn reject(&mut self, uid: &str, plugin: &str, message: &str) -> bool {
        let verdict = Status::unschedulable(message.to_owned()).by(plugin);
        self.decide(uid, verdict)
    }

    /// Stops a pod that is held or being prepared, to make room.
    pub(crate) fn preempt(&mut self, uid: &str, plugin: &str) -> bool {
        self.decide(uid, Status::error("preempted").by(plugin))
            || self.stop_preparing(uid, || format!("preempted by {plugin}"))
    }

    /// Stops a pod that is held or being prepared, because its group cannot run.
    pub(crate) fn release(&mut self, uid: &str, reason: &str) -> bool {
        self.decide(uid, Status::unschedulable(reason.to_owned()))
            || self.stop_preparing(uid, || reason.to_owned())
    }

    fn stop_preparing(&mut self, uid: &str, reason: impl FnOnce() -> String) -> bool {
        let Some(UnboundProgress::Preparing(stopped)) = self.pods.get_mut(uid) else {
            return false;
        };
        if stopped.is_none() {
            *stopped = Some(reason());
            self.decided.push(uid.into());
        }
        true
    }

    /// The first deadline of the plugins that hold the pod has passed. Returns the next deadline, if the pod is still
    /// held.
    pub(crate) fn expire(&mut self, uid: &str, now: Time) -> Option<Time> {
        let held = self.held_pod(uid).filter(|held| held.verdict.is_none())?;
        let first = held.plugins.iter().min_by_key(|p| p.until)?;
        if first.until > now {
            return Some(first.until);
        }
        let message = format!(
            "rejected due to timeout after waiting {} at plugin {}",
            go_duration(first.until.since(held.since)),
            first.plugin
        );
        let plugin = first.plugin.clone();
        self.decide(uid, Status::unschedulable(message).from_plugin(&plugin));
        None
    }

    /// Takes the decision about a held pod, with the time since which it was held. It is not held any more.
    pub(crate) fn take_verdict(&mut self, uid: &str) -> Option<(Status, Time)> {
        let held = self.held_pod_mut(uid)?;
        let decided = (held.verdict.take()?, held.since);
        self.pods.insert(uid.into(), UnboundProgress::Binding);
        Some(decided)
    }

    // --- being prepared (C-42) -----------------------------------------------------------------------------

    /// The pod's PreBind plugins start.
    pub(crate) fn prepare(&mut self, uid: &Str) {
        self.pods
            .insert(uid.clone(), UnboundProgress::Preparing(None));
    }

    /// The error that has stopped the preparation, if it was stopped.
    pub(crate) fn stopped(&self, uid: &str) -> Option<&str> {
        match self.pods.get(uid)? {
            UnboundProgress::Preparing(stopped) => stopped.as_deref(),
            _ => None,
        }
    }

    /// The pod is prepared: it cannot be stopped from here on.
    pub(crate) fn bind(&mut self, uid: &Str) {
        self.pods.insert(uid.clone(), UnboundProgress::Binding);
    }

    /// Takes the pods with a decision.
    pub(crate) fn take_decided(&mut self) -> Vec<Str> {
        std::mem::take(&mut self.decided)
    }

    /// Checks that these are the pods that are being bound.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn check<'a>(
        &self,
        bound: impl ExactSizeIterator<Item = &'a Str>,
    ) -> Result<(), String> {
        let (known, bindings) = (self.pods.len(), bound.len());
        let mut bound = bound;
        match bound.find(|uid| !self.pods.contains_key(*uid)) {
            Some(uid) => Err(format!("{uid} is being bound and not known as unbound")),
            None if known != bindings => Err(format!("{known} unbound pods, {bindings} bindings")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::pod;

    fn holds(plugins: &[(&str, i64)]) -> SmallVec<[Hold; 2]> {
        plugins
            .iter()
            .map(|(plugin, secs)| Hold {
                plugin: (*plugin).into(),
                until: Time::from_secs(*secs),
            })
            .collect()
    }

    fn message(pods: &mut UnboundPods) -> Option<String> {
        pods.take_verdict("uid-p")
            .map(|(s, _)| format!("{}: {}", s.code(), s.message()))
    }

    /// F-15, edge cases 213 and 214.
    #[test]
    fn the_first_decision_counts() {
        type Act = fn(&mut UnboundPods) -> bool;
        let cases: [(&str, Act, Option<&str>); 9] = [
            (
                "one of two allows",
                |p| {
                    p.allow("uid-p", "A");
                    true
                },
                None,
            ),
            (
                "a stranger allows",
                |p| {
                    p.allow("uid-p", "C");
                    true
                },
                None,
            ),
            (
                "both allow",
                |p| {
                    p.allow("uid-p", "A");
                    p.allow("uid-p", "B");
                    true
                },
                Some("Success: "),
            ),
            (
                "rejected",
                |p| p.reject("uid-p", "A", "no"),
                Some("Unschedulable: no"),
            ),
            (
                "rejected after both allowed",
                |p| {
                    p.allow("uid-p", "A");
                    p.allow("uid-p", "B");
                    !p.reject("uid-p", "A", "no")
                },
                Some("Success: "),
            ),
            (
                "preempted after it was rejected",
                |p| p.reject("uid-p", "A", "no") && !p.preempt("uid-p", "B"),
                Some("Unschedulable: no"),
            ),
            (
                "rejected after it was preempted",
                |p| p.preempt("uid-p", "B") && !p.reject("uid-p", "A", "no"),
                Some("Error: preempted"),
            ),
            (
                "preempted",
                |p| p.preempt("uid-p", "A"),
                Some("Error: preempted"),
            ),
            (
                "the earliest timer",
                |p| p.expire("uid-p", Time::from_secs(900)).is_none(),
                Some("Unschedulable: rejected due to timeout after waiting 15m0s at plugin B"),
            ),
        ];
        for (situation, act, verdict) in cases {
            let mut pods = UnboundPods::default();
            let plugins = holds(&[("A", 1000), ("B", 900)]);
            let deadline = pods.hold(&pod("p").info(), &"n1".into(), plugins, Time::EPOCH);
            assert_eq!(deadline, Time::from_secs(900), "{situation}");
            assert_eq!(
                pods.expire("uid-p", Time::from_secs(1)),
                Some(deadline),
                "{situation}"
            );
            assert!(act(&mut pods), "{situation}");
            let seen = pods.held().len();
            assert_eq!(seen, usize::from(verdict.is_none()), "{situation}");
            assert_eq!(message(&mut pods).as_deref(), verdict, "{situation}");
            assert_eq!(
                pods.held_pod("uid-p").is_some(),
                verdict.is_none(),
                "{situation}"
            );
        }
    }

    /// C-42.
    #[test]
    fn preparation_can_be_stopped_until_it_is_over() {
        let mut pods = UnboundPods::default();
        pods.prepare(&"uid-p".into());
        assert!(pods.preempt("uid-p", "DefaultPreemption"));
        assert_eq!(
            pods.stopped("uid-p"),
            Some("preempted by DefaultPreemption")
        );
        assert_eq!(pods.take_decided(), ["uid-p"]);
        pods.bind(&"uid-p".into());
        assert!(!pods.preempt("uid-p", "DefaultPreemption"));
    }
}
