//! The differences of two texts in the unified format, as computed by Python's `difflib` and its port to Go: by the
//! longest matching blocks (Ratcliff and Obershelp), which never start at very frequent lines.

use rustc_hash::FxHashMap;
use std::fmt::Write as _;

/// The number of equal lines around a difference.
const CONTEXT: usize = 3;
/// Texts of fewer lines have no frequent lines.
const FREQUENT_FROM: usize = 200;
/// The limit of comparisons: most texts need a few thousand.
const WORK_MAX: usize = 2_000_000;

/// A run of lines that both texts have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MatchingBlock {
    before: usize,
    after: usize,
    lines: usize,
}

/// Lines of the first text, and the lines of the second text that replace them (either can be empty), or equal lines of
/// both.
#[derive(Debug, Clone, Copy)]
struct DiffPart {
    is_equal: bool,
    before: (usize, usize),
    after: (usize, usize),
}

/// The differences of two texts; `None` when they are too different to be compared with reasonable effort. Each line of the
/// result ends with a line break.
pub(crate) fn unified_diff(before: &[String], after: &[String]) -> Option<String> {
    let blocks = Matcher::new(before, after).blocks()?;
    let mut text = String::new();
    for hunk in hunks(parts(&blocks)) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
            continue;
        };
        let of_before = range(first.before.0, last.before.1);
        let of_after = range(first.after.0, last.after.1);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "@@ -{of_before} +{of_after} @@");
        for part in &hunk {
            let lines = |all: &[String], (from, to): (usize, usize), mark: char| {
                let lines = all.get(from..to).unwrap_or_default().iter();
                lines
                    .map(|line| format!("{mark}{line}\n"))
                    .collect::<String>()
            };
            if part.is_equal {
                text += &lines(before, part.before, ' ');
            } else {
                text += &lines(before, part.before, '-');
                text += &lines(after, part.after, '+');
            }
        }
    }
    Some(text)
}

/// Lines as the header of a hunk names them.
fn range(from: usize, to: usize) -> String {
    match to - from {
        0 => format!("{from},0"),
        1 => (from + 1).to_string(),
        lines => format!("{},{lines}", from + 1),
    }
}

/// Finds the blocks of lines that two texts have in common.
struct Matcher<'a> {
    before: &'a [String],
    after: &'a [String],
    /// The places of each line in the second text, without frequent lines.
    places: FxHashMap<&'a str, Vec<usize>>,
    work_left: usize,
}

impl<'a> Matcher<'a> {
    fn new(before: &'a [String], after: &'a [String]) -> Self {
        let mut places: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        for (i, line) in after.iter().enumerate() {
            places.entry(line).or_default().push(i);
        }
        if after.len() >= FREQUENT_FROM {
            let occurrences_max = after.len() / 100 + 1;
            places.retain(|_, places| places.len() <= occurrences_max);
        }
        Self {
            before,
            after,
            places,
            work_left: WORK_MAX,
        }
    }

    /// The blocks in order; adjacent blocks are joined. The last block is empty, at the end of both texts.
    fn blocks(mut self) -> Option<Vec<MatchingBlock>> {
        let ends = (self.before.len(), self.after.len());
        let mut found = Vec::new();
        let mut open = vec![((0, ends.0), (0, ends.1))];
        while let Some((before, after)) = open.pop() {
            let Some(block) = self.longest(before, after)? else {
                continue;
            };
            found.push(block);
            let left = ((before.0, block.before), (after.0, block.after));
            let right = (
                (block.before + block.lines, before.1),
                (block.after + block.lines, after.1),
            );
            for (before, after) in [left, right] {
                if before.0 < before.1 && after.0 < after.1 {
                    open.push((before, after));
                }
            }
        }
        found.sort_unstable();
        let mut blocks: Vec<MatchingBlock> = Vec::new();
        for block in found {
            match blocks.last_mut() {
                Some(last)
                    if last.before + last.lines == block.before
                        && last.after + last.lines == block.after =>
                {
                    last.lines += block.lines;
                }
                _ => blocks.push(block),
            }
        }
        blocks.push(MatchingBlock {
            before: ends.0,
            after: ends.1,
            lines: 0,
        });
        Some(blocks)
    }

    /// The longest block within ranges of both texts, the first of equals. The outer `None` means too much work.
    fn longest(
        &mut self,
        before: (usize, usize),
        after: (usize, usize),
    ) -> Option<Option<MatchingBlock>> {
        let mut best = MatchingBlock {
            before: before.0,
            after: after.0,
            lines: 0,
        };
        // The lengths of the blocks that end at the previous line and at a line of the second text.
        let mut lengths: FxHashMap<usize, usize> = FxHashMap::default();
        for i in before.0..before.1 {
            let mut next = FxHashMap::default();
            let line = self.before.get(i).map_or("", String::as_str);
            let places = self.places.get(line).map_or(&[][..], Vec::as_slice);
            self.work_left = self.work_left.checked_sub(1 + places.len())?;
            for j in places
                .iter()
                .copied()
                .filter(|j| (after.0..after.1).contains(j))
            {
                let shorter = j.checked_sub(1).and_then(|j| lengths.get(&j));
                let lines = shorter.map_or(1, |shorter| shorter + 1);
                next.insert(j, lines);
                if lines > best.lines {
                    best = MatchingBlock {
                        before: i + 1 - lines,
                        after: j + 1 - lines,
                        lines,
                    };
                }
            }
            lengths = next;
        }
        // Frequent lines next to the block belong to it.
        let is_equal = |i: usize, j: usize| self.before.get(i) == self.after.get(j);
        while best.before > before.0
            && best.after > after.0
            && is_equal(best.before - 1, best.after - 1)
        {
            best.before -= 1;
            best.after -= 1;
            best.lines += 1;
        }
        while best.before + best.lines < before.1
            && best.after + best.lines < after.1
            && is_equal(best.before + best.lines, best.after + best.lines)
        {
            best.lines += 1;
        }
        Some((best.lines > 0).then_some(best))
    }
}

/// The equal and the different parts of the texts, in order.
fn parts(blocks: &[MatchingBlock]) -> Vec<DiffPart> {
    let mut parts = Vec::new();
    let (mut before, mut after) = (0, 0);
    for block in blocks {
        if before < block.before || after < block.after {
            parts.push(DiffPart {
                is_equal: false,
                before: (before, block.before),
                after: (after, block.after),
            });
        }
        (before, after) = (block.before + block.lines, block.after + block.lines);
        if block.lines > 0 {
            parts.push(DiffPart {
                is_equal: true,
                before: (block.before, before),
                after: (block.after, after),
            });
        }
    }
    parts
}

/// The differences with the equal lines around them. Differences that are farther apart than twice the context are in
/// separate hunks.
fn hunks(mut parts: Vec<DiffPart>) -> Vec<Vec<DiffPart>> {
    let last_lines = |part: DiffPart| DiffPart {
        before: (
            part.before.0.max(part.before.1.saturating_sub(CONTEXT)),
            part.before.1,
        ),
        after: (
            part.after.0.max(part.after.1.saturating_sub(CONTEXT)),
            part.after.1,
        ),
        ..part
    };
    let first_lines = |part: DiffPart| DiffPart {
        before: (part.before.0, part.before.1.min(part.before.0 + CONTEXT)),
        after: (part.after.0, part.after.1.min(part.after.0 + CONTEXT)),
        ..part
    };
    if let Some(first) = parts.first_mut().filter(|part| part.is_equal) {
        *first = last_lines(*first);
    }
    if let Some(last) = parts.last_mut().filter(|part| part.is_equal) {
        *last = first_lines(*last);
    }
    let mut hunks = Vec::new();
    let mut hunk = Vec::new();
    for part in parts {
        if part.is_equal && part.before.1 - part.before.0 > 2 * CONTEXT {
            hunk.push(first_lines(part));
            hunks.push(std::mem::take(&mut hunk));
            hunk.push(last_lines(part));
        } else {
            hunk.push(part);
        }
    }
    hunks.push(hunk);
    hunks.retain(|hunk| hunk.iter().any(|part| !part.is_equal));
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// The expected texts equal Python's `difflib.unified_diff`.
    #[test]
    fn differences_are_shown_with_three_lines_around_them() {
        for (before, after, expected) in [
            ("a b", "a b", ""),
            ("", "a", "@@ -0,0 +1 @@\n+a\n"),
            ("a", "", "@@ -1 +0,0 @@\n-a\n"),
            ("a b c", "a x c", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"),
            (
                "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15",
                "1 2 3 4 x 6 7 8 9 10 11 12 13 14",
                "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n@@ -12,4 +12,3 @@\n 12\n 13\n 14\n-15\n",
            ),
            (
                "a b c d e f",
                "c d e x a b",
                "@@ -1,6 +1,6 @@\n-a\n-b\n c\n d\n e\n-f\n+x\n+a\n+b\n",
            ),
        ] {
            let found = unified_diff(&lines(before), &lines(after));
            assert_eq!(found.as_deref(), Some(expected), "{before} -> {after}");
        }
    }

    #[test]
    fn frequent_lines_extend_blocks_but_begin_none() {
        let mut before: Vec<String> = vec!["null".to_owned(); 250];
        before[100] = "a".to_owned();
        let mut after = before.clone();
        after.insert(50, "x".to_owned());
        let found = unified_diff(&before, &after);
        let expected = "@@ -48,6 +48,7 @@\n null\n null\n null\n+x\n null\n null\n null\n";
        assert_eq!(found.as_deref(), Some(expected));
    }

    #[test]
    fn the_search_is_given_up_when_it_takes_too_long() {
        let texts = |shift: usize| -> Vec<String> {
            (0..60_000)
                .map(|i| ((i * shift) % 1_009).to_string())
                .collect()
        };
        assert_eq!(unified_diff(&texts(7), &texts(11)), None);
    }
}
