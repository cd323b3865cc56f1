//! The common values of CSV and YAML, and their conversion.

use crate::span::{Moment, parse_span, show_span};
use crate::trace::{Gate, GateRemoval, Trace, TraceGroup};
use berth_api::{Duration, Labels, Pod, Quantity, Str, Taint, TaintEffect, Time};
use berth_scheduler::profile::closest;
use rustc_hash::FxHashMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

/// The resources without a domain.
pub(super) const RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// Reads the name of a resource.
pub(super) fn resource(name: &str) -> Result<Str, String> {
    if is_resource(name) {
        return Ok(name.into());
    }
    Err(match closest(name, RESOURCES) {
        Some(near) => format!("unknown resource {name:?}; did you mean {near:?}?"),
        None => format!(
            "unknown resource {name:?}; the resources are {}, and names with a domain such as example.com/gpu",
            RESOURCES.join(", ")
        ),
    })
}

/// Returns whether a resource of this name can exist.
pub(super) fn is_resource(name: &str) -> bool {
    RESOURCES.contains(&name) || name.starts_with("hugepages-") || name.contains('/')
}

/// Reads an amount of a resource.
pub(super) fn amount(text: &str) -> Result<Quantity, String> {
    let amount = text.trim().parse::<Quantity>().ok();
    let amount = amount.filter(|amount| amount.sign() >= 0);
    amount.ok_or_else(|| {
        format!("{text:?} is no amount; write a quantity such as 500m, 2 or 4Gi, at least 0")
    })
}

/// A type of whole numbers.
pub(super) trait Whole: FromStr + Display {
    /// The smallest and the largest one.
    const RANGE: [Self; 2];
}

impl Whole for u32 {
    const RANGE: [Self; 2] = [Self::MIN, Self::MAX];
}

impl Whole for u64 {
    const RANGE: [Self; 2] = [Self::MIN, Self::MAX];
}

impl Whole for i32 {
    const RANGE: [Self; 2] = [Self::MIN, Self::MAX];
}

/// Reads a whole number.
pub(super) fn number<T: Whole>(text: &str) -> Result<T, String> {
    let [least, most] = T::RANGE;
    let wrong = |_| format!("{text:?} is no whole number from {least} to {most}");
    text.parse().map_err(wrong)
}

/// Reads a price.
pub(super) fn price(text: &str) -> Result<f64, String> {
    let price = text.parse::<f64>().ok();
    let price = price.filter(|price| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| format!("{text:?} is no price; write a number such as 1.25"))
}

/// Reads whether something holds.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// Reads the number of pods or nodes of an item.
pub(super) fn count(text: &str) -> Result<u32, String> {
    match number(text)? {
        0 => Err("the count is 0; write at least 1, or remove the item".to_owned()),
        count => Ok(count),
    }
}

/// Reads a grace period.
pub(super) fn grace_period(text: &str) -> Result<Duration, String> {
    let grace = parse_span(text)?;
    if grace.subsec_nanos() > 0 {
        return Err(format!(
            "the grace period {text:?} is no whole number of seconds; write one such as 90s"
        ));
    }
    Ok(grace)
}

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
pub(super) fn removal(cause: &str) -> Result<Removal, String> {
    Ok(match cause.trim() {
        "quota" => Removal::Fixed(GateRemoval::Quota),
        cause => match cause.strip_prefix("end:") {
            Some(pod) if pod.contains('/') => Removal::Fixed(GateRemoval::Ended(pod.into())),
            Some(pod) => Removal::Fixed(GateRemoval::Ended(format!("default/{pod}").into())),
            None => match Moment::parse(cause) {
                Ok(Moment::Offset(after)) => Removal::Fixed(GateRemoval::After(after)),
                Ok(Moment::Absolute(time)) => Removal::At(time),
                Err(_) => {
                    return Err(format!(
                        "{cause:?} does not state when the gate is removed; write a time after the arrival such as \
                         10m, a date, end:NAMESPACE/POD, or quota"
                    ));
                }
            },
        },
    })
}

/// A gate before the start of the trace is known.
#[derive(Debug, Clone)]
pub(super) struct GateText {
    pub(super) name: Str,
    removal: Removal,
}

impl GateText {
    pub(super) fn new(name: &str, removal: Removal) -> Self {
        Self {
            name: name.trim().into(),
            removal,
        }
    }
}

/// The cause of the removal of a gate before the start of the trace is known.
#[derive(Debug, Clone)]
pub(super) enum Removal {
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
            if let Removal::At(time) = gate.removal {
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

    /// The offset of the arrival of a pod.
    pub(super) fn arrival(&self, moment: Moment) -> Result<Duration, String> {
        match (moment, self.start()) {
            (Moment::Absolute(time), Some(start)) if time < start => Err(format!(
                "the pod arrives before the start of the trace, {}; write a later date, or an earlier start",
                start.rfc3339()
            )),
            _ => Ok(self.offset(moment)),
        }
    }

    /// The offsets at which a node joins and leaves.
    pub(super) fn presence(
        &self,
        joins: Option<Moment>,
        leaves: Option<Moment>,
    ) -> Result<(Duration, Option<Duration>), String> {
        let joins = joins.map_or(Duration::ZERO, |moment| self.offset(moment));
        let leaves = leaves.map(|moment| self.offset(moment));
        if leaves.is_some_and(|leaves| leaves <= joins) {
            return Err(format!(
                "the node leaves no later than it joins, {} after the start; write a later time",
                show_span(joins.as_secs_f64())
            ));
        }
        Ok((joins, leaves))
    }

    pub(super) fn gates(&self, gates: Vec<GateText>) -> Vec<Gate> {
        let gates = gates.into_iter().map(|gate| Gate {
            name: gate.name,
            removal: match gate.removal {
                Removal::Fixed(removal) => removal,
                Removal::At(time) => GateRemoval::At(self.offset(Moment::Absolute(time))),
            },
        });
        gates.collect()
    }
}

/// Groups that are defined by their pods: without a minimum, all pods must be able to run.
#[derive(Debug, Default)]
pub(super) struct GroupsOfPods {
    found: Vec<(TraceGroup, bool, u32)>,
    places: FxHashMap<(Str, Str), usize>,
}

impl GroupsOfPods {
    /// Adds pods of a group.
    pub(super) fn add(
        &mut self,
        namespace: &Str,
        name: &Str,
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
                priority_class: None,
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
