//! Generates the table of the functions that `facts/rules` name, from their paths to the functions themselves. A path
//! that leads to no function does not compile, and a function that no rule names is dead code.

// A build script reads and writes files; it is no part of the core.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs, io};

const RULES: &str = "facts/rules";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={RULES}");
    let (mut checks, mut defaults) = (BTreeSet::new(), BTreeSet::new());
    for file in fs::read_dir(RULES)? {
        let text = fs::read_to_string(file?.path())?;
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
    let code = function("check_fn", "CheckFn", &checks)
        + &function("default_fn", "fn(&mut Value)", &defaults);
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&out).join("rule_functions.rs"), code)
}

/// A function that returns the function of a path.
fn function(name: &str, of: &str, paths: &BTreeSet<String>) -> String {
    let arms: String = paths
        .iter()
        .map(|path| format!("        {path:?} => Some({path} as {of}),\n"))
        .collect();
    format!(
        "fn {name}(path: &str) -> Option<{of}> {{\n    match path {{\n{arms}        _ => None,\n    }}\n}}\n"
    )
}
