//! Checks `docs/contribute/adding-a-plugin.md` and `plugin-reference.md` against the example: their code is code of the
//! example, word for word, and a file of the tutorial is complete.

// A test reads files and is not part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Fenced blocks of these languages are quoted from files with these endings.
const QUOTED: [(&str, &str); 3] = [("rust", "rs"), ("toml", "toml"), ("yaml", "yaml")];
/// Blocks without a file: commands for a terminal, and their output.
const FREE: [&str; 2] = ["sh", "console"];
/// The pages with code of the example.
const PAGES: [&str; 2] = ["adding-a-plugin.md", "plugin-reference.md"];
/// The files that the tutorial creates, and their names in the example.
const FILES: [(&str, &str); 3] = [
    ("Cargo.toml", "outside.toml"),
    ("config.yaml", "first-plugin.yaml"),
    ("src/main.rs", "src/bin/first-plugin.rs"),
];

/// A fenced block.
struct Block {
    /// The line on which it begins.
    line: usize,
    language: String,
    /// The file that contains it; empty for an excerpt.
    file: String,
    text: Vec<String>,
}

/// Lines without indentation: a quotation may have another indentation than its source.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).collect()
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => {
                let (language, title) = info.split_once(' ').unwrap_or((info, ""));
                let file = title.strip_prefix("title=").unwrap_or_default();
                open = Some(Block {
                    line: at + 1,
                    language: language.to_owned(),
                    file: file.trim_matches('"').to_owned(),
                    text: Vec::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text.push(line.to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "the last fence is closed");
    blocks
}

fn example() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page(name: &str) -> Vec<Block> {
    blocks(&read(&example().join("../../docs/contribute").join(name)))
}

/// The files of the example, sources and all.
fn sources() -> Vec<(PathBuf, Vec<String>)> {
    let mut open = vec![example()];
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("the example can be listed");
            open.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
        } else {
            let text = lines(&read(&path));
            files.push((path, text));
        }
    }
    files
}

#[test]
fn code_in_the_documentation_is_in_the_example() {
    let sources = sources();
    let mut quoted = 0;
    let all = PAGES.into_iter().flat_map(|name| {
        let blocks = page(name).into_iter();
        blocks.map(move |block| (name, block))
    });
    for (name, block) in all {
        let is_free = FREE.contains(&block.language.as_str());
        if is_free || !block.file.is_empty() {
            continue;
        }
        let ending = QUOTED
            .iter()
            .find(|(language, _)| *language == block.language);
        let Some((_, ending)) = ending else {
            panic!("line {}: no language {:?} here", block.line, block.language);
        };
        let text = lines(&block.text.join("\n"));
        assert!(!text.is_empty(), "line {}: an empty block", block.line);
        let found = sources
            .iter()
            .filter(|(path, _)| path.extension().is_some_and(|e| e == *ending))
            .any(|(_, lines)| lines.windows(text.len()).any(|part| part == text));
        assert!(
            found,
            "docs/contribute/{name}:{}: this is not in examples/custom-scheduler (any more):\n{}",
            block.line,
            text.join("\n")
        );
        quoted += 1;
    }
    assert!(quoted > 5, "only {quoted} quotations were found");
}

/// The code blocks of the tutorial are the complete files, without their tests.
#[test]
fn files_in_the_documentation_are_complete() {
    let mut shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for block in page("adding-a-plugin.md") {
        if !block.file.is_empty() {
            shown.entry(block.file).or_default().extend(block.text);
        }
    }
    let not_blank = |line: &&str| !line.trim().is_empty();
    for (file, source) in FILES {
        let text = read(&example().join(source));
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        // Comments at the start of a line of the manifest are not on the page.
        let is_statement = |line: &&str| source == "outside.toml" && line.starts_with('#');
        let code = code.lines().filter(|line| !is_statement(line));
        let code: Vec<&str> = code.filter(not_blank).collect();
        let on_page = shown.remove(file).unwrap_or_default();
        let on_page: Vec<&str> = on_page
            .iter()
            .map(String::as_str)
            .filter(not_blank)
            .collect();
        let differs = (0..code.len().max(on_page.len())).find(|i| code.get(*i) != on_page.get(*i));
        if let Some(i) = differs {
            panic!(
                "{file} on the page differs from examples/custom-scheduler/{source}:\npage:    {:?}\nexample: {:?}",
                on_page.get(i),
                code.get(i)
            );
        }
    }
    let others: Vec<&String> = shown.keys().collect();
    assert!(others.is_empty(), "no such files: {others:?}");
}

/// The manifest of a crate outside of this repository names crates of this repository, by their paths and packages.
#[test]
fn the_manifest_of_a_crate_elsewhere_names_crates_of_this_repository() {
    let manifest = read(&example().join("outside.toml"));
    let mut dependencies = 0;
    for line in manifest.lines() {
        let Some((name, rest)) = line.split_once(" = { path = \"../berth/") else {
            continue;
        };
        let path = rest.split('"').next().unwrap_or_default();
        let package = rest.split("package = \"").nth(1);
        let package = package.and_then(|rest| rest.split('"').next());
        let package = package.unwrap_or(name);
        let other = read(&example().join("../..").join(path).join("Cargo.toml"));
        let head = format!("[package]\nname = \"{package}\"\n");
        assert!(other.starts_with(&head), "{path} is no package {package}");
        dependencies += 1;
    }
    assert_eq!(dependencies, 3);
}
