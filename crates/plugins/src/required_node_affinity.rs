//! The requirement of a pod on its node: `nodeSelector` and required node affinity together. Several plugins ask for
//! it.

use berth_api::node_selector::{CompiledNodeSelector, NodeSelector, ParseError};
use berth_api::pod::PodTemplate;
use berth_api::{Labels, Node, Pod, Shared};
use std::cell::OnceCell;
use std::hash::{Hash, Hasher};

/// The requirement of a pod on its node. The terms are parsed when the first node is checked.
#[derive(Debug, Clone)]
pub struct RequiredNodeAffinity {
    template: Shared<PodTemplate>,
    compiled: OnceCell<CompiledNodeSelector>,
}

impl Hash for RequiredNodeAffinity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.template.node_selector.hash(state);
        self.terms().hash(state);
    }
}

impl RequiredNodeAffinity {
    /// The requirement of `pod`.
    pub(crate) fn of(pod: &Pod) -> Self {
        Self {
            template: pod.spec.template.clone(),
            compiled: OnceCell::new(),
        }
    }

    fn labels(&self) -> Option<&Labels> {
        self.template.node_selector.as_ref()
    }

    /// The terms of the node affinity.
    pub(crate) fn terms(&self) -> Option<&NodeSelector> {
        let affinity = self.template.affinity.as_ref()?;
        affinity.node_affinity.as_ref()?.required.as_ref()
    }

    /// Returns whether every node matches.
    pub(crate) fn is_any(&self) -> bool {
        self.terms().is_none() && self.labels().is_none_or(Labels::is_empty)
    }

    /// Returns whether the node matches.
    ///
    /// # Errors
    /// If a term does not parse and no other one matches.
    pub(crate) fn matches(&self, node: &Node) -> Result<bool, ParseError> {
        if let Some(labels) = self.labels()
            && labels
                .iter()
                .any(|(key, value)| node.labels().get(key) != Some(value))
        {
            return Ok(false);
        }
        let Some(terms) = self.terms() else {
            return Ok(true);
        };
        let compiled = self
            .compiled
            .get_or_init(|| CompiledNodeSelector::new(terms));
        compiled.matches(node.labels(), node.name())
    }
}
