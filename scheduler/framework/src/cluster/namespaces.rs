//! Namespaces and their labels.

use super::namespaced::{ByName, put};
use berth_api::{Labels, Namespace};
use std::ops::Deref;
use std::sync::Arc;

/// Namespaces by name, read like a map.
#[derive(Debug, Clone, Default)]
pub struct ClusterNamespaces {
    by_name: ByName<Namespace>,
    version: u64,
}

impl Deref for ClusterNamespaces {
    type Target = ByName<Namespace>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

impl ClusterNamespaces {
    /// The labels of a namespace; none when it is not known.
    pub fn labels(&self, name: &str) -> Labels {
        let namespace = self.by_name.get(name);
        namespace.map_or_else(Labels::default, |known| known.metadata.labels.clone())
    }

    /// Changes whenever a namespace has other labels than before.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn put(&mut self, namespace: &Arc<Namespace>, is_there: bool) {
        let name = &namespace.metadata.name;
        let before = self.labels(name);
        put(&mut self.by_name, name, namespace, is_there);
        self.version += u64::from(before != self.labels(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_follows_the_labels() {
        let mut namespaces = ClusterNamespaces::default();
        let namespace = |name: &str, labels: &str| {
            let json = format!(r#"{{"metadata":{{"name":"{name}","labels":{labels}}}}}"#);
            Arc::new(serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}")))
        };
        for (what, object, is_there, version) in [
            ("without labels", namespace("a", "{}"), true, 0),
            ("with a label", namespace("b", r#"{"team":"red"}"#), true, 1),
            (
                "the same again",
                namespace("b", r#"{"team":"red"}"#),
                true,
                1,
            ),
            (
                "another label",
                namespace("b", r#"{"team":"blue"}"#),
                true,
                2,
            ),
            ("gone without labels", namespace("a", "{}"), false, 2),
            ("gone with a label", namespace("b", "{}"), false, 3),
            ("gone already", namespace("b", "{}"), false, 3),
        ] {
            namespaces.put(&object, is_there);
            assert_eq!(namespaces.version(), version, "{what}");
        }
    }
}
