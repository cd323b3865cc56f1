//! The plugins that receive an event, and the results of their hints.

use super::{Answer, Happened, Known, Model};
use berth_api::{Object, Pod};
use berth_framework::{ClusterEvent, EventResource};

impl Model {
    pub(super) fn matching(&self, event: &ClusterEvent) -> bool {
        let registered = self.profiles.values().flat_map(|profile| &profile.receives);
        let mut registered = registered.flat_map(|(_, events)| events);
        is_for_all(event) || registered.any(|(registered, _)| receives(registered, event))
    }

    /// returns whether the event examines a gated pod.
    pub(super) fn reaches(&self, known: &Known, event: &ClusterEvent) -> bool {
        let Some(gate) = &known.gate else {
            return true;
        };
        let registered = self.profiles.values().flat_map(|profile| &profile.receives);
        let mut own = registered.filter(|(plugin, _)| *plugin == gate.as_str());
        !is_for_all(event) && own.any(|(_, events)| events.iter().any(|(e, _)| receives(e, event)))
    }

    ///
    pub(super) fn ask(
        &mut self,
        known: &Known,
        event: &ClusterEvent,
        old: Option<&Object>,
        new: Option<&Object>,
    ) -> Answer {
        let rejectors = known.rejectors();
        if rejectors.is_empty() {
            return Answer::AfterBackoff;
        }
        if is_for_all(event) {
            let other = |new: &Object| new.as_pod().is_none_or(|new| new.uid() != known.pod.uid());
            return if new.is_some_and(other) {
                Answer::Skip
            } else {
                Answer::AfterBackoff
            };
        }
        let Some(profile) = self.profiles.get(known.pod.spec.scheduler_name.as_str()) else {
            return Answer::AfterBackoff;
        };
        let mut answer = Answer::Skip;
        for (plugin, events) in &profile.receives {
            for (_, has_hint) in events.iter().filter(|(e, _)| receives(e, event)) {
                if !rejectors.contains(*plugin) {
                    continue;
                }
                let stated = if *has_hint {
                    hint(plugin, &known.pod, old, new)
                } else {
                    "Queue"
                };
                let key = ((*plugin).to_owned(), event.label(), stated);
                *self.hints.entry(key).or_default() += 1;
                if stated == "QueueSkip" {
                    continue;
                }
                if known.pending.contains(*plugin) {
                    return Answer::AtOnce;
                }
                if known.pending.is_empty() {
                    return Answer::AfterBackoff;
                }
                answer = Answer::AfterBackoff;
            }
        }
        answer
    }

    pub(super) fn note(
        &mut self,
        event: &ClusterEvent,
        old: Option<&Object>,
        new: Option<&Object>,
    ) {
        if !self.in_flight.is_empty() {
            self.log.push(Happened {
                event: event.clone(),
                old: old.cloned(),
                new: new.cloned(),
            });
        }
    }
}

fn is_for_all(event: &ClusterEvent) -> bool {
    event.custom_label.is_some()
}

///
fn receives(registered: &ClusterEvent, event: &ClusterEvent) -> bool {
    let (wanted, got) = (&registered.resource, &event.resource);
    let is_pod = got.is_pod();
    let same = wanted == got
        || *wanted == EventResource::Wildcard
        || (*wanted == EventResource::Pod && is_pod);
    same && registered.action.0 & event.action.0 != 0 && event.action.0 <= registered.action.0
}

/// The results of the hints of the plugins of the scripts.
fn hint(plugin: &str, pod: &Pod, old: Option<&Object>, new: Option<&Object>) -> &'static str {
    let queue = |queue| if queue { "Queue" } else { "QueueSkip" };
    if plugin == "SchedulingGates" {
        let itself = |new: &Object| new.as_pod().is_some_and(|new| new.uid() == pod.uid());
        return queue(new.is_some_and(itself));
    }
    let changed = new.or(old).map(Object::metadata);
    match changed.and_then(|changed| changed.labels.get("helps")) {
        Some("error") => "Error",
        Some("all") => "Queue",
        Some(helps) => queue(helps.split('+').any(|helped| helped == plugin)),
        None => "QueueSkip",
    }
}
