//! The results of the CEL environment of Kubernetes 1.36 for expressions, from a table that was generated with it.
//!
//! Each line has an expression and either the errors with which it is refused, or its estimated cost, with the results
//! and costs of the evaluations for three devices. `lists` marks expressions for attributes that can be lists.

use berth_api::devices::Device;
use berth_cel::{COST_MAX, CelSelector, CompileError, DeviceValue, Environment};
use serde_json::{Value, json};

const FACTS: &str = include_str!("facts.jsonl");

fn device(driver: &str, value: Value, environment: Environment) -> DeviceValue {
    let device: Device = serde_json::from_value(value).expect("a device");
    DeviceValue::new(driver, &device, environment)
}

fn single_values() -> [DeviceValue; 3] {
    let environment = Environment::default();
    [
        device(
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
            environment,
        ),
        device(
            "nic.example.com",
            json!({"attributes": {
                "model": {"string": "cx6"},
                "index": {"int": 0},
                "healthy": {"bool": false},
            }}),
            environment,
        ),
        device("gpu.example.com", json!({}), environment),
    ]
}

const LISTS: Environment = Environment::of_devices(true, false);

fn lists() -> [DeviceValue; 3] {
    [
        device(
            "gpu.example.com",
            json!({
                "allowMultipleAllocations": false,
                "attributes": {
                    "model": {"strings": ["A100-SXM4", "abc", "a"]},
                    "index": {"ints": [3, 0, -1, 3]},
                    "healthy": {"bools": [true, false]},
                    "driverVersion": {"versions": ["1.12.3", "1.2.3", "1.0.0-alpha"]},
                    "addr": {"string": "10.1.2.3"},
                },
                "capacity": {"memory": {"value": "40Gi"}},
            }),
            LISTS,
        ),
        device(
            "gpu.example.com",
            json!({"attributes": {
                "model": {"string": "A100-SXM4"},
                "index": {"int": 3},
                "healthy": {"bool": true},
                "driverVersion": {"version": "1.2.3"},
                "other.example.com/tag": {"strings": ["x,y,z"]},
            }}),
            LISTS,
        ),
        device("gpu.example.com", json!({"attributes": {}}), LISTS),
    ]
}

/// The positions of the errors, and the start of each message: lists of possible tokens differ.
fn places(error: &CompileError) -> Vec<String> {
    match error {
        CompileError::Invalid(issues) => issues
            .iter()
            .map(|issue| {
                let place = match issue.position {
                    Some(position) => format!("{}:{}", position.line, position.column),
                    None => "-1:0".to_owned(),
                };
                format!("{place} {}", issue.message)
            })
            .collect(),
        other => vec![other.to_string()],
    }
}

fn gist(error: &str) -> &str {
    match error
        .find(" expecting ")
        .or_else(|| error.find(" at input "))
    {
        Some(end) => &error[..end],
        None => error,
    }
}

#[test]
fn every_expression_means_what_it_means_in_kubernetes() {
    let (single_values, lists) = (single_values(), lists());
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in FACTS.lines() {
        count += 1;
        let fact: Value = serde_json::from_str(line).expect("a fact");
        let expression = fact["expression"].as_str().expect("an expression");
        let (environment, devices) = match fact["lists"].as_bool() {
            Some(true) => (LISTS, &lists),
            _ => (Environment::default(), &single_values),
        };
        let mut check = |what: &str, recorded: &Value, got: Value| {
            if *recorded != got {
                wrong.push(format!(
                    "{expression}\n  {what}: recorded {recorded}, got {got}"
                ));
            }
        };
        match (
            CelSelector::compile(expression, environment),
            &fact["errors"],
        ) {
            (Err(error), Value::Array(recorded)) => {
                let got = places(&error);
                let got: Vec<&str> = got.iter().map(|error| gist(error)).collect();
                let recorded: Vec<&str> = recorded
                    .iter()
                    .filter_map(|error| error.as_str().map(gist))
                    .collect();
                check("errors", &json!(recorded), json!(got));
            }
            (Ok(selector), Value::Null) => {
                check(
                    "maxCost",
                    &fact["maxCost"],
                    json!(selector.estimated_cost()),
                );
                for (index, device) in devices.iter().enumerate() {
                    let (result, spent) = selector.matches_within(device, COST_MAX);
                    let cost = spent.cost;
                    let is_error = result.is_err();
                    let result = result.map_or_else(|_| json!("error"), Value::Bool);
                    check("result", &fact["results"][index], result);
                    if !is_error {
                        check("cost", &fact["costs"][index], json!(cost));
                    }
                }
            }
            (got, recorded) => {
                let got = got.err().map(|error| places(&error));
                check("errors", recorded, json!(got));
            }
        }
    }
    assert_eq!(count, 1_346);
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
