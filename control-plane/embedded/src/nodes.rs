//! The simulated nodes of a file: Node objects, as kwok has them or as `kubectl get nodes -o yaml` prints them.

use crate::args::NodeArgs;
use crate::manifest::{self, ManifestDocument};
use berth_controllers::kubelet;
use berth_edge::exit::CommandFailure;
use serde_json::Value;
use std::time::Duration;

/// The annotation with the number of nodes that an object describes.
const COUNT: &str = "berth.dev/count";
/// The fields that a server has added to a node that it prints.
const OF_SERVER: [&str; 6] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
];

/// Adds the values of the arguments to the options of the kubelets.
///
/// # Errors
/// A file cannot be read, or an object is not a Node.
pub fn options(
    args: &NodeArgs,
    mut options: kubelet::KubeletOptions,
) -> Result<kubelet::KubeletOptions, CommandFailure> {
    if let Some(cpu) = &args.node_cpu {
        options.shape.cpu.clone_from(cpu);
    }
    if let Some(memory) = &args.node_memory {
        options.shape.memory.clone_from(memory);
    }
    options.job_run = Some(Duration::from_secs_f64(args.job_seconds));
    for document in manifest::read_all(&args.node_file)? {
        add(document, &mut options.given)?;
    }
    Ok(options)
}

fn add(document: ManifestDocument, nodes: &mut Vec<Value>) -> Result<(), CommandFailure> {
    let wrong = |what: String| {
        CommandFailure::Usage(format!(
            "--node-file: {}: {what}; nothing was started",
            document.place
        ))
    };
    if document.kind() != "Node" || document.api_version() != "v1" {
        return Err(wrong(format!(
            "{} {} is no Node; give other objects with -f",
            document.kind(),
            document.name()
        )));
    }
    let mut node = document.object.clone();
    if let Some(metadata) = node["metadata"].as_object_mut() {
        for field in OF_SERVER {
            metadata.remove(field);
        }
    }
    let annotations = node["metadata"]["annotations"].as_object_mut();
    let count = annotations.and_then(|annotations| annotations.remove(COUNT));
    let Some(count) = count else {
        nodes.push(node);
        return Ok(());
    };
    let text = count.as_str().unwrap_or_default();
    let count = text.parse::<usize>().ok();
    let count = count.filter(|count| (1..=kubelet::NODES_MAX).contains(count));
    let count = count.ok_or_else(|| {
        wrong(format!(
            "annotation {COUNT} of node {} is {text:?}; it must be a number from 1 to {}",
            document.name(),
            kubelet::NODES_MAX
        ))
    })?;
    for index in 1..=count {
        let mut one = node.clone();
        let name = format!("{}-{index}", document.name());
        let labels = one["metadata"]["labels"].as_object_mut();
        // A label with the name of the object would be the same for all.
        if let Some(hostname) = labels.and_then(|labels| labels.get_mut("kubernetes.io/hostname")) {
            *hostname = name.clone().into();
        }
        one["metadata"]["name"] = name.into();
        nodes.push(one);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn read(text: &str) -> Result<kubelet::KubeletOptions, CommandFailure> {
        let dir = tempfile::tempdir().expect("a directory");
        let file: PathBuf = dir.path().join("nodes.yaml");
        std::fs::write(&file, text).expect("a file");
        let args = NodeArgs {
            node_file: vec![file],
            node_cpu: Some("16".to_owned()),
            node_memory: None,
            job_seconds: 2.5,
        };
        options(&args, kubelet::KubeletOptions::default())
    }

    #[test]
    fn a_file_has_nodes_of_several_shapes() {
        let text = "\
apiVersion: v1
kind: Node
metadata:
  name: big
  uid: '1234'
  annotations: {berth.dev/count: '3', kwok.x-k8s.io/node: fake}
  labels: {kubernetes.io/hostname: big, type: kwok}
spec: {taints: [{key: kwok.x-k8s.io/node, value: fake, effect: NoSchedule}]}
status: {capacity: {cpu: '64'}}
---
apiVersion: v1
kind: Node
metadata: {name: small}
";
        let options = read(text).expect("valid");
        let names: Vec<_> = options
            .given
            .iter()
            .map(|n| &n["metadata"]["name"])
            .collect();
        assert_eq!(names, ["big-1", "big-2", "big-3", "small"]);
        let second = &options.given[1];
        assert_eq!(
            second["metadata"]["labels"]["kubernetes.io/hostname"],
            "big-2"
        );
        assert_eq!(
            second["metadata"]["annotations"]
                .as_object()
                .map(serde_json::Map::len),
            Some(1)
        );
        assert!(second["metadata"]["uid"].is_null());
        assert_eq!(options.shape.cpu, "16");
        assert_eq!(options.job_run, Some(Duration::from_millis(2_500)));
    }

    #[test]
    fn what_is_no_node_is_refused_with_its_place() {
        for (text, expect) in [
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n",
                "Pod p is no Node",
            ),
            (
                "apiVersion: v1\nkind: Node\nmetadata: {name: node, annotations: {berth.dev/count: many}}\n",
                "is \"many\"",
            ),
            (
                "apiVersion: v1\nkind: Node\nmetadata: {name: node, annotations: {berth.dev/count: '0'}}\n",
                "is \"0\"",
            ),
        ] {
            match read(text) {
                Err(CommandFailure::Usage(error)) => {
                    assert!(
                        error.contains("document 1") && error.contains(expect),
                        "{error}"
                    );
                }
                other => panic!("{text}: {:?}", other.map(|o| o.given)),
            }
        }
    }
}
