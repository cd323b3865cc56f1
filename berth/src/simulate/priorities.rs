//! The priorities of pods that name a PriorityClass and do not state a priority, as the admission of an API server sets
//! them.

use berth_api::{Pod, Str};
use berth_core::PriorityClasses;
use berth_edge::exit::CommandFailure;
use berth_simulation::Trace;
use std::collections::HashMap;
use std::sync::Arc;

/// Sets the priorities of all pods, those of generators and DaemonSets included, and of the groups of such pods.
///
/// # Errors
/// A pod names a class that does not exist, or whose value is no priority.
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
        let of_pods = groups.get(&(group.namespace.clone(), group.name.clone()));
        group.priority = group.priority.or(of_pods.copied().flatten());
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
    let failed = |reason: String| {
        let namespace = pod.namespace();
        CommandFailure::Usage(format!("failed to create pod {namespace}/{name}: {reason}"))
    };
    let forbidden = |e| failed(format!("pods {:?} is forbidden: {e}", name.as_str()));
    let Some(found) = classes.find(class).map_err(forbidden)? else {
        return Ok(None);
    };
    let mut pod = pod.clone();
    let value = i32::try_from(found.value);
    pod.spec.priority = Some(value.map_err(|_| {
        failed(format!(
            "the value {} of its PriorityClass is no priority; write a whole number from {} to {}",
            found.value,
            i32::MIN,
            i32::MAX
        ))
    })?);
    if pod.spec.preemption_policy.is_none() {
        pod.spec.preemption_policy = found.preemption_policy.map(Str::from);
    }
    Ok(Some(pod))
}
