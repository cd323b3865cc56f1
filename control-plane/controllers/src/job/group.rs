//! Jobs that are scheduled as groups: a Job with `spec.scheduling` gets a Workload and a PodGroup before its first pod,
//! and its pods belong to the PodGroup. Follows KEP-5547.
//!
//! A Job without `spec.scheduling` is scheduled pod by pod and gets neither, and so does one whose template names a
//! group, or that belongs to another controller that does not leave the group to it.

use super::super::runtime::Index;
use crate::runtime::ControllerContext;
use berth_objects::access::{AccessError, StoredObject};
use berth_objects::object::{
    ControllerKey, JOB, POD_GROUP, WORKLOAD, annotation, condition, controller_of,
    controller_reference, count, items, name, namespace, set, uid,
};
use serde_json::{Value, json};

/// The annotation of a Job that creates the group of its owner: the name of the template in the owner's Workload.
const TEMPLATE: &str = "scheduling.k8s.io/group-template-name";
/// The maximum length of a name.
const NAME_MAX: usize = 253;

/// The PodGroup of a Job, made when the Job is new. `None` when its pods belong to no group.
pub(super) fn of_job(
    cx: &mut ControllerContext<ControllerKey>,
    job: &StoredObject,
    pods: &[StoredObject],
) -> Result<Option<StoredObject>, AccessError> {
    let spec = &job["spec"];
    let template = annotation(job, TEMPLATE);
    if spec["scheduling"].is_null()
        || !spec["template"]["spec"]["schedulingGroup"].is_null()
        || (controller_of(job).is_some() && template.is_none())
    {
        return Ok(None);
    }
    let is_new = is_new(job, pods);
    let (workload, template) = match (controller_of(job), template) {
        (Some(owner), Some(template)) => (workload_of(cx, job, owner), template.to_owned()),
        _ => (own_workload(cx, job, is_new)?, template_name(job)),
    };
    let Some(workload) = workload else {
        return Ok(None);
    };
    let Some(group) = group(cx, job, &workload, &template, is_new)? else {
        return Ok(None);
    };
    if is_controlled_by(&workload, job) {
        keep_min_count(cx, job, &workload, &group)?;
    }
    Ok(Some(group))
}

/// Makes a pod a member of the group of its Job.
pub(super) fn join(pod: &mut Value, job: &Value, group: &Value) {
    set(
        pod,
        &["spec", "schedulingGroup", "podGroupName"],
        name(group).into(),
    );
    let owner = json!({
        "apiVersion": POD_GROUP.api_version,
        "kind": POD_GROUP.kind,
        "name": name(group),
        "uid": uid(group),
    });
    berth_objects::object::add_owner(pod, owner);
    // A pod uses a claim of its group by an entry with the same fields.
    let mut claims = items(&pod["spec"]["resourceClaims"]).to_vec();
    for claim in items(&job["spec"]["scheduling"]["resourceClaims"]) {
        if claims.iter().all(|own| own["name"] != claim["name"]) {
            claims.push(claim.clone());
        }
    }
    if !claims.is_empty() {
        set(pod, &["spec", "resourceClaims"], claims.into());
    }
}

/// Returns whether a Job has never started. Other Jobs keep their objects and get no new ones.
fn is_new(job: &Value, pods: &[StoredObject]) -> bool {
    let status = &job["status"];
    let counted = ["succeeded", "failed"].map(|field| count(&status[field], 0));
    pods.is_empty()
        && status["startTime"].is_null()
        && counted == [0, 0]
        && condition(status, "Suspended").is_none()
}

fn is_controlled_by(object: &Value, job: &Value) -> bool {
    controller_of(object).is_some_and(|owner| owner["uid"] == uid(job))
}

/// The Workload of the controller that owns a Job.
fn workload_of(
    cx: &ControllerContext<ControllerKey>,
    job: &Value,
    owner: &Value,
) -> Option<StoredObject> {
    let group = owner["apiVersion"]
        .as_str()?
        .split_once('/')
        .map_or("", |(group, _)| group);
    let mut workloads = cx.cache(WORKLOAD).by(Index::Namespace, namespace(job));
    let names_owner = |workload: &&StoredObject| {
        let named = &workload["spec"]["controllerRef"];
        named["apiGroup"].as_str().unwrap_or("") == group
            && named["kind"] == owner["kind"]
            && named["name"] == owner["name"]
    };
    workloads.find(names_owner).cloned()
}

/// The Workload that this controller makes for a Job. One that has other templates is not used, nor one of several.
fn own_workload(
    cx: &mut ControllerContext<ControllerKey>,
    job: &StoredObject,
    is_new: bool,
) -> Result<Option<StoredObject>, AccessError> {
    let own = cx.cache(WORKLOAD).by(Index::Controller, uid(job));
    let own: Vec<StoredObject> = own.take(2).cloned().collect();
    // A single Workload of the right form is used; with several it would be arbitrary which one applies.
    match own.as_slice() {
        [] if !is_new => Ok(None),
        [] => {
            let created = match cx.create(WORKLOAD, WORKLOAD.object(workload(job))) {
                Ok(created) => created,
                Err(error) => {
                    let job_name = name(job);
                    let message = format!("Failed to create Workload for Job {job_name}: {error}");
                    cx.warn(job, "FailedWorkloadCreate", message);
                    return Err(error);
                }
            };
            let message = format!("Created Workload {} for Job {}", name(&created), name(job));
            cx.normal(job, "WorkloadCreated", message);
            Ok(Some(created))
        }
        [workload] => {
            let templates = items(&workload["spec"]["podGroupTemplates"]).len();
            Ok((templates == 1).then(|| workload.clone()))
        }
        _ => Ok(None),
    }
}

/// The PodGroup of a Job, from a template of a Workload.
fn group(
    cx: &mut ControllerContext<ControllerKey>,
    job: &StoredObject,
    workload: &StoredObject,
    template: &str,
    is_new: bool,
) -> Result<Option<StoredObject>, AccessError> {
    let own = cx.cache(POD_GROUP).by(Index::Controller, uid(job));
    let of_workload =
        |group: &&StoredObject| group["spec"]["workloadRef"]["workloadName"] == name(workload);
    let own: Vec<StoredObject> = own.filter(of_workload).take(2).cloned().collect();
    match own.as_slice() {
        [group] => return Ok(Some(group.clone())),
        [] if is_new => {}
        _ => return Ok(None),
    }
    let templates = items(&workload["spec"]["podGroupTemplates"]);
    let Some(template) = templates.iter().find(|t| t["name"] == template) else {
        return Ok(None);
    };
    let created = cx.create(
        POD_GROUP,
        POD_GROUP.object(pod_group(job, workload, template)),
    )?;
    let message = format!("Created PodGroup {} for Job {}", name(&created), name(job));
    cx.normal(job, "PodGroupCreated", message);
    Ok(Some(created))
}

/// The least number of pods that the gang of a Job starts with; `None` without a gang.
fn min_count(job: &Value) -> Option<i64> {
    let gang = &job["spec"]["scheduling"]["schedulingPolicy"]["gang"];
    let parallelism = i64::from(count(&job["spec"]["parallelism"], 1));
    gang.is_object()
        .then(|| gang["minCount"].as_i64().unwrap_or(parallelism).max(1))
}

fn template_name(job: &Value) -> String {
    format!("{}-pgt-0", name(job))
}

/// The Workload of a Job. Its group has the priority of the pods: the scheduler requires both to be equal.
fn workload(job: &Value) -> Value {
    let scheduling = &job["spec"]["scheduling"];
    let policy = match min_count(job) {
        Some(count) => json!({"gang": {"minCount": count}}),
        None => json!({"basic": {}}),
    };
    let mut template = json!({"name": template_name(job), "schedulingPolicy": policy});
    for field in ["schedulingConstraints", "disruptionMode", "resourceClaims"] {
        if !scheduling[field].is_null() {
            template[field] = scheduling[field].clone();
        }
    }
    let class = &job["spec"]["template"]["spec"]["priorityClassName"];
    if class.as_str().is_some_and(|class| !class.is_empty()) {
        template["priorityClassName"] = class.clone();
    }
    // The hash keeps names of jobs apart that are equal after they are shortened.
    let hash = hash(&[uid(job)]);
    let base = shortened(name(job), NAME_MAX - hash.len() - 1);
    json!({
        "metadata": {
            "name": format!("{base}-{hash}"),
            "namespace": namespace(job),
            "ownerReferences": [controller_reference(JOB, job)],
        },
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": JOB.kind, "name": name(job)},
            "podGroupTemplates": [template],
        },
    })
}

/// The PodGroup that a template asks for.
fn pod_group(job: &Value, workload: &Value, template: &Value) -> Value {
    let template_name = template["name"].as_str().unwrap_or_default();
    let mut owners = vec![controller_reference(JOB, job)];
    // The Workload owns the group only if this controller made it.
    if is_controlled_by(workload, job) {
        owners.push(json!({
            "apiVersion": WORKLOAD.api_version,
            "kind": WORKLOAD.kind,
            "name": name(workload),
            "uid": uid(workload),
        }));
    }
    let mut spec = json!({
        "workloadRef": {"workloadName": name(workload), "templateName": template_name},
    });
    for field in [
        "schedulingPolicy",
        "schedulingConstraints",
        "disruptionMode",
        "resourceClaims",
        "priorityClassName",
    ] {
        if !template[field].is_null() {
            spec[field] = template[field].clone();
        }
    }
    json!({
        "metadata": {
            "name": group_name(name(workload), template_name),
            "namespace": namespace(job),
            "ownerReferences": owners,
        },
        "spec": spec,
    })
}

/// `<workload>-<template>-<hash>`; if that is too long, the longer of the two names is truncated.
fn group_name(workload: &str, template: &str) -> String {
    let hash = hash(&[workload, template]);
    let room = NAME_MAX - hash.len() - 2;
    let half = room / 2;
    let (workload_max, template_max) = match (workload.len() <= half, template.len() <= half) {
        _ if workload.len() + template.len() <= room => (room, room),
        (true, _) => (room, room - workload.len()),
        (_, true) => (room - template.len(), room),
        (false, false) => (room - half, half),
    };
    let (workload, template) = (
        shortened(workload, workload_max),
        shortened(template, template_max),
    );
    format!("{workload}-{template}-{hash}")
}

fn shortened(text: &str, bytes_max: usize) -> &str {
    // Names are ASCII.
    text.get(..bytes_max).unwrap_or(text)
}

/// A hash of texts in the letters of generated names.
fn hash(texts: &[&str]) -> String {
    super::super::deployment::template::hash_of(texts)
}

/// Writes a changed size of the gang to the Workload and the PodGroup. It counts for the pods that are scheduled next.
fn keep_min_count(
    cx: &mut ControllerContext<ControllerKey>,
    job: &StoredObject,
    workload: &StoredObject,
    group: &StoredObject,
) -> Result<(), AccessError> {
    let Some(count) = min_count(job) else {
        return Ok(());
    };
    let template = "/spec/podGroupTemplates/0/schedulingPolicy/gang/minCount";
    let own = "/spec/schedulingPolicy/gang/minCount";
    for (kind, object, path) in [(WORKLOAD, workload, template), (POD_GROUP, group, own)] {
        if object.pointer(path).is_some_and(|now| *now != count) {
            let mut new = Value::clone(object);
            if let Some(slot) = new.pointer_mut(path) {
                *slot = count.into();
            }
            cx.update(kind, new)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_keep_something_of_both() {
        let long = "w".repeat(250);
        for (workload, template) in [("w", "t"), (&*long, "t"), ("w", &*long), (&*long, &*long)] {
            let name = group_name(workload, template);
            assert!(name.len() <= NAME_MAX, "{name}");
            assert!(name.starts_with(&workload[..1]), "{name}");
            let rest = name.trim_start_matches('w');
            assert!(rest.starts_with('-'), "{name}");
        }
        assert_ne!(group_name("a", "bc"), group_name("ab", "c"));
        assert_eq!(group_name("a", "b"), group_name("a", "b"));
    }

    #[test]
    fn the_gang_of_a_job_has_the_size_that_it_states_or_its_parallelism() {
        let job = |gang: Value, parallelism: Value| json!({"spec": {"parallelism": parallelism, "scheduling": {"schedulingPolicy": gang}}});
        let cases = [
            (job(json!({"gang": {"minCount": 2}}), json!(4)), Some(2)),
            (job(json!({"gang": {}}), json!(4)), Some(4)),
            (job(json!({"gang": {}}), json!(0)), Some(1)),
            (job(json!({"gang": {}}), json!(null)), Some(1)),
            (job(json!({"basic": {}}), json!(4)), None),
            (job(json!(null), json!(4)), None),
        ];
        for (job, expected) in cases {
            assert_eq!(min_count(&job), expected, "{job}");
        }
    }
}
