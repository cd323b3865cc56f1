//! The validation of numbers.

use super::{Outcome, ValueCheck, format_of, types_of};
use crate::custom::place::Place;
use crate::field::ErrorType;
use crate::view::FieldView;
use serde_json::{Number, Value};
use std::cmp::Ordering;

/// Whole numbers of this size and smaller are exact in JSON.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;
/// A number is whole if its relative distance to a whole number is smaller.
const WHOLE_DISTANCE: f64 = 1e-9;
/// From this exponent of ten on, Go prints numbers with an exponent.
const PLAIN_EXPONENT_MAX: i32 = 21;

impl ValueCheck<'_> {
    /// The faults of a number. Bounds that are not values of the type of the schema are faults, too.
    pub(super) fn number(&self, schema: &Value, number: &Number, place: &Place<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        let float = number.as_f64().unwrap_or(0.0);
        let types = types_of(schema);
        let is_integer = types == ["integer"];
        let format = match types {
            ["integer"] | ["number"] => format_of(schema),
            _ => "",
        };
        // A number that the type and the format of the schema cannot contain.
        let misfit = |float: f64, whole: Option<i64>, what: &str| {
            let fits = match (is_integer, format) {
                (true, "int32") => whole.is_some_and(|n| i32::try_from(n).is_ok()),
                (true, _) => whole.is_some(),
                (false, "float") => !narrow(float).is_infinite(),
                (false, _) => true,
            };
            let kind = match (is_integer, format) {
                (true, "") => "integer (default format)".to_owned(),
                (true, format) => format!("integer with format {format}"),
                (false, format) => format!("number with format {format}"),
            };
            let detail = || format!("{what} value must be of type {kind} in {place}");
            (!fits).then(|| self.without_field(detail()))
        };
        let whole = number.as_i64();
        let own = whole.or_else(|| as_whole(float));
        misfit(
            float,
            own.filter(|_| whole.is_some() || float.fract() == 0.0),
            "Checked",
        )
        .into_iter()
        .for_each(|fault| outcome.add(fault));
        for (name, what) in [
            ("multipleOf", "MultipleOf"),
            ("minimum", "Minimum boundary"),
            ("maximum", "Maximum boundary"),
        ] {
            let Some(bound) = schema.field(name).and_then(Value::as_f64) else {
                continue;
            };
            let fault = misfit(
                bound,
                as_whole(bound).filter(|_| bound.fract() == 0.0),
                what,
            );
            // Whole numbers are compared with the whole part of the bound.
            let compared = match whole {
                // A bound that is too large becomes the smallest number, as on the platforms of kube-apiserver.
                Some(n) if fault.is_none() => {
                    Compared::Whole(n, as_whole(bound).unwrap_or(i64::MIN))
                }
                _ => Compared::Float(float, bound),
            };
            fault.into_iter().for_each(|fault| outcome.add(fault));
            let fault = match name {
                "multipleOf" if !compared.is_positive() => {
                    let bound = compared.bound();
                    let detail =
                        format!("factor MultipleOf declared for {place} must be positive: {bound}");
                    let kind = ErrorType::Invalid;
                    Some(self.fault(kind, place, Some(bound), detail))
                }
                "multipleOf" => (!compared.is_multiple()).then(|| {
                    let detail = format!("should be a multiple of {}", compared.bound());
                    self.in_body(place, compared.value(), &detail)
                }),
                name => {
                    let (fits, relation, exclusive) = match name {
                        "maximum" => (Ordering::Less, "less", "exclusiveMaximum"),
                        _ => (Ordering::Greater, "greater", "exclusiveMinimum"),
                    };
                    let is_exclusive = schema.flag(exclusive);
                    (!compared.is(fits, is_exclusive)).then(|| {
                        let or = if is_exclusive { "" } else { " or equal to" };
                        let detail = format!("should be {relation} than{or} {}", compared.bound());
                        self.in_body(place, compared.value(), &detail)
                    })
                }
            };
            fault.into_iter().for_each(|fault| outcome.add(fault));
        }
        outcome.count();
        outcome
    }
}

/// A number and its bound, both whole or both not.
enum Compared {
    Whole(i64, i64),
    Float(f64, f64),
}

impl Compared {
    /// Returns whether the number is on this side of the bound, or equals a bound that is not exclusive.
    fn is(&self, side: Ordering, is_exclusive: bool) -> bool {
        let found = match self {
            Self::Whole(n, bound) => Some(n.cmp(bound)),
            Self::Float(n, bound) => n.partial_cmp(bound),
        };
        found == Some(side) || (!is_exclusive && found == Some(Ordering::Equal))
    }

    /// Returns whether the bound is a factor that can have multiples.
    fn is_positive(&self) -> bool {
        match self {
            Self::Whole(_, factor) => *factor > 0,
            Self::Float(_, factor) => *factor > 0.0,
        }
    }

    fn is_multiple(&self) -> bool {
        match self {
            Self::Whole(n, factor) => n.checked_rem(*factor) == Some(0),
            Self::Float(n, factor) if *factor < 1.0 => is_whole(1.0 / factor * n),
            Self::Float(n, factor) => is_whole(n / factor),
        }
    }

    fn value(&self) -> String {
        match self {
            Self::Whole(n, _) => n.to_string(),
            Self::Float(n, _) => number_text(*n),
        }
    }

    fn bound(&self) -> String {
        match self {
            Self::Whole(_, bound) => bound.to_string(),
            Self::Float(_, bound) => number_text(*bound),
        }
    }
}

/// Returns whether a number is an integer within the precision of JSON.
pub(super) fn is_whole(number: f64) -> bool {
    let rounded = number.round();
    let distance = (number - rounded).abs();
    number.abs() <= WHOLE_MAX
        && (distance == 0.0 || (rounded != 0.0 && distance < WHOLE_DISTANCE * rounded.abs()))
}

/// The whole part of a number.
pub(super) fn as_whole(number: f64) -> Option<i64> {
    let fits = number >= i64::MIN as f64 && number < i64::MAX as f64;
    fits.then_some(number as i64)
}

/// The number in the precision of the format `float`.
fn narrow(number: f64) -> f32 {
    number as f32
}

/// A number as Go prints it: with an exponent if it is very small or very large.
pub(super) fn number_text(number: f64) -> String {
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..PLAIN_EXPONENT_MAX).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => number.to_string(),
    }
}
