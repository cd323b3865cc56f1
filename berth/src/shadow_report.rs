//! `berth shadow report`: prints the agreement of a scheduler in shadow mode with the other scheduler.

use crate::cli::{ShadowArgs, ShadowCommand};
use crate::explain::AskedScheduler;
use berth_edge::exit::CommandFailure;
use berth_edge::print::Output;
use berth_edge::print::{self, print_line};
use berth_edge::shadow::ShadowReport;
use std::io::Read;
use std::path::Path;

/// Prints the report of a running scheduler in shadow mode, or a saved report.
///
/// # Errors
/// When it cannot be read, or the schedulers disagree about whether pods fit.
pub(crate) async fn run(args: ShadowArgs) -> Result<(), CommandFailure> {
    let ShadowCommand::Report(args) = &args.what;
    let report: ShadowReport = match &args.file {
        Some(file) => read(file)?,
        None => {
            let asking = AskedScheduler::connect(&args.port, "shadow").await?;
            asking.ask("/shadow").await?
        }
    };
    match args.output {
        Output::Text => print::text(&report)?,
        Output::Json => {
            let mut value = serde_json::to_value(&report).unwrap_or_default();
            value["agreementPercent"] = report.agreement().into();
            print_line!("{value}")?;
        }
    }
    match report.other_verdicts() {
        0 => Ok(()),
        _ => Err(CommandFailure::Check),
    }
}

/// Reads a saved report; `-` is standard input.
fn read(file: &Path) -> Result<ShadowReport, CommandFailure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        CommandFailure::Usage(format!(
            "failed to read a report from {}: {error}; give the JSON that the scheduler serves at /shadow",
            file.display()
        ))
    };
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|mut f| f.read_to_string(&mut text))
    }
    .map_err(|error| unreadable(&error))?;
    serde_json::from_str(&text).map_err(|error| unreadable(&error))
}
