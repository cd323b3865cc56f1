//! API servers that answer slowly, and the client's own limit on requests.

use super::faults::Exchange;
use super::outages::behind_proxy;
use super::{config, create_pods, ready, scheduler};
use crate::e2e::server::{Server, on_each};
use crate::e2e::watch_log::WatchLog;
use crate::e2e::{Running, eventually};
use std::time::Duration;

const ALONE: &str = "--leader-elect=false";
const LATENCY: Duration = Duration::from_millis(200);
/// More memory than a scheduler of these clusters needs, in bytes.
const MEMORY_MAX: f64 = 300e6;

/// Pods that fit, as many that do not, and whether limits of time are asserted.
struct Load {
    nodes: usize,
    pods_per_node: usize,
    unschedulable: usize,
    is_timed: bool,
}

/// Seconds of the scheduling loop for each attempt so far, and attempts.
fn loop_time(scheduler: &Running) -> (f64, f64) {
    let name = "scheduler_scheduling_algorithm_duration_seconds";
    let of = |part: &str| scheduler.metric(&format!("{name}_{part}"), "");
    (of("sum"), of("count"))
}

/// The requests of the scheduler's main client from the first to the last binding, the number of bindings among them,
/// and the elapsed time.
fn while_bindings_waited(log: &[Exchange]) -> (usize, usize, Duration) {
    let bindings: Vec<_> = log.iter().filter(|e| e.is_binding()).collect();
    let first = bindings.iter().map(|e| e.began).min();
    let last = bindings.iter().map(|e| e.began).max();
    let (first, last) = first.zip(last).expect("bindings");
    // Events have a separate limit.
    let meanwhile = log.iter().filter(|e| {
        let is_event = e.path.contains("/events");
        !is_event && (first..=last).contains(&e.began)
    });
    (
        meanwhile.count(),
        bindings.len(),
        last.duration_since(first),
    )
}

fn is_slow(server: &Server, load: &Load) {
    let (proxy, kubeconfig) = behind_proxy(server);
    let pods = load.nodes * load.pods_per_node;
    // The slow phase is between two others, so that other load of the machine is visible.
    let phases = [
        ("before", Duration::ZERO),
        ("slow", LATENCY),
        ("after", Duration::ZERO),
    ];
    server.create_nodes(phases.len() * load.nodes, load.pods_per_node);
    let log = WatchLog::start(&server.api);
    let scheduler = scheduler(&kubeconfig, &[ALONE, &config(server, 5_000, 10_000)]);
    ready(&scheduler);
    let mut micros = [0.0; 3];
    for (phase, (name, latency)) in phases.into_iter().enumerate() {
        proxy.delay(latency);
        let (before, began) = (proxy.log().len(), loop_time(&scheduler));
        create_pods(&server.api, name, pods, "1m");
        create_pods(
            &server.api,
            &format!("{name}-large"),
            load.unschedulable,
            "64",
        );
        eventually("every pod is bound", || {
            (log.bound() >= (phase + 1) * pods).then_some(())
        });
        eventually("every other one was tried", || {
            let tried = loop_time(&scheduler).1 - began.1;
            (tried as usize >= pods + load.unschedulable).then_some(())
        });
        let ended = loop_time(&scheduler);
        micros[phase] = (ended.0 - began.0) / (ended.1 - began.1) * 1e6;
        let (meanwhile, bindings, took) = while_bindings_waited(&proxy.log()[before..]);
        eprintln!(
            "{} with {latency:?} of latency: scheduling loop {:.0} µs for each attempt; {bindings} bindings of {meanwhile} \
             requests in {took:?}",
            server.name, micros[phase]
        );
    }
    log.assert_each_bound_once(phases.len() * pods, load.pods_per_node);
    let memory = scheduler.metric("process_resident_memory_bytes", "");
    eprintln!("{}: {:.0} MB", server.name, memory / 1e6);
    let [before, slow, after] = micros;
    // A loop that waited for one request would take ten times as long.
    assert!(slow < LATENCY.as_micros() as f64 / 10.0, "{slow} µs");
    assert!(memory < MEMORY_MAX, "{memory} bytes");
    if load.is_timed {
        assert!(slow < 2.0 * before.max(after), "{micros:?} µs");
    }
}

#[test]
fn the_scheduling_loop_does_not_wait_for_a_slow_api_server() {
    let load = Load {
        nodes: 10,
        pods_per_node: 20,
        unschedulable: 50,
        is_timed: false,
    };
    on_each("slow", |server| is_slow(server, &load));
}

#[test]
#[ignore = "long, and with limits of time; a step of .ci/run"]
fn the_scheduling_loop_takes_as_long_with_a_slow_api_server() {
    let load = Load {
        nodes: 50,
        pods_per_node: 60,
        unschedulable: 1_000,
        is_timed: true,
    };
    on_each("slow-full", |server| is_slow(server, &load));
}

fn is_limited(server: &Server, load: &Load) {
    const QPS: u32 = 50;
    let (proxy, kubeconfig) = behind_proxy(server);
    let pods = load.nodes * load.pods_per_node;
    server.create_nodes(load.nodes, load.pods_per_node);
    let log = WatchLog::start(&server.api);
    // In turn, so that status patches and events wait from the beginning.
    for part in 0..10 {
        create_pods(
            &server.api,
            &format!("large-{part}"),
            load.unschedulable / 10,
            "64",
        );
        create_pods(&server.api, &format!("p-{part}"), pods / 10, "1m");
    }
    let scheduler = scheduler(&kubeconfig, &[ALONE, &config(server, QPS, 10)]);
    eventually("every pod is bound", || (log.bound() >= pods).then_some(()));
    log.assert_each_bound_once(pods, load.pods_per_node);
    let waiting = scheduler.metric("scheduler_pending_async_api_calls", "");
    let memory = scheduler.metric("process_resident_memory_bytes", "");
    let (meanwhile, bindings, took) = while_bindings_waited(&proxy.log());
    let rate = (bindings - 1) as f64 / took.as_secs_f64();
    eprintln!(
        "{}: {bindings} bindings of {meanwhile} requests in {took:?}, {rate:.1} bindings/s; {waiting} calls wait; {:.0} MB",
        server.name,
        memory / 1e6
    );
    assert!(waiting > 0.0, "status patches wait");
    // 45 of 50.
    assert!(bindings * 10 >= meanwhile * 9, "{bindings} of {meanwhile}");
    assert!(memory < MEMORY_MAX, "{memory} bytes");
    if load.is_timed {
        assert!(rate >= 45.0, "{rate} bindings a second");
    }
}

#[test]
fn bindings_get_nine_tenths_of_a_limited_client() {
    let load = Load {
        nodes: 10,
        pods_per_node: 20,
        unschedulable: 200,
        is_timed: false,
    };
    on_each("limited", |server| is_limited(server, &load));
}

#[test]
#[ignore = "long, and with limits of time; a step of .ci/run"]
fn fifty_requests_a_second_are_45_bindings() {
    let load = Load {
        nodes: 50,
        pods_per_node: 40,
        unschedulable: 3_000,
        is_timed: true,
    };
    on_each("limited-full", |server| is_limited(server, &load));
}
