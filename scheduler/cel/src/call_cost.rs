//! The costs of calls: the rule of each overload, and the cost of an evaluated call.
//!
//! The estimates by the same rules are in [`cost`](crate::cost).

use crate::limits::COST_MAX;
use crate::value::CelValue;

/// The cost of reading a variable or field.
pub(crate) const SELECT: u64 = 1;
/// The cost of forming a list.
pub(crate) const LIST: u64 = 10;
/// The cost of forming a map.
pub(crate) const MAP: u64 = 30;
/// Forming a message costs this.
pub(crate) const MESSAGE: u64 = 40;
/// The cost of reading a character of a text.
pub(crate) const TEXT_FACTOR: f64 = 0.1;
/// The cost of a character of a regular expression, for each part of a text.
pub(crate) const REGEX_FACTOR: f64 = 0.25;

/// The product, rounded up.
pub(crate) fn scaled(value: u64, factor: f64) -> u64 {
    // The conversion saturates.
    (value as f64 * factor).ceil() as u64
}

/// The rule for the cost of a call. Operands are the target, if there is one, and the arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallCost {
    /// One, whatever the operands.
    One,
    /// The text of the first operand is read this number of times.
    Reads(f64),
    /// The text of the first operand is read, and the result is as long.
    Maps,
    Replace,
    Split,
    Join,
    /// A regular expression searches a text for its matches.
    Find,
    /// A regular expression tests a text.
    Matches,
    ToBytes,
    FromBytes,
    Quote,
    /// `startsWith` and `endsWith`.
    Affix,
    Contains,
    AddTexts,
    AddLists,
    /// `==`, which costs one for some types.
    Equal,
    /// Two values of any size.
    Compare,
    /// `in` a list.
    IsIn,
    Logical,
    Conditional,
    /// The elements of the first operand are read.
    Elements,
    /// The values of an attribute.
    Includes,
    Slice,
    Range,
    Reverse,
    Flatten,
    FlattenTo,
    /// Each element of the operand at this index is compared with each other element.
    SelfCompared {
        operand: usize,
        are_texts: bool,
    },
    /// Each element of a list is compared with each element of the other list, this number of times.
    Sets(u64),
    InNetwork {
        is_network: bool,
        is_text: bool,
    },
    /// A named format tests a text.
    Format,
}

impl CallCost {
    /// The rule of an overload. The overload is empty if it is chosen only when the call is evaluated.
    pub(crate) fn of(function: &str, overload: &str) -> Self {
        match (function, overload) {
            (_, "list_slice") => Self::Slice,
            (_, "lists_range") => Self::Range,
            (_, "list_reverse") => Self::Reverse,
            (_, "list_flatten") => Self::Flatten,
            (_, "list_flatten_int") => Self::FlattenTo,
            (_, "list_distinct") => Self::SelfCompared {
                operand: 0,
                are_texts: false,
            },
            ("sort" | "@sortByAssociatedKeys", id) if !id.is_empty() => Self::SelfCompared {
                operand: usize::from(function != "sort"),
                are_texts: id.contains("_string_") || id.contains("_bytes_"),
            },
            (_, "list_sets_contains_list" | "list_sets_intersects_list") => Self::Sets(1),
            (_, "list_sets_equivalent_list") => Self::Sets(2),
            ("includes", _) => Self::Includes,
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", _) => Self::Elements,
            ("url" | "lowerAscii" | "upperAscii" | "substring" | "trim", _) => Self::Maps,
            ("ip", "cidr_ip") => Self::One,
            (
                "ip" | "isIP" | "cidr" | "isCIDR" | "quantity" | "isQuantity" | "semver"
                | "isSemver",
                _,
            )
            | (_, "string_format") => Self::Reads(1.0),
            ("ip.isCanonical", _) => Self::Reads(2.0),
            ("replace", _) => Self::Replace,
            ("split", _) => Self::Split,
            ("join", _) => Self::Join,
            ("find" | "findAll", _) => Self::Find,
            ("containsIP" | "containsCIDR", id) => Self::InNetwork {
                is_network: function == "containsCIDR",
                is_text: id.ends_with("_string"),
            },
            ("validate", _) => Self::Format,
            ("_==_", _) => Self::Equal,
            (_, "not_equals") => Self::Compare,
            (_, "string_to_bytes") => Self::ToBytes,
            (_, "bytes_to_string") => Self::FromBytes,
            (_, "strings_quote") => Self::Quote,
            (_, "starts_with_string" | "ends_with_string") => Self::Affix,
            (_, "in_list") => Self::IsIn,
            (_, "matches_string") => Self::Matches,
            (_, "contains_string") => Self::Contains,
            (_, "logical_or" | "logical_and") => Self::Logical,
            (_, "conditional") => Self::Conditional,
            (_, "add_string" | "add_bytes") => Self::AddTexts,
            (_, "add_list") => Self::AddLists,
            (_, id)
                if (id.starts_with("less_") || id.starts_with("greater_"))
                    && (id.ends_with("_string") || id.ends_with("_bytes")) =>
            {
                Self::Compare
            }
            _ => Self::One,
        }
    }

    /// The cost of a call with these operands that returned `result`.
    pub(crate) fn actual(self, args: &[CelValue], result: &CelValue) -> u64 {
        let size = |index: usize| args.get(index).map_or(1, CelValue::size);
        let text = |index: usize| scaled(size(index), TEXT_FACTOR);
        match self {
            Self::One | Self::AddLists | Self::Logical | Self::Conditional | Self::Includes => 1,
            Self::Reads(times) => scaled(size(0), times * TEXT_FACTOR),
            Self::Maps | Self::ToBytes | Self::FromBytes | Self::Quote | Self::Affix => text(0),
            Self::Replace | Self::Split => scaled(size(0), 2.0 * TEXT_FACTOR),
            Self::Join => scaled(result.size(), 2.0 * TEXT_FACTOR),
            Self::Find | Self::Matches => {
                scaled(size(0) + 1, TEXT_FACTOR) * scaled(size(1), REGEX_FACTOR)
            }
            Self::Contains => text(0) * text(1),
            Self::AddTexts => scaled(size(0) + size(1), TEXT_FACTOR),
            Self::Equal
                if matches!(
                    args.first(),
                    Some(
                        CelValue::Quantity(_)
                            | CelValue::Ip(_)
                            | CelValue::Cidr(_)
                            | CelValue::Format(_)
                            | CelValue::Url(_)
                            | CelValue::Semver(_)
                    )
                ) =>
            {
                1
            }
            Self::Equal | Self::Compare => scaled(size(0).min(size(1)), TEXT_FACTOR),
            Self::IsIn => size(1),
            Self::Elements => {
                let mut left = COST_MAX;
                args.first().map_or(1, |list| traversal(list, &mut left))
            }
            Self::Slice | Self::Range | Self::Reverse => list_call(1.0, result.size()),
            Self::Flatten => list_call(1.0, size(0)),
            Self::FlattenTo => match args.get(1) {
                Some(CelValue::Int(depth)) => list_call(*depth as f64, size(0)),
                _ => list_call(1.0, size(0)),
            },
            Self::SelfCompared { operand, .. } => args.get(operand).map_or(1, self_compared),
            Self::Sets(times) => 1 + times * size(0) * size(1),
            Self::InNetwork {
                is_network,
                is_text,
            } => {
                let of_network = if is_network { text(0) + 1 } else { 0 };
                let of_text = if is_text { text(1) } else { 0 };
                scaled(2 * size(0), TEXT_FACTOR) + of_network + of_text
            }
            Self::Format => match args {
                [CelValue::Format(format), text] => {
                    scaled(text.size() + 1, TEXT_FACTOR)
                        * scaled(format.regex_length(), REGEX_FACTOR)
                }
                _ => 1,
            },
        }
    }
}

/// The cost of reading a value with all its parts. At most `left` parts are counted.
fn traversal(value: &CelValue, left: &mut u64) -> u64 {
    if *left == 0 {
        return 0;
    }
    *left -= 1;
    match value {
        CelValue::String(text) => (text.len() as f64 * TEXT_FACTOR) as u64,
        CelValue::Bytes(bytes) => (bytes.len() as f64 * TEXT_FACTOR) as u64,
        CelValue::List(elements) => elements
            .iter()
            .fold(0, |sum, element| sum + traversal(element, left)),
        CelValue::Map(map) => map.iter().fold(0, |sum, (key, value)| {
            sum + traversal(&key.value(), left) + traversal(value, left)
        }),
        _ => 1,
    }
}

/// A call that forms a list.
fn list_call(factor: f64, size: u64) -> u64 {
    (size as f64 * factor) as u64 + 1 + LIST
}

fn self_compared(list: &CelValue) -> u64 {
    let count = list.size();
    let first = match list {
        CelValue::List(elements) => elements.first(),
        _ => None,
    };
    // Texts are compared character by character, which costs more.
    let factor = match first {
        Some(CelValue::String(_) | CelValue::Bytes(_)) => 2.0 + TEXT_FACTOR,
        _ => 2.0,
    };
    list_call(factor, count * count)
}
