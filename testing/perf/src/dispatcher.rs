//! The cost of a slow API server for the scheduling loop, in virtual time.
//!
//! - **Loops** (KEP-5229): pods that fit and pods that do not, with a scheduling loop that waits for each status write,
//!   with the gate off, and with the gate on.
//! - **Reports** (KEP-5501): many pods that a PreEnqueue plugin rejects, together with ordinary pods.

mod report;
mod slow;

pub use report::{DispatcherReport, LoopFigures, ReportFigures};

use crate::error::PerfError;
use berth_api::Duration;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use slow::Loop;

/// The measurement options.
#[derive(Debug, Clone, Args)]
pub struct DispatcherPerfOptions {
    /// Latency of a call to the slow API server, in milliseconds of virtual time
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pub latency_millis: u64,
    /// Number of bound pods, in addition to writes of pod status
    #[arg(
        long,
        value_name = "N",
        default_value = "2000",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=slow::PODS_MAX as u64)
    )]
    pub pods: usize,
    /// Number of pods that a PreEnqueue plugin rejects
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub rejected: usize,
}

/// The runs with reports: whether pods are rejected, and whether that is reported.
const REPORTS: [(bool, bool); 3] = [(false, true), (true, true), (true, false)];

/// Measures; `progress` is called before each part.
///
/// # Errors
/// When the default profile cannot be built: a bug.
pub fn run(
    options: &DispatcherPerfOptions,
    mut progress: impl FnMut(String),
) -> Result<DispatcherReport, PerfError> {
    let latency = Duration::from_millis(options.latency_millis);
    let mut loops = Vec::new();
    for kind in Loop::ALL {
        progress(format!("{} pods, {}", options.pods, kind.name()));
        loops.push(slow::loops(kind, latency, options.pods)?);
    }
    let mut reports = Vec::new();
    for (is_rejected, is_reported) in REPORTS {
        let rejected = if is_rejected { options.rejected } else { 0 };
        progress(format!(
            "{} pods in addition to {rejected} rejected ones",
            options.pods
        ));
        reports.push(slow::reports(rejected, is_reported, latency, options.pods)?);
    }
    Ok(DispatcherReport { loops, reports })
}
