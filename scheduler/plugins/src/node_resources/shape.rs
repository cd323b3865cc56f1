//! A function from utilisation to score, given by points with straight lines between them.

use crate::args::Problems;
use berth_framework::plugin::MAX_NODE_SCORE;
use serde::Deserialize;

/// The greatest score that a point may have.
const MAX_POINT_SCORE: i64 = 10;
/// The greatest utilisation, in percent.
const MAX_UTILIZATION: i64 = 100;

/// A point as configuration writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShapePoint {
    /// In percent, 0 to 100.
    #[serde(default)]
    pub utilization: i64,
    /// From 0 to 10.
    #[serde(default)]
    pub score: i64,
}

/// The function: utilisation in percent to a score from 0 to 100.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoreShape(Vec<(i64, i64)>);

impl ScoreShape {
    /// Checks the points at `path`.
    pub(crate) fn new(points: &[ShapePoint], path: &str, problems: &mut Problems) -> Self {
        if points.is_empty() {
            problems.required(path, "at least one point must be specified");
        }
        let mut previous = None;
        for (i, point) in points.iter().enumerate() {
            let at = format!("{path}[{i}]");
            if !(0..=MAX_UTILIZATION).contains(&point.utilization) {
                let path = format!("{at}.utilization");
                problems.invalid(path, point.utilization, "not in valid range [0, 100]");
            } else if previous.is_some_and(|previous| previous >= point.utilization) {
                let path = format!("{at}.utilization");
                problems.invalid(
                    path,
                    point.utilization,
                    "values must be sorted in increasing order",
                );
            }
            previous = Some(point.utilization);
            if !(0..=MAX_POINT_SCORE).contains(&point.score) {
                problems.invalid(
                    format!("{at}.score"),
                    point.score,
                    "not in valid range [0, 10]",
                );
            }
        }
        // Points have scores from 0 to 10, nodes from 0 to 100.
        let scale = MAX_NODE_SCORE / MAX_POINT_SCORE;
        Self(
            points
                .iter()
                .map(|point| (point.utilization, point.score.saturating_mul(scale)))
                .collect(),
        )
    }

    /// The score of a utilisation. Below the first point it is the score of that point, above the last point the score
    /// of the last one, and in between it is interpolated linearly with integer division.
    pub fn score(&self, utilization: i64) -> i64 {
        let mut before: Option<(i64, i64)> = None;
        for (at, score) in &self.0 {
            if utilization <= *at {
                return match before {
                    None => *score,
                    Some((u0, s0)) => s0 + (score - s0) * (utilization - u0) / (at - u0),
                };
            }
            before = Some((*at, *score));
        }
        before.map_or(0, |(_, score)| score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(points: &[(i64, i64)]) -> Result<ScoreShape, String> {
        let points: Vec<ShapePoint> = points
            .iter()
            .map(|(utilization, score)| ShapePoint {
                utilization: *utilization,
                score: *score,
            })
            .collect();
        let mut problems = Problems::default();
        let shape = ScoreShape::new(&points, "shape", &mut problems);
        problems.or(shape).map_err(|e| e.to_string())
    }

    /// PL-72: flat outside, straight between, integers divided toward zero.
    #[test]
    fn the_function_is_straight_between_its_points() {
        for (points, values) in [
            (
                vec![(0, 0), (100, 10)],
                vec![(0, 0), (1, 1), (50, 50), (100, 100), (150, 100)],
            ),
            (vec![(0, 10), (100, 0)], vec![(0, 100), (33, 67), (100, 0)]),
            // 20 + (0 − 20)·(40 − 20)/(70 − 20) = 20 − 8; toward zero: (0 − 20)·1/50 = 0.
            (
                vec![(20, 2), (70, 0)],
                vec![(0, 20), (20, 20), (21, 20), (40, 12), (70, 0), (99, 0)],
            ),
            (vec![(40, 7)], vec![(0, 70), (40, 70), (100, 70)]),
        ] {
            let shape = shape(&points).expect("valid");
            for (utilization, score) in values {
                assert_eq!(
                    shape.score(utilization),
                    score,
                    "{points:?} at {utilization}"
                );
            }
        }
    }

    /// F-35, PL-74: at least one point, strictly growing within 0..100, scores 0..10.
    #[test]
    fn bad_points_are_named() {
        for (points, problem) in [
            (
                vec![],
                "shape: Required value: at least one point must be specified",
            ),
            (
                vec![(0, 0), (0, 1)],
                "shape[1].utilization: Invalid value: 0: values must be sorted in increasing order",
            ),
            (
                vec![(-1, 0)],
                "shape[0].utilization: Invalid value: -1: not in valid range [0, 100]",
            ),
            (
                vec![(0, 0), (101, 0)],
                "shape[1].utilization: Invalid value: 101: not in valid range [0, 100]",
            ),
            (
                vec![(0, 11)],
                "shape[0].score: Invalid value: 11: not in valid range [0, 10]",
            ),
            (
                vec![(0, -1)],
                "shape[0].score: Invalid value: -1: not in valid range [0, 10]",
            ),
        ] {
            assert_eq!(shape(&points), Err(problem.to_owned()), "{points:?}");
        }
    }
}
