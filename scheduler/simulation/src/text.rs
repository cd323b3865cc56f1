//! Traces as text: CSV for pods or nodes, YAML for all parts.
//!
//! Errors name the line, the column and the correction. Files that a trace names, such as templates of pods, are read
//! by the caller, and so are objects of Kubernetes.

mod csv;
mod fields;
mod yaml;

pub use csv::read_csv;
pub use yaml::read_yaml;

use crate::trace::Trace;
use berth_api::Pod;
use serde_json::Value;
use std::fmt;

/// Reads the template of a pod; receives the path in the trace.
pub type LoadPod<'a> = dyn FnMut(&str) -> Result<Pod, String> + 'a;

/// A trace as YAML.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlTrace {
    /// The trace without its objects.
    pub trace: Trace,
    /// The objects of Kubernetes in the trace, which the caller adds to it.
    pub objects: Vec<PlacedObject>,
}

/// An object of Kubernetes in a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedObject {
    /// The line, from 1.
    pub line: u64,
    /// The column in characters, from 1.
    pub column: u64,
    /// The object.
    pub object: Value,
}

/// A mistake in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    /// The line, from 1.
    pub line: u64,
    /// The column in characters, from 1; 0 if unknown.
    pub column: u64,
    /// The field, if it has a name.
    pub field: String,
    /// The mistake and the way out.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if self.column > 0 {
            write!(f, ", column {}", self.column)?;
        }
        if !self.field.is_empty() {
            write!(f, ", {}", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for TextError {}
