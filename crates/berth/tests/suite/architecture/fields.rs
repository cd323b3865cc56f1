//! Code reaches the fields of objects by their names, and an object has no field by a misspelt one. So each name must be
//! a field of a type in the facts, or a member of another document.
//!
//! The names are those in calls that read or write a field (`value.text("nodeName")`, `value["spec"]`,
//! `pointer("/spec/nodeName")`), in paths of errors (`path.child("spec")`), in the objects of `json!` and in the tables
//! of columns and rules. Texts with the signs of labels and the like are keys of maps.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The sources whose objects are JSON values.
const SOURCES: [&str; 9] = [
    "objects/src",
    "apiserver/src",
    "controllers/src",
    "client/src",
    "scheduler/src/dispatcher",
    "berth/src/explain",
    "berth/src/manifest.rs",
    "berth/src/nodes.rs",
    "berth/src/what_if",
];

/// The methods whose first argument is a name or a path of names.
const METHODS: [&str; 22] = [
    "at",
    "child",
    "contains_key",
    "entries",
    "entry",
    "field",
    "flag",
    "get",
    "get_mut",
    "insert",
    "int",
    "items",
    "labels",
    "map",
    "maybe_flag",
    "maybe_int",
    "maybe_text",
    "part",
    "pointer",
    "pointer_mut",
    "strings",
    "text",
];

/// The functions whose second argument is a name or a path of names.
const FUNCTIONS: [&str; 12] = [
    "at_path",
    "child",
    "child_mut",
    "copy_field",
    "existing",
    "items_mut",
    "meta",
    "remove",
    "set",
    "set_count",
    "set_if_absent",
    "set_if_zero",
];

/// The names that are no fields of Kubernetes' types: the file that reaches them, the document whose members they are,
/// and the names.
const OTHERS: [(&str, &str, &str); 24] = [
    (
        "apiserver/src/admission/attributes.rs",
        "options",
        "fieldManager fieldValidation force",
    ),
    (
        "apiserver/src/admission/policies/decision.rs",
        "AdmissionReview",
        "oldObject",
    ),
    (
        "apiserver/src/admission/webhooks/hook.rs",
        "AdmissionReview",
        "oldObject patch requestKind requestResource response warnings",
    ),
    (
        "apiserver/src/auth/keys.rs",
        "JSON Web Key",
        "alg crv e kid kty n use x y",
    ),
    (
        "apiserver/src/auth/tokens.rs",
        "JSON Web Token",
        "alg aud exp iat iss jti keys kid nbf serviceaccount typ",
    ),
    (
        "apiserver/src/discovery.rs",
        "discovery",
        "clientCIDR freshness groupVersion namespaced preferredVersion responseKind serverAddress \
            serverAddressByClientCIDRs singularName singularResource",
    ),
    ("apiserver/src/registry/kubernetes.rs", "labels", "provider"),
    ("apiserver/src/registry/list.rs", "continue token", "rv v"),
    (
        "apiserver/src/server/aggregation/discovery.rs",
        "discovery",
        "freshness groupVersion namespaced preferredVersion responseKind singularName singularResource",
    ),
    ("apiserver/src/server/handle.rs", "query", "watch"),
    (
        "apiserver/src/server/nonresource.rs",
        "version, OpenID configuration, paths",
        "api apis buildDate compiler gitCommit gitTreeState gitVersion goVersion issuer major minor \
            platform",
    ),
    (
        "apiserver/src/server/resources.rs",
        "query",
        "allowWatchBookmarks fieldManager fieldValidation force includeObject resourceVersionMatch sendInitialEvents \
            watch",
    ),
    (
        "client/src/credentials.rs",
        "ExecCredential",
        "cluster interactive",
    ),
    (
        "controllers/src/kubelet/devices.rs",
        "attributes and capacities of devices",
        "driverVersion index memory model numaNode uuid",
    ),
    ("controllers/src/kubelet/node.rs", "resources", "cpu memory"),
    (
        "controllers/src/revisions.rs",
        "strategic merge patch",
        "$patch",
    ),
    (
        "controllers/src/service_accounts.rs",
        "keys of ConfigMaps",
        "ca crt",
    ),
    (
        "objects/src/custom/conversion.rs",
        "ConversionReview",
        "annotation convertedObjects desiredAPIVersion objects response result",
    ),
    (
        "objects/src/custom/schema.rs",
        "fields of Kubernetes' internal version, which errors name",
        "JSONPath validation webhookClientConfig",
    ),
    ("objects/src/openapi", "OpenAPI", OPENAPI),
    (
        "objects/src/table.rs",
        "Table",
        "cells columnDefinitions rows",
    ),
    (
        "objects/src/validation/pod/status.rs",
        "errors of Kubernetes",
        "Type",
    ),
    (
        "objects/src/validation/service_spec.rs",
        "errors of Kubernetes",
        "LoadBalancerSourceRanges",
    ),
    (
        "objects/src/validation/storage.rs",
        "errors of Kubernetes",
        "persistentvolumesource",
    ),
];

/// The members of OpenAPI documents.
const OPENAPI: &str = "BearerToken components consumes content in info openapi operationId produces requestBody responses \
    schemas security securityDefinitions securitySchemes serverRelativeURL swagger tags";

/// The tokens of a source or of a group of it.
struct Tokens(Vec<TokenTree>);

impl Tokens {
    fn of(stream: TokenStream) -> Self {
        Self(stream.into_iter().collect())
    }

    /// The identifier, or the sign, at a place.
    fn word(&self, at: Option<usize>) -> String {
        match at.and_then(|at| self.0.get(at)) {
            Some(TokenTree::Ident(name)) => name.to_string(),
            Some(TokenTree::Punct(sign)) => sign.as_char().to_string(),
            _ => String::new(),
        }
    }

    /// Calls `found` with each text that names a field.
    fn visit(&self, is_json: bool, found: &mut dyn FnMut(String)) {
        for (i, token) in self.0.iter().enumerate() {
            match token {
                TokenTree::Group(group) => {
                    let before = |n: usize| self.word(i.checked_sub(n));
                    if let Some(argument) = self.argument(i, group) {
                        texts(group, argument).into_iter().for_each(&mut *found);
                    }
                    let is_json = is_json || (before(1) == "!" && before(2) == "json");
                    Self::of(group.stream()).visit(is_json, found);
                }
                TokenTree::Literal(_) if is_json && self.word(Some(i + 1)) == ":" => {
                    text(token).into_iter().for_each(&mut *found);
                }
                _ => {}
            }
        }
    }

    /// The argument of the call or index that names a field.
    fn argument(&self, at: usize, group: &Group) -> Option<usize> {
        let before = |n: usize| self.word(at.checked_sub(n));
        let (name, sign) = (before(1), before(2));
        let is_error_path = name == "new" && before(4) == "ErrorPath";
        match group.delimiter() {
            Delimiter::Parenthesis if sign == "." || is_error_path => {
                // `field` with two arguments is that of `Debug`.
                let is_debug = name == "field" && argument(group, 1).is_some();
                let is_method = METHODS.contains(&&*name) && !is_debug;
                (is_error_path || is_method).then_some(0)
            }
            Delimiter::Parenthesis => FUNCTIONS.contains(&&*name).then_some(1),
            // `x["a"]`, and not a list.
            Delimiter::Bracket => {
                let is_value = match self.0.get(at.checked_sub(1)?)? {
                    TokenTree::Ident(_) => !["in", "return", "match", "else"].contains(&&*name),
                    TokenTree::Group(_) => true,
                    TokenTree::Punct(sign) => sign.as_char() == '?',
                    TokenTree::Literal(_) => false,
                };
                (is_value && argument(group, 1).is_none()).then_some(0)
            }
            _ => None,
        }
    }
}

/// The text of a literal.
fn text(token: &TokenTree) -> Option<String> {
    let literal = token.to_string();
    let text = literal.strip_prefix('"')?.strip_suffix('"')?;
    Some(text.to_owned())
}

/// The tokens of an argument of a call.
fn argument(call: &Group, at: usize) -> Option<Vec<TokenTree>> {
    let tokens = Tokens::of(call.stream()).0;
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ',');
    let argument = tokens.split(is_comma).nth(at)?.to_vec();
    (!argument.is_empty()).then_some(argument)
}

/// The texts in an argument that is a literal, or a list of literals.
fn texts(call: &Group, at: usize) -> Vec<String> {
    let argument = argument(call, at).unwrap_or_default();
    let is_reference = |token: &&TokenTree| token.to_string() == "&";
    match argument.iter().find(|token| !is_reference(token)) {
        Some(TokenTree::Group(list)) if list.delimiter() == Delimiter::Bracket => {
            list.stream().into_iter().filter_map(|t| text(&t)).collect()
        }
        Some(token) => text(token).into_iter().collect(),
        None => Vec::new(),
    }
}

/// The names in a text: those of a path, or the text itself. Other texts are keys of maps.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "$/.[]".contains(c);
    let is_pointer = text.starts_with('/') || !text.contains('/');
    let path = if is_pointer && text.chars().all(is_path) {
        text
    } else {
        ""
    };
    let names = path.split(['/', '.', '[', ']']);
    names.filter(|name| !name.is_empty() && !name.bytes().all(|c| c.is_ascii_digit()))
}

/// The names that the code of a source reaches.
fn reached(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next();
    let stream: TokenStream = code.unwrap_or_default().parse().expect("tokens of Rust");
    let mut found = Vec::new();
    Tokens::of(stream).visit(false, &mut |text| {
        found.extend(names(&text).map(str::to_owned))
    });
    found
}

/// The names of all fields of Kubernetes' types.
fn fields(facts: &Path) -> BTreeSet<String> {
    let mut fields = BTreeSet::from(["apiVersion", "kind"].map(str::to_owned));
    for table in ["kubernetes.txt", "later.txt", "groups.txt"] {
        let table = fs::read_to_string(facts.join(table)).expect("facts can be read");
        for line in table.lines().filter(|line| line.starts_with("  ")) {
            let name = line.split_ascii_whitespace().next().unwrap_or_default();
            fields.insert(name.trim_end_matches('?').to_owned());
        }
    }
    fields
}

/// The sources at a path. Tests and test builders are left out.
fn sources(path: PathBuf, found: &mut Vec<PathBuf>) {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    if name == "tests" || name == "testing" || name.ends_with("_tests") {
        return;
    }
    if path.extension().is_some_and(|ending| ending == "rs") {
        found.push(path);
    } else if path.is_dir() {
        for entry in fs::read_dir(path).expect("sources can be listed") {
            sources(entry.expect("an entry").path(), found);
        }
    }
}

/// The names in the expressions of a line of rules: `self.spec.?nodeName.orValue('')`.
fn reached_by_rule(line: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric();
    let expressions = ["must=\"", "must!=\"", "each=\"", "if=\""];
    let expressions = expressions.iter().flat_map(|word| line.split(word).skip(1));
    let expressions = expressions.filter_map(|rest| rest.split('"').next());
    // Texts are between quotes.
    let code = expressions.flat_map(|expression| expression.split('\'').step_by(2));
    let members = code.flat_map(|code| code.split('.').skip(1));
    let members = members.filter_map(|member| {
        let member = member.trim_start_matches('?');
        let end = member.find(|c| !is_part(c)).unwrap_or(member.len());
        let (name, rest) = member.split_at(end);
        (!rest.starts_with('(')).then_some(name)
    });
    members.filter(|name| !name.is_empty()).collect()
}

/// The names in a line about a resource: the selectable fields, or the path of a column.
fn reached_by_resource(line: &str) -> Vec<&str> {
    let paths: Vec<&str> = if let Some(fields) = line.strip_prefix("select ") {
        let fields = fields.split(' ').map(|field| match field.split_once('@') {
            Some((_, pointers)) => pointers,
            None => field.split('=').next().unwrap_or_default(),
        });
        fields.flat_map(|field| field.split('|')).collect()
    } else if line.starts_with("column ") || line.starts_with("wide ") {
        let value = line
            .rsplit(' ')
            .next()
            .and_then(|value| value.split('|').next());
        value
            .filter(|value| value.starts_with('.'))
            .into_iter()
            .collect()
    } else {
        Vec::new()
    };
    paths.into_iter().flat_map(names).collect()
}

/// The names, each with the file that reaches it. Files are below `crates`.
fn all_reached(crates: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut read = |path: &Path, reached: &dyn Fn(&str) -> Vec<String>| {
        let text = fs::read_to_string(path).expect("a file can be read");
        let file = path.strip_prefix(crates).expect("it is below the crates");
        let of_file = reached(&text).into_iter();
        found.extend(of_file.map(|name| (file.display().to_string(), name)));
    };
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let mut paths = Vec::new();
    for path in SOURCES {
        sources(crates.join(path), &mut paths);
    }
    for path in paths {
        read(&path, &reached);
    }
    let facts = crates.join("objects/facts");
    for entry in fs::read_dir(facts.join("rules")).expect("rules can be listed") {
        let path = entry.expect("an entry").path();
        read(&path, &|text| {
            owned(text.lines().flat_map(reached_by_rule).collect())
        });
    }
    read(&facts.join("resources.txt"), &|text| {
        owned(text.lines().flat_map(reached_by_resource).collect())
    });
    found
}

#[test]
fn names_of_fields_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let fields = fields(&crates.join("protobuf/facts"));
    let reached = all_reached(&crates);
    let others = OTHERS.iter().flat_map(|(file, _, names)| {
        let names = names.split_whitespace();
        names.map(move |name| (*file, name))
    });
    let mut unused: BTreeSet<(&str, &str)> = others.clone().collect();
    let mut unknown = BTreeSet::new();
    for (file, name) in reached.iter().filter(|(_, name)| !fields.contains(name)) {
        let mut known = others.clone();
        match known.find(|(known, other)| file.starts_with(known) && name == other) {
            Some(other) => _ = unused.remove(&other),
            None => _ = unknown.insert((file, name)),
        }
    }
    assert!(
        reached.len() > 5_000,
        "only {} names were found",
        reached.len()
    );
    assert!(unknown.is_empty(), "no type has these fields: {unknown:#?}");
    assert!(
        unused.is_empty(),
        "the code reaches no such names: {unused:#?}"
    );
}

#[test]
fn a_misspelt_name_is_found() {
    let fields = fields(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../protobuf/facts"));
    for (source, misspelt) in [
        (r#"pod.part("spec").text("nodeNmae")"#, "nodeNmae"),
        (r#"pod["spce"]["nodeName"].as_str()"#, "spce"),
        (r#"pod.pointer("/spec/containers/0/imgae")"#, "imgae"),
        (r#"at_path(&pod, "/sepc/nodeName")"#, "sepc"),
        (r#"set(spec, "replicsa", 1)"#, "replicsa"),
        (r#"pod.at(&["spec", "nodeNaem"])"#, "nodeNaem"),
        (r#"ErrorPath::new("spec.scpoe").child("name")"#, "scpoe"),
        (r#"json!({"spec": {"taitns": [{"key": "a"}]}})"#, "taitns"),
        (r#"assert!(pod.flag("hostNetwrok"))"#, "hostNetwrok"),
        // Keys of maps and other texts.
        (r#"labels.get("example.com/app")"#, ""),
        (r#"write("spce")"#, ""),
        (r#"let list = ["spce"];"#, ""),
    ] {
        let names = reached(source).into_iter();
        let unknown: Vec<String> = names.filter(|name| !fields.contains(name)).collect();
        let expected = Some(misspelt).filter(|name| !name.is_empty());
        assert_eq!(unknown, Vec::from_iter(expected), "{source}");
    }
    let rule = "  replicas must=\"self < owner.?minReplicsa.orValue(1) || 'a.b' == kind\":invalid:\"no.pe\"";
    assert_eq!(reached_by_rule(rule), ["minReplicsa"]);
    let column = "column Node string .spec.nodeNaem|none";
    assert_eq!(reached_by_resource(column), ["spec", "nodeNaem"]);
}
