//! The amounts that a request consumes of the capacity of a device (KEP-5075), in whole or in thousandths of units
//! (KEP-5942).
//!
//! Since Kubernetes 1.38 a capacity name without a domain and the same name in the domain of the driver are one name,
//! in devices, in requests and in allocations. Allocations contain the name as the device publishes it.

use crate::AllocatorFeatures;
use berth_api::devices::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, CapacityRequirements, Device, DeviceCapacity,
};
use berth_api::quantity::QuantityFormat;
use berth_api::{Quantity, Str};
use std::borrow::Cow;
use std::collections::BTreeMap;

type ConsumedAmounts = BTreeMap<Str, Quantity>;

/// The start of messages about amounts beyond the numbers that are computed with.
const NOT_REPRESENTABLE: &str =
    "capacity request cannot be represented in the device's range arithmetic";

/// A device with its driver, and how its capacity is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacities<'d> {
    device: &'d Device,
    driver: &'d str,
    features: AllocatorFeatures,
}

/// The published name of a capacity, the amount that a request consumes, and the capacity.
type DeviceAmount<'d> = (&'d Str, Quantity, &'d DeviceCapacity);

impl<'d> Capacities<'d> {
    pub(crate) fn new(device: &'d Device, driver: &'d str, features: AllocatorFeatures) -> Self {
        Self {
            device,
            driver,
            features,
        }
    }

    /// Returns whether a request fits into the remaining capacity of the device. `consumed` contains the amounts of
    /// allocated shares and of the current search.
    ///
    /// # Errors
    /// An amount cannot be computed. Before Kubernetes 1.37 the request does not fit in this case.
    pub(crate) fn fit(
        self,
        requested: Option<&CapacityRequirements>,
        consumed: [Option<&ConsumedAmounts>; 2],
    ) -> Result<bool, String> {
        let Some(amounts) = self.amounts(requested)? else {
            return Ok(false);
        };
        // All amounts are computed before the comparison, so that the order of names has no effect.
        Ok(amounts.iter().all(|(name, amount, capacity)| {
            if let Some(policy) = &capacity.request_policy
                && violates(*amount, policy, self.features)
            {
                return false;
            }
            let consumed = consumed.into_iter().flatten();
            let consumed = consumed.map(|amounts| self.amount_of(amounts, name));
            consumed.fold(*amount, |sum, amount| sum + amount) <= capacity.value
        }))
    }

    /// The amounts that a request consumes of each capacity, by the names that the device publishes.
    pub(crate) fn consumed(self, requested: Option<&CapacityRequirements>) -> ConsumedAmounts {
        let amounts = self.amounts(requested).ok().flatten().unwrap_or_default();
        let amounts = amounts.into_iter();
        amounts
            .map(|(name, amount, _)| (name.clone(), amount))
            .collect()
    }

    /// The amounts that a request consumes of each capacity; `None` if the device does not have a capacity that is
    /// requested.
    fn amounts(
        self,
        requested: Option<&CapacityRequirements>,
    ) -> Result<Option<Vec<DeviceAmount<'d>>>, String> {
        let requests = requested.map(|requested| &requested.requests);
        let requests = requests.into_iter().flatten();
        let mut resolved: BTreeMap<&Str, (&Str, Quantity)> = BTreeMap::new();
        for (name, amount) in requests {
            let Some(own) = self.own_name(name) else {
                return Ok(None);
            };
            if let Some((other, _)) = resolved.insert(own, (name, *amount)) {
                let id = own.rsplit('/').next().unwrap_or_default();
                let (name, other) = (name.as_str(), other.as_str());
                return Err(format!(
                    "capacity {id:?} requested both as {name:?} and as {other:?}"
                ));
            }
        }
        let mut amounts = Vec::with_capacity(self.device.capacity.len());
        for (name, capacity) in &self.device.capacity {
            if self.own_name(name) != Some(name) {
                // Published with the domain of the driver, too, which takes precedence.
                continue;
            }
            let requested = resolved.get(name).map(|(_, amount)| *amount);
            let failed = |why: String| format!("capacity {:?}: {why}", &*self.full_name(name));
            let amount = amount(requested, capacity, self.features).map_err(failed)?;
            if self.features.fixes.exact_shares && amount.sign() < 0 {
                return Err(failed("capacity value is negative".to_owned()));
            }
            amounts.push((name, amount, capacity));
        }
        Ok(Some(amounts))
    }

    /// The name by which the device publishes a capacity.
    fn own_name(self, name: &str) -> Option<&'d Str> {
        let published = |name: &str| {
            let known = self.device.capacity.get_key_value(name);
            known.map(|(name, _)| name)
        };
        if !self.features.fixes.qualified_capacity {
            return published(name);
        }
        match name.split_once('/') {
            Some((domain, id)) if *domain == *self.driver => {
                published(name).or_else(|| published(id))
            }
            Some(_) => published(name),
            None => published(&format!("{}/{name}", self.driver)).or_else(|| published(name)),
        }
    }

    /// The name with its domain, if domains are compared.
    fn full_name(self, name: &'d str) -> Cow<'d, str> {
        if self.features.fixes.qualified_capacity && !name.contains('/') {
            format!("{}/{name}", self.driver).into()
        } else {
            name.into()
        }
    }

    /// The amount of a capacity in `amounts`. Allocations may have used another spelling of its name.
    fn amount_of(self, amounts: &ConsumedAmounts, name: &Str) -> Quantity {
        let exact = amounts.get(name).copied().unwrap_or_default();
        if !self.features.fixes.qualified_capacity {
            return exact;
        }
        let other = match name.split_once('/') {
            Some((domain, id)) if *domain == *self.driver => Some(Cow::Borrowed(id)),
            Some(_) => None,
            None => Some(format!("{}/{name}", self.driver).into()),
        };
        let other = other.and_then(|other| amounts.get(&*other).copied());
        exact + other.unwrap_or_default()
    }
}

/// The requested amount, rounded as the device's policy requires; without a request the default of the policy, or all.
fn amount(
    requested: Option<Quantity>,
    capacity: &DeviceCapacity,
    features: AllocatorFeatures,
) -> Result<Quantity, String> {
    let policy = capacity.request_policy.as_ref();
    let Some(requested) = requested else {
        let default = policy.and_then(|policy| policy.default);
        return Ok(default.unwrap_or(capacity.value));
    };
    let Some(policy) = policy else {
        return Ok(requested);
    };
    match &policy.valid_range {
        Some(range) => match range.min {
            Some(min) => round_up(requested, min, range, features),
            None => Ok(next_valid(requested, policy)),
        },
        None => Ok(next_valid(requested, policy)),
    }
}

/// The least valid value that is not smaller; the amount itself if there is none.
fn next_valid(requested: Quantity, policy: &CapacityRequestPolicy) -> Quantity {
    let mut valid = policy.valid_values.iter().copied();
    valid.find(|value| requested <= *value).unwrap_or(requested)
}

/// The amount in thousandths, if it is a whole number of them that 64 bits can hold.
fn exact_milli(amount: Quantity) -> Option<i64> {
    let milli = amount.milli_value();
    (Quantity::from_milli(milli) == amount).then_some(milli)
}

/// The units in which a range is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Units {
    Whole,
    Milli,
}

impl Units {
    /// Thousandths, if the gate allows it and all numbers of the range are whole numbers of them.
    fn of(range: &CapacityRequestPolicyRange, features: AllocatorFeatures) -> Self {
        let numbers = [range.min, range.max, range.step];
        let mut numbers = numbers.into_iter().flatten();
        let is_step_positive = range
            .step
            .is_none_or(|step| exact_milli(step).is_some_and(|step| step >= 1));
        let is_milli = features.fractional_ranges
            && is_step_positive
            && numbers.all(|number| exact_milli(number).is_some());
        if is_milli { Self::Milli } else { Self::Whole }
    }

    fn count(self, amount: Quantity) -> i128 {
        i128::from(match self {
            Self::Whole => amount.value(),
            Self::Milli => amount.milli_value(),
        })
    }

    /// The amount of a number of units.
    fn amount(self, count: i64, format: QuantityFormat) -> Quantity {
        match self {
            Self::Milli if count % 1000 != 0 => Quantity::from_milli(count).with_format(format),
            Self::Milli => Quantity::from_value(count / 1000, format),
            Self::Whole => Quantity::from_value(count, format),
        }
    }
}

/// The least amount of `min` plus a multiple of the step that is not smaller.
fn round_up(
    requested: Quantity,
    min: Quantity,
    range: &CapacityRequestPolicyRange,
    features: AllocatorFeatures,
) -> Result<Quantity, String> {
    if requested < min {
        return Ok(min);
    }
    let Some(step_amount) = range.step else {
        return Ok(requested);
    };
    let units = Units::of(range, features);
    let step = units.count(step_amount);
    if step <= 0 {
        return Ok(requested);
    }
    let is_exact = features.fixes.exact_shares;
    if is_exact {
        let why = match units {
            Units::Milli if exact_milli(requested).is_none() => {
                Some("is not a representable milli value")
            }
            Units::Whole
                if requested > Quantity::from_value(i64::MAX, QuantityFormat::DecimalSI) =>
            {
                Some("exceeds MaxInt64")
            }
            _ => None,
        };
        if let Some(why) = why {
            return Err(format!("{NOT_REPRESENTABLE}: request {requested} {why}"));
        }
    }
    let (wanted, min) = (units.count(requested), units.count(min));
    let steps = (wanted - min).max(0).div_euclid(step);
    let is_multiple = (wanted - min).rem_euclid(step) == 0;
    let rounded = min + step * (steps + i128::from(!is_multiple));
    let format = if is_exact {
        step_amount.format()
    } else {
        QuantityFormat::BinarySI
    };
    match i64::try_from(rounded) {
        Ok(rounded) => Ok(units.amount(rounded, format)),
        Err(_) if is_exact => {
            let limit = match units {
                Units::Milli => "the milli-value range",
                Units::Whole => "MaxInt64",
            };
            Err(format!(
                "{NOT_REPRESENTABLE}: rounding request {requested} up to the next step passes {limit}"
            ))
        }
        Err(_) => Ok(units.amount(i64::MAX, format)),
    }
}

/// Returns whether the policy does not allow this amount. Its default is always allowed.
fn violates(amount: Quantity, policy: &CapacityRequestPolicy, features: AllocatorFeatures) -> bool {
    if policy.default == Some(amount) {
        return false;
    }
    if let Some(range) = &policy.valid_range {
        if range.max.is_some_and(|max| amount > max) {
            return true;
        }
        let units = Units::of(range, features);
        if units == Units::Milli && range.step.is_some() && exact_milli(amount).is_none() {
            return true;
        }
        let count = |amount: Option<Quantity>| amount.map_or(0, |amount| units.count(amount));
        let (step, min) = (count(range.step), count(range.min));
        return step > 0 && (units.count(amount) - min) % step != 0;
    }
    !policy.valid_values.is_empty() && !policy.valid_values.contains(&amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AllocatorFixes;
    use serde_json::{Value, json};

    const V1_36: AllocatorFeatures = AllocatorFeatures::V1_36;
    const V1_37: AllocatorFeatures = AllocatorFeatures {
        fixes: AllocatorFixes {
            qualified_capacity: false,
            pools_by_node: false,
            ..AllocatorFixes::ALL
        },
        ..V1_36
    };
    const FRACTIONAL: AllocatorFeatures = AllocatorFeatures {
        fractional_ranges: true,
        ..V1_37
    };
    const V1_38: AllocatorFeatures = AllocatorFeatures {
        fixes: AllocatorFixes::ALL,
        ..FRACTIONAL
    };

    fn device(policy: Value) -> Device {
        let json = json!({"name": "d", "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}}});
        serde_json::from_value(json).expect("a device")
    }

    fn requests(requests: Value) -> CapacityRequirements {
        serde_json::from_value(json!({"requests": requests})).expect("requests")
    }

    fn quantity(text: &str) -> Quantity {
        text.parse().expect("a quantity")
    }

    /// PL-168, worked by hand.
    #[test]
    fn a_request_is_rounded_by_the_policy() {
        let range =
            json!({"default": "1Gi", "validRange": {"min": "4Gi", "max": "16Gi", "step": "4Gi"}});
        let values = json!({"default": "1Gi", "validValues": ["1Gi", "10Gi", "20Gi"]});
        for (policy, requested, consumed_amount, is_allowed) in [
            (Value::Null, None, "40Gi", true),
            (Value::Null, Some("5Gi"), "5Gi", true),
            (Value::Null, Some("41Gi"), "41Gi", false),
            (range.clone(), None, "1Gi", true),
            (range.clone(), Some("1Gi"), "4Gi", true),
            (range.clone(), Some("4Gi"), "4Gi", true),
            (range.clone(), Some("5Gi"), "8Gi", true),
            (range.clone(), Some("17Gi"), "20Gi", false),
            (values.clone(), Some("2Gi"), "10Gi", true),
            (values.clone(), Some("20Gi"), "20Gi", true),
            (values, Some("21Gi"), "21Gi", false),
        ] {
            for features in [V1_36, V1_37, FRACTIONAL, V1_38] {
                let device = device(policy.clone());
                let requested = requested.map(|amount| requests(json!({"memory": amount})));
                let capacities = Capacities::new(&device, "drv", features);
                let amounts = capacities.consumed(requested.as_ref());
                let place = format!("{policy} {requested:?} {features:?}");
                assert_eq!(amounts["memory"], quantity(consumed_amount), "{place}");
                let fits = capacities.fit(requested.as_ref(), [None, None]);
                assert_eq!(fits, Ok(is_allowed), "{place}");
            }
        }
    }

    /// PL-310, worked by hand: thousandths of units, if the gate is on and the range is a whole number of them.
    #[test]
    fn ranges_can_have_fractions() {
        let range = |min: &str, step: &str, max: &str| json!({"default": max, "validRange": {"min": min, "step": step, "max": max}});
        let quarter = || range("0.5", "0.25", "2");
        for (policy, requested, features, expected, is_allowed) in [
            // 500m + 1 · 250m.
            (quarter(), "0.6", FRACTIONAL, "750m", true),
            // Whole units: the minimum, the step and the request are 1.
            (quarter(), "0.6", V1_37, "1", true),
            (quarter(), "0.6", V1_36, "1", true),
            (quarter(), "1.75", FRACTIONAL, "1750m", true),
            (quarter(), "1.8", FRACTIONAL, "2", true),
            (quarter(), "2.1", FRACTIONAL, "2250m", false),
            // A step below a thousandth is no number of thousandths: whole units.
            (range("1", "100u", "2"), "1.5", FRACTIONAL, "2", true),
        ] {
            let device = device(policy.clone());
            let requested = requests(json!({"memory": requested}));
            let capacities = Capacities::new(&device, "drv", features);
            let amounts = capacities.consumed(Some(&requested));
            let place = format!("{policy} {requested:?} {features:?}");
            assert_eq!(amounts["memory"], quantity(expected), "{place}");
            let fits = capacities.fit(Some(&requested), [None, None]);
            assert_eq!(fits, Ok(is_allowed), "{place}");
        }
    }

    /// PL-310: the amount has the format of the step; whole numbers are written without a fraction.
    #[test]
    fn amounts_have_the_format_of_the_step() {
        for (step, requested, features, text) in [
            ("512Mi", "1Gi", FRACTIONAL, "1Gi"),
            ("512Mi", "1.2Gi", FRACTIONAL, "1536Mi"),
            ("500M", "1.2G", FRACTIONAL, "1500M"),
            ("500M", "1.2G", V1_36, "1500000000"),
        ] {
            let policy = json!({"validRange": {"min": "0", "step": step}});
            let device = device(policy);
            let requested = requests(json!({"memory": requested}));
            let amounts = Capacities::new(&device, "drv", features).consumed(Some(&requested));
            assert_eq!(amounts["memory"].to_string(), text, "{step} {requested:?}");
        }
    }

    /// PL-311: an amount that cannot be computed fails the claim since Kubernetes 1.37; before, the request did not
    /// fit.
    #[test]
    fn an_amount_that_cannot_be_computed_fails() {
        let range = json!({"validRange": {"min": "0", "step": "2"}});
        let milli = json!({"validRange": {"min": "0", "step": "1500m"}});
        let why = "capacity \"memory\": capacity request cannot be represented in the device's range arithmetic: ";
        for (policy, requested, expected) in [
            (
                &range,
                "9223372036854775807",
                "rounding request 9223372036854775807 up to the next step passes MaxInt64",
            ),
            (&range, "1e19", "request 10e18 exceeds MaxInt64"),
            (
                &milli,
                "1e17",
                "request 100e15 is not a representable milli value",
            ),
            (
                &milli,
                "1u",
                "request 1u is not a representable milli value",
            ),
        ] {
            let device = device(policy.clone());
            let requested = requests(json!({"memory": requested}));
            let features = if std::ptr::eq(policy, &milli) {
                FRACTIONAL
            } else {
                V1_37
            };
            let fit = |features| {
                Capacities::new(&device, "drv", features).fit(Some(&requested), [None, None])
            };
            assert_eq!(fit(features), Err(format!("{why}{expected}")));
            assert!(fit(V1_36).is_ok(), "{requested:?}");
        }
        let device = device(Value::Null);
        let negative = requests(json!({"memory": "-1"}));
        let fit =
            |features| Capacities::new(&device, "drv", features).fit(Some(&negative), [None, None]);
        let why = "capacity \"memory\": capacity value is negative".to_owned();
        assert_eq!((fit(V1_37), fit(V1_36)), (Err(why), Ok(true)));
    }

    /// PL-312: names with and without the domain of the driver since Kubernetes 1.38.
    #[test]
    fn the_domain_of_the_driver_may_be_left_out() {
        let device = |names: &[(&str, &str)]| -> Device {
            let capacity: serde_json::Map<String, Value> = names
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json!({"value": value})))
                .collect();
            serde_json::from_value(json!({"name": "d", "capacity": capacity})).expect("a device")
        };
        let plain = device(&[("cap", "10")]);
        let qualified = device(&[("drv/cap", "10")]);
        let other = device(&[("other/cap", "10")]);
        let both = device(&[("cap", "10"), ("drv/cap", "4")]);
        for (device, requested, v1_37, v1_38) in [
            (&plain, "cap", true, true),
            (&plain, "drv/cap", false, true),
            (&plain, "other/cap", false, false),
            (&qualified, "cap", false, true),
            (&qualified, "drv/cap", true, true),
            (&other, "cap", false, false),
            (&other, "other/cap", true, true),
        ] {
            let requested = requests(json!({requested: "5"}));
            let fit = |features| {
                Capacities::new(device, "drv", features).fit(Some(&requested), [None, None])
            };
            assert_eq!(fit(V1_37), Ok(v1_37), "{device:?} {requested:?}");
            assert_eq!(fit(V1_38), Ok(v1_38), "{device:?} {requested:?}");
        }
        // A device with both spellings: the spelling with the domain takes precedence.
        let requested = requests(json!({"cap": "5"}));
        let capacities = Capacities::new(&both, "drv", V1_38);
        assert_eq!(capacities.fit(Some(&requested), [None, None]), Ok(false));
        let small = requests(json!({"cap": "4"}));
        let amounts = capacities.consumed(Some(&small));
        assert_eq!(
            amounts,
            ConsumedAmounts::from([("drv/cap".into(), quantity("4"))])
        );
        // A request with both.
        let twice = requests(json!({"cap": "1", "drv/cap": "2"}));
        let capacities = Capacities::new(&plain, "drv", V1_38);
        let why = "capacity \"cap\" requested both as \"drv/cap\" and as \"cap\"".to_owned();
        assert_eq!(capacities.fit(Some(&twice), [None, None]), Err(why));
        // Shares that were allocated under the other spelling count.
        let consumed = ConsumedAmounts::from([("drv/cap".into(), quantity("6"))]);
        let capacities = Capacities::new(&plain, "drv", V1_38);
        let five = requests(json!({"cap": "5"}));
        let four = requests(json!({"cap": "4"}));
        for (requested, expected) in [(five, false), (four, true)] {
            let fits = capacities.fit(Some(&requested), [Some(&consumed), None]);
            assert_eq!(fits, Ok(expected));
        }
    }

    #[test]
    fn shares_add_up_to_the_capacity_of_the_device() {
        let device = device(Value::Null);
        let amounts = |amount: &str| ConsumedAmounts::from([("memory".into(), quantity(amount))]);
        let (ten, eleven) = (amounts("10Gi"), amounts("11Gi"));
        for (name, consumed, expected) in [
            ("memory", [None, None], true),
            ("memory", [Some(&ten), Some(&ten)], true),
            ("memory", [Some(&ten), Some(&eleven)], false),
            ("cores", [None, None], false),
        ] {
            let requested = requests(json!({name: "20Gi"}));
            let capacities = Capacities::new(&device, "drv", V1_36);
            assert_eq!(capacities.fit(Some(&requested), consumed), Ok(expected));
        }
    }
}
