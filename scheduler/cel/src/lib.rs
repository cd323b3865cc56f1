//! CEL as Kubernetes uses it: the device selectors of Dynamic Resource Allocation (`resource.k8s.io/v1`), and programs
//! over variables of any type, such as the validation rules of custom resources.
//!
//! A selector is compiled once: its types are checked, its constant parts are evaluated, and its cost is estimated. It
//! is then evaluated for any number of devices, each time within a budget.
//!
//! ```
//! use berth_cel::{DeviceValue, Environment, CelSelector};
//! use berth_api::devices::ResourceSlice;
//!
//! let slice: ResourceSlice = serde_json::from_value(serde_json::json!({
//!     "spec": {"driver": "gpu.example.com", "devices": [
//!         {"name": "gpu-0", "attributes": {"model": {"string": "a100"}}, "capacity": {"memory": {"value": "40Gi"}}},
//!     ]},
//! }))?;
//! let environment = Environment::default();
//! let selector = CelSelector::compile(
//!     r#"device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("20Gi"))"#,
//!     environment,
//! )?;
//! let device = DeviceValue::new(&slice.spec.driver, &slice.spec.devices[0], environment);
//! assert!(selector.matches(&device)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The language is the one of the API server of Kubernetes 1.36: the standard library, optional values, `cel.bind`,
//! two-variable comprehensions, strings, lists, sets, regular expressions, URLs, IP addresses, quantities, semantic
//! versions and formats. The `cel` crate parses; type checking, cost estimation and evaluation are in this crate.
//!
//! **Architecture invariant:** no I/O, no clock, no randomness. No function panics on input, and an evaluation has a
//! bounded number of steps.

mod ast;
mod call_cost;
mod check;
mod cost;
mod datum;
mod declarations;
mod device;
mod environment;
mod error;
mod eval;
mod field_name;
mod functions;
mod limits;
mod macros;
mod number;
mod parse;
mod plan;
mod plan_node;
mod program;
mod selector;
mod syntax;
mod tree;
mod types;
mod unify;
mod validate;
mod value;

pub use ast::TextPosition;
pub use datum::Datum;
pub use device::DeviceValue;
pub use environment::Environment;
pub use error::{CompileError, EvaluationError, Issue, Issues};
pub use eval::Spent;
pub use field_name::{RESERVED, escaped};
pub use functions::regex::{Pattern, RegexError};
pub use limits::{COST_MAX, DEPTH_MAX, EXPRESSION_LENGTH_MAX};
pub use number::shortest_text;
pub use program::{Output, Program, Variables};
pub use selector::{AttributeExpression, CelSelector};
