//! Operations that change or delete objects, or that continue during other operations.

use super::Executor;
use crate::workload::api::{OfferedResource, WorkloadApi, escape, failed};
use crate::workload::error::RunError;
use crate::workload::ops::{Churn, ChurnMode, CreatePods, DeletePods, UpdateAny};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval_at, timeout_at};

/// An action at a steady rate, for the first time after one period.
fn ticker(period: Duration) -> tokio::time::Interval {
    let period = period.max(Duration::from_nanos(1));
    let mut ticker = interval_at(tokio::time::Instant::now() + period, period);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticker
}

fn period(per_second: usize) -> Duration {
    Duration::from_secs(1) / u32::try_from(per_second).unwrap_or(u32::MAX).max(1)
}

impl Executor<'_> {
    pub(super) async fn delete_pods(&mut self, op: &DeletePods) -> Result<(), RunError> {
        let names = self.view.names(&op.namespace, &op.label_selector);
        let (api, at, op) = (
            Arc::clone(&self.api),
            (self.at.op, self.at.opcode),
            op.clone(),
        );
        let skip_wait = op.skip_wait_to_completion;
        let deleting = async move {
            let pods = OfferedResource::of("/api/v1", "pods", true);
            let fail = |e: &dyn std::fmt::Display| {
                failed(at.0, at.1, format!("failed to delete pods: {e}"))
            };
            if op.delete_pods_per_second == 0 {
                let labels = op.label_selector.iter();
                let labels: Vec<String> = labels.map(|(k, v)| format!("{k}={v}")).collect();
                let path = format!(
                    "{}?labelSelector={}",
                    pods.collection(&op.namespace),
                    escape(&labels.join(","))
                );
                let deleted = api.delete_collection(path, &json!({})).await;
                return deleted.map_err(|e| fail(&e));
            }
            let mut ticker = ticker(period(op.delete_pods_per_second));
            for name in names {
                ticker.tick().await;
                let deleted = api.delete(pods.object(&op.namespace, &name)).await;
                deleted.map_err(|e| fail(&e))?;
            }
            Ok(())
        };
        if skip_wait {
            self.background.spawn(deleting);
            return Ok(());
        }
        deleting.await
    }

    pub(super) async fn update_any(&mut self, op: &UpdateAny) -> Result<(), RunError> {
        let (namespace, template) = (op.namespace.as_str(), &op.template);
        self.ensure_namespace(namespace).await?;
        let resource = self.resource_of(namespace, template, op.count).await?;
        let per_second = op.update_per_second;
        let mut ticker = (per_second > 0).then(|| ticker(period(per_second)));
        for index in 0..op.count {
            if let Some(ticker) = &mut ticker {
                ticker.tick().await;
            }
            let object = template.object(index, op.count);
            let object = object.map_err(|e| self.failed(e))?;
            let status = ["status".to_owned()];
            for subresources in [op.subresources.as_slice(), &status] {
                let updated = self.api.update(&resource, namespace, &object, subresources);
                updated.await.map_err(|e| {
                    let (path, part) = (template.path(), subresources.join("/"));
                    self.failed(format!(
                        "{path}: failed to update object {index} {part}: {e}"
                    ))
                })?;
            }
        }
        Ok(())
    }

    pub(super) async fn churn(&mut self, op: &Churn) -> Result<(), RunError> {
        let namespace = self.namespace_of(op.namespace.as_ref());
        self.ensure_namespace(&namespace).await?;
        let is_recreating = op.mode == ChurnMode::Recreate;
        let mut churned = Vec::new();
        for template in &op.templates {
            let object = template.object(0, 1).map_err(|e| self.failed(e))?;
            let resource = self.api.resource(&object).await;
            let resource = resource.map_err(|e| self.failed(e))?;
            let namespace = if resource.namespaced {
                namespace.clone()
            } else {
                String::new()
            };
            churned.push(Churned {
                resource,
                namespace,
                object,
                names: vec![None; if is_recreating { op.number } else { 0 }],
                created: Arc::clone(&self.created),
            });
        }
        let (api, at, op) = (
            Arc::clone(&self.api),
            (self.at.op, self.at.opcode),
            op.clone(),
        );
        self.background.spawn(async move {
            let mut ticker = ticker(op.interval());
            for round in 0.. {
                if !is_recreating && op.number > 0 && round >= op.number {
                    break;
                }
                ticker.tick().await;
                for churned in &mut churned {
                    let turned = churned.turn(&api, round).await;
                    turned.map_err(|message| failed(at.0, at.1, message))?;
                }
            }
            Ok(())
        });
        Ok(())
    }

    /// Creates pods, deletes them when all are scheduled, and repeats this until the time is over.
    pub(super) async fn create_pods_steadily(
        &mut self,
        namespace: &str,
        op: &CreatePods,
    ) -> Result<(), RunError> {
        if op.count == 0 {
            return Err(self.failed("a steady state needs at least one pod"));
        }
        let deadline = tokio::time::Instant::now() + op.duration;
        let mut scheduled = self.view.steady(namespace);
        let mut count = 0;
        self.create_batch(namespace, op).await?;
        let collection = OfferedResource::of("/api/v1", "pods", true).collection(namespace);
        let at_once = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        while let Ok(Some(())) = timeout_at(deadline, scheduled.recv()).await {
            count += 1;
            if !usize::is_multiple_of(count, op.count) {
                continue;
            }
            let again = async {
                self.api
                    .delete_collection(collection.clone(), &at_once)
                    .await
                    .map_err(|e| self.failed(format!("failed to delete scheduled pods: {e}")))?;
                self.create_batch(namespace, op).await
            };
            match timeout_at(deadline, again).await {
                Ok(result) => result?,
                Err(_) => break,
            }
        }
        if count == 0 {
            return Err(self.failed(format!(
                "no pod was scheduled within {} s",
                op.duration.as_secs_f64()
            )));
        }
        Ok(())
    }
}

/// A template of a churn, with the objects that exist.
struct Churned {
    resource: OfferedResource,
    namespace: String,
    object: Value,
    /// The names of the objects of a churn that recreates, by turn.
    names: Vec<Option<String>>,
    created: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Churned {
    /// Creates an object, or deletes the object of this turn.
    async fn turn(&mut self, api: &WorkloadApi, round: usize) -> Result<(), String> {
        let turn = round.checked_rem(self.names.len());
        let known = turn.and_then(|turn| self.names[turn].take());
        if let Some(name) = known {
            let path = self.resource.object(&self.namespace, &name);
            let deleted = api.delete(path).await;
            return deleted.map_err(|e| format!("failed to delete {name}: {e}"));
        }
        let begun = Instant::now();
        let created = match api
            .create(&self.resource, &self.namespace, &self.object)
            .await
        {
            Ok(created) => created,
            // As in upstream, an object with a fixed name may still exist.
            Err(error) if error.code() == Some(409) => return Ok(()),
            Err(error) => {
                return Err(format!(
                    "failed to create an object after {} ms: {error}",
                    begun.elapsed().as_millis()
                ));
            }
        };
        let name = created.metadata.name;
        if self.namespace.is_empty() {
            self.created
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push(self.resource.object("", &name));
        }
        if let Some(turn) = turn {
            self.names[turn] = Some(name);
        }
        Ok(())
    }
}
