//! The operations on the queue.

use super::{Answer, Known, Model, Place};
use crate::pod_update_events;
use berth_api::{Duration, Object, Pod, Str};
use berth_framework::{Cluster, ClusterEvent};
use std::sync::Arc;

impl Model {
    // --- nominations ---------------------------------------------------------------------------------------

    pub(crate) fn nominate(&mut self, cluster: &Cluster, pod: &Pod, node: Str) {
        self.nominated.remove(pod.uid());
        let pending = cluster
            .pods
            .get(pod.uid())
            .is_some_and(|p| !p.is_assigned());
        if pending && !node.is_empty() {
            self.nominated.insert(pod.uid().clone(), node);
        }
    }

    fn follow(&mut self, cluster: &Cluster, old: &Pod, new: &Pod) {
        let stated = |pod: &Pod| !pod.status.nominated_node_name.is_empty();
        let before = self.nominated.remove(old.uid());
        let node = match before {
            Some(node) if !stated(old) && !stated(new) => node,
            _ => new.status.nominated_node_name.clone(),
        };
        self.nominate(cluster, new, node);
    }

    // --- operations ----------------------------------------------------------------------------------------

    pub(crate) fn add(&mut self, cluster: &Cluster, pod: &Arc<Pod>) {
        let queued = self.at(pod.name()).map(|at| self.known[at].pod.clone());
        match queued {
            _ if self.in_flight.contains_key(pod.uid()) => return self.update(cluster, pod, pod),
            Some(queued) if queued.uid() == pod.uid() => return self.update(cluster, &queued, pod),
            Some(queued) => self.delete(&queued),
            None => {}
        }
        let at = self.enter(pod);
        self.activate_at(cluster, at, None, "UnschedulablePodAdd");
    }

    ///
    pub(crate) fn update(&mut self, cluster: &Cluster, old: &Arc<Pod>, new: &Arc<Pod>) {
        let (before, after) = (Object::Pod(old.clone()), Object::Pod(new.clone()));
        let events = pod_update_events(old, new, &self.features);
        if self.in_flight.contains_key(new.uid()) {
            for event in &events {
                self.note(event, Some(&before), Some(&after));
            }
            return;
        }
        let Some(at) = self.at(new.name()) else {
            let at = self.enter(new);
            return self.activate_at(cluster, at, None, "UnschedulablePodUpdate");
        };
        self.known[at].pod = new.clone();
        self.follow(cluster, old, new);
        if !self.known[at].place.waits() {
            return;
        }
        let mut backs_off = false;
        for event in &events {
            let known = self.known[at].clone();
            let answer = self.ask(&known, event, Some(&before), Some(&after));
            if backs_off && answer != Answer::AtOnce {
                continue;
            }
            self.requeue(cluster, at, Some(known.place), answer, &event.label());
            let place = self.known[at].place;
            backs_off = matches!(place, Place::Backoff | Place::Error);
            if place == Place::Active || (backs_off && self.pops_from_backoff) {
                return;
            }
        }
    }

    pub(crate) fn delete(&mut self, pod: &Pod) {
        self.nominated.remove(pod.uid());
        self.known.retain(|known| known.pod.uid() != pod.uid());
    }

    pub(crate) fn pop(&mut self) -> Option<Known> {
        loop {
            let active = self.in_order(Place::Active).first().map(|k| k.pod.clone());
            let next = active.or_else(|| {
                let early = self.in_order(Place::Backoff).first()?.pod.clone();
                self.pops_from_backoff.then_some(early)
            })?;
            let at = self.at(next.name())?;
            if self.known[at].place == Place::Backoff {
                self.arrived(Place::Active, "PopFromBackoffQ");
            }
            if let Some(popped) = self.take_off(at) {
                return Some(popped);
            }
        }
    }

    fn take_off(&mut self, at: usize) -> Option<Known> {
        let mut known = self.known.remove(at);
        known.attempts += 1;
        if self.in_flight.contains_key(known.pod.uid()) {
            return None;
        }
        self.in_flight
            .insert(known.pod.uid().clone(), self.log.len());
        Some(known)
    }

    pub(crate) fn take(&mut self, cluster: &Cluster, pod: &Pod) -> Option<Known> {
        self.activate_one(cluster, pod);
        let at = self.at(pod.name())?;
        (self.known[at].place == Place::Active).then(|| self.take_off(at))?
    }

    pub(crate) fn done(&mut self, uid: &str) {
        self.in_flight.remove(uid);
    }

    /// adds a failed pod back; returns whether it was added.
    pub(crate) fn give_back(&mut self, cluster: &Cluster, mut known: Known) -> bool {
        let since = self.in_flight.remove(known.pod.uid());
        if self.at(known.pod.name()).is_some() {
            return false;
        }
        known.since = self.now;
        known.flushed = false;
        if known.rejectors().is_empty() {
            known.errors += 1;
        } else {
            known.rejections += 1;
            known.errors = 0;
        }
        let answer = match since {
            _ if known.rejectors().is_empty() => Answer::AfterBackoff,
            None => Answer::AfterBackoff,
            Some(since) => {
                let log = std::mem::take(&mut self.log);
                let mut best = Answer::Skip;
                for happened in &log[since..] {
                    let (old, new) = (happened.old.as_ref(), happened.new.as_ref());
                    best = best.max(self.ask(&known, &happened.event, old, new));
                    let is_best = best == Answer::AtOnce
                        || (best == Answer::AfterBackoff && known.pending.is_empty());
                    if is_best {
                        break;
                    }
                }
                self.log = log;
                best
            }
        };
        self.arrivals += 1;
        known.arrival = self.arrivals;
        self.known.push(known);
        let at = self.known.len() - 1;
        self.requeue(cluster, at, None, answer, "ScheduleAttemptFailure");
        true
    }

    ///
    pub(crate) fn event(
        &mut self,
        cluster: &Cluster,
        event: &ClusterEvent,
        old: Option<&Object>,
        new: Option<&Object>,
        passes: &dyn Fn(&Pod) -> bool,
    ) {
        if !self.matching(event) {
            return;
        }
        for at in 0..self.known.len() {
            let known = self.known[at].clone();
            if !known.place.waits() || !passes(&known.pod) || !self.reaches(&known, event) {
                continue;
            }
            let answer = self.ask(&known, event, old, new);
            self.requeue(cluster, at, Some(known.place), answer, &event.label());
        }
        self.note(event, old, new);
    }

    pub(crate) fn activate(&mut self, cluster: &Cluster, pod: &Arc<Pod>) {
        if !self.activate_one(cluster, pod) && self.in_flight.contains_key(pod.uid()) {
            let target = Object::Pod(pod.clone());
            self.note(
                &ClusterEvent::wildcard("ForceActivate"),
                None,
                Some(&target),
            );
        }
    }

    fn activate_one(&mut self, cluster: &Cluster, pod: &Pod) -> bool {
        let Some(at) = self.at(pod.name()) else {
            return false;
        };
        let was = self.known[at].place;
        if was == Place::Active {
            return false;
        }
        self.activate_at(cluster, at, Some(was), "ForceActivate");
        self.known[at].place == Place::Active
    }

    ///
    pub(crate) fn flush_backoff(&mut self, cluster: &Cluster) {
        for at in 0..self.known.len() {
            let known = &self.known[at];
            let is_over =
                matches!(known.place, Place::Backoff | Place::Error) && !self.backs_off(known);
            if is_over {
                self.activate_at(cluster, at, Some(known.place), "BackoffComplete");
            }
        }
    }

    /// Q-69, with five minutes.
    pub(crate) fn flush_leftover(&mut self, cluster: &Cluster) {
        let is_old = |known: &Known| {
            known.place.waits() && self.now.since(known.waits_since()) > Duration::from_secs(300)
        };
        let old: Vec<usize> = (0..self.known.len())
            .filter(|at| is_old(&self.known[*at]))
            .collect();
        let were_late = self.known.iter().any(|known| {
            known.place.waits() && self.now.since(known.since) > Duration::from_secs(300)
        });
        for at in &old {
            let known = &mut self.known[*at];
            let place = known.place;
            match place {
                Place::Unschedulable => known.flushed = true,
                _ => known.gate_flushed = self.now,
            }
            let label = "UnschedulableTimeout";
            self.requeue(cluster, *at, Some(place), Answer::AfterBackoff, label);
        }
        if were_late {
            self.note(&ClusterEvent::wildcard("UnschedulableTimeout"), None, None);
        }
    }
}
