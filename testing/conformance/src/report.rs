//! The results of a replay: the names of the cases that passed, failed, were compared in part, or were not compared.
//!
//! A report prints the first mismatches in full, then the names of the cases that did not pass, and ends with one line
//! for scripts: `N passed, N failed`.

use std::fmt;

/// The maximum number of mismatches that are printed in full; the others are counted.
pub const MISMATCHES_PRINTED_MAX: usize = 20;

/// The maximum number of printed characters of one mismatch.
const MISMATCH_CHARS_MAX: usize = 2_000;

/// The maximum number of names in one line of a list.
const NAMES_PRINTED_MAX: usize = 100;

/// A case with another result than recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The name or id of the case.
    pub case: String,
    /// The difference: the place, the recorded value, the actual value.
    pub what: String,
}

/// The outcome of replaying a file of vectors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseReport {
    /// Cases with the recorded result.
    pub passed: Vec<String>,
    /// Cases that did not.
    pub failed: Vec<Mismatch>,
    /// Cases that could be compared only in part, without a difference; they do not count as passed.
    pub partly: Vec<String>,
}

impl CaseReport {
    /// An empty report.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a case with the recorded result.
    pub fn pass(&mut self, case: impl Into<String>) {
        self.passed.push(case.into());
    }

    /// Records a case with another result, and the difference.
    pub fn fail(&mut self, case: impl Into<String>, what: impl Into<String>) {
        self.failed.push(Mismatch {
            case: case.into(),
            what: what.into(),
        });
    }

    /// Records a case that was compared in part.
    pub fn partly(&mut self, case: impl Into<String>) {
        self.partly.push(case.into());
    }

    /// Adds another report's cases to this one.
    pub fn merge(&mut self, other: Self) {
        self.passed.extend(other.passed);
        self.failed.extend(other.failed);
        self.partly.extend(other.partly);
    }

    /// Returns whether no case failed.
    pub fn is_ok(&self) -> bool {
        self.failed.is_empty()
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mismatch in self.failed.iter().take(MISMATCHES_PRINTED_MAX) {
            let mut what: String = mismatch.what.chars().take(MISMATCH_CHARS_MAX).collect();
            if what.len() < mismatch.what.len() {
                what.push_str(" …");
            }
            writeln!(f, "FAIL {}: {what}", mismatch.case)?;
        }
        if let Some(more) = self.failed.get(MISMATCHES_PRINTED_MAX..)
            && !more.is_empty()
        {
            let names: Vec<String> = more.iter().map(|m| m.case.clone()).collect();
            write_names(f, "failed as well", &names)?;
        }
        write_names(f, "partly compared", &self.partly)?;
        writeln!(
            f,
            "{} passed, {} failed",
            self.passed.len(),
            self.failed.len()
        )
    }
}

fn write_names(f: &mut fmt::Formatter<'_>, title: &str, names: &[String]) -> fmt::Result {
    if names.is_empty() {
        return Ok(());
    }
    let shown = names.len().min(NAMES_PRINTED_MAX);
    write!(f, "{title} ({}): {}", names.len(), names[..shown].join(" "))?;
    if shown < names.len() {
        write!(f, " … and {} more", names.len() - shown)?;
    }
    writeln!(f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_mismatches_then_lists_then_the_counts() {
        let mut report = CaseReport::new();
        report.pass("a");
        report.fail("b", "status: recorded 200, got 404");
        report.partly("c");
        assert_eq!(
            report.to_string(),
            "FAIL b: status: recorded 200, got 404\npartly compared (1): c\n1 passed, 1 failed\n"
        );
        assert!(!report.is_ok());
    }

    #[test]
    fn bounds_what_it_prints() {
        let mut report = CaseReport::new();
        for i in 0..(MISMATCHES_PRINTED_MAX + 2) {
            report.fail(format!("case-{i}"), "x".repeat(10 * MISMATCH_CHARS_MAX));
        }
        let text = report.to_string();
        assert!(text.len() < (MISMATCHES_PRINTED_MAX + 2) * (MISMATCH_CHARS_MAX + 100));
        assert!(text.contains("failed as well (2): case-20 case-21"));
        assert!(text.ends_with("0 passed, 22 failed\n"));
    }
}
