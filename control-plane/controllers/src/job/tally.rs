//! The number of pods of a job that have succeeded and failed, each counted once.

use super::failure;
use super::per_index::PerIndex;
use super::{INDEX, TRACKING};
use berth_objects::access::StoredObject;
use berth_objects::object::{
    annotation_number, has_finalizer, is_deleting, items, next_count, set_count, uid,
};
use berth_objects::pod;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The counts of a job.
#[derive(Debug)]
pub(super) struct JobTally {
    /// The indexes that have succeeded, of a job with `completionMode: Indexed`.
    completed: Option<BTreeSet<u64>>,
    /// The failures of its indexes, if they are counted apart.
    pub(super) per_index: Option<PerIndex>,
    succeeded: i64,
    failed: i64,
    /// UIDs of pods that have ended and still have their finalizer.
    uncounted_succeeded: Vec<String>,
    uncounted_failed: Vec<String>,
    /// UIDs of pods whose failure is not counted.
    ignored: Vec<String>,
}

/// The index of a pod of an indexed job.
pub(super) fn index_of(pod: &Value) -> Option<u64> {
    annotation_number(pod, INDEX)
}

/// Returns whether a pod counts as failed. One that is deleted before it has ended may never report that it failed.
fn is_failed(job: &Value, pod: &Value) -> bool {
    match pod::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => is_deleting(pod) && job["spec"]["podReplacementPolicy"] != "Failed",
    }
}

/// Returns whether a failure is not counted: the job was suspended, or a rule excludes it.
fn is_excused(job: &Value, pod: &Value) -> bool {
    (job["spec"]["suspend"] == true && is_deleting(pod))
        || failure::action(&job["spec"], pod) == Some("Ignore")
}

impl JobTally {
    /// Counts the pods of a job, from the counts in its status on.
    pub(super) fn new(job: &Value, pods: &[StoredObject]) -> Self {
        let status = &job["status"];
        let number = |field: &str| status[field].as_i64().unwrap_or(0);
        let is_indexed = job["spec"]["completionMode"] == "Indexed";
        let completions = job["spec"]["completions"].as_u64().unwrap_or(0);
        let mut tally = Self {
            completed: is_indexed.then(|| read(status["completedIndexes"].as_str().unwrap_or(""))),
            per_index: None,
            succeeded: number("succeeded"),
            failed: number("failed"),
            uncounted_succeeded: Vec::new(),
            uncounted_failed: Vec::new(),
            ignored: Vec::new(),
        };
        if let Some(completed) = &mut tally.completed {
            let succeeded = pods.iter().filter(|p| pod::phase(p) == "Succeeded");
            completed.extend(
                succeeded
                    .filter_map(|p| index_of(p))
                    .filter(|i| *i < completions),
            );
            tally.per_index = PerIndex::new(job, pods, completed, |pod| is_failed(job, pod));
        }
        let holds = |pod: &Value| tally.per_index.as_ref().is_some_and(|p| p.holds(pod));
        let held: BTreeSet<String> = pods
            .iter()
            .filter(|p| holds(p))
            .map(|p| uid(p).to_owned())
            .collect();
        let with_finalizer = |wanted: &Value| {
            pods.iter()
                .any(|p| uid(p) == wanted && has_finalizer(p, TRACKING))
        };
        let uncounted = &status["uncountedTerminatedPods"];
        for wanted in items(&uncounted["succeeded"]) {
            if with_finalizer(wanted) {
                tally
                    .uncounted_succeeded
                    .extend(wanted.as_str().map(str::to_owned));
            } else {
                tally.succeeded = next_count(tally.succeeded);
            }
        }
        for wanted in items(&uncounted["failed"]) {
            if with_finalizer(wanted) {
                tally
                    .uncounted_failed
                    .extend(wanted.as_str().map(str::to_owned));
            } else {
                tally.failed = next_count(tally.failed);
            }
        }
        for pod in pods.iter().filter(|p| has_finalizer(p, TRACKING)) {
            let uid = uid(pod).to_owned();
            if tally.uncounted_succeeded.contains(&uid)
                || tally.uncounted_failed.contains(&uid)
                || held.contains(&uid)
            {
                continue;
            }
            if pod::phase(pod) == "Succeeded" {
                tally.uncounted_succeeded.push(uid);
            } else if is_failed(job, pod) {
                if is_excused(job, pod) {
                    tally.ignored.push(uid);
                } else {
                    tally.uncounted_failed.push(uid);
                }
            }
        }
        tally
    }

    /// The indexes that have succeeded, of an indexed job.
    pub(super) fn completed(&self) -> Option<&BTreeSet<u64>> {
        self.completed.as_ref()
    }

    /// Returns whether an index needs no further pods.
    pub(super) fn has_ended(&self, index: u64) -> bool {
        let failed = self.per_index.as_ref().map(|p| &p.failed);
        let mut sets = [self.completed.as_ref(), failed].into_iter().flatten();
        sets.any(|indexes| indexes.contains(&index))
    }

    /// Pods, or indexes, that have succeeded.
    pub(super) fn succeeded(&self) -> i64 {
        match &self.completed {
            Some(completed) => i64::try_from(completed.len()).unwrap_or(i64::MAX),
            None => {
                let uncounted = i64::try_from(self.uncounted_succeeded.len());
                self.succeeded.saturating_add(uncounted.unwrap_or(0))
            }
        }
    }

    /// Pods that have failed.
    pub(super) fn failed(&self) -> i64 {
        let uncounted = i64::try_from(self.uncounted_failed.len());
        self.failed.saturating_add(uncounted.unwrap_or(0))
    }

    /// Returns whether every pod that has ended is in the counts.
    pub(super) fn is_settled(&self) -> bool {
        self.uncounted_succeeded.is_empty() && self.uncounted_failed.is_empty()
    }

    /// The pods whose finalizer can be removed once the status is written.
    pub(super) fn waiting<'a>(
        &'a self,
        pods: &'a [StoredObject],
    ) -> impl Iterator<Item = &'a StoredObject> {
        pods.iter().filter(|p| {
            let uids = [
                &self.uncounted_succeeded,
                &self.uncounted_failed,
                &self.ignored,
            ];
            has_finalizer(p, TRACKING) && uids.iter().any(|u| u.iter().any(|u| u == uid(p)))
        })
    }

    /// Writes the counts.
    pub(super) fn write(&self, status: &mut Value) {
        let succeeded = match &self.completed {
            Some(completed) => {
                let text = written(completed);
                if let Some(status) = status.as_object_mut() {
                    // An empty list of indexes is written as an absent field.
                    match text.as_str() {
                        "" => status.remove("completedIndexes"),
                        text => status.insert("completedIndexes".to_owned(), text.into()),
                    };
                }
                completed.len()
            }
            None => usize::try_from(self.succeeded).unwrap_or(0),
        };
        if let Some(per_index) = &self.per_index {
            status["failedIndexes"] = written(&per_index.failed).into();
        }
        set_count(status, "succeeded", succeeded);
        set_count(status, "failed", usize::try_from(self.failed).unwrap_or(0));
        let mut uncounted = json!({});
        for (field, uids) in [
            ("succeeded", &self.uncounted_succeeded),
            ("failed", &self.uncounted_failed),
        ] {
            if !uids.is_empty() {
                uncounted[field] = uids.clone().into();
            }
        }
        status["uncountedTerminatedPods"] = uncounted;
    }
}

/// `"0,2-4"` as numbers.
pub(super) fn read(text: &str) -> BTreeSet<u64> {
    let mut indexes = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) {
            indexes.extend(first..=last);
        }
    }
    indexes
}

/// Numbers as `"0,2-4"`. Two in a row are written with a comma, as in Kubernetes.
fn written(indexes: &BTreeSet<u64>) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let texts: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        })
        .collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_ranges() {
        for (indexes, text) in [
            (&[][..], ""),
            (&[3], "3"),
            (&[0, 1], "0,1"),
            (&[0, 2, 3, 4, 9, 10], "0,2-4,9,10"),
        ] {
            let indexes: BTreeSet<u64> = indexes.iter().copied().collect();
            assert_eq!(written(&indexes), text);
            assert_eq!(read(text), indexes);
        }
    }
}
