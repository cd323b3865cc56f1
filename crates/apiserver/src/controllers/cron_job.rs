//! The CronJob controller: creates jobs by a schedule, and deletes old ones.

use super::job::finished;
use super::object::{
    self, CRON_JOB, JOB, Key, controller_key, controller_reference, count, created_at, is_deleting,
    items, name, namespace, seconds, set, time, uid,
};
use super::runtime::{Context, Controller, Difference, Index, Watch, watching};
use crate::access::{AccessError, GroupResource, Object};
use crate::cron::{self, Schedule};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// The annotation of a job with the time for which it was scheduled.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// How many missed times are counted before the controller starts from the most recent one.
const MISSED_MAX: usize = 100;
/// How many finished jobs are kept where the CronJob does not say.
const KEPT_SUCCESSFUL: i32 = 3;
const KEPT_FAILED: i32 = 1;

/// See the module.
#[derive(Debug)]
pub(super) struct CronJobs;

impl Controller for CronJobs {
    type Key = Key;
    const NAME: &'static str = "cronjob-controller";
    const WATCHES: &'static [Watch] =
        &[watching(CRON_JOB, &[]), watching(JOB, &[Index::Controller])];

    fn observe(&mut self, cx: &mut Context<Key>, kind: GroupResource, diff: &Difference) {
        for object in [&diff.old, &diff.new].into_iter().flatten() {
            if kind == CRON_JOB.resource {
                cx.enqueue(Key::of(object));
            } else if let Some(key) = controller_key(CRON_JOB, object) {
                cx.enqueue(key);
            }
        }
    }

    fn reconcile(&mut self, cx: &mut Context<Key>, key: &Key) -> Result<(), AccessError> {
        let Some(cron) = cx.cache(CRON_JOB).get(key).cloned() else {
            return Ok(());
        };
        if is_deleting(&cron) {
            return Ok(());
        }
        let jobs: Vec<Object> = owned(cx, &cron);
        let mut status = match &cron["status"] {
            Value::Object(status) => Value::Object(status.clone()),
            _ => json!({}),
        };
        observe_finished(cx, &cron, &jobs, &mut status);
        clean_up(cx, &cron, &jobs)?;
        let started = start_due(cx, key, &cron, &mut status);
        // What has been started must be known, whatever failed then.
        let jobs = owned(cx, &cron);
        let active: Vec<Value> = jobs
            .iter()
            .filter(|j| finished(j).is_none())
            .map(|j| reference(j))
            .collect();
        match active.is_empty() {
            true => _ = status.as_object_mut().and_then(|s| s.remove("active")),
            false => status["active"] = active.into(),
        }
        cx.write_status(CRON_JOB, &cron, status)?;
        started
    }
}

fn owned(cx: &Context<Key>, cron: &Value) -> Vec<Object> {
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

/// Reports jobs that were active before and have finished.
fn observe_finished(cx: &mut Context<Key>, cron: &Object, jobs: &[Object], status: &mut Value) {
    let before = items(&cron["status"]["active"]);
    for job in jobs {
        let Some(end) = finished(job) else { continue };
        if before.iter().any(|r| r["uid"] == uid(job)) {
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
}

/// Deletes the oldest finished jobs.
fn clean_up(cx: &mut Context<Key>, cron: &Object, jobs: &[Object]) -> Result<(), AccessError> {
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
        let mut ended: Vec<&Object> = jobs
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

fn delete(cx: &mut Context<Key>, cron: &Object, job: &Object) -> Result<(), AccessError> {
    cx.delete(JOB, job)?;
    let message = format!("Deleted job {}", name(job));
    cx.normal(cron, "SuccessfulDelete", message);
    Ok(())
}

/// The most recent time of the schedule that has come, how many have been missed, and the next one.
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
            // The times in between make no difference: look close to now, where at least one time is.
            let step = schedule
                .next_after(at, zone)
                .map_or(SignedDuration::ZERO, |next| next.duration_since(at));
            from = now.checked_sub(step).unwrap_or(at).max(at);
        }
        due.next = schedule.next_after(from, zone);
    }
    due
}

/// Starts the job whose time has come, if the CronJob allows it, and comes back at the next time.
fn start_due(
    cx: &mut Context<Key>,
    key: &Key,
    cron: &Object,
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
    if let Some(next) = due.next {
        cx.enqueue_at(key.clone(), next);
    }
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
    let jobs = owned(cx, cron);
    if jobs.iter().any(|j| name(j) == job_name) {
        return Ok(());
    }
    let active: Vec<Object> = jobs.into_iter().filter(|j| finished(j).is_none()).collect();
    match spec["concurrencyPolicy"].as_str() {
        Some("Forbid") if !active.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            cx.normal(cron, "JobAlreadyActive", message.to_owned());
            return Ok(());
        }
        Some("Replace") => {
            for job in &active {
                delete(cx, cron, job)?;
            }
        }
        _ => {}
    }
    let job = job(cron, &job_name, at);
    match cx.create(JOB, job) {
        Ok(job) => {
            let message = format!("Created job {}", name(&job));
            cx.normal(cron, "SuccessfulCreate", message);
        }
        Err(error) if error.reason == "AlreadyExists" => {}
        Err(error) if error.is_namespace_terminating() => return Ok(()),
        Err(error) => {
            let message = format!("Error creating job: {error}");
            cx.warn(cron, "FailedCreate", message);
            return Err(error);
        }
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
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::controllers::runtime::Handle;
    use crate::controllers::testing::{Fake, eventually, pass};
    use std::sync::Arc;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn the_most_recent_missed_time_counts() {
        let schedule = Schedule::parse("*/5 * * * *").expect("a schedule");
        let cases = [
            // (since, now, the time that is due, how many were missed, the next)
            ("00:00:00", "00:04:59", None, 0, "00:05:00"),
            ("00:00:00", "00:05:00", Some("00:05:00"), 1, "00:10:00"),
            ("00:05:00", "00:05:00", None, 0, "00:10:00"),
            ("00:00:00", "00:17:00", Some("00:15:00"), 3, "00:20:00"),
            // After 100 times the ones in between are skipped.
            ("00:00:00", "23:58:00", Some("23:55:00"), 101, "24:00:00"),
        ];
        let day = |text: &str| match text {
            "24:00:00" => at("2026-01-02T00:00:00Z"),
            text => at(&format!("2026-01-01T{text}Z")),
        };
        for (since, now, latest, missed, next) in cases {
            let due = due(&schedule, &TimeZone::UTC, day(since), day(now));
            assert_eq!(due.latest, latest.map(day), "{since} {now}");
            assert_eq!(due.missed, missed, "{since} {now}");
            assert_eq!(due.next, Some(day(next)), "{since} {now}");
        }
    }

    fn cron(policy: &str) -> Value {
        json!({
            "metadata": {"name": "c", "namespace": "n"},
            "spec": {
                "schedule": "* * * * *",
                "concurrencyPolicy": policy,
                "successfulJobsHistoryLimit": 1,
                "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {}}},
            },
        })
    }

    fn start(policy: &str) -> (Arc<Fake>, Handle) {
        let api = Fake::new();
        api.create(CRON_JOB.resource, cron(policy))
            .expect("created");
        let mut handle = Handle::new();
        handle.start(CronJobs, api.clone(), api.clock());
        (api, handle)
    }

    fn jobs(api: &Fake) -> Vec<Object> {
        api.list(JOB.resource, Some("n"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_is_created_each_minute_and_old_ones_are_deleted() {
        let (api, _handle) = start("Allow");
        eventually("the first job", || jobs(&api).len() == 1).await;
        let job = jobs(&api)[0].clone();
        let scheduled = job["metadata"]["annotations"][SCHEDULED].clone();
        let minute = time(&scheduled).expect("a time").as_second() / 60;
        assert_eq!(name(&job), format!("c-{minute}"));
        assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
        eventually("more jobs", || jobs(&api).len() == 3).await;
        for job in jobs(&api) {
            api.edit_status(JOB.resource, ("n", name(&job)), |j| {
                j["status"] = json!({
                    "completionTime": "2026-01-01T00:00:00Z",
                    "conditions": [{"type": "Complete", "status": "True"}],
                });
            });
        }
        eventually("one finished job is kept", || {
            jobs(&api).iter().filter(|j| finished(j).is_some()).count() == 1
        })
        .await;
        let cron = api.get(CRON_JOB.resource, "n", "c").expect("it exists");
        assert_eq!(cron["status"]["lastSuccessfulTime"], "2026-01-01T00:00:00Z");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_jobs_follow_the_policy() {
        let (api, _handle) = start("Forbid");
        eventually("the first job", || jobs(&api).len() == 1).await;
        let first = name(&jobs(&api)[0]).to_owned();
        pass(150.0).await;
        assert_eq!(jobs(&api).len(), 1);
        assert_eq!(name(&jobs(&api)[0]), first);
        let (api, _handle) = start("Replace");
        eventually("the first job", || jobs(&api).len() == 1).await;
        let first = name(&jobs(&api)[0]).to_owned();
        eventually("another job", || {
            jobs(&api).len() == 1 && name(&jobs(&api)[0]) != first
        })
        .await;
    }
}
