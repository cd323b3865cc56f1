//! The events of a watch, in order: the binding of each pod, and the holders of a lease.

use super::Api;
use berth_client::election::LEASES;
use berth_client::reflector::{Availability, Followed, Need, Update, follow};
use berth_client::request::{PODS, Resource};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::mpsc;

/// A pod was seen on a node for the first time.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub(crate) pod: String,
    pub(crate) node: String,
    pub(crate) at: Instant,
}

/// The lease was seen with another holder.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    /// Empty when the lease was released.
    pub(crate) identity: String,
    pub(crate) at: Instant,
}

#[derive(Debug, Default)]
struct Seen {
    /// The node of each pod, by UID.
    nodes: BTreeMap<String, String>,
    bindings: Vec<Binding>,
    holders: Vec<Holder>,
    problems: Vec<String>,
}

/// See the module. It ends with the runtime of its [`Api`].
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchLog(Arc<Mutex<Seen>>);

impl WatchLog {
    /// Watches pods, and the lease `kube-system/kube-scheduler`.
    pub(crate) fn start(api: &Api) -> Self {
        let log = Self::default();
        for (resource, take) in [
            (PODS, Seen::take_pod as fn(&mut Seen, &Value)),
            (LEASES, Seen::take_lease),
        ] {
            log.follow(api, resource, take);
        }
        log
    }

    fn follow(&self, api: &Api, resource: Resource, take: fn(&mut Seen, &Value)) {
        let (updates, mut changes) = mpsc::channel(1024);
        let followed = Followed {
            resource,
            other_versions: &[],
            field_selector: "",
            need: Need::Essential,
            json_only: true,
        };
        let decode = |object: berth_client::content::Payload<'_>| object.decode::<Value>();
        let transport = api.transport.clone();
        let following = follow(
            transport,
            followed,
            decode,
            updates,
            Arc::<Availability>::default(),
        );
        api.runtime.spawn(following);
        let log = self.clone();
        api.runtime.spawn(async move {
            while let Some(update) = changes.recv().await {
                let objects = match update {
                    Update::Replaced(objects) => objects,
                    Update::Applied(object) => vec![object],
                    Update::Deleted(_) => continue,
                };
                log.with(|seen| objects.iter().for_each(|object| take(seen, object)));
            }
        });
    }

    fn with<T>(&self, read: impl FnOnce(&mut Seen) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of pods that have been seen on a node.
    pub(crate) fn bound(&self) -> usize {
        self.with(|seen| seen.bindings.len())
    }

    /// All bindings, in the order of the watch.
    pub(crate) fn bindings(&self) -> Vec<Binding> {
        self.with(|seen| seen.bindings.clone())
    }

    /// All holders of the lease, in the order of the watch.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        self.with(|seen| seen.holders.clone())
    }

    /// The first binding after this time.
    pub(crate) fn first_binding_after(&self, at: Instant) -> Option<Binding> {
        self.with(|seen| seen.bindings.iter().find(|b| b.at > at).cloned())
    }

    /// Asserts that each pod was bound once, and that no node has more pods than it has room for.
    pub(crate) fn assert_each_bound_once(&self, pods: usize, room: usize) {
        self.with(|seen| {
            assert!(seen.problems.is_empty(), "{:?}", seen.problems);
            assert_eq!(seen.bindings.len(), pods, "bound pods");
            let mut names: Vec<&str> = seen.bindings.iter().map(|b| &*b.pod).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), pods, "bound pods by name");
            let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
            for binding in &seen.bindings {
                *by_node.entry(&binding.node).or_default() += 1;
            }
            let full = by_node.iter().find(|(_, pods)| **pods > room);
            assert!(full.is_none(), "more than {room} pods on a node: {full:?}");
        });
    }
}

impl Seen {
    fn take_pod(&mut self, pod: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (uid, name) = (
            text(&pod["metadata"]["uid"]),
            text(&pod["metadata"]["name"]),
        );
        let node = text(&pod["spec"]["nodeName"]);
        let known = self.nodes.get(&uid);
        if node.is_empty() {
            if let Some(known) = known {
                self.problems
                    .push(format!("pod {name} was on {known} and is on no node"));
            }
            return;
        }
        match known {
            Some(known) if *known != node => {
                self.problems
                    .push(format!("pod {name} was on {known} and is on {node}"));
            }
            Some(_) => {}
            None => {
                self.nodes.insert(uid, node.clone());
                self.bindings.push(Binding {
                    pod: name,
                    node,
                    at: Instant::now(),
                });
            }
        }
    }

    fn take_lease(&mut self, lease: &Value) {
        if lease["metadata"]["name"] != "kube-scheduler" {
            return;
        }
        let identity = &lease["spec"]["holderIdentity"];
        let identity = identity.as_str().unwrap_or_default().to_owned();
        if self
            .holders
            .last()
            .is_none_or(|last| last.identity != identity)
        {
            let at = Instant::now();
            self.holders.push(Holder { identity, at });
        }
    }
}
