//! `berth replay --config` and `--emulated-version`: the model of a recording with other settings.

use super::{shown_max, specs, take_over};
use crate::cli::ReplayArgs;
use crate::upgrade;
use berth_api::{Str, Time};
use berth_edge::exit::CommandFailure;
use berth_edge::print::{self, Output, print_line};
use berth_edge::record::{options_with, recorded_gates, recorded_options, versions_of};
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use berth_recording::{
    Damage, Modelled, PodEnd, RecordedAnswers, RecordedRun, ReplayedTexts, RunEntries, Start, Stop,
    Until, Used, model, replay,
};
use berth_scheduler::Scheduler;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;

/// Runs the model with the recorded and another configuration, and prints the differences.
pub(super) fn compare(
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
    let shown = shown_max(args);
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
    undamaged(recorded.damage)
}

/// Runs the model with the recorded and another release of Kubernetes, and prints the differences and their causes.
pub(super) fn preview(
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
    let shown = shown_max(args);
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
    undamaged(damage)
}

/// Fails after a model that ended at a damage of the recording.
fn undamaged(damage: Option<Damage>) -> Result<(), CommandFailure> {
    match damage {
        Some(damage) => {
            print::complain(format_args!("the model ends at a damage: {damage}"));
            Err(CommandFailure::Check)
        }
        None => Ok(()),
    }
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
