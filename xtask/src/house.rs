//! The figures of the structure of the code: `cargo xtask house`.
//!
//! The figures are computed from the text of the sources, formatted by rustfmt. They have no limits and no test: they
//! show where the structure grows.

mod arrows;
mod source;

use source::{CrateSource, SourceFile};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The folders of crates; the others are crates themselves.
const GROUPS: [&str; 5] = ["scheduler", "control-plane", "edge", "testing", "examples"];
/// The crates without a group.
const SINGLE: [&str; 2] = ["berth", "xtask"];
/// The number of lines of a long file.
const LONG_FILE: usize = 600;
/// The number of lines of a long function.
const LONG_FUNCTION: usize = 30;
/// The types that contain several parts of the scheduler: the whole core, and its parts that a run of plugins needs.
const WHOLES: [(&str, &str); 2] = [("Core", "core"), ("Framework", "framework")];

/// The figures of the project below a folder.
///
/// # Errors
/// When a source cannot be read.
pub(crate) fn report(root: &Path) -> Result<String, String> {
    let mut crates = Vec::new();
    for group in GROUPS {
        for folder in source::folders(&root.join(group))? {
            if folder.join("Cargo.toml").is_file() {
                crates.push(CrateSource::read(root, &folder)?);
            }
        }
    }
    for single in SINGLE {
        crates.push(CrateSource::read(root, &root.join(single))?);
    }
    let mut text = String::new();
    lines(&mut text, &crates);
    core(&mut text, &crates);
    evaluator(&mut text, &crates);
    all_arrows(&mut text, &crates);
    long_files(&mut text, &crates);
    long_functions(&mut text, &crates);
    Ok(text)
}

fn files(crates: &[CrateSource]) -> impl Iterator<Item = &SourceFile> {
    crates.iter().flat_map(|of| &of.files)
}

fn lines(text: &mut String, crates: &[CrateSource]) {
    let _ = writeln!(
        text,
        "Lines of code, without comments, blank lines and tests\n"
    );
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for of in crates {
        let count: usize = of.files.iter().map(SourceFile::code_lines).sum();
        *folders.entry(of.group()).or_default() += count;
        let _ = writeln!(text, "{count:>8}  {}", of.folder);
    }
    let _ = writeln!(text);
    for (folder, count) in &folders {
        let _ = writeln!(text, "{count:>8}  {folder}/");
    }
    let _ = writeln!(text, "{:>8}  all", folders.values().sum::<usize>());
}

fn core(text: &mut String, crates: &[CrateSource]) {
    let _ = writeln!(text, "\nThe core");
    for (name, shown) in WHOLES {
        let (mut takers, mut methods) = (BTreeMap::<&str, usize>::new(), 0);
        for file in files(crates).filter(|file| file.path.starts_with("scheduler/")) {
            let functions = file.functions();
            let taking = functions
                .iter()
                .filter(|function| function.takes(name))
                .count();
            if taking > 0 {
                takers.insert(&file.path, taking);
            }
            methods += file.methods_of(name);
        }
        let functions: usize = takers.values().sum();
        let _ = writeln!(
            text,
            "\n{functions:>8}  functions take the whole {shown}, in {} files\n{methods:>8}  methods of the {shown}",
            takers.len()
        );
        for (path, count) in takers {
            let _ = writeln!(text, "{count:>12}  {path}");
        }
    }
}

fn evaluator(text: &mut String, crates: &[CrateSource]) {
    let of_evaluator = |file: &&SourceFile| {
        file.path.starts_with("scheduler/") && file.path.contains("/evaluator")
    };
    let (mut types, mut constants) = (0, 0);
    for file in files(crates).filter(of_evaluator) {
        types += file.count(&["struct", "enum", "trait", "type"]);
        constants += file.count(&["const", "static"]);
    }
    let _ = writeln!(
        text,
        "\nThe evaluator\n\n{types:>8}  types\n{constants:>8}  constants"
    );
}

fn all_arrows(text: &mut String, crates: &[CrateSource]) {
    let mut found = Vec::new();
    for of in crates {
        let upward = arrows::upward(of);
        found.extend(upward.into_iter().map(|arrow| (&of.folder, arrow)));
    }
    let _ = writeln!(
        text,
        "\nUpward arrows: the modules of a crate in an order with few imports against it\n\n{:>8}  arrows",
        found.len()
    );
    for (folder, arrow) in found {
        let _ = writeln!(
            text,
            "{:>12}  {folder}: {} -> {} ({})",
            arrow.files.len(),
            arrow.from,
            arrow.to,
            arrow.files.join(", ")
        );
    }
}

fn long_files(text: &mut String, crates: &[CrateSource]) {
    let long = files(crates).filter(|file| file.all_lines > LONG_FILE);
    let mut long: Vec<&SourceFile> = long.collect();
    long.sort_by_key(|file| std::cmp::Reverse(file.all_lines));
    let all = files(crates).count();
    let _ = writeln!(
        text,
        "\nFiles with more than {LONG_FILE} lines\n\n{:>8}  of {all}",
        long.len()
    );
    for file in long {
        let _ = writeln!(text, "{:>12}  {}", file.all_lines, file.path);
    }
}

fn long_functions(text: &mut String, crates: &[CrateSource]) {
    let (mut long, mut silent) = (0, 0);
    for file in files(crates) {
        for function in file.functions() {
            if function.lines >= LONG_FUNCTION {
                long += 1;
                silent += usize::from(!function.has_comment);
            }
        }
    }
    let percent = (silent * 100).checked_div(long).unwrap_or(0);
    let _ = writeln!(
        text,
        "\nFunctions of {LONG_FUNCTION} lines and more\n\n{long:>8}  functions\n{silent:>8}  without a comment ({percent} %)"
    );
}
