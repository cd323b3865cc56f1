//! The keys by which node and class events find the pods that they may help: by the resources that they request,
//! ordered by the amount, so that a node with 4 CPU does not find pods that request 64.
//!
//! A pod is indexed by the amount of one requested resource, which is chosen as the probable bottleneck. A new node,
//! or a node that allows more pods, is looked up by all its resources; a changed node by its increased resources.

use super::fit::requests;
use super::hints::allocatable;
use crate::extended_resources::implied_resource;
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use berth_api::{Pod, Resources};
use berth_framework::Cluster;
use berth_framework::event::{Change, Touched, WaitKey, Waits};
use std::borrow::Cow;

/// The usual amount of memory for a thousandth of a core: 4 GiB with a core.
const MEMORY_PER_MILLI_CPU: i64 = (4 << 30) / 1000;
/// The usual amount of disk of a node for a byte of memory.
const STORAGE_PER_MEMORY: i64 = 4;

/// The number of keys that a change of a node touches; one that would touch more touches everything.
const KEYS_MAX: usize = 1024;

/// A pod that probably fits where enough of the resource is free.
fn room(decisive: &str) -> WaitKey {
    WaitKey::of(("room", decisive))
}

/// Such a pod that requests some of a resource.
fn more(wanted: &str, decisive: &str) -> WaitKey {
    WaitKey::of(("more", wanted, decisive))
}

fn class(resource: &str) -> WaitKey {
    WaitKey::of(("class", resource))
}

/// The amounts that are above zero.
fn positive(amounts: &Resources) -> impl Iterator<Item = (&str, i64)> {
    let plain = [
        (CPU, amounts.milli_cpu),
        (MEMORY, amounts.memory),
        (EPHEMERAL_STORAGE, amounts.ephemeral_storage),
    ];
    let scalars = amounts.scalars.iter();
    plain
        .into_iter()
        .chain(scalars.map(|(name, amount)| (name.as_str(), *amount)))
        .filter(|(_, amount)| *amount > 0)
}

/// The resource that probably decides where a pod fits: a resource that few nodes have, otherwise the greatest request
/// in proportion to typical nodes.
fn decisive(wanted: &Resources) -> Option<(&str, i64)> {
    positive(wanted).max_by_key(|(name, amount)| match *name {
        CPU => amount.saturating_mul(MEMORY_PER_MILLI_CPU),
        MEMORY => *amount,
        EPHEMERAL_STORAGE => amount / STORAGE_PER_MEMORY,
        _ => i64::MAX,
    })
}

/// The keys of nodes under which a rejected pod waits.
pub(super) fn waits_for_nodes(pod: &Pod) -> Waits {
    let wanted = requests(pod);
    let mut waits = Waits::for_nothing();
    let (decisive, amount) = decisive(&wanted).unwrap_or_default();
    waits.add_amount(room(decisive), amount);
    for (name, _) in positive(&wanted) {
        waits.add_amount(more(name, decisive), amount);
    }
    waits
}

/// The keys that a change of a node touches.
pub(super) fn touched_by_node(
    cluster: &Cluster,
    has_devices: bool,
    change: &Change<'_>,
) -> Touched {
    let Ok((old, new)) = change.nodes() else {
        return Touched::everything();
    };
    let Some(offered) = new.map(allocatable).filter(|offered| offered.pods > 0) else {
        return Touched::no_pod();
    };
    // If the node has none of them, they are left to devices.
    let by_devices: Vec<Cow<'_, str>> = if has_devices {
        by_devices(cluster).collect()
    } else {
        Vec::new()
    };
    let mut touched = Touched::no_key();
    let mut touch = |key: &dyn Fn(&str) -> WaitKey| {
        touched.add(key(""));
        for (name, amount) in positive(&offered) {
            touched.add_up_to(key(name), amount);
        }
        for name in &by_devices {
            touched.add(key(name));
        }
    };
    let Some(before) = old
        .map(allocatable)
        .filter(|before| offered.pods <= before.pods)
    else {
        touch(&room);
        return touched;
    };
    let more_offered = positive(&offered).filter(|(name, amount)| before.get(name) < *amount);
    let more_offered: Vec<&str> = more_offered.map(|(name, _)| name).collect();
    // A pod may wait for any increased resource, and be indexed by the amount of any offered resource.
    let all = positive(&offered).count() + by_devices.len();
    if (more_offered.len() + by_devices.len()).saturating_mul(all) > KEYS_MAX {
        return Touched::everything();
    }
    for name in more_offered {
        touch(&|decisive| more(name, decisive));
    }
    for name in &by_devices {
        touch(&|decisive| more(name, decisive));
    }
    touched
}

/// The resources that device classes back.
fn by_devices(cluster: &Cluster) -> impl Iterator<Item = Cow<'_, str>> {
    cluster.devices().classes().values().flat_map(|class| {
        let named = class.spec.extended_resource_name.as_ref();
        let implied = Cow::Owned(implied_resource(class));
        named
            .map(|named| Cow::Borrowed(named.as_str()))
            .into_iter()
            .chain([implied])
    })
}

/// The keys of device classes under which a rejected pod waits: the resources that they may back.
pub(super) fn waits_for_classes(pod: &Pod) -> Waits {
    let wanted = requests(pod);
    let scalars = wanted.scalars.iter().filter(|(_, amount)| *amount > 0);
    scalars.map(|(name, _)| class(name)).collect()
}

/// The keys that a change of a device class touches.
pub(super) fn touched_by_class(change: &Change<'_>) -> Touched {
    let Some(new) = change.new else {
        return Touched::no_pod();
    };
    let Some(new) = new.as_device_class() else {
        return Touched::everything();
    };
    let named = new.spec.extended_resource_name.as_ref();
    let named = named.map(|named| class(named));
    [class(&implied_resource(new))]
        .into_iter()
        .chain(named)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 1 CPU counts as 4 GiB, and a resource that only some nodes have decides first.
    #[test]
    fn what_few_nodes_have_decides() {
        let wanted = |milli_cpu, memory, gpus: i64| Resources {
            milli_cpu,
            memory,
            scalars: [("example.com/gpu".into(), gpus)].into_iter().collect(),
            ..Resources::default()
        };
        const GIB: i64 = 1 << 30;
        for (wanted, expected) in [
            (wanted(1000, 3 * GIB, 0), Some((CPU, 1000))),
            (wanted(1000, 5 * GIB, 0), Some((MEMORY, 5 * GIB))),
            (wanted(64_000, 5 * GIB, 1), Some(("example.com/gpu", 1))),
            (wanted(0, 0, 0), None),
        ] {
            assert_eq!(decisive(&wanted), expected, "{wanted:?}");
        }
    }
}
