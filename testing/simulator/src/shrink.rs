//! Shortens a failing script: removes steps as long as the same kind of violation remains (delta debugging, Zeller and
//! Hildebrandt 2002).

use crate::run::{Failure, Subject, run};
use crate::script::Script;
use std::fmt;

/// A script that fails, and how.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// The script.
    pub script: Script,
    /// The violation.
    pub failure: Failure,
    /// The number of runs of the search.
    pub runs: usize,
}

/// The script and its violation, one line each.
impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  with {}", self.script.setting())?;
        for step in &self.script.steps {
            writeln!(f, "  {step}")?;
        }
        write!(f, "{}", self.failure.violation)
    }
}

/// Finds a short script that shows the same kind of violation as `script` does, within `runs_max` runs.
pub fn shrink(subject: &Subject, script: &Script, failure: &Failure, runs_max: usize) -> Shrunk {
    let mut best = Shrunk {
        script: script.clone(),
        failure: failure.clone(),
        runs: 0,
    };
    // Steps after the violation do not matter.
    best.script.steps.truncate(failure.step + 1);
    let mut parts = 2;
    while best.script.steps.len() > 1 && best.runs < runs_max {
        let len = best.script.steps.len();
        let size = len.div_ceil(parts);
        let mut shorter = false;
        // From the end, because later steps depend on earlier ones.
        for part in (0..len.div_ceil(size)).rev() {
            if best.runs >= runs_max {
                break;
            }
            let from = part * size;
            if from >= best.script.steps.len() {
                continue;
            }
            let mut tried = best.script.clone();
            let to = (from + size).min(tried.steps.len());
            tried.steps.drain(from..to);
            best.runs += 1;
            if let Err(found) = run(subject, &tried)
                && found.violation.is_like(&failure.violation)
            {
                tried.steps.truncate(found.step + 1);
                best.script = tried;
                best.failure = found;
                shorter = true;
            }
        }
        if shorter {
            parts = parts.min(best.script.steps.len()).max(2);
        } else if size == 1 {
            break;
        } else {
            parts = (parts * 2).min(len);
        }
    }
    best
}
