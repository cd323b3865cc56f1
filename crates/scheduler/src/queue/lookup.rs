//! What is in the queue: counts, lists and single pods, for metrics, people and tests.

use super::SchedulingQueue;
use super::entry::{QueuedIn, QueuedPodInfo};
use berth_api::{Pod, Str, Time};
use std::fmt;
use std::sync::Arc;

/// How many pods wait where: `pending_pods{queue}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCounts {
    /// Ready to be popped.
    pub active: usize,
    /// Waiting for their backoff.
    pub backoff: usize,
    /// Waiting for an event.
    pub unschedulable: usize,
    /// Kept out by a PreEnqueue plugin.
    pub gated: usize,
}

impl QueueCounts {
    /// All of them.
    pub fn total(&self) -> usize {
        self.active + self.backoff + self.unschedulable + self.gated
    }
}

/// kube-scheduler's summary of its queues; gated pods are among the unschedulable ones.
impl fmt::Display for QueueCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "activeQ:{}; backoffQ:{}; unschedulablePods:{}",
            self.active,
            self.backoff,
            self.unschedulable + self.gated
        )
    }
}

impl SchedulingQueue {
    /// How many pods wait where.
    pub fn counts(&self) -> QueueCounts {
        let len = |place| self.heap(place).len();
        QueueCounts {
            active: len(QueuedIn::Active),
            backoff: len(QueuedIn::Backoff) + len(QueuedIn::ErrorBackoff),
            unschedulable: len(QueuedIn::Unschedulable),
            gated: len(QueuedIn::Gated),
        }
    }

    /// Whether [`Self::pop`] would find a pod.
    pub fn is_poppable(&self) -> bool {
        !self.heap(QueuedIn::Active).is_empty()
            || (self.pops_from_backoff() && !self.heap(QueuedIn::Backoff).is_empty())
    }

    /// A queued pod and where it is; `None` for pods in flight and unknown ones.
    pub fn get(&self, namespace: &str, name: &str) -> Option<(QueuedIn, &QueuedPodInfo)> {
        let id = self.id_of(namespace, name)?;
        let entry = self.entries.get(id)?;
        Some((entry.place?, &entry.info))
    }

    /// The pods of a place: active ones and those in backoff in the order in which they would be popped, waiting ones
    /// by how long they wait. Sorts: for people and tests.
    pub fn pods_in(&self, place: QueuedIn) -> Vec<&QueuedPodInfo> {
        self.in_order(place)
            .into_iter()
            .filter_map(|id| Some(&self.entries.get(id)?.info))
            .collect()
    }

    /// Every queued pod, in no particular order.
    pub fn pending_pods(&self) -> impl Iterator<Item = (QueuedIn, &QueuedPodInfo)> {
        self.entries
            .iter()
            .filter_map(|(_, entry)| Some((entry.place?, &entry.info)))
    }

    /// When the backoff of a pod ends, rounded down to the ordering window; `None` without one.
    pub fn backoff_expiry(&self, info: &QueuedPodInfo) -> Option<Time> {
        self.backoff.expiry(info)
    }

    /// Whether a pod has been popped and not been given back or finished.
    pub fn is_in_flight(&self, uid: &str) -> bool {
        self.in_flight.contains(uid)
    }

    /// The pods in flight as they were popped, in no particular order.
    pub fn in_flight_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.in_flight.pods()
    }

    /// How many pods are in flight.
    pub fn in_flight_len(&self) -> usize {
        self.in_flight.pods().count()
    }

    /// How many events are kept for the pods in flight.
    pub fn in_flight_events_len(&self) -> usize {
        self.in_flight.events_len()
    }

    /// Checks that the queue's own records agree: each pod is in exactly one place, in the heap and the indexes of
    /// that place and in no others, and known by its name. Walks everything: for tests and the simulator.
    ///
    /// # Errors
    /// What does not agree.
    pub fn check(&self) -> Result<(), String> {
        let (mut links, mut filed) = (0, 0);
        for (id, entry) in self.entries.iter() {
            let pod = entry.info.pod.key();
            let Some(place) = entry.place else {
                return Err(format!("{pod} is in no place"));
            };
            for other in QueuedIn::ALL {
                let is_there = self.heap(other).contains(id, &self.positions);
                if is_there != (other == place) {
                    return Err(format!(
                        "{pod} is in {place:?}; in the heap of {other:?}: {is_there}"
                    ));
                }
            }
            if self.id_of(entry.info.pod.namespace(), entry.info.pod.name()) != Some(id) {
                return Err(format!("{pod} is not known by its name"));
            }
            let gated = entry.info.is_gated();
            if gated && place == QueuedIn::Active
                || gated != (place == QueuedIn::Gated) && !place.is_backoff()
            {
                return Err(format!("{pod} is in {place:?}; gated: {gated}"));
            }
            if place.is_unschedulable_pool() {
                links += entry.info.rejectors().count().max(1);
                let gate = entry.info.gating_plugin().map(Str::as_str);
                let nobody = (!entry.info.has_rejectors()).then_some("");
                for plugin in entry.info.rejectors().map(Str::as_str).chain(nobody) {
                    if !self.pool.contains(gate, entry.profile, plugin, id) {
                        return Err(format!("{pod} is not indexed under {plugin:?}"));
                    }
                }
                let profile = entry.profile.zip(self.profiles.get(entry.profile));
                let checked = self.pool.by_wait.check(id, profile, &entry.info);
                filed += checked.map_err(|problem| format!("{pod} {problem}"))?;
            }
        }
        let places: usize = QueuedIn::ALL.iter().map(|p| self.heap(*p).len()).sum();
        for (what, count, expected) in [
            ("names", self.names.len(), self.entries.len()),
            ("places", places, self.entries.len()),
            ("index links", self.pool.links(), links),
            ("places in the index", self.pool.by_wait.len(), filed),
        ] {
            if count != expected {
                return Err(format!("{count} {what}, expected {expected}"));
            }
        }
        Ok(())
    }
}
