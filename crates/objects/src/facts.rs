//! The form of the tables of facts: lines of words.

/// The words of a line; a value in double quotes may hold spaces.
pub(crate) fn words(line: &'static str) -> impl Iterator<Item = &'static str> + Clone {
    let mut rest = line.trim();
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        let mut quoted = false;
        let end = rest
            .char_indices()
            .find(|(_, c)| {
                quoted ^= *c == '"';
                *c == ' ' && !quoted
            })
            .map_or(rest.len(), |(i, _)| i);
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}
