//! Capacity buffers on node groups. The nodes of the group have 2 CPUs, boot for 60 s and are removed after 300 s.

use super::*;
use crate::trace::CapacityBuffer;

fn buffer(name: &str, cpu: &str, chunks: u32) -> CapacityBuffer {
    CapacityBuffer {
        namespace: "default".into(),
        name: name.into(),
        pod: pod_of(cpu, 0).into(),
        chunks,
    }
}

/// Two pods that fill a node arrive after 1,000 s and run for 600 s.
fn burst() -> Trace {
    let mut of = trace(
        &[],
        vec![pod("a", "1", 1000, 600), pod("b", "1", 1000, 600)],
    );
    of.node_groups = vec![group_of(0, 5)];
    of
}

#[test]
fn pods_use_the_room_of_a_buffer_at_once_and_the_group_restores_it() {
    let mut of = burst();
    let without = play(&of);
    assert!(
        without.waiting.to_binding.max > 60.0,
        "{:?}",
        without.waiting
    );
    let summary = &without.summary;
    assert_eq!((summary.nodes_added, summary.nodes_removed), (1, 1));
    assert!(without.buffers.is_empty());
    of.buffers = vec![buffer("room", "1", 2)];
    let with = play(&of);
    assert_times(&with, "a", 1000.02, 1601.02);
    assert_times(&with, "b", 1000.02, 1601.02);
    // A second node boots from 1,010 s to 1,070 s. When the pods have ended, one node keeps the room.
    let summary = &with.summary;
    assert_eq!((summary.nodes_added, summary.nodes_removed), (2, 1));
    assert!(with.summary.cost > without.summary.cost);
    // All chunks have room from 60 s to 1,000.02 s, and from 1,070 s to the last event, the end of the idle time of the
    // first node; in the meantime, none has.
    let room = &with.buffers[0];
    let share = (940.02 + 831.02) / 1901.02;
    assert!((with.seconds - 1901.02).abs() < 1e-6, "{}", with.seconds);
    assert!((room.all_room_share - share).abs() < 1e-9, "{room:?}");
    assert!((room.room_mean - 2.0 * share).abs() < 1e-9, "{room:?}");
    assert_eq!((room.chunks, room.room_end), (2, 2));
    assert_eq!(play(&of), with);
}

#[test]
fn a_buffer_larger_than_the_group_is_short() {
    let mut of = burst();
    of.node_groups = vec![group_of(0, 2)];
    of.buffers = vec![buffer("large", "1", 5)];
    let run = play(&of);
    // Two nodes have room for four chunks, or for two and both pods.
    let room = &run.buffers[0];
    assert_eq!((room.all_room_share, room.room_end), (0.0, 4));
    assert!((2.0..4.0).contains(&room.room_mean), "{room:?}");
    let summary = &run.summary;
    assert_eq!((summary.nodes_added, summary.nodes_removed), (2, 0));
}

#[test]
fn a_node_is_removed_when_other_nodes_have_the_room() {
    let mut of = trace(&["2"], Vec::new());
    of.nodes[0].joins = Duration::from_secs(2000);
    of.node_groups = vec![group_of(0, 5)];
    of.buffers = vec![buffer("room", "1", 2)];
    let run = play(&of);
    // The node of the group stays after its idle time, and is removed in the scan after the other one has joined.
    assert_eq!((run.summary.nodes_added, run.summary.nodes_removed), (1, 1));
    assert!((run.summary.cost - 3.6 * (2010.0 - 60.0) / 3600.0).abs() < 1e-6);
    assert_eq!(run.buffers[0].room_end, 2);
}

#[test]
fn chunks_that_no_group_can_take_add_no_node() {
    let mut of = burst();
    let on_ssd = PodShape {
        requests: amounts(&[("cpu", "1")]),
        node_selector: Labels::from_pairs([("disk", "ssd")]),
        ..PodShape::default()
    };
    let selecting = CapacityBuffer {
        pod: on_ssd.pod().into(),
        ..buffer("ssd", "1", 1)
    };
    of.pods.clear();
    of.buffers = vec![
        selecting,
        buffer("huge", "4", 1),
        buffer("small", "500m", 3),
    ];
    let run = play(&of);
    assert_eq!(run.summary.nodes_added, 1);
    let room: Vec<u32> = run.buffers.iter().map(|buffer| buffer.room_end).collect();
    assert_eq!(room, [0, 0, 3]);
}

#[test]
fn without_node_groups_the_room_is_measured() {
    let mut of = trace(&["2"], vec![pod("a", "1", 100, 99)]);
    of.buffers = vec![buffer("room", "1", 2)];
    let run = play(&of);
    assert_times(&run, "a", 100.02, 200.02);
    let share = run.buffers[0].all_room_share;
    assert!((share - 100.02 / 200.02).abs() < 1e-9, "{share}");
}

#[test]
fn two_buffers_with_one_name_are_refused() {
    let mut of = burst();
    of.buffers = vec![buffer("room", "1", 1), buffer("room", "1", 2)];
    let error = try_play(&of).expect_err("two buffers have one name");
    assert!(
        error.to_string().contains("two capacity buffers"),
        "{error}"
    );
    assert!(error.to_string().contains("default/room"), "{error}");
}

/// Groups that compete for chunks of several shapes do not add and remove nodes forever.
#[test]
fn a_simulation_with_buffers_ends() {
    let cpu = |rng: &mut fastrand::Rng| format!("{}m", 500 * rng.u32(1..=6));
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let pods = (0..15).map(|number| {
            let (arrival, seconds) = (rng.u64(..3000), rng.u64(1..1000));
            pod(&format!("p{number}"), &cpu(&mut rng), arrival, seconds)
        });
        let pods = pods.collect();
        let mut of = trace(&["2"], pods);
        for name in ["x", "y", "z"] {
            of.node_groups.push(NodeGroup {
                name: name.into(),
                node: node(&cpu(&mut rng)).into(),
                idle: Duration::from_secs(rng.u64(..300)),
                price_per_hour: f64::from(rng.u8(..3)),
                ..group_of(0, rng.u32(..4))
            });
            let (cpu, chunks) = (cpu(&mut rng), rng.u32(..6));
            of.buffers.push(buffer(name, &cpu, chunks));
        }
        let options = SimulationOptions {
            until: Some(Duration::from_secs(10 * 86_400)),
            ..options(seed)
        };
        let run = simulate(&of, options, &berth_plugins::in_tree(), &mut |_| {});
        let run = run.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(run.seconds < 86_400.0, "seed {seed}: {} s", run.seconds);
        for buffer in &run.buffers {
            assert!(
                buffer.room_mean <= f64::from(buffer.chunks) && buffer.all_room_share <= 1.0,
                "seed {seed}: {buffer:?}"
            );
        }
    }
}
