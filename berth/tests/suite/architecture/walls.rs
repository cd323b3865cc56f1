//! The parts of the core are reached from few files.

use super::circles::tokens;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::{Fields, ImplItem, Item, ReturnType, Type, Visibility};

/// The most files outside of the core that change one of its parts, and the most that read it.
const FILES_MAX: usize = 4;
/// The door to the cluster, and the most files that read it. Plugins read all of it, too, and it cannot be changed through this
/// door, so it is no wall. The number only falls.
const CLUSTER: (&str, usize) = ("cluster", 14);

/// The sources of a crate without its tests and test builders.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("sources can be listed");
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if name == "tests" || name == "testing" || name.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            sources(&path, found)
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path)
        }
    }
}

/// A method of the core that hands out one of its parts.
struct Door {
    method: String,
    part: String,
    /// Whether the caller can change the part.
    changes: bool,
}

/// The private fields of the core.
fn parts(items: &[Item]) -> Vec<String> {
    let mut parts = Vec::new();
    for item in items {
        if let Item::Struct(item) = item
            && item.ident == "Core"
            && let Fields::Named(fields) = &item.fields
        {
            for field in &fields.named {
                let is_private = matches!(field.vis, Visibility::Inherited);
                assert!(is_private, "{:?} is not private", field.ident);
                parts.extend(field.ident.iter().map(ToString::to_string));
            }
        }
    }
    parts
}

/// The doors in a file, whose code is these items and tokens.
fn doors(items: &[Item], tokens: &[String], parts: &[String]) -> Vec<Door> {
    let mut doors = Vec::new();
    for item in items {
        let Item::Impl(item) = item else { continue };
        let is_of_core = matches!(&*item.self_ty, Type::Path(path) if path.path.is_ident("Core"));
        for item in item.items.iter().filter(|_| is_of_core) {
            if let ImplItem::Fn(method) = item
                && let ReturnType::Type(_, of) = &method.sig.output
                && let Some(changes) = hands_out(of)
            {
                let method = method.sig.ident.to_string();
                let body = body_of(tokens, &method);
                let part = parts.iter().find(|part| is_handed_out(body, part, changes));
                let part = part
                    .unwrap_or_else(|| panic!("{method} hands out no part"))
                    .clone();
                doors.push(Door {
                    method,
                    part,
                    changes,
                });
            }
        }
    }
    doors
}

/// Whether a type is or contains a reference, and whether something can be changed by one of them.
fn hands_out(of: &Type) -> Option<bool> {
    match of {
        Type::Reference(reference) => Some(reference.mutability.is_some()),
        Type::Tuple(tuple) => tuple.elems.iter().filter_map(hands_out).max(),
        _ => None,
    }
}

/// The tokens of a function from its name to its last brace.
fn body_of<'t>(tokens: &'t [String], function: &str) -> &'t [String] {
    let mut pairs = tokens.windows(2);
    let at = pairs.position(|pair| pair[0] == "fn" && pair[1] == function);
    let body = &tokens[at.unwrap_or_else(|| panic!("{function} is not found"))..];
    let mut depth = 0;
    let end = body.iter().position(|token| {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => return false,
        }
        depth == 0
    });
    &body[..end.unwrap_or(body.len())]
}

/// Returns whether the body of a door refers to this part, to change it or to read it.
fn is_handed_out(body: &[String], part: &str, changes: bool) -> bool {
    let field = ["self", ".", part];
    let mut at = body.windows(field.len()).enumerate();
    at.any(|(at, window)| {
        let is_borrowed = at > 0 && body[at - 1] == "mut";
        let method = body.get(at + field.len() + 1);
        let is_changed = is_borrowed || method.is_some_and(|method| method.ends_with("_mut"));
        window == field && (is_changed || !changes)
    })
}

/// Returns whether the code of a file calls a method of the core.
fn calls(tokens: &[String], method: &str) -> bool {
    let call = ["core", ".", method, "("];
    let mut windows = tokens.windows(call.len());
    windows.any(|window| window == call)
}

fn tokens_of(path: &Path) -> Vec<String> {
    tokens(&std::fs::read_to_string(path).expect("sources can be read"))
}

/// The parts of the scheduler's core are private. Few files outside of the folder `core` get a part to change it.
#[test]
fn few_files_reach_a_part_of_the_core() {
    let scheduler = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheduler/core/src");
    let root = scheduler.join("core.rs");
    let parts = parts(&parse(&root).items);
    let mut inside = vec![root];
    sources(&scheduler.join("core"), &mut inside);
    let doors = inside.iter().flat_map(|path| {
        let (items, tokens) = (parse(path).items, tokens_of(path));
        doors(&items, &tokens, &parts)
    });
    let doors: Vec<Door> = doors.collect();
    let (part_count, door_count) = (parts.len(), doors.len());
    assert!(
        part_count > 10 && door_count > 10,
        "{part_count} parts, {door_count} doors"
    );
    let mut files = Vec::new();
    sources(&scheduler, &mut files);
    let mut reached: BTreeMap<(&str, bool), BTreeSet<String>> = BTreeMap::new();
    for path in files.iter().filter(|path| !inside.contains(path)) {
        let tokens = tokens_of(path);
        let name = path.strip_prefix(&scheduler).expect("it is a source");
        for door in doors.iter().filter(|door| calls(&tokens, &door.method)) {
            let is_cluster = door.method == CLUSTER.0;
            let part = if is_cluster { CLUSTER.0 } else { &door.part };
            let files = reached.entry((part, door.changes)).or_default();
            files.insert(name.display().to_string());
        }
    }
    let problems = reached.iter().filter_map(|((part, changes), files)| {
        let limit = if *part == CLUSTER.0 {
            CLUSTER.1
        } else {
            FILES_MAX
        };
        let verb = if *changes { "change" } else { "read" };
        let count = files.len();
        (count > limit).then(|| format!("{count} files {verb} {part}: {files:?}"))
    });
    let problems: Vec<String> = problems.collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn parse(path: &Path) -> syn::File {
    let source = std::fs::read_to_string(path).expect("sources can be read");
    syn::parse_file(&source).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
