//! The workloads of the files that run.

use super::decode::Workload;
use regex::Regex;

/// Chooses workloads by name and by label.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// The pattern that `case/workload` must match, anywhere.
    pub filter: Option<Regex>,
    /// Labels that a workload must have (`label`, `+label`) or must not have (`-label`).
    pub labels: Vec<String>,
}

impl Selection {
    /// Returns whether a workload is chosen.
    pub fn takes(&self, workload: &Workload) -> bool {
        let named = self
            .filter
            .as_ref()
            .is_none_or(|filter| filter.is_match(&workload.full_name()));
        named && labels_match(&self.labels, &workload.labels)
    }
}

fn labels_match(wanted: &[String], labels: &[String]) -> bool {
    wanted
        .iter()
        .filter(|label| !label.is_empty())
        .all(|label| {
            let (name, must_have) = match label.strip_prefix('-') {
                Some(name) => (name, false),
                None => (label.strip_prefix('+').unwrap_or(label), true),
            };
            labels.iter().any(|label| label == name) == must_have
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_wanted_or_unwanted() {
        let labels = ["integration-test".to_owned(), "short".to_owned()];
        for (wanted, expect) in [
            (&[][..], true),
            (&["short"][..], true),
            (&["+short", "integration-test"], true),
            (&["performance"], false),
            (&["-performance"], true),
            (&["short", "-integration-test"], false),
            (&[""], true),
        ] {
            let wanted: Vec<String> = wanted.iter().map(|s| (*s).to_owned()).collect();
            assert_eq!(labels_match(&wanted, &labels), expect, "{wanted:?}");
        }
    }
}
