//! Devices as values.

use crate::environment::{ATTRIBUTES, CAPACITY, DRIVER, Environment, MULTIPLE};
use crate::error::EvaluationError;
use crate::functions::{VersionError, parse_semver};
use crate::value::{CelQuantity, CelValue, Map, MapKey};
use berth_api::Str;
use berth_api::devices::{Device, DeviceAttribute};
use std::sync::Arc;

/// A device as the value of the variable `device`: prepared once, for all expressions.
#[derive(Debug, Clone)]
pub struct DeviceValue {
    /// The device, or which attribute cannot be read and why.
    pub(crate) value: Result<CelValue, EvaluationError>,
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
) -> Result<CelValue, EvaluationError> {
    let mut attributes = Domains::new(driver);
    for (name, attribute) in &device.attributes {
        let value = attribute_value(attribute, environment)
            .map_err(|why| EvaluationError::Attribute(name.to_string(), why.to_string()))?;
        attributes.insert(name, value);
    }
    let mut capacity = Domains::new(driver);
    for (name, amount) in &device.capacity {
        capacity.insert(name, CelValue::Quantity(CelQuantity::stored(amount.value)));
    }
    let mut fields = Map::default();
    let mut field = |name: &str, value| fields.insert(MapKey::String(name.into()), value);
    field(DRIVER, CelValue::text(driver));
    field(MULTIPLE, CelValue::Bool(device.allow_multiple_allocations));
    field(ATTRIBUTES, attributes.into_value());
    field(CAPACITY, capacity.into_value());
    Ok(CelValue::Map(Arc::new(fields)))
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

    fn insert(&mut self, name: &'d Str, value: CelValue) {
        let (domain, id) = name.split_once('/').unwrap_or((self.driver, name));
        let values = self.by_domain.entry(domain).or_default();
        values.insert(MapKey::String(id.into()), value);
    }

    /// A domain that does not exist is empty.
    fn into_value(self) -> CelValue {
        let mut map = Map::with_default(CelValue::Map(Arc::default()));
        for (domain, values) in self.by_domain {
            map.insert(
                MapKey::String(domain.into()),
                CelValue::Map(Arc::new(values)),
            );
        }
        CelValue::Map(Arc::new(map))
    }
}

/// The value of an attribute cannot be read.
#[derive(Debug, thiserror::Error)]
enum AttributeError {
    #[error("parse semantic version: {0}")]
    Version(VersionError),
    #[error("unsupported attribute value")]
    Unsupported,
}

fn attribute_value(
    attribute: &DeviceAttribute,
    environment: Environment,
) -> Result<CelValue, AttributeError> {
    let version = |text: &Str| {
        parse_semver(text)
            .map(|version| CelValue::Semver(Arc::new(version)))
            .map_err(AttributeError::Version)
    };
    let list = |values: Vec<CelValue>| {
        if environment.list_attributes {
            Ok(CelValue::list(values))
        } else {
            Err(AttributeError::Unsupported)
        }
    };
    match attribute {
        DeviceAttribute::Int(value) => Ok(CelValue::Int(*value)),
        DeviceAttribute::Bool(value) => Ok(CelValue::Bool(*value)),
        DeviceAttribute::String(text) => Ok(CelValue::text(text)),
        DeviceAttribute::Version(text) => version(text),
        DeviceAttribute::Ints(values) => list(values.iter().copied().map(CelValue::Int).collect()),
        DeviceAttribute::Bools(values) => {
            list(values.iter().copied().map(CelValue::Bool).collect())
        }
        DeviceAttribute::Strings(texts) => {
            list(texts.iter().map(|text| CelValue::text(text)).collect())
        }
        DeviceAttribute::Versions(texts) => {
            list(texts.iter().map(version).collect::<Result<_, _>>()?)
        }
        DeviceAttribute::Unknown => Err(AttributeError::Unsupported),
    }
}
