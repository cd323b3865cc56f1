//! The resource quota controller: counts the usage of a namespace. Admission increases these counts; this controller
//! corrects them when objects are deleted or end.

use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch};
use super::served_kinds::{DEFINITIONS, SERVED_AFTER, ServedKinds};
use berth_objects::access::{Access, AccessError, GroupResource, KindInfo, StoredObject};
use berth_objects::object::{ControllerKey, RESOURCE_QUOTA, namespace};
use berth_objects::quota::{is_in_scope, shown, tracks, usage};
use berth_objects::validation::amounts::{self, Amounts};
use berth_objects::view::FieldView;
use std::time::Duration;

/// Changes of one namespace within this time are counted once.
const PAUSE: Duration = Duration::from_millis(50);
/// The interval of full recounts, as in kube-controller-manager.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// The keys that are being processed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum QuotaWork {
    /// A quota.
    Quota(ControllerKey),
    /// The kinds that are served.
    Kinds,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ResourceQuotas {
    /// The kinds that are counted.
    kinds: ServedKinds,
}

impl ResourceQuotas {
    pub(super) fn new(api: &dyn Access) -> Self {
        let is_counted = |k: &KindInfo| k.namespaced && k.kind != "Event" && k.kind != "Lease";
        Self {
            kinds: ServedKinds::new(api, is_counted),
        }
    }
}

/// Shorthand for a watch of a kind that is counted.
fn watch(kind: GroupResource) -> Watch {
    Watch {
        kind,
        indexes: if kind == RESOURCE_QUOTA.resource {
            &[Index::Namespace]
        } else {
            &[]
        },
    }
}

impl Controller for ResourceQuotas {
    type Key = QuotaWork;
    const NAME: &'static str = "resourcequota-controller";

    fn watches(&self) -> Vec<Watch> {
        let counted = self.kinds.iter().map(|kind| watch(kind.resource));
        counted.chain([watch(DEFINITIONS)]).collect()
    }

    fn added(&mut self) -> Vec<Watch> {
        let added = self.kinds.take_added().into_iter();
        added.map(watch).collect()
    }

    fn removed(&mut self) -> Vec<GroupResource> {
        self.kinds.take_removed()
    }

    fn observe(
        &mut self,
        cx: &mut ControllerContext<QuotaWork>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        let Some(object) = diff.new.as_ref().or(diff.old.as_ref()) else {
            return;
        };
        if ServedKinds::concerns(kind, diff) {
            cx.enqueue_after(QuotaWork::Kinds, SERVED_AFTER);
            return;
        }
        let now = cx.now();
        // The usage of a quota by an object.
        let of = |quota: &StoredObject, object: &Option<StoredObject>| {
            let object = object.as_ref().filter(|o| is_in_scope(quota, kind, o));
            object.map(|o| usage(kind, o, now))
        };
        let concerned: Vec<ControllerKey> = cx
            .cache(RESOURCE_QUOTA)
            .by(Index::Namespace, namespace(object))
            .filter(|quota| {
                let mut hard = quota.part("spec").map("hard").into_iter().flatten();
                hard.any(|(name, _)| tracks(kind, name))
                    && of(quota, &diff.old) != of(quota, &diff.new)
            })
            .map(|quota| ControllerKey::of(quota))
            .collect();
        for key in concerned {
            cx.enqueue_after(QuotaWork::Quota(key), PAUSE);
        }
        // Admission changes the status before the object that it counts is stored.
        let spec = |quota: &Option<StoredObject>| quota.as_ref().map(|q| q.part("spec").clone());
        if kind == RESOURCE_QUOTA.resource
            && diff.new.is_some()
            && spec(&diff.old) != spec(&diff.new)
        {
            cx.enqueue(QuotaWork::Quota(ControllerKey::of(object)));
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<QuotaWork>,
        work: &QuotaWork,
    ) -> Result<(), AccessError> {
        let QuotaWork::Quota(key) = work else {
            if self.kinds.refresh(cx.api()) {
                // Objects of a kind that has become known are counted.
                let quotas = cx.cache(RESOURCE_QUOTA).iter();
                let quotas: Vec<ControllerKey> = quotas.map(|(key, _)| key.clone()).collect();
                for key in quotas {
                    cx.enqueue(QuotaWork::Quota(key));
                }
            }
            return Ok(());
        };
        if cx.cache(RESOURCE_QUOTA).get(key).is_none() {
            return Ok(());
        }
        // The API server may have objects that the watch has not delivered yet.
        let quota = cx
            .api()
            .get(RESOURCE_QUOTA.resource, &key.namespace, &key.name)?;
        let hard = amounts::list(quota.part("spec"), "hard");
        let mut used = Amounts::new();
        let known = amounts::list(quota.part("status"), "used");
        for kind in self.kinds.iter().map(|kind| kind.resource) {
            let counted = |name: &&String| tracks(kind, name);
            if !hard.keys().any(|name| counted(&name)) {
                continue;
            }
            for name in hard.keys().filter(counted) {
                used.entry(name.clone()).or_default();
            }
            for object in cx.api().list(kind, Some(&key.namespace)) {
                if is_in_scope(&quota, kind, &object) {
                    for (name, amount) in usage(kind, &object, cx.now()) {
                        if let Some(sum) = used.get_mut(&name) {
                            *sum += amount;
                        }
                    }
                }
            }
        }
        for (name, amount) in known {
            if hard.contains_key(&name) {
                used.entry(name).or_insert(amount);
            }
        }
        cx.enqueue_after(work.clone(), RESYNC);
        let (status, before) = (
            serde_json::json!({"hard": shown(&hard), "used": shown(&used)}),
            quota.part("status"),
        );
        let is_same = |list: &str, amounts: &Amounts| {
            before.field(list).is_some() && amounts::list(before, list) == *amounts
        };
        if !is_same("hard", &hard) || !is_same("used", &used) {
            cx.write_status(RESOURCE_QUOTA, &quota, status)?;
        }
        Ok(())
    }
}
