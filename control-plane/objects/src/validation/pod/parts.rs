//! `pods/resize` (KEP-1287) and `pods/ephemeralcontainers` (KEP-277): the parts of a running pod that can be changed.

use super::annotations;
use super::requests::{is_sidecar, qos_class};
use crate::validation::errors::{ErrorPath, Errors};
use crate::view::{FieldView, child, copy_field, existing, items_mut, remove, set};
use serde_json::Value;

const MIRROR: &str = "kubernetes.io/config.mirror";
const ONLY_CPU_AND_MEMORY: &str = "only cpu and memory resources are mutable";
const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Restores all fields of the pod except the fields that these writes may set, which `take` copies from the new spec.
fn keep(new: &mut Value, old: &Value, take: impl Fn(&mut Value, &Value)) {
    let mut spec = old.part("spec").clone();
    take(&mut spec, new.part("spec"));
    set(new, "spec", spec);
    copy_field(new, old, "status");
    if let Some(metadata) = child(new, "metadata") {
        for field in [
            "annotations",
            "deletionTimestamp",
            "finalizers",
            "labels",
            "ownerReferences",
        ] {
            copy_field(metadata, old.part("metadata"), field);
        }
    }
}

/// Returns whether both have the same containers in the same order; differences are reported.
fn same_containers(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    let mut same = true;
    for list in LISTS {
        let path = ErrorPath::new("spec").child(list);
        let (new, old) = (new.items(list), old.items(list));
        if new.len() != old.len() {
            let detail = format!("{list} may not be added or removed on resize");
            errors.forbidden(&path, detail);
            same = false;
            continue;
        }
        for (i, (new, old)) in new.iter().zip(old).enumerate() {
            if new.text("name") != old.text("name") {
                let detail = format!("{list} may not be renamed or reordered on resize");
                errors.forbidden(&path.index(i).child("name"), detail);
                same = false;
            }
        }
    }
    same
}

/// A resize sets the resources and resize policies of containers, and the resources of the pod.
pub(super) fn prepare_resize(new: &mut Value, old: &Value) {
    let lengths = |pod: &Value| LISTS.map(|list| pod.part("spec").items(list).len());
    if lengths(new) != lengths(old) {
        // Validation rejects it.
        return;
    }
    keep(new, old, |spec, new| {
        copy_field(spec, new, "resources");
        for list in LISTS {
            let names = |spec: &Value| -> Vec<String> {
                let names = spec.items(list).iter().map(|c| c.text("name").to_owned());
                names.collect()
            };
            if names(spec) != names(new) {
                copy_field(spec, new, list);
                continue;
            }
            for (container, new) in items_mut(spec, list).iter_mut().zip(new.items(list)) {
                copy_field(container, new, "resources");
                copy_field(container, new, "resizePolicy");
            }
        }
    });
}

/// Errors of a resize, without errors of the pod as a whole.
pub(super) fn validate_resize(new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::new();
    let (new_spec, old_spec) = (new.part("spec"), old.part("spec"));
    for (is_fixed, kind) in [
        (is_mirror(old), "static"),
        (old_spec.part("os").text("name") == "windows", "windows"),
    ] {
        if is_fixed {
            errors.forbidden(
                &ErrorPath::default(),
                format!("{kind} pods cannot be resized"),
            );
            return errors;
        }
    }
    let path = ErrorPath::new("spec");
    let class = old.part("status").text("qosClass");
    if class != qos_class(new_spec) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(&path, class, detail);
    }
    let running = old.part("status").items("containerStatuses").iter();
    let mut running = running.filter(|c| c.part("state").field("running").is_some());
    if running
        .next()
        .is_some_and(|c| c.field("resources").is_none())
    {
        let detail = "Pod running on node without support for resize";
        errors.forbidden(&path, detail);
    }
    pod_level(&mut errors, new_spec, old_spec, &path);
    if !same_containers(new_spec, old_spec, &mut errors) {
        return errors;
    }
    for list in ["initContainers", "containers"] {
        let both = new_spec.items(list).iter().zip(old_spec.items(list));
        for (i, (new, old)) in both.enumerate() {
            let at = path.child(list).index(i).child("resources");
            removed(
                &mut errors,
                new.part("resources"),
                old.part("resources"),
                "resource",
                &at,
            );
        }
    }
    for (new, old) in new_spec
        .items("containers")
        .iter()
        .zip(old_spec.items("containers"))
    {
        if unresized(new, old) != *old {
            errors.forbidden(&path, ONLY_CPU_AND_MEMORY);
        }
    }
    let both = new_spec
        .items("initContainers")
        .iter()
        .zip(old_spec.items("initContainers"));
    for (i, (new, old)) in both.enumerate() {
        let at = path.child("initContainers").index(i);
        if unresized(new, old) != *old {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.forbidden(&at, detail);
        }
        let policies = new.items("resizePolicy").iter();
        let restarts = policies.filter(|p| p.text("restartPolicy") == "RestartContainer");
        if new != old && !is_sidecar(new) {
            for _ in restarts {
                let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                errors.forbidden(&at, detail);
            }
        }
    }
    errors
}

fn pod_level(errors: &mut Errors, new: &Value, old: &Value, path: &ErrorPath) {
    let (after, before) = (new.part("resources"), old.part("resources"));
    let is_set = |r: &Value| {
        ["requests", "limits"]
            .iter()
            .any(|list| !r.entries(list).is_empty())
    };
    if !is_set(after) && !is_set(before) {
        return;
    }
    let at = path.child("resources");
    // Pod-level amounts may change, but not be removed as a whole.
    if !before.is_null() && after.is_null() {
        errors.forbidden(&at, "pod-level resources cannot be removed");
        return;
    }
    if !before.is_null() {
        removed(errors, after, before, "pod-level resource", &at);
    }
    let is_other = |name: &str| !matches!(name, "cpu" | "memory");
    let others = |r: &Value| {
        let lists = ["requests", "limits"].map(|list| {
            let mut map = r.map(list).cloned().unwrap_or_default();
            map.retain(|name, _| is_other(name));
            map
        });
        (lists, r.part("claims").clone())
    };
    if others(after) != others(before) {
        errors.forbidden(
            path,
            "only cpu and memory resources are mutable at pod-level",
        );
    }
}

/// Amounts can be changed and added, but not removed.
fn removed(errors: &mut Errors, new: &Value, old: &Value, what: &str, path: &ErrorPath) {
    for list in ["requests", "limits"] {
        let after = new.map(list);
        let is_removed = |name: &&str| after.is_none_or(|after| !after.contains_key(*name));
        if old
            .entries(list)
            .into_iter()
            .any(|(name, _)| is_removed(&name))
        {
            errors.forbidden(
                &path.child(list),
                format!("{what} {list} cannot be removed"),
            );
        }
    }
}

/// A container with the CPU and memory that it had.
fn unresized(new: &Value, old: &Value) -> Value {
    let mut container = new.clone();
    let before = old.part("resources");
    if let Some(resources) = existing(&mut container, "resources") {
        for list in ["requests", "limits"] {
            let Some(amounts) = existing(resources, list) else {
                continue;
            };
            for name in ["cpu", "memory"] {
                copy_field(amounts, before.part(list), name);
            }
            if before.field(list).is_none() && amounts.as_object().is_some_and(|m| m.is_empty()) {
                remove(resources, list);
            }
        }
    }
    container
}

/// A write of ephemeral containers changes no other field.
pub(super) fn prepare_ephemeral(new: &mut Value, old: &Value) {
    keep(new, old, |spec, new| {
        copy_field(spec, new, "ephemeralContainers")
    });
}

/// Ephemeral containers are added, never changed or removed.
pub(super) fn validate_ephemeral(new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::new();
    annotations::validate_update(
        &mut errors,
        new.part("metadata"),
        old.part("metadata"),
        new.part("spec"),
        &ErrorPath::new("metadata.annotations"),
    );
    // A static pod can be changed only on its node, so this error replaces all others.
    if is_mirror(old) {
        let detail = "static pods do not support ephemeral containers";
        let mut only = Errors::new();
        only.forbidden(&ErrorPath::default(), detail);
        return only;
    }
    let path = ErrorPath::new("spec.ephemeralContainers");
    for before in old.part("spec").items("ephemeralContainers") {
        let name = before.text("name");
        let mut after = new.part("spec").items("ephemeralContainers").iter();
        match after.find(|c| c.text("name") == name) {
            None => {
                let detail = format!("existing ephemeral containers {name:?} may not be removed\n");
                errors.forbidden(&path, detail);
            }
            Some(after) if after != before => {
                let detail = format!("existing ephemeral containers {name:?} may not be changed\n");
                errors.forbidden(&path, detail);
            }
            Some(_) => {}
        }
    }
    errors
}

fn is_mirror(pod: &Value) -> bool {
    pod.part("metadata")
        .part("annotations")
        .field(MIRROR)
        .is_some()
}
