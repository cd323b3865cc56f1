//! The model of another configuration: the inputs from a recording, and the outputs of the core.

use berth_api::{Kind, Object, Time};
use berth_framework::call::CallId;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_recording::{Damage, Entry, FoundEntry, Modelled, model};
use berth_scheduler::profile::{PluginConfig, ProfileSpec};
use berth_scheduler::{Scheduler, SchedulerOptions};

fn spread() -> ProfileSpec {
    ProfileSpec::default()
}

/// Full nodes first.
fn packed() -> ProfileSpec {
    let mut profile = ProfileSpec::default();
    let disabled = &mut profile.plugins.multi_point.disabled;
    disabled.push("NodeResourcesBalancedAllocation".to_owned());
    profile.plugin_config.push(PluginConfig {
        name: "NodeResourcesFit".to_owned(),
        args: serde_json::json!({"scoringStrategy": {
            "type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}],
        }}),
    });
    profile
}

/// A recording: two nodes of two CPUs, and then these entries, one each second.
fn modelled(profile: ProfileSpec, entries: Vec<Entry>) -> Modelled {
    let beginning = Time::from_secs(1_000);
    let options = SchedulerOptions {
        profiles: vec![profile],
        ..SchedulerOptions::default()
    };
    let registry = berth_plugins::in_tree();
    let mut scheduler = Scheduler::new(options, &registry, beginning).expect("the profile");
    let nodes = ["a", "b"].map(|name| node(name).capacity("2", "8Gi", "110").object());
    let mut all = vec![Entry::List(Kind::Node, nodes.len())];
    all.extend(nodes.map(Entry::Item));
    all.extend([Entry::List(Kind::Pod, 0), Entry::TakeOutputs]);
    let listed = all.len();
    all.extend(entries);
    let found = all.into_iter().enumerate().map(|(number, entry)| {
        let seconds = number.saturating_sub(listed) as i64;
        Ok::<_, Damage>(FoundEntry {
            number: number as u64,
            at: Time::from_secs(1_000 + seconds),
            entry,
        })
    });
    model(found, &mut scheduler, beginning, None, &mut |_, _, _| {})
}

fn applied(pod: PodBuilder) -> Entry {
    Entry::Apply(pod.scheduler("default-scheduler").object())
}

fn web(name: &str) -> PodBuilder {
    pod(name).request("cpu", "500m")
}

#[test]
fn the_model_places_the_pods_and_ignores_the_recorded_nodes() {
    let day = || {
        vec![
            applied(web("one")),
            applied(web("one").version(2).on("a")),
            applied(web("two")),
            applied(web("two").version(2).on("a")),
            applied(web("three")),
        ]
    };
    let spread = modelled(spread(), day());
    let packed = modelled(packed(), day());
    assert_eq!((spread.placed(), spread.nodes_used), (3, (2, 2)));
    assert_eq!((packed.placed(), packed.nodes_used), (3, (1, 2)));
    assert_eq!(spread.pods.len(), 3);
}

#[test]
fn pods_of_other_schedulers_and_with_claims_keep_their_nodes() {
    let claimed = || {
        web("claimed").with(|pod| {
            pod.spec.template.volumes.push(berth_api::pod::Volume {
                persistent_volume_claim: Some(Default::default()),
                ..Default::default()
            });
        })
    };
    let foreign = pod("foreign")
        .request("cpu", "1500m")
        .scheduler("other")
        .on("a");
    let outcome = modelled(
        spread(),
        vec![
            Entry::Apply(foreign.object()),
            applied(claimed()),
            applied(claimed().version(2).on("b")),
            applied(pod("big").request("cpu", "2")),
        ],
    );
    assert_eq!(
        (outcome.kept, outcome.pods.len(), outcome.placed()),
        (1, 1, 0)
    );
    let big = outcome.pods.values().next().expect("the pod");
    assert!(
        big.message
            .starts_with("0/2 nodes are available: 2 Insufficient cpu."),
        "{}",
        big.message
    );
    assert_eq!(outcome.nodes_used, (2, 2));
}

/// The recorded scheduler evicted a pod for another one; whether that happens is up to the core of the model.
#[test]
fn evictions_are_those_of_the_model() {
    let low = || pod("low").request("cpu", "2").priority(0);
    let high = |name: &str| pod(name).request("cpu", "2").priority(100);
    let uid = low().build().metadata.uid;
    let recorded = vec![
        applied(low()),
        applied(low().version(2).on("a")),
        applied(high("high")),
        Entry::Called(
            CallId(9),
            format!("delete pods/default/low ({uid}) DisruptionTarget=True"),
        ),
        Entry::Delete(Object::Pod(low().version(3).on("a").arc())),
    ];
    // The other node has room, so the core of the model evicts nothing.
    let outcome = modelled(spread(), recorded);
    assert_eq!((outcome.placed(), outcome.evicted()), (2, 0));

    // There is no room, so one pod of low priority is evicted.
    let outcome = modelled(
        spread(),
        vec![
            applied(low()),
            applied(high("one")),
            applied(high("two")),
            Entry::Tick,
            Entry::Tick,
        ],
    );
    assert_eq!((outcome.placed(), outcome.evicted()), (2, 1));
}

#[test]
fn a_pod_waits_for_its_gate_and_for_room() {
    let gated = || web("gated").gate("example.com/gate");
    let full = || pod("full").request("cpu", "2");
    let outcome = modelled(
        spread(),
        vec![
            applied(gated()),
            applied(full()),
            applied(pod("second").request("cpu", "2")),
            Entry::Tick,
            applied(gated().version(2).ungated()),
            Entry::Delete(Object::Pod(full().arc())),
            Entry::Tick,
            Entry::Tick,
        ],
    );
    let gated = outcome.pods.values().find(|end| end.pod == "default/gated");
    let gated = gated.expect("the pod");
    assert!(!gated.node.is_empty(), "{gated:?}");
    assert!(gated.waited_ms >= 4_000, "{gated:?}");
}
