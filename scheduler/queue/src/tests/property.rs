//! Random operations: every pod is always in exactly one place, none is lost, and no gated pod is popped.

use super::{Bench, setup};
use crate::QueuedIn;
use berth_framework::Feature;
use berth_framework::features::Behaviour;
use berth_telemetry::metrics::Metric;
use std::collections::BTreeSet;

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const PLUGINS: [&str; 6] = ["A", "B", "C", "Always", "Mute", "P"];
const EVENTS: [&str; 9] = [
    "Node/Add",
    "Node/UpdateNodeLabel",
    "Node/UpdateNodeTaint",
    "Node/UpdateNodeAllocatable",
    "Node/UpdateNodeAnnotation",
    "Node/UpdateNodeCondition",
    "AssignedPod/Delete",
    "AssignedPod/Add",
    "Node/Delete",
];

/// One random line of a script.
fn operation(random: &mut fastrand::Rng, bench: &Bench) -> Option<String> {
    let name = *random.choice(NAMES.iter())?;
    let known = bench.pods.contains_key(name);
    let popped: Vec<&String> = bench.popped.keys().collect();
    let plugin = |random: &mut fastrand::Rng| PLUGINS[random.usize(0..PLUGINS.len())];
    Some(match random.u8(0..20) {
        0..=4 => {
            let mut line = format!(
                "{} {name} priority={}",
                if known { "update" } else { "add" },
                random.i32(-1..3)
            );
            for (chance, attribute) in [
                (4, "gates=x"),
                (4, "G1=shut"),
                (6, "G2=pending"),
                (4, "helps=all"),
                (5, "nominated=n1"),
            ] {
                if random.u8(0..chance) == 0 {
                    line += &format!(" {attribute}");
                }
            }
            line
        }
        5 if known => format!("delete {name}"),
        6..=9 => "pop".to_owned(),
        10 if known && !bench.popped.contains_key(name) => format!("take {name}"),
        11..=13 => {
            let name = popped.get(random.usize(0..popped.len().max(1)))?;
            if !bench.pods.contains_key(*name) {
                return Some(format!("done {name}"));
            }
            match random.u8(0..4) {
                0 => format!("done {name}"),
                1 => format!("error {name}"),
                2 => format!("fail {name} {},{}", plugin(random), plugin(random)),
                _ => format!("fail {name} {} pending={}", plugin(random), plugin(random)),
            }
        }
        14..=16 => {
            let event = random.choice(EVENTS.iter())?;
            let helps = random.choice(["all", "none", "A", "P", "G1", "error"].iter())?;
            format!("event {event} helps={helps}")
        }
        17 if known => format!("activate {name}"),
        18 => "flush".to_owned(),
        19 => "flush-leftover".to_owned(),
        _ => format!("+{}", random.choice([1, 10, 700, 3000, 200_000].iter())?),
    })
}

/// after every operation, each pod is in one place and counted; gated pods are never popped.
#[test]
fn no_pod_is_lost_and_no_gated_pod_popped() {
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut setup = setup()
            .feature(Feature::SchedulerPopFromBackoffQ, random.bool())
            .feature(Feature::SchedulerPreEnqueuePodStatus, random.bool())
            .behaviour(Behaviour::NodeAddDoesNotImplyTaints, random.bool())
            .config(|config| {
                config.in_flight_events_max = random.usize(1..20);
            });
        if random.bool() {
            setup = setup.unkeyed();
        }
        let mut bench = setup.build();
        let mut script = Vec::new();
        for _ in 0..250 {
            let Some(line) = operation(&mut random, &bench) else {
                continue;
            };
            script.push(line.clone());
            // A bound pod is removed from the pods that later operations may use.
            if let Some(name) = line.strip_prefix("done ")
                && let Some(pod) = bench.pods.remove(name)
            {
                bench.cluster.pods.remove(pod.uid());
            }
            bench.run(&line);
            let failed = || format!("seed {seed}, after:\n{}", script.join("\n"));
            check(&bench, &failed);
        }
        finish(&mut bench, seed);
    }
}

fn check(bench: &Bench, failed: &dyn Fn() -> String) {
    let in_flight: BTreeSet<String> = bench
        .queue
        .in_flight()
        .pods()
        .map(|pod| pod.name().to_string())
        .collect();
    for name in bench.pods.keys() {
        let queued = bench.queue.get("default", name).is_some();
        assert!(
            queued || in_flight.contains(name),
            "{name} is lost; {}",
            failed()
        );
        assert!(
            !(queued && in_flight.contains(name)),
            "{name} is in two places; {}",
            failed()
        );
    }
    for (place, info) in bench.queue.places().pods() {
        assert!(
            bench.pods.contains_key(info.pod.name().as_str()),
            "{} is queued though deleted; {}",
            info.pod.name(),
            failed()
        );
        assert!(
            !(place == QueuedIn::Active && info.is_gated()),
            "{} is active though gated; {}",
            info.pod.name(),
            failed()
        );
    }
    let counts = bench.queue.places().counts();
    assert_eq!(
        counts.total(),
        bench.queue.places().pods().count(),
        "{}",
        failed()
    );
    assert!(
        bench.popped.values().all(|info| !info.is_gated()),
        "{}",
        failed()
    );
}

/// Without gates and after enough time, every pod is popped and every gauge is zero.
fn finish(bench: &mut Bench, seed: u64) {
    for name in bench.popped.keys().cloned().collect::<Vec<_>>() {
        bench.run(&format!("done {name}"));
        if let Some(pod) = bench.pods.remove(&name) {
            bench.cluster.pods.remove(pod.uid());
            bench.queue.delete(&pod);
        }
    }
    for name in bench.pods.keys().cloned().collect::<Vec<_>>() {
        bench.run(&format!("update {name}\nactivate {name}"));
    }
    bench.run("+400000\nflush\nflush-leftover\nflush");
    let expected = bench.pods.len();
    let mut popped = 0;
    while let Some(info) = bench.queue.pop(bench.now) {
        popped += 1;
        bench.queue.done(info.pod.uid());
    }
    assert_eq!(popped, expected, "seed {seed}");
    assert_eq!(bench.places(), "nothing", "seed {seed}");
    assert_eq!(bench.unschedulable_gauge(), "", "seed {seed}");
    let inflight = super::numbers(&bench.queue, Metric::InflightEvents);
    assert!(
        inflight.values().all(|n| *n == 0),
        "seed {seed}: {inflight:?}"
    );
    assert_eq!(bench.queue.in_flight().events_len(), 0, "seed {seed}");
}
