//! The parts of the core are reached from few files, functions take few values, and modules have one
//! style.

use super::circles::tokens;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::{
    Attribute, Fields, FnArg, ImplItem, Item, Meta, ReturnType, Signature, TraitItem, Type,
    Visibility,
};

/// The most values that a function takes beside `self`. A tuple counts as its members.
const VALUES_MAX: usize = 6;
/// The most files outside of the core that change one of its parts, and the most that read it.
const FILES_MAX: usize = 4;
/// The door to the cluster, and the most files that read it. Plugins read all of it, too, and it cannot be changed through this
/// door, so it is no wall. The number only falls.
const CLUSTER: (&str, usize) = ("cluster", 14);

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => {
            let tokens = list.tokens.to_string();
            list.path.is_ident("cfg") && (tokens == "test" || tokens.contains("test-"))
        }
        _ => false,
    })
}

/// The number of values in a parameter of this type.
fn values_in(of: &Type) -> usize {
    match of {
        Type::Tuple(tuple) => tuple.elems.iter().map(values_in).sum(),
        Type::Paren(inner) => values_in(&inner.elem),
        Type::Reference(reference) => values_in(&reference.elem),
        _ => 1,
    }
}

/// The number of values that a function takes beside `self`.
fn values_of(signature: &Signature) -> usize {
    let values = signature.inputs.iter().map(|input| match input {
        FnArg::Receiver(_) => 0,
        FnArg::Typed(typed) => values_in(&typed.ty),
    });
    values.sum()
}

/// The functions of a file, each with the number of values that it takes.
fn functions<'f>(items: &'f [Item], found: &mut Vec<&'f Signature>) {
    for item in items {
        match item {
            Item::Fn(item) if !is_for_tests(&item.attrs) => found.push(&item.sig),
            Item::Impl(item) if !is_for_tests(&item.attrs) => {
                found.extend(item.items.iter().filter_map(|item| match item {
                    ImplItem::Fn(method) if !is_for_tests(&method.attrs) => Some(&method.sig),
                    _ => None,
                }));
            }
            Item::Trait(item) => {
                found.extend(item.items.iter().filter_map(|item| match item {
                    TraitItem::Fn(method) => Some(&method.sig),
                    _ => None,
                }));
            }
            Item::Mod(item) if !is_for_tests(&item.attrs) => {
                if let Some((_, items)) = &item.content {
                    functions(items, found);
                }
            }
            _ => {}
        }
    }
}

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

/// A module with submodules is a file beside the folder of these.
#[test]
fn modules_are_files_beside_their_folders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = 0;
    let mut open: Vec<PathBuf> = ["crates", "conformance", "examples", "xtask"]
        .map(|part| root.join(part))
        .into();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("sources can be listed");
            open.extend(entries.map(|entry| entry.expect("an entry").path()));
            continue;
        }
        files += 1;
        // Cargo builds each file in a package's `tests` as a test of its own, so modules shared by them are folders.
        let name = path.strip_prefix(&root).expect("it is below the root");
        let is_shared_by_tests = name.iter().all(|part| part != "src");
        let is_mod = path.file_name().is_some_and(|name| name == "mod.rs");
        assert!(!is_mod || is_shared_by_tests, "{}", name.display());
    }
    assert!(files > 500, "only {files} files were found");
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
    let scheduler = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheduler/src");
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

#[test]
fn functions_take_few_values() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut problems, mut count) = (Vec::new(), 0);
    for entry in std::fs::read_dir(&crates).expect("crates can be listed") {
        let folder = entry.expect("an entry").path();
        let mut files = Vec::new();
        sources(&folder.join("src"), &mut files);
        for path in files {
            let parsed = parse(&path);
            let mut found = Vec::new();
            functions(&parsed.items, &mut found);
            count += found.len();
            for signature in found {
                let values = values_of(signature);
                let file = path.strip_prefix(&crates).expect("it is a source");
                let name = format!("{}: {}", file.display(), signature.ident);
                if values > VALUES_MAX {
                    problems.push(format!("{name} takes {values} values"));
                }
            }
        }
    }
    assert!(count > 3_000, "only {count} functions were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn parse(path: &Path) -> syn::File {
    let source = std::fs::read_to_string(path).expect("sources can be read");
    syn::parse_file(&source).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
