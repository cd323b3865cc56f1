//! The behaviour of the containers of a pod: their run time, their exit codes, and images that cannot be pulled.

use super::command;
use super::{EXIT_CODE, IMAGE_PULL, RUN_SECONDS};
use berth_objects::object::{annotation, annotation_number, items};
use serde_json::Value;
use std::time::Duration;

/// No annotation asks for longer than this.
const SECONDS_MAX: f64 = 100.0 * 365.0 * 86_400.0;
/// The numbers of signals. A process that a signal ends has this number and 128 as its exit code.
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The reason why an image cannot be pulled.
pub(super) const PULL_ERROR: &str = "the simulated registry does not have it";
/// Image tags that no registry has, from examples and tests of failing rollouts.
const MISSING_TAGS: [&str; 6] = [
    "404",
    "does-not-exist",
    "invalid",
    "invalid-tag",
    "non-existent",
    "nonexistent",
];

/// The seconds in an annotation of a pod.
pub(super) fn given_seconds(pod: &Value, annotation: &str) -> Option<Duration> {
    annotation_number::<f64>(pod, annotation)
        .filter(|s| s.is_finite() && *s >= 0.0)
        .map(|s| Duration::from_secs_f64(s.min(SECONDS_MAX)))
}

/// The run time of the containers of a pod: the annotation, else the longest run time that their commands show, if all
/// commands show one.
pub(super) fn ends_after(pod: &Value) -> Option<Duration> {
    if let Some(run) = given_seconds(pod, RUN_SECONDS) {
        return Some(run);
    }
    let containers = items(&pod["spec"]["containers"]).iter();
    let ends: Option<Vec<Duration>> = containers
        .map(|container| command::ending(container).map(|ending| ending.after))
        .collect();
    ends?.into_iter().max()
}

/// The exit code of a container that terminates by itself.
pub(super) fn exit_code(pod: &Value, container: &Value) -> i32 {
    let given = annotation_number(pod, EXIT_CODE);
    given
        .or_else(|| command::ending(container).map(|ending| ending.exit_code))
        .unwrap_or_default()
}

/// The exit code of stopped containers: the annotation, else the code of SIGTERM, or of SIGKILL after the grace period.
pub(super) fn stopped_exit_code(pod: &Value, is_killed: bool) -> i32 {
    let by_signal = if is_killed { SIGKILL } else { SIGTERM };
    annotation_number(pod, EXIT_CODE).unwrap_or(128 + by_signal)
}

/// Returns whether a container of the pod will fail.
pub(super) fn is_failing(pod: &Value) -> bool {
    let mut containers = items(&pod["spec"]["containers"]).iter();
    containers.any(|container| exit_code(pod, container) != 0)
}

/// Returns whether the image of a container cannot be pulled.
pub(super) fn is_image_missing(pod: &Value, container: &Value) -> bool {
    if annotation(pod, IMAGE_PULL) == Some("fail") {
        return true;
    }
    let image = container["image"].as_str().unwrap_or_default();
    let name = image.rsplit_once('/').map_or(image, |(_, name)| name);
    let tag = name.rsplit_once(':').map(|(_, tag)| tag);
    tag.is_some_and(|tag| MISSING_TAGS.contains(&tag))
}

/// The containers whose images cannot be pulled.
pub(super) fn without_image(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers"];
    let containers = lists.into_iter().flat_map(|list| items(&pod["spec"][list]));
    containers.filter(|container| is_image_missing(pod, container))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_ends_with_the_last_of_its_containers_if_all_end() {
        let pod = |commands: &[&[&str]]| {
            let containers: Vec<Value> = commands.iter().map(|c| json!({"command": c})).collect();
            json!({"spec": {"containers": containers}})
        };
        let seconds = |commands: &[&[&str]]| ends_after(&pod(commands)).map(|d| d.as_secs());
        assert_eq!(seconds(&[&["sleep", "5"], &["true"]]), Some(5));
        assert_eq!(seconds(&[&["sleep", "5"], &["nginx"]]), None);
        assert_eq!(seconds(&[&["nginx"]]), None);
        assert!(is_failing(&pod(&[&["true"], &["false"]])));
        assert!(!is_failing(&pod(&[&["true"], &["nginx"]])));
    }

    #[test]
    fn images_are_missing_by_tag_or_annotation() {
        let pod = json!({});
        for (image, is_missing) in [
            ("nginx", false),
            ("nginx:1.27", false),
            ("foo:non-existent", true),
            ("registry.example:404/foo", false),
            ("registry.example:5000/foo:404", true),
            ("foo:invalid@sha256:abc", false),
        ] {
            assert_eq!(
                is_image_missing(&pod, &json!({"image": image})),
                is_missing,
                "{image}"
            );
        }
        let pod = json!({"metadata": {"annotations": {IMAGE_PULL: "fail"}}});
        assert!(is_image_missing(&pod, &json!({"image": "nginx"})));
    }
}
