//! The seeded world around the scheduling core, and the independent checker of its invariants.
//!
//! A [`Script`] is drawn from a seed: the actions of users, nodes, watches and the API. [`run()`] plays it with a
//! scheduler and lets the [`checker`] judge every decision and, when faults have stopped and everything is at rest,
//! the outcome. A failing script is shortened by [`shrink()`].
//!
//! **Architecture invariants:** virtual time only, randomness from the seed alone, no I/O: a seed replays exactly. The
//! checker shares only the types of `berth-api` with the judged scheduler.

mod api;
mod campaign;
pub mod checker;
mod panics;
pub mod plugins;
mod rules;
mod run;
mod script;
pub mod shapes;
mod shrink;
pub mod world;

pub use api::{Api, FaithfulApi};
pub use campaign::{Campaign, FailingSeed, Progress};
pub use checker::Violation;
pub use run::{Configuration, Failure, Listener, Observe, Subject, Tally, notify, run};
pub use script::{
    CONFIGURATION_SEEDS, CallAnswer, Faults, GROUP_SEEDS, QUOTA_SEEDS, REJECTION_SEEDS, Script,
    Step, UnknownFault,
};
pub use shrink::{Shrunk, shrink};
