//! Groups: the trees of templates in Workloads, the status of PodGroups, and references to groups.

use super::errors::{ErrorPath, Errors, Shown};
use super::markers::{NOT_CLEARED, NOT_SET_LATER};
use super::owner::Owner;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;

/// The levels that a tree of templates may have, the level of the PodGroups included.
const TREE_DEPTH_MAX: usize = 4;
const NO_CHILDREN: &str =
    "must have at least one child PodGroupTemplate or CompositePodGroupTemplate";
const SEVERAL_PRIORITIES: &str =
    "all priority and priorityClassName values must be identical, detected multiple values";
const ABOVE_PARALLELISM: &str = "must be less than or equal to `spec.parallelism`";
const UNKNOWN_CLAIM: &str = "must match the name of an entry in `spec.resourceClaims`";

pub(crate) fn group_claim_statuses(e: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    claim_statuses(e, owner, path)
}

/// A pod that belongs to a group names it.
pub(crate) fn scheduling_group(
    errors: &mut Errors,
    _: &Owner,
    group: &Value,
    path: &ErrorPath<'_>,
) {
    if group.is_null() {
        return;
    }
    let path = path.child("podGroupName");
    match group.maybe_text("podGroupName") {
        None => errors.invalid(&path, "", "must specify one of: `podGroupName`"),
        Some(name) => errors.each_invalid(&path, name, super::names::dns_subdomain(name)),
    }
}

/// The gang of a Job must not exceed its parallelism.
pub(crate) fn job_scheduling<'a>(
    errors: &mut Errors,
    owner: &Owner<'a>,
    new: &'a Value,
    path: &ErrorPath<'a>,
) {
    let gang = new.part("schedulingPolicy").part("gang");
    let parallelism = owner.value.maybe_int("parallelism").unwrap_or(1);
    if let Some(count) = gang.maybe_int("minCount").filter(|c| *c > parallelism) {
        let path = path.child("schedulingPolicy.gang.minCount");
        errors.invalid(&path, count, ABOVE_PARALLELISM);
    }
}

/// The configuration of a Job may not be added or removed.
pub(super) fn scheduling_kept(
    errors: &mut Errors,
    spec: &Value,
    before: &Value,
    path: &ErrorPath<'_>,
) {
    let path = path.child("scheduling");
    match (before.field("scheduling"), spec.field("scheduling")) {
        (None, Some(_)) => errors.invalid(&path, Shown::null(), NOT_SET_LATER),
        (Some(_), None) => errors.invalid(&path, Shown::null(), NOT_CLEARED),
        _ => {}
    }
}

/// The statuses of claims must refer to claims of the group.
fn claim_statuses(errors: &mut Errors, owner: &Owner<'_>, path: &ErrorPath<'_>) {
    let known = owner.value.part("spec").items("resourceClaims").iter();
    let known: HashSet<&str> = known.map(|claim| claim.text("name")).collect();
    let statuses = owner.value.part("status").items("resourceClaimStatuses");
    for (i, status) in statuses.iter().enumerate() {
        let name = status.text("name");
        if !known.contains(name) {
            let path = path.child("resourceClaimStatuses").index(i);
            errors.invalid(&path.child("name"), name, UNKNOWN_CLAIM);
        }
    }
}

/// Names are unique in the tree, it is not too deep, all templates have one priority, and composite ones have children.
pub(crate) fn workload_templates(
    errors: &mut Errors,
    _: &Owner,
    spec: &Value,
    path: &ErrorPath<'_>,
) {
    let mut names = HashSet::new();
    let leaves = spec.items("podGroupTemplates").iter();
    names.extend(leaves.map(|template| template.text("name")));
    unique_names(errors, spec, path, &mut names, 1);
    let composites = spec.items("compositePodGroupTemplates");
    for (i, template) in composites.iter().enumerate() {
        if is_too_deep(template, 1) {
            let at = path.child("compositePodGroupTemplates").index(i);
            let shown = Shown::from(template.part("compositePodGroupTemplates"));
            let detail = format!("maximum template hierarchy depth is {TREE_DEPTH_MAX}");
            errors.invalid(&at, shown, detail);
        }
    }
    let mut priorities = Vec::new();
    collect_priorities(spec, &mut priorities, 0);
    if let Some((first, rest)) = priorities.split_first()
        && rest.iter().any(|other| other != first)
    {
        errors.invalid(path, Shown::null(), SEVERAL_PRIORITIES);
    }
    with_children(errors, spec, path, 1);
}

/// Reports the names that templates of other lists of the tree have. The names within one list are compared by its
/// marker.
fn unique_names<'s>(
    errors: &mut Errors,
    holder: &'s Value,
    path: &ErrorPath<'_>,
    names: &mut HashSet<&'s str>,
    depth: usize,
) {
    let composites = holder.items("compositePodGroupTemplates");
    list_names(
        errors,
        composites,
        &path.child("compositePodGroupTemplates"),
        names,
    );
    if depth > TREE_DEPTH_MAX {
        return;
    }
    for (i, template) in composites.iter().enumerate() {
        let path = path.child("compositePodGroupTemplates").index(i);
        let leaves = template.items("podGroupTemplates");
        list_names(errors, leaves, &path.child("podGroupTemplates"), names);
        unique_names(errors, template, &path, names, depth + 1);
    }
}

fn list_names<'s>(
    errors: &mut Errors,
    list: &'s [Value],
    path: &ErrorPath<'_>,
    names: &mut HashSet<&'s str>,
) {
    for (i, template) in list.iter().enumerate() {
        let name = template.text("name");
        if names.contains(name) {
            errors.duplicate(&path.index(i).child("name"), name);
        }
    }
    names.extend(list.iter().map(|template| template.text("name")));
}

/// Returns whether a composite template is on the last level or below, where the PodGroups must be.
fn is_too_deep(template: &Value, depth: usize) -> bool {
    let mut children = template.items("compositePodGroupTemplates").iter();
    depth >= TREE_DEPTH_MAX || children.any(|child| is_too_deep(child, depth + 1))
}

/// The class and the value of each template.
fn collect_priorities<'s>(
    holder: &'s Value,
    found: &mut Vec<(&'s str, Option<i64>)>,
    depth: usize,
) {
    let priority = |t: &'s Value| (t.text("priorityClassName"), t.maybe_int("priority"));
    found.extend(holder.items("podGroupTemplates").iter().map(priority));
    for template in holder.items("compositePodGroupTemplates") {
        found.push(priority(template));
        if depth < TREE_DEPTH_MAX {
            collect_priorities(template, found, depth + 1);
        }
    }
}

fn with_children(errors: &mut Errors, holder: &Value, path: &ErrorPath<'_>, depth: usize) {
    let composites = holder.items("compositePodGroupTemplates");
    for (i, template) in composites.iter().enumerate() {
        let path = path.child("compositePodGroupTemplates").index(i);
        let below = ["podGroupTemplates", "compositePodGroupTemplates"];
        if below.iter().all(|list| template.items(list).is_empty()) {
            errors.invalid(&path, template.text("name"), NO_CHILDREN);
        }
        if depth <= TREE_DEPTH_MAX {
            with_children(errors, template, &path, depth + 1);
        }
    }
}
