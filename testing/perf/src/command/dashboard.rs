//! `berth perf dashboard`: what an open dashboard costs the scheduler, and how many bytes it receives.
//!
//! A core is filled with nodes, bound pods and waiting pods. Each question of the page is answered as for a browser: on
//! the thread of the core, during which nothing is scheduled, and then as compressed JSON on another thread.

use super::args::PerfDashboardArgs;
use berth_api::{Kind, Object, Time};
use berth_edge::dashboard::{self, HEAT_EVERY, PageQuestion, REFRESH, WaitingFilter};
use berth_edge::exit::CommandFailure;
use berth_edge::serve;
use berth_framework::registry::Registry;
use berth_scheduler::{ClusterChange, Scheduler, SchedulerOptions};
use http::{HeaderMap, HeaderValue, header};
use hyper::body::Body;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::time::{Duration, Instant};

/// The number of kinds of waiting pods, and how many gates.
const KINDS: usize = 50;
/// One in this number of waiting pods is gated.
const GATED_SHARE: usize = 5;
/// The time of the core.
const NOW: Time = Time::from_secs(1_800_000_000);

/// The cost of one question.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CostRow {
    question: &'static str,
    /// The interval at which an open page asks, in seconds; `None` for questions of the user.
    every_seconds: Option<f64>,
    /// On the thread of the core, in milliseconds.
    core_median_ms: f64,
    core_max_ms: f64,
    /// Encoding and compression on another thread, in milliseconds.
    encoding_median_ms: f64,
    bytes: u64,
    compressed_bytes: u64,
}

/// The costs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DashboardReport {
    nodes: usize,
    bound: usize,
    waiting: usize,
    rounds: usize,
    rows: Vec<CostRow>,
    /// The share of the core's time that open pages take, in percent: equal questions are answered once a second.
    core_percent: f64,
    /// The bytes that an open page receives, in bytes per second.
    bytes_per_second: f64,
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The median of sorted times.
fn median(sorted: &[Duration]) -> f64 {
    sorted
        .get(sorted.len() / 2)
        .map_or(0.0, |time| millis(*time))
}

impl fmt::Display for DashboardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} nodes, {} bound pods, {} waiting pods, {} rounds",
            self.nodes, self.bound, self.waiting, self.rounds
        )?;
        writeln!(
            f,
            "{:<34}{:>7}{:>16}{:>13}{:>15}{:>10}{:>12}",
            "question", "every", "core, median", "core, max", "encoding", "bytes", "compressed"
        )?;
        for row in &self.rows {
            let every = row.every_seconds;
            writeln!(
                f,
                "{:<34}{:>7}{:>13.2} ms{:>10.2} ms{:>12.2} ms{:>10}{:>12}",
                row.question,
                every.map_or_else(String::new, |seconds| format!("{seconds} s")),
                row.core_median_ms,
                row.core_max_ms,
                row.encoding_median_ms,
                row.bytes,
                row.compressed_bytes
            )?;
        }
        writeln!(
            f,
            "an open page takes {:.2} % of the core's thread and receives {:.0} bytes/s",
            self.core_percent, self.bytes_per_second
        )
    }
}

/// Objects of one kind, decoded as the watch of a cluster would.
fn decoded(kind: Kind, values: impl Iterator<Item = Value>) -> Result<Vec<Object>, CommandFailure> {
    let decode = |value: Value| {
        kind.decode(value.to_string().as_bytes())
            .map_err(CommandFailure::environment)
    };
    values.map(decode).collect()
}

fn node(at: usize) -> Value {
    json!({
        "metadata": {
            "name": node_name(at), "uid": format!("uid-node-{at}"),
            "labels": {"kubernetes.io/hostname": node_name(at), "topology.kubernetes.io/zone": format!("zone-{}", at % 3)},
        },
        "spec": {"unschedulable": at % 100 == 99},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
    })
}

/// A name of the length that cloud providers give.
fn node_name(at: usize) -> String {
    format!(
        "ip-10-{:03}-{:03}-007.eu-central-1.compute.example",
        at / 256,
        at % 256
    )
}

fn pod(name: &str, cpu: &str, more: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "team-blue", "uid": format!("uid-{name}"), "labels": {"app": "web"}},
        // Preemption is not tried: it would only lengthen the preparation.
        "spec": {
            "schedulerName": "default-scheduler", "preemptionPolicy": "Never",
            "containers": [{"name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": cpu}}}],
        },
    });
    more(&mut pod["spec"]);
    pod
}

/// A pod that fits on no node, or is gated.
fn waiting(at: usize) -> Value {
    let name = format!("service-{}-7d4b9c6f5d-{at:05}", at % KINDS);
    let kind = at % KINDS;
    pod(&name, &format!("{}", 20 + kind), |spec| {
        match at % GATED_SHARE {
            0 => {
                spec["schedulingGates"] =
                    json!([{"name": format!("example.com/gate-{}", at / GATED_SHARE % KINDS)}])
            }
            1 => spec["nodeSelector"] = json!({"disk": format!("kind-{kind}")}),
            _ => {}
        }
    })
}

/// A core that has tried every waiting pod once.
fn filled(args: &PerfDashboardArgs, registry: &Registry) -> Result<Scheduler, CommandFailure> {
    let scheduler = Scheduler::new(SchedulerOptions::default(), registry, NOW);
    let mut scheduler = scheduler.map_err(CommandFailure::usage)?;
    let nodes = decoded(Kind::Node, (0..args.nodes).map(node))?;
    scheduler.apply(ClusterChange::Replaced(Kind::Node, nodes), NOW);
    let bound = (0..args.bound).map(|at| {
        let on = node_name(at % args.nodes.max(1));
        pod(&format!("bound-{at:06}"), "100m", |spec| {
            spec["nodeName"] = on.into()
        })
    });
    let pods = decoded(Kind::Pod, bound.chain((0..args.pods).map(waiting)))?;
    scheduler.apply(ClusterChange::Replaced(Kind::Pod, pods), NOW);
    while scheduler.schedule_one(NOW).is_attempt() {
        for (id, _) in scheduler.take_outputs(NOW).calls {
            scheduler.complete(id, Ok(()), NOW);
        }
    }
    Ok(scheduler)
}

/// Answers a question `rounds` times.
fn measured(
    scheduler: &Scheduler,
    (name, question, every): (&'static str, &PageQuestion, Option<Duration>),
    rounds: usize,
) -> CostRow {
    let mut compressed = HeaderMap::new();
    compressed.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let later = NOW + Duration::from_secs(60);
    let (mut core, mut encoding) = (Vec::new(), Vec::new());
    let (mut bytes, mut compressed_bytes) = (0, 0);
    for _ in 0..rounds {
        let began = Instant::now();
        let answer = dashboard::answer(scheduler, question, later);
        core.push(began.elapsed());
        bytes = answer.to_string().len() as u64;
        let began = Instant::now();
        let sent = serve::data(Some(answer), &compressed);
        encoding.push(began.elapsed());
        compressed_bytes = sent.body().size_hint().lower();
    }
    core.sort_unstable();
    encoding.sort_unstable();
    CostRow {
        question: name,
        every_seconds: every.map(|every| every.as_secs_f64()),
        core_median_ms: median(&core),
        core_max_ms: core.last().map_or(0.0, |time| millis(*time)),
        encoding_median_ms: median(&encoding),
        bytes,
        compressed_bytes,
    }
}

/// Measures every question of the page.
///
/// # Errors
/// When the core cannot be filled.
pub(super) fn run(
    args: &PerfDashboardArgs,
    registry: &Registry,
) -> Result<DashboardReport, CommandFailure> {
    let scheduler = filled(args, registry)?;
    let example = format!("team-blue/{}", "service-1-7d4b9c6f5d-00001");
    // An open page asks for the first rows.
    let waiting = WaitingFilter {
        limit: 10,
        ..WaitingFilter::default()
    };
    let pods = PageQuestion::Pods {
        place: String::new(),
        from: 0,
    };
    let rows = [
        ("counts, rates, calls", PageQuestion::State, Some(REFRESH)),
        (
            "waiting pods by owner",
            PageQuestion::Waiting(waiting),
            Some(REFRESH),
        ),
        (
            "heat map",
            PageQuestion::Heat("cpu".to_owned()),
            Some(REFRESH * HEAT_EVERY),
        ),
        (
            "search of pods, owners and nodes",
            PageQuestion::Search("service-1".to_owned()),
            None,
        ),
        ("pods, a page of 100", pods, None),
        ("nodes as a table", PageQuestion::Nodes(0), None),
        ("a node", PageQuestion::Node(node_name(0)), None),
        ("a pod", PageQuestion::Pod(example), None),
    ];
    let rows: Vec<CostRow> = rows
        .iter()
        .map(|(name, question, every)| measured(&scheduler, (*name, question, *every), args.rounds))
        .collect();
    let per_second = |of: fn(&CostRow) -> f64| -> f64 {
        let asked = rows
            .iter()
            .filter_map(|row| Some((row, row.every_seconds?)));
        asked.map(|(row, every)| of(row) / every).sum()
    };
    Ok(DashboardReport {
        nodes: args.nodes,
        bound: args.bound,
        waiting: args.pods,
        rounds: args.rounds,
        core_percent: per_second(|row| row.core_median_ms) / 10.0,
        bytes_per_second: per_second(|row| row.compressed_bytes as f64),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each question has an answer about the pods and nodes, and an open page counts only what it asks for by itself.
    #[test]
    fn every_question_of_the_page_is_measured() {
        let args = PerfDashboardArgs {
            nodes: 20,
            pods: 300,
            bound: 100,
            rounds: 1,
            output: berth_edge::print::Output::Text,
        };
        let registry = berth_plugins::in_tree();
        let scheduler = filled(&args, &registry).expect("a core");
        let state = dashboard::answer(&scheduler, &PageQuestion::State, NOW);
        assert_eq!(state["queue"]["unschedulable"], 240, "{state:#}");
        assert_eq!(state["queue"]["gated"], 60);
        assert_eq!((&state["nodes"], &state["pods"]), (&20.into(), &400.into()));
        let report = run(&args, &registry).expect("a report");
        assert!(report.rows.iter().all(|row| row.bytes > 100), "{report}");
        let heat = report.rows.iter().find(|row| row.question == "heat map");
        assert_eq!(heat.and_then(|row| row.every_seconds), Some(6.0));
        let sent = report.rows.iter().filter(|row| row.every_seconds.is_some());
        let most: u64 = sent.map(|row| row.compressed_bytes).sum();
        assert!(report.bytes_per_second < most as f64, "{report}");
    }
}
