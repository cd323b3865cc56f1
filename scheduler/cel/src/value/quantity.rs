//! Quantities of the Kubernetes API, with the representation that upstream gives them.

use berth_api::Quantity;
use berth_api::quantity::ParseQuantityError;

/// A quantity and how upstream represents it, which decides whether it counts as an integer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CelQuantity {
    quantity: Quantity,
    /// The power of ten of the last digit, if the quantity is represented as a machine integer times a power of ten.
    scale: Option<i32>,
    /// Whether the quantity is a sum or difference.
    is_computed: bool,
}

/// The most digits of a number that is represented as a machine integer.
const DIGITS_MAX: usize = 18;
/// The power of ten of the smallest quantity.
const SCALE_MIN: i32 = -9;

impl CelQuantity {
    /// The quantity of a device.
    pub(crate) fn stored(quantity: Quantity) -> Self {
        // The API server stores the canonical form, whose last digit is not zero for the suffixes below one.
        let milli = Quantity::from_milli(quantity.milli_value()) == quantity;
        let scale = match (quantity.is_integer(), milli) {
            (true, _) => 0,
            (false, true) => -3,
            (false, false) => SCALE_MIN,
        };
        Self {
            quantity,
            scale: Some(scale),
            is_computed: false,
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        Ok(Self {
            quantity: text.parse()?,
            scale: scale_of(text),
            is_computed: false,
        })
    }

    pub(crate) const fn quantity(self) -> Quantity {
        self.quantity
    }

    pub(crate) const fn is_computed(self) -> bool {
        self.is_computed
    }

    /// The number of units of a power of ten.
    fn mantissa(self, scale: i32) -> Option<i64> {
        let exponent = u32::try_from(scale - SCALE_MIN).ok()?;
        let unit = 10_i128.checked_pow(exponent)?;
        let nanos = self.quantity.nanos();
        (nanos % unit == 0)
            .then(|| i64::try_from(nanos / unit).ok())
            .flatten()
    }

    /// The whole number that the quantity is, if it is represented as one.
    pub(crate) fn integer(self) -> Option<i64> {
        self.scale.filter(|scale| *scale >= 0)?;
        self.mantissa(0)
    }

    pub(crate) fn as_f64(self) -> f64 {
        let scaled = self
            .scale
            .and_then(|scale| Some((self.mantissa(scale)?, scale)));
        match scaled {
            Some((mantissa, 0)) => mantissa as f64,
            Some((mantissa, scale)) => {
                let power: f64 = format!("1e{scale}").parse().unwrap_or(1.0);
                mantissa as f64 * power
            }
            None => self.quantity.as_f64(),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let quantity = self.quantity + other.quantity;
        let scale = match (self.scale, other.scale) {
            (scale, _) if other.quantity.is_zero() && other.scale.is_some() => scale,
            (Some(_), scale) if self.quantity.is_zero() => scale,
            (Some(a), Some(b)) => Some(a.min(b)),
            _ => None,
        };
        let sum = Self {
            quantity,
            scale,
            is_computed: true,
        };
        Self {
            scale: scale.filter(|scale| sum.mantissa(*scale).is_some()),
            ..sum
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.plus(Self {
            quantity: -other.quantity,
            ..other
        })
    }
}

/// The power of ten of the last digit of a number, if upstream represents it as a machine integer.
fn scale_of(text: &str) -> Option<i32> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = whole.trim_start_matches('0').len().max(1);
    let exponent = match suffix {
        "" => 0,
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => match suffix.strip_suffix('i') {
            Some(letter) => {
                let bits = 10 * (1 + "KMGTPE".find(letter)?);
                let fits = fraction.is_empty() && digits + bits * 3 / 10 < 15;
                return fits.then_some(0);
            }
            None => suffix.get(1..)?.parse().ok()?,
        },
    };
    let scale = exponent - i32::try_from(fraction.len()).ok()?;
    (digits + fraction.len() <= DIGITS_MAX && scale >= SCALE_MIN).then_some(scale)
}
