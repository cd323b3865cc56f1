//! Traces as YAML, and mistakes in them.

use super::*;
use crate::trace::{GRACE_PERIOD_ANNOTATION, GateRemoval};
use serde_json::json;

fn read_with_objects(text: &str) -> Result<YamlTrace, TextError> {
    read_yaml(text, &mut |path| Err(format!("there is no file {path}")))
}

fn read(text: &str) -> Result<Trace, TextError> {
    read_with_objects(text).map(|read| read.trace)
}

#[test]
fn objects_have_places() {
    let read = read_with_objects(
        "pods: [{name: a}]\nobjects:\n- apiVersion: v1\n  kind: Namespace\n- {kind: Pod, spec: {cpu: '1', on: true}}\n",
    );
    let read = read.unwrap_or_else(|e| panic!("{e}"));
    let of = |line, column, object| PlacedObject {
        line,
        column,
        object,
    };
    let objects = [
        of(3, 3, json!({"apiVersion": "v1", "kind": "Namespace"})),
        of(
            5,
            3,
            json!({"kind": "Pod", "spec": {"cpu": "1", "on": true}}),
        ),
    ];
    assert_eq!(read.objects, objects);
    assert_eq!(read.trace.pods.len(), 1);
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
  gracePeriod: 2m
- {name: ring, group: ring, count: 4, priorityClassName: high}
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
- name: gpus
  resources: {cpu: 4}
  maximum: 10
  resourceSlices:
  - driver: gpu.example.com
    devices:
    - {name: gpu-0, attributes: {model: {string: a100}}, capacity: {memory: {value: 40Gi}}}
    - name: gpu-1
  - driver: gpu.example.com
  - {driver: nic.example.com, devices: [{name: nic-0}]}
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
        web.pod.metadata.annotations.get(GRACE_PERIOD_ANNOTATION),
        Some("120")
    );
    assert_eq!(
        web.gates[1].removal,
        GateRemoval::Ended("default/job".into())
    );
    assert_eq!(
        trace.world.start_latency,
        Distribution::Constant(Duration::from_secs(2))
    );
    assert_eq!(trace.pods[1].pod.spec.priority_class_name, "high");
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
    let slices = trace.node_groups[1].slices.iter().map(|slice| {
        let spec = &slice.spec;
        (
            spec.driver.as_str(),
            spec.devices.len(),
            spec.pool.resource_slice_count,
        )
    });
    assert_eq!(
        slices.collect::<Vec<_>>(),
        [
            ("gpu.example.com", 2, 2),
            ("gpu.example.com", 0, 2),
            ("nic.example.com", 1, 1)
        ]
    );
    let gpu = &trace.node_groups[1].slices[0].spec.devices[0];
    assert_eq!(gpu.capacity["memory"].value.to_string(), "40Gi");
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
    for (text, expected) in [
        (
            "pods:\n- name: a\n  arival: 5\n",
            "line 3, column 3: unknown field \"arival\"; did you mean \"arrival\"?",
        ),
        (
            "world: {delay: 1s}\n",
            "line 1, column 9: unknown field \"delay\"; the fields are apiLatency, startLatency, recreateLatency",
        ),
        (
            "pods:\n- name: a\n  duration: soon\n",
            "line 3, column 13: \"soon\" is no distribution of durations; write a number of seconds, or units such as 90s, \
             1h30m, 2d12h, 20ms, or uniform(1m, 5m), exponential(10m), lognormal(1h, 1.2), empirical(1m, 5m, 2h)",
        ),
        (
            "pods:\n- {name: a, every: 5 minutes}\n",
            "line 2, column 20: \"5 minutes\" is no duration; write a number of seconds, or units such as 90s, 1h30m, \
             2d12h, 20ms",
        ),
        (
            "pods:\n- {name: a, count: -1}\n",
            "line 2, column 20: \"-1\" is no whole number from 0 to 4294967295",
        ),
        (
            "pods:\n- {name: a, gracePeriod: 500ms}\n",
            "line 2, column 26: the grace period \"500ms\" is no whole number of seconds; write one such as 90s",
        ),
        (
            "pods:\n- {name: a, recreated: maybe}\n",
            "line 2, column 24: \"maybe\" is neither true nor false",
        ),
        (
            "pods:\n- {name: a, requests: {cpu: -1}}\n",
            "line 2, column 29: \"-1\" is no amount; write a quantity such as 500m, 2 or 4Gi, at least 0",
        ),
        (
            "pods:\n- name: a\n  requests:\n    memroy: 1Gi\n",
            "line 4, column 5: unknown resource \"memroy\"; did you mean \"memory\"?",
        ),
        (
            "pods:\n- {name: a, requests: [cpu]}\n",
            "line 2, column 23: no mapping; write NAME: VALUE, one a line",
        ),
        (
            "pods: {name: a}\n",
            "line 1, column 7: no list; begin each item with a dash",
        ),
        (
            "pods:\n- {name: a, gates: {x: later}}\n",
            "line 2, column 24: \"later\" does not state when the gate is removed; write a time after the arrival such as \
             10m, a date, end:NAMESPACE/POD, or quota",
        ),
        (
            "pods:\n- {name: a, template: web.yaml}\n",
            "line 2, column 23: there is no file web.yaml",
        ),
        (
            "pods:\n- arrival: 5\n",
            "line 2, column 3: the item has no field \"name\"; add it",
        ),
        ("pods:\n- name:\n", "line 2, column 7: the value is missing"),
        (
            "pods:\n- {name: a, arrival: 1e300}\n",
            "line 2, column 22: the duration \"1e300\" is not between 0 and 200 years",
        ),
        (
            "generate:\n- {name: a, until: 1d, arrivals: {perHour: .nan}}\n",
            "line 2, column 44: the number is not finite",
        ),
        (
            "pods:\n- name: a\n  name: b\n",
            "line 3, column 3: the field \"name\" is given twice; remove one",
        ),
        (
            "pods:\n- name: a\n- name: b\n- name: a\n",
            "line 4, column 9: the name \"a\" is given in line 2 already; give each a name of its own",
        ),
        (
            "pods:\n- {name: a, count: 0}\n",
            "line 2, column 20: the count is 0; write at least 1, or remove the item",
        ),
        (
            "nodes:\n- {name: a, count: 0}\n",
            "line 2, column 20: the count is 0; write at least 1, or remove the item",
        ),
        (
            "pods:\n- {name: a, count: 2}\n- {name: a-2}\n- {name: a-01}\n- {name: a-1}\n",
            "line 5, column 10: the name \"a-1\" is one of the 2 names of \"a\" in line 2; give each a name of its own",
        ),
        (
            "pods:\n- {name: a-1}\n- {name: a, namespace: b, count: 2}\n- {name: a, count: 2}\n",
            "line 4, column 10: the name \"a-1\", one of the 2 names of \"a\", is given in line 2 already; give each a \
             name of its own",
        ),
        (
            "nodes:\n- {name: a, count: 3}\n- {name: a-0}\n",
            "line 3, column 10: the name \"a-0\" is one of the 3 names of \"a\" in line 2; give each a name of its own",
        ),
        (
            "pods:\n- {name: web-3}\ngenerate:\n- {name: web, until: 1d, arrivals: {perHour: 1}}\n",
            "line 4, column 10: the name \"web-3\", one of the numbered names of \"web\", is given in line 2 already; give \
             each a name of its own",
        ),
        (
            "nodes:\n- {name: pool, count: 2}\nnodeGroups:\n- {name: pool, resources: {cpu: 1}, maximum: 1}\n",
            "line 4, column 10: the name \"pool\" is given in line 2 already; give each a name of its own",
        ),
        (
            "nodeGroups:\n- {name: pool, resources: {cpu: 1}, maximum: 1}\n- {name: pool, resources: {cpu: 2}, maximum: 1}\n",
            "line 3, column 10: the name \"pool\" is given in line 2 already; give each a name of its own",
        ),
        (
            "groups:\n- {name: g, minimum: 1}\n- {name: g, minimum: 2}\n",
            "line 3, column 10: the name \"g\" is given in line 2 already; give each a name of its own",
        ),
        (
            "start: yesterday\n",
            "line 1, column 8: \"yesterday\" is no date; write one such as 2026-01-31T12:00:00Z",
        ),
        (
            "start: 2026-03-01T00:00:00Z\npods:\n- {name: a, arrival: 2026-02-01T00:00:00Z}\n",
            "line 3, column 22: the pod arrives before the start of the trace, 2026-03-01T00:00:00Z; write a later date, or \
             an earlier start",
        ),
        (
            "generate:\n- {name: a, until: 1d, arrivals: {perHour: 0}}\n",
            "line 2, column 44: \"0\" is not a rate above 0",
        ),
        (
            "generate:\n- {name: a, until: 1d, arrivals: {perHour: 5, peakHour: 99}}\n",
            "line 2, column 57: \"99\" is not an hour from 0 to 24",
        ),
        (
            "generate:\n- name: a\n  until: 1d\n  arrivals: {perHour: 5, swing: 0.5}\n",
            "line 4, column 33: arrivals.swing needs peakHour, the hour of the highest rate",
        ),
        (
            "generate:\n- name: a\n  until: 1d\n  arrivals: {perHour: 5, peakHour: 3, burstSize: 4}\n",
            "line 4, column 50: arrivals has peakHour and burstSize; give one of them",
        ),
        (
            "generate:\n- {name: a, from: 2d, until: 1d, arrivals: {perHour: 5}}\n",
            "line 2, column 30: until is not after from, so that no pod arrives; write a later time",
        ),
        (
            "generate:\n- {name: a, until: 1d, arrivals: {perHour: 5}, requests: {cpu: uniform(1, 2)}}\n",
            "line 2, column 64: \"uniform(1\" is no distribution of amounts; write an amount such as 500m, or \
             uniform(100m, 2), lognormal(500m, 1, 16), empirical(1, 2, 4, 8), in quotes where it has commas",
        ),
        (
            "nodes:\n- name: a\n  taints: [x]\n",
            "line 3, column 12: \"x\" is no taint; write KEY=VALUE:NoSchedule, or KEY:NoSchedule",
        ),
        (
            "nodes:\n- {name: a, pricePerHour: -1}\n",
            "line 2, column 27: \"-1\" is no price; write a number such as 1.25",
        ),
        (
            "nodes:\n- {name: a, joins: 2h, leaves: 1h}\n",
            "line 2, column 32: the node leaves no later than it joins, 2h after the start; write a later time",
        ),
        (
            "nodeGroups:\n- {name: a, resources: {}, minimum: 3, maximum: 2}\n",
            "line 2, column 37: the minimum 3 is above the maximum 2",
        ),
        (
            "nodeGroups:\n- name: a\n  resources: {}\n  maximum: 2\n  resourceSlices:\n  - {driver: d, pool: {name: a}}\n",
            "line 6, column 17: unknown field \"pool\"; the fields are driver, devices, sharedCounters",
        ),
        (
            "nodeGroups:\n- name: a\n  resources: {}\n  maximum: 2\n  resourceSlices:\n  - devices: [{name: a}]\n",
            "line 6, column 5: the item has no field \"driver\"; add it",
        ),
        (
            "capacityBuffers:\n- {name: a, replicas: 1}\n",
            "line 2, column 10: the chunks have no shape; give requests or a template",
        ),
        (
            "capacityBuffers:\n- {name: a, requests: {cpu: 1}, replicas: 10001}\n",
            "line 2, column 43: replicas is 10001; at most 10000 chunks are supported",
        ),
        (
            "quotas:\n- {namespace: a}\n",
            "line 2, column 4: the item has no field \"hard\"; add it",
        ),
        (
            "objects:\n- kind: Pod\n  kind: Node\n",
            "line 3, column 3: the field \"kind\" is given twice; remove one",
        ),
        (
            "pods: []\n---\nnodes: []\n",
            "line 3, column 1: a second document begins; a trace is one document, without ---",
        ),
        ("pods: [\n", "line 1, column 7: unclosed bracket '['"),
    ] {
        let error = read(text).expect_err(text).to_string();
        assert_eq!(error, expected, "{text}");
    }
}
