//! Indexed jobs that fail by index (KEP-3850) and succeed by a policy (KEP-3998).

use super::failure::{self, JobFailure};
use super::tally::{self, JobTally};
use super::{Success, TRACKING, after, back_off};
use berth_objects::access::StoredObject;
use berth_objects::object::{annotation_number, has_finalizer, items, set, uid};
use berth_objects::pod;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The annotation with how many pods of an index failed before this one.
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// The same for failures that a rule ignores.
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The failures of an indexed job with `backoffLimitPerIndex`.
#[derive(Debug)]
pub(super) struct PerIndex {
    /// The indexes that have failed.
    pub(super) failed: BTreeSet<u64>,
    /// The last failed pod of each index that needs a replacement. It keeps its finalizer until the replacement exists,
    /// because the new pod continues its counts.
    pub(super) replaced: BTreeMap<u64, StoredObject>,
}

fn number(pod: &Value, annotation: &str) -> i64 {
    annotation_number(pod, annotation).unwrap_or(0)
}

/// The number of pods of an index that have failed before this one, ignored failures included.
fn all_failures(pod: &Value) -> i64 {
    number(pod, FAILURES).saturating_add(number(pod, IGNORED))
}

/// Returns whether an index has failed with this failed pod.
fn fails_index(spec: &Value, pod: &Value) -> bool {
    let limit = spec["backoffLimitPerIndex"].as_i64().unwrap_or(i64::MAX);
    match failure::action(spec, pod) {
        Some("FailIndex") => true,
        Some("Ignore") => false,
        _ => number(pod, FAILURES) >= limit,
    }
}

impl PerIndex {
    /// The failed indexes; `None` for jobs whose failures are counted together.
    pub(super) fn new(
        job: &Value,
        pods: &[StoredObject],
        completed: &BTreeSet<u64>,
        is_failed: impl Fn(&Value) -> bool,
    ) -> Option<Self> {
        let spec = &job["spec"];
        spec["backoffLimitPerIndex"].as_i64()?;
        let completions = spec["completions"].as_u64().unwrap_or(0);
        let index = |pod: &StoredObject| tally::index_of(pod).filter(|i| *i < completions);
        // An index that failed once stays failed, also after its pods were deleted.
        let mut failed = tally::read(job["status"]["failedIndexes"].as_str().unwrap_or(""));
        let failures: Vec<(u64, &StoredObject)> = pods
            .iter()
            .filter(|pod| has_finalizer(pod, TRACKING) && is_failed(pod))
            .filter_map(|pod| Some((index(pod)?, pod)))
            .collect();
        let new = failures.iter().filter(|(_, pod)| fails_index(spec, pod));
        failed.extend(new.map(|(index, _)| *index));
        let active: BTreeSet<u64> = pods
            .iter()
            .filter(|p| pod::is_active(p))
            .filter_map(index)
            .collect();
        let mut replaced: BTreeMap<u64, StoredObject> = BTreeMap::new();
        let has_ended = ["FailureTarget", "SuccessCriteriaMet"]
            .iter()
            .any(|kind| berth_objects::object::condition(&job["status"], kind).is_some());
        for (index, pod) in failures {
            // An index that is finished or has an active pod needs no replacement.
            if has_ended
                || completed.contains(&index)
                || failed.contains(&index)
                || active.contains(&index)
            {
                continue;
            }
            // The pod with the most failures, or the last of equals, carries the count of its index.
            let order = |pod: &Value| (all_failures(pod), failure::ended_at(pod));
            if replaced
                .get(&index)
                .is_none_or(|last| order(last) <= order(pod))
            {
                replaced.insert(index, pod.clone());
            }
        }
        Some(Self { failed, replaced })
    }

    /// Returns whether the finalizer of a pod has to stay.
    pub(super) fn holds(&self, pod: &Value) -> bool {
        let index = tally::index_of(pod);
        let replaced = index.and_then(|index| self.replaced.get(&index));
        replaced.is_some_and(|replaced| uid(replaced) == uid(pod))
    }

    /// The earliest time of another pod for an index.
    pub(super) fn back_off_ends(&self, index: u64) -> Option<Timestamp> {
        let pod = self.replaced.get(&index)?;
        let failures = usize::try_from(all_failures(pod)).unwrap_or(0);
        Some(after(failure::ended_at(pod), back_off(failures)))
    }

    /// Writes the counts of the replaced pod into the annotations of the new pod.
    pub(super) fn annotate(&self, spec: &Value, index: u64, new: &mut Value) {
        let (mut failures, mut ignored) = (0, 0);
        if let Some(pod) = self.replaced.get(&index) {
            (failures, ignored) = (number(pod, FAILURES), number(pod, IGNORED));
            match failure::action(spec, pod) {
                Some("Ignore") => ignored = ignored.saturating_add(1),
                _ => failures = failures.saturating_add(1),
            }
        }
        let mut put = |annotation: &str, number: i64| {
            set(
                new,
                &["metadata", "annotations", annotation],
                number.to_string().into(),
            );
        };
        put(FAILURES, failures);
        if ignored > 0 {
            put(IGNORED, ignored);
        }
    }
}

/// Returns whether indexes have failed so that the job fails.
pub(super) fn failure(spec: &Value, tally: &JobTally) -> Option<JobFailure> {
    let failed = i64::try_from(tally.per_index.as_ref()?.failed.len()).unwrap_or(i64::MAX);
    let completions = spec["completions"].as_i64().unwrap_or(0);
    if spec["maxFailedIndexes"]
        .as_i64()
        .is_some_and(|max| failed > max)
    {
        return Some(JobFailure::new(
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        ));
    }
    (failed > 0 && failed.saturating_add(tally.succeeded()) >= completions)
        .then(|| JobFailure::new("FailedIndexes", "Job has failed indexes"))
}

/// Returns the success if the completed indexes satisfy a rule of `successPolicy`.
pub(super) fn success(spec: &Value, completed: &BTreeSet<u64>) -> Option<Success> {
    let rules = items(&spec["successPolicy"]["rules"]);
    let is_met = |rule: &Value| {
        let count = rule["succeededCount"].as_u64();
        let (found, wanted) = match rule["succeededIndexes"].as_str() {
            Some(text) => {
                let wanted = tally::read(text);
                let found = wanted.intersection(completed).count();
                (found, count.unwrap_or(wanted.len() as u64))
            }
            None => (completed.len(), count.unwrap_or(u64::MAX)),
        };
        found > 0 && found as u64 >= wanted
    };
    let index = rules.iter().position(is_met)?;
    Some(Success {
        reason: "SuccessPolicy".to_owned(),
        message: format!("Matched rules at index {index}"),
    })
}
