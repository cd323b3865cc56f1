//! The names of fields in expressions.
//!
//! A name that is no identifier of CEL is written with escapes. A reserved word can be written with and without:
//! `self.__namespace__` and `self.namespace` select the same field. All emulated versions of Kubernetes have both.

/// Words of CEL that cannot be names of variables.
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name of a field in an expression; `None` when it cannot be in one.
pub fn escaped(name: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    if let Some(escaped) = escaped_word(name) {
        return Some(escaped);
    }
    let is_fitting = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_fitting) {
        return None;
    }
    let text = name.replace("__", "__underscores__");
    let text = text.replace('.', "__dot__").replace('-', "__dash__");
    Some(text.replace('/', "__slash__"))
}

/// The escaped form of a reserved word; `None` for another name.
pub(crate) fn escaped_word(name: &str) -> Option<String> {
    RESERVED.contains(&name).then(|| format!("__{name}__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_are_escaped() {
        for (name, expect) in [
            ("a", Some("a")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("a__b", Some("a__underscores__b")),
            ("namespace", Some("__namespace__")),
            ("1a", None),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(escaped(name).as_deref(), expect, "{name}");
        }
    }
}
