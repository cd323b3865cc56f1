//! The estimated costs of calls.

use super::{CostRange, Estimator, LIST, REGEX_FACTOR, TEXT_FACTOR, scaled};
use crate::ast::{ACCUMULATOR, Expr, Literal, NodeKind};
use crate::types::Type;

/// The longest regular expression that a named format has.
const FORMAT_REGEX_LENGTH: u64 = 128;
/// The longest named format.
const FORMAT_LENGTH: u64 = 64;
/// The most values of an attribute.
const ATTRIBUTE_VALUES: u64 = 48;
/// The bytes of an IP address.
const ADDRESS_LENGTH: CostRange = CostRange { min: 4, max: 16 };

/// The cost of a call, and the size of its result if that is known.
pub(super) struct CallCost {
    pub(super) cost: CostRange,
    pub(super) result_size: Option<CostRange>,
}

impl CallCost {
    fn of(cost: CostRange) -> Self {
        Self {
            cost,
            result_size: None,
        }
    }

    fn sized(cost: CostRange, result_size: CostRange) -> Self {
        Self {
            cost,
            result_size: Some(result_size),
        }
    }
}

/// A call that forms a list.
fn list_call(factor: f64, size: CostRange) -> CallCost {
    let cost = size.scaled(factor).plus(CostRange::exactly(1 + LIST));
    CallCost::sized(cost, size)
}

/// A constant integer.
fn constant(expr: &Expr, default: u64) -> u64 {
    match expr.kind {
        NodeKind::Literal(Literal::Int(value)) => u64::try_from(value).unwrap_or(0),
        _ => default,
    }
}

/// Returns whether a call of a library costs one, whatever its arguments.
pub(super) fn costs_one(function: &str, overload: &str) -> bool {
    match function {
        "ip" => overload == "cidr_ip",
        "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "format.named"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => true,
        _ => false,
    }
}

impl<'c> Estimator<'c> {
    /// The estimate for a call of an overload. The costs of the arguments are part of it, that of the target is not.
    pub(super) fn call_cost(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        target: Option<&'c Expr>,
        args: &'c [Expr],
        arg_costs: &[CostRange],
    ) -> CallCost {
        let of_args = arg_costs
            .iter()
            .fold(CostRange::ZERO, |sum, cost| sum.plus(*cost));
        let of_library = self
            .list_cost(overload, target, args)
            .or_else(|| self.library_cost(function, overload, target, args));
        if let Some(call) = of_library {
            return CallCost {
                cost: call.cost.plus(of_args),
                ..call
            };
        }
        self.standard_cost(expr, overload, target, args, arg_costs, of_args)
    }

    /// The size of an argument, also of one that an accumulator leads to.
    fn argument_size(&mut self, expr: &'c Expr) -> CostRange {
        if let Some(size) = self.size(expr) {
            return size;
        }
        let path = self.path(expr);
        if path.first().is_some_and(|root| root == ACCUMULATOR) {
            return CostRange::UNKNOWN;
        }
        self.size_of_path(&path).unwrap_or(CostRange::UNKNOWN)
    }

    fn list_cost(
        &mut self,
        overload: &str,
        target: Option<&'c Expr>,
        args: &'c [Expr],
    ) -> Option<CallCost> {
        Some(match (overload, target, args) {
            ("list_slice", Some(target), [start, end]) => {
                let size = self.argument_size(target);
                let length = constant(end, size.max).wrapping_sub(constant(start, 0));
                list_call(1.0, CostRange::exactly(length))
            }
            ("lists_range", None, [end]) => {
                list_call(1.0, CostRange::exactly(constant(end, u64::MAX)))
            }
            ("list_reverse", Some(target), []) => list_call(1.0, self.argument_size(target)),
            ("list_flatten", Some(target), []) => list_call(1.0, self.argument_size(target)),
            ("list_flatten_int", Some(target), [depth]) => {
                let factor = constant(depth, u64::MAX) as f64;
                list_call(factor, self.argument_size(target))
            }
            ("list_distinct", Some(target), []) => {
                let size = self.argument_size(target);
                list_call(2.0, size.times(size))
            }
            (_, Some(target), args) if overload.starts_with("list_") => {
                let sorted = match args {
                    [] if overload.ends_with("_sort") => target,
                    [keys] if overload.ends_with("_sortByAssociatedKeys") => keys,
                    _ => return None,
                };
                let is_text = overload.contains("_string_") || overload.contains("_bytes_");
                let factor = if is_text { 2.0 + TEXT_FACTOR } else { 2.0 };
                let size = self.argument_size(sorted);
                list_call(factor, size.times(size))
            }
            (
                "list_sets_contains_list"
                | "list_sets_intersects_list"
                | "list_sets_equivalent_list",
                None,
                [a, b],
            ) => {
                let factor = if overload == "list_sets_equivalent_list" {
                    2.0
                } else {
                    1.0
                };
                let product = self.argument_size(a).times(self.argument_size(b));
                CallCost::of(product.scaled(factor).plus(CostRange::ONE))
            }
            _ => return None,
        })
    }

    /// The type of the elements of a list, or of the first parameter of another type, and their size.
    fn elements(&mut self, list: &'c Expr) -> Option<(&'c Type, CostRange)> {
        let of: &'c Type = match self.type_of(list) {
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => of,
            Type::Map(entry) => &entry.0,
            _ => return None,
        };
        let mut path = self.path(list);
        let is_accumulator = path.first().is_some_and(|root| root == ACCUMULATOR);
        let size = if path.is_empty() || is_accumulator {
            None
        } else {
            path.push("@items".to_owned());
            self.size_of_path(&path)
        };
        Some((of, size.unwrap_or(CostRange::UNKNOWN)))
    }

    fn library_cost(
        &mut self,
        function: &str,
        overload: &str,
        target: Option<&'c Expr>,
        args: &'c [Expr],
    ) -> Option<CallCost> {
        let one = Some(CallCost::of(CostRange::ONE));
        match (function, target, args) {
            ("includes", Some(_), _) => {
                let values = CostRange {
                    min: 0,
                    max: ATTRIBUTE_VALUES,
                };
                Some(CallCost::of(values))
            }
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                let size = self.argument_size(target);
                let cost = match self.elements(target) {
                    Some((Type::String | Type::Bytes, element)) => {
                        size.times(element.scaled(TEXT_FACTOR).plus(CostRange::ONE))
                    }
                    Some(_) => size,
                    None => size.scaled(TEXT_FACTOR),
                };
                Some(CallCost::of(cost))
            }
            ("url", _, [text]) => {
                let size = self.argument_size(text);
                Some(CallCost::sized(size.scaled(TEXT_FACTOR), size))
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                let size = self.argument_size(target);
                Some(CallCost::sized(size.scaled(TEXT_FACTOR), size))
            }
            ("replace", Some(target), [old, new, ..]) => {
                let size = self.argument_size(target);
                let (old, new) = (self.argument_size(old), self.argument_size(new));
                let cost = size.scaled(2.0 * TEXT_FACTOR);
                Some(CallCost::sized(cost, replaced_size(size, old, new)))
            }
            ("split", Some(target), args) => {
                let size = self.argument_size(target);
                let max = match args {
                    [_, limit, ..] => match limit.kind {
                        NodeKind::Literal(Literal::Int(limit)) => limit as u64,
                        _ => size.max,
                    },
                    _ => size.max,
                };
                let cost = size.scaled(2.0 * TEXT_FACTOR);
                Some(CallCost::sized(cost, CostRange { min: 0, max }))
            }
            ("join", Some(target), args) => {
                let count = self.argument_size(target);
                let mut size = match self.elements(target) {
                    Some((_, element)) => count.times(element),
                    None => CostRange::ZERO,
                };
                if let [separator, ..] = args {
                    let separators = CostRange {
                        min: count.min.saturating_sub(1),
                        max: count.max.saturating_sub(1),
                    };
                    size = size.plus(self.argument_size(separator).times(separators));
                }
                Some(CallCost::sized(size.scaled(TEXT_FACTOR), size))
            }
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let size = self.argument_size(target);
                let text = size.plus(CostRange::ONE).scaled(TEXT_FACTOR);
                let regex = self.argument_size(pattern).scaled(REGEX_FACTOR);
                let result = CostRange {
                    min: 0,
                    max: size.max,
                };
                Some(CallCost::sized(text.times(regex), result))
            }
            _ if costs_one(function, overload) => one,
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
                | "isSemver",
                _,
                [text, ..],
            ) => Some(CallCost::of(self.argument_size(text).scaled(TEXT_FACTOR))),
            ("ip.isCanonical", _, [text, ..]) => Some(CallCost::of(
                self.argument_size(text).scaled(2.0 * TEXT_FACTOR),
            )),
            ("containsIP" | "containsCIDR", _, [other, ..]) => {
                let mut cost = ADDRESS_LENGTH.plus(ADDRESS_LENGTH).scaled(TEXT_FACTOR);
                if function == "containsCIDR" {
                    cost = cost
                        .plus(ADDRESS_LENGTH.scaled(TEXT_FACTOR))
                        .plus(CostRange::ONE);
                }
                if overload.ends_with("_string") {
                    cost = cost.plus(self.argument_size(other).scaled(TEXT_FACTOR));
                }
                Some(CallCost::of(cost))
            }
            ("validate", _, [text, ..]) => {
                let regex = FORMAT_REGEX_LENGTH as f64 * REGEX_FACTOR;
                let cost = self.argument_size(text).scaled(TEXT_FACTOR).scaled(regex);
                Some(CallCost::of(cost))
            }
            ("_==_", _, [a, b]) if self.type_of(a) == self.type_of(b) => match self.type_of(a) {
                Type::Object("kubernetes.NamedFormat") => Some(CallCost::of(CostRange {
                    min: 1,
                    max: scaled(FORMAT_LENGTH, TEXT_FACTOR),
                })),
                Type::Object("kubernetes.URL") => {
                    let max = self.size(b).map_or(1, |size| size.max);
                    let size = CostRange { min: 1, max };
                    Some(CallCost::of(size.scaled(TEXT_FACTOR)))
                }
                Type::Object("kubernetes.Quantity" | "kubernetes.Semver") | Type::Opaque(_) => one,
                _ => None,
            },
            _ => None,
        }
    }

    fn standard_cost(
        &mut self,
        expr: &Expr,
        overload: &str,
        target: Option<&'c Expr>,
        args: &'c [Expr],
        arg_costs: &[CostRange],
        of_args: CostRange,
    ) -> CallCost {
        let cost = match (overload, target, args) {
            ("string_format", Some(target), _) => self.size_or_unknown(target).scaled(TEXT_FACTOR),
            ("string_to_bytes", _, [text]) => {
                let size = self.size_or_unknown(text);
                let result = CostRange {
                    min: size.min,
                    max: size.max.wrapping_mul(4),
                };
                return CallCost::sized(size.scaled(TEXT_FACTOR).plus(of_args), result);
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = self.size_or_unknown(bytes);
                let result = CostRange {
                    min: size.min / 4,
                    max: size.max,
                };
                return CallCost::sized(size.scaled(TEXT_FACTOR).plus(of_args), result);
            }
            ("strings_quote", _, [text]) => {
                let size = self.size_or_unknown(text);
                let result = CostRange {
                    min: size.min.wrapping_add(2),
                    max: size.max.wrapping_mul(2).wrapping_add(2),
                };
                return CallCost::sized(size.scaled(TEXT_FACTOR).plus(of_args), result);
            }
            ("starts_with_string" | "ends_with_string", _, [part]) => {
                self.size_or_unknown(part).scaled(TEXT_FACTOR)
            }
            ("in_list", _, [_, list]) => self.size_or_unknown(list),
            ("matches_string", Some(target), [pattern]) => {
                let text = self.size_or_unknown(target).plus(CostRange::ONE);
                let regex = self.size_or_unknown(pattern).scaled(REGEX_FACTOR);
                text.scaled(TEXT_FACTOR).times(regex)
            }
            ("contains_string", Some(target), [part]) => {
                let text = self.size_or_unknown(target).scaled(TEXT_FACTOR);
                text.times(self.size_or_unknown(part).scaled(TEXT_FACTOR))
            }
            ("logical_or" | "logical_and", ..) => {
                let min = arg_costs.first().map_or(0, |cost| cost.min);
                return CallCost::of(CostRange {
                    min,
                    max: of_args.max,
                });
            }
            ("conditional", _, [_, truthy, falsy]) => {
                let size = self
                    .size_or_unknown(truthy)
                    .union(self.size_or_unknown(falsy));
                let entries = self.entry_sizes(truthy).zip(self.entry_sizes(falsy));
                if let Some((a, b)) = entries {
                    self.entries.insert(expr.id, a.union(b));
                }
                let branches = arg_costs[1].union(arg_costs[2]);
                return CallCost::sized(arg_costs[0].plus(branches), size);
            }
            ("add_string" | "add_bytes" | "add_list", _, [a, b]) => {
                let size = self.size_or_unknown(a).plus(self.size_or_unknown(b));
                let entries = self.entry_sizes(a).zip(self.entry_sizes(b));
                if let Some((a, b)) = entries {
                    self.entries.insert(expr.id, a.union(b));
                }
                let cost = if overload == "add_list" {
                    CostRange::ONE
                } else {
                    size.scaled(TEXT_FACTOR)
                };
                return CallCost::sized(cost.plus(of_args), size);
            }
            (_, _, [a, b]) if compares_texts(overload) => {
                let max = self.size_or_unknown(a).max.min(self.size_or_unknown(b).max);
                let size = CostRange {
                    min: u64::from(max > 0),
                    max,
                };
                size.scaled(TEXT_FACTOR)
            }
            _ => CostRange::ONE,
        };
        CallCost::of(cost.plus(of_args))
    }
}

/// Returns whether an overload compares values of any size.
pub(super) fn compares_texts(overload: &str) -> bool {
    let comparison = ["less_", "greater_"]
        .iter()
        .any(|prefix| overload.starts_with(prefix));
    matches!(overload, "equals" | "not_equals")
        || comparison && (overload.ends_with("_string") || overload.ends_with("_bytes"))
}

/// The size of a text after parts were replaced.
fn replaced_size(size: CostRange, old: CostRange, new: CostRange) -> CostRange {
    let (mut count, mut kept) = (CostRange::ZERO, CostRange::ZERO);
    if old.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if new.max <= old.min {
        kept.max = size.max;
    } else {
        count.max = (size.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if old.max <= new.min {
        kept.min = size.min;
    } else {
        count.min = (size.min as f64 / old.max as f64).ceil() as u64;
    }
    count.times(new).plus(kept)
}
