//! The requirement of a pod on its node: `nodeSelector` and required node affinity together. Several plugins read it.

use berth_api::node_selector::{CompiledNodeSelector, NodeSelector, ParseError};
use berth_api::pod::PodTemplate;
use berth_api::{Labels, Node, Pod, Shared, Str};
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

    /// The labels of `nodeSelector` that the node does not have.
    pub(crate) fn missing_labels<'a>(
        &'a self,
        node: &'a Node,
    ) -> impl Iterator<Item = (&'a Str, &'a Str)> {
        let labels = self.labels().into_iter().flat_map(Labels::iter);
        labels.filter(|(key, value)| node.labels().get(key) != Some(value.as_str()))
    }

    /// Returns whether the node matches.
    ///
    /// # Errors
    /// If a term does not parse and no other one matches.
    pub(crate) fn matches(&self, node: &Node) -> Result<bool, ParseError> {
        if self.missing_labels(node).next().is_some() {
            return Ok(false);
        }
        self.matches_terms(node)
    }

    /// Returns whether the node matches a term of the node affinity, if there are any.
    ///
    /// # Errors
    /// As for [`RequiredNodeAffinity::matches`].
    pub(crate) fn matches_terms(&self, node: &Node) -> Result<bool, ParseError> {
        let Some(terms) = self.terms() else {
            return Ok(true);
        };
        let compiled = self
            .compiled
            .get_or_init(|| CompiledNodeSelector::new(terms));
        compiled.matches(node.labels(), node.name())
    }
}
