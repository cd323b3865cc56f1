//! Generates code from the facts, so that misspelt names do not compile:
//!
//! - a table of the functions that `facts/rules` name by their paths; a function that no rule names is dead code;
//! - the macro `values!(core.v1.PodSpec.restartPolicy)`: the values that Kubernetes enumerates for a field.

// A build script reads and writes files; it is not part of the core.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs, io};

const RULES: &str = "facts/rules";
/// The modules outside of `validation` whose functions rules name.
const OTHERS: [&str; 2] = ["conversion::", "custom::"];
/// The tables with enumerations.
const TABLES: [&str; 2] = ["kubernetes.txt", "groups.txt"];

fn main() -> io::Result<()> {
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    let out = Path::new(&out);
    let (of_validation, of_others) = rule_functions()?;
    fs::write(out.join("rule_functions.rs"), of_validation)?;
    fs::write(out.join("kind_functions.rs"), of_others)?;
    fs::write(out.join("enumerations.rs"), enumerations()?)
}

/// The text of a file, or an error that names it.
fn read(path: &Path) -> io::Result<String> {
    let named = |error| io::Error::other(format!("failed to read {}: {error}", path.display()));
    fs::read_to_string(path).map_err(named)
}

/// The table of the functions of the module `validation`, and the table of other functions.
fn rule_functions() -> io::Result<(String, String)> {
    println!("cargo::rerun-if-changed={RULES}");
    let (mut checks, mut defaults) = (BTreeSet::new(), BTreeSet::new());
    for file in fs::read_dir(RULES)? {
        let text = read(&file?.path())?;
        for line in text.lines().filter(|line| line.starts_with("  ")) {
            let words = line.split_ascii_whitespace();
            let paths = words.clone().filter_map(|word| word.strip_prefix('@'));
            let of_line = match words.clone().next() {
                Some("defaults") => &mut defaults,
                _ => &mut checks,
            };
            of_line.extend(paths.map(str::to_owned));
        }
    }
    let is_other = |path: &&String| OTHERS.iter().any(|module| path.starts_with(module));
    let table = |is_included: &dyn Fn(&&String) -> bool| {
        function("check_fn", "CheckFn", checks.iter().filter(is_included))
            + &function(
                "default_fn",
                "DefaultFn",
                defaults.iter().filter(is_included),
            )
    };
    Ok((table(&|path| !is_other(path)), table(&is_other)))
}

/// A function that returns the function of a path.
fn function<'p>(name: &str, of: &str, paths: impl Iterator<Item = &'p String>) -> String {
    let arms: String = paths
        .map(|path| format!("        {path:?} => Some({path} as {of}),\n"))
        .collect();
    format!(
        "fn {name}(path: &str) -> Option<{of}> {{\n    match path {{\n{arms}        _ => None,\n    }}\n}}\n"
    )
}

/// A macro with an arm for each enumeration.
fn enumerations() -> io::Result<String> {
    let mut arms = BTreeSet::new();
    for table in TABLES {
        let path = format!("../protobuf/facts/{table}");
        println!("cargo::rerun-if-changed={path}");
        let text = read(Path::new(&path))?;
        let mut of = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("type ") {
                of = rest.split(' ').next().unwrap_or(rest);
            }
            let name = line.split_ascii_whitespace().next().unwrap_or_default();
            if let Some((_, values)) = line.split_once(" enum=") {
                let values = match values.strip_prefix('"') {
                    Some(quoted) => quoted.split('"').next(),
                    None => values.split(' ').next(),
                };
                let values: Vec<&str> = values.unwrap_or_default().split(',').collect();
                let name = name.trim_end_matches('?');
                arms.insert(format!("    ({of}.{name}) => {{ {values:?} }};\n"));
            }
        }
    }
    let arms: String = arms.into_iter().collect();
    Ok(format!(
        "macro_rules! values {{\n{arms}}}\npub(crate) use values;\n"
    ))
}
