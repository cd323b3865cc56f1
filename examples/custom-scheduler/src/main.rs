//! A scheduler with custom plugins: all commands of `berth`, and these plugins.
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
