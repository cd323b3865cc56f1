use super::*;
use crate::plugin::Reserve;
use crate::testing::{Recorder, World, node, pod};
use crate::{Code, CycleState, Step};
use berth_api::Kind;

const CARDS: &str = "example.com/card-units";
const LABEL: &str = "example.com/card-index";
static CALL: CallType = CallType::new("pod_cards", Kind::Pod).with_relevance(4);

const DEVICES: IndexedDevices = IndexedDevices {
    resource: CARDS,
    units: 100,
    label: LABEL,
    call: &CALL,
    too_few: "node(s) had too few free cards",
};

/// Chooses the same devices for every pod.
struct Fixed(&'static [usize]);

impl DeviceChoice for Fixed {
    const DEVICES: IndexedDevices = DEVICES;

    fn choose(
        &self,
        _pod: &PodInfo,
        _request: UnitRequest,
        _node: NodeView<'_>,
        _free: &[i64],
    ) -> Option<Vec<usize>> {
        Some(self.0.to_vec())
    }
}

#[test]
fn an_amount_is_a_part_or_whole_devices() {
    for (amount, units, count) in [(-1, 0, 0), (0, 0, 0), (1, 1, 1), (99, 99, 1), (300, 100, 3)] {
        let request = DEVICES.split(amount);
        assert_eq!(request, Some(UnitRequest { units, count }), "{amount}");
    }
    assert_eq!(DEVICES.split(150), None);
}

#[test]
fn the_labels_of_pods_state_the_used_devices() {
    let world = |cards: &str| {
        World::default()
            .node(node("n1").allocatable(CARDS, cards))
            .pod(pod("part").request(CARDS, "30").label(LABEL, "1").on("n1"))
            .pod(
                pod("two")
                    .request(CARDS, "200")
                    .label(LABEL, "2-0")
                    .on("n1"),
            )
            .pod(pod("odd").request(CARDS, "30").label(LABEL, "x-9").on("n1"))
    };
    for (case, cards, free) in [
        ("four devices", "400", vec![0, 70, 0, 100]),
        ("a rest is no device", "450", vec![0, 70, 0, 100]),
        ("a device has left", "200", vec![0, 70]),
        ("no devices", "0", vec![]),
    ] {
        let world = world(cards);
        let node = world.cluster.nodes.node("n1").expect("a node");
        assert_eq!(DEVICES.free(node, None).to_vec(), free, "{case}");
    }
    let world = world("400");
    let node = world.cluster.nodes.node("n1").expect("a node");
    let two = node.pods().iter().find(|pod| pod.pod.name() == "two");
    let free = DEVICES.free(node, two.map(|pod| &*pod.pod));
    assert_eq!(free.to_vec(), [100, 70, 100, 100]);
}

#[test]
fn choices_differ_in_the_free_units() {
    let free = [40, 100, 40, 100, 20];
    for (amount, choices) in [
        (30, vec![vec![0], vec![1]]),
        (100, vec![vec![1]]),
        (200, vec![vec![1, 3]]),
        (300, vec![]),
        (0, vec![vec![]]),
    ] {
        let request = DEVICES.split(amount).expect("a part or whole devices");
        assert_eq!(request.choices(&free), choices, "{amount}");
        assert_eq!(request.fits(&free), !choices.is_empty(), "{amount}");
    }
}

#[test]
fn a_choice_of_used_devices_rejects_the_node() {
    let world = World::default()
        .node(node("n1").allocatable(CARDS, "300"))
        .pod(pod("used").request(CARDS, "30").label(LABEL, "1").on("n1"));
    for (case, chosen, code) in [
        ("free devices", &[2, 0][..], Code::Success),
        ("too few", &[0], Code::Unschedulable),
        ("too many", &[0, 2, 2], Code::Unschedulable),
        ("the same twice", &[0, 0], Code::Unschedulable),
        ("one that is used", &[0, 1], Code::Unschedulable),
        ("one that does not exist", &[0, 3], Code::Unschedulable),
    ] {
        let (mut state, mut outbox) = (CycleState::default(), Recorder::default());
        let asking = pod("p").request(CARDS, "200").info();
        let mut stage = world.stage(&mut outbox);
        let step = Fixed(chosen).reserve(&mut stage, &mut state, &asking, &"n1".into(), None);
        let Step::Done(status) = step else {
            panic!("{case}: Reserve waits for nothing");
        };
        assert_eq!(status.code(), code, "{case}");
    }
}
