//! A scheduler with plugins of its own: everything that `berth` can do, and them.
//!
//! ```text
//! custom-scheduler up --config config.yaml
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    match custom_scheduler::command() {
        Ok(berth) => berth.main(),
        Err(error) => {
            eprintln!("custom-scheduler: {error}");
            ExitCode::FAILURE
        }
    }
}
