//! The wording of errors about fields, as the API's: `path: Invalid value: "x": why`.

use std::collections::BTreeSet;
use std::fmt::Write;

/// A path below another: `parent.child`, or `child` alone at the root.
pub(crate) fn child(parent: &str, child: &str) -> String {
    if parent.is_empty() {
        child.to_owned()
    } else {
        format!("{parent}.{child}")
    }
}

/// A text that breaks a rule.
pub(crate) fn invalid(path: &str, value: &str, detail: &str) -> String {
    format!("{path}: Invalid value: {}: {detail}", quote(value))
}

/// A list of texts that breaks a rule.
pub(crate) fn invalid_list<S: AsRef<str>>(path: &str, values: &[S], detail: &str) -> String {
    let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
    let mut shown = serde_json::Value::from(values.as_slice()).to_string();
    if values.is_empty() {
        // The API does not distinguish an empty list from none.
        shown = "null".to_owned();
    }
    for (character, escaped) in [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026")] {
        shown = shown.replace(character, escaped);
    }
    format!("{path}: Invalid value: {shown}: {detail}")
}

/// A text that is not a supported value.
pub(crate) fn unsupported(path: &str, value: &str, supported: &[&str]) -> String {
    let supported: Vec<String> = supported.iter().map(|value| quote(value)).collect();
    format!(
        "{path}: Unsupported value: {}: supported values: {}",
        quote(value),
        supported.join(", ")
    )
}

/// Several messages as one, as `utilerrors.Aggregate` of apimachinery prints errors: each different one once, in
/// brackets when there are more.
pub fn aggregate(messages: &[String]) -> String {
    let mut known = BTreeSet::new();
    let different = messages.iter().map(String::as_str);
    let different: Vec<&str> = different.filter(|message| known.insert(*message)).collect();
    match different[..] {
        [only] => only.to_owned(),
        _ => format!("[{}]", different.join(", ")),
    }
}

/// `text` in double quotes, escaped as Go writes a string.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        let known = match character {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\x07' => "\\a",
            '\x08' => "\\b",
            '\x0b' => "\\v",
            '\x0c' => "\\f",
            ' '..='~' => {
                quoted.push(character);
                continue;
            }
            _ => "",
        };
        let code = u32::from(character);
        // Writing to a string cannot fail.
        let _ = match code {
            _ if !known.is_empty() => quoted.write_str(known),
            0..0x80 => write!(quoted, "\\x{code:02x}"),
            _ if !character.escape_debug().eq(std::iter::once(character)) => match code {
                0x80..0x1_0000 => write!(quoted, "\\u{code:04x}"),
                _ => write!(quoted, "\\U{code:08x}"),
            },
            _ => quoted.write_char(character),
        };
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_go_does() {
        for (text, quoted) in [
            ("a b", r#""a b""#),
            (r#"a"b\"#, r#""a\"b\\""#),
            ("it's", r#""it's""#),
            ("\n\u{1}\u{7f}", r#""\n\x01\x7f""#),
            ("ä½", r#""ä½""#),
            ("\u{200b}\u{a0}", r#""\u200b\u00a0""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(text), quoted);
        }
    }

    #[test]
    fn messages_aggregate() {
        let messages = |texts: &[&str]| texts.iter().map(|&t| t.to_owned()).collect::<Vec<_>>();
        assert_eq!(aggregate(&messages(&["a"])), "a");
        assert_eq!(aggregate(&messages(&["a", "a"])), "a");
        assert_eq!(aggregate(&messages(&["a", "b", "a"])), "[a, b]");
    }

    #[test]
    fn lists_are_shown_as_json() {
        assert_eq!(
            invalid_list("values", &["a\"b", "<"], "no"),
            r#"values: Invalid value: ["a\"b","\u003c"]: no"#
        );
        assert_eq!(
            invalid_list::<&str>("values", &[], "no"),
            "values: Invalid value: null: no"
        );
    }
}
