//! The Lease that candidates meet at.
//!
//! The object is kept as the server sent it, and only the fields of the election are changed in it, so that labels and
//! fields that Berth does not know stay as they are.

use super::ElectionRecord;
use crate::request::{self, Resource};
use crate::{ApiError, Transport};
use berth_api::Time;
use serde_json::{Value, json};

/// `coordination.k8s.io/v1/leases`.
pub const LEASES: Resource = Resource {
    group: "coordination.k8s.io",
    version: "v1",
    plural: "leases",
};

/// The lock of candidates.
pub trait Lock: Send + 'static {
    /// Reads the record; `None` when there is none.
    fn get(&mut self) -> impl Future<Output = Result<Option<ElectionRecord>, ApiError>> + Send;

    /// Makes the first record.
    fn create(
        &mut self,
        record: &ElectionRecord,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;

    /// Replaces the record that was last read or written. Fails after a concurrent change.
    fn update(
        &mut self,
        record: &ElectionRecord,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;
}

/// A Lease as the lock.
pub struct LeaseLock {
    transport: Transport,
    namespace: String,
    name: String,
    lease: Option<Value>,
}

impl LeaseLock {
    /// The Lease of this name, without sending a request.
    pub fn new(transport: Transport, namespace: String, name: String) -> Self {
        Self {
            transport,
            namespace,
            name,
            lease: None,
        }
    }
}

impl Lock for LeaseLock {
    async fn get(&mut self) -> Result<Option<ElectionRecord>, ApiError> {
        let request = request::get(LEASES, &self.namespace, &self.name);
        match self.transport.request::<Value>(&request).await {
            Ok(lease) => {
                let record = record_of(&lease);
                self.lease = Some(lease);
                Ok(Some(record))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create(&mut self, record: &ElectionRecord) -> Result<(), ApiError> {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
        });
        write(record, &mut lease);
        let request = request::create(LEASES, &self.namespace, &lease);
        self.lease = Some(self.transport.request(&request).await?);
        Ok(())
    }

    async fn update(&mut self, record: &ElectionRecord) -> Result<(), ApiError> {
        // A Lease that was not read cannot be replaced.
        let mut lease = self.lease.clone().unwrap_or_default();
        write(record, &mut lease);
        let request = request::update(LEASES, &self.namespace, &self.name, &lease);
        self.lease = Some(self.transport.request(&request).await?);
        Ok(())
    }
}

fn record_of(lease: &Value) -> ElectionRecord {
    let spec = &lease["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    let time = |field: &str| text(field).parse().unwrap_or(Time::EPOCH);
    ElectionRecord {
        holder: text("holderIdentity").to_owned(),
        lease_duration_seconds: spec["leaseDurationSeconds"].as_u64().unwrap_or(0),
        acquire_time: time("acquireTime"),
        renew_time: time("renewTime"),
        transitions: spec["leaseTransitions"].as_u64().unwrap_or(0),
    }
}

fn write(record: &ElectionRecord, lease: &mut Value) {
    let spec = &mut lease["spec"];
    spec["holderIdentity"] = record.holder.as_str().into();
    spec["leaseDurationSeconds"] = record.lease_duration_seconds.into();
    spec["acquireTime"] = record.acquire_time.rfc3339_micros().into();
    spec["renewTime"] = record.renew_time.rfc3339_micros().into();
    spec["leaseTransitions"] = record.transitions.into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scripted, status};

    fn lease(version: &str, holder: &str) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l", "namespace": "ns", "resourceVersion": version, "labels": {"a": "b"}},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-02T03:04:05.000006Z",
                "renewTime": "2026-01-02T03:04:06.000006Z",
                "leaseTransitions": 3,
                "strategy": "OldestEmulationVersion",
            },
        })
    }

    #[tokio::test]
    async fn an_update_changes_the_election_and_nothing_else() {
        let answers = vec![(200, lease("7", "other")), (200, lease("8", "me"))];
        let mut server = Scripted::start(answers).await;
        let mut lock = LeaseLock::new(server.client(), "ns".into(), "l".into());
        let read = lock.get().await.expect("an answer").expect("a lease");
        assert_eq!((&*read.holder, read.transitions), ("other", 3));
        assert_eq!(read.lease_duration_seconds, 15);
        let mine = ElectionRecord {
            holder: "me".to_owned(),
            lease_duration_seconds: 1,
            acquire_time: Time::EPOCH,
            renew_time: Time::EPOCH,
            transitions: 4,
        };
        lock.update(&mine).await.expect("an answer");
        let _ = server.asked.recv().await;
        let put = server.asked.recv().await.expect("a second request");
        assert_eq!(
            put.line(),
            "PUT /apis/coordination.k8s.io/v1/namespaces/ns/leases/l"
        );
        let mut expected = lease("7", "me");
        expected["spec"]["leaseDurationSeconds"] = 1.into();
        expected["spec"]["acquireTime"] = "1970-01-01T00:00:00.000000Z".into();
        expected["spec"]["renewTime"] = "1970-01-01T00:00:00.000000Z".into();
        expected["spec"]["leaseTransitions"] = 4.into();
        assert_eq!(put.json(), expected);
    }

    #[tokio::test]
    async fn a_lease_that_is_not_there_is_no_error() {
        let server = Scripted::start(vec![status(404, "no lease")]).await;
        let mut lock = LeaseLock::new(server.client(), "ns".into(), "l".into());
        assert_eq!(lock.get().await.expect("an answer"), None);
    }
}
