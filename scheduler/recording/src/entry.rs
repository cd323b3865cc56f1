//! The entries of a recording, and each as a line of text: a verb, then JSON.

use berth_api::{CustomKind, Duration, Kind, Object, Str};
use berth_framework::call::{CallError, CallErrorKind, CallId, CallResult, PodRef, Response};
use berth_framework::extender::{ChosenVictims, Filtered};
use berth_framework::job::{JobId, JobResult};
use berth_scheduler::CycleResult;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;

/// The options of the core that was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// The version of Berth.
    pub version: String,
    /// The time at which the core was made.
    pub at_nanos: i64,
    /// The seed of its random choices.
    pub seed: u64,
    /// `plain` or `incremental`.
    pub evaluator: String,
    /// The time for which a pod stays unschedulable before it is tried again without an event, in nanoseconds.
    pub pod_max_in_unschedulable_pods_nanos: u64,
    /// The release of Kubernetes whose behaviour the core had, such as `1.37`. Empty in recordings of 1.36.
    #[serde(default)]
    pub release: String,
    /// The minor version of the oldest release of other components; zero means the release before `release`.
    #[serde(default)]
    pub min_compatibility_minor: u32,
    /// The feature gates that differ from their defaults, as `A=true,B=false`.
    pub feature_gates: String,
    /// The KubeSchedulerConfiguration, complete, as YAML. Empty if the core was set up in another way.
    pub configuration: String,
    /// Whether names and labels are pseudonyms.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pseudonyms: bool,
}

/// The result of a job, if a recording can contain it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobValue {
    /// No value: the job has ended.
    Done,
    /// The nodes of an extender's filter.
    Filtered {
        /// Feasible nodes.
        nodes: Vec<Str>,
        /// Rejected nodes where preemption may help.
        failed: Vec<(Str, String)>,
        /// Other rejected nodes.
        unresolvable: Vec<(Str, String)>,
    },
    /// The scores of an extender.
    Scores(Vec<(Str, i64)>),
    /// The victims that an extender chose: node, pods and violated budgets.
    Victims(Vec<(Str, Vec<Str>, usize)>),
    /// The job failed.
    Failed(String),
    /// A value of a type that only a plugin knows.
    Opaque,
}

impl JobValue {
    /// The recorded part of a result.
    pub fn of(result: &JobResult) -> Self {
        let value: &dyn Any = match result {
            Ok(value) => &**value,
            Err(error) => return Self::Failed(error.to_string()),
        };
        if value.is::<()>() {
            Self::Done
        } else if let Some(scores) = value.downcast_ref::<Vec<(Str, i64)>>() {
            Self::Scores(scores.clone())
        } else if let Some(filtered) = value.downcast_ref::<Filtered>() {
            let Filtered {
                nodes,
                failed,
                failed_and_unresolvable,
            } = filtered.clone();
            Self::Filtered {
                nodes,
                failed,
                unresolvable: failed_and_unresolvable,
            }
        } else if let Some(victims) = value.downcast_ref::<Vec<ChosenVictims>>() {
            let victims = victims.iter().cloned();
            Self::Victims(victims.map(|v| (v.node, v.pods, v.violations)).collect())
        } else {
            Self::Opaque
        }
    }

    /// The result for the core; `None` for a value that a recording cannot contain.
    pub fn result(&self) -> Option<JobResult> {
        Some(Ok(match self.clone() {
            Self::Done => Box::new(()),
            Self::Filtered {
                nodes,
                failed,
                unresolvable,
            } => Box::new(Filtered {
                nodes,
                failed,
                failed_and_unresolvable: unresolvable,
            }),
            Self::Scores(scores) => Box::new(scores),
            Self::Victims(victims) => {
                let victims = victims.into_iter();
                let chosen = victims.map(|(node, pods, violations)| ChosenVictims {
                    node,
                    pods,
                    violations,
                });
                Box::new(chosen.collect::<Vec<_>>())
            }
            Self::Failed(error) => return Some(Err(error.into())),
            Self::Opaque => return None,
        }))
    }
}

/// An entry of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// The options of the core. The first entry of each file.
    Start(Box<Start>),
    /// The number of objects of the cluster at the beginning of a file; they follow as [`Entry::Item`]s. After a gap in
    /// the recording, `dropped` inputs are missing before it.
    Checkpoint {
        /// The number of objects.
        objects: usize,
        /// The number of inputs that are missing.
        dropped: u64,
    },
    /// The number of objects of a kind; they follow as [`Entry::Item`]s.
    List(Kind, usize),
    /// An object of a list or checkpoint.
    Item(Object),
    /// An object is new or changed.
    Apply(Object),
    /// An object was deleted.
    Delete(Object),
    /// A call has ended.
    Complete(CallId, CallResult),
    /// A job has ended.
    JobDone(JobId, JobValue),
    /// Time has passed.
    Tick,
    /// A pod was to be tried.
    ScheduleOne,
    /// The outputs were taken.
    TakeOutputs,
    /// The core applied this configuration: a complete KubeSchedulerConfiguration as JSON.
    Reconfigure(String),
    /// The core was closed.
    Close,
    /// A scheduling cycle has ended with this result.
    Decided(PodRef, CycleResult),
    /// This call was handed out; see [`describe`](crate::describe).
    Called(CallId, String),
    /// The recorder was stopped. The last entry.
    End,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallWire {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_version: Option<Str>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    body: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_nanos: Option<u64>,
}

const ERROR_KINDS: [(CallErrorKind, &str); 7] = [
    (CallErrorKind::NotFound, "NotFound"),
    (CallErrorKind::Conflict, "Conflict"),
    (CallErrorKind::Unavailable, "Unavailable"),
    (CallErrorKind::Timeout, "Timeout"),
    (CallErrorKind::Refused, "Refused"),
    (CallErrorKind::Skipped, "Skipped"),
    (CallErrorKind::Overwritten, "Overwritten"),
];

impl CallWire {
    fn of(result: &CallResult) -> Self {
        match result {
            Ok(response) => Self {
                resource_version: response.resource_version.clone(),
                body: String::from_utf8_lossy(&response.body).into_owned(),
                error: None,
                message: String::new(),
                retry_after_nanos: None,
            },
            Err(error) => {
                let kind = ERROR_KINDS.iter().find(|(kind, _)| *kind == error.kind);
                let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
                Self {
                    resource_version: None,
                    body: String::new(),
                    error: kind.map(|(_, name)| (*name).to_owned()),
                    message: error.message.clone(),
                    retry_after_nanos: error.retry_after.map(nanos),
                }
            }
        }
    }

    fn result(self) -> Result<CallResult, String> {
        let Some(name) = self.error else {
            return Ok(Ok(Response {
                resource_version: self.resource_version,
                body: self.body.into_bytes().into(),
            }));
        };
        let kind = ERROR_KINDS.iter().find(|(_, known)| *known == name);
        let (kind, _) = kind.ok_or_else(|| format!("unknown kind of error {name:?}"))?;
        Ok(Err(CallError {
            kind: *kind,
            message: self.message,
            retry_after: self.retry_after_nanos.map(Duration::from_nanos),
        }))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DecidedWire {
    namespace: Str,
    name: Str,
    uid: Str,
    result: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    detail: String,
}

impl DecidedWire {
    fn of(pod: &PodRef, result: &CycleResult) -> Self {
        let (result, detail) = match result {
            CycleResult::Placed { node } => ("placed", node.to_string()),
            CycleResult::Unschedulable { message } => ("unschedulable", message.clone()),
            CycleResult::Error { message } => ("error", message.clone()),
            CycleResult::Skipped => ("skipped", String::new()),
        };
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            result: result.to_owned(),
            detail,
        }
    }

    fn entry(self) -> Result<Entry, String> {
        let message = self.detail;
        let result = match &*self.result {
            "placed" => CycleResult::Placed {
                node: message.into(),
            },
            "unschedulable" => CycleResult::Unschedulable { message },
            "error" => CycleResult::Error { message },
            "skipped" => CycleResult::Skipped,
            other => return Err(format!("unknown result {other:?}")),
        };
        let pod = PodRef {
            namespace: self.namespace,
            name: self.name,
            uid: self.uid,
        };
        Ok(Entry::Decided(pod, result))
    }
}

/// `plural.version.group`.
fn kind_name(kind: Kind) -> String {
    let (group, version, plural) = kind.resource();
    format!("{plural}.{version}.{group}")
}

/// Kinds by name. Each custom kind is created once, because its name is kept until the process exits.
#[derive(Debug)]
pub(crate) struct Kinds(BTreeMap<String, Kind>);

impl Default for Kinds {
    fn default() -> Self {
        Self(Kind::ALL.iter().map(|k| (kind_name(*k), *k)).collect())
    }
}

impl Kinds {
    fn get(&mut self, name: &str) -> Result<Kind, String> {
        if let Some(kind) = self.0.get(name) {
            return Ok(*kind);
        }
        let kind = Kind::Custom(CustomKind::of(name).map_err(|e| e.to_string())?);
        self.0.insert(name.to_owned(), kind);
        Ok(kind)
    }
}

impl Entry {
    /// Appends the entry as a line without its end: the time since the previous entry, in nanoseconds, the verb, and
    /// the parameters.
    pub(crate) fn write(&self, since_nanos: i64, line: &mut Vec<u8>) {
        use std::io::Write;
        // Writing to memory cannot fail.
        let _ = match self {
            Self::Start(start) => json(line, since_nanos, "start", &**start),
            Self::Checkpoint { objects, dropped } => {
                write!(line, "{since_nanos} checkpoint {objects} {dropped}")
            }
            Self::List(kind, count) => {
                write!(line, "{since_nanos} list {} {count}", kind_name(*kind))
            }
            Self::Item(object) => object_line(line, since_nanos, "item", object),
            Self::Apply(object) => object_line(line, since_nanos, "apply", object),
            Self::Delete(object) => object_line(line, since_nanos, "delete", object),
            Self::Complete(id, result) => {
                let verb = format!("complete {}", id.0);
                json(line, since_nanos, &verb, &CallWire::of(result))
            }
            Self::JobDone(id, value) => json(line, since_nanos, &format!("job {}", id.0), value),
            Self::Tick => write!(line, "{since_nanos} tick"),
            Self::ScheduleOne => write!(line, "{since_nanos} schedule"),
            Self::TakeOutputs => write!(line, "{since_nanos} outputs"),
            Self::Reconfigure(text) => json(line, since_nanos, "configuration", text),
            Self::Close => write!(line, "{since_nanos} close"),
            Self::Decided(pod, result) => {
                json(line, since_nanos, "decided", &DecidedWire::of(pod, result))
            }
            Self::Called(id, text) => json(line, since_nanos, &format!("called {}", id.0), text),
            Self::End => write!(line, "{since_nanos} end"),
        };
    }

    /// Reads a line: the time since the entry before it, in nanoseconds, and the entry.
    pub(crate) fn read(line: &str, kinds: &mut Kinds) -> Result<(i64, Self), String> {
        let mut parts = line.splitn(3, ' ');
        let mut part = || parts.next().unwrap_or_default();
        let (nanos, verb, rest) = (part(), part(), part());
        let nanos: i64 = number(nanos)?;
        let entry = match verb {
            "start" => Self::Start(Box::new(parsed(rest)?)),
            "checkpoint" => {
                let (objects, dropped) = two(rest)?;
                Self::Checkpoint {
                    objects: number(objects)?,
                    dropped: number(dropped)?,
                }
            }
            "list" => {
                let (kind, count) = two(rest)?;
                Self::List(kinds.get(kind)?, number(count)?)
            }
            "item" => Self::Item(object(rest, kinds)?),
            "apply" => Self::Apply(object(rest, kinds)?),
            "delete" => Self::Delete(object(rest, kinds)?),
            "complete" => {
                let (id, json) = two(rest)?;
                let wire: CallWire = parsed(json)?;
                Self::Complete(CallId(number(id)?), wire.result()?)
            }
            "job" => {
                let (id, json) = two(rest)?;
                Self::JobDone(JobId(number(id)?), parsed(json)?)
            }
            "tick" => Self::Tick,
            "schedule" => Self::ScheduleOne,
            "outputs" => Self::TakeOutputs,
            "configuration" => Self::Reconfigure(parsed(rest)?),
            "close" => Self::Close,
            "decided" => parsed::<DecidedWire>(rest)?.entry()?,
            "called" => {
                let (id, json) = two(rest)?;
                Self::Called(CallId(number(id)?), parsed(json)?)
            }
            "end" => Self::End,
            other => return Err(format!("unknown entry {other:?}")),
        };
        Ok((nanos, entry))
    }
}

fn json(line: &mut Vec<u8>, nanos: i64, verb: &str, value: &impl Serialize) -> std::io::Result<()> {
    use std::io::Write;
    write!(line, "{nanos} {verb} ")?;
    serde_json::to_writer(line, value)?;
    Ok(())
}

fn object_line(line: &mut Vec<u8>, nanos: i64, verb: &str, object: &Object) -> std::io::Result<()> {
    json(
        line,
        nanos,
        &format!("{verb} {}", kind_name(object.kind())),
        object,
    )
}

fn two(text: &str) -> Result<(&str, &str), String> {
    text.split_once(' ')
        .ok_or_else(|| format!("two parts are expected in {:?}", head(text)))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("a number is expected, not {:?}", head(text)))
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

fn object(text: &str, kinds: &mut Kinds) -> Result<Object, String> {
    let (kind, json) = two(text)?;
    let kind = kinds.get(kind)?;
    kind.decode(json.as_bytes()).map_err(|e| e.to_string())
}

/// The beginning of a text, for errors.
fn head(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::{node, pod};
    use std::sync::Arc;

    fn again(entry: &Entry) -> (i64, Entry) {
        let mut line = Vec::new();
        entry.write(-7, &mut line);
        let line = String::from_utf8(line).expect("text");
        assert!(!line.contains('\n'), "{line}");
        Entry::read(&line, &mut Kinds::default()).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    #[test]
    fn every_entry_is_read_as_it_was_written() {
        let pod_ref = PodRef {
            namespace: "default".into(),
            name: "p".into(),
            uid: "u".into(),
        };
        let error = CallError {
            kind: CallErrorKind::Unavailable,
            message: "a\nb".into(),
            retry_after: Some(Duration::from_millis(1500)),
        };
        let filtered = JobValue::Filtered {
            nodes: vec!["n".into()],
            failed: vec![("m".into(), "full".into())],
            unresolvable: Vec::new(),
        };
        for entry in [
            Entry::Checkpoint {
                objects: 3,
                dropped: 2,
            },
            Entry::List(Kind::CsiNode, 4),
            Entry::Item(node("n").object()),
            Entry::Apply(Object::Pod(Arc::new(pod("p").build()))),
            Entry::Delete(node("n").object()),
            Entry::Complete(CallId(7), Ok(Response::written("12"))),
            Entry::Complete(CallId(8), Err(error)),
            Entry::JobDone(JobId(1), JobValue::Done),
            Entry::JobDone(JobId(2), filtered),
            Entry::JobDone(
                JobId(3),
                JobValue::Victims(vec![("n".into(), vec!["u".into()], 1)]),
            ),
            Entry::JobDone(JobId(4), JobValue::Scores(vec![("n".into(), 5)])),
            Entry::JobDone(JobId(5), JobValue::Failed("late".into())),
            Entry::Tick,
            Entry::ScheduleOne,
            Entry::TakeOutputs,
            Entry::Reconfigure("{\"kind\":\"KubeSchedulerConfiguration\"}".into()),
            Entry::Close,
            Entry::Decided(pod_ref.clone(), CycleResult::Placed { node: "n".into() }),
            Entry::Decided(
                pod_ref,
                CycleResult::Unschedulable {
                    message: "0/1 nodes are available".into(),
                },
            ),
            Entry::Called(CallId(9), "bind pods/default/p (u) to n".into()),
            Entry::End,
        ] {
            assert_eq!(again(&entry), (-7, entry));
        }
    }

    #[test]
    fn a_wrong_line_is_an_error() {
        for line in [
            "",
            "x tick",
            "1 sleep",
            "1 list pods.v1.",
            "1 apply pods.v1. {",
            "1 apply pods {}",
            "1 complete 1 {\"error\":\"Odd\"}",
            "1 decided {\"namespace\":\"\",\"name\":\"\",\"uid\":\"\",\"result\":\"odd\"}",
        ] {
            let read = Entry::read(line, &mut Kinds::default());
            assert!(read.is_err(), "{line:?}: {read:?}");
        }
    }
}
