//! A ResourceQuota over pods that no API server stores.

use super::{charged, is_in_scope, shown, tracks, unstated, usage};
use crate::access::{GroupResource, gr};
use crate::validation::amounts::{self, Amounts};
use crate::view::FieldView;
use berth_api::Quantity;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;

const PODS: GroupResource = gr("", "pods");

/// A quota, as far as it counts pods. Its usage is counted from the given pods only.
#[derive(Debug, Clone)]
pub struct PodQuota {
    quota: Value,
    /// The names in `spec.hard` that count pods.
    counted: BTreeSet<String>,
    now: Timestamp,
}

impl PodQuota {
    /// A quota without usage; `None` if it counts no pods.
    pub fn new(quota: &Value, now: Timestamp) -> Option<Self> {
        let mut hard = amounts::list(quota.part("spec"), "hard");
        hard.retain(|name, _| tracks(PODS, name));
        if hard.is_empty() {
            return None;
        }
        let mut quota = quota.clone();
        let nothing = hard.keys().map(|name| (name.clone(), Quantity::default()));
        let nothing: Amounts = nothing.collect();
        quota["status"] = serde_json::json!({"hard": shown(&hard), "used": shown(&nothing)});
        Some(Self {
            quota,
            counted: hard.into_keys().collect(),
            now,
        })
    }

    /// The namespace whose pods are counted.
    pub fn namespace(&self) -> &str {
        self.quota.part("metadata").text("namespace")
    }

    fn used_by(&self, pod: &Value) -> Option<Amounts> {
        let is_counted = is_in_scope(&self.quota, PODS, pod);
        is_counted.then(|| {
            let mut used = usage(PODS, pod, self.now);
            used.retain(|name, amount| self.counted.contains(name) && amount.sign() > 0);
            used
        })
    }

    /// Counts an existing pod, without regard to the limits.
    pub fn count(&mut self, pod: &Value) {
        let Some(more) = self.used_by(pod) else {
            return;
        };
        let mut used = amounts::list(self.quota.part("status"), "used");
        for (name, amount) in more {
            *used.entry(name).or_default() += amount;
        }
        self.quota["status"]["used"] = shown(&used);
    }

    /// Counts a new pod.
    ///
    /// # Errors
    /// The message of the API server if the quota rejects the pod, which is not counted then.
    pub fn admit(&mut self, pod: &Value) -> Result<(), String> {
        let Some(more) = self.used_by(pod) else {
            return Ok(());
        };
        let counted: BTreeSet<&str> = self.counted.iter().map(String::as_str).collect();
        if let Some(missing) = unstated(pod.part("spec"), &counted) {
            let name = self.quota.part("metadata").text("name");
            return Err(format!("failed quota: {name}: must specify {missing}"));
        }
        self.quota = charged(&self.quota, &more)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(cpu: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    #[test]
    fn a_quota_admits_what_is_left_of_it() {
        let quota = |hard: Value| {
            let quota =
                json!({"metadata": {"name": "q", "namespace": "a"}, "spec": {"hard": hard}});
            PodQuota::new(&quota, Timestamp::UNIX_EPOCH)
        };
        assert!(quota(json!({"services": "1"})).is_none());
        let mut of_cpu = quota(json!({"requests.cpu": "3", "services": "1"})).expect("it counts");
        assert_eq!(of_cpu.namespace(), "a");
        of_cpu.count(&pod("1500m"));
        assert_eq!(of_cpu.admit(&pod("1")), Ok(()));
        let refused = "exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=2500m, limited: requests.cpu=3";
        assert_eq!(of_cpu.admit(&pod("1")), Err(refused.to_owned()));
        assert_eq!(of_cpu.admit(&pod("500m")), Ok(()), "a smaller one fits");
        let none = json!({"spec": {"containers": [{"name": "c"}]}});
        let refused = "failed quota: q: must specify requests.cpu for: c";
        assert_eq!(of_cpu.admit(&none), Err(refused.to_owned()));
        let mut of_pods = quota(json!({"pods": "1"})).expect("it counts");
        assert_eq!(of_pods.admit(&none), Ok(()));
        assert!(of_pods.admit(&none).is_err());
    }
}
