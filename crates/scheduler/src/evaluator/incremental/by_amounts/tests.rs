//! Trees and searches against plain lists.

use super::search::{Judges, Search};
use super::tree::Tree;
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

/// The feasible nodes and the best of them, one by one.
fn plainly(table: &NodeTable, filed: &[bool]) -> (usize, Vec<Slot>) {
    let (mut feasible, mut greatest, mut best) = (0, i64::MIN, Vec::new());
    for view in table.iter().filter(|view| filed[view.slot().index()]) {
        let used = |id| (view.allocatable(id), view.requested(id));
        let (cpu, held) = used(ResourceId::CPU);
        if held + 100 > cpu {
            continue;
        }
        feasible += 1;
        let (memory, held_memory) = used(ResourceId::MEMORY);
        let total = 3 * hundreds(cpu, held) + hundreds(memory, held_memory);
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

#[test]
fn the_best_nodes_are_those_of_a_plain_list() {
    let judges = judges();
    for seed in 0..12 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let nodes = rng.usize(1..150);
        let mut table = NodeTable::default();
        for at in 0..nodes {
            let cpu = if rng.u8(..4) == 0 { "2" } else { "1" };
            let node = node(&format!("n{at}")).capacity(cpu, "8Gi", "99");
            table.set_node(Arc::new(node.build()));
        }
        let (mut tree, mut bits) = (Tree::default(), Vec::new());
        let mut filed = vec![true; nodes];
        let slots: Vec<Slot> = table.occupied().collect();
        for slot in &slots {
            tree.put(table.columns(), *slot, true);
        }
        let mut placed: Vec<(Slot, Arc<PodInfo>)> = Vec::new();
        for step in 0..400 {
            let slot = slots[rng.usize(..nodes)];
            match rng.u8(..8) {
                0 if !placed.is_empty() => {
                    let (slot, pod) = placed.swap_remove(rng.usize(..placed.len()));
                    table.remove_pod_at(slot, pod.pod.uid());
                    tree.put(table.columns(), slot, filed[slot.index()]);
                }
                1 => {
                    filed[slot.index()] ^= true;
                    tree.put(table.columns(), slot, filed[slot.index()]);
                }
                _ => {
                    let pod = pod_of(step, &mut rng);
                    table.add_pod_at(slot, pod.clone());
                    placed.push((slot, pod));
                    tree.put(table.columns(), slot, filed[slot.index()]);
                }
            }
            tree.balance();
            let (feasible, best) = plainly(&table, &filed);
            let found = Search::new(&tree, &judges).run();
            let context = format!("seed {seed}, step {step}");
            let Some(found) = found else {
                assert_eq!(feasible, 0, "{context}");
                continue;
            };
            assert_eq!(found.feasible, feasible, "{context}");
            assert_eq!(found.nodes(&tree), best.len(), "{context}");
            for (n, slot) in best.iter().enumerate() {
                assert_eq!(found.nth(&tree, n, &mut bits), Some(*slot), "{context}");
            }
            assert_eq!(found.nth(&tree, best.len(), &mut bits), None, "{context}");
        }
    }
}
