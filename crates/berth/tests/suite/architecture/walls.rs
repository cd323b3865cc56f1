//! No type outside tests is so large that any file may touch any of its fields; and modules have one style.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, ItemStruct, Meta, Type, Visibility};

/// The most fields of a struct that guards some of them. A struct whose fields are all public, or public in
/// its crate, is a record.
const FIELDS_MAX: usize = 13;
/// The most methods of a type, over all its inherent implementations.
const METHODS_MAX: usize = 42;

/// The counted sizes of a type.
#[derive(Debug, Default, Clone, Copy)]
struct Size {
    fields: usize,
    methods: usize,
}

/// The types of a crate.
type Sizes = BTreeMap<String, Size>;

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => {
            let tokens = list.tokens.to_string();
            list.path.is_ident("cfg") && (tokens == "test" || tokens.contains("test-"))
        }
        _ => false,
    })
}

fn take_struct(item: &ItemStruct, sizes: &mut Sizes) {
    let Fields::Named(fields) = &item.fields else {
        return;
    };
    let is_record = |field: &syn::Field| match &field.vis {
        Visibility::Public(_) => true,
        Visibility::Restricted(within) => within.path.is_ident("crate"),
        Visibility::Inherited => false,
    };
    if !fields.named.iter().all(is_record) {
        let size = sizes.entry(item.ident.to_string()).or_default();
        size.fields = size.fields.max(fields.named.len());
    }
}

fn take_impl(item: &ItemImpl, sizes: &mut Sizes) {
    if item.trait_.is_some() {
        return;
    }
    let Type::Path(path) = &*item.self_ty else {
        return;
    };
    let Some(name) = path.path.segments.last() else {
        return;
    };
    let methods = item.items.iter().filter(|item| match item {
        ImplItem::Fn(method) => !is_for_tests(&method.attrs),
        _ => false,
    });
    sizes.entry(name.ident.to_string()).or_default().methods += methods.count();
}

fn take(items: &[Item], sizes: &mut Sizes) {
    for item in items {
        match item {
            Item::Struct(item) if !is_for_tests(&item.attrs) => take_struct(item, sizes),
            Item::Impl(item) if !is_for_tests(&item.attrs) => take_impl(item, sizes),
            Item::Mod(item) if !is_for_tests(&item.attrs) => {
                if let Some((_, items)) = &item.content {
                    take(items, sizes);
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
        } else {
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

#[test]
fn no_type_has_too_many_fields_or_methods() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut problems = Vec::new();
    let mut types = 0;
    for entry in std::fs::read_dir(crates).expect("crates can be listed") {
        let folder = entry.expect("an entry").path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let (mut files, mut sizes) = (Vec::new(), Sizes::new());
        sources(&folder.join("src"), &mut files);
        for path in files
            .iter()
            .filter(|p| p.extension().is_some_and(|e| e == "rs"))
        {
            let source = std::fs::read_to_string(path).expect("sources can be read");
            let parsed = syn::parse_file(&source);
            let parsed = parsed.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            take(&parsed.items, &mut sizes);
        }
        types += sizes.len();
        for (kind, size) in sizes {
            let Size { fields, methods } = size;
            if fields > FIELDS_MAX || methods > METHODS_MAX {
                problems.push(format!(
                    "{name}: {kind} has {fields} fields, {methods} methods"
                ));
            }
        }
    }
    assert!(types > 300, "only {types} types were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
