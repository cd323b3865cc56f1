use super::*;
use crate::stats::Buckets;
use crate::workload::run::{PodCount, ProcessUsage};

fn outcome(average: Option<f64>) -> WorkloadOutcome {
    let buckets = average.map(|average| Buckets {
        average,
        perc50: 1.0,
        perc90: 2.0,
        perc95: 3.0,
        perc99: 4.0,
    });
    WorkloadOutcome {
        measured: vec![WorkloadMeasured {
            name: "namespace-2".to_owned(),
            throughput: buckets,
            samples: usize::from(average.is_some()),
            scheduled: 101,
            span: Duration::from_secs(2),
            duration: Duration::from_secs(3),
            latency: None,
            processes: vec![ProcessUsage {
                name: "scheduler".to_owned(),
                cpu_seconds: 1.5,
                threads: [("core", 1.0), ("edge", 0.5), ("idle", 0.0)]
                    .map(|(name, seconds)| (name.to_owned(), seconds))
                    .into(),
                peak_bytes: 64 << 20,
            }],
            api_calls: Some(202),
            own_writes: 101,
            attempts: Some(303),
            hint_calls: Some(202),
            histograms: Vec::new(),
        }],
        bindings_verified: 101,
        took: Duration::from_secs(5),
        server_version: "v1.36.2".to_owned(),
    }
}

fn run(
    threshold: Option<f64>,
    expect_lower: bool,
    result: Result<WorkloadOutcome, RunError>,
) -> WorkloadRun {
    WorkloadRun {
        name: "Case/small".to_owned(),
        repetition: 1,
        threshold: threshold.map(|value| Threshold {
            value,
            metric: THROUGHPUT.to_owned(),
            labels: Default::default(),
            bucket: "Average".to_owned(),
            expect_lower,
        }),
        limits: Vec::new(),
        result,
        took: Duration::from_secs(6),
    }
}

/// A count for each pod may be as high as its limit; a count that is not known is not within it.
#[test]
fn counts_per_pod_are_compared_with_their_limits() {
    for (count, most, hint_calls, expect) in [
        (PodCount::Attempts, 3.0, None, Compared::Met { value: 3.0 }),
        (
            PodCount::Attempts,
            2.9,
            None,
            Compared::Missed { value: 3.0 },
        ),
        (
            PodCount::HintCalls,
            2.0,
            Some(202),
            Compared::Met { value: 2.0 },
        ),
        (
            PodCount::HintCalls,
            2.0,
            Some(303),
            Compared::Missed { value: 3.0 },
        ),
        (PodCount::HintCalls, 2.0, None, Compared::NotMeasured),
    ] {
        let mut outcome = outcome(Some(50.0));
        outcome.measured[0].hint_calls = hint_calls;
        let limit = Limit { count, most };
        assert_eq!(limit.compare(&outcome.measured[0]), expect, "{limit:?}");
        let run = WorkloadRun {
            limits: vec![limit],
            ..run(None, false, Ok(outcome))
        };
        let report = WorkloadReport {
            target: "test".to_owned(),
            runs: vec![run],
        };
        let met = matches!(expect, Compared::Met { .. });
        assert_eq!(report.missed(), usize::from(!met), "{report}");
        let shown = if met { "met by" } else { "MISSED" };
        let line = format!("limit {} {most} {shown}", count.name());
        assert!(report.to_string().contains(&line), "{report}");
    }
}

#[test]
fn a_result_is_compared_with_its_threshold() {
    for (threshold, lower, average, expect) in [
        (None, false, Some(50.0), Compared::None),
        (Some(40.0), false, Some(50.0), Compared::Met { value: 50.0 }),
        (
            Some(60.0),
            false,
            Some(50.0),
            Compared::Missed { value: 50.0 },
        ),
        (Some(60.0), true, Some(50.0), Compared::Met { value: 50.0 }),
        (
            Some(40.0),
            true,
            Some(50.0),
            Compared::Missed { value: 50.0 },
        ),
        (Some(40.0), false, None, Compared::NotMeasured),
    ] {
        let run = run(threshold, lower, Ok(outcome(average)));
        let measured = &run.result.as_ref().expect("a result").measured[0];
        assert_eq!(
            run.compare(measured),
            expect,
            "{threshold:?} {lower} {average:?}"
        );
    }
}

#[test]
fn runs_are_counted_by_outcome() {
    let report = WorkloadReport {
        target: "test".to_owned(),
        runs: vec![
            run(None, false, Ok(outcome(Some(5.0)))),
            run(Some(9.0), false, Ok(outcome(Some(5.0)))),
            run(None, false, Err(RunError::Unsupported("a gate".to_owned()))),
            run(None, false, Err(RunError::Ended("it ended".to_owned()))),
        ],
    };
    let counts = (
        report.succeeded(),
        report.missed(),
        report.unsupported(),
        report.failed(),
    );
    assert_eq!(counts, (2, 1, 1, 1));
    let text = report.to_string();
    for expect in [
        "Average 5.0",
        "50.0 pods/s from the first to the last",
        "scheduler  CPU 1.50 s (14.85 ms per pod), peak memory 64 MiB",
        "API calls 202 (2.00 per pod)",
        "scheduling attempts 303 (3.00 per pod)",
        "threshold 9 MISSED by 5.0",
        "error: cannot run here: a gate",
        "error: it ended",
        "      of it core 1.00 s (9.90 ms per pod), edge 0.50 s (4.95 ms per pod)\n",
        "Case/small namespace-2: median of 2 runs 5.0 pods/s, from 5.0 to 5.0; median of 2 runs 50.0 pods/s from the \
         first to the last",
        "2 of 4 runs succeeded, 1 failed, 1 cannot run here, 1 not within their threshold or limits (test)",
    ] {
        assert!(text.contains(expect), "{expect:?} is not in\n{text}");
    }
}

#[test]
fn data_items_equal_those_of_scheduler_perf() {
    let report = WorkloadReport {
        target: "test".to_owned(),
        runs: vec![
            run(Some(4.0), false, Ok(outcome(Some(5.0)))),
            run(None, false, Err(RunError::Ended("it ended".to_owned()))),
        ],
    };
    let json = data_items(&report);
    assert_eq!(json["version"], "v1");
    let items = json["dataItems"].as_array().expect("items");
    let throughput = items
        .iter()
        .find(|item| item["labels"]["Metric"] == "SchedulingThroughput")
        .expect("the throughput");
    assert_eq!(
        throughput["labels"]["Name"],
        "BenchmarkPerfScheduling/Case/small/namespace-2"
    );
    assert_eq!(throughput["unit"], "pods/s");
    assert_eq!(throughput["data"]["Average"], 5.0);
    assert_eq!(throughput["data"]["Perc99"], 4.0);
    assert_eq!(throughput["data"]["AverageThreshold"], 4.0);
    let thread = items.iter().find(|item| item["labels"]["thread"] == "core");
    assert_eq!(thread.expect("the thread")["data"]["Sum"], 1.0);
    // perf-dash shows only items that have all labels.
    assert_eq!(throughput["labels"]["process"], "not applicable");
    assert_eq!(json["errors"]["Case/small (1)"], "it ended");
    assert!(json["machine"]["cpus"].as_u64().is_some_and(|n| n > 0));
}
