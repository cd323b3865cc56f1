//! What a slow API server costs the scheduling loop, in virtual time.
//!
//! - **Loops** (KEP-5229): pods that fit and pods that do not, with a scheduling loop that waits for each write of a
//!   status, with the gate off, and with the gate on.
//! - **Reports** (KEP-5501): many pods that a PreEnqueue plugin rejects, and ordinary pods beside them.

mod report;
mod slow;

pub use report::{DispatcherReport, LoopFigures, ReportFigures};

use crate::core::PerfError;
use berth_api::Duration;
use slow::Loop;

/// The measurement options.
#[derive(Debug, Clone)]
pub struct DispatcherPerfOptions {
    /// Latency of a call to the slow API server, in milliseconds.
    pub latency_millis: u64,
    /// The number of pods that are bound beside the writes of status: of those in loops, and of those beside reports.
    pub pods: usize,
    /// The number of pods that a PreEnqueue plugin rejects.
    pub rejected: usize,
}

impl Default for DispatcherPerfOptions {
    fn default() -> Self {
        Self {
            latency_millis: 20,
            pods: 2_000,
            rejected: 10_000,
        }
    }
}

impl DispatcherPerfOptions {
    /// Checks the number of pods.
    ///
    /// # Errors
    /// The option to change.
    pub fn check(&self) -> Result<(), String> {
        if self.pods == 0 || self.pods > slow::PODS_MAX {
            return Err(format!(
                "--pods {}: the nodes have room for {}; give 1 to {1}",
                self.pods,
                slow::PODS_MAX
            ));
        }
        Ok(())
    }

    /// The number of times that `progress` will be called.
    pub fn steps(&self) -> usize {
        Loop::ALL.len() + REPORTS.len()
    }
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
            "{} pods beside {rejected} rejected ones",
            options.pods
        ));
        reports.push(slow::reports(rejected, is_reported, latency, options.pods)?);
    }
    Ok(DispatcherReport { loops, reports })
}
