//! Formats of texts, by name.

use super::{Declaration, FunctionContext};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult, NamedFormat, parse_time, uri_problem};
use berth_api::names;

/// Declares the functions that give a format.
macro_rules! formats {
    ($($name:literal, $function:literal, $format:ident;)*) => {
        fn by_name(name: &str) -> Option<NamedFormat> {
            match name {
                $($name => Some(NamedFormat::$format),)*
                _ => None,
            }
        }

        pub(crate) const DECLARATIONS: &[Declaration] = &[
            $(($function, $function, "-> kubernetes.NamedFormat", |_, _| {
                Ok(CelValue::Format(NamedFormat::$format))
            }),)*
            (
                "format.named",
                "format-named",
                "string -> optional(kubernetes.NamedFormat)",
                named,
            ),
            (
                "validate",
                "format-validate",
                ".kubernetes.NamedFormat, string -> optional(list(string))",
                validate,
            ),
        ];
    };
}

formats! {
    "dns1123Label", "format.dns1123Label", Dns1123Label;
    "dns1123Subdomain", "format.dns1123Subdomain", Dns1123Subdomain;
    "dns1035Label", "format.dns1035Label", Dns1035Label;
    "qualifiedName", "format.qualifiedName", QualifiedName;
    "dns1123LabelPrefix", "format.dns1123LabelPrefix", Dns1123LabelPrefix;
    "dns1123SubdomainPrefix", "format.dns1123SubdomainPrefix", Dns1123SubdomainPrefix;
    "dns1035LabelPrefix", "format.dns1035LabelPrefix", Dns1035LabelPrefix;
    "labelValue", "format.labelValue", LabelValue;
    "uri", "format.uri", Uri;
    "uuid", "format.uuid", Uuid;
    "byte", "format.byte", Byte;
    "date", "format.date", Date;
    "datetime", "format.datetime", DateTime;
}

/// The faults of a text.
fn problems(format: NamedFormat, text: &str) -> Vec<String> {
    let unless = |valid: bool, problem: &str| {
        if valid {
            Vec::new()
        } else {
            vec![problem.to_owned()]
        }
    };
    match format {
        NamedFormat::Dns1123Label => names::dns1123_label(text),
        NamedFormat::Dns1123LabelPrefix => names::dns1123_label(&without_dash(text)),
        NamedFormat::Dns1123Subdomain => names::dns1123_subdomain(text),
        NamedFormat::Dns1123SubdomainPrefix => names::dns1123_subdomain(&without_dash(text)),
        NamedFormat::Dns1035Label => names::dns1035_label(text),
        NamedFormat::Dns1035LabelPrefix => names::dns1035_label(&without_dash(text)),
        NamedFormat::QualifiedName => names::label_key(text),
        NamedFormat::LabelValue => names::label_value(text),
        NamedFormat::Uri => uri_problem(text).into_iter().collect(),
        NamedFormat::Uuid => unless(is_uuid(text), "does not match the UUID format"),
        NamedFormat::Byte => unless(is_base64(text), "invalid base64"),
        NamedFormat::Date => unless(is_date(text), "invalid date"),
        NamedFormat::DateTime => unless(is_date_time(text), "invalid datetime"),
    }
}

/// A name's prefix may end with a dash, which then counts as if other characters followed.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut masked = rest.to_owned();
            masked.pop();
            masked.push('a');
            masked
        }
        _ => text.to_owned(),
    }
}

/// Hexadecimal digits in groups of 8, 4, 4, 4 and 12; a dash between groups may be missing.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else {
            return false;
        };
        if !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

/// Groups of four characters; the last group may be padded. The empty text has no group.
fn is_base64(text: &str) -> bool {
    let data = text.strip_suffix("==").or(text.strip_suffix('='));
    let data = data.unwrap_or(text);
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && data
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
}

fn is_date(text: &str) -> bool {
    text.len() == "2006-01-02".len() && parse_time(&format!("{text}T00:00:00Z")).is_some()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_time(time)
}

/// `hh:mm:ss`, a fraction after any character, and the offset.
fn is_time(text: &str) -> bool {
    let two = |part: Option<&str>, last: &str| {
        part.is_some_and(|part| {
            part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()) && part <= last
        })
    };
    let has_clock = two(text.get(0..2), "23")
        && text.get(2..3) == Some(":")
        && two(text.get(3..5), "59")
        && text.get(5..6) == Some(":")
        && two(text.get(6..8), "59");
    if !has_clock {
        return false;
    }
    let rest = &text[8..];
    let is_offset = |text: &str| match text.as_bytes() {
        [b'z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    };
    if is_offset(rest) {
        return true;
    }
    let mut characters = rest.chars();
    // The pattern of Kubernetes has an unescaped dot, so any character begins the fraction.
    let fraction = match characters.next() {
        Some('\n') | None => return false,
        Some(_) => characters.as_str(),
    };
    let after = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
    after.len() < fraction.len() && is_offset(after)
}

fn named(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [CelValue::String(name)] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    let format = by_name(name).map(CelValue::Format);
    Ok(format.map_or(CelValue::Optional(None), CelValue::some))
}

fn validate(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [CelValue::Format(format), CelValue::String(text)] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    let problems = problems(*format, text);
    if problems.is_empty() {
        Ok(CelValue::Optional(None))
    } else {
        Ok(CelValue::some(CelValue::texts(problems)))
    }
}
