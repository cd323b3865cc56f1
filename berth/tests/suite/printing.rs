//! Commands whose output has no reader, as in `berth up | head -1`.

use crate::BINARY;
use std::process::{Command, Stdio};

#[test]
fn commands_end_quietly_when_their_output_has_no_reader() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let kubeconfig = scratch.path().join("kubeconfig").display().to_string();
    let listen = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let server = [&listen[..], &["--kubeconfig", &kubeconfig]].concat();
    for args in [
        [&["up", "--nodes", "0"], &server[..]].concat(),
        [&["apiserver"], &server[..]].concat(),
        vec!["campaign", "--seed", "1", "--steps", "5"],
        vec![
            "campaign", "--seed", "1", "--steps", "5", "--output", "json",
        ],
    ] {
        let (reader, stdout) = std::io::pipe().expect("a pipe");
        drop(reader);
        // A command that runs until it is stopped would block the test forever here.
        let output = Command::new(BINARY)
            .args(&args)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .output()
            .expect("berth starts");
        let notified = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(141), "{args:?}: {notified}");
        assert!(notified.is_empty(), "{args:?}: {notified}");
    }
}
