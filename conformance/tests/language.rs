//! Names and language, by STYLE.md: the words of comments, strings, names and documents; the names of types; the
//! comments of long functions; the sections that comments cite.

// It reads the project's own files; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::expect_used)]

#[path = "language/source.rs"]
mod source;
#[path = "language/words.rs"]
mod words;

use source::SourceFile;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use words::{ALLOWED, AVOIDED, NAMES, OPENINGS, PROSE, STRINGS};

/// The most declarations of one type name in the workspace.
const DECLARATIONS_MAX: usize = 2;
/// From this number of lines on, a function gives its reasons in a comment.
const LONG_FUNCTION_LINES: usize = 30;
/// The greatest share of long functions without a comment, in percent. Good codebases have 22 to 40.
const UNCOMMENTED_PERCENT_MAX: usize = 40;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
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
    for part in ["crates", "conformance", "examples", "xtask"] {
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

/// The words of a text in small letters. Punctuation is a word of its own, so that no phrase spans it; a hyphen is a part
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
fn avoided_in(text: &str, place: u8) -> Vec<(&'static str, &'static str)> {
    let mut text = text.to_owned();
    for (allowed, _) in ALLOWED {
        text = text.replace(allowed, "");
    }
    let words = words_of(&text);
    let mut found = Vec::new();
    for avoided in AVOIDED.iter().filter(|word| word.places & place != 0) {
        for form in avoided.forms {
            let phrase: Vec<&str> = form.split(' ').collect();
            if words.windows(phrase.len()).any(|window| window == phrase) {
                found.push((*form, avoided.replacement));
            }
        }
    }
    found
}

/// The words of an identifier: `take_back`, `TookBack` and `TAKE_BACK` have two.
fn split_name(name: &str) -> String {
    let mut text = String::new();
    let mut is_low = false;
    for character in name.chars() {
        if character == '_' || (is_low && character.is_uppercase()) {
            text.push(' ');
        }
        if character != '_' {
            text.push(character);
        }
        is_low = character.is_lowercase();
    }
    text
}

/// The identifiers of code, each once.
fn names_of(code: &str) -> BTreeMap<&str, usize> {
    let mut found = BTreeMap::new();
    let mut start = None;
    for (at, character) in code.char_indices().chain([(code.len(), ' ')]) {
        let is_part = character.is_alphanumeric() || character == '_';
        match start {
            None if is_part => start = Some(at),
            Some(begin) if !is_part => {
                found.entry(&code[begin..at]).or_insert(begin);
                start = None;
            }
            _ => {}
        }
    }
    found
}

/// The text of a comment without its slashes.
fn content(comment: &str) -> &str {
    comment.trim_start_matches(['/', '!', '*']).trim()
}

/// Returns whether a comment continues the sentence of the line before it.
fn continues(file: &SourceFile, start: usize) -> bool {
    let before = file.text[..start].trim_end_matches([' ', '\t']);
    if before.is_empty() {
        return false;
    }
    let Some(before) = before.strip_suffix('\n') else {
        return true;
    };
    let line = before.rsplit('\n').next().unwrap_or("").trim();
    line.starts_with("//") && !content(line).is_empty() && !line.ends_with(['.', ':', '`', '!'])
}

/// The problems of one source file: `line: word; write: replacement`.
fn problems_of(file: &SourceFile) -> Vec<String> {
    let mut problems = Vec::new();
    let mut report = |at: usize, word: &str, replacement: &str| {
        problems.push(format!(
            "{}: {word:?}; write: {replacement}",
            file.line_of(at)
        ));
    };
    for text in &file.texts {
        let part = file.part(text);
        // A string without a space is data: a name, a label, a key.
        if !text.is_comment && !part.contains(' ') {
            continue;
        }
        let place = if text.is_comment { PROSE } else { STRINGS };
        for (word, replacement) in avoided_in(part, place) {
            report(text.start, word, replacement);
        }
        if text.is_comment && !continues(file, text.start) {
            let opening = OPENINGS.iter().find(|o| content(part).starts_with(**o));
            if let Some(opening) = opening {
                report(
                    text.start,
                    opening,
                    "The …: the thing in place of the question",
                );
            }
        }
    }
    for (name, at) in names_of(&file.code) {
        for (word, replacement) in avoided_in(&split_name(name), NAMES) {
            report(at, &format!("{word} in {name}"), replacement);
        }
    }
    problems
}

#[test]
fn comments_strings_and_names_use_plain_words() {
    // The tables name the words that they forbid.
    let tables = [
        "conformance/tests/language/words.rs",
        "conformance/tests/language.rs",
    ];
    let mut problems = Vec::new();
    for (name, file) in sources() {
        if !tables.contains(&name.as_str()) {
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
fn documents_use_plain_words() {
    let mut pages = Vec::new();
    files(root(), ".md", &mut pages);
    let mut problems = Vec::new();
    for page in pages {
        // STYLE.md lists the words.
        if page.ends_with("STYLE.md") {
            continue;
        }
        let text = fs::read_to_string(&page).expect("a page");
        let mut is_code = false;
        for (index, line) in text.lines().enumerate() {
            // The output of programs is quoted as it is.
            is_code ^= line.trim_start().starts_with("```");
            if is_code || line.starts_with("    ") {
                continue;
            }
            for (word, replacement) in avoided_in(line, PROSE) {
                let name = page.strip_prefix(root()).expect("it is below the root");
                let (name, number) = (name.display(), index + 1);
                problems.push(format!("{name}:{number}: {word:?}; write: {replacement}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_matcher_finds_words_phrases_and_parts_of_names() {
    let finds = |text: &str| {
        let file = SourceFile::new(text.to_owned());
        problems_of(&file).len()
    };
    for (text, problems) in [
        ("// The plugin says no.\n", 1),
        ("// An essay about sayings.\n", 0),
        ("let x = \"it was turned down\";\n", 1),
        ("let x = \"nobody\";\n", 0),
        ("fn take_back() {}\n", 1),
        ("enum E { TookBack }\n", 1),
        ("fn stay() {}\n", 0),
        ("/// What a node has.\n", 1),
        ("/// Returns\n/// What a node has.\n", 0),
        ("/// The resources of a node.\n", 0),
    ] {
        assert_eq!(finds(text), problems, "{text}");
    }
}

/// Returns whether a file has only tests or test builders.
fn is_for_tests(name: &str) -> bool {
    let stem = name.rsplit('/').next().unwrap_or(name);
    name.contains("/tests/")
        || name.contains("/testing")
        || stem == "tests.rs"
        || stem == "testing.rs"
        || stem.ends_with("_tests.rs")
}

/// The end of the block whose first `{` is at or after `at`.
fn end_of_body(code: &str, at: usize) -> usize {
    let mut depth = 0usize;
    for (offset, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return offset,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// The code without modules of tests.
fn without_tests(code: &str) -> String {
    let mut code = code.to_owned();
    while let Some(at) = code.find("#[cfg(test)]\nmod ") {
        let line_end = code[at + 13..]
            .find('\n')
            .map_or(code.len(), |n| at + 13 + n);
        let is_block = code[at..line_end].contains('{');
        let end = if is_block {
            end_of_body(&code, at)
        } else {
            line_end
        };
        let blank: String = code[at..end]
            .chars()
            .map(|c| if c == '\n' { c } else { ' ' })
            .collect();
        code.replace_range(at..end, &blank);
    }
    code
}

/// The names of the types that a file declares in its modules. Types within functions are known to these alone, and
/// associated types belong to their trait; both are indented.
fn declared_types(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in code.lines().filter(|line| !line.starts_with([' ', '\t'])) {
        let rest = match line.strip_prefix("pub(") {
            Some(rest) => rest.split_once(") ").map_or("", |(_, rest)| rest),
            None => line.strip_prefix("pub ").unwrap_or(line),
        };
        for keyword in ["struct ", "enum ", "trait ", "type ", "union "] {
            if let Some(rest) = rest.strip_prefix(keyword) {
                let end = rest
                    .find(|c: char| !c.is_alphanumeric())
                    .unwrap_or(rest.len());
                found.push(&rest[..end]);
            }
        }
    }
    found
}

#[test]
fn no_type_name_is_declared_more_than_twice() {
    let mut declared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, file) in sources() {
        if !is_for_tests(&name) {
            let code = without_tests(&file.code);
            for kind in declared_types(&code) {
                declared
                    .entry(kind.to_owned())
                    .or_default()
                    .push(name.clone());
            }
        }
    }
    assert!(
        declared.len() > 1000,
        "only {} types were found",
        declared.len()
    );
    let often = declared
        .iter()
        .filter(|(_, files)| files.len() > DECLARATIONS_MAX);
    let problems: Vec<String> = often
        .map(|(kind, files)| {
            format!(
                "{kind}: {}; add a word that states what it is",
                files.join(", ")
            )
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The long functions of a file: the line, the name, and whether the body has a comment.
fn long_functions(file: &SourceFile) -> Vec<(usize, String, bool)> {
    let code = without_tests(&file.code);
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_word = at == 0 || code[..at].ends_with([' ', '\n', '(']);
        let name: String = code[at + 3..]
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let signature = code[at..].find(['{', ';']).map(|n| at + n);
        let Some(begin) = signature.filter(|_| is_word && !name.is_empty()) else {
            continue;
        };
        // A declaration of a trait has no body.
        if code.as_bytes()[begin] == b';' {
            continue;
        }
        let end = end_of_body(&code, begin);
        if code[at..end].matches('\n').count() + 1 >= LONG_FUNCTION_LINES {
            let mut comments = file.texts.iter().filter(|text| text.is_comment);
            let has_reason = comments.any(|text| begin < text.start && text.end < end);
            found.push((file.line_of(at), name, has_reason));
        }
    }
    found
}

#[test]
fn long_functions_give_their_reasons() {
    let (mut all, mut without) = (0, Vec::new());
    for (name, file) in sources() {
        if !is_for_tests(&name) {
            for (line, function, has_reason) in long_functions(&file) {
                all += 1;
                if !has_reason {
                    without.push(format!("{name}:{line}: {function}"));
                }
            }
        }
    }
    assert!(all > 500, "only {all} long functions were found");
    let percent = without.len() * 100 / all;
    assert!(
        percent <= UNCOMMENTED_PERCENT_MAX,
        "{percent} % of {all} functions of {LONG_FUNCTION_LINES} lines and more have no comment:\n{}",
        without.join("\n")
    );
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
