//! Runs a core over a recording and compares its decisions and calls for each input with the recorded ones.

use crate::call::{describe, numbers};
use crate::entry::{Entry, JobValue};
use crate::pseudonyms::TEXT;
use crate::reader::{Damage, FoundEntry};
use berth_api::{Kind, Object, Str, Time};
use berth_framework::call::{CallId, PodRef};
use berth_framework::job::{Job, JobId};
use berth_framework::registry::Registry;
use berth_scheduler::cache::Cache;
use berth_scheduler::{
    ClusterChange, CycleResult, ObservedInput, Observer, Outputs, Reconfiguration, Scheduler,
};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The output of a core for an input.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplayOutput {
    /// A scheduling cycle has ended.
    Decided(PodRef, CycleResult),
    /// A call was handed out.
    Called(CallId, String),
}

impl fmt::Display for ReplayOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided(pod, CycleResult::Placed { node }) => write!(f, "{pod} on {node}"),
            Self::Decided(pod, CycleResult::Unschedulable { message }) => {
                write!(f, "{pod} unschedulable: {message}")
            }
            Self::Decided(pod, CycleResult::Error { message }) => {
                write!(f, "{pod} failed: {message}")
            }
            Self::Decided(pod, CycleResult::Skipped) => write!(f, "{pod} skipped"),
            Self::Called(id, text) => write!(f, "call {}: {text}", id.0),
        }
    }
}

/// The output of the replayed core for an input differs from the recorded one.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayDifference {
    /// The number of the input.
    pub number: u64,
    /// The time of the input.
    pub at: Time,
    /// The output of the recorded core.
    pub recorded: Option<ReplayOutput>,
    /// The output of the replayed core.
    pub replayed: Option<ReplayOutput>,
}

impl fmt::Display for ReplayDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |made: &Option<ReplayOutput>| {
            made.as_ref()
                .map_or("nothing".into(), ReplayOutput::to_string)
        };
        write!(
            f,
            "entry {}, {}: recorded {}; replayed {}",
            self.number,
            self.at,
            shown(&self.recorded),
            shown(&self.replayed)
        )
    }
}

/// The place at which a replay stops before the end of the recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Until {
    /// Before the first input after this time.
    pub time: Option<Time>,
    /// After this entry.
    pub entry: Option<u64>,
    /// After the first decision about this pod: its name, or `namespace/name`.
    pub pod: Option<String>,
}

impl Until {
    fn is_pod(&self, pod: &PodRef) -> bool {
        let wanted = self.pod.as_deref();
        wanted.is_some_and(|wanted| *pod.name == *wanted || pod.to_string() == wanted)
    }
}

/// The reason why a replay has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// At the end of the recording.
    End,
    /// At the end of the last complete block: the recorded process did not exit cleanly.
    Killed,
    /// As requested.
    Until,
    /// At a decision about the requested pod.
    Pod(PodRef),
    /// At a damage.
    Damage(Damage),
    /// At a gap: the number of missing inputs.
    Gap(u64),
    /// At the result of a job that a recording cannot contain.
    OpaqueJob(u64),
    /// At a configuration that the replayed core cannot take over: the entry, and the reason.
    Configuration(u64, String),
}

/// The outcome of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// The number of entries that were read.
    pub entries: u64,
    /// The number of inputs that the core received.
    pub inputs: u64,
    /// The number of scheduling cycles that ended.
    pub decisions: u64,
    /// The cycles that placed their pod.
    pub placed: u64,
    /// The cycles that found no node.
    pub unschedulable: u64,
    /// The number of calls.
    pub calls: u64,
    /// The number of differences.
    pub differences: u64,
    /// The time of the first input and of the last one.
    pub times: Option<(Time, Time)>,
    /// The reason why it has ended.
    pub stop: Stop,
}

/// The replayed texts for the pseudonyms of a recording. The replayed core reads its own texts in the status of pods,
/// as the recorded core did, and compares them with the texts that it would write.
#[derive(Debug, Clone, Default)]
pub struct ReplayedTexts(HashMap<String, Str>);

impl ReplayedTexts {
    /// The number of texts that are known.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether none is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a text can be the recorded one: it is equal, or has the numbers of the pseudonym.
    fn is_same(&mut self, recorded: &str, replayed: &str) -> bool {
        let Some((_, kept)) = pseudonym(recorded) else {
            return recorded == replayed;
        };
        let is_same = match self.0.get(recorded) {
            Some(known) => *known == *replayed,
            None => numbers(replayed).into_iter().eq(kept.split_whitespace()),
        };
        if is_same {
            self.0.insert(recorded.to_owned(), replayed.into());
        }
        is_same
    }

    /// Returns whether a result of a cycle can be the recorded one.
    fn is_same_result(&mut self, recorded: &CycleResult, replayed: &CycleResult) -> bool {
        use CycleResult::{Error, Unschedulable};
        match (recorded, replayed) {
            (Unschedulable { message: one }, Unschedulable { message: two })
            | (Error { message: one }, Error { message: two }) => self.is_same(one, two),
            (one, two) => one == two,
        }
    }

    /// Returns whether a call, with its message for people, can be the recorded one.
    fn is_same_call(&mut self, recorded: &str, replayed: &str, message: Option<&str>) -> bool {
        // A description quotes the message.
        let quoted = recorded.split('"').find(|part| pseudonym(part).is_some());
        let (Some(quoted), Some(message)) = (quoted, message) else {
            return recorded == replayed;
        };
        let worded = replayed.replacen(&format!("{message:?}"), &format!("{quoted:?}"), 1);
        worded == recorded && self.is_same(quoted, message)
    }

    /// The object with the texts of the replayed core.
    fn in_object(&self, mut object: Object) -> Object {
        if let Object::Pod(pod) = &mut object {
            let has_known = |pod: &berth_api::Pod| {
                let conditions = pod.status.conditions.iter();
                conditions
                    .map(|c| &c.message)
                    .any(|message| self.0.contains_key(message.as_str()))
            };
            if has_known(pod) {
                for condition in &mut Arc::make_mut(pod).status.conditions {
                    if let Some(text) = self.0.get(condition.message.as_str()) {
                        condition.message = text.clone();
                    }
                }
            }
        }
        object
    }
}

/// The letters and the numbers of the pseudonym of a text.
fn pseudonym(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(TEXT)?.split_once(':')
}

/// The output of the core, with the message for people of a call.
type Collected = (ReplayOutput, Option<Str>);

/// Follows a replay. A closure follows the differences, and the replay ends where another configuration was taken over.
pub trait Follow {
    /// A difference was found.
    fn differs(&mut self, difference: &ReplayDifference);

    /// The recorded core applied this configuration, a complete KubeSchedulerConfiguration as JSON. Returns the
    /// reconfiguration for the replayed core, and the registry of its plugins.
    ///
    /// # Errors
    /// When it cannot be applied. The replay ends there.
    fn reconfiguration(
        &mut self,
        _configuration: &str,
    ) -> Result<(Reconfiguration, Registry), String> {
        Err("this replay does not follow configurations".to_owned())
    }

    /// The core handed out a job. It is not carried out.
    fn job(&mut self, _id: JobId, _job: Job) {}

    /// The recording has this result of a job.
    fn job_done(&mut self, _id: JobId, _value: &JobValue) {}
}

impl<F: FnMut(&ReplayDifference)> Follow for F {
    fn differs(&mut self, difference: &ReplayDifference) {
        self(difference);
    }
}

/// Collects the outputs of a core.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<VecDeque<Collected>>>);

impl Collector {
    fn push(&self, made: Collected) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back(made);
    }

    fn pop(&self) -> Option<Collected> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.pop_front()
    }
}

impl Observer for Collector {
    fn input(&mut self, _: Time, _: ObservedInput<'_>, _: &Cache) {}

    fn decided(&mut self, pod: &PodRef, result: &CycleResult) {
        self.push((ReplayOutput::Decided(pod.clone(), result.clone()), None));
    }

    fn outputs(&mut self, outputs: &Outputs) {
        for (id, call) in &outputs.calls {
            let message = call.conditions().first();
            let message = message.map(|condition| condition.message.clone());
            self.push((ReplayOutput::Called(*id, describe(call)), message));
        }
    }
}

/// A list whose items have not all been read.
struct PendingList {
    kind: Kind,
    left: usize,
    objects: Vec<Object>,
}

struct Replay<'a, 'd> {
    scheduler: &'a mut Scheduler,
    made: Collector,
    follow: &'d mut dyn Follow,
    texts: &'d mut ReplayedTexts,
    replayed: Replayed,
    /// The input that was given last.
    last: (u64, Time),
    reached: Option<PodRef>,
}

/// Passes the inputs of a recording to `scheduler`, which was created with the recorded options at the recorded time
/// and has received nothing yet. `follow` receives each difference as soon as it is found. `texts` are the known texts
/// of an earlier replay; new ones are added.
pub fn replay(
    entries: impl IntoIterator<Item = Result<FoundEntry, Damage>>,
    scheduler: &mut Scheduler,
    until: &Until,
    texts: &mut ReplayedTexts,
    follow: &mut dyn Follow,
) -> Replayed {
    let made = Collector::default();
    scheduler.observe(Box::new(made.clone()));
    let mut replay = Replay {
        scheduler,
        made,
        follow,
        texts,
        replayed: Replayed {
            entries: 0,
            inputs: 0,
            decisions: 0,
            placed: 0,
            unschedulable: 0,
            calls: 0,
            differences: 0,
            times: None,
            stop: Stop::Killed,
        },
        last: (0, Time::EPOCH),
        reached: None,
    };
    replay.replayed.stop = replay.run(entries, until);
    replay.settle();
    replay.replayed
}

impl Replay<'_, '_> {
    fn run(
        &mut self,
        entries: impl IntoIterator<Item = Result<FoundEntry, Damage>>,
        until: &Until,
    ) -> Stop {
        let mut list: Option<PendingList> = None;
        let mut skipped = 0;
        for found in entries {
            let FoundEntry { number, at, entry } = match found {
                Ok(found) => found,
                Err(damage) => return Stop::Damage(damage),
            };
            let is_made = matches!(entry, Entry::Decided(..) | Entry::Called(..));
            if let (Some(pod), false) = (&self.reached, is_made) {
                return Stop::Pod(pod.clone());
            }
            let is_after = until.time.is_some_and(|time| at > time)
                || until.entry.is_some_and(|last| number > last);
            if is_after && !is_made && list.is_none() {
                return Stop::Until;
            }
            self.replayed.entries += 1;
            match entry {
                Entry::Start(_) => {}
                Entry::Checkpoint { dropped, .. } if dropped > 0 => return Stop::Gap(dropped),
                // The core has received these objects already.
                Entry::Checkpoint { objects, .. } => skipped = objects,
                Entry::Item(_) if skipped > 0 => skipped -= 1,
                Entry::List(kind, 0) => {
                    self.give(number, at, until, |core| {
                        core.apply(ClusterChange::Replaced(kind, Vec::new()), at);
                    });
                }
                Entry::List(kind, left) => {
                    list = Some(PendingList {
                        kind,
                        left,
                        objects: Vec::new(),
                    });
                }
                Entry::Item(object) => {
                    if let Some(open) = &mut list {
                        open.objects.push(self.texts.in_object(object));
                        open.left -= 1;
                    }
                    if let Some(full) = list.take_if(|open| open.left == 0) {
                        self.give(number, at, until, |core| {
                            core.apply(ClusterChange::Replaced(full.kind, full.objects), at);
                        });
                    }
                }
                Entry::Apply(object) => {
                    let object = self.texts.in_object(object);
                    self.give(number, at, until, |core| {
                        core.apply(ClusterChange::Applied(object), at);
                    });
                }
                Entry::Delete(object) => {
                    let object = self.texts.in_object(object);
                    self.give(number, at, until, |core| {
                        core.apply(ClusterChange::Deleted(object), at);
                    });
                }
                Entry::Complete(id, result) => {
                    self.give(number, at, until, |core| core.complete(id, result, at));
                }
                Entry::JobDone(id, value) => match value.result() {
                    Some(result) => {
                        self.follow.job_done(id, &value);
                        self.give(number, at, until, |core| core.job_done(id, result, at));
                    }
                    None => return Stop::OpaqueJob(number),
                },
                Entry::Tick => self.give(number, at, until, |core| core.tick(at)),
                Entry::ScheduleOne => self.give(number, at, until, |core| {
                    core.schedule_one(at);
                }),
                Entry::TakeOutputs => {
                    let mut jobs = Vec::new();
                    self.give(number, at, until, |core| {
                        jobs = core.take_outputs(at).jobs;
                    });
                    for (id, job) in jobs {
                        self.follow.job(id, job);
                    }
                }
                Entry::Reconfigure(text) => {
                    let taken_over = self.follow.reconfiguration(&text);
                    let refused = |reason| Stop::Configuration(number, reason);
                    let (new, registry) = match taken_over {
                        Ok(taken_over) => taken_over,
                        Err(reason) => return refused(reason),
                    };
                    let mut result = Ok(());
                    self.give(number, at, until, |core| {
                        let taken_over = core.reconfigure(&new, &registry, at);
                        result = taken_over.map(drop).map_err(|error| error.to_string());
                    });
                    if let Err(reason) = result {
                        return refused(reason);
                    }
                }
                Entry::Close => self.give(number, at, until, |core| core.close(at)),
                Entry::Decided(pod, result) => self.compare(ReplayOutput::Decided(pod, result)),
                Entry::Called(id, text) => self.compare(ReplayOutput::Called(id, text)),
                Entry::End => return Stop::End,
            }
        }
        match &self.reached {
            Some(pod) => Stop::Pod(pod.clone()),
            None => Stop::Killed,
        }
    }

    /// Passes an input to the core, after comparing the outputs of the previous input.
    fn give(&mut self, number: u64, at: Time, until: &Until, input: impl FnOnce(&mut Scheduler)) {
        self.settle();
        self.last = (number, at);
        self.replayed.inputs += 1;
        let first = self.replayed.times.map_or(at, |(first, _)| first);
        self.replayed.times = Some((first, at));
        input(self.scheduler);
        if until.pod.is_some() && self.reached.is_none() {
            let made = self.made.0.lock().unwrap_or_else(PoisonError::into_inner);
            self.reached = made.iter().find_map(|(made, _)| match made {
                ReplayOutput::Decided(pod, _) if until.is_pod(pod) => Some(pod.clone()),
                _ => None,
            });
        }
    }

    /// The output of the core for the last input, which the recording does not contain.
    fn settle(&mut self) {
        while let Some((made, _)) = self.made.pop() {
            self.count(&made);
            self.differ(None, Some(made));
        }
    }

    fn compare(&mut self, recorded: ReplayOutput) {
        let Some((replayed, message)) = self.made.pop() else {
            return self.differ(Some(recorded), None);
        };
        self.count(&replayed);
        let is_same = match (&recorded, &replayed) {
            (ReplayOutput::Decided(one, recorded), ReplayOutput::Decided(two, replayed)) => {
                one == two && self.texts.is_same_result(recorded, replayed)
            }
            (ReplayOutput::Called(one, recorded), ReplayOutput::Called(two, replayed)) => {
                one == two
                    && self
                        .texts
                        .is_same_call(recorded, replayed, message.as_deref())
            }
            _ => false,
        };
        if !is_same {
            self.differ(Some(recorded), Some(replayed));
        }
    }

    fn count(&mut self, made: &ReplayOutput) {
        let counts = &mut self.replayed;
        match made {
            ReplayOutput::Called(..) => counts.calls += 1,
            ReplayOutput::Decided(_, result) => {
                counts.decisions += 1;
                match result {
                    CycleResult::Placed { .. } => counts.placed += 1,
                    CycleResult::Unschedulable { .. } => counts.unschedulable += 1,
                    CycleResult::Error { .. } | CycleResult::Skipped => {}
                }
            }
        }
    }

    fn differ(&mut self, recorded: Option<ReplayOutput>, replayed: Option<ReplayOutput>) {
        self.replayed.differences += 1;
        let (number, at) = self.last;
        self.follow.differs(&ReplayDifference {
            number,
            at,
            recorded,
            replayed,
        });
    }
}
