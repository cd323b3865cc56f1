//! The resource quota controller: counts what the objects of a namespace use. Admission adds to these counts; this
//! controller corrects them when objects are deleted or end.

use super::object::{Key, RESOURCE_QUOTA, namespace};
use super::runtime::{Context, Controller, Difference, Index, Watch};
use crate::access::{Access, AccessError, GroupResource, Object};
use crate::admission::quota::{is_in_scope, shown, tracks, usage};
use crate::validation::amounts::{self, Amounts};
use crate::validation::view::View;
use std::time::Duration;

/// Changes of one namespace within this time are counted once.
const PAUSE: Duration = Duration::from_millis(50);
/// Quotas are counted anew at least this often, as in kube-controller-manager.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// See the module.
#[derive(Debug)]
pub(super) struct ResourceQuotas {
    kinds: Vec<GroupResource>,
}

impl ResourceQuotas {
    pub(super) fn new(api: &dyn Access) -> Self {
        let kinds = api.kinds().into_iter();
        let kinds = kinds.filter(|k| k.namespaced && k.kind != "Event" && k.kind != "Lease");
        Self {
            kinds: kinds.map(|k| k.resource).collect(),
        }
    }
}

impl Controller for ResourceQuotas {
    type Key = Key;
    const NAME: &'static str = "resourcequota-controller";

    fn watches(&self) -> Vec<Watch> {
        let watch = |kind: &GroupResource| Watch {
            kind: *kind,
            indexes: match *kind == RESOURCE_QUOTA.resource {
                true => &[Index::Namespace],
                false => &[],
            },
        };
        self.kinds.iter().map(watch).collect()
    }

    fn observe(&mut self, cx: &mut Context<Key>, kind: GroupResource, diff: &Difference) {
        let Some(object) = diff.new.as_ref().or(diff.old.as_ref()) else {
            return;
        };
        let now = cx.now();
        // What an object uses of a quota.
        let of = |quota: &Object, object: &Option<Object>| {
            let object = object.as_ref().filter(|o| is_in_scope(quota, kind, o));
            object.map(|o| usage(kind, o, now))
        };
        let concerned: Vec<Key> = cx
            .cache(RESOURCE_QUOTA)
            .by(Index::Namespace, namespace(object))
            .filter(|quota| {
                let mut hard = quota.part("spec").map("hard").into_iter().flatten();
                hard.any(|(name, _)| tracks(kind, name))
                    && of(quota, &diff.old) != of(quota, &diff.new)
            })
            .map(|quota| Key::of(quota))
            .collect();
        for key in concerned {
            cx.enqueue_after(key, PAUSE);
        }
        // Admission changes the status before the object that it counts is stored.
        let spec = |quota: &Option<Object>| quota.as_ref().map(|q| q.part("spec").clone());
        if kind == RESOURCE_QUOTA.resource
            && diff.new.is_some()
            && spec(&diff.old) != spec(&diff.new)
        {
            cx.enqueue(Key::of(object));
        }
    }

    fn reconcile(&mut self, cx: &mut Context<Key>, key: &Key) -> Result<(), AccessError> {
        if cx.cache(RESOURCE_QUOTA).get(key).is_none() {
            return Ok(());
        }
        // The API knows objects of which this controller has not been notified yet.
        let quota = cx
            .api()
            .get(RESOURCE_QUOTA.resource, &key.namespace, &key.name)?;
        let hard = amounts::list(quota.part("spec"), "hard");
        let mut used = Amounts::new();
        let known = amounts::list(quota.part("status"), "used");
        for kind in &self.kinds {
            let counted = |name: &&String| tracks(*kind, name);
            if !hard.keys().any(|name| counted(&name)) {
                continue;
            }
            for name in hard.keys().filter(counted) {
                used.entry(name.clone()).or_default();
            }
            for object in cx.api().list(*kind, Some(&key.namespace)) {
                if is_in_scope(&quota, *kind, &object) {
                    for (name, amount) in usage(*kind, &object, cx.now()) {
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
        cx.enqueue_after(key.clone(), RESYNC);
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
