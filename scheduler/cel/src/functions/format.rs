//! `text.format(args)`: clauses such as `%s` and `%.2f` are replaced by arguments.
//!
//! Fixed-point and scientific numbers are written as in American English: `1,234.50`, `1.500000×10⁰³`.

use super::{Declaration, FunctionContext, check_value_size, convert};
use crate::ast::{Expr, ExprId, NodeKind};
use crate::error::EvaluationError;
use crate::types::Type;
use crate::value::{CelValue, EvalResult, Map, MapKey, Steps};

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "format", "string_format", ".string, list(dyn) -> string" => format;
};

const DEFAULT_PRECISION: u8 = 6;

/// A part of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece<'t> {
    Text(&'t str),
    Clause(Verb, Option<u8>),
}

/// The way in which an argument is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Text,
    Decimal,
    Fixed,
    Scientific,
    Binary,
    Octal,
    Hex { upper: bool },
}

impl Verb {
    /// The fault of an argument of this type.
    fn refusal(self, of: &str) -> String {
        let rule = match self {
            Self::Text => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                 durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed => "fixed-point clause can only be used on doubles",
            Self::Scientific => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Octal => "octal clause can only be used on integers",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
        };
        format!("error during formatting: {rule}, was given {of}")
    }
}

/// Calls `each` with the pieces of a format in order; it fails where the format is wrong.
fn pieces<'t, E: From<String>>(
    format: &'t str,
    mut each: impl FnMut(Piece<'t>) -> Result<(), E>,
    mut has_argument: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (text, clause) = rest.split_at(at);
        each(Piece::Text(text))?;
        if let Some(after) = clause.strip_prefix("%%") {
            each(Piece::Text("%"))?;
            rest = after;
            continue;
        }
        has_argument()?;
        let clause = &clause[1..];
        if clause.is_empty() {
            return Err("unexpected end of string".to_owned().into());
        }
        let failed = |why: String| E::from(format!("could not parse formatting clause: {why}"));
        let (precision, clause) = match clause.strip_prefix('.') {
            None => (None, clause),
            Some(clause) => {
                let end = clause.find(|digit: char| !digit.is_ascii_digit());
                let end = end.ok_or_else(|| {
                    failed(
                        "error while parsing precision: could not find end of precision specifier"
                            .to_owned(),
                    )
                })?;
                let number: u64 = clause[..end].parse().map_err(|_| {
                    let digits = &clause[..end];
                    failed(format!(
                        "error while parsing precision: error while converting precision to \
                         integer: {digits:?}"
                    ))
                })?;
                // Upstream's formatter keeps the low byte.
                (Some((number & 0xff) as u8), &clause[end..])
            }
        };
        let Some(letter) = clause.chars().next() else {
            return Err(failed("unexpected end of string".to_owned()));
        };
        let verb = match letter {
            's' => Verb::Text,
            'd' => Verb::Decimal,
            'f' => Verb::Fixed,
            'e' => Verb::Scientific,
            'b' => Verb::Binary,
            'o' => Verb::Octal,
            'x' => Verb::Hex { upper: false },
            'X' => Verb::Hex { upper: true },
            other => {
                return Err(failed(format!(
                    "unrecognized formatting clause \"{other}\""
                )));
            }
        };
        each(Piece::Clause(verb, precision))?;
        rest = &clause[letter.len_utf8()..];
    }
    each(Piece::Text(rest))
}

/// An error while a format is applied.
struct Failed(EvaluationError);

impl From<String> for Failed {
    fn from(message: String) -> Self {
        Self(EvaluationError::Failed(message))
    }
}

fn format(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [CelValue::String(format), CelValue::List(args)] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    let mut text = String::new();
    let next = std::cell::Cell::new(0);
    let steps = &mut *cx.steps;
    let result = pieces::<Failed>(
        format,
        |piece| {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Clause(verb, precision) => {
                    let argument = &args[next.get() - 1];
                    text.push_str(&formatted(verb, precision, argument, steps).map_err(Failed)?);
                }
            }
            check_value_size(text.len()).map_err(Failed)
        },
        || {
            // Arguments are checked when they are used, so text before the first fault costs its steps.
            next.set(next.get() + 1);
            if next.get() > args.len() {
                return Err(format!("index {} out of range", next.get() - 1).into());
            }
            Ok(())
        },
    );
    match result {
        Ok(()) => Ok(CelValue::text(&text)),
        Err(Failed(error)) => Err(error),
    }
}

fn formatted(
    verb: Verb,
    precision: Option<u8>,
    value: &CelValue,
    steps: &mut Steps,
) -> Result<String, EvaluationError> {
    let refused = || EvaluationError::failed(verb.refusal(value.type_name()));
    Ok(match (verb, value) {
        (Verb::Text, value) => return text(value, steps),
        (Verb::Decimal, CelValue::Int(value)) => value.to_string(),
        (Verb::Decimal, CelValue::Uint(value)) => value.to_string(),
        (Verb::Fixed | Verb::Scientific, value) => {
            let number = match value {
                CelValue::Double(number) => *number,
                CelValue::String(name) => match &**name {
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    "-Infinity" => f64::NEG_INFINITY,
                    _ => return Err(refused()),
                },
                _ => return Err(refused()),
            };
            let precision = usize::from(precision.unwrap_or(DEFAULT_PRECISION));
            if verb == Verb::Fixed {
                fixed(number, precision)
            } else {
                // Upstream takes the precision for a width.
                format!("{:>precision$}", scientific(number))
            }
        }
        (Verb::Binary, CelValue::Int(value)) => signed(*value, |value| format!("{value:b}")),
        (Verb::Binary, CelValue::Uint(value)) => format!("{value:b}"),
        (Verb::Binary, CelValue::Bool(value)) => u8::from(*value).to_string(),
        (Verb::Octal, CelValue::Int(value)) => signed(*value, |value| format!("{value:o}")),
        (Verb::Octal, CelValue::Uint(value)) => format!("{value:o}"),
        (Verb::Hex { upper }, value) => {
            let digits = |bytes: &[u8]| -> String {
                bytes.iter().map(|byte| format!("{byte:02x}")).collect()
            };
            let text = match value {
                CelValue::String(text) => digits(text.as_bytes()),
                CelValue::Bytes(bytes) => digits(bytes),
                CelValue::Int(value) => signed(*value, |value| format!("{value:x}")),
                CelValue::Uint(value) => format!("{value:x}"),
                _ => return Err(refused()),
            };
            if upper { text.to_uppercase() } else { text }
        }
        _ => return Err(refused()),
    })
}

fn signed(value: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", digits(value.unsigned_abs()))
}

/// A number that has no digits.
fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value.is_infinite() {
        Some(if value > 0.0 { "∞" } else { "-∞" })
    } else {
        None
    }
}

/// Upstream writes no sign of a zero.
fn unsigned_zero(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value }
}

fn fixed(value: f64, precision: usize) -> String {
    if let Some(special) = special(value) {
        return special.to_owned();
    }
    let text = format!("{:.precision$}", unsigned_zero(value));
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", &*text),
    };
    let (whole, fraction) = match digits.find('.') {
        Some(point) => digits.split_at(point),
        None => (digits, ""),
    };
    let mut grouped = String::with_capacity(text.len() * 4 / 3);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

fn scientific(value: f64) -> String {
    if let Some(special) = special(value) {
        return special.to_owned();
    }
    const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let text = format!("{:.6e}", unsigned_zero(value));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ("⁻", digits),
        None => ("", exponent),
    };
    let raised: String = format!("{digits:0>2}")
        .bytes()
        .map(|digit| SUPERSCRIPTS[usize::from(digit - b'0')])
        .collect();
    format!("{mantissa}×10{sign}{raised}")
}

fn text(value: &CelValue, steps: &mut Steps) -> Result<String, EvaluationError> {
    steps.take(1)?;
    match value {
        CelValue::List(elements) => list(elements, steps),
        CelValue::Map(entries) => map(entries, steps),
        CelValue::Null
        | CelValue::Bool(_)
        | CelValue::Int(_)
        | CelValue::Uint(_)
        | CelValue::Double(_)
        | CelValue::String(_)
        | CelValue::Bytes(_)
        | CelValue::Duration(_)
        | CelValue::Timestamp(_)
        | CelValue::Type(_) => convert(value),
        other => Err(EvaluationError::failed(
            Verb::Text.refusal(other.type_name()),
        )),
    }
}

/// A value inside of a list or map, as a literal of CEL.
fn literal(value: &CelValue, steps: &mut Steps) -> Result<String, EvaluationError> {
    steps.take(1)?;
    Ok(match value {
        CelValue::Double(number) => match special(*number) {
            None => format!("{number:.6}"),
            Some("∞") => "\"+Inf\"".to_owned(),
            Some("-∞") => "\"-Inf\"".to_owned(),
            Some(other) => format!("{other:?}"),
        },
        CelValue::String(text) => quoted(text.as_bytes()),
        CelValue::Bytes(bytes) => format!("b{}", quoted(bytes)),
        CelValue::Duration(_) => format!("duration(\"{}\")", convert(value)?),
        CelValue::Timestamp(_) => format!("timestamp(\"{}\")", convert(value)?),
        CelValue::Optional(_)
        | CelValue::Quantity(_)
        | CelValue::Semver(_)
        | CelValue::Ip(_)
        | CelValue::Cidr(_)
        | CelValue::Url(_)
        | CelValue::Format(_) => {
            let name = value.type_name();
            let message = format!("error during formatting: no formatting function for {name}");
            return Err(EvaluationError::Failed(message));
        }
        other => text(other, steps)?,
    })
}

/// A text in quotation marks, as Go writes it.
fn quoted(bytes: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => quoted.push_str("\\\""),
                '\\' => quoted.push_str("\\\\"),
                '\u{7}' => quoted.push_str("\\a"),
                '\u{8}' => quoted.push_str("\\b"),
                '\u{c}' => quoted.push_str("\\f"),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                '\u{b}' => quoted.push_str("\\v"),
                other if other < ' ' || other == '\u{7f}' => {
                    quoted.push_str(&format!("\\x{:02x}", u32::from(other)));
                }
                other => quoted.push(other),
            }
        }
        for byte in chunk.invalid() {
            quoted.push_str(&format!("\\x{byte:02x}"));
        }
    }
    quoted.push('"');
    quoted
}

fn list(elements: &[CelValue], steps: &mut Steps) -> Result<String, EvaluationError> {
    let mut text = String::from("[");
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(&literal(element, steps)?);
        check_value_size(text.len())?;
    }
    text.push(']');
    Ok(text)
}

fn map(map: &Map, steps: &mut Steps) -> Result<String, EvaluationError> {
    let mut entries = Vec::with_capacity(map.len());
    for (key, value) in map.iter() {
        let key = match key {
            MapKey::String(_) | MapKey::Bool(_) | MapKey::Int(_) | MapKey::Uint(_) => {
                literal(&key.value(), steps)?
            }
            other => {
                let name = other.value().type_name();
                let message = format!(
                    "error during formatting: no formatting function for map key of type {name}"
                );
                return Err(EvaluationError::Failed(message));
            }
        };
        entries.push((key, literal(value, steps)?));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let mut text = String::from("{");
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(&format!("{key}:{value}"));
        check_value_size(text.len())?;
    }
    text.push('}');
    Ok(text)
}

/// The faults of a format and its arguments, and which argument it is.
pub(crate) struct FormatCheck {
    pub(crate) argument: Option<ExprId>,
    pub(crate) message: String,
}

impl From<String> for FormatCheck {
    fn from(message: String) -> Self {
        Self {
            argument: None,
            message,
        }
    }
}

/// Checks a constant format against the types of its arguments.
///
/// # Errors
/// The fault.
pub(crate) fn check_format(
    format: &str,
    args: &[&Expr],
    type_of: &dyn Fn(ExprId) -> Type,
) -> Result<(), FormatCheck> {
    let next = std::cell::Cell::new(0);
    pieces::<FormatCheck>(
        format,
        |piece| match piece {
            Piece::Text(_) => Ok(()),
            Piece::Clause(verb, _) => match args.get(next.get() - 1) {
                Some(argument) => check_argument(verb, argument, type_of),
                None => Err(format!("index {} out of range", next.get() - 1).into()),
            },
        },
        || {
            next.set(next.get() + 1);
            Ok(())
        },
    )?;
    if args.len() > next.get() {
        let (expected, got) = (next.get(), args.len());
        return Err(format!(
            "too many arguments supplied to string.format (expected {expected}, got {got})"
        )
        .into());
    }
    Ok(())
}

fn check_argument(
    verb: Verb,
    argument: &Expr,
    type_of: &dyn Fn(ExprId) -> Type,
) -> Result<(), FormatCheck> {
    let of = type_of(argument.id);
    let fits = match verb {
        Verb::Text => !matches!(
            of,
            Type::Optional(_) | Type::Object(_) | Type::Opaque(_) | Type::Any
        ),
        Verb::Decimal | Verb::Octal => matches!(of, Type::Int | Type::Uint),
        Verb::Fixed | Verb::Scientific => matches!(of, Type::Double | Type::String),
        Verb::Binary => matches!(of, Type::Int | Type::Uint | Type::Bool),
        Verb::Hex { .. } => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
    };
    // A dynamic argument is checked when its value is known.
    if !fits && of != Type::Dyn {
        return Err(FormatCheck {
            argument: Some(argument.id),
            message: verb.refusal(of.name()),
        });
    }
    // The elements of a list are formatted as well, so their types must fit.
    if verb == Verb::Text {
        match &argument.kind {
            NodeKind::List(elements) => {
                for element in elements {
                    check_argument(verb, &element.value, type_of)?;
                }
            }
            NodeKind::Map(entries) => {
                for entry in entries {
                    check_argument(verb, &entry.key, type_of)?;
                    check_argument(verb, &entry.value, type_of)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}
