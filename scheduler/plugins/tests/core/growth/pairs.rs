//! Pairs of lists: the work of the scheduler for two lists that are long at once is the work for each of them.
//!
//! The **interaction** of two lists is the work with both long, less the work with each of them long, plus the work with
//! neither. What is done for each item of a list is not part of it, however much that is; a product of both lists is.

use super::lists::{List, NAME, lists_of};
use super::{settle, world};
use berth_api::{Kind, Object, Str};
use berth_framework::testing::PodBuilder;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

/// Items of long lists. The interaction of a product is four times as much at the second size.
const SIZES: [usize; 2] = [24, 48];
/// The interaction of a product at the second size is half the product or more, and a multiple of the interaction at the
/// first size. Twice is linear.
const READS_MIN: i64 = 1_152;
const GROWTH_MIN: i64 = 3;

/// Both objects in one: lists have the items of both, item by item.
fn merged(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(mut one), Value::Object(other)) => {
            for (name, value) in other {
                let value = match one.remove(&name) {
                    Some(own) => merged(own, value),
                    None => value,
                };
                one.insert(name, value);
            }
            Value::Object(one)
        }
        (Value::Array(one), Value::Array(other)) => {
            let (mut one, mut other) = (one.into_iter(), other.into_iter());
            let mut both = Vec::new();
            loop {
                both.push(match (one.next(), other.next()) {
                    (Some(own), Some(value)) => merged(own, value),
                    (Some(item), None) | (None, Some(item)) => item,
                    (None, None) => break Value::Array(both),
                });
            }
        }
        (one, _) => one,
    }
}

fn decoded(kind: Kind, json: &Value) -> Object {
    let object = kind.decode(json.to_string().as_bytes());
    object.unwrap_or_else(|error| panic!("{kind:?}: {error}"))
}

/// The JSON of an object with the list.
fn json_of(list: &List, items: usize, name: &str) -> Value {
    list.json(0..items, name)
}

/// An object with all of these lists, each with so many items.
fn object_with(lists: &[&List], items: usize, name: &str) -> Value {
    let parts = lists.iter().map(|list| json_of(list, items, name));
    parts.reduce(merged).expect("a list")
}

/// What is around the pod.
#[derive(Clone, Copy)]
enum Around<'l> {
    /// An object of a kind with all of its lists.
    Object(Kind, &'l [&'l List]),
    /// A pod on a node with all lists.
    Placed(&'l [&'l List]),
}

/// Shows a pod with a list, and what is around it, and deletes it.
fn show(w: &mut Driver, list: &List, items: usize, around: Around<'_>, others: usize) {
    let pod = json_of(list, items, NAME);
    match around {
        Around::Object(kind, lists) => {
            let name = if kind == Kind::Node { "n1" } else { NAME };
            let mut object = object_with(lists, others, name);
            if kind == Kind::Node {
                let room = json!({"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}});
                object = merged(object, json!({"status": room}));
            }
            w.applied(decoded(kind, &object));
        }
        Around::Placed(lists) => {
            let placed = object_with(lists, others, "placed");
            let placed = decoded(Kind::Pod, &placed);
            w.pod(PodBuilder::of(placed.as_pod().expect("a pod")).on("n1"));
        }
    }
    let pod = decoded(Kind::Pod, &pod);
    w.pod(PodBuilder::of(pod.as_pod().expect("a pod")));
    settle(w);
    w.deleted(NAME);
    settle(w);
}

fn reads(list: &List, items: usize, around: Around<'_>, others: usize) -> i64 {
    let mut w = world();
    let began = Str::reads();
    show(&mut w, list, items, around, others);
    i64::try_from(Str::reads() - began).unwrap_or(i64::MAX)
}

/// Returns the interactions of a list with what is around its pod, if they are those of a product.
fn product(list: &List, around: Around<'_>) -> Option<[i64; 2]> {
    let interactions = SIZES.map(|n| {
        let alone = reads(list, n, around, 1) + reads(list, 1, around, n);
        reads(list, n, around, n) - alone + reads(list, 1, around, 1)
    });
    let [few, many] = interactions;
    (many >= READS_MIN && many >= GROWTH_MIN * few).then_some(interactions)
}

/// The lists of a kind that are long in this test: each once, with the first alternative of its items.
fn plain(all: &[List]) -> Vec<&List> {
    let mut plain: Vec<&List> = Vec::new();
    for list in all.iter().filter(|list| !list.are_equal) {
        if !plain.iter().any(|known| known.is_at_place_of(list)) {
            plain.push(list);
        }
    }
    plain
}

/// A list of a pod with the lists of a node, a claim, a class, a pod on a node: tolerations with taints. Pairs of lists of
/// one pod are not tested: a long list changes whether the pod fits, and with it the path of the attempt.
#[test]
fn lists_of_a_pod_do_not_multiply_with_those_of_other_objects() {
    let all = lists_of(Kind::Pod);
    let lists = plain(&all);
    let mut found = Vec::new();
    for kind in Kind::ALL.iter().copied() {
        let of_kind = lists_of(kind);
        let others = plain(&of_kind);
        if others.is_empty() {
            continue;
        }
        for list in &lists {
            let around = match kind {
                Kind::Pod => Around::Placed(&others),
                kind => Around::Object(kind, &others),
            };
            if let Some(reads) = product(list, around) {
                found.push(format!("{list} and {kind:?}: {reads:?} reads"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
