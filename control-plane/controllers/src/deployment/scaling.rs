//! Scaling during a rollout, also while it is paused: the difference is distributed over the replica sets in proportion
//! to their sizes.

use super::rolling::Bounds;
use std::cmp::Ordering;

/// A replica set that has pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// `spec.replicas`.
    pub(super) replicas: i32,
    /// The most pods the whole deployment could have when it was last scaled, from the annotation; 0 if unknown.
    pub(super) pods_max: i32,
}

/// The new sizes of `shares`, newest first, for a deployment with the new `bounds` and `pods` pods in its status.
pub(super) fn proportional(bounds: Bounds, shares: &[Share], pods: i32) -> Vec<i32> {
    let allowed = if bounds.replicas > 0 {
        bounds.pods_max()
    } else {
        0
    };
    let total: i32 = shares.iter().map(|s| s.replicas).sum();
    let to_add = allowed - total;
    // The largest set gets the rounding difference; of equal sets the newest when growing, the oldest when shrinking.
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|&a, &b| {
        let size = shares[b].replicas.cmp(&shares[a].replicas);
        size.then(if to_add > 0 { a.cmp(&b) } else { b.cmp(&a) })
    });
    let mut sizes: Vec<i32> = shares.iter().map(|s| s.replicas).collect();
    let mut added = 0;
    for &i in &order {
        let step = step(bounds, shares[i], pods, to_add, added);
        sizes[i] += step;
        added += step;
    }
    if let Some(&largest) = order.first() {
        sizes[largest] = (sizes[largest] + to_add - added).max(0);
    }
    sizes
}

fn step(bounds: Bounds, share: Share, pods: i32, to_add: i32, added: i32) -> i32 {
    if share.replicas == 0 || to_add == added {
        return 0;
    }
    let fraction = fraction(bounds, share, pods);
    let left = to_add - added;
    match to_add.cmp(&0) {
        Ordering::Greater => fraction.min(left),
        Ordering::Less => fraction.max(left),
        Ordering::Equal => 0,
    }
}

/// The growth of the replica set that keeps its share exactly.
fn fraction(bounds: Bounds, share: Share, pods: i32) -> i32 {
    if bounds.replicas == 0 {
        return -share.replicas;
    }
    let before = match share.pods_max {
        0 => pods,
        known => known,
    };
    if before <= 0 {
        return 0;
    }
    let size = f64::from(share.replicas) * f64::from(bounds.pods_max()) / f64::from(before);
    size.round() as i32 - share.replicas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_or_taken_is_spread_in_proportion() {
        let share = |replicas, pods_max| Share { replicas, pods_max };
        let bounds = |replicas, surge| Bounds {
            replicas,
            surge,
            unavailable: 0,
        };
        for (situation, wanted, shares, expected) in [
            // 10 → 15, surge 3: 18 allowed, 13 there, 5 to add. 8 · 18/13 = 11.08, +3; 5 · 18/13 = 6.92, +2.
            (
                "up",
                bounds(15, 3),
                vec![share(5, 13), share(8, 13)],
                vec![7, 11],
            ),
            // 10 → 5, surge 2: 7 allowed, 6 to take. 8 · 7/13 = 4.31, -4; 5 · 7/13 = 2.69, -2.
            (
                "down",
                bounds(5, 2),
                vec![share(5, 13), share(8, 13)],
                vec![3, 4],
            ),
            (
                "to nothing",
                bounds(0, 0),
                vec![share(5, 13), share(8, 13)],
                vec![0, 0],
            ),
            // 6 → 7 with three equal sets: each share rounds to 2.33, so 2; the newest gets the remaining pod.
            (
                "the rest",
                bounds(7, 0),
                vec![share(2, 6), share(2, 6), share(2, 6)],
                vec![3, 2, 2],
            ),
            // 6 → 5: each share rounds to 1.67, so 2; the oldest loses the surplus pod.
            (
                "the rest down",
                bounds(5, 0),
                vec![share(2, 6), share(2, 6), share(2, 6)],
                vec![2, 2, 1],
            ),
            (
                "no annotation: the status counts",
                bounds(20, 0),
                vec![share(5, 0), share(5, 0)],
                vec![10, 10],
            ),
            (
                "nothing to do",
                bounds(10, 3),
                vec![share(5, 13), share(8, 13)],
                vec![5, 8],
            ),
        ] {
            assert_eq!(proportional(wanted, &shares, 10), expected, "{situation}");
        }
    }
}
