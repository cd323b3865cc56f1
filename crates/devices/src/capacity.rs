//! What a request consumes of a device's capacity (KEP-5075).

use berth_api::devices::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, CapacityRequirements, Device, DeviceCapacity,
};
use berth_api::quantity::Format;
use berth_api::{Quantity, Str};
use std::collections::BTreeMap;

type Amounts = BTreeMap<Str, Quantity>;

/// Whether a request fits into what is left of a device's capacity. `consumed` is what allocated shares and those of
/// the current search consume.
pub(crate) fn fits(
    device: &Device,
    requested: Option<&CapacityRequirements>,
    consumed: [Option<&Amounts>; 2],
) -> bool {
    let mut names = requested.into_iter().flat_map(|r| r.requests.keys());
    if names.any(|name| !device.capacity.contains_key(name)) {
        return false;
    }
    device.capacity.iter().all(|(name, capacity)| {
        let amount = amount(requested, name, capacity);
        if let Some(policy) = &capacity.request_policy
            && violates(amount, policy)
        {
            return false;
        }
        let consumed = consumed.into_iter().flatten();
        let consumed = consumed.filter_map(|amounts| amounts.get(name).copied());
        consumed.fold(amount, |sum, amount| sum + amount) <= capacity.value
    })
}

/// What a request consumes of each capacity of a device.
pub(crate) fn consumed(device: &Device, requested: Option<&CapacityRequirements>) -> Amounts {
    let capacities = device.capacity.iter();
    capacities
        .map(|(name, capacity)| (name.clone(), amount(requested, name, capacity)))
        .collect()
}

/// The requested amount, rounded as the device's policy says; without a request the default of the policy, or all.
fn amount(
    requested: Option<&CapacityRequirements>,
    name: &Str,
    capacity: &DeviceCapacity,
) -> Quantity {
    let policy = capacity.request_policy.as_ref();
    let requested = requested.and_then(|requested| requested.requests.get(name));
    let Some(requested) = requested.copied() else {
        let default = policy.and_then(|policy| policy.default);
        return default.unwrap_or(capacity.value);
    };
    let Some(policy) = policy else {
        return requested;
    };
    match &policy.valid_range {
        Some(range) => match range.min {
            Some(min) => round_up(requested, min, range),
            None => next_valid(requested, policy),
        },
        None => next_valid(requested, policy),
    }
}

/// The least valid value that is not smaller; the amount itself if there is none.
fn next_valid(requested: Quantity, policy: &CapacityRequestPolicy) -> Quantity {
    let mut valid = policy.valid_values.iter().copied();
    valid.find(|value| requested <= *value).unwrap_or(requested)
}

/// The least amount of `min` plus a multiple of the step that is not smaller, in whole units.
fn round_up(requested: Quantity, min: Quantity, range: &CapacityRequestPolicyRange) -> Quantity {
    if requested < min {
        return min;
    }
    let step = range.step.map_or(0, Quantity::value);
    if step <= 0 {
        return requested;
    }
    let (requested, min, step) = (
        i128::from(requested.value()),
        i128::from(min.value()),
        i128::from(step),
    );
    let steps = (requested - min).max(0).div_euclid(step);
    let is_multiple = (requested - min).rem_euclid(step) == 0;
    let rounded = min + step * (steps + i128::from(!is_multiple));
    Quantity::from_value(i64::try_from(rounded).unwrap_or(i64::MAX), Format::BinarySI)
}

/// Whether the policy does not allow this amount. Its default is always allowed.
fn violates(amount: Quantity, policy: &CapacityRequestPolicy) -> bool {
    if policy.default == Some(amount) {
        return false;
    }
    if let Some(range) = &policy.valid_range {
        if range.max.is_some_and(|max| amount > max) {
            return true;
        }
        let step = range.step.map_or(0, Quantity::value);
        let min = range.min.map_or(0, Quantity::value);
        return step > 0 && (i128::from(amount.value()) - i128::from(min)) % i128::from(step) != 0;
    }
    !policy.valid_values.is_empty() && !policy.valid_values.contains(&amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn device(policy: Value) -> Device {
        let json = json!({"name": "d", "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}}});
        serde_json::from_value(json).expect("a device")
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
            let device = device(policy.clone());
            let requested = requested.map(|amount| CapacityRequirements {
                requests: [("memory".into(), amount.parse().expect("a quantity"))].into(),
            });
            let amounts = consumed(&device, requested.as_ref());
            let expected: Quantity = consumed_amount.parse().expect("a quantity");
            assert_eq!(amounts["memory"], expected, "{policy} {requested:?}");
            let fits = fits(&device, requested.as_ref(), [None, None]);
            assert_eq!(fits, is_allowed, "{policy} {requested:?}");
        }
    }

    #[test]
    fn shares_add_up_to_the_capacity_of_the_device() {
        let device = device(Value::Null);
        let request = |name: &str| CapacityRequirements {
            requests: [(name.into(), "20Gi".parse().expect("a quantity"))].into(),
        };
        let amounts =
            |amount: &str| Amounts::from([("memory".into(), amount.parse().expect("a quantity"))]);
        let (ten, eleven) = (amounts("10Gi"), amounts("11Gi"));
        for (name, consumed, expected) in [
            ("memory", [None, None], true),
            ("memory", [Some(&ten), Some(&ten)], true),
            ("memory", [Some(&ten), Some(&eleven)], false),
            ("cores", [None, None], false),
        ] {
            assert_eq!(fits(&device, Some(&request(name)), consumed), expected);
        }
    }
}
