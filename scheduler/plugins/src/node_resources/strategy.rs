//! The formulas for a score from requested and allocatable amounts.
//!
//! Each resource has an integer score of 0 to 100; the result is the mean weighted by the resources' weights. Products
//! are computed with 128 bits where 64 do not suffice, so that amounts near the limit do not wrap.

use super::amounts::ScoredPair;
use super::batch::{ExactShare, floor};
use super::shape::ScoreShape;
use berth_framework::Slot;
use berth_framework::plugin::MAX_NODE_SCORE;

/// The use of one resource of a node, with the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The requested amount.
    pub requested: i64,
    /// The part of it that the pod requests.
    pub own: i64,
    /// The amount that the node offers; a resource with none is left out.
    pub allocatable: i64,
    /// The weight of the resource.
    pub weight: i64,
}

/// The ranking of nodes by their resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ScoringStrategy {
    /// The emptier the better.
    #[default]
    LeastAllocated,
    /// The fuller the better.
    MostAllocated,
    /// By a function of the utilisation.
    RequestedToCapacityRatio(ScoreShape),
}

/// Up to this amount, and up to 100 percent, a quotient of floating-point numbers that is rounded down is exact: the
/// product has less than 53 bits, and a quotient that is no integer is farther from the next one than its rounding
/// error.
const EXACT_MAX: i64 = 1 << 46;

/// `amount` in percent of `whole`, rounded down.
#[inline]
fn percent(amount: i64, whole: i64) -> i64 {
    if (0..=whole).contains(&amount) && whole <= EXACT_MAX {
        // The division of integers takes twice the time.
        let percentage = (amount * MAX_NODE_SCORE) as f64 / whole as f64;
        return i64::from(percentage as i32);
    }
    if let Some(product) = amount.checked_mul(MAX_NODE_SCORE) {
        return product / whole;
    }
    let share = i128::from(amount) * i128::from(MAX_NODE_SCORE) / i128::from(whole);
    i64::try_from(share).unwrap_or(MAX_NODE_SCORE)
}

impl ScoringStrategy {
    /// The score of a node that offers both resources of a pair.
    #[inline]
    pub fn score_of_pair(&self, [first, second]: [Share; 2]) -> i64 {
        let mean = |of_first: i64, of_second: i64| {
            let total = of_first * first.weight + of_second * second.weight;
            weighted_mean(total, first.weight + second.weight)
        };
        match self {
            Self::LeastAllocated => mean(least(&first), least(&second)),
            Self::MostAllocated => mean(most(&first), most(&second)),
            Self::RequestedToCapacityRatio(_) => self.score([first, second]),
        }
    }

    /// Sets the scores of all slots for two resources; `rate` returns the score of one slot. Returns false for a strategy
    /// without a formula for many slots.
    pub(super) fn score_all(
        &self,
        pair: &ScoredPair<'_>,
        scores: &mut [i32],
        rate: impl Fn(Slot) -> i64,
    ) -> bool {
        let [a, b] = pair.0.map(|column| column.weight as f64);
        // Multiplication by a reciprocal takes a quarter of the time of a division, and has an error. Scores and
        // weights are integers of at most 100: adding a half to the numerator does not change the rounded mean, and
        // exceeds the error.
        let share = 1.0 / (a + b);
        let mean = move |of_a: f64, of_b: f64| (of_a * a + of_b * b + 0.5) * share - 0.5;
        match self {
            Self::LeastAllocated if a + b > 0.0 => {
                let score = move |[a, b]: [ExactShare; 2]| mean(exact_least(a), exact_least(b));
                pair.rate_all(scores, score, rate);
            }
            Self::MostAllocated if a + b > 0.0 => {
                let score = move |[a, b]: [ExactShare; 2]| mean(exact_most(a), exact_most(b));
                pair.rate_all(scores, score, rate);
            }
            _ => return false,
        }
        true
    }

    /// The score of a node, 0 to 100.
    #[inline]
    pub fn score(&self, shares: impl IntoIterator<Item = Share>) -> i64 {
        let shares = shares.into_iter();
        let offered = shares.filter(|share| share.allocatable != 0);
        match self {
            Self::LeastAllocated => mean(offered.map(|s| (least(&s), s.weight))),
            Self::MostAllocated => mean(offered.map(|s| (most(&s), s.weight))),
            Self::RequestedToCapacityRatio(shape) => {
                rounded_mean(offered.map(|s| (ratio(&s, shape), s.weight)))
            }
        }
    }
}

/// The free part of the resource, in percent.
#[inline]
fn least(share: &Share) -> i64 {
    if share.requested > share.allocatable {
        0
    } else {
        let free = share.allocatable.saturating_sub(share.requested);
        percent(free, share.allocatable)
    }
}

/// The same as [`least`], in a form that is vectorised.
#[inline(always)]
fn exact_least(share: ExactShare) -> f64 {
    let free = share.allocatable - share.requested;
    let free = if free < 0.0 { 0.0 } else { free };
    floor(free * 100.0 / share.allocatable)
}

/// The used part of the resource, in percent.
#[inline]
fn most(share: &Share) -> i64 {
    percent(share.requested.min(share.allocatable), share.allocatable)
}

/// The same as [`most`], in a form that is vectorised.
#[inline(always)]
fn exact_most(share: ExactShare) -> f64 {
    let is_full = share.requested > share.allocatable;
    let used = if is_full {
        share.allocatable
    } else {
        share.requested
    };
    floor(used * 100.0 / share.allocatable)
}

fn ratio(share: &Share, shape: &ScoreShape) -> i64 {
    if share.requested > share.allocatable {
        shape.score(MAX_NODE_SCORE)
    } else {
        shape.score(percent(share.requested, share.allocatable))
    }
}

/// Scores and weights are at most 100, so the sums are far below the limit of 64 bits.
#[inline]
fn sums(scores: impl Iterator<Item = (i64, i64)>) -> (i64, i64) {
    scores.fold((0, 0), |(total, weights), (score, weight)| {
        (total + score * weight, weights + weight)
    })
}

/// The weighted mean, rounded down.
#[inline]
fn mean(scores: impl Iterator<Item = (i64, i64)>) -> i64 {
    let (total, weights) = sums(scores);
    weighted_mean(total, weights)
}

#[inline]
fn weighted_mean(total: i64, weights: i64) -> i64 {
    match (u32::try_from(total), u32::try_from(weights)) {
        (_, Ok(0)) => 0,
        // The division of 32 bits takes less time.
        (Ok(total), Ok(weights)) => i64::from(total / weights),
        _ => total / weights,
    }
}

/// The weighted mean of the scores above zero, rounded to the nearest.
fn rounded_mean(scores: impl Iterator<Item = (i64, i64)>) -> i64 {
    match sums(scores.filter(|(score, _)| *score > 0)) {
        (_, 0) => 0,
        (total, weights) => (total as f64 / weights as f64).round() as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Problems;
    use crate::node_resources::shape::ShapePoint;

    fn shares(amounts: &[(i64, i64, i64)]) -> Vec<Share> {
        amounts
            .iter()
            .map(|(requested, allocatable, weight)| Share {
                requested: *requested,
                own: 0,
                allocatable: *allocatable,
                weight: *weight,
            })
            .collect()
    }

    /// PL-70: the worked numbers, each as (requested, allocatable, weight) of CPU and memory.
    #[test]
    fn least_allocated_prefers_empty_nodes() {
        for (name, amounts, score) in [
            // (4000−3000)·100/4000 = 25 and 50: 75/2.
            (
                "3000/5000 on 4000/10000",
                vec![(3000, 4000, 1), (5000, 10000, 1)],
                37,
            ),
            (
                "3000/5000 on 6000/10000",
                vec![(3000, 6000, 1), (5000, 10000, 1)],
                50,
            ),
            // (25 + 2·50)/3.
            (
                "memory counts twice",
                vec![(3000, 4000, 1), (5000, 10000, 2)],
                41,
            ),
            (
                "memory counts twice, larger node",
                vec![(3000, 6000, 1), (5000, 10000, 2)],
                50,
            ),
            // 40 and 75; 40 and 50; 40 and 80.
            (
                "6000/5000 of 10000/20000",
                vec![(6000, 10000, 1), (5000, 20000, 1)],
                57,
            ),
            (
                "6000/10000 of 10000/20000",
                vec![(6000, 10000, 1), (10000, 20000, 1)],
                45,
            ),
            (
                "6000/10000 of 10000/50000",
                vec![(6000, 10000, 1), (10000, 50000, 1)],
                60,
            ),
            (
                "beyond one capacity",
                vec![(5000, 4000, 1), (5000, 10000, 1)],
                25,
            ),
            (
                "nothing offered of one",
                vec![(3000, 0, 1), (5000, 10000, 1)],
                50,
            ),
            ("nothing offered at all", vec![(3000, 0, 1)], 0),
            ("near the limit", vec![(0, i64::MAX, 100)], 100),
            ("less than nothing held", vec![(i64::MIN, i64::MAX, 1)], 100),
        ] {
            let strategy = ScoringStrategy::LeastAllocated;
            assert_eq!(strategy.score(shares(&amounts)), score, "{name}");
            if let [first, second] = shares(&amounts)[..]
                && first.allocatable != 0
            {
                assert_eq!(strategy.score_of_pair([first, second]), score, "{name}");
            }
        }
    }

    /// PL-71: the worked numbers.
    #[test]
    fn most_allocated_prefers_full_nodes() {
        for (name, amounts, score) in [
            (
                "3000/5000 on 4000/10000",
                vec![(3000, 4000, 1), (5000, 10000, 1)],
                62,
            ),
            (
                "3000/5000 on 6000/10000",
                vec![(3000, 6000, 1), (5000, 10000, 1)],
                50,
            ),
            // (75 + 2·50)/3.
            (
                "memory counts twice",
                vec![(3000, 4000, 1), (5000, 10000, 2)],
                58,
            ),
            (
                "memory counts twice, larger node",
                vec![(3000, 6000, 1), (5000, 10000, 2)],
                50,
            ),
            (
                "beyond one capacity",
                vec![(5000, 4000, 1), (5000, 10000, 1)],
                75,
            ),
        ] {
            let strategy = ScoringStrategy::MostAllocated;
            assert_eq!(strategy.score(shares(&amounts)), score, "{name}");
            if let [first, second] = shares(&amounts)[..] {
                assert_eq!(strategy.score_of_pair([first, second]), score, "{name}");
            }
        }
    }

    /// PL-71: a score of zero counts neither above nor below the line; half rounds away from zero.
    #[test]
    fn requested_to_capacity_ratio_follows_its_shape() {
        let rising = [(0, 0), (100, 10)];
        let falling = [(0, 10), (100, 0)];
        for (name, points, amounts, score) in [
            // 75 and 50: 62.5 rounds to 63.
            (
                "rising",
                rising,
                vec![(3000, 4000, 1), (5000, 10000, 1)],
                63,
            ),
            (
                "falling",
                falling,
                vec![(3000, 4000, 1), (5000, 10000, 1)],
                38,
            ),
            (
                "zero scores are left out",
                rising,
                vec![(0, 4000, 50), (5000, 10000, 1)],
                50,
            ),
            ("only zero scores", rising, vec![(0, 4000, 1)], 0),
            (
                "beyond capacity is full",
                rising,
                vec![(5000, 4000, 1)],
                100,
            ),
            (
                "nothing offered is left out",
                falling,
                vec![(0, 0, 1), (10000, 20000, 3)],
                50,
            ),
            // (75·3 + 50·5)/8 = 59.4.
            ("weights", rising, vec![(3, 4, 3), (1, 2, 5)], 59),
        ] {
            let points = points.map(|(utilization, score)| ShapePoint { utilization, score });
            let shape = ScoreShape::new(&points, "", &mut Problems::default());
            let strategy = ScoringStrategy::RequestedToCapacityRatio(shape);
            assert_eq!(strategy.score(shares(&amounts)), score, "{name}");
        }
    }
}
