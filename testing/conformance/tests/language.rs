//! The words of user-facing texts, by STYLE.md: strings and the pages of `docs/use`. Also checks that the sections
//! cited in comments exist.

// It reads the project's own files and is not part of the core.
#![allow(clippy::disallowed_methods, clippy::expect_used)]

#[path = "language/source.rs"]
mod source;
#[path = "language/words.rs"]
mod words;

use source::SourceFile;
use std::fs;
use std::path::{Path, PathBuf};
use words::{ALLOWED, AVOIDED};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The files below a folder with this ending, without build results.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder that can be read") {
        let path = entry.expect("an entry that can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

/// The Rust files of the project by their paths from its root.
fn sources() -> Vec<(String, SourceFile)> {
    let mut found = Vec::new();
    for part in [
        "scheduler",
        "control-plane",
        "edge",
        "testing",
        "berth",
        "examples",
        "xtask",
    ] {
        files(&root().join(part), ".rs", &mut found);
    }
    found.sort();
    let sources = found.into_iter().map(|path| {
        let text = fs::read_to_string(&path).expect("a source file");
        let name = path.strip_prefix(root()).expect("it is below the root");
        (name.display().to_string(), SourceFile::new(text))
    });
    sources.collect()
}

/// The words of a text in lower case. Punctuation is a word of its own, so that no phrase spans it; a hyphen is a part
/// of its word.
fn words_of(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in text.chars() {
        if character.is_alphabetic() || "'-".contains(character) {
            let word = words.last_mut().expect("there is always one");
            word.extend(character.to_lowercase());
        } else if character.is_whitespace() {
            words.push(String::new());
        } else {
            words.extend([character.to_string(), String::new()]);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The avoided words of a text, each with its replacement.
fn avoided_in(text: &str) -> Vec<(&'static str, &'static str)> {
    let mut text = text.to_owned();
    for (allowed, _) in ALLOWED {
        text = text.replace(allowed, "");
    }
    let words = words_of(&text);
    let mut found = Vec::new();
    for avoided in &AVOIDED {
        for form in avoided.forms {
            let phrase: Vec<&str> = form.split(' ').collect();
            if words.windows(phrase.len()).any(|window| window == phrase) {
                found.push((*form, avoided.replacement));
            }
        }
    }
    found
}

/// The problems of the strings of one source file: `line: word; write: replacement`. A string without a space is data: a
/// name, a label, a key.
fn problems_of(file: &SourceFile) -> Vec<String> {
    let mut problems = Vec::new();
    for text in file.texts.iter().filter(|text| !text.is_comment) {
        let part = file.part(text);
        if part.contains(' ') {
            let line = file.line_of(text.start);
            let found = avoided_in(part).into_iter();
            problems.extend(
                found.map(|(word, replacement)| format!("{line}: {word:?}; write: {replacement}")),
            );
        }
    }
    problems
}

#[test]
fn strings_use_plain_words() {
    let mut problems = Vec::new();
    for (name, file) in sources() {
        // The table contains the forbidden words, and this file has examples.
        if !name.starts_with("testing/conformance/tests/language") {
            problems.extend(problems_of(&file).iter().map(|p| format!("{name}:{p}")));
        }
    }
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

#[test]
fn pages_for_users_use_plain_words() {
    let mut pages = Vec::new();
    files(&root().join("docs/use"), ".md", &mut pages);
    let mut problems = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page");
        let mut is_code = false;
        for (index, line) in text.lines().enumerate() {
            // The output of programs is quoted verbatim.
            is_code ^= line.trim_start().starts_with("```");
            if is_code || line.starts_with("    ") {
                continue;
            }
            for (word, replacement) in avoided_in(line) {
                let name = page.strip_prefix(root()).expect("it is below the root");
                let (name, number) = (name.display(), index + 1);
                problems.push(format!("{name}:{number}: {word:?}; write: {replacement}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_matcher_finds_words_and_phrases_in_strings() {
    let finds = |text: &str| {
        let file = SourceFile::new(text.to_owned());
        problems_of(&file).len()
    };
    for (text, problems) in [
        ("let x = \"it was turned down\";\n", 1),
        ("let x = \"an essay about sayings\";\n", 0),
        ("let x = \"nobody\";\n", 0),
        ("// The plugin says no.\n", 0),
    ] {
        assert_eq!(finds(text), problems, "{text}");
    }
}

/// The numbers of the sections that a comment cites, after the word or the sign.
fn cited_sections(comment: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for mark in ["section ", "sections ", "§ ", "§"] {
        for (at, _) in comment.match_indices(mark) {
            let rest = &comment[at + mark.len()..];
            let end = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(rest.len());
            let number = rest[..end].trim_end_matches('.');
            if !number.is_empty() {
                found.push(number);
            }
        }
    }
    found
}

/// A section belongs to a page of the repository that the same comment names, or to a public document by its address.
#[test]
fn cited_sections_exist() {
    let mut problems = Vec::new();
    for (name, file) in sources() {
        for text in file.texts.iter().filter(|text| text.is_comment) {
            let comment = file.part(text);
            for number in cited_sections(comment) {
                let page = comment
                    .split(|c: char| c.is_whitespace() || "`(),".contains(c))
                    .find(|word| word.ends_with(".md"));
                let page = page.and_then(|page| fs::read_to_string(root().join(page)).ok());
                let is_there = page.is_some_and(|page| {
                    let mut headings = page.lines().filter(|line| line.starts_with('#'));
                    headings.any(|line| line.trim_start_matches('#').trim().starts_with(number))
                });
                if !is_there && !comment.contains("RFC") && !comment.contains("https://") {
                    let line = file.line_of(text.start);
                    problems.push(format!(
                        "{name}:{line}: section {number} of no document: {comment}"
                    ));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
