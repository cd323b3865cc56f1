//! Amounts of resources for people.

use berth_api::Quantity;
use berth_api::quantity::QuantityFormat;
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};

/// An amount in the unit of the node table (milli-CPU, bytes, otherwise whole), as Kubernetes writes it.
pub fn amount(resource: &str, amount: i64) -> String {
    match resource {
        CPU => Quantity::from_milli(amount).to_string(),
        MEMORY | EPHEMERAL_STORAGE => {
            Quantity::from_value(amount, QuantityFormat::BinarySI).to_string()
        }
        _ => amount.to_string(),
    }
}

/// The same with the resource: `500m CPU`, `2Gi memory`, `1 nvidia.com/gpu`.
pub fn with_name(resource: &str, value: i64) -> String {
    let name = match resource {
        CPU => "CPU",
        other => other,
    };
    format!("{} {name}", amount(resource, value))
}
