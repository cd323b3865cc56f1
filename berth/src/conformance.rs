//! `berth conformance`: replays recorded answers and prints the differences.

use crate::cli::{ConformanceArgs, Suite};
use berth_conformance::decisions::Evaluators;
use berth_conformance::report::CaseReport;
use berth_edge::args::EvaluatorArg;
use berth_edge::exit::CommandFailure;
use berth_edge::print;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Replays every file and prints the joint report.
///
/// # Errors
/// A file cannot be read, or a result differs from the recorded one.
pub(crate) fn run(args: &ConformanceArgs) -> Result<(), CommandFailure> {
    let mut report = CaseReport::new();
    for file in &args.files {
        report.merge(replay(args, open(file)?)?);
    }
    print::text(&report)?;
    if report.is_ok() {
        Ok(())
    } else {
        Err(CommandFailure::Check)
    }
}

fn replay(args: &ConformanceArgs, reader: impl BufRead) -> Result<CaseReport, CommandFailure> {
    let evaluators = match args.evaluator {
        None => Evaluators::All,
        Some(EvaluatorArg::Plain) => Evaluators::Plain,
        Some(EvaluatorArg::Incremental) => Evaluators::Incremental,
    };
    let release = args.emulated_version;
    Ok(match args.suite {
        Suite::Decisions => berth_conformance::decisions::replay(reader, evaluators, release),
        Suite::Hints => berth_conformance::hints::replay(reader, release),
        Suite::Queue => berth_conformance::queue::replay(reader, release),
        Suite::Podapi => berth_conformance::podapi::replay(reader),
        Suite::Cel => berth_conformance::cel::replay(reader, release),
        Suite::Allocations => berth_conformance::allocations::replay(reader, release),
        Suite::Http => berth_conformance::http::replay(reader, release),
    })
}

/// Opens a file of JSON lines; gzip is recognised by its first bytes.
fn open(path: &Path) -> Result<Box<dyn BufRead>, CommandFailure> {
    let unreadable = |e: std::io::Error| {
        CommandFailure::Usage(format!(
            "failed to read {}: {e}; give files of JSON lines, gzip-compressed or plain",
            path.display()
        ))
    };
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let compressed = file
        .fill_buf()
        .map_err(unreadable)?
        .starts_with(&[0x1f, 0x8b]);
    Ok(if compressed {
        Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    })
}
