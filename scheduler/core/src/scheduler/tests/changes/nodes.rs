//! Node changes that the watch reports.

use super::*;

/// Q-84, cases 190, 191 and 196: cordoning raises no event, and uncordoning raises the event of taints. An update of
/// labels and taints raises both events. A node that is deleted before its pods is removed at once.
#[test]
fn what_changes_of_a_node_states_which_events_it_raises() {
    type Change = fn(&mut Driver);
    let cordon: Change = |w| {
        w.applied(node("n1").version(2).unschedulable(true).object());
    };
    let uncordon: Change = |w| {
        w.applied(node("n1").version(2).unschedulable(true).object());
        w.applied(node("n1").version(3).object());
    };
    let both: Change = |w| {
        let changed = node("n1").version(2).label("a", "b");
        w.applied(changed.taint("k", "v", TaintEffect::NoSchedule).object());
    };
    for (situation, action, change, woken) in [
        ("cordoned", ActionType::UPDATE_NODE_TAINT, cordon, false),
        ("uncordoned", ActionType::UPDATE_NODE_TAINT, uncordon, true),
        ("both: label", ActionType::UPDATE_NODE_LABEL, both, true),
        ("both: taint", ActionType::UPDATE_NODE_TAINT, both, true),
    ] {
        let mut w = waiting_for(EventResource::Node, action);
        change(&mut w);
        let woke = w.place_of("waits") != Some(QueuedIn::Unschedulable);
        assert_eq!(woke, woken, "{situation}");
    }
    let mut w = waiting_for(EventResource::Node, ActionType::DELETE);
    let gone = ClusterChange::Deleted(node("n1").object());
    w.scheduler.apply(gone, w.now);
    w.take();
    assert!(w.scheduler.cache().cluster().nodes.is_empty());
    w.pod(pod("late").on("n1"));
    assert!(w.scheduler.cache().cluster().nodes.is_empty());
    w.applied(node("n1").version(2).object());
    assert_eq!(w.on("n1"), ["assigned", "late"], "its pods were remembered");
    let gone = ClusterChange::Deleted(node("n1").object());
    w.scheduler.apply(gone, w.now);
    w.deleted("assigned");
    w.deleted("late");
    assert!(w.scheduler.cache().cluster().nodes.is_empty());
}

/// hints for a new node find it in the cluster, and hints for a deleted node still find it.
#[test]
fn a_node_exists_when_its_events_are_raised() {
    for action in [ActionType::ADD, ActionType::DELETE] {
        let picky = fake("Picky")
            .filter(|_, _, _| Status::unschedulable("no"))
            .events(move || {
                vec![EventRegistration::with_hint(
                    EventResource::Node,
                    action,
                    |cluster, _, _| match cluster.nodes.node("n2") {
                        Some(_) => Ok(Hint::Queue),
                        None => Ok(Hint::Skip),
                    },
                )]
            });
        let mut w = driver([picky]);
        w.applied(node("n1").object());
        if action == ActionType::DELETE {
            w.applied(node("n2").object());
        }
        w.pod(pod("waits"));
        w.attempt();
        w.answer_all();
        match action {
            ActionType::ADD => w.applied(node("n2").object()),
            _ => {
                let gone = ClusterChange::Deleted(node("n2").object());
                w.scheduler.apply(gone, w.now);
                &mut w
            }
        };
        assert_eq!(w.place_of("waits"), Some(QueuedIn::Backoff), "{action:?}");
    }
}
