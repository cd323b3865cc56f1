//! `NodeAffinityArgs`: node affinity that a profile adds to each of its pods.

use crate::args::{Problems, decode};
use berth_api::node_selector::{CompiledNodeSelector, CompiledPreferredTerms};
use berth_api::pod::NodeAffinity;
use berth_framework::registry::ArgsError;
use serde::Deserialize;
use serde_json::Value;

/// The arguments, parsed.
#[derive(Debug, Clone, Default)]
pub struct NodeAffinityArgs {
    /// The terms that a node must match for every pod.
    pub added_required: Option<CompiledNodeSelector>,
    /// The terms that a node should match for every pod.
    pub added_preferred: CompiledPreferredTerms,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeAffinityWire {
    added_affinity: Option<NodeAffinity>,
}

impl NodeAffinityArgs {
    /// Reads the arguments; every term has to parse.
    ///
    /// # Errors
    /// The field that cannot be read or parsed.
    pub fn decode(args: &Value) -> Result<Self, ArgsError> {
        let wire: NodeAffinityWire = decode(args, "NodeAffinityArgs")?;
        let mut problems = Problems::default();
        let mut parsed = Self::default();
        let Some(added) = wire.added_affinity else {
            return Ok(parsed);
        };
        if let Some(required) = &added.required {
            let path = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution";
            match CompiledNodeSelector::compile_strict(required, "") {
                Ok(required) => parsed.added_required = Some(required),
                Err(error) => problems.unparsable(path, error),
            }
        }
        let path = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution";
        match CompiledPreferredTerms::new(&added.preferred, "") {
            Ok(preferred) => parsed.added_preferred = preferred,
            Err(error) => problems.unparsable(path, error),
        }
        problems.or(parsed)
    }
}
