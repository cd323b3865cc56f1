//! Deferred quotas.

use super::{GPU, NAMESPACES, chance, pick, random_app};
use berth_api::{CustomKind, CustomObject, ObjectMeta};
use fastrand::Rng;
use serde_json::{Value, json};
use std::fmt;

/// The kind of deferred quotas.
pub const DEFERRED_QUOTA: CustomKind = CustomKind {
    plural: "deferredquotas",
    version: "v1alpha1",
    group: "scheduling.berth.dev",
};

/// The maximum number of quotas.
pub const QUOTAS: usize = 6;

const COHORTS: [&str; 2] = ["east", "west"];

/// The name of a quota.
pub fn quota_name(number: usize) -> String {
    format!("q{number}")
}

/// The namespace of a quota.
pub fn quota_namespace(number: usize) -> &'static str {
    NAMESPACES[usize::from(number % 3 == 2)]
}

/// A quota. The amounts are limits; a key without an amount is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaShape {
    /// The number of pods.
    pub pods: Option<i64>,
    /// CPU requests in thousandths.
    pub cpu_milli: Option<i64>,
    /// Memory requests in MiB.
    pub memory_mebibytes: Option<i64>,
    /// Requested devices.
    pub gpus: Option<i64>,
    /// The label of the pods to which it applies; `None` for all pods of the namespace.
    pub app: Option<&'static str>,
    /// Whether smaller pods may overtake.
    pub is_best_effort: bool,
    /// The cohort.
    pub cohort: Option<&'static str>,
    /// The maximum number of borrowed pods, and of borrowed CPUs.
    pub borrowing: Option<i64>,
}

impl QuotaShape {
    /// Any quota.
    pub fn random(rng: &mut Rng) -> Self {
        let cohort = chance(rng, 50).then(|| pick(rng, &COHORTS)).flatten();
        let mut shape = Self {
            is_best_effort: rng.bool(),
            cohort,
            borrowing: (cohort.is_some() && chance(rng, 60)).then(|| rng.i64(0..4)),
            app: chance(rng, 35).then(|| random_app(rng)),
            ..Self::default()
        };
        if chance(rng, 60) {
            shape.pods = Some(rng.i64(0..7));
        }
        if chance(rng, 60) {
            shape.cpu_milli = Some(rng.i64(0..12) * 500);
        }
        if chance(rng, 20) {
            shape.memory_mebibytes = Some(rng.i64(1..8) * 512);
        }
        if chance(rng, 20) {
            shape.gpus = Some(rng.i64(0..4));
        }
        shape
    }

    /// The quota, without identity.
    pub fn build(&self, number: usize) -> CustomObject {
        let mut hard = json!({});
        let mut borrowing = json!({});
        let limits = [
            ("pods".to_owned(), self.pods.map(|pods| json!(pods))),
            (
                "requests.cpu".to_owned(),
                self.cpu_milli.map(|milli| json!(format!("{milli}m"))),
            ),
            (
                "requests.memory".to_owned(),
                self.memory_mebibytes.map(|size| json!(format!("{size}Mi"))),
            ),
            (format!("requests.{GPU}"), self.gpus.map(|gpus| json!(gpus))),
        ];
        for (key, limit) in limits {
            if let Some(limit) = limit {
                hard[&key] = limit;
                if let Some(most) = self.borrowing.filter(|_| !key.contains("mem")) {
                    borrowing[&key] = json!(most);
                }
            }
        }
        let mut spec = json!({"hard": hard});
        if self.is_best_effort {
            spec["order"] = json!("BestEffort");
        }
        if let Some(app) = self.app {
            spec["podSelector"] = json!({"matchLabels": {"app": app}});
        }
        if let Some(cohort) = self.cohort {
            spec["cohort"] = json!(cohort);
            spec["borrowingLimit"] = borrowing;
        }
        let metadata = ObjectMeta {
            name: quota_name(number).into(),
            namespace: quota_namespace(number).into(),
            ..ObjectMeta::default()
        };
        CustomObject {
            kind: DEFERRED_QUOTA,
            metadata,
            value: json!({"spec": spec, "status": Value::Object(serde_json::Map::new())}),
        }
    }
}

impl fmt::Display for QuotaShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_best_effort {
            "BestEffort"
        } else {
            "Strict"
        })?;
        let limits = [
            (self.pods, " pods"),
            (self.cpu_milli, "m cpu"),
            (self.memory_mebibytes, "Mi memory"),
            (self.gpus, " gpus"),
        ];
        for (limit, unit) in limits {
            if let Some(limit) = limit {
                write!(f, ", {limit}{unit}")?;
            }
        }
        if let Some(app) = self.app {
            write!(f, ", for app {app}")?;
        }
        if let Some(cohort) = self.cohort {
            write!(f, ", in cohort {cohort}")?;
        }
        if let Some(most) = self.borrowing {
            write!(f, ", borrows at most {most}")?;
        }
        Ok(())
    }
}
