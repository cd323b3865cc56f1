use super::*;

/// Writes JSON as MessagePack. A list of two-element lists under `pod_lifecycles` becomes a map with any keys.
fn pack(value: &Value, out: &mut Vec<u8>) {
    let length = |out: &mut Vec<u8>, tag: u8, length: usize| {
        out.push(tag);
        out.extend(u32::try_from(length).expect("is short").to_be_bytes());
    };
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(value) => out.push(0xc2 + u8::from(*value)),
        Value::Number(number) => {
            out.push(0xd3);
            out.extend(number.as_i64().expect("a whole number").to_be_bytes());
        }
        Value::String(text) => {
            length(out, 0xdb, text.len());
            out.extend(text.as_bytes());
        }
        Value::Array(items) => {
            length(out, 0xdd, items.len());
            items.iter().for_each(|item| pack(item, out));
        }
        Value::Object(entries) => {
            length(out, 0xdf, entries.len());
            for (key, value) in entries {
                pack(&json!(key), out);
                match value.as_array() {
                    Some(pairs) if key == "pod_lifecycles" => {
                        length(out, 0xdf, pairs.len());
                        for pair in pairs {
                            pack(&pair[0], out);
                            pack(&pair[1], out);
                        }
                    }
                    _ => pack(value, out),
                }
            }
        }
    }
}

fn read(file: &Value) -> Result<Imported, String> {
    let mut bytes = Vec::new();
    pack(file, &mut bytes);
    read_simkube(&bytes).map_err(|e| e.to_string())
}

fn template(cpu: &str) -> Value {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container], "nodeName": "of-the-cluster"},
    })
}

fn deployment(replicas: usize, cpu: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": replicas, "template": template(cpu)},
    })
}

fn event(ts: i64, applied: &[Value], deleted: &[Value]) -> Value {
    json!({"ts": ts, "applied_objs": applied, "deleted_objs": deleted})
}

/// The name of each pod with its arrival and duration in seconds.
fn pods(imported: &Imported) -> Vec<(String, u64, Option<u64>)> {
    let seconds = |duration: &Option<Distribution>| match duration {
        Some(Distribution::Constant(duration)) => Some(duration.as_secs()),
        _ => None,
    };
    let pods = imported.trace.pods.iter();
    pods.map(|pod| {
        (
            pod.name.to_string(),
            pod.arrival.as_secs(),
            seconds(&pod.duration),
        )
    })
    .collect()
}

#[test]
fn a_workload_is_scaled_rolled_out_and_deleted() {
    let imported = read(&json!({
        "version": 2,
        "events": [
            event(1_000, &[deployment(2, "1")], &[]),
            event(1_060, &[deployment(3, "1")], &[]),
            event(1_120, &[deployment(1, "1")], &[]),
            event(1_180, &[deployment(1, "2")], &[]),
            event(1_300, &[], &[deployment(1, "2")]),
        ],
    }))
    .expect("a trace");
    let of = |name: &str, at, duration| (format!("web-{name}"), at, Some(duration));
    let expected = [
        of("0", 0, 180),
        of("1", 0, 120),
        of("2", 60, 60),
        of("3", 180, 120),
    ];
    assert_eq!(pods(&imported), expected);
    assert_eq!(imported.trace.start, Some(Time::from_secs(1_000)));
    let pod = &imported.trace.pods[3];
    assert_eq!(
        (pod.pod.namespace().as_str(), pod.pod.labels().get("app")),
        ("shop", Some("web"))
    );
    assert!(pod.recreated && pod.pod.spec.node_name.is_empty());
    let cpu = pod.pod.spec.containers[0].resources.requests.get("cpu");
    assert_eq!(cpu.map(|cpu| cpu.value()), Some(2));
}

#[test]
fn pods_run_as_long_as_those_of_the_trace() {
    let mut job = template("1");
    job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sum", "namespace": "shop"},
        "spec": {"parallelism": 3, "template": job},
    });
    let single = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "shop"}, "spec": template("1")["spec"],
    });
    let custom = json!({
        "apiVersion": "batch.example.com/v1", "kind": "Ring", "metadata": {"name": "r"},
        "spec": {"leader": template("1"), "worker": template("2")},
    });
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}});
    let imported = read(&json!({
        "version": 2,
        "config": {"trackedObjects": {
            "batch.example.com/v1.Ring": {"podSpecTemplatePaths": ["/spec/leader", "/spec/worker"]},
        }},
        "events": [event(50, &[job, single, custom, service.clone(), service], &[])],
        "pod_lifecycles": [
            [["batch/v1.Job", "shop/sum"], {"7": [{"Finished": [50, 80]}, {"Running": 50}]}],
            [["v1.Pod", "shop/one"], {"8": [{"Finished": [60, 65]}]}],
        ],
    }))
    .expect("a trace");
    let of = |name: &str, duration| (name.to_owned(), 0, duration);
    let expected = [
        of("sum-0", Some(30)),
        of("sum-1", None),
        of("sum-2", Some(30)),
        of("one", Some(5)),
        of("r-0", None),
        of("r-1", None),
    ];
    assert_eq!(pods(&imported), expected);
    assert_eq!(
        imported.left_out,
        BTreeMap::from([("v1.Service".to_owned(), 2)])
    );
}

#[test]
fn mistakes_have_a_place_and_a_way_out() {
    for (file, wanted) in [
        (
            json!([]),
            "version: there is no version; a trace of SimKube before 1.2 must be exported again",
        ),
        (
            json!({"version": 1}),
            "version: is 1; only version 2 can be read",
        ),
        (json!({"version": 2}), "events: there is no list of events"),
        (
            json!({"version": 2, "events": [{}]}),
            "events[0].ts: is no whole number of seconds",
        ),
        (
            json!({"version": 2, "events": [event(5, &[], &[]), event(4, &[], &[])]}),
            "events[1].ts: is before the first event",
        ),
        (
            json!({"version": 2, "events": [event(5, &[json!({"kind": "Pod"})], &[])]}),
            "events[0].applied_objs[0]: is no Kubernetes object",
        ),
        (
            json!({"version": 2, "events": [event(5, &[deployment(1, "much")], &[])]}),
            "events[0].applied_objs[0]: the template is no pod",
        ),
    ] {
        let error = read(&file).expect_err(wanted);
        assert!(error.starts_with(wanted), "{error}");
    }
    let error = read_simkube(b"{\"version\": 2}").map_err(|e| e.to_string());
    assert!(
        error.is_err_and(|e| e.starts_with("byte 1: ") && e.ends_with("is one MessagePack map"))
    );
}
