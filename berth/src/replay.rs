//! `berth replay`: the core over a recording of its inputs.

use crate::cli::{ExplainedAt, ReplayArgs};
use crate::upgrade;
use berth_api::{Str, Time};
use berth_edge::exit::CommandFailure;
use berth_edge::print::Output;
use berth_edge::print::{self, print_line};
use berth_edge::record::{
    options_with, recorded_gates, recorded_options, recorded_reconfiguration, versions_of,
};
use berth_explain::{
    PodFacts, QueueFacts, Snapshot, explain_node, explain_pod, explain_queue, text,
};
use berth_framework::extender::{ExtenderSpec, Extenders};
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use berth_recording::{
    Entry, Follow, Modelled, PodEnd, RecordedAnswers, RecordedRun, ReplayDifference, Replayed,
    ReplayedTexts, RunEntries, Start, Stop, Until, Used, model, replay, runs,
};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::{Reconfiguration, Scheduler};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

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
    let shown_max = if args.diff {
        usize::MAX
    } else {
        DIFFERENCES_SHOWN
    };
    let mut texts = ReplayedTexts::default();
    let mut passes = 0;
    let (replayed, scheduler) = loop {
        let options = recorded_options(&start, None, registry)?;
        let mut scheduler =
            Scheduler::new(options, registry, now).map_err(CommandFailure::usage)?;
        let known = texts.len();
        let mut report = ReplayReport {
            differences: &mut differences,
            shown_max,
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

/// Runs the model with the recorded and another configuration, and prints the differences.
fn compare(
    args: &ReplayArgs,
    run: &RecordedRun,
    start: &Start,
    config: &Path,
    registry: &Registry,
) -> Result<(), CommandFailure> {
    let beginning = Time::from_nanos(start.at_nanos);
    let until = args.until.map(|until| until.time(beginning));
    let answers = recorded_answers(run, start, Some(config), registry)?;
    let modelled = |other: Option<&Path>| -> Result<Modelled, CommandFailure> {
        let mut options = recorded_options(start, other, registry)?;
        options.extenders = answers.answering(specs(&options.extenders));
        let scheduler = Scheduler::new(options, registry, beginning);
        let mut scheduler = scheduler.map_err(CommandFailure::usage)?;
        // The other configuration is one for the whole time.
        let mut follow = |scheduler: &mut Scheduler, text: &str, now: Time| {
            if other.is_none() {
                take_over(scheduler, text, registry, now);
            }
        };
        let entries = RunEntries::of(run);
        Ok(model(
            entries,
            &mut scheduler,
            beginning,
            until,
            &mut follow,
        ))
    };
    let recorded = modelled(None)?;
    let other = modelled(Some(config))?;
    let uids: BTreeSet<_> = recorded.pods.keys().chain(other.pods.keys()).collect();
    let mut differences = Vec::new();
    let mut elsewhere = 0;
    for uid in uids {
        let (one, two) = (recorded.pods.get(uid), other.pods.get(uid));
        let (Some(one), Some(two)) = (one, two) else {
            continue;
        };
        if (&one.node, one.evicted) == (&two.node, two.evicted) {
            continue;
        }
        let is_placed = |end: &PodEnd| !end.node.is_empty() && !end.evicted;
        if is_placed(one) && is_placed(two) {
            elsewhere += 1;
        }
        differences.push(format!(
            "{}: {}; with the other configuration {}",
            one.pod,
            end(one),
            end(two)
        ));
    }
    let report = |modelled: &Modelled| {
        let (mean, max) = modelled.waits();
        json!({
            "pods": modelled.pods.len(),
            "placed": modelled.placed(),
            "evicted": modelled.evicted(),
            "attempts": modelled.attempts,
            "nodesUsed": modelled.nodes_used.0,
            "nodes": modelled.nodes_used.1,
            "meanWaitMilliseconds": mean,
            "longestWaitMilliseconds": max,
        })
    };
    let used = answers.used();
    let shown = if args.diff {
        usize::MAX
    } else {
        DIFFERENCES_SHOWN
    };
    if args.output == Output::Json {
        print_line!(
            "{}",
            json!({
                "recorded": report(&recorded),
                "other": report(&other),
                "keptRecordedNodes": recorded.kept,
                "extenders": {
                    "answered": used.answered,
                    "unanswered": used.unanswered,
                    "unknownNodes": used.unknown_nodes,
                },
                "podsElsewhere": elsewhere,
                "podsDiffer": differences.len(),
                "differencesShown": &differences[..shown.min(differences.len())],
            })
        )?;
    } else {
        for difference in differences.iter().take(shown) {
            print_line!("{difference}")?;
        }
        if differences.len() > shown {
            print_line!(
                "… and {} further pods; --diff prints all",
                differences.len() - shown
            )?;
        }
        print_line!("{:<28}{:>14}{:>14}", "", "recorded", "other")?;
        let (one, two) = (report(&recorded), report(&other));
        for (title, key) in [
            ("pods", "pods"),
            ("placed", "placed"),
            ("evicted", "evicted"),
            ("attempts", "attempts"),
            ("nodes with pods at the end", "nodesUsed"),
            ("mean wait, ms", "meanWaitMilliseconds"),
            ("longest wait, ms", "longestWaitMilliseconds"),
        ] {
            print_line!(
                "{title:<28}{:>14}{:>14}",
                one[key].to_string(),
                two[key].to_string()
            )?;
        }
        print_line!(
            "{} pods differ, {elsewhere} of them are on another node",
            differences.len()
        )?;
        if recorded.kept > 0 {
            print_line!(
                "{} pods have claims and keep their recorded nodes",
                recorded.kept
            )?;
        }
        if used != Used::default() {
            print_line!(
                "extenders: {} questions have a recorded answer; {} have none and failed; {} nodes without a recorded \
                 answer count as rejected",
                used.answered,
                used.unanswered,
                used.unknown_nodes
            )?;
        }
    }
    match recorded.damage {
        Some(damage) => {
            print::complain(format_args!("the model ends at a damage: {damage}"));
            Err(CommandFailure::Check)
        }
        None => Ok(()),
    }
}

/// Runs the model with the recorded and another release of Kubernetes, and prints the differences and their causes.
fn preview(
    args: &ReplayArgs,
    run: &RecordedRun,
    start: &Start,
    version: &str,
    registry: &Registry,
) -> Result<(), CommandFailure> {
    let present = versions_of(start)?;
    let other = Versions::read(&[version.to_owned()], &[], present.emulated);
    let other = other.map_err(CommandFailure::usage)?;
    let gates = (
        recorded_gates(start, present)?,
        recorded_gates(start, other)
            .map_err(|failure| upgrade::refused(other.emulated, failure))?,
    );
    let beginning = Time::from_nanos(start.at_nanos);
    let until = args.until.map(|until| until.time(beginning));
    let answers = recorded_answers(run, start, None, registry)?;
    let mut kept = 0;
    let mut damage = None;
    let preview = upgrade::compare(gates.0, gates.1, |gates| {
        let mut options = options_with(start, gates, None, registry)?;
        options.extenders = answers.answering(specs(&options.extenders));
        let scheduler = Scheduler::new(options, registry, beginning);
        let mut scheduler = scheduler.map_err(CommandFailure::usage)?;
        let mut follow = |scheduler: &mut Scheduler, text: &str, now: Time| {
            take_over(scheduler, text, registry, now);
        };
        let entries = RunEntries::of(run);
        let modelled = model(entries, &mut scheduler, beginning, until, &mut follow);
        kept = modelled.kept;
        damage = modelled.damage;
        let outcome = |(uid, pod): (Str, PodEnd)| (uid.to_string(), (pod.pod.clone(), end(&pod)));
        Ok(modelled.pods.into_iter().map(outcome).collect())
    })?;
    let shown = if args.diff {
        usize::MAX
    } else {
        DIFFERENCES_SHOWN
    };
    match args.output {
        Output::Json => {
            let mut report = preview.json(shown);
            report["keptRecordedNodes"] = kept.into();
            print_line!("{report}")?;
        }
        Output::Text => {
            preview.print(shown)?;
            if kept > 0 {
                print_line!("{kept} pods have claims and keep their recorded nodes")?;
            }
        }
    }
    match damage {
        Some(damage) => {
            print::complain(format_args!("the model ends at a damage: {damage}"));
            Err(CommandFailure::Check)
        }
        None => Ok(()),
    }
}

/// The configurations of extenders.
pub(crate) fn specs(extenders: &Extenders) -> Vec<ExtenderSpec> {
    let extenders = (0..).map_while(|at| extenders.get(at));
    extenders.map(|extender| extender.spec().clone()).collect()
}

/// The recorded answers of the extenders: a replay asks the questions again.
fn recorded_answers(
    run: &RecordedRun,
    start: &Start,
    config: Option<&Path>,
    registry: &Registry,
) -> Result<RecordedAnswers, CommandFailure> {
    let mut answers = RecordedAnswers::default();
    let mut options = recorded_options(start, None, registry)?;
    let recorded = specs(&options.extenders);
    let other = specs(&recorded_options(start, config, registry)?.extenders);
    for spec in recorded.iter().chain(&other) {
        let url = &spec.name;
        // Both configurations are checked: each would need answers that the recording cannot have.
        if spec.binds || spec.preempts {
            return Err(CommandFailure::Usage(format!(
                "extender {url}: its answers to bindVerb and preemptVerb depend on earlier decisions, so a comparison \
                 cannot use them; remove the verbs, or the extender, from both configurations"
            )));
        }
        if !recorded.iter().any(|known| known.name == *url) {
            return Err(CommandFailure::Usage(format!(
                "extender {url}: the recording contains no answers of it; remove it from the configuration"
            )));
        }
    }
    if recorded.is_empty() {
        return Ok(answers);
    }
    // Questions are numbered from the beginning of the run.
    if run.files[0].0 > 0 {
        return Err(CommandFailure::Usage(format!(
            "the beginning of run {} was removed, and without it the answers of extenders cannot be assigned to pods",
            run.id
        )));
    }
    let now = Time::from_nanos(start.at_nanos);
    options.extenders = answers.asked(recorded);
    let mut scheduler = Scheduler::new(options, registry, now).map_err(CommandFailure::usage)?;
    let (until, mut texts) = (Until::default(), ReplayedTexts::default());
    let entries = RunEntries::of(run).skip(1);
    let replayed = replay(entries, &mut scheduler, &until, &mut texts, &mut answers);
    if let Stop::Configuration(entry, _) = replayed.stop {
        return Err(CommandFailure::Usage(format!(
            "another configuration was taken over at entry {entry}, and the answers of extenders after it cannot be \
             assigned to pods; record again with the configuration that is to be compared"
        )));
    }
    Ok(answers)
}

/// The last place of a pod, in words.
fn end(end: &PodEnd) -> String {
    match (end.node.as_str(), end.evicted) {
        ("", true) => "evicted".to_owned(),
        ("", false) if end.message.is_empty() => "not placed".to_owned(),
        ("", false) => format!("not placed: {}", end.message),
        (node, true) => format!("evicted from {node}"),
        (node, false) => format!("on {node}"),
    }
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

/// The subject of a report.
struct ReportSubject<'a> {
    run: &'a RecordedRun,
    start: &'a Start,
    differences: &'a [String],
    pod: Option<&'a str>,
}

fn stop_text(stop: &Stop, pod: Option<&str>) -> String {
    match stop {
        Stop::End | Stop::Killed if pod.is_some() => {
            format!(
                "at the end of the recording: no decision about {}",
                pod.unwrap_or_default()
            )
        }
        Stop::End => "at the end of the recording".to_owned(),
        Stop::Killed => "at the last complete block: the recorded process was killed, and up to a second of inputs is \
                         missing"
            .to_owned(),
        Stop::Until => "as requested with --until".to_owned(),
        Stop::Pod(pod) => format!("at the first decision about {pod}"),
        Stop::Damage(damage) => format!("at a damage: {damage}"),
        Stop::Gap(dropped) => format!(
            "at a gap: the recorder could not keep up and dropped {dropped} inputs; later entries cannot be replayed"
        ),
        Stop::Configuration(entry, reason) => format!(
            "at entry {entry}: the configuration that was taken over there cannot be used: {reason}"
        ),
        Stop::OpaqueJob(entry) => format!(
            "at entry {entry}: a plugin's job returned a value of the plugin's own type, which a recording cannot contain"
        ),
    }
}

fn print_text(
    asked: &ReportSubject<'_>,
    replayed: &Replayed,
    scheduler: &Scheduler,
) -> Result<(), CommandFailure> {
    for difference in asked.differences {
        print_line!("{difference}")?;
    }
    let hidden = replayed.differences - asked.differences.len() as u64;
    if hidden > 0 {
        print_line!("… and {hidden} further differences; --diff prints all")?;
    }
    let Replayed {
        entries,
        inputs,
        decisions,
        placed,
        unschedulable,
        calls,
        differences,
        times,
        stop,
    } = replayed;
    print_line!(
        "recording   run {}, Berth {}, seed {}, evaluator {}{}",
        asked.run.id,
        asked.start.version,
        asked.start.seed,
        asked.start.evaluator,
        if asked.start.pseudonyms {
            ", names are pseudonyms"
        } else {
            ""
        }
    )?;
    if let Some((first, last)) = times {
        let span = last.since(*first).as_secs_f64();
        print_line!(
            "time        {} to {} ({span:.3} s)",
            first.rfc3339_micros(),
            last.rfc3339_micros()
        )?;
    }
    print_line!("entries     {entries}, of which {inputs} are inputs")?;
    print_line!("decisions   {decisions}: {placed} placed, {unschedulable} unschedulable")?;
    print_line!("calls       {calls}")?;
    match differences {
        0 => print_line!("comparison  every decision and call is the recorded one")?,
        n => print_line!("comparison  {n} decisions and calls differ from the recorded ones")?,
    }
    print_line!("stopped     {}", stop_text(stop, asked.pod))?;
    let places = waiting(scheduler);
    print_line!(
        "pods then   {} active, {} in backoff, {} unschedulable, {} gated, {} being bound",
        places[0],
        places[1],
        places[2],
        places[3],
        scheduler.bindings_in_flight()
    )?;
    if let Stop::Pod(pod) = stop {
        print_line!()?;
        print_line!("{pod}")?;
        match scheduler.cache().assumed_on(&pod.uid) {
            Some(node) => print_line!("  placed on {node}")?,
            None => print_line!("  has no node")?,
        }
        if let Some(explanation) = scheduler.explanation(&pod.uid) {
            print_line!(
                "  attempt {}: {}",
                explanation.attempts,
                explanation.message
            )?;
            for reason in &explanation.reasons {
                let examples: Vec<&str> = reason.examples.iter().map(|n| n.as_str()).collect();
                print_line!(
                    "  {:>6} nodes  {} ({}), such as {}",
                    reason.nodes,
                    reason.text,
                    reason.plugin,
                    examples.join(", ")
                )?;
            }
        }
    }
    Ok(())
}

/// The numbers of pods that are active, in backoff, unschedulable and gated.
fn waiting(scheduler: &Scheduler) -> [usize; 4] {
    let mut counts = [0; 4];
    for (place, _) in scheduler.queue().places().pods() {
        let at = match place {
            QueuedIn::Active => 0,
            QueuedIn::Backoff | QueuedIn::ErrorBackoff => 1,
            QueuedIn::Unschedulable => 2,
            QueuedIn::Gated => 3,
        };
        counts[at] += 1;
    }
    counts
}

fn in_json(asked: &ReportSubject<'_>, replayed: &Replayed, scheduler: &Scheduler) -> Value {
    let [active, backoff, unschedulable, gated] = waiting(scheduler);
    let time = |time: Time| time.rfc3339_micros();
    json!({
        "run": asked.run.id,
        "version": asked.start.version,
        "seed": asked.start.seed,
        "evaluator": asked.start.evaluator,
        "pseudonyms": asked.start.pseudonyms,
        "from": replayed.times.map(|(first, _)| time(first)),
        "to": replayed.times.map(|(_, last)| time(last)),
        "entries": replayed.entries,
        "inputs": replayed.inputs,
        "decisions": replayed.decisions,
        "placed": replayed.placed,
        "unschedulable": replayed.unschedulable,
        "calls": replayed.calls,
        "differences": replayed.differences,
        "differencesShown": asked.differences,
        "complete": replayed.stop == Stop::End,
        "stopped": stop_text(&replayed.stop, asked.pod),
        "queue": {"active": active, "backoff": backoff, "unschedulable": unschedulable, "gated": gated},
    })
}
