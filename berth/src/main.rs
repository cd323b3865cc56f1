//! The berth command.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth::Berth::new().main()
}
