//! Measures the scheduling core at scale.
