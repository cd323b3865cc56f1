//! The rules C-6 to C-8 and the effective pod.

use super::*;
use berth_api::Time;
use berth_framework::ApiCall;
use berth_framework::call::PodRef;
use berth_framework::testing::{node, pod};

fn cache() -> Cache {
    let mut cache = Cache::default();
    cache.set_node(node("n1").arc());
    cache.set_node(node("n2").arc());
    cache
}

fn on(cache: &Cache, node: &str) -> Vec<String> {
    let view = cache.cluster().nodes.node(node);
    let mut names: Vec<String> = view
        .into_iter()
        .flat_map(|v| v.pods())
        .map(|p| p.pod.name().to_string())
        .collect();
    names.sort();
    names
}

/// C-6, C-7: a late update changes nothing, and an update with the binding confirms the assumed pod.
#[test]
fn an_assumed_pod_counts_until_it_is_confirmed_or_forgotten() {
    let mut cache = cache();
    let p = pod("p").arc();
    cache.set_pod(p.clone(), Writes::default());
    cache.assume(&p, &"n1".into()).unwrap();
    assert_eq!(
        (on(&cache, "n1"), cache.assumed_pods()),
        (vec!["p".to_owned()], 1)
    );
    assert!(cache.effective("uid-p").unwrap().is_assigned());
    assert!(!cache.stored("uid-p").unwrap().is_assigned());

    // An update without the binding changes nothing.
    cache.set_pod(pod("p").version(2).label("a", "b").arc(), Writes::default());
    assert!(cache.is_assumed("uid-p"));
    cache.set_pod(pod("p").version(3).on("n1").arc(), Writes::default());
    assert!(!cache.is_assumed("uid-p"));
    assert_eq!(on(&cache, "n1"), ["p"]);
    assert_eq!(
        cache.forget("uid-p", &"n1".into()).unwrap_err().to_string(),
        "pod uid-p(default/p) wasn't assumed so cannot be forgotten"
    );
    cache.check().unwrap();
}

/// C-7: the answer to a binding confirms the pod before the watch shows it. Earlier versions of the pod change nothing;
/// from the version of the answer on, the API decides.
#[test]
fn the_answer_to_a_binding_confirms_an_assumed_pod() {
    let mut cache = cache();
    let p = pod("p").version(2).arc();
    cache.set_pod(p.clone(), Writes::default());
    cache.assume(&p, &"n1".into()).unwrap();
    cache.confirm("uid-p", 5);
    assert_eq!(cache.assumed_pods(), 0);
    assert!(
        cache.is_assumed("uid-p"),
        "the stored object does not show the node"
    );
    cache.check().unwrap();
    // Late versions from before the binding.
    for version in [3, 4] {
        cache.set_pod(
            pod("p").version(version).label("a", "b").arc(),
            Writes::default(),
        );
        assert_eq!(on(&cache, "n1"), ["p"], "version {version}");
        assert!(cache.effective("uid-p").unwrap().is_assigned());
    }
    // The version of the answer, or a later one.
    let mut bound = Cache::default();
    std::mem::swap(&mut bound, &mut cache);
    bound.set_pod(pod("p").version(6).on("n1").arc(), Writes::default());
    assert!(!bound.is_assumed("uid-p"));
    assert_eq!(on(&bound, "n1"), ["p"]);
    bound.check().unwrap();

    // A version in which the binding was undone.
    let mut cache = self::cache();
    cache.set_pod(p.clone(), Writes::default());
    cache.assume(&p, &"n1".into()).unwrap();
    cache.confirm("uid-p", 5);
    cache.set_pod(pod("p").version(6).arc(), Writes::default());
    assert_eq!((on(&cache, "n1"), cache.assumed_pods()), (vec![], 0));
    assert!(!cache.effective("uid-p").unwrap().is_assigned());
    cache.check().unwrap();

    // A pod that is deleted before the watch shows its binding is forgotten like an assumed one.
    cache.assume(&p, &"n2".into()).unwrap();
    cache.confirm("uid-p", 7);
    cache.remove_pod("uid-p");
    assert_eq!(on(&cache, "n2"), ["p"]);
    assert!(cache.forget("uid-p", &"n2".into()).unwrap().is_some());
    assert_eq!((on(&cache, "n2"), cache.assumed_pods()), (vec![], 0));
    cache.check().unwrap();
}

/// C-6: choices of a plugin, such as devices, stay in the labels of the counted pod until it is bound.
#[test]
fn an_assumed_pod_counts_with_the_edits_of_plugins_after_each_update() {
    let labels = |cache: &Cache| {
        let view = cache.cluster().nodes.node("n1").unwrap();
        let labels = view.pods().iter().map(|p| {
            let value = |key| p.pod.labels().get(key).unwrap_or("-").to_owned();
            [value("gpu"), value("slot"), value("a")].join(" ")
        });
        labels.collect::<Vec<String>>()
    };
    let edit = |key: &'static str| {
        PodEdit::new(move |pod| {
            pod.metadata.labels = pod.metadata.labels.with(key, &Str::from("0"));
        })
    };
    let mut cache = cache();
    let p = pod("p").version(1).arc();
    cache.set_pod(p.clone(), Writes::default());
    cache.count_with(p.uid(), edit("gpu"));
    cache.assume(&p, &"n1".into()).unwrap();
    assert_eq!(labels(&cache), ["- - -"], "not assumed yet");
    cache.count_with(p.uid(), edit("gpu"));
    cache.count_with(p.uid(), edit("slot"));
    assert_eq!(labels(&cache), ["0 0 -"], "the edits of two plugins");
    cache.set_pod(pod("p").version(2).label("a", "b").arc(), Writes::default());
    assert_eq!(labels(&cache), ["0 0 b"], "an update of the labels");
    cache.confirm("uid-p", 4);
    cache.set_pod(pod("p").version(3).label("a", "c").arc(), Writes::default());
    assert_eq!(
        labels(&cache),
        ["0 0 c"],
        "an update from before the binding"
    );
    cache.check().unwrap();
    cache.set_pod(pod("p").version(4).on("n1").arc(), Writes::default());
    assert_eq!(
        labels(&cache),
        ["- - -"],
        "the API decides once the pod is bound"
    );
    cache.check().unwrap();
    // The edits end with the assumption.
    let q = pod("q").version(5).arc();
    cache.remove_pod("uid-p");
    cache.set_pod(q.clone(), Writes::default());
    for _ in 0..2 {
        cache.assume(&q, &"n1".into()).unwrap();
        assert_eq!(labels(&cache), ["- - -"]);
        cache.count_with(q.uid(), edit("gpu"));
        assert_eq!(labels(&cache), ["0 - -"]);
        cache.forget("uid-q", &"n1".into()).unwrap();
        cache.check().unwrap();
    }
}

/// C-6, C-7, edge case 184.
#[test]
fn the_api_decides_where_a_pod_is() {
    let mut cache = cache();
    let p = pod("p").arc();
    cache.set_pod(p.clone(), Writes::default());
    cache.assume(&p, &"n1".into()).unwrap();
    cache.set_pod(pod("p").version(2).on("n2").arc(), Writes::default());
    assert_eq!(
        (on(&cache, "n1"), on(&cache, "n2")),
        (vec![], vec!["p".to_owned()])
    );
    assert_eq!(
        cache.forget("uid-p", &"n1".into()).unwrap_err().to_string(),
        "pod uid-p(default/p) was assumed on n1 but assigned to n2"
    );
    assert_eq!(cache.assumed_pods(), 0);
    cache.check().unwrap();
}

/// C-6.
#[test]
fn what_is_forgotten_is_free_again() {
    let mut cache = cache();
    let p = pod("p").request("cpu", "2").arc();
    cache.set_pod(p.clone(), Writes::default());
    cache.assume(&p, &"n1".into()).unwrap();
    assert_eq!(
        cache.assume(&p, &"n2".into()).unwrap_err().to_string(),
        "pod uid-p(default/p) is in the cache, so can't be assumed"
    );
    assert!(cache.forget("uid-p", &"n1".into()).unwrap().is_some());
    assert_eq!(cache.forget("uid-p", &"n1".into()), Ok(None));
    assert_eq!(cache.forget("unknown", &"n1".into()), Ok(None));
    let requested = cache
        .cluster()
        .nodes
        .node("n1")
        .unwrap()
        .requested_of("cpu");
    assert_eq!(requested, 0);
    assert!(!cache.effective("uid-p").unwrap().is_assigned());
    cache.check().unwrap();
}

/// C-6, edge case 229: a deletion during the binding leaves no state after the assumption is forgotten.
#[test]
fn a_deleted_pod_stays_counted_while_assumed() {
    let mut cache = cache();
    let p = pod("p").arc();
    cache.set_pod(p.clone(), Writes::default());
    cache.assume(&p, &"n1".into()).unwrap();
    assert!(cache.remove_pod("uid-p").is_some());
    assert_eq!(on(&cache, "n1"), ["p"]);
    assert!(cache.effective("uid-p").is_none());
    cache.forget("uid-p", &"n1".into()).unwrap();
    assert_eq!(on(&cache, "n1"), Vec::<String>::new());
    assert!(cache.known.is_empty());
    cache.check().unwrap();
}

/// C-8, edge case 196: the pods of a node that was deleted, or that is not known yet, are hidden.
#[test]
fn a_node_may_go_before_its_pods_and_come_after_them() {
    let mut cache = cache();
    cache.set_pod(pod("early").on("n3").arc(), Writes::default());
    cache.set_node(node("n3").arc());
    assert_eq!(on(&cache, "n3"), ["early"]);
    cache.remove_node("n3");
    assert_eq!(cache.cluster().nodes.len(), 2);
    cache.set_node(node("n3").arc());
    assert_eq!(on(&cache, "n3"), ["early"]);
    cache.remove_node("n3");
    cache.remove_pod("uid-early");
    cache.set_node(node("n3").arc());
    assert_eq!(on(&cache, "n3"), Vec::<String>::new());
    cache.check().unwrap();
}

/// C-7: the cache accepts every state of a pod as it is: a repeated update, an update of an unknown pod, and a change
/// of the node.
#[test]
fn whatever_the_api_states_of_a_pod_counts() {
    let mut cache = cache();
    let bound = |version: u64, node: &str| pod("p").version(version).on(node).arc();
    for (situation, stated, counted) in [
        (
            "an update of a pod that was never reported",
            Some(bound(1, "n1")),
            ["p", ""],
        ),
        ("the same again", Some(bound(1, "n1")), ["p", ""]),
        ("on another node", Some(bound(2, "n2")), ["", "p"]),
        ("gone", None, ["", ""]),
        ("gone once more", None, ["", ""]),
    ] {
        match stated {
            Some(pod) => drop(cache.set_pod(pod, Writes::default())),
            None => drop(cache.remove_pod("uid-p")),
        }
        let there = ["n1", "n2"].map(|node| on(&cache, node).join(" "));
        assert_eq!(there, counted, "{situation}");
        cache.check().unwrap();
    }
}

/// C-6: assumptions do not expire.
#[test]
fn an_assumed_pod_never_expires() {
    let mut cache = cache();
    let p = pod("p").arc();
    cache.set_pod(p.clone(), Writes::default());
    cache.assume(&p, &"n1".into()).unwrap();
    for version in 2..100 {
        cache.set_pod(pod("p").version(version).arc(), Writes::default());
        cache.set_node(node("n1").version(version).arc());
    }
    assert_eq!(
        (on(&cache, "n1"), cache.assumed_pods()),
        (vec!["p".to_owned()], 1)
    );
    assert_eq!(
        cache.forget("uid-p", &"n2".into()).unwrap_err().to_string(),
        "pod uid-p(default/p) was assumed on n2 but assigned to n1"
    );
}

#[test]
fn our_writes_are_seen_before_the_api_shows_them() {
    let mut writes = Writes::default();
    let nominate = ApiCall::PatchPodStatus {
        pod: PodRef::of(&pod("p").build()),
        conditions: Vec::new(),
        nominated_node: Some("n1".into()),
    };
    writes.note(&nominate, Time::from_secs(100));
    let seen = |cache: &Cache| {
        let pod = cache.effective("uid-p").unwrap();
        pod.status.nominated_node_name.to_string()
    };

    let mut cache = cache();
    cache.set_pod(pod("p").arc(), Writes::default());
    cache.set_writes("uid-p", writes.clone());
    assert_eq!(seen(&cache), "n1");
    let change = cache.set_pod(pod("p").version(2).arc(), writes.clone());
    assert_eq!(
        seen(&cache),
        "n1",
        "an update that came too early to show it"
    );
    assert!(
        change
            .old
            .is_some_and(|old| old.status.nominated_node_name == "n1")
    );
    cache.set_writes("uid-p", Writes::default());
    assert_eq!(seen(&cache), "", "a failed write never happened");
    let stored = cache.stored("uid-p").unwrap();
    assert!(stored.status.nominated_node_name.is_empty());
    cache.set_writes("uid-unknown", writes);
    cache.check().unwrap();
}
