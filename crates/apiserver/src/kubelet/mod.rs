//! Simulated nodes and their kubelets.
