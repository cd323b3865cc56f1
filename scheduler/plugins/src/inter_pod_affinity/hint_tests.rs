//! The events that may help a pod that InterPodAffinity rejected.

use super::tests::{far, labelled, near, term};
use super::*;
use crate::testing::{World, add, delete, hint, node, pod, update};
use berth_framework::event::Hint;
use serde_json::{Value, json};

/// PL-89: pods.
#[test]
fn pods_that_help() {
    let bound = |app: &str| labelled("o", app, json!({"nodeName": "n"}));
    let pending = |app: &str| labelled("o", app, json!({}));
    let wants = || labelled("p", "web", near(json!([term("cache", "zone")])));
    let avoids = || labelled("p", "web", far(json!([term("db", "zone")])));
    let avoids_two = || {
        labelled(
            "p",
            "web",
            far(json!([term("db", "zone"), term("mq", "zone")])),
        )
    };
    let guard = |app: &str| {
        let mut spec = far(json!([term(app, "zone")]));
        spec["nodeName"] = json!("n");
        labelled("o", "guard", spec)
    };
    let label = ActionType::UPDATE_POD_LABEL;
    for (name, waiting, action, change, expected) in [
        (
            "a wanted pod comes",
            wants(),
            ActionType::ADD,
            add(bound("cache")),
            Hint::Queue,
        ),
        (
            "another comes",
            wants(),
            ActionType::ADD,
            add(bound("db")),
            Hint::Skip,
        ),
        (
            "a wanted pod without a node",
            wants(),
            ActionType::ADD,
            add(pending("cache")),
            Hint::Skip,
        ),
        (
            "a pod becomes the wanted one",
            wants(),
            label,
            update(bound("db"), bound("cache")),
            Hint::Queue,
        ),
        (
            "it was already",
            wants(),
            label,
            update(bound("cache"), bound("cache")),
            Hint::Skip,
        ),
        (
            "an unwanted pod goes",
            avoids(),
            ActionType::DELETE,
            delete(bound("db")),
            Hint::Queue,
        ),
        (
            "an unwanted pod becomes another",
            avoids(),
            label,
            update(bound("db"), bound("mq")),
            Hint::Queue,
        ),
        (
            "an unwanted pod comes",
            avoids(),
            ActionType::ADD,
            add(bound("db")),
            Hint::Skip,
        ),
        // As in upstream: the deleted pod must match every term.
        (
            "one of two unwanted goes",
            avoids_two(),
            ActionType::DELETE,
            delete(bound("db")),
            Hint::Skip,
        ),
        (
            "a pod that did not want this one goes",
            labelled("p", "web", json!({})),
            ActionType::DELETE,
            delete(guard("web")),
            Hint::Queue,
        ),
        (
            "a pod that did not want another goes",
            labelled("p", "web", json!({})),
            ActionType::DELETE,
            delete(guard("db")),
            Hint::Skip,
        ),
        // As in upstream: every term of the deleted pod must match this pod.
        (
            "a pod that did not want this one and another goes",
            labelled("p", "web", json!({})),
            ActionType::DELETE,
            delete({
                let mut spec = far(json!([term("web", "zone"), term("db", "zone")]));
                spec["nodeName"] = json!("n");
                labelled("o", "guard", spec)
            }),
            Hint::Skip,
        ),
        (
            "a wanted pod that is nominated comes",
            wants(),
            ActionType::ADD,
            add({
                let mut pod = pending("cache");
                pod.status.nominated_node_name = "n".into();
                pod
            }),
            Hint::Queue,
        ),
        (
            "an unwanted pod without a node goes",
            avoids(),
            ActionType::DELETE,
            delete(pending("db")),
            Hint::Skip,
        ),
        (
            "a pod that got its node with the wanted label",
            wants(),
            label,
            update(pending("db"), bound("cache")),
            Hint::Skip,
        ),
        (
            "a wanted pod goes",
            wants(),
            ActionType::DELETE,
            delete(bound("cache")),
            Hint::Skip,
        ),
        (
            "the pod's own labels",
            wants(),
            label,
            update(wants(), labelled("p", "cache", json!({}))),
            Hint::Queue,
        ),
    ] {
        let got = hint(
            InterPodAffinity::default(),
            &World::new(),
            EventResource::Pod,
            action,
            &waiting,
            change,
        );
        assert_eq!(got, Ok(expected), "{name}");
    }
}

/// PL-90: nodes.
#[test]
fn nodes_that_help() {
    let zone = |labels: Value| node("n", json!({"metadata": {"labels": labels}}));
    let a = || zone(json!({"zone": "a"}));
    let b = || zone(json!({"zone": "b"}));
    let none = || zone(json!({}));
    let wants = || labelled("p", "web", near(json!([term("cache", "zone")])));
    let avoids = || labelled("p", "web", far(json!([term("db", "zone")])));
    let label = ActionType::UPDATE_NODE_LABEL;
    for (name, waiting, action, change, expected) in [
        (
            "affinity, new with the key",
            wants(),
            ActionType::ADD,
            add(a()),
            Hint::Queue,
        ),
        (
            "affinity, new without the key",
            wants(),
            ActionType::ADD,
            add(none()),
            Hint::Skip,
        ),
        (
            "affinity, key appears",
            wants(),
            label,
            update(none(), a()),
            Hint::Queue,
        ),
        (
            "affinity, other value",
            wants(),
            label,
            update(a(), b()),
            Hint::Queue,
        ),
        (
            "affinity, key goes",
            wants(),
            label,
            update(a(), none()),
            Hint::Skip,
        ),
        (
            "affinity, the same",
            wants(),
            label,
            update(a(), a()),
            Hint::Skip,
        ),
        (
            "anti-affinity, new",
            avoids(),
            ActionType::ADD,
            add(none()),
            Hint::Queue,
        ),
        (
            "anti-affinity, key goes",
            avoids(),
            label,
            update(a(), none()),
            Hint::Queue,
        ),
        (
            "anti-affinity, other value",
            avoids(),
            label,
            update(a(), b()),
            Hint::Queue,
        ),
        (
            "anti-affinity, key appears",
            avoids(),
            label,
            update(none(), a()),
            Hint::Skip,
        ),
        (
            "no terms",
            pod("p", json!({})),
            ActionType::ADD,
            add(a()),
            Hint::Skip,
        ),
    ] {
        let got = hint(
            InterPodAffinity::default(),
            &World::new(),
            EventResource::Node,
            action,
            &waiting,
            change,
        );
        assert_eq!(got, Ok(expected), "{name}");
    }
}

/// PL-89: since 1.37, a pod that ceases to match one of several anti-affinity terms queues.
#[test]
fn a_pod_that_matched_one_of_several_terms_helps_since_1_37() {
    let bound = |app: &str| labelled("o", app, json!({"nodeName": "n"}));
    let avoids = |first: &str, second: &str| {
        let terms = json!([term(first, "kubernetes.io/hostname"), term(second, "zone")]);
        labelled("p", "web", far(terms))
    };
    let guard = || {
        let mut spec = far(json!([term("web", "zone"), term("db", "zone")]));
        spec["nodeName"] = json!("n");
        labelled("o", "guard", spec)
    };
    let wants = || {
        labelled(
            "p",
            "web",
            near(json!([term("a", "zone"), term("b", "zone")])),
        )
    };
    let label = ActionType::UPDATE_POD_LABEL;
    for (name, waiting, action, change, since_1_37) in [
        (
            "deleted",
            avoids("a", "b"),
            ActionType::DELETE,
            (bound("a"), None),
            Hint::Queue,
        ),
        (
            "deleted, the second term",
            avoids("a", "b"),
            ActionType::DELETE,
            (bound("b"), None),
            Hint::Queue,
        ),
        (
            "deleted, no term",
            avoids("a", "b"),
            ActionType::DELETE,
            (bound("c"), None),
            Hint::Skip,
        ),
        (
            "relabelled",
            avoids("a", "b"),
            label,
            (bound("a"), Some(bound("c"))),
            Hint::Queue,
        ),
        // It still matches a term.
        (
            "relabelled to the other term",
            avoids("a", "b"),
            label,
            (bound("a"), Some(bound("b"))),
            Hint::Skip,
        ),
        (
            "the deleted pod's own terms",
            labelled("p", "web", json!({})),
            ActionType::DELETE,
            (guard(), None),
            Hint::Queue,
        ),
        // Affinity needs all terms in every release.
        (
            "affinity",
            wants(),
            label,
            (bound("c"), Some(bound("a"))),
            Hint::Skip,
        ),
    ] {
        for release in berth_api::Release::ALL {
            let mut world = World::new();
            world.features = FeatureGates::of(release);
            let changed = match change.clone() {
                (old, None) => delete(old),
                (old, Some(new)) => update(old, new),
            };
            let plugin = InterPodAffinity::default();
            let got = hint(
                plugin,
                &world,
                EventResource::Pod,
                action,
                &waiting,
                changed,
            );
            let expected = match release {
                berth_api::Release::V1_36 => Hint::Skip,
                _ => since_1_37,
            };
            assert_eq!(got, Ok(expected), "{name} in {release}");
        }
    }
}
