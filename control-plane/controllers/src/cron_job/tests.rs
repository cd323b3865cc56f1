//! The CronJob controller: the due times of schedules, and the jobs that users see.

use super::*;
use crate::runtime::Handle;
use crate::testing::{Fake, eventually, pass, refused};
use berth_objects::access::{Access, DeleteOptions};
use berth_objects::object::EVENT;
use std::sync::Arc;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// API-74.
#[test]
fn the_most_recent_missed_time_counts() {
    let five = "*/5 * * * *";
    let every = "@every 5m";
    let cases = [
        // (schedule, since, now, the time that is due, how many were missed, the next)
        (five, "00:00:00", "00:04:59", None, 0, "00:05:00"),
        (
            five,
            "00:00:00",
            "00:05:00",
            Some("00:05:00"),
            1,
            "00:10:00",
        ),
        (five, "00:05:00", "00:05:00", None, 0, "00:10:00"),
        (
            five,
            "00:00:00",
            "00:17:00",
            Some("00:15:00"),
            3,
            "00:20:00",
        ),
        // After 100 missed times, the times in between are skipped.
        (
            five,
            "00:00:00",
            "23:58:00",
            Some("23:55:00"),
            101,
            "24:00:00",
        ),
        // Times of @every count from the last one, even if several were missed.
        (every, "00:02:11", "00:07:10", None, 0, "00:07:11"),
        (
            every,
            "00:02:11",
            "00:17:30",
            Some("00:17:11"),
            3,
            "00:22:11",
        ),
        (
            every,
            "00:02:11",
            "23:58:00",
            Some("23:57:11"),
            101,
            "00:02:11 the day after",
        ),
    ];
    let day = |text: &str| match text {
        "24:00:00" => at("2026-01-02T00:00:00Z"),
        "00:02:11 the day after" => at("2026-01-02T00:02:11Z"),
        text => at(&format!("2026-01-01T{text}Z")),
    };
    for (schedule, since, now, latest, missed, next) in cases {
        let schedule = Schedule::parse(schedule).expect("a schedule");
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

fn jobs(api: &Fake) -> Vec<StoredObject> {
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

#[tokio::test(start_paused = true)]
async fn a_schedule_without_any_time_is_reported() {
    let api = Fake::new();
    let mut never = cron("Allow");
    never["spec"]["schedule"] = "59 23 31 2 *".into();
    api.create(CRON_JOB.resource, never).expect("created");
    let mut handle = Handle::new();
    handle.start(CronJobs, api.clone(), api.clock());
    eventually("it is reported", || {
        reasons(&api).contains(&"InvalidSchedule".to_owned())
    })
    .await;
    let events = api.list(EVENT.resource, Some("n"));
    assert_eq!(events[0]["type"], "Warning");
    assert_eq!(
        events[0]["message"],
        "invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second"
    );
    pass(120.0).await;
    assert_eq!(api.list(EVENT.resource, Some("n")).len(), 1);
    assert!(jobs(&api).is_empty());
}

#[test]
fn a_fixed_interval_keeps_its_phase_however_many_times_were_missed() {
    for (at_, next, now, expect) in [
        // Every 90 s from 00:00:10 on.
        ("00:00:10", "00:01:40", "10:00:00", "09:57:10"),
        ("00:00:10", "00:01:40", "00:01:41", "00:00:10"),
    ] {
        let day = |text: &str| at(&format!("2026-01-01T{text}Z"));
        let from = close_to(day(now), day(at_), Some(day(next)));
        assert_eq!(from, day(expect), "{now}");
        assert_eq!((from.as_second() - day(at_).as_second()) % 90, 0);
    }
}

fn reasons(api: &Fake) -> Vec<String> {
    let events = api.list(EVENT.resource, Some("n"));
    let reasons = events.iter().filter_map(|e| e["reason"].as_str());
    reasons.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn jobs_that_are_not_its_own_or_were_deleted_are_reported() {
    let (api, _handle) = start("Allow");
    eventually("the first job", || jobs(&api).len() == 1).await;
    let status = || api.get(CRON_JOB.resource, "n", "c").expect("it exists")["status"].clone();
    eventually("it is active", || items(&status()["active"]).len() == 1).await;
    let cron = api.get(CRON_JOB.resource, "n", "c").expect("it exists");
    api.create(
        JOB.resource,
        json!({"metadata": {"name": "by-hand", "namespace": "n",
            "ownerReferences": [controller_reference(CRON_JOB, &cron)]}}),
    )
    .expect("created");
    eventually("it is reported", || {
        reasons(&api).contains(&"UnexpectedJob".to_owned())
    })
    .await;
    assert!(
        items(&status()["active"])
            .iter()
            .all(|r| r["name"] != "by-hand"),
        "a job that the controller did not create is not active"
    );
    let first = items(&status()["active"])[0]["name"].clone();
    let first = first.as_str().expect("a name");
    let gone = api.delete(JOB.resource, "n", first, &DeleteOptions::default());
    assert!(gone.is_ok());
    eventually("the deleted job is reported", || {
        reasons(&api).contains(&"MissingJob".to_owned())
            && items(&status()["active"])
                .iter()
                .all(|r| r["name"] != first)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_created_but_not_recorded_is_recorded() {
    let (api, _handle) = start("Allow");
    let mut failures = 3;
    api.set_fault(move |verb, kind, _| {
        let fails = verb == "update_status" && kind == CRON_JOB.resource && failures > 0;
        failures -= i32::from(fails);
        fails.then(|| refused(500, "InternalError", "not now"))
    });
    eventually("the job is recorded", || {
        let cron = api.get(CRON_JOB.resource, "n", "c").expect("it exists");
        let active = items(&cron["status"]["active"]);
        active.len() == 1 && cron["status"]["lastScheduleTime"].is_string()
    })
    .await;
    assert_eq!(jobs(&api).len(), 1);
}
