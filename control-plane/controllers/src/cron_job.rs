//! The CronJob controller: creates jobs by a schedule, and deletes old ones.

use super::job::finished;
use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject};
use berth_objects::cron::Schedule;
use berth_objects::object::{
    CRON_JOB, ControllerKey, JOB, controller_key, controller_reference, count, created_at,
    is_deleting, items, name, namespace, seconds, set, time, uid,
};
use berth_objects::{cron, object};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The annotation of a job with its scheduled time.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// The number of missed times that are counted before the controller starts from the most recent one.
const MISSED_MAX: usize = 100;
/// The number of finished jobs that are kept where the CronJob does not state it.
const KEPT_SUCCESSFUL: i32 = 3;
const KEPT_FAILED: i32 = 1;

/// See the module.
#[derive(Debug)]
pub(super) struct CronJobs;

impl Controller for CronJobs {
    type Key = ControllerKey;
    const NAME: &'static str = "cronjob-controller";
    const WATCHES: &'static [Watch] =
        &[watching(CRON_JOB, &[]), watching(JOB, &[Index::Controller])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        for object in [&diff.old, &diff.new].into_iter().flatten() {
            if kind == CRON_JOB.resource {
                cx.enqueue(ControllerKey::of(object));
            } else if let Some(key) = controller_key(CRON_JOB, object) {
                cx.enqueue(key);
            }
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(cron) = cx.cache(CRON_JOB).get(key).cloned() else {
            return Ok(());
        };
        if is_deleting(&cron) {
            return Ok(());
        }
        let jobs: Vec<StoredObject> = owned(cx, &cron);
        let mut status = match &cron["status"] {
            Value::Object(status) => Value::Object(status.clone()),
            _ => json!({}),
        };
        let observed = observe_jobs(cx, &cron, &jobs, &mut status);
        let started = observed
            .and_then(|()| clean_up(cx, &cron, &jobs))
            .and_then(|()| start_due(cx, key, &cron, &mut status));
        // The status records a started object even if a later step failed.
        cx.write_status(CRON_JOB, &cron, status)?;
        started
    }
}

fn owned(cx: &ControllerContext<ControllerKey>, cron: &Value) -> Vec<StoredObject> {
    let jobs = cx.cache(JOB).by(Index::Controller, uid(cron));
    jobs.cloned().collect()
}

fn reference(job: &Value) -> Value {
    JOB.object(json!({"name": name(job),
        "namespace": namespace(job),
        "uid": uid(job),
        "resourceVersion": job["metadata"]["resourceVersion"],
    }))
}

fn is_successful(job: &Value) -> bool {
    finished(job).is_some_and(|c| c["type"] == "Complete")
}

/// Returns whether an active job of a status satisfies the condition.
fn is_active(status: &Value, is_it: impl Fn(&Value) -> bool) -> bool {
    items(&status["active"]).iter().any(is_it)
}

/// Replaces the active jobs of a status.
fn set_active(status: &mut Value, active: Vec<Value>) {
    if active.is_empty() {
        _ = status.as_object_mut().and_then(|s| s.remove("active"))
    } else {
        status["active"] = active.into()
    }
}

fn remove_active(status: &mut Value, job: &str) {
    let mut active = items(&status["active"]).to_vec();
    active.retain(|r| r["uid"] != job);
    set_active(status, active);
}

/// Reports jobs that were active before and have finished or were deleted, and jobs that are not expected.
fn observe_jobs(
    cx: &mut ControllerContext<ControllerKey>,
    cron: &StoredObject,
    jobs: &[StoredObject],
    status: &mut Value,
) -> Result<(), AccessError> {
    for job in jobs {
        let is_known = is_active(status, |r| r["uid"] == uid(job));
        let Some(end) = finished(job) else {
            if !is_known {
                let message = format!(
                    "Saw a job that the controller did not create or forgot: {}",
                    name(job)
                );
                cx.warn(cron, "UnexpectedJob", message);
            }
            continue;
        };
        if is_known {
            remove_active(status, uid(job));
            let kind = end["type"].as_str().unwrap_or_default();
            let message = format!("Saw completed job: {}, condition: {kind}", name(job));
            cx.normal(cron, "SawCompletedJob", message);
        }
        let end = time(&job["status"]["completionTime"]);
        if is_successful(job)
            && let Some(end) = end
            && time(&status["lastSuccessfulTime"]).is_none_or(|last| end > last)
        {
            status["lastSuccessfulTime"] = seconds(end);
        }
    }
    let missing: Vec<Value> = items(&status["active"])
        .iter()
        .filter(|r| jobs.iter().all(|job| r["uid"] != uid(job)))
        .cloned()
        .collect();
    for reference in missing {
        let (job, job_uid) = (reference["name"].as_str(), reference["uid"].as_str());
        let (job, job_uid) = (job.unwrap_or_default(), job_uid.unwrap_or_default());
        match cx.api().get(JOB.resource, namespace(cron), job) {
            // The view is late.
            Ok(found) if uid(&found) == job_uid => {}
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {
                let message = format!("Active job went missing: {job}");
                cx.normal(cron, "MissingJob", message);
                remove_active(status, job_uid);
            }
        }
    }
    Ok(())
}

/// Deletes the oldest finished jobs.
fn clean_up(
    cx: &mut ControllerContext<ControllerKey>,
    cron: &StoredObject,
    jobs: &[StoredObject],
) -> Result<(), AccessError> {
    for (successful, limit) in [
        (
            true,
            count(&cron["spec"]["successfulJobsHistoryLimit"], KEPT_SUCCESSFUL),
        ),
        (
            false,
            count(&cron["spec"]["failedJobsHistoryLimit"], KEPT_FAILED),
        ),
    ] {
        let mut ended: Vec<&StoredObject> = jobs
            .iter()
            .filter(|j| finished(j).is_some() && is_successful(j) == successful)
            .collect();
        ended.sort_by(|a, b| object::by_age(a, b));
        let surplus = ended
            .len()
            .saturating_sub(usize::try_from(limit).unwrap_or(0));
        for job in ended.into_iter().take(surplus) {
            delete(cx, cron, job)?;
        }
    }
    Ok(())
}

fn delete(
    cx: &mut ControllerContext<ControllerKey>,
    cron: &StoredObject,
    job: &StoredObject,
) -> Result<(), AccessError> {
    cx.delete(JOB, job)?;
    let message = format!("Deleted job {}", name(job));
    cx.normal(cron, "SuccessfulDelete", message);
    Ok(())
}

/// The most recent scheduled time, the number of missed times, and the next time.
struct Due {
    latest: Option<Timestamp>,
    missed: usize,
    next: Option<Timestamp>,
}

fn due(schedule: &Schedule, zone: &TimeZone, since: Timestamp, now: Timestamp) -> Due {
    let mut due = Due {
        latest: None,
        missed: 0,
        next: schedule.next_after(since, zone),
    };
    while let Some(at) = due.next.filter(|at| *at <= now) {
        due.missed += 1;
        due.latest = Some(at);
        let mut from = at;
        if due.missed == MISSED_MAX {
            from = close_to(now, at, schedule.next_after(at, zone));
        }
        due.next = schedule.next_after(from, zone);
    }
    due
}

/// A time of a regular schedule that is one or two intervals before `now`, after many times between `at` and `now`: the
/// times in between make no difference. `next` is the time after `at`. A schedule with a fixed interval (`@every`)
/// keeps its phase.
fn close_to(now: Timestamp, at: Timestamp, next: Option<Timestamp>) -> Timestamp {
    let step = next.map_or(0, |next| next.as_second() - at.as_second());
    if step <= 0 {
        return at;
    }
    let steps = (now.as_second() - at.as_second()) / step - 1;
    let skipped = steps.max(0).checked_mul(step);
    let from = skipped.and_then(|s| at.checked_add(SignedDuration::from_secs(s)).ok());
    from.unwrap_or(at)
}

/// Starts the job if it is due and the CronJob allows it, and requests a reconcile at the next time.
fn start_due(
    cx: &mut ControllerContext<ControllerKey>,
    key: &ControllerKey,
    cron: &StoredObject,
    status: &mut Value,
) -> Result<(), AccessError> {
    let (spec, now) = (&cron["spec"], cx.now());
    if spec["suspend"] == true {
        return Ok(());
    }
    let text = spec["schedule"].as_str().unwrap_or_default();
    let schedule = match Schedule::parse(text) {
        Ok(schedule) => schedule,
        Err(error) => {
            let message = format!("unparseable schedule {text:?}: {error}");
            cx.warn(cron, "UnparseableSchedule", message);
            return Ok(());
        }
    };
    let zone = spec["timeZone"]
        .as_str()
        .map_or(Some(TimeZone::UTC), cron::zone);
    let Some(zone) = zone else {
        let message = format!("unknown time zone {}", spec["timeZone"]);
        cx.warn(cron, "UnknownTimeZone", message);
        return Ok(());
    };
    let patience = spec["startingDeadlineSeconds"].as_i64();
    let mut since = time(&status["lastScheduleTime"]).unwrap_or_else(|| created_at(cron));
    if let Some(patience) = patience {
        let start = now.checked_sub(SignedDuration::from_secs(patience));
        since = since.max(start.unwrap_or(since));
    }
    let due = due(&schedule, &zone, since, now);
    let Some(next) = due.next else {
        // The 31st of February is well-formed, but does not exist. The text is kube-controller-manager's.
        let message = format!(
            "invalid schedule: {text} : time difference between two schedules is less than 1 second"
        );
        cx.warn(cron, "InvalidSchedule", message);
        return Ok(());
    };
    cx.enqueue_at(key.clone(), next);
    if due.missed > MISSED_MAX {
        let message = format!(
            "too many missed start times ({}); set or decrease .spec.startingDeadlineSeconds or check clock skew",
            due.missed
        );
        cx.warn(cron, "TooManyMissedTimes", message);
    }
    let Some(at) = due.latest else {
        return Ok(());
    };
    let job_name = format!("{}-{}", name(cron), at.as_second() / 60);
    let is_processed = time(&status["lastScheduleTime"]) == Some(at);
    if is_processed || is_active(status, |r| r["name"] == job_name.as_str()) {
        return Ok(());
    }
    let jobs = owned(cx, cron);
    let active: Vec<StoredObject> = jobs
        .into_iter()
        .filter(|j| is_active(status, |r| r["uid"] == uid(j)))
        .collect();
    match spec["concurrencyPolicy"].as_str() {
        Some("Forbid") if is_active(status, |_| true) => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            cx.normal(cron, "JobAlreadyActive", message.to_owned());
            return Ok(());
        }
        Some("Replace") => {
            for job in &active {
                delete(cx, cron, job)?;
                remove_active(status, uid(job));
            }
        }
        _ => {}
    }
    let job = job(cron, &job_name, at);
    let job = match cx.create(JOB, job) {
        Ok(job) => {
            let message = format!("Created job {}", name(&job));
            cx.normal(cron, "SuccessfulCreate", message);
            job
        }
        Err(error) if error.reason == "AlreadyExists" => {
            // It was created by this controller and not written to the status, or by another client.
            let job = cx.api().get(JOB.resource, namespace(cron), &job_name)?;
            if object::controller_uid(&job) != Some(uid(cron)) {
                return Ok(());
            }
            job
        }
        Err(error) if error.is_namespace_terminating() => return Ok(()),
        Err(error) => {
            let message = format!("Error creating job: {error}");
            cx.warn(cron, "FailedCreate", message);
            return Err(error);
        }
    };
    if finished(&job).is_none() {
        let mut active = items(&status["active"]).to_vec();
        active.push(reference(&job));
        set_active(status, active);
    }
    status["lastScheduleTime"] = seconds(at);
    Ok(())
}

fn job(cron: &Value, job_name: &str, at: Timestamp) -> Value {
    let template = &cron["spec"]["jobTemplate"];
    let mut job = JOB.object(json!({"metadata": {
            "name": job_name,
            "namespace": namespace(cron),
            "ownerReferences": [controller_reference(CRON_JOB, cron)],
        },
        "spec": template["spec"],
    }));
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            job["metadata"][field] = template["metadata"][field].clone();
        }
    }
    set(
        &mut job,
        &["metadata", "annotations", SCHEDULED],
        seconds(at),
    );
    job
}

#[cfg(test)]
mod tests;
