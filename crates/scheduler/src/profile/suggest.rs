//! "Did you mean …?"

/// The candidate that is most like `name`, if one is like it at all: at most a third of the letters differ.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, best) = candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= name.chars().count().div_ceil(3)).then_some(best)
}

/// How many letters must be put in, taken out or changed (Levenshtein), case aside.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().flat_map(char::to_lowercase).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["NodeResourcesFit", "NodeName", "ImageLocality"];
        for (name, suggestion) in [
            ("NodeResourceFit", Some("NodeResourcesFit")),
            ("nodename", Some("NodeName")),
            ("Coscheduling", None),
            ("", None),
        ] {
            assert_eq!(closest(name, known), suggestion, "{name}");
        }
    }
}
