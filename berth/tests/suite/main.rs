//! All tests of the `berth` command, and the rules for the project as a whole: one test binary, because each one links
//! the whole program. `cargo test -p kube-berth --test suite explain::` runs one module.

// A test starts processes and waits for them; it is not part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod api_servers;
mod architecture;
mod claims;
mod config;
mod conformance;
mod dashboard;
mod deploy;
mod devices;
#[path = "../e2e/mod.rs"]
mod e2e;
mod explain;
mod extenders;
mod guides;
mod halves;
mod kill;
mod kubectl;
mod links;
mod perf;
mod pretense;
mod printing;
mod readiness;
mod recording;
mod reload;
mod served;
mod shadow;
mod simulate;
mod simulate_page;
mod suites;
mod traces;
mod typed;
mod up;
mod volumes;
mod what_if;

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_berth");
