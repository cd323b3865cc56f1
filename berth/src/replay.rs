//! `berth replay`: the core over a recording of its inputs.

mod compare;
mod report;

use crate::cli::{ExplainedAt, ReplayArgs};
use berth_api::Time;
use berth_edge::exit::CommandFailure;
use berth_edge::print::{self, Output, print_line};
use berth_edge::record::{recorded_gates, recorded_options, recorded_reconfiguration, versions_of};
use berth_explain::{
    PodFacts, QueueFacts, Snapshot, explain_node, explain_pod, explain_queue, text,
};
use berth_framework::extender::{ExtenderSpec, Extenders};
use berth_framework::registry::Registry;
use berth_recording::{
    Entry, Follow, RecordedRun, ReplayDifference, ReplayedTexts, RunEntries, Start, Stop, Until,
    replay, runs,
};
use berth_scheduler::{Reconfiguration, Scheduler};
use compare::{compare, preview};
use report::{ReportSubject, in_json, print_text};
use serde_json::Value;

/// The number of differences that are printed without `--diff`.
const DIFFERENCES_SHOWN: usize = 10;
/// The number of times that a recording with pseudonyms is replayed to find the texts that pods had when it began.
const PASSES_MAX: usize = 4;

/// Replays a recording.
///
/// # Errors
/// There is no recording, it is damaged, or the core decides differently.
pub(crate) fn run(args: &ReplayArgs, registry: &Registry) -> Result<(), CommandFailure> {
    let all = runs(&args.dir).map_err(CommandFailure::usage)?;
    let run = chosen(&all, args.run)?;
    let mut entries = RunEntries::of(run);
    let start = match entries.next() {
        Some(Ok(first)) => match first.entry {
            Entry::Start(start) => *start,
            _ => {
                return Err(CommandFailure::usage(
                    "the recording does not begin with the options of a scheduler",
                ));
            }
        },
        Some(Err(damage)) => return Err(CommandFailure::usage(damage)),
        None => return Err(CommandFailure::usage("the recording is empty")),
    };
    if let Some(config) = &args.config {
        return compare(args, run, &start, config, registry);
    }
    if let Some(version) = &args.emulated_version {
        return preview(args, run, &start, version, registry);
    }
    if run.files[0].0 > 0 {
        return Err(CommandFailure::Usage(format!(
            "the beginning of run {} was removed because the recording reached its limit of bytes: a replay needs the \
             first file; record with a larger --record-max-bytes",
            run.id
        )));
    }
    let now = Time::from_nanos(start.at_nanos);
    let until = Until {
        time: args.until.map(|until| until.time(now)),
        entry: None,
        pod: args.break_at.clone(),
    };
    let mut differences: Vec<String> = Vec::new();
    let mut texts = ReplayedTexts::default();
    let mut passes = 0;
    let (replayed, scheduler) = loop {
        let options = recorded_options(&start, None, registry)?;
        let mut scheduler =
            Scheduler::new(options, registry, now).map_err(CommandFailure::usage)?;
        let known = texts.len();
        let mut report = ReplayReport {
            differences: &mut differences,
            shown_max: shown_max(args),
            start: &start,
            registry,
        };
        let entries = RunEntries::of(run).skip(1);
        let replayed = replay(entries, &mut scheduler, &until, &mut texts, &mut report);
        passes += 1;
        // The core compares the texts that pods have with its own ones, which are known after a replay.
        let is_over = replayed.differences == 0 || texts.len() == known || passes == PASSES_MAX;
        if is_over || !start.pseudonyms {
            break (replayed, scheduler);
        }
        differences.clear();
    };
    let asked = ReportSubject {
        run,
        start: &start,
        differences: &differences,
        pod: args.break_at.as_deref(),
    };
    let at = replayed.times.map_or(now, |(_, last)| last);
    let explained = args
        .explain
        .as_ref()
        .map(|what| explained(&scheduler, what, at));
    let explained = explained.transpose()?;
    match args.output {
        Output::Text => {
            print_text(&asked, &replayed, &scheduler)?;
            if let Some((_, text)) = &explained {
                print_line!()?;
                print::text(text)?;
            }
        }
        Output::Json => {
            let mut report = in_json(&asked, &replayed, &scheduler);
            if let Some((answer, _)) = explained {
                report["explanation"] = answer;
            }
            print_line!("{report}")?;
        }
    }
    match (&replayed.stop, replayed.differences) {
        (Stop::End | Stop::Killed | Stop::Until | Stop::Pod(_), 0) => Ok(()),
        _ => Err(CommandFailure::Check),
    }
}

/// The number of differences to print.
fn shown_max(args: &ReplayArgs) -> usize {
    if args.diff {
        usize::MAX
    } else {
        DIFFERENCES_SHOWN
    }
}

/// Collects the differences of a replay, which follows the configurations that were taken over.
struct ReplayReport<'a> {
    differences: &'a mut Vec<String>,
    shown_max: usize,
    start: &'a Start,
    registry: &'a Registry,
}

impl Follow for ReplayReport<'_> {
    fn differs(&mut self, difference: &ReplayDifference) {
        if self.differences.len() < self.shown_max {
            self.differences.push(difference.to_string());
        }
    }

    fn reconfiguration(
        &mut self,
        configuration: &str,
    ) -> Result<(Reconfiguration, Registry), String> {
        let features = versions_of(self.start)
            .and_then(|versions| recorded_gates(self.start, versions))
            .map_err(|failure| failure.text().to_owned())?;
        let new = recorded_reconfiguration(configuration, features, self.registry)?;
        Ok((new, self.registry.clone()))
    }
}

/// Applies a recorded configuration to a modelled scheduler.
fn take_over(scheduler: &mut Scheduler, configuration: &str, registry: &Registry, now: Time) {
    let features = *scheduler.features();
    let taken_over = recorded_reconfiguration(configuration, features, registry).and_then(|new| {
        scheduler
            .reconfigure(&new, registry, now)
            .map_err(|e| e.to_string())
    });
    if let Err(reason) = taken_over {
        tracing::warn!(
            reason,
            "the recorded scheduler took over a configuration that the modelled one cannot take over; it keeps its own"
        );
    }
}

/// Explains a pod, a node or the queue in the state of the scheduler, as JSON and as text.
fn explained(
    scheduler: &Scheduler,
    what: &ExplainedAt,
    at: Time,
) -> Result<(Value, String), CommandFailure> {
    fn both<T: serde::Serialize>(answer: &T, text: fn(&T) -> String) -> (Value, String) {
        let json = serde_json::to_vec(answer).unwrap_or_default();
        (
            serde_json::from_slice(&json).unwrap_or_default(),
            text(answer),
        )
    }
    let unknown = |what: String| {
        CommandFailure::Usage(format!(
            "--explain: there is no {what} at {}; give another time with --until",
            at.rfc3339_micros()
        ))
    };
    match what {
        ExplainedAt::Pod(namespace, name) => {
            // Only the knowledge of the scheduler at that time can be explained.
            let facts = PodFacts::take(scheduler, namespace, name);
            let facts = facts.ok_or_else(|| unknown(format!("pod {namespace}/{name}")))?;
            let answer = explain_pod(&mut Snapshot::take(scheduler, at), &facts);
            Ok(both(&answer, text::pod))
        }
        ExplainedAt::Node(name) => {
            let queue = QueueFacts::take(scheduler, at);
            let answer = explain_node(&mut Snapshot::take(scheduler, at), &queue, name);
            let answer = answer.ok_or_else(|| unknown(format!("node {name}")))?;
            Ok(both(&answer, text::node))
        }
        ExplainedAt::Queue => {
            let answer = explain_queue(&QueueFacts::take(scheduler, at));
            Ok(both(&answer, text::queue))
        }
    }
}

/// The configurations of extenders.
pub(crate) fn specs(extenders: &Extenders) -> Vec<ExtenderSpec> {
    let extenders = (0..).map_while(|at| extenders.get(at));
    extenders.map(|extender| extender.spec().clone()).collect()
}

pub(crate) fn chosen(
    all: &[RecordedRun],
    wanted: Option<u64>,
) -> Result<&RecordedRun, CommandFailure> {
    let ids = || {
        let ids = all.iter().map(|run| run.id.to_string());
        ids.collect::<Vec<_>>().join(", ")
    };
    match wanted {
        Some(id) => all.iter().find(|run| run.id == id).ok_or_else(|| {
            CommandFailure::Usage(format!("there is no run {id}; the runs are {}", ids()))
        }),
        None => {
            if all.len() > 1 {
                print::remark(format_args!(
                    "runs {}; replaying the last one, choose another with --run",
                    ids()
                ));
            }
            all.last()
                .ok_or_else(|| CommandFailure::usage("there is no recording"))
        }
    }
}
