//! Code accesses fields of objects by their names, and a misspelt name reads as an absent field. Each name must
//! therefore be a field of a type in the facts, or a member of another document; and if the code states the enclosing
//! field, a type must have both.
//!
//! The names are taken from calls that read or write a field (`value.part("spec").text("nodeName")`, `value["spec"]`,
//! `pointer("/spec/nodeName")`), from paths of errors (`path.child("spec")`), from the objects of `json!` and from the
//! tables of columns and rules. Texts with the characters of labels and the like are keys of maps.

mod facts;
mod reached;

use facts::Fields;
use reached::{ReachedName, reached, reached_by_resource, reached_by_rule};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The sources whose objects are JSON values.
const SOURCES: [&str; 9] = [
    "control-plane/objects/src",
    "control-plane/apiserver/src",
    "control-plane/controllers/src",
    "edge/client/src",
    "scheduler/dispatcher/src",
    "berth/src/explain",
    "control-plane/embedded/src/manifest.rs",
    "control-plane/embedded/src/nodes.rs",
    "scheduler/library/src",
];

/// The names that are not fields of Kubernetes' types: the file that accesses them, the document whose members they
/// are, and the names.
const OTHERS: [(&str, &str, &str); 26] = [
    (
        "control-plane/apiserver/src/registry/attributes.rs",
        "options",
        "fieldManager fieldValidation force",
    ),
    (
        "control-plane/apiserver/src/admission/policies/decision.rs",
        "AdmissionReview",
        "oldObject",
    ),
    (
        "control-plane/apiserver/src/admission/webhooks/hook.rs",
        "AdmissionReview",
        "oldObject patch requestKind requestResource response warnings",
    ),
    (
        "control-plane/apiserver/src/auth/keys.rs",
        "JSON Web Key",
        "alg crv e kid kty n use x y",
    ),
    (
        "control-plane/apiserver/src/auth/tokens.rs",
        "JSON Web Token",
        "alg aud exp iat iss jti keys kid nbf serviceaccount sub typ",
    ),
    (
        "control-plane/apiserver/src/discovery.rs",
        "discovery",
        "clientCIDR freshness groupVersion namespaced preferredVersion responseKind serverAddress \
            serverAddressByClientCIDRs singularName singularResource storageVersionHash",
    ),
    (
        "control-plane/apiserver/src/registry/kubernetes.rs",
        "labels",
        "provider",
    ),
    (
        "control-plane/apiserver/src/registry/list.rs",
        "continue token",
        "rv v",
    ),
    (
        "control-plane/apiserver/src/server/aggregation/discovery.rs",
        "discovery",
        "freshness groupVersion namespaced preferredVersion responseKind singularName singularResource",
    ),
    (
        "control-plane/apiserver/src/server/handle.rs",
        "query",
        "watch",
    ),
    (
        "control-plane/apiserver/src/server/negotiate.rs",
        "query",
        "pretty",
    ),
    (
        "control-plane/apiserver/src/server/nonresource.rs",
        "version, OpenID configuration, paths",
        "api apis buildDate compiler gitCommit gitTreeState gitVersion goVersion issuer major minor \
            platform",
    ),
    (
        "control-plane/apiserver/src/server/resources",
        "query",
        "allowWatchBookmarks fieldManager fieldValidation force includeObject resourceVersionMatch sendInitialEvents \
            timeout watch",
    ),
    (
        "scheduler/library/src/changes/buffers.rs",
        "CapacityBuffer",
        "percentage podTemplateRef provisioningStrategy scalableRef",
    ),
    (
        "edge/client/src/exec.rs",
        "ExecCredential",
        "cluster interactive",
    ),
    (
        "control-plane/controllers/src/kubelet/devices.rs",
        "attributes and capacities of devices",
        "driverVersion index memory model numaNode uuid",
    ),
    (
        "control-plane/controllers/src/kubelet/node.rs",
        "resources",
        "cpu memory",
    ),
    (
        "control-plane/controllers/src/revisions.rs",
        "strategic merge patch",
        "$patch",
    ),
    (
        "control-plane/controllers/src/service_accounts.rs",
        "keys of ConfigMaps",
        "ca crt",
    ),
    (
        "control-plane/objects/src/custom/conversion.rs",
        "ConversionReview",
        "annotation convertedObjects desiredAPIVersion objects response result",
    ),
    (
        "control-plane/objects/src/custom/definition.rs",
        "fields of Kubernetes' internal version, which errors name",
        "JSONPath validation webhookClientConfig",
    ),
    ("control-plane/objects/src/openapi", "OpenAPI", OPENAPI),
    (
        "control-plane/objects/src/table.rs",
        "Table",
        "cells columnDefinitions rows",
    ),
    (
        "control-plane/objects/src/validation/pod/status.rs",
        "errors of Kubernetes",
        "Type",
    ),
    (
        "control-plane/objects/src/validation/service_spec.rs",
        "errors of Kubernetes",
        "LoadBalancerSourceRanges",
    ),
    (
        "control-plane/objects/src/validation/storage.rs",
        "errors of Kubernetes",
        "persistentvolumesource",
    ),
];

/// The members of OpenAPI documents.
const OPENAPI: &str = "BearerToken components consumes content in info openapi operationId produces requestBody responses \
    schemas security securityDefinitions securitySchemes serverRelativeURL swagger tags";

/// The fields that are stated within a field that does not have them: the file, the field around them, and their names.
const ELSEWHERE: [(&str, &str, &str); 6] = [
    (
        "control-plane/objects/src/custom/conversion.rs",
        "request",
        "uid",
    ),
    (
        "control-plane/objects/src/openapi/components.rs",
        "apiVersion",
        "type",
    ),
    (
        "control-plane/objects/src/openapi/components.rs",
        "kind",
        "type",
    ),
    (
        "control-plane/objects/src/openapi/paths.rs",
        "schema",
        "type uniqueItems",
    ),
    // Errors of Kubernetes name these places.
    (
        "control-plane/objects/src/validation/limits.rs",
        "scopeSelector",
        "scopes",
    ),
    (
        "control-plane/objects/src/validation/node.rs",
        "metadata",
        "taints",
    ),
];

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

/// The names, each with the file that reaches it. Files are below the root of the project.
fn all_reached(crates: &Path) -> Vec<(String, ReachedName)> {
    let mut found = Vec::new();
    let mut read = |path: &Path, reached: &dyn Fn(&str) -> Vec<ReachedName>| {
        let text = fs::read_to_string(path).expect("a file can be read");
        let file = path.strip_prefix(crates).expect("it is below the root");
        let of_file = reached(&text).into_iter();
        found.extend(of_file.map(|name| (file.display().to_string(), name)));
    };
    let mut paths = Vec::new();
    for path in SOURCES {
        sources(crates.join(path), &mut paths);
    }
    for path in paths {
        read(&path, &reached);
    }
    let facts = crates.join("control-plane/objects/facts");
    for entry in fs::read_dir(facts.join("rules")).expect("rules can be listed") {
        let path = entry.expect("an entry").path();
        read(&path, &|text| {
            text.lines().flat_map(reached_by_rule).collect()
        });
    }
    read(&facts.join("resources.txt"), &|text| {
        text.lines().flat_map(reached_by_resource).collect()
    });
    found
}

/// The entries of a list of exceptions: file, document, and name.
fn entries(
    list: &'static [(&str, &str, &str)],
) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> + Clone {
    list.iter().flat_map(|(file, of, names)| {
        let names = names.split_whitespace();
        names.map(move |name| (*file, *of, name))
    })
}

#[test]
fn names_of_fields_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let fields = Fields::read(&crates.join("control-plane/protobuf/facts"));
    let reached = all_reached(&crates);
    let (others, elsewhere) = (entries(&OTHERS), entries(&ELSEWHERE));
    let mut unused: BTreeSet<_> = others.clone().chain(elsewhere.clone()).collect();
    let (mut unknown, mut nested) = (BTreeSet::new(), 0);
    for (file, (around, name)) in &reached {
        let around = around.as_deref().filter(|around| fields.contains(around));
        nested += usize::from(around.is_some());
        let other = others
            .clone()
            .find(|(of, _, other)| file.starts_with(of) && name == other);
        let exception = match around {
            _ if !fields.contains(name) => other,
            Some(around) if !fields.nests(around, name) => {
                elsewhere.clone().find(|(of, stated, other)| {
                    file.starts_with(of) && (*stated, *other) == (around, name)
                })
            }
            _ => continue,
        };
        match exception {
            Some(exception) => _ = unused.remove(&exception),
            None => _ = unknown.insert((file, around, name)),
        }
    }
    assert!(
        reached.len() > 5_000 && nested > 1_000,
        "only {} names were found, {nested} of them within a field",
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
    let fields = Fields::read(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../control-plane/protobuf/facts"),
    );
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
        // Fields of other types.
        (
            r#"pod.part("spec").part("containerStatuses")"#,
            "containerStatuses",
        ),
        (r#"node["status"]["taints"]"#, "taints"),
        (r#"pod.pointer("/spec/phase")"#, "phase"),
        (
            r#"json!({"spec": {"containers": [{"nodeName": "a"}]}})"#,
            "nodeName",
        ),
        // Keys of maps and other texts.
        (r#"labels.get("example.com/app")"#, ""),
        (r#"pod["metadata"]["labels"]["name"]"#, ""),
        (r#"write("spce")"#, ""),
        (r#"let list = ["spce"];"#, ""),
    ] {
        let names = reached(source).into_iter();
        let unknown = names.filter(|(around, name)| {
            let around = around.as_ref().filter(|around| fields.contains(around));
            !fields.contains(name) || around.is_some_and(|around| !fields.nests(around, name))
        });
        let unknown: Vec<String> = unknown.map(|(_, name)| name).collect();
        let expected = Some(misspelt).filter(|name| !name.is_empty());
        assert_eq!(unknown, Vec::from_iter(expected), "{source}");
    }
    let rule = "  replicas must=\"self < owner.?minReplicsa.orValue(1) || 'a.b' == kind\":invalid:\"no.pe\"";
    assert_eq!(reached_by_rule(rule), [(None, "minReplicsa".to_owned())]);
    let column = "column Node string .spec.nodeNaem|none";
    let expected = [
        (None, "spec".to_owned()),
        (Some("spec".to_owned()), "nodeNaem".to_owned()),
    ];
    assert_eq!(reached_by_resource(column), expected);
}
