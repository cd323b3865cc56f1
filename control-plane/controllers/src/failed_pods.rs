//! The delay before failed pods are replaced: none for the first, then increasing for further failures at the same
//! place, as in the DaemonSet controller of kube-controller-manager. Otherwise a controller and a kubelet that rejects
//! its pods would create and delete pods without a pause.

use berth_objects::object::ControllerKey;
use rustc_hash::FxHashMap;
use std::time::Duration;
use tokio::time::Instant;

/// The pause before the second replacement; it doubles with each further one …
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// … up to this maximum.
const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);
/// From this number of places on, places without a recent failure are removed.
const PLACES: usize = 1024;

/// The last failure at a place.
#[derive(Debug, Clone, Copy)]
struct LastFailure {
    at: Instant,
    pause: Duration,
}

impl LastFailure {
    fn is_over(self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) > 2 * PAUSE_MAX
    }
}

/// The failures of the pods of workloads, each at its place: a node, or an ordinal.
#[derive(Debug)]
pub(super) struct FailedPods {
    failures: FxHashMap<(ControllerKey, String), LastFailure>,
    /// From this number of places on, places without a recent failure are removed.
    places_max: usize,
}

impl Default for FailedPods {
    fn default() -> Self {
        Self {
            failures: FxHashMap::default(),
            places_max: PLACES,
        }
    }
}

impl FailedPods {
    /// Returns whether the pod that failed at this place is replaced now.
    ///
    /// # Errors
    /// The delay before the next run.
    pub(super) fn replace(
        &mut self,
        workload: &ControllerKey,
        place: &str,
        now: Instant,
    ) -> Result<(), Duration> {
        let key = (workload.clone(), place.to_owned());
        let pause = match self.failures.get(&key).filter(|f| !f.is_over(now)) {
            None => PAUSE_MIN,
            Some(last) => {
                let until = last.at + last.pause;
                if now < until {
                    return Err(until - now);
                }
                (last.pause * 2).min(PAUSE_MAX)
            }
        };
        self.failures.insert(key, LastFailure { at: now, pause });
        if self.failures.len() >= self.places_max {
            self.failures.retain(|_, f| !f.is_over(now));
            self.places_max = PLACES.max(2 * self.failures.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_place_waits_longer_until_it_has_been_well_for_long() {
        let mut now = Instant::now();
        let mut failed = FailedPods::default();
        let set = ControllerKey::new("n", "ds");
        let waits = |failed: &mut FailedPods, now: &mut Instant, place: &str| {
            let mut waited = Duration::ZERO;
            while let Err(pause) = failed.replace(&set, place, *now) {
                waited += pause;
                *now += pause;
            }
            waited.as_secs()
        };
        let pauses: Vec<u64> = (0..13).map(|_| waits(&mut failed, &mut now, "a")).collect();
        assert_eq!(pauses[..5], [0, 1, 2, 4, 8]);
        assert_eq!(pauses[10..], [512, 900, 900]);
        assert_eq!(waits(&mut failed, &mut now, "b"), 0, "another place");
        now += 2 * PAUSE_MAX + Duration::from_secs(1);
        assert_eq!(waits(&mut failed, &mut now, "a"), 0, "well for long");
    }
}
