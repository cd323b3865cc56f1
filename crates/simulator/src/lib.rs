//! The seeded world around the scheduling core, and the independent checker of its invariants.
