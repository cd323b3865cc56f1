//! The Kubernetes types that scheduling reads, their quantities, selectors and tolerations.
