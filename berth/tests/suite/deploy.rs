//! The manifests of `deploy/`: the API accepts them, Berth accepts their configuration and flags, the RBAC rules equal
//! the needs of the code, and dashboards and alerts use metrics that Berth serves.

mod alerts;
mod chart;
use crate::BINARY;
use crate::e2e::{Cluster, Kubectl, Scratch};
use berth_api::Kind;
use berth_client::election::LEASES;
use berth_client::request::{EVENTS, PODS, Resource};
use berth_scheduler::metrics::{FAMILIES, MetricKind};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The ways of running Berth on a cluster, with the Lease and the profile of each.
const VARIANTS: [(&str, &str, &str); 2] = [
    ("second-scheduler", "berth-scheduler", "berth-scheduler"),
    ("replacement", "kube-scheduler", "default-scheduler"),
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn read(name: &str) -> String {
    let path = directory().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The documents of a file.
fn documents(name: &str) -> Vec<Value> {
    let text = read(name);
    let parts = text.split("\n---\n");
    parts
        .map(|part| serde_saphyr::from_str(part).unwrap_or_else(|e| panic!("{name}: {e}")))
        .collect()
}

/// The document of a kind in a file.
fn document(name: &str, kind: &str) -> Value {
    let mut found = documents(name).into_iter().filter(|d| d["kind"] == kind);
    found
        .next()
        .unwrap_or_else(|| panic!("{name} has no {kind}"))
}

fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

/// The permission of a rule or a request: group, resource with subresource, verb.
type Permission = (String, String, String);

fn permission(group: &str, resource: &str, verb: &str) -> Permission {
    (group.to_owned(), resource.to_owned(), verb.to_owned())
}

fn allowed(role: &Value) -> BTreeSet<Permission> {
    let mut all = BTreeSet::new();
    for rule in role["rules"].as_array().expect("rules") {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    assert!(
                        all.insert(permission(&group, &resource, &verb))
                            || !rule["resourceNames"].is_null(),
                        "{verb} {resource}.{group} is allowed twice"
                    );
                }
            }
        }
    }
    all
}

/// The kinds that plugins write, from the call types that they declare.
fn written_kinds() -> BTreeSet<String> {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheduler/plugins/src")];
    let mut kinds = BTreeSet::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("sources can be listed");
            open.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("sources can be read");
        let declared = text.split("CallType::new(").skip(1);
        kinds.extend(declared.filter_map(|rest| {
            let (arguments, _) = rest.split_once(')')?;
            let (_, kind) = arguments.split_once("Kind::")?;
            let end = kind
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(kind.len());
            Some(kind[..end].to_owned())
        }));
    }
    kinds
}

/// The permissions that the requests of the code need in the whole cluster.
fn needed() -> BTreeSet<Permission> {
    let mut all = BTreeSet::new();
    for kind in Kind::ALL {
        let (group, _, plural) = kind.resource();
        all.extend(["list", "watch"].map(|verb| permission(group, plural, verb)));
    }
    let Resource { group, plural, .. } = PODS;
    all.insert(permission(group, plural, "delete"));
    all.insert(permission(group, "pods/binding", "create"));
    all.insert(permission(group, "pods/status", "patch"));
    let Resource { group, plural, .. } = EVENTS;
    all.extend(["create", "patch"].map(|verb| permission(group, plural, verb)));
    all.insert(permission(
        "authentication.k8s.io",
        "tokenreviews",
        "create",
    ));
    all.insert(permission(
        "authorization.k8s.io",
        "subjectaccessreviews",
        "create",
    ));
    for plural in ["podgroups/status", "compositepodgroups/status"] {
        all.insert(permission("scheduling.k8s.io", plural, "patch"));
    }
    let quotas = "scheduling.berth.dev";
    for verb in ["list", "watch"] {
        all.insert(permission(quotas, "deferredquotas", verb));
    }
    all.insert(permission(quotas, "deferredquotas/status", "patch"));
    for kind in written_kinds() {
        match kind.as_str() {
            "PersistentVolume" => all.insert(permission("", "persistentvolumes", "patch")),
            "PersistentVolumeClaim" => {
                all.insert(permission("", "persistentvolumeclaims", "patch"))
            }
            "ResourceClaim" | "Pod" => true,
            other => panic!(
                "plugins write {other}: add the permission to deploy/base/rbac.yaml and to this test"
            ),
        };
    }
    all
}

/// DynamicResources reserves claims, and creates and deletes claims of extended resources. It replaces claims with the
/// configuration of drivers, and patches the others.
fn of_claims() -> BTreeSet<Permission> {
    let group = "resource.k8s.io";
    let claims = ["create", "delete", "patch", "get", "update"];
    let claims = claims.map(|verb| permission(group, "resourceclaims", verb));
    let parts = ["resourceclaims/status", "resourceclaims/binding"];
    let parts = parts.map(|part| ["patch", "update"].map(|verb| permission(group, part, verb)));
    claims
        .into_iter()
        .chain(parts.into_iter().flatten())
        .collect()
}

#[test]
fn the_role_allows_what_the_code_does_and_nothing_else() {
    let role = allowed(&document("base/rbac.yaml", "ClusterRole"));
    let (needed, claims) = (needed(), of_claims());
    let missing: Vec<_> = needed
        .union(&claims)
        .filter(|p| !role.contains(*p))
        .collect();
    assert!(
        missing.is_empty(),
        "missing in deploy/base/rbac.yaml: {missing:?}"
    );
    let unused: Vec<_> = role
        .iter()
        .filter(|p| !needed.contains(*p) && !claims.contains(*p))
        .collect();
    assert!(
        unused.is_empty(),
        "nothing uses these rules of deploy/base/rbac.yaml: {unused:?}"
    );
}

/// Shadow mode reads every kind and writes nothing: its role has only the verbs list and watch, in any document.
#[test]
fn the_role_of_shadow_mode_only_reads() {
    let mut read = BTreeSet::new();
    for kind in Kind::ALL {
        let (group, _, plural) = kind.resource();
        read.extend(["list", "watch"].map(|verb| permission(group, plural, verb)));
    }
    let quotas = ["list", "watch"];
    read.extend(quotas.map(|verb| permission("scheduling.berth.dev", "deferredquotas", verb)));
    let role = document("shadow/rbac.yaml", "ClusterRole");
    assert_eq!(allowed(&role), read);
    let kinds = ["rbac.yaml", "config.yaml", "deployment.yaml"]
        .into_iter()
        .flat_map(|name| documents(&format!("shadow/{name}")));
    let roles = kinds.filter(|document| {
        let kind = document["kind"].as_str().unwrap_or_default();
        kind == "Role" || kind == "ClusterRole" || kind == "RoleBinding"
    });
    assert_eq!(
        roles.count(),
        1,
        "there is one role, and nothing else binds one"
    );
    let binding = document("shadow/rbac.yaml", "ClusterRoleBinding");
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    let account = document("shadow/rbac.yaml", "ServiceAccount");
    let deployment = document("shadow/deployment.yaml", "Deployment");
    let template = &deployment["spec"]["template"];
    assert_eq!(
        template["spec"]["serviceAccountName"],
        account["metadata"]["name"]
    );
    let scratch = Scratch::new("deploy-shadow");
    let config = document("shadow/config.yaml", "ConfigMap");
    let config = config["data"]["config.yaml"].as_str().expect("a file");
    let file = scratch.file("config.yaml", config).display().to_string();
    let container = &template["spec"]["containers"][0];
    let arguments: Vec<String> = texts(&container["args"])
        .iter()
        .map(|argument| argument.replace("/etc/berth/config.yaml", &file))
        .collect();
    assert!(arguments.contains(&"--shadow".to_owned()));
    let text = check(&scratch, "berth-scheduler", &arguments);
    assert!(!text.contains("has no effect"), "{text}");
}

/// The packing scheduler takes the place of the second scheduler: the same Lease and the same name.
#[test]
fn the_packing_variant_is_a_second_scheduler() {
    assert_eq!(
        read("packing/leader-election.yaml"),
        read("second-scheduler/leader-election.yaml")
    );
    let config: Value = serde_saphyr::from_str(&read("packing/config.yaml")).expect("YAML");
    assert_eq!(config["leaderElection"]["resourceName"], "berth-scheduler");
    assert_eq!(config["profiles"][0]["schedulerName"], "berth-scheduler");
    let scratch = Scratch::new("deploy-packing");
    let file = directory().join("packing/config.yaml");
    let text = check(
        &scratch,
        "berth-scheduler",
        &[format!("--config={}", file.display())],
    );
    assert!(!text.contains("has no effect"), "{text}");
}

/// The Lease is restricted by name, and the configuration has the same name.
#[test]
fn each_variant_has_one_lease_and_one_profile() {
    for (variant, lease, profile) in VARIANTS {
        let role = document(&format!("{variant}/leader-election.yaml"), "Role");
        let Resource { group, plural, .. } = LEASES;
        let verbs = ["create", "get", "update"].map(|verb| permission(group, plural, verb));
        assert_eq!(allowed(&role), BTreeSet::from(verbs), "{variant}");
        assert_eq!(
            texts(&role["rules"][1]["resourceNames"]),
            [lease],
            "{variant}"
        );
        let config = document(&format!("{variant}/config.yaml"), "ConfigMap");
        let config = config["data"]["config.yaml"].as_str().expect("a file");
        let config: Value = serde_saphyr::from_str(config).expect("YAML");
        assert_eq!(config["leaderElection"]["resourceName"], lease, "{variant}");
        assert_eq!(config["profiles"][0]["schedulerName"], profile, "{variant}");
    }
}

/// Runs the binary under another name, with `--check` behind the flags of a manifest.
fn check(scratch: &Scratch, name: &str, arguments: &[String]) -> String {
    let program = scratch.path(name);
    if !program.exists() {
        std::os::unix::fs::symlink(BINARY, &program).expect("a link");
    }
    let output = Command::new(&program)
        .args(arguments)
        .arg("--check")
        .output()
        .expect("it runs");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{name} {arguments:?}: {text}");
    text
}

/// Berth starts with the flags and configurations of the manifests, without a warning except for kubeadm's own
/// deprecated flag.
#[test]
fn berth_accepts_the_flags_and_configurations_of_the_manifests() {
    let scratch = Scratch::new("deploy-flags");
    let deployment = document("base/deployment.yaml", "Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(texts(&container["command"]), ["berth-scheduler"]);
    for (variant, ..) in VARIANTS {
        let config = document(&format!("{variant}/config.yaml"), "ConfigMap");
        let config = config["data"]["config.yaml"].as_str().expect("a file");
        let file = scratch.file(&format!("{variant}.yaml"), config);
        let file = file.display().to_string();
        let arguments: Vec<String> = texts(&container["args"])
            .iter()
            .map(|argument| argument.replace("/etc/berth/config.yaml", &file))
            .collect();
        let text = check(&scratch, "berth-scheduler", &arguments);
        assert!(!text.contains("has no effect"), "{variant}: {text}");
    }
    let pod = document("kubeadm/kube-scheduler.yaml", "Pod");
    let command = texts(&pod["spec"]["containers"][0]["command"]);
    assert_eq!(command[0], "kube-scheduler");
    let text = check(&scratch, "kube-scheduler", &command[1..]);
    assert!(text.contains("flag --kubeconfig is deprecated"), "{text}");
}

/// The selectors of Service, PodDisruptionBudget and NetworkPolicy match the labels of the pods, and the ports are
/// equal.
#[test]
fn the_manifests_agree_with_each_other() {
    let deployment = document("base/deployment.yaml", "Deployment");
    let template = &deployment["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    let service = document("base/service.yaml", "Service");
    assert_eq!(&service["spec"]["selector"], labels);
    let budget = document("base/poddisruptionbudget.yaml", "PodDisruptionBudget");
    assert_eq!(&budget["spec"]["selector"]["matchLabels"], labels);
    let policy = document("base/networkpolicy.yaml", "NetworkPolicy");
    assert_eq!(&policy["spec"]["podSelector"]["matchLabels"], labels);
    let container = &template["spec"]["containers"][0];
    let port = &container["ports"][0]["containerPort"];
    assert_eq!(&policy["spec"]["ingress"][0]["ports"][0]["port"], port);
    assert_eq!(&service["spec"]["ports"][0]["port"], port);
    assert!(texts(&container["args"]).contains(&format!("--secure-port={port}")));
    let account = document("base/serviceaccount.yaml", "ServiceAccount");
    let name = &account["metadata"]["name"];
    assert_eq!(&template["spec"]["serviceAccountName"], name);
    for (file, kind) in [
        ("base/rbac.yaml", "ClusterRoleBinding"),
        ("base/rbac.yaml", "RoleBinding"),
        ("second-scheduler/leader-election.yaml", "RoleBinding"),
        ("replacement/leader-election.yaml", "RoleBinding"),
    ] {
        assert_eq!(
            &document(file, kind)["subjects"][0]["name"],
            name,
            "{file} {kind}"
        );
    }
}

/// The API server accepts the output of kustomize for the variants, and each object once.
#[test]
fn the_api_accepts_the_manifests() {
    let cluster = Cluster::apiserver("deploy", &[]);
    let Some(kubectl) = Kubectl::find(&cluster) else {
        return;
    };
    for (variant, objects) in [
        ("second-scheduler", 11),
        ("replacement", 11),
        ("packing", 13),
    ] {
        let directory = directory().join(variant).display().to_string();
        let applied = kubectl.ok(&["apply", "-k", &directory]);
        let count = applied.lines().count();
        assert_eq!(count, objects, "{variant}: {applied}");
    }
    let directory_of_shadow = directory().join("shadow").display().to_string();
    let applied = kubectl.ok(&["apply", "-k", &directory_of_shadow]);
    assert_eq!(applied.lines().count(), 5, "{applied}");
    let pod = directory().join("kubeadm/kube-scheduler.yaml");
    kubectl.apply(&pod);
}

/// The names of metrics in an expression of PromQL.
fn metrics_in(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let prefixes = [
        "scheduler_",
        "berth_",
        "rest_client_",
        "leader_election_",
        "process_",
        "kubernetes_",
    ];
    words
        .filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
        .collect()
}

/// Every series of `/metrics`, as Prometheus names it.
fn served() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for family in FAMILIES {
        match family.kind {
            MetricKind::Histogram(_) => {
                all.extend(
                    ["_bucket", "_sum", "_count"].map(|end| format!("{}{end}", family.name)),
                );
            }
            _ => {
                all.insert(family.name.to_owned());
            }
        }
    }
    // The metrics outside of the core are in the reference page.
    let page = include_str!("../../../docs/use/reference/metrics.md");
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, rest) = row.split_once("` | ").expect("a row of the page");
        if rest.starts_with("histogram") {
            all.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")));
        } else {
            all.insert(name.to_owned());
        }
    }
    all
}

#[test]
fn alerts_and_dashboards_use_metrics_that_are_served() {
    let served = served();
    let mut used = BTreeSet::new();
    let rules = document("monitoring/prometheusrule.yaml", "PrometheusRule");
    for group in rules["spec"]["groups"].as_array().expect("groups") {
        for rule in group["rules"].as_array().expect("rules") {
            let name = rule["alert"].as_str().expect("a name");
            let expression = rule["expr"].as_str().expect("an expression");
            let metrics = metrics_in(expression);
            assert!(
                !metrics.is_empty() || expression.contains("absent(up"),
                "{name}"
            );
            for field in ["summary", "description"] {
                assert!(
                    rule["annotations"][field].is_string(),
                    "{name} has no {field}"
                );
            }
            used.extend(metrics.into_iter().map(str::to_owned));
        }
    }
    let board: Value = serde_json::from_str(&read("monitoring/dashboard.json")).expect("JSON");
    for panel in board["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            let metrics = metrics_in(expression);
            assert!(!metrics.is_empty(), "{}", panel["title"]);
            used.extend(metrics.into_iter().map(str::to_owned));
        }
    }
    assert!(used.len() > 10, "{used:?}");
    let unknown: Vec<_> = used.difference(&served).collect();
    assert!(unknown.is_empty(), "Berth does not serve {unknown:?}");
}
