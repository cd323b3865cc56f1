//! A scheduler with a cluster in memory.

use crate::changes::strict::hint;
use crate::error::InputError;
use crate::{ClusterObjects, Configuration};
use berth_api::{Kind, Object, Pod, Time};
use berth_explain::answer::{NodeAnswer, PodAnswer};
use berth_explain::what_if::{ClaimChanges, Usage, WhatIfReport, WhatIfWorld, WorkloadFit};
use berth_explain::{PodFacts, QueueFacts, Snapshot, explain_node, explain_pod};
use std::sync::Arc;

/// A scheduler with a cluster in memory. Its API calls are performed at once: pods are bound, victims of preemption are
/// deleted. The objects from which the session was created do not change.
#[derive(Debug)]
pub struct Session {
    world: WhatIfWorld,
    before: Usage,
    warnings: Vec<String>,
}

impl Session {
    /// A scheduler with the objects of a cluster at a time. Waiting pods get claims from the ResourceClaimTemplates of the
    /// cluster.
    ///
    /// # Errors
    /// When an object or the configuration is malformed.
    pub fn new(
        cluster: &ClusterObjects,
        configuration: &Configuration,
        now: Time,
    ) -> Result<Self, InputError> {
        let (features, mut warnings) = configuration.gates_for(cluster)?;
        let setup = configuration.checked(features)?;
        warnings.extend(setup.warnings.iter().cloned());
        let claims = ClaimChanges {
            templates: cluster.others.claims.decoded()?,
            ..ClaimChanges::default()
        };
        let world = setup.world(cluster.decoded()?, &claims, now)?;
        Ok(Self {
            before: world.usage(),
            world,
            warnings,
        })
    }

    /// The warnings about the configuration, such as fields without effect.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Schedules the waiting pods until no attempt is due. Backoffs pass in virtual time, which begins at `now`.
    /// Returns all placements since the beginning of the session.
    pub fn schedule(&mut self, now: Time) -> WhatIfReport {
        self.world.advance(now);
        self.world.run();
        self.world.report(self.before.clone(), Vec::new())
    }

    /// The reasons why a pod has no node, with its remedies; or the scores of the nodes when it was placed. `None` if
    /// there is no such pod. Reasons of the last attempt are available after [`Self::schedule`].
    pub fn explain(&self, namespace: &str, name: &str) -> Option<PodAnswer> {
        let scheduler = self.world.scheduler();
        let facts = PodFacts::take(scheduler, namespace, name)?;
        let mut snapshot = Snapshot::take(scheduler, self.world.now());
        Some(explain_pod(&mut snapshot, &facts))
    }

    /// The free resources of a node, and the waiting pods that fit. `None` if there is no such node.
    pub fn explain_node(&self, name: &str) -> Option<NodeAnswer> {
        let scheduler = self.world.scheduler();
        let queue = QueueFacts::take(scheduler, self.world.now());
        let mut snapshot = Snapshot::take(scheduler, self.world.now());
        explain_node(&mut snapshot, &queue, name)
    }

    /// The present virtual time.
    pub fn now(&self) -> Time {
        self.world.now()
    }
}

/// The workloads of a queue that fit now, in the order of the queue. A workload is the list of its pods as
/// `namespace/name`; it fits if there is a node for each of its pods. A workload that fits uses its resources for the
/// following workloads; other waiting pods use none. Scheduling gates are ignored, and no pod is preempted.
///
/// # Errors
/// When an object or the configuration is malformed, or a pod does not exist.
pub fn fit_queue<P: AsRef<str>>(
    cluster: &ClusterObjects,
    configuration: &Configuration,
    workloads: &[Vec<P>],
    now: Time,
) -> Result<Vec<WorkloadFit>, InputError> {
    let mut objects = cluster.decoded()?;
    let mut queue = Vec::new();
    for workload in workloads {
        let pods = workload.iter().map(|pod| pod.as_ref());
        let pods = pods.map(|name| {
            let (namespace, pod) = name.split_once('/').unwrap_or(("default", name));
            let key = (Kind::Pod, namespace.to_owned(), pod.to_owned());
            match objects.get(&key) {
                Some(Object::Pod(pod)) => Ok(pod.clone()),
                _ => Err(InputError::Pod {
                    pod: name.to_owned(),
                    hint: similar(objects.values(), name),
                }),
            }
        });
        queue.push(pods.collect::<Result<Vec<Arc<Pod>>, InputError>>()?);
    }
    objects.retain(|_, object| match object {
        Object::Pod(pod) => pod.is_assigned(),
        _ => true,
    });
    let (features, _) = configuration.gates_for(cluster)?;
    let setup = configuration.checked(features)?;
    let mut world = setup.world(objects, &ClaimChanges::default(), now)?;
    Ok(queue.iter().map(|pods| world.fit_workload(pods)).collect())
}

fn similar<'a>(objects: impl Iterator<Item = &'a Object>, name: &str) -> String {
    let pods = objects.filter_map(|object| match object {
        Object::Pod(pod) => Some(pod.key()),
        _ => None,
    });
    let pods: Vec<String> = pods.collect();
    hint(name, pods.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(cpu: u32, pods: &[(&str, u32)]) -> ClusterObjects {
        let node = format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: n1}}, status: {{allocatable: {{cpu: {cpu}, pods: 110}}}}}}\n"
        );
        let pods = pods.iter().map(|(name, cpu)| {
            let requests = format!("resources: {{requests: {{cpu: {cpu}}}}}");
            format!(
                "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i, \
                 {requests}}}]}}}}\n"
            )
        });
        ClusterObjects::from_yaml("c", &(node + &pods.collect::<String>())).expect("a cluster")
    }

    #[test]
    fn manifests_without_uids_are_scheduled_one_by_one() {
        let cluster = cluster(4, &[("a", 2), ("b", 2), ("c", 2)]);
        let configuration = Configuration::default();
        let session = Session::new(&cluster, &configuration, Time::EPOCH);
        let mut session = session.expect("a session");
        let report = session.schedule(Time::EPOCH);
        assert_eq!((report.placed.len(), report.pending.len()), (2, 1));
        assert!(report.pending[0].reason.contains("Insufficient cpu"));
        let (_, waiting) = report.pending[0].pod.split_once('/').expect("a key");
        let explained = session.explain("default", waiting).expect("the pod");
        assert!(!explained.summary.is_empty());
        assert!(session.explain("default", "d").is_none());
        assert!(session.explain_node("n1").is_some());
    }

    #[test]
    fn pods_share_the_devices_of_a_claim() {
        let objects = "\
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 4, pods: 110}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec: {driver: gpu.example.com, nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 1}, devices: [{name: g}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
";
        let pods = ["a", "b"].map(|name| {
            format!(
                "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i}}], \
                 resourceClaims: [{{name: gpu, resourceClaimName: one}}]}}}}\n"
            )
        });
        let cluster = ClusterObjects::from_yaml("c", &(objects.to_owned() + &pods.concat()));
        let cluster = cluster.expect("a cluster");
        let session = Session::new(&cluster, &Configuration::default(), Time::EPOCH);
        let report = session.expect("a session").schedule(Time::EPOCH);
        assert_eq!(report.placed.len(), 2, "{:?}", report.pending);
    }

    #[test]
    fn a_rejected_workload_takes_no_room_from_those_behind_it() {
        let cluster = cluster(4, &[("a", 2), ("b", 2), ("c", 2), ("d", 3), ("e", 1)]);
        let queue = [
            vec!["default/a", "default/b", "default/c"],
            vec!["d"],
            vec!["default/a"],
            vec!["default/e"],
        ];
        let fit = |queue: &[Vec<&str>]| {
            fit_queue(&cluster, &Configuration::default(), queue, Time::EPOCH)
        };
        let fits = fit(&queue).expect("an answer");
        let fits: Vec<bool> = fits.iter().map(WorkloadFit::fits).collect();
        assert_eq!(fits, [false, true, false, true]);
        let error = fit(&[vec!["default/f"]]).expect_err("no such pod");
        let expected = "there is no pod default/f";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn a_wrong_configuration_is_named_with_the_field() {
        let kind = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        let extenders = "extenders:\n- {urlPrefix: 'http://localhost', filterVerb: filter}\n";
        for (text, expected) in [
            ("podMaxBackoffSeconds: much\n", "podMaxBackoffSeconds"),
            (extenders, "the configuration has extenders"),
        ] {
            let configuration = Configuration::default().yaml("s.yaml", &format!("{kind}{text}"));
            let session = Session::new(&ClusterObjects::new(), &configuration, Time::EPOCH);
            let error = session.expect_err("a fault").to_string();
            assert!(error.contains(expected), "{error}");
        }
        let gates = Configuration::default().feature_gates("Nope=true");
        let session = Session::new(&ClusterObjects::new(), &gates, Time::EPOCH);
        let error = session.expect_err("a fault").to_string();
        assert!(error.starts_with("feature gates: "), "{error}");
    }
}
