//! The choice among several nodes.

use super::*;

/// P-15, edge case 238: each step of the choice.
#[test]
fn the_cheapest_node_is_chosen() {
    let two = |a: Vec<Pod>, b: Vec<Pod>| world(vec![("a", a), ("b", b)]);
    for (name, world, expected) in [
        (
            "fewest broken budgets",
            with_budget(
                two(
                    vec![labelled("low", 1, 4, "web")],
                    vec![plain("higher", 5, 4)],
                ),
                budget("x", "web", 0, &[]),
            ),
            "b: higher",
        ),
        (
            "one budget broken twice costs more than once",
            with_budget(
                two(
                    vec![labelled("low1", 1, 2, "web"), labelled("low2", 1, 2, "web")],
                    vec![labelled("higher", 5, 4, "web")],
                ),
                budget("x", "web", 0, &[]),
            ),
            "b: higher",
        ),
        (
            "lowest first victim",
            two(
                vec![plain("high", 5, 4)],
                vec![plain("low1", 1, 2), plain("low2", 1, 2)],
            ),
            "b: low1 low2",
        ),
        (
            "smallest sum",
            two(
                vec![plain("x", 5, 2), plain("y", 4, 2)],
                vec![plain("z", 5, 2), plain("w", 1, 2)],
            ),
            "b: w z",
        ),
        // Each victim adds 2³¹, so fewer of them are cheaper even below zero.
        (
            "fewest victims",
            two(
                vec![plain("x", -5, 2), plain("y", -5, 2)],
                vec![plain("z", -5, 4)],
            ),
            "b: z",
        ),
        (
            "fewest victims, though the other one adds nothing",
            two(
                vec![plain("x", 5, 2), plain("y", i32::MIN, 2)],
                vec![plain("z", 5, 4)],
            ),
            "b: z",
        ),
        (
            "latest start",
            two(
                vec![started_at("x", 1, 4, 1)],
                vec![started_at("y", 1, 4, 2)],
            ),
            "b: y",
        ),
        (
            "the oldest of the most important counts",
            two(
                vec![started_at("x", 5, 2, 1), started_at("y", 5, 2, 9)],
                vec![started_at("z", 5, 2, 3), started_at("w", 5, 2, 3)],
            ),
            "b: w z",
        ),
        (
            "the age of the less important does not",
            two(
                vec![started_at("x", 5, 2, 5), started_at("y", 1, 2, 0)],
                vec![started_at("z", 5, 2, 4), started_at("w", 1, 2, 9)],
            ),
            "a: x y",
        ),
        (
            "the first by name",
            two(
                vec![started_at("x", 1, 4, 1)],
                vec![started_at("y", 1, 4, 1)],
            ),
            "a: x",
        ),
    ] {
        assert_eq!(default(world, plain("p", 10, 4)), expected, "{name}");
    }
}
