//! Finding pods by their wait keys: the same pods move as without the index, and few are examined.

use super::script::event_of;
use super::{Bench, Setup, setup};
use crate::{Moved, PluginEvents};
use berth_framework::event::{EventRegistration, Touched, WaitKey, Waits};
use berth_framework::{Feature, Hint};

/// A plugin that waits on behalf of a pod for the value of its label `wants`: `thing` or `thing:amount`, several joined
/// by `+`. An object provides the value of its label `helps`; `all` provides everything, `error` makes the hint fail.
fn indexed(name: &str, event: &str) -> PluginEvents {
    let event = event_of(event);
    let registration =
        EventRegistration::with_hint(event.resource, event.action, |_, pod, change| {
            let object = change.new.or(change.old).ok_or("no object")?;
            let labels = &object.metadata().labels;
            let brought = labels.get("helps").unwrap_or("none");
            if brought == "error" {
                return Err("hint failed".into());
            }
            let offers = |(thing, amount): (&str, i64)| {
                things(brought).any(|(offered, up_to)| thing == offered && amount <= up_to)
            };
            let wanted = pod.labels().get("wants").unwrap_or("all");
            let helps = brought == "all" || wanted == "all" || things(wanted).any(offers);
            Ok(if helps { Hint::Queue } else { Hint::Skip })
        });
    let waits = |pod: &berth_api::Pod| {
        let wanted = pod.labels().get("wants").unwrap_or("all");
        if wanted == "all" {
            return Waits::for_anything();
        }
        let mut waits = Waits::for_nothing();
        for (thing, amount) in things(wanted) {
            waits.add_amount(WaitKey::of(thing), amount);
        }
        waits
    };
    let registration = registration.found_by(waits, |_, change| {
        let object = change.new.or(change.old);
        let brought = object.and_then(|object| object.metadata().labels.get("helps"));
        let mut touched = Touched::no_key();
        match brought {
            Some("all" | "error") => return Touched::everything(),
            Some(brought) => {
                for (thing, amount) in things(brought) {
                    touched.add_up_to(WaitKey::of(thing), amount);
                }
            }
            None => {}
        }
        touched
    });
    PluginEvents {
        plugin: name.into(),
        registrations: vec![registration],
    }
}

fn things(text: &str) -> impl Iterator<Item = (&str, i64)> {
    text.split('+').map(|thing| match thing.split_once(':') {
        Some((thing, amount)) => (thing, amount.parse().expect("an amount")),
        None => (thing, 0),
    })
}

/// `I` and `J` are indexed, `W` evaluates its hint for every pod, `G1` blocks pods at PreEnqueue and is indexed, too.
fn indexed_setup(with_index: bool) -> Setup {
    let mut setup = setup().plugins(&[("W", "Node/Add")]);
    for name in ["I", "J", "G1"] {
        setup.profiles[0].events.push(indexed(name, "Node/Add"));
    }
    setup.feature(Feature::SchedulerPreQueueingHints, with_index)
}

/// an event examines the pods that wait for the changed object, through the plugin of the event or another
/// of their plugins.
#[test]
fn an_event_examines_the_pods_that_wait_for_what_it_touches() {
    let waiting = "
        add gpu wants=gpu
        pop
        fail gpu I
        add small wants=cpu:1
        pop
        fail small I
        add large wants=cpu:8+disk
        pop
        fail large I,J
        add any
        pop
        fail any I
        add both wants=gpu
        pop
        fail both I,W
        +3000
        ";
    for (helps, examined, places) in [
        ("gpu", 3, "active: any both gpu; unschedulable: large small"),
        (
            "cpu:4",
            3,
            "active: any small; unschedulable: both gpu large",
        ),
        (
            "cpu:8",
            4,
            "active: any large small; unschedulable: both gpu",
        ),
        (
            "disk",
            3,
            "active: any large; unschedulable: both gpu small",
        ),
        (
            "none",
            2,
            "active: any; unschedulable: both gpu large small",
        ),
        ("W", 2, "active: any both; unschedulable: gpu large small"),
        ("all", 5, "active: any both gpu large small"),
        ("error", 5, "active: any both gpu large small"),
    ] {
        let mut bench = indexed_setup(true).run(waiting);
        assert_eq!(bench.event("Node/Add", helps).examined, examined, "{helps}");
        let mut moved = bench.places();
        if let Some(active) = moved.strip_prefix("active: ") {
            let (active, rest) = active.split_once(';').unwrap_or((active, ""));
            let mut names: Vec<&str> = active.split(' ').collect();
            names.sort_unstable();
            let separator = if rest.is_empty() { "" } else { ";" };
            moved = format!("active: {}{separator}{rest}", names.join(" "));
        }
        assert_eq!(moved, places, "{helps}");
    }
}

/// only the events of its own plugin open a gate, indexed or not; a gated pod is found by its key.
#[test]
fn keys_open_no_gate() {
    let mut bench = indexed_setup(true).run(
        "
        add a wants=gpu
        pop
        update a wants=gpu G1=shut
        fail a I
        activate a              => gated: a
        add b wants=gpu G1=shut
        add c wants=disk G1=shut
        ",
    );
    let moved = bench.event("Node/Add", "gpu");
    assert_eq!((moved.examined, moved.gated), (2, 2), "a and b, for G1");
    let mut bench = setup();
    bench.profiles[0].events.push(indexed("I", "Node/Add"));
    let mut bench =
        bench.run("add a wants=gpu\npop\nupdate a wants=gpu gates=x\nfail a I\nactivate a");
    assert_eq!(bench.places(), "gated: a");
    assert_eq!(bench.event("Node/Add", "gpu"), Moved::default());
}

/// an update that changes the keys of a waiting pod updates the index, wherever the pod waits.
#[test]
fn a_changed_pod_waits_for_something_else() {
    let mut bench = indexed_setup(true).run("add a wants=gpu\npop\nfail a I\n+3000");
    bench.run("update a wants=disk => unschedulable: a");
    assert_eq!(bench.event("Node/Add", "gpu").examined, 0);
    bench.run("event Node/Add helps=disk => active: a");
}

/// a pod with more wait keys than the index stores is indexed as waiting for anything.
#[test]
fn too_many_keys_count_as_anything() {
    let many: Vec<String> = (0..40).map(|n| format!("thing{n}")).collect();
    let mut bench = indexed_setup(true).run(&format!(
        "add a wants={}\npop\nfail a I\n+3000",
        many.join("+")
    ));
    assert_eq!(bench.event("Node/Add", "other").examined, 1, "looked at");
    bench.run("event Node/Add helps=thing39 => active: a");
}

/// with and without the index, the same pods move.
#[test]
fn the_same_pods_move_with_and_without_the_index() {
    const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    const WANTS: [&str; 7] = [
        "gpu",
        "disk",
        "cpu:1",
        "cpu:4",
        "cpu:8+gpu",
        "all",
        "disk+gpu",
    ];
    const HELPS: [&str; 8] = [
        "gpu", "disk", "cpu:2", "cpu:9", "none", "all", "error", "W+gpu",
    ];
    let (mut with_index, mut without) = (0, 0);
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut benches = [true, false].map(|with_index| indexed_setup(with_index).build());
        let mut script = Vec::new();
        for _ in 0..120 {
            let line = random_line(&mut random, &benches[0], (&NAMES, &WANTS, &HELPS));
            let Some(line) = line else { continue };
            script.push(line.clone());
            for (bench, examined) in benches.iter_mut().zip([&mut with_index, &mut without]) {
                match line.strip_prefix("event Node/Add helps=") {
                    Some(helps) => *examined += bench.event("Node/Add", helps).examined,
                    None => bench.run(&line),
                }
            }
            let [indexed, plain] = &benches;
            let script = || script.join("\n");
            assert_eq!(
                indexed.places(),
                plain.places(),
                "seed {seed}, after:\n{}",
                script()
            );
            indexed
                .queue
                .check()
                .unwrap_or_else(|e| panic!("seed {seed}: {e}, after:\n{}", script()));
        }
    }
    assert!(
        with_index * 4 < without * 3,
        "{with_index} looked at instead of {without}"
    );
}

type Choices<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str]);

fn random_line(
    random: &mut fastrand::Rng,
    bench: &Bench,
    (names, wants, helps): Choices<'_>,
) -> Option<String> {
    let name = *random.choice(names)?;
    let known = bench.pods.contains_key(name);
    let popped = bench.popped.contains_key(name);
    Some(match random.u8(0..12) {
        0..=3 => {
            let verb = if known { "update" } else { "add" };
            let gate = if random.u8(0..5) == 0 { " G1=shut" } else { "" };
            format!("{verb} {name} wants={}{gate}", random.choice(wants)?)
        }
        4 | 5 => "pop".to_owned(),
        6 | 7 if popped => {
            let rejectors = ["I", "J", "I,J", "I,W", "W", "J pending=I"];
            format!("fail {name} {}", random.choice(rejectors)?)
        }
        8 if known && !popped => format!("delete {name}"),
        9..=11 => format!("event Node/Add helps={}", random.choice(helps)?),
        _ => format!("+{}", random.choice([1, 700, 3000])?),
    })
}
