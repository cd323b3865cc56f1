//! The checks of a text, for the fuzz target and for the test that replays its corpus.

use berth_api::devices::Device;
use berth_cel::{COST_MAX, CelSelector, DeviceValue, Environment};
use std::sync::LazyLock;

const ENVIRONMENTS: [Environment; 3] = [
    Environment::of_devices(false, false),
    Environment::of_devices(false, true),
    Environment::of_devices(true, false),
];

static DEVICES: LazyLock<Vec<(Environment, Vec<DeviceValue>)>> = LazyLock::new(|| {
    let full = r#"{
        "allowMultipleAllocations": true,
        "attributes": {
            "model": {"string": "A100-SXM4"}, "index": {"int": 3}, "healthy": {"bool": true},
            "driverVersion": {"version": "1.12.3"}, "addr": {"string": "10.1.2.3"},
            "other.example.com/tag": {"string": "x,y,z"}
        },
        "capacity": {"memory": {"value": "40Gi"}, "other.example.com/cores": {"value": "1500m"}}
    }"#;
    let full: Device = serde_json::from_str(full).unwrap_or_default();
    let of = |environment| {
        let devices = [&full, &Device::default()];
        let devices =
            devices.map(|device| DeviceValue::new("gpu.example.com", device, environment));
        (environment, devices.into())
    };
    ENVIRONMENTS.map(of).into()
});

/// Compiles a text and evaluates it. The result is ignored; the call must return.
pub(crate) fn check(text: &str) {
    for (environment, devices) in DEVICES.iter() {
        match CelSelector::compile(text, *environment) {
            Ok(selector) => {
                let _ = selector.estimated_cost();
                for device in devices {
                    let (result, spent) = selector.matches_within(device, COST_MAX);
                    let cost = spent.cost;
                    assert!(result.is_err() || cost <= COST_MAX);
                }
            }
            Err(error) => drop(error.to_string()),
        }
    }
}
