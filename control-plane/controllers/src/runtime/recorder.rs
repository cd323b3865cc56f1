//! Events of the controllers, aggregated as by client-go's recorder: an equal event increments the count of the
//! existing one; many similar events of an object become one; an object with too many events is throttled.

use berth_objects::access::{Access, StoredObject};
use berth_objects::object::{EVENT, name, namespace, seconds, set, uid};
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::hash::Hash;
use tracing::debug;

/// From this number of events that differ only in the message, further ones are combined.
const SIMILAR_MAX: usize = 10;
/// Events further apart than this are not similar.
const SIMILAR_WITHIN: SignedDuration = SignedDuration::from_secs(600);
/// Events that one object may cause at once …
const BURST: f64 = 25.0;
/// … and how fast it may cause further ones: one in five minutes.
const REFILL_PER_SECOND: f64 = 1.0 / 300.0;
/// The number of objects, similar groups and events are remembered.
const REMEMBERED: usize = 4096;
const COMBINED: &str = "(combined from similar events): ";

/// The severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EventType {
    /// All is well.
    Normal,
    /// A problem that may need an operator.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The object of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventSubject<'a> {
    /// The object.
    pub(crate) object: &'a Value,
    /// The part of it, such as `spec.containers{web}`; may be empty.
    pub(crate) field_path: &'a str,
    /// The node of the event; may be empty.
    pub(crate) host: &'a str,
}

impl<'a> EventSubject<'a> {
    /// The object as a whole.
    pub(crate) fn of(object: &'a Value) -> Self {
        Self {
            object,
            field_path: "",
            host: "",
        }
    }
}

/// UID and part of the object, reason, type.
type SimilarKey = (String, String, String, EventType);

#[derive(Debug)]
struct BucketTokens {
    left: f64,
    at: Timestamp,
}

#[derive(Debug)]
struct Similar {
    messages: Vec<String>,
    last: Timestamp,
}

/// A map that is cleared when it is full: a lost count of old events only causes a new event.
#[derive(Debug)]
struct Memory<K, V>(FxHashMap<K, V>);

impl<K: Eq + Hash, V> Memory<K, V> {
    fn entry(&mut self, key: K) -> std::collections::hash_map::Entry<'_, K, V> {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.entry(key)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Recorder {
    component: &'static str,
    tokens: Memory<String, BucketTokens>,
    similar: Memory<SimilarKey, Similar>,
    written: Memory<(SimilarKey, String), StoredObject>,
    last_stamp: i128,
}

impl Recorder {
    pub(crate) fn new(component: &'static str) -> Self {
        Self {
            component,
            tokens: Memory(FxHashMap::default()),
            similar: Memory(FxHashMap::default()),
            written: Memory(FxHashMap::default()),
            last_stamp: 0,
        }
    }

    pub(crate) fn record(
        &mut self,
        api: &dyn Access,
        now: Timestamp,
        subject: EventSubject<'_>,
        event_type: EventType,
        reason: &str,
        message: String,
    ) {
        let Some((id, message)) = self.fold(now, subject, event_type, reason, message) else {
            return;
        };
        let result = match self.written.0.get(&id) {
            Some(known) => {
                let mut event = (**known).clone();
                let count = event["count"].as_i64().unwrap_or(1).saturating_add(1);
                set(&mut event, &["count"], count.into());
                set(&mut event, &["lastTimestamp"], seconds(now));
                set(&mut event, &["message"], message.as_str().into());
                // It has no other writer, so the write is unconditional.
                if let Some(metadata) = event["metadata"].as_object_mut() {
                    metadata.remove("resourceVersion");
                }
                match api.update(EVENT.resource, event) {
                    // It has expired in the meantime.
                    Err(e) if e.is_not_found() => {
                        let new = self.new_event(now, subject, event_type, reason, &message);
                        api.create(EVENT.resource, new)
                    }
                    other => other,
                }
            }
            None => {
                let new = self.new_event(now, subject, event_type, reason, &message);
                api.create(EVENT.resource, new)
            }
        };
        match result {
            Ok(event) => _ = self.written.entry(id).insert_entry(event),
            Err(error) => debug!(reason, %error, "an event was not recorded"),
        }
    }

    /// Decides whether the event is recorded, with which other event, and with which message.
    fn fold(
        &mut self,
        now: Timestamp,
        subject: EventSubject<'_>,
        event_type: EventType,
        reason: &str,
        message: String,
    ) -> Option<((SimilarKey, String), String)> {
        let uid = uid(subject.object);
        let group: SimilarKey = (
            uid.to_owned(),
            subject.field_path.to_owned(),
            reason.to_owned(),
            event_type,
        );
        let similar = self.similar.entry(group.clone()).or_insert(Similar {
            messages: Vec::new(),
            last: now,
        });
        // After a pause, equal events start a new series.
        if now.duration_since(similar.last) > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        let folded = if similar.messages.contains(&message) {
            ((group, message.clone()), message)
        } else if similar.messages.len() + 1 < SIMILAR_MAX {
            similar.messages.push(message.clone());
            ((group, message.clone()), message)
        } else {
            ((group, COMBINED.to_owned()), format!("{COMBINED}{message}"))
        };
        let tokens = self.tokens.entry(uid.to_owned()).or_insert(BucketTokens {
            left: BURST,
            at: now,
        });
        let elapsed = now.duration_since(tokens.at).as_secs_f64().max(0.0);
        tokens.left = (tokens.left + elapsed * REFILL_PER_SECOND).min(BURST);
        tokens.at = now;
        // An object with too many events loses its own further events only.
        if tokens.left < 1.0 {
            return None;
        }
        tokens.left -= 1.0;
        Some(folded)
    }

    fn new_event(
        &mut self,
        now: Timestamp,
        subject: EventSubject<'_>,
        event_type: EventType,
        reason: &str,
        message: &str,
    ) -> Value {
        let regarding = subject.object;
        let stamp = now.as_nanosecond().max(self.last_stamp + 1);
        self.last_stamp = stamp;
        let namespace = match namespace(regarding) {
            "" => "default",
            namespace => namespace,
        };
        let mut event = EVENT.object(json!({"metadata": {
                "name": format!("{}.{stamp:x}", name(regarding)),
                "namespace": namespace,
            },
            "involvedObject": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "name": name(regarding),
                "uid": uid(regarding),
                "resourceVersion": regarding["metadata"]["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": "",
            "firstTimestamp": seconds(now),
            "lastTimestamp": seconds(now),
            "count": 1,
            "type": event_type.as_str(),
        }));
        if let Some(namespace) = regarding["metadata"]["namespace"].as_str() {
            event["involvedObject"]["namespace"] = namespace.into();
        }
        if !subject.field_path.is_empty() {
            event["involvedObject"]["fieldPath"] = subject.field_path.into();
        }
        if !subject.host.is_empty() {
            event["source"]["host"] = subject.host.into();
            event["reportingInstance"] = subject.host.into();
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;

    fn recorded(messages: impl Iterator<Item = (i64, String)>) -> Vec<(String, i64)> {
        let api = Fake::new();
        let mut recorder = Recorder::new("test");
        let rs = json!({"metadata": {"name": "web", "namespace": "default", "uid": "1"}});
        for (second, message) in messages {
            let now = Timestamp::from_second(1_000_000 + second).unwrap();
            let subject = EventSubject::of(&rs);
            let reason = "SuccessfulCreate";
            recorder.record(&*api, now, subject, EventType::Normal, reason, message);
        }
        let mut events: Vec<_> = api
            .list(EVENT.resource, Some("default"))
            .iter()
            .map(|e| {
                let message = e["message"].as_str().unwrap().to_owned();
                (message, e["count"].as_i64().unwrap())
            })
            .collect();
        events.sort();
        events
    }

    #[tokio::test]
    async fn equal_events_are_counted() {
        let events = recorded((0..3).map(|i| (i, "Created pod: web-a".to_owned())));
        assert_eq!(events, [("Created pod: web-a".to_owned(), 3)]);
    }

    #[tokio::test]
    async fn the_tenth_similar_event_and_later_ones_are_combined() {
        let events = recorded((0..12).map(|i| (i, format!("Created pod: web-{i:02}"))));
        assert_eq!(events.len(), 10);
        assert_eq!(events[0], (format!("{COMBINED}Created pod: web-11"), 3));
        assert_eq!(events[1], ("Created pod: web-00".to_owned(), 1));
    }

    #[tokio::test]
    async fn an_object_that_causes_too_many_events_is_cut_off_for_five_minutes() {
        let total = |events: Vec<(String, i64)>| -> i64 { events.iter().map(|(_, n)| n).sum() };
        let message = || "Error creating: no".to_owned();
        assert_eq!(total(recorded((0..40).map(|_| (0, message())))), 25);
        let later = recorded((0..40).map(|i| (if i < 39 { 0 } else { 300 }, message())));
        assert_eq!(total(later), 26);
    }
}
