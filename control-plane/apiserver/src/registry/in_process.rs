//! [`Access`] for the controllers and kubelets of this process: the pipeline of HTTP requests without the socket.
//!
//! Bodies are not checked against the schemas: this program made them.

use super::api::Api;
use super::list::ListRequest;
use super::requester::Requester;
use crate::registry::request::{
    DeleteRequest, Method, Preconditions, REMOVAL_DELAY, UpdateInputs, WriteOptions,
};
use crate::stopping::stopped;
use crate::storage::{Cursor, EventKind, ObjectVersion, StoredEvent};
use berth_objects::access::{
    Access, AccessError, DeleteOptions, GroupResource, KindInfo, StoredObject,
    WatchedChange as Seen, WatchedChanges,
};
use berth_objects::catalog::{self, ServedResource};
use berth_objects::status::ApiError;
use berth_objects::view::meta;
use rustc_hash::FxHashSet;
use serde_json::Value;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

/// The number of changes that wait for a watcher before the watch stops reading ahead.
const WATCH_BUFFER: usize = 1_024;
/// The number of changes that are taken from the history at once.
const READ_MAX: usize = 256;

/// The API as seen from within the process.
#[derive(Debug, Clone)]
pub(crate) struct InProcess {
    api: Arc<Api>,
    /// The options and the user of its writes.
    options: WriteOptions,
    runtime: Handle,
    /// Turns true when the server stops.
    stopping: watch::Receiver<bool>,
}

impl InProcess {
    pub(crate) fn new(
        api: Arc<Api>,
        manager: &str,
        runtime: Handle,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            api,
            options: WriteOptions {
                manager: manager.to_owned(),
                requester: Requester::component(manager),
                ..WriteOptions::default()
            },
            runtime,
            stopping,
        }
    }

    /// A served resource; for a custom resource its storage version, if that is served: components of this process do
    /// not depend on conversion webhooks.
    fn resource(&self, kind: GroupResource) -> Result<Arc<ServedResource>, ApiError> {
        if let Some(known) = catalog::find(kind.group, kind.resource) {
            return Ok(Arc::clone(known));
        }
        let catalog = self.api.catalog();
        let custom = catalog.find(kind.group, kind.resource);
        let custom = custom.ok_or_else(ApiError::no_such_resource)?;
        let stored = custom.custom.as_ref().and_then(|c| {
            let (_, version) = c.stored_version.split_once('/')?;
            catalog.find_version(kind.group, version, kind.resource)
        });
        Ok(Arc::clone(stored.unwrap_or(custom)))
    }

    fn write(
        &self,
        kind: GroupResource,
        object: Value,
        sub: &str,
    ) -> Result<StoredObject, AccessError> {
        let resource = &*self.resource(kind)?;
        let (namespace, name) = (
            meta(&object, "namespace").to_owned(),
            meta(&object, "name").to_owned(),
        );
        let change = UpdateInputs {
            resource,
            namespace: &namespace,
            name: &name,
            sub,
            options: &self.options,
            by: Method::Put,
            is_decoded: false,
        };
        let written = self.api.replace(&change, object.into())?;
        Ok(written.version.object())
    }
}

impl Access for InProcess {
    fn get(
        &self,
        kind: GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<StoredObject, AccessError> {
        let version = self.api.get(&*self.resource(kind)?, namespace, name)?;
        Ok(version.object())
    }

    fn list(&self, kind: GroupResource, namespace: Option<&str>) -> Vec<StoredObject> {
        let request = ListRequest {
            namespace,
            ..ListRequest::default()
        };
        let listed = self
            .resource(kind)
            .and_then(|r| self.api.list(&r, &request));
        let items = listed.map(|l| l.items).unwrap_or_default();
        items.iter().map(|v| v.object()).collect()
    }

    fn create(&self, kind: GroupResource, object: Value) -> Result<StoredObject, AccessError> {
        let namespace = meta(&object, "namespace").to_owned();
        let version = self
            .api
            .create(&*self.resource(kind)?, &namespace, object, &self.options)?;
        Ok(version.object())
    }

    fn update(&self, kind: GroupResource, object: Value) -> Result<StoredObject, AccessError> {
        self.write(kind, object, "")
    }

    fn update_status(
        &self,
        kind: GroupResource,
        object: Value,
    ) -> Result<StoredObject, AccessError> {
        self.write(kind, object, "status")
    }

    fn finalize_namespace(&self, namespace: Value) -> Result<StoredObject, AccessError> {
        let name = meta(&namespace, "name").to_owned();
        let resource = &*self.resource(berth_objects::access::gr("", "namespaces"))?;
        let version = self
            .api
            .finalize_namespace(resource, &name, &namespace, false)?;
        Ok(version.object())
    }

    fn delete(
        &self,
        kind: GroupResource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(), AccessError> {
        let request = DeleteRequest {
            grace_period_seconds: options.grace_period_seconds,
            preconditions: Preconditions {
                uid: options.uid.clone(),
                resource_version: None,
            },
            propagation: Some(options.propagation),
            dry_run: false,
            requester: Arc::clone(&self.options.requester),
            is_admitted: false,
        };
        let resource = self.resource(kind)?;
        let begun = self
            .api
            .begin_deletion(&resource, namespace, name, &request)?;
        if begun.is_removed_next {
            let api = Arc::clone(&self.api);
            self.runtime.spawn(async move {
                tokio::time::sleep(REMOVAL_DELAY).await;
                // The object stays marked if this fails, and its controller finds it again.
                if let Err(error) = api.end_deletion(&resource, begun, &request) {
                    tracing::debug!(%error, "failed to remove a deleted object");
                }
            });
        }
        Ok(())
    }

    fn watch(&self, kind: GroupResource) -> Box<dyn WatchedChanges> {
        let (sender, receiver) = mpsc::channel(WATCH_BUFFER);
        let resource = self.resource(kind).ok();
        let prefix = resource
            .as_ref()
            .map_or("", |r| r.prefix.as_str())
            .to_owned();
        let store = resource.and_then(|r| r.store);
        let started = store.and_then(|store| self.api.store().watch_now(store, &prefix).ok());
        if let Some((items, _, cursor)) = started {
            let mut stopping = self.stopping.clone();
            self.runtime.spawn(async move {
                tokio::select! {
                    () = feed(items, cursor, &prefix, sender) => {}
                    () = stopped(&mut stopping) => {}
                }
            });
        }
        Box::new(ReceivedChanges(receiver))
    }

    fn kinds(&self) -> Vec<KindInfo> {
        let mut kinds: Vec<KindInfo> = Vec::new();
        let mut known: FxHashSet<GroupResource> = FxHashSet::default();
        let catalog = self.api.catalog();
        for resource in catalog.resources() {
            // Other versions have the same objects.
            let is_new = !known.contains(&resource.resource);
            if is_new && resource.offers("watch") && !resource.is_converted() {
                known.insert(resource.resource);
                kinds.push(resource.info());
            }
        }
        kinds
    }
}

/// The changes that [`feed`] sends.
struct ReceivedChanges(mpsc::Receiver<Seen>);

impl WatchedChanges for ReceivedChanges {
    fn try_next(&mut self) -> Poll<Option<Seen>> {
        match self.0.try_recv() {
            Ok(change) => Poll::Ready(Some(change)),
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(None),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Seen>> {
        self.0.poll_recv(cx)
    }
}

/// Sends the state and then the changes, until the watcher has ended or has fallen out of the history.
async fn feed(
    items: Vec<Arc<ObjectVersion>>,
    mut cursor: Cursor,
    prefix: &str,
    sender: mpsc::Sender<Seen>,
) {
    for version in items {
        let change = Seen::Added(version.object());
        if sender.send(change).await.is_err() {
            return;
        }
    }
    loop {
        let Ok((events, _)) = cursor.read(READ_MAX) else {
            return;
        };
        // Waiting for a change and for the end of the watcher at the same time: an idle kind must not keep the task
        // alive.
        if events.is_empty() {
            tokio::select! {
                () = cursor.changed() => {}
                () = sender.closed() => return,
            }
            continue;
        }
        for event in events.iter().filter(|event| event.key.starts_with(prefix)) {
            if sender.send(seen(event)).await.is_err() {
                return;
            }
        }
    }
}

fn seen(event: &StoredEvent) -> Seen {
    let object = event.version.object();
    match event.kind {
        EventKind::Created => Seen::Added(object),
        EventKind::Updated => Seen::Modified(object),
        EventKind::Deleted => Seen::Deleted(object),
    }
}
