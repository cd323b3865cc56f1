//! Holds `docs/adding-a-plugin.md` to the example: what it shows as code is code of the example, word for word.

// A test reads files; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::{Path, PathBuf};

/// Fenced blocks of these languages are quoted from files with these endings.
const QUOTED: [(&str, &str); 3] = [("rust", "rs"), ("toml", "toml"), ("yaml", "yaml")];
/// Blocks that are nobody's code: commands for a terminal.
const FREE: [&str; 1] = ["sh"];

/// A fenced block.
struct Block {
    /// The line on which it begins.
    line: usize,
    language: String,
    text: Vec<String>,
}

/// Lines without indentation: a quotation may be indented otherwise than its source.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).collect()
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block {
                    line: at + 1,
                    language: language.trim().to_owned(),
                    text: Vec::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text.push(line.trim().to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "the last fence is closed");
    blocks
}

/// The files of the example, sources and all.
fn sources() -> Vec<(PathBuf, Vec<String>)> {
    let mut open = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("the example can be listed");
            open.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
        } else {
            let text = std::fs::read_to_string(&path).expect("the example is text");
            files.push((path, lines(&text)));
        }
    }
    files
}

#[test]
fn what_the_documentation_shows_is_in_the_example() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/adding-a-plugin.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let sources = sources();
    let mut quoted = 0;
    for block in blocks(&page) {
        if FREE.contains(&block.language.as_str()) {
            continue;
        }
        let ending = QUOTED
            .iter()
            .find(|(language, _)| *language == block.language);
        let Some((_, ending)) = ending else {
            panic!("line {}: no language {:?} here", block.line, block.language);
        };
        assert!(
            !block.text.is_empty(),
            "line {}: an empty block",
            block.line
        );
        let found = sources
            .iter()
            .filter(|(path, _)| path.extension().is_some_and(|e| e == *ending))
            .any(|(_, lines)| {
                lines
                    .windows(block.text.len())
                    .any(|part| part == block.text)
            });
        assert!(
            found,
            "docs/adding-a-plugin.md:{}: this is not in examples/custom-scheduler (any more):\n{}",
            block.line,
            block.text.join("\n")
        );
        quoted += 1;
    }
    assert!(quoted > 10, "only {quoted} quotations were found");
}
