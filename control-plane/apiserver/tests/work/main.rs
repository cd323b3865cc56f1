//! The work of requests: twice the entries of a list are at most twice the work, or little more for sorting.
//!
//! The lists are derived from the facts about Kubernetes' types: each list and each map of every served kind. Work is
//! counted: fields that are read, allocations, and allocated bytes. The complete request is counted, from its bytes to
//! the bytes of its answer: requests run on the thread of the test.

// Tests of the edge open files and sockets.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod custom;
mod lists;
mod objects;
mod pairs;
mod requests;
mod samples;

use requests::{Tester, Work};
use std::collections::BTreeSet;

/// The compared numbers of entries. Some lists of some kinds allow only 16, 32 or 64 entries: they are admitted with
/// one entry, and refused with more.
const SIZES: [usize; 4] = [1, 50, 100, 200];
/// The growth from 100 to 200 entries is at most this part of the growth before, in percent: 200 is linear, and sorting
/// takes 230.
const GROWTH_PERCENT_MAX: usize = 250;
/// Growth that is not a fault: buffers that grow in steps, and one-time work. The square of 200 is 40,000.
const SLACK: Work = Work {
    reads: 1_000,
    allocations: 1_000,
    bytes: 300_000,
};
/// The number of measurements before a fault is reported.
const ATTEMPTS_MAX: usize = 3;
/// The minimum share of places, in percent, that are measured with admitted objects.
const ADMITTED_PERCENT_MIN: usize = 50;
/// Some lists that are long in valid objects.
const ADMITTED: [&str; 22] = [
    "v1 configmaps data",
    "v1 nodes spec.taints",
    "v1 nodes status.images",
    "v1 pods metadata.labels",
    "v1 pods metadata.managedFields",
    "v1 pods metadata.ownerReferences",
    "v1 pods spec.containers",
    "v1 pods spec.containers.env",
    "v1 pods spec.containers.ports",
    "v1 pods spec.containers.resources.claims",
    "v1 pods spec.containers.resources.requests",
    "v1 pods spec.containers.volumeDevices",
    "v1 pods spec.containers.volumeMounts",
    "v1 pods spec.imagePullSecrets",
    "v1 pods spec.resourceClaims",
    "v1 pods spec.schedulingGates",
    "v1 pods spec.tolerations",
    "v1 pods spec.topologySpreadConstraints",
    "v1 pods spec.volumes",
    "v1 pods status.conditions",
    "v1 pods status.containerStatuses",
    "v1 services spec.ports",
];

/// A sort of work, and its count.
type WorkCount = (&'static str, fn(&Work) -> usize);

const COUNTS: [WorkCount; 3] = [
    ("fields read", |w| w.reads),
    ("allocations", |w| w.allocations),
    ("bytes allocated", |w| w.bytes),
];

/// The requests whose work grows faster than the list.
fn faults(name: &str, work: &[Vec<(&'static str, Work)>; 4]) -> Vec<String> {
    let mut faults = Vec::new();
    for (request, _) in &work[3] {
        let of_size = |work: &Vec<(&'static str, Work)>| {
            let found = work.iter().find(|(known, _)| known == request);
            found.map(|(_, work)| *work)
        };
        // A request without a smaller counterpart cannot be compared.
        let [Some(one), Some(small), Some(medium), Some(large)] =
            [0, 1, 2, 3].map(|i| of_size(&work[i]))
        else {
            continue;
        };
        for (what, count) in COUNTS {
            let growth = |before: &Work, after: &Work| count(after).saturating_sub(count(before));
            // An object that is admitted with 50 entries may be refused with 100, which takes less.
            let first = growth(&small, &medium).max(growth(&one, &small));
            let second = growth(&medium, &large);
            if second > first * GROWTH_PERCENT_MAX / 100 + count(&SLACK) {
                let counts = [one, small, medium, large].map(|work| count(&work));
                faults.push(format!("{name}: {request}: {counts:?} {what}"));
            }
        }
    }
    faults
}

#[test]
fn twice_the_entries_of_a_list_are_twice_the_work() {
    let mut tester = Tester::new();
    let (mut found, mut admitted) = (Vec::new(), BTreeSet::new());
    let places = lists::all();
    for place in &places {
        let mut of_place = Vec::new();
        // The state that the server keeps of an object, such as its tree, depends on other threads: only a repeated
        // fault counts.
        for _ in 0..ATTEMPTS_MAX {
            let mut is_admitted = false;
            let work = SIZES.map(|count| {
                let (work, refusal) = tester.measure(place, count);
                is_admitted = refusal.is_none();
                work
            });
            if is_admitted {
                admitted.insert(place.name());
            }
            of_place = faults(&place.name(), &work);
            if of_place.is_empty() {
                break;
            }
        }
        found.extend(of_place);
    }
    assert_eq!(found, [""; 0]);
    let refused: Vec<&str> = ADMITTED
        .into_iter()
        .filter(|name| !admitted.contains(*name))
        .collect();
    assert_eq!(refused, [""; 0], "refused");
    let percent = admitted.len() * 100 / places.len();
    assert!(
        percent >= ADMITTED_PERCENT_MIN,
        "{} of {} places",
        admitted.len(),
        places.len()
    );
}
