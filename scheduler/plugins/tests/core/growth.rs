//! The work of the scheduler for one object grows with the size of the object, not with its square: each list that the
//! scheduler reads is doubled twice.
//!
//! The measure is how often strings are read, which debug builds count. Lists consist of names: whatever compares each
//! item with each other one reads them.

mod lists;
mod pairs;

use crate::drivers::driver;
use berth_api::{Kind, Object, Str};
use berth_framework::testing::{PodBuilder, node, pod};
use berth_scheduler::testing::Driver;
use lists::{List, NAME, lists_of};
use serde_json::{Value, json};

/// The sizes of a list.
const SIZES: [usize; 2] = [250, 1_000];
/// The maximum growth of the work for four times the items: searches in sorted lists need a little more than four
/// times.
const GROWTH_MAX: u64 = 6;

/// CSI drivers, including drivers of in-tree volumes, with a limit on each node.
const DRIVERS: [&str; 6] = [
    "driver",
    "ebs.csi.aws.com",
    "pd.csi.storage.gke.io",
    "disk.csi.azure.com",
    "cinder.csi.openstack.org",
    "pxd.portworx.com",
];

fn world() -> Driver {
    let mut w = driver();
    for name in ["n1", "n2", "n3"] {
        let host = node(name)
            .capacity("8", "8Gi", "110")
            .label("kubernetes.io/hostname", name);
        // The image of equal items, and some of the others.
        w.node((0..50).fold(host.image("image:latest", 1), |node, image| {
            node.image(&format!("image-{image}:latest"), 1 << 30)
        }));
        let driver =
            |name: &str| json!({"name": name, "nodeID": "n", "allocatable": {"count": 5_000}});
        let drivers: Vec<Value> = DRIVERS.iter().copied().map(driver).collect();
        w.object(
            Kind::CsiNode,
            json!({"metadata": {"name": name}, "spec": {"drivers": drivers}}),
        );
    }
    w
}

/// Tries pods until none is left, and carries out the calls of the scheduler.
fn settle(w: &mut Driver) {
    for _ in 0..20 {
        let is_idle = w.attempt_named() == "idle";
        while !w.jobs.is_empty() {
            w.reply();
        }
        w.answer_all();
        if is_idle {
            return;
        }
    }
}

/// Creates and deletes a pod, and increases the capacity of a node.
fn disturb(w: &mut Driver) {
    w.pod(pod("o").request("cpu", "1").label("app", "web"));
    settle(w);
    assert!(w.pods["o"].is_assigned(), "an ordinary pod has no node");
    w.wait(20);
    w.deleted("o");
    settle(w);
    w.wait(20);
    w.node(node("n2").capacity("16", "16Gi", "220").label("zone", "z"));
    settle(w);
}

/// The pod with the list, without a node, and one with another list of this size on a node.
fn with_pod(w: &mut Driver, list: &List, items: usize) {
    let built = |object: &Object| PodBuilder::of(object.as_pod().expect("a pod"));
    let placed = list.object_with(items..2 * items, "placed");
    w.pod(built(&placed).on("n1"));
    w.pod(built(&list.object(items, NAME)));
    settle(w);
    disturb(w);
    w.change(NAME, |pod| pod.label("other", "label"));
    settle(w);
    w.deleted("placed");
    settle(w);
    w.wait(20);
    settle(w);
    w.deleted(NAME);
}

/// An object that pods refer to.
fn with_object(w: &mut Driver, object: &Object) {
    w.applied(object.clone());
    let claim = json!([{"name": "v", "persistentVolumeClaim": {"claimName": NAME}}]);
    w.pod(pod("volume").with(|pod| {
        pod.spec.volumes = serde_json::from_value(claim).expect("volumes");
    }));
    let claim = json!([{"name": "c", "resourceClaimName": NAME}]);
    w.pod(pod("device").with(|pod| {
        pod.spec.resource_claims = serde_json::from_value(claim).expect("claims");
    }));
    w.pod(pod("member").member_of(NAME));
    settle(w);
    disturb(w);
    w.applied(object.clone());
    settle(w);
    w.gone(object.clone());
    settle(w);
}

/// The number of reads, by the number of items in the list.
fn work(list: &List, items: usize) -> u64 {
    let mut w = world();
    if list.kind == Kind::Pod {
        let began = Str::reads();
        with_pod(&mut w, list, items);
        return Str::reads() - began;
    }
    let name = if list.kind == Kind::Node { "n1" } else { NAME };
    let object = list.object(items, name);
    let began = Str::reads();
    with_object(&mut w, &object);
    Str::reads() - began
}

/// An ordinary pod is bound in addition to each object; `disturb` checks that.
#[test]
fn work_grows_with_the_size_of_an_object() {
    let lists: Vec<List> = Kind::ALL.iter().flat_map(|kind| lists_of(*kind)).collect();
    assert!(lists.len() > 300, "{} lists", lists.len());
    let measured = |list: &List| {
        let [few, many] = SIZES.map(|items| work(list, items));
        (many > GROWTH_MAX * few).then(|| format!("{list}: {few} reads, then {many}"))
    };
    // Values are shared in sets that grow now and then, which reads all of them: that happens once.
    let faults = lists
        .iter()
        .filter_map(|list| measured(list).and_then(|_| measured(list)));
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
