//! The choice among the best nodes.

use berth_framework::Slot;

/// A node with the greatest total; each of several with the same chance (C-26, where kube-scheduler 1.36 has lost
/// its randomness). The outcome depends on the set of the best nodes and on the generator, not on the order in
/// which they are listed.
pub fn choose(totals: &[(Slot, i64)], rng: &mut fastrand::Rng) -> Option<Slot> {
    let best = totals.iter().map(|(_, total)| *total).max()?;
    let mut tied: Vec<Slot> = totals
        .iter()
        .filter(|(_, total)| *total == best)
        .map(|(node, _)| *node)
        .collect();
    tied.sort_unstable();
    tied.get(break_tie(tied.len(), rng)).copied()
}

/// The tie-break: the index of the chosen node among `tied` best nodes. A single node needs no random number.
pub(super) fn break_tie(tied: usize, rng: &mut fastrand::Rng) -> usize {
    if tied > 1 { rng.usize(..tied) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(scores: &[i64]) -> Vec<(Slot, i64)> {
        (0..)
            .map(Slot::from_index)
            .zip(scores.iter().copied())
            .collect()
    }

    /// C-26.
    #[test]
    fn the_greatest_total_wins() {
        let mut rng = fastrand::Rng::with_seed(1);
        assert_eq!(choose(&[], &mut rng), None);
        for (scores, best) in [(vec![3], 0), (vec![1, 5, 2], 1), (vec![-4, -2, -9], 1)] {
            assert_eq!(
                choose(&totals(&scores), &mut rng),
                Some(Slot::from_index(best)),
                "{scores:?}"
            );
        }
    }

    /// C-26, case 207: each of the best has the same chance.
    #[test]
    fn ties_have_equal_chances() {
        let mut rng = fastrand::Rng::with_seed(7);
        let totals = totals(&[9, 1, 9, 9, 0]);
        let mut hits = [0_u32; 5];
        for _ in 0..3000 {
            hits[choose(&totals, &mut rng).unwrap().index()] += 1;
        }
        assert_eq!((hits[1], hits[4]), (0, 0));
        for at in [0, 2, 3] {
            assert!((900..1100).contains(&hits[at]), "{hits:?}");
        }
    }

    /// C-26: the seed and the set of the best decide, nothing else.
    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let forwards = totals(&[2, 2, 2, 1]);
        let backwards: Vec<_> = forwards.iter().rev().copied().collect();
        for seed in 0..20 {
            let pick = |list| choose(list, &mut fastrand::Rng::with_seed(seed));
            assert_eq!(pick(&forwards), pick(&backwards));
        }
    }
}
