//! The pages: every link to a file leads to one, links of the site stay on the site or name the repository, and every
//! page of docs/ is on the site.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Markdown files below a folder.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") {
            pages(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// The targets of the links of a page that are files.
fn links(text: &str) -> Vec<&str> {
    let after = text.split("](").skip(1);
    let targets = after.filter_map(|rest| rest.split([')', '#', ' ']).next());
    let is_file = |target: &&str| !target.is_empty() && !target.contains(':');
    targets.filter(is_file).collect()
}

/// The address of a file of the repository, for links on the site to files that are not pages.
const REPOSITORY: &str = "](https://github.com/berth-dev/berth/blob/main/";

#[test]
fn links_of_the_site_stay_on_the_site_or_name_files_of_the_repository() {
    let docs = root().join("docs").canonicalize().expect("docs/");
    let mut found = Vec::new();
    pages(&docs, &mut found);
    let mut broken = Vec::new();
    for page in found {
        let text = std::fs::read_to_string(&page).expect("a page");
        let folder = page.parent().expect("a folder");
        for link in links(&text) {
            let target = folder.join(link).canonicalize();
            if !target.is_ok_and(|target| target.starts_with(&docs)) {
                broken.push(format!("{}: {link} is not on the site", page.display()));
            }
        }
        for rest in text.split(REPOSITORY).skip(1) {
            let file = rest.split([')', '#']).next().unwrap_or_default();
            if !root().join(file).exists() {
                broken.push(format!("{}: the repository has no {file}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn links_to_files_lead_to_files() {
    let mut found = Vec::new();
    pages(&root(), &mut found);
    assert!(found.len() > 30, "{} pages", found.len());
    let mut broken = Vec::new();
    for page in found {
        let text = std::fs::read_to_string(&page).expect("a page");
        let folder = page.parent().expect("a folder");
        for link in links(&text) {
            // A part of a page is included where its links lead.
            let is_part = page.components().any(|part| part.as_os_str() == "src");
            if !is_part && !folder.join(link).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_page_of_the_documentation_is_on_the_site() {
    let docs = root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).expect("a summary");
    let listed: BTreeSet<PathBuf> = links(&summary).iter().map(|link| docs.join(link)).collect();
    let mut found = Vec::new();
    pages(&docs, &mut found);
    found.retain(|page| !page.ends_with("SUMMARY.md"));
    let found: BTreeSet<PathBuf> = found.into_iter().collect();
    assert_eq!(listed, found);
}

/// mdbook builds the site, where it is installed.
#[test]
fn mdbook_builds_the_site() {
    if Command::new("mdbook").arg("--version").output().is_err() {
        eprintln!("skipped: mdbook is not on the PATH");
        return;
    }
    let scratch = crate::e2e::Scratch::new("book");
    let output = Command::new("mdbook")
        .args(["build", "--dest-dir"])
        .arg(scratch.path("site"))
        .arg(root())
        .output()
        .expect("mdbook runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(scratch.path("site/use/envtest.html").is_file());
}
