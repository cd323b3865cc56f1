//! The flags are kube-scheduler's.

use super::*;
use std::collections::BTreeMap;

/// The flags of kube-scheduler 1.36.2: name and type, one a line.
const REFERENCE: &str = include_str!("kube-scheduler-1.36-flags.txt");

/// `-v, --v Level` as `("v", "Level")`.
fn entry(line: &str) -> (String, String) {
    let long = line.rsplit_once("--").map_or(line, |(_, long)| long);
    let (name, kind) = long.split_once(' ').unwrap_or((long, ""));
    (name.to_owned(), kind.to_owned())
}

/// Every flag of kube-scheduler exists with its type, and additional flags are in a separate section.
#[test]
fn the_flags_are_kube_schedulers() {
    let expected: BTreeMap<String, String> = REFERENCE.lines().map(entry).collect();
    assert!(expected.len() > 60, "{}", expected.len());
    let mut got: BTreeMap<String, String> = FLAGS
        .iter()
        .filter(|flag| flag.section != Section::Berth)
        .map(|flag| {
            // The list was cut there.
            let kind = flag.type_name.replace(",...", ",");
            let kind = if flag.name() == "secure-port" {
                "int".to_owned()
            } else {
                kind
            };
            (flag.name(), kind)
        })
        .collect();
    // Made by the library.
    got.insert("help".to_owned(), String::new());
    assert_eq!(got, expected);
}

/// A kubeadm control plane runs kube-scheduler with these.
#[test]
fn a_kubeadm_manifest_is_accepted() {
    let flags = flags(&[
        "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--bind-address=127.0.0.1",
        "--kubeconfig=/etc/kubernetes/scheduler.conf",
        "--leader-elect=true",
    ]);
    assert!(flags.leader_election.leader_elect.is_set);
    assert_eq!(flags.serving.bind_address.value.to_string(), "127.0.0.1");
    assert_eq!(flags.serving.secure_port.value, 10259);
    let given = flags.shown().into_iter().filter(|(_, _, is_set)| *is_set);
    assert_eq!(given.count(), 5);
}

fn flags(arguments: &[&str]) -> Flags {
    let command = add_to(Command::new("scheduler").no_binary_name(true));
    let matches = command.get_matches_from(arguments.iter().map(|a| normalized(a).into_owned()));
    Flags::read(&matches).expect("flags")
}

#[test]
fn booleans_need_no_value_and_underscores_are_dashes() {
    let flags = flags(&[
        "--leader_elect=false",
        "--check",
        "-v",
        "4",
        "--feature-gates=A=true",
        "--feature-gates",
        "B=false",
        "--kube-api-qps",
        "-1",
    ]);
    assert!(!flags.leader_election.leader_elect.value);
    assert!(flags.berth.check.value);
    assert_eq!(flags.logs.v.value, Level(4));
    assert_eq!(flags.features.feature_gates.value.0, "A=true,B=false");
    assert_eq!(flags.deprecated.kube_api_qps.value, -1.0);
}

#[test]
fn flags_state_what_they_do_not_do() {
    let warning = |name: &str| {
        let flag = FLAGS.iter().find(|flag| flag.name() == name);
        flag.expect("a flag").warning()
    };
    for (name, expected) in [
        ("config", None),
        (
            "profiling",
            Some("flag --profiling is deprecated; use enableProfiling in the file of --config"),
        ),
        (
            "contention-profiling",
            Some(
                "flag --contention-profiling has no effect: the scheduling core has no locks to profile",
            ),
        ),
    ] {
        assert_eq!(warning(name).as_deref(), expected);
    }
}

/// The defaults in the table are valid values and equal the help text.
#[test]
fn defaults_are_read_like_values() {
    for (flag, shown, is_set) in flags(&[]).shown() {
        assert!(!is_set);
        let expected = match flag.type_name {
            "strings" | "int32Slice" | "namedCertKey" | "stringToString" => {
                format!("[{}]", flag.default)
            }
            _ => flag.default.to_owned(),
        };
        assert_eq!(shown, expected, "{}", flag.name());
    }
}
