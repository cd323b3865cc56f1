//! Texts. Indexes count characters.

use super::{Declaration, FunctionContext, check_value_size};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult};

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "charAt", "string_char_at_int", ".string, int -> string" => char_at;
    "indexOf", "string_index_of_string", ".string, string -> int" => index_of;
    "indexOf", "string_index_of_string_int", ".string, string, int -> int" => index_of;
    "lastIndexOf", "string_last_index_of_string", ".string, string -> int" => last_index_of;
    "lastIndexOf", "string_last_index_of_string_int", ".string, string, int -> int" => last_index_of;
    "lowerAscii", "string_lower_ascii", ".string -> string" => |_, args| mapped(args, str::to_ascii_lowercase);
    "upperAscii", "string_upper_ascii", ".string -> string" => |_, args| mapped(args, str::to_ascii_uppercase);
    "trim", "string_trim", ".string -> string" => |_, args| mapped(args, |text| text.trim().to_owned());
    "replace", "string_replace_string_string", ".string, string, string -> string" => replace;
    "replace", "string_replace_string_string_int", ".string, string, string, int -> string" => replace;
    "split", "string_split_string", ".string, string -> list(string)" => split;
    "split", "string_split_string_int", ".string, string, int -> list(string)" => split;
    "substring", "string_substring_int", ".string, int -> string" => substring;
    "substring", "string_substring_int_int", ".string, int, int -> string" => substring;
    "strings.quote", "strings_quote", "string -> string" => |_, args| mapped(args, quote);
    "join", "list_join", ".list(string) -> string" => join;
    "join", "list_join_string", ".list(string), string -> string" => join;
};

fn out_of_range(index: i64) -> EvaluationError {
    EvaluationError::failed(format!("index out of range: {index}"))
}

fn mapped(args: &[CelValue], map: fn(&str) -> String) -> EvalResult {
    match args {
        [CelValue::String(text)] => Ok(CelValue::text(&map(text))),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// The index, if it is at most the length.
fn within(index: i64, length: usize) -> Result<usize, EvaluationError> {
    usize::try_from(index)
        .ok()
        .filter(|index| *index <= length)
        .ok_or_else(|| out_of_range(index))
}

fn char_at(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [CelValue::String(text), CelValue::Int(index)] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    let at = within(*index, text.chars().count())?;
    let found = text.chars().nth(at).map(String::from);
    Ok(CelValue::text(&found.unwrap_or_default()))
}

/// The text, the part that is looked for and where to start.
type TextSearch = (Vec<char>, Vec<char>, Option<i64>);

fn search(args: &[CelValue]) -> Result<TextSearch, EvaluationError> {
    let (text, part, offset) = match args {
        [CelValue::String(text), CelValue::String(part)] => (text, part, None),
        [
            CelValue::String(text),
            CelValue::String(part),
            CelValue::Int(offset),
        ] => (text, part, Some(*offset)),
        _ => return Err(EvaluationError::no_such_overload()),
    };
    Ok((text.chars().collect(), part.chars().collect(), offset))
}

fn found(index: Option<usize>) -> CelValue {
    CelValue::Int(index.map_or(-1, |index| i64::try_from(index).unwrap_or(i64::MAX)))
}

fn index_of(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (text, part, offset) = search(args)?;
    let offset = offset.unwrap_or(0);
    if part.is_empty() {
        return Ok(CelValue::Int(offset));
    }
    let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if start >= text.len() {
        return Ok(found(None));
    }
    cx.steps.take((text.len() * part.len()) as u64 / 16)?;
    let index = text[start..]
        .windows(part.len())
        .position(|window| window == part);
    Ok(found(index.map(|index| index + start)))
}

fn last_index_of(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (text, part, offset) = search(args)?;
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    if part.is_empty() {
        return Ok(CelValue::Int(offset.unwrap_or(length)));
    }
    if part.len() > text.len() && offset.is_none() {
        return Ok(found(None));
    }
    let offset = offset.unwrap_or(length - 1);
    let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if start >= text.len() {
        return Ok(found(None));
    }
    cx.steps.take((text.len() * part.len()) as u64 / 16)?;
    let index = text
        .windows(part.len())
        .take(start + 1)
        .rposition(|window| window == part);
    Ok(found(index))
}

fn replace(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (text, old, new, limit) = match args {
        [
            CelValue::String(text),
            CelValue::String(old),
            CelValue::String(new),
        ] => (text, old, new, -1),
        [
            CelValue::String(text),
            CelValue::String(old),
            CelValue::String(new),
            CelValue::Int(limit),
        ] => (text, old, new, *limit),
        _ => return Err(EvaluationError::no_such_overload()),
    };
    // An empty text is found before each character and at the end.
    let places = if old.is_empty() {
        text.chars().count() + 1
    } else {
        text.matches(&**old).count()
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(places);
    let growth = new.len().saturating_sub(old.len()).saturating_mul(limit);
    check_value_size(text.len().saturating_add(growth))?;
    Ok(CelValue::text(&text.replacen(&**old, new, limit)))
}

fn split(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (text, separator, limit) = match args {
        [CelValue::String(text), CelValue::String(separator)] => (text, separator, -1),
        [
            CelValue::String(text),
            CelValue::String(separator),
            CelValue::Int(limit),
        ] => (text, separator, *limit),
        _ => return Err(EvaluationError::no_such_overload()),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(CelValue::list(Vec::new()));
    }
    let parts: Vec<CelValue> = if separator.is_empty() {
        characters(text, limit)
            .into_iter()
            .map(CelValue::text)
            .collect()
    } else {
        text.splitn(limit, &**separator)
            .map(CelValue::text)
            .collect()
    };
    Ok(CelValue::list(parts))
}

/// The characters of a text; the last part is the remaining text beyond the limit.
fn characters(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            return parts;
        }
        let (part, after) = rest.split_at(first.len_utf8());
        parts.push(part);
        rest = after;
    }
    parts
}

fn substring(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (text, start, end) = match args {
        [CelValue::String(text), CelValue::Int(start)] => (text, *start, None),
        [
            CelValue::String(text),
            CelValue::Int(start),
            CelValue::Int(end),
        ] => (text, *start, Some(*end)),
        _ => return Err(EvaluationError::no_such_overload()),
    };
    if let Some(end) = end
        && start > end
    {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvaluationError::failed(message));
    }
    let length = text.chars().count();
    let start = within(start, length)?;
    let end = match end {
        Some(end) => within(end, length)?,
        None => length,
    };
    let part: String = text.chars().skip(start).take(end - start).collect();
    Ok(CelValue::text(&part))
}

fn join(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (elements, separator) = match args {
        [CelValue::List(elements)] => (elements, ""),
        [CelValue::List(elements), CelValue::String(separator)] => (elements, &**separator),
        _ => return Err(EvaluationError::no_such_overload()),
    };
    let mut joined = String::new();
    for (index, element) in elements.iter().enumerate() {
        let CelValue::String(text) = element else {
            return Err(EvaluationError::failed("join: invalid input"));
        };
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
        check_value_size(joined.len())?;
    }
    Ok(CelValue::text(&joined))
}
