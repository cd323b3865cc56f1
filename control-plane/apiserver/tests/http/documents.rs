//! The statements of the documents about the API agree with discovery.

use super::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The phrases of sentences about missing features.
const DENIALS: [&str; 4] = [
    "not served",
    "does not serve",
    "Not available yet",
    "not available yet",
];

/// The documents: README.md and all pages of `docs`.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The sentences and table cells of a page, each in one line.
fn sentences(page: &str) -> Vec<String> {
    let paragraphs = page.split("\n\n").flat_map(|text| text.split("\n- "));
    let lines = paragraphs.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let parts = lines.flat_map(|line| {
        let sentences = line.split(". ").flat_map(|part| part.split(" | "));
        sentences.map(str::to_owned).collect::<Vec<_>>()
    });
    parts.collect()
}

/// The words of a sentence that may be names of resources: words in backticks, and capitalized words.
fn names(sentence: &str) -> BTreeSet<String> {
    let ticked = sentence.split('`').skip(1).step_by(2);
    let words = sentence.split(|c: char| !c.is_alphanumeric());
    let kinds = words.filter(|word| word.chars().filter(char::is_ascii_uppercase).count() > 1);
    ticked.chain(kinds).map(str::to_lowercase).collect()
}

/// The resources, kinds and subresources that are served, in small letters.
async fn served(cluster: &Cluster) -> BTreeSet<String> {
    let groups = cluster.get("/apis").await.json();
    let mut versions = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            let version = version["groupVersion"].as_str().unwrap_or_default();
            versions.push(format!("/apis/{version}"));
        }
    }
    let mut served = BTreeSet::new();
    for version in versions {
        let resources = cluster.get(&version).await.json();
        for resource in resources["resources"].as_array().into_iter().flatten() {
            for field in ["name", "kind", "singularName"] {
                let name = resource[field].as_str().unwrap_or_default();
                served.insert(name.to_lowercase());
                if let Some((_, subresource)) = name.split_once('/') {
                    served.insert(subresource.to_lowercase());
                }
            }
        }
    }
    served.remove("");
    served
}

/// A sentence that denies a resource or a subresource that discovery lists is out of date.
#[tokio::test]
async fn no_page_denies_what_is_served() {
    let cluster = Cluster::start().await;
    let served = served(&cluster).await;
    for name in ["pods", "resize", "pods/resize", "networkpolicy"] {
        assert!(served.contains(name), "{name} of {served:?}");
    }
    let denied = |sentence: &str| -> Vec<String> {
        let is_denial = DENIALS.iter().any(|denial| sentence.contains(denial));
        let names = names(sentence).into_iter();
        names
            .filter(|name| is_denial && served.contains(name))
            .collect()
    };
    let former = "Resources cannot change, because the `resize` subresource is not served";
    assert_eq!(denied(former), ["resize"], "the test finds such a sentence");
    assert_eq!(
        denied("NetworkPolicies and a NetworkPolicy are not served"),
        ["networkpolicies", "networkpolicy"]
    );
    let mut sentences_read = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        for sentence in sentences(&text) {
            sentences_read += 1;
            let denied = denied(&sentence);
            assert!(
                denied.is_empty(),
                "{}: {denied:?} is served: {sentence}",
                page.display()
            );
        }
    }
    assert!(sentences_read > 1_000, "{sentences_read}");
}
