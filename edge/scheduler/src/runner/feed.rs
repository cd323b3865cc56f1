//! Watches every kind that scheduling reads and brings the changes to the core.

mod read;

use self::read::ObjectReader;
use super::CoreInput;
use crate::tasks;
use berth_api::{Kind, Object};
use berth_client::Transport;
use berth_client::content::Payload;
use berth_client::extender::raw::{ObjectJson, RawObjects};
use berth_client::reflector::{Availability, Followed, Need, Update, follow};
use berth_client::request::Resource;
use berth_framework::Feature;
use berth_framework::cluster::DEFERRED_QUOTA;
use berth_scheduler::{ClusterChange, Scheduler};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// The number of changes of one kind that may be on their way.
const UPDATES_MAX: usize = 256;

/// Pods that have ended use no resources and are not followed.
const LIVE_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Includes failed pods, because rejections by kubelets are remembered.
const LIVE_AND_FAILED_PODS: &str = "status.phase!=Succeeded";

/// The watched kinds: every kind that Berth knows and whose feature is enabled, and the custom kinds that plugins
/// registered for.
pub(super) fn kinds(scheduler: &Scheduler) -> BTreeSet<Kind> {
    let custom = scheduler.queue().custom_kinds();
    let has_taint_rules = scheduler.features().enabled(Feature::DRADeviceTaintRules);
    let has_groups = scheduler.features().enabled(Feature::GenericWorkload);
    let has_composites = has_groups && scheduler.features().enabled(Feature::CompositePodGroup);
    let is_followed = |kind: &Kind| match kind {
        Kind::DeviceTaintRule => has_taint_rules,
        Kind::PodGroup => has_groups,
        Kind::CompositePodGroup => has_composites,
        _ => true,
    };
    let known = Kind::ALL.iter().copied();
    known.filter(is_followed).chain(custom).collect()
}

/// The kinds that a scheduler reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchedKinds {
    all: BTreeSet<Kind>,
    /// The kinds that are read as JSON.
    as_json: BTreeSet<Kind>,
    /// Whether failed pods are followed.
    failed_pods: bool,
}

impl WatchedKinds {
    /// The kinds that the scheduler reads.
    pub(super) fn of(scheduler: &Scheduler) -> Self {
        Self {
            all: kinds(scheduler),
            as_json: json_kinds(scheduler),
            failed_pods: reads_failed_pods(scheduler),
        }
    }

    /// These and others. A kind that is read as JSON is so in both.
    fn and(&self, others: &Self) -> Self {
        Self {
            all: self.all.union(&others.all).copied().collect(),
            as_json: self.as_json.union(&others.as_json).copied().collect(),
            failed_pods: self.failed_pods || others.failed_pods,
        }
    }
}

/// The watches of a scheduler.
pub(super) struct Feed {
    api: Transport,
    kinds: WatchedKinds,
    inputs: mpsc::Sender<CoreInput>,
    raw: Arc<RawObjects>,
    availability: Arc<Availability>,
    watches: Vec<JoinHandle<()>>,
}

impl Feed {
    /// No kind is watched yet.
    pub(super) fn new(
        api: Transport,
        kinds: WatchedKinds,
        inputs: mpsc::Sender<CoreInput>,
        raw: Arc<RawObjects>,
        availability: Arc<Availability>,
    ) -> Self {
        Self {
            api,
            kinds,
            inputs,
            raw,
            availability,
            watches: Vec::new(),
        }
    }

    /// Begins to watch. Returns false if it has begun before.
    pub(super) fn begin(&mut self) -> bool {
        let is_first = self.watches.is_empty();
        if is_first {
            self.start();
        }
        is_first
    }

    fn start(&mut self) -> watch::Receiver<usize> {
        let unlisted = Unlisted::of(&self.kinds.all);
        let all = unlisted.all.subscribe();
        let (inputs, raw) = (&self.inputs, &self.raw);
        self.watches = start(
            &self.api,
            &self.kinds,
            inputs,
            raw,
            &self.availability,
            &unlisted,
        );
        all
    }

    /// Watches these kinds, too, and keeps JSON in `raw`. If that requires other watches, all kinds are listed again.
    /// Returns the number of unlisted kinds.
    pub(super) fn follow(
        &mut self,
        kinds: &WatchedKinds,
        raw: &Arc<RawObjects>,
    ) -> Option<watch::Receiver<usize>> {
        let kinds = self.kinds.and(kinds);
        if kinds == self.kinds && Arc::ptr_eq(raw, &self.raw) {
            return None;
        }
        (self.kinds, self.raw) = (kinds, Arc::clone(raw));
        if self.watches.is_empty() {
            return None;
        }
        // A change in transit is contained in the new lists.
        self.end();
        Some(self.start())
    }

    /// Ends the watches.
    pub(super) fn end(&self) {
        for watch in &self.watches {
            watch.abort();
        }
    }
}

/// Returns whether a profile remembers the pods that kubelets rejected.
fn reads_failed_pods(scheduler: &Scheduler) -> bool {
    let profiles = scheduler.profiles();
    let mut plugins = profiles.iter().flat_map(|profile| &profile.plugins);
    plugins.any(|plugin| plugin.rejections.is_some())
}

/// The kinds that are read as JSON although they have a form in protobuf: the numbers of the fields of derived
/// attributes are not published.
fn json_kinds(scheduler: &Scheduler) -> BTreeSet<Kind> {
    let derives = scheduler.features().enabled(Feature::DRADerivedAttributes);
    derives.then_some(Kind::ResourceClaim).into_iter().collect()
}

/// The numbers of kinds that have not been listed yet.
#[derive(Clone)]
struct Unlisted {
    /// The number of unlisted kinds other than pods. Pods are passed to the core when it is zero: decisions about them
    /// depend on all other kinds. A delay of five seconds is logged.
    others: watch::Sender<usize>,
    /// All of them.
    all: watch::Sender<usize>,
}

impl Unlisted {
    fn of(kinds: &BTreeSet<Kind>) -> Self {
        let others = kinds.iter().filter(|kind| **kind != Kind::Pod).count();
        Self {
            others: watch::Sender::new(others),
            all: watch::Sender::new(kinds.len()),
        }
    }

    /// A kind was listed.
    fn listed(&self, kind: Kind) {
        let one_less = |left: &mut usize| *left = left.saturating_sub(1);
        if kind != Kind::Pod {
            self.others.send_modify(one_less);
        }
        self.all.send_modify(one_less);
    }
}

/// Starts a watch of each of these kinds.
fn start(
    transport: &Transport,
    kinds: &WatchedKinds,
    inputs: &mpsc::Sender<CoreInput>,
    raw: &Arc<RawObjects>,
    availability: &Arc<Availability>,
    unlisted: &Unlisted,
) -> Vec<JoinHandle<()>> {
    let transport = transport.clone().checking_store();
    kinds
        .all
        .iter()
        .flat_map(|kind| {
            let (updates, changes) = mpsc::channel(UPDATES_MAX);
            let followed = Followed {
                // Requests to extenders contain JSON, and custom resources have no other form. The protobuf of
                // DeviceTaintRule v1 is unknown. Groups are few, and their version varies.
                json_only: raw.keeps(*kind)
                    || kinds.as_json.contains(kind)
                    || matches!(
                        kind,
                        Kind::Custom(_)
                            | Kind::DeviceTaintRule
                            | Kind::PodGroup
                            | Kind::CompositePodGroup
                    ),
                field_selector: selector(*kind, kinds.failed_pods),
                ..followed(*kind)
            };
            let (kind, kept) = (*kind, raw.clone());
            let resource = followed.resource;
            let reader = ObjectReader::new(kind, resource, Arc::clone(availability));
            let decode = move |object: Payload<'_>| {
                let json = object.json();
                let object = reader.read(object)?;
                let raw = json.and_then(|json| kept.of(&object, json));
                Ok((object, raw))
            };
            [
                tasks::spawn(follow(
                    transport.clone(),
                    followed,
                    decode,
                    updates,
                    Arc::clone(availability),
                )),
                tasks::spawn(bring(
                    kind,
                    changes,
                    inputs.clone(),
                    raw.clone(),
                    unlisted.clone(),
                )),
            ]
        })
        .collect()
}

fn followed(kind: Kind) -> Followed {
    let (group, version, plural) = kind.resource();
    Followed {
        resource: Resource {
            group,
            version,
            plural,
        },
        other_versions: kind.other_versions(),
        field_selector: "",
        need: need(kind),
        json_only: false,
    }
}

/// The field selector of a watch.
fn selector(kind: Kind, failed_pods: bool) -> &'static str {
    match kind {
        Kind::Pod if failed_pods => LIVE_AND_FAILED_PODS,
        Kind::Pod => LIVE_PODS,
        _ => "",
    }
}

/// Roles are often older than dynamic resource allocation, and do not include custom resources of plugins. Any other
/// unreadable kind is not treated as empty: decisions would be wrong.
fn need(kind: Kind) -> Need {
    match kind {
        // Few clusters have the definition.
        Kind::Custom(DEFERRED_QUOTA) => Need::Optional,
        Kind::DeviceClass
        | Kind::ResourceClaim
        | Kind::ResourceSlice
        | Kind::DeviceTaintRule
        | Kind::PodGroup
        | Kind::CompositePodGroup
        | Kind::Custom(_) => Need::Readable,
        kind if Kind::ESSENTIAL.contains(&kind) => Need::Essential,
        _ => Need::Known,
    }
}

/// Brings the changes of a kind to the core; before it, the JSON that extenders may be asked with to where that is
/// kept.
async fn bring(
    kind: Kind,
    mut updates: mpsc::Receiver<Update<(Object, Option<ObjectJson>)>>,
    inputs: mpsc::Sender<CoreInput>,
    raw: Arc<RawObjects>,
    unlisted: Unlisted,
) {
    let mut is_first = true;
    while let Some(update) = updates.recv().await {
        // Pods are last: decisions about them depend on the other kinds.
        if is_first && kind == Kind::Pod {
            let mut left = unlisted.others.subscribe();
            tokio::select! {
                _ = left.wait_for(|left| *left == 0) => {}
                () = inputs.closed() => return,
            }
        }
        let change = match update {
            Update::Replaced(objects) => {
                // The JSON is stored before the core can send a request about the object to an extender.
                let notified = objects.iter().map(|(object, raw)| (object, raw.as_ref()));
                raw.replace(kind, notified);
                let objects = objects.into_iter().map(|(object, _)| object);
                ClusterChange::Replaced(kind, objects.collect())
            }
            Update::Applied((object, json)) => {
                raw.set(&object, json);
                ClusterChange::Applied(object)
            }
            Update::Deleted((object, _)) => {
                raw.set(&object, None);
                ClusterChange::Deleted(object)
            }
        };
        if inputs.send(CoreInput::Change(change)).await.is_err() {
            return;
        }
        if std::mem::replace(&mut is_first, false) {
            unlisted.listed(kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::event::EventRegistration;
    use berth_framework::registry::Registry;
    use berth_framework::stage::Step;
    use berth_framework::testing::{fake, node};
    use berth_framework::{ActionType, EventResource, FeatureGates, Status};
    use berth_scheduler::SchedulerOptions;
    use berth_scheduler::profile::ProfileSpec;

    /// the known kinds are watched, pods only while they are alive, and the custom kinds that a plugin of a
    /// profile registered for. The server may lack all but a few.
    #[test]
    fn kinds_that_a_plugin_registers_for_are_watched() {
        let hearing = |name: &str, resource: &'static str| {
            let filter = fake(name).filter(|_, _, _| Status::success());
            filter.events(move || {
                let resources = [resource, "namespaces.v1.", "foos.v1"];
                resources
                    .map(|name| EventResource::Other(name.into()))
                    .map(|resource| EventRegistration::always(resource, ActionType::ADD))
                    .to_vec()
            })
        };
        let mut registry = Registry::default();
        for plugin in [
            fake("Sort").less(|_, _| false),
            fake("Binder").bind(|_, _, _, _, _| Step::success()),
            hearing("Foo", "foos.v1.example.com"),
            hearing("Bar", "bars.v1beta1.example.com"),
            hearing("Unused", "unused.v1.example.com"),
        ] {
            let plugin = plugin.build();
            let name = plugin.name.clone();
            let made = registry.register(&name, move |_| Ok(plugin.clone()));
            made.unwrap();
        }
        let profile = |name, plugin| ProfileSpec::of_plugins(name, ["Sort", plugin, "Binder"]);
        let scheduler = |has_optional| {
            let options = SchedulerOptions {
                profiles: vec![profile("one", "Foo"), profile("two", "Bar")],
                features: FeatureGates::default()
                    .with(Feature::DRADeviceTaintRules, has_optional)
                    .with(Feature::GenericWorkload, has_optional)
                    .with(Feature::CompositePodGroup, has_optional),
                ..SchedulerOptions::default()
            };
            Scheduler::new(options, &registry, berth_api::Time::EPOCH).unwrap()
        };
        let without = kinds(&scheduler(false));
        for optional in [
            Kind::DeviceTaintRule,
            Kind::PodGroup,
            Kind::CompositePodGroup,
        ] {
            assert!(!without.contains(&optional), "{optional:?}");
        }
        let scheduler = scheduler(true);
        let watched: Vec<Followed> = kinds(&scheduler).into_iter().map(followed).collect();
        let resources: Vec<String> = watched
            .iter()
            .map(|f| format!("{} {}", f.resource.group, f.resource.plural))
            .collect();
        assert_eq!(watched.len(), Kind::ALL.len() + 2);
        for (resource, is_watched) in [
            (" pods", true),
            (" nodes", true),
            ("storage.k8s.io csinodes", true),
            ("example.com foos", true),
            ("example.com bars", true),
            ("example.com unused", false),
        ] {
            let found = resources.iter().any(|r| r == resource);
            assert_eq!(found, is_watched, "{resource}");
        }
        for followed in watched {
            let plural = followed.resource.plural;
            let need = match (followed.resource.group, plural) {
                ("", "pods" | "nodes" | "namespaces") => Need::Essential,
                ("resource.k8s.io" | "example.com", _)
                | ("scheduling.k8s.io", "podgroups" | "compositepodgroups") => Need::Readable,
                ("scheduling.berth.dev", _) => Need::Optional,
                _ => Need::Known,
            };
            assert_eq!(followed.need, need, "{plural}");
        }
    }

    /// PL-350: failed pods are followed only for the plugin that reads why they failed.
    #[test]
    fn failed_pods_are_followed_for_the_plugin_that_reads_them() {
        let registry = berth_plugins::in_tree();
        for (plugin, expected) in [
            (None, "status.phase!=Succeeded,status.phase!=Failed"),
            (Some("KubeletRejections"), "status.phase!=Succeeded"),
        ] {
            let mut profile = berth_scheduler::profile::ProfileSpec::default();
            let enabled = &mut profile.plugins.multi_point.enabled;
            enabled.extend(plugin.map(berth_scheduler::profile::EnabledPlugin::new));
            let options = berth_scheduler::SchedulerOptions {
                profiles: vec![profile],
                ..berth_scheduler::SchedulerOptions::default()
            };
            let scheduler = Scheduler::new(options, &registry, berth_api::Time::EPOCH);
            let kinds = WatchedKinds::of(&scheduler.unwrap_or_else(|e| panic!("{e}")));
            assert_eq!(selector(Kind::Pod, kinds.failed_pods), expected);
            assert_eq!(selector(Kind::Node, kinds.failed_pods), "");
        }
    }

    /// the core receives the changes of a watch in the order of the watch.
    #[tokio::test]
    async fn changes_come_in_the_order_of_the_watch() {
        let (updates, changes) = mpsc::channel(2);
        let (inputs, mut core) = mpsc::channel(2);
        let bringing = tokio::spawn(bring(
            Kind::Node,
            changes,
            inputs,
            Arc::default(),
            Unlisted::of(&[Kind::Node].into()),
        ));
        let changed = |version: u64| (node("n").version(version).object(), None);
        let reporting = tokio::spawn(async move {
            let _ = updates.send(Update::Replaced(vec![changed(1)])).await;
            for version in 2..50 {
                let _ = updates.send(Update::Applied(changed(version))).await;
            }
            let _ = updates.send(Update::Deleted(changed(50))).await;
        });
        let mut notified = Vec::new();
        while let Some(input) = core.recv().await {
            let CoreInput::Change(change) = input else {
                continue;
            };
            notified.push(match &change {
                ClusterChange::Replaced(Kind::Node, nodes) => format!("list {}", nodes.len()),
                ClusterChange::Applied(node) => node.metadata().resource_version.to_string(),
                other => format!("{other:?}").chars().take(7).collect(),
            });
        }
        reporting.await.unwrap();
        bringing.await.unwrap();
        let mut expected = vec!["list 1".to_owned()];
        expected.extend((2..50).map(|version: u32| version.to_string()));
        expected.push("Deleted".to_owned());
        assert_eq!(notified, expected);
    }

    /// a scheduler that starts receives pods last, even if other kinds are listed late. So it never reports that
    /// an object is missing that exists. The feed does not wait for a core that has ended.
    #[tokio::test]
    async fn pods_come_when_everything_else_has_been_listed() {
        let start = |kind: Kind, inputs: &mpsc::Sender<CoreInput>, unlisted: &Unlisted| {
            let (updates, changes) = mpsc::channel(2);
            let bringing = bring(
                kind,
                changes,
                inputs.clone(),
                Arc::default(),
                unlisted.clone(),
            );
            (updates, tokio::spawn(bringing))
        };
        let unlisted = Unlisted::of(&[Kind::Pod, Kind::Node, Kind::ResourceClaim].into());
        let (inputs, mut core) = mpsc::channel(8);
        let started = [Kind::Pod, Kind::Node, Kind::ResourceClaim]
            .map(|kind| start(kind, &inputs, &unlisted));
        for (updates, _) in &started {
            updates
                .send(Update::Replaced(Vec::new()))
                .await
                .expect("a feed");
            // Every task that can continue does so.
            tokio::task::yield_now().await;
        }
        let mut notified = Vec::new();
        for _ in 0..3 {
            match core.recv().await {
                Some(CoreInput::Change(ClusterChange::Replaced(kind, _))) => notified.push(kind),
                _ => panic!("expected a list after {notified:?}"),
            }
        }
        assert_eq!(notified, [Kind::Node, Kind::ResourceClaim, Kind::Pod]);

        let (inputs, core) = mpsc::channel(8);
        let (updates, bringing) = start(Kind::Pod, &inputs, &Unlisted::of(&[Kind::Node].into()));
        updates
            .send(Update::Replaced(Vec::new()))
            .await
            .expect("a feed");
        drop(core);
        bringing.await.expect("an end");
    }
}
