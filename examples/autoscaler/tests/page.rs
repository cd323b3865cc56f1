//! The output of the program is the output in `docs/use/library.md`.

// It reads the project's own files and is not part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::Path;
use std::process::Command;

/// The text between two lines.
fn block<'a>(page: &'a str, begin: &str) -> &'a str {
    let (_, rest) = page.split_once(begin).expect("the block is on the page");
    rest.split_once("\n```").expect("the block ends").0
}

#[test]
fn the_decisions_of_the_page_are_printed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/use/library.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let cluster = block(&page, "```yaml\n# cluster.yaml\n");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("cluster.yaml");
    std::fs::write(&file, cluster).expect("the file is written");
    let session = block(&page, "```console\n$ autoscaler ");
    let (command, shown) = session.split_once('\n').expect("the output");
    let output = Command::new(env!("CARGO_BIN_EXE_autoscaler"))
        .current_dir(folder)
        .args(command.split(' '))
        .output()
        .expect("the example runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), shown);
}
