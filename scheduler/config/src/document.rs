//! Parsing, as in kube-scheduler: the first YAML document counts, and plain scalars have the meaning of YAML 1.1 (`yes`
//! is true, `010` is eight).

use super::error::ConfigError;
use serde_json::Value;

/// The maximum length of a configuration.
const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// The maximum depth of nested objects and lists.
const DEPTH_MAX: usize = 64;
/// The maximum number of values of a document.
const VALUES_MAX: usize = 50_000;
/// The maximum number of aliases, of anchors and of merge keys of a document.
const REFERENCES_MAX: usize = 1_000;

/// Parses the first YAML document; JSON is YAML too. A field that occurs twice is refused.
pub(super) fn parse_text(text: &str) -> Result<Value, ConfigError> {
    let failed = |message: String, hint: Option<&str>| ConfigError {
        path: String::new(),
        message,
        hint: hint.map(str::to_owned),
    };
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the configuration is longer than {TEXT_BYTES_MAX} bytes");
        return Err(failed(message, None));
    }
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
        legacy_octal_numbers: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_nodes: VALUES_MAX,
            max_events: 2 * VALUES_MAX,
            max_aliases: REFERENCES_MAX,
            max_anchors: REFERENCES_MAX,
            max_documents: 1,
            max_total_scalar_bytes: TEXT_BYTES_MAX,
            max_merge_keys: REFERENCES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: VALUES_MAX,
        },
    };
    // kube-scheduler reads the first document only.
    let document = first_document(text);
    serde_saphyr::from_str_with_options::<Value>(document, options).map_err(|error| {
        let why = match error.without_snippet() {
            serde_saphyr::Error::Budget { .. } => format!(
                "the document exceeds a limit: a depth of {DEPTH_MAX}, {VALUES_MAX} values, or {REFERENCES_MAX} \
                 anchors, aliases or merge keys"
            ),
            error => error.to_string(),
        };
        let hint = "the configuration must be a YAML or JSON document";
        failed(format!("strict decoding error: {why}"), Some(hint))
    })
}

/// The text up to the end of the first document. Markers are at the start of a line, where no scalar can have them.
fn first_document(text: &str) -> &str {
    let is_marker = |line: &str, marker: &str| {
        let rest = line.strip_prefix(marker);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
    };
    let mut has_begun = false;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let (starts, ends) = (is_marker(line, "---"), is_marker(line, "..."));
        if has_begun && (starts || ends) {
            return text.get(..end).unwrap_or(text);
        }
        let content = line.trim_start_matches('\u{feff}').trim();
        let is_content = !(content.is_empty() || content.starts_with('#') || line.starts_with('%'));
        has_begun |= starts || is_content;
        end += line.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_document_counts() {
        for (text, first) in [
            ("a: 1", "a: 1"),
            ("a: 1\n---\n", "a: 1\n"),
            ("a: 1\r\n---\r\nb: 2\r\n", "a: 1\r\n"),
            ("---\na: 1\n---\nb: 2\n", "---\na: 1\n"),
            (
                "# about\n\n---\na: 1\n--- # next\nb: 2",
                "# about\n\n---\na: 1\n",
            ),
            ("%YAML 1.1\n---\na: 1\n...\n{", "%YAML 1.1\n---\na: 1\n"),
            ("---\n---\na: 1\n", "---\n"),
            ("a: |\n  ---\n  b\n", "a: |\n  ---\n  b\n"),
            ("a: 1\n----\n---x: 2\n", "a: 1\n----\n---x: 2\n"),
            ("", ""),
        ] {
            assert_eq!(first_document(text), first, "{text:?}");
        }
    }
}
