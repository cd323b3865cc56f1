//! `berth campaign`: the core in a seeded world, judged by an independent checker.

use crate::cli::CampaignArgs;
use berth_edge::exit::CommandFailure;
use berth_edge::print::Output;
use berth_edge::print::{self, print_line};
use berth_simulator::{Campaign, FailingSeed, Progress, Subject, Tally, notify};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};

/// The number of seeds that are run by default.
const SEEDS: u64 = 100;
/// Random seeds are below this bound, so that they are short enough to be read and typed.
const RANDOM_SEED_BOUND: u64 = 1 << 40;

/// Runs the seeds until one fails.
///
/// # Errors
/// When a run shows a violation; the seed and a short script are printed.
pub(crate) fn run(args: &CampaignArgs) -> Result<(), CommandFailure> {
    let subject = Subject::in_tree().map_err(CommandFailure::environment)?;
    let campaign = campaign_of(args);
    if args.random {
        let (first, seeds) = (campaign.first, campaign.seeds);
        print::remark(format_args!(
            "seeds {first} to {}",
            first + seeds.max(1) - 1
        ));
    }
    if args.trace {
        // The result is computed again below.
        let mut listener = |line: &str| print::remark(line);
        let _ = notify(&subject, &campaign.script(campaign.first), &mut listener);
    }
    let bar = ProgressBar::new(campaign.seeds);
    if let Ok(style) = ProgressStyle::with_template("seeds {bar:30} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    let outcome = campaign.play(&subject, |progress| match progress {
        Progress::Passed(_) => bar.inc(1),
        Progress::Slow(seed) => {
            bar.suspend(|| print::remark(format_args!("seed {seed} takes very long")))
        }
        // Should the search for a short script be cut off, this much is known.
        Progress::Failed(seed, failure) => {
            bar.suspend(|| print::remark(format_args!("seed {seed}, {failure}")))
        }
    });
    bar.finish_and_clear();
    match (&outcome, args.output) {
        (Ok(tally), Output::Text) => print_line!("{}", in_words(&campaign, tally)),
        (Ok(tally), Output::Json) => print_line!("{}", in_json(&campaign, tally)),
        (Err(found), Output::Text) => print_line!("{found}"),
        (Err(found), Output::Json) => print_line!("{}", failure_in_json(found)),
    }?;
    outcome.map(|_| ()).map_err(|_| CommandFailure::Check)
}

fn campaign_of(args: &CampaignArgs) -> Campaign {
    let alone = if args.seed.is_some() { 1 } else { SEEDS };
    let first = if args.random {
        RandomState::new().hash_one(()) % RANDOM_SEED_BOUND
    } else {
        0
    };
    Campaign {
        first: args.seed.unwrap_or(first),
        seeds: args.seeds.unwrap_or(alone),
        steps: args.steps,
        faults: args.faults,
        evaluator: args.evaluator.map(Into::into),
        threads: args.threads,
        ..Campaign::default()
    }
}

fn in_words(campaign: &Campaign, tally: &Tally) -> String {
    let numbers = tally.named().into_iter();
    let numbers: Vec<String> = numbers
        .map(|(what, _, count)| format!("{count} {what}"))
        .collect();
    format!(
        "{} seeds of {} steps without a violation: {}",
        campaign.seeds,
        campaign.steps,
        numbers.join(", ")
    )
}

fn in_json(campaign: &Campaign, tally: &Tally) -> Value {
    let mut report = json!({
        "firstSeed": campaign.first,
        "seeds": campaign.seeds,
        "stepsPerSeed": campaign.steps,
        "faults": campaign.faults.to_string(),
        "violations": 0,
    });
    for (_, key, count) in tally.named() {
        report[key] = json!(count);
    }
    report
}

fn failure_in_json(found: &FailingSeed) -> Value {
    let shrunk = &found.shrunk;
    let script: Vec<String> = shrunk
        .script
        .steps
        .iter()
        .map(ToString::to_string)
        .collect();
    json!({
        "violations": 1,
        "seed": found.seed,
        "step": found.failure.step,
        "kind": found.failure.violation.kind(),
        "violation": found.failure.violation.to_string(),
        "again": found.command(),
        "setting": shrunk.script.setting(),
        "shrunk": {"violation": shrunk.failure.violation.to_string(), "steps": script},
    })
}
