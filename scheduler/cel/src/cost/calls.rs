//! The estimated costs of calls.

use super::{CostRange, Estimator};
use crate::ast::{ACCUMULATOR, Expr, Literal, NodeKind};
use crate::call_cost::{CallCost, LIST, REGEX_FACTOR, TEXT_FACTOR, scaled};
use crate::types::Type;

/// The longest regular expression that a named format has.
const FORMAT_REGEX_LENGTH: u64 = 128;
/// The longest named format.
const FORMAT_LENGTH: u64 = 64;
/// The most values of an attribute.
const ATTRIBUTE_VALUES: u64 = 48;
/// The bytes of an IP address.
const ADDRESS_LENGTH: CostRange = CostRange { min: 4, max: 16 };

/// A cost, and the size of the result if that is known.
type Estimate = (CostRange, Option<CostRange>);

/// A call that forms a list.
fn list_call(factor: f64, size: CostRange) -> Estimate {
    let cost = size.scaled(factor).plus(CostRange::exactly(1 + LIST));
    (cost, Some(size))
}

/// A constant integer.
fn constant(expr: &Expr, default: u64) -> u64 {
    match expr.kind {
        NodeKind::Literal(Literal::Int(value)) => u64::try_from(value).unwrap_or(0),
        _ => default,
    }
}

impl<'c> Estimator<'c> {
    /// The estimate for a call. It includes the costs of the arguments, but not the cost of the target.
    pub(super) fn call_cost(
        &mut self,
        expr: &Expr,
        rule: CallCost,
        operands: &[&'c Expr],
        arg_costs: &[CostRange],
    ) -> Estimate {
        let of_args = arg_costs
            .iter()
            .fold(CostRange::ZERO, |sum, cost| sum.plus(*cost));
        let sizes: Vec<CostRange> = operands
            .iter()
            .map(|operand| self.size_or_unknown(operand))
            .collect();
        match (rule, arg_costs) {
            (CallCost::Logical, [first, ..]) => {
                let cost = CostRange {
                    min: first.min,
                    max: of_args.max,
                };
                return (cost, None);
            }
            (CallCost::Conditional, [condition, truthy, falsy]) => {
                self.join_entries(expr, &operands[1..]);
                let cost = condition.plus(truthy.union(*falsy));
                return (cost, Some(sizes[1].union(sizes[2])));
            }
            (CallCost::AddTexts | CallCost::AddLists, _) => self.join_entries(expr, operands),
            _ => {}
        }
        let (cost, result_size) = self.operation_cost(rule, operands, &sizes);
        (cost.plus(of_args), result_size)
    }

    /// The result has the entries of one of two operands, so its entry sizes are the union of both.
    fn join_entries(&mut self, expr: &Expr, operands: &[&'c Expr]) {
        if let [a, b] = operands
            && let Some((a, b)) = self.entry_sizes(a).zip(self.entry_sizes(b))
        {
            self.entries.insert(expr.id, a.union(b));
        }
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

    /// The estimate for a call without its operands, which have these sizes.
    fn operation_cost(
        &mut self,
        rule: CallCost,
        operands: &[&'c Expr],
        sizes: &[CostRange],
    ) -> Estimate {
        let up_to = |max: u64| CostRange { min: 0, max };
        match (rule, sizes) {
            (CallCost::Reads(times), [text, ..]) => (text.scaled(times * TEXT_FACTOR), None),
            (CallCost::Maps, [text, ..]) => (text.scaled(TEXT_FACTOR), Some(*text)),
            (CallCost::Replace, [text, old, new, ..]) => {
                let result = replaced_size(*text, *old, *new);
                (text.scaled(2.0 * TEXT_FACTOR), Some(result))
            }
            (CallCost::Split, [text, ..]) => {
                let max = match operands.get(2).map(|limit| &limit.kind) {
                    Some(NodeKind::Literal(Literal::Int(limit))) => *limit as u64,
                    _ => text.max,
                };
                (text.scaled(2.0 * TEXT_FACTOR), Some(up_to(max)))
            }
            (CallCost::Join, [count, separator @ ..]) => {
                let mut size = match self.elements(operands[0]) {
                    Some((_, element)) => count.times(element),
                    None => CostRange::ZERO,
                };
                if let [separator, ..] = separator {
                    let separators = CostRange {
                        min: count.min.saturating_sub(1),
                        max: count.max.saturating_sub(1),
                    };
                    size = size.plus(separator.times(separators));
                }
                (size.scaled(TEXT_FACTOR), Some(size))
            }
            (CallCost::Find | CallCost::Matches, [text, pattern, ..]) => {
                let read = text.plus(CostRange::ONE).scaled(TEXT_FACTOR);
                let is_found = matches!(rule, CallCost::Find);
                let result = is_found.then(|| up_to(text.max));
                (read.times(pattern.scaled(REGEX_FACTOR)), result)
            }
            (CallCost::ToBytes, [text]) => {
                let result = CostRange {
                    min: text.min,
                    max: text.max.wrapping_mul(4),
                };
                (text.scaled(TEXT_FACTOR), Some(result))
            }
            (CallCost::FromBytes, [bytes]) => {
                let result = CostRange {
                    min: bytes.min / 4,
                    max: bytes.max,
                };
                (bytes.scaled(TEXT_FACTOR), Some(result))
            }
            (CallCost::Quote, [text]) => {
                let result = CostRange {
                    min: text.min.wrapping_add(2),
                    max: text.max.wrapping_mul(2).wrapping_add(2),
                };
                (text.scaled(TEXT_FACTOR), Some(result))
            }
            (CallCost::Affix, [_, part]) => (part.scaled(TEXT_FACTOR), None),
            (CallCost::Contains, [text, part]) => {
                let cost = text.scaled(TEXT_FACTOR).times(part.scaled(TEXT_FACTOR));
                (cost, None)
            }
            (CallCost::AddTexts, [a, b]) => (a.plus(*b).scaled(TEXT_FACTOR), Some(a.plus(*b))),
            (CallCost::AddLists, [a, b]) => (CostRange::ONE, Some(a.plus(*b))),
            (CallCost::Equal | CallCost::Compare, [a, b]) => {
                let special = match rule {
                    CallCost::Equal => self.equal_cost(operands),
                    _ => None,
                };
                let max = a.max.min(b.max);
                let size = CostRange {
                    min: u64::from(max > 0),
                    max,
                };
                (special.unwrap_or_else(|| size.scaled(TEXT_FACTOR)), None)
            }
            (CallCost::IsIn, [_, list]) => (*list, None),
            (CallCost::Includes, _) => (up_to(ATTRIBUTE_VALUES), None),
            (CallCost::Elements, [size, ..]) => {
                let cost = match self.elements(operands[0]) {
                    Some((Type::String | Type::Bytes, element)) => {
                        size.times(element.scaled(TEXT_FACTOR).plus(CostRange::ONE))
                    }
                    Some(_) => *size,
                    None => size.scaled(TEXT_FACTOR),
                };
                (cost, None)
            }
            (CallCost::Slice, [list, _, _]) => {
                let end = constant(operands[2], list.max);
                let length = end.wrapping_sub(constant(operands[1], 0));
                list_call(1.0, CostRange::exactly(length))
            }
            (CallCost::Range, [_]) => {
                list_call(1.0, CostRange::exactly(constant(operands[0], u64::MAX)))
            }
            (CallCost::Reverse | CallCost::Flatten, [list]) => list_call(1.0, *list),
            (CallCost::FlattenTo, [list, _]) => {
                list_call(constant(operands[1], u64::MAX) as f64, *list)
            }
            (CallCost::SelfCompared { operand, are_texts }, _) => {
                let size = sizes.get(operand).copied().unwrap_or(CostRange::UNKNOWN);
                let factor = if are_texts { 2.0 + TEXT_FACTOR } else { 2.0 };
                list_call(factor, size.times(size))
            }
            (CallCost::Sets(times), [a, b]) => {
                let cost = a.times(*b).scaled(times as f64).plus(CostRange::ONE);
                (cost, None)
            }
            (
                CallCost::InNetwork {
                    is_network,
                    is_text,
                },
                [_, other],
            ) => {
                let mut cost = ADDRESS_LENGTH.plus(ADDRESS_LENGTH).scaled(TEXT_FACTOR);
                if is_network {
                    let of_network = ADDRESS_LENGTH.scaled(TEXT_FACTOR);
                    cost = cost.plus(of_network).plus(CostRange::ONE);
                }
                if is_text {
                    cost = cost.plus(other.scaled(TEXT_FACTOR));
                }
                (cost, None)
            }
            (CallCost::Format, [_, text]) => {
                let regex = FORMAT_REGEX_LENGTH as f64 * REGEX_FACTOR;
                (text.scaled(TEXT_FACTOR).scaled(regex), None)
            }
            _ => (CostRange::ONE, None),
        }
    }

    /// The estimate for `==` of two values of a type with its own cost.
    fn equal_cost(&mut self, operands: &[&'c Expr]) -> Option<CostRange> {
        let [a, b] = operands else {
            return None;
        };
        let of = self.type_of(a);
        if of != self.type_of(b) {
            return None;
        }
        match of {
            Type::Object("kubernetes.NamedFormat") => Some(CostRange {
                min: 1,
                max: scaled(FORMAT_LENGTH, TEXT_FACTOR),
            }),
            Type::Object("kubernetes.URL") => {
                let max = self.size(b).map_or(1, |size| size.max);
                Some(CostRange { min: 1, max }.scaled(TEXT_FACTOR))
            }
            Type::Object("kubernetes.Quantity" | "kubernetes.Semver") | Type::Opaque(_) => {
                Some(CostRange::ONE)
            }
            _ => None,
        }
    }
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
