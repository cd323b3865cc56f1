//! The recorded answers of extenders, for a model.
//!
//! A recording contains the answers of extenders without the requests. A replay of the recording makes the same
//! requests, so its jobs determine the request of each answer ([`RecordedAnswers::asked`]). A model makes other
//! requests: for the same pods, and partly for other nodes. They are answered if the recording has an answer
//! ([`RecordedAnswers::answering`]).

use crate::entry::JobValue;
use crate::replay::{Follow, ReplayDifference};
use berth_api::{Pod, Str};
use berth_framework::extender::{Answer, Extender, ExtenderSpec, Extenders, Filtered};
use berth_framework::job::{Job, JobError, JobId, JobResult};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The reason to reject a node about which the recorded extender was not asked.
const UNKNOWN: &str = "the recording contains no answer of the extender about this node";

/// A request: the extender, the call, and the pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ExtenderQuestion {
    extender: Str,
    call: &'static str,
    pod: Str,
}

#[derive(Debug, Default)]
struct KnownAnswers {
    answers: HashMap<ExtenderQuestion, JobValue>,
    /// The question of the job that was polled last.
    polled: Option<ExtenderQuestion>,
    /// The questions of jobs without a result.
    open: HashMap<JobId, ExtenderQuestion>,
    used: Used,
}

/// The number of questions that the recorded answers could answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Questions that were answered from the recording.
    pub answered: u64,
    /// Questions without a recorded answer: the extender counts as failed.
    pub unanswered: u64,
    /// Nodes about which an answered question was asked for the first time: they count as rejected.
    pub unknown_nodes: u64,
}

/// The answers of a recording. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RecordedAnswers(Arc<Mutex<KnownAnswers>>);

/// An extender whose questions are noted.
struct AskedExtender(ExtenderSpec, RecordedAnswers);
/// An extender that answers from the recording.
struct Answering(ExtenderSpec, RecordedAnswers);

/// The result of a job that waits for nothing; `None` for other jobs.
pub(crate) fn result_of(mut job: Job) -> Option<JobResult> {
    match job.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

impl RecordedAnswers {
    fn with<T>(&self, read: impl FnOnce(&mut KnownAnswers) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of questions that the answers could answer.
    pub fn used(&self) -> Used {
        self.with(|known| known.used)
    }

    /// The recorded extenders, for the replay that finds their questions.
    pub fn asked(&self, specs: impl IntoIterator<Item = ExtenderSpec>) -> Extenders {
        let made = |spec| -> Arc<dyn Extender> { Arc::new(AskedExtender(spec, self.clone())) };
        Extenders::new(specs.into_iter().map(made))
    }

    /// The extenders of a model, which answer from the recording.
    pub fn answering(&self, specs: impl IntoIterator<Item = ExtenderSpec>) -> Extenders {
        let made = |spec| -> Arc<dyn Extender> { Arc::new(Answering(spec, self.clone())) };
        Extenders::new(specs.into_iter().map(made))
    }

    /// The recorded answer about a pod.
    fn answer(
        &self,
        spec: &ExtenderSpec,
        call: &'static str,
        pod: &Pod,
    ) -> Result<JobValue, JobError> {
        let question = ExtenderQuestion {
            extender: spec.name.clone(),
            call,
            pod: pod.uid().clone(),
        };
        self.with(|known| match known.answers.get(&question) {
            Some(JobValue::Failed(error)) => Err(JobError::Failed(error.clone())),
            Some(answer) => {
                known.used.answered += 1;
                Ok(answer.clone())
            }
            None => {
                known.used.unanswered += 1;
                Err("the recording contains no answer of the extender about this pod".into())
            }
        })
    }
}

/// Finds the question of each recorded answer. The last answer about a pod counts.
impl Follow for RecordedAnswers {
    fn differs(&mut self, _: &ReplayDifference) {}

    fn job(&mut self, id: JobId, job: Job) {
        // The job of an asked extender notes its question, and has no answer.
        drop(result_of(job));
        self.with(|known| {
            if let Some(question) = known.polled.take() {
                known.open.insert(id, question);
            }
        });
    }

    fn job_done(&mut self, id: JobId, value: &JobValue) {
        self.with(|known| {
            if let Some(question) = known.open.remove(&id) {
                known.answers.insert(question, value.clone());
            }
        });
    }
}

impl AskedExtender {
    fn note<T>(&self, call: &'static str, pod: &Pod) -> Answer<T> {
        let question = ExtenderQuestion {
            extender: self.0.name.clone(),
            call,
            pod: pod.uid().clone(),
        };
        let answers = self.1.clone();
        Box::pin(async move {
            answers.with(|known| known.polled = Some(question));
            Err("the extender is not called".into())
        })
    }
}

impl Extender for AskedExtender {
    fn spec(&self) -> &ExtenderSpec {
        &self.0
    }

    fn filter(&self, pod: &Arc<Pod>, _: &Arc<[Str]>) -> Answer<Filtered> {
        self.note("filter", pod)
    }

    fn prioritize(&self, pod: &Arc<Pod>, _: &Arc<[Str]>) -> Answer<Vec<(Str, i64)>> {
        self.note("prioritize", pod)
    }
}

/// The statement of a recorded answer about these nodes, and the number of nodes without one.
fn about(recorded: Filtered, asked: &[Str]) -> (Filtered, u64) {
    let asked: HashSet<&Str> = asked.iter().collect();
    let mut stated: HashSet<Str> = HashSet::new();
    let mut keep = |node: &Str| {
        stated.insert(node.clone());
        asked.contains(node)
    };
    let mut left = recorded;
    left.nodes.retain(|node| keep(node));
    left.failed.retain(|(node, _)| keep(node));
    left.failed_and_unresolvable.retain(|(node, _)| keep(node));
    let mut unknown: Vec<Str> = asked
        .into_iter()
        .filter(|node| !stated.contains(*node))
        .cloned()
        .collect();
    unknown.sort_unstable();
    let count = unknown.len() as u64;
    let unknown = unknown.into_iter().map(|node| (node, UNKNOWN.to_owned()));
    left.failed_and_unresolvable.extend(unknown);
    (left, count)
}

impl Extender for Answering {
    fn spec(&self) -> &ExtenderSpec {
        &self.0
    }

    fn filter(&self, pod: &Arc<Pod>, nodes: &Arc<[Str]>) -> Answer<Filtered> {
        let recorded = self.1.answer(&self.0, "filter", pod);
        let answer = recorded.and_then(|value| match value {
            JobValue::Filtered {
                nodes: left,
                failed,
                unresolvable,
            } => {
                let recorded = Filtered {
                    nodes: left,
                    failed,
                    failed_and_unresolvable: unresolvable,
                };
                let (answer, unknown) = about(recorded, nodes);
                self.1.with(|known| known.used.unknown_nodes += unknown);
                Ok(answer)
            }
            _ => Err("the recorded answer is not one of a filter".into()),
        });
        Box::pin(async move { answer })
    }

    fn prioritize(&self, pod: &Arc<Pod>, _: &Arc<[Str]>) -> Answer<Vec<(Str, i64)>> {
        let recorded = self.1.answer(&self.0, "prioritize", pod);
        // Scores of nodes that are no candidates are ignored, and other nodes get none.
        let answer = recorded.and_then(|value| match value {
            JobValue::Scores(scores) => Ok(scores),
            _ => Err("the recorded answer has no scores".into()),
        });
        Box::pin(async move { answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::job;
    use berth_framework::testing::pod;

    fn spec() -> ExtenderSpec {
        ExtenderSpec {
            name: "http://gpus".into(),
            filters: true,
            prioritizes: true,
            ..ExtenderSpec::default()
        }
    }

    fn names(nodes: &[&str]) -> Arc<[Str]> {
        nodes.iter().map(|node| Str::from(*node)).collect()
    }

    #[test]
    fn a_recorded_answer_is_given_again_about_the_same_pod() {
        let mut answers = RecordedAnswers::default();
        let asked = answers.asked([spec()]);
        let asked = asked.get(0).expect("the extender");
        let [one, two] = ["one", "two"].map(|name| Arc::new(pod(name).build()));
        answers.job(
            JobId(1),
            job::of(asked.filter(&one, &names(&["a", "b", "c"]))),
        );
        answers.job(
            JobId(2),
            job::of(asked.prioritize(&one, &names(&["a", "b"]))),
        );
        let filtered = JobValue::Filtered {
            nodes: vec!["a".into(), "b".into()],
            failed: vec![("c".into(), "full".into())],
            unresolvable: Vec::new(),
        };
        answers.job_done(JobId(1), &filtered);
        answers.job_done(JobId(2), &JobValue::Scores(vec![("a".into(), 7)]));

        let answering = answers.answering([spec()]);
        let answering = answering.get(0).expect("the extender");
        let filter = |pod: &Arc<Pod>, nodes: &[&str]| -> Result<Filtered, JobError> {
            let result = result_of(job::of(answering.filter(pod, &names(nodes))));
            let value = result.expect("it waits for nothing")?;
            Ok(*value.downcast().expect("the answer of a filter"))
        };
        assert_eq!(
            filter(&one, &["b", "c", "d"]),
            Ok(Filtered {
                nodes: vec!["b".into()],
                failed: vec![("c".into(), "full".into())],
                failed_and_unresolvable: vec![("d".into(), UNKNOWN.to_owned())],
            })
        );
        assert!(
            filter(&two, &["a"]).is_err(),
            "nothing is recorded about it"
        );
        let scores = result_of(job::of(answering.prioritize(&one, &names(&["a"]))));
        let scores = scores.expect("it waits for nothing").expect("an answer");
        let scores: Box<Vec<(Str, i64)>> = scores.downcast().expect("scores");
        assert_eq!(*scores, [("a".into(), 7)]);
        let used = Used {
            answered: 2,
            unanswered: 1,
            unknown_nodes: 1,
        };
        assert_eq!(answers.used(), used);
    }
}
