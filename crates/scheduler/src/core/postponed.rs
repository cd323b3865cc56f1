//! Reports of PreEnqueue that are not handed to the dispatcher yet.
//!
//! What a cycle found is written as it is, and at once: a report does not become part of that call, or it would be
//! written too early. It is made when the call has ended, and waits no longer for that. And when the dispatcher holds as
//! many as it may, further reports stand in line here, where they cost no more than an entry for their pod.

use crate::queue::PreEnqueueReport;
use berth_api::{Str, Time};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;

/// How many places in line of pods that are gone are not worth a thought.
const LINE_SLACK: usize = 1024;

/// A report that waits for its turn.
#[derive(Debug)]
pub(super) struct Postponed {
    /// What it tells.
    pub(super) report: PreEnqueueReport,
    /// When it may be written.
    pub(super) due: Time,
}

/// The reports that wait, at most one for each pod.
#[derive(Debug, Default)]
pub(crate) struct PostponedReports {
    by_pod: FxHashMap<Str, Postponed>,
    /// The pods whose reports wait for room, in the order in which they came, each once. The reports of some may have gone.
    line: VecDeque<Str>,
    in_line: FxHashSet<Str>,
}

impl PostponedReports {
    /// Whether no report waits.
    pub(super) fn is_empty(&self) -> bool {
        self.by_pod.is_empty()
    }

    /// Whether a report of the pod waits; a later one must not overtake it.
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.by_pod.contains_key(uid)
    }

    /// A report waits for another call of its pod. A later one takes its place, and its time unless the pod had passed
    /// meanwhile: a rejection after that is a new one.
    pub(super) fn add(&mut self, report: PreEnqueueReport, due: Time) {
        match self.by_pod.entry(report.pod().uid().clone()) {
            Entry::Occupied(mut earlier) => {
                let is_new = matches!(
                    (&earlier.get().report, &report),
                    (
                        PreEnqueueReport::Passed { .. },
                        PreEnqueueReport::Rejected { .. }
                    )
                );
                let due = if is_new { due } else { earlier.get().due };
                earlier.insert(Postponed { report, due });
            }
            Entry::Vacant(place) => {
                place.insert(Postponed { report, due });
            }
        }
    }

    /// A report waits for room.
    pub(super) fn add_to_line(&mut self, report: PreEnqueueReport, due: Time) {
        let uid = report.pod().uid().clone();
        self.add(report, due);
        if self.in_line.insert(uid.clone()) {
            self.line.push_back(uid);
        }
    }

    /// The report of a pod.
    pub(super) fn take(&mut self, uid: &str) -> Option<Postponed> {
        self.by_pod.remove(uid)
    }

    /// The pod that has waited for room for longest; its report is the next to be made, if there still is one.
    pub(super) fn next_in_line(&mut self) -> Option<Str> {
        let uid = self.line.pop_front()?;
        self.in_line.remove(&uid);
        Some(uid)
    }

    /// The pod is gone. Its place in line goes with the next one that is called up, or when most of the line is like it.
    pub(super) fn forget(&mut self, uid: &str) {
        self.by_pod.remove(uid);
        if self.line.len() > 2 * self.by_pod.len() + LINE_SLACK {
            self.line.retain(|uid| self.by_pod.contains_key(uid));
            self.in_line.retain(|uid| self.by_pod.contains_key(uid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::pod;
    use std::sync::Arc;

    /// D-11: the line is no longer than the pods that wait, give or take a few that are gone.
    #[test]
    fn the_line_does_not_outgrow_the_pods() {
        let mut reports = PostponedReports::default();
        for n in 0..100_000 {
            let pod = Arc::new(pod(&format!("p{n}")).build());
            let uid = pod.uid().clone();
            reports.add_to_line(PreEnqueueReport::Passed { pod }, Time::default());
            reports.forget(&uid);
        }
        assert!(reports.is_empty());
        assert!(reports.line.len() <= LINE_SLACK + 1);
        assert_eq!(reports.line.len(), reports.in_line.len());
    }
}
