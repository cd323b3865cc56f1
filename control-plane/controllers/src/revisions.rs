//! ControllerRevisions: the history of the templates of DaemonSets and StatefulSets.

use super::deployment::template;
use super::runtime::{ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    CONTROLLER_REVISION, ControllerKey, ControllerKind, controller_reference, count, name,
    namespace, next_count, set, uid,
};
use serde_json::{Value, json};

/// The number of revisions that are kept that no pod has, where the workload does not state it.
const KEPT: i32 = 10;
/// The number of names that are tried for a new revision.
const NAMES_MAX: i64 = 8;

/// The label of a pod with its revision.
pub(super) const REVISION_LABEL: &str = "controller-revision-hash";

/// The kinds that a controller that uses revisions watches.
pub(super) fn watch() -> Watch {
    watching(CONTROLLER_REVISION, &[Index::Controller])
}

/// The revisions of a workload, oldest first. The last one has the template of the workload: it is created, or an
/// existing revision with the same template becomes the newest.
pub(super) fn sync(
    cx: &mut ControllerContext<ControllerKey>,
    kind: ControllerKind,
    workload: &StoredObject,
    label: &str,
) -> Result<Vec<StoredObject>, AccessError> {
    let mut revisions = of(cx, workload);
    let wanted = &workload["spec"]["template"];
    let newest = revisions.last().map_or(0, |r| number(r));
    let next = newest.saturating_add(1);
    let same = revisions
        .iter()
        .rposition(|r| template::same(&template_of(r), wanted));
    match same {
        Some(at) if at + 1 == revisions.len() => {}
        Some(at) => {
            let mut again = (*revisions[at]).clone();
            again["revision"] = next.into();
            cx.update(CONTROLLER_REVISION, again)?;
            revisions = of(cx, workload);
        }
        None => {
            create(cx, kind, workload, label, next)?;
            revisions = of(cx, workload);
        }
    }
    Ok(revisions)
}

/// The template that a revision records.
pub(super) fn template_of(revision: &Value) -> Value {
    let mut template = revision["data"]["spec"]["template"].clone();
    if let Some(template) = template.as_object_mut() {
        template.remove("$patch");
    }
    template
}

fn of(cx: &ControllerContext<ControllerKey>, workload: &StoredObject) -> Vec<StoredObject> {
    let mut revisions: Vec<StoredObject> = cx
        .cache(CONTROLLER_REVISION)
        .by(Index::Controller, uid(workload))
        .cloned()
        .collect();
    revisions.sort_by(|a, b| number(a).cmp(&number(b)).then_with(|| name(a).cmp(name(b))));
    revisions
}

fn number(revision: &Value) -> i64 {
    revision["revision"].as_i64().unwrap_or(0)
}

fn create(
    cx: &mut ControllerContext<ControllerKey>,
    kind: ControllerKind,
    workload: &StoredObject,
    label: &str,
    number: i64,
) -> Result<(), AccessError> {
    let template = &workload["spec"]["template"];
    let mut data = json!({"spec": {"template": template}});
    // A revision is applied as a patch that replaces the template as a whole.
    data["spec"]["template"]["$patch"] = "replace".into();
    let mut collisions = workload["status"]["collisionCount"].as_i64();
    for _ in 0..NAMES_MAX {
        let hash = template::hash(template, collisions);
        let mut revision = CONTROLLER_REVISION.object(json!({"metadata": {
                "name": format!("{}-{hash}", name(workload)),
                "namespace": namespace(workload),
                "labels": template["metadata"]["labels"],
                "annotations": workload["metadata"]["annotations"],
                "ownerReferences": [controller_reference(kind, workload)],
            },
            "data": data,
            "revision": number,
        }));
        for field in ["labels", "annotations"] {
            if !revision["metadata"][field].is_object() {
                revision["metadata"][field] = json!({});
            }
        }
        set(&mut revision, &["metadata", "labels", label], hash.into());
        match cx.create(CONTROLLER_REVISION, revision) {
            // The name is taken by another template: the collision count changes the hash.
            Err(error) if error.reason == "AlreadyExists" => {
                collisions = Some(next_count(collisions.unwrap_or(0)));
            }
            other => return other.map(drop),
        }
    }
    Err(AccessError {
        code: 409,
        reason: "AlreadyExists",
        message: format!("no free name for a revision of {}", name(workload)),
    })
}

/// Deletes the oldest revisions that no pod has; `used` returns whether a pod has the revision.
pub(super) fn clean_up(
    cx: &mut ControllerContext<ControllerKey>,
    workload: &StoredObject,
    revisions: &[StoredObject],
    used: impl Fn(&Value) -> bool,
) -> Result<(), AccessError> {
    let kept = count(&workload["spec"]["revisionHistoryLimit"], KEPT);
    let Some((_, older)) = revisions.split_last() else {
        return Ok(());
    };
    let unused: Vec<&StoredObject> = older.iter().filter(|r| !used(r)).collect();
    let surplus = unused
        .len()
        .saturating_sub(usize::try_from(kept).unwrap_or(0));
    for revision in unused.into_iter().take(surplus) {
        cx.delete(CONTROLLER_REVISION, revision)?;
    }
    Ok(())
}
