//! The spec of a DeferredQuota: its limits, the pods that it selects, and the order of its waiting pods.

use berth_api::quantity::QuantityFormat;
use berth_api::{CustomKind, CustomObject, LabelSelector, Pod, Quantity, Selector, Str};
use serde_json::Value;

/// DeferredQuotas.
pub const DEFERRED_QUOTA: CustomKind = CustomKind {
    plural: "deferredquotas",
    version: "v1alpha1",
    group: "scheduling.berth.dev",
};

/// The kind of these objects.
pub const DEFERRED_QUOTA_KIND: &str = "DeferredQuota";

const DEVICES_SUFFIX: &str = ".deviceclass.resource.k8s.io/devices";

/// The thing that a key of `spec.hard` counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum QuotaResource {
    /// Pods.
    Pods,
    /// Requests of a resource.
    Requests(Str),
    /// Devices of a class, in claims.
    Devices(Str),
}

impl QuotaResource {
    /// Parses a key of `spec.hard`. The supported keys are the keys of ResourceQuota that count requests of pods.
    pub fn of_key(key: &str) -> Option<Self> {
        if key == "pods" {
            return Some(Self::Pods);
        }
        if let Some(class) = key.strip_suffix(DEVICES_SUFFIX) {
            return (!class.is_empty()).then(|| Self::Devices(class.into()));
        }
        let resource = key.strip_prefix("requests.")?;
        let is_known = matches!(resource, "cpu" | "memory" | "ephemeral-storage")
            || resource.starts_with("hugepages-")
            || resource
                .split_once('/')
                .is_some_and(|(domain, name)| !domain.is_empty() && !name.is_empty());
        is_known.then(|| Self::Requests(resource.into()))
    }

    fn is_cpu(&self) -> bool {
        matches!(self, Self::Requests(resource) if resource == "cpu")
    }

    /// The amount in the counted unit: milli-CPU for CPU, whole units for everything else.
    pub fn amount(&self, quantity: Quantity) -> i64 {
        if self.is_cpu() {
            quantity.milli_value()
        } else {
            quantity.value()
        }
    }

    /// A counted amount, to be written in `format`.
    pub fn quantity(&self, amount: i64, format: QuantityFormat) -> Quantity {
        if self.is_cpu() {
            Quantity::from_milli(amount).with_format(format)
        } else {
            Quantity::from_value(amount, format)
        }
    }
}

/// One key of `spec.hard`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaLimit {
    /// The key.
    pub key: Str,
    /// The thing that it counts.
    pub resource: QuotaResource,
    /// The limit.
    pub hard: i64,
    /// The most that may be borrowed from the cohort; without a number, everything that the others do not use.
    pub borrowing: Option<i64>,
    /// The format of the limit.
    pub format: QuantityFormat,
}

impl QuotaLimit {
    /// An amount of this key as text.
    pub fn text(&self, amount: i64) -> String {
        self.resource.quantity(amount, self.format).to_string()
    }
}

/// The order in which waiting pods are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuotaOrder {
    /// No pod overtakes another one.
    #[default]
    Strict,
    /// A pod that fits may overtake pods that do not.
    BestEffort,
}

/// The spec of a DeferredQuota.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaSpec {
    /// The limits, by key.
    pub limits: Vec<QuotaLimit>,
    /// The order.
    pub order: QuotaOrder,
    /// The cohort with which the quota shares its unused amounts.
    pub cohort: Option<Str>,
    selector: Option<Selector>,
    priority_classes: Vec<Str>,
}

fn amounts<'v>(
    spec: &'v Value,
    field: &str,
) -> Result<Vec<(&'v str, QuotaResource, Quantity)>, String> {
    let fields = match spec.get(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err(format!("spec.{field}: must be an object")),
    };
    let amounts = fields.iter().map(|(key, value)| {
        let at = format!("spec.{field}[{key}]");
        let resource = QuotaResource::of_key(key).ok_or_else(|| {
            format!("{at}: unknown key; use pods, requests.<resource> or <class>{DEVICES_SUFFIX}")
        })?;
        let quantity: Quantity =
            serde_json::from_value(value.clone()).map_err(|error| format!("{at}: {error}"))?;
        if quantity.sign() < 0 {
            return Err(format!("{at}: must not be negative"));
        }
        Ok((key.as_str(), resource, quantity))
    });
    amounts.collect()
}

impl QuotaSpec {
    /// Reads an object.
    ///
    /// # Errors
    /// The path of the field and a description. The rules of the CustomResourceDefinition reject such objects; an older
    /// definition may have admitted one.
    pub fn read(object: &CustomObject) -> Result<Self, String> {
        let null = Value::Null;
        let spec = object.value.get("spec").unwrap_or(&null);
        let text = |field: &str| match spec.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(format!("spec.{field}: must be a string")),
        };
        let order = match text("order")? {
            None | Some("Strict") => QuotaOrder::Strict,
            Some("BestEffort") => QuotaOrder::BestEffort,
            Some(other) => {
                return Err(format!(
                    "spec.order: {other:?} is neither Strict nor BestEffort"
                ));
            }
        };
        let cohort = text("cohort")?.map(Str::new);
        let borrowing = amounts(spec, "borrowingLimit")?;
        if cohort.is_none() && !borrowing.is_empty() {
            return Err("spec.borrowingLimit: requires spec.cohort".to_owned());
        }
        let mut limits: Vec<QuotaLimit> = amounts(spec, "hard")?
            .into_iter()
            .map(|(key, resource, hard)| QuotaLimit {
                key: key.into(),
                hard: resource.amount(hard),
                borrowing: None,
                format: hard.format(),
                resource,
            })
            .collect();
        limits.sort_by(|a, b| a.key.cmp(&b.key));
        for (key, resource, most) in borrowing {
            let limit = limits.iter_mut().find(|limit| limit.key == *key);
            let limit = limit
                .ok_or_else(|| format!("spec.borrowingLimit[{key}]: spec.hard has no such key"))?;
            limit.borrowing = Some(resource.amount(most));
        }
        let selector = match spec.get("podSelector") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let selector: LabelSelector = serde_json::from_value(value.clone())
                    .map_err(|error| format!("spec.podSelector: {error}"))?;
                let selector = Selector::from_label_selector(Some(&selector));
                Some(selector.map_err(|error| format!("spec.podSelector: {error}"))?)
            }
        };
        let priority_classes = match spec.get("priorityClassNames") {
            None | Some(Value::Null) => Vec::new(),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|error| format!("spec.priorityClassNames: {error}"))?,
        };
        Ok(Self {
            limits,
            order,
            cohort,
            selector,
            priority_classes,
        })
    }

    /// Returns whether the quota applies to a pod of its namespace.
    pub fn selects(&self, pod: &Pod) -> bool {
        let by_labels = self.selector.as_ref();
        by_labels.is_none_or(|selector| selector.matches(pod.labels()))
            && (self.priority_classes.is_empty()
                || self
                    .priority_classes
                    .contains(&pod.spec.priority_class_name))
    }

    /// The greatest usable amount of a key: the limit, in a cohort plus the amount that may be borrowed.
    pub fn most(&self, at: usize) -> i64 {
        let Some(limit) = self.limits.get(at) else {
            return i64::MAX;
        };
        match (&self.cohort, limit.borrowing) {
            (None, _) => limit.hard,
            (Some(_), None) => i64::MAX,
            (Some(_), Some(borrowing)) => limit.hard.saturating_add(borrowing),
        }
    }

    /// Returns whether a key counts devices in claims.
    pub(super) fn counts_devices(&self) -> bool {
        let mut limits = self.limits.iter();
        limits.any(|limit| matches!(limit.resource, QuotaResource::Devices(_)))
    }
}
