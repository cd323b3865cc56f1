//! The cost of an event, counted in examined pods: the same with ten waiting pods as with ten thousand.

use super::{Bench, fields, setup};
use crate::Moved;
use berth_api::{Kind, Str};
use berth_framework::Feature;
use berth_framework::testing::pod;
use serde_json::json;

/// `count` gated pods, `count` pods rejected by a plugin that is not registered for the event, and two pods rejected by
/// A.
fn pods_without_room(count: usize) -> Bench {
    let mut bench = setup().build();
    for n in 0..count {
        let gated = berth_framework::testing::pod(&format!("gated-{n}"))
            .gate("x")
            .arc();
        bench.know(gated.clone());
        let (queue, cx) = super::fields!(bench);
        queue.add(&cx, gated);
        let waiting = berth_framework::testing::pod(&format!("waiting-{n}")).arc();
        queue.add(&cx, waiting);
        let mut info = queue.pop(cx.now).expect("the waiting pod");
        info.unschedulable_plugins = ["C"].into_iter().collect();
        queue.add_unschedulable(&cx, info).expect("not queued");
    }
    bench.run(
        "
        add a1
        pop -> a1
        fail a1 A
        add a2
        pop -> a2
        fail a2 A
        +3000
        ",
    );
    bench
}

/// the number of pods that an event examines does not depend on the number of waiting pods.
#[test]
fn an_event_looks_at_the_pods_it_may_help_only() {
    for count in [10, 10_000] {
        let mut bench = pods_without_room(count);
        let nothing = Moved::default();
        for (event, helps, expected) in [
            ("Node/Delete", "all", nothing),
            ("AssignedPod/Delete", "all", nothing),
            (
                "Node/UpdateNodeLabel",
                "none",
                Moved {
                    examined: 2,
                    hints: 2,
                    ..nothing
                },
            ),
            (
                "Node/Add",
                "A",
                Moved {
                    examined: 2,
                    hints: 2,
                    active: 2,
                    ..nothing
                },
            ),
        ] {
            let case = format!("{event} helping {helps} among {count}");
            assert_eq!(bench.event(event, helps), expected, "{case}");
        }
        bench.run("update gated-5");
        let counts = bench.queue.places().counts();
        assert_eq!(
            (counts.active, counts.gated, counts.unschedulable),
            (3, count - 1, count)
        );
        assert_eq!(
            bench.hints(),
            "A:Queue=2 A:QueueSkip=2 SchedulingGates:Queue=1"
        );
    }
}

/// the cost of a flush depends on the number of moved pods; without old pods it examines none.
#[test]
fn a_flush_looks_at_old_pods_only() {
    let mut bench = pods_without_room(1000);
    bench.now = berth_api::Time::from_millis(200_000);
    let (queue, cx) = super::fields!(bench);
    assert_eq!(queue.flush_leftover(&cx).examined, 0);
    assert_eq!(queue.flush_backoff(&cx), 0);
}

/// The number of strings that are read and copied while members join a gated group one by one.
fn reads_of_joins(members: usize) -> u64 {
    let mut bench = setup().feature(Feature::GenericWorkload, true).build();
    let group = json!({
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": members}}},
    });
    let group = Kind::PodGroup.decode(group.to_string().as_bytes());
    bench.cluster.set(&group.expect("a group"));
    let (queue, cx) = fields!(bench);
    let before = Str::reads();
    for n in 0..members {
        // Every second member has its own gate, in addition to the gate of the first.
        let member = pod(&format!("member-{n}")).member_of("g");
        let member = if n % 2 == 0 { member.gate("x") } else { member };
        queue.add(&cx, member.arc());
    }
    let reads = Str::reads() - before;
    assert_eq!(queue.places().counts().gated, members);
    queue.check().expect("the records agree");
    reads
}

/// a member that joins a gated group costs the same for any number of members.
#[test]
fn members_join_a_gated_group_in_linear_time() {
    let [few, many] = [200, 800].map(reads_of_joins);
    assert!(
        many <= 5 * few,
        "{few} reads for 200 members, {many} for 800"
    );
}
