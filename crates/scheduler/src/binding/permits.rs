//! Pods that were placed and are not bound yet: held back by Permit plugins, or being prepared.

use crate::core::text::go_duration;
use berth_api::{Duration, Str, Time};
use berth_framework::stage::WaitingPod;
use berth_framework::{PodInfo, Status};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The longest that a Permit plugin can hold a pod back (F-14).
pub(crate) const PERMIT_WAIT_MAX: Duration = Duration::from_secs(15 * 60);

/// A plugin that holds a pod.
#[derive(Debug, Clone)]
pub(crate) struct Holding {
    /// The plugin.
    pub(crate) plugin: Str,
    /// Until when at most.
    pub(crate) until: Time,
}

#[derive(Debug)]
struct Held {
    pod: Arc<PodInfo>,
    node: Str,
    since: Time,
    plugins: SmallVec<[Holding; 2]>,
    /// How it ended; the first word counts.
    verdict: Option<Status>,
}

/// A pod whose PreBind plugins are at work.
#[derive(Debug, Default)]
struct Preparing {
    /// Who stopped it.
    stopped: Option<String>,
}

/// The pods between placement and binding.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    held: FxHashMap<Str, Held>,
    preparing: FxHashMap<Str, Preparing>,
    /// Pods about which something was decided that their binding does not know yet.
    news: Vec<Str>,
}

impl Permits {
    // --- held back by Permit (F-15) ------------------------------------------------------------------------

    /// Holds a pod back until each of the plugins allows it. Returns the first deadline.
    pub(crate) fn hold(
        &mut self,
        pod: &Arc<PodInfo>,
        node: &Str,
        plugins: SmallVec<[Holding; 2]>,
        now: Time,
    ) -> Time {
        let first = plugins.iter().map(|p| p.until).min();
        self.held.insert(
            pod.pod.uid().clone(),
            Held {
                pod: pod.clone(),
                node: node.clone(),
                since: now,
                plugins,
                verdict: None,
            },
        );
        first.unwrap_or(now + PERMIT_WAIT_MAX)
    }

    /// Whether the plugin holds the pod, and since when the pod is held.
    pub(crate) fn held_since(&self, uid: &str, plugin: &str) -> Option<Time> {
        let held = self.held.get(uid).filter(|held| held.verdict.is_none())?;
        let mut plugins = held.plugins.iter();
        plugins.any(|p| p.plugin == plugin).then_some(held.since)
    }

    /// A plugin that holds the pod holds it until `until` and no longer. Returns the first deadline.
    pub(crate) fn hold_until(&mut self, uid: &str, plugin: &str, until: Time) -> Option<Time> {
        let held = self.held.get_mut(uid)?;
        let holding = held.plugins.iter_mut().find(|p| p.plugin == plugin)?;
        holding.until = until;
        held.plugins.iter().map(|p| p.until).min()
    }

    #[cfg(test)]
    fn is_held(&self, uid: &str) -> bool {
        self.held.contains_key(uid)
    }

    pub(crate) fn held(&self) -> Vec<WaitingPod> {
        let mut pods: Vec<WaitingPod> = self
            .held
            .values()
            .filter(|held| held.verdict.is_none())
            .map(|held| WaitingPod {
                pod: held.pod.clone(),
                node: held.node.clone(),
                pending_plugins: held.plugins.iter().map(|p| p.plugin.clone()).collect(),
            })
            .collect();
        pods.sort_by(|a, b| a.pod.pod.uid().cmp(b.pod.pod.uid()));
        pods
    }

    pub(crate) fn decide(&mut self, uid: &str, verdict: Status) -> bool {
        match self.held.get_mut(uid) {
            Some(held) if held.verdict.is_none() => {
                held.verdict = Some(verdict);
                self.news.push(uid.into());
                true
            }
            _ => false,
        }
    }

    /// A plugin does not hold the pod back any more.
    pub(crate) fn allow(&mut self, uid: &str, plugin: &str) {
        let Some(held) = self.held.get_mut(uid) else {
            return;
        };
        held.plugins.retain(|p| p.plugin != plugin);
        if held.plugins.is_empty() {
            self.decide(uid, Status::success());
        }
    }

    /// A plugin, or with an empty name the core itself, turns the pod down.
    pub(crate) fn reject(&mut self, uid: &str, plugin: &str, message: &str) -> bool {
        let verdict = Status::unschedulable(message.to_owned()).by(plugin);
        self.decide(uid, verdict)
    }

    /// Stops a pod that is held back or being prepared, to make room.
    pub(crate) fn preempt(&mut self, uid: &str, plugin: &str) -> bool {
        if self.decide(uid, Status::error("preempted").by(plugin)) {
            return true;
        }
        let Some(preparing) = self.preparing.get_mut(uid) else {
            return false;
        };
        if preparing.stopped.is_none() {
            preparing.stopped = Some(format!("preempted by {plugin}"));
            self.news.push(uid.into());
        }
        true
    }

    /// The time has come for the first of the plugins that hold the pod back. Returns the next deadline, if the pod
    /// is still held back.
    pub(crate) fn expire(&mut self, uid: &str, now: Time) -> Option<Time> {
        let held = self.held.get(uid)?;
        if held.verdict.is_some() {
            return None;
        }
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

    /// How the waiting of a pod has ended, and since when it waited; the pod is not held back any more.
    pub(crate) fn verdict(&mut self, uid: &str) -> Option<(Status, Time)> {
        let verdict = self.held.get(uid)?.verdict.clone()?;
        let held = self.held.remove(uid)?;
        Some((verdict, held.since))
    }

    // --- being prepared (C-42) -----------------------------------------------------------------------------

    /// The pod's PreBind plugins start.
    pub(crate) fn prepare(&mut self, uid: &Str) {
        self.preparing.insert(uid.clone(), Preparing::default());
    }

    /// Who stopped the preparation, if somebody did.
    pub(crate) fn stopped(&self, uid: &str) -> Option<&str> {
        self.preparing.get(uid)?.stopped.as_deref()
    }

    /// Nobody can stop the pod from here on: it is being bound, or given up.
    pub(crate) fn release(&mut self, uid: &str) {
        self.preparing.remove(uid);
        self.held.remove(uid);
    }

    /// The pods about which there is news.
    pub(crate) fn take_news(&mut self) -> Vec<Str> {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::pod;

    fn holding(plugins: &[(&str, i64)]) -> SmallVec<[Holding; 2]> {
        plugins
            .iter()
            .map(|(plugin, secs)| Holding {
                plugin: (*plugin).into(),
                until: Time::from_secs(*secs),
            })
            .collect()
    }

    fn message(permits: &mut Permits) -> Option<String> {
        permits
            .verdict("uid-p")
            .map(|(s, _)| format!("{}: {}", s.code(), s.message()))
    }

    /// F-15, edge cases 213 and 214.
    #[test]
    fn the_first_word_counts() {
        type Act = fn(&mut Permits) -> bool;
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
            let mut permits = Permits::default();
            let plugins = holding(&[("A", 1000), ("B", 900)]);
            let deadline = permits.hold(&pod("p").info(), &"n1".into(), plugins, Time::EPOCH);
            assert_eq!(deadline, Time::from_secs(900), "{situation}");
            assert_eq!(
                permits.expire("uid-p", Time::from_secs(1)),
                Some(deadline),
                "{situation}"
            );
            assert!(act(&mut permits), "{situation}");
            let seen = permits.held().len();
            assert_eq!(seen, usize::from(verdict.is_none()), "{situation}");
            assert_eq!(message(&mut permits).as_deref(), verdict, "{situation}");
            assert_eq!(permits.is_held("uid-p"), verdict.is_none(), "{situation}");
        }
    }

    /// C-42.
    #[test]
    fn preparation_can_be_stopped_until_it_is_over() {
        let mut permits = Permits::default();
        permits.prepare(&"uid-p".into());
        assert!(permits.preempt("uid-p", "DefaultPreemption"));
        assert_eq!(
            permits.stopped("uid-p"),
            Some("preempted by DefaultPreemption")
        );
        assert_eq!(permits.take_news(), ["uid-p"]);
        permits.release("uid-p");
        assert!(!permits.preempt("uid-p", "DefaultPreemption"));
    }
}
