//! Many seeds, on several threads, until one fails. A failing run always reports its seed.

use crate::run::{Failure, Subject, Tally, run};
use crate::script::{Faults, Script};
use crate::shrink::{Shrunk, shrink};
use berth_scheduler::evaluator::EvaluatorKind;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, Scope, available_parallelism};
use std::time::Duration;

/// The duration after which a run is reported as slow. A run usually takes some hundredths of a second.
const SLOW: Duration = Duration::from_secs(60);

/// Seeds to play, one after another on each thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// The steps of each.
    pub steps: usize,
    /// The faults.
    pub faults: Faults,
    /// The evaluator; each seed's own if `None`.
    pub evaluator: Option<EvaluatorKind>,
    /// The number of runs that the search for a short script may take.
    pub shrink_runs_max: usize,
    /// The number of seeds that are played concurrently; the number of processors if `None`.
    pub threads: Option<NonZeroUsize>,
}

impl Default for Campaign {
    fn default() -> Self {
        Self {
            first: 0,
            seeds: 1,
            steps: 500,
            faults: Faults::ALL,
            evaluator: None,
            shrink_runs_max: 2_000,
            threads: None,
        }
    }
}

/// Progress while seeds are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A seed was played without a violation.
    Passed(u64),
    /// A seed takes very long and possibly never ends.
    Slow(u64),
    /// A seed has shown a violation. The search for a short script follows, which takes a while.
    Failed(u64, &'a Failure),
}

/// A seed that fails.
#[derive(Debug, Clone)]
pub struct FailingSeed {
    /// The seed.
    pub seed: u64,
    /// The campaign.
    pub campaign: Campaign,
    /// The failure.
    pub failure: Failure,
    /// The shortest known script with the same kind of violation.
    pub shrunk: Shrunk,
}

impl FailingSeed {
    /// The command that replays the seed.
    pub fn command(&self) -> String {
        let Campaign {
            steps,
            faults,
            evaluator,
            ..
        } = &self.campaign;
        let seed = self.seed;
        let mut text = format!("berth campaign --seed {seed} --steps {steps} --faults {faults}");
        if let Some(evaluator) = evaluator {
            text += &format!(" --evaluator {evaluator}");
        }
        text
    }
}

impl fmt::Display for FailingSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {}", self.seed, self.failure)?;
        writeln!(f, "run it again: {}", self.command())?;
        writeln!(
            f,
            "the shortest script found that shows it ({} steps, found in {} runs):",
            self.shrunk.script.steps.len(),
            self.shrunk.runs
        )?;
        write!(f, "{}", self.shrunk)
    }
}

impl Campaign {
    /// The script of one of the seeds.
    pub fn script(&self, seed: u64) -> Script {
        let mut script = Script::draw(seed, self.steps, self.faults);
        script.evaluator = self.evaluator.unwrap_or(script.evaluator);
        script
    }

    /// Plays the seeds, and stops at the first failure. `notified` is called for each seed, from several threads.
    ///
    /// # Errors
    /// The lowest failing seed, regardless of the number of threads.
    pub fn play(
        &self,
        subject: &Subject,
        notified: impl Fn(Progress<'_>) + Sync,
    ) -> Result<Tally, Box<FailingSeed>> {
        let threads = self.threads.or_else(|| available_parallelism().ok());
        let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let playing = Playing {
            campaign: self,
            subject,
            notified: &notified,
            next: &next,
            stop: &stop,
        };
        let ends: Vec<End> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.map_or(1, NonZeroUsize::get))
                .map(|_| scope.spawn(move || playing.work(scope)))
                .collect();
            let joined = workers.into_iter().map(|worker| worker.join());
            joined
                .map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let mut tally = Tally::default();
        let mut failed: Option<(u64, Failure)> = None;
        for end in ends {
            tally.add(&end.tally);
            failed = match (failed, end.failed) {
                (Some(one), Some(other)) => Some(if one.0 < other.0 { one } else { other }),
                (one, other) => one.or(other),
            };
        }
        let Some((seed, failure)) = failed else {
            return Ok(tally);
        };
        notified(Progress::Failed(seed, &failure));
        let shrunk = shrink(subject, &self.script(seed), &failure, self.shrink_runs_max);
        Err(Box::new(FailingSeed {
            seed,
            campaign: self.clone(),
            failure,
            shrunk,
        }))
    }
}

/// The result of the seeds of a thread.
#[derive(Default)]
struct End {
    tally: Tally,
    failed: Option<(u64, Failure)>,
}

/// The state that the threads share.
struct Playing<'a, T> {
    campaign: &'a Campaign,
    subject: &'a Subject,
    notified: &'a T,
    /// The number of started seeds.
    next: &'a AtomicU64,
    /// Whether a seed has failed.
    stop: &'a AtomicBool,
}

impl<T> Clone for Playing<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Playing<'_, T> {}

impl<'a, T: Fn(Progress<'_>) + Sync> Playing<'a, T> {
    /// Plays seeds until all are played or one has failed. Seeds are started in order and played to their end, so the
    /// lowest failing seed is among them.
    fn work<'s>(&self, scope: &'s Scope<'s, '_>) -> End
    where
        'a: 's,
    {
        let mut end = End::default();
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.campaign.seeds {
                break;
            }
            let seed = self.campaign.first.wrapping_add(number);
            match self.on_its_own(scope, seed) {
                Ok(tally) => {
                    end.tally.add(&tally);
                    (self.notified)(Progress::Passed(seed));
                }
                Err(failure) => {
                    end.failed = Some((seed, failure));
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
        }
        end
    }

    /// Plays a seed on a thread that is named after it: a crash of the process, such as a stack overflow, then names
    /// the seed.
    fn on_its_own<'s>(&self, scope: &'s Scope<'s, '_>, seed: u64) -> Result<Tally, Failure>
    where
        'a: 's,
    {
        let (campaign, subject) = (self.campaign, self.subject);
        let (sender, ended) = mpsc::sync_channel(1);
        let play = move || {
            // The receiver is dropped when the whole campaign ends.
            let _ = sender.send(run(subject, &campaign.script(seed)));
        };
        let thread = Builder::new().name(format!("seed {seed}"));
        let Ok(thread) = thread.spawn_scoped(scope, play) else {
            // No further thread can be started.
            return run(subject, &campaign.script(seed));
        };
        let outcome = ended.recv_timeout(SLOW);
        if let Err(mpsc::RecvTimeoutError::Timeout) = outcome {
            (self.notified)(Progress::Slow(seed));
        }
        match outcome.or_else(|_| ended.recv()) {
            Ok(outcome) => outcome,
            Err(_) => match thread.join() {
                Ok(()) => unreachable!("seed {seed} was played and its result is missing"),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }
}
