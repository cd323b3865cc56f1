//! The costs of calls when they are evaluated.

use super::{
    LIST, REGEX_FACTOR, TEXT_FACTOR,
    calls::{compares_texts, costs_one},
    scaled,
};
use crate::value::CelValue;

fn size(args: &[CelValue], index: usize) -> u64 {
    args.get(index).map_or(1, CelValue::size)
}

/// The cost of reading a value with all its parts. Counts at most as many parts as may still be paid for.
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

/// The cost of a call that returned `result`. The overload is empty if it was chosen only when the call was evaluated.
pub(crate) fn of_call(function: &str, overload: &str, args: &[CelValue], result: &CelValue) -> u64 {
    of_list(overload, args, result)
        .or_else(|| of_library(function, overload, args, result))
        .unwrap_or_else(|| of_standard(overload, args))
}

/// A call that forms a list.
fn list_call(factor: f64, size: u64) -> u64 {
    (size as f64 * factor) as u64 + 1 + LIST
}

fn of_list(overload: &str, args: &[CelValue], result: &CelValue) -> Option<u64> {
    let self_compared = |list: &CelValue| {
        let count = list.size();
        let of_texts = match list {
            CelValue::List(elements) => {
                matches!(
                    elements.first(),
                    Some(CelValue::String(_) | CelValue::Bytes(_))
                )
            }
            _ => false,
        };
        // Texts are compared character by character, which costs more.
        let factor = if of_texts { 2.0 + TEXT_FACTOR } else { 2.0 };
        list_call(factor, count * count)
    };
    Some(match overload {
        "list_slice" | "lists_range" | "list_reverse" => list_call(1.0, result.size()),
        "list_flatten" => list_call(1.0, size(args, 0)),
        "list_flatten_int" => match args.get(1) {
            Some(CelValue::Int(depth)) => list_call(*depth as f64, size(args, 0)),
            _ => list_call(1.0, size(args, 0)),
        },
        "list_distinct" => self_compared(args.first()?),
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            1 + size(args, 0) * size(args, 1)
        }
        "list_sets_equivalent_list" => 1 + 2 * size(args, 0) * size(args, 1),
        _ if !overload.starts_with("list_") => return None,
        _ if overload.ends_with("_sort") => self_compared(args.first()?),
        _ if overload.ends_with("_sortByAssociatedKeys") => self_compared(args.get(1)?),
        _ => return None,
    })
}

fn of_library(function: &str, overload: &str, args: &[CelValue], result: &CelValue) -> Option<u64> {
    let first = || size(args, 0);
    Some(match function {
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            traversal(args.first()?, &mut crate::limits::COST_MAX.clone())
        }
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR"
        | "quantity" | "isQuantity" | "semver" | "isSemver" => scaled(first(), TEXT_FACTOR),
        _ if costs_one(function, overload) => 1,
        "ip" => scaled(first(), TEXT_FACTOR),
        "replace" | "split" | "ip.isCanonical" => scaled(first(), 2.0 * TEXT_FACTOR),
        "join" => scaled(result.size(), 2.0 * TEXT_FACTOR),
        "find" | "findAll" => {
            scaled(first() + 1, TEXT_FACTOR) * scaled(size(args, 1), REGEX_FACTOR)
        }
        "containsIP" | "containsCIDR" => {
            let network = first();
            let mut cost = scaled(2 * network, TEXT_FACTOR);
            if function == "containsCIDR" {
                cost += scaled(network, TEXT_FACTOR) + 1;
            }
            if overload.ends_with("_string") {
                cost += scaled(size(args, 1), TEXT_FACTOR);
            }
            cost
        }
        "validate" => match args {
            [CelValue::Format(format), text] => {
                scaled(text.size() + 1, TEXT_FACTOR) * scaled(format.regex_length(), REGEX_FACTOR)
            }
            _ => return None,
        },
        "_==_" => match args.first()? {
            CelValue::Quantity(_)
            | CelValue::Ip(_)
            | CelValue::Cidr(_)
            | CelValue::Format(_)
            | CelValue::Url(_)
            | CelValue::Semver(_) => 1,
            _ => return None,
        },
        _ => return None,
    })
}

fn of_standard(overload: &str, args: &[CelValue]) -> u64 {
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
        | "strings_quote" | "string_format" => scaled(size(args, 0), TEXT_FACTOR),
        "in_list" => size(args, 1),
        "add_string" | "add_bytes" => scaled(size(args, 0) + size(args, 1), TEXT_FACTOR),
        "matches_string" => {
            scaled(size(args, 0) + 1, TEXT_FACTOR) * scaled(size(args, 1), REGEX_FACTOR)
        }
        "contains_string" => {
            scaled(size(args, 0), TEXT_FACTOR) * scaled(size(args, 1), TEXT_FACTOR)
        }
        _ if compares_texts(overload) => scaled(size(args, 0).min(size(args, 1)), TEXT_FACTOR),
        _ => 1,
    }
}
