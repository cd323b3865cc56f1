//! Gates: they are removed by time, by the end of a pod, and by a quota.

use super::*;

/// Otherwise the pod would wait forever.
#[test]
fn a_gate_that_waits_for_a_pod_of_no_trace_is_refused() {
    let waiting = TracePod {
        gates: vec![Gate {
            name: "example.com/gate".into(),
            removal: GateRemoval::Ended("default/other".into()),
        }],
        ..pod("waiting", "1", 0, 60)
    };
    let several = TracePod {
        count: 2,
        ..pod("other", "1", 0, 60)
    };
    let error = try_play(&trace(&["8"], vec![waiting.clone(), several])).map(|_| ());
    assert_eq!(
        error.map_err(|e| e.to_string()),
        Err(
            "gate example.com/gate of pod default/waiting waits for the end of pod default/other, \
             which the trace does not have; name one of its pods as NAMESPACE/NAME"
                .to_owned()
        )
    );
    let known = trace(&["8"], vec![waiting, pod("other", "1", 0, 60)]);
    assert!(try_play(&known).is_ok());
}

#[test]
fn pods_that_wait_for_each_other_are_refused() {
    let waiting = |name: &str, count: u32, awaited: &[&str]| TracePod {
        count,
        gates: awaited
            .iter()
            .map(|awaited| Gate {
                name: format!("example.com/{awaited}").into(),
                removal: GateRemoval::Ended(format!("default/{awaited}").into()),
            })
            .collect(),
        ..pod(name, "1", 0, 60)
    };
    let first = pod("first", "1", 0, 60);
    for (situation, pods, refused) in [
        (
            "a diamond",
            vec![
                waiting("last", 1, &["left", "right"]),
                waiting("left", 1, &["first"]),
                waiting("right", 1, &["first", "left"]),
                first.clone(),
            ],
            None,
        ),
        (
            "a circle behind a pod",
            vec![
                waiting("last", 1, &["first", "left"]),
                waiting("left", 1, &["first", "right"]),
                waiting("right", 1, &["left"]),
                first,
            ],
            Some(["left", "right"]),
        ),
        (
            "its own copy",
            vec![waiting("a", 2, &["a-1"])],
            Some(["a-1", "a"]),
        ),
    ] {
        let error = try_play(&trace(&["8"], pods)).map(|_| ());
        let text = error.map_err(|e| e.to_string());
        match refused {
            None => assert_eq!(text, Ok(()), "{situation}"),
            Some(names) => {
                let text = text.expect_err(situation);
                assert!(text.contains("so that neither starts"), "{text}");
                for name in names {
                    assert!(text.contains(&format!("default/{name}")), "{text}");
                }
            }
        }
    }
}

#[test]
fn gates_are_removed_by_time_by_the_end_of_a_pod_and_by_a_quota() {
    let gated = |name: &str, removal: GateRemoval| TracePod {
        gates: vec![Gate {
            name: "example.com/gate".into(),
            removal,
        }],
        ..pod(name, "1", 10, 60)
    };
    let mut of = trace(
        &["8"],
        vec![
            pod("first", "1", 0, 60),
            gated("later", GateRemoval::After(Duration::from_secs(100))),
            gated("at", GateRemoval::At(Duration::from_secs(100))),
            gated("after-first", GateRemoval::Ended("default/first".into())),
            gated("quota", GateRemoval::Quota),
        ],
    );
    of.quotas = vec![Quota {
        namespace: "default".into(),
        hard: amounts(&[("pods", "4")]),
    }];
    let run = play(&of);
    assert_times(&run, "later", 110.02, 171.02);
    assert_times(&run, "at", 100.02, 161.02);
    assert_times(&run, "after-first", 61.04, 122.04);
    // The gate is removed when `first` has ended.
    assert_times(&run, "quota", 61.04, 122.04);
}
