//! Replays device selectors: compile errors, and the results for three devices.
//!
//! The replay compares whether an expression compiles and the positions of its errors; for an expression that compiles,
//! whether each device is selected, is not selected, or is an error. Of error messages only the beginning is compared.
//! Estimated costs are not compared.

use crate::report::CaseReport;
use berth_api::Release;
use berth_api::devices::Device;
use berth_cel::{CelSelector, DeviceValue, Environment};
use berth_framework::FeatureGates;
use berth_framework::features::Behaviour;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::BufRead;

#[derive(Debug, Deserialize)]
struct CelCase {
    id: String,
    expression: String,
    expect: ExpectedAnswer,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExpectedAnswer {
    compile_error: Option<String>,
    #[serde(default)]
    results: Vec<DeviceAnswer>,
}

/// The result of an expression for a device.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum DeviceAnswer {
    Selected(bool),
    Error {
        #[allow(dead_code, reason = "read to distinguish the two")]
        error: String,
    },
}

/// Replays expressions, one JSON object per line, as a release. Unreadable lines fail under their number.
pub fn replay(reader: impl BufRead, release: Release) -> CaseReport {
    let mut report = CaseReport::new();
    let has_lists = FeatureGates::of(release).has(Behaviour::ListAttributesInSelectors);
    let environment = Environment::of_devices(has_lists, false);
    let devices = match devices(environment) {
        Ok(devices) => devices,
        Err(e) => {
            report.fail("the devices", e.to_string());
            return report;
        }
    };
    for (i, line) in reader.lines().enumerate() {
        let number = i + 1;
        let line = match line {
            Ok(line) => line,
            Err(e) => {
                report.fail(format!("line {number}"), format!("cannot be read: {e}"));
                break;
            }
        };
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str::<CelCase>(&line) {
            Ok(case) => match check(&case, environment, &devices) {
                Ok(()) => report.pass(case.id),
                Err(what) => report.fail(case.id, format!("{:?}: {what}", case.expression)),
            },
            Err(e) => report.fail(format!("line {number}"), format!("is not a case: {e}")),
        }
    }
    report
}

/// The devices of the recording.
fn devices(environment: Environment) -> serde_json::Result<[DeviceValue; 3]> {
    let value = |driver, device: Value| {
        let device: Device = serde_json::from_value(device)?;
        Ok(DeviceValue::new(driver, &device, environment))
    };
    Ok([
        value(
            "gpu.example.com",
            json!({
                "allowMultipleAllocations": true,
                "attributes": {
                    "model": {"string": "A100-SXM4"},
                    "index": {"int": 3},
                    "healthy": {"bool": true},
                    "driverVersion": {"version": "1.12.3"},
                    "addr": {"string": "10.1.2.3"},
                    "other.example.com/tag": {"string": "x,y,z"},
                },
                "capacity": {
                    "memory": {"value": "40Gi"},
                    "other.example.com/cores": {"value": "1500m"},
                },
            }),
        )?,
        value(
            "nic.example.com",
            json!({"attributes": {
                "model": {"string": "cx6"},
                "index": {"int": 0},
                "healthy": {"bool": false},
            }}),
        )?,
        value("gpu.example.com", json!({}))?,
    ])
}

fn check(case: &CelCase, environment: Environment, devices: &[DeviceValue]) -> Result<(), String> {
    let selector = match (
        CelSelector::compile(&case.expression, environment),
        &case.expect.compile_error,
    ) {
        (Err(_), None) if case.expect.results.is_empty() => {
            return Err("nothing was recorded".to_owned());
        }
        (Err(got), None) => return Err(format!("was accepted, but is refused: {got}")),
        (Ok(_), Some(recorded)) => {
            return Err(format!("was refused, but is accepted: {recorded}"));
        }
        (Err(got), Some(recorded)) => {
            let got = got.to_string();
            return if gist(recorded) == gist(&got) {
                Ok(())
            } else {
                Err(format!("recorded {recorded}, got {got}"))
            };
        }
        (Ok(selector), None) => selector,
    };
    if case.expect.results.len() != devices.len() {
        let count = case.expect.results.len();
        return Err(format!("{count} results for {} devices", devices.len()));
    }
    for (index, (recorded, device)) in case.expect.results.iter().zip(devices).enumerate() {
        let got = selector.matches(device);
        let same = match (recorded, &got) {
            (DeviceAnswer::Selected(recorded), Ok(got)) => recorded == got,
            (DeviceAnswer::Error { .. }, Err(_)) => true,
            _ => false,
        };
        if !same {
            let number = index + 1;
            return Err(format!(
                "device {number}: recorded {recorded:?}, got {got:?}"
            ));
        }
    }
    Ok(())
}

/// The positions of the errors in a text, and the beginnings of their messages up to the first name or list of
/// alternatives.
fn gist(error: &str) -> Vec<(&str, &str)> {
    const PLACE: &str = "ERROR: <input>:";
    fn start(message: &str) -> &str {
        match message.find(['\'', '{', '"', '(', '\n']) {
            Some(end) => &message[..end],
            None => message,
        }
    }
    let mut gists: Vec<(&str, &str)> = error
        .split(PLACE)
        .skip(1)
        .map(|issue| {
            let (place, message) = issue.split_once(' ').unwrap_or((issue, ""));
            (place, start(message))
        })
        .collect();
    if gists.is_empty() {
        let kind = error.split_once(':').map_or(error, |(kind, _)| kind);
        gists.push(("", start(kind)));
    }
    gists
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn recorded() -> Vec<String> {
        let packed: &[u8] = include_bytes!("../vectors/cel.jsonl.gz");
        BufReader::new(flate2::read::GzDecoder::new(packed))
            .lines()
            .map(|line| line.expect("a line"))
            .collect()
    }

    #[test]
    fn every_selector_comes_out_as_recorded() {
        for release in Release::ALL {
            let report = replay(recorded().join("\n").as_bytes(), release);
            assert!(report.is_ok(), "{release}: {report}");
            assert_eq!(report.passed.len(), 156, "{release}");
        }
    }

    /// The replay reports each kind of difference.
    #[test]
    fn a_difference_is_noticed() {
        let check = |expression: &str, expect: Value| {
            let case = json!({"id": "a", "expression": expression, "expect": expect});
            replay(case.to_string().as_bytes(), Release::V1_36).is_ok()
        };
        let one = "device.attributes[device.driver].index == 3";
        let error = json!({"error": "no such key"});
        assert!(check(one, json!({"results": [true, false, error]})));
        assert!(!check(one, json!({"results": [true, true, error]})));
        assert!(!check(one, json!({"results": [true, false, false]})));
        assert!(!check(one, json!({"results": [true, error, error]})));
        assert!(!check(one, json!({"results": [true, false]})));
        assert!(!check(one, json!({"compileError": "compilation failed: "})));
        let refused = "device.nope";
        let text = "compilation failed: ERROR: <input>:1:7: undefined field 'nope'\n";
        assert!(check(refused, json!({"compileError": text})));
        for other in [
            text.replace("1:7", "1:8"),
            text.replace("undefined", "unknown"),
        ] {
            assert!(!check(refused, json!({"compileError": other})));
        }
        assert!(!check(refused, json!({"results": [true, true, true]})));
    }
}
