//! What a pod requires of its node: `nodeSelector` and required node affinity together. Several plugins ask for it.

use berth_api::node_selector::{CompiledNodeSelector, ParseError};
use berth_api::{Labels, Node, Pod};

/// What a pod requires of its node, parsed.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequiredNodeAffinity {
    labels: Option<Labels>,
    terms: Option<CompiledNodeSelector>,
}

impl RequiredNodeAffinity {
    /// What `pod` requires.
    pub(crate) fn of(pod: &Pod) -> Self {
        let affinity = pod
            .spec
            .affinity
            .as_ref()
            .and_then(|a| a.node_affinity.as_ref());
        Self {
            labels: pod.spec.node_selector.clone(),
            terms: affinity
                .and_then(|affinity| affinity.required.as_ref())
                .map(CompiledNodeSelector::new),
        }
    }

    /// Whether any node will do.
    pub(crate) fn is_any(&self) -> bool {
        self.terms.is_none() && self.labels.as_ref().is_none_or(Labels::is_empty)
    }

    /// Whether the node will do.
    ///
    /// # Errors
    /// When a term does not parse and no other one matches.
    pub(crate) fn matches(&self, node: &Node) -> Result<bool, ParseError> {
        if let Some(labels) = &self.labels
            && labels
                .iter()
                .any(|(key, value)| node.labels().get(key) != Some(value))
        {
            return Ok(false);
        }
        match &self.terms {
            None => Ok(true),
            Some(terms) => terms.matches(node.labels(), node.name()),
        }
    }
}
