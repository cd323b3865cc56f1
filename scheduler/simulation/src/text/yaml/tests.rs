//! Traces as YAML, and mistakes in them.

use super::*;
use crate::trace::GateRemoval;

fn read(text: &str) -> Result<Trace, TextError> {
    read_yaml(text, &mut |path| Err(format!("there is no file {path}")))
}

#[test]
fn everything_is_read() {
    let trace = read(
        "
start: 2026-03-01T00:00:00Z
world: {apiLatency: exponential(30ms), startLatency: 2}
pods:
- name: web
  namespace: shop
  arrival: 2026-03-01T00:10:00Z
  every: 5s
  duration: lognormal(1h, 1)
  requests: {cpu: 500m, memory: 1Gi, example.com/gpu: 1}
  labels: {app: web}
  priority: 7
  count: 3
  gates: {x: 10m, y: 'end:job', z: quota}
  recreated: true
- {name: ring, group: ring, count: 4}
groups:
- {name: other, minimum: 2, topology: zone}
nodes:
- name: n
  count: 2
  resources: {cpu: 8, memory: 32Gi}
  taints: [gpu=true:NoSchedule]
  outages: [{at: 2h, for: 10m, drain: true}]
nodeGroups:
- {name: pool, resources: {cpu: 4}, maximum: 10, boot: 90s, idle: 5m, pricePerHour: 0.5}
capacityBuffers:
- {name: headroom, namespace: shop, requests: {cpu: 500m}, labels: {app: web}, nodeSelector: {disk: ssd}, replicas: 4}
quotas:
- {namespace: shop, hard: {requests.cpu: 10, pods: 5}}
generate:
- name: batch
  arrivals: {perHour: 20, peakHour: 14, swing: 0.8}
  until: 7d
  duration: exponential(10m)
  requests: {cpu: 'lognormal(500m, 1, 8)', memory: 1Gi}
",
    );
    let trace = trace.unwrap_or_else(|e| panic!("{e}"));
    let web = &trace.pods[0];
    assert_eq!(
        (web.arrival.as_secs(), web.count, web.every.as_secs()),
        (600, 3, 5)
    );
    assert_eq!(
        web.gates[1].removal,
        GateRemoval::Ended("default/job".into())
    );
    assert_eq!(
        trace.world.start_latency,
        Distribution::Constant(Duration::from_secs(2))
    );
    assert_eq!(trace.groups.len(), 2);
    assert_eq!(
        (trace.groups[1].name.as_str(), trace.groups[1].minimum),
        ("ring", 4)
    );
    assert_eq!(
        trace.nodes[0].outages[0].length,
        Some(Duration::from_secs(600))
    );
    assert_eq!(
        trace.node_groups[0].boot,
        Distribution::Constant(Duration::from_secs(90))
    );
    let buffer = &trace.buffers[0];
    assert_eq!(
        (buffer.namespace.as_str(), &*buffer.name, buffer.chunks),
        ("shop", "headroom", 4)
    );
    assert!(buffer.pod.spec.node_selector.is_some());
    assert!(trace.quotas[0].hard.get("cpu").is_some());
    assert_eq!(trace.generators[0].until, Duration::from_secs(7 * 86_400));
}

#[test]
fn mistakes_have_a_place_and_a_way_out() {
    for (text, wanted) in [
        (
            "pods:\n- name: a\n  arival: 5\n",
            &["line 3", "arival", "arrival"][..],
        ),
        (
            "pods:\n- name: a\n  duration: soon\n",
            &["line 3", "\"soon\" is no distribution"],
        ),
        (
            "nodes:\n- name: a\n  taints: [x]\n",
            &["line 3", "\"x\" is no taint"],
        ),
        ("pods:\n- arrival: 5\n", &["line 2", "name"]),
        (
            "pods:\n- {name: a, gates: {x: later}}\n",
            &["pods[0]", "\"later\" does not state"],
        ),
        (
            "generate:\n- {name: a, until: 1d, arrivals: {perHour: 0}}\n",
            &["generate[0]", "perHour"],
        ),
        (
            "nodeGroups:\n- {name: a, resources: {}, minimum: 3, maximum: 2}\n",
            &["nodeGroups[0]", "minimum 3"],
        ),
        (
            "capacityBuffers:\n- {name: a, requests: {cpu: 1}}\n",
            &["line 2", "replicas"],
        ),
        (
            "capacityBuffers:\n- {name: a, requests: {cpu: 1}, replicas: 1}\n- {name: b, replicas: 1}\n",
            &["capacityBuffers[1]", "requests or a template"],
        ),
        (
            "capacityBuffers:\n- {name: a, requests: {cpu: 1}, replicas: 10001}\n",
            &["capacityBuffers[0]", "at most 10000"],
        ),
        ("pods: [\n", &["line"]),
    ] {
        let error = read(text).expect_err(text).to_string();
        assert!(
            wanted.iter().all(|part| error.contains(part)),
            "{text:?}\n{error}"
        );
    }
}
