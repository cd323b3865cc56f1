//! A queue driven by a script in virtual time.
//!
//! ```text
//! +500                         let 500 ms pass
//! at 2000                      let the time be 2 s (all times count from a whole second)
//! add a priority=5 gates=x,y   a new pod; other key=value pairs are labels; also nominated=, scheduler=, uid=
//! update a priority=7          the pod as it is now (nothing is inherited)
//! delete a
//! pop -> a                     or `-> nothing`
//! take a -> a                  out of turn
//! fail a A,B pending=P         the popped pod comes back, rejected by A and B, and P waits for something
//! error a                      the popped pod comes back after an error
//! done a                       the popped pod is bound
//! event Node/Add helps=A       something changes; the hints of A return Queue, those of others QueueSkip
//! activate a b
//! flush · flush-leftover       the periodic flushes
//! ```
//! `=>` at the end of a line states the places of the pods: `active: a b; gated: c`, or `=> nothing`. Active pods and
//! pods in backoff are in the order of popping, the others in the order of their names.
//! in backoff are in the order of popping, the others in that of their names.

use crate::{PluginEvents, ProfileHooks, QueueConfig, QueuedIn, QueuedPodInfo, SchedulingQueue};
use berth_api::{Object, Pod, Str, Time};
use berth_framework::event::{Change, EventRegistration};
use berth_framework::features::Behaviour;
use berth_framework::plugin::{Context, PreEnqueue, QueueSort, QueuedPod, SortKey};
use berth_framework::testing::{FakePlugin, PodBuilder, fake, node, pod};
use berth_framework::{
    ActionType, Cluster, ClusterEvent, EventResource, Feature, FeatureGates, Hint, Status,
};
use berth_telemetry::metrics::{Families as _, Metric, SeriesValue};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The order of kube-scheduler's default QueueSort, with keys.
pub(crate) struct ByPriority;

impl QueueSort for ByPriority {
    fn less(&self, a: QueuedPod<'_>, b: QueuedPod<'_>) -> bool {
        key(a) < key(b)
    }

    fn sort_key(&self) -> Option<fn(QueuedPod<'_>) -> SortKey> {
        Some(key)
    }
}

fn key(pod: QueuedPod<'_>) -> SortKey {
    SortKey(-i64::from(pod.pod.priority()), pod.timestamp.as_nanos())
}

/// The plugins of the scripts with their events; `!` marks a registration without a hint.
pub(crate) const PLUGINS: &[(&str, &str)] = &[
    ("A", "Node/Add Node/UpdateNodeLabel"),
    ("B", "Pod/Delete Node/Add"),
    ("C", "Node/UpdateNodeTaint Pod/UpdatePodLabel"),
    ("P", "Pod/Add"),
    ("Always", "Node/UpdateNodeAllocatable!"),
    ("Mute", ""),
    ("SchedulingGates", "Pod/UpdatePodSchedulingGatesEliminated"),
    ("G1", "Pod/UpdatePodLabel Node/UpdateNodeAnnotation"),
    ("G2", "Node/UpdateNodeCondition"),
];

/// PreEnqueue plugins with their names.
pub(crate) fn pre_enqueue(
    plugins: impl IntoIterator<Item = FakePlugin>,
) -> Vec<(Str, Arc<dyn PreEnqueue>)> {
    let made = plugins.into_iter().map(FakePlugin::build);
    made.filter_map(|made| Some((Str::new(&made.name), made.pre_enqueue?)))
        .collect()
}

/// A profile whose PreEnqueue plugins are SchedulingGates, G1 and G2. G1 and G2 read the label with their own name:
/// `G1=shut` rejects the pod, `G1=broken` fails.
pub(crate) fn profile(scheduler: &str, plugins: &[(&str, &str)]) -> ProfileHooks {
    let mut hooks = ProfileHooks::new(scheduler, Arc::new(ByPriority));
    hooks.pre_enqueue = pre_enqueue([
        fake("SchedulingGates").pre_enqueue(|pod| {
            if pod.spec.scheduling_gates.is_empty() {
                Status::success()
            } else {
                Status::unresolvable(MESSAGE_OF_GATES)
            }
        }),
        fake("G1").pre_enqueue(|pod| gate_of("G1", pod)),
        fake("G2").pre_enqueue(|pod| gate_of("G2", pod)),
    ]);
    hooks.events = plugins
        .iter()
        .map(|(plugin, events)| PluginEvents {
            plugin: (*plugin).into(),
            registrations: events
                .split_whitespace()
                .map(|event| registration(plugin, event))
                .collect(),
        })
        .collect();
    hooks
}

/// The message that the API server writes on a pod with gates.
pub(crate) const MESSAGE_OF_GATES: &str = "Scheduling is blocked due to non-empty scheduling gates";

fn gate_of(plugin: &str, pod: &Pod) -> Status {
    match pod.labels().get(plugin) {
        None | Some("open") => Status::success(),
        Some("shut") => Status::unresolvable(format!("{plugin} is shut")),
        Some("pending") => Status::pending(format!("{plugin} waits")),
        Some("broken") => Status::error(format!("{plugin} is broken")),
        Some(message) => Status::unschedulable(message.to_owned()),
    }
}

fn registration(plugin: &str, text: &str) -> EventRegistration {
    let event = event_of(text.trim_end_matches('!'));
    if text.ends_with('!') {
        return EventRegistration::always(event.resource, event.action);
    }
    let plugin = plugin.to_owned();
    EventRegistration::with_hint(event.resource, event.action, move |_, pod, change| {
        if plugin == "SchedulingGates" {
            return Ok(match change.new_pod() {
                Some(new) if new.uid() == pod.uid() => Hint::Queue,
                _ => Hint::Skip,
            });
        }
        let object = change.new.or(change.old);
        match object.and_then(|object| object.metadata().labels.get("helps")) {
            Some("error") => Err("hint failed".into()),
            Some("all") => Ok(Hint::Queue),
            Some(helped) if helped.split('+').any(|name| name == plugin) => Ok(Hint::Queue),
            _ => Ok(Hint::Skip),
        }
    })
}

/// `Resource/Action|Action`.
pub(crate) fn event_of(text: &str) -> ClusterEvent {
    let (resource, actions) = text.split_once('/').expect("resource/action");
    let resource = match resource {
        "Pod" => EventResource::Pod,
        "AssignedPod" => EventResource::AssignedPod,
        "UnschedulablePod" => EventResource::UnschedulablePod,
        "Node" => EventResource::Node,
        "ResourceClaim" => EventResource::ResourceClaim,
        "*" => EventResource::Wildcard,
        other => panic!("resource {other:?}"),
    };
    let action = actions
        .split('|')
        .map(|name| match name {
            "All" => ActionType::ALL,
            "Update" => ActionType::UPDATE,
            _ => {
                let known = ActionType::ALL.bits().find(|(_, known)| *known == name);
                known.unwrap_or_else(|| panic!("action {name:?}")).0
            }
        })
        .fold(ActionType(0), |all, action| all | action);
    ClusterEvent::new(resource, action)
}

/// The options of a queue.
pub(crate) struct Setup {
    pub(crate) config: QueueConfig,
    pub(crate) profiles: Vec<ProfileHooks>,
}

/// The defaults, without implicit registrations and reports.
pub(crate) fn setup() -> Setup {
    Setup {
        config: QueueConfig {
            features: FeatureGates::default()
                .with(Feature::SchedulerPreEnqueuePodStatus, false)
                .with_behaviour(Behaviour::NodeAddDoesNotImplyTaints, true),
            ..QueueConfig::default()
        },
        profiles: vec![profile("default-scheduler", PLUGINS)],
    }
}

impl Setup {
    pub(crate) fn behaviour(mut self, behaviour: Behaviour, on: bool) -> Self {
        self.config.features = self.config.features.with_behaviour(behaviour, on);
        self
    }

    pub(crate) fn feature(mut self, feature: Feature, on: bool) -> Self {
        self.config.features = self.config.features.with(feature, on);
        self
    }

    pub(crate) fn config(mut self, change: impl FnOnce(&mut QueueConfig)) -> Self {
        change(&mut self.config);
        self
    }

    pub(crate) fn plugins(mut self, plugins: &[(&str, &str)]) -> Self {
        self.profiles = vec![profile("default-scheduler", plugins)];
        self
    }

    pub(crate) fn profiles(mut self, profiles: Vec<ProfileHooks>) -> Self {
        self.profiles = profiles;
        self
    }

    /// A sort without keys, so that the heaps must call the plugin.
    pub(crate) fn unkeyed(mut self) -> Self {
        let sort = fake("Unkeyed").less(|a, b| key(a) < key(b)).build();
        self.profiles[0].queue_sort = sort.queue_sort.expect("a queue sort");
        self
    }

    pub(crate) fn build(self) -> Bench {
        let features = self.config.features;
        let queue = SchedulingQueue::new(self.config, self.profiles, Time::EPOCH);
        Bench {
            queue,
            now: Time::EPOCH,
            cluster: Cluster::default(),
            features,
            pods: BTreeMap::new(),
            popped: BTreeMap::new(),
        }
    }

    /// Builds and runs a script.
    pub(crate) fn run(self, script: &str) -> Bench {
        let mut bench = self.build();
        bench.run(script);
        bench
    }
}

/// A queue with its cluster, pods and clock.
pub(crate) struct Bench {
    pub(crate) queue: SchedulingQueue,
    pub(crate) now: Time,
    pub(crate) cluster: Cluster,
    pub(crate) features: FeatureGates,
    /// The latest version of each pod.
    pub(crate) pods: BTreeMap<String, Arc<Pod>>,
    pub(crate) popped: BTreeMap<String, QueuedPodInfo>,
}

/// Splits the bench into the mutable queue and the context.
macro_rules! fields {
    ($bench:expr) => {{
        let bench: &mut $crate::tests::Bench = &mut $bench;
        let cx = berth_framework::plugin::Context {
            now: bench.now,
            cluster: &bench.cluster,
            features: &bench.features,
            work: None,
        };
        (&mut bench.queue, cx)
    }};
}
pub(crate) use fields;

impl Bench {
    /// Runs a script and checks its expectations, and the queue's records after each line.
    pub(crate) fn run(&mut self, script: &str) {
        for line in script.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (line, places) = match line.split_once("=>") {
                Some((line, places)) => (line.trim(), Some(places.trim())),
                None => (line, None),
            };
            let (op, answer) = match line.split_once("->") {
                Some((op, answer)) => (op.trim(), Some(answer.trim())),
                None => (line, None),
            };
            let got = self.apply(op);
            if let Some(answer) = answer {
                assert_eq!(got, answer, "after {line:?}");
            }
            if let Some(places) = places {
                assert_eq!(self.places(), places, "after {line:?}");
            }
            if let Err(problem) = self.queue.check() {
                panic!("after {line:?}: {problem}");
            }
        }
    }

    fn apply(&mut self, op: &str) -> String {
        let mut words = op.split_whitespace();
        let verb = words.next().unwrap_or_default();
        if let Some(millis) = verb.strip_prefix('+') {
            self.now = self.now + Duration::from_millis(millis.parse().expect("milliseconds"));
            return String::new();
        }
        let words: Vec<&str> = words.collect();
        let name = words.first().copied().unwrap_or_default();
        match verb {
            "at" => self.now = Time::from_millis(name.parse().expect("milliseconds")),
            "add" => {
                let pod = self.learn(&words);
                let (queue, cx) = fields!(*self);
                queue.add(&cx, pod);
            }
            "update" => {
                let old = self.pods.get(name).cloned();
                let new = self.learn(&words);
                let (queue, cx) = fields!(*self);
                queue.update(&cx, old.as_ref().unwrap_or(&new), &new);
            }
            "delete" => {
                let pod = self.pods.remove(name).expect("a known pod");
                self.cluster.pods.remove(pod.uid());
                self.queue.delete(&pod);
            }
            "pop" => {
                let popped = self.queue.pop(self.now);
                return self.keep(popped);
            }
            "take" => {
                let pod = self.pods[name].clone();
                let (queue, cx) = fields!(*self);
                let popped = queue.pop_specific(&cx, &pod);
                return self.keep(popped);
            }
            "fail" | "error" => {
                let mut info = self.popped.remove(name).expect("a popped pod");
                info.clear_rejectors();
                info.pod = self.pods[name].clone();
                for word in &words[1..] {
                    match word.strip_prefix("pending=") {
                        Some(list) => info.pending_plugins = list.split(',').collect(),
                        None => info.unschedulable_plugins = word.split(',').collect(),
                    }
                }
                let (queue, cx) = fields!(*self);
                if let Err(error) = queue.add_unschedulable(&cx, info) {
                    return error.to_string();
                }
            }
            "done" => {
                let info = self.popped.remove(name).expect("a popped pod");
                self.queue.done(info.pod.uid());
            }
            "event" => {
                let helps = words.get(1).and_then(|word| word.strip_prefix("helps="));
                self.event(name, helps.unwrap_or("none"));
            }
            "activate" => {
                let pods: Vec<_> = words.iter().map(|name| self.pods[*name].clone()).collect();
                let (queue, cx) = fields!(*self);
                queue.activate(&cx, &pods);
            }
            "flush" => {
                let (queue, cx) = fields!(*self);
                queue.flush_backoff(&cx);
            }
            "flush-leftover" => {
                let (queue, cx) = fields!(*self);
                queue.flush_leftover(&cx);
            }
            other => panic!("no operation {other:?}"),
        }
        String::new()
    }

    /// Raises an event with an object whose label names the pods that it helps.
    pub(crate) fn event(&mut self, event: &str, helps: &str) -> crate::Moved {
        let event = event_of(event);
        let object = match event.resource {
            EventResource::Node => node("changed").label("helps", helps).object(),
            _ => pod("changed").label("helps", helps).object(),
        };
        self.raise(&event, &object)
    }

    /// Raises an event on an object.
    pub(crate) fn raise(&mut self, event: &ClusterEvent, object: &Object) -> crate::Moved {
        let (queue, cx) = fields!(*self);
        let change = Change {
            old: (event.action != ActionType::ADD).then_some(object),
            new: (event.action != ActionType::DELETE).then_some(object),
        };
        queue.move_all(&cx, event, change, None)
    }

    fn keep(&mut self, popped: Option<QueuedPodInfo>) -> String {
        match popped {
            None => "nothing".to_owned(),
            Some(info) => {
                let name = info.pod.name().to_string();
                self.popped.insert(name.clone(), info);
                name
            }
        }
    }

    /// Builds the pod that the words describe, and adds it to the cluster.
    fn learn(&mut self, words: &[&str]) -> Arc<Pod> {
        let (name, attributes) = words.split_first().expect("a name");
        let mut builder: PodBuilder = pod(name);
        for attribute in attributes {
            let (key, value) = attribute.split_once('=').expect("key=value");
            builder = match key {
                "priority" => builder.priority(value.parse().expect("a priority")),
                "gates" => value.split(',').fold(builder, PodBuilder::gate),
                "nominated" => builder.nominated(value),
                "scheduler" => builder.scheduler(value),
                "uid" => builder.uid(value),
                _ => builder.label(key, &value.replace('_', " ")),
            };
        }
        let pod = builder.arc();
        self.know(pod.clone());
        pod
    }

    /// Adds a version of a pod to the cluster.
    pub(crate) fn know(&mut self, pod: Arc<Pod>) {
        self.cluster.pods.insert(pod.uid().clone(), pod.clone());
        self.pods.insert(pod.name().to_string(), pod);
    }

    /// The place of every pod.
    pub(crate) fn places(&self) -> String {
        let mut lists = Vec::new();
        for (title, place, by_name) in [
            ("active", QueuedIn::Active, false),
            ("backoff", QueuedIn::Backoff, false),
            ("error", QueuedIn::ErrorBackoff, false),
            ("unschedulable", QueuedIn::Unschedulable, true),
            ("gated", QueuedIn::Gated, true),
        ] {
            let pods = self.queue.places().pods_in(place);
            lists.push((
                title,
                pods.iter().map(|i| i.pod.name().to_string()).collect(),
                by_name,
            ));
        }
        let in_flight = self.queue.in_flight().pods();
        let in_flight: Vec<String> = in_flight.map(|pod| pod.name().to_string()).collect();
        lists.push(("in flight", in_flight, true));
        let mut texts = Vec::new();
        for (title, mut names, by_name) in lists {
            if by_name {
                names.sort_unstable();
            }
            if !names.is_empty() {
                texts.push(format!("{title}: {}", names.join(" ")));
            }
        }
        if texts.is_empty() {
            "nothing".to_owned()
        } else {
            texts.join("; ")
        }
    }

    /// A queued pod.
    pub(crate) fn info(&self, name: &str) -> &QueuedPodInfo {
        match self.queue.get("default", name) {
            Some((_, info)) => info,
            None => panic!("{name} is not queued"),
        }
    }

    /// The context of a call.
    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            now: self.now,
            cluster: &self.cluster,
            features: &self.features,
            work: None,
        }
    }

    /// The lines of the log, as texts.
    pub(crate) fn logged(&mut self) -> Vec<String> {
        let (lines, _) = self.queue.log_mut().take();
        lines.iter().map(ToString::to_string).collect()
    }

    /// `unschedulable_pods` that are not zero, as `plugin=count` of all profiles.
    pub(crate) fn unschedulable_gauge(&self) -> String {
        let gauge = numbers(&self.queue, Metric::UnschedulablePods);
        let texts: Vec<String> = gauge
            .into_iter()
            .filter(|(_, count)| *count != 0)
            .map(|(labels, count)| format!("{}={count}", labels[0]))
            .collect();
        texts.join(" ")
    }

    /// `queue_incoming_pods_total`, as `queue/event=count`.
    pub(crate) fn incoming(&self) -> String {
        let counters = numbers(&self.queue, Metric::QueueIncomingPods);
        let texts: Vec<String> = counters
            .into_iter()
            .map(|(labels, count)| format!("{}={count}", labels.join("/")))
            .collect();
        texts.join(" ")
    }

    /// The number of calls of hints, as `plugin:hint=count`.
    pub(crate) fn hints(&self) -> String {
        let mut sums: BTreeMap<[String; 2], i64> = BTreeMap::new();
        for (labels, count) in numbers(&self.queue, Metric::QueueingHintExecutionDuration) {
            let key = [labels[0].clone(), labels[2].clone()];
            *sums.entry(key).or_default() += count;
        }
        let texts: Vec<String> = sums
            .into_iter()
            .map(|([plugin, hint], count)| format!("{plugin}:{hint}={count}"))
            .collect();
        texts.join(" ")
    }
}

/// The series of a metric of the queue, by label values: the value, or the number of observations.
pub(crate) fn numbers(queue: &SchedulingQueue, metric: Metric) -> BTreeMap<Vec<String>, i64> {
    let snapshot = queue.metrics().snapshot();
    let mut families = snapshot.families.iter();
    let family = families.find(|family| family.family.name == metric.family().name);
    let series = family.into_iter().flat_map(|family| &family.series);
    series
        .map(|(labels, value)| {
            let number = match value {
                SeriesValue::Number(number) => *number as i64,
                SeriesValue::Histogram(histogram) => histogram.count() as i64,
            };
            (labels.iter().map(ToString::to_string).collect(), number)
        })
        .collect()
}
