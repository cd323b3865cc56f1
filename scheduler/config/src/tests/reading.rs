//! From text to fields: F-30, F-31, edge cases 252 and 257.

use super::*;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

/// F-30.
#[test]
fn what_is_left_out_is_the_default() {
    let nothing_stated = parse_text(HEAD).expect("it is complete");
    assert_eq!(
        nothing_stated,
        Config::new(FeatureGates::default(), &in_tree())
    );
    let empty = json!({
        "parallelism": null, "leaderElection": {}, "clientConnection": {"qps": 0, "burst": 0, "contentType": ""},
        "profiles": [], "extenders": null, "enableProfiling": null,
    });
    assert_eq!(config(&empty), nothing_stated);
}

/// F-20, F-30, F-31, F-37: every field, and the values that the core receives.
#[test]
fn every_field_is_read() {
    let yaml = format!(
        r#"{HEAD}# a comment
parallelism: 8
leaderElection:
  leaderElect: false
  leaseDuration: 1m
  renewDeadline: 40s
  retryPeriod: 500ms
  resourceLock: leases
  resourceNamespace: ns
  resourceName: berth
clientConnection: {{kubeconfig: /k, acceptContentTypes: "*/*", contentType: application/json, qps: 0.5, burst: 7}}
enableProfiling: false
percentageOfNodesToScore: 40
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
delayCacheUntilActive: true
profiles:
- schedulerName: a
  percentageOfNodesToScore: 0
- schedulerName: b
extenders:
- urlPrefix: https://e.example/x
  filterVerb: f
  preemptVerb: p
  prioritizeVerb: s
  bindVerb: b
  weight: 3
  enableHTTPS: true
  httpTimeout: 2s
  nodeCacheCapable: true
  ignorable: true
  managedResources: [{{name: example.com/gpu, ignoredByScheduler: true}}]
  tlsConfig: {{insecure: true, serverName: sn, certFile: c, keyFile: k, caFile: a, certData: Yw==, keyData: aw==, caData: YQ==}}
"#
    );
    let config = parse_text(&yaml).unwrap_or_else(|e| panic!("{e}"));
    let mut expected = Config::new(FeatureGates::default(), &in_tree());
    expected.parallelism = 8;
    let seconds = |text: &str| text.parse::<GoDuration>().expect("a duration");
    expected.leader_election = LeaderElection {
        leader_elect: false,
        lease_duration: seconds("60s"),
        renew_deadline: seconds("40s"),
        retry_period: seconds("0.5s"),
        resource_lock: "leases".to_owned(),
        resource_namespace: "ns".to_owned(),
        resource_name: "berth".to_owned(),
    };
    expected.client_connection = ClientConnection {
        kubeconfig: "/k".to_owned(),
        accept_content_types: "*/*".to_owned(),
        content_type: "application/json".to_owned(),
        qps: 0.5,
        burst: 7,
    };
    expected.enable_profiling = false;
    // Without profiling there is none of locks either.
    expected.enable_contention_profiling = false;
    expected.percentage_of_nodes_to_score = Some(40);
    expected.pod_initial_backoff_seconds = 2;
    expected.pod_max_backoff_seconds = 20;
    expected.delay_cache_until_active = true;
    let mut profile = expected.profiles.remove(0);
    profile.scheduler_name = "a".to_owned();
    profile.percentage_of_nodes_to_score = Some(0);
    let mut other = profile.clone();
    other.scheduler_name = "b".to_owned();
    other.percentage_of_nodes_to_score = None;
    expected.profiles = vec![profile, other];
    expected.extenders = vec![Extender {
        url_prefix: "https://e.example/x".to_owned(),
        filter_verb: "f".to_owned(),
        preempt_verb: "p".to_owned(),
        prioritize_verb: "s".to_owned(),
        bind_verb: "b".to_owned(),
        weight: 3,
        enable_https: true,
        http_timeout: seconds("2s"),
        node_cache_capable: true,
        ignorable: true,
        managed_resources: vec![ManagedResource {
            name: "example.com/gpu".to_owned(),
            ignored_by_scheduler: true,
        }],
        tls: Some(ExtenderTls {
            insecure: true,
            server_name: "sn".to_owned(),
            cert_file: "c".to_owned(),
            key_file: "k".to_owned(),
            ca_file: "a".to_owned(),
            cert_data: b"c".to_vec(),
            key_data: b"k".to_vec(),
            ca_data: b"a".to_vec(),
        }),
    }];
    assert_eq!(config, expected);

    let mut options = SchedulerOptions::default();
    config.set_options(&mut options);
    assert_eq!(options.percentage_of_nodes_to_score, Some(40));
    assert_eq!(options.pod_initial_backoff.as_secs(), 2);
    assert_eq!(options.pod_max_backoff.as_secs(), 20);
    assert_eq!(options.dispatcher.in_flight_max, 64);
    let names: Vec<&str> = options
        .profiles
        .iter()
        .map(|p| p.scheduler_name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

/// F-31, edge case 252.
#[test]
fn a_single_profile_needs_no_name() {
    let names = |fields: &Value| -> Vec<String> {
        let profiles = config(fields).profile_specs();
        profiles.into_iter().map(|p| p.scheduler_name).collect()
    };
    assert_eq!(names(&json!({})), ["default-scheduler"]);
    assert_eq!(names(&json!({"profiles": [{}]})), ["default-scheduler"]);
    assert_eq!(
        problems(&json!({"profiles": [{}, {}]})),
        [
            "profiles[0].schedulerName: Required value",
            "profiles[1].schedulerName: Required value",
        ]
    );
}

/// Edge case 257.
#[test]
fn what_is_no_configuration_is_refused() {
    for (situation, text, expected) in [
        (
            "nothing",
            "",
            "Object 'Kind' is missing: the configuration is empty; start with `apiVersion: \
             kubescheduler.config.k8s.io/v1` and `kind: KubeSchedulerConfiguration`",
        ),
        (
            "a list",
            "[1]",
            "the configuration must be an object; start with `apiVersion: kubescheduler.config.k8s.io/v1` and \
             `kind: KubeSchedulerConfiguration`",
        ),
        (
            "no kind",
            "apiVersion: kubescheduler.config.k8s.io/v1",
            "kind: Object 'Kind' is missing; add `kind: KubeSchedulerConfiguration`",
        ),
        (
            "no version",
            "kind: KubeSchedulerConfiguration",
            "apiVersion: Object 'apiVersion' is missing; add `apiVersion: kubescheduler.config.k8s.io/v1`",
        ),
        (
            "another kind",
            "apiVersion: v1\nkind: Pod\nspec: {}",
            "kind: no kind \"Pod\" is registered for version \"v1\"; it must be \"KubeSchedulerConfiguration\"",
        ),
        (
            "a version of old",
            "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\nhealthz: x",
            "apiVersion: no kind \"KubeSchedulerConfiguration\" is registered for version \
             \"kubescheduler.config.k8s.io/v1beta3\"; that version is gone: use \
             \"kubescheduler.config.k8s.io/v1\" and change the fields to match",
        ),
        (
            "a foreign version",
            "apiVersion: kubescheduler/v1\nkind: KubeSchedulerConfiguration",
            "apiVersion: no kind \"KubeSchedulerConfiguration\" is registered for version \"kubescheduler/v1\"; it \
             must be \"kubescheduler.config.k8s.io/v1\"",
        ),
    ] {
        assert_eq!(problems_of_text(text), [expected], "{situation}");
    }
}

/// Edge case 257.
#[test]
fn text_that_cannot_be_read_is_refused_with_its_place() {
    for (situation, text, parts) in [
        (
            "a field twice",
            format!("{HEAD}parallelism: 1\nparallelism: 2\n"),
            [
                "strict decoding error",
                "duplicate",
                "parallelism",
                "line 4",
            ],
        ),
        (
            "no YAML",
            format!("{HEAD}profiles: [\n"),
            [
                "strict decoding error",
                "line",
                "column",
                "a YAML or JSON document",
            ],
        ),
        (
            "nested too deep",
            format!("{HEAD}profiles: {}{}", "[".repeat(100), "]".repeat(100)),
            [
                "strict decoding error",
                "exceeds a limit: a depth of 64",
                "",
                "",
            ],
        ),
        (
            "too long",
            format!("{HEAD}# {}", "x".repeat(1024 * 1024)),
            ["the configuration is longer than 1048576 bytes", "", "", ""],
        ),
    ] {
        let problems = problems_of_text(&text);
        assert_eq!(problems.len(), 1, "{situation}: {problems:?}");
        for part in parts {
            assert!(
                problems[0].contains(part),
                "{situation}: {part:?} in {problems:?}"
            );
        }
    }
}

/// F-50: anything after the first document is not read.
#[test]
fn the_first_document_is_the_configuration() {
    let first = format!("{HEAD}parallelism: 17\n");
    for rest in [
        "---\n",
        "---",
        "...\n",
        "--- # other\nkind: Pod\n",
        "---\nparallelism: 1\nparallelism: 2\n---\n[\n",
    ] {
        for text in [format!("{first}{rest}"), format!("---\n{first}{rest}")] {
            let config = parse_text(&text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
            assert_eq!(config.parallelism, 17, "{text:?}");
        }
    }
    let empty = problems_of_text(&format!("---\n---\n{first}"));
    assert!(
        empty[0].starts_with("Object 'Kind' is missing"),
        "{empty:?}"
    );
}

/// F-50: plain scalars as YAML 1.1 has them.
#[test]
fn plain_scalars_have_the_meaning_of_yaml_1_1() {
    for (written, expected) in [
        ("010", Some(8)),
        ("0o10", Some(8)),
        ("08", Some(8)),
        ("0x10", Some(16)),
        ("0b101", Some(5)),
        ("1_000", Some(1000)),
        ("+5", Some(5)),
        ("1e1", Some(10)),
        ("10.0", Some(10)),
        ("~", Some(16)),
        ("Null", Some(16)),
        ("", Some(16)),
        ("\"10\"", None),
        ("10:30", None),
        ("2026-01-01", None),
        ("yes", None),
    ] {
        let config = parse_text(&format!("{HEAD}parallelism: {written}\n"));
        assert_eq!(config.ok().map(|c| c.parallelism), expected, "{written:?}");
    }
    for (written, expected) in [
        ("yes", Some(true)),
        ("Yes", Some(true)),
        ("on", Some(true)),
        ("ON", Some(true)),
        ("y", Some(true)),
        ("True", Some(true)),
        ("no", Some(false)),
        ("NO", Some(false)),
        ("off", Some(false)),
        ("n", Some(false)),
        ("FALSE", Some(false)),
        ("\"yes\"", None),
        ("1", None),
        ("maybe", None),
    ] {
        let config = parse_text(&format!("{HEAD}enableProfiling: {written}\n"));
        assert_eq!(
            config.ok().map(|c| c.enable_profiling),
            expected,
            "{written:?}"
        );
    }
    for (written, expected) in [
        ("no", "must be a string"),
        ("7", "must be a string"),
        ("\"\"", "Required value"),
    ] {
        let problems =
            problems_of_text(&format!("{HEAD}profiles: [{{schedulerName: {written}}}]\n"));
        let place = "profiles[0].schedulerName: ";
        assert!(
            problems[0].starts_with(place) && problems[0].contains(expected),
            "{problems:?}"
        );
    }
}

/// F-31, case 257.
#[test]
fn fields_are_read_strictly() {
    for (fields, expected) in [
        (
            json!({"paralellism": 3}),
            "paralellism: strict decoding error: unknown field \"paralellism\"; did you mean \"parallelism\"?",
        ),
        (
            json!({"leaderElection": {"lease": "1s"}}),
            "leaderElection.lease: strict decoding error: unknown field \"lease\"; known here: leaseDuration, \
             renewDeadline, retryPeriod, resourceLock, resourceNamespace, resourceName, leaderElect",
        ),
        (
            json!({"profiles": [{"schedulerName": "a", "plugins": {"prescore": {}}}]}),
            "profiles[0].plugins.prescore: strict decoding error: unknown field \"prescore\"; did you mean \
             \"preScore\"?",
        ),
        (
            json!({"profiles": [{"plugins": {"score": {"enabled": [{"name": "A", "wieght": 1}]}}}]}),
            "profiles[0].plugins.score.enabled[0].wieght: strict decoding error: unknown field \"wieght\"; did you \
             mean \"weight\"?",
        ),
        (
            json!({"extenders": [{"managedResources": [{"nam": "a.b/c"}], "bindVerb": "b"}]}),
            "extenders[0].managedResources[0].nam: strict decoding error: unknown field \"nam\"; did you mean \
             \"name\"?",
        ),
        (
            json!({"parallelism": "3"}),
            "parallelism: Invalid value: \"3\": must be an integer between -2147483648 and 2147483647",
        ),
        (
            json!({"parallelism": 3_000_000_000_i64}),
            "parallelism: Invalid value: 3000000000: must be an integer between -2147483648 and 2147483647",
        ),
        (
            json!({"podMaxBackoffSeconds": 10.5}),
            "podMaxBackoffSeconds: Invalid value: 10.5: must be an integer",
        ),
        (
            json!({"enableProfiling": "yes"}),
            "enableProfiling: Invalid value: \"yes\": must be true or false",
        ),
        (
            json!({"clientConnection": {"qps": "fast"}}),
            "clientConnection.qps: Invalid value: \"fast\": must be a number",
        ),
        (
            json!({"leaderElection": {"leaseDuration": 20}}),
            "leaderElection.leaseDuration: Invalid value: 20: must be a duration with its unit in quotes, such as \
             \"15s\"",
        ),
        (
            json!({"leaderElection": {"leaseDuration": "1d"}}),
            "leaderElection.leaseDuration: Invalid value: \"1d\": time: unknown unit \"d\" in duration \"1d\"; \
             write it as \"15s\", \"1m30s\" or \"500ms\"",
        ),
        (
            json!({"profiles": {"schedulerName": "a"}}),
            "profiles: Invalid value: {\"schedulerName\":\"a\"}: must be a list",
        ),
        (
            json!({"profiles": ["a"]}),
            "profiles[0]: Invalid value: \"a\": must be an object",
        ),
        (
            json!({"profiles": [{"schedulerName": 7}]}),
            "profiles[0].schedulerName: Invalid value: 7: must be a string",
        ),
        (
            json!({"profiles": [{"plugins": {"score": {"disabled": [{}]}}}]}),
            "profiles[0].plugins.score.disabled[0].name: Required value",
        ),
        (
            json!({"profiles": [{"pluginConfig": [{"args": {}}]}]}),
            "profiles[0].pluginConfig[0].name: Required value",
        ),
    ] {
        let problems = problems(&fields);
        // An unknown field may leave a required one empty; that is reported as well.
        assert_eq!(
            problems.first().map(String::as_str),
            Some(expected),
            "{fields}"
        );
    }
}

#[test]
fn a_whole_number_may_be_written_with_a_point() {
    assert_eq!(config(&json!({"parallelism": 4.0})).parallelism, 4);
}

#[test]
fn a_key_that_does_not_decode_is_not_shown() {
    let problems = problems(&json!({"extenders": [{"tlsConfig": {"keyData": "!secret!"}}]}));
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("extenders[0].tlsConfig.keyData: must be base64"));
    assert!(!problems[0].contains("secret"));
}

#[test]
fn every_problem_is_listed_with_its_source() {
    let errors = parse(
        &text(&json!({"parallelism": 0, "podInitialBackoffSeconds": 0, "x": 1})),
        "config.yaml",
        FeatureGates::default(),
        &in_tree(),
    )
    .expect_err("three problems");
    assert_eq!(
        errors
            .to_string()
            .lines()
            .map(|l| l.split(": ").nth(1))
            .collect::<Vec<_>>(),
        [
            Some("x"),
            Some("parallelism"),
            Some("podInitialBackoffSeconds")
        ]
    );
    assert!(
        errors
            .to_string()
            .lines()
            .all(|line| line.starts_with("config.yaml: "))
    );
}

#[test]
fn a_flood_of_problems_is_cut() {
    let fields: serde_json::Map<String, Value> =
        (0..250).map(|i| (format!("field{i}"), json!(1))).collect();
    let errors = parse_text(&text(&Value::Object(fields))).expect_err("unknown fields");
    assert_eq!((errors.errors.len(), errors.left_out), (100, 150));
    assert!(errors.to_string().ends_with("\nF: and 150 more"));
}
