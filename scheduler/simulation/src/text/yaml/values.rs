//! Values of traces as YAML: each is parsed from its text, so that an error has the location of the value; and the
//! texts of errors of the YAML reader.

use crate::distribution::Distribution;
use crate::span::{Moment, parse_span};
use crate::text::TextError;
use crate::text::fields::{
    Removal, amount, boolean, count, grace_period, number, price, removal, resource, taint,
};
use crate::trace::generate::AmountDistribution;
use berth_api::{Duration, Quantity, ResourceList, Str, Taint, Time};
use berth_scheduler::profile::closest;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{Error, Location, Spanned};
use std::collections::BTreeMap;
use std::fmt;

/// A value that is read from its text; numbers and booleans are their text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Text<T>(pub(super) T);

/// A value with its place.
pub(super) type Placed<T> = Spanned<Text<T>>;

/// A type that is read from a text.
pub(super) trait FromText: Sized {
    fn from_text(text: &str) -> Result<Self, String>;
}

macro_rules! from_text {
    ($($type:ty: $read:expr;)*) => {
        $(impl FromText for $type {
            fn from_text(text: &str) -> Result<Self, String> {
                $read(text)
            }
        })*
    };
}

from_text! {
    Duration: parse_span;
    Moment: Moment::parse;
    Distribution: Distribution::parse;
    AmountDistribution: AmountDistribution::parse;
    Taint: taint;
    Quantity: amount;
    Removal: removal;
    bool: boolean;
    u32: number;
    u64: number;
    i32: number;
    Time: date;
    Str: name;
    Resource: |text| resource(text).map(Self);
    Price: |text| price(text).map(Self);
    Count: |text| count(text).map(Self);
    GracePeriod: |text| grace_period(text).map(Self);
    Rate: |text| real(text, "a rate above 0", |rate| rate > 0.0).map(Self);
    Hour: |text| real(text, "an hour from 0 to 24", |hour| (0.0..=24.0).contains(&hour)).map(Self);
    Share: |text| real(text, "a share from 0 to 1", |share| (0.0..=1.0).contains(&share)).map(Self);
    BurstSize: |text| real(text, "a mean size of at least 1", |size| size >= 1.0).map(Self);
}

/// The name of a resource that pods request.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource(pub(super) Str);
/// The number of pods or nodes of an item.
pub(super) struct Count(pub(super) u32);
/// The grace period of the containers of a deleted pod.
pub(super) struct GracePeriod(pub(super) Duration);
/// A price for an hour.
pub(super) struct Price(pub(super) f64);
/// A mean number of pods for an hour.
pub(super) struct Rate(pub(super) f64);
/// An hour of the day.
pub(super) struct Hour(pub(super) f64);
/// A share.
pub(super) struct Share(pub(super) f64);
/// The mean number of pods of a burst.
pub(super) struct BurstSize(pub(super) f64);

fn real(text: &str, wanted: &str, is_valid: impl Fn(f64) -> bool) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && is_valid(*number));
    number.ok_or_else(|| format!("{text:?} is not {wanted}"))
}

fn date(text: &str) -> Result<Time, String> {
    let wrong = |_| format!("{text:?} is no date; write one such as 2026-01-31T12:00:00Z");
    text.parse().map_err(wrong)
}

fn name(text: &str) -> Result<Str, String> {
    if text.is_empty() {
        return Err("the name is empty".to_owned());
    }
    Ok(text.into())
}

impl<'de, T: FromText> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsText;
        impl Visitor<'_> for AsText {
            type Value = String;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a number")
            }
            fn visit_str<E>(self, text: &str) -> Result<String, E> {
                Ok(text.to_owned())
            }
            fn visit_bool<E>(self, value: bool) -> Result<String, E> {
                Ok(value.to_string())
            }
            fn visit_i64<E>(self, number: i64) -> Result<String, E> {
                Ok(number.to_string())
            }
            fn visit_u64<E>(self, number: u64) -> Result<String, E> {
                Ok(number.to_string())
            }
            fn visit_f64<E>(self, number: f64) -> Result<String, E> {
                // In exponent notation if the digits would fill a line.
                Ok(format!("{number:?}"))
            }
            fn visit_unit<E: serde::de::Error>(self) -> Result<String, E> {
                Err(E::custom("the value is missing"))
            }
        }
        let text = deserializer.deserialize_any(AsText)?;
        T::from_text(&text).map(Self).map_err(D::Error::custom)
    }
}

/// Amounts by resource.
#[derive(Deserialize, Default)]
#[serde(transparent)]
pub(super) struct Amounts(BTreeMap<Text<Resource>, Text<Quantity>>);

impl Amounts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn list(self) -> ResourceList {
        let amounts = self.0.into_iter();
        ResourceList::from_pairs(amounts.map(|(name, amount)| (name.0.0, amount.0)))
    }
}

/// A mistake at a place.
pub(super) fn mistake(place: Location, message: impl Into<String>) -> TextError {
    TextError {
        line: place.line().max(1),
        column: place.column().max(1),
        field: String::new(),
        message: message.into(),
    }
}

/// An error of the YAML reader.
pub(super) fn unreadable(error: &Error) -> TextError {
    let place = error.location().unwrap_or(Location::UNKNOWN);
    mistake(place, message_of(error.without_snippet()))
}

fn message_of(error: &Error) -> String {
    match error {
        Error::SerdeUnknownField {
            field, expected, ..
        } => match closest(field, expected.iter().copied()) {
            Some(near) => format!("unknown field {field:?}; did you mean {near:?}?"),
            None => format!(
                "unknown field {field:?}; the fields are {}",
                expected.join(", ")
            ),
        },
        Error::SerdeMissingField { field, .. } => {
            format!("the item has no field {field:?}; add it")
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the field {key:?} is given twice; remove one")
        }
        Error::MultipleDocuments { .. } => {
            "a second document begins; a trace is one document, without ---".to_owned()
        }
        Error::Unexpected { expected, .. } => match *expected {
            "mapping start" => "no mapping; write NAME: VALUE, one a line".to_owned(),
            "sequence start" => "no list; begin each item with a dash".to_owned(),
            other => format!("expected {other}"),
        },
        Error::NonFiniteFloat { .. } => "the number is not finite".to_owned(),
        other => first_line(&other.to_string()),
    }
}

/// The first line of an error, without its place.
fn first_line(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    // "line 3 column 5: …" and "… at line 3, column 5".
    let first = match first.split_once(": ") {
        Some((place, rest)) if place.starts_with("line ") => rest,
        _ => first,
    };
    let end = first.rfind(" at line ").unwrap_or(first.len());
    first[..end].to_owned()
}
