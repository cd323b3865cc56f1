//! The namespace controller: deletes the contents of a namespace that is being deleted, then removes its finalizer.
//!
//! It deletes pods first, so that the objects that they need exist while they stop. The conditions of the namespace
//! list the remaining objects and the reason, with upstream's messages.

use super::runtime::{CacheDifference, Controller, ControllerContext, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, KindInfo, unless_not_found};
use berth_objects::object::{
    ControllerKey, NAMESPACE, POD, is_deleting, items, new_condition, set, update_condition,
};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const FINALIZER: &str = "kubernetes";
/// The delay before the controller checks again whether the contents were deleted. It doubles while the contents stay
/// the same, up to the second value, which is kube-controller-manager's for objects with finalizers.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(8));

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NamespaceController {
    /// The remaining objects of a namespace, and the number of times that they were unchanged.
    looks: FxHashMap<ControllerKey, (Left, u32)>,
}

impl NamespaceController {
    pub(super) fn new() -> Self {
        Self::default()
    }
}

/// The number of objects of each kind that are left, by `resource.group`.
type Left = BTreeMap<String, usize>;

/// The remaining content of a namespace.
#[derive(Debug, Default)]
struct Content {
    resources: Left,
    /// The number of objects that each finalizer holds.
    finalizers: BTreeMap<String, usize>,
    /// The errors of deletions.
    problems: Vec<AccessError>,
}

impl Content {
    /// Deletes all objects of these kinds and counts the remaining ones.
    fn empty(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        namespace: &str,
        kinds: &[KindInfo],
    ) {
        for kind in kinds {
            for object in cx.api().list(kind.resource, Some(namespace)) {
                if is_deleting(&object) {
                    continue;
                }
                if let Err(error) = cx.delete(kind.resource, &object) {
                    self.problems.push(error);
                }
            }
            let left = cx.api().list(kind.resource, Some(namespace));
            if left.is_empty() {
                continue;
            }
            let name = format!("{}.{}", kind.resource.resource, kind.resource.group);
            self.resources.insert(name, left.len());
            for object in &left {
                for finalizer in items(&object["metadata"]["finalizers"]) {
                    let finalizer = finalizer.as_str().unwrap_or_default().to_owned();
                    *self.finalizers.entry(finalizer).or_default() += 1;
                }
            }
        }
    }

    fn conditions(&self) -> [(&'static str, bool, &'static str, String); 5] {
        let list = |entries: &BTreeMap<String, usize>, word: &str| {
            let parts: Vec<String> = entries
                .iter()
                .map(|(name, count)| format!("{name} {word} {count} resource instances"))
                .collect();
            parts.join(", ")
        };
        let problems: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        let yes = |is: bool, no: (&'static str, &str), yes: (&'static str, String)| {
            if is {
                (true, yes.0, yes.1)
            } else {
                (false, no.0, no.1.to_owned())
            }
        };
        let failure = yes(
            !self.problems.is_empty(),
            (
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            (
                "ContentDeletionFailed",
                format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    problems.len(),
                    problems.join(", ")
                ),
            ),
        );
        let remaining = yes(
            !self.resources.is_empty(),
            ("ContentRemoved", "All content successfully removed"),
            (
                "SomeResourcesRemain",
                format!(
                    "Some resources are remaining: {}",
                    list(&self.resources, "has")
                ),
            ),
        );
        let held = yes(
            !self.finalizers.is_empty(),
            (
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
            (
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    list(&self.finalizers, "in")
                ),
            ),
        );
        [
            (
                "NamespaceDeletionDiscoveryFailure",
                false,
                "ResourcesDiscovered",
                "All resources successfully discovered".to_owned(),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed".to_owned(),
            ),
            (
                "NamespaceDeletionContentFailure",
                failure.0,
                failure.1,
                failure.2,
            ),
            (
                "NamespaceContentRemaining",
                remaining.0,
                remaining.1,
                remaining.2,
            ),
            ("NamespaceFinalizersRemaining", held.0, held.1, held.2),
        ]
    }

    /// The status of the namespace with conditions about the remaining content.
    fn status(&self, namespace: &Value, now: jiff::Timestamp) -> Value {
        let mut status = namespace["status"].clone();
        for (kind, is, reason, message) in self.conditions() {
            let value = if is { "True" } else { "False" };
            let condition = new_condition(kind, value, reason, &message, now);
            update_condition(&mut status, condition);
        }
        status
    }
}

impl Controller for NamespaceController {
    type Key = ControllerKey;
    const NAME: &'static str = "namespace-controller";
    const WATCHES: &'static [Watch] = &[watching(NAMESPACE, &[])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        _kind: GroupResource,
        diff: &CacheDifference,
    ) {
        match (&diff.old, &diff.new) {
            (_, Some(new)) if is_deleting(new) => cx.enqueue(ControllerKey::of(new)),
            (Some(old), None) => _ = self.looks.remove(&ControllerKey::of(old)),
            _ => {}
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(namespace) = cx.cache(NAMESPACE).get(key).cloned() else {
            return Ok(());
        };
        let holds = items(&namespace["spec"]["finalizers"]);
        if !is_deleting(&namespace) || holds.iter().all(|f| f != FINALIZER) {
            return Ok(());
        }
        let mut content = Content::default();
        // CustomResourceDefinitions add kinds at any time.
        let kinds = cx.api().kinds().into_iter().filter(|k| k.namespaced);
        let (pods, others): (Vec<KindInfo>, Vec<KindInfo>) =
            kinds.partition(|k| k.resource == POD.resource);
        content.empty(cx, &key.name, &pods);
        if content.resources.is_empty() {
            content.empty(cx, &key.name, &others);
        }
        if content.resources.is_empty() {
            let mut done = (*namespace).clone();
            let left: Vec<Value> = holds.iter().filter(|f| *f != FINALIZER).cloned().collect();
            set(&mut done, &["spec", "finalizers"], left.into());
            return unless_not_found(cx.api().finalize_namespace(done));
        }
        let status = content.status(&namespace, cx.now());
        cx.write_status(NAMESPACE, &namespace, status)?;
        // A deletion that failed is tried again later and later, like any failure.
        if let Some(problem) = content.problems.into_iter().next() {
            return Err(problem);
        }
        let looks = self.looks.entry(key.clone()).or_default();
        if looks.0 != content.resources {
            *looks = (content.resources, 0);
        }
        let pause = LOOK_AGAIN
            .0
            .saturating_mul(1 << looks.1.min(10))
            .min(LOOK_AGAIN.1);
        looks.1 = looks.1.saturating_add(1);
        cx.enqueue_after(key.clone(), pause);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Handle;
    use crate::testing::{Fake, eventually, pass, refused};
    use berth_objects::access::{Access, DeleteOptions};
    use berth_objects::object::{CONFIG_MAP, DEPLOYMENT, condition};
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_goes_after_everything_in_it() {
        let api = Fake::new();
        let mut handle = Handle::new();
        handle.start(NamespaceController::new(), api.clone(), api.clock());
        for name in ["going", "staying"] {
            api.create(NAMESPACE.resource, json!({"metadata": {"name": name}}))
                .unwrap();
            for kind in [POD, CONFIG_MAP, DEPLOYMENT] {
                let object = json!({"metadata": {"name": "x", "namespace": name}});
                api.create(kind.resource, object).unwrap();
            }
        }
        api.edit(POD.resource, ("going", "x"), |p| {
            p["metadata"]["finalizers"] = json!(["test/hold"])
        });
        api.delete(NAMESPACE.resource, "", "going", &DeleteOptions::default())
            .unwrap();
        pass(30.0).await;
        let namespace = api.get(NAMESPACE.resource, "", "going").unwrap();
        let stated = |kind: &str| {
            let c = condition(&namespace["status"], kind).unwrap();
            (
                c["reason"].as_str().unwrap().to_owned(),
                c["message"].as_str().unwrap().to_owned(),
            )
        };
        assert_eq!(
            stated("NamespaceContentRemaining"),
            (
                "SomeResourcesRemain".to_owned(),
                "Some resources are remaining: pods. has 1 resource instances".to_owned()
            )
        );
        assert_eq!(
            stated("NamespaceFinalizersRemaining").1,
            "Some content in the namespace has finalizers remaining: test/hold in 1 resource instances"
        );
        assert!(
            api.get(CONFIG_MAP.resource, "going", "x").is_ok(),
            "pods go first"
        );
        api.edit(POD.resource, ("going", "x"), |p| {
            p["metadata"]["finalizers"] = json!([])
        });
        eventually("it is gone", || {
            api.get(NAMESPACE.resource, "", "going").is_err()
        })
        .await;
        assert!(api.list(CONFIG_MAP.resource, Some("going")).is_empty());
        assert_eq!(api.list(POD.resource, Some("staying")).len(), 1);
        handle.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn failed_deletions_are_tried_later_and_later() {
        let api = Fake::new();
        let mut handle = Handle::new();
        handle.start(NamespaceController::new(), api.clone(), api.clock());
        api.create(NAMESPACE.resource, json!({"metadata": {"name": "going"}}))
            .unwrap();
        let object = json!({"metadata": {"name": "x", "namespace": "going"}});
        api.create(CONFIG_MAP.resource, object).unwrap();
        api.set_fault(|verb, kind, _| {
            (verb == "delete" && kind == CONFIG_MAP.resource)
                .then(|| refused(403, "Forbidden", "a webhook denied the request"))
        });
        api.delete(NAMESPACE.resource, "", "going", &DeleteOptions::default())
            .unwrap();
        pass(600.0).await;
        let namespace = api.get(NAMESPACE.resource, "", "going").unwrap();
        let failure = condition(&namespace["status"], "NamespaceDeletionContentFailure").unwrap();
        assert_eq!(failure["reason"], "ContentDeletionFailed");
        assert_eq!(
            failure["message"],
            "Failed to delete all resource types, 1 remaining: a webhook denied the request"
        );
        let before = handle.activity()[0].runs;
        pass(600.0).await;
        assert_eq!(handle.activity()[0].runs - before, 10, "once a minute");
        api.set_fault(|_, _, _| None);
        eventually("it is deleted", || {
            api.get(NAMESPACE.resource, "", "going").is_err()
        })
        .await;
        handle.stop().await;
    }
}
