//! `berth simulate`: the core in a seeded world, judged by an independent checker.

use crate::cli::{Output, SimulateArgs};
use crate::exit::Failure;
use berth_scheduler::evaluator::EvaluatorKind;
use berth_simulator::{Script, Shrunk, Subject, Tally, run as play, shrink};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

/// How many runs the search for a short script may take.
const SHRINK_RUNS_MAX: usize = 2_000;

/// Runs the seeds one after another until one fails.
///
/// # Errors
/// When a run shows a violation; the seed and a short script are printed.
pub(crate) fn run(args: &SimulateArgs) -> Result<(), Failure> {
    let subject = Subject::in_tree().map_err(Failure::environment)?;
    let (first, count) = match args.seed {
        Some(seed) => (seed, 1),
        None => (0, args.seeds),
    };
    let bar = ProgressBar::new(count);
    if let Ok(style) = ProgressStyle::with_template("seeds {bar:30} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    let mut tally = Tally::default();
    for seed in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        let mut script = Script::draw(seed, args.steps, args.faults);
        if let Some(evaluator) = args.evaluator {
            script.evaluator = evaluator.into();
        }
        match play(&subject, &script) {
            Ok(of_run) => tally.add(&of_run),
            Err(failure) => {
                bar.finish_and_clear();
                let shrunk = shrink(&subject, &script, &failure, SHRINK_RUNS_MAX);
                report(args, seed, &failure, &shrunk);
                return Err(Failure::Check);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    match args.output {
        Output::Json => println!(
            "{}",
            json!({
                "seeds": count,
                "stepsPerSeed": args.steps,
                "violations": 0,
                "podsCreated": tally.pods_created,
                "attempts": tally.attempts,
                "bindings": tally.bindings,
                "calls": tally.calls,
                "faults": tally.faults,
                "restarts": tally.restarts,
                "failovers": tally.failovers,
                "refusedBindings": tally.refused,
                "volumeWrites": tally.volumes,
                "preemptions": tally.preemptions,
            })
        ),
        Output::Text => println!(
            "{count} seeds of {} steps without a violation: {} pods created, {} attempts, {} bindings, {} calls, \
             {} faults, {} restarts, {} fail-overs, {} refused bindings, {} preemptions",
            args.steps,
            tally.pods_created,
            tally.attempts,
            tally.bindings,
            tally.calls,
            tally.faults,
            tally.restarts,
            tally.failovers,
            tally.refused,
            tally.preemptions
        ),
    }
    Ok(())
}

fn report(args: &SimulateArgs, seed: u64, failure: &berth_simulator::Failure, shrunk: &Shrunk) {
    let mut again = format!(
        "berth simulate --seed {seed} --steps {} --faults {}",
        args.steps, args.faults
    );
    if let Some(evaluator) = args.evaluator {
        again += &format!(" --evaluator {}", EvaluatorKind::from(evaluator));
    }
    let script: Vec<String> = shrunk
        .script
        .steps
        .iter()
        .map(ToString::to_string)
        .collect();
    match args.output {
        Output::Json => println!(
            "{}",
            json!({
                "violations": 1,
                "seed": seed,
                "step": failure.step,
                "violation": failure.violation.to_string(),
                "again": again,
                "setting": shrunk.script.setting(),
                "shrunk": {"violation": shrunk.failure.violation.to_string(), "steps": script},
            })
        ),
        Output::Text => {
            println!("seed {seed}, step {}: {}", failure.step, failure.violation);
            println!("run it again: {again}");
            println!(
                "the shortest script found that shows it ({} steps, found in {} runs):",
                script.len(),
                shrunk.runs
            );
            println!("{shrunk}");
        }
    }
}
