//! Values that CSV and YAML have in common, and what becomes of them.

use crate::span::Moment;
use crate::trace::{Gate, GateRemoval, Trace, TraceGroup};
use berth_api::{Duration, Labels, Pod, Str, Taint, TaintEffect, Time};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Reads labels: `app=web;tier=front`.
pub(super) fn labels(text: &str) -> Result<Labels, String> {
    let pairs: Result<Vec<_>, String> = parts(text)
        .map(|part| {
            let pair = part.split_once('=');
            pair.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
                .ok_or_else(|| format!("{part:?} is no label; write KEY=VALUE, several with ;"))
        })
        .collect();
    Ok(Labels::from_pairs(pairs?))
}

/// Reads a taint: `key=value:NoSchedule` or `key:NoSchedule`.
pub(super) fn taint(text: &str) -> Result<Taint, String> {
    let wrong = || format!("{text:?} is no taint; write KEY=VALUE:NoSchedule, or KEY:NoSchedule");
    let (pair, effect) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let effect = TaintEffect::from(effect.trim());
    if key.trim().is_empty() || matches!(effect, TaintEffect::Unset | TaintEffect::Unknown) {
        return Err(wrong());
    }
    Ok(Taint::new(key.trim(), value.trim(), effect))
}

/// The parts of a list that is separated by semicolons.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// Reads the cause of the removal of a gate: `10m` after the arrival, a date, `end:NAMESPACE/POD` or `quota`.
pub(super) fn gate(name: &str, cause: &str) -> Result<GateText, String> {
    let removal = match cause.trim() {
        "quota" => RemovalText::Fixed(GateRemoval::Quota),
        cause => match cause.strip_prefix("end:") {
            Some(pod) if pod.contains('/') => RemovalText::Fixed(GateRemoval::Ended(pod.into())),
            Some(pod) => RemovalText::Fixed(GateRemoval::Ended(format!("default/{pod}").into())),
            None => match Moment::parse(cause) {
                Ok(Moment::Offset(after)) => RemovalText::Fixed(GateRemoval::After(after)),
                Ok(Moment::Absolute(time)) => RemovalText::At(time),
                Err(_) => {
                    return Err(format!(
                        "{cause:?} does not state when the gate is removed; write a time after the arrival such as \
                         10m, a date, end:NAMESPACE/POD, or quota"
                    ));
                }
            },
        },
    };
    Ok(GateText {
        name: name.trim().into(),
        removal,
    })
}

/// A gate before the start of the trace is known.
#[derive(Debug, Clone)]
pub(super) struct GateText {
    pub(super) name: Str,
    removal: RemovalText,
}

#[derive(Debug, Clone)]
enum RemovalText {
    Fixed(GateRemoval),
    At(Time),
}

/// The dates of a trace: the first one is its start, unless it is stated.
#[derive(Debug, Default)]
pub(super) struct Dates {
    stated: Option<Time>,
    first: Option<Time>,
}

impl Dates {
    pub(super) fn with_start(start: Option<Time>) -> Self {
        Self {
            stated: start,
            first: None,
        }
    }

    /// Notes a moment of the trace.
    pub(super) fn note(&mut self, moment: Moment) {
        if let Moment::Absolute(time) = moment {
            self.first = Some(self.first.map_or(time, |first| first.min(time)));
        }
    }

    pub(super) fn note_gates(&mut self, gates: &[GateText]) {
        for gate in gates {
            if let RemovalText::At(time) = gate.removal {
                self.note(Moment::Absolute(time));
            }
        }
    }

    /// The start of the trace, if it has dates.
    pub(super) fn start(&self) -> Option<Time> {
        self.stated.or(self.first)
    }

    /// The offset of a moment. A date before a stated start is the start.
    pub(super) fn offset(&self, moment: Moment) -> Duration {
        match moment {
            Moment::Offset(offset) => offset,
            Moment::Absolute(time) => self
                .start()
                .map_or(Duration::ZERO, |start| time.since(start)),
        }
    }

    pub(super) fn gates(&self, gates: Vec<GateText>) -> Vec<Gate> {
        let gates = gates.into_iter().map(|gate| Gate {
            name: gate.name,
            removal: match gate.removal {
                RemovalText::Fixed(removal) => removal,
                RemovalText::At(time) => GateRemoval::At(self.offset(Moment::Absolute(time))),
            },
        });
        gates.collect()
    }
}

/// Groups that are defined beside their pods: without a minimum, all pods must be able to run.
#[derive(Debug, Default)]
pub(super) struct GroupsOfPods {
    found: Vec<(TraceGroup, bool, u32)>,
    places: FxHashMap<(Str, Str), usize>,
}

impl GroupsOfPods {
    /// Adds pods of a group.
    pub(super) fn add(
        &mut self,
        (namespace, name): (&Str, &Str),
        minimum: Option<u32>,
        topology: Option<Str>,
        priority: Option<i32>,
        pods: u32,
    ) -> Result<(), String> {
        let key = (namespace.clone(), name.clone());
        let at = *self.places.entry(key).or_insert(self.found.len());
        if at == self.found.len() {
            let group = TraceGroup {
                namespace: namespace.clone(),
                name: name.clone(),
                minimum: minimum.unwrap_or(0),
                topology,
                priority,
            };
            self.found.push((group, minimum.is_some(), pods));
            return Ok(());
        }
        let (group, is_stated, count) = &mut self.found[at];
        *count += pods;
        if let Some(minimum) = minimum {
            if *is_stated && group.minimum != minimum {
                return Err(format!(
                    "group {namespace}/{name} has a minimum of {} before and of {minimum} here; give one",
                    group.minimum
                ));
            }
            (group.minimum, *is_stated) = (minimum, true);
        }
        Ok(())
    }

    pub(super) fn finish(self, into: &mut Trace) {
        for (mut group, is_stated, pods) in self.found {
            if !is_stated {
                group.minimum = pods;
            }
            let is_known = into
                .groups
                .iter()
                .any(|known| known.name == group.name && known.namespace == group.namespace);
            if !is_known {
                into.groups.push(group);
            }
        }
    }
}

/// Equal pods as one, by their text.
#[derive(Debug, Default)]
pub(super) struct SharedPods(FxHashMap<String, Arc<Pod>>);

impl SharedPods {
    pub(super) fn get(&self, key: &str) -> Option<Arc<Pod>> {
        self.0.get(key).cloned()
    }

    pub(super) fn put(&mut self, key: String, pod: Pod) -> Arc<Pod> {
        let pod = Arc::new(pod);
        self.0.insert(key, pod.clone());
        pod
    }
}
