//! A random cluster of a random release, with two cores that differ only in their evaluator and must have the same
//! outputs.
//!
//! With SchedulerPreQueueingHints and kept answers, a pod of a template that was just rejected stands for the other
//! pods of the template, while the plain evaluator makes more decisions. The outputs of two cores would then differ.
//! Such a cluster has one core, whose evaluator makes every decision in both ways and compares them.

use crate::{devices, draw, storage};
use berth_api::{Duration, Kind, Object, Release, Time};
use berth_framework::ApiCall;
use berth_framework::call::{CallError, CallErrorKind, CallId, CallResult, Response};
use berth_framework::write::{Action, Write};
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::evaluator::EvaluatorKind;
use berth_scheduler::profile::{PluginConfig, ProfileSpec};
use berth_scheduler::{ClusterChange, CycleResult, ScheduleOutcome, Scheduler, SchedulerOptions};
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NODES: usize = 12;
const MORE_NODES: usize = 150;
const SERVICES: usize = 4;

pub(crate) struct World {
    pub(crate) core: Scheduler,
    /// The core with the plain evaluator, in clusters in which both cores must have the same outputs.
    plain: Option<Scheduler>,
    release: Release,
    pub(crate) placed: u64,
    pub(crate) unfit: u64,
    /// Cycles and bindings that failed, for example because a claim changed in between.
    pub(crate) failed: u64,
    /// Writes of volumes and claims.
    pub(crate) writes: u64,
    pub(crate) evictions: u64,
    rng: Rng,
    now: Time,
    templates: Vec<Value>,
    nodes: BTreeMap<usize, Value>,
    services: BTreeMap<usize, Value>,
    /// By UID.
    pods: BTreeMap<String, Value>,
    /// All other objects that are added and removed, by kind, namespace and name.
    objects: BTreeMap<Name, Value>,
    made: usize,
    version: u64,
}

/// Kind, namespace and name.
type Name = (String, String, String);

fn name_of(object: &Value) -> Name {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"]),
    )
}

/// Applies a JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        match value {
            Value::Null => drop(
                target
                    .as_object_mut()
                    .and_then(|target| target.remove(name)),
            ),
            value => merge(&mut target[name.as_str()], value),
        }
    }
}

fn decode(value: &Value) -> Object {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    Kind::by_name(text("apiVersion"), text("kind"))
        .expect("a kind that is followed")
        .decode(value.to_string().as_bytes())
        .unwrap_or_else(|e| panic!("{value}: {e}"))
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut other = ProfileSpec::named("other");
        other.plugin_config = vec![
            PluginConfig {
                name: "PodTopologySpread".to_owned(),
                args: json!({"defaultingType": "List", "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}]}),
            },
            PluginConfig {
                name: "InterPodAffinity".to_owned(),
                args: json!({"hardPodAffinityWeight": 40, "ignorePreferredTermsOfExistingPods": rng.bool()}),
            },
            PluginConfig {
                name: "NodeResourcesFit".to_owned(),
                args: json!({"scoringStrategy": {"type": "MostAllocated", "resources": [
                    {"name": "cpu", "weight": 2}, {"name": "memory", "weight": 1}, {"name": "example.com/gpu", "weight": 5}]}}),
            },
        ];
        if seed.is_multiple_of(5) {
            other.percentage_of_nodes_to_score = Some(30);
        }
        let mut default = ProfileSpec::default();
        if seed.is_multiple_of(3) {
            let left_out = ["PodTopologySpread", "InterPodAffinity"][rng.usize(..2)];
            default.plugins.multi_point.disabled = vec![left_out.to_owned()];
        }
        let now = Time::from_secs(1_800_000_000);
        let release = Release::ALL[(seed / 5 % 3) as usize];
        let narrows = (seed / 15).is_multiple_of(4) && seed != 0;
        let core = |evaluator| {
            let options = SchedulerOptions {
                profiles: vec![default.clone(), other.clone()],
                evaluator,
                compares_evaluators: true,
                seed,
                features: FeatureGates::of(release)
                    .with(Feature::DRADeviceTaintRules, true)
                    .with(Feature::SchedulerPreQueueingHints, narrows),
                ..SchedulerOptions::default()
            };
            Scheduler::new(options, &berth_plugins::in_tree(), now).expect("the profiles")
        };
        let templates = (0..rng.usize(2..7))
            .map(|_| draw::template(release, &mut rng))
            .collect();
        let mut world = Self {
            core: core(EvaluatorKind::Incremental),
            plain: (!narrows).then(|| core(EvaluatorKind::Plain)),
            release,
            placed: 0,
            unfit: 0,
            failed: 0,
            writes: 0,
            evictions: 0,
            rng,
            now,
            templates,
            nodes: BTreeMap::new(),
            services: BTreeMap::new(),
            pods: BTreeMap::new(),
            objects: BTreeMap::new(),
            made: 0,
            version: 1,
        };
        for name in draw::namespaces() {
            let namespace = draw::namespace(name, &mut world.rng);
            world.show(namespace);
        }
        for class in storage::classes(&mut world.rng) {
            world.set(class);
        }
        for _ in 0..world.rng.usize(1..NODES) {
            world.change_node();
        }
        if seed.is_multiple_of(10) {
            // Enough nodes for percentageOfNodesToScore to end searches.
            for at in NODES..NODES + MORE_NODES {
                let node = draw::node(at, &mut world.rng);
                world.show(node);
            }
        }
        for _ in 0..world.rng.usize(..20) {
            world.change_storage();
        }
        for class in devices::classes() {
            world.set(class);
        }
        for _ in 0..world.rng.usize(..40) {
            world.change_devices();
        }
        world
    }

    /// Shows the core a new version of an object.
    fn show(&mut self, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let decoded = decode(&object);
        if let Some(plain) = &mut self.plain {
            plain.apply(ClusterChange::Applied(decoded.clone()), self.now);
        }
        self.core.apply(ClusterChange::Applied(decoded), self.now);
        object
    }

    fn hide(&mut self, object: &Value) {
        let object = decode(object);
        if let Some(plain) = &mut self.plain {
            plain.apply(ClusterChange::Deleted(object.clone()), self.now);
        }
        self.core.apply(ClusterChange::Deleted(object), self.now);
    }

    fn complete(&mut self, id: CallId, result: &CallResult) {
        if let Some(plain) = &mut self.plain {
            plain.complete(id, result.clone(), self.now);
        }
        self.core.complete(id, result.clone(), self.now);
    }

    /// Plays one random event, and runs the core.
    pub(crate) fn step(&mut self) {
        self.now = self.now + Duration::from_millis(self.rng.u64(1..4_000));
        match self.rng.u8(..35) {
            0..=8 | 32..=34 => self.new_pods(),
            9..=11 => self.delete_pod(),
            12..=14 => self.change_node(),
            15 => self.remove_node(),
            16 => self.change_service(),
            17 => {
                let names = draw::namespaces();
                let name = names[self.rng.usize(..names.len())];
                let namespace = draw::namespace(name, &mut self.rng);
                self.show(namespace);
            }
            18 => {
                let template = draw::template(self.release, &mut self.rng);
                let at = self.rng.usize(..self.templates.len());
                self.templates[at] = template;
            }
            19..=22 => self.change_storage(),
            23 | 24 => self.bind_claims(),
            25..=28 => self.change_devices(),
            29 | 30 => self.manage_claims(),
            _ => self.relabel_pod(),
        }
        self.work();
    }

    fn new_pods(&mut self) {
        let template = self.templates[self.rng.usize(..self.templates.len())].clone();
        for _ in 0..self.rng.usize(1..5) {
            self.made += 1;
            let mut pod = draw::pod(self.made, &template, &mut self.rng);
            let uid = pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
            self.make_ephemeral_claims(&pod, &uid);
            for claim in devices::claims_of(&mut pod, &mut self.rng) {
                self.set(claim);
            }
            self.pods.insert(uid, pod.clone());
            self.show(pod);
        }
    }

    /// The claims of ephemeral volumes. Sometimes a claim is missing or belongs to another pod.
    fn make_ephemeral_claims(&mut self, pod: &Value, uid: &str) {
        let (_, namespace, name) = name_of(pod);
        let volumes = pod["spec"]["volumes"].as_array().cloned();
        for volume in volumes.unwrap_or_default() {
            if volume["ephemeral"].is_object() && !draw::often(&mut self.rng, 10) {
                let owner = if draw::often(&mut self.rng, 10) {
                    "other"
                } else {
                    uid
                };
                let claim = format!("{name}-{}", volume["name"].as_str().unwrap_or_default());
                let claim = storage::claim(&namespace, &claim, Some(owner), &mut self.rng);
                self.set(claim);
            }
        }
    }

    /// Stores and shows an object.
    fn set(&mut self, object: Value) {
        let object = self.show(object);
        self.objects.insert(name_of(&object), object);
    }

    /// An object that volumes or preemption read is created, changed or deleted.
    fn change_storage(&mut self) {
        let object = storage::some(NODES, self.release, &mut self.rng);
        match self.objects.remove(&name_of(&object)) {
            Some(old) if draw::often(&mut self.rng, 3) => self.hide(&old),
            _ => self.set(object),
        }
    }

    /// The volume controller binds claims with a selected node or a reserved volume.
    fn bind_claims(&mut self) {
        let reserved: BTreeMap<(String, String), String> = self
            .objects
            .iter()
            .filter_map(|((_, _, name), object)| {
                let claim = &object["spec"]["claimRef"];
                let key = (
                    claim["namespace"].as_str()?.to_owned(),
                    claim["name"].as_str()?.to_owned(),
                );
                Some((key, name.clone()))
            })
            .collect();
        let claims: Vec<Value> = self
            .objects
            .iter()
            .filter(|((kind, ..), _)| kind == "PersistentVolumeClaim")
            .map(|(_, claim)| claim.clone())
            .collect();
        for claim in claims {
            let (_, namespace, name) = name_of(&claim);
            let reserved = reserved.get(&(namespace, name)).map(String::as_str);
            if let Some((claim, volume)) = storage::bound(&claim, reserved) {
                if let Some(volume) = volume {
                    self.set(volume);
                }
                self.set(claim);
            }
        }
    }

    /// Devices, their taints or a claim are created, changed or deleted.
    fn change_devices(&mut self) {
        let is_gone = draw::often(&mut self.rng, 3);
        let object = match self.rng.u8(..8) {
            0 => devices::taint_rule(NODES, self.release, &mut self.rng),
            1 | 2 => devices::claim(&mut self.rng),
            _ => {
                let pool = devices::pool(NODES, &mut self.rng);
                let slices = devices::slices(&pool, self.version, &mut self.rng);
                let slices = if is_gone { Vec::new() } else { slices };
                for at in slices.len()..devices::SLICES_MAX {
                    let name = format!("{pool}-{at}");
                    let name = ("ResourceSlice".to_owned(), String::new(), name);
                    if let Some(old) = self.objects.remove(&name) {
                        self.hide(&old);
                    }
                }
                for slice in slices {
                    self.set(slice);
                }
                return;
            }
        };
        match self.objects.remove(&name_of(&object)) {
            Some(old) if is_gone => self.hide(&old),
            // The request of a claim never changes.
            Some(old) if object["kind"] == "ResourceClaim" => {
                self.objects.insert(name_of(&old), old);
            }
            _ => self.set(object),
        }
    }

    /// The claim controller releases the claims of deleted pods, and drivers report that devices are ready.
    fn manage_claims(&mut self) {
        let claims = self.objects.iter();
        let claims = claims.filter(|((kind, ..), _)| kind == "ResourceClaim");
        for (name, claim) in claims
            .map(|(name, claim)| (name.clone(), claim.clone()))
            .collect::<Vec<_>>()
        {
            let exists = |uid: &str| self.pods.contains_key(uid);
            if devices::is_orphan(&claim, exists) {
                self.objects.remove(&name);
                self.hide(&claim);
            } else if let Some(claim) = devices::released(&claim, exists) {
                self.set(claim);
            } else if let Some(claim) = devices::ready(&claim) {
                self.set(claim);
            }
        }
    }

    fn some_pod(&mut self) -> Option<String> {
        let at = self.rng.usize(..self.pods.len().max(1));
        self.pods.keys().nth(at).cloned()
    }

    fn delete_pod(&mut self) {
        if let Some(uid) = self.some_pod()
            && let Some(pod) = self.pods.remove(&uid)
        {
            self.hide(&pod);
        }
    }

    fn relabel_pod(&mut self) {
        if let Some(uid) = self.some_pod()
            && let Some(mut pod) = self.pods.remove(&uid)
        {
            let app = ["red", "green", "blue"][self.rng.usize(..3)];
            pod["metadata"]["labels"]["app"] = json!(app);
            self.pods.insert(uid, pod.clone());
            self.show(pod);
        }
    }

    fn change_node(&mut self) {
        let at = self.rng.usize(..NODES);
        let node = draw::node(at, &mut self.rng);
        self.nodes.insert(at, node.clone());
        self.show(node);
    }

    fn remove_node(&mut self) {
        let at = self.rng.usize(..NODES);
        if let Some(node) = self.nodes.remove(&at) {
            self.hide(&node);
        }
    }

    fn change_service(&mut self) {
        let at = self.rng.usize(..SERVICES);
        if let Some(service) = self.services.remove(&at) {
            self.hide(&service);
        } else {
            let service = draw::service(at, &mut self.rng);
            self.services.insert(at, service.clone());
            self.show(service);
        }
    }

    /// Runs the core until it is idle. Some calls are answered later.
    fn work(&mut self) {
        for _ in 0..60 {
            self.now = self.now + Duration::from_millis(1);
            let outcome = self.core.schedule_one(self.now);
            if let Some(plain) = &mut self.plain {
                let plainly = plain.schedule_one(self.now);
                assert_eq!(outcome, plainly, "incrementally and plainly");
            }
            match &outcome {
                ScheduleOutcome::Done {
                    result: CycleResult::Placed { .. },
                    ..
                } => self.placed += 1,
                ScheduleOutcome::Done {
                    result: CycleResult::Unschedulable { .. },
                    ..
                } => self.unfit += 1,
                ScheduleOutcome::Done {
                    result: CycleResult::Error { .. },
                    ..
                } => self.failed += 1,
                _ => {}
            }
            self.answer();
            if !matches!(outcome, ScheduleOutcome::Done { .. }) {
                break;
            }
        }
        self.core.check().unwrap_or_else(|what| panic!("{what}"));
    }

    /// Answers calls as the API server does, and shows the results.
    fn answer(&mut self) {
        loop {
            let calls = self.core.take_outputs(self.now).calls;
            if let Some(plain) = &mut self.plain {
                let plainly = plain.take_outputs(self.now).calls;
                let shown = |calls: &[(CallId, ApiCall)]| format!("{calls:?}");
                assert_eq!(shown(&calls), shown(&plainly), "incrementally and plainly");
            }
            if calls.is_empty() {
                return;
            }
            for (id, call) in calls {
                if let ApiCall::Write(write) = &call {
                    let result = self.write(write);
                    self.complete(id, &result);
                    continue;
                }
                let uid = call
                    .pod()
                    .map(|pod| pod.uid.to_string())
                    .unwrap_or_default();
                let Some(mut pod) = self.pods.get(&uid).cloned() else {
                    self.complete(id, &Err(CallError::new(CallErrorKind::NotFound, "gone")));
                    continue;
                };
                match call {
                    ApiCall::BindPod { node, .. } => {
                        pod["spec"]["nodeName"] = json!(node.as_str());
                        pod["status"]["startTime"] = json!("2026-01-01T00:00:00Z");
                    }
                    ApiCall::DeletePod { .. } => {
                        self.evictions += 1;
                        self.pods.remove(&uid);
                        self.complete(id, &Ok(Response::default()));
                        self.hide(&pod);
                        continue;
                    }
                    ApiCall::PatchPodStatus { nominated_node, .. }
                    | ApiCall::ClearPreEnqueueStatus { nominated_node, .. } => {
                        if let Some(node) = nominated_node {
                            pod["status"]["nominatedNodeName"] = json!(node.as_str());
                        }
                    }
                    ApiCall::Write(_) => {}
                }
                self.pods.insert(uid, pod.clone());
                self.complete(id, &Ok(Response::default()));
                self.show(pod);
            }
        }
    }

    /// Writes a volume, a claim or the status of a pod as the API server does.
    fn write(&mut self, write: &Write) -> CallResult {
        let object = write.object();
        let name = (
            format!("{:?}", object.kind),
            object.namespace.to_string(),
            object.name.to_string(),
        );
        let failed = |kind| Err(CallError::new(kind, "refused"));
        self.writes += 1;
        if object.kind == Kind::Pod {
            let mut pods = self.pods.values();
            let Some(mut pod) = pods.find(|pod| name_of(pod) == name).cloned() else {
                return failed(CallErrorKind::NotFound);
            };
            if let Action::Patch(body) = write.action() {
                merge(&mut pod, body);
            }
            let uid = pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
            self.pods.insert(uid, pod.clone());
            self.show(pod);
            return Ok(Response::default());
        }
        if let Action::Create(body) = write.action() {
            let mut body = body.clone();
            body["apiVersion"] = json!("resource.k8s.io/v1");
            body["kind"] = json!(name.0);
            body["metadata"]["uid"] = json!(format!("uid-of-{}", name.2));
            return Ok(self.stored(body));
        }
        let Some(stored) = self.objects.get(&name) else {
            return failed(CallErrorKind::NotFound);
        };
        let version = stored["metadata"]["resourceVersion"].as_str();
        if write
            .resource_version()
            .is_some_and(|expected| Some(expected.as_str()) != version)
        {
            return failed(CallErrorKind::Conflict);
        }
        let mut stored = stored.clone();
        match write.action() {
            Action::Patch(body) | Action::StrategicPatch(body)
                if object.kind == Kind::ResourceClaim =>
            {
                let is_strategic = matches!(write.action(), Action::StrategicPatch(_));
                devices::patch(&mut stored, body, is_strategic);
            }
            Action::Patch(patch) | Action::StrategicPatch(patch) => merge(&mut stored, patch),
            Action::Delete => {
                self.objects.remove(&name);
                self.hide(&stored);
                return Ok(Response::default());
            }
            action => panic!("{action:?} of {name:?}"),
        }
        Ok(self.stored(stored))
    }

    /// Stores and shows an object, and returns the answer with its version.
    fn stored(&mut self, object: Value) -> Response {
        self.set(object);
        Response {
            resource_version: Some(self.version.to_string().into()),
            ..Response::default()
        }
    }
}
