//! Imports between the top modules of a crate.

use super::source::{CrateSource, SourceFile};
use std::collections::{BTreeMap, BTreeSet};

/// An import against the order of the modules.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UpwardArrow {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The files with the import.
    pub(crate) files: Vec<String>,
}

type Imports = BTreeMap<(String, String), BTreeSet<String>>;

/// The imports against the order of the top modules that minimizes them.
pub(crate) fn upward(of: &CrateSource) -> Vec<UpwardArrow> {
    let imports = of_circles(imports(of));
    let place: BTreeMap<String, usize> = order(&imports)
        .into_iter()
        .enumerate()
        .map(|(place, module)| (module, place))
        .collect();
    let against = imports
        .into_iter()
        .filter(|((from, to), _)| place[from] > place[to]);
    let arrows = against.map(|((from, to), files)| UpwardArrow {
        from,
        to,
        files: files.into_iter().collect(),
    });
    arrows.collect()
}

/// The imports within a cycle of modules. Any other import agrees with an order.
fn of_circles(imports: Imports) -> Imports {
    let reaches = |from: &String, to: &String| {
        let (mut seen, mut open) = (BTreeSet::from([from]), vec![from]);
        while let Some(module) = open.pop() {
            let next = imports.keys().filter(|(user, _)| user == module);
            open.extend(next.map(|(_, used)| used).filter(|used| seen.insert(used)));
        }
        seen.contains(to)
    };
    let is_of_circle: BTreeSet<(String, String)> = imports
        .keys()
        .filter(|(from, to)| reaches(to, from))
        .cloned()
        .collect();
    let mut imports = imports;
    imports.retain(|arrow, _| is_of_circle.contains(arrow));
    imports
}

/// The files with imports from one top module into another.
fn imports(of: &CrateSource) -> Imports {
    let tops: BTreeSet<&String> = of.files.iter().filter_map(|f| f.modules.first()).collect();
    let exports = exports(of);
    let mut found = Imports::new();
    for file in &of.files {
        let Some(from) = file.modules.first() else {
            continue;
        };
        for name in named(file) {
            let is_module = tops.contains(&name);
            // The other names can be items that the root exports from a module.
            let to = exports.get(&name).filter(|_| !is_module);
            let to = match (is_module, to) {
                (true, _) => name,
                (false, Some(module)) => module.clone(),
                (false, None) => continue,
            };
            if *from != to {
                let files = found.entry((from.clone(), to)).or_default();
                files.insert(file.modules.join("/") + ".rs");
            }
        }
    }
    found
}

/// The items that the root of a crate exports, with their modules.
fn exports(of: &CrateSource) -> BTreeMap<String, String> {
    let root = of.files.iter().filter(|file| file.modules.is_empty());
    let text: Vec<String> = root.flat_map(code).collect();
    let text = text.join(" ");
    let mut found = BTreeMap::new();
    for statement in text.split("pub ").skip(1) {
        let Some(path) = statement.strip_prefix("use ") else {
            continue;
        };
        let path = path.split(';').next().unwrap_or_default();
        let Some((module, items)) = path.split_once("::") else {
            continue;
        };
        let is_part = |c: char| !(c.is_alphanumeric() || c == '_');
        for item in items.split(is_part).filter(|item| !item.is_empty()) {
            found.insert(item.to_owned(), module.to_owned());
        }
    }
    found
}

fn code(file: &SourceFile) -> impl Iterator<Item = String> {
    let lines = file.lines.iter();
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.map(|line| line.trim().to_owned())
}

/// The first names in paths from the root of the crate: after `crate::`, and after the number of `super::` that leads
/// to the root.
fn named(file: &SourceFile) -> BTreeSet<String> {
    let text: Vec<String> = code(file).collect();
    let text = text.join(" ");
    let root = "super::".repeat(file.modules.len());
    let mut found = BTreeSet::new();
    for start in ["crate::", root.as_str()] {
        for (at, _) in text.match_indices(start) {
            // A longer path with the same end is a different path.
            if !text[..at].ends_with(|c: char| c == ':' || c.is_alphanumeric() || c == '_') {
                first_names(&text[at + start.len()..], &mut found);
            }
        }
    }
    found
}

/// The first name of a path, or the first names of the paths in braces.
fn first_names(path: &str, found: &mut BTreeSet<String>) {
    let is_end = |c: char| !(c.is_alphanumeric() || c == '_');
    let Some(tree) = path.strip_prefix('{') else {
        let name = path.split(is_end).next().unwrap_or_default();
        if !name.is_empty() && name != "super" {
            found.insert(name.to_owned());
        }
        return;
    };
    let (mut depth, mut begins) = (0_usize, true);
    for (at, sign) in tree.char_indices() {
        match sign {
            '{' => depth += 1,
            '}' if depth == 0 => return,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            sign if begins && !sign.is_whitespace() => {
                let name = tree[at..].split(is_end).next().unwrap_or_default();
                found.insert(name.to_owned());
                begins = false;
            }
            _ => {}
        }
    }
}

/// An order of the modules, users before the used, with few imports against it: the next module is the one with the
/// largest difference between the files that it uses and the files that use it (Eades, Lin and Smyth).
fn order(imports: &Imports) -> Vec<String> {
    let mut left: BTreeSet<&String> = imports.keys().flat_map(|(from, to)| [from, to]).collect();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let weight = |module: &String, outward: bool| -> usize {
            let of_module = imports.iter().filter(|((from, to), _)| {
                let (own, other) = if outward { (from, to) } else { (to, from) };
                own == module && left.contains(other)
            });
            of_module.map(|(_, files)| files.len()).sum()
        };
        let find = |outward: bool| left.iter().find(|module| weight(module, outward) == 0);
        let chosen = if let Some(sink) = find(true) {
            last.push((*sink).clone());
            *sink
        } else {
            let gain =
                |module: &&&String| weight(module, true) as i64 - weight(module, false) as i64;
            let source = find(false).or_else(|| left.iter().max_by_key(gain));
            let Some(source) = source else { break };
            first.push((*source).clone());
            *source
        };
        left.remove(chosen);
    }
    last.reverse();
    first.extend(last);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(modules: &[&str], text: &str) -> SourceFile {
        let modules: Vec<String> = modules.iter().map(|name| (*name).to_owned()).collect();
        SourceFile::new(modules.join("/"), modules, text)
    }

    #[test]
    fn imports_against_the_order_are_found() {
        let of = CrateSource {
            folder: "x".to_owned(),
            files: vec![
                file(&[], "mod a;\npub use a::{Attempt, Other};\npub use b::B;\n"),
                file(&["a"], "use crate::{b::B, c};\nuse super::b::Other;\n"),
                file(&["a", "inner"], "use super::super::c::C;\n"),
                file(&["b"], "fn f() { crate::c::run() }\n"),
                file(&["c"], "use crate::Attempt;\nuse other_crate::b;\n"),
            ],
        };
        assert_eq!(
            upward(&of),
            [UpwardArrow {
                from: "c".to_owned(),
                to: "a".to_owned(),
                files: vec!["c.rs".to_owned()],
            }]
        );
    }
}
