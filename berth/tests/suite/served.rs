//! Statements of the pages about served resources, compared with the discovery of `berth apiserver` with each emulated
//! version.

use crate::e2e::{Api, Cluster};
use berth_client::request;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The emulated versions, oldest first.
const RELEASES: [&str; 3] = ["1.36", "1.37", "1.38"];
/// A group with this end belongs to configuration files, which no API server serves.
const FILES: &str = ".config.k8s.io";

/// A resource as pages name it: group version, and plural or kind.
type Name = (String, String);

/// The resources of an API server.
#[derive(Default)]
struct Served {
    plurals: BTreeSet<Name>,
    kinds: BTreeSet<Name>,
}

/// The discovery of each emulated version.
static DISCOVERY: LazyLock<Vec<Served>> =
    LazyLock::new(|| RELEASES.into_iter().map(discover).collect());

fn discover(release: &str) -> Served {
    let args = ["--controllers", "off", "--emulated-version", release];
    let cluster = Cluster::apiserver("served", &args);
    let api = Api::of(&cluster);
    let get = |path: &str| api.send(&request::get_path(path));
    let mut versions = vec!["v1".to_owned()];
    for group in get("/apis")["groups"].as_array().into_iter().flatten() {
        let all = group["versions"].as_array().into_iter().flatten();
        versions.extend(all.filter_map(|v| Some(v["groupVersion"].as_str()?.to_owned())));
    }
    let mut served = Served::default();
    for version in versions {
        let path = if version == "v1" {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{version}")
        };
        for resource in get(&path)["resources"].as_array().into_iter().flatten() {
            let text = |field: &str| resource[field].as_str().unwrap_or_default().to_owned();
            // A subresource is served with its resource.
            if !text("name").contains('/') {
                served.plurals.insert((version.clone(), text("name")));
                served.kinds.insert((version.clone(), text("kind")));
            }
        }
    }
    served
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("a page")
}

/// The pages of `docs/`, with their paths.
fn pages(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            let text = std::fs::read_to_string(&path).expect("a page");
            found.push((path, text));
        }
    }
}

/// The texts in backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns whether a text is a group version, such as `apps/v1`.
fn is_group_version(text: &str) -> bool {
    let version = |version: &str| {
        let rest = version.strip_prefix('v');
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let group = |group: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.';
        !group.is_empty() && group.chars().all(allowed)
    };
    text.split_once('/')
        .is_some_and(|(g, v)| group(g) && version(v))
}

/// The kinds that a text ends with: words in capitals that are joined by `and` and commas.
fn kinds_at_the_end(text: &str) -> Vec<String> {
    let mut kinds = Vec::new();
    for word in text.split_whitespace().rev() {
        let word = word.trim_end_matches(',');
        if word == "and" {
            continue;
        }
        if !word.starts_with(|c: char| c.is_ascii_uppercase()) || word.len() < 4 {
            break;
        }
        kinds.push(word.to_owned());
    }
    kinds
}

/// The kind whose name or plural this is.
fn is_kind(kind: &str, word: &str) -> bool {
    let plurals = [
        format!("{kind}s"),
        format!("{kind}es"),
        format!("{}ies", kind.trim_end_matches('y')),
    ];
    word == kind || plurals.iter().any(|plural| plural == word)
}

/// Kinds that a page names with their group version are served in it, with each emulated version.
#[test]
fn kinds_are_served_in_the_versions_that_pages_name() {
    let mut found = Vec::new();
    pages(&root().join("docs"), &mut found);
    let (mut wrong, mut named) = (Vec::new(), 0);
    for (path, text) in &found {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (at, _) in words.match_indices("(`") {
            let version = words[at + 2..].split('`').next().unwrap_or_default();
            if !is_group_version(version) || !words[at + 2 + version.len()..].starts_with("`)") {
                continue;
            }
            for word in kinds_at_the_end(&words[..at]) {
                named += 1;
                for (release, served) in RELEASES.iter().zip(DISCOVERY.iter()) {
                    let mut kinds = served.kinds.iter();
                    if !kinds.any(|(v, kind)| v == version && is_kind(kind, &word)) {
                        let path = path.display();
                        wrong.push(format!("{path}: {release} serves no {word} in {version}"));
                    }
                }
            }
        }
    }
    assert!(named > 8, "{named} kinds with a group version were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every group version in the pages is served with at least one version.
#[test]
fn group_versions_of_the_pages_exist() {
    let mut found = Vec::new();
    pages(&root().join("docs"), &mut found);
    let of = |served: &Served| served.kinds.iter().map(|(v, _)| v.clone()).collect();
    let all: Vec<BTreeSet<String>> = DISCOVERY.iter().map(of).collect();
    let mut wrong = Vec::new();
    for (path, text) in &found {
        for version in text.lines().flat_map(quoted) {
            let group = version.split('/').next().unwrap_or_default();
            let built_in = group.ends_with(".k8s.io") && !group.ends_with(FILES);
            if is_group_version(version)
                && built_in
                && !all.iter().any(|served| served.contains(version))
            {
                wrong.push(format!("{}: no version serves {version}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The resources that only some versions serve, and the releases that serve them.
fn changing() -> BTreeMap<Name, Vec<&'static str>> {
    let all: BTreeSet<&Name> = DISCOVERY.iter().flat_map(|s| &s.plurals).collect();
    let releases = |name: &Name| {
        let with = RELEASES.iter().zip(DISCOVERY.iter());
        let with = with.filter(|(_, served)| served.plurals.contains(name));
        with.map(|(release, _)| *release).collect::<Vec<_>>()
    };
    let mut found: BTreeMap<_, _> = all.into_iter().map(|n| (n.clone(), releases(n))).collect();
    found.retain(|_, releases| releases.len() < RELEASES.len());
    found
}

/// API-79: the rule lists the resources that only some versions serve.
#[test]
fn the_rule_lists_the_resources_of_some_versions() {
    let page = page("docs/contribute/rules/api.md");
    let rule = page.split("- **API-79**").nth(1).expect("the rule");
    let rule = rule.split("\n- **").next().unwrap_or_default();
    let mut listed = BTreeMap::new();
    for line in rule
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "))
    {
        let (names, when) = line.split_once(" served ").expect("`…` are served …");
        let mut names = quoted(names);
        let version = names.pop().expect("a group version");
        let (word, release) = when.split_once(" Kubernetes ").expect("since or until");
        let release = release.trim_end_matches('.');
        let at = RELEASES.iter().position(|r| *r == release);
        let at = at.expect("a version");
        let releases = match word {
            "since" => &RELEASES[at..],
            "until" => &RELEASES[..=at],
            other => panic!("{other:?} is neither since nor until"),
        };
        for name in names {
            listed.insert((version.to_owned(), name.to_owned()), releases.to_vec());
        }
    }
    assert_eq!(listed, changing());
}

/// The generated page lists the resources that each version adds and removes.
#[test]
fn the_page_of_versions_lists_added_and_removed_resources() {
    let page = page("docs/use/reference/versions.md");
    for pair in 0..RELEASES.len() - 1 {
        let release = RELEASES[pair + 1];
        let section = page
            .split(&format!("## What Kubernetes {release} changes\n"))
            .nth(1);
        let section = section.expect("the section").split("\n## ").next();
        let mut listed = BTreeSet::new();
        for line in section.unwrap_or_default().lines() {
            for change in ["added", "removed"] {
                let Some(rest) = line.strip_prefix(&format!("- {change}: ")) else {
                    continue;
                };
                if let [name, version] = quoted(rest)[..]
                    && is_group_version(version)
                {
                    listed.insert((change, (version.to_owned(), name.to_owned())));
                }
            }
        }
        let (before, after) = (&DISCOVERY[pair].plurals, &DISCOVERY[pair + 1].plurals);
        let added = after.difference(before).map(|name| ("added", name.clone()));
        let removed = before
            .difference(after)
            .map(|name| ("removed", name.clone()));
        assert_eq!(listed, added.chain(removed).collect(), "{release}");
    }
}

/// The table of the served versions of groups of pods.
#[test]
fn groups_of_pods_are_served_as_the_page_states() {
    let page = page("docs/use/control-plane.md");
    let section = page
        .split("## Groups of pods\n")
        .nth(1)
        .expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `v1"));
    let mut listed = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, version, kinds, when, _] = cells[..] else {
            panic!("a row has three cells: {row}");
        };
        let only = quoted(when);
        for release in RELEASES {
            let shown = match only[..] {
                [] => when == "always",
                [flag] => flag == format!("--emulated-version {release}"),
                _ => panic!("{when}"),
            };
            let version = format!("scheduling.k8s.io/{}", version.trim_matches('`'));
            let kinds = kinds.split(", ").filter(|_| shown);
            listed.extend(kinds.map(|kind| (release, version.clone(), kind.to_owned())));
        }
    }
    let mut served = BTreeSet::new();
    for (release, discovery) in RELEASES.into_iter().zip(DISCOVERY.iter()) {
        let groups = discovery.kinds.iter().filter(|(version, kind)| {
            version.starts_with("scheduling.k8s.io/") && kind != "PriorityClass"
        });
        served.extend(groups.map(|(version, kind)| (release, version.clone(), kind.clone())));
    }
    assert_eq!(listed, served);
}
