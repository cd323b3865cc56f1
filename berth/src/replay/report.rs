//! The report about a replay, as text and as JSON.

use berth_api::Time;
use berth_edge::exit::CommandFailure;
use berth_edge::print::print_line;
use berth_recording::{RecordedRun, Replayed, Start, Stop};
use berth_scheduler::Scheduler;
use berth_scheduler::queue::QueuedIn;
use serde_json::{Value, json};

/// The subject of a report.
pub(super) struct ReportSubject<'a> {
    pub(super) run: &'a RecordedRun,
    pub(super) start: &'a Start,
    pub(super) differences: &'a [String],
    pub(super) pod: Option<&'a str>,
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

pub(super) fn print_text(
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

pub(super) fn in_json(
    asked: &ReportSubject<'_>,
    replayed: &Replayed,
    scheduler: &Scheduler,
) -> Value {
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
