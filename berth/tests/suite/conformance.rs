//! `berth conformance` as a script uses it: files in, a last line and an exit code out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn berth(suite: &str, file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["conformance", suite])
        .arg(file)
        .output()
        .expect("berth runs")
}

fn vectors(suite: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../testing/conformance/vectors")
        .join(format!("{suite}.jsonl.gz"))
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn recorded_answers_are_replayed_and_counted() {
    for (suite, passed) in [
        ("podapi", 930),
        ("queue", 300),
        ("cel", 156),
        ("allocations", 1080),
    ] {
        let output = berth(suite, &vectors(suite));
        assert_eq!(last_line(&output), format!("{passed} passed, 0 failed"));
        assert_eq!(output.status.code(), Some(0), "{suite}");
    }
    // Some of these cases are about features that Berth does not have yet; none may differ from the recording.
    for suite in ["decisions", "hints", "http"] {
        let output = berth(suite, &vectors(suite));
        let last = last_line(&output);
        assert!(last.ends_with(" passed, 0 failed"), "{suite}: {last}");
        assert_eq!(output.status.code(), Some(0), "{suite}");
    }
}

#[test]
fn a_mismatch_is_printed_and_fails() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let file = dir.path().join("odd.jsonl");
    std::fs::write(&file, "{\"id\": \"odd\", \"ops\": \"none\"}\n").expect("it can be written");
    let output = berth("queue", &file);
    assert_eq!(last_line(&output), "0 passed, 1 failed");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("FAIL"));
}

#[test]
fn a_missing_file_is_named() {
    let output = berth("queue", Path::new("no-such-file.jsonl"));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-file.jsonl"));
}
