//! Prints the output of the command. When the reader closes the pipe (`berth up | head -1`), the command exits without
//! a message.

use crate::exit::CommandFailure;
use clap::ValueEnum;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

/// Prints a line on standard output, as `println!` does.
#[macro_export]
macro_rules! print_line {
    () => {
        $crate::print::text(format_args!("\n"))
    };
    ($($arg:tt)*) => {
        $crate::print::text(format_args!("{}\n", format_args!($($arg)*)))
    };
}
pub use print_line;

/// The output format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Output {
    /// Readable text.
    #[default]
    Text,
    /// JSON.
    Json,
}

/// Prints text on standard output.
///
/// # Errors
/// [`CommandFailure::Unread`] if the reader has closed the pipe; another error if it cannot be written, as on a full
/// disk.
pub fn text(text: impl fmt::Display) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    write!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => CommandFailure::Unread,
            _ => {
                CommandFailure::Environment(format!("failed to write to standard output: {error}"))
            }
        })
}

/// Prints a line on standard error, after the name of the program. A failure is ignored.
pub fn complain(text: impl fmt::Display) {
    remark(format_args!("{}: {text}", program()));
}

/// Prints the error of a command and returns its exit code.
pub fn failure(failure: &CommandFailure) -> ExitCode {
    match failure {
        CommandFailure::Check => ExitCode::from(1),
        CommandFailure::LeaseLost => {
            tracing::error!("leader election lost");
            ExitCode::from(1)
        }
        CommandFailure::Unread => ExitCode::from(141),
        CommandFailure::Usage(text) => {
            complain(text);
            ExitCode::from(2)
        }
        CommandFailure::Environment(text) => {
            complain(text);
            ExitCode::from(3)
        }
    }
}

/// Prints a line on standard error.
pub fn remark(text: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// The name of the program: a scheduler with custom plugins has its own name.
pub fn program() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| name_of(std::env::args_os().next().as_deref()))
}

fn name_of(first: Option<&OsStr>) -> String {
    let name = first
        .and_then(|path| Path::new(path).file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    match name.strip_suffix(".exe").unwrap_or(&name) {
        "" => "berth".to_owned(),
        // As a plugin of kubectl.
        "kubectl-berth" => "kubectl berth".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_called_as_it_was_started() {
        for (first, name) in [
            (Some("/usr/local/bin/berth"), "berth"),
            (Some("target/debug/custom-scheduler"), "custom-scheduler"),
            (Some("my.scheduler"), "my.scheduler"),
            (Some("berth.exe"), "berth"),
            (Some("/usr/bin/kubectl-berth"), "kubectl berth"),
            (Some(""), "berth"),
            (None, "berth"),
        ] {
            assert_eq!(name_of(first.map(OsStr::new)), name, "{first:?}");
        }
    }
}
