//! Any text is read or refused; nothing else happens.

use super::*;
use proptest::prelude::*;

/// Values that are near a configuration: its fields, in any place.
fn value() -> impl Strategy<Value = Value> {
    const FIELDS: [&str; 24] = [
        "apiVersion",
        "kind",
        "profiles",
        "plugins",
        "pluginConfig",
        "multiPoint",
        "score",
        "queueSort",
        "enabled",
        "disabled",
        "name",
        "weight",
        "args",
        "scoringStrategy",
        "resources",
        "extenders",
        "managedResources",
        "leaderElection",
        "leaseDuration",
        "clientConnection",
        "qps",
        "schedulerName",
        "tlsConfig",
        "certData",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[-0-9.a-zµ*/]{0,12}".prop_map(Value::from),
        proptest::sample::select(vec![
            "NodeResourcesFit",
            "PodTopologySpread",
            "*",
            "15s",
            "EBSLimits",
            "",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((proptest::sample::select(FIELDS.to_vec()), inner), 0..6)
                .prop_map(|fields| {
                    Value::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
                }),
        ]
    })
}

/// A configuration that is read is as good as its parts: it can be written and read again.
fn survives(text: &str) {
    let registry = Registry::default();
    let features = FeatureGates::default();
    match parse(text, "F", features, &in_tree()) {
        Ok(config) => {
            let yaml = config.to_yaml();
            let again = parse(&yaml, "again", features, &in_tree())
                .unwrap_or_else(|e| panic!("{e}\n{yaml}"));
            assert_eq!(again.to_value(), config.to_value());
        }
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
    let _ = load(text, "F", features, &registry, |_| {}).map_err(|e| e.to_string());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*|[ \\-:{}\\[\\]a-z&*!|>'\"\\n#0-9]{0,200}") {
        survives(&text);
    }

    #[test]
    fn any_fields_are_read_or_refused(fields in proptest::collection::btree_map(
        proptest::sample::select(vec!["profiles", "extenders", "leaderElection", "clientConnection", "parallelism"]),
        value(),
        0..4,
    )) {
        let fields: serde_json::Map<String, Value> =
            fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        survives(&text(&Value::Object(fields)));
    }

    #[test]
    fn any_profile_is_read_or_refused(
        plugins in value(),
        config in proptest::collection::vec(
            (proptest::sample::select(vec!["NodeResourcesFit", "NodeAffinity", "DynamicResources", "Own"]), value()),
            0..3,
        ),
    ) {
        let config: Vec<Value> =
            config.into_iter().map(|(name, args)| json!({"name": name, "args": args})).collect();
        survives(&text(&json!({"profiles": [{"plugins": plugins, "pluginConfig": config}]})));
    }

    #[test]
    fn any_duration_is_read_or_refused(text in "[-+]?[0-9.]{0,25}[a-zµ]{0,3}[0-9]{0,3}[smh]?") {
        if let Ok(duration) = text.parse::<GoDuration>() {
            // A written duration is read again as the same.
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }
}
