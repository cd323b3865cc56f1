//! The parser of quantities.
//!
//! It is as lenient as the API's: `1.`, `.5`, `+1`, even `.` and `Ki` (both zero) are quantities. Errors have the API's
//! messages.

use super::{NANOS, NANOS_MAX, Quantity, QuantityFormat};

/// The reason why a text is no quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// There are characters that no quantity has.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// There is a suffix and no number.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// There is a suffix of the right letters that means nothing.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// A quantity, and whether the API would return its text unchanged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parsed {
    pub(super) quantity: Quantity,
    /// The power of ten of the last written digit, if the API keeps the text as it is.
    pub(super) kept_scale: Option<i64>,
}

/// The largest amount that a binary suffix can express; more is capped.
const BINARY_NANOS_MAX: u128 = i64::MAX as u128 * NANOS as u128;
/// Numbers of up to this many digits may be kept as written.
const KEPT_DIGITS_MAX: usize = 18;
/// Exponents are clamped to this magnitude: far beyond the bounds of a quantity, far within those of `i64`.
const EXPONENT_MAX: i64 = 1 << 32;

/// Reads a quantity. Leading or trailing spaces are errors.
pub(super) fn parse(text: &str) -> Result<Parsed, ParseQuantityError> {
    let Scanned {
        negative,
        has_digit,
        integer,
        fraction,
        suffix,
    } = scan(text)?;
    let suffix = Suffix::interpret(suffix)?;
    let (magnitude, format, kept_scale) = match suffix {
        Suffix::Decimal { exponent, format } => {
            let scale = exponent - fraction.len() as i64;
            if scale < -9 && !has_digit {
                return Err(ParseQuantityError::Numeric);
            }
            let digits = integer.len() + fraction.len();
            let canonical = digits <= KEPT_DIGITS_MAX
                && scale >= -9
                && scale % 3 == 0
                && !integer.starts_with('0')
                && !ends_with_thousand(integer, fraction);
            let magnitude = decimal_nanos(integer, fraction, exponent);
            (magnitude, format, canonical.then_some(scale))
        }
        Suffix::Binary { exponent } => {
            if !has_digit && exponent > 40 {
                return Err(ParseQuantityError::Numeric);
            }
            let magnitude = binary_nanos(integer, fraction, exponent);
            let whole = integer.parse::<i64>().ok();
            // The API's estimate of the number of digits that fit before the suffix: 10 bits are about three digits.
            let digits_max = 14_usize.saturating_sub(exponent as usize / 10 * 3);
            let canonical = fraction.is_empty()
                && integer.len() <= digits_max
                && whole.is_some_and(|whole| whole & 7 != 0);
            // A binary quantity below one is a decimal one from then on.
            let format = if magnitude > 0 && magnitude < NANOS as u128 {
                QuantityFormat::DecimalSI
            } else {
                QuantityFormat::BinarySI
            };
            (magnitude, format, canonical.then_some(0))
        }
    };
    let nanos = i128::try_from(magnitude).unwrap_or(NANOS_MAX);
    Ok(Parsed {
        quantity: Quantity::from_nanos(if negative { -nanos } else { nanos }, format),
        kept_scale,
    })
}

/// The parts of a text.
struct Scanned<'a> {
    negative: bool,
    /// Whether the number has any digit. `.` and the empty number in `Ki` have none; both mean zero.
    has_digit: bool,
    /// Digits before the point, without leading zeros; `0` if there are none.
    integer: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

fn scan(text: &str) -> Result<Scanned<'_>, ParseQuantityError> {
    if text.is_empty() {
        return Err(ParseQuantityError::Format);
    }
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    // Leading zeros are no significant digits: `007` is 7.
    let significant = unsigned.trim_start_matches('0');
    let (integer, rest) = take_while(significant, |byte| byte.is_ascii_digit());
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => take_while(rest, |byte| byte.is_ascii_digit()),
        None => ("", rest),
    };
    // The suffix is only delimited here; `interpret` decides whether it exists.
    let (_, rest) = take_while(suffix, |byte| b"eEinumkKMGTP".contains(&byte));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    let (_, rest) = take_while(rest, |byte| byte.is_ascii_digit());
    if !rest.is_empty() {
        return Err(ParseQuantityError::Format);
    }
    let nothing_but_zeros = significant.is_empty();
    Ok(Scanned {
        negative,
        has_digit: nothing_but_zeros
            || significant.len() < unsigned.len()
            || !integer.is_empty()
            || !fraction.is_empty(),
        integer: if integer.is_empty() { "0" } else { integer },
        fraction,
        suffix,
    })
}

/// Splits after the leading ASCII bytes that `accept` takes.
fn take_while(text: &str, accept: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|byte| !accept(byte));
    text.split_at(end.unwrap_or(text.len()))
}

/// Returns whether the digits of both parts together end with `000`.
fn ends_with_thousand(integer: &str, fraction: &str) -> bool {
    let mut last_digits = fraction.bytes().rev().chain(integer.bytes().rev());
    (0..3).all(|_| last_digits.next() == Some(b'0'))
}

enum Suffix {
    Decimal {
        exponent: i64,
        format: QuantityFormat,
    },
    Binary {
        exponent: u32,
    },
}

impl Suffix {
    fn interpret(suffix: &str) -> Result<Self, ParseQuantityError> {
        let si = |exponent| Self::Decimal {
            exponent,
            format: QuantityFormat::DecimalSI,
        };
        Ok(match suffix {
            "n" => si(-9),
            "u" => si(-6),
            "m" => si(-3),
            "" => si(0),
            "k" => si(3),
            "M" => si(6),
            "G" => si(9),
            "T" => si(12),
            "P" => si(15),
            "E" => si(18),
            "Ki" => Self::Binary { exponent: 10 },
            "Mi" => Self::Binary { exponent: 20 },
            "Gi" => Self::Binary { exponent: 30 },
            "Ti" => Self::Binary { exponent: 40 },
            "Pi" => Self::Binary { exponent: 50 },
            "Ei" => Self::Binary { exponent: 60 },
            _ => {
                let exponent: i64 = suffix
                    .strip_prefix(['e', 'E'])
                    .and_then(|digits| digits.parse().ok())
                    .ok_or(ParseQuantityError::Suffix)?;
                Self::Decimal {
                    // A greater exponent overflows in any case; the clamp keeps the later sum of exponents within
                    // its type.
                    exponent: exponent.clamp(-EXPONENT_MAX, EXPONENT_MAX),
                    format: QuantityFormat::DecimalExponent,
                }
            }
        })
    }
}

fn append_digit(number: u128, digit: u8) -> u128 {
    number
        .saturating_mul(10)
        .saturating_add(u128::from(digit - b'0'))
}

/// `integer.fraction × 10^exponent` in nanos, rounded up, saturating.
fn decimal_nanos(integer: &str, fraction: &str, exponent: i64) -> u128 {
    let digits = integer.bytes().chain(fraction.bytes());
    let count = (integer.len() + fraction.len()) as i64;
    // The place where the digits end, counted in powers of ten from one nano.
    let shift = exponent - fraction.len() as i64 + 9;
    let mut nanos = 0_u128;
    let mut lost = false;
    for (at, digit) in digits.enumerate() {
        if (at as i64) < count + shift.min(0) {
            nanos = append_digit(nanos, digit);
        } else {
            lost |= digit != b'0';
        }
    }
    if nanos > 0 {
        // After 39 factors of ten the number is saturated, whatever it was.
        for _ in 0..shift.clamp(0, 39) {
            nanos = nanos.saturating_mul(10);
        }
    }
    nanos.saturating_add(u128::from(lost))
}

/// `integer.fraction × 2^exponent` in nanos, rounded up, capped at 2⁶³−1 whole ones.
fn binary_nanos(integer: &str, fraction: &str, exponent: u32) -> u128 {
    let whole = integer.bytes().fold(0, append_digit);
    let whole = whole.saturating_mul(1 << exponent);
    // Horner's scheme from the last digit on: `rest` is the integer part of the value of the digits so far, `lost`
    // whether there is a remainder.
    let unit = (NANOS as u128) << exponent;
    let mut rest = 0_u128;
    let mut lost = false;
    for digit in fraction.bytes().rev() {
        rest += u128::from(digit - b'0') * unit;
        lost |= !rest.is_multiple_of(10);
        rest /= 10;
    }
    whole
        .saturating_mul(NANOS as u128)
        .saturating_add(rest + u128::from(lost))
        .min(BINARY_NANOS_MAX)
}
