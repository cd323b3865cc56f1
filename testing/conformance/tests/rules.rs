//! Every rule of `docs/contribute/rules` is named by a test that can fail for it, and every rule that a test names is
//! listed in `docs/contribute/rules`.
//!
//! A test names a rule in the comment above its function or inside it: `Q-12`, `Q-12 to Q-14`, `case 31`, `cases 31, 33
//! to 35`. The comment at the head of a file is an overview and does not count.

// It reads the project's own files and is not part of the core.
#![allow(clippy::disallowed_methods, clippy::expect_used)]

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The letters before the numbers of rules. Numbered cases have none.
const LETTERS: [&str; 10] = ["API", "Q", "DQ", "D", "F", "C", "P", "PL", "G", "S"];

/// The maximum length of a range in a test: a longer range is not specific.
const LONGEST_RANGE: u32 = 12;

/// The name of a rule: its letters and number, with an optional small letter; cases are `case 12`.
type Name = String;

/// The project's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below `dir` with this ending, without build results.
fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder that can be read") {
        let path = entry.expect("an entry that can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

/// The rules of a page: the bold beginnings of its list items.
fn listed(page: &str) -> Vec<Name> {
    page.lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("**"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Splits a text into the number at its beginning and the rest.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// The end of a range, if one follows.
fn range_end<'t>(text: &'t str, letters: &str) -> Option<(u32, &'t str)> {
    let rest = [" to ", "–", "-", "..="]
        .iter()
        .find_map(|joint| text.strip_prefix(joint))?;
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix(letters) {
        Some(rest) if !letters.is_empty() => rest.strip_prefix('-')?,
        _ => rest,
    };
    number(rest)
}

/// Adds every number of a range.
fn add(names: &mut BTreeSet<Name>, first: u32, last: u32, name: impl Fn(u32) -> Name) {
    if last >= first && last - first <= LONGEST_RANGE {
        names.extend((first..=last).map(name));
    }
}

/// The folders whose tests run the default profile, as users do.
const DEFAULT_PROFILE: [&str; 5] = [
    "scheduler/plugins/tests",
    "berth/tests",
    "testing/simulator",
    "testing/perf/src",
    "testing/conformance",
];

/// The other folders with tests of rules, and the reason why they do not use the default profile.
const OTHER_PROFILES: [(&str, &str); 20] = [
    (
        "scheduler/queue/src",
        "the queue alone, with fake plugins that return each result and error on command",
    ),
    (
        "scheduler/core/src/scheduler",
        "the core with fake plugins that wait, fail and panic on command, as no in-tree plugin does",
    ),
    (
        "scheduler/evaluator/src",
        "the search alone, with fake plugins that count their calls",
    ),
    (
        "scheduler/core/src",
        "parts of the core that read no profile, such as the cache",
    ),
    ("scheduler/config", "the configuration itself"),
    (
        "scheduler/dispatcher/src",
        "the dispatcher, which reads no profile",
    ),
    ("scheduler/profile/src", "profiles of fake plugins"),
    (
        "scheduler/telemetry/src",
        "metrics and log lines, which know no plugin",
    ),
    (
        "scheduler/plugins/src",
        "one plugin alone: its answers do not depend on the others",
    ),
    ("scheduler/framework/src", "types that know no plugin"),
    ("scheduler/devices", "the allocator alone"),
    ("testing/oracle", "the oracle, which knows no scheduler"),
    (
        "control-plane/objects",
        "the rules of the API server, which know no scheduler",
    ),
    (
        "control-plane/apiserver",
        "the API server, which knows no scheduler",
    ),
    (
        "control-plane/controllers",
        "the controllers, which know no scheduler",
    ),
    ("edge/client", "the client, which knows no scheduler"),
    ("scheduler/api/src", "objects and their conversions"),
    (
        "control-plane/protobuf",
        "messages, which know no scheduler",
    ),
    (
        "edge/scheduler/src",
        "the edge: connections, flags and the configuration file",
    ),
    (
        "control-plane/embedded",
        "the gates of the API, which know no scheduler",
    ),
];

/// Rules whose outcome depends on the declarations of the plugins in the profile (events, hints, kept answers,
/// templates, PreEnqueue): fake plugins alone do not show the behavior for users.
const DEPENDS_ON_PROFILE: &str = "Q-8, Q-24, Q-26, Q-28 to Q-30, Q-51 to Q-54, Q-96, Q-97, Q-99, Q-101 to Q-106, \
    Q-111 to Q-113, C-16, C-18, C-20, C-28, C-32, C-50, C-54 to C-58, PL-1, PL-2, PL-159";

/// The rules that a comment names.
fn named(comment: &str) -> BTreeSet<Name> {
    let mut names = BTreeSet::new();
    for letters in LETTERS {
        for (at, _) in comment.match_indices(letters) {
            let free = !comment[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-');
            let rest = comment[at + letters.len()..].strip_prefix('-');
            let Some((first, rest)) = rest.filter(|_| free).and_then(number) else {
                continue;
            };
            if let Some(small) = rest.chars().next().filter(char::is_ascii_lowercase) {
                names.insert(format!("{letters}-{first}{small}"));
                continue;
            }
            let last = range_end(rest, letters).map_or(first, |(last, _)| last);
            add(&mut names, first, last, |n| format!("{letters}-{n}"));
        }
    }
    for word in ["case ", "cases "] {
        for (at, _) in comment.to_lowercase().match_indices(word) {
            let mut rest = &comment[at + word.len()..];
            while let Some((first, after)) = number(rest) {
                let (last, after) = range_end(after, "").unwrap_or((first, after));
                add(&mut names, first, last, |n| format!("case {n}"));
                rest = after
                    .trim_start_matches([',', ' '])
                    .trim_start_matches("and ");
            }
        }
    }
    names
}

/// The part of a file with tests.
fn tests_of<'t>(path: &Path, text: &'t str) -> &'t str {
    let inside = path.components().any(|part| part.as_os_str() == "tests");
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    if inside || name == "tests" || name.ends_with("_tests") {
        return text;
    }
    text.find("#[cfg(test)]").map_or("", |at| &text[at..])
}

/// The comments of a piece of code, adjoining lines joined, without the comment at the head of a file.
fn comments(code: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in code.lines() {
        let words = line
            .split_once("//")
            .filter(|(before, rest)| !before.ends_with(':') && !rest.starts_with('!'));
        match (words, all.last_mut()) {
            (Some((before, rest)), Some(last)) if before.trim().is_empty() => {
                last.push(' ');
                last.push_str(rest.trim_start_matches('/').trim());
            }
            (Some((_, rest)), _) => all.push(rest.trim().to_owned()),
            (None, Some(last)) if !last.is_empty() => all.push(String::new()),
            (None, _) => {}
        }
    }
    all
}

/// Every rule name in the tests of the project, with the files that contain it.
fn names_in_tests() -> BTreeMap<Name, Vec<PathBuf>> {
    let root = root();
    let mut sources = Vec::new();
    for part in [
        "scheduler",
        "control-plane",
        "edge",
        "testing",
        "berth",
        "examples",
    ] {
        files(&root.join(part), ".rs", &mut sources);
    }
    let itself = Path::new(file!()).file_name();
    let mut names: BTreeMap<Name, Vec<PathBuf>> = BTreeMap::new();
    for path in sources.into_iter().filter(|p| p.file_name() != itself) {
        let text = fs::read_to_string(&path).expect("a source file");
        for comment in comments(tests_of(&path, &text)) {
            for name in named(&comment) {
                names.entry(name).or_default().push(path.clone());
            }
        }
    }
    names
}

#[test]
fn every_rule_is_named_by_a_test_and_every_name_is_a_rule() {
    let mut pages = Vec::new();
    files(&root().join("docs/contribute/rules"), ".md", &mut pages);
    let mut rules = BTreeMap::new();
    let mut problems = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page of rules");
        for rule in listed(&text) {
            if let Some(other) = rules.insert(rule.clone(), page.clone()) {
                let (page, other) = (page.display(), other.display());
                problems.push(format!("{rule} is listed twice: {page} and {other}"));
            }
        }
    }
    let names = names_in_tests();
    for (rule, page) in &rules {
        if !names.contains_key(rule) {
            problems.push(format!("{rule} of {}: no test names it", page.display()));
        }
    }
    for (name, files) in &names {
        if !rules.contains_key(name) {
            problems.push(format!("{name} in {}: no such rule", files[0].display()));
        }
    }
    assert!(!rules.is_empty(), "docs/contribute/rules lists no rules");
    assert!(
        problems.is_empty(),
        "{} of {} rules:\n{}",
        problems.len(),
        rules.len(),
        problems.join("\n")
    );
}

/// A rule that is tested only with another profile than the default may not hold for users. Each file with tests of
/// rules runs the default profile, or is in a folder that states the reason; rules that depend on the plugins of the
/// profile have a test with the default profile.
#[test]
fn rules_are_tested_with_the_default_profile_or_a_reason() {
    let names = names_in_tests();
    let is_in = |path: &Path, folder: &str| {
        let path = path.strip_prefix(root()).expect("a file of the project");
        path.starts_with(folder)
    };
    let is_default = |path: &PathBuf| DEFAULT_PROFILE.iter().any(|folder| is_in(path, folder));
    let mut problems = BTreeSet::new();
    for path in names.values().flatten().filter(|path| !is_default(path)) {
        if !OTHER_PROFILES.iter().any(|(folder, _)| is_in(path, folder)) {
            let path = path.display();
            problems.insert(format!("{path}: no reason for another profile is listed"));
        }
    }
    for (folder, _) in OTHER_PROFILES {
        if !names.values().flatten().any(|path| is_in(path, folder)) {
            problems.insert(format!("{folder}: no test there names a rule"));
        }
    }
    let depending = named(DEPENDS_ON_PROFILE);
    assert!(depending.len() > 30, "{depending:?}");
    for rule in depending {
        if !names
            .get(&rule)
            .is_some_and(|paths| paths.iter().any(is_default))
        {
            problems.insert(format!("{rule}: no test with the default profile names it"));
        }
    }
    let problems: Vec<String> = problems.into_iter().collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn names_are_read_from_comments() {
    for (comment, expected) in [
        ("Nothing of the kind; HTTP-2, a Q-value, edge cases.", ""),
        ("Q-4.", "Q-4"),
        ("(Q-4, D-12 and API-9a)", "API-9a D-12 Q-4"),
        ("Q-4 to Q-6; C-1–C-3", "C-1 C-2 C-3 Q-4 Q-5 Q-6"),
        ("Q-4 to 6", "Q-4 Q-5 Q-6"),
        ("Q-1 to 110", ""),
        ("Edge case 31.", "case 31"),
        (
            "cases 31, 33 to 35 and 40, the rest",
            "case 31 case 33 case 34 case 35 case 40",
        ),
    ] {
        let names: Vec<Name> = named(comment).into_iter().collect();
        assert_eq!(names.join(" "), expected, "{comment}");
    }
}

#[test]
fn only_comments_of_tests_count() {
    let code = "//! Q-1\nfn f() {}\n/// Q-2 is\n/// Q-3\n#[test]\nfn g() {\n    a(1), // Q-4\n    b(\"http://Q-5\"),\n}\n";
    let all = comments(code).join("|");
    assert_eq!(
        named(&all).into_iter().collect::<Vec<_>>(),
        ["Q-2", "Q-3", "Q-4"]
    );
    let source = Path::new("x/src/lib.rs");
    assert_eq!(tests_of(source, code), "");
    assert_eq!(tests_of(Path::new("x/tests/a.rs"), code), code);
    let with_tests = "/// Q-1\nfn f() {}\n#[cfg(test)]\nmod tests {}\n";
    assert!(tests_of(source, with_tests).starts_with("#[cfg(test)]"));
}
