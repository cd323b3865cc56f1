//! The scheduling core: queue, cache, cycles and API dispatcher as one state machine without I/O.

pub mod cache;
pub mod dispatcher;
pub mod evaluator;
pub mod profile;
pub mod queue;
