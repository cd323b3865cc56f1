//! Operations that create nodes, namespaces, pods and other objects.

use super::{BarrierStage, Executor, POLL_INTERVAL, Pace, parallel};
use crate::workload::api::{OfferedResource, WorkloadApi};
use crate::workload::error::RunError;
use crate::workload::objects::{
    ObjectTemplate, bound_volume, default_node, default_pod, mapping, use_claim,
};
use crate::workload::ops::{
    CreateNamespaces, CreateNodes, CreatePods, LabelNodes, LabelSet, NodeAllocatable,
    UniqueNodeLabel, VolumeTemplates,
};
use crate::workload::view::WatchView;
use berth_client::ApiError;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The annotation of a CSINode that lists the migrated in-tree plugins.
const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";
/// The letters of generated names, as Kubernetes chooses them.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The time for which the creation of an object of any kind is retried, as in upstream.
const CREATE_ANY_LIMIT: Duration = Duration::from_secs(20);
/// The maximum time of the deletion of a namespace of an earlier run.
const NAMESPACE_DELETION_LIMIT: Duration = Duration::from_secs(120);

/// Random values of a workload.
#[derive(Debug)]
pub(super) struct Generator {
    pub(super) random: fastrand::Rng,
    /// The names that were generated.
    names: HashSet<String>,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            names: HashSet::new(),
        }
    }

    /// A name with this prefix that was not generated before, because a few thousand random suffixes contain
    /// duplicates.
    fn name(&mut self, prefix: &str) -> String {
        loop {
            let random = &mut self.random;
            let letters = (0..5).map(|_| char::from(LETTERS[random.usize(..LETTERS.len())]));
            let name: String = prefix.chars().chain(letters).collect();
            if self.names.insert(name.clone()) {
                return name;
            }
        }
    }
}

impl Executor<'_> {
    fn note_created(&self, paths: impl IntoIterator<Item = String>) {
        self.created
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .extend(paths);
    }

    pub(super) async fn create_nodes(&mut self, op: &CreateNodes) -> Result<(), RunError> {
        let mut nodes = Vec::with_capacity(op.count);
        for index in 0..op.count {
            let mut node = match &op.template {
                Some(template) => template
                    .object(index, op.count)
                    .map_err(|e| self.failed(e))?,
                None => default_node(&format!("node-{}-", self.at.op)),
            };
            let meta = &node["metadata"];
            let name = match meta["name"].as_str().filter(|name| !name.is_empty()) {
                Some(name) => name.to_owned(),
                None => {
                    let prefix = meta["generateName"].as_str().unwrap_or_default().to_owned();
                    self.generator.name(&prefix)
                }
            };
            mapping(&mut node, &["metadata"]).insert("name".to_owned(), json!(name));
            mapping(&mut node, &["metadata", "labels"])
                .insert("kubernetes.io/hostname".to_owned(), json!(name));
            let csi_node = self.prepare(&mut node, &name, index, op);
            nodes.push((node, csi_node));
        }
        let resource = OfferedResource::of("/api/v1", "nodes", false);
        let csi = OfferedResource::of("/apis/storage.k8s.io/v1", "csinodes", false);
        for (node, csi_node) in &nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            self.note_created([resource.object("", name)]);
            if csi_node.is_some() {
                self.note_created([csi.object("", name)]);
            }
        }
        let (api, nodes) = (Arc::clone(&self.api), Arc::new(nodes));
        let created = parallel(op.count, move |index| {
            let (api, nodes) = (Arc::clone(&api), Arc::clone(&nodes));
            let (resource, csi) = (resource.clone(), csi.clone());
            async move {
                let (node, csi_node) = &nodes[index];
                if let Some(csi_node) = csi_node {
                    api.create(&csi, "", csi_node).await?;
                }
                api.create(&resource, "", node).await.map(drop)
            }
        });
        created
            .await
            .map_err(|e: ApiError| self.failed(format!("failed to create node: {e}")))
    }

    /// Adds the fields of the strategy. Returns the CSINode of the node, if it has one.
    fn prepare(
        &mut self,
        node: &mut Value,
        name: &str,
        index: usize,
        op: &CreateNodes,
    ) -> Option<Value> {
        if let Some(LabelNodes {
            label_key,
            label_values,
        }) = &op.label_node_prepare_strategy
        {
            let value = &label_values[index % label_values.len()];
            mapping(node, &["metadata", "labels"]).insert(label_key.clone(), json!(value));
        }
        if let Some(UniqueNodeLabel { label_key }) = &op.unique_node_label_strategy {
            let random = &mut self.generator.random;
            let value = format!("{:016x}{:016x}", random.u64(..), random.u64(..));
            mapping(node, &["metadata", "labels"]).insert(label_key.clone(), json!(value));
        }
        let strategy = op.node_allocatable_strategy.as_ref()?;
        let status = mapping(node, &["status"]);
        if !status.contains_key("allocatable")
            && let Some(capacity) = status.get("capacity").cloned()
        {
            status.insert("allocatable".to_owned(), capacity);
        }
        let allocatable = mapping(node, &["status", "allocatable"]);
        for (resource, quantity) in &strategy.node_allocatable {
            allocatable.insert(resource.clone(), json!(quantity));
        }
        Some(csi_node(name, strategy))
    }

    pub(super) async fn create_namespaces(
        &mut self,
        op: &CreateNamespaces,
    ) -> Result<(), RunError> {
        for index in 0..op.count {
            let mut namespace = match &op.template {
                Some(template) => template.object(0, 1).map_err(|e| self.failed(e))?,
                None => json!({"apiVersion": "v1", "kind": "Namespace"}),
            };
            let name = format!("{}-{index}", op.prefix);
            mapping(&mut namespace, &["metadata"]).insert("name".to_owned(), json!(name));
            self.create_namespace(name, &namespace).await?;
        }
        Ok(())
    }

    /// Creates a namespace unless it exists.
    pub(super) async fn ensure_namespace(&mut self, name: &str) -> Result<(), RunError> {
        if name.is_empty() || self.namespaces.contains(name) {
            return Ok(());
        }
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create_namespace(name.to_owned(), &namespace).await
    }

    /// Creates a namespace unless it exists. If it is being deleted, it is created again afterwards.
    async fn create_namespace(&mut self, name: String, namespace: &Value) -> Result<(), RunError> {
        let resource = OfferedResource::of("/api/v1", "namespaces", false);
        let deadline = Instant::now() + NAMESPACE_DELETION_LIMIT;
        loop {
            match self.api.create(&resource, "", namespace).await {
                Ok(_) => {
                    self.namespaces.insert(name);
                    return Ok(());
                }
                Err(error) if error.code() == Some(409) => {}
                Err(error) => {
                    return Err(self.failed(format!("failed to create namespace {name}: {error}")));
                }
            }
            let (namespaces, _) = self
                .api
                .list("/api/v1/namespaces")
                .await
                .map_err(|error| self.failed(format!("failed to list namespaces: {error}")))?;
            let found = namespaces.iter().find(|n| n["metadata"]["name"] == *name);
            match found.map(|found| &found["metadata"]["deletionTimestamp"]) {
                Some(Value::Null) => return Ok(()),
                Some(_) if Instant::now() >= deadline => {
                    return Err(self.failed(format!(
                        "namespace {name} is still being deleted after {} s; kube-controller-manager must run, which \
                         removes what is in it",
                        NAMESPACE_DELETION_LIMIT.as_secs()
                    )));
                }
                Some(_) => sleep(POLL_INTERVAL).await,
                None => {}
            }
        }
    }

    pub(super) async fn create_pods(&mut self, op: &CreatePods) -> Result<(), RunError> {
        let namespace = self.namespace_of(op.namespace.as_ref());
        self.ensure_namespace(&namespace).await?;
        if op.steady_state {
            return self.create_pods_steadily(&namespace, op).await;
        }
        self.create_batch(&namespace, op).await?;
        if op.skip_wait_to_completion {
            *self.waiting.entry(namespace).or_default() += op.count;
            return Ok(());
        }
        self.wait(
            &namespace,
            &LabelSet::new(),
            op.count,
            BarrierStage::Scheduled,
        )
        .await
    }

    /// Creates the pods of an operation.
    pub(super) async fn create_batch(
        &mut self,
        namespace: &str,
        op: &CreatePods,
    ) -> Result<(), RunError> {
        if op.volume.is_some() {
            let volumes = OfferedResource::of("/api/v1", "persistentvolumes", false);
            let paths = (0..op.count).map(|i| volumes.object("", &format!("{namespace}-vol-{i}")));
            self.note_created(paths);
        }
        let pods = Arc::new(PodBatch {
            api: Arc::clone(&self.api),
            view: Arc::clone(&self.view),
            namespace: namespace.to_owned(),
            count: op.count,
            source: PodSource::new(op.template.clone()).map_err(|e| self.failed(e))?,
            volume: op.volume.clone(),
        });
        let rate = self.options.pods_per_second;
        let pace = rate
            .filter(|_| op.collect_metrics || self.collecting.is_some())
            .map(Pace::of);
        let created = parallel(op.count, move |index| {
            let pods = Arc::clone(&pods);
            async move {
                if let Some(pace) = pace {
                    pace.wait(index).await;
                }
                pods.create(index).await
            }
        });
        created
            .await
            .map_err(|message: String| self.failed(message))
    }

    pub(super) async fn create_any(
        &mut self,
        namespace: &str,
        template: &Arc<ObjectTemplate>,
        count: usize,
    ) -> Result<(), RunError> {
        self.ensure_namespace(namespace).await?;
        if count == 0 {
            return Ok(());
        }
        let resource = self.resource_of(namespace, template, count).await?;
        let shared = (Arc::clone(&self.api), namespace.to_owned());
        let context = Arc::new((shared, Arc::clone(template), resource.clone()));
        let created = Arc::clone(&self.created);
        let result = parallel(count, move |index| {
            let (context, created) = (Arc::clone(&context), Arc::clone(&created));
            async move {
                let ((api, namespace), template, resource) = &*context;
                let object = template.object(index, count)?;
                let deadline = Instant::now() + CREATE_ANY_LIMIT;
                loop {
                    match api.create(resource, namespace, &object).await {
                        Ok(answer) if !resource.namespaced => {
                            let path = resource.object("", &answer.metadata.name);
                            created
                                .lock()
                                .unwrap_or_else(std::sync::PoisonError::into_inner)
                                .push(path);
                            return Ok(());
                        }
                        Ok(_) => return Ok(()),
                        // Admission can depend on pending work of controllers, so retry.
                        Err(error) if error.code() == Some(403) && Instant::now() < deadline => {
                            sleep(Duration::from_millis(100)).await;
                        }
                        Err(error) => {
                            return Err(format!("{}: failed to create: {error}", template.path()));
                        }
                    }
                }
            }
        });
        result.await.map_err(|message: String| self.failed(message))
    }

    /// Waits until the API server lists the expected number of PodGroups. Upstream's harness waits for the cache of its
    /// scheduler, which is not visible in another process.
    pub(super) async fn wait_for_groups(
        &self,
        namespace: &str,
        count: usize,
    ) -> Result<(), RunError> {
        let groups = OfferedResource::of("/apis/scheduling.k8s.io/v1beta1", "podgroups", true);
        let collection = groups.collection(namespace);
        let deadline = Instant::now() + CREATE_ANY_LIMIT;
        loop {
            let listed = self.api.list(&collection).await;
            let (listed, _) = listed.map_err(|e| self.failed(format!("failed to list: {e}")))?;
            if listed.len() >= count {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let (listed, limit) = (listed.len(), CREATE_ANY_LIMIT.as_secs());
                let message = format!(
                    "{listed} of {count} PodGroups in namespace {namespace} after {limit} s"
                );
                return Err(self.failed(message));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The resource of an operation's objects; its scope must agree with the namespace.
    pub(super) async fn resource_of(
        &self,
        namespace: &str,
        template: &ObjectTemplate,
        count: usize,
    ) -> Result<OfferedResource, RunError> {
        let first = template.object(0, count).map_err(|e| self.failed(e))?;
        let resource = self
            .api
            .resource(&first)
            .await
            .map_err(|e| self.failed(format!("{}: {e}", template.path())))?;
        let path = template.path();
        match (resource.namespaced, namespace.is_empty()) {
            (true, true) => Err(self.failed(format!(
                "{path}: objects of this kind have a namespace; set namespace"
            ))),
            (false, false) => Err(self.failed(format!(
                "{path}: objects of this kind have no namespace; remove namespace"
            ))),
            _ => Ok(resource),
        }
    }
}

fn csi_node(name: &str, strategy: &NodeAllocatable) -> Value {
    let drivers = strategy.csi_node_allocatable.iter();
    let drivers = drivers.map(|(driver, limit)| {
        let mut object = json!({"name": driver, "nodeID": name, "topologyKeys": []});
        if let Some(count) = limit.count {
            object["allocatable"] = json!({"count": count});
        }
        object
    });
    let drivers: Vec<Value> = drivers.collect();
    let migrated = strategy.migrated_plugins.join(",");
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "annotations": {MIGRATED_PLUGINS: migrated}},
        "spec": {"drivers": drivers},
    })
}

/// The source of pods.
enum PodSource {
    /// The same pod each time, with its serialized form.
    Constant(Value, Bytes),
    /// Another one for each index.
    Template(Arc<ObjectTemplate>),
}

impl PodSource {
    fn new(template: Option<Arc<ObjectTemplate>>) -> Result<Self, String> {
        let constant = match template {
            None => default_pod(),
            Some(template) if !template.is_constant() => return Ok(Self::Template(template)),
            Some(template) => template.object(0, 1)?,
        };
        let body = constant.to_string().into();
        Ok(Self::Constant(constant, body))
    }
}

/// A batch of pods.
struct PodBatch {
    api: Arc<WorkloadApi>,
    view: Arc<WatchView>,
    namespace: String,
    count: usize,
    source: PodSource,
    volume: Option<VolumeTemplates>,
}

impl PodBatch {
    async fn create(&self, index: usize) -> Result<(), String> {
        if let Some(volume) = &self.volume {
            self.create_volume(index, volume).await?;
        }
        let body = match (&self.source, &self.volume) {
            (PodSource::Constant(_, body), None) => body.clone(),
            (source, volume) => {
                let mut pod = match source {
                    PodSource::Constant(pod, _) => pod.clone(),
                    PodSource::Template(template) => template.object(index, self.count)?,
                };
                if volume.is_some() {
                    use_claim(&mut pod, index);
                }
                pod.to_string().into()
            }
        };
        let mut path = OfferedResource::of("/api/v1", "pods", true).collection(&self.namespace);
        // All pods of a batch have the same fields.
        if index == 0 {
            path.push_str("?fieldValidation=Strict");
        }
        let sent = Instant::now();
        let created = self.api.write(Method::POST, path, body).await;
        let created = created.map_err(|e| format!("failed to create pod: {e}"))?;
        if !created.metadata.uid.is_empty() {
            self.view.created(&created.metadata.uid, sent);
        }
        Ok(())
    }

    /// Creates the claim, then the volume. The status of each is written separately, because the API ignores it on
    /// creation.
    async fn create_volume(&self, index: usize, volume: &VolumeTemplates) -> Result<(), String> {
        let (volume, claim) = bound_volume(
            &self.namespace,
            index,
            &volume.volume.object(0, 1)?,
            &volume.claim.object(0, 1)?,
        );
        for (plural, namespace, object) in [
            ("persistentvolumeclaims", self.namespace.as_str(), claim),
            ("persistentvolumes", "", volume),
        ] {
            let resource = OfferedResource::of("/api/v1", plural, !namespace.is_empty());
            let fail = |e: ApiError| format!("failed to create one of the {plural}: {e}");
            self.api
                .create(&resource, namespace, &object)
                .await
                .map_err(fail)?;
            let status = ["status".to_owned()];
            self.api
                .update(&resource, namespace, &object, &status)
                .await
                .map_err(fail)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_are_unique() {
        let mut generator = Generator::new(1);
        let unique: HashSet<String> = (0..20_000).map(|_| generator.name("node-")).collect();
        assert_eq!(unique.len(), 20_000);
    }
}
