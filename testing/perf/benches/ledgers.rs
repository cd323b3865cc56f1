//! `cargo bench -p berth-perf --bench ledgers`: the time to open the ledgers of topology spread and of affinity to
//! pods, on 5,000 nodes with two pods each; once with equal pods, and once with pods that are all different.

// Benches measure by the clock.
#![allow(clippy::disallowed_methods)]

use berth_api::{Kind, Object, Pod, Time};
use berth_framework::keep::Domains;
use berth_framework::plugin::Context;
use berth_framework::{Cluster, FeatureGates, PodInfo};
use berth_plugins::inter_pod_affinity::InterPodAffinity;
use berth_plugins::pod_topology_spread::PodTopologySpread;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

const NODES: usize = 5_000;
const PODS: usize = 2 * NODES;
const ZONES: usize = 3;
const TIMES: usize = 101;

fn pod(name: &str, app: &str, spec: &Value) -> Arc<PodInfo> {
    let json = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}},
        "spec": spec,
    });
    match Kind::Pod.decode(json.to_string().as_bytes()) {
        Ok(Object::Pod(pod)) => Arc::new(PodInfo::new(Arc::<Pod>::clone(&pod))),
        other => panic!("{json}: {other:?}"),
    }
}

fn term(app: &str, key: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

fn apart(app: &str) -> Value {
    let terms = [term(app, "kubernetes.io/hostname")];
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

/// A cluster whose pods run the application that `app` returns, with the spec of `spec`.
fn cluster(app: impl Fn(usize) -> String, spec: impl Fn(usize) -> Value) -> Cluster {
    let mut cluster = Cluster::default();
    for at in 0..NODES {
        let json = json!({"metadata": {"name": format!("n{at}"), "labels": {
            "kubernetes.io/hostname": format!("n{at}"),
            "topology.kubernetes.io/zone": format!("z{}", at % ZONES),
        }}});
        match Kind::Node.decode(json.to_string().as_bytes()) {
            Ok(Object::Node(node)) => cluster.nodes.set_node(node),
            other => panic!("{json}: {other:?}"),
        };
    }
    for at in 0..PODS {
        let pod = pod(&format!("p{at}"), &app(at), &spec(at));
        let node = format!("n{}", at % NODES).as_str().into();
        cluster.nodes.add_pod(&node, pod);
    }
    cluster
}

/// The median, in microseconds.
fn measure(name: &str, cluster: &Cluster, plugin: &dyn Domains, pod: &Arc<PodInfo>) {
    let features = FeatureGates::default();
    let cx = Context {
        now: Time::from_secs(1_000),
        cluster,
        features: &features,
        work: None,
    };
    let mut micros = Vec::with_capacity(TIMES);
    let mut bytes = 0;
    for _ in 0..TIMES {
        let began = Instant::now();
        let ledger = plugin.open(&cx, pod);
        micros.push(began.elapsed().as_secs_f64() * 1e6);
        bytes = ledger.map_or(0, |ledger| ledger.state().bytes);
    }
    micros.sort_by(f64::total_cmp);
    println!("{name:45} {:9.1} µs {bytes:9} bytes", micros[TIMES / 2]);
}

fn main() {
    let (spread, affinity) = (PodTopologySpread::default(), InterPodAffinity::default());
    let constraint = |key: &str, action: &str| {
        json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action,
            "labelSelector": {"matchLabels": {"app": "app-7"}}})
    };
    let constraints = [
        constraint("kubernetes.io/hostname", "DoNotSchedule"),
        constraint("topology.kubernetes.io/zone", "ScheduleAnyway"),
    ];
    let spreading = json!({"topologySpreadConstraints": constraints});
    let mut choosy = spreading.clone();
    choosy["nodeSelector"] = json!({"topology.kubernetes.io/zone": "z1"});
    let one = cluster(|_| "app-7".into(), |_| json!({}));
    let different = cluster(
        |at| format!("app-{at}"),
        |at| {
            if at % 4 == 0 {
                apart(&format!("app-{at}"))
            } else {
                json!({})
            }
        },
    );
    for (kind, cluster) in [("one kind", &one), ("no two alike", &different)] {
        for (name, plugin, spec) in [
            ("spread, hard and soft", &spread as &dyn Domains, &spreading),
            ("spread, on some nodes", &spread, &choosy),
            ("affinity, none", &affinity, &json!({})),
            ("affinity, apart from its own", &affinity, &apart("app-7")),
        ] {
            let pod = pod("new", "app-7", spec);
            measure(&format!("{kind}: {name}"), cluster, plugin, &pod);
        }
    }
}
