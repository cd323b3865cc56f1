//! `berth simulate` through the command, and its accuracy: compared with a cluster in real time, and with what-if.

mod objects;

use crate::BINARY;
use crate::e2e::{Api, Cluster, Scratch, eventually};
use berth_client::request;
use berth_client::request::PODS;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

fn berth(args: &[&str]) -> Output {
    Command::new(BINARY)
        .args(args)
        .output()
        .expect("berth runs")
}

/// The report as JSON.
fn simulated(args: &[&str]) -> Value {
    let output = berth(&[&["simulate", "-o", "json", "--pods"], args].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The error of a refused simulation, which has exit code 2.
fn refused(args: &[&str]) -> String {
    let output = berth(&[&["simulate"], args].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    error
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The node of each pod that is on one.
fn places(pods: &Value) -> BTreeMap<String, String> {
    let pods = pods.as_array().expect("a list").iter();
    pods.filter_map(|pod| {
        let name = pod["name"].as_str()?.to_owned();
        Some((name, pod["node"].as_str()?.to_owned()))
    })
    .collect()
}

/// Nodes of different sizes, so that no two nodes have the same score.
const SIZES: [(&str, u32, u32); 4] = [("a", 4, 8), ("b", 5, 11), ("c", 7, 13), ("d", 3, 17)];
/// Consecutive pods: name, milli-CPU, memory in MiB, and whether it has ended before the next one arrives.
const PODS_IN_TURN: [(&str, u32, u32, bool); 12] = [
    ("p0", 1300, 700, false),
    ("p1", 2900, 2100, true),
    ("p2", 500, 5000, false),
    ("p3", 3700, 900, false),
    ("p4", 1100, 3000, true),
    ("p5", 2300, 1100, false),
    ("p6", 700, 7000, false),
    ("p7", 2100, 600, false),
    ("p8", 1700, 4000, true),
    ("p9", 900, 800, false),
    ("q0", 6500, 100, false),
    ("q1", 400, 300, false),
];

/// The pods of a trace get the same nodes as the same pods in a cluster in real time.
#[test]
fn a_trace_ends_as_the_same_pods_in_a_cluster() {
    let scratch = Scratch::new("simulate-truth");
    let mut csv = "name,cpu,memory,pods\n".to_owned();
    let mut manifest = String::new();
    for (name, cpu, memory) in SIZES {
        csv += &format!("{name},{cpu},{memory}Gi,110\n");
        manifest += &format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus:\n  allocatable: &amounts {{cpu: \
             '{cpu}', memory: {memory}Gi, pods: '110'}}\n  capacity: *amounts\n"
        );
    }
    let nodes = shown(&scratch.file("nodes.csv", &csv));
    let manifest = shown(&scratch.file("nodes.yaml", &manifest));
    let mut trace = "name,arrival,duration,cpu,memory\n".to_owned();
    for (at, (name, cpu, memory, ends)) in PODS_IN_TURN.iter().enumerate() {
        let duration = if *ends { "10" } else { "" };
        trace += &format!("{name},{},{duration},{cpu}m,{memory}Mi\n", at * 60);
    }
    let trace = shown(&scratch.file("trace.csv", &trace));

    let cluster = Cluster::up(
        "simulate-truth-up",
        &["--nodes", "0", "--node-file", &manifest],
    );
    let api = Api::of(&cluster);
    for (name, cpu, memory, ends) in PODS_IN_TURN {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "registry.example/c:1",
                "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}}}]}});
        api.send(&request::create(PODS, "default", &pod));
        // It runs, or has been tried.
        eventually(name, || {
            let pod = api.pod(name);
            let is_tried = crate::e2e::scheduled(&pod)["status"] == "False";
            (pod["status"]["phase"] == "Running" || is_tried).then_some(())
        });
        if ends {
            api.send(&request::delete(PODS, "default", name, &json!({})));
            eventually(name, || {
                let pods = api.pods();
                let is_left = pods.iter().any(|pod| pod["metadata"]["name"] == name);
                (!is_left).then_some(())
            });
        }
    }
    let real: BTreeMap<String, String> = api
        .pods()
        .iter()
        .filter_map(|pod| {
            let name = pod["metadata"]["name"].as_str()?.to_owned();
            Some((name, pod["spec"]["nodeName"].as_str()?.to_owned()))
        })
        .collect();
    let report = simulated(&[&trace, "--nodes", &nodes]);
    let run = &report["runs"][0];
    let mut simulated = places(&run["pods"]);
    let ended = PODS_IN_TURN.iter().filter(|(.., ends)| *ends);
    for (name, ..) in ended {
        assert!(simulated.remove(*name).is_some(), "{name} ran");
    }
    assert_eq!(simulated, real);
    // One pod fits nowhere, in both.
    assert_eq!(run["summary"]["neverBound"], 1, "{}", run["summary"]);
    assert!(!real.contains_key("q0"), "{real:?}");
}

/// A trace without departures gives the result of what-if: the same pods on the same nodes.
#[test]
fn a_trace_without_departures_is_a_what_if() {
    let scratch = Scratch::new("simulate-what-if");
    let mut items = Vec::new();
    for at in 10..30 {
        items.push(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{at}")},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"}}}),
        );
    }
    let mut rng = fastrand::Rng::with_seed(7);
    for at in 100..260 {
        let cpu = format!("{}m", 100 + rng.u32(..30) * 50);
        items.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{at}"), "namespace": "default",
                "uid": format!("u{at}"), "labels": {"app": format!("a{}", at % 3)}},
            "spec": {"schedulerName": "default-scheduler", "priority": rng.i32(..3),
                "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "200Mi"}}}],
                "topologySpreadConstraints": [{"maxSkew": 5, "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": format!("a{}", at % 3)}}}]},
            "status": {"phase": "Pending"}}));
    }
    // A node has its name as a label, as of a cluster.
    for node in items.iter_mut().filter(|item| item["kind"] == "Node") {
        node["metadata"]["labels"] = json!({"kubernetes.io/hostname": node["metadata"]["name"]});
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let dump = shown(&scratch.file("dump.json", &list));
    let output = berth(&["what-if", "--from", &dump, "-o", "json"]);
    let what_if: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let placed = what_if["placed"].as_array().expect("a list").iter();
    let placed: BTreeMap<String, String> = placed
        .map(|pod| {
            let name = pod["pod"]
                .as_str()
                .unwrap_or_default()
                .trim_start_matches("default/");
            (
                name.to_owned(),
                pod["node"].as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect();
    let report = simulated(&[&dump]);
    let run = &report["runs"][0];
    assert_eq!(places(&run["pods"]), placed);
    let waiting = what_if["after"]["pending"].as_u64().expect("a number");
    assert_eq!(run["summary"]["waiting"].as_u64(), Some(waiting));
    assert!(
        placed.len() > 50 && waiting > 5,
        "{} placed, {waiting} wait",
        placed.len()
    );
}

/// A DeferredQuota among the objects: its pods wait in line, each until the pod before it has ended.
#[test]
fn pods_of_a_deferred_quota_wait_in_line() {
    let scratch = Scratch::new("simulate-quota");
    let waits = |name: &str, quota: Option<Value>| -> BTreeMap<String, i64> {
        let mut items = vec![
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}}}),
        ];
        items.extend(quota);
        for (at, pod) in ["first", "second", "third"].iter().enumerate() {
            let created = format!("2026-01-05T00:00:0{at}Z");
            items.push(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": pod, "namespace": "team-a", "uid": pod, "creationTimestamp": created},
                "spec": {"schedulerName": "default-scheduler",
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
                "status": {"phase": "Pending"}}));
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let file = shown(&scratch.file(&format!("{name}.json"), &list));
        let report = simulated(&[&file, "--durations", "10m"]);
        let run = &report["runs"][0];
        assert_eq!(run["summary"]["finished"], 3, "{}", run["summary"]);
        let pods = run["pods"].as_array().expect("a list").iter();
        let minutes = |pod: &Value| {
            let wait = pod["bound"].as_f64()? - pod["arrived"].as_f64()?;
            format!("{:.0}", wait / 60.0).parse().ok()
        };
        pods.map(|pod| {
            let name = pod["name"].as_str().expect("a name");
            (name.to_owned(), minutes(pod).expect("it was bound"))
        })
        .collect()
    };
    let named = |minutes: [i64; 3]| {
        let names = ["first", "second", "third"].map(str::to_owned);
        BTreeMap::from_iter(names.into_iter().zip(minutes))
    };
    assert_eq!(waits("without", None), named([0, 0, 0]));
    let quota = json!({"apiVersion": "scheduling.berth.dev/v1alpha1", "kind": "DeferredQuota",
        "metadata": {"name": "two", "namespace": "team-a", "uid": "q"}, "spec": {"hard": {"requests.cpu": "2"}}});
    assert_eq!(waits("with", Some(quota)), named([0, 10, 20]));
}

const TRACE: &str = "\
name,namespace,arrival,every,count,duration,cpu,memory
train,research,0,30s,40,\"lognormal(20m, 1)\",1,4Gi
web,shop,5m,10s,30,exponential(1h),500m,1Gi
";

#[test]
fn the_same_input_gives_the_same_bytes_in_every_format() {
    let scratch = Scratch::new("simulate-bytes");
    let trace = shown(&scratch.file("trace.csv", TRACE));
    for output in ["table", "json", "csv", "pods-csv"] {
        let args = [
            "simulate",
            &trace,
            "--nodes",
            "5",
            "--seeds",
            "3",
            "--api-latency",
            "exponential(40ms)",
            "-o",
            output,
        ];
        let (first, again) = (
            berth(&args),
            berth(&[&args[..], &["--threads", "1"]].concat()),
        );
        assert!(
            first.status.success(),
            "{}",
            String::from_utf8_lossy(&first.stderr)
        );
        assert!(!first.stdout.is_empty());
        assert_eq!(first.stdout, again.stdout, "{output}");
    }
}

#[test]
fn csv_has_a_row_for_each_interval_and_for_each_pod() {
    let scratch = Scratch::new("simulate-csv");
    let trace = shown(&scratch.file("trace.csv", TRACE));
    let csv = |format: &str| {
        let output = berth(&["simulate", &trace, "--nodes", "5", "-o", format]);
        String::from_utf8(output.stdout).expect("text")
    };
    let pods = csv("pods-csv");
    assert_eq!(pods.lines().count(), 71, "{pods}");
    assert!(
        pods.starts_with("config,seed,namespace,name,priority,size,arrived,bound,"),
        "{pods}"
    );
    let series = csv("csv");
    let head = series.lines().next().unwrap_or_default();
    assert!(
        head.contains("allocated:cpu") && head.contains("waiting_max"),
        "{head}"
    );
    assert!(series.lines().count() > 100, "{series}");
}

#[test]
fn configurations_are_compared_over_seeds() {
    let scratch = Scratch::new("simulate-compare");
    let trace = shown(&scratch.file("trace.csv", TRACE));
    let most = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- \
                schedulerName: default-scheduler\n  pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: \
                {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}\n  plugins:\n    score:\n      disabled: [{name: \
                NodeResourcesBalancedAllocation}]\n";
    let most = shown(&scratch.file("most.yaml", most));
    let args = [
        trace.as_str(),
        "--nodes",
        "20",
        "--config",
        "default",
        "--config",
        &most,
        "--seeds",
        "4",
    ];
    let report = simulated(&args);
    assert_eq!(report["version"], 1);
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(8));
    let compared = report["comparison"].as_array().expect("a list");
    let used = |at: usize| compared[at]["metrics"]["nodesUsedMean"].clone();
    let (spread, packed) = (used(0), used(1));
    assert!(
        packed["mean"].as_f64() < spread["mean"].as_f64(),
        "{compared:?}"
    );
    assert!(packed["difference"].as_f64() < Some(-1.0), "{packed}");
    let table = berth(&[&["simulate"], &args[..]].concat());
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        table.contains("most.yaml") && table.contains("nodes with pods, mean"),
        "{table}"
    );
    assert!(table.contains('±'), "{table}");
}

#[test]
fn mistakes_have_the_file_the_place_and_exit_code_2() {
    let scratch = Scratch::new("simulate-mistakes");
    let good = shown(&scratch.file("good.csv", "name,arrival,cpu\na,0,1\n"));
    let bad = shown(&scratch.file("bad.csv", "name,arrival,cpu\na,0,1\nb,soon,1\n"));
    let nodes = shown(&scratch.file("nodes.csv", "name,cpu\nn,4\n"));
    let yaml = shown(&scratch.file("bad.yaml", "pods:\n- name: a\n  arival: 5\n"));
    let circle = "pods:\n- {name: a, gates: {x.io/g: 'end:default/b'}}\n- {name: b, gates: {x.io/g: 'end:default/a'}}\n";
    let circle = shown(&scratch.file("circle.yaml", circle));
    let recording = scratch.path("recording");
    std::fs::create_dir_all(&recording).expect("a directory");
    let newer = format!("BERTHREC\u{9}{}", "\0".repeat(55));
    scratch.file("recording/1796070376389-000000.rec", &newer);
    let recording = shown(&recording);
    for (args, wanted) in [
        (
            vec![bad.as_str(), "--nodes", "1"],
            "bad.csv: line 3, column 3, arrival: \"soon\" is no duration",
        ),
        (
            vec![yaml.as_str(), "--nodes", "1"],
            "bad.yaml: line 3, column 3: unknown field \"arival\"; did you mean \"arrival\"?",
        ),
        (
            vec![circle.as_str(), "--nodes", "1"],
            "gate x.io/g of pod default/b waits for the end of pod default/a, which waits in turn for the end of default/b",
        ),
        (
            vec![recording.as_str()],
            "000000.rec, byte 0: its format has version 9, and this Berth reads version 1",
        ),
        (
            vec![nodes.as_str()],
            "nodes.csv: the trace has no pods; a CSV file of pods has the column arrival",
        ),
        (
            vec![
                good.as_str(),
                "--nodes",
                "1",
                "--until",
                "2026-01-04T00:00:00Z",
            ],
            "--until 2026-01-04T00:00:00Z: the trace begins later, at 2026-01-05T00:00:00Z",
        ),
        (
            vec![
                good.as_str(),
                "--nodes",
                "1",
                "--config",
                "default",
                "--config",
                "default",
            ],
            "--config default is given twice",
        ),
        (
            vec![good.as_str(), "--nodes", "1:cpu=-4"],
            "\"cpu\" has no quantity of at least 0",
        ),
        (
            vec![good.as_str()],
            "the trace has no nodes; add some, or give --nodes N",
        ),
        (
            vec![good.as_str(), "--nodes", "x"],
            "--nodes x: there is no such file",
        ),
        (
            vec![good.as_str(), "--nodes", "2:cpu"],
            "\"cpu\" has no quantity",
        ),
        (
            vec![good.as_str(), "--nodes", "2", "--remove-nodes", "3"],
            "2 nodes exist at the start",
        ),
        (
            vec!["absent.csv", "--nodes", "2"],
            "failed to read absent.csv",
        ),
        (
            vec![good.as_str(), "--nodes", "2", "--durations", "long"],
            "is no distribution of durations",
        ),
        (
            vec![good.as_str(), "--nodes", "2", "--config", "absent.yaml"],
            "failed to read configuration absent.yaml",
        ),
    ] {
        let error = refused(&args);
        assert!(error.contains(wanted), "{args:?}: {error}");
    }
}

/// Traces as editors and tools of other systems write them: a byte order mark, Windows line ends, gzip; and times that are
/// far away or equal.
#[test]
fn unusual_traces_are_simulated() {
    let scratch = Scratch::new("simulate-unusual");
    let plain = "name,arrival,duration,cpu\na,0,10m,1\nb,1m,0,1\n";
    let windows = format!("\u{feff}{}", plain.replace('\n', "\r\n"));
    let yaml = "\u{feff}pods:\r\n- {name: a, duration: 10m, requests: {cpu: 1}}\r\n- {name: b, arrival: 1m, duration: 0, \
                requests: {cpu: 1}}\r\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, plain.as_bytes()).expect("memory");
    let compressed = scratch.path("plain.csv.gz");
    std::fs::write(&compressed, gzip.finish().expect("memory")).expect("a file");
    let far = "name,arrival,duration,cpu\na,72000d,73000d,1\n";
    for (file, until, pods, seconds) in [
        (
            shown(&scratch.file("plain.csv", plain)),
            "1d",
            [2, 2],
            601.02,
        ),
        (
            shown(&scratch.file("windows.csv", &windows)),
            "1d",
            [2, 2],
            601.02,
        ),
        (
            shown(&scratch.file("windows.yaml", yaml)),
            "1d",
            [2, 2],
            601.02,
        ),
        (shown(&compressed), "2026-01-05T00:00:30Z", [1, 0], 30.0),
        (shown(&compressed), "0", [1, 0], 0.0),
        // Times have years up to 2262; simulations end a few years earlier.
        (
            shown(&scratch.file("far.csv", far)),
            "",
            [1, 0],
            7_232_428_800.0,
        ),
    ] {
        let mut args = vec![file.as_str(), "--nodes", "1"];
        if !until.is_empty() {
            args.extend(["--until", until]);
        }
        let report = simulated(&args);
        let run = &report["runs"][0];
        let count = |field: &str| run["summary"][field].as_u64();
        let got = [count("arrived"), count("finished")];
        assert_eq!(got, pods.map(Some), "{file} {until}");
        assert_eq!(run["seconds"].as_f64(), Some(seconds), "{file} {until}");
    }
}

/// Standard input has no name with an ending.
#[test]
fn standard_input_is_csv_or_yaml() {
    let scratch = Scratch::new("simulate-stdin");
    for (name, text) in [
        ("csv", "# two pods\nname,arrival,label:app\na,0,x\nb,0,y\n"),
        ("yaml", "pods:\n- {name: a, count: 2}\n"),
        ("json", r#"{"pods": [{"name": "a", "count": 2}]}"#),
    ] {
        let file = std::fs::File::open(scratch.file(name, text)).expect("the file is there");
        let output = Command::new(BINARY)
            .args(["simulate", "-", "--nodes", "1", "-o", "json"])
            .stdin(file)
            .output()
            .expect("berth runs");
        let error = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert_eq!(report["runs"][0]["summary"]["bound"], 2, "{name}: {error}");
    }
}
