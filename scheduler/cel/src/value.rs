//! Values of expressions.

mod cidr;
mod named_format;
mod quantity;
mod time;
mod url;

pub(crate) use cidr::{Cidr, parse_cidr, parse_ip};
pub(crate) use named_format::NamedFormat;
pub(crate) use quantity::CelQuantity;
pub(crate) use time::{LATER_YEAR, SECOND, Time, YEAR_MAX, parse_time};
pub(crate) use url::{Url, UrlError, uri_problem};

use crate::error::EvaluationError;
use crate::field_name::escaped_word;
use crate::number;
use indexmap::IndexMap;
use std::cmp::Ordering;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

/// The result of an evaluation.
pub(crate) type EvalResult = Result<CelValue, EvaluationError>;

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum CelValue {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Time),
    /// A type, by name.
    Type(&'static str),
    List(Arc<Vec<CelValue>>),
    Map(Arc<Map>),
    /// A message: the name of its type, and its fields.
    Message(Arc<(Arc<str>, Map)>),
    Optional(Option<Arc<CelValue>>),
    Quantity(CelQuantity),
    Semver(Arc<semver::Version>),
    Ip(IpAddr),
    Cidr(Cidr),
    Url(Arc<Url>),
    Format(NamedFormat),
}

/// The entries of a map. Iteration follows insertion; the implementation of Kubernetes iterates in random order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Map {
    entries: IndexMap<MapKey, CelValue, BuildHasherDefault<rustc_hash::FxHasher>>,
    /// The value of a key that is not in the map.
    default: Option<CelValue>,
    /// Whether the keys are names of fields. Reserved words are then also found without their escape.
    has_fields: bool,
}

/// The key of a map. Numbers of different types are different keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MapKey {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    /// The bits of the number. Zeros are alike.
    Double(u64),
    String(Arc<str>),
    Duration(i64),
    /// Seconds and nanoseconds.
    Timestamp((i64, u32)),
    Type(&'static str),
}

impl Hash for MapKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Null => 0_u8.hash(state),
            Self::Bool(value) => value.hash(state),
            Self::Int(value) | Self::Duration(value) => value.hash(state),
            Self::Uint(value) | Self::Double(value) => value.hash(state),
            Self::String(value) => value.hash(state),
            Self::Timestamp(value) => value.hash(state),
            Self::Type(value) => value.hash(state),
        }
    }
}

impl MapKey {
    /// The key, if the value can be one.
    pub(crate) fn new(value: &CelValue) -> Option<Self> {
        Some(match value {
            CelValue::Null => Self::Null,
            CelValue::Bool(value) => Self::Bool(*value),
            CelValue::Int(value) => Self::Int(*value),
            CelValue::Uint(value) => Self::Uint(*value),
            CelValue::Double(value) => Self::Double((*value + 0.0).to_bits()),
            CelValue::String(value) => Self::String(value.clone()),
            CelValue::Duration(value) => Self::Duration(*value),
            CelValue::Timestamp(time) => Self::Timestamp(time.instant()),
            CelValue::Type(value) => Self::Type(value),
            _ => return None,
        })
    }

    /// The key as a value.
    pub(crate) fn value(&self) -> CelValue {
        match self {
            Self::Null => CelValue::Null,
            Self::Bool(value) => CelValue::Bool(*value),
            Self::Int(value) => CelValue::Int(*value),
            Self::Uint(value) => CelValue::Uint(*value),
            Self::Double(bits) => CelValue::Double(f64::from_bits(*bits)),
            Self::String(value) => CelValue::String(value.clone()),
            Self::Duration(value) => CelValue::Duration(*value),
            Self::Timestamp((seconds, nanos)) => {
                CelValue::Timestamp(Time::of_instant(*seconds, *nanos))
            }
            Self::Type(value) => CelValue::Type(value),
        }
    }
}

impl Map {
    /// A map in which every key that is not in it has the default.
    pub(crate) fn with_default(default: CelValue) -> Self {
        Self {
            default: Some(default),
            ..Self::default()
        }
    }

    /// A map whose keys are names of fields.
    pub(crate) fn of_fields() -> Self {
        Self {
            has_fields: true,
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: MapKey, value: CelValue) {
        self.entries.insert(key, value);
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &MapKey) {
        self.entries.shift_remove(key);
    }

    /// Returns whether the key is in the map; an integer also finds an equal unsigned one, and a number with a fraction
    /// of zero both.
    pub(crate) fn contains(&self, key: &CelValue) -> bool {
        self.entry(key).is_some()
    }

    /// The value of a key, or the default.
    pub(crate) fn get(&self, key: &CelValue) -> Option<&CelValue> {
        self.entry(key).or(self.default.as_ref())
    }

    fn entry(&self, key: &CelValue) -> Option<&CelValue> {
        let exact = MapKey::new(key)?;
        if let Some(value) = self.entries.get(&exact) {
            return Some(value);
        }
        let int = |value: i64| self.entries.get(&MapKey::Int(value));
        let uint = |value: u64| self.entries.get(&MapKey::Uint(value));
        match *key {
            CelValue::String(ref name) if self.has_fields => {
                let escaped = escaped_word(name)?;
                self.entries.get(&MapKey::String(escaped.into()))
            }
            CelValue::Int(value) => uint(u64::try_from(value).ok()?),
            CelValue::Uint(value) => int(i64::try_from(value).ok()?),
            CelValue::Double(value) => number::lossless_i64(value)
                .and_then(int)
                .or_else(|| number::lossless_u64(value).and_then(uint)),
            _ => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&MapKey, &CelValue)> {
        self.entries.iter()
    }
}

impl CelValue {
    pub(crate) fn text(text: &str) -> Self {
        Self::String(Arc::from(text))
    }

    pub(crate) fn list(elements: Vec<CelValue>) -> Self {
        Self::List(Arc::new(elements))
    }

    pub(crate) fn texts(texts: impl IntoIterator<Item = String>) -> Self {
        Self::list(texts.into_iter().map(|text| Self::text(&text)).collect())
    }

    pub(crate) fn some(value: CelValue) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// The name of the value's type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Message(_) => crate::types::MESSAGE,
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// The size of the value as costs count it: characters, bytes, elements, entries; otherwise one.
    pub(crate) fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(elements) => elements.len(),
            Self::Map(map) => map.len(),
            Self::Ip(IpAddr::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) => 16,
            Self::Cidr(cidr) => usize::from(cidr.prefix_length).div_ceil(8),
            Self::Optional(Some(value)) => return value.size(),
            _ => 1,
        };
        size as u64
    }

    /// Returns whether the value is the zero or the empty value of its type. Values of Kubernetes' own types never are.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) | Self::Duration(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(elements) => elements.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Message(message) => message.1.is_empty(),
            Self::Timestamp(time) => time.is_zero(),
            _ => false,
        }
    }
}

/// Counts the steps of comparing and traversing values whose cost the expression did not pay: nested values can share
/// their parts, and then be much larger than the memory that they take.
#[derive(Debug)]
pub(crate) struct Steps {
    left: u64,
}

impl Steps {
    pub(crate) const fn new(left: u64) -> Self {
        Self { left }
    }

    /// The steps that are left.
    pub(crate) const fn left(&self) -> u64 {
        self.left
    }

    /// Takes steps.
    ///
    /// # Errors
    /// There are none left.
    pub(crate) fn take(&mut self, steps: u64) -> Result<(), EvaluationError> {
        self.left = self
            .left
            .checked_sub(steps)
            .ok_or(EvaluationError::TooExpensive)?;
        Ok(())
    }
}

/// Returns whether two values are equal. Numbers of different types can be; values of other different types are not.
///
/// # Errors
/// The types cannot be compared, or there are too many steps.
pub(crate) fn equal(
    a: &CelValue,
    b: &CelValue,
    steps: &mut Steps,
) -> Result<bool, EvaluationError> {
    use CelValue as V;
    steps.take(1)?;
    Ok(match (a, b) {
        (V::Null, V::Null) => true,
        (V::Null, _) | (_, V::Null) => false,
        (V::Bool(a), V::Bool(b)) => a == b,
        (V::Int(_) | V::Uint(_) | V::Double(_), V::Int(_) | V::Uint(_) | V::Double(_)) => {
            compare_numbers(a, b) == Some(Ordering::Equal)
        }
        (V::String(a), V::String(b)) => {
            steps.take(a.len().min(b.len()) as u64 / 64)?;
            a == b
        }
        (V::Bytes(a), V::Bytes(b)) => {
            steps.take(a.len().min(b.len()) as u64 / 64)?;
            a == b
        }
        (V::Duration(a), V::Duration(b)) => a == b,
        (V::Timestamp(a), V::Timestamp(b)) => a.instant() == b.instant(),
        (V::Type(a), V::Type(b)) => a == b,
        (V::List(a), V::List(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                // Elements that cannot be compared do not make lists differ.
                if is_unequal(a, b, steps)? {
                    return Ok(false);
                }
            }
            true
        }
        (V::Map(a), V::Map(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, value) in a.iter() {
                let Some(other) = b.get(&key.value()) else {
                    return Ok(false);
                };
                if is_unequal(value, other, steps)? {
                    return Ok(false);
                }
            }
            true
        }
        (V::Message(a), V::Message(b)) => {
            if a.0 != b.0 {
                return Ok(false);
            }
            let fields = |map: &Map| V::Map(Arc::new(map.clone()));
            steps.take((a.1.len() + b.1.len()) as u64)?;
            return equal(&fields(&a.1), &fields(&b.1), steps);
        }
        (V::Optional(a), V::Optional(b)) => match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => return equal_inside(a, b, steps),
            _ => false,
        },
        (V::Quantity(a), V::Quantity(b)) => {
            // Upstream's comparison fails for sums and differences on the right.
            if b.is_computed() {
                return Err(EvaluationError::no_such_overload());
            }
            a.quantity() == b.quantity()
        }
        (V::Semver(a), V::Semver(b)) => a.cmp_precedence(b) == Ordering::Equal,
        (V::Ip(a), V::Ip(b)) => a == b,
        (V::Cidr(a), V::Cidr(b)) => a == b,
        (V::Url(a), V::Url(b)) => a.to_string() == b.to_string(),
        (V::Format(a), V::Format(b)) => a == b,
        (V::Quantity(_) | V::Semver(_) | V::Ip(_) | V::Cidr(_) | V::Url(_) | V::Format(_), _) => {
            return Err(EvaluationError::no_such_overload());
        }
        _ => false,
    })
}

/// Like [`equal`], for values inside of others: null equals null there too.
fn equal_inside(a: &CelValue, b: &CelValue, steps: &mut Steps) -> Result<bool, EvaluationError> {
    equal(a, b, steps)
}

/// Returns whether values are known to differ.
fn is_unequal(a: &CelValue, b: &CelValue, steps: &mut Steps) -> Result<bool, EvaluationError> {
    match equal(a, b, steps) {
        Ok(equal) => Ok(!equal),
        Err(error) if error.is_absorbed() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether a list contains an equal value. Values that cannot be compared are different.
///
/// # Errors
/// There are too many steps.
pub(crate) fn contains(
    elements: &[CelValue],
    value: &CelValue,
    steps: &mut Steps,
) -> Result<bool, EvaluationError> {
    for element in elements {
        match equal(value, element, steps) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if error.is_absorbed() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The order of two values.
///
/// # Errors
/// They have none.
pub(crate) fn compare(a: &CelValue, b: &CelValue) -> Result<Ordering, EvaluationError> {
    use CelValue as V;
    Ok(match (a, b) {
        (V::Bool(a), V::Bool(b)) => a.cmp(b),
        (V::Int(_) | V::Uint(_) | V::Double(_), V::Int(_) | V::Uint(_) | V::Double(_)) => {
            return compare_numbers(a, b)
                .ok_or_else(|| EvaluationError::failed("NaN values cannot be ordered"));
        }
        (V::String(a), V::String(b)) => a.cmp(b),
        (V::Bytes(a), V::Bytes(b)) => a.cmp(b),
        (V::Duration(a), V::Duration(b)) => a.cmp(b),
        (V::Timestamp(a), V::Timestamp(b)) => a.instant().cmp(&b.instant()),
        _ => return Err(EvaluationError::no_such_overload()),
    })
}

/// The order of two numbers; none when one is not a number.
fn compare_numbers(a: &CelValue, b: &CelValue) -> Option<Ordering> {
    Some(match (a, b) {
        (CelValue::Int(a), CelValue::Int(b)) => a.cmp(b),
        (CelValue::Uint(a), CelValue::Uint(b)) => a.cmp(b),
        (CelValue::Double(a), CelValue::Double(b)) => return a.partial_cmp(b),
        (CelValue::Int(a), CelValue::Uint(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (CelValue::Uint(a), CelValue::Int(b)) => i128::from(*a).cmp(&i128::from(*b)),
        (CelValue::Double(a), CelValue::Int(b)) => number::double_and_int(*a, *b)?,
        (CelValue::Int(a), CelValue::Double(b)) => number::double_and_int(*b, *a)?.reverse(),
        (CelValue::Double(a), CelValue::Uint(b)) => number::double_and_uint(*a, *b)?,
        (CelValue::Uint(a), CelValue::Double(b)) => number::double_and_uint(*b, *a)?.reverse(),
        _ => return None,
    })
}
