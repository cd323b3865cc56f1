//! Every in-tree scheduler plugin and their registry.
