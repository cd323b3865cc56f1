//! Exact amounts of resources in the format of the API: `100m`, `1.5Gi`, `2e3`.
//!
//! A [`Quantity`] is an integer number of nanos and the family of suffixes that it prefers. All amounts of the API down
//! to one nano are exact; smaller fractions are rounded away from zero, as the API does.
//!
//! The rules follow [`resource.Quantity`]. In cases where upstream wraps around or loses a suffix, this type saturates
//! or keeps it:
//!
//! - amounts beyond ±(2¹²⁷−1) nanos, about 1.7e29, become that bound (upstream: unbounded);
//! - [`Quantity::value`] and [`Quantity::milli_value`] saturate (upstream: 0, or wrapped);
//! - `1000E` prints as `1000E` (upstream: `1`, since no suffix is larger than `E`).
//!
//! [`resource.Quantity`]: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/

mod parse;

pub use parse::ParseQuantityError;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

/// Nanos in one.
const NANOS: i128 = 1_000_000_000;
/// Nanos in one thousandth.
const NANOS_PER_MILLI: i128 = 1_000_000;
/// The largest magnitude, in nanos. The least is its negative, so that every quantity can be negated.
const NANOS_MAX: i128 = i128::MAX;

/// The family of suffixes that a quantity is written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum QuantityFormat {
    /// Powers of ten as letters: `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`.
    #[default]
    DecimalSI,
    /// Powers of 1024: `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`.
    BinarySI,
    /// Powers of ten as an exponent: `e-3`, `e6`.
    DecimalExponent,
}

/// An exact amount of a resource. Equality, order and hash are of the amount; the format does not matter.
#[derive(Clone, Copy, Default)]
pub struct Quantity {
    // The two halves of an i128, whose own alignment would make this a third larger.
    high: i64,
    low: u64,
    format: QuantityFormat,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self::from_nanos(0, QuantityFormat::DecimalSI);

    /// `nanos` billionths, at most ±(2¹²⁷−1).
    const fn from_nanos(nanos: i128, format: QuantityFormat) -> Self {
        let nanos = if nanos < -NANOS_MAX {
            -NANOS_MAX
        } else {
            nanos
        };
        Self {
            high: (nanos >> 64) as i64,
            low: nanos as u64,
            format,
        }
    }

    /// The amount in billionths, at most ±(2¹²⁷−1).
    pub const fn nanos(self) -> i128 {
        ((self.high as i128) << 64) | self.low as i128
    }

    /// A whole number, to be written in `format`.
    pub const fn from_value(value: i64, format: QuantityFormat) -> Self {
        Self::from_nanos(value as i128 * NANOS, format)
    }

    /// `milli` thousandths.
    pub const fn from_milli(milli: i64) -> Self {
        Self::from_nanos(milli as i128 * NANOS_PER_MILLI, QuantityFormat::DecimalSI)
    }

    /// The amount in whole units, rounded away from zero, within the bounds of an `i64`.
    pub fn value(self) -> i64 {
        saturate(divide_away_from_zero(self.nanos(), NANOS))
    }

    /// The amount in thousandths, rounded away from zero, within the bounds of an `i64`.
    pub fn milli_value(self) -> i64 {
        saturate(divide_away_from_zero(self.nanos(), NANOS_PER_MILLI))
    }

    /// The nearest floating-point number.
    pub fn as_f64(self) -> f64 {
        self.nanos() as f64 / NANOS as f64
    }

    /// Returns whether this is nothing.
    pub const fn is_zero(self) -> bool {
        self.high == 0 && self.low == 0
    }

    /// −1, 0 or 1.
    pub const fn sign(self) -> i32 {
        self.nanos().signum() as i32
    }

    /// Returns whether there is no fraction: `1500m` has one, `2000m` has not.
    pub const fn is_integer(self) -> bool {
        self.nanos() % NANOS == 0
    }

    /// The family of suffixes that this is written with.
    pub const fn format(self) -> QuantityFormat {
        self.format
    }

    /// The same amount, to be written in another family of suffixes.
    #[must_use]
    pub const fn with_format(self, format: QuantityFormat) -> Self {
        Self { format, ..self }
    }

    /// The amount rounded away from zero to whole thousandths. Defaulting does this to every list of resources.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        let milli = divide_away_from_zero(self.nanos(), NANOS_PER_MILLI);
        Self::from_nanos(milli.saturating_mul(NANOS_PER_MILLI), self.format)
    }

    /// The text that a control plane shows for a quantity that was written as `text`.
    ///
    /// That is the canonical form, except that some texts stay as written because the API takes them for
    /// canonical: `1.234`, `1E3`, `+1`. Clients compare the text, so the control plane must show the same.
    /// Spaces around the text are ignored, as when decoding.
    pub fn wire_text(text: &str) -> Result<Cow<'_, str>, ParseQuantityError> {
        let text = text.trim();
        let parsed = parse::parse(text)?;
        Ok(match parsed.kept_scale {
            Some(_) => Cow::Borrowed(text),
            None => Cow::Owned(parsed.quantity.to_string()),
        })
    }

    /// Like [`wire_text`](Self::wire_text), for a list of resources, where defaulting rounds up to thousandths.
    pub fn wire_text_in_milli(text: &str) -> Result<Cow<'_, str>, ParseQuantityError> {
        let text = text.trim();
        let parsed = parse::parse(text)?;
        Ok(match parsed.kept_scale {
            Some(scale) if scale >= -3 => Cow::Borrowed(text),
            _ => Cow::Owned(parsed.quantity.rounded_to_milli().to_string()),
        })
    }
}

/// `number / divisor`, away from zero when it is not whole.
fn divide_away_from_zero(number: i128, divisor: i128) -> i128 {
    let quotient = number / divisor;
    if number % divisor == 0 {
        quotient
    } else {
        quotient + number.signum()
    }
}

fn saturate(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

// --- impl arithmetic -----------------------------------------------------------------------------------

/// The sum, within the bounds of the type. Zero takes the format of the other summand, as upstream.
impl Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let format = if self.is_zero() {
            other.format
        } else {
            self.format
        };
        Self::from_nanos(self.nanos().saturating_add(other.nanos()), format)
    }
}

/// The difference, within the bounds of the type. Zero takes the format of the subtrahend.
impl Quantity {
    /// The product, rounded up to a nano; the largest quantity if it is larger. It has the format of this quantity.
    #[must_use]
    pub fn times(self, factor: Self) -> Self {
        // Each factor is split into whole units and nanos, so that only results that do not fit overflow.
        let (whole, part) = (factor.nanos() / NANOS, factor.nanos() % NANOS);
        let exact = self
            .nanos()
            .checked_mul(whole)
            .and_then(|product| {
                let (units, rest) = (self.nanos() / NANOS, self.nanos() % NANOS);
                let small = units.checked_mul(part)?;
                let rest = (rest * part + (NANOS - 1)) / NANOS;
                product.checked_add(small)?.checked_add(rest)
            })
            .unwrap_or(i128::MAX);
        Self::from_nanos(exact, self.format)
    }
}

impl Sub for Quantity {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Neg for Quantity {
    type Output = Self;
    fn neg(self) -> Self {
        Self::from_nanos(-self.nanos(), self.format)
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

// --- impl comparison -----------------------------------------------------------------------------------

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        (self.high, self.low) == (other.high, other.low)
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.high, self.low).cmp(&(other.high, other.low))
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.high, self.low).hash(state);
    }
}

// --- impl text -----------------------------------------------------------------------------------------

/// The canonical form: no fraction, the largest suffix of the format that loses nothing.
///
/// A binary quantity that is not whole, whose magnitude is below 1024, or which is beyond the cap that reading
/// puts on binary suffixes, is written as a decimal one.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if self.is_zero() {
            return f.pad("0");
        }
        let nanos = self.nanos();
        let binary = 1024 * NANOS..=i64::MAX as i128 * NANOS;
        if self.format == QuantityFormat::BinarySI
            && self.is_integer()
            && binary.contains(&nanos.abs())
        {
            let (mantissa, times) = remove_factors(nanos / NANOS, 1024, BINARY.len() - 1);
            return f.pad(&format!("{mantissa}{}", BINARY[times]));
        }
        if self.format == QuantityFormat::DecimalExponent {
            let (mantissa, times) = remove_factors(nanos, 1000, usize::MAX);
            return match times {
                3 => f.pad(&mantissa.to_string()),
                times => f.pad(&format!("{mantissa}e{}", times as i64 * 3 - 9)),
            };
        }
        let (mantissa, times) = remove_factors(nanos, 1000, DECIMAL.len() - 1);
        f.pad(&format!("{mantissa}{}", DECIMAL[times]))
    }
}

/// Divides by `factor` while that is exact, at most `times_max` times.
fn remove_factors(mut number: i128, factor: i128, times_max: usize) -> (i128, usize) {
    let mut times = 0;
    while number != 0 && number % factor == 0 && times < times_max {
        number /= factor;
        times += 1;
    }
    (number, times)
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantity({self})")
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse::parse(text).map(|parsed| parsed.quantity)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Decodes a string (spaces around it are ignored), a number, or `null` for zero.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity, such as \"100m\", \"1Gi\" or 2")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.trim().parse().map_err(E::custom)
            }
            fn visit_i64<E>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_value(value, QuantityFormat::DecimalSI))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Quantity, E> {
                let nanos = i128::from(value) * NANOS;
                Ok(Quantity::from_nanos(nanos, QuantityFormat::DecimalSI))
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Quantity, E> {
                // The shortest text that means this number, without an exponent.
                self.visit_str(&value.to_string())
            }
            fn visit_unit<E>(self) -> Result<Quantity, E> {
                Ok(Quantity::ZERO)
            }
            fn visit_none<E>(self) -> Result<Quantity, E> {
                Ok(Quantity::ZERO)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests;
