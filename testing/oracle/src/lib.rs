//! The oracle: decides whether a pod fits on a node, computed from the objects for every question. The checker of the
//! simulator, the verifier of `berth perf` and the simulated kubelets judge with these functions. Each adds its own
//! knowledge, such as earlier versions of a node or decisions that the API does not show yet.
//!
//! The rules are listed in `docs/contribute/rules/plugins.md`.
//!
//! **Architecture invariant:** the scheduler and its plugins share no code with this crate except the types of
//! `berth-api`. Selectors, tolerations and requests are evaluated in this crate from the fields of the objects, because
//! the plugins use the functions of `berth-api`. No index and no cache: each function is simple enough to be checked by
//! reading, and slow.

mod near;
mod node;
mod room;
mod selector;
mod spread;
#[cfg(test)]
mod tests;

pub use near::{
    affinity_terms, anti_affinity_terms, are_together, finds_company, matches_all, matches_term,
};
pub use node::{
    SCHEDULING_EFFECTS, has_selected_labels, is_barred_by_cordon, matches_affinity, matches_terms,
    untolerated,
};
pub use room::{HostPort, Shortage, allocated, host_ports, requests, shortages};
pub use selector::selects;
pub use spread::{domain_counts, hard_constraints, least_count, selects_for_spread};
