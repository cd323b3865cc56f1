//! Resource claims and slices: drivers that publish devices, the controller of claims, and the writes through the API.

use super::{Refusal, World};
use crate::shapes::{
    DEVICE_DRIVER, DeviceWant, DriverShape, NAMESPACES, NETWORK_POOL, device_claim_name,
};
use berth_api::devices::{AllocationResult, CLAIM_FINALIZER, ConsumerReference};
use berth_api::pod::PodResourceClaimStatus;
use berth_api::{Kind, Object, Pod, ResourceClaim, ResourceSlice, Shared, Str, Time};
use serde_json::{Value, json};
use std::sync::Arc;

/// Decodes an object built by the simulator.
fn decoded(kind: Kind, json: &Value) -> Object {
    let text = json.to_string();
    let object = kind.decode(text.as_bytes());
    object.unwrap_or_else(|error| panic!("the simulator describes {text}: {error}"))
}

fn claim_in(object: Object) -> ResourceClaim {
    match object {
        Object::ResourceClaim(claim) => ResourceClaim::clone(&claim),
        other => panic!("the simulator describes a claim, got {:?}", other.kind()),
    }
}

/// Returns whether the pod uses its claims, now or later.
fn is_live(pod: &Pod) -> bool {
    !pod.is_terminal() && (pod.is_assigned() || !pod.is_terminating())
}

/// The names of the claims that a pod uses.
fn claims_of(pod: &Pod) -> impl Iterator<Item = &Str> {
    let named = pod.spec.resource_claims.iter();
    let made = pod.status.resource_claim_statuses.iter();
    let extended = pod.status.extended_resource_claim_status.iter();
    named
        .filter_map(|claim| claim.resource_claim_name.as_ref())
        .chain(made.filter_map(|made| made.resource_claim_name.as_ref()))
        .chain(extended.map(|extended| &extended.resource_claim_name))
}

/// The claims and slices of a world, with their operations.
#[derive(Debug)]
pub struct Devices<'w>(&'w mut World);

impl<'w> Devices<'w> {
    /// The devices of this world.
    pub fn of(world: &'w mut World) -> Self {
        Self(world)
    }

    // --- drivers -----------------------------------------------------------------------------------------

    /// A driver publishes the devices of a node, or the devices that all nodes can use, replacing its previously
    /// published devices.
    pub fn publish_devices(&mut self, node: Option<&str>, shape: DriverShape) {
        if node.is_some_and(|node| !self.0.nodes().contains_key(node)) {
            return;
        }
        let pool = node.unwrap_or(NETWORK_POOL);
        let before = self.slices_of(pool);
        let generation = before.iter().map(|slice| slice.spec.pool.generation).max();
        let generation = generation.unwrap_or(0) + 1;
        let contents = shape.build();
        for slice in before.iter().skip(contents.len()) {
            self.0.store.remove(Object::ResourceSlice(slice.clone()));
        }
        let count = contents.len();
        for (index, mut spec) in contents.into_iter().enumerate() {
            spec["driver"] = json!(DEVICE_DRIVER);
            spec["pool"] =
                json!({"name": pool, "generation": generation, "resourceSliceCount": count});
            match node {
                Some(node) => spec["nodeName"] = json!(node),
                None => spec["allNodes"] = json!(true),
            }
            let name = format!("{pool}-{index}");
            let json = json!({"metadata": {"name": name}, "spec": spec});
            let Object::ResourceSlice(slice) = decoded(Kind::ResourceSlice, &json) else {
                continue;
            };
            let mut slice = ResourceSlice::clone(&slice);
            match before.get(index) {
                Some(known) => {
                    slice.metadata = known.metadata.clone();
                    self.0.store.change(&mut slice.metadata);
                }
                None => self.0.store.create(&mut slice.metadata),
            }
            self.0.store.put(Object::ResourceSlice(Arc::new(slice)));
        }
    }

    /// A driver exits, and its devices are withdrawn.
    pub fn withdraw_devices(&mut self, node: Option<&str>) {
        for slice in self.slices_of(node.unwrap_or(NETWORK_POOL)) {
            self.0.store.remove(Object::ResourceSlice(slice));
        }
    }

    fn slices_of(&self, pool: &str) -> Vec<Arc<ResourceSlice>> {
        let slices = self.0.others().of_kind(Kind::ResourceSlice);
        let slices = slices.filter_map(|object| object.as_resource_slice());
        slices
            .filter(|slice| slice.spec.pool.name == *pool)
            .cloned()
            .collect()
    }

    /// Removes the devices of nodes that were deleted.
    pub(super) fn collect(&mut self) {
        let slices = self.0.others().of_kind(Kind::ResourceSlice);
        let is_orphan = |object: &&Object| {
            let slice = object.as_resource_slice();
            let node = slice.and_then(|slice| slice.spec.node_name.as_ref());
            node.is_some_and(|node| !self.0.nodes().contains_key(node))
        };
        for orphan in slices.filter(is_orphan).cloned().collect::<Vec<_>>() {
            self.0.store.remove(orphan);
        }
    }

    // --- claims ------------------------------------------------------------------------------------------

    /// A user creates a claim, unless it exists.
    pub fn create_device_claim(&mut self, number: usize, want: DeviceWant) {
        let name = device_claim_name(number);
        if self.0.others().device_claim(NAMESPACES[0], &name).is_none() {
            let json = json!({
                "metadata": {"name": name, "namespace": NAMESPACES[0]},
                "spec": want.build(),
            });
            self.add_claim(&json);
        }
    }

    fn add_claim(&mut self, json: &Value) {
        let mut claim = claim_in(decoded(Kind::ResourceClaim, json));
        self.0.store.create(&mut claim.metadata);
        self.0.store.put(Object::ResourceClaim(Arc::new(claim)));
    }

    /// A user deletes a claim. A claim with devices stays until the controller has released them.
    pub fn delete_device_claim(&mut self, number: usize, now: Time) {
        let name = device_claim_name(number);
        if let Some(claim) = self.0.others().device_claim(NAMESPACES[0], &name).cloned() {
            self.mark_deleted(&claim, now);
        }
    }

    fn mark_deleted(&mut self, claim: &Arc<ResourceClaim>, now: Time) {
        if claim.metadata.finalizers.is_empty() {
            self.0.store.remove(Object::ResourceClaim(claim.clone()));
        } else if claim.metadata.deletion_timestamp.is_none() {
            let mut changed = ResourceClaim::clone(claim);
            changed.metadata.deletion_timestamp = Some(now);
            self.store_claim(changed);
        }
    }

    /// Stores a changed claim; a claim that is being deleted is removed with its last finalizer.
    fn store_claim(&mut self, mut claim: ResourceClaim) {
        self.0.store.change(&mut claim.metadata);
        let is_gone =
            claim.metadata.deletion_timestamp.is_some() && claim.metadata.finalizers.is_empty();
        let object = Object::ResourceClaim(Arc::new(claim));
        if is_gone {
            self.0.store.remove(object)
        } else {
            self.0.store.put(object)
        }
    }

    /// Acts as the controller of claims: creates claims from templates, and releases the claims of ended or deleted
    /// pods.
    pub fn manage_claims(&mut self, now: Time) {
        self.make_claims();
        let claims = self.0.others().of_kind(Kind::ResourceClaim);
        let claims = claims.filter_map(|object| object.as_resource_claim().cloned());
        for claim in claims.collect::<Vec<_>>() {
            self.release_claim(&claim);
            let meta = &claim.metadata;
            let owner = meta.controller();
            let is_needed = owner.is_none_or(|owner| {
                let mut pods = self.0.pods().values();
                pods.any(|pod| *pod.uid() == owner.uid && !pod.is_terminal())
            });
            let stored = self.0.others().device_claim(&meta.namespace, &meta.name);
            if let Some(stored) = stored.filter(|_| !is_needed).cloned() {
                self.mark_deleted(&stored, now);
            }
        }
    }

    fn make_claims(&mut self) {
        let pods: Vec<Arc<Pod>> = self.0.pods().values().cloned().collect();
        for pod in pods {
            if pod.is_terminal() || pod.is_terminating() {
                continue;
            }
            for entry in &pod.spec.resource_claims {
                let template = entry.resource_claim_template_name.as_ref();
                let want = template.and_then(|template| DeviceWant::of_template(template));
                let mut made = pod.status.resource_claim_statuses.iter();
                let Some(want) = want.filter(|_| !made.any(|made| made.name == entry.name)) else {
                    continue;
                };
                let name = format!("{}-{}", pod.name(), pod.uid());
                if self
                    .0
                    .others()
                    .device_claim(pod.namespace(), &name)
                    .is_none()
                {
                    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.uid(),
                        "controller": true});
                    self.add_claim(&json!({
                        "metadata": {"name": name, "namespace": pod.namespace(), "ownerReferences": [owner]},
                        "spec": want.build(),
                    }));
                }
                self.0.change_pod(pod.name(), |changed| {
                    changed
                        .status
                        .resource_claim_statuses
                        .push(PodResourceClaimStatus {
                            name: entry.name.clone(),
                            resource_claim_name: Some(name.into()),
                        });
                });
            }
        }
    }

    fn release_claim(&mut self, claim: &ResourceClaim) {
        let mut changed = claim.clone();
        let status = &mut changed.status;
        let before = status.reserved_for.len();
        status.reserved_for.retain(|consumer| {
            let mut pods = self.0.pods().values();
            pods.any(|pod| *pod.uid() == consumer.uid && is_live(pod))
        });
        let was_held = status.reserved_for.len() < before;
        let is_deleting = claim.metadata.deletion_timestamp.is_some();
        if status.allocation.is_some() && !is_deleting {
            // A pod that was bound without its reservation keeps its devices.
            let users = self.0.pods().values().filter(|pod| {
                pod.is_assigned()
                    && is_live(pod)
                    && *pod.namespace() == claim.metadata.namespace
                    && claims_of(pod).any(|name| *name == claim.metadata.name)
            });
            for pod in users {
                if !status.reserved_for.iter().any(|c| c.uid == *pod.uid()) {
                    status.reserved_for.push(ConsumerReference {
                        resource: "pods".into(),
                        name: pod.name().clone(),
                        uid: pod.uid().clone(),
                        ..ConsumerReference::default()
                    });
                }
            }
        }
        if status.reserved_for.is_empty() && (was_held || is_deleting) {
            status.allocation = None;
            status.devices.clear();
            changed.metadata.finalizers = Shared::default();
        }
        if changed != *claim {
            self.store_claim(changed);
        }
    }

    // --- the API -----------------------------------------------------------------------------------------

    /// Creates a claim for a scheduler.
    ///
    /// # Errors
    /// When the name exists already.
    pub fn create_claim_object(&mut self, body: &Value) -> Result<(), Refusal> {
        let claim = claim_in(decoded(Kind::ResourceClaim, body));
        let meta = &claim.metadata;
        if self
            .0
            .others()
            .device_claim(&meta.namespace, &meta.name)
            .is_some()
        {
            return Err(Refusal::Conflict);
        }
        self.add_claim(body);
        Ok(())
    }

    fn claim_of(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        version: Option<&str>,
    ) -> Result<Arc<ResourceClaim>, Refusal> {
        let claim = self.0.others().device_claim(namespace, name);
        let claim = claim.ok_or(Refusal::NotFound)?;
        let is_it = uid.is_empty() || *claim.metadata.uid == *uid;
        let is_current = version.is_none_or(|v| *claim.metadata.resource_version == *v);
        if is_it && is_current {
            Ok(claim.clone())
        } else {
            Err(Refusal::Conflict)
        }
    }

    /// Deletes a claim for a scheduler.
    ///
    /// # Errors
    /// When it was deleted or replaced.
    pub fn delete_claim_object(
        &mut self,
        namespace: &str,
        name: &str,
        uid: &str,
        now: Time,
    ) -> Result<(), Refusal> {
        let claim = self.claim_of(namespace, name, uid, None)?;
        self.mark_deleted(&claim, now);
        Ok(())
    }

    /// Patches a claim, strategically or as a merge patch.
    ///
    /// # Errors
    /// When it was deleted or replaced, or has another version; or the result is not valid.
    pub fn patch_claim(
        &mut self,
        namespace: &str,
        name: &str,
        uid: &str,
        version: Option<&str>,
        body: &Value,
        is_strategic: bool,
    ) -> Result<(), Refusal> {
        let claim = self.claim_of(namespace, name, uid, version)?;
        let mut changed = ResourceClaim::clone(&claim);
        let metadata = &body["metadata"];
        let mut finalizers: Vec<Str> = changed.metadata.finalizers.to_vec();
        if metadata["finalizers"].is_array() && !finalizers.iter().any(|f| **f == *CLAIM_FINALIZER)
        {
            finalizers.push(CLAIM_FINALIZER.into());
        }
        if metadata["$deleteFromPrimitiveList/finalizers"].is_array() {
            finalizers.clear();
        }
        changed.metadata.finalizers = Shared::from(finalizers);
        patch_status(&mut changed, &body["status"], is_strategic)?;
        if changed != *claim {
            self.store_claim(changed);
        }
        Ok(())
    }

    /// Names the claim for extended resources in a pod's status.
    ///
    /// # Errors
    /// When the pod was deleted or replaced.
    pub fn publish_claim(&mut self, name: &str, body: &Value) -> Result<(), Refusal> {
        let uid = body["metadata"]["uid"].as_str().unwrap_or_default();
        self.0.same_pod(name, uid)?;
        let status = serde_json::from_value(body["status"]["extendedResourceClaimStatus"].clone());
        self.0.change_pod(name, |pod| {
            pod.status.extended_resource_claim_status = status.ok();
        });
        Ok(())
    }
}

fn patch_status(
    claim: &mut ResourceClaim,
    patch: &Value,
    is_strategic: bool,
) -> Result<(), Refusal> {
    let status = &mut claim.status;
    match patch.get("allocation") {
        Some(Value::Null) => status.allocation = None,
        Some(allocation) => {
            let new: AllocationResult =
                serde_json::from_value(allocation.clone()).map_err(|_| Refusal::Conflict)?;
            // An allocation cannot be replaced.
            if status.allocation.as_ref().is_some_and(|old| *old != new) {
                return Err(Refusal::Conflict);
            }
            status.allocation = Some(new);
        }
        None => {}
    }
    if patch.get("devices").is_some_and(Value::is_null) {
        status.devices.clear();
    }
    let before = status.reserved_for.len();
    match patch.get("reservedFor") {
        Some(Value::Array(entries)) => {
            if !is_strategic {
                status.reserved_for.clear();
            }
            for entry in entries {
                let uid = entry["uid"].as_str().unwrap_or_default();
                let is_known = status.reserved_for.iter().any(|c| *c.uid == *uid);
                if entry["$patch"] == "delete" {
                    status.reserved_for.retain(|c| *c.uid != *uid);
                } else if !is_known {
                    let consumer = serde_json::from_value(entry.clone());
                    status
                        .reserved_for
                        .push(consumer.map_err(|_| Refusal::Conflict)?);
                }
            }
        }
        Some(_) => status.reserved_for.clear(),
        None => {}
    }
    let is_reserved = !status.reserved_for.is_empty();
    let is_deleting = claim.metadata.deletion_timestamp.is_some();
    if is_reserved && status.allocation.is_none()
        || is_deleting && status.reserved_for.len() > before
    {
        return Err(Refusal::Conflict);
    }
    Ok(())
}
