//! The contents of the queue: counts, lists and single pods, for metrics, explanations and tests.

use super::SchedulingQueue;
use super::entry::{QueuedIn, QueuedPodInfo};
use super::inflight::InFlight;
use super::place::QueuePlaces;

impl SchedulingQueue {
    /// Returns whether [`Self::pop`] would find a pod.
    pub fn is_poppable(&self) -> bool {
        self.places.first_poppable().is_some()
    }

    /// A queued pod and its place; `None` for pods in flight and unknown pods.
    pub fn get(&self, namespace: &str, name: &str) -> Option<(QueuedIn, &QueuedPodInfo)> {
        if let Some(id) = self.places.id_of(namespace, name) {
            let entry = self.places.get(id)?;
            return Some((entry.place?, &entry.info));
        }
        self.places
            .member(self.places.groups.uid_of(namespace, name)?)
    }

    /// The queued pods.
    pub fn places(&self) -> &QueuePlaces {
        &self.places
    }

    /// The popped pods that were neither returned nor finished.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Checks the consistency of the records: each pod is in exactly one place, in the heap and the indexes of that
    /// place only, and known by its name. Walks everything; for tests and the simulator.
    ///
    /// # Errors
    /// The first disagreement.
    pub fn check(&self) -> Result<(), String> {
        self.places.check(|uid| self.in_flight.contains(uid))
    }
}
