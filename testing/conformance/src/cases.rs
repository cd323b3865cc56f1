//! Files of cases, one JSON object per line, with the answers of a release.
//!
//! The vectors are recorded answers of Kubernetes 1.36. `later/SUITE.jsonl` lists the cases whose answer a later
//! release changes: the first release with the new answer, the rule of `docs/contribute/rules` that states the change,
//! and the new answer, worked by hand. A case that is not listed has the same answer in every release.

use crate::report::CaseReport;
use berth_api::Release;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::BufRead;

/// The answers of a suite that differ in releases after 1.36.
#[derive(Debug, Clone, Default)]
pub struct LaterAnswers {
    by_case: BTreeMap<String, Vec<LaterAnswer>>,
}

/// An answer that a release changes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaterAnswer {
    /// The case.
    pub case: String,
    /// The first release with the answer.
    pub since: String,
    /// The rule that states the change.
    pub rule: String,
    /// The calculation.
    pub because: String,
    /// The part of the expectation that differs: the entries of its objects replace the recorded ones.
    pub expect: Value,
    /// Recorded entries that do not exist in the release, as JSON pointers.
    #[serde(default)]
    pub without: Vec<String>,
}

impl LaterAnswers {
    /// Reads a list for a release, without the answers of later releases.
    ///
    /// # Errors
    /// Names the line that is not a valid answer.
    pub fn read(list: &str, release: Release) -> Result<Self, String> {
        let mut answers = Self::default();
        for (i, line) in list.lines().enumerate() {
            let wrong = |what: String| format!("line {} of the later answers: {what}", i + 1);
            let answer: LaterAnswer =
                serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
            let since = Release::ALL
                .into_iter()
                .find(|r| r.as_str() == answer.since)
                .ok_or_else(|| wrong(format!("unknown release {:?}", answer.since)))?;
            if since <= release {
                let of_case = answers.by_case.entry(answer.case.clone());
                of_case.or_default().push(answer);
            }
        }
        Ok(answers)
    }

    /// The answers by case.
    pub fn iter(&self) -> impl Iterator<Item = &LaterAnswer> {
        self.by_case.values().flatten()
    }

    /// The number of cases.
    pub fn cases(&self) -> usize {
        self.by_case.len()
    }

    /// Replaces the expected answer of a case with the answer of the release.
    fn apply(&self, case: &mut Value) {
        let id = case["id"].as_str().unwrap_or_default();
        for answer in self.by_case.get(id).into_iter().flatten() {
            for pointer in &answer.without {
                remove(&mut case["expect"], pointer);
            }
            replace(&mut case["expect"], &answer.expect);
        }
    }
}

/// Removes the entry of an object.
fn remove(target: &mut Value, pointer: &str) {
    let (owner, name) = pointer.rsplit_once('/').unwrap_or(("", pointer));
    if let Some(Value::Object(owner)) = target.pointer_mut(owner) {
        owner.remove(name);
    }
}

/// Replaces the entries of an object and of nested objects. Unlike in a merge patch, null is a value.
fn replace(target: &mut Value, new: &Value) {
    match (target, new) {
        (Value::Object(target), Value::Object(new)) => {
            for (name, value) in new {
                replace(target.entry(name.as_str()).or_insert(Value::Null), value);
            }
        }
        (target, new) => *target = new.clone(),
    }
}

/// Reads cases and checks each. Unreadable lines fail under their number.
pub(crate) fn each<C: DeserializeOwned>(
    reader: impl BufRead,
    answers: &LaterAnswers,
    report: &mut CaseReport,
    mut check: impl FnMut(C, &mut CaseReport),
) {
    for (i, line) in reader.lines().enumerate() {
        let number = i + 1;
        let line = match line {
            Ok(line) => line,
            Err(e) => {
                report.fail(format!("line {number}"), format!("cannot be read: {e}"));
                return;
            }
        };
        if line.trim().is_empty() {
            continue;
        }
        let case = serde_json::from_str::<Value>(&line).and_then(|mut case| {
            answers.apply(&mut case);
            serde_json::from_value::<C>(case)
        });
        match case {
            Ok(case) => check(case, report),
            Err(e) => report.fail(format!("line {number}"), format!("is not a case: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LIST: &str = r#"{"case":"a","since":"1.37","rule":"R-1","because":"b","expect":{"filter":{"n":null}}}
{"case":"a","since":"1.38","rule":"R-2","because":"b","expect":{"filter":{"m":1}},"without":["/x"]}"#;

    #[test]
    fn a_case_has_the_newest_answer_of_the_release() {
        for (release, expected) in [
            (Release::V1_36, json!({"filter": {"n": 5}, "x": 1})),
            (Release::V1_37, json!({"filter": {"n": null}, "x": 1})),
            (Release::V1_38, json!({"filter": {"n": null, "m": 1}})),
        ] {
            let answers = LaterAnswers::read(LIST, release).expect("a list");
            let mut case = json!({"id": "a", "expect": {"filter": {"n": 5}, "x": 1}});
            answers.apply(&mut case);
            assert_eq!(case["expect"], expected, "{release}");
        }
    }

    #[test]
    fn an_unknown_release_is_named_with_its_line() {
        let list = LIST.replace("1.38", "1.40");
        let error = LaterAnswers::read(&list, Release::V1_36).unwrap_err();
        assert_eq!(
            error,
            "line 2 of the later answers: unknown release \"1.40\""
        );
    }
}
