//! Files that need each other in a circle can only be understood, tested and moved together, so circles stay small.
//!
//! A file needs another one when its code, without comments and tests, names an item of it: in a `use` or by a path.
//! Names are followed through the imports and exports of modules. Calls of methods name no file and do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The most files of a circle.
const FILES_MAX: usize = 15;

/// The names of nested modules, from the root of a crate.
type ModulePath = Vec<String>;

/// A module that is a file.
#[derive(Debug, Default)]
struct SourceFile {
    /// The names that it imports or exports, with their paths.
    names: BTreeMap<String, ModulePath>,
    /// The paths that it needs.
    paths: Vec<ModulePath>,
}

/// The files of a crate.
type SourceFiles = BTreeMap<ModulePath, SourceFile>;

/// The sources below a folder, by module. Tests and test builders are left out.
fn read(folder: &Path, module: &[String], found: &mut BTreeMap<ModulePath, String>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if name == "tests" || name == "testing" || name.ends_with("_tests") {
            continue;
        }
        let mut module = module.to_vec();
        if !(module.is_empty() && (name == "lib" || name == "main")) {
            module.push(name.into_owned());
        }
        if path.is_dir() {
            read(&path, &module, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let source = std::fs::read_to_string(&path).expect("sources can be read");
            let code = source.split("#[cfg(test)]\nmod tests {").next();
            found.insert(module, code.unwrap_or_default().to_owned());
        }
    }
}

/// The words, `::` and other signs of a source, without comments, literals of strings and white space.
pub(super) fn tokens(source: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |end| end + 5)
        } else if first == '"' {
            string_length(rest)
        } else if let Some(raw) = rest.strip_prefix("r\"") {
            raw.find('"').map_or(rest.len(), |end| end + 3)
        } else if rest.starts_with("'\"'") {
            3
        } else if rest.starts_with("'\\\"'") {
            4
        } else if word(first) {
            let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
            tokens.push(rest[..end].to_owned());
            end
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of a literal that begins with a quotation mark.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return at + 1,
            c => is_escaped = c == '\\' && !is_escaped,
        }
    }
    text.len()
}

/// Reads a tree of a `use` from `at`: its paths, each with the name that it gets. Returns where it ends.
fn use_tree(
    tokens: &[String],
    mut at: usize,
    before: &[String],
    found: &mut Vec<(ModulePath, String)>,
) -> usize {
    let mut path = before.to_vec();
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.as_str() {
            "::" => {}
            "{" => {
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = use_tree(tokens, at, &path, found);
                    // The comma.
                    at += usize::from(tokens.get(at).is_some_and(|token| token != "}"));
                }
                return at + 1;
            }
            "as" => {
                let alias = tokens.get(at).cloned().unwrap_or_default();
                found.push((path, alias));
                return at + 1;
            }
            "," | ";" | "}" => {
                at -= 1;
                break;
            }
            "self" if !before.is_empty() => {}
            word => path.push(word.to_owned()),
        }
    }
    let name = path.last().cloned().unwrap_or_default();
    found.push((path, name));
    at
}

/// The exports and the imports of a source, each with its name, and the paths in the rest of its code.
#[derive(Debug, Default)]
struct Named {
    exports: Vec<(ModulePath, String)>,
    imports: Vec<(ModulePath, String)>,
    paths: Vec<ModulePath>,
}

fn named(tokens: &[String]) -> Named {
    let is_word = |token: &str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut named = Named::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        // `use<'a>` is a bound.
        if token == "use" && tokens.get(at + 1).is_some_and(|next| next != "<") {
            let is_export = at > 0 && ["pub", ")"].contains(&tokens[at - 1].as_str());
            let found = if is_export {
                &mut named.exports
            } else {
                &mut named.imports
            };
            at = use_tree(tokens, at + 1, &[], found);
            continue;
        }
        let mut path = vec![token.clone()];
        let begins = is_word(token);
        // `pub(in crate::a)` needs nothing of `a`.
        let is_visibility = at > 0 && tokens[at - 1] == "in" && token == "crate";
        at += 1;
        while begins && tokens.get(at).is_some_and(|token| token == "::") {
            match tokens.get(at + 1).filter(|next| is_word(next)) {
                Some(next) => path.push(next.clone()),
                None => break,
            }
            at += 2;
        }
        if path.len() > 1 && !is_visibility {
            named.paths.push(path);
        }
    }
    named
}

/// A path from the root of the crate; `None` when it is one of another crate.
fn absolute(
    files: &BTreeMap<ModulePath, String>,
    module: &[String],
    names: &BTreeMap<String, ModulePath>,
    path: &[String],
) -> Option<ModulePath> {
    let first = path.first()?;
    let supers = path.iter().take_while(|part| *part == "super").count();
    let (start, rest): (&[String], &[String]) = match first.as_str() {
        "crate" => (&[], &path[1..]),
        "self" => (module, &path[1..]),
        "super" => (
            &module[..module.len().checked_sub(supers)?],
            &path[supers..],
        ),
        _ => {
            let child = [module, std::slice::from_ref(first)].concat();
            if files.contains_key(&child) {
                (module, path)
            } else {
                (names.get(first)?.as_slice(), &path[1..])
            }
        }
    };
    Some([start, rest].concat())
}

fn parse(sources: &BTreeMap<ModulePath, String>) -> SourceFiles {
    let mut files = SourceFiles::new();
    for (module, source) in sources {
        let named = named(&tokens(source));
        let mut file = SourceFile::default();
        let full = |path: &[String]| absolute(sources, module, &BTreeMap::new(), path);
        for (path, name) in named.imports {
            if let Some(path) = full(&path) {
                file.names.insert(name, path.clone());
                file.paths.push(path);
            }
        }
        // An export is no need of the file that exports.
        for (path, name) in named.exports {
            if let Some(path) = full(&path) {
                file.names.insert(name, path);
            }
        }
        let of_code = named
            .paths
            .iter()
            .filter_map(|path| absolute(sources, module, &file.names, path));
        let of_code: Vec<ModulePath> = of_code.collect();
        file.paths.extend(of_code);
        files.insert(module.clone(), file);
    }
    files
}

/// The file that has the item of a path.
fn owner(files: &SourceFiles, path: &[String]) -> Option<ModulePath> {
    let mut path = path.to_vec();
    // An export may lead to an export.
    for _ in 0..8 {
        let depth = (0..=path.len())
            .rev()
            .find(|depth| files.contains_key(&path[..*depth]))?;
        let (module, rest) = path.split_at(depth);
        let next = rest.first().and_then(|name| files[module].names.get(name));
        match next {
            Some(next) if next != &path => path = [next.as_slice(), &rest[1..]].concat(),
            _ => return Some(module.to_vec()),
        }
    }
    None
}

/// The files of the largest circle.
fn largest_circle(files: &SourceFiles) -> BTreeSet<&ModulePath> {
    let needs: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = files
        .iter()
        .map(|(module, file)| {
            let paths = file.paths.iter().filter_map(|path| owner(files, path));
            let known = paths.filter_map(|path| files.get_key_value(&path));
            let others = known.map(|(known, _)| known);
            (module, others.filter(|other| *other != module).collect())
        })
        .collect();
    let reached: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = needs
        .keys()
        .map(|module| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![*module]);
            while let Some(module) = open.pop() {
                let next = needs[module].iter().filter(|next| seen.insert(**next));
                open.extend(next);
            }
            (*module, seen)
        })
        .collect();
    let circles = reached.iter().map(|(module, seen)| {
        let others = seen
            .iter()
            .filter(|other| reached[**other].contains(module));
        others.copied().collect::<BTreeSet<_>>()
    });
    circles.max_by_key(BTreeSet::len).unwrap_or_default()
}

#[test]
fn circles_of_files_are_small() {
    let (mut problems, mut count) = (Vec::new(), 0);
    for folder in super::members() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let mut sources = BTreeMap::new();
        read(&folder.join("src"), &[], &mut sources);
        count += sources.len();
        let files = parse(&sources);
        let circle = largest_circle(&files);
        if circle.len() > FILES_MAX {
            let files: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
            let (found, files) = (circle.len(), files.join(", "));
            problems.push(format!("{name}: a circle of {found} files: {files}"));
        }
    }
    assert!(count > 500, "only {count} files were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
