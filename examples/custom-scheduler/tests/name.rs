//! A scheduler with custom plugins reports under its own name.

// A test starts processes; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::process::Command;

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_custom-scheduler");

#[test]
fn help_and_errors_name_the_program() {
    let errors = ["scheduler", "--feature-gates", "NoSuchGate=true"];
    for (args, code, notified) in [
        (
            &["--help"][..],
            0,
            "Example: custom-scheduler up --nodes 10",
        ),
        (&["--help"], 0, "Usage: custom-scheduler "),
        (
            &["scheduler", "--help"],
            0,
            "Example: custom-scheduler scheduler",
        ),
        (
            &["perf", "core", "--help"],
            0,
            "Example: custom-scheduler perf core",
        ),
        (&["up", "--help"], 0, "export KUBECONFIG=berth.kubeconfig"),
        (&["--version"], 0, "custom-scheduler "),
        (&errors, 2, "custom-scheduler: --feature-gates: "),
    ] {
        let output = Command::new(BINARY).args(args).output().expect("it starts");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(
            text.contains(notified),
            "{args:?}: {notified:?} is not in\n{text}"
        );
        let of_berth = ["Example: berth ", "Usage: berth ", "berth: "];
        let stray = of_berth.iter().find(|other| text.contains(**other));
        assert_eq!(stray, None, "{args:?}:\n{text}");
    }
}
