//! The priorities of pods and groups that name a PriorityClass and do not state a priority, as the admission of an API server sets
//! them.

use berth_api::{Pod, Str};
use berth_core::PriorityClasses;
use berth_edge::exit::CommandFailure;
use berth_simulation::Trace;
use std::collections::HashMap;
use std::sync::Arc;

/// Sets the priorities of all pods, those of generators and DaemonSets included, and of groups.
///
/// # Errors
/// A pod or group names a class that does not exist, or whose value is no priority.
pub(super) fn resolve(trace: &mut Trace, classes: &PriorityClasses) -> Result<(), CommandFailure> {
    let pods = trace.pods.iter_mut().map(|pod| (&pod.name, &mut pod.pod));
    let drawn = trace.generators.iter_mut();
    let pods = pods.chain(drawn.map(|generator| (&generator.name, &mut generator.pod)));
    let daemons = trace.daemon_sets.iter_mut();
    let pods = pods.chain(daemons.map(|set| (&set.name, &mut set.pod)));
    // Pods alike stay one. The first version of each is kept, so that its address is not used again.
    let mut resolved: HashMap<*const Pod, [Arc<Pod>; 2]> = HashMap::new();
    let mut groups: HashMap<(Str, Str), Option<i32>> = HashMap::new();
    for (name, pod) in pods {
        if pod.spec.priority.is_some() {
            continue;
        }
        if let Some([_, known]) = resolved.get(&Arc::as_ptr(pod)) {
            *pod = known.clone();
        } else if let Some(with_priority) = with_priority(name, pod, classes)? {
            if let Some(group) = pod.pod_group_name() {
                let group = (pod.namespace().clone(), group.clone());
                groups.insert(group, with_priority.spec.priority);
            }
            let versions = [pod.clone(), Arc::new(with_priority)];
            *pod = versions[1].clone();
            resolved.insert(Arc::as_ptr(&versions[0]), versions);
        }
    }
    for group in &mut trace.groups {
        if group.priority.is_some() {
            continue;
        }
        group.priority = match &group.priority_class {
            Some(class) => {
                let (namespace, name) = (&group.namespace, &group.name);
                let found = class_of("podgroups", namespace, name, class, classes)?;
                found.map(|(priority, _)| priority)
            }
            None => {
                let of_pods = groups.get(&(group.namespace.clone(), group.name.clone()));
                of_pods.copied().flatten()
            }
        };
    }
    Ok(())
}

/// The pod with the priority of its class; `None` without a class.
fn with_priority(
    name: &Str,
    pod: &Pod,
    classes: &PriorityClasses,
) -> Result<Option<Pod>, CommandFailure> {
    let class = &pod.spec.priority_class_name;
    let Some((priority, policy)) = class_of("pods", pod.namespace(), name, class, classes)? else {
        return Ok(None);
    };
    let mut pod = pod.clone();
    pod.spec.priority = Some(priority);
    if pod.spec.preemption_policy.is_none() {
        pod.spec.preemption_policy = policy;
    }
    Ok(Some(pod))
}

/// The priority and the preemption policy of the class that an object names; `None` without a class.
fn class_of(
    resource: &str,
    namespace: &Str,
    name: &Str,
    class: &str,
    classes: &PriorityClasses,
) -> Result<Option<(i32, Option<Str>)>, CommandFailure> {
    let failed = |reason: String| {
        let kind = resource.trim_end_matches('s');
        CommandFailure::Usage(format!(
            "failed to create {kind} {namespace}/{name}: {reason}"
        ))
    };
    let forbidden = |e| failed(format!("{resource} {:?} is forbidden: {e}", name.as_str()));
    let Some(found) = classes.find(class).map_err(forbidden)? else {
        return Ok(None);
    };
    let priority = i32::try_from(found.value).map_err(|_| {
        failed(format!(
            "the value {} of its PriorityClass is no priority; write a whole number from {} to {}",
            found.value,
            i32::MIN,
            i32::MAX
        ))
    })?;
    Ok(Some((priority, found.preemption_policy.map(Str::from))))
}
