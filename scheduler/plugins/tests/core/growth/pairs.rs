//! Pairs of lists: the work of the scheduler for two long lists at once is the sum of the work for each of them.
//!
//! The **interaction** of two lists is the work with both long, less the work with each of them long, plus the work
//! with both short. Work done for each item of a list cancels out, whatever its amount; a product of both lists does
//! not. Short lists have half as many items as long ones, not one: a single item can fit where several do not, and then
//! the attempt ends elsewhere, which is no product.
//!
//! The interaction of two sets of lists is the sum over all pairs. A pod that is rejected hides the plugins that
//! follow, so that lists that reject a pod are measured individually.

use super::lists::{List, NAME, lists_of};
use super::{settle, world};
use berth_api::{Kind, Object, Str};
use berth_framework::testing::{PodBuilder, node};
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

/// The items of short lists. Long ones have twice as many.
const SHORT: usize = 24;
/// The least interaction of a product, for each pair of items: a comparison reads both strings.
const READS_MIN: usize = 2;
/// Twice the items of both lists quadruple the interaction of a product.
const GROWTH_MIN: i64 = 3;
/// Sets of shared values grow now and then, which reads all of them. A growth is not repeated.
const REPETITIONS: usize = 3;
/// The number of divisions of the lists that reject no pod. A pair is found with a probability of 1 - 2⁻⁸.
const DIVISIONS: usize = 8;
/// The number of groups of these lists that are measured with other objects.
const GROUPS: usize = 4;
/// The seed of the divisions; a failure names the pair, so it need not be repeated.
const SEED: u64 = 44;
/// The number of the first item of the second set of lists. Equal names would be counted once, which hides products.
const OTHER_ITEMS: usize = 10_000;

type Lists<'l> = Vec<&'l List>;

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

fn pod_of(json: &Value) -> PodBuilder {
    PodBuilder::of(decoded(Kind::Pod, json).as_pod().expect("a pod"))
}

/// An object with all of these lists, each with this number of items.
fn object_with(lists: &[&List], first: usize, items: usize, name: &str) -> Value {
    let lists = lists.iter();
    let parts = lists.map(|list| list.json(first..first + items, name));
    parts.reduce(merged).expect("a list")
}

/// The objects with the second set of lists.
#[derive(Clone, Copy)]
enum Second {
    /// The pod itself.
    Pod,
    /// An object of a kind that the pod refers to, or the node.
    Object(Kind),
    /// A pod on a node.
    Placed,
}

/// A cluster with room for the requests of long lists.
fn roomy_world() -> Driver {
    let mut w = world();
    for name in ["n1", "n2", "n3"] {
        let host = node(name).label("kubernetes.io/hostname", name);
        w.node(host.capacity("100000", "100000Gi", "110"));
    }
    w
}

/// The work for a pod with lists until it is bound or waits, for the change of a node, and for its deletion. Returns also
/// whether the pod was bound.
fn work(first: (&[&List], usize), second: (&[&List], usize), at: Second) -> (i64, bool) {
    let mut pod = object_with(first.0, 0, first.1, NAME);
    let other = |name: &str| object_with(second.0, OTHER_ITEMS, second.1, name);
    let mut w = roomy_world();
    let began = Str::reads();
    match at {
        Second::Pod if second.0.is_empty() => {}
        Second::Pod => pod = merged(pod, other(NAME)),
        Second::Object(Kind::Node) => {
            let room = json!({"cpu": "100000", "memory": "100000Gi", "pods": "110"});
            let node = merged(other("n1"), json!({"status": {"allocatable": room}}));
            w.applied(decoded(Kind::Node, &node));
        }
        Second::Object(kind) => _ = w.applied(decoded(kind, &other(NAME))),
        Second::Placed => {
            w.pod(pod_of(&other("placed")).on("n1"));
        }
    }
    w.pod(pod_of(&pod));
    settle(&mut w);
    let is_bound = w.pods.get(NAME).is_some_and(|pod| pod.is_assigned());
    w.wait(20);
    let host = node("n2").label("kubernetes.io/hostname", "n2");
    w.node(
        host.capacity("200000", "200000Gi", "220")
            .label("zone", "z"),
    );
    settle(&mut w);
    w.deleted(NAME);
    settle(&mut w);
    let reads = i64::try_from(Str::reads() - began).unwrap_or(i64::MAX);
    (reads, is_bound)
}

/// The interaction of two sets of lists whose short lists have this number of items.
fn interaction(first: &[&List], second: &[&List], at: Second, short: usize) -> i64 {
    let reads = |items: usize, others: usize| work((first, items), (second, others), at).0;
    let long = 2 * short;
    reads(long, long) - reads(long, short) - reads(short, long) + reads(short, short)
}

fn is_product(first: &[&List], second: &[&List], at: Second) -> bool {
    let least = |short: usize| i64::try_from(READS_MIN * short * short).unwrap_or(i64::MAX);
    let measured = |short: usize| interaction(first, second, at, short);
    // Most pairs need no second look.
    let few = measured(SHORT);
    if few < least(SHORT) {
        return false;
    }
    (0..REPETITIONS).all(|_| {
        let (few, many) = (measured(SHORT), measured(2 * SHORT));
        few >= least(SHORT) && many >= least(2 * SHORT) && many >= GROWTH_MIN * few
    })
}

/// A pair of lists, one of each set, with the interaction of a product.
fn pair(mut first: Lists<'_>, mut second: Lists<'_>, at: Second) -> Option<String> {
    if first.is_empty() || second.is_empty() || !is_product(&first, &second, at) {
        return None;
    }
    for _ in 0..64 {
        let halves = |lists: &Lists<'_>| lists.len() / 2;
        if first.len() > 1 {
            let later = first.split_off(halves(&first));
            if !is_product(&first, &second, at) {
                first = later;
            }
        } else if second.len() > 1 {
            let later = second.split_off(halves(&second));
            if !is_product(&first, &second, at) {
                second = later;
            }
        }
    }
    let names = |lists: &Lists<'_>| lists.first().map(ToString::to_string).unwrap_or_default();
    Some(format!("{} with {}", names(&first), names(&second)))
}

/// The lists of a kind that are long in this test: each once, with the first alternative of its items.
fn plain(all: &[List]) -> Lists<'_> {
    let mut plain: Lists<'_> = Vec::new();
    for list in all.iter().filter(|list| !list.are_equal) {
        if !plain.iter().any(|known| known.is_at_place_of(list)) {
            plain.push(list);
        }
    }
    plain
}

/// The lists of a pod: lists with which it is bound, and lists with which it is rejected.
fn divided<'l>(lists: &[&'l List]) -> (Lists<'l>, Lists<'l>) {
    let is_bound = |lists: &[&List]| work((lists, SHORT), (&[], 0), Second::Pod).1;
    let (bound, rejected): (Lists<'l>, Lists<'l>) =
        lists.iter().partition(|list| is_bound(&[**list]));
    assert!(bound.len() > 50, "{} lists", bound.len());
    assert!(is_bound(&bound), "a pod with all lists is rejected");
    (bound, rejected)
}

/// A list of a pod with each of its other lists: a node selector with the terms of an affinity.
#[test]
fn lists_of_a_pod_do_not_multiply_with_each_other() {
    let all = lists_of(Kind::Pod);
    let (bound, rejected) = divided(&plain(&all));
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut found = Vec::new();
    for _ in 0..DIVISIONS {
        let (first, second): (Lists<'_>, Lists<'_>) =
            bound.iter().copied().partition(|_| random.bool());
        found.extend(pair(first, second, Second::Pod));
    }
    for (at, list) in rejected.iter().enumerate() {
        found.extend(pair(vec![list], bound.clone(), Second::Pod));
        for other in &rejected[at + 1..] {
            found.extend(pair(vec![list], vec![other], Second::Pod));
        }
    }
    found.sort();
    found.dedup();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A list of a pod with the lists of a node, a claim, a class, a pod on a node: tolerations with taints.
#[test]
fn lists_of_a_pod_do_not_multiply_with_those_of_other_objects() {
    let all = lists_of(Kind::Pod);
    let (mut bound, rejected) = divided(&plain(&all));
    fastrand::Rng::with_seed(SEED).shuffle(&mut bound);
    let groups = bound.chunks(bound.len().div_ceil(GROUPS));
    let mut groups: Vec<Lists<'_>> = groups.map(<[_]>::to_vec).collect();
    groups.extend(rejected.into_iter().map(|list| vec![list]));
    let mut found = Vec::new();
    for kind in Kind::ALL.iter().copied() {
        let of_kind = lists_of(kind);
        let others = plain(&of_kind);
        if others.is_empty() {
            continue;
        }
        let at = match kind {
            Kind::Pod => Second::Placed,
            kind => Second::Object(kind),
        };
        for group in &groups {
            found.extend(pair(group.clone(), others.clone(), at));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
