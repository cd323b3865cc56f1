//! "Did you mean …?"

/// The candidate that is most like `name`, if one is like it at all: at most a third of the letters differ, case aside
/// (Levenshtein).
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let (distance, best) = candidates
        .into_iter()
        .map(|known| (strsim::levenshtein(&name, &known.to_lowercase()), known))
        .min_by_key(|(distance, _)| *distance)?;
    (distance <= name.chars().count().div_ceil(3)).then_some(best)
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
