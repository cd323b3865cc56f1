//! Trees and searches against plain lists.

use super::known_bounds::KnownBounds;
use super::partition::{PARTS_MAX, Partition, PartitionKeys};
use super::row_nodes::ShortLists;
use super::search::{Apart, Filed, Judges, Search};
use super::tree::Tree;
use berth_api::Str;
use berth_framework::amounts::{Amounts, Fits};
use berth_framework::table::ResourceId;
use berth_framework::testing::{node, pod};
use berth_framework::{NodeTable, PodInfo, Slot};
use std::sync::Arc;

/// CPU of a node's capacity in hundreds.
fn hundreds(offered: i64, held: i64) -> i64 {
    100 * (offered - held) / offered
}

/// A pod of 100 milli-CPU fits; the emptier the better, in CPU and in memory.
fn judges() -> Judges<'static> {
    let mut judges = Judges::default();
    judges.fits.push(Box::new(|nodes: &Amounts<'_>| {
        let offered = nodes.offered(ResourceId::CPU);
        let (least, most) = nodes.requested(ResourceId::CPU);
        match (most + 100 <= offered, least + 100 <= offered) {
            (true, _) => Fits::All,
            (_, true) => Fits::Some,
            _ => Fits::None,
        }
    }));
    for (weight, id) in [(3, ResourceId::CPU), (1, ResourceId::MEMORY)] {
        judges.scores.push((
            weight,
            Box::new(move |nodes: &Amounts<'_>| {
                let offered = nodes.offered(id);
                let (least, most) = nodes.requested(id);
                (hundreds(offered, most), hundreds(offered, least))
            }),
        ));
    }
    judges
}

/// The feasible nodes and the best of them, one by one. `further` has what each node scores besides, if it is there and not
/// rejected.
fn plainly(table: &NodeTable, further: &[Option<i64>]) -> (usize, Vec<Slot>) {
    let (mut feasible, mut greatest, mut best) = (0, i64::MIN, Vec::new());
    for view in table.iter() {
        let Some(further) = further[view.slot().index()] else {
            continue;
        };
        let used = |id| (view.allocatable(id), view.requested(id));
        let (cpu, held) = used(ResourceId::CPU);
        if held + 100 > cpu {
            continue;
        }
        feasible += 1;
        let (memory, held_memory) = used(ResourceId::MEMORY);
        let total = 3 * hundreds(cpu, held) + hundreds(memory, held_memory) + further;
        if total > greatest {
            greatest = total;
            best.clear();
        }
        if total == greatest {
            best.push(view.slot());
        }
    }
    best.sort_unstable();
    (feasible, best)
}

fn pod_of(at: usize, rng: &mut fastrand::Rng) -> Arc<PodInfo> {
    let (cpu, memory) = (rng.u32(..6) * 50, rng.u32(1..9) * 100);
    let pod = pod(&format!("p{at}")).request("cpu", &format!("{cpu}m"));
    pod.request("memory", &format!("{memory}Mi")).info()
}

/// The further score of nodes: mostly little, or they are rejected.
fn some_further(rng: &mut fastrand::Rng) -> Option<i64> {
    (rng.u8(..4) > 0).then(|| rng.i64(0..3) * 20)
}

#[test]
fn the_best_nodes_are_those_of_a_plain_list() {
    const PARTS: usize = 3;
    let judges = judges();
    for seed in 0..24 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let nodes = rng.usize(1..150);
        let mut table = NodeTable::default();
        for at in 0..nodes {
            let cpu = if rng.u8(..4) == 0 { "2" } else { "1" };
            let node = node(&format!("n{at}")).capacity(cpu, "8Gi", "99");
            table.set_node(Arc::new(node.build()));
        }
        let mut tree = Tree::default();
        let slots: Vec<Slot> = table.occupied().collect();
        let mut parts: Vec<Option<u16>> = slots
            .iter()
            .map(|_| Some(rng.u16(..PARTS as u16)))
            .collect();
        for slot in &slots {
            tree.put(table.columns(), *slot, parts[slot.index()]);
        }
        let mut placed: Vec<(Slot, Arc<PodInfo>)> = Vec::new();
        let mut known = KnownBounds::default();
        let mut short = ShortLists::default();
        for step in 0..400 {
            let slot = slots[rng.usize(..nodes)];
            match rng.u8(..8) {
                0 if !placed.is_empty() => {
                    let (slot, pod) = placed.swap_remove(rng.usize(..placed.len()));
                    table.remove_pod_at(slot, pod.pod.uid());
                    tree.put(table.columns(), slot, parts[slot.index()]);
                }
                1 => {
                    let part = rng.u16(..=PARTS as u16);
                    parts[slot.index()] = (usize::from(part) < PARTS).then_some(part);
                    tree.put(table.columns(), slot, parts[slot.index()]);
                }
                _ => {
                    let pod = pod_of(step, &mut rng);
                    table.add_pod_at(slot, pod.clone());
                    placed.push((slot, pod));
                    tree.put(table.columns(), slot, parts[slot.index()]);
                }
            }
            tree.balance();
            // Some nodes are judged one by one, in every other step.
            let mut of_parts = [Some(0); PARTS];
            let mut apart = Apart::default();
            let mut of_apart = Vec::new();
            if step % 2 == 0 {
                of_parts = std::array::from_fn(|_| some_further(&mut rng));
                let is_apart = |slot: &Slot| parts[slot.index()].is_some() && rng.u8(..3) == 0;
                let nodes: Vec<Slot> = slots.iter().copied().filter(is_apart).collect();
                of_apart.extend(nodes.iter().map(|slot| (*slot, some_further(&mut rng))));
                let rows = nodes.iter().filter_map(|slot| tree.row_of(*slot));
                apart.set(&tree, nodes.iter().copied().zip(rows));
            }
            let mut further: Vec<Option<i64>> = parts
                .iter()
                .map(|part| of_parts[usize::from((*part)?)])
                .collect();
            for (slot, of_node) in &of_apart {
                further[slot.index()] = *of_node;
            }
            let of_apart: Vec<(Slot, i64)> = of_apart
                .into_iter()
                .filter_map(|(slot, further)| Some((slot, further?)))
                .collect();
            let (feasible, best) = plainly(&table, &further);
            let filed = Filed {
                tree: &tree,
                parts: &of_parts,
                apart: &apart,
            };
            let context = format!("seed {seed}, step {step}");
            let in_parts = (0..PARTS as u16).filter(|part| of_parts[usize::from(*part)].is_some());
            let in_parts = in_parts.map(|part| Search::new(filed, &judges).feasible_in(part));
            let counted: usize = in_parts.map(|nodes| nodes.expect("exact judges")).sum();
            let search = Search::new(filed, &judges);
            let fitting = of_apart
                .iter()
                .filter(|(slot, _)| search.fits(*slot) == Some(true));
            assert_eq!(counted + fitting.count(), feasible, "{context}");
            // In three of four steps, the bounds that were found before are used again.
            let known = (step % 4 > 0).then_some(&mut known);
            let found = Search::new(filed, &judges).knowing(known).run(&of_apart);
            let Some(found) = found else {
                assert_eq!(feasible, 0, "{context}");
                continue;
            };
            assert_eq!(found.feasible, feasible, "{context}");
            assert_eq!(found.nodes(filed), best.len(), "{context}");
            for (n, slot) in best.iter().enumerate() {
                assert_eq!(found.nth(filed, n, &mut short), Some(*slot), "{context}");
            }
            assert_eq!(found.nth(filed, best.len(), &mut short), None, "{context}");
        }
    }
}

#[test]
fn nodes_are_parted_by_few_keys_with_few_domains() {
    let mut table = NodeTable::default();
    for at in 0..60 {
        let node = node(&format!("n{at}"))
            .label("zone", &format!("z{}", at % 3))
            .label("rack", &format!("r{}", at % 9))
            .label("host", &format!("h{at}"));
        let node = if at % 2 == 0 {
            node.label("disk", "ssd")
        } else {
            node
        };
        table.set_node(Arc::new(node.build()));
    }
    let key = |name: &str| Str::new(name);
    let mut keys = PartitionKeys::default();
    assert!(keys.cover(&[key("zone")], &table));
    assert!(keys.cover(&[key("zone")], &table));
    assert!(!keys.cover(&[key("host")], &table), "too many domains");
    assert!(keys.cover(&[key("rack"), key("zone")], &table));
    assert!(!keys.cover(&[key("disk")], &table), "18 parts");
    let mut partition = Partition::new(&keys, &table);
    let topologies = partition.topologies(&table);
    for slot in table.occupied() {
        let part = partition.part_of(&topologies, slot);
        assert_eq!(part, Some((slot.index() % 9) as u16));
    }
    assert_eq!(partition.len(), 9);
    // More racks come than there may be parts.
    for at in 0..PARTS_MAX {
        let node = node(&format!("m{at}")).label("rack", &format!("more-{at}"));
        table.set_node(Arc::new(node.build()));
    }
    let topologies = partition.topologies(&table);
    let parts: Vec<_> = table
        .occupied()
        .map(|slot| partition.part_of(&topologies, slot))
        .collect();
    assert!(parts.contains(&None));
    keys.clear();
    assert!(!keys.cover(&[key("rack")], &table), "too many by now");
    assert!(keys.cover(&[key("zone")], &table));
}
