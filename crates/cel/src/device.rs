//! Devices as values.

use crate::environment::{ATTRIBUTES, CAPACITY, DRIVER, Environment, MULTIPLE};
use crate::error::EvaluationError;
use crate::functions::parse_semver;
use crate::functions::quantity::Amount;
use crate::value::{Key, Map, Value};
use berth_api::Str;
use berth_api::devices::{Device, DeviceAttribute};
use std::sync::Arc;

/// A device as the value of the variable `device`: prepared once, for all expressions.
#[derive(Debug, Clone)]
pub struct DeviceValue {
    /// The device, or which attribute cannot be read and why.
    pub(crate) value: Result<Value, EvaluationError>,
}

impl DeviceValue {
    /// The value of a device of a driver. Names of attributes and capacities without a domain are in the domain of the
    /// driver.
    pub fn new(driver: &str, device: &Device, environment: Environment) -> Self {
        Self {
            value: value(driver, device, environment),
        }
    }
}

fn value(
    driver: &str,
    device: &Device,
    environment: Environment,
) -> Result<Value, EvaluationError> {
    let mut attributes = Domains::new(driver);
    for (name, attribute) in &device.attributes {
        let value = attribute_value(attribute, environment)
            .map_err(|why| EvaluationError::Attribute(name.to_string(), why))?;
        attributes.insert(name, value);
    }
    let mut capacity = Domains::new(driver);
    for (name, amount) in &device.capacity {
        capacity.insert(name, Value::Quantity(Amount::stored(amount.value)));
    }
    let mut fields = Map::default();
    let mut field = |name: &str, value| fields.insert(Key::String(name.into()), value);
    field(DRIVER, Value::text(driver));
    field(MULTIPLE, Value::Bool(device.allow_multiple_allocations));
    field(ATTRIBUTES, attributes.into_value());
    field(CAPACITY, capacity.into_value());
    Ok(Value::Map(Arc::new(fields)))
}

/// Values by domain and name.
struct Domains<'d> {
    driver: &'d str,
    by_domain: indexmap::IndexMap<&'d str, Map>,
}

impl<'d> Domains<'d> {
    fn new(driver: &'d str) -> Self {
        Self {
            driver,
            by_domain: indexmap::IndexMap::new(),
        }
    }

    fn insert(&mut self, name: &'d Str, value: Value) {
        let (domain, id) = name.split_once('/').unwrap_or((self.driver, name));
        let values = self.by_domain.entry(domain).or_default();
        values.insert(Key::String(id.into()), value);
    }

    /// A domain that does not exist is empty.
    fn into_value(self) -> Value {
        let mut map = Map::with_default(Value::Map(Arc::default()));
        for (domain, values) in self.by_domain {
            map.insert(Key::String(domain.into()), Value::Map(Arc::new(values)));
        }
        Value::Map(Arc::new(map))
    }
}

fn attribute_value(attribute: &DeviceAttribute, environment: Environment) -> Result<Value, String> {
    let version = |text: &Str| {
        parse_semver(text)
            .map(|version| Value::Semver(Arc::new(version)))
            .map_err(|why| format!("parse semantic version: {why}"))
    };
    let list = |values: Vec<Value>| {
        if environment.list_attributes {
            Ok(Value::list(values))
        } else {
            Err("unsupported attribute value".to_owned())
        }
    };
    match attribute {
        DeviceAttribute::Int(value) => Ok(Value::Int(*value)),
        DeviceAttribute::Bool(value) => Ok(Value::Bool(*value)),
        DeviceAttribute::String(text) => Ok(Value::text(text)),
        DeviceAttribute::Version(text) => version(text),
        DeviceAttribute::Ints(values) => list(values.iter().copied().map(Value::Int).collect()),
        DeviceAttribute::Bools(values) => list(values.iter().copied().map(Value::Bool).collect()),
        DeviceAttribute::Strings(texts) => {
            list(texts.iter().map(|text| Value::text(text)).collect())
        }
        DeviceAttribute::Versions(texts) => {
            list(texts.iter().map(version).collect::<Result<_, _>>()?)
        }
        DeviceAttribute::Unknown => Err("unsupported attribute value".to_owned()),
    }
}
